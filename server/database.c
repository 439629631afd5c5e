#include "database.h"
#include "base/alloc.h"

#if HAVE_SQLITE
#include <sqlite3.h>
#include <stdarg.h>
#include <string.h>

struct dg_database {
    sqlite3 *db;
    char *path;
};

static dgemma_status fail(const dg_database *d, dgemma_error *err)
{
    int code = sqlite3_errcode(d->db);
    switch (code & 0xff) {
    case SQLITE_FULL:
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: the disk is full", d->path);
    case SQLITE_BUSY:
        return dg_fail(err, DGEMMA_E_BUSY, "%s: another process has it open", d->path);
    case SQLITE_NOMEM:
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", d->path);
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: %s", d->path, sqlite3_errmsg(d->db));
    default:
        return dg_fail(err, DGEMMA_E_IO, "%s: %s", d->path, sqlite3_errmsg(d->db));
    }
}

/* ---- statements ---- */

static int bind(sqlite3_stmt *statement, const char *types, va_list values)
{
    int code = SQLITE_OK;
    for (int i = 1; *types && code == SQLITE_OK; i++, types++) {
        if (*types == 'i') {
            code = sqlite3_bind_int64(statement, i, va_arg(values, int64_t));
        } else {
            const char *text = va_arg(values, const char *);
            code = text ? sqlite3_bind_text64(statement, i, text, strlen(text), SQLITE_TRANSIENT,
                                              SQLITE_UTF8)
                        : sqlite3_bind_null(statement, i);
        }
    }
    return code;
}

static sqlite3_stmt *prepare(dg_database *d, const char *sql, const char *types, va_list values)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(d->db, sql, -1, &statement, NULL) == SQLITE_OK &&
        bind(statement, types, values) == SQLITE_OK)
        return statement;
    sqlite3_finalize(statement); /* the error stays that of what failed */
    return NULL;
}

dgemma_status dg_database_do(dg_database *d, dgemma_error *err, const char *sql, const char *types,
                             ...)
{
    va_list values;
    va_start(values, types);
    sqlite3_stmt *statement = prepare(d, sql, types, values);
    va_end(values);
    if (!statement)
        return fail(d, err);
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW)
        ; /* a pragma answers */
    dgemma_status st = code == SQLITE_DONE ? DGEMMA_OK : fail(d, err);
    sqlite3_finalize(statement);
    return st;
}

dg_rows dg_rows_open(dg_database *d, dgemma_error *err, const char *sql, const char *types, ...)
{
    dg_rows r = {.of = d};
    va_list values;
    va_start(values, types);
    r.statement = prepare(d, sql, types, values);
    va_end(values);
    r.status = r.statement ? DGEMMA_OK : fail(d, err);
    return r;
}

bool dg_rows_next(dg_rows *r, dgemma_error *err)
{
    int code = r->statement ? sqlite3_step(r->statement) : SQLITE_DONE;
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        r->status = fail(r->of, err);
    return code == SQLITE_ROW;
}

int64_t dg_rows_int(const dg_rows *r, int column)
{
    return sqlite3_column_int64(r->statement, column);
}

const char *dg_rows_text(const dg_rows *r, int column)
{
    return (const char *)sqlite3_column_text(r->statement, column);
}

dgemma_status dg_rows_close(dg_rows *r)
{
    sqlite3_finalize(r->statement);
    r->statement = NULL;
    return r->status;
}

int dg_database_changes(const dg_database *d)
{
    return sqlite3_changes(d->db);
}

/* ---- opening ---- */

/* With a write-ahead log that nobody shares, a commit is one append and one fsync, and a process
 * that is killed leaves nothing to repair. */
static dgemma_status settle(dg_database *d, dgemma_error *err)
{
    static const char *const pragmas[] = {
        "PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL",
        "PRAGMA temp_store=MEMORY",      "BEGIN EXCLUSIVE",         "COMMIT"};
    dgemma_status st = DGEMMA_OK;
    for (size_t i = 0; i < sizeof pragmas / sizeof *pragmas && !st; i++)
        st = dg_database_do(d, err, pragmas[i], "");
    return st;
}

dgemma_status dg_database_open(dg_database **out, const char *path, dgemma_error *err)
{
    dg_database *d = dg_calloc(1, sizeof *d);
    if (!d || !(d->path = dg_strdup(path))) {
        dg_free(d);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
    dgemma_status st = sqlite3_open_v2(path, &d->db, flags, NULL) == SQLITE_OK ? settle(d, err)
                       : d->db                                                 ? fail(d, err)
                               : dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", path);
    if (st) {
        dg_database_close(d);
        return st;
    }
    *out = d;
    return DGEMMA_OK;
}

void dg_database_close(dg_database *d)
{
    if (!d)
        return;
    sqlite3_close(d->db);
    dg_free(d->path);
    dg_free(d);
}

#else

dgemma_status dg_database_open(dg_database **out, const char *path, dgemma_error *err)
{
    (void)out;
    return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                   "%s: this dgemma was built without SQLite, which --state needs", path);
}

/* Nobody has one to call these with. */

void dg_database_close(dg_database *d)
{
    (void)d;
}

dgemma_status dg_database_do(dg_database *d, dgemma_error *err, const char *sql, const char *types,
                             ...)
{
    (void)d, (void)sql, (void)types;
    return dg_fail(err, DGEMMA_E_UNSUPPORTED, "this dgemma was built without SQLite");
}

dg_rows dg_rows_open(dg_database *d, dgemma_error *err, const char *sql, const char *types, ...)
{
    (void)sql, (void)types;
    return (dg_rows){.of = d, .status = dg_database_do(d, err, "", "")};
}

bool dg_rows_next(dg_rows *r, dgemma_error *err)
{
    (void)r, (void)err;
    return false;
}

int64_t dg_rows_int(const dg_rows *r, int column)
{
    (void)r, (void)column;
    return 0;
}

const char *dg_rows_text(const dg_rows *r, int column)
{
    (void)r, (void)column;
    return NULL;
}

dgemma_status dg_rows_close(dg_rows *r)
{
    return r->status;
}

int dg_database_changes(const dg_database *d)
{
    (void)d;
    return 0;
}
#endif
