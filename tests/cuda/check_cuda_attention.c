/* cuda_attention.cu against sums in double: heads into pages, attention over them, and the same
 * bits whatever else is in the batch. What nobody wrote in a page is no number. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "cuda/cuda_check.h"
#include "tensor/kv_numbers.h"

enum { PAGE = DG_CUDA_PAGE, MAX_SEGMENT = 40, MAX_PAGE = 64 };

typedef struct run {
    bool canvas;
    int n_row, position;
} run;

typedef struct scene {
    dg_dtype type;
    int n_head, n_kv_head, dim, window, n_pair;
    int n_run;
    run run[MAX_SEGMENT];
    dg_cuda_form form;
    int small_device; /* shared memory of an sm_86 */
} scene;

typedef struct stage {
    const scene *s;
    int n_row, n_slab_page, n_canvas_page;
    dg_cuda_kv kv;
    dg_cuda_segment segment[MAX_SEGMENT]; /* pages in host memory */
    dg_cuda_segment *d_segment;           /* and in the device's */
    int32_t *segment_of, *seen;           /* [n_row], [n_row][2] */
    int32_t *d_segment_of, *d_seen;
    unsigned char *slab, *canvas_slab; /* copies of the device's */
    size_t slab_bytes, canvas_bytes;
    float *q, *k, *v, *q_norm, *k_norm, *cos, *sin; /* raw, host */
    float *d_q;
    void *scratch;
    int32_t *counter;
} stage;

static dg_dtype type_of(const scene *s, bool canvas)
{
    return canvas ? dg_kv_canvas_type(s->type) : s->type;
}

static size_t head_bytes(const scene *s, bool canvas)
{
    return PAGE * dg_kv_row_bytes(type_of(s, canvas), s->dim);
}

static size_t layer_bytes(const scene *s, bool canvas)
{
    return 2 * (size_t)s->n_kv_head * head_bytes(s, canvas);
}

/* ---- the batch ---- */

static int page_count(const run *r)
{
    return r->canvas ? (r->position + PAGE - 1) / PAGE : (r->position + r->n_row + PAGE - 1) / PAGE;
}

static void see(stage *g, int row, int first, int end)
{
    g->seen[2 * row] = first;
    g->seen[2 * row + 1] = end;
}

static int window_first(const scene *s, int p)
{
    return s->window && p >= s->window ? p - s->window + 1 : 0;
}

/* Segments, their page tables in slabs whose pages are dealt out in disorder, and what each row
 * sees. In every third encoded segment there is a picture: rows 2 ... 9 see each other. */
static void lay_out(stage *g)
{
    const scene *s = g->s;
    int order[MAX_SEGMENT * MAX_PAGE], n_page = 0, row = 0;
    for (int i = 0; i < s->n_run; i++) {
        n_page += page_count(&s->run[i]);
        g->n_row += s->run[i].n_row;
        g->n_canvas_page += s->run[i].canvas ? (s->run[i].n_row + PAGE - 1) / PAGE : 0;
    }
    g->n_slab_page = n_page + 3;
    for (int i = 0; i < g->n_slab_page; i++) {
        int j = random_int(0, i);
        order[i] = order[j];
        order[j] = i;
    }
    g->segment_of = host_bytes((size_t)g->n_row * sizeof(int32_t));
    g->seen = host_bytes((size_t)g->n_row * 2 * sizeof(int32_t));
    n_page = g->n_canvas_page = 0;
    dg_cuda_segment device[MAX_SEGMENT];
    for (int i = 0; i < s->n_run; i++) {
        const run *r = &s->run[i];
        int n = page_count(r), first_seen = window_first(s, r->position);
        int32_t *page = host_bytes((size_t)(n + 1) * sizeof *page);
        for (int p = 0; p < n; p++)
            page[p] = (p + 1) * PAGE <= first_seen ? -1 : order[n_page + p];
        g->segment[i] =
            (dg_cuda_segment){r->canvas, row, r->n_row, r->position, page, g->n_canvas_page};
        device[i] = g->segment[i];
        device[i].page = device_copy(page, (size_t)(n + 1) * sizeof *page);
        n_page += n;
        g->n_canvas_page += r->canvas ? (r->n_row + PAGE - 1) / PAGE : 0;
        for (int j = 0; j < r->n_row; j++, row++) {
            int p = r->position + j;
            g->segment_of[row] = i;
            if (r->canvas)
                see(g, row, first_seen, r->position);
            else if (i % 3 == 0 && j >= 2 && j < 10 && r->n_row >= 10)
                see(g, row, window_first(s, p), r->position + 10);
            else
                see(g, row, window_first(s, p), p + 1);
        }
    }
    g->d_segment = device_copy(device, (size_t)s->n_run * sizeof *device);
    g->d_segment_of = device_copy(g->segment_of, (size_t)g->n_row * sizeof(int32_t));
    g->d_seen = device_copy(g->seen, (size_t)g->n_row * 2 * sizeof(int32_t));
}

