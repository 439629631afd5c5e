/* The kernels that walk a row: norms, rotation, sums, the largest. */
#include "kernels/check.h"
#include <math.h>
#include <string.h>

static void check_rmsnorm(check *c)
{
    static const double scales[] = {0, 1e-30, 1e-4, 1, 1e4, 1e30};
    check_begin(c, "rmsnorm");
    for (int i = 0; i < n_check_sizes * (int)DG_COUNT(scales); i++) {
        const int n = check_sizes[i % n_check_sizes];
        const float *x = check_normal(c, n, scales[i / n_check_sizes]);
        const float *w = check_int(c, 0, 3) ? check_normal(c, n, 1) : NULL;
        float *got = check_floats(c, n), *want = check_floats(c, n);
        c->opt->rmsnorm(got, x, w, n, 1e-6f);
        c->ref->rmsnorm(want, x, w, n, 1e-6f);
        /* the same sums in double, in another order, then one rounding */
        check_close(c, got, want, n, (check_tol){.rel = 0x1p-23});

        float *in_place = check_copy(c, x, n);
        c->opt->rmsnorm(in_place, in_place, w, n, 1e-6f);
        check_same(c, "in place", in_place, got, n);
        check_release(c);
    }
    const float *x = check_normal(c, 2816, 1), *w = check_normal(c, 2816, 1);
    float *y = check_floats(c, 2816);
    BENCH(c, "n 2816", 2816, "Gelem/s") c->opt->rmsnorm(y, x, w, 2816, 1e-6f);
    check_end(c);
}

static void check_rope_once(check *c, int n_pair, int half)
{
    const float *x = check_normal(c, n_pair + half, 1);
    float *cosine = check_floats(c, n_pair), *sine = check_floats(c, n_pair);
    float *size = check_floats(c, n_pair + half);
    memset(size, 0, (size_t)(n_pair + half) * sizeof *size);
    for (int i = 0; i < n_pair; i++) {
        double angle = check_uniform(c, -4, 4);
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
        size[i] = size[i + half] = fabsf(x[i]) + fabsf(x[i + half]);
    }
    float *got = check_copy(c, x, n_pair + half), *want = check_copy(c, x, n_pair + half);
    c->opt->rope(got, cosine, sine, n_pair, half);
    c->ref->rope(want, cosine, sine, n_pair, half);
    /* two roundings of half a unit, no larger than the operands */
    check_close(c, got, want, n_pair + half, (check_tol){.abs = 0x1p-23, .size = size});

    float *pieces = check_copy(c, x, n_pair + half);
    const int first = check_int(c, 0, n_pair);
    c->opt->rope(pieces, cosine, sine, first, half);
    c->opt->rope(pieces + first, cosine + first, sine + first, n_pair - first, half);
    check_same(c, "in two pieces", pieces, got, n_pair + half);
    check_release(c);
}

static void check_rope(check *c)
{
    check_begin(c, "rope");
    for (int i = 0; i < n_check_sizes; i++) {
        check_rope_once(c, check_sizes[i], check_sizes[i]);
        check_rope_once(c, check_sizes[i], check_sizes[i] + check_int(c, 1, 40));
    }
    float *x = check_normal(c, 256, 1);
    const float *cosine = check_normal(c, 128, 0.5), *sine = check_normal(c, 128, 0.5);
    BENCH(c, "n_pair 128", 256, "Gelem/s") c->opt->rope(x, cosine, sine, 128, 128);
    check_end(c);
}

/* Sums of n doubles in some order: n roundings of the sum of sizes. */
static void check_total(check *c, double got, double want, double size, int n)
{
    if (!(fabs(got - want) <= n * 0x1p-53 * size))
        check_fail(c, "n %d: %.17g, the reference %.17g", n, got, want);
}

static void check_sum_dot(check *c, bool dot)
{
    check_begin(c, dot ? "dot" : "sum");
    for (int i = 0; i < n_check_sizes; i++) {
        const int n = check_sizes[i];
        const float *x = check_normal(c, n, 3), *y = check_normal(c, n, 1e10);
        double size = 0;
        for (int j = 0; j < n; j++)
            size += fabs((double)x[j] * (dot ? (double)y[j] : 1));
        if (dot)
            check_total(c, c->opt->dot(x, y, n), c->ref->dot(x, y, n), size, n);
        else
            check_total(c, c->opt->sum(x, n), c->ref->sum(x, n), size, n);
        const float *moved = check_copy(c, x, n);
        if (!dot && c->opt->sum(moved, n) != c->opt->sum(x, n))
            check_fail(c, "n %d: depends on where the vector lies", n);
        check_release(c);
    }
    const float *x = check_normal(c, 4096, 1), *y = check_normal(c, 4096, 1);
    volatile double result = 0;
    if (dot) {
        BENCH(c, "n 4096", 4096, "Gelem/s") result = c->opt->dot(x, y, 4096);
    } else {
        BENCH(c, "n 4096", 4096, "Gelem/s") result = c->opt->sum(x, 4096);
    }
    (void)result;
    check_end(c);
}

static void check_argmax_once(check *c, const float *x, int n)
{
    float got_max = 0, want_max = 0;
    int got = c->opt->argmax(x, n, &got_max), want = c->ref->argmax(x, n, &want_max);
    if (got != want)
        check_fail(c, "n %d: [%d] = %.9g, the reference [%d] = %.9g", n, got, (double)got_max, want,
                   (double)want_max);
    check_same(c, "the largest", &got_max, &want_max, 1);
}

static void check_argmax(check *c)
{
    /* Few different values, so that equals, both zeros and runs of NaN are common. */
    const float few[] = {NAN, -INFINITY, -2, -0.0f, 0.0f, 1, INFINITY};
    check_begin(c, "argmax");
    for (int i = 0; i < n_check_sizes; i++) {
        const int n = check_sizes[i];
        check_argmax_once(c, check_normal(c, n, 1), n);
        for (int n_few = 1; n_few <= (int)DG_COUNT(few); n_few++) {
            float *x = check_floats(c, n);
            for (int j = 0; j < n; j++)
                x[j] = few[check_int(c, 0, n_few - 1)];
            check_argmax_once(c, x, n);
        }
        check_release(c);
    }
    const float *x = check_normal(c, 4096, 1);
    float max = 0;
    volatile int result = 0;
    BENCH(c, "n 4096", 4096, "Gelem/s") result = c->opt->argmax(x, 4096, &max);
    (void)result;
    check_end(c);
}

void check_rows(check *c)
{
    check_rmsnorm(c);
    check_rope(c);
    check_sum_dot(c, false);
    check_sum_dot(c, true);
    check_argmax(c);
}
