/* The prefix cache and what a request does with it, without an engine: what is found, what goes
 * first, where two have parted, and which places are kept. */
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "engine/prefix_reuse.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/tiny_model.h"

typedef struct cache_alone {
    tiny_model t;
    dg_prefix_cache *cache;
    int32_t *ids;  /* some prompt */
    dg_kv_seq seq; /* and its keys and values */
} cache_alone;

static void open_alone(cache_alone *a, int n, size_t host_bytes)
{
    *a = (cache_alone){0};
    tiny_open(&a->t, &(tiny_options){.max_row = n});
    ck_assert_int_eq(dg_prefix_cache_create(&a->cache, a->t.kv, host_bytes, NULL), DGEMMA_OK);
    a->ids = tiny_ids(&a->t, n, 5);
    tiny_encode(&a->t, &a->seq, a->ids, n, n);
}

/* What points hold counts as unused, and goes with them. */
static void close_alone(cache_alone *a)
{
    bool keeps = dg_prefix_count(a->cache) > 0;
    dg_kv_seq_clear(a->t.kv, &a->seq);
    ck_assert_uint_eq(dg_kv_bytes_used(a->t.kv), 0);
    ck_assert(!keeps || dg_kv_bytes_held(a->t.kv) > 0);
    dg_prefix_cache_free(a->cache);
    ck_assert_uint_eq(dg_kv_bytes_held(a->t.kv), 0);
    dg_free(a->ids);
    tiny_close(&a->t);
}

/* Pictures with the same hash and other pixels, as somebody with bad intentions could make them. */
START_TEST(a_hash_is_not_believed)
{
    enum { N = 100 };
    cache_alone a;
    open_alone(&a, N, 1 << 20);
    dg_prefix_cache *c = a.cache;
    int32_t *ids = a.ids;
    uint8_t pixels[2][48] = {{1}, {2}};
    dg_picture list[2];
    for (int i = 0; i < 2; i++)
        list[i] = (dg_picture){
            .patches = {.rows = 2, .cols = 2, .patch = 2, .n_soft = 1, .resized = pixels[i]},
            .hash = 77,
            .token = 50};
    dg_pictures one = {.list = &list[0], .n = 1}, other = {.list = &list[1], .n = 1};
    dg_kv_seq found = {0};
    int parted;
    dg_prefix_keep(c, &(dg_prefix){ids, N, &one, NULL}, &a.seq);
    ck_assert_int_eq(dg_prefix_count(c), 1);
    dg_prefix_find(c, &(dg_prefix){ids, N, &other, NULL}, &found, &parted);
    ck_assert_int_eq(found.n_token, 0);
    dg_prefix_find(c, &(dg_prefix){ids, N, NULL, NULL}, &found,
                   &parted); /* plain placeholder tokens */
    ck_assert_int_eq(found.n_token, 0);
    ck_assert_int_eq(parted, 50);
    dg_prefix_find(c, &(dg_prefix){ids, N - 1, &one, NULL}, &found, &parted);
    ck_assert_int_eq(found.n_token, 0);
    ck_assert_int_eq(parted, N - 1);
    dg_prefix_find(c, &(dg_prefix){ids, N, &one, NULL}, &found, &parted);
    ck_assert_int_eq(found.n_token, N);
    dg_kv_seq_clear(a.t.kv, &found);
    dg_prefix_keep(c, &(dg_prefix){ids, N, &one, NULL}, &a.seq); /* once is enough */
    ck_assert_int_eq(dg_prefix_count(c), 1);
    dg_picture two[2] = {list[0], list[1]}, three[2] = {list[0], list[1]};
    two[1].token = three[1].token = 70; /* the second picture of two differs */
    two[1].hash = 78;
    three[1].hash = 79;
    dg_prefix_keep(c, &(dg_prefix){ids, N, &(dg_pictures){.list = two, .n = 2}, NULL}, &a.seq);
    dg_prefix_find(c, &(dg_prefix){ids, N, &(dg_pictures){.list = three, .n = 2}, NULL}, &found,
                   &parted);
    ck_assert_int_eq(parted, 70);
    dg_prefix_keep(c, &(dg_prefix){ids, N, &other, NULL}, &a.seq); /* beside the first */
    dg_prefix_find(c, &(dg_prefix){ids, N, &other, NULL}, &found, &parted);
    ck_assert_int_eq(found.n_token, N);
    dg_kv_seq_clear(a.t.kv, &found);

    close_alone(&a);
}
END_TEST

