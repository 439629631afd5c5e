#include "pocket/ask.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"

enum { MAX_ANSWER_BYTES = 1 << 24 };

/* A request on its way, and what it has said so far. */
typedef struct flight {
    const pocket_prompt *prompt;
    json_t *messages; /* as they are sent */
    dgemma_request *request;
    dg_buf text, thought;
    json_t *calls;
    int32_t *tokens;
    size_t n_tokens;
    int n_first; /* steps before its first words, */
    bool said;   /* which are there */
} flight;

static dgemma_status no_memory(dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for an answer");
}

dgemma_status ask_prepare(dgemma_request_options *o, dgemma_engine *e, const pocket_prompt *p,
                          const json_t *sent, const ask_options *opt, char **messages, char **tools,
                          dgemma_error *err)
{
    *o = dgemma_request_defaults(e);
    *messages = json_dumps(sent, JSON_COMPACT);
    *tools = p->tools ? json_dumps(p->tools, JSON_COMPACT) : NULL;
    if (!*messages || (p->tools && !*tools)) {
        free(*messages);
        return no_memory(err);
    }
    o->messages = *messages;
    o->tools = *tools;
    o->thinking = p->thinking;
    o->seed = p->seed;
    o->max_tokens = opt->max_tokens;
    o->settled_steps = opt->settled;
    o->drafts = true; /* they are counted */
    return DGEMMA_OK;
}

/* What a prompt sends: its messages, behind the conversation that it follows. */
static json_t *conversation(const pocket_prompt *p, json_t *before)
{
    json_t *all = p->follows && before ? json_copy(before) : json_array();
    if (!all || json_array_extend(all, (json_t *)p->messages) != 0) {
        json_decref(all);
        return NULL;
    }
    return all;
}

static dgemma_status take_off(flight *f, dgemma_engine *e, const pocket_prompt *p, json_t *before,
                              const ask_options *opt, dgemma_error *err)
{
    dgemma_request_options o;
    char *messages, *tools;
    *f = (flight){.prompt = p, .messages = conversation(p, before), .calls = json_array()};
    dg_buf_init(&f->text, MAX_ANSWER_BYTES);
    dg_buf_init(&f->thought, MAX_ANSWER_BYTES);
    if (!f->messages)
        return no_memory(err);
    dgemma_status st = ask_prepare(&o, e, p, f->messages, opt, &messages, &tools, err);
    if (st)
        return st;
    st = held_constraint(&o.constraint, opt->held, p, err);
    if (!st)
        st = f->calls ? dgemma_request_submit(&f->request, e, &o, err) : no_memory(err);
    dgemma_constraint_free(o.constraint);
    free(messages);
    free(tools);
    return st ? dg_fail_prefix(err, st, p->id) : DGEMMA_OK;
}

static void land(flight *f)
{
    dgemma_request_free(f->request);
    dg_buf_clear(&f->text);
    dg_buf_clear(&f->thought);
    json_decref(f->messages);
    json_decref(f->calls);
    dg_free(f->tokens);
    *f = (flight){0};
}

static bool keep_tokens(flight *f, const dgemma_event *e)
{
    int32_t *more = dg_array_resize(f->tokens, f->n_tokens + e->n_tokens + 1, sizeof *more);
    if (!more)
        return false;
    f->tokens = more;
    if (e->n_tokens)
        memcpy(more + f->n_tokens, e->tokens, e->n_tokens * sizeof *more);
    f->n_tokens += e->n_tokens;
    return true;
}

static bool keep_call(flight *f, const dgemma_event *e)
{
    json_t *arguments = json_loadb(e->text, e->text_len, JSON_DECODE_ANY, NULL);
    json_t *call = json_pack("{s:s, s:o}", "name", e->tool_name, "arguments",
                             arguments ? arguments : json_null());
    return call && json_array_append_new(f->calls, call) == 0;
}

static bool keep(flight *f, const dgemma_event *e)
{
    f->said |= e->kind == DGEMMA_EVENT_THINKING || e->kind == DGEMMA_EVENT_TEXT ||
               e->kind == DGEMMA_EVENT_TOOL_CALL;
    switch (e->kind) {
    case DGEMMA_EVENT_DRAFT:
        f->n_first += !f->said;
        return true;
    case DGEMMA_EVENT_BLOCK:
        return keep_tokens(f, e);
    case DGEMMA_EVENT_THINKING:
        return dg_buf_append(&f->thought, e->text, e->text_len);
    case DGEMMA_EVENT_TEXT:
        return dg_buf_append(&f->text, e->text, e->text_len);
    case DGEMMA_EVENT_TOOL_CALL:
        return keep_call(f, e);
    default:
        return true;
    }
}

static dgemma_status follow(flight *f, asked_fn *on_answer, void *user, dgemma_error *err)
{
    dgemma_event e;
    do {
        if (!dgemma_request_wait(f->request, &e, -1))
            return dg_fail(err, DGEMMA_E_INTERNAL, "%s: no end came", f->prompt->id);
        if (!keep(f, &e))
            return no_memory(err);
    } while (e.kind != DGEMMA_EVENT_END);
    if (e.status)
        return dg_fail(err, e.status, "%s: %s", f->prompt->id, e.text);
    asked a = {
        .prompt = f->prompt,
        .messages = f->messages,
        .answer = {.text = f->text.data ? f->text.data : "",
                   .thought = f->thought.data ? f->thought.data : "",
                   .calls = f->calls,
                   .thinking = f->prompt->thinking,
                   .thought_due = f->prompt->thought_due,
                   .end = e.stats.end},
        .tokens = f->tokens,
        .n_tokens = f->n_tokens,
        .stats = e.stats,
        .n_first = f->n_first,
    };
    return on_answer(user, &a, err);
}

/* *before becomes the conversation up to this answer. */
static dgemma_status answered(json_t **before, const flight *f, dgemma_error *err)
{
    json_decref(*before);
    *before = json_incref(f->messages);
    json_t *said =
        json_pack("{s:s, s:s}", "role", "assistant", "content", f->text.data ? f->text.data : "");
    return json_array_append_new(*before, said) == 0 ? DGEMMA_OK : no_memory(err);
}

dgemma_status ask_all(dgemma_engine *e, const pocket_prompts *p, const ask_options *opt,
                      asked_fn *on_answer, void *user, dgemma_error *err)
{
    size_t n_slot = (size_t)opt->parallel, next = 0;
    flight *flights = dg_calloc(n_slot, sizeof *flights); /* prompt i is in slot i % n_slot */
    json_t *before = NULL; /* the conversation that prompt i may follow */
    dgemma_status st = flights ? DGEMMA_OK : no_memory(err);
    for (size_t i = 0; !st && i < p->n; i++) {
        flight *f = &flights[i % n_slot];
        for (; !st && next < p->n && next < i + n_slot && (next == i || !p->at[next].follows);
             next++)
            st = take_off(&flights[next % n_slot], e, &p->at[next], before, opt, err);
        if (!st)
            st = follow(f, on_answer, user, err);
        if (!st)
            st = answered(&before, f, err);
        land(f);
    }
    json_decref(before);
    for (size_t i = 0; flights && i < n_slot; i++)
        land(&flights[i]);
    dg_free(flights);
    return st;
}
