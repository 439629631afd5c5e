/* The kernels that read or write stored types: packing, widening, narrowing, axpy. */
#include "kernels/check.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void begin_typed(check *c, char name[32], const char *kernel, dg_dtype t)
{
    snprintf(name, 32, "%s %s", kernel, dg_dtype_name(t));
    check_begin(c, name);
}

/* n bytes of anything (NaN, infinities, subnormals among it) on an odd address. */
static unsigned char *any_bytes(check *c, size_t n)
{
    unsigned char *p = check_bytes(c, n + 1);
    for (size_t i = 0; i < n + 1; i++)
        p[i] = (unsigned char)check_bits(c);
    return p + 1;
}

/* n stored values of ordinary size, on an odd address. */
static unsigned char *stored_normal(check *c, dg_dtype t, int n)
{
    unsigned char *p = (unsigned char *)check_bytes(c, (size_t)n * dg_dtype_size(t) + 1) + 1;
    p[-1] = 0;
    dg_narrow(p, t, check_normal(c, n, 1), (size_t)n);
    return p;
}

typedef dg_pack_cols_fn pack_fn; /* rows and columns are packed by functions of one shape */

/* A source of n_run runs of `len` elements, some bytes apart. */
static void check_pack_once(check *c, pack_fn *ref, pack_fn *opt, size_t size, bool cols, int n_k,
                            int n_col)
{
    const int n_run = cols ? n_col : n_k, len = cols ? n_k : n_col;
    const size_t stride = (size_t)len * size + (size_t)check_int(c, 0, 7);
    const unsigned char *src = any_bytes(c, (size_t)(n_run - 1) * stride + (size_t)len * size);
    float *got = check_floats(c, n_k * DG_PANEL), *want = check_floats(c, n_k * DG_PANEL);
    opt(got, src, stride, n_k, n_col);
    ref(want, src, stride, n_k, n_col);
    check_same(c, "the reference", got, want, n_k * DG_PANEL); /* widening is exact */
    check_release(c);
}

static void check_pack(check *c, dg_dtype t, bool cols)
{
    static const int depths[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 17, 100, 257};
    const size_t size = dg_dtype_size(t);
    pack_fn *ref = cols ? c->ref->pack_cols[t] : c->ref->pack_rows[t];
    pack_fn *opt = cols ? c->opt->pack_cols[t] : c->opt->pack_rows[t];
    char name[32];
    begin_typed(c, name, cols ? "pack_cols" : "pack_rows", t);
    for (size_t i = 0; i < DG_COUNT(depths); i++)
        for (int n_col = 1; n_col <= DG_PANEL; n_col++)
            check_pack_once(c, ref, opt, size, cols, depths[i], n_col);

    enum { N_K = 256, WIDTH = 2816 };
    const int n = (cols ? DG_PANEL : N_K) * WIDTH;
    const unsigned char *src = stored_normal(c, t, n);
    float *panel = check_floats(c, N_K * DG_PANEL);
    BENCH(c, "n_k 256", (double)N_K * DG_PANEL, "Gelem/s")
    opt(panel, src, WIDTH * size, N_K, DG_PANEL);
    check_end(c);
}

static void check_widen(check *c, dg_dtype t)
{
    const size_t size = dg_dtype_size(t);
    char name[32];
    begin_typed(c, name, "widen", t);
    for (int i = 0; i < n_check_sizes; i++) {
        const int n = check_sizes[i];
        const unsigned char *in = any_bytes(c, (size_t)n * size);
        float *got = check_floats(c, n), *want = check_floats(c, n);
        c->opt->widen[t](got, in, n);
        c->ref->widen[t](want, in, n);
        check_same(c, "the reference", got, want, n);
        check_release(c);
    }

    /* Every 16-bit pattern there is; as pairs for f32, where it is a copy. */
    enum { ALL = 65536 };
    unsigned char *in = check_bytes(c, ALL * size);
    for (unsigned i = 0; i < ALL * size / 2; i++)
        memcpy(in + (size_t)2 * i, &(uint16_t){(uint16_t)i}, 2);
    float *got = check_floats(c, ALL), *want = check_floats(c, ALL);
    c->opt->widen[t](got, in, ALL);
    c->ref->widen[t](want, in, ALL);
    check_same(c, "the reference", got, want, ALL);
    BENCH(c, "n 4096", 4096, "Gelem/s") c->opt->widen[t](got, in, 4096);
    c->opt->widen[t](got, in, 0);
    check_end(c);
}

