/* The definition of every kernel. Sums in double, written to be read, never tuned. */
#include "cpu/kernels.h"
#include <math.h>
#include "base/real.h"

/* The value at index i of a row stored as `type`. */
static float at(const void *row, dg_dtype type, int i)
{
    float f;
    dg_widen(&f, (const unsigned char *)row + (size_t)i * dg_dtype_size(type), type, 1);
    return f;
}

static const void *row_of(const void *src, size_t stride, int r)
{
    return (const unsigned char *)src + (size_t)r * stride;
}

static void pack_cols(float *panel, const void *src, size_t stride, int n_k, int n_col, dg_dtype t)
{
    for (int k = 0; k < n_k; k++)
        for (int c = 0; c < DG_PANEL; c++)
            panel[k * DG_PANEL + c] = c < n_col ? at(row_of(src, stride, c), t, k) : 0;
}

static void pack_rows(float *panel, const void *src, size_t stride, int n_k, int n_col, dg_dtype t)
{
    for (int k = 0; k < n_k; k++)
        for (int c = 0; c < DG_PANEL; c++)
            panel[k * DG_PANEL + c] = c < n_col ? at(row_of(src, stride, k), t, c) : 0;
}

static void axpy(float *y, float a, const void *x, int n, dg_dtype t)
{
    for (int i = 0; i < n; i++)
        y[i] = (float)(y[i] + (double)a * at(x, t, i));
}

static void add_rows(float *y, const dg_likely *word, int n, const float *rows, int n_col)
{
    for (int i = 0; i < n; i++)
        axpy(y, word[i].p, rows + (size_t)word[i].id * (size_t)n_col, n_col, DG_F32);
}

static void gemm_panel(const dg_gemm_args *a)
{
    for (int r = 0; r < a->n_row; r++)
        for (int c = 0; c < a->n_col; c++) {
            float *y = &a->y[(size_t)r * a->ldy + (size_t)c];
            const float *x = &a->x[(size_t)r * a->ldx];
            double sum = a->add ? *y : 0;
            for (int k = 0; k < a->n_k; k++)
                sum += (double)x[k] * a->panel[k * DG_PANEL + c];
            *y = (float)sum;
        }
}

static void rmsnorm(float *y, const float *x, const float *w, int n, float eps)
{
    double squares = 0;
    for (int i = 0; i < n; i++)
        squares += (double)x[i] * x[i];
    double scale = 1 / sqrt(squares / n + (double)eps);
    for (int i = 0; i < n; i++)
        y[i] = (float)(x[i] * scale * (w ? w[i] : 1));
}

static void rope(float *x, const float *cosine, const float *sine, int n_pair, int half)
{
    for (int i = 0; i < n_pair; i++) {
        double a = x[i], b = x[i + half];
        x[i] = (float)(a * cosine[i] - b * sine[i]);
        x[i + half] = (float)(b * cosine[i] + a * sine[i]);
    }
}

static void gelu_mul(float *y, const float *gate, const float *up, int n)
{
    const double c = 0.79788456080286535588; /* sqrt(2 / pi) */
    for (int i = 0; i < n; i++) {
        double g = gate[i];
        y[i] = (float)(0.5 * g * (1 + dg_tanh(c * (g + 0.044715 * g * g * g))) * up[i]);
    }
}

static void softcap(float *z, int n, float cap, float temperature)
{
    for (int i = 0; i < n; i++)
        z[i] = (float)(cap * dg_tanh((double)z[i] / cap)) / temperature;
}

static void exp_shift(float *e, const float *z, int n, float shift)
{
    for (int i = 0; i < n; i++) {
        double v = dg_exp((double)z[i] - shift);
        e[i] = v < 0x1p-126 ? 0 : (float)v;
    }
}

static double sum(const float *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += x[i];
    return s;
}

static double dot(const float *x, const float *y, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += (double)x[i] * y[i];
    return s;
}

static dg_exp_sums exp_sums(float *e, const float *z, int n, float shift)
{
    dg_exp_sums s = {0};
    for (int i = 0; i < n; i++) {
        float d = z[i] - shift;
        exp_shift(&e[i], &d, 1, 0);
        s.mass += e[i];
        s.slope += (double)e[i] * d;
        s.most = e[i] > s.most ? e[i] : s.most;
    }
    return s;
}

