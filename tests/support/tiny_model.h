/* A tracked fixture's model, loaded with the parts a test wants to handle by itself. */
#ifndef DG_TEST_TINY_MODEL_H
#define DG_TEST_TINY_MODEL_H

#include "model/forward.h"

typedef struct tiny_options {
    const char *fixture; /* a name below tests/fixtures/golden; NULL: "text" */
    const char *gguf;    /* a GGUF file in its place */
    const char *folder;  /* a checkpoint's in its place */
    float embed_scale;   /* 0: as the model says */
    int n_thread;        /* 0: 1 */
    bool reference;      /* the plain-C kernels */
    bool exact;          /* products on quantised weights in floats */
    dg_dtype kv_type;    /* DG_F32 is 0, so the default */
    int max_row;         /* 0: 64 */
    int max_work;        /* 0: 1 */
    size_t kv_max_bytes;
} tiny_options;

typedef struct tiny_model {
    dg_checkpoint *ck;
    dg_config cfg;
    dg_backend *be;
    dg_model *model;
    dg_kv_cache *kv;
    dg_forward *forward;
} tiny_model;

/* Fails the running test when something does not load. */
void tiny_open(tiny_model *t, const tiny_options *opt);
void tiny_close(tiny_model *t);

/* A test's own memory for one canvas. */
typedef struct tiny_canvas {
    int n;
    int32_t *token, *argmax, *drawn;
    float *soft, *entropy, *logits;
    double *uniform;
} tiny_canvas;

/* n tokens and draws from `seed`. */
void tiny_canvas_init(tiny_canvas *c, const tiny_model *t, int n, unsigned seed);
void tiny_canvas_clear(tiny_canvas *c);
dg_work tiny_canvas_work(tiny_canvas *c, dg_kv_seq *seq, bool first_step);

/* n ids below the vocabulary's size, in memory of the caller's (dg_free). */
int32_t *tiny_ids(const tiny_model *t, int n, unsigned seed);

/* Encodes in chunks; runs one denoising pass and leaves softcapped logits in c->logits. */
void tiny_encode(tiny_model *t, dg_kv_seq *seq, const int32_t *ids, int n, int chunk);
void tiny_denoise(tiny_model *t, dg_kv_seq *seq, tiny_canvas *c, bool first_step);

/* The logits of a canvas behind a prompt, *n of them; for dg_free. */
float *tiny_logits(const tiny_options *options, size_t *n);

#endif
