#include "constraint/tokens.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "constraint/language_store.h"

/* A node of the tree, in front of all that are below it. */
typedef struct branch {
    uint32_t end;  /* behind the last one below */
    int32_t token; /* that ends here; -1: none */
    uint8_t byte;
} branch;

typedef struct tree {
    branch *at;
    size_t n, cap;
} tree;

typedef struct piece {
    const char *data;
    uint32_t len;
    int32_t id;
    bool is_byte; /* a token for a byte, not for text */
} piece;

struct dg_token_trie {
    tree all, others; /* others: those in no class */
    uint8_t *class_of;
    dg_buf bytes;    /* of all tokens, */
    uint32_t *start; /* [n_id + 1] and where each begins */
    size_t n_id, n_token, n_plain;
};

/* ---- building ---- */

static int compare_pieces(const void *x, const void *y)
{
    const piece *a = x, *b = y;
    size_t n = a->len < b->len ? a->len : b->len;
    int c = memcmp(a->data, b->data, n);
    if (c || a->len != b->len)
        return c ? c : a->len < b->len ? -1 : 1;
    if (a->is_byte != b->is_byte)
        return a->is_byte ? 1 : -1; /* the first of two is used */
    return (a->id > b->id) - (a->id < b->id);
}

static bool is_plain(const piece *p)
{
    for (size_t i = 0, n; i < p->len; i += n) {
        uint32_t c;
        n = dg_utf8_decode(p->data + i, p->len - i, &c);
        if (!n || c < ' ' || c == '"' || c == '\\')
            return false;
    }
    return p->len > 0 && !p->is_byte;
}

static size_t common_length(const piece *a, const piece *b)
{
    size_t i = 0;
    while (i < a->len && i < b->len && a->data[i] == b->data[i])
        i++;
    return i;
}

static bool add_branch(tree *t, uint8_t byte)
{
    if (t->n == t->cap) {
        size_t want = t->cap ? 2 * t->cap : 1024;
        branch *grown = dg_array_resize(t->at, want, sizeof *grown);
        if (!grown)
            return false;
        t->at = grown;
        t->cap = want;
    }
    t->at[t->n++] = (branch){.token = -1, .byte = byte};
    return true;
}

/* Pieces in order become nodes in order: each goes on from what it has in common with the one
 * before, whose nodes are then complete. */
static bool build(tree *t, const piece *pieces, size_t n, const uint8_t *class_of)
{
    uint32_t open[DG_PIECE_MAX];
    size_t depth = 0;
    const piece *last = NULL;
    for (size_t i = 0; i < n; i++) {
        const piece *p = &pieces[i];
        if (class_of && class_of[p->id] == DG_TOKEN_CLASS_PLAIN)
            continue;
        size_t common = last ? common_length(last, p) : 0;
        while (depth > common)
            t->at[open[--depth]].end = (uint32_t)t->n;
        for (; depth < p->len; depth++) {
            open[depth] = (uint32_t)t->n;
            if (!add_branch(t, (uint8_t)p->data[depth]))
                return false;
        }
        if (t->at[open[depth - 1]].token < 0)
            t->at[open[depth - 1]].token = p->id;
        last = p;
    }
    while (depth)
        t->at[open[--depth]].end = (uint32_t)t->n;
    return true;
}

/* "<0x41>" stands for a byte; -1: it is not one of those. */
static int byte_of(dg_piece p)
{
    char text[8] = "";
    unsigned byte;
    if (p.len != 6 || memcmp(p.text, "<0x", 3) || p.text[5] != '>')
        return -1;
    memcpy(text, p.text + 3, 2);
    char *end;
    byte = (unsigned)strtoul(text, &end, 16);
    return *end ? -1 : (int)byte;
}

/* Rows that a vocabulary keeps free are never text. */
static bool is_unused(dg_piece p)
{
    return p.len > 8 && !memcmp(p.text, "<unused", 7) && p.text[p.len - 1] == '>';
}

