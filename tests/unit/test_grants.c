/* Who gets which rows of a pass: bounds, pictures, turns. */
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/rng.h"
#include "engine/grants.h"
#include "suites.h"

static const dg_grant_rule usual = {
    .max_row = 1536, .max_prompt = 512, .min_prompt_room = 256, .min_prompt_share = 64};

enum { N_POSITION = 4096 };
static dg_span pictures[N_POSITION]; /* each test lays out its own */

static void lay_text(void)
{
    for (int i = 0; i < N_POSITION; i++)
        pictures[i] = (dg_span){i, i + 1};
}

static void lay_picture(int first, int end)
{
    for (int i = first; i < end; i++)
        pictures[i] = (dg_span){first, end};
}

static dg_want prompt_of(int first, int end)
{
    return (dg_want){.n_token = end - first,
                     .n_canvas = 16,
                     .prompt = true,
                     .picture = pictures + first,
                     .first = first};
}

static void assert_grant(dg_grant g, int n_token, int n_canvas)
{
    ck_assert_int_eq(g.n_token, n_token);
    ck_assert_int_eq(g.n_canvas, n_canvas);
}

START_TEST(one_alone)
{
    lay_text();
    lay_picture(10, 50);
    lay_picture(50, 51);
    lay_picture(60, 130);
    dg_want step = {.n_canvas = 16}, block = {.n_token = 17, .n_canvas = 16};
    assert_grant(dg_grant_alone(&step, 16), 0, 16);
    assert_grant(dg_grant_alone(&step, 15), 0, 0);
    assert_grant(dg_grant_alone(&block, 33), 17, 16);
    assert_grant(dg_grant_alone(&block, 32), 17, 0);
    assert_grant(dg_grant_alone(&block, 5), 5, 0);
    assert_grant(dg_grant_alone(&block, 0), 0, 0);

    dg_want prompt = prompt_of(0, 140);
    static const int rows_and_tokens[][2] = {
        {0, 0},   {9, 9},   {10, 10},  {11, 10},   {49, 10},   {50, 50},   {51, 51},
        {60, 60}, {61, 60}, {129, 60}, {130, 130}, {139, 139}, {140, 140}, {155, 140}};
    for (size_t i = 0; i < DG_COUNT(rows_and_tokens); i++)
        assert_grant(dg_grant_alone(&prompt, rows_and_tokens[i][0]), rows_and_tokens[i][1], 0);
    assert_grant(dg_grant_alone(&prompt, 156), 140, 16);
    dg_want picture = prompt_of(60, 140);
    assert_grant(dg_grant_alone(&picture, 69), 0, 0); /* whole or not at all */
    assert_grant(dg_grant_alone(&picture, 70), 70, 0);
}
END_TEST

/* A prompt that is all encoded points behind its list of pictures, where there is nothing. */
START_TEST(nothing_is_read_behind_the_last_token)
{
    dg_span *list = dg_calloc(4, sizeof *list);
    ck_assert_ptr_nonnull(list);
    dg_want step = {.n_canvas = 16, .prompt = true, .picture = list + 4, .first = 4};
    assert_grant(dg_grant_alone(&step, 16), 0, 16);

    /* nor to find out that nothing needs to be cut: what is there may look like a picture */
    for (int i = 0; i < 4; i++)
        list[i] = i < 3 ? (dg_span){i, i + 1} : (dg_span){0, 9};
    dg_want last = {.n_token = 3, .n_canvas = 16, .prompt = true, .picture = list};
    assert_grant(dg_grant_alone(&last, 3), 3, 0);
    dg_free(list);
}
END_TEST

/* The room for prompts, alone and beside canvases, and how several share it. */
START_TEST(prompts_share_their_room)
{
    dg_grant g[12];
    dg_want w[12] = {{.n_token = 3000, .n_canvas = 16, .prompt = true}};
    ck_assert_int_eq(dg_grants(g, w, 1, 0, &usual), 0);
    assert_grant(g[0], 512, 0);
    w[1] = (dg_want){.n_canvas = 16};
    dg_grants(g, w, 2, 0, &usual);
    assert_grant(g[0], 256, 0);
    assert_grant(g[1], 0, 16);
    for (int i = 1; i < 12; i++)
        w[i] = (dg_want){.n_canvas = 60};
    dg_grants(g, w, 7, 0, &usual); /* as many as the canvases have */
    assert_grant(g[0], 360, 0);
    for (int i = 0; i < 4; i++)
        w[i] = w[0];
    w[1].n_token = 40;
    dg_grants(g, w, 4, 0, &usual); /* 1536 / 4, and a short one is not behind the long ones */
    assert_grant(g[0], 384, 0);
    assert_grant(g[1], 40, 16);
    assert_grant(g[3], 384, 0);
    for (int i = 0; i < 8; i++)
        w[i] = w[0];
    ck_assert_int_eq(dg_grants(g, w, 9, 0, &usual), 4); /* 64 each is the least */
    for (int i = 0; i < 8; i++)
        assert_grant(g[i], i < 4 ? 64 : 0, 0);
    assert_grant(g[8], 0, 60);
    for (int i = 4; i < 12; i++)
        w[i] = (dg_want){.n_canvas = 300};
    dg_grants(g, w, 12, 0, &usual); /* more canvases than fit: prompts have no more than the pass */
    assert_grant(g[0], 384, 0);
    /* a block that is committed takes nothing of it */
    dg_want block[] = {{.n_token = 200, .n_canvas = 16}, {.n_token = 500, .prompt = true}};
    dg_grants(g, block, 2, 0, &usual);
    assert_grant(g[0], 200, 16);
    assert_grant(g[1], 256, 0);
}
END_TEST

