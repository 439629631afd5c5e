/* Reads a tokenizer.json, the format of Hugging Face's tokenizers library. It describes a pipeline
 * of parts; the one that Gemma uses is built in, so the parts are only checked to be that one, and
 * whatever else would give other tokens is refused by name. */
#include "text/tokenizer.h"
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/json_values.h"

/* Twice what a vocabulary of 262,144 words and its merges has. */
enum { VALUES_MAX = 1 << 22 };

#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

typedef struct reader {
    const char *where;
    dgemma_error *err;
    const json_t *root;
    dg_piece *pieces;
    size_t n_piece;
    dg_merge *merges;
    size_t n_merge;
    dg_added_token *added;
    size_t n_added;
    bool keep_spaces;
} reader;

/* ---- small questions to a JSON value; NULL and JSON's null are the same ---- */

static bool is_none(const json_t *j)
{
    return !j || json_is_null(j);
}

static bool is_string(const json_t *j, const char *wanted)
{
    return json_is_string(j) && strcmp(json_string_value(j), wanted) == 0;
}

static bool has_type(const json_t *part, const char *type)
{
    return is_string(json_object_get(part, "type"), type);
}

/* {"type": "Replace", "pattern": {"String": from}, "content": to} */
static bool is_replace(const json_t *part, const char *from, const char *to)
{
    return has_type(part, "Replace") &&
           is_string(json_object_get(json_object_get(part, "pattern"), "String"), from) &&
           is_string(json_object_get(part, "content"), to);
}

typedef struct type_name {
    char text[40];
} type_name;

/* A part's type as it may stand in a message: short, printable. */
static type_name name_of(const json_t *part)
{
    type_name name = {"(a part without a type)"};
    const char *type = json_string_value(json_object_get(part, "type"));
    if (is_none(part))
        type = "null";
    if (!type)
        return name;
    size_t n = 0;
    for (; type[n] && n + 1 < sizeof name.text; n++)
        name.text[n] = type[n] > ' ' && type[n] < 0x7F ? type[n] : '?';
    name.text[n] = '\0';
    return name;
}

static dgemma_status refuse(reader *r, const char *what, const json_t *part, const char *wanted)
{
    return dg_fail(r->err, DGEMMA_E_UNSUPPORTED,
                   "%s: the %s is %s, which is not known here; wanted %s", r->where, what,
                   name_of(part).text, wanted);
}

/* ---- the pipeline ---- */

/* Sets keep_spaces: without a normalizer spaces stay what they are. */
static dgemma_status check_normalizer(reader *r)
{
    const json_t *part = json_object_get(r->root, "normalizer");
    if (has_type(part, "Sequence")) {
        const json_t *list = json_object_get(part, "normalizers");
        if (!json_is_array(list) || json_array_size(list) > 1)
            return refuse(r, "normalizer", part, "a sequence of at most one");
        part = json_array_get(list, 0);
    }
    r->keep_spaces = is_none(part);
    if (r->keep_spaces || is_replace(part, " ", SPACE_MARK))
        return DGEMMA_OK;
    return refuse(r, "normalizer", part, "Replace of \" \" by U+2581, or none");
}

/* Gemma's files split at spaces, of which the normalizer has left none. */
static dgemma_status check_pre_tokenizer(reader *r)
{
    const json_t *part = json_object_get(r->root, "pre_tokenizer");
    if (is_none(part))
        return DGEMMA_OK;
    const json_t *pattern = json_object_get(json_object_get(part, "pattern"), "String");
    if (has_type(part, "Split") && is_string(pattern, " ") &&
        !json_is_true(json_object_get(part, "invert")) && !r->keep_spaces)
        return DGEMMA_OK;
    return refuse(r, "pre_tokenizer", part, "none, or Split at \" \" after these were replaced");
}

/* Decoders [Replace U+2581 by " ",] ByteFallback, Fuse. */
static dgemma_status check_decoder(reader *r)
{
    const json_t *part = json_object_get(r->root, "decoder");
    if (!has_type(part, "Sequence"))
        return refuse(r, "decoder", part, "a Sequence");
    const json_t *list = json_object_get(part, "decoders");
    size_t i = 0;
    if (!r->keep_spaces) {
        if (!is_replace(json_array_get(list, i), SPACE_MARK, " "))
            return refuse(r, "first decoder", json_array_get(list, i),
                          "Replace of U+2581 by \" \"");
        i++;
    }
    if (!has_type(json_array_get(list, i), "ByteFallback"))
        return refuse(r, "decoder before Fuse", json_array_get(list, i), "ByteFallback");
    i++;
    if (has_type(json_array_get(list, i), "Fuse"))
        i++;
    if (i < json_array_size(list))
        return refuse(r, "last decoder", json_array_get(list, i), "Fuse");
    return DGEMMA_OK;
}

