/* The cache's book-keeping: who holds which page, what is copied, what is still to come. The
 * contents are looked at in test_forward.c and test_equations.c. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "backend/kv_layout.h"
#include "base/alloc.h"
#include "base/common.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/tiny_model.h"

static tiny_model t;
static size_t page_bytes[DG_KV_GROUPS];

static void setup(void)
{
    tiny_open(&t, &(tiny_options){.max_row = 64});
    dg_kv_page_bytes(page_bytes, dg_kv_config_of(t.kv));
}

static void teardown(void)
{
    tiny_close(&t);
}

static void append(dg_kv_seq *seq, int n)
{
    dgemma_error err = {0};
    ck_assert_msg(dg_kv_reserve(t.kv, seq, n, &err) == DGEMMA_OK, "%s", err.msg);
    dg_kv_advance(seq, n);
}

static void share(dg_kv_seq *to, const dg_kv_seq *from, int n)
{
    ck_assert_int_eq(dg_kv_share(t.kv, to, from, n, NULL), DGEMMA_OK);
}

/* Whoever goes on behind a point that is only kept leaves the point's page as it is. */
START_TEST(a_kept_page_is_not_written)
{
    dg_kv_seq first = {0}, point = {.kept = true}, second = {0};
    append(&first, 100);
    share(&point, &first, 90);
    dg_kv_seq_clear(t.kv, &first);
    share(&second, &point, 90);
    ck_assert_int_eq(second.table[DG_KV_GLOBAL].page[1], point.table[DG_KV_GLOBAL].page[1]);
    append(&second, 1);
    for (int g = 0; g < DG_KV_GROUPS; g++) {
        ck_assert_int_eq(second.n_token, 91);
        ck_assert_int_ne(second.table[g].page[1], point.table[g].page[1]);
    }
    ck_assert_int_eq(second.table[DG_KV_GLOBAL].page[0], point.table[DG_KV_GLOBAL].page[0]);
    dg_kv_seq_clear(t.kv, &second);
    dg_kv_seq_clear(t.kv, &point);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), 0);
}
END_TEST

/* Once it has a page of its own a sequence goes on filling it, whoever shares it from then on. */
START_TEST(a_page_is_copied_once)
{
    dg_kv_seq first = {0}, second = {0}, point = {.kept = true};
    append(&first, 70);
    share(&second, &first, 70);
    append(&second, 1);
    share(&point, &second, 71);
    size_t held = dg_kv_bytes_held(t.kv);
    int32_t page = second.table[DG_KV_GLOBAL].page[1];
    ck_assert_uint_eq(dg_kv_bytes_missing(t.kv, &second, 20), 0);
    append(&second, 20);
    ck_assert_int_eq(second.table[DG_KV_GLOBAL].page[1], page);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), held);
    dg_kv_seq_clear(t.kv, &point);
    dg_kv_seq_clear(t.kv, &second);
    dg_kv_seq_clear(t.kv, &first);
}
END_TEST

/* Nor is one that the other has let go by then. */
START_TEST(a_page_left_by_the_other_is_not_copied)
{
    dg_kv_seq first = {0}, second = {0};
    append(&first, 70);
    share(&second, &first, 70);
    dg_kv_seq_clear(t.kv, &first);
    int32_t page = second.table[DG_KV_GLOBAL].page[1];
    ck_assert_uint_eq(dg_kv_bytes_missing(t.kv, &second, 1), 0);
    append(&second, 1);
    ck_assert_int_eq(second.table[DG_KV_GLOBAL].page[1], page);
    dg_kv_seq_clear(t.kv, &second);
}
END_TEST

/* A share without memory for its tables holds nothing. */
START_TEST(a_share_that_fails_holds_nothing)
{
    dg_kv_seq first = {0};
    append(&first, 100);
    for (long n = 1; n <= DG_KV_GROUPS; n++) {
        dg_kv_seq second = {0};
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_kv_share(t.kv, &second, &first, 90, NULL);
        ck_assert(dg_test_alloc_done());
        ck_assert_int_eq(st, DGEMMA_E_NOMEM);
        ck_assert_int_eq(second.n_token, 0);
        for (int g = 0; g < DG_KV_GROUPS; g++)
            ck_assert_int_eq(second.table[g].n, 0);
    }
    dg_kv_seq_clear(t.kv, &first);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), 0);
}
END_TEST

