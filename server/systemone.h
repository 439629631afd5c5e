/* System One's form of questions and answers: POST /v1/systemone. */
#ifndef DG_SERVER_SYSTEMONE_H
#define DG_SERVER_SYSTEMONE_H

#include "decide_body.h"

extern const dg_decide_wire dg_systemone;

/* The body of an answer that is none, as its clients read it. */
json_t *dg_systemone_error(const dg_http_error *e);

#endif
