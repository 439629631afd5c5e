#include "constraint_cache.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"

typedef struct entry {
    char *key; /* owned */
    size_t len;
    dgemma_constraint *constraint;
    unsigned long long used; /* when it was asked for last */
} entry;

struct dg_constraint_cache {
    pthread_mutex_t lock; /* for all of it */
    entry at[DG_CONSTRAINTS_KEPT];
    size_t n, bytes;
    unsigned long long clock, found; /* asked for, and there */
};

dg_constraint_cache *dg_constraint_cache_create(void)
{
    dg_constraint_cache *cache = dg_calloc(1, sizeof *cache);
    if (cache)
        pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

/* The last one takes its place. */
static void drop(dg_constraint_cache *cache, size_t i)
{
    cache->bytes -= cache->at[i].len;
    dg_free(cache->at[i].key);
    dgemma_constraint_free(cache->at[i].constraint);
    cache->at[i] = cache->at[--cache->n];
}

void dg_constraint_cache_free(dg_constraint_cache *cache)
{
    if (!cache)
        return;
    while (cache->n)
        drop(cache, cache->n - 1);
    pthread_mutex_destroy(&cache->lock);
    dg_free(cache);
}

/* ---- keys ---- */

static bool put_text(dg_buf *key, const char *text, size_t len)
{
    char size[32];
    snprintf(size, sizeof size, "%zu:", len);
    return dg_buf_puts(key, size) && dg_buf_append(key, text ? text : "", len);
}

/* Everything that a constraint is made of, so that no two share a key. */
static bool put_key(dg_buf *key, const dgemma_constraint_options *o)
{
    char head[96];
    snprintf(head, sizeof head, "%d %d %d %d %d %d ", (int)o->kind, o->compact, o->lenient,
             (int)o->tool_choice, o->single_tool_call, o->answer != NULL);
    bool ok = dg_buf_puts(key, head) && put_text(key, o->text, o->text ? o->text_len : 0);
    for (size_t i = 0; i < o->n_choices && ok; i++)
        ok = put_text(key, o->choices[i], strlen(o->choices[i]));
    return ok && (!o->answer || (dg_buf_puts(key, ";") && put_key(key, o->answer)));
}

/* ---- what is kept ---- */

static dgemma_constraint *find(dg_constraint_cache *cache, const dg_buf *key)
{
    for (size_t i = 0; i < cache->n; i++) {
        entry *e = &cache->at[i];
        if (e->len == key->len && !memcmp(e->key, key->data, key->len)) {
            e->used = cache->clock;
            return dgemma_constraint_hold(e->constraint);
        }
    }
    return NULL;
}

static void make_room(dg_constraint_cache *cache, size_t bytes)
{
    while (cache->n == DG_CONSTRAINTS_KEPT ||
           (cache->n && cache->bytes + bytes > DG_CONSTRAINTS_KEPT_BYTES)) {
        size_t oldest = 0;
        for (size_t i = 1; i < cache->n; i++)
            if (cache->at[i].used < cache->at[oldest].used)
                oldest = i;
        drop(cache, oldest);
    }
}

/* Takes the key. Another thread may have made the same meanwhile: that one does as well. */
static void keep(dg_constraint_cache *cache, dg_buf *key, dgemma_constraint *constraint)
{
    dgemma_constraint *other = find(cache, key);
    dgemma_constraint_free(other);
    if (other || key->len > DG_CONSTRAINTS_KEPT_BYTES) {
        dg_buf_clear(key);
        return;
    }
    make_room(cache, key->len);
    cache->bytes += key->len;
    cache->at[cache->n++] =
        (entry){key->data, key->len, dgemma_constraint_hold(constraint), cache->clock};
}

dgemma_status dg_constraint_cache_get(dg_constraint_cache *cache, dgemma_constraint **out,
                                      const dgemma_constraint_options *options, dgemma_error *err)
{
    if (!cache)
        return dgemma_constraint_create(out, options, err);
    dg_buf key;
    dg_buf_init(&key, (size_t)64 << 20);
    if (!put_key(&key, options)) {
        dg_buf_clear(&key);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    pthread_mutex_lock(&cache->lock);
    cache->clock++;
    *out = find(cache, &key);
    cache->found += *out != NULL;
    pthread_mutex_unlock(&cache->lock);
    dgemma_status st = *out ? DGEMMA_OK : dgemma_constraint_create(out, options, err);
    pthread_mutex_lock(&cache->lock);
    if (!st)
        keep(cache, &key, *out);
    else
        dg_buf_clear(&key);
    pthread_mutex_unlock(&cache->lock);
    return st;
}

void dg_constraint_cache_count(dg_constraint_cache *cache, unsigned long long *asked,
                               unsigned long long *found)
{
    pthread_mutex_lock(&cache->lock);
    *asked = cache->clock;
    *found = cache->found;
    pthread_mutex_unlock(&cache->lock);
}
