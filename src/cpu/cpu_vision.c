/* The vision tower's stages. Matrices take VISION_ROWS patches at a time, which bounds the scratch;
 * attention takes pages of keys, counted from the first patch of the picture. */
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "cpu/cpu_internal.h"

/* ---- the plan ---- */

static void lay_out(dg_cpu_vision *v, const dg_cpu *cpu, const dg_vision_plan *p, dg_cpu_taker *t)
{
    size_t f = sizeof(float), heads = (size_t)p->n_head * (size_t)p->head_dim;
    size_t rows = (size_t)dg_min(p->n_patch, VISION_ROWS);
    size_t embd = (size_t)p->n_embd, ff = (size_t)p->n_ff, pixel = (size_t)p->n_pixel;
    size_t widest = embd > ff ? embd : ff, narrow = cpu->bfloat ? sizeof *v->rounded : 0;
    v->worker = dg_cpu_take_workers(cpu, t, p->head_dim, DG_BF16, 2 * embd);
    v->q = dg_cpu_take(t, (size_t)p->n_patch * heads, f);
    v->k = dg_cpu_take(t, (size_t)p->n_patch * heads, f);
    v->v = dg_cpu_take(t, (size_t)p->n_patch * heads, f);
    v->normed = dg_cpu_take(t, rows * (embd > pixel ? embd : pixel), f);
    v->wide = dg_cpu_take(t, rows * 2 * ff, f);
    v->clipped = dg_cpu_take(t, rows * (widest > heads ? widest : heads), f);
    int widest_in = dg_max(dg_max(p->n_embd, p->n_ff), dg_max(p->n_pixel, (int)heads));
    v->rounded = dg_cpu_take(t, rows * (size_t)dg_cpu_padded(widest_in), narrow);
    if (cpu->bfloat)
        dg_cpu_vision_take_heads(v, cpu, p, t);
}

size_t dg_cpu_vision_plan_bytes(dg_backend *be, const dg_vision_plan *plan)
{
    dg_cpu_vision probe;
    dg_cpu_taker t = {0};
    lay_out(&probe, dg_cpu_of(be), plan, &t);
    return t.need;
}

dgemma_status dg_cpu_vision_plan(dg_backend *be, const dg_vision_plan *plan, dgemma_error *err)
{
    dg_cpu *cpu = dg_cpu_of(be);
    dg_cpu_vision *v = &cpu->vision;
    dg_cpu_taker t = {0};
    size_t bytes = dg_cpu_vision_plan_bytes(be, plan);
    dg_free(v->scratch);
    *v = (dg_cpu_vision){.plan = *plan};
    if (!dg_arena_init(&t.arena, bytes))
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for %zu MiB of scratch", bytes >> 20);
    v->scratch = t.arena.base;
    lay_out(v, cpu, plan, &t);
    return DGEMMA_OK;
}

void dg_cpu_vision_begin(dg_backend *be, const dg_vision_batch *batch)
{
    dg_cpu *cpu = dg_cpu_of(be);
    cpu->vision.batch = batch;
    cpu->worker = cpu->vision.worker;
}

/* ---- rows ---- */

/* y[r - first] = RMSNorm(x[r], w). */
typedef struct norm_job {
    float *y;
    const float *x, *w;
    int first;
} norm_job;

static void norm_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const norm_job *a = args;
    const dg_vision_plan *p = &cpu->vision.plan;
    size_t n = (size_t)p->n_embd;
    cpu->k.rmsnorm(a->y + (size_t)(row - a->first) * n, a->x + (size_t)row * n, a->w, p->n_embd,
                   p->rms_eps);
}

/* x[r] += RMSNorm(y[r - first], w); y is overwritten. */
typedef struct add_job {
    float *x, *y;
    const float *w;
    int first;
} add_job;

