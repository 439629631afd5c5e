/* Bodies of /v1/chat/completions and /v1/completions. Pure functions: the fuzzer runs them too. */
#ifndef DG_SERVER_OPENAI_REQUEST_H
#define DG_SERVER_OPENAI_REQUEST_H

#include "chat_request.h"

dg_read_fn dg_openai_read_chat, dg_openai_read_completion;

#endif
