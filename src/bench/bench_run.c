#include "bench/bench_run.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/memory_use.h"
#include "base/pool.h"
#include "bench/bench_cost.h"
#include "bench/bench_picture.h"
#include "bench/bench_rates.h"
#include "bench/bench_session.h"
#include "engine/device.h"

enum {
    MAX_STEPS = 10000,
    MAX_BATCH = 1024,
    MAX_THREADS = 1024,
    MAX_CHUNK = 1 << 16,
    MAX_SOFT = 1120,
    DEFAULT_CONTEXT = 1024,
    STAGE_STEPS = 3,
    ANSWER_STEPS = 16,
};

/* Where the number of steps is ours: so many seconds of them, between these. */
static const double SECONDS = 5, WARM_SECONDS = 2, LEAST_ADDED = 1e-4;
enum { LEAST_STEPS = 3, MOST_STEPS = 24, WARM_STEPS = 4, MOST_PROMPTS = 5 };

/* Temperatures that can be asked for. */
static const float COLDEST = 0.01f, HOTTEST = 100;

/* A device has its way through a pass ready when such a one has come twice. */
enum { WARM_COMMITS = 2 };
_Static_assert(WARM_COMMITS + 2 <= DG_BENCH_CANVASES, "commits of a block need room");

typedef struct run {
    const dgemma_bench_options *opt;
    dg_bench_model model;
    dg_bench_session s;
    dg_bench_rates rates;
    double first_seconds, first_ops; /* the last step behind the first context; 0: none yet */
    dgemma_bench_list threads, contexts, batches, chunks;
    int prompt;
    double *seconds;      /* [MAX_STEPS] */
    double *part_seconds; /* [MAX_STEPS] of those: attention on the CPU, a device's waiting */
    dgemma_error *err;
} run;

/* ---- telling ---- */

static dgemma_status given_up(const run *r)
{
    return dg_fail(r->err, DGEMMA_E_CANCELLED, "given up");
}

static dgemma_status watch(const run *r, const char *form, ...) DG_PRINTF(2, 3);
static dgemma_status watch(const run *r, const char *form, ...)
{
    char what[160];
    if (!r->opt->on_watch)
        return DGEMMA_OK;
    va_list args;
    va_start(args, form);
    vsnprintf(what, sizeof what, form, args);
    va_end(args);
    return r->opt->on_watch(r->opt->user, what) ? DGEMMA_OK : given_up(r);
}

static dgemma_bench_result result(const run *r, dgemma_bench_kind kind)
{
    return (dgemma_bench_result){.kind = kind,
                                 .n_threads = r->s.is_cpu ? r->s.n_thread : 0,
                                 .context = r->s.context,
                                 .batch = r->s.batch};
}

