#include "picture_links.h"
#include <string.h>
#include <strings.h>
#include "base/base64.h"
#include "base/clock.h"
#include "base/common.h"

/* What it is the engine finds out by itself. */
#define MEDIA_TYPE "application/octet-stream"

typedef struct follower {
    dg_fetcher *f;
    const dg_link_limits *limits;
    dg_http_error *e;
    double until;
    size_t n_byte; /* fetched */
    size_t n_text; /* of these, as base64 */
    int n_picture;
    bool inside; /* has a place among the fetches */
} follower;

static bool no_memory(const follower *w)
{
    return dg_refuse(w->e, 503, "out_of_memory", NULL, "out of memory");
}

static bool is_link(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && (!strncasecmp(text, "http://", 7) || !strncasecmp(text, "https://", 8));
}

static bool may_fetch(follower *w)
{
    if (w->n_picture++ == w->limits->max_pictures)
        return dg_refuse(w->e, 400, "too_many_images", NULL, "at most %d pictures in a request",
                         w->limits->max_pictures);
    if (w->inside)
        return true;
    w->inside = dg_fetcher_enter(w->f);
    if (!w->inside) {
        dg_refuse(w->e, 503, "busy", NULL, "%d requests wait for pictures already", DG_MAX_FETCHES);
        w->e->retry_after = 1;
    }
    return w->inside;
}

/* Appends the picture at an address to `text`, as base64. */
static bool append_picture(follower *w, const char *url, dg_buf *text)
{
    dg_buf bytes;
    dg_buf_init(&bytes, w->limits->max_bytes - w->n_byte);
    bool ok = may_fetch(w) && dg_fetch(w->f, url, w->until, &bytes, w->e);
    ok = ok && (dg_base64_encode(text, bytes.data, bytes.len) || no_memory(w));
    w->n_byte += bytes.len;
    w->n_text += text->len;
    dg_buf_clear(&bytes);
    return ok;
}

/* The string at `key` of an object becomes `before` and the picture. */
static bool replace(follower *w, json_t *object, const char *key, const char *before)
{
    dg_buf text;
    dg_buf_init(&text, 2 * w->limits->max_bytes + 1024);
    bool ok = dg_buf_puts(&text, before) || no_memory(w);
    ok = ok && append_picture(w, json_string_value(json_object_get(object, key)), &text);
    if (ok && json_object_set_new(object, key, json_stringn_nocheck(text.data, text.len)))
        ok = no_memory(w);
    dg_buf_clear(&text);
    return ok;
}

/* Anthropic's {"type": "url", "url": …} becomes {"type": "base64", "media_type": …, "data": …}. */
static bool follow_source(follower *w, json_t *source)
{
    json_t *url = json_object_get(source, "url");
    if (!is_link(url))
        return true;
    if (json_object_set(source, "data", url) || json_object_del(source, "url") ||
        json_object_set_new(source, "type", json_string("base64")) ||
        json_object_set_new(source, "media_type", json_string(MEDIA_TYPE)))
        return no_memory(w);
    return replace(w, source, "data", "");
}

/* The places where an address may be: under one of these names, or in an object there. */
static bool follow_picture(follower *w, json_t *part)
{
    static const char *const names[] = {"image_url", "url", "image"};
    for (size_t i = 0; i < DG_COUNT(names); i++) {
        json_t *value = json_object_get(part, names[i]);
        if (is_link(value))
            return replace(w, part, names[i], "data:" MEDIA_TYPE ";base64,");
        if (is_link(json_object_get(value, "url")))
            return replace(w, value, "url", "data:" MEDIA_TYPE ";base64,");
    }
    return follow_source(w, json_object_get(part, "source"));
}

static bool is_picture(const json_t *part)
{
    static const char *const names[] = {"image_url", "input_image", "image"};
    const char *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; type && i < DG_COUNT(names); i++)
        if (!strcmp(type, names[i]))
            return true;
    return false;
}

/* Messages, their parts, and parts of what a tool gave back; not what else a client may write. */
static bool follow_list(follower *w, const json_t *list)
{
    size_t i;
    json_t *item;
    bool ok = true;
    json_array_foreach(list, i, item)
    {
        if (ok && is_picture(item))
            ok = follow_picture(w, item);
        else if (ok)
            ok = follow_list(w, json_object_get(item, "content")) &&
                 follow_list(w, json_object_get(item, "output"));
    }
    return ok;
}

bool dg_links_follow(json_t *root, dg_fetcher *f, const dg_link_limits *limits, size_t *n_byte,
                     dg_http_error *e)
{
    *n_byte = 0;
    if (!f)
        return true;
    follower w = {.f = f, .limits = limits, .e = e, .until = dg_clock_now() + limits->seconds};
    bool ok = follow_list(&w, json_object_get(root, "messages")) &&
              follow_list(&w, json_object_get(root, "input"));
    if (w.inside)
        dg_fetcher_leave(f);
    if (ok)
        *n_byte = w.n_text;
    else if (e->status < 500)
        strcpy(e->param, "messages"); /* in the words of chat completions, as all readers say it */
    return ok;
}
