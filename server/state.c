#include "state.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "json_text.h"

enum { SCHEMA = 1 };

/* ---- small things ---- */

int64_t dg_state_now(void)
{
    return (int64_t)time(NULL);
}

static void print_hex(char *out, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

bool dg_state_name(char id[DG_STATE_ID], const char *prefix)
{
    unsigned char bytes[12];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    int n = snprintf(id, DG_STATE_ID, "%s", prefix);
    print_hex(id + n, bytes, sizeof bytes);
    return true;
}

const char *dg_state_owner(const dg_call *c)
{
    return c->key > 0 ? c->server->state->owners[c->key - 1] : "";
}

dg_state *dg_state_of(dg_call *c)
{
    dg_http_error e;
    if (c->server->state)
        return c->server->state;
    dg_refuse(&e, 501, "no_state", NULL,
              "%s: this server keeps nothing; it was started without --state DIR", c->path);
    dg_exchange_refuse(&c->x, &e);
    return NULL;
}

json_t *dg_state_page(json_t *data, bool has_more)
{
    size_t n = json_array_size(data);
    const json_t *first = json_object_get(json_array_get(data, 0), "id");
    const json_t *last = n ? json_object_get(json_array_get(data, n - 1), "id") : NULL;
    return json_pack("{s:s,s:o,s:s?,s:s?,s:b}", "object", "list", "data", data, "first_id",
                     json_string_value(first), "last_id", json_string_value(last), "has_more",
                     has_more);
}

json_t *dg_state_list(dg_state *s, dg_rows *rows, json_t *(*object)(const dg_rows *r), int limit,
                      dgemma_error *err, dg_http_error *e)
{
    json_t *list = json_array();
    bool more = false;
    while (!more && dg_rows_next(rows, err)) {
        more = json_array_size(list) == (size_t)limit;
        if (!more)
            dg_json_add(&list, object(rows));
    }
    if (!dg_rows_close(rows))
        return dg_state_page(list, more);
    json_decref(list);
    dg_state_refuse(s, e, err);
    return NULL;
}

/* ---- errors and room ---- */

bool dg_state_refuse(const dg_state *s, dg_http_error *e, dgemma_error *err)
{
    dg_hide_folder(err->msg, s->path);
    if (err->status == DGEMMA_E_LIMIT)
        return dg_refuse(e, 507, "insufficient_storage", NULL, "nothing can be kept: %s", err->msg);
    if (err->status == DGEMMA_E_NOMEM)
        return dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
    return dg_refuse(e, 500, "storage_failed", NULL, "nothing can be kept: %s", err->msg);
}

bool dg_state_reserve(dg_state *s, uint64_t bytes, dg_http_error *e)
{
    pthread_mutex_lock(&s->lock);
    bool fits = bytes <= s->limits.max_bytes && s->bytes <= s->limits.max_bytes - bytes;
    s->bytes += fits ? bytes : 0;
    pthread_mutex_unlock(&s->lock);
    return fits ||
           dg_refuse(e, 507, "insufficient_storage", NULL,
                     "all that is kept may have %llu MiB together, and there is no room "
                     "for %llu bytes more: delete something",
                     (unsigned long long)(s->limits.max_bytes >> 20), (unsigned long long)bytes);
}

void dg_state_release(dg_state *s, uint64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    s->bytes -= bytes < s->bytes ? bytes : s->bytes;
    pthread_mutex_unlock(&s->lock);
}

void dg_state_recount(dg_state *s, uint64_t counted, uint64_t bytes)
{
    s->bytes -= counted < s->bytes ? counted : s->bytes;
    s->bytes += bytes;
}

void dg_state_forget_response(dg_state *s, uint64_t bytes)
{
    s->bytes -= bytes < s->bytes ? bytes : s->bytes;
    s->response_bytes -= bytes < s->response_bytes ? bytes : s->response_bytes;
}

dgemma_status dg_state_begin(dg_state *s, dgemma_error *err)
{
    return dg_database_do(s->db, err, "BEGIN IMMEDIATE", "");
}

dgemma_status dg_state_end(dg_state *s, dgemma_status st, dgemma_error *err)
{
    if (!st)
        st = dg_database_do(s->db, err, "COMMIT", "");
    if (st)
        dg_database_do(s->db, NULL, "ROLLBACK", "");
    return st;
}

/* ---- opening ---- */

/* A key is not written down; who has the database cannot find it by trying the likely ones either,
 * as long as it is not a likely one. */
static bool hash_key(char out[DG_OWNER], const char *key)
{
    unsigned char digest[32];
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, key, strlen(key), digest))
        return false;
    print_hex(out, digest, (DG_OWNER - 1) / 2);
    return true;
}

static dgemma_status read_keys(dg_state *s, dg_words keys, dgemma_error *err)
{
    s->owners = dg_calloc(keys.n + 1, sizeof *s->owners);
    bool ok = s->owners != NULL;
    for (; ok && s->n_owner < keys.n; s->n_owner++)
        ok = hash_key(s->owners[s->n_owner], keys.words[s->n_owner]);
    return ok ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
}

