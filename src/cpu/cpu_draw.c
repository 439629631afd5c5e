/* The draw: a word by inverse CDF in vocabulary order. */
#include <math.h>
#include "cpu/cpu_vocabulary.h"

/* Finds the first word whose cumulative mass exceeds `target` in a fine tile; masses are relative
 * to `shift`. */
static int draw_in_tile(const dg_vocab_job *job, int row, int first, int n, float shift,
                        double target, int worker)
{
    float *z = job->cpu->worker[worker].row;
    dg_cpu_word_logits(job, z, row, first, n, worker);
    for (int i = 0; i < n; i++)
        z[i] -= shift;
    job->cpu->k.exp_shift(z, z, n, 0);
    double sum = 0;
    int last = 0;
    for (int i = 0; i < n; i++) {
        sum += z[i];
        if (z[i] > 0)
            last = i;
        if (sum > target)
            return first + i;
    }
    return first + last; /* rounding only: target was just below the tile's mass */
}

static void draw_task(void *arg, int row, int worker)
{
    const dg_vocab_job *job = arg;
    const dg_vocabulary_args *a = job->a;
    dg_cpu *cpu = job->cpu;
    const dg_vocab_row *v = &cpu->vocab[row];
    const double *mass = cpu->draw_mass + (size_t)row * (size_t)job->n_draw_tile;
    const float *shift = cpu->draw_shift + (size_t)row * (size_t)job->n_tile;
    const int per_tile = VOCAB_TILE / DRAW_TILE;
    int n_vocab = a->table->n_out;

    a->argmax[row] = v->argmax;
    a->entropy[row] = (float)fmax(0, log(v->mass) - v->slope / v->mass);

    double total = 0;
    for (int t = 0; t < job->n_draw_tile; t++)
        total += mass[t] * exp((double)shift[t / per_tile] - v->max);
    double target = a->uniform[row] * total;
    int tile = 0, last = 0;
    for (; tile < job->n_draw_tile; tile++) {
        double m = mass[tile] * exp((double)shift[tile / per_tile] - v->max);
        if (m > 0)
            last = tile;
        if (m > target)
            break;
        target -= m;
    }
    if (tile == job->n_draw_tile) { /* rounding only, at the very end: its last word */
        tile = last;
        target = INFINITY;
    }
    int first = tile * DRAW_TILE;
    float s = shift[tile / per_tile];
    a->drawn[row] = draw_in_tile(job, row, first, dg_min(DRAW_TILE, n_vocab - first), s,
                                 target * exp((double)v->max - s), worker);
}

void dg_cpu_draw(dg_vocab_job *job)
{
    dg_pool_run(job->cpu->pool, job->a->n_row, draw_task, job);
}
