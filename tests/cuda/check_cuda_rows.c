/* cuda_rows.cu against sums in double. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "cuda/cuda_check.h"
#include "cuda/cuda_words.h"
#include "tensor/dtype.h"

static const char *const form_name[] = {"f32", "bf16", "f16", "e4m3"};

static const float *weights(int n) /* around 1, as a norm's are */
{
    float *w = random_floats((size_t)n, 0.3);
    for (int i = 0; i < n; i++)
        w[i] += 1;
    return w;
}

static void norm_of(double *out, const double *x, const float *w, int n, double eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        out[i] = x[i] / sqrt(sum / n + eps) * (w ? w[i] : 1);
}

static double *widened(const float *x, size_t n)
{
    double *d = host_bytes(n * sizeof *d);
    for (size_t i = 0; i < n; i++)
        d[i] = x[i];
    return d;
}

static double *norms_of(const float *x, const float *w, int n_row, int n, double eps)
{
    double *d = widened(x, (size_t)n_row * (size_t)n);
    for (int r = 0; r < n_row; r++)
        norm_of(d + (size_t)r * (size_t)n, d + (size_t)r * (size_t)n, w, n, eps);
    return d;
}

static void *device_floats(const float *host, size_t n)
{
    return device_copy(host, n * sizeof *host);
}

/* What a small value may be off by: E4M3 has 1/28,672 of a row's largest as its smallest normal. */
static double form_least(dg_cuda_form form)
{
    return form == DG_CUDA_E4M3 ? 1e-4 : 1e-7;
}

static void check_norm(dg_cuda_form form, dg_cuda_form form2, int n_row, int n)
{
    if (!case_begin("norm: %s and %s, %d x %d", form_name[form], form_name[form2], n_row, n))
        return;
    size_t all = (size_t)n_row * (size_t)n;
    const float *x = random_floats(all, 3), *w = weights(n), *w2 = weights(n);
    const float *dx = device_floats(x, all), *dw = device_floats(w, (size_t)n),
                *dw2 = device_floats(w2, (size_t)n);
    dg_cuda_rows out = device_rows(form, n_row, n), out2 = device_rows(form2, n_row, n),
                 one = device_rows(form, n_row, n);
    launched(dg_cuda_norm2(NULL, out, dw, out2, dw2, dx, n_row, n, 1e-6f));
    launched(dg_cuda_norm(NULL, one, dx, NULL, n_row, n, 1e-6f));
    expect_close("first", rows_read(out, n_row, n), norms_of(x, w, n_row, n, 1e-6), all,
                 1e-6 + form_step(form), form_least(form));
    expect_close("second", rows_read(out2, n_row, n), norms_of(x, w2, n_row, n, 1e-6), all,
                 1e-6 + form_step(form2), form_least(form2));
    expect_close("without weight", rows_read(one, n_row, n), norms_of(x, NULL, n_row, n, 1e-6), all,
                 1e-6 + form_step(form), form_least(form));
    case_end();
}

/* Byte for byte as the host rounds them. */
static void check_as_they_are(dg_cuda_form form, int n_row, int n)
{
    if (!case_begin("rows as they are: %s, %d x %d", form_name[form], n_row, n))
        return;
    size_t all = (size_t)n_row * (size_t)n;
    const float *x = random_floats(all, 3);
    dg_cuda_rows out = device_rows(form, n_row, n), want = device_rows_of(form, x, n_row, n);
    launched(dg_cuda_narrow(NULL, out, device_floats(x, all), n_row, n));
    expect_same("rows", rows_read(out, n_row, n), rows_read(want, n_row, n), all * sizeof(float));
    case_end();
}

