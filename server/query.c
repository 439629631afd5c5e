#include "query.h"
#include <stdlib.h>
#include <string.h>
#include "head.h"

/* The byte at *at, which moves behind it; -1: it is an escape that is none, or of zero. */
static int next_byte(const char **at)
{
    const char *c = *at;
    int high = *c == '%' ? dg_hex_digit(c[1]) : 0,
        low = high >= 0 && *c == '%' ? dg_hex_digit(c[2]) : 0;
    *at += *c == '%' ? 3 : 1;
    if (*c == '+')
        return ' ';
    if (*c != '%')
        return (unsigned char)*c;
    return high < 0 || low < 0 || !(high | low) ? -1 : high << 4 | low;
}

bool dg_query_text(const char *query, const char *name, char *out, size_t size, dg_http_error *e)
{
    size_t n_name = strlen(name), n = 0;
    const char *at = query;
    while (*at && (strncmp(at, name, n_name) != 0 || at[n_name] != '=')) {
        at += strcspn(at, "&");
        at += *at == '&';
    }
    at += *at ? n_name + 1 : 0;
    while (*at && *at != '&') {
        int byte = next_byte(&at);
        if (byte < 0 || n + 1 >= size)
            return dg_refuse(e, 400, "invalid_value", name,
                             byte < 0 ? "%s: it has %%00 in it, or a %% that no two hexadecimal "
                                        "digits follow"
                                      : "%s: it is too long",
                             name);
        out[n++] = (char)byte;
    }
    out[n] = '\0';
    return true;
}

bool dg_query_int(const char *query, const char *name, int min, int max, int *out, dg_http_error *e)
{
    char text[16];
    if (!dg_query_text(query, name, text, sizeof text, e))
        return false;
    if (!*text)
        return true;
    bool digits = strspn(text, "0123456789") == strlen(text) && strlen(text) < 9;
    long value = digits ? strtol(text, NULL, 10) : -1;
    if (value < min || value > max)
        return dg_refuse(e, 400, "invalid_value", name, "%s: wanted a number from %d to %d", name,
                         min, max);
    *out = (int)value;
    return true;
}

bool dg_page_read(dg_page *p, const char *query, size_t id_size, int limit, int max,
                  dg_http_error *e)
{
    char order[8];
    *p = (dg_page){.limit = limit};
    if (!dg_query_text(query, "after", p->after, id_size, e) ||
        !dg_query_text(query, "order", order, sizeof order, e) ||
        !dg_query_int(query, "limit", 1, max, &p->limit, e))
        return false;
    p->ascending = !strcmp(order, "asc");
    return !*order || p->ascending || !strcmp(order, "desc") ||
           dg_refuse(e, 400, "invalid_value", "order", "order: asc and desc are known");
}
