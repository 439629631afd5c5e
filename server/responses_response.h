/* Answers of /v1/responses: an object with a list of items, or a stream of numbered events. */
#ifndef DG_SERVER_RESPONSES_RESPONSE_H
#define DG_SERVER_RESPONSES_RESPONSE_H

#include "generation.h"

extern const dg_dialect dg_responses;

#endif