static dgemma_status make_folder(const char *path, dgemma_error *err)
{
    if (mkdir(path, 0700) && errno != EEXIST)
        return dg_fail(err, DGEMMA_E_IO, "%s: cannot be made: %s", path, strerror(errno));
    return DGEMMA_OK;
}

static dgemma_status read_version(dg_state *s, int64_t *version, dgemma_error *err)
{
    dg_rows r = dg_rows_open(s->db, err, "PRAGMA user_version", "");
    if (dg_rows_next(&r, err))
        *version = dg_rows_int(&r, 0);
    return dg_rows_close(&r);
}

static const char *const tables[] = {
    "CREATE TABLE files(seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL "
    "UNIQUE,"
    " owner TEXT NOT NULL, name TEXT NOT NULL, purpose TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " created INTEGER NOT NULL, expires INTEGER NOT NULL)",
    "CREATE INDEX files_of ON files(owner, seq)",
    "CREATE TABLE batches(seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, status TEXT NOT NULL, endpoint TEXT NOT NULL,"
    " input TEXT NOT NULL, output TEXT NOT NULL, errors TEXT NOT NULL,"
    " completion_window TEXT NOT NULL, metadata TEXT, faults TEXT, has_output INTEGER, has_errors"
    " INTEGER, total INTEGER, completed INTEGER, failed INTEGER, created INTEGER NOT NULL, expires"
    " INTEGER NOT NULL, in_progress_at INTEGER, finalizing_at INTEGER, completed_at INTEGER,"
    " failed_at INTEGER, expired_at INTEGER, cancelling_at INTEGER, cancelled_at INTEGER)",
    "CREATE INDEX batches_of ON batches(owner, seq)",
    "CREATE INDEX batches_in ON batches(status, input)",
    "CREATE TABLE responses(seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, previous TEXT, bytes INTEGER NOT NULL,"
    " created INTEGER NOT NULL, expires INTEGER NOT NULL, body TEXT NOT NULL, input TEXT NOT NULL,"
    " output TEXT NOT NULL)",
    "CREATE INDEX responses_of ON responses(owner, seq)",
    "CREATE INDEX responses_until ON responses(expires)",
    "PRAGMA user_version=1",
};

static dgemma_status make_tables(dg_state *s, dgemma_error *err)
{
    int64_t version = 0;
    dgemma_status st = read_version(s, &version, err);
    if (!st && version == SCHEMA)
        return DGEMMA_OK; /* nothing is written: where the disk is full, it starts all the same */
    if (!st && version)
        st = dg_fail(err, DGEMMA_E_UNSUPPORTED,
                     "%s: it was written by another version of dgemma (%lld, this one has %d)",
                     s->folder, (long long)version, SCHEMA);
    if (st)
        return st;
    st = dg_state_begin(s, err);
    if (st)
        return st;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && !st; i++)
        st = dg_database_do(s->db, err, tables[i], "");
    return dg_state_end(s, st, err);
}

/* Which batches are not to be tried for a while. In memory: it can be written to where the disk
 * cannot. */
static dgemma_status make_resting(dg_state *s, dgemma_error *err)
{
    return dg_database_do(
        s->db, err,
        "CREATE TEMP TABLE resting(id TEXT PRIMARY KEY, seconds INTEGER, until INTEGER)", "");
}

dgemma_status dg_state_make_private(const char *path, dgemma_error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return dg_fail(err, DGEMMA_E_IO, "%s: %s", path, strerror(errno));
    close(fd);
    return DGEMMA_OK;
}

static dgemma_status open_folder(dg_state *s, const char *path, dgemma_error *err)
{
    char *database = dg_path_join(path, "state.db");
    s->path = dg_strdup(path);
    s->folder = dg_path_join(path, "files");
    dgemma_status st = database && s->path && s->folder
                           ? DGEMMA_OK
                           : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (!st)
        st = make_folder(path, err);
    if (!st)
        st = make_folder(s->folder, err);
    if (!st && (s->folder_fd = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        st = dg_fail(err, DGEMMA_E_IO, "%s: %s", s->folder, strerror(errno));
    if (!st)
        st = dg_state_make_private(database, err);
    if (!st)
        st = dg_database_open(&s->db, database, err);
    dg_free(database);
    return st;
}

dgemma_status dg_state_open(dg_state **out, const char *path, const dg_state_limits *limits,
                            dg_words keys, dgemma_error *err)
{
    dg_state *s = dg_calloc(1, sizeof *s);
    if (!s)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    s->limits = *limits;
    s->folder_fd = -1;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->bell, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&s->lock, NULL);
    dgemma_status st = read_keys(s, keys, err);
    if (!st)
        st = open_folder(s, path, err);
    if (!st)
        st = make_tables(s, err);
    if (!st)
        st = make_resting(s, err);
    if (st) {
        dg_state_close(s);
        return st;
    }
    *out = s;
    return DGEMMA_OK;
}

void dg_state_close(dg_state *s)
{
    if (!s)
        return;
    dg_database_close(s->db);
    if (s->folder_fd >= 0)
        close(s->folder_fd);
    pthread_cond_destroy(&s->bell);
    pthread_mutex_destroy(&s->lock);
    dg_free(s->path);
    dg_free(s->folder);
    dg_free(s->owners);
    dg_free(s);
}