/* A model may have layers of one kind alone. */
START_TEST(a_kind_without_layers_has_no_pages)
{
    dg_config cfg = t.cfg;
    dg_kv_cache *kv;
    dg_kv_seq seq = {0}, point = {.kept = true};
    for (int i = 0; i < cfg.n_layer; i++)
        cfg.layer[i].sliding = false;
    ck_assert_int_eq(dg_kv_cache_create(&kv, &cfg, t.be, DG_F32, 0, NULL), DGEMMA_OK);
    ck_assert_int_eq(dg_kv_reserve(kv, &seq, 3 * DG_PAGE, NULL), DGEMMA_OK);
    dg_kv_advance(&seq, 3 * DG_PAGE);
    ck_assert_int_eq(dg_kv_share(kv, &point, &seq, 100, NULL), DGEMMA_OK);
    ck_assert_int_eq(seq.table[DG_KV_GLOBAL].n, 3);
    ck_assert_int_eq(seq.table[DG_KV_SLIDING].n, 0);
    ck_assert_int_eq(point.table[DG_KV_SLIDING].n, 0);
    dg_kv_seq_clear(kv, &seq);
    dg_kv_seq_clear(kv, &point);
    dg_kv_cache_free(kv);
}
END_TEST

/* More pages than the first piece of their table has room for. */
START_TEST(there_may_be_many_pages)
{
    enum { N = 150 };
    dg_kv_seq seq = {0};
    append(&seq, N * DG_PAGE);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(seq.table[DG_KV_GLOBAL].page[i], i);
    dg_kv_seq_clear(t.kv, &seq);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), 0);
}
END_TEST

/* What is said to be missing is what comes, at every length and with a shared tail. */
START_TEST(missing_bytes_are_those_that_come)
{
    for (int shared = 0; shared < 2; shared++)
        for (int n = 1; n < 200; n += 9)
            for (int more = 0; more < 200; more += 13) {
                dg_kv_seq first = {0}, seq = {0};
                append(&first, n);
                if (shared)
                    share(&seq, &first, n);
                else
                    append(&seq, n);
                dg_kv_forget(t.kv, &seq);
                size_t held = dg_kv_bytes_held(t.kv);
                size_t missing = dg_kv_bytes_missing(t.kv, &seq, more);
                append(&seq, more);
                ck_assert_uint_eq(dg_kv_bytes_held(t.kv), held + missing);
                dg_kv_seq_clear(t.kv, &first);
                dg_kv_seq_clear(t.kv, &seq);
                ck_assert_uint_eq(dg_kv_bytes_held(t.kv), 0);
            }
}
END_TEST

/* The estimate for admission is never below what a sequence takes while it grows. */
START_TEST(estimates_hold)
{
    for (int step = 1; step < 300; step += 37) {
        dg_kv_seq seq = {0};
        while (seq.n_token < 700) {
            append(&seq, step);
            ck_assert_uint_le(dg_kv_seq_bytes(t.kv, &seq),
                              dg_kv_bytes_for(t.kv, seq.n_token, step));
            ck_assert_uint_eq(dg_kv_seq_bytes(t.kv, &seq), dg_kv_bytes_held(t.kv));
        }
        dg_kv_seq_clear(t.kv, &seq);
    }
}
END_TEST

static int window(void)
{
    int i = 0;
    while (!t.cfg.layer[i].sliding)
        i++;
    return t.cfg.layer[i].window;
}

static size_t pages(int n_global, int n_sliding)
{
    return (size_t)n_global * page_bytes[DG_KV_GLOBAL] +
           (size_t)n_sliding * page_bytes[DG_KV_SLIDING];
}

/* Nor above what it may come to take: a page of each kind for each page of tokens, of the sliding
 * ones no more than the window, a step and a cut page. */
