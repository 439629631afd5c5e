#include "tensor/tensor.h"
#include <stdio.h>

size_t dg_tensor_count(const dg_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->n_dim; i++)
        n *= (size_t)t->shape[i];
    return n;
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
