#include "base/new_file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"

void dg_new_file_fail(dg_new_file *f, dgemma_status status, const char *what)
{
    if (!f->error.status)
        dg_fail(&f->error, status, "%s%s%s", f->path ? f->path : "", f->path ? ": " : "", what);
}

char *dg_new_file_partial(const char *path)
{
    static const char suffix[] = ".partial";
    const size_t n = strlen(path);
    char *partial = dg_malloc(n + sizeof suffix);
    if (partial) {
        memcpy(partial, path, n);
        memcpy(partial + n, suffix, sizeof suffix);
    }
    return partial;
}

enum { SIZE_TEXT = 32 };

/* In GB, or of less than a tenth of one in MB. */
static const char *size_text(char to[SIZE_TEXT], uint64_t bytes)
{
    const bool small = bytes < 100000000;
    snprintf(to, SIZE_TEXT, small ? "%.3g MB" : "%.1f GB", (double)bytes * (small ? 1e-6 : 1e-9));
    return to;
}

dgemma_status dg_new_file_check(const char *path, uint64_t bytes, bool replace, dgemma_error *err)
{
    struct stat info;
    const uint64_t there = dg_file_space(path);
    if (dg_file_is_dir(path))
        return dg_fail(err, DGEMMA_E_ARG, "%s is a folder", path);
    if (lstat(path, &info) == 0) {
        if (!replace)
            return dg_fail(err, DGEMMA_E_ARG, "%s is there already", path);
        if (!S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode))
            return dg_fail(err, DGEMMA_E_ARG, "%s is not a plain file", path);
    }
    if (bytes <= there)
        return DGEMMA_OK;
    char wanted[SIZE_TEXT], left[SIZE_TEXT];
    return dg_fail(err, DGEMMA_E_IO, "%s: the file takes %s, and %s are free there", path,
                   size_text(wanted, bytes), size_text(left, there));
}

/* An empty file for this writer alone. The lock goes with the file, also when the program is
 * killed; a file system without locks does without. */
static FILE *open_alone(dg_new_file *f)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat held, named;
    int fd = open(f->partial, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0 ? errno == ELOOP || errno == ENXIO
               : fstat(fd, &held) != 0 || !S_ISREG(held.st_mode) || held.st_nlink > 1) {
        dg_new_file_fail(f, DGEMMA_E_ARG, "what is there as .partial is not a plain file");
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    bool taken =
        fd >= 0 && fcntl(fd, F_OFD_SETLK, &all) != 0 && (errno == EAGAIN || errno == EACCES);
    if (!taken && fd >= 0) /* it had the lock, and was given its name since it was opened */
        taken = stat(f->partial, &named) != 0 || named.st_ino != held.st_ino;
    FILE *file = fd >= 0 && !taken && ftruncate(fd, 0) == 0 ? fdopen(fd, "wb") : NULL;
    if (!file) {
        dg_new_file_fail(f, DGEMMA_E_IO,
                         taken ? "somebody else is writing it, or reads it" : strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    return file;
}

void dg_new_file_open(dg_new_file *f, const char *path, bool replace)
{
    *f = (dg_new_file){.path = dg_strdup(path), .partial = dg_new_file_partial(path)};
    f->replace = replace;
    if (!f->path || !f->partial)
        dg_new_file_fail(f, DGEMMA_E_NOMEM, "out of memory");
    else
        f->file = open_alone(f);
}

void dg_new_file_write(dg_new_file *f, const void *data, size_t n)
{
    if (!f->error.status && n && fwrite(data, 1, n, f->file) != n)
        dg_new_file_fail(f, DGEMMA_E_IO, strerror(errno));
}

/* File systems that cannot refuse to replace a file replace it. */
static bool give_name(const dg_new_file *f)
{
    if (!f->replace) {
        if (renameat2(AT_FDCWD, f->partial, AT_FDCWD, f->path, RENAME_NOREPLACE) == 0)
            return true;
        if (errno != EINVAL && errno != ENOSYS)
            return false;
    }
    return rename(f->partial, f->path) == 0;
}

/* A name is on the disk when its folder is; not every file system can be asked for that. */
static void sync_folder(dg_new_file *f)
{
    const char *slash = strrchr(f->path, '/');
    const size_t n = !slash ? 0 : slash == f->path ? 1 : (size_t)(slash - f->path);
    char *folder = n ? dg_strndup(f->path, n) : dg_strdup(".");
    const int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    dg_free(folder);
    if (fd < 0)
        return; /* a folder may be written and not read */
    if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS)
        dg_new_file_fail(f, DGEMMA_E_IO, strerror(errno));
    close(fd);
}

/* All of it is on the disk before it gets its name, which it gets while nobody else can have the
 * lock. */
static void finish_file(dg_new_file *f)
{
    if (!f->error.status && fflush(f->file) != 0)
        dg_new_file_fail(f, DGEMMA_E_IO, strerror(errno));
    if (!f->error.status && fsync(fileno(f->file)) != 0 && errno != EINVAL && errno != EROFS)
        dg_new_file_fail(f, DGEMMA_E_IO, strerror(errno));
    if (!f->error.status && !give_name(f))
        dg_new_file_fail(f, DGEMMA_E_IO, strerror(errno));
    if (f->error.status)
        remove(f->partial);
    else
        sync_folder(f);
    fclose(f->file);
}

dgemma_status dg_new_file_close(dg_new_file *f, dgemma_error *err)
{
    if (f->file)
        finish_file(f);
    dgemma_error error = f->error;
    dg_free(f->path);
    dg_free(f->partial);
    *f = (dg_new_file){0};
    return error.status ? dg_fail(err, error.status, "%s", error.msg) : DGEMMA_OK;
}