/* Halves saturate, NaN stays. */
static void check_norm_range(void)
{
    if (!case_begin("norm: the range of halves"))
        return;
    float x[4] = {1, -1, 0.5f, 0.25f}, w[4] = {1e9f, 1e9f, 1, 1};
    float *bad = host_bytes(sizeof x);
    bad[0] = NAN;
    dg_cuda_rows out = device_rows(DG_CUDA_F16, 1, 4);
    const float *dw = device_floats(w, 4);
    launched(dg_cuda_norm(NULL, out, device_floats(x, 4), dw, 1, 4, 0));
    const float *got = rows_read(out, 1, 4);
    if (got[0] != 65504 || got[1] != -65504)
        case_fail("%g %g", (double)got[0], (double)got[1]);
    launched(dg_cuda_norm(NULL, out, device_floats(bad, 4), dw, 1, 4, 0));
    got = rows_read(out, 1, 4);
    if (!isnan(got[0]) || !isnan(got[3]))
        case_fail("NaN became %g", (double)got[0]);
    case_end();
}

/* The norms that are made of x once it has changed. */
typedef struct after {
    dg_cuda_next of[2];
    const float *w[2];
} after;

static after make_after(int n_row, int n)
{
    after out;
    for (int i = 0; i < 2; i++) {
        out.w[i] = weights(n);
        out.of[i].out = device_rows(i           ? DG_CUDA_F16
                                    : n_row % 2 ? DG_CUDA_E4M3
                                                : DG_CUDA_BF16,
                                    n_row, n);
        out.of[i].w = device_floats(out.w[i], (size_t)n);
    }
    return out;
}

static void expect_after(const after *a, const float *x, int n_row, int n)
{
    for (int i = 0; i < 2; i++)
        expect_close(i ? "the second norm behind it" : "the norm behind it",
                     rows_read(a->of[i].out, n_row, n), norms_of(x, a->w[i], n_row, n, 1e-6),
                     (size_t)n_row * (size_t)n, 2e-6 + form_step(a->of[i].out.form),
                     1e-6 + form_least(a->of[i].out.form));
}

/* Rows of which the first is so small that its norm is a matter of eps. */
static float *rows_from_small(int n_row, int n, double size)
{
    float *rows = random_floats((size_t)n_row * (size_t)n, size);
    for (int i = 0; i < n; i++)
        rows[i] *= (float)(1e-3 / size);
    return rows;
}

static void check_add_norm(int n_row, int n)
{
    if (!case_begin("add_norm: %d x %d", n_row, n))
        return;
    size_t all = (size_t)n_row * (size_t)n;
    const float *x = random_floats(all, 3), *y = rows_from_small(n_row, n, 30), *w = weights(n);
    float *dx = device_floats(x, all), *got = host_bytes(all * sizeof *got);
    double *want = norms_of(y, w, n_row, n, 1e-6);
    for (size_t i = 0; i < all; i++)
        want[i] += x[i];
    after next = make_after(n_row, n);
    dg_cuda_add_args a = {.x = dx,
                          .y = device_floats(y, all),
                          .w = device_floats(w, (size_t)n),
                          .n_row = n_row,
                          .n = n,
                          .eps = 1e-6f,
                          .next = {next.of[0], next.of[1]}};
    launched(dg_cuda_add_norm(NULL, &a));
    device_read(got, dx, all * sizeof *got);
    expect_close("x", got, want, all, 1e-6, 2e-6);
    expect_after(&next, got, n_row, n);
    case_end();
}

/* The same norms of x made by themselves: rows have their bits whoever makes them. */
static void expect_same_apart(const after *a, const float *dx, int n_row, int n)
{
    after apart = *a;
    for (int i = 0; i < 2; i++)
        apart.of[i].out = device_rows(a->of[i].out.form, n_row, n);
    launched(dg_cuda_norm2(NULL, apart.of[0].out, apart.of[0].w, apart.of[1].out, apart.of[1].w, dx,
                           n_row, n, 1e-6f));
    for (int i = 0; i < 2; i++)
        expect_same(i ? "the second norm apart" : "the norm apart",
                    rows_read(a->of[i].out, n_row, n), rows_read(apart.of[i].out, n_row, n),
                    (size_t)n_row * (size_t)n * sizeof(float));
}

