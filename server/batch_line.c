#include "batch_line.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/alloc.h"
#include "json_body.h"
#include "json_fields.h"
#include "json_text.h"

/* ---- what is asked ---- */

/* Simple enough for everybody to compute who wants to ask the same in another way. */
static uint32_t seed_of(const char *custom_id)
{
    uint32_t h = 2166136261u;
    for (const char *c = custom_id; *c; c++)
        h = (h ^ (unsigned char)*c) * 16777619u;
    return h;
}

static bool make_mark(dg_batch_line *l)
{
    json_t *asked = json_pack("{s:s,s:s,s:O}", "custom_id", l->custom_id, "url", l->route->path,
                              "body", l->body);
    char *text = asked ? json_dumps(asked, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    json_decref(asked);
    if (!text)
        return false;
    XXH128_hash_t h = XXH3_128bits(text, strlen(text));
    snprintf(l->mark, sizeof l->mark, "%016llx%08x", (unsigned long long)h.high64,
             (unsigned)(h.low64 & 0xffffffffu));
    free(text); /* jansson's own */
    return true;
}

static bool read_custom_id(dg_batch_line *l, dg_http_error *e)
{
    const json_t *id = dg_field_get(l->root, "custom_id");
    if (!json_is_string(id) || !json_string_length(id))
        return dg_refuse(e, 400, "missing_custom_id", "custom_id",
                         "custom_id: wanted a text, by which the answer is found");
    if (json_string_length(id) > DG_CUSTOM_ID_BYTES)
        return dg_refuse(e, 400, "invalid_value", "custom_id",
                         "custom_id: it has %zu bytes, at most %d are possible",
                         json_string_length(id), DG_CUSTOM_ID_BYTES);
    l->custom_id = json_string_value(id);
    l->seed = seed_of(l->custom_id);
    return true;
}

static bool read_url(dg_batch_line *l, dg_http_error *e)
{
    const json_t *method = dg_field_get(l->root, "method"), *url = dg_field_get(l->root, "url");
    const char *path = json_string_value(url);
    bool other = false;
    if (!json_is_string(method) || strcmp(json_string_value(method), "POST") != 0)
        return dg_refuse(e, 400, "invalid_method", "method", "method: wanted \"POST\"");
    l->route = path && !strncmp(path, "/v1/", 4) ? dg_route_find("POST", path, &other) : NULL;
    if (!l->route || other || !l->route->generates)
        return dg_refuse(e, 400, "invalid_url", "url",
                         "url: %s%.60s%s; /v1/chat/completions, /v1/completions, /v1/responses, "
                         "/v1/messages, /v1/decisions, /v1/systemone and /v1/edit are known",
                         path ? "\"" : "it is missing, or no text", path ? path : "",
                         path ? "\" is none" : "");
    return true;
}

bool dg_batch_line_read(dg_batch_line *out, const char *text, size_t len, dg_http_error *e)
{
    *out = (dg_batch_line){.root = dg_json_body(text, len, e)};
    if (!out->root) {
        if (!strncmp(e->message, "the body", 8))
            memcpy(e->message, "the line", 8);
        return false;
    }
    if (!read_custom_id(out, e) || !read_url(out, e))
        return false;
    out->body = json_object_get(out->root, "body");
    if (!json_is_object(out->body))
        return dg_refuse(e, 400, "missing_body", "body", "body: wanted an object, the request");
    return make_mark(out) ||
           dg_refuse(e, 503, "out_of_memory", NULL, "out of memory for the request");
}

void dg_batch_line_clear(dg_batch_line *l)
{
    json_decref(l->root);
    *l = (dg_batch_line){0};
}

/* ---- what is written ---- */

static const char id_key[] = "{\"id\":\"batch_req_", custom_key[] = "\",\"custom_id\":",
                  response_key[] = ",\"response\":{\"status_code\":",
                  answer_end[] = "},\"error\":null}";

static bool print_head(dg_buf *out, const char *custom_id, const char *mark)
{
    json_t *id = custom_id ? json_string(custom_id) : json_null();
    char *text = dg_json_dump(id, NULL);
    bool ok = text && dg_buf_puts(out, id_key) && dg_buf_puts(out, mark) &&
              dg_buf_puts(out, custom_key) && dg_buf_puts(out, text);
    dg_free(text);
    json_decref(id);
    return ok;
}

bool dg_batch_answer_print(dg_buf *out, const char *custom_id, const char *mark, int status,
                           const char *body, size_t len)
{
    char between[128];
    snprintf(between, sizeof between, "%s%d,\"request_id\":\"%s\",\"body\":", response_key, status,
             mark);
    return print_head(out, custom_id, mark) && dg_buf_puts(out, between) &&
           dg_buf_append(out, body, len) && dg_buf_puts(out, answer_end) && dg_buf_puts(out, "\n");
}

bool dg_batch_error_print(dg_buf *out, const char *custom_id, const char *mark, uint64_t number,
                          const dg_http_error *e)
{
    json_t *why =
        json_pack("{s:s?,s:o,s:I}", "code", e->code, "message",
                  dg_json_text(e->message, strlen(e->message)), "line", (json_int_t)number);
    char *text = dg_json_dump(why, NULL);
    bool ok = text && print_head(out, custom_id, mark) &&
              dg_buf_puts(out, ",\"response\":null,\"error\":") && dg_buf_puts(out, text) &&
              dg_buf_puts(out, "}\n");
    dg_free(text);
    json_decref(why);
    return ok;
}

/* ---- what was written ---- */

/* Past this text; NULL: it is not there. */
static const char *skip(const char *at, const char *end, const char *text)
{
    size_t n = strlen(text);
    return at && (size_t)(end - at) >= n && !memcmp(at, text, n) ? at + n : NULL;
}

/* Only its two ends are read, where all that is wanted stands: an answer may be large. */
bool dg_batch_answer_read(const char *text, size_t len, char *custom_id, char *mark)
{
    const char *end = text + len, *at = skip(text, end, id_key);
    if (!at || end - at < DG_BATCH_MARK || memchr(text, 0, len))
        return false; /* zeros: the power went while it was written */
    memcpy(mark, at, DG_BATCH_MARK);
    mark[DG_BATCH_MARK] = '\0';
    at = skip(at + DG_BATCH_MARK, end, custom_key);
    if (!at || strspn(mark, "0123456789abcdef") != DG_BATCH_MARK)
        return false;
    size_t most = 6 * DG_CUSTOM_ID_BYTES + 2, left = (size_t)(end - at), n = 1;
    while (n < left && n < most &&
           at[n] != '"') /* a quote is a string's end unless it is escaped */
        n += at[n] == '\\' ? 2 : 1;
    if (n >= left || at[n] != '"')
        return false;
    json_t *id = json_loadb(at, n + 1, JSON_DECODE_ANY, NULL);
    bool ok = json_is_string(id) && json_string_length(id) <= DG_CUSTOM_ID_BYTES;
    if (ok)
        memcpy(custom_id, json_string_value(id), json_string_length(id) + 1);
    json_decref(id);
    size_t n_end = sizeof answer_end - 1;
    return ok && skip(at + n + 1, end, response_key) && len > n_end &&
           !memcmp(end - n_end, answer_end, n_end);
}

bool dg_batch_answer_begins(const char *text, size_t len)
{
    size_t n = sizeof id_key - 1;
    while (len && !text[len - 1]) /* what a file system leaves where the power went */
        len--;
    return !memcmp(text, id_key, len < n ? len : n);
}
