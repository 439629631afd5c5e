/* A decision over HTTP at work: its questions, the engine's answers as they come, and the wire that
 * writes them out. One thread at a time. */
#ifndef DG_SERVER_DECIDING_H
#define DG_SERVER_DECIDING_H

#include "decide_body.h"
#include "exchange.h"

typedef struct dg_deciding dg_deciding;

typedef struct dg_deciding_setup {
    dgemma_engine *engine;
    const char *model; /* its name for clients */
    const char *cache_salt;
    double temperature;
    int max_images;
    const dg_decide_wire *wire;
    dg_exchange *to;
    dg_header *headers;       /* [2] of the answer; live as long as the exchange, with */
    char *timing;             /* [80] */
    dgemma_notify_fn *notify; /* called on the engine's thread when there is something to do */
    void *notify_user;
} dg_deciding_setup;

/* Takes the root in any case. False: *e says why. */
bool dg_deciding_start(dg_deciding **out, const dg_deciding_setup *cfg, json_t *root,
                       dg_http_error *e);

/* Takes what came; true: all of it is there, and the client waits for the answer, */
bool dg_deciding_done(dg_deciding *g);

/* which this gives. */
void dg_deciding_answer(dg_deciding *g);

/* The client is told why, or is not there; what runs ends when it is freed. */
void dg_deciding_cancel(dg_deciding *g, const dg_http_error *why);

void dg_deciding_stats(const dg_deciding *g, dgemma_stats *stats);
void dg_deciding_free(dg_deciding *g); /* NULL is fine */

#endif
