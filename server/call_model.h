/* The model that a call asks: which one it is, and waiting until it is loaded. On a worker. */
#ifndef DG_SERVER_CALL_MODEL_H
#define DG_SERVER_CALL_MODEL_H

#include "calls.h"

extern const dg_asking dg_asks_model;

/* An error as the answer, or where a stream was opened already, as its end. */
void dg_call_refuse(dg_call *c, const dg_http_error *e);

/* The model by the `model` of the query, for routes without a body; the first one without that.
 * NULL: it was refused. */
dg_model *dg_call_queried(dg_call *c);

#endif
