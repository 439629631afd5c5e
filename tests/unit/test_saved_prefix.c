/* Prefixes in files: another engine goes on from them as if it had encoded the prompt itself; what
 * is foreign or damaged is refused, and nothing of it is kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/saved_prefix.h"
#include "format/checkpoint_mark.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/cpu_engine.h"
#include "support/record_events.h"
#include "support/temp_dir.h"

static char path[DG_TEST_PATH];

static void setup(void)
{
    dg_test_root_make();
    dg_test_path(path, dg_test_root, "saved.kv");
}

static void fill_ids(int32_t *ids, int n, unsigned seed)
{
    dg_rng_key key = {.seed = seed};
    for (int i = 0; i < n; i++)
        ids[i] = 20 + (int32_t)dg_rng_below(&key, (uint32_t)i, 340);
}

static dgemma_request_options request(dgemma_engine *e, const int32_t *ids, int n)
{
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.max_tokens = 40;
    opt.max_denoise_steps = 4;
    opt.tokens = ids;
    opt.n_tokens = (size_t)n;
    opt.seed = 5;
    return opt;
}

static void ask(dgemma_engine *e, const dgemma_request_options *opt, record *rec)
{
    record_listen(record_submit(e, opt), rec);
}

static int points(dgemma_engine *e, int which, const char *salt, dg_prefix_point *list);

static void save(dgemma_engine *e, int which, const char *salt, dgemma_saved_prefix *saved)
{
    dgemma_error err = {0};
    dgemma_status st = dgemma_prefix_save(e, path, which, salt, saved, &err);
    ck_assert_msg(!st, "%s", err.msg);
    dg_buf file;
    dg_buf_init(&file, (size_t)1 << 28);
    ck_assert_int_eq(dg_file_read(&file, path, &err), DGEMMA_OK);
    ck_assert_uint_eq(file.len, saved->bytes);
    dg_buf_clear(&file);
}

static dgemma_status restore(dgemma_engine *e, const char *salt, dgemma_error *err)
{
    *err = (dgemma_error){0};
    dgemma_status st = dgemma_prefix_restore(e, path, salt, NULL, err);
    ck_assert(!st == !err->msg[0]);
    return st;
}

/* ---- there and back ---- */

/* Lengths around the edges of pages and of the window. */
static void check_back(dgemma_kv_type type, int n)
{
    static int32_t ids[1500];
    static record cold, warm;
    dgemma_error err;
    dgemma_saved_prefix saved;
    dgemma_engine_options eo = dg_test_engine_defaults();
    eo.kv_type = type;
    dgemma_engine *one = record_engine(eo), *other = record_engine(eo);
    fill_ids(ids, n, (unsigned)n);
    dgemma_request_options opt = request(one, ids, n);
    ask(one, &opt, &cold);
    save(one, 0, NULL, &saved);
    ck_assert_int_ge(saved.n_tokens, n);
    ck_assert_msg(!restore(other, NULL, &err), "%s", err.msg);
    ask(other, &opt, &warm);
    record_assert_same(&cold, &warm, "restored", n);
    ck_assert_int_eq(warm.stats.n_prompt_cached, n);
    record_clear(&warm);
    record_clear(&cold);

    /* what goes on from there writes into no page of others */
    for (unsigned turn = 0; turn < 2; turn++) {
        fill_ids(ids + n, 100, 1000 + turn);
        opt = request(one, ids, n + 100);
        ask(one, &opt, &cold);
        ask(other, &opt, &warm);
        record_assert_same(&cold, &warm, "behind it", n);
        ck_assert_int_ge(warm.stats.n_prompt_cached, n);
        record_clear(&warm);
        record_clear(&cold);
    }
    dgemma_engine_close(one);
    dgemma_engine_close(other);
}

static const int lengths[] = {1, 8, 9, 63, 64, 65, 200, 1301};

START_TEST(another_engine_goes_on)
{
    check_back((dgemma_kv_type)(_i % 4), lengths[_i / 4]);
}
END_TEST

