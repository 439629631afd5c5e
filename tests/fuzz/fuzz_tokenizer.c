/* The tokenizer on hostile input. A buffer that starts with '{' is a tokenizer.json. Any other is a
 * vocabulary and a text: pieces that end with a byte 0xFF, an empty one as the last, then the text;
 * pieces that start with '<' are added tokens. The vocabulary also has the byte tokens, and its
 * merges are derived. What comes out is held against the plain way to encode, and against what must
 * hold for any vocabulary. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "text/merges.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_PIECES = 64, MAX_TEXT = 160 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Pushing token by token gives the whole text, and valid UTF-8 at every step. */
static void check_decoding(const dg_tokenizer *t, const dg_tokens *tokens, dg_buf *whole)
{
    require(dg_tokenizer_decode(t, tokens->ids, tokens->n, true, whole, NULL) == DGEMMA_OK);
    dg_buf stream;
    dg_buf_init(&stream, whole->max);
    dg_decoder d;
    dg_decoder_init(&d, t, true);
    for (size_t i = 0; i < tokens->n; i++) {
        size_t before = stream.len;
        require(dg_decoder_push(&d, tokens->ids[i], &stream));
        if (stream.len > before)
            require(dg_utf8_valid(stream.data + before, stream.len - before));
    }
    require(dg_decoder_flush(&d, &stream));
    require(stream.len == whole->len);
    require(!stream.len || memcmp(stream.data, whole->data, stream.len) == 0);
    dg_buf_clear(&stream);
}

static void check_text(const dg_tokenizer *t, const char *text, size_t len, unsigned flags)
{
    dg_tokens tokens;
    dg_buf back;
    dg_tokens_init(&tokens, 1 << 20);
    dg_buf_init(&back, 1 << 20);
    require(dg_tokenizer_encode(t, text, len, flags, &tokens, NULL) == DGEMMA_OK);
    for (size_t i = 0; i < tokens.n; i++)
        require(flags & DG_ENCODE_ADDED || !dg_tokenizer_is_special(t, tokens.ids[i]));
    check_decoding(t, &tokens, &back);
    if (dg_utf8_valid(text, len) && !memmem(text, len, "\u2581", 3))
        require(back.len == len && (!len || memcmp(back.data, text, len) == 0));
    dg_tokens_clear(&tokens);
    dg_buf_clear(&back);
}

static void try_json(const char *json, size_t len)
{
    dg_tokenizer *t;
    if (dg_tokenizer_from_json(&t, json, len, "fuzz", NULL) != DGEMMA_OK)
        return;
    /* Here the text may fail to come back: a file may keep spaces and have U+2581 for anything. */
    dg_tokens tokens;
    dg_buf back;
    dg_tokens_init(&tokens, len);
    dg_buf_init(&back, 1 << 26);
    require(dg_tokenizer_encode(t, json, len, DG_ENCODE_ADDED, &tokens, NULL) == DGEMMA_OK);
    check_decoding(t, &tokens, &back);
    dg_tokens_clear(&tokens);
    dg_buf_clear(&back);
    dg_tokenizer_free(t);
}

/* ---- a vocabulary out of the buffer ---- */

typedef struct input {
    char names[256][8];
    dg_piece pieces[256 + MAX_PIECES];
    dg_added_token added[MAX_PIECES];
    dg_vocabulary v;
    const char *text;
    size_t n_text;
} input;

