/* Prometheus wants all samples of a name in one place: pages of several models, name by name. */
#include <string.h>
#include "base/alloc.h"
#include "metrics.h"

static const char mark[] = "# HELP ";

/* A page that is read; names come in much the same order in all of them, so that the next one to
 * find is near. */
typedef struct reader {
    const char *text, *at;
} reader;

static const char *line_after(const char *at)
{
    const char *end = strchr(at, '\n');
    return end ? end + 1 : at + strlen(at);
}

/* The next family at or behind this place, which is where the text ends when there is none. */
static const char *next_family(const char *at)
{
    while (*at && strncmp(at, mark, sizeof mark - 1) != 0)
        at = line_after(at);
    return at;
}

/* Between two places, the family that begins with these bytes, "# HELP name "; NULL: none. */
static const char *find_between(const char *at, const char *end, const char *family, size_t n)
{
    for (at = next_family(at); *at && (!end || at < end); at = next_family(line_after(at)))
        if (!strncmp(at, family, n))
            return at;
    return NULL;
}

static const char *find_family(reader *r, const char *family)
{
    size_t n = strcspn(family + sizeof mark - 1, " ") + sizeof mark;
    const char *at = find_between(r->at, NULL, family, n);
    at = at ? at : find_between(r->text, r->at, family, n);
    r->at = at ? at : r->at;
    return at;
}

/* From here to where the next family begins. */
static bool copy(dg_buf *out, const char *from, const char *family)
{
    return dg_buf_append(out, from, (size_t)(next_family(line_after(family)) - from));
}

/* The family, which begins in page i and in none before, and its samples in the pages behind. */
static bool copy_family(reader *pages, size_t n, size_t i, const char *family, dg_buf *out)
{
    bool ok = copy(out, family, family);
    for (size_t k = i + 1; k < n && ok; k++) {
        const char *same = find_family(&pages[k], family);
        ok = !same || copy(out, line_after(line_after(same)), same); /* without HELP and TYPE */
    }
    return ok;
}

static bool is_in(reader *pages, size_t n, const char *family)
{
    size_t i = 0;
    while (i < n && !find_family(&pages[i], family))
        i++;
    return i < n;
}

bool dg_metrics_merge(const dg_buf *pages, size_t n, dg_buf *out)
{
    reader *readers = dg_calloc(n, sizeof *readers);
    bool ok = readers != NULL;
    for (size_t i = 0; i < n && ok; i++)
        readers[i].text = readers[i].at = pages[i].data;
    for (size_t i = 0; i < n && ok; i++)
        for (const char *f = next_family(pages[i].data); *f && ok; f = next_family(line_after(f)))
            if (!is_in(readers, i, f))
                ok = copy_family(readers, n, i, f, out);
    dg_free(readers);
    return ok;
}