static dgemma_status tell(const run *r, const dgemma_bench_result *found)
{
    return r->opt->on_result(r->opt->user, found) ? DGEMMA_OK : given_up(r);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between the two values around a place. */
static double quantile(const double *value, int n, double part)
{
    double place = part * (n - 1);
    int i = (int)place;
    double rest = place - i;
    return i + 1 < n ? value[i] * (1 - rest) + value[i + 1] * rest : value[n - 1];
}

void dg_bench_spread(dgemma_bench_result *r, double *value, int n)
{
    qsort(value, (size_t)n, sizeof *value, by_value);
    r->n = n;
    r->least = value[0];
    r->lower = quantile(value, n, 0.25);
    r->median = quantile(value, n, 0.5);
    r->upper = quantile(value, n, 0.75);
    r->most = value[n - 1];
}

/* ---- the machine and the load ---- */

/* The device that computes; false: it is the CPU. */
static bool find_device(const run *r, dgemma_device *out)
{
    dgemma_device device[64];
    const char *name = r->opt->engine.device;
    size_t n = r->s.is_cpu ? 0 : dg_device_list(device, DG_COUNT(device), NULL);
    bool first = !name || strcmp(name, "auto") == 0 || strcmp(name, "cuda") == 0;
    for (size_t i = 1; i < n; i++)
        if (first || strcmp(device[i].name, name) == 0) {
            *out = device[i];
            return true;
        }
    return false;
}

static size_t device_bytes_used(const run *r)
{
    dgemma_device d;
    return find_device(r, &d) ? d.total_bytes - d.free_bytes : 0;
}

static const char *device_text(const run *r, char *out, size_t size)
{
    dgemma_device d;
    if (find_device(r, &d))
        snprintf(out, size, "%s: %s", d.name, d.description);
    else
        snprintf(out, size, "%d thread%s, %s kernels", r->s.n_thread, r->s.n_thread == 1 ? "" : "s",
                 r->s.be->name);
    return out;
}

static dgemma_status tell_machine(run *r)
{
    char device[200];
    dgemma_status st = watch(r, "what the machine can do");
    if (!st && !r->opt->no_rates)
        st = r->s.is_cpu ? dg_bench_rates_cpu(&r->rates, r->s.n_thread, r->err)
                         : dg_bench_rates_device(&r->rates, r->s.device, r->err);
    if (st == DGEMMA_E_NOMEM) { /* a device that the model fills can still be measured */
        r->rates = (dg_bench_rates){.n = 0};
        st = DGEMMA_OK;
    }
    if (st)
        return st;
    dg_memory_forget_peak(); /* what was measured with is gone */
    dgemma_bench_result m = result(r, DGEMMA_BENCH_MACHINE);
    m.device = device_text(r, device, sizeof device);
    m.numerics = dg_device_numerics(r->s.be, r->model.ck, dg_kv_config_of(r->s.kv));
    m.model = r->opt->synthetic ? r->opt->synthetic : dg_checkpoint_dir(r->model.ck);
    m.n_layers = r->model.cfg->n_layer;
    m.rates = r->rates.at;
    m.n_rates = r->rates.n;
    m.best_float = r->rates.best_float;
    return tell(r, &m);
}

/* The first pass of all, which touches every weight. */
static dgemma_status tell_load(run *r)
{
    dgemma_bench_result l = result(r, DGEMMA_BENCH_LOAD);
    dgemma_status st = watch(r, "the first pass");
    if (!st)
        st = dg_bench_place(&r->s, 0, 1, r->model.cfg->canvas_length, r->err);
    double from = dg_clock_now();
    if (!st)
        st = dg_bench_step(&r->s, r->err);
    if (st)
        return st;
    l.first_pass = dg_clock_now() - from;
    dg_bench_spread(&l, &r->s.load_seconds, 1);
    l.weight_bytes = (size_t)dg_cost_weights(r->model.ck);
    l.work_bytes = dg_bench_work_bytes(&r->s);
    l.resident_bytes = dg_memory_now().resident;
    l.device_bytes = device_bytes_used(r);
    return tell(r, &l);
}

/* ---- steps ---- */

static dgemma_status timed_step(run *r, double *seconds)
{
    double from = dg_clock_now();
    dgemma_status st = dg_bench_step(&r->s, r->err);
    *seconds = dg_clock_now() - from;
    return st;
}

/* A step, and the part of it that is looked at: on the CPU its attention, on a device the time
 * beyond that in which it computed. */
static dgemma_status timed_parts(run *r, double *seconds, double *part)
{
    double stage[DG_STAGES];
    dg_backend *be = r->s.be;
    if (r->s.is_cpu)
        dg_timed_start(be);
    dgemma_status st = timed_step(r, seconds);
    if (r->s.is_cpu) {
        dg_timed_stop(be, stage);
        *part = stage[DG_STAGE_ATTENTION_SLIDING] + stage[DG_STAGE_ATTENTION_GLOBAL];
    } else
        *part = !st && be->device_seconds ? *seconds - be->device_seconds(be) : 0;
    return st;
}

/* Until nothing is new any more; how many steps to measure then. */
static dgemma_status warm_up(run *r, int *n)
{
    double sum = 0, last = 0;
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; !st && i < WARM_STEPS && sum < WARM_SECONDS; i++) {
        st = timed_step(r, &last);
        sum += last;
    }
    *n = r->opt->n_steps;
    if (!*n)
        *n = (int)dg_max(LEAST_STEPS, dg_min(MOST_STEPS, (int)(SECONDS / (last + 1e-6))));
    return st;
}

