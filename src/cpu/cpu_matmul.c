/* Matrix products over panels. The order in which a value is added up is ascending k, whatever the
 * shape of the work: slices of k continue the same chain, and a panel's columns do not know of each
 * other. */
#include "cpu/cpu_internal.h"

static const unsigned char *stored_at(const dg_weight *w, int mat, int row, int first)
{
    return (const unsigned char *)w->data + (size_t)mat * w->mat_bytes +
           (size_t)row * w->row_bytes + dg_dtype_bytes(w->type, (size_t)first);
}

void dg_cpu_widen(const dg_cpu *cpu, float *out, const dg_weight *w, int mat, int row, int first,
                  int n)
{
    cpu->k.widen[w->type](out, stored_at(w, mat, row, first), n);
    for (int i = 0; i < n && w->scale; i++)
        out[i] *= w->scale[mat];
}

/* Rows [c, c + n_col) of the matrix, their values [k, k + n_k), as columns of a panel. */
static void pack(const dg_cpu *cpu, const dg_cpu_worker *worker, const dg_cpu_matmul *m, int c,
                 int n_col, int k, int n_k)
{
    const dg_weight *w = m->w;
    if (!dg_dtype_is_block(w->type)) {
        const void *src = stored_at(w, m->mat, c, k);
        cpu->k.pack_cols[w->type](worker->panel, src, w->row_bytes, n_k, n_col);
        return;
    }
    for (int i = 0; i < n_col; i++)
        dg_cpu_widen(cpu, worker->widened + i * SLICE_K, w, m->mat, c + i, k, n_k);
    cpu->k.pack_cols[DG_F32](worker->panel, worker->widened, SLICE_K * sizeof(float), n_k, n_col);
}

void dg_cpu_matmul_cols(const dg_cpu *cpu, const dg_cpu_matmul *m, int first_col, int end_col,
                        int worker)
{
    const dg_weight *w = m->w;
    for (int k = 0; k < w->n_in; k += SLICE_K)
        for (int c = first_col; c < end_col; c += DG_PANEL) {
            int n_k = dg_min(SLICE_K, w->n_in - k), n_col = dg_min(DG_PANEL, end_col - c);
            pack(cpu, &cpu->worker[worker], m, c, n_col, k, n_k);
            cpu->k.gemm_panel(&(dg_gemm_args){
                .y = m->y + (c - m->y_col),
                .x = m->x + k,
                .panel = cpu->worker[worker].panel,
                .ldy = m->ldy,
                .ldx = m->ldx,
                .n_row = m->n_row,
                .n_k = n_k,
                .n_col = n_col,
                .add = k > 0,
            });
        }
}

typedef struct matmul_job {
    const dg_cpu *cpu;
    const dg_cpu_matmul *m;
} matmul_job;

/* Some columns of some rows; the columns of the same rows follow each other. */
static void matmul_task(void *arg, int task, int worker)
{
    const matmul_job *job = arg;
    int n_block = dg_ceil_div(job->m->w->n_out, TASK_COLS);
    int col = task % n_block * TASK_COLS, row = task / n_block * MATMUL_ROWS;
    dg_cpu_matmul part = *job->m;
    part.y += (size_t)row * part.ldy;
    part.x += (size_t)row * part.ldx;
    part.n_row = dg_min(MATMUL_ROWS, part.n_row - row);
    dg_cpu_matmul_cols(job->cpu, &part, col, dg_min(col + TASK_COLS, part.w->n_out), worker);
}

void dg_cpu_matmul_run(dg_cpu *cpu, const dg_cpu_matmul *m)
{
    if (m->n_row < 1)
        return;
    int n_task = dg_ceil_div(m->n_row, MATMUL_ROWS) * dg_ceil_div(m->w->n_out, TASK_COLS);
    dg_pool_run(cpu->pool, n_task, matmul_task, &(matmul_job){.cpu = cpu, .m = m});
}