/* A picture that is longer than the room: whole, and nobody is worse off than without rows. */
START_TEST(a_picture_overruns_the_room)
{
    lay_text();
    lay_picture(0, 700);
    dg_grant g[4];
    dg_want w[4] = {prompt_of(0, 900),
                    {.n_canvas = 16},
                    {.n_token = 50, .n_canvas = 16, .prompt = true},
                    {.n_token = 17, .n_canvas = 16}};
    ck_assert_int_eq(dg_grants(g, w, 4, 0, &usual), 2);
    assert_grant(g[0], 700, 0);
    assert_grant(g[1], 0, 16);
    assert_grant(g[2], 0, 0); /* the room is used up: it is the first next time */
    assert_grant(g[3], 17, 16);
    w[0] = prompt_of(700, 900);
    ck_assert_int_eq(dg_grants(g, w, 4, 2, &usual), 2);
    assert_grant(g[2], 50, 16);
    assert_grant(g[0], 128, 0);

    /* behind others who left room for a few tokens only, it still goes in whole */
    lay_picture(700, 900);
    w[0] = (dg_want){.n_token = 250, .n_canvas = 16, .prompt = true};
    w[2] = prompt_of(700, 900);
    dg_grants(g, w, 4, 0, &usual);
    assert_grant(g[0], 128, 0);
    assert_grant(g[2], 200, 16);

    /* two tokens are a picture as well */
    dg_grant_rule narrow = {
        .max_row = 100, .max_prompt = 1, .min_prompt_room = 1, .min_prompt_share = 1};
    lay_picture(0, 2);
    w[0] = prompt_of(0, 50);
    dg_grants(g, w, 1, 0, &narrow);
    assert_grant(g[0], 2, 0);
}
END_TEST

/* What does not fit behind the others waits for one pass. */
START_TEST(what_does_not_fit_is_first_next_time)
{
    lay_text();
    lay_picture(0, 1100);
    dg_grant g[3];
    dg_want w[3] = {{.n_canvas = 256}, {.n_canvas = 256}, prompt_of(0, 1100)};
    int turn = dg_grants(g, w, 3, 0, &usual);
    ck_assert_int_eq(turn, 2);
    assert_grant(g[2], 0, 0);
    turn = dg_grants(g, w, 3, turn, &usual);
    assert_grant(g[2], 1100, 16);
    assert_grant(g[0], 0, 256);
    assert_grant(g[1], 0, 0);
    ck_assert_int_eq(turn, 1);
    ck_assert_int_eq(dg_grants(g, w, 2, turn, &usual), 1); /* all fit: the turn stays */
    ck_assert_int_eq(dg_grants(g, w, 0, 7, &usual), 7);
    dg_want nothing[2] = {{0}, {0}}; /* who wants nothing does not wait */
    ck_assert_int_eq(dg_grants(g, nothing, 2, 1, &usual), 1);
    ck_assert_int_eq(dg_grants(g, w, 2, 5, &usual), 5); /* a turn from when there were more */
    assert_grant(g[1], 0, 256);
}
END_TEST

/* Counted in passes: of 37 for whom there is room for 6, none is ever two ahead of another. */
static void check_turns(const dg_want *one, int most_in_pass)
{
    enum { N = 37, PASSES = 1000 };
    dg_want w[N];
    dg_grant g[N];
    int had[N] = {0}, turn = 0;
    for (int i = 0; i < N; i++)
        w[i] = *one;
    for (int pass = 0; pass < PASSES; pass++) {
        int least = PASSES, most = 0, n = 0;
        turn = dg_grants(g, w, N, turn, &usual);
        for (int i = 0; i < N; i++) {
            bool some = g[i].n_token || g[i].n_canvas;
            n += some;
            had[i] += some;
            least = dg_min(least, had[i]);
            most = dg_max(most, had[i]);
        }
        ck_assert_int_eq(n, most_in_pass);
        ck_assert_int_le(most - least, 1);
    }
}

/* The turn is for somebody who wants something; and a picture that overruns the room waits until
 * there is some. */
