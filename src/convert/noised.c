#include "convert/noised.h"
#include "base/alloc.h"
#include "base/pool.h"
#include "base/rng.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"

/* Randomness of these tools alone: the same text always gives the same canvases. */
enum { STREAM_PLACE = 101, STREAM_WORD = 102 };

dgemma_status dg_noised_start(dg_noised *c, dg_probe *probe, int n, int n_token, int n_threads,
                              dgemma_error *err)
{
    const dg_cpu_options how = {
        .n_thread = n_threads ? n_threads : dg_cpu_count(), .flags = dg_cpu_flags(), .exact = true};
    const size_t rows = (size_t)n;
    *c = (dg_noised){.probe = probe, .n = n};
    dgemma_status st = dg_cpu_open(&probe->be, &how, err);
    st = st ? st : dg_probe_start(probe, DG_BF16, n + n_token, err);
    if (st)
        return st;
    c->canvas = dg_array(3 * rows, sizeof *c->canvas);
    c->entropy = dg_array(rows, sizeof *c->entropy);
    c->uniform = dg_calloc(rows, sizeof *c->uniform);
    c->soft = probe->be->alloc(probe->be, rows * (size_t)probe->loaded.cfg.n_embd * sizeof(float));
    if (!c->canvas || !c->entropy || !c->uniform || !c->soft)
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for a canvas of %d tokens", n);
    c->argmax = c->canvas + n;
    c->drawn = c->argmax + n;
    return DGEMMA_OK;
}

void dg_noised_clear(dg_noised *c)
{
    if (c->soft)
        c->probe->be->free(c->probe->be, c->soft);
    dg_free(c->canvas);
    dg_free(c->entropy);
    dg_free(c->uniform);
    *c = (dg_noised){0};
}

static void fill(dg_noised *c, const dg_noised_step *step)
{
    const dg_rng_key place = {.stream = STREAM_PLACE, .block = step->number},
                     word = {.stream = STREAM_WORD,
                             .block = step->number,
                             .step = (uint32_t)step->percent};
    const uint32_t n_vocab = (uint32_t)c->probe->loaded.cfg.n_vocab;
    for (int i = 0; i < c->n; i++) {
        const bool noise = 100 * dg_rng_uniform(&place, (uint32_t)i) < step->percent;
        c->canvas[i] = noise ? (int32_t)dg_rng_below(&word, (uint32_t)i, n_vocab) : step->text[i];
    }
}

/* As hot as a step is that finds so much noise. */
dgemma_status dg_noised_run(dg_noised *c, const dg_noised_step *step, dgemma_error *err)
{
    const dg_generation_config *g = &c->probe->loaded.generation;
    dg_work work = {.seq = step->seq,
                    .token = step->token,
                    .n_token = step->n_token,
                    .canvas = c->canvas,
                    .n_canvas = c->n,
                    .soft = c->soft,
                    .first_step = step->first,
                    .temperature = g->t_min + (g->t_max - g->t_min) * (float)step->percent / 100,
                    .uniform = c->uniform,
                    .entropy = c->entropy,
                    .argmax = c->argmax,
                    .drawn = c->drawn};
    const dg_taps taps = {.logits = step->logits};
    fill(c, step);
    return dg_forward_run(
        c->probe->forward,
        &(dg_pass){.work = &work, .n_work = 1, .taps = step->logits ? &taps : NULL}, err);
}