/* Tokens of the same hash, as somebody with bad intentions could choose them: where the low half of
 * eight bytes equals that of the hash's own secret, the high half is only added, and what one takes
 * from it another can put back. */
START_TEST(a_hash_of_tokens_is_not_believed)
{
    enum { N = 100, STRIPE = 16 };
    cache_alone a;
    open_alone(&a, N, 1 << 20);
    dg_prefix_cache *c = a.cache;
    int32_t *ids = a.ids, one[N], other[N];
    dg_kv_seq found = {0};
    memcpy(one, ids, sizeof one);
    one[0] = 0x396CFEB8;
    one[STRIPE] = 0x2C81017C;
    memcpy(other, one, sizeof other);
    other[1]++;
    other[STRIPE + 1]--;
    int parted;
    dg_prefix_keep(c, &(dg_prefix){one, N, NULL, NULL}, &a.seq);
    dg_prefix_find(c, &(dg_prefix){other, N, NULL, NULL}, &found, &parted);
    ck_assert_int_eq(parted, N); /* the hashes are the same */
    ck_assert_int_eq(found.n_token, 0);
    dg_prefix_find(c, &(dg_prefix){one, N, NULL, NULL}, &found, &parted);
    ck_assert_int_eq(found.n_token, N);
    dg_kv_seq_clear(a.t.kv, &found);
    close_alone(&a);
}
END_TEST

/* What is kept beside the pages stays within its bound; the newest stay. */
START_TEST(tokens_and_tables_are_bounded)
{
    enum { N = 200, N_POINT = 12, BOUND = 4096 };
    cache_alone a;
    open_alone(&a, N, BOUND);
    dg_prefix_cache *c = a.cache;
    int32_t *ids = a.ids;
    for (int i = 0; i < N_POINT; i++) {
        dg_kv_seq found = {0};
        int parted;
        ids[0] = i;
        dg_prefix_keep(c, &(dg_prefix){ids, N, NULL, NULL}, &a.seq);
        ck_assert_int_le(dg_prefix_count(c), BOUND / (N * (int)sizeof *ids));
        dg_prefix_find(c, &(dg_prefix){ids, N, NULL, NULL}, &found, &parted);
        ck_assert_int_eq(found.n_token, N);
        dg_kv_seq_clear(a.t.kv, &found);
    }
    ck_assert_int_ge(dg_prefix_count(c), 2);
    close_alone(&a);
}
END_TEST

/* With another salt nothing is there, not even the place where two have parted. */
START_TEST(salts_have_nothing_in_common)
{
    enum { N = 200 };
    static const char *const salts[] = {NULL, "", "one", "other", "on"};
    cache_alone a;
    open_alone(&a, N, 1 << 20);
    dg_prefix_cache *c = a.cache;
    int32_t *ids = a.ids;
    for (size_t k = 0; k < DG_COUNT(salts); k++) {
        dg_prefix kept = {ids, N, NULL, salts[k]};
        dg_prefix_keep(c, &kept, &a.seq);
        ck_assert_int_eq(dg_prefix_count(c), 1);
        for (size_t i = 0; i < DG_COUNT(salts); i++) {
            bool equal = i == k || (i < 2 && k < 2);
            dg_prefix asked = {ids, N, NULL, salts[i]};
            dg_kv_seq found = {0};
            int parted;
            dg_prefix_find(c, &asked, &found, &parted);
            ck_assert_int_eq(found.n_token, equal ? N : 0);
            ck_assert_int_eq(parted, equal ? N : 0);
            ck_assert_int_eq(dg_prefix_common(&kept, &asked), equal ? N : 0);
            dg_kv_seq_clear(a.t.kv, &found);
        }
        ck_assert(dg_prefix_evict(c));
    }
    dg_prefix_keep(c, &(dg_prefix){ids, N, NULL, "one"}, &a.seq); /* both may be there */
    dg_prefix_keep(c, &(dg_prefix){ids, N, NULL, "other"}, &a.seq);
    ck_assert_int_eq(dg_prefix_count(c), 2);
    close_alone(&a);
}
END_TEST

