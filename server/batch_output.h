/* The file that answers of a batch are appended to, and read back from when it goes on.
 *
 * A line is one write. One that a kill cut short has no end, and is taken off when the file is
 * opened again; so every line in it is whole, and none is there twice. The file is given to the
 * disk (fsync) when a second has passed since the last time, and when it is closed: a machine that
 * loses its power loses the answers of a second, which are then computed again. */
#ifndef DG_SERVER_BATCH_OUTPUT_H
#define DG_SERVER_BATCH_OUTPUT_H

#include <sys/stat.h>
#include "batch_ids.h"
#include "base/error.h"

typedef struct dg_batch_output {
    int fd; /* -1: it is not open */
    const char *path;
    uint64_t size;
    struct stat file; /* which one it is */
    bool unsynced;
    double synced; /* when */
} dg_batch_output;

/* Opens it, or makes it, and adds what it has answers to. The path is borrowed. Refused are what is
 * no file, what another process writes to, and files with anything in them but answers. */
dgemma_status dg_batch_output_open(dg_batch_output *o, const char *path, dg_batch_ids *ids,
                                   dgemma_error *err);

/* Opens one for errors, or makes it; what is in it stays until it is emptied. */
dgemma_status dg_batch_output_create(dg_batch_output *o, const char *path, dgemma_error *err);
dgemma_status dg_batch_output_empty(dg_batch_output *o, dgemma_error *err);

/* A line. When it fails, nothing of it is in the file. */
dgemma_status dg_batch_output_append(dg_batch_output *o, const char *line, size_t len,
                                     dgemma_error *err);

/* Gives it to the disk when a second has passed; to be called now and then. */
dgemma_status dg_batch_output_sync(dg_batch_output *o, dgemma_error *err);

/* One that has nothing in it, and was made for errors, is removed. */
dgemma_status dg_batch_output_close(dg_batch_output *o, bool remove_empty, dgemma_error *err);

#endif