static dgemma_status tell_stages(run *r)
{
    double sum[DG_STAGES];
    int n = r->s.answer_steps ? r->s.answer_steps : STAGE_STEPS;
    dgemma_status st = watch(r, "stages");
    dg_timed_start(r->s.be);
    for (int i = 0; !st && i < n; i++)
        st = dg_bench_step(&r->s, r->err);
    dg_timed_stop(r->s.be, sum);
    for (int i = 0; !st && i < DG_STAGES; i++) {
        dgemma_bench_result g = result(r, DGEMMA_BENCH_STAGE);
        g.name = dg_bench_stage_name[i];
        sum[i] /= n;
        dg_bench_spread(&g, &sum[i], 1);
        g.n = n;
        if (sum[i] > 0)
            st = tell(r, &g);
    }
    return st;
}

/* What f's context adds to a step behind the first one, where that was measured: to its attention
 * where that was looked at, since what other stages take moves by more. */
static void set_added(run *r, dgemma_bench_result *f)
{
    if (f->name || f->batch != r->batches.at[0])
        return;
    const double seconds = f->attention_seconds > 0 ? f->attention_seconds : f->median,
                 more = seconds - r->first_seconds;
    if (f->context == r->contexts.at[0]) {
        r->first_seconds = seconds;
        r->first_ops = f->ops;
    } else if (r->first_ops > 0 && f->ops > r->first_ops && more > LEAST_ADDED) {
        f->added = more;
        f->added_ops = f->ops - r->first_ops;
    }
}

/* Steps, and between them looks at what the CPU gives meanwhile. */
static dgemma_status time_steps(run *r, int n, double *entropy, double *gathered)
{
    dg_bench_looks *looks = NULL;
    dgemma_status st = DGEMMA_OK;
    if (r->s.is_cpu && r->rates.n)
        st = dg_bench_looks_open(&looks, r->s.n_thread, r->err);
    if (looks)
        dg_bench_look(looks, 0);
    for (int i = 0; !st && i < n; i++) {
        st = watch(r, "context %d, batch %d: step %d of %d", r->s.context, r->s.batch, i + 1, n);
        if (!st)
            st = timed_parts(r, &r->seconds[i], &r->part_seconds[i]);
        if (!st && looks)
            dg_bench_look(looks, r->seconds[i]);
        *entropy += dg_bench_entropy(&r->s) / n;
        *gathered += dg_bench_gathered(&r->s) / n;
    }
    if (looks)
        dg_bench_looks_mean(looks, &r->rates);
    dg_bench_looks_close(looks);
    return st;
}

static dgemma_status measure_steps(run *r, int *n)
{
    double entropy = 0, gathered = 0;
    dgemma_status st = warm_up(r, n);
    if (!st)
        st = time_steps(r, *n, &entropy, &gathered);
    if (st)
        return st;
    dgemma_bench_result f = result(r, DGEMMA_BENCH_STEP);
    dg_cost cost = dg_cost_step(r->model.cfg, r->model.ck, r->opt->engine.weights, f.context,
                                f.batch, r->s.kv_type);
    dg_bench_spread(&f, r->part_seconds, *n);
    *(r->s.is_cpu ? &f.attention_seconds : &f.host_seconds) = f.median;
    dg_bench_spread(&f, r->seconds, *n);
    f.bytes = cost.bytes;
    f.ops = cost.ops;
    f.n_steps = *n;
    f.entropy = entropy;
    f.gathered = gathered;
    f.work_bytes = dg_bench_work_bytes(&r->s);
    f.device_bytes = device_bytes_used(r);
    f.above_bytes = dg_bench_above_bytes(&r->s);
    f.kv_bytes = dg_kv_bytes_held(r->s.kv);
    f.peak_bytes = dg_memory_now().peak;
    f.name = r->s.guided ? "constrained" : NULL;
    f.rates = r->rates.at;
    f.n_rates = r->rates.n;
    f.best_float = r->rates.best_float;
    set_added(r, &f);
    return tell(r, &f);
}