/* Rows of a first step, and such that have nothing to start from, are zero. */
static void check_soft_norm(dg_cuda_form form, int n_row, int n)
{
    if (!case_begin("soft_norm: %s, %d x %d", form_name[form], n_row, n))
        return;
    size_t all = (size_t)n_row * (size_t)n;
    float *soft = random_floats(all, 3), *d = device_floats(soft, all),
          *w = random_floats((size_t)n, 1);
    dg_cuda_word_row *row = host_bytes((size_t)n_row * sizeof *row);
    double *want = norms_of(soft, w, n_row, n, 1e-6);
    for (int r = 0; r < n_row; r++) {
        row[r].soft = r % 4 == 2 ? NULL : d + (size_t)r * (size_t)n;
        row[r].first_step = r % 4 == 1;
        for (int i = 0; (!row[r].soft || row[r].first_step) && i < n; i++)
            want[(size_t)r * (size_t)n + (size_t)i] = 0;
    }
    dg_cuda_next out = {device_rows(form, n_row, n), device_floats(w, (size_t)n)};
    launched(dg_cuda_soft_norm(NULL, out, device_copy(row, (size_t)n_row * sizeof *row), n_row, n,
                               1e-6f));
    expect_close("rows", rows_read(out.out, n_row, n), want, all, 1e-6 + form_step(form),
                 form_least(form));
    case_end();
}

static void check_soft_join(int n_row, int n)
{
    if (!case_begin("soft_join: %d x %d", n_row, n))
        return;
    size_t all = (size_t)n_row * (size_t)n;
    const float *x = random_floats(all, 3), *y = random_floats(all, 2);
    float *dx = device_floats(x, all), *alone = device_floats(x, all),
          *got = host_bytes(all * sizeof *got), *other = host_bytes(all * sizeof *other);
    double *want = widened(x, all);
    for (size_t i = 0; i < all; i++)
        want[i] += y[i];
    for (int r = 0; r < n_row; r++)
        norm_of(want + (size_t)r * (size_t)n, want + (size_t)r * (size_t)n, NULL, n, 1e-6);
    after next = make_after(n_row, n);
    dg_cuda_soft_join_args a = {
        .x = alone, .y = device_floats(y, all), .n_row = n_row, .n = n, .eps = 1e-6f};
    launched(dg_cuda_soft_join(NULL, &a));
    a.x = dx;
    memcpy(a.next, next.of, sizeof next.of);
    launched(dg_cuda_soft_join(NULL, &a));
    device_read(got, dx, all * sizeof *got);
    device_read(other, alone, all * sizeof *other);
    expect_close("x", got, want, all, 1e-6, 2e-6);
    expect_same("x without norms", other, got, all * sizeof *got);
    expect_after(&next, got, n_row, n);
    expect_same_apart(&next, dx, n_row, n);
    case_end();
}

static void check_join(int n_row, int n, int n_encode)
{
    if (!case_begin("join: %d x %d, %d encoded", n_row, n, n_encode))
        return;
    size_t all = (size_t)n_row * (size_t)n, row = (size_t)n;
    const float *x = random_floats(all, 3), *dense = rows_from_small(n_row, n, 30),
                *experts = rows_from_small(n_row, n, 0.1);
    const float *w_dense = weights(n), *w_experts = weights(n), *w = weights(n);
    float *dx = device_floats(x, all), *got = host_bytes(all * sizeof *got);
    double *want = norms_of(dense, w_dense, n_row, n, 1e-6),
           *other = norms_of(experts, w_experts, n_row, n, 1e-6);
    for (int r = 0; r < n_row; r++) {
        double *to = want + (size_t)r * row;
        for (size_t i = 0; i < row; i++)
            to[i] += other[(size_t)r * row + i];
        norm_of(to, to, w, n, 1e-6);
        for (size_t i = 0; i < row; i++)
            to[i] = (x[(size_t)r * row + i] + to[i]) * (r < n_encode ? 0.5 : 0.75);
    }
    dg_cuda_join_args a = {
        .x = dx,
        .dense = device_floats(dense, all),
        .experts = device_floats(experts, all),
        .w_dense = device_floats(w_dense, row),
        .w_experts = device_floats(w_experts, row),
        .w = device_floats(w, row),
        .n_row = n_row,
        .n = n,
        .n_encode = n_encode,
        .eps = 1e-6f,
        .scalar_encode = 0.5f,
        .scalar_canvas = 0.75f,
    };
    after next = make_after(n_row, n);
    memcpy(a.next, next.of, sizeof next.of);
    launched(dg_cuda_join(NULL, &a));
    device_read(got, dx, all * sizeof *got);
    expect_close("x", got, want, all, 1e-6, 3e-6);
    expect_after(&next, got, n_row, n);
    case_end();
}

