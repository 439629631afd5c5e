/* Prometheus wants all samples of a name in one place: pages of several models, name by name. */
#include <string.h>
#include "metrics.h"

static const char mark[] = "# HELP ";

/* The next family at or behind this place; NULL: there is none. */
static const char *next_family(const char *at)
{
    while (at && strncmp(at, mark, sizeof mark - 1) != 0) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    return at;
}

static const char *line_after(const char *at)
{
    const char *end = strchr(at, '\n');
    return end ? end + 1 : at + strlen(at);
}

/* The family that begins with the same "# HELP name ". */
static const char *find_family(const char *page, const char *family)
{
    size_t n = (size_t)(strchr(family + sizeof mark - 1, ' ') + 1 - family);
    const char *at = next_family(page);
    while (at && strncmp(at, family, n) != 0)
        at = next_family(line_after(at));
    return at;
}

/* From here to where the next family begins. */
static bool copy_until_next(dg_buf *out, const char *from)
{
    const char *end = next_family(line_after(from));
    return dg_buf_append(out, from, end ? (size_t)(end - from) : strlen(from));
}

static bool was_copied(const dg_buf *pages, size_t n, const char *family)
{
    for (size_t i = 0; i < n; i++)
        if (find_family(pages[i].data, family))
            return true;
    return false;
}

bool dg_metrics_merge(const dg_buf *pages, size_t n, dg_buf *out)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        for (const char *f = next_family(pages[i].data); f && ok; f = next_family(line_after(f))) {
            if (was_copied(pages, i, f))
                continue;
            ok = copy_until_next(out, f);
            for (size_t k = i + 1; k < n && ok; k++) {
                const char *same = find_family(pages[k].data, f);
                const char *samples = same ? line_after(line_after(same)) : NULL; /* HELP, TYPE */
                const char *end = same ? next_family(line_after(same)) : NULL;
                if (same)
                    ok = dg_buf_append(out, samples,
                                       end ? (size_t)(end - samples) : strlen(samples));
            }
        }
    return ok;
}
