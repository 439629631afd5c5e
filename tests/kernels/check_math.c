/* The kernels with a transcendental in them. Their value is a double's, rounded once: half a unit
 * and a little, and so is the reference's. */
#include "kernels/check.h"
#include <math.h>
#include <string.h>

static const double one_unit =
    0x1p-23; /* two values that round the same number differ by no more */

static const float special[] = {
    0.0f,   -0.0f,   1e-45f, -1e-45f, 1e-38f, -1e-38f, 1e-20f,   -1e-20f,   1.0f,   -1.0f,   9.0f,
    -9.0f,  20.0f,   -20.0f, 88.7f,   -87.4f, 89.0f,   -103.9f,  -104.0f,   700.0f, -700.0f, 709.6f,
    710.0f, -710.0f, 1e10f,  -1e10f,  3e38f,  -3e38f,  INFINITY, -INFINITY, NAN};

/* n values over many sizes, the special ones in front of a long vector. */
static float *many_sizes(check *c, int n, double largest)
{
    float *x = check_floats(c, n);
    for (int i = 0; i < n; i++) {
        double size = check_int(c, 0, 1) ? largest : exp2(check_uniform(c, -30, log2(largest)));
        x[i] = (float)check_uniform(c, -size, size);
    }
    if (n > 100)
        memcpy(x, special, sizeof special);
    return x;
}

enum { LONG = 200003 };

static int size_at(int i)
{
    return i < n_check_sizes ? check_sizes[i] : LONG;
}

static void check_gelu(check *c)
{
    check_begin(c, "gelu_mul");
    for (int i = 0; i <= n_check_sizes; i++) {
        const int n = size_at(i);
        const float *gate = many_sizes(c, n, 12), *up = check_normal(c, n, 2);
        float *got = check_floats(c, n), *want = check_floats(c, n), *size = check_floats(c, n);
        c->opt->gelu_mul(got, gate, up, n);
        c->ref->gelu_mul(want, gate, up, n);
        for (int j = 0; j < n; j++)
            size[j] = fabsf(gate[j] * up[j]) < INFINITY ? fabsf(gate[j] * up[j]) : 0;
        /* 1 + tanh in the reference loses 2^-53 where gate is far below 0 */
        check_close(c, got, want, n, (check_tol){.rel = one_unit, .abs = 0x1p-51, .size = size});

        float *pieces = check_copy(c, gate, n);
        const int first = check_int(c, 0, n);
        c->opt->gelu_mul(pieces, pieces, up, first);
        c->opt->gelu_mul(pieces + first, pieces + first, up + first, n - first);
        check_same(c, "in two pieces, in place", pieces, got, n);
        memcpy(pieces, up, (size_t)n * sizeof *up);
        c->opt->gelu_mul(pieces, gate, pieces, n);
        check_same(c, "in the place of up", pieces, got, n);
        check_release(c);
    }
    const float *gate = check_normal(c, 2112, 1), *up = check_normal(c, 2112, 1);
    float *y = check_floats(c, 2112);
    BENCH(c, "n 2112", 2112, "Gelem/s") c->opt->gelu_mul(y, gate, up, 2112);
    check_end(c);
}

static void check_softcap(check *c)
{
    check_begin(c, "softcap");
    for (int i = 0; i <= n_check_sizes; i++) {
        const int n = size_at(i);
        const float cap = i % 2 ? 30.0f : (float)check_uniform(c, 0.1, 100);
        const float cold = i % 3 ? (float)check_uniform(c, 0.3, 1.5) : 1;
        const float *z = many_sizes(c, n, 200);
        float *got = check_copy(c, z, n), *want = check_copy(c, z, n);
        c->opt->softcap(got, n, cap, cold);
        c->ref->softcap(want, n, cap, cold);
        /* the quotient of neighbours, rounded again */
        check_close(c, got, want, n, (check_tol){.rel = cold == 1 ? one_unit : 2 * one_unit});

        float *odd = check_floats(c, n);
        for (int j = 0; j < n; j++)
            odd[j] = -z[j];
        const int first = check_int(c, 0, n);
        c->opt->softcap(odd, first, cap, cold);
        c->opt->softcap(odd + first, n - first, cap, cold);
        for (int j = 0; j < n; j++)
            odd[j] = -odd[j];
        check_same(c, "negated, in two pieces", odd, got, n);
        check_release(c);
    }
    const float *z = check_normal(c, 4096, 10);
    float *work = check_copy(c, z, 4096);
    BENCH(c, "n 4096", 4096, "Gelem/s") c->opt->softcap(work, 4096, 30, 0.6f);
    check_end(c);
}

