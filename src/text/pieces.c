#include "text/pieces.h"
#include <inttypes.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"

/* A vocabulary made to collide would turn look-ups into walks over the table. With half of the
 * slots free a real one stays far below this. */
enum { MAX_PROBES = 512 };

struct dg_piece_slot {
    uint32_t hash; /* upper half: most misses end here, without touching the text */
    int32_t id;    /* -1: free */
};

uint64_t dg_pieces_hash(uint64_t hash, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001B3); /* FNV-1a */
    return hash;
}

/* FNV leaves its high bits weak for short strings. */
static uint64_t finish(uint64_t h)
{
    h = (h ^ h >> 32) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

int32_t dg_pieces_find_hashed(const dg_pieces *p, uint64_t hash, const char *text, size_t len)
{
    uint64_t h = finish(hash);
    for (size_t probe = 0; probe <= MAX_PROBES; probe++) {
        const dg_piece_slot *slot = &p->slots[(size_t)(h + probe) & (p->n_slot - 1)];
        if (slot->id < 0)
            break;
        if (slot->hash != (uint32_t)(h >> 32))
            continue;
        dg_piece piece = dg_pieces_at(p, slot->id);
        if (piece.len == len && memcmp(piece.text, text, len) == 0)
            return slot->id;
    }
    return -1;
}

int32_t dg_pieces_find(const dg_pieces *p, const char *text, size_t len)
{
    return dg_pieces_find_hashed(p, dg_pieces_hash(DG_PIECES_HASH_START, text, len), text, len);
}

static bool insert(dg_pieces *p, uint64_t hash, int32_t id)
{
    uint64_t h = finish(hash);
    for (size_t probe = 0; probe <= MAX_PROBES; probe++) {
        dg_piece_slot *slot = &p->slots[(size_t)(h + probe) & (p->n_slot - 1)];
        if (slot->id < 0) {
            *slot = (dg_piece_slot){(uint32_t)(h >> 32), id};
            return true;
        }
    }
    return false;
}

static dgemma_status check_pieces(const dg_vocabulary *v, size_t *n_bytes, dgemma_error *err)
{
    if (v->n_piece == 0 || v->n_piece > DG_VOCABULARY_MAX_PIECES)
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: %zu pieces, wanted 1 to %d", v->where, v->n_piece,
                       DG_VOCABULARY_MAX_PIECES);
    *n_bytes = 0;
    for (size_t i = 0; i < v->n_piece; i++) {
        size_t len = v->pieces[i].len;
        if (len == 0 || len > DG_PIECE_MAX)
            return dg_fail(err, DGEMMA_E_LIMIT,
                           "%s: the piece of id %zu has %zu bytes, wanted 1 to %d", v->where, i,
                           len, DG_PIECE_MAX);
        if (!dg_utf8_valid(v->pieces[i].text, len))
            return dg_fail(err, DGEMMA_E_FORMAT, "%s: the piece of id %zu is not UTF-8", v->where,
                           i);
        *n_bytes += len;
        if (*n_bytes > DG_VOCABULARY_MAX_BYTES)
            return dg_fail(err, DGEMMA_E_LIMIT, "%s: the pieces have more than %d bytes", v->where,
                           DG_VOCABULARY_MAX_BYTES);
    }
    return DGEMMA_OK;
}

static bool allocate(dg_pieces *p, size_t n_piece, size_t n_bytes)
{
    p->n_slot = 2;
    while (p->n_slot < 2 * n_piece)
        p->n_slot *= 2;
    p->text = dg_malloc(n_bytes);
    p->start = dg_array(n_piece + 1, sizeof *p->start);
    p->kinds = dg_calloc(n_piece, 1);
    p->slots = dg_array(p->n_slot, sizeof *p->slots);
    if (!p->text || !p->start || !p->kinds || !p->slots)
        return false;
    for (size_t i = 0; i < p->n_slot; i++)
        p->slots[i].id = -1;
    return true;
}

