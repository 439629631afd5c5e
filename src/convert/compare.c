/* Both models answer a few prompts, each in its own way: that gives the steps. Then both look at
 * the same canvases, made of the first one's answers and noise, with the first one's soft
 * embeddings: that gives the distance of their logits, which their ways would hide. */
#include "convert/compare.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/real.h"
#include "convert/noised.h"
#include "engine/engine.h"
#include "engine/prompt.h"

static const char *const own_prompts[] = {
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "How much is 17 times 23? Explain each step.",
    "Write a Python function that reverses a list.",
    "Translate into German: The weather is nice today.",
    "List five fruits and their colours.",
};

/* Of the canvases that both look at, in percent. */
static const int noise_percent[] = {100, 60, 20};
enum { STEPS = DG_COUNT(noise_percent), CANVASES = 2 };

/* A prompt as tokens, and what became of it. */
typedef struct answered {
    dg_tokens prompt;
    int32_t *canvas; /* [n_canvas] the first one as the first model ended it */
    int n_canvas;
    double steps[2]; /* a canvas, of each model */
} answered;

typedef struct comparing {
    const dgemma_compare_options *opt;
    const char *const *prompt;
    answered *of; /* [n_prompt] */
    int n_prompt, n_canvas, done;
    dg_probe probe[2];
    dg_noised canvas[2];
    float *logits[2];
} comparing;

static dgemma_status tell(comparing *c, dgemma_error *err)
{
    c->done++;
    if (!c->opt->on_progress ||
        c->opt->on_progress(c->opt->user, c->done / (c->n_prompt * (2.0 + STEPS))))
        return DGEMMA_OK;
    return dg_fail(err, DGEMMA_E_CANCELLED, "given up");
}

/* ---- models ---- */

static dgemma_status check_same(const comparing *c, const dg_config *a, const dg_config *b,
                                dgemma_error *err)
{
    if (a->n_vocab == b->n_vocab && a->n_embd == b->n_embd && a->canvas_length == b->canvas_length)
        return DGEMMA_OK;
    return dg_fail(err, DGEMMA_E_ARG, "%s and %s are not the same model in two forms",
                   c->opt->model_path, c->opt->other_path);
}

/* Before the first one answers, which may take an hour. */
static dgemma_status check_models(const comparing *c, dgemma_error *err)
{
    dg_loaded of[2] = {0};
    dgemma_status st = dg_load(&of[0], c->opt->model_path, err);
    st = st ? st : dg_load(&of[1], c->opt->other_path, err);
    st = st ? st : check_same(c, &of[0].cfg, &of[1].cfg, err);
    for (int i = 0; i < 2; i++)
        dg_loaded_clear(&of[i]);
    return st;
}

/* ---- answers ---- */

static bool keep_canvas(void *user, const dgemma_step *s)
{
    const answered *a = user;
    if (s->block == 0 && s->finished)
        memcpy(a->canvas, s->argmax, (size_t)dg_min(s->n, a->n_canvas) * sizeof *a->canvas);
    return true;
}

static dgemma_status keep_prompt(answered *a, const dgemma_engine *e,
                                 const dgemma_request_options *o, dgemma_error *err)
{
    dgemma_prompt *p = NULL;
    dgemma_status st = dg_prompt_build(&p, e, o, 4096, err);
    for (size_t i = 0; !st && i < p->tokens.n; i++)
        if (!dg_tokens_push(&a->prompt, p->tokens.ids[i]))
            st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_prompt_release(p);
    return st;
}

static dgemma_status answer(comparing *c, dgemma_engine *e, int which, int number,
                            dgemma_error *err)
{
    answered *a = &c->of[number];
    dgemma_request_options o = dgemma_request_defaults(e);
    dgemma_stats stats;
    dgemma_status st = DGEMMA_OK;
    o.chat_prompt = c->prompt[number];
    o.seed = (uint64_t)number;
    o.max_tokens = CANVASES * c->n_canvas;
    if (which == 0) {
        st = keep_prompt(a, e, &o, err);
        o.on_step = keep_canvas;
        o.step_user = a;
    }
    st = st ? st : dgemma_generate(e, &o, NULL, NULL, &stats, err);
    if (!st)
        a->steps[which] = stats.n_blocks ? (double)stats.n_steps / stats.n_blocks : 0;
    return st;
}