static void add_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const add_job *a = args;
    const dg_vision_plan *p = &cpu->vision.plan;
    size_t n = (size_t)p->n_embd;
    float *x = a->x + (size_t)row * n, *y = a->y + (size_t)(row - a->first) * n;
    cpu->k.rmsnorm(y, y, a->w, p->n_embd, p->rms_eps);
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

typedef struct clip_job {
    float *y;
    const float *x;
    size_t ldy, ldx;
    int n;
    float min, max;
} clip_job;

static void clip_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)cpu;
    (void)worker;
    const clip_job *a = args;
    float *y = a->y + (size_t)row * a->ldy;
    const float *x = a->x + (size_t)row * a->ldx;
    for (int i = 0; i < a->n; i++) /* NaN stays NaN */
        y[i] = x[i] < a->min ? a->min : x[i] > a->max ? a->max : x[i];
}

static bool is_range(float min, float max)
{
    return min > -INFINITY || max < INFINITY;
}

/* Rows of n floats to bfloat16 numbers, as products take them. */
typedef struct round_job {
    uint16_t *y;
    const float *x;
    size_t ldx;
    int n;
} round_job;

static void round_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const round_job *a = args;
    dg_cpu_round_row(cpu, a->y, row, a->x + (size_t)row * a->ldx, a->n);
}

/* Products with this weight are products of bfloat16 numbers. */
static bool is_bfloat(const dg_cpu *cpu, const dg_weight *w)
{
    return cpu->bfloat && w->type == DG_BF16 && !w->scale;
}

/* The product of up to VISION_ROWS rows. */
static void run_product(dg_cpu *cpu, const dg_cpu_matmul *m)
{
    dg_cpu_matmul product = *m;
    if (is_bfloat(cpu, m->w)) {
        round_job rows = {cpu->vision.rounded, m->x, m->ldx, m->w->n_in};
        dg_cpu_for_rows(cpu, round_row, &rows, (dg_rows){0, m->n_row});
        product.b = rows.y;
    }
    dg_cpu_matmul_run(cpu, &product);
}

/* y = W x with inputs and outputs held in their ranges; up to VISION_ROWS rows. */
typedef struct linear {
    float *y;
    size_t ldy;
    const float *x;
    size_t ldx;
    int n_row;
    const dg_clipped *c;
} linear;

static void run_linear(dg_cpu *cpu, const linear *m)
{
    const dg_clipped *c = m->c;
    const float *x = m->x;
    size_t ldx = m->ldx;
    dg_rows rows = {0, m->n_row};
    if (is_range(c->in_min, c->in_max)) {
        int n = c->w.n_in;
        clip_job clip = {cpu->vision.clipped, x, (size_t)n, ldx, n, c->in_min, c->in_max};
        dg_cpu_for_rows(cpu, clip_row, &clip, rows);
        x = clip.y;
        ldx = clip.ldy;
    }
    run_product(cpu, &(dg_cpu_matmul){m->y, x, m->ldy, ldx, m->n_row, &c->w, .mat = 0});
    if (is_range(c->out_min, c->out_max)) {
        clip_job clip = {m->y, m->y, m->ldy, m->ldy, c->w.n_out, c->out_min, c->out_max};
        dg_cpu_for_rows(cpu, clip_row, &clip, rows);
    }
}

/* ---- patches ---- */

typedef struct embed_job {
    const dg_vision_embed_args *a;
    const dg_vision_picture *p;
    int first; /* patch of the picture that `normed` begins with */
} embed_job;

static void pixel_row(dg_cpu *cpu, const void *args, int patch, int worker)
{
    (void)worker;
    const embed_job *job = args;
    size_t n = (size_t)cpu->vision.plan.n_pixel;
    const float *from = job->p->pixels + (size_t)patch * n;
    float *t = cpu->vision.normed + (size_t)(patch - job->first) * n;
    for (size_t i = 0; i < n; i++)
        t[i] = 2 * (from[i] - 0.5f);
}

