/* Gaps and edits: what is read of a request, and what the model is asked. */
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "engine/infill_prompt.h"
#include "server/ollama_request.h"
#include "server/start_request.h"
#include "suites.h"
#include "support/chat_limits.h"

enum { QUOTED = 4000 }; /* bytes of a text, at most */

static const char *prompt_of(dg_buf *out, const char *passage, const char *suffix, const char *how)
{
    dgemma_request_options o = {.passage = passage, .suffix = suffix, .instruction = how};
    out->len = 0;
    ck_assert(dg_infill_prompt(out, &o));
    ck_assert_uint_eq(strlen(out->data) + 1, out->len);
    return out->data;
}

START_TEST(the_prompt_of_a_gap)
{
    dg_buf b;
    dg_buf_init(&b, 1 << 16);
    const char *end = "Write nothing but the text, from its beginning to its end.";
    ck_assert_str_eq(prompt_of(&b, NULL, "", NULL) + strlen(b.data) - strlen(end), end);
    ck_assert_ptr_nonnull(strstr(b.data, "A text has a gap."));
    ck_assert_ptr_null(strstr(b.data, "goes on"));
    ck_assert_ptr_nonnull(
        strstr(prompt_of(&b, "", " the end", "Be brief."),
               "A text has a gap. Write the text with what is missing. Be brief.\n\n"
               "Behind the gap it goes on:\n\n the end\n\nWrite nothing"));
    ck_assert_ptr_nonnull(strstr(prompt_of(&b, "old words", "", NULL),
                                 "anew. Use other words.\n\nThe passage as it was:\n\nold words"));
    ck_assert_ptr_nonnull(strstr(prompt_of(&b, "old", "rest", "Shorter."),
                                 "anew. Shorter.\n\nThe passage as it was:\n\nold\n\n"
                                 "Behind it the text goes on:\n\nrest\n\nWrite nothing"));
    dg_buf_clear(&b);
}
END_TEST

/* Of a long text the beginning is quoted, up to a whole character. */
START_TEST(a_long_suffix_is_cut_between_characters)
{
    for (size_t lead = QUOTED - 3; lead <= QUOTED; lead++) {
        static char suffix[QUOTED + 8];
        dg_buf b;
        dg_buf_init(&b, 1 << 16);
        memset(suffix, 'a', lead);
        strcpy(suffix + lead, "€x"); /* three bytes and one */
        size_t len = strlen(suffix);
        const char *text = strstr(prompt_of(&b, NULL, suffix, NULL), "aaaa");
        size_t kept = lead + 3 > QUOTED ? lead : lead + 3;
        kept = len > QUOTED ? kept : len;
        ck_assert_int_eq(strncmp(text, suffix, kept), 0);
        const char *behind = kept < len ? "…\n\nWrite" : "\n\nWrite";
        ck_assert_int_eq(strncmp(text + kept, behind, strlen(behind)), 0);
        dg_buf_clear(&b);
    }
}
END_TEST

/* A body that is taken. */
static dg_chat read_body(dg_read_fn *read, const char *body)
{
    dg_chat c;
    dg_http_error e = {0};
    ck_assert_msg(read(&c, json_loads(body, 0, NULL), &dg_test_chat_limits, 7, &e), "%s",
                  e.message);
    return c;
}

/* Each passage stands between the others as they were; blanks at its ends stay outside. */
START_TEST(an_edit_is_a_gap_for_each_passage)
{
    dg_chat c = read_body(dg_edit_read, "{\"text\": \"Éa bb cc dd\", \"ranges\": [[2, 6], [6, 8]],"
                                        "\"instruction\": \"Shorter.\"}");
    ck_assert_uint_eq(c.n_prompt, 2);
    ck_assert_str_eq(c.prompts[0].before, "Éa ");
    ck_assert_str_eq(c.prompts[0].passage, "bb");
    ck_assert_str_eq(c.prompts[0].after, " cc dd");
    ck_assert(c.prompts[0].start == 4 && c.prompts[0].end == 6); /* É has two bytes */
    ck_assert_str_eq(c.prompts[1].before, "Éa bb ");
    ck_assert_str_eq(c.prompts[1].passage, "cc");
    ck_assert_str_eq(c.prompts[1].after, " dd");
    ck_assert_str_eq(c.options.instruction, "Shorter.");
    ck_assert(!c.options.keep_length && c.options.strength >= 1);
    dg_chat_clear(&c);
    static const struct {
        const char *fields;
        bool keeps;
    } lengths[] = {{"\"strength\": 0.5", true},
                   {"\"strength\": 1", false},
                   {"\"lengths\": \"same\"", true},
                   {"\"lengths\": \"auto\"", false}};
    for (size_t i = 0; i < DG_COUNT(lengths); i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"text\": \"a bb\", \"ranges\": [[2, 4]], %s}",
                 lengths[i].fields);
        c = read_body(dg_edit_read, body);
        ck_assert_int_eq(c.options.keep_length, lengths[i].keeps);
        ck_assert_int_eq(c.options.strength < 1, i == 0);
        dg_chat_clear(&c);
    }
}
END_TEST