/* All prompts, one after the other. */
static dgemma_status answer_all(comparing *c, int which, dgemma_error *err)
{
    dgemma_engine *e;
    dgemma_engine_options opt = dgemma_engine_defaults();
    opt.model_path = which ? c->opt->other_path : c->opt->model_path;
    opt.n_threads = c->opt->n_threads;
    opt.device = "cpu";
    opt.max_running = 1;
    opt.no_prefix_cache = true;
    dgemma_status st = dgemma_engine_open(&e, &opt, err);
    if (st)
        return st;
    const dg_config *cfg = &e->loaded.cfg;
    c->n_canvas = which ? c->n_canvas : cfg->canvas_length;
    for (int i = 0; !st && i < c->n_prompt && !which; i++) {
        c->of[i].canvas = dg_calloc((size_t)c->n_canvas, sizeof(int32_t));
        c->of[i].n_canvas = c->n_canvas;
        if (!c->of[i].canvas)
            st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    for (int i = 0; !st && i < c->n_prompt; i++) {
        char name[32];
        snprintf(name, sizeof name, "prompt %d", i + 1);
        st = answer(c, e, which, i, err);
        st = st ? dg_fail_prefix(err, st, name) : tell(c, err);
    }
    dgemma_engine_close(e);
    return st;
}

/* ---- logits ---- */

static dgemma_status start_models(comparing *c, dgemma_error *err)
{
    const dg_config *cfg[2];
    size_t n_prompt = 1;
    for (int i = 0; i < c->n_prompt; i++)
        n_prompt = c->of[i].prompt.n > n_prompt ? c->of[i].prompt.n : n_prompt;
    dgemma_status st = dg_probe_load(&c->probe[0], c->opt->model_path, 0, err);
    st = st ? st : dg_probe_load(&c->probe[1], c->opt->other_path, 0, err);
    for (int i = 0; i < 2; i++)
        cfg[i] = &c->probe[i].loaded.cfg;
    st = st ? st : check_same(c, cfg[0], cfg[1], err); /* the files may be others by now */
    for (int i = 0; !st && i < 2; i++) {
        st = dg_noised_start(&c->canvas[i], &c->probe[i], c->n_canvas, (int)n_prompt,
                             c->opt->n_threads, err);
        c->logits[i] = dg_array((size_t)c->n_canvas * (size_t)cfg[i]->n_vocab, sizeof(float));
        if (!st && !c->logits[i])
            st = dg_fail(err, DGEMMA_E_NOMEM, "no memory for logits of %d positions", c->n_canvas);
    }
    return st;
}

/* Sums over rows. */
typedef struct distance {
    double off, size, divergence;
    int n_same, n;
} distance;

static double log_sum(const float *z, int n, float top)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += dg_exp((double)(z[i] - top));
    return (double)top + dg_log(sum);
}

static int largest(const float *z, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = z[i] > z[best] ? i : best;
    return best;
}

static void add_row(distance *d, const float *a, const float *b, int n)
{
    const int best_a = largest(a, n), best_b = largest(b, n);
    const double sum_a = log_sum(a, n, a[best_a]), sum_b = log_sum(b, n, b[best_b]);
    double divergence = 0;
    for (int i = 0; i < n; i++) {
        const double off = (double)b[i] - (double)a[i];
        d->off += off * off;
        d->size += (double)a[i] * (double)a[i];
        divergence += dg_exp((double)a[i] - sum_a) * (sum_b - sum_a - off);
    }
    d->divergence += fmax(divergence, 0); /* less is rounding */
    d->n_same += best_a == best_b;
    d->n++;
}