static void make_pages(stage *g)
{
    const scene *s = g->s;
    g->kv = (dg_cuda_kv){
        .type = s->type,
        .n_head = s->n_head,
        .n_kv_head = s->n_kv_head,
        .head_dim = s->dim,
        .window = s->window,
        .page_bytes = layer_bytes(s, false) + 256,
        .offset = 128,
    };
    g->slab_bytes = (size_t)g->n_slab_page * g->kv.page_bytes;
    g->canvas_bytes = (size_t)(g->n_canvas_page ? g->n_canvas_page : 1) * layer_bytes(s, true);
    g->slab = host_bytes(g->slab_bytes);
    g->canvas_slab = host_bytes(g->canvas_bytes);
    memset(g->slab, 0xFF, g->slab_bytes);
    memset(g->canvas_slab, 0xFF, g->canvas_bytes);
    g->kv.slab = device_bytes(g->slab_bytes);
    g->kv.canvas_slab = device_bytes(g->canvas_bytes);
}

/* A slot's key (value: head + n_kv_head) in the host's copy: read, or written where `write`. */
static void slot_values(const stage *g, const dg_cuda_segment *seg, bool canvas, int slot, int head,
                        float *values, bool write)
{
    const scene *s = g->s;
    const dg_dtype type = type_of(s, canvas);
    size_t page = (size_t)slot / PAGE;
    unsigned char *base =
        canvas ? g->canvas_slab + ((size_t)seg->canvas_page + page) * layer_bytes(s, true)
               : g->slab + (size_t)seg->page[page] * g->kv.page_bytes + g->kv.offset;
    base += (size_t)head * head_bytes(s, canvas);
    if (dg_kv_in_bytes(type)) {
        uint8_t *number = base + dg_cuda_slot_at(type, s->dim, slot % PAGE, 0);
        uint16_t *factor =
            (uint16_t *)(base + PAGE * (size_t)s->dim) + slot % PAGE * dg_kv_factors(type, s->dim);
        if (write)
            dg_kv_narrow(type, number, factor, values, s->dim);
        else
            dg_kv_widen(type, values, number, factor, s->dim);
        return;
    }
    int step = s->dim % 8 ? 2 : 8;
    for (int i = 0; i < s->dim; i += step) {
        unsigned char *at = base + dg_cuda_slot_at(type, s->dim, slot % PAGE, i);
        if (write)
            dg_narrow(at, type, values + i, (size_t)step);
        else
            dg_widen(values + i, at, type, (size_t)step);
    }
}

/* Keys and values of the prefix that rows of this batch see, as earlier passes left them. */
static void fill_prefix(stage *g)
{
    const scene *s = g->s;
    for (int i = 0; i < s->n_run; i++)
        for (int p = window_first(s, s->run[i].position); p < s->run[i].position; p++)
            for (int h = 0; h < 2 * s->n_kv_head; h++) {
                float head[512];
                for (int d = 0; d < s->dim; d++)
                    head[d] =
                        (float)(random_normal() * (h < s->n_kv_head ? 3.0 / sqrt(s->dim) : 1));
                slot_values(g, &g->segment[i], false, p, h, head, true);
            }
    launched(cudaMemcpy(g->kv.slab, g->slab, g->slab_bytes, cudaMemcpyHostToDevice));
}

/* ---- heads ---- */

