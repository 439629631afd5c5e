/* A model that has seen on its canvas what a step has put there, and wants something else: where it
 * is read from the left, what it was told stays, and the room holds all the same. */
#include "guide_step.h"

/* The most probable text is "xbd", since the model wants a d. Told that there is an x it still
 * wants none: then what it says of places behind is about another text, and the a that comes first
 * is kept. */
START_TEST(a_model_that_insists_is_read_from_the_left)
{
    for (int told = 0; told < 2; told++) {
        step s;
        step_open(&s, "x(a[0-9]|bd)", 4);
        int32_t a = step_token(&s, 'a'), b = step_token(&s, 'b'), d = step_token(&s, 'd');
        step_insist(&s, 0, EOS);
        step_insist(&s, 1, a);
        step_insist(&s, 2, d);
        s.p[1][b] = -3;
        if (told)
            step_tell(&s, 0, step_token(&s, 'x'));
        step_take_likeliest(&s);
        ck_assert_int_eq(s.argmax[0], step_token(&s, 'x'));
        ck_assert_int_eq(s.argmax[1], told ? a : b);
        ck_assert_int_eq(s.argmax[2] == d, !told);
        step_close(&s);
    }
}
END_TEST

/* The same where it had come to an a, and was not told otherwise. */
START_TEST(a_model_that_was_told_nothing_is_read_as_a_whole)
{
    step s;
    step_open(&s, "a[0-9]{2}|bcd", 4);
    step_insist(&s, 0, step_token(&s, 'a'));
    step_insist(&s, 1, step_token(&s, 'c'));
    step_insist(&s, 2, step_token(&s, 'd'));
    s.p[0][step_token(&s, 'b')] = -3;
    step_take_likeliest(&s);
    ck_assert_int_eq(s.argmax[0], step_token(&s, 'b'));
    step_close(&s);
}
END_TEST

/* What a step has put there against the model's will stays while the model says nothing better. */
START_TEST(what_the_model_was_told_stays)
{
    step s;
    step_open(&s, "[ab][0-9]{2}", 4);
    int32_t a = step_token(&s, 'a'), b = step_token(&s, 'b');
    const struct {
        int32_t wanted;
        bool accepted;
        int32_t told, text;
    } cases[] = {
        {EOS, false, a, b},                      /* noise */
        {EOS, true, a, a},  {EOS, true, PAD, b}, /* not in the language */
        {b, true, a, b},    {a, true, b, a},
    };
    for (size_t k = 0; k < DG_COUNT(cases); k++) {
        s.p[0][EOS] = s.p[0][b] = -5;
        s.p[0][a] = -6;
        s.p[0][cases[k].wanted] = -0.5;
        step_find_words(&s);
        s.canvas[0] = cases[k].told;
        s.accepted[0] = cases[k].accepted;
        s.argmax[0] = cases[k].wanted;
        s.argmax[1] = s.argmax[2] = -1;
        step_take(&s);
        ck_assert_msg(s.argmax[0] == cases[k].text, "case %zu", k);
    }
    step_close(&s);
}
END_TEST

/* Two letters could stand there. But the choice was made a step before: it is no doubt of the
 * model's, and is accepted before all that is in doubt. */
START_TEST(what_the_model_was_told_is_certain)
{
    for (int told = 0; told < 2; told++) {
        step s;
        step_open(&s, "[ab][0-9]{2}", 4);
        step_insist(&s, 0, EOS);
        if (told)
            step_tell(&s, 0, step_token(&s, 'a'));
        step_take_likeliest(&s);
        ck_assert_int_eq(s.forced[0], told);
        ck_assert_int_eq(s.entropy[0] < 1e-9f, told);
        step_close(&s);
    }
}
END_TEST

/* "xbd" is known when the a is held, behind which there is no d: however likely the d is, and
 * unlikely all that may be there, the text does not go on from what is known. */
