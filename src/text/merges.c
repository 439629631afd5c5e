#include "text/merges.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

bool dg_merge_split(dg_merge *out, const char *text, size_t len)
{
    const char *space = len > 1 ? memchr(text + 1, ' ', len - 1) : NULL;
    if (!space)
        return false;
    out->left = (dg_piece){text, (size_t)(space - text)};
    out->right = (dg_piece){space + 1, len - out->left.len - 1};
    return true;
}

void dg_merges_clear(dg_merges *m)
{
    dg_free(m->at);
    *m = (dg_merges){0};
}

/* ---- written merges ---- */

/* Why a merge cannot be used, or NULL. */
static const char *resolve(dg_merge_ids *out, const dg_pieces *p, const dg_merge *merge)
{
    char whole[DG_PIECE_MAX];
    const dg_piece *l = &merge->left, *r = &merge->right;
    if (l->len > sizeof whole || r->len > sizeof whole - l->len)
        return "is longer than any piece";
    memcpy(whole, l->text, l->len);
    memcpy(whole + l->len, r->text, r->len);

    out->left = dg_pieces_find(p, l->text, l->len);
    out->right = dg_pieces_find(p, r->text, r->len);
    out->merged = dg_pieces_find(p, whole, l->len + r->len);
    if (out->left < 0 || out->right < 0 || out->merged < 0)
        return "names or makes a piece that is not in the vocabulary";
    if ((p->kinds[out->left] | p->kinds[out->right] | p->kinds[out->merged]) & DG_PIECE_BYTE)
        return "involves a byte token, which stands for a byte and never merges here";
    return NULL;
}

dgemma_status dg_merges_resolve(dg_merges *m, const dg_pieces *p, const dg_vocabulary *v,
                                dgemma_error *err)
{
    if (v->n_merge > DG_VOCABULARY_MAX_MERGES)
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: %zu merges, wanted at most %d", v->where,
                       v->n_merge, DG_VOCABULARY_MAX_MERGES);
    m->at = dg_array(v->n_merge, sizeof *m->at);
    if (!m->at)
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory for %zu merges", v->where,
                       v->n_merge);
    m->cap = v->n_merge;
    for (; m->n < v->n_merge; m->n++) {
        const char *wrong = resolve(&m->at[m->n], p, &v->merges[m->n]);
        if (wrong)
            return dg_fail(err, DGEMMA_E_FORMAT, "%s: merge %zu %s", v->where, m->n, wrong);
    }
    return DGEMMA_OK;
}

/* ---- derived merges ---- */

static bool append(dg_merges *m, dg_merge_ids merge)
{
    if (m->n == DG_VOCABULARY_MAX_MERGES)
        return false;
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 1024;
        dg_merge_ids *at = dg_array_resize(m->at, cap, sizeof *at);
        if (!at)
            return false;
        m->at = at;
        m->cap = cap;
    }
    m->at[m->n++] = merge;
    return true;
}

static bool is_char_start(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

static bool may_merge(const dg_pieces *p, int32_t id)
{
    return id >= 0 && !(p->kinds[id] & DG_PIECE_BYTE);
}

/* Appends the merges of one piece, longest left part first. */
static bool append_splits(dg_merges *m, const dg_pieces *p, int32_t id)
{
    dg_piece piece = dg_pieces_at(p, id);
    if (!may_merge(p, id))
        return true;

    int32_t left[DG_PIECE_MAX_DERIVED];
    uint64_t hash = DG_PIECES_HASH_START;
    for (size_t i = 1; i < piece.len; i++) {
        hash = dg_pieces_hash(hash, piece.text + i - 1, 1);
        left[i] = is_char_start(piece.text[i]) ? dg_pieces_find_hashed(p, hash, piece.text, i) : -1;
    }
    for (size_t i = piece.len - 1; i > 0; i--) {
        if (!may_merge(p, left[i]))
            continue;
        int32_t right = dg_pieces_find(p, piece.text + i, piece.len - i);
        if (may_merge(p, right) && !append(m, (dg_merge_ids){left[i], right, id}))
            return false;
    }
    return true;
}

typedef struct sortable_merge {
    dg_merge_ids ids;
    int n_left, n_right; /* characters */
} sortable_merge;

static int count_chars(const dg_pieces *p, int32_t id)
{
    dg_piece piece = dg_pieces_at(p, id);
    int n = 0;
    for (size_t i = 0; i < piece.len; i++)
        n += is_char_start(piece.text[i]);
    return n;
}

static int compare_by_length(const void *va, const void *vb)
{
    const sortable_merge *a = va, *b = vb;
    if (a->n_left != b->n_left)
        return a->n_left > b->n_left ? -1 : 1;
    if (a->n_right != b->n_right)
        return a->n_right > b->n_right ? -1 : 1;
    return (a->ids.merged > b->ids.merged) - (a->ids.merged < b->ids.merged);
}

static bool sort_by_length(dg_merges *m, const dg_pieces *p)
{
    sortable_merge *all = dg_array(m->n, sizeof *all);
    if (!all)
        return false;
    for (size_t i = 0; i < m->n; i++)
        all[i] = (sortable_merge){m->at[i], count_chars(p, m->at[i].left),
                                  count_chars(p, m->at[i].right)};
    qsort(all, m->n, sizeof *all, compare_by_length);
    for (size_t i = 0; i < m->n; i++)
        m->at[i] = all[i].ids;
    dg_free(all);
    return true;
}

/* Ids [*from, *to) are the learned pieces. */
static void find_learned(const dg_pieces *p, int32_t *from, int32_t *to)
{
    *from = 0;
    for (int byte = 0; byte < 256; byte++)
        if (p->byte_id[byte] >= *from)
            *from = p->byte_id[byte] + 1;
    int32_t tab = dg_pieces_find(p, "\t", 1);
    *to = tab >= *from ? tab : p->n;
}

dgemma_status dg_merges_derive(dg_merges *m, const dg_pieces *p, const char *where,
                               dgemma_error *err)
{
    for (int32_t id = 0; id < p->n; id++)
        if (dg_pieces_at(p, id).len > DG_PIECE_MAX_DERIVED)
            return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                           "%s has no merges, and the piece of id %" PRId32
                           " is longer than the %d bytes up to which they are derived",
                           where, id, DG_PIECE_MAX_DERIVED);

    /* The first learned piece has the same score as those defined by hand, and is sorted among
     * them. */
    int32_t from, to;
    find_learned(p, &from, &to);
    bool ok = true;
    for (int32_t id = 0; ok && id < p->n; id++)
        if (id <= from || id >= to)
            ok = append_splits(m, p, id);
    ok = ok && sort_by_length(m, p);
    for (int32_t id = from + 1; ok && id < to; id++)
        ok = append_splits(m, p, id);
    if (!ok && m->n == DG_VOCABULARY_MAX_MERGES)
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: the pieces split in more than %d ways", where,
                       DG_VOCABULARY_MAX_MERGES);
    return ok ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory for merges", where);
}