START_TEST(estimates_are_close)
{
    int w = window();
    ck_assert_int_lt(w, DG_PAGE);
    ck_assert_uint_eq(dg_kv_bytes_for(t.kv, 1, 1), pages(1, 1));
    ck_assert_uint_eq(dg_kv_bytes_for(t.kv, DG_PAGE, 1), pages(1, 1));
    ck_assert_uint_eq(dg_kv_bytes_for(t.kv, DG_PAGE + 1, 1), pages(2, 2));
    ck_assert_uint_eq(dg_kv_bytes_for(t.kv, 10 * DG_PAGE, 1), pages(10, 2));
    ck_assert_uint_eq(dg_kv_bytes_for(t.kv, 10 * DG_PAGE, DG_PAGE - w), pages(10, 2));
    ck_assert_uint_eq(dg_kv_bytes_for(t.kv, 10 * DG_PAGE, DG_PAGE - w + 1), pages(10, 3));
    ck_assert_uint_eq(dg_kv_bytes_for(t.kv, 10 * DG_PAGE, 100 * DG_PAGE), pages(10, 10));
}
END_TEST

/* Of the sliding pages those stay that the next token can see, at every length; of a share too. */
START_TEST(the_window_decides_what_stays)
{
    dg_kv_seq seq = {0};
    for (int n = 1; n < 4 * DG_PAGE; n++) {
        append(&seq, 1);
        int oldest = dg_max(0, n - window() + 1) / DG_PAGE;
        dg_kv_seq point = {.kept = true};
        share(&point, &seq, n);
        ck_assert_int_eq(point.table[DG_KV_SLIDING].first, oldest);
        for (int i = 0; i < oldest; i++)
            ck_assert_int_eq(point.table[DG_KV_SLIDING].page[i], DG_NO_PAGE);
        ck_assert_int_eq(point.table[DG_KV_GLOBAL].first, 0);
        dg_kv_seq_clear(t.kv, &point);
        dg_kv_forget(t.kv, &seq);
        ck_assert_int_eq(seq.table[DG_KV_SLIDING].first, oldest);
        ck_assert_int_eq(seq.table[DG_KV_GLOBAL].first, 0);
        ck_assert_uint_eq(dg_kv_seq_bytes(t.kv, &seq), dg_kv_bytes_held(t.kv));
    }
    dg_kv_seq_clear(t.kv, &seq);
    ck_assert_int_eq(seq.n_token, 0);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), 0);
}
END_TEST

/* Layers may have windows of their own: all share a table, and the widest rules. */
START_TEST(the_widest_window_rules)
{
    dg_config cfg = t.cfg;
    dg_kv_cache *kv;
    int i = 0;
    while (!cfg.layer[i].sliding)
        i++;
    cfg.layer[i].window = 2 * DG_PAGE; /* the first of them, so that another is the last */
    ck_assert_int_eq(dg_kv_cache_create(&kv, &cfg, t.be, DG_F32, 0, NULL), DGEMMA_OK);
    ck_assert_uint_eq(dg_kv_bytes_for(kv, 10 * DG_PAGE, 1), pages(10, 4));
    dg_kv_cache_free(kv);
}
END_TEST

/* When the pages of one kind come and those of the other do not, none have come. */
START_TEST(failure_takes_nothing)
{
    dg_kv_seq seq = {0};
    append(&seq, 10);
    size_t held = dg_kv_bytes_held(t.kv);
    dg_kv_seq_clear(t.kv, &seq);
    ck_assert_int_eq(
        dg_kv_cache_limit(
            t.kv, held + 2 * page_bytes[DG_KV_SLIDING] + 2 * page_bytes[DG_KV_GLOBAL] - 1, NULL),
        DGEMMA_OK);
    append(&seq, 10);
    dgemma_error err = {0};
    ck_assert_int_eq(dg_kv_reserve(t.kv, &seq, 160, &err), DGEMMA_E_LIMIT);
    for (int g = 0; g < DG_KV_GROUPS; g++)
        ck_assert_int_eq(seq.table[g].n, 1);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), held);
    append(&seq, 20);
    dg_kv_seq_clear(t.kv, &seq);
}
END_TEST

