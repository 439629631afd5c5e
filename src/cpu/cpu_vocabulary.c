/* The vocabulary end: logits, their statistics, a draw, the soft embedding.
 *
 * The vocabulary is walked once, in tiles. For each tile: the logits of all rows; then, while those
 * of the next tile are made, row by row the running maximum, the sums that give the entropy, the
 * mass of each finer tile, for the draw, and the words that the soft embedding keeps (cpu_keep.c);
 * then the tile's share of it (cpu_soft.c). A draw needs the total first, so
 * it comes last (cpu_draw.c): the mass table says in which fine tile it falls, whose logits are
 * made again, to the same bits. Rows whose draw is filtered are walked a second time, once it is
 * known what their filters leave (cpu_filter.c).
 *
 * Everything is summed in ascending vocabulary order per row. */
#include "base/real.h"
#include "cpu/cpu_vocabulary.h"
#include <math.h>
#include <string.h>

/* A word that must not come up gets this logit; finite, so that products with a probability of 0
 * stay 0. */
#define BANNED -1e30f

size_t dg_cpu_vocab_row_bytes(void)
{
    return sizeof(dg_vocab_row);
}

size_t dg_cpu_soft_row_bytes(void)
{
    return sizeof(dg_soft_row);
}

/* ---- logits ---- */

/* Rows that logits are made of: n_row of them from `row` on, in the memory of x or of q. */
typedef struct logit_rows {
    const float *x;
    const dg_qpair *q;
    int row, n_row;
} logit_rows;

/* Raw logits of some rows for words [first, first + n) into out, whose rows are VOCAB_TILE apart.
 */
static void raw_logits(const dg_vocab_job *job, float *out, const logit_rows *from, int first,
                       int n, int worker)
{
    const dg_weight *table = job->a->table;
    dg_cpu_matmul m = {
        .y = out,
        .y_col = first,
        .x = from->x + (size_t)from->row * (size_t)table->n_in,
        .ldy = VOCAB_TILE,
        .ldx = (size_t)table->n_in,
        .n_row = from->n_row,
        .w = table,
        .q = from->q,
        .q_row = from->row,
    };
    dg_cpu_matmul_cols(job->cpu, &m, first, first + n, worker);
}

