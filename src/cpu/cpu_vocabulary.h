/* Shared by the files of the vocabulary end: cpu_vocabulary.c walks the words, cpu_keep.c chooses
 * those that are added up, cpu_soft.c adds where they are many, cpu_draw.c picks one. */
#ifndef DG_CPU_CPU_VOCABULARY_H
#define DG_CPU_CPU_VOCABULARY_H

#include "cpu/cpu_internal.h"

/* How a row's word is drawn. */
typedef enum dg_draw_kind {
    DG_DRAW_PLAIN,   /* from p */
    DG_DRAW_ARGMAX,  /* no need to */
    DG_DRAW_BROKEN,  /* p is not a number */
    DG_DRAW_HEATED,  /* from softmax(z / temperature) */
    DG_DRAW_FILTERED /* from some words of it */
} dg_draw_kind;

/* Which words a filter leaves, in terms of y = z / temperature. */
typedef struct dg_filter {
    bool seen;    /* a tile came */
    int64_t top;  /* the highest bin, that of the arg-max */
    double sure;  /* words from here on stay */
    double edge;  /* of those in [edge, sure) as many as the quota says, by id: up to last_id */
    double least; /* words below never stay (min_p) */
    double quota; /* not used up yet */
    int last_id;
    bool alone; /* nothing but the arg-max */
} dg_filter;

/* What is known of a row so far. Sums are relative to max: mass = sum e^(z - max), slope = sum (z -
 * max) e^(z - max). */
typedef struct dg_vocab_row {
    const dg_segment *seg;
    float max;
    int argmax;
    double mass, slope;
    float shrink;    /* the soft embedding must be multiplied by this before the tile is added */
    int ahead_id;    /* a word whose logit is known before it is met; 0: none */
    float ahead;     /* its logit */
    double left_out; /* mass of the words that do not count */
    dg_draw_kind draw;
    dg_filter filter;
} dg_vocab_row;

/* A row's words of a tile that count for its soft embedding, in ascending order; id: in the tile. A
 * dense row's go through a product, and here are only those that are to be added beside it. */
typedef struct dg_soft_row {
    float shrink;
    bool dense;
    int n_word;
    dg_likely word[SOFT_FEW];
} dg_soft_row;

typedef struct dg_vocab_job {
    dg_cpu *cpu;
    const dg_vocabulary_args *a;
    const dg_batch *batch;
    const dg_findings *out;
    int n_all;         /* canvas rows */
    bool soft;         /* some row has a soft embedding */
    bool integer;      /* the table's products are of whole numbers */
    bool soft_integer; /* those of the soft embedding too */
    int first, n;      /* the current tile: words [first, first + n) */
    float *tile;       /* [n_row][VOCAB_TILE] its logits */
    dg_soft_row *kept; /* [n_row] */
    const float *x;    /* [n_row, n_embd] the rows of this walk */
    int n_row;
    const dg_qpair *q;     /* the same rows quantised; NULL: the products are of floats */
    const dg_qpair *q_all; /* all canvas rows, quantised */
    int n_draw_tile, n_tile;
} dg_vocab_job;

/* A row's words of the current tile: e^(z - max), what they weigh, the largest of each draw tile.
 */
typedef struct dg_vocab_tile {
    const float *e;
    double mass;
    float most[VOCAB_TILE / DRAW_TILE];
} dg_vocab_tile;

static inline const dg_vocabulary_options *dg_vocab_options(const dg_vocab_job *job, int row)
{
    return job->cpu->vocab[row].seg->options;
}

/* ---- cpu_vocabulary.c ---- */

/* Logits of the walk's rows for the current tile, raw, into the tile; nothing where they are given.
 */
void dg_cpu_tile_logits(dg_vocab_job *job);

/* Processes the logits that lie in z for words [first, first + n), or copies the given ones there.
 */
void dg_cpu_finish_logits(const dg_vocab_job *job, float *z, int row, int first, int n,
                          bool copy_out);

/* Both for one row and a part of the vocabulary, to the bits that the walk saw. */
void dg_cpu_word_logits(const dg_vocab_job *job, float *z, int row, int first, int n, int worker);

/* The first index of an ascending list, whose entries begin with an id, that is not below id. */
int dg_cpu_lower_bound(const void *list, size_t stride, int n, int32_t id);

/* Takes a tile's words into the n_top likeliest so far; z are their logits. */
void dg_cpu_take_top(int32_t *id, float *at, int n_top, const float *z, int first, int n);

/* ---- cpu_asked.c ---- */

/* Before the walk; a tile of it, whose processed logits are z; when the row's total is known. */
void dg_cpu_asked_begin(const dg_vocab_job *job, int row);
void dg_cpu_asked_tile(const dg_vocab_job *job, int row, const float *z, int worker);
void dg_cpu_asked_end(const dg_vocab_job *job, int row);

/* ---- cpu_soft.c ---- */

/* Dense rows of this table are added up in whole numbers. */
bool dg_cpu_soft_integer(const dg_cpu *cpu, const dg_weight *table);

/* Where the words from k on of the tile lie as whole numbers: pairs of rows, DG_QBLOCKS each. */
dg_qpair *dg_cpu_soft_pairs(const dg_vocab_job *job, int k);

/* Adds the tile's words to the soft embeddings, in two stages: of dense rows first, on the pool,
 * then of all rows, in so many parts. At the end, divides by the mass. */
void dg_cpu_soft_dense(const dg_vocab_job *job);
int dg_cpu_soft_parts(const dg_vocab_job *job);
void dg_cpu_soft_part(const dg_vocab_job *job, int part, int worker);
void dg_cpu_soft_end(const dg_vocab_job *job);

/* ---- cpu_keep.c ---- */

/* Before the walk. */
void dg_cpu_soft_begin(const dg_vocab_job *job);

/* Chooses a row's words of the current tile. For dense rows, e^(z - max) of those that matter and 0
 * for the others take the logits' place, which has room up to a multiple of 32. */
void dg_cpu_soft_keep(const dg_vocab_job *job, int row, const dg_vocab_tile *t, int worker);

/* ---- cpu_draw.c ---- */

/* Before the walk: how each row draws. */
void dg_cpu_draw_begin(dg_vocab_job *job);

/* A tile of a row that does not draw plainly; z are its processed logits, v->max is up to date. */
void dg_cpu_draw_tile(const dg_vocab_job *job, int row, const float *z, int worker);

/* After it: walks the filtered rows once more, then draws. */
void dg_cpu_draw(dg_vocab_job *job);

/* z to y = z / temperature; and the arg-max's. */
void dg_cpu_heat(const dg_vocab_job *job, float *y, const float *z, int row, int n);
float dg_cpu_heated_max(const dg_vocab_job *job, int row);

/* e^(y - shift) in place, and the mass of each draw tile from word `first` on, which begins one. */
void dg_cpu_draw_masses(const dg_vocab_job *job, int row, float *y, int first, int n, float shift);

/* ---- cpu_filter.c ---- */

/* Counts a tile's words by rank; y is used up. */
void dg_cpu_filter_count(const dg_vocab_job *job, int row, float *y, int n, int worker);

/* Finds where the cut lies; all words are counted. */
void dg_cpu_filter_cut(const dg_vocab_job *job, int row);

/* -infinity for the words that do not stay. In ascending order of words until all were seen once;
 * after that in any order, with the quota at 0. */
void dg_cpu_filter_mask(dg_vocab_row *v, float *y, int first, int n);

#endif
