/* Requests over HTTP at work: what each of them is, what they share, and the workers. */
#ifndef DG_SERVER_CALLS_H
#define DG_SERVER_CALLS_H

#include <pthread.h>
#include <stdatomic.h>
#include "auth.h"
#include "chat_request.h"
#include "deciding.h"
#include "exchange.h"
#include "fetch.h"
#include "generation.h"
#include "http.h"
#include "log.h"
#include "metrics.h"
#include "models.h"
#include "server_options.h"

typedef struct dg_call dg_call;
typedef struct dg_server dg_server; /* see below; its face is server.h */
typedef struct dg_state dg_state;   /* state.h */
struct dg_batch_runner;

typedef enum dg_turn {
    DG_TURN_NOW,   /* the call holds its model */
    DG_TURN_LATER, /* the call is rung when that is so */
    DG_TURN_NEVER, /* there is none, or it cannot be loaded, or too many wait: *e says it */
    DG_TURN_OVER   /* it asked nothing but that the model goes, and was answered */
} dg_turn;

/* How a call comes to the model that it asks: server/call_model.c. On a worker. */
typedef struct dg_asking {
    dg_turn (*turn)(dg_call *c, dg_http_error *e);
    void (*say_nothing)(dg_call *c); /* to a client that has waited long */
    void (*refuse)(dg_call *c, const dg_http_error *e);
} dg_asking;

/* A route's work. `now` routes are quick and run on the HTTP thread, the others on a worker, with
 * the whole body there. */
typedef struct dg_route {
    const char *method, *path; /* "/v1/models/" stands for all below it, "/" for itself */
    void (*work)(dg_call *c);
    bool now, open;        /* open: without a key */
    bool always;           /* also while the model is loaded */
    bool generates;        /* refused while draining */
    bool keeps;            /* it reads the query and the type of its body */
    const dg_asking *asks; /* a model, which must be there; NULL: none */
    dg_read_fn *read;      /* of a route that generates */
    bool (*prepare)(dg_call *c, json_t *root, dg_http_error *e); /* before that; may be NULL */
    const dg_dialect *dialect;  /* of answers and errors; NULL: errors in OpenAI's form */
    const dg_decide_wire *wire; /* of a route that decides */
} dg_route;

typedef enum dg_cancel { DG_GO_ON, DG_CANCEL_HANGUP, DG_CANCEL_TIMEOUT, DG_CANCEL_STOP } dg_cancel;

/* A request over HTTP, from its first header to the last byte of its answer. */
struct dg_call {
    dg_exchange x; /* first: who has the exchange has the call */
    dg_server *server;
    const dg_head *head;   /* the HTTP thread's alone */
    const dg_route *route; /* NULL: refused before */
    char path[128];        /* printable */
    char method[16];
    int key;                    /* which of the server's, from 1; 0: there are none */
    char *query, *content_type; /* owned; of a route that keeps things. The type may be NULL */
    char cache_salt[16];        /* of its key: no other's prefixes are used */
    char name[65]; /* in the log and for the client: its own, or the one that came with it */
    dg_buf body;
    dg_keeping keeping; /* of a response, with the id that it goes on from, */
    char previous[64];
    char *own_input; /* and its input without what was before, as JSON; owned, NULL: not kept */
    size_t n_own_input;
    size_t n_fetched; /* bytes that did not come with it: pictures, and what it goes on from */
    double arrived;
    char client[DG_ADDRESS_TEXT]; /* for the log */

    /* workers: one at a time */
    bool started;
    dg_hold hold; /* of the model that it asks, while it does */
    json_t *root; /* its body, where that was read to know which model it asks; owned */
    dg_generation *generation;
    dg_deciding *deciding;
    dg_header timing[2]; /* of a decision, with its text */
    char timing_text[80];
    dg_header methods[2]; /* that there are, where another was used */
    char methods_text[40];
    size_t n_admitted;  /* choices that count against max_active */
    dgemma_stats stats; /* for the log */

    /* the server's lock */
    dg_call *prev, *next; /* among the live ones */
    dg_call *next_queued;
    bool accepted, handed_over, queued, busy, again, gone, silent;
    bool awaits; /* a model, with a stream that may be told so */
    dg_cancel cancel;
};

struct dg_server {
    dg_models *models;
    dg_server_options opt; /* strings are owned */
    dg_words keys, origins, image_hosts;
    dg_proxies proxies;              /* whose word is taken on who asks */
    dg_fetcher *fetcher;             /* NULL: no picture is fetched */
    dg_state *state;                 /* NULL: nothing is kept */
    struct dg_batch_runner *batches; /* NULL: there are none */
    dg_constraint_cache *constraints;
    dg_metrics *metrics; /* of HTTP, and of the model where there is one */
    dg_log *log;         /* NULL: there is none */
    dg_http *http;
    dg_http_handler handler;
    bool only_this_machine; /* reached by no other, and without a key */
    double started;
    atomic_size_t body_bytes;
    atomic_bool ready;             /* the models can be asked */
    atomic_bool leaving, draining; /* /health says so; new requests are refused */
    atomic_bool slot_busy;         /* one conversation at a time is saved or restored */
    atomic_bool stopping;

    pthread_mutex_t lock; /* for what follows, and for what names it above */
    pthread_cond_t work, idle;
    dg_call *calls; /* live ones */
    dg_call *first_queued, **last_queued;
    int n_call;
    int n_accepted; /* calls that workers own, or will when their bodies are there */
    size_t n_admitted;
    bool closing; /* no call is handed over any more */
    bool quit;
    pthread_t *workers;
    int n_worker;
    pthread_t watch;
    bool watching;
};

/* Lists it among the live ones. NULL: out of memory. */
dg_call *dg_call_create(dg_server *s);

void dg_call_accept(dg_call *c);                /* it will be handed over once its body is there */
bool dg_call_hand_over(dg_call *c);             /* to the workers; false: they take no more */
void dg_call_cancel(dg_call *c, dg_cancel why); /* the lock is held */
void dg_call_ping(dg_call *c);         /* says something on a silent stream; the lock is held */
void dg_call_end(dg_call *c);          /* the HTTP side is through with it */
void dg_call_forget_input(dg_call *c); /* own_input: nobody will keep it any more */
bool dg_call_admit(dg_call *c, size_t n_choice, dg_http_error *e); /* in place of what it had */
void dg_call_ring(void *call);                                     /* a dgemma_notify_fn */
void *dg_worker_main(void *server);

#endif
