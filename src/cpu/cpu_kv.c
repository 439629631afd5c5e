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
    kv->beside = cpu->bfloat && cfg->type != DG_F32 ? cpu->k.b->beside : 0;
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

/* A layer's keys and values, which begin at `at`. */
static dg_cpu_keys halves_of(const dg_kv_store *kv, int layer, dg_dtype type, unsigned char *at)
{
    const dg_kv_layer *l = &kv->layout.layer[layer];
    return (dg_cpu_keys){at, at + dg_kv_layer_bytes(type, l) / 2,
                         dg_kv_head_bytes(type, l->head_dim), type};
}

static dg_cpu_keys keys_in(const dg_kv_store *kv, int layer, int32_t page)
{
    return halves_of(kv, layer, kv->layout.type,
                     page_at(kv, kv->layout.layer[layer].group, page) + kv->layout.offset[layer]);
}

/* The factors of a slot's bytes. */
static uint16_t *factors_at(unsigned char *head, dg_dtype type, int dim, int slot)
{
    return (uint16_t *)(head + DG_PAGE * (size_t)dim) + slot * dg_kv_factors(type, dim);
}

/* Numbers that share a factor. */
static int block_of(dg_dtype type, int dim)
{
    return type == DG_Q8_0 ? DG_KV_BLOCK : dim;
}

void dg_cpu_kv_put(const dg_cpu *cpu, const dg_kv_store *kv, const dg_cpu_slot *at,
                   const float *from, uint16_t *spare)
{
    const dg_dtype type = at->page.type;
    const int dim = kv->layout.layer[at->layer].head_dim;
    unsigned char *head = dg_cpu_head_at(&at->page, at->head, at->value);
    if (dg_kv_in_bytes(type)) {
        uint8_t *number = (uint8_t *)spare;
        dg_kv_narrow(type, number, factors_at(head, type, dim, at->slot), from, dim);
        for (int i = 0; i < dim; i++)
            head[dg_cpu_kv_place(kv, at->layer, at->slot, at->value, i)] = number[i];
        return;
    }
    unsigned char *to =
        head + dg_cpu_kv_place(kv, at->layer, at->slot, at->value, 0) * dg_dtype_size(type);
    if (!dg_cpu_kv_in_panels(kv, at->layer)) {
        cpu->k.narrow[type](to, from, dim);
        return;
    }
    cpu->k.narrow[type](spare, from, dim);
    (at->value ? put_value : put_key)((uint16_t *)to, kv->beside, spare, dim);
}

void dg_cpu_kv_get(const dg_kv_store *kv, const dg_cpu_slot *at, float *out)
{
    const dg_dtype type = at->page.type;
    const int dim = kv->layout.layer[at->layer].head_dim;
    unsigned char *head = dg_cpu_head_at(&at->page, at->head, at->value);
    for (int i = 0; i < dim; i++) {
        const size_t place = dg_cpu_kv_place(kv, at->layer, at->slot, at->value, i);
        if (dg_kv_in_bytes(type))
            dg_kv_widen(type, &out[i], head + place,
                        factors_at(head, type, dim, at->slot) + i / block_of(type, dim), 1);
        else
            dg_widen(&out[i], head + place * dg_dtype_size(type), type, 1);
    }
}

void dg_cpu_kv_read(dg_backend *be, const dg_kv_store *kv, int layer, int32_t page, bool value,
                    float *out)
{
    (void)be;
    const dg_kv_layer *l = &kv->layout.layer[layer];
    dg_cpu_slot at = {.page = keys_in(kv, layer, page), .layer = layer, .value = value};
    for (at.head = 0; at.head < l->n_kv_head; at.head++)
        for (at.slot = 0; at.slot < DG_PAGE; at.slot++, out += l->head_dim)
            dg_cpu_kv_get(kv, &at, out);
}

/* ---- bytes as products take them ---- */

/* A head's bytes in panels: lines of DG_PANEL columns, of each `beside` numbers. Those of keys that
 * are in one block share a line of factors, and so do those of values in all panels of a block. */
enum { MOST_LINE = 4 * DG_PANEL };

