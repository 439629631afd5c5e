/* The structs behind the public handles: a loaded model with everything it needs to run, and a
 * piece of work on its way through the queue. One thread runs the passes; the queue is where others
 * meet it. */
#ifndef DG_ENGINE_ENGINE_H
#define DG_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include "dgemma.h"
#include "engine/answer.h"
#include "engine/loader.h"
#include "engine/pictures.h"
#include "engine/request.h"
#include "engine/sampling.h"
#include "text/chat_template.h"

enum {
    DG_MIN_PASS_ROWS = 512, /* room for a commit and a canvas, or for a good piece of a prompt */
    DG_MAX_QUEUE = 1024,    /* requests that may wait */
    DG_MAX_PICTURE_TOKENS = 1120,
    DG_PICTURE_CACHE_BYTES = 256 << 20
};

/* Held by two sides, the caller and the engine; the last one to let go frees it. */
struct dgemma_request {
    atomic_int n_holder;
    dg_stream *stream;
    dg_request_config cfg; /* cfg.prompt is owned here */
    int32_t *prompt;
    dg_pictures pictures;
    dg_answer_config answer; /* answer.stop is owned here */
    dg_sampling sampling;
    double submitted;
    dgemma_request *next; /* in the queue; the engine's lock */
};

struct dgemma_engine {
    dg_loaded loaded;
    dg_chat_revision revision;
    bool foreign_template;
    dg_backend *be;
    dg_model *model;
    dg_vision *vision; /* NULL: the model has no tower */
    dg_picture_cache *pictures;
    dgemma_image_attention image_attention;
    dg_kv_cache *kv;
    dg_forward *forward;
    int n_context, n_thread;
    int think_open, think_close; /* token ids, -1: none */

    pthread_t thread;
    bool thread_started;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t work;
    dgemma_request *first, **last;
    int n_waiting;
    bool quit;
};

dgemma_status dg_engine_open(dgemma_engine **out, const dgemma_engine_options *opt,
                             dgemma_error *err);
void dg_engine_close(dgemma_engine *e);

/* What a model with these options takes and is, without loading it. */
dgemma_status dg_engine_estimate(dgemma_model_info *info, const dgemma_engine_options *opt,
                                 dgemma_error *err);
void dg_engine_describe(const dgemma_engine *e, dgemma_model_info *info);

/* Takes the request into the queue and a hold on it. DGEMMA_E_LIMIT: the queue is full. */
dgemma_status dg_engine_enqueue(dgemma_engine *e, dgemma_request *r, dgemma_error *err);

/* Lets go of a request; the last one frees it. */
void dg_request_release(dgemma_request *r);

#endif
