/* Answers in OpenAI's form: objects, and streams of chunks. */
#ifndef DG_SERVER_OPENAI_RESPONSE_H
#define DG_SERVER_OPENAI_RESPONSE_H

#include "generation.h"

extern const dg_dialect dg_openai_chat, dg_openai_completion;

/* A comment line, which every reader of server-sent events skips. */
void dg_sse_ping(dg_generation *g);
void dg_openai_fail(dg_generation *g, const dg_http_error *e);

/* A step of a canvas: pieces, entropy, accepted, and what is pinned. The caller owns it. */
json_t *dg_openai_draft(const dg_generation *g, const dgemma_event *e);

/* llama-server's `timings`, with an object `diffusion` in it. The caller owns it. */
json_t *dg_openai_timings(const dg_generation *g);

#endif
