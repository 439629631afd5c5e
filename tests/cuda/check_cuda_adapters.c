/* cuda_adapters.cu, cuda_adapters_experts.cu and the router's part against the matrices that
 * adapters would be merged into: segments with one adapter, with another, with both and with none
 * in one launch. */
#include <math.h>
#include <string.h>
#include "cuda/check_experts.h"
#include "tensor/dtype.h"

enum { N_ADAPTER = 3, N_SEGMENT = 6 };

/* ---- a batch ---- */

/* The last one has what another has, at another scale. */
static const dg_adapter_use uses[N_SEGMENT][2] = {
    {{0, 1}}, {{0, 1}, {1, -0.5f}}, {{0, 0}}, {{1, 0.25f}}, {{2, 1}}, {{1, 1.5f}}};
static const int n_use[N_SEGMENT] = {1, 2, 0, 1, 1, 1};
static const bool canvas[N_SEGMENT] = {false, true, true, true, false, true};

/* Rows first ... of a batch of n_row, in segments of different lengths. */
typedef struct batch {
    int n_row, first;
    int32_t *segment_of; /* [first + n_row], on the host */
    dg_cuda_adapted rows;
} batch;

static batch make_batch(int n_row, int first)
{
    batch b = {.n_row = n_row, .first = first};
    size_t n = (size_t)(first + n_row);
    dg_cuda_uses on_device[N_SEGMENT];
    b.segment_of = host_bytes(n * sizeof *b.segment_of);
    for (int r = 0; r < first + n_row; r++)
        b.segment_of[r] = (r * 7 / (first + n_row) + r / 11) % N_SEGMENT;
    for (int i = 0; i < N_SEGMENT; i++)
        on_device[i] = (dg_cuda_uses){device_copy(uses[i], sizeof uses[i]), n_use[i], canvas[i]};
    b.rows = (dg_cuda_adapted){device_copy(on_device, sizeof on_device),
                               device_copy(b.segment_of, n * sizeof *b.segment_of), first};
    return b;
}

static int segment_at(const batch *b, int row)
{
    return b->segment_of[b->first + row];
}

/* ---- what adapters do to a matrix, or to some ---- */

typedef struct changes {
    const dg_low_rank *low;    /* on the device */
    double *merged[N_SEGMENT]; /* [n_mat, n_out, n_in] what rows of a segment are multiplied with,
                                  beside the matrix; NULL: nothing */
} changes;

/* Adapter 0 is for both kinds of rows with numbers of their own, 1 for canvases; 2 has nothing. */
static int rank_of(int adapter, bool of_canvas)
{
    static const int rank[N_ADAPTER][2] = {{3, 8}, {0, 37}, {0, 0}};
    return rank[adapter][of_canvas];
}

static void merge(double *to, const float *a, const float *b, int rank, double factor, int n_mat,
                  int n_out, int n_in)
{
    size_t rows = (size_t)n_out, cols = (size_t)n_in, ranks = (size_t)rank;
    for (size_t m = 0; m < (size_t)n_mat; m++)
        for (size_t o = 0; o < rows; o++)
            for (size_t r = 0; r < ranks; r++)
                for (size_t k = 0; k < cols; k++)
                    to[(m * rows + o) * cols + k] += factor * b[(m * rows + o) * ranks + r] *
                                                     (double)a[(m * ranks + r) * cols + k];
}