int dg_cpu_lower_bound(const void *list, size_t stride, int n, int32_t id)
{
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        int32_t at;
        memcpy(&at, (const unsigned char *)list + (size_t)mid * stride, sizeof at);
        if (at < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Raw logits of one row to processed ones: softcap, bias, bans; the copy for the caller; the
 * temperature. */
static void process_logits(const dg_vocab_job *job, float *z, int row, int first, int n,
                           bool copy_out)
{
    const dg_vocabulary_args *a = job->a;
    const dg_vocabulary_options *opt = dg_vocab_options(job, row);
    float temperature = job->cpu->vocab[row].seg->temperature;
    bool at_once = a->softcap > 0 && !opt && !(copy_out && job->out->logits);
    if (a->softcap > 0)
        job->cpu->k.softcap(z, n, a->softcap, at_once ? temperature : 1);
    if (at_once)
        return;
    if (opt) {
        int i = dg_cpu_lower_bound(opt->bias, sizeof *opt->bias, opt->n_bias, first);
        for (; i < opt->n_bias && opt->bias[i].id < first + n; i++)
            z[opt->bias[i].id - first] += opt->bias[i].bias;
        i = dg_cpu_lower_bound(opt->banned, sizeof *opt->banned, opt->n_banned, first);
        for (; i < opt->n_banned && opt->banned[i] < first + n; i++)
            z[opt->banned[i] - first] = BANNED;
    }
    if (copy_out && job->out->logits)
        memcpy(job->out->logits + (size_t)row * (size_t)a->table->n_out + first, z,
               (size_t)n * sizeof *z);
    for (int i = 0; i < n; i++)
        z[i] /= temperature;
}

/* Words that one task computes logits of. */
static void logits_task(void *arg, int task, int worker)
{
    const dg_vocab_job *job = arg;
    int at = task * TASK_COLS, n = dg_min(TASK_COLS, job->n - at);
    logit_rows rows = {job->x, job->q, 0, job->n_row};
    raw_logits(job, job->tile + at, &rows, job->first + at, n, worker);
}

void dg_cpu_tile_logits(dg_vocab_job *job)
{
    if (!job->batch->given)
        dg_pool_run(job->cpu->pool, dg_ceil_div(job->n, TASK_COLS), logits_task, job);
}

void dg_cpu_finish_logits(const dg_vocab_job *job, float *z, int row, int first, int n,
                          bool copy_out)
{
    if (job->batch->given)
        memcpy(z, job->batch->given + (size_t)row * (size_t)job->a->table->n_out + first,
               (size_t)n * sizeof *z);
    else
        process_logits(job, z, row, first, n, copy_out);
}

void dg_cpu_word_logits(const dg_vocab_job *job, float *z, int row, int first, int n, int worker)
{
    logit_rows rows = {job->a->x, job->q_all, row, 1};
    if (!job->batch->given)
        raw_logits(job, z, &rows, first, n, worker);
    dg_cpu_finish_logits(job, z, row, first, n, false);
}

/* ---- statistics ---- */

/* Takes a tile's maximum in; everything so far becomes relative to it. */
static void raise_max(dg_vocab_row *v, const float *z, int n, int first, const dg_kernels *k)
{
    float top;
    int at = k->argmax(z, n, &top);
    v->shrink = 1;
    if (!(top > v->max))
        return;
    double shift = (double)v->max - top, shrink = dg_exp(shift);
    v->slope = v->mass > 0 ? shrink * (v->slope + shift * v->mass) : 0;
    v->mass *= shrink;
    v->left_out *= shrink;
    v->shrink = (float)shrink;
    v->max = top;
    v->argmax = first + at;
}

void dg_cpu_take_top(int32_t *id, float *at, int n_top, const float *z, int first, int n)
{
    for (int i = 0; i < n; i++) {
        if (!(z[i] > at[n_top - 1]))
            continue;
        int k = n_top - 1;
        for (; k > 0 && at[k - 1] < z[i]; k--) {
            at[k] = at[k - 1];
            id[k] = id[k - 1];
        }
        at[k] = z[i];
        id[k] = first + i;
    }
}

/* The most likely words so far; their log-probabilities are logits until the total is known. */
static void take_top(const dg_vocab_job *job, int row, const float *z)
{
    const dg_vocabulary_options *opt = dg_vocab_options(job, row);
    int n_top = opt && job->out->top_id ? opt->n_top : 0;
    if (n_top)
        dg_cpu_take_top(job->out->top_id + (size_t)row * DG_MAX_TOP,
                        job->out->top_logprob + (size_t)row * DG_MAX_TOP, n_top, z, job->first,
                        job->n);
}

static void finish_top(const dg_vocab_job *job, int row)
{
    const dg_vocab_row *v = &job->cpu->vocab[row];
    const dg_vocabulary_options *opt = dg_vocab_options(job, row);
    double log_mass = dg_log(v->mass);
    if (job->out->logprob)
        job->out->logprob[row] = (float)-log_mass;
    float *at = job->out->top_id ? job->out->top_logprob + (size_t)row * DG_MAX_TOP : NULL;
    for (int i = 0; at && opt && i < opt->n_top; i++)
        at[i] = (float)((double)at[i] - v->max - log_mass);
}

/* One row of the tile. */
static void look_at_row(const dg_vocab_job *job, int row, int worker)
{
    dg_cpu *cpu = job->cpu;
    dg_vocab_row *v = &cpu->vocab[row];
    float *z = job->tile + (size_t)row * VOCAB_TILE, *e = cpu->worker[worker].row;
    dg_cpu_finish_logits(job, z, row, job->first, job->n, true);
    raise_max(v, z, job->n, job->first, &cpu->k);
    take_top(job, row, z);
    dg_cpu_asked_tile(job, row, z, worker);
    if (v->draw != DG_DRAW_PLAIN)
        dg_cpu_draw_tile(job, row, z, worker);

    bool plain = v->draw == DG_DRAW_PLAIN;
    if (plain)
        cpu->draw_shift[(size_t)row * (size_t)job->n_tile + (size_t)(job->first / VOCAB_TILE)] =
            v->max;
    double *mass = cpu->draw_mass + (size_t)row * (size_t)job->n_draw_tile;
    dg_vocab_tile t = {.e = e};
    for (int i = 0; i < job->n; i += DRAW_TILE) {
        dg_exp_sums s = cpu->k.exp_sums(e + i, z + i, dg_min(DRAW_TILE, job->n - i), v->max);
        if (plain)
            mass[(job->first + i) / DRAW_TILE] = s.mass;
        t.mass += s.mass;
        t.most[i / DRAW_TILE] = s.most;
        v->mass += s.mass;
        v->slope += s.slope;
    }
    if (cpu->soft[row])
        dg_cpu_soft_keep(job, row, &t, worker);
}

/* ---- the stage ---- */

/* All words were seen. Rows that are not numbers are nobody else's business. */
static void end_rows(const dg_vocab_job *job)
{
    for (int r = 0; r < job->n_all; r++) {
        dg_vocab_row *v = &job->cpu->vocab[r];
        if (isfinite(v->mass) && v->mass > 0) {
            finish_top(job, r);
            dg_cpu_asked_end(job, r);
        } else
            v->draw = DG_DRAW_BROKEN;
    }
}

static void begin_rows(dg_vocab_job *job)
{
    const dg_batch *batch = job->batch;
    dg_cpu *cpu = job->cpu;
    size_t n_embd = (size_t)job->a->table->n_in, n_top = (size_t)job->n_all * DG_MAX_TOP;
    for (int r = 0; r < job->n_all; r++) {
        const dg_segment *seg = dg_batch_segment(batch, batch->n_encode + r);
        size_t at = (size_t)(batch->n_encode + r - seg->first_row);
        cpu->vocab[r] = (dg_vocab_row){.seg = seg, .max = -INFINITY};
        cpu->soft[r] = seg->soft && !seg->last_step ? seg->soft + at * n_embd : NULL;
        if (cpu->soft[r])
            memset(cpu->soft[r], 0, n_embd * sizeof *cpu->soft[r]);
        job->soft |= cpu->soft[r] != NULL;
        dg_cpu_asked_begin(job, r);
    }
    for (size_t i = 0; job->out->top_id && i < n_top; i++) {
        job->out->top_id[i] = -1;
        job->out->top_logprob[i] = -INFINITY;
    }
    dg_cpu_draw_begin(job);
}

/* Three tiles at a time: the first one's words are added to the soft embeddings, the next one is
 * looked at, the logits of the third are made. Tasks of the first two stages are longer than those
 * of rows, so they come first. */
typedef struct walk_job {
    dg_vocab_job seen, now, next;
    int n_soft, n_logits, n_row; /* tasks of each */
} walk_job;

static void walk_task(void *arg, int task, int worker)
{
    walk_job *walk = arg;
    if (task < walk->n_soft)
        dg_cpu_soft_part(&walk->seen, task, worker);
    else if ((task -= walk->n_soft) < walk->n_logits)
        logits_task(&walk->next, task, worker);
    else
        look_at_row(&walk->now, task - walk->n_logits, worker);
}

static void walk_words(dg_vocab_job *job)
{
    dg_cpu *cpu = job->cpu;
    walk_job walk = {.seen = *job, .now = *job, .next = *job};
    int n_vocab = job->a->table->n_out, n_part = job->soft ? dg_cpu_soft_parts(job) : 0;
    for (int t = 0; t < job->n_tile + 2; t++) {
        walk.seen = walk.now;
        walk.now = walk.next;
        walk.next.first = t * VOCAB_TILE;
        walk.next.n = dg_max(0, dg_min(VOCAB_TILE, n_vocab - walk.next.first));
        walk.next.tile = cpu->tile[t % 2];
        walk.next.kept = cpu->soft_row[t % 2];
        walk.n_soft = t > 1 ? n_part : 0;
        walk.n_logits = job->batch->given ? 0 : dg_ceil_div(walk.next.n, TASK_COLS);
        walk.n_row = t > 0 && t <= job->n_tile ? job->n_all : 0;
        dg_pool_run(cpu->pool, walk.n_soft + walk.n_logits + walk.n_row, walk_task, &walk);
        if (walk.n_row && job->soft)
            dg_cpu_soft_dense(&walk.now);
    }
}

void dg_cpu_vocabulary(dg_backend *be, const dg_vocabulary_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    int n_vocab = a->table->n_out, n_embd = a->table->n_in;
    const dg_batch *batch = cpu->batch;
    int n_all = batch->n_row - batch->n_encode;
    dg_vocab_job job = {.cpu = cpu,
                        .a = a,
                        .batch = batch,
                        .out = &batch->out,
                        .n_all = n_all,
                        .x = a->x,
                        .n_row = n_all,
                        .integer = dg_cpu_integer(cpu, a->table),
                        .soft_integer = dg_cpu_soft_integer(cpu, a->table),
                        .n_draw_tile = dg_ceil_div(n_vocab, DRAW_TILE),
                        .n_tile = dg_ceil_div(n_vocab, VOCAB_TILE)};
    begin_rows(&job);
    if (job.integer && !batch->given) {
        dg_cpu_quantise(cpu, &(dg_cpu_quantised){a->table, cpu->q_rows}, 1, a->x, (size_t)n_embd,
                        n_all, NULL);
        job.q = job.q_all = cpu->q_rows;
    }
    if (job.soft)
        dg_cpu_soft_begin(&job);
    walk_words(&job);
    end_rows(&job);
    dg_cpu_draw(&job);
    if (job.soft)
        dg_cpu_soft_end(&job);
}
