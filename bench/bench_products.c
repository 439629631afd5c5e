/* Products on quantised weights of each instruction set, on one core or on several at a time:
 *
 *     bench_products [--threads N] [--rows N,...] [--types NAME,...] [--cold] [SET...]
 *     bench_products --error
 *
 * Each thread has 64 columns of 2,816 values of its own for each type, those of a Q4_K_M file if
 * none are named, with --cold so many that they come from memory. Prints what unpacking them takes,
 * and products with so many rows, unpacking included: products of numbers a second, nanoseconds for
 * a panel of sixteen columns and 256 values, with --cold also the bytes that all threads read.
 *
 * With --error: how far results in whole numbers are from those of the same weights in floats, for
 * each type, by the definitions in plain C: numbers as they are stored, then bytes. */
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "cpu/kernels.h"
#include "model/synthetic_types.h"

enum { BLOCKS = 88, COLS = 64, MOST_ROWS = 256, MOST_THREADS = 256, COLD_BYTES = 40 << 20 };
static const double LEAST_SECONDS = 0.03;

typedef struct options {
    int n_thread, rows[8], n_rows;
    dg_dtype type[DG_DTYPE_COMPUTE];
    int n_type;
    bool cold;
} options;

typedef struct bench {
    const dg_qkernels *q;
    const dg_byte_kernels *bytes; /* or NULL */
    dg_dtype type;
    int n_row;  /* 0: unpacking alone */
    int n_part; /* sets of COLS columns, which follow each other */
    unsigned char *w;
    const dg_qpair *x[3]; /* in blocks, in super-blocks, as bytes */
    float *y;
    dg_qpanel *panel;
    dg_byte_panel *byte_panel;
    float *sums;
    double best; /* seconds for COLS columns */
} bench;

/* All columns as bytes. */
static void multiply_bytes(const bench *b, const unsigned char *weights)
{
    b->bytes->product(&(dg_byte_args){
        .y = b->y,
        .ldy = COLS,
        .x = b->x[2],
        .n_row = b->n_row,
        .w = weights,
        .stride = dg_dtype_bytes(b->type, BLOCKS * DG_QBLOCK),
        .type = (int)b->type,
        .n_in = BLOCKS * DG_QBLOCK,
        .n_col = COLS,
        .scale = 1,
        .panel = b->byte_panel,
        .sums = b->sums,
    });
}

/* A panel's columns, from `first` on. */
static void multiply_cols(const bench *b, const unsigned char *weights, int first)
{
    const size_t row = dg_dtype_bytes(b->type, BLOCKS * DG_QBLOCK);
    const dg_qway way = dg_qtype_super(b->type) ? DG_QWAY_SUPER : DG_QWAY_BLOCKS;
    const size_t room = dg_qrow_room(BLOCKS * DG_QBLOCK, way);
    for (int k = 0; k < BLOCKS; k += DG_QBLOCKS) {
        const size_t at = dg_dtype_bytes(b->type, (size_t)k * DG_QBLOCK);
        const unsigned char *w = weights + (size_t)first * row;
        const dg_qsoon soon = {
            .at = k + DG_QBLOCKS < BLOCKS ? w + at + dg_dtype_bytes(b->type, DG_QSLICE)
                                          : w + COLS * row,
            .stride = row,
            .bytes = (int)dg_dtype_bytes(b->type, DG_QSLICE),
            .n_col = DG_QCOLS,
        };
        b->q->pack[b->type](b->panel, &(dg_qpack_args){w + at, row, DG_QBLOCKS, DG_QCOLS, 1, NULL});
        if (b->n_row)
            b->q->gemm(&(dg_qgemm_args){b->y + first, COLS,
                                        b->x[way] + dg_qvalue_at(k * DG_QBLOCK, way), room,
                                        b->panel, 0, b->n_row, DG_QBLOCKS, DG_QCOLS, k > 0, soon});
    }
}

