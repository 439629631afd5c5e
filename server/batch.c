#include "batch.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "batch_job.h"
#include "batch_output.h"
#include "line_reader.h"

struct dg_batch {
    dg_batch_options opt;
    int in; /* -1: it is not open */
    bool own_in;
    struct stat in_file;
    dg_line_reader lines;
    dg_batch_ids ids;
    dg_batch_output out, errors;
    dg_batch_setup setup;
    dg_batch_progress sum;

    dg_batch_job *jobs; /* at work */
    size_t n_ahead;     /* answers that they are for */
    bool held, room;    /* the last line waits for room that others have; one of them ended since */
    dg_hold hold;       /* of the model that it asks, where there are several */
    dg_http_error *failed; /* for each of them: why it is not asked any more; status 0: it is */
    bool at_end;           /* of the lines */
    bool paused;           /* who runs it wants no line asked now */
    dg_metrics *metrics;   /* owned; NULL: they are somebody else's */

    pthread_mutex_t lock;
    pthread_cond_t bell;
    bool rung; /* the lock: an engine's thread has something */
};

/* ---- files ---- */

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && S_ISREG(a->st_mode);
}

/* How many there will be; a pipe tells when it is over. */
static dgemma_status count_lines(dg_batch *b, dgemma_error *err)
{
    dg_line_reader r;
    bool more = true;
    dgemma_status st = DGEMMA_OK;
    if (!S_ISREG(b->in_file.st_mode))
        return DGEMMA_OK;
    off_t start = lseek(b->in, 0, SEEK_CUR); /* of standard input, others may have read some */
    dg_line_reader_init(&r, b->in, b->opt.in, b->opt.max_line_bytes);
    while (!st && more) {
        st = dg_line_next(&r, &more, err);
        b->sum.n_line += !st && more && !dg_line_is_blank(&r);
    }
    dg_line_reader_clear(&r);
    if (!st && (start < 0 || lseek(b->in, start, SEEK_SET) < 0))
        st = dg_fail(err, DGEMMA_E_IO, "%s: %s", b->opt.in, strerror(errno));
    if (!st && b->sum.n_line > DG_BATCH_LINES)
        st = dg_fail(err, DGEMMA_E_LIMIT,
                     "%s: it has %llu lines, a batch at most %d: make several of it", b->opt.in,
                     (unsigned long long)b->sum.n_line, DG_BATCH_LINES);
    return st;
}

