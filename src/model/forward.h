/* One pass of the model over a ragged batch: of each sequence some tokens to encode (prompt or a
 * finished block), and after them its canvas to denoise. Both may come in one pass, so a block's
 * commit can share it with the next block's first step. */
#ifndef DG_MODEL_FORWARD_H
#define DG_MODEL_FORWARD_H

#include "model/kv_cache.h"
#include "model/model.h"

typedef struct dg_forward dg_forward;

/* One sequence's part of a pass. */
typedef struct dg_work {
    dg_kv_seq *seq;
    const dg_adapter_use *adapter; /* [n_adapter] of the model's, that change its rows */
    int n_adapter;

    /* encoded at positions seq->n_token …; written into the cache */
    const int32_t *token;
    int n_token;
    const dg_span
        *block; /* [n_token] image blocks, NULL: text only; never reaching past the tokens given */
    const int32_t *feature; /* [n_token] row of the features that stands for the token, or -1 */
    const float *features;  /* image features in the backend's memory; NULL: none */

    /* the canvas, at the positions right behind; n_canvas 0: none */
    const int32_t *canvas;
    int n_canvas;
    float *soft; /* [n_canvas, n_embd] backend memory. In: the last step's soft embedding. Out: this
                    step's */
    bool first_step; /* soft does not hold anything yet */
    bool last_step;  /* nobody needs this step's soft embedding: it may be made or not */
    float temperature;
    const double *uniform;                /* [n_canvas] */
    const dg_vocabulary_options *options; /* or NULL */
    float *entropy;                       /* [n_canvas] results */
    int32_t *argmax, *drawn;
    float *logprob; /* [n_canvas]; NULL: no log-probabilities. As in dg_vocabulary_args: */
    int32_t *top_id;
    float *top_logprob; /* [n_canvas, DG_MAX_TOP] */
    int broken_row;     /* of the canvas: the first that is not a number; -1: all are */
} dg_work;

/* What golden runs and `dgemma verify` look at; ordinary passes leave it zero. All memory is the
 * host's. */
typedef struct dg_taps {
    float *encoded; /* [encoded rows, n_embd]: the last layer run in full, after the final norm */
    float *logits;  /* [canvas rows, n_vocab] */
    /* The residual stream [n_row, n_embd] before layer 0, 1, …, n_layer - 1 and, as n_layer, after
     * the last. Encoded rows come first. */
    void (*hidden)(void *arg, int layer, const float *x, int n_row);
    void *hidden_arg;
} dg_taps;

typedef struct dg_pass {
    dg_work *work;
    int n_work;
    dg_image_rule images;
    const dg_taps *taps;          /* or NULL */
    void (*meanwhile)(void *arg); /* called while a device computes, or not at all; or NULL */
    void *meanwhile_arg;
} dg_pass;

/* Room for passes of up to max_row rows, max_work sequences. The model and the cache are borrowed.
 */
dgemma_status dg_forward_create(dg_forward **out, const dg_model *m, dg_kv_cache *kv, int max_row,
                                int max_work, dgemma_error *err);
void dg_forward_free(dg_forward *f);

/* Bytes that dg_forward_create takes, the backend's plan included. */
size_t dg_forward_bytes(const dg_config *cfg, dg_backend *be, const dg_kv_cache *kv, int max_row,
                        int max_work);

int dg_forward_max_row(const dg_forward *f);

/* Runs the pass. On success each sequence has grown by its encoded tokens; on failure none has. A
 * canvas that came out broken is its owner's trouble (dg_work_status): the pass fails with it only
 * when nobody else is in it. */
dgemma_status dg_forward_run(dg_forward *f, const dg_pass *pass, dgemma_error *err);

/* What came of one part of a pass that did not fail. DGEMMA_E_INTERNAL: the model computed
 * something that is not a number. */
dgemma_status dg_work_status(const dg_work *w, dgemma_error *err);

/* What the vocabulary end makes of processed logits that are known from elsewhere (teacher
 * forcing). */
typedef struct dg_reading {
    const float *logits;   /* [n, n_vocab] host memory, already divided by the temperature */
    const double *uniform; /* [n] */
    int n;
    float *soft; /* [n, n_embd] backend memory: the soft embedding that the next step would see */
    float *entropy;
    int32_t *argmax, *drawn;
} dg_reading;
dgemma_status dg_forward_read(dg_forward *f, const dg_reading *r, dgemma_error *err);

#endif