START_TEST(what_was_known_of_another_text_is_forgotten)
{
    step s;
    step_open(&s, "x(a[0-9]|bd)", 4);
    int32_t x = step_token(&s, 'x'), a = step_token(&s, 'a'), d = step_token(&s, 'd');
    step_insist(&s, 2, d);
    step_find_words(&s);
    step_take_overruled(&s);
    ck_assert_int_eq(s.argmax[2], d);
    step_insist(&s, 0, EOS);
    step_insist(&s, 1, a);
    for (int v = 0; v < s.n_vocab; v++)
        s.p[2][v] = v == d ? -0.05 : s.p[2][v] - 50;
    step_tell(&s, 0, x);
    step_take_likeliest(&s);
    ck_assert_int_eq(s.argmax[1], a);
    ck_assert_int_ne(s.argmax[2], d);
    step_close(&s);
}
END_TEST

/* What the model says of a free text, behind a letter that it was told, is held though the text
 * that ends there is more probable as a whole. */
START_TEST(free_text_is_read_from_the_left)
{
    step s;
    step_open(&s, "x[^\"\\\\\\x00-\\x1f]*", 4);
    int32_t q = step_token(&s, 'q');
    step_insist(&s, 0, EOS);
    step_insist(&s, 1, q);
    step_insist(&s, 2, PAD);
    s.p[1][TURN_END] = -1.5;
    s.p[2][EOS] = s.p[2][TURN_END] = -20;
    for (int v = 0; v < s.n_vocab; v++)
        if (v != PAD)
            s.p[2][v] -= 9;
    step_tell(&s, 0, step_token(&s, 'x'));
    step_take_likeliest(&s);
    ck_assert_int_eq(s.argmax[1], q);
    step_close(&s);
}
END_TEST

/* A quotation mark cannot be there: it is not held for being text of another kind. */
START_TEST(what_cannot_be_in_free_text_is_not_held)
{
    step s;
    step_open(&s, "x[^\"\\\\\\x00-\\x1f]*", 4);
    step_insist(&s, 0, EOS);
    step_insist(&s, 1, step_token(&s, '"'));
    step_insist(&s, 2, PAD);
    s.p[1][TURN_END] = -1.5;
    step_tell(&s, 0, step_token(&s, 'x'));
    step_take_likeliest(&s);
    ck_assert_int_eq(s.argmax[1], TURN_END);
    step_close(&s);
}
END_TEST

/* Told an end, the model keeps to it, however much likelier going on is: by the token that it finds
 * likelier itself, since by which one a turn ends makes no difference. */
START_TEST(an_end_that_was_told_stays)
{
    for (int likely = 0; likely < 2; likely++) {
        step s;
        step_open(&s, "[yz][0-9]*", 4);
        int32_t q = step_token(&s, 'q');
        step_insist(&s, 0, step_token(&s, 'y'));
        step_insist(&s, 1, q); /* which cannot be */
        step_insist(&s, 2, q);
        s.p[1][TURN_END] = likely ? -3 : -9;
        s.p[1][EOS] = -12;
        if (!likely)
            s.p[1][step_token(&s, '1')] = s.p[2][step_token(&s, '1')] = -1;
        step_tell(&s, 1, EOS);
        step_take_likeliest(&s);
        ck_assert_int_eq(s.argmax[1], TURN_END);
        ck_assert_int_eq(s.argmax[2], PAD);
        ck_assert(s.forced[2]);
        step_close(&s);
    }
}
END_TEST

/* Behind the x that the model was told it wants an a, behind which there are three digits more: it
 * gets it where they have room, and is cut short where they have not. */
