/* The soft embedding: sum_v p_v E[v] for each canvas row, tile by tile of the vocabulary.
 *
 * A row that keeps few words of a tile (cpu_keep.c) adds them up one by one. One that keeps many
 * (dg_soft_row.dense) goes through a product: of floats, a chain of the same fused multiply-adds;
 * or in the integer profile of whole numbers, where probabilities get a step for each 32 words (a
 * probability is off by at most 1/254 of the largest of the 32) and the words of the table one for
 * each 32 of them (quantised.h); words that are likely by themselves are added one by one even so.
 * Which way a row goes depends on that row alone. */
#include <string.h>
#include "cpu/cpu_vocabulary.h"

/* Rows of a task at least: the words that they meet are unpacked for each task. */
enum { SOFT_ROWS = 64 };

/* Columns that one task takes: whole blocks. */
static int soft_cols(const dg_weight *table)
{
    return dg_max(TASK_COLS, (int)dg_dtype_block(table->type));
}

bool dg_cpu_soft_integer(const dg_cpu *cpu, const dg_weight *table)
{
    return dg_cpu_integer(cpu, table) && cpu->k.turn[table->type];
}

dg_qpair *dg_cpu_soft_pairs(const dg_vocab_job *job, int k)
{
    size_t n_pair = (size_t)dg_ceil_div(job->n_all, 2);
    return job->cpu->q_soft + (size_t)(k / DG_QSLICE) * n_pair * DG_QBLOCKS;
}

/* The first of n words in ascending order that is not below id. */
static int first_from(const dg_likely *list, int n, int id)
{
    int lo = 0;
    while (lo < n) {
        int mid = lo + (n - lo) / 2;
        if (list[mid].id < id)
            lo = mid + 1;
        else
            n = mid;
    }
    return lo;
}

/* Columns of the soft embedding and rows that one task takes. */
typedef struct soft_part {
    const dg_vocab_job *job;
    int first_col, n_col, worker;
    int first_row, end_row;
    size_t before, bytes; /* of a word: before these columns, and theirs */
} soft_part;

