#include "engine/saved_prefix.h"
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "base/new_file.h"

#define MAGIC "dgemmaKV"
enum { VERSION = 1, MAX_PAGES = 1 << 24 };

typedef struct header {
    char magic[8];
    uint32_t version, n_point;
    uint64_t model, bytes; /* bytes: of the whole file */
    uint64_t page_bytes[DG_KV_GROUPS];
    uint32_t n_page[DG_KV_GROUPS];
    uint32_t n_token, kept_as;        /* see kept_as() */
    char numerics[DG_SAVED_NUMERICS]; /* filled up with zeros */
} header;
_Static_assert(sizeof(header) == 112, "a file's header has no gaps");

uint64_t dg_saved_mark(uint64_t weights, const dg_config *cfg)
{
    char text[160];
    int n = snprintf(text, sizeof text, "%d %d %d %d %a %a %d", cfg->n_vocab, cfg->n_head,
                     cfg->n_expert_used, cfg->n_layer, (double)cfg->rms_eps,
                     (double)cfg->embed_scale, cfg->bidirectional_images);
    uint64_t mark = XXH3_64bits_withSeed(text, (size_t)n, weights);
    for (int i = 0; i < cfg->n_layer; i++) {
        const dg_layer_config *l = &cfg->layer[i];
        n = snprintf(text, sizeof text, "%d %d %d %d %d %a %d", l->sliding, l->v_from_k, l->window,
                     l->n_kv_head, l->head_dim, (double)l->rope_theta, l->n_rope_pair);
        mark = XXH3_64bits_withSeed(text, (size_t)n, mark);
    }
    return mark;
}

/* Types that may have pages of one size: keys and values in floats of any size are 0. */
static uint32_t kept_as(const dg_kv_cache *kv)
{
    const dg_dtype type = dg_kv_config_of(kv)->type;
    return type == DG_Q8_0 ? 1 : type == DG_FP8 ? 2 : 0;
}

static void put_numerics(char to[DG_SAVED_NUMERICS], const char *numerics)
{
    memset(to, 0, DG_SAVED_NUMERICS);
    strncpy(to, numerics ? numerics : "", DG_SAVED_NUMERICS - 1);
}

/* ---- writing ---- */

/* Which pages are in the file, and under which number. */
typedef struct page_list {
    int32_t *page;
    int n, cap;
} page_list;

/* The place of a page, which is added where it has none; -1: no memory. Points share most of theirs
 * with the one before, in the same order: looking begins where the last one was found. */
static int32_t number_of(page_list *l, int32_t page, int *near)
{
    for (int i = 0; i < l->n; i++) {
        int at = (*near + i) % l->n;
        if (l->page[at] == page) {
            *near = at + 1;
            return at;
        }
    }
    if (l->n == l->cap) {
        int cap = dg_max(64, 2 * l->cap);
        int32_t *more = dg_array_resize(l->page, (size_t)cap, sizeof *more);
        if (!more)
            return -1;
        l->page = more;
        l->cap = cap;
    }
    l->page[l->n] = page;
    return l->n++;
}

typedef struct writing {
    const dg_kv_cache *kv;
    dg_prefix_point point[DG_SAVED_POINTS];
    int n_point;
    page_list pages[DG_KV_GROUPS];
    dg_buf points; /* as the file has them */
    dg_new_file file;
    XXH3_state_t *hash;
} writing;

static bool list_pages(writing *w)
{
    for (int i = 0; i < w->n_point; i++) {
        const dg_kv_seq *seq = w->point[i].seq;
        const int32_t n_token = seq->n_token;
        if (!dg_buf_append(&w->points, &n_token, sizeof n_token))
            return false;
        for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++) {
            int first, end, near = 0;
            dg_kv_span(w->kv, g, n_token, &first, &end);
            for (int k = first; k < end; k++) {
                const int32_t number = number_of(&w->pages[g], seq->table[g].page[k], &near);
                if (number < 0 || !dg_buf_append(&w->points, &number, sizeof number))
                    return false;
            }
        }
    }
    return true;
}

