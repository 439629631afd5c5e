/* Where a checkpoint keeps its chat template. */
#include <jansson.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json_values.h"
#include "format/checkpoint.h"

/* The published one has 17 kB; tokenizer_config.json may list every token. */
enum { TEMPLATE_MAX = 1 << 20, CONFIG_MAX = 64 << 20 };

/* *out = a copy, NUL-terminated; a template is text, so it holds no NUL itself. */
static dgemma_status copy(char **out, const char *text, size_t len, const char *where,
                          dgemma_error *err)
{
    if (len > TEMPLATE_MAX)
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: a chat template of %zu bytes, at most %d are read",
                       where, len, TEMPLATE_MAX);
    if (memchr(text, 0, len))
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: the chat template has a zero byte", where);
    *out = dg_strndup(text, len);
    return *out ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", where);
}

static dgemma_status from_gguf(const dg_checkpoint *ck, char **out, dgemma_error *err)
{
    const dg_gguf_value *v = dg_gguf_find(dg_checkpoint_gguf(ck), "tokenizer.chat_template");
    dg_gguf_text text;
    if (!v)
        return DGEMMA_OK;
    if (!dg_gguf_string(v, &text))
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: tokenizer.chat_template is not a string",
                       dg_checkpoint_dir(ck));
    return copy(out, text.text, text.len, dg_checkpoint_dir(ck), err);
}

/* "chat_template": a string, or a list of {"name", "template"} of which "default" counts. */
static const json_t *pick(const json_t *root)
{
    const json_t *t = json_object_get(root, "chat_template"), *item;
    size_t i;
    json_array_foreach(t, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_object_get(item, "template");
    }
    return t;
}

static dgemma_status from_config(const dg_buf *doc, char **out, const char *where,
                                 dgemma_error *err)
{
    dgemma_status st = dg_json_check(doc->data, doc->len, DG_DOCUMENT_VALUES, where, err);
    if (st)
        return st;
    json_error_t at;
    json_t *root = json_loadb(doc->data ? doc->data : "", doc->len, 0, &at);
    if (!root && !at.text[0]) /* jansson is silent when its memory is out */
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", where);
    if (!root)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: line %d: %s", where, at.line, at.text);
    const json_t *text = pick(root);
    if (json_is_string(text))
        st = copy(out, json_string_value(text), json_string_length(text), where, err);
    json_decref(root);
    return st;
}

dgemma_status dg_checkpoint_chat_template(const dg_checkpoint *ck, char **out, dgemma_error *err)
{
    static const char *const name[] = {"chat_template.jinja", "tokenizer_config.json"};
    *out = NULL;
    if (dg_checkpoint_gguf(ck))
        return from_gguf(ck, out, err);
    int i = dg_checkpoint_has_document(ck, name[0]) ? 0 : 1;
    if (!dg_checkpoint_has_document(ck, name[i]))
        return DGEMMA_OK;
    char *where = dg_checkpoint_path(ck, name[i], err);
    if (!where)
        return DGEMMA_E_NOMEM;
    dg_buf doc;
    dg_buf_init(&doc, i == 0 ? TEMPLATE_MAX : CONFIG_MAX);
    dgemma_status st = dg_checkpoint_document(ck, name[i], &doc, err);
    if (!st && i == 0)
        st = copy(out, doc.data ? doc.data : "", doc.len, where, err);
    else if (!st)
        st = from_config(&doc, out, where, err);
    dg_buf_clear(&doc);
    dg_free(where);
    return st;
}
