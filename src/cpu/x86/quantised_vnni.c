/* Products on quantised weights with AVX-512 VNNI, of rows that lie in pairs. */
#include <string.h>
#include "base/common.h"
#include "cpu/quantised.h"
#ifndef DG_PLAIN_LANES /* tests bring their own */
#include "cpu/x86/lanes_avx512.h"
#endif

#define UP(kind) ((kind) == DG_Q_PLAIN || (kind) == DG_Q_HALVES ? 128 : 0)
#include "cpu/x86/pack_avx512.h"

INLINE void pack_panel(dg_qpanel *panel, const dg_qpack_args *a, dg_qkind kind, dg_numbers_fn *row)
{
    pack_columns(panel, a, kind, row);
}

DG_NUMBER_TYPES(DG_PACK)

/* A row's blocks, and which row of the pair it is. */
typedef struct dot_row {
    const dg_qpair *x;
    int which;
} dot_row;

INLINE dot_row dot_row_at(const dg_qgemm_args *a, int row)
{
    return (dot_row){a->x + (size_t)(row / 2) * a->ldx, row % 2};
}

INLINE void dot_next(dot_row *r)
{
    r->x++;
}

INLINE v64 dot_four(const dot_row *r, int four)
{
    int32_t bytes;
    memcpy(&bytes, &r->x->n[four / 2][r->which][four % 2 * 4], sizeof bytes);
    return v64_set32(bytes);
}

INLINE int32_t dot_bias(const dot_row *r, int half)
{
    return r->x->bias[r->which][half];
}

INLINE float dot_step(const dot_row *r)
{
    return r->x->step[r->which][0];
}

INLINE float dot_sum(const dot_row *r)
{
    return r->x->sum[r->which][0];
}

INLINE float dot_half_sum(const dot_row *r, int half)
{
    return r->x->half_sum[r->which][half];
}

#include "cpu/x86/dots_avx512.h"

INLINE void multiply_all(const dg_qgemm_args *a, const dg_qkind kind)
{
    fetch soon = fetch_of(&a->soon, dot_turns(a));
    dot_all(a, &soon, kind);
}

DG_GEMM_OF_KINDS(multiply_all)

const dg_qkernels dg_quantised_vnni = {
    .quantise = QUANTISE,
    .pack = {DG_NUMBER_TYPES(DG_PACK_ENTRY)},
    .gemm = gemm,
};
