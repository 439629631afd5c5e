/* Prefixes that are kept: found where they should be, never where they should not, and the answer
 * is the same with them and without. The cache by itself: test_prefix_points.c. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/rng.h"
#include "suites.h"
#include "support/cpu_engine.h"
#include "support/record_events.h"
#include "support/tiny_model.h"

/* An engine that keeps prefixes, and one that does not, to compare with. */
typedef struct pair {
    dgemma_engine *with, *without;
} pair;

static pair open_pair(dgemma_engine_options opt)
{
    pair p;
    p.with = record_engine(opt);
    opt.no_prefix_cache = true;
    opt.kv_bytes = 0;
    p.without = record_engine(opt);
    return p;
}

static void close_pair(pair *p)
{
    dgemma_engine_close(p->with);
    dgemma_engine_close(p->without);
}

/* Asks both; their answers are the same. Returns how much of the prompt was found. */
static int ask(const pair *p, const dgemma_request_options *opt, record *rec)
{
    static record fresh;
    record_listen(record_submit(p->without, opt), &fresh);
    record_listen(record_submit(p->with, opt), rec);
    record_assert_same(&fresh, rec, "with what was kept", (int)opt->n_tokens);
    ck_assert_int_eq(fresh.stats.n_prompt_cached, 0);
    ck_assert_int_le(rec->stats.n_prompt_cached, rec->stats.n_prompt);
    record_clear(&fresh);
    record_clear(rec);
    return rec->stats.n_prompt_cached;
}

static dgemma_request_options defaults(const pair *p)
{
    dgemma_request_options opt = dgemma_request_defaults(p->with);
    opt.max_tokens = 40;
    opt.max_denoise_steps = 4;
    opt.drafts = true;
    return opt;
}

static void fill_ids(int32_t *ids, int n, unsigned seed)
{
    dg_rng_key key = {.seed = seed};
    for (int i = 0; i < n; i++)
        ids[i] = 20 + (int32_t)dg_rng_below(&key, (uint32_t)i, 340);
}

/* ---- the same tokens again ---- */

/* Lengths around the edges of pages and of the window, of which the model has 8. */
static void check_again(dgemma_kv_type type)
{
    static const int lengths[] = {1, 8, 9, 63, 64, 65, 200, 1301};
    static int32_t ids[1400];
    static record rec;
    dgemma_engine_options eo = dg_test_engine_defaults();
    eo.kv_type = type;
    pair p = open_pair(eo);
    dgemma_request_options opt = defaults(&p);
    opt.tokens = ids;
    for (size_t i = 0; i < DG_COUNT(lengths); i++) {
        fill_ids(ids, lengths[i], 100 + (unsigned)i);
        opt.n_tokens = (size_t)lengths[i];
        opt.seed = 1;
        ck_assert_int_lt(ask(&p, &opt, &rec), 8); /* nothing but chance */
        opt.seed = 2;
        ck_assert_int_eq(ask(&p, &opt, &rec), lengths[i]);
        fill_ids(ids + lengths[i], 30, 7);
        opt.n_tokens += 30;
        ck_assert_int_ge(ask(&p, &opt, &rec), lengths[i]);
    }
    close_pair(&p);
}

START_TEST(the_same_prompt_again_bf16)
{
    check_again(DGEMMA_KV_BF16);
}
END_TEST

START_TEST(the_same_prompt_again_f32)
{
    check_again(DGEMMA_KV_F32);
}
END_TEST

START_TEST(the_same_prompt_again_in_bytes)
{
    check_again(_i ? DGEMMA_KV_FP8 : DGEMMA_KV_Q8_0);
}
END_TEST

