#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/alloc.h"

/* A file system without locks does without. */
static void lock_for_reading(int fd)
{
    struct flock all = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    (void)fcntl(fd, F_OFD_SETLK, &all);
}

/* *fd is -1 where it fails. */
static dgemma_status open_regular(int *fd, struct stat *info, const char *path, dgemma_error *err)
{
    /* not waiting: a FIFO has no writer, and is refused below */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool known = *fd >= 0 && fstat(*fd, info) == 0;
    if (known && S_ISREG(info->st_mode))
        return DGEMMA_OK;
    dgemma_status st =
        dg_fail(err, DGEMMA_E_IO, "%s: %s", path, known ? "not a regular file" : strerror(errno));
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return st;
}

dgemma_status dg_file_map_open(dg_file_map *map, const char *path, dgemma_error *err)
{
    int fd;
    struct stat info;
    *map = (dg_file_map){0};
    dgemma_status st = open_regular(&fd, &info, path, err);
    if (st)
        return st;
    if (info.st_size > 0) {
        void *p = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            st = dg_fail(err, DGEMMA_E_IO, "%s: cannot map: %s", path, strerror(errno));
        else {
            dg_prefer_huge_pages(p, (size_t)info.st_size);
            *map = (dg_file_map){.data = p,
                                 .size = (size_t)info.st_size,
                                 .device = info.st_dev,
                                 .inode = info.st_ino,
                                 .fd = fd + 1};
            lock_for_reading(fd);
            return DGEMMA_OK;
        }
    }
    close(fd);
    return st;
}

void dg_file_map_close(dg_file_map *map)
{
    if (map->data)
        munmap((void *)map->data, map->size);
    if (map->fd)
        close(map->fd - 1);
    *map = (dg_file_map){0};
}

/* mmap is not among the functions that POSIX calls safe here. Where it is a system call and nothing
 * else, as on Linux, it is. */
bool dg_file_map_patch(dg_file_map *map, const void *address)
{
    uintptr_t at = (uintptr_t)address, first = (uintptr_t)map->data;
    if (!map->data || at < first || at - first >= map->size)
        return false;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), start = (at - first) / page * page;
    atomic_store(&map->patched, true);
    return mmap((void *)(map->data + start), map->size - start, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

/* Behind the end of a file the rest of its last page reads as zeros, without a signal. */
dgemma_status dg_file_map_check(const dg_file_map *map, const char *path, dgemma_error *err)
{
    struct stat info;
    bool known = map->data && stat(path, &info) == 0 && info.st_dev == map->device &&
                 info.st_ino == map->inode;
    if (!atomic_load(&map->patched) && (!known || (size_t)info.st_size >= map->size))
        return DGEMMA_OK;
    return dg_fail(err, DGEMMA_E_IO,
                   "%s was cut short while the model ran from it: it must be loaded again", path);
}

static dgemma_status read_all(dg_buf *out, FILE *f, const char *path, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    char chunk[16384];
    size_t n;
    while (!st && (n = fread(chunk, 1, sizeof chunk, f)) > 0)
        if (!dg_buf_append(out, chunk, n))
            st = n > out->max - out->len
                     ? dg_fail(err, DGEMMA_E_LIMIT, "%s: longer than %zu bytes", path, out->max)
                     : dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", path);
    if (!st && ferror(f))
        st = dg_fail(err, DGEMMA_E_IO, "%s: %s", path, strerror(errno));
    if (f != stdin)
        fclose(f);
    return st;
}

dgemma_status dg_file_read(dg_buf *out, const char *path, dgemma_error *err)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    return f ? read_all(out, f, path, err)
             : dg_fail(err, DGEMMA_E_IO, "%s: %s", path, strerror(errno));
}

dgemma_status dg_file_open_regular(FILE **out, const char *path, dgemma_error *err)
{
    int fd;
    struct stat info;
    *out = NULL;
    dgemma_status st = open_regular(&fd, &info, path, err);
    if (st)
        return st;
    *out = fdopen(fd, "rb");
    if (*out)
        return DGEMMA_OK;
    close(fd);
    return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", path);
}

dgemma_status dg_file_read_regular(dg_buf *out, const char *path, dgemma_error *err)
{
    FILE *f;
    dgemma_status st = dg_file_open_regular(&f, path, err);
    return st ? st : read_all(out, f, path, err);
}

uint64_t dg_file_space(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t n = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    char *dir = n ? dg_strndup(path, n) : dg_strdup(".");
    struct statvfs info;
    bool known = dir && statvfs(dir, &info) == 0;
    dg_free(dir);
    return known ? (uint64_t)info.f_bavail * info.f_frsize : UINT64_MAX;
}

void dg_file_map_forget(const dg_file_map *map, const void *data, size_t size)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)data,
                    start = (uintptr_t)map->data, first = (at + page - 1) / page * page,
                    end = (at + size) / page * page;
    const bool inside =
        map->data && at >= start && at - start <= map->size && size <= map->size - (at - start);
    if (inside && end > first) /* whole pages: what lies beside them may be needed */
        madvise((void *)first, end - first, MADV_DONTNEED);
}

bool dg_file_map_is(const dg_file_map *map, const struct stat *info)
{
    return map->device == info->st_dev && map->inode == info->st_ino;
}

bool dg_file_exists(const char *path)
{
    return access(path, R_OK) == 0;
}

bool dg_file_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool dg_file_is_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The part of a path that names a folder, in memory of the caller's. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash ? dg_strdup(".") : dg_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

bool dg_file_would_be_same(const char *a, const char *b)
{
    const char *x = strrchr(a, '/'), *y = strrchr(b, '/');
    if (dg_file_is_same(a, b))
        return true;
    if (strcmp(x ? x + 1 : a, y ? y + 1 : b) != 0)
        return false;
    char *in = folder_of(a), *other = folder_of(b);
    const bool same = in && other && dg_file_is_same(in, other);
    dg_free(in);
    dg_free(other);
    return same;
}

bool dg_file_exists_in(const char *dir, const char *name)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool found = fd >= 0 && faccessat(fd, name, R_OK, 0) == 0;
    if (fd >= 0)
        close(fd);
    return found;
}

char *dg_path_join(const char *dir, const char *name)
{
    size_t n_dir = strlen(dir), n_name = strlen(name);
    while (n_dir > 1 && dir[n_dir - 1] == '/')
        n_dir--;
    char *path = dg_malloc(n_dir + 1 + n_name + 1);
    if (path) {
        memcpy(path, dir, n_dir);
        path[n_dir] = '/';
        memcpy(path + n_dir + 1, name, n_name + 1);
    }
    return path;
}