static void position_row(dg_cpu *cpu, const void *args, int patch, int worker)
{
    const embed_job *job = args;
    int n = cpu->vision.plan.n_embd, cols = job->p->cols;
    float *column = cpu->worker[worker].row, *row = column + n;
    float *x = job->a->x + (size_t)(job->p->first_patch + patch) * (size_t)n;
    dg_cpu_widen(cpu, column, job->a->table, 0, patch % cols, 0, n);
    dg_cpu_widen(cpu, row, job->a->table, 1, patch / cols, 0, n);
    for (int i = 0; i < n; i++)
        x[i] += column[i] + row[i];
}

void dg_cpu_vision_embed(dg_backend *be, const dg_vision_embed_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    const dg_vision_batch *b = cpu->vision.batch;
    size_t n_embd = (size_t)cpu->vision.plan.n_embd, n_pixel = (size_t)cpu->vision.plan.n_pixel;
    for (int i = 0; i < b->n_picture; i++) {
        const dg_vision_picture *p = &b->picture[i];
        int n_patch = p->rows * p->cols;
        for (int first = 0; first < n_patch; first += VISION_ROWS) {
            int n = dg_min(VISION_ROWS, n_patch - first);
            embed_job job = {a, p, first};
            float *x = a->x + (size_t)(p->first_patch + first) * n_embd;
            dg_cpu_for_rows(cpu, pixel_row, &job, (dg_rows){first, first + n});
            run_product(cpu, &(dg_cpu_matmul){x, cpu->vision.normed, n_embd, n_pixel, n, a->proj,
                                              .mat = 0});
            dg_cpu_for_rows(cpu, position_row, &job, (dg_rows){first, first + n});
        }
    }
}

/* ---- attention ---- */

typedef struct head_job {
    const dg_vision_attention_args *a;
    const dg_vision_picture *p;
} head_job;

/* Norms a head; the first half turns by the column, the second by the row. */
static void finish_head(const dg_cpu *cpu, float *head, const float *norm,
                        const dg_vision_rope *rope, int col, int row)
{
    const dg_vision_plan *p = &cpu->vision.plan;
    int n_pair = p->head_dim / 4;
    size_t at_col = (size_t)col * (size_t)n_pair, at_row = (size_t)row * (size_t)n_pair;
    cpu->k.rmsnorm(head, head, norm, p->head_dim, p->rms_eps);
    cpu->k.rope(head, rope->cos + at_col, rope->sin + at_col, n_pair, n_pair);
    cpu->k.rope(head + 2 * n_pair, rope->cos + at_row, rope->sin + at_row, n_pair, n_pair);
}

static void finish_heads(dg_cpu *cpu, const void *args, int patch, int worker)
{
    (void)worker;
    const head_job *job = args;
    const dg_cpu_vision *v = &cpu->vision;
    const dg_vision_layer *w = job->a->w;
    int dim = v->plan.head_dim, n_head = v->plan.n_head;
    int col = patch % job->p->cols, row = patch / job->p->cols;
    size_t at = (size_t)(job->p->first_patch + patch) * (size_t)n_head * (size_t)dim;
    for (int h = 0; h < n_head; h++, at += (size_t)dim) {
        finish_head(cpu, v->q + at, w->q_norm, &job->a->rope, col, row);
        finish_head(cpu, v->k + at, w->k_norm, &job->a->rope, col, row);
        cpu->k.rmsnorm(v->v + at, v->v + at, NULL, dim, v->plan.rms_eps);
    }
}

