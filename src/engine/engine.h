/* The struct behind the public handle: a loaded model with everything it needs to run. */
#ifndef DG_ENGINE_ENGINE_H
#define DG_ENGINE_ENGINE_H

#include <pthread.h>
#include "constraint/tokens.h"
#include "dgemma.h"
#include "engine/adapter_set.h"
#include "engine/loader.h"
#include "engine/picture_features.h"
#include "engine/scheduler.h"
#include "text/chat_template.h"

enum {
    DG_DEFAULT_RUNNING = 16,
    DG_DEFAULT_QUEUE = 1024,
    DG_MAX_RUNNING = 1024,
    DG_MAX_READS = 64, /* that run together, beside those that write */
    DG_PICTURE_CACHE_BYTES = 256 << 20,
    DG_PICTURE_BYTES = 1 << 30 /* of prompts; about 500 pictures of the usual size */
};

struct dgemma_engine {
    dg_loaded loaded;
    uint64_t mark; /* of its weights and its config: no other model has it */
    dg_chat_revision revision;
    bool foreign_template;
    dg_backend *be;
    dg_model *model;
    dg_adapter_set adapters;
    dg_vision *vision; /* NULL: the model has no tower */
    dg_picture_cache *pictures;
    dg_picture_memory *picture_memory;
    dgemma_image_attention image_attention;
    dg_kv_cache *kv;
    dg_forward *forward;
    dg_scheduler *scheduler; /* has the use of all the above */
    int n_context, n_thread, max_running;
    size_t kv_bytes;           /* room for keys and values */
    pthread_mutex_t trie_lock; /* for the next: made for the first request with a constraint */
    dg_token_trie *trie;
    int think_open, think_close, think_newline; /* token ids, -1: none */
    dg_tokens think_head;                       /* what stands between the first and a thought */
    bool no_self_conditioning; /* of requests to come; set by tests that measure what it brings */
};

dgemma_status dg_engine_open(dgemma_engine **out, const dgemma_engine_options *opt,
                             dgemma_error *err);
void dg_engine_close(dgemma_engine *e);

/* The vocabulary as a tree, the engine's own. DGEMMA_E_UNSUPPORTED: the model has no tokenizer, or
 * what it runs on cannot answer what a constraint asks. Any thread. */
dgemma_status dg_engine_trie(dgemma_engine *e, const dg_token_trie **out, dgemma_error *err);

/* What the options ask to compute on; *n_thread is what the CPU would use. */
dgemma_status dg_engine_backend(dg_backend **out, int *n_thread, const dgemma_engine_options *opt,
                                dgemma_error *err);

/* What a model with these options takes and is, without loading it. */
dgemma_status dg_engine_estimate(dgemma_model_info *info, const dgemma_engine_options *opt,
                                 dgemma_error *err);
void dg_engine_describe(const dgemma_engine *e, dgemma_model_info *info);

#endif
