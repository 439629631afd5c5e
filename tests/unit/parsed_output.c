#include "parsed_output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/rng.h"
#include "gemma_vocabulary.h"

static gemma_vocabulary gemma;
dg_tokenizer *parsed_tokenizer;

static void setup(void)
{
    gemma_vocabulary_init(&gemma);
    parsed_tokenizer = gemma_vocabulary_tokenizer(&gemma);
}

static void teardown(void)
{
    dg_tokenizer_free(parsed_tokenizer);
    gemma_vocabulary_clear(&gemma);
}

static void setup_small(void)
{
    dg_buf json;
    dgemma_error err = {0};
    dg_buf_init(&json, 1 << 20);
    ck_assert_int_eq(dg_file_read(&json, "models/pocket/tokenizer.json", &err), DGEMMA_OK);
    ck_assert_int_eq(dg_tokenizer_from_json(&parsed_tokenizer, json.data, json.len, "pocket", &err),
                     DGEMMA_OK);
    dg_buf_clear(&json);
}

static void teardown_small(void)
{
    dg_tokenizer_free(parsed_tokenizer);
}

Suite *parsed_suite(const char *name, void (*add_tests)(TCase *c), const TTest *of_gemma)
{
    Suite *s = suite_create(name);
    TCase *large = tcase_create("gemma"), *small = tcase_create("small");
    tcase_add_unchecked_fixture(large, setup, teardown);
    tcase_add_unchecked_fixture(small, setup_small, teardown_small);
    add_tests(large);
    tcase_add_test(large, of_gemma);
    add_tests(small);
    suite_add_tcase(s, large);
    suite_add_tcase(s, small);
    return s;
}

/* ---- events as text: [thinking …][text …][call 0 name {…}][end turn] ---- */

static const char *end_name(int32_t id)
{
    if (id < 0)
        return "cut";
    if (id == dg_tokenizer_added_id(parsed_tokenizer, "<turn|>"))
        return "turn";
    if (id == dg_tokenizer_added_id(parsed_tokenizer, "<|tool_response>"))
        return "response";
    return id == dg_tokenizer_added_id(parsed_tokenizer, "<eos>") ? "eos" : "other";
}

static bool on_event(void *user, const dg_output_event *e)
{
    static const char *const open[] = {[DG_OUTPUT_THINKING] = "[thinking ",
                                       [DG_OUTPUT_TEXT] = "[text ",
                                       [DG_OUTPUT_BROKEN_CALL] = "[broken "};
    parsed_record *r = user;
    char head[64];
    if (r->n_left == 0) {
        r->n_refused++;
        return false;
    }
    r->n_left -= r->n_left > 0;
    bool is_text = e->kind <= DG_OUTPUT_BROKEN_CALL;
    bool same = is_text && r->last == (int)e->kind;
    if (r->text.len && !same)
        dg_buf_puts(&r->text, "]");
    if (is_text) {
        dg_buf_puts(&r->text, same ? "" : open[e->kind]);
        dg_buf_append(&r->text, e->text.data, e->text.len);
    } else if (e->kind == DG_OUTPUT_TOOL_CALL) {
        snprintf(head, sizeof head, "[call %d ", e->index);
        dg_buf_puts(&r->text, head);
        dg_buf_append(&r->text, e->name.data, e->name.len);
        dg_buf_puts(&r->text, " ");
        dg_buf_append(&r->text, e->text.data, e->text.len);
    } else {
        snprintf(head, sizeof head, "[end %s]", end_name(e->end));
        dg_buf_puts(&r->text, head);
    }
    r->last = (int)e->kind;
    return true;
}

dg_output_parser *parsed_open(parsed_record *r, const dg_output_options *options, int n_left)
{
    dg_output_parser *p;
    *r = (parsed_record){.last = -1, .n_left = n_left};
    dg_buf_init(&r->text, 1 << 24);
    ck_assert_int_eq(dg_output_parser_create(&p, parsed_tokenizer, options, on_event, r, NULL), 0);
    return p;
}

void parsed_close(dg_output_parser *p, parsed_record *r)
{
    dg_output_parser_free(p);
    dg_buf_clear(&r->text);
}