/* What is larger than the bound by itself does not drive the others out. A picture that is shown
 * twice counts once. */
START_TEST(too_large_is_not_kept)
{
    enum { N = 100, SIDE = 64 };
    static uint8_t pixels[3][SIDE * SIDE * 3];
    cache_alone a;
    open_alone(&a, N, 2 * sizeof *pixels + 4096);
    dg_prefix_cache *c = a.cache;
    int32_t *ids = a.ids;
    dg_picture list[3];
    for (int i = 0; i < 3; i++) {
        memset(pixels[i], i, sizeof pixels[i]);
        list[i] = (dg_picture){
            .patches = {.rows = 2, .cols = 2, .patch = SIDE / 2, .n_soft = 1, .resized = pixels[i]},
            .hash = 77 + (uint64_t)i,
            .token = 50 + 5 * i};
    }
    dg_pictures all = {.list = list, .n = 3};
    dg_kv_seq found = {0};
    dg_prefix_keep(c, &(dg_prefix){ids, 40, NULL, NULL}, &a.seq);
    dg_prefix_keep(c, &(dg_prefix){ids, N, &all, NULL}, &a.seq);
    ck_assert_int_eq(dg_prefix_count(c), 1);
    int parted;
    dg_prefix_find(c, &(dg_prefix){ids, 40, NULL, NULL}, &found, &parted);
    ck_assert_int_eq(found.n_token, 40);
    dg_kv_seq_clear(a.t.kv, &found);
    list[2].patches.resized = pixels[0];
    list[2].hash = list[0].hash;
    dg_prefix_keep(c, &(dg_prefix){ids, N, &all, NULL}, &a.seq);
    ck_assert_int_eq(dg_prefix_count(c), 2);
    close_alone(&a);
}
END_TEST

/* Without memory nothing is kept or found, and nothing is lost. */
START_TEST(memory_that_is_out)
{
    enum { N = 200 };
    tiny_model t;
    tiny_open(&t, &(tiny_options){.max_row = N});
    int32_t *ids = tiny_ids(&t, N, 5);
    uint8_t pixels[48] = {1};
    dg_picture picture = {
        .patches = {.rows = 2, .cols = 2, .patch = 2, .n_soft = 1, .resized = pixels}, .token = 50};
    dg_pictures pictures = {.list = &picture, .n = 1};
    dg_prefix all = {ids, N, &pictures, NULL};
    dg_kv_seq seq = {0}, found = {0};
    tiny_encode(&t, &seq, ids, N, N);
    for (long n = 1, parted = 0;; n++) {
        dg_prefix_cache *c = NULL;
        int at;
        dg_test_fail_alloc_at(n);
        if (!dg_prefix_cache_create(&c, t.kv, 1 << 20, NULL)) {
            dg_prefix_keep(c, &all, &seq);
            dg_prefix_find(c, &all, &found, &at);
            parted = at;
        }
        bool failed = dg_test_alloc_done();
        ck_assert(found.n_token == 0 || found.n_token == N);
        ck_assert(failed || (found.n_token == N && parted == N));
        dg_kv_seq_clear(t.kv, &found);
        dg_prefix_cache_free(c);
        ck_assert_uint_eq(dg_kv_bytes_held(t.kv), dg_kv_bytes_used(t.kv));
        if (!failed)
            break;
    }
    dg_kv_seq_clear(t.kv, &seq);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), 0);
    dg_free(ids);
    tiny_close(&t);
}
END_TEST

