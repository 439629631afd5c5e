#include "text/tokenizer.h"
#include <inttypes.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "text/added_tokens.h"
#include "text/bpe.h"

enum {
    SPACE_MARK = 0x2581, /* stands for a space inside pieces */
    CHARS_PER_PAGE = 256,
    N_PAGE = 0x110000 / CHARS_PER_PAGE
};

struct dg_tokenizer {
    dg_pieces pieces;
    dg_added_tokens added;
    dg_bpe bpe;
    bool keep_spaces;
    int32_t bos;
    size_t longest; /* characters of the longest piece */

    /* Pieces of one character: char_id[page[c / 256]][c % 256], -1 for none. Page 0 is empty and
     * shared by all the blocks of Unicode that the vocabulary does not touch. */
    uint16_t page[N_PAGE];
    int32_t (*char_id)[CHARS_PER_PAGE];
};

/* ---- making one ---- */

/* The character that a piece consists of; false when it has more of them, or is no plain text. */
static bool is_char_piece(const dg_pieces *p, int32_t id, uint32_t *c)
{
    dg_piece piece = dg_pieces_at(p, id);
    return !(p->kinds[id] & DG_PIECE_SPECIAL) &&
           dg_utf8_decode(piece.text, piece.len, c) == piece.len;
}

static bool index_chars(dg_tokenizer *t)
{
    uint32_t c;
    uint16_t n_page = 1;
    for (int32_t id = 0; id < t->pieces.n; id++)
        if (is_char_piece(&t->pieces, id, &c) && !t->page[c / CHARS_PER_PAGE])
            t->page[c / CHARS_PER_PAGE] = n_page++;

    t->char_id = dg_array(n_page, sizeof *t->char_id);
    if (!t->char_id)
        return false;
    memset(t->char_id, 0xFF, n_page * sizeof *t->char_id);
    for (int32_t id = 0; id < t->pieces.n; id++)
        if (is_char_piece(&t->pieces, id, &c))
            t->char_id[t->page[c / CHARS_PER_PAGE]][c % CHARS_PER_PAGE] = id;
    return true;
}

static dgemma_status build_bpe(dg_tokenizer *t, const dg_vocabulary *v, dgemma_error *err)
{
    dg_merges merges = {0};
    dgemma_status st = v->merges ? dg_merges_resolve(&merges, &t->pieces, v, err)
                                 : dg_merges_derive(&merges, &t->pieces, v->where, err);
    if (!st)
        st = dg_bpe_init(&t->bpe, &t->pieces, &merges, v->where, err);
    dg_merges_clear(&merges);
    return st;
}

/* Characters, where bytes that are not UTF-8 may be counted with their neighbours: never more than
 * there are. */
