#include "chat_log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/base64.h"
#include "base/file.h"
#include "base/utf8.h"

enum { FILE_MAX = 256 << 20, PICTURE_MAX = 64 << 20, MAX_MESSAGES = 100000 };

static dgemma_status no_memory(dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for the conversation");
}

bool cli_log_init(cli_chat_log *log)
{
    *log = (cli_chat_log){.messages = json_array(), .pictures = json_array()};
    return log->messages && log->pictures;
}

void cli_log_clear(cli_chat_log *log)
{
    json_decref(log->messages);
    json_decref(log->pictures);
    *log = (cli_chat_log){0};
}

size_t cli_log_count(const cli_chat_log *log)
{
    return json_array_size(log->messages);
}

size_t cli_log_pictures(const cli_chat_log *log)
{
    return json_array_size(log->pictures);
}

static const char *role_of(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role ? role : "";
}

/* The whole of a regular file: anything else might never end. */
static dgemma_status read_regular(dg_buf *out, const char *path, dgemma_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return dg_fail(err, DGEMMA_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return dg_fail(err, DGEMMA_E_IO, "%s: not a regular file", path);
    return dg_file_read(out, path, err);
}

/* ---- the system message ---- */

static bool has_system(const cli_chat_log *log)
{
    const char *role = role_of(json_array_get(log->messages, 0));
    return !strcmp(role, "system") || !strcmp(role, "developer");
}

const char *cli_log_system(const cli_chat_log *log)
{
    return has_system(log)
               ? json_string_value(json_object_get(json_array_get(log->messages, 0), "content"))
               : NULL;
}

dgemma_status cli_log_set_system(cli_chat_log *log, const char *text, dgemma_error *err)
{
    json_t *message = NULL;
    if (text && *text) {
        if (!dg_utf8_valid(text, strlen(text)))
            return dg_fail(err, DGEMMA_E_ARG, "the system message is not valid UTF-8");
        message = json_pack("{s:s, s:s}", "role", "system", "content", text);
        if (!message)
            return no_memory(err);
    }
    if (has_system(log))
        json_array_remove(log->messages, 0);
    if (message && json_array_insert_new(log->messages, 0, message))
        return no_memory(err);
    return DGEMMA_OK;
}

dgemma_status cli_log_forget(cli_chat_log *log, dgemma_error *err)
{
    json_t *first = has_system(log) ? json_incref(json_array_get(log->messages, 0)) : NULL;
    json_array_clear(log->messages);
    json_array_clear(log->pictures);
    return first && json_array_append_new(log->messages, first) ? no_memory(err) : DGEMMA_OK;
}

/* ---- messages ---- */

static const char *picture_type(const dg_buf *file)
{
    static const struct {
        const char *start, *type;
        size_t n;
    } kinds[] = {{"\x89PNG", "image/png", 4},
                 {"\xFF\xD8\xFF", "image/jpeg", 3},
                 {"GIF8", "image/gif", 4},
                 {"RIFF", "image/webp", 4}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (file->len >= kinds[i].n && !memcmp(file->data, kinds[i].start, kinds[i].n))
            return kinds[i].type;
    return NULL;
}

dgemma_status cli_log_add_picture(cli_chat_log *log, const char *path, dgemma_error *err)
{
    dg_buf file, url;
    dg_buf_init(&file, PICTURE_MAX);
    dg_buf_init(&url, FILE_MAX);
    dgemma_status st = read_regular(&file, path, err);
    const char *type = st ? NULL : picture_type(&file);
    if (!st && !type)
        st = dg_fail(err, DGEMMA_E_FORMAT, "%s: not a PNG, JPEG, WebP or GIF picture", path);
    json_t *part = NULL;
    if (!st && dg_buf_puts(&url, "data:") && dg_buf_puts(&url, type) &&
        dg_buf_puts(&url, ";base64,") && dg_base64_encode(&url, file.data, file.len))
        part = json_pack("{s:s, s:{s:s}}", "type", "image_url", "image_url", "url", url.data);
    if (!st && (!part || json_array_append_new(log->pictures, part)))
        st = no_memory(err);
    dg_buf_clear(&file);
    dg_buf_clear(&url);
    return st;
}

dgemma_status cli_log_add_user(cli_chat_log *log, const char *text, size_t len, dgemma_error *err)
{
    if (memchr(text, 0, len) || !dg_utf8_valid(text, len))
        return dg_fail(err, DGEMMA_E_ARG, "the message is not valid UTF-8");
    json_t *content = json_stringn(text, len);
    if (content && cli_log_pictures(log)) {
        json_t *part = json_pack("{s:s, s:o}", "type", "text", "text", content);
        content = json_copy(log->pictures);
        if (!part || !content || json_array_append_new(content, part)) {
            json_decref(content);
            return no_memory(err);
        }
    }
    json_t *message = content ? json_pack("{s:s, s:o}", "role", "user", "content", content) : NULL;
    if (!message || json_array_append_new(log->messages, message))
        return no_memory(err);
    json_array_clear(log->pictures);
    return DGEMMA_OK;
}

dgemma_status cli_log_add_assistant(cli_chat_log *log, const dg_buf *text, const dg_buf *thinking,
                                    dgemma_error *err)
{
    json_t *message = json_pack("{s:s, s:s%}", "role", "assistant", "content",
                                text->len ? text->data : "", text->len);
    if (message && thinking->len &&
        json_object_set_new(message, "reasoning_content",
                            json_stringn(thinking->data, thinking->len))) {
        json_decref(message);
        return no_memory(err);
    }
    return message && !json_array_append_new(log->messages, message) ? DGEMMA_OK : no_memory(err);
}

static json_t *last_answer(const cli_chat_log *log)
{
    size_t n = cli_log_count(log);
    json_t *last = n ? json_array_get(log->messages, n - 1) : NULL;
    return last && !strcmp(role_of(last), "assistant") ? last : NULL;
}

const char *cli_log_last_answer(const cli_chat_log *log)
{
    return json_string_value(json_object_get(last_answer(log), "content"));
}

dgemma_status cli_log_set_answer(cli_chat_log *log, const dg_buf *text, dgemma_error *err)
{
    return json_object_set_new(last_answer(log), "content",
                               json_stringn(text->len ? text->data : "", text->len))
               ? no_memory(err)
               : DGEMMA_OK;
}

char *cli_log_text_before(const cli_chat_log *log, const char *how)
{
    json_t *all = json_deep_copy(log->messages);
    size_t n = json_array_size(all);
    bool ok = n > 1 && !json_array_remove(all, n - 1);
    json_t *asked = ok ? json_array_get(all, n - 2) : NULL;
    json_t *content = json_object_get(asked, "content");
    if (*how && json_is_string(content))
        ok = !json_object_set_new(asked, "content",
                                  json_sprintf("%s\n\n(%s)", json_string_value(content), how));
    else if (*how && json_is_array(content))
        ok = !json_array_append_new(content, json_pack("{s:s, s:s}", "type", "text", "text", how));
    char *text = ok ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return text;
}

bool cli_log_back_to_user(cli_chat_log *log)
{
    for (size_t n = cli_log_count(log); n > 0; n--)
        if (!strcmp(role_of(json_array_get(log->messages, n - 1)), "user")) {
            while (cli_log_count(log) > n)
                json_array_remove(log->messages, n);
            return true;
        }
    return false;
}

void cli_log_drop_last(cli_chat_log *log, bool keep_pictures)
{
    size_t n = cli_log_count(log), i;
    json_t *part;
    if (!n)
        return;
    json_t *content = json_object_get(json_array_get(log->messages, n - 1), "content");
    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        if (keep_pictures && type && strcmp(type, "text") != 0)
            json_array_append(log->pictures, part);
    }
    json_array_remove(log->messages, n - 1);
}

char *cli_log_text(const cli_chat_log *log)
{
    return json_dumps(log->messages, JSON_COMPACT);
}

/* ---- files ---- */

static dgemma_status cannot_write(const char *path, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_IO, "%s: cannot be written: %s", path, strerror(errno));
}

