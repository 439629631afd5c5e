/* cuda_head.cu, cuda_words.cu and cuda_soft.cu against sums in double; rows of the table out of its
 * packed forms. */
#include <math.h>
#include <string.h>
#include "cuda/check_words.h"
#include "tensor/dtype.h"
#include "tensor/narrowed.h"

/* The last piece of the vocabulary is not whole, and most pieces are empty. */
enum { N_VOCAB = 1000, N_EMBD = 200, MAX_ROW = 40 };

void use_capability(int capability)
{
#ifdef EMULATED
    emu_set_device(capability / 10, capability % 10, 132);
#else
    (void)capability;
#endif
}

table make_table_of(dg_dtype type, int n_vocab, int n_embd)
{
    table t = {.matrix = {type, 1, n_vocab, n_embd, NULL, NULL, false}};
    size_t n = (size_t)n_vocab * (size_t)n_embd, bytes = dg_dtype_bytes(type, n);
    unsigned char *stored = dg_dtype_is_block(type) ? random_stored(type, n) : host_bytes(bytes);
    t.value = host_bytes(n * sizeof *t.value);
    if (!dg_dtype_is_block(type))
        dg_narrow(stored, type, random_floats(n, 0.5), n);
    dg_widen(t.value, stored, type, n);
    t.matrix.slabs = type != DG_F32 && dg_cuda_has_groups();
    const void *on_device = device_copy(stored, bytes);
    void *packed = device_bytes(t.matrix.slabs ? dg_cuda_slab_bytes(n_vocab, n_embd)
                                               : dg_cuda_pack_bytes(type, n_vocab, n_embd));
    launched(t.matrix.slabs
                 ? dg_cuda_pack_slabs(NULL, packed, on_device, type, n_vocab, n_embd)
                 : dg_cuda_pack(NULL, packed, on_device, bytes, type, 1, n_vocab, n_embd));
    t.matrix.data = packed;
    t.head = t.soft = t.matrix;
    t.head_value = t.value;
    return t;
}

static table make_table(dg_dtype type, int n_embd)
{
    return make_table_of(type, N_VOCAB, n_embd);
}

/* The same with a head of E4M3. */
table with_bytes(table t)
{
    int n_vocab = t.matrix.n_out, n_embd = t.matrix.n_in, n = n_vocab * n_embd;
    unsigned char *stored = host_bytes((size_t)n);
    float most = 0;
    for (int i = 0; i < n; i++)
        most = fmaxf(most, fabsf(t.value[i]));
    float factor = dg_fp8_factor(dg_narrowed_bits(most));
    t.head_value = host_bytes((size_t)n * sizeof *t.head_value);
    for (int i = 0; i < n; i++) {
        stored[i] = dg_float_to_e4m3(t.value[i] / factor);
        t.head_value[i] = dg_e4m3_to_float(stored[i]) * factor;
    }
    void *packed = device_bytes(dg_cuda_slab_bytes(n_vocab, n_embd / 2));
    launched(
        dg_cuda_pack_slabs(NULL, packed, device_copy(stored, (size_t)n), DG_FP8, n_vocab, n_embd));
    t.head.type = DG_FP8;
    t.head.data = packed;
    t.head.scale = device_copy(&factor, sizeof factor);
    t.soft = t.head;
    t.soft.data = device_bytes(dg_cuda_turned_bytes(n_vocab, n_embd));
    launched(dg_cuda_turn_slabs(NULL, (void *)(uintptr_t)t.soft.data, packed, n_vocab, n_embd));
    return t;
}

/* Rows of x for the head. */
static dg_cuda_rows head_rows(const table *t, int n_row)
{
    return device_rows_of(dg_cuda_rows_for(&t->head, NULL).form,
                          random_floats((size_t)n_row * N_EMBD, 0.5), n_row, N_EMBD);
}

typedef struct result {
    float *soft, *entropy; /* [n_row, N_EMBD], [n_row] */
    int32_t *argmax, *drawn;
} result;

static double uniform_of(int row)
{
    return (row + 0.5) / MAX_ROW;
}

