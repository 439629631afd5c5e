#include "pocket/held.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "object";
    case JSON_ARRAY:
        return "array";
    case JSON_STRING:
        return "string";
    case JSON_INTEGER:
        return "integer";
    case JSON_REAL:
        return "number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "boolean";
    default:
        return "null";
    }
}

/* An object of exactly the value's keys, in their order; of a list, anything like its first. */
static json_t *schema_of(const json_t *value, bool renamed)
{
    json_t *schema = json_pack("{s:s}", "type", type_of(value));
    if (json_is_array(value) && json_array_size(value))
        json_object_set_new(schema, "items", schema_of(json_array_get(value, 0), renamed));
    if (!json_is_object(value))
        return schema;
    json_t *properties = json_object(), *required = json_array(), *member;
    const char *key;
    json_object_foreach((json_t *)value, key, member)
    {
        char name[256];
        snprintf(name, sizeof name, "%s%s", renamed ? "the_" : "", key);
        json_object_set_new(properties, name, schema_of(member, renamed));
        json_array_append_new(required, json_string(name));
    }
    json_object_set_new(schema, "properties", properties);
    json_object_set_new(schema, "required", required);
    json_object_set_new(schema, "additionalProperties", json_false());
    return schema;
}

dgemma_status held_constraint(dgemma_constraint **out, held_to to, const pocket_prompt *p,
                              dgemma_error *err)
{
    const json_t *value = json_object_get(p->check, "value");
    const char *kind = json_string_value(json_object_get(p->check, "kind"));
    bool is_json = kind && value && strcmp(kind, "json") == 0;
    dgemma_constraint_options opt = {.kind = DGEMMA_CONSTRAINT_JSON_SCHEMA};
    char *text = NULL;
    *out = NULL;
    if (is_json && to != HELD_TO_NOTHING) {
        json_t *schema = schema_of(value, to == HELD_TO_RENAMED);
        text = json_dumps(schema, JSON_COMPACT);
        json_decref(schema);
    } else if (p->tools && to == HELD_TO_OWN) {
        opt.kind = DGEMMA_CONSTRAINT_TOOLS;
        text = json_dumps(p->tools, JSON_COMPACT);
    } else
        return DGEMMA_OK;
    if (!text)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a schema");
    opt.text = text;
    opt.text_len = strlen(text);
    dgemma_status st = dgemma_constraint_create(out, &opt, err);
    free(text);
    return st;
}
