/* cuda_pack.cu, cuda_product.cu and cuda_experts.cu against sums in double over what the stored
 * weights mean. */
#include <math.h>
#include <string.h>
#include "cuda/check_experts.h"
#include "cuda/cuda_product.cuh"
#include "tensor/dtype.h"
#include "tensor/narrowed.h"

/* ---- weights ---- */

static void pack_weights(stored *w)
{
    dg_cuda_matrix *m = &w->matrix;
    m->slabs = w->dense && m->type != DG_F32 && dg_cuda_has_groups();
    size_t bytes =
        m->slabs   ? dg_cuda_slab_bytes(m->n_out, m->type == DG_FP8 ? (m->n_in + 1) / 2 : m->n_in)
        : w->gated ? dg_cuda_pack_gated_bytes(m->type, m->n_out, m->n_in)
                   : dg_cuda_pack_bytes(m->type, m->n_out, m->n_in);
    void *packed = device_bytes((size_t)m->n_mat * bytes);
    launched(m->slabs ? dg_cuda_pack_slabs(NULL, packed, w->stored, m->type, m->n_out, m->n_in)
                      : (w->gated  ? dg_cuda_pack_gated
                         : w->down ? dg_cuda_pack_down
                                   : dg_cuda_pack)(NULL, packed, w->stored, w->mat_bytes, m->type,
                                                   m->n_mat, m->n_out, m->n_in));
    m->data = packed;
}

static stored make_weights(dg_dtype type, int n_mat, int n_out, int n_in, bool dense)
{
    stored w = {.matrix = {type, n_mat, n_out, n_in, NULL, NULL, false}, .dense = dense};
    size_t each = (size_t)n_out * (size_t)n_in, n = (size_t)n_mat * each;
    float *wide = host_bytes(n * sizeof *wide);
    unsigned char *bytes = random_stored(type, n);
    w.mat_bytes = dg_dtype_bytes(type, each);
    w.value = host_bytes(n * sizeof *w.value);
    dg_widen(wide, bytes, type, n);
    for (size_t i = 0; i < n; i++)
        w.value[i] = wide[i];
    w.stored = device_copy(bytes, (size_t)n_mat * w.mat_bytes);
    pack_weights(&w);
    if (dg_dtype_is_block(type) || type == DG_FP8) { /* factors that are no powers of two */
        float *scale = host_bytes((size_t)n_mat * sizeof *scale);
        for (int m = 0; m < n_mat; m++) {
            scale[m] = (float)random_uniform(0.7, 1.4) * (type == DG_FP8 ? 1e-3f : 1);
            for (size_t i = 0; i < each; i++)
                w.value[(size_t)m * each + i] *= scale[m];
        }
        w.matrix.scale = device_copy(scale, (size_t)n_mat * sizeof *scale);
    }
    return w;
}

stored make_dense_weights(dg_dtype type, int n_out, int n_in)
{
    return make_weights(type, 1, n_out, n_in, true);
}

/* What a product may be off by, of its size: rounding of sums for values multiplied as they are, of
 * dequantised values to halves for blocks. */
static double product_limit(dg_dtype type)
{
    return type == DG_Q4_K || type == DG_Q5_K ? 1e-3 : dg_dtype_block(type) > 1 ? 5e-4 : 5e-6;
}

/* The same for dense weights. Sums of E4M3 lose their last bits in the tensor cores. */
static double dense_limit(dg_dtype type)
{
    return type == DG_FP8 ? 2e-3 : product_limit(type);
}

/* What rounding to the form changes a value by at most, of its size. */
static double rounding(dg_cuda_form form)
{
    return form == DG_CUDA_F32 ? 0x1p-24 : form == DG_CUDA_BF16 ? 0x1p-8 : 0x1p-11;
}

/* ---- rows ---- */

/* Of rows that meet dense weights. */
static dg_cuda_form dense_form(dg_dtype type)
{
    return type == DG_FP8 ? DG_CUDA_E4M3 : dg_cuda_form_of(type);
}

inputs make_inputs(dg_cuda_form form, int n_row, int n)
{
    inputs x = {device_rows_of(form, random_floats((size_t)n_row * (size_t)n, 1), n_row, n), NULL};
    x.value = rows_read(x.rows, n_row, n);
    return x;
}