START_TEST(the_turn_is_for_who_waits)
{
    dg_grant_rule narrow = {
        .max_row = 100, .max_prompt = 64, .min_prompt_room = 32, .min_prompt_share = 32};
    dg_grant g[4];
    dg_want idle[] = {{0}, {.n_canvas = 90}, {0}, {.n_canvas = 20}};
    ck_assert_int_eq(dg_grants(g, idle, 4, 0, &narrow), 3);
    assert_grant(g[3], 0, 0);

    lay_text();
    lay_picture(0, 20);
    dg_want full[] = {{.n_canvas = 16}, {.n_token = 500, .prompt = true}, prompt_of(0, 40)};
    ck_assert_int_eq(dg_grants(g, full, 3, 0, &narrow), 2);
    assert_grant(g[0], 0, 16);
    assert_grant(g[1], 32, 0); /* all the room that prompts have */
    assert_grant(g[2], 0, 0);
    ck_assert_int_eq(dg_grants(g, full, 3, 2, &narrow), 1); /* now the other has to wait */
    assert_grant(g[2], 32, 0);
}
END_TEST

START_TEST(everyone_comes_to_its_turn)
{
    lay_text();
    lay_picture(0, 700);
    dg_want picture = prompt_of(0, 700);
    check_turns(&(dg_want){.n_canvas = 256}, 6);
    check_turns(&(dg_want){.n_token = 100000, .n_canvas = 16, .prompt = true}, 24);
    check_turns(&picture, 2);
}
END_TEST

static int below(const dg_rng_key *key, uint32_t *i, int n)
{
    return (int)dg_rng_below(key, (*i)++, (uint32_t)n);
}

/* Whatever comes: nothing negative, nothing more than wanted or than the pass has, no picture cut,
 * a canvas whole and behind all its tokens, and somebody goes on. */
START_TEST(bounds_hold_whatever_is_wanted)
{
    dg_rng_key key = {.seed = 12};
    uint32_t draw = 0;
    for (int round = 0; round < 20000; round++) {
        dg_want w[9];
        dg_grant g[9];
        dg_grant_rule rule = {.max_row = 64 + below(&key, &draw, 900),
                              .max_prompt = 1 + below(&key, &draw, 600),
                              .min_prompt_room = 1 + below(&key, &draw, 300),
                              .min_prompt_share = 1 + below(&key, &draw, 100)};
        lay_text();
        for (int at = below(&key, &draw, 60); at < N_POSITION - 2000;
             at += below(&key, &draw, 60)) {
            int end = at + 1 + below(&key, &draw, rule.max_row);
            lay_picture(at, end);
            at = end;
        }
        int n = 1 + below(&key, &draw, 9), sum = 0, n_want = 0, n_granted = 0;
        for (int i = 0; i < n; i++) {
            int first = below(&key, &draw, 1000);
            first = pictures[first].first;
            w[i] = below(&key, &draw, 2) ? prompt_of(first, first + 1 + below(&key, &draw, 900))
                                         : (dg_want){.n_token = below(&key, &draw, 40)};
            if (w[i].prompt) /* prompts do not end inside a picture */
                w[i].n_token = pictures[first + w[i].n_token - 1].end - first;
            w[i].n_canvas = below(&key, &draw, 32);
            n_want += w[i].n_token || w[i].n_canvas;
        }
        int turn = below(&key, &draw, n), next = dg_grants(g, w, n, turn, &rule);
        for (int i = 0; i < n; i++) {
            ck_assert(g[i].n_token >= 0 && g[i].n_token <= w[i].n_token);
            ck_assert(g[i].n_canvas == 0 || g[i].n_canvas == w[i].n_canvas);
            ck_assert(!g[i].n_canvas || g[i].n_token == w[i].n_token);
            if (w[i].picture && g[i].n_token < w[i].n_token)
                ck_assert_int_eq(w[i].picture[g[i].n_token].first, w[i].first + g[i].n_token);
            sum += g[i].n_token + g[i].n_canvas;
            n_granted += g[i].n_token || g[i].n_canvas;
        }
        ck_assert_int_le(sum, rule.max_row);
        ck_assert(!n_want || n_granted);
        ck_assert(next == turn || (!g[next].n_token && !g[next].n_canvas));
        ck_assert(n_granted == n_want || (!g[next].n_token && !g[next].n_canvas));
    }
}
END_TEST

Suite *grants_suite(void)
{
    Suite *s = suite_create("grants");
    TCase *t = tcase_create("grants");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, one_alone);
    tcase_add_test(t, nothing_is_read_behind_the_last_token);
    tcase_add_test(t, prompts_share_their_room);
    tcase_add_test(t, a_picture_overruns_the_room);
    tcase_add_test(t, what_does_not_fit_is_first_next_time);
    tcase_add_test(t, the_turn_is_for_who_waits);
    tcase_add_test(t, everyone_comes_to_its_turn);
    tcase_add_test(t, bounds_hold_whatever_is_wanted);
    suite_add_tcase(s, t);
    return s;
}
