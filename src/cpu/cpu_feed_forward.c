/* The dense MLP, the router and the experts. Rows are sorted by expert, so that each expert's
 * weights are read once and meet all of its rows. */
#include <math.h>
#include <string.h>
#include "cpu/cpu_internal.h"

void dg_cpu_dense(dg_backend *be, const dg_dense_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    const dg_mlp_weights *w = a->w;
    int n = a->rows.end - a->rows.first, n_ff = w->gate.n_out;
    size_t n_embd = (size_t)cpu->plan.n_embd, ld = 2 * (size_t)n_ff;
    size_t first = (size_t)a->rows.first * n_embd;
    float *wide = cpu->wide, *normed = cpu->normed + first, *out = a->out + first;

    const dg_cpu_norm_args norm = {cpu->normed, a->x, w->norm};
    const dg_cpu_made normal = {dg_cpu_norm_row, &norm, a->rows.first},
                      gelu = {dg_cpu_gelu_row, &(dg_cpu_gelu_args){wide, n_ff}, 0};
    const dg_cpu_matmul gate_up[] = {
        {wide, normed, ld, n_embd, n, &w->gate, .batch_row = a->rows.first},
        {wide + n_ff, normed, ld, n_embd, n, &w->up, .batch_row = a->rows.first},
    };
    const dg_cpu_matmul down = {out, wide, n_embd, ld, n, &w->down, .batch_row = a->rows.first};
    dg_cpu_matmul_group(cpu, gate_up, 2, &normal);
    dg_cpu_matmul_group(cpu, &down, 1, &gelu);
    dg_cpu_norm_rows(cpu, a->out, a->out, w->post_norm, a->rows);
}

/* ---- router ---- */

static void router_input(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const dg_route_args *a = args;
    int n = cpu->plan.n_embd;
    size_t at = (size_t)row * (size_t)n;
    float *u = cpu->normed + at, down = 1 / sqrtf((float)n);
    cpu->k.rmsnorm(u, a->x + at, NULL, n, cpu->plan.rms_eps);
    for (int i = 0; i < n; i++)
        u[i] = u[i] * a->w->scale[i] * down;
}

/* Softmax over all experts, then the largest; renormalised, so the softmax's own sum cancels. */
static void choose(dg_cpu *cpu, const void *args, int row, int worker)
{
    const dg_route_args *a = args;
    const dg_router_weights *w = a->w;
    int n = w->proj.n_out;
    size_t at = (size_t)row * (size_t)w->n_used;
    int32_t *expert = a->expert + at;
    float *weight = a->weight + at, *p = cpu->worker[worker].row, top;

    const float *g = cpu->router + (size_t)row * (size_t)n;
    cpu->k.argmax(g, n, &top);
    cpu->k.exp_shift(p, g, n, top);
    double sum = 0;
    for (int j = 0; j < w->n_used; j++) {
        expert[j] = cpu->k.argmax(p, n, &weight[j]);
        p[expert[j]] = -1;
        sum += weight[j];
    }
    for (int j = 0; j < w->n_used; j++)
        weight[j] = (float)(weight[j] / sum) * w->expert_scale[expert[j]];
}

void dg_cpu_route(dg_backend *be, const dg_route_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    const dg_weight *w = &a->w->proj;
    int n = a->rows.end - a->rows.first;
    size_t n_out = (size_t)w->n_out, n_in = (size_t)w->n_in, first = (size_t)a->rows.first;
    const dg_cpu_matmul product = {
        .y = cpu->router + first * n_out,
        .x = cpu->normed + first * n_in,
        .ldy = n_out,
        .ldx = n_in,
        .n_row = n,
        .w = w,
        .batch_row = a->rows.first,
    };
    dg_cpu_matmul_group(cpu, &product, 1, &(dg_cpu_made){router_input, a, a->rows.first});
    dg_cpu_for_rows(cpu, choose, a, a->rows);
}

/* ---- experts ---- */

/* Columns of an expert that one task takes: what comes next is asked for in time only within a
 * task, and an expert's rows are few. */
