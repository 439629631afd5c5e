/* Ollama's `keep_alive`: how long a model stays after a request. Pure functions. */
#ifndef DG_SERVER_KEEP_ALIVE_H
#define DG_SERVER_KEEP_ALIVE_H

#include "errors.h"

typedef struct dg_keep_alive {
    bool given;
    double seconds; /* below 0: for ever */
} dg_keep_alive;

/* A number of seconds, or text like "5m", "1h30m", "-1s". False: *e says that it is neither. */
bool dg_keep_alive_read(dg_keep_alive *out, const json_t *root, dg_http_error *e);

/* Whether the request asks nothing, but that its model goes: no messages, no prompt, and 0. */
bool dg_keep_alive_is_farewell(const dg_keep_alive *k, const json_t *root);

#endif
