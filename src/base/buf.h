/* A growing byte string with a hard ceiling from birth, so that no input can make it large. */
#ifndef DG_BASE_BUF_H
#define DG_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct dg_buf {
    char *data; /* always NUL-terminated once something was appended; NULL before */
    size_t len; /* without the NUL */
    size_t cap;
    size_t max;
} dg_buf;

void dg_buf_init(dg_buf *b, size_t max);
void dg_buf_clear(dg_buf *b); /* frees; the buffer may be used again */

/* False when the ceiling is reached or memory is out; the buffer is then unchanged. */
bool dg_buf_append(dg_buf *b, const void *data, size_t n);
bool dg_buf_puts(dg_buf *b, const char *s);

#endif
