/* Shared by the two files of the vocabulary end: cpu_vocabulary.c walks the words, cpu_draw.c picks
 * one. */
#ifndef DG_CPU_CPU_VOCABULARY_H
#define DG_CPU_CPU_VOCABULARY_H

#include "cpu/cpu_internal.h"

/* What is known of a row so far. Sums are relative to max: mass = sum e^(z - max), slope = sum (z -
 * max) e^(z - max). */
typedef struct dg_vocab_row {
    float max;
    int argmax;
    double mass, slope;
    float shrink; /* the soft embedding must be multiplied by this before the tile is added */
    int n_kept;   /* words of the current tile that count for it */
} dg_vocab_row;

typedef struct dg_vocab_job {
    dg_cpu *cpu;
    const dg_vocabulary_args *a;
    int first, n; /* the current tile: words [first, first + n) */
    int n_draw_tile, n_tile;
} dg_vocab_job;

/* The processed logits of one row for words [first, first + n), to the bits that the walk saw. */
void dg_cpu_word_logits(const dg_vocab_job *job, float *z, int row, int first, int n, int worker);

/* Entropy, arg-max and draw of every row, once the walk is over. */
void dg_cpu_draw(dg_vocab_job *job);

#endif
