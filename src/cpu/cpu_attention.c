/* Queries, keys, values; the cache's one writer; attention over the cache's pages. */
#include <string.h>
#include "cpu/cpu_internal.h"

/* ---- q, k, v ---- */

typedef struct head_job {
    dg_cpu *cpu;
    const dg_qkv_args *a;
    float *k, *v; /* [n_row, n_kv_head * head_dim] */
} head_job;

/* Norms and rotates the heads of one row of q or k. */
static void finish_heads(const head_job *job, float *rows, const float *norm, int n_head, int row)
{
    const dg_rope *rope = job->a->rope;
    int dim = job->a->w->head_dim;
    size_t angle = (size_t)row * (size_t)rope->n_pair;
    for (int h = 0; h < n_head; h++) {
        float *head = rows + ((size_t)row * (size_t)n_head + (size_t)h) * (size_t)dim;
        job->cpu->k.rmsnorm(head, head, norm, dim, job->cpu->plan.rms_eps);
        job->cpu->k.rope(head, rope->cos + angle, rope->sin + angle, rope->n_pair, dim / 2);
    }
}

static void finish_row(void *arg, int row, int worker)
{
    (void)worker;
    const head_job *job = arg;
    const dg_qkv_args *a = job->a;
    const dg_attention_weights *w = a->w;
    size_t kv_dim = (size_t)(w->n_kv_head * w->head_dim);
    float *k = job->k + (size_t)row * kv_dim, *v = job->v + (size_t)row * kv_dim;
    if (w->v_from_k)
        memcpy(v, k, kv_dim * sizeof *v);
    for (float *head = v; head < v + kv_dim; head += w->head_dim)
        job->cpu->k.rmsnorm(head, head, NULL, w->head_dim, job->cpu->plan.rms_eps);
    finish_heads(job, job->k, w->k_norm, w->n_kv_head, row);
    if (row >= a->first_q_row)
        finish_heads(job, a->q, w->q_norm, w->n_head, row);
}

/* One task: some rows' keys and values of one head into their pages. In panels the keys of some
 * rows share a line of the cache, so that it is one thread's. */
static void store_head(void *arg, int task, int worker)
{
    const head_job *job = arg;
    const dg_kv_store *kv = job->a->kv;
    const int layer = job->a->layer;
    const dg_kv_layer *l = &kv->layout.layer[layer];
    const int head = task % l->n_kv_head, first = task / l->n_kv_head * DG_PANEL;
    uint16_t *spare = (uint16_t *)job->cpu->worker[worker].q;
    for (int row = first; row < dg_min(first + DG_PANEL, job->cpu->batch->n_row); row++) {
        const dg_segment *seg = dg_batch_segment(job->cpu->batch, row);
        const int at = row - seg->first_row + (seg->canvas ? 0 : seg->position),
                  slot = at % DG_PAGE;
        const dg_cpu_keys page =
            dg_cpu_keys_at(job->cpu, kv, layer, seg, at / DG_PAGE, seg->canvas);
        const size_t of_head = (size_t)head * page.head_bytes,
                     from =
                         ((size_t)row * (size_t)l->n_kv_head + (size_t)head) * (size_t)l->head_dim;
        dg_cpu_kv_put(job->cpu, kv, layer, page.key + of_head, slot, false, job->k + from, spare);
        dg_cpu_kv_put(job->cpu, kv, layer, page.value + of_head, slot, true, job->v + from, spare);
    }
}

void dg_cpu_qkv(dg_backend *be, const dg_qkv_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    const dg_attention_weights *w = a->w;
    int n_row = cpu->batch->n_row, q0 = a->first_q_row;
    size_t n_embd = (size_t)cpu->plan.n_embd;
    size_t q_dim = (size_t)w->q.n_out, kv_dim = (size_t)w->k.n_out;
    const float *x = cpu->normed, *q_x = x + (size_t)q0 * n_embd;
    float *q = a->q + (size_t)q0 * q_dim, *k = cpu->k_row, *v = cpu->v_row;
    head_job job = {cpu, a, k, v};

    const dg_cpu_norm_args norm = {cpu->normed, a->x, w->norm};
    const dg_cpu_matmul product[] = {
        {k, x, kv_dim, n_embd, n_row, &w->k, .mat = 0},
        {q, q_x, q_dim, n_embd, n_row - q0, &w->q, .q_row = q0},
        {v, x, kv_dim, n_embd, n_row, &w->v, .mat = 0},
    };
    dg_cpu_matmul_group(cpu, product, w->v_from_k ? 2 : 3,
                        &(dg_cpu_made){dg_cpu_norm_row, &norm, 0});
    dg_pool_run(cpu->pool, n_row, finish_row, &job);
    dg_pool_run(cpu->pool, dg_ceil_div(n_row, DG_PANEL) * w->n_kv_head, store_head, &job);
}

