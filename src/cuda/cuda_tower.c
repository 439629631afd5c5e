/* The vision tower's stages of backend_vision.h, put together from cuda_math.h and cuda_vision.h. A
 * layer is eight launches: the sum with the norm behind it; q, k, v; heads; attention; o; the sum
 * with the norm of the MLP; gate and up; down. Matrices with ranges take more. */
#include <math.h>
#include "base/common.h"
#include "cuda/cuda_internal.h"

/* ---- the plan ---- */

/* What differs between attention and MLP shares its memory. */
static size_t place_tower(dg_cuda_tower *t, unsigned char *base, const dg_vision_plan *p,
                          bool exact)
{
    size_t n = (size_t)p->n_patch, value = t->floats ? sizeof(float) : 2, at = 0;
    int heads = p->n_head * p->head_dim, ld = dg_cuda_vision_ld(p->head_dim),
        ff = dg_cuda_ld(p->n_ff), wide = dg_cuda_ld(dg_max(dg_max(p->n_embd, heads), p->n_pixel)),
        widest = dg_max(wide, ff);
    size_t slots = n + DG_CUDA_PICTURES * (DG_CUDA_SLOTS - 1),
           one = slots * (size_t)p->n_head * (size_t)ld * (exact ? sizeof(float) : 2),
           inside = n * (size_t)ff * value;
    struct {
        void **to;
        size_t bytes;
    } list[] = {
        {&t->rows, n * (size_t)wide * value},
        {(void **)&t->y,
         n * (size_t)dg_max(dg_max(3 * heads, p->n_embd), p->n_pixel) * sizeof(float)},
        {&t->shared, 3 * one > inside ? 3 * one : inside},
        {&t->held, p->clipped ? n * (size_t)widest * value : 0},
        {(void **)&t->gate, p->clipped ? 2 * n * (size_t)p->n_ff * sizeof(float) : 0},
    };
    for (size_t i = 0; i < DG_COUNT(list); i++) {
        *list[i].to = base ? base + at : NULL;
        at += (list[i].bytes + 255) / 256 * 256;
    }
    unsigned char *q = t->shared;
    t->qkv = (dg_cuda_vision_qkv){.exact = exact,
                                  .across = dg_cuda_vision_across(exact, p->head_dim),
                                  .n_head = p->n_head,
                                  .dim = p->head_dim,
                                  .ld = ld,
                                  .q = q};
    if (base) {
        t->qkv.k = q + one;
        t->qkv.v = q + 2 * one;
    }
    return at;
}

size_t dg_cuda_vision_plan_bytes(dg_backend *be, const dg_vision_plan *plan)
{
    dg_cuda *cu = dg_cuda_of(be);
    dg_cuda_tower probe = {.floats = cu->tower.floats};
    return place_tower(&probe, NULL, plan, cu->exact);
}

dgemma_status dg_cuda_vision_plan(dg_backend *be, const dg_vision_plan *plan, dgemma_error *err)
{
    dg_cuda *cu = dg_cuda_of(be);
    dg_cuda_tower *t = &cu->tower;
    size_t bytes = dg_cuda_vision_plan_bytes(be, plan);
    be->free(be, t->scratch);
    t->scratch = be->alloc(be, bytes);
    if (!t->scratch)
        return dg_fail(err, DGEMMA_E_NOMEM, "%zu MiB for pictures do not fit on the device",
                       (bytes >> 20) + 1);
    t->plan = *plan;
    place_tower(t, t->scratch, plan, cu->exact);
    return DGEMMA_OK;
}

