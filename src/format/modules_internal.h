/* Shared by the files of modules: modules_find.c finds matrices in a folder's parts, modules.c
 * makes tensors of them. */
#ifndef DG_FORMAT_MODULES_INTERNAL_H
#define DG_FORMAT_MODULES_INTERNAL_H

#include "format/modules.h"

/* One matrix that was found, before experts are put together. */
typedef struct found {
    char *target;     /* the tensor it belongs to */
    int expert;       /* -1: it is all of it */
    const char *name; /* in errors */
    dg_form form;
    dg_dtype type;
    int64_t n_out, n_in;
    dg_piece piece;
} found;

typedef struct joining {
    dg_modules *m;
    const dg_tensor *part;
    size_t n;
    const dg_quantisation *q;
    const char *where;
    dgemma_error *err;
    found *found;
    size_t n_found;
    char *name_end;
} joining;

/* ---- modules_find.c ---- */

/* Adds what `t` holds the values of, if it does, to j->found. */
dgemma_status dg_modules_find(joining *j, const dg_tensor *t);

/* All experts of a layer are in it, and become as many matrices. */
bool dg_modules_is_stacked(const dg_tensor *t);

#endif
