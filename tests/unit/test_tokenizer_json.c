/* tokenizer.json: what is read, and that everything else is refused by name. */
#include "suites.h"
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "base/file.h"
#include "support/alloc_fail.h"
#include "text/tokenizer.h"

#define REPLACE     "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}"
#define UNREPLACE   "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"}"
#define SEQUENCE(x) "{\"type\":\"Sequence\",\"decoders\":[" x "]}"
#define BYTES       "{\"type\":\"ByteFallback\"}"
#define FUSE        "{\"type\":\"Fuse\"}"
#define SPLIT       "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"invert\":false}"
#define BOS         "{\"SpecialToken\":{\"id\":\"<bos>\",\"type_id\":0}}"
#define TEXT        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define TEMPLATE(x) "{\"type\":\"TemplateProcessing\",\"single\":[" x "]}"

/* The parts of a file; one that is not given is the good one. */
typedef struct parts {
    const char *normalizer, *pre_tokenizer, *decoder, *post_processor, *added;
    const char *type, *model;   /* "…" and further members of the model */
    const char *vocab, *merges; /* vocab follows the byte tokens, ids 0 … 255 */
} parts;

static const parts good = {
    .normalizer = REPLACE,
    .pre_tokenizer = SPLIT,
    .decoder = SEQUENCE(UNREPLACE "," BYTES "," FUSE),
    .post_processor = TEMPLATE(BOS "," TEXT),
    .added =
        "[{\"id\":259,\"content\":\"<bos>\",\"special\":true},{\"id\":260,\"content\":\"<t>\"}]",
    .type = "\"BPE\"",
    .model = "\"byte_fallback\":true",
    .vocab = "\"a\":256,\"\u2581\":257,\"\u2581a\":258,\"<bos>\":259",
    .merges = "[[\"\u2581\",\"a\"]]",
};

static void put(dg_buf *out, const char *name, const char *value, const char *standard)
{
    dg_buf_puts(out, name);
    dg_buf_puts(out, value ? value : standard);
}

static void write_json(dg_buf *out, const parts *p)
{
    dg_buf_init(out, 1 << 16);
    put(out, "{\"normalizer\":", p->normalizer, good.normalizer);
    put(out, ",\"pre_tokenizer\":", p->pre_tokenizer, good.pre_tokenizer);
    put(out, ",\"decoder\":", p->decoder, good.decoder);
    put(out, ",\"post_processor\":", p->post_processor, good.post_processor);
    put(out, ",\"added_tokens\":", p->added, good.added);
    put(out, ",\"model\":{\"type\":", p->type, good.type);
    put(out, ",", p->model, good.model);
    dg_buf_puts(out, ",\"vocab\":{");
    for (int b = 0; b < 256; b++) {
        char entry[24];
        snprintf(entry, sizeof entry, "\"<0x%02X>\":%d,", b, b);
        dg_buf_puts(out, entry);
    }
    put(out, "", p->vocab, good.vocab);
    put(out, "},\"merges\":", p->merges, good.merges);
    dg_buf_puts(out, "}}");
}

static dgemma_status load(dg_tokenizer **out, const parts *p, dgemma_error *err)
{
    dg_buf json;
    write_json(&json, p);
    dgemma_status st = dg_tokenizer_from_json(out, json.data, json.len, "t.json", err);
    dg_buf_clear(&json);
    return st;
}

START_TEST(reads_what_it_knows)
{
    static const parts files[] = {
        {0},
        {.merges = "[\"\u2581 a\"]"},
        {.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[" REPLACE "]}"},
        {.pre_tokenizer = "null", .post_processor = "null"},
        {.decoder = SEQUENCE(UNREPLACE "," BYTES), .post_processor = TEMPLATE(TEXT)},
        {.model = "\"byte_fallback\":true,\"dropout\":0.0,\"continuing_subword_prefix\":\"\","
                  "\"end_of_word_suffix\":null,\"ignore_merges\":false,\"unk_token\":null"},
    };
    for (size_t i = 0; i < DG_COUNT(files); i++) {
        dgemma_error err;
        dg_tokenizer *t;
        ck_assert_msg(load(&t, &files[i], &err) == DGEMMA_OK, "%zu: %s", i, err.msg);
        ck_assert_int_eq(dg_tokenizer_count(t), 261);
        ck_assert_int_eq(dg_tokenizer_added_id(t, "<t>"), 260); /* only in added_tokens */
        ck_assert(dg_tokenizer_is_special(t, 259));
        ck_assert(!dg_tokenizer_is_special(t, 260));
        dg_tokens tokens;
        dg_tokens_init(&tokens, 100);
        ck_assert_int_eq(
            dg_tokenizer_encode(t, "a a<t>", 6, DG_ENCODE_ADDED | DG_ENCODE_BOS, &tokens, &err),
            DGEMMA_OK);
        ck_assert_uint_eq(tokens.n, 4);
        ck_assert_mem_eq(tokens.ids, ((const int32_t[]){259, 256, 258, 260}), 4 * sizeof(int32_t));
        dg_tokens_clear(&tokens);
        dg_tokenizer_free(t);
    }
}
END_TEST

