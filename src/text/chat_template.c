#include "text/chat_template.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "text/chat_writer.h"
#include "text/python_text.h"

/* A result is matched with every call of its message. */
enum { MAX_CALLS = 256 };

/* ---- which template ---- */

dg_chat_revision dg_chat_revision_of(const char *text)
{
    /* Both write these turns and calls and keep the reasoning that follows the last user message;
     * variants of others that keep more or less of it do not have that index. */
    if (!strstr(text, "<|turn>") || !strstr(text, "<|tool_call>call:") ||
        !strstr(text, "last_user_idx"))
        return DG_CHAT_UNKNOWN;
    bool closes_thought = strstr(text, "<|channel>thought\\n<channel|>") != NULL;
    bool reads_preserve = strstr(text, "preserve_thinking") != NULL;
    if (closes_thought == reads_preserve)
        return DG_CHAT_UNKNOWN;
    return closes_thought ? DG_CHAT_REVISION_A : DG_CHAT_REVISION_B;
}

/* ---- the prompt ---- */

void dg_prompt_init(dg_prompt *p)
{
    *p = (dg_prompt){0};
    dg_buf_init(&p->text, DG_PROMPT_MAX_TEXT);
}

void dg_prompt_clear(dg_prompt *p)
{
    dg_buf_clear(&p->text);
    dg_free(p->marks);
    dg_free(p->slots);
    dg_prompt_init(p);
}

/* ---- messages ---- */

/* What was printed last, as far as it decides what comes next. */
typedef enum last_thing { LAST_OTHER, LAST_CALL, LAST_RESPONSE } last_thing;

typedef struct renderer {
    dg_chat_writer w;
    const dg_conversation *c;
    size_t first;      /* message after the system message */
    size_t after_user; /* first message after the last of a user */
    last_thing last;
    bool continues; /* the message before was the assistant's: no new turn for another of it */
    char where[96]; /* place in the conversation, for messages */
} renderer;

static bool is_a(const renderer *r)
{
    return r->w.revision == DG_CHAT_REVISION_A;
}

static bool is_system(const dg_message *m)
{
    return m->role == DG_ROLE_SYSTEM || m->role == DG_ROLE_DEVELOPER;
}

static dg_text cut(const char **at, const char *end, const char *separator)
{
    const char *start = *at;
    size_t n = strlen(separator);
    const char *found = memmem(start, (size_t)(end - start), separator, n);
    *at = found ? found + n : NULL;
    return (dg_text){start, (size_t)((found ? found : end) - start)};
}

/* Without what stands between <|channel> and <channel|>: earlier thoughts are not shown again. */
static void put_without_thoughts(dg_chat_writer *w, dg_text text)
{
    dg_buf kept;
    dg_buf_init(&kept, DG_PROMPT_MAX_TEXT);
    const char *at = text.len ? text.data : NULL;
    bool ok = true;
    while (at && ok) {
        dg_text part = cut(&at, text.data + text.len, "<channel|>");
        const char *inside = part.data;
        dg_text before = cut(&inside, part.data + part.len, "<|channel>");
        ok = dg_buf_append(&kept, before.data, before.len);
    }
    if (ok)
        dg_chat_put(w, dg_python_strip((dg_text){kept.data, kept.len}));
    else
        dg_chat_fail_full(w, &kept);
    dg_buf_clear(&kept);
}

static void put_text(renderer *r, const dg_message *m, dg_text text)
{
    if (m->role == DG_ROLE_ASSISTANT)
        put_without_thoughts(&r->w, text);
    else
        dg_chat_put(&r->w, dg_python_strip(text));
}

static void put_content(renderer *r, size_t index)
{
    const dg_message *m = &r->c->messages[index];
    if (m->content.kind == DG_CONTENT_TEXT)
        put_text(r, m, m->content.text);
    for (size_t i = 0; m->content.kind == DG_CONTENT_PARTS && i < m->content.n_part; i++) {
        const dg_part *part = &m->content.parts[i];
        if (part->kind == DG_PART_TEXT) {
            put_text(r, m, part->text);
            continue;
        }
        dg_chat_slot(&r->w, part->kind, index, i);
        if (is_a(r)) /* there a placeholder hides that a call came before it */
            r->last = LAST_OTHER;
    }
}

static void put_system_content(renderer *r, const dg_content *content)
{
    if (content->kind == DG_CONTENT_TEXT)
        dg_chat_put(&r->w, dg_python_strip(content->text));
    for (size_t i = 0; content->kind == DG_CONTENT_PARTS && i < content->n_part; i++) {
        if (content->parts[i].kind == DG_PART_TEXT)
            dg_chat_put(&r->w, dg_python_strip(content->parts[i].text));
        dg_chat_puts(&r->w, " ");
    }
}