static void make_raw(stage *g, bool with_v)
{
    const scene *s = g->s;
    size_t rows = (size_t)g->n_row, dim = (size_t)s->dim, pairs = (size_t)s->n_pair;
    g->q = random_floats(rows * (size_t)s->n_head * dim, 4);
    g->k = random_floats(rows * (size_t)s->n_kv_head * dim, 4);
    g->v = with_v ? random_floats(rows * (size_t)s->n_kv_head * dim, 4) : NULL;
    g->q_norm = random_floats(dim, 0.2);
    g->k_norm = random_floats(dim, 0.2 / sqrt(s->dim));
    for (size_t i = 0; i < dim; i++) {
        g->q_norm[i] += 1;
        g->k_norm[i] += 3 / (float)sqrt(s->dim);
    }
    g->cos = host_bytes(rows * pairs * sizeof(float));
    g->sin = host_bytes(rows * pairs * sizeof(float));
    for (size_t i = 0; i < rows * pairs; i++) {
        double angle = random_uniform(-3, 3);
        g->cos[i] = (float)cos(angle);
        g->sin[i] = (float)sin(angle);
    }
}

static void *device_floats(const float *host, size_t n)
{
    return device_copy(host, n * sizeof *host);
}

static void run_heads(stage *g, int first_q_row)
{
    const scene *s = g->s;
    size_t rows = (size_t)g->n_row, dim = (size_t)s->dim, kv = rows * (size_t)s->n_kv_head * dim;
    g->d_q = device_floats(g->q, rows * (size_t)s->n_head * dim);
    dg_cuda_heads_args a = {
        .q = g->d_q,
        .k = device_floats(g->k, kv),
        .v = g->v ? device_floats(g->v, kv) : NULL,
        .q_norm = device_floats(g->q_norm, dim),
        .k_norm = device_floats(g->k_norm, dim),
        .cos = device_floats(g->cos, rows * (size_t)s->n_pair),
        .sin = device_floats(g->sin, rows * (size_t)s->n_pair),
        .n_row = g->n_row,
        .first_q_row = first_q_row,
        .n_pair = s->n_pair,
        .eps = 1e-6f,
        .segment = g->d_segment,
        .segment_of = g->d_segment_of,
        .kv = g->kv,
    };
    launched(dg_cuda_heads(NULL, &a));
}

/* Norm and rotation of one head. w NULL: the norm alone. */
static void head_of(double *out, const stage *g, const float *raw, const float *w, int row)
{
    int dim = g->s->dim, n_pair = g->s->n_pair;
    const float *c = g->cos + (size_t)row * (size_t)n_pair,
                *s = g->sin + (size_t)row * (size_t)n_pair;
    double sum = 0;
    for (int i = 0; i < dim; i++)
        sum += (double)raw[i] * raw[i];
    for (int i = 0; i < dim; i++)
        out[i] = raw[i] / sqrt(sum / dim + 1e-6) * (w ? w[i] : 1);
    for (int i = 0; w && i < n_pair; i++) {
        double low = out[i], high = out[i + dim / 2];
        out[i] = low * c[i] - high * s[i];
        out[i + dim / 2] = high * c[i] + low * s[i];
    }
}

/* A stored head is off by half a unit of its type: of bfloat16's eight bits, of E4M3's four, or by
 * half a step, which is that of the largest of its own 32 values and not of the head's. */
static void expect_stored(const scene *s, const char *what, const float *got, const double *want,
                          bool canvas)
{
    const dg_dtype type = type_of(s, canvas);
    if (!dg_kv_in_bytes(type)) {
        expect_close(what, got, want, (size_t)s->dim, 2e-6 + (type == DG_F32 ? 0 : 0x1p-8), 2e-6);
        return;
    }
    const int block = type == DG_Q8_0 ? DG_KV_BLOCK : s->dim;
    for (int at = 0; at < s->dim; at += block) {
        const int n = dg_min(block, s->dim - at);
        double most = 0;
        for (int i = at; i < at + n; i++)
            most = fmax(most, fabs(want[i]));
        if (type == DG_Q8_0)
            expect_close(what, got + at, want + at, (size_t)n, 2e-6, most / 127 * 0.51 + 2e-6);
        else
            expect_close(what, got, want, (size_t)n, 0x1p-4 + 2e-6, most * 0x1p-17 + 2e-6);
    }
}

