/* Bodies of /api/chat and /api/generate. Pure functions: the fuzzer runs them too. A body without
 * messages or a prompt asks for no answer: clients load models so. */
#ifndef DG_SERVER_OLLAMA_REQUEST_H
#define DG_SERVER_OLLAMA_REQUEST_H

#include "chat_request.h"

dg_read_fn dg_ollama_read_chat, dg_ollama_read_generate;

#endif
