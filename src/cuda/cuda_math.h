/* The arithmetic of the CUDA backend, family by family: what the stages of backend_stages.h are put
 * together from. Everything here is enqueued on the stream it is given, allocates nothing and never
 * waits, so that a pass can be captured as a graph. All pointers are device memory unless a line
 * says otherwise.
 *
 * Numerics, the same for every batch size: products take 16-bit operands on tensor cores and add up
 * in float in ascending k, 16 values at a time, in one chain for each result: never split, never an
 * atomic. Gate and up of experts in Q4_K are products of bytes, 256 values at a time, and down in
 * Q5_0, 32 at a time (cuda_bytes.cuh). Which 16 bits follows from the weight's type
 * (dg_cuda_form_of): bfloat16 for bfloat16 weights, IEEE half for halves, every block type and
 * weights made narrower. Dense weights made E4M3 are multiplied with rows of E4M3, 32 values of k
 * at a time. Float weights are multiplied in float.
 *
 * The range rule of half precision: a value is stored as it is, saturated at +-65504, except the
 * inside of a gated MLP, which is stored divided by DG_CUDA_GATED (and so saturates at a million).
 * NaN stays NaN. What an RMSNorm or an attention gives is bounded by the square root of its width
 * times its weight, and far inside. */
#ifndef DG_CUDA_CUDA_MATH_H
#define DG_CUDA_CUDA_MATH_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "backend/low_rank.h"
#include "tensor/kv_numbers.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define DG_CUDA_BOTH static __host__ __device__ __forceinline__
#else
#define DG_CUDA_BOTH static inline
#endif

#define DG_CUDA_GATED 16.0f

typedef enum dg_cuda_form { DG_CUDA_F32, DG_CUDA_BF16, DG_CUDA_F16, DG_CUDA_E4M3 } dg_cuda_form;

/* Of rows that meet packed weights of this type. */
dg_cuda_form dg_cuda_form_of(dg_dtype weight_type);

/* Rows of activations as a product reads them: [n_row, ld] values of the form, ld = n rounded up to
 * a multiple of 64, what lies behind n is zero; 16-byte aligned. Of E4M3 a row is ld bytes, ld a
 * multiple of 128, and its factor behind them as a float, in a piece of 16. */
typedef struct dg_cuda_rows {
    dg_cuda_form form;
    void *data;
    int ld;
} dg_cuda_rows;

enum { DG_CUDA_ROW_FACTOR = 16 };

static inline int dg_cuda_ld(int n)
{
    return (n + 63) / 64 * 64;
}

DG_CUDA_BOTH size_t dg_cuda_row_bytes(dg_cuda_rows rows)
{
    size_t n = (size_t)rows.ld;
    return rows.form == DG_CUDA_E4M3 ? n + DG_CUDA_ROW_FACTOR
                                     : n * (rows.form == DG_CUDA_F32 ? 4 : 2);
}

/* Rows from `first` on. */
DG_CUDA_BOTH dg_cuda_rows dg_cuda_rows_from(dg_cuda_rows rows, int first)
{
    rows.data = (unsigned char *)rows.data + (size_t)first * dg_cuda_row_bytes(rows);
    return rows;
}

/* ---- products (cuda_pack.cu, cuda_product*.cu, cuda_experts.cu) ---- */

/* A matrix [n_out, n_in], or n_mat of them, in the packed form that the products read: fragments of
 * 16 rows, k-major, so that a stage of a tile is one contiguous piece. Same bits as stored, padded
 * with zeros.
 *
 * Where the device multiplies out of shared memory (dg_cuda_has_groups) a matrix that all rows are
 * multiplied with lies as slabs instead (cuda_slabs.cuh), as values of its form whatever its type:
 * with a few hundred rows such products are bound by arithmetic, so that fewer bytes would not make
 * them faster. Block types take 16 bits a value there. */
