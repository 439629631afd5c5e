#include "log.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/clock.h"

enum { RETRY_MS = 20, FAREWELL_MS = 1000 };

struct dg_log {
    dg_log_write_fn *write;
    void *user;
    pthread_t thread;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t has_line;
    size_t first, n;
    uint64_t n_dropped;
    bool closes;
    double until; /* of a log that closes */
    char lines[DG_LOG_LINES][DG_LOG_LINE];
};

/* ---- writing ---- */

/* The lock is held, but not while the line is written. */
static bool write_first(dg_log *log)
{
    char line[DG_LOG_LINE];
    memcpy(line, log->lines[log->first], sizeof line);
    pthread_mutex_unlock(&log->lock);
    bool written = log->write(log->user, line);
    if (!written)
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
    pthread_mutex_lock(&log->lock);
    if (written) {
        log->first = (log->first + 1) % DG_LOG_LINES;
        log->n--;
    }
    return written;
}

static void *log_main(void *user)
{
    dg_log *log = user;
    pthread_mutex_lock(&log->lock);
    for (;;) {
        while (!log->n && !log->closes)
            pthread_cond_wait(&log->has_line, &log->lock);
        if (!log->n || (!write_first(log) && log->closes && dg_clock_now() > log->until))
            break;
    }
    pthread_mutex_unlock(&log->lock);
    return NULL;
}

dgemma_status dg_log_open(dg_log **out, dg_log_write_fn *write, void *user, dgemma_error *err)
{
    dg_log *log = dg_calloc(1, sizeof *log);
    if (!log)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    log->write = write;
    log->user = user;
    pthread_mutex_init(&log->lock, NULL);
    pthread_cond_init(&log->has_line, NULL);
    if (pthread_create(&log->thread, NULL, log_main, log)) {
        pthread_cond_destroy(&log->has_line);
        pthread_mutex_destroy(&log->lock);
        dg_free(log);
        return dg_fail(err, DGEMMA_E_NOMEM, "cannot start the log's thread");
    }
    *out = log;
    return DGEMMA_OK;
}

void dg_log_close(dg_log *log)
{
    if (!log)
        return;
    pthread_mutex_lock(&log->lock);
    log->closes = true;
    log->until = dg_clock_now() + FAREWELL_MS / 1e3;
    pthread_cond_signal(&log->has_line);
    pthread_mutex_unlock(&log->lock);
    pthread_join(log->thread, NULL);
    pthread_cond_destroy(&log->has_line);
    pthread_mutex_destroy(&log->lock);
    dg_free(log);
}

/* ---- lines ---- */

static size_t print_time(char *to, size_t size)
{
    time_t now = time(NULL);
    struct tm tm;
    return strftime(to, size, "%Y-%m-%dT%H:%M:%SZ ", gmtime_r(&now, &tm));
}

void dg_log_print(dg_log *log, const char *fmt, ...)
{
    char line[DG_LOG_LINE];
    va_list args;
    if (!log)
        return;
    size_t n = print_time(line, sizeof line);
    va_start(args, fmt);
    vsnprintf(line + n, sizeof line - n, fmt, args);
    va_end(args);
    for (char *at = line; *at; at++) /* what came from outside cannot forge a line */
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = ' ';
    pthread_mutex_lock(&log->lock);
    if (log->n < DG_LOG_LINES) {
        strcpy(log->lines[(log->first + log->n++) % DG_LOG_LINES], line);
        pthread_cond_signal(&log->has_line);
    } else {
        log->n_dropped++;
    }
    pthread_mutex_unlock(&log->lock);
}

uint64_t dg_log_dropped(dg_log *log)
{
    if (!log)
        return 0;
    pthread_mutex_lock(&log->lock);
    uint64_t n = log->n_dropped;
    pthread_mutex_unlock(&log->lock);
    return n;
}
