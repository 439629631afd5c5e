/* Traces of kind `generate` and `sampler`: whole generations, and their single decisions. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "diffusion/sampler.h"
#include "diffusion/stopping.h"
#include "engine/block_loop.h"
#include "fixture.h"

/* The recorded side of a generation: rows of n positions, one per step, blocks one after the other.
 */
typedef struct record {
    int n;      /* positions */
    int n_step; /* steps of all blocks */
    int32_t *prompt, *argmax, *sampled, *next_canvas, *draw_canvas, *sequences;
    int n_prompt, n_draw_canvas, n_sequence;
    float *entropy;
    uint8_t *accepted, *finished;
    double *uniform;
    float tokens_per_forward;
    int32_t *kept;    /* [n_kept] positions whose logits are recorded, of a generation */
    float *processed; /* [n_step, n_kept, n_vocab] divided by the temperature */
    int n_kept;
    int *block_of, *step_of; /* [n_step] */
    int n_block;
    dg_diffusion_options opt;
} record;

static void record_clear(record *r)
{
    void *all[] = {r->prompt,    r->argmax,  r->sampled,  r->next_canvas, r->draw_canvas,
                   r->sequences, r->entropy, r->accepted, r->finished,    r->uniform,
                   r->block_of,  r->step_of, r->kept,     r->processed};
    for (size_t i = 0; i < DG_COUNT(all); i++)
        dg_free(all[i]);
}

/* A copy of a tensor that must hold `count` values of `type`. */
static void *copy_of(fixture *fx, const char *name, dg_dtype type, size_t count, dgemma_error *err)
{
    const dg_tensor *t = fixture_tensor(fx, name, type, err);
    if (!t)
        return NULL;
    if (dg_tensor_count(t) != count) {
        dg_fail(err, DGEMMA_E_FORMAT, "%s has %zu values, not %zu", name, dg_tensor_count(t),
                count);
        return NULL;
    }
    void *copy = dg_malloc(t->bytes);
    if (copy)
        memcpy(copy, t->data, t->bytes);
    else
        dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    return copy;
}

static dgemma_status rows_of_ids(fixture *fx, const record *r, const char *name, int32_t **out,
                                 dgemma_error *err)
{
    int n;
    dgemma_status st = fixture_ids(fx, name, out, &n, err);
    if (!st && n != r->n * r->n_step)
        st = dg_fail(err, DGEMMA_E_FORMAT, "%s has %d values, not %d", name, n, r->n * r->n_step);
    return st;
}

/* Numbers the steps: a block ends where it finished or ran out of steps. */
static dgemma_status number_steps(record *r, dgemma_error *err)
{
    r->block_of = dg_calloc((size_t)r->n_step, sizeof *r->block_of);
    r->step_of = dg_calloc((size_t)r->n_step, sizeof *r->step_of);
    if (!r->block_of || !r->step_of)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    int block = 0, step = 0;
    for (int i = 0; i < r->n_step; i++) {
        r->block_of[i] = block;
        r->step_of[i] = step++;
        if (r->finished[i] || step == r->opt.max_steps) {
            block++;
            step = 0;
        }
    }
    r->n_block = block + (step > 0);
    if (r->n_draw_canvas != (r->n_step + r->n_block) * r->n)
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "draw.canvas has %d rows, %d steps in %d blocks need %d",
                       r->n_draw_canvas / r->n, r->n_step, r->n_block, r->n_step + r->n_block);
    return DGEMMA_OK;
}

