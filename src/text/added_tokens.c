#include "text/added_tokens.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

static int compare_text(const void *va, const void *vb)
{
    const dg_piece *a = &((const dg_added *)va)->piece, *b = &((const dg_added *)vb)->piece;
    int order = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

static unsigned char byte_at(const dg_added *token, size_t depth)
{
    return (unsigned char)token->piece.text[depth];
}

bool dg_added_tokens_init(dg_added_tokens *a, const dg_pieces *p)
{
    size_t n = 0;
    for (int32_t id = 0; id < p->n; id++)
        n += (p->kinds[id] & DG_PIECE_ADDED) != 0;
    *a = (dg_added_tokens){.at = dg_array(n, sizeof *a->at)};
    if (!a->at)
        return false;
    for (int32_t id = 0; id < p->n; id++)
        if (p->kinds[id] & DG_PIECE_ADDED)
            a->at[a->n++] = (dg_added){dg_pieces_at(p, id), id};
    qsort(a->at, a->n, sizeof *a->at, compare_text);

    for (size_t i = 0; i < a->n; i++)
        a->first[byte_at(&a->at[i], 0) + 1]++;
    for (int b = 0; b < 256; b++)
        a->first[b + 1] += a->first[b];
    return true;
}

void dg_added_tokens_clear(dg_added_tokens *a)
{
    dg_free(a->at);
    *a = (dg_added_tokens){0};
}

/* First of [lo, hi), which agree before `depth` and are longer, whose byte there is at least
 * `byte`. */
static size_t lower_bound(const dg_added_tokens *a, size_t lo, size_t hi, size_t depth, int byte)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (byte_at(&a->at[mid], depth) < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest token that text starts with: narrows the sorted list by one byte after the other. A
 * token that ends stands before those it is a prefix of. */
static const dg_added *match(const dg_added_tokens *a, const char *text, size_t len)
{
    const dg_added *longest = NULL;
    const unsigned char *bytes = (const unsigned char *)text;
    size_t lo = a->first[bytes[0]], hi = a->first[bytes[0] + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        if (a->at[lo].piece.len == depth)
            longest = &a->at[lo++];
        if (depth == len)
            break;
        lo = lower_bound(a, lo, hi, depth, bytes[depth]);
        hi = lower_bound(a, lo, hi, depth, bytes[depth] + 1);
    }
    return longest;
}

size_t dg_added_tokens_find(const dg_added_tokens *a, const char *text, size_t len, dg_added *found)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (a->first[byte] == a->first[byte + 1])
            continue;
        const dg_added *token = match(a, text + i, len - i);
        if (token) {
            *found = *token;
            return i;
        }
    }
    return len;
}
