/* From a request's options to the guide that holds its answer to a constraint. */
#ifndef DG_ENGINE_REQUEST_GUIDE_H
#define DG_ENGINE_REQUEST_GUIDE_H

#include "engine/request.h"

/* Makes the guide of a request that has its prompt and its configuration. DGEMMA_E_ARG: the answer
 * may not be as long as the shortest text of the language. */
dgemma_status dg_request_constrain(dgemma_request *r, dgemma_engine *e,
                                   const dgemma_request_options *o, dgemma_error *err);

#endif