/* The stream is cut after each token whose bit is set; NULL: nowhere. */
static void parse(const dg_tokens *tokens, bool in_thought, const bool *cuts, dg_buf *out)
{
    dgemma_error err = {0};
    parsed_record r;
    dg_output_parser *p = parsed_open(&r, &(dg_output_options){.in_thought = in_thought}, -1);
    size_t from = 0;
    for (size_t i = 0; i < tokens->n; i++) {
        if (!(cuts && cuts[i]) && i + 1 < tokens->n)
            continue;
        ck_assert_int_eq(dg_output_parser_push(p, tokens->ids + from, i + 1 - from, &err), 0);
        from = i + 1;
    }
    ck_assert_int_eq(dg_output_parser_finish(p, &err), 0);
    ck_assert_int_eq(dg_output_parser_finish(p, &err), 0);
    dg_output_parser_free(p);
    *out = r.text;
}

void parsed_whole(const dg_tokens *tokens, dg_buf *out)
{
    parse(tokens, false, NULL, out);
}

static void compare(const dg_tokens *tokens, bool in_thought, const bool *cuts, const char *output,
                    const char *want)
{
    dg_buf got;
    parse(tokens, in_thought, cuts, &got);
    ck_assert_msg(strcmp(got.data, want) == 0, "%s\n gave   %s\n wanted %s", output, got.data,
                  want);
    dg_buf_clear(&got);
}

void expect_tokens(const dg_tokens *tokens, bool in_thought, const char *output, const char *want)
{
    static const dg_rng_key key = {.seed = 7};
    bool *cuts = calloc(tokens->n + 1, sizeof *cuts);
    ck_assert_ptr_nonnull(cuts);
    compare(tokens, in_thought, cuts, output, want);
    for (size_t i = 0; i < tokens->n; i++) { /* at every border once */
        cuts[i] = true;
        compare(tokens, in_thought, cuts, output, want);
        cuts[i] = false;
    }
    for (uint32_t round = 0; round < 8; round++) {
        for (size_t i = 0; i < tokens->n; i++)
            cuts[i] = dg_rng_below(&key, round * 4096 + (uint32_t)i, 2);
        compare(tokens, in_thought, cuts, output, want);
    }
    memset(cuts, true, tokens->n);
    compare(tokens, in_thought, cuts, output, want);
    free(cuts);
}

void parsed_encode(const char *output, dg_tokens *tokens)
{
    dgemma_error err;
    dg_tokens_init(tokens, 1 << 20);
    ck_assert_int_eq(dg_tokenizer_encode(parsed_tokenizer, output, strlen(output), DG_ENCODE_ADDED,
                                         tokens, &err),
                     0);
}

/* The same with a token for each byte of text. */
static void spell(const dg_tokens *tokens, dg_tokens *out)
{
    dg_tokens_init(out, 1 << 20);
    for (size_t i = 0; i < tokens->n; i++) {
        int32_t id = tokens->ids[i];
        dg_buf text;
        dg_buf_init(&text, 1 << 12);
        ck_assert_int_eq(dg_tokenizer_decode(parsed_tokenizer, &id, 1, false, &text, NULL),
                         DGEMMA_OK);
        bool is_byte = id >= 238 && id < 494;
        if (dg_tokenizer_is_special(parsed_tokenizer, id) || is_byte || !text.len)
            dg_tokens_push(out, id);
        else
            for (size_t k = 0; k < text.len; k++)
                dg_tokens_push(out, 238 + (unsigned char)text.data[k]);
        dg_buf_clear(&text);
    }
}

void expect_from(bool in_thought, const char *output, const char *want)
{
    dg_tokens tokens, bytes;
    parsed_encode(output, &tokens);
    expect_tokens(&tokens, in_thought, output, want);
    spell(&tokens, &bytes);
    expect_tokens(&bytes, in_thought, output, want);
    dg_tokens_clear(&tokens);
    dg_tokens_clear(&bytes);
}

void expect(const char *output, const char *want)
{
    expect_from(false, output, want);
}
