/* What the kernel checks share: buffers between guard pages, random data from one seed,
 * comparisons, timing.
 *
 * A check_* function below runs one family of kernels, `opt` against `ref`. Data that a kernel may
 * not touch is a page that cannot be touched, or a byte that is looked at afterwards. */
#ifndef DG_TESTS_KERNELS_CHECK_H
#define DG_TESTS_KERNELS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/common.h"
#include "base/error.h"
#include "cpu/kernels.h"

enum { CHECK_MAX_BUFFER = 64 };

typedef struct check_buffer {
    unsigned char *map; /* guard page, pages with the data, guard page */
    unsigned char *data;
    size_t map_bytes, data_bytes;
} check_buffer;

typedef struct check {
    const dg_kernels *ref, *opt;
    const char *set; /* the instruction set of opt */
    uint64_t seed;
    uint32_t n_draw;
    bool bench;
    bool few;    /* a quarter of the sizes of products */
    double peak; /* GFLOP/s of fused multiply-adds alone; 0 before it is measured */
    int passed, failed, skipped;

    const char *kernel; /* the check under way */
    bool failing;
    check_buffer buffer[CHECK_MAX_BUFFER];
    int n_buffer;
} check;

/* The families. */
void check_gemm(check *c);
void check_stored(check *c); /* pack, widen, narrow, axpy, add_rows */
void check_rows(check *c);   /* rmsnorm, rope, sum, dot, argmax */
void check_math(check *c);   /* gelu_mul, softcap, exp_shift, exp_sums */
void check_words(check *c);
void check_quantised(check *c);
void check_byte_products(check *c);
void check_bfloat(check *c);

/* Products of instruction sets in plain C. */
extern const dg_bkernels check_plain_bfloat;
extern const dg_qkernels check_plain_vnni;
extern const dg_byte_kernels check_plain_bytes_amx, check_plain_bytes_vnni;
dg_gemm_panel_fn check_plain_gemm;

/* What k gives for fixed inputs is what was recorded. */
void check_known(check *c, const dg_kernels *k, bool reference);

/* One kernel: begin, any number of failures, end counts and prints. Only the first failure is
 * printed. */
void check_begin(check *c, const char *kernel);
void check_end(check *c);
void check_fail(check *c, const char *fmt, ...) DG_PRINTF(2, 3);

/* Memory that ends at a guard page or starts behind one, as chance has it; it lives until
 * check_release, which also looks whether the bytes around it are untouched. */
void *check_bytes(check *c, size_t n);
float *check_floats(check *c, int n);
float *check_normal(check *c, int n, double scale); /* bell-shaped around 0 */
float *check_copy(check *c, const float *x, int n);
void check_release(check *c);

/* Blocks of anything, with scales that are numbers, `n_row` rows `stride` apart on an odd address.
 */
unsigned char *check_blocks(check *c, dg_dtype t, int n_row, size_t row_bytes, size_t stride);

uint64_t check_bits(check *c);
double check_uniform(check *c, double low, double high);
int check_int(check *c, int low, int high); /* both included */

/* |got - want| <= rel * |want| + abs * size[i], plus one step of the smallest floats; size ==
 * NULL: 1. NaN equals NaN, infinity equals itself. */
typedef struct check_tol {
    double rel, abs;
    const float *size;
} check_tol;
void check_close(check *c, const float *got, const float *want, int n, check_tol tol);

/* The same bits; NaN equals NaN. */
void check_same(check *c, const char *what, const float *got, const float *want, int n);

/* Sizes with every tail of a block of eight, and those of the model. */
extern const int check_sizes[];
extern const int n_check_sizes;

/* BENCH(c, "n 256", 2.0 * 256, "GFLOP/s") call(…); runs the call only with --bench, many times; one
 * call does `work` (operations, elements, bytes), and `unit` names 1e9 of them in a second. */
typedef struct check_timer {
    const check *c;
    const char *label, *unit;
    double work, start, best;
    long calls, left;
    int n_round;
} check_timer;
check_timer check_timer_start(const check *c, const char *label, double work, const char *unit);
bool check_timer_more(check_timer *t);
#define BENCH(c, label, work, unit)                                                                \
    for (check_timer timer_ = check_timer_start(c, label, work, unit); check_timer_more(&timer_);)

/* What the multiply-add units give when nothing else is asked of them, in GFLOP/s; 0 for an unknown
 * set. */
double check_peak(const char *set);

#endif
