/* Holds what a model computes to a reference: published values, or a record of a trusted model. */
#ifndef DG_ENGINE_VERIFY_H
#define DG_ENGINE_VERIFY_H

#include "base/buf.h"
#include "dgemma_tools.h"

dgemma_status dg_verify_run(const dgemma_engine_options *opt, const char *reference,
                            dgemma_check_fn *on_check, void *user, bool *passed, dgemma_error *err);

/* Appends a reference made from the model to *out. */
dgemma_status dg_verify_record(const dgemma_engine_options *opt, dg_buf *out, dgemma_error *err);

#endif