/* The answer as part of the next prompt: all of it but the last block is there. */
START_TEST(the_next_turn_goes_on_from_the_end)
{
    static int32_t ids[1024];
    static record rec;
    pair p = open_pair(dg_test_engine_defaults());
    dgemma_request_options opt = defaults(&p);
    opt.tokens = ids;
    opt.n_tokens = 90;
    opt.max_tokens = 100;
    fill_ids(ids, 90, 3);
    int n_long = 0;
    for (opt.seed = 0; opt.seed < 8; opt.seed++) {
        opt.n_tokens = 90;
        ask(&p, &opt, &rec);
        int n_block = rec.stats.n_blocks;
        if (rec.stats.n_thinking) /* a thought that was cut makes blocks of other lengths */
            continue;
        memcpy(ids + 90, rec.ids, rec.n_ids * sizeof *ids);
        fill_ids(ids + 90 + rec.n_ids, 25, 4);
        opt.n_tokens = 90 + rec.n_ids + 25;
        ck_assert_int_eq(ask(&p, &opt, &rec), 90 + 16 * (n_block - 1));
        n_long += n_block > 2;
    }
    ck_assert_int_gt(n_long, 0);
    close_pair(&p);
}
END_TEST

/* ---- conversations ---- */

static void check_conversation(const char *revision, bool thinking, const char *tools)
{
    static record rec;
    dgemma_engine_options eo = dg_test_engine_defaults();
    eo.chat_template = revision;
    pair p = open_pair(eo);
    dgemma_request_options opt = defaults(&p);
    opt.system = "You are a patient teacher who answers in whole sentences, and never in verse.";
    opt.thinking = thinking;
    opt.tools = tools;
    char json[4096] = "[{\"role\": \"user\", \"content\": \"What is rain made of?\"}]";
    opt.messages = json;
    ask(&p, &opt, &rec);
    int n_prompt = rec.stats.n_prompt;
    for (int turn = 0; turn < 3; turn++) {
        size_t at = strlen(json) - 1;
        snprintf(json + at, sizeof json - at,
                 ", {\"role\": \"assistant\", \"content\": \"Of water, in drops of size %d.\"},"
                 " {\"role\": \"user\", \"content\": \"And snow number %d?\"}]",
                 turn, turn);
        int found = ask(&p, &opt, &rec);
        /* all but the opening of the model's turn */
        ck_assert_msg(found >= n_prompt - 20 && found < rec.stats.n_prompt, "%d of %d, after %d",
                      found, rec.stats.n_prompt, n_prompt);
        n_prompt = rec.stats.n_prompt;
    }

    /* another conversation with the same instructions */
    int whole = rec.stats.n_prompt;
    opt.messages = "[{\"role\": \"user\", \"content\": \"Who wrote this?\"}]";
    int found = ask(&p, &opt, &rec);
    ck_assert_int_gt(found, 30);
    ck_assert_int_lt(found, whole);
    close_pair(&p);
}

