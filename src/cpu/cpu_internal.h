/* Shared by the files of the CPU backend. */
#ifndef DG_CPU_CPU_INTERNAL_H
#define DG_CPU_CPU_INTERNAL_H

#include "base/common.h"
#include "base/pool.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"

/* Columns of a matrix that one task takes, and how many values along k it packs at a time: a packed
 * panel (16 KiB) stays in the first-level cache, and the slice of x that it meets (256 rows: 256
 * KiB) in the second. */
enum { TASK_COLS = 64, SLICE_K = 256 }; /* SLICE_K: a multiple of every block */

/* Rows times heads that one attention task takes. */
enum { ATTENTION_ROWS = 64 };

/* Words that the vocabulary end looks at together, and the finer tile in which a draw is located.
 */
enum { VOCAB_TILE = 4096, DRAW_TILE = 512 };

/* What one thread needs for itself. */
typedef struct dg_cpu_worker {
    float *panel;   /* [max(SLICE_K, max_head_dim, DG_PAGE)][DG_PANEL] */
    float *q, *out; /* [ATTENTION_ROWS][max_head_dim] */
    float *score;   /* [ATTENTION_ROWS][DG_PAGE] */
    float *row;     /* [max(VOCAB_TILE, n_embd, n_expert)] */
    float *widened; /* [SLICE_K * TASK_COLS] a piece of a weight of a block type, as floats */
} dg_cpu_worker;

typedef struct dg_cpu {
    dg_backend base;
    dg_kernels k;
    dg_pool *pool;
    const dg_batch *batch;
    dg_plan plan;

    dgemma_error error; /* the first failure of this pass */

    /* scratch, allocated by plan() in one piece */
    void *scratch;
    dg_cpu_worker *worker; /* [threads] */
    float *normed;         /* [n_row][n_embd] */
    float *wide;           /* [n_row][2 * n_ff] */
    float *router;         /* [n_row][n_expert] */
    int *pair_of;          /* [n_row * n_used] pairs (row, choice) sorted by expert */
    int *expert_start;     /* [n_expert + 1] */
    int *active;           /* [n_expert] experts that have rows */
    float *expert_x;       /* [n_row * n_used][n_embd] gathered inputs, then outputs */
    float *expert_h;       /* [n_row * n_used][2 * n_ff_expert] */

    /* the vocabulary end */
    float *tile;       /* [n_row][VOCAB_TILE] */
    double *draw_mass; /* [n_row][draw tiles]: sum of exp(z - draw_shift) */
    float *draw_shift; /* [n_row][vocabulary tiles]: the running maximum when the tile was seen */
    struct vocab_row *vocab; /* [n_row] */
    uint16_t *kept; /* [n_row][VOCAB_TILE]: words of the tile that the soft embedding keeps */
} dg_cpu;

static inline dg_cpu *dg_cpu_of(dg_backend *be)
{
    return (dg_cpu *)be;
}

/* Remembers the first failure of the pass. */
void dg_cpu_fail(dg_cpu *cpu, dgemma_status status, const char *fmt, ...) DG_PRINTF(3, 4);

/* ---- cpu_matmul.c ---- */

/* Values [first, first + n) of a row of matrix `mat`, whole blocks, as floats. */
void dg_cpu_widen(const dg_cpu *cpu, float *out, const dg_weight *w, int mat, int row, int first,
                  int n);

/* y[r][c] = sum_k x[r][k] * W[c][k] for columns [first_col, end_col) of matrix `mat`, on this
 * thread. */
typedef struct dg_cpu_matmul {
    float *y;
    const float *x;
    size_t ldy, ldx;
    int n_row;
    const dg_weight *w;
    int mat;
    int y_col; /* the column that y starts with */
} dg_cpu_matmul;
void dg_cpu_matmul_cols(const dg_cpu *cpu, const dg_cpu_matmul *m, int first_col, int end_col,
                        int worker);

/* All columns, on the pool. */
void dg_cpu_matmul_run(dg_cpu *cpu, const dg_cpu_matmul *m);

/* ---- cpu_rows.c: what is done row by row, on the pool ---- */

/* y = RMSNorm(x, w) of rows n_embd long; w may be NULL, y may be x. */
void dg_cpu_norm_rows(dg_cpu *cpu, float *y, const float *x, const float *w, dg_rows rows);

/* gate[r][0..n) = gelu(gate) * up, up being the second half of rows that are 2n long. */
void dg_cpu_gelu_rows(dg_cpu *cpu, float *gate_up, int n, int n_row);

/* ---- the stages ---- */
void dg_cpu_embed(dg_backend *be, const dg_embed_args *a);
void dg_cpu_condition(dg_backend *be, const dg_condition_args *a);
void dg_cpu_rope_table(dg_backend *be, const dg_rope_table_args *a);
void dg_cpu_qkv(dg_backend *be, const dg_qkv_args *a);
void dg_cpu_kv_write(dg_backend *be, const dg_kv_write_args *a);
void dg_cpu_attention(dg_backend *be, const dg_attention_args *a);
void dg_cpu_attention_out(dg_backend *be, const dg_attention_out_args *a);
void dg_cpu_dense(dg_backend *be, const dg_dense_args *a);
void dg_cpu_route(dg_backend *be, const dg_route_args *a);
void dg_cpu_experts(dg_backend *be, const dg_experts_args *a);
void dg_cpu_join(dg_backend *be, const dg_join_args *a);
void dg_cpu_norm(dg_backend *be, const dg_norm_args *a);
void dg_cpu_vocabulary(dg_backend *be, const dg_vocabulary_args *a);
size_t dg_cpu_vocab_row_bytes(void);

#endif