static changes make_changes(int n_mat, int n_out, int n_in)
{
    changes c = {.low = NULL};
    dg_low_rank low[N_ADAPTER][2] = {{{0}}};
    size_t n = (size_t)n_mat * (size_t)n_out * (size_t)n_in;
    for (int s = 0; s < N_SEGMENT; s++)
        c.merged[s] = host_bytes(n * sizeof(double));
    for (int i = 0; i < N_ADAPTER; i++)
        for (int kind = 0; kind < 2; kind++) {
            int rank = rank_of(i, kind);
            if (!rank)
                continue;
            size_t n_a = (size_t)(n_mat * rank) * (size_t)n_in,
                   n_b = (size_t)(n_mat * n_out) * (size_t)rank;
            float *a = random_floats(n_a, 0.1), *b = random_floats(n_b, 0.1);
            float factor = (float)random_uniform(0.5, 2);
            low[i][kind] = (dg_low_rank){rank, device_copy(a, n_a * sizeof *a),
                                         device_copy(b, n_b * sizeof *b), factor};
            for (int s = 0; s < N_SEGMENT; s++)
                for (int u = 0; u < n_use[s]; u++)
                    if (uses[s][u].adapter == i && canvas[s] == (kind == 1))
                        merge(c.merged[s], a, b, rank, (double)factor * (double)uses[s][u].scale,
                              n_mat, n_out, n_in);
        }
    c.low = device_copy(low, sizeof low);
    return c;
}

/* The segment's rows stay as they are. */
static bool is_plain(int segment)
{
    bool any = false;
    for (int u = 0; u < n_use[segment]; u++)
        any = any || rank_of(uses[segment][u].adapter, canvas[segment]);
    return !any;
}

/* ---- rows ---- */

static double dot(const double *w, const float *x, const float *scale, int n)
{
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += w[k] * x[k] * (scale ? scale[k] : 1);
    return sum;
}

static float *adapt(const batch *b, const changes *c, dg_cuda_rows x, const float *x_scale,
                    const float *y, int n_in, int n_out)
{
    size_t n = (size_t)b->n_row * (size_t)(n_out + 3);
    float *got = host_bytes(n * sizeof *got), *on_device = device_copy(y, n * sizeof *y);
    dg_cuda_adapt_args a = {
        .rows = b->rows,
        .low = c->low,
        .n_row = b->n_row,
        .n_in = n_in,
        .n_out = n_out,
        .x = x,
        .x_scale = x_scale ? device_copy(x_scale, (size_t)n_in * sizeof *x_scale) : NULL,
        .alpha = 1.5f,
        .y = on_device,
        .ldy = (size_t)(n_out + 3)};
    launched(dg_cuda_adapt(NULL, &a));
    device_read(got, on_device, n * sizeof *got);
    return got;
}

