/* Lines of a file or a pipe, one after the other, none longer than it may be. */
#ifndef DG_SERVER_LINE_READER_H
#define DG_SERVER_LINE_READER_H

#include <stdint.h>
#include "base/buf.h"
#include "base/error.h"

typedef struct dg_line_reader {
    int fd;           /* borrowed */
    const char *path; /* for messages; borrowed */
    size_t max;       /* bytes of a line */
    dg_buf in;        /* what was read */
    size_t from, to;  /* the line, in it; then its end, if it has one */
    bool at_end;      /* of the file */
    bool too_long;    /* the line is, and was passed over */
    bool whole;       /* it ends with a line's end, not with the file */
    uint64_t number;  /* the line's, from 1 */
    uint64_t offset;  /* where it begins in the file */
    uint64_t next;    /* and the next one */

    /* Called while nothing comes, several times a second; what it returns ends the wait. May be
     * NULL: who reads a file waits for nobody. */
    dgemma_status (*idle)(void *user, dgemma_error *err);
    void *idle_user;
} dg_line_reader;

void dg_line_reader_init(dg_line_reader *r, int fd, const char *path, size_t max);
void dg_line_reader_clear(dg_line_reader *r);

/* The next line is in->data + from, to - from bytes without its end; *more is false when there is
 * none. */
dgemma_status dg_line_next(dg_line_reader *r, bool *more, dgemma_error *err);

/* Passes over a mark that some editors write at the beginning of a file. */
void dg_line_skip_mark(dg_line_reader *r);

/* Whether nothing but spaces is in the line. */
bool dg_line_is_blank(const dg_line_reader *r);

static inline const char *dg_line_text(const dg_line_reader *r)
{
    return r->in.data + r->from;
}

static inline size_t dg_line_bytes(const dg_line_reader *r)
{
    return r->to - r->from;
}

#endif
