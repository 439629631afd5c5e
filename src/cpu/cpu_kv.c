/* The CPU's pages of keys and values. */
#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/alloc.h"
#include "cpu/cpu_internal.h"

/* Address space for the pages of a group where nobody sets a bound: tests and `verify`, which
 * encode a few hundred tokens. The thread sanitizer has room for little more. */
static const size_t UNBOUNDED = (size_t)1 << 32;

void dg_cpu_kv_close(dg_backend *be, dg_kv_store *kv)
{
    (void)be;
    if (!kv)
        return;
    for (int g = 0; g < DG_KV_GROUPS; g++)
        if (kv->slab[g].base)
            munmap(kv->slab[g].base, kv->slab[g].bytes);
    dg_kv_layout_clear(&kv->layout);
    dg_free(kv);
}

/* Pages of ours are so large that huge pages of the system waste little. */
static bool is_huge(size_t page_bytes)
{
    return page_bytes >= DG_HUGE_PAGE / 2;
}

dgemma_status dg_cpu_kv_open(dg_backend *be, dg_kv_store **out, const dg_kv_config *cfg,
                             size_t max_bytes, int n_page[DG_KV_GROUPS], dgemma_error *err)
{
    size_t room = max_bytes ? max_bytes : UNBOUNDED;
    dg_kv_store *kv = dg_calloc(1, sizeof *kv);
    if (!kv)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    const dg_cpu *cpu = dg_cpu_of(be);
    kv->beside = cpu->bfloat && cfg->type == DG_BF16 ? cpu->k.b->beside : 0;
    dgemma_status st = dg_kv_layout_init(&kv->layout, cfg, err);
    if (st) {
        dg_free(kv);
        return st;
    }
    for (int g = 0; g < DG_KV_GROUPS; g++) {
        size_t each = kv->layout.page_bytes[g], count = each ? room / each : 0;
        n_page[g] = count < INT32_MAX ? (int)count : INT32_MAX;
        if (!n_page[g])
            continue;
        kv->slab[g].bytes = (size_t)n_page[g] * each;
        /* address space only: kv_take() asks for the memory */
        void *base = mmap(NULL, kv->slab[g].bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) {
            dg_cpu_kv_close(be, kv);
            return dg_fail(err, DGEMMA_E_NOMEM, "no address space for %zu MiB of keys and values",
                           room >> 20);
        }
        kv->slab[g].base = base;
        if (is_huge(kv->layout.page_bytes[g]))
            dg_prefer_huge_pages(base, kv->slab[g].bytes);
    }
    *out = kv;
    return DGEMMA_OK;
}

static unsigned char *page_at(const dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    assert(page >= 0 && (size_t)page < kv->slab[g].bytes / kv->layout.page_bytes[g]);
    return kv->slab[g].base + (size_t)page * kv->layout.page_bytes[g];
}

/* The system's pages that a page of ours touches, or those that it has for itself. */
static void system_pages(const dg_kv_store *kv, dg_kv_group g, int32_t page, bool whole,
                         unsigned char **first, size_t *bytes)
{
    const size_t small = (size_t)sysconf(_SC_PAGESIZE),
                 unit = whole && is_huge(kv->layout.page_bytes[g]) ? DG_HUGE_PAGE : small;
    const uintptr_t slab = (uintptr_t)kv->slab[g].base,
                    slab_end = slab + (kv->slab[g].bytes + small - 1) / small * small;
    uintptr_t begin = slab + (size_t)page * kv->layout.page_bytes[g],
              end = begin + kv->layout.page_bytes[g];
    begin = (whole ? begin : begin + unit - 1) / unit * unit;
    end = (whole ? end + unit - 1 : end) / unit * unit;
    begin = begin < slab ? slab : begin;
    end = end > slab_end ? slab_end : end;
    *first = kv->slab[g].base + (begin - slab);
    *bytes = end > begin ? end - begin : 0;
}

bool dg_cpu_kv_take(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    (void)be;
    unsigned char *first;
    size_t bytes;
    system_pages(kv, g, page, true, &first, &bytes);
    return mprotect(first, bytes, PROT_READ | PROT_WRITE) == 0;
}

void dg_cpu_kv_give(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    (void)be;
    unsigned char *first;
    size_t bytes;
    system_pages(kv, g, page, false, &first, &bytes);
    if (bytes)
        madvise(first, bytes, MADV_DONTNEED);
}

void dg_cpu_kv_copy(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t to, int32_t from)
{
    (void)be;
    memcpy(page_at(kv, g, to), page_at(kv, g, from), kv->layout.page_bytes[g]);
}

