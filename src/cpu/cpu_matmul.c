/* Matrix products over panels, of floats or of whole numbers. The order in which a value is added
 * up is ascending k, whatever the shape of the work: slices of k continue the same chain, and a
 * panel's columns do not know of each other. */
#include <string.h>
#include "cpu/cpu_internal.h"

static const unsigned char *stored_at(const dg_weight *w, int mat, int row, int first)
{
    return (const unsigned char *)w->data + (size_t)mat * w->mat_bytes +
           (size_t)row * w->row_bytes + dg_dtype_bytes(w->type, (size_t)first);
}

void dg_cpu_widen(const dg_cpu *cpu, float *out, const dg_weight *w, int mat, int row, int first,
                  int n)
{
    cpu->k.widen[w->type](out, stored_at(w, mat, row, first), n);
    for (int i = 0; i < n && w->scale; i++)
        out[i] *= w->scale[mat];
}

/* Rows [c, c + n_col) of the matrix, their values [k, k + n_k), as columns of a panel. */
static void pack(const dg_cpu *cpu, const dg_cpu_worker *worker, const dg_cpu_matmul *m, int c,
                 int n_col, int k, int n_k)
{
    const dg_weight *w = m->w;
    if (!dg_dtype_is_block(w->type)) {
        const void *src = stored_at(w, m->mat, c, k);
        cpu->k.pack_cols[w->type](worker->panel, src, w->row_bytes, n_k, n_col);
        return;
    }
    for (int i = 0; i < n_col; i++)
        dg_cpu_widen(cpu, worker->widened + i * SLICE_K, w, m->mat, c + i, k, n_k);
    cpu->k.pack_cols[DG_F32](worker->panel, worker->widened, SLICE_K * sizeof(float), n_k, n_col);
}

/* What a thread packs after columns [first, end) from k on: their next values, behind the last ones
 * the columns that come next. */
static dg_qsoon soon_packed(const dg_cpu_matmul *m, int first, int end, int k)
{
    const dg_weight *w = m->w;
    bool last = k + DG_QSLICE >= w->n_in;
    int c = last ? first + TASK_COLS : first, at = last ? 0 : k + DG_QSLICE;
    int n_k = dg_min(DG_QSLICE, w->n_in - at);
    return (dg_qsoon){
        .at = !last || end + TASK_COLS <= m->soon ? stored_at(w, m->mat, c, at) : NULL,
        .stride = w->row_bytes,
        .bytes = (int)dg_dtype_bytes(w->type, (size_t)n_k),
        .n_col = end - first,
    };
}

/* The same columns in whole numbers. */
static void add_integer(const dg_cpu *cpu, const dg_cpu_matmul *m, int first_col, int end_col,
                        int worker)
{
    const dg_qkernels *q = cpu->k.q;
    const dg_weight *w = m->w;
    dg_qpanel *panel = cpu->worker[worker].qpanel;
    const dg_qway way = dg_cpu_way(cpu, w);
    for (int k = 0; k < w->n_in; k += DG_QSLICE)
        for (int first = first_col; first < end_col; first += DG_QCOLS) {
            int n_block = dg_min(DG_QSLICE, w->n_in - k) / DG_QBLOCK,
                end = dg_min(first + DG_QCOLS, end_col);
            dg_qsoon soon = soon_packed(m, first, end, k);
            q->pack[w->type](panel, &(dg_qpack_args){
                                        .src = stored_at(w, m->mat, first, k),
                                        .stride = w->row_bytes,
                                        .n_block = n_block,
                                        .n_col = end - first,
                                        .scale = w->scale ? w->scale[m->mat] : 1,
                                        .next = soon.at,
                                    });
            q->gemm(&(dg_qgemm_args){
                .y = m->y + (first - m->y_col),
                .ldy = m->ldy,
                .x = m->q + dg_qvalue_at(k, way),
                .ldx = dg_qrow_room(w->n_in, way),
                .panel = panel,
                .first_row = m->q_row,
                .n_row = m->n_row,
                .n_block = n_block,
                .n_col = end - first,
                .add = k > 0,
                .soon = soon,
            });
        }
}

