/* What the output parser sends to its receiver: runs of text of one kind, calls, the end. Which
 * text is what, the parser says. */
#ifndef DG_TEXT_OUTPUT_EVENTS_H
#define DG_TEXT_OUTPUT_EVENTS_H

#include "base/buf.h"
#include "text/output_parser.h"

typedef struct dg_output_events {
    dg_output_fn *on_event;
    void *user;
    dg_buf run;             /* text to be sent, of one kind */
    dg_output_kind kind;    /* of the run */
    dg_buf name, arguments; /* of a call */
    int n_call;
    dgemma_status status; /* once it is not OK nothing is sent any more */
} dg_output_events;

void dg_output_events_init(dg_output_events *e, dg_output_fn *on_event, void *user);
void dg_output_events_clear(dg_output_events *e);

/* Not ok: memory is out, and that is the end of it. */
void dg_output_events_need(dg_output_events *e, bool ok);

/* Text gathers until text of another kind comes, something else, or dg_output_events_send(). */
void dg_output_events_add(dg_output_events *e, dg_output_kind kind, const char *text, size_t len);
void dg_output_events_send(dg_output_events *e);

/* One call, or several written behind each other, read as dg_call_read() does; text after them is
 * text. What cannot be read is a broken call. */
void dg_output_events_calls(dg_output_events *e, dg_text body, bool finished);
void dg_output_events_broken_call(dg_output_events *e, dg_text body);

void dg_output_events_end(dg_output_events *e, int32_t token); /* -1: by none */

static inline bool dg_output_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

#endif
