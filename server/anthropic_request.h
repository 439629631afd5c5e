/* Bodies of /v1/messages and /v1/messages/count_tokens. Pure functions: the fuzzer runs them too.
 */
#ifndef DG_SERVER_ANTHROPIC_REQUEST_H
#define DG_SERVER_ANTHROPIC_REQUEST_H

#include "chat_request.h"

dg_read_fn dg_anthropic_read;
dg_read_fn dg_anthropic_read_count; /* the same without max_tokens */

#endif