/* ---- where two have parted ---- */

/* A picture of which only the key counts: at `token`, n_soft tokens long. */
static dg_picture picture_at(int token, int n_soft)
{
    static uint8_t pixels[256] = {1}; /* a patch more than it needs, either way */
    return (dg_picture){
        .patches = {.rows = 2, .cols = 3, .patch = 2, .n_soft = n_soft, .resized = pixels},
        .hash = 77,
        .token = token};
}

/* What a prompt and a kept one have in common, both ways round and through the cache. */
static void assert_parted(cache_alone *a, const dg_prefix *kept, const dg_prefix *asked, int want)
{
    dg_kv_seq found = {0};
    int parted;
    ck_assert_int_eq(dg_prefix_common(kept, asked), want);
    ck_assert_int_eq(dg_prefix_common(asked, kept), want);
    dg_prefix_keep(a->cache, kept, &a->seq);
    ck_assert_int_eq(dg_prefix_count(a->cache), 1);
    dg_prefix_find(a->cache, asked, &found, &parted);
    ck_assert_int_eq(parted, want);
    ck_assert_int_eq(found.n_token, want == kept->n_token ? want : 0);
    dg_kv_seq_clear(a->t.kv, &found);
    ck_assert(dg_prefix_evict(a->cache));
}

/* Two prompts with a picture each, all tokens the same. */
START_TEST(pictures_part_in_front_of_what_differs)
{
    enum { N = 100, AT = 20, SOFT = 10 };
    cache_alone a;
    open_alone(&a, N, 1 << 20);
    dg_picture one = picture_at(AT, SOFT), other = one;
    dg_pictures mine = {.list = &one, .n = 1}, theirs = {.list = &other, .n = 1};
    dg_prefix kept = {a.ids, N, &mine, NULL}, asked = {a.ids, N, &theirs, NULL};
    assert_parted(&a, &kept, &asked, N);
    other.hash++;
    assert_parted(&a, &kept, &asked, AT);
    other = one;
    other.patches.rows++;
    assert_parted(&a, &kept, &asked, AT);
    other = one;
    other.patches.cols++;
    assert_parted(&a, &kept, &asked, AT);
    other = one;
    other.token += 5; /* the first of the two decides, whoever has it */
    assert_parted(&a, &kept, &asked, AT);
    other.token -= 8;
    assert_parted(&a, &kept, &asked, AT - 3);
    asked.pictures = NULL;
    assert_parted(&a, &kept, &asked, AT);
    asked.pictures = &theirs;
    kept.pictures = NULL;
    assert_parted(&a, &kept, &asked, AT - 3);
    close_alone(&a);
}
END_TEST

/* Never inside a picture, which is seen whole. */
START_TEST(nothing_parts_inside_a_picture)
{
    enum { N = 100, AT = 20, SOFT = 10 };
    cache_alone a;
    open_alone(&a, N, 1 << 20);
    dg_picture one = picture_at(AT, SOFT);
    dg_pictures pictures = {.list = &one, .n = 1};
    int32_t *other = tiny_ids(&a.t, N, 5);
    dg_prefix kept = {a.ids, N, &pictures, NULL}, asked = {other, N, &pictures, NULL};
    for (int n = AT - 2; n <= AT + SOFT + 2; n++) {
        int want = n > AT && n < AT + SOFT ? AT : n;
        memcpy(other, a.ids, N * sizeof *other);
        other[n]++;
        assert_parted(&a, &kept, &asked, want);
        asked.n_token = n; /* cut there, not changed */
        assert_parted(&a, &kept, &asked, want);
        asked.n_token = N;
    }
    dg_free(other);
    close_alone(&a);
}
END_TEST

/* ---- what goes first ---- */

static bool is_kept(cache_alone *a, int n)
{
    dg_kv_seq found = {0};
    int parted;
    dg_prefix_find(a->cache, &(dg_prefix){a->ids, n, NULL, NULL}, &found, &parted);
    bool kept = found.n_token == n;
    dg_kv_seq_clear(a->t.kv, &found);
    return kept;
}

