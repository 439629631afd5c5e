#include "text/conversation.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "text/json_tree.h"

/* What dg_conversation_from_json returns is the first member. */
typedef struct owner {
    dg_conversation conversation;
    char *json; /* a copy: values point into it */
    dg_json_tree tree;
    dg_message *messages;
    dg_part *parts;
    dg_tool_call *calls;
    dg_tool_result *results;
    size_t n_part, n_call, n_result; /* taken so far */
} owner;

typedef struct reader {
    owner *own;
    size_t message; /* the one being read */
    dgemma_error *err;
} reader;

/* "messages[2].content: what" */
DG_PRINTF(3, 4)
static dgemma_status fail(const reader *r, const char *key, const char *fmt, ...)
{
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return dg_fail(r->err, DGEMMA_E_ARG, "messages[%zu].%s: %s", r->message, key, what);
}

static const char *kind_name(const dg_json *v)
{
    static const char *const names[] = {"null",     "false", "true",   "a number",
                                        "a number", "text",  "a list", "an object"};
    return v ? names[v->kind] : "missing";
}

/* A string, or nothing when it is missing or null. */
static dgemma_status read_text(const reader *r, const dg_json *object, const char *key,
                               dg_text *out)
{
    const dg_json *v = dg_json_get(object, key);
    *out = (dg_text){0};
    if (!v || v->kind == DG_JSON_NULL)
        return DGEMMA_OK;
    if (v->kind != DG_JSON_STRING)
        return fail(r, key, "%s, wanted text", kind_name(v));
    *out = v->text;
    return DGEMMA_OK;
}

/* The list under a key, NULL when it is missing or null. */
static dgemma_status read_list(const reader *r, const dg_json *object, const char *key,
                               const dg_json **out)
{
    *out = dg_json_get(object, key);
    if (*out && (*out)->kind == DG_JSON_NULL)
        *out = NULL;
    if (*out && (*out)->kind != DG_JSON_ARRAY)
        return fail(r, key, "%s, wanted a list", kind_name(*out));
    return DGEMMA_OK;
}

/* ---- content ---- */

typedef struct part_type {
    const char *name;
    dg_part_kind kind;
} part_type;

static const part_type part_types[] = {
    {"text", DG_PART_TEXT},   {"input_text", DG_PART_TEXT}, {"output_text", DG_PART_TEXT},
    {"image", DG_PART_IMAGE}, {"image_url", DG_PART_IMAGE}, {"input_image", DG_PART_IMAGE},
    {"audio", DG_PART_AUDIO}, {"audio_url", DG_PART_AUDIO}, {"input_audio", DG_PART_AUDIO},
    {"video", DG_PART_VIDEO}, {"video_url", DG_PART_VIDEO}, {"input_video", DG_PART_VIDEO},
};

/* Where a medium is: a string, or an object with a url, under one of the names in use. */
static dg_text find_address(const dg_json *part)
{
    static const char *const keys[] = {"image_url", "audio_url", "video_url", "url",
                                       "image",     "audio",     "video"};
    for (size_t i = 0; i < DG_COUNT(keys); i++) {
        const dg_json *v = dg_json_get(part, keys[i]);
        const dg_json *url = dg_json_get(v, "url");
        v = url ? url : v;
        if (v && v->kind == DG_JSON_STRING)
            return v->text;
    }
    return (dg_text){0};
}

static dgemma_status read_part(const reader *r, const dg_json *v, size_t index, dg_part *out)
{
    const dg_json *type = dg_json_get(v, "type");
    char key[64];
    if (!type || type->kind != DG_JSON_STRING) {
        snprintf(key, sizeof key, "content[%zu]", index);
        return fail(r, key, "not an object with a \"type\"");
    }
    const part_type *known = NULL;
    for (size_t i = 0; i < DG_COUNT(part_types); i++)
        if (dg_text_is(type->text, part_types[i].name))
            known = &part_types[i];
    if (!known) {
        snprintf(key, sizeof key, "content[%zu].type", index);
        return fail(r, key, "\"%.*s\", wanted text, image_url, video_url or input_audio",
                    dg_min((int)type->text.len, 40), type->text.data);
    }
    *out = (dg_part){.kind = known->kind};
    if (known->kind != DG_PART_TEXT) {
        out->text = find_address(v);
        return DGEMMA_OK;
    }
    const dg_json *text = dg_json_get(v, "text");
    if (!text || text->kind != DG_JSON_STRING) {
        snprintf(key, sizeof key, "content[%zu].text", index);
        return fail(r, key, "%s, wanted text", kind_name(text));
    }
    out->text = text->text;
    return DGEMMA_OK;
}