/* Two conversations that begin alike, and one of somebody else: each is found by when it was used
 * last, with the points along it. */
START_TEST(conversations_are_told_apart)
{
    static int32_t ids[700];
    static record rec;
    dgemma_error err;
    dgemma_saved_prefix saved;
    dgemma_engine *e = record_engine(dg_test_engine_defaults()),
                  *other = record_engine(dg_test_engine_defaults());
    static const int n[] = {300, 500, 400};
    for (int i = 0; i < 3; i++) {
        fill_ids(ids, n[i], 1);
        fill_ids(ids + 200, n[i] - 200, 10 + (unsigned)i);
        dgemma_request_options opt = request(e, ids, n[i]);
        opt.cache_salt = i == 2 ? "other" : NULL;
        ask(e, &opt, &rec);
        record_clear(&rec);
    }
    save(e, 1, NULL, &saved);
    ck_assert(saved.n_tokens >= 300 && saved.n_tokens < 400);
    save(e, 0, "other", &saved);
    ck_assert(saved.n_tokens >= 400 && saved.n_tokens < 500);
    save(e, 0, NULL, &saved);
    ck_assert_int_ge(saved.n_tokens, 500);
    ck_assert_int_eq(dgemma_prefix_save(e, path, 2, NULL, NULL, &err), DGEMMA_E_ARG);
    ck_assert_int_eq(dgemma_prefix_save(e, path, 1, "other", NULL, &err), DGEMMA_E_ARG);
    ck_assert_int_eq(dgemma_prefix_save(e, path, 0, "nobody", NULL, &err), DGEMMA_E_ARG);

    /* what both have in common, the first's 200, is a point of the second */
    ck_assert_int_eq(restore(other, "mine", &err), DGEMMA_OK);
    fill_ids(ids, 700, 1);
    fill_ids(ids + 200, 500, 99);
    dgemma_request_options opt = request(other, ids, 700);
    opt.cache_salt = "mine";
    ask(other, &opt, &rec);
    ck_assert_int_eq(rec.stats.n_prompt_cached, 200);
    record_clear(&rec);
    fill_ids(ids + 200, 300, 11);
    opt = request(other, ids, 500);
    ask(other, &opt, &rec); /* under another salt it is not there */
    ck_assert_int_eq(rec.stats.n_prompt_cached, 0);
    record_clear(&rec);
    dgemma_engine_close(e);
    dgemma_engine_close(other);
}
END_TEST

/* ---- what is refused ---- */

static int kept(dgemma_engine *e)
{
    dg_prefix_point list[DG_SAVED_POINTS];
    return points(e, 0, "|", list);
}

typedef struct look {
    int which, n;
    const char *salt;
    dg_prefix_point *list;
} look;

static void look_now(void *arg, dg_prefix_cache *prefix)
{
    look *l = arg;
    l->n = dg_prefix_conversation(prefix, l->salt, l->which, l->list, DG_SAVED_POINTS);
}

static int points(dgemma_engine *e, int which, const char *salt, dg_prefix_point *list)
{
    look l = {.which = which, .salt = salt, .list = list};
    dg_scheduler_call(e->scheduler, look_now, &l);
    return l.n;
}

/* A small file of a conversation, in memory. */
static void make_file(dg_buf *file)
{
    static int32_t ids[150];
    static record rec;
    dgemma_error err;
    dgemma_saved_prefix saved;
    dgemma_engine *e = record_engine(dg_test_engine_defaults());
    fill_ids(ids, 150, 4);
    dgemma_request_options opt = request(e, ids, 150);
    ask(e, &opt, &rec);
    record_clear(&rec);
    save(e, 0, NULL, &saved);
    dgemma_engine_close(e);
    dg_buf_init(file, (size_t)1 << 28);
    ck_assert_int_eq(dg_file_read(file, path, &err), DGEMMA_OK);
}

static void put_file(const void *data, size_t n)
{
    ck_assert(dg_test_write_file(dg_test_root, "saved.kv", data, n));
}