/* The factor of a slot's number i. */
static float factor_at(unsigned char *head, dg_dtype type, int dim, int slot, int i)
{
    return dg_kv_factor(type, factors_at(head, type, dim, slot)[i / block_of(type, dim)]);
}

/* A line of factors: each column has its own, as keys do, or all have the same `beside`, as values
 * have. The loops are for numbers that the compiler knows. */
static inline void fill_line(float *line, const float *factor, bool own, int beside)
{
    for (int c = 0; c < DG_PANEL; c++)
        for (int i = 0; i < beside; i++)
            line[c * beside + i] = factor[own ? c : i];
}

static void line_of(float *line, const float *factor, bool own, int beside)
{
    if (beside == 2)
        fill_line(line, factor, own, 2);
    else
        fill_line(line, factor, own, 4);
}

static void widen_keys(const dg_bkernels *b, dg_dtype type, uint16_t *to, unsigned char *head,
                       int dim)
{
    const int block = block_of(type, dim), n = DG_PANEL * b->beside;
    for (int slot = 0; slot < DG_PAGE; slot += DG_PANEL)
        for (int k = 0; k < dim; k += block) {
            float factor[DG_PANEL], line[MOST_LINE];
            for (int i = 0; i < DG_PANEL; i++)
                factor[i] = factor_at(head, type, dim, slot + i, k);
            line_of(line, factor, true, b->beside);
            const size_t at = (size_t)slot * (size_t)dim + (size_t)k * DG_PANEL;
            b->widen(to + at, head + at, type, line, (size_t)n, block / b->beside);
        }
}

static void widen_values(const dg_bkernels *b, dg_dtype type, uint16_t *to, unsigned char *head,
                         int dim)
{
    const int block = block_of(type, dim);
    for (int slot = 0; slot < DG_PAGE; slot += b->beside)
        for (int c = 0; c < dim; c += block) {
            float factor[MOST_LINE / DG_PANEL], line[MOST_LINE];
            for (int i = 0; i < b->beside; i++)
                factor[i] = factor_at(head, type, dim, slot + i, c);
            line_of(line, factor, false, b->beside);
            const size_t at = (size_t)c * DG_PAGE + (size_t)slot * DG_PANEL;
            b->widen(to + at, head + at, type, line, DG_PAGE * DG_PANEL, block / DG_PANEL);
        }
}

dg_cpu_widened dg_cpu_kv_widened(const dg_cpu *cpu, const dg_kv_store *kv, int layer,
                                 const dg_cpu_keys *page, int head, bool value, void *room)
{
    unsigned char *from = dg_cpu_head_at(page, head, value);
    const int dim = kv->layout.layer[layer].head_dim;
    const dg_dtype type = page->type;
    if (!dg_kv_in_bytes(type))
        return (dg_cpu_widened){from, type};
    if (dg_cpu_kv_in_panels(kv, layer)) {
        (value ? widen_values : widen_keys)(cpu->k.b, type, room, from, dim);
        return (dg_cpu_widened){room, DG_BF16};
    }
    for (int slot = 0; slot < DG_PAGE; slot++)
        dg_kv_widen(type, (float *)room + (size_t)slot * (size_t)dim,
                    from + (size_t)slot * (size_t)dim, factors_at(from, type, dim, slot), dim);
    return (dg_cpu_widened){room, DG_F32};
}

dg_cpu_keys dg_cpu_keys_at(const dg_cpu *cpu, const dg_kv_store *kv, int layer,
                           const dg_segment *seg, int i, bool canvas)
{
    const dg_kv_layer *l = &kv->layout.layer[layer];
    if (!canvas)
        return keys_in(kv, layer, seg->page[l->group][i]);
    /* Segment s starts at page first_row / DG_PAGE + s: no two meet, since n rows end before page
     * (first_row + n) / DG_PAGE + 1. */
    const dg_dtype type = dg_kv_canvas_type(kv->layout.type);
    const int s = (int)(seg - cpu->batch->segment);
    return halves_of(kv, layer, type,
                     cpu->canvas +
                         (size_t)(seg->first_row / DG_PAGE + s + i) * dg_kv_layer_bytes(type, l));
}
