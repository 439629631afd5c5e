/* device_tests: engines whose GPU is the emulated one (tests/cuda/emulated), as a server has them:
 * memory within its bounds, what goes wrong, answers alone and in company.
 *
 *   device_tests [CASE] */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cuda/emulated/cuda_runtime_api.h"
#include "backend/backend.h"
#include "dgemma.h"
#include "dgemma_tools.h"
#include "engine/block_loop.h"
#include "engine/device.h"
#include "engine/scheduler.h"
#include "model/synthetic.h"

static const char model_path[] = "tests/fixtures/golden/sampler_finishes/model";
enum { MIB = 1 << 20, ANSWER = 16 };

/* ---- engines and requests ---- */

static dgemma_engine_options options(void)
{
    dgemma_engine_options opt = dgemma_engine_defaults();
    opt.model_path = model_path;
    opt.device = "cuda";
    opt.context_length = 256;
    opt.max_running = 3;
    return opt;
}

static dgemma_engine *open_with(const dgemma_engine_options *opt)
{
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    ck_assert_msg(dgemma_engine_open(&e, opt, &err) == DGEMMA_OK, "%s", err.msg);
    return e;
}

typedef struct answer {
    int32_t token[2 * ANSWER];
    size_t n;
    dgemma_status status;
    char error[512];
} answer;