static dgemma_status read_parts(const reader *r, const dg_json *list, dg_content *out)
{
    dg_part *parts = r->own->parts + r->own->n_part;
    size_t n = 0;
    for (const dg_json *v = list->child; v; v = v->next, n++) {
        dgemma_status st = read_part(r, v, n, &parts[n]);
        if (st)
            return st;
    }
    r->own->n_part += n;
    *out = (dg_content){.kind = DG_CONTENT_PARTS, .parts = parts, .n_part = n};
    return DGEMMA_OK;
}

static dgemma_status read_content(const reader *r, const dg_json *v, dg_message *m)
{
    const dg_json *content = dg_json_get(v, "content");
    if (!content || content->kind == DG_JSON_NULL)
        return DGEMMA_OK;
    if (content->kind == DG_JSON_ARRAY)
        return read_parts(r, content, &m->content);
    if (content->kind == DG_JSON_STRING)
        m->content = (dg_content){.kind = DG_CONTENT_TEXT, .text = content->text};
    else if (m->role == DG_ROLE_TOOL && content->kind != DG_JSON_OBJECT)
        m->content = (dg_content){.kind = DG_CONTENT_JSON, .text = content->source};
    else
        return fail(r, "content", "%s, wanted text, null or a list of parts", kind_name(content));
    return DGEMMA_OK;
}

/* ---- calls and results ---- */

static dgemma_status read_arguments(const reader *r, const dg_json *function, dg_text *out)
{
    const dg_json *v = dg_json_get(function, "arguments");
    *out = (dg_text){0};
    if (!v || v->kind == DG_JSON_NULL)
        return DGEMMA_OK;
    if (v->kind == DG_JSON_OBJECT)
        *out = v->source;
    else if (v->kind != DG_JSON_STRING)
        return fail(r, "tool_calls[].function.arguments", "%s, wanted an object", kind_name(v));
    else if (v->text.len) /* some clients send "" for none */
        *out = v->text;
    return DGEMMA_OK;
}

static dgemma_status read_call(const reader *r, const dg_json *v, dg_tool_call *out)
{
    const dg_json *function = dg_json_get(v, "function");
    const dg_json *name = dg_json_get(function, "name");
    if (!name || name->kind != DG_JSON_STRING)
        return fail(r, "tool_calls[].function.name", "%s, wanted text", kind_name(name));
    out->name = name->text;
    dgemma_status st = read_text(r, v, "id", &out->id);
    return st ? st : read_arguments(r, function, &out->arguments);
}

static dgemma_status read_calls(const reader *r, const dg_json *v, dg_message *m)
{
    const dg_json *list;
    dgemma_status st = read_list(r, v, "tool_calls", &list);
    if (st || !list)
        return st;
    dg_tool_call *calls = r->own->calls + r->own->n_call;
    size_t n = 0;
    for (const dg_json *call = list->child; call && !st; call = call->next)
        st = read_call(r, call, &calls[n++]);
    r->own->n_call += n;
    m->calls = calls;
    m->n_call = n;
    return st;
}

static dgemma_status read_result(const reader *r, const dg_json *v, dg_tool_result *out)
{
    const dg_json *response = dg_json_get(v, "response");
    if (!response)
        return fail(r, "tool_responses[].response", "missing");
    out->response = response->source;
    return read_text(r, v, "name", &out->name);
}

static dgemma_status read_results(const reader *r, const dg_json *v, dg_message *m)
{
    const dg_json *list;
    dgemma_status st = read_list(r, v, "tool_responses", &list);
    if (st || !list)
        return st;
    dg_tool_result *results = r->own->results + r->own->n_result;
    size_t n = 0;
    for (const dg_json *result = list->child; result && !st; result = result->next)
        st = read_result(r, result, &results[n++]);
    r->own->n_result += n;
    m->results = results;
    m->n_result = n;
    return st;
}

/* ---- messages ---- */

static dgemma_status read_role(const reader *r, const dg_json *v, dg_role *out)
{
    static const char *const names[] = {[DG_ROLE_SYSTEM] = "system",
                                        [DG_ROLE_DEVELOPER] = "developer",
                                        [DG_ROLE_USER] = "user",
                                        [DG_ROLE_ASSISTANT] = "assistant",
                                        [DG_ROLE_TOOL] = "tool"};
    const dg_json *role = dg_json_get(v, "role");
    for (size_t i = 0; role && i < DG_COUNT(names); i++)
        if (dg_text_is(role->text, names[i])) {
            *out = (dg_role)i;
            return DGEMMA_OK;
        }
    return fail(r, "role", "%s, wanted system, developer, user, assistant or tool",
                role && role->kind == DG_JSON_STRING ? "unknown" : kind_name(role));
}

static dgemma_status read_message(const reader *r, const dg_json *v, dg_message *m)
{
    dgemma_status st = read_role(r, v, &m->role);
    if (!st)
        st = read_content(r, v, m);
    if (!st)
        st = read_text(r, v, "reasoning", &m->reasoning);
    if (!st && !m->reasoning.len)
        st = read_text(r, v, "reasoning_content", &m->reasoning);
    if (!st)
        st = read_calls(r, v, m);
    if (!st)
        st = read_results(r, v, m);
    if (!st)
        st = read_text(r, v, "tool_call_id", &m->call_id);
    if (!st)
        st = read_text(r, v, "name", &m->name);
    return st;
}