/* The rows [first, first + n_row) of z, together. */
static result run_rows(const table *t, const float *z, int first, int n_row)
{
    size_t n = (size_t)n_row;
    result got = {host_bytes(n * N_EMBD * 4), host_bytes(n * 4), host_bytes(n * 4),
                  host_bytes(n * 4)};
    float *soft = device_bytes(n * N_EMBD * 4);
    dg_cuda_word_row *row = host_bytes(n * sizeof *row);
    for (int r = 0; r < n_row; r++) {
        row[r].soft = soft + (size_t)r * N_EMBD;
        row[r].temperature = 1;
        row[r].uniform = uniform_of(first + r);
    }
    dg_cuda_words_args a = {.n_row = n_row,
                            .n_vocab = N_VOCAB,
                            .row = device_copy(row, n * sizeof *row),
                            .given = true,
                            .drop = DG_CUDA_SOFT_DROP,
                            .gathers = t->matrix.type != DG_F32,
                            .out = {device_bytes(n * 4), device_bytes(n * 4), device_bytes(n * 4),
                                    NULL, NULL, NULL, NULL}};
    dg_cuda_words_place(&a.w, device_bytes(dg_cuda_words_bytes(n_row, N_VOCAB, N_EMBD)), n_row,
                        N_VOCAB, N_EMBD);
    cudaMemcpy(a.w.z, z + (size_t)first * N_VOCAB, n * N_VOCAB * 4, cudaMemcpyHostToDevice);
    launched(dg_cuda_words_find(NULL, &a));
    launched(dg_cuda_words_soft(NULL, &a, &t->soft, &t->matrix, 2));
    device_read(got.soft, soft, n * N_EMBD * 4);
    device_read(got.entropy, a.out.entropy, n * 4);
    device_read(got.argmax, a.out.argmax, n * 4);
    device_read(got.drawn, a.out.drawn, n * 4);
    return got;
}

/* Every third row is peaked: most of its chunks do not matter. */
static float *make_logits(void)
{
    float *z = random_floats((size_t)MAX_ROW * N_VOCAB, 1.5);
    for (int r = 0; r < MAX_ROW; r += 3)
        z[(size_t)r * N_VOCAB + (size_t)random_int(0, N_VOCAB - 1)] += 25;
    return z;
}

static void expect_row(const table *t, const float *z, int r, const result *got, double limit)
{
    double sum = 0, slope = 0, want[N_EMBD] = {0}, max = -1e30;
    int argmax = 0;
    for (int v = 0; v < N_VOCAB; v++)
        if (z[v] > max) {
            max = z[v];
            argmax = v;
        }
    for (int v = 0; v < N_VOCAB; v++) {
        double e = exp(z[v] - max);
        sum += e;
        slope += (z[v] - max) * e;
        for (int i = 0; i < N_EMBD; i++)
            want[i] += 2 * e * t->value[(size_t)v * N_EMBD + (size_t)i];
    }
    for (int i = 0; i < N_EMBD; i++)
        want[i] /= sum;
    double entropy = log(sum) - slope / sum;
    expect_relative("soft", got->soft + (size_t)r * N_EMBD, want, N_EMBD, limit);
    expect_close("entropy", got->entropy + r, &entropy, 1, 1e-5, 1e-6);
    if (got->argmax[r] != argmax || got->drawn[r] < 0 || got->drawn[r] >= N_VOCAB) {
        case_fail("row %d: arg-max %d, not %d; drawn %d", r, got->argmax[r], argmax, got->drawn[r]);
        return;
    }
    double before = 0,
           target = uniform_of(r) * sum; /* the drawn word covers it, but for rounding */
    for (int v = 0; v < got->drawn[r]; v++)
        before += exp(z[v] - max);
    if (before > target * (1 + 1e-5) || before + exp(z[got->drawn[r]] - max) < target * (1 - 1e-5))
        case_fail("row %d: drawn %d, which covers %g of %g", r, got->drawn[r], before, target);
}