static void *run(void *arg)
{
    bench *b = arg;
    const size_t row = dg_dtype_bytes(b->type, BLOCKS * DG_QBLOCK);
    const double start = dg_clock_now();
    int part = 0, n = 0;
    b->best = 1e9;
    while (dg_clock_now() - start < LEAST_SECONDS) {
        double began = dg_clock_now();
        const unsigned char *w = b->w + (size_t)part * COLS * row;
        if (b->bytes && b->n_row)
            multiply_bytes(b, w);
        else
            for (int c = 0; c < COLS; c += DG_QCOLS)
                multiply_cols(b, w, c);
        double took = dg_clock_now() - began;
        b->best = took < b->best ? took : b->best;
        part = (part + 1) % b->n_part;
        n++;
    }
    if (b->n_part > 1)
        b->best = (dg_clock_now() - start) / n;
    return NULL;
}

static void *room(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) / 64 * 64);
    if (!p)
        abort();
    return memset(p, 0, (n + 63) / 64 * 64);
}

static const dg_qpair *rows_of(dg_quantise_fn *quantise, dg_qway way)
{
    float x[BLOCKS * DG_QBLOCK];
    const size_t row = dg_qrow_room(BLOCKS * DG_QBLOCK, way);
    dg_qpair *out = room(dg_qrow_at(MOST_ROWS, row, way) * sizeof *out);
    for (int r = 0; r < MOST_ROWS; r++) {
        for (int i = 0; i < BLOCKS * DG_QBLOCK; i++)
            x[i] = (float)((i + r) % 97) - 48;
        quantise(out + dg_qrow_at(r, row, way), dg_qrow_which(r, way), x, BLOCKS);
    }
    return out;
}

/* Random weights: small steps that are subnormal numbers would take longer than weights do. */
static void *fill(void *arg)
{
    const bench *b = arg;
    const size_t bytes = COLS * dg_dtype_bytes(b->type, BLOCKS * DG_QBLOCK);
    dg_random_weights(b->w, b->type, bytes, 1);
    for (int i = 1; i <= b->n_part; i++) /* one more part is asked for ahead */
        memcpy(b->w + (size_t)i * bytes, b->w, bytes);
    return NULL;
}

static bench make(const dg_kernels *k, const dg_qpair *const x[3], unsigned char *w)
{
    return (bench){.q = k->q,
                   .bytes = k->bytes,
                   .w = w,
                   .x = {x[0], x[1], x[2]},
                   .y = room((MOST_ROWS + 32) * COLS * sizeof(float)),
                   .panel = room(sizeof(dg_qpanel)),
                   .byte_panel = room(DG_BYTE_PANELS * sizeof(dg_byte_panel)),
                   .sums = room((MOST_ROWS + 2) * DG_BYTE_COLS * sizeof(float))};
}

/* fn(each thread's). */
static void on_threads(void *(*fn)(void *), bench *b, int n_thread)
{
    pthread_t thread[MOST_THREADS];
    for (int i = 1; i < n_thread; i++)
        if (pthread_create(&thread[i], NULL, fn, &b[i]) != 0)
            abort();
    fn(&b[0]);
    for (int i = 1; i < n_thread; i++)
        pthread_join(thread[i], NULL);
}

/* The slowest thread's time. */
static double run_all(bench *b, int n_thread, int n_row)
{
    double most = 0;
    for (int i = 0; i < n_thread; i++)
        b[i].n_row = n_row;
    on_threads(run, b, n_thread);
    for (int i = 0; i < n_thread; i++)
        most = b[i].best > most ? b[i].best : most;
    return most;
}

