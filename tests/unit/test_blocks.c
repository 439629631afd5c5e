/* Every block type against the values that ggml's own code gives, and the Q8_0 quantiser. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/rng.h"
#include "suites.h"
#include "tensor/blocks.h"

static bool find_type(dg_dtype *out, const char *name)
{
    for (int t = 0; t < DG_DTYPE_COMPUTE; t++)
        if (strcmp(dg_dtype_name((dg_dtype)t), name) == 0) {
            *out = (dg_dtype)t;
            return true;
        }
    return false;
}

static unsigned char *from_hex(const char *hex, size_t *n)
{
    *n = strlen(hex) / 2;
    unsigned char *out = dg_malloc(*n + 1);
    for (size_t i = 0; i < *n; i++) {
        unsigned value;
        ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &value), 1);
        out[1 + i] = (unsigned char)value; /* off by one: no alignment is needed */
    }
    return out;
}

static void check_line(const json_t *line, dg_dtype type)
{
    const char *name = dg_dtype_name(type);
    const json_t *values = json_object_get(line, "values");
    size_t n = json_array_size(values), n_byte;
    size_t block = (size_t)json_integer_value(json_object_get(line, "block_size"));
    unsigned char *bytes = from_hex(json_string_value(json_object_get(line, "hex")), &n_byte);
    float *got = dg_array(n, sizeof *got);
    ck_assert_uint_eq(dg_dtype_block(type), block);
    ck_assert_uint_eq(dg_dtype_bytes(type, n), n_byte);
    ck_assert_uint_eq(n % block, 0);
    dg_widen(got, bytes + 1, type, n);
    for (size_t i = 0; i < n; i++) {
        float want = (float)json_number_value(json_array_get(values, i));
        ck_assert_msg(got[i] == want, "%s[%zu] is %.9g, wanted %.9g", name, i, (double)got[i],
                      (double)want);
    }
    dg_free(got);
    dg_free(bytes);
}

START_TEST(values_are_those_of_ggml)
{
    FILE *f = fopen("tests/data/gguf/dequant_vectors.jsonl", "r");
    ck_assert_ptr_nonnull(f);
    bool seen[DG_DTYPE_COMPUTE] = {[DG_F32] = true};
    json_error_t bad;
    for (json_t *line; (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, &bad)); json_decref(line)) {
        dg_dtype type;
        if (!find_type(&type, json_string_value(json_object_get(line, "type"))))
            continue;
        check_line(line, type);
        seen[type] = true;
    }
    fclose(f);
    for (int t = 0; t < DG_DTYPE_GGUF; t++)
        ck_assert_msg(seen[t], "no vectors for %s", dg_dtype_name((dg_dtype)t));
}
END_TEST

static uint64_t digest_of(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001B3);
    return h;
}

/* 64 blocks of each type, with scales that are zero, subnormal and negative: to the bit. */
static void check_digests(const json_t *line, dg_dtype type)
{
    const json_t *blocks = json_object_get(line, "hex"), *digests = json_object_get(line, "digest");
    ck_assert_uint_eq(json_array_size(blocks), 64);
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        float got[256];
        char digest[17];
        size_t n_byte, n = dg_dtype_block(type);
        unsigned char *bytes = from_hex(json_string_value(json_array_get(blocks, i)), &n_byte);
        ck_assert_uint_eq(dg_dtype_bytes(type, n), n_byte);
        dg_widen(got, bytes + 1, type, n);
        snprintf(digest, sizeof digest, "%016" PRIx64, digest_of(got, n * sizeof *got));
        ck_assert_msg(strcmp(digest, json_string_value(json_array_get(digests, i))) == 0,
                      "block %zu of %s", i, dg_dtype_name(type));
        dg_free(bytes);
    }
}

START_TEST(few_bits_are_those_of_gguf_tools)
{
    FILE *f = fopen("tests/data/gguf/low_bit_vectors.jsonl", "r");
    ck_assert_ptr_nonnull(f);
    int n_type = 0;
    json_error_t bad;
    for (json_t *line; (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, &bad)); json_decref(line)) {
        dg_dtype type;
        ck_assert(find_type(&type, json_string_value(json_object_get(line, "type"))));
        check_digests(line, type);
        n_type++;
    }
    fclose(f);
    ck_assert_int_eq(n_type, 11);
}
END_TEST

/* Any bytes are a block: nothing traps, and widening in pieces gives the same. */
START_TEST(any_bytes_in_any_pieces)
{
    enum { N = 1024 };
    static unsigned char bytes[4 * N];
    static float whole[N], piece[N];
    dg_rng_key key = {.seed = 5};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)dg_rng_below(&key, (uint32_t)i, 256);
    for (int t = DG_DTYPE_FLOAT; t < DG_DTYPE_COMPUTE; t++) {
        dg_dtype type = (dg_dtype)t;
        size_t block = dg_dtype_block(type);
        dg_widen(whole, bytes, type, N);
        for (size_t at = 0; at < N; at += block)
            dg_widen(piece + at, bytes + dg_dtype_bytes(type, at), type, block);
        ck_assert_msg(memcmp(whole, piece, sizeof whole) == 0, "%s", dg_dtype_name(type));
    }
}
END_TEST

START_TEST(q8_0_is_the_nearest)
{
    enum { N = 320 };
    float in[N], out[N];
    unsigned char stored[N / 32 * 34];
    dg_rng_key key = {.seed = 6};
    for (int i = 0; i < N; i++)
        in[i] = (float)(dg_rng_uniform(&key, (uint32_t)i) - 0.5) * (float)(1 << i / 32);
    memset(in + 64, 0, 32 * sizeof *in);
    dg_blocks_narrow_q8_0(stored, in, N);
    dg_widen(out, stored, DG_Q8_0, N);
    for (int b = 0; b < N; b += 32) {
        float largest = 0;
        for (int i = b; i < b + 32; i++)
            largest = fmaxf(largest, fabsf(in[i]));
        /* half a step, and the rounding of d to a half on 127 steps */
        for (int i = b; i < b + 32; i++)
            ck_assert_float_le(fabsf(out[i] - in[i]), largest / 127 * 0.5f + largest * 0x1p-11f);
    }
    for (int i = 64; i < 96; i++)
        ck_assert_float_eq(out[i], 0);
}
END_TEST

Suite *blocks_suite(void)
{
    Suite *s = suite_create("blocks");
    TCase *c = tcase_create("blocks");
    tcase_add_test(c, values_are_those_of_ggml);
    tcase_add_test(c, few_bits_are_those_of_gguf_tools);
    tcase_add_test(c, any_bytes_in_any_pieces);
    tcase_add_test(c, q8_0_is_the_nearest);
    suite_add_tcase(s, c);
    return s;
}