typedef struct dg_cuda_matrix {
    dg_dtype type;
    int n_mat, n_out, n_in;
    const void *data;
    const float *scale; /* [n_mat] factors of a block type's values; NULL: none */
    bool slabs;         /* n_mat = 1, type not float */
} dg_cuda_matrix;

bool dg_cuda_has_groups(void);

/* Rows of n_in values for the matrix, at `data`. Slabs of E4M3 are multiplied with rows of E4M3. */
static inline dg_cuda_rows dg_cuda_rows_for(const dg_cuda_matrix *m, void *data)
{
    bool bytes = m->slabs && m->type == DG_FP8;
    dg_cuda_rows rows = {bytes ? DG_CUDA_E4M3 : dg_cuda_form_of(m->type), data,
                         bytes ? (m->n_in + 127) / 128 * 128 : dg_cuda_ld(m->n_in)};
    return rows;
}

/* Whether this build has code that the current device runs. */
bool dg_cuda_has_code(void);

/* Bytes of one packed matrix; 0: this type has no packed form (the caller widens it to bfloat16).
 */
size_t dg_cuda_pack_bytes(dg_dtype type, int n_out, int n_in);

/* Packs n_mat matrices that lie one after the other as they are stored in files, mat_bytes apart,
 * in device memory. */
cudaError_t dg_cuda_pack(cudaStream_t stream, void *packed, const void *stored, size_t mat_bytes,
                         dg_dtype type, int n_mat, int n_out, int n_in);

/* Weights made narrower first (cuda_narrow.cu): n_mat matrices of F32, F16 or BF16 to rows of
 * DG_FP8 or DG_INT4, zeros up to dg_cuda_ld(n_in) values, which dg_cuda_pack then takes as wide as
 * that.
 */
typedef struct dg_cuda_narrow_args {
    void *out;     /* n_mat times dg_cuda_narrow_bytes() */
    float *factor; /* [n_mat], made for DG_FP8: dg_cuda_matrix.scale */
    const void *stored;
    size_t mat_bytes; /* of a stored matrix */
    dg_dtype from, to;
    int n_mat, n_out, n_in;
} dg_cuda_narrow_args;
size_t dg_cuda_narrow_bytes(dg_dtype to, int n_out, int n_in);
cudaError_t dg_cuda_narrow_weights(cudaStream_t stream, const dg_cuda_narrow_args *a);

/* The same for slabs, of one matrix: each value rounded once to the form of its type. DG_FP8: bytes
 * as they are, two in the place of a value. */
size_t dg_cuda_slab_bytes(int n_out, int n_in);
cudaError_t dg_cuda_pack_slabs(cudaStream_t stream, void *packed, const void *stored, dg_dtype type,
                               int n_out, int n_in);

/* And for gate and up of experts: as dg_cuda_pack, but Q4_K for products of bytes (cuda_bytes.cuh).
 */
size_t dg_cuda_pack_gated_bytes(dg_dtype type, int n_out, int n_in);
cudaError_t dg_cuda_pack_gated(cudaStream_t stream, void *packed, const void *stored,
                               size_t mat_bytes, dg_dtype type, int n_mat, int n_out, int n_in);

/* And for down of experts: Q5_0 for products of bytes, in as many bytes as
 * dg_cuda_pack_bytes() says. */
cudaError_t dg_cuda_pack_down(cudaStream_t stream, void *packed, const void *stored,
                              size_t mat_bytes, dg_dtype type, int n_mat, int n_out, int n_in);

/* What is read soon, bytes a multiple of 16: asked for into the second-level cache while something
 * else is multiplied that leaves memory idle. Kernels that cannot leave it where it is. */
typedef struct dg_cuda_ahead {
    const void *data;
    size_t bytes; /* 0: nothing */
} dg_cuda_ahead;

/* y[r][o] = alpha * sum over k of x[r][k] * w[o][k], for up to three matrices over the same x (q,
 * k, v). */
