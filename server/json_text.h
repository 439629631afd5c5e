/* Text from the model, as JSON. Pure functions. */
#ifndef DG_SERVER_JSON_TEXT_H
#define DG_SERVER_JSON_TEXT_H

#include <jansson.h>

/* A JSON string of any bytes: what is not UTF-8 becomes U+FFFD. NULL: out of memory. */
json_t *dg_json_text(const char *bytes, size_t len);

/* Compact text in memory of the caller's (dg_free); NULL: out of memory, or value is NULL. */
char *dg_json_dump(const json_t *value, size_t *len);

#endif
