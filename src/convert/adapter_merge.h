/* Adapters that become part of the weights while a model is written. Merging is right for an
 * adapter that changes prompts and canvases alike, since the file has one set of weights for both;
 * others are refused. */
#ifndef DG_CONVERT_ADAPTER_MERGE_H
#define DG_CONVERT_ADAPTER_MERGE_H

#include "convert/quantize_plan.h"
#include "format/adapter.h"

typedef struct dg_merge_adapter {
    dg_adapter adapter;
    float scale;
} dg_merge_adapter;

typedef struct dg_merging {
    dg_merge_adapter *list;
    size_t n;
} dg_merging;

/* Reads n adapters and finds for each of their parts the tensor that it changes. DGEMMA_E_ARG: a
 * scale is not a number; DGEMMA_E_UNSUPPORTED: a part is for one of the two passes alone, or for no
 * matrix of this model. *m is to be closed in any case. */
dgemma_status dg_merge_open(dg_merging *m, const dgemma_adapter *adapter, size_t n,
                            const dg_quantize_plan *plan, dgemma_error *err);
void dg_merge_close(dg_merging *m);

/* Whether `path` is one of the files that they are in. */
bool dg_merge_reads(const dg_merging *m, const char *path);

/* Gives a planned tensor its changes, read for it alone: experts' of all layers would not fit into
 * memory. They are to be taken back in any case. */
dgemma_status dg_merge_begin(const dg_merging *m, dg_planned *to, dgemma_error *err);
void dg_merge_end(dg_planned *to);

#endif