/* The bytes of each token. */
static dgemma_status collect(dg_token_trie *t, const dg_tokenizer *tokenizer, piece *pieces,
                             dgemma_error *err)
{
    dg_buf *bytes = &t->bytes;
    for (int32_t id = 0; id < (int32_t)t->n_id; id++) {
        t->start[id] = t->start[id + 1] = (uint32_t)bytes->len;
        dg_piece text = dg_tokenizer_piece(tokenizer, id);
        int byte = byte_of(text);
        char c = (char)byte;
        if (!text.len || is_unused(text) || dg_tokenizer_is_special(tokenizer, id))
            continue;
        dgemma_status st = DGEMMA_OK;
        if (byte < 0)
            st = dg_tokenizer_decode(tokenizer, &id, 1, false, bytes, err);
        else if (!dg_buf_append(bytes, &c, 1))
            st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
        if (st)
            return st;
        size_t len = bytes->len - t->start[id];
        if (len && len <= DG_PIECE_MAX)
            pieces[t->n_token++] = (piece){.len = (uint32_t)len, .id = id, .is_byte = byte >= 0};
        else
            bytes->len = t->start[id];
        t->start[id + 1] = (uint32_t)bytes->len;
    }
    for (size_t i = 0; i < t->n_token; i++)
        pieces[i].data = bytes->data + t->start[pieces[i].id];
    return DGEMMA_OK;
}

static dgemma_status fill(dg_token_trie *t, const dg_tokenizer *tokenizer, dgemma_error *err)
{
    dg_buf_init(&t->bytes, DG_VOCABULARY_MAX_BYTES);
    piece *pieces = dg_array(t->n_id + 1, sizeof *pieces);
    t->start = dg_calloc(t->n_id + 1, sizeof *t->start);
    t->class_of = dg_calloc(t->n_id + 1, 1);
    bool ok = pieces && t->start && t->class_of;
    dgemma_status st =
        ok ? collect(t, tokenizer, pieces, err) : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st) {
        qsort(pieces, t->n_token, sizeof *pieces, compare_pieces);
        for (size_t i = 0; i < t->n_token; i++) {
            bool twin = i && pieces[i].len == pieces[i - 1].len &&
                        !memcmp(pieces[i].data, pieces[i - 1].data, pieces[i].len);
            bool plain = !twin && is_plain(&pieces[i]);
            t->class_of[pieces[i].id] = plain ? DG_TOKEN_CLASS_PLAIN : DG_TOKEN_CLASS_OTHER;
            t->n_plain += plain;
        }
        if (!build(&t->all, pieces, t->n_token, NULL) ||
            !build(&t->others, pieces, t->n_token, t->class_of))
            st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    dg_free(pieces);
    return st;
}

dgemma_status dg_token_trie_create(dg_token_trie **out, const dg_tokenizer *tokenizer, size_t n_row,
                                   dgemma_error *err)
{
    dg_token_trie *t = dg_calloc(1, sizeof *t);
    if (!t)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    size_t n_piece = (size_t)dg_tokenizer_count(tokenizer);
    t->n_id = n_row > n_piece ? n_row : n_piece;
    dgemma_status st = fill(t, tokenizer, err);
    if (st)
        dg_token_trie_free(t);
    else
        *out = t;
    return st;
}

void dg_token_trie_free(dg_token_trie *t)
{
    if (!t)
        return;
    dg_free(t->all.at);
    dg_free(t->others.at);
    dg_free(t->class_of);
    dg_free(t->start);
    dg_buf_clear(&t->bytes);
    dg_free(t);
}

const uint8_t *dg_token_trie_classes(const dg_token_trie *t)
{
    return t->class_of;
}

size_t dg_token_trie_count(const dg_token_trie *t)
{
    return t->n_id;
}

dg_token_trie_size dg_token_trie_measure(const dg_token_trie *t)
{
    return (dg_token_trie_size){t->n_token, t->all.n, t->n_plain,
                                (t->all.cap + t->others.cap) * sizeof(branch) + t->bytes.cap +
                                    t->n_id * (1 + sizeof *t->start)};
}

const char *dg_token_trie_text(const dg_token_trie *t, int32_t id, size_t *len)
{
    *len = t->start[id + 1] - t->start[id];
    return *len ? t->bytes.data + t->start[id] : NULL;
}

/* ---- places that stay where they are ---- */

