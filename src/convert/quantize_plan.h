/* What a quantised file will hold: a tensor for each of the model's, under its GGUF name, with the
 * type that a preset gives it. */
#ifndef DG_CONVERT_QUANTIZE_PLAN_H
#define DG_CONVERT_QUANTIZE_PLAN_H

#include "convert/importance.h"
#include "convert/quantize_rows.h"
#include "engine/loader.h"
#include "model/presets.h"

typedef struct dg_quantize_plan {
    dg_planned *tensor; /* in the order of the file: what is in no layer first */
    size_t n;
    size_t n_weighted; /* matrices that an importance file is for */
    size_t n_left_out; /* tensors that GGUF has elsewhere or not at all */
    size_t n_unknown;  /* of these, those that are not a vision tower's */
    float *rope;       /* of rope_freqs.weight, where a checkpoint does not have it */
    dg_tensor rope_tensor;
} dg_quantize_plan;

/* `l` and `imp`, which may be NULL, outlive *plan. DGEMMA_E_UNSUPPORTED: a type that nothing is
 * narrowed to here, or a head that is not the embedding table; DGEMMA_E_FORMAT: the importance file
 * is for another model. Clear *plan also after a failure. */
dgemma_status dg_quantize_plan_make(dg_quantize_plan *plan, const dg_loaded *l, const dg_preset *p,
                                    const dg_importance *imp, dgemma_error *err);
void dg_quantize_plan_clear(dg_quantize_plan *plan);

#endif