static void check_soft(dg_dtype type, int capability)
{
    if (!case_begin("words: soft embedding of %s, sm_%d", dg_dtype_name(type), capability))
        return;
    use_capability(capability);
    table t = make_table(type, N_EMBD);
    float *z = make_logits();
    result all = run_rows(&t, z, 0, MAX_ROW);
    double limit = type == DG_F32 ? 2e-4 : type == DG_BF16 ? 5e-3 : 1e-3;
    for (int r = 0; r < MAX_ROW; r++)
        expect_row(&t, z + (size_t)r * N_VOCAB, r, &all, limit);
    static const int first[] = {0, 1, 33}, count[] = {1, 2, 7};
    for (int i = 0; i < 3; i++) { /* the same bits in other company */
        result few = run_rows(&t, z, first[i], count[i]);
        expect_same("soft", few.soft, all.soft + (size_t)first[i] * N_EMBD,
                    (size_t)count[i] * N_EMBD * 4);
        expect_same("drawn", few.drawn, all.drawn + first[i], (size_t)count[i] * 4);
        expect_same("entropy", few.entropy, all.entropy + first[i], (size_t)count[i] * 4);
    }
    use_capability(90);
    case_end();
}

/* Softcap, lists and temperature of rows through the head, against doubles; on devices with slabs.
 */