static bool is_dense(const dg_vocab_job *job, int row)
{
    return job->cpu->soft[row] && job->kept[row].dense;
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
           p->before;
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
                .x = job->tile + (size_t)r * VOCAB_TILE + k,
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
                    .x = dg_cpu_soft_pairs(job, k),
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

/* ---- words one by one ---- */

/* Marks the tile's words that some row adds. */
static void mark_words(const soft_part *p, uint16_t *place)
{
    const dg_soft_row *kept = p->job->kept;
    memset(place, 0, VOCAB_TILE * sizeof *place);
    for (int r = p->first_row; r < p->end_row; r++)
        for (int i = 0; p->job->cpu->soft[r] && i < kept[r].n_word; i++)
            place[kept[r].word[i].id] = 1;
}

/* Asks for a word's columns: words are far apart, and each is short. */
static void fetch_word(const soft_part *p, int word)
{
    const unsigned char *at = stored_words(p, word);
    for (size_t i = 0; i < p->bytes + 63; i += 64)
        __builtin_prefetch(at + i);
}

/* Widens marked words from `first` on while there is room for them, and gives them their places.
 * Returns the word behind the last one that was looked at. */
static int widen_words(const soft_part *p, uint16_t *place, float *out, int first)
{
    enum { FETCH = 8 };
    const dg_weight *table = p->job->a->table;
    int n = 0, w = first;
    for (; w < p->job->n && n < SOFT_WORDS; w++) {
        if (w + FETCH < p->job->n && place[w + FETCH])
            fetch_word(p, w + FETCH);
        if (!place[w])
            continue;
        dg_cpu_widen(p->job->cpu, out + (size_t)n * (size_t)p->n_col, table, 0, p->job->first + w,
                     p->first_col, p->n_col);
        place[w] = (uint16_t)n++;
    }
    return w;
}

/* Adds the words [first, end) of the tile that rows keep. */
static void add_widened(const soft_part *p, const uint16_t *place, const float *widened, int first,
                        int end)
{
    const dg_vocab_job *job = p->job;
    for (int r = p->first_row; r < p->end_row; r++) {
        const dg_soft_row *s = &job->kept[r];
        if (!job->cpu->soft[r] || !s->n_word)
            continue;
        int i = first_from(s->word, s->n_word, first), stop = i;
        dg_likely at[SOFT_FEW];
        for (; stop < s->n_word && s->word[stop].id < end; stop++)
            at[stop - i] = (dg_likely){place[s->word[stop].id], s->word[stop].p};
        job->cpu->k.add_rows(job->cpu->soft[r] + p->first_col, at, stop - i, widened, p->n_col);
    }
}

/* Each row's words in ascending order; rows that keep the same word share its widening. */
static void add_few(const soft_part *p)
{
    const dg_cpu_worker *w = &p->job->cpu->worker[p->worker];
    mark_words(p, w->slot);
    for (int first = 0; first < p->job->n;) {
        int end = widen_words(p, w->slot, w->words, first);
        add_widened(p, w->slot, w->words, first, end);
        first = end;
    }
}

/* ---- the tile ---- */

/* Rows that are multiplied by what their maximum grew by. */
static void shrink_rows(const soft_part *p, bool dense)
{
    for (int r = p->first_row; r < p->end_row; r++) {
        const dg_soft_row *s = &p->job->kept[r];
        float *soft = p->job->cpu->soft[r];
        if (!soft || s->shrink == 1 || s->dense != dense)
            continue;
        for (int i = 0; i < p->n_col; i++)
            soft[p->first_col + i] *= s->shrink;
    }
}

/* How the tile is cut into tasks. Rows are parted where there are more threads than columns: the
 * words that they meet are unpacked for each part. */
typedef struct soft_cut {
    const dg_vocab_job *job;
    int n_col_task, rows;
} soft_cut;

static soft_cut cut_tile(const dg_vocab_job *job)
{
    soft_cut cut = {.job = job,
                    .n_col_task = dg_ceil_div(job->a->table->n_in, soft_cols(job->a->table))};
    int parts = dg_pool_threads(job->cpu->pool) / (2 * cut.n_col_task);
    parts = dg_max(1, dg_min(parts, job->n_all / SOFT_ROWS));
    cut.rows = (dg_ceil_div(job->n_all, parts) + 1) / 2 * 2;
    return cut;
}

static int count_parts(const soft_cut *cut)
{
    return cut->n_col_task * dg_ceil_div(cut->job->n_all, cut->rows);
}

static soft_part part_of(const soft_cut *cut, int task, int worker)
{
    const dg_weight *table = cut->job->a->table;
    int cols = soft_cols(table), first_row = task / cut->n_col_task * cut->rows,
        first_col = task % cut->n_col_task * cols, n_col = dg_min(cols, table->n_in - first_col);
    return (soft_part){
        .job = cut->job,
        .first_col = first_col,
        .n_col = n_col,
        .before = dg_dtype_bytes(table->type, (size_t)first_col),
        .bytes = dg_dtype_bytes(table->type, (size_t)n_col),
        .worker = worker,
        .first_row = first_row,
        .end_row = dg_min(first_row + cut->rows, cut->job->n_all),
    };
}

int dg_cpu_soft_parts(const dg_vocab_job *job)
{
    soft_cut cut = cut_tile(job);
    return count_parts(&cut);
}

void dg_cpu_soft_part(const dg_vocab_job *job, int task, int worker)
{
    soft_cut cut = cut_tile(job);
    soft_part p = part_of(&cut, task, worker);
    shrink_rows(&p, false);
    add_few(&p);
}

static void dense_task(void *arg, int task, int worker)
{
    soft_part p = part_of(arg, task, worker);
    int row = p.first_row;
    if (!dense_run(&p, &row))
        return;
    shrink_rows(&p, true);
    if (p.job->soft_integer)
        add_integer(&p);
    else
        add_floats(&p);
}

void dg_cpu_soft_dense(const dg_vocab_job *job)
{
    bool some = false;
    for (int r = 0; r < job->n_all; r++)
        some |= is_dense(job, r);
    if (!some)
        return;
    soft_cut cut = cut_tile(job);
    /* nothing else is at work: a few tasks for each thread, where there are rows enough */
    int parts = dg_ceil_div(4 * dg_pool_threads(job->cpu->pool), cut.n_col_task);
    parts = dg_max(1, dg_min(parts, job->n_all / SOFT_ROWS));
    cut.rows = (dg_ceil_div(job->n_all, parts) + 1) / 2 * 2;
    dg_pool_run(job->cpu->pool, count_parts(&cut), dense_task, &cut);
}

/* ---- the end ---- */

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
