/* A form with files in it, multipart/form-data (RFC 7578), as a client uploads it. Strict, since
 * what is not plain is a mistake or a trick; pure. */
#ifndef DG_SERVER_MULTIPART_H
#define DG_SERVER_MULTIPART_H

#include "errors.h"

enum { DG_PARTS = 16, DG_PART_NAME = 64, DG_FILENAME = 256 };

typedef struct dg_part {
    char name[DG_PART_NAME];
    char filename[DG_FILENAME]; /* its last part, whatever folders stood before it: UTF-8 without
                                   controls. "": it is no file */
    const char *data;           /* in the body */
    size_t len;
} dg_part;

typedef struct dg_multipart {
    dg_part parts[DG_PARTS];
    size_t n;
} dg_multipart;

/* `content_type` is the header, or NULL. False: *e says what is wrong. */
bool dg_multipart_read(dg_multipart *out, const char *content_type, const char *body, size_t len,
                       dg_http_error *e);

/* The part of this name; NULL: there is none. */
const dg_part *dg_multipart_get(const dg_multipart *m, const char *name);

#endif
