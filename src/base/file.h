/* Files: mapped read-only, or read whole with a ceiling. */
#ifndef DG_BASE_FILE_H
#define DG_BASE_FILE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/error.h"

typedef struct dg_file_map {
    const unsigned char *data;
    size_t size;
    dev_t device; /* which file it is, whatever its name leads to now */
    ino_t inode;
    int fd; /* less 1: a map of {0} has none */
    atomic_bool patched;
} dg_file_map;

/* Maps a regular file; an empty one gives data == NULL, size == 0. As long as it is mapped it has a
 * lock for reading, so that it is nobody's new file (base/new_file.h), whatever it is called. */
dgemma_status dg_file_map_open(dg_file_map *map, const char *path, dgemma_error *err);
void dg_file_map_close(dg_file_map *map);

/* For a handler of SIGBUS, which says that the file was cut short: true when `address` is in the
 * map, which from its page on holds zeros now. */
bool dg_file_map_patch(dg_file_map *map, const void *address);

/* DGEMMA_E_IO: the file, opened as `path`, is shorter than its map, or was. */
dgemma_status dg_file_map_check(const dg_file_map *map, const char *path, dgemma_error *err);

/* Bytes that will not be needed soon, where they are in the map: their pages no longer count as
 * memory of this program, and are read again if they are needed after all. */
void dg_file_map_forget(const dg_file_map *map, const void *data, size_t size);

/* Whether it is the file that stat(2) told this of. */
struct stat;
bool dg_file_map_is(const dg_file_map *map, const struct stat *info);

/* Appends the whole file (a pipe or "-" for standard input works too) to *out. DGEMMA_E_LIMIT past
 * out->max. */
dgemma_status dg_file_read(dg_buf *out, const char *path, dgemma_error *err);

/* Opens a regular file to be read, and nothing else: a pipe could keep its reader waiting for ever.
 */
dgemma_status dg_file_open_regular(FILE **out, const char *path, dgemma_error *err);

/* As dg_file_read(), of such a file. */
dgemma_status dg_file_read_regular(dg_buf *out, const char *path, dgemma_error *err);

/* Bytes that may still be written into the folder that `path` lies in; UINT64_MAX: nobody knows. */
uint64_t dg_file_space(const char *path);

bool dg_file_exists(const char *path);
bool dg_file_is_dir(const char *path);
bool dg_file_is_same(const char *a, const char *b);        /* whatever their names lead to */
bool dg_file_would_be_same(const char *a, const char *b);  /* also where neither is there yet */
bool dg_file_exists_in(const char *dir, const char *name); /* takes no memory: it never guesses */

/* dir + "/" + name in memory of the caller's (dg_free); NULL when out of memory. */
char *dg_path_join(const char *dir, const char *name);

#endif
