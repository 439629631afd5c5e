/* A decision over HTTP at work: from a body to the answer of an exchange, and what goes wrong on
 * the way. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/common.h"
#include "server/deciding.h"
#include "server/decisions.h"
#include "server/systemone.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/cpu_engine.h"
#include "support/record_events.h"

static const char choice[] =
    "{'state': 'The sky is blue.', 'questions': {'c': {'type': 'choice', 'instructions': 'Which?', "
    "'criteria': {'red': null, 'green': null, 'blue': null}}}}";

/* What a call of the server has around a decision. */
static struct {
    dgemma_engine *engine;
    dg_exchange to;
    dg_header headers[2];
    char timing[80];
    atomic_int n_notified;
} call;

static void notified(void *user)
{
    ck_assert_ptr_eq(user, &call);
    atomic_fetch_add(&call.n_notified, 1);
}

static void open_call(void)
{
    dgemma_error err = {0};
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = "models/pocket/pocket.gguf";
    opt.max_running = opt.queue_length = 1;
    ck_assert_msg(!dgemma_engine_open(&call.engine, &opt, &err), "%s", err.msg);
    ck_assert(dg_exchange_init(&call.to, NULL, NULL));
    call.to.error_form = dg_error_object;
}

static void close_call(void)
{
    dg_exchange_clear(&call.to);
    dgemma_engine_close(call.engine);
}

static dg_deciding_setup setup(void)
{
    return (dg_deciding_setup){
        .engine = call.engine,
        .model = "some",
        .temperature = 1,
        .max_images = 1,
        .wire = &dg_systemone,
        .to = &call.to,
        .headers = call.headers,
        .timing = call.timing,
        .notify = notified,
        .notify_user = &call,
    };
}

/* A body in which ' stands for ". */
static json_t *body_of(const char *text)
{
    static char copy[1 << 17];
    size_t n = strlen(text);
    ck_assert_uint_lt(n, sizeof copy);
    for (size_t i = 0; i <= n; i++)
        copy[i] = (char)(text[i] == '\'' ? '"' : text[i]);
    json_t *root = json_loads(copy, 0, NULL);
    ck_assert_ptr_nonnull(root);
    return root;
}

static dg_deciding *start(const dg_deciding_setup *cfg, const char *body)
{
    dg_deciding *g = NULL;
    dg_http_error e = {0};
    ck_assert_msg(dg_deciding_start(&g, cfg, body_of(body), &e), "%s", e.message);
    return g;
}

/* The answer's body. */
static json_t *finish(dg_deciding *g)
{
    while (!dg_deciding_done(g))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    dg_deciding_answer(g);
    json_t *root = json_loadb(call.to.out.data, call.to.out.len, 0, NULL);
    ck_assert_ptr_nonnull(root);
    return root;
}

static double probability(const json_t *root, const char *name)
{
    const json_t *answer = json_object_get(json_object_get(root, "answers"), "c");
    return json_number_value(json_object_get(json_object_get(answer, "probabilities"), name));
}

START_TEST(a_decision_is_answered)
{
    dg_deciding_setup cfg = setup();
    dg_deciding *g = start(&cfg, choice);
    json_t *root = finish(g);
    dgemma_stats stats;
    double model, total;
    dg_deciding_stats(g, &stats);
    ck_assert_int_eq(call.to.status, 200);
    ck_assert(call.to.closed);
    ck_assert_str_eq(json_string_value(json_object_get(root, "model")), "some");
    ck_assert_double_eq_tol(
        probability(root, "red") + probability(root, "green") + probability(root, "blue"), 1, 1e-9);
    ck_assert_int_ge(atomic_load(&call.n_notified), 1);
    ck_assert(stats.n_prompt > 20 && stats.n_steps == 1);

    /* how long it took: the model's part of the whole */
    ck_assert_ptr_eq(call.to.headers, call.headers);
    ck_assert_str_eq(call.headers[0].name, "Server-Timing");
    ck_assert_ptr_null(call.headers[1].name);
    ck_assert_int_eq(sscanf(call.headers[0].value, "model;dur=%lf, total;dur=%lf", &model, &total),
                     2);
    ck_assert_double_eq_tol(model, 1e3 * (stats.prompt_seconds + stats.denoise_seconds), 0.006);
    ck_assert(model > 0 && total > model);
    json_decref(root);
    dg_deciding_free(g);
}
END_TEST

/* The server's temperature is that of bodies which have none. */
START_TEST(a_temperature_makes_it_less_sure)
{
    double best[2];
    for (int i = 0; i < 2; i++) {
        dg_deciding_setup cfg = setup();
        cfg.temperature = i ? 10 : 1;
        dg_deciding *g = start(&cfg, choice);
        json_t *root = finish(g);
        best[i] = fmax(probability(root, "red"),
                       fmax(probability(root, "green"), probability(root, "blue")));
        json_decref(root);
        dg_deciding_free(g);
        dg_exchange_clear(&call.to);
        ck_assert(dg_exchange_init(&call.to, NULL, NULL));
    }
    ck_assert(best[1] < best[0] && best[1] < 0.6 && best[1] > 1. / 3);
}
END_TEST

