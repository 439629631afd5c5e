/* Weights and layers of experts for checks: check_cuda_products.c makes them and says what experts
 * give. */
#ifndef DG_TESTS_CUDA_CHECK_EXPERTS_H
#define DG_TESTS_CUDA_CHECK_EXPERTS_H

#include "cuda/cuda_check.h"

typedef struct stored {
    dg_cuda_matrix matrix; /* packed, on the device */
    const void *stored;    /* on the device, too */
    size_t mat_bytes;
    bool dense;    /* multiplied with all rows: packed as slabs where the device wants them */
    bool gated;    /* gate or up of experts */
    bool down;     /* down of experts */
    double *value; /* [n_mat, n_out, n_in] of what the products multiply with */
} stored;

typedef struct layer {
    int n_expert, n_used, n_embd, n_ff;
    stored gate, up, down;
} layer;

typedef struct inputs {
    dg_cuda_rows rows;
    float *value; /* [n_row, n], as stored */
} inputs;

stored make_dense_weights(dg_dtype type, int n_out, int n_in);
inputs make_inputs(dg_cuda_form form, int n_row, int n);
layer make_layer(dg_dtype type, dg_dtype down, int n_expert, int n_used, int n_embd, int n_ff);

/* Experts of rows, n_used distinct ones each; skew: the first far more often, the last never. And
 * their weights. */
int32_t *make_routes(const layer *l, int n_row, bool skew);
float *make_route_weights(size_t n);

/* What the experts of a row give, of x as the products of the layer's type see it; and how far a
 * result may be from it. */
void layer_sees(const layer *l, float *x, size_t n);
void expert_row(double *y, const layer *l, const float *x, const int32_t *expert,
                const float *weight);
double experts_limit(dg_dtype type, dg_dtype down);

#endif
