/* A connection over a pair of sockets, with a handler that echoes: requests one after the other,
 * clients that go, memory that is not there. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "server/connection.h"
#include "suites.h"
#include "support/alloc_fail.h"

/* ---- the handler ---- */

typedef struct echo {
    dg_exchange x;
    dg_buf body;
    struct desk *desk;
} echo;

typedef struct desk {
    dg_http_handler handler;
    dg_connection_shared shared;
    char scratch[DG_SCRATCH_BYTES];
    int n_begun, n_ended, n_hung_up, n_woken;
    bool is_slow; /* answers when it is told to */
    echo *last;
} desk;

static dg_exchange *echo_begin(void *user, const dg_head *head, dg_address peer)
{
    (void)peer;
    desk *d = user;
    echo *e = dg_calloc(1, sizeof *e);
    if (!e)
        return NULL;
    dg_exchange_init(&e->x, NULL, NULL);
    dg_buf_init(&e->body, 1000);
    e->desk = d;
    d->last = e;
    d->n_begun++;
    if (head->state == DG_HEAD_BAD)
        dg_exchange_reply_text(&e->x, head->status, "text/plain", "bad", 3);
    return &e->x;
}

static void echo_body(dg_exchange *x, const char *data, size_t n)
{
    echo *e = (echo *)(void *)x;
    if (!dg_buf_append(&e->body, data, n))
        dg_exchange_reply_text(x, 413, "text/plain", "large", 5);
}

static void echo_complete(dg_exchange *x)
{
    echo *e = (echo *)(void *)x;
    if (!e->desk->is_slow)
        dg_exchange_reply_text(x, 200, "text/plain", e->body.data ? e->body.data : "", e->body.len);
}

static bool echo_headers(dg_exchange *x, dg_buf *out)
{
    (void)x;
    return dg_buf_puts(out, "X-Echo: yes\r\n");
}

static void echo_hang_up(dg_exchange *x)
{
    ((echo *)(void *)x)->desk->n_hung_up++;
}

static void echo_end(dg_exchange *x)
{
    echo *e = (echo *)(void *)x;
    e->desk->n_ended++;
    e->desk->last = NULL;
    dg_buf_clear(&e->body);
    dg_exchange_clear(x);
    dg_free(e);
}

static void echo_wake(void *connection)
{
    const dg_connection *c = connection;
    ((desk *)c->shared->loop)->n_woken++;
}

static desk *make_desk(void)
{
    desk *d = calloc(1, sizeof *d);
    d->handler = (dg_http_handler){
        d, echo_begin, echo_body, echo_complete, echo_headers, echo_hang_up, echo_end};
    d->shared = (dg_connection_shared){.handler = &d->handler,
                                       .idle_seconds = 10,
                                       .receive_seconds = 20,
                                       .max_unread_bytes = 2000,
                                       .scratch = d->scratch,
                                       .wake = echo_wake,
                                       .loop = d};
    return d;
}

/* A connection's socket, and its client's in *client; neither blocks. */
static int make_pair(int *client)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair))
        abort();
    *client = pair[0];
    return pair[1];
}

static void say(int client, const char *text)
{
    if (write(client, text, strlen(text)) != (ssize_t)strlen(text))
        abort();
}

