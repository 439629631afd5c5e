#include "constraint/syntax.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

dgemma_status dg_syntax_fail(dg_syntax *s, dgemma_status status, const char *fmt, ...)
{
    if (s->status)
        return s->status;
    char text[sizeof s->error.msg];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    s->status = status;
    return dg_fail(&s->error, status, "%s", text);
}

dgemma_status dg_syntax_create(dg_syntax **out, unsigned max_level, dgemma_error *err)
{
    dg_syntax *s = dg_calloc(1, sizeof *s);
    if (!s)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    s->max_level = max_level;
    s->n_slot = 1024;
    s->cap_node = 256;
    s->slot = dg_calloc(s->n_slot, sizeof *s->slot);
    s->node = dg_calloc(s->cap_node, sizeof *s->node);
    if (!s->slot || !s->node) {
        dg_syntax_free(s);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    s->node[DG_NODE_NEVER].kind = DG_KIND_NEVER;
    s->node[DG_NODE_EMPTY].kind = DG_KIND_EMPTY;
    s->n_node = 2;
    *out = s;
    return DGEMMA_OK;
}

void dg_syntax_free(dg_syntax *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_symbol; i++)
        dg_free(s->symbol[i].name);
    dg_free(s->symbol);
    dg_free(s->node);
    dg_free(s->ending);
    dg_free(s->child);
    dg_free(s->set);
    dg_free(s->text);
    dg_free(s->slot);
    dg_free(s);
}

/* ---- arrays that grow up to a limit ---- */

/* Room for `more` in an array of *cap elements, n of which are used. */
static bool grow(dg_syntax *s, void **array, size_t *cap, size_t n, size_t more, size_t size,
                 size_t max)
{
    if (s->status)
        return false;
    if (more <= *cap - n)
        return true;
    if (more > max - n) {
        dg_syntax_fail(s, DGEMMA_E_LIMIT, "the constraint is too complex: it has too many parts");
        return false;
    }
    size_t want = *cap * 2 > n + more ? *cap * 2 : n + more + 16;
    if (want > max)
        want = max;
    void *p = dg_array_resize(*array, want, size);
    if (!p) {
        dg_syntax_fail(s, DGEMMA_E_NOMEM, "out of memory");
        return false;
    }
    *array = p;
    *cap = want;
    return true;
}

