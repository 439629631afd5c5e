/* The soft embedding: sum_v p_v E[v] for each canvas row, tile by tile of the vocabulary.
 *
 * A row that keeps few words of a tile adds them up one by one. One that keeps many (is_dense) goes
 * through a product: of floats, a chain of the same fused multiply-adds; or in the integer profile
 * of whole numbers, where probabilities get a step for each 32 words (a probability is off by at
 * most 1/254 of the largest of the 32) and the words of the table one for each 32 of them
 * (quantised.h); words that are likely by themselves are added one by one even so. Which way a row
 * goes depends on that row alone. */
#include <string.h>
#include "cpu/cpu_vocabulary.h"

/* Rows of a task at least: the words that they meet are unpacked for each task. */
enum { SOFT_ROWS = 64 };

/* Words of at least this share of the mass so far are never rounded: no more than 256 of a row. */
#define SOFT_PEAK 0x1p-8

/* Columns that one task takes: whole blocks. */
static int soft_cols(const dg_weight *table)
{
    return dg_max(TASK_COLS, (int)dg_dtype_block(table->type));
}

bool dg_cpu_soft_integer(const dg_cpu *cpu, const dg_weight *table)
{
    return dg_cpu_integer(cpu, table) && cpu->k.turn[table->type];
}

static int dense_from(const dg_vocab_job *job)
{
    return dg_max(1, job->n / 16);
}

static dg_qpair *soft_pairs(const dg_vocab_job *job, int k)
{
    size_t n_pair = (size_t)dg_ceil_div(job->n_all, 2);
    return job->cpu->q_soft + (size_t)(k / DG_QSLICE) * n_pair * DG_QBLOCKS;
}

/* The words of the tile that are at least `least`; their sum. */
static double keep_above(const dg_vocab_job *job, int row, float *z, const float *e, float least)
{
    dg_vocab_row *v = &job->cpu->vocab[row];
    uint16_t *kept = job->cpu->kept + (size_t)row * VOCAB_TILE;
    double sum = 0;
    v->n_kept = 0;
    for (int i = 0; i < job->n; i++) {
        bool keep = e[i] >= least && e[i] > 0;
        z[i] = keep ? e[i] : 0;
        kept[v->n_kept] = (uint16_t)i;
        v->n_kept += keep;
    }
    for (int i = 0; i < v->n_kept; i++)
        sum += e[kept[i]];
    return sum;
}

static int exponent_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 23);
}

/* Of the kept words, leaves out the least ones that weigh no more than `most` together, by powers
 * of two; returns what they weigh. */
static double leave_least(const dg_vocab_job *job, int row, float *z, float least, double most)
{
    enum { BINS = 48 };
    dg_vocab_row *v = &job->cpu->vocab[row];
    uint16_t *kept = job->cpu->kept + (size_t)row * VOCAB_TILE;
    double weight[BINS] = {0}, left = 0;
    int lowest = exponent_of(least), n = 0, cut = 0;
    for (int i = 0; i < v->n_kept; i++)
        weight[dg_min(exponent_of(z[kept[i]]) - lowest, BINS - 1)] += z[kept[i]];
    for (; cut < BINS - 1 && left + weight[cut] <= most; cut++)
        left += weight[cut];
    for (int i = 0; i < v->n_kept; i++) {
        bool keep = exponent_of(z[kept[i]]) - lowest >= cut;
        z[kept[i]] = keep ? z[kept[i]] : 0;
        kept[n] = kept[i];
        n += keep;
    }
    v->n_kept = n;
    return left;
}

/* A dense row's words as whole numbers. Those that are likely by themselves are kept out of it, to
 * be added as they are: roundings of many others make up for each other. */
