/* A vocabulary end by itself, with random words and rows: shared by the tests of what it finds. */
#ifndef DG_TESTS_VOCABULARY_BENCH_H
#define DG_TESTS_VOCABULARY_BENCH_H

#include "backend/backend.h"

/* More than two tiles of 4,096 words, an odd number of words, an odd number of columns. */
enum { N_VOCAB = 9001, N_EMBD = 37, N_ROW = 13 };

typedef struct bench {
    dg_backend *be;
    dg_weight table;
    float *embed; /* [N_VOCAB, N_EMBD] */
    uint16_t *stored;
    float x[N_ROW * N_EMBD];
    float temperature[N_ROW];
    double uniform[N_ROW];
    const dg_vocabulary_options *options[N_ROW];
    /* results */
    float soft[N_ROW * N_EMBD], entropy[N_ROW];
    int32_t argmax[N_ROW], drawn[N_ROW];
    float *logits;
    float logprob[N_ROW], top_logprob[N_ROW * DG_MAX_TOP];
    int32_t top_id[N_ROW * DG_MAX_TOP];
} bench;

/* flat, mixed, a handful of words */
static const float strengths[] = {0.02f, 1, 4};

float normal(uint32_t i, uint32_t stream);

/* For the vocabulary's end alone. */
dg_backend *open_backend(unsigned flags, int n_thread, int n_row, int n_embd);

/* strength scales the logits: weak ones are flat, strong ones leave most words out of the soft
 * embedding. */
void bench_open(bench *b, bool reference, int n_thread, float strength);
void bench_close(bench *b);
dgemma_status bench_run(bench *b, int first, int n, float softcap, const float *given,
                        dgemma_error *err);

#endif
