/* One safetensors file: an 8-byte length, a JSON header, then the data. The parser is a pure
 * function of a buffer; every name, shape and offset is checked before it is used. */
#ifndef DG_FORMAT_SAFETENSORS_H
#define DG_FORMAT_SAFETENSORS_H

#include "base/error.h"
#include "tensor/tensor.h"

enum { DG_SAFETENSORS_HEADER_MAX = 16 << 20 }; /* bytes */

typedef struct dg_safetensors {
    dg_tensor *tensor; /* sorted by name; names are owned here, data points into the buffer */
    size_t n_tensor;
    char *names;
} dg_safetensors;

/* Parses the file image [data, data + size). `where` names it in errors. The buffer must outlive
 * *out. BOOL is read as U8; another element type that dg_dtype lacks is DGEMMA_E_UNSUPPORTED,
 * whichever tensor has it. On failure *out is empty. */
dgemma_status dg_safetensors_parse(dg_safetensors *out, const void *data, size_t size,
                                   const char *where, dgemma_error *err);
void dg_safetensors_clear(dg_safetensors *st);

const dg_tensor *dg_safetensors_find(const dg_safetensors *st, const char *name); /* or NULL */

#endif