static size_t count_chars(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

static size_t longest_piece(const dg_pieces *p)
{
    size_t longest = 1;
    for (int32_t id = 0; id < p->n; id++) {
        dg_piece piece = dg_pieces_at(p, id);
        size_t n = piece.len > longest ? count_chars(piece.text, piece.len) : 0;
        longest = n > longest ? n : longest;
    }
    return longest;
}

dgemma_status dg_tokenizer_create(dg_tokenizer **out, const dg_vocabulary *v, dgemma_error *err)
{
    *out = NULL;
    dg_tokenizer *t = dg_calloc(1, sizeof *t);
    if (!t)
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", v->where);

    dgemma_status st = dg_pieces_init(&t->pieces, v, err);
    if (st)
        goto fail;
    st = build_bpe(t, v, err);
    if (st)
        goto fail;
    if (!dg_added_tokens_init(&t->added, &t->pieces) || !index_chars(t)) {
        st = dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", v->where);
        goto fail;
    }
    t->bos = dg_pieces_find(&t->pieces, "<bos>", 5);
    t->keep_spaces = v->keep_spaces;
    t->longest = longest_piece(&t->pieces);
    *out = t;
    return DGEMMA_OK;

fail:
    dg_tokenizer_free(t);
    return st;
}

void dg_tokenizer_free(dg_tokenizer *t)
{
    if (!t)
        return;
    dg_pieces_clear(&t->pieces);
    dg_added_tokens_clear(&t->added);
    dg_bpe_clear(&t->bpe);
    dg_free(t->char_id);
    dg_free(t);
}

/* ---- questions ---- */

int32_t dg_tokenizer_count(const dg_tokenizer *t)
{
    return t->pieces.n;
}

static bool has_id(const dg_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->pieces.n;
}

dg_piece dg_tokenizer_piece(const dg_tokenizer *t, int32_t id)
{
    return has_id(t, id) ? dg_pieces_at(&t->pieces, id) : (dg_piece){NULL, 0};
}

int32_t dg_tokenizer_added_id(const dg_tokenizer *t, const char *name)
{
    int32_t id = dg_pieces_find(&t->pieces, name, strlen(name));
    return id >= 0 && t->pieces.kinds[id] & DG_PIECE_ADDED ? id : -1;
}

bool dg_tokenizer_is_special(const dg_tokenizer *t, int32_t id)
{
    return has_id(t, id) && t->pieces.kinds[id] & DG_PIECE_SPECIAL;
}

int32_t dg_tokenizer_bos(const dg_tokenizer *t)
{
    return t->bos;
}

bool dg_tokenizer_merges(const dg_tokenizer *t, dg_merges *m)
{
    return dg_bpe_merges(&t->bpe, m);
}

bool dg_tokenizer_keeps_spaces(const dg_tokenizer *t)
{
    return t->keep_spaces;
}

/* ---- text to tokens ---- */

void dg_tokens_init(dg_tokens *t, size_t max)
{
    *t = (dg_tokens){.max = max};
}

void dg_tokens_clear(dg_tokens *t)
{
    dg_free(t->ids);
    *t = (dg_tokens){.max = t->max};
}

bool dg_tokens_fit(dg_tokens *t, size_t n)
{
    if (n <= t->max - t->n)
        return true;
    if (t->least < t->n + n)
        t->least = t->n + n;
    return false;
}

bool dg_tokens_push(dg_tokens *t, int32_t id)
{
    if (!dg_tokens_fit(t, 1))
        return false;
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        if (cap > t->max)
            cap = t->max;
        int32_t *ids = dg_array_resize(t->ids, cap, sizeof *ids);
        if (!ids)
            return false;
        t->ids = ids;
        t->cap = cap;
    }
    t->ids[t->n++] = id;
    return true;
}

size_t dg_tokenizer_least(const dg_tokenizer *t, const char *text, size_t len)
{
    return (count_chars(text, len) + t->longest - 1) / t->longest;
}

static bool finish_word(const dg_tokenizer *t, dg_bpe_word *word, dg_tokens *out)
{
    if (!dg_bpe_merge(&t->bpe, word))
        return false;
    for (size_t i = 0; i < word->n; i++)
        if (!dg_tokens_push(out, word->ids[i]))
            return false;
    word->n = 0;
    return true;
}

static bool push_bytes(const dg_tokenizer *t, const char *text, size_t len, dg_tokens *out)
{
    for (size_t i = 0; i < len; i++)
        if (!dg_tokens_push(out, t->pieces.byte_id[(unsigned char)text[i]]))
            return false;
    return true;
}

/* Encodes a stretch without added tokens. A word ends where no merge can reach across
 * (dg_bpe_joins), and at whatever has no piece: bytes that are not UTF-8, and characters outside
 * the vocabulary, which are written as the bytes of the text (so a space is never lost). */
static bool encode_plain(const dg_tokenizer *t, const char *text, size_t len, dg_bpe_word *word,
                         dg_tokens *out)
{
    uint32_t last = 0;
    for (size_t i = 0, step; i < len; i += step) {
        uint32_t c = 0;
        int32_t id = -1;
        step = dg_utf8_decode(text + i, len - i, &c);
        if (step) {
            if (c == ' ' && !t->keep_spaces)
                c = SPACE_MARK;
            id = t->char_id[t->page[c / CHARS_PER_PAGE]][c % CHARS_PER_PAGE];
        } else {
            step = 1;
        }

        bool joined = id >= 0 && word->n && dg_bpe_joins(&t->bpe, last, c);
        if (!joined && !finish_word(t, word, out))
            return false;
        if (id >= 0 ? !dg_bpe_word_push(word, id) : !push_bytes(t, text + i, step, out))
            return false;
        last = c;
    }
    return finish_word(t, word, out);
}

static bool encode(const dg_tokenizer *t, const char *text, size_t len, bool match_added,
                   dg_bpe_word *word, dg_tokens *out)
{
    while (len) {
        dg_added token = {.piece = {NULL, 0}};
        size_t plain = match_added ? dg_added_tokens_find(&t->added, text, len, &token) : len;
        if (!encode_plain(t, text, plain, word, out))
            return false;
        if (plain == len)
            break;
        if (!dg_tokens_push(out, token.id))
            return false;
        text += plain + token.piece.len;
        len -= plain + token.piece.len;
    }
    return true;
}