/* The same steps, held to the constraint. */
static dgemma_status measure_guided(run *r)
{
    int n;
    dg_bench_guided *guided = NULL;
    dgemma_status st = watch(r, "the constraint");
    if (!st)
        st = dg_bench_guided_open(&guided, r->opt->constraint, r->model.cfg,
                                  r->model.loaded.tokenizer, r->s.batch, r->err);
    r->s.guided = guided;
    if (!st)
        st = measure_steps(r, &n);
    r->s.guided = NULL;
    dg_bench_guided_close(guided);
    return st;
}

static dgemma_status measure_block(run *r, int n)
{
    dgemma_bench_result b = result(r, DGEMMA_BENCH_BLOCK);
    double seconds;
    dgemma_status st = watch(r, "a block of %d steps", n);
    for (int i = 0; !st && !r->s.is_cpu && i < WARM_COMMITS; i++)
        st = dg_bench_commit(&r->s, r->err);
    double from = dg_clock_now();
    if (!st)
        st = dg_bench_commit(&r->s, r->err);
    for (int i = 1; !st && i < n; i++)
        st = dg_bench_step(&r->s, r->err);
    seconds = dg_clock_now() - from;
    if (st)
        return st;
    dg_bench_spread(&b, &seconds, 1);
    b.n_steps = n;
    return tell(r, &b);
}

/* Memory that is too small for one place is not for another. */
static dgemma_status tell_skipped(run *r, dgemma_status why)
{
    char text[sizeof r->err->msg];
    if (why != DGEMMA_E_NOMEM && why != DGEMMA_E_LIMIT)
        return why;
    dgemma_bench_result f = result(r, DGEMMA_BENCH_SKIPPED);
    snprintf(text, sizeof text, "%s", r->err->msg);
    f.name = text;
    *r->err = (dgemma_error){0};
    return tell(r, &f);
}

static dgemma_status measure_at(run *r, int context, int batch, bool whole)
{
    int n = 0, rows = batch * r->model.cfg->canvas_length * (whole ? 2 : 1);
    dgemma_status st = watch(r, "context %d, batch %d", context, batch);
    if (st)
        return st;
    st = dg_bench_place(&r->s, context, batch, rows, r->err);
    if (!st)
        st = measure_steps(r, &n);
    if (!st && r->opt->constraint)
        st = measure_guided(r);
    if (!st && r->opt->stages && whole)
        st = tell_stages(r);
    if (!st && whole)
        st = measure_block(r, n);
    return st ? tell_skipped(r, st) : st;
}

/* ---- the prompt ---- */

static dgemma_status measure_prefill(run *r, int chunk)
{
    double sum = 0;
    int n = 0;
    dgemma_status st = watch(r, "a prompt of %d tokens in pieces of %d", r->prompt, chunk);
    if (st)
        return st;
    st = dg_bench_place(&r->s, 0, 1, chunk, r->err);
    if (!st) /* warms up */
        st = dg_bench_prefill(&r->s, dg_min(chunk, r->prompt), chunk, r->err);
    while (!st && n < MOST_PROMPTS && (!n || sum < SECONDS)) {
        double from = dg_clock_now();
        st = dg_bench_prefill(&r->s, r->prompt, chunk, r->err);
        sum += r->seconds[n++] = dg_clock_now() - from;
    }
    if (st)
        return tell_skipped(r, st);
    dgemma_bench_result p = result(r, DGEMMA_BENCH_PREFILL);
    dg_cost cost = dg_cost_prefill(r->model.cfg, r->model.ck, r->opt->engine.weights, r->prompt,
                                   chunk, r->s.kv_type);
    dg_bench_spread(&p, r->seconds, n);
    p.context = r->prompt;
    p.chunk = chunk;
    p.bytes = cost.bytes;
    p.ops = cost.ops;
    return tell(r, &p);
}