static void put(writing *w, const void *data, size_t n)
{
    XXH3_64bits_update(w->hash, data, n);
    dg_new_file_write(&w->file, data, n);
}

static header header_of(const writing *w, const dg_saved_maker *maker)
{
    header h = {.version = VERSION,
                .n_point = (uint32_t)w->n_point,
                .model = maker->model,
                .n_token = (uint32_t)w->point[0].seq->n_token,
                .kept_as = kept_as(w->kv)};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    put_numerics(h.numerics, maker->numerics);
    h.bytes = sizeof h + h.n_token * sizeof(int32_t) + w->points.len + sizeof(uint64_t);
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++) {
        h.page_bytes[g] = dg_kv_page_size(w->kv, g);
        h.n_page[g] = (uint32_t)w->pages[g].n;
        h.bytes += h.page_bytes[g] * h.n_page[g];
    }
    return h;
}

static dgemma_status write_all(writing *w, const header *h, const char *path, dgemma_error *err)
{
    size_t most = 1;
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++)
        most = h->page_bytes[g] > most ? (size_t)h->page_bytes[g] : most;
    dgemma_status st = dg_new_file_check(path, h->bytes, true, err);
    if (st)
        return st;
    void *page = dg_malloc(most);
    if (!page)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_new_file_open(&w->file, path, true);
    if (w->file.file) /* whoever has it has what was said */
        (void)fchmod(fileno(w->file.file), 0600);
    put(w, h, sizeof *h);
    put(w, w->point[0].token, h->n_token * sizeof(int32_t));
    put(w, w->points.data, w->points.len);
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++)
        for (int i = 0; i < w->pages[g].n; i++) {
            dg_kv_page_save(w->kv, g, w->pages[g].page[i], page);
            put(w, page, (size_t)h->page_bytes[g]);
        }
    const uint64_t sum = XXH3_64bits_digest(w->hash);
    dg_new_file_write(&w->file, &sum, sizeof sum);
    dg_free(page);
    dgemma_error lost = {0};
    if (dg_kv_check(w->kv, &lost))
        dg_new_file_fail(&w->file, lost.status, lost.msg);
    return dg_new_file_close(&w->file, err);
}

dgemma_status dg_saved_write(const dg_prefix_cache *c, const dg_saved_maker *maker,
                             const char *salt, int which, const char *path,
                             dgemma_saved_prefix *out, dgemma_error *err)
{
    writing w = {.kv = dg_prefix_kv(c), .hash = XXH3_createState()};
    dgemma_status st;
    w.n_point = dg_prefix_conversation(c, salt, which, w.point, DG_SAVED_POINTS);
    dg_buf_init(&w.points, (size_t)1 << 30);
    if (!w.n_point)
        st = dg_fail(err, DGEMMA_E_ARG,
                     "no conversation is kept that could be saved; those with pictures, and those "
                     "whose prompt an adapter read, cannot");
    else if (w.hash && list_pages(&w)) {
        XXH3_64bits_reset(w.hash);
        const header h = header_of(&w, maker);
        st = write_all(&w, &h, path, err);
        *out = (dgemma_saved_prefix){.n_tokens = (int)h.n_token, .bytes = h.bytes};
    } else
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    XXH3_freeState(w.hash);
    dg_buf_clear(&w.points);
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++)
        dg_free(w.pages[g].page);
    return st;
}

/* ---- reading ---- */

static dgemma_status damaged(const char *what, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_FORMAT, "%s", what);
}

static dgemma_status get(FILE *file, void *to, size_t n, dgemma_error *err)
{
    return fread(to, 1, n, file) == n ? DGEMMA_OK : damaged("it ends too early", err);
}