/* Blocks of any bytes: every scale there is, NaN and infinity among them, and every number. */
static void check_widen_blocks(check *c, dg_dtype t)
{
    const int block = (int)dg_dtype_block(t);
    char name[32];
    begin_typed(c, name, "widen", t);
    for (int n = 0; n <= 40 * block; n += block) {
        const unsigned char *in = any_bytes(c, dg_dtype_bytes(t, (size_t)n));
        float *got = check_floats(c, n + 1), *want = check_floats(c, n + 1);
        got[n] = want[n] = 7; /* not one more */
        c->opt->widen[t](got, in, n);
        c->ref->widen[t](want, in, n);
        check_same(c, "the reference", got, want, n + 1);
        check_release(c);
    }
    const unsigned char *in = any_bytes(c, dg_dtype_bytes(t, 4096));
    float *got = check_floats(c, 4096);
    BENCH(c, "n 4096", 4096, "Gelem/s") c->opt->widen[t](got, in, 4096);
    BENCH(c, "n 4096, plain C", 4096, "Gelem/s") c->ref->widen[t](got, in, 4096);
    check_end(c);
}

/* Bit patterns where rounding decides: any float, and ties of both narrow types. */
static float *hard_floats(check *c, int n)
{
    float *x = check_floats(c, n);
    for (int i = 0; i < n; i++) {
        uint64_t r = check_bits(c);
        uint32_t bits = (uint32_t)r;
        switch (r >> 60) {
        case 0:
            bits = (bits & 0xFFFF0000u) | 0x8000u;
            break;
        case 1:
            bits = (bits & 0xFFFFE000u) | 0x1000u;
            break;
        case 2: /* of half precision, subnormals included */
        case 3:
        case 4:
            bits = (bits & 0x80FFFFFFu) | (uint32_t)(0x33 + (r >> 32) % 21) << 24;
            break;
        case 5:
            bits |= 0x7F800000u;
            break;
        case 6:
            bits &= 0x807FFFFFu;
            break;
        default:
            break;
        }
        memcpy(&x[i], &bits, sizeof bits);
    }
    return x;
}

static void check_narrow_once(check *c, dg_dtype t, int n)
{
    const size_t size = dg_dtype_size(t), bytes = (size_t)n * size;
    const float *in = hard_floats(c, n);
    unsigned char *got = any_bytes(c, bytes), *want = any_bytes(c, bytes);
    c->opt->narrow[t](got, in, n);
    c->ref->narrow[t](want, in, n);
    /* Compared as floats, so that NaN equals NaN. */
    float *got_wide = check_floats(c, n), *want_wide = check_floats(c, n);
    dg_widen(got_wide, got, t, (size_t)n);
    dg_widen(want_wide, want, t, (size_t)n);
    check_same(c, "the reference", got_wide, want_wide, n);
    check_release(c);
}

static void check_narrow(check *c, dg_dtype t)
{
    char name[32];
    begin_typed(c, name, "narrow", t);
    for (int i = 0; i < n_check_sizes; i++)
        check_narrow_once(c, t, check_sizes[i]);
    check_narrow_once(c, t, 100003);

    const float *in = check_normal(c, 4096, 1);
    void *out = check_bytes(c, 4096 * dg_dtype_size(t));
    BENCH(c, "n 4096", 4096, "Gelem/s") c->opt->narrow[t](out, in, 4096);
    c->opt->narrow[t](out, in, 0);
    check_end(c);
}

