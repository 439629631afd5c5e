/* Forms with files in them, and the query of a target. */
#include <string.h>
#include "base/common.h"
#include "server/multipart.h"
#include "server/query.h"
#include "suites.h"

#define TYPE "multipart/form-data; boundary=b"
#define PART(disposition, data)                                                                    \
    "--b\r\nContent-Disposition: form-data; " disposition "\r\n\r\n" data "\r\n"
#define END "--b--\r\n"

static bool reads(dg_multipart *m, const char *type, const char *body, dg_http_error *e)
{
    return dg_multipart_read(m, type, body, strlen(body), e);
}

START_TEST(parts_have_names_and_data)
{
    dg_multipart m;
    dg_http_error e = {0};
    ck_assert(reads(&m, TYPE,
                    PART("name=\"purpose\"", "batch")
                        PART("name=\"file\"; filename=\"a \\\"b\\\".jsonl\"", "one\r\n--\r\ntwo")
                            PART("name=empty", "") END,
                    &e));
    ck_assert_uint_eq(m.n, 3);
    const dg_part *p = dg_multipart_get(&m, "purpose"), *f = dg_multipart_get(&m, "file");
    ck_assert(p && p->len == 5 && !memcmp(p->data, "batch", 5) && !p->filename[0]);
    ck_assert(f && f->len == 12 && !memcmp(f->data, "one\r\n--\r\ntwo", 12));
    ck_assert_str_eq(f->filename, "a \"b\".jsonl");
    ck_assert_ptr_null(dg_multipart_get(&m, "other"));
    ck_assert(dg_multipart_get(&m, "empty") && !dg_multipart_get(&m, "empty")->len);
}
END_TEST

START_TEST(a_form_cut_anywhere_is_refused)
{
    static const char body[] =
        PART("name=\"purpose\"", "batch") PART("name=\"file\"; filename=\"a\"", "x") "--b--";
    dg_multipart m;
    dg_http_error e = {0};
    for (size_t n = 0; n < sizeof body - 1; n++) {
        ck_assert_msg(!dg_multipart_read(&m, TYPE, body, n, &e), "%zu bytes", n);
        ck_assert_int_eq(e.status, 400);
    }
    ck_assert(dg_multipart_read(&m, TYPE, body, sizeof body - 1, &e));
}
END_TEST

START_TEST(what_is_not_plain_is_refused)
{
    static const struct {
        const char *type, *body;
        int status;
    } cases[] = {
        {NULL, END, 415},
        {"multipart/mixed; boundary=b", END, 415},
        {"multipart/form-data", END, 400},
        {"multipart/form-data; boundary=\"b", END, 400},
        {"multipart/form-data; boundary=b; boundary=b", END, 400},
        {TYPE, "\r\n" END, 400},
        {TYPE, END "x", 400},
        {TYPE, "--bc\r\n", 400},
        {TYPE, PART("name=\"a\"", "1") PART("name=\"a\"", "2") END, 400},
        {TYPE, PART("name=\"\"", "1") END, 400},
        {TYPE, PART("filename=\"a\"", "1") END, 400},
        {TYPE, PART("name=\"a\"; filename=\"..\"", "1") END, 400},
        {TYPE, PART("name=\"a\"; filename=\"x/\"", "1") END, 400},
        {TYPE, PART("name=\"a\"; filename=\"\xff\"", "1") END, 400},
        {TYPE, PART("name=\"a\"; filename=\"x\"; filename=\"y\"", "1") END, 400},
        {TYPE, PART("name=\"a\" filename=\"x\"", "1") END, 400},
        {TYPE, "--b\r\nContent-Disposition : form-data; name=a\r\n\r\n1\r\n" END, 400},
        {TYPE, "--b\r\nContent-Disposition: attachment; name=a\r\n\r\n1\r\n" END, 400},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        dg_multipart m;
        dg_http_error e = {0};
        ck_assert_msg(!reads(&m, cases[i].type, cases[i].body, &e), "case %zu", i);
        ck_assert_int_eq(e.status, cases[i].status);
    }
}
END_TEST

START_TEST(a_query_has_values)
{
    char text[8];
    dg_http_error e = {0};
    int n = 7;
    ck_assert(dg_query_text("a=1&after=x%41+b&b=", "after", text, sizeof text, &e));
    ck_assert_str_eq(text, "xA b");
    ck_assert(dg_query_text("xafter=1&after", "after", text, sizeof text, &e));
    ck_assert_str_eq(text, "");
    ck_assert(!dg_query_text("a=12345678", "a", text, sizeof text, &e));
    ck_assert(!dg_query_text("a=%4", "a", text, sizeof text, &e));
    ck_assert(!dg_query_text("a=%", "a", text, sizeof text, &e));
    ck_assert(!dg_query_text("a=%00", "a", text, sizeof text, &e));
    ck_assert(dg_query_int("", "limit", 1, 10, &n, &e) && n == 7);
    ck_assert(dg_query_int("limit=10", "limit", 1, 10, &n, &e) && n == 10);
    ck_assert(!dg_query_int("limit=11", "limit", 1, 10, &n, &e));
    ck_assert(!dg_query_int("limit=-1", "limit", 1, 10, &n, &e));
    ck_assert(!dg_query_int("limit=99999999999", "limit", 1, 10, &n, &e));
}
END_TEST

Suite *multipart_suite(void)
{
    Suite *s = suite_create("multipart");
    TCase *t = tcase_create("forms");
    tcase_add_test(t, parts_have_names_and_data);
    tcase_add_test(t, a_form_cut_anywhere_is_refused);
    tcase_add_test(t, what_is_not_plain_is_refused);
    tcase_add_test(t, a_query_has_values);
    suite_add_tcase(s, t);
    return s;
}
