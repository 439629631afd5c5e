/* Shared by the files of the vocabulary end: cpu_vocabulary.c walks the words, cpu_soft.c adds them
 * up, cpu_draw.c picks one. */
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
    int n_kept;      /* words of the current tile that count for it */
    int n_peak;      /* of those, words that a dense row adds by themselves */
    double left_out; /* mass of the words that do not */
    dg_draw_kind draw;
    dg_filter filter;
} dg_vocab_row;

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
    const float *x;    /* [n_row, n_embd] the rows of this walk */
    int n_row;
    const dg_qpair *q;     /* the same rows quantised; NULL: the products are of floats */
    const dg_qpair *q_all; /* all canvas rows, quantised */
    int n_draw_tile, n_tile;
} dg_vocab_job;

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

/* ---- cpu_soft.c ---- */

/* Dense rows of this table are added up in whole numbers. */
bool dg_cpu_soft_integer(const dg_cpu *cpu, const dg_weight *table);

/* Takes a row's words of the current tile in: e^(z - max) for those that matter into z, which has
 * room up to a multiple of 32, and 0 for the others. tile_mass is the sum of e. */
void dg_cpu_soft_keep(const dg_vocab_job *job, int row, float *z, const float *e, double tile_mass);

/* Adds the tile's words to the soft embeddings; and at the end, what the sums are multiplied by. */
void dg_cpu_soft_tile(const dg_vocab_job *job);
void dg_cpu_soft_end(const dg_vocab_job *job);

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
void dg_cpu_filter_count(const dg_vocab_job *job, int row, float *y, int n);

/* Finds where the cut lies; all words are counted. */
void dg_cpu_filter_cut(const dg_vocab_job *job, int row);

/* -infinity for the words that do not stay. In ascending order of words until all were seen once;
 * after that in any order, with the quota at 0. */
void dg_cpu_filter_mask(dg_vocab_row *v, float *y, int first, int n);

#endif
