/* Memory that ends at any place: while a model is loaded, while a request is made and answered, and
 * while one comes over HTTP. Each gets an error and the next goes on as if nothing had been;
 * nothing leaks (the sanitizers look). */
#include <arpa/inet.h>
#include <jansson.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/base64.h"
#include "base/buf.h"
#include "base/common.h"
#include "base/file.h"
#include "dgemma.h"
#include "server/server.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/cpu_engine.h"
#include "support/sanitized.h"

/* Of the allocations of a request over HTTP the plain run makes each fail, a sanitized one every
 * third: it takes five times as long, and neighbours are mostly of one kind. */
enum { STRIDE = DG_TEST_ADDRESS_SANITIZER ? 3 : 1 };

static const char folder_path[] = "tests/fixtures/golden/sampler_finishes/model";
static const char pocket_path[] = "models/pocket/pocket.gguf";
static const char picture_path[] = "tests/fixtures/golden/vision/image.png";

static dgemma_status try_open(dgemma_engine **e, const char *path, int n_thread, dgemma_error *err)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = path;
    opt.n_threads = n_thread;
    opt.context_length = 512;
    return dgemma_engine_open(e, &opt, err);
}

static dgemma_engine *open_engine(const char *path, int n_thread)
{
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    ck_assert_msg(try_open(&e, path, n_thread, &err) == DGEMMA_OK, "%s", err.msg);
    dgemma_model_info info;
    dgemma_engine_info(e, &info);
    ck_assert(info.has_vision);
    return e;
}

/* ---- loading ---- */

/* A folder of safetensors with its tower, and a GGUF file with one beside it. Of the thousands of
 * allocations that reading the folder's JSON takes, all alike, a few are tried. jansson may take
 * one that fails for a text without those bytes, so there anything but a crash or a leak is right.
 */
START_TEST(loading)
{
    enum { ALL_FIRST = 200, ALL_LAST = 400, SOME = 37 };
    const char *path = _i ? pocket_path : folder_path;
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    dg_test_fail_alloc_at(LONG_MAX);
    dgemma_status st = try_open(&e, path, 2, &err);
    long most = dg_test_alloc_count();
    dg_test_alloc_done();
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    dgemma_engine_close(e);
    ck_assert_int_gt(most, 100);
    for (long n = 1; n <= most; n += n > ALL_FIRST && n < most - ALL_LAST ? SOME : 1) {
        e = NULL;
        dg_test_fail_alloc_at(n);
        st = try_open(&e, path, 2, &err);
        dg_test_alloc_done();
        dgemma_engine_close(e);
        if (_i && st != DGEMMA_E_NOMEM)
            ck_abort_msg("allocation %ld: status %d, \"%s\"", n, (int)st, err.msg);
    }
}
END_TEST

/* ---- requests and passes ---- */

static const char conversation[] =
    "[{\"role\":\"system\",\"content\":\"s\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"hi\"}]}]";
static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":"
                            "\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{"
                            "\"type\":\"string\"}}}}}]";

typedef struct answer {
    int32_t ids[64];
    size_t n;
} answer;

static bool note(void *user, const dgemma_event *e)
{
    answer *a = user;
    for (size_t i = 0; e->kind == DGEMMA_EVENT_BLOCK && i < e->n_tokens && a->n < 64; i++)
        a->ids[a->n++] = e->tokens[i];
    return true;
}

static dgemma_status ask(dgemma_engine *e, answer *a, dgemma_error *err)
{
    static const char *const stop[] = {"zzz", "yyy"};
    static const dgemma_logit_bias bias[] = {{50, 1}, {60, -1}};
    dgemma_media picture = {.path = picture_path};
    dgemma_request_options opt = dgemma_request_defaults(e);
    dgemma_stats stats;
    opt.messages = conversation;
    opt.tools = tools;
    opt.media = &picture;
    opt.n_media = 1;
    opt.max_tokens = 20;
    opt.max_denoise_steps = 2;
    opt.drafts = true;
    opt.stop = stop;
    opt.n_stop = 2;
    opt.logit_bias = bias;
    opt.n_logit_bias = 2;
    opt.n_logprobs = 2;
    opt.seed = 3;
    a->n = 0;
    return dgemma_generate(e, &opt, note, a, &stats, err);
}

/* One engine lives through all of it, and answers as before. */
START_TEST(requests)
{
    dgemma_engine *e = open_engine(folder_path, 2);
    dgemma_error err = {0};
    answer first, now;
    ck_assert_msg(ask(e, &first, &err) == DGEMMA_OK, "%s", err.msg);
    int n_failed = 0;
    for (long n = 1;; n++) {
        dg_test_fail_alloc_at(n);
        dgemma_status st = ask(e, &now, &err);
        bool reached = dg_test_alloc_done();
        if (!reached)
            ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
        else if (st != DGEMMA_E_NOMEM && st != DGEMMA_OK) /* what is kept for later may not be */
            ck_abort_msg("allocation %ld: status %d, \"%s\"", n, (int)st, err.msg);
        n_failed += st != DGEMMA_OK;
        if (!st) {
            ck_assert_uint_eq(now.n, first.n);
            ck_assert_mem_eq(now.ids, first.ids, now.n * sizeof *now.ids);
        }
        if (!reached)
            break;
    }
    ck_assert_int_gt(n_failed, 50);
    dgemma_engine_close(e);
}
END_TEST

