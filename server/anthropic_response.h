/* Answers in Anthropic's form: a message of content blocks, whole or as a stream of events. */
#ifndef DG_SERVER_ANTHROPIC_RESPONSE_H
#define DG_SERVER_ANTHROPIC_RESPONSE_H

#include "generation.h"

extern const dg_dialect dg_anthropic;

#endif
