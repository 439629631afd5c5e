/* What the model is shown when it decides: labels that are one token at one place, the questions in
 * words, and canvases in which all but the labels is given. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "decide/decide_internal.h"
#include "suites.h"
#include "support/cpu_engine.h"
#include "support/record_events.h"

enum { N_MANY = 60 };

static dgemma_option colours[] = {{"red", "like blood"}, {"green", NULL}, {"A", NULL}};
static dgemma_option meaning[] = {{NULL, "it is"}, {NULL, ""}};
static dgemma_option many[N_MANY];

/* Of all kinds; the last have many options. */
static decide_question questions[] = {
    {.kind = DGEMMA_QUESTION_YES_NO, .text = "Is it?", .options = meaning, .n_options = 2},
    {.kind = DGEMMA_QUESTION_CHOICE, .text = "Which?", .options = colours, .n_options = 3},
    {.kind = DGEMMA_QUESTION_SCORE, .text = "How much?", .options = many, .n_options = 10},
    {.kind = DGEMMA_QUESTION_CHOICE, .text = "Alone.", .options = colours, .n_options = 1},
    {.kind = DGEMMA_QUESTION_CHOICE, .text = "Many?", .options = many, .n_options = N_MANY},
    {.kind = DGEMMA_QUESTION_YES_NO, .text = "No meaning?", .n_options = 2},
};
enum { N_QUESTION = DG_COUNT(questions), ALONE = 3 };

static dgemma_engine *engine;
static decide_layout layout;

static void open_layout(void)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_error err = {0};
    opt.model_path = "models/pocket/pocket.gguf";
    engine = record_engine(opt);
    for (size_t i = 0; i < N_MANY; i++)
        many[i].name = "option";
    ck_assert_msg(!decide_layout_init(&layout, engine, &err), "%s", err.msg);
    ck_assert_msg(!decide_label_all(&layout, questions, N_QUESTION, &err), "%s", err.msg);
}

static void close_layout(void)
{
    for (size_t i = 0; i < N_QUESTION; i++) {
        dg_free(questions[i].labels);
        questions[i].labels = NULL;
    }
    dgemma_engine_close(engine);
}

static size_t tokenize(const char *text, int32_t *ids, size_t cap)
{
    dgemma_error err = {0};
    size_t n = 0;
    ck_assert_msg(!dgemma_tokenize(engine, text, strlen(text), true, ids, cap, &n, &err), "%s",
                  err.msg);
    return n;
}

/* The line with each label, tokenised, differs at the slot alone, where no two are the same. */
START_TEST(a_label_is_one_token_at_one_place)
{
    for (size_t i = 0; i < N_QUESTION; i++) {
        const decide_question *q = &questions[i];
        ck_assert_int_eq(q->labels == NULL, i == ALONE);
        for (size_t k = 0; q->labels && k < q->n_options; k++) {
            char line[32];
            int32_t ids[DECIDE_LINE];
            snprintf(line, sizeof line, "q%zu: %s\n", i + 1, q->labels[k].text);
            ck_assert_uint_eq(tokenize(line, ids, DECIDE_LINE), (size_t)q->n_line);
            for (int t = 0; t < q->n_line; t++)
                ck_assert_int_eq(ids[t], t == q->slot ? q->labels[k].id : q->line[t]);
            for (size_t other = 0; other < k; other++)
                ck_assert_int_ne(q->labels[other].id, q->labels[k].id);
        }
    }
}
END_TEST

START_TEST(labels_are_words_digits_and_letters)
{
    static const char *const digits[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    ck_assert_str_eq(questions[0].labels[0].text, "yes");
    ck_assert_str_eq(questions[0].labels[1].text, "no");
    for (size_t i = 0; i < 10; i++)
        ck_assert_str_eq(questions[2].labels[i].text, digits[i]);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_str_eq(questions[1].labels[i].text, (char[2]){(char)('A' + (int)i)});
        ck_assert_str_eq(questions[4].labels[i].text, (char[2]){(char)('A' + (int)i)});
    }
}
END_TEST

/* More options than a vocabulary has labels for. */
START_TEST(labels_run_out)
{
    static dgemma_option options[20000];
    decide_question q = {.kind = DGEMMA_QUESTION_CHOICE,
                         .text = "?",
                         .options = options,
                         .n_options = DG_COUNT(options)};
    dgemma_error err = {0};
    ck_assert_int_eq(decide_label_all(&layout, &q, 1, &err), DGEMMA_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.msg, "question 1 has 20000 options"));
    dg_free(q.labels);
}
END_TEST