/* Where a file of this name is or will be, for the caller to free(), and its mode. A new file is
 * for its owner alone. */
static dgemma_status find_place(const char *path, char **out, mode_t *mode, dgemma_error *err)
{
    struct stat info;
    *mode = S_IRUSR | S_IWUSR;
    *out = NULL;
    if (lstat(path, &info) != 0 && errno == ENOENT) {
        *out = strdup(path);
        return *out ? DGEMMA_OK : no_memory(err);
    }
    *out = realpath(path, NULL); /* a link stays, what it leads to is replaced */
    if (!*out || stat(*out, &info) != 0)
        return cannot_write(path, err);
    if (!S_ISREG(info.st_mode))
        return dg_fail(err, DGEMMA_E_IO, "%s: cannot be written: not a regular file", path);
    *mode = info.st_mode & 07777;
    return DGEMMA_OK;
}

/* Writes a file beside `place` and puts it there when it is whole. */
static dgemma_status replace_file(const cli_chat_log *log, const char *place, mode_t mode,
                                  dgemma_error *err)
{
    dg_buf temp;
    dg_buf_init(&temp, 1 << 16);
    if (!dg_buf_puts(&temp, place) || !dg_buf_puts(&temp, ".XXXXXX")) {
        dg_buf_clear(&temp);
        return no_memory(err);
    }
    int fd = mkstemp(temp.data);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    bool ok = f && json_dumpf(log->messages, f, JSON_INDENT(2)) == 0 && fputc('\n', f) != EOF &&
              fchmod(fd, mode) == 0;
    ok = f && fclose(f) == 0 && ok;
    ok = ok && rename(temp.data, place) == 0;
    dgemma_status st = ok ? DGEMMA_OK : cannot_write(place, err);
    if (!ok && fd >= 0)
        unlink(temp.data);
    dg_buf_clear(&temp);
    return st;
}

