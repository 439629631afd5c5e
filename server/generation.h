/* A chat request at work: its choices in the engine, their events as they come, and the dialect
 * that writes them out. One thread at a time. */
#ifndef DG_SERVER_GENERATION_H
#define DG_SERVER_GENERATION_H

#include "adapter_request.h"
#include "chat_request.h"
#include "exchange.h"
#include "metrics.h"

/* One answer. */
typedef struct dg_choice {
    dgemma_request *request; /* NULL once it has ended */
    int index;
    uint64_t seed;
    double submitted; /* when it was */
    dg_buf text, thinking;
    json_t *calls;      /* [{id, type, function}] */
    json_t *logprobs;   /* entries that were not sent yet */
    size_t n_text;      /* bytes sent with logprobs, for text_offset */
    dgemma_stats stats; /* once it has ended */
} dg_choice;

typedef struct dg_generation dg_generation;

/* How far a stream has come, for dialects that number what they send; those have one choice. */
typedef struct dg_stream_place {
    int n_event, n_item;
    dgemma_event_kind open; /* TEXT, THINKING: such an item is being written; else none is */
    size_t from;            /* where the text of that item begins in the choice's */
    json_t *items;          /* owned; those that are complete, if the dialect needs them again */
} dg_stream_place;

/* How a dialect writes. `begin` and `event` are called for streams only; `event` with END as the
 * last of each choice. `end` comes when all have ended, `fail` instead of it when the stream was
 * open already. */
typedef struct dg_dialect {
    const char *content_type; /* of streams */
    void (*begin)(dg_generation *g);
    void (*event)(dg_generation *g, dg_choice *c, const dgemma_event *event);
    void (*end)(dg_generation *g);
    void (*fail)(dg_generation *g, const dg_http_error *e);
    void (*ping)(dg_generation *g); /* says nothing on a stream, so that nobody takes it for dead */
    json_t *(*error)(const dg_http_error *e); /* the body of an answer that is none */
} dg_dialect;

/* Where an answer is kept once it is whole, by dialects that speak of that. False: it is not, and
 * *e says why. */
typedef bool dg_keep_fn(void *user, const json_t *answer, dg_http_error *e);

typedef struct dg_keeping {
    dg_keep_fn *keep; /* NULL: it is not to be kept */
    void *user;
    bool insists;         /* an answer that cannot be kept is none */
    const char *previous; /* the kept one that it goes on from; NULL: none */
} dg_keeping;

typedef struct dg_generation_setup {
    dgemma_engine *engine;
    dg_metrics *metrics;
    const char *model; /* its name for clients */
    const dg_dialect *dialect;
    dg_exchange *to;
    dg_keeping keeping;
    dgemma_notify_fn *notify; /* called on the engine's thread when there is something to do */
    void *notify_user;
} dg_generation_setup;

struct dg_generation {
    dg_generation_setup cfg;
    dg_chat chat; /* owned */
    dg_adapter_choice adapters;
    long long created;
    double started;
    dgemma_prompt **prompts; /* [n_prompt] each for as many choices */
    size_t n_prompt;
    dg_choice *choices;
    size_t n_choice, n_ended;
    dg_stream_place place;
    bool over; /* the client was told everything, or is not there to be told */
};

/* Submits; takes *chat in any case. False: *e says why; *out, when it is not NULL, has requests
 * that were submitted before and are being cancelled: advance() until it returns true. */
bool dg_generation_start(dg_generation **out, const dg_generation_setup *cfg, dg_chat *chat,
                         dg_http_error *e);

/* Takes every event that is there and writes what follows from it. True: all requests have ended,
 * and only the answer's end is missing. */
bool dg_generation_advance(dg_generation *g);

/* Writes that, unless the client was told of a failure. */
void dg_generation_end(dg_generation *g);

/* Ends what runs; the client is told why (NULL: there is nobody to tell). advance() goes on until
 * it returns true. */
void dg_generation_cancel(dg_generation *g, const dg_http_error *why);

/* For a stream that has been silent: lets the dialect say something without meaning. */
void dg_generation_ping(dg_generation *g);

/* Only after advance() returned true. NULL is fine. */
void dg_generation_free(dg_generation *g);

/* A token's text for JSON; its bytes, which need not be UTF-8, are added to a list if there is one.
 * NULL: out of memory. */
json_t *dg_token_text(const dgemma_engine *engine, int32_t id, json_t **bytes);

/* Sums over the choices; `end` means nothing. */
void dg_generation_stats(const dg_generation *g, dgemma_stats *sum);

#endif
