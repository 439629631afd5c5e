/* The readers of heads and chunks, who asks behind proxies, and the log that never waits: pure
 * parts of the HTTP side. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/common.h"
#include "server/chunks.h"
#include "server/client_address.h"
#include "server/head.h"
#include "server/log.h"
#include "suites.h"

/* ---- heads ---- */

/* In pieces of n bytes. Returns how much was taken. */
static size_t read_in(dg_head *h, const char *text, size_t len, size_t n)
{
    size_t at = 0;
    dg_head_init(h);
    while (at < len && h->state == DG_HEAD_MORE)
        at += dg_head_read(h, text + at, len - at < n ? len - at : n);
    return at;
}

START_TEST(test_head)
{
    static const char text[] = "POST http://There:80/v1/%6dodels?a=b HTTP/1.1\r\n"
                               "Host: here\r\nContent-Length: 12\r\nX-A:  b c\t\r\nX-Empty:\r\n"
                               "EXPECT: 100-Continue\r\nConnection: a, keep-alive\r\n\r\nbody";
    for (size_t n = 1; n <= sizeof text; n++) {
        dg_head h;
        ck_assert_uint_eq(read_in(&h, text, sizeof text - 1, n), sizeof text - 5);
        ck_assert_int_eq(h.state, DG_HEAD_DONE);
        ck_assert_str_eq(h.method, "POST");
        ck_assert_str_eq(h.path, "/v1/models");
        ck_assert_str_eq(dg_head_host(&h), "There:80");
        ck_assert_str_eq(dg_head_get(&h, "host"), "here");
        ck_assert_str_eq(dg_head_get(&h, "x-a"), "b c");
        ck_assert_str_eq(dg_head_get(&h, "X-Empty"), "");
        ck_assert_ptr_null(dg_head_get(&h, "X"));
        ck_assert_uint_eq(h.length, 12);
        ck_assert(h.asks_first && h.keep_alive && !h.is_old && !h.is_chunked);
        dg_head_clear(&h);
    }
}
END_TEST

START_TEST(test_head_paths)
{
    static const char *const cases[][3] = {
        {"/a/b?c", "/a/b", "h"},
        {"http://x", "/", "x"},
        {"HTTP://x/", "/", "x"},
        {"https://x?/a", "/", "x"},
        {"http://[::1]:8/a", "/a", "[::1]:8"},
        {"//a", "//a", "h"},
        {"/%41%2f", "/A/", "h"},
        {"/?%zz", "/", "h"},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        char text[128];
        dg_head h;
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", cases[i][0]);
        read_in(&h, text, strlen(text), sizeof text);
        ck_assert_msg(h.state == DG_HEAD_DONE, "%s: %s", cases[i][0], h.why);
        ck_assert_str_eq(h.path, cases[i][1]);
        ck_assert_str_eq(dg_head_host(&h), cases[i][2]);
        dg_head_clear(&h);
    }
}
END_TEST

START_TEST(test_head_keep_alive)
{
    static const struct {
        const char *version, *field;
        bool stays;
    } cases[] = {{"1.1", "X: y", true},
                 {"1.1", "Connection: close", false},
                 {"1.1", "Connection: x , CLOSE", false},
                 {"1.1", "Connection: closed", true},
                 {"1.0", "X: y", false},
                 {"1.0", "Connection: Keep-Alive", true}};
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        char text[128];
        dg_head h;
        snprintf(text, sizeof text, "GET / HTTP/%s\r\nHost: h\r\n%s\r\n\r\n", cases[i].version,
                 cases[i].field);
        read_in(&h, text, strlen(text), 1);
        ck_assert_int_eq(h.state, DG_HEAD_DONE);
        ck_assert_int_eq(h.keep_alive, cases[i].stays);
        dg_head_clear(&h);
    }
}
END_TEST

