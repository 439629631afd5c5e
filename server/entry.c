#include "entry.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/alloc.h"
#include "base/common.h"
#include "routes.h"

static dg_call *call_of(dg_exchange *x)
{
    return (dg_call *)(void *)x;
}

/* ---- answers ---- */

/* Lines of an answer's head. */
typedef struct lines {
    dg_buf *out;
    bool full;
} lines;

static void add(lines *l, const char *name, const char *value)
{
    l->full = l->full || !dg_buf_puts(l->out, name) || !dg_buf_puts(l->out, ": ") ||
              !dg_buf_puts(l->out, value) || !dg_buf_puts(l->out, "\r\n");
}

static void add_cors(dg_call *c, lines *out)
{
    const char *origin = dg_head_get(c->head, "Origin");
    if (!dg_origin_listed(c->server->origins, origin))
        return;
    add(out, "Access-Control-Allow-Origin", origin);
    add(out, "Vary", "Origin");
    add(out, "Access-Control-Expose-Headers", "x-request-id");
    if (strcmp(c->method, "OPTIONS") != 0)
        return;
    add(out, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    const char *wanted = dg_head_get(c->head, "Access-Control-Request-Headers");
    add(out, "Access-Control-Allow-Headers", wanted ? wanted : "authorization, content-type");
    add(out, "Access-Control-Max-Age", "600");
}

static bool on_headers(dg_exchange *x, dg_buf *to)
{
    dg_call *c = call_of(x);
    lines all = {.out = to}, *out = &all;
    char seconds[16];
    add(out, "Content-Type", c->x.content_type);
    add(out, "x-request-id", c->name);
    add(out, "request-id", c->name); /* Anthropic's name for it */
    add(out, "X-Content-Type-Options", "nosniff");
    bool says_how_to_cache = false;
    for (const dg_header *h = c->x.headers; h && h->name; h++) {
        add(out, h->name, h->value);
        says_how_to_cache = says_how_to_cache || !strcmp(h->name, "Cache-Control");
    }
    if (!says_how_to_cache)
        add(out, "Cache-Control", c->x.streaming ? "no-cache" : "no-store");
    if (c->x.streaming)
        add(out, "X-Accel-Buffering", "no");
    if (c->x.retry_after > 0) {
        snprintf(seconds, sizeof seconds, "%d", c->x.retry_after);
        add(out, "Retry-After", seconds);
    } else if (c->x.retry_after < 0) {
        add(out, "x-should-retry", "false");
    }
    if (c->x.status == 401)
        add(out, "WWW-Authenticate", "Bearer");
    add_cors(c, out);
    return !all.full;
}

/* ---- requests ---- */

static void copy_printable(char *to, size_t size, const char *from)
{
    size_t n = 0;
    for (; from[n] && n + 1 < size; n++)
        to[n] = from[n] > ' ' && from[n] < 127 ? from[n] : '?';
    to[n] = '\0';
}

static bool refuse_late(dg_http_error *e)
{
    dg_refuse(e, 503, "shutting_down", NULL, "the server is shutting down");
    e->retry_after = 5;
    return false;
}

static bool refuse_early(dg_http_error *e)
{
    dg_refuse(e, 503, "loading", NULL, "Loading model");
    e->retry_after = 2;
    return false;
}

/* One name through the logs of all who pass it on, where it is a plain one. */
static void name_call(dg_call *c, const char *given)
{
    size_t n = given ? strlen(given) : 0;
    bool plain = n && n < sizeof c->name && dg_head_is_token(given, n);
    strcpy(c->name, plain ? given : c->x.id);
}

static void name_methods(dg_call *c, const char *path)
{
    static const char *const names[] = {"GET", "POST", "DELETE"};
    size_t n = 0;
    for (size_t i = 0; i < DG_COUNT(names); i++) {
        bool other;
        if (!dg_route_find(names[i], path, &other) || other)
            continue;
        n += (size_t)snprintf(c->methods_text + n, sizeof c->methods_text - n, "%s, ",
                              i ? names[i] : "GET, HEAD");
    }
    snprintf(c->methods_text + n, sizeof c->methods_text - n, "OPTIONS");
    c->methods[0] = (dg_header){"Allow", c->methods_text};
    c->x.headers = c->methods;
}

/* What the head says to a route that looks at it, when the head is not there any more. */
static bool keep_head(dg_call *c, const dg_head *h, dg_http_error *e)
{
    const char *type = dg_head_get(h, "Content-Type");
    c->query = dg_strdup(h->query);
    c->content_type = type ? dg_strdup(type) : NULL;
    return (c->query && (!type || c->content_type)) ||
           dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
}

/* All that can be said before the body is there. */
static bool may_enter(dg_call *c, const dg_head *h, dg_http_error *e)
{
    dg_server *s = c->server;
    bool other_method;
    if (h->state == DG_HEAD_BAD)
        return dg_refuse(e, h->status, h->code, NULL, "%s", h->why);
    const dg_route *route = dg_route_find(h->method, h->path, &other_method);
    if (route && route->dialect)
        c->x.error_form = route->dialect->error;
    c->route = other_method ? NULL : route;
    if (!dg_origin_allows(s->origins, dg_head_get(h, "Origin"), dg_head_host(h)))
        return dg_refuse(e, 403, "origin_not_allowed", NULL,
                         "pages of other sites may not use this server");
    bool open = (c->route && c->route->open) || !strcmp(h->method, "OPTIONS");
    if (!open && s->only_this_machine && !dg_host_allows(s->origins, dg_head_host(h)))
        return dg_refuse(e, 403, "host_not_allowed", NULL,
                         "this server is for this machine alone and is not called that; "
                         "--cors-origin names a site that leads here");
    int key = dg_auth_key(s->keys, dg_head_get(h, "Authorization"), dg_head_get(h, "X-Api-Key"));
    if (!open && key < 0)
        return dg_refuse(e, 401, "invalid_api_key", NULL, "no valid API key was sent");
    c->key = key;
    if (!s->opt.share_cache)
        snprintf(c->cache_salt, sizeof c->cache_salt, "key %d", key);
    if (other_method) {
        name_methods(c, h->path);
        return dg_refuse(e, 405, "method_not_allowed", NULL, "%s does not go with %s", c->method,
                         c->path);
    }
    if (!c->route)
        return dg_refuse(e, 404, "not_found", NULL, "there is no %s", c->path);
    if (!c->route->always && !atomic_load(&s->ready))
        return refuse_early(e);
    const char *encoding = dg_head_get(h, "Content-Encoding");
    if (encoding && strcasecmp(encoding, "identity"))
        return dg_refuse(e, 415, "unsupported_encoding", NULL,
                         "the body is encoded (Content-Encoding), and is read only as it stands");
    if (h->length > s->opt.max_body_bytes)
        return dg_refuse(e, 413, "body_too_large", NULL, "the body has %llu bytes, at most %zu",
                         (unsigned long long)h->length, s->opt.max_body_bytes);
    if (c->route->keeps && !keep_head(c, h, e))
        return false;
    return !(c->route->generates && atomic_load(&s->draining)) || refuse_late(e);
}

static dg_exchange *on_head(void *server, const dg_head *head, dg_address peer)
{
    dg_http_error e;
    dg_call *c = dg_call_create(server);
    if (!c)
        return NULL;
    c->head = head;
    copy_printable(c->method, sizeof c->method, head->method);
    copy_printable(c->path, sizeof c->path, head->path);
    dg_address_print(c->client, dg_client_address(&c->server->proxies, peer, head));
    name_call(c, dg_head_get(head, "X-Request-Id"));
    if (!may_enter(c, head, &e))
        dg_exchange_refuse(&c->x, &e);
    else if (!c->route->now)
        dg_call_accept(c);
    return &c->x;
}

static void on_body(dg_exchange *x, const char *data, size_t n)
{
    dg_call *c = call_of(x);
    dg_server *s = c->server;
    dg_http_error e;
    size_t all = atomic_fetch_add(&s->body_bytes, n) + n;
    bool fits = all <= s->opt.max_all_body_bytes && n <= c->body.max - c->body.len;
    if (fits && dg_buf_append(&c->body, data, n))
        return;
    atomic_fetch_sub(&s->body_bytes, n + c->body.len);
    dg_buf_clear(&c->body);
    if (fits)
        dg_refuse(&e, 503, "out_of_memory", NULL, "there is no memory for the body");
    else
        dg_refuse(&e, 413, "body_too_large", NULL,
                  "the body is larger than %zu bytes, or there are too many at once",
                  s->opt.max_body_bytes);
    dg_exchange_refuse(x, &e);
}

static void on_complete(dg_exchange *x)
{
    dg_call *c = call_of(x);
    dg_http_error e;
    if (c->route->now) {
        c->route->work(c);
    } else if (!dg_call_hand_over(c)) {
        refuse_late(&e);
        dg_exchange_refuse(x, &e);
    }
}

static void on_hang_up(dg_exchange *x)
{
    dg_call *c = call_of(x);
    pthread_mutex_lock(&c->server->lock);
    dg_call_cancel(c, DG_CANCEL_HANGUP);
    pthread_mutex_unlock(&c->server->lock);
}

static void on_end(dg_exchange *x)
{
    dg_call_end(call_of(x));
}

dg_http_handler dg_entry_handler(dg_server *s)
{
    return (dg_http_handler){.user = s,
                             .begin = on_head,
                             .body = on_body,
                             .complete = on_complete,
                             .headers = on_headers,
                             .hang_up = on_hang_up,
                             .end = on_end};
}