/* Used is what was found or kept again; the longest that fits is found, whichever is newest. */
START_TEST(what_is_used_stays)
{
    enum { N = 200 };
    cache_alone a;
    open_alone(&a, N, 1 << 20);
    static const int length[] = {50, 180, 64, 128};
    for (size_t i = 0; i < DG_COUNT(length); i++)
        dg_prefix_keep(a.cache, &(dg_prefix){a.ids, length[i], NULL, NULL}, &a.seq);
    ck_assert_int_eq(dg_prefix_count(a.cache), 4);
    ck_assert(is_kept(&a, 180)); /* and is looked at first from now on */
    dg_kv_seq found = {0};
    int parted;
    dg_prefix_find(a.cache, &(dg_prefix){a.ids, 179, NULL, NULL}, &found, &parted);
    ck_assert_int_eq(found.n_token, 128);
    ck_assert_int_eq(parted, 179);
    dg_kv_seq_clear(a.t.kv, &found);
    ck_assert(is_kept(&a, 50));
    dg_prefix_keep(a.cache, &(dg_prefix){a.ids, 180, NULL, NULL}, &a.seq); /* it is there */
    ck_assert_int_eq(dg_prefix_count(a.cache), 4);
    ck_assert(dg_prefix_evict(a.cache)); /* 64, then 128, 50 and 180 */
    ck_assert(!is_kept(&a, 64));         /* it was not even found: 50 was */
    ck_assert(dg_prefix_evict(a.cache));
    ck_assert_int_eq(dg_prefix_count(a.cache), 2);
    ck_assert(!is_kept(&a, 128));
    ck_assert(is_kept(&a, 180));
    ck_assert(dg_prefix_evict(a.cache));
    ck_assert(!is_kept(&a, 50));
    ck_assert(dg_prefix_evict(a.cache));
    ck_assert(!dg_prefix_evict(a.cache));
    ck_assert_int_eq(dg_prefix_count(a.cache), 0);
    close_alone(&a);
}
END_TEST

/* A picture weighs once, as long as any point has it in front of it. */
START_TEST(points_share_their_pictures)
{
    enum { N = 100, SIDE = 64 };
    static uint8_t pixels[3][SIDE * SIDE * 3];
    cache_alone a;
    open_alone(&a, N, 2 * sizeof *pixels + 8192);
    dg_picture list[3];
    dg_pictures of[3];
    for (int i = 0; i < 3; i++) {
        memset(pixels[i], i, sizeof pixels[i]);
        list[i] = picture_at(10, 1);
        list[i].patches.rows = list[i].patches.cols = 2;
        list[i].patches.patch = SIDE / 2;
        list[i].patches.resized = pixels[i];
        list[i].hash = (uint64_t)i;
        of[i] = (dg_pictures){.list = &list[i], .n = 1};
    }
    for (int round = 0; round < 3; round++) { /* what was given up weighs nothing */
        dg_prefix_keep(a.cache, &(dg_prefix){a.ids, 30, &of[0], NULL}, &a.seq);
        dg_prefix_keep(a.cache, &(dg_prefix){a.ids, 40, &of[0], NULL}, &a.seq);
        dg_prefix_keep(a.cache, &(dg_prefix){a.ids, 50, &of[1], NULL}, &a.seq);
        ck_assert_int_eq(dg_prefix_count(a.cache), 3);
        dg_prefix_keep(a.cache, &(dg_prefix){a.ids, 60, &of[2], NULL}, &a.seq);
        ck_assert_int_eq(dg_prefix_count(a.cache), 2); /* both that had the first */
        while (dg_prefix_evict(a.cache))
            ;
    }
    /* in front of a picture a point has none */
    dg_prefix_keep(a.cache, &(dg_prefix){a.ids, 10, &of[0], NULL}, &a.seq);
    ck_assert(is_kept(&a, 10));
    close_alone(&a);
}
END_TEST