static void check_exp(check *c)
{
    check_begin(c, "exp_shift");
    for (int i = 0; i <= n_check_sizes; i++) {
        const int n = size_at(i);
        const float shift = i % 3 ? (float)check_uniform(c, -30, 30) : 0;
        const float *z = many_sizes(c, n, 120);
        float *got = check_floats(c, n), *want = check_floats(c, n);
        c->opt->exp_shift(got, z, n, shift);
        c->ref->exp_shift(want, z, n, shift);
        check_close(c, got, want, n, (check_tol){.rel = one_unit});
        for (int j = 0; j < n; j++)
            if (got[j] > 0 && got[j] < 0x1p-126f)
                check_fail(c, "n %d: [%d] is %.9g, below 2^-126 and not 0", n, j, (double)got[j]);

        float *pieces = check_copy(c, z, n);
        const int first = check_int(c, 0, n);
        c->opt->exp_shift(pieces, pieces, first, shift);
        c->opt->exp_shift(pieces + first, pieces + first, n - first, shift);
        check_same(c, "in two pieces, in place", pieces, got, n);
        check_release(c);
    }
    const float *z = check_normal(c, 4096, 10);
    float *e = check_floats(c, 4096);
    BENCH(c, "n 4096", 4096, "Gelem/s") c->opt->exp_shift(e, z, 4096, 3);
    check_end(c);
}

/* In one pass what exp_shift, sum, dot and a maximum give, to the bit. */
static void check_exp_sums(check *c)
{
    check_begin(c, "exp_sums");
    for (int i = 0; i < n_check_sizes; i++) {
        const int n = check_sizes[i];
        const float shift = i % 3 ? (float)check_uniform(c, -30, 30) : 120;
        const float *z = check_normal(c, n, 40);
        float *e = check_floats(c, n), *want = check_floats(c, n), *d = check_floats(c, n);
        float most = 0;
        for (int j = 0; j < n; j++)
            d[j] = z[j] - shift;
        c->opt->exp_shift(want, d, n, 0);
        for (int j = 0; j < n; j++)
            most = want[j] > most ? want[j] : most;
        dg_exp_sums s = c->opt->exp_sums(e, z, n, shift), r = c->ref->exp_sums(d, z, n, shift);
        check_same(c, "exponentials", e, want, n);
        check_close(c, e, d, n, (check_tol){.rel = one_unit});
        if (s.most != most || !(fabs(s.mass - r.mass) <= one_unit * r.mass || s.mass == r.mass))
            check_fail(c, "n %d: %.9g at most, mass %.9g for %.9g", n, (double)s.most, s.mass,
                       r.mass);
        for (int j = 0; j < n; j++)
            d[j] = z[j] - shift;
        if (s.mass != c->opt->sum(e, n) || s.slope != c->opt->dot(e, d, n))
            check_fail(c, "n %d: other sums than of one after the other", n);
        check_release(c);
    }
    float with_nan[9] = {NAN, -1, NAN, 2, 0.5f, -INFINITY, 1, 0, NAN}, e[9];
    dg_exp_sums s = c->opt->exp_sums(e, with_nan, 9, 2);
    if (!isnan(s.mass) || s.most != 1 || !isnan(e[8]) || e[5] != 0)
        check_fail(c, "NaN: mass %.9g, at most %.9g", s.mass, (double)s.most);
    const float *z = check_normal(c, 512, 10);
    float *out = check_floats(c, 512);
    BENCH(c, "n 512", 512, "Gelem/s") c->opt->exp_sums(out, z, 512, 3);
    check_end(c);
}

void check_math(check *c)
{
    check_gelu(c);
    check_softcap(c);
    check_exp(c);
    check_exp_sums(c);
}