static void put_system(renderer *r, const dg_json *tools)
{
    const dg_conversation *c = r->c;
    bool has_system = c->n_message && is_system(&c->messages[0]);
    bool has_tools = tools && tools->n_child;
    r->first = has_system;
    if (!c->thinking && !has_tools && !has_system)
        return;
    dg_chat_mark(&r->w, "<|turn>");
    dg_chat_puts(&r->w, "system\n");
    if (c->thinking) {
        dg_chat_mark(&r->w, "<|think|>");
        dg_chat_puts(&r->w, "\n");
    }
    if (has_system)
        put_system_content(r, &c->messages[0].content);
    if (has_tools)
        dg_chat_declare(&r->w, tools);
    dg_chat_mark(&r->w, "<turn|>");
    dg_chat_puts(&r->w, "\n");
}

static void put_thought(renderer *r, const dg_message *m, size_t index)
{
    bool recent = index >= r->after_user;
    bool wanted = is_a(r) ? recent && m->n_call : recent || (r->c->preserve_thinking && m->n_call);
    if (!m->reasoning.len || !wanted)
        return;
    dg_chat_mark(&r->w, "<|channel>");
    dg_chat_puts(&r->w, "thought\n");
    dg_chat_put(&r->w, m->reasoning);
    dg_chat_puts(&r->w, "\n");
    dg_chat_mark(&r->w, "<channel|>");
}

static void put_calls(renderer *r, const dg_message *m, size_t index)
{
    if (m->n_call > MAX_CALLS && !r->w.status)
        r->w.status = dg_fail(r->w.err, DGEMMA_E_LIMIT, "messages[%zu]: %zu calls, %d are possible",
                              index, m->n_call, MAX_CALLS);
    for (size_t i = 0; i < m->n_call && !r->w.status; i++) {
        snprintf(r->where, sizeof r->where, "messages[%zu].tool_calls[%zu].function.arguments",
                 index, i);
        dg_chat_call(&r->w, &m->calls[i], r->where);
        r->last = LAST_CALL;
    }
}

/* ---- results ---- */

static void put_results(renderer *r, const dg_message *m, size_t index)
{
    for (size_t i = 0; i < m->n_result && !r->w.status; i++) {
        const dg_tool_result *result = &m->results[i];
        bool named = is_a(r) ? result->name.data != NULL : result->name.len > 0;
        snprintf(r->where, sizeof r->where, "messages[%zu].tool_responses[%zu].response", index, i);
        dg_chat_response(&r->w, named ? result->name : DG_TEXT("unknown"), result->response,
                         r->where);
        r->last = LAST_RESPONSE;
    }
}

/* Name of the last call with this id; a missing id matches a missing one. Else the result's own. */
static dg_text result_name(const renderer *r, const dg_message *calls, const dg_message *result)
{
    for (size_t i = calls->n_call; i-- > 0;)
        if (dg_text_equal(calls->calls[i].id, result->call_id))
            return calls->calls[i].name;
    if (is_a(r) || result->name.len)
        return result->name;
    return DG_TEXT("unknown");
}

/* The text parts run together; images and the like follow the block, in B alone. */
static void put_result_parts(renderer *r, size_t index, dg_text name)
{
    const dg_content *content = &r->c->messages[index].content;
    dg_buf text;
    dg_buf_init(&text, DG_PROMPT_MAX_TEXT);
    bool ok = true;
    for (size_t i = 0; i < content->n_part && ok; i++)
        if (content->parts[i].kind == DG_PART_TEXT)
            ok = dg_buf_append(&text, content->parts[i].text.data, content->parts[i].text.len);
    if (!ok)
        dg_chat_fail_full(&r->w, &text);
    dg_chat_response_text(&r->w, name, (dg_text){text.data, text.len});
    dg_buf_clear(&text);
    for (size_t i = 0; i < content->n_part && !is_a(r); i++)
        if (content->parts[i].kind != DG_PART_TEXT)
            dg_chat_slot(&r->w, content->parts[i].kind, index, i);
}