static dgemma_status open_input(dg_batch *b, dgemma_error *err)
{
    b->own_in = strcmp(b->opt.in, "-") != 0;
    b->in = b->own_in ? open(b->opt.in, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (b->in < 0 || fstat(b->in, &b->in_file))
        return dg_fail(err, DGEMMA_E_IO, "%s: %s", b->opt.in, strerror(errno));
    if (S_ISDIR(b->in_file.st_mode))
        return dg_fail(err, DGEMMA_E_IO, "%s: it is a folder", b->opt.in);
    dg_line_reader_init(&b->lines, b->in, b->own_in ? b->opt.in : "standard input",
                        b->opt.max_line_bytes);
    return count_lines(b, err);
}

/* Nothing is written where it would replace what is read. */
static dgemma_status check_paths(const dg_batch *b, dgemma_error *err)
{
    struct stat out;
    if (!stat(b->opt.out, &out) && same_file(&out, &b->in_file))
        return dg_fail(err, DGEMMA_E_ARG, "%s: it is the file of requests", b->opt.out);
    if (!strcmp(b->opt.out, b->opt.errors))
        return dg_fail(err, DGEMMA_E_ARG, "%s: answers and errors go to two files", b->opt.out);
    return DGEMMA_OK;
}

/* When the file of answers is there: a name of its own may be another name of that one. */
static dgemma_status open_errors(dg_batch *b, dgemma_error *err)
{
    struct stat errors;
    if (!stat(b->opt.errors, &errors) &&
        (same_file(&errors, &b->in_file) || same_file(&errors, &b->out.file)))
        return dg_fail(err, DGEMMA_E_ARG, "%s: it is not for errors alone", b->opt.errors);
    return dg_batch_output_create(&b->errors, b->opt.errors, err);
}

dgemma_status dg_batch_open(dg_batch **out, const dg_batch_options *opt, dgemma_error *err)
{
    dg_batch *b = dg_calloc(1, sizeof *b);
    if (!b)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    b->opt = *opt;
    b->failed = dg_calloc(opt->models ? opt->models->n : 1, sizeof *b->failed);
    if (!b->failed) {
        dg_free(b);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    b->in = b->out.fd = b->errors.fd = -1;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->bell, &attr);
    pthread_condattr_destroy(&attr);
    dg_batch_ids_init(&b->ids, 2 * (size_t)DG_BATCH_LINES);
    dgemma_status st = open_input(b, err);
    if (!st)
        st = check_paths(b, err);
    if (!st)
        st = dg_batch_output_open(&b->out, opt->out, &b->ids, err);
    if (!st)
        st = open_errors(b, err);
    if (st) {
        dg_batch_free(b);
        return st;
    }
    *out = b;
    return DGEMMA_OK;
}

void dg_batch_free(dg_batch *b)
{
    if (!b)
        return;
    dg_hold_drop(&b->hold);
    dg_free(b->failed);
    dg_batch_output_close(&b->out, false, NULL);
    dg_batch_output_close(&b->errors, true, NULL);
    if (b->own_in && b->in >= 0)
        close(b->in);
    dg_line_reader_clear(&b->lines);
    dg_batch_ids_clear(&b->ids);
    dg_metrics_free(b->metrics);
    dg_constraint_cache_free(b->setup.limits.constraints);
    pthread_cond_destroy(&b->bell);
    pthread_mutex_destroy(&b->lock);
    dg_free(b);
}

/* ---- waiting ---- */

static void ring(void *batch)
{
    dg_batch *b = batch;
    pthread_mutex_lock(&b->lock);
    b->rung = true;
    pthread_cond_signal(&b->bell);
    pthread_mutex_unlock(&b->lock);
}

static void wait_for_bell(dg_batch *b)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 200000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&b->lock);
    int late = 0;
    while (!b->rung && !late)
        late = pthread_cond_timedwait(&b->bell, &b->lock, &until);
    b->rung = false;
    pthread_mutex_unlock(&b->lock);
}

/* ---- writing ---- */

static dgemma_status write_error(dg_batch *b, const dg_batch_line *l, const dg_http_error *e,
                                 dgemma_error *err)
{
    static const char nothing[] = "000000000000000000000000";
    dg_buf line;
    dg_buf_init(&line, 1 << 16);
    dgemma_status st = dg_batch_error_print(&line, l->custom_id, l->mark[0] ? l->mark : nothing,
                                            b->lines.number, e)
                           ? dg_batch_output_append(&b->errors, line.data, line.len, err)
                           : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_buf_clear(&line);
    b->sum.n_failed++;
    return st;
}

static dgemma_status write_answer(dg_batch *b, const dg_batch_job *j, dgemma_error *err)
{
    bool good = j->x.status == 200 && !j->x.full;
    dg_buf line;
    dg_buf_init(&line, (size_t)DG_OUT_MAX + (1 << 16));
    if (!good && j->x.status >= 500 && b->setup.engine && dgemma_engine_check(b->setup.engine, err))
        return err ? err->status : DGEMMA_E_INTERNAL; /* nothing will be answered any more */
    dgemma_status st =
        dg_batch_answer_print(&line, j->custom_id, j->mark, j->x.status, j->x.out.data,
                              j->x.out.len)
            ? dg_batch_output_append(good ? &b->out : &b->errors, line.data, line.len, err)
            : dg_fail(err, DGEMMA_E_NOMEM, "out of memory for an answer");
    dg_buf_clear(&line);
    b->sum.n_failed += !good;
    b->sum.n_answer += good;
    b->sum.n_token += good ? j->n_token : 0;
    return st;
}

/* ---- lines ---- */

/* Whether the line is to be asked. False with e->status 0: its answer is there. */
static bool is_new(dg_batch *b, const dg_batch_line *l, dg_http_error *e)
{
    dg_batch_id *id = dg_batch_ids_get(&b->ids, l->custom_id);
    e->status = 0;
    if (!id)
        return dg_refuse(e, 400, "limit_exceeded", "custom_id",
                         "requests and answers have more than %zu names, or memory is out",
                         b->ids.max);
    if (id->line && id->line != b->lines.number)
        return dg_refuse(e, 400, "duplicate_custom_id", "custom_id",
                         "custom_id: line %llu has the same", (unsigned long long)id->line);
    id->line = b->lines.number;
    if (!id->mark[0])
        return true;
    if (strcmp(id->mark, l->mark) != 0)
        return dg_refuse(e, 400, "changed", "custom_id",
                         "custom_id: %.200s has an answer to another request under this name",
                         b->opt.out);
    b->sum.n_known++;
    return false;
}