/* What down gave for `n_used` choices of each row, at places of chance; `sum`: of each row's. */
static dg_cuda_choices make_choices(float *sum, int n_row, int n, int n_used, dg_cuda_form form)
{
    int n_pair = n_row * n_used, ld = (n + 7) / 8 * 8;
    size_t all = (size_t)n_pair * (size_t)ld;
    uint16_t *bits = host_bytes(all * sizeof *bits);
    int32_t *place = host_bytes((size_t)n_pair * sizeof *place);
    float *in = random_floats(all, 0.3), *weight = random_floats((size_t)n_pair, 0.2);
    for (int i = 0; i < n_pair; i++) { /* a permutation */
        int j = random_int(0, i);
        place[i] = place[j];
        place[j] = i;
    }
    if (form == DG_CUDA_BF16) {
        dg_narrow(bits, DG_BF16, in, all);
        dg_widen(in, bits, DG_BF16, all);
    }
    for (int i = 0; i < n_row * n; i++) {
        int r = i / n;
        sum[i] = 0;
        for (int p = r * n_used; p < (r + 1) * n_used; p++)
            sum[i] = fmaf(weight[p], in[(size_t)place[p] * (size_t)ld + (size_t)(i % n)], sum[i]);
    }
    void *rows = form == DG_CUDA_BF16 ? device_copy(bits, all * sizeof *bits)
                                      : device_copy(in, all * sizeof *in);
    return (dg_cuda_choices){{form, rows, ld},
                             device_copy(place, (size_t)n_pair * sizeof *place),
                             device_floats(weight, (size_t)n_pair),
                             n_used};
}

/* The norms of rows from `first` on, all with the weight of w. */
static void next_from(dg_cuda_next next[2], const after *a, const after *w, int first)
{
    for (int i = 0; i < 2; i++)
        next[i] = (dg_cuda_next){dg_cuda_rows_from(a->of[i].out, first), w->of[0].w};
}

/* The same bits of both norms. */
static void expect_same_norms(const char *behind, const after a[2], int n_row, int n)
{
    char what[64];
    for (int i = 0; i < 2; i++) {
        snprintf(what, sizeof what, "%s norm behind %s", i ? "the second" : "the first", behind);
        expect_same(what, rows_read(a[0].of[i].out, n_row, n), rows_read(a[1].of[i].out, n_row, n),
                    (size_t)n_row * (size_t)n * sizeof(float));
    }
}

/* Both ends of a layer with many rows: rows have the bits that they have among few. */
static void check_many_alone(int n_row, int n, int n_used)
{
    if (!case_begin("many rows: %d x %d, %d choices", n_row, n, n_used))
        return;
    enum { FEW = 7 };
    size_t all = (size_t)n_row * (size_t)n, row = (size_t)n;
    float *sum = host_bytes(all * sizeof *sum), *got[2];
    const float *start = random_floats(all, 3), *w[3] = {weights(n), weights(n), weights(n)};
    dg_cuda_choices choices = make_choices(sum, n_row, n, n_used, DG_CUDA_BF16);
    const float *dense = device_floats(random_floats(all, 30), all);
    after added[2] = {make_after(n_row, n), make_after(n_row, n)},
          joined[2] = {make_after(n_row, n), make_after(n_row, n)};
    for (int few = 0; few < 2; few++) {
        float *x = device_floats(start, all);
        for (int first = 0; first < n_row; first += few ? FEW : n_row) {
            int now = few && n_row - first > FEW ? FEW : n_row - first;
            size_t at = (size_t)first * row;
            dg_cuda_add_args add = {.x = x + at,
                                    .y = dense + at,
                                    .w = device_floats(w[0], row),
                                    .n_row = now,
                                    .n = n,
                                    .eps = 1e-6f};
            next_from(add.next, &added[few], &added[0], first);
            launched(dg_cuda_add_norm(NULL, &add));
            dg_cuda_join_args join = {.x = x + at,
                                      .dense = dense + at,
                                      .w_dense = device_floats(w[0], row),
                                      .w_experts = device_floats(w[1], row),
                                      .w = device_floats(w[2], row),
                                      .n_row = now,
                                      .n = n,
                                      .n_encode = first == 0 ? 3 : 0,
                                      .eps = 1e-6f,
                                      .scalar_encode = 0.5f,
                                      .scalar_canvas = 0.75f,
                                      .choices = choices};
            next_from(join.next, &joined[few], &joined[0], first);
            join.choices.place += (size_t)first * (size_t)n_used;
            join.choices.weight += (size_t)first * (size_t)n_used;
            launched(dg_cuda_join(NULL, &join));
        }
        got[few] = host_bytes(all * sizeof *got[few]);
        device_read(got[few], x, all * sizeof *got[few]);
    }
    expect_same("x", got[0], got[1], all * sizeof *got[0]);
    expect_same_norms("add", added, n_row, n);
    expect_same_norms("join", joined, n_row, n);
    case_end();
}

