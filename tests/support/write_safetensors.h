/* Writes safetensors files for tests. */
#ifndef DG_TESTS_WRITE_SAFETENSORS_H
#define DG_TESTS_WRITE_SAFETENSORS_H

#include <stdbool.h>
#include "tensor/tensor.h"

/* Writes n tensors, in this order, end to end. Of each, `bytes` is taken from type and shape, not
 * from the field; without data it is zeros that take no room on the disk, so a tensor may have the
 * size of a real one. */
bool dg_test_write_safetensors(const char *path, const dg_tensor *tensor, size_t n);

/* Writes a header as it is given, behind its length, then n_data zero bytes: for files that are
 * wrong. */
bool dg_test_write_safetensors_raw(const char *path, const char *header, size_t n_data);

#endif
