#include "files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "json_text.h"
#include "multipart.h"
#include "query.h"
#include "state.h"

/* ---- the object ---- */

#define COLUMNS "id, bytes, created, expires, name, purpose"

static json_t *file_object(const dg_rows *r)
{
    return json_pack("{s:s,s:s,s:I,s:I,s:I,s:s,s:s,s:s,s:n}", "id", dg_rows_text(r, 0), "object",
                     "file", "bytes", (json_int_t)dg_rows_int(r, 1), "created_at",
                     (json_int_t)dg_rows_int(r, 2), "expires_at", (json_int_t)dg_rows_int(r, 3),
                     "filename", dg_rows_text(r, 4), "purpose", dg_rows_text(r, 5), "status",
                     "processed", "status_details");
}

static bool refuse_unknown(dg_http_error *e, const char *id)
{
    return dg_refuse(e, 404, "not_found", "file_id", "there is no file \"%.64s\"", id);
}

/* The lock is held. NULL: *e says why. */
static json_t *find_file(dg_state *s, const char *owner, const char *id, dg_http_error *e)
{
    dgemma_error err = {0};
    json_t *found = NULL;
    dg_rows r = dg_rows_open(s->db, &err,
                             "SELECT " COLUMNS " FROM files WHERE id=? AND owner=? AND expires>?",
                             "ssi", id, owner, dg_state_now());
    bool is_there = dg_rows_next(&r, &err);
    if (is_there && !(found = file_object(&r)))
        dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
    if (dg_rows_close(&r)) {
        json_decref(found);
        dg_state_refuse(s, e, &err);
        return NULL;
    }
    if (!is_there)
        refuse_unknown(e, id);
    return found;
}

bool dg_files_is_there(dg_state *s, const char *owner, const char *id, dg_http_error *e)
{
    json_t *file = find_file(s, owner, id, e);
    json_decref(file);
    return file != NULL;
}

static dgemma_status add_row(dg_state *s, const char *owner, const char *id, const char *filename,
                             const char *purpose, int64_t bytes, int64_t seconds, dgemma_error *err)
{
    int64_t now = dg_state_now();
    return dg_database_do(s->db, err,
                          "INSERT INTO files(id, owner, name, purpose, bytes, created, expires)"
                          " VALUES(?, ?, ?, ?, ?, ?, ?)",
                          "ssssiii", id, owner, filename, purpose, bytes, now, now + seconds);
}

dgemma_status dg_files_adopt(dg_state *s, const char *owner, const char *id, const char *filename,
                             int64_t bytes, dgemma_error *err)
{
    return add_row(s, owner, id, filename, "batch_output", bytes, s->limits.keep_seconds, err);
}

/* ---- what is gone, and what nobody knows ---- */

/* In SQL: batches that are not over. */
#define IN_USE                                                                                     \
    "SELECT 1 FROM batches WHERE status IN ('validating', 'in_progress', 'finalizing', "           \
    "'cancelling')"

/* The file first: where the disk is full, that makes room for the database to say so. A row without
 * a file is taken away by mend(). The lock is held. */
static dgemma_status forget(dg_state *s, const char *id, dgemma_error *err)
{
    if (unlinkat(s->folder_fd, id, 0) && errno != ENOENT)
        return dg_fail(err, DGEMMA_E_IO, "%s: %s", id, strerror(errno));
    return dg_database_do(s->db, err, "DELETE FROM files WHERE id=?", "s", id);
}

/* One whose time is up; *more is false when there is none. */
static dgemma_status forget_old(dg_state *s, bool *more, uint64_t *freed, dgemma_error *err)
{
    char id[DG_STATE_ID] = "";
    dg_rows r =
        dg_rows_open(s->db, err,
                     "SELECT id, bytes FROM files WHERE expires<=? AND NOT EXISTS(" IN_USE " AND "
                     "input=files.id) LIMIT 1",
                     "i", dg_state_now());
    *more = dg_rows_next(&r, err);
    if (*more) {
        strncat(id, dg_rows_text(&r, 0), sizeof id - 1);
        *freed += (uint64_t)dg_rows_int(&r, 1);
    }
    dgemma_status st = dg_rows_close(&r);
    return !st && *more ? forget(s, id, err) : st;
}

/* Some of them with one commit; the lock is held. */
static dgemma_status forget_some_old(dg_state *s, bool *more, dgemma_error *err)
{
    enum { AT_ONCE = 100 };
    uint64_t freed = 0;
    dgemma_status st = dg_state_begin(s, err);
    if (st)
        return st;
    for (int i = 0; i < AT_ONCE && *more && !st; i++)
        st = forget_old(s, more, &freed, err);
    st = dg_state_end(s, st, err);
    if (!st)
        s->bytes -= freed < s->bytes ? freed : s->bytes;
    return st;
}

