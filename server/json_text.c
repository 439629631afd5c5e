#include "json_text.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"

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

json_t *dg_json_buf(const dg_buf *b)
{
    return dg_json_text(b->data ? b->data : "", b->len);
}

static void give_up(json_t **whole)
{
    json_decref(*whole);
    *whole = NULL;
}

void dg_json_put(json_t **object, const char *key, json_t *value)
{
    if (json_object_set_new(*object, key, value))
        give_up(object);
}

void dg_json_add(json_t **array, json_t *value)
{
    if (json_array_append_new(*array, value))
        give_up(array);
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
    if (json_dumpb(value, text, n, DUMP_FLAGS) != n) { /* it takes memory of its own */
        dg_free(text);
        return NULL;
    }
    text[n] = '\0';
    if (len)
        *len = n;
    return text;
}
