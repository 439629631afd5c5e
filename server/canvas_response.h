/* Answers to POST /infill, in llama-server's form, and to POST /v1/edit. */
#ifndef DG_SERVER_CANVAS_RESPONSE_H
#define DG_SERVER_CANVAS_RESPONSE_H

#include "generation.h"

extern const dg_dialect dg_infill, dg_edit;

#endif