/* Every byte, at every place of a plain head, is read or refused; NUL never is read. */
START_TEST(test_head_bytes)
{
    static const char plain[] = "GET /a HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n";
    for (size_t at = 0; at + 1 < sizeof plain; at++)
        for (int byte = 0; byte < 256; byte++) {
            char text[sizeof plain];
            dg_head h;
            memcpy(text, plain, sizeof plain);
            text[at] = (char)byte;
            read_in(&h, text, sizeof text - 1, sizeof text);
            ck_assert(h.state != DG_HEAD_BAD || (h.status >= 400 && h.why));
            if (!byte)
                ck_assert_int_eq(h.state, DG_HEAD_BAD);
            dg_head_clear(&h);
        }
}
END_TEST

START_TEST(test_head_hosts)
{
    static const char *const good[] = {"",      "h",       "a.b-c_d:80", "127.0.0.1:65535",
                                       "[::1]", "[::1]:8", "h:",         "[fe80::1%eth0]:80"},
                             *const bad[] = {"localhost:abc:99",
                                             "[::1]evil.com",
                                             "localhost%0d",
                                             "a:b",
                                             "a:1:2",
                                             "::1",
                                             "[]",
                                             "[::1",
                                             "a]",
                                             "a:123456",
                                             "[::1]:x",
                                             "a[b]"};
    char text[200];
    dg_head h;
    for (size_t i = 0; i < DG_COUNT(good) + DG_COUNT(bad); i++) {
        bool is_good = i < DG_COUNT(good);
        const char *host = is_good ? good[i] : bad[i - DG_COUNT(good)];
        for (int whole = 0; whole < 2; whole++) {
            snprintf(text, sizeof text,
                     whole ? "GET http://%s/ HTTP/1.1\r\nHost: h\r\n\r\n"
                           : "GET / HTTP/1.1\r\nHost: %s\r\n\r\n",
                     host);
            read_in(&h, text, strlen(text), 1000);
            ck_assert_msg(h.state == (is_good && (!whole || *host) ? DG_HEAD_DONE : DG_HEAD_BAD),
                          "%s", text);
            dg_head_clear(&h);
        }
    }
}
END_TEST

/* What two readers could read differently is refused, what every reader reads alike is not; 0: it
 * is read. */
START_TEST(test_head_refused)
{
#define H "Host: h\r\n"
    static const struct {
        const char *head;
        int status;
    } cases[] = {
        /* the first line */
        {"GET / HTTP/1.1\r\n" H "\r\n", 0},
        {"GET  / HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /a b HTTP/1.1\r\n" H "\r\n", 400},
        {"G(T / HTTP/1.1\r\n" H "\r\n", 400},
        {" / HTTP/1.1\r\n" H "\r\n", 400},
        {"GET / HTTP/1.10\r\n" H "\r\n", 400},
        {"GET / http/1.1\r\n" H "\r\n", 400},
        {"GET /\r\n" H "\r\n", 400},
        {"GET / HTTP/2.0\r\n" H "\r\n", 505},
        {"GET / HTTP/0.9\r\n" H "\r\n", 505},
        {"OPTIONS * HTTP/1.1\r\n" H "\r\n", 0},
        {"GET * HTTP/1.1\r\n" H "\r\n", 400},
        {"GET a HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /a#b HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /\xc3\xa4 HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /\x7f HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /\t HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /%00 HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /%4g HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /%4 HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /%fF HTTP/1.1\r\n" H "\r\n", 0},
        {"\r\nGET / HTTP/1.1\r\n" H "\r\n", 0},
        {"\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", 400},
        /* lines */
        {"GET / HTTP/1.1\n" H "\r\n", 400},
        {"GET / HTTP/1.1\r\rHost: h\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: b\rc\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: b\nC: d\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: b\r\n c\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: b\r\n\tc: d\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A : b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H ": b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: b\x01\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: b\x7f\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: b\tc\xe4\r\n\r\n", 0},
        /* those that may be there once */
        {"GET / HTTP/1.1\r\n" H H "\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "hOST: h\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "x-api-key: a\r\nX-Api-Key: a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "Authorization: a\r\nAuthorization: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "Origin: a\r\nOrigin: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "Content-Type: a\r\nContent-Type: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "Accept: a\r\nAccept: b\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.0\r\n\r\n", 0},
        /* where the body ends */
        {"POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: +1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1, 1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 999999999999999999\r\n\r\n", 0},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1000000000000000000\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: Chunked\r\n\r\n", 0},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunkedx\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n", 400},
        {"POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Expect: 200-ok\r\n\r\n", 417},
        {"POST / HTTP/1.0\r\n" H "Expect: 100-continue\r\n\r\n", 0},
    };
#undef H
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        dg_head h;
        const char *head = cases[i].head;
        size_t n = read_in(&h, head, strlen(head), 7);
        ck_assert_msg(h.state == (cases[i].status ? DG_HEAD_BAD : DG_HEAD_DONE), "%s", head);
        ck_assert_msg(h.status == cases[i].status, "%s: %d", head, h.status);
        if (!cases[i].status) {
            ck_assert_uint_eq(n, strlen(head));
            ck_assert(!h.is_old || !h.asks_first);
        }
        dg_head_clear(&h);
    }
}
END_TEST