static long n_bytes_out; /* memory of pages that the backend has given out */
static int n_given_back;
static bool (*real_take)(dg_backend *, dg_kv_store *, dg_kv_group, int32_t);
static void (*real_give)(dg_backend *, dg_kv_store *, dg_kv_group, int32_t);

static bool counting_take(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    n_bytes_out += (long)page_bytes[g];
    return real_take(be, kv, g, page);
}

static void counting_give(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    n_bytes_out -= (long)page_bytes[g];
    n_given_back++;
    real_give(be, kv, g, page);
}

/* Idle pages of one kind make room for the other: all memory together stays below the bound. */
START_TEST(idle_pages_are_within_the_bound)
{
    size_t most = 4 * page_bytes[DG_KV_SLIDING] + 4 * page_bytes[DG_KV_GLOBAL];
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, most, NULL), DGEMMA_OK);
    real_take = t.be->kv_take;
    real_give = t.be->kv_give;
    t.be->kv_take = counting_take;
    t.be->kv_give = counting_give;
    n_bytes_out = 0;
    dg_kv_seq seq = {0};
    append(&seq, 4 * DG_PAGE); /* four of each at once */
    dg_kv_seq_clear(t.kv, &seq);
    while (dg_kv_bytes_missing(t.kv, &seq, DG_PAGE) <= dg_kv_bytes_left(t.kv)) {
        append(&seq, DG_PAGE); /* of the sliding ones two or three, more of the others */
        ck_assert_int_le(n_bytes_out, (long)most);
    }
    ck_assert_int_gt(seq.n_token, 4 * DG_PAGE);
    dg_kv_seq_clear(t.kv, &seq);
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, most, NULL), DGEMMA_OK); /* all is given back */
    ck_assert_int_eq(n_bytes_out, 0);
}
END_TEST

static int n_refused; /* pages that the backend will not give */

static bool refusing_take(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    return n_refused-- > 0 ? false : real_take(be, kv, g, page);
}

/* Pages for which there was no memory can be had when there is. */
START_TEST(a_page_that_did_not_come_may_come_later)
{
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, pages(2, 2), NULL), DGEMMA_OK);
    real_take = t.be->kv_take;
    t.be->kv_take = refusing_take;
    dg_kv_seq seq = {0};
    for (n_refused = 100; n_refused > 0;)
        ck_assert_int_eq(dg_kv_reserve(t.kv, &seq, 1, NULL), DGEMMA_E_NOMEM);
    append(&seq, 2 * DG_PAGE);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), pages(2, 2));
    dg_kv_seq_clear(t.kv, &seq);
}
END_TEST

/* Idle pages are given up when they have to be, not before. */
START_TEST(idle_pages_stay_while_there_is_room)
{
    const dg_kv_group first = 0, second = 1; /* in the order in which pages are taken */
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, 2 * page_bytes[first] + page_bytes[second], NULL),
                     DGEMMA_OK);
    real_take = t.be->kv_take;
    real_give = t.be->kv_give;
    t.be->kv_take = counting_take;
    t.be->kv_give = counting_give;
    dg_kv_seq seq = {0};
    append(&seq, 1);
    dg_kv_seq_clear(t.kv, &seq); /* one of each is idle */
    n_given_back = 0;
    ck_assert_int_eq(dg_kv_reserve(t.kv, &seq, 2 * DG_PAGE, NULL), DGEMMA_E_LIMIT);
    ck_assert_int_eq(n_given_back, 0); /* the second of one kind fitted beside the idle other */
    dg_kv_seq_clear(t.kv, &seq);
}
END_TEST

static dgemma_status (*real_open)(dg_backend *, dg_kv_store **, const dg_kv_config *, size_t,
                                  int[DG_KV_GROUPS], dgemma_error *);

static dgemma_status open_for_two(dg_backend *be, dg_kv_store **out, const dg_kv_config *cfg,
                                  size_t max_bytes, int n_page[DG_KV_GROUPS], dgemma_error *err)
{
    dgemma_status st = real_open(be, out, cfg, max_bytes, n_page, err);
    n_page[0] = n_page[1] = 2;
    return st;
}