START_TEST(conversations_go_on)
{
    static const char tools[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\":"
        " {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}]";
    check_conversation("a", false, NULL);
    check_conversation("a", true, tools);
    check_conversation("b", false, tools);
    check_conversation("b", true, NULL);
}
END_TEST

/* Two prompts part in the middle of nowhere; the third that begins so finds the place. */
START_TEST(places_where_prompts_part_are_learned)
{
    static int32_t ids[400];
    static record rec;
    pair p = open_pair(dg_test_engine_defaults());
    dgemma_request_options opt = defaults(&p);
    opt.tokens = ids;
    opt.n_tokens = 400;
    fill_ids(ids, 400, 1);
    ck_assert_int_eq(ask(&p, &opt, &rec), 0);
    for (int i = 0; i < 3; i++) {
        fill_ids(ids + 217, 183, 50 + (unsigned)i);
        ids[217] = 380 - i; /* they part here and not later by chance */
        ck_assert_int_eq(ask(&p, &opt, &rec), i ? 217 : 0);
    }
    close_pair(&p);
}
END_TEST

/* ---- pictures ---- */

/* A picture of one colour. */
static size_t gif_of(unsigned char *out, unsigned char red)
{
    static const unsigned char gif[] = {'G', 'I', 'F', '8', '9', 'a', 1, 0,    1, 0, 0x80, 0,
                                        0,   0,   0,   0,   9,   9,   9, 0x2C, 0, 0, 0,    0,
                                        1,   0,   1,   0,   0,   2,   2, 0x44, 1, 0, 0x3B};
    memcpy(out, gif, sizeof gif);
    out[13] = red;
    return sizeof gif;
}

START_TEST(pictures_are_told_apart)
{
    static record rec;
    unsigned char first[64], second[64];
    dgemma_media one = {.data = first, .size = gif_of(first, 10)},
                 other = {.data = second, .size = gif_of(second, 200)};
    pair p = open_pair(dg_test_engine_defaults());
    dgemma_request_options opt = defaults(&p);
    opt.chat_prompt = "Look at this: <|image|> and say what it is.";
    opt.n_media = 1;
    opt.image_tokens = 70;
    opt.media = &one;
    ck_assert_int_eq(ask(&p, &opt, &rec), 0);
    int n_prompt = rec.stats.n_prompt;
    ck_assert_int_eq(ask(&p, &opt, &rec), n_prompt); /* and the tower did not run */
    ck_assert_int_eq(rec.stats.n_pictures_encoded, 0);
    opt.media = &other; /* the same tokens */
    ck_assert_int_lt(ask(&p, &opt, &rec), 40);
    ck_assert_int_eq(rec.stats.n_prompt, n_prompt);
    ck_assert_int_eq(rec.stats.n_pictures_encoded, 1);
    ck_assert_int_eq(ask(&p, &opt, &rec), n_prompt);

    /* a second picture behind the first: that one is known */
    dgemma_media both[2] = {other, one};
    opt.media = both;
    opt.n_media = 2;
    opt.chat_prompt = "Look at this: <|image|> and say what it is. And here <|image|>?";
    ask(&p, &opt, &rec);
    ck_assert_int_eq(ask(&p, &opt, &rec), rec.stats.n_prompt);
    both[1] = other;
    int found = ask(&p, &opt, &rec);
    ck_assert_int_lt(found, rec.stats.n_prompt - 40);
    close_pair(&p);
}
END_TEST

/* ---- salts ---- */

/* Prompt, answer and picture of one salt are news to another, and the answer is the same. */
START_TEST(salts_keep_requests_apart)
{
    static record rec;
    unsigned char gif[64];
    dgemma_media one = {.data = gif, .size = gif_of(gif, 10)};
    pair p = open_pair(dg_test_engine_defaults());
    dgemma_request_options opt = defaults(&p);
    opt.chat_prompt = "Look at this: <|image|> and say what it is.";
    opt.n_media = 1;
    opt.image_tokens = 70;
    opt.media = &one;
    static const char *const salts[] = {NULL, "key 1", "key 2"};
    for (size_t i = 0; i < DG_COUNT(salts); i++) {
        opt.cache_salt = salts[i];
        ck_assert_int_eq(ask(&p, &opt, &rec), 0);
        ck_assert_int_eq(rec.stats.n_pictures_encoded, 1);
    }
    for (size_t i = 0; i < DG_COUNT(salts); i++) {
        char copy[8] = "";
        opt.cache_salt = salts[i] ? strcpy(copy, salts[i]) : copy; /* "" is none */
        ck_assert_int_eq(ask(&p, &opt, &rec), rec.stats.n_prompt);
    }
    /* the picture's features by themselves: in another prompt */
    opt.chat_prompt = "What is it? <|image|>";
    opt.cache_salt = "key 1";
    ask(&p, &opt, &rec);
    ck_assert_int_eq(rec.stats.n_pictures_encoded, 0);
    opt.cache_salt = "key 3";
    ask(&p, &opt, &rec);
    ck_assert_int_eq(rec.stats.n_pictures_encoded, 1);

    char salt[DGEMMA_MAX_CACHE_SALT + 2] = "";
    memset(salt, 's', DGEMMA_MAX_CACHE_SALT + 1);
    opt.cache_salt = salt;
    dgemma_request *r = NULL;
    ck_assert_int_eq(dgemma_request_submit(&r, p.with, &opt, NULL), DGEMMA_E_ARG);
    salt[DGEMMA_MAX_CACHE_SALT] = 0;
    ask(&p, &opt, &rec);
    close_pair(&p);
}
END_TEST

/* ---- memory ---- */

START_TEST(the_least_recently_used_go_first)
{
    enum { N = 24, LENGTH = 300 };
    static int32_t ids[N][LENGTH];
    static record rec;
    dgemma_engine_options eo = dg_test_engine_defaults();
    dgemma_model_info info;
    eo.context_length = 1024;
    eo.model_path = "tests/fixtures/golden/sampler_finishes/model";
    ck_assert_int_eq(dgemma_model_estimate(&info, &eo, NULL), DGEMMA_OK);
    eo.kv_bytes = info.kv_bytes_full;
    pair p = open_pair(eo);
    dgemma_request_options opt = defaults(&p);
    opt.n_tokens = LENGTH;
    opt.max_tokens = 8;
    dgemma_engine_counters c;
    for (int i = 0; i < N; i++) {
        fill_ids(ids[i], LENGTH, (unsigned)i);
        ids[i][0] = 20 + i;
        opt.tokens = ids[i];
        ck_assert_int_eq(ask(&p, &opt, &rec), 0);
        opt.tokens = ids[0]; /* in use all the time */
        ck_assert_int_eq(ask(&p, &opt, &rec), LENGTH);
        dgemma_engine_count(p.with, &c);
        ck_assert_uint_le(c.kv_bytes_used + c.kv_bytes_cached, info.kv_bytes_full);
    }
    dgemma_engine_count(p.with, &c);
    ck_assert_uint_gt(c.n_evictions, 10);
    ck_assert_uint_gt(c.n_prompt_cached, (uint64_t)N * LENGTH / 2);
    opt.tokens = ids[1]; /* gone, and what it says is the same */
    ck_assert_int_eq(ask(&p, &opt, &rec), 0);

    /* a request that needs all the memory there is gets it */
    static int32_t all[980];
    fill_ids(all, 980, 99);
    opt.tokens = all;
    opt.n_tokens = 980;
    ask(&p, &opt, &rec);
    ck_assert_int_ne(rec.stats.end, DGEMMA_END_FAILED);
    close_pair(&p);
}
END_TEST

/* ---- many at once ---- */

enum { N_PROMPT = 10 };
static int32_t prompts[N_PROMPT][600];

/* Prompts that have beginnings in common with each other. */
static dgemma_request_options shared_prompt(const dgemma_engine *e, int i)
{
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.tokens = prompts[i];
    opt.n_tokens = (size_t)(200 + 37 * i);
    opt.max_tokens = 30;
    opt.max_denoise_steps = 5;
    opt.seed = (uint64_t)i;
    return opt;
}

typedef struct visitor {
    dgemma_engine *engine;
    const record *want;
    unsigned seed;
    uint64_t found;
} visitor;

static void *visit(void *arg)
{
    static _Thread_local record rec;
    visitor *v = arg;
    dg_rng_key key = {.seed = v->seed};
    for (uint32_t i = 0; i < 15; i++) {
        int which = (int)dg_rng_below(&key, 2 * i, N_PROMPT);
        dgemma_request_options opt = shared_prompt(v->engine, which);
        dgemma_request *r = record_submit(v->engine, &opt);
        if (dg_rng_below(&key, 2 * i + 1, 5) == 0)
            dgemma_request_cancel(r);
        record_listen(r, &rec);
        if (rec.stats.end != DGEMMA_END_CANCELLED)
            record_assert_same(&v->want[which], &rec, "among many", which);
        v->found += (uint64_t)rec.stats.n_prompt_cached;
        record_clear(&rec);
    }
    return NULL;
}

START_TEST(many_at_once_with_little_memory)
{
    enum { N_THREAD = 5 };
    static record want[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++) {
        fill_ids(prompts[i], 600, 1);
        fill_ids(prompts[i] + 100 + 30 * (i % 4), 400, 2 + (unsigned)i);
    }
    dgemma_engine_options eo = dg_test_engine_defaults();
    dgemma_model_info info;
    eo.context_length = 1024;
    eo.model_path = "tests/fixtures/golden/sampler_finishes/model";
    ck_assert_int_eq(dgemma_model_estimate(&info, &eo, NULL), DGEMMA_OK);
    eo.kv_bytes = info.kv_bytes_full;
    pair p = open_pair(eo);
    for (int i = 0; i < N_PROMPT; i++) {
        dgemma_request_options opt = shared_prompt(p.without, i);
        record_listen(record_submit(p.without, &opt), &want[i]);
    }
    visitor v[N_THREAD];
    pthread_t t[N_THREAD];
    uint64_t found = 0;
    for (int i = 0; i < N_THREAD; i++) {
        v[i] = (visitor){.engine = p.with, .want = want, .seed = (unsigned)i + 1};
        ck_assert_int_eq(pthread_create(&t[i], NULL, visit, &v[i]), 0);
    }
    for (int i = 0; i < N_THREAD; i++) {
        pthread_join(t[i], NULL);
        found += v[i].found;
    }
    dgemma_engine_counters c;
    for (int i = 0; i < 60000; i++) { /* the last one lets go of its pages after its END */
        dgemma_engine_count(p.with, &c);
        if (!c.kv_bytes_used)
            break;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    ck_assert_uint_eq(c.kv_bytes_used, 0);
    ck_assert_uint_gt(c.kv_bytes_cached, 0);
    ck_assert_uint_gt(found, 1000);
    ck_assert_uint_eq(c.n_prompt_cached, found);
    ck_assert_uint_gt(c.n_evictions, 0);
    close_pair(&p);
    for (int i = 0; i < N_PROMPT; i++)
        record_clear(&want[i]);
}
END_TEST

/* Several come at once with the same beginning: one encodes it, the others wait for that. */
START_TEST(what_arrives_together_is_encoded_once)
{
    enum { N = 5, COMMON = 700 };
    static int32_t ids[N][COMMON + 40];
    static record want[2 * N], got;
    pair p = open_pair(dg_test_engine_defaults());
    dgemma_request *r[2 * N];
    dgemma_request_options opt[2 * N];
    for (int i = 0; i < 2 * N; i++) { /* other endings, then other seeds */
        int32_t *prompt = ids[i % N];
        fill_ids(prompt, COMMON, 8);
        fill_ids(prompt + COMMON, 40, 20 + (unsigned)(i % N));
        prompt[COMMON] = 20 + i % N;
        opt[i] = defaults(&p);
        opt[i].tokens = prompt;
        opt[i].n_tokens = COMMON + 40;
        opt[i].seed = (uint64_t)i;
        record_listen(record_submit(p.without, &opt[i]), &want[i]);
    }
    for (int i = 0; i < 2 * N; i++)
        r[i] = record_submit(p.with, &opt[i]);
    int n_found = 0;
    for (int i = 0; i < 2 * N; i++) {
        record_listen(r[i], &got);
        record_assert_same(&want[i], &got, "arrived together", i);
        n_found += got.stats.n_prompt_cached >= COMMON;
        record_clear(&got);
        record_clear(&want[i]);
    }
    ck_assert_int_eq(n_found, 2 * N - 1);
    close_pair(&p);
}
END_TEST

Suite *prefix_cache_suite(void)
{
    Suite *s = suite_create("prefix_cache");
    TCase *t = tcase_create("prefix_cache");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, the_same_prompt_again_bf16);
    tcase_add_test(t, the_same_prompt_again_f32);
    tcase_add_loop_test(t, the_same_prompt_again_in_bytes, 0, 2);
    tcase_add_test(t, the_next_turn_goes_on_from_the_end);
    tcase_add_test(t, conversations_go_on);
    tcase_add_test(t, places_where_prompts_part_are_learned);
    tcase_add_test(t, pictures_are_told_apart);
    tcase_add_test(t, the_least_recently_used_go_first);
    tcase_add_test(t, many_at_once_with_little_memory);
    tcase_add_test(t, what_arrives_together_is_encoded_once);
    tcase_add_test(t, salts_keep_requests_apart);
    suite_add_tcase(s, t);
    return s;
}
