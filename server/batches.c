#include "batches.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/common.h"
#include "call_body.h"
#include "files.h"
#include "json_fields.h"
#include "json_text.h"
#include "query.h"

/* ---- rows ---- */

static void copy(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text ? text : "");
}

#define ROW "id, owner, status, endpoint, input, output, errors, expires"

static void read_row(dg_batch_row *b, const dg_rows *r)
{
    copy(b->id, sizeof b->id, dg_rows_text(r, 0));
    copy(b->owner, sizeof b->owner, dg_rows_text(r, 1));
    copy(b->status, sizeof b->status, dg_rows_text(r, 2));
    copy(b->endpoint, sizeof b->endpoint, dg_rows_text(r, 3));
    copy(b->input, sizeof b->input, dg_rows_text(r, 4));
    copy(b->output, sizeof b->output, dg_rows_text(r, 5));
    copy(b->errors, sizeof b->errors, dg_rows_text(r, 6));
    b->expires = dg_rows_int(r, 7);
}

/* ---- which is next ---- */

dgemma_status dg_batches_rest(dg_state *s, const char *id, dgemma_error *err)
{
    enum { FIRST_SECONDS = 5, MOST_SECONDS = 60 };
    return dg_database_do(s->db, err,
                          "INSERT INTO resting(id, seconds, until) VALUES(?, ?, ?) ON CONFLICT(id)"
                          " DO UPDATE SET seconds=MIN(2*seconds, ?), until=?+MIN(2*seconds, ?)",
                          "siiiii", id, (int64_t)FIRST_SECONDS, dg_state_now() + FIRST_SECONDS,
                          (int64_t)MOST_SECONDS, dg_state_now(), (int64_t)MOST_SECONDS);
}

bool dg_batches_next(dg_state *s, const char *last_owner, dg_batch_row *out, dgemma_error *err)
{
    dg_rows r = dg_rows_open(s->db, err,
                             "SELECT " ROW " FROM batches WHERE " DG_BATCH_IS_OPEN
                             " AND id NOT IN (SELECT id FROM resting WHERE until>?)"
                             " ORDER BY status NOT IN ('finalizing', 'cancelling') AND expires>?,"
                             " owner=?, seq LIMIT 1",
                             "iis", dg_state_now(), dg_state_now(), last_owner);
    bool found = dg_rows_next(&r, err);
    if (found) {
        read_row(out, &r);
        strcpy(s->running, out->id);
    }
    return !dg_rows_close(&r) && found;
}

bool dg_batches_others(dg_state *s, const char *owner)
{
    dg_rows r = dg_rows_open(
        s->db, NULL, "SELECT 1 FROM batches WHERE " DG_BATCH_IS_OPEN " AND owner<>?", "s", owner);
    bool found = dg_rows_next(&r, NULL);
    dg_rows_close(&r);
    return found;
}

dgemma_status dg_batches_set(dg_state *s, const char *id, const char *status, const char *faults,
                             dgemma_error *err)
{
    char sql[256]; /* the states are columns too, with the time of each */
    snprintf(sql, sizeof sql,
             "UPDATE batches SET status='%s', %s_at=?, faults=COALESCE(?, faults) WHERE id=?"
             " AND (status<>'cancelling' OR '%s'<>'in_progress')", /* who cancelled was told so */
             status, status, status);
    return dg_database_do(s->db, err, sql, "iss", dg_state_now(), faults, id);
}

dgemma_status dg_batches_count(dg_state *s, const char *id, uint64_t total, uint64_t completed,
                               uint64_t failed, dgemma_error *err)
{
    return dg_database_do(s->db, err,
                          "UPDATE batches SET total=?, completed=?, failed=? WHERE id=?", "iiis",
                          (int64_t)total, (int64_t)completed, (int64_t)failed, id);
}

/* ---- what one has written ---- */

static uint64_t size_of(const dg_state *s, const char *name)
{
    struct stat file;
    bool is_there = !fstatat(s->folder_fd, name, &file, AT_SYMLINK_NOFOLLOW);
    return is_there && S_ISREG(file.st_mode) ? (uint64_t)file.st_size : 0;
}

uint64_t dg_batches_written(const dg_state *s, const dg_batch_row *b)
{
    return size_of(s, b->output) + size_of(s, b->errors);
}

