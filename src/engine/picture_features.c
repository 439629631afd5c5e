#include "engine/picture_features.h"
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

/* ---- what is kept ---- */

typedef struct entry {
    struct entry *next; /* the more recently used come first */
    char *salt;
    dg_picture picture; /* a copy */
    float *features;    /* backend memory */
    size_t bytes;
} entry;

struct dg_picture_cache {
    dg_vision *tower;
    dg_backend *be;
    size_t row_bytes, max_bytes, bytes;
    entry *first;
};

dgemma_status dg_picture_cache_create(dg_picture_cache **out, dg_vision *tower, dg_backend *be,
                                      int n_embd, size_t max_bytes, dgemma_error *err)
{
    dg_picture_cache *c = dg_calloc(1, sizeof *c);
    if (!c)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    c->tower = tower;
    c->be = be;
    c->row_bytes = (size_t)n_embd * sizeof(float);
    c->max_bytes = max_bytes;
    *out = c;
    return DGEMMA_OK;
}

static void entry_free(dg_picture_cache *c, entry *e)
{
    if (!e)
        return;
    c->be->free(c->be, e->features);
    dg_free(e->salt);
    dg_patches_clear(&e->picture.patches);
    dg_free(e);
}

void dg_picture_cache_free(dg_picture_cache *c)
{
    if (!c)
        return;
    for (entry *e = c->first, *next; e; e = next) {
        next = e->next;
        entry_free(c, e);
    }
    dg_free(c);
}

/* The entry of a picture, moved to the front; NULL: there is none. */
static entry *find(dg_picture_cache *c, const char *salt, const dg_picture *p)
{
    for (entry **link = &c->first; *link; link = &(*link)->next) {
        entry *e = *link;
        if (strcmp(e->salt, salt) != 0 || !dg_picture_same(&e->picture, p))
            continue;
        *link = e->next;
        e->next = c->first;
        c->first = e;
        return e;
    }
    return NULL;
}

/* Lets go of what was used longest ago, until `bytes` more fit; never of the first one. */
static void make_room(dg_picture_cache *c, size_t bytes)
{
    while (c->first && c->bytes + bytes > c->max_bytes) {
        entry **last = &c->first;
        while ((*last)->next)
            last = &(*last)->next;
        c->bytes -= (*last)->bytes;
        entry_free(c, *last);
        *last = NULL;
    }
}

/* Keeps a copy of a picture's features; a cache that has no memory for it just does not. */
static void keep(dg_picture_cache *c, const char *salt, const dg_picture *p, const float *features)
{
    size_t n_feature = (size_t)p->patches.n_soft * c->row_bytes;
    size_t bytes = dg_patches_bytes(&p->patches) + n_feature + sizeof(entry) + strlen(salt) + 1;
    if (bytes > c->max_bytes)
        return;
    make_room(c, bytes);
    entry *e = dg_calloc(1, sizeof *e);
    if (!e)
        return;
    *e = (entry){
        .salt = dg_strdup(salt), .features = c->be->alloc(c->be, n_feature), .bytes = bytes};
    bool copied = dg_picture_copy(&e->picture, p);
    if (!copied || !e->salt || !e->features) {
        entry_free(c, e);
        return;
    }
    c->be->copy(c->be, e->features, features, n_feature);
    e->next = c->first;
    c->first = e;
    c->bytes += bytes;
}

/* ---- on the way through the tower ---- */

static size_t feature_bytes(const dg_picture_encoding *l, int i)
{
    return (size_t)l->pictures->list[i].patches.n_soft * l->cache->row_bytes;
}

/* Where the features of a picture belong. */
static float *features_of(const dg_picture_encoding *l, int i)
{
    const dg_pictures *p = l->pictures;
    size_t row = (size_t)p->feature[p->list[i].token];
    return (float *)((unsigned char *)l->features + row * l->cache->row_bytes);
}

static const char *salt_of(const dg_picture_encoding *l)
{
    return l->pictures->salt ? l->pictures->salt : "";
}

static void is_there(dg_picture_encoding *l, int i)
{
    l->missing[i] = false;
    l->n_missing--;
}

