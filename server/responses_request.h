/* Bodies of /v1/responses. Pure functions: the fuzzer runs them too. */
#ifndef DG_SERVER_RESPONSES_REQUEST_H
#define DG_SERVER_RESPONSES_REQUEST_H

#include "chat_request.h"

dg_read_fn dg_responses_read;

#endif