/* ---- attention ---- */

/* One task: a few consecutive rows of a segment, all query heads that share one key head. Query
 * line i of the task is row i / group, head i % group of the key head. */
typedef struct block {
    const dg_cpu *cpu;
    const dg_attention_args *a;
    const dg_segment *seg;
    int first, n_row;   /* rows of the batch */
    int kv_head, group; /* group: query heads per key head */
    dg_cpu_lines lines;
} block;

/* The prefix keys that a row sees. */
static dg_span prefix_span(const block *b, int row)
{
    if (b->seg->canvas)
        return dg_canvas_span(b->seg->position, b->a->w->window);
    const dg_batch *batch = b->cpu->batch;
    return dg_encode_span(batch->position[row], batch->block[row], b->a->w->window, batch->images);
}

/* The first n keys of page i; its first key is at `position` on the axis that the spans are on. */
static void attend_page(block *b, int i, int position, int n, bool canvas)
{
    const dg_kv_store *kv = b->a->kv;
    dg_cpu_keys page = dg_cpu_keys_at(b->cpu, kv, b->a->layer, b->seg, i, canvas);
    size_t head = (size_t)b->kv_head * page.head_bytes;
    dg_cpu_page keys = {
        .type = kv->layout.type,
        .key = page.key + head,
        .value = page.value + head,
        .stride = page.head_bytes / DG_PAGE,
        .n = n,
    };
    dg_cpu_lines_score(&b->lines, &keys);
    for (int r = 0; r < b->n_row; r++) {
        dg_span span = canvas ? (dg_span){0, b->seg->n_row} : prefix_span(b, b->first + r);
        for (int g = 0; g < b->group; g++)
            dg_cpu_lines_soften(&b->lines, r * b->group + g, span.first - position,
                                span.end - position, n);
    }
    dg_cpu_lines_add(&b->lines, &keys);
}

/* Keys of a run from `first` on that begins at `position`, a multiple of ATTENTION_RUN; n of it. */
static void attend_run(block *b, int position, int first, int n, bool canvas)
{
    dg_cpu_run run = {.first = first, .n = n};
    for (int k = first; k < n; k += DG_PAGE) {
        dg_cpu_keys page =
            dg_cpu_keys_at(b->cpu, b->a->kv, b->a->layer, b->seg, (position + k) / DG_PAGE, canvas);
        size_t head = (size_t)b->kv_head * page.head_bytes;
        run.key[k / DG_PAGE] = (const uint16_t *)(page.key + head);
        run.value[k / DG_PAGE] = (const uint16_t *)(page.value + head);
    }
    dg_cpu_runs_score(&b->lines, &run);
    for (int r = 0; r < b->n_row; r++) {
        dg_span span = canvas ? (dg_span){0, b->seg->n_row} : prefix_span(b, b->first + r);
        for (int g = 0; g < b->group; g++)
            dg_cpu_runs_soften(&b->lines, &run, r * b->group + g, span.first - position,
                               span.end - position);
    }
    dg_cpu_runs_add(&b->lines, &run);
}

/* Keys [seen.first, seen.end), and what lies in their pages before them. */
static void attend_runs(block *b, dg_span seen, bool canvas)
{
    int from = seen.first / DG_PAGE * DG_PAGE;
    for (int p = from / ATTENTION_RUN * ATTENTION_RUN; p < seen.end; p += ATTENTION_RUN)
        attend_run(b, p, dg_max(0, from - p), dg_min(ATTENTION_RUN, seen.end - p), canvas);
}

