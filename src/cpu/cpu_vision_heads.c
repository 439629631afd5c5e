/* The vision tower's attention with products of bfloat16 numbers. Keys and values of a picture are
 * packed once for all queries: keys in panels of DG_PANEL of them, values in panels of DG_PANEL
 * columns of RUN keys each. A run of keys is the unit of summation for every query. */
#include <math.h>
#include <string.h>
#include "cpu/cpu_internal.h"

enum {
    RUN = 256, /* keys that are softened together: a multiple of DG_PANEL and of every step */
    LINES = 48 /* queries that a task takes */
};

/* What a thread needs for itself. */
typedef struct dg_cpu_heads {
    uint16_t *line;  /* [LINES][padded dim] queries */
    uint16_t *share; /* [LINES][RUN], as products take them */
    uint16_t *row;   /* [RUN][dim] keys or values on their way into panels */
    float *score;    /* [LINES][RUN] */
    float *out;      /* [LINES][dim] */
} dg_cpu_heads;

typedef struct heads_job {
    dg_cpu *cpu;
    const dg_vision_picture *p;
    int n_patch, n_run;
    int dim, padded, panels; /* panels of values that a run has */
} heads_job;

static heads_job job_of(dg_cpu *cpu, const dg_vision_picture *p)
{
    const int dim = cpu->vision.plan.head_dim, n_patch = p->rows * p->cols;
    return (heads_job){
        .cpu = cpu,
        .p = p,
        .n_patch = n_patch,
        .n_run = dg_ceil_div(n_patch, RUN),
        .dim = dim,
        .padded = dg_cpu_padded(dim),
        .panels = dg_ceil_div(dim, DG_PANEL),
    };
}

void dg_cpu_vision_take_heads(dg_cpu_vision *v, const dg_cpu *cpu, const dg_vision_plan *p,
                              dg_cpu_taker *t)
{
    const size_t u = sizeof(uint16_t), f = sizeof(float), dim = (size_t)p->head_dim,
                 padded = (size_t)dg_cpu_padded(p->head_dim),
                 cols = (size_t)dg_ceil_div(p->head_dim, DG_PANEL) * DG_PANEL,
                 keys = (size_t)p->n_head * (size_t)dg_ceil_div(p->n_patch, RUN) * RUN;
    const int n_thread = dg_pool_threads(cpu->pool);
    v->keys = dg_cpu_take(t, keys * padded, u);
    v->values = dg_cpu_take(t, keys * cols, u);
    v->heads = dg_cpu_take(t, (size_t)n_thread, sizeof *v->heads);
    for (int i = 0; i < n_thread; i++) {
        dg_cpu_heads h = {
            .line = dg_cpu_take(t, LINES * padded, u),
            .share = dg_cpu_take(t, LINES * RUN, u),
            .row = dg_cpu_take(t, RUN * dim, u),
            .score = dg_cpu_take(t, LINES * RUN, f),
            .out = dg_cpu_take(t, LINES * dim, f),
        };
        if (v->heads)
            v->heads[i] = h;
    }
}

/* Where a head's panels begin: of keys in a run, of values in a run. */
static uint16_t *keys_at(const heads_job *job, int head, int run)
{
    size_t at = (size_t)(head * job->n_run + run) * RUN;
    return job->cpu->vision.keys + at * (size_t)job->padded;
}

static uint16_t *values_at(const heads_job *job, int head, int run)
{
    size_t at = (size_t)(head * job->n_run + run) * (size_t)job->panels;
    return job->cpu->vision.values + at * RUN * DG_PANEL;
}

/* Place of patch `patch` of the picture, head `head`, in q, k and v. */
static size_t place(const heads_job *job, int head, int patch)
{
    const size_t dim = (size_t)job->dim, n_head = (size_t)job->cpu->vision.plan.n_head;
    return ((size_t)(job->p->first_patch + patch) * n_head + (size_t)head) * dim;
}

/* n rows of a head from a patch on, as bfloat16 numbers. */
static void round_rows(const heads_job *job, uint16_t *to, const float *from, int n)
{
    const size_t apart = (size_t)job->cpu->vision.plan.n_head * (size_t)job->dim;
    for (int i = 0; i < n; i++)
        job->cpu->k.narrow[DG_BF16](to + i * job->dim, from + (size_t)i * apart, job->dim);
}

