/* A picture of random pixels through the vision tower: the model's own or, for a synthetic model,
 * one with random weights. */
#ifndef DG_BENCH_BENCH_PICTURE_H
#define DG_BENCH_BENCH_PICTURE_H

#include "bench/bench_cost.h"
#include "bench/bench_session.h"

typedef struct dg_bench_picture dg_bench_picture;

/* n_soft soft tokens on the session's device. DGEMMA_E_ARG: the model has no tower, or it sees no
 * picture of this size. */
dgemma_status dg_bench_picture_open(dg_bench_picture **out, const dg_bench_session *s,
                                    const char *shape, int n_soft, dgemma_error *err);
void dg_bench_picture_close(dg_bench_picture *p); /* NULL is fine */

/* From pixels in host memory to features in the device's. */
dgemma_status dg_bench_picture_look(dg_bench_picture *p, dgemma_error *err);

/* What looking cannot do without. */
dg_cost dg_bench_picture_cost(const dg_bench_picture *p);

#endif