/* Takes it off the list and writes what became of it. */
static dgemma_status end_job(dg_batch *b, dg_batch_job **at, dgemma_error *err)
{
    dg_batch_job *j = *at;
    *at = j->next;
    b->n_ahead -= j->n_answer;
    b->room = true;
    dgemma_status st = write_answer(b, j, err);
    dg_batch_job_free(j);
    return st;
}

static dgemma_status end_jobs(dg_batch *b, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    for (dg_batch_job **at = &b->jobs; *at && !st;)
        if (dg_batch_job_done(*at))
            st = end_job(b, at, err);
        else
            at = &(*at)->next;
    return st;
}

/* Takes what came, writes it, and tells who waits for news. */
static dgemma_status hear(void *batch, dgemma_error *err)
{
    dg_batch *b = batch;
    dgemma_status st = end_jobs(b, err);
    if (!st)
        st = dg_batch_output_sync(&b->out, err);
    if (!st)
        st = dg_batch_output_sync(&b->errors, err);
    b->sum.n_byte = b->out.size + b->errors.size;
    b->sum.n_running = b->n_ahead;
    if (!st && !b->opt.tick(b->opt.tick_user, &b->sum))
        st = dg_fail(err, DGEMMA_E_CANCELLED, "stopped");
    return st;
}

/* What others hold, pictures mostly, it can have when they are through. */
static void hold(dg_batch *b, dg_batch_job *j)
{
    b->held = true;
    b->room = false;
    while (!dg_batch_job_done(j)) /* what of it was asked has been told to end */
        wait_for_bell(b);
    dg_batch_job_free(j);
}

static dg_http_error *failure_of(dg_batch *b, const dg_model *m)
{
    return &b->failed[m - b->opt.models->list];
}

/* The model that the line asks, where there are several. WAITS: the line comes again when it is
 * there; FAILED: *e says why it cannot be asked. */
static dg_hold_state hold_model(dg_batch *b, const dg_batch_line *l, dg_http_error *e)
{
    dg_hold_state state = dg_hold_look(&b->hold, e);
    if (state == DG_HOLD_NONE) {
        dg_model *m = dg_models_choose(b->opt.models, l->body, e);
        bool lost = m && failure_of(b, m)->status;
        if (lost)
            *e = *failure_of(b, m);
        state = m && !lost ? dg_hold_take(&b->hold, m, ring, b) : DG_HOLD_FAILED;
    } else if (state == DG_HOLD_FAILED && e->status != 503) {
        *failure_of(b, b->hold.model) = *e;
    }
    b->held = state == DG_HOLD_WAITS;
    b->room = false;
    return state;
}

static dgemma_status ask(dg_batch *b, dg_batch_line *l, dgemma_error *err)
{
    dg_http_error why;
    dg_hold_state model = b->opt.models ? hold_model(b, l, &why) : DG_HOLD_NONE;
    if (model == DG_HOLD_WAITS)
        return DGEMMA_OK;
    dg_batch_job *j = dg_batch_job_start(&b->setup, l, b->lines.number, &b->hold,
                                         model == DG_HOLD_FAILED ? &why : NULL);
    if (!j)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a request");
    if (b->jobs && dg_batch_job_can_wait(j)) {
        hold(b, j);
        return DGEMMA_OK;
    }
    if (model == DG_HOLD_FAILED && why.status == 503) { /* later there may be room for it */
        dg_batch_job_free(j);
        return dg_fail(err, DGEMMA_E_BUSY, "%s", why.message);
    }
    j->next = b->jobs;
    b->jobs = j;
    b->n_ahead += j->n_answer;
    return dg_batch_job_done(j) ? end_job(b, &b->jobs, err) : DGEMMA_OK;
}

