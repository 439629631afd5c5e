/* cuda_vision*.cu against sums in double. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "cuda/cuda_check.h"
#include "cuda/cuda_vision.h"
#include "tensor/dtype.h"

enum { MAX_SIDE = 192 };

static dg_cuda_pictures pictures_of(int n, const int (*size)[2], int pool)
{
    dg_cuda_pictures p = {.n = n};
    for (int i = 0; i < n; i++) {
        p.at[i] = (dg_cuda_picture){p.n_patch, size[i][0], size[i][1], p.n_slot, p.n_cell};
        p.n_patch += size[i][0] * size[i][1];
        p.n_slot += dg_cuda_slots(size[i][0] * size[i][1]);
        p.n_cell += size[i][0] / pool * (size[i][1] / pool);
    }
    return p;
}

static void *device_floats(const float *host, size_t n)
{
    return device_copy(host, n * sizeof *host);
}

/* ---- heads and attention ---- */

typedef struct scene {
    int n_head, dim;
    bool exact, small_device;
    int n;
    int size[3][2];
} scene;

typedef struct heads {
    float *raw, *q_norm, *k_norm, *cos, *sin;
    double *q, *k, *v; /* [n_patch, n_head, dim], wanted */
} heads;

static heads make_heads(const scene *s, int n_patch)
{
    size_t dim = (size_t)s->dim, angles = MAX_SIDE * dim / 4;
    heads h = {.raw = random_floats((size_t)n_patch * 3 * (size_t)s->n_head * dim, 3),
               .q_norm = random_floats(dim, 0.2),
               .k_norm = random_floats(dim, 0.2),
               .cos = host_bytes(angles * sizeof(float)),
               .sin = host_bytes(angles * sizeof(float))};
    for (size_t i = 0; i < dim; i++) {
        h.q_norm[i] += 1;
        h.k_norm[i] += (float)(4 / sqrt(s->dim));
    }
    for (size_t i = 0; i < angles; i++) {
        double angle = random_uniform(-3, 3);
        h.cos[i] = (float)cos(angle);
        h.sin[i] = (float)sin(angle);
    }
    return h;
}

/* One head as it should be: norm, then the halves turned by column and row; v: w is NULL. */
static void want_head(double *out, const heads *h, const float *raw, const float *w, int dim,
                      int row, int col)
{
    double x[256], sum = 0;
    int n_pair = dim / 4;
    for (int i = 0; i < dim; i++)
        sum += (double)raw[i] * raw[i];
    for (int i = 0; i < dim; i++)
        out[i] = x[i] = raw[i] / sqrt(sum / dim + 1e-6) * (w ? w[i] : 1);
    for (int half = 0; half < 2 && w; half++)
        for (int i = 0; i < n_pair; i++) {
            int at = (half ? row : col) * n_pair + i, a = half * 2 * n_pair + i, b = a + n_pair;
            out[a] = x[a] * h->cos[at] - x[b] * h->sin[at];
            out[b] = x[b] * h->cos[at] + x[a] * h->sin[at];
        }
}

static void want_heads(heads *h, const scene *s, const dg_cuda_pictures *p)
{
    size_t dim = (size_t)s->dim, n = (size_t)p->n_patch * (size_t)s->n_head * dim;
    double **kind[3] = {&h->q, &h->k, &h->v};
    const float *w[3] = {h->q_norm, h->k_norm, NULL};
    for (int k = 0; k < 3; k++)
        *kind[k] = host_bytes(n * sizeof(double));
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < p->at[i].rows * p->at[i].cols; j++)
            for (int u = 0; u < 3 * s->n_head; u++) {
                size_t patch = (size_t)(p->at[i].first_patch + j), head = (size_t)(u % s->n_head);
                want_head(*kind[u / s->n_head] + (patch * (size_t)s->n_head + head) * dim, h,
                          h->raw + (patch * 3 * (size_t)s->n_head + (size_t)u) * dim,
                          w[u / s->n_head], s->dim, j / p->at[i].cols, j % p->at[i].cols);
            }
}