static void check_head(dg_dtype type, bool bytes)
{
    enum { N_ROW = 140, NO_SOFT = 7 };
    static const int32_t banned[] = {3, 700}, bias_id[] = {5, 999};
    static const float bias[] = {4, -2};
    if (!case_begin("words: head over %s%s", dg_dtype_name(type), bytes ? " as E4M3" : ""))
        return;
    if (!dg_cuda_has_groups()) {
        case_skip("the device has no products of warpgroups");
        return;
    }
    table t = make_table(type, N_EMBD);
    t = bytes ? with_bytes(t) : t;
    size_t n = (size_t)N_ROW * N_VOCAB;
    double step = bytes ? 2e-3 : 1e-5; /* sums of E4M3 lose their last bits in the tensor cores */
    dg_cuda_rows x = head_rows(&t, N_ROW);
    float *value = rows_read(x, N_ROW, N_EMBD), *z = host_bytes(n * 4), *logits = host_bytes(n * 4),
          entropy[N_ROW];
    int32_t argmax[N_ROW], n_sure[N_ROW];
    dg_cuda_word_row row[N_ROW] = {{0}};
    float *soft_rows = device_bytes(N_ROW * N_EMBD * 4), *soft[3], *copy = device_bytes(n * 4);
    for (int r = 0; r < N_ROW; r++) {
        row[r].temperature = r % 3 == 2 ? 0.05f : r % 2 ? 0.7f : 1; /* the first are sure */
        row[r].soft = r == NO_SOFT ? NULL : soft_rows + (size_t)r * N_EMBD;
        if (r % 5 == 4) {
            row[r].n_banned = row[r].n_bias = 2;
            row[r].banned = device_copy(banned, sizeof banned);
            row[r].bias_id = device_copy(bias_id, sizeof bias_id);
            row[r].bias = device_copy(bias, sizeof bias);
        }
    }
    dg_cuda_words_args a = {.n_row = N_ROW,
                            .n_vocab = N_VOCAB,
                            .row = device_copy(row, sizeof row),
                            .softcap = 6,
                            .measured = true,
                            .form = dg_cuda_form_of(t.soft.type),
                            .changed = true,
                            .drop = DG_CUDA_SOFT_DROP,
                            .gathers = true,
                            .out = {device_bytes(sizeof entropy), device_bytes(sizeof argmax),
                                    device_bytes(sizeof argmax), NULL, NULL, NULL, NULL}};
    dg_cuda_words_place(&a.w, device_bytes(dg_cuda_words_bytes(N_ROW, N_VOCAB, N_EMBD)), N_ROW,
                        N_VOCAB, N_EMBD);
    /* p of the head and of those with lists; and made afterwards; and without a copy of logits */
    for (int i = 0; i < 3; i++) {
        a.leaves = i != 1;
        a.logits = i < 2 ? copy : NULL;
        launched(dg_cuda_words_head(NULL, &a, &t.head, x));
        launched(dg_cuda_words_find(NULL, &a));
        launched(dg_cuda_words_soft(NULL, &a, &t.soft, &t.matrix, 2));
        soft[i] = host_bytes(N_ROW * N_EMBD * 4);
        device_read(soft[i], soft_rows, N_ROW * N_EMBD * 4);
    }
    expect_same("soft of both", soft[0], soft[1], N_ROW * N_EMBD * 4);
    expect_same("soft without logits", soft[0], soft[2], N_ROW * N_EMBD * 4);
    device_read(z, a.w.z, n * 4);
    device_read(logits, copy, n * 4);
    device_read(entropy, a.out.entropy, sizeof entropy);
    device_read(argmax, a.out.argmax, sizeof argmax);
    device_read(n_sure, a.w.n_sure, sizeof n_sure);
    for (int r = 0; r < N_ROW; r++) {
        double near = step / fmin(1, 2 * (double)row[r].temperature);
        double want[N_VOCAB], wanted_z[N_VOCAB], sum = 0, slope = 0, max = -1e300;
        int best = 0;
        for (int v = 0; v < N_VOCAB; v++) {
            double dot = 0;
            for (int i = 0; i < N_EMBD; i++)
                dot += (double)value[r * N_EMBD + i] *
                       (double)t.head_value[(size_t)v * N_EMBD + (size_t)i];
            want[v] = 6 * tanh(dot / 6);
            if (row[r].n_bias)
                want[v] = v == 3 || v == 700 ? -1e30 : want[v] + (v == 5 ? 4 : v == 999 ? -2 : 0);
            wanted_z[v] = want[v] / row[r].temperature;
            best = wanted_z[v] > wanted_z[best] ? v : best;
        }
        max = wanted_z[best];
        for (int v = 0; v < N_VOCAB; v++) {
            sum += exp(wanted_z[v] - max);
            slope += (wanted_z[v] - max) * exp(wanted_z[v] - max);
        }
        double right = log(sum) - slope / sum;
        expect_close("logits", logits + (size_t)r * N_VOCAB, want, N_VOCAB, step, 2 * step);
        expect_close("z", z + (size_t)r * N_VOCAB, wanted_z, N_VOCAB, step, 3 * near);
        expect_close("entropy", &entropy[r], &right, 1, near, 2 * near);
        if ((n_sure[r] > 0) != (r % 3 == 2 && r != NO_SOFT))
            case_fail("row %d: %d words are gathered", r, n_sure[r]);
        if (fabs(wanted_z[argmax[r]] - max) > 10 * near)
            case_fail("row %d: arg-max %d, not %d", r, argmax[r], best);
        /* of its own logits; a little more or less may be rounded the other way, or is much for a
         * sure row */
        const float *own = z + (size_t)r * N_VOCAB, *from = n_sure[r] ? t.value : t.head_value;
        double wanted[N_EMBD] = {0}, all = 0;
        for (int v = 0; v < N_VOCAB; v++)
            all += exp((double)own[v] - (double)own[argmax[r]]);
        for (int v = 0; v < N_VOCAB; v++) {
            double p = exp((double)own[v] - (double)own[argmax[r]]);
            if (bytes && !n_sure[r])
                p = (double)dg_e4m3_to_float(dg_float_to_e4m3((float)(256 * p))) / 256;
            for (int i = 0; i < N_EMBD; i++)
                wanted[i] += 2 * p / all * (double)from[(size_t)v * N_EMBD + (size_t)i];
        }
        if (r != NO_SOFT)
            expect_relative("soft", soft[0] + (size_t)r * N_EMBD, wanted, N_EMBD,
                            bytes && !n_sure[r] ? 1.5e-2
                            : type == DG_BF16   ? 5e-3
                                                : 1e-3);
    }
    case_end();
}

