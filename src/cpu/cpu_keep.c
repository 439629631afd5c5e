/* Which words of a tile count for a row's soft embedding. Those that do not weigh less than
 * DG_SOFT_LEFT of the row together, in floats less than DG_SOFT_DROP each. Which words are kept
 * depends on the row alone. */
#include <string.h>
#include "base/real.h"
#include "cpu/cpu_vocabulary.h"

/* Words of at least this share of the mass so far are never rounded: no more than 256 of a row. */
#define SOFT_PEAK 0x1p-8

/* Parts of DG_SOFT_LEFT that the integer profile leaves out: in the first tile already, and for the
 * part of the vocabulary that was seen. Words below a quarter of DG_SOFT_DROP weigh less than the
 * rest of it together. The mass so far is at most the whole, so what holds here holds in the end.
 */
#define LEFT_AT_ONCE 0.5
#define LEFT_BY_WORD 0.25

/* Tiles from which on it pays to look at a word ahead of the walk. */
enum { MANY_TILES = 3 };

static int dense_from(const dg_vocab_job *job)
{
    return dg_max(1, job->n / 16);
}

/* ---- lists of words ---- */

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Words that are passed over together. */
enum { SOME = 16 };

/* None of SOME is at least what has these bits. None is negative, and such floats compare as their
 * bits do: a difference below 0 has the highest bit, in all of them. Compilers make vectors of it.
 */
__attribute__((noinline)) static bool all_below(const float *e, uint32_t least)
{
    uint32_t bits[SOME], all = ~0u;
    memcpy(bits, e, sizeof bits);
    for (int i = 0; i < SOME; i++)
        all &= bits[i] - least;
    return all >> 31;
}

/* Words [first, end) of them, at most SOME. */
static int some_above(dg_likely *out, const float *e, int first, int end, float least)
{
    int n = 0;
    if (end - first == SOME && all_below(e + first, bits_of(least)))
        return 0;
    for (int i = first; i < end; i++) {
        out[n] = (dg_likely){i, e[i]};
        n += e[i] >= least && e[i] > 0;
    }
    return n;
}

/* The words of the tile that are at least `least`; *sum is what they weigh. */
static int words_above(dg_likely *out, const dg_vocab_job *job, const dg_vocab_tile *t, float least,
                       double *sum)
{
    int n = 0;
    for (int first = 0; first < job->n; first += DRAW_TILE) {
        if (!(t->most[first / DRAW_TILE] >= least))
            continue;
        for (int i = first; i < dg_min(first + DRAW_TILE, job->n); i += SOME)
            n += some_above(out + n, t->e, i, dg_min(i + SOME, job->n), least);
    }
    *sum = 0;
    for (int i = 0; i < n; i++)
        *sum += out[i].p;
    return n;
}

static int exponent_of(float x)
{
    return (int)(bits_of(x) >> 23);
}

/* Leaves out the least likely words that weigh no more than `most` together, by powers of two; adds
 * what they weigh to *left_out. Returns how many stay. */
static int leave_least(dg_likely *list, int n, double most, double *left_out)
{
    double weight[256] = {0}, left = 0;
    int top = 0, cut = 0, kept = 0;
    for (int i = 0; i < n; i++) {
        weight[exponent_of(list[i].p)] += list[i].p;
        top = dg_max(top, exponent_of(list[i].p));
    }
    for (; cut < top && left + weight[cut] <= most; cut++)
        left += weight[cut];
    for (int i = 0; i < n; i++) {
        list[kept] = list[i];
        kept += exponent_of(list[i].p) >= cut;
    }
    *left_out += left;
    return kept;
}

/* ---- a word that is known to come ---- */

static void look_ahead(dg_cpu *cpu, const void *args, int row, int worker)
{
    const dg_vocab_job *job = args;
    dg_vocab_row *v = &cpu->vocab[row];
    if (!cpu->soft[row])
        return;
    float *z = cpu->worker[worker].row;
    v->ahead_id = job->batch->token[job->batch->n_encode + row];
    dg_cpu_word_logits(job, z, row, v->ahead_id, 1, worker);
    v->ahead = z[0];
}

void dg_cpu_soft_begin(const dg_vocab_job *job)
{
    if (job->integer && job->batch->token && job->n_tile >= MANY_TILES)
        dg_cpu_for_rows(job->cpu, look_ahead, job, (dg_rows){0, job->n_all});
}

/* The mass so far and of the word that is known to come. */
static double known_mass(const dg_vocab_job *job, const dg_vocab_row *v)
{
    bool to_come = v->ahead_id >= job->first + job->n;
    return v->mass + (to_come ? dg_exp((double)v->ahead - v->max) : 0);
}

/* ---- a tile ---- */

/* A dense row's words as whole numbers. */
static void quantise_kept(const dg_vocab_job *job, int row, float *z)
{
    const dg_cpu *cpu = job->cpu;
    int n_block = dg_ceil_div(job->n, DG_QBLOCK);
    memset(z + job->n, 0, (size_t)(n_block * DG_QBLOCK - job->n) * sizeof *z);
    for (int b = 0; b < n_block; b += DG_QBLOCKS) {
        int k = b * DG_QBLOCK;
        cpu->k.q->quantise(dg_cpu_soft_pairs(job, k) + (size_t)(row / 2) * DG_QBLOCKS, row % 2,
                           z + k, dg_min(DG_QBLOCKS, n_block - b));
    }
}

/* Lays a dense row's words out for the product. Words that are likely by themselves are kept out of
 * one in whole numbers: roundings of many others make up for each other. */
static void lay_out_dense(const dg_vocab_job *job, dg_soft_row *s, int row, const dg_likely *kept,
                          int n)
{
    float *z = job->tile + (size_t)row * VOCAB_TILE;
    float peak = (float)(job->cpu->vocab[row].mass * SOFT_PEAK);
    memset(z, 0, (size_t)job->n * sizeof *z);
    for (int i = 0; i < n; i++) {
        if (job->soft_integer && kept[i].p >= peak)
            s->word[s->n_word++] = kept[i];
        else
            z[kept[i].id] = kept[i].p;
    }
    if (job->soft_integer)
        quantise_kept(job, row, z);
    s->dense = true;
}

void dg_cpu_soft_keep(const dg_vocab_job *job, int row, const dg_vocab_tile *t, int worker)
{
    const dg_cpu *cpu = job->cpu;
    dg_vocab_row *v = &cpu->vocab[row];
    dg_soft_row *s = &job->kept[row];
    dg_likely *kept = cpu->worker[worker].kept;
    double sum, mass = job->integer ? known_mass(job, v) : v->mass;
    float least = (float)(mass * (job->integer ? DG_SOFT_DROP / 4 : DG_SOFT_DROP));
    s->shrink = v->shrink;
    s->dense = false;
    s->n_word = 0;
    int n = words_above(kept, job, t, least, &sum);
    if (job->integer && least > 0) {
        double seen = (double)(job->first + job->n) / job->a->table->n_out;
        double most = mass * DG_SOFT_LEFT * (LEFT_AT_ONCE + LEFT_BY_WORD * seen);
        v->left_out += t->mass > sum ? t->mass - sum : 0;
        n = leave_least(kept, n, most - v->left_out, &v->left_out);
    }
    if (n >= dense_from(job)) {
        lay_out_dense(job, s, row, kept, n);
        return;
    }
    memcpy(s->word, kept, (size_t)n * sizeof *kept);
    s->n_word = n;
}