static dgemma_status record_read(fixture *fx, record *r, dgemma_error *err)
{
    const dg_generation_config *g = &fx->gen;
    *r = (record){.opt = {g->max_steps, g->t_min, g->t_max, g->entropy_bound, g->stability,
                          g->confidence, 0}};
    const dg_tensor *t = fixture_tensor(fx, "step.entropy", DG_F32, err);
    if (!t || t->n_dim != 2)
        return t ? dg_fail(err, DGEMMA_E_FORMAT, "step.entropy is not a matrix") : DGEMMA_E_FORMAT;
    r->n_step = (int)t->shape[0];
    r->n = (int)t->shape[1];
    size_t steps = (size_t)r->n_step, all = steps * (size_t)r->n;

    dgemma_status st = fixture_ids(fx, "prompt", &r->prompt, &r->n_prompt, err);
    st = st ? st : fixture_ids(fx, "sequences", &r->sequences, &r->n_sequence, err);
    st = st ? st : fixture_ids(fx, "draw.canvas", &r->draw_canvas, &r->n_draw_canvas, err);
    st = st ? st : rows_of_ids(fx, r, "step.argmax", &r->argmax, err);
    st = st ? st : rows_of_ids(fx, r, "step.sampled", &r->sampled, err);
    st = st ? st : rows_of_ids(fx, r, "step.next_canvas", &r->next_canvas, err);
    if (st)
        return st;
    if (!(r->entropy = copy_of(fx, "step.entropy", DG_F32, all, err)) ||
        !(r->accepted = copy_of(fx, "step.accepted", DG_U8, all, err)) ||
        !(r->finished = copy_of(fx, "step.finished", DG_U8, steps, err)) ||
        !(r->uniform = copy_of(fx, "draw.uniform", DG_F64, all, err)))
        return DGEMMA_E_FORMAT;
    float *tpf = copy_of(fx, "tokens_per_forward", DG_F32, 1, err);
    if (!tpf)
        return DGEMMA_E_FORMAT;
    r->tokens_per_forward = *tpf;
    dg_free(tpf);
    return number_steps(r, err);
}

/* The logits of a generation, which a trace may have at some positions. */
static dgemma_status record_read_logits(fixture *fx, record *r, dgemma_error *err)
{
    if (!dg_safetensors_find(&fx->trace, "step.processed"))
        return DGEMMA_OK;
    dgemma_status st = fixture_ids(fx, "step.kept", &r->kept, &r->n_kept, err);
    if (st)
        return st;
    for (int i = 0; i < r->n_kept; i++)
        if (r->kept[i] < 0 || r->kept[i] >= r->n)
            return dg_fail(err, DGEMMA_E_FORMAT, "step.kept has position %d of %d", r->kept[i],
                           r->n);
    r->processed = copy_of(fx, "step.processed", DG_F32,
                           (size_t)r->n_step * (size_t)r->n_kept * (size_t)fx->cfg.n_vocab, err);
    return r->processed ? DGEMMA_OK : DGEMMA_E_FORMAT;
}

/* ---- recorded draws ---- */

/* The first step of a block, counting over all blocks. */
static int first_step(const record *r, int block)
{
    for (int i = 0; i < r->n_step; i++)
        if (r->block_of[i] == block)
            return i;
    return -1;
}

/* A draw past the end of the record: the run has already gone another way, and will be found out.
 */
static void take_row(const record *r, int row, int32_t *ids, int n)
{
    bool there = row >= 0 && (row + 1) * r->n <= r->n_draw_canvas && n == r->n;
    for (int i = 0; i < n; i++)
        ids[i] = there ? r->draw_canvas[row * r->n + i] : 0;
}

static void recorded_initial(const dg_draws *d, int block, int32_t *ids, int n)
{
    const record *r = d->recorded;
    int first = first_step(r, block);
    take_row(r, first < 0 ? -1 : first + block, ids, n);
}

static void recorded_noise(const dg_draws *d, int block, int step, int32_t *ids, int n)
{
    const record *r = d->recorded;
    int first = first_step(r, block);
    take_row(r, first < 0 ? -1 : first + block + 1 + step, ids, n);
}

static void recorded_uniform(const dg_draws *d, int block, int step, double *u, int n)
{
    const record *r = d->recorded;
    int row = first_step(r, block) + step;
    bool there = row >= 0 && row < r->n_step && n == r->n;
    for (int i = 0; i < n; i++)
        u[i] = there ? r->uniform[row * r->n + i] : 0;
}

static dg_draws recorded_draws(const record *r)
{
    return (dg_draws){.initial = recorded_initial,
                      .noise = recorded_noise,
                      .uniform = recorded_uniform,
                      .recorded = r};
}

/* ---- comparing a step ---- */