/* What the head and the vocabulary end find of rows [first, first + n_row). */
static result find_rows(const table *t, dg_cuda_rows x, int first, int n_row, bool with_z)
{
    size_t n = (size_t)n_row;
    result got = {host_bytes(n * N_EMBD * 4), host_bytes(n * 4), host_bytes(n * 4),
                  host_bytes(n * 4)};
    float *soft = device_bytes(n * N_EMBD * 4);
    dg_cuda_word_row *row = host_bytes(n * sizeof *row);
    for (int r = 0; r < n_row; r++) {
        row[r].soft = (first + r) % 5 == 4 ? NULL : soft + (size_t)r * N_EMBD;
        row[r].temperature = (first + r) % 3 ? 0.4f : 0.02f; /* the latter leave most words out */
        row[r].uniform = (first + r) % 7 / 7.0 + 0.01;
    }
    x.data = (unsigned char *)x.data + (size_t)first * dg_cuda_row_bytes(x);
    dg_cuda_words_args a = {.n_row = n_row,
                            .n_vocab = N_VOCAB,
                            .row = device_copy(row, n * sizeof *row),
                            .softcap = 6,
                            .measured = true,
                            .form = dg_cuda_form_of(t->soft.type),
                            .leaves = true,
                            .drop = DG_CUDA_SOFT_DROP,
                            .gathers = true,
                            .out = {device_bytes(n * 4), device_bytes(n * 4), device_bytes(n * 4),
                                    NULL, NULL, NULL, NULL}};
    dg_cuda_words_place(&a.w, device_bytes(dg_cuda_words_bytes(n_row, N_VOCAB, N_EMBD)), n_row,
                        N_VOCAB, N_EMBD);
    if (!with_z)
        a.w = dg_cuda_words_without_z(a.w);
    launched(dg_cuda_words_head(NULL, &a, &t->head, x));
    launched(dg_cuda_words_find(NULL, &a));
    launched(dg_cuda_words_soft(NULL, &a, &t->soft, &t->matrix, 2));
    device_read(got.soft, soft, n * N_EMBD * 4);
    device_read(got.entropy, a.out.entropy, n * 4);
    device_read(got.argmax, a.out.argmax, n * 4);
    device_read(got.drawn, a.out.drawn, n * 4);
    return got;
}

/* Rows of several canvases together and without their logits: the bits of a few that have them,
 * which check_head holds against doubles, and draws that doubles allow. */
static void check_group(dg_dtype type, bool bytes)
{
    enum { N_ROW = 300 };
    static const struct {
        int first, n;
        bool with_z;
    } few[] = {{200, 100, true}, {257, 2, true}, {299, 1, false}};
    if (!case_begin("words: two groups of rows without logits, %s%s", dg_dtype_name(type),
                    bytes ? " as E4M3" : ""))
        return;
    if (!dg_cuda_has_groups()) {
        case_skip("the device has no products of warpgroups");
        return;
    }
    table t = make_table(type, N_EMBD);
    t = bytes ? with_bytes(t) : t;
    dg_cuda_rows x = head_rows(&t, N_ROW);
    result all = find_rows(&t, x, 0, N_ROW, false);
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        int first = few[i].first;
        size_t n = (size_t)few[i].n;
        result some = find_rows(&t, x, first, few[i].n, few[i].with_z);
        expect_same("soft", some.soft, all.soft + (size_t)first * N_EMBD, n * N_EMBD * 4);
        expect_same("entropy", some.entropy, all.entropy + first, n * 4);
        expect_same("arg-max", some.argmax, all.argmax + first, n * 4);
        expect_same("drawn", some.drawn, all.drawn + first, n * 4);
    }
    float *value = rows_read(x, N_ROW, N_EMBD);
    for (int r = 0; r < N_ROW; r++) {
        double z[N_VOCAB], sum = 0, before = 0, max = -1e300, near = bytes ? 0.1 : 0.01;
        for (int v = 0; v < N_VOCAB; v++) {
            double dot = 0;
            for (int i = 0; i < N_EMBD; i++)
                dot += (double)value[r * N_EMBD + i] *
                       (double)t.head_value[(size_t)v * N_EMBD + (size_t)i];
            z[v] = 6 * tanh(dot / 6) / (r % 3 ? 0.4 : 0.02);
            max = z[v] > max ? z[v] : max;
        }
        for (int v = 0; v < N_VOCAB; v++)
            sum += exp(z[v] - max);
        int drawn = all.drawn[r];
        double target = (r % 7 / 7.0 + 0.01) * sum;
        for (int v = 0; drawn >= 0 && drawn < N_VOCAB && v < drawn; v++)
            before += exp(z[v] - max);
        /* words of a chunk weigh what 16 bits hold of them; sums of E4M3 lose their last bits */
        if (drawn < 0 || drawn >= N_VOCAB || before > target + near * sum ||
            before + exp(z[drawn] - max) < target - near * sum)
            case_fail("row %d: drawn %d, which covers %g of %g", r, drawn, before / sum,
                      target / sum);
    }
    case_end();
}

