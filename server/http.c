/* Bytes in and out: libmicrohttpd's side of the server. One thread, which never waits: a call that
 * takes time is suspended, and resumed when there is something to send. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "server_internal.h"

enum {
    HEADER_BYTES = 64 << 10, /* of a request's line and headers */
    SEND_BYTES = 16 << 10,
    BACKLOG = 1024
};

static const char *header(struct MHD_Connection *con, const char *name)
{
    return MHD_lookup_connection_value(con, MHD_HEADER_KIND, name);
}

/* ---- answers ---- */

void dg_http_suspend(dg_call *c)
{
    pthread_mutex_lock(&c->x.lock);
    c->suspended = true;
    MHD_suspend_connection(c->connection);
    pthread_mutex_unlock(&c->x.lock);
}

void dg_http_resume(void *call)
{
    dg_call *c = call;
    if (c->suspended && c->connection) {
        c->suspended = false;
        MHD_resume_connection(c->connection);
    }
}

/* Gives the library what is there, or puts the connection to sleep. */
static ssize_t read_answer(void *call, uint64_t pos, char *to, size_t max)
{
    (void)pos;
    dg_call *c = call;
    pthread_mutex_lock(&c->x.lock);
    long n = dg_exchange_take(&c->x, to, max);
    if (!n) {
        c->suspended = true;
        MHD_suspend_connection(c->connection);
    }
    pthread_mutex_unlock(&c->x.lock);
    return n >= 0    ? n
           : n == -1 ? MHD_CONTENT_READER_END_OF_STREAM
                     : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void add_cors(dg_call *c, struct MHD_Response *r)
{
    const char *origin = header(c->connection, "Origin");
    if (!dg_origin_listed(c->server->origins, origin))
        return;
    MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(r, "Vary", "Origin");
    MHD_add_response_header(r, "Access-Control-Expose-Headers", "x-request-id");
    if (strcmp(c->method, "OPTIONS") != 0)
        return;
    MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    const char *wanted = header(c->connection, "Access-Control-Request-Headers");
    MHD_add_response_header(r, "Access-Control-Allow-Headers",
                            wanted ? wanted : "authorization, content-type");
    MHD_add_response_header(r, "Access-Control-Max-Age", "600");
}

static void add_headers(dg_call *c, struct MHD_Response *r)
{
    char seconds[16];
    MHD_add_response_header(r, "Content-Type", c->x.content_type);
    MHD_add_response_header(r, "x-request-id", c->x.id);
    MHD_add_response_header(r, "request-id", c->x.id); /* Anthropic's name for it */
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    for (const dg_header *h = c->x.headers; h && h->name; h++)
        MHD_add_response_header(r, h->name, h->value);
    if (!MHD_get_response_header(r, "Cache-Control"))
        MHD_add_response_header(r, "Cache-Control", c->x.streaming ? "no-cache" : "no-store");
    if (c->x.streaming)
        MHD_add_response_header(r, "X-Accel-Buffering", "no");
    if (c->x.retry_after > 0) {
        snprintf(seconds, sizeof seconds, "%d", c->x.retry_after);
        MHD_add_response_header(r, "Retry-After", seconds);
    } else if (c->x.retry_after < 0) {
        MHD_add_response_header(r, "x-should-retry", "false");
    }
    if (c->x.status == 401)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    add_cors(c, r);
}

/* Queues what was decided. */
static enum MHD_Result send_answer(dg_call *c)
{
    pthread_mutex_lock(&c->x.lock);
    int status = c->x.status;
    uint64_t size = c->x.streaming ? MHD_SIZE_UNKNOWN : c->x.out.len;
    pthread_mutex_unlock(&c->x.lock);
    if (!status)
        return MHD_NO;
    struct MHD_Response *r =
        MHD_create_response_from_callback(size, SEND_BYTES, read_answer, c, NULL);
    if (!r)
        return MHD_NO;
    add_headers(c, r);
    enum MHD_Result ok = MHD_queue_response(c->connection, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

/* ---- requests ---- */

static void copy_printable(char *to, size_t size, const char *from)
{
    size_t n = 0;
    for (; from[n] && n + 1 < size; n++)
        to[n] = from[n] > ' ' && from[n] < 127 ? from[n] : '?';
    to[n] = '\0';
}

/* A number of bytes that a client promised; 0 when it did not. */
static unsigned long long promised_bytes(struct MHD_Connection *con)
{
    const char *text = header(con, "Content-Length");
    return text ? strtoull(text, NULL, 10) : 0;
}

static bool refuse_late(dg_http_error *e)
{
    dg_refuse(e, 503, "shutting_down", NULL, "the server is shutting down");
    e->retry_after = 5;
    return false;
}

/* All that can be said before the body is there. */
static bool may_enter(dg_call *c, const char *method, const char *path, dg_http_error *e)
{
    dg_server *s = c->server;
    struct MHD_Connection *con = c->connection;
    bool other_method;
    const dg_route *route = dg_route_find(method, path, &other_method);
    if (route && route->dialect)
        c->x.error_form = route->dialect->error;
    c->route = other_method ? NULL : route;
    if (!dg_origin_allows(s->origins, header(con, "Origin"), header(con, "Host")))
        return dg_refuse(e, 403, "origin_not_allowed", NULL,
                         "pages of other sites may not use this server");
    bool open = (c->route && c->route->open) || !strcmp(method, "OPTIONS");
    if (!open && s->only_this_machine && !dg_host_allows(s->origins, header(con, "Host")))
        return dg_refuse(e, 403, "host_not_allowed", NULL,
                         "this server is for this machine alone and is not called that; "
                         "--cors-origin names a site that leads here");
    if (!open && !dg_auth_allows(s->keys, header(con, "Authorization"), header(con, "X-Api-Key")))
        return dg_refuse(e, 401, "invalid_api_key", NULL, "no valid API key was sent");
    if (other_method)
        return dg_refuse(e, 405, "method_not_allowed", NULL, "%s does not go with %s", c->method,
                         c->path);
    if (!c->route)
        return dg_refuse(e, 404, "not_found", NULL, "there is no %s", c->path);
    if (promised_bytes(con) > s->opt.max_body_bytes)
        return dg_refuse(e, 413, "body_too_large", NULL, "the body has %llu bytes, at most %zu",
                         promised_bytes(con), s->opt.max_body_bytes);
    return !(c->route->generates && atomic_load(&s->draining)) || refuse_late(e);
}

static dg_peer *peer_of(struct MHD_Connection *con)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(con, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* Many clients look for an answer only when all they have to say is sent. One that asks first, or
 * has far too much to say, is told at once. */
static bool is_worth_waiting(const dg_call *c)
{
    unsigned long long n = promised_bytes(c->connection);
    bool comes = n || header(c->connection, "Transfer-Encoding");
    return comes && n / 4 <= c->server->opt.max_body_bytes && !header(c->connection, "Expect");
}

/* The headers are there. */
static enum MHD_Result begin_call(dg_server *s, struct MHD_Connection *con, const char *method,
                                  const char *path, void **slot)
{
    dg_http_error e;
    dg_call *c = dg_call_create(s);
    if (!c)
        return MHD_NO;
    *slot = c;
    c->connection = con;
    c->peer = peer_of(con);
    copy_printable(c->method, sizeof c->method, method);
    copy_printable(c->path, sizeof c->path, path);
    if (may_enter(c, method, path, &e)) {
        if (!c->route->now)
            dg_call_accept(c);
        return MHD_YES;
    }
    dg_exchange_refuse(&c->x, &e);
    c->dispatched = true; /* what still comes is not kept */
    return is_worth_waiting(c) ? MHD_YES : send_answer(c);
}

static void take_body(dg_call *c, const char *data, size_t n)
{
    dg_server *s = c->server;
    if (c->too_large)
        return;
    size_t all = atomic_fetch_add(&s->body_bytes, n) + n;
    if (all > s->opt.max_all_body_bytes || !dg_buf_append(&c->body, data, n)) {
        atomic_fetch_sub(&s->body_bytes, n + c->body.len);
        dg_buf_clear(&c->body);
        c->too_large = true;
    }
}

static void set_state(dg_server *s, dg_peer *p, dg_peer_state state)
{
    pthread_mutex_lock(&s->peer_lock);
    if (p) {
        p->state = state;
        p->since = dg_clock_now();
    }
    pthread_mutex_unlock(&s->peer_lock);
}

/* The whole request is there. */
static enum MHD_Result dispatch(dg_call *c)
{
    dg_http_error e;
    c->dispatched = true;
    set_state(c->server, c->peer, DG_PEER_SERVED);
    if (c->too_large) {
        dg_refuse(&e, 413, "body_too_large", NULL,
                  "the body is larger than %zu bytes, or there are too many at once",
                  c->server->opt.max_body_bytes);
        dg_exchange_refuse(&c->x, &e);
    } else if (c->route->now) {
        c->route->work(c);
    } else if (dg_call_hand_over(c)) {
        return MHD_YES;
    } else {
        refuse_late(&e);
        dg_exchange_refuse(&c->x, &e);
    }
    return send_answer(c);
}

static enum MHD_Result on_request(void *server, struct MHD_Connection *con, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n, void **slot)
{
    (void)version;
    dg_call *c = *slot;
    if (!c)
        return begin_call(server, con, method, url, slot);
    if (*n) {
        if (!c->dispatched)
            take_body(c, data, *n);
        *n = 0;
        return MHD_YES;
    }
    return c->dispatched ? send_answer(c) : dispatch(c);
}

static void on_completed(void *server, struct MHD_Connection *con, void **slot,
                         enum MHD_RequestTerminationCode code)
{
    (void)con;
    (void)code;
    dg_call *c = *slot;
    if (!c)
        return;
    *slot = NULL;
    set_state(server, c->peer, DG_PEER_IDLE);
    dg_call_end(c);
}

/* The request line is there: the time for the rest begins to run. */
static void *on_request_line(void *server, const char *uri, struct MHD_Connection *con)
{
    (void)uri;
    set_state(server, peer_of(con), DG_PEER_ASKING);
    return NULL;
}

/* ---- connections ---- */

static void on_connection(void *server, struct MHD_Connection *con, void **slot,
                          enum MHD_ConnectionNotificationCode code)
{
    dg_server *s = server;
    pthread_mutex_lock(&s->peer_lock);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        dg_peer *p = dg_calloc(1, sizeof *p);
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(con, MHD_CONNECTION_INFO_CONNECTION_FD);
        dg_watch_crowd(s);
        if (p && info) {
            *p = (dg_peer){.fd = info->connect_fd, .since = dg_clock_now(), .next = s->peers};
            if (p->next)
                p->next->prev = p;
            s->peers = p;
            s->n_peer++;
        }
        *slot = p;
    } else if (*slot) {
        dg_peer *p = *slot;
        *(p->prev ? &p->prev->next : &s->peers) = p->next;
        if (p->next)
            p->next->prev = p->prev;
        s->n_peer--;
        *slot = NULL;
        dg_free(p);
    }
    pthread_mutex_unlock(&s->peer_lock);
}

static void on_message(void *server, const char *fmt, va_list args)
{
    char line[512];
    vsnprintf(line, sizeof line, fmt, args);
    line[strcspn(line, "\n")] = '\0';
    dg_server_log(server, "http: %s", line);
}

/* ---- starting ---- */

static dgemma_status find_address(const dg_server *s, struct addrinfo **out, dgemma_error *err)
{
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    snprintf(port, sizeof port, "%d", s->opt.port);
    int code = getaddrinfo(s->opt.host, port, &hints, out);
    return code ? dg_fail(err, DGEMMA_E_ARG, "host %s: %s", s->opt.host, gai_strerror(code))
                : DGEMMA_OK;
}

static bool is_this_machine(const struct sockaddr *address)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (address->sa_family == AF_INET6) {
        memcpy(&v6, address, sizeof v6);
        return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
    }
    memcpy(&v4, address, sizeof v4);
    return address->sa_family == AF_INET && ntohl(v4.sin_addr.s_addr) >> 24 == 127;
}

dgemma_status dg_http_start(dg_server *s, dgemma_error *err)
{
    struct addrinfo *address;
    dgemma_status st = find_address(s, &address, err);
    if (st)
        return st;
    s->only_this_machine = !s->keys.n && is_this_machine(address->ai_addr);
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    if (address->ai_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)s->opt.tls_certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)s->opt.tls_key},
        {MHD_OPTION_END, 0, NULL},
    };
    if (s->opt.tls_certificate)
        flags |= MHD_USE_TLS;
    else
        tls[0] = tls[2];
    errno = 0;
    s->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_message, s,
        MHD_OPTION_SOCK_ADDR, address->ai_addr, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)s->opt.max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)s->opt.idle_seconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
        MHD_OPTION_LISTEN_BACKLOG_SIZE, (unsigned)BACKLOG, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
        MHD_OPTION_URI_LOG_CALLBACK, on_request_line, s, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    int why = errno;
    freeaddrinfo(address);
    if (!s->daemon && s->opt.tls_certificate && !why)
        return dg_fail(err, DGEMMA_E_ARG, "the certificate and the key are not a pair in PEM form");
    if (!s->daemon)
        return dg_fail(err, DGEMMA_E_IO, "cannot listen on %s port %d: %s", s->opt.host,
                       s->opt.port, strerror(why));
    return DGEMMA_OK;
}
