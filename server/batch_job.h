/* One line of a batch at work: what answers it over HTTP, on an exchange that nobody sends. One
 * thread at a time. */
#ifndef DG_SERVER_BATCH_JOB_H
#define DG_SERVER_BATCH_JOB_H

#include "batch_line.h"
#include "models.h"

typedef struct dg_batch_setup {
    dgemma_engine *engine;
    dg_metrics *metrics;
    const char *model_name;
    double decision_temperature;
    const char *cache_salt; /* NULL: everybody's prefixes are used */
    dg_chat_limits limits;
    dgemma_notify_fn *notify;
    void *notify_user;
} dg_batch_setup;

typedef struct dg_batch_job dg_batch_job;

struct dg_batch_job {
    dg_batch_job *next; /* for who has several */
    char *custom_id;    /* owned */
    char mark[DG_BATCH_MARK + 1];
    uint64_t number; /* of the line */
    dg_hold hold;    /* of the model that it asks, where there are several */
    size_t n_answer; /* that the engine was asked for */
    size_t n_token;  /* of those, when it is done */
    bool refused;    /* before the engine had all of it */
    dg_http_error why;
    dg_exchange x; /* in the end: status and body */

    dg_generation *generation; /* or */
    dg_deciding *deciding;
    dg_header timing[2];
    char timing_text[80];
};

/* Asks what the line says, and takes its body, and the hold on the model that it asks if there is
 * one. A line that is refused, for a reason of its own or for this one (NULL: none), is done in no
 * time. NULL: out of memory. */
dg_batch_job *dg_batch_job_start(const dg_batch_setup *cfg, dg_batch_line *line, uint64_t number,
                                 dg_hold *hold, const dg_http_error *why);

/* Takes what came. True: its answer is there. */
bool dg_batch_job_done(dg_batch_job *j);

/* Whether it was refused for want of room that others have: it can be asked again later. */
bool dg_batch_job_can_wait(const dg_batch_job *j);

void dg_batch_job_cancel(dg_batch_job *j); /* done() will be true soon */
void dg_batch_job_free(dg_batch_job *j);   /* only when it is done. NULL is fine */

#endif