static dg_cuda_vision_qkv device_qkv(const scene *s, int n_slot)
{
    dg_cuda_vision_qkv to = {.exact = s->exact,
                             .across = dg_cuda_vision_across(s->exact, s->dim),
                             .n_head = s->n_head,
                             .dim = s->dim,
                             .ld = dg_cuda_vision_ld(s->dim)};
    size_t bytes =
        (size_t)n_slot * (size_t)s->n_head * (size_t)to.ld * (s->exact ? sizeof(float) : 2);
    to.q = device_bytes(bytes);
    to.k = device_bytes(bytes);
    to.v = device_bytes(bytes);
    return to;
}

/* Back as [n_patch, n_head, dim]; what lies behind a head must be zero, and across behind a
 * picture. */
static float *read_heads(const dg_cuda_vision_qkv *from, const void *device,
                         const dg_cuda_pictures *p, bool across)
{
    size_t n = (size_t)p->n_slot * (size_t)from->n_head, ld = (size_t)from->ld,
           dim = (size_t)from->dim, wide = across ? (dim + 7) / 8 * 8 : ld,
           bytes = n * wide * (from->exact ? sizeof(float) : 2);
    void *stored = host_bytes(bytes);
    float *all = host_bytes(n * wide * sizeof *all), *out = host_bytes(n * dim * sizeof *out);
    device_read(stored, device, bytes);
    dg_widen(all, stored, from->exact ? DG_F32 : DG_F16, n * wide);
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < dg_cuda_slots(p->at[i].rows * p->at[i].cols) * from->n_head; j++)
            for (size_t d = 0; d < wide; d++) {
                size_t head = (size_t)(j % from->n_head), within = (size_t)(j / from->n_head),
                       slot = (size_t)p->at[i].first_slot + within, slots = (size_t)p->n_slot;
                float v = across ? all[(head * wide + d) * slots + slot]
                                 : all[(head * slots + slot) * ld + d];
                bool there = within < (size_t)(p->at[i].rows * p->at[i].cols);
                if (there && d < dim)
                    out[(((size_t)p->at[i].first_patch + within) * (size_t)from->n_head + head) *
                            dim +
                        d] = v;
                else if ((there || across) && v != 0)
                    case_fail("value %zu of slot %zu is %g", d, slot, (double)v);
            }
    return out;
}

static double *want_attention(const heads *h, const scene *s, const dg_cuda_pictures *p)
{
    size_t dim = (size_t)s->dim, ld = (size_t)s->n_head * dim;
    double *out = host_bytes((size_t)p->n_patch * ld * sizeof *out);
    double *score = host_bytes((size_t)p->n_patch * sizeof *score);
    for (int i = 0; i < p->n; i++) {
        int n = p->at[i].rows * p->at[i].cols;
        for (int j = 0; j < n * s->n_head; j++) {
            size_t first = (size_t)p->at[i].first_patch * ld + (size_t)(j % s->n_head) * dim,
                   line = first + (size_t)(j / s->n_head) * ld;
            double most = -INFINITY, sum = 0;
            for (int k = 0; k < n; k++) {
                score[k] = 0;
                for (size_t d = 0; d < dim; d++)
                    score[k] += h->q[line + d] * h->k[first + (size_t)k * ld + d];
                most = fmax(most, score[k]);
            }
            for (int k = 0; k < n; k++)
                sum += score[k] = exp(score[k] - most);
            for (int k = 0; k < n; k++)
                for (size_t d = 0; d < dim; d++)
                    out[line + d] += score[k] / sum * h->v[first + (size_t)k * ld + d];
        }
    }
    return out;
}

