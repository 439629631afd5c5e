#include "text/tokenizer_json_put.h"
#include <jansson.h>
#include <string.h>
#include "base/common.h"
#include "base/json_document.h"

static json_t *piece_text(const dg_tokenizer *t, int32_t id)
{
    const dg_piece piece = dg_tokenizer_piece(t, id);
    return json_stringn(piece.text, piece.len); /* NULL where it is no UTF-8 */
}

static bool is_added(const dg_tokenizer *t, int32_t id)
{
    char name[DG_PIECE_MAX_ADDED + 1];
    const dg_piece piece = dg_tokenizer_piece(t, id);
    if (piece.len > DG_PIECE_MAX_ADDED)
        return false;
    memcpy(name, piece.text, piece.len);
    name[piece.len] = '\0';
    return dg_tokenizer_added_id(t, name) == id;
}

static json_t *added_token(const dg_tokenizer *t, int32_t id)
{
    return json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content",
                     piece_text(t, id), "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0,
                     "special", (int)dg_tokenizer_is_special(t, id));
}

/* Vocabulary and added tokens. False: a piece is no UTF-8 or has a zero in it, or there is no
 * memory. */
static bool add_pieces(json_t *vocab, json_t *added, const dg_tokenizer *t)
{
    char name[DG_PIECE_MAX + 1];
    bool ok = vocab && added;
    for (int32_t id = 0; ok && id < dg_tokenizer_count(t); id++) {
        const dg_piece piece = dg_tokenizer_piece(t, id);
        if (piece.len > DG_PIECE_MAX || memchr(piece.text, 0, piece.len))
            return false;
        memcpy(name, piece.text, piece.len);
        name[piece.len] = '\0';
        ok = json_object_set_new(vocab, name, json_integer(id)) == 0;
        if (ok && is_added(t, id))
            ok = json_array_append_new(added, added_token(t, id)) == 0;
    }
    return ok;
}

static bool add_merges(json_t *list, const dg_tokenizer *t)
{
    dg_merges m = {0};
    bool ok = list && dg_tokenizer_merges(t, &m);
    for (size_t i = 0; ok && i < m.n; i++)
        ok = json_array_append_new(list, json_pack("[o, o]", piece_text(t, m.at[i].left),
                                                   piece_text(t, m.at[i].right))) == 0;
    dg_merges_clear(&m);
    return ok;
}

/* <bos> in front, as files say that ask for it. */
static json_t *post_processor(const dg_tokenizer *t)
{
    const int bos = dg_tokenizer_bos(t);
    if (bos < 0)
        return json_null();
    return json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}, "
                     "{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:{s:{s:s, s:[i], s:[s]}}}",
                     "type", "TemplateProcessing", "single", "SpecialToken", "id", "<bos>",
                     "type_id", 0, "Sequence", "id", "A", "type_id", 0, "pair", "SpecialToken",
                     "id", "<bos>", "type_id", 0, "Sequence", "id", "A", "type_id", 0,
                     "SpecialToken", "id", "<bos>", "type_id", 1, "Sequence", "id", "B", "type_id",
                     1, "special_tokens", "<bos>", "id", "<bos>", "ids", bos, "tokens", "<bos>");
}

static json_t *tokenizer(const dg_tokenizer *t)
{
    static const char space[] = "\xE2\x96\x81";
    json_t *vocab = json_object(), *added = json_array(), *merges = json_array();
    if (!add_pieces(vocab, added, t) || !add_merges(merges, t)) {
        json_decref(vocab);
        json_decref(added);
        json_decref(merges);
        return NULL;
    }
    json_t *model = json_pack("{s:s, s:n, s:s, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
                              "dropout", "unk_token", "<unk>", "continuing_subword_prefix",
                              "end_of_word_suffix", "fuse_unk", 1, "byte_fallback", 1,
                              "ignore_merges", 0, "vocab", vocab, "merges", merges);
    json_t *normalizer = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String",
                                   " ", "content", space);
    json_t *split = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "String", " ",
                              "behavior", "MergedWithPrevious", "invert", 0);
    json_t *decoder = json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]}", "type", "Sequence",
                                "decoders", "type", "Replace", "pattern", "String", space,
                                "content", " ", "type", "ByteFallback", "type", "Fuse");
    return json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", added, "normalizer", normalizer,
                     "pre_tokenizer", split, "post_processor", post_processor(t), "decoder",
                     decoder, "model", model);
}

static json_t *tokenizer_config(const dg_tokenizer *t)
{
    static const struct {
        const char *key, *name;
    } known[] = {{"bos_token", "<bos>"},
                 {"eos_token", "<eos>"},
                 {"pad_token", "<pad>"},
                 {"unk_token", "<unk>"},
                 {"mask_token", "<mask>"}};
    json_t *c = json_pack("{s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                          "clean_up_tokenization_spaces", 0);
    for (size_t i = 0; i < DG_COUNT(known); i++)
        if (dg_tokenizer_added_id(t, known[i].name) >= 0)
            json_object_set_new(c, known[i].key, json_string(known[i].name));
    return c;
}

dgemma_status dg_tokenizer_json(dg_buf *out, const dg_tokenizer *t, dgemma_error *err)
{
    if (dg_tokenizer_keeps_spaces(t))
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "the tokenizer keeps spaces as they are");
    return dg_json_document(out, tokenizer(t), "tokenizer.json", err);
}

dgemma_status dg_tokenizer_config_json(dg_buf *out, const dg_tokenizer *t, dgemma_error *err)
{
    return dg_json_document(out, tokenizer_config(t), "tokenizer_config.json", err);
}