void dg_cuda_vision_begin(dg_backend *be, const dg_vision_batch *batch)
{
    dg_cuda *cu = dg_cuda_of(be);
    dg_cuda_pictures *p = &cu->tower.pictures;
    cu->batch = NULL;
    cu->error = cudaSuccess;
    cu->replay = cu->capture = false;
    cu->tower.batch = batch;
    cu->tower.add.x = NULL;
    *p = (dg_cuda_pictures){.n = batch->n_picture, .n_patch = batch->n_patch};
    if (batch->n_picture > DG_CUDA_PICTURES) {
        dg_cuda_failed(cu, cudaErrorInvalidValue, "the pictures");
        return;
    }
    for (int i = 0; i < batch->n_picture; i++) {
        const dg_vision_picture *from = &batch->picture[i];
        p->at[i] = (dg_cuda_picture){.first_patch = from->first_patch,
                                     .rows = from->rows,
                                     .cols = from->cols,
                                     .first_slot = p->n_slot};
        p->n_slot += dg_cuda_slots(from->rows * from->cols);
    }
    dg_cuda_failed(cu, cudaSetDevice(cu->device), "a pass");
    dg_cuda_mark_begin(cu);
}

/* ---- rows ---- */

/* Scratch rows as this weight wants them. */
static dg_cuda_rows rows_for(void *scratch, const dg_weight *w)
{
    return (dg_cuda_rows){dg_cuda_form_of(dg_cuda_matrix_of(w)->type), scratch,
                          dg_cuda_ld(w->n_in)};
}

/* What an earlier stage adds to x waits for the norm behind it, as in cuda_stages.c. */
static void settle(dg_cuda *cu, dg_cuda_next next)
{
    dg_cuda_tower *t = &cu->tower;
    if (!t->add.x)
        return;
    t->add.next[0] = next;
    dg_cuda_failed(cu, dg_cuda_add_norm(cu->stream, &t->add), "a norm");
    t->add.x = NULL;
}

static dg_cuda_rows normed(dg_cuda *cu, const dg_weight *for_weight, const float *x,
                           const float *norm)
{
    dg_cuda_tower *t = &cu->tower;
    dg_cuda_next next = {rows_for(t->rows, for_weight), norm};
    if (t->add.x == x)
        settle(cu, next);
    else
        dg_cuda_failed(cu,
                       dg_cuda_norm(cu->stream, next.out, x, norm, t->batch->n_patch,
                                    t->plan.n_embd, t->plan.rms_eps),
                       "a norm");
    return next.out;
}

/* x += RMSNorm(y, norm), later. */
static void add_later(dg_cuda *cu, float *x, const float *norm)
{
    const dg_vision_plan *p = &cu->tower.plan;
    cu->tower.add = (dg_cuda_add_args){.x = x,
                                       .y = cu->tower.y,
                                       .w = norm,
                                       .n_row = cu->tower.batch->n_patch,
                                       .n = p->n_embd,
                                       .eps = p->rms_eps};
}

static void product(dg_cuda *cu, float *y, size_t ldy, const dg_weight *w, dg_cuda_rows x,
                    int n_row, float alpha)
{
    dg_cuda_product_args a = {.n_row = n_row, .x = x, .alpha = alpha, .n_part = 1};
    a.part[0].w = dg_cuda_matrix_of(w);
    a.part[0].y = y;
    a.part[0].ldy = ldy;
    dg_cuda_failed(cu, dg_cuda_product(cu->stream, &a), "a product");
}

/* ---- ranges ---- */

static bool is_range(float min, float max)
{
    return min > -INFINITY || max < INFINITY;
}

static bool holds(const dg_clipped *c)
{
    return is_range(c->in_min, c->in_max) || is_range(c->out_min, c->out_max);
}

/* y = W x, inputs and outputs held in their ranges. */
static void linear(dg_cuda *cu, float *y, size_t ldy, const dg_clipped *c, dg_cuda_rows x)
{
    int n = cu->tower.batch->n_patch;
    if (is_range(c->in_min, c->in_max)) {
        dg_cuda_rows held = rows_for(cu->tower.held, &c->w);
        dg_cuda_failed(cu,
                       dg_cuda_hold_rows(cu->stream, held, x, n, c->w.n_in,
                                         (dg_cuda_range){c->in_min, c->in_max}),
                       "a range");
        x = held;
    }
    product(cu, y, ldy, &c->w, x, n, 1);
    if (is_range(c->out_min, c->out_max))
        dg_cuda_failed(cu,
                       dg_cuda_hold(cu->stream, y, ldy, n, c->w.n_out,
                                    (dg_cuda_range){c->out_min, c->out_max}),
                       "a range");
}