/* ---- over HTTP ---- */

typedef struct site {
    dgemma_engine *engine;
    dg_server *server;
} site;

static void open_site(site *s)
{
    dgemma_error err = {0};
    dg_server_options opt = dg_server_defaults();
    opt.host = "127.0.0.1";
    opt.port = 0;
    opt.model_name = "m";
    opt.n_worker = 2;
    s->engine = open_engine(folder_path, 1); /* several would spin, waiting for each other */
    ck_assert_msg(dg_server_start(&s->server, s->engine, &opt, &err) == DGEMMA_OK, "%s", err.msg);
}

static void close_site(site *s)
{
    dg_server_stop(s->server);
    dgemma_engine_close(s->engine);
    dg_server_free(s->server);
}

static int dial(const site *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)dg_server_port(s->server)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* The status of the answer, 0 when the connection was closed without one, -1 when it hangs. The
 * answer itself, up to `most` bytes, goes to *out. Takes no memory: it must not have its share of
 * the failures. */
static int talk(const site *s, const char *request, size_t len, char *out, size_t most)
{
    int fd = dial(s), status = 0;
    size_t n = 0;
    if (fd < 0)
        return 0;
    for (size_t at = 0; at < len;) {
        ssize_t sent = send(fd, request + at, len - at, MSG_NOSIGNAL);
        if (sent <= 0)
            break;
        at += (size_t)sent;
    }
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char rest[4096];
        if (poll(&p, 1, 30000) != 1) {
            status = -1;
            break;
        }
        bool full = n + 1 >= most;
        ssize_t got = full ? recv(fd, rest, sizeof rest, 0) : recv(fd, out + n, most - 1 - n, 0);
        if (got <= 0)
            break;
        n += full ? 0 : (size_t)got;
    }
    out[n] = '\0';
    close(fd);
    if (!status && !strncmp(out, "HTTP/1.1 ", 9))
        status = atoi(out + 9);
    return status;
}