/* A backend may have fewer pages than the bound allows. */
START_TEST(a_store_has_its_own_end)
{
    real_open = t.be->kv_open;
    t.be->kv_open = open_for_two;
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, 0, NULL), DGEMMA_OK);
    t.be->kv_open = real_open;
    dg_kv_seq seq = {0};
    ck_assert_int_eq(dg_kv_reserve(t.kv, &seq, 2 * DG_PAGE + 1, NULL), DGEMMA_E_NOMEM);
    append(&seq, 2 * DG_PAGE);
    dg_kv_seq_clear(t.kv, &seq);
}
END_TEST

static dgemma_status open_for_eight(dg_backend *be, dg_kv_store **out, const dg_kv_config *cfg,
                                    size_t max_bytes, int n_page[DG_KV_GROUPS], dgemma_error *err)
{
    dgemma_status st = real_open(be, out, cfg, max_bytes, n_page, err);
    n_page[0] = n_page[1] = 8;
    return st;
}

/* Pages that were given up for those of the other kind come again, as often as that happens; and
 * no more of them are given up than have to be, whose sizes differ. */
START_TEST(pages_that_were_given_up_come_again)
{
    dg_config cfg = t.cfg;
    dg_kv_cache *plain = t.kv;
    for (int i = 0; i < cfg.n_layer; i++)
        cfg.layer[i].n_kv_head *= cfg.layer[i].sliding ? 5 : 1;
    ck_assert_int_eq(dg_kv_cache_create(&t.kv, &cfg, t.be, DG_F32, 0, NULL), DGEMMA_OK);
    dg_kv_page_bytes(page_bytes, dg_kv_config_of(t.kv));
    ck_assert_uint_ne(page_bytes[0], page_bytes[1]);
    long most = (long)pages(4, 4), largest = (long)dg_max((int)page_bytes[0], (int)page_bytes[1]);
    real_open = t.be->kv_open;
    real_take = t.be->kv_take;
    real_give = t.be->kv_give;
    t.be->kv_open = open_for_eight;
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, (size_t)most, NULL), DGEMMA_OK);
    t.be->kv_open = real_open;
    t.be->kv_take = counting_take;
    t.be->kv_give = counting_give;
    n_bytes_out = n_given_back = 0;
    dg_kv_seq seq = {0};
    for (int round = 0; round < 10; round++) {
        append(&seq, 4 * DG_PAGE); /* four of each at once: those of one kind go for the other's */
        ck_assert_int_le(n_bytes_out, most);
        dg_kv_seq_clear(t.kv, &seq);
        for (int i = 0; i < 6; i++)
            append(&seq, DG_PAGE);
        ck_assert_int_le(n_bytes_out, most);
        ck_assert_int_gt(n_bytes_out + largest, most);
        dg_kv_seq_clear(t.kv, &seq);
    }
    ck_assert_int_gt(n_given_back, 10);
    t.be->kv_take = real_take;
    t.be->kv_give = real_give;
    dg_kv_cache_free(t.kv);
    t.kv = plain;
}
END_TEST

/* Reading a page that was forgotten is a bug, and ends there: nothing is read from nowhere. */
START_TEST(a_forgotten_page_is_not_read)
{
    dg_kv_seq seq = {0};
    append(&seq, 4 * DG_PAGE);
    dg_kv_forget(t.kv, &seq);
    int sliding = 0;
    while (!t.cfg.layer[sliding].sliding)
        sliding++;
    int32_t page = seq.table[DG_KV_SLIDING].page[0];
    ck_assert_int_eq(page, DG_NO_PAGE);
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
        static float out[1 << 16];
        fclose(stderr); /* assert would speak to it */
        t.be->kv_read(t.be, dg_kv_store_of(t.kv), sliding, page, false, out);
        _exit(0);
    }
    int how;
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT);
    dg_kv_seq_clear(t.kv, &seq);
}
END_TEST

