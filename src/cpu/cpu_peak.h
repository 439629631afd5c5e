/* How fast this processor could be: loops of its instructions for products, on one thread, and
 * reading. What kernels reach is held against them. */
#ifndef DG_CPU_CPU_PEAK_H
#define DG_CPU_CPU_PEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* run() takes ten to a hundred microseconds, does `ops` multiplications and additions, and gives
 * something that depends on all of them. */
typedef struct dg_cpu_peak {
    const char *name; /* "f32 NEON", "int8 i8mm" */
    bool integer;
    double ops;
    float (*run)(void);
} dg_cpu_peak;

enum { DG_CPU_MAX_PEAKS = 8 };

/* Those that this processor can run, best effort first of each kind; how many. */
size_t dg_cpu_peaks(dg_cpu_peak out[DG_CPU_MAX_PEAKS]);

/* Reads n bytes, a multiple of 64, once. */
uint64_t dg_cpu_read(const void *data, size_t n);

/* In the files of their instruction sets: how many were added to out. */
size_t dg_cpu_peaks_neon(dg_cpu_peak *out);
size_t dg_cpu_peaks_matrix(dg_cpu_peak *out, bool dotprod, bool i8mm, bool bf16);
size_t dg_cpu_peaks_avx2(dg_cpu_peak *out);
size_t dg_cpu_peaks_vnni(dg_cpu_peak *out);
size_t dg_cpu_peaks_amx(dg_cpu_peak *out);

#endif
