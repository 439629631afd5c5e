/* /v1/files: what clients upload for batches, and what batches wrote. */
#ifndef DG_SERVER_FILES_H
#define DG_SERVER_FILES_H

#include "calls.h"

/* At the beginning: files that the database does not know, rows whose files are gone, and both
 * where their time is up. */
dgemma_status dg_files_mend(dg_state *s, dgemma_error *err);

/* Whether an owner has this one. False: *e says that there is none. The lock is held. */
bool dg_files_is_there(dg_state *s, const char *owner, const char *id, dg_http_error *e);

/* A file that was written into the folder under the name `id` becomes one like others, with the
 * purpose "batch_output". The lock is held. */
dgemma_status dg_files_adopt(dg_state *s, const char *owner, const char *id, const char *filename,
                             int64_t bytes, dgemma_error *err);

/* routes */
void dg_files_upload(dg_call *c);
void dg_files_list(dg_call *c);
void dg_files_get(dg_call *c); /* /v1/files/ID and /v1/files/ID/content */
void dg_files_delete(dg_call *c);

#endif
