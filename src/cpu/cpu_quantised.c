/* Rows of activations as whole numbers, for products on quantised weights. */
#include <string.h>
#include "cpu/cpu_internal.h"

bool dg_cpu_integer(const dg_cpu *cpu, const dg_weight *w)
{
    return cpu->integer && cpu->k.q->pack[w->type];
}

size_t dg_cpu_qrows_bytes(size_t n_row, int n_in)
{
    return (n_row + 1) / 2 * (size_t)dg_ceil_div(n_in, DG_QBLOCK) * sizeof(dg_qpair);
}

void dg_qrow_copy(dg_qpair *to, int to_which, const dg_qpair *from, int from_which, int n_block)
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

typedef struct quantise_rows {
    const float *x;
    size_t ldx;
    int n_block;
} quantise_rows;

static void quantise_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const quantise_rows *a = args;
    dg_qpair *to = cpu->q_rows + (size_t)(row / 2) * (size_t)a->n_block;
    cpu->k.q->quantise(to, row % 2, a->x + (size_t)row * a->ldx, a->n_block);
}

const dg_qpair *dg_cpu_quantise(dg_cpu *cpu, const float *x, size_t ldx, int n_row, int n_in)
{
    dg_cpu_for_rows(cpu, quantise_row, &(quantise_rows){x, ldx, n_in / DG_QBLOCK},
                    (dg_rows){0, n_row});
    return cpu->q_rows;
}
