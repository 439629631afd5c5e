/* Canvases that clients bring along to be read: vLLM's diffusion_* arguments. */
#ifndef DG_SERVER_CANVAS_REQUEST_H
#define DG_SERVER_CANVAS_REQUEST_H

#include "chat_request.h"

/* vllm_xargs, logprob_token_ids, return_tokens_as_token_ids and stop_token_ids of the root. */
bool dg_openai_read_canvas(dg_chat *out, const dg_chat_limits *limits, dg_http_error *e);

/* Once choices, prompts and log-probabilities are read too: whether what is told of canvases that
 * are read is not too much. */
bool dg_openai_check_canvas(const dg_chat *c, dg_http_error *e);

#endif
