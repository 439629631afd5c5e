#include "response_items.h"
#include "base/common.h"
#include "json_fields.h"
#include "json_text.h"
#include "translate.h"

enum { MAX_WORD = 64 }; /* of an id, a status or a detail, which are kept as they are */

static void take(json_t **to, const json_t *from, const char *key)
{
    json_t *value = dg_field_get(from, key);
    if (value)
        dg_json_put(to, key, json_incref(value));
}

static void take_word(json_t **to, const json_t *from, const char *key)
{
    const json_t *value = json_object_get(from, key);
    if (json_is_string(value) && json_string_length(value) <= MAX_WORD)
        take(to, from, key);
}

static json_t *kept_part(json_t *part)
{
    if (!json_is_object(part))
        return json_incref(part);
    json_t *kept = json_object();
    take(&kept, part, "type");
    if (dg_json_says(json_object_get(part, "type"), "input_image")) {
        take(&kept, part, "image_url");
        take_word(&kept, part, "detail");
    } else {
        take(&kept, part, "text");
    }
    return kept;
}

static void take_parts(json_t **to, const json_t *from, const char *key)
{
    const json_t *parts = json_object_get(from, key);
    json_t *kept = json_array(), *part;
    size_t i;
    json_array_foreach(parts, i, part) dg_json_add(&kept, kept_part(part));
    if (json_is_array(parts)) {
        dg_json_put(to, key, kept);
        return;
    }
    json_decref(kept);
    take(to, from, key);
}

/* Text is short for a list of one part. */
static void take_content(json_t **to, const json_t *message)
{
    json_t *content = json_object_get(message, "content");
    bool said = dg_json_says(json_object_get(message, "role"), "assistant");
    if (json_is_string(content))
        dg_json_put(
            to, "content",
            json_pack("[{s:s,s:O}]", "type", said ? "output_text" : "input_text", "text", content));
    else
        take_parts(to, message, "content");
}

static json_t *kept_item(json_t *item, const char *name, size_t i)
{
    static const struct {
        const char *type, *prefix;
        const char *fields[3], *lists[2];
    } kinds[] = {{"message", "msg", {"role"}, {NULL}},
                 {"function_call", "fc", {"call_id", "name", "arguments"}, {NULL}},
                 {"function_call_output", "fco", {"call_id"}, {"output"}},
                 {"reasoning", "rs", {NULL}, {"summary", "content"}}};
    const json_t *type = dg_field_get(item, "type");
    size_t k = 0;
    while (type && k < DG_COUNT(kinds) && !dg_json_says(type, kinds[k].type))
        k++;
    if (!json_is_object(item) || k == DG_COUNT(kinds))
        return json_incref(item);
    json_t *kept = json_pack("{s:s}", "type", kinds[k].type);
    for (size_t n = 0; n < DG_COUNT(kinds->fields) && kinds[k].fields[n]; n++)
        take(&kept, item, kinds[k].fields[n]);
    for (size_t n = 0; n < DG_COUNT(kinds->lists) && kinds[k].lists[n]; n++)
        take_parts(&kept, item, kinds[k].lists[n]);
    if (k == 0)
        take_content(&kept, item);
    take_word(&kept, item, "status");
    take_word(&kept, item, "id");
    if (kept && !json_object_get(kept, "id"))
        dg_json_put(&kept, "id", json_sprintf("%s_%s_in%zu", kinds[k].prefix, name, i));
    return kept;
}

json_t *dg_response_items(const json_t *input, const char *name)
{
    json_t *items = json_array(), *item;
    size_t i;
    if (json_is_string(input)) {
        json_t *message = json_pack("{s:s,s:O}", "role", "user", "content", input);
        dg_json_add(&items, message ? kept_item(message, name, 0) : NULL);
        json_decref(message);
    }
    json_array_foreach(input, i, item) dg_json_add(&items, kept_item(item, name, i));
    return items;
}