/* A tenant's salt is part of what is known: another's prompt is read anew. */
START_TEST(a_salt_keeps_prompts_apart)
{
    static const char *const salts[] = {"a", "b", "a"};
    for (int i = 0; i < 3; i++) {
        dg_deciding_setup cfg = setup();
        dgemma_stats stats;
        cfg.cache_salt = salts[i];
        dg_deciding *g = start(&cfg, choice);
        json_decref(finish(g));
        dg_deciding_stats(g, &stats);
        ck_assert_int_eq(stats.n_prompt_cached, i == 2 ? stats.n_prompt : 0);
        dg_deciding_free(g);
        dg_exchange_clear(&call.to);
        ck_assert(dg_exchange_init(&call.to, NULL, NULL));
    }
}
END_TEST

static void refused(const char *body, int status, const char *param)
{
    dg_deciding_setup cfg = setup();
    dg_deciding *g = NULL;
    dg_http_error e = {0};
    ck_assert(!dg_deciding_start(&g, &cfg, body_of(body), &e));
    ck_assert_ptr_null(g);
    ck_assert_msg(e.status == status && !strcmp(e.param, param), "%d %s: %s", e.status, e.param,
                  e.message);
    ck_assert_int_eq(call.to.status, 0); /* whoever asked tells the client */
}

START_TEST(what_cannot_be_asked_is_refused)
{
    static char large[1 << 16];
    refused("{'state': 's', 'questions': {'c': {'type': 'sum'}}}", 422, "questions/c/type");
    refused("{'state': 's', 'questions': {}}", 422, "questions");
    refused("{'state': 's', 'images': ['data:image/png;base64,AAAA', 'data:image/png;base64,AAAA'],"
            " 'questions': {'c': {'type': 'noul'}}}",
            400, "images");
    int n = snprintf(large, sizeof large, "{'questions': {'c': {'type': 'noul'}}, 'state': '");
    memset(large + n, 'x', 50000); /* more than the context has */
    strcpy(large + n + 50000, "'}");
    refused(large, 400, "questions");
}
END_TEST

/* Where others fill the queue the client may come again: at once, or when a decision of many reads
 * has made some of them. */
START_TEST(a_queue_that_is_full)
{
    static const char many[] = "{'state': 'The sky is blue.', 'samples': 32, 'questions': "
                               "{'c': {'type': 'noul', 'instructions': 'Is it?'}}}";
    dgemma_request_options endless = record_endless(call.engine);
    dgemma_request *runs = NULL, *waits = NULL;
    dgemma_event event;
    dg_deciding_setup cfg = setup();
    ck_assert(!dgemma_request_submit(&runs, call.engine, &endless, NULL));
    ck_assert(dgemma_request_wait(runs, &event, 60));
    dg_deciding *g = start(&cfg, many), *second = NULL;
    while (dgemma_request_submit(&waits, call.engine, &endless, NULL)) /* its first read waits */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    json_t *root = finish(g);
    ck_assert_int_eq(call.to.status, 429);
    ck_assert_int_gt(call.to.retry_after, 0);
    ck_assert_ptr_nonnull(json_object_get(root, "error"));
    json_decref(root);
    dg_deciding_free(g);

    dg_http_error e = {0};
    ck_assert(!dg_deciding_start(&second, &cfg, body_of(choice), &e));
    ck_assert(e.status == 429 && e.retry_after > 0);
    dgemma_request_free(waits);
    dgemma_request_free(runs);
}
END_TEST

/* The client is told why, and what runs is let go. */
START_TEST(a_decision_is_given_up)
{
    dg_deciding_setup cfg = setup();
    dg_deciding *g = start(&cfg, choice);
    dg_http_error why;
    dg_refuse(&why, 503, "shutting_down", NULL, "the server is going down");
    dg_deciding_cancel(g, &why);
    ck_assert_int_eq(call.to.status, 503);
    ck_assert_ptr_nonnull(memmem(call.to.out.data, call.to.out.len, "going down", 10));
    dg_deciding_free(g);
    dg_deciding_free(NULL);
}
END_TEST

/* Wherever memory ends there is an answer, and nothing is lost. */
START_TEST(without_memory)
{
    dg_deciding_setup cfg = setup();
    for (long n = 1;; n++) {
        dg_deciding *g = NULL;
        dg_http_error e = {0};
        json_t *body = json_incref(body_of(choice));
        dg_test_fail_alloc_at(n);
        bool ok = dg_deciding_start(&g, &cfg, body, &e);
        bool reached = dg_test_alloc_done();
        ck_assert(ok == (g != NULL) && (ok || e.status >= 400));
        if (n == 1)
            ck_assert(!ok && e.status == 503 && !strcmp(e.code, "out_of_memory"));
        dg_deciding_free(g);
        ck_assert_uint_eq(body->refcount, 1); /* ours: the other was taken in any case */
        json_decref(body);
        if (!reached)
            break;
    }
}
END_TEST

Suite *deciding_suite(void)
{
    Suite *s = suite_create("deciding");
    TCase *t = tcase_create("deciding");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, open_call, close_call);
    tcase_add_test(t, a_decision_is_answered);
    tcase_add_test(t, a_temperature_makes_it_less_sure);
    tcase_add_test(t, a_salt_keeps_prompts_apart);
    tcase_add_test(t, what_cannot_be_asked_is_refused);
    tcase_add_test(t, a_queue_that_is_full);
    tcase_add_test(t, a_decision_is_given_up);
    tcase_add_test(t, without_memory);
    suite_add_tcase(s, t);
    return s;
}
