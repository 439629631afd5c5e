/* Lines of a batch, the names in it, and the file of answers that is read back. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/common.h"
#include "base/file.h"
#include "server/batch_ids.h"
#include "server/batch_line.h"
#include "server/batch_output.h"
#include "server/line_reader.h"
#include "suites.h"
#include "support/alloc_fail.h"

/* ---- lines ---- */

static bool reads(dg_batch_line *l, const char *text, dg_http_error *e)
{
    return dg_batch_line_read(l, text, strlen(text), e);
}

START_TEST(a_line_says_what_is_asked)
{
    dg_batch_line l;
    dg_http_error e = {0};
    ck_assert(reads(&l,
                    "{\"custom_id\": \"foobar\", \"method\": \"POST\", \"url\": "
                    "\"/v1/chat/completions\", \"body\": {\"a\": 1, \"b\": 2}}",
                    &e));
    ck_assert_str_eq(l.custom_id, "foobar");
    ck_assert_str_eq(l.route->path, "/v1/chat/completions");
    ck_assert_uint_eq(l.seed, 0xbf9cf968u); /* FNV's authors give it for this word */
    ck_assert_uint_eq(strlen(l.mark), DG_BATCH_MARK);
    dg_batch_line_clear(&l);
}
END_TEST

START_TEST(the_mark_is_of_what_is_asked_not_of_how_it_is_written)
{
    static const char *const lines[] = {
        "{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/"
        "responses\",\"body\":{\"a\":1,\"b\":"
        "2}}",
        "{ \"body\": {\"b\": 2, \"a\": 1}, \"url\": \"/v1/responses\", \"method\": \"POST\", "
        "\"custom_id\": \"\\u0078\", \"note\": 0}",
        "{\"custom_id\":\"y\",\"method\":\"POST\",\"url\":\"/v1/"
        "responses\",\"body\":{\"a\":1,\"b\":"
        "2}}",
        "{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"a\":1,"
        "\"b\":2}}",
        "{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/"
        "responses\",\"body\":{\"a\":1,\"b\":"
        "3}}",
    };
    char first[DG_BATCH_MARK + 1] = "";
    for (size_t i = 0; i < DG_COUNT(lines); i++) {
        dg_batch_line l;
        dg_http_error e = {0};
        ck_assert_msg(reads(&l, lines[i], &e), "%s", e.message);
        if (!i)
            memcpy(first, l.mark, sizeof first);
        ck_assert_int_eq(!strcmp(first, l.mark), i < 2);
        dg_batch_line_clear(&l);
    }
}
END_TEST

START_TEST(what_is_wrong_is_told)
{
    static const struct {
        const char *line, *code, *custom_id;
    } cases[] = {
        {"", "invalid_json", NULL},
        {"null", "invalid_json", NULL},
        {"{\"custom_id\": \"\"}", "missing_custom_id", NULL},
        {"{\"custom_id\": null}", "missing_custom_id", NULL},
        {"{\"custom_id\": \"a\"}", "invalid_method", "a"},
        {"{\"custom_id\": \"a\", \"method\": \"POST\"}", "invalid_url", "a"},
        {"{\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/models\"}", "invalid_url",
         "a"},
        {"{\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/api/chat\"}", "invalid_url",
         "a"},
        {"{\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/messages/count_tokens\"}",
         "invalid_url", "a"},
        {"{\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/edit\", \"body\": \"\"}",
         "missing_body", "a"},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        dg_batch_line l;
        dg_http_error e = {0};
        ck_assert(!reads(&l, cases[i].line, &e));
        ck_assert_msg(!strcmp(e.code, cases[i].code), "%s: %s", cases[i].line, e.code);
        ck_assert_int_eq(!l.custom_id, !cases[i].custom_id);
        ck_assert(!strstr(e.message, "the body is"));
        dg_batch_line_clear(&l);
    }
}
END_TEST

/* ---- answers ---- */

static const char mark[] = "0123456789abcdef01234567";

