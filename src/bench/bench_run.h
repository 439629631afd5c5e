/* Everything that dgemma_bench measures, in order. */
#ifndef DG_BENCH_BENCH_RUN_H
#define DG_BENCH_BENCH_RUN_H

#include "dgemma_tools.h"

dgemma_status dg_bench_run(const dgemma_bench_options *opt, dgemma_error *err);

/* Median, quartiles and ends of n >= 1 values, which are put in order. */
void dg_bench_spread(dgemma_bench_result *r, double *value, int n);

#endif
