/* Rows of activations as whole numbers, for products on quantised weights. */
#include <string.h>
#include "cpu/cpu_internal.h"

/* Rows that a task quantises: a multiple of those that lie together in any order. */
enum { QUANTISE_ROWS = 16 };

bool dg_cpu_integer(const dg_cpu *cpu, const dg_weight *w)
{
    return cpu->integer && cpu->k.q->pack[w->type];
}

size_t dg_cpu_qrows_bytes(const dg_qkernels *q, size_t n_row, int n_in)
{
    const dg_qorder *o = dg_qorder_of(q);
    size_t rows = (size_t)o->rows, n_block = (size_t)dg_ceil_div(n_in, DG_QBLOCK);
    return (n_row + rows - 1) / rows * n_block * (size_t)o->room * sizeof(dg_qpair);
}

static void copy_in_pairs(dg_qpair *to, int to_which, const dg_qpair *from, int from_which,
                          int n_block)
{
    for (int b = 0; b < n_block; b++) {
        for (int i = 0; i < 4; i++)
            memcpy(to[b].n[i][to_which], from[b].n[i][from_which], 8);
        for (int i = 0; i < 2; i++) {
            to[b].step[to_which][i] = from[b].step[from_which][i];
            to[b].sum[to_which][i] = from[b].sum[from_which][i];
            to[b].half_sum[to_which][i] = from[b].half_sum[from_which][i];
            to[b].bias[to_which][i] = from[b].bias[from_which][i];
        }
    }
}

const dg_qorder dg_qpairs = {.rows = 2, .room = 1, .panels = 1, .copy = copy_in_pairs};

typedef struct quantise_job {
    const dg_cpu *cpu;
    const float *x;
    size_t ldx;
    int n_row, n_block;
} quantise_job;

/* Rows that lie together: their numbers share cache lines. */
static void quantise_task(void *arg, int task, int worker)
{
    (void)worker;
    const quantise_job *job = arg;
    const dg_qkernels *q = job->cpu->k.q;
    const dg_qorder *o = dg_qorder_of(q);
    for (int row = task * QUANTISE_ROWS; row < dg_min((task + 1) * QUANTISE_ROWS, job->n_row);
         row++)
        q->quantise(job->cpu->q_rows + dg_qrow_at(o, row, job->n_block), dg_qrow_which(o, row),
                    job->x + (size_t)row * job->ldx, job->n_block);
}

const dg_qpair *dg_cpu_quantise(dg_cpu *cpu, const float *x, size_t ldx, int n_row, int n_in)
{
    quantise_job job = {cpu, x, ldx, n_row, n_in / DG_QBLOCK};
    dg_pool_run(cpu->pool, dg_ceil_div(n_row, QUANTISE_ROWS), quantise_task, &job);
    return cpu->q_rows;
}
