/* safetensors: what a file says, and every way in which it may be wrong. */
#include "suites.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "base/file.h"
#include "format/safetensors.h"
#include "support/alloc_fail.h"
#include "support/temp_dir.h"
#include "support/write_safetensors.h"

/* A file in memory: the length, the header, then n_data bytes 0, 1, 2, … The block is exactly as
 * long, so that a sanitizer sees a read past the end. */
static unsigned char *make_image(const char *header, size_t n_data, size_t *size)
{
    size_t len = strlen(header);
    *size = 8 + len + n_data;
    unsigned char *p = malloc(*size);
    ck_assert_ptr_nonnull(p);
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)((uint64_t)len >> 8 * i);
    memcpy(p + 8, header, len);
    for (size_t i = 0; i < n_data; i++)
        p[8 + len + i] = (unsigned char)i;
    return p;
}

static const char good[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"c\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[9,21]},"
    "\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[1,9]},"
    "\"b\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]},"
    "\"empty\":{\"dtype\":\"F32\",\"shape\":[4,0],\"data_offsets\":[9,9]},"
    "\"ids\":{\"dtype\":\"I32\",\"shape\":[1,1,1,2],\"data_offsets\":[21,29]}}   ";

START_TEST(reads_a_file)
{
    size_t size;
    unsigned char *p = make_image(good, 29, &size);
    const unsigned char *data = p + size - 29;
    dg_safetensors st;
    dgemma_error err;
    ck_assert_msg(dg_safetensors_parse(&st, p, size, "f", &err) == DGEMMA_OK, "%s", err.msg);

    static const char *const sorted[] = {"a", "b", "c", "empty", "ids"};
    ck_assert_uint_eq(st.n_tensor, DG_COUNT(sorted));
    for (size_t i = 0; i < DG_COUNT(sorted); i++) {
        ck_assert_str_eq(st.tensor[i].name, sorted[i]);
        ck_assert_ptr_eq(dg_safetensors_find(&st, sorted[i]), &st.tensor[i]);
    }
    const dg_tensor *c = dg_safetensors_find(&st, "c");
    ck_assert_int_eq(c->type, DG_BF16);
    ck_assert_int_eq(c->n_dim, 2);
    ck_assert_int_eq(c->shape[0], 2);
    ck_assert_int_eq(c->shape[1], 3);
    ck_assert_uint_eq(c->bytes, 12);
    ck_assert_ptr_eq(c->data, data + 9);
    ck_assert_int_eq(dg_safetensors_find(&st, "a")->n_dim, 0);
    ck_assert_int_eq(dg_safetensors_find(&st, "b")->type, DG_U8);
    ck_assert_uint_eq(dg_safetensors_find(&st, "empty")->bytes, 0);
    ck_assert_ptr_null(dg_safetensors_find(&st, "d"));
    ck_assert_ptr_null(dg_safetensors_find(&st, "__metadata__"));
    dg_safetensors_clear(&st);
    free(p);
}
END_TEST

START_TEST(reads_no_tensors)
{
    size_t size;
    unsigned char *p = make_image("{}", 0, &size);
    dg_safetensors st;
    ck_assert_int_eq(dg_safetensors_parse(&st, p, size, "f", NULL), DGEMMA_OK);
    ck_assert_uint_eq(st.n_tensor, 0);
    ck_assert_ptr_null(dg_safetensors_find(&st, ""));
    dg_safetensors_clear(&st);
    dg_safetensors_clear(&st); /* twice is fine */
    free(p);
}
END_TEST

#define T(dtype, shape, begin, end)                                                                \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static const struct {
    const char *header;
    size_t n_data;
    dgemma_status status;
    const char *says;
} broken[] = {
    {"", 0, DGEMMA_E_FORMAT, "not JSON"},
    {"[]", 0, DGEMMA_E_FORMAT, "not a JSON object"},
    {"{\"x\":", 0, DGEMMA_E_FORMAT, "not JSON"},
    {"{} x", 0, DGEMMA_E_FORMAT, "not JSON"},
    {"{\"x\":1}", 0, DGEMMA_E_FORMAT, "x has no dtype"},
    {"{\"x\":[]}", 0, DGEMMA_E_FORMAT, "x has no dtype"},
    {"{\"x\\u0000y\":" T("U8", "[0]", 0, 0) "}", 0, DGEMMA_E_FORMAT, "has a NUL in a text"},
    {"{\"x\":{\"dtype\":7}}", 0, DGEMMA_E_FORMAT, "x has no dtype"},
    {"{\"x\":" T("F4", "[4]", 0, 4) "}", 4, DGEMMA_E_UNSUPPORTED, "x has dtype F4"},
    {"{\"x\":" T("bf16", "[4]", 0, 8) "}", 8, DGEMMA_E_UNSUPPORTED, "x has dtype bf16"},
    {"{\"x\":{\"dtype\":\"U8\"}}", 0, DGEMMA_E_FORMAT, "shape"},
    {"{\"x\":" T("U8", "4", 0, 4) "}", 4, DGEMMA_E_FORMAT, "shape"},
    {"{\"x\":" T("U8", "[1,1,1,1,1]", 0, 1) "}", 1, DGEMMA_E_UNSUPPORTED, "5 dimensions"},
    {"{\"x\":" T("U8", "[-1]", 0, 1) "}", 1, DGEMMA_E_FORMAT, "dimension 0"},
    {"{\"x\":" T("U8", "[1,2.0]", 0, 2) "}", 2, DGEMMA_E_FORMAT, "dimension 1"},
    {"{\"x\":" T("U8", "[true]", 0, 1) "}", 1, DGEMMA_E_FORMAT, "dimension 0"},
    {"{\"x\":" T("F32", "[4611686018427387904]", 0, 0) "}", 0, DGEMMA_E_FORMAT, "overflows"},
    {"{\"x\":" T("U8", "[4294967296,4294967296]", 0, 0) "}", 0, DGEMMA_E_FORMAT, "overflows"},
    {"{\"x\":" T("U8", "[99999999999999999999]", 0, 0) "}", 0, DGEMMA_E_FORMAT,
     "has a number that is too large: too big integer near '99999999999999999999', byte 48"},
    {"{\"x\":" T("U8", "[1]", 0, 9223372036854775808) "}", 1, DGEMMA_E_FORMAT,
     "has a number that is too large: too big integer near '9223372036854775808'"},
    {"{\"x\":" T("U8", "[1]", -9223372036854775809, 0) "}", 1, DGEMMA_E_FORMAT,
     "has a number that is too large: too big negative integer"},
    {"{\"x\":" T("U8", "[1e999]", 0, 0) "}", 0, DGEMMA_E_FORMAT,
     "has a number that is too large: real number overflow near '1e999'"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0, DGEMMA_E_FORMAT, "data_offsets"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0]}}", 0, DGEMMA_E_FORMAT,
     "data_offsets"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0,0]}}", 0, DGEMMA_E_FORMAT,
     "data_offsets"},
    {"{\"x\":" T("U8", "[1]", 0, 1.0) "}", 1, DGEMMA_E_FORMAT, "data_offsets"},
    {"{\"x\":" T("U8", "[1]", -1, 0) "}", 1, DGEMMA_E_FORMAT, "of -1 and 0, wanted where"},
    {"{\"x\":" T("U8", "[1]", 1, 0) "}", 1, DGEMMA_E_FORMAT, "of 1 and 0, wanted where"},
    {"{\"x\":" T("U8", "[4]", 0, 4) "}", 3, DGEMMA_E_FORMAT, "truncated"},
    {"{\"x\":" T("U8", "[1]", 9223372036854775806, 9223372036854775807) "}", 1, DGEMMA_E_FORMAT,
     "truncated"},
    {"{\"x\":" T("F32", "[2]", 0, 4) "}", 4, DGEMMA_E_FORMAT, "[2] in F32 takes 8"},
    {"{\"x\":" T("U8", "[1]", 0, 1) ",\"x\":" T("U8", "[1]", 0, 1) "}", 1, DGEMMA_E_FORMAT,
     "has a name twice: duplicate object key near '\"x\"', byte"},
    {"{\"x\":" T("U8", "[3]", 0, 3) ",\"y\":" T("U8", "[2]", 2, 4) "}", 4, DGEMMA_E_FORMAT,
     "x and y overlap"},
    {"{\"x\":" T("U8", "[3]", 0, 3) ",\"y\":" T("U8", "[3]", 0, 3) "}", 3, DGEMMA_E_FORMAT,
     "overlap"},
    {"{\"x\":" T("U8", "[1]", 0, 1) ",\"y\":" T("U8", "[1]", 2, 3) "}", 3, DGEMMA_E_FORMAT,
     "1 bytes before tensor y"},
    {"{\"x\":" T("U8", "[1]", 0, 1) "}", 3, DGEMMA_E_FORMAT, "2 bytes at the end"},
};