static size_t write_request(char *out, size_t most, const char *path, const char *body)
{
    int n = snprintf(out, most,
                     "POST %s HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     path, strlen(body), body);
    ck_assert(n > 0 && (size_t)n < most);
    return (size_t)n;
}

/* A body with a picture, tools and everything that is kept for an answer. */
static void write_body(dg_buf *out, bool streamed)
{
    dg_buf file;
    dgemma_error err = {0};
    dg_buf_init(&file, 1 << 20);
    ck_assert_msg(dg_file_read(&file, picture_path, &err) == DGEMMA_OK, "%s", err.msg);
    dg_buf_init(out, 1 << 22);
    dg_buf_puts(
        out,
        "{\"model\":\"m\",\"max_tokens\":4,\"seed\":3,\"n\":2,\"logprobs\":true,"
        "\"stop\":[\"zzz\"],\"diffusion\":{\"steps\":2},\"logit_bias\":{\"50\":1},\"stream\":");
    dg_buf_puts(out, streamed ? "true" : "false");
    dg_buf_puts(out, ",\"tools\":");
    dg_buf_puts(out, tools);
    dg_buf_puts(out,
                ",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
                "\"hi\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,");
    ck_assert(dg_base64_encode(out, file.data, file.len));
    dg_buf_puts(out, "\",\"detail\":\"low\"}}]}]}");
    dg_buf_clear(&file);
}

/* What an answer says: for each choice its pieces, in their order. NULL: it breaks off, or it says
 * that something went wrong. */
static json_t *choices_of(const char *text, bool streamed)
{
    const char *body = strstr(text, "\r\n\r\n");
    const char *whole = streamed ? "\ndata: [DONE]" : "}";
    json_t *said = json_pack("[[],[]]");
    if (!body || strstr(body, "\"error\"") || !strstr(body, whole)) {
        json_decref(said);
        return NULL;
    }
    for (const char *at = strchr(body, '{'); at; at = strstr(at, "\ndata: {")) {
        json_error_t why;
        at += *at == '\n' ? strlen("\ndata: ") : 0;
        json_t *event = json_loads(at, JSON_DISABLE_EOF_CHECK, &why), *choice;
        size_t i;
        ck_assert_msg(event != NULL, "%s: %.200s", why.text, at);
        json_array_foreach(json_object_get(event, "choices"), i, choice)
        {
            json_int_t index = json_integer_value(json_object_get(choice, "index"));
            json_array_append(json_array_get(said, (size_t)index), choice);
        }
        json_decref(event);
    }
    return said;
}

/* Whatever fails, the client is told or let go, or gets all that it asked for, and the next one is
 * served. */
START_TEST(over_http)
{
    enum { REQUEST = 1 << 20, ANSWER = 1 << 16 };
    static char request[REQUEST], said[ANSWER];
    static const char health[] = "GET /health HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    site s;
    open_site(&s);
    dg_buf body;
    write_body(&body, _i);
    size_t len = write_request(request, REQUEST, "/v1/chat/completions", body.data);
    dg_buf_clear(&body);
    int status = talk(&s, request, len, said, ANSWER);
    ck_assert_msg(status == 200, "%d: %s", status, said);
    json_t *wanted = choices_of(said, _i);
    ck_assert(wanted != NULL);
    int n_failed = 0;
    bool reached = true;
    for (long n = 1; reached; n += STRIDE) {
        dg_test_fail_alloc_at(n);
        status = talk(&s, request, len, said, ANSWER);
        reached = dg_test_alloc_done();
        /* 400: jansson goes on without the bytes that it had no memory for */
        bool told = status == 0 || status == 200 || status == 400 || status >= 500;
        json_t *got = status == 200 ? choices_of(said, _i) : NULL;
        if (!told || (got && !json_equal(got, wanted)) || (!reached && !got))
            ck_abort_msg("allocation %ld: %d, %.3000s", n, status,
                         strstr(said, "\r\n\r\n") ? strstr(said, "\r\n\r\n") + 4 : said);
        n_failed += !got;
        json_decref(got);
    }
    ck_assert_int_gt(n_failed, 20);
    ck_assert_int_eq(talk(&s, health, sizeof health - 1, said, ANSWER), 200);
    json_decref(wanted);
    close_site(&s);
}
END_TEST

/* Takes out what differs from answer to answer. */
static void forget_times_and_names(json_t *value)
{
    static const char *const fields[] = {"id",
                                         "created",
                                         "created_at",
                                         "timings",
                                         "cached_tokens",
                                         "total_duration",
                                         "prompt_eval_duration",
                                         "eval_duration",
                                         "input_tokens",
                                         "cache_read_input_tokens"};
    const char *key;
    json_t *member;
    size_t i;
    for (i = 0; json_is_object(value) && i < DG_COUNT(fields); i++)
        json_object_del(value, fields[i]);
    json_object_foreach(value, key, member) forget_times_and_names(member);
    json_array_foreach(value, i, member) forget_times_and_names(member);
}

/* The other dialects, their answers whole. No text here has more bytes than jansson reads without
 * further memory: it goes on without those that it had none for, and takes a field for another. */
START_TEST(in_other_dialects)
{
    static const struct {
        const char *path, *body;
    } cases[] = {
        {"/v1/completions", "{\"prompt\":\"hi\",\"max_tokens\":4,\"seed\":3,\"logprobs\":1,"
                            "\"diffusion\":{\"steps\":2}}"},
        {"/v1/responses", "{\"input\":\"hi\",\"seed\":3,\"diffusion\":{\"steps\":2}}"},
        {"/v1/messages", "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                         "\"max_tokens\":4,\"seed\":3,\"diffusion\":{\"steps\":2}}"},
        {"/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":false,"
                      "\"diffusion\":{\"steps\":2},\"options\":{\"num_predict\":4,\"seed\":3}}"},
    };
    enum { ANSWER = 1 << 16 };
    static char request[4096], said[ANSWER];
    json_t *wanted = NULL;
    site s;
    open_site(&s);
    size_t len = write_request(request, sizeof request, cases[_i].path, cases[_i].body);
    bool reached = true;
    for (long n = 0; reached; n += STRIDE) { /* the first has all its memory */
        dg_test_fail_alloc_at(n ? n : LONG_MAX);
        int status = talk(&s, request, len, said, ANSWER);
        reached = dg_test_alloc_done() || !n;
        const char *body = strstr(said, "\r\n\r\n");
        json_t *got = status == 200 && body ? json_loads(body, 0, NULL) : NULL;
        forget_times_and_names(got);
        bool told = status == 0 || status == 200 || status == 400 || status >= 500;
        bool whole = got && (!wanted || json_equal(got, wanted));
        if (!told || (status == 200 && !whole) || ((!reached || !n) && !got))
            ck_abort_msg("%s, allocation %ld: %d, %s", cases[_i].path, n, status, said);
        if (wanted)
            json_decref(got);
        else
            wanted = got;
    }
    json_decref(wanted);
    close_site(&s);
}
END_TEST

Suite *out_of_memory_suite(void)
{
    Suite *s = suite_create("out_of_memory");
    TCase *engine = tcase_create("engine");
    tcase_set_timeout(engine, 600);
    tcase_add_loop_test(engine, loading, 0, 2);
    tcase_add_test(engine, requests);
    suite_add_tcase(s, engine);

    TCase *http = tcase_create("http");
    tcase_set_timeout(http, 600);
    tcase_add_loop_test(http, over_http, 0, 2);
    tcase_add_loop_test(http, in_other_dialects, 0, 4);
    suite_add_tcase(s, http);
    return s;
}