static void quantise_kept(const dg_vocab_job *job, int row, float *z)
{
    const dg_cpu *cpu = job->cpu;
    dg_vocab_row *v = &cpu->vocab[row];
    uint16_t *kept = cpu->kept + (size_t)row * VOCAB_TILE;
    float most = (float)(v->mass * SOFT_PEAK), peak[VOCAB_TILE / 16 + 1];
    for (int i = 0; i < v->n_kept; i++) {
        if (z[kept[i]] < most)
            continue;
        peak[v->n_peak] = z[kept[i]];
        z[kept[i]] = 0;
        kept[v->n_peak++] = kept[i];
    }
    int n_block = dg_ceil_div(job->n, DG_QBLOCK);
    memset(z + job->n, 0, (size_t)(n_block * DG_QBLOCK - job->n) * sizeof *z);
    for (int b = 0; b < n_block; b += DG_QBLOCKS) {
        int k = b * DG_QBLOCK;
        cpu->k.q->quantise(soft_pairs(job, k) + (size_t)(row / 2) * DG_QBLOCKS, row % 2, z + k,
                           dg_min(DG_QBLOCKS, n_block - b));
    }
    for (int i = 0; i < v->n_peak; i++)
        z[kept[i]] = peak[i];
}

/* Words below a quarter of DG_SOFT_DROP of the mass are left out; in the integer profile also the
 * least likely others, while all that was left out weighs less than DG_SOFT_LEFT of the mass. The
 * mass so far is at most the whole, so what holds here holds in the end. */
void dg_cpu_soft_keep(const dg_vocab_job *job, int row, float *z, const float *e, double tile_mass)
{
    const dg_cpu *cpu = job->cpu;
    dg_vocab_row *v = &cpu->vocab[row];
    float least = (float)(v->mass * (job->integer ? DG_SOFT_DROP / 4 : DG_SOFT_DROP));
    double sum = keep_above(job, row, z, e, least);
    v->n_peak = 0;
    if (job->integer && least > 0) {
        v->left_out += tile_mass > sum ? tile_mass - sum : 0;
        double room = v->mass * (0.75 * DG_SOFT_LEFT) - v->left_out;
        if (room > 0)
            v->left_out += leave_least(job, row, z, least, room);
    }
    if (!job->soft_integer || v->n_kept < dense_from(job))
        return;

    quantise_kept(job, row, z);
}

/* Columns of the soft embedding and rows that one task takes. */
typedef struct soft_part {
    const dg_vocab_job *job;
    int first_col, n_col, worker;
    int first_row, end_row;
} soft_part;

static bool is_dense(const dg_vocab_job *job, int row)
{
    return job->cpu->soft[row] && job->cpu->vocab[row].n_kept >= dense_from(job);
}

/* The next run of dense rows from *row on whose results follow each other; 0: none is left. */
static int dense_run(const soft_part *p, int *row)
{
    const dg_vocab_row *v = p->job->cpu->vocab;
    int r = *row;
    while (r < p->end_row && !is_dense(p->job, r))
        r++;
    *row = r;
    int end = r;
    while (end < p->end_row && v[end].seg == v[r].seg && is_dense(p->job, end))
        end++;
    return end - r;
}

/* ---- words as floats ---- */

/* Some columns of a few words of the table, as they are stored or widened. */
typedef struct words {
    const unsigned char *data;
    size_t stride;
    dg_dtype type;
} words;

static const unsigned char *stored_words(const soft_part *p, int word)
{
    const dg_weight *table = p->job->a->table;
    return (const unsigned char *)table->data + (size_t)(p->job->first + word) * table->row_bytes +
           dg_dtype_bytes(table->type, (size_t)p->first_col);
}

static words words_at(const soft_part *p, int word, int n_word)
{
    const dg_weight *table = p->job->a->table;
    if (!dg_dtype_is_block(table->type))
        return (words){stored_words(p, word), table->row_bytes, table->type};
    float *out = p->job->cpu->worker[p->worker].widened;
    for (int i = 0; i < n_word; i++)
        dg_cpu_widen(p->job->cpu, out + (size_t)i * (size_t)p->n_col, table, 0,
                     p->job->first + word + i, p->first_col, p->n_col);
    return (words){(const unsigned char *)out, (size_t)p->n_col * sizeof *out, DG_F32};
}

