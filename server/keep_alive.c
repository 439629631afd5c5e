#include "keep_alive.h"
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "json_fields.h"

/* "1h30m": numbers, each with its unit; nothing needs none. */
static bool read_duration(const char *text, double *seconds)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"\u00b5s", 1e-6}, {"\u03bcs", 1e-6},
                 {"ms", 1e-3}, {"h", 3600},  {"m", 60},         {"s", 1}};
    bool negative = *text == '-';
    text += *text == '-' || *text == '+';
    *seconds = 0;
    if (strcmp(text, "0") == 0)
        return true;
    if (!*text)
        return false;
    while (*text) {
        char *end = NULL;
        double n = strtod(text, &end);
        size_t digits = strspn(text, "0123456789."), i = 0;
        while (i < DG_COUNT(units) && strncmp(end, units[i].unit, strlen(units[i].unit)) != 0)
            i++;
        if (!digits || end != text + digits || i == DG_COUNT(units)) /* strtod takes more */
            return false;
        *seconds += n * units[i].seconds;
        text = end + strlen(units[i].unit);
    }
    if (negative)
        *seconds = -*seconds;
    return true;
}

bool dg_keep_alive_read(dg_keep_alive *out, const json_t *root, dg_http_error *e)
{
    const json_t *v = dg_field_get(root, "keep_alive");
    *out = (dg_keep_alive){.given = v != NULL};
    if (!v)
        return true;
    if (json_is_number(v))
        out->seconds = json_number_value(v);
    else if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v) ||
             !read_duration(json_string_value(v), &out->seconds))
        return dg_refuse(e, 400, "invalid_value", "keep_alive",
                         "keep_alive: wanted seconds, or a duration like \"5m\"");
    if (out->seconds > 1e9)
        out->seconds = -1;
    return true;
}

bool dg_keep_alive_is_farewell(const dg_keep_alive *k, const json_t *root)
{
    const json_t *messages = dg_field_get(root, "messages"), *prompt = dg_field_get(root, "prompt"),
                 *images = dg_field_get(root, "images");
    return k->given && k->seconds == 0 && !json_array_size(messages) && !json_array_size(images) &&
           !json_string_length(prompt);
}