/* Choices summed at the end of a layer: the same bits as with their sum. */
static void check_join_choices(int n_row, int n, int n_used, dg_cuda_form form)
{
    if (!case_begin("join: %d choices of %d x %d", n_used, n_row, n))
        return;
    size_t all = (size_t)n_row * (size_t)n, row = (size_t)n;
    float *experts = host_bytes(all * sizeof *experts), *x[2], *got[2];
    const float *start = random_floats(all, 3);
    dg_cuda_choices choices = make_choices(experts, n_row, n, n_used, form);
    dg_cuda_join_args a = {.dense = device_floats(random_floats(all, 30), all),
                           .experts = device_floats(experts, all),
                           .w_dense = device_floats(weights(n), row),
                           .w_experts = device_floats(weights(n), row),
                           .w = device_floats(weights(n), row),
                           .n_row = n_row,
                           .n = n,
                           .eps = 1e-6f,
                           .scalar_canvas = 0.75f};
    for (int i = 0; i < 2; i++) {
        a.x = x[i] = device_floats(start, all);
        launched(dg_cuda_join(NULL, &a));
        got[i] = host_bytes(all * sizeof *got[i]);
        device_read(got[i], x[i], all * sizeof *got[i]);
        a.choices = choices;
    }
    expect_same("x", got[1], got[0], all * sizeof *got[0]);
    case_end();
}

/* The table's values are exact: the same bits as the definition's, times the scale. */
static void check_embed(dg_dtype type)
{
    enum { N = 512, WORDS = 19, ROWS = 7 };
    if (!case_begin("embed: %s", dg_dtype_name(type)))
        return;
    size_t row_bytes = dg_dtype_bytes(type, N);
    unsigned char *table = host_bytes(WORDS * row_bytes);
    for (size_t i = 0; i < WORDS * row_bytes; i++)
        table[i] = (unsigned char)random_bits();
    int32_t token[ROWS];
    float *want = host_bytes(sizeof(float) * ROWS * N), *got = host_bytes(sizeof(float) * ROWS * N);
    const float *feature = random_floats(N, 1), *pointer[ROWS] = {NULL}, scale = 53.0663f,
                table_scale = 0.37f;
    pointer[3] = device_floats(feature, N);
    for (int r = 0; r < ROWS; r++) {
        token[r] = random_int(0, WORDS - 1);
        float *row = want + r * N;
        dg_widen(row, table + (size_t)token[r] * row_bytes, type, N);
        for (int i = 0; i < N; i++) {
            float value = dg_dtype_is_block(type) ? row[i] * table_scale : row[i];
            row[i] = r == 3 ? feature[i] : value * scale;
        }
    }
    dg_cuda_embed_args a = {
        .x = device_bytes(sizeof(float) * ROWS * N),
        .table = device_copy(table, WORDS * row_bytes),
        .type = type,
        .row_bytes = row_bytes,
        .table_scale = device_floats(&table_scale, 1),
        .scale = scale,
        .token = device_copy(token, sizeof token),
        .feature = device_copy(pointer, sizeof pointer),
        .n_row = ROWS,
        .n = N,
    };
    launched(dg_cuda_embed(NULL, &a));
    device_read(got, a.x, sizeof(float) * ROWS * N);
    for (int i = 0; i < ROWS * N; i++)
        if (got[i] != want[i] && !(isnan(got[i]) && isnan(want[i]))) {
            case_fail("value %d of row %d is %.9g, not %.9g", i % N, i / N, (double)got[i],
                      (double)want[i]);
            break;
        }
    case_end();
}

