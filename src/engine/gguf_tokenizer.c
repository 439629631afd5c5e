#include "engine/gguf_tokenizer.h"
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "engine/gguf_vocabulary.h"

/* Values of tokenizer.ggml.token_type that count. */
enum { TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_UNUSED = 5 };

/* Gemma 4's own: special whatever the file types them as (real files type <eos> as a normal token,
 * and those of tools and channels as user defined, so that llama.cpp prints them). */
static const char *const known[] = {
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<mask>",
    "<|tool>",
    "<tool|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    "<|\"|>",
    "<|think|>",
    "<|channel>",
    "<channel|>",
    "<|turn>",
    "<turn|>",
    "<|image>",
    "<|audio>",
    "<|image|>",
    "<|audio|>",
    "<image|>",
    "<audio|>",
    "<|video|>",
};

/* What is taken out of the file for the length of one call. */
typedef struct parts {
    const dg_gguf *g;
    const char *where;
    dgemma_error *err;
    dg_piece *pieces;
    size_t n_piece;
    dg_merge *merges;
    size_t n_merge;
    dg_added_token *added;
    size_t n_added;
} parts;

static dgemma_status no_memory(const parts *p)
{
    return dg_fail(p->err, DGEMMA_E_NOMEM, "%s: no memory for the tokenizer", p->where);
}

static dgemma_status not_strings(const parts *p, const char *key, size_t max)
{
    return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: %s is not an array of at most %zu strings",
                   p->where, key, max);
}

static bool is_string_array(const dg_gguf_value *v, size_t max)
{
    return v->is_array && v->n <= max && (v->type == DG_GGUF_STRING || v->n == 0);
}

static dgemma_status take_pieces(parts *p)
{
    static const char key[] = "tokenizer.ggml.tokens";
    const dg_gguf_value *v = dg_gguf_find(p->g, key);
    if (!is_string_array(v, DG_VOCABULARY_MAX_PIECES))
        return not_strings(p, key, DG_VOCABULARY_MAX_PIECES);
    p->pieces = dg_array(v->n, sizeof *p->pieces);
    if (!p->pieces)
        return no_memory(p);
    dg_gguf_strings s = dg_gguf_strings_of(v);
    for (dg_gguf_text text; dg_gguf_strings_next(&s, &text);)
        p->pieces[p->n_piece++] = (dg_piece){text.text, text.len};
    return DGEMMA_OK;
}

static dgemma_status take_merges(parts *p)
{
    static const char key[] = "tokenizer.ggml.merges";
    const dg_gguf_value *v = dg_gguf_find(p->g, key);
    if (!v)
        return DGEMMA_OK; /* they follow from the pieces */
    if (!is_string_array(v, DG_VOCABULARY_MAX_MERGES))
        return not_strings(p, key, DG_VOCABULARY_MAX_MERGES);
    p->merges = dg_array(v->n, sizeof *p->merges);
    if (!p->merges)
        return no_memory(p);
    dg_gguf_strings s = dg_gguf_strings_of(v);
    for (dg_gguf_text text; dg_gguf_strings_next(&s, &text); p->n_merge++)
        if (!dg_merge_split(&p->merges[p->n_merge], text.text, text.len))
            return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: %s[%zu] is not \"left right\"", p->where,
                           key, p->n_merge);
    return DGEMMA_OK;
}

static bool is_known(const dg_piece *piece)
{
    for (size_t i = 0; i < DG_COUNT(known); i++)
        if (strlen(known[i]) == piece->len && memcmp(known[i], piece->text, piece->len) == 0)
            return true;
    return false;
}

static dgemma_status take_added(parts *p)
{
    static const char key[] = "tokenizer.ggml.token_type";
    const dg_gguf_value *types = dg_gguf_find(p->g, key);
    int64_t type = 0;
    if (types &&
        (!types->is_array || types->n != p->n_piece || (types->n && !dg_gguf_int(types, 0, &type))))
        return dg_fail(p->err, DGEMMA_E_FORMAT, "%s: %s is not an array of %zu integers", p->where,
                       key, p->n_piece);
    p->added = dg_array(p->n_piece, sizeof *p->added);
    if (!p->added)
        return no_memory(p);
    for (size_t i = 0; i < p->n_piece; i++) {
        const dg_piece *piece = &p->pieces[i];
        bool own = piece->len && piece->text[0] == '<' && is_known(piece);
        type = 0;
        dg_gguf_int(types, i, &type);
        if (own || type == TYPE_CONTROL || type == TYPE_USER_DEFINED)
            p->added[p->n_added++] = (dg_added_token){(int32_t)i, own || type == TYPE_CONTROL};
    }
    return DGEMMA_OK;
}

/* Pieces that only fill up the rows of the embeddings are no text of the model's. */
static void drop_padding(parts *p)
{
    const dg_gguf_value *types = dg_gguf_find(p->g, "tokenizer.ggml.token_type");
    for (; p->n_piece; p->n_piece--) {
        const size_t last = p->n_piece - 1;
        const dg_piece *piece = &p->pieces[last];
        int64_t type = 0;
        dg_gguf_int(types, last, &type);
        if (type != TYPE_UNUSED || !dg_gguf_is_padding(piece->text, piece->len, last))
            return;
    }
}

static dgemma_status check_kind(const parts *p)
{
    const dg_gguf_value *v = dg_gguf_find(p->g, "tokenizer.ggml.model");
    dg_gguf_text name = {"missing", 7};
    if (dg_gguf_string_is(v, "gemma4"))
        return DGEMMA_OK;
    dg_gguf_string(v, &name);
    return dg_fail(p->err, DGEMMA_E_UNSUPPORTED, "%s: tokenizer.ggml.model is %.*s, wanted gemma4",
                   p->where, (int)(name.len < 60 ? name.len : 60), name.text);
}

dgemma_status dg_gguf_tokenizer(dg_tokenizer **out, const dg_gguf *g, const char *where,
                                dgemma_error *err)
{
    *out = NULL;
    parts p = {.g = g, .where = where, .err = err};
    if (!dg_gguf_find(g, "tokenizer.ggml.tokens"))
        return DGEMMA_OK;
    dgemma_status st = check_kind(&p);
    if (!st)
        st = take_pieces(&p);
    if (!st)
        st = take_merges(&p);
    if (!st)
        st = take_added(&p);
    if (!st)
        drop_padding(&p); /* they were not added */
    if (!st)
        st = dg_tokenizer_create(out,
                                 &(dg_vocabulary){
                                     .where = where,
                                     .pieces = p.pieces,
                                     .n_piece = p.n_piece,
                                     .merges = p.merges,
                                     .n_merge = p.n_merge,
                                     .added = p.added,
                                     .n_added = p.n_added,
                                 },
                                 err);
    dg_free(p.pieces);
    dg_free(p.merges);
    dg_free(p.added);
    return st;
}