START_TEST(room_holds_for_a_model_that_insists)
{
    for (int64_t room = 2; room < 6; room++) {
        step s;
        step_open(&s, "x(a[0-9]{3}|b?)|[yz][0-9]*", 4);
        int32_t a = step_token(&s, 'a');
        step_insist(&s, 0, EOS);
        step_insist(&s, 1, a);
        step_insist(&s, 2, EOS);
        s.p[1][step_token(&s, 'b')] = -3;
        step_tell(&s, 0, step_token(&s, 'x'));
        s.room = room;
        step_take_likeliest(&s);
        ck_assert_int_eq(s.argmax[1] == a, room >= 5);
        ck_assert_int_eq(dg_guide_bounded(s.guide), room < 5);
        step_close(&s);
    }
}
END_TEST

/* The same where another letter was told: what the model says by itself had no room. */
START_TEST(a_model_that_was_told_for_want_of_room_is_cut_short)
{
    step s;
    step_open(&s, "x(a[0-9]{3}|b?)|[yz][0-9]*", 4);
    step_insist(&s, 0, EOS);
    step_insist(&s, 1, step_token(&s, 'a'));
    step_insist(&s, 2, EOS);
    step_tell(&s, 0, step_token(&s, 'x'));
    step_tell(&s, 1, step_token(&s, 'b'));
    s.room = 4;
    step_take_likeliest(&s);
    ck_assert_int_eq(s.argmax[1], step_token(&s, 'b'));
    ck_assert(dg_guide_bounded(s.guide));
    step_close(&s);
}
END_TEST

/* On the canvas is an a that has no room, but the model does not want it: nothing is cut short. */
START_TEST(what_is_only_on_the_canvas_does_not_go_on)
{
    step s;
    step_open(&s, "x(a[0-9]{3}|b?)|[yz][0-9]*", 4);
    step_insist(&s, 0, step_token(&s, 'x'));
    step_insist(&s, 1, step_token(&s, 'q')); /* which cannot be */
    step_insist(&s, 2, EOS);
    s.p[1][step_token(&s, 'b')] = -3;
    step_tell(&s, 1, step_token(&s, 'a'));
    s.room = 4;
    step_take_likeliest(&s);
    ck_assert_int_eq(s.argmax[1], step_token(&s, 'b'));
    ck_assert(!dg_guide_bounded(s.guide));
    step_close(&s);
}
END_TEST

/* The model ends its thought, and wants a q behind it, which cannot be. To think on would be more
 * probable, for then the q could stay; but where a thought ends is the model's own affair. */
START_TEST(a_thought_ends_where_the_model_ends_it)
{
    for (int ends = 0; ends < 2; ends++) {
        step s;
        step_open_in_thought(&s, "[xyz][0-9]*", 4);
        int32_t q = step_token(&s, 'q');
        step_insist(&s, 0, ends ? THINK_CLOSE : q);
        step_insist(&s, 1, q);
        step_insist(&s, 2, q);
        s.p[0][ends ? q : THINK_CLOSE] = -2;
        step_take_likeliest(&s);
        ck_assert_int_eq(s.argmax[0], ends ? THINK_CLOSE : q);
        ck_assert_int_eq(s.argmax[1] == q, !ends);
        step_close(&s);
    }
}
END_TEST

/* Where it does not say how the thought ends, the text is the most probable as a whole: it goes on,
 * and ends where there is no more room. */
START_TEST(a_thought_that_does_not_end_makes_room)
{
    for (int wide = 0; wide < 2; wide++) {
        step s;
        step_open_in_thought(&s, "[xyz][0-9]*", 4);
        for (int i = 0; i < N; i++)
            step_insist(&s, i, step_token(&s, 'q'));
        s.room = wide ? 1000 : 3;
        step_take_likeliest(&s);
        for (int i = 0; i < N; i++)
            ck_assert_int_eq(s.argmax[i] == step_token(&s, 'q'), wide);
        ck_assert_int_eq(s.argmax[0] == THINK_CLOSE, !wide);
        ck_assert_int_eq(dg_guide_bounded(s.guide), !wide);
        step_close(&s);
    }
}
END_TEST