/* ---- the places that a request keeps ---- */

enum { TURN = 1, LONG = 600 };

typedef struct reuse_alone {
    cache_alone a;
    dg_block_loop loop; /* no more of it than the reuse looks at */
    dg_prefix_reuse reuse;
    dg_prefix prompt;
} reuse_alone;

static void begin_reuse(reuse_alone *u)
{
    u->loop = (dg_block_loop){.n_pending = u->prompt.n_token};
    int n = dg_prefix_reuse_begin(&u->reuse, u->a.cache, &u->loop, &u->prompt, TURN);
    ck_assert_int_eq(n, u->loop.n_encoded);
    ck_assert_int_eq(n, u->loop.seq.n_token);
}

static void end_reuse(reuse_alone *u)
{
    dg_kv_seq_clear(u->a.t.kv, &u->loop.seq);
    dg_prefix_reuse_clear(&u->reuse);
}

/* Turns begin at 0, 70, 300 and 500. */
static void open_reuse(reuse_alone *u)
{
    *u = (reuse_alone){0};
    open_alone(&u->a, LONG, 1 << 20);
    for (int i = 0; i < LONG; i++)
        u->a.ids[i] = i % 100 + 10;
    u->a.ids[0] = u->a.ids[70] = u->a.ids[300] = u->a.ids[500] = TURN;
    u->prompt = (dg_prefix){u->a.ids, LONG, NULL, NULL};
    begin_reuse(u);
}

static void close_reuse(reuse_alone *u)
{
    end_reuse(u);
    close_alone(&u->a);
}

static void assert_marks(const dg_prefix_reuse *t, const int *want, int n)
{
    ck_assert_int_eq(t->n_mark, n);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(t->mark[i], want[i]);
}

/* A pass after which n tokens are encoded. */
static void encode_up_to(reuse_alone *u, int n)
{
    dg_work w = {.token = u->a.ids + u->loop.n_encoded, .n_token = n - u->loop.n_encoded};
    ck_assert_int_eq(dg_kv_reserve(u->a.t.kv, &u->loop.seq, w.n_token, NULL), DGEMMA_OK);
    dg_kv_advance(&u->loop.seq, w.n_token);
    dg_prefix_reuse_pass(&u->reuse, &u->loop, &w);
    u->loop.n_encoded = n;
}

START_TEST(places_are_kept_when_they_are_reached)
{
    reuse_alone u;
    open_reuse(&u);
    assert_marks(&u.reuse, (int[]){70, 500, LONG}, 3);
    dg_prefix_reuse_end(&u.reuse, &u.loop); /* nothing was encoded: there is nothing to keep */
    ck_assert_int_eq(dg_prefix_count(u.a.cache), 0);
    encode_up_to(&u, 69);
    ck_assert_int_eq(dg_prefix_count(u.a.cache), 0);
    encode_up_to(&u, 70);
    ck_assert(is_kept(&u.a, 70));
    assert_marks(&u.reuse, (int[]){500, LONG}, 2);
    encode_up_to(&u, 499);
    ck_assert_int_eq(dg_prefix_count(u.a.cache), 1);
    encode_up_to(&u, LONG); /* both at once */
    ck_assert_int_eq(dg_prefix_count(u.a.cache), 3);
    ck_assert(is_kept(&u.a, 500) && is_kept(&u.a, LONG));
    ck_assert_int_eq(u.reuse.n_mark, 0);
    close_reuse(&u);
}
END_TEST

/* What an answer said is kept behind its prompt, with the pictures and the salt of the request; one
 * who may not know of it neither finds it nor waits for it. */