START_TEST(keeps_spaces_without_normalizer)
{
    static const parts file = {.normalizer = "null",
                               .pre_tokenizer = "null",
                               .decoder = SEQUENCE(BYTES "," FUSE),
                               .vocab = "\"a\":256,\" \":257,\" a\":258,\"<bos>\":259",
                               .merges = "[[\" \",\"a\"]]"};
    dgemma_error err;
    dg_tokenizer *t;
    ck_assert_msg(load(&t, &file, &err) == DGEMMA_OK, "%s", err.msg);
    dg_tokens tokens;
    dg_tokens_init(&tokens, 100);
    ck_assert_int_eq(dg_tokenizer_encode(t, " a", 2, 0, &tokens, &err), DGEMMA_OK);
    ck_assert_uint_eq(tokens.n, 1);
    ck_assert_int_eq(tokens.ids[0], 258);
    dg_tokens_clear(&tokens);
    dg_tokenizer_free(t);
}
END_TEST

START_TEST(refuses_what_it_does_not_know)
{
    static const struct {
        parts file;
        dgemma_status status;
        const char *reason;
    } cases[] = {
        {{.normalizer = "{\"type\":\"NFKC\"}"}, DGEMMA_E_UNSUPPORTED, "normalizer is NFKC"},
        {{.normalizer = "{\"type\":\"a\\nb\"}"}, DGEMMA_E_UNSUPPORTED, "normalizer is a?b"},
        {{.normalizer = "[]"}, DGEMMA_E_UNSUPPORTED, "without a type"},
        {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[" REPLACE ",{\"type\":\"NFC\"}]}"},
         DGEMMA_E_UNSUPPORTED,
         "normalizer is Sequence"},
        {{.normalizer = UNREPLACE}, DGEMMA_E_UNSUPPORTED, "normalizer is Replace"},
        {{.normalizer = "null"}, DGEMMA_E_UNSUPPORTED, "pre_tokenizer is Split"},
        {{.normalizer = "null", .pre_tokenizer = "null"}, DGEMMA_E_UNSUPPORTED, "decoder"},
        {{.pre_tokenizer = "{\"type\":\"ByteLevel\"}"}, DGEMMA_E_UNSUPPORTED, "ByteLevel"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\".\"}}"},
         DGEMMA_E_UNSUPPORTED,
         "Split"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"invert\":true}"},
         DGEMMA_E_UNSUPPORTED,
         "Split"},
        {{.decoder = "null"}, DGEMMA_E_UNSUPPORTED, "decoder is null"},
        {{.decoder = "{\"type\":\"WordPiece\"}"}, DGEMMA_E_UNSUPPORTED, "WordPiece"},
        {{.decoder = SEQUENCE(BYTES "," FUSE)}, DGEMMA_E_UNSUPPORTED, "ByteFallback"},
        {{.decoder = SEQUENCE(UNREPLACE "," FUSE)}, DGEMMA_E_UNSUPPORTED, "Fuse"},
        {{.decoder = SEQUENCE(UNREPLACE "," BYTES "," FUSE ",{\"type\":\"Strip\"}")},
         DGEMMA_E_UNSUPPORTED,
         "Strip"},
        {{.post_processor = "{\"type\":\"ByteLevel\"}"}, DGEMMA_E_UNSUPPORTED, "post_processor"},
        {{.post_processor = TEMPLATE(TEXT "," BOS)}, DGEMMA_E_UNSUPPORTED, "template"},
        {{.type = "\"Unigram\""}, DGEMMA_E_UNSUPPORTED, "model is Unigram"},
        {{.type = "7"}, DGEMMA_E_UNSUPPORTED, "wanted BPE"},
        {{.model = "\"byte_fallback\":false"}, DGEMMA_E_UNSUPPORTED, "byte_fallback"},
        {{.model = "\"byte_fallback\":true,\"ignore_merges\":true"},
         DGEMMA_E_UNSUPPORTED,
         "ignore_merges"},
        {{.model = "\"byte_fallback\":true,\"dropout\":0.1"}, DGEMMA_E_UNSUPPORTED, "dropout"},
        {{.model = "\"byte_fallback\":true,\"end_of_word_suffix\":\"</w>\""},
         DGEMMA_E_UNSUPPORTED,
         "end_of_word_suffix"},
        {{.added = "[{\"id\":259,\"content\":\"<bos>\",\"lstrip\":true}]"},
         DGEMMA_E_UNSUPPORTED,
         "lstrip"},
        {{.added = "[{\"id\":259,\"content\":\"<bos>\",\"normalized\":true}]"},
         DGEMMA_E_UNSUPPORTED,
         "normalized"},
        {{.added = "[{\"id\":259,\"content\":\"<eos>\"}]"},
         DGEMMA_E_FORMAT,
         "two different pieces"},
        {{.added = "[{\"id\":262,\"content\":\"<eos>\"}]"}, DGEMMA_E_FORMAT, "id 260 has no piece"},
        {{.added = "[{\"id\":260,\"content\":\"a\"}]"}, DGEMMA_E_FORMAT, "have the same piece"},
        {{.added = "[{\"id\":260}]"}, DGEMMA_E_FORMAT, "added token 0"},
        {{.added = "[{\"id\":260,\"content\":\"\"}]"}, DGEMMA_E_LIMIT, "0 bytes"},
        {{.added = "[7]"}, DGEMMA_E_FORMAT, "an id"},
        {{.added = "{}"}, DGEMMA_E_FORMAT, "added_tokens"},
        {{.vocab = "\"a\":255"}, DGEMMA_E_FORMAT, "two different pieces"},
        {{.vocab = "\"a\":256,\"a\":257"}, DGEMMA_E_FORMAT, "duplicate"},
        {{.vocab = "\"a\":-1"}, DGEMMA_E_FORMAT, "an id"},
        {{.vocab = "\"a\":4194304"}, DGEMMA_E_FORMAT, "an id"},
        {{.vocab = "\"a\":9223372036854775807"}, DGEMMA_E_FORMAT, "an id"},
        {{.vocab = "\"a\":4000000"}, DGEMMA_E_FORMAT, "has no piece"},
        {{.vocab = "\"a\":1.5"}, DGEMMA_E_FORMAT, "an id"},
        {{.vocab = "\"a\":\"256\""}, DGEMMA_E_FORMAT, "an id"},
        {{.merges = "{}"}, DGEMMA_E_FORMAT, "model.merges"},
        {{.merges = "[[\"a\"]]"}, DGEMMA_E_FORMAT, "merge 0 is not a pair"},
        {{.merges = "[[\"a\",7]]"}, DGEMMA_E_FORMAT, "merge 0 is not a pair"},
        {{.merges = "[\"aa\"]"}, DGEMMA_E_FORMAT, "merge 0 is not a pair"},
        {{.merges = "[[\"a\",\"a\"]]"}, DGEMMA_E_FORMAT, "merge 0 names"},
        {{.merges = "[[\"\",\"a\"]]"}, DGEMMA_E_FORMAT, "merge 0 names"},
        {{.merges = "[[\"a\",\"b\\u0000\"]]"}, DGEMMA_E_FORMAT, "\\u0000"},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        dgemma_error err;
        dg_tokenizer *t;
        dgemma_status st = load(&t, &cases[i].file, &err);
        ck_assert_msg(st == cases[i].status, "case %zu: status %d", i, st);
        ck_assert_ptr_null(t);
        ck_assert_msg(strstr(err.msg, cases[i].reason) && !strncmp(err.msg, "t.json: ", 8),
                      "case %zu: \"%s\" does not say \"%s\"", i, err.msg, cases[i].reason);
    }
}
END_TEST