START_TEST(damage_is_refused)
{
    dg_buf file;
    dgemma_error err;
    make_file(&file);
    dgemma_engine *e = record_engine(dg_test_engine_defaults());
    for (size_t i = 0; i < file.len; i += i < 1024 ? 7 : 997) {
        file.data[i] ^= 0x10;
        put_file(file.data, file.len);
        dgemma_status st = restore(e, NULL, &err);
        ck_assert_msg(st == DGEMMA_E_FORMAT || st == DGEMMA_E_UNSUPPORTED || st == DGEMMA_E_LIMIT,
                      "byte %zu: %d", i, (int)st);
        file.data[i] ^= 0x10;
    }
    for (size_t n = 0; n < file.len; n += n < 1024 ? 13 : 1999) {
        put_file(file.data, n);
        ck_assert_int_eq(restore(e, NULL, &err), DGEMMA_E_FORMAT);
        ck_assert(strstr(err.msg, "saved.kv"));
    }
    ck_assert_int_eq(dg_buf_append(&file, "x", 1), true);
    put_file(file.data, file.len);
    ck_assert_int_eq(restore(e, NULL, &err), DGEMMA_E_FORMAT);
    remove(path);
    ck_assert_int_eq(restore(e, NULL, &err), DGEMMA_E_IO);
    ck_assert_int_eq(kept(e), 0);
    put_file(file.data, file.len - 1);
    ck_assert_int_eq(restore(e, NULL, &err), DGEMMA_OK);
    ck_assert_int_gt(kept(e), 0);
    dgemma_engine_close(e);
    dg_buf_clear(&file);
}
END_TEST

/* With a hash that fits, whatever else it says. */
START_TEST(lies_are_refused)
{
    dg_buf file;
    dgemma_error err;
    int n_taken = 0;
    make_file(&file);
    dgemma_engine *e = record_engine(dg_test_engine_defaults());
    char *copy = dg_malloc(file.len);
    for (unsigned i = 0; i < 1500; i++) {
        dg_rng_key key = {.seed = i};
        memcpy(copy, file.data, file.len);
        for (uint32_t k = 0; k < 1 + i % 3; k++) {
            uint32_t value = dg_rng_below(&key, 9 * k, 4) ? dg_rng_below(&key, 9 * k + 1, 300)
                                                          : dg_rng_below(&key, 9 * k + 2, 1u << 31);
            size_t at = 4 * (size_t)dg_rng_below(&key, 9 * k + 3, i % 2 ? 28 : 210);
            if (at >= 16 && at < 24)
                at = 0; /* the model is not the question here */
            memcpy(copy + at, &value, sizeof value);
        }
        uint64_t sum = XXH3_64bits(copy, file.len - sizeof sum);
        memcpy(copy + file.len - sizeof sum, &sum, sizeof sum);
        put_file(copy, file.len);
        n_taken += !restore(e, NULL, &err);
    }
    ck_assert_int_gt(n_taken, 0); /* other tokens, the same page twice: that can be */
    dg_free(copy);
    dgemma_engine_close(e);
    dg_buf_clear(&file);
}
END_TEST

/* Pages of both have one size where heads have 32 values or fewer. */
START_TEST(bytes_of_another_kind_are_refused)
{
    static int32_t ids[100];
    static record rec;
    dgemma_error err;
    dgemma_saved_prefix saved;
    dgemma_engine_options eo = dg_test_engine_defaults();
    eo.kv_type = DGEMMA_KV_Q8_0;
    dgemma_engine *one = record_engine(eo);
    eo.kv_type = DGEMMA_KV_FP8;
    dgemma_engine *other = record_engine(eo);
    fill_ids(ids, 100, 3);
    dgemma_request_options opt = request(one, ids, 100);
    ask(one, &opt, &rec);
    save(one, 0, NULL, &saved);
    ck_assert_int_eq(restore(other, NULL, &err), DGEMMA_E_UNSUPPORTED);
    ck_assert(strstr(err.msg, "another type"));
    record_clear(&rec);
    dgemma_engine_close(one);
    dgemma_engine_close(other);
}
END_TEST

