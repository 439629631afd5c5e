/* The CPU backend: stages over the kernel table, on a pool of threads. */
#ifndef DG_CPU_CPU_BACKEND_H
#define DG_CPU_CPU_BACKEND_H

#include "backend/backend.h"

/* Rows of a pass: four canvases of 256 and half a thousand of a prompt take half a gigabyte of
 * buffers at the published shape. */
enum { DG_CPU_CANVAS_ROWS = 1024, DG_CPU_PROMPT_ROWS = 512 };

/* A frame of a video (bench_vision --layers 1 --threads 1, Neoverse-V1: 67 % of the peak at 630
 * patches, 59 % at 2520, where attention has more to do). */
enum { DG_CPU_PICTURE_PATCHES = 70 * 9 };

typedef struct dg_cpu_options {
    int n_thread;   /* at least 1 */
    unsigned flags; /* instruction sets to use: dg_cpu_flags(), or fewer */
    bool exact;     /* products on quantised weights in floats; else in whole numbers */
} dg_cpu_options;

dgemma_status dg_cpu_open(dg_backend **out, const dg_cpu_options *opt, dgemma_error *err);

/* Told of each product of the language model's layers before it is made, on the thread that runs
 * the pass: matrix `mat` of w, one of the model's own, meets n_row rows of floats at x, ldx apart.
 */
typedef void dg_cpu_observe_fn(void *arg, const dg_weight *w, int mat, const float *x, size_t ldx,
                               int n_row);

/* From the next pass on. The backend was opened with `exact`: all rows are floats then. */
void dg_cpu_observe(dg_backend *be, dg_cpu_observe_fn *fn, void *arg);

#endif