/* The same as bytes. */
static void byte_cols(const dg_cpu *cpu, const dg_cpu_matmul *m, int first_col, int end_col,
                      int worker)
{
    const dg_weight *w = m->w, *next = m->next ? m->next->w : NULL;
    const int n_soon = next ? dg_min(DG_BYTE_COLS, next->n_out - m->next_col) : 0;
    for (int r = 0; r < m->n_row; r += DG_BYTE_ROWS)
        cpu->k.bytes->product(&(dg_byte_args){
            .y = m->y + (size_t)r * m->ldy + (first_col - m->y_col),
            .ldy = m->ldy,
            .x = m->q,
            .first_row = m->q_row + r,
            .n_row = dg_min(DG_BYTE_ROWS, m->n_row - r),
            .w = stored_at(w, m->mat, first_col, 0),
            .stride = w->row_bytes,
            .type = (int)w->type,
            .n_in = w->n_in,
            .n_col = end_col - first_col,
            .scale = w->scale ? w->scale[m->mat] : 1,
            .panel = cpu->worker[worker].bpanel,
            .sums = cpu->worker[worker].sums,
            .soon = next ? stored_at(next, m->next->mat, m->next_col, 0) : NULL,
            .soon_bytes = next ? (size_t)n_soon * next->row_bytes : 0,
            .asked = m->asked,
        });
}

/* Values along k that are multiplied at a time as bfloat16 numbers, of which `widened` has room for
 * twice as many: the more, the less often sums come and go. */
enum { BFLOAT_SLICE = 2 * SLICE_K };

/* Some panels of bfloat16 numbers times all rows: columns [first, end), at most TASK_COLS, values
 * [k, k + n_k). */
static void add_bfloat(const dg_cpu *cpu, const dg_cpu_matmul *m, int first, int end, int k,
                       int n_k, uint16_t *panel)
{
    const dg_weight *w = m->w;
    const int block = cpu->k.b->block;
    const size_t ldx = (size_t)dg_cpu_padded(w->n_in);
    for (int c = first; c < end; c += DG_PANEL)
        cpu->k.b->pack_cols(panel + (c - first) * BFLOAT_SLICE, stored_at(w, m->mat, c, k),
                            w->row_bytes, n_k, dg_min(DG_PANEL, end - c));
    for (int r = 0; r < m->n_row; r += block)
        cpu->k.b->gemm(&(dg_bgemm_args){
            .y = m->y + (size_t)r * m->ldy + (first - m->y_col),
            .x = m->b + (size_t)r * ldx + k * cpu->k.b->rows,
            .part = &(const uint16_t *){panel},
            .ldy = m->ldy,
            .ldx = ldx,
            .next = BFLOAT_SLICE * DG_PANEL,
            .n_row = dg_min(block, m->n_row - r),
            .n_k = n_k,
            .part_k = BFLOAT_SLICE,
            .n_col = end - first,
            .add = k > 0,
        });
}

void dg_cpu_round_row(const dg_cpu *cpu, uint16_t *x, int row, const float *from, int n)
{
    enum { SOME = 8 * DG_BFLOAT_STEP };
    const dg_bkernels *b = cpu->k.b;
    const int padded = dg_cpu_padded(n), which = row % b->rows;
    uint16_t some[SOME], *to = x + (size_t)(row - which) * (size_t)padded;
    for (int k = 0; k < padded; k += SOME) {
        int here = dg_min(SOME, padded - k), real = dg_min(here, n - k);
        cpu->k.narrow[DG_BF16](some, from + k, real);
        memset(some + real, 0, (size_t)(here - real) * sizeof *some);
        b->place(to + k * b->rows, which, some, here);
    }
}

/* The same columns of bfloat16 numbers, in slices of about the same length. */
static void add_bfloats(const dg_cpu *cpu, const dg_cpu_matmul *m, int first_col, int end_col,
                        int worker)
{
    const int n_in = m->w->n_in, n_slice = dg_ceil_div(n_in, BFLOAT_SLICE),
              slice = dg_ceil_div(dg_ceil_div(n_in, n_slice), DG_BFLOAT_STEP) * DG_BFLOAT_STEP;
    for (int k = 0; k < n_in; k += slice)
        for (int c = first_col; c < end_col; c += TASK_COLS)
            add_bfloat(cpu, m, c, dg_min(c + TASK_COLS, end_col), k, dg_min(slice, n_in - k),
                       (uint16_t *)cpu->worker[worker].widened);
}

