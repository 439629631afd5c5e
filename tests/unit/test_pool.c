/* base/pool: each task runs once, whatever the number of threads, jobs and tasks. */
#include "suites.h"
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include "base/pool.h"
#include "support/alloc_fail.h"

enum { MAX_TASK = 1000, MAX_THREAD = 8 };

typedef struct tally {
    int n_thread;
    atomic_int bad;              /* calls with a task or worker out of range */
    atomic_int busy[MAX_THREAD]; /* a worker runs one task at a time */
    int n_task;
    atomic_int ran[MAX_TASK];
} tally;

static void count_task(void *arg, int task, int worker)
{
    tally *t = arg;
    if (task < 0 || task >= t->n_task || worker < 0 || worker >= t->n_thread) {
        atomic_fetch_add(&t->bad, 1);
        return;
    }
    if (atomic_fetch_add(&t->busy[worker], 1) != 0)
        atomic_fetch_add(&t->bad, 1);
    atomic_fetch_add(&t->ran[task], 1);
    atomic_fetch_sub(&t->busy[worker], 1);
}

/* Loop test: _i is the number of threads. */
START_TEST(each_task_runs_once)
{
    static tally t;
    dg_pool *pool;
    dgemma_error err;
    ck_assert_int_eq(dg_pool_create(&pool, _i, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_pool_threads(pool), _i);
    t.n_thread = _i;
    static const int counts[] = {0, 1, 2, 3, 7, 8, 9, 64, MAX_TASK};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        t.n_task = counts[k];
        for (int i = 0; i < MAX_TASK; i++)
            atomic_store(&t.ran[i], 0);
        dg_pool_run(pool, t.n_task, count_task, &t);
        for (int i = 0; i < MAX_TASK; i++)
            if (atomic_load(&t.ran[i]) != (i < t.n_task))
                ck_abort_msg("task %d of %d ran %d times", i, t.n_task, atomic_load(&t.ran[i]));
    }
    ck_assert_int_eq(atomic_load(&t.bad), 0);
    dg_pool_free(pool);
}
END_TEST

typedef struct promises {
    tally all;
    int promised[MAX_THREAD]; /* what each worker was told that it takes next; -2: nothing yet */
} promises;

static void keep_promise(void *arg, int task, int next, int worker)
{
    promises *p = arg;
    count_task(&p->all, task, worker);
    if (p->promised[worker] != -2 && p->promised[worker] != task)
        atomic_fetch_add(&p->all.bad, 1);
    if (next < -1 || next >= p->all.n_task || (next >= 0 && next <= task))
        atomic_fetch_add(&p->all.bad, 1);
    p->promised[worker] = next;
}

/* Loop test: _i is the number of threads. */
START_TEST(a_worker_takes_what_it_was_told)
{
    static promises p;
    static const int counts[] = {0, 1, 2, 7, 64, MAX_TASK};
    dg_pool *pool;
    ck_assert_int_eq(dg_pool_create(&pool, _i, NULL), DGEMMA_OK);
    p.all.n_thread = _i;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        p.all.n_task = counts[k];
        for (int i = 0; i < MAX_TASK; i++)
            atomic_store(&p.all.ran[i], 0);
        for (int i = 0; i < MAX_THREAD; i++)
            p.promised[i] = -2;
        dg_pool_run_ahead(pool, counts[k], keep_promise, &p);
        for (int i = 0; i < MAX_TASK; i++)
            ck_assert_int_eq(atomic_load(&p.all.ran[i]), i < counts[k]);
        for (int i = 0; i < MAX_THREAD; i++)
            ck_assert(p.promised[i] < 0); /* nothing that was promised is left */
    }
    ck_assert_int_eq(atomic_load(&p.all.bad), 0);
    dg_pool_free(pool);
}
END_TEST

static void add_one(void *arg, int task, int worker)
{
    (void)worker;
    ((int *)arg)[task]++; /* not atomic on purpose: run() must order one job before the next */
}

START_TEST(many_jobs_follow_each_other)
{
    enum { JOBS = 3000, TASKS = 5 };
    int sum[TASKS] = {0};
    dg_pool *pool;
    ck_assert_int_eq(dg_pool_create(&pool, _i, NULL), DGEMMA_OK);
    for (int job = 0; job < JOBS; job++)
        dg_pool_run(pool, TASKS, add_one, sum);
    dg_pool_free(pool);
    for (int i = 0; i < TASKS; i++)
        ck_assert_int_eq(sum[i], JOBS);
}
END_TEST

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void sleep_then_add(void *arg, int task, int worker)
{
    if (task == 0)
        pause_ms(5);
    add_one(arg, task, worker);
}

/* Long enough for both sides to give up spinning: workers sleep between jobs, the caller during
 * one. */
START_TEST(sleepers_wake_up)
{
    int sum[2] = {0};
    dg_pool *pool;
    ck_assert_int_eq(dg_pool_create(&pool, 4, NULL), DGEMMA_OK);
    for (int job = 0; job < 20; job++) {
        pause_ms(5);
        dg_pool_run(pool, 2, sleep_then_add, sum);
    }
    dg_pool_free(pool);
    ck_assert_int_eq(sum[0], 20);
    ck_assert_int_eq(sum[1], 20);
}
END_TEST

START_TEST(two_pools_at_once)
{
    int sum[2] = {0};
    dg_pool *a, *b;
    ck_assert_int_eq(dg_pool_create(&a, 3, NULL), DGEMMA_OK);
    ck_assert_int_eq(dg_pool_create(&b, 2, NULL), DGEMMA_OK);
    for (int i = 0; i < 100; i++) {
        dg_pool_run(a, 2, add_one, sum);
        dg_pool_run(b, 2, add_one, sum);
    }
    dg_pool_free(a);
    dg_pool_run(b, 2, add_one, sum);
    dg_pool_free(b);
    ck_assert_int_eq(sum[0], 201);
}
END_TEST

START_TEST(thread_counts_are_checked)
{
    dg_pool *pool = NULL;
    dgemma_error err;
    static const int wrong[] = {0, -1, 1025};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_eq(dg_pool_create(&pool, wrong[i], &err), DGEMMA_E_ARG);
        ck_assert_ptr_nonnull(strstr(err.msg, "1024"));
    }
    ck_assert_ptr_null(pool);
    dg_pool_free(NULL);
    ck_assert_int_ge(dg_cpu_count(), 1);
}
END_TEST

START_TEST(creating_survives_every_failed_allocation)
{
    bool walked = false;
    for (long n = 1; !walked; n++) {
        ck_assert_int_lt(n, 100);
        dg_pool *pool = NULL;
        dgemma_error err;
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_pool_create(&pool, 4, &err);
        walked = !dg_test_alloc_done();
        ck_assert_int_eq(st, walked ? DGEMMA_OK : DGEMMA_E_NOMEM);
        ck_assert(walked == (pool != NULL));
        dg_pool_free(pool);
    }
}
END_TEST

Suite *pool_suite(void)
{
    Suite *s = suite_create("pool");
    TCase *c = tcase_create("pool");
    tcase_add_loop_test(c, each_task_runs_once, 1, MAX_THREAD + 1);
    tcase_add_loop_test(c, a_worker_takes_what_it_was_told, 1, MAX_THREAD + 1);
    tcase_add_loop_test(c, many_jobs_follow_each_other, 1, MAX_THREAD + 1);
    tcase_add_test(c, sleepers_wake_up);
    tcase_add_test(c, two_pools_at_once);
    tcase_add_test(c, thread_counts_are_checked);
    tcase_add_test(c, creating_survives_every_failed_allocation);
    suite_add_tcase(s, c);
    return s;
}
