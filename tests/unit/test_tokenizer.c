/* The tokenizer: Gemma's vocabulary against recorded ids and a plain BPE, small vocabularies made
 * by hand. */
#include "suites.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/common.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "gemma_vocabulary.h"
#include "support/alloc_fail.h"
#include "support/sanitized.h"
#include "text/tokenizer.h"

#define VECTORS "tests/data/tokenizer/test_vectors/"

enum { TURN = 105, TURN_END = 106 };

/* Made once, in the process that starts the tests. */
static gemma_vocabulary gemma;
static dg_tokenizer *gemma_tokenizer;

static void gemma_setup(void)
{
    dgemma_error err;
    gemma_vocabulary_init(&gemma);
    dg_vocabulary v = gemma_vocabulary_view(&gemma);
    ck_assert_msg(dg_tokenizer_create(&gemma_tokenizer, &v, &err) == DGEMMA_OK, "%s", err.msg);
}

static void gemma_teardown(void)
{
    dg_tokenizer_free(gemma_tokenizer);
    gemma_vocabulary_clear(&gemma);
}

/* ---- helpers ---- */

static void encode(const dg_tokenizer *t, const char *text, size_t len, unsigned flags,
                   dg_tokens *out)
{
    dgemma_error err;
    dg_tokens_init(out, 1 << 24);
    ck_assert_msg(dg_tokenizer_encode(t, text, len, flags, out, &err) == DGEMMA_OK, "%s", err.msg);
}

static void decode(const dg_tokenizer *t, const dg_tokens *tokens, bool print_special, dg_buf *out)
{
    dgemma_error err;
    dg_buf_init(out, 1 << 26);
    ck_assert_msg(dg_tokenizer_decode(t, tokens->ids, tokens->n, print_special, out, &err) ==
                      DGEMMA_OK,
                  "%s", err.msg);
}

