/* A model that is loaded to be measured: sequences of any length without encoding them, steps, a
 * block, a prompt. */
#ifndef DG_BENCH_BENCH_SESSION_H
#define DG_BENCH_BENCH_SESSION_H

#include "bench/bench_guided.h"
#include "bench/bench_stages.h"
#include "dgemma_tools.h"
#include "diffusion/canvas.h"
#include "engine/loader.h"
#include "model/forward.h"
#include "model/synthetic.h"

/* Canvases for which a sequence has room behind its context. */
enum { DG_BENCH_CANVASES = 4 };

/* What is measured: a file's model or a synthetic one. Stays while backends come and go. */
typedef struct dg_bench_model {
    dg_loaded loaded;
    dg_synthetic *synthetic;
    const dg_config *cfg;
    const dg_checkpoint *ck;
} dg_bench_model;

dgemma_status dg_bench_model_open(dg_bench_model *m, const dgemma_bench_options *opt,
                                  dgemma_error *err);
void dg_bench_model_close(dg_bench_model *m);

typedef struct dg_bench_session {
    const dg_bench_model *from;
    const dg_config *cfg;
    dg_backend *be;     /* timed: bench_stages.h */
    dg_backend *device; /* the one inside */
    bool is_cpu;
    int n_thread;
    dg_dtype kv_type;
    dg_model *model;
    dg_kv_cache *kv;
    double load_seconds;
    size_t loaded_room; /* of a device, when the weights were there and nothing else */
    int prompt;         /* tokens of the longest one: set it before the first place */
    int answer_steps;   /* canvases go on as an answer's in so many steps; 0: random words */
    float temperature;  /* of random words; 0.6 to begin with, as in the middle of an answer */

    /* for one place to measure at */
    dg_forward *forward;
    int batch, context;
    uint32_t n_pass;
    size_t kv_limit;
    dg_kv_seq source; /* one page of encoded tokens, which all others are copies of */
    dg_kv_seq *seq;   /* [batch] */
    dg_work *work;
    int32_t *token; /* canvases, arg-maxes, draws, and a prompt */
    size_t n_token;
    float *entropy;
    double *uniform;
    dg_bench_guided *guided; /* borrowed: steps are held to a constraint; or NULL */
    dg_canvas *canvas;       /* [batch] of answers; NULL: random words */
    dg_draws draws;
} dg_bench_session;

/* engine: as dgemma_engine_open would take it. On failure *s is empty. */
dgemma_status dg_bench_session_open(dg_bench_session *s, const dg_bench_model *m,
                                    const dgemma_engine_options *engine, dgemma_error *err);
void dg_bench_session_close(dg_bench_session *s);

/* `batch` sequences of `context` tokens each, room for passes of `rows`; what was there before is
 * forgotten. DGEMMA_E_NOMEM, DGEMMA_E_LIMIT: memory is too small. */
dgemma_status dg_bench_place(dg_bench_session *s, int context, int batch, int rows,
                             dgemma_error *err);

/* One denoise step of all canvases. */
dgemma_status dg_bench_step(dg_bench_session *s, dgemma_error *err);

/* Of the rows of the last step: their mean entropy, and the share of them whose soft embedding was
 * gathered, below 0 where the backend does not say. */
double dg_bench_entropy(const dg_bench_session *s);
double dg_bench_gathered(const dg_bench_session *s);

/* Commits the canvases, behind whose tokens the next ones' first step is in the same pass: rows for
 * two canvases of each sequence. The context is longer by a canvas afterwards; DG_BENCH_CANVASES -
 * 1 times at most. */
dgemma_status dg_bench_commit(dg_bench_session *s, dgemma_error *err);

/* A prompt of n tokens, encoded in pieces of `chunk` into a sequence that is empty. */
dgemma_status dg_bench_prefill(dg_bench_session *s, int n, int chunk, dgemma_error *err);

/* Bytes that passes of the present place take. */
size_t dg_bench_work_bytes(const dg_bench_session *s);

/* What a device holds beyond weights, keys and values; 0: nobody knows. */
size_t dg_bench_above_bytes(const dg_bench_session *s);

#endif