dgemma_status cli_log_save(const cli_chat_log *log, const char *path, dgemma_error *err)
{
    char *place;
    mode_t mode;
    dgemma_status st = find_place(path, &place, &mode, err);
    if (!st)
        st = replace_file(log, place, mode, err);
    free(place);
    return st;
}

/* Roles and contents of the right kind; the rest is checked where the conversation is used. */
static dgemma_status check_message(const json_t *message, size_t index, const char *path,
                                   dgemma_error *err)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const json_t *content = json_object_get(message, "content");
    bool known = false;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        known = known || !strcmp(role_of(message), roles[i]);
    if (!known)
        return dg_fail(
            err, DGEMMA_E_FORMAT,
            "%s: message %zu has no role out of system, developer, user, assistant, tool", path,
            index + 1);
    if (content && !json_is_string(content) && !json_is_array(content) && !json_is_null(content))
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: the content of message %zu is neither text nor a list of parts", path,
                       index + 1);
    return DGEMMA_OK;
}

static dgemma_status check_messages(const json_t *list, const char *path, dgemma_error *err)
{
    size_t i;
    const json_t *message;
    if (!json_is_array(list))
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: not a list of messages", path);
    if (json_array_size(list) > MAX_MESSAGES)
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: %zu messages, at most %d are taken", path,
                       json_array_size(list), MAX_MESSAGES);
    json_array_foreach(list, i, message)
    {
        dgemma_status st = check_message(message, i, path, err);
        if (st)
            return st;
    }
    return DGEMMA_OK;
}

dgemma_status cli_log_load(cli_chat_log *log, const char *path, dgemma_error *err)
{
    dg_buf text;
    dg_buf_init(&text, FILE_MAX);
    dgemma_status st = read_regular(&text, path, err);
    json_error_t where;
    json_t *root =
        st ? NULL : json_loadb(text.len ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &where);
    if (!st && !root)
        st = dg_fail(err, DGEMMA_E_FORMAT, "%s:%d: %s", path, where.line, where.text);
    json_t *list = json_is_object(root) ? json_object_get(root, "messages") : root;
    if (!st)
        st = check_messages(list, path, err);
    if (!st) {
        json_decref(log->messages);
        log->messages = json_incref(list);
        json_array_clear(log->pictures);
    }
    json_decref(root);
    dg_buf_clear(&text);
    return st;
}
