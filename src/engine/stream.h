/* The way from the engine's thread to whoever asked: a queue of events, each with its own copy of
 * what it says. The engine never waits for a reader. Drafts are the only events that come without
 * end, so only so many are kept: of a reader who does not keep up, the oldest waiting draft is
 * dropped. */
#ifndef DG_ENGINE_STREAM_H
#define DG_ENGINE_STREAM_H

#include "dgemma.h"

typedef struct dg_stream dg_stream;

dgemma_status dg_stream_create(dg_stream **out, dgemma_error *err);
void dg_stream_free(dg_stream *s);

/* The engine's side. Copies the event; false when memory is out. END is always delivered: room for
 * it was set aside. */
bool dg_stream_push(dg_stream *s, const dgemma_event *event);

/* What is pushed after gather waits for deliver, which hands it over with `first`, unless that is
 * NULL, in front of it. Not for drafts and END. False: no memory for `first`; the others are
 * delivered all the same. */
void dg_stream_gather(dg_stream *s);
bool dg_stream_deliver(dg_stream *s, const dgemma_event *first);

/* The reader's side: the next event, waiting up to `seconds` (negative: for ever). False: none
 * came, or END was delivered before. What *event points to lives until the next call. One reader at
 * a time. */
bool dg_stream_wait(dg_stream *s, dgemma_event *event, double seconds);

/* Has fn called for each event that arrives, and now if one is there. On the side of the engine it
 * runs with the stream's lock held, so that nobody is called any more once END was taken: fn may
 * wake a thread up, and not look at the stream. */
void dg_stream_notify(dg_stream *s, dgemma_notify_fn *fn, void *user);

/* Any thread. */
void dg_stream_cancel(dg_stream *s);
bool dg_stream_cancelled(const dg_stream *s);

/* The engine's side: around a call of a function that is the reader's. False: the reader is gone,
 * and nothing of theirs may be touched. */
bool dg_stream_call_begin(dg_stream *s);
void dg_stream_call_end(dg_stream *s);

/* The reader goes: cancels, and waits for a call that is under way, unless it is made from inside
 * it. Nobody is called after that. */
void dg_stream_hang_up(dg_stream *s);

#endif