/* ---- a picture ---- */

static dgemma_status look_often(run *r, dg_bench_picture *picture)
{
    double sum = 0;
    int n = 0;
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; !st && !r->s.is_cpu && i < WARM_STEPS; i++)
        st = dg_bench_picture_look(picture, r->err);
    while (!st && n < MOST_STEPS && (!n || sum < SECONDS)) {
        double from = dg_clock_now();
        st = dg_bench_picture_look(picture, r->err);
        sum += r->seconds[n++] = dg_clock_now() - from;
    }
    if (st)
        return st;
    dgemma_bench_result p = result(r, DGEMMA_BENCH_PICTURE);
    dg_cost cost = dg_bench_picture_cost(picture);
    dg_bench_spread(&p, r->seconds, n);
    p.context = r->opt->picture;
    p.batch = 1;
    p.bytes = cost.bytes;
    p.ops = cost.ops;
    return tell(r, &p);
}

static dgemma_status measure_picture(run *r)
{
    dg_bench_picture *picture = NULL;
    dgemma_status st = watch(r, "a picture of %d soft tokens", r->opt->picture);
    if (!st)
        st = dg_bench_picture_open(&picture, &r->s, r->opt->shape, r->opt->picture, r->err);
    if (!st)
        st = look_often(r, picture);
    dg_bench_picture_close(picture);
    return st;
}

/* ---- all of it ---- */

static dgemma_status measure_threads(run *r, int n_thread, bool all)
{
    dgemma_engine_options engine = r->opt->engine;
    engine.n_threads = n_thread;
    dgemma_status st = watch(r, "loading");
    if (!st)
        st = dg_bench_session_open(&r->s, &r->model, &engine, r->err);
    if (st)
        return st;
    r->s.prompt = r->prompt;
    if (r->opt->temperature > 0)
        r->s.temperature = r->opt->temperature;
    if (r->opt->answer)
        r->s.answer_steps = r->opt->n_steps ? r->opt->n_steps : ANSWER_STEPS;
    r->first_seconds = r->first_ops = 0; /* of other threads */
    st = tell_machine(r);
    if (!st)
        st = tell_load(r);
    if (!st && !r->chunks.n && r->prompt > 0)
        st = measure_prefill(r, r->s.be->prompt_rows);
    for (int i = 0; !st && r->prompt > 0 && i < (all ? r->chunks.n : dg_min(1, r->chunks.n)); i++)
        st = measure_prefill(r, r->chunks.at[i]);
    if (!st)
        st = measure_at(r, r->contexts.at[0], r->batches.at[0], true);
    for (int i = 1; !st && all && i < r->contexts.n; i++)
        st = measure_at(r, r->contexts.at[i], r->batches.at[0], false);
    for (int i = 1; !st && all && i < r->batches.n; i++)
        st = measure_at(r, r->contexts.at[0], r->batches.at[i], false);
    if (!st && r->opt->picture)
        st = measure_picture(r);
    dg_bench_session_close(&r->s);
    return st;
}

static dgemma_status check_list(const dgemma_bench_list *l, const char *what, int least, int most,
                                dgemma_error *err)
{
    if (l->n < 0 || l->n > DGEMMA_BENCH_MAX_LIST)
        return dg_fail(err, DGEMMA_E_ARG, "%d values for %s: up to %d are fine", l->n, what,
                       DGEMMA_BENCH_MAX_LIST);
    for (int i = 0; i < l->n; i++)
        if (l->at[i] < least || l->at[i] > most)
            return dg_fail(err, DGEMMA_E_ARG, "%s %d: %d to %d can be measured", what, l->at[i],
                           least, most);
    return DGEMMA_OK;
}

