#include "text/stop_strings.h"
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"

struct dg_stop_strings {
    char *string[DG_STOP_MAX_STRINGS];
    size_t len[DG_STOP_MAX_STRINGS];
    size_t n, longest;
    dg_buf held; /* the end of the text so far: from the first place where a stop string may still
                    become complete, so at most the longest of them less one byte, and a character
                    that it cuts */
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

/* The stop string in the held text that starts first, and of those the shortest: the one that is
 * complete first. True: there is one, and *start and *which say where and which. */
static bool find_first(const dg_stop_strings *s, size_t *start, size_t *which)
{
    bool found = false;
    for (size_t i = 0; i < s->n; i++) {
        const char *match =
            s->held.len ? memmem(s->held.data, s->held.len, s->string[i], s->len[i]) : NULL;
        if (!match)
            continue;
        size_t at = (size_t)(match - s->held.data);
        if (found && (at > *start || (at == *start && s->len[i] >= s->len[*which])))
            continue;
        found = true;
        *start = at;
        *which = i;
    }
    return found;
}

/* Where the held text could go on to be a stop string: the first such place, or its end. */
static size_t possible_start(const dg_stop_strings *s)
{
    size_t most = s->longest ? s->longest - 1 : 0;
    for (size_t n = most < s->held.len ? most : s->held.len; n > 0; n--)
        for (size_t i = 0; i < s->n; i++)
            if (n < s->len[i] && !memcmp(s->held.data + s->held.len - n, s->string[i], n))
                return s->held.len - n;
    return s->held.len;
}

/* Passes on the first n bytes of what is held, less a character that they cut. */
static void pass_on(dg_stop_strings *s, size_t n, dg_stop_text_fn *out, void *user)
{
    if (n)
        n -= dg_utf8_partial(s->held.data, n);
    if (!n)
        return;
    char after = s->held.data[n];
    s->held.data[n] = '\0';
    out(user, s->held.data, n);
    s->held.data[n] = after;
    memmove(s->held.data, s->held.data + n, s->held.len - n + 1);
    s->held.len -= n;
}

static void stop_at(dg_stop_strings *s, size_t start, size_t which, dg_stop_text_fn *out,
                    void *user)
{
    pass_on(s, start, out, user);
    s->held.len = 0;
    s->found = (int)which + 1;
}

bool dg_stop_strings_push(dg_stop_strings *s, const char *text, size_t len, dg_stop_text_fn *out,
                          void *user)
{
    if (s->found)
        return true;
    if (!dg_buf_append(&s->held, text, len))
        return false;
    size_t open = possible_start(s), start, which;
    /* one that began earlier and may yet be complete would come first */
    if (find_first(s, &start, &which) && start <= open)
        stop_at(s, start, which, out, user);
    else
        pass_on(s, open, out, user);
    return true;
}

int dg_stop_strings_found(const dg_stop_strings *s)
{
    return s->found;
}

void dg_stop_strings_flush(dg_stop_strings *s, dg_stop_text_fn *out, void *user)
{
    size_t start, which;
    if (find_first(s, &start, &which))
        stop_at(s, start, which, out, user);
    else
        pass_on(s, s->held.len, out, user);
}
