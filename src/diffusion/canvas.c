#include "diffusion/canvas.h"
#include <assert.h>
#include <string.h>
#include "base/alloc.h"
#include "diffusion/sampler.h"

dgemma_status dg_canvas_init(dg_canvas *c, int capacity, dgemma_error *err)
{
    size_t n = (size_t)capacity;
    *c = (dg_canvas){
        .token = dg_calloc(n, sizeof *c->token),
        .argmax = dg_calloc(n, sizeof *c->argmax),
        .drawn = dg_calloc(n, sizeof *c->drawn),
        .entropy = dg_calloc(n, sizeof *c->entropy),
        .forced = dg_calloc(n, sizeof *c->forced),
        .accepted = dg_calloc(n, sizeof *c->accepted),
        .uniform = dg_calloc(n, sizeof *c->uniform),
        .previous = dg_calloc(n, sizeof *c->previous),
        .noise = dg_calloc(n, sizeof *c->noise),
        .next_uniform = dg_calloc(n, sizeof *c->next_uniform),
        .order = dg_calloc(n, 2 * sizeof *c->order),
        .pins = {.at = dg_calloc(n, sizeof *c->pins.at),
                 .token = dg_calloc(n, sizeof *c->pins.token)},
        .settle = {.token = dg_calloc(n, sizeof *c->settle.token),
                   .run = dg_calloc(n, sizeof *c->settle.run)},
        .capacity = capacity,
    };
    if (c->token && c->argmax && c->drawn && c->entropy && c->forced && c->accepted && c->uniform &&
        c->previous && c->noise && c->next_uniform && c->order && c->settle.token &&
        c->settle.run && c->pins.at && c->pins.token)
        return DGEMMA_OK;
    dg_canvas_clear(c);
    return dg_fail(err, DGEMMA_E_NOMEM, "no memory for a canvas of %d tokens", capacity);
}

void dg_canvas_clear(dg_canvas *c)
{
    dg_free(c->token);
    dg_free(c->argmax);
    dg_free(c->drawn);
    dg_free(c->entropy);
    dg_free(c->forced);
    dg_free(c->accepted);
    dg_free(c->uniform);
    dg_free(c->previous);
    dg_free(c->noise);
    dg_free(c->next_uniform);
    dg_free(c->order);
    dg_free(c->pins.at);
    dg_free(c->pins.token);
    dg_free(c->settle.token);
    dg_free(c->settle.run);
    *c = (dg_canvas){0};
}

void dg_canvas_begin(dg_canvas *c, const dg_diffusion_options *opt, const dg_draws *draws,
                     int block, int n)
{
    assert(n >= 1 && n <= c->capacity && opt->max_steps >= 1);
    c->opt = *opt;
    c->block = block;
    c->n = n;
    c->step = c->first_step = 0;
    c->finished = c->converged = c->prepared = false;
    c->stability = (dg_stability){0};
    memset(c->forced, 0, (size_t)n);
    dg_pins_begin(&c->pins, n);
    dg_settle_begin(&c->settle, n);
    draws->initial(draws, block, c->token, n);
    draws->uniform(draws, block, 0, c->uniform, n);
}

void dg_canvas_start(dg_canvas *c, const dg_draws *draws, const dg_start *start)
{
    double *u = c->uniform; /* filled anew below */
    draws->start(draws, c->block, u, c->n);
    if (dg_pins_start(&c->pins, start, u, c->token, c->n))
        c->first_step = dg_pins_skipped_steps(start->strength, c->opt.max_steps);
    memcpy(c->forced, c->pins.at, (size_t)c->n);
    draws->uniform(draws, c->block, c->first_step, u, c->n);
    c->step = c->first_step;
    c->prepared = false;
}

void dg_canvas_hold(dg_canvas *c)
{
    dg_pins_hold(&c->pins, c->token, c->n);
    dg_settle_hold(&c->settle, c->token);
}

float dg_canvas_temperature(const dg_canvas *c)
{
    return dg_schedule_temperature(&c->opt, c->opt.max_steps - c->step);
}

/* Pins what has settled with this step, and puts what is pinned into the next canvas. */
static void pin(dg_canvas *c)
{
    dg_settle *s = &c->settle;
    dg_settle_push(s, c->argmax, c->entropy, c->n, c->opt.settled_steps, c->opt.confidence);
    dg_settle_hold(s, c->token);
    memset(c->accepted, 1, (size_t)s->n);
}

void dg_canvas_prepare(dg_canvas *c, const dg_draws *draws)
{
    if (c->prepared)
        return;
    draws->noise(draws, c->block, c->step, c->noise, c->n);
    if (c->step + 1 < c->opt.max_steps)
        draws->uniform(draws, c->block, c->step + 1, c->next_uniform, c->n);
    c->prepared = true;
}

void dg_canvas_advance(dg_canvas *c, const dg_draws *draws)
{
    assert(!c->finished);
    dg_canvas_prepare(c, draws);
    c->prepared = false;
    dg_pins_take(&c->pins, c->argmax, c->drawn, c->entropy, c->n);
    dg_settle_hold(&c->settle, c->argmax);
    dg_sampler_accept(c->accepted, c->order, c->entropy, c->n, c->opt.entropy_bound);
    dg_sampler_renoise(c->token, c->accepted, c->drawn, c->noise, c->n);

    dg_stability_push(&c->stability, c->argmax, c->previous, c->n);
    memcpy(c->previous, c->argmax, (size_t)c->n * sizeof *c->previous);
    c->mean_entropy = dg_mean_entropy(c->entropy, c->forced, c->n);
    c->converged =
        dg_stopping_reached(&c->stability, c->opt.stability, c->mean_entropy, c->opt.confidence);
    if (c->opt.settled_steps)
        pin(c);
    c->converged = c->converged || c->settle.n == c->n;
    if (c->pins.n == c->n) /* there is nothing to find */
        c->converged = true;
    c->step++;
    c->finished = c->converged || c->step == c->opt.max_steps;
    if (!c->finished)
        memcpy(c->uniform, c->next_uniform, (size_t)c->n * sizeof *c->uniform);
}

void dg_canvas_end(dg_canvas *c)
{
    c->finished = c->converged = true;
}