typedef struct dg_cuda_product_args {
    int n_row;
    dg_cuda_rows x; /* form: that of every part's type */
    float alpha;
    int n_part;
    struct {
        const dg_cuda_matrix *w;
        float *y; /* [n_row, ldy] */
        size_t ldy;
    } part[3];
    dg_cuda_ahead ahead;
} dg_cuda_product_args;
cudaError_t dg_cuda_product(cudaStream_t stream, const dg_cuda_product_args *a);

/* h[r][i] = gelu(gate x)[i] * (up x)[i], gelu in its tanh form; half precision: divided by
 * DG_CUDA_GATED. */
typedef struct dg_cuda_gated_args {
    int n_row;
    dg_cuda_rows x;
    const dg_cuda_matrix *gate, *up;
    dg_cuda_rows h; /* may be of another form than x: that of down's type */
    dg_cuda_ahead ahead;
} dg_cuda_gated_args;
cudaError_t dg_cuda_gated(cudaStream_t stream, const dg_cuda_gated_args *a);

/* ---- what adapters add (cuda_adapters.cu, cuda_adapters_experts.cu) ----
 *
 * To rows of segments that have them, and to no others: whose adapters come to nothing at a matrix
 * keeps its bits. In float, from rows as the product reads them. */

typedef struct dg_cuda_uses {
    const dg_adapter_use *use; /* [n] */
    int n, canvas;
} dg_cuda_uses;

/* Which adapters change which rows. */
typedef struct dg_cuda_adapted {
    const dg_cuda_uses *uses; /* of a segment */
    const int32_t *segment_of;
    int first_row; /* of the batch: row 0 of what is changed */
} dg_cuda_adapted;

/* y[r] += alpha * factor * B (A x[r]). */
typedef struct dg_cuda_adapt_args {
    dg_cuda_adapted rows;
    const dg_low_rank *low; /* dg_weight.adapter */
    int n_row, n_in, n_out;
    dg_cuda_rows x;
    const float *x_scale; /* [n_in] x is multiplied with first; NULL: nothing */
    float alpha;
    float *y; /* [n_row, ldy] */
    size_t ldy;
} dg_cuda_adapt_args;
cudaError_t dg_cuda_adapt(cudaStream_t stream, const dg_cuda_adapt_args *a);

/* h of rows whose gate or up an adapter changes, once more: from gate x and up x as floats, [n_row,
 * n]. */
typedef struct dg_cuda_regate_args {
    dg_cuda_adapted rows;
    const dg_low_rank *low[2]; /* of gate and up; NULL: none */
    int n_row, n;
    const float *gate, *up;
    bool floats; /* weights are: gelu as exact as theirs */
    dg_cuda_rows h;
} dg_cuda_regate_args;
cudaError_t dg_cuda_regate(cudaStream_t stream, const dg_cuda_regate_args *a);

/* Of experts, for dg_cuda_experts(); NULL: none changes this matrix. */
typedef struct dg_cuda_adapted_experts {
    dg_cuda_adapted rows;
    const dg_low_rank *gate, *up, *down;
} dg_cuda_adapted_experts;

/* ---- experts ---- */

/* What down gave for the choices of rows, before it is summed: choice j of row r lies at place[r *
 * n_used + j] of `in` and has weight[r * n_used + j]. */
typedef struct dg_cuda_choices {
    dg_cuda_rows in;
    const int32_t *place; /* NULL: none */
    const float *weight;
    int n_used;
} dg_cuda_choices;

/* y[r] = sum over j, in the order of j, of weight[r][j] * down_e( gelu(gate_e x) * (up_e x) ), e =
 * expert[r][j]. Rows are sorted by expert inside (stable, by counting; no atomics decide an order).
 */