static void check_adapt(dg_cuda_form form, int n_row, int n_in, int n_out, bool scaled)
{
    if (!case_begin("adapters: form %d, %d rows, %d x %d%s", (int)form, n_row, n_out, n_in,
                    scaled ? ", scaled" : ""))
        return;
    batch b = make_batch(n_row, 5);
    changes c = make_changes(1, n_out, n_in);
    inputs x = make_inputs(form, n_row, n_in);
    const float *scale = scaled ? random_floats((size_t)n_in, 1) : NULL;
    size_t ld = (size_t)(n_out + 3);
    float *y = random_floats((size_t)n_row * ld, 1),
          *got = adapt(&b, &c, x.rows, scale, y, n_in, n_out);
    double *want = host_bytes((size_t)n_row * ld * sizeof *want);
    for (int r = 0; r < n_row; r++) {
        int segment = segment_at(&b, r);
        for (size_t o = 0; o < ld; o++)
            want[(size_t)r * ld + o] = y[(size_t)r * ld + o];
        for (int o = 0; o < n_out; o++)
            want[(size_t)r * ld + (size_t)o] +=
                1.5 * dot(c.merged[segment] + (size_t)o * (size_t)n_in,
                          x.value + (size_t)r * (size_t)n_in, scale, n_in);
        if (is_plain(segment))
            expect_same("a row without", got + (size_t)r * ld, y + (size_t)r * ld,
                        ld * sizeof *got);
    }
    expect_close("y", got, want, (size_t)n_row * ld, 3e-5, 3e-5);
    /* each row alone: the same bits */
    for (int r = 0; r < n_row; r += 3) {
        batch one = b;
        dg_cuda_rows row = x.rows;
        one.n_row = 1;
        one.rows.first_row += r;
        row.data = (char *)row.data + (size_t)r * dg_cuda_row_bytes(row);
        float *alone = adapt(&one, &c, row, scale, y + (size_t)r * ld, n_in, n_out);
        expect_same("a row alone", alone, got + (size_t)r * ld, ld * sizeof *alone);
    }
    case_end();
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void check_regate(dg_cuda_form form, int n_row, int n)
{
    if (!case_begin("adapters: gated once more, form %d, %d x %d", (int)form, n_row, n))
        return;
    batch b = make_batch(n_row, 2);
    changes c = make_changes(1, n, 4);
    size_t count = (size_t)n_row * (size_t)n;
    float *gate = random_floats(count, 1), *up = random_floats(count, 1);
    inputs h = make_inputs(form, n_row, n);
    dg_cuda_regate_args a = {.rows = b.rows,
                             .low = {NULL, c.low},
                             .n_row = n_row,
                             .n = n,
                             .gate = device_copy(gate, count * sizeof *gate),
                             .up = device_copy(up, count * sizeof *up),
                             .floats = form == DG_CUDA_F32,
                             .h = h.rows};
    launched(dg_cuda_regate(NULL, &a));
    float *got = rows_read(h.rows, n_row, n);
    double *want = host_bytes(count * sizeof *want);
    for (size_t i = 0; i < count; i++)
        want[i] = is_plain(segment_at(&b, (int)(i / (size_t)n)))
                      ? (double)h.value[i]
                      : gelu(gate[i]) * up[i] / (form == DG_CUDA_F16 ? DG_CUDA_GATED : 1);
    expect_close("h", got, want, count, form_step(form) + 1e-6, 2e-6);
    case_end();
}

/* ---- experts ---- */

typedef struct routed {
    const layer *l;
    dg_cuda_rows x;
    const int32_t *expert;
    const float *weight;
} routed;

static float *run_experts(const routed *of, int n_row, const dg_cuda_adapted_experts *adapted)
{
    const layer *l = of->l;
    size_t pairs = (size_t)n_row * (size_t)l->n_used, n = (size_t)n_row * (size_t)l->n_embd;
    float *got = host_bytes(n * sizeof *got);
    dg_cuda_experts_args a = {.n_row = n_row,
                              .n_used = l->n_used,
                              .x = of->x,
                              .expert = device_copy(of->expert, pairs * sizeof *of->expert),
                              .weight = device_copy(of->weight, pairs * sizeof *of->weight),
                              .gate = &l->gate.matrix,
                              .up = &l->up.matrix,
                              .down = &l->down.matrix,
                              .y = device_bytes(n * sizeof *got),
                              .ldy = (size_t)l->n_embd,
                              .scratch = device_bytes(dg_cuda_experts_bytes(
                                  n_row, l->n_used, l->n_expert, l->n_embd, l->n_ff)),
                              .adapted = adapted};
    launched(dg_cuda_experts(NULL, &a));
    device_read(got, a.y, n * sizeof *got);
    return got;
}

/* A layer with a segment's adapters merged into it. */
static layer merged(const layer *l, const changes c[3], int segment)
{
    layer m = *l;
    stored *w[3] = {&m.gate, &m.up, &m.down};
    for (int i = 0; i < 3; i++) {
        size_t n = (size_t)l->n_expert * (size_t)l->n_embd * (size_t)l->n_ff;
        double *value = host_bytes(n * sizeof *value);
        for (size_t k = 0; k < n; k++)
            value[k] = w[i]->value[k] + (c[i].low ? c[i].merged[segment][k] : 0);
        w[i]->value = value;
    }
    return m;
}

static void check_experts(dg_dtype type, dg_dtype down, int n_row, const int shape[4],
                          unsigned which)
{
    if (!case_begin("adapters: experts of %s and %s, %d rows, %d of %d, %d x %d, matrices %u",
                    dg_dtype_name(type), dg_dtype_name(down), n_row, shape[1], shape[0], shape[2],
                    shape[3], which))
        return;
    layer l = make_layer(type, down, shape[0], shape[1], shape[2], shape[3]);
    batch b = make_batch(n_row, 3);
    changes c[3] = {{.low = NULL}};
    for (unsigned i = 0; i < 3; i++)
        if (which >> i & 1)
            c[i] = make_changes(l.n_expert, i == 2 ? l.n_embd : l.n_ff, i == 2 ? l.n_ff : l.n_embd);
    inputs x = make_inputs(dg_cuda_form_of(type), n_row, l.n_embd);
    int32_t *expert = make_routes(&l, n_row, true);
    float *weight = make_route_weights((size_t)n_row * (size_t)l.n_used);
    const routed of = {&l, x.rows, expert, weight};
    const dg_cuda_adapted_experts adapted = {b.rows, c[0].low, c[1].low, c[2].low};
    float *got = run_experts(&of, n_row, &adapted), *plain = run_experts(&of, n_row, NULL);
    size_t n = (size_t)n_row * (size_t)l.n_embd;
    double *want = host_bytes(n * sizeof *want);
    layer as[N_SEGMENT];
    for (int s = 0; s < N_SEGMENT; s++)
        as[s] = merged(&l, c, s);
    layer_sees(&l, x.value, n);
    for (int r = 0; r < n_row; r++) {
        size_t at = (size_t)r * (size_t)l.n_embd, pair = (size_t)r * (size_t)l.n_used;
        int segment = segment_at(&b, r);
        expert_row(want + at, &as[segment], x.value + at, expert + pair, weight + pair);
        if (is_plain(segment))
            expect_same("a row without", got + at, plain + at, (size_t)l.n_embd * sizeof *got);
    }
    /* what is wanted reads rows as bytes throughout, adapters read them as they were before */
    bool bytes = type == DG_Q4_K || type == DG_INT4 || down == DG_Q5_0 || down == DG_INT4;
    expect_relative("y", got, want, n, experts_limit(type, down) + (bytes ? 1.0 / 127 : 0));
    for (int r = 1; r < n_row; r += 17) {
        const size_t pair = (size_t)r * (size_t)l.n_used;
        routed one = {&l, x.rows, expert + pair, weight + pair};
        dg_cuda_adapted_experts at = adapted;
        at.rows.first_row += r;
        one.x.data = (char *)one.x.data + (size_t)r * dg_cuda_row_bytes(one.x);
        float *alone = run_experts(&one, 1, &at);
        expect_same("a row alone", alone, got + (size_t)r * (size_t)l.n_embd,
                    (size_t)l.n_embd * sizeof *alone);
    }
    case_end();
}

/* ---- the router: as with merged weights ---- */

static void *narrowed(const float *w, size_t n)
{
    uint16_t *narrow = host_bytes(n * sizeof *narrow);
    dg_narrow(narrow, DG_BF16, w, n);
    return device_copy(narrow, n * sizeof *narrow);
}

static void check_route(dg_dtype type, int n_row, int n, int n_expert, int n_used)
{
    if (!case_begin("adapters: the router of %s, %d rows, %d of %d, n %d", dg_dtype_name(type),
                    n_row, n_used, n_expert, n))
        return;
    batch b = make_batch(n_row, 4);
    changes c = make_changes(1, n_expert, n);
    size_t cells = (size_t)n_expert * (size_t)n, used = (size_t)n_used;
    float *x = random_floats((size_t)n_row * (size_t)n, 3), *w = random_floats(cells, 1),
          *into = host_bytes(cells * sizeof *into);
    for (size_t i = 0; i < cells; i++) /* for both types */
        w[i] = dg_bf16_to_float(dg_float_to_bf16(w[i]));
    dg_cuda_route_args a = {
        .expert = device_bytes((size_t)n_row * used * 4),
        .weight = device_bytes((size_t)n_row * used * 4),
        .x = device_copy(x, (size_t)n_row * (size_t)n * sizeof *x),
        .scale = device_copy(random_floats((size_t)n, 1), (size_t)n * sizeof *x),
        .w = type == DG_BF16 ? narrowed(w, cells) : device_copy(w, cells * sizeof *w),
        .w_type = type,
        .expert_scale = device_copy(random_floats((size_t)n_expert, 1), (size_t)n_expert * 4),
        .n_row = n_row,
        .n = n,
        .n_expert = n_expert,
        .n_used = n_used,
        .eps = 1e-6f,
        .scratch = device_bytes(dg_cuda_route_bytes(n_row, n, n_expert)),
        .adapted = b.rows,
        .low = c.low};
    int32_t *expert[2];
    float *weight[2];
    for (int s = -1; s < N_SEGMENT; s++) {
        if (s >= 0) {
            for (size_t i = 0; i < cells; i++)
                into[i] = (float)(w[i] + c.merged[s][i]);
            a.w = device_copy(into, cells * sizeof *into);
            a.w_type = DG_F32;
            a.low = NULL;
        }
        int i = s >= 0;
        expert[i] = host_bytes((size_t)n_row * used * 4);
        weight[i] = host_bytes((size_t)n_row * used * 4);
        launched(dg_cuda_route(NULL, &a));
        device_read(expert[i], a.expert, (size_t)n_row * used * 4);
        device_read(weight[i], a.weight, (size_t)n_row * used * 4);
        for (int r = 0; s >= 0 && r < n_row; r++) {
            size_t at = (size_t)r * used;
            if (segment_at(&b, r) != s)
                continue;
            expect_same("experts", expert[0] + at, expert[1] + at, used * 4);
            for (size_t k = at; k < at + used; k++) {
                double want = weight[1][k];
                expect_close("weight", &weight[0][k], &want, 1, is_plain(s) ? 0 : 1e-4, 0);
            }
        }
    }
    case_end();
}

void check_cuda_adapters(void)
{
    static const dg_dtype types[] = {DG_F32,   DG_BF16, DG_F16,  DG_Q8_0, DG_Q4_0,
                                     DG_Q5_0,  DG_Q4_K, DG_Q5_K, DG_Q6_K, DG_IQ4_NL,
                                     DG_MXFP4, DG_FP8,  DG_INT4};
    static const int small[4] = {6, 3, 72, 40}, wide[4] = {3, 2, 80, 704},
                     long_rows[4] = {4, 2, 300, 40}, many_used[4] = {13, 11, 72, 40};
    for (int form = DG_CUDA_F32; form <= DG_CUDA_E4M3; form++) {
        check_adapt((dg_cuda_form)form, 1, 7, 5, false);
        check_adapt((dg_cuda_form)form, 37, 100, 300, false);
        check_adapt((dg_cuda_form)form, 9, 2816, 33, form == DG_CUDA_F32);
    }
    for (int form = DG_CUDA_F32; form < DG_CUDA_E4M3; form++) {
        check_regate((dg_cuda_form)form, 23, 100);
        check_regate((dg_cuda_form)form, 7, 300); /* more than a block has threads */
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        check_experts(types[i], types[i], 60, small, 7);
    check_experts(DG_BF16, DG_Q5_0, 21, wide, 1);
    check_experts(DG_Q4_K, DG_Q5_0, 130, small, 2);
    check_experts(DG_BF16, DG_BF16, 40, small, 4);
    check_experts(DG_BF16, DG_BF16, 20, long_rows, 7);
    check_experts(DG_BF16, DG_BF16, 20, many_used, 7);
    check_experts(DG_F32, DG_BF16, 90, wide, 3);
    check_route(DG_F32, 33, 100, 70, 5);
    check_route(DG_F32, 9, 704, 128, 8);
    check_route(DG_BF16, 9, 104, 70, 5);
    check_route(DG_BF16, 520, 104, 70, 5); /* with many rows */
}
