/* Products on quantised weights as bytes, as cpu/bytes.h says. */
#include <math.h>
#include <string.h>
#include "base/common.h"
#include "cpu/bytes.h"
#include "tensor/blocks.h"

#define float_of_f16 dg_f16_to_float

static inline void i8_look_up(int8_t *out, const int8_t *n, const int8_t table[16])
{
    for (int k = 0; k < 16; k++)
        out[k] = table[n[k]];
}

#include "cpu/numbers_body.h"

static void quantise(dg_qpair *out, int which, const float *x, int n_block)
{
    (void)which;
    const int n_in = n_block * DG_QBLOCK;
    int8_t *n = (int8_t *)out;
    float *step = dg_byte_steps(out, n_in);
    int32_t *start = dg_byte_starts(out, n_in);
    for (int k = 0; k < n_in; k += DG_QSLICE) {
        dg_qsuper one;
        float slice[DG_QSLICE] = {0};
        memcpy(slice, x + k, (size_t)dg_min(DG_QSLICE, n_in - k) * sizeof *x);
        dg_quantised_ref.quantise_super((dg_qpair *)&one, 0, slice, DG_QBLOCKS);
        start[k / DG_QSLICE] = 0;
        for (int i = 0; i < DG_QSLICE; i++) {
            n[k + i] = one.n[i / 8][0][i % 8];
            start[k / DG_QSLICE] -= 128 * n[k + i];
        }
        step[k / DG_QSLICE] = one.step[0][0];
    }
}

/* ---- weights ---- */

/* A slice of one column. */
typedef struct column {
    int8_t n[DG_QSLICE];
    float step;
} column;

static float reach_of(float a, float b, int up, int most)
{
    const float low = fabsf(b), high = fabsf(fmaf((float)most, a, -b));
    return up ? (float)up * fabsf(a) : low > high ? low : high;
}

static void set_column(column *out, const dg_numbers *w, int n_value, dg_qkind kind, int up,
                       int most)
{
    const int group = group_of(kind), n_group = n_value / group;
    float reach = 0, poison = 0;
    for (int g = 0; g < n_group; g++) {
        const float a = w->step[g], b = has_least(kind) ? w->least[g] : 0,
                    r = reach_of(a, b, up, most);
        reach = r > reach ? r : reach;
        poison += (a - a) + (b - b);
    }
    out->step = reach / 127 + poison;
    if (isnan(poison))
        return;
    const float ratio = reach >= DG_BYTE_LEAST ? DG_BYTE_FULL / reach : 0;
    for (int k = 0; k < n_value; k++) {
        const float b = has_least(kind) ? w->least[k / group] : 0;
        const int times = (int)lrintf(w->step[k / group] * ratio), less = (int)lrintf(b * ratio);
        out->n[k] = (int8_t)((w->n[k] * times - less + 128) >> 8);
    }
}

typedef void set_column_fn(column *out, const uint8_t *b, int n_value);
#define SET_COLUMN(type, name, values, bytes, kind, low, most)                                     \
    static void column_##name(column *out, const uint8_t *b, int n_value)                          \
    {                                                                                              \
        dg_numbers w = {0};                                                                        \
        row_##name(&w, b, n_value);                                                                \
        set_column(out, &w, n_value, DG_Q_##kind, low, most);                                      \
    }
DG_NUMBER_TYPES(SET_COLUMN)

#define SET_COLUMN_ENTRY(type, name, values, bytes, kind, low, most) [DG_##type] = column_##name,
static set_column_fn *const column_of_type[DG_QTYPES] = {DG_NUMBER_TYPES(SET_COLUMN_ENTRY)};

/* ---- the product ---- */

static void product(const dg_byte_args *a)
{
    const size_t room = dg_qrow_room(a->n_in, DG_QWAY_BYTES);
    for (int c = 0; c < a->n_col; c++)
        for (int k = 0; k < a->n_in; k += DG_QSLICE) {
            const int n = dg_min(DG_QSLICE, a->n_in - k);
            const size_t at = k ? dg_dtype_bytes((dg_dtype)a->type, (size_t)k) : 0;
            column w = {{0}, 0};
            column_of_type[a->type](&w, (const uint8_t *)a->w + (size_t)c * a->stride + at, n);
            for (int r = 0; r < a->n_row; r++) {
                const dg_qpair *row = a->x + (size_t)(a->first_row + r) * room;
                const int8_t *x = (const int8_t *)row + k;
                const float step = dg_byte_steps((dg_qpair *)row, a->n_in)[k / DG_QSLICE];
                float *y = a->y + (size_t)r * a->ldy + c;
                int sum = 0;
                for (int i = 0; i < n; i++)
                    sum += x[i] * w.n[i];
                *y = fmaf((float)sum * (w.step * a->scale), step, k ? *y : 0);
            }
        }
}

const dg_byte_kernels dg_bytes_ref = {
    .profile = "integer-bytes-reference",
    .way = DG_QWAY_BYTES,
    .quantise = quantise,
    .product = product,
};
