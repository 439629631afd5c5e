#include "text/stop_strings.h"
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"

struct dg_stop_strings {
    char *string[DG_STOP_MAX_STRINGS];
    size_t len[DG_STOP_MAX_STRINGS];
    size_t n, longest;
    dg_buf held; /* the end of the text so far, at most the longest string less one byte, while in
                    between calls */
    int found;   /* which one came, from 1 */
};

dgemma_status dg_stop_strings_create(dg_stop_strings **out, const char *const *strings, size_t n,
                                     dgemma_error *err)
{
    if (n > DG_STOP_MAX_STRINGS)
        return dg_fail(err, DGEMMA_E_ARG, "%zu stop strings: at most %d are possible", n,
                       DG_STOP_MAX_STRINGS);
    dg_stop_strings *s = dg_calloc(1, sizeof *s);
    if (!s)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_buf_init(&s->held, (size_t)1 << 30);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(strings[i]);
        if (!len || len > DG_STOP_MAX_BYTES) {
            dg_stop_strings_free(s);
            return dg_fail(err, DGEMMA_E_ARG, "stop string %zu has %zu bytes: 1 to %d are possible",
                           i, len, DG_STOP_MAX_BYTES);
        }
        s->string[s->n] = dg_strdup(strings[i]);
        if (!s->string[s->n]) {
            dg_stop_strings_free(s);
            return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
        }
        s->len[s->n++] = len;
        s->longest = len > s->longest ? len : s->longest;
    }
    *out = s;
    return DGEMMA_OK;
}

void dg_stop_strings_free(dg_stop_strings *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        dg_free(s->string[i]);
    dg_buf_clear(&s->held);
    dg_free(s);
}

/* Where the first stop string starts in the held text, and which it is; its length when there is
 * none. */
static size_t find_first(dg_stop_strings *s)
{
    size_t first = s->held.len;
    for (size_t i = 0; i < s->n; i++) {
        const char *at = memmem(s->held.data, s->held.len, s->string[i], s->len[i]);
        if (at && (size_t)(at - s->held.data) < first) {
            first = (size_t)(at - s->held.data);
            s->found = (int)i + 1;
        }
    }
    return first;
}

/* How many bytes at the end could be the beginning of a stop string. */
static size_t possible_start(const dg_stop_strings *s)
{
    size_t most = s->longest ? s->longest - 1 : 0;
    for (size_t n = most < s->held.len ? most : s->held.len; n > 0; n--)
        for (size_t i = 0; i < s->n; i++)
            if (n < s->len[i] && !memcmp(s->held.data + s->held.len - n, s->string[i], n))
                return n;
    return 0;
}

/* Passes on the first n bytes of what is held. */
static void pass_on(dg_stop_strings *s, size_t n, dg_stop_text_fn *out, void *user)
{
    if (!n)
        return;
    char after = s->held.data[n];
    s->held.data[n] = '\0';
    out(user, s->held.data, n);
    s->held.data[n] = after;
    memmove(s->held.data, s->held.data + n, s->held.len - n + 1);
    s->held.len -= n;
}

bool dg_stop_strings_push(dg_stop_strings *s, const char *text, size_t len, dg_stop_text_fn *out,
                          void *user)
{
    if (s->found)
        return true;
    if (!dg_buf_append(&s->held, text, len)) {
        out(user, text, len); /* memory is out: whoever takes the text will find that too */
        return false;
    }
    size_t stop = find_first(s);
    size_t n = s->found ? stop : s->held.len - possible_start(s);
    /* a stop string may begin inside a character; what is passed on is whole */
    if (!s->found)
        n -= dg_utf8_partial(s->held.data, n);
    pass_on(s, n, out, user);
    return s->found > 0;
}

int dg_stop_strings_found(const dg_stop_strings *s)
{
    return s->found;
}

void dg_stop_strings_flush(dg_stop_strings *s, dg_stop_text_fn *out, void *user)
{
    if (!s->found)
        pass_on(s, s->held.len, out, user);
}