START_TEST(a_cache_in_use_cannot_grow)
{
    size_t most = 8 * (page_bytes[0] + page_bytes[1]);
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, most, NULL), DGEMMA_OK);
    dg_kv_seq seq = {0};
    append(&seq, 10);
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, most + 1, NULL), DGEMMA_E_ARG);
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, most, NULL), DGEMMA_OK); /* as it is */
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, 0, NULL), DGEMMA_E_ARG);
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, most / 2, NULL), DGEMMA_OK);
    ck_assert_uint_eq(dg_kv_bytes_left(t.kv), most / 2 - dg_kv_bytes_held(t.kv));
    dg_kv_seq_clear(t.kv, &seq);
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, 0, NULL), DGEMMA_OK);
    ck_assert_uint_eq(dg_kv_bytes_left(t.kv), SIZE_MAX);
}
END_TEST

/* No two sequences that did not share ever have a page in common. */
START_TEST(pages_have_one_owner)
{
    enum { N = 6 };
    dg_kv_seq seq[N] = {0};
    for (int round = 0; round < 40; round++) {
        int i = round * 7 % N;
        if (seq[i].n_token > 300)
            dg_kv_seq_clear(t.kv, &seq[i]);
        append(&seq[i], 1 + round * 31 % 150);
        for (int a = 0; a < N; a++)
            for (int b = 0; b < a; b++)
                for (int g = 0; g < DG_KV_GROUPS; g++)
                    for (int x = seq[a].table[g].first; x < seq[a].table[g].n; x++)
                        for (int y = seq[b].table[g].first; y < seq[b].table[g].n; y++)
                            ck_assert_int_ne(seq[a].table[g].page[x], seq[b].table[g].page[y]);
    }
    for (int i = 0; i < N; i++)
        dg_kv_seq_clear(t.kv, &seq[i]);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), 0);
    ck_assert_uint_eq(dg_kv_bytes_used(t.kv), 0);
}
END_TEST

/* A sequence that was let go far ahead of its pages forgets those it has, and no others. */
START_TEST(only_pages_that_are_there_are_forgotten)
{
    dg_kv_seq seq = {0};
    append(&seq, DG_PAGE);
    dg_kv_advance(&seq, 5 * DG_PAGE); /* without pages for them */
    dg_kv_forget(t.kv, &seq);
    ck_assert_int_eq(seq.table[DG_KV_SLIDING].first, 1);
    ck_assert_int_eq(seq.table[DG_KV_SLIDING].n, 1);
    dg_kv_seq_clear(t.kv, &seq);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), 0);
}
END_TEST

/* A share that ends with a page has nothing to copy; one that could not be copied still has. */
START_TEST(a_tail_is_shared_until_it_is_copied)
{
    dg_kv_seq first = {0}, second = {0};
    append(&first, DG_PAGE + 1);
    share(&second, &first, DG_PAGE);
    ck_assert(!second.shared_tail);
    ck_assert_uint_eq(dg_kv_bytes_missing(t.kv, &second, 1), pages(1, 1));
    dg_kv_seq_clear(t.kv, &second);

    share(&second, &first, DG_PAGE - 1);
    ck_assert(second.shared_tail);
    ck_assert_int_eq(dg_kv_cache_limit(t.kv, 1, NULL), DGEMMA_OK); /* less than is in use */
    ck_assert_uint_eq(dg_kv_bytes_left(t.kv), 0);
    ck_assert_int_eq(dg_kv_reserve(t.kv, &second, 1, NULL), DGEMMA_E_LIMIT);
    ck_assert(second.shared_tail);
    ck_assert_int_eq(second.table[DG_KV_GLOBAL].page[0], first.table[DG_KV_GLOBAL].page[0]);
    dg_kv_seq_clear(t.kv, &first);
    dg_kv_seq_clear(t.kv, &second);
}
END_TEST

