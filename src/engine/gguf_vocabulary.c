#include "engine/gguf_vocabulary.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

/* Values of tokenizer.ggml.token_type. */
enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_UNUSED = 5, TYPE_BYTE = 6 };

/* Special, and typed as if they were not, as in published files: llama.cpp prints what is user
 * defined, and who reads calls and thoughts there looks for them in the text. */
static const char *const printed[] = {
    "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>",
    "<|\"|>",       "<|channel>",   "<channel|>",
};

static int64_t type_of(const dg_tokenizer *t, int32_t id)
{
    char name[DG_PIECE_MAX_ADDED + 1];
    dg_piece piece = dg_tokenizer_piece(t, id);
    if (piece.len > DG_PIECE_MAX_ADDED)
        return TYPE_NORMAL;
    memcpy(name, piece.text, piece.len);
    name[piece.len] = '\0';
    for (size_t i = 0; i < DG_COUNT(printed); i++)
        if (strcmp(name, printed[i]) == 0)
            return TYPE_USER_DEFINED;
    if (dg_tokenizer_is_special(t, id))
        return TYPE_CONTROL;
    if (dg_tokenizer_added_id(t, name) == id)
        return TYPE_USER_DEFINED;
    bool byte = piece.len == 6 && memcmp(name, "<0x", 3) == 0 && name[5] == '>';
    return byte ? TYPE_BYTE : TYPE_NORMAL;
}

static dgemma_status no_memory(const dg_tokenizer *t, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_NOMEM, "no memory for a vocabulary of %d pieces",
                   (int)dg_tokenizer_count(t));
}

enum { PADDING_NAME = 32 };

static size_t name_padding(char out[PADDING_NAME], size_t id)
{
    return (size_t)snprintf(out, PADDING_NAME, "[PAD%zu]", id);
}

bool dg_gguf_is_padding(const char *text, size_t len, size_t id)
{
    char name[PADDING_NAME];
    return name_padding(name, id) == len && memcmp(name, text, len) == 0;
}

static dgemma_status put_pieces(dg_gguf_writer *w, const dg_tokenizer *t, int n_vocab,
                                dgemma_error *err)
{
    const size_t n_piece = (size_t)dg_tokenizer_count(t);
    const size_t n = n_vocab > 0 && (size_t)n_vocab > n_piece ? (size_t)n_vocab : n_piece;
    dg_gguf_text *text = dg_array(n, sizeof *text);
    float *score = dg_array(n, sizeof *score);
    int64_t *type = dg_array(n, sizeof *type);
    char(*padding)[PADDING_NAME] = dg_array(n - n_piece + 1, sizeof *padding);
    const bool ok = text && score && type && padding;
    for (size_t i = 0; ok && i < n_piece; i++) {
        dg_piece piece = dg_tokenizer_piece(t, (int32_t)i);
        text[i] = (dg_gguf_text){piece.text, piece.len};
        type[i] = type_of(t, (int32_t)i);
    }
    for (size_t i = n_piece; ok && i < n; i++) {
        char *name = padding[i - n_piece];
        text[i] = (dg_gguf_text){name, name_padding(name, i)};
        type[i] = TYPE_UNUSED;
    }
    for (size_t i = 0; ok && i < n; i++)
        score[i] = -1000; /* as published: nobody reads them */
    if (ok) {
        dg_gguf_put_strings(w, "tokenizer.ggml.tokens", text, n);
        dg_gguf_put_floats(w, "tokenizer.ggml.scores", score, n);
        dg_gguf_put_ints(w, "tokenizer.ggml.token_type", DG_GGUF_I32, type, n);
    }
    dg_free(text);
    dg_free(score);
    dg_free(type);
    dg_free(padding);
    return ok ? DGEMMA_OK : no_memory(t, err);
}

/* "left right" of each merge, one after the other in *text. */
static bool write_merges(dg_buf *text, dg_gguf_text *line, const dg_merges *m,
                         const dg_tokenizer *t)
{
    bool ok = true;
    size_t at = 0;
    for (size_t i = 0; ok && i < m->n; i++) {
        dg_piece l = dg_tokenizer_piece(t, m->at[i].left),
                 r = dg_tokenizer_piece(t, m->at[i].right);
        ok = dg_buf_append(text, l.text, l.len) && dg_buf_append(text, " ", 1) &&
             dg_buf_append(text, r.text, r.len);
        line[i].len = l.len + 1 + r.len;
    }
    for (size_t i = 0; ok && i < m->n; at += line[i++].len)
        line[i].text = text->data + at;
    return ok;
}

static dgemma_status put_merges(dg_gguf_writer *w, const dg_tokenizer *t, dgemma_error *err)
{
    dg_merges m = {0};
    dg_buf text;
    dg_buf_init(&text, (size_t)1 << 30);
    bool ok = dg_tokenizer_merges(t, &m);
    dg_gguf_text *line = ok ? dg_array(m.n, sizeof *line) : NULL;
    ok = line && write_merges(&text, line, &m, t);
    if (ok)
        dg_gguf_put_strings(w, "tokenizer.ggml.merges", line, m.n);
    dg_free(line);
    dg_buf_clear(&text);
    dg_merges_clear(&m);
    return ok ? DGEMMA_OK : no_memory(t, err);
}

static void put_id(dg_gguf_writer *w, const char *key, int id)
{
    if (id >= 0)
        dg_gguf_put_int(w, key, DG_GGUF_U32, id);
}

dgemma_status dg_gguf_vocabulary_put(dg_gguf_writer *w, const dg_tokenizer *t, int n_vocab,
                                     const char *chat_template, dgemma_error *err)
{
    if (dg_tokenizer_keeps_spaces(t))
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "the tokenizer keeps spaces as they are, which GGUF has no name for");
    dg_gguf_put_string(w, "tokenizer.ggml.model", "gemma4");
    dgemma_status st = put_pieces(w, t, n_vocab, err);
    if (!st)
        st = put_merges(w, t, err);
    put_id(w, "tokenizer.ggml.bos_token_id", dg_tokenizer_bos(t));
    put_id(w, "tokenizer.ggml.eos_token_id", dg_tokenizer_added_id(t, "<eos>"));
    put_id(w, "tokenizer.ggml.unknown_token_id", dg_tokenizer_added_id(t, "<unk>"));
    put_id(w, "tokenizer.ggml.padding_token_id", dg_tokenizer_added_id(t, "<pad>"));
    put_id(w, "tokenizer.ggml.mask_token_id", dg_tokenizer_added_id(t, "<mask>"));
    dg_gguf_put_int(w, "tokenizer.ggml.add_bos_token", DG_GGUF_BOOL, 1);
    dg_gguf_put_int(w, "tokenizer.ggml.add_space_prefix", DG_GGUF_BOOL, 0);
    if (chat_template)
        dg_gguf_put_string(w, "tokenizer.chat_template", chat_template);
    return st;
}
