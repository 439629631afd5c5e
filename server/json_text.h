/* Text from the model, as JSON, and answers put together of it. Pure functions. */
#ifndef DG_SERVER_JSON_TEXT_H
#define DG_SERVER_JSON_TEXT_H

#include <jansson.h>
#include "base/buf.h"

/* A JSON string of any bytes: what is not UTF-8 becomes U+FFFD. NULL: out of memory. */
json_t *dg_json_text(const char *bytes, size_t len);
json_t *dg_json_buf(const dg_buf *b);

/* Sets a member, adds to a list; the value is taken. Where memory is out, or a value is NULL
 * because it was out before, the whole is given up and becomes NULL: nobody is sent an answer with
 * a hole in it. json_pack and dg_exchange_reply pass that on. */
void dg_json_put(json_t **object, const char *key, json_t *value);
void dg_json_add(json_t **array, json_t *value);

/* Compact text in memory of the caller's (dg_free); NULL: out of memory, or value is NULL. */
char *dg_json_dump(const json_t *value, size_t *len);

#endif
