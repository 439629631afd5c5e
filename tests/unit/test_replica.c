/* What balancers ask of a server: an open port and the truth about itself, from the first moment on
 * to the last. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "server/server.h"
#include "suites.h"
#include "support/cpu_engine.h"

static const char folder[] = "tests/fixtures/golden/sampler_finishes/model";

/* The status of the answer to a request without a body; the answer goes to out[4096]. */
static int get(const dg_server *s, const char *path, const char *fields, char *out)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)dg_server_port(s)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    int n = snprintf(out, 4096, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n",
                     path, fields);
    ck_assert_int_eq(send(fd, out, (size_t)n, MSG_NOSIGNAL), n);
    size_t len = 0;
    for (ssize_t got; len < 4095 && (got = recv(fd, out + len, 4095 - len, 0)) > 0;)
        len += (size_t)got;
    out[len] = '\0';
    close(fd);
    return len > 12 ? atoi(out + 9) : 0;
}

static dg_server *start(dgemma_engine *engine)
{
    dgemma_error err = {0};
    dg_server *s = NULL;
    dg_server_options opt = dg_server_defaults();
    opt.port = 0;
    opt.n_worker = 1;
    ck_assert_msg(dg_server_start(&s, engine, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    return s;
}

static dgemma_engine *load(void)
{
    dgemma_error err = {0};
    dgemma_engine *e = NULL;
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = folder;
    opt.n_threads = 1;
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    return e;
}

START_TEST(while_it_loads_it_says_so)
{
    char out[4096];
    dgemma_error err = {0};
    static const char *const paths[] = {"/health", "/v1/models", "/metrics", "/slots", "/api/tags"};
    dg_server *s = start(NULL);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        ck_assert_int_eq(get(s, paths[i], "", out), 503);
        ck_assert_ptr_nonnull(strstr(out, "Loading model"));
        ck_assert_ptr_nonnull(strstr(out, "Retry-After: "));
    }
    ck_assert_int_eq(get(s, "/nowhere", "", out), 404);
    ck_assert_int_eq(get(s, "/", "", out), 200); /* the page, which asks again */
    dgemma_engine *e = load();
    ck_assert_int_eq(dg_server_attach(s, e, &err), DGEMMA_OK);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        ck_assert_int_eq(get(s, paths[i], "", out), 200);
    dg_server_stop(s);
    dgemma_engine_close(e);
    dg_server_free(s);
}
END_TEST

START_TEST(it_can_end_before_there_was_a_model)
{
    char out[4096];
    dg_server *s = start(NULL);
    ck_assert_int_eq(get(s, "/health", "", out), 503);
    dg_server_stop(s);
    dg_server_free(s);
}
END_TEST

START_TEST(leaving_is_told_before_anything_is_refused)
{
    char out[4096];
    dgemma_engine *e = load();
    dg_server *s = start(e);
    ck_assert_int_eq(get(s, "/health", "", out), 200);
    dg_server_leave(s);
    ck_assert_int_eq(get(s, "/health", "", out), 503);
    ck_assert_ptr_nonnull(strstr(out, "draining"));
    ck_assert_int_eq(get(s, "/v1/models", "", out), 200);
    dg_server_stop(s);
    dgemma_engine_close(e);
    dg_server_free(s);
}
END_TEST

/* A name that came with the request is kept if nothing can be smuggled in with it. */
START_TEST(a_given_name_is_kept)
{
    static const char long_name[] =
        "0123456789012345678901234567890123456789012345678901234567890123"
        "4";
    char out[4096], fields[256];
    dgemma_engine *e = load();
    dg_server *s = start(e);
    get(s, "/health", "X-Request-Id: web-1.a_7\r\n", out);
    ck_assert_ptr_nonnull(strstr(out, "\r\nx-request-id: web-1.a_7\r\n"));
    const char *const others[] = {"", "a b", "a\"b", long_name};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(fields, sizeof fields, "X-Request-Id: %s\r\n", others[i]);
        ck_assert_int_eq(get(s, "/health", fields, out), 200);
        const char *name = strstr(out, "\r\nx-request-id: ");
        ck_assert_ptr_nonnull(name);
        ck_assert_uint_eq(strspn(name + 16, "0123456789abcdef"), 24);
    }
    get(s, "/health", "", out);
    ck_assert_uint_eq(strspn(strstr(out, "\r\nx-request-id: ") + 16, "0123456789abcdef"), 24);
    dg_server_stop(s);
    dgemma_engine_close(e);
    dg_server_free(s);
}
END_TEST

Suite *replica_suite(void)
{
    Suite *s = suite_create("replica");
    TCase *t = tcase_create("replica");
    tcase_add_test(t, while_it_loads_it_says_so);
    tcase_add_test(t, it_can_end_before_there_was_a_model);
    tcase_add_test(t, leaving_is_told_before_anything_is_refused);
    tcase_add_test(t, a_given_name_is_kept);
    suite_add_tcase(s, t);
    return s;
}