dgemma_status dg_batches_mend(dg_state *s, dgemma_error *err)
{
    dg_batch_row b;
    dg_rows r = dg_rows_open(s->db, err, "SELECT " ROW " FROM batches WHERE " DG_BATCH_IS_OPEN, "");
    while (dg_rows_next(&r, err)) {
        read_row(&b, &r);
        s->bytes += dg_batches_written(s, &b);
    }
    return dg_rows_close(&r);
}

/* ---- the end of one ---- */

/* How many lines and bytes a file has, both 0 where it is not there. It is on the disk then. */
static dgemma_status measure(const dg_state *s, const char *name, int64_t *lines, int64_t *bytes,
                             dgemma_error *err)
{
    char piece[1 << 14];
    int fd = openat(s->folder_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return DGEMMA_OK;
    ssize_t n = -1;
    while (fd >= 0 && (n = read(fd, piece, sizeof piece)) > 0) {
        *bytes += n;
        for (ssize_t i = 0; i < n; i++)
            *lines += piece[i] == '\n';
    }
    bool failed = n < 0 || fsync(fd);
    int why = errno;
    if (fd >= 0)
        close(fd);
    return failed ? dg_fail(err, DGEMMA_E_IO, "%s: %s", name, strerror(why)) : DGEMMA_OK;
}

dgemma_status dg_batches_measure(const dg_state *s, const dg_batch_row *b, dg_batch_size *out,
                                 dgemma_error *err)
{
    *out = (dg_batch_size){0};
    dgemma_status st = measure(s, b->output, &out->n_answer, &out->answer_bytes, err);
    if (!st)
        st = measure(s, b->errors, &out->n_error, &out->error_bytes, err);
    if (!st && fsync(s->folder_fd)) /* their names */
        st = dg_fail(err, DGEMMA_E_IO, "the folder of files: %s", strerror(errno));
    return st;
}

static dgemma_status is_open(dg_state *s, const char *id, bool *open, dgemma_error *err)
{
    dg_rows r =
        dg_rows_open(s->db, err, "SELECT 1 FROM batches WHERE id=? AND " DG_BATCH_IS_OPEN, "s", id);
    *open = dg_rows_next(&r, err);
    return dg_rows_close(&r);
}

/* One of its two files, which is none where nothing was written. */
static dgemma_status adopt(dg_state *s, const dg_batch_row *b, const char *name, const char *kind,
                           int64_t bytes, dgemma_error *err)
{
    char filename[DG_STATE_ID + 32];
    snprintf(filename, sizeof filename, "%s_%s.jsonl", b->id, kind);
    return bytes ? dg_files_adopt(s, b->owner, name, filename, bytes, err) : DGEMMA_OK;
}

static dgemma_status close_row(dg_state *s, const dg_batch_row *b, const char *status,
                               const dg_batch_size *size, dgemma_error *err)
{
    dgemma_status st = dg_database_do(
        s->db, err,
        "UPDATE batches SET completed=?, failed=?, has_output=?, has_errors=? WHERE id=?", "iiiis",
        size->n_answer, size->n_error, (int64_t)(size->n_answer > 0), (int64_t)(size->n_error > 0),
        b->id);
    return st ? st : dg_batches_set(s, b->id, status, NULL, err);
}

dgemma_status dg_batches_finish(dg_state *s, const dg_batch_row *b, const char *status,
                                const dg_batch_size *size, uint64_t counted, dgemma_error *err)
{
    bool open = false;
    dgemma_status st = is_open(s, b->id, &open, err);
    if (st || !open) /* somebody else was faster */
        return st;
    st = dg_state_begin(s, err);
    if (st)
        return st;
    st = adopt(s, b, b->output, "output", size->answer_bytes, err);
    if (!st)
        st = adopt(s, b, b->errors, "error", size->error_bytes, err);
    if (!st)
        st = close_row(s, b, status, size, err);
    st = dg_state_end(s, st, err);
    if (!st)
        dg_state_recount(s, counted, (uint64_t)(size->answer_bytes + size->error_bytes));
    if (!st && !size->answer_bytes)
        unlinkat(s->folder_fd, b->output, 0);
    return st;
}

/* ---- the object ---- */

#define COLUMNS                                                                                    \
    ROW ", completion_window, metadata, faults, has_output, has_errors, total, completed, failed," \
        " created, in_progress_at, finalizing_at, completed_at, failed_at, expired_at,"            \
        " cancelling_at, cancelled_at"

static json_t *time_or_null(const dg_rows *r, int column)
{
    int64_t at = dg_rows_int(r, column);
    return at ? json_integer((json_int_t)at) : json_null();
}

static json_t *json_or_null(const char *text)
{
    return text ? json_loads(text, JSON_DECODE_ANY, NULL) : json_null();
}

static json_t *batch_object(const dg_rows *r)
{
    static const struct {
        const char *name;
        int column;
    } times[] = {{"created_at", 16},    {"in_progress_at", 17}, {"expires_at", 7},
                 {"finalizing_at", 18}, {"completed_at", 19},   {"failed_at", 20},
                 {"expired_at", 21},    {"cancelling_at", 22},  {"cancelled_at", 23}};
    const char *faults = dg_rows_text(r, 10);
    json_t *o = json_pack(
        "{s:s,s:s,s:s,s:o,s:s,s:s,s:s,s:s?,s:s?,s:{s:I,s:I,s:I},s:o}", "id", dg_rows_text(r, 0),
        "object", "batch", "endpoint", dg_rows_text(r, 3), "errors",
        faults ? json_pack("{s:s,s:o}", "object", "list", "data", json_or_null(faults))
               : json_null(),
        "input_file_id", dg_rows_text(r, 4), "completion_window", dg_rows_text(r, 8), "status",
        dg_rows_text(r, 2), "output_file_id", dg_rows_int(r, 11) ? dg_rows_text(r, 5) : NULL,
        "error_file_id", dg_rows_int(r, 12) ? dg_rows_text(r, 6) : NULL, "request_counts", "total",
        (json_int_t)dg_rows_int(r, 13), "completed", (json_int_t)dg_rows_int(r, 14), "failed",
        (json_int_t)dg_rows_int(r, 15), "metadata", json_or_null(dg_rows_text(r, 9)));
    for (size_t i = 0; i < DG_COUNT(times); i++)
        dg_json_put(&o, times[i].name, time_or_null(r, times[i].column));
    return o;
}

/* The lock is held. NULL: *e says why. */
static json_t *find_batch(dg_state *s, const char *owner, const char *id, dg_batch_row *row,
                          dg_http_error *e)
{
    dgemma_error err = {0};
    json_t *found = NULL;
    dg_rows r = dg_rows_open(s->db, &err, "SELECT " COLUMNS " FROM batches WHERE id=? AND owner=?",
                             "ss", id, owner);
    bool is_there = dg_rows_next(&r, &err);
    if (is_there) {
        read_row(row, &r);
        found = batch_object(&r);
    }
    if (dg_rows_close(&r))
        dg_state_refuse(s, e, &err);
    else if (is_there)
        dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
    else
        dg_refuse(e, 404, "not_found", "batch_id", "there is no batch \"%.64s\"", id);
    return found;
}

/* ---- making one ---- */

typedef struct wish {
    const char *input, *endpoint, *window;
    int64_t seconds;
    char *metadata; /* owned by jansson; NULL: none */
} wish;

/* "24h", OpenAI's only one, and others: numbers of hours, minutes or seconds. */
static int64_t read_window(const char *text)
{
    char *unit = NULL;
    long n = strspn(text, "0123456789") && strlen(text) < 8 ? strtol(text, &unit, 10) : 0;
    int64_t each = !unit                ? 0
                   : !strcmp(unit, "h") ? 3600
                   : !strcmp(unit, "m") ? 60
                                        : !strcmp(unit, "s");
    return n * each;
}

static bool read_metadata(const json_t *root, wish *w, dg_http_error *e)
{
    enum { MAX_PAIRS = 16, MAX_NAME = 64, MAX_VALUE = 512 }; /* OpenAI's */
    json_t *metadata, *v;
    const char *key;
    if (!dg_field_object(root, "metadata", &metadata, e))
        return false;
    bool ok = json_object_size(metadata) <= MAX_PAIRS;
    json_object_foreach(metadata, key, v)
    {
        ok = ok && strlen(key) <= MAX_NAME && json_is_string(v) &&
             json_string_length(v) <= MAX_VALUE;
    }
    if (!ok)
        return dg_refuse(e, 400, "invalid_value", "metadata",
                         "metadata: wanted up to %d texts of %d bytes, with names of %d", MAX_PAIRS,
                         MAX_VALUE, MAX_NAME);
    w->metadata = metadata ? json_dumps(metadata, JSON_COMPACT) : NULL;
    return !metadata || w->metadata || dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
}

static bool read_wish(const json_t *root, wish *w, dg_http_error *e)
{
    static const char *const endpoints[] = {"/v1/chat/completions", "/v1/completions",
                                            "/v1/responses"};
    enum { MAX_SECONDS = 7 * 86400 };
    size_t i = 0;
    if (!dg_field_string(root, "input_file_id", &w->input, e) ||
        !dg_field_string(root, "endpoint", &w->endpoint, e) ||
        !dg_field_string(root, "completion_window", &w->window, e))
        return false;
    while (w->endpoint && i < DG_COUNT(endpoints) && strcmp(w->endpoint, endpoints[i]) != 0)
        i++;
    if (!w->endpoint || i == DG_COUNT(endpoints))
        return dg_refuse(e, 400, "invalid_value", "endpoint",
                         "endpoint: /v1/chat/completions, /v1/completions and /v1/responses are "
                         "possible");
    if (!w->input)
        return dg_refuse(e, 400, "missing_field", "input_file_id",
                         "input_file_id: wanted the id of a file");
    w->seconds = w->window ? read_window(w->window) : 0;
    if (w->seconds < 1 || w->seconds > MAX_SECONDS)
        return dg_refuse(e, 400, "invalid_value", "completion_window",
                         "completion_window: wanted \"24h\", or another time up to 168h");
    return read_metadata(root, w, e);
}

/* Room for one more row: the oldest that is over goes where there are too many. */
static dgemma_status make_room(dg_state *s, const char *owner, bool *has, dgemma_error *err)
{
    int64_t n = 0;
    dgemma_status st =
        dg_database_do(s->db, err, "DELETE FROM batches WHERE created<? AND NOT " DG_BATCH_IS_OPEN,
                       "i", dg_state_now() - s->limits.keep_seconds);
    if (st)
        return st;
    dg_rows r = dg_rows_open(s->db, err, "SELECT COUNT(*) FROM batches WHERE owner=?", "s", owner);
    if (dg_rows_next(&r, err))
        n = dg_rows_int(&r, 0);
    st = dg_rows_close(&r);
    *has = n < s->limits.max_batches;
    if (st || *has)
        return st;
    st = dg_database_do(s->db, err,
                        "DELETE FROM batches WHERE seq=(SELECT MIN(seq) FROM batches WHERE owner=? "
                        "AND NOT " DG_BATCH_IS_OPEN ")",
                        "s", owner);
    *has = dg_database_changes(s->db) > 0;
    return st;
}

/* The lock is held. */
static json_t *add_batch(dg_state *s, const char *owner, const wish *w, dg_http_error *e)
{
    dgemma_error err = {0};
    dg_batch_row row;
    char id[DG_STATE_ID], output[DG_STATE_ID], errors[DG_STATE_ID];
    bool has_room = false;
    int64_t now = dg_state_now();
    if (!dg_files_is_there(s, owner, w->input, e))
        return NULL;
    dgemma_status st = make_room(s, owner, &has_room, &err);
    if (!st && !has_room) {
        dg_refuse(e, 429, "too_many_batches", NULL, "%d batches are waiting already",
                  s->limits.max_batches);
        return NULL;
    }
    if (!st && (!dg_state_name(id, "batch_") || !dg_state_name(output, "file-") ||
                !dg_state_name(errors, "file-")))
        st = dg_fail(&err, DGEMMA_E_INTERNAL, "no random bytes are to be had");
    if (!st)
        st = dg_database_do(s->db, &err,
                            "INSERT INTO batches(id, owner, status, endpoint, input, output,"
                            " errors, completion_window, metadata, created, expires)"
                            " VALUES(?, ?, 'validating', ?, ?, ?, ?, ?, ?, ?, ?)",
                            "ssssssssii", id, owner, w->endpoint, w->input, output, errors,
                            w->window, w->metadata, now, now + w->seconds);
    if (st) {
        dg_state_refuse(s, e, &err);
        return NULL;
    }
    pthread_cond_signal(&s->bell);
    return find_batch(s, owner, id, &row, e);
}

/* ---- routes ---- */

static void answer(dg_call *c, json_t *body, const dg_http_error *e)
{
    if (body)
        dg_exchange_reply(&c->x, 200, body);
    else
        dg_exchange_refuse(&c->x, e);
}

void dg_batches_create(dg_call *c)
{
    dg_http_error e = {0};
    wish w = {0};
    json_t *batch = NULL;
    dg_state *s = dg_state_of(c);
    if (!s)
        return;
    json_t *root = dg_call_body(c, &e);
    if (root && read_wish(root, &w, &e)) {
        pthread_mutex_lock(&s->lock);
        batch = add_batch(s, dg_state_owner(c), &w, &e);
        pthread_mutex_unlock(&s->lock);
    }
    free(w.metadata);
    json_decref(root);
    answer(c, batch, &e);
}

static json_t *list_batches(dg_state *s, const char *owner, const char *query, dg_http_error *e)
{
    dgemma_error err = {0};
    dg_page p;
    if (!dg_page_read(&p, query, DG_STATE_ID, 20, 100, e))
        return NULL;
    const char *down = "SELECT " COLUMNS " FROM batches WHERE owner=? AND (?='' OR"
                       " seq<(SELECT seq FROM batches WHERE id=? AND owner=?))"
                       " ORDER BY seq DESC LIMIT ?",
               *up = "SELECT " COLUMNS " FROM batches WHERE owner=? AND (?='' OR"
                     " seq>(SELECT seq FROM batches WHERE id=? AND owner=?))"
                     " ORDER BY seq LIMIT ?";
    pthread_mutex_lock(&s->lock);
    dg_rows r = dg_rows_open(s->db, &err, p.ascending ? up : down, "ssssi", owner, p.after, p.after,
                             owner, (int64_t)p.limit + 1);
    json_t *list = dg_state_list(s, &r, batch_object, p.limit, &err, e);
    pthread_mutex_unlock(&s->lock);
    return list;
}

void dg_batches_list(dg_call *c)
{
    dg_http_error e = {0};
    dg_state *s = dg_state_of(c);
    if (s)
        answer(c, list_batches(s, dg_state_owner(c), c->query, &e), &e);
}

void dg_batches_get(dg_call *c)
{
    dg_http_error e = {0};
    dg_batch_row row;
    dg_state *s = dg_state_of(c);
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    json_t *batch = find_batch(s, dg_state_owner(c), c->path + strlen(c->route->path), &row, &e);
    pthread_mutex_unlock(&s->lock);
    answer(c, batch, &e);
}

/* One that is being worked at is ended by who does it, another one here: *ends is true, and nobody
 * writes to its files any more. The lock is held. */
static bool cancel(dg_state *s, const dg_batch_row *b, bool *ends, dg_http_error *e)
{
    dgemma_error err = {0};
    if (strcmp(b->status, "validating") != 0 && strcmp(b->status, "in_progress") != 0)
        return dg_refuse(e, 409, "invalid_state", NULL, "the batch is %s already", b->status);
    if (dg_batches_set(s, b->id, "cancelling", NULL, &err))
        return dg_state_refuse(s, e, &err);
    *ends = strcmp(s->running, b->id) != 0;
    if (!*ends)
        atomic_store(&s->cancels, true);
    return true;
}

/* Its files are read while others have the lock. */
static bool end_cancelled(dg_state *s, const dg_batch_row *b, dg_http_error *e)
{
    dgemma_error err = {0};
    dg_batch_size size;
    dgemma_status st = dg_batches_measure(s, b, &size, &err);
    if (!st) {
        pthread_mutex_lock(&s->lock);
        st = dg_batches_finish(s, b, "cancelled", &size,
                               (uint64_t)(size.answer_bytes + size.error_bytes), &err);
        pthread_mutex_unlock(&s->lock);
    }
    return !st || dg_state_refuse(s, e, &err);
}

void dg_batches_cancel(dg_call *c)
{
    dg_http_error e = {0};
    dg_batch_row row;
    char id[sizeof c->path];
    dg_state *s = dg_state_of(c);
    if (!s)
        return;
    strcpy(id, c->path + strlen(c->route->path));
    char *rest = strchr(id, '/');
    if (!rest || strcmp(rest, "/cancel") != 0) {
        dg_refuse(&e, 404, "not_found", NULL, "there is no %s", c->path);
        dg_exchange_refuse(&c->x, &e);
        return;
    }
    *rest = '\0';
    bool ends = false;
    pthread_mutex_lock(&s->lock);
    json_t *batch = find_batch(s, dg_state_owner(c), id, &row, &e);
    bool ok = batch && cancel(s, &row, &ends, &e);
    pthread_mutex_unlock(&s->lock);
    json_decref(batch);
    ok = ok && (!ends || end_cancelled(s, &row, &e));
    pthread_mutex_lock(&s->lock);
    batch = ok ? find_batch(s, dg_state_owner(c), id, &row, &e) : NULL;
    pthread_mutex_unlock(&s->lock);
    answer(c, batch, &e);
}
