/* Stages and parts of stages that treat each row by itself. */
#include <string.h>
#include "base/real.h"
#include "cpu/cpu_internal.h"

/* Rows that one task takes: enough work to be worth the hand-over. */
enum { TASK_ROWS = 4 };

typedef struct row_job {
    dg_cpu *cpu;
    dg_cpu_row_fn *fn;
    const void *args;
    dg_rows rows;
} row_job;

static void row_task(void *arg, int task, int worker)
{
    const row_job *job = arg;
    int first = job->rows.first + task * TASK_ROWS;
    for (int r = first; r < dg_min(first + TASK_ROWS, job->rows.end); r++)
        job->fn(job->cpu, job->args, r, worker);
}

void dg_cpu_for_rows(dg_cpu *cpu, dg_cpu_row_fn *fn, const void *args, dg_rows rows)
{
    if (rows.first < rows.end)
        dg_pool_run(cpu->pool, dg_ceil_div(rows.end - rows.first, TASK_ROWS), row_task,
                    &(row_job){cpu, fn, args, rows});
}

/* ---- norms and activations ---- */

void dg_cpu_norm_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const dg_cpu_norm_args *a = args;
    int n = cpu->plan.n_embd;
    size_t at = (size_t)row * (size_t)n;
    cpu->k.rmsnorm(a->y + at, a->x + at, a->w, n, cpu->plan.rms_eps);
}

void dg_cpu_norm_rows(dg_cpu *cpu, float *y, const float *x, const float *w, dg_rows rows)
{
    dg_cpu_for_rows(cpu, dg_cpu_norm_row, &(dg_cpu_norm_args){y, x, w}, rows);
}

void dg_cpu_norm(dg_backend *be, const dg_norm_args *a)
{
    dg_cpu_norm_rows(dg_cpu_of(be), a->y, a->x, a->w, a->rows);
}

void dg_cpu_gelu_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const dg_cpu_gelu_args *a = args;
    float *gate = a->gate_up + (size_t)row * 2 * (size_t)a->n;
    cpu->k.gelu_mul(gate, gate, gate + a->n, a->n);
}

void dg_cpu_gelu_rows(dg_cpu *cpu, float *gate_up, int n, int n_row)
{
    dg_cpu_for_rows(cpu, dg_cpu_gelu_row, &(dg_cpu_gelu_args){gate_up, n}, (dg_rows){0, n_row});
}

/* ---- into the residual stream ---- */

static void embed_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const dg_embed_args *a = args;
    const dg_weight *e = a->table;
    float *x = a->x + (size_t)row * (size_t)e->n_in;
    int feature = cpu->batch->feature ? cpu->batch->feature[row] : -1;
    if (feature >= 0) {
        const float *from = dg_batch_segment(cpu->batch, row)->features;
        memcpy(x, from + (size_t)feature * (size_t)e->n_in, (size_t)e->n_in * sizeof *x);
        return;
    }
    dg_cpu_widen(cpu, x, e, 0, cpu->batch->token[row], 0, e->n_in);
    for (int i = 0; i < e->n_in; i++)
        x[i] *= a->scale;
}

void dg_cpu_embed(dg_backend *be, const dg_embed_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    dg_cpu_for_rows(cpu, embed_row, a, (dg_rows){0, cpu->batch->n_row});
}

/* The norm of zero is zero. */
static void soft_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const dg_condition_args *a = args;
    const dg_segment *seg = dg_batch_segment(cpu->batch, row);
    int n = cpu->plan.n_embd;
    float *normed = cpu->normed + (size_t)(row - a->rows.first) * (size_t)n;
    if (seg->first_step || !seg->soft)
        memset(normed, 0, (size_t)n * sizeof *normed);
    else
        cpu->k.rmsnorm(normed, seg->soft + (size_t)(row - seg->first_row) * (size_t)n, a->w->norm,
                       n, cpu->plan.rms_eps);
}

static void condition_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const dg_condition_args *a = args;
    int n = cpu->plan.n_embd;
    float *x = a->x + (size_t)row * (size_t)n;
    const float *signal = cpu->normed + (size_t)(row - a->rows.first) * (size_t)n;
    for (int i = 0; i < n; i++)
        x[i] += signal[i];
    cpu->k.rmsnorm(x, x, NULL, n, cpu->plan.rms_eps);
}