static void check_axpy(check *c, dg_dtype t)
{
    const size_t size = dg_dtype_size(t);
    char name[32];
    begin_typed(c, name, "axpy", t);
    for (int i = 0; i < n_check_sizes; i++) {
        const int n = check_sizes[i];
        const float a = (float)check_uniform(c, -2, 2), *y = check_normal(c, n, 1);
        const unsigned char *x = stored_normal(c, t, n);
        float *wide = check_floats(c, n), *fused = check_floats(c, n);
        dg_widen(wide, x, t, (size_t)n);
        for (int j = 0; j < n; j++)
            fused[j] = fmaf(a, wide[j], y[j]);

        float *got = check_copy(c, y, n), *want = check_copy(c, y, n);
        c->opt->axpy[t](got, a, x, n);
        c->ref->axpy[t](want, a, x, n);
        check_close(c, got, want, n, (check_tol){.rel = 0x1p-23}); /* rounded once, or twice */
        check_same(c, "fmaf", got, fused, n);

        float *pieces = check_copy(c, y, n);
        const int first = check_int(c, 0, n);
        c->opt->axpy[t](pieces, a, x, first);
        c->opt->axpy[t](pieces + first, a, x + (size_t)first * size, n - first);
        check_same(c, "in two pieces", pieces, got, n);
        check_release(c);
    }
    float *y = check_normal(c, 4096, 1);
    const unsigned char *x = stored_normal(c, t, 4096);
    BENCH(c, "n 4096", 4096, "Gelem/s") c->opt->axpy[t](y, 1e-9f, x, 4096);
    check_end(c);
}

/* As axpy, word after word. */
static void check_add_rows(check *c)
{
    enum { ROWS = 19 };
    check_begin(c, "add_rows");
    for (int i = 0; i < n_check_sizes; i++) {
        const int n_col = check_sizes[i], n = i % 5 ? check_int(c, 1, ROWS) : 0;
        const float *rows = check_normal(c, ROWS * n_col, 1);
        float *got = check_normal(c, n_col, 1), *want = check_copy(c, got, n_col),
              *steps = check_copy(c, got, n_col), *size = check_floats(c, n_col);
        dg_likely word[ROWS];
        for (int j = 0; j < n; j++)
            word[j] = (dg_likely){check_int(c, 0, ROWS - 1), (float)check_uniform(c, 0, 1)};
        c->opt->add_rows(got, word, n, rows, n_col);
        c->ref->add_rows(want, word, n, rows, n_col);
        for (int j = 0; j < n; j++)
            c->opt->axpy[DG_F32](steps, word[j].p, rows + word[j].id * n_col, n_col);
        for (int j = 0; j < n_col; j++)
            size[j] = 8 * ROWS;
        check_close(c, got, want, n_col, (check_tol){.abs = 0x1p-23, .size = size});
        check_same(c, "one by one", got, steps, n_col);
        check_release(c);
    }
    enum { COLS = 256, WORDS = 8 };
    const float *rows = check_normal(c, ROWS * COLS, 1);
    float *y = check_normal(c, COLS, 1);
    dg_likely word[WORDS];
    for (int j = 0; j < WORDS; j++)
        word[j] = (dg_likely){2 * j, 0x1p-20f};
    BENCH(c, "8 of 256", WORDS * COLS, "Gelem/s") c->opt->add_rows(y, word, WORDS, rows, COLS);
    check_end(c);
}

void check_stored(check *c)
{
    for (int t = 0; t < DG_DTYPE_FLOAT; t++) {
        check_pack(c, (dg_dtype)t, true);
        check_pack(c, (dg_dtype)t, false);
        check_widen(c, (dg_dtype)t);
        check_narrow(c, (dg_dtype)t);
        check_axpy(c, (dg_dtype)t);
    }
    for (int t = DG_DTYPE_FLOAT; t < DG_DTYPE_COMPUTE; t++)
        check_widen_blocks(c, (dg_dtype)t);
    check_add_rows(c);
}
