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

/* Rates of the CPU's instructions beside something else that is measured: on a machine that is
 * shared they change from one second to the next. A look of some hundredths of a second before it
 * and behind each of its parts, with the seconds that the part took; where looks have had more than
 * a fifth of the time there is none. */
typedef struct dg_bench_looks dg_bench_looks;
dgemma_status dg_bench_looks_open(dg_bench_looks **out, int n_thread, dgemma_error *err);
void dg_bench_look(dg_bench_looks *l, double seconds);

/* The means of all looks take the place of what dg_bench_rates_cpu gave; reading stays. */
void dg_bench_looks_mean(const dg_bench_looks *l, dg_bench_rates *rates);
void dg_bench_looks_close(dg_bench_looks *l);

/* A device; `be` is the one that dg_device_open gave. */
dgemma_status dg_bench_rates_device(dg_bench_rates *out, dg_backend *be, dgemma_error *err);

#endif
