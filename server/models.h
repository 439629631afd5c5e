/* The models of a server: which there are, which of them are loaded, who uses one and who waits for
 * one. A server has one model that is always there and goes by any name, or several, which are
 * loaded when they are asked for (server/model_loader.c) and told apart by their names.
 *
 * Who works with a model holds it: it is not unloaded meanwhile. All functions: any thread. */
#ifndef DG_SERVER_MODELS_H
#define DG_SERVER_MODELS_H

#include <pthread.h>
#include <stdatomic.h>
#include "chat_request.h"
#include "gpu.h"
#include "log.h"
#include "metrics.h"
#include "model_spec.h"

typedef struct dg_model dg_model;
typedef struct dg_models dg_models;

/* ---- holding ---- */

typedef enum dg_hold_state {
    DG_HOLD_NONE,
    DG_HOLD_WAITS, /* for the model to be loaded */
    DG_HOLD_HAS,   /* it is there, and stays */
    DG_HOLD_FAILED /* it could not be loaded */
} dg_hold_state;

/* All zeros: holds nothing. It stays where it is while it waits. */
typedef struct dg_hold {
    dg_model *model;
    dg_hold_state state;  /* the models' lock */
    struct dg_hold *next; /* that waits for the same model */
    void (*ring)(void *user);
    void *user;
} dg_hold;

/* Asks for a model. Where it has to wait, `ring` is called once when that is over. */
dg_hold_state dg_hold_take(dg_hold *h, dg_model *m, void (*ring)(void *user), void *user);

/* How it stands; FAILED: *e says why. */
dg_hold_state dg_hold_look(const dg_hold *h, dg_http_error *e);

/* Gives back what it has, or waits no longer: `ring` is not called after this. */
void dg_hold_drop(dg_hold *h);

/* A model that is loaded, without waiting; false: it is not. */
bool dg_hold_try(dg_hold *h, dg_model *m);

/* ---- models ---- */

typedef enum dg_model_state {
    DG_MODEL_ABSENT,
    DG_MODEL_LOADING,
    DG_MODEL_LOADED,
    DG_MODEL_LEAVING
} dg_model_state;

typedef struct dg_model_counts {
    uint64_t n_loaded, n_failed, n_unloaded;
    double load_seconds;
} dg_model_counts;

struct dg_model {
    dg_models *models;
    const char *name;          /* for clients */
    const dg_model_spec *spec; /* NULL: of the only one */
    dg_metrics *metrics;       /* whether it is loaded or not */

    /* for who holds it */
    dgemma_engine *engine;
    dgemma_model_info info; /* under the lock for who does not: that of its files' headers */
    dg_chat_limits limits;
    dg_gpu *gpu; /* NULL: nothing is known of it, or the CPU computes */

    /* the models' lock */
    dg_model_state state;
    int n_use;      /* holds */
    bool gives_way; /* another needs its room: who comes now waits behind that one */
    bool broken;    /* its files are no longer whole: the next one who comes has it loaded again */
    bool looked_at; /* its files' headers, before others are unloaded for it */
    bool preloads;  /* it is waited for, whether anybody asks or not */
    bool wanted;    /* it is in the queue of those to load, */
    dg_model *next_wanted;
    dg_hold *first_waiting, **last_waiting;
    double last_used, since; /* the server's clock; since: when it was loaded */
    double keep_seconds;     /* without a request before it goes; below 0: for ever */
    size_t bytes;            /* that it takes */
    dg_model_counts counts;
    dg_http_error error; /* of the last attempt to load it */
};

typedef struct dg_models_options {
    int max_loaded;                        /* 0: any number */
    size_t max_bytes;                      /* of those that are loaded; 0: any */
    void (*opened)(dgemma_engine *engine); /* before anybody uses it; may be NULL */
    void (*closing)(dgemma_engine *engine);
} dg_models_options;

struct dg_models {
    dg_model *list;
    size_t n;
    dg_model *first; /* meant where none is named */
    bool many;       /* they are told apart by name */
    const dg_model_specs *specs;
    dg_models_options opt;
    dg_chat_limits limits; /* what they have in common */
    dg_log *log;

    pthread_mutex_t lock;        /* for what follows; the server's lock may be taken under it */
    pthread_cond_t bell, loaded; /* the loader has something to do; a preload is over */
    dg_model *first_wanted, **last_wanted;
    pthread_t loader;
    bool has_loader;
    atomic_bool stops;
};

/* One model, which dg_models_attach brings; metrics and limits are borrowed. NULL: out of memory.
 */
dg_models *dg_models_create_one(const char *name, dg_metrics *metrics,
                                const dg_chat_limits *limits);
dgemma_status dg_models_attach(dg_models *ms, dgemma_engine *engine, dgemma_error *err);

/* Several; the specs are borrowed. Nothing is loaded yet. */
dgemma_status dg_models_create(dg_models **out, const dg_model_specs *specs,
                               const dg_models_options *opt, const dg_chat_limits *limits,
                               dgemma_error *err);

/* Loads those that are to be there from the start, and from then on whatever is asked for. */
dgemma_status dg_models_start(dg_models *ms, dg_log *log, dgemma_error *err);

/* When nobody holds any of them. Engines of several models are closed. */
void dg_models_stop(dg_models *ms);
void dg_models_free(dg_models *ms); /* NULL is fine */

/* The model that a name means, with the adapter if it is one's (else NULL): names, aliases,
 * adapters, BASE:ADAPTER, each also with ":latest" behind. NULL or "": the first one. NULL: none.
 */
dg_model *dg_models_find(const dg_models *ms, const char *name, const char **adapter);

/* The model that the body of a request asks for by its `model`, which then has the model's own
 * name, or its adapter's. NULL: *e says that there is none, and which there are. */
dg_model *dg_models_choose(const dg_models *ms, json_t *root, dg_http_error *e);

/* Says that there is none of this name, and which there are; false. */
bool dg_models_unknown(const dg_models *ms, const char *name, dg_http_error *e);

/* From now on it stays for so long after its last request; below 0: for ever. */
void dg_model_keep(dg_model *m, double seconds);

/* What is known of it whether anybody holds it or not. */
typedef struct dg_model_view {
    dg_model_state state;
    dgemma_model_info info; /* without strings that live with the engine */
    size_t bytes;
    double expires; /* seconds from now; below 0: never, or it is not loaded */
    dg_model_counts counts;
    int n_waiting;
} dg_model_view;
void dg_model_look(dg_model *m, dg_model_view *view);

/* ---- for the loader; the lock is held ---- */

bool dg_model_fits(const dg_model *m);    /* beside those that are pinned */
void dg_model_want(dg_model *m);          /* it comes into the queue, if it is not there */
void dg_model_keep_as_usual(dg_model *m); /* until somebody says otherwise */

void dg_model_attach(dg_model *m, dgemma_engine *engine);  /* it is loaded */
void dg_model_grant(dg_model *m);                          /* to all who wait */
void dg_model_refuse(dg_model *m, const dg_http_error *e); /* them */
void *dg_models_load_main(void *models);

#endif