static void put_tool_message(renderer *r, size_t index, dg_text name)
{
    const dg_content *content = &r->c->messages[index].content;
    if (!name.data) {
        if (!r->w.status)
            r->w.status = dg_fail(
                r->w.err, DGEMMA_E_ARG,
                "messages[%zu]: a tool's result with neither the id of a call nor a name", index);
        return;
    }
    snprintf(r->where, sizeof r->where, "messages[%zu].content", index);
    switch (content->kind) {
    case DG_CONTENT_NONE:
        dg_chat_response(&r->w, name, DG_TEXT("null"), r->where);
        break;
    case DG_CONTENT_TEXT:
        dg_chat_response_text(&r->w, name, content->text);
        break;
    case DG_CONTENT_PARTS:
        put_result_parts(r, index, name);
        break;
    case DG_CONTENT_JSON:
        dg_chat_response(&r->w, name, content->text, r->where);
        break;
    }
}

/* The messages of role tool right behind a message with calls. */
static void put_tool_messages(renderer *r, const dg_message *m, size_t index)
{
    const dg_conversation *c = r->c;
    for (size_t k = index + 1; k < c->n_message && c->messages[k].role == DG_ROLE_TOOL; k++) {
        put_tool_message(r, k, result_name(r, m, &c->messages[k]));
        r->last = LAST_RESPONSE;
    }
}

/* ---- turns ---- */

static bool has_content(const dg_content *content)
{
    return content->kind == DG_CONTENT_PARTS ? content->n_part > 0 : content->text.len > 0;
}

/* How a message ends, given where its content begins in the prompt. */
static void end_message(renderer *r, size_t index, bool responded, size_t content_start)
{
    const dg_message *m = &r->c->messages[index];
    const dg_buf *text = &r->w.prompt->text;
    size_t next = index + 1;
    while (next < r->c->n_message && r->c->messages[next].role == DG_ROLE_TOOL)
        next++;
    bool is_last = next == r->c->n_message;
    bool empty, continued;
    if (is_a(r)) {
        empty = !has_content(&m->content);
        continued = false;
    } else {
        dg_text written = {text->data + content_start, text->len - content_start};
        empty = is_last && dg_python_strip(written).len == 0;
        continued = m->role == DG_ROLE_ASSISTANT && !is_last &&
                    r->c->messages[next].role == DG_ROLE_ASSISTANT;
    }
    if (r->last == LAST_CALL && !responded) {
        dg_chat_mark(&r->w, "<|tool_response>");
    } else if (!continued && !(responded && empty)) {
        dg_chat_mark(&r->w, "<turn|>");
        dg_chat_puts(&r->w, "\n");
    }
}

static void put_message(renderer *r, size_t index)
{
    static const char *const roles[] = {[DG_ROLE_SYSTEM] = "system\n",
                                        [DG_ROLE_DEVELOPER] = "developer\n",
                                        [DG_ROLE_USER] = "user\n",
                                        [DG_ROLE_ASSISTANT] = "model\n"};
    const dg_message *m = &r->c->messages[index];
    r->last = LAST_OTHER;
    if (m->role != DG_ROLE_ASSISTANT || !r->continues) {
        dg_chat_mark(&r->w, "<|turn>");
        dg_chat_puts(&r->w, roles[m->role]);
    }
    put_thought(r, m, index);
    put_calls(r, m, index);
    if (m->n_result)
        put_results(r, m, index);
    else if (m->n_call)
        put_tool_messages(r, m, index);
    bool responded = r->last == LAST_RESPONSE;
    size_t content_start = r->w.prompt->text.len;
    put_content(r, index);
    end_message(r, index, responded, content_start);
}

static void put_messages(renderer *r)
{
    const dg_conversation *c = r->c;
    for (size_t i = r->first; i < c->n_message; i++)
        if (c->messages[i].role == DG_ROLE_USER)
            r->after_user = i + 1;
    for (size_t i = r->first; i < c->n_message && !r->w.status; i++) {
        if (c->messages[i].role != DG_ROLE_TOOL)
            put_message(r, i);
        else if (is_a(r))
            continue; /* B forgets at a tool's message that the assistant spoke before it */
        r->continues = c->messages[i].role == DG_ROLE_ASSISTANT;
    }
}

static void put_generation_prompt(renderer *r)
{
    if (r->last == LAST_OTHER) {
        dg_chat_mark(&r->w, "<|turn>");
        dg_chat_puts(&r->w, "model\n");
        if (is_a(r) && !r->c->thinking) {
            dg_chat_mark(&r->w, "<|channel>");
            dg_chat_puts(&r->w, "thought\n");
            dg_chat_mark(&r->w, "<channel|>");
        }
    } else if (!is_a(r) && r->last == LAST_RESPONSE && r->c->thinking) {
        dg_chat_mark(&r->w, "<|channel>");
        dg_chat_puts(&r->w, "thought\n");
        r->w.prompt->in_thought = true;
    }
}