static dgemma_status same_ids(fixture *fx, const char *what, int step, const int32_t *got,
                              const int32_t *want, int n, dgemma_error *err)
{
    fx->n_compared++;
    for (int i = 0; i < n; i++)
        if (got[i] != want[i])
            return dg_fail(err, DGEMMA_E_INTERNAL, "%s of step %d, position %d is %d, expected %d",
                           what, step, i, (int)got[i], (int)want[i]);
    return DGEMMA_OK;
}

static dgemma_status same_flags(fixture *fx, const char *what, int step, const uint8_t *got,
                                const uint8_t *want, int n, dgemma_error *err)
{
    fx->n_compared++;
    for (int i = 0; i < n; i++)
        if (got[i] != want[i])
            return dg_fail(err, DGEMMA_E_INTERNAL, "%s of step %d, position %d is %d, expected %d",
                           what, step, i, got[i], want[i]);
    return DGEMMA_OK;
}

static dgemma_status close_entropies(fixture *fx, int step, const float *got, const float *want,
                                     int n, dgemma_error *err)
{
    fx->n_compared++;
    for (int i = 0; i < n; i++) {
        double off = fabs((double)got[i] - want[i]);
        if (!(off <= fx->worst_entropy))
            fx->worst_entropy = off;
        if (!(off <= TOL_ENTROPY))
            return dg_fail(err, DGEMMA_E_INTERNAL,
                           "entropy of step %d, position %d is %g, expected %g", step, i,
                           (double)got[i], (double)want[i]);
    }
    return DGEMMA_OK;
}

static dgemma_status compare_outcome(fixture *fx, const record *r, int step, const float *entropy,
                                     const int32_t *argmax, const int32_t *drawn, dgemma_error *err)
{
    size_t at = (size_t)(step * r->n);
    dgemma_status st = same_ids(fx, "arg-max", step, argmax, r->argmax + at, r->n, err);
    st = st ? st : same_ids(fx, "sampled token", step, drawn, r->sampled + at, r->n, err);
    return st ? st : close_entropies(fx, step, entropy, r->entropy + at, r->n, err);
}

/* ---- generate: the engine's own state machine, fed with the recorded draws ---- */

/* Divides the rows it looks at by the temperature. */
static dgemma_status compare_logits(fixture *fx, const record *r, int step, float *logits,
                                    dgemma_error *err)
{
    size_t n_vocab = (size_t)fx->cfg.n_vocab;
    float t = dg_schedule_temperature(&r->opt, r->opt.max_steps - r->step_of[step]);
    dgemma_status st = DGEMMA_OK;
    for (int k = 0; !st && k < r->n_kept; k++) {
        float *row = logits + (size_t)r->kept[k] * n_vocab;
        for (size_t i = 0; i < n_vocab; i++)
            row[i] /= t;
        char what[64];
        snprintf(what, sizeof what, "step.processed of step %d, position %d", step, r->kept[k]);
        st = fixture_compare_to(fx, what, row,
                                r->processed + (size_t)(step * r->n_kept + k) * n_vocab, n_vocab,
                                TOL_LOGITS, &fx->worst_logits, err);
    }
    return st;
}

static dgemma_status compare_step(fixture *fx, const record *r, const dg_block_loop *loop, int step,
                                  float *logits, dgemma_error *err)
{
    const dg_canvas *c = &loop->canvas;
    size_t at = (size_t)(step * r->n);
    if (step >= r->n_step || c->n != r->n)
        return dg_fail(err, DGEMMA_E_INTERNAL, "step %d was not recorded", step);
    dgemma_status st = compare_logits(fx, r, step, logits, err);
    st = st ? st : compare_outcome(fx, r, step, c->entropy, c->argmax, c->drawn, err);
    st = st ? st : same_flags(fx, "acceptance", step, c->accepted, r->accepted + at, r->n, err);
    st = st ? st : same_ids(fx, "next canvas", step, c->token, r->next_canvas + at, r->n, err);
    return st ? st
              : same_flags(fx, "finish", step, &(uint8_t){c->converged}, r->finished + step, 1,
                           err);
}