typedef struct dg_cuda_experts_args {
    int n_row, n_used;
    dg_cuda_rows x;
    const int32_t *expert;           /* [n_row, n_used] */
    const float *weight;             /* [n_row, n_used] */
    const dg_cuda_matrix *gate, *up; /* n_mat = experts; dg_cuda_pack_gated() */
    const dg_cuda_matrix *down;      /* dg_cuda_pack_down() */
    float *y;                        /* [n_row, ldy] */
    size_t ldy;
    void *scratch;            /* dg_cuda_experts_bytes() */
    bool sorted;              /* dg_cuda_experts_sort() has been launched, on another stream */
    dg_cuda_choices *choices; /* NULL, or: y is left alone, here is what it is the sum of */
    const dg_cuda_adapted_experts *adapted; /* NULL: no row is; then without choices */
} dg_cuda_experts_args;
size_t dg_cuda_experts_bytes(int max_row, int n_used, int n_expert, int n_embd, int n_ff_expert);
cudaError_t dg_cuda_experts(cudaStream_t stream, const dg_cuda_experts_args *a);

/* What the experts need of x and the routes, into scratch: neither weights nor y are touched. It
 * follows dg_cuda_route() on its stream, which x is older than. */
cudaError_t dg_cuda_experts_sort(cudaStream_t stream, const dg_cuda_experts_args *a);

/* ---- rows (cuda_rows.cu) ---- */

/* out[r] = RMSNorm(x[r]) * w, eps inside the root; x float [n_row, n]; w NULL: none. */
cudaError_t dg_cuda_norm(cudaStream_t stream, dg_cuda_rows out, const float *x, const float *w,
                         int n_row, int n, float eps);

/* The same, and out2 with w2, from one reading of x: the feed-forward's two branches; out2.data
 * NULL: only the first. */
cudaError_t dg_cuda_norm2(cudaStream_t stream, dg_cuda_rows out, const float *w, dg_cuda_rows out2,
                          const float *w2, const float *x, int n_row, int n, float eps);

/* A norm of x as it has become: out[r] = RMSNorm(x[r]) * w; out.data NULL: none. */
typedef struct dg_cuda_next {
    dg_cuda_rows out;
    const float *w;
} dg_cuda_next;

/* ---- into the residual stream (cuda_residual.cu, of many rows cuda_residual_many.cu) ---- */

/* x[r] += RMSNorm(y[r]) * w, and up to two norms of the new x. The launch before may write y, not
 * x: x is asked for while that one ends. */
typedef struct dg_cuda_add_args {
    float *x;
    const float *y, *w;
    int n_row, n;
    float eps;
    dg_cuda_next next[2]; /* the second only beside the first */
} dg_cuda_add_args;
cudaError_t dg_cuda_add_norm(cudaStream_t stream, const dg_cuda_add_args *a);

/* x[r] = RMSNorm(x[r] + y[r]), the end of self-conditioning, otherwise as above. */
typedef struct dg_cuda_soft_join_args {
    float *x;
    const float *y;
    int n_row, n;
    float eps;
    dg_cuda_next next[2];
} dg_cuda_soft_join_args;
cudaError_t dg_cuda_soft_join(cudaStream_t stream, const dg_cuda_soft_join_args *a);

/* x[r] = (x[r] + RMSNorm(RMSNorm(dense[r]) * w_dense + RMSNorm(experts[r]) * w_experts) * w) * (r <
 * n_encode ? scalar_encode : scalar_canvas), and up to two norms of the new x. dense and experts
 * are what the two branches' last products gave; choices, if there are, what is summed instead of
 * reading experts, to the same bits, where dg_cuda_join_sums(n) says so. The launch before may
 * write the experts' values, and nothing else that is read. */
typedef struct dg_cuda_join_args {
    float *x;
    const float *dense, *experts, *w_dense, *w_experts, *w;
    int n_row, n, n_encode;
    float eps, scalar_encode, scalar_canvas;
    dg_cuda_next next[2];
    dg_cuda_choices choices;
} dg_cuda_join_args;
bool dg_cuda_join_sums(int n);
cudaError_t dg_cuda_join(cudaStream_t stream, const dg_cuda_join_args *a);

