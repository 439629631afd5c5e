/* What came with a call, read. */
#ifndef DG_SERVER_CALL_BODY_H
#define DG_SERVER_CALL_BODY_H

#include "calls.h"

/* The body, which must be a JSON object; the caller owns it. NULL: *e says what is wrong. */
json_t *dg_call_body(dg_call *c, dg_http_error *e);

/* Room for so many bytes more, among those of all bodies: they are counted, and given back with the
 * call's n_fetched or n_own_input. False: *e says that there is none. */
bool dg_call_hold(dg_call *c, size_t n, dg_http_error *e);

/* It was read: what it holds is somewhere else by now, and others may have its room. */
void dg_call_forget_body(dg_call *c);

/* The body as a request for answers, with its pictures fetched. False: *e says what is wrong. */
bool dg_call_chat(dg_call *c, dg_read_fn *read, dg_chat *out, dg_http_error *e);

#endif