void dg_cpu_kv_save(dg_backend *be, const dg_kv_store *kv, dg_kv_group g, int32_t page, void *out)
{
    (void)be;
    memcpy(out, page_at(kv, g, page), kv->layout.page_bytes[g]);
}

void dg_cpu_kv_load(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page, const void *from)
{
    (void)be;
    memcpy(page_at(kv, g, page), from, kv->layout.page_bytes[g]);
}

bool dg_cpu_kv_in_panels(const dg_kv_store *kv, int layer)
{
    const int dim = kv->layout.layer[layer].head_dim;
    return kv->beside && dim >= BFLOAT_HEAD && dim % DG_BFLOAT_STEP == 0;
}

/* Where the panel of a column begins; panels have n_k values along k. */
static size_t panel_at(int col, int n_k)
{
    return (size_t)(col / DG_PANEL) * (size_t)n_k * DG_PANEL;
}

size_t dg_cpu_kv_place(const dg_kv_store *kv, int layer, int slot, bool value, int i)
{
    const int dim = kv->layout.layer[layer].head_dim;
    if (!dg_cpu_kv_in_panels(kv, layer))
        return (size_t)slot * (size_t)dim + (size_t)i;
    return value ? panel_at(i, DG_PAGE) + dg_cpu_in_panel(kv->beside, slot, i)
                 : panel_at(slot, dim) + dg_cpu_in_panel(kv->beside, i, slot);
}

/* A key is a column of one panel, a value is row k of all panels. */
static void put_key(uint16_t *to, int beside, const uint16_t *from, int n)
{
    for (int k = 0; k < n; k += beside, to += DG_PANEL * beside)
        for (int i = 0; i < beside; i++)
            to[i] = from[k + i];
}

static void put_value(uint16_t *to, int beside, const uint16_t *from, int n)
{
    for (int c = 0; c < n; c += DG_PANEL, to += DG_PAGE * DG_PANEL)
        for (int i = 0; i < DG_PANEL; i++)
            to[i * beside] = from[c + i];
}

void dg_cpu_kv_put(const dg_cpu *cpu, const dg_kv_store *kv, int layer, unsigned char *head,
                   int slot, bool value, const float *from, uint16_t *spare)
{
    const dg_dtype type = kv->layout.type;
    const int dim = kv->layout.layer[layer].head_dim;
    unsigned char *to = head + dg_cpu_kv_place(kv, layer, slot, value, 0) * dg_dtype_size(type);
    if (!dg_cpu_kv_in_panels(kv, layer)) {
        cpu->k.narrow[type](to, from, dim);
        return;
    }
    cpu->k.narrow[type](spare, from, dim);
    (value ? put_value : put_key)((uint16_t *)to, kv->beside, spare, dim);
}

void dg_cpu_kv_read(dg_backend *be, const dg_kv_store *kv, int layer, int32_t page, bool value,
                    float *out)
{
    (void)be;
    const dg_kv_layer *l = &kv->layout.layer[layer];
    const size_t n = dg_kv_layer_values(l), size = dg_dtype_size(kv->layout.type),
                 head_bytes = DG_PAGE * (size_t)l->head_dim * size;
    const unsigned char *at = page_at(kv, l->group, page) + kv->layout.offset[layer];
    at += value ? n * size : 0;
    for (int h = 0; h < l->n_kv_head; h++, at += head_bytes)
        for (int slot = 0; slot < DG_PAGE; slot++)
            for (int i = 0; i < l->head_dim; i++)
                dg_widen(out++, at + dg_cpu_kv_place(kv, layer, slot, value, i) * size,
                         kv->layout.type, 1);
}

dg_cpu_keys dg_cpu_keys_at(const dg_cpu *cpu, const dg_kv_store *kv, int layer,
                           const dg_segment *seg, int i, bool canvas)
{
    const dg_kv_layer *l = &kv->layout.layer[layer];
    size_t bytes = dg_kv_layout_layer_bytes(&kv->layout, layer);
    unsigned char *at;
    if (canvas) {
        /* Segment s starts at page first_row / DG_PAGE + s: no two meet, since n rows end before
         * page (first_row + n) / DG_PAGE + 1. */
        int s = (int)(seg - cpu->batch->segment);
        at = cpu->canvas + (size_t)(seg->first_row / DG_PAGE + s + i) * bytes;
    } else {
        at = page_at(kv, l->group, seg->page[l->group][i]) + kv->layout.offset[layer];
    }
    return (dg_cpu_keys){at, at + bytes / 2, bytes / 2 / (size_t)l->n_kv_head};
}
