/* cuda_sure.cuh and cuda_soft_sum.cu: rows that are gathered beside rows that are multiplied,
 * against sums in double. */
#include <math.h>
#include <string.h>
#include "cuda/check_words.h"
#include "tensor/dtype.h"

/* The last chunk of the vocabulary is not whole. */
enum { N_VOCAB = 1000 };

enum { SURE_EMBD = 512, SURE_KINDS = 11, NOT_A_NUMBER = 9, SURE_ROWS = 2 * SURE_KINDS };

/* Sets `n` words from `first` on, some apart from each other, so that they have `mass` together
 * where e^0 is one. */
static void set_words(float *z, int first, int n, double mass)
{
    for (int i = 0; i < n; i++)
        z[(first + 7 * i) % N_VOCAB] = (float)log(mass / n);
}

/* A row of a kind, and how many words it is sure of; 0: it is not. */
static int make_sure_row(float *z, int kind)
{
    const double drop = DG_CUDA_SURE_DROP;
    int most = DG_CUDA_SURE_WORDS, at = random_int(0, N_VOCAB - 1);
    float *wild = random_floats(N_VOCAB, 1.5);
    for (int v = 0; v < N_VOCAB; v++)
        z[v] = kind == 3 ? wild[v] : kind == NOT_A_NUMBER ? NAN : -200;
    switch (kind) {
    case 0: /* one word, far from all others */
        for (int v = 0; v < N_VOCAB; v++)
            z[v] = wild[v] - 30;
        z[at] = 3;
        return 1;
    case 1: /* as many as can be, and one more */
        set_words(z, at, most, most);
        return most;
    case 2:
        set_words(z, at, most + 1, most + 1);
        return 0;
    case 4: /* what is left out is just little enough, and not */
        set_words(z, at + 1, 600, 0.9 * drop);
        z[at] = 0;
        return 1;
    case 5:
        set_words(z, at + 1, 600, 1.05 * drop);
        z[at] = 0;
        return 0;
    case 6: /* a long tail that is wanted: the words are of two sizes */
        set_words(z, at + 1, 200, 64 * drop);
        z[at] = 0;
        return 201;
    case 7: /* the last words */
        z[N_VOCAB - 1] = z[N_VOCAB - 2] = 1;
        return 2;
    case 8: /* a tail of which the upper part is wanted: 2^-14.3, 2^-19.3 */
        set_words(z, at + 1, 40, 8 * drop);
        set_words(z, at + 1 + 7 * 40, 100, 0.6 * drop);
        z[at] = 0;
        return 41;
    case 10: /* too much is left out only by both: words of its own chunk, and of other ones */
        for (int v = 193; v < 253; v++)
            z[v] = (float)log(0.6 * drop / 60);
        for (int v = 256; v < 856; v++)
            z[v] = (float)log(0.6 * drop / 600);
        z[192] = 0;
        return 61;
    default:
        return 0;
    }
}

/* Rows [first, first + n) of z, whose soft embeddings and numbers of words go to those places. */
static void run_sure(const table *t, const float *z, int first, int n, float *soft, int32_t *words)
{
    int n_vocab = t->matrix.n_out, n_embd = t->matrix.n_in;
    size_t bytes = (size_t)(n * n_embd) * sizeof *soft;
    float *out = device_bytes(bytes);
    dg_cuda_word_row *row = host_bytes((size_t)n * sizeof *row);
    for (int r = 0; r < n; r++) {
        row[r].soft = out + (size_t)(r * n_embd);
        row[r].temperature = 1;
    }
    dg_cuda_words_args a = {.n_row = n,
                            .n_vocab = n_vocab,
                            .row = device_copy(row, (size_t)n * sizeof *row),
                            .given = true,
                            .drop = DG_CUDA_SOFT_DROP,
                            .gathers = true,
                            .out = {.entropy = device_bytes((size_t)n * 4),
                                    .argmax = device_bytes((size_t)n * 4),
                                    .drawn = device_bytes((size_t)n * 4),
                                    .gathered = device_bytes((size_t)n * 4)}};
    dg_cuda_words_place(&a.w, device_bytes(dg_cuda_words_bytes(n, n_vocab, n_embd)), n, n_vocab,
                        n_embd);
    cudaMemcpy(a.w.z, z + (size_t)first * (size_t)n_vocab, (size_t)n * (size_t)n_vocab * 4,
               cudaMemcpyHostToDevice);
    launched(dg_cuda_words_find(NULL, &a));
    launched(dg_cuda_words_soft(NULL, &a, &t->matrix, &t->matrix, 3));
    device_read(soft, out, bytes);
    device_read(words, a.out.gathered, (size_t)n * 4);
}