START_TEST(refuses_what_is_not_json)
{
    static const char *const files[] = {
        "", "{", "[]", "7", "null", "{}", "{\"model\":{}}", "{\"model\":\xFF}"};
    dgemma_error err;
    dg_tokenizer *t;
    for (size_t i = 0; i < DG_COUNT(files); i++) {
        dgemma_status st = dg_tokenizer_from_json(&t, files[i], strlen(files[i]), "t", &err);
        ck_assert(st == DGEMMA_E_FORMAT || st == DGEMMA_E_UNSUPPORTED);
        ck_assert_ptr_null(t);
    }

    dg_buf json;
    write_json(&json, &(parts){0});
    for (size_t len = 0; len < json.len; len++)
        ck_assert_int_eq(dg_tokenizer_from_json(&t, json.data, len, "t", &err), DGEMMA_E_FORMAT);
    dg_buf_clear(&json);

    dg_buf_init(&json, 1 << 20);
    for (int i = 0; i < 100000; i++)
        dg_buf_puts(&json, "[");
    ck_assert_int_eq(dg_tokenizer_from_json(&t, json.data, json.len, "t", &err), DGEMMA_E_FORMAT);
    dg_buf_clear(&json);
}
END_TEST

/* Allocations that jansson 2.14 makes to parse are left alone: when an object cannot grow, it frees
 * what it does not own. */
