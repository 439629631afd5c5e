/* What a request said, byte for byte, to compare with what another said. Progress, times and what
 * the prefix cache had are left out: these may differ. */
#ifndef DG_TEST_RECORD_EVENTS_H
#define DG_TEST_RECORD_EVENTS_H

#include "base/buf.h"
#include "dgemma.h"

typedef struct record {
    dg_buf bytes;
    size_t before_end; /* bytes in front of END */
    int32_t ids[4096]; /* tokens of the blocks */
    size_t n_ids;
    dgemma_stats stats;
} record;

/* The model of most tests, with two threads. Fails the running test when it does not open. */
dgemma_engine *record_engine(dgemma_engine_options opt);

/* Fails the running test when the request is refused. */
dgemma_request *record_submit(dgemma_engine *e, const dgemma_request_options *opt);

/* A request that settles never and ends when somebody says so. */
dgemma_request_options record_endless(const dgemma_engine *e);

/* Takes all events and frees the request. Cleared by record_clear. */
void record_listen(dgemma_request *r, record *rec);
void record_clear(record *rec);

/* Fails the running test, saying `what` and which, where the two differ. */
void record_assert_same(const record *a, const record *b, const char *what, int which);

#endif
