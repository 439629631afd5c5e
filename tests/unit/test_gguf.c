/* GGUF files: what the writer writes the reader reads; what is broken is refused by name. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "format/gguf_model.h"
#include "format/gguf_write.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/temp_dir.h"

/* ---- round trip ---- */

static int64_t int_of(const dg_gguf *g, const char *key)
{
    int64_t n = -12345;
    ck_assert_msg(dg_gguf_int(dg_gguf_find(g, key), 0, &n), "%s", key);
    return n;
}

static void put_everything(dg_gguf_writer *w)
{
    dg_gguf_put_int(w, "u8", DG_GGUF_U8, 255);
    dg_gguf_put_int(w, "i8", DG_GGUF_I8, -128);
    dg_gguf_put_int(w, "u16", DG_GGUF_U16, 65535);
    dg_gguf_put_int(w, "i16", DG_GGUF_I16, -32768);
    dg_gguf_put_int(w, "u32", DG_GGUF_U32, 4294967295);
    dg_gguf_put_int(w, "i32", DG_GGUF_I32, -2147483648LL);
    dg_gguf_put_int(w, "u64", DG_GGUF_U64, INT64_MAX);
    dg_gguf_put_int(w, "huge", DG_GGUF_U64, -1); /* 2^64 - 1 */
    dg_gguf_put_int(w, "i64", DG_GGUF_I64, INT64_MIN);
    dg_gguf_put_int(w, "yes", DG_GGUF_BOOL, 1);
    dg_gguf_put_int(w, "no", DG_GGUF_BOOL, 0);
    dg_gguf_put_int(w, "neither", DG_GGUF_BOOL, 7);
    dg_gguf_put_float(w, "f32", 0.1f);
    dg_gguf_put_double(w, "f64", 0.1);
    dg_gguf_put_string(w, "text", "h\xC3\xA9llo");
    dg_gguf_put_string(w, "empty", "");
    dg_gguf_put_ints(w, "ints", DG_GGUF_I16, (int64_t[]){1, -2, 3}, 3);
    dg_gguf_put_ints(w, "none", DG_GGUF_I32, NULL, 0);
    dg_gguf_put_floats(w, "floats", (float[]){1.5f, -2.5f}, 2);
    dg_gguf_put_strings(w, "words", (dg_gguf_text[]){{"a", 1}, {"", 0}, {"x\0y", 3}}, 3);
}

