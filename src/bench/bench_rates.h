/* What a machine could reach: reading memory, and its fastest instructions. */
#ifndef DG_BENCH_BENCH_RATES_H
#define DG_BENCH_BENCH_RATES_H

#include "backend/backend.h"
#include "dgemma_tools.h"

enum { DG_BENCH_MAX_RATES = 8 };
typedef struct dg_bench_rates {
    dgemma_bench_rate at[DG_BENCH_MAX_RATES];
    size_t n, best_float; /* which is the fastest of those that multiply floats; 0: none */
} dg_bench_rates;

/* n_thread threads of the CPU together, the best of some tries of about a second in all. */
dgemma_status dg_bench_rates_cpu(dg_bench_rates *out, int n_thread, dgemma_error *err);

/* Those of instructions once more, in some hundredths of a second: on a machine that is shared they
 * change from one minute to the next. `rates` are what dg_bench_rates_cpu gave; reading stays. */
dgemma_status dg_bench_rates_again(dg_bench_rates *rates, int n_thread, dgemma_error *err);

/* A device; `be` is the one that dg_device_open gave. */
dgemma_status dg_bench_rates_device(dg_bench_rates *out, dg_backend *be, dgemma_error *err);

#endif
