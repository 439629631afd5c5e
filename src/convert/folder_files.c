#include "convert/folder_files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "base/new_file.h"

/* What a folder has beside its weights; of config.json what it says of those is replaced. */
static const char config[] = "config.json", weights[] = "model.safetensors";
static const char *const copied[] = {"generation_config.json",   "tokenizer.json",
                                     "tokenizer_config.json",    "special_tokens_map.json",
                                     "chat_template.jinja",      "chat_template.json",
                                     "preprocessor_config.json", "processor_config.json"};
static const char partial_end[] = ".partial"; /* dg_new_file_partial() */

static dgemma_status write_document(const dg_folder_files *f, const char *name, const dg_buf *text,
                                    dgemma_error *err)
{
    char *path = dg_path_join(f->partial, name);
    dg_new_file file;
    if (!path)
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", name);
    dg_new_file_open(&file, path, true);
    dg_new_file_write(&file, text->data, text->len);
    dg_free(path);
    return dg_new_file_close(&file, err);
}

static dgemma_status bring(const dg_folder_files *f, const char *name, dgemma_error *err)
{
    char *path = dg_path_join(f->from, name);
    dg_buf text, made;
    dg_buf_init(&text, DG_FOLDER_DOCUMENT_MAX);
    dg_buf_init(&made, DG_FOLDER_DOCUMENT_MAX);
    dgemma_status st = path ? dg_file_read_regular(&text, path, err)
                            : dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", name);
    const bool is_config = strcmp(name, config) == 0;
    if (!st && is_config)
        st = dg_quantisation_put(&made, text.data ? text.data : "", text.len, f->form, path, err);
    st = st ? st : write_document(f, name, is_config ? &made : &text, err);
    dg_buf_clear(&text);
    dg_buf_clear(&made);
    dg_free(path);
    return st;
}

/* Those that were made in place of copies. */
static dgemma_status write_documents(const dg_folder_files *f, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; !st && i < f->documents->n; i++) {
        const dg_folder_document *d = &f->documents->at[i];
        dg_buf made;
        dg_buf_init(&made, DG_FOLDER_DOCUMENT_MAX);
        const bool is_config = strcmp(d->name, config) == 0;
        if (is_config)
            st = dg_quantisation_put(&made, d->text.data, d->text.len, f->form, config, err);
        st = st ? st : write_document(f, d->name, is_config ? &made : &d->text, err);
        dg_buf_clear(&made);
    }
    return st;
}

/* ---- what is left of one that was killed ---- */

/* A name that is ours, before it is whole or since. */
static bool is_ours(const char *name)
{
    char plain[64];
    const size_t n = strlen(name), end = strlen(partial_end);
    const bool partial = n > end && !strcmp(name + n - end, partial_end);
    snprintf(plain, sizeof plain, "%.*s", (int)(partial ? n - end : n), name);
    if (!strcmp(plain, weights))
        return partial; /* whole, it is somebody's model */
    bool found = !strcmp(plain, config);
    for (size_t i = 0; i < DG_COUNT(copied); i++)
        found = found || !strcmp(plain, copied[i]);
    return found;
}

/* Whether somebody has the file open to write it: base/new_file.h. */
static bool is_being_written(int folder, const char *name)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = openat(folder, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool locked = fd < 0 || fcntl(fd, F_OFD_GETLK, &all) != 0 || all.l_type != (short)F_UNLCK;
    if (fd >= 0)
        close(fd);
    return locked;
}

/* The folder has nothing in it but what was made here and never became whole, and nobody is at it.
 */
static bool is_abandoned(const dg_folder_files *f)
{
    const int fd = open(f->partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    bool ours = list && !dg_file_is_same(f->from, f->partial);
    for (struct dirent *e; ours && (e = readdir(list));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            ours = is_ours(e->d_name) && !is_being_written(fd, e->d_name);
    if (list)
        closedir(list);
    else if (fd >= 0)
        close(fd);
    return ours;
}

static void remove_in(const dg_folder_files *f, const char *name)
{
    char *path = dg_path_join(f->partial, name);
    if (path)
        unlink(path);
    dg_free(path);
}

static void remove_all(const dg_folder_files *f)
{
    char name[64];
    remove_in(f, config);
    remove_in(f, weights);
    snprintf(name, sizeof name, "%s%s", weights, partial_end);
    remove_in(f, name);
    for (size_t i = 0; i < DG_COUNT(copied); i++)
        remove_in(f, copied[i]);
    rmdir(f->partial); /* stays where others put something into it */
}

/* ---- all of it ---- */

dgemma_status dg_folder_files_begin(dg_folder_files *f, uint64_t bytes, dgemma_error *err)
{
    struct stat info;
    size_t n = strlen(f->to);
    while (n > 1 && f->to[n - 1] == '/') /* the name of a folder may end so */
        n--;
    char *plain = dg_strndup(f->to, n);
    f->partial = plain ? dg_new_file_partial(plain) : NULL;
    f->weights = f->partial ? dg_path_join(f->partial, weights) : NULL;
    dg_free(plain);
    if (!f->weights)
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", f->to);
    if (lstat(f->to, &info) == 0)
        return dg_fail(err, DGEMMA_E_ARG, "%s is there already, and folders are not replaced",
                       f->to);
    f->made = mkdir(f->partial, 0777) == 0;
    int why = errno;
    if (!f->made && why == EEXIST && is_abandoned(f)) {
        remove_all(f);
        f->made = mkdir(f->partial, 0777) == 0;
        why = errno;
    }
    if (!f->made && why == EEXIST)
        return dg_fail(err, DGEMMA_E_ARG,
                       "%s is there already: if no other program writes it, remove it", f->partial);
    if (!f->made)
        return dg_fail(err, DGEMMA_E_IO, "%s: %s", f->partial, strerror(why));
    dgemma_status st = dg_new_file_check(f->weights, bytes, true, err);
    if (st || f->documents)
        return st ? st : write_documents(f, err);
    st = bring(f, config, err);
    for (size_t i = 0; !st && i < DG_COUNT(copied); i++)
        if (dg_file_exists_in(f->from, copied[i]))
            st = bring(f, copied[i], err);
    return st;
}

static dgemma_status give_name(const dg_folder_files *f, dgemma_error *err)
{
    if (renameat2(AT_FDCWD, f->partial, AT_FDCWD, f->to, RENAME_NOREPLACE) == 0 ||
        ((errno == EINVAL || errno == ENOSYS) && rename(f->partial, f->to) == 0))
        return DGEMMA_OK;
    return dg_fail(err, DGEMMA_E_IO, "%s: %s", f->to, strerror(errno));
}

dgemma_status dg_folder_files_end(dg_folder_files *f, dgemma_status st, dgemma_error *err)
{
    st = st ? st : give_name(f, err);
    if (st && f->made)
        remove_all(f);
    dg_free(f->partial);
    dg_free(f->weights);
    return st;
}