/* One task: a run of keys of one head, and its values. */
static void pack_run(void *arg, int task, int worker)
{
    const heads_job *job = arg;
    const dg_cpu_vision *v = &job->cpu->vision;
    const dg_bkernels *b = job->cpu->k.b;
    const int head = task / job->n_run, run = task % job->n_run, first = run * RUN,
              n = dg_min(RUN, job->n_patch - first);
    const size_t dim = (size_t)job->dim, at = place(job, head, first);
    uint16_t *row = v->heads[worker].row, *to = keys_at(job, head, run);
    round_rows(job, row, v->k + at, n);
    for (int c = 0; c < n; c += DG_PANEL, to += DG_PANEL * job->padded)
        b->pack_cols(to, row + (size_t)c * dim, dim * sizeof *row, job->dim,
                     dg_min(DG_PANEL, n - c));
    round_rows(job, row, v->v + at, n);
    to = values_at(job, head, run);
    for (int c = 0; c < job->dim; c += DG_PANEL, to += DG_PANEL * RUN)
        b->pack_rows(to, row + c, dim * sizeof *row, n, dg_min(DG_PANEL, job->dim - c));
}

/* Queries of a task: sums so far, and the largest score that they are measured by. */
typedef struct lines {
    dg_cpu_heads *h;
    int n, head;
    float top[LINES], sum[LINES];
} lines;

static void score_run(const heads_job *job, const lines *l, int run, int n)
{
    job->cpu->k.b->gemm(&(dg_bgemm_args){
        .y = l->h->score,
        .x = l->h->line,
        .part = &(const uint16_t *){keys_at(job, l->head, run)},
        .ldy = RUN,
        .ldx = (size_t)job->padded,
        .next = (size_t)job->padded * DG_PANEL,
        .n_row = l->n,
        .n_k = job->dim,
        .part_k = job->padded,
        .n_col = n,
    });
}

/* Scores to shares; sums are carried over to a new largest score. */
static void soften_line(const heads_job *job, lines *l, int i, int n)
{
    const dg_bkernels *b = job->cpu->k.b;
    float *score = l->h->score + i * RUN, *out = l->h->out + (size_t)i * (size_t)job->dim;
    const int which = i % b->rows, padded = dg_cpu_padded(n);
    uint16_t share[RUN];
    const float top = b->largest(score, n);
    if (top > l->top[i]) {
        float shrink = 1; /* exp(top so far - top): 0 for the first keys */
        job->cpu->k.exp_shift(&shrink, &l->top[i], 1, top);
        for (int k = 0; k < job->dim; k++)
            out[k] *= shrink;
        l->sum[i] *= shrink;
        l->top[i] = top;
    }
    l->sum[i] += b->shares(share, score, n, l->top[i]);
    memset(share + n, 0, (size_t)(padded - n) * sizeof *share);
    b->place(l->h->share + (i - which) * RUN, which, share, padded);
}

static void add_run(const heads_job *job, const lines *l, int run, int n)
{
    job->cpu->k.b->gemm(&(dg_bgemm_args){
        .y = l->h->out,
        .x = l->h->share,
        .part = &(const uint16_t *){values_at(job, l->head, run)},
        .ldy = (size_t)job->dim,
        .ldx = RUN,
        .next = RUN * DG_PANEL,
        .n_row = l->n,
        .n_k = n,
        .part_k = RUN,
        .n_col = job->dim,
        .add = true,
    });
}

/* One task: LINES queries of one head. Tasks of a head follow each other, so its panels stay in the
 * cache. */
static void attend_lines(void *arg, int task, int worker)
{
    const heads_job *job = arg;
    const int n_task = dg_ceil_div(job->n_patch, LINES), first = task % n_task * LINES;
    const size_t dim = (size_t)job->dim, apart = (size_t)job->cpu->vision.plan.n_head * dim;
    lines l = {
        .h = &job->cpu->vision.heads[worker],
        .n = dg_min(LINES, job->n_patch - first),
        .head = task / n_task,
    };
    float *q = job->cpu->vision.q + place(job, l.head, first);
    memset(l.h->out, 0, LINES * dim * sizeof *l.h->out);
    for (int i = 0; i < l.n; i++) {
        dg_cpu_round_row(job->cpu, l.h->line, i, q + (size_t)i * apart, job->dim);
        l.top[i] = -INFINITY;
    }
    for (int run = 0; run < job->n_run; run++) {
        const int n = dg_min(RUN, job->n_patch - run * RUN);
        score_run(job, &l, run, n);
        for (int i = 0; i < l.n; i++)
            soften_line(job, &l, i, n);
        add_run(job, &l, run, n);
    }
    for (int i = 0; i < l.n; i++)
        for (size_t k = 0; k < dim; k++)
            q[(size_t)i * apart + k] = l.h->out[(size_t)i * dim + k] / l.sum[i];
}

void dg_cpu_vision_heads(dg_cpu *cpu, const dg_vision_picture *p)
{
    heads_job job = job_of(cpu, p);
    const int n_head = cpu->vision.plan.n_head;
    dg_pool_run(cpu->pool, n_head * job.n_run, pack_run, &job);
    dg_pool_run(cpu->pool, n_head * dg_ceil_div(job.n_patch, LINES), attend_lines, &job);
}
