/* The speed of fused multiply-adds alone: what a matrix product is measured against. */
#include <string.h>
#include "base/clock.h"
#include "cpu/cpu_peak.h"
#include "kernels/check.h"

enum { TRIALS = 1000 };

/* Of the set's own instructions in float: "f32 NEON" for "neon". */
static bool is_of(const dg_cpu_peak *p, const char *set)
{
    static const struct {
        const char *set, *name;
    } known[] = {{"neon", "f32 NEON"}, {"avx2", "f32 AVX2"}};
    for (size_t i = 0; i < DG_COUNT(known); i++)
        if (strcmp(known[i].set, set) == 0 && strcmp(known[i].name, p->name) == 0)
            return true;
    return false;
}

double check_peak(const char *set)
{
    dg_cpu_peak peak[DG_CPU_MAX_PEAKS];
    size_t n = dg_cpu_peaks(peak);
    double best = 0;
    for (size_t i = 0; i < n; i++)
        for (int t = 0; is_of(&peak[i], set) && t < TRIALS; t++) {
            double start = dg_clock_now();
            volatile float result = peak[i].run();
            (void)result;
            double rate = peak[i].ops / (dg_clock_now() - start) * 1e-9;
            best = rate > best ? rate : best;
        }
    return best;
}
