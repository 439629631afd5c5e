/* A conversation of the prefix cache in a file, for another process: its tokens, the points along
 * it and their pages, as the backend has them. Little-endian:
 *
 *     header      see saved_prefix.c
 *     tokens      int32, those of the longest point
 *     points      the longest first: how many tokens, then for sliding and for global layers the
 *                 numbers of its pages in this file (dg_kv_span says how many), all int32
 *     pages       of sliding layers, then of global ones
 *     hash        XXH3, 64 bits, of all before it
 *
 * Keys and values are worth something only to the model and the numerics that made them: the file
 * names both, and is refused by others. What it says of itself is checked before anything is made
 * of it; the numbers in pages are only numbers. */
#ifndef DG_ENGINE_SAVED_PREFIX_H
#define DG_ENGINE_SAVED_PREFIX_H

#include <stdio.h>
#include "engine/loader.h"
#include "engine/prefix_cache.h"

enum { DG_SAVED_POINTS = 64, DG_SAVED_NUMERICS = 48 };

/* Who made a file, or reads it. */
typedef struct dg_saved_maker {
    uint64_t model;       /* dg_saved_mark() */
    const char *numerics; /* dgemma_model_info's */
    int n_vocab, n_context;
} dg_saved_maker;

/* A number for a model: of the mark of its weights (dg_checkpoint_mark), and of what else decides
 * which keys and values a text has. */
uint64_t dg_saved_mark(uint64_t weights, const dg_config *cfg);

/* Writes conversation `which` of a salt. DGEMMA_E_ARG: there is none. On the thread of the cache.
 */
dgemma_status dg_saved_write(const dg_prefix_cache *c, const dg_saved_maker *maker,
                             const char *salt, int which, const char *path,
                             dgemma_saved_prefix *out, dgemma_error *err);

/* A file that was looked through: by any thread, and slowly, as all of it is read. */
typedef struct dg_saved_file {
    FILE *file;
    int n_token, n_point;
    int n_page[DG_KV_GROUPS];
    size_t page_bytes[DG_KV_GROUPS];
    int32_t *token;                    /* [n_token] */
    int point_tokens[DG_SAVED_POINTS]; /* of each point */
    int32_t *page;                     /* of each point, of each group */
    size_t n_listed;                   /* in page */
    uint64_t pages_at, bytes;
} dg_saved_file;

/* DGEMMA_E_FORMAT: it is damaged or no such file; DGEMMA_E_UNSUPPORTED: another model, or other
 * numerics. kv tells how pages are. dg_saved_read takes the file, which it closes on failure. */
dgemma_status dg_saved_read(dg_saved_file *f, FILE *file, const dg_saved_maker *reader,
                            const dg_kv_cache *kv, dgemma_error *err);
dgemma_status dg_saved_open(dg_saved_file *f, const char *path, const dg_saved_maker *reader,
                            const dg_kv_cache *kv, dgemma_error *err);
void dg_saved_close(dg_saved_file *f); /* {0} is fine */

/* Puts its points into the cache, under a salt; on the thread of the cache. For the longest one
 * others make room, those used longest ago first, if all of it can have room; the shorter ones are
 * left out where there is none. */
dgemma_status dg_saved_restore(dg_saved_file *f, dg_prefix_cache *c, const char *salt,
                               dgemma_error *err);

#endif