static void bench_type(const char *name, dg_dtype type, bench *b, const options *o)
{
    const size_t bytes = COLS * dg_dtype_bytes(type, BLOCKS * DG_QBLOCK);
    const double n = (double)BLOCKS * DG_QBLOCK * COLS, panels = BLOCKS / 8.0 * COLS / 16;
    for (int i = 0; i < o->n_thread; i++) {
        b[i].type = type;
        b[i].n_part = o->cold ? (int)(COLD_BYTES / bytes) - 1 : 1;
    }
    on_threads(fill, b, o->n_thread);
    double s = run_all(b, o->n_thread, 0);
    printf("%-5s %-7s unpacking %5.1f G/s", name, dg_dtype_name(type), 1e-9 * n / s);
    for (int i = 0; i < o->n_rows; i++) {
        s = run_all(b, o->n_thread, o->rows[i]);
        printf("  %d rows %6.1f G/s (%5.0f ns)", o->rows[i], 1e-9 * o->rows[i] * n / s,
               1e9 * s / panels);
        if (o->cold)
            printf(" %5.1f GB/s", 1e-9 * o->n_thread * (double)bytes / s);
    }
    printf("\n");
    fflush(stdout);
}

static void bench_set(const char *name, const options *o, void *const *weights)
{
    unsigned flags;
    dg_kernels k;
    bench b[MOST_THREADS];
    if (!dg_cpu_flags_parse(&flags, name) || (flags & dg_cpu_flags()) != flags)
        return;
    dg_kernels_init(&k, flags);
    if (!k.q)
        return;
    const dg_qpair *x[3] = {rows_of(k.q->quantise, DG_QWAY_BLOCKS),
                            rows_of(k.q->quantise_super, DG_QWAY_SUPER),
                            k.bytes ? rows_of(k.bytes->quantise, k.bytes->way) : NULL};
    for (int i = 0; i < o->n_thread; i++)
        b[i] = make(&k, x, weights[i]);
    for (int t = 0; t < o->n_type; t++)
        bench_type(name, o->type[t], b, o);
    for (int i = 0; i < o->n_thread; i++) {
        free(b[i].y);
        free(b[i].panel);
        free(b[i].byte_panel);
        free(b[i].sums);
    }
    for (int i = 0; i < 3; i++)
        free((void *)x[i]);
}

/* ---- errors ---- */

enum { ERROR_ROWS = 64, N_IN = BLOCKS * DG_QBLOCK };

/* Close to a normal distribution: twelve uniform numbers less their mean. */
static float normal(const dg_rng_key *key, uint32_t i)
{
    double sum = -6;
    for (uint32_t k = 0; k < 12; k++)
        sum += dg_rng_uniform(key, 12 * i + k);
    return (float)sum;
}

static const dg_qpair *quantised(dg_quantise_fn *quantise, dg_qway way, const float *x)
{
    const size_t row = dg_qrow_room(N_IN, way);
    dg_qpair *out = room(dg_qrow_at(ERROR_ROWS, row, way) * sizeof *out);
    for (int r = 0; r < ERROR_ROWS; r++)
        quantise(out + dg_qrow_at(r, row, way), dg_qrow_which(r, way), x + (size_t)r * N_IN,
                 BLOCKS);
    return out;
}

/* Of results in y, as a share of the size of the true ones. */
static double error_of(const float *y, const double *exact)
{
    double off = 0, all = 0;
    for (int i = 0; i < ERROR_ROWS * COLS; i++) {
        off += (y[i] - exact[i]) * (y[i] - exact[i]);
        all += exact[i] * exact[i];
    }
    return sqrt(off / all);
}

static void print_error(dg_dtype type, bench *b, const dg_kernels *k, const float *x)
{
    static double exact[ERROR_ROWS * COLS];
    const size_t row = dg_dtype_bytes(type, N_IN);
    unsigned char *w = room(COLS * row);
    float wide[N_IN];
    dg_random_weights(w, type, COLS * row, 1);
    for (int c = 0; c < COLS; c++) {
        k->widen[type](wide, w + (size_t)c * row, N_IN);
        for (int r = 0; r < ERROR_ROWS; r++) {
            double sum = 0;
            for (int i = 0; i < N_IN; i++)
                sum += (double)x[(size_t)r * N_IN + (size_t)i] * wide[i];
            exact[r * COLS + c] = sum;
        }
    }
    b->type = type;
    b->n_row = ERROR_ROWS;
    for (int c = 0; c < COLS; c += DG_QCOLS)
        multiply_cols(b, w, c);
    printf("%-7s numbers %.2f %%", dg_dtype_name(type), 100 * error_of(b->y, exact));
    multiply_bytes(b, w);
    printf("  bytes %.2f %%\n", 100 * error_of(b->y, exact));
    free(w);
}

