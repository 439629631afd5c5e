#include "cuda/cuda_check.h"
#include "tensor/narrowed.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tensor/dtype.h"

enum { MAX_MEMORY = 16384 };

static struct {
    char name[160];
    bool failing;
    void *device[MAX_MEMORY], *host[MAX_MEMORY];
    int n_device, n_host;
} now;
static int passed, failed, skipped, n_case;
static uint64_t seed;
static const char *only = "";

/* ---- cases ---- */

bool case_begin(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(now.name, sizeof now.name, fmt, args);
    va_end(args);
    now.failing = false;
#ifdef EMULATED
    emu_set_order(n_case % EMU_N_ORDER);
#endif
    n_case++;
    return strncmp(now.name, only, strlen(only)) == 0;
}

void case_fail(const char *fmt, ...)
{
    if (now.failing)
        return;
    now.failing = true;
    printf("%s: ", now.name);
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
}

static void release(void)
{
    while (now.n_device > 0)
        cudaFree(now.device[--now.n_device]);
    while (now.n_host > 0)
        free(now.host[--now.n_host]);
}

void case_end(void)
{
    release();
    if (now.failing)
        failed++;
    else
        passed++;
}

void case_skip(const char *why)
{
    release();
    printf("%s: skipped, %s\n", now.name, why);
    skipped++;
}

/* ---- memory ---- */

static void *keep(void **list, int *n, void *p)
{
    if (!p || *n == MAX_MEMORY) {
        fprintf(stderr, "%s: out of memory\n", now.name);
        exit(2);
    }
    return list[(*n)++] = p;
}

void *device_bytes(size_t bytes)
{
    void *p = NULL;
    launched(cudaMalloc(&p, bytes ? bytes : 1));
    keep(now.device, &now.n_device, p);
    launched(cudaMemset(p, 0xFF, bytes));
    return p;
}

void *device_copy(const void *host, size_t bytes)
{
    void *p = device_bytes(bytes);
    launched(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
    return p;
}

void device_read(void *host, const void *device, size_t bytes)
{
    launched(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

void *host_bytes(size_t bytes)
{
    return keep(now.host, &now.n_host, calloc(1, bytes ? bytes : 1));
}

void launched(cudaError_t error)
{
    if (!error)
        error = cudaDeviceSynchronize();
    if (error)
        case_fail("%s", cudaGetErrorString(error));
}

/* ---- chance ---- */

uint32_t random_bits(void)
{
    seed += 0x9E3779B97F4A7C15u;
    uint64_t z = seed;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(z >> 32);
}

double random_uniform(double low, double high)
{
    return low + (high - low) * random_bits() / 4294967296.0;
}

int random_int(int low, int high)
{
    return low + (int)(random_bits() % (uint32_t)(high - low + 1));
}

double random_normal(void)
{
    double u = random_uniform(1e-9, 1), v = random_uniform(0, 6.283185307179586);
    return sqrt(-2 * log(u)) * cos(v);
}

float *random_floats(size_t n, double scale)
{
    float *x = host_bytes(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(scale * random_normal());
    return x;
}

/* ---- comparisons ---- */

/* ---- stored weights ---- */

static void put_half(unsigned char *p, double value)
{
    uint16_t bits = dg_float_to_f16((float)value);
    p[0] = (unsigned char)(bits & 255);
    p[1] = (unsigned char)(bits >> 8);
}

/* Scales of a size that gives values around 0.05; every other bit of a block is chance. */
static void make_block(unsigned char *b, dg_dtype type)
{
    size_t bytes = dg_dtype_bytes(type, dg_dtype_block(type));
    for (size_t i = 0; i < bytes; i++)
        b[i] = (unsigned char)(random_bits() & 255);
    double d = random_uniform(0.5, 1.5) * (random_bits() & 1 ? 1 : -1);
    switch (type) {
    case DG_Q8_0:
        put_half(b, d * 0.0008);
        break;
    case DG_Q4_0:
        put_half(b, d * 0.01);
        break;
    case DG_Q5_0:
        put_half(b, d * 0.005);
        break;
    case DG_IQ4_NL:
        put_half(b, d * 0.0008);
        break;
    case DG_MXFP4:
        b[0] = (unsigned char)random_int(117, 123);
        break;
    case DG_Q4_K:
    case DG_Q5_K:
        put_half(b, fabs(d) * (type == DG_Q4_K ? 2e-4 : 1e-4));
        put_half(b + 2, fabs(d) * 1.5e-3);
        break;
    case DG_INT4: /* the step as a bfloat16 */
        b[1] = (unsigned char)(0x3C | (random_bits() & 0x80));
        break;
    default:
        put_half(b + 208, d * 2e-5);
    }
}

/* Numbers of E4M3 that a factor of some thousandths goes with. */
static void make_bytes(unsigned char *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = dg_float_to_e4m3((float)(random_normal() * 50));
}

unsigned char *random_stored(dg_dtype type, size_t n)
{
    unsigned char *bytes = host_bytes(dg_dtype_bytes(type, n));
    if (type == DG_FP8) {
        make_bytes(bytes, n);
    } else if (dg_dtype_block(type) > 1) {
        size_t block = dg_dtype_block(type), size = dg_dtype_bytes(type, block);
        for (size_t i = 0; i < n / block; i++)
            make_block(bytes + i * size, type);
    } else {
        dg_narrow(bytes, type, random_floats(n, 0.05), n);
    }
    return bytes;
}

/* ---- expectations ---- */

void expect_close(const char *what, const float *got, const double *want, size_t n, double rel,
                  double abs)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= rel * fabs(want[i]) + abs)) {
            case_fail("%s[%zu] is %.9g, not %.9g", what, i, (double)got[i], want[i]);
            return;
        }
}

void expect_relative(const char *what, const float *got, const double *want, size_t n, double limit)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    if (!(sqrt(error) <= limit * sqrt(size)))
        case_fail("%s is off by %.3g of its size, at most %.3g are right", what, sqrt(error / size),
                  limit);
}

