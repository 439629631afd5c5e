/* What a request says of the canvas itself, beside numbers: `diffusion.canvas`, tokens that answers
 * start from and that may be pinned; and texts with a gap. Pure functions of JSON. */
#ifndef DG_SERVER_START_REQUEST_H
#define DG_SERVER_START_REQUEST_H

#include "chat_request.h"

/* {"tokens": [id or null, …], "keep": [[first, end], …], "strength": 0 … 1} of `diffusion`, which
 * may be NULL; taken out of it. */
bool dg_canvas_read(dg_chat *out, json_t *diffusion, int n_vocab, dg_http_error *e);

/* Makes a prompt that was read a gap: its text is what stands before it. `passage` may be NULL;
 * texts are copied. False: out of memory, and *e says so. */
bool dg_canvas_gap(dg_raw_prompt *p, const char *before, const char *passage, const char *after,
                   dg_http_error *e);

/* Bodies of POST /infill, as llama-server has it, and POST /v1/edit. */
dg_read_fn dg_infill_read, dg_edit_read;

#endif