static double dot(const double *w, const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += w[i] * x[i];
    return sum;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

/* ---- types and sizes ---- */

static const dg_dtype types[] = {DG_F32,  DG_BF16, DG_F16,  DG_Q8_0,   DG_Q4_0, DG_Q5_0,
                                 DG_Q4_K, DG_Q5_K, DG_Q6_K, DG_IQ4_NL, DG_MXFP4};
enum { N_TYPE = sizeof types / sizeof *types };

/* An odd size that the type can have. */
static int fitting(dg_dtype type, int n)
{
    int block = (int)dg_dtype_block(type);
    return (n + block - 1) / block * block;
}

/* On a device the one that is there; elsewhere also one without the products of warpgroups, with
 * little shared memory, or with few multiprocessors, which decide on the shape of tiles and shares.
 */
typedef struct machine {
    int capability, n_sm;
} machine;

static void use_device(machine m)
{
#ifdef EMULATED
    emu_set_device(m.capability / 10, m.capability % 10, m.n_sm);
#else
    (void)m;
#endif
}

static const machine usual = {90, 132};

/* ---- products ---- */

/* x is the identity: y is the weights, each rounded to what is multiplied. */
static void check_round_trip(dg_dtype type, machine on)
{
    int n_out = 41, n_in = fitting(type, 70);
    if (!case_begin("pack: round trip of %s, sm_%d", dg_dtype_name(type), on.capability))
        return;
    use_device(on);
    dg_cuda_form form = dg_cuda_form_of(type);
    stored w = make_weights(type, 1, n_out, n_in, true);
    size_t n = (size_t)n_in * (size_t)n_in, n_y = (size_t)n_in * (size_t)n_out;
    float *unit = host_bytes(n * sizeof *unit), *got = host_bytes(n_y * sizeof *got);
    double *want = host_bytes(n_y * sizeof *want), largest = 0;
    for (int k = 0; k < n_in; k++) {
        unit[(size_t)k * (size_t)n_in + (size_t)k] = 1;
        for (int o = 0; o < n_out; o++) {
            double v = w.value[(size_t)o * (size_t)n_in + (size_t)k];
            want[(size_t)k * (size_t)n_out + (size_t)o] = v;
            largest = fmax(largest, fabs(v));
        }
    }
    float *y = device_bytes(n_y * sizeof *y);
    dg_cuda_product_args a = {
        .n_row = n_in,
        .x = device_rows_of(form, unit, n_in, n_in),
        .alpha = 1,
        .n_part = 1,
        .part = {{&w.matrix, y, (size_t)n_out}},
    };
    launched(dg_cuda_product(NULL, &a));
    device_read(got, y, n_y * sizeof *got);
    double step = dg_dtype_is_block(type) ? 0x1p-11 : 1e-7;
    expect_close("weights", got, want, n_y, step, step * largest);
    use_device(usual);
    case_end();
}

/* Three parts of different heights over the same rows; each in rows of its own length. */
static void check_product(dg_dtype type, int n_row, int n_in, machine on)
{
    static const int n_out[3] = {150, 33, 16};
    n_in = fitting(type, n_in);
    if (!case_begin("product: %s, %d rows, k %d, sm_%d x %d", dg_dtype_name(type), n_row, n_in,
                    on.capability, on.n_sm))
        return;
    use_device(on);
    inputs x = make_inputs(dense_form(type), n_row, n_in);
    dg_cuda_product_args a = {.n_row = n_row, .x = x.rows, .alpha = 0.75f, .n_part = 3};
    stored w[3];
    float *y[3];
    for (int p = 0; p < 3; p++) {
        w[p] = make_weights(type, 1, n_out[p], n_in, true);
        a.part[p].w = &w[p].matrix;
        a.part[p].ldy = (size_t)n_out[p] + 3;
        a.part[p].y = y[p] = device_bytes((size_t)n_row * a.part[p].ldy * sizeof(float));
    }
    launched(dg_cuda_product(NULL, &a));
    for (int p = 0; p < 3; p++) {
        size_t ldy = a.part[p].ldy, n = (size_t)n_row * (size_t)n_out[p];
        float *all = host_bytes((size_t)n_row * ldy * sizeof *all),
              *got = host_bytes(n * sizeof *got);
        double *want = host_bytes(n * sizeof *want);
        device_read(all, y[p], (size_t)n_row * ldy * sizeof *all);
        for (int r = 0; r < n_row; r++) {
            memcpy(got + (size_t)r * (size_t)n_out[p], all + (size_t)r * ldy,
                   (size_t)n_out[p] * sizeof *got);
            for (int o = 0; o < n_out[p]; o++)
                want[(size_t)r * (size_t)n_out[p] + (size_t)o] =
                    0.75 * dot(w[p].value + (size_t)o * (size_t)n_in,
                               x.value + (size_t)r * (size_t)n_in, n_in);
            for (size_t i = (size_t)n_out[p]; i < ldy; i++)
                if (!isnan(all[(size_t)r * ldy + i]))
                    case_fail("row %d was written behind its end", r);
        }
        expect_relative("y", got, want, n, dense_limit(type));
    }
    use_device(usual);
    case_end();
}

/* The rows of a product are the same bits for every number of rows and every shape of tiles; of
 * values that are multiplied as they are stored also for every way to multiply. */
static void check_row_bits(dg_dtype type)
{
    static const struct {
        int n_row;
        machine on;
    } run[] = {{300, {90, 132}}, {256, {90, 1}}, {256, {90, 8}}, {200, {90, 3}}, {96, {90, 2}},
               {64, {90, 4}},    {7, {90, 132}}, {300, {80, 1}}, {200, {89, 6}}, {96, {80, 2}},
               {64, {80, 4}},    {33, {80, 3}},  {1, {80, 132}}};
    int n_out = 264, n_in = fitting(type, 190);
    if (!case_begin("product: the same rows of %s in any number", dg_dtype_name(type)))
        return;
    stored w = make_weights(type, 1, n_out, n_in, true);
    inputs x = make_inputs(dense_form(type), 300, n_in);
    size_t row = (size_t)n_out * sizeof(float);
    float *first = host_bytes(300 * row), *other = host_bytes(300 * row);
    for (size_t i = 0; i < sizeof run / sizeof *run; i++) {
        float *y = device_bytes(300 * row);
        dg_cuda_product_args a = {run[i].n_row, x.rows, 1, 1, {{&w.matrix, y, (size_t)n_out}},
                                  {NULL, 0}};
        if (type == DG_FP8 && run[i].on.capability != 90)
            continue;
        bool anew = i && dg_dtype_is_block(type) &&
                    run[i].on.capability / 10 != run[i - 1].on.capability / 10;
        use_device(run[i].on);
        pack_weights(&w);
        launched(dg_cuda_product(NULL, &a));
        device_read(i && !anew ? other : first, y, (size_t)run[i].n_row * row);
        if (i && !anew)
            expect_same("y", other, first, (size_t)run[i].n_row * row);
    }
    use_device(usual);
    case_end();
}

/* All that was to be asked for was, and once. A device does not tell. */
static void expect_asked(dg_cuda_ahead ahead)
{
#ifdef EMULATED
    const emu_ahead asked = emu_take_ahead();
    const unsigned char *data = ahead.data;
    if (asked.bytes != ahead.bytes || asked.first != data || asked.end != data + ahead.bytes)
        case_fail("%zu of %zu bytes were asked for ahead", asked.bytes, ahead.bytes);
#else
    (void)ahead;
#endif
}

/* Tiles of every size over slabs, more of them than multiprocessors: the same bits, whatever is
 * asked for ahead. */
static void check_slab_tiles(dg_dtype type)
{
    enum { N_ROW = 270, N_OUT = 332, N_IN = 660 };
    if (!case_begin("product: tiles of slabs of %s", dg_dtype_name(type)))
        return;
    if (!dg_cuda_has_groups()) {
        case_skip("the device has no products of warpgroups");
        return;
    }
    use_device((machine){90, 3});
    stored gate = make_weights(type, 1, N_OUT, N_IN, true),
           up = make_weights(type, 1, N_OUT, N_IN, true);
    inputs x = make_inputs(dense_form(type), N_ROW, N_IN);
    dg_cuda_form h_form = type == DG_FP8 ? DG_CUDA_BF16 : x.rows.form;
    size_t n_y = (size_t)N_ROW * N_OUT * sizeof(float), n_h = (size_t)N_ROW * 384 * 2;
    void *y[2] = {host_bytes(n_y), host_bytes(n_y)}, *h[2] = {host_bytes(n_h), host_bytes(n_h)};
    for (int tile = 0; tile < DG_SLAB_TILES; tile++) {
        const size_t later = 16 * (size_t)(tile * tile * 401 + tile); /* 0: nothing */
        const dg_cuda_ahead ahead = {later ? device_bytes(later) : NULL, later};
        dg_cuda_product_args a = {N_ROW, x.rows, 1, 1, {{&up.matrix, device_bytes(n_y), N_OUT}},
                                  ahead};
        dg_cuda_gated_args g = {
            N_ROW, x.rows, &gate.matrix, &up.matrix, device_rows(h_form, N_ROW, N_OUT), ahead};
        launched(dg_cuda_product_slabs(NULL, &a, (dg_slab_tile)tile));
        expect_asked(ahead);
        cudaError_t gated = dg_cuda_gated_slabs(NULL, &g, (dg_slab_tile)tile);
        if (gated != cudaErrorInvalidValue) { /* half a tile that is not whole slabs */
            launched(gated);
            expect_asked(ahead);
        }
        bool first = tile == 0;
        device_read(y[!first], a.part[0].y, n_y);
        device_read(h[!first], g.h.data, n_h);
        if (!first) {
            expect_same("y", y[1], y[0], n_y);
            if (gated != cudaErrorInvalidValue)
                expect_same("h", h[1], h[0], n_h);
        }
    }
    use_device(usual);
    case_end();
}

static void check_gated(dg_dtype type, dg_cuda_form h_form, int n_row, int n_out, int n_in,
                        machine on)
{
    n_in = fitting(type, n_in);
    if (!case_begin("gated: %s to form %d, %d rows, %d x %d", dg_dtype_name(type), (int)h_form,
                    n_row, n_out, n_in))
        return;
    use_device(on);
    inputs x = make_inputs(dense_form(type), n_row, n_in);
    stored made[2] = {make_weights(type, 1, n_out, n_in, true),
                      make_weights(type, 1, n_out, n_in, true)};
    bool up_first = n_row % 2; /* either may be first in memory */
    stored gate = made[up_first], up = made[!up_first];
    dg_cuda_gated_args a = {.n_row = n_row,
                            .x = x.rows,
                            .gate = &gate.matrix,
                            .up = &up.matrix,
                            .h = device_rows(h_form, n_row, n_out)};
    launched(dg_cuda_gated(NULL, &a));
    size_t n = (size_t)n_row * (size_t)n_out;
    float *got = rows_read(a.h, n_row, n_out);
    double *want = host_bytes(n * sizeof *want), unit = h_form == DG_CUDA_F16 ? DG_CUDA_GATED : 1;
    for (int r = 0; r < n_row; r++)
        for (int o = 0; o < n_out; o++) {
            const float *row = x.value + (size_t)r * (size_t)n_in;
            size_t at = (size_t)o * (size_t)n_in;
            want[(size_t)r * (size_t)n_out + (size_t)o] =
                gelu(dot(gate.value + at, row, n_in)) * dot(up.value + at, row, n_in) / unit;
        }
    expect_relative("h", got, want, n, 2 * dense_limit(type) + rounding(h_form));
    use_device(usual);
    case_end();
}

/* ---- experts ---- */

static stored make_expert_weights(dg_dtype type, bool down, int n_mat, int n_out, int n_in)
{
    stored w = make_weights(type, n_mat, n_out, n_in, false);
    w.gated = !down;
    w.down = down;
    pack_weights(&w);
    return w;
}

static bool of_bytes(const layer *l)
{
    return l->gate.matrix.type == DG_Q4_K;
}

static bool down_of_bytes(const layer *l)
{
    return l->down.matrix.type == DG_Q5_0 || l->down.matrix.type == DG_INT4;
}

layer make_layer(dg_dtype type, dg_dtype down, int n_expert, int n_used, int n_embd, int n_ff)
{
    layer l = {n_expert,        n_used,          fitting(type, n_embd), fitting(down, n_ff),
               {.value = NULL}, {.value = NULL}, {.value = NULL}};
    l.gate = make_expert_weights(type, false, n_expert, l.n_ff, l.n_embd);
    l.up = make_expert_weights(type, false, n_expert, l.n_ff, l.n_embd);
    l.down = make_expert_weights(down, true, n_expert, l.n_embd, l.n_ff);
    return l;
}

int32_t *make_routes(const layer *l, int n_row, bool skew)
{
    int32_t *expert = host_bytes((size_t)n_row * (size_t)l->n_used * sizeof *expert);
    int n_open = skew && l->n_expert > l->n_used ? l->n_expert - 1 : l->n_expert;
    for (int r = 0; r < n_row; r++)
        for (int j = 0; j < l->n_used; j++) {
            bool taken;
            int e;
            do {
                e = skew && random_int(0, 3) ? random_int(0, l->n_used) : random_int(0, n_open - 1);
                e = e < n_open ? e : 0;
                taken = false;
                for (int i = 0; i < j; i++)
                    taken = taken || expert[r * l->n_used + i] == e;
            } while (taken);
            expert[r * l->n_used + j] = e;
        }
    return expert;
}

/* Rows as products of bytes see them: `each` values in steps of 1/127 of the largest. */
static void round_to_bytes(float *x, size_t n, size_t each)
{
    for (size_t unit = 0; unit < n; unit += each) {
        float most = 0;
        for (size_t i = 0; i < each; i++)
            most = fmaxf(most, fabsf(x[unit + i]));
        for (size_t i = 0; i < each && most > 0; i++)
            x[unit + i] = rintf(x[unit + i] * (127 / most)) * (most / 127);
    }
}

void layer_sees(const layer *l, float *x, size_t n)
{
    if (of_bytes(l))
        round_to_bytes(x, n, 256);
    if (l->gate.matrix.type == DG_INT4)
        round_to_bytes(x, n, 64);
}

void expert_row(double *y, const layer *l, const float *x, const int32_t *expert,
                const float *weight)
{
    size_t n_embd = (size_t)l->n_embd, n_ff = (size_t)l->n_ff;
    float *h = host_bytes(n_ff * sizeof *h);
    memset(y, 0, n_embd * sizeof *y);
    for (int j = 0; j < l->n_used; j++) {
        size_t at = (size_t)expert[j] * n_embd * n_ff;
        for (size_t i = 0; i < n_ff; i++)
            h[i] = (float)(gelu(dot(l->gate.value + at + i * n_embd, x, l->n_embd)) *
                           dot(l->up.value + at + i * n_embd, x, l->n_embd));
        if (down_of_bytes(l))
            round_to_bytes(h, n_ff, l->down.matrix.type == DG_INT4 ? 64 : 32);
        for (size_t i = 0; i < n_embd; i++)
            y[i] += weight[j] * dot(l->down.value + at + i * n_ff, h, l->n_ff);
    }
}

static void run_experts(float *got, const layer *l, dg_cuda_rows x, int n_row,
                        const int32_t *expert, const float *weight)
{
    size_t n_pair = (size_t)n_row * (size_t)l->n_used,
           bytes = (size_t)n_row * (size_t)l->n_embd * sizeof(float);
    float *y = device_bytes(bytes);
    void *scratch =
        device_bytes(dg_cuda_experts_bytes(n_row, l->n_used, l->n_expert, l->n_embd, l->n_ff));
    dg_cuda_experts_args a = {.n_row = n_row,
                              .n_used = l->n_used,
                              .x = x,
                              .expert = device_copy(expert, n_pair * sizeof *expert),
                              .weight = device_copy(weight, n_pair * sizeof *weight),
                              .gate = &l->gate.matrix,
                              .up = &l->up.matrix,
                              .down = &l->down.matrix,
                              .y = y,
                              .ldy = (size_t)l->n_embd,
                              .scratch = scratch};
    launched(dg_cuda_experts(NULL, &a));
    device_read(got, y, bytes);
}

float *make_route_weights(size_t n)
{
    float *weight = host_bytes(n * sizeof *weight);
    for (size_t i = 0; i < n; i++)
        weight[i] = (float)random_uniform(0.05, 0.4);
    return weight;
}

double experts_limit(dg_dtype type, dg_dtype down)
{
    dg_cuda_form form = dg_cuda_form_of(down);
    double h = rounding(form), result = rounding(form == DG_CUDA_F32 ? form : DG_CUDA_BF16);
    return 2 * product_limit(type) + product_limit(down) + h + result;
}

static void check_experts(dg_dtype type, dg_dtype down, int n_row, const int shape[4], bool skew,
                          machine on)
{
    if (!case_begin("experts: %s and %s, %d rows, %d of %d, %d x %d%s, sm_%d x %d",
                    dg_dtype_name(type), dg_dtype_name(down), n_row, shape[1], shape[0], shape[2],
                    shape[3], skew ? ", skewed" : "", on.capability, on.n_sm))
        return;
    use_device(on);
    layer l = make_layer(type, down, shape[0], shape[1], shape[2], shape[3]);
    inputs x = make_inputs(dg_cuda_form_of(type), n_row, l.n_embd);
    int32_t *expert = make_routes(&l, n_row, skew);
    float *weight = make_route_weights((size_t)n_row * (size_t)l.n_used);
    size_t n = (size_t)n_row * (size_t)l.n_embd;
    float *got = host_bytes(n * sizeof *got);
    double *want = host_bytes(n * sizeof *want);
    run_experts(got, &l, x.rows, n_row, expert, weight);
    layer_sees(&l, x.value, n);
    for (int r = 0; r < n_row; r++) {
        size_t at = (size_t)r * (size_t)l.n_embd, pair = (size_t)r * (size_t)l.n_used;
        expert_row(want + at, &l, x.value + at, expert + pair, weight + pair);
    }
    expect_relative("y", got, want, n, experts_limit(type, down));
    use_device(usual);
    case_end();
}

/* A row among 200, which are enough for tiles, among 90, which make long pieces, alone or among 5:
 * the same bits. */
static void check_expert_bits(dg_dtype type, dg_dtype down)
{
    if (!case_begin("experts: the same rows of %s and %s in any company", dg_dtype_name(type),
                    dg_dtype_name(down)))
        return;
    layer l = make_layer(type, down, 4, 2, 64, 48);
    inputs x = make_inputs(dg_cuda_form_of(type), 200, l.n_embd);
    int32_t *expert = make_routes(&l, 200, true);
    float *weight = make_route_weights(400);
    size_t row = (size_t)l.n_embd * sizeof(float);
    float *all = host_bytes(200 * row), *few = host_bytes(90 * row);
    use_device((machine){90, 3});
    run_experts(all, &l, x.rows, 200, expert, weight);
    use_device(usual);
    static const int first[] = {0, 66, 195, 100}, count[] = {1, 5, 3, 90};
    for (int i = 0; i < 4; i++) {
        dg_cuda_rows part = x.rows;
        part.data = (char *)x.rows.data +
                    (size_t)first[i] * (size_t)x.rows.ld * (x.rows.form == DG_CUDA_F32 ? 4 : 2);
        run_experts(few, &l, part, count[i], expert + 2 * first[i], weight + 2 * first[i]);
        expect_same("y", few, all + (size_t)first[i] * (size_t)l.n_embd, (size_t)count[i] * row);
    }
    case_end();
}

static void check_every_type(dg_dtype type)
{
    static const int small[4] = {6, 3, 72, 40}, wide[4] = {3, 2, 80, 704};
    static const machine one = {90, 1}, two = {90, 2}, three = {90, 3}, older = {80, 1},
                         little = {89, 2};
    check_round_trip(type, usual);
    check_round_trip(type, older);
    check_product(type, 3, 100, usual);
    check_product(type, 130, 300, two);
    check_product(type, 70, 100, little);
    check_row_bits(type);
    check_gated(type, dg_cuda_form_of(type), 70, 40, 200, one);
    check_gated(type, dg_cuda_form_of(type), 130, 40, 100, one);
    check_gated(type, dg_cuda_form_of(type), 130, 40, 100, older);
    check_gated(type, DG_CUDA_BF16, 5, 100, 64, usual);
    check_experts(type, type, 21, small, true, three);
    check_experts(type, type, 60, small, true, usual); /* more rows than a piece has */
    check_experts(type, type, 100, small, true, little);
    check_experts(type, DG_BF16, 9, wide, false, usual);
    check_expert_bits(type, type);
}

/* A device that came after the build is refused by name, not with the failure of some kernel. */
static void check_code(void)
{
    if (!case_begin("code: for this device, and for none that it was not built for"))
        return;
    use_device(usual);
    if (!dg_cuda_has_code())
        case_fail("this build has no code for the device");
#ifdef EMULATED
    use_device((machine){120, 132});
    if (dg_cuda_has_code())
        case_fail("a build for 8.0 and 9.0 has code for 12.0");
    use_device(usual);
#endif
    case_end();
}

/* Types that weights of experts are made when they are loaded. */
static void check_made_type(dg_dtype type)
{
    static const int small[4] = {6, 3, 72, 40}, real[4] = {3, 2, 256, 704};
    static const machine three = {90, 3}, older = {80, 2};
    check_experts(type, type, 21, small, true, three);
    check_experts(type, type, 60, small, true, usual);
    check_experts(type, type, 100, small, true, older);
    check_experts(type, type, 12, real, false, three);
    check_experts(type, type, 300, small, true, usual);
    check_expert_bits(type, type);
}

/* Dense weights that are made E4M3, with rows of E4M3; rows of x that end within a slab. */
static void check_dense_bytes(void)
{
    static const machine one = {90, 1}, two = {90, 2};
    check_product(DG_FP8, 3, 100, usual);
    check_product(DG_FP8, 130, 300, two);
    check_product(DG_FP8, 9, 2816, usual);
    check_row_bits(DG_FP8);
    check_gated(DG_FP8, DG_CUDA_BF16, 70, 40, 200, one);
    check_gated(DG_FP8, DG_CUDA_F16, 5, 100, 64, usual);
    check_slab_tiles(DG_FP8);
}

void check_cuda_products(void)
{
    check_code();
    for (int i = 0; i < N_TYPE; i++)
        check_every_type(types[i]);
    check_made_type(DG_FP8);
    check_made_type(DG_INT4);
    check_slab_tiles(DG_BF16);
    check_slab_tiles(DG_F16);
    check_dense_bytes();
    /* the shapes of the model's rows: 704 and 2112 in blocks of 32 */
    static const int real[4] = {3, 2, 256, 704}, one[4] = {16, 1, 64, 32}, all[4] = {8, 8, 64, 32};
    static const int many[4] = {3, 2, 72, 704}, short_rows[4] = {2, 1, 200, 40};
    static const machine few = {90, 5}, two = {90, 2}, little = {86, 4};
    check_product(DG_Q5_0, 9, 2112, usual);
    check_gated(DG_Q4_K, DG_CUDA_F16, 12, 2112, 256, usual);
    check_experts(DG_Q4_K, DG_Q5_0, 40, real, false, few);
    check_experts(DG_INT4, DG_INT4, 40, real, false, few);
    check_experts(DG_Q8_0, DG_Q5_0, 20, real, false, usual); /* bytes of h behind halves of x */
    check_experts(DG_Q4_K, DG_Q8_0, 150, real, true, usual);
    check_experts(DG_Q6_K, DG_Q8_0, 30, real, true, little);
    check_experts(DG_Q4_0, DG_F32, 10, one, false, usual);
    check_experts(DG_BF16, DG_BF16, 1, one, false, usual);
    check_experts(DG_F32, DG_BF16, 33, all, false, two);
    check_experts(DG_BF16, DG_BF16, 300, all, false, usual);  /* pairs for a long run of the sort */
    check_experts(DG_BF16, DG_BF16, 1030, all, false, usual); /* and for two */
    check_experts(DG_BF16, DG_Q6_K, 300, one, true, little);
    check_experts(DG_BF16, DG_F16, 300, many, true, few); /* by warpgroups */
    check_experts(DG_F16, DG_BF16, 90, short_rows, false, usual);
    check_gated(DG_F32, DG_CUDA_F16, 3, 70, 30, usual);
}