/* Characters of UTF-8 byte by byte: in state i, bytes lo … hi lead to `to`; 0 is between two. */
static const struct {
    uint8_t state, lo, hi, to;
} utf8_steps[] = {
    {0, 0x20, 0x21, 0}, {0, 0x23, 0x5B, 0}, {0, 0x5D, 0x7F, 0}, {0, 0xC2, 0xDF, 1},
    {0, 0xE0, 0xE0, 2}, {0, 0xE1, 0xEC, 3}, {0, 0xED, 0xED, 4}, {0, 0xEE, 0xEF, 3},
    {0, 0xF0, 0xF0, 5}, {0, 0xF1, 0xF3, 6}, {0, 0xF4, 0xF4, 7}, {1, 0x80, 0xBF, 0},
    {2, 0xA0, 0xBF, 1}, {3, 0x80, 0xBF, 1}, {4, 0x80, 0x9F, 1}, {5, 0x90, 0xBF, 3},
    {6, 0x80, 0xBF, 3}, {7, 0x80, 0x8F, 3},
};

/* Whether any plain character leads from `at` back to `home`, when `state` of UTF-8 has been
 * reached on the way. At most three bytes deep. */
static dgemma_status stays(dg_language *l, dg_place at, dg_place home, unsigned state, bool *yes,
                           dgemma_error *err)
{
    for (size_t i = 0; i < sizeof utf8_steps / sizeof *utf8_steps && *yes; i++) {
        if (utf8_steps[i].state != state)
            continue;
        /* an edge's bytes are alike, so that one of each edge stands for all */
        for (unsigned b = utf8_steps[i].lo; b <= utf8_steps[i].hi && *yes;) {
            dg_edges e;
            dgemma_status st = dg_language_edges(l, at, &e, err);
            if (st)
                return st;
            size_t k = 0;
            while (k < e.n_bytes && e.bytes[k].hi < b)
                k++;
            *yes = k < e.n_bytes && e.bytes[k].lo <= b;
            if (!*yes)
                break;
            dg_place next = e.bytes[k].to;
            b = e.bytes[k].hi + 1u;
            if (utf8_steps[i].to == 0)
                *yes = next == home;
            else
                st = stays(l, next, home, utf8_steps[i].to, yes, err);
            if (st)
                return st;
        }
    }
    return DGEMMA_OK;
}

/* Behind the backslash of an escape. */
static bool is_in_escape(const dg_language *l, dg_place at)
{
    const dg_place_entry *p = &l->place[at];
    const dg_syntax *s = l->syntax;
    for (uint32_t i = 0; i < p->n; i++) {
        const dg_cell *c = &l->cell[l->stored[p->first + i]];
        const dg_syntax_node *n = &s->node[c->node];
        if (n->kind != DG_KIND_SEQUENCE || c->count != 1)
            return false;
        const dg_syntax_node *first = &s->node[s->child[n->a]];
        if (first->kind != DG_KIND_LITERAL || first->b != 1 || s->text[first->a] != '\\')
            return false;
    }
    return p->n > 0;
}

/* ---- edges ---- */

void dg_token_edges_clear(dg_token_edges *e)
{
    dg_free(e->at);
    *e = (dg_token_edges){0};
}

static dgemma_status add_edge(dg_token_edges *e, dg_token_edge edge, dgemma_error *err)
{
    if (e->n == e->cap) {
        size_t want = e->cap ? 2 * e->cap : 64;
        dg_token_edge *grown = dg_array_resize(e->at, want, sizeof *grown);
        if (!grown)
            return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
        e->at = grown;
        e->cap = want;
    }
    e->at[e->n++] = edge;
    return DGEMMA_OK;
}

/* All tokens of the tree that the language goes along with, or only those of one byte. Stops where
 * they become more than a place has that is not wide. */
