#include "base/pool.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/common.h"

enum { POOL_MAX = 1024 };

/* A worker looks this often for work before it sleeps: stages of one step follow each other within
 * microseconds, and waking a sleeping thread costs tens of them. */
enum { SPINS = 4000 };

struct dg_pool {
    int n_thread, n_started;
    pthread_t *thread;

    pthread_mutex_t lock; /* for the two conditions; the counters below are atomic */
    pthread_cond_t wake, idle;
    atomic_uint generation; /* one more for each job */
    atomic_int busy;        /* workers that have not finished the current job */
    atomic_bool quit;

    /* the current job; written before `generation` is raised */
    dg_task_fn *fn;
    void *arg;
    int n_task;
    atomic_int next_task;
};

typedef struct worker_start {
    dg_pool *pool;
    int index;
} worker_start;

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void run_tasks(dg_pool *p, int worker)
{
    for (;;) {
        int task = atomic_fetch_add_explicit(&p->next_task, 1, memory_order_relaxed);
        if (task >= p->n_task)
            return;
        p->fn(p->arg, task, worker);
    }
}

/* Waits for a generation other than `seen`; returns it. */
static unsigned wait_for_job(dg_pool *p, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        unsigned now = atomic_load_explicit(&p->generation, memory_order_acquire);
        if (now != seen)
            return now;
        pause_briefly();
    }
    pthread_mutex_lock(&p->lock);
    unsigned now;
    while ((now = atomic_load_explicit(&p->generation, memory_order_acquire)) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return now;
}

static void *worker_main(void *arg)
{
    worker_start start = *(worker_start *)arg;
    dg_free(arg);
    dg_pool *p = start.pool;
    unsigned seen = 0;
    for (;;) {
        seen = wait_for_job(p, seen);
        if (atomic_load(&p->quit))
            return NULL;
        run_tasks(p, start.index);
        if (atomic_fetch_sub_explicit(&p->busy, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->idle);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void post_job(dg_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_release);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

dgemma_status dg_pool_create(dg_pool **out, int n_thread, dgemma_error *err)
{
    if (n_thread < 1 || n_thread > POOL_MAX)
        return dg_fail(err, DGEMMA_E_ARG, "%d threads asked for: 1 to %d are possible", n_thread,
                       POOL_MAX);
    dg_pool *p = dg_calloc(1, sizeof *p);
    if (!p)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    p->n_thread = n_thread;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->idle, NULL);
    p->thread = dg_array((size_t)n_thread, sizeof *p->thread);
    if (!p->thread) {
        dg_pool_free(p);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    for (int i = 1; i < n_thread; i++) {
        worker_start *start = dg_malloc(sizeof *start);
        if (start)
            *start = (worker_start){.pool = p, .index = i};
        if (!start || pthread_create(&p->thread[p->n_started], NULL, worker_main, start) != 0) {
            dg_free(start);
            dg_pool_free(p);
            return dg_fail(err, DGEMMA_E_NOMEM, "cannot start thread %d of %d", i + 1, n_thread);
        }
        p->n_started++;
    }
    *out = p;
    return DGEMMA_OK;
}

void dg_pool_free(dg_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->quit, true);
    post_job(p);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->idle);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    dg_free(p->thread);
    dg_free(p);
}

int dg_pool_threads(const dg_pool *p)
{
    return p->n_thread;
}

void dg_pool_run(dg_pool *p, int n_task, dg_task_fn *fn, void *arg)
{
    p->fn = fn;
    p->arg = arg;
    p->n_task = n_task;
    atomic_store_explicit(&p->next_task, 0, memory_order_relaxed);
    bool alone = p->n_started == 0 || n_task < 2;
    if (!alone) {
        atomic_store_explicit(&p->busy, p->n_started, memory_order_relaxed);
        post_job(p);
    }
    run_tasks(p, 0);
    if (alone)
        return;

    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->busy, memory_order_acquire) == 0)
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->busy, memory_order_acquire) != 0)
        pthread_cond_wait(&p->idle, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* ---- tasks that know the next one ---- */

typedef struct ahead_job {
    dg_ahead_fn *fn;
    void *arg;
    int n_task;
    atomic_int next_task;
} ahead_job;

static int take_ahead(ahead_job *job)
{
    int task = atomic_fetch_add_explicit(&job->next_task, 1, memory_order_relaxed);
    return task < job->n_task ? task : -1;
}

static void run_ahead(void *arg, int nth, int worker)
{
    (void)nth;
    ahead_job *job = arg;
    for (int task = take_ahead(job), next; task >= 0; task = next) {
        next = take_ahead(job);
        job->fn(job->arg, task, next, worker);
    }
}

void dg_pool_run_ahead(dg_pool *p, int n_task, dg_ahead_fn *fn, void *arg)
{
    ahead_job job = {.fn = fn, .arg = arg, .n_task = n_task};
    dg_pool_run(p, dg_min(n_task, p->n_thread), run_ahead, &job);
}

int dg_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return dg_min(CPU_COUNT(&set), POOL_MAX);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than the set has room for */
    return n < 1 ? 1 : n > POOL_MAX ? POOL_MAX : (int)n;
}
