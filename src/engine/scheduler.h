/* Who is in the next pass. One thread runs the model; requests come to it through a queue, from any
 * thread.
 *
 *     admission   in the order of arrival, once the keys and values that the request may come to
 *                 need have been set aside: a request that runs never fails for want of them
 *     the tower   a few pictures of one request, between two passes: whoever has pictures joins
 *                 the passes when all of them were seen
 *     a pass      of each running request what it wants next: a piece of its prompt, a finished
 *                 block to commit, a step of its canvas
 *
 * Requests that only read a canvas have places of their own: many short ones share passes with
 * those that write, and neither waits for the other's places.
 *
 * When not all fit into a pass, those left out come first in the next one. Prompts share what is
 * theirs of a pass, at most half of it while canvases run, so that a long one delays nobody for
 * long. Memory that no running request holds keeps prefixes for requests to come, and is given up
 * when it is needed. What a request says does not depend on its company: no row's result does. */
#ifndef DG_ENGINE_SCHEDULER_H
#define DG_ENGINE_SCHEDULER_H

#include "dgemma.h"
#include "engine/loader.h"
#include "engine/picture_features.h"
#include "engine/prefix_cache.h"
#include "model/forward.h"

enum {
    DG_MIN_PROMPT_ROWS = 256, /* of all prompts in a pass while canvases run, at least */
    DG_MAX_PICTURE_TOKENS = 1120,
    DG_PREFIX_HOST_BYTES = 256 << 20 /* beside the keys and values */
};

typedef struct dg_scheduler dg_scheduler;

/* Everything is borrowed, and used by the scheduler's thread alone from now on. */
typedef struct dg_scheduler_config {
    const dg_loaded *loaded; /* the files that the weights lie in */
    const dg_model *model;
    dg_kv_cache *kv;
    dg_forward *forward;
    dg_picture_cache *pictures; /* NULL: the model does not see */
    size_t feature_bytes;       /* of pictures in running requests, those of one apart */
    dg_image_rule images;
    int max_running, queue_length;
    int max_reads;   /* requests that read a canvas have places of their own, beside max_running */
    size_t kv_bytes; /* the cache's bound */
    bool prefix_cache; /* keep keys and values for requests to come */
    int turn_token;    /* opens a turn; -1: none does */
} dg_scheduler_config;

/* Starts the thread. */
dgemma_status dg_scheduler_create(dg_scheduler **out, const dg_scheduler_config *cfg,
                                  dgemma_error *err);

/* Ends all requests, each with its END, and the thread. */
void dg_scheduler_free(dg_scheduler *s);

/* Takes the request into the queue and a hold on it; any thread. DGEMMA_E_LIMIT: the queue is full,
 * or the request needs more keys and values than there can be. */
dgemma_status dg_scheduler_submit(dg_scheduler *s, dgemma_request *r, dgemma_error *err);

/* Runs fn on the scheduler's thread, between two passes, and waits for its end; any thread but
 * that. `prefix` is NULL where nothing is kept. */
typedef void dg_scheduler_fn(void *arg, dg_prefix_cache *prefix);
void dg_scheduler_call(dg_scheduler *s, dg_scheduler_fn *fn, void *arg);

void dg_scheduler_count(dg_scheduler *s, dgemma_engine_counters *counters); /* any thread */

/* Rows of a pass, for max_running requests of this model. */
int dg_scheduler_rows(const dg_config *cfg, const dg_backend *be, int max_running);

/* Bytes of keys and values for max_running requests of ordinary size, or for one that fills the
 * context. */
size_t dg_scheduler_kv_bytes(const dg_config *cfg, const dg_backend *be, const dg_kv_cache *kv,
                             int n_context, int max_running);

#endif
