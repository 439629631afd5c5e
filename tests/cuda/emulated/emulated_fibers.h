/* The threads of a block, as emulated.cpp runs them: shared with emulated_collectives.cpp, which
 * computes what the lanes of a warp meet for. */
#ifndef EMULATED_FIBERS_H
#define EMULATED_FIBERS_H

#include "cuda_runtime.h"

typedef enum wait_state { RUNS, IN_WARP, AT_BARRIER, ON_MBAR, ON_COUNT, DONE } wait_state;

typedef enum collective {
    C_SHUFFLE,
    C_BALLOT,
    C_SYNC,
    C_MMA,
    C_MMA_TF32,
    C_MMA_S8,
    C_LDMATRIX
} collective;

/* A copy that cp.async or a bulk copy has begun. */
typedef struct copy {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes, n_copied; /* the rest is zero */
    int group;              /* cp.async: which commit */
    uint64_t *bar;          /* bulk */
    emu_tensor_map map;     /* of a box, whose first value is `at`; data NULL: not one */
    int at[EMU_DIMS];
} copy;

typedef struct copies {
    copy *item;
    int n, max;
} copies;

typedef struct fiber {
    void *sp;
    unsigned char *stack; /* its lowest byte, behind the guard page */
    size_t stack_bytes;
    void *fake_stack;
    wait_state state;
    emu_where where;
    uint3 thread;
    int barrier, barrier_result;
    long seen; /* ON_MBAR: the progress at which it last looked */
    uint32_t in[12], out[4];
    const void *row;
    copies under_way;
    int group;
} fiber;

/* The lanes that have come to the collective under way. */
typedef struct warp {
    collective kind;
    int variant;
    uint32_t mask, arrived;
    emu_where where;
} warp;

/* What the lanes that have come get of it: lane[0 ... 31], `out` from everybody's `in`. */
void emu_compute(const warp *w, fiber *lane);

#endif