enum { EXPERT_COLS = 4 * TASK_COLS };

/* A product of all experts; pair i of the sorted ones is row i of x and of y. */
typedef struct expert_product {
    const dg_weight *w;
    float *y, *x;
    size_t ldy, ldx;
} expert_product;

typedef struct expert_job {
    dg_cpu *cpu;
    const dg_experts_args *a;
    int n_active, n_pair;
    int first_pair; /* pairs are numbered row * n_used + choice; this is the first row's */
    expert_product product[2]; /* at work, with the same rows: gate, up or both; down */
    int n_product;
} expert_job;

/* Sorts the pairs by expert (stable), and lists the experts that have any. */
static void sort_pairs(expert_job *job)
{
    dg_cpu *cpu = job->cpu;
    int n_expert = job->a->w->gate.n_mat, *start = cpu->expert_start;
    const int32_t *expert = job->a->expert + job->first_pair;
    memset(start, 0, ((size_t)n_expert + 1) * sizeof *start);
    for (int i = 0; i < job->n_pair; i++)
        start[expert[i] + 1]++;
    job->n_active = 0;
    for (int e = 0; e < n_expert; e++) {
        if (start[e + 1])
            cpu->active[job->n_active++] = e;
        start[e + 1] += start[e];
    }
    /* place each pair; start[e] runs up to the end of e, which is where e + 1 starts */
    for (int i = 0; i < job->n_pair; i++)
        cpu->pair_of[start[expert[i]]++] = i;
    for (int e = n_expert; e > 0; e--)
        start[e] = start[e - 1];
    start[0] = 0;
}

/* Where an expert's rows start in q_expert as products with w take them: at places that are whole
 * for rows that lie together, so each expert may leave some empty. */
static dg_qpair *expert_rows(const dg_cpu *cpu, int e, const dg_weight *w)
{
    const dg_qway way = dg_cpu_way(cpu, w);
    int rows = dg_qway_rows(way), row = (cpu->expert_start[e] / rows + e) * rows;
    return cpu->q_expert + dg_qrow_at(row, dg_qrow_room(w->n_in, way), way);
}

static bool is_adapted(const expert_job *job)
{
    bool yes = false;
    for (int i = 0; i < job->n_product; i++)
        yes = yes || dg_cpu_is_adapted(job->cpu, job->product[i].w);
    return yes;
}

/* Norms a row, quantises it if that is what the first products take, and hands it to its experts.
 */
static void expert_input(dg_cpu *cpu, const void *args, int row, int worker)
{
    const expert_job *job = args;
    const dg_weight *w = job->product[0].w;
    const int n = cpu->plan.n_embd, n_used = job->a->n_used, at = row - job->a->rows.first;
    const int *slot = cpu->pair_of + job->n_pair + at * n_used;
    const int32_t *expert = job->a->expert + (size_t)row * (size_t)n_used;
    const float *x = cpu->normed + (size_t)row * (size_t)n;
    dg_cpu_norm_row(cpu, &(dg_cpu_norm_args){cpu->normed, job->a->x, job->a->w->norm}, row, worker);
    if (dg_cpu_integer(cpu, w))
        dg_cpu_quantise_row(cpu, cpu->q_rows, at, x, w);
    for (int j = 0; j < n_used; j++) {
        const int e = expert[j];
        if (dg_cpu_integer(cpu, w))
            dg_cpu_copy_row(expert_rows(cpu, e, w), slot[j] - cpu->expert_start[e], cpu->q_rows, at,
                            w->n_in, dg_cpu_way(cpu, w));
        if (!dg_cpu_integer(cpu, w) || is_adapted(job))
            memcpy(cpu->expert_x + (size_t)slot[j] * (size_t)n, x, (size_t)n * sizeof *x);
    }
}

/* A task's product and its first column. */
typedef struct expert_part {
    dg_cpu_matmul m;
    int first_col;
} expert_part;