static void add_narrow(const dg_cpu *cpu, const dg_cpu_matmul *m, int first_col, int end_col,
                       int worker)
{
    if (m->q)
        add_integer(cpu, m, first_col, end_col, worker);
    else
        add_bfloats(cpu, m, first_col, end_col, worker);
}

/* Sums are held in a place of their own where they fit: rows of y may be a power of two apart, and
 * then they drive each other out of the caches with every slice of k. Columns [first_col, end_col)
 * are at most TASK_COLS. */
static void hold_narrow(const dg_cpu *cpu, const dg_cpu_matmul *m, int first_col, int end_col,
                        int worker)
{
    dg_cpu_matmul part = *m;
    float *y = m->y + (first_col - m->y_col);
    int n_col = end_col - first_col;
    part.y = cpu->worker[worker].sums;
    part.ldy = TASK_COLS;
    part.y_col = first_col;
    add_narrow(cpu, &part, first_col, end_col, worker);
    for (int r = 0; r < m->n_row; r++)
        memcpy(y + (size_t)r * m->ldy, part.y + r * TASK_COLS, (size_t)n_col * sizeof *y);
}

static void narrow_cols(const dg_cpu *cpu, const dg_cpu_matmul *m, int first_col, int end_col,
                        int worker)
{
    enum { FEW_ROWS = 8 };
    dg_cpu_matmul all = *m;
    all.soon = end_col;
    if (m->q && dg_cpu_way(cpu, m->w) >= DG_QWAY_BYTES) {
        byte_cols(cpu, m, first_col, end_col, worker);
        return;
    }
    for (int c = first_col; c < end_col; c += TASK_COLS) {
        int end = dg_min(c + TASK_COLS, end_col);
        if (m->n_row <= FEW_ROWS || m->n_row > MATMUL_ROWS)
            add_narrow(cpu, &all, c, end, worker);
        else
            hold_narrow(cpu, &all, c, end, worker);
    }
}

void dg_cpu_matmul_cols(const dg_cpu *cpu, const dg_cpu_matmul *m, int first_col, int end_col,
                        int worker)
{
    const dg_weight *w = m->w;
    if (m->q || m->b) {
        narrow_cols(cpu, m, first_col, end_col, worker);
        return;
    }
    for (int k = 0; k < w->n_in; k += SLICE_K)
        for (int c = first_col; c < end_col; c += DG_PANEL) {
            int n_k = dg_min(SLICE_K, w->n_in - k), n_col = dg_min(DG_PANEL, end_col - c);
            pack(cpu, &cpu->worker[worker], m, c, n_col, k, n_k);
            cpu->k.gemm_panel(&(dg_gemm_args){
                .y = m->y + (c - m->y_col),
                .x = m->x + k,
                .panel = cpu->worker[worker].panel,
                .ldy = m->ldy,
                .ldx = m->ldx,
                .n_row = m->n_row,
                .n_k = n_k,
                .n_col = n_col,
                .add = k > 0,
            });
        }
}

/* ---- on the pool ---- */

typedef struct matmul_job {
    const dg_cpu *cpu;
    dg_cpu_matmul m[MATMUL_GROUP];
    int n_task[MATMUL_GROUP];
    int rows, cols; /* that a task takes */
} matmul_job;

/* Some columns of some rows of one product; the columns of the same rows follow each other. */
static void matmul_task(void *arg, int task, int worker)
{
    const matmul_job *job = arg;
    int i = 0;
    for (; task >= job->n_task[i]; i++)
        task -= job->n_task[i];
    dg_cpu_matmul part = job->m[i];
    int n_block = dg_ceil_div(part.w->n_out, job->cols);
    int col = task % n_block * job->cols, row = task / n_block * job->rows;
    part.y += (size_t)row * part.ldy;
    part.x += (size_t)row * part.ldx;
    part.q_row += row;
    if (part.b)
        part.b += (size_t)row * (size_t)dg_cpu_padded(part.w->n_in);
    part.n_row = dg_min(job->rows, part.n_row - row);
    dg_cpu_matmul_cols(job->cpu, &part, col, dg_min(col + job->cols, part.w->n_out), worker);
}