/* The sequence as the reference returns it: the prompt, every block whole, padding after the stop
 * token. */
static dgemma_status compare_sequence(fixture *fx, const record *r, const int32_t *sequence, int n,
                                      int n_step, dgemma_error *err)
{
    if (n_step != r->n_step)
        return dg_fail(err, DGEMMA_E_INTERNAL, "%d steps were made, %d are recorded", n_step,
                       r->n_step);
    if (n != r->n_sequence)
        return dg_fail(err, DGEMMA_E_INTERNAL, "%d tokens came out, %d are recorded", n,
                       r->n_sequence);
    dgemma_status st = same_ids(fx, "final sequence", n_step, sequence, r->sequences, n, err);
    int real = 0;
    for (int i = r->n_prompt; i < n; i++)
        real += sequence[i] != fx->cfg.pad_token;
    double tpf = (double)real / n_step;
    fx->n_compared++;
    if (!st && !(fabs(tpf - r->tokens_per_forward) <= 1e-5 * fabs(tpf)))
        st = dg_fail(err, DGEMMA_E_INTERNAL, "tokens per forward %g, expected %g", tpf,
                     (double)r->tokens_per_forward);
    return st;
}

/* Appends a finished block; what follows its stop token is padding. */
static void append_block(fixture *fx, const dg_block_loop *loop, int32_t *sequence, int *n)
{
    const dg_canvas *c = &loop->canvas;
    for (int i = 0; i < c->n; i++) {
        bool past_stop = loop->end == DG_END_STOP && i > loop->n_block_token;
        sequence[(*n)++] = past_stop ? fx->cfg.pad_token : c->argmax[i];
    }
}

/* Memory of a replay, freed together. */
typedef struct replaying {
    dg_block_loop loop;
    fixture_picture picture; /* of the prompt; empty when there is none */
    int32_t *sequence;
    float *logits; /* [n, n_vocab] of the step just made */
} replaying;

static dgemma_status replay(fixture *fx, const record *r, replaying *p, dgemma_error *err)
{
    dg_block_loop *loop = &p->loop;
    int step = 0, n = r->n_prompt;
    memcpy(p->sequence, r->prompt, (size_t)n * sizeof *p->sequence);
    while (!loop->end) {
        dg_work work;
        dg_taps taps = {.logits = p->logits};
        dg_want want;
        dg_block_loop_want(loop, &want);
        dg_block_loop_plan(loop, &work, dg_grant_alone(&want, dg_forward_max_row(fx->forward)));
        dg_pass pass = {.work = &work, .n_work = 1, .taps = &taps};
        dgemma_status st = dg_forward_run(fx->forward, &pass, err);
        if (st)
            return st;
        dg_block_loop_take(loop, NULL);
        if (loop->canvas_in_pass)
            st = compare_step(fx, r, loop, step++, p->logits, err);
        if (st)
            return st;
        if (loop->block_done)
            append_block(fx, loop, p->sequence, &n);
    }
    return compare_sequence(fx, r, p->sequence, n, step, err);
}

static dgemma_status prepare(fixture *fx, const record *r, replaying *p, dgemma_error *err)
{
    if (fx->max_new_tokens < 1)
        return dg_fail(err, DGEMMA_E_FORMAT, "trace.json does not say max_new_tokens");
    int n_block = dg_ceil_div(fx->max_new_tokens, r->n);
    p->sequence = dg_calloc((size_t)(r->n_prompt + (n_block + 1) * r->n), sizeof *p->sequence);
    p->logits = dg_calloc((size_t)r->n * (size_t)fx->cfg.n_vocab, sizeof *p->logits);
    if (!p->sequence || !p->logits)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = DGEMMA_OK;
    if (dg_safetensors_find(&fx->trace, "pixel_values"))
        st = fixture_picture_read(fx, &p->picture, r->prompt, r->n_prompt, err);
    dg_block_loop_config cfg = {
        .prompt = r->prompt,
        .n_prompt = r->n_prompt,
        .diffusion = r->opt,
        .canvas_length = fx->cfg.canvas_length,
        .max_tokens = n_block * r->n, /* the reference does not cut its last block */
        .n_context = fx->cfg.n_context,
        .draws = recorded_draws(r),
        .block = p->picture.block,
        .feature = p->picture.feature,
        .features = p->picture.features,
        .think_open = -1,
        .think_close = -1,
        .think_newline = -1,
        .think_budget = -1,
    };
    return st ? st : dg_block_loop_init(&p->loop, fx->model, fx->kv, &cfg, err);
}

