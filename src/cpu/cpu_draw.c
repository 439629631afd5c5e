/* The draw: a word by inverse CDF in vocabulary order, from what the walk saw of the row (plainly),
 * or from a hotter, colder or filtered version of it. */
#include <math.h>
#include <string.h>
#include "base/real.h"
#include "cpu/cpu_vocabulary.h"

/* ---- while the vocabulary is walked ---- */

static dg_draw_kind kind_of(const dg_draw_options *o)
{
    if (!o)
        return DG_DRAW_PLAIN;
    if (o->temperature == 0)
        return DG_DRAW_ARGMAX;
    if (o->top_k > 0 || o->top_p < 1 || o->min_p > 0)
        return DG_DRAW_FILTERED;
    return o->temperature == 1 ? DG_DRAW_PLAIN : DG_DRAW_HEATED;
}

void dg_cpu_draw_begin(dg_vocab_job *job)
{
    for (int r = 0; r < job->n_all; r++) {
        const dg_vocabulary_options *o = dg_vocab_options(job, r);
        job->cpu->vocab[r].draw = kind_of(o ? o->draw : NULL);
    }
}

/* 1 unless the row is heated or filtered. */
static float temperature_of(const dg_vocab_job *job, int row)
{
    return job->cpu->vocab[row].draw >= DG_DRAW_HEATED
               ? dg_vocab_options(job, row)->draw->temperature
               : 1;
}

void dg_cpu_heat(const dg_vocab_job *job, float *y, const float *z, int row, int n)
{
    float temperature = temperature_of(job, row);
    for (int i = 0; i < n; i++)
        y[i] = z[i] / temperature;
}

float dg_cpu_heated_max(const dg_vocab_job *job, int row)
{
    return job->cpu->vocab[row].max / temperature_of(job, row);
}

void dg_cpu_draw_masses(const dg_vocab_job *job, int row, float *y, int first, int n, float shift)
{
    dg_cpu *cpu = job->cpu;
    double *mass = cpu->draw_mass + (size_t)row * (size_t)job->n_draw_tile;
    cpu->draw_shift[(size_t)row * (size_t)job->n_tile + (size_t)(first / VOCAB_TILE)] = shift;
    for (int i = 0; i < n; i++)
        y[i] -= shift;
    cpu->k.exp_shift(y, y, n, 0);
    for (int i = 0; i < n; i += DRAW_TILE)
        mass[(first + i) / DRAW_TILE] = cpu->k.sum(y + i, dg_min(DRAW_TILE, n - i));
}

void dg_cpu_draw_tile(const dg_vocab_job *job, int row, const float *z, int worker)
{
    dg_draw_kind kind = job->cpu->vocab[row].draw;
    float *y = job->cpu->worker[worker].widened;
    if (kind == DG_DRAW_ARGMAX)
        return;
    dg_cpu_heat(job, y, z, row, job->n);
    if (kind == DG_DRAW_FILTERED)
        dg_cpu_filter_count(job, row, y, job->n, worker);
    else
        dg_cpu_draw_masses(job, row, y, job->first, job->n, dg_cpu_heated_max(job, row));
}

/* ---- the second walk, of filtered rows ---- */

/* One row of the tile: the mass of the words that stay. */
static void filter_task(void *arg, int task, int worker)
{
    (void)worker;
    const dg_vocab_job *job = arg;
    dg_cpu *cpu = job->cpu;
    int row = cpu->filtered[task];
    float *z = job->tile + (size_t)task * VOCAB_TILE;
    dg_cpu_finish_logits(job, z, row, job->first, job->n, false);
    dg_cpu_heat(job, z, z, row, job->n);
    dg_cpu_filter_mask(&cpu->vocab[row], z, job->first, job->n);
    dg_cpu_draw_masses(job, row, z, job->first, job->n, dg_cpu_heated_max(job, row));
}