static void check_everything(const dg_gguf *g)
{
    double d;
    bool b = true;
    int64_t n = 99;
    dg_gguf_text t;
    ck_assert_int_eq(int_of(g, "u8"), 255);
    ck_assert_int_eq(int_of(g, "i8"), -128);
    ck_assert_int_eq(int_of(g, "u16"), 65535);
    ck_assert_int_eq(int_of(g, "i16"), -32768);
    ck_assert_int_eq(int_of(g, "u32"), 4294967295);
    ck_assert_int_eq(int_of(g, "i32"), -2147483648LL);
    ck_assert_int_eq(int_of(g, "u64"), INT64_MAX);
    ck_assert_int_eq(int_of(g, "i64"), INT64_MIN);
    ck_assert(!dg_gguf_int(dg_gguf_find(g, "huge"), 0, &n));
    ck_assert(!dg_gguf_int(dg_gguf_find(g, "f32"), 0, &n));
    ck_assert(!dg_gguf_int(dg_gguf_find(g, "text"), 0, &n));
    ck_assert(!dg_gguf_int(dg_gguf_find(g, "yes"), 0, &n));
    ck_assert(!dg_gguf_int(NULL, 0, &n) && n == 99);
    ck_assert(dg_gguf_bool(dg_gguf_find(g, "yes"), 0, &b) && b);
    ck_assert(dg_gguf_bool(dg_gguf_find(g, "no"), 0, &b) && !b);
    ck_assert(!dg_gguf_bool(dg_gguf_find(g, "neither"), 0, &b));
    ck_assert(dg_gguf_float(dg_gguf_find(g, "f32"), 0, &d) && d == (double)0.1f);
    ck_assert(dg_gguf_float(dg_gguf_find(g, "f64"), 0, &d) && d == 0.1);
    ck_assert(dg_gguf_float(dg_gguf_find(g, "i8"), 0, &d) && d == -128);
    ck_assert(!dg_gguf_float(dg_gguf_find(g, "text"), 0, &d));
    ck_assert(dg_gguf_string_is(dg_gguf_find(g, "text"), "h\xC3\xA9llo"));
    ck_assert(dg_gguf_string_is(dg_gguf_find(g, "empty"), ""));
    ck_assert(!dg_gguf_string(dg_gguf_find(g, "words"), &t));
    ck_assert(!dg_gguf_string_is(dg_gguf_find(g, "u8"), "255"));
    ck_assert(dg_gguf_int(dg_gguf_find(g, "ints"), 1, &n) && n == -2);
    ck_assert(!dg_gguf_int(dg_gguf_find(g, "ints"), 3, &n));
    ck_assert(!dg_gguf_int(dg_gguf_find(g, "none"), 0, &n));
    ck_assert_uint_eq(dg_gguf_find(g, "none")->n, 0);
    ck_assert(dg_gguf_float(dg_gguf_find(g, "floats"), 1, &d) && d == -2.5);
    ck_assert_ptr_null(dg_gguf_find(g, "nothing"));

    dg_gguf_strings s = dg_gguf_strings_of(dg_gguf_find(g, "words"));
    ck_assert(dg_gguf_strings_next(&s, &t) && t.len == 1 && t.text[0] == 'a');
    ck_assert(dg_gguf_strings_next(&s, &t) && t.len == 0);
    ck_assert(dg_gguf_strings_next(&s, &t) && t.len == 3 && memcmp(t.text, "x\0y", 3) == 0);
    ck_assert(!dg_gguf_strings_next(&s, &t));
    s = dg_gguf_strings_of(dg_gguf_find(g, "ints"));
    ck_assert(!dg_gguf_strings_next(&s, &t));
}

