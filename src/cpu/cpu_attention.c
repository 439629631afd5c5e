/* Queries, keys, values; the cache's one writer; attention over the cache's pages. */
#include <math.h>
#include <string.h>
#include "base/real.h"
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
        const int at = row - seg->first_row + (seg->canvas ? 0 : seg->position);
        const size_t from =
            ((size_t)row * (size_t)l->n_kv_head + (size_t)head) * (size_t)l->head_dim;
        dg_cpu_slot to = {
            .page = dg_cpu_keys_at(job->cpu, kv, layer, seg, at / DG_PAGE, seg->canvas),
            .layer = layer,
            .head = head,
            .slot = at % DG_PAGE,
        };
        dg_cpu_kv_put(job->cpu, kv, &to, job->k + from, spare);
        to.value = true;
        dg_cpu_kv_put(job->cpu, kv, &to, job->v + from, spare);
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
        {q, q_x, q_dim, n_embd, n_row - q0, &w->q, .q_row = q0, .batch_row = q0},
        {v, x, kv_dim, n_embd, n_row, &w->v, .mat = 0},
    };
    dg_cpu_matmul_group(cpu, product, w->v_from_k ? 2 : 3,
                        &(dg_cpu_made){dg_cpu_norm_row, &norm, 0});
    dg_pool_run(cpu->pool, n_row, finish_row, &job);
    dg_pool_run(cpu->pool, dg_ceil_div(n_row, DG_PANEL) * w->n_kv_head, store_head, &job);
}

/* ---- attention ---- */

/* Keys of a run from `first` on that begins at `position`, a multiple of its keys; n of it. */
typedef struct turn {
    int position, first, n;
    bool canvas;
} turn;

/* One task: a few consecutive rows of a segment, all query heads that share one key head, one part
 * of the keys. Query line i of the task is row i / group, head i % group of the key head. */
typedef struct block {
    const dg_cpu *cpu;
    const dg_attention_args *a;
    const dg_segment *seg;
    int first, n_row;   /* rows of the batch */
    int kv_head, group; /* group: query heads per key head */
    int part, n_part;
    dg_cpu_lines lines;
} block;

/* Parts of the keys before a segment: a matter of where its canvas is, whoever shares the pass.
 * Prompts have tasks enough by their rows, and sliding layers see few keys. */
static int parts_of(const dg_attention_args *a, const dg_segment *seg)
{
    const bool few = a->w->window || seg->position < PARTED_KEYS;
    return seg->canvas && !few && dg_cpu_kv_in_panels(a->kv, a->layer) ? ATTENTION_PARTS : 1;
}

/* The prefix keys that a row sees. */
static dg_span prefix_span(const block *b, int row)
{
    if (b->seg->canvas)
        return dg_canvas_span(b->seg->position, b->a->w->window);
    const dg_batch *batch = b->cpu->batch;
    return dg_encode_span(batch->position[row], batch->block[row], b->a->w->window, batch->images);
}

/* The block's head of a page: its keys, or its values. */
static dg_cpu_widened widened(const block *b, const dg_cpu_keys *page, bool value, void *room)
{
    return dg_cpu_kv_widened(b->cpu, b->a->kv, b->a->layer, page, b->kv_head, value, room);
}

static dg_cpu_page rows_of(const block *b, const dg_cpu_keys *page, bool value, int n)
{
    const dg_cpu_widened w = widened(b, page, value, b->lines.w->keys);
    return (dg_cpu_page){w.type, w.data, (size_t)b->a->w->head_dim * dg_dtype_size(w.type), n};
}

/* The first n keys of page i; its first key is at `position` on the axis that the spans are on. */
static void attend_page(block *b, int i, int position, int n, bool canvas)
{
    const dg_cpu_keys page = dg_cpu_keys_at(b->cpu, b->a->kv, b->a->layer, b->seg, i, canvas);
    const dg_cpu_page keys = rows_of(b, &page, false, n);
    dg_cpu_lines_score(&b->lines, &keys);
    for (int r = 0; r < b->n_row; r++) {
        dg_span span = canvas ? (dg_span){0, b->seg->n_row} : prefix_span(b, b->first + r);
        for (int g = 0; g < b->group; g++)
            dg_cpu_lines_soften(&b->lines, r * b->group + g, span.first - position,
                                span.end - position, n);
    }
    const dg_cpu_page values = rows_of(b, &page, true, n);
    dg_cpu_lines_add(&b->lines, &values);
}