/* A connection that is idle may be closed; one on which something came may not. */
START_TEST(test_head_begun)
{
    static const char *const begun[] = {"G", "\r", "\r\n"};
    dg_head h;
    dg_head_init(&h);
    ck_assert(!dg_head_begun(&h));
    for (size_t i = 0; i < DG_COUNT(begun); i++) {
        read_in(&h, begun[i], strlen(begun[i]), 9);
        ck_assert(dg_head_begun(&h));
        dg_head_clear(&h);
    }
}
END_TEST

START_TEST(test_head_limits)
{
    dg_head h;
    char *text = calloc(1, 2 * DG_HEAD_BYTES);
    strcpy(text, "GET / HTTP/1.1\r\nHost: h\r\nA: ");
    memset(text + strlen(text), 'a', DG_HEAD_BYTES);
    read_in(&h, text, strlen(text), 1000);
    ck_assert_int_eq(h.status, 431);
    dg_head_clear(&h);
    memset(text, 'a', DG_HEAD_BYTES + 1);
    read_in(&h, text, DG_HEAD_BYTES + 1, 1000);
    ck_assert_int_eq(h.status, 414);
    dg_head_clear(&h);
    for (int n = DG_HEAD_FIELDS - 1; n <= DG_HEAD_FIELDS; n++) {
        strcpy(text, "GET / HTTP/1.1\r\nHost: h\r\n");
        for (int i = 0; i < n; i++)
            strcat(text, "A: b\r\n");
        strcat(text, "\r\n");
        read_in(&h, text, strlen(text), 1000);
        ck_assert_int_eq(h.state, n < DG_HEAD_FIELDS ? DG_HEAD_DONE : DG_HEAD_BAD);
        ck_assert_int_eq(h.status, n < DG_HEAD_FIELDS ? 0 : 431);
        dg_head_clear(&h);
    }
    free(text);
}
END_TEST

/* ---- chunks ---- */

static size_t unchunk(dg_chunks *c, const char *text, size_t len, size_t n, char *out)
{
    size_t at = 0, n_out = 0, n_data;
    *c = (dg_chunks){0};
    while (at < len && c->state < DG_CHUNKS_DONE) {
        at += dg_chunks_read(c, text + at, len - at < n ? len - at : n, &n_data);
        memcpy(out + n_out, text + at - n_data, n_data);
        n_out += n_data;
    }
    out[n_out] = '\0';
    return at;
}

START_TEST(test_chunks)
{
    static const char text[] =
        "3;a;b=c;d=\"e\\\"\\f;\"\r\nabc\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nT: v\r\n\r\nNEXT";
    for (size_t n = 1; n <= sizeof text; n++) {
        char out[sizeof text];
        dg_chunks c;
        ck_assert_uint_eq(unchunk(&c, text, sizeof text - 1, n, out), sizeof text - 5);
        ck_assert_int_eq(c.state, DG_CHUNKS_DONE);
        ck_assert_str_eq(out, "abc0123456789");
    }
}
END_TEST

