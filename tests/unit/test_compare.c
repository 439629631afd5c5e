/* How far a model is from its source: nothing from itself, something in fewer bits. */
#include <string.h>
#include "dgemma_tools.h"
#include "suites.h"
#include "support/temp_dir.h"

static const char pocket[] = "models/pocket/pocket.gguf";

static void count(void *user, const dgemma_compared *one)
{
    ck_assert(one->prompt && one->error >= 0 && one->divergence >= 0 && one->agreement <= 1);
    ++*(int *)user;
}

static bool give_up(void *user, double fraction)
{
    (void)user;
    return fraction < 0.6;
}

START_TEST(distances)
{
    int n = 0;
    dgemma_error err = {0};
    dgemma_compared same, less;
    dgemma_compare_options opt = {
        .model_path = pocket, .other_path = pocket, .n_threads = 2, .on_prompt = count, .user = &n};
    ck_assert_msg(dgemma_compare(&opt, &same, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(n, 6);
    ck_assert(!same.prompt && same.error == 0 && same.agreement == 1);
    ck_assert(same.divergence < 1e-6 && same.steps == same.source_steps && same.steps > 1);

    dgemma_quantize_options q = dgemma_quantize_defaults();
    char path[DG_TEST_PATH];
    q.model_path = pocket;
    q.type = "Q4_0";
    q.path = opt.other_path = dg_test_path(path, dg_test_root, "m.gguf");
    ck_assert_msg(dgemma_quantize(&q, NULL, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_msg(dgemma_compare(&opt, &less, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_msg(less.error > 0.02 && less.error < 0.5, "%g", less.error);
    ck_assert_msg(less.agreement > 0.8 && less.agreement < 1, "%g", less.agreement);
    ck_assert(less.divergence > 1e-5 && less.divergence < 0.5);
    ck_assert(less.source_steps == same.source_steps);

    opt.on_progress = give_up;
    ck_assert_int_eq(dgemma_compare(&opt, &less, &err), DGEMMA_E_CANCELLED);
}
END_TEST

static bool not_yet(void *user, double fraction)
{
    (void)user;
    ck_abort_msg("%g of it is done already", fraction);
    return false;
}

/* Before anything is answered. */
START_TEST(refused)
{
    dgemma_error err = {0};
    dgemma_compare_options opt = {.model_path = pocket, .n_threads = 2, .on_progress = not_yet};
    ck_assert_int_eq(dgemma_compare(&opt, NULL, &err), DGEMMA_E_ARG);
    opt.other_path = dg_test_in_root("none.gguf");
    ck_assert_int_eq(dgemma_compare(&opt, NULL, &err), DGEMMA_E_IO);
    dgemma_synth_options tiny = dgemma_synth_defaults();
    tiny.path = dg_test_in_root("tiny.gguf");
    tiny.shape = "tiny";
    ck_assert_msg(dgemma_synth(&tiny, NULL, &err) == DGEMMA_OK, "%s", err.msg);
    opt.other_path = tiny.path;
    ck_assert_int_eq(dgemma_compare(&opt, NULL, &err), DGEMMA_E_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "not the same model"));
}
END_TEST

static const char *last_prompt;

static void keep_prompt(void *user, const dgemma_compared *one)
{
    ++*(int *)user;
    last_prompt = one->prompt;
}

START_TEST(prompts_of_ones_own)
{
    static char too_long[40000];
    const char *prompt[] = {"Reverse: abc", "What is the capital of France?"};
    int n = 0;
    dgemma_error err = {0};
    dgemma_compared total;
    dgemma_compare_options opt = {.model_path = pocket,
                                  .other_path = pocket,
                                  .n_prompts = 2,
                                  .n_threads = 2,
                                  .on_prompt = keep_prompt,
                                  .user = &n};
    ck_assert_int_eq(dgemma_compare(&opt, &total, &err), DGEMMA_E_ARG); /* there are none */
    opt.prompts = prompt;
    ck_assert_msg(dgemma_compare(&opt, &total, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(n, 2);
    ck_assert_ptr_eq(last_prompt, prompt[1]);
    ck_assert(total.error == 0 && total.agreement == 1);

    for (size_t i = 0; i + 1 < sizeof too_long; i++)
        too_long[i] = "a "[i % 2];
    prompt[1] = too_long;
    ck_assert_int_eq(dgemma_compare(&opt, &total, &err), DGEMMA_E_CONTEXT);
    ck_assert_msg(strncmp(err.msg, "prompt 2: ", 10) == 0, "%s", err.msg);
    prompt[1] = NULL;
    ck_assert_int_eq(dgemma_compare(&opt, &total, &err), DGEMMA_E_ARG);
    ck_assert_msg(strncmp(err.msg, "prompt 2 ", 9) == 0, "%s", err.msg);
    prompt[1] = "";
    opt.n_prompts = DGEMMA_MAX_COMPARED + 1;
    ck_assert_int_eq(dgemma_compare(&opt, &total, &err), DGEMMA_E_ARG);
    opt.n_prompts = -1;
    ck_assert_int_eq(dgemma_compare(&opt, &total, &err), DGEMMA_E_ARG);
    ck_assert_int_eq(n, 2);
}
END_TEST

Suite *compare_suite(void)
{
    Suite *s = suite_create("compare");
    TCase *c = tcase_create("models");
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, distances);
    tcase_add_test(c, refused);
    tcase_add_test(c, prompts_of_ones_own);
    suite_add_tcase(s, c);
    return s;
}
