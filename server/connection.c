#include "connection.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"

enum {
    PIECE_BYTES = 16 << 10,  /* of an answer, taken at a time: a record of TLS */
    TURN_BYTES = 512 << 10,  /* moved before others have their turn */
    FRAME_BYTES = 32,        /* around a piece */
    HANDSHAKE_SECONDS = 10,  /* for TLS to agree */
    LINGER_SECONDS = 30,     /* for a client that goes on sending, */
    LINGER_QUIET_SECONDS = 2 /* and for one that does not */
};

/* ---- making and freeing ---- */

dg_connection *dg_connection_create(const dg_connection_shared *shared, int fd)
{
    dg_connection *c = dg_calloc(1, sizeof *c);
    if (c)
        *c = (dg_connection){.shared = shared, .fd = fd, .state = DG_CONNECTION_HEAD};
    if (c && shared->tls) {
        c->tls = dg_tls_session_create(shared->tls, fd);
        c->state = DG_CONNECTION_HANDSHAKE;
        c->handshake = DG_TLS_READS;
    }
    if (!c || (shared->tls && !c->tls)) {
        dg_free(c);
        close(fd);
        return NULL;
    }
    c->since = c->active = dg_clock_now();
    dg_head_init(&c->head);
    dg_buf_init(&c->rest, DG_SCRATCH_BYTES);
    dg_buf_init(&c->out, 2 * (DG_HEAD_BYTES + PIECE_BYTES));
    return c;
}

/* Nobody wakes the connection for it any more, and then it is the handler's to end. */
static void let_go(dg_connection *c)
{
    dg_exchange *x = c->x;
    if (!x)
        return;
    c->x = NULL;
    pthread_mutex_lock(&x->lock);
    x->wake = NULL;
    pthread_mutex_unlock(&x->lock);
    c->shared->handler->end(x);
}

void dg_connection_end(dg_connection *c)
{
    let_go(c);
    c->state = DG_CONNECTION_OVER;
}

void dg_connection_free(dg_connection *c)
{
    dg_tls_session_free(c->tls);
    close(c->fd);
    dg_head_clear(&c->head);
    dg_buf_clear(&c->rest);
    dg_buf_clear(&c->out);
    dg_free(c);
}

/* ---- sending ---- */

static ssize_t send_bytes(dg_connection *c, const char *data, size_t n)
{
    return c->tls ? dg_tls_send(c->tls, data, n) : send(c->fd, data, n, MSG_NOSIGNAL);
}

