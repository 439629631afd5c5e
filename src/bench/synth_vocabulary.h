/* The vocabulary of a synthetic model's file, made up. It has as many pieces as the true one and
 * about as many merges, so that loading and encoding cost the same: markers and bytes at their
 * places, then characters, syllables, and words of two and three. */
#ifndef DG_BENCH_SYNTH_VOCABULARY_H
#define DG_BENCH_SYNTH_VOCABULARY_H

#include "text/tokenizer.h"

typedef struct dg_synth_vocabulary {
    size_t n;
    dg_piece *piece; /* [n] by id */
    bool *special;   /* [n] */
    char *text;      /* of the pieces */
} dg_synth_vocabulary;

/* Leaves *v empty on failure. n is at least 640: markers, bytes, characters, syllables. */
dgemma_status dg_synth_vocabulary_make(dg_synth_vocabulary *v, int n, dgemma_error *err);
void dg_synth_vocabulary_clear(dg_synth_vocabulary *v);

/* The same as a tokenizer, the caller's to free. */
dgemma_status dg_synth_tokenizer(dg_tokenizer **out, int n, dgemma_error *err);

/* A template of revision A for conversations in text. */
extern const char dg_synth_template[];

#endif