static dgemma_status check_header(const header *h, const dg_saved_maker *reader,
                                  const dg_kv_cache *kv, dgemma_error *err)
{
    char numerics[DG_SAVED_NUMERICS];
    put_numerics(numerics, reader->numerics);
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0)
        return damaged("it is no file of saved keys and values", err);
    if (h->version != VERSION)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "it is of version %u, this program reads %d",
                       h->version, VERSION);
    if (h->model != reader->model)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "it was made by another model");
    if (memcmp(h->numerics, numerics, sizeof numerics) != 0)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "it was made with numerics \"%.*s\", and these are \"%s\"",
                       DG_SAVED_NUMERICS, h->numerics, numerics);
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++) {
        if (h->kept_as != kept_as(kv) || h->page_bytes[g] != dg_kv_page_size(kv, g))
            return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                           "its keys and values are of another type than these");
        if (h->n_page[g] > MAX_PAGES)
            return damaged("it says that it has too many pages", err);
    }
    if (h->n_point < 1 || h->n_point > DG_SAVED_POINTS)
        return damaged("its points are none or too many", err);
    if (h->n_token < 1)
        return damaged("it has no tokens", err);
    if (h->n_token > (uint32_t)reader->n_context)
        return dg_fail(err, DGEMMA_E_LIMIT, "it has %u tokens, and the context is %d", h->n_token,
                       reader->n_context);
    return DGEMMA_OK;
}

static dgemma_status read_tokens(dg_saved_file *f, int n_vocab, dgemma_error *err)
{
    f->token = dg_array((size_t)f->n_token, sizeof *f->token);
    if (!f->token)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = get(f->file, f->token, (size_t)f->n_token * sizeof *f->token, err);
    for (int i = 0; !st && i < f->n_token; i++)
        if (f->token[i] < 0 || f->token[i] >= n_vocab)
            st = damaged("a token is not in the vocabulary", err);
    return st;
}

static dgemma_status read_point(dg_saved_file *f, int i, const dg_kv_cache *kv, dgemma_error *err)
{
    int32_t n;
    dgemma_status st = get(f->file, &n, sizeof n, err);
    if (st)
        return st;
    if (n < 1 || (i ? n >= f->point_tokens[i - 1] : n != f->n_token))
        return damaged("a point is not along its tokens", err);
    f->point_tokens[i] = n;
    for (dg_kv_group g = 0; !st && g < DG_KV_GROUPS; g++) {
        int first, end;
        dg_kv_span(kv, g, n, &first, &end);
        const size_t count = (size_t)(end - first);
        int32_t *page = dg_array_resize(f->page, f->n_listed + count + 1, sizeof *page);
        if (!page)
            return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
        f->page = page;
        st = get(f->file, page + f->n_listed, count * sizeof *page, err);
        for (size_t k = 0; !st && k < count; k++)
            if (page[f->n_listed + k] < 0 || page[f->n_listed + k] >= f->n_page[g])
                st = damaged("a page is not there", err);
        f->n_listed += count;
    }
    return st;
}

/* All of it against the hash at its end, in whose place nothing follows. */
static dgemma_status check_hash(const dg_saved_file *f, dgemma_error *err)
{
    enum { SOME = 1 << 18 };
    unsigned char *some = dg_malloc(SOME);
    XXH3_state_t *hash = XXH3_createState();
    uint64_t left = f->bytes - sizeof(uint64_t), sum = 0;
    dgemma_status st = some && hash ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st)
        XXH3_64bits_reset(hash);
    rewind(f->file);
    while (!st && left) {
        const size_t n = left < SOME ? (size_t)left : SOME;
        st = get(f->file, some, n, err);
        XXH3_64bits_update(hash, some, n);
        left -= n;
    }
    if (!st)
        st = get(f->file, &sum, sizeof sum, err);
    if (!st && (sum != XXH3_64bits_digest(hash) || fgetc(f->file) != EOF))
        st = damaged("it is damaged", err);
    XXH3_freeState(hash);
    dg_free(some);
    return st;
}