/* What has come, up to now. */
static const char *hear(int client, char *out, size_t size)
{
    size_t n = 0;
    for (ssize_t k; n + 1 < size && (k = read(client, out + n, size - 1 - n)) > 0;)
        n += (size_t)k;
    out[n] = '\0';
    return out;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

static void put_away(desk *d, dg_connection *c, int client)
{
    if (c) {
        dg_connection_end(c);
        dg_connection_free(c);
    }
    close(client);
    ck_assert_int_eq(d->n_begun, d->n_ended);
    free(d);
}

#define POST "POST / HTTP/1.1\r\nHost: h\r\n"

/* ---- what is looked at ---- */

START_TEST(test_requests_in_a_row)
{
    char out[4096];
    int client;
    desk *d = make_desk();
    dg_connection *c = dg_connection_create(&d->shared, make_pair(&client));
    say(client, POST "Content-Length: 3\r\n\r\none" POST
                     "Transfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n"
                     "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" POST "Content-Length: 1\r\n\r\n");
    dg_connection_advance(c, POLLIN);
    hear(client, out, sizeof out);
    ck_assert_int_eq(count(out, "HTTP/1.1 200 OK\r\n"), 3);
    ck_assert_int_eq(count(out, "X-Echo: yes\r\n"), 3);
    ck_assert_ptr_nonnull(strstr(out, "\r\n\r\noneHTTP/1.1"));
    ck_assert_ptr_nonnull(strstr(out, "\r\n\r\ntwoHTTP/1.1"));
    ck_assert_int_eq(c->state, DG_CONNECTION_BODY);
    ck_assert_int_eq(dg_connection_idleness(c), 1);
    say(client, "4");
    dg_connection_advance(c, POLLIN);
    ck_assert_ptr_nonnull(strstr(hear(client, out, sizeof out), "\r\n\r\n4"));
    ck_assert_int_eq(dg_connection_idleness(c), 2);
    ck_assert(!dg_connection_is_late(c, dg_clock_now()) &&
              dg_connection_is_late(c, dg_clock_now() + 11));
    put_away(d, c, client);
}
END_TEST

START_TEST(test_refused)
{
    char out[4096];
    int client;
    desk *d = make_desk();
    dg_connection *c = dg_connection_create(&d->shared, make_pair(&client));
    say(client, POST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n1" POST "\r\n");
    dg_connection_advance(c, POLLIN);
    hear(client, out, sizeof out);
    ck_assert_int_eq(count(out, "HTTP/1.1 "), 1);
    ck_assert_ptr_nonnull(strstr(out, "HTTP/1.1 400 Bad Request\r\n"));
    ck_assert_ptr_nonnull(strstr(out, "Connection: close\r\n"));
    ck_assert_int_eq(c->state, DG_CONNECTION_LINGER);
    ck_assert_int_eq(read(client, out, 1), 0); /* it will say no more */
    close(client);
    client = -1;
    dg_connection_advance(c, POLLIN);
    ck_assert_int_eq(c->state, DG_CONNECTION_OVER);
    put_away(d, c, client);
}
END_TEST

/* One that cannot be waited for is told so, wherever it is in its request. */
START_TEST(test_given_up)
{
    static const char *const said[] = {"PO", POST "Content-Le", POST "Content-Length: 9\r\n\r\n{",
                                       POST "Transfer-Encoding: chunked\r\n\r\n5\r\nab"};
    char out[4096];
    int client;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        desk *d = make_desk();
        dg_connection *c = dg_connection_create(&d->shared, make_pair(&client));
        ck_assert(!dg_connection_refuse(c, 503, "none", "there is no request"));
        say(client, said[i]);
        dg_connection_advance(c, POLLIN);
        ck_assert(dg_connection_refuse(c, 503, "crowded", "others came"));
        hear(client, out, sizeof out);
        ck_assert_int_eq(count(out, "HTTP/1.1 "), 1);
        ck_assert_ptr_nonnull(strstr(out, "HTTP/1.1 503 Service Unavailable\r\n"));
        ck_assert_ptr_nonnull(strstr(out, "Connection: close\r\n"));
        ck_assert_int_eq(c->state, DG_CONNECTION_LINGER);
        put_away(d, c, client);
    }
}
END_TEST

/* A body that is too large is read for a while, so that its client gets to see why it is not
 * wanted. */
START_TEST(test_unwanted)
{
    char out[4096], text[600];
    int client;
    desk *d = make_desk();
    dg_connection *c = dg_connection_create(&d->shared, make_pair(&client));
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    say(client, POST "Content-Length: 100000\r\n\r\n");
    for (int i = 0; i < 10 && c->state <= DG_CONNECTION_BODY; i++) {
        say(client, text);
        dg_connection_advance(c, POLLIN);
    }
    ck_assert_ptr_nonnull(strstr(hear(client, out, sizeof out), "HTTP/1.1 413 "));
    ck_assert_int_eq(c->state, DG_CONNECTION_LINGER);
    put_away(d, c, client);

    d = make_desk(); /* nor is one waited for that says at once how much too large it is */
    c = dg_connection_create(&d->shared, make_pair(&client));
    say(client, POST "Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\nab");
    dg_connection_advance(c, POLLIN);
    ck_assert_ptr_nonnull(strstr(hear(client, out, sizeof out), "HTTP/1.1 413 "));
    put_away(d, c, client);
}
END_TEST

START_TEST(test_answer_later)
{
    char out[4096];
    int client;
    desk *d = make_desk();
    d->is_slow = true;
    dg_connection *c = dg_connection_create(&d->shared, make_pair(&client));
    say(client, POST "\r\n" POST "\r\n");
    dg_connection_advance(c, POLLIN);
    ck_assert_int_eq(c->state, DG_CONNECTION_WAIT);
    ck_assert_uint_eq(dg_connection_interest(c), POLLRDHUP);
    ck_assert(!dg_connection_is_late(c, dg_clock_now() + 1000) && !dg_connection_idleness(c));
    ck_assert_int_eq(d->n_begun, 1); /* the second waits for the first */
    dg_exchange_open(&d->last->x, "text/plain");
    dg_exchange_write(&d->last->x, "piece", 5);
    ck_assert_int_gt(d->n_woken, 0);
    dg_connection_advance(c, 0);
    ck_assert_ptr_nonnull(strstr(hear(client, out, sizeof out), "\r\n\r\n5\r\npiece\r\n"));
    dg_connection_advance(c, POLLRDHUP);
    dg_connection_advance(c, POLLRDHUP);
    ck_assert_int_eq(d->n_hung_up, 1);
    ck_assert_uint_eq(dg_connection_interest(c), 0);
    dg_exchange_close(&d->last->x);
    dg_connection_advance(c, 0);
    ck_assert_str_eq(hear(client, out, sizeof out), "0\r\n\r\n");
    ck_assert_int_eq(d->n_begun, 2);
    dg_connection_advance(c, POLLHUP);
    ck_assert_int_eq(c->state, DG_CONNECTION_OVER);
    put_away(d, c, client);
}
END_TEST

/* Whichever allocation fails: one whole answer, or a connection that is over; nothing is left. */
START_TEST(test_no_memory)
{
    bool reached = true;
    for (long n = 1; reached; n++) {
        char out[4096];
        int client;
        desk *d = make_desk();
        int fd = make_pair(&client);
        say(client, POST "Content-Length: 3\r\nX-A: b\r\n\r\none");
        dg_test_fail_alloc_at(n);
        dg_connection *c = dg_connection_create(&d->shared, fd);
        if (c)
            dg_connection_advance(c, POLLIN);
        reached = dg_test_alloc_done();
        hear(client, out, sizeof out);
        bool is_answer = !strncmp(out, "HTTP/1.1 ", 9) && strstr(out, "X-Echo: yes\r\n") &&
                         strstr(out, "\r\n\r\n");
        ck_assert_msg(is_answer || (!*out && (!c || c->state == DG_CONNECTION_OVER)),
                      "allocation %ld: %s", n, out);
        ck_assert(reached || strstr(out, "\r\n\r\none"));
        put_away(d, c, client);
    }
}
END_TEST

Suite *connection_suite(void)
{
    Suite *s = suite_create("connection");
    TCase *t = tcase_create("connection");
    tcase_add_test(t, test_requests_in_a_row);
    tcase_add_test(t, test_refused);
    tcase_add_test(t, test_given_up);
    tcase_add_test(t, test_unwanted);
    tcase_add_test(t, test_answer_later);
    tcase_add_test(t, test_no_memory);
    suite_add_tcase(s, t);
    return s;
}