static void add_default(dgemma_bench_list *l, int value)
{
    if (!l->n)
        l->at[l->n++] = value;
}

/* Lists within bounds, completed. */
static dgemma_status prepare(run *r)
{
    const dg_config *cfg = r->model.cfg;
    int room = cfg->n_context - DG_BENCH_CANVASES * cfg->canvas_length;
    if (room < 0)
        return dg_fail(r->err, DGEMMA_E_ARG, "the context has no room for %d canvases",
                       DG_BENCH_CANVASES);
    dgemma_status st = check_list(&r->threads, "threads", 1, MAX_THREADS, r->err);
    if (!st)
        st = check_list(&r->contexts, "context", 0, room, r->err);
    if (!st)
        st = check_list(&r->batches, "batch", 1, MAX_BATCH, r->err);
    if (!st)
        st = check_list(&r->chunks, "chunk", 1, MAX_CHUNK, r->err);
    if (!st && (r->opt->prompt < -1 || r->opt->prompt > cfg->n_context))
        st = dg_fail(r->err, DGEMMA_E_ARG, "a prompt of %d tokens: the model has room for %d",
                     r->opt->prompt, cfg->n_context);
    if (!st && (r->opt->n_steps < 0 || r->opt->n_steps > MAX_STEPS))
        st = dg_fail(r->err, DGEMMA_E_ARG, "%d steps: up to %d can be measured", r->opt->n_steps,
                     MAX_STEPS);
    if (!st && (r->opt->picture < 0 || r->opt->picture > MAX_SOFT))
        st = dg_fail(r->err, DGEMMA_E_ARG, "a picture of %d soft tokens: up to %d can be measured",
                     r->opt->picture, MAX_SOFT);
    if (!st && r->opt->temperature != 0 &&
        !(r->opt->temperature >= COLDEST && r->opt->temperature <= HOTTEST))
        st = dg_fail(r->err, DGEMMA_E_ARG, "a temperature of %g: %g to %g can be measured",
                     (double)r->opt->temperature, (double)COLDEST, (double)HOTTEST);
    if (!st && r->opt->temperature != 0 && r->opt->answer)
        st = dg_fail(r->err, DGEMMA_E_ARG, "an answer has temperatures of its own");
    add_default(&r->threads, dg_cpu_count());
    add_default(&r->contexts, dg_min(DEFAULT_CONTEXT, room));
    add_default(&r->batches, 1);
    r->prompt = r->opt->prompt ? r->opt->prompt : dg_min(DEFAULT_CONTEXT, room);
    return st;
}

/* The most threads come last, and with them everything but the first context and batch. */
static dgemma_status measure(run *r)
{
    int most = 0;
    for (int i = 1; i < r->threads.n; i++)
        if (r->threads.at[i] > r->threads.at[most])
            most = i;
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; !st && i < r->threads.n; i++)
        if (i != most)
            st = measure_threads(r, r->threads.at[i], false);
    return st ? st : measure_threads(r, r->threads.at[most], true);
}

dgemma_status dg_bench_run(const dgemma_bench_options *opt, dgemma_error *err)
{
    dgemma_error own = {0};
    run r = {.opt = opt,
             .threads = opt->threads,
             .contexts = opt->contexts,
             .batches = opt->batches,
             .chunks = opt->chunks,
             .err = err ? err : &own};
    r.seconds = dg_array(MAX_STEPS, sizeof *r.seconds);
    r.part_seconds = dg_array(MAX_STEPS, sizeof *r.part_seconds);
    dgemma_status st = r.seconds && r.part_seconds
                           ? dg_bench_model_open(&r.model, opt, r.err)
                           : dg_fail(r.err, DGEMMA_E_NOMEM, "out of memory");
    if (!st)
        st = prepare(&r);
    if (!st)
        st = measure(&r);
    dg_bench_model_close(&r.model);
    dg_free(r.seconds);
    dg_free(r.part_seconds);
    return st;
}