static void expect_sure_row(const table *t, const float *z, const float *got, double limit)
{
    int n_vocab = t->matrix.n_out, n_embd = t->matrix.n_in;
    double *want = host_bytes((size_t)n_embd * sizeof *want), sum = 0, max = -1e300;
    for (int i = 0; i < n_embd; i++)
        want[i] = 0;
    for (int v = 0; v < n_vocab; v++)
        max = (double)z[v] > max ? (double)z[v] : max;
    for (int v = 0; v < n_vocab; v++)
        sum += exp((double)z[v] - max);
    for (int v = 0; v < n_vocab; v++)
        for (int i = 0; i < n_embd; i++)
            want[i] += 3 * exp((double)z[v] - max) / sum *
                       (double)t->value[(size_t)v * (size_t)n_embd + (size_t)i];
    expect_relative("soft", got, want, (size_t)n_embd, limit);
}

/* Each kind comes twice, beside others the second time. */
static int kind_of(int row)
{
    return (row + row / SURE_KINDS) % SURE_KINDS;
}

/* Every kind of row between others, and again alone and in twos. */
static void check_sure(dg_dtype type, int capability)
{
    if (!case_begin("sure: rows of %s, sm_%d", dg_dtype_name(type), capability))
        return;
    use_capability(capability);
    table t = make_table_of(type, N_VOCAB, SURE_EMBD);
    float *z = host_bytes(SURE_ROWS * N_VOCAB * sizeof *z),
          *soft = host_bytes(SURE_ROWS * SURE_EMBD * sizeof *soft), few[2 * SURE_EMBD];
    int32_t words[SURE_ROWS], some[2];
    int wanted[SURE_ROWS];
    for (int r = 0; r < SURE_ROWS; r++)
        wanted[r] = make_sure_row(z + (size_t)r * N_VOCAB, kind_of(r));
    run_sure(&t, z, 0, SURE_ROWS, soft, words);
    for (int r = 0; r < SURE_ROWS; r++) {
        const float *got = soft + (size_t)r * SURE_EMBD;
        if (words[r] != wanted[r])
            case_fail("row %d: %d words are gathered, not %d", r, words[r], wanted[r]);
        if (kind_of(r) != NOT_A_NUMBER)
            expect_sure_row(&t, z + (size_t)r * N_VOCAB, got,
                            !words[r] && dg_cuda_form_of(type) == DG_CUDA_BF16 ? 5e-3 : 1e-3);
        else if (!isnan(got[0]) || !isnan(got[SURE_EMBD - 1]))
            case_fail("row %d: the soft embedding of no numbers is %g", r, (double)got[0]);
    }
    for (int r = 0; r + 1 < SURE_ROWS; r += 6)
        for (int n = 1; n <= 2; n++) {
            run_sure(&t, z, r, n, few, some);
            expect_same("words", some, words + r, (size_t)n * 4);
            for (int i = 0; i < n; i++) /* what is no number may be none with other bits */
                if (kind_of(r + i) != NOT_A_NUMBER)
                    expect_same("soft", few + i * SURE_EMBD, soft + (size_t)(r + i) * SURE_EMBD,
                                SURE_EMBD * 4);
        }
    use_capability(90);
    case_end();
}

/* More columns than a block has, or words in more chunks than warps look at in one go: of 250
 * chunks a word each, which are gathered, and of 300, which are too many. */
static void check_large(dg_dtype type, int n_vocab, int n_embd)
{
    if (!case_begin("sure: large, %d x %d of %s", n_vocab, n_embd, dg_dtype_name(type)))
        return;
    table t = make_table_of(type, n_vocab, n_embd);
    int n_chunk[2] = {n_vocab > 300 * 64 ? 250 : 5, n_vocab > 300 * 64 ? 300 : 7};
    float *z = host_bytes(2 * (size_t)n_vocab * sizeof *z),
          *soft = host_bytes(2 * (size_t)n_embd * sizeof *soft);
    int32_t words[2];
    for (int v = 0; v < 2 * n_vocab; v++)
        z[v] = -200;
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < n_chunk[r]; i++) /* the first row's from chunk 8 on */
            z[(size_t)r * (size_t)n_vocab + (size_t)((8 - 8 * r + i) * 64 + i % 64)] = 0;
    run_sure(&t, z, 0, 2, soft, words);
    for (int r = 0; r < 2; r++) {
        int wanted = n_chunk[r] > DG_CUDA_SURE_WORDS ? 0 : n_chunk[r];
        if (words[r] != wanted)
            case_fail("row %d: %d words are gathered, not %d", r, words[r], wanted);
        expect_sure_row(&t, z + (size_t)r * (size_t)n_vocab, soft + (size_t)r * (size_t)n_embd,
                        words[r] ? 1e-3 : 5e-3);
    }
    case_end();
}