/* Sends what waits. False: not all of it went, or the connection is over. */
static bool flush(dg_connection *c)
{
    while (c->sent < c->out.len) {
        ssize_t n = send_bytes(c, c->out.data + c->sent, c->out.len - c->sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            dg_connection_end(c);
        if (n < 0)
            return false;
        c->sent += (size_t)n;
        c->active = dg_clock_now();
    }
    c->out.len = c->sent = 0;
    return true;
}

static void put(dg_connection *c, const char *data, size_t n)
{
    if (c->state != DG_CONNECTION_OVER && !dg_buf_append(&c->out, data, n))
        dg_connection_end(c);
}

static void put_text(dg_connection *c, const char *text)
{
    put(c, text, strlen(text));
}

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {{200, "OK"},
                   {204, "No Content"},
                   {304, "Not Modified"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {409, "Conflict"},
                   {413, "Content Too Large"},
                   {414, "URI Too Long"},
                   {415, "Unsupported Media Type"},
                   {417, "Expectation Failed"},
                   {422, "Unprocessable Content"},
                   {429, "Too Many Requests"},
                   {431, "Request Header Fields Too Large"},
                   {499, "Client Closed Request"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {505, "HTTP Version Not Supported"},
                   {507, "Insufficient Storage"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Answer";
}

static void put_date(dg_connection *c)
{
    char line[64];
    time_t now = time(NULL);
    struct tm tm;
    strftime(line, sizeof line, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", gmtime_r(&now, &tm));
    put_text(c, line);
}

/* The answer was decided: its head. */
static void begin_answer(dg_connection *c, int status, bool is_stream, size_t length)
{
    char line[128];
    bool has_no_body = status == 204 || status == 304;
    c->state = DG_CONNECTION_ANSWER;
    c->is_framed = is_stream && !c->head.is_old && !has_no_body;
    c->is_last = has_no_body || !strcmp(c->head.method, "HEAD");
    c->closes = c->closes || !c->head.keep_alive || (is_stream && !c->is_framed && !c->is_last);
    snprintf(line, sizeof line, "HTTP/1.1 %d %s\r\n", status, reason(status));
    put_text(c, line);
    put_date(c);
    if (c->state == DG_CONNECTION_OVER)
        return;
    if (!c->shared->handler->headers(c->x, &c->out)) {
        dg_connection_end(c);
        return;
    }
    if (c->is_framed) {
        put_text(c, "Transfer-Encoding: chunked\r\n");
    } else if (!is_stream && !has_no_body) {
        snprintf(line, sizeof line, "Content-Length: %zu\r\n", length);
        put_text(c, line);
    }
    if (c->closes)
        put_text(c, "Connection: close\r\n");
    else if (c->head.is_old)
        put_text(c, "Connection: keep-alive\r\n");
    put_text(c, "\r\n");
}

/* Takes a piece of the answer. False: there is none now. */
static bool take_piece(dg_connection *c)
{
    char piece[PIECE_BYTES], size[FRAME_BYTES];
    pthread_mutex_lock(&c->x->lock);
    long n = dg_exchange_take(c->x, piece, sizeof piece);
    pthread_mutex_unlock(&c->x->lock);
    if (n == -2) { /* the client sees that it is not whole */
        dg_connection_end(c);
    } else if (n == -1) {
        c->is_last = true;
        if (c->is_framed)
            put_text(c, "0\r\n\r\n");
    } else if (n > 0) {
        snprintf(size, sizeof size, "%lx\r\n", (unsigned long)n);
        if (c->is_framed)
            put_text(c, size);
        put(c, piece, (size_t)n);
        if (c->is_framed)
            put_text(c, "\r\n");
    }
    return n != 0;
}

/* Says that nothing more will come, and waits for the client to go: a socket that is closed while
 * bytes wait in it takes the answer with it. */
static void begin_linger(dg_connection *c)
{
    if (c->tls)
        dg_tls_say_goodbye(c->tls);
    shutdown(c->fd, SHUT_WR);
    dg_buf_clear(&c->rest);
    c->since = c->active = dg_clock_now();
    c->state = DG_CONNECTION_LINGER;
}

/* All of the answer is sent. */
static void end_answer(dg_connection *c)
{
    let_go(c);
    dg_head_clear(&c->head);
    dg_head_init(&c->head);
    dg_buf_clear(&c->out);
    if (c->closes) {
        begin_linger(c);
        return;
    }
    c->state = DG_CONNECTION_HEAD;
    c->since = c->active = dg_clock_now();
    c->hung_up = false;
}

/* True: there is more to do at once. */
static bool send_answer(dg_connection *c, size_t *n_moved)
{
    bool more = true;
    while (more && !c->is_last && c->out.len < PIECE_BYTES)
        more = take_piece(c) && c->state != DG_CONNECTION_OVER;
    *n_moved += c->out.len - c->sent;
    if (c->state == DG_CONNECTION_OVER || *n_moved > TURN_BYTES || !flush(c))
        return false;
    if (c->is_last)
        end_answer(c);
    return more;
}

/* ---- receiving ---- */

static bool is_decided(dg_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool decided = x->status != 0;
    pthread_mutex_unlock(&x->lock);
    return decided;
}

/* Nothing more is read of this request. */
static void await_answer(dg_connection *c)
{
    c->state = DG_CONNECTION_WAIT;
    pthread_mutex_lock(&c->x->lock);
    c->x->wake = c->shared->wake;
    c->x->wake_user = c;
    pthread_mutex_unlock(&c->x->lock);
}

static void complete(dg_connection *c)
{
    if (!is_decided(c->x))
        c->shared->handler->complete(c->x);
    await_answer(c);
}

/* Many clients look for an answer only when all they have to say is sent. One that asks first, or
 * has far too much to say, is told at once. */
static bool is_worth_reading(const dg_connection *c)
{
    return !c->head.asks_first && c->left <= c->shared->max_unread_bytes;
}

static void begin_request(dg_connection *c)
{
    c->x = c->shared->handler->begin(c->shared->handler->user, &c->head, c->peer);
    if (!c->x) {
        dg_connection_end(c);
        return;
    }
    bool is_bad = c->head.state == DG_HEAD_BAD;
    bool is_refused = is_decided(c->x);
    c->chunks = (dg_chunks){0};
    c->left = c->head.length;
    c->n_unread = 0;
    c->closes = is_bad;
    if (is_bad || !(c->head.is_chunked || c->left)) {
        complete(c);
    } else if (is_refused && !is_worth_reading(c)) {
        c->closes = true;
        await_answer(c);
    } else {
        c->state = DG_CONNECTION_BODY;
        if (c->head.asks_first)
            put_text(c, "HTTP/1.1 100 Continue\r\n\r\n"); /* read_request sends it */
    }
}

static size_t feed_head(dg_connection *c, const char *data, size_t n)
{
    if (!dg_head_begun(&c->head))
        c->since = dg_clock_now();
    size_t used = dg_head_read(&c->head, data, n);
    if (c->head.state != DG_HEAD_MORE)
        begin_request(c);
    return used;
}

/* One that was refused is told so when all was read, or when that is too much. */
static void keep_body(dg_connection *c, const char *data, size_t n)
{
    if (!is_decided(c->x)) {
        c->shared->handler->body(c->x, data, n);
        return;
    }
    c->n_unread += n;
    if (c->n_unread > c->shared->max_unread_bytes) {
        c->closes = true;
        await_answer(c);
    }
}

static void refuse_body(dg_connection *c, int status, const char *code, const char *why)
{
    dg_http_error e;
    dg_refuse(&e, status, code, NULL, "%s", why);
    if (!is_decided(c->x))
        dg_exchange_refuse(c->x, &e);
    c->closes = true;
    await_answer(c);
}

static size_t feed_body(dg_connection *c, const char *data, size_t n)
{
    size_t n_data, used;
    if (c->head.is_chunked) {
        used = dg_chunks_read(&c->chunks, data, n, &n_data);
    } else {
        used = n_data = c->left < n ? (size_t)c->left : n;
        c->left -= n_data;
    }
    if (n_data)
        keep_body(c, data + used - n_data, n_data);
    if (c->state != DG_CONNECTION_BODY)
        return used;
    if (c->chunks.state == DG_CHUNKS_DATA && c->chunks.left > c->shared->max_unread_bytes)
        refuse_body(c, 413, "body_too_large",
                    "a chunk of the body is larger than all of it may be");
    else if (c->head.is_chunked && c->chunks.state == DG_CHUNKS_BAD)
        refuse_body(c, 400, "bad_request", "the body is not in chunks as its head says");
    else if (c->head.is_chunked ? c->chunks.state == DG_CHUNKS_DONE : !c->left)
        complete(c);
    return used;
}

static bool is_receiving(const dg_connection *c)
{
    return c->state == DG_CONNECTION_HEAD || c->state == DG_CONNECTION_BODY;
}

static size_t feed(dg_connection *c, const char *data, size_t n)
{
    size_t used = 0;
    while (used < n && is_receiving(c))
        used += c->state == DG_CONNECTION_HEAD ? feed_head(c, data + used, n - used)
                                               : feed_body(c, data + used, n - used);
    return used;
}

/* What came behind the last request is the beginning of this one. */
static void feed_rest(dg_connection *c)
{
    size_t used = feed(c, c->rest.data, c->rest.len);
    c->rest.len -= used;
    if (c->rest.len)
        memmove(c->rest.data, c->rest.data + used, c->rest.len);
    else
        dg_buf_clear(&c->rest);
}

/* Bytes into the scratch room; 0: there are none now, or the connection is over. */
static size_t receive(dg_connection *c)
{
    char *to = c->shared->scratch;
    ssize_t n;
    do
        n = c->tls ? dg_tls_recv(c->tls, to, DG_SCRATCH_BYTES)
                   : recv(c->fd, to, DG_SCRATCH_BYTES, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (n <= 0) {
        dg_connection_end(c);
        return 0;
    }
    c->active = dg_clock_now();
    return (size_t)n;
}

/* True: there is more to do at once. */
static bool read_request(dg_connection *c, size_t *n_moved)
{
    flush(c); /* "100 Continue" */
    if (c->state == DG_CONNECTION_OVER)
        return false;
    if (c->rest.len) {
        feed_rest(c);
    } else {
        size_t n = *n_moved < TURN_BYTES ? receive(c) : 0;
        if (!n)
            return false;
        *n_moved += n;
        size_t used = feed(c, c->shared->scratch, n);
        if (used < n && !c->closes && !dg_buf_append(&c->rest, c->shared->scratch + used, n - used))
            dg_connection_end(c);
    }
    return true;
}

static bool throw_away(dg_connection *c, size_t *n_moved)
{
    size_t n = *n_moved < TURN_BYTES ? receive(c) : 0;
    *n_moved += n;
    return n > 0;
}

/* ---- all together ---- */

static bool shake_hands(dg_connection *c)
{
    c->handshake = dg_tls_handshake(c->tls);
    if (c->handshake == DG_TLS_FAILED)
        dg_connection_end(c);
    if (c->handshake == DG_TLS_DONE)
        c->state = DG_CONNECTION_HEAD;
    return c->handshake == DG_TLS_DONE;
}

static bool look_for_answer(dg_connection *c)
{
    pthread_mutex_lock(&c->x->lock);
    int status = c->x->status;
    bool is_stream = c->x->streaming;
    size_t length = c->x->out.len + c->x->file_left;
    pthread_mutex_unlock(&c->x->lock);
    if (status)
        begin_answer(c, status, is_stream, length);
    return status != 0;
}

static bool go_on(dg_connection *c, size_t *n_moved)
{
    switch (c->state) {
    case DG_CONNECTION_HANDSHAKE:
        return shake_hands(c);
    case DG_CONNECTION_HEAD:
    case DG_CONNECTION_BODY:
        return read_request(c, n_moved);
    case DG_CONNECTION_WAIT:
        return look_for_answer(c);
    case DG_CONNECTION_ANSWER:
        return send_answer(c, n_moved);
    case DG_CONNECTION_LINGER:
        return throw_away(c, n_moved);
    default:
        return false;
    }
}

void dg_connection_advance(dg_connection *c, unsigned events)
{
    size_t n_moved = 0;
    if (events & (POLLERR | POLLHUP)) {
        dg_connection_end(c);
    } else if ((events & POLLRDHUP) && c->x && !c->hung_up && !is_receiving(c)) {
        c->hung_up = true;
        c->shared->handler->hang_up(c->x);
    }
    while (go_on(c, &n_moved))
        ;
}

bool dg_connection_refuse(dg_connection *c, int status, const char *code, const char *why)
{
    if (c->state == DG_CONNECTION_BODY) {
        refuse_body(c, status, code, why);
    } else if (c->state == DG_CONNECTION_HEAD && dg_head_begun(&c->head)) {
        dg_head_give_up(&c->head, status, code, why);
        begin_request(c);
    }
    dg_connection_advance(c, 0);
    return c->state == DG_CONNECTION_LINGER;
}

unsigned dg_connection_interest(const dg_connection *c)
{
    unsigned out = c->sent < c->out.len ? POLLOUT : 0;
    switch (c->state) {
    case DG_CONNECTION_HANDSHAKE:
        return c->handshake == DG_TLS_WRITES ? POLLOUT : POLLIN;
    case DG_CONNECTION_HEAD:
    case DG_CONNECTION_BODY:
    case DG_CONNECTION_LINGER:
        return out | POLLIN;
    default:
        return out | (c->hung_up ? 0 : POLLRDHUP);
    }
}

bool dg_connection_is_late(const dg_connection *c, double now)
{
    const dg_connection_shared *s = c->shared;
    double quiet = now - c->active, in_all = now - c->since;
    switch (c->state) {
    case DG_CONNECTION_HANDSHAKE:
        return in_all > HANDSHAKE_SECONDS || in_all > s->receive_seconds;
    case DG_CONNECTION_HEAD:
    case DG_CONNECTION_BODY:
        return quiet > s->idle_seconds || in_all > s->receive_seconds;
    case DG_CONNECTION_ANSWER:
        return c->sent < c->out.len && quiet > s->idle_seconds;
    case DG_CONNECTION_LINGER:
        return quiet > LINGER_QUIET_SECONDS || in_all > LINGER_SECONDS;
    default:
        return false;
    }
}

int dg_connection_idleness(const dg_connection *c)
{
    switch (c->state) {
    case DG_CONNECTION_LINGER:
        return 2;
    case DG_CONNECTION_HEAD:
        return dg_head_begun(&c->head) ? 1 : 2;
    case DG_CONNECTION_HANDSHAKE:
    case DG_CONNECTION_BODY:
        return 1;
    default:
        return 0;
    }
}