START_TEST(an_answer_is_kept_behind_its_prompt)
{
    enum { N_PROMPT = 400 };
    uint8_t pixels[2][48] = {{1}, {2}};
    dg_picture list[2];
    for (int i = 0; i < 2; i++)
        list[i] = (dg_picture){
            .patches = {.rows = 2, .cols = 2, .patch = 2, .n_soft = 1, .resized = pixels[i]},
            .hash = (uint64_t)i,
            .token = 50};
    dg_pictures mine = {.list = &list[0], .n = 1}, other = {.list = &list[1], .n = 1};
    reuse_alone u;
    open_reuse(&u);
    end_reuse(&u);
    u.prompt = (dg_prefix){u.a.ids, N_PROMPT, &mine, "key"};
    begin_reuse(&u);
    const dg_prefix all = {u.a.ids, LONG, &mine, "key"}, nobodys = {u.a.ids, LONG, &mine, NULL},
                    elses = {u.a.ids, LONG, &other, "key"};
    ck_assert(dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &all));
    ck_assert(!dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &nobodys));
    ck_assert(!dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &elses));
    encode_up_to(&u, N_PROMPT);
    u.loop.block = 1;
    encode_up_to(&u, 500);
    u.loop.block = 2;
    encode_up_to(&u, LONG);
    dg_prefix_reuse_end(&u.reuse, &u.loop);
    const dg_prefix asked[] = {all, nobodys, elses};
    for (int i = 0; i < 3; i++) {
        dg_kv_seq found = {0};
        int parted;
        dg_prefix_find(u.a.cache, &asked[i], &found, &parted);
        ck_assert_int_eq(found.n_token, i ? 0 : LONG);
        dg_kv_seq_clear(u.a.t.kv, &found);
    }
    close_reuse(&u);
}
END_TEST

/* Without memory for its tokens a request keeps nothing any more. */
START_TEST(an_answer_without_memory_is_not_kept)
{
    reuse_alone u;
    open_reuse(&u);
    end_reuse(&u);
    u.prompt.n_token = 400;
    begin_reuse(&u);
    encode_up_to(&u, 400);
    int n_kept = dg_prefix_count(u.a.cache);
    u.loop.block = 1;
    dg_work w = {.token = u.a.ids + 400, .n_token = 200};
    ck_assert_int_eq(dg_kv_reserve(u.a.t.kv, &u.loop.seq, 200, NULL), DGEMMA_OK);
    dg_kv_advance(&u.loop.seq, 200);
    dg_test_fail_alloc_at(1);
    dg_prefix_reuse_pass(&u.reuse, &u.loop, &w);
    ck_assert(dg_test_alloc_done());
    dg_prefix_reuse_end(&u.reuse, &u.loop);
    ck_assert_int_eq(dg_prefix_count(u.a.cache), n_kept);
    close_reuse(&u);
}
END_TEST

/* Nor does the cache keep a half of what it has no memory for. */
START_TEST(a_point_without_memory_is_none)
{
    cache_alone a;
    open_alone(&a, 200, 1 << 20);
    size_t held = dg_kv_bytes_held(a.t.kv);
    for (long n = 1;; n++) {
        dg_test_fail_alloc_at(n);
        dg_prefix_keep(a.cache, &(dg_prefix){a.ids, 130, NULL, "key"}, &a.seq);
        if (!dg_test_alloc_done())
            break;
        ck_assert_int_eq(dg_prefix_count(a.cache), 0);
        ck_assert_uint_eq(dg_kv_bytes_held(a.t.kv), held);
    }
    ck_assert_int_eq(dg_prefix_count(a.cache), 1);
    close_alone(&a);
}
END_TEST

START_TEST(two_places_in_one_pass)
{
    reuse_alone u;
    open_reuse(&u);
    encode_up_to(&u, 501);
    ck_assert_int_eq(dg_prefix_count(u.a.cache), 2);
    assert_marks(&u.reuse, (int[]){LONG}, 1);
    close_reuse(&u);
}
END_TEST

/* Who begins with what is just being encoded waits if that is much, not done, and room is left to
 * remember the place. */