static void expect_heads(stage *g, int first_q_row)
{
    const scene *s = g->s;
    size_t dim = (size_t)s->dim;
    const dg_dtype type = type_of(s, true); /* of queries, too */
    double want[512];
    float got[512], *q = host_bytes((size_t)g->n_row * (size_t)s->n_head * dim * sizeof *q);
    device_read(q, g->d_q, (size_t)g->n_row * (size_t)s->n_head * dim * sizeof *q);
    device_read(g->slab, g->kv.slab, g->slab_bytes);
    device_read(g->canvas_slab, g->kv.canvas_slab, g->canvas_bytes);
    for (int row = 0; row < g->n_row; row++) {
        for (int h = 0; h < s->n_head; h++) {
            size_t at = ((size_t)row * (size_t)s->n_head + (size_t)h) * dim;
            head_of(want, g, g->q + at, g->q_norm, row);
            if (row < first_q_row) {
                expect_same("q of a row that has none", q + at, g->q + at, dim * sizeof *q);
                dg_narrow(got, type, g->q + at, dim); /* attention gets one all the same */
                launched(cudaMemcpy(g->d_q + at, got, dim * sizeof *q, cudaMemcpyHostToDevice));
                memcpy(q + at, got, dim * sizeof *q);
                dg_widen(got, q + at, type, dim);
                memcpy(q + at, got, dim * sizeof *q);
                continue;
            }
            dg_widen(got, q + at, type, dim);
            expect_stored(s, "q", got, want, true);
            memcpy(q + at, got, dim * sizeof *q);
        }
        const dg_cuda_segment *seg = &g->segment[g->segment_of[row]];
        int slot = row - seg->first_row + (seg->canvas ? 0 : seg->position);
        for (int h = 0; h < s->n_kv_head; h++) {
            size_t at = ((size_t)row * (size_t)s->n_kv_head + (size_t)h) * dim;
            head_of(want, g, g->k + at, g->k_norm, row);
            slot_values(g, seg, seg->canvas, slot, h, got, false);
            expect_stored(s, "k", got, want, seg->canvas);
            head_of(want, g, (g->v ? g->v : g->k) + at, NULL, row);
            slot_values(g, seg, seg->canvas, slot, s->n_kv_head + h, got, false);
            expect_stored(s, "v", got, want, seg->canvas);
        }
    }
    g->q = q;
}

/* ---- attention ---- */

static dg_cuda_rows run_attention(const stage *g, int first, int end, int first_segment,
                                  int n_segment)
{
    int n = g->s->n_head * g->s->dim;
    dg_cuda_attention_args a = {
        .out = device_rows(g->s->form, g->n_row, n),
        .q = g->d_q,
        .first_row = first,
        .end_row = end,
        .segment = g->d_segment + first_segment,
        .n_segment = n_segment,
        .segment_of = g->d_segment_of,
        .seen = g->d_seen,
        .kv = g->kv,
        .scratch = g->scratch,
        .counter = g->counter,
    };
    if (first_segment) { /* indices count from the first segment that is given */
        int32_t *moved = host_bytes((size_t)g->n_row * sizeof *moved);
        for (int r = 0; r < g->n_row; r++)
            moved[r] = g->segment_of[r] - first_segment;
        a.segment_of = device_copy(moved, (size_t)g->n_row * sizeof *moved);
    }
    launched(dg_cuda_attention(NULL, &a));
    return a.out;
}

/* Tensor cores take keys and values of steps as bfloat16. */
static void meet_products(const scene *s, float *values)
{
    uint16_t rounded[512];
    if (s->type != DG_Q8_0 || s->dim < 16 || (s->dim & (s->dim - 1)))
        return;
    dg_narrow(rounded, DG_BF16, values, (size_t)s->dim);
    dg_widen(values, rounded, DG_BF16, (size_t)s->dim);
}

/* Keys first ... end of one line into score and value. */
static int gather(const stage *g, const dg_cuda_segment *seg, bool canvas, int first, int end,
                  int head, const float *q, double *score, float *value)
{
    size_t dim = (size_t)g->s->dim;
    for (int p = first; p < end; p++) {
        float key[512];
        slot_values(g, seg, canvas, p, head, key, false);
        slot_values(g, seg, canvas, p, head + g->s->n_kv_head, value + (size_t)(p - first) * dim,
                    false);
        meet_products(g->s, key);
        meet_products(g->s, value + (size_t)(p - first) * dim);
        score[p - first] = 0;
        for (size_t d = 0; d < dim; d++)
            score[p - first] += (double)key[d] * q[d];
    }
    return end - first;
}