/* The rows that filters leave a choice are laid side by side and walked. */
static void walk_filtered(dg_vocab_job *job)
{
    const dg_vocabulary_args *a = job->a;
    dg_cpu *cpu = job->cpu;
    int n_vocab = a->table->n_out;
    size_t n_embd = (size_t)a->table->n_in;
    job->x = cpu->normed;
    job->q = job->q_all ? cpu->q_expert : NULL;
    job->n_row = 0;
    job->tile = cpu->tile[0];
    for (int r = 0; r < job->n_all; r++) {
        if (cpu->vocab[r].draw != DG_DRAW_FILTERED)
            continue;
        dg_cpu_filter_cut(job, r);
        if (cpu->vocab[r].filter.alone) {
            cpu->vocab[r].draw = DG_DRAW_ARGMAX;
            continue;
        }
        if (job->q_all)
            dg_cpu_copy_row(cpu->q_expert, job->n_row, job->q_all, r, a->table->n_in,
                            dg_cpu_way(cpu, a->table));
        else if (!job->batch->given)
            memcpy(cpu->normed + (size_t)job->n_row * n_embd, a->x + (size_t)r * n_embd,
                   n_embd * sizeof *a->x);
        cpu->filtered[job->n_row++] = r;
    }
    for (job->first = 0; job->n_row && job->first < n_vocab; job->first += VOCAB_TILE) {
        job->n = dg_min(VOCAB_TILE, n_vocab - job->first);
        dg_cpu_tile_logits(job);
        dg_pool_run(cpu->pool, job->n_row, filter_task, job);
    }
    for (int i = 0; i < job->n_row; i++)
        cpu->vocab[cpu->filtered[i]].filter.quota = 0;
}

/* ---- the draw ---- */

/* Finds the first word whose cumulative mass exceeds `target` in a fine tile; masses are relative
 * to `shift`. */
static int draw_in_tile(const dg_vocab_job *job, int row, int first, int n, float shift,
                        double target, int worker)
{
    dg_vocab_row *v = &job->cpu->vocab[row];
    float *z = job->cpu->worker[worker].row;
    dg_cpu_word_logits(job, z, row, first, n, worker);
    if (v->draw != DG_DRAW_PLAIN)
        dg_cpu_heat(job, z, z, row, n);
    if (v->draw == DG_DRAW_FILTERED)
        dg_cpu_filter_mask(v, z, first, n);
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

static int draw(const dg_vocab_job *job, int row, int worker)
{
    dg_cpu *cpu = job->cpu;
    const double *mass = cpu->draw_mass + (size_t)row * (size_t)job->n_draw_tile;
    const float *shift = cpu->draw_shift + (size_t)row * (size_t)job->n_tile;
    const int per_tile = VOCAB_TILE / DRAW_TILE;
    float max = dg_cpu_heated_max(job, row);

    double total = 0;
    for (int t = 0; t < job->n_draw_tile; t++)
        total += mass[t] * dg_exp((double)shift[t / per_tile] - max);
    double target = job->batch->uniform[row] * total;
    int tile = 0, last = 0;
    for (; tile < job->n_draw_tile; tile++) {
        double m = mass[tile] * dg_exp((double)shift[tile / per_tile] - max);
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
    return draw_in_tile(job, row, first, dg_min(DRAW_TILE, job->a->table->n_out - first), s,
                        target * dg_exp((double)max - s), worker);
}

static void draw_task(void *arg, int row, int worker)
{
    const dg_vocab_job *job = arg;
    const dg_vocab_row *v = &job->cpu->vocab[row];
    job->out->argmax[row] = job->out->drawn[row] = v->argmax;
    if (v->draw == DG_DRAW_BROKEN) {
        job->out->entropy[row] = NAN;
        return;
    }
    job->out->entropy[row] = (float)fmax(0, dg_log(v->mass) - v->slope / v->mass);
    if (v->draw != DG_DRAW_ARGMAX)
        job->out->drawn[row] = draw(job, row, worker);
}

void dg_cpu_draw(dg_vocab_job *job)
{
    walk_filtered(job);
    dg_pool_run(job->cpu->pool, job->n_all, draw_task, job);
}
