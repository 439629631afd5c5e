/* An adapter of arbitrary bytes: a GGUF file as it is, or, behind a first byte that is no G, the
 * length of a config, that config and a safetensors file. What is accepted has whole pairs, whose
 * values can be read where their shapes say what they are of. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include "format/adapter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

static dgemma_status parse(dg_adapter *a, const uint8_t *data, size_t size, dgemma_error *err)
{
    if (size < 3 || data[0] == 'G')
        return dg_adapter_parse_gguf(a, data, size, "fuzz", err);
    size_t n = (size_t)data[1] | (size_t)data[2] << 8;
    n = n < size - 3 ? n : size - 3;
    return dg_adapter_parse_peft(a, (const char *)data + 3, n, data + 3 + n, size - 3 - n, "fuzz",
                                 err);
}

static void read_part(const dg_adapter_part *p)
{
    const int first = p->form == DG_ADAPTER_STACKED;
    dg_adapter_values v;
    dgemma_error err = {0};
    check(p->module && p->module[0] && p->a && p->b && isfinite(p->alpha));
    check(p->encode || p->canvas);
    if (p->a->n_dim != 2 + first || p->b->n_dim != 2 + first || p->b->shape[first] > 1 << 16 ||
        p->a->shape[first + 1] > 1 << 16 || p->a->shape[0] > 1 << 16)
        return;
    const int n_mat = first ? (int)p->a->shape[0] : p->form == DG_ADAPTER_WOVEN ? 2 : 1;
    if (n_mat < 1 || dg_adapter_read(&v, p, n_mat, (int)p->b->shape[first],
                                     (int)p->a->shape[first + 1], "fuzz", &err))
        return;
    check(v.rank > 0 && v.rank <= DG_ADAPTER_RANK);
    for (size_t i = 0; i < (size_t)v.n_mat * (size_t)v.n_out * (size_t)v.rank; i++)
        check(isfinite(v.b[i]));
    dg_adapter_values_clear(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dgemma_error err = {0};
    dg_adapter a = {0};
    if (parse(&a, data, size, &err))
        check(err.status && err.msg[0]);
    else
        for (size_t i = 0; i < a.n_part; i++)
            read_part(&a.part[i]);
    dg_adapter_close(&a);
    return 0;
}