/* Where each layer's keys and values lie in a page: behind those of the layers of its kind. */
START_TEST(layers_have_their_place_in_a_page)
{
    dg_kv_layer layer[] = {{DG_KV_SLIDING, 2, 8},
                           {DG_KV_GLOBAL, 1, 16},
                           {DG_KV_SLIDING, 1, 8},
                           {DG_KV_SLIDING, 2, 8},
                           {DG_KV_GLOBAL, 1, 16}};
    dg_kv_config cfg = {DG_BF16, DG_COUNT(layer), layer};
    dg_kv_layout l;
    ck_assert_int_eq(dg_kv_layout_init(&l, &cfg, NULL), DGEMMA_OK);
    size_t wide = 2 * DG_PAGE * 2 * 8 * 2, narrow = wide / 2; /* K and V, heads of 8, 16 bits */
    const size_t offset[] = {0, 0, wide, wide + narrow, wide};
    const size_t bytes[] = {wide, wide, narrow, wide, wide};
    for (int i = 0; i < cfg.n_layer; i++) {
        ck_assert_uint_eq(l.offset[i], offset[i]);
        ck_assert_uint_eq(dg_kv_layout_layer_bytes(&l, i), bytes[i]);
    }
    ck_assert_uint_eq(l.page_bytes[DG_KV_SLIDING], 2 * wide + narrow);
    ck_assert_uint_eq(l.page_bytes[DG_KV_GLOBAL], 2 * wide);
    dg_kv_layout_clear(&l);
}
END_TEST

/* What only points keep is held and not used. */
START_TEST(kept_pages_are_not_used)
{
    dg_kv_seq seq = {0}, point = {.kept = true};
    append(&seq, 100);
    size_t both = dg_kv_bytes_held(t.kv);
    share(&point, &seq, 64);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), both);
    ck_assert_uint_eq(dg_kv_bytes_used(t.kv), both);
    dg_kv_seq other = {0};
    share(&other, &seq, 100); /* two who run on a page use it once */
    ck_assert_uint_eq(dg_kv_bytes_used(t.kv), both);
    dg_kv_seq_clear(t.kv, &other);
    ck_assert_uint_eq(dg_kv_bytes_used(t.kv), both);
    dg_kv_seq_clear(t.kv, &seq);
    ck_assert_uint_eq(dg_kv_bytes_used(t.kv), 0);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), dg_kv_seq_bytes(t.kv, &point));
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), page_bytes[DG_KV_GLOBAL] + page_bytes[DG_KV_SLIDING]);
    share(&seq, &point, 64);
    ck_assert_uint_eq(dg_kv_bytes_used(t.kv), dg_kv_bytes_held(t.kv));
    dg_kv_seq_clear(t.kv, &point);
    ck_assert_uint_eq(dg_kv_bytes_used(t.kv), dg_kv_bytes_held(t.kv));
    dg_kv_seq_clear(t.kv, &seq);
    ck_assert_uint_eq(dg_kv_bytes_held(t.kv), 0);
}
END_TEST

Suite *kv_cache_suite(void)
{
    Suite *s = suite_create("kv_cache");
    TCase *c = tcase_create("kv_cache");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_kept_page_is_not_written);
    tcase_add_test(c, a_page_is_copied_once);
    tcase_add_test(c, a_page_left_by_the_other_is_not_copied);
    tcase_add_test(c, a_share_that_fails_holds_nothing);
    tcase_add_test(c, a_kind_without_layers_has_no_pages);
    tcase_add_test(c, there_may_be_many_pages);
    tcase_add_test(c, missing_bytes_are_those_that_come);
    tcase_add_test(c, estimates_hold);
    tcase_add_test(c, estimates_are_close);
    tcase_add_test(c, the_window_decides_what_stays);
    tcase_add_test(c, the_widest_window_rules);
    tcase_add_test(c, failure_takes_nothing);
    tcase_add_test(c, a_page_that_did_not_come_may_come_later);
    tcase_add_test(c, idle_pages_stay_while_there_is_room);
    tcase_add_test(c, a_store_has_its_own_end);
    tcase_add_test(c, pages_that_were_given_up_come_again);
    tcase_add_test(c, a_forgotten_page_is_not_read);
    tcase_add_test(c, idle_pages_are_within_the_bound);
    tcase_add_test(c, a_cache_in_use_cannot_grow);
    tcase_add_test(c, pages_have_one_owner);
    tcase_add_test(c, kept_pages_are_not_used);
    tcase_add_test(c, only_pages_that_are_there_are_forgotten);
    tcase_add_test(c, a_tail_is_shared_until_it_is_copied);
    tcase_add_test(c, layers_have_their_place_in_a_page);
    suite_add_tcase(s, c);
    return s;
}
