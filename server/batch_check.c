#include "batch_check.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "batch.h"
#include "batch_ids.h"
#include "batch_line.h"
#include "json_text.h"
#include "line_reader.h"

static void add_fault(json_t **faults, uint64_t line, const dg_http_error *e)
{
    if (json_array_size(*faults) < DG_BATCH_FAULTS)
        dg_json_add(faults, json_pack("{s:s?,s:o,s:o,s:o}", "code", e->code, "line",
                                      line ? json_integer((json_int_t)line) : json_null(),
                                      "message", dg_json_text(e->message, strlen(e->message)),
                                      "param", e->param[0] ? json_string(e->param) : json_null()));
}

static bool is_one(dg_batch_ids *ids, const dg_line_reader *r, const char *endpoint,
                   dg_batch_line *l, dg_http_error *e)
{
    if (r->too_long)
        return dg_refuse(e, 400, "line_too_long", NULL, "the line is longer than %zu MiB",
                         r->max >> 20);
    if (!dg_batch_line_read(l, dg_line_text(r), dg_line_bytes(r), e))
        return false;
    if (strcmp(l->route->path, endpoint) != 0)
        return dg_refuse(e, 400, "mismatched_url", "url", "url: the batch is for %s", endpoint);
    dg_batch_id *id = dg_batch_ids_get(ids, l->custom_id);
    if (!id)
        return dg_refuse(e, 400, "limit_exceeded", NULL, "more than %zu lines, or out of memory",
                         ids->max);
    if (id->line)
        return dg_refuse(e, 400, "duplicate_custom_id", "custom_id",
                         "custom_id: line %llu has the same", (unsigned long long)id->line);
    id->line = r->number;
    return true;
}

static dgemma_status check_lines(dg_line_reader *r, dg_batch_ids *ids, const char *endpoint,
                                 uint64_t *n_line, json_t **faults, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    for (bool more = true; !st && more && json_array_size(*faults) < DG_BATCH_FAULTS;) {
        dg_batch_line l = {0};
        dg_http_error e = {0};
        st = dg_line_next(r, &more, err);
        if (st || !more)
            break;
        dg_line_skip_mark(r);
        if (dg_line_is_blank(r))
            continue;
        ++*n_line;
        if (!is_one(ids, r, endpoint, &l, &e))
            add_fault(faults, r->number, &e);
        dg_batch_line_clear(&l);
    }
    return st;
}

dgemma_status dg_batch_check(const char *path, const char *endpoint, size_t max_line_bytes,
                             uint64_t *n_line, json_t **faults, dgemma_error *err)
{
    dg_line_reader r;
    dg_batch_ids ids;
    *n_line = 0;
    *faults = json_array();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return dg_fail(err, DGEMMA_E_IO, "%s: %s", path, strerror(errno));
    dg_line_reader_init(&r, fd, path, max_line_bytes);
    dg_batch_ids_init(&ids, DG_BATCH_LINES);
    dgemma_status st = check_lines(&r, &ids, endpoint, n_line, faults, err);
    if (!st && !*n_line) {
        dg_http_error e;
        dg_refuse(&e, 400, "empty_file", NULL, "the file has no request in it");
        add_fault(faults, 0, &e);
    }
    if (!st && !*faults)
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_batch_ids_clear(&ids);
    dg_line_reader_clear(&r);
    close(fd);
    return st;
}
