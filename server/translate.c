#include "translate.h"
#include <string.h>
#include "base/buf.h"
#include "base/common.h"
#include "json_fields.h"
#include "json_text.h"

enum { MAX_TEXT = 256 << 20 }; /* bodies are far smaller */

void dg_translate_begin(dg_translation *t, json_t *root, const dg_chat_limits *limits,
                        uint64_t seed, dg_http_error *e)
{
    static const char *const same[] = {
        "stream",     "temperature",      "top_p", "top_k",        "min_p",
        "seed",       "diffusion",        "model", "image_tokens", "logit_bias",
        "whitespace", "schema_in_prompt", "lora"};
    *t = (dg_translation){
        .root = root, .chat = json_object(), .limits = limits, .seed = seed, .e = e};
    dg_translate_set(t, "asked", json_incref(root));
    dg_translate_set(t, "messages", json_array());
    t->messages = json_object_get(t->chat, "messages");
    for (size_t i = 0; i < DG_COUNT(same); i++)
        dg_translate_copy(t, same[i], same[i]);
}

bool dg_translate_end(dg_translation *t, bool ok, dg_read_fn *read, dg_chat *out)
{
    json_t *chat = t->chat;
    json_decref(t->root);
    if (ok && !t->no_memory) {
        ok = read(out, chat, t->limits, t->seed, t->e);
        out->options.drafts = false; /* the other dialects have no place for them */
        return ok;
    }
    json_decref(chat);
    *out = (dg_chat){0};
    if (ok) {
        dg_refuse(t->e, 503, "out_of_memory", NULL, "out of memory for the request");
        t->e->retry_after = 5;
    }
    return false;
}

void dg_translate_add(dg_translation *t, json_t *list, json_t *value)
{
    t->no_memory |= json_array_append_new(list, value) != 0;
}

void dg_translate_say(dg_translation *t, json_t *message)
{
    dg_translate_add(t, t->messages, message);
}

void dg_translate_set_in(dg_translation *t, json_t *object, const char *name, json_t *value)
{
    t->no_memory |= json_object_set_new(object, name, value) != 0;
}

void dg_translate_set(dg_translation *t, const char *name, json_t *value)
{
    dg_translate_set_in(t, t->chat, name, value);
}

void dg_translate_copy(dg_translation *t, const char *name, const char *as)
{
    json_t *v = dg_field_get(t->root, name);
    if (v)
        dg_translate_set(t, as, json_incref(v));
}

bool dg_translate_stop(dg_translation *t, const json_t *object, const char *name)
{
    json_t *stop = dg_field_get(object, name), *text;
    size_t i;
    if (!stop)
        return true;
    if (!json_is_array(stop) && !json_is_string(stop))
        return dg_refuse(t->e, 400, "invalid_type", name, "%s: wanted a list of text", name);
    json_array_foreach(stop, i, text)
    {
        if (!json_string_length(text))
            return dg_refuse(t->e, 400, "invalid_value", name, "%s[%zu]: wanted text", name, i);
    }
    dg_translate_set(t, "stop", json_incref(stop));
    return true;
}

/* json_pack's "O?" leaves a null where nothing is; here nothing stays nothing. */
static void put_if(json_t **object, const char *name, json_t *value)
{
    if (value)
        dg_json_put(object, name, json_incref(value));
}

json_t *dg_translate_tool(const json_t *tool, const char *parameters)
{
    json_t *function = json_object();
    put_if(&function, "name", dg_field_get(tool, "name"));
    put_if(&function, "description", dg_field_get(tool, "description"));
    put_if(&function, "parameters", dg_field_get(tool, parameters));
    put_if(&function, "strict", dg_field_get(tool, "strict"));
    return json_pack("{s:s,s:o}", "type", "function", "function", function);
}

void dg_translate_schema(dg_translation *t, json_t *schema, json_t *strict, const char *at)
{
    json_t *inner = json_object();
    put_if(&inner, "schema", schema);
    put_if(&inner, "strict", strict);
    dg_translate_set(t, "response_format",
                     json_pack("{s:s,s:o}", "type", "json_schema", "json_schema", inner));
    dg_translate_set(t, "constraint_at", json_string(at));
}

json_t *dg_translate_picture(const char *media_type, const char *base64)
{
    json_t *url = json_sprintf("data:%s;base64,%s", media_type, base64);
    return json_pack("{s:s,s:{s:o}}", "type", "image_url", "image_url", "url", url);
}

json_t *dg_translate_call(json_t *id, json_t *name, json_t *arguments)
{
    json_t *function = json_object();
    put_if(&function, "name", name);
    put_if(&function, "arguments", arguments);
    json_t *call = json_pack("{s:s,s:o}", "type", "function", "function", function);
    put_if(&call, "id", id);
    return call;
}

json_t *dg_translate_text(const json_t *content, const char *name, const char *between)
{
    if (json_is_string(content))
        return json_stringn(json_string_value(content), json_string_length(content));
    dg_buf all;
    size_t i;
    json_t *part;
    bool ok = true;
    dg_buf_init(&all, MAX_TEXT);
    json_array_foreach(content, i, part)
    {
        const json_t *text = json_object_get(part, name);
        if (json_is_string(text))
            ok = ok && (!all.len || dg_buf_puts(&all, between)) &&
                 dg_buf_append(&all, json_string_value(text), json_string_length(text));
    }
    json_t *out = ok ? json_stringn(all.data ? all.data : "", all.len) : NULL;
    dg_buf_clear(&all);
    return out;
}

bool dg_is_effort(const char *word)
{
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    for (size_t i = 0; i < DG_COUNT(words); i++)
        if (!strcmp(word, words[i]))
            return true;
    return false;
}

bool dg_json_says(const json_t *value, const char *text)
{
    const char *s = json_string_value(value);
    return s && !strcmp(s, text);
}
