/* Pages of keys and values on the device: a slab for each group, both allocated when the cache is
 * opened. A page has each of its layers' K [n_kv_head][DG_PAGE][head_dim], then V alike. */
#include <string.h>
#include "base/alloc.h"
#include "cuda/cuda_internal.h"

/* What a cache without a bound gets: such caches are the tests'. */
static const size_t UNBOUNDED = (size_t)256 << 20;

void dg_cuda_kv_close(dg_backend *be, dg_kv_store *kv)
{
    if (!kv)
        return;
    dg_cuda_graphs_drop(dg_cuda_of(be));
    for (int g = 0; g < DG_KV_GROUPS; g++)
        be->free(be, kv->slab[g].base);
    dg_free(kv->layer);
    dg_free(kv->offset);
    dg_free(kv);
}

dgemma_status dg_cuda_kv_open(dg_backend *be, dg_kv_store **out, const dg_kv_config *cfg,
                              size_t max_bytes, int n_page[DG_KV_GROUPS], dgemma_error *err)
{
    size_t n = (size_t)cfg->n_layer, bytes[DG_KV_GROUPS], at[DG_KV_GROUPS] = {0};
    size_t room = max_bytes ? max_bytes : UNBOUNDED;
    dg_kv_store *kv = dg_calloc(1, sizeof *kv);
    if (kv) {
        kv->layer = dg_array(n, sizeof *kv->layer);
        kv->offset = dg_array(n, sizeof *kv->offset);
    }
    if (!kv || !kv->layer || !kv->offset) {
        dg_cuda_kv_close(be, kv);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    kv->type = cfg->type;
    kv->n_layer = cfg->n_layer;
    memcpy(kv->layer, cfg->layer, n * sizeof *kv->layer);
    for (int i = 0; i < cfg->n_layer; i++) {
        kv->offset[i] = at[kv->layer[i].group];
        at[kv->layer[i].group] += 2 * dg_kv_layer_values(&kv->layer[i]) * dg_dtype_size(kv->type);
    }
    dg_kv_page_bytes(bytes, cfg);
    for (int g = 0; g < DG_KV_GROUPS; g++) {
        size_t count = bytes[g] ? room / bytes[g] : 0;
        n_page[g] = count < INT32_MAX ? (int)count : INT32_MAX;
        if (!n_page[g])
            continue;
        kv->slab[g].page_bytes = bytes[g];
        kv->slab[g].n_page = n_page[g];
        kv->slab[g].base = be->alloc(be, (size_t)n_page[g] * bytes[g]);
        if (!kv->slab[g].base) {
            size_t left = 0, all = 0;
            cudaMemGetInfo(&left, &all);
            dg_cuda_kv_close(be, kv);
            return dg_fail(
                err, DGEMMA_E_NOMEM,
                "%zu MiB of keys and values do not fit on the device, which has %zu MiB left",
                room >> 20, left >> 20);
        }
    }
    *out = kv;
    return DGEMMA_OK;
}

bool dg_cuda_kv_take(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    (void)be;
    return page < kv->slab[g].n_page;
}

void dg_cuda_kv_give(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    (void)be;
    (void)kv;
    (void)g;
    (void)page;
}

void dg_cuda_kv_copy(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t to, int32_t from)
{
    size_t bytes = kv->slab[g].page_bytes;
    be->copy(be, kv->slab[g].base + (size_t)to * bytes, kv->slab[g].base + (size_t)from * bytes,
             bytes);
}

/* One head's page, slot by slot: dg_cuda_slot_at() says how it lies. */
static void read_head(dg_backend *be, float *out, const unsigned char *at, dg_dtype type, int dim)
{
    unsigned char stored[64 << 10];
    size_t size = dg_dtype_size(type), bytes = DG_PAGE * (size_t)dim * size;
    int step = dim % 8 ? 1 : 8;
    for (size_t begin = 0; begin < bytes; begin += sizeof stored) {
        size_t count = bytes - begin < sizeof stored ? bytes - begin : sizeof stored;
        be->download(be, stored, at + begin, count);
        for (int slot = 0; slot < DG_PAGE; slot++)
            for (int i = 0; i < dim; i += step) {
                size_t from = dg_cuda_slot_at(type, dim, slot, i);
                if (from >= begin && from < begin + count)
                    dg_widen(out + slot * dim + i, stored + (from - begin), type, (size_t)step);
            }
    }
}

void dg_cuda_kv_read(dg_backend *be, const dg_kv_store *kv, int layer, int32_t page, bool value,
                     float *out)
{
    dg_kv_group g = kv->layer[layer].group;
    size_t n = dg_kv_layer_values(&kv->layer[layer]), bytes = n * dg_dtype_size(kv->type);
    const unsigned char *at = kv->slab[g].base + (size_t)page * kv->slab[g].page_bytes +
                              kv->offset[layer] + (value ? bytes : 0);
    int dim = kv->layer[layer].head_dim;
    size_t size = dg_dtype_size(kv->type), head = (size_t)DG_PAGE * (size_t)dim;
    for (size_t h = 0; h < n / head; h++)
        read_head(be, out + h * head, at + h * head * size, kv->type, dim);
}