static int argmax(const float *x, int n, float *max)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!isnan(x[i]) && (best < 0 || x[i] > x[best]))
            best = i;
    *max = best < 0 ? NAN : x[best];
    return best < 0 ? 0 : best;
}

/* One set of functions per stored type, bound to the bodies above. */
#define STORED_TYPE(name, type)                                                                    \
    static void pack_cols_##name(float *panel, const void *src, size_t stride, int n_k, int n_col) \
    {                                                                                              \
        pack_cols(panel, src, stride, n_k, n_col, type);                                           \
    }                                                                                              \
    static void pack_rows_##name(float *panel, const void *src, size_t stride, int n_k, int n_col) \
    {                                                                                              \
        pack_rows(panel, src, stride, n_k, n_col, type);                                           \
    }                                                                                              \
    static void widen_##name(float *out, const void *in, int n)                                    \
    {                                                                                              \
        dg_widen(out, in, type, (size_t)n);                                                        \
    }                                                                                              \
    static void narrow_##name(void *out, const float *in, int n)                                   \
    {                                                                                              \
        dg_narrow(out, type, in, (size_t)n);                                                       \
    }                                                                                              \
    static void axpy_##name(float *y, float a, const void *x, int n)                               \
    {                                                                                              \
        axpy(y, a, x, n, type);                                                                    \
    }

STORED_TYPE(f32, DG_F32)
STORED_TYPE(f16, DG_F16)
STORED_TYPE(bf16, DG_BF16)

#define BLOCK_TYPES(X)                                                                             \
    X(Q8_0)                                                                                        \
    X(Q4_0)                                                                                        \
    X(Q4_1)                                                                                        \
    X(Q5_0)                                                                                        \
    X(Q5_1)                                                                                        \
    X(Q2_K)                                                                                        \
    X(Q3_K)                                                                                        \
    X(Q4_K)                                                                                        \
    X(Q5_K)                                                                                        \
    X(Q6_K)                                                                                        \
    X(IQ4_NL)                                                                                      \
    X(IQ4_XS)                                                                                      \
    X(MXFP4)                                                                                       \
    X(NVFP4)                                                                                       \
    X(IQ1_S)                                                                                       \
    X(IQ1_M)                                                                                       \
    X(IQ2_XXS)                                                                                     \
    X(IQ2_XS)                                                                                      \
    X(IQ2_S)                                                                                       \
    X(IQ3_XXS)                                                                                     \
    X(IQ3_S)                                                                                       \
    X(TQ1_0)                                                                                       \
    X(TQ2_0)                                                                                       \
    X(E4M3)                                                                                        \
    X(BYTES)                                                                                       \
    X(AFFINE4)                                                                                     \
    X(AFFINE8)

#define WIDEN(type)                                                                                \
    static void widen_##type(float *out, const void *in, int n)                                    \
    {                                                                                              \
        dg_widen(out, in, DG_##type, (size_t)n);                                                   \
    }
BLOCK_TYPES(WIDEN)

#define BY_TYPE(name)                                                                              \
    {                                                                                              \
        [DG_F32] = name##_f32, [DG_F16] = name##_f16, [DG_BF16] = name##_bf16                      \
    }

#define ENTRY(type) [DG_##type] = widen_##type,

const dg_kernels dg_kernels_ref = {
    .pack_cols = BY_TYPE(pack_cols),
    .pack_rows = BY_TYPE(pack_rows),
    .gemm_panel = gemm_panel,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .gelu_mul = gelu_mul,
    .softcap = softcap,
    .exp_shift = exp_shift,
    .exp_sums = exp_sums,
    .add_rows = add_rows,
    .sum = sum,
    .dot = dot,
    .argmax = argmax,
    .widen =
        {[DG_F32] = widen_f32, [DG_F16] = widen_f16, [DG_BF16] = widen_bf16, BLOCK_TYPES(ENTRY)},
    .narrow = BY_TYPE(narrow),
    .axpy = BY_TYPE(axpy),
    .turn = dg_turn_ref,
    .q = &dg_quantised_ref,
};