static void round_trip(size_t alignment)
{
    static unsigned char data[3][4096];
    dgemma_error err = {0};
    dg_tensor tensor[] = {
        {.name = "b", .type = DG_F32, .n_dim = 2, .shape = {3, 5}},
        {.name = "a", .type = DG_Q6_K, .n_dim = 3, .shape = {2, 1, 512}},
        {.name = "c", .type = DG_BF16, .n_dim = 1, .shape = {7}},
    };
    dg_gguf_writer w;
    dg_gguf_writer_init(&w, alignment);
    put_everything(&w);
    for (size_t i = 0; i < DG_COUNT(tensor); i++) {
        tensor[i].bytes = dg_dtype_bytes(tensor[i].type, dg_tensor_count(&tensor[i]));
        memset(data[i], (int)i + 1, sizeof data[i]);
        dg_gguf_put_tensor(&w, &tensor[i]);
    }
    uint64_t bytes = dg_gguf_writer_bytes(&w);
    dg_gguf_writer_open(&w, dg_test_in_root("t.gguf"));
    for (size_t i = 0; i < DG_COUNT(tensor); i++) /* the second one piece by piece */
        for (size_t at = 0, n = i == 1 ? 100 : tensor[i].bytes; at < tensor[i].bytes; at += n)
            dg_gguf_write_part(&w, data[i], n < tensor[i].bytes - at ? n : tensor[i].bytes - at);
    ck_assert_msg(dg_gguf_writer_close(&w, &err) == DGEMMA_OK, "%s", err.msg);

    dg_file_map map;
    dg_gguf g;
    ck_assert_int_eq(dg_file_map_open(&map, dg_test_in_root("t.gguf"), &err), DGEMMA_OK);
    ck_assert_msg(dg_gguf_parse(&g, map.data, map.size, "t", &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_uint_eq(map.size, bytes);
    ck_assert_int_eq(g.version, 3);
    check_everything(&g);
    ck_assert_uint_eq(g.n_tensor, 3);
    ck_assert_str_eq(g.tensor[0].name, "a");
    for (size_t i = 0; i < DG_COUNT(tensor); i++) {
        const dg_tensor *got = dg_gguf_tensor(&g, tensor[i].name), *want = &tensor[i];
        ck_assert(got && got->type == want->type && got->n_dim == want->n_dim);
        ck_assert_int_eq(memcmp(got->shape, want->shape, (size_t)want->n_dim * sizeof(int64_t)), 0);
        ck_assert_uint_eq(got->bytes, want->bytes);
        ck_assert_int_eq(memcmp(got->data, data[i], got->bytes), 0);
        size_t at = (size_t)((const unsigned char *)got->data - map.data);
        ck_assert_uint_eq(at % (alignment ? alignment : 32), 0);
    }
    dg_gguf_clear(&g);
    dg_file_map_close(&map);
}

START_TEST(what_is_written_is_read)
{
    round_trip(0);
    round_trip(1);
    round_trip(8);
    round_trip(4096);
}
END_TEST

/* Every value of a file, written into another as it is. */
START_TEST(values_are_copied)
{
    dgemma_error err = {0};
    dg_gguf_writer w;
    dg_file_map map;
    dg_gguf g;
    for (int turn = 0; turn < 2; turn++) {
        dg_gguf_writer_init(&w, 0);
        if (turn == 0)
            put_everything(&w);
        for (size_t i = 0; turn == 1 && i < g.n_value; i++)
            dg_gguf_put_copy(&w, &g.value[i]);
        dg_gguf_writer_open(&w, dg_test_in_root(turn ? "u.gguf" : "t.gguf"));
        ck_assert_msg(dg_gguf_writer_close(&w, &err) == DGEMMA_OK, "%s", err.msg);
        if (turn) {
            dg_gguf_clear(&g);
            dg_file_map_close(&map);
        }
        dgemma_status st =
            dg_file_map_open(&map, dg_test_in_root(turn ? "u.gguf" : "t.gguf"), &err);
        st = st ? st : dg_gguf_parse(&g, map.data, map.size, "t", &err);
        ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
        check_everything(&g);
    }
    dg_gguf_clear(&g);
    dg_file_map_close(&map);
}
END_TEST

START_TEST(writer_holds_data_to_what_was_announced)
{
    dgemma_error err = {0};
    dg_tensor t = {.name = "a", .type = DG_F32, .n_dim = 1, .shape = {4}};
    dg_gguf_writer w;
    for (int turn = 0; turn < 3; turn++) {
        dg_gguf_writer_init(&w, 0);
        dg_gguf_put_tensor(&w, &t);
        dg_gguf_writer_open(&w, dg_test_in_root("t.gguf"));
        if (turn == 1)
            dg_gguf_write_data(&w, "12345678", 8);
        if (turn == 2)
            for (int i = 0; i < 2; i++)
                dg_gguf_write_data(&w, "1234567812345678", 16);
        ck_assert_int_eq(dg_gguf_writer_close(&w, &err), DGEMMA_E_INTERNAL);
        ck_assert(!dg_file_exists(dg_test_in_root("t.gguf")));
    }
    dg_gguf_writer_init(&w, 0);
    dg_gguf_writer_open(&w, dg_test_in_root("no/such/folder"));
    ck_assert_int_eq(dg_gguf_writer_close(&w, &err), DGEMMA_E_IO);
}
END_TEST

/* ---- files put together by hand ---- */

static unsigned char image[4096];
static size_t n_image;

static void bytes(const void *data, size_t n)
{
    ck_assert_uint_le(n_image + n, sizeof image);
    memcpy(image + n_image, data, n);
    n_image += n;
}

static void number(uint64_t v, int n)
{
    for (int i = 0; i < n; i++) {
        unsigned char b = (unsigned char)(v >> 8 * i);
        bytes(&b, 1);
    }
}

static void text(const char *s)
{
    number(strlen(s), 8);
    bytes(s, strlen(s));
}

static void begin(uint64_t n_tensor, uint64_t n_value)
{
    n_image = 0;
    bytes("GGUF", 4);
    number(3, 4);
    number(n_tensor, 8);
    number(n_value, 8);
}

static void tensor(const char *name, int type, uint64_t n, uint64_t offset)
{
    text(name);
    number(1, 4);
    number(n, 8);
    number((uint64_t)type, 4);
    number(offset, 8);
}

static void pad(size_t extra)
{
    while (n_image % 32)
        number(0, 1);
    for (size_t i = 0; i < extra; i++)
        number(0, 1);
}

/* Parses a copy that ends where its memory ends, so that a sanitizer sees a byte too far. */
static dgemma_status parse(dgemma_error *err)
{
    unsigned char *copy = dg_malloc(n_image);
    memcpy(copy, image, n_image);
    dg_gguf g;
    dgemma_status st = dg_gguf_parse(&g, copy, n_image, "f", err);
    if (st)
        ck_assert(!g.value && !g.tensor && !g.names);
    dg_gguf_clear(&g);
    dg_free(copy);
    return st;
}

static void expect(dgemma_status status, const char *said)
{
    dgemma_error err = {0};
    dgemma_status st = parse(&err);
    ck_assert_msg(st == status, "status %d: %s", st, err.msg);
    ck_assert_msg(!st || strstr(err.msg, said), "\"%s\" does not say \"%s\"", err.msg, said);
}

START_TEST(headers)
{
    begin(0, 0);
    expect(DGEMMA_OK, "");
    image[4] = 2;
    expect(DGEMMA_OK, "");
    image[4] = 1;
    expect(DGEMMA_E_UNSUPPORTED, "version 1;");
    image[4] = 0;
    image[7] = 3;
    expect(DGEMMA_E_UNSUPPORTED, "big-endian");
    begin(0, 0);
    image[0] = 'X';
    expect(DGEMMA_E_FORMAT, "not a GGUF file");
    begin(UINT64_MAX, 0);
    expect(DGEMMA_E_FORMAT, "18446744073709551615 tensors; at most 0 fit");
    begin(0, UINT64_MAX);
    expect(DGEMMA_E_FORMAT, "18446744073709551615 keys");
    begin(0, 1 << 20);
    expect(DGEMMA_E_FORMAT, "keys");
}
END_TEST

START_TEST(cut_at_every_byte)
{
    begin(1, 3);
    text("a");
    number(DG_GGUF_ARRAY, 4);
    number(DG_GGUF_STRING, 4);
    number(2, 8);
    text("x");
    text("yz");
    text("b");
    number(DG_GGUF_F64, 4);
    number(7, 8);
    text("c");
    number(DG_GGUF_ARRAY, 4);
    number(DG_GGUF_ARRAY, 4);
    number(1, 8);
    number(DG_GGUF_U16, 4);
    number(2, 8);
    number(5, 4);
    tensor("w", 0, 8, 0);
    pad(32);
    expect(DGEMMA_OK, "");
    for (; n_image > 0;) {
        n_image--;
        expect(DGEMMA_E_FORMAT, "f: ");
    }
}
END_TEST

START_TEST(values)
{
    begin(0, 2);
    for (int i = 0; i < 2; i++) {
        text("twice");
        number(DG_GGUF_U8, 4);
        number(1, 1);
    }
    expect(DGEMMA_E_FORMAT, "the key twice stands there twice");
    begin(0, 1);
    text("a");
    number(13, 4);
    number(0, 8);
    expect(DGEMMA_E_FORMAT, "a value of type 13");
    begin(0, 1);
    text("a");
    number(DG_GGUF_ARRAY, 4);
    number(99, 4);
    number(0, 8);
    expect(DGEMMA_E_FORMAT, "a value of type 99");
    begin(0, 1);
    text("");
    number(DG_GGUF_U32, 4);
    number(0, 4);
    expect(DGEMMA_E_FORMAT, "a key of 0 bytes");

    static const int types[] = {DG_GGUF_U8, DG_GGUF_U64, DG_GGUF_STRING, DG_GGUF_ARRAY};
    static const uint64_t counts[] = {UINT64_MAX, UINT64_MAX / 8 + 1, 1ull << 61, 1000000};
    for (size_t i = 0; i < DG_COUNT(types); i++)
        for (size_t k = 0; k < DG_COUNT(counts); k++) {
            begin(0, 1);
            text("a");
            number(DG_GGUF_ARRAY, 4);
            number((uint64_t)types[i], 4);
            number(counts[k], 8);
            expect(DGEMMA_E_FORMAT, "the file ends inside");
        }
    begin(0, 1);
    text("a");
    number(DG_GGUF_STRING, 4);
    number(UINT64_MAX, 8);
    expect(DGEMMA_E_FORMAT, "the file ends inside a string");
    begin(0, 1);
    number(UINT64_MAX - 7, 8);
    number(0, 8);
    expect(DGEMMA_E_FORMAT, "the file ends inside a key");

    begin(0, 1);
    text("deep");
    number(DG_GGUF_ARRAY, 4);
    for (int i = 0; i < 40; i++) {
        number(DG_GGUF_ARRAY, 4);
        number(1, 8);
    }
    expect(DGEMMA_E_LIMIT, "more than 4 deep");
}
END_TEST

START_TEST(alignments)
{
    static const uint32_t bad[] = {0, 3, 33, 1u << 21, UINT32_MAX};
    for (size_t i = 0; i < DG_COUNT(bad); i++) {
        begin(0, 1);
        text("general.alignment");
        number(DG_GGUF_U32, 4);
        number(bad[i], 4);
        expect(DGEMMA_E_FORMAT, "general.alignment");
    }
    begin(0, 1);
    text("general.alignment");
    number(DG_GGUF_STRING, 4);
    text("32");
    expect(DGEMMA_E_FORMAT, "general.alignment");
}
END_TEST

static void one_tensor(const char *name, int n_dim, const uint64_t *size, int type, uint64_t offset)
{
    begin(1, 0);
    text(name);
    number((uint64_t)n_dim, 4);
    for (int i = 0; i < n_dim; i++)
        number(size[i], 8);
    number((uint64_t)type, 4);
    number(offset, 8);
    pad(64);
}

START_TEST(tensors)
{
    const uint64_t small[] = {2, 2, 2, 2, 2}, zero[] = {4, 0}, huge[] = {1ull << 62, 8, 1ull << 40},
                   negative[] = {UINT64_MAX}, wide[] = {33}, long_row[] = {INT64_MAX};
    one_tensor("w", 4, small, 0, 0);
    expect(DGEMMA_OK, "");
    one_tensor("w", 5, small, 0, 0);
    expect(DGEMMA_E_FORMAT, "5 dimensions");
    one_tensor("w", 0, small, 0, 0);
    expect(DGEMMA_E_FORMAT, "0 dimensions");
    one_tensor("w", 2, zero, 0, 0);
    expect(DGEMMA_E_FORMAT, "a dimension of 0");
    one_tensor("w", 1, negative, 0, 0);
    expect(DGEMMA_E_FORMAT, "a dimension of 18446744073709551615");
    one_tensor("w", 3, huge, 0, 0);
    expect(DGEMMA_E_FORMAT, "overflows");
    one_tensor("w", 3, huge, 8, 0);
    expect(DGEMMA_E_FORMAT, "overflows");
    one_tensor("w", 1, long_row, 0, 0);
    expect(DGEMMA_E_FORMAT, "overflows");
    one_tensor("w", 1, wide, 8, 0);
    expect(DGEMMA_E_FORMAT, "rows of 33 values, wanted a multiple of 32 for Q8_0");
    one_tensor("w", 1, small, 15, 0);
    expect(DGEMMA_E_UNSUPPORTED, "type Q8_K (15)");
    one_tensor("w", 1, small, 42, 0);
    expect(DGEMMA_E_UNSUPPORTED, "type Q2_0 (42)");
    one_tensor("w", 1, small, 4, 0);
    expect(DGEMMA_E_UNSUPPORTED, "type unknown (4)");
    one_tensor("w", 1, small, 1000, 0);
    expect(DGEMMA_E_UNSUPPORTED, "type unknown (1000)");
    one_tensor("w", 1, small, 0, 8);
    expect(DGEMMA_E_FORMAT, "wanted a multiple of 32");
    one_tensor("w", 1, small, 0, 64);
    expect(DGEMMA_E_FORMAT, "the file is truncated");
    one_tensor("w", 1, small, 0, UINT64_MAX - 31);
    expect(DGEMMA_E_FORMAT, "the file is truncated");
    one_tensor("", 1, small, 0, 0);
    expect(DGEMMA_E_FORMAT, "a name of 0 bytes");
    char name[301];
    memset(name, 'n', 300);
    name[300] = '\0';
    one_tensor(name, 1, small, 0, 0);
    expect(DGEMMA_E_FORMAT, "a name of 300 bytes");
    one_tensor("n?n", 1, small, 0, 0);
    *(char *)memchr(image, '?', n_image) = '\0';
    expect(DGEMMA_E_FORMAT, "no zero byte");

    begin(2, 0);
    tensor("w", 0, 8, 0);
    tensor("w", 0, 8, 32);
    pad(64);
    expect(DGEMMA_E_FORMAT, "tensor w is there twice");
    begin(2, 0);
    tensor("v", 0, 9, 0);
    tensor("w", 0, 8, 32);
    pad(64);
    expect(DGEMMA_E_FORMAT, "tensors v and w overlap");
    begin(2, 0);
    tensor("v", 0, 8, 32);
    tensor("w", 0, 8, 0);
    pad(64);
    expect(DGEMMA_OK, "");
}
END_TEST

START_TEST(memory_runs_out)
{
    dgemma_error err = {0};
    dg_gguf g;
    begin(1, 1);
    text("a");
    number(DG_GGUF_U8, 4);
    number(1, 1);
    tensor("w", 0, 8, 0);
    pad(32);
    for (long n = 1;; n++) {
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_gguf_parse(&g, image, n_image, "f", &err);
        if (!dg_test_alloc_done()) {
            ck_assert_int_eq(st, DGEMMA_OK);
            break;
        }
        ck_assert_int_eq(st, DGEMMA_E_NOMEM);
    }
    dg_gguf_clear(&g);

    for (long n = 1;; n++) {
        dg_gguf_model m;
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_gguf_model_open(&m, "tests/fixtures/gguf/tiny.gguf", &err);
        bool hit = dg_test_alloc_done();
        ck_assert_int_eq(st, hit ? DGEMMA_E_NOMEM : DGEMMA_OK);
        dg_gguf_model_close(&m);
        if (!hit)
            break;
    }
}
END_TEST

START_TEST(shard_names)
{
    int no, count;
    ck_assert(dg_gguf_is_shard("a/b-00002-of-00013.gguf", &no, &count) && no == 2 && count == 13);
    ck_assert(dg_gguf_is_shard("-00001-of-00001.gguf", &no, &count));
    ck_assert(!dg_gguf_is_shard("b-0002-of-00013.gguf", &no, &count));
    ck_assert(!dg_gguf_is_shard("b-0000x-of-00013.gguf", &no, &count));
    ck_assert(!dg_gguf_is_shard("b.gguf", &no, &count));
    ck_assert(!dg_gguf_is_shard("", &no, &count));
}
END_TEST

Suite *gguf_suite(void)
{
    Suite *s = suite_create("gguf");
    TCase *c = tcase_create("files");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, what_is_written_is_read);
    tcase_add_test(c, values_are_copied);
    tcase_add_test(c, writer_holds_data_to_what_was_announced);
    suite_add_tcase(s, c);

    TCase *hostile = tcase_create("hostile");
    tcase_add_test(hostile, headers);
    tcase_add_test(hostile, cut_at_every_byte);
    tcase_add_test(hostile, values);
    tcase_add_test(hostile, alignments);
    tcase_add_test(hostile, tensors);
    tcase_add_test(hostile, memory_runs_out);
    tcase_add_test(hostile, shard_names);
    suite_add_tcase(s, hostile);
    return s;
}
