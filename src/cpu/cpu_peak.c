#include "cpu/cpu_peak.h"
#include "cpu/kernels.h"
#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
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

/* Tiles are large, and the system has to be asked for room to save them. */
static bool has_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18, OSXSAVE = 1 << 27 };
    unsigned eax, ebx, ecx, edx, low, high;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & OSXSAVE))
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low >> 17 & 3) == 3 && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

size_t dg_cpu_peaks(dg_cpu_peak out[DG_CPU_MAX_PEAKS])
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };
    unsigned eax, ebx, ecx, edx = 0;
    size_t n = dg_cpu_flags() & DG_CPU_AVX2 ? dg_cpu_peaks_avx2(out) : 0;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni"))
        n += dg_cpu_peaks_vnni(out + n);
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & AMX_TILE) && has_tiles())
        n += dg_cpu_peaks_amx(out + n, edx & AMX_INT8, edx & AMX_BF16);
    return n;
}

#else

size_t dg_cpu_peaks(dg_cpu_peak out[DG_CPU_MAX_PEAKS])
{
    (void)out;
    return 0;
}

#endif
