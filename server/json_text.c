#include "json_text.h"
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"

/* ---- what comes in ---- */

/* Counts values and depth without building anything. Malformed text may be counted wrongly: the
 * parser will refuse it. */
static bool within_bounds(const char *text, size_t len, dg_http_error *e)
{
    size_t n = 0;
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        in_string = c == '"';
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        n += c == ',' || c == '[' || c == '{';
        if (depth > DG_BODY_MAX_DEPTH)
            return dg_refuse(e, 400, "json_too_deep", NULL,
                             "the body is nested deeper than %d levels", DG_BODY_MAX_DEPTH);
        if (n > DG_BODY_MAX_VALUES)
            return dg_refuse(e, 400, "json_too_large", NULL, "the body has more than %d values",
                             DG_BODY_MAX_VALUES);
    }
    return true;
}

json_t *dg_json_body(const char *text, size_t len, dg_http_error *e)
{
    if (!within_bounds(text, len, e))
        return NULL;
    json_error_t why;
    json_t *root = json_loadb(text, len, 0, &why);
    if (!root) {
        dg_refuse(e, 400, "invalid_json", NULL, "the body is not JSON: %s at line %d, column %d",
                  why.text, why.line, why.column);
        return NULL;
    }
    if (!json_is_object(root)) {
        dg_refuse(e, 400, "invalid_json", NULL, "the body is no JSON object");
        json_decref(root);
        return NULL;
    }
    return root;
}

/* ---- what goes out ---- */

json_t *dg_json_text(const char *bytes, size_t len)
{
    json_t *whole = json_stringn(bytes, len);
    if (whole || dg_utf8_valid(bytes, len))
        return whole;
    dg_buf clean;
    dg_buf_init(&clean, 3 * len + 1);
    bool ok = true;
    for (size_t i = 0; i < len && ok;) {
        size_t n = dg_utf8_decode(bytes + i, len - i, NULL);
        ok = n ? dg_buf_append(&clean, bytes + i, n) : dg_buf_puts(&clean, "\xEF\xBF\xBD");
        i += n ? n : 1;
    }
    json_t *out = ok ? json_stringn(clean.data ? clean.data : "", clean.len) : NULL;
    dg_buf_clear(&clean);
    return out;
}

/* Fifteen digits give every decimal that people write back as it was; the shortest form that a
 * machine number needs is not printed by jansson. */
enum { DUMP_FLAGS = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) };

char *dg_json_dump(const json_t *value, size_t *len)
{
    size_t n = value ? json_dumpb(value, NULL, 0, DUMP_FLAGS) : 0;
    char *text = n ? dg_malloc(n + 1) : NULL;
    if (!text)
        return NULL;
    json_dumpb(value, text, n, DUMP_FLAGS);
    text[n] = '\0';
    if (len)
        *len = n;
    return text;
}
