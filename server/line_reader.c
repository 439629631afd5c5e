#include "line_reader.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };

void dg_line_reader_init(dg_line_reader *r, int fd, const char *path, size_t max)
{
    *r = (dg_line_reader){.fd = fd, .path = path, .max = max};
    dg_buf_init(&r->in, max + 2 * PIECE);
}

void dg_line_reader_clear(dg_line_reader *r)
{
    dg_buf_clear(&r->in);
}

/* Until there is something to read, or its end. */
static dgemma_status wait_for_input(dg_line_reader *r, dgemma_error *err)
{
    struct pollfd in = {.fd = r->fd, .events = POLLIN};
    dgemma_status st = DGEMMA_OK;
    int n = 0;
    for (int ms = 0; !st && ((n = poll(&in, 1, ms)) == 0 || (n < 0 && errno == EINTR)); ms = 200)
        st = r->idle(r->idle_user, err);
    return st;
}

static dgemma_status read_piece(dg_line_reader *r, dgemma_error *err)
{
    char piece[PIECE];
    ssize_t n;
    dgemma_status st = r->idle ? wait_for_input(r, err) : DGEMMA_OK;
    if (st)
        return st;
    do
        n = read(r->fd, piece, sizeof piece);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return dg_fail(err, DGEMMA_E_IO, "%s: %s", r->path, strerror(errno));
    r->at_end = n == 0;
    if (n && !dg_buf_append(&r->in, piece, (size_t)n))
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory for a line", r->path);
    return DGEMMA_OK;
}

/* Room is used again: what is in front of the line goes. */
static void forget(dg_line_reader *r, size_t n)
{
    if (!n)
        return;
    memmove(r->in.data, r->in.data + n, r->in.len - n);
    r->in.len -= n;
    r->from -= n;
}

dgemma_status dg_line_next(dg_line_reader *r, bool *more, dgemma_error *err)
{
    size_t passed = 0; /* of a line that is too long */
    r->offset = r->next;
    r->from = r->to + (r->whole && r->number ? 1 : 0);
    r->too_long = r->whole = false;
    for (size_t seen = r->from;;) {
        const char *end =
            seen < r->in.len ? memchr(r->in.data + seen, '\n', r->in.len - seen) : NULL;
        r->to = end ? (size_t)(end - r->in.data) : r->in.len;
        r->too_long = r->too_long || r->to - r->from > r->max;
        if (end || r->at_end) {
            r->whole = end != NULL;
            break;
        }
        if (r->too_long) {
            passed += r->to - r->from;
            r->from = r->to;
        }
        forget(r, r->from);
        seen = r->in.len;
        dgemma_status st = read_piece(r, err);
        if (st)
            return st;
    }
    passed += r->to - r->from;
    *more = r->whole || passed;
    r->number += *more;
    r->next = r->offset + passed + r->whole;
    return DGEMMA_OK;
}

void dg_line_skip_mark(dg_line_reader *r)
{
    if (r->number == 1 && dg_line_bytes(r) >= 3 && !memcmp(dg_line_text(r), "\xEF\xBB\xBF", 3))
        r->from += 3;
}

bool dg_line_is_blank(const dg_line_reader *r)
{
    for (size_t i = 0; i < dg_line_bytes(r); i++)
        if (!strchr(" \t\r", dg_line_text(r)[i]) || !dg_line_text(r)[i])
            return false;
    return !r->too_long;
}
