#include "base/json_document.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/common.h"

/* 15 digits are kept by every double, 17 keep every double. */
enum { LEAST_DIGITS = 15, MOST_DIGITS = 17 };

static int digits_of_real(double x)
{
    for (int digits = LEAST_DIGITS; digits < MOST_DIGITS; digits++) {
        char text[32];
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            return digits;
    }
    return MOST_DIGITS;
}

/* As many as the longest number needs. */
static int digits_of(json_t *doc)
{
    const char *key;
    json_t *value;
    size_t i;
    int most = json_is_real(doc) ? digits_of_real(json_real_value(doc)) : LEAST_DIGITS;
    json_object_foreach(doc, key, value) most = dg_max(most, digits_of(value));
    json_array_foreach(doc, i, value) most = dg_max(most, digits_of(value));
    return most;
}

dgemma_status dg_json_document(dg_buf *out, json_t *doc, const char *name, dgemma_error *err)
{
    char *text =
        doc ? json_dumps(doc, JSON_INDENT(2) | JSON_REAL_PRECISION((size_t)digits_of(doc))) : NULL;
    const bool ok = text && dg_buf_puts(out, text) && dg_buf_puts(out, "\n");
    free(text);
    json_decref(doc);
    return ok ? DGEMMA_OK
              : dg_fail(err, DGEMMA_E_UNSUPPORTED,
                        "%s cannot be made: a text is no UTF-8, or memory is out", name);
}