START_TEST(refuses)
{
    size_t size;
    unsigned char *p = make_image(broken[_i].header, broken[_i].n_data, &size);
    dg_safetensors st;
    dgemma_error err = {0};
    ck_assert_int_eq(dg_safetensors_parse(&st, p, size, "the file", &err), broken[_i].status);
    ck_assert_int_eq(err.status, broken[_i].status);
    ck_assert_msg(strncmp(err.msg, "the file: ", 10) == 0, "%s", err.msg);
    ck_assert_msg(strstr(err.msg, broken[_i].says), "%s", err.msg);
    ck_assert_uint_eq(st.n_tensor, 0);
    ck_assert_ptr_null(st.tensor);
    free(p);
}
END_TEST

START_TEST(refuses_every_cut)
{
    size_t size;
    unsigned char *p = make_image(good, 29, &size);
    for (size_t n = 0; n < size; n++) {
        unsigned char *cut = malloc(n ? n : 1);
        ck_assert_ptr_nonnull(cut);
        memcpy(cut, p, n);
        dg_safetensors st;
        ck_assert_int_eq(dg_safetensors_parse(&st, cut, n, "f", NULL), DGEMMA_E_FORMAT);
        free(cut);
    }
    free(p);
}
END_TEST

START_TEST(refuses_long_headers)
{
    char dir[DG_TEST_PATH], path[DG_TEST_PATH];
    ck_assert(dg_test_temp_make(dir));
    dg_test_path(path, dir, "f");

    /* 16 MiB and a byte of header are there, as a hole in the file, and are not read */
    static const unsigned char length[8] = {1, 0, 0, 1};
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(length, 1, sizeof length, f), sizeof length);
    ck_assert_int_eq(fseeko(f, (16 << 20) + 1, SEEK_CUR), 0);
    ck_assert_int_eq(fputc(0, f), 0);
    ck_assert_int_eq(fclose(f), 0);

    dg_file_map map;
    dg_safetensors st;
    ck_assert_int_eq(dg_file_map_open(&map, path, NULL), DGEMMA_OK);
    ck_assert_int_eq(dg_safetensors_parse(&st, map.data, map.size, "f", NULL), DGEMMA_E_LIMIT);
    dg_file_map_close(&map);
    dg_test_temp_remove(dir);

    static const unsigned char huge[9] = {255, 255, 255, 255, 255, 255, 255, 255, '{'};
    ck_assert_int_eq(dg_safetensors_parse(&st, huge, sizeof huge, "f", NULL), DGEMMA_E_FORMAT);
}
END_TEST

