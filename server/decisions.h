/* OpenAI's form of questions and answers: POST /v1/decisions. */
#ifndef DG_SERVER_DECISIONS_H
#define DG_SERVER_DECISIONS_H

#include "decide_body.h"

extern const dg_decide_wire dg_decisions;

#endif