START_TEST(an_answer_is_found_again)
{
    static const char *const names[] = {"a", "\"quoted\\\"", "line\nend", "ü", "\x01\x7f", "\\"};
    for (size_t i = 0; i < DG_COUNT(names); i++) {
        dg_buf b;
        char name[DG_CUSTOM_ID_BYTES + 1], found[DG_BATCH_MARK + 1];
        dg_buf_init(&b, 4096);
        ck_assert(dg_batch_answer_print(&b, names[i], mark, 200, "{}", 2));
        ck_assert_uint_eq(strcspn(b.data, "\n"), b.len - 1);
        ck_assert(dg_batch_answer_read(b.data, b.len - 1, name, found));
        ck_assert_str_eq(name, names[i]);
        ck_assert_str_eq(found, mark);
        for (size_t n = 1; n < b.len - 1; n++) {
            ck_assert(!dg_batch_answer_read(b.data, n, name, found));
            ck_assert(dg_batch_answer_begins(b.data, n));
        }
        dg_buf_clear(&b);
    }
}
END_TEST

START_TEST(an_error_is_no_answer)
{
    dg_buf b;
    char name[DG_CUSTOM_ID_BYTES + 1], found[DG_BATCH_MARK + 1];
    dg_http_error e;
    dg_refuse(&e, 400, "invalid_json", NULL, "no \"JSON\"");
    dg_buf_init(&b, 4096);
    ck_assert(dg_batch_error_print(&b, NULL, mark, 7, &e));
    ck_assert(!dg_batch_answer_read(b.data, b.len - 1, name, found));
    ck_assert_ptr_nonnull(strstr(b.data, "\"custom_id\":null,\"response\":null,\"error\":{\"code\":"
                                         "\"invalid_json\",\"message\":\"no \\\"JSON\\\"\","
                                         "\"line\":7}}\n"));
    dg_buf_clear(&b);
}
END_TEST

/* ---- names ---- */

START_TEST(names_are_kept_apart)
{
    enum { N = 5000 };
    dg_batch_ids ids;
    char name[32];
    dg_batch_ids_init(&ids, N);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "request-%d", i);
        dg_batch_id *id = dg_batch_ids_get(&ids, name);
        ck_assert(id && !id->line && !id->mark[0]);
        id->line = (uint64_t)i + 1;
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "request-%d", i);
        ck_assert_uint_eq(dg_batch_ids_get(&ids, name)->line, (uint64_t)i + 1);
    }
    ck_assert_ptr_null(dg_batch_ids_get(&ids, "one more"));
    dg_batch_ids_clear(&ids);
}
END_TEST

/* ---- files ---- */

/* Both of its ends reached the disk before the power went, and the middle did not. */
START_TEST(an_answer_with_zeros_is_none)
{
    char custom_id[DG_CUSTOM_ID_BYTES + 1], found[DG_BATCH_MARK + 1];
    dg_buf line;
    dg_buf_init(&line, 4096);
    ck_assert(dg_batch_answer_print(&line, "x", mark, 200, "{\"text\":\"zero\"}", 15));
    ck_assert(dg_buf_append(&line, "", 1)); /* for strstr */
    ck_assert(dg_batch_answer_read(line.data, line.len - 2, custom_id, found));
    memset(strstr(line.data, "zero"), 0, 4);
    ck_assert(!dg_batch_answer_read(line.data, line.len - 2, custom_id, found));
    dg_buf_clear(&line);
}
END_TEST