/* The picture's lines alone: heads and attention of a pass of its own. */
static const float *run_scene(const scene *s, const heads *h, const dg_cuda_pictures *p,
                              dg_cuda_form form, dg_cuda_vision_qkv *qkv)
{
    size_t dim = (size_t)s->dim, heads_n = (size_t)s->n_head * dim, angles = MAX_SIDE * dim / 4;
    *qkv = device_qkv(s, p->n_slot);
    dg_cuda_vision_heads_args args = {device_floats(h->raw, (size_t)p->n_patch * 3 * heads_n),
                                      device_floats(h->q_norm, dim),
                                      device_floats(h->k_norm, dim),
                                      device_floats(h->cos, angles),
                                      device_floats(h->sin, angles),
                                      1e-6f,
                                      *qkv,
                                      *p};
    launched(dg_cuda_vision_heads(NULL, &args));
    dg_cuda_rows out = device_rows(form, p->n_patch, (int)heads_n);
    launched(dg_cuda_vision_attention(NULL, &(dg_cuda_vision_attention_args){out, *qkv, *p}));
    return rows_read(out, p->n_patch, (int)heads_n);
}

/* What the emulated device says it is. */
static void set_device(const scene *s, int n_sm)
{
#ifdef EMULATED
    emu_set_device(s->small_device ? 8 : 9, 0, n_sm);
#else
    (void)s;
    (void)n_sm;
#endif
}

static void check_attention(const scene *s, dg_cuda_form form)
{
    if (!case_begin("pictures: %d heads of %d, %s, %d of them, the first %d x %d", s->n_head,
                    s->dim, s->exact ? "floats" : "halves", s->n, s->size[0][0], s->size[0][1]))
        return;
    set_device(s, 132);
    dg_cuda_pictures p = pictures_of(s->n, s->size, 1);
    size_t heads_n = (size_t)s->n_head * (size_t)s->dim, n = (size_t)p.n_patch * heads_n;
    heads h = make_heads(s, p.n_patch);
    dg_cuda_vision_qkv qkv;
    want_heads(&h, s, &p);
    const float *got = run_scene(s, &h, &p, form, &qkv);
    double step = s->exact ? 2e-6 : form_step(DG_CUDA_F16) + 2e-6;
    expect_close("queries", read_heads(&qkv, qkv.q, &p, false), h.q, n, step, 4e-6);
    expect_close("keys", read_heads(&qkv, qkv.k, &p, false), h.k, n, step, 4e-6);
    expect_close("values", read_heads(&qkv, qkv.v, &p, qkv.across), h.v, n, step, 4e-6);
    expect_relative("attention", got, want_attention(&h, s, &p), n,
                    s->exact ? 1e-5 + form_step(form) : 2e-3 + form_step(form));
    /* the last picture in a pass of its own, and with the other number of warps: the same bits */
    size_t first = (size_t)p.at[s->n - 1].first_patch;
    dg_cuda_pictures last = pictures_of(1, &s->size[s->n - 1], 1);
    heads alone = h;
    alone.raw += first * 3 * heads_n;
    set_device(s, 1);
    const float *same = run_scene(s, &alone, &last, form, &qkv);
    set_device(&(scene){0}, 132);
    expect_same("alone", same, got + first * heads_n, (n - first * heads_n) * sizeof *got);
    case_end();
}

/* A picture of which nothing is a number does not spoil the one before it. */
static void check_spoilt(bool small_device)
{
    scene s = {1, 72, false, small_device, 2, {{3, 5}, {3, 3}}};
    if (!case_begin("pictures: no numbers beside one%s", small_device ? ", mma" : ""))
        return;
    set_device(&s, 132);
    dg_cuda_pictures p = pictures_of(s.n, s.size, 1);
    size_t first = (size_t)p.at[1].first_patch * 72;
    heads h = make_heads(&s, p.n_patch);
    dg_cuda_vision_qkv qkv;
    const float *good = run_scene(&s, &h, &p, DG_CUDA_F16, &qkv);
    for (size_t i = first * 3; i < (size_t)p.n_patch * 3 * 72; i++)
        h.raw[i] = NAN;
    expect_same("the first", run_scene(&s, &h, &p, DG_CUDA_F16, &qkv), good, first * sizeof *good);
    set_device(&(scene){0}, 132);
    case_end();
}

/* ---- rows ---- */