/* A task and what its worker takes next. */
static void multiply_part(const dg_cpu *cpu, expert_part now, const expert_part *next, int worker)
{
    now.m.asked = cpu->worker[worker].asked;
    now.m.next = next ? &next->m : NULL;
    now.m.next_col = next ? next->first_col : 0;
    cpu->worker[worker].asked = next;
    dg_cpu_matmul_cols(cpu, &now.m, now.first_col,
                       dg_min(now.first_col + EXPERT_COLS, now.m.w->n_out), worker);
}

/* One block of columns of one expert: one product's blocks, then the other's. */
static expert_part part_of(const expert_job *job, int task)
{
    const dg_cpu *cpu = job->cpu;
    const int n_block = dg_ceil_div(job->product[0].w->n_out, EXPERT_COLS),
              e = cpu->active[task / (job->n_product * n_block)];
    const expert_product *p = &job->product[task / n_block % job->n_product];
    const size_t at = (size_t)cpu->expert_start[e];
    return (expert_part){.first_col = task % n_block * EXPERT_COLS,
                         .m = {
                             .y = p->y + at * p->ldy,
                             .x = p->x + at * p->ldx,
                             .ldy = p->ldy,
                             .ldx = p->ldx,
                             .n_row = cpu->expert_start[e + 1] - cpu->expert_start[e],
                             .w = p->w,
                             .mat = e,
                             .q = dg_cpu_integer(cpu, p->w) ? expert_rows(cpu, e, p->w) : NULL,
                         }};
}

static void expert_task(void *arg, int task, int next, int worker)
{
    const expert_job *job = arg;
    const expert_part soon = part_of(job, next < 0 ? task : next);
    multiply_part(job->cpu, part_of(job, task), next < 0 ? NULL : &soon, worker);
}

static void tell_observer(const expert_job *job)
{
    const dg_cpu *cpu = job->cpu;
    for (int i = 0; i < job->n_product * job->n_active; i++) {
        const expert_product *p = &job->product[i % job->n_product];
        const int e = cpu->active[i / job->n_product], first = cpu->expert_start[e];
        cpu->observe(cpu->observe_arg, p->w, e, p->x + (size_t)first * p->ldx, p->ldx,
                     cpu->expert_start[e + 1] - first);
    }
}

/* What adapters add to an expert's rows, which are in the order of the batch: run by run of those
 * of one segment. */
static void adapt_task(void *arg, int task, int worker)
{
    const expert_job *job = arg;
    const dg_cpu *cpu = job->cpu;
    const int e = cpu->active[task], end = cpu->expert_start[e + 1], n_used = job->a->n_used;
    for (int first = cpu->expert_start[e], next; first < end; first = next) {
        const dg_segment *seg =
            dg_batch_segment(cpu->batch, job->a->rows.first + cpu->pair_of[first] / n_used);
        const int behind = seg->first_row + seg->n_row - job->a->rows.first;
        for (next = first + 1; next < end && cpu->pair_of[next] / n_used < behind;)
            next++;
        for (int i = 0; i < job->n_product; i++) {
            const expert_product *p = &job->product[i];
            const dg_cpu_matmul m = {.y = p->y + (size_t)first * p->ldy,
                                     .x = p->x + (size_t)first * p->ldx,
                                     .ldy = p->ldy,
                                     .ldx = p->ldx,
                                     .n_row = next - first,
                                     .w = p->w,
                                     .mat = e};
            if (dg_cpu_is_adapted(cpu, p->w))
                dg_cpu_adapt_rows(cpu, &m, seg, worker);
        }
    }
}

static void multiply_experts(expert_job *job)
{
    if (job->cpu->observe)
        tell_observer(job);
    const int n_block = dg_ceil_div(job->product[0].w->n_out, EXPERT_COLS);
    dg_pool_run_ahead(job->cpu->pool, job->n_active * job->n_product * n_block, expert_task, job);
    if (is_adapted(job))
        dg_pool_run(job->cpu->pool, job->n_active, adapt_task, job);
}