/* ---- patches ---- */

void dg_cuda_vision_embed(dg_backend *be, const dg_vision_embed_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    const dg_vision_batch *b = cu->tower.batch;
    size_t n_pixel = (size_t)cu->tower.plan.n_pixel;
    float *pixels = cu->tower.y;
    for (int i = 0; i < b->n_picture && !dg_cuda_idle(cu); i++) {
        const dg_vision_picture *p = &b->picture[i];
        size_t n = (size_t)(p->rows * p->cols) * n_pixel;
        dg_cuda_failed(cu,
                       cudaMemcpyAsync(pixels + (size_t)p->first_patch * n_pixel, p->pixels,
                                       n * sizeof *pixels, cudaMemcpyHostToDevice, cu->stream),
                       "sending a picture");
    }
    if (dg_cuda_idle(cu))
        return;
    dg_cuda_rows rows = rows_for(cu->tower.rows, a->proj);
    dg_cuda_failed(
        cu, dg_cuda_vision_pixels(cu->stream, rows, pixels, b->n_patch, cu->tower.plan.n_pixel),
        "the patches");
    product(cu, a->x, (size_t)a->proj->n_out, a->proj, rows, b->n_patch, 1);
    const dg_cuda_matrix *table = dg_cuda_matrix_of(a->table);
    dg_cuda_positions_args args = {a->x,         table->data, table->type,
                                   table->n_out, table->n_in, cu->tower.pictures};
    dg_cuda_failed(cu, dg_cuda_vision_positions(cu->stream, &args), "the positions");
}

/* ---- attention ---- */

/* q, k and v of a patch side by side: in one product where one form of x serves all. */
static void project(dg_cuda *cu, const dg_vision_attention_args *a)
{
    const dg_clipped *c[3] = {&a->w->q, &a->w->k, &a->w->v};
    size_t heads = (size_t)a->w->q.w.n_out;
    dg_cuda_product_args args = {.n_row = cu->tower.batch->n_patch, .alpha = 1, .n_part = 3};
    dg_cuda_rows x = normed(cu, &c[0]->w, a->x, a->w->norm);
    bool together = true;
    for (int i = 0; i < 3; i++) {
        together &= dg_cuda_matrix_of(&c[i]->w)->type == dg_cuda_matrix_of(&c[0]->w)->type;
        together &= !holds(c[i]);
        args.part[i].w = dg_cuda_matrix_of(&c[i]->w);
        args.part[i].y = cu->tower.y + (size_t)i * heads;
        args.part[i].ldy = 3 * heads;
    }
    args.x = x;
    if (together) {
        dg_cuda_failed(cu, dg_cuda_product(cu->stream, &args), "a projection");
        return;
    }
    for (int i = 0; i < 3; i++) {
        if (dg_cuda_form_of(dg_cuda_matrix_of(&c[i]->w)->type) != x.form)
            x = normed(cu, &c[i]->w, a->x, a->w->norm);
        linear(cu, args.part[i].y, 3 * heads, c[i], x);
    }
}

