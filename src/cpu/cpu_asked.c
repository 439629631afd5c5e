/* What a request asks about its rows' words beside what everybody gets (dg_asked): gathered while
 * the vocabulary is walked, turned into log-probabilities when the row's total is known. */
#include <math.h>
#include "base/real.h"
#include "cpu/cpu_vocabulary.h"

/* The logit of words of other classes: weighs nothing, and is finite. */
#define ELSEWHERE -1e30f

/* A row's part of the answer. */
typedef struct place {
    const dg_asked *asked; /* NULL: nobody asks */
    size_t row;            /* of the segment */
} place;

static place place_of(const dg_vocab_job *job, int row)
{
    const dg_segment *seg = job->cpu->vocab[row].seg;
    size_t at = (size_t)(job->batch->n_encode + row - seg->first_row);
    return (place){seg->options ? seg->options->asked : NULL, at};
}

void dg_cpu_asked_begin(const dg_vocab_job *job, int row)
{
    place p = place_of(job, row);
    if (!p.asked)
        return;
    for (size_t i = p.row * DG_ASKED_TOP; i < (p.row + 1) * DG_ASKED_TOP; i++) {
        p.asked->top_id[i] = -1;
        p.asked->top_logprob[i] = -INFINITY;
    }
    for (size_t c = 0; c < DG_ASKED_CLASSES; c++) {
        dg_class_finding *f = &p.asked->found[p.row * DG_ASKED_CLASSES + c];
        *f = (dg_class_finding){.best = -INFINITY, .uniform = f->uniform, .id = -1, .drawn = -1};
    }
}

/* The tile's words of a class; 0: there are none. */
static int mask_class(float *out, const float *z, const uint8_t *class_of, int n, unsigned c)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        bool in = class_of[i] == c;
        out[i] = in ? z[i] : ELSEWHERE;
        found += in;
    }
    return found;
}

/* Another number in [0, 1), which has nothing to do with u. */
static double other_number(double u)
{
    uint64_t x = (uint64_t)(u * 0x1p53) + UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

/* Moves the draw to this tile with the share that its mass has of all so far; the number that
 * decided is stretched, and decides again. Which word of the tile it is must not depend on it:
 * those that small numbers lead to would all be left again. */
static void draw_on(dg_class_finding *f, const float *e, int n, double mass, int first)
{
    double share = mass / (f->warm + mass);
    if (!(f->uniform < share)) {
        f->uniform = fmin((f->uniform - share) / (1 - share), 1 - 0x1p-53);
        return;
    }
    f->uniform /= share;
    double target = other_number(f->uniform) * mass, sum = 0;
    for (int i = 0; i < n && !(sum > target); i++) {
        sum += e[i];
        if (e[i] > 0)
            f->drawn = first + i;
    }
}

/* z and e are used up. */
static void take_class(const dg_vocab_job *job, dg_class_finding *f, float *z, float *e,
                       float power)
{
    const dg_kernels *k = &job->cpu->k;
    float top;
    int at = k->argmax(z, job->n, &top);
    if (top > f->best) {
        double shift = f->best - top, shrink = f->id < 0 ? 0 : dg_exp(shift);
        f->inner = f->mass > 0 ? shrink * (f->inner + shift * f->mass) : 0;
        f->mass *= shrink;
        f->warm *= f->id < 0 ? 0 : dg_exp(shift * power);
        f->best = top;
        f->id = job->first + at;
    }
    double mass = 0, slope = 0;
    for (int i = 0; i < job->n; i += DRAW_TILE) {
        dg_exp_sums s = k->exp_sums(e + i, z + i, dg_min(DRAW_TILE, job->n - i), (float)f->best);
        mass += s.mass;
        slope += s.slope;
    }
    if (!(mass > 0))
        return;
    f->mass += mass;
    f->inner += slope;
    if (power != 1) {
        mass = 0;
        for (int i = 0; i < job->n; i++)
            z[i] = (z[i] - (float)f->best) * power;
        for (int i = 0; i < job->n; i += DRAW_TILE)
            mass += k->exp_sums(e + i, z + i, dg_min(DRAW_TILE, job->n - i), 0).mass;
    }
    draw_on(f, e, job->n, mass, job->first);
    f->warm += mass;
}

void dg_cpu_asked_tile(const dg_vocab_job *job, int row, const float *z, int worker)
{
    place p = place_of(job, row);
    const dg_asked *a = p.asked;
    if (!a)
        return;
    float *out = a->logprob + p.row * (size_t)a->n_id;
    for (int i = dg_cpu_lower_bound(a->id, sizeof *a->id, a->n_id, job->first);
         i < a->n_id && a->id[i] < job->first + job->n; i++)
        out[i] = z[a->id[i] - job->first];
    dg_cpu_take_top(a->top_id + p.row * DG_ASKED_TOP, a->top_logprob + p.row * DG_ASKED_TOP,
                    DG_ASKED_TOP, z, job->first, job->n);
    float *masked = job->cpu->worker[worker].words, *e = masked + VOCAB_TILE;
    for (unsigned c = 0; c < DG_ASKED_CLASSES; c++)
        if (a->classes >> c & 1 && mask_class(masked, z, a->class_of + job->first, job->n, c))
            take_class(job, &a->found[p.row * DG_ASKED_CLASSES + c], masked, e, a->power);
}

void dg_cpu_asked_end(const dg_vocab_job *job, int row)
{
    const dg_vocab_row *v = &job->cpu->vocab[row];
    place p = place_of(job, row);
    const dg_asked *a = p.asked;
    if (!a)
        return;
    double total = v->max + dg_log(v->mass);
    for (size_t i = p.row * (size_t)a->n_id; i < (p.row + 1) * (size_t)a->n_id; i++)
        a->logprob[i] = (float)(a->logprob[i] - total);
    for (size_t i = p.row * DG_ASKED_TOP; i < (p.row + 1) * DG_ASKED_TOP; i++)
        a->top_logprob[i] = (float)(a->top_logprob[i] - total);
    for (unsigned c = 0; c < DG_ASKED_CLASSES; c++) {
        dg_class_finding *f = &a->found[p.row * DG_ASKED_CLASSES + c];
        if (f->id < 0) {
            f->mass = f->warm = -INFINITY;
            continue;
        }
        f->best -= total;
        f->inner = dg_exp(f->best) * (f->inner + f->best * f->mass);
        f->mass = f->best + dg_log(f->mass);
        f->warm = f->best * a->power + dg_log(f->warm);
    }
}
