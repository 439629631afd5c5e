#include "text/output_events.h"
#include <string.h>
#include "text/call_syntax.h"

enum { MAX_RUN = 1 << 16 }; /* bytes that one event gathers */

void dg_output_events_init(dg_output_events *e, dg_output_fn *on_event, void *user)
{
    *e = (dg_output_events){.on_event = on_event, .user = user};
    /* Above what the limits let through: a failure is one of memory. */
    dg_buf_init(&e->run, 2 * (size_t)DG_OUTPUT_MAX_CALL);
    dg_buf_init(&e->name, DG_CALL_MAX_NAME);
    dg_buf_init(&e->arguments, 8 * (size_t)DG_OUTPUT_MAX_CALL);
}

void dg_output_events_clear(dg_output_events *e)
{
    dg_buf_clear(&e->run);
    dg_buf_clear(&e->name);
    dg_buf_clear(&e->arguments);
}

static void fail(dg_output_events *e, dgemma_status status)
{
    if (!e->status)
        e->status = status;
}

void dg_output_events_need(dg_output_events *e, bool ok)
{
    if (!ok)
        fail(e, DGEMMA_E_NOMEM);
}

static void emit(dg_output_events *e, const dg_output_event *event)
{
    if (!e->status && !e->on_event(e->user, event))
        fail(e, DGEMMA_E_CANCELLED);
}

void dg_output_events_send(dg_output_events *e)
{
    if (e->run.len)
        emit(e, &(dg_output_event){.kind = e->kind, .text = {e->run.data, e->run.len}});
    e->run.len = 0;
}

void dg_output_events_add(dg_output_events *e, dg_output_kind kind, const char *text, size_t len)
{
    if (!len)
        return;
    if (e->kind != kind || e->run.len + len > MAX_RUN)
        dg_output_events_send(e);
    e->kind = kind;
    dg_output_events_need(e, dg_buf_append(&e->run, text, len));
}

void dg_output_events_end(dg_output_events *e, int32_t token)
{
    dg_output_events_send(e);
    emit(e, &(dg_output_event){.kind = DG_OUTPUT_END, .index = e->n_call, .end = token});
}

/* ---- calls ---- */

/* What stands where calls do, readable. */
static void add_call_text(dg_output_events *e, dg_output_kind kind, dg_text text)
{
    while (text.len && dg_output_is_space(text.data[0]))
        text.data++, text.len--;
    while (text.len && dg_output_is_space(text.data[text.len - 1]))
        text.len--;
    while (text.len) {
        const char *quote = memchr(text.data, (unsigned char)DG_CALL_QUOTE, text.len);
        size_t n = quote ? (size_t)(quote - text.data) : text.len;
        dg_output_events_add(e, kind, text.data, n);
        if (quote)
            dg_output_events_add(e, kind, "\"", 1);
        n += quote != NULL;
        text.data += n;
        text.len -= n;
    }
}

static void send_call(dg_output_events *e)
{
    dg_output_events_send(e);
    emit(e, &(dg_output_event){.kind = DG_OUTPUT_TOOL_CALL,
                               .name = {e->name.data, e->name.len},
                               .text = {e->arguments.data, e->arguments.len},
                               .index = e->n_call});
    e->n_call++;
}

/* What may stand between calls and behind them: nothing that anyone would miss. */
static bool is_filler(char c)
{
    return dg_output_is_space(c) || (c && strchr("}]),;", c));
}

void dg_output_events_calls(dg_output_events *e, dg_text body, bool finished)
{
    bool first = true, is_call = true;
    while (body.len && !e->status) {
        dgemma_status st = DGEMMA_E_ARG;
        is_call = first || (body.len >= 5 && memcmp(body.data, "call:", 5) == 0);
        if (is_call)
            st = dg_call_read(&body, finished, &e->name, &e->arguments);
        if (st == DGEMMA_E_NOMEM)
            fail(e, st);
        if (st)
            break;
        send_call(e);
        first = false;
        while (body.len && is_filler(body.data[0]))
            body.data++, body.len--;
    }
    add_call_text(e, is_call ? DG_OUTPUT_BROKEN_CALL : DG_OUTPUT_TEXT, body);
}

void dg_output_events_broken_call(dg_output_events *e, dg_text body)
{
    add_call_text(e, DG_OUTPUT_BROKEN_CALL, body);
}