/* x[r] = table[token[r]] * scale, or the row that feature[r] points to (NULL entry: none). `table`
 * is stored as in the file, row_bytes apart. */
typedef struct dg_cuda_embed_args {
    float *x;
    const void *table;
    dg_dtype type;
    size_t row_bytes;
    const float *table_scale; /* one factor of a block type's values, or NULL */
    float scale;
    const int32_t *token;
    const float *const *feature; /* [n_row] of device pointers; NULL: none at all */
    int n_row, n;
} dg_cuda_embed_args;
cudaError_t dg_cuda_embed(cudaStream_t stream, const dg_cuda_embed_args *a);

/* logits = W (RMSNorm(x) * scale / sqrt(n)), W [n_expert, n]; p = softmax(logits); the n_used
 * largest, lowest index first on ties; weight = p / sum of those * expert_scale. In float, one
 * order of sums for every row and both types of W. */
typedef struct dg_cuda_route_args {
    int32_t *expert;
    float *weight; /* [n_row, n_used] both */
    const float *x, *scale, *expert_scale;
    const void *w;
    dg_dtype w_type; /* DG_F32 or DG_BF16 */
    int n_row, n, n_expert, n_used;
    float eps;
    void *scratch;       /* dg_cuda_route_bytes() */
    bool follows_stream; /* the first launch is the first on its stream behind another's work */
    dg_cuda_adapted adapted;
    const dg_low_rank *low; /* of W; NULL: no row has any */
} dg_cuda_route_args;
size_t dg_cuda_route_bytes(int max_row, int n, int n_expert);
cudaError_t dg_cuda_route(cudaStream_t stream, const dg_cuda_route_args *a);

/* Its two steps: products into scratch, for which neither expert nor weight nor n_used is looked
 * at, and the choice. */
cudaError_t dg_cuda_route_multiply(cudaStream_t stream, const dg_cuda_route_args *a);
cudaError_t dg_cuda_route_pick(cudaStream_t stream, const dg_cuda_route_args *a);

/* Whether the products take all of each multiprocessor, so that nothing is beside them. */
bool dg_cuda_route_many(const dg_cuda_route_args *a);

/* ---- attention (cuda_attention.cu) ---- */

enum { DG_CUDA_PAGE = 64 }; /* tokens of a page */

/* Where value i of a slot (0 ... 63) lies in its head's 64 x head_dim values of a page, in bytes.
 * bfloat16 heads of whole panels of 64 values are kept as warpgroup products read them, so that a
 * head's page is one copy: panel by panel, in a panel 128 bytes a slot, whose pieces of 16 bytes
 * are exchanged (piece c of slot s lies at c ^ s % 8). Others slot by slot; behind bytes
 * (tensor/kv_numbers.h) are the slots' factors. */
DG_CUDA_BOTH size_t dg_cuda_slot_at(dg_dtype type, int head_dim, int slot, int i)
{
    if (dg_kv_in_bytes(type))
        return (size_t)slot * (size_t)head_dim + (size_t)i;
    if (type != DG_BF16 || head_dim % 64)
        return ((size_t)slot * (size_t)head_dim + (size_t)i) * (type == DG_F32 ? 4 : 2);
    return (size_t)(i / 64) * (DG_CUDA_PAGE * 128) + (size_t)slot * 128 +
           (size_t)((i / 8 ^ slot) % 8 * 16 + i % 8 * 2);
}

/* One layer's keys and values. In a page a layer has n_kv_head heads of keys, then the values
 * alike, each 64 x head_dim values of kv type (float, bfloat16 or bytes; dg_cuda_slot_at() says how
 * they lie), `offset` bytes from the page's begin; page i lies at slab + i * page_bytes. All of it
 * is aligned to 16 bytes. Canvas rows use scratch pages of this layer alone (offset 0) in a slab of
 * their own. */
