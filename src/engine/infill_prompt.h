/* How the model is asked to fill a gap where the caller has no prompt of their own. It was not
 * trained for gaps: it is told in words, and the canvas does the rest. */
#ifndef DG_ENGINE_INFILL_PROMPT_H
#define DG_ENGINE_INFILL_PROMPT_H

#include "base/buf.h"
#include "dgemma.h"

/* Appends a user's message that asks for what stands before o->suffix, NUL-terminated. False:
 * memory is out. */
bool dg_infill_prompt(dg_buf *out, const dgemma_request_options *o);

#endif