/* Nothing may be put around the text but <bos> in front. */
static dgemma_status check_post_processor(reader *r)
{
    const json_t *part = json_object_get(r->root, "post_processor");
    if (is_none(part))
        return DGEMMA_OK;
    if (!has_type(part, "TemplateProcessing"))
        return refuse(r, "post_processor", part, "TemplateProcessing, or none");
    const json_t *list = json_object_get(part, "single");
    size_t last = json_array_size(list), i;
    const json_t *step;
    json_array_foreach(list, i, step)
    {
        const json_t *token = json_object_get(step, "SpecialToken");
        if (i + 1 == last ? !json_object_get(step, "Sequence")
                          : !is_string(json_object_get(token, "id"), "<bos>"))
            return refuse(r, "post_processor", part, "a template of <bos> and the text");
    }
    return DGEMMA_OK;
}

static dgemma_status check_model(reader *r)
{
    const json_t *model = json_object_get(r->root, "model");
    if (!has_type(model, "BPE"))
        return refuse(r, "model", model, "BPE");
    if (!json_is_true(json_object_get(model, "byte_fallback")))
        return dg_fail(r->err, DGEMMA_E_UNSUPPORTED,
                       "%s: the model is without byte_fallback, wanted true", r->where);
    if (json_is_true(json_object_get(model, "ignore_merges")))
        return dg_fail(r->err, DGEMMA_E_UNSUPPORTED,
                       "%s: the model has ignore_merges true, wanted false", r->where);

    static const char *const unset[] = {"dropout", "continuing_subword_prefix",
                                        "end_of_word_suffix"};
    for (size_t i = 0; i < DG_COUNT(unset); i++) {
        const json_t *value = json_object_get(model, unset[i]);
        if (!is_none(value) && !is_string(value, "") &&
            !(json_is_number(value) && json_number_value(value) == 0))
            return dg_fail(r->err, DGEMMA_E_UNSUPPORTED, "%s: the model has a %s, wanted none",
                           r->where, unset[i]);
    }
    return DGEMMA_OK;
}

static dgemma_status check_pipeline(reader *r)
{
    static dgemma_status (*const checks[])(reader *) = {
        check_normalizer, check_pre_tokenizer, check_decoder, check_post_processor, check_model};
    for (size_t i = 0; i < DG_COUNT(checks); i++) {
        dgemma_status st = checks[i](r);
        if (st)
            return st;
    }
    return DGEMMA_OK;
}

/* ---- pieces ---- */

static bool read_id(const json_t *value, size_t *id)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= DG_VOCABULARY_MAX_PIECES)
        return false;
    *id = (size_t)json_integer_value(value);
    return true;
}

/* Puts a piece at its id; another one there already is refused. */
static dgemma_status place_piece(reader *r, size_t id, const char *text, size_t len)
{
    dg_piece *piece = &r->pieces[id];
    if (piece->text && (piece->len != len || memcmp(piece->text, text, len) != 0))
        return dg_fail(r->err, DGEMMA_E_FORMAT, "%s: id %zu has two different pieces", r->where,
                       id);
    *piece = (dg_piece){text, len};
    return DGEMMA_OK;
}

/* One more than the largest id in vocab and added_tokens; 0 when an id is none. */
static size_t count_ids(json_t *vocab, const json_t *added)
{
    size_t n = 0, id, i;
    const char *key;
    const json_t *value;
    json_object_foreach(vocab, key, value)
    {
        if (!read_id(value, &id))
            return 0;
        n = id >= n ? id + 1 : n;
    }
    json_array_foreach(added, i, value)
    {
        if (!read_id(json_object_get(value, "id"), &id))
            return 0;
        n = id >= n ? id + 1 : n;
    }
    return n;
}

static dgemma_status read_added(reader *r, const json_t *list)
{
    r->added = dg_array(json_array_size(list), sizeof *r->added);
    if (!r->added)
        return dg_fail(r->err, DGEMMA_E_NOMEM, "%s: out of memory", r->where);
    size_t i;
    const json_t *token;
    json_array_foreach(list, i, token)
    {
        static const char *const unset[] = {"single_word", "lstrip", "rstrip", "normalized"};
        for (size_t k = 0; k < DG_COUNT(unset); k++)
            if (json_is_true(json_object_get(token, unset[k])))
                return dg_fail(r->err, DGEMMA_E_UNSUPPORTED,
                               "%s: added token %zu has %s true, wanted false", r->where, i,
                               unset[k]);
        const json_t *content = json_object_get(token, "content");
        size_t id;
        if (!json_is_string(content) || !read_id(json_object_get(token, "id"), &id))
            return dg_fail(r->err, DGEMMA_E_FORMAT, "%s: added token %zu lacks an id or a content",
                           r->where, i);
        dgemma_status st =
            place_piece(r, id, json_string_value(content), json_string_length(content));
        if (st)
            return st;
        r->added[r->n_added++] =
            (dg_added_token){(int32_t)id, json_is_true(json_object_get(token, "special"))};
    }
    return DGEMMA_OK;
}