START_TEST(survives_without_memory)
{
    dg_buf json;
    write_json(&json, &(parts){0});
    dg_test_fail_alloc_at(LONG_MAX);
    json_t *parsed = json_loadb(json.data, json.len, JSON_REJECT_DUPLICATES, NULL);
    long n_parse = dg_test_alloc_count();
    dg_test_alloc_done();
    json_decref(parsed);

    for (long n = n_parse + 1;; n++) {
        dgemma_error err;
        dg_tokenizer *t;
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_tokenizer_from_json(&t, json.data, json.len, "t", &err);
        bool reached = dg_test_alloc_done();
        dg_tokenizer_free(t);
        ck_assert_int_eq(st, reached ? DGEMMA_E_NOMEM : DGEMMA_OK);
        if (!reached)
            break;
    }
    dg_buf_clear(&json);
}
END_TEST

START_TEST(reads_the_tiny_tokenizer)
{
    static const struct {
        const char *name;
        int32_t id;
    } known[] = {
        {"<pad>", 0},   {"<eos>", 1},      {"<bos>", 2},      {"<unk>", 3},       {"<|turn>", 6},
        {"<turn|>", 7}, {"<|image>", 378}, {"<image|>", 379}, {"<|image|>", 380},
    };
    static const char text[] = "<|turn>user\nThe weather in K\u00F6ln is fine, you know?<turn|>";
    dg_buf json, back;
    dgemma_error err;
    dg_tokenizer *t;
    dg_buf_init(&json, 1 << 20);
    dg_buf_init(&back, 1 << 20);
    ck_assert_msg(dg_file_read(&json, "tests/fixtures/tiny_tokenizer.json", &err) == DGEMMA_OK,
                  "%s", err.msg);
    ck_assert_msg(dg_tokenizer_from_json(&t, json.data, json.len, "tiny", &err) == DGEMMA_OK, "%s",
                  err.msg);
    ck_assert_int_eq(dg_tokenizer_count(t), 384);
    for (size_t i = 0; i < DG_COUNT(known); i++) {
        ck_assert_int_eq(dg_tokenizer_added_id(t, known[i].name), known[i].id);
        ck_assert(dg_tokenizer_is_special(t, known[i].id));
    }
    ck_assert_int_ge(dg_tokenizer_added_id(t, "<|channel>"), 0);
    ck_assert_int_ge(dg_tokenizer_added_id(t, "<channel|>"), 0);
    ck_assert_int_ge(dg_tokenizer_added_id(t, "<|think|>"), 0);

    dg_tokens tokens;
    dg_tokens_init(&tokens, 1000);
    ck_assert_int_eq(dg_tokenizer_encode(t, text, strlen(text), DG_ENCODE_ADDED, &tokens, &err), 0);
    ck_assert_int_eq(dg_tokenizer_decode(t, tokens.ids, tokens.n, true, &back, &err), 0);
    ck_assert_str_eq(back.data, text);
    ck_assert_uint_lt(tokens.n, strlen(text) * 2 / 3);
    dg_tokens_clear(&tokens);
    dg_tokenizer_free(t);
    dg_buf_clear(&json);
    dg_buf_clear(&back);
}
END_TEST

Suite *tokenizer_json_suite(void)
{
    Suite *s = suite_create("tokenizer_json");
    TCase *c = tcase_create("core");
    tcase_add_test(c, reads_what_it_knows);
    tcase_add_test(c, keeps_spaces_without_normalizer);
    tcase_add_test(c, refuses_what_it_does_not_know);
    tcase_add_test(c, refuses_what_is_not_json);
    tcase_add_test(c, survives_without_memory);
    tcase_add_test(c, reads_the_tiny_tokenizer);
    suite_add_tcase(s, c);
    return s;
}