/* Angles of N_ROW rows, and what they should be. */
typedef struct angles {
    dg_cuda_angles of;
    double *want[2];
} angles;

static angles make_angles(const int32_t *position, int n_row, int n_pair)
{
    size_t n = (size_t)n_row * (size_t)n_pair;
    float *frequency = host_bytes((size_t)n_pair * sizeof *frequency);
    angles a = {.want = {host_bytes(n * sizeof(double)), host_bytes(n * sizeof(double))}};
    for (int i = 0; i < n_pair; i++)
        frequency[i] = (float)pow(10000, -(double)i / n_pair);
    for (size_t i = 0; i < n; i++) {
        float angle = (float)position[i / (size_t)n_pair] * frequency[i % (size_t)n_pair];
        a.want[0][i] = cos((double)angle);
        a.want[1][i] = sin((double)angle);
    }
    a.of = (dg_cuda_angles){device_bytes(n * sizeof(float)), device_bytes(n * sizeof(float)),
                            device_copy(frequency, (size_t)n_pair * sizeof *frequency), n_pair};
    return a;
}

static void expect_angles(const angles *a, int n_row)
{
    size_t n = (size_t)n_row * (size_t)a->of.n_pair;
    float *got = host_bytes(n * sizeof *got);
    device_read(got, a->of.cos, n * sizeof *got);
    expect_close("cos", got, a->want[0], n, 0, 2.5e-7);
    device_read(got, a->of.sin, n * sizeof *got);
    expect_close("sin", got, a->want[1], n, 0, 2.5e-7);
}

static void check_lookup(dg_dtype type, int capability, int n_embd)
{
    enum { N_ROW = 9 };
    if (!case_begin("words: rows of %d values of a table of %s, sm_%d", n_embd, dg_dtype_name(type),
                    capability))
        return;
    use_capability(capability);
    table t = make_table(type, n_embd);
    const int32_t token[N_ROW] = {0, 1, 63, 64, 65, 500, 998, 999, 7},
                  position[N_ROW] = {0, 1, 1023, 131071, 262143, 5, 6, 7, 8};
    const float *feature[N_ROW] = {NULL};
    size_t n = (size_t)n_embd;
    float *given = random_floats(n, 1), *got = host_bytes(N_ROW * n * sizeof *got);
    double *want = host_bytes(N_ROW * n * sizeof *want);
    feature[4] = device_copy(given, n * sizeof *given);
    angles sliding = make_angles(position, N_ROW, 128), global = make_angles(position, N_ROW, 300);
    dg_cuda_lookup_args a = {.x = device_bytes(N_ROW * n * sizeof *got),
                             .table = &t.matrix,
                             .scale = 3,
                             .token = device_copy(token, sizeof token),
                             .feature = device_copy(feature, sizeof feature),
                             .n_row = N_ROW,
                             .position = device_copy(position, sizeof position)};
    launched(dg_cuda_lookup(NULL, &a));
    a.angles[0] = sliding.of;
    a.angles[1] = global.of;
    launched(dg_cuda_lookup(NULL, &a));
    device_read(got, a.x, N_ROW * n * sizeof *got);
    for (int r = 0; r < N_ROW; r++)
        for (size_t i = 0; i < n; i++)
            want[(size_t)r * n + i] = r == 4 ? given[i] : 3.0 * t.value[(size_t)token[r] * n + i];
    expect_close("x", got, want, N_ROW * n, 1e-6, 0);
    expect_angles(&sliding, N_ROW);
    expect_angles(&global, N_ROW);
    use_capability(90);
    case_end();
}

void check_cuda_words(void)
{
    check_head(DG_BF16, false);
    check_head(DG_F16, false);
    check_head(DG_F16, true);
    check_group(DG_BF16, false);
    check_group(DG_F16, false);
    check_group(DG_BF16, true);
    static const dg_dtype types[] = {DG_F32, DG_BF16, DG_F16};
    for (int i = 0; i < 3; i++)
        for (int capability = 80; capability <= 90; capability += 10) {
            check_lookup(types[i], capability, N_EMBD);
            check_lookup(types[i], capability, N_EMBD - 3);
            check_soft(types[i], capability);
        }
}