dgemma_status dg_tokenizer_encode(const dg_tokenizer *t, const char *text, size_t len,
                                  unsigned flags, dg_tokens *out, dgemma_error *err)
{
    if (len > DG_ENCODE_MAX_TEXT)
        return dg_fail(err, DGEMMA_E_LIMIT, "a text of %zu bytes to tokenize, wanted at most %d",
                       len, DG_ENCODE_MAX_TEXT);
    if (flags & DG_ENCODE_BOS && t->bos < 0)
        return dg_fail(err, DGEMMA_E_ARG, "asked for <bos>, which this vocabulary does not have");

    size_t before = out->n;
    dg_bpe_word word = {0};
    bool ok = dg_tokens_fit(out, dg_tokenizer_least(t, text, len)) &&
              (!(flags & DG_ENCODE_BOS) || dg_tokens_push(out, t->bos)) &&
              encode(t, text, len, flags & DG_ENCODE_ADDED, &word, out);
    dg_bpe_word_clear(&word);
    if (ok)
        return DGEMMA_OK;

    bool full = out->least > out->max;
    out->n = before;
    return full ? dg_fail(err, DGEMMA_E_LIMIT, "the text has more than %zu tokens",
                          out->max - before)
                : dg_fail(err, DGEMMA_E_NOMEM, "out of memory for the tokens of %zu bytes", len);
}

/* ---- tokens to text ---- */

void dg_decoder_init(dg_decoder *d, const dg_tokenizer *t, bool print_special)
{
    *d = (dg_decoder){.tokenizer = t, .print_special = print_special};
}

static bool append_replacement(dg_buf *out)
{
    return dg_buf_append(out, "\xEF\xBF\xBD", 3); /* U+FFFD */
}

bool dg_decoder_flush(dg_decoder *d, dg_buf *out)
{
    bool cut_off = d->n_held > 0;
    d->n_held = 0;
    return !cut_off || append_replacement(out);
}

/* What is held can always still become a character; a byte that does not fit ends that hope. */
static bool push_byte(dg_decoder *d, char byte, dg_buf *out)
{
    d->held[d->n_held++] = byte;
    for (;;) {
        size_t n = d->n_held;
        if (dg_utf8_decode(d->held, n, NULL) == n) {
            d->n_held = 0;
            return dg_buf_append(out, d->held, n);
        }
        if (dg_utf8_partial(d->held, n) == n)
            return true;
        d->n_held = 0;
        if (!append_replacement(out))
            return false;
        if (n == 1)
            return true;
        d->held[d->n_held++] = byte;
    }
}

static bool append_piece(dg_piece piece, bool keep_spaces, dg_buf *out)
{
    static const char mark[] = "\xE2\x96\x81"; /* SPACE_MARK */
    while (piece.len) {
        const char *at = keep_spaces ? NULL : memmem(piece.text, piece.len, mark, 3);
        size_t plain = at ? (size_t)(at - piece.text) : piece.len;
        if (!dg_buf_append(out, piece.text, plain))
            return false;
        if (!at)
            break;
        if (!dg_buf_append(out, " ", 1))
            return false;
        piece.text += plain + 3;
        piece.len -= plain + 3;
    }
    return true;
}

bool dg_decoder_push(dg_decoder *d, int32_t id, dg_buf *out)
{
    const dg_tokenizer *t = d->tokenizer;
    if (!has_id(t, id) || (!d->print_special && dg_tokenizer_is_special(t, id)))
        return true;
    if (t->pieces.kinds[id] & DG_PIECE_BYTE)
        return push_byte(d, (char)dg_pieces_byte(&t->pieces, id), out);
    return dg_decoder_flush(d, out) &&
           append_piece(dg_pieces_at(&t->pieces, id), t->keep_spaces, out);
}

dgemma_status dg_tokenizer_decode(const dg_tokenizer *t, const int32_t *ids, size_t n,
                                  bool print_special, dg_buf *out, dgemma_error *err)
{
    dg_decoder d;
    dg_decoder_init(&d, t, print_special);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = dg_decoder_push(&d, ids[i], out);
    if (!ok || !dg_decoder_flush(&d, out))
        return dg_fail(err, DGEMMA_E_LIMIT,
                       "the text of %zu tokens has more than %zu bytes, or memory is out", n,
                       out->max);
    return DGEMMA_OK;
}