static void check_embed_refusal(void)
{
    if (!case_begin("embed: what cannot be a weight"))
        return;
    if (dg_cuda_embed(NULL, &(dg_cuda_embed_args){.type = DG_I32, .n_row = 1}) !=
        cudaErrorNotSupported)
        case_fail("I32 was taken");
    case_end();
}

/* ---- the router ---- */

typedef struct route_case {
    int n_row, n, n_expert, n_used;
    dg_dtype type;                             /* what w is sent as */
    const float *x, *scale, *w, *expert_scale; /* host */
    int32_t *expert;
    float *weight;
} route_case;

static void *route_weights(const route_case *c)
{
    size_t n = (size_t)c->n * (size_t)c->n_expert;
    uint16_t *narrow = host_bytes(n * sizeof *narrow);
    for (size_t i = 0; i < n; i++)
        narrow[i] = dg_float_to_bf16(c->w[i]);
    return c->type == DG_BF16 ? device_copy(narrow, n * sizeof *narrow) : device_floats(c->w, n);
}

/* Its two steps by themselves, as a pass with many rows has them on two streams. */
static void expect_route_apart(const route_case *c, dg_cuda_route_args a)
{
    size_t used = (size_t)c->n_row * (size_t)c->n_used;
    int32_t *expert = host_bytes(used * 4);
    float *weight = host_bytes(used * 4);
    a.expert = device_bytes(used * 4);
    a.weight = device_bytes(used * 4);
    launched(dg_cuda_route_multiply(NULL, &a));
    a.follows_stream = true;
    launched(dg_cuda_route_pick(NULL, &a));
    device_read(expert, a.expert, used * 4);
    device_read(weight, a.weight, used * 4);
    expect_same("experts in two steps", expert, c->expert, used * 4);
    expect_same("weights in two steps", weight, c->weight, used * 4);
}

static void run_route(const route_case *c)
{
    size_t n = (size_t)c->n, rows = (size_t)c->n_row, used = rows * (size_t)c->n_used;
    dg_cuda_route_args a = {
        .expert = device_bytes(used * 4),
        .weight = device_bytes(used * 4),
        .x = device_floats(c->x, rows * n),
        .scale = device_floats(c->scale, n),
        .w = route_weights(c),
        .w_type = c->type,
        .expert_scale = device_floats(c->expert_scale, (size_t)c->n_expert),
        .n_row = c->n_row,
        .n = c->n,
        .n_expert = c->n_expert,
        .n_used = c->n_used,
        .eps = 1e-6f,
        .scratch = device_bytes(dg_cuda_route_bytes(c->n_row, c->n, c->n_expert)),
    };
    launched(dg_cuda_route(NULL, &a));
    device_read(c->expert, a.expert, used * 4);
    device_read(c->weight, a.weight, used * 4);
    expect_route_apart(c, a);
}

/* Weights that are bfloat16, so that both types have them. */
static route_case route_data(int n_row, int n, int n_expert, int n_used)
{
    size_t rows = (size_t)n_row, cols = (size_t)n, experts = (size_t)n_expert,
           used = rows * (size_t)n_used;
    float *w = random_floats(experts * cols, 1);
    for (size_t i = 0; i < experts * cols; i++)
        w[i] = dg_bf16_to_float(dg_float_to_bf16(w[i]));
    return (route_case){n_row,
                        n,
                        n_expert,
                        n_used,
                        DG_F32,
                        random_floats(rows * cols, 3),
                        weights(n),
                        w,
                        weights(n_expert),
                        host_bytes(used * 4),
                        host_bytes(used * 4)};
}

