/* The way of events from the engine's thread to their reader. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include "engine/stream.h"
#include "suites.h"
#include "support/alloc_fail.h"

static dg_stream *stream;

static void setup(void)
{
    ck_assert_int_eq(dg_stream_create(&stream, NULL), DGEMMA_OK);
}

static void teardown(void)
{
    dg_stream_free(stream);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static bool push_text(const char *text)
{
    return dg_stream_push(
        stream, &(dgemma_event){.kind = DGEMMA_EVENT_TEXT, .text = text, .text_len = strlen(text)});
}

static void push_draft(int step)
{
    ck_assert(dg_stream_push(stream, &(dgemma_event){.kind = DGEMMA_EVENT_DRAFT, .step = step}));
}

static bool push_end(void)
{
    dgemma_event end = {
        .kind = DGEMMA_EVENT_END, .status = DGEMMA_E_IO, .text = "why", .text_len = 3};
    return dg_stream_push(stream, &end);
}

static dgemma_event next(dgemma_event_kind kind)
{
    dgemma_event event;
    ck_assert(dg_stream_wait(stream, &event, 0));
    ck_assert_int_eq(event.kind, kind);
    return event;
}

static void expect_none(void)
{
    dgemma_event event;
    ck_assert(!dg_stream_wait(stream, &event, 0));
}

START_TEST(events_have_copies_of_their_own)
{
    enum { N = 3, N_TOP = 2 };
    int32_t tokens[N] = {1, 2, 3}, top[N * N_TOP] = {4, 5, 6, 7, 8, 9};
    float entropy[N] = {10, 11, 12}, logprobs[N] = {13, 14, 15}, tops[N * N_TOP] = {[5] = 16};
    uint8_t accepted[N] = {1, 0, 1};
    char text[] = "text", name[] = "name";
    dgemma_event e = {.kind = DGEMMA_EVENT_BLOCK,
                      .tokens = tokens,
                      .n_tokens = N,
                      .entropy = entropy,
                      .accepted = accepted,
                      .logprobs = logprobs,
                      .top_tokens = top,
                      .top_logprobs = tops,
                      .n_top = N_TOP,
                      .text = text,
                      .text_len = 4,
                      .tool_name = name};
    ck_assert(dg_stream_push(stream, &e));
    memset(tokens, 0, sizeof tokens);
    memset(text, 0, sizeof text);
    memset(name, 0, sizeof name);
    dgemma_event got = next(DGEMMA_EVENT_BLOCK);
    ck_assert_mem_eq(got.tokens, ((const int32_t[]){1, 2, 3}), sizeof tokens);
    ck_assert_mem_eq(got.entropy, entropy, sizeof entropy);
    ck_assert_mem_eq(got.accepted, accepted, sizeof accepted);
    ck_assert_mem_eq(got.logprobs, logprobs, sizeof logprobs);
    ck_assert_mem_eq(got.top_tokens, top, sizeof top);
    ck_assert_mem_eq(got.top_logprobs, tops, sizeof tops);
    ck_assert_str_eq(got.text, "text");
    ck_assert_str_eq(got.tool_name, "name");
    expect_none();
}
END_TEST

/* Of drafts that nobody reads the oldest go; of other events none. */
START_TEST(drafts_are_bounded)
{
    enum { MOST = 256, N = 300 };
    push_text("a");
    for (int i = 0; i < N; i++)
        push_draft(i);
    push_text("b");
    ck_assert_str_eq(next(DGEMMA_EVENT_TEXT).text, "a");
    for (int i = N - MOST; i < N - MOST + 10; i++)
        ck_assert_int_eq(next(DGEMMA_EVENT_DRAFT).step, i);
    for (int i = 0; i < 10; i++) /* there is room for as many again */
        push_draft(N + i);
    for (int i = N - MOST + 10; i < N; i++)
        ck_assert_int_eq(next(DGEMMA_EVENT_DRAFT).step, i);
    ck_assert_str_eq(next(DGEMMA_EVENT_TEXT).text, "b");
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(next(DGEMMA_EVENT_DRAFT).step, N + i);
    expect_none();
}
END_TEST