static size_t count_list(const dg_json *message, const char *key)
{
    const dg_json *list = dg_json_get(message, key);
    return list && list->kind == DG_JSON_ARRAY ? list->n_child : 0;
}

/* All lists of one kind lie in one array, so there is one array of each to make and to free. */
static bool make_room(owner *own, const dg_json *messages)
{
    size_t n_part = 0, n_call = 0, n_result = 0;
    for (const dg_json *m = messages->child; m; m = m->next) {
        n_part += count_list(m, "content");
        n_call += count_list(m, "tool_calls");
        n_result += count_list(m, "tool_responses");
    }
    own->messages = dg_calloc(messages->n_child + 1, sizeof *own->messages);
    own->parts = dg_calloc(n_part + 1, sizeof *own->parts);
    own->calls = dg_calloc(n_call + 1, sizeof *own->calls);
    own->results = dg_calloc(n_result + 1, sizeof *own->results);
    return own->messages && own->parts && own->calls && own->results;
}

static dgemma_status read_messages(owner *own, const dg_json *list, dgemma_error *err)
{
    if (!list || list->kind != DG_JSON_ARRAY)
        return dg_fail(err, DGEMMA_E_ARG, "messages: %s, wanted a list", kind_name(list));
    if (!make_room(own, list))
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a conversation");
    reader r = {.own = own, .err = err};
    for (const dg_json *v = list->child; v; v = v->next, r.message++) {
        dgemma_status st = read_message(&r, v, &own->messages[r.message]);
        if (st)
            return st;
    }
    own->conversation.messages = own->messages;
    own->conversation.n_message = r.message;
    return DGEMMA_OK;
}

static dgemma_status read_flag(const dg_json *object, const char *key, bool *out, dgemma_error *err)
{
    const dg_json *v = dg_json_get(object, key);
    if (!v || v->kind == DG_JSON_NULL)
        return DGEMMA_OK;
    if (v->kind != DG_JSON_TRUE && v->kind != DG_JSON_FALSE)
        return dg_fail(err, DGEMMA_E_ARG, "%s: %s, wanted true or false", key, kind_name(v));
    *out = v->kind == DG_JSON_TRUE;
    return DGEMMA_OK;
}

static dgemma_status read_request(owner *own, const dg_json *root, dgemma_error *err)
{
    dg_conversation *c = &own->conversation;
    const dg_json *tools = dg_json_get(root, "tools");
    c->add_generation_prompt = true;
    if (root->kind == DG_JSON_ARRAY)
        return read_messages(own, root, err);
    if (root->kind != DG_JSON_OBJECT)
        return dg_fail(err, DGEMMA_E_ARG, "a conversation is %s, wanted a list or an object",
                       kind_name(root));
    if (tools && tools->kind != DG_JSON_ARRAY && tools->kind != DG_JSON_NULL)
        return dg_fail(err, DGEMMA_E_ARG, "tools: %s, wanted a list", kind_name(tools));
    if (tools)
        c->tools = tools->source;
    dgemma_status st = read_flag(root, "enable_thinking", &c->thinking, err);
    if (!st)
        st = read_flag(root, "preserve_thinking", &c->preserve_thinking, err);
    if (!st)
        st = read_flag(root, "add_generation_prompt", &c->add_generation_prompt, err);
    return st ? st : read_messages(own, dg_json_get(root, "messages"), err);
}

dgemma_status dg_conversation_from_json(dg_conversation **out, const char *json, size_t len,
                                        dgemma_error *err)
{
    *out = NULL;
    owner *own = dg_calloc(1, sizeof *own);
    if (!own)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a conversation");
    dgemma_status st;
    own->json = len <= DG_JSON_MAX_BYTES ? dg_malloc(len + 1) : NULL;
    if (own->json) {
        memcpy(own->json, json, len);
        st = dg_json_read(&own->tree, own->json, len, "the conversation", err);
    } else {
        st = dg_fail(err, len > DG_JSON_MAX_BYTES ? DGEMMA_E_LIMIT : DGEMMA_E_NOMEM,
                     "no room for a conversation of %zu bytes", len);
    }
    if (!st)
        st = read_request(own, own->tree.root, err);
    if (st)
        dg_conversation_free(&own->conversation);
    else
        *out = &own->conversation;
    return st;
}

void dg_conversation_free(dg_conversation *c)
{
    owner *own = (owner *)c;
    if (!own)
        return;
    dg_free(own->messages);
    dg_free(own->parts);
    dg_free(own->calls);
    dg_free(own->results);
    dg_json_tree_clear(&own->tree);
    dg_free(own->json);
    dg_free(own);
}