static dgemma_status generate(fixture *fx, const record *r, dgemma_error *err)
{
    replaying p = {0};
    dgemma_status st = prepare(fx, r, &p, err);
    if (!st)
        st = replay(fx, r, &p, err);
    dg_block_loop_clear(&p.loop);
    fixture_picture_clear(&p.picture);
    dg_free(p.sequence);
    dg_free(p.logits);
    return st;
}

dgemma_status golden_generate(fixture *fx, dgemma_error *err)
{
    record r;
    dgemma_status st = record_read(fx, &r, err);
    if (!st)
        st = record_read_logits(fx, &r, err);
    if (!st)
        st = generate(fx, &r, err);
    record_clear(&r);
    return st;
}

/* ---- sampler: each decision from its recorded inputs ---- */

static dgemma_status decide(fixture *fx, const record *r, uint8_t *accepted, int *order,
                            int32_t *canvas, dgemma_error *err)
{
    dg_stability stability = {0};
    for (int s = 0; s < r->n_step; s++) {
        size_t at = (size_t)(s * r->n);
        const int32_t *noise = r->draw_canvas + (s + r->block_of[s] + 1) * r->n;
        dg_sampler_accept(accepted, order, r->entropy + at, r->n, r->opt.entropy_bound);
        dgemma_status st = same_flags(fx, "acceptance", s, accepted, r->accepted + at, r->n, err);
        dg_sampler_renoise(canvas, r->accepted + at, r->sampled + at, noise, r->n);
        st = st ? st : same_ids(fx, "next canvas", s, canvas, r->next_canvas + at, r->n, err);

        if (r->step_of[s] == 0)
            stability = (dg_stability){0};
        dg_stability_push(&stability, r->argmax + at, s ? r->argmax + at - r->n : NULL, r->n);
        uint8_t done =
            dg_stopping_reached(&stability, r->opt.stability,
                                dg_mean_entropy(r->entropy + at, NULL, r->n), r->opt.confidence);
        st = st ? st : same_flags(fx, "finish", s, &done, r->finished + s, 1, err);
        if (st)
            return st;
    }
    return DGEMMA_OK;
}

static dgemma_status decisions(fixture *fx, const record *r, dgemma_error *err)
{
    size_t n = (size_t)r->n;
    uint8_t *accepted = dg_calloc(n, 1);
    int *order = dg_calloc(n, 2 * sizeof *order);
    int32_t *canvas = dg_calloc(n, sizeof *canvas);
    dgemma_status st = accepted && order && canvas ? decide(fx, r, accepted, order, canvas, err)
                                                   : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_free(accepted);
    dg_free(order);
    dg_free(canvas);
    return st;
}

/* ---- sampler, teacher-forced: each step from the recorded canvas and the recorded logits of the
 * step before ---- */

typedef struct forced {
    int32_t *canvas;  /* step.canvas */
    float *processed; /* step.processed [n_step, n, n_vocab] */
    float *logits, *soft;
    float *entropy;
    int32_t *argmax, *drawn;
    fixture_picture picture; /* of the prompt; empty when there is none */
    dg_kv_seq seq;
} forced;