/* In a conversation the instruction stands behind what was asked. */
START_TEST(an_edit_in_a_conversation)
{
    dg_chat c = read_body(
        dg_edit_read, "{\"text\": \"a bb\", \"ranges\": [[2, 4]], \"instruction\": \"Shorter.\","
                      "\"messages\": [{\"role\": \"user\", \"content\": \"Q?\"}]}");
    ck_assert_ptr_null(c.options.instruction);
    ck_assert_ptr_nonnull(strstr(c.messages, "Q?\\n\\n(Shorter.)"));
    dg_chat_clear(&c);
}
END_TEST

START_TEST(a_gap_as_llama_server_has_it)
{
    dg_chat c = read_body(dg_infill_read,
                          "{\"input_prefix\": \"a\", \"prompt\": \"b\", \"input_suffix\": \"c\","
                          "\"n_predict\": 5, \"seed\": 9, \"input_extra\": ["
                          "{\"filename\": \"f\", \"text\": \"t\"}, {\"text\": \"u\"}]}");
    ck_assert_str_eq(c.prompts[0].before, "ab");
    ck_assert_str_eq(c.prompts[0].after, "c");
    ck_assert_str_eq(c.options.system, "f:\nt\n\nu\n\n");
    ck_assert_int_eq(c.options.max_tokens, 5);
    ck_assert_uint_eq(c.options.seed, 9);
    dg_chat_clear(&c);
    c = read_body(dg_infill_read, "{\"input_suffix\": \"c\", \"n_predict\": -1, \"seed\": -1}");
    ck_assert_str_eq(c.prompts[0].before, "");
    ck_assert_ptr_null(c.options.system);
    ck_assert_int_eq(c.options.max_tokens, dg_test_chat_limits.defaults.canvas_length);
    ck_assert_uint_eq(c.options.seed, 7); /* any */
    dg_chat_clear(&c);
}
END_TEST

START_TEST(a_wrong_number_is_refused_by_its_name)
{
    static const char *const wrong[] = {"0", "-2", "\"5\"", "1.5", "99999999999"};
    for (size_t i = 0; i < DG_COUNT(wrong); i++) {
        char body[100];
        dg_chat c;
        dg_http_error e = {0};
        snprintf(body, sizeof body, "{\"input_suffix\": \"c\", \"n_predict\": %s}", wrong[i]);
        json_t *root = json_loads(body, 0, NULL);
        ck_assert(!dg_infill_read(&c, root, &dg_test_chat_limits, 7, &e));
        ck_assert_int_eq(e.status, 400);
        ck_assert_str_eq(e.param, "n_predict");
        ck_assert_ptr_nonnull(strstr(e.message, "n_predict"));
    }
}
END_TEST

/* A gap may be where the text begins. */
START_TEST(a_gap_as_ollama_has_it)
{
    dg_chat c = read_body(dg_ollama_read_generate,
                          "{\"prompt\": \"\", \"suffix\": \"b\", \"system\": \"Be brief.\"}");
    ck_assert_uint_eq(c.n_prompt, 1);
    ck_assert_str_eq(c.prompts[0].before, "");
    ck_assert_str_eq(c.prompts[0].after, "b");
    ck_assert_str_eq(c.options.system, "Be brief.");
    dg_chat_clear(&c);
    c = read_body(dg_ollama_read_generate, "{\"prompt\": \"a\", \"suffix\": \"b\"}");
    ck_assert_str_eq(c.prompts[0].before, "a");
    ck_assert_ptr_null(c.options.system);
    dg_chat_clear(&c);
}
END_TEST

Suite *infill_suite(void)
{
    Suite *s = suite_create("infill");
    TCase *t = tcase_create("infill");
    tcase_add_test(t, the_prompt_of_a_gap);
    tcase_add_test(t, a_long_suffix_is_cut_between_characters);
    tcase_add_test(t, an_edit_is_a_gap_for_each_passage);
    tcase_add_test(t, an_edit_in_a_conversation);
    tcase_add_test(t, a_gap_as_llama_server_has_it);
    tcase_add_test(t, a_wrong_number_is_refused_by_its_name);
    tcase_add_test(t, a_gap_as_ollama_has_it);
    suite_add_tcase(s, t);
    return s;
}