/* Others have their turn in between. */
static dgemma_status forget_all_old(dg_state *s, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    for (bool more = true; more && !st;) {
        pthread_mutex_lock(&s->lock);
        st = forget_some_old(s, &more, err);
        pthread_mutex_unlock(&s->lock);
    }
    return st;
}

static dgemma_status count_bytes(dg_state *s, dgemma_error *err)
{
    dg_rows r = dg_rows_open(s->db, err, "SELECT COALESCE(SUM(bytes), 0) FROM files", "");
    if (dg_rows_next(&r, err))
        s->bytes = (uint64_t)dg_rows_int(&r, 0);
    return dg_rows_close(&r);
}

static dgemma_status knows_file(dg_state *s, const char *name, bool *known, dgemma_error *err)
{
    dg_rows r = dg_rows_open(
        s->db, err, "SELECT 1 FROM files WHERE id=? UNION " IN_USE " AND (output=? OR errors=?)",
        "sss", name, name, name);
    *known = dg_rows_next(&r, err);
    return dg_rows_close(&r);
}

/* Uploads that a killed process did not come to the end of. */
static dgemma_status remove_strays(dg_state *s, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    DIR *folder = opendir(s->folder);
    if (!folder)
        return dg_fail(err, DGEMMA_E_IO, "%s: %s", s->folder, strerror(errno));
    for (struct dirent *d; !st && (d = readdir(folder));) {
        bool known = true;
        if (!strncmp(d->d_name, "file-", 5))
            st = knows_file(s, d->d_name, &known, err);
        if (!st && !known)
            unlinkat(s->folder_fd, d->d_name, 0);
    }
    closedir(folder);
    return st;
}

/* Those that were being deleted. */
static dgemma_status remove_empty_rows(dg_state *s, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    for (bool again = true; again && !st;) {
        char id[DG_STATE_ID] = "";
        again = false;
        dg_rows r = dg_rows_open(s->db, err, "SELECT id FROM files", "");
        while (!again && dg_rows_next(&r, err)) {
            const char *name = dg_rows_text(&r, 0);
            again = faccessat(s->folder_fd, name, F_OK, 0) && errno == ENOENT;
            if (again)
                strncat(id, name, sizeof id - 1);
        }
        st = dg_rows_close(&r);
        if (!st && again)
            st = dg_database_do(s->db, err, "DELETE FROM files WHERE id=?", "s", id);
    }
    return st;
}

dgemma_status dg_files_mend(dg_state *s, dgemma_error *err)
{
    dgemma_status st = remove_strays(s, err);
    if (!st)
        st = remove_empty_rows(s, err);
    if (!st)
        st = forget_all_old(s, err);
    return st ? st : count_bytes(s, err);
}

/* ---- uploading ---- */

typedef struct upload {
    dg_multipart form;
    const dg_part *file, *purpose;
    int64_t seconds; /* that it is kept */
    char id[DG_STATE_ID];
} upload;

static bool part_says(const dg_part *p, const char *text)
{
    return p && p->len == strlen(text) && !memcmp(p->data, text, p->len);
}

/* expires_after[anchor] and expires_after[seconds]: sooner than the server would. */
static bool read_expiry(const dg_state *s, upload *u, dg_http_error *e)
{
    const dg_part *anchor = dg_multipart_get(&u->form, "expires_after[anchor]");
    const dg_part *seconds = dg_multipart_get(&u->form, "expires_after[seconds]");
    char text[12] = "";
    u->seconds = s->limits.keep_seconds;
    if (!anchor && !seconds)
        return true;
    if (seconds && seconds->len < sizeof text - 1)
        memcpy(text, seconds->data, seconds->len);
    size_t n = strspn(text, "0123456789");
    if (!part_says(anchor, "created_at") || !n || text[n] || strtoll(text, NULL, 10) < 1)
        return dg_refuse(e, 400, "invalid_value", "expires_after",
                         "expires_after: wanted the anchor created_at and a number of seconds");
    int64_t wanted = strtoll(text, NULL, 10);
    u->seconds = wanted < u->seconds ? wanted : u->seconds;
    return true;
}