/* A file with this in it; the caller closes it. */
static int file_of(const char *text, size_t len, char *path)
{
    strcpy(path, "/tmp/dg_batch_XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, len), (ssize_t)len);
    ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

START_TEST(lines_have_a_limit)
{
    char path[32], text[200100];
    memset(text, 'x', sizeof text);
    memcpy(text, "one\n\n", 5);
    memcpy(text + 200000, "\ntwo\nthree", 10);
    int fd = file_of(text, 200010, path);
    dg_line_reader r;
    dg_line_reader_init(&r, fd, path, 100);
    static const struct {
        const char *text;
        bool too_long, whole;
    } want[] = {{"one", false, true},
                {"", false, true},
                {NULL, true, true},
                {"two", false, true},
                {"three", false, false}};
    bool more;
    for (size_t i = 0; i < DG_COUNT(want); i++) {
        ck_assert_int_eq(dg_line_next(&r, &more, NULL), DGEMMA_OK);
        ck_assert(more && r.too_long == want[i].too_long && r.whole == want[i].whole);
        ck_assert_uint_eq(r.number, i + 1);
        if (want[i].text) {
            ck_assert_uint_eq(dg_line_bytes(&r), strlen(want[i].text));
            ck_assert_int_eq(memcmp(dg_line_text(&r), want[i].text, strlen(want[i].text)), 0);
        }
    }
    ck_assert_uint_eq(r.offset, 200005);
    ck_assert_uint_eq(r.next, 200010);
    ck_assert_int_eq(dg_line_next(&r, &more, NULL), DGEMMA_OK);
    ck_assert(!more);
    dg_line_reader_clear(&r);
    close(fd);
    unlink(path);
}
END_TEST

START_TEST(the_limit_is_meant)
{
    char path[32], text[203];
    memset(text, 'x', sizeof text);
    text[100] = text[202] = '\n'; /* 100 bytes, and 101 */
    int fd = file_of(text, sizeof text, path);
    dg_line_reader r;
    bool more, fits, too_long;
    dg_line_reader_init(&r, fd, path, 100);
    ck_assert_int_eq(dg_line_next(&r, &more, NULL), DGEMMA_OK);
    fits = more && !r.too_long;
    ck_assert_int_eq(dg_line_next(&r, &more, NULL), DGEMMA_OK);
    too_long = more && r.too_long;
    dg_line_reader_clear(&r);
    close(fd);
    unlink(path);
    ck_assert(fits && too_long);
}
END_TEST

/* Killed at any byte, the file is read back with every answer that was whole, and goes on. */
START_TEST(a_file_that_was_cut_short_goes_on)
{
    dg_buf two;
    dg_buf_init(&two, 4096);
    ck_assert(dg_batch_answer_print(&two, "first", mark, 200, "{\"a\":[]}", 8));
    size_t one = two.len;
    ck_assert(dg_batch_answer_print(&two, "second", mark, 200, "{}", 2));
    for (size_t n = 0; n <= two.len; n++) {
        char path[32];
        dg_batch_ids ids;
        dg_batch_output o;
        dgemma_error err = {0};
        close(file_of(two.data, n, path));
        dg_batch_ids_init(&ids, 8);
        ck_assert_msg(dg_batch_output_open(&o, path, &ids, &err) == DGEMMA_OK, "%s", err.msg);
        size_t whole = n + 1 >= two.len ? 2 : n + 1 >= one ? 1 : 0;
        ck_assert_uint_eq(ids.n, whole);
        ck_assert_uint_eq(o.size, whole == 2 ? two.len : whole ? one : 0);
        ck_assert_int_eq(dg_batch_output_close(&o, false, &err), DGEMMA_OK);
        dg_buf now;
        dg_buf_init(&now, 4096);
        ck_assert_int_eq(dg_file_read(&now, path, &err), DGEMMA_OK);
        ck_assert_uint_eq(now.len, whole == 2 ? two.len : whole ? one : 0);
        ck_assert_int_eq(memcmp(now.len ? now.data : "", two.data, now.len), 0);
        dg_buf_clear(&now);
        dg_batch_ids_clear(&ids);
        unlink(path);
    }
    dg_buf_clear(&two);
}
END_TEST

START_TEST(other_files_are_left_alone)
{
    dg_buf twice;
    dg_buf_init(&twice, 4096);
    ck_assert(dg_batch_answer_print(&twice, "a", mark, 200, "{}", 2));
    ck_assert(dg_batch_answer_print(&twice, "a", mark, 200, "{}", 2));
    const char *const texts[] = {"notes\n", "notes", "{\"id\":\"batch_x", "{}\n", twice.data};
    for (size_t i = 0; i < DG_COUNT(texts); i++) {
        char path[32];
        dg_batch_ids ids;
        dg_batch_output o;
        dgemma_error err = {0};
        struct stat after;
        close(file_of(texts[i], strlen(texts[i]), path));
        dg_batch_ids_init(&ids, 8);
        ck_assert_int_eq(dg_batch_output_open(&o, path, &ids, &err), DGEMMA_E_FORMAT);
        dg_batch_output_close(&o, false, NULL);
        ck_assert_int_eq(stat(path, &after), 0);
        ck_assert_uint_eq((size_t)after.st_size, strlen(texts[i]));
        dg_batch_ids_clear(&ids);
        unlink(path);
    }
    dg_buf_clear(&twice);
}
END_TEST

/* ---- without memory ---- */

/* Each allocation fails once: a line is refused and may be asked again, a file is left as it was.
 */
START_TEST(memory_may_be_out)
{
    char path[32];
    dg_buf answers;
    dg_buf_init(&answers, 4096);
    ck_assert(dg_batch_answer_print(&answers, "a", mark, 200, "{}", 2));
    ck_assert(dg_batch_answer_print(&answers, "b", mark, 200, "{}", 2));
    close(file_of(answers.data, answers.len, path));
    for (long n = 1;; n++) {
        dg_batch_line l;
        dg_batch_ids ids;
        dg_batch_output o;
        dg_http_error e = {0};
        dgemma_error err = {0};
        struct stat after;
        dg_buf out;
        dg_buf_init(&out, 4096);
        dg_batch_ids_init(&ids, 8);
        dg_test_fail_alloc_at(n);
        bool read = reads(&l,
                          "{\"custom_id\":\"x\",\"method\":\"POST\",\"url\":\"/v1/responses\","
                          "\"body\":{\"a\":[1]}}",
                          &e);
        bool printed = read && dg_batch_answer_print(&out, l.custom_id, l.mark, 200, "{}", 2);
        dgemma_status st = dg_batch_output_open(&o, path, &ids, &err);
        bool reached = dg_test_alloc_done();
        ck_assert(read || e.status == 503);
        ck_assert(reached || (read && printed && !st && ids.n == 2));
        ck_assert_msg(!st || st == DGEMMA_E_NOMEM || st == DGEMMA_E_LIMIT || st == DGEMMA_E_FORMAT,
                      "%s", err.msg);
        dg_batch_line_clear(&l);
        dg_batch_output_close(&o, false, NULL);
        dg_batch_ids_clear(&ids);
        dg_buf_clear(&out);
        ck_assert_int_eq(stat(path, &after), 0);
        ck_assert_uint_eq((size_t)after.st_size, answers.len);
        if (!reached)
            break;
    }
    unlink(path);
    dg_buf_clear(&answers);
}
END_TEST

Suite *batch_suite(void)
{
    Suite *s = suite_create("batch");
    TCase *t = tcase_create("lines");
    tcase_add_test(t, a_line_says_what_is_asked);
    tcase_add_test(t, an_answer_with_zeros_is_none);
    tcase_add_test(t, the_mark_is_of_what_is_asked_not_of_how_it_is_written);
    tcase_add_test(t, what_is_wrong_is_told);
    tcase_add_test(t, an_answer_is_found_again);
    tcase_add_test(t, an_error_is_no_answer);
    suite_add_tcase(s, t);
    t = tcase_create("files");
    tcase_add_test(t, names_are_kept_apart);
    tcase_add_test(t, lines_have_a_limit);
    tcase_add_test(t, the_limit_is_meant);
    tcase_add_test(t, a_file_that_was_cut_short_goes_on);
    tcase_add_test(t, other_files_are_left_alone);
    tcase_add_test(t, memory_may_be_out);
    suite_add_tcase(s, t);
    return s;
}
