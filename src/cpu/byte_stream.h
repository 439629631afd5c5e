/* What is packed after the columns that are being packed: the next ones, or the next product's. It
 * comes from memory, where bytes in ascending order are the fastest, and the first-level cache has
 * no room for it. */
#ifndef DG_CPU_BYTE_STREAM_H
#define DG_CPU_BYTE_STREAM_H

#include "base/common.h"
#include "cpu/bytes.h"

typedef struct dg_byte_stream {
    const uint8_t *at, *end;
    size_t some; /* with each part */
} dg_byte_stream;

/* What comes behind the columns before c, asked for in n_part parts. */
static inline dg_byte_stream dg_stream_from(const dg_byte_args *a, int c, int n_part)
{
    const int n_col = dg_min(DG_BYTE_COLS, a->n_col - c);
    const uint8_t *at = n_col > 0 ? (const uint8_t *)a->w + (size_t)c * a->stride : a->soon;
    const size_t bytes = n_col > 0 ? (size_t)n_col * a->stride : a->soon_bytes;
    if (!at)
        return (dg_byte_stream){NULL, NULL, 0};
    return (dg_byte_stream){at, at + bytes, (bytes / (size_t)n_part / 64 + 1) * 64};
}

static inline void dg_stream_fetch(dg_byte_stream *s)
{
    const uint8_t *end = s->end - s->at > (ptrdiff_t)s->some ? s->at + s->some : s->end;
    for (; s->at < end; s->at += 64)
        __builtin_prefetch(s->at, 0, 2);
}

#endif
