/* What a folder says about its quantised weights, written: the way back from quantisation.h. */
#ifndef DG_FORMAT_QUANTISATION_PUT_H
#define DG_FORMAT_QUANTISATION_PUT_H

#include "base/buf.h"
#include "base/error.h"

/* Forms of compressed-tensors that are written. */
typedef enum dg_folder_form {
    DG_FOLDER_BF16, /* nothing is quantised */
    DG_FOLDER_FP8,  /* E4M3, a scale for each row */
    DG_FOLDER_NVFP4 /* E2M1 in groups of 16, each with a scale of E4M3; one divisor a matrix */
} dg_folder_form;

/* A config.json, with what it says of quantised weights and their type replaced. `where` names it
 * in errors. */
dgemma_status dg_quantisation_put(dg_buf *out, const char *config, size_t len, dg_folder_form form,
                                  const char *where, dgemma_error *err);

/* Whether the form has this module quantised, by its name without ".weight": experts, the dense MLP
 * and, with eight bits, attention; as published files do. */
bool dg_folder_quantises(dg_folder_form form, const char *module);

#endif
