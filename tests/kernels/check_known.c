/* The bits of the kernels, recorded once: those of NEON and AVX2 are the same, and those of the
 * reference are the same on every processor. Inputs are made of integers alone, so that nothing but
 * the kernel can differ. */
#include <string.h>
#include "base/rng.h"
#include "kernels/check.h"

enum { N = 1003 }; /* with a tail */

/* n values between -size and size, number `which` of such vectors. */
static float *values(check *c, int n, double size, uint32_t which)
{
    dg_rng_key key = {.seed = 1, .stream = which};
    float *x = check_floats(c, n);
    for (int i = 0; i < n; i++)
        x[i] = (float)(size * (2 * dg_rng_uniform(&key, (uint32_t)i) - 1));
    return x;
}

static uint64_t hashed(const void *value, size_t n)
{
    const unsigned char *b = value;
    uint64_t hash = 0;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ b[i]) * UINT64_C(0x100000001B3);
    return hash;
}

static uint64_t floats_hashed(const float *x, int n)
{
    return hashed(x, (size_t)n * sizeof *x);
}

static uint64_t gemm_bits(check *c, const dg_kernels *k)
{
    enum { ROWS = 11, K = 83 };
    float *y = values(c, ROWS * DG_PANEL, 1, 2);
    const float *x = values(c, ROWS * K, 1, 3), *w = values(c, DG_PANEL * K, 1, 4);
    void *panel = check_bytes(c, DG_PANEL * K * sizeof *w);
    k->pack_cols[DG_F32](panel, w, K * sizeof *w, K, DG_PANEL);
    k->gemm_panel(&(dg_gemm_args){y, x, panel, DG_PANEL, K, ROWS, K, DG_PANEL, true});
    return floats_hashed(y, ROWS * DG_PANEL);
}

static uint64_t rmsnorm_bits(check *c, const dg_kernels *k)
{
    float *y = check_floats(c, N);
    k->rmsnorm(y, values(c, N, 3, 5), values(c, N, 1, 6), N, 1e-6f);
    return floats_hashed(y, N);
}

static uint64_t rope_bits(check *c, const dg_kernels *k)
{
    float *x = values(c, 2 * N, 2, 7);
    k->rope(x, values(c, N, 1, 8), values(c, N, 1, 9), N, N);
    return floats_hashed(x, 2 * N);
}

static uint64_t gelu_bits(check *c, const dg_kernels *k)
{
    float *y = check_floats(c, N);
    k->gelu_mul(y, values(c, N, 9, 10), values(c, N, 2, 11), N);
    return floats_hashed(y, N);
}

static uint64_t softcap_bits(check *c, const dg_kernels *k)
{
    float *z = values(c, N, 90, 12);
    k->softcap(z, N, 30, 1);
    return floats_hashed(z, N);
}

static uint64_t exp_bits(check *c, const dg_kernels *k)
{
    float *e = values(c, N, 50, 13);
    k->exp_shift(e, e, N, 45.5f);
    return floats_hashed(e, N);
}

static uint64_t sum_bits(check *c, const dg_kernels *k)
{
    double sum = k->sum(values(c, N, 1, 14), N);
    return hashed(&sum, sizeof sum);
}

static uint64_t dot_bits(check *c, const dg_kernels *k)
{
    double dot = k->dot(values(c, N, 1, 15), values(c, N, 1e10, 16), N);
    return hashed(&dot, sizeof dot);
}

static uint64_t axpy_bits(check *c, const dg_kernels *k)
{
    float *y = values(c, N, 1, 17);
    k->axpy[DG_F32](y, 0.7f, values(c, N, 1, 18), N);
    return floats_hashed(y, N);
}

static const struct {
    const char *name;
    uint64_t (*bits)(check *c, const dg_kernels *k);
    uint64_t fast, reference;
} known[] = {
    {"gemm_panel bits", gemm_bits, UINT64_C(0xF5ABBD8BAA30B9C4), UINT64_C(0xCE3B7DB7DC1C02EE)},
    {"rmsnorm bits", rmsnorm_bits, UINT64_C(0xF7B79AD838BB0703), UINT64_C(0xF7B79AD838BB0703)},
    {"rope bits", rope_bits, UINT64_C(0xA1A53A7FA2BF7357), UINT64_C(0xFEBF248BDD17A8B0)},
    {"gelu_mul bits", gelu_bits, UINT64_C(0xFEA19DD3FBF58C72), UINT64_C(0xACC52CAEEFF47E28)},
    {"softcap bits", softcap_bits, UINT64_C(0xD32AA51D457DF778), UINT64_C(0xD32AA51D457DF778)},
    {"exp_shift bits", exp_bits, UINT64_C(0x266494AB3DCE0948), UINT64_C(0x266494AB3DCE0948)},
    {"sum bits", sum_bits, UINT64_C(0x273E1B0548AA5271), UINT64_C(0x273E1B0548AA5271)},
    {"dot bits", dot_bits, UINT64_C(0x21834E886293317F), UINT64_C(0xDCA8C796F009570C)},
    {"axpy bits", axpy_bits, UINT64_C(0xC337C484E6546CE2), UINT64_C(0xC337C484E6546CE2)},
};

void check_known(check *c, const dg_kernels *k, bool reference)
{
    for (size_t i = 0; i < DG_COUNT(known); i++) {
        check_begin(c, known[i].name);
        uint64_t got = known[i].bits(c, k);
        if (got != (reference ? known[i].reference : known[i].fast))
            check_fail(c, "0x%016llX", (unsigned long long)got);
        check_release(c);
        check_end(c);
    }
}