static void check_pixels(dg_cuda_form form)
{
    if (!case_begin("pictures: pixels"))
        return;
    enum { ROWS = 5, N = 75 };
    const float *pixels = random_floats((size_t)ROWS * N, 1);
    double *want = host_bytes(sizeof(double) * ROWS * N);
    for (int i = 0; i < ROWS * N; i++)
        want[i] = 2 * (pixels[i] - 0.5);
    dg_cuda_rows out = device_rows(form, ROWS, N);
    launched(dg_cuda_vision_pixels(NULL, out, device_floats(pixels, (size_t)ROWS * N), ROWS, N));
    expect_close("pixels", rows_read(out, ROWS, N), want, (size_t)ROWS * N, 1e-6 + form_step(form),
                 1e-6);
    case_end();
}

static void check_positions(dg_dtype type)
{
    if (!case_begin("pictures: positions, %s", dg_dtype_name(type)))
        return;
    enum { N = 38, POSITIONS = 9 };
    dg_cuda_pictures p = pictures_of(2, (const int[][2]){{3, 7}, {9, 2}}, 1);
    size_t n = (size_t)p.n_patch * N, n_table = 2 * (size_t)POSITIONS * N;
    float *x = random_floats(n, 1), *table = random_floats(n_table, 1);
    void *stored = host_bytes(n_table * sizeof(float));
    double *want = host_bytes(n * sizeof *want);
    dg_narrow(stored, type, table, n_table);
    dg_widen(table, stored, type, n_table);
    for (int i = 0; i < p.n; i++)
        for (int j = 0; j < p.at[i].rows * p.at[i].cols * N; j++) {
            int patch = j / N, col = patch % p.at[i].cols, row = patch / p.at[i].cols;
            size_t at = (size_t)p.at[i].first_patch * N + (size_t)j;
            want[at] =
                (double)x[at] + table[col * N + j % N] + table[(POSITIONS + row) * N + j % N];
        }
    float *dx = device_floats(x, n), *got = host_bytes(n * sizeof *got);
    dg_cuda_positions_args args = {
        dx, device_copy(stored, n_table * dg_dtype_size(type)), type, POSITIONS, N, p};
    launched(dg_cuda_vision_positions(NULL, &args));
    device_read(got, dx, n * sizeof *got);
    expect_close("x", got, want, n, 1e-6, 1e-6);
    case_end();
}

static void check_pool(dg_cuda_form form, bool standard)
{
    if (!case_begin("pictures: soft tokens, %s", standard ? "standardised" : "as they are"))
        return;
    enum { N = 70, POOL = 3 };
    dg_cuda_pictures p = pictures_of(2, (const int[][2]){{3, 6}, {9, 3}}, POOL);
    size_t n = (size_t)p.n_patch * N, n_out = (size_t)p.n_cell * N;
    const float *x = random_floats(n, 2), *bias = random_floats(N, 1), *scale = random_floats(N, 1);
    double *want = host_bytes(n_out * sizeof *want);
    for (int i = 0; i < p.n; i++)
        for (int c = 0; c < p.at[i].rows / POOL * (p.at[i].cols / POOL); c++) {
            int cols = p.at[i].cols / POOL;
            double sum = 0, *h = want + (size_t)(p.at[i].first_cell + c) * N;
            for (int d = 0; d < N; d++) {
                for (int k = 0; k < POOL * POOL; k++) {
                    int patch = p.at[i].first_patch + (c / cols * POOL + k / POOL) * p.at[i].cols +
                                c % cols * POOL + k % POOL;
                    h[d] += (double)x[(size_t)patch * N + (size_t)d] / (POOL * POOL);
                }
                h[d] *= sqrt(N);
                h[d] = standard ? (h[d] - bias[d]) * scale[d] : h[d];
                sum += h[d] * h[d];
            }
            for (int d = 0; d < N; d++)
                h[d] /= sqrt(sum / N + 1e-6);
        }
    dg_cuda_rows out = device_rows(form, p.n_cell, N);
    dg_cuda_pool_args args = {out,
                              device_floats(x, n),
                              standard ? device_floats(bias, N) : NULL,
                              standard ? device_floats(scale, N) : NULL,
                              POOL,
                              N,
                              1e-6f,
                              p};
    launched(dg_cuda_vision_pool(NULL, &args));
    expect_close("soft", rows_read(out, p.n_cell, N), want, n_out, 1e-5 + form_step(form), 1e-5);
    case_end();
}