/* Softmax of one row, in double. */
static void route_softmax(double *p, const route_case *c, int row)
{
    const float *x = c->x + (size_t)row * (size_t)c->n;
    double squares = 0, most = -1e300, sum = 0;
    for (int k = 0; k < c->n; k++)
        squares += (double)x[k] * x[k];
    double factor = 1 / sqrt(squares / c->n + 1e-6) / sqrt(c->n);
    for (int e = 0; e < c->n_expert; e++) {
        p[e] = 0;
        for (int k = 0; k < c->n; k++)
            p[e] += (double)x[k] * c->scale[k] * c->w[(size_t)e * (size_t)c->n + (size_t)k];
        p[e] *= factor;
        most = fmax(most, p[e]);
    }
    for (int e = 0; e < c->n_expert; e++)
        sum += p[e] = exp(p[e] - most);
    for (int e = 0; e < c->n_expert; e++)
        p[e] /= sum;
}

static void expect_route(const route_case *c, int row)
{
    double *p = host_bytes((size_t)c->n_expert * sizeof *p), sum = 0;
    bool *taken = host_bytes((size_t)c->n_expert * sizeof *taken);
    const int32_t *expert = c->expert + (size_t)row * (size_t)c->n_used;
    route_softmax(p, c, row);
    for (int j = 0; j < c->n_used; j++) {
        int e = expert[j];
        if (e < 0 || e >= c->n_expert || taken[e]) {
            case_fail("row %d: pick %d is %d", row, j, e);
            return;
        }
        taken[e] = true;
        for (int other = 0; other < c->n_expert; other++)
            if (!taken[other] && p[other] > p[e] * (1 + 1e-5))
                case_fail("row %d: pick %d is %d, but %d is likelier", row, j, e, other);
        sum += p[e];
    }
    for (int j = 0; j < c->n_used; j++) {
        double want = p[expert[j]] / sum * c->expert_scale[expert[j]];
        float got = c->weight[(size_t)row * (size_t)c->n_used + (size_t)j];
        expect_close("weight", &got, &want, 1, 2e-5, 1e-7);
    }
}

static void check_route(int n_row, int n, int n_expert, int n_used)
{
    if (!case_begin("route: %d rows, %d of %d experts, n %d", n_row, n_used, n_expert, n))
        return;
    route_case c = route_data(n_row, n, n_expert, n_used);
    run_route(&c);
    for (int r = 0; r < n_row; r++)
        expect_route(&c, r);
    /* the last row alone: the same bits */
    route_case one = c;
    one.n_row = 1;
    one.x = c.x + (size_t)(n_row - 1) * (size_t)n;
    one.expert = host_bytes((size_t)n_used * 4);
    one.weight = host_bytes((size_t)n_used * 4);
    run_route(&one);
    size_t last = (size_t)(n_row - 1) * (size_t)n_used;
    expect_same("experts of a row alone", one.expert, c.expert + last, (size_t)n_used * 4);
    expect_same("weights of a row alone", one.weight, c.weight + last, (size_t)n_used * 4);
    /* weights as bfloat16: the same bits */
    route_case narrow = c;
    size_t used = (size_t)n_row * (size_t)n_used * 4;
    narrow.type = DG_BF16;
    narrow.expert = host_bytes(used);
    narrow.weight = host_bytes(used);
    run_route(&narrow);
    expect_same("experts of short weights", narrow.expert, c.expert, used);
    expect_same("weights of short weights", narrow.weight, c.weight, used);
    case_end();
}

/* Weights that are no bfloat16. */
static void check_route_floats(void)
{
    if (!case_begin("route: weights of all bits"))
        return;
    route_case c = route_data(5, 720, 128, 8);
    c.w = random_floats(720 * 128, 1);
    run_route(&c);
    for (int r = 0; r < 5; r++)
        expect_route(&c, r);
    case_end();
}

