/* Pictures of a request that are named by address, in whatever dialect: fetched and put in place,
 * as if the client had sent them. */
#ifndef DG_SERVER_PICTURE_LINKS_H
#define DG_SERVER_PICTURE_LINKS_H

#include <jansson.h>
#include "errors.h"
#include "fetch.h"

typedef struct dg_link_limits {
    size_t max_bytes; /* of all pictures together */
    int max_pictures;
    double seconds; /* for all of them */
} dg_link_limits;

/* Changes the body of a request; *n_byte is what it grew by. `f` may be NULL: then addresses stay
 * what they are, and are refused by whoever reads them. False: *e says what is wrong, and nothing
 * is left in *n_byte. */
bool dg_links_follow(json_t *root, dg_fetcher *f, const dg_link_limits *limits, size_t *n_byte,
                     dg_http_error *e);

#endif