void expect_same(const char *what, const void *got, const void *want, size_t bytes)
{
    const unsigned char *a = got, *b = want;
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i]) {
            case_fail("%s differs in byte %zu of %zu", what, i, bytes);
            return;
        }
}

/* ---- rows ---- */

static dg_dtype type_of(dg_cuda_form form)
{
    return form == DG_CUDA_F32 ? DG_F32 : form == DG_CUDA_BF16 ? DG_BF16 : DG_F16;
}

double form_step(dg_cuda_form form)
{
    return form == DG_CUDA_F32    ? 0x1p-24
           : form == DG_CUDA_BF16 ? 0x1p-8
           : form == DG_CUDA_F16  ? 0x1p-11
                                  : 0x1p-4;
}

dg_cuda_rows device_rows(dg_cuda_form form, int n_row, int n)
{
    dg_cuda_rows rows = {form, NULL, form == DG_CUDA_E4M3 ? (n + 127) / 128 * 128 : dg_cuda_ld(n)};
    rows.data = device_bytes((size_t)n_row * dg_cuda_row_bytes(rows));
    return rows;
}

/* Rows of E4M3: each with the factor that its largest value asks for. */
static void narrow_bytes(unsigned char *out, const float *row, int n, int ld)
{
    uint32_t most = 0;
    for (int i = 0; i < n; i++) {
        uint32_t bits = dg_narrowed_bits(fabsf(row[i]));
        most = bits > most ? bits : most;
    }
    float factor = dg_fp8_factor(most);
    for (int i = 0; i < n; i++)
        out[i] = dg_float_to_e4m3(row[i] * (1 / factor));
    memcpy(out + ld, &factor, sizeof factor);
}

static void widen_row(float *out, const unsigned char *stored, dg_cuda_rows rows)
{
    float factor;
    if (rows.form != DG_CUDA_E4M3) {
        dg_widen(out, stored, type_of(rows.form), (size_t)rows.ld);
        return;
    }
    memcpy(&factor, stored + rows.ld, sizeof factor);
    for (int i = 0; i < rows.ld; i++)
        out[i] = dg_e4m3_to_float(stored[i]) * factor;
}

dg_cuda_rows device_rows_of(dg_cuda_form form, const float *host, int n_row, int n)
{
    dg_cuda_rows rows = device_rows(form, n_row, n);
    size_t row = dg_cuda_row_bytes(rows);
    unsigned char *narrow = host_bytes((size_t)n_row * row);
    for (int r = 0; r < n_row; r++) {
        const float *from = host + (size_t)r * (size_t)n;
        if (form == DG_CUDA_E4M3)
            narrow_bytes(narrow + (size_t)r * row, from, n, rows.ld);
        else
            dg_narrow(narrow + (size_t)r * row, type_of(form), from, (size_t)n);
    }
    launched(cudaMemcpy(rows.data, narrow, (size_t)n_row * row, cudaMemcpyHostToDevice));
    return rows;
}

float *rows_read(dg_cuda_rows rows, int n_row, int n)
{
    size_t row = dg_cuda_row_bytes(rows), ld = (size_t)rows.ld, cols = (size_t)n;
    unsigned char *stored = host_bytes((size_t)n_row * row);
    float *wide = host_bytes(ld * sizeof *wide),
          *out = host_bytes((size_t)n_row * cols * sizeof *out);
    device_read(stored, rows.data, (size_t)n_row * row);
    for (size_t r = 0; r < (size_t)n_row; r++) {
        widen_row(wide, stored + r * row, rows);
        memcpy(out + r * cols, wide, cols * sizeof *out);
        for (size_t i = cols; i < ld; i++)
            if (!(wide[i] == 0)) {
                case_fail("row %zu has %g behind its end, at %zu", r, (double)wide[i], i);
                break;
            }
    }
    return out;
}

/* ---- the program ---- */

/* cuda_host_tests [NAME]: only cases that begin with it. */
int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } families[] = {
        {"device", check_cuda_device},     {"places", check_cuda_places},
        {"rows", check_cuda_rows},         {"attention", check_cuda_attention},
        {"products", check_cuda_products}, {"words", check_cuda_words},
        {"sure", check_cuda_sure},         {"rates", check_cuda_rates},
        {"vision", check_cuda_vision},     {"narrow", check_cuda_narrow},
        {"asked", check_cuda_asked},       {"adapters", check_cuda_adapters},
        {"project", check_cuda_project},
    };
    if (argc > 1)
        only = argv[1];
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        seed = 20261115 + i;
        double begin = (double)clock() / CLOCKS_PER_SEC;
        int before = passed;
        families[i].run();
        printf("%-10s %d passed, %.1f s\n", families[i].name, passed - before,
               (double)clock() / CLOCKS_PER_SEC - begin);
    }
    const bool none = !passed && !failed && !skipped;
    if (none)
        fprintf(stderr, "there is no such case\n");
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed || none ? 1 : 0;
}