static dgemma_status copy_pieces(dg_pieces *p, const dg_vocabulary *v, dgemma_error *err)
{
    uint32_t used = 0;
    for (size_t i = 0; i < v->n_piece; i++) {
        dg_piece piece = v->pieces[i];
        uint64_t hash = dg_pieces_hash(DG_PIECES_HASH_START, piece.text, piece.len);
        int32_t twin = dg_pieces_find_hashed(p, hash, piece.text, piece.len);
        if (twin >= 0)
            return dg_fail(err, DGEMMA_E_FORMAT, "%s: ids %" PRId32 " and %zu have the same piece",
                           v->where, twin, i);
        memcpy(p->text + used, piece.text, piece.len);
        p->start[i] = used;
        used += (uint32_t)piece.len;
        p->start[i + 1] = used;
        if (!insert(p, hash, (int32_t)i))
            return dg_fail(err, DGEMMA_E_FORMAT,
                           "%s: more than %d pieces were made to share a hash", v->where,
                           MAX_PROBES);
    }
    p->n = (int32_t)v->n_piece;
    return DGEMMA_OK;
}

static dgemma_status find_byte_tokens(dg_pieces *p, const char *where, dgemma_error *err)
{
    for (int byte = 0; byte < 256; byte++) {
        static const char digits[] = "0123456789ABCDEF";
        const char name[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>', '\0'};
        int32_t id = dg_pieces_find(p, name, 6);
        if (id < 0)
            return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                           "%s: no piece %s; wanted a vocabulary with all 256 byte tokens", where,
                           name);
        p->byte_id[byte] = id;
        p->kinds[id] |= DG_PIECE_BYTE;
    }
    return DGEMMA_OK;
}

static dgemma_status mark_added(dg_pieces *p, const dg_vocabulary *v, dgemma_error *err)
{
    for (size_t i = 0; i < v->n_added; i++) {
        int32_t id = v->added[i].id;
        if (id < 0 || id >= p->n)
            return dg_fail(err, DGEMMA_E_FORMAT,
                           "%s: an added token has id %" PRId32 ", the vocabulary has %" PRId32
                           " pieces",
                           v->where, id, p->n);
        if (dg_pieces_at(p, id).len > DG_PIECE_MAX_ADDED)
            return dg_fail(err, DGEMMA_E_LIMIT,
                           "%s: the added token %" PRId32 " has %zu bytes, wanted at most %d",
                           v->where, id, dg_pieces_at(p, id).len, DG_PIECE_MAX_ADDED);
        if (p->kinds[id] & DG_PIECE_ADDED)
            return dg_fail(err, DGEMMA_E_FORMAT, "%s: the added token %" PRId32 " is listed twice",
                           v->where, id);
        p->kinds[id] |= v->added[i].special ? DG_PIECE_ADDED | DG_PIECE_SPECIAL : DG_PIECE_ADDED;
    }
    return DGEMMA_OK;
}

dgemma_status dg_pieces_init(dg_pieces *p, const dg_vocabulary *v, dgemma_error *err)
{
    size_t n_bytes = 0;
    dgemma_status st = check_pieces(v, &n_bytes, err);
    if (st)
        return st;
    if (!allocate(p, v->n_piece, n_bytes))
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory for %zu pieces", v->where,
                       v->n_piece);
    st = copy_pieces(p, v, err);
    if (!st)
        st = find_byte_tokens(p, v->where, err);
    if (!st)
        st = mark_added(p, v, err);
    return st;
}

void dg_pieces_clear(dg_pieces *p)
{
    dg_free(p->text);
    dg_free(p->start);
    dg_free(p->kinds);
    dg_free(p->slots);
    *p = (dg_pieces){0};
}

static unsigned hex_value(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'A' + 10);
}

unsigned char dg_pieces_byte(const dg_pieces *p, int32_t id)
{
    const char *name = dg_pieces_at(p, id).text; /* "<0xHH>" */
    return (unsigned char)(hex_value(name[3]) << 4 | hex_value(name[4]));
}