START_TEST(test_chunks_bad)
{
    static const char *const bad[] = {"x",
                                      "\r\n",
                                      "1\n",
                                      "1\ra",
                                      "1 \r\n",
                                      "-1\r\n",
                                      "1;\n",
                                      "1\r\na\n",
                                      "1\r\nab",
                                      "0\r\nx\r\n",
                                      "0\r\n:\r\n",
                                      "0\r\nx:\n",
                                      "0\r\n\n",
                                      "0\r\na b:\r\n",
                                      "1000000000000000\r\n",
                                      "1;\r\n",
                                      "1;a=\r\n",
                                      "1;a=\"b\r\n",
                                      "1;a=\"b\\\r\n",
                                      "1;a\xff\r\n",
                                      "1;a=\"\xff\"\r\n",
                                      "1;a=\"b\"c\r\n",
                                      "1;=b\r\n",
                                      "1; a\r\n",
                                      "1;a b\r\n",
                                      "1;;a\r\n",
                                      "1;a=\"\x01\"\r\n"};
    for (size_t i = 0; i < DG_COUNT(bad); i++) {
        char out[64];
        dg_chunks c;
        unchunk(&c, bad[i], strlen(bad[i]), 1 + i % 3, out);
        ck_assert_msg(c.state == DG_CHUNKS_BAD, "%s: %d", bad[i], c.state);
    }
}
END_TEST

/* ---- the log ---- */

typedef struct reader {
    atomic_bool reads;
    atomic_int n_line, n_refused;
} reader;

