/* Products on quantised weights of each instruction set, on one core or on several at a time:
 *
 *     bench_products [--threads N] [--rows N,...] [SET...]
 *
 * Each thread has 64 columns of 2,816 values of its own for each type of a Q4_K_M file. Prints what
 * unpacking them takes, and products with so many rows, unpacking included: products of numbers a
 * second and nanoseconds for a panel of sixteen columns and 256 values. */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/common.h"
#include "cpu/kernels.h"

enum { BLOCKS = 88, COLS = 64, MOST_ROWS = 256, MOST_THREADS = 256 };
static const double LEAST_SECONDS = 0.03;

typedef struct bench {
    const dg_qkernels *q;
    dg_dtype type;
    int n_row; /* 0: unpacking alone */
    const unsigned char *w;
    const dg_qpair *x;
    float *y;
    dg_qpanel *panel;
    double best; /* seconds for all columns */
} bench;

/* Columns [first, end), which are as many as the set takes. */
static void multiply_cols(const bench *b, int first, int end)
{
    const size_t row = dg_dtype_bytes(b->type, BLOCKS * DG_QBLOCK);
    const dg_qorder *o = dg_qorder_of(b->q);
    const bool held = o->release;
    for (int k = 0; k < BLOCKS; k += DG_QBLOCKS) {
        const unsigned char *w = b->w + dg_dtype_bytes(b->type, (size_t)k * DG_QBLOCK);
        for (int c = first; c < end; c += DG_QCOLS)
            b->q->pack[b->type](
                &b->panel[(c - first) / DG_QCOLS],
                &(dg_qpack_args){w + (size_t)c * row, row, DG_QBLOCKS, DG_QCOLS, 1, NULL});
        if (b->n_row)
            b->q->gemm(&(dg_qgemm_args){b->y + (held ? 0 : first), COLS, b->x + k * o->room, BLOCKS,
                                        b->panel, 0, b->n_row, DG_QBLOCKS, end - first, k > 0,
                                        held});
    }
}

static void *run(void *arg)
{
    bench *b = arg;
    const int width = dg_qorder_of(b->q)->panels * DG_QCOLS;
    b->best = 1e9;
    for (double start = dg_clock_now(); dg_clock_now() - start < LEAST_SECONDS;) {
        double began = dg_clock_now();
        for (int c = 0; c < COLS; c += width)
            multiply_cols(b, c, dg_min(c + width, COLS));
        double took = dg_clock_now() - began;
        b->best = took < b->best ? took : b->best;
    }
    return NULL;
}

static void *room(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) / 64 * 64);
    if (!p)
        abort();
    return memset(p, 0, (n + 63) / 64 * 64);
}

static const dg_qpair *rows_of(const dg_qkernels *q)
{
    float x[BLOCKS * DG_QBLOCK];
    const dg_qorder *o = dg_qorder_of(q);
    dg_qpair *out = room(dg_qrow_at(o, MOST_ROWS, BLOCKS) * sizeof *out);
    for (int r = 0; r < MOST_ROWS; r++) {
        for (int i = 0; i < BLOCKS * DG_QBLOCK; i++)
            x[i] = (float)((i + r) % 97) - 48;
        q->quantise(out + dg_qrow_at(o, r, BLOCKS), dg_qrow_which(o, r), x, BLOCKS);
    }
    return out;
}

static bench make(const dg_qkernels *q, dg_dtype type, const dg_qpair *x)
{
    size_t bytes = COLS * dg_dtype_bytes(type, BLOCKS * DG_QBLOCK);
    unsigned char *w = room(bytes + 64);
    for (size_t i = 0; i < bytes; i++)
        w[i] = (unsigned char)((i * 2654435761u) >> 13 & 0x2F);
    return (bench){.q = q,
                   .type = type,
                   .w = w,
                   .x = x,
                   .y = room((MOST_ROWS + 32) * COLS * sizeof(float)),
                   .panel = room((size_t)dg_qorder_of(q)->panels * sizeof(dg_qpanel))};
}

/* The slowest thread's best time. */
static double run_all(bench *b, int n_thread, int n_row)
{
    pthread_t thread[MOST_THREADS];
    double most = 0;
    for (int i = 0; i < n_thread; i++) {
        b[i].n_row = n_row;
        if (i && pthread_create(&thread[i], NULL, run, &b[i]) != 0)
            abort();
    }
    run(&b[0]);
    for (int i = 1; i < n_thread; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < n_thread; i++)
        most = b[i].best > most ? b[i].best : most;
    return most;
}

static void bench_set(const char *name, int n_thread, const int *rows, int n_rows)
{
    static const dg_dtype types[] = {DG_Q4_K, DG_Q5_0, DG_Q8_0, DG_Q6_K};
    const double n = (double)BLOCKS * DG_QBLOCK * COLS, panels = BLOCKS / 8.0 * COLS / 16;
    unsigned flags;
    dg_kernels k;
    if (!dg_cpu_flags_parse(&flags, name) || (flags & dg_cpu_flags()) != flags)
        return;
    dg_kernels_init(&k, flags);
    if (!k.q)
        return;
    const dg_qpair *x = rows_of(k.q);
    for (size_t t = 0; t < DG_COUNT(types); t++) {
        bench b[MOST_THREADS];
        for (int i = 0; i < n_thread; i++)
            b[i] = make(k.q, types[t], x);
        double s = run_all(b, n_thread, 0);
        printf("%-5s %-5s unpacking %5.1f G/s", name, dg_dtype_name(types[t]), 1e-9 * n / s);
        for (int i = 0; i < n_rows; i++) {
            s = run_all(b, n_thread, rows[i]);
            printf("  %d rows %6.1f G/s (%5.0f ns)", rows[i], 1e-9 * rows[i] * n / s,
                   1e9 * s / panels);
        }
        printf("\n");
        fflush(stdout);
        for (int i = 0; i < n_thread; i++) {
            free((void *)b[i].w);
            free(b[i].y);
            free(b[i].panel);
        }
    }
    free((void *)x);
}

static int list_of(int *rows, char *text)
{
    int n = 0;
    for (char *p = strtok(text, ","); p && n < 8; p = strtok(NULL, ","))
        rows[n++] = dg_max(1, dg_min(MOST_ROWS, atoi(p)));
    return n;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"threads", required_argument, NULL, 't'}, {"rows", required_argument, NULL, 'r'}, {0}};
    static const char *all[] = {"i8mm", "avx2", "vnni", "amx"};
    int n_thread = 1, rows[8] = {1, 16, 24, 256}, n_rows = 4;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 't')
            n_thread = dg_max(1, dg_min(MOST_THREADS, atoi(optarg)));
        else if (o == 'r')
            n_rows = list_of(rows, optarg);
        else
            return 2;
    }
    for (size_t i = 0; i < DG_COUNT(all) && optind == argc; i++)
        bench_set(all[i], n_thread, rows, n_rows);
    for (int i = optind; i < argc; i++)
        bench_set(argv[i], n_thread, rows, n_rows);
    return 0;
}