/* Equal probabilities go to the lowest index; no numbers still give experts. */
static void check_route_ties(void)
{
    if (!case_begin("route: ties and no numbers"))
        return;
    route_case c = route_data(2, 64, 40, 5);
    float *w = random_floats(40 * 64, 0), *x = random_floats(2 * 64, 1);
    for (int k = 0; k < 64; k++) /* 7, 35 and 36 like each other, the rest alike below them */
        w[7 * 64 + k] = w[35 * 64 + k] = w[36 * 64 + k] = x[k] * 0.25f;
    x[64] = NAN;
    c.w = w;
    c.x = x;
    run_route(&c);
    static const int32_t want[5] = {7, 35, 36, 0, 1};
    expect_same("picks", c.expert, want, sizeof want);
    for (int j = 0; j < 5; j++) {
        if (c.expert[5 + j] != j)
            case_fail("no numbers: pick %d is %d", j, c.expert[5 + j]);
        if (!isnan(c.weight[5 + j]))
            case_fail("no numbers: weight %g", (double)c.weight[5 + j]);
    }
    case_end();
}

void check_cuda_rows(void)
{
    static const int sizes[][2] = {{1, 1},    {3, 7},    {2, 64},  {5, 100},
                                   {2, 1023}, {3, 2816}, {1, 5376}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_norm(DG_CUDA_F32, DG_CUDA_BF16, sizes[i][0], sizes[i][1]);
        check_norm(DG_CUDA_BF16, DG_CUDA_F16, sizes[i][0], sizes[i][1]);
        check_norm(DG_CUDA_F16, DG_CUDA_F32, sizes[i][0], sizes[i][1]);
        check_norm(DG_CUDA_E4M3, DG_CUDA_E4M3, sizes[i][0], sizes[i][1]);
        for (int form = DG_CUDA_BF16; form <= DG_CUDA_E4M3; form++)
            check_as_they_are((dg_cuda_form)form, sizes[i][0], sizes[i][1]);
        check_add_norm(sizes[i][0], sizes[i][1]);
        check_join(sizes[i][0], sizes[i][1], 1);
        check_soft_join(sizes[i][0], sizes[i][1]);
        for (int form = DG_CUDA_F32; form <= DG_CUDA_E4M3; form++)
            check_soft_norm((dg_cuda_form)form, sizes[i][0], sizes[i][1]);
    }
    check_soft_join(513, 68);
    check_soft_norm(DG_CUDA_BF16, 513, 68);
    check_add_norm(512, 72);
    check_add_norm(777, 64);
    check_add_norm(515, 2816);
    check_many_alone(512, 2816, 8);
    check_many_alone(1031, 72, 8);
    check_many_alone(600, 3072, 5);
    check_many_alone(530, 104, 1);
    check_many_alone(514, 72, 9);  /* more choices than many rows' form takes, */
    check_many_alone(514, 100, 8); /* and no whole pieces */
#ifdef EMULATED
    emu_set_device(9, 0, 3); /* blocks with many rows each */
    check_many_alone(517, 72, 8);
    check_add_norm(515, 64);
    emu_set_device(9, 0, 132);
#endif
    check_join_choices(3, 2816, 8, DG_CUDA_BF16);
    check_join_choices(2, 68, 3, DG_CUDA_BF16);
    check_join_choices(2, 100, 9, DG_CUDA_F32);
    check_norm_range();
    for (int type = 0; type < DG_IQ1_S; type++) /* the others are widened before */
        check_embed((dg_dtype)type);
    check_embed_refusal();
    check_route(1, 64, 8, 2);
    check_route(33, 100, 5, 5);
    check_route(7, 47, 70, 3);
    check_route(35, 704, 128, 8);
    check_route(3, 2816, 128, 8);
    check_route(2, 320, 200, 40);
    check_route(2, 3200, 128, 8); /* more parts than are asked for at once */
    check_route(64, 720, 128, 8); /* whole blocks */
    check_route(32, 2816, 64, 8);
    check_route(32, 712, 64, 8); /* and such that are whole but for one side */
    check_route(32, 2816, 70, 8);
    check_route(512, 720, 128, 8); /* many rows: whole blocks, */
    check_route(513, 360, 4, 3);   /* blocks that are not, */
    check_route(577, 712, 130, 8);
    check_route(515, 8, 70, 1);
    check_route(520, 47, 5, 2); /* and lines that few rows' form takes */
    check_route(512, 16, 1024, 64);
    check_route_floats();
    check_route_ties();
}
