/* A canvas that is read, not written: what it begins as, what of it stays, and which words' chances
 * are wanted at each of its positions. One request's own; one thread at a time. */
#ifndef DG_ENGINE_READ_H
#define DG_ENGINE_READ_H

#include "backend/backend.h"
#include "dgemma.h"
#include "model/config.h"

typedef struct dg_read {
    int n;           /* positions */
    int32_t *token;  /* [n] -1: noise */
    uint8_t *pinned; /* [n] */
    int n_id;
    int32_t *id;    /* [n, n_id] as they were asked for, the same at each position */
    float *logprob; /* [n, n_id] log-probabilities of those, once it was taken */
    bool among;     /* they are all there is */

    dg_asked asked;  /* what the vocabulary end is to answer: */
    int32_t *sorted; /* its ids, ascending, each once, */
    int32_t *slot;   /* [n_id] and where among them each of ours is */
} dg_read;

/* *out belongs to the caller (dg_read_free). DGEMMA_E_ARG: no canvas, too wide a one, words that
 * are not in the vocabulary; DGEMMA_E_LIMIT: more than DGEMMA_MAX_READ_IDS. */
dgemma_status dg_read_create(dg_read **out, const dgemma_read *r, const dg_config *model,
                             dgemma_error *err);
void dg_read_free(dg_read *r); /* NULL is fine */

/* Puts what is given into the noise of a canvas that begins, what is pinned into every one. */
void dg_read_begin(const dg_read *r, int32_t *canvas);
void dg_read_hold(const dg_read *r, int32_t *canvas);

/* What a step found out about each position; logprob, of the arg-max, may be NULL. */
typedef struct dg_read_step {
    const double *uniform;
    float *entropy, *logprob;
    int32_t *argmax, *drawn;
    bool cold; /* the most likely is drawn */
} dg_read_step;

/* The pass has answered. Where the ids are all there is, puts what is true among them in the place
 * of what it found. The soft embedding, which it has made too, stays that of all words. */
void dg_read_narrow(dg_read *r, const dg_read_step *s);

/* The last pass has answered, and was narrowed: fills logprob. */
void dg_read_take(dg_read *r);

#endif