static dgemma_status look(comparing *c, int number, distance *d, dgemma_error *err)
{
    const answered *a = &c->of[number];
    const int n_vocab = c->probe[0].loaded.cfg.n_vocab;
    const size_t soft_bytes =
        (size_t)c->n_canvas * (size_t)c->probe[0].loaded.cfg.n_embd * sizeof(float);
    dg_kv_seq seq[2] = {{0}, {0}};
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; !st && i < STEPS; i++) {
        if (i) /* of the last step both see what the first one made of it */
            memcpy(c->canvas[1].soft, c->canvas[0].soft, soft_bytes);
        for (int k = 0; !st && k < 2; k++)
            st = dg_noised_run(&c->canvas[k],
                               &(dg_noised_step){.seq = &seq[k],
                                                 .token = a->prompt.ids,
                                                 .n_token = i ? 0 : (int)a->prompt.n,
                                                 .text = a->canvas,
                                                 .number = (uint32_t)number,
                                                 .percent = noise_percent[i],
                                                 .first = i == 0,
                                                 .logits = c->logits[k]},
                               err);
        for (int r = 0; !st && r < c->n_canvas; r++) {
            const size_t at = (size_t)r * (size_t)n_vocab;
            add_row(d, c->logits[0] + at, c->logits[1] + at, n_vocab);
        }
        st = st ? st : tell(c, err);
    }
    for (int k = 0; k < 2; k++)
        dg_kv_seq_clear(c->probe[k].kv, &seq[k]);
    return st;
}

static dgemma_compared finding(const distance *d, const char *prompt, double source, double steps)
{
    return (dgemma_compared){.prompt = prompt,
                             .error = d->size > 0 ? sqrt(d->off / d->size) : 0,
                             .divergence = d->divergence / dg_max(d->n, 1),
                             .agreement = (double)d->n_same / dg_max(d->n, 1),
                             .source_steps = source,
                             .steps = steps};
}

static dgemma_status compare_all(comparing *c, dgemma_compared *total, dgemma_error *err)
{
    distance all = {0};
    double steps[2] = {0};
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; !st && i < c->n_prompt; i++) {
        const answered *a = &c->of[i];
        distance d = {0};
        st = look(c, i, &d, err);
        const dgemma_compared one = finding(&d, c->prompt[i], a->steps[0], a->steps[1]);
        if (!st && c->opt->on_prompt)
            c->opt->on_prompt(c->opt->user, &one);
        all.off += d.off;
        all.size += d.size;
        all.divergence += d.divergence;
        all.n_same += d.n_same;
        all.n += d.n;
        for (int k = 0; k < 2; k++)
            steps[k] += a->steps[k] / c->n_prompt;
    }
    *total = finding(&all, NULL, steps[0], steps[1]);
    return st;
}

static dgemma_status check_prompts(const dgemma_compare_options *opt, dgemma_error *err)
{
    if (opt->n_prompts < 0 || opt->n_prompts > DGEMMA_MAX_COMPARED)
        return dg_fail(err, DGEMMA_E_ARG, "%d prompts; at most %d are compared", opt->n_prompts,
                       DGEMMA_MAX_COMPARED);
    for (int i = 0; i < opt->n_prompts; i++)
        if (!opt->prompts || !opt->prompts[i])
            return dg_fail(err, DGEMMA_E_ARG, "prompt %d is not there", i + 1);
    return DGEMMA_OK;
}

dgemma_status dg_compare(const dgemma_compare_options *opt, dgemma_compared *total,
                         dgemma_error *err)
{
    comparing c = {.opt = opt, .prompt = own_prompts, .n_prompt = DG_COUNT(own_prompts)};
    dgemma_status st = check_prompts(opt, err);
    if (st)
        return st;
    if (opt->n_prompts) {
        c.prompt = opt->prompts;
        c.n_prompt = opt->n_prompts;
    }
    c.of = dg_calloc((size_t)c.n_prompt, sizeof *c.of);
    if (!c.of)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (int i = 0; i < c.n_prompt; i++)
        dg_tokens_init(&c.of[i].prompt, 4096);
    st = check_models(&c, err);
    for (int i = 0; !st && i < 2; i++)
        st = answer_all(&c, i, err);
    st = st ? st : start_models(&c, err);
    st = st ? st : compare_all(&c, total, err);
    for (int i = 0; i < 2; i++) {
        dg_noised_clear(&c.canvas[i]);
        dg_probe_clear(&c.probe[i]);
        dg_free(c.logits[i]);
    }
    for (int i = 0; i < c.n_prompt; i++) {
        dg_tokens_clear(&c.of[i].prompt);
        dg_free(c.of[i].canvas);
    }
    dg_free(c.of);
    return st;
}
