/* Rows of activations as whole numbers, for products on quantised weights. */
#include <string.h>
#include "cpu/cpu_internal.h"

/* Rows that a task quantises: a multiple of those that lie together in any order. */
enum { QUANTISE_ROWS = 16 };

bool dg_cpu_integer(const dg_cpu *cpu, const dg_weight *w)
{
    return cpu->integer && cpu->k.q->pack[w->type];
}

/* Rows of super-blocks take less. */
size_t dg_cpu_qrows_bytes(const dg_qkernels *q, size_t n_row, int n_in)
{
    const dg_qorder *o = dg_qorder_of(q);
    size_t rows = (size_t)o->rows, room = dg_qrow_room(o, n_in + DG_QBLOCK - 1, false);
    return (n_row + rows - 1) / rows * room * sizeof(dg_qpair);
}

/* All that a pair or super-block has lies by eight bytes of one row and eight of the other. */
static void copy_in_pairs(dg_qpair *to, int to_which, const dg_qpair *from, int from_which,
                          size_t n_pair)
{
    enum { EIGHT = 8, EIGHTS = sizeof(dg_qpair) / (2 * EIGHT) };
    uint8_t *t = (uint8_t *)to + EIGHT * to_which;
    const uint8_t *f = (const uint8_t *)from + EIGHT * from_which;
    for (size_t i = 0; i < n_pair * EIGHTS; i++)
        memcpy(t + i * 2 * EIGHT, f + i * 2 * EIGHT, EIGHT);
}

const dg_qorder dg_qpairs = {.rows = 2, .panels = 1, .copy = copy_in_pairs};

typedef struct quantise_job {
    const dg_cpu *cpu;
    const float *x;
    size_t ldx;
    int n_row;
    const dg_weight *w;
    dg_qpair *to;
} quantise_job;

void dg_cpu_quantise_row(const dg_cpu *cpu, dg_qpair *rows, int row, const float *x,
                         const dg_weight *w)
{
    const bool super = dg_qtype_super(w->type);
    const dg_qkernels *q = cpu->k.q;
    const dg_qorder *o = dg_qorder_of(q);
    dg_quantise_fn *quantise = super ? q->quantise_super : q->quantise;
    quantise(rows + dg_qrow_at(o, row, dg_qrow_room(o, w->n_in, super)), dg_qrow_which(o, row), x,
             w->n_in / DG_QBLOCK);
}

/* Rows that lie together: their numbers share cache lines. */
static void quantise_task(void *arg, int task, int worker)
{
    (void)worker;
    const quantise_job *job = arg;
    for (int row = task * QUANTISE_ROWS; row < dg_min((task + 1) * QUANTISE_ROWS, job->n_row);
         row++)
        dg_cpu_quantise_row(job->cpu, job->to, row, job->x + (size_t)row * job->ldx, job->w);
}

void dg_cpu_quantise(dg_cpu *cpu, dg_qpair *to, const float *x, size_t ldx, int n_row,
                     const dg_weight *w)
{
    quantise_job job = {cpu, x, ldx, n_row, w, to};
    dg_pool_run(cpu->pool, dg_ceil_div(n_row, QUANTISE_ROWS), quantise_task, &job);
}
