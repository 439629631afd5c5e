#include "format/json_show.h"
#include <string.h>
#include "base/common.h"

typedef struct line {
    char *text;
    size_t n; /* what there is to write, which may be more than fits */
} line;

static int add(const char *text, size_t n, void *to)
{
    line *l = to;
    if (l->n < DG_JSON_SHOWN)
        memcpy(l->text + l->n, text, n < DG_JSON_SHOWN - l->n ? n : DG_JSON_SHOWN - l->n);
    l->n += n;
    return 0;
}

const char *dg_json_show(char out[DG_JSON_SHOWN], const json_t *v)
{
    if (!v)
        return "missing";
    line l = {out, 0};
    json_dump_callback(v, add, &l,
                       JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (l.n >= DG_JSON_SHOWN) {
        l.n = DG_JSON_SHOWN - 1;
        memcpy(out + l.n - 3, "...", 3);
    }
    out[l.n] = '\0';
    return out;
}
