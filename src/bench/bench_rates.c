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
enum { TRIES = 40, LOOK_TRIES = 4 };
static const double LOOKING = 0.25; /* of the rest's time: with more there is no further look */

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

/* Seconds of so many runs. Threads take them as they become free: where one is slow, because
 * another program has half of its core, the others do more, as in work that is well shared out. */
static double time_peak(const dg_cpu_peak *p, dg_pool *pool, int n)
{
    double from = dg_clock_now();
    dg_pool_run(pool, n, run_peak, (void *)p);
    return dg_clock_now() - from;
}

/* Behind reading, which is there: of peaks with one name the better one. */
static void set_rates(dg_bench_rates *out, const dg_cpu_peak *peak, const double *rate, size_t n)
{
    out->n = 1;
    out->best_float = 0;
    for (size_t i = 0; i < n && out->n < DG_BENCH_MAX_RATES; i++) {
        dgemma_bench_rate *last = &out->at[out->n - 1];
        if (strcmp(last->name, peak[i].name) == 0)
            last->rate = rate[i] > last->rate ? rate[i] : last->rate;
        else
            out->at[out->n++] = (dgemma_bench_rate){peak[i].name, rate[i]};
        if (!peak[i].integer && (!out->best_float || rate[i] > out->at[out->best_float].rate))
            out->best_float = out->n - 1;
    }
}

static void measure_peaks(dg_bench_rates *out, dg_pool *pool, int n_thread)
{
    dg_cpu_peak peak[DG_CPU_MAX_PEAKS];
    double rate[DG_CPU_MAX_PEAKS] = {0};
    const size_t n_peak = dg_cpu_peaks(peak);
    const int n = PEAK_RUNS * n_thread;
    for (size_t i = 0; i < n_peak; i++)
        for (int k = 0; k < TRIES; k++) {
            double now = peak[i].ops * n / time_peak(&peak[i], pool, n);
            rate[i] = now > rate[i] ? now : rate[i];
        }
    set_rates(out, peak, rate, n_peak);
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
        measure_peaks(out, pool, n_thread);
    dg_pool_free(pool);
    return st;
}

/* ---- looks ---- */

struct dg_bench_looks {
    dg_pool *pool;
    int n_thread;
    dg_cpu_peak peak[DG_CPU_MAX_PEAKS];
    size_t n_peak;
    double seconds[DG_CPU_MAX_PEAKS]; /* of n_run runs of each */
    double n_run, looking, rest;      /* seconds of looks, and of what they are beside */
};

dgemma_status dg_bench_looks_open(dg_bench_looks **out, int n_thread, dgemma_error *err)
{
    dg_bench_looks *l = dg_calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = dg_pool_create(&l->pool, n_thread, err);
    if (st) {
        dg_free(l);
        return st;
    }
    l->n_thread = n_thread;
    l->n_peak = dg_cpu_peaks(l->peak);
    *out = l;
    return DGEMMA_OK;
}

void dg_bench_look(dg_bench_looks *l, double seconds)
{
    const int n = PEAK_RUNS * l->n_thread;
    l->rest += seconds;
    if (l->looking > LOOKING * l->rest)
        return;
    double from = dg_clock_now();
    for (size_t i = 0; i < l->n_peak; i++) {
        time_peak(&l->peak[i], l->pool, n); /* wakes the threads */
        l->seconds[i] += time_peak(&l->peak[i], l->pool, LOOK_TRIES * n);
    }
    l->n_run += LOOK_TRIES * n;
    l->looking += dg_clock_now() - from;
}

void dg_bench_looks_mean(const dg_bench_looks *l, dg_bench_rates *rates)
{
    double rate[DG_CPU_MAX_PEAKS] = {0};
    for (size_t i = 0; i < l->n_peak; i++)
        rate[i] = l->peak[i].ops * l->n_run / l->seconds[i];
    set_rates(rates, l->peak, rate, l->n_peak);
}

void dg_bench_looks_close(dg_bench_looks *l)
{
    if (!l)
        return;
    dg_pool_free(l->pool);
    dg_free(l);
}

/* ---- a device ---- */

dgemma_status dg_bench_rates_device(dg_bench_rates *out, dg_backend *be, dgemma_error *err)
{
    *out = (dg_bench_rates){.at = {{"read", 0}, {"bf16 tensor cores", 0}}, .n = 2, .best_float = 1};
    return dg_device_measure(be, &out->at[0].rate, &out->at[1].rate, err);
}
