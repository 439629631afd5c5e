/* Canvases that clients bring along to be read: vLLM's diffusion_* arguments. */
#ifndef DG_SERVER_CANVAS_REQUEST_H
#define DG_SERVER_CANVAS_REQUEST_H

#include "chat_request.h"

/* vllm_xargs and logprob_token_ids of the root; where neither is there, nothing is looked at. */
bool dg_openai_read_canvas(dg_chat *out, const dg_chat_limits *limits, dg_http_error *e);

#endif
