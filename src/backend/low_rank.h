/* What adapters add to products, as a backend has it in its memory and a device reads it there. */
#ifndef DG_BACKEND_LOW_RANK_H
#define DG_BACKEND_LOW_RANK_H

/* What an adapter adds to the products of a matrix, or of n_mat of them: factor * B (A x). */
typedef struct dg_low_rank {
    int rank;       /* 0: nothing */
    const float *a; /* [n_mat][rank][n_in] the backend's memory, both */
    const float *b; /* [n_mat][n_out][rank] */
    float factor;
} dg_low_rank;
enum { DG_MAX_RANK = 256, DG_MAX_ADAPTER = 64 };

/* An adapter that changes a segment's rows, and how much: its factors are multiplied by `scale`. */
typedef struct dg_adapter_use {
    int adapter;
    float scale;
} dg_adapter_use;

#endif
