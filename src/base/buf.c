#include "base/buf.h"
#include <stdint.h>
#include <string.h>
#include "base/alloc.h"

void dg_buf_init(dg_buf *b, size_t max)
{
    *b = (dg_buf){.max = max};
}

void dg_buf_clear(dg_buf *b)
{
    dg_free(b->data);
    *b = (dg_buf){.max = b->max};
}

static bool reserve(dg_buf *b, size_t need)
{
    if (need <= b->cap)
        return true;
    size_t cap = b->cap < 32 ? 64 : b->cap > SIZE_MAX / 2 ? SIZE_MAX : 2 * b->cap;
    if (cap < need)
        cap = need;
    char *data = dg_array_resize(b->data, cap, 1);
    if (!data)
        return false;
    b->data = data;
    b->cap = cap;
    return true;
}

bool dg_buf_append(dg_buf *b, const void *data, size_t n)
{
    if (n > b->max || b->len > b->max - n)
        return false;
    if (!reserve(b, b->len + n + 1))
        return false;
    if (n)
        memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = '\0';
    return true;
}

bool dg_buf_puts(dg_buf *b, const char *s)
{
    return dg_buf_append(b, s, strlen(s));
}