/* Tasks of the products when each takes so many rows and columns. */
static int count_tasks(matmul_job *job, int n, int rows, int cols)
{
    int n_task = 0;
    job->rows = rows;
    job->cols = cols;
    for (int i = 0; i < n; i++) {
        const dg_cpu_matmul *m = &job->m[i];
        job->n_task[i] =
            m->n_row < 1 ? 0 : dg_ceil_div(m->n_row, rows) * dg_ceil_div(m->w->n_out, cols);
        n_task += job->n_task[i];
    }
    return n_task;
}

/* The fewest columns that a task may take: those that are packed together. */
static int least_cols(const matmul_job *job)
{
    return job->m[0].b ? TASK_COLS : job->m[0].q ? DG_BYTE_COLS : DG_PANEL;
}

/* How many rows and columns a task takes: fewer where that lets all threads end together, but each
 * task packs its columns anew, which costs about as much as PACK_ROWS rows. Returns how many tasks
 * there are. */
static int cut_job(const dg_cpu *cpu, matmul_job *job, int n)
{
    enum { LEAST_ROWS = 16, PACK_ROWS = 32 };
    int n_thread = dg_pool_threads(cpu->pool), most = 0, best = MATMUL_ROWS, best_cols = TASK_COLS;
    for (int i = 0; i < n; i++)
        most = dg_max(most, dg_min(MATMUL_ROWS, job->m[i].n_row));
    int64_t least = INT64_MAX;
    for (int parts = 1; parts <= 16; parts *= 2) {
        int rows = dg_ceil_div(most, parts);
        if (parts > 1 && rows < LEAST_ROWS)
            break;
        rows = parts > 1 ? dg_ceil_div(rows, DG_BFLOAT_ROWS) * DG_BFLOAT_ROWS : MATMUL_ROWS;
        for (int cols = TASK_COLS; cols >= least_cols(job); cols /= 2) {
            int rounds = dg_ceil_div(count_tasks(job, n, rows, cols), n_thread);
            int64_t cost = (int64_t)rounds * (dg_min(rows, most) + PACK_ROWS) * cols;
            if (cost < least) {
                least = cost;
                best = rows;
                best_cols = cols;
            }
        }
    }
    return count_tasks(job, n, best, best_cols);
}

static void run_job(dg_cpu *cpu, matmul_job *job, int n)
{
    int n_task = cut_job(cpu, job, n);
    if (n_task)
        dg_pool_run(cpu->pool, n_task, matmul_task, job);
}

void dg_cpu_matmul_run(dg_cpu *cpu, const dg_cpu_matmul *m)
{
    run_job(cpu, &(matmul_job){.cpu = cpu, .m = {*m}}, 1);
}

void dg_cpu_matmul_group(dg_cpu *cpu, const dg_cpu_matmul *m, int n, const dg_cpu_made *made)
{
    matmul_job job = {.cpu = cpu};
    dg_qpair *const to[] = {cpu->q_rows, cpu->q_expert};
    dg_cpu_quantised way[2] = {
        {NULL, NULL}}; /* the weights of a group are as long, so there are two at most */
    int n_way = 0;
    for (int i = 0; i < n; i++) {
        job.m[i] = m[i];
        if (!dg_cpu_integer(cpu, m[i].w))
            continue;
        int k = 0;
        while (k < n_way && dg_cpu_way(cpu, way[k].w) != dg_cpu_way(cpu, m[i].w))
            k++;
        if (k == n_way)
            way[n_way++] = (dg_cpu_quantised){m[i].w, to[k]};
        job.m[i].q = way[k].to;
    }
    dg_cpu_quantise(cpu, way, n_way, m->x, m->ldx, m->n_row, made);
    for (int i = 0; i < n && cpu->observe; i++)
        cpu->observe(cpu->observe_arg, m[i].w, m[i].mat, m[i].x, m[i].ldx, m[i].n_row);
    run_job(cpu, &job, n);
    for (int i = 0; i < n; i++)
        if (dg_cpu_is_adapted(cpu, m[i].w))
            dg_cpu_adapt(cpu, &m[i]);
}