static dgemma_status read_all(dg_saved_file *f, const dg_saved_maker *reader, const dg_kv_cache *kv,
                              dgemma_error *err)
{
    header h;
    dgemma_status st = get(f->file, &h, sizeof h, err);
    if (!st)
        st = check_header(&h, reader, kv, err);
    if (st)
        return st;
    f->n_token = (int)h.n_token;
    f->n_point = (int)h.n_point;
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++) {
        f->n_page[g] = (int)h.n_page[g];
        f->page_bytes[g] = (size_t)h.page_bytes[g];
    }
    st = read_tokens(f, reader->n_vocab, err);
    for (int i = 0; !st && i < f->n_point; i++)
        st = read_point(f, i, kv, err);
    if (st)
        return st;
    f->pages_at = f->bytes = sizeof h + (size_t)f->n_token * sizeof *f->token +
                             ((size_t)f->n_point + f->n_listed) * sizeof *f->page;
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++)
        f->bytes += (uint64_t)f->n_page[g] * f->page_bytes[g];
    f->bytes += sizeof(uint64_t);
    return f->bytes == h.bytes ? check_hash(f, err) : damaged("its size is wrong", err);
}

dgemma_status dg_saved_read(dg_saved_file *f, FILE *file, const dg_saved_maker *reader,
                            const dg_kv_cache *kv, dgemma_error *err)
{
    *f = (dg_saved_file){.file = file};
    dgemma_status st = read_all(f, reader, kv, err);
    if (st)
        dg_saved_close(f);
    return st;
}

dgemma_status dg_saved_open(dg_saved_file *f, const char *path, const dg_saved_maker *reader,
                            const dg_kv_cache *kv, dgemma_error *err)
{
    FILE *file;
    *f = (dg_saved_file){0};
    dgemma_status st = dg_file_open_regular(&file, path, err);
    if (st)
        return st;
    st = dg_saved_read(f, file, reader, kv, err);
    return st ? dg_fail_prefix(err, st, path) : DGEMMA_OK;
}

void dg_saved_close(dg_saved_file *f)
{
    if (f->file)
        fclose(f->file);
    dg_free(f->token);
    dg_free(f->page);
    *f = (dg_saved_file){0};
}

/* ---- into the cache ---- */

typedef struct restoring {
    dg_saved_file *file;
    dg_prefix_cache *cache;
    dg_kv_cache *kv;
    dg_kv_seq seq[DG_SAVED_POINTS];
    int32_t *made[DG_KV_GROUPS]; /* [n_page] of each page of the file the cache's, or none yet */
    void *content;
} restoring;

static dgemma_status load_page(restoring *r, dg_kv_group g, int32_t number, int32_t to,
                               dgemma_error *err)
{
    const dg_saved_file *f = r->file;
    uint64_t at = f->pages_at + (uint64_t)number * f->page_bytes[g];
    for (dg_kv_group h = 0; h < g; h++)
        at += (uint64_t)f->n_page[h] * f->page_bytes[h];
    if (fseeko(f->file, (off_t)at, SEEK_SET) != 0)
        return damaged("it cannot be read", err);
    dgemma_status st = get(f->file, r->content, f->page_bytes[g], err);
    if (!st)
        dg_kv_page_load(r->kv, g, to, r->content);
    return st;
}

/* Whether so many pages would be left if nothing were kept. */
static bool could_fit(const restoring *r, const int n[DG_KV_GROUPS])
{
    size_t bytes = 0, left = dg_kv_bytes_left(r->kv),
           kept = dg_kv_bytes_held(r->kv) - dg_kv_bytes_used(r->kv);
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++)
        bytes += (size_t)n[g] * r->file->page_bytes[g];
    return left > SIZE_MAX - kept || bytes <= left + kept;
}

/* Pages for a point: those that are there already, and room for the others. Only for the first,
 * which is the longest, others are forgotten, and only if that can help. */