static bool read_upload(const dg_state *s, const dg_call *c, upload *u, dg_http_error *e)
{
    if (!dg_multipart_read(&u->form, c->content_type, c->body.data ? c->body.data : "", c->body.len,
                           e))
        return false;
    for (size_t i = 0; i < u->form.n; i++) {
        const char *name = u->form.parts[i].name;
        if (strcmp(name, "file") != 0 && strcmp(name, "purpose") != 0 &&
            strncmp(name, "expires_after[", 14) != 0)
            return dg_refuse(e, 400, "unknown_field", NULL,
                             "\"%s\" is not known; file, purpose and expires_after are", name);
    }
    u->file = dg_multipart_get(&u->form, "file");
    u->purpose = dg_multipart_get(&u->form, "purpose");
    if (!u->file || !u->file->filename[0])
        return dg_refuse(e, 400, "missing_file", "file", "file: wanted a file, with its name");
    if (!u->file->len)
        return dg_refuse(e, 400, "empty_file", "file", "file: it is empty");
    if (!part_says(u->purpose, "batch"))
        return dg_refuse(e, 400, "invalid_value", "purpose",
                         "purpose: wanted \"batch\", the only one there is here");
    return read_expiry(s, u, e);
}

static dgemma_status write_all(int fd, const char *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fd, data + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return DGEMMA_E_IO;
        done += (size_t)n;
    }
    return fsync(fd) ? DGEMMA_E_IO : DGEMMA_OK;
}

