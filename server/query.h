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

/* Which part of a list is wanted, as OpenAI's lists are asked for. */
typedef struct dg_page {
    char after[128]; /* the last id of the page before; "": there is none */
    bool ascending;  /* the oldest first; else the newest */
    int limit;       /* things on the page */
} dg_page;

/* `id_size` is the room that an id needs, at most that of `after`; `limit` is what the page has
 * where the query does not say. False: *e says what is wrong. */
bool dg_page_read(dg_page *p, const char *query, size_t id_size, int limit, int max,
                  dg_http_error *e);

#endif