static dgemma_status make_pages(restoring *r, int i, const int32_t *const number[DG_KV_GROUPS],
                                int32_t *const page[DG_KV_GROUPS], const int n[DG_KV_GROUPS],
                                dgemma_error *err)
{
    for (;;) {
        for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++)
            for (int k = 0; k < n[g]; k++)
                page[g][k] = r->made[g][number[g][k]];
        dgemma_status st = dg_kv_restore(r->kv, &r->seq[i], r->file->point_tokens[i], page, err);
        if (!st || i || !could_fit(r, n) || !dg_prefix_evict(r->cache))
            return st;
    }
}

static dgemma_status restore_point(restoring *r, int i, const int32_t *listed, size_t *n_listed,
                                   dgemma_error *err)
{
    const int32_t *number[DG_KV_GROUPS];
    int32_t *page[DG_KV_GROUPS], *all;
    int n[DG_KV_GROUPS], n_all = 0;
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++) {
        int first, end;
        dg_kv_span(r->kv, g, r->file->point_tokens[i], &first, &end);
        number[g] = listed + n_all;
        n[g] = end - first;
        n_all += n[g];
    }
    all = dg_array((size_t)n_all + 1, sizeof *all);
    if (!all)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    page[0] = all;
    for (dg_kv_group g = 1; g < DG_KV_GROUPS; g++)
        page[g] = page[g - 1] + n[g - 1];
    r->seq[i].kept = true;
    dgemma_status st = make_pages(r, i, number, page, n, err);
    for (dg_kv_group g = 0; !st && g < DG_KV_GROUPS; g++)
        for (int k = 0; !st && k < n[g]; k++)
            if (r->made[g][number[g][k]] != page[g][k]) { /* it is new */
                r->made[g][number[g][k]] = page[g][k];
                st = load_page(r, g, number[g][k], page[g][k], err);
            }
    dg_free(all);
    *n_listed = (size_t)n_all;
    return st;
}

/* The longest last, so that it counts as the most recently used. */
static dgemma_status keep_points(restoring *r, int n, const char *salt, dgemma_error *err)
{
    bool kept = true;
    for (int i = n - 1; kept && i >= 0; i--)
        kept = dg_prefix_keep(r->cache,
                              &(dg_prefix){r->file->token, r->file->point_tokens[i], NULL, salt},
                              &r->seq[i]);
    return kept ? DGEMMA_OK
                : dg_fail(err, DGEMMA_E_NOMEM, "there is no memory to keep what was saved");
}

dgemma_status dg_saved_restore(dg_saved_file *f, dg_prefix_cache *c, const char *salt,
                               dgemma_error *err)
{
    restoring r = {.file = f, .cache = c, .kv = dg_prefix_kv(c)};
    size_t most = 1, at = 0;
    bool ok = true;
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++) {
        r.made[g] = dg_array((size_t)f->n_page[g] + 1, sizeof *r.made[g]);
        ok = ok && r.made[g];
        for (int i = 0; ok && i < f->n_page[g]; i++)
            r.made[g][i] = DG_NO_PAGE;
        most = f->page_bytes[g] > most ? f->page_bytes[g] : most;
    }
    r.content = dg_malloc(most);
    dgemma_status st = ok && r.content ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    int n_made = 0;
    for (; !st && n_made < f->n_point; n_made++) {
        size_t n = 0;
        st = restore_point(&r, n_made, f->page + at, &n, err);
        at += n;
        if (st && n_made && st != DGEMMA_E_FORMAT) { /* no room for those where it may be left */
            st = DGEMMA_OK;
            break;
        }
    }
    if (!st)
        st = dg_kv_check(r.kv, err);
    if (!st)
        st = keep_points(&r, n_made, salt, err);
    for (int i = 0; i < f->n_point; i++)
        dg_kv_seq_clear(r.kv, &r.seq[i]);
    for (dg_kv_group g = 0; g < DG_KV_GROUPS; g++)
        dg_free(r.made[g]);
    dg_free(r.content);
    return st;
}
