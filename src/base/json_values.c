#include "base/json_values.h"
#include <stdbool.h>
#include <string.h>

size_t dg_json_values(const char *json, size_t len)
{
    size_t n = 1;
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        if (json[i] == '"')
            quoted = !quoted;
        else if (quoted && json[i] == '\\')
            i++;
        else if (!quoted && (json[i] == '[' || json[i] == '{' || json[i] == ','))
            n++;
    }
    return n;
}

dgemma_status dg_json_check(const char *json, size_t len, size_t most, const char *where,
                            dgemma_error *err)
{
    if (len >= 3 && memcmp(json, "\xEF\xBB\xBF", 3) == 0)
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: it begins with a byte order mark (EF BB BF), which JSON must not have",
                       where);
    if (dg_json_values(json, len) <= most)
        return DGEMMA_OK;
    return dg_fail(err, DGEMMA_E_LIMIT, "%s: more than %zu JSON values", where, most);
}