/* Sorts what rows that are not dense keep, and the likely words of those that are, by words; each
 * word's rows in ascending order. */
static void sort_few(const dg_vocab_job *job)
{
    const dg_cpu *cpu = job->cpu;
    int *start = cpu->few_start;
    memset(start, 0, (VOCAB_TILE + 2) * sizeof *start);
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < job->n_all; r++) {
            if (!cpu->soft[r])
                continue;
            int n = is_dense(job, r) ? cpu->vocab[r].n_peak : cpu->vocab[r].n_kept;
            const float *prob = cpu->tile + (size_t)r * VOCAB_TILE;
            const uint16_t *kept = cpu->kept + (size_t)r * VOCAB_TILE;
            for (int i = 0; i < n; i++) {
                if (pass) /* afterwards start[w + 1] is where word w + 1 begins */
                    cpu->few[start[kept[i] + 1]++] = (dg_few){r, prob[kept[i]]};
                else
                    start[kept[i] + 2]++;
            }
        }
        for (int w = 2; w < VOCAB_TILE + 2 && !pass; w++)
            start[w] += start[w - 1];
    }
}

/* Adds those up, in ascending order of words for each row. */
static void add_few(const soft_part *p)
{
    const dg_cpu *cpu = p->job->cpu;
    for (int w = 0; w < p->job->n; w++) {
        int i = cpu->few_start[w], end = cpu->few_start[w + 1];
        while (i < end && cpu->few[i].row < p->first_row)
            i++;
        if (i == end || cpu->few[i].row >= p->end_row)
            continue;
        words word = words_at(p, w, 1);
        for (; i < end && cpu->few[i].row < p->end_row; i++)
            cpu->k.axpy[word.type](cpu->soft[cpu->few[i].row] + p->first_col, cpu->few[i].p,
                                   word.data, p->n_col);
    }
}

/* Dense rows: runs of neighbours of a canvas meet each panel of words together. */
static void add_many(const soft_part *p, const words *w, int k, int n_k)
{
    const dg_vocab_job *job = p->job;
    const dg_cpu *cpu = job->cpu;
    float *panel = cpu->worker[p->worker].panel;
    for (int c = 0; c < p->n_col; c += DG_PANEL) {
        int width = dg_min(DG_PANEL, p->n_col - c);
        cpu->k.pack_rows[w->type](panel, w->data + (size_t)c * dg_dtype_size(w->type), w->stride,
                                  n_k, width);
        for (int r = p->first_row, n; (n = dense_run(p, &r)) > 0; r += n)
            cpu->k.gemm_panel(&(dg_gemm_args){
                .y = cpu->soft[r] + p->first_col + c,
                .x = cpu->tile + (size_t)r * VOCAB_TILE + k,
                .panel = panel,
                .ldy = (size_t)job->a->table->n_in,
                .ldx = VOCAB_TILE,
                .n_row = n,
                .n_k = n_k,
                .n_col = width,
                .add = true,
            });
    }
}

static void add_floats(const soft_part *p)
{
    const int slice = SLICE_K * TASK_COLS / soft_cols(p->job->a->table); /* that fit when widened */
    for (int k = 0; k < p->job->n; k += slice) {
        int n_k = dg_min(slice, p->job->n - k);
        words w = words_at(p, k, n_k);
        add_many(p, &w, k, n_k);
    }
}

/* ---- words as whole numbers ---- */

/* Dense rows again: 256 words are turned at a time, and their columns packed as those of a weight.
 */