void dg_cpu_condition(dg_backend *be, const dg_condition_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    const dg_mlp_weights *w = a->w;
    int n = a->rows.end - a->rows.first, n_ff = w->gate.n_out;
    size_t n_embd = (size_t)cpu->plan.n_embd, ld = 2 * (size_t)n_ff;
    float *wide = cpu->wide, *normed = cpu->normed;
    const dg_cpu_made soft = {soft_row, a, a->rows.first},
                      gelu = {dg_cpu_gelu_row, &(dg_cpu_gelu_args){wide, n_ff}, 0};
    const dg_cpu_matmul gate_up[] = {
        {wide, normed, ld, n_embd, n, &w->gate, .batch_row = a->rows.first},
        {wide + n_ff, normed, ld, n_embd, n, &w->up, .batch_row = a->rows.first},
    };
    const dg_cpu_matmul down = {normed, wide, n_embd, ld, n, &w->down, .batch_row = a->rows.first};
    dg_cpu_matmul_group(cpu, gate_up, 2, &soft);
    dg_cpu_matmul_group(cpu, &down, 1, &gelu);
    dg_cpu_for_rows(cpu, condition_row, a, a->rows);
}

static void rope_table_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const dg_rope_table_args *a = args;
    const dg_rope *rope = a->rope;
    float position = (float)cpu->batch->position[row];
    float *c = rope->cos + (size_t)row * (size_t)rope->n_pair;
    float *s = rope->sin + (size_t)row * (size_t)rope->n_pair;
    for (int i = 0; i < rope->n_pair; i++)
        dg_sin_cos(position * a->frequency[i], &s[i], &c[i]);
}

void dg_cpu_rope_table(dg_backend *be, const dg_rope_table_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    dg_cpu_for_rows(cpu, rope_table_row, a, (dg_rows){0, cpu->batch->n_row});
}

/* ---- back into the residual stream ---- */

static void attention_out_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    (void)worker;
    const dg_attention_out_args *a = args;
    int n = cpu->plan.n_embd;
    float *x = a->x + (size_t)row * (size_t)n, *o = cpu->normed + (size_t)row * (size_t)n;
    cpu->k.rmsnorm(o, o, a->w->post_norm, n, cpu->plan.rms_eps);
    for (int i = 0; i < n; i++)
        x[i] += o[i];
}

void dg_cpu_attention_out(dg_backend *be, const dg_attention_out_args *a)
{
    dg_cpu *cpu = dg_cpu_of(be);
    const dg_weight *w = &a->w->o;
    size_t n_out = (size_t)w->n_out, n_in = (size_t)w->n_in, first = (size_t)a->rows.first;
    const dg_cpu_matmul product = {
        .y = cpu->normed + first * n_out,
        .x = a->o + first * n_in,
        .ldy = n_out,
        .ldx = n_in,
        .n_row = a->rows.end - a->rows.first,
        .w = w,
        .batch_row = a->rows.first,
    };
    dg_cpu_matmul_group(cpu, &product, 1, NULL);
    dg_cpu_for_rows(cpu, attention_out_row, a, a->rows);
}

static void join_row(dg_cpu *cpu, const void *args, int row, int worker)
{
    const dg_join_args *a = args;
    int n = cpu->plan.n_embd;
    size_t at = (size_t)row * (size_t)n;
    float *x = a->x + at, *sum = cpu->worker[worker].row;
    for (int i = 0; i < n; i++)
        sum[i] = a->dense[at + (size_t)i] + a->experts[at + (size_t)i];
    cpu->k.rmsnorm(sum, sum, a->norm, n, cpu->plan.rms_eps);
    float scalar = row < cpu->batch->n_encode ? a->scalar_encode : a->scalar_canvas;
    for (int i = 0; i < n; i++)
        x[i] = (x[i] + sum[i]) * scalar;
}

void dg_cpu_join(dg_backend *be, const dg_join_args *a)
{
    dg_cpu_for_rows(dg_cpu_of(be), join_row, a, a->rows);
}
