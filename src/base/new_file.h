/* A file that nobody sees half written: it is called PATH.partial until all of it is on the disk,
 * and then gets its name at once.
 *
 *     dg_new_file f;
 *     dg_new_file_open(&f, path, replace);
 *     dg_new_file_write(&f, data, n);
 *     st = dg_new_file_close(&f, &err);
 *
 * The first failure sticks and is told by dg_new_file_close. */
#ifndef DG_BASE_NEW_FILE_H
#define DG_BASE_NEW_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/error.h"

typedef struct dg_new_file {
    FILE *file;
    char *path, *partial; /* the name that it gets, and the one that it has */
    bool replace;         /* else it gets its name only where nothing has it */
    dgemma_error error;
} dg_new_file;

/* The name while it is written, in memory of the caller's; NULL: out of memory. */
char *dg_new_file_partial(const char *path);

/* Whether a file of so many bytes may be written: DGEMMA_E_ARG where it is there already and not to
 * be replaced, or is no plain file; DGEMMA_E_IO where the disk has no room for it. */
dgemma_status dg_new_file_check(const char *path, uint64_t bytes, bool replace, dgemma_error *err);

/* Two that write the same file are a failure of the second, and so is a link, a pipe or a device
 * called PATH.partial. */
void dg_new_file_open(dg_new_file *f, const char *path, bool replace);

void dg_new_file_write(dg_new_file *f, const void *data, size_t n);

/* The file is not wanted after all, for this reason: closing it fails. */
void dg_new_file_fail(dg_new_file *f, dgemma_status status, const char *what);

/* Gives the file its name and frees everything; after a failure it is removed. A {0} file that was
 * never opened is fine. */
dgemma_status dg_new_file_close(dg_new_file *f, dgemma_error *err);

#endif