/* x -> (gate, up) with n weights that take the same rows, from `which` of the two on. */
static void first_products(expert_job *job, int which, int n)
{
    const dg_expert_weights *w = job->a->w;
    dg_cpu *cpu = job->cpu;
    for (int i = 0; i < n; i++)
        job->product[i] = (expert_product){
            .w = which + i ? &w->up : &w->gate,
            .y = cpu->expert_h + (which + i ? w->gate.n_out : 0),
            .x = cpu->expert_x,
            .ldy = 2 * (size_t)w->gate.n_out,
            .ldx = (size_t)w->gate.n_in,
        };
    job->n_product = n;
    dg_cpu_for_rows(cpu, expert_input, job, job->a->rows);
    multiply_experts(job);
}

/* gelu(gate) * up of an expert's rows, quantised if that is what the second product takes. */
static void expert_gelu(void *arg, int task, int worker)
{
    (void)worker;
    const expert_job *job = arg;
    const dg_cpu *cpu = job->cpu;
    const dg_weight *w = &job->a->w->down;
    int n = w->n_in, e = cpu->active[task], first = cpu->expert_start[e];
    for (int slot = first; slot < cpu->expert_start[e + 1]; slot++) {
        float *h = cpu->expert_h + (size_t)slot * 2 * (size_t)n;
        cpu->k.gelu_mul(h, h, h + n, n);
        if (dg_cpu_integer(cpu, w))
            dg_cpu_quantise_row(cpu, expert_rows(cpu, e, w), slot - first, h, w);
    }
}

/* gelu(gate) * up -> out, over the inputs that are no longer needed. */
static void second_product(expert_job *job)
{
    const dg_weight *w = &job->a->w->down;
    dg_cpu *cpu = job->cpu;
    job->product[0] = (expert_product){
        .w = w,
        .y = cpu->expert_x,
        .x = cpu->expert_h,
        .ldy = (size_t)w->n_out,
        .ldx = 2 * (size_t)w->n_in,
    };
    job->n_product = 1;
    dg_pool_run(cpu->pool, job->n_active, expert_gelu, job);
    multiply_experts(job);
}

/* Adds up a row's experts in the order of their rank and norms the sum. slot_of is where each pair
 * was sorted to. */
static void combine(void *arg, int task, int worker)
{
    (void)worker;
    const expert_job *job = arg;
    const dg_experts_args *a = job->a;
    const dg_cpu *cpu = job->cpu;
    const int *slot_of = cpu->pair_of + job->n_pair;
    int n = cpu->plan.n_embd, row = a->rows.first + task;
    float *out = a->out + (size_t)row * (size_t)n;
    memset(out, 0, (size_t)n * sizeof *out);
    for (int j = 0; j < a->n_used; j++) {
        const float *y = cpu->expert_x + (size_t)slot_of[task * a->n_used + j] * (size_t)n;
        cpu->k.axpy[DG_F32](out, a->weight[(size_t)row * (size_t)a->n_used + (size_t)j], y, n);
    }
    cpu->k.rmsnorm(out, out, a->w->post_norm, n, cpu->plan.rms_eps);
}

void dg_cpu_experts(dg_backend *be, const dg_experts_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    int n_row = a->rows.end - a->rows.first;
    const dg_weight *gate = &a->w->gate, *up = &a->w->up;
    expert_job job = {
        .cpu = cpu,
        .a = a,
        .n_pair = n_row * a->n_used,
        .first_pair = a->rows.first * a->n_used,
    };
    sort_pairs(&job);
    for (int i = 0; i < job.n_pair; i++)
        cpu->pair_of[job.n_pair + cpu->pair_of[i]] = i;

    if (dg_cpu_integer(cpu, gate) == dg_cpu_integer(cpu, up) &&
        dg_cpu_way(cpu, gate) == dg_cpu_way(cpu, up))
        first_products(&job, 0, 2);
    else
        for (int i = 0; i < 2; i++)
            first_products(&job, i, 1);
    second_product(&job);
    dg_pool_run(cpu->pool, n_row, combine, &job);
}
