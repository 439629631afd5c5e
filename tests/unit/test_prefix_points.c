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
    suite_add_tcase(s, t);
    return s;
}
