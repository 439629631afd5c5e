/* A backend around another that looks at the clock before and after each stage. While it does so, a
 * device is awaited after every stage, which costs it a little time each; the CPU's stages are done
 * when they return. */
#ifndef DG_BENCH_BENCH_STAGES_H
#define DG_BENCH_BENCH_STAGES_H

#include "backend/backend.h"

typedef enum dg_bench_stage {
    DG_STAGE_EMBED,
    DG_STAGE_CONDITION,
    DG_STAGE_ROPE_TABLE,
    DG_STAGE_QKV,
    DG_STAGE_ATTENTION_SLIDING,
    DG_STAGE_ATTENTION_GLOBAL,
    DG_STAGE_ATTENTION_OUT,
    DG_STAGE_DENSE,
    DG_STAGE_ROUTE,
    DG_STAGE_EXPERTS,
    DG_STAGE_JOIN,
    DG_STAGE_NORM,
    DG_STAGE_VOCABULARY,
    DG_STAGES
} dg_bench_stage;

extern const char *const dg_bench_stage_name[DG_STAGES];

/* Takes `inner`, which goes with it: also when this fails. */
dgemma_status dg_timed_open(dg_backend **out, dg_backend *inner, dgemma_error *err);

/* From here on, stages are timed, their sums zero; until the other. */
void dg_timed_start(dg_backend *be);
void dg_timed_stop(dg_backend *be, double seconds[DG_STAGES]);

#endif