static void add_integer(const soft_part *p)
{
    const dg_vocab_job *job = p->job;
    const dg_cpu *cpu = job->cpu;
    const dg_weight *table = job->a->table;
    const dg_cpu_worker *w = &cpu->worker[p->worker];
    for (int k = 0; k < job->n; k += DG_QSLICE) {
        int n_word = dg_min(DG_QSLICE, job->n - k), n_block = dg_ceil_div(n_word, DG_QBLOCK);
        cpu->k.turn[table->type](
            w->made, &(dg_qturn_args){stored_words(p, k), table->row_bytes, n_word, p->n_col});
        for (int c = 0; c < p->n_col; c += DG_QCOLS) {
            int n_col = dg_min(DG_QCOLS, p->n_col - c);
            cpu->k.q->pack[DG_QMADE](w->qpanel, &(dg_qpack_args){
                                                    .src = w->made + c * DG_QBLOCKS,
                                                    .stride = DG_QBLOCKS * sizeof *w->made,
                                                    .n_block = n_block,
                                                    .n_col = n_col,
                                                    .scale = table->scale ? table->scale[0] : 1,
                                                });
            for (int r = p->first_row, n; (n = dense_run(p, &r)) > 0; r += n)
                cpu->k.q->gemm(&(dg_qgemm_args){
                    .y = cpu->soft[r] + p->first_col + c,
                    .ldy = (size_t)table->n_in,
                    .x = soft_pairs(job, k),
                    .ldx = DG_QBLOCKS,
                    .panel = w->qpanel,
                    .first_row = r,
                    .n_row = n,
                    .n_block = n_block,
                    .n_col = n_col,
                    .add = true,
                });
        }
    }
}

/* ---- the tile ---- */

typedef struct soft_job {
    const dg_vocab_job *job;
    int n_col_task, rows;
} soft_job;

static void soft_task(void *arg, int task, int worker)
{
    const soft_job *all = arg;
    const dg_vocab_job *job = all->job;
    const dg_cpu *cpu = job->cpu;
    const dg_weight *table = job->a->table;
    int cols = soft_cols(table), first_row = task / all->n_col_task * all->rows,
        first_col = task % all->n_col_task * cols;
    const soft_part p = {
        .job = job,
        .first_col = first_col,
        .n_col = dg_min(cols, table->n_in - first_col),
        .worker = worker,
        .first_row = first_row,
        .end_row = dg_min(first_row + all->rows, job->n_all),
    };
    bool dense = false;
    for (int r = p.first_row; r < p.end_row; r++) {
        if (!cpu->soft[r])
            continue;
        dense |= is_dense(job, r);
        float *soft = cpu->soft[r] + first_col, shrink = cpu->vocab[r].shrink;
        if (shrink != 1)
            for (int i = 0; i < p.n_col; i++)
                soft[i] *= shrink;
    }
    if (dense && job->soft_integer)
        add_integer(&p);
    else if (dense)
        add_floats(&p);
    add_few(&p);
}

void dg_cpu_soft_tile(const dg_vocab_job *job)
{
    soft_job all = {.job = job,
                    .n_col_task = dg_ceil_div(job->a->table->n_in, soft_cols(job->a->table))};
    /* a few tasks for each thread, where there are rows enough */
    int parts = dg_ceil_div(4 * dg_pool_threads(job->cpu->pool), all.n_col_task);
    parts = dg_max(1, dg_min(parts, job->n_all / SOFT_ROWS));
    all.rows = (dg_ceil_div(job->n_all, parts) + 1) / 2 * 2;
    sort_few(job);
    dg_pool_run(job->cpu->pool, all.n_col_task * dg_ceil_div(job->n_all, all.rows), soft_task,
                &all);
}

static void scale_soft(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const dg_vocab_job *job = args;
    float *soft = cpu->soft[row];
    if (!soft)
        return;
    float scale = (float)(job->a->soft_scale / cpu->vocab[row].mass);
    for (int i = 0; i < job->a->table->n_in; i++)
        soft[i] *= scale;
}

void dg_cpu_soft_end(const dg_vocab_job *job)
{
    dg_cpu_for_rows(job->cpu, scale_soft, job, (dg_rows){0, job->n_all});
}