static void take_known(dg_picture_encoding *l)
{
    dg_backend *be = l->cache->be;
    for (int i = 0; i < l->pictures->n; i++) {
        entry *e = l->missing[i] ? find(l->cache, salt_of(l), &l->pictures->list[i]) : NULL;
        if (!e)
            continue;
        be->copy(be, features_of(l, i), e->features, feature_bytes(l, i));
        is_there(l, i);
    }
}

dgemma_status dg_picture_encoding_begin(dg_picture_encoding *l, dg_picture_cache *c,
                                        const dg_pictures *p, int n_encoded, dgemma_error *err)
{
    *l = (dg_picture_encoding){.cache = c,
                               .pictures = p,
                               .features = c->be->alloc(c->be, (size_t)p->n_soft * c->row_bytes),
                               .missing = dg_calloc((size_t)p->n, sizeof *l->missing)};
    if (!l->features || !l->missing) {
        dg_picture_encoding_clear(l);
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for the features of %d pictures", p->n);
    }
    for (int i = 0; i < p->n; i++)
        l->n_missing += l->missing[i] = p->list[i].token >= n_encoded;
    /* all of them now: what is kept of the others may take their places in the cache */
    take_known(l);
    return DGEMMA_OK;
}

void dg_picture_encoding_clear(dg_picture_encoding *l)
{
    if (l->cache)
        l->cache->be->free(l->cache->be, l->features);
    dg_free(l->missing);
    *l = (dg_picture_encoding){0};
}

/* Whether one of the pictures [first, i) is the same as picture i. */
static bool comes_before(const dg_pictures *p, int first, int i)
{
    for (int k = first; k < i; k++)
        if (dg_picture_same(&p->list[k], &p->list[i]))
            return true;
    return false;
}

/* The pictures from `first` on that the tower takes together. They follow each other, and so do
 * their features. */
static int gather(const dg_picture_encoding *l, int first,
                  dg_vision_input in[DG_VISION_MAX_TOGETHER])
{
    const dg_pictures *p = l->pictures;
    int n = 0;
    for (int i = first; i < p->n && n < DG_VISION_MAX_TOGETHER; i++, n++) {
        const dg_patches *q = &p->list[i].patches;
        if (!l->missing[i] || comes_before(p, first, i))
            break;
        in[n] = (dg_vision_input){.rows = q->rows, .cols = q->cols};
    }
    return dg_vision_together(l->cache->tower, in, n);
}

/* Their pixels as the tower takes them, in one piece of memory (dg_free); NULL: there is none. */
static float *cut_pictures(const dg_picture_encoding *l, int first, int n, dg_vision_input *in)
{
    const dg_picture *list = l->pictures->list + first;
    size_t n_pixel = 0;
    for (int i = 0; i < n; i++)
        n_pixel += dg_patches_bytes(&list[i].patches);
    float *all = dg_array(n_pixel, sizeof *all), *at = all;
    for (int i = 0; all && i < n; i++) {
        dg_patches_cut(&list[i].patches, at);
        in[i].pixels = at;
        at += dg_patches_bytes(&list[i].patches);
    }
    return all;
}

/* The features of picture i were made: for the cache, and for wherever else it is shown. */
static void hand_on(dg_picture_encoding *l, int i)
{
    const dg_pictures *p = l->pictures;
    dg_backend *be = l->cache->be;
    is_there(l, i);
    keep(l->cache, salt_of(l), &p->list[i], features_of(l, i));
    for (int k = i + 1; k < p->n; k++)
        if (l->missing[k] && dg_picture_same(&p->list[i], &p->list[k])) {
            be->copy(be, features_of(l, k), features_of(l, i), feature_bytes(l, i));
            is_there(l, k);
        }
}

dgemma_status dg_picture_encoding_run(dg_picture_encoding *l, dgemma_error *err)
{
    dg_vision_input in[DG_VISION_MAX_TOGETHER];
    int first = 0;
    take_known(l); /* another request may have had the same */
    if (!l->n_missing)
        return DGEMMA_OK;
    while (!l->missing[first])
        first++;
    int n = gather(l, first, in);
    float *pixels = cut_pictures(l, first, n, in);
    if (!pixels)
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory to look at %d pictures", n);
    dgemma_status st = dg_vision_encode(l->cache->tower, in, n, features_of(l, first), err);
    dg_free(pixels);
    for (int i = first; !st && i < first + n; i++)
        hand_on(l, i);
    l->n_encoded += st ? 0 : n;
    return st;
}
