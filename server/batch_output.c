#include "batch_output.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "batch_line.h"
#include "line_reader.h"

static dgemma_status fail(const dg_batch_output *o, const char *what, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_IO, "%s: cannot %s: %s", o->path, what, strerror(errno));
}

/* ---- reading back ---- */

static dgemma_status read_answer(const dg_batch_output *o, const dg_line_reader *r,
                                 dg_batch_ids *ids, dgemma_error *err)
{
    char custom_id[DG_CUSTOM_ID_BYTES + 1], mark[DG_BATCH_MARK + 1];
    if (r->too_long || !dg_batch_answer_read(dg_line_text(r), dg_line_bytes(r), custom_id, mark))
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: line %llu is no answer of a batch: is it the file for answers?",
                       o->path, (unsigned long long)r->number);
    dg_batch_id *id = dg_batch_ids_get(ids, custom_id);
    if (!id)
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: more than %zu answers, or out of memory", o->path,
                       ids->max);
    if (id->mark[0])
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: line %llu answers \"%s\" for the second time",
                       o->path, (unsigned long long)r->number, custom_id);
    memcpy(id->mark, mark, sizeof id->mark);
    return DGEMMA_OK;
}

/* What stands behind the last line's end: an answer but for that, or the beginning of one. Anything
 * else is not ours to take away. */
static dgemma_status mend_end(dg_batch_output *o, const dg_line_reader *r, dg_batch_ids *ids,
                              dgemma_error *err)
{
    if (read_answer(o, r, ids, NULL) == DGEMMA_OK) {
        o->size = r->next;
        return dg_batch_output_append(o, "\n", 1, err);
    }
    if (r->too_long || !dg_batch_answer_begins(dg_line_text(r), dg_line_bytes(r)))
        return read_answer(o, r, ids, err);
    o->size = r->offset;
    return ftruncate(o->fd, (off_t)o->size) ? fail(o, "take off a line that was cut short", err)
                                            : DGEMMA_OK;
}

static dgemma_status read_back(dg_batch_output *o, dg_batch_ids *ids, dgemma_error *err)
{
    enum { MAX_ANSWER = (DG_OUT_MAX) + (1 << 16) };
    dg_line_reader r;
    bool more = true;
    dg_line_reader_init(&r, o->fd, o->path, MAX_ANSWER);
    dgemma_status st = dg_line_next(&r, &more, err);
    while (!st && more && r.whole) {
        st = read_answer(o, &r, ids, err);
        o->size = r.next;
        if (!st)
            st = dg_line_next(&r, &more, err);
    }
    if (!st && more)
        st = mend_end(o, &r, ids, err);
    dg_line_reader_clear(&r);
    return st;
}

/* ---- opening ---- */

/* A new file's name is in its folder, which has to reach the disk as well. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? dg_strndup(path, (size_t)(slash - path) + 1) : dg_strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    dg_free(folder);
}

static dgemma_status open_file(dg_batch_output *o, const char *path, int flags, dgemma_error *err)
{
    *o = (dg_batch_output){.path = path, .synced = dg_clock_now()};
    o->fd = open(path, flags | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (o->fd < 0)
        return fail(o, "be opened", err);
    if (fstat(o->fd, &o->file))
        return fail(o, "be looked at", err);
    return DGEMMA_OK;
}

static dgemma_status lock(const dg_batch_output *o, dgemma_error *err)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(o->fd, F_OFD_SETLK, &all) && (errno == EAGAIN || errno == EACCES)
               ? dg_fail(err, DGEMMA_E_BUSY, "%s: another batch is writing to it", o->path)
               : DGEMMA_OK;
}

dgemma_status dg_batch_output_open(dg_batch_output *o, const char *path, dg_batch_ids *ids,
                                   dgemma_error *err)
{
    dgemma_status st = open_file(o, path, O_RDWR, err);
    if (st)
        return st;
    if (!S_ISREG(o->file.st_mode))
        return dg_fail(err, DGEMMA_E_ARG,
                       "%s: it is no file, and answers have to be read back from one", path);
    st = lock(o, err);
    if (st)
        return st;
    if (!o->file.st_size)
        sync_folder(path);
    return read_back(o, ids, err);
}

dgemma_status dg_batch_output_create(dg_batch_output *o, const char *path, dgemma_error *err)
{
    dgemma_status st = open_file(o, path, O_WRONLY, err);
    if (!st && S_ISREG(o->file.st_mode))
        st = lock(o, err);
    if (st && o->fd >= 0) { /* somebody else's: it stays as it is */
        close(o->fd);
        o->fd = -1;
    }
    o->size = st ? 0 : (uint64_t)o->file.st_size;
    return st;
}

dgemma_status dg_batch_output_empty(dg_batch_output *o, dgemma_error *err)
{
    if (S_ISREG(o->file.st_mode) && ftruncate(o->fd, 0))
        return fail(o, "be made anew", err);
    o->size = 0;
    return DGEMMA_OK;
}

/* ---- writing ---- */

static dgemma_status sync_file(dg_batch_output *o, dgemma_error *err)
{
    bool failed = fsync(o->fd) && errno != EINVAL && errno != EROFS; /* a pipe has no disk */
    o->unsynced = false;
    o->synced = dg_clock_now();
    return failed ? fail(o, "be given to the disk", err) : DGEMMA_OK;
}

dgemma_status dg_batch_output_append(dg_batch_output *o, const char *line, size_t len,
                                     dgemma_error *err)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(o->fd, line + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            dgemma_status st = fail(o, "be written", err);
            if (S_ISREG(o->file.st_mode) && ftruncate(o->fd, (off_t)o->size))
                return st; /* the next run takes the piece off */
            return st;
        }
        done += (size_t)n;
    }
    o->size += len;
    o->unsynced = true;
    return dg_batch_output_sync(o, err);
}

dgemma_status dg_batch_output_sync(dg_batch_output *o, dgemma_error *err)
{
    return o->unsynced && dg_clock_now() - o->synced >= 1 ? sync_file(o, err) : DGEMMA_OK;
}

dgemma_status dg_batch_output_close(dg_batch_output *o, bool remove_empty, dgemma_error *err)
{
    if (o->fd < 0)
        return DGEMMA_OK;
    dgemma_status st = o->unsynced ? sync_file(o, err) : DGEMMA_OK;
    if (remove_empty && !o->size && S_ISREG(o->file.st_mode))
        unlink(o->path);
    close(o->fd);
    o->fd = -1;
    return st;
}
