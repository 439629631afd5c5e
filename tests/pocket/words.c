#include "pocket/words.h"
#include <ctype.h>
#include <string.h>
#include <strings.h>
#include "base/alloc.h"

/* Bytes past ASCII are letters here: what they say is compared, never looked into. */
static bool is_letter(unsigned char c)
{
    return isalnum(c) || c >= 0x80 || c == '{' || c == '}' || c == '_';
}

static size_t word_length(const char *s)
{
    size_t n = 0;
    while (is_letter((unsigned char)s[n]) ||
           (n > 0 && (s[n] == '\'' || s[n] == '-') && is_letter((unsigned char)s[n + 1])))
        n++;
    return n;
}

word *words_split(const char *text, size_t *n)
{
    size_t cap = 0;
    word *words = dg_array(1, sizeof *words);
    *n = 0;
    while (words && *n < MAX_WORDS) {
        while (isspace((unsigned char)*text))
            text++;
        if (!*text)
            break;
        if (*n >= cap) {
            cap = 2 * cap + 32;
            word *more = dg_array_resize(words, cap, sizeof *words);
            if (!more)
                dg_free(words);
            words = more;
            if (!words)
                break;
        }
        size_t len = word_length(text);
        words[(*n)++] = (word){text, len ? len : 1, len == 0};
        text += len ? len : 1;
    }
    return words;
}

bool words_equal(const word *a, const word *b, bool ignore_case)
{
    if (a->len != b->len)
        return false;
    return (ignore_case ? strncasecmp(a->text, b->text, a->len)
                        : memcmp(a->text, b->text, a->len)) == 0;
}

static bool stands_at(const word *text, const word *phrase, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!words_equal(&text[i], &phrase[i], true))
            return false;
    return true;
}

bool words_contain(const char *text, const char *phrase)
{
    size_t n_text, n_phrase;
    word *t = words_split(text, &n_text), *p = words_split(phrase, &n_phrase);
    bool found = false;
    if (t && p && n_phrase)
        for (size_t i = 0; !found && i + n_phrase <= n_text; i++)
            found = stands_at(t + i, p, n_phrase);
    dg_free(t);
    dg_free(p);
    return found;
}
