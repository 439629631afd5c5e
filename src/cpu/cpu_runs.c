/* Query lines against runs of keys with products of bfloat16 numbers: queries are rounded, keys and
 * values are stored so, shares of softmax are rounded to eight bits; sums are floats. A run is as
 * many keys as the kernels like, from a multiple of that on, whatever lines share the task and
 * whichever of its pages they see: keys that a line does not see have a share of 0, which changes
 * no sum. So a line's result does not depend on others. */
#include <math.h>
#include <string.h>
#include "base/real.h"
#include "cpu/cpu_internal.h"

/* Keys of a run, and floats between the lines of their scores. */
static int run_of(const dg_cpu_lines *l)
{
    return l->cpu->k.b->keys;
}

static size_t scores_of(const dg_cpu_lines *l)
{
    return (size_t)(run_of(l) + LINE_ROOM);
}

/* Lines as bfloat16 numbers lie where those of floats would. */
static uint16_t *lines_of(const dg_cpu_lines *l)
{
    return (uint16_t *)l->w->q;
}

void dg_cpu_runs_set_line(const dg_cpu_lines *l, int line, const float *q)
{
    dg_cpu_round_row(l->cpu, lines_of(l), line, q, l->dim);
}

static dg_bgemm_args scores_by(const dg_cpu_lines *l, const dg_cpu_run *keys)
{
    return (dg_bgemm_args){
        .y = l->w->score + keys->first,
        .x = lines_of(l),
        .part = keys->page + keys->first / DG_PAGE,
        .ldy = scores_of(l),
        .ldx = (size_t)l->dim,
        .next = (size_t)l->dim * DG_PANEL,
        .n_row = l->n,
        .n_k = l->dim,
        .part_k = l->dim,
        .n_col = dg_ceil_div(keys->n - keys->first, DG_PANEL) * DG_PANEL,
        .part_col = DG_PAGE,
        .soon = keys->soon,
    };
}

void dg_cpu_runs_score(const dg_cpu_lines *l, const dg_cpu_run *keys)
{
    const dg_bgemm_args scores = scores_by(l, keys);
    l->cpu->k.b->gemm(&scores);
}

bool dg_cpu_runs_score_soften(dg_cpu_lines *l, const dg_cpu_run *keys)
{
    const dg_bgemm_args scores = scores_by(l, keys);
    dg_bsoften_fn *soften = l->cpu->k.b->soften;
    bool begun = soften;
    for (int i = 0; i < l->n && begun; i++)
        begun = l->against[i] > -INFINITY;
    l->sums_wait = begun && soften(&scores, l->w->share, l->against);
    return l->sums_wait;
}

/* Carries a line's sums over to the larger score that it has now. */
static void raise_line(dg_cpu_lines *l, int line, float before)
{
    float *out = dg_cpu_line_sums(l, line);
    /* 0 for the first keys */
    const float shrink = (float)dg_exp((double)(before - l->against[line]));
    for (int i = 0; i < l->dim; i++)
        out[i] *= shrink;
    l->sum[line] *= shrink;
}

void dg_cpu_runs_soften(dg_cpu_lines *l, const dg_cpu_run *run, int line, int lo, int hi)
{
    const dg_bkernels *b = l->cpu->k.b;
    const float *score = l->w->score + (size_t)line * scores_of(l);
    const int which = line % b->rows, padded = dg_cpu_padded(run->n);
    uint16_t share[ATTENTION_RUN], *to = l->w->share + (size_t)((line - which) * run_of(l));
    lo = dg_min(dg_max(lo, run->first), run->n);
    hi = dg_max(lo, dg_min(hi, run->n));
    memset(share + run->first, 0, (size_t)(lo - run->first) * sizeof *share);
    memset(share + hi, 0, (size_t)(padded - hi) * sizeof *share);
    if (lo < hi) {
        const float top = b->largest(score + lo, hi - lo), before = l->against[line];
        /* the difference, as soften() has it: sums of both are rounded otherwise */
        if (top - before > b->slack) {
            l->against[line] = top;
            raise_line(l, line, before);
        }
        l->sum[line] += (double)b->shares(share + lo, score + lo, hi - lo, l->against[line]);
    }
    b->place(to + run->first * b->rows, which, share + run->first, padded - run->first);
}

/* The first n values of a page. The last products take some more: those have a share of 0, and
 * must be numbers. */
static const uint16_t *page_of(const dg_cpu_lines *l, const uint16_t *page, int n)
{
    const int padded = dg_cpu_padded(n);
    const size_t next = DG_PAGE * DG_PANEL;
    uint16_t *copy = (uint16_t *)l->w->panel;
    if (n == padded)
        return page;
    for (size_t at = 0; at < DG_PAGE * (size_t)l->dim; at += next) {
        memcpy(copy + at, page + at, (size_t)padded * DG_PANEL * sizeof *copy);
        for (int k = n; k < padded; k++)
            for (int c = 0; c < DG_PANEL; c++)
                copy[at + dg_cpu_in_panel(l->cpu->k.b->beside, k, c)] = 0;
    }
    return copy;
}

void dg_cpu_runs_add(dg_cpu_lines *l, const dg_cpu_run *values)
{
    float sum[ATTENTION_LINES];
    const uint16_t *part[ATTENTION_RUN / DG_PAGE];
    int n_part = 0;
    for (int k = values->first; k < values->n; k += DG_PAGE)
        part[n_part++] = page_of(l, values->page[k / DG_PAGE], dg_min(DG_PAGE, values->n - k));
    l->cpu->k.b->gemm(&(dg_bgemm_args){
        .y = l->w->out,
        .x = l->w->share + values->first * l->cpu->k.b->rows,
        .part = part,
        .ldy = (size_t)(l->dim + LINE_ROOM),
        .ldx = (size_t)run_of(l),
        .next = DG_PAGE * DG_PANEL,
        .n_row = l->n,
        .n_k = dg_cpu_padded(values->n) - values->first,
        .part_k = DG_PAGE,
        .n_col = l->dim,
        .add = true,
        .soon = values->soon,
        .sum = l->sums_wait ? sum : NULL,
    });
    for (int i = 0; i < l->n && l->sums_wait; i++)
        l->sum[i] += (double)sum[i];
    l->sums_wait = false;
}