START_TEST(strangers_are_refused)
{
    dg_buf file;
    dgemma_error err;
    make_file(&file);
    dgemma_engine_options eo = dg_test_engine_defaults();
    dgemma_engine *e;
    for (dgemma_kv_type type = DGEMMA_KV_F32; type <= DGEMMA_KV_FP8; type++) {
        eo.kv_type = type;
        e = record_engine(eo);
        ck_assert_int_eq(restore(e, NULL, &err), DGEMMA_E_UNSUPPORTED);
        ck_assert(strstr(err.msg, "another type"));
        dgemma_engine_close(e);
    }

    eo = dg_test_engine_defaults();
    eo.cpu = "ref";
    e = record_engine(eo);
    ck_assert_int_eq(restore(e, NULL, &err), DGEMMA_E_UNSUPPORTED);
    ck_assert(strstr(err.msg, "numerics"));
    dgemma_engine_close(e);

    eo = dg_test_engine_defaults();
    eo.context_length = 100;
    e = record_engine(eo);
    ck_assert_int_eq(restore(e, NULL, &err), DGEMMA_E_LIMIT);
    dgemma_engine_close(e);

    eo = dg_test_engine_defaults();
    eo.no_prefix_cache = true;
    e = record_engine(eo);
    ck_assert_int_eq(restore(e, NULL, &err), DGEMMA_E_ARG);
    ck_assert_int_eq(dgemma_prefix_save(e, path, 0, NULL, NULL, &err), DGEMMA_E_ARG);
    dgemma_engine_close(e);

    file.data[16] ^= 1; /* the model's mark */
    uint64_t sum = XXH3_64bits(file.data, file.len - sizeof sum);
    memcpy(file.data + file.len - sizeof sum, &sum, sizeof sum);
    put_file(file.data, file.len);
    e = record_engine(dg_test_engine_defaults());
    ck_assert_int_eq(restore(e, NULL, &err), DGEMMA_E_UNSUPPORTED);
    ck_assert(strstr(err.msg, "another model"));
    ck_assert_int_eq(kept(e), 0);
    dgemma_engine_close(e);
    dg_buf_clear(&file);
}
END_TEST

START_TEST(configs_tell_models_apart)
{
    static dg_config cfg[8];
    for (int i = 0; i < 8; i++)
        cfg[i] = (dg_config){.n_layer = 2, .rms_eps = 1e-6f, .embed_scale = 8};
    cfg[1].rms_eps = 1e-5f;
    cfg[2].embed_scale = 9;
    cfg[3].layer[1].rope_theta = 1e4f;
    cfg[4].layer[0].window = 8;
    cfg[5].layer[1].n_rope_pair = 4;
    cfg[6].n_expert_used = 2;
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < i; k++)
            ck_assert_msg((dg_saved_mark(1, &cfg[i]) == dg_saved_mark(1, &cfg[k])) ==
                              (i == 7 && k == 0),
                          "%d and %d", i, k);
    ck_assert_uint_ne(dg_saved_mark(1, cfg), dg_saved_mark(2, cfg));
}
END_TEST

START_TEST(marks_tell_models_apart)
{
    static const char *const folder[] = {"text", "wide"};
    uint64_t mark[2][2];
    for (int i = 0; i < 4; i++) {
        dg_checkpoint *ck;
        dgemma_error err;
        char name[64];
        snprintf(name, sizeof name, "tests/fixtures/golden/%s/model", folder[i / 2]);
        ck_assert_int_eq(dg_checkpoint_open(&ck, name, &err), DGEMMA_OK);
        mark[i / 2][i % 2] = dg_checkpoint_mark(ck);
        dg_checkpoint_close(ck);
    }
    ck_assert_uint_eq(mark[0][0], mark[0][1]);
    ck_assert_uint_ne(mark[0][0], mark[1][0]);
}
END_TEST

/* ---- no room ---- */