START_TEST(reads_past_four_gigabytes)
{
    char dir[DG_TEST_PATH], path[DG_TEST_PATH];
    ck_assert(dg_test_temp_make(dir));
    dg_test_path(path, dir, "f");
    static const unsigned char mark[4] = {1, 2, 3, 4};
    const dg_tensor want[] = {
        {.name = "experts", .type = DG_BF16, .n_dim = 3, .shape = {128, 6144, 2816}},
        {.name = "after", .type = DG_U8, .n_dim = 1, .shape = {4}, .data = mark},
    };
    ck_assert(dg_test_write_safetensors(path, want, DG_COUNT(want)));

    dg_file_map map;
    dg_safetensors st;
    dgemma_error err;
    ck_assert_int_eq(dg_file_map_open(&map, path, NULL), DGEMMA_OK);
    ck_assert_msg(dg_safetensors_parse(&st, map.data, map.size, "f", &err) == DGEMMA_OK, "%s",
                  err.msg);
    const dg_tensor *t = dg_safetensors_find(&st, "experts");
    ck_assert_uint_eq(t->bytes, (size_t)128 * 6144 * 2816 * 2);
    ck_assert_uint_gt(t->bytes, UINT32_MAX);
    t = dg_safetensors_find(&st, "after");
    ck_assert_mem_eq(t->data, mark, sizeof mark);
    dg_safetensors_clear(&st);
    dg_file_map_close(&map);
    dg_test_temp_remove(dir);
}
END_TEST

START_TEST(survives_no_memory)
{
    size_t size;
    unsigned char *p = make_image(good, 29, &size);
    for (long n = 1;; n++) {
        dg_safetensors st;
        dg_test_fail_alloc_at(n);
        dgemma_status status = dg_safetensors_parse(&st, p, size, "f", NULL);
        bool reached = dg_test_alloc_done();
        if (status)
            ck_assert_ptr_null(st.tensor);
        dg_safetensors_clear(&st);
        if (!reached) {
            ck_assert_int_eq(status, DGEMMA_OK);
            break;
        }
    }
    free(p);
}
END_TEST

Suite *safetensors_suite(void)
{
    Suite *s = suite_create("safetensors");
    TCase *c = tcase_create("good");
    tcase_add_test(c, reads_a_file);
    tcase_add_test(c, reads_no_tensors);
    tcase_add_test(c, reads_past_four_gigabytes);
    suite_add_tcase(s, c);
    c = tcase_create("hostile");
    tcase_add_loop_test(c, refuses, 0, (int)DG_COUNT(broken));
    tcase_add_test(c, refuses_every_cut);
    tcase_add_test(c, refuses_long_headers);
    tcase_add_test(c, survives_no_memory);
    suite_add_tcase(s, c);
    return s;
}
