/* cuda_narrow.cu against tensor/narrowed.h on the host, byte for byte. */
#include <math.h>
#include <string.h>
#include "cuda/cuda_check.h"
#include "tensor/narrowed.h"

/* Matrices of very different sizes, a row of zeros, and one matrix with a value that is not finite.
 */
static float *make_values(int n_mat, int n_out, int n_in)
{
    size_t each = (size_t)n_out * (size_t)n_in;
    float *v = random_floats((size_t)n_mat * each, 0.02);
    for (int m = 0; m < n_mat; m++) {
        float *mat = v + (size_t)m * each;
        for (size_t i = 0; i < each; i++)
            mat[i] *= m % 3 == 0 ? 1 : m % 3 == 1 ? 37 : 1e-4f;
        memset(mat + (size_t)(m % n_out) * (size_t)n_in, 0, (size_t)n_in * sizeof *mat);
    }
    v[(size_t)(n_mat - 1) * each + 5] = INFINITY;
    return v;
}

/* What a row should become: ld values of it, zeros behind its end. */
static void narrow_row(unsigned char *out, const float *row, int n_in, int ld, dg_dtype to,
                       float factor)
{
    float *wide = host_bytes((size_t)ld * sizeof *wide);
    memcpy(wide, row, (size_t)n_in * sizeof *wide);
    for (int i = 0; i < ld; i++)
        if (to == DG_FP8)
            out[i] = dg_float_to_e4m3(wide[i] * (1 / factor));
        else if (i % DG_INT4_VALUES == 0)
            dg_int4_block(out + i / DG_INT4_VALUES * DG_INT4_BYTES, wide + i);
}

static float factor_of_matrix(const float *v, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = dg_narrowed_bits(fabsf(v[i]));
        most = bits > most ? bits : most;
    }
    return dg_fp8_factor(most);
}

static void check_narrow(dg_dtype from, dg_dtype to, int n_mat, int n_out, int n_in)
{
    if (!case_begin("narrow: %s to %s, %d x %d x %d", dg_dtype_name(from), dg_dtype_name(to), n_mat,
                    n_out, n_in))
        return;
    size_t each = (size_t)n_out * (size_t)n_in, n = (size_t)n_mat * each,
           bytes = dg_cuda_narrow_bytes(to, n_out, n_in), row = bytes / (size_t)n_out;
    float *v = make_values(n_mat, n_out, n_in);
    unsigned char *stored = host_bytes(dg_dtype_bytes(from, n)),
                  *want = host_bytes((size_t)n_mat * bytes),
                  *got = host_bytes((size_t)n_mat * bytes);
    float *factor = host_bytes((size_t)n_mat * sizeof *factor),
          *found = host_bytes((size_t)n_mat * sizeof *found);
    dg_narrow(stored, from, v, n);
    dg_widen(v, stored, from, n);
    for (int m = 0; m < n_mat; m++) {
        factor[m] = factor_of_matrix(v + (size_t)m * each, each);
        for (int r = 0; r < n_out; r++)
            narrow_row(want + (size_t)m * bytes + (size_t)r * row,
                       v + (size_t)m * each + (size_t)r * (size_t)n_in, n_in, dg_cuda_ld(n_in), to,
                       factor[m]);
    }
    dg_cuda_narrow_args a = {.out = device_bytes((size_t)n_mat * bytes),
                             .factor = device_bytes((size_t)n_mat * sizeof(float)),
                             .stored = device_copy(stored, dg_dtype_bytes(from, n)),
                             .mat_bytes = dg_dtype_bytes(from, each),
                             .from = from,
                             .to = to,
                             .n_mat = n_mat,
                             .n_out = n_out,
                             .n_in = n_in};
    launched(dg_cuda_narrow_weights(NULL, &a));
    device_read(got, a.out, (size_t)n_mat * bytes);
    expect_same("rows", got, want, (size_t)n_mat * bytes);
    if (to == DG_FP8) {
        device_read(found, a.factor, (size_t)n_mat * sizeof *found);
        expect_same("factors", found, factor, (size_t)n_mat * sizeof *found);
    }
    case_end();
}

void check_cuda_narrow(void)
{
    static const dg_dtype from[] = {DG_F32, DG_F16, DG_BF16}, to[] = {DG_FP8, DG_INT4};
    for (int t = 0; t < 2; t++) {
        for (int f = 0; f < 3; f++)
            check_narrow(from[f], to[t], 4, 7, 70);
        check_narrow(DG_BF16, to[t], 2, 3, 704);
        check_narrow(DG_BF16, to[t], 1, 2, 4500); /* more than a block of threads has */
    }
}
