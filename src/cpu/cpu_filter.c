/* Which words a filtered draw may pick, without a list of words as long as the vocabulary.
 *
 * While the vocabulary is walked, each word is counted in the bin of its rank: DG_DRAW_RANKS bins
 * for a nat, aligned to zero, so that a word's bin does not depend on the maximum, which is not
 * known yet. A ring holds those from the running maximum down. The cut is then a bin and how many
 * of its words stay: backend_batch.h says in which order. */
#include <math.h>
#include <string.h>
#include "base/real.h"
#include "cpu/cpu_vocabulary.h"

enum { NO_BIN = UINT16_MAX };

/* Beyond this the bins of floats are not worth counting: only the arg-max stays. */
#define LARGEST_Y 1e12f

static size_t slot_of(int64_t bin)
{
    return (size_t)((uint64_t)bin % DRAW_BINS);
}

/* Makes room for higher bins; the lowest fall out of the ring. */
static void raise_top(dg_filter *f, int64_t top, double *mass, uint32_t *count)
{
    if (!f->seen || top - f->top >= DRAW_BINS) {
        memset(mass, 0, DRAW_BINS * sizeof *mass);
        memset(count, 0, DRAW_BINS * sizeof *count);
        f->seen = true;
        f->top = top;
    }
    while (f->top < top) {
        f->top++;
        mass[slot_of(f->top)] = 0;
        count[slot_of(f->top)] = 0;
    }
}

void dg_cpu_filter_count(const dg_vocab_job *job, int row, float *y, int n, int worker)
{
    dg_cpu *cpu = job->cpu;
    dg_filter *f = &cpu->vocab[row].filter;
    double *mass = cpu->bin_mass + (size_t)row * DRAW_BINS;
    uint32_t *count = cpu->bin_count + (size_t)row * DRAW_BINS;
    uint16_t *slot = cpu->worker[worker].slot;
    float max = dg_cpu_heated_max(job, row);
    if (!(fabsf(max) < LARGEST_Y)) /* NaN is reported after the walk */
        return;
    raise_top(f, (int64_t)floorf(max * DG_DRAW_RANKS), mass, count);
    double low = (double)(f->top - DRAW_BINS + 1) / DG_DRAW_RANKS;
    for (int i = 0; i < n; i++) {
        bool in = (double)y[i] >= low;
        int64_t bin = in ? (int64_t)floorf(y[i] * DG_DRAW_RANKS) : 0;
        slot[i] = in ? (uint16_t)slot_of(bin) : (uint16_t)NO_BIN;
        y[i] = in ? (float)((double)y[i] - (double)bin / DG_DRAW_RANKS) : 0;
    }
    cpu->k.exp_shift(y, y, n, 0);
    for (int i = 0; i < n; i++)
        if (slot[i] != NO_BIN) {
            mass[slot[i]] += y[i];
            count[slot[i]]++;
        }
}

/* ---- the cut ---- */

typedef struct bins {
    const double *mass;
    const uint32_t *count;
    int64_t top;
    double max; /* masses are taken relative to it */
    double least;
} bins;

/* The first `quota` words of a bin, and all words of those above it: `n` words with that mass. */
typedef struct cut {
    int64_t bin;
    double quota, n, mass;
} cut;

/* The cut that has max_n words or max_mass, whichever comes first. */
static cut cut_at(const bins *b, double max_n, double max_mass)
{
    cut c = {.bin = b->top, .n = 1, .mass = 1}; /* the arg-max */
    for (; c.bin > b->top - DRAW_BINS; c.bin--) {
        double edge = (double)c.bin / DG_DRAW_RANKS;
        double words = b->count[slot_of(c.bin)], mass = b->mass[slot_of(c.bin)];
        if (c.bin == b->top) {
            words -= 1;
            mass = fmax(0, mass - dg_exp(b->max - edge));
        }
        if (c.n >= max_n || c.mass >= max_mass || (double)(c.bin + 1) / DG_DRAW_RANKS <= b->least)
            return c;
        if (words <= 0)
            continue;
        double each = mass / words * dg_exp(edge - b->max), take = fmin(words, max_n - c.n);
        if (c.mass + take * each > max_mass)
            take = fmin(take, ceil((max_mass - c.mass) / each));
        c.n += take;
        c.mass += take * each;
        if (take < words) {
            c.quota = take;
            return c;
        }
    }
    return c;
}

void dg_cpu_filter_cut(const dg_vocab_job *job, int row)
{
    dg_cpu *cpu = job->cpu;
    dg_filter *f = &cpu->vocab[row].filter;
    const dg_draw_options *o = dg_vocab_options(job, row)->draw;
    double max = dg_cpu_heated_max(job, row);
    f->least = o->min_p > 0 ? max + dg_log((double)o->min_p) : (double)-INFINITY;
    f->last_id = -1;
    f->alone = !f->seen;
    if (f->alone)
        return;
    bins b = {.mass = cpu->bin_mass + (size_t)row * DRAW_BINS,
              .count = cpu->bin_count + (size_t)row * DRAW_BINS,
              .top = f->top,
              .max = max,
              .least = -INFINITY};
    double max_n = o->top_k > 0 ? (double)o->top_k : (double)INFINITY;
    double max_mass = o->top_p < 1 ? (double)o->top_p * cut_at(&b, max_n, INFINITY).mass : INFINITY;
    b.least = f->least;
    cut c = cut_at(&b, max_n, max_mass);
    f->alone = c.n <= 1;
    f->quota = c.quota;
    f->edge = (double)c.bin / DG_DRAW_RANKS;
    f->sure = (double)(c.bin + 1) / DG_DRAW_RANKS;
}

void dg_cpu_filter_mask(dg_vocab_row *v, float *y, int first, int n)
{
    dg_filter *f = &v->filter;
    for (int i = 0; i < n; i++) {
        int id = first + i;
        if (id == v->argmax)
            continue;
        bool stays = (double)y[i] >= f->sure;
        if (!stays && (double)y[i] >= f->edge) {
            if (f->quota >= 1) {
                f->quota -= 1;
                f->last_id = id;
            }
            stays = id <= f->last_id;
        }
        if (!stays || (double)y[i] < f->least)
            y[i] = -INFINITY;
    }
}
