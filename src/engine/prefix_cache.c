#include "engine/prefix_cache.h"
#include <string.h>
#include <xxhash.h>
#include "base/alloc.h"
#include "base/common.h"

/* A picture, for all points that have it in front of them. */
typedef struct kept_picture {
    struct kept_picture *next;
    int n_holder;
    dg_picture picture; /* a copy */
} kept_picture;

typedef struct place {
    int token; /* where the picture begins */
    kept_picture *picture;
} place;

typedef struct point {
    struct point *older; /* the more recently used come first */
    dg_kv_seq seq;
    char *salt;
    int32_t *token;  /* [seq.n_token] */
    uint64_t *chain; /* [whole pages] hash of the page's tokens and of all before them */
    place *place;    /* [n_place] */
    int n_place;
    size_t host_bytes;
} point;

struct dg_prefix_cache {
    dg_kv_cache *kv;
    point *first;
    int n_point;
    kept_picture *pictures;
    size_t host_bytes, max_host_bytes;
};

dgemma_status dg_prefix_cache_create(dg_prefix_cache **out, dg_kv_cache *kv, size_t max_host_bytes,
                                     dgemma_error *err)
{
    dg_prefix_cache *c = dg_calloc(1, sizeof *c);
    if (!c)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    c->kv = kv;
    c->max_host_bytes = max_host_bytes;
    *out = c;
    return DGEMMA_OK;
}

void dg_prefix_cache_free(dg_prefix_cache *c)
{
    while (c && dg_prefix_evict(c))
        ;
    dg_free(c);
}

int dg_prefix_count(const dg_prefix_cache *c)
{
    return c->n_point;
}

/* ---- pictures ---- */

static size_t kept_bytes(const dg_picture *p)
{
    return sizeof(kept_picture) + dg_patches_bytes(&p->patches);
}

/* A hold on a copy of the picture, NULL: no memory. */
static kept_picture *hold_picture(dg_prefix_cache *c, const dg_picture *p)
{
    kept_picture *k = c->pictures;
    while (k && !dg_picture_same(&k->picture, p))
        k = k->next;
    if (!k) {
        k = dg_calloc(1, sizeof *k);
        if (!k || !dg_picture_copy(&k->picture, p)) {
            dg_free(k);
            return NULL;
        }
        k->next = c->pictures;
        c->pictures = k;
        c->host_bytes += kept_bytes(p);
    }
    k->n_holder++;
    return k;
}

static void release_picture(dg_prefix_cache *c, kept_picture *k)
{
    if (!k || --k->n_holder)
        return;
    kept_picture **link = &c->pictures;
    while (*link != k)
        link = &(*link)->next;
    *link = k->next;
    c->host_bytes -= kept_bytes(&k->picture);
    dg_patches_clear(&k->picture.patches);
    dg_free(k);
}

static int n_picture(const dg_prefix *p)
{
    int n = 0;
    while (p->pictures && n < p->pictures->n && p->pictures->list[n].token < p->n_token)
        n++;
    return n;
}

/* ---- points ---- */

static void point_free(dg_prefix_cache *c, point *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_place; i++)
        release_picture(c, p->place[i].picture);
    dg_kv_seq_clear(c->kv, &p->seq);
    dg_free(p->salt);
    dg_free(p->token);
    dg_free(p->chain);
    dg_free(p->place);
    dg_free(p);
}

bool dg_prefix_evict(dg_prefix_cache *c)
{
    point **last = &c->first;
    if (!c->first)
        return false;
    while ((*last)->older)
        last = &(*last)->older;
    c->host_bytes -= (*last)->host_bytes;
    c->n_point--;
    point_free(c, *last);
    *last = NULL;
    return true;
}

static const char *salt_of(const dg_prefix *p)
{
    return p->salt ? p->salt : "";
}

/* Moves *link to the front. */
static void touch(dg_prefix_cache *c, point **link)
{
    point *p = *link;
    *link = p->older;
    p->older = c->first;
    c->first = p;
}

/* Hashes of whole pages, each with all before it; the caller's (dg_free). NULL: no memory. */
static uint64_t *chain_of(const dg_prefix *p)
{
    size_t n = (size_t)(p->n_token / DG_PAGE);
    uint64_t *chain = dg_array(n + 1, sizeof *chain), hash = 0;
    for (size_t i = 0; chain && i < n; i++)
        chain[i] = hash =
            XXH3_64bits_withSeed(p->token + i * DG_PAGE, DG_PAGE * sizeof *p->token, hash);
    return chain;
}

