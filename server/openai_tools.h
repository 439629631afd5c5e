/* What a chat completion says about tools: which there are, which may be called, whether one must
 * be; and the same in the words from before there were tools (`functions`, `function_call`). */
#ifndef DG_SERVER_OPENAI_TOOLS_H
#define DG_SERVER_OPENAI_TOOLS_H

#include "chat_request.h"

/* Puts `functions` and `function_call`, of the body and of its messages, into the words of today,
 * in out->root. Before anything else is read. */
bool dg_openai_read_functions(dg_chat *out, dg_http_error *e);

bool dg_openai_read_tools(dg_chat *out, dg_http_error *e);

#endif