static void line_of(double *out, const stage *g, int row, int head, double *score, float *value)
{
    const scene *s = g->s;
    size_t dim = (size_t)s->dim;
    const dg_cuda_segment *seg = &g->segment[g->segment_of[row]];
    int kv_head = head / (s->n_head / s->n_kv_head);
    float q[512];
    memcpy(q, g->q + ((size_t)row * (size_t)s->n_head + (size_t)head) * dim, dim * sizeof *q);
    int n = gather(g, seg, false, g->seen[2 * row], g->seen[2 * row + 1], kv_head, q, score, value);
    if (seg->canvas)
        n += gather(g, seg, true, 0, seg->n_row, kv_head, q, score + n, value + (size_t)n * dim);
    double most = -1e300, sum = 0;
    for (int i = 0; i < n; i++)
        most = fmax(most, score[i]);
    memset(out, 0, dim * sizeof *out);
    for (int i = 0; i < n; i++) {
        double p = exp(score[i] - most);
        sum += p;
        for (size_t d = 0; d < dim; d++)
            out[d] += p * value[(size_t)i * dim + d];
    }
    for (size_t d = 0; d < dim; d++)
        out[d] /= sum;
}

/* Some lines of every segment: the first and last rows, some between. */
static void expect_attention(const stage *g, const float *got, int first_row)
{
    const scene *s = g->s;
    size_t dim = (size_t)s->dim;
    double *score = host_bytes((MAX_PAGE + 8) * PAGE * sizeof *score),
           *want = host_bytes(dim * sizeof *want);
    float *value = host_bytes((MAX_PAGE + 8) * PAGE * dim * sizeof *value);
    double limit = s->form == DG_CUDA_E4M3                       ? 4e-2
                   : s->type == DG_F32 && s->form == DG_CUDA_F32 ? 2e-6
                   : s->type == DG_F32                           ? 3e-3
                                                                 : 6e-3;
    for (int row = first_row; row < g->n_row; row++) {
        const dg_cuda_segment *seg = &g->segment[g->segment_of[row]];
        int at = row - seg->first_row;
        if (at > 1 && at < seg->n_row - 1 && at % 13)
            continue;
        for (int head = 0; head < s->n_head; head += at % 2 ? 1 : 3) {
            size_t line = ((size_t)row * (size_t)s->n_head + (size_t)head) * dim;
            line_of(want, g, row, head, score, value);
            expect_relative("a line", got + line, want, dim, limit);
        }
    }
}

static void check_scene(const char *name, const scene *s)
{
    if (!case_begin("attention: %s, %d of %d heads of %d, %s", name, s->n_head, s->n_kv_head,
                    s->dim, dg_dtype_name(s->type)))
        return;
    stage g = {.s = s};
    int n = s->n_head * s->dim, half;
#ifdef EMULATED
    emu_set_device(s->small_device ? 8 : 9, s->small_device ? 6 : 0, 132);
#endif
    lay_out(&g);
    make_pages(&g);
    fill_prefix(&g);
    make_raw(&g, s->dim % 3 != 1);
    int first_q_row = s->run[0].canvas ? 0 : 1;
    run_heads(&g, first_q_row);
    expect_heads(&g, first_q_row);

    size_t counters = dg_cuda_attention_counters(PAGE * g.n_canvas_page, n) * sizeof *g.counter;
    g.scratch = device_bytes(dg_cuda_attention_bytes(PAGE * g.n_canvas_page, n));
    g.counter = device_bytes(counters);
    launched(cudaMemset(g.counter, 0, counters));
    float *all = rows_read(run_attention(&g, 0, g.n_row, 0, s->n_run), g.n_row, n);
    expect_attention(&g, all, 0);

    /* each segment alone, the last one in two pieces */
    for (int i = 0; i < s->n_run; i++) {
        const dg_cuda_segment *seg = &g.segment[i];
        size_t begin = (size_t)seg->first_row * (size_t)n,
               bytes = (size_t)seg->n_row * (size_t)n * sizeof *all;
        dg_cuda_rows alone = run_attention(&g, seg->first_row, seg->first_row + seg->n_row, i, 1);
        alone.data =
            (unsigned char *)alone.data + (size_t)seg->first_row * dg_cuda_row_bytes(alone);
        expect_same("a segment alone", rows_read(alone, seg->n_row, n), all + begin, bytes);
    }
#ifdef EMULATED /* fewer blocks, each with several parts */
    emu_set_device(s->small_device ? 8 : 9, s->small_device ? 6 : 0, 1);
    expect_same("on one multiprocessor",
                rows_read(run_attention(&g, 0, g.n_row, 0, s->n_run), g.n_row, n), all,
                (size_t)g.n_row * (size_t)n * sizeof *all);
    emu_set_device(s->small_device ? 8 : 9, s->small_device ? 6 : 0, 132);
#endif
    const dg_cuda_segment *last = &g.segment[s->n_run - 1];
    half = last->first_row + last->n_row / 2;
    if (half < g.n_row) {
        dg_cuda_rows rest = run_attention(&g, half, g.n_row, 0, s->n_run);
        rest.data = (unsigned char *)rest.data + (size_t)half * dg_cuda_row_bytes(rest);
        expect_same("the second half", rows_read(rest, g.n_row - half, n),
                    all + (size_t)half * (size_t)n,
                    (size_t)(g.n_row - half) * (size_t)n * sizeof *all);
    }
    g.counter = NULL; /* never in parts */
    expect_attention(&g, rows_read(run_attention(&g, 0, g.n_row, 0, s->n_run), g.n_row, n), 0);
#ifdef EMULATED
    emu_set_device(9, 0, 132);
#endif
    case_end();
}

