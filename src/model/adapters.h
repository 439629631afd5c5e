/* Adapters of a loaded model: what each adds to which matrices, in the backend's memory. */
#ifndef DG_MODEL_ADAPTERS_H
#define DG_MODEL_ADAPTERS_H

#include "format/adapter.h"
#include "model/model.h"

/* Gives the model n adapters, which passes may then name by their number; once, before the first
 * pass. What was read is copied. DGEMMA_E_UNSUPPORTED: an adapter changes what the model does not
 * have. On failure the model is as good as before. */
dgemma_status dg_model_adapt(dg_model *m, const dg_adapter *adapter, int n, dgemma_error *err);

/* Whether an adapter changes keys and values of prompts: those are then others than the model's. */
bool dg_model_adapter_encodes(const dg_model *m, int adapter);

/* Bytes of an adapter in memory, and its largest rank. */
size_t dg_model_adapter_bytes(const dg_model *m, int adapter);
int dg_model_adapter_rank(const dg_model *m, int adapter);

/* NULL is fine. */
void dg_model_adapters_free(struct dg_model_adapters *a, dg_backend *be);

#endif