static dgemma_status read_tools(dg_json_tree *tree, dg_text tools, dgemma_error *err)
{
    *tree = (dg_json_tree){0};
    if (!tools.data)
        return DGEMMA_OK;
    dgemma_status st = dg_json_read(tree, tools.data, tools.len, "tools", err);
    if (st || tree->root->kind == DG_JSON_ARRAY || tree->root->kind == DG_JSON_NULL)
        return st;
    dg_json_tree_clear(tree);
    return dg_fail(err, DGEMMA_E_ARG, "tools: not a list");
}

dgemma_status dg_chat_render(const dg_conversation *c, dg_chat_revision revision, dg_prompt *out,
                             dgemma_error *err)
{
    dg_prompt_clear(out);
    if (revision != DG_CHAT_REVISION_A && revision != DG_CHAT_REVISION_B)
        return dg_fail(err, DGEMMA_E_ARG, "the chat template is not one of those known here");
    if (revision == DG_CHAT_REVISION_A && !c->n_message)
        return dg_fail(err, DGEMMA_E_ARG, "the conversation has no message");
    dg_json_tree tools;
    dgemma_status st = read_tools(&tools, c->tools, err);
    if (st)
        return st;
    renderer r = {.w = {.prompt = out, .revision = revision, .err = err}, .c = c};
    dg_chat_mark(&r.w, "<bos>");
    put_system(&r, tools.root);
    put_messages(&r);
    if (c->add_generation_prompt)
        put_generation_prompt(&r);
    dg_json_tree_clear(&tools);
    if (r.w.status)
        dg_prompt_clear(out);
    return r.w.status;
}

/* ---- to tokens ---- */

static dgemma_status fail_long(const dg_tokens *out, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_LIMIT, "the prompt has more than %zu tokens", out->max);
}

static dgemma_status push_mark(const dg_tokenizer *t, dg_text mark, dg_tokens *out,
                               dgemma_error *err)
{
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)mark.len, mark.data);
    int32_t id = dg_tokenizer_added_id(t, name);
    if (id < 0)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "the model's tokenizer has no token %s", name);
    if (dg_tokens_push(out, id))
        return DGEMMA_OK;
    if (out->n < out->max)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for %zu tokens", out->n);
    return fail_long(out, err);
}

dgemma_status dg_prompt_encode(const dg_tokenizer *t, dg_prompt *p, dg_tokens *out,
                               dgemma_error *err)
{
    size_t before = out->n, at = 0, slot = 0;
    dgemma_status st = DGEMMA_OK;
    if (!dg_tokens_fit(out, dg_tokenizer_least(t, p->text.data, p->text.len)))
        return fail_long(out, err);
    for (size_t i = 0; i < p->n_mark && !st; i++) {
        dg_prompt_mark mark = p->marks[i];
        st = dg_tokenizer_encode(t, p->text.data + at, mark.start - at, 0, out, err);
        if (slot < p->n_slot && p->slots[slot].mark == i)
            p->slots[slot++].token = out->n;
        if (!st)
            st = push_mark(t, (dg_text){p->text.data + mark.start, mark.len}, out, err);
        at = mark.start + mark.len;
    }
    if (!st && at < p->text.len)
        st = dg_tokenizer_encode(t, p->text.data + at, p->text.len - at, 0, out, err);
    if (st)
        out->n = before;
    return st;
}

/* ---- the simplest conversation ---- */

bool dg_chat_supported(const dg_tokenizer *t)
{
    static const char *const markers[] = {"<bos>", "<|turn>", "<turn|>", "<|channel>",
                                          "<channel|>"};
    for (size_t i = 0; i < DG_COUNT(markers); i++)
        if (dg_tokenizer_added_id(t, markers[i]) < 0)
            return false;
    return true;
}

dgemma_status dg_chat_user_turn(const dg_tokenizer *t, const char *text, size_t len, dg_tokens *out,
                                dgemma_error *err)
{
    if (!dg_chat_supported(t))
        return dg_fail(
            err, DGEMMA_E_UNSUPPORTED,
            "the model's tokenizer lacks the turn markers: only raw prompts are possible");
    const dg_message message = {
        .role = DG_ROLE_USER,
        .content = {.kind = DG_CONTENT_TEXT, .text = {len ? text : "", len}},
    };
    const dg_conversation c = {.messages = &message, .n_message = 1, .add_generation_prompt = true};
    dg_prompt prompt;
    dg_prompt_init(&prompt);
    dgemma_status st = dg_chat_render(&c, DG_CHAT_REVISION_A, &prompt, err);
    if (!st)
        st = dg_prompt_encode(t, &prompt, out, err);
    dg_prompt_clear(&prompt);
    return st;
}