static void read_input(input *in, const char *data, size_t size)
{
    *in = (input){.v = {.where = "fuzz", .pieces = in->pieces, .n_piece = 256, .added = in->added}};
    for (int b = 0; b < 256; b++) {
        snprintf(in->names[b], sizeof in->names[b], "<0x%02X>", b);
        in->pieces[b] = (dg_piece){in->names[b], 6};
    }
    const char *at = data, *end = data + size, *stop;
    while (in->v.n_piece < 256 + MAX_PIECES && (stop = memchr(at, 0xFF, (size_t)(end - at)))) {
        dg_piece piece = {at, (size_t)(stop - at)};
        at = stop + 1;
        if (!piece.len)
            break;
        if (piece.text[0] == '<')
            in->added[in->v.n_added++] =
                (dg_added_token){(int32_t)in->v.n_piece, piece.len % 2 == 0};
        in->pieces[in->v.n_piece++] = piece;
    }
    in->text = at;
    in->n_text = (size_t)(end - at) < MAX_TEXT ? (size_t)(end - at) : MAX_TEXT;
}

/* The best merge of two ids, or n. */
static size_t find_rank(const dg_pieces *p, const dg_merges *m, int32_t left, int32_t right)
{
    for (size_t i = 0; i < m->n; i++) {
        const dg_merge_ids *merge = &m->at[i];
        int kinds = p->kinds[left] | p->kinds[right] | p->kinds[merge->merged];
        if (merge->left == left && merge->right == right && !(kinds & DG_PIECE_SPECIAL))
            return i;
    }
    return m->n;
}

static void merge_all(const dg_pieces *p, const dg_merges *m, dg_tokens *t)
{
    for (;;) {
        size_t best = m->n, at = 0;
        for (size_t i = 0; i + 1 < t->n; i++) {
            size_t rank = find_rank(p, m, t->ids[i], t->ids[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == m->n)
            return;
        t->ids[at] = m->at[best].merged;
        t->n--;
        memmove(&t->ids[at + 1], &t->ids[at + 2], (t->n - at - 1) * sizeof t->ids[0]);
    }
}

static void encode_plainly(const dg_pieces *p, const dg_merges *m, const input *in, dg_tokens *out)
{
    for (size_t i = 0, step; i < in->n_text; i += step) {
        const char *text = in->text + i;
        step = dg_utf8_decode(text, in->n_text - i, NULL);
        int32_t id = step ? dg_pieces_find(p, text, step) : -1;
        if (*text == ' ')
            id = dg_pieces_find(p, "\u2581", 3);
        if (id >= 0 && p->kinds[id] & DG_PIECE_SPECIAL)
            id = -1;
        step = step ? step : 1;
        if (id >= 0)
            require(dg_tokens_push(out, id));
        for (size_t k = 0; id < 0 && k < step; k++)
            require(dg_tokens_push(out, p->byte_id[(unsigned char)text[k]]));
    }
    merge_all(p, m, out);
}

static void compare_encoders(const dg_tokenizer *t, const input *in)
{
    dg_pieces pieces = {0};
    dg_merges merges = {0};
    require(dg_pieces_init(&pieces, &in->v, NULL) == DGEMMA_OK);
    require(dg_merges_derive(&merges, &pieces, "fuzz", NULL) == DGEMMA_OK);
    dg_tokens want, got;
    dg_tokens_init(&want, MAX_TEXT);
    dg_tokens_init(&got, MAX_TEXT);
    encode_plainly(&pieces, &merges, in, &want);
    require(dg_tokenizer_encode(t, in->text, in->n_text, 0, &got, NULL) == DGEMMA_OK);
    require(got.n == want.n);
    require(!got.n || memcmp(got.ids, want.ids, got.n * sizeof got.ids[0]) == 0);
    dg_tokens_clear(&want);
    dg_tokens_clear(&got);
    dg_merges_clear(&merges);
    dg_pieces_clear(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && data[0] == '{') {
        try_json((const char *)data, size);
        return 0;
    }
    input in;
    dg_tokenizer *t;
    read_input(&in, (const char *)data, size);
    if (dg_tokenizer_create(&t, &in.v, NULL) != DGEMMA_OK)
        return 0;
    check_text(t, in.text, in.n_text, 0);
    check_text(t, in.text, in.n_text, DG_ENCODE_ADDED);
    compare_encoders(t, &in);
    dg_tokenizer_free(t);
    return 0;
}