typedef struct dg_cuda_kv {
    dg_dtype type;
    int n_head, n_kv_head, head_dim;
    int window; /* 0: none */
    unsigned char *slab;
    size_t page_bytes, offset;
    unsigned char *canvas_slab; /* pages of 2 * n_kv_head * 64 * head_dim values, bfloat16 where
                                   others are bytes: dg_kv_canvas_type() */
} dg_cuda_kv;

/* A run of rows of one sequence; written by the host before each pass into one device array. */
typedef struct dg_cuda_segment {
    int canvas; /* rows attend both ways; their keys are in canvas pages */
    int first_row, n_row;
    int position;        /* of the first row */
    const int32_t *page; /* page[i] holds positions 64 i ...; -1 where forgotten */
    int canvas_page;     /* the first of ceil(n_row / 64) */
} dg_cuda_segment;

/* From the raw products: q [n_row, n_head * dim] = RoPE(RMSNorm(head) * q_norm), in place: as the
 * canvas's type, from the beginning of each head's floats on; k likewise and v = RMSNorm(head)
 * without weight, both narrowed to the type of the row's page and stored there. v NULL: from the
 * raw k. Angles: cos, sin [n_row, n_pair], pairs (i, i + dim / 2). Rows below first_q_row have no
 * q. segment_of[row]: index of its segment. */
typedef struct dg_cuda_heads_args {
    float *q;
    const float *k, *v;
    const float *q_norm, *k_norm, *cos, *sin;
    int n_row, first_q_row, n_pair;
    float eps;
    const dg_cuda_segment *segment;
    const int32_t *segment_of;
    dg_cuda_kv kv;
} dg_cuda_heads_args;
cudaError_t dg_cuda_heads(cudaStream_t stream, const dg_cuda_heads_args *a);

/* dg_cuda_product() of q, k and v, and dg_cuda_heads(), in one launch with the same bits, where
 * that can be: q becomes what heads make of it, raw keys and values are not kept. */
typedef struct dg_cuda_project_args {
    dg_cuda_rows x;             /* form: that of every matrix's type */
    const dg_cuda_matrix *w[3]; /* of q, k and v */
    dg_cuda_heads_args heads;   /* k and v: none */
} dg_cuda_project_args;
bool dg_cuda_can_project(const dg_cuda_project_args *a);
cudaError_t dg_cuda_project(cudaStream_t stream, const dg_cuda_project_args *a);

/* out[r] = softmax(q . K^T) . V over the keys the row sees, scale 1; out in the form that the o
 * projection reads. A canvas row sees the prefix keys [max(0, p - window + 1), p) of its segment's
 * first position p (all below p without a window) and the whole canvas; an encoded row the span
 * seen[row] = [first, end) of positions, made by the host. Keys in blocks of a page, in ascending
 * order: the same bits whatever else is in the batch. */
typedef struct dg_cuda_attention_args {
    dg_cuda_rows out;
    const float *q;
    int first_row, end_row;
    const dg_cuda_segment *segment; /* device */
    int n_segment;
    const int32_t *segment_of; /* [n_row] */
    const int32_t *seen;       /* [n_row][2]; of canvas rows: the prefix keys */
    dg_cuda_kv kv;
    void *scratch;    /* dg_cuda_attention_bytes() */
    int32_t *counter; /* dg_cuda_attention_counters() of them, zero when made and nobody else's;
                         NULL: no canvas is done in parts */
} dg_cuda_attention_args;

/* Layers of different heads may share both, one after the other. max_canvas_row: 64 for each page
 * of the canvas slab. */
size_t dg_cuda_attention_bytes(int max_canvas_row, int max_q_dim);
size_t dg_cuda_attention_counters(int max_canvas_row, int max_q_dim);
cudaError_t dg_cuda_attention(cudaStream_t stream, const dg_cuda_attention_args *a);

#ifdef __cplusplus
}
#endif

#endif