static bool take_line(void *user, const char *line)
{
    reader *r = user;
    if (!atomic_load(&r->reads)) {
        atomic_fetch_add(&r->n_refused, 1);
        return false;
    }
    ck_assert_ptr_nonnull(strstr(line, "Z line "));
    ck_assert_ptr_null(strchr(line, '\n'));
    atomic_fetch_add(&r->n_line, 1);
    return true;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

START_TEST(test_log)
{
    reader r = {0};
    dg_log *log;
    ck_assert(!dg_log_open(&log, take_line, &r, NULL));
    for (int i = 0; i < DG_LOG_LINES + 10; i++)
        dg_log_print(log, "line %d\nforged", i); /* nobody reads, and we get here */
    ck_assert_uint_eq(dg_log_dropped(log), 10);
    while (atomic_load(&r.n_refused) < 2) /* what could not be written is not lost */
        nap();
    atomic_store(&r.reads, true);
    for (int i = 0; i < 12000 && atomic_load(&r.n_line) < DG_LOG_LINES; i++)
        nap();
    ck_assert_int_eq(atomic_load(&r.n_line), DG_LOG_LINES);
    dg_log_print(log, "line of %5000s", "many bytes");
    dg_log_close(log); /* with what is left */
    ck_assert_int_eq(atomic_load(&r.n_line), DG_LOG_LINES + 1);
    dg_log_print(NULL, "line %d", 1);

    atomic_store(&r.reads, false);
    ck_assert(!dg_log_open(&log, take_line, &r, NULL));
    dg_log_print(log, "line %d", 1);
    dg_log_close(log); /* does not wait for ever */
}
END_TEST

/* ---- who asks ---- */

/* Whom a request of 127.0.0.1 with these fields comes from. */
static const char *client_of(const char *trusted, const char *fields)
{
    static char text[DG_ADDRESS_TEXT], request[512];
    dg_proxies proxies;
    dg_head h;
    ck_assert(!dg_proxies_read(&proxies, trusted, NULL));
    snprintf(request, sizeof request, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
    read_in(&h, request, strlen(request), sizeof request);
    ck_assert_int_eq(h.state, DG_HEAD_DONE);
    dg_address here = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    dg_address_print(text, dg_client_address(&proxies, here, &h));
    dg_head_clear(&h);
    return text;
}

START_TEST(test_client)
{
    static const struct {
        const char *trusted, *fields, *client;
    } cases[] = {
        {NULL, "X-Forwarded-For: 9.9.9.9\r\n", "127.0.0.1"},
        {"", "X-Forwarded-For: 9.9.9.9\r\n", "127.0.0.1"},
        {"127.0.0.0/8", "", "127.0.0.1"},
        {"127.0.0.0/8", "X-Forwarded-For: 9.9.9.9\r\n", "9.9.9.9"},
        {"127.0.0.0/31", "X-Forwarded-For: 9.9.9.9\r\n", "9.9.9.9"},
        {"127.0.0.0/32", "X-Forwarded-For: 9.9.9.9\r\n", "127.0.0.1"},
        {"::/0", "X-Forwarded-For: 9.9.9.9\r\n", "127.0.0.1"},
        {"::ffff:127.0.0.1", "X-Forwarded-For: 9.9.9.9\r\n", "9.9.9.9"},
        {"0.0.0.0/0", "X-Forwarded-For: 8.8.8.8, 9.9.9.9\r\n", "8.8.8.8"},
        {"127.0.0.1", "X-Forwarded-For: 8.8.8.8, 9.9.9.9\r\n", "9.9.9.9"},
        {"127.0.0.1,9.9.9.9", "X-Forwarded-For: 8.8.8.8, 9.9.9.9\r\n", "8.8.8.8"},
        {"127.0.0.1", "X-Forwarded-For: 8.8.8.8\r\nx-forwarded-for: 9.9.9.9\r\n", "9.9.9.9"},
        {"127.0.0.1,9.9.9.9", "X-Forwarded-For: 8.8.8.8\r\nX-A: 1\r\nX-Forwarded-For: 9.9.9.9\r\n",
         "8.8.8.8"},
        {"127.0.0.1,fd00::/9", "X-Forwarded-For: 2001:DB8::1, fd7f::1\r\n", "2001:db8::1"},
        {"127.0.0.1,fd00::/9", "X-Forwarded-For: 2001:DB8::1, fd80::1\r\n", "fd80::1"},
        {"127.0.0.1", "X-Forwarded-For: [2001:db8::1]:80\r\n", "2001:db8::1"},
        {"127.0.0.1", "X-Forwarded-For: [2001:db8::1\r\n", "127.0.0.1"},
        {"127.0.0.1", "X-Forwarded-For: 9.9.9.9:80\r\n", "9.9.9.9"},
        {"127.0.0.1", "X-Forwarded-For: 9.9.9.9,\r\n", "127.0.0.1"},
        {"127.0.0.1", "X-Forwarded-For: _hidden\r\n", "127.0.0.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_str_eq(client_of(cases[i].trusted, cases[i].fields), cases[i].client);
}
END_TEST

START_TEST(test_no_proxies)
{
    static const char *const wrong[] = {"x",    "1.2.3.4/",   "1.2.3.4/33",   "::/129",  ",",
                                        "::1,", "1.2.3.4/1e", "1.2.3.4/0024", "1.2.3",   "/8",
                                        "::1 ", "10.1.0.0/8", "fd00::1/64",   "::1,,::2"};
    dg_proxies proxies;
    dgemma_error err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_int_eq(dg_proxies_read(&proxies, wrong[i], &err), DGEMMA_E_ARG);
    char many[DG_MAX_PROXIES * 4 + 8] = "";
    for (int i = 0; i < DG_MAX_PROXIES; i++)
        strcat(many, i ? ",::1" : "::1");
    ck_assert_int_eq(dg_proxies_read(&proxies, many, &err), DGEMMA_OK);
    ck_assert_uint_eq(proxies.n, DG_MAX_PROXIES);
    ck_assert_int_eq(dg_proxies_read(&proxies, strcat(many, ",::1"), &err), DGEMMA_E_ARG);
}
END_TEST

Suite *http_suite(void)
{
    Suite *s = suite_create("http");
    TCase *t = tcase_create("http");
    tcase_add_test(t, test_head);
    tcase_add_test(t, test_head_paths);
    tcase_add_test(t, test_head_keep_alive);
    tcase_add_test(t, test_head_bytes);
    tcase_add_test(t, test_head_refused);
    tcase_add_test(t, test_head_begun);
    tcase_add_test(t, test_head_limits);
    tcase_add_test(t, test_head_hosts);
    tcase_add_test(t, test_chunks);
    tcase_add_test(t, test_chunks_bad);
    tcase_add_test(t, test_client);
    tcase_add_test(t, test_no_proxies);
    tcase_add_test(t, test_log);
    suite_add_tcase(s, t);
    return s;
}
