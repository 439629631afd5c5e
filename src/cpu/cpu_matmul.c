/* Matrix products over panels. The order in which a value is added up is ascending k, whatever the
 * shape of the work: slices of k continue the same chain, and a panel's columns do not know of each
 * other. */
#include "cpu/cpu_internal.h"

void dg_cpu_matmul_cols(const dg_cpu *cpu, const dg_cpu_matmul *m, int first_col, int end_col,
                        int worker)
{
    const dg_weight *w = m->w;
    const unsigned char *mat = (const unsigned char *)w->data + (size_t)m->mat * w->mat_bytes;
    const size_t value_bytes = dg_dtype_size(w->type);
    float *panel = cpu->worker[worker].panel;

    for (int k = 0; k < w->n_in; k += SLICE_K)
        for (int c = first_col; c < end_col; c += DG_PANEL) {
            int n_k = dg_min(SLICE_K, w->n_in - k), n_col = dg_min(DG_PANEL, end_col - c);
            const void *src = mat + (size_t)c * w->row_bytes + (size_t)k * value_bytes;
            cpu->k.pack_cols[w->type](panel, src, w->row_bytes, n_k, n_col);
            cpu->k.gemm_panel(&(dg_gemm_args){
                .y = m->y + (c - m->y_col),
                .x = m->x + k,
                .panel = panel,
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

static void matmul_task(void *arg, int task, int worker)
{
    const matmul_job *job = arg;
    int first = task * TASK_COLS;
    dg_cpu_matmul_cols(job->cpu, job->m, first, dg_min(first + TASK_COLS, job->m->w->n_out),
                       worker);
}

void dg_cpu_matmul_run(dg_cpu *cpu, const dg_cpu_matmul *m)
{
    if (m->n_row < 1)
        return;
    dg_pool_run(cpu->pool, dg_ceil_div(m->w->n_out, TASK_COLS), matmul_task,
                &(matmul_job){.cpu = cpu, .m = m});
}
