/* A safetensors file of arbitrary bytes: what is accepted lies inside the buffer and can be found
 * by name, and what is in parts can be put together. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "format/modules.h"
#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

static void check_tensor(const dg_safetensors *st, const dg_tensor *t, const uint8_t *data,
                         size_t size)
{
    const uint8_t *p = t->data;
    check(p >= data && p <= data + size && t->bytes <= (size_t)(data + size - p));
    check(t->n_dim >= 0 && t->n_dim <= DG_MAX_DIM);
    check(dg_tensor_count(t) * dg_dtype_size(t->type) == t->bytes);
    check(dg_safetensors_find(st, t->name) == t);
}

/* Matrices in parts: all their rows are read, whatever they hold; what a config would say of them
 * is chosen by the bits of `how`. */
static void run_modules(const dg_safetensors *st, unsigned how)
{
    enum { MOST = 1 << 22 };
    dg_modules m;
    dgemma_error err = {0};
    dg_quantisation q = {.method = (dg_quant_method)((how & 7) % (DG_QUANT_AUTO_ROUND + 1)),
                         .n_block = 2,
                         .block = {{128, 128}, {2, 64}},
                         .symmetric = how & 8,
                         .zero_less = how >> 4 & 1};
    dgemma_status status = dg_modules_join(&m, st->tensor, st->n_tensor, &q, "fuzz", &err);
    check(status == DGEMMA_OK || (err.status == status && err.msg[0] && !m.tensor));
    for (size_t i = 0; i < m.n_tensor; i++) {
        const dg_tensor *t = &m.tensor[i];
        check(dg_dtype_bytes(t->type, dg_tensor_count(t)) == t->bytes && t->pieces && !t->data);
        void *out = t->bytes <= MOST ? malloc(t->bytes) : NULL;
        if (out)
            dg_pieces_make(out, t, 0, t->shape[t->n_dim - 2], &err);
        free(out);
    }
    dg_modules_clear(&m);
}

static void run(const uint8_t *data, size_t size)
{
    dg_safetensors st;
    dgemma_error err = {0};
    dgemma_status status = dg_safetensors_parse(&st, data, size, "fuzz", &err);
    check(status == DGEMMA_OK || (err.status == status && err.msg[0] && !st.tensor));
    for (size_t i = 0; i < st.n_tensor; i++)
        check_tensor(&st, &st.tensor[i], data, size);
    run_modules(&st, size ? data[size - 1] : 0);
    dg_safetensors_clear(&st);
}

/* The input as a file, and once more with the right length in front of it, so that a header that
 * grows or shrinks is still read: it ends at the first zero byte, data follows. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    run(data, size);
    if (size < 8)
        return 0;
    uint8_t *copy = malloc(size);
    check(copy != NULL);
    memcpy(copy, data, size);
    const uint8_t *end = memchr(data + 8, 0, size - 8);
    uint64_t header = end ? (uint64_t)(end - data - 8) : size - 8;
    for (int i = 0; i < 8; i++)
        copy[i] = (uint8_t)(header >> 8 * i);
    run(copy, size);
    free(copy);
    return 0;
}
