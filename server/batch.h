/* `dgemma batch`: a file of requests, answered with what answers them over HTTP, without a server.
 *
 * The file of answers is all that is remembered: who runs the same batch again answers what it does
 * not have yet. What failed is tried again, so the file of errors is made anew by each run. */
#ifndef DG_SERVER_BATCH_H
#define DG_SERVER_BATCH_H

#include "models.h"

enum { DG_BATCH_LINES = 1000000 };

typedef struct dg_batch_progress {
    uint64_t n_line;   /* of the file, without empty ones; 0: nobody knows */
    uint64_t n_known;  /* lines whose answers were there */
    uint64_t n_answer; /* given since */
    uint64_t n_failed;
    uint64_t n_foreign; /* answers in the file that no line asks for; known at the end */
    uint64_t n_token;   /* of answers that were given */
    uint64_t n_byte;    /* of both files */
    size_t n_running;   /* answers that run or wait for the engine */
} dg_batch_progress;

typedef struct dg_batch_options {
    const char *in, *out, *errors; /* in "-": standard input */
    const char *model_name;
    int n_ahead;                 /* answers that run or wait for the engine */
    size_t max_line_bytes;       /* of a request */
    int max_choices, max_images; /* of one request */
    double decision_temperature;
    bool (*tick)(void *user, const dg_batch_progress *p); /* several times a second; false: stop */
    bool (*may_ask)(void *user); /* before each line; false: not now. NULL: always */
    void *tick_user;             /* of both */
    const char *cache_salt;      /* whose prefixes are used; NULL: everybody's */
    dg_metrics *metrics;         /* what counts its answers, borrowed; NULL: nothing does */
    dg_models *models; /* several that lines choose from, instead of an engine; NULL: none */
} dg_batch_options;

typedef struct dg_batch dg_batch;

/* Opens the files and reads the answers that are there. Strings are borrowed. */
dgemma_status dg_batch_open(dg_batch **out, const dg_batch_options *opt, dgemma_error *err);

/* Answers what there is to answer; the engine is NULL where there are models. DGEMMA_E_CANCELLED:
 * tick said so. A line that fails is no failure: *sum counts them. */
dgemma_status dg_batch_run(dg_batch *b, dgemma_engine *engine, dg_batch_progress *sum,
                           dgemma_error *err);

/* Before the engine is closed. NULL is fine. */
void dg_batch_free(dg_batch *b);

#endif