static void make_heads(dg_cpu *cpu, const dg_vision_attention_args *a)
{
    const dg_cpu_vision *v = &cpu->vision;
    const dg_vision_batch *b = v->batch;
    size_t n_embd = (size_t)v->plan.n_embd, heads = (size_t)a->w->q.w.n_out;
    for (int first = 0; first < b->n_patch; first += VISION_ROWS) {
        int n = dg_min(VISION_ROWS, b->n_patch - first);
        size_t at = (size_t)first * heads;
        dg_cpu_for_rows(cpu, norm_row, &(norm_job){v->normed, a->x, a->w->norm, first},
                        (dg_rows){first, first + n});
        run_linear(cpu, &(linear){v->q + at, heads, v->normed, n_embd, n, &a->w->q});
        run_linear(cpu, &(linear){v->k + at, heads, v->normed, n_embd, n, &a->w->k});
        run_linear(cpu, &(linear){v->v + at, heads, v->normed, n_embd, n, &a->w->v});
    }
    for (int i = 0; i < b->n_picture; i++) {
        const dg_vision_picture *p = &b->picture[i];
        dg_cpu_for_rows(cpu, finish_heads, &(head_job){a, p}, (dg_rows){0, p->rows * p->cols});
    }
}

/* One task: one head of up to ATTENTION_ROWS patches of a picture. Tasks of a head follow each
 * other, so its keys stay in the cache. The result takes the place of the queries. */
static void attend(void *arg, int task, int worker)
{
    const dg_cpu *cpu = arg;
    const dg_cpu_vision *v = &cpu->vision;
    const dg_vision_batch *b = v->batch;
    int head = 0, n_patch = 0, n_block = 0, at = task;
    const dg_vision_picture *p = b->picture;
    for (;; p++) {
        n_patch = p->rows * p->cols;
        n_block = dg_ceil_div(n_patch, ATTENTION_ROWS);
        if (at < n_block * v->plan.n_head)
            break;
        at -= n_block * v->plan.n_head;
    }
    head = at / n_block;

    int first = at % n_block * ATTENTION_ROWS;
    size_t dim = (size_t)v->plan.head_dim, ld = (size_t)v->plan.n_head * dim;
    size_t picture = (size_t)p->first_patch * ld + (size_t)head * dim;
    float *q = v->q + picture + (size_t)first * ld;
    dg_cpu_lines l = {
        .cpu = cpu,
        .w = &cpu->worker[worker],
        .n = dg_min(ATTENTION_ROWS, n_patch - first),
        .dim = v->plan.head_dim,
    };
    for (int i = 0; i < l.n; i++)
        memcpy(l.w->q + (size_t)i * dim, q + (size_t)i * ld, dim * sizeof *q);
    dg_cpu_lines_begin(&l);
    for (int k = 0; k < n_patch; k += DG_PAGE) {
        size_t from = picture + (size_t)k * ld;
        const int n = dg_min(DG_PAGE, n_patch - k);
        dg_cpu_lines_score(&l, &(dg_cpu_page){DG_F32, v->k + from, ld * sizeof *q, n});
        for (int i = 0; i < l.n; i++)
            dg_cpu_lines_soften(&l, i, 0, n, n);
        dg_cpu_lines_add(&l, &(dg_cpu_page){DG_F32, v->v + from, ld * sizeof *q, n});
    }
    for (int i = 0; i < l.n; i++)
        dg_cpu_lines_result(&l, i, q + (size_t)i * ld);
}

void dg_cpu_vision_attention(dg_backend *be, const dg_vision_attention_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    const dg_cpu_vision *v = &cpu->vision;
    const dg_vision_batch *b = v->batch;
    size_t n_embd = (size_t)v->plan.n_embd, heads = (size_t)a->w->o.w.n_in;
    int n_block = 0;
    make_heads(cpu, a);
    for (int i = 0; i < b->n_picture; i++)
        n_block += dg_ceil_div(b->picture[i].rows * b->picture[i].cols, ATTENTION_ROWS);
    if (is_bfloat(cpu, &a->w->q.w))
        for (int i = 0; i < b->n_picture; i++)
            dg_cpu_vision_heads(cpu, &b->picture[i]);
    else
        dg_pool_run(cpu->pool, n_block * v->plan.n_head, attend, cpu);
    for (int first = 0; first < b->n_patch; first += VISION_ROWS) {
        int n = dg_min(VISION_ROWS, b->n_patch - first);
        const float *o = v->q + (size_t)first * heads;
        run_linear(cpu, &(linear){v->normed, n_embd, o, heads, n, &a->w->o});
        dg_cpu_for_rows(cpu, add_row, &(add_job){a->x, v->normed, a->w->post_norm, first},
                        (dg_rows){first, first + n});
    }
}