/* Tokens of the first question's line with a label; where it differs from `line`, -1: in length, or
 * nowhere, or more than once. */
static int difference(dgemma_engine *e, const char *label, const int32_t *line, size_t n_line)
{
    int32_t ids[DECIDE_LINE];
    char text[32];
    size_t n;
    int at = -1;
    snprintf(text, sizeof text, "q1: %s\n", label);
    if (dgemma_tokenize(e, text, strlen(text), false, ids, DECIDE_LINE, &n, NULL) || n != n_line)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (ids[i] != line[i]) {
            if (at >= 0)
                return -1;
            at = (int)i;
        }
    return at;
}

/* In a vocabulary of bytes and a few pieces, "aA" differs from "A" in one token, which stands at
 * another place, and "aB" in two. Of all that could be labels those are taken that are one token
 * where "B" has it. */
START_TEST(labels_stand_where_the_others_do)
{
    enum { OPTIONS = 20000, LETTERS = 52, SINGLE = LETTERS, PAIRS = LETTERS * LETTERS };
    enum { SMALL_THREES = 26 * 26 * 26 };
    static dgemma_option options[OPTIONS];
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    decide_layout bytes;
    int32_t line[DECIDE_LINE];
    size_t n_line, n_good = 1, n_elsewhere = 0; /* A itself */
    opt.model_path = "tests/fixtures/golden/sampler_finishes/model";
    ck_assert_msg(!dgemma_engine_open(&e, &opt, &err), "%s", err.msg);
    ck_assert_msg(!decide_layout_init(&bytes, e, &err), "%s", err.msg);
    ck_assert(!dgemma_tokenize(e, "q1: A\n", 6, false, line, DECIDE_LINE, &n_line, &err));
    int slot = difference(e, "B", line, n_line);
    ck_assert_int_ge(slot, 0);
    for (int i = 0; i < SINGLE + PAIRS + SMALL_THREES; i++) {
        int k = i - SINGLE - PAIRS;
        char label[4] = {letters[i % LETTERS]};
        if (k >= 0)
            memcpy(
                label,
                (char[3]){(char)('a' + k % 26), (char)('a' + k / 26 % 26), (char)('a' + k / 676)},
                3);
        else if (i >= SINGLE)
            label[1] = letters[i / LETTERS - 1];
        int at = difference(e, label, line, n_line);
        n_good += at == slot;
        n_elsewhere += at >= 0 && at != slot;
    }
    ck_assert_uint_gt(n_elsewhere, 0);
    decide_question q = {
        .kind = DGEMMA_QUESTION_CHOICE, .text = "?", .options = options, .n_options = OPTIONS};
    char says[40];
    snprintf(says, sizeof says, "one token for %zu", n_good);
    ck_assert_int_eq(decide_label_all(&bytes, &q, 1, &err), DGEMMA_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.msg, says) != NULL, "%s, not %s", err.msg, says);
    dg_free(q.labels);
    dgemma_engine_close(e);
}
END_TEST

static const char *told(dg_buf *out, const size_t *list, size_t n, size_t order)
{
    out->len = 0;
    ck_assert(decide_instructions(out, questions, list, n, order) && dg_buf_append(out, "", 1));
    const char *text = strstr(out->data, "\nq");
    ck_assert_ptr_nonnull(text);
    return text;
}

START_TEST(questions_are_told_with_their_options)
{
    dg_buf b;
    dg_buf_init(&b, 1 << 16);
    ck_assert_str_eq(told(&b, (size_t[]){0, 1}, 2, 0),
                     "\nq1: Is it?\nyes = it is\nno\n"
                     "\nq2: Which?\nA = red (like blood)\nB = green\nC = A\n");
    /* turned on by one; what yes and no mean is not */
    ck_assert_str_eq(told(&b, (size_t[]){1, 0}, 2, 1),
                     "\nq2: Which?\nA = green\nB = A\nC = red (like blood)\n"
                     "\nq1: Is it?\nyes = it is\nno\n");
    ck_assert_str_eq(told(&b, (size_t[]){1}, 1, 2), "\nq2: Which?\nA\nB = red (like blood)\n"
                                                    "C = green\n"); /* A = A goes without saying */
    ck_assert_str_eq(told(&b, (size_t[]){5}, 1, 0), "\nq6: No meaning?\nyes\nno\n");
    dg_buf_clear(&b);
}
END_TEST

