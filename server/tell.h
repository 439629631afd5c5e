/* What the server says of itself and its models. On the HTTP thread. */
#ifndef DG_SERVER_TELL_H
#define DG_SERVER_TELL_H

#include "calls.h"

void dg_tell_health(dg_call *c);
void dg_tell_models(dg_call *c);
void dg_tell_model(dg_call *c); /* one by its name, in the path */
void dg_tell_adapters(dg_call *c);
void dg_tell_props(dg_call *c);
void dg_tell_metrics(dg_call *c);

/* What a model does, for clients: "loaded", "loading", "unloading" or "unloaded". */
const char *dg_model_state_name(dg_model_state state);

#endif
