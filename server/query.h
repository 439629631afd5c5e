/* The query of a target, "after=x&limit=20". Pure functions. */
#ifndef DG_SERVER_QUERY_H
#define DG_SERVER_QUERY_H

#include "errors.h"

/* The value of a name, without its escapes, into `out`; "" when it is not there. False: *e says
 * that it has an escape that is none, or is longer than fits. */
bool dg_query_text(const char *query, const char *name, char *out, size_t size, dg_http_error *e);

/* The same for a number from min to max; *out is kept when it is not there. */
bool dg_query_int(const char *query, const char *name, int min, int max, int *out,
                  dg_http_error *e);

#endif
