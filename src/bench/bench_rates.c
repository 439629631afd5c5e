#include "bench/bench_rates.h"
#include <stdatomic.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/pool.h"
#include "cpu/cpu_peak.h"
#include "engine/device.h"

/* More than caches hold, and shared by the threads piece by piece. */
enum { PIECE = 8 << 20, MIN_PIECES = 64, READ_TRIES = 6, PEAK_RUNS = 32 };
enum { FIRST_TRIES = 40, MORE_TRIES = 10 };

typedef struct reading {
    const unsigned char *data;
    atomic_ullong sum;
} reading;

static void read_piece(void *arg, int task, int worker)
{
    (void)worker;
    reading *r = arg;
    atomic_fetch_add(&r->sum, dg_cpu_read(r->data + (size_t)task * PIECE, PIECE));
}

static void touch_piece(void *arg, int task, int worker)
{
    (void)worker;
    memset((unsigned char *)arg + (size_t)task * PIECE, task + 1, PIECE);
}

static dgemma_status measure_read(double *rate, dg_pool *pool, int n_thread, dgemma_error *err)
{
    int n = dg_max(MIN_PIECES, 8 * n_thread);
    unsigned char *data = dg_malloc_aligned((size_t)n * PIECE);
    if (!data)
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for %d MiB to measure reading with",
                       n * (PIECE >> 20));
    reading r = {.data = data};
    dg_pool_run(pool, n, touch_piece, data);
    *rate = 0;
    for (int i = 0; i < READ_TRIES; i++) {
        double from = dg_clock_now();
        dg_pool_run(pool, n, read_piece, &r);
        double now = (double)n * PIECE / (dg_clock_now() - from);
        *rate = now > *rate ? now : *rate;
    }
    dg_free(data);
    return DGEMMA_OK;
}

static void run_peak(void *arg, int task, int worker)
{
    (void)task;
    (void)worker;
    const dg_cpu_peak *p = arg;
    volatile float result = p->run();
    (void)result;
}

/* Threads take runs as they become free: where one is slow, because another program has half of its
 * core, the others do more, as in work that is well shared out. */
static double measure_peak(dg_cpu_peak *p, dg_pool *pool, int n_thread, int n_try)
{
    const int n = PEAK_RUNS * n_thread;
    double best = 0;
    for (int i = 0; i < n_try; i++) {
        double from = dg_clock_now();
        dg_pool_run(pool, n, run_peak, p);
        double rate = p->ops * n / (dg_clock_now() - from);
        best = rate > best ? rate : best;
    }
    return best;
}

/* Behind reading, which is there. */
static void measure_peaks(dg_bench_rates *out, dg_pool *pool, int n_thread, int n_try)
{
    dg_cpu_peak peak[DG_CPU_MAX_PEAKS];
    const size_t n_peak = dg_cpu_peaks(peak);
    out->n = 1;
    out->best_float = 0;
    for (size_t i = 0; i < n_peak && out->n < DG_BENCH_MAX_RATES; i++) {
        double rate = measure_peak(&peak[i], pool, n_thread, n_try);
        dgemma_bench_rate *last = &out->at[out->n - 1];
        if (strcmp(last->name, peak[i].name) == 0)
            last->rate = rate > last->rate ? rate : last->rate;
        else
            out->at[out->n++] = (dgemma_bench_rate){peak[i].name, rate};
        if (!peak[i].integer && (!out->best_float || rate > out->at[out->best_float].rate))
            out->best_float = out->n - 1;
    }
}

dgemma_status dg_bench_rates_cpu(dg_bench_rates *out, int n_thread, dgemma_error *err)
{
    dg_pool *pool;
    *out = (dg_bench_rates){.at = {{"read", 0}}, .n = 1};
    dgemma_status st = dg_pool_create(&pool, n_thread, err);
    if (st)
        return st;
    st = measure_read(&out->at[0].rate, pool, n_thread, err);
    if (!st)
        measure_peaks(out, pool, n_thread, FIRST_TRIES);
    dg_pool_free(pool);
    return st;
}

dgemma_status dg_bench_rates_again(dg_bench_rates *rates, int n_thread, dgemma_error *err)
{
    dg_pool *pool;
    dgemma_status st = dg_pool_create(&pool, n_thread, err);
    if (st)
        return st;
    measure_peaks(rates, pool, n_thread, MORE_TRIES);
    dg_pool_free(pool);
    return st;
}

dgemma_status dg_bench_rates_device(dg_bench_rates *out, dg_backend *be, dgemma_error *err)
{
    *out = (dg_bench_rates){.at = {{"read", 0}, {"bf16 tensor cores", 0}}, .n = 2, .best_float = 1};
    return dg_device_measure(be, &out->at[0].rate, &out->at[1].rate, err);
}
