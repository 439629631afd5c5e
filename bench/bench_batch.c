/* What company costs: tokens a second of 1, 4 and 16 requests together, and the same as a ratio to
 * one. Every request makes the same number of steps, so that only the passes differ.
 *
 *   bench_batch [--model PATH] [--threads N] [--tokens N] [--steps N] [--rounds N] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/common.h"
#include "dgemma.h"

enum { MOST = 16 };

typedef struct options {
    const char *model;
    int n_thread, n_token, n_step, n_round;
} options;

/* Tokens a second, and a second of all processors' time: what is left of a busy machine's clock. */
typedef struct rate {
    double wall, used;
} rate;

static double used(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of n requests from the first submit to the last END; 0: something failed. */
static rate together(dgemma_engine *e, const options *o, int n)
{
    dgemma_request *r[MOST];
    dgemma_error err = {0};
    dgemma_request_options opt = dgemma_request_defaults(e);
    static int32_t prompt[64];
    int n_token = 0;
    bool ok = true;
    double start = dg_clock_now(), start_used = used();
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < (int)DG_COUNT(prompt); k++)
            prompt[k] = 20 + (i * 31 + k * 7) % 200;
        opt.tokens = prompt;
        opt.n_tokens = DG_COUNT(prompt);
        opt.max_tokens = o->n_token;
        opt.max_denoise_steps = o->n_step;
        opt.confidence_threshold = 0; /* all steps are made */
        opt.seed = (uint64_t)i;
        if (dgemma_request_submit(&r[i], e, &opt, &err)) {
            fprintf(stderr, "bench_batch: %s\n", err.msg);
            ok = false;
            n = i;
        }
    }
    for (int i = 0; i < n; i++) {
        for (dgemma_event event; dgemma_request_wait(r[i], &event, -1);)
            if (event.kind == DGEMMA_EVENT_END) {
                n_token += event.stats.n_blocks * opt.canvas_length;
                ok = ok && !event.status;
            }
        dgemma_request_free(r[i]);
    }
    return ok ? (rate){n_token / (dg_clock_now() - start), n_token / (used() - start_used)}
              : (rate){0};
}

static int measure(const options *o)
{
    static const int clients[] = {1, 4, MOST};
    dgemma_engine_options eo = dgemma_engine_defaults();
    dgemma_engine *e;
    dgemma_error err = {0};
    eo.model_path = o->model;
    eo.n_threads = o->n_thread;
    eo.no_prefix_cache = true;
    if (dgemma_engine_open(&e, &eo, &err)) {
        fprintf(stderr, "bench_batch: %s\n", err.msg);
        return 1;
    }
    dgemma_model_info info;
    dgemma_engine_info(e, &info);
    printf("%s, %s, %d threads, %d steps a block of %d\n", o->model, info.backend, info.n_threads,
           o->n_step, info.canvas_length);
    rate best[DG_COUNT(clients)] = {0};
    for (int round = 0; round < o->n_round; round++) /* in turns: the machine may be busy */
        for (size_t i = 0; i < DG_COUNT(clients); i++) {
            rate r = together(e, o, clients[i]);
            best[i].wall = r.wall > best[i].wall ? r.wall : best[i].wall;
            best[i].used = r.used > best[i].used ? r.used : best[i].used;
        }
    bool ok = true;
    for (size_t i = 0; i < DG_COUNT(clients); i++)
        ok = ok && best[i].wall > 0;
    for (size_t i = 0; ok && i < DG_COUNT(clients); i++)
        printf("%2d together: %8.1f tokens/s, %.2f x one; %8.1f a processor second, %.2f x one\n",
               clients[i], best[i].wall, best[i].wall / best[0].wall, best[i].used,
               best[i].used / best[0].used);
    dgemma_engine_close(e);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    options o = {"tests/fixtures/golden/sampler_finishes/model", 0, 128, 8, 3};
    const struct {
        const char *name;
        int *value;
    } known[] = {{"--threads", &o.n_thread},
                 {"--tokens", &o.n_token},
                 {"--steps", &o.n_step},
                 {"--rounds", &o.n_round}};
    for (int i = 1; i < argc; i += 2) {
        size_t k = 0;
        while (k < DG_COUNT(known) && strcmp(known[k].name, argv[i]) != 0)
            k++;
        int value = k < DG_COUNT(known) && i + 1 < argc ? atoi(argv[i + 1]) : 0;
        if (strcmp(argv[i], "--model") == 0 && i + 1 < argc)
            o.model = argv[i + 1];
        else if (value > 0 && value <= 100000)
            *known[k].value = value;
        else {
            fprintf(stderr, "usage: bench_batch [--model PATH] [--threads N] [--tokens N] "
                            "[--steps N] [--rounds N]\n");
            return 2;
        }
    }
    return measure(&o);
}