/* A turn's keys, or its values. */
static dg_cpu_run find_run(block *b, turn t, bool value)
{
    const size_t each = DG_PAGE * (size_t)b->a->w->head_dim;
    uint16_t *room = b->lines.w->keys;
    dg_cpu_run run = {.first = t.first, .n = t.n};
    for (int k = t.first; k < t.n; k += DG_PAGE) {
        const int i = k / DG_PAGE;
        const dg_cpu_keys page = dg_cpu_keys_at(b->cpu, b->a->kv, b->a->layer, b->seg,
                                                (t.position + k) / DG_PAGE, t.canvas);
        run.page[i] = widened(b, &page, value, room + (size_t)i * each).data;
    }
    return run;
}

/* The keys of a turn that a row sees, counted from the turn's first. */
static dg_span seen_by(const block *b, turn t, int row)
{
    const dg_span s = t.canvas ? (dg_span){0, b->seg->n_row} : prefix_span(b, row);
    return (dg_span){s.first - t.position, s.end - t.position};
}

static bool all_see_all(const block *b, turn t)
{
    bool all = t.first == 0 && t.n == b->cpu->k.b->keys;
    for (int r = 0; r < b->n_row && all; r++) {
        const dg_span s = seen_by(b, t, b->first + r);
        all = s.first <= 0 && s.end >= t.n;
    }
    return all;
}

/* Keys and values lie in their pages as they are multiplied. */
static bool stored_so(const block *b, turn t)
{
    const dg_dtype type = b->a->kv->layout.type;
    return !dg_kv_in_bytes(t.canvas ? dg_kv_canvas_type(type) : type);
}

/* `next`: the turn behind; n 0: not known. What is multiplied next is asked for. */
static void attend_run(block *b, turn t, turn next)
{
    const size_t two = 2 * DG_PANEL, dim = (size_t)b->a->w->head_dim;
    const bool stored = stored_so(b, t);
    dg_cpu_run keys = find_run(b, t, false), values = {0}, after = {0};
    if (stored) {
        values = find_run(b, t, true);
        keys.soon = (dg_bsoon){values.page + t.first / DG_PAGE, two * DG_PAGE,
                               dg_ceil_div(t.n - t.first, DG_PAGE)};
    }
    if (!all_see_all(b, t) || !dg_cpu_runs_score_soften(&b->lines, &keys)) {
        dg_cpu_runs_score(&b->lines, &keys);
        for (int i = 0; i < b->lines.n; i++) {
            const dg_span s = seen_by(b, t, b->first + i / b->group);
            dg_cpu_runs_soften(&b->lines, &keys, i, s.first, s.end);
        }
    }
    if (!stored)
        values = find_run(b, t, true);
    if (stored && next.n) {
        after = find_run(b, next, false);
        values.soon = (dg_bsoon){after.page, two * dim, 1};
    }
    dg_cpu_runs_add(&b->lines, &values);
}

/* Keys [seen.first, seen.end), and what lies in their pages before them. */
static void attend_runs(block *b, dg_span seen, bool canvas)
{
    const int from = seen.first / DG_PAGE * DG_PAGE, run = b->cpu->k.b->keys;
    if (seen.first >= seen.end) /* before a canvas a window of one sees none */
        return;
    for (int p = from / run * run; p < seen.end; p += run)
        attend_run(b, (turn){p, dg_max(0, from - p), dg_min(run, seen.end - p), canvas},
                   (turn){p + run, 0, dg_max(0, dg_min(run, seen.end - p - run)), canvas});
}

/* The task's part of the keys before a canvas, in whole runs. The last ones are small: they are
 * what threads take when others have nothing left to do. */
static dg_span part_span(const block *b)
{
    static const int eighths[ATTENTION_PARTS + 1] = {0, 3, 6, 7, 8};
    const int run = b->cpu->k.b->keys, n = dg_ceil_div(b->seg->position, run);
    return (dg_span){n * eighths[b->part] / 8 * run,
                     dg_min(n * eighths[b->part + 1] / 8 * run, b->seg->position)};
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
        attend_runs(b, b->n_part > 1 ? part_span(b) : seen, false);
        if (seg->canvas && b->part == b->n_part - 1)
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

/* Finds the task's rows: tasks run over segments, parts of its keys, row blocks, key heads. */
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
        b->n_part = parts_of(job->a, seg);
        if (at < n_block * b->n_part) {
            b->seg = seg;
            b->part = at / n_block;
            b->first = first + at % n_block * job->rows_per_task;
            b->n_row = dg_min(job->rows_per_task, end - b->first);
            return true;
        }
        at -= n_block * b->n_part;
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
        if (first < end)
            n += dg_ceil_div(end - first, job->rows_per_task) * parts_of(job->a, seg);
    }
    return n;
}