static void attend_block(block *b)
{
    const dg_segment *seg = b->seg;
    dg_span seen = prefix_span(b, b->first);
    for (int r = 1; r < b->n_row; r++) {
        dg_span s = prefix_span(b, b->first + r);
        seen = (dg_span){dg_min(seen.first, s.first), dg_max(seen.end, s.end)};
    }
    if (dg_cpu_kv_in_panels(b->a->kv, b->a->layer)) {
        attend_runs(b, seen, false);
        if (seg->canvas)
            attend_runs(b, (dg_span){0, seg->n_row}, true);
        return;
    }
    for (int p = seen.first / DG_PAGE * DG_PAGE; p < seen.end; p += DG_PAGE)
        attend_page(b, p / DG_PAGE, p, dg_min(DG_PAGE, seen.end - p), false);
    if (seg->canvas)
        for (int p = 0; p < seg->n_row; p += DG_PAGE)
            attend_page(b, p / DG_PAGE, p, dg_min(DG_PAGE, seg->n_row - p), true);
}

static float *query_line(const block *b, const float *q, int line)
{
    size_t dim = (size_t)b->a->w->head_dim;
    size_t row = (size_t)(b->first + line / b->group),
           head = (size_t)(b->kv_head * b->group + line % b->group);
    return (float *)q + (row * (size_t)b->a->w->n_head + head) * dim;
}

typedef struct attention_job {
    dg_cpu *cpu;
    const dg_attention_args *a;
    int rows_per_task, group;
} attention_job;

/* Finds the task's rows: tasks run over segments, row blocks of a segment, key heads. */
static bool locate(const attention_job *job, int task, block *b)
{
    const dg_batch *batch = job->cpu->batch;
    b->kv_head = task % job->a->w->n_kv_head;
    int at = task / job->a->w->n_kv_head;
    for (int s = 0; s < batch->n_segment; s++) {
        const dg_segment *seg = &batch->segment[s];
        int first = dg_max(seg->first_row, job->a->rows.first);
        int end = dg_min(seg->first_row + seg->n_row, job->a->rows.end);
        int n_block = first < end ? dg_ceil_div(end - first, job->rows_per_task) : 0;
        if (at < n_block) {
            b->seg = seg;
            b->first = first + at * job->rows_per_task;
            b->n_row = dg_min(job->rows_per_task, end - b->first);
            return true;
        }
        at -= n_block;
    }
    return false;
}

static int count_blocks(const attention_job *job)
{
    int n = 0;
    for (int s = 0; s < job->cpu->batch->n_segment; s++) {
        const dg_segment *seg = &job->cpu->batch->segment[s];
        int first = dg_max(seg->first_row, job->a->rows.first);
        int end = dg_min(seg->first_row + seg->n_row, job->a->rows.end);
        n += first < end ? dg_ceil_div(end - first, job->rows_per_task) : 0;
    }
    return n;
}

static void attention_task(void *arg, int task, int worker)
{
    const attention_job *job = arg;
    block b = {.cpu = job->cpu, .a = job->a, .group = job->group};
    if (!locate(job, task, &b))
        return;
    dg_cpu_lines *l = &b.lines;
    size_t dim = (size_t)b.a->w->head_dim;
    l->cpu = job->cpu;
    l->w = &job->cpu->worker[worker];
    l->dim = b.a->w->head_dim;
    l->n = b.n_row * b.group;
    const bool panels = dg_cpu_kv_in_panels(b.a->kv, b.a->layer);
    for (int i = 0; i < l->n; i++) {
        const float *q = query_line(&b, b.a->q, i);
        if (panels)
            dg_cpu_runs_set_line(l, i, q);
        else
            memcpy(l->w->q + (size_t)i * dim, q, dim * sizeof *q);
    }

    dg_cpu_lines_begin(l);
    attend_block(&b);
    for (int i = 0; i < l->n; i++)
        dg_cpu_lines_result(l, i, query_line(&b, b.a->out, i));
}

void dg_cpu_attention(dg_backend *be, const dg_attention_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    int group = a->w->n_head / a->w->n_kv_head;
    attention_job job = {cpu, a, dg_max(1, ATTENTION_ROWS / group), group};
    /* fewer rows where that gives all threads work */
    int enough = 2 * dg_pool_threads(cpu->pool);
    for (int i = 0; i < 2 && count_blocks(&job) * a->w->n_kv_head < enough; i++)
        job.rows_per_task = dg_max(1, job.rows_per_task / 2);
    dg_pool_run(cpu->pool, count_blocks(&job) * a->w->n_kv_head, attention_task, &job);
}
