/* The CPU kernels: one table, filled once, from flags that are passed in. The contract of each
 * kernel stands here; src/cpu/ref/ is its definition in plain C; arm/ and x86/ override what they
 * do better and are checked against it on odd sizes.
 *
 * Every kernel is single-threaded and pure. What it gives for one row depends on that row alone:
 * never on how many rows, columns or calls there are around it. That is what makes chunks, batches
 * and thread counts invisible in the result. */
#ifndef DG_CPU_KERNELS_H
#define DG_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include "cpu/bfloat.h"
#include "cpu/bytes.h"
#include "cpu/quantised.h"
#include "tensor/dtype.h"

/* Instruction sets that a kernel may ask for. */
enum {
    DG_CPU_NEON = 1u << 0, /* aarch64: always there */
    DG_CPU_AVX2 = 1u << 1, /* AVX2, FMA and F16C together, and the system saves the registers */
    DG_CPU_I8MM = 1u << 2, /* aarch64: matrix products of 8-bit integers */
    DG_CPU_VNNI = 1u << 3, /* AVX-512 with its sums of four products of bytes */
    DG_CPU_AMX = 1u << 4,  /* tiles, and their products of bytes */
    DG_CPU_BF16 = 1u << 5, /* matrix products of bfloat16 numbers: BFMMLA, or those of tiles */
};

/* What this processor has, and the system lets this process use: asked for AMX, it makes room to
 * save tiles. 0 gives the reference kernels alone. */
unsigned dg_cpu_flags(void);

/* "neon", "i8mm", "bf16", "avx2", "vnni", "amx", "ref" … into flags, each with the sets that it
 * builds on, comma separated; false for an unknown name, *flags untouched then. And back. A name
 * this processor does not have is accepted: hold the result against dg_cpu_flags(). */
bool dg_cpu_flags_parse(unsigned *flags, const char *text);
const char *dg_cpu_flags_name(unsigned flags); /* the best set in flags; "ref" for 0 */

/* Which bits the kernels of `flags` give. "portable": those of NEON and AVX2, which are the same;
 * "reference": those of plain C, which are the same on every processor, but others than the fast
 * kernels' as they are rounded elsewhere. With products on quantised weights in whole numbers,
 * whose bits are the same everywhere, "integer-2" and "integer-2-reference": the number says how
 * they are rounded, and counts up when that changes, the name where all the rest is. */
const char *dg_cpu_profile(unsigned flags, bool integer);

/* Matrix products go through panels: DG_PANEL columns of a matrix side by side, widened to float,
 * k-major: panel[k * DG_PANEL + c], zero for c >= n_col. 64-byte aligned. */
enum { DG_PANEL = 16 };

/* panel[k][c] = src[c][k], 0 <= k < n_k: rows of a weight matrix [n_out, n_in] become columns.
 * `stride` is the distance of the rows of src in bytes; src needs no alignment. 1 <= n_col <=
 * DG_PANEL, n_k >= 1. */
typedef void dg_pack_cols_fn(float *panel, const void *src, size_t stride, int n_k, int n_col);

/* panel[k][c] = src[k][c]: for matrices whose rows run along k already (values, embedding rows). */
typedef void dg_pack_rows_fn(float *panel, const void *src, size_t stride, int n_k, int n_col);

/* y[r][c] = (add ? y[r][c] : 0) + sum over k of x[r][k] * panel[k][c], for r < n_row, c < n_col, in
 * ascending k. Rows of x and y are ldx and ldy floats apart; x, y need no alignment; columns of y
 * past n_col are untouched. The fast versions give each result as one chain of fused multiply-adds:
 * they agree bit for bit, and a k range may be cut into calls that add. */
typedef struct dg_gemm_args {
    float *y;
    const float *x;
    const float *panel;
    size_t ldy, ldx;
    int n_row, n_k, n_col;
    bool add;
} dg_gemm_args;
typedef void dg_gemm_panel_fn(const dg_gemm_args *a);

/* y[i] = x[i] / sqrt(mean(x^2) + eps) * w[i]; w == NULL: no weight. Any n >= 1, y may be x. */
typedef void dg_rmsnorm_fn(float *y, const float *x, const float *w, int n, float eps);

