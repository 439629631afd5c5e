/* SQLite, as far as the server needs it: statements with values, and rows. Where the library was
 * not there when dgemma was built, open() says so. One thread at a time. */
#ifndef DG_SERVER_DATABASE_H
#define DG_SERVER_DATABASE_H

#include <stdint.h>
#include "base/error.h"

typedef struct dg_database dg_database;

/* Opens the file, or makes it, for this process alone. What was committed is on the disk.
 * DGEMMA_E_BUSY: another process has it; DGEMMA_E_UNSUPPORTED: there is no SQLite here. */
dgemma_status dg_database_open(dg_database **out, const char *path, dgemma_error *err);
void dg_database_close(dg_database *d); /* NULL is fine */

/* A statement without rows. `types` has a letter for each of its question marks: s a text or NULL,
 * i an int64_t. DGEMMA_E_LIMIT: the disk is full; nothing was changed. */
dgemma_status dg_database_do(dg_database *d, dgemma_error *err, const char *sql, const char *types,
                             ...);

/* A statement with rows: next() until it is false, then close(), which says whether that was the
 * end of them. A text is there until the next row. */
typedef struct dg_rows {
    dg_database *of;
    void *statement; /* NULL: it failed */
    dgemma_status status;
} dg_rows;

dg_rows dg_rows_open(dg_database *d, dgemma_error *err, const char *sql, const char *types, ...);
bool dg_rows_next(dg_rows *r, dgemma_error *err);
int64_t dg_rows_int(const dg_rows *r, int column);
const char *dg_rows_text(const dg_rows *r, int column); /* NULL: it is NULL */
dgemma_status dg_rows_close(dg_rows *r);

/* Rows that the last statement changed. */
int dg_database_changes(const dg_database *d);

#endif