START_TEST(what_is_gathered_comes_together)
{
    dgemma_event block = {.kind = DGEMMA_EVENT_BLOCK};
    push_text("before");
    dg_stream_gather(stream);
    push_text("a");
    push_text("b");
    ck_assert_str_eq(next(DGEMMA_EVENT_TEXT).text, "before");
    expect_none();
    ck_assert(dg_stream_deliver(stream, &block));
    push_text("after");
    next(DGEMMA_EVENT_BLOCK);
    ck_assert_str_eq(next(DGEMMA_EVENT_TEXT).text, "a");
    ck_assert_str_eq(next(DGEMMA_EVENT_TEXT).text, "b");
    ck_assert_str_eq(next(DGEMMA_EVENT_TEXT).text, "after");

    dg_stream_gather(stream);
    ck_assert(dg_stream_deliver(stream, NULL)); /* nothing */
    expect_none();
    dg_stream_gather(stream);
    ck_assert(dg_stream_deliver(stream, &block)); /* the first alone */
    next(DGEMMA_EVENT_BLOCK);
    dg_stream_gather(stream);
    push_text("c");
    ck_assert(dg_stream_deliver(stream, NULL)); /* the others alone */
    ck_assert_str_eq(next(DGEMMA_EVENT_TEXT).text, "c");
    push_text("d");
    ck_assert_str_eq(next(DGEMMA_EVENT_TEXT).text, "d");

    dg_stream_gather(stream); /* without memory for the first the others come */
    push_text("e");
    dg_test_fail_alloc_at(1);
    bool ok = dg_stream_deliver(stream, &block);
    ck_assert(dg_test_alloc_done());
    ck_assert(!ok);
    ck_assert_str_eq(next(DGEMMA_EVENT_TEXT).text, "e");
    dg_stream_gather(stream);
    push_text("never delivered, and freed all the same");
}
END_TEST

START_TEST(the_end_always_comes)
{
    dg_test_fail_alloc_at(1);
    bool ok = push_text("a");
    ck_assert(dg_test_alloc_done());
    ck_assert(!ok);
    dg_test_fail_alloc_at(1);
    ok = push_end();
    ck_assert(!dg_test_alloc_done()); /* it took none */
    ck_assert(ok);
    dgemma_event end = next(DGEMMA_EVENT_END);
    ck_assert_int_eq(end.status, DGEMMA_E_IO);
    ck_assert_str_eq(end.text, "why");
    push_text("behind the end"); /* is not read */
    expect_none();
}
END_TEST

static void count(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

START_TEST(readers_are_notified)
{
    atomic_int n = 0;
    dg_stream_notify(stream, count, &n);
    ck_assert_int_eq(n, 0);
    push_text("a");
    ck_assert_int_eq(n, 1);
    dg_stream_notify(stream, count, &n); /* something is there already */
    ck_assert_int_eq(n, 2);
    dg_stream_gather(stream);
    push_text("b");
    ck_assert_int_eq(n, 2);
    dg_stream_deliver(stream, NULL);
    ck_assert_int_eq(n, 3);
    ck_assert(!dg_stream_cancelled(stream));
    dg_stream_hang_up(stream);
    ck_assert(dg_stream_cancelled(stream));
    ck_assert(push_end());
    ck_assert_int_eq(n, 3);
}
END_TEST

static void *push_later(void *arg)
{
    (void)arg;
    nap();
    push_text("later");
    return NULL;
}

START_TEST(waiting_ends_in_time)
{
    dgemma_event event;
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    ck_assert(!dg_stream_wait(stream, &event, 0.05));
    clock_gettime(CLOCK_MONOTONIC, &after);
    ck_assert((double)(after.tv_sec - before.tv_sec) +
                  1e-9 * (double)(after.tv_nsec - before.tv_nsec) >=
              0.05);
    static const double patience[] = {-1, 30, 1e300};
    for (size_t i = 0; i < sizeof patience / sizeof *patience; i++) {
        pthread_t t;
        ck_assert_int_eq(pthread_create(&t, NULL, push_later, NULL), 0);
        ck_assert(dg_stream_wait(stream, &event, patience[i]));
        ck_assert_str_eq(event.text, "later");
        pthread_join(t, NULL);
    }
}
END_TEST

static atomic_bool call_is_over;

static void *call_reader(void *arg)
{
    *(atomic_bool *)arg = dg_stream_call_begin(stream);
    nap();
    nap();
    atomic_store(&call_is_over, true);
    dg_stream_call_end(stream);
    return NULL;
}

/* Who hangs up waits for a call that is under way, unless it is its own. */
START_TEST(hanging_up_waits_for_a_call)
{
    atomic_bool may = false;
    pthread_t t;
    call_is_over = false;
    ck_assert_int_eq(pthread_create(&t, NULL, call_reader, &may), 0);
    while (!may)
        ;
    dg_stream_hang_up(stream);
    ck_assert(call_is_over);
    pthread_join(t, NULL);
    ck_assert(!dg_stream_call_begin(stream));

    dg_stream_free(stream);
    setup();
    ck_assert(dg_stream_call_begin(stream));
    dg_stream_hang_up(stream);
    dg_stream_call_end(stream);
}
END_TEST

Suite *stream_suite(void)
{
    Suite *s = suite_create("stream");
    TCase *t = tcase_create("stream");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, events_have_copies_of_their_own);
    tcase_add_test(t, drafts_are_bounded);
    tcase_add_test(t, what_is_gathered_comes_together);
    tcase_add_test(t, the_end_always_comes);
    tcase_add_test(t, readers_are_notified);
    tcase_add_test(t, waiting_ends_in_time);
    tcase_add_test(t, hanging_up_waits_for_a_call);
    suite_add_tcase(s, t);
    return s;
}