START_TEST(waiting_has_its_conditions)
{
    reuse_alone u;
    open_reuse(&u);
    int32_t *other = dg_array(LONG, sizeof *other);
    ck_assert_ptr_nonnull(other);
    memcpy(other, u.a.ids, LONG * sizeof *other);
    dg_prefix asked = {other, LONG, NULL, NULL};
    static const int least = 4 * DG_PAGE;
    other[least - 1]++;
    ck_assert(!dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &asked));
    assert_marks(&u.reuse, (int[]){70, 500, LONG}, 3);
    other[least - 1]--;
    other[least]++;
    ck_assert(dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &asked));
    ck_assert(dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &asked)); /* remembered once */
    assert_marks(&u.reuse, (int[]){70, least, 500, LONG}, 4);

    u.loop.block = 1;
    ck_assert(!dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &asked));
    u.loop.block = 0;
    u.loop.n_encoded = LONG;
    ck_assert(!dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &asked));
    u.loop.n_encoded = 0;
    u.loop.seq.n_token = least; /* it is there already */
    ck_assert(!dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &asked));
    u.loop.seq.n_token = least - 1;
    ck_assert(dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &asked));
    u.reuse.n_found = 1; /* of what is in common, one is not new */
    ck_assert(!dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &asked));
    u.reuse.n_found = u.loop.seq.n_token = 0;

    other[least]--;
    for (int n = 400; u.reuse.n_mark < DG_PREFIX_MARKS; n++) {
        other[n]++;
        ck_assert(dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &asked));
        other[n]--;
    }
    other[450]++;
    ck_assert(!dg_prefix_reuse_worth_waiting(&u.reuse, &u.loop, &asked));
    dg_free(other);
    close_reuse(&u);
}
END_TEST

/* Two prompts that part far behind what is kept leave a point there for the third; of what was
 * found nothing is kept again. */
START_TEST(what_was_found_is_not_marked)
{
    reuse_alone u;
    open_reuse(&u);
    u.reuse.n_mark = 0;
    encode_up_to(&u, LONG);
    dg_prefix_reuse_end(&u.reuse, &u.loop);
    end_reuse(&u);
    ck_assert_int_eq(dg_prefix_count(u.a.cache), 1);
    begin_reuse(&u); /* the same prompt again: all of it is there */
    ck_assert_int_eq(u.reuse.n_found, LONG);
    ck_assert_int_eq(u.reuse.n_mark, 0);
    end_reuse(&u);
    for (int part = DG_PAGE - 1; part <= DG_PAGE; part++) {
        u.a.ids[part]++; /* parted after one token too few, and after just enough */
        begin_reuse(&u);
        ck_assert_int_eq(u.reuse.n_found, 0);
        ck_assert_int_eq(u.reuse.mark[0], part < DG_PAGE ? 70 : DG_PAGE);
        end_reuse(&u);
        u.a.ids[part]--;
    }
    close_alone(&u.a);
}
END_TEST

Suite *prefix_points_suite(void)
{
    Suite *s = suite_create("prefix_points");
    TCase *t = tcase_create("prefix_points");
    tcase_add_test(t, salts_have_nothing_in_common);
    tcase_add_test(t, a_hash_is_not_believed);
    tcase_add_test(t, a_hash_of_tokens_is_not_believed);
    tcase_add_test(t, tokens_and_tables_are_bounded);
    tcase_add_test(t, too_large_is_not_kept);
    tcase_add_test(t, memory_that_is_out);
    tcase_add_test(t, pictures_part_in_front_of_what_differs);
    tcase_add_test(t, nothing_parts_inside_a_picture);
    tcase_add_test(t, what_is_used_stays);
    tcase_add_test(t, points_share_their_pictures);
    tcase_add_test(t, places_are_kept_when_they_are_reached);
    tcase_add_test(t, two_places_in_one_pass);
    tcase_add_test(t, an_answer_is_kept_behind_its_prompt);
    tcase_add_test(t, an_answer_without_memory_is_not_kept);
    tcase_add_test(t, a_point_without_memory_is_none);
    tcase_add_test(t, waiting_has_its_conditions);
    tcase_add_test(t, what_was_found_is_not_marked);
    suite_add_tcase(s, t);
    return s;
}