static dgemma_status read_pieces(reader *r)
{
    json_t *vocab = json_object_get(json_object_get(r->root, "model"), "vocab");
    const json_t *added = json_object_get(r->root, "added_tokens");
    if (!json_is_object(vocab) || (!is_none(added) && !json_is_array(added)))
        return dg_fail(r->err, DGEMMA_E_FORMAT,
                       "%s: wanted an object model.vocab and an array added_tokens", r->where);
    r->n_piece = count_ids(vocab, added);
    if (!r->n_piece)
        return dg_fail(r->err, DGEMMA_E_FORMAT,
                       "%s: the vocabulary is empty, or an id in it is not a number from 0 to %d",
                       r->where, DG_VOCABULARY_MAX_PIECES - 1);
    r->pieces = dg_calloc(r->n_piece, sizeof *r->pieces);
    if (!r->pieces)
        return dg_fail(r->err, DGEMMA_E_NOMEM, "%s: out of memory for %zu pieces", r->where,
                       r->n_piece);

    const char *key;
    const json_t *value;
    json_object_foreach(vocab, key, value)
    {
        dgemma_status st = place_piece(r, (size_t)json_integer_value(value), key, strlen(key));
        if (st)
            return st;
    }
    dgemma_status st = read_added(r, added);
    for (size_t id = 0; !st && id < r->n_piece; id++)
        if (!r->pieces[id].text)
            st = dg_fail(r->err, DGEMMA_E_FORMAT, "%s: id %zu has no piece, though id %zu has one",
                         r->where, id, r->n_piece - 1);
    return st;
}

/* ---- merges ---- */

static dg_piece piece_of(const json_t *string)
{
    return (dg_piece){json_string_value(string), json_string_length(string)};
}

/* ["left", "right"], or "left right" as older files have it. */
static bool read_merge(dg_merge *out, const json_t *value)
{
    if (json_is_string(value))
        return dg_merge_split(out, json_string_value(value), json_string_length(value));
    const json_t *left = json_array_get(value, 0), *right = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_string(left) || !json_is_string(right))
        return false;
    *out = (dg_merge){piece_of(left), piece_of(right)};
    return true;
}

static dgemma_status read_merges(reader *r)
{
    const json_t *list = json_object_get(json_object_get(r->root, "model"), "merges");
    if (!json_is_array(list))
        return dg_fail(r->err, DGEMMA_E_FORMAT, "%s: wanted an array model.merges", r->where);
    r->merges = dg_array(json_array_size(list), sizeof *r->merges);
    if (!r->merges)
        return dg_fail(r->err, DGEMMA_E_NOMEM, "%s: out of memory for %zu merges", r->where,
                       json_array_size(list));
    const json_t *value;
    json_array_foreach(list, r->n_merge, value)
    {
        if (!read_merge(&r->merges[r->n_merge], value))
            return dg_fail(r->err, DGEMMA_E_FORMAT, "%s: merge %zu is not a pair of pieces",
                           r->where, r->n_merge);
    }
    return DGEMMA_OK;
}

/* ---- all of it ---- */

static dgemma_status read_all(reader *r, dg_tokenizer **out)
{
    dgemma_status st = check_pipeline(r);
    if (!st)
        st = read_pieces(r);
    if (!st)
        st = read_merges(r);
    if (st)
        return st;
    const dg_vocabulary v = {
        .where = r->where,
        .pieces = r->pieces,
        .n_piece = r->n_piece,
        .merges = r->merges,
        .n_merge = r->n_merge,
        .added = r->added,
        .n_added = r->n_added,
        .keep_spaces = r->keep_spaces,
    };
    return dg_tokenizer_create(out, &v, r->err);
}

dgemma_status dg_tokenizer_from_json(dg_tokenizer **out, const char *json, size_t len,
                                     const char *where, dgemma_error *err)
{
    *out = NULL;
    dgemma_status st = dg_json_check(json, len, VALUES_MAX, where, err);
    if (st)
        return st;
    json_error_t at;
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &at);
    if (!root && !at.text[0]) /* jansson is silent when its memory is out */
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", where);
    if (!root)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: line %d: %s", where, at.line, at.text);
    reader r = {.where = where, .err = err, .root = root};
    st = read_all(&r, out);
    dg_free(r.pieces);
    dg_free(r.merges);
    dg_free(r.added);
    json_decref(root);
    return st;
}