/* Whole and on the disk, its name in the folder included. */
static dgemma_status write_file(dg_state *s, const char *id, const dg_part *file, dgemma_error *err)
{
    int fd = openat(s->folder_fd, id, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    dgemma_status st = fd < 0 ? DGEMMA_E_IO : write_all(fd, file->data, file->len);
    int why = errno;
    if (fd >= 0 && close(fd) && !st) {
        st = DGEMMA_E_IO;
        why = errno;
    }
    if (!st && fsync(s->folder_fd)) {
        st = DGEMMA_E_IO;
        why = errno;
    }
    bool full = why == ENOSPC || why == EDQUOT || why == EFBIG;
    return st ? dg_fail(err, full ? DGEMMA_E_LIMIT : st, "%s/%s: %s", s->folder, id, strerror(why))
              : DGEMMA_OK;
}

static bool has_room(dg_state *s, const char *owner, dg_http_error *e)
{
    dgemma_error err = {0};
    int64_t n = 0;
    dg_rows r = dg_rows_open(s->db, &err, "SELECT COUNT(*) FROM files WHERE owner=?", "s", owner);
    if (dg_rows_next(&r, &err))
        n = dg_rows_int(&r, 0);
    if (dg_rows_close(&r))
        return dg_state_refuse(s, e, &err);
    return n < s->limits.max_files ||
           dg_refuse(e, 507, "too_many_files", NULL, "%d files are kept already: delete some",
                     s->limits.max_files);
}

/* The row, and what a client is told; the lock is held. */
static json_t *add_upload(dg_state *s, const char *owner, const upload *u, dg_http_error *e)
{
    dgemma_error err = {0};
    if (!has_room(s, owner, e))
        return NULL;
    if (add_row(s, owner, u->id, u->file->filename, "batch", (int64_t)u->file->len, u->seconds,
                &err)) {
        dg_state_refuse(s, e, &err);
        return NULL;
    }
    return find_file(s, owner, u->id, e);
}

static json_t *keep(dg_state *s, const char *owner, const upload *u, dg_http_error *e)
{
    dgemma_error err = {0};
    json_t *answer = NULL;
    dgemma_status st = write_file(s, u->id, u->file, &err);
    pthread_mutex_lock(&s->lock);
    if (st)
        dg_state_refuse(s, e, &err);
    else
        answer = add_upload(s, owner, u, e);
    bool known = true; /* a commit that failed may have been one */
    if (!answer && (knows_file(s, u->id, &known, NULL) || !known))
        unlinkat(s->folder_fd, u->id, 0);
    pthread_mutex_unlock(&s->lock);
    return answer;
}

static json_t *take_upload(dg_state *s, dg_call *c, dg_http_error *e)
{
    upload u = {0};
    dgemma_error err = {0};
    if (!read_upload(s, c, &u, e))
        return NULL;
    if (forget_all_old(s, &err) || !dg_state_name(u.id, "file-")) {
        dg_state_refuse(s, e, &err);
        return NULL;
    }
    if (!dg_state_reserve(s, u.file->len, e))
        return NULL;
    json_t *answer = keep(s, dg_state_owner(c), &u, e);
    if (!answer)
        dg_state_release(s, u.file->len);
    return answer;
}

/* ---- routes ---- */

static void answer(dg_call *c, json_t *body, const dg_http_error *e)
{
    if (body)
        dg_exchange_reply(&c->x, 200, body);
    else
        dg_exchange_refuse(&c->x, e);
}

void dg_files_upload(dg_call *c)
{
    dg_http_error e = {0};
    dg_state *s = dg_state_of(c);
    if (s)
        answer(c, take_upload(s, c, &e), &e);
}

static json_t *list_files(dg_state *s, const char *owner, const char *query, dg_http_error *e)
{
    static const char up[] = "SELECT " COLUMNS " FROM files WHERE owner=? AND expires>? AND"
                             " (?='' OR purpose=?) AND (?='' OR seq>(SELECT seq FROM files WHERE"
                             " id=? AND owner=?)) ORDER BY seq LIMIT ?",
                      down[] = "SELECT " COLUMNS " FROM files WHERE owner=? AND expires>? AND"
                               " (?='' OR purpose=?) AND (?='' OR seq<(SELECT seq FROM files WHERE"
                               " id=? AND owner=?)) ORDER BY seq DESC LIMIT ?";
    dgemma_error err = {0};
    dg_page p;
    char purpose[32];
    if (!dg_page_read(&p, query, DG_STATE_ID, 10000, 10000, e) ||
        !dg_query_text(query, "purpose", purpose, sizeof purpose, e))
        return NULL;
    pthread_mutex_lock(&s->lock);
    dg_rows r =
        dg_rows_open(s->db, &err, p.ascending ? up : down, "sisssssi", owner, dg_state_now(),
                     purpose, purpose, p.after, p.after, owner, (int64_t)p.limit + 1);
    json_t *list = dg_state_list(s, &r, file_object, p.limit, &err, e);
    pthread_mutex_unlock(&s->lock);
    return list;
}

void dg_files_list(dg_call *c)
{
    dg_http_error e = {0};
    dg_state *s = dg_state_of(c);
    if (s)
        answer(c, list_files(s, dg_state_owner(c), c->query, &e), &e);
}

/* Opened while the lock is held: who deletes it then takes only its name. */
static void send_content(dg_call *c, dg_state *s, const char *id)
{
    dg_http_error e = {0};
    int fd = -1;
    json_int_t bytes = 0;
    pthread_mutex_lock(&s->lock);
    json_t *file = find_file(s, dg_state_owner(c), id, &e);
    if (file) {
        bytes = json_integer_value(json_object_get(file, "bytes"));
        fd = openat(s->folder_fd, id, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            dg_refuse(&e, 500, "storage_failed", NULL, "%s: %s", id, strerror(errno));
    }
    pthread_mutex_unlock(&s->lock);
    json_decref(file);
    if (fd < 0)
        dg_exchange_refuse(&c->x, &e);
    else
        dg_exchange_reply_file(&c->x, "application/octet-stream", fd, (size_t)bytes);
}

void dg_files_get(dg_call *c)
{
    dg_http_error e = {0};
    char id[sizeof c->path];
    dg_state *s = dg_state_of(c);
    if (!s)
        return;
    strcpy(id, c->path + strlen(c->route->path));
    char *rest = strchr(id, '/');
    if (rest && strcmp(rest, "/content") != 0) {
        refuse_unknown(&e, id);
        dg_exchange_refuse(&c->x, &e);
        return;
    }
    if (rest) {
        *rest = '\0';
        send_content(c, s, id);
        return;
    }
    pthread_mutex_lock(&s->lock);
    json_t *file = find_file(s, dg_state_owner(c), id, &e);
    pthread_mutex_unlock(&s->lock);
    answer(c, file, &e);
}

/* Whether a batch still reads it; the lock is held. */
static bool is_in_use(dg_state *s, const char *id, dg_http_error *e)
{
    dgemma_error err = {0};
    dg_rows r = dg_rows_open(s->db, &err, IN_USE " AND input=?", "s", id);
    bool used = dg_rows_next(&r, &err);
    if (dg_rows_close(&r)) /* nobody knows */
        return !dg_state_refuse(s, e, &err);
    return used &&
           !dg_refuse(e, 409, "file_in_use", "file_id", "a batch that is not over reads this file");
}

void dg_files_delete(dg_call *c)
{
    dg_http_error e = {0};
    dgemma_error err = {0};
    const char *id = c->path + strlen(c->route->path);
    dg_state *s = dg_state_of(c);
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    json_t *file = find_file(s, dg_state_owner(c), id, &e);
    bool used = file && is_in_use(s, id, &e);
    bool gone = file && !used && !forget(s, id, &err);
    uint64_t bytes = gone ? (uint64_t)json_integer_value(json_object_get(file, "bytes")) : 0;
    s->bytes -= bytes < s->bytes ? bytes : s->bytes;
    pthread_mutex_unlock(&s->lock);
    if (file && !used && !gone)
        dg_state_refuse(s, &e, &err);
    json_decref(file);
    answer(c, gone ? json_pack("{s:s,s:s,s:b}", "id", id, "object", "file", "deleted", 1) : NULL,
           &e);
}