static dgemma_status force_step(fixture *fx, const record *r, forced *f, int s, dgemma_error *err)
{
    size_t n_logit = (size_t)r->n * (size_t)fx->cfg.n_vocab, at = (size_t)(s * r->n);
    float *want = f->processed + (size_t)s * n_logit;
    bool first = r->step_of[s] == 0;
    dgemma_status st = fixture_denoise(fx,
                                       &(denoise_job){.seq = &f->seq,
                                                      .canvas = f->canvas + at,
                                                      .n = r->n,
                                                      .soft = first ? NULL : f->soft,
                                                      .logits = f->logits},
                                       err);
    if (st)
        return st;
    float t = dg_schedule_temperature(&r->opt, r->opt.max_steps - r->step_of[s]);
    for (size_t i = 0; i < n_logit; i++)
        f->logits[i] /= t;
    char what[48];
    snprintf(what, sizeof what, "step.processed of step %d", s);
    st = fixture_compare_to(fx, what, f->logits, want, n_logit, TOL_LOGITS, &fx->worst_logits, err);
    if (st)
        return st;
    st = dg_forward_read(fx->forward,
                         &(dg_reading){.logits = want,
                                       .uniform = r->uniform + at,
                                       .n = r->n,
                                       .soft = f->soft,
                                       .entropy = f->entropy,
                                       .argmax = f->argmax,
                                       .drawn = f->drawn},
                         err);
    return st ? st : compare_outcome(fx, r, s, f->entropy, f->argmax, f->drawn, err);
}

static dgemma_status force_all(fixture *fx, const record *r, forced *f, dgemma_error *err)
{
    dgemma_status st = fixture_encode(fx,
                                      &(encode_job){.seq = &f->seq,
                                                    .token = r->prompt,
                                                    .n = r->n_prompt,
                                                    .block = f->picture.block,
                                                    .feature = f->picture.feature,
                                                    .features = f->picture.features},
                                      err);
    for (int s = 0; !st && s < r->n_step; s++) {
        if (s && r->step_of[s] == 0) {
            const int32_t *block = r->argmax + (s - 1) * r->n;
            st = fixture_encode(fx, &(encode_job){.seq = &f->seq, .token = block, .n = r->n}, err);
        }
        if (!st)
            st = force_step(fx, r, f, s, err);
    }
    return st;
}

static dgemma_status teacher_force(fixture *fx, const record *r, dgemma_error *err)
{
    size_t n = (size_t)r->n, n_logit = n * (size_t)fx->cfg.n_vocab;
    forced f = {.logits = dg_calloc(n_logit, sizeof(float)),
                .soft = fx->be->alloc(fx->be, n * (size_t)fx->cfg.n_embd * sizeof(float)),
                .entropy = dg_calloc(n, sizeof(float)),
                .argmax = dg_calloc(n, sizeof(int32_t)),
                .drawn = dg_calloc(n, sizeof(int32_t))};
    dgemma_status st = rows_of_ids(fx, r, "step.canvas", &f.canvas, err);
    if (!st) {
        f.processed = copy_of(fx, "step.processed", DG_F32, (size_t)r->n_step * n_logit, err);
        if (!f.processed || !f.logits || !f.soft || !f.entropy || !f.argmax || !f.drawn)
            st = f.processed ? dg_fail(err, DGEMMA_E_NOMEM, "out of memory") : DGEMMA_E_FORMAT;
    }
    if (!st && dg_safetensors_find(&fx->trace, "pixel_values"))
        st = fixture_picture_read(fx, &f.picture, r->prompt, r->n_prompt, err);
    if (!st)
        st = force_all(fx, r, &f, err);
    fixture_picture_clear(&f.picture);
    dg_kv_seq_clear(fx->kv, &f.seq);
    fx->be->free(fx->be, f.soft);
    void *all[] = {f.canvas, f.processed, f.logits, f.entropy, f.argmax, f.drawn};
    for (size_t i = 0; i < DG_COUNT(all); i++)
        dg_free(all[i]);
    return st;
}

dgemma_status golden_sampler(fixture *fx, dgemma_error *err)
{
    record r;
    dgemma_status st = record_read(fx, &r, err);
    if (!st)
        st = decisions(fx, &r, err);
    bool has_steps = dg_safetensors_find(&fx->trace, "step.canvas") ||
                     dg_safetensors_find(&fx->trace, "step.processed");
    if (!st && has_steps)
        st = teacher_force(fx, &r, err);
    else if (!st)
        snprintf(fx->note, sizeof fx->note, "decisions only: the trace has no step.canvas");
    record_clear(&r);
    return st;
}