/* Rotates the pairs (x[i], x[i + half]), i < n_pair <= half:
 * x[i] = x[i] * cos[i] - x[i + half] * sin[i]; x[i + half] = x[i + half] * cos[i] + x[i] * sin[i].
 */
typedef void dg_rope_fn(float *x, const float *cos, const float *sin, int n_pair, int half);

/* y[i] = gelu(gate[i]) * up[i], gelu in its tanh form. y may be gate or up. */
typedef void dg_gelu_mul_fn(float *y, const float *gate, const float *up, int n);

/* z[i] = (cap * tanh(z[i] / cap)) / temperature, both > 0; rounded to float before the division.
 * NaN stays NaN. */
typedef void dg_softcap_fn(float *z, int n, float cap, float temperature);

/* e[i] = exp(z[i] - shift); exactly 0 for z[i] = -infinity and wherever the true value is below
 * 2^-126. NaN stays NaN. e may be z. */
typedef void dg_exp_shift_fn(float *e, const float *z, int n, float shift);

/* d = z[i] - shift, rounded to float; e[i] = exp(d) as above. The sum of e, that of e * d, both
 * added up in double as below, and the largest e; 0 for none that is a number. */
typedef struct dg_exp_sums {
    double mass, slope;
    float most;
} dg_exp_sums;
typedef dg_exp_sums dg_exp_sums_fn(float *e, const float *z, int n, float shift);

/* Sum of x[i]; sum of x[i] * y[i]; added up in double. */
typedef double dg_sum_fn(const float *x, int n);
typedef double dg_dot_fn(const float *x, const float *y, int n);

/* Index of the largest x[i], the lowest one of equals; *max its value. NaN is never larger; all NaN
 * gives 0 and *max = NaN. n >= 1. */
typedef int dg_argmax_fn(const float *x, int n, float *max);

/* out[i] = in[i] as float; out as stored type (nearest even); y[i] += a * x[i] with x stored (one
 * fused multiply-add each in the fast versions). No alignment is needed. */
typedef void dg_widen_fn(float *out, const void *in, int n);
typedef void dg_narrow_fn(void *out, const float *in, int n);
typedef void dg_axpy_fn(float *y, float a, const void *x, int n);

/* y[c] += sum over i of word[i].p * rows[word[i].id][c], in ascending i and as axpy does it. Rows
 * are n_col floats long. */
typedef struct dg_likely {
    int id;
    float p;
} dg_likely;
typedef void dg_add_rows_fn(float *y, const dg_likely *word, int n, const float *rows, int n_col);

typedef struct dg_kernels {
    dg_pack_cols_fn *pack_cols[DG_DTYPE_FLOAT];
    dg_pack_rows_fn *pack_rows[DG_DTYPE_FLOAT];
    dg_gemm_panel_fn *gemm_panel;
    dg_rmsnorm_fn *rmsnorm;
    dg_rope_fn *rope;
    dg_gelu_mul_fn *gelu_mul;
    dg_softcap_fn *softcap;
    dg_exp_shift_fn *exp_shift;
    dg_exp_sums_fn *exp_sums;
    dg_sum_fn *sum;
    dg_dot_fn *dot;
    dg_argmax_fn *argmax;
    dg_widen_fn *widen[DG_DTYPE_COMPUTE]; /* for a block type, n is a multiple of the block */
    dg_narrow_fn *narrow[DG_DTYPE_FLOAT];
    dg_axpy_fn *axpy[DG_DTYPE_FLOAT];
    dg_add_rows_fn *add_rows;
    dg_qturn_fn *const *turn; /* [DG_DTYPE_COMPUTE], NULL for types with least values */
    const dg_qkernels *q; /* products on quantised weights: quantised.h. NULL: floats are faster */
    const dg_byte_kernels *bytes; /* the same as bytes: bytes.h. NULL: no faster */
    const dg_bkernels *b; /* products of bfloat16 numbers: bfloat.h. NULL: floats are as fast */
} dg_kernels;

/* The reference: complete on any CPU, sums in double, written to be read. */
extern const dg_kernels dg_kernels_ref;

/* The best kernels that `flags`, a part of dg_cpu_flags(), allow: start from the reference, let the
 * architecture override. */
void dg_kernels_init(dg_kernels *k, unsigned flags);
void dg_kernels_init_arm(dg_kernels *k, unsigned flags);
void dg_kernels_init_x86(dg_kernels *k, unsigned flags);

#endif
