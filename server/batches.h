/* /v1/batches: files of requests that are answered when nobody else wants to be. The rows and their
 * states are here, the work is batch_runner.c's. */
#ifndef DG_SERVER_BATCHES_H
#define DG_SERVER_BATCHES_H

#include "state.h"

/* In SQL: a batch that is not over. */
#define DG_BATCH_IS_OPEN "status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"

/* What of a row its runner needs. */
typedef struct dg_batch_row {
    char id[DG_STATE_ID], owner[DG_OWNER], status[16];
    char endpoint[32];
    char input[DG_STATE_ID], output[DG_STATE_ID], errors[DG_STATE_ID]; /* files' names */
    int64_t expires;
} dg_batch_row;

/* At the beginning, behind the files: what open batches have written is counted. */
dgemma_status dg_batches_mend(dg_state *s, dgemma_error *err);

/* Bytes in the files of one that is open. They are counted among the state's, and whoever works at
 * it keeps that true. */
uint64_t dg_batches_written(const dg_state *s, const dg_batch_row *b);

/* It could not be worked at: others are next for a while, each time a longer one. The lock is held.
 */
dgemma_status dg_batches_rest(dg_state *s, const char *id, dgemma_error *err);

/* The next to be worked at: those that only have to be ended, then others than `last_owner`'s, then
 * the oldest. It is the state's `running` from now on. False: there is none. The lock is held. */
bool dg_batches_next(dg_state *s, const char *last_owner, dg_batch_row *out, dgemma_error *err);

/* Whether one of another owner's waits. The lock is held. */
bool dg_batches_others(dg_state *s, const char *owner);

/* Its state changes: "in_progress", "finalizing" or "failed", and its time is noted. `faults` is
 * JSON text or NULL. The lock is held. */
dgemma_status dg_batches_set(dg_state *s, const char *id, const char *status, const char *faults,
                             dgemma_error *err);
dgemma_status dg_batches_count(dg_state *s, const char *id, uint64_t total, uint64_t completed,
                               uint64_t failed, dgemma_error *err);

/* What its two files hold. */
typedef struct dg_batch_size {
    int64_t n_answer, answer_bytes, n_error, error_bytes;
} dg_batch_size;

/* Reads them, and gives them to the disk; nobody writes to them any more. It takes as long as they
 * are large: without the lock. */
dgemma_status dg_batches_measure(const dg_state *s, const dg_batch_row *b, dg_batch_size *out,
                                 dgemma_error *err);

/* It is over, as "completed", "cancelled" or "expired": its two files become files like others.
 * `counted` are the bytes of theirs that were counted. Nothing happens where it is over already.
 * The lock is held. */
dgemma_status dg_batches_finish(dg_state *s, const dg_batch_row *b, const char *status,
                                const dg_batch_size *size, uint64_t counted, dgemma_error *err);

/* routes */
void dg_batches_create(dg_call *c);
void dg_batches_list(dg_call *c);
void dg_batches_get(dg_call *c);
void dg_batches_cancel(dg_call *c); /* /v1/batches/ID/cancel */

#endif
