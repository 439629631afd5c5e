/* A body in chunks, as it comes over the wire: where its data is, and where it ends. Strict like
 * the reader of heads, and pure. Extensions and trailers are read
 * over, and must be well formed. */
#ifndef DG_SERVER_CHUNKS_H
#define DG_SERVER_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum dg_chunks_state {
    DG_CHUNKS_SIZE,           /* its digits */
    DG_CHUNKS_EXTENSION,      /* its name: the first byte, */
    DG_CHUNKS_EXTENSION_NAME, /* and the others */
    DG_CHUNKS_EXTENSION_VALUE_FIRST,
    DG_CHUNKS_EXTENSION_VALUE,
    DG_CHUNKS_EXTENSION_QUOTED,
    DG_CHUNKS_EXTENSION_ESCAPED, /* a byte behind a backslash */
    DG_CHUNKS_EXTENSION_END,     /* behind a closing quote */
    DG_CHUNKS_SIZE_LF,
    DG_CHUNKS_DATA,
    DG_CHUNKS_DATA_CR,
    DG_CHUNKS_DATA_LF,
    DG_CHUNKS_TRAILER, /* at the beginning of a line of it */
    DG_CHUNKS_TRAILER_NAME,
    DG_CHUNKS_TRAILER_VALUE,
    DG_CHUNKS_TRAILER_LF,
    DG_CHUNKS_LAST_LF,
    DG_CHUNKS_DONE,
    DG_CHUNKS_BAD
} dg_chunks_state;

/* Zeroed at the beginning. */
typedef struct dg_chunks {
    dg_chunks_state state;
    uint64_t left; /* bytes of this chunk that are still to come */
    int n_digit;
    size_t n_extra; /* bytes of extensions and trailers so far */
} dg_chunks;

/* Takes bytes until there is data, or until the end; returns how many. Of those, the last *n_data
 * are data. */
size_t dg_chunks_read(dg_chunks *c, const char *data, size_t n, size_t *n_data);

#endif
