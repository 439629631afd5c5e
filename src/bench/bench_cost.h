/* What a pass cannot do without: bytes to read and operations, whatever the way. */
#ifndef DG_BENCH_BENCH_COST_H
#define DG_BENCH_BENCH_COST_H

#include "format/checkpoint.h"
#include "model/config.h"
#include "tensor/kv_numbers.h"

typedef struct dg_cost {
    double bytes, ops; /* a product and a sum are two operations */
} dg_cost;

/* A step of `batch` canvases behind `context` tokens each. Experts that no row is sent to are not
 * read; where every choice is equally likely few are left out. The soft embedding is not counted:
 * what it visits depends on how sure the model is. kv_type: of stored keys and values. */
dg_cost dg_cost_step(const dg_config *cfg, const dg_checkpoint *ck, const char *weights,
                     int context, int batch, dg_dtype kv_type);

/* A prompt of `n` tokens in pieces of `chunk`: keys see those before them. */
dg_cost dg_cost_prefill(const dg_config *cfg, const dg_checkpoint *ck, const char *weights, int n,
                        int chunk, dg_dtype kv_type);

/* Of the language model's tensors. */
double dg_cost_weights(const dg_checkpoint *ck);

#endif
