/* What the model is asked where a gap is to be filled. */
#include <string.h>
#include "engine/infill_prompt.h"
#include "suites.h"

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

Suite *infill_suite(void)
{
    Suite *s = suite_create("infill");
    TCase *t = tcase_create("infill");
    tcase_add_test(t, the_prompt_of_a_gap);
    tcase_add_test(t, a_long_suffix_is_cut_between_characters);
    suite_add_tcase(s, t);
    return s;
}