static void expect_ids(const char *text, size_t len, const dg_tokens *got, const int32_t *want,
                       size_t n)
{
    ck_assert_msg(got->n == n, "\"%.*s\": %zu tokens, wanted %zu", (int)len, text, got->n, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(got->ids[i] == want[i], "\"%.*s\": token %zu is %d, wanted %d", (int)len,
                      text, i, got->ids[i], want[i]);
}

static void expect_round_trip(const dg_tokenizer *t, const char *text, size_t len, unsigned flags)
{
    dg_tokens tokens;
    dg_buf back;
    encode(t, text, len, flags, &tokens);
    decode(t, &tokens, true, &back);
    ck_assert_msg(back.len == len && (!len || memcmp(back.data, text, len) == 0),
                  "\"%.*s\" came back as \"%.*s\"", (int)len, text, (int)back.len,
                  back.len ? back.data : "");
    dg_tokens_clear(&tokens);
    dg_buf_clear(&back);
}

/* Ids of the text are `want`, and give the text back. */
static void expect_vector(const dg_tokenizer *t, const char *text, size_t len, const int32_t *want,
                          size_t n)
{
    dg_tokens tokens;
    encode(t, text, len, DG_ENCODE_ADDED, &tokens);
    expect_ids(text, len, &tokens, want, n);
    dg_tokens_clear(&tokens);
    if (!memmem(text, len, "\u2581", 3)) /* which would come back as a space */
        expect_round_trip(t, text, len, DG_ENCODE_ADDED);
}

static uint32_t draw(uint32_t *position, uint32_t n)
{
    static const dg_rng_key key = {.seed = 1};
    return dg_rng_below(&key, (*position)++, n);
}

/* ---- Gemma's vocabulary ---- */

static void check_vector_line(const dg_tokenizer *t, const char *line, size_t len)
{
    json_t *vector = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
    const json_t *text = json_object_get(vector, "text"), *ids = json_object_get(vector, "ids");
    ck_assert(json_is_string(text) && json_is_array(ids));
    int32_t want[4096];
    size_t n = json_array_size(ids);
    ck_assert_uint_le(n, DG_COUNT(want));
    for (size_t i = 0; i < n; i++)
        want[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    expect_vector(t, json_string_value(text), json_string_length(text), want, n);
    json_decref(vector);
}

static int check_vector_file(const dg_tokenizer *t, const char *path)
{
    dg_buf file;
    dgemma_error err;
    dg_buf_init(&file, 1 << 20);
    ck_assert_msg(dg_file_read(&file, path, &err) == DGEMMA_OK, "%s", err.msg);
    int n = 0;
    for (char *line = file.data, *end; (end = strchr(line, '\n')); line = end + 1, n++)
        check_vector_line(t, line, (size_t)(end - line));
    dg_buf_clear(&file);
    return n;
}

/* Texts stand between lines of a fixed text, ids in one line each. */
static void check_llama_cpp_files(const dg_tokenizer *t)
{
    static const char between[] = "\n__ggml_vocab_test__\n";
    dg_buf in, out;
    dg_buf_init(&in, 1 << 20);
    dg_buf_init(&out, 1 << 20);
    ck_assert_int_eq(dg_file_read(&in, VECTORS "llama_cpp_gemma4.inp", NULL), DGEMMA_OK);
    ck_assert_int_eq(dg_file_read(&out, VECTORS "llama_cpp_gemma4.out", NULL), DGEMMA_OK);
    const char *text = in.data;
    char *ids = out.data;
    int n_text = 0;
    for (const char *end; text; text = *end ? end + strlen(between) : NULL, n_text++) {
        end = strstr(text, between);
        end = end ? end : text + strlen(text);
        int32_t want[1024];
        size_t n = 0;
        while (*ids != '\n') {
            want[n++] = (int32_t)strtol(ids, &ids, 10);
            ids += strspn(ids, " ");
        }
        ids++;
        expect_vector(t, text, (size_t)(end - text), want, n);
    }
    ck_assert_int_eq(n_text, 46);
    ck_assert_int_eq(*ids, '\0');
    dg_buf_clear(&in);
    dg_buf_clear(&out);
}

static void check_vectors(const dg_tokenizer *t)
{
    ck_assert_int_eq(check_vector_file(t, VECTORS "vectors.jsonl"), 123);
    ck_assert_int_eq(check_vector_file(t, VECTORS "public_gemma4_goldens.jsonl"), 11);
    check_llama_cpp_files(t);
}

START_TEST(gives_recorded_ids)
{
    check_vectors(gemma_tokenizer);
}
END_TEST

static void check_pieces(const dg_tokenizer *t)
{
    ck_assert_int_eq(dg_tokenizer_count(t), 262144);
    ck_assert_int_eq(dg_tokenizer_bos(t), 2);
    ck_assert_int_eq(dg_tokenizer_added_id(t, "<|turn>"), TURN);
    ck_assert_int_eq(dg_tokenizer_added_id(t, "<|image|>"), 258880);
    ck_assert_int_eq(dg_tokenizer_added_id(t, "<table>"), -1); /* a piece, but not added */
    ck_assert_int_eq(dg_tokenizer_added_id(t, ""), -1);
    ck_assert(dg_tokenizer_is_special(t, TURN_END));
    ck_assert(!dg_tokenizer_is_special(t, 107));
    ck_assert(!dg_tokenizer_is_special(t, -1));
    ck_assert(!dg_tokenizer_is_special(t, 262144));
    dg_piece piece = dg_tokenizer_piece(t, 494);
    ck_assert_uint_eq(piece.len, 4);
    ck_assert_mem_eq(piece.text, "\u2581t", 4);
    ck_assert_ptr_null(dg_tokenizer_piece(t, -1).text);
    ck_assert_ptr_null(dg_tokenizer_piece(t, 262144).text);
}

START_TEST(knows_its_pieces)
{
    check_pieces(gemma_tokenizer);
}
END_TEST

START_TEST(plain_text_opens_no_turns)
{
    dg_tokens tokens;
    for (size_t i = 0; i < gemma.n_added; i++) {
        dg_piece name = gemma.pieces[gemma.added[i].id];
        encode(gemma_tokenizer, name.text, name.len, 0, &tokens);
        for (size_t k = 0; k < tokens.n; k++)
            ck_assert_msg(!dg_tokenizer_is_special(gemma_tokenizer, tokens.ids[k]), "%.*s gave %d",
                          (int)name.len, name.text, tokens.ids[k]);
        dg_tokens_clear(&tokens);
        expect_round_trip(gemma_tokenizer, name.text, name.len, 0);

        encode(gemma_tokenizer, name.text, name.len, DG_ENCODE_ADDED | DG_ENCODE_BOS, &tokens);
        expect_ids(name.text, name.len, &tokens, (const int32_t[]){2, gemma.added[i].id}, 2);
        dg_tokens_clear(&tokens);
    }
}
END_TEST

START_TEST(prints_special_tokens_when_asked)
{
    const char text[] = "<|turn>user\nHi there<turn|>";
    dg_tokens tokens;
    dg_buf out;
    encode(gemma_tokenizer, text, strlen(text), DG_ENCODE_ADDED | DG_ENCODE_BOS, &tokens);
    decode(gemma_tokenizer, &tokens, true, &out);
    ck_assert_str_eq(out.data, "<bos><|turn>user\nHi there<turn|>");
    dg_buf_clear(&out);
    decode(gemma_tokenizer, &tokens, false, &out);
    ck_assert_str_eq(out.data, "user\nHi there");
    dg_buf_clear(&out);
    dg_tokens_clear(&tokens);
}
END_TEST

/* A text of `n` parts: characters and pieces from everywhere, and from where merging is densest. */
static void random_text(uint32_t *pos, uint32_t kind, uint32_t n, dg_buf *out)
{
    static const char markup[] = "<>|/ \n\ttablehr=\"'1290.turn_\r\x80\xE2";
    dg_buf_init(out, 1 << 20);
    for (uint32_t i = 0; i < n; i++) {
        dg_piece piece = gemma.pieces[draw(pos, (uint32_t)gemma.n_piece)];
        if (kind == 0)
            piece = (dg_piece){&"abcdeinorst"[draw(pos, 11)], 1};
        else if (kind == 1)
            piece = (dg_piece){&markup[draw(pos, sizeof markup - 1)], 1};
        else if (kind == 2)
            piece = gemma.pieces[236743 + draw(pos, 255968 - 236743)]; /* single characters */
        else if (kind == 3)
            piece = gemma.pieces[494 + draw(pos, 3000)];
        dg_buf_append(out, piece.text, piece.len);
    }
}

static void compare_with_plain_bpe(const dg_tokenizer *t, uint32_t pos, uint32_t n_round)
{
    for (uint32_t round = 0; round < n_round; round++) {
        dg_buf text;
        random_text(&pos, round % 5, 1 + draw(&pos, round % 11 ? 70 : 400), &text);
        dg_tokens want, got;
        dg_tokens_init(&want, 1 << 20);
        gemma_vocabulary_encode(&gemma, text.data, text.len, &want);
        encode(t, text.data, text.len, 0, &got);
        expect_ids(text.data, text.len, &got, want.ids, want.n);
        dg_tokens_clear(&want);
        dg_tokens_clear(&got);
        dg_buf_clear(&text);
    }
}

START_TEST(encodes_as_plain_bpe_does)
{
    compare_with_plain_bpe(gemma_tokenizer, 0, 1000);
}
END_TEST

/* The same vocabulary with its merges written out. */
START_TEST(is_the_same_from_json)
{
    dgemma_error err;
    size_t len;
    char *json = gemma_vocabulary_write_json(&gemma, &len);
    dg_tokenizer *t;
    ck_assert_msg(dg_tokenizer_from_json(&t, json, len, "json", &err) == DGEMMA_OK, "%s", err.msg);
    free(json);
    check_pieces(t);
    check_vectors(t);
    compare_with_plain_bpe(t, 1u << 28, 200);
    dg_tokenizer_free(t);
}
END_TEST

START_TEST(any_text_comes_back)
{
    uint32_t pos = 5u << 24;
    for (int round = 0; round < 2000; round++) {
        char text[4 * 64];
        size_t len = 0;
        for (uint32_t n = draw(&pos, 64); n > 0; n--) {
            static const uint32_t range[] = {0x80, 0x80, 0x800, 0x10000, 0x110000};
            uint32_t c = draw(&pos, range[draw(&pos, DG_COUNT(range))]);
            if (c != 0x2581 && (c < 0xD800 || c > 0xDFFF))
                len += dg_utf8_encode(text + len, c);
        }
        expect_round_trip(gemma_tokenizer, text, len, round % 2 ? DG_ENCODE_ADDED : 0);
    }
}
END_TEST

START_TEST(streams_what_it_decodes_whole)
{
    uint32_t pos = 6u << 24;
    for (int round = 0; round < 1000; round++) {
        int32_t ids[40];
        for (size_t i = 0; i < DG_COUNT(ids); i++) {
            uint32_t kind = draw(&pos, 8);
            ids[i] = kind == 0   ? (int32_t)draw(&pos, 262144 + 10) - 5
                     : kind == 1 ? gemma.added[draw(&pos, 24)].id
                     : kind == 2 ? 238 + 0xE2 + (int32_t)draw(&pos, 20)
                                 : 238 + 0x80 + (int32_t)draw(&pos, 128);
        }
        bool print_special = round % 2;
        dg_buf whole, stream;
        decode(gemma_tokenizer, &(dg_tokens){.ids = ids, .n = DG_COUNT(ids)}, print_special,
               &whole);

        dg_decoder d;
        dg_decoder_init(&d, gemma_tokenizer, print_special);
        dg_buf_init(&stream, 1 << 20);
        for (size_t i = 0; i < DG_COUNT(ids); i++) {
            size_t before = stream.len;
            ck_assert(dg_decoder_push(&d, ids[i], &stream));
            if (stream.len > before)
                ck_assert(dg_utf8_valid(stream.data + before, stream.len - before));
        }
        ck_assert(dg_decoder_flush(&d, &stream));
        ck_assert_uint_eq(stream.len, whole.len);
        ck_assert(!whole.len || memcmp(stream.data, whole.data, whole.len) == 0);
        dg_buf_clear(&whole);
        dg_buf_clear(&stream);
    }
}
END_TEST

/* Processor seconds, so that a busy machine does not fail the test. */
static double seconds_to_encode(const char *pattern)
{
    enum { N = 1000000 };
    char *text = malloc(N);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0, n = strlen(pattern); i < N; i++)
        text[i] = pattern[i % n];
    dg_tokens tokens;
    clock_t start = clock();
    encode(gemma_tokenizer, text, N, DG_ENCODE_ADDED, &tokens);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    dg_tokens_clear(&tokens);
    free(text);
    return seconds;
}

START_TEST(is_fast_on_a_megabyte)
{
    static const char *const patterns[] = {
        "a",          "\n",         " ",        "\t",
        "=",          "1",          "\r",       "abcabd",
        "> </",       "<|turn",     "<|turn>",  "The quick brown fox jumps over it. ",
        "\U0001F600", "\U0001F999", "\xE2\x96", "\u4E2D\u56FD",
    };
    for (size_t i = 0; i < DG_COUNT(patterns); i++) {
        double seconds = seconds_to_encode(patterns[i]);
        ck_assert_msg(seconds < (DG_TEST_ADDRESS_SANITIZER || DG_TEST_THREAD_SANITIZER ? 20 : 1),
                      "\"%s\": %.2f s", patterns[i], seconds);
    }
}
END_TEST

/* ---- vocabularies made by hand: 256 byte tokens, then what a test says ---- */

enum { FIRST = 256, N_EXTRA = 16 };

typedef struct small {
    char names[256][8];
    dg_piece pieces[256 + N_EXTRA];
    dg_merge merges[N_EXTRA];
    dg_vocabulary v;
} small;

static dg_piece piece_of(const char *text)
{
    return (dg_piece){text, strlen(text)};
}

/* Lists end with NULL; merges are "left right", and no list of them means to derive them. */
static void small_init(small *s, const char *pieces[], const char *merges[])
{
    *s = (small){.v = {.where = "small", .pieces = s->pieces, .n_piece = 256}};
    for (int b = 0; b < 256; b++) {
        snprintf(s->names[b], sizeof s->names[b], "<0x%02X>", b);
        s->pieces[b] = piece_of(s->names[b]);
    }
    for (size_t i = 0; pieces && pieces[i]; i++)
        s->pieces[s->v.n_piece++] = piece_of(pieces[i]);
    for (size_t i = 0; merges && merges[i]; i++)
        ck_assert(dg_merge_split(&s->merges[s->v.n_merge++], merges[i], strlen(merges[i])));
    s->v.merges = merges ? s->merges : NULL;
}

#define LIST(...)                                                                                  \
    (const char *[])                                                                               \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void expect_small(const small *s, const char *text, unsigned flags, const int32_t *want,
                         size_t n)
{
    dgemma_error err;
    dg_tokenizer *t;
    ck_assert_msg(dg_tokenizer_create(&t, &s->v, &err) == DGEMMA_OK, "%s", err.msg);
    dg_tokens got;
    encode(t, text, strlen(text), flags, &got);
    expect_ids(text, strlen(text), &got, want, n);
    dg_tokens_clear(&got);
    dg_tokenizer_free(t);
}

#define EXPECT_SMALL(s, text, flags, ...)                                                          \
    expect_small(s, text, flags, (const int32_t[]){__VA_ARGS__},                                   \
                 sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

START_TEST(merges_lowest_rank_first)
{
    small s;
    small_init(&s, LIST("a", "b", "c", "ab", "bc", "abc"), LIST("b c", "a b", "ab c"));
    EXPECT_SMALL(&s, "abc", 0, FIRST, FIRST + 4);
    small_init(&s, LIST("a", "b", "c", "ab", "bc", "abc"), LIST("a b", "ab c", "b c"));
    EXPECT_SMALL(&s, "abcbc", 0, FIRST + 5, FIRST + 4);
    small_init(&s, LIST("a", "aa"), LIST("a a")); /* leftmost on equal rank */
    EXPECT_SMALL(&s, "aaa", 0, FIRST + 1, FIRST);
    small_init(&s, LIST("a", "b", "ab"), (const char *[]){NULL}); /* none at all */
    EXPECT_SMALL(&s, "ab", 0, FIRST, FIRST + 1);
}
END_TEST

/* Learned pieces by id, longest left part first; those by hand, here from the tab on, before them.
 */
START_TEST(derives_merges)
{
    small s;
    small_init(&s, LIST("x", "bc", "ab", "a", "b", "c"), NULL);
    EXPECT_SMALL(&s, "abc", 0, FIRST + 3, FIRST + 1);
    small_init(&s, LIST("x", "bc", "a", "b", "c", "\t", "ab"), NULL);
    EXPECT_SMALL(&s, "abc", 0, FIRST + 6, FIRST + 4);
    small_init(&s, LIST("x", "aa", "aaa", "a", "\t", "\t\t", "\t\t\t"), NULL);
    EXPECT_SMALL(&s, "\t\t\t\t\taaaa", 0, FIRST + 6, FIRST + 5, FIRST + 1, FIRST + 1);
}
END_TEST

START_TEST(writes_unknown_characters_as_bytes)
{
    small s;
    small_init(&s, LIST("a", "aa"), LIST("a a"));
    EXPECT_SMALL(&s,
                 "a\u00E9aa\xFF"
                 "a b",
                 0, FIRST, 0xC3, 0xA9, FIRST + 1, 0xFF, FIRST, ' ', 'b');
}
END_TEST

START_TEST(replaces_spaces_or_keeps_them)
{
    small s;
    small_init(&s, LIST("a", "\u2581", " ", "\u2581a", " a"), LIST("\u2581 a", "  a"));
    EXPECT_SMALL(&s, "a a", 0, FIRST, FIRST + 3);
    s.v.keep_spaces = true;
    EXPECT_SMALL(&s, "a a", 0, FIRST, FIRST + 4);

    dg_tokenizer *t;
    for (int keep = 0; keep < 2; keep++) {
        s.v.keep_spaces = keep;
        dg_buf out;
        ck_assert_int_eq(dg_tokenizer_create(&t, &s.v, NULL), DGEMMA_OK);
        decode(t, &(dg_tokens){.ids = (int32_t[]){FIRST + 3, FIRST + 4}, .n = 2}, false, &out);
        ck_assert_str_eq(out.data, keep ? "\u2581a a" : " a a");
        dg_buf_clear(&out);
        dg_tokenizer_free(t);
    }
}
END_TEST

START_TEST(matches_the_longest_added_token)
{
    small s;
    small_init(&s, LIST("<", "<a", "<a>", "<ab>", "x", "<b"), (const char *[]){NULL});
    const dg_added_token added[] = {
        {FIRST + 5, false}, {FIRST + 1, true}, {FIRST + 3, true}, {FIRST + 2, true}};
    s.v.added = added;
    s.v.n_added = DG_COUNT(added);
    EXPECT_SMALL(&s, "x<a><ab><ab<a<b<", DG_ENCODE_ADDED, FIRST + 4, FIRST + 2, FIRST + 3,
                 FIRST + 1, 'b', FIRST + 1, FIRST + 5, FIRST);
}
END_TEST

/* Not by merging, and not as a single character. */
START_TEST(makes_no_special_token_of_plain_text)
{
    small s;
    small_init(&s, LIST("<", ">", "<>", "x", "x<>"), NULL);
    const dg_added_token added[] = {{FIRST + 2, true}, {FIRST + 3, true}};
    s.v.added = added;
    s.v.n_added = DG_COUNT(added);
    EXPECT_SMALL(&s, "x<>", 0, 'x', FIRST, FIRST + 1);
    EXPECT_SMALL(&s, "x<>", DG_ENCODE_ADDED, FIRST + 3, FIRST + 2);
}
END_TEST

START_TEST(replaces_what_is_not_text)
{
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"\xE2\x82\xAC", "\u20AC"},
        {"\xE2\x82", "\uFFFD"},
        {"\xE2\x82\xE2\x82\xAC", "\uFFFD\u20AC"},
        {"\xE2\x28\xA1", "\uFFFD(\uFFFD"},
        {"\xF0\x9F\x98\x41", "\uFFFDA"},
        {"\xC0\xAF", "\uFFFD\uFFFD"},
        {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
        {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
        {"\xF1\x80\xE1\x80\xC2\x62", "\uFFFD\uFFFD\uFFFD"
                                     "b"},
    };
    small s;
    small_init(&s, NULL, NULL);
    dg_tokenizer *t;
    ck_assert_int_eq(dg_tokenizer_create(&t, &s.v, NULL), DGEMMA_OK);
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        dg_tokens tokens;
        dg_buf out;
        encode(t, cases[i].bytes, strlen(cases[i].bytes), 0, &tokens);
        ck_assert_uint_eq(tokens.n, strlen(cases[i].bytes));
        decode(t, &tokens, false, &out);
        ck_assert_str_eq(out.data, cases[i].text);
        dg_buf_clear(&out);
        dg_tokens_clear(&tokens);
    }
    dg_tokenizer_free(t);
}
END_TEST

START_TEST(stays_within_limits)
{
    dgemma_error err;
    dg_tokenizer *t;
    small s;
    small_init(&s, LIST("a"), NULL);
    ck_assert_int_eq(dg_tokenizer_create(&t, &s.v, NULL), DGEMMA_OK);
    dg_tokens tokens;
    dg_tokens_init(&tokens, 3);
    ck_assert_int_eq(dg_tokenizer_encode(t, "aa", 2, 0, &tokens, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_tokenizer_encode(t, "aa", 2, 0, &tokens, &err), DGEMMA_E_LIMIT);
    ck_assert_uint_eq(tokens.n, 2);
    ck_assert_int_eq(dg_tokenizer_encode(t, NULL, 0, 0, &tokens, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_tokenizer_encode(t, "a", 1, DG_ENCODE_BOS, &tokens, &err), DGEMMA_E_ARG);
    ck_assert_int_eq(dg_tokenizer_encode(t, "a", (size_t)DG_ENCODE_MAX_TEXT + 1, 0, &tokens, &err),
                     DGEMMA_E_LIMIT);
    ck_assert_int_eq(dg_tokenizer_bos(t), -1);

    dg_buf out;
    dg_buf_init(&out, 1);
    ck_assert_int_eq(dg_tokenizer_decode(t, tokens.ids, tokens.n, false, &out, &err),
                     DGEMMA_E_LIMIT);
    dg_buf_clear(&out);
    dg_tokens_clear(&tokens);
    dg_tokenizer_free(t);
}
END_TEST

/* What must have more tokens than there is room for is told so before anything is done for it. */
START_TEST(stops_before_texts_that_cannot_fit)
{
    dgemma_error err;
    dg_tokenizer *t;
    small s;
    small_init(&s, LIST("a", "aaaaaaa"), NULL); /* seven characters; <0x00> has six */
    ck_assert_int_eq(dg_tokenizer_create(&t, &s.v, NULL), DGEMMA_OK);
    ck_assert_uint_eq(dg_tokenizer_least(t, "", 0), 0);
    ck_assert_uint_eq(dg_tokenizer_least(t, "aaaaaaa", 7), 1);
    ck_assert_uint_eq(dg_tokenizer_least(t, "aaaaaaaa", 8), 2);
    ck_assert_uint_eq(dg_tokenizer_least(t, "\u2581\u2581\u2581\u2581", 12), 1);

    enum { LONG = 1 << 20 };
    char *text = malloc(LONG);
    memset(text, 'a', LONG);
    dg_tokens tokens;
    dg_tokens_init(&tokens, LONG / 7);
    dg_test_fail_alloc_at(1); /* a word of a million characters would need memory */
    dgemma_status st = dg_tokenizer_encode(t, text, LONG, 0, &tokens, &err);
    ck_assert(!dg_test_alloc_done());
    ck_assert_int_eq(st, DGEMMA_E_LIMIT);
    ck_assert_uint_eq(tokens.n, 0);
    ck_assert_uint_eq(tokens.least, LONG / 7 + 1);
    dg_tokens_init(&tokens, LONG / 7 + 1); /* one that could: it has a million */
    ck_assert_int_eq(dg_tokenizer_encode(t, text, LONG, 0, &tokens, &err), DGEMMA_E_LIMIT);
    ck_assert_uint_eq(tokens.least, LONG / 7 + 2);
    dg_tokens_clear(&tokens);
    free(text);
    dg_tokenizer_free(t);
}
END_TEST

static void expect_refusal(const dg_vocabulary *v, dgemma_status status, const char *reason)
{
    dgemma_error err;
    dg_tokenizer *t;
    ck_assert_int_eq(dg_tokenizer_create(&t, v, &err), status);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(err.msg, reason), "\"%s\" does not say \"%s\"", err.msg, reason);
}

START_TEST(refuses_broken_vocabularies)
{
    static char big[DG_PIECE_MAX + 2];
    memset(big, 'a', sizeof big - 1);
    small s;
    small_init(&s, LIST("a", "b", "a"), NULL);
    expect_refusal(&s.v, DGEMMA_E_FORMAT, "ids 256 and 258 have the same piece");
    small_init(&s, LIST("a", ""), NULL);
    expect_refusal(&s.v, DGEMMA_E_LIMIT, "id 257 has 0 bytes");
    small_init(&s, LIST("a\x80"), NULL);
    expect_refusal(&s.v, DGEMMA_E_FORMAT, "id 256 is not UTF-8");
    small_init(&s, LIST(big), NULL);
    expect_refusal(&s.v, DGEMMA_E_LIMIT, "4097 bytes");
    small_init(&s, LIST(big + 1), NULL);
    expect_refusal(&s.v, DGEMMA_E_UNSUPPORTED, "no merges");
    small_init(&s, NULL, NULL);
    s.v.pieces++;
    s.v.n_piece--;
    expect_refusal(&s.v, DGEMMA_E_UNSUPPORTED, "no piece <0x00>");
    s.v.n_piece = 0;
    expect_refusal(&s.v, DGEMMA_E_LIMIT, "0 pieces");
    small_init(&s, LIST("a", "b"), LIST("a b"));
    expect_refusal(&s.v, DGEMMA_E_FORMAT, "merge 0");
    small_init(&s, LIST("a", "<0x41>a"), LIST("<0x41> a"));
    expect_refusal(&s.v, DGEMMA_E_FORMAT, "byte token");
    small_init(&s, LIST("a"), NULL);
    s.v.n_added = 1;
    s.v.added = &(dg_added_token){257, true};
    expect_refusal(&s.v, DGEMMA_E_FORMAT, "id 257");
    s.v.added = &(dg_added_token){-1, true};
    expect_refusal(&s.v, DGEMMA_E_FORMAT, "id -1");
    s.v.n_added = 2;
    s.v.added = (dg_added_token[]){{3, true}, {3, true}};
    expect_refusal(&s.v, DGEMMA_E_FORMAT, "3 is listed twice");
    ck_assert(!dg_merge_split(&s.merges[0], "ab", 2));
    ck_assert(!dg_merge_split(&s.merges[0], " ", 1));
    ck_assert(!dg_merge_split(&s.merges[0], "", 0));
}
END_TEST

/* Makes one, encodes a word long enough for a heap, decodes it. */
static dgemma_status use_once(const dg_vocabulary *v, dgemma_error *err)
{
    char text[200];
    memset(text, 'a', sizeof text);
    dg_tokens tokens;
    dg_buf out;
    dg_tokens_init(&tokens, 1000);
    dg_buf_init(&out, 1000);
    dg_tokenizer *t;
    dgemma_status st = dg_tokenizer_create(&t, v, err);
    if (!st)
        st = dg_tokenizer_encode(t, text, sizeof text, DG_ENCODE_ADDED, &tokens, err);
    if (!st && dg_tokenizer_decode(t, tokens.ids, tokens.n, true, &out, err))
        st = DGEMMA_E_NOMEM;
    dg_tokens_clear(&tokens);
    dg_buf_clear(&out);
    dg_tokenizer_free(t);
    return st;
}

START_TEST(survives_without_memory)
{
    small s;
    for (int derive = 0; derive < 2; derive++) {
        small_init(&s, LIST("a", "aa", "aaa"), derive ? NULL : LIST("a a", "aa a"));
        for (long n = 1;; n++) {
            dgemma_error err;
            dg_test_fail_alloc_at(n);
            dgemma_status st = use_once(&s.v, &err);
            bool reached = dg_test_alloc_done();
            ck_assert_int_eq(st, reached ? DGEMMA_E_NOMEM : DGEMMA_OK);
            if (!reached)
                break;
        }
    }
}
END_TEST

Suite *tokenizer_suite(void)
{
    Suite *s = suite_create("tokenizer");
    TCase *c = tcase_create("gemma");
    tcase_add_unchecked_fixture(c, gemma_setup, gemma_teardown);
    tcase_add_test(c, gives_recorded_ids);
    tcase_add_test(c, knows_its_pieces);
    tcase_add_test(c, plain_text_opens_no_turns);
    tcase_add_test(c, prints_special_tokens_when_asked);
    tcase_add_test(c, encodes_as_plain_bpe_does);
    tcase_add_test(c, is_the_same_from_json);
    tcase_add_test(c, any_text_comes_back);
    tcase_add_test(c, streams_what_it_decodes_whole);
    tcase_add_test(c, is_fast_on_a_megabyte);
    suite_add_tcase(s, c);

    c = tcase_create("small");
    tcase_add_test(c, merges_lowest_rank_first);
    tcase_add_test(c, derives_merges);
    tcase_add_test(c, writes_unknown_characters_as_bytes);
    tcase_add_test(c, replaces_spaces_or_keeps_them);
    tcase_add_test(c, matches_the_longest_added_token);
    tcase_add_test(c, makes_no_special_token_of_plain_text);
    tcase_add_test(c, replaces_what_is_not_text);
    tcase_add_test(c, stays_within_limits);
    tcase_add_test(c, stops_before_texts_that_cannot_fit);
    tcase_add_test(c, refuses_broken_vocabularies);
    tcase_add_test(c, survives_without_memory);
    suite_add_tcase(s, c);
    return s;
}
