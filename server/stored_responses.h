/* Responses that are kept: `store`, `previous_response_id`, and what can be asked of them later. A
 * response is kept with its own input alone; a conversation is the chain of them, put together when
 * one goes on from it. */
#ifndef DG_SERVER_STORED_RESPONSES_H
#define DG_SERVER_STORED_RESPONSES_H

#include "state.h"

/* At the beginning: those whose time is up go, and the others' bytes are counted. */
dgemma_status dg_stored_mend(dg_state *s, dgemma_error *err);

/* Before a request for a response is read: puts the conversation that it goes on from in front of
 * its input, and remembers in the call what is to be kept. False: *e says what is wrong. */
bool dg_stored_prepare(dg_call *c, json_t *root, dg_http_error *e);

/* routes */
void dg_stored_get(dg_call *c); /* /v1/responses/ID and /v1/responses/ID/input_items */
void dg_stored_delete(dg_call *c);

#endif