START_TEST(older_ones_make_room)
{
    static int32_t ids[900];
    static record rec;
    dgemma_error err;
    dgemma_saved_prefix saved;
    dgemma_engine_options eo = dg_test_engine_defaults();
    dgemma_engine *e = record_engine(eo);
    fill_ids(ids, 900, 1);
    dgemma_request_options opt = request(e, ids, 900);
    ask(e, &opt, &rec);
    record_clear(&rec);
    save(e, 0, NULL, &saved);
    dgemma_engine_close(e);

    eo.kv_bytes = 2 * (size_t)saved.bytes;
    e = record_engine(eo);
    for (unsigned seed = 2; seed < 5; seed++) {
        fill_ids(ids, 600, seed);
        opt = request(e, ids, 600);
        ask(e, &opt, &rec);
        record_clear(&rec);
    }
    ck_assert_msg(!restore(e, NULL, &err), "%s", err.msg);
    fill_ids(ids, 900, 1);
    opt = request(e, ids, 900);
    ask(e, &opt, &rec);
    ck_assert_int_eq(rec.stats.n_prompt_cached, 900);
    record_clear(&rec);
    dgemma_engine_close(e);

    /* what can never fit drives nobody out */
    eo.kv_bytes = (size_t)saved.bytes / 2;
    e = record_engine(eo);
    fill_ids(ids, 100, 9);
    opt = request(e, ids, 100);
    ask(e, &opt, &rec);
    record_clear(&rec);
    const int before = kept(e);
    dgemma_engine_counters was, now;
    dgemma_engine_count(e, &was);
    ck_assert_int_gt(before, 0);
    ck_assert_int_eq(restore(e, NULL, &err), DGEMMA_E_LIMIT);
    ck_assert_int_eq(kept(e), before);
    dgemma_engine_count(e, &now);
    ck_assert_uint_eq(now.kv_bytes_cached, was.kv_bytes_cached);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(survives_no_memory)
{
    dg_buf file;
    make_file(&file);
    dgemma_engine *e = record_engine(dg_test_engine_defaults());
    for (long n = 1;; n++) {
        dgemma_error err = {0};
        dg_test_fail_alloc_at(n);
        dgemma_status st = dgemma_prefix_restore(e, path, NULL, NULL, &err);
        bool reached = dg_test_alloc_done();
        if (!reached) {
            ck_assert_msg(!st, "%s", err.msg);
            break;
        }
        ck_assert_msg(st == DGEMMA_E_NOMEM || !st, "%ld: %s", n, err.msg);
    }
    remove(path);
    for (long n = 1;; n++) {
        dgemma_error err = {0};
        dg_test_fail_alloc_at(n);
        dgemma_status st = dgemma_prefix_save(e, path, 0, NULL, NULL, &err);
        bool reached = dg_test_alloc_done();
        ck_assert_msg(dg_file_exists(path) == !st, "%ld: %s", n, err.msg);
        remove(path);
        if (!reached) {
            ck_assert_msg(!st, "%s", err.msg);
            break;
        }
    }
    dgemma_engine_close(e);
    dg_buf_clear(&file);
}
END_TEST

Suite *saved_prefix_suite(void)
{
    Suite *s = suite_create("saved_prefix");
    TCase *c = tcase_create("there and back");
    tcase_add_checked_fixture(c, setup, dg_test_root_remove);
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, another_engine_goes_on, 0, 4 * (int)DG_COUNT(lengths));
    tcase_add_test(c, conversations_are_told_apart);
    tcase_add_test(c, older_ones_make_room);
    suite_add_tcase(s, c);

    c = tcase_create("hostile");
    tcase_add_checked_fixture(c, setup, dg_test_root_remove);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, damage_is_refused);
    tcase_add_test(c, lies_are_refused);
    tcase_add_test(c, strangers_are_refused);
    tcase_add_test(c, bytes_of_another_kind_are_refused);
    tcase_add_test(c, marks_tell_models_apart);
    tcase_add_test(c, configs_tell_models_apart);
    tcase_add_test(c, survives_no_memory);
    suite_add_tcase(s, c);
    return s;
}