START_TEST(a_message_is_json)
{
    dg_buf b;
    dg_buf_init(&b, 1 << 16);
    for (size_t n = 0; n < 3; n++) {
        const char text[] = "\"a\"\\\n\t\x01\x1f\x7f é {'b'}";
        b.len = 0;
        ck_assert(decide_message(&b, text, n));
        json_t *root = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
        const json_t *parts = json_object_get(json_array_get(root, 0), "content");
        ck_assert_uint_eq(json_array_size(parts), n + 1);
        for (size_t i = 0; i < n; i++)
            ck_assert_str_eq(json_string_value(json_object_get(json_array_get(parts, i), "type")),
                             "image");
        ck_assert_str_eq(json_string_value(json_object_get(json_array_get(parts, n), "text")),
                         text);
        json_decref(root);
    }
    dg_buf_clear(&b);
}
END_TEST

/* Against the text that it stands for: the labels are missing, the turn ends behind the last line,
 * and behind that is padding. */
START_TEST(a_canvas_is_its_text)
{
    static const size_t list[] = {1, 0, 4};
    char head[] = "<|channel>thought\n<channel|>";
    for (int thought = 0; thought < 2; thought++) {
        int32_t want[DECIDE_WIDTH], tokens[DECIDE_WIDTH];
        int slots[3];
        char text[256];
        snprintf(text, sizeof text, "%sq2: A\nq1: yes\nq5: A<turn|>",
                 thought || !layout.n_head ? "" : head);
        size_t n = tokenize(text, want, DECIDE_WIDTH);
        int width = decide_fill(&layout, questions, list, 3, thought != 0, tokens, slots);
        ck_assert_int_eq(width % DECIDE_ROUND, 0);
        ck_assert(width >= (int)n && width < (int)n + DECIDE_ROUND);
        for (size_t i = 0; i < 3; i++) {
            ck_assert_int_eq(tokens[slots[i]], -1);
            tokens[slots[i]] = questions[list[i]].labels[0].id;
        }
        for (size_t i = 0; i < (size_t)width; i++)
            ck_assert_int_eq(tokens[i], i < n ? want[i] : layout.pad);
        ck_assert_int_ne(layout.pad, layout.close);
    }
}
END_TEST

/* As many as fit, to the last position. */
START_TEST(a_canvas_is_filled)
{
    enum { MANY = 64 };
    size_t list[MANY];
    int32_t tokens[2 * DECIDE_WIDTH];
    int slots[MANY];
    for (size_t i = 0; i < MANY; i++)
        list[i] = 0;
    for (int length = 8; length <= DECIDE_WIDTH; length++) {
        decide_layout l = layout;
        l.canvas_length = length;
        l.n_head = 3; /* as a model has them that writes its empty thought itself */
        int own = questions[0].n_line, head = l.n_head;
        for (int thought = 0; thought < 2; thought++) {
            size_t fit = decide_fit(&l, questions, list, MANY, thought != 0);
            int room = length - 1 - (thought ? 0 : head);
            ck_assert_uint_eq(fit, room < own ? 0 : (size_t)(room / own));
            if (!fit)
                continue;
            ck_assert_int_le(decide_fill(&l, questions, list, fit, thought != 0, tokens, slots),
                             length);
            ck_assert_int_eq(slots[0], questions[0].slot + (thought ? 0 : head));
        }
    }
}
END_TEST

Suite *decide_layout_suite(void)
{
    Suite *s = suite_create("decide_layout");
    TCase *t = tcase_create("decide_layout");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, open_layout, close_layout);
    tcase_add_test(t, a_label_is_one_token_at_one_place);
    tcase_add_test(t, labels_are_words_digits_and_letters);
    tcase_add_test(t, labels_run_out);
    tcase_add_test(t, labels_stand_where_the_others_do);
    tcase_add_test(t, questions_are_told_with_their_options);
    tcase_add_test(t, a_message_is_json);
    tcase_add_test(t, a_canvas_is_its_text);
    tcase_add_test(t, a_canvas_is_filled);
    suite_add_tcase(s, t);
    return s;
}