/* Many rows, some of them sure, of a vocabulary as large as real ones where there is a device: the
 * same bits every time. */
static void check_often(dg_dtype type, bool bytes)
{
#ifdef EMULATED
    enum { OFTEN_VOCAB = 700, TIMES = 2, N_ROW = 20 };
#else
    enum { OFTEN_VOCAB = 262100, TIMES = 1000, N_ROW = 512 };
#endif
    enum { OFTEN_EMBD = 128 };
    if (!case_begin("sure: often the same, %s%s", dg_dtype_name(type), bytes ? " as E4M3" : ""))
        return;
    if (!dg_cuda_has_groups()) {
        case_skip("the device has no products of warpgroups");
        return;
    }
    table t = make_table_of(type, OFTEN_VOCAB, OFTEN_EMBD);
    t = bytes ? with_bytes(t) : t;
    dg_cuda_rows x = device_rows_of(dg_cuda_rows_for(&t.head, NULL).form,
                                    random_floats(N_ROW * OFTEN_EMBD, 0.5), N_ROW, OFTEN_EMBD);
    enum { SOFT_BYTES = N_ROW * OFTEN_EMBD * 4 };
    float *soft = device_bytes(SOFT_BYTES),
          *got[2] = {host_bytes(SOFT_BYTES), host_bytes(SOFT_BYTES)};
    dg_cuda_word_row row[N_ROW] = {{0}};
    for (int r = 0; r < N_ROW; r++) {
        row[r].soft = soft + (size_t)r * OFTEN_EMBD;
        row[r].temperature = r % 2 ? 0.02f : 2;
        row[r].uniform = 0.5;
    }
    dg_cuda_words_args a = {.n_row = N_ROW,
                            .n_vocab = OFTEN_VOCAB,
                            .row = device_copy(row, sizeof row),
                            .softcap = 6,
                            .measured = true,
                            .form = dg_cuda_form_of(t.soft.type),
                            .leaves = true,
                            .drop = DG_CUDA_SOFT_DROP,
                            .gathers = true,
                            .out = {.entropy = device_bytes(N_ROW * 4),
                                    .argmax = device_bytes(N_ROW * 4),
                                    .drawn = device_bytes(N_ROW * 4),
                                    .gathered = device_bytes(N_ROW * 4)}};
    dg_cuda_words_place(&a.w, device_bytes(dg_cuda_words_bytes(N_ROW, OFTEN_VOCAB, OFTEN_EMBD)),
                        N_ROW, OFTEN_VOCAB, OFTEN_EMBD);
    a.w = dg_cuda_words_without_z(a.w);
    int32_t words[2][N_ROW], n_other = 0, n_sure = 0;
    for (int i = 0; i < TIMES; i++) {
        launched(dg_cuda_words_head(NULL, &a, &t.head, x));
        launched(dg_cuda_words_find(NULL, &a));
        launched(dg_cuda_words_soft(NULL, &a, &t.soft, &t.matrix, 2));
        device_read(got[i > 0], soft, SOFT_BYTES);
        device_read(words[i > 0], a.out.gathered, N_ROW * 4);
        n_other += i > 0 && (memcmp(got[0], got[1], SOFT_BYTES) != 0 ||
                             memcmp(words[0], words[1], sizeof words[0]) != 0);
    }
    for (int r = 0; r < N_ROW; r++)
        n_sure += words[0][r] > 0;
    if (n_other)
        case_fail("%d of %d times others", n_other, (int)TIMES);
    if (n_sure != N_ROW / 2)
        case_fail("%d of %d rows are sure", n_sure, (int)N_ROW);
    case_end();
}

void check_cuda_sure(void)
{
    check_often(DG_BF16, false);
    check_often(DG_F16, true);
    check_large(DG_BF16, 1000, 1792);
    check_large(DG_Q6_K, 1000, 1792);
    check_large(DG_F16, 20000, 128);
    static const dg_dtype types[] = {DG_BF16, DG_F16,  DG_Q8_0, DG_Q4_0,   DG_Q5_0,
                                     DG_Q4_K, DG_Q5_K, DG_Q6_K, DG_IQ4_NL, DG_MXFP4};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int capability = 80; capability <= 90; capability += 10)
            check_sure(types[i], capability);
}