/* What was told behind pins is at its own place. */
START_TEST(a_canvas_that_begins_with_pins_is_held_behind_them)
{
    step s;
    step_open(&s, "x(a[0-9]|bd)", 4);
    int32_t a = step_token(&s, 'a'), b = step_token(&s, 'b'), d = step_token(&s, 'd');
    step_insist(&s, 0, step_token(&s, 'x'));
    step_insist(&s, 1, EOS);
    step_insist(&s, 2, d);
    s.p[1][b] = -3;
    step_take_likeliest(&s);
    ck_assert_int_eq(s.argmax[1], b);
    s.first = 1;
    step_tell(&s, 1, a);
    for (s.room = 3; s.room < 5; s.room++) {
        step_take_likeliest(&s);
        ck_assert_int_eq(s.argmax[1], a);
        ck_assert_int_ne(s.argmax[2], d);
    }
    step_close(&s);
}
END_TEST

/* So is what is known of the text behind pins: here it is "bd", and by far the least likely. */
START_TEST(what_is_known_begins_behind_pins)
{
    step s;
    step_open(&s, "x(a[0-9]|bd)", 4);
    int32_t b = step_token(&s, 'b'), d = step_token(&s, 'd');
    step_insist(&s, 1, b);
    step_insist(&s, 2, d);
    step_find_words(&s);
    step_take_overruled(&s);
    ck_assert_int_eq(s.argmax[1], b);
    for (int i = 1; i < N; i++)
        for (int v = 0; v < s.n_vocab; v++)
            s.p[i][v] -= 80;
    s.p[1][step_token(&s, 'x')] = s.p[2][b] = -0.01;
    s.first = 1;
    step_find_words(&s);
    step_take_overruled(&s);
    ck_assert_int_eq(s.argmax[1], b);
    ck_assert_int_eq(s.argmax[2], d);
    step_close(&s);
}
END_TEST

/* The room is counted from the canvas's first token on, whatever is pinned of it. */
START_TEST(pins_take_of_the_room)
{
    step s;
    step_open(&s, "x(a[0-9]{3}|b?)|[yz][0-9]*", 4);
    int32_t a = step_token(&s, 'a');
    step_insist(&s, 0, step_token(&s, 'x'));
    step_insist(&s, 1, a);
    step_take_likeliest(&s);
    s.first = 1;
    for (s.room = 2; s.room < 7; s.room++) {
        step_take_likeliest(&s);
        ck_assert_int_eq(s.argmax[1] == a, s.room >= 5);
    }
    step_close(&s);
}
END_TEST

Suite *told_suite(void)
{
    Suite *s = suite_create("told");
    TCase *t = tcase_create("told");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_model_that_insists_is_read_from_the_left);
    tcase_add_test(t, a_model_that_was_told_nothing_is_read_as_a_whole);
    tcase_add_test(t, what_the_model_was_told_stays);
    tcase_add_test(t, what_the_model_was_told_is_certain);
    tcase_add_test(t, what_was_known_of_another_text_is_forgotten);
    tcase_add_test(t, free_text_is_read_from_the_left);
    tcase_add_test(t, what_cannot_be_in_free_text_is_not_held);
    tcase_add_test(t, an_end_that_was_told_stays);
    tcase_add_test(t, room_holds_for_a_model_that_insists);
    tcase_add_test(t, a_model_that_was_told_for_want_of_room_is_cut_short);
    tcase_add_test(t, what_is_only_on_the_canvas_does_not_go_on);
    tcase_add_test(t, a_canvas_that_begins_with_pins_is_held_behind_them);
    tcase_add_test(t, what_is_known_begins_behind_pins);
    tcase_add_test(t, a_thought_ends_where_the_model_ends_it);
    tcase_add_test(t, a_thought_that_does_not_end_makes_room);
    tcase_add_test(t, pins_take_of_the_room);
    suite_add_tcase(s, t);
    return s;
}
