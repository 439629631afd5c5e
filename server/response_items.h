/* The input of a response as a list of items, which can be kept and asked for. Pure functions. */
#ifndef DG_SERVER_RESPONSE_ITEMS_H
#define DG_SERVER_RESPONSE_ITEMS_H

#include <jansson.h>

/* Each item has its type and an id, made of `name` where it came without, and no field that nobody
 * reads; what is no item stays as it is, for the reader of the request to refuse. The values are
 * shared with the input. The caller owns it; NULL: out of memory. */
json_t *dg_response_items(const json_t *input, const char *name);

#endif
