/* What adapters add to products: y += factor * B (A x), row by row of the segments that have them.
 * Both sums run in ascending k, whatever rows are taken together. */
#include "cpu/cpu_internal.h"

/* Rows that a task takes: each packs A and B anew, which costs as much as some rows. A x of them
 * lies where weights of block types are widened otherwise. */
enum { ADAPT_ROWS = 32 };
_Static_assert((int)ADAPT_ROWS *(int)DG_MAX_RANK <= SLICE_K * TASK_COLS, "A x has room");
_Static_assert((int)DG_MAX_RANK <= (int)SLICE_K, "a panel has room for B");

/* h = A x of n rows, each `room` long. */
static void lower(const dg_cpu *cpu, float *h, size_t room, const dg_cpu_matmul *m,
                  const dg_low_rank *low, int first, int n, float *panel)
{
    const int n_in = m->w->n_in;
    const float *a = low->a + (size_t)m->mat * (size_t)low->rank * (size_t)n_in;
    for (int c = 0; c < low->rank; c += DG_PANEL)
        for (int k = 0; k < n_in; k += SLICE_K) {
            int n_k = dg_min(SLICE_K, n_in - k), n_col = dg_min(DG_PANEL, low->rank - c);
            cpu->k.pack_cols[DG_F32](panel, a + (size_t)c * (size_t)n_in + k,
                                     (size_t)n_in * sizeof *a, n_k, n_col);
            cpu->k.gemm_panel(&(dg_gemm_args){
                .y = h + c,
                .x = m->x + (size_t)first * m->ldx + k,
                .panel = panel,
                .ldy = room,
                .ldx = m->ldx,
                .n_row = n,
                .n_k = n_k,
                .n_col = n_col,
                .add = k > 0,
            });
        }
}

/* y += B h. */
static void raise_rows(const dg_cpu *cpu, const float *h, size_t room, const dg_cpu_matmul *m,
                       const dg_low_rank *low, int first, int n, float *panel)
{
    const int n_out = m->w->n_out;
    const float *b = low->b + (size_t)m->mat * (size_t)n_out * (size_t)low->rank;
    for (int c = 0; c < n_out; c += DG_PANEL) {
        int n_col = dg_min(DG_PANEL, n_out - c);
        cpu->k.pack_cols[DG_F32](panel, b + (size_t)c * (size_t)low->rank,
                                 (size_t)low->rank * sizeof *b, low->rank, n_col);
        cpu->k.gemm_panel(&(dg_gemm_args){
            .y = m->y + (size_t)first * m->ldy + c,
            .x = h,
            .panel = panel,
            .ldy = m->ldy,
            .ldx = room,
            .n_row = n,
            .n_k = low->rank,
            .n_col = n_col,
            .add = true,
        });
    }
}

static void add_low_rank(const dg_cpu *cpu, const dg_cpu_matmul *m, const dg_low_rank *low,
                         float scale, int worker)
{
    const dg_cpu_worker *w = &cpu->worker[worker];
    const size_t room = (size_t)low->rank;
    const float factor = low->factor * scale;
    float *h = w->widened;
    for (int first = 0; first < m->n_row; first += ADAPT_ROWS) {
        int n = dg_min(ADAPT_ROWS, m->n_row - first);
        lower(cpu, h, room, m, low, first, n, w->panel);
        for (size_t i = 0; i < (size_t)n * room; i++)
            h[i] *= factor;
        raise_rows(cpu, h, room, m, low, first, n, w->panel);
    }
}

void dg_cpu_adapt_rows(const dg_cpu *cpu, const dg_cpu_matmul *m, const dg_segment *seg, int worker)
{
    for (int i = 0; i < seg->n_adapter; i++) {
        const dg_adapter_use *use = &seg->adapter[i];
        const dg_low_rank *low = dg_weight_adapter(m->w, use->adapter, seg->canvas);
        if (low->rank)
            add_low_rank(cpu, m, low, use->scale, worker);
    }
}

typedef struct adapt_job {
    const dg_cpu *cpu;
    const dg_cpu_matmul *m;
} adapt_job;

/* Some rows, segment by segment. */
static void adapt_task(void *arg, int task, int worker)
{
    const adapt_job *job = arg;
    const dg_cpu_matmul *m = job->m;
    const int end = dg_min((task + 1) * ADAPT_ROWS, m->n_row);
    for (int row = task * ADAPT_ROWS, next; row < end; row = next) {
        const dg_segment *seg = dg_batch_segment(job->cpu->batch, m->batch_row + row);
        next = dg_min(end, seg->first_row + seg->n_row - m->batch_row);
        dg_cpu_matmul part = *m;
        part.y += (size_t)row * m->ldy;
        part.x += (size_t)row * m->ldx;
        part.n_row = next - row;
        dg_cpu_adapt_rows(job->cpu, &part, seg, worker);
    }
}

void dg_cpu_adapt(dg_cpu *cpu, const dg_cpu_matmul *m)
{
    if (m->n_row > 0)
        dg_pool_run(cpu->pool, dg_ceil_div(m->n_row, ADAPT_ROWS), adapt_task, &(adapt_job){cpu, m});
}