/* ---- MLP ---- */

void dg_cpu_vision_mlp(dg_backend *be, const dg_vision_mlp_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    const dg_cpu_vision *v = &cpu->vision;
    const dg_vision_layer *w = a->w;
    int n_ff = w->gate.w.n_out;
    size_t n_embd = (size_t)v->plan.n_embd, ld = 2 * (size_t)n_ff;
    for (int first = 0; first < v->batch->n_patch; first += VISION_ROWS) {
        int n = dg_min(VISION_ROWS, v->batch->n_patch - first);
        dg_rows rows = {first, first + n};
        dg_cpu_for_rows(cpu, norm_row, &(norm_job){v->normed, a->x, w->mlp_norm, first}, rows);
        run_linear(cpu, &(linear){v->wide, ld, v->normed, n_embd, n, &w->gate});
        run_linear(cpu, &(linear){v->wide + n_ff, ld, v->normed, n_embd, n, &w->up});
        dg_cpu_gelu_rows(cpu, v->wide, n_ff, n);
        run_linear(cpu, &(linear){v->normed, n_embd, v->wide, ld, n, &w->down});
        dg_cpu_for_rows(cpu, add_row, &(add_job){a->x, v->normed, w->mlp_post_norm, first}, rows);
    }
}

/* ---- soft tokens ---- */

typedef struct pool_job {
    const dg_vision_project_args *a;
    const dg_vision_picture *p;
    int first; /* cell that `normed` begins with */
} pool_job;

static void pool_row(dg_cpu *cpu, const void *args, int cell, int worker)
{
    (void)worker;
    const pool_job *job = args;
    const dg_vision_project_args *a = job->a;
    int n = cpu->vision.plan.n_embd, pool = a->pool, cols = job->p->cols / pool;
    size_t ld = (size_t)n;
    float *h = cpu->vision.normed + (size_t)(cell - job->first) * ld;
    float part = 1 / (float)(pool * pool), root = sqrtf((float)n);
    memset(h, 0, ld * sizeof *h);
    for (int y = 0; y < pool; y++)
        for (int x = 0; x < pool; x++) {
            int patch = (cell / cols * pool + y) * job->p->cols + cell % cols * pool + x;
            const float *from = a->x + (size_t)(job->p->first_patch + patch) * ld;
            cpu->k.axpy[DG_F32](h, part, from, n);
        }
    for (int i = 0; i < n; i++) {
        h[i] *= root;
        if (a->scale)
            h[i] = (h[i] - a->bias[i]) * a->scale[i];
    }
    cpu->k.rmsnorm(h, h, NULL, n, cpu->vision.plan.rms_eps);
}

void dg_cpu_vision_project(dg_backend *be, const dg_vision_project_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    const dg_vision_batch *b = cpu->vision.batch;
    size_t n_out = (size_t)a->proj->n_out, n_in = (size_t)a->proj->n_in;
    float *out = a->out;
    for (int i = 0; i < b->n_picture; i++) {
        const dg_vision_picture *p = &b->picture[i];
        int n_cell = p->rows / a->pool * (p->cols / a->pool);
        for (int first = 0; first < n_cell; first += VISION_ROWS) {
            int n = dg_min(VISION_ROWS, n_cell - first);
            dg_cpu_for_rows(cpu, pool_row, &(pool_job){a, p, first}, (dg_rows){first, first + n});
            run_product(
                cpu, &(dg_cpu_matmul){out, cpu->vision.normed, n_out, n_in, n, a->proj, .mat = 0});
            out += (size_t)n * n_out;
        }
    }
}
