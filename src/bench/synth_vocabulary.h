/* The vocabulary of a synthetic model's file: made up, or taken from a tokenizer. A made one has as
 * many pieces as the true one and about as many merges, so that loading and encoding cost the same:
 * markers and bytes at their places, then characters, syllables, and words of two and three. */
#ifndef DG_BENCH_SYNTH_VOCABULARY_H
#define DG_BENCH_SYNTH_VOCABULARY_H

#include "format/gguf_write.h"
#include "text/tokenizer.h"

typedef struct dg_synth_vocabulary {
    size_t n;
    dg_piece *piece; /* [n] by id */
    int64_t *type;   /* [n] as tokenizer.ggml.token_type has them */
    char *text;      /* of made pieces */
    int bos, eos, pad;
} dg_synth_vocabulary;

/* Both leave *v empty on failure. n is at least 640: markers, bytes, characters, syllables. */
dgemma_status dg_synth_vocabulary_make(dg_synth_vocabulary *v, int n, dgemma_error *err);

/* The tokenizer outlives *v. */
dgemma_status dg_synth_vocabulary_of(dg_synth_vocabulary *v, const dg_tokenizer *t,
                                     dgemma_error *err);
void dg_synth_vocabulary_clear(dg_synth_vocabulary *v);

/* Puts the tokenizer's keys, with the merges that follow from the pieces, and a chat template. */
dgemma_status dg_synth_vocabulary_put(const dg_synth_vocabulary *v, dg_gguf_writer *w,
                                      dgemma_error *err);

/* A template of revision A for conversations in text. */
extern const char dg_synth_template[];

#endif