/* How many tokens a point and *p have in common, trusting the hashes of pages and of pictures. */
static int common_tokens(const point *q, const dg_prefix *p, const uint64_t *chain)
{
    int most = dg_min(q->seq.n_token, p->n_token), lo = 0, hi = most / DG_PAGE;
    while (lo < hi) { /* pages in common are those in front */
        int mid = (lo + hi + 1) / 2;
        if (q->chain[mid - 1] == chain[mid - 1])
            lo = mid;
        else
            hi = mid - 1;
    }
    int n = lo * DG_PAGE;
    while (n < most && q->token[n] == p->token[n])
        n++;
    return n;
}

/* As much of a picture in a prompt as telling prompts apart needs. */
typedef struct picture_key {
    int token, n_soft, rows, cols;
    uint64_t hash;
} picture_key;

static picture_key key_of(const dg_picture *p, int token)
{
    return (picture_key){token, p->patches.n_soft, p->patches.rows, p->patches.cols, p->hash};
}

static picture_key key_in(const dg_prefix *p, int i)
{
    const dg_picture *q = &p->pictures->list[i];
    return key_of(q, q->token);
}

static picture_key key_at(const point *q, int i)
{
    return key_of(&q->place[i].picture->picture, q->place[i].token);
}

/* Of n tokens in common, those in front of the first picture that is not: of the i-th pictures of
 * both, NULL where there is none. True: look at the next. */
static bool same_key(const picture_key *a, const picture_key *b, int *n)
{
    bool same = a && b && a->token == b->token && a->rows == b->rows && a->cols == b->cols &&
                a->hash == b->hash;
    if (same && *n >= a->token + a->n_soft)
        return true;
    if (a)
        *n = dg_min(*n, a->token);
    if (b)
        *n = dg_min(*n, b->token);
    return false;
}

static int common_pictures(const point *q, const dg_prefix *p, int n)
{
    int n_mine = n_picture(p);
    for (int i = 0; i < n_mine || i < q->n_place; i++) {
        picture_key mine = i < n_mine ? key_in(p, i) : (picture_key){0};
        picture_key theirs = i < q->n_place ? key_at(q, i) : (picture_key){0};
        if (!same_key(i < n_mine ? &mine : NULL, i < q->n_place ? &theirs : NULL, &n))
            break;
    }
    return n;
}

int dg_prefix_common(const dg_prefix *a, const dg_prefix *b)
{
    int n = 0, n_a = n_picture(a), n_b = n_picture(b), most = dg_min(a->n_token, b->n_token);
    if (strcmp(salt_of(a), salt_of(b)) != 0)
        return 0;
    while (n + DG_PAGE <= most &&
           memcmp(a->token + n, b->token + n, DG_PAGE * sizeof *a->token) == 0)
        n += DG_PAGE; /* in strides: a queue full of long prompts is compared before each pass */
    while (n < most && a->token[n] == b->token[n])
        n++;
    for (int i = 0; i < n_a || i < n_b; i++) {
        picture_key x = i < n_a ? key_in(a, i) : (picture_key){0},
                    y = i < n_b ? key_in(b, i) : (picture_key){0};
        if (!same_key(i < n_a ? &x : NULL, i < n_b ? &y : NULL, &n))
            break;
    }
    return n;
}

/* Whether *p, which by all hashes begins with the point, does: the tokens are the same, and so are
 * the pixels of the pictures in their places. */
static bool is_prefix(const point *q, const dg_prefix *p)
{
    if (memcmp(q->token, p->token, (size_t)q->seq.n_token * sizeof *p->token) != 0)
        return false;
    for (int i = 0; i < q->n_place; i++)
        if (!dg_picture_same(&q->place[i].picture->picture, &p->pictures->list[i]))
            return false;
    return true;
}

/* The longest point that *p begins with, moved to the front; NULL: none. */
static point *find(dg_prefix_cache *c, const dg_prefix *p, const uint64_t *chain, int *parted)
{
    point **best = NULL;
    *parted = 0;
    for (point **link = &c->first; *link; link = &(*link)->older) {
        point *q = *link;
        if (strcmp(q->salt, salt_of(p)) != 0)
            continue;
        int n = common_pictures(q, p, common_tokens(q, p, chain));
        *parted = dg_max(*parted, n);
        if (n == q->seq.n_token && (!best || n > (*best)->seq.n_token) && is_prefix(q, p))
            best = link;
    }
    if (!best)
        return NULL;
    touch(c, best);
    return c->first;
}

void dg_prefix_find(dg_prefix_cache *c, const dg_prefix *p, dg_kv_seq *seq, int *parted)
{
    uint64_t *chain = chain_of(p);
    *parted = 0;
    point *q = chain ? find(c, p, chain, parted) : NULL;
    if (q)
        dg_kv_share(c->kv, seq, &q->seq, q->seq.n_token, NULL); /* without memory: not found */
    dg_free(chain);
}

