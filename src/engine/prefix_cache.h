/* Keys and values that outlive their request: a conversation comes back with one more turn, many
 * begin with the same instructions, and what was encoded once need not be again.
 *
 * What is kept are points: a place in a sequence of tokens, with the pages that a continuation from
 * there can see. Of the global layers these are all pages, of the sliding ones those in the window;
 * points along one conversation share most of them. A point can be anywhere, not only at the edge
 * of a page, because whoever goes on from it copies the page that is filled in part
 * (model/kv_cache.h). That is one page for a few dozen tokens that need not be encoded again.
 *
 * A hash only finds candidates: tokens, and the pixels of pictures, are compared in full. Points
 * are kept as long as there is memory, the least recently used go first. Whoever must not learn
 * what others ask has a salt of its own, and finds only what came with an equal one. One thread. */
#ifndef DG_ENGINE_PREFIX_CACHE_H
#define DG_ENGINE_PREFIX_CACHE_H

#include "engine/pictures.h"
#include "model/kv_cache.h"

typedef struct dg_prefix_cache dg_prefix_cache;

/* Tokens and the pictures among them; borrowed. */
typedef struct dg_prefix {
    const int32_t *token;
    int n_token;
    const dg_pictures *pictures; /* NULL: none */
    const char *salt; /* prefixes of different salts have nothing in common; NULL: as "" */
} dg_prefix;

/* max_host_bytes bounds what is kept beside the pages: tokens, tables, pixels. */
dgemma_status dg_prefix_cache_create(dg_prefix_cache **out, dg_kv_cache *kv, size_t max_host_bytes,
                                     dgemma_error *err);
void dg_prefix_cache_free(dg_prefix_cache *c);

/* Makes *seq, which is empty, the longest point that *p begins with; it stays empty when there is
 * none. *parted is how many tokens *p has in common with anything kept, whether there is a point or
 * not: where two have parted, others will. It never lies inside a picture. */
void dg_prefix_find(dg_prefix_cache *c, const dg_prefix *p, dg_kv_seq *seq, int *parted);

/* How many tokens two have in common, trusting the hashes of pictures; never inside a picture. */
int dg_prefix_common(const dg_prefix *a, const dg_prefix *b);

/* Keeps a point behind all tokens of *p, which are the first of what *seq holds. Where memory for
 * that is out, or the bound too low for it, nothing is kept and nothing forgotten: false. */
bool dg_prefix_keep(dg_prefix_cache *c, const dg_prefix *p, const dg_kv_seq *seq);

/* Forgets the point that was not used for longest; false: none is left. */
bool dg_prefix_evict(dg_prefix_cache *c);

/* A point without pictures, borrowed until the cache changes. */
typedef struct dg_prefix_point {
    const int32_t *token; /* [seq->n_token] */
    const dg_kv_seq *seq;
} dg_prefix_point;

/* Of the conversations with a salt (NULL: ""), the most recently used first, number `which`: its
 * longest point and all that lie along it, the longest first, at most `most`. Points with pictures
 * are passed over. Returns how many; 0: there are not so many conversations. */
int dg_prefix_conversation(const dg_prefix_cache *c, const char *salt, int which,
                           dg_prefix_point *list, int most);

dg_kv_cache *dg_prefix_kv(const dg_prefix_cache *c); /* which its points are in */

int dg_prefix_count(const dg_prefix_cache *c);

#endif
