#include "tensor/tensor.h"
#include <stdio.h>

size_t dg_tensor_count(const dg_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->n_dim; i++)
        n *= (size_t)t->shape[i];
    return n;
}

void dg_tensor_widen(float *out, const dg_tensor *t, size_t n)
{
    enum { MAX_BLOCK = 256 };
    float values[MAX_BLOCK];
    size_t block = dg_dtype_block(t->type), matrix = dg_tensor_count(t);
    if (t->n_dim == 3 && t->shape[0])
        matrix /= (size_t)t->shape[0];
    for (size_t i = 0; i < n; i += block) {
        const char *at = (const char *)t->data + dg_dtype_bytes(t->type, i);
        size_t n_left = n - i < block ? n - i : block;
        dg_widen(values, at, t->type, block);
        for (size_t k = 0; k < n_left; k++)
            out[i + k] = t->scale ? values[k] * t->scale[(i + k) / matrix] : values[k];
    }
}

char *dg_shape_text(char out[DG_SHAPE_TEXT], const int64_t *shape, int n_dim)
{
    int at = snprintf(out, DG_SHAPE_TEXT, "[");
    for (int i = 0; i < n_dim; i++)
        at += snprintf(out + at, (size_t)(DG_SHAPE_TEXT - at), "%s%lld", i ? ", " : "",
                       (long long)shape[i]);
    snprintf(out + at, (size_t)(DG_SHAPE_TEXT - at), "]");
    return out;
}
