/* cuda_asked.cu: what rows are asked about words, against sums in double. */
#include <math.h>
#include <string.h>
#include "cuda/cuda_check.h"
#include "cuda/cuda_words.h"

enum { MAX_VOCAB = 9003, N_ROW = 5, N_ID = 3, N_CLASS = DG_CUDA_ASKED_CLASSES };

static int n_vocab;

static const int32_t ids[N_ID] = {0, 64, 999};

/* 3 has no words; 0 is not asked for. */
static uint8_t class_of[MAX_VOCAB];

typedef struct answers {
    float logprob[N_ROW][N_ID], top_logprob[N_ROW][DG_CUDA_ASKED_TOP];
    int32_t top_id[N_ROW][DG_CUDA_ASKED_TOP];
    dg_cuda_class_finding found[N_ROW][N_CLASS];
} answers;

static double uniform_of(int row)
{
    return (row + 0.5) / N_ROW;
}

static float power_of(int row)
{
    return row == 4 ? 0.5f : row == 3 ? 2 : 1;
}

/* Rows [first, first + n) of z together; row 2 asks nothing. */
static void ask(answers *got, const float *z, int first, int n)
{
    answers *there = device_bytes(sizeof *there);
    double uniform[N_ROW][N_CLASS];
    dg_cuda_word_row row[N_ROW];
    memset(row, 0, sizeof row);
    memset(got, 0, sizeof *got);
    cudaMemcpy(there, got, sizeof *got, cudaMemcpyHostToDevice);
    for (int r = 0; r < N_ROW; r++)
        for (int c = 0; c < N_CLASS; c++)
            uniform[r][c] = uniform_of(r);
    const double *draws = device_copy(uniform, sizeof uniform);
    const int32_t *id = device_copy(ids, sizeof ids);
    const uint8_t *classes = device_copy(class_of, sizeof class_of);
    for (int i = 0; i < n; i++) {
        int r = first + i;
        row[i].temperature = 1;
        row[i].uniform = 0.5;
        if (r != 2)
            row[i].asked = (dg_cuda_asked){.id = id,
                                           .n_id = N_ID,
                                           .uniform = draws + r * N_CLASS,
                                           .class_of = classes,
                                           .classes = 2 | 4 | 8,
                                           .power = power_of(r),
                                           .logprob = there->logprob[r],
                                           .top_logprob = there->top_logprob[r],
                                           .top_id = there->top_id[r],
                                           .found = there->found[r]};
    }
    dg_cuda_words_args a = {.n_row = n,
                            .n_vocab = n_vocab,
                            .row = device_copy(row, sizeof row),
                            .given = true,
                            .out = {device_bytes(N_ROW * 4), device_bytes(N_ROW * 4),
                                    device_bytes(N_ROW * 4), NULL, NULL, NULL}};
    dg_cuda_words_place(&a.w, device_bytes(dg_cuda_words_bytes(n, n_vocab, 64)), n, n_vocab, 64);
    cudaMemcpy(a.w.z, z + (size_t)(first * n_vocab), (size_t)(n * n_vocab) * 4,
               cudaMemcpyHostToDevice);
    launched(dg_cuda_words_find(NULL, &a));
    launched(dg_cuda_words_answer(NULL, &a));
    device_read(got, there, sizeof *got);
}

static void expect_class(const float *z, double total, const dg_cuda_class_finding *f, int c,
                         int row)
{
    double mass = 0, inner = 0, warm = 0, before = 0, best = -INFINITY, power = power_of(row);
    int id = -1;
    for (int v = 0; v < n_vocab; v++) {
        double p = exp(z[v]) / total;
        if (class_of[v] != c)
            continue;
        id = log(p) > best ? v : id;
        best = fmax(best, log(p));
        mass += p;
        inner += p * log(p);
        warm += pow(p, power);
        before += v < f->drawn ? pow(p, power) : 0;
    }
    if (f->id != id || (id < 0 && (f->drawn >= 0 || !isinf(f->mass))))
        case_fail("row %d, class %d: %d, not %d", row, c, (int)f->id, id);
    if (id < 0)
        return;
    float found[] = {(float)f->best, (float)f->mass, (float)f->inner, (float)f->warm};
    double want[] = {best, log(mass), inner, log(warm)};
    expect_close("class", found, want, 4, 1e-5, 1e-5);
    double target = uniform_of(row) * warm;
    double covers = before + pow(exp(z[f->drawn]) / total, power);
    if (class_of[f->drawn] != c || before > target * (1 + 1e-5) || covers < target * (1 - 1e-5))
        case_fail("row %d, class %d: drawn %d", row, c, (int)f->drawn);
}

static void expect_row(const float *z, const answers *got, int r)
{
    double total = 0, want[DG_CUDA_ASKED_TOP];
    for (int v = 0; v < n_vocab; v++)
        total += exp(z[v]);
    for (int i = 0; i < N_ID; i++)
        want[i] = z[ids[i]] - log(total);
    expect_close("asked", got->logprob[r], want, N_ID, 1e-5, 1e-5);
    bool taken[MAX_VOCAB] = {false};
    for (int i = 0; i < DG_CUDA_ASKED_TOP; i++) {
        int best = -1;
        for (int v = 0; v < n_vocab; v++)
            if (!taken[v] && (best < 0 || z[v] > z[best]))
                best = v;
        taken[best] = true;
        want[i] = z[best] - log(total);
        if (got->top_id[r][i] != best)
            case_fail("row %d: rank %d is %d, not %d", r, i, (int)got->top_id[r][i], best);
    }
    expect_close("likeliest", got->top_logprob[r], want, DG_CUDA_ASKED_TOP, 1e-5, 1e-5);
    for (int c = 1; c < 4; c++)
        expect_class(z, total, &got->found[r][c], c, r);
}

/* Some rows have more equal words than can be ranked together; some a class that is far below. */
static void check_size(int n)
{
    n_vocab = n;
    for (int v = 0; v < n_vocab; v++)
        class_of[v] = v % 7 ? 1 : v > 700 ? 2 : 0;
    float *z = random_floats((size_t)(N_ROW * n_vocab), 3);
    for (int v = 0; v < n_vocab; v++) {
        if (v % 3 == 0) /* equal words, in chunks and between them */
            z[n_vocab + v] = 1;
        if (class_of[v] == 2)
            z[3 * n_vocab + v] -= 60;
    }
    static answers all, few;
    ask(&all, z, 0, N_ROW);
    for (int r = 0; r < N_ROW; r++)
        if (r != 2)
            expect_row(z + (size_t)(r * n_vocab), &all, r);
    if (all.top_id[2][0])
        case_fail("row 2 did not ask");
    for (int r = 0; r < N_ROW; r++) { /* the same bits alone */
        ask(&few, z, r, 1);
        expect_same("likeliest", few.top_id[r], all.top_id[r], sizeof all.top_id[r]);
        expect_same("asked", few.logprob[r], all.logprob[r], sizeof all.logprob[r]);
        expect_same("classes", few.found[r], all.found[r], sizeof all.found[r]);
    }
}

void check_cuda_asked(void)
{
    if (!case_begin("words: what rows are asked"))
        return;
    check_size(1000);
    check_size(9003);
    check_size(9000);
    case_end();
}