void check_cuda_attention(void)
{
    static const scene scenes[] = {
        {.type = DG_F32,
         .n_head = 4,
         .n_kv_head = 2,
         .dim = 8,
         .window = 20,
         .n_pair = 4,
         .form = DG_CUDA_F32,
         .n_run = 3,
         .run = {{false, 12, 0}, {false, 30, 70}, {true, 16, 100}}},
        {.type = DG_F32,
         .n_head = 6,
         .n_kv_head = 2,
         .dim = 34,
         .window = 0,
         .n_pair = 5,
         .form = DG_CUDA_F16,
         .n_run = 2,
         .run = {{false, 1, 0}, {true, 70, 65}}},
        {.type = DG_BF16,
         .n_head = 3,
         .n_kv_head = 1,
         .dim = 48,
         .window = 33,
         .n_pair = 24,
         .form = DG_CUDA_BF16,
         .n_run = 2,
         .run = {{false, 20, 60}, {true, 5, 0}}},
        {.type = DG_BF16,
         .n_head = 4,
         .n_kv_head = 2,
         .dim = 16,
         .window = 40,
         .n_pair = 8,
         .form = DG_CUDA_F16,
         .n_run = 4,
         .run = {{false, 70, 0}, {false, 40, 100}, {true, 64, 128}, {true, 33, 200}}},
        {.type = DG_BF16,
         .n_head = 5,
         .n_kv_head = 1,
         .dim = 32,
         .window = 0,
         .n_pair = 8,
         .form = DG_CUDA_F32,
         .n_run = 3,
         .run = {{false, 11, 3}, {true, 65, 63}, {true, 1, 64}}},
        {.type = DG_BF16,
         .n_head = 4,
         .n_kv_head = 4,
         .dim = 64,
         .window = 100,
         .n_pair = 32,
         .form = DG_CUDA_E4M3,
         .n_run = 3,
         .run = {{false, 80, 300}, {true, 20, 191}, {true, 16, 1000}}},
        {.type = DG_BF16,
         .n_head = 4,
         .n_kv_head = 2,
         .dim = 128,
         .window = 64,
         .n_pair = 64,
         .form = DG_CUDA_BF16,
         .n_run = 2,
         .run = {{false, 33, 31}, {true, 48, 130}}},
        {.type = DG_BF16,
         .n_head = 4,
         .n_kv_head = 2,
         .dim = 256,
         .window = 128,
         .n_pair = 128,
         .form = DG_CUDA_BF16,
         .n_run = 3,
         .run = {{false, 40, 150}, {true, 64, 300}, {true, 20, 0}}},
        {.type = DG_BF16,
         .n_head = 4,
         .n_kv_head = 2,
         .dim = 256,
         .window = 128,
         .n_pair = 128,
         .form = DG_CUDA_F16,
         .n_run = 2,
         .run = {{false, 20, 150}, {true, 40, 300}},
         .small_device = 1},
        {.type = DG_BF16,
         .n_head = 8,
         .n_kv_head = 1,
         .dim = 512,
         .window = 0,
         .n_pair = 64,
         .form = DG_CUDA_BF16,
         .n_run = 2,
         .run = {{false, 9, 60}, {true, 20, 200}}},
        {.type = DG_BF16,
         .n_head = 8,
         .n_kv_head = 1,
         .dim = 512,
         .window = 0,
         .n_pair = 64,
         .form = DG_CUDA_BF16,
         .n_run = 2,
         .run = {{false, 5, 30}, {true, 12, 100}},
         .small_device = 1},
        {.type = DG_BF16,
         .n_head = 4,
         .n_kv_head = 2,
         .dim = 256,
         .window = 128,
         .n_pair = 128,
         .form = DG_CUDA_E4M3,
         .n_run = 2,
         .run = {{false, 10, 150}, {true, 20, 90}}},
        {.type = DG_BF16,
         .n_head = 8,
         .n_kv_head = 1,
         .dim = 512,
         .window = 0,
         .n_pair = 64,
         .form = DG_CUDA_E4M3,
         .n_run = 2,
         .run = {{false, 5, 30}, {true, 12, 100}}},
    };
    static const scene long_scenes[] = {
        {.type = DG_BF16,
         .n_head = 4,
         .n_kv_head = 2,
         .dim = 16,
         .window = 0,
         .n_pair = 8,
         .form = DG_CUDA_F32,
         .n_run = 4,
         .run = {{false, 20, 700}, {true, 40, 1000}, {true, 33, 460}, {true, 30, 2}}},
        {.type = DG_BF16,
         .n_head = 2,
         .n_kv_head = 1,
         .dim = 256,
         .window = 1024,
         .n_pair = 128,
         .form = DG_CUDA_F32, /* rounding would hide in which order parts are folded */
         .n_run = 2,
         .run = {{true, 20, 1500}, {true, 34, 1100}}},
        {.type = DG_BF16,
         .n_head = 2,
         .n_kv_head = 1,
         .dim = 256,
         .window = 0,
         .n_pair = 128,
         .form = DG_CUDA_F32, /* several tiles, the last one not full */
         .n_run = 1,
         .run = {{true, 75, 330}}},
        {.type = DG_BF16,
         .n_head = 2,
         .n_kv_head = 1,
         .dim = 512,
         .window = 0,
         .n_pair = 64,
         .form = DG_CUDA_F32,
         .n_run = 1,
         .run = {{true, 36, 600}}},
        {.type = DG_BF16,
         .n_head = 2,
         .n_kv_head = 1,
         .dim = 512,
         .window = 0,
         .n_pair = 64,
         .form = DG_CUDA_BF16,
         .n_run = 1,
         .run = {{true, 17, 520}},
         .small_device = 1},
    };
    for (size_t order = 0; order < 3; order++) /* cases take turns with the emulation's orders */
        for (size_t i = 0; i < sizeof long_scenes / sizeof *long_scenes; i++)
            check_scene(long_scenes[i].small_device ? "in parts, a small device" : "in parts",
                        &long_scenes[i]);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        check_scene(scenes[i].small_device ? "a small device" : "mixed rows", &scenes[i]);

    /* the same in bytes, of either kind in turn: every kernel has both in three scenes */
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        for (int kind = 0; kind < (scenes[i].dim < 256 ? 2 : 1); kind++) {
            scene bytes = scenes[i];
            bytes.type = ((int)i + kind) % 2 ? DG_FP8 : DG_Q8_0;
            check_scene(bytes.small_device ? "a small device" : "mixed rows", &bytes);
        }
    for (size_t i = 0; i < sizeof long_scenes / sizeof *long_scenes; i++)
        for (int kind = 0; kind < 2; kind++) {
            scene bytes = long_scenes[i];
            bytes.type = kind ? DG_FP8 : DG_Q8_0;
            check_scene("in parts", &bytes);
        }

    /* more segments than a warp looks at in one go */
    scene many = {.type = DG_BF16,
                  .n_head = 2,
                  .n_kv_head = 1,
                  .dim = 16,
                  .window = 0,
                  .n_pair = 8,
                  .form = DG_CUDA_BF16,
                  .n_run = MAX_SEGMENT};
    for (int i = 0; i < MAX_SEGMENT; i++)
        many.run[i] = (run){i >= 20, 1 + i % 5 * 17, i % 7 * 9};
    check_scene("many segments", &many);
}
