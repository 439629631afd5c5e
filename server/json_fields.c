#include "json_fields.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"

json_t *dg_field_get(const json_t *object, const char *name)
{
    json_t *v = json_object_get(object, name);
    return json_is_null(v) ? NULL : v;
}

static bool wrong(dg_http_error *e, const char *name, const char *wanted)
{
    return dg_refuse(e, 400, "invalid_type", name, "%s: wanted %s", name, wanted);
}

bool dg_field_object(const json_t *object, const char *name, json_t **out, dg_http_error *e)
{
    *out = dg_field_get(object, name);
    return !*out || json_is_object(*out) || wrong(e, name, "an object");
}

bool dg_field_list(const json_t *object, const char *name, json_t **out, dg_http_error *e)
{
    *out = dg_field_get(object, name);
    return !*out || json_is_array(*out) || wrong(e, name, "a list");
}

bool dg_field_string(const json_t *object, const char *name, const char **out, dg_http_error *e)
{
    json_t *v = dg_field_get(object, name);
    *out = json_string_value(v);
    return !v || *out || wrong(e, name, "text");
}

static bool read_number(void *at, const json_t *v, const char *name, const dg_field *f,
                        dg_http_error *e)
{
    bool whole = f->type == DG_FIELD_INT;
    double x = json_number_value(v);
    if (!json_is_number(v))
        return wrong(e, name, whole ? "a whole number" : "a number");
    if (!(x >= f->min && x <= f->max))
        return dg_refuse(e, 400, "invalid_value", name, "%s is %.10g: %.10g to %.10g are possible",
                         name, x, f->min, f->max);
    if (whole && x != (double)(int)x)
        return wrong(e, name, "a whole number");
    if (whole)
        *(int *)at = (int)x;
    else
        *(float *)at = (float)x;
    return true;
}

static bool read_bool(bool *at, const json_t *v, const char *name, const dg_field *f,
                      dg_http_error *e)
{
    bool number = f->type == DG_FIELD_SWITCH && json_is_integer(v);
    json_int_t n = json_integer_value(v);
    if (!json_is_boolean(v) && (!number || n < 0 || n > 1))
        return wrong(e, name, f->type == DG_FIELD_SWITCH ? "true, false, 1 or 0" : "true or false");
    *at = json_is_true(v) || n;
    return true;
}

bool dg_fields_known(const json_t *object, const char *where, const dg_field *fields, size_t n,
                     dg_http_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        char name[sizeof e->param];
        size_t i = 0;
        while (i < n && strcmp(fields[i].name, key) != 0)
            i++;
        snprintf(name, sizeof name, "%s%s", where, key);
        if (i == n)
            return dg_refuse(e, 400, "unknown_parameter", name, "%s: not known", name);
    }
    return true;
}

bool dg_fields_read(void *out, const json_t *object, const char *where, const dg_field *fields,
                    size_t n, dg_http_error *e)
{
    for (size_t i = 0; i < n; i++) {
        const dg_field *f = &fields[i];
        const json_t *v = dg_field_get(object, f->name);
        char name[sizeof e->param];
        void *at = (char *)out + f->offset;
        if (!v)
            continue;
        snprintf(name, sizeof name, "%s%s", where, f->name);
        bool number = f->type == DG_FIELD_INT || f->type == DG_FIELD_FLOAT;
        if (!(number ? read_number(at, v, name, f, e) : read_bool(at, v, name, f, e)))
            return false;
    }
    return true;
}

bool dg_field_ids(const json_t *list, int n_most, const char *param, int32_t **out, size_t *n,
                  dg_http_error *e)
{
    size_t i;
    json_t *v;
    *n = json_array_size(list);
    *out = dg_array(*n + 1, sizeof **out);
    if (!*out)
        return dg_refuse(e, 503, "out_of_memory", param, "out of memory for %zu tokens", *n);
    json_array_foreach(list, i, v)
    {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= n_most) {
            dg_free(*out);
            *out = NULL;
            return dg_refuse(e, 400, "invalid_value", param,
                             "%s[%zu]: wanted a whole number from 0 to %d", param, i, n_most - 1);
        }
        (*out)[i] = (int32_t)id;
    }
    return true;
}