static dgemma_status walk(const tree *t, dg_language *l, dg_place from, bool single,
                          dg_token_edges *out, dgemma_error *err)
{
    dg_place place[DG_PIECE_MAX + 1];
    uint32_t end[DG_PIECE_MAX + 1];
    size_t depth = 0;
    place[0] = from;
    for (uint32_t i = 0; i < t->n && out->n <= DG_TOKEN_WIDE;) {
        const branch *b = &t->at[i];
        while (depth && end[depth] <= i)
            depth--;
        dg_place at = place[depth];
        dgemma_status st = dg_language_step(l, &at, b->byte, err);
        if (!st && at != DG_PLACE_DEAD && b->token >= 0)
            st = add_edge(out, (dg_token_edge){.token = b->token, .to = at}, err);
        if (st)
            return st;
        if (at == DG_PLACE_DEAD || single) {
            i = b->end;
            continue;
        }
        depth++;
        place[depth] = at;
        end[depth] = b->end;
        i++;
    }
    return DGEMMA_OK;
}

static dgemma_status add_symbols(dg_language *l, dg_place at, const int32_t *symbol,
                                 dg_token_edges *out, dgemma_error *err)
{
    dg_edges e;
    dgemma_status st = dg_language_edges(l, at, &e, err);
    for (size_t i = 0; !st && i < e.n_symbols; i++) {
        int32_t id = symbol[e.symbols[i].symbol];
        if (id >= 0)
            st = add_edge(out, (dg_token_edge){.token = id, .to = e.symbols[i].to}, err);
    }
    return st;
}

dgemma_status dg_token_edges_find(const dg_token_trie *t, dg_language *l, dg_place at,
                                  const int32_t *symbol, dg_token_edges *out, bool *wide,
                                  dgemma_error *err)
{
    /* right behind the opening quote is another place than behind a character */
    dg_place home = at;
    out->n = 0;
    dgemma_status st = dg_language_step(l, &home, 'a', err);
    bool free_text = !st && home != DG_PLACE_DEAD;
    if (free_text)
        st = stays(l, at, home, 0, &free_text, err);
    if (!st && free_text && home != at)
        st = stays(l, home, home, 0, &free_text, err);
    if (!st && free_text)
        st = add_edge(out, (dg_token_edge){DG_TOKEN_CLASS_PLAIN, true, home}, err);
    size_t n = out->n;
    const tree *words = free_text ? &t->others : &t->all;
    if (!st)
        st = walk(words, l, at, is_in_escape(l, at), out, err);
    *wide = !st && out->n > DG_TOKEN_WIDE;
    if (*wide) {
        out->n = n;
        st = walk(words, l, at, true, out, err);
    }
    return st || !symbol ? st : add_symbols(l, at, symbol, out, err);
}

dgemma_status dg_token_step(const dg_token_trie *t, dg_language *l, dg_place *at, int32_t token,
                            dgemma_error *err)
{
    size_t len;
    const char *text = dg_token_trie_text(t, token, &len);
    dgemma_status st = DGEMMA_OK;
    for (size_t i = 0; i < len && !st && *at != DG_PLACE_DEAD; i++)
        st = dg_language_step(l, at, (unsigned char)text[i], err);
    if (!len)
        *at = DG_PLACE_DEAD;
    return st;
}

/* ---- spelling ---- */

size_t dg_token_trie_longest(const dg_token_trie *t, const char *bytes, size_t n, int32_t *token)
{
    size_t longest = 0, depth = 0;
    uint32_t i = 0, end = (uint32_t)t->all.n;
    while (i < end && depth < n) {
        const branch *b = &t->all.at[i];
        if (b->byte != (uint8_t)bytes[depth]) {
            i = b->end;
            continue;
        }
        depth++;
        if (b->token >= 0) {
            *token = b->token;
            longest = depth;
        }
        end = b->end;
        i++;
    }
    return longest;
}

dgemma_status dg_token_trie_spell(const dg_token_trie *t, const char *bytes, size_t n,
                                  dg_tokens *out, dgemma_error *err)
{
    for (size_t from = 0, len; from < n; from += len) {
        int32_t token;
        len = dg_token_trie_longest(t, bytes + from, n - from, &token);
        if (!len)
            return dg_fail(err, DGEMMA_E_UNSUPPORTED, "the vocabulary has no token for byte 0x%02X",
                           (unsigned char)bytes[from]);
        if (!dg_tokens_push(out, token))
            return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    return DGEMMA_OK;
}
