/* Rows of activations as whole numbers, for products on quantised weights. */
#include <string.h>
#include "cpu/cpu_internal.h"

/* Rows that a task quantises: a multiple of those that lie together in any order. */
enum { QUANTISE_ROWS = 4 };

bool dg_cpu_integer(const dg_cpu *cpu, const dg_weight *w)
{
    return cpu->integer && cpu->k.q->pack[w->type];
}

/* Products along few values keep to numbers as they are stored: a small model is fast enough, and
 * gives the same bits everywhere. */
dg_qway dg_cpu_way(const dg_cpu *cpu, const dg_weight *w)
{
    if (cpu->k.bytes && w->n_in >= BYTES_IN)
        return cpu->k.bytes->way;
    return dg_qtype_super(w->type) ? DG_QWAY_SUPER : DG_QWAY_BLOCKS;
}

/* Blocks take more than super-blocks, and bytes what a whole slice does. */
size_t dg_cpu_qrows_bytes(size_t n_row, int n_in)
{
    const int whole = dg_ceil_div(n_in, DG_QSLICE) * DG_QSLICE;
    const size_t pairs = (n_row + 1) / 2 * dg_qrow_room(whole, DG_QWAY_BLOCKS),
                 single = n_row * dg_qrow_room(whole, DG_QWAY_BYTES);
    return (pairs > single ? pairs : single) * sizeof(dg_qpair);
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

void dg_cpu_copy_row(dg_qpair *to, int to_row, const dg_qpair *from, int from_row, int n_in,
                     dg_qway way)
{
    const size_t room = dg_qrow_room(n_in, way);
    to += dg_qrow_at(to_row, room, way);
    from += dg_qrow_at(from_row, room, way);
    if (way == DG_QWAY_BYTES)
        memcpy(to, from, room * sizeof *to);
    else
        copy_in_pairs(to, dg_qrow_which(to_row, way), from, dg_qrow_which(from_row, way), room);
}

typedef struct quantise_job {
    dg_cpu *cpu;
    const dg_cpu_quantised *way;
    int n_way;
    const float *x;
    size_t ldx;
    int n_row;
    const dg_cpu_made *made;
} quantise_job;

void dg_cpu_quantise_row(const dg_cpu *cpu, dg_qpair *rows, int row, const float *x,
                         const dg_weight *w)
{
    const dg_qway way = dg_cpu_way(cpu, w);
    dg_quantise_fn *quantise = way >= DG_QWAY_BYTES   ? cpu->k.bytes->quantise
                               : way == DG_QWAY_SUPER ? cpu->k.q->quantise_super
                                                      : cpu->k.q->quantise;
    quantise(rows + dg_qrow_at(row, dg_qrow_room(w->n_in, way), way), dg_qrow_which(row, way), x,
             w->n_in / DG_QBLOCK);
}

/* Rows that lie together: their numbers share cache lines. */
static void quantise_task(void *arg, int task, int worker)
{
    const quantise_job *job = arg;
    const dg_cpu_made *made = job->made;
    for (int row = task * QUANTISE_ROWS; row < dg_min((task + 1) * QUANTISE_ROWS, job->n_row);
         row++) {
        if (made)
            made->fn(job->cpu, made->args, made->first + row, worker);
        for (int i = 0; i < job->n_way; i++)
            dg_cpu_quantise_row(job->cpu, job->way[i].to, row, job->x + (size_t)row * job->ldx,
                                job->way[i].w);
    }
}

void dg_cpu_quantise(dg_cpu *cpu, const dg_cpu_quantised *way, int n_way, const float *x,
                     size_t ldx, int n_row, const dg_cpu_made *made)
{
    quantise_job job = {cpu, way, n_way, x, ldx, n_row, made};
    if (n_way || made)
        dg_pool_run(cpu->pool, dg_ceil_div(n_row, QUANTISE_ROWS), quantise_task, &job);
}
