/* Text to token ids and back: byte-pair encoding over Unicode characters with byte fallback, as
 * Gemma does it. A tokenizer never changes once made and may be used from many threads. */
#ifndef DG_TEXT_TOKENIZER_H
#define DG_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/error.h"
#include "text/merges.h"
#include "text/vocabulary.h"

typedef struct dg_tokenizer dg_tokenizer;

/* *out belongs to the caller, who gives it back with dg_tokenizer_free. */
dgemma_status dg_tokenizer_create(dg_tokenizer **out, const dg_vocabulary *v, dgemma_error *err);
void dg_tokenizer_free(dg_tokenizer *t); /* NULL is fine */

/* From the content of a tokenizer.json; `where` names it in messages. What the file asks for beyond
 * what this tokenizer does is refused (DGEMMA_E_UNSUPPORTED), except truncation and padding, which
 * are settings of a call, and the <bos> of its post-processor, which is the caller's choice in
 * DG_ENCODE_BOS. */
dgemma_status dg_tokenizer_from_json(dg_tokenizer **out, const char *json, size_t len,
                                     const char *where, dgemma_error *err);

int32_t dg_tokenizer_count(const dg_tokenizer *t); /* ids are 0 … count - 1 */

/* The piece as it stands in the vocabulary (U+2581 for a space); {NULL, 0} for an id outside it.
 * The text lives as long as the tokenizer. */
dg_piece dg_tokenizer_piece(const dg_tokenizer *t, int32_t id);

/* Id of the added token with exactly this text, -1 when there is none. */
int32_t dg_tokenizer_added_id(const dg_tokenizer *t, const char *name);
bool dg_tokenizer_is_special(const dg_tokenizer *t, int32_t id);
int32_t dg_tokenizer_bos(const dg_tokenizer *t); /* of <bos>; -1 when there is none */

/* What files keep of it beside the pieces: the merges in the order of their rank, for the caller to
 * clear (*m is zero before; false: out of memory), and whether a space stays one in pieces. */
bool dg_tokenizer_merges(const dg_tokenizer *t, dg_merges *m);
bool dg_tokenizer_keeps_spaces(const dg_tokenizer *t);

/* ---- text to tokens ---- */

/* A growing array of ids with a ceiling. */
typedef struct dg_tokens {
    int32_t *ids;
    size_t n, cap, max;
    size_t least; /* 0, or how many were to be here at least when the ceiling was in the way */
} dg_tokens;

void dg_tokens_init(dg_tokens *t, size_t max);
void dg_tokens_clear(dg_tokens *t);            /* frees; may be used again */
bool dg_tokens_push(dg_tokens *t, int32_t id); /* false: ceiling reached or memory out */
bool dg_tokens_fit(dg_tokens *t, size_t n);    /* false: n more are beyond the ceiling */

enum { DG_ENCODE_MAX_TEXT = 1 << 26 }; /* bytes in one call */

enum dg_encode_flags {
    /* Match added tokens in the text. Without it "<|turn>" is seven characters like any others: the
     * way to encode text from people who must not open turns. */
    DG_ENCODE_ADDED = 1,
    DG_ENCODE_BOS = 2 /* put <bos> in front; chat templates print their own */
};

/* No fewer tokens than this come of the text, since none has more characters than the longest
 * piece: counting characters is far cheaper than encoding. */
size_t dg_tokenizer_least(const dg_tokenizer *t, const char *text, size_t len);

/* Appends the ids of text to *out. Any bytes are fine: those that are not UTF-8 become byte tokens.
 * After a failure *out holds what it held before. DGEMMA_E_LIMIT: the text is too long, or out->max
 * was reached: out->least says more. */
dgemma_status dg_tokenizer_encode(const dg_tokenizer *t, const char *text, size_t len,
                                  unsigned flags, dg_tokens *out, dgemma_error *err);

/* ---- tokens to text ---- */

/* Turns tokens into text one at a time, never ending in the middle of a character: bytes of one
 * that byte tokens have begun are held back. Output is always UTF-8; each longest sequence of bytes
 * that cannot become a character gives one U+FFFD. Ids without a piece are skipped: a model's table
 * may have more rows than the vocabulary has pieces. */
typedef struct dg_decoder {
    const dg_tokenizer *tokenizer; /* borrowed */
    bool print_special;
    char held[4];
    size_t n_held;
} dg_decoder;

void dg_decoder_init(dg_decoder *d, const dg_tokenizer *t, bool print_special);

/* Append to *out; false when its ceiling is reached or memory is out. Flush says that no more
 * tokens come, and leaves the decoder ready for another sequence. */
bool dg_decoder_push(dg_decoder *d, int32_t id, dg_buf *out);
bool dg_decoder_flush(dg_decoder *d, dg_buf *out);

/* The whole of it: what pushing each id and flushing would append. */
dgemma_status dg_tokenizer_decode(const dg_tokenizer *t, const int32_t *ids, size_t n,
                                  bool print_special, dg_buf *out, dgemma_error *err);

#endif