/* Bytes of a point beside its pages and its pixels. */
static size_t point_bytes(const dg_prefix *p)
{
    size_t pages = (size_t)dg_ceil_div(p->n_token, DG_PAGE);
    return sizeof(point) + strlen(salt_of(p)) + 1 + (size_t)p->n_token * sizeof(int32_t) +
           pages * (sizeof(uint64_t) + 4 * sizeof(void *)) + (size_t)n_picture(p) * sizeof(place);
}

/* Whether the bound leaves room for a point, with each of its pictures once, and nothing else. */
static bool could_fit(const dg_prefix_cache *c, const dg_prefix *p)
{
    size_t bytes = point_bytes(p);
    int n = n_picture(p);
    for (int i = 0; i < n; i++) {
        const dg_picture *q = &p->pictures->list[i];
        int k = 0;
        while (k < i && p->pictures->list[k].hash != q->hash)
            k++;
        bytes += k < i ? 0 : kept_bytes(q);
    }
    return bytes <= c->max_host_bytes;
}

/* A point with everything but its pages; NULL: no memory. */
static point *point_create(dg_prefix_cache *c, const dg_prefix *p, uint64_t *chain)
{
    point *q = dg_calloc(1, sizeof *q);
    int n = n_picture(p);
    if (!q) {
        dg_free(chain);
        return NULL;
    }
    q->chain = chain;
    q->salt = dg_strdup(salt_of(p));
    q->token = dg_array((size_t)p->n_token, sizeof *q->token);
    q->place = dg_calloc((size_t)n + 1, sizeof *q->place);
    bool ok = q->salt && q->token && q->place;
    for (int i = 0; ok && i < n; i++) {
        const dg_picture *picture = &p->pictures->list[i];
        q->place[i] = (place){picture->token, hold_picture(c, picture)};
        q->n_place++;
        ok = q->place[i].picture != NULL;
    }
    if (!ok) {
        point_free(c, q);
        return NULL;
    }
    memcpy(q->token, p->token, (size_t)p->n_token * sizeof *q->token);
    q->host_bytes = point_bytes(p);
    return q;
}

bool dg_prefix_keep(dg_prefix_cache *c, const dg_prefix *p, const dg_kv_seq *seq)
{
    int parted;
    if (!could_fit(c, p)) /* all others would go for it, and then itself */
        return false;
    uint64_t *chain = chain_of(p);
    if (!chain)
        return false;
    point *q = find(c, p, chain, &parted);
    if (q && q->seq.n_token == p->n_token) { /* it is there, and now the newest */
        dg_free(chain);
        return true;
    }
    q = point_create(c, p, chain);
    if (!q)
        return false;
    q->seq.kept = true;
    if (dg_kv_share(c->kv, &q->seq, seq, p->n_token, NULL)) {
        point_free(c, q);
        return false;
    }
    q->older = c->first;
    c->first = q;
    c->n_point++;
    c->host_bytes += q->host_bytes;
    while (c->host_bytes > c->max_host_bytes && dg_prefix_evict(c))
        ;
    return true;
}

/* ---- conversations ---- */

static bool is_text_of(const point *p, const char *salt)
{
    return !p->n_place && strcmp(p->salt, salt ? salt : "") == 0;
}

static bool begins_with(const point *p, const point *start)
{
    const int n = start->seq.n_token;
    return n <= p->seq.n_token && memcmp(p->token, start->token, (size_t)n * sizeof *p->token) == 0;
}

/* No other goes on from it. */
static bool is_end(const dg_prefix_cache *c, const point *p, const char *salt)
{
    for (const point *q = c->first; q; q = q->older)
        if (q != p && is_text_of(q, salt) && begins_with(q, p))
            return false;
    return true;
}

/* Puts a point in its place among n, the longest first; the shortest goes where there are too many.
 */
static int put_point(dg_prefix_point *list, int n, int most, const point *p)
{
    int at = dg_min(n, most - 1);
    if (n == most && list[at].seq->n_token > p->seq.n_token)
        return n;
    for (; at > 0 && list[at - 1].seq->n_token < p->seq.n_token; at--)
        list[at] = list[at - 1];
    list[at] = (dg_prefix_point){p->token, &p->seq};
    return dg_min(n + 1, most);
}

int dg_prefix_conversation(const dg_prefix_cache *c, const char *salt, int which,
                           dg_prefix_point *list, int most)
{
    const point *end = c->first;
    int n = 0;
    for (; end; end = end->older)
        if (is_text_of(end, salt) && is_end(c, end, salt) && which-- == 0)
            break;
    for (const point *p = c->first; end && p; p = p->older)
        if (is_text_of(p, salt) && begins_with(end, p))
            n = put_point(list, n, most, p);
    return n;
}

dg_kv_cache *dg_prefix_kv(const dg_prefix_cache *c)
{
    return c->kv;
}