static void print_errors(void)
{
    const dg_rng_key key = {.seed = 1};
    float *x = room((size_t)ERROR_ROWS * N_IN * sizeof *x);
    dg_kernels k;
    dg_kernels_init(&k, 0);
    for (uint32_t i = 0; i < ERROR_ROWS * N_IN; i++)
        x[i] = normal(&key, i);
    const dg_qpair *rows[3] = {quantised(k.q->quantise, DG_QWAY_BLOCKS, x),
                               quantised(k.q->quantise_super, DG_QWAY_SUPER, x),
                               quantised(dg_bytes_ref.quantise, DG_QWAY_BYTES, x)};
    bench b = make(&k, rows, NULL);
    b.bytes = &dg_bytes_ref;
    for (int type = 0; type < DG_DTYPE_COMPUTE; type++)
        if (k.q->pack[type])
            print_error((dg_dtype)type, &b, &k, x);
    free(b.y);
    free(b.panel);
    free(b.byte_panel);
    free(b.sums);
    for (int i = 0; i < 3; i++)
        free((void *)rows[i]);
    free(x);
}

static int list_of(int *rows, char *text)
{
    int n = 0;
    for (char *p = strtok(text, ","); p && n < 8; p = strtok(NULL, ","))
        rows[n++] = dg_max(1, dg_min(MOST_ROWS, atoi(p)));
    return n;
}

/* Of block types, by their names. */
static int types_of(dg_dtype *type, char *text)
{
    int n = 0;
    for (char *p = strtok(text, ","); p && n < DG_DTYPE_COMPUTE; p = strtok(NULL, ","))
        for (int t = 0; t < DG_DTYPE_COMPUTE; t++)
            if (dg_quantised_ref.pack[t] && strcmp(p, dg_dtype_name((dg_dtype)t)) == 0)
                type[n++] = (dg_dtype)t;
    return n;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"threads", required_argument, NULL, 't'}, {"rows", required_argument, NULL, 'r'},
        {"types", required_argument, NULL, 'y'},   {"cold", no_argument, NULL, 'c'},
        {"error", no_argument, NULL, 'e'},         {0}};
    static const char *all[] = {"i8mm", "avx2", "vnni", "amx"};
    options opt = {.n_thread = 1,
                   .rows = {1, 16, 24, 256},
                   .n_rows = 4,
                   .type = {DG_Q4_K, DG_Q5_0, DG_Q8_0, DG_Q6_K},
                   .n_type = 4};
    for (int o; (o = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (o == 't')
            opt.n_thread = dg_max(1, dg_min(MOST_THREADS, atoi(optarg)));
        else if (o == 'r')
            opt.n_rows = list_of(opt.rows, optarg);
        else if (o == 'y')
            opt.n_type = types_of(opt.type, optarg);
        else if (o == 'c')
            opt.cold = true;
        else if (o == 'e') {
            print_errors();
            return 0;
        } else
            return 2;
    }
    void *weights[MOST_THREADS] = {NULL};
    for (int i = 0; i < opt.n_thread; i++)
        if (!(weights[i] = aligned_alloc(64, COLD_BYTES)))
            abort();
    for (size_t i = 0; i < DG_COUNT(all) && optind == argc; i++)
        bench_set(all[i], &opt, weights);
    for (int i = optind; i < argc; i++)
        bench_set(argv[i], &opt, weights);
    for (int i = 0; i < opt.n_thread; i++)
        free(weights[i]);
    return 0;
}