void dg_cuda_vision_attention_stage(dg_backend *be, const dg_vision_attention_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    dg_cuda_tower *t = &cu->tower;
    if (dg_cuda_idle(cu))
        return;
    project(cu, a);
    dg_cuda_vision_heads_args heads = {t->y,        a->w->q_norm,    a->w->k_norm, a->rope.cos,
                                       a->rope.sin, t->plan.rms_eps, t->qkv,       t->pictures};
    dg_cuda_failed(cu, dg_cuda_vision_heads(cu->stream, &heads), "the heads");
    dg_cuda_rows o = rows_for(t->rows, &a->w->o.w);
    dg_cuda_vision_attention_args args = {o, t->qkv, t->pictures};
    dg_cuda_failed(cu, dg_cuda_vision_attention(cu->stream, &args), "attention");
    linear(cu, t->y, (size_t)t->plan.n_embd, &a->w->o, o);
    add_later(cu, a->x, a->w->post_norm);
}

/* ---- MLP ---- */

/* h of matrices with ranges: gate and up one by one. */
static void hold_gated(dg_cuda *cu, const dg_vision_layer *w, dg_cuda_rows x, dg_cuda_rows h)
{
    dg_cuda_tower *t = &cu->tower;
    int n_ff = w->gate.w.n_out, n = t->batch->n_patch;
    float *up = t->gate + (size_t)n * (size_t)n_ff;
    linear(cu, t->gate, (size_t)n_ff, &w->gate, x);
    linear(cu, up, (size_t)n_ff, &w->up, x);
    dg_cuda_failed(cu,
                   dg_cuda_gelu(cu->stream, h, t->gate, up, n, n_ff,
                                (dg_cuda_range){w->down.in_min, w->down.in_max}),
                   "a gated product");
}

void dg_cuda_vision_mlp(dg_backend *be, const dg_vision_mlp_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    dg_cuda_tower *t = &cu->tower;
    const dg_vision_layer *w = a->w;
    dg_clipped down = w->down;
    if (dg_cuda_idle(cu))
        return;
    dg_cuda_rows x = normed(cu, &w->gate.w, a->x, w->mlp_norm), h = rows_for(t->shared, &w->down.w);
    int n = t->batch->n_patch;
    size_t n_embd = (size_t)t->plan.n_embd;
    if (holds(&w->gate) || holds(&w->up) || is_range(down.in_min, down.in_max)) {
        hold_gated(cu, w, x, h);
    } else {
        dg_cuda_gated_args args = {.n_row = n,
                                   .x = x,
                                   .gate = dg_cuda_matrix_of(&w->gate.w),
                                   .up = dg_cuda_matrix_of(&w->up.w),
                                   .h = h};
        dg_cuda_failed(cu, dg_cuda_gated(cu->stream, &args), "a gated product");
    }
    product(cu, t->y, n_embd, &down.w, h, n, h.form == DG_CUDA_F16 ? DG_CUDA_GATED : 1);
    if (is_range(down.out_min, down.out_max))
        dg_cuda_failed(cu,
                       dg_cuda_hold(cu->stream, t->y, n_embd, n, (int)n_embd,
                                    (dg_cuda_range){down.out_min, down.out_max}),
                       "a range");
    add_later(cu, a->x, w->mlp_post_norm);
}

/* ---- soft tokens ---- */

void dg_cuda_vision_project(dg_backend *be, const dg_vision_project_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    dg_cuda_tower *t = &cu->tower;
    dg_cuda_pictures *p = &t->pictures;
    p->n_cell = 0;
    for (int i = 0; i < p->n; i++) {
        p->at[i].first_cell = p->n_cell;
        p->n_cell += p->at[i].rows / a->pool * (p->at[i].cols / a->pool);
    }
    if (dg_cuda_idle(cu))
        return;
    settle(cu, (dg_cuda_next){{DG_CUDA_F32, NULL, 0}, NULL});
    dg_cuda_pool_args args = {rows_for(t->rows, a->proj),
                              a->x,
                              a->bias,
                              a->scale,
                              a->pool,
                              t->plan.n_embd,
                              t->plan.rms_eps,
                              *p};
    dg_cuda_failed(cu, dg_cuda_vision_pool(cu->stream, &args), "the soft tokens");
    product(cu, a->out, (size_t)a->proj->n_out, a->proj, args.out, p->n_cell, 1);
}
