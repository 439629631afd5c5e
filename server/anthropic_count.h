/* POST /v1/messages/count_tokens: what a prompt would cost. */
#ifndef DG_SERVER_ANTHROPIC_COUNT_H
#define DG_SERVER_ANTHROPIC_COUNT_H

#include "calls.h"

void dg_anthropic_count(dg_call *c);

#endif
