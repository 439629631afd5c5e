/* What the checks of the CUDA arithmetic share. They call the launchers of cuda_math.h through the
 * CUDA runtime, or through the emulation of it: the same sources run on a device and on the host.
 * References are sums in double. */
#ifndef DG_TESTS_CUDA_CUDA_CHECK_H
#define DG_TESTS_CUDA_CUDA_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cuda/cuda_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One case: begin, any number of failures, end counts and prints. Only the first failure is
 * printed. Cases whose name does not begin with the word given on the command line are passed over:
 * begin gives false. Memory from below lives until the end of its case. */
bool case_begin(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void case_end(void);
void case_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void case_skip(const char *why);

/* Device memory; a copy of the host's, or filled with ones. Host memory, zero. */
void *device_bytes(size_t bytes);
void *device_copy(const void *host, size_t bytes);
void device_read(void *host, const void *device, size_t bytes);
void *host_bytes(size_t bytes);

/* Fails the case unless the launch and everything before it succeeded. */
void launched(cudaError_t error);

uint32_t random_bits(void);
double random_uniform(double low, double high);
int random_int(int low, int high); /* both included */
double random_normal(void);
float *random_floats(size_t n, double scale); /* host memory, bell-shaped */
/* Host memory: n values of any type as they are stored, around 0.05. */
unsigned char *random_stored(dg_dtype type, size_t n);

/* |got - want| <= rel * |want| + abs, else the case fails. NaN is never right. */
void expect_close(const char *what, const float *got, const double *want, size_t n, double rel,
                  double abs);
/* The root of the sum of squared errors over that of the wanted values. */
void expect_relative(const char *what, const float *got, const double *want, size_t n,
                     double limit);
void expect_same(const char *what, const void *got, const void *want, size_t bytes);

/* Rows of a form, on the device: n_row x ld, and back to floats, [n_row, n]; what lies behind n
 * must be zero. */
dg_cuda_rows device_rows(dg_cuda_form form, int n_row, int n);
dg_cuda_rows device_rows_of(dg_cuda_form form, const float *host, int n_row, int n); /* narrowed */
float *rows_read(dg_cuda_rows rows, int n_row, int n);
double form_step(dg_cuda_form form); /* relative distance of neighbouring values, halved */

/* The families. */
void check_cuda_device(void);
void check_cuda_places(void);
void check_cuda_rows(void);
void check_cuda_attention(void);
void check_cuda_products(void);
void check_cuda_narrow(void);
void check_cuda_words(void);
void check_cuda_sure(void);
void check_cuda_asked(void);
void check_cuda_rates(void);
void check_cuda_vision(void);
void check_cuda_adapters(void);
void check_cuda_project(void);

#ifdef __cplusplus
}
#endif

#endif
