/* What this processor has, and which kernels that gives: the only place that chooses. */
#include "cpu/kernels.h"
#include <string.h>
#include "base/common.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

/* From the plainest to the best. */
static const struct {
    const char *name;
    unsigned flags;
} sets[] = {
    {"ref", 0},
    {"neon", DG_CPU_NEON},
    {"i8mm", DG_CPU_NEON | DG_CPU_I8MM},
    {"bf16", DG_CPU_NEON | DG_CPU_I8MM | DG_CPU_BF16},
    {"avx2", DG_CPU_AVX2},
    {"vnni", DG_CPU_AVX2 | DG_CPU_VNNI},
    {"amx", DG_CPU_AVX2 | DG_CPU_VNNI | DG_CPU_AMX | DG_CPU_BF16},
};

#if defined(__x86_64__)
/* The builtins also ask whether the system saves the wide registers; not every compiler knows
 * "f16c". */
static bool has_avx2(void)
{
    unsigned eax, ebx, ecx, edx;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

static bool has_vnni(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

/* Tiles are large, and the system has to be asked for room to save them. What has them has vectors
 * of bfloat16 numbers as well. */
static bool has_amx(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18, OSXSAVE = 1 << 27 };
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };
    const unsigned all = AMX_BF16 | AMX_TILE | AMX_INT8;
    unsigned eax, ebx, ecx, edx, low, high;
    if (!__builtin_cpu_supports("avx512bf16") || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) ||
        (edx & all) != all || !__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & OSXSAVE))
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low >> 17 & 3) == 3 && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

static unsigned x86_flags(void)
{
    if (!has_avx2())
        return 0;
    if (!has_vnni())
        return DG_CPU_AVX2;
    return DG_CPU_AVX2 | DG_CPU_VNNI | (has_amx() ? DG_CPU_AMX | DG_CPU_BF16 : 0);
}
#endif

unsigned dg_cpu_flags(void)
{
#if defined(__aarch64__)
    /* Linux's names are not in every header; who has the matrix instructions has halves, too */
    enum { HAS_HALVES = 1 << 10, HAS_I8MM = 1 << 13, HAS_BF16 = 1 << 14 };
    unsigned long more = getauxval(AT_HWCAP) & HAS_HALVES ? getauxval(AT_HWCAP2) : 0;
    return DG_CPU_NEON | (more & HAS_I8MM ? DG_CPU_I8MM : 0) | (more & HAS_BF16 ? DG_CPU_BF16 : 0);
#elif defined(__x86_64__)
    return x86_flags();
#else
    return 0;
#endif
}

/* The set called name[0..n); DG_COUNT(sets) when there is none. */
static size_t find_set(const char *name, size_t n)
{
    size_t i = 0;
    while (i < DG_COUNT(sets) && (strlen(sets[i].name) != n || memcmp(sets[i].name, name, n) != 0))
        i++;
    return i;
}

bool dg_cpu_flags_parse(unsigned *flags, const char *text)
{
    unsigned found = 0;
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        size_t i = find_set(p, n);
        if (i == DG_COUNT(sets))
            return false;
        found |= sets[i].flags;
        p += n;
        if (!*p)
            break;
    }
    *flags = found;
    return true;
}

const char *dg_cpu_flags_name(unsigned flags)
{
    size_t best = 0;
    for (size_t i = 0; i < DG_COUNT(sets); i++)
        if ((flags & sets[i].flags) == sets[i].flags)
            best = i;
    return sets[best].name;
}

const char *dg_cpu_profile(unsigned flags, bool integer)
{
    if (flags & (DG_CPU_NEON | DG_CPU_AVX2))
        return integer ? "integer-2" : "portable";
    return integer ? "integer-2-reference" : "reference";
}

void dg_kernels_init(dg_kernels *k, unsigned flags)
{
    *k = dg_kernels_ref;
#if defined(__aarch64__)
    dg_kernels_init_arm(k, flags);
#elif defined(__x86_64__)
    dg_kernels_init_x86(k, flags);
#else
    (void)flags;
#endif
}
