#include "cpu/cpu_peak.h"
#include "cpu/kernels.h"
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

uint64_t dg_cpu_read(const void *data, size_t n)
{
    const uint64_t *at = data;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < n / sizeof *at; i += 8)
        for (int k = 0; k < 8; k++)
            sum[k] += at[i + (size_t)k];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

#if defined(__aarch64__)

size_t dg_cpu_peaks(dg_cpu_peak out[DG_CPU_MAX_PEAKS])
{
    /* Linux's names of these are not in every header */
    enum { HAS_DOTPROD = 1 << 20, HAS_I8MM = 1 << 13, HAS_BF16 = 1 << 14 };
    unsigned long more = getauxval(AT_HWCAP2);
    size_t n = dg_cpu_peaks_neon(out);
    return n + dg_cpu_peaks_matrix(out + n, getauxval(AT_HWCAP) & HAS_DOTPROD, more & HAS_I8MM,
                                   more & HAS_BF16);
}

#elif defined(__x86_64__)

size_t dg_cpu_peaks(dg_cpu_peak out[DG_CPU_MAX_PEAKS])
{
    const unsigned flags = dg_cpu_flags();
    size_t n = flags & DG_CPU_AVX2 ? dg_cpu_peaks_avx2(out) : 0;
    if (flags & DG_CPU_VNNI)
        n += dg_cpu_peaks_vnni(out + n);
    if (flags & DG_CPU_AMX)
        n += dg_cpu_peaks_amx(out + n);
    return n;
}

#else

size_t dg_cpu_peaks(dg_cpu_peak out[DG_CPU_MAX_PEAKS])
{
    (void)out;
    return 0;
}

#endif