/* Asks what the line says, unless that is known, or nothing can be asked. */
static dgemma_status take_line(dg_batch *b, dgemma_error *err)
{
    const dg_line_reader *r = &b->lines;
    dg_batch_line l = {0};
    dg_http_error e = {0};
    bool ok = r->too_long ? dg_refuse(&e, 400, "line_too_long", NULL,
                                      "the line is longer than %zu MiB", r->max >> 20)
                          : dg_batch_line_read(&l, dg_line_text(r), dg_line_bytes(r), &e);
    dgemma_status st = DGEMMA_OK;
    if (ok && is_new(b, &l, &e))
        st = ask(b, &l, err);
    else if (e.status)
        st = write_error(b, &l, &e, err);
    dg_batch_line_clear(&l);
    return st;
}

static dgemma_status next_line(dg_batch *b, dgemma_error *err)
{
    dg_line_reader *r = &b->lines;
    bool more = true;
    dgemma_status st = dg_line_next(r, &more, err);
    b->at_end = !more;
    if (!st && more)
        dg_line_skip_mark(r);
    return st;
}

/* Those whom it pauses for may need the room of the model that the line asks: it would wait for
 * them, and they for it. The line comes again. */
static void let_go(dg_batch *b)
{
    if (!b->hold.model)
        return;
    dg_hold_drop(&b->hold);
    b->room = true;
}

static bool is_full(const dg_batch *b)
{
    dg_http_error e;
    bool waits = b->held && !b->room && dg_hold_look(&b->hold, &e) <= DG_HOLD_WAITS;
    return b->paused || b->n_ahead >= (size_t)b->opt.n_ahead || waits;
}

/* Some lines, so that who waits for news hears it. */
static dgemma_status take_lines(dg_batch *b, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; i < 64 && !st && (b->held || !b->at_end); i++) {
        b->paused = b->opt.may_ask && !b->opt.may_ask(b->opt.tick_user);
        if (b->paused && b->held)
            let_go(b);
        if (is_full(b))
            break;
        if (!b->held)
            st = next_line(b, err);
        b->held = false;
        if (!st && !b->at_end && !dg_line_is_blank(&b->lines))
            st = take_line(b, err);
    }
    return st;
}

/* ---- running ---- */

static void cancel_jobs(dg_batch *b)
{
    for (dg_batch_job *j = b->jobs; j; j = j->next)
        dg_batch_job_cancel(j);
    while (b->jobs) {
        dg_batch_job *j = b->jobs;
        while (!dg_batch_job_done(j))
            wait_for_bell(b);
        b->jobs = j->next;
        dg_batch_job_free(j);
    }
}

static void count_foreign(dg_batch *b)
{
    for (size_t i = 0; i < b->ids.n; i++)
        b->sum.n_foreign += !b->ids.list[i].line;
}

dgemma_status dg_batch_run(dg_batch *b, dgemma_engine *engine, dg_batch_progress *sum,
                           dgemma_error *err)
{
    dgemma_model_info info = {0};
    if (engine)
        dgemma_engine_info(engine, &info);
    b->metrics = b->opt.metrics ? NULL : dg_metrics_create();
    b->setup = (dg_batch_setup){
        .engine = engine,
        .metrics = b->metrics ? b->metrics : b->opt.metrics,
        .cache_salt = b->opt.cache_salt,
        .model_name = b->opt.model_name,
        .decision_temperature = b->opt.decision_temperature,
        .limits = {.n_vocab = info.n_vocab,
                   .max_choices = b->opt.max_choices,
                   .max_images = b->opt.max_images,
                   .constraints = dg_constraint_cache_create()},
        .notify = ring,
        .notify_user = b,
    };
    if (engine)
        b->setup.limits.defaults = dgemma_request_defaults(engine);
    dgemma_status st = b->setup.metrics && b->setup.limits.constraints
                           ? DGEMMA_OK
                           : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st)
        st = dg_batch_output_empty(&b->errors, err);
    b->lines.idle = S_ISREG(b->in_file.st_mode) ? NULL : hear;
    b->lines.idle_user = b;
    while (!st && (!b->at_end || b->held || b->jobs)) {
        st = take_lines(b, err);
        if (!st)
            st = hear(b, err);
        if (!st && (b->jobs || b->paused || b->held) && (is_full(b) || (b->at_end && !b->held)))
            wait_for_bell(b);
    }
    cancel_jobs(b);
    dgemma_error late = {0};
    dgemma_status closed = dg_batch_output_close(&b->out, false, &late);
    if (!st && closed) {
        st = closed;
        *err = late;
    }
    if (!st)
        count_foreign(b);
    *sum = b->sum;
    return st;
}
