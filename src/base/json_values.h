/* A JSON text before somebody builds a tree of it: a tree takes up to 75 times the text, so that a
 * limit on bytes alone says little. */
#ifndef DG_BASE_JSON_VALUES_H
#define DG_BASE_JSON_VALUES_H

#include <stddef.h>
#include "base/error.h"

/* Of documents beside the weights, and of headers: a quantised folder of the published shape has
 * 0.4 million in all, a tree of as many as these takes at most 250 MB. */
enum { DG_DOCUMENT_VALUES = 1 << 20 };

/* At least as many as there can be: one, and one after each [ { and comma outside of strings. */
size_t dg_json_values(const char *json, size_t len);

/* DGEMMA_E_LIMIT where there may be more than `most`; DGEMMA_E_FORMAT where the text begins with a
 * byte order mark, which parsers call a strange character that nobody sees. */
dgemma_status dg_json_check(const char *json, size_t len, size_t most, const char *where,
                            dgemma_error *err);

#endif
