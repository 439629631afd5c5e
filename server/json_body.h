/* JSON from outside, made safe to handle. Pure functions. */
#ifndef DG_SERVER_JSON_BODY_H
#define DG_SERVER_JSON_BODY_H

#include <jansson.h>
#include "errors.h"

/* A tree of JSON takes some fifty times the room of its text: both are bounded before it is
 * built. */
enum { DG_BODY_MAX_VALUES = 1 << 18, DG_BODY_MAX_DEPTH = 128 };

/* Reads JSON as generously as its clients write it: NUL and halves of surrogate pairs in strings
 * become U+FFFD, whole numbers beyond 64 bits real ones. The caller owns it; NULL: *why says what
 * is wrong, where it is not NULL. */
json_t *dg_json_load(const char *text, size_t len, json_error_t *why);

/* Reads a body that must be a JSON object; the caller owns it. NULL: *e says what is wrong. */
json_t *dg_json_body(const char *text, size_t len, dg_http_error *e);

#endif
