/* Pages of keys and values on the device, in one slab that is allocated when the cache is opened.
 * In a page a layer has its heads of K, then those of V; cuda_math.h says how a head lies. */
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
    be->free(be, kv->slab);
    dg_cuda_places_clear(&kv->places);
    dg_kv_layout_clear(&kv->layout);
    dg_free(kv);
}

dgemma_status dg_cuda_kv_open(dg_backend *be, dg_kv_store **out, const dg_kv_config *cfg,
                              size_t max_bytes, int n_page[DG_KV_GROUPS], dgemma_error *err)
{
    dg_kv_store *kv = dg_calloc(1, sizeof *kv);
    if (!kv)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = dg_kv_layout_init(&kv->layout, cfg, err);
    if (!st &&
        !dg_cuda_places_init(&kv->places, kv->layout.page_bytes, max_bytes ? max_bytes : UNBOUNDED))
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    size_t bytes = st ? 0 : dg_cuda_places_bytes(&kv->places);
    kv->slab = st ? NULL : be->alloc(be, bytes);
    if (!st && !kv->slab)
        st = dg_fail(err, DGEMMA_E_NOMEM,
                     "%zu MiB of keys and values do not fit on the device, which has %zu MiB left",
                     (bytes >> 20) + 1, be->room(be) >> 20);
    if (st) {
        dg_cuda_kv_close(be, kv);
        return st;
    }
    memcpy(n_page, kv->places.n_page, sizeof kv->places.n_page);
    *out = kv;
    return DGEMMA_OK;
}

typedef struct mover {
    dg_backend *be;
    unsigned char *slab;
} mover;

static void move_page(void *arg, size_t to, size_t from, size_t bytes)
{
    const mover *m = arg;
    m->be->copy(m->be, m->slab + to, m->slab + from, bytes);
}

bool dg_cuda_kv_take(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    return dg_cuda_place_take(&kv->places, g, page, move_page, &(mover){be, kv->slab});
}

void dg_cuda_kv_give(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    (void)be;
    dg_cuda_place_give(&kv->places, g, page);
}

void dg_cuda_kv_copy(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t to, int32_t from)
{
    const dg_cuda_places *p = &kv->places;
    be->copy(be, kv->slab + dg_cuda_place_of(p, g, to), kv->slab + dg_cuda_place_of(p, g, from),
             p->page_bytes[g]);
}

void dg_cuda_kv_save(dg_backend *be, const dg_kv_store *kv, dg_kv_group g, int32_t page, void *out)
{
    const dg_cuda_places *p = &kv->places;
    be->download(be, out, kv->slab + dg_cuda_place_of(p, g, page), p->page_bytes[g]);
}

void dg_cuda_kv_load(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page, const void *from)
{
    const dg_cuda_places *p = &kv->places;
    be->upload(be, kv->slab + dg_cuda_place_of(p, g, page), from, p->page_bytes[g]);
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

/* The same of one that is kept as bytes. */
static void read_bytes(dg_backend *be, float *out, const unsigned char *at, dg_dtype type, int dim)
{
    unsigned char *stored = dg_calloc(DG_PAGE, dg_kv_row_bytes(type, dim));
    if (!stored)
        return;
    be->download(be, stored, at, dg_kv_head_bytes(type, dim));
    const uint16_t *factor = (const uint16_t *)(stored + DG_PAGE * (size_t)dim);
    for (int slot = 0; slot < DG_PAGE; slot++)
        dg_kv_widen(type, out + (size_t)slot * (size_t)dim,
                    stored + dg_cuda_slot_at(type, dim, slot, 0),
                    factor + slot * dg_kv_factors(type, dim), dim);
    dg_free(stored);
}

void dg_cuda_kv_read(dg_backend *be, const dg_kv_store *kv, int layer, int32_t page, bool value,
                     float *out)
{
    const dg_kv_layer *l = &kv->layout.layer[layer];
    const dg_dtype type = kv->layout.type;
    const size_t bytes = dg_kv_head_bytes(type, l->head_dim), n = (size_t)l->n_kv_head;
    const unsigned char *at = kv->slab + dg_cuda_place_of(&kv->places, l->group, page) +
                              kv->layout.offset[layer] + (value ? n * bytes : 0);
    for (size_t h = 0; h < n; h++)
        (dg_kv_in_bytes(type) ? read_bytes : read_head)(be, out + h * DG_PAGE * (size_t)l->head_dim,
                                                        at + h * bytes, type, l->head_dim);
}