/* ---- ranges ---- */

static double hold(double v, dg_cuda_range r)
{
    return v < r.min ? r.min : v > r.max ? r.max : v;
}

static void check_ranges(dg_cuda_form form)
{
    if (!case_begin("pictures: ranges"))
        return;
    enum { ROWS = 3, N = 70 };
    dg_cuda_range r = {0.25f, 1.5f}; /* zero is outside: what lies behind a row stays zero */
    const float *x = random_floats((size_t)ROWS * N, 2), *up = random_floats((size_t)ROWS * N, 1);
    double want[ROWS * N], gelu[ROWS * N];
    float *y = device_floats(x, (size_t)ROWS * N), got[ROWS * N];
    dg_cuda_rows in = device_rows_of(form, x, ROWS, N), out = device_rows(form, ROWS, N),
                 h = device_rows(form, ROWS, N);
    const float *narrow = rows_read(in, ROWS, N);
    double divided = form == DG_CUDA_F16 ? DG_CUDA_GATED : 1;
    for (int i = 0; i < ROWS * N; i++) {
        double u = 0.7978845608 * (x[i] + 0.044715 * pow(x[i], 3));
        want[i] = hold(narrow[i], r);
        gelu[i] = hold(0.5 * x[i] * (1 + tanh(u)) * up[i], r) / divided;
    }
    launched(dg_cuda_hold_rows(NULL, out, in, ROWS, N, r));
    expect_close("rows", rows_read(out, ROWS, N), want, (size_t)ROWS * N, 0, 0);
    launched(dg_cuda_gelu(NULL, h, y, device_floats(up, (size_t)ROWS * N), ROWS, N, r));
    expect_close("gelu", rows_read(h, ROWS, N), gelu, (size_t)ROWS * N, 1e-5 + form_step(form),
                 1e-6);
    launched(dg_cuda_hold(NULL, y, N, ROWS, N - 1, r));
    device_read(got, y, sizeof got);
    for (int i = 0; i < ROWS * N; i++)
        want[i] = i % N < N - 1 ? hold(x[i], r) : x[i];
    expect_close("floats", got, want, (size_t)ROWS * N, 0, 0);
    case_end();
}

void check_cuda_vision(void)
{
    static const scene scenes[] = {
        {2, 72, false, true, 3, {{3, 3}, {6, 33}, {9, 5}}}, /* more than a block, and fewer */
        {2, 72, false, true, 1, {{1, 64}}},                 /* whole turns */
        {2, 72, false, false, 3, {{3, 3}, {6, 33}, {9, 5}}},
        {1, 72, false, false, 2, {{2, 192}, {3, 128}}}, /* turns behind the stages there are */
        {3, 68, false, false, 3, {{5, 7}, {2, 50}, {1, 1}}},
        {1, 64, false, false, 2, {{3, 11}, {3, 3}}},
        {3, 12, false, false, 2, {{5, 7}, {2, 50}}}, /* padded heads, and rows of o behind them */
        {1, 96, false, false, 1, {{3, 13}}},         /* no tensor cores */
        {2, 72, true, false, 2, {{3, 15}, {3, 3}}},
        {3, 16, true, false, 1, {{3, 9}}},
    };
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        check_attention(&scenes[i], scenes[i].exact ? DG_CUDA_F32 : (dg_cuda_form)(1 + i % 2));
    check_spoilt(false);
    check_spoilt(true);
    for (int form = DG_CUDA_F32; form <= DG_CUDA_F16; form++) {
        check_pixels((dg_cuda_form)form);
        check_pool((dg_cuda_form)form, form != DG_CUDA_BF16);
        check_ranges((dg_cuda_form)form);
    }
    check_positions(DG_F32);
    check_positions(DG_F16);
    check_positions(DG_BF16);
}