#define GROW(s, name, more, max)                                                                   \
    grow(s, (void **)&(s)->name, &(s)->cap_##name, (s)->n_##name, more, sizeof *(s)->name, max)

/* ---- hash-consing ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

/* What a node consists of, its children or bytes included: two with the same content are one. */
static uint64_t content_hash(const dg_syntax *s, const dg_syntax_node *n)
{
    uint64_t h = mix(n->kind, n->b);
    switch (n->kind) {
    case DG_KIND_BYTES:
        for (int i = 0; i < 4; i++)
            h = mix(h, s->set[n->a].bit[i]);
        return h;
    case DG_KIND_LITERAL:
        for (uint32_t i = 0; i < n->b; i++)
            h = mix(h, (unsigned char)s->text[n->a + i]);
        return h;
    case DG_KIND_SEQUENCE:
    case DG_KIND_CHOICE:
        for (uint32_t i = 0; i < n->b; i++)
            h = mix(h, s->child[n->a + i]);
        return h;
    default:
        return mix(mix(h, n->a), n->c);
    }
}

static bool same_content(const dg_syntax *s, const dg_syntax_node *x, const dg_syntax_node *y)
{
    if (x->kind != y->kind || x->b != y->b || x->c != y->c)
        return false;
    switch (x->kind) {
    case DG_KIND_BYTES:
        return !memcmp(&s->set[x->a], &s->set[y->a], sizeof *s->set);
    case DG_KIND_LITERAL:
        return !memcmp(s->text + x->a, s->text + y->a, x->b);
    case DG_KIND_SEQUENCE:
    case DG_KIND_CHOICE:
        return !memcmp(s->child + x->a, s->child + y->a, x->b * sizeof *s->child);
    default:
        return x->a == y->a;
    }
}

static bool rehash(dg_syntax *s)
{
    size_t n = s->n_slot * 2;
    uint32_t *slot = dg_calloc(n, sizeof *slot);
    if (!slot) {
        dg_syntax_fail(s, DGEMMA_E_NOMEM, "out of memory");
        return false;
    }
    for (size_t i = 2; i < s->n_node; i++) {
        size_t at = content_hash(s, &s->node[i]) & (n - 1);
        while (slot[at])
            at = (at + 1) & (n - 1);
        slot[at] = (uint32_t)i;
    }
    dg_free(s->slot);
    s->slot = slot;
    s->n_slot = n;
    return true;
}

/* The id of this node; a new one where there is none like it. A rule is like no other. */
static dg_node intern(dg_syntax *s, dg_syntax_node n)
{
    if (s->status || !GROW(s, node, 1, DG_SYNTAX_MAX_NODES))
        return DG_NODE_NEVER;
    if (s->n_node * 2 > s->n_slot && !rehash(s))
        return DG_NODE_NEVER;
    size_t at = content_hash(s, &n) & (s->n_slot - 1);
    for (; s->slot[at]; at = (at + 1) & (s->n_slot - 1))
        if (n.kind != DG_KIND_RULE && same_content(s, &s->node[s->slot[at]], &n))
            return s->slot[at];
    s->node[s->n_node] = n;
    s->slot[at] = (uint32_t)s->n_node;
    return (dg_node)s->n_node++;
}

/* ---- nodes without children ---- */

dg_node dg_syntax_bytes(dg_syntax *s, const dg_byte_set *set)
{
    if (!(set->bit[0] | set->bit[1] | set->bit[2] | set->bit[3]))
        return DG_NODE_NEVER;
    if (!GROW(s, set, 1, DG_SYNTAX_MAX_NODES))
        return DG_NODE_NEVER;
    s->set[s->n_set] = *set;
    size_t before = s->n_node;
    dg_node id = intern(s, (dg_syntax_node){.kind = DG_KIND_BYTES, .a = (uint32_t)s->n_set});
    s->n_set += s->n_node > before;
    return id;
}

dg_node dg_syntax_range(dg_syntax *s, unsigned lo, unsigned hi)
{
    dg_byte_set set = {{0}};
    for (unsigned b = lo; b <= hi; b++)
        dg_byte_set_add(&set, b);
    return dg_syntax_bytes(s, &set);
}

dg_node dg_syntax_literal(dg_syntax *s, const char *text, size_t n)
{
    if (!n)
        return DG_NODE_EMPTY;
    if (!GROW(s, text, n, DG_SYNTAX_MAX_BYTES))
        return DG_NODE_NEVER;
    memcpy(s->text + s->n_text, text, n);
    size_t before = s->n_node;
    dg_node id = intern(
        s, (dg_syntax_node){.kind = DG_KIND_LITERAL, .a = (uint32_t)s->n_text, .b = (uint32_t)n});
    s->n_text += s->n_node > before ? n : 0;
    return id;
}

dg_node dg_syntax_word(dg_syntax *s, const char *text)
{
    return dg_syntax_literal(s, text, strlen(text));
}

dg_node dg_syntax_layout(dg_syntax *s, dg_layout layout)
{
    return intern(s, (dg_syntax_node){.kind = DG_KIND_LAYOUT, .a = (uint32_t)layout});
}

dg_node dg_syntax_symbol(dg_syntax *s, int32_t id, const char *name, size_t len)
{
    size_t i = 0;
    for (; i < s->n_symbol; i++) {
        const dg_symbol *y = &s->symbol[i];
        if (y->name ? name && strlen(y->name) == len && !memcmp(y->name, name, len)
                    : !name && y->id == id)
            break;
    }
    if (i == s->n_symbol) {
        if (!GROW(s, symbol, 1, 1024))
            return DG_NODE_NEVER;
        char *copy = name ? dg_strndup(name, len) : NULL;
        if (name && !copy) {
            dg_syntax_fail(s, DGEMMA_E_NOMEM, "out of memory");
            return DG_NODE_NEVER;
        }
        s->symbol[s->n_symbol++] = (dg_symbol){.id = name ? -1 : id, .name = copy};
    }
    return intern(s, (dg_syntax_node){.kind = DG_KIND_SYMBOL, .a = (uint32_t)i});
}

/* ---- nodes with children ---- */

static dg_node intern_list(dg_syntax *s, dg_node_kind kind, const dg_node *child, size_t n)
{
    if (!GROW(s, child, n, DG_SYNTAX_MAX_CHILDREN))
        return DG_NODE_NEVER;
    memcpy(s->child + s->n_child, child, n * sizeof *child);
    size_t before = s->n_node;
    dg_node id = intern(
        s, (dg_syntax_node){.kind = (uint8_t)kind, .a = (uint32_t)s->n_child, .b = (uint32_t)n});
    s->n_child += s->n_node > before ? n : 0;
    return id;
}

/* Two literals in a row are one. */
static dg_node join_literals(dg_syntax *s, dg_node first, dg_node second)
{
    const dg_syntax_node a = s->node[first], b = s->node[second];
    size_t n = (size_t)a.b + b.b;
    if (!GROW(s, text, n, DG_SYNTAX_MAX_BYTES))
        return DG_NODE_NEVER;
    char *text = s->text + s->n_text;
    memcpy(text, s->text + a.a, a.b);
    memcpy(text + a.b, s->text + b.a, b.b);
    size_t before = s->n_node;
    dg_node id = intern(
        s, (dg_syntax_node){.kind = DG_KIND_LITERAL, .a = (uint32_t)s->n_text, .b = (uint32_t)n});
    s->n_text += s->n_node > before ? n : 0;
    return id;
}

/* Long runs stay in pieces: each joined one is kept. */
static bool may_join(const dg_syntax *s, dg_node first, dg_node second)
{
    return s->node[first].kind == DG_KIND_LITERAL && s->node[second].kind == DG_KIND_LITERAL &&
           s->node[first].b < 64;
}

dg_node dg_syntax_sequence(dg_syntax *s, const dg_node *child, size_t n)
{
    if (s->status)
        return DG_NODE_NEVER;
    dg_node few[16], *kept = n <= DG_COUNT(few) ? few : dg_array(n, sizeof *kept);
    if (!kept) {
        dg_syntax_fail(s, DGEMMA_E_NOMEM, "out of memory");
        return DG_NODE_NEVER;
    }
    size_t k = 0;
    bool never = false;
    for (size_t i = 0; i < n; i++) {
        never |= child[i] == DG_NODE_NEVER;
        if (k && may_join(s, kept[k - 1], child[i]))
            kept[k - 1] = join_literals(s, kept[k - 1], child[i]);
        else if (child[i] != DG_NODE_EMPTY)
            kept[k++] = child[i];
    }
    dg_node id = never    ? DG_NODE_NEVER
                 : k == 0 ? DG_NODE_EMPTY
                 : k == 1 ? kept[0]
                          : intern_list(s, DG_KIND_SEQUENCE, kept, k);
    if (kept != few)
        dg_free(kept);
    return id;
}

/* Sets of bytes and single bytes among the alternatives become one set. */
static bool join_bytes(const dg_syntax *s, dg_node id, dg_byte_set *set)
{
    const dg_syntax_node *n = &s->node[id];
    if (n->kind == DG_KIND_LITERAL && n->b == 1) {
        dg_byte_set_add(set, (unsigned char)s->text[n->a]);
        return true;
    }
    if (n->kind != DG_KIND_BYTES)
        return false;
    for (int i = 0; i < 4; i++)
        set->bit[i] |= s->set[n->a].bit[i];
    return true;
}

dg_node dg_syntax_choice(dg_syntax *s, const dg_node *child, size_t n)
{
    if (s->status)
        return DG_NODE_NEVER;
    dg_node few[16], *kept = n < DG_COUNT(few) ? few : dg_array(n + 1, sizeof *kept);
    if (!kept) {
        dg_syntax_fail(s, DGEMMA_E_NOMEM, "out of memory");
        return DG_NODE_NEVER;
    }
    size_t k = 0, n_joined = 0;
    dg_byte_set set = {{0}};
    for (size_t i = 0; i < n; i++) {
        if (join_bytes(s, child[i], &set))
            n_joined++;
        else if (child[i] != DG_NODE_NEVER && (!k || kept[k - 1] != child[i]))
            kept[k++] = child[i];
    }
    if (n_joined)
        kept[k++] = dg_syntax_bytes(s, &set);
    dg_node id = k == 0   ? DG_NODE_NEVER
                 : k == 1 ? kept[0]
                          : intern_list(s, DG_KIND_CHOICE, kept, k);
    if (kept != few)
        dg_free(kept);
    return id;
}

dg_node dg_syntax_pair(dg_syntax *s, dg_node first, dg_node second)
{
    return dg_syntax_sequence(s, (const dg_node[]){first, second}, 2);
}

dg_node dg_syntax_either(dg_syntax *s, dg_node one, dg_node other)
{
    return dg_syntax_choice(s, (const dg_node[]){one, other}, 2);
}

dg_node dg_syntax_repeat(dg_syntax *s, dg_node child, uint32_t min, uint32_t max)
{
    if (min > max || (child == DG_NODE_NEVER && min))
        return DG_NODE_NEVER;
    if (max == 0 || child == DG_NODE_EMPTY || child == DG_NODE_NEVER)
        return DG_NODE_EMPTY;
    if (min == 1 && max == 1)
        return child;
    return intern(s, (dg_syntax_node){.kind = DG_KIND_REPEAT, .a = child, .b = min, .c = max});
}

dg_node dg_syntax_nest(dg_syntax *s, dg_node child)
{
    return child == DG_NODE_NEVER ? child
                                  : intern(s, (dg_syntax_node){.kind = DG_KIND_NEST, .a = child});
}

dg_node dg_syntax_style(dg_syntax *s, dg_node child, unsigned styles)
{
    return child == DG_NODE_NEVER
               ? child
               : intern(s, (dg_syntax_node){.kind = DG_KIND_STYLE, .a = child, .b = styles});
}

dg_node dg_syntax_rule(dg_syntax *s)
{
    return intern(s, (dg_syntax_node){.kind = DG_KIND_RULE});
}

void dg_syntax_define(dg_syntax *s, dg_node rule, dg_node body)
{
    if (!s->status)
        s->node[rule].a = body;
}

/* ---- many words ---- */

static int compare_words(const void *x, const void *y)
{
    const dg_word_text *a = x, *b = y;
    size_t n = a->len < b->len ? a->len : b->len;
    int c = n ? memcmp(a->data, b->data, n) : 0;
    return c ? c : (a->len > b->len) - (a->len < b->len);
}

/* words[0 … n), n >= 1, sorted, have their first `from` bytes in common. */
static dg_node words_from(dg_syntax *s, const dg_word_text *words, size_t n, size_t from)
{
    const dg_word_text *first = &words[0], *last = &words[n - 1];
    size_t common = from;
    while (common < first->len && common < last->len && first->data[common] == last->data[common])
        common++;
    dg_node head = dg_syntax_literal(s, first->data + from, common - from);
    if (first->len == common && last->len == common) /* they are all the same */
        return head;
    dg_node branch[257];
    size_t n_branch = 0, i = 0;
    for (; i < n && words[i].len == common; i++)
        branch[0] = DG_NODE_EMPTY, n_branch = 1;
    while (i < n) {
        size_t end = i + 1;
        while (end < n && words[end].data[common] == words[i].data[common])
            end++;
        branch[n_branch++] = words_from(s, words + i, end - i, common);
        i = end;
    }
    return dg_syntax_pair(s, head, dg_syntax_choice(s, branch, n_branch));
}

dg_node dg_syntax_words(dg_syntax *s, dg_word_text *words, size_t n)
{
    if (!n)
        return DG_NODE_NEVER;
    qsort(words, n, sizeof *words, compare_words);
    return words_from(s, words, n, 0);
}