/* ---- parts ---- */

static dg_cpu_part *part_at(const attention_job *job, int part, int row, int head)
{
    const size_t n_row = (size_t)job->cpu->plan.n_row, n_head = (size_t)job->a->w->n_head;
    return job->cpu->part + ((size_t)part * n_row + (size_t)row) * n_head + (size_t)head;
}

static float *part_sums(const attention_job *job, int part, int row, int head)
{
    const size_t n_row = (size_t)job->cpu->plan.n_row, n_head = (size_t)job->a->w->n_head,
                 line = (size_t)row * n_head + (size_t)head, dim = (size_t)job->a->w->head_dim;
    return part ? job->cpu->part_sums + ((size_t)(part - 1) * n_row * n_head + line) * dim
                : job->a->out + line * dim;
}

static void put_part(const attention_job *job, const block *b, int line)
{
    const dg_cpu_lines *l = &b->lines;
    const int row = b->first + line / b->group, head = b->kv_head * b->group + line % b->group;
    *part_at(job, b->part, row, head) = (dg_cpu_part){l->against[line], l->sum[line]};
    memcpy(part_sums(job, b->part, row, head), dg_cpu_line_sums(l, line),
           (size_t)l->dim * sizeof(float));
}

/* A line's parts come together in their order. */
static void join_parts(const attention_job *job, int n_part, int row, int head)
{
    const int dim = job->a->w->head_dim;
    float *out = part_sums(job, 0, row, head), top = part_at(job, 0, row, head)->against;
    double share[ATTENTION_PARTS], sum = 0;
    for (int p = 1; p < n_part; p++)
        top = fmaxf(top, part_at(job, p, row, head)->against);
    for (int p = 0; p < n_part; p++) {
        const dg_cpu_part *part = part_at(job, p, row, head);
        share[p] = dg_exp((double)(part->against - top));
        sum += share[p] * part->sum;
    }
    const float first = (float)(share[0] / sum);
    for (int i = 0; i < dim; i++)
        out[i] *= first;
    for (int p = 1; p < n_part; p++)
        job->cpu->k.axpy[DG_F32](out, (float)(share[p] / sum), part_sums(job, p, row, head), dim);
}

static void join_row(void *arg, int task, int worker)
{
    (void)worker;
    const attention_job *job = arg;
    const int row = job->a->rows.first + task,
              n_part = parts_of(job->a, dg_batch_segment(job->cpu->batch, row));
    for (int head = 0; head < job->a->w->n_head && n_part > 1; head++)
        join_parts(job, n_part, row, head);
}

static bool has_parts(const attention_job *job)
{
    const dg_batch *batch = job->cpu->batch;
    for (int s = 0; s < batch->n_segment; s++)
        if (parts_of(job->a, &batch->segment[s]) > 1)
            return true;
    return false;
}

/* ---- a task ---- */

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
        if (b.n_part > 1)
            put_part(job, &b, i);
        else
            dg_cpu_lines_result(l, i, query_line(&b, b.a->out, i));
}

void dg_cpu_attention(dg_backend *be, const dg_attention_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    const int group = a->w->n_head / a->w->n_kv_head,
              lines = dg_cpu_kv_in_panels(a->kv, a->layer) ? cpu->k.b->lines : ATTENTION_ROWS;
    attention_job job = {cpu, a, dg_max(1, lines / group), group};
    /* fewer rows where that gives all threads work */
    const int enough = 2 * dg_pool_threads(cpu->pool);
    for (int left = lines; left > ATTENTION_LEAST && count_blocks(&job) * a->w->n_kv_head < enough;
         left /= 2)
        job.rows_per_task = dg_max(1, job.rows_per_task / 2);
    dg_pool_run(cpu->pool, count_blocks(&job) * a->w->n_kv_head, attention_task, &job);
    if (has_parts(&job))
        dg_pool_run(cpu->pool, a->rows.end - a->rows.first, join_row, &job);
}