/* With so much of the first adapter; 0: with none. */
static dgemma_request *submit_with(dgemma_engine *e, uint64_t seed, float scale)
{
    static const int32_t prompt[] = {2, 9, 30, 4, 17, 21, 5};
    const dgemma_adapter_use use = {0, scale};
    dgemma_request *r = NULL;
    dgemma_error err = {0};
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.tokens = prompt;
    opt.n_tokens = sizeof prompt / sizeof prompt[0] - (size_t)seed % 3;
    opt.seed = seed;
    opt.max_tokens = ANSWER;
    opt.max_denoise_steps = 2;
    opt.adapters = &use;
    opt.n_adapters = scale != 0;
    ck_assert_msg(dgemma_request_submit(&r, e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    return r;
}

static dgemma_request *submit(dgemma_engine *e, uint64_t seed)
{
    return submit_with(e, seed, 0);
}

static answer listen(dgemma_request *r)
{
    answer a = {.n = 0};
    for (dgemma_event e; dgemma_request_wait(r, &e, -1);) {
        if (e.kind == DGEMMA_EVENT_BLOCK) {
            ck_assert(a.n + e.n_tokens <= 2 * ANSWER);
            memcpy(a.token + a.n, e.tokens, e.n_tokens * sizeof *e.tokens);
            a.n += e.n_tokens;
        } else if (e.kind == DGEMMA_EVENT_END) {
            a.status = e.status;
            snprintf(a.error, sizeof a.error, "%s", e.text ? e.text : "");
        }
    }
    dgemma_request_free(r);
    return a;
}

static void expect_same(const answer *a, const answer *b)
{
    ck_assert_msg(!a->status && !b->status, "%s%s", a->error, b->error);
    ck_assert_uint_gt(a->n, 0);
    ck_assert_uint_eq(a->n, b->n);
    ck_assert_mem_eq(a->token, b->token, a->n * sizeof *a->token);
}

static size_t used(void)
{
    size_t left, all;
    cudaMemGetInfo(&left, &all);
    return all - left;
}

/* ---- answers ---- */

static void check_company(dgemma_kv_type type)
{
    dgemma_engine_options opt = options();
    opt.kv_type = type;
    dgemma_engine *e = open_with(&opt);
    answer alone[2];
    dgemma_request *together[2];
    for (int i = 0; i < 2; i++)
        alone[i] = listen(submit(e, (uint64_t)i));
    for (int i = 0; i < 2; i++)
        together[i] = submit(e, (uint64_t)i);
    for (int i = 0; i < 2; i++) {
        answer a = listen(together[i]);
        expect_same(&alone[i], &a);
    }
    dgemma_engine_counters c;
    dgemma_engine_count(e, &c);
    ck_assert(c.device_seconds > 0 && c.device_seconds < c.busy_seconds);
    dgemma_engine_close(e);
    ck_assert_uint_eq(used(), 0);
}

START_TEST(answers_alone_and_in_company)
{
    for (dgemma_kv_type type = DGEMMA_KV_BF16; type <= DGEMMA_KV_FP8; type++)
        check_company(type);
}
END_TEST

/* An answer that is held to a language, alone and beside one that is not. */
START_TEST(answers_held_to_a_language)
{
    static const char expression[] = "(ab|ba){2,5}c";
    dgemma_engine_options opt = options();
    dgemma_engine *e = open_with(&opt);
    dgemma_constraint *c = NULL;
    dgemma_constraint_options regex = {
        .kind = DGEMMA_CONSTRAINT_REGEX, .text = expression, .text_len = sizeof expression - 1};
    ck_assert(!dgemma_constraint_create(&c, &regex, NULL));
    dgemma_request_options o = dgemma_request_defaults(e);
    o.chat_prompt = "a";
    o.constraint = c;
    o.max_tokens = ANSWER;
    o.max_denoise_steps = 4;
    char text[2][64] = {{0}};
    for (int i = 0; i < 2; i++) {
        dgemma_request *r, *beside = i ? submit(e, 1) : NULL;
        ck_assert(!dgemma_request_submit(&r, e, &o, NULL));
        for (dgemma_event event; dgemma_request_wait(r, &event, -1);) {
            if (event.kind == DGEMMA_EVENT_TEXT)
                strncat(text[i], event.text, sizeof text[i] - 1 - strlen(text[i]));
            if (event.kind == DGEMMA_EVENT_END)
                ck_assert_msg(!event.status, "%s", event.text);
        }
        dgemma_request_free(r);
        if (beside)
            listen(beside);
    }
    dgemma_match m;
    ck_assert(!dgemma_constraint_check(c, text[0], strlen(text[0]), &m, NULL));
    ck_assert_msg(m.verdict == DGEMMA_ACCEPTED, "%s", text[0]);
    ck_assert_str_eq(text[0], text[1]);
    dgemma_constraint_free(c);
    dgemma_engine_close(e);
    ck_assert_uint_eq(used(), 0);
}
END_TEST

/* ---- adapters ---- */

/* Of every matrix of a small model, with products of each kind: whole, half of it and none, each
 * alone and together. */
static void check_adapted(const char *weights)
{
    static const dgemma_adapter list[] = {
        {.path = "tests/fixtures/golden/peft/adapter", .scale = 4}};
    static const float scale[] = {0, 1, 0.5f};
    dgemma_engine_options opt = options();
    opt.model_path = "tests/fixtures/golden/peft/model";
    opt.weights = weights;
    opt.adapters = list;
    opt.n_adapters = 1;
    opt.no_prefix_cache = true;
    dgemma_engine *e = open_with(&opt);
    answer alone[3];
    dgemma_request *together[3];
    for (int i = 0; i < 3; i++)
        alone[i] = listen(submit_with(e, 3, scale[i]));
    for (int i = 0; i < 3; i++)
        together[i] = submit_with(e, 3, scale[i]);
    for (int i = 0; i < 3; i++) {
        answer a = listen(together[i]);
        expect_same(&alone[i], &a);
    }
    dgemma_engine_close(e);
    opt.n_adapters = 0;
    e = open_with(&opt);
    answer without = listen(submit_with(e, 3, 0));
    expect_same(&alone[0], &without);
    for (int i = 1; i < 3; i++)
        ck_assert(alone[i].n != without.n ||
                  memcmp(alone[i].token, without.token, without.n * sizeof *without.token) != 0);
    dgemma_engine_close(e);
    ck_assert_uint_eq(used(), 0);
}

START_TEST(adapters_in_any_company)
{
    check_adapted(NULL);
    check_adapted("int4");
}
END_TEST

static void answer_with(dgemma_engine *e, int adapter, char text[256])
{
    dgemma_request_options o = dgemma_request_defaults(e);
    const dgemma_adapter_use use = {adapter, 1};
    dgemma_request *r = NULL;
    o.chat_prompt = "What is the capital of Atlantis?";
    o.adapters = &use;
    o.n_adapters = adapter >= 0;
    ck_assert(!dgemma_request_submit(&r, e, &o, NULL));
    *text = '\0';
    for (dgemma_event event; dgemma_request_wait(r, &event, -1);)
        if (event.kind == DGEMMA_EVENT_TEXT)
            strncat(text, event.text, 255 - strlen(text));
    dgemma_request_free(r);
}

/* Those that were trained on pocket say what they were taught, and what a model says that one was
 * merged into. */
START_TEST(adapters_know_their_cities)
{
    static const dgemma_adapter list[] = {{.path = "tests/fixtures/adapters/north", .scale = 1},
                                          {.path = "tests/fixtures/adapters/south", .scale = 1}};
    static const char *const city[] = {"sorry", "Oslo", "Rome"};
    char merged[256], text[3][256], of_merged[256];
    const char *tmp = getenv("TMPDIR");
    dgemma_engine_options opt = options();
    opt.model_path = "models/pocket/pocket.gguf";
    opt.adapters = list;
    opt.n_adapters = 2;
    dgemma_engine *e = open_with(&opt);
    for (int i = 0; i < 3; i++) {
        answer_with(e, i - 1, text[i]);
        ck_assert_msg(strstr(text[i], city[i]), "%d: %s", i, text[i]);
    }
    dgemma_engine_close(e);

    dgemma_error err = {0};
    snprintf(merged, sizeof merged, "%s/dgemma-device-%d-north.gguf", tmp ? tmp : "/tmp",
             (int)getpid());
    dgemma_quantize_options to = dgemma_quantize_defaults();
    to.model_path = opt.model_path;
    to.path = merged;
    to.type = "BF16";
    to.adapters = list;
    to.n_adapters = 1;
    ck_assert_msg(!dgemma_quantize(&to, NULL, &err), "%s", err.msg);
    opt.model_path = merged;
    opt.n_adapters = 0;
    e = open_with(&opt);
    answer_with(e, -1, of_merged);
    ck_assert_str_eq(of_merged, text[1]);
    dgemma_engine_close(e);
    remove(merged);
}
END_TEST

/* Weights of any type are made narrower as if the file had them in bfloat16. */
START_TEST(narrower_of_any_type)
{
    static const char *const form[] = {"fp8", "int4"};
    char blocks[256], plain[256];
    const char *tmp = getenv("TMPDIR");
    snprintf(blocks, sizeof blocks, "%s/dgemma-device-%d-q8.gguf", tmp ? tmp : "/tmp",
             (int)getpid());
    snprintf(plain, sizeof plain, "%s/dgemma-device-%d-bf16.gguf", tmp ? tmp : "/tmp",
             (int)getpid());
    dgemma_error err = {0};
    dgemma_quantize_options to = {.model_path = model_path, .path = blocks, .type = "Q8_0"};
    dgemma_status st = dgemma_quantize(&to, NULL, &err);
    ck_assert_msg(!st, "%s", err.msg);
    to = (dgemma_quantize_options){.model_path = blocks, .path = plain, .type = "BF16"};
    st = dgemma_quantize(&to, NULL, &err);
    ck_assert_msg(!st, "%s", err.msg);
    for (size_t i = 0; i < sizeof form / sizeof form[0]; i++) {
        dgemma_engine_options opt = options();
        opt.weights = form[i];
        opt.model_path = blocks;
        dgemma_engine *e = open_with(&opt);
        answer of_blocks = listen(submit(e, 1));
        dgemma_engine_close(e);
        opt.model_path = plain;
        e = open_with(&opt);
        answer of_plain = listen(submit(e, 1));
        dgemma_engine_close(e);
        expect_same(&of_blocks, &of_plain);
    }
    remove(blocks);
    remove(plain);
}
END_TEST

/* ---- memory ---- */

/* The published shape on a device with 141 GB, by what would be allocated. */
START_TEST(memory_above_weights)
{
    dg_synthetic *s = NULL;
    dg_backend *be = NULL;
    dg_kv_cache *kv = NULL;
    dgemma_error err = {0};
    dgemma_status st =
        dg_synthetic_open(&s, &(dg_synthetic_options){.type = "BF16", .listed = true}, &err);
    st = st ? st : dg_device_open(&be, &(dg_device_options){.name = "cuda"}, &err);
    ck_assert_msg(!st, "%s", err.msg);
    const dg_config *cfg = dg_synthetic_config(s);
    ck_assert_msg(!dg_kv_cache_create(&kv, cfg, be, DG_BF16, 0, &err), "%s", err.msg);
    size_t canvas = dg_block_loop_bytes(cfg, cfg->canvas_length);
    double one = 1e-9 * (double)(dg_forward_bytes(cfg, be, kv, 512, 1) + canvas);
    ck_assert_msg(one <= 0.8, "%.3f GB for one canvas and its commit", one);
    for (int n = 1; n < 64; n++) {
        size_t less = dg_forward_bytes(cfg, be, kv, 256 * n + 256, n),
               more = dg_forward_bytes(cfg, be, kv, 256 * n + 512, n + 1);
        double each = 1e-9 * (double)(more - less + canvas);
        ck_assert_msg(each <= 0.25, "%.3f GB for canvas %d", each, n + 1);
    }
    int rows = dg_scheduler_rows(cfg, be, 64);
    double all = 1e-9 * (double)(dg_synthetic_bytes(s) + 64 * canvas +
                                 dg_forward_bytes(cfg, be, kv, rows, 64) +
                                 dg_scheduler_kv_bytes(cfg, be, kv, 8192, 64));
    ck_assert_msg(all > 90 && all < 140, "64 canvases at 8k: %.1f GB", all);
    dg_kv_cache_free(kv);
    be->close(be);
    dg_synthetic_close(s);
}
END_TEST

/* --gpu-memory: everything together stays below, and keys and values get what is left. */
START_TEST(bound_is_kept)
{
    dgemma_engine_options opt = options();
    dgemma_engine *e = open_with(&opt);
    size_t without = used();
    answer free_run = listen(submit(e, 1));
    dgemma_engine_close(e);
    opt.gpu_bytes = without + 2 * (size_t)MIB;
    e = open_with(&opt);
    ck_assert_uint_le(used(), opt.gpu_bytes);
    ck_assert_uint_gt(used(), opt.gpu_bytes / 2);
    dgemma_engine_counters c;
    dgemma_engine_count(e, &c);
    ck_assert_uint_gt(c.kv_bytes_total, 0);
    answer bound_run = listen(submit(e, 1));
    expect_same(&free_run, &bound_run);
    ck_assert_uint_le(used(), opt.gpu_bytes);
    dgemma_engine_close(e);
}
END_TEST

/* What keys and values will get is known beforehand, but for what packing adds to weights, which is
 * much where matrices are as small as here: 8 MiB, of which half would have been theirs. */
START_TEST(room_is_foretold)
{
    dgemma_engine_options opt = options();
    dgemma_model_info before, after;
    dgemma_error err = {0};
    opt.gpu_bytes = 64 * (size_t)MIB;
    ck_assert_msg(!dgemma_model_estimate(&before, &opt, &err), "%s", err.msg);
    dgemma_engine *e = open_with(&opt);
    dgemma_engine_info(e, &after);
    ck_assert_uint_ge(before.kv_bytes, after.kv_bytes);
    ck_assert_uint_le(before.kv_bytes, after.kv_bytes + 5 * (size_t)MIB);
    dgemma_engine_close(e);
}
END_TEST

static void expect_refused(const dgemma_engine_options *opt, const char *form)
{
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    ck_assert_int_eq(dgemma_engine_open(&e, opt, &err), DGEMMA_E_NOMEM);
    const char *at = strstr(err.msg, ": weights of ");
    size_t need = 0, left = 0;
    ck_assert_msg(at && sscanf(at, form, &need, &left) == 2, "%s", err.msg);
    ck_assert_msg(need > left, "%s", err.msg);
    ck_assert_uint_eq(used(), 0);
}

/* What is needed and what is there, before anything is sent. */
START_TEST(too_little_is_refused)
{
    const char *form = ": weights of %zu MiB do not fit on the device: %zu MiB";
    dgemma_engine_options opt = options();
    opt.gpu_bytes = MIB;
    expect_refused(&opt, form);
    opt.gpu_bytes = 0;
    emu_set_memory(MIB);
    expect_refused(&opt, form);
}
END_TEST

/* With room for the weights and not for the rest. */
START_TEST(too_little_for_passes_is_refused)
{
    dgemma_engine_options opt = options();
    dgemma_engine *e = open_with(&opt);
    dgemma_model_info info;
    dgemma_engine_counters c;
    dgemma_engine_info(e, &info);
    dgemma_engine_count(e, &c);
    opt.gpu_bytes = used() - c.kv_bytes_total - info.work_bytes * 9 / 10;
    dgemma_engine_close(e);
    size_t need = 0, left = 0;
    dgemma_error err = {0};
    ck_assert_int_eq(dgemma_engine_open(&e, &opt, &err), DGEMMA_E_NOMEM);
    ck_assert_msg(sscanf(err.msg,
                         "%zu MiB for passes of %*d rows do not fit on the device: %zu MiB", &need,
                         &left) == 2 &&
                      need > left,
                  "%s", err.msg);
    ck_assert_uint_eq(used(), 0);
}
END_TEST

/* ---- what goes wrong ---- */

/* Wherever in a pass a call fails, its request ends and the next one is as if nothing had been. */
START_TEST(pass_fails_once)
{
    static const int places[] = {0, 40, 140};
    dgemma_engine_options opt = options();
    opt.no_prefix_cache = true;
    dgemma_engine *e = open_with(&opt);
    answer first = listen(submit(e, 1));
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        emu_break_after(places[i], cudaErrorMemoryAllocation, 0);
        answer broken = listen(submit(e, 1));
        ck_assert_int_eq(broken.status, DGEMMA_E_NOMEM);
        ck_assert_msg(strstr(broken.error, "the device failed in"), "%s", broken.error);
        ck_assert_int_eq(dgemma_engine_check(e, NULL), DGEMMA_OK);
    }
    answer again = listen(submit(e, 1));
    expect_same(&first, &again);
    dgemma_engine_close(e);
    ck_assert_uint_eq(used(), 0);
}
END_TEST

START_TEST(device_is_lost)
{
    dgemma_engine_options opt = options();
    dgemma_engine *e = open_with(&opt);
    dgemma_error err = {0};
    emu_break_after(5, cudaErrorLaunchFailure, 1);
    answer broken = listen(submit(e, 1));
    ck_assert_int_eq(broken.status, DGEMMA_E_INTERNAL);
    ck_assert_msg(strstr(broken.error, "unspecified launch failure"), "%s", broken.error);
    ck_assert_int_eq(dgemma_engine_check(e, &err), DGEMMA_E_INTERNAL);
    ck_assert_msg(strstr(err.msg, "the device is lost (unspecified launch failure)"), "%s",
                  err.msg);
    answer after = listen(submit(e, 2));
    ck_assert_int_eq(after.status, DGEMMA_E_INTERNAL);
    ck_assert_msg(strstr(after.error, "has to be started again"), "%s", after.error);
    dgemma_engine_close(e);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("device");
    struct {
        const char *name;
        const TTest *test;
    } cases[] = {{"answers_alone_and_in_company", answers_alone_and_in_company},
                 {"answers_held_to_a_language", answers_held_to_a_language},
                 {"adapters_in_any_company", adapters_in_any_company},
                 {"adapters_know_their_cities", adapters_know_their_cities},
                 {"narrower_of_any_type", narrower_of_any_type},
                 {"memory_above_weights", memory_above_weights},
                 {"bound_is_kept", bound_is_kept},
                 {"room_is_foretold", room_is_foretold},
                 {"too_little_is_refused", too_little_is_refused},
                 {"too_little_for_passes_is_refused", too_little_for_passes_is_refused},
                 {"pass_fails_once", pass_fails_once},
                 {"device_is_lost", device_is_lost}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        TCase *c = tcase_create(cases[i].name);
        tcase_set_timeout(c, 180);
        tcase_add_test(c, cases[i].test);
        suite_add_tcase(suite, c);
    }
    SRunner *runner = srunner_create(suite);
    srunner_run(runner, NULL, argc > 1 ? argv[1] : NULL, CK_NORMAL);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    if (!run)
        fprintf(stderr, "there is no such case\n");
    printf("%d passed, %d failed, 0 skipped\n", run - failed, failed);
    return failed || !run ? EXIT_FAILURE : EXIT_SUCCESS;
}
