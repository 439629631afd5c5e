/* From block to block, with a model that says what the test wants, and what a pass is given. */
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/rng.h"
#include "engine/block_loop.h"
#include "suites.h"
#include "support/tiny_model.h"

enum { CANVAS = 16, OPEN = 300, CLOSE = 301, MAX_TOKENS = 100 };

static const int32_t prompt[] = {2, 40, 41, 42};

static dg_block_loop_config config(const tiny_model *t)
{
    return (dg_block_loop_config){.prompt = prompt,
                                  .n_prompt = DG_COUNT(prompt),
                                  .diffusion = {4, 0.4f, 0.8f, 0.1f, 1, 0.005f, 0},
                                  .canvas_length = CANVAS,
                                  .max_tokens = MAX_TOKENS,
                                  .n_context = 512,
                                  .draws = dg_draws_seeded(1, t->cfg.n_vocab),
                                  .think_open = -1,
                                  .think_close = -1,
                                  .think_newline = -1,
                                  .think_budget = -1};
}

static void plan(dg_block_loop *l, dg_work *w)
{
    dg_want want;
    dg_block_loop_want(l, &want);
    dg_block_loop_plan(l, w, dg_grant_alone(&want, 64));
}

/* One block of n tokens and then padding, as if the model had been sure of it at once. */
static void say(dg_block_loop *l, const int32_t *token, int n)
{
    int block = l->block;
    while (l->block == block && !l->end) {
        dg_work w;
        plan(l, &w);
        for (int i = 0; i < w.n_canvas; i++) {
            l->canvas.argmax[i] = i < n ? token[i] : l->model->cfg.pad_token;
            l->canvas.drawn[i] = l->canvas.argmax[i];
            l->canvas.entropy[i] = 0;
        }
        dg_kv_advance(&l->seq, w.n_token);
        dg_block_loop_take(l, NULL);
    }
}

/* ---- padding ---- */

START_TEST(a_block_of_padding_ends_the_answer)
{
    static const int32_t text[] = {50, 51, 52};
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    t.model->cfg.pad_token = t.cfg.pad_token = 90;
    for (int n_first = 0; n_first < 3; n_first++)
        for (int settled = 0; settled < 3; settled++) {
            dg_block_loop l;
            dg_block_loop_config cfg = config(&t);
            cfg.diffusion.settled_steps = settled;
            ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
            for (int i = 0; i < n_first; i++) {
                say(&l, text, DG_COUNT(text)); /* padding behind something is a block like any */
                ck_assert_int_eq(l.end, DG_END_NONE);
                ck_assert_int_eq(l.n_block_token, CANVAS);
            }
            say(&l, NULL, 0);
            ck_assert_int_eq(l.end, DG_END_STOP);
            ck_assert_int_eq(l.stop_token, t.cfg.pad_token);
            ck_assert_int_eq(l.n_block, n_first + 1);
            if (!settled) {
                ck_assert_int_eq(l.n_block_token, 0);
                ck_assert_int_eq(l.n_output, n_first * CANVAS);
            }
            dg_block_loop_clear(&l);
        }
    tiny_close(&t);
}
END_TEST

/* Who has named padding as an end hears of it. */
START_TEST(padding_may_be_named)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    for (int named = 0; named < 2; named++) {
        dg_block_loop l;
        dg_block_loop_config cfg = config(&t);
        cfg.n_stop_token = named;
        cfg.stop_token[0] = t.cfg.pad_token;
        ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
        say(&l, NULL, 0);
        ck_assert_int_eq(l.end, DG_END_STOP);
        ck_assert_int_eq(l.stop_token, t.cfg.pad_token);
        ck_assert_int_eq(l.stop_named, named);
        ck_assert_int_eq(l.n_block_token, 0);
        dg_block_loop_clear(&l);
    }
    tiny_close(&t);
}
END_TEST

/* One that is not padding, anywhere in the block, and a model that names no padding. */
START_TEST(anything_else_goes_on)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    int32_t block[CANVAS];
    for (int at = 0; at < CANVAS; at++) {
        dg_block_loop l;
        dg_block_loop_config cfg = config(&t);
        ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
        for (int i = 0; i < CANVAS; i++)
            block[i] = i == at ? 50 : t.cfg.pad_token;
        say(&l, block, CANVAS);
        ck_assert_int_eq(l.end, DG_END_NONE);
        dg_block_loop_clear(&l);
    }
    int pad = t.cfg.pad_token;
    t.model->cfg.pad_token = -1;
    dg_block_loop l;
    dg_block_loop_config cfg = config(&t);
    ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
    for (int i = 0; i < CANVAS; i++)
        block[i] = pad;
    while (!l.end)
        say(&l, block, CANVAS);
    ck_assert_int_eq(l.end, DG_END_LENGTH);
    ck_assert_int_eq(l.n_output, MAX_TOKENS);
    dg_block_loop_clear(&l);
    tiny_close(&t);
}
END_TEST

/* ---- thinking ---- */

/* Once the budget is gone no thought may open: a model that wants nothing else cannot say it. */
START_TEST(no_thought_opens_after_the_last)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    t.model->cfg.n_stop = 0;
    static const int32_t thoughts[CANVAS] = {[0] = OPEN, 50, 51, 52, 53, 54, 55, 56};
    dg_logit_bias longing = {OPEN, 1000};
    dg_block_loop l;
    dg_work w;
    dg_block_loop_config cfg = config(&t);
    cfg.think_open = OPEN;
    cfg.think_close = CLOSE;
    cfg.think_budget = 5;
    cfg.vocabulary = (dg_vocabulary_options){.bias = &longing, .n_bias = 1};
    ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
    plan(&l, &w);
    ck_assert_int_eq(w.options->n_banned, 0); /* until then it may */
    ck_assert_int_eq(dg_forward_run(t.forward, &(dg_pass){.work = &w, .n_work = 1}, NULL),
                     DGEMMA_OK);
    for (int i = 0; i < w.n_canvas; i++)
        ck_assert_int_eq(l.canvas.argmax[i], OPEN);
    dg_kv_seq_clear(t.kv, &l.seq);
    say(&l, thoughts, CANVAS);
    ck_assert(l.thought_closed);
    ck_assert_int_eq(l.n_block_token, 6);
    ck_assert_int_eq(l.pending[l.n_pending - 1], CLOSE);

    dg_kv_seq_clear(t.kv, &l.seq);
    plan(&l, &w);
    ck_assert_int_eq(w.n_canvas, CANVAS);
    ck_assert_int_eq(w.options->n_banned, 1);
    ck_assert_int_eq(w.options->banned[0], OPEN);
    ck_assert_int_eq(dg_forward_run(t.forward, &(dg_pass){.work = &w, .n_work = 1}, NULL),
                     DGEMMA_OK);
    for (int i = 0; i < w.n_canvas; i++)
        ck_assert(l.canvas.argmax[i] != OPEN && l.canvas.drawn[i] != OPEN);
    dg_block_loop_clear(&l);
    tiny_close(&t);
}
END_TEST

/* A thought that is cut looks like those that were learnt: its name does not count, and a line's
 * end stands before the marker. */
START_TEST(a_cut_thought_is_closed_as_learnt)
{
    enum { NAME = 302, LINE = 303 };
    static const int32_t head[] = {NAME, LINE}, answer[CANVAS] = {60, 61, 62};
    static const struct {
        int32_t says[CANVAS];
        int budget, n_kept, n_thought;
        bool newline;
    } cases[] = {
        {{OPEN, NAME, LINE, 50, 51, 52, 53}, 0, 3, 0, false},
        {{OPEN, NAME, LINE, 50, 51, 52, 53}, 1, 4, 1, true},
        {{OPEN, NAME, LINE, 50, 51, 52, 53}, 3, 6, 3, true},
        {{OPEN, NAME, LINE, 50, LINE, 52, 53}, 2, 5, 2, false},
        {{OPEN, NAME, 50, 51, 52, 53}, 2, 4, 2, true}, /* without a line's end */
        {{OPEN, 50, 51, 52, 53}, 2, 3, 2, true},       /* without a name */
        {{OPEN, NAME, LINE, 50, CLOSE, 60, OPEN, NAME, LINE, 51, 52}, 2, 10, 2, true},
    };
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    t.model->cfg.n_stop = 0;
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        dg_block_loop l;
        dg_block_loop_config cfg = config(&t);
        cfg.think_open = OPEN;
        cfg.think_close = CLOSE;
        cfg.think_newline = LINE;
        cfg.think_head = head;
        cfg.n_think_head = DG_COUNT(head);
        cfg.think_budget = cases[i].budget;
        ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
        say(&l, cases[i].says, CANVAS);
        ck_assert(l.thought_closed);
        ck_assert_int_eq(l.n_thought, cases[i].n_thought);
        ck_assert_int_eq(l.n_block_token, cases[i].n_kept);
        ck_assert_int_eq(l.n_pending, cases[i].n_kept + cases[i].newline + 1);
        ck_assert_int_eq(l.pending[l.n_pending - 2], LINE);
        ck_assert_int_eq(l.pending[l.n_pending - 1], CLOSE);
        say(&l, answer, CANVAS); /* the next block is one like any */
        ck_assert(!l.thought_closed);
        ck_assert_int_eq(l.n_block_token, CANVAS);
        ck_assert_int_eq(l.n_pending, CANVAS);
        dg_block_loop_clear(&l);
    }
    tiny_close(&t);
}
END_TEST

/* However long it may think, an answer has room behind it; what is said outside a thought is not
 * thinking. */
START_TEST(thoughts_leave_room_for_an_answer)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    t.model->cfg.n_stop = 0;
    int32_t thoughts[CANVAS], both[CANVAS];
    for (int i = 0; i < CANVAS; i++) {
        thoughts[i] = i ? 50 + i : OPEN;
        both[i] = i == 0 ? OPEN : i == 4 ? CLOSE : 50 + i;
    }
    dg_block_loop l;
    dg_block_loop_config cfg = config(&t);
    cfg.think_open = OPEN;
    cfg.think_close = CLOSE;
    for (int room = 6; room <= 20; room++) {
        cfg.max_tokens = room;
        ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
        say(&l, thoughts, CANVAS);
        ck_assert(l.thought_closed);
        ck_assert_int_le(l.n_output + room / 2, room); /* half of it at least */
        ck_assert_int_eq(l.end, DG_END_NONE);
        dg_block_loop_clear(&l);
    }
    cfg.max_tokens = MAX_TOKENS;
    cfg.think_budget = 8;
    ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
    say(&l, both, CANVAS);
    ck_assert(!l.thought_closed);
    ck_assert_int_eq(l.n_thought, 3);
    ck_assert_int_eq(l.n_block_token, CANVAS);
    ck_assert_int_eq(l.n_converged, 1);
    dg_want want;
    dg_block_loop_want(&l, &want);
    ck_assert(!want.prompt && !want.picture);
    ck_assert_int_eq(want.n_token, CANVAS);
    dg_block_loop_clear(&l);
    tiny_close(&t);
}
END_TEST

/* The tokens of thoughts, where there is room for them and their name, for one of both, for none.
 */
START_TEST(thoughts_are_limited_by_the_room)
{
    static const int32_t head[] = {302, 303};
    static const struct {
        int max_tokens, n_context, budget, limit, n_head;
    } cases[] = {
        {100, 512, -1, 100 - CANVAS - 1 - 2, 2}, /* an answer of a block, and the marker */
        {512, 104, -1, 100 - CANVAS - 1 - 2, 2}, /* behind a prompt of four tokens */
        {100, 512, 7, 7, 2},
        {100, 512, 99, 100 - CANVAS - 1 - 2, 2},
        {100, 512, 0, 0, 2},
        {20, 512, -1, 20 - 10 - 1 - 2, 2}, /* an answer of half the room */
        {6, 512, -1, 0, 2},
        {5, 512, -1, 0, 2}, /* the name just fits */
        {4, 512, -1, 1, 0}, /* it does not: it counts */
        {4, 512, 0, 0, 0},
        {2, 512, -1, 0, 0},
        {1, 512, -1, 0, 0},
    };
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        dg_block_loop l;
        dg_block_loop_config cfg = config(&t);
        cfg.think_open = OPEN;
        cfg.think_close = CLOSE;
        cfg.think_head = head;
        cfg.n_think_head = DG_COUNT(head);
        cfg.max_tokens = cases[i].max_tokens;
        cfg.n_context = cases[i].n_context;
        cfg.think_budget = cases[i].budget;
        ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
        ck_assert_int_eq(l.think_limit, cases[i].limit);
        ck_assert_int_eq(l.n_head, cases[i].n_head);
        dg_block_loop_clear(&l);
    }
    tiny_close(&t);
}
END_TEST

/* ---- limits ---- */

/* A stop token right behind the last token that is allowed: the model had finished. */
START_TEST(the_end_of_a_turn_comes_before_the_limit)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    int32_t block[CANVAS];
    for (int n = 1; n < CANVAS; n++)
        for (int stops = 0; stops < 2; stops++) {
            for (int i = 0; i < CANVAS; i++)
                block[i] = stops && i == n ? t.cfg.stop_token[t.cfg.n_stop - 1] : 50;
            dg_block_loop l;
            dg_block_loop_config cfg = config(&t);
            cfg.max_tokens = n;
            ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
            say(&l, block, CANVAS);
            ck_assert_int_eq(l.end, stops ? DG_END_STOP : DG_END_LENGTH);
            ck_assert_int_eq(l.n_output, n);
            dg_block_loop_clear(&l);
        }
    tiny_close(&t);
}
END_TEST

/* An answer that fills its last block ends with it. */
START_TEST(a_full_answer_ends_with_its_block)
{
    static const int32_t text[CANVAS] = {50, 51, 52};
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    dg_block_loop l;
    dg_block_loop_config cfg = config(&t);
    cfg.max_tokens = 2 * CANVAS;
    ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
    say(&l, text, CANVAS);
    ck_assert_int_eq(l.end, DG_END_NONE);
    say(&l, text, CANVAS);
    ck_assert_int_eq(l.end, DG_END_LENGTH);
    ck_assert_int_eq(l.n_block, 2);
    ck_assert_int_eq(l.n_output, 2 * CANVAS);
    dg_block_loop_clear(&l);
    tiny_close(&t);
}
END_TEST

/* Every token of a prompt is one of the vocabulary's, and it leaves room for an answer. */
START_TEST(prompts_are_checked)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    int n_vocab = t.cfg.n_vocab;
    int32_t ids[] = {0, n_vocab - 1, 0, n_vocab - 1};
    dg_block_loop_config cfg = config(&t);
    cfg.prompt = ids;
    cfg.n_context = DG_COUNT(ids) + 1;
    ck_assert_int_eq(dg_block_loop_check(&cfg, &t.cfg, NULL), DGEMMA_OK);
    for (size_t i = 0; i < DG_COUNT(ids); i++) {
        int32_t was = ids[i];
        ids[i] = -1;
        ck_assert_int_eq(dg_block_loop_check(&cfg, &t.cfg, NULL), DGEMMA_E_ARG);
        ids[i] = n_vocab;
        ck_assert_int_eq(dg_block_loop_check(&cfg, &t.cfg, NULL), DGEMMA_E_ARG);
        ids[i] = was;
    }
    dgemma_error err;
    cfg.n_context = DG_COUNT(ids);
    ck_assert_int_eq(dg_block_loop_check(&cfg, &t.cfg, &err), DGEMMA_E_CONTEXT);
    ck_assert_uint_eq(err.n_context, DG_COUNT(ids));
    ck_assert_uint_eq(err.n_prompt, DG_COUNT(ids));
    dg_fail_context(&err, 100, 200, true);
    ck_assert(err.n_context == 100 && err.n_prompt == 200);
    ck_assert_ptr_nonnull(strstr(err.msg, "length is 100 tokens"));
    ck_assert_ptr_nonnull(strstr(err.msg, "request has 200 tokens"));
    dg_fail_context(&err, 100, 200, false);
    ck_assert_ptr_nonnull(strstr(err.msg, "request has at least 200 tokens"));
    cfg.n_prompt = 0;
    ck_assert_int_eq(dg_block_loop_check(&cfg, &t.cfg, NULL), DGEMMA_E_ARG);
    tiny_close(&t);
}
END_TEST

/* ---- what settles early ---- */

/* One step of a canvas whose first n_sure positions are sure of their tokens. */
static void step(dg_block_loop *l, const int32_t *token, int n_sure)
{
    dg_work w;
    plan(l, &w);
    for (int i = 0; i < w.n_canvas; i++) {
        l->canvas.argmax[i] = l->canvas.drawn[i] = token[i];
        l->canvas.entropy[i] = i < n_sure ? 0 : 5;
    }
    dg_kv_advance(&l->seq, w.n_token);
    dg_block_loop_take(l, NULL);
}

/* What is pinned goes into every pass, whatever a step's callback made of the canvas; a block that
 * ends in it ends there, and counts as converged. */
/* Who asks for log-probabilities gets room for them, and nobody else. */
START_TEST(logprobs_come_when_asked_for)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    for (int n_top = -1; n_top < 3; n_top++) {
        dg_block_loop l;
        dg_work w;
        dg_block_loop_config cfg = config(&t);
        cfg.logprobs = n_top >= 0;
        cfg.n_top = dg_max(0, n_top);
        ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
        plan(&l, &w);
        ck_assert_int_eq(w.logprob != NULL, n_top >= 0);
        ck_assert_int_eq(w.options->n_top, dg_max(0, n_top));
        dg_block_loop_clear(&l);
    }
    tiny_close(&t);
}
END_TEST

/* What the model ends is ended by it, also in the last canvas of the context. */
START_TEST(a_stop_at_the_end_of_the_context)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    t.model->cfg.n_stop = 1;
    t.model->cfg.stop_token[0] = 60;
    for (int stops = 0; stops < 2; stops++) {
        static const int32_t text[CANVAS] = {50, 51, 60}, endless[CANVAS] = {50, 51, 52};
        dg_block_loop l;
        dg_block_loop_config cfg = config(&t);
        cfg.n_context = DG_COUNT(prompt) + 5;
        ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
        say(&l, stops ? text : endless, CANVAS);
        ck_assert_int_eq(l.end, stops ? DG_END_STOP : DG_END_CONTEXT);
        ck_assert_int_eq(l.n_output, stops ? 2 : 5);
        dg_block_loop_clear(&l);
    }
    tiny_close(&t);
}
END_TEST

START_TEST(a_settled_beginning_is_held_and_read)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    int32_t text[CANVAS];
    for (int i = 0; i < CANVAS; i++)
        text[i] = i == 5 ? t.cfg.stop_token[0] : 50 + i;
    dg_block_loop l;
    dg_work w;
    dg_block_loop_config cfg = config(&t);
    cfg.diffusion.max_steps = 40;
    cfg.diffusion.settled_steps = 1;
    ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
    int32_t padding[CANVAS];
    for (int i = 0; i < CANVAS; i++)
        padding[i] = t.cfg.pad_token;
    step(&l, padding, 0); /* nothing that is not sure of it ends the answer */
    ck_assert(!l.block_done && !l.end);
    step(&l, text, 3);
    ck_assert_int_eq(l.n_read, 3);
    ck_assert(!l.block_done && !l.end);
    for (int i = 0; i < CANVAS; i++)
        l.canvas.token[i] = 99;
    plan(&l, &w);
    ck_assert_mem_eq(w.canvas, text, 3 * sizeof *text);
    ck_assert_int_eq(w.canvas[3], 99);
    step(&l, text, 6);
    ck_assert(l.block_done);
    ck_assert_int_eq(l.end, DG_END_STOP);
    ck_assert_int_eq(l.stop_token, t.cfg.stop_token[0]);
    ck_assert_int_eq(l.n_block_token, 5);
    ck_assert_int_eq(l.n_converged, 1);
    ck_assert_int_eq(l.n_step, 3);
    dg_block_loop_clear(&l);

    /* a thought that the prompt opened is counted from the first token */
    cfg.think_open = OPEN;
    cfg.think_close = CLOSE;
    cfg.think_budget = 2;
    cfg.in_thought = true;
    ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
    step(&l, text, 3);
    ck_assert(l.block_done && l.thought_closed && !l.in_thought);
    ck_assert_int_eq(l.n_block_token, 2);
    step(&l, text, 0);
    ck_assert(!l.block_done);
    ck_assert_int_eq(l.n_block, 1);
    dg_block_loop_clear(&l);
    tiny_close(&t);
}
END_TEST

/* ---- the prompt ---- */

/* What is left of a prompt: its tokens, its pictures and their features, from where it was left. */
START_TEST(a_prompt_goes_on_where_it_was_left)
{
    enum { N = 40 };
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    int32_t ids[N], feature[N];
    dg_span block[N];
    for (int i = 0; i < N; i++) {
        ids[i] = 50 + i;
        feature[i] = i >= 10 && i < 22 ? i - 10 : -1;
        block[i] = i >= 10 && i < 22 ? (dg_span){10, 22} : (dg_span){i, i + 1};
    }
    float features[1];
    dg_block_loop l;
    dg_block_loop_config cfg = config(&t);
    cfg.prompt = ids;
    cfg.n_prompt = N;
    cfg.block = block;
    cfg.feature = feature;
    cfg.features = features;
    cfg.n_context = N + CANVAS + 5;
    ck_assert_int_eq(dg_block_loop_longest_picture(&cfg), 12);
    ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
    static const int pieces[] = {10, 12, 18};
    for (size_t i = 0, at = 0; i < DG_COUNT(pieces); at += (size_t)pieces[i++]) {
        dg_want want;
        dg_work w;
        dg_block_loop_want(&l, &want);
        ck_assert(want.prompt);
        ck_assert_int_eq(want.n_token, N - (int)at);
        ck_assert_int_eq(want.first, (int)at);
        ck_assert_int_eq(want.n_canvas, CANVAS); /* it fits behind all of the prompt */
        ck_assert_ptr_eq(want.picture, block + at);
        dg_block_loop_plan(&l, &w, (dg_grant){.n_token = pieces[i]});
        ck_assert_mem_eq(w.token, ids + at, (size_t)pieces[i] * sizeof *ids);
        ck_assert_ptr_eq(w.block, block + at);
        ck_assert_ptr_eq(w.feature, feature + at);
        ck_assert_ptr_eq(w.features, features);
        ck_assert_int_eq(w.n_canvas, 0);
        dg_kv_advance(&l.seq, w.n_token);
        dg_block_loop_take(&l, NULL);
    }
    dg_want want;
    dg_work w;
    say(&l, ids, CANVAS); /* a block has no pictures, and the next is cut where the context ends */
    dg_block_loop_want(&l, &want);
    ck_assert_int_eq(want.n_canvas, 5);
    ck_assert_ptr_null(want.picture);
    dg_block_loop_plan(&l, &w, (dg_grant){want.n_token, want.n_canvas});
    ck_assert(!w.block && !w.feature && !w.features);
    l.seq.n_token = 0; /* nothing was encoded */
    dg_block_loop_clear(&l);
    tiny_close(&t);
}
END_TEST

/* ---- what a step knows of the one before ---- */

/* The second step sees the soft embedding of the first, the first step of the next block does not.
 */
START_TEST(soft_embeddings_are_carried)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){0});
    size_t n = (size_t)CANVAS * (size_t)t.cfg.n_embd;
    dg_block_loop l;
    dg_block_loop_config cfg = config(&t);
    cfg.diffusion.confidence = 0; /* never sure: four steps */
    ck_assert_int_eq(dg_block_loop_init(&l, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
    tiny_canvas by_hand;
    tiny_canvas_init(&by_hand, &t, CANVAS, 1);
    for (int step = 0; step < 6; step++) {
        dg_work w;
        dg_kv_seq seq = {0};
        plan(&l, &w);
        ck_assert_int_eq(w.n_canvas, CANVAS);
        ck_assert_int_eq(w.first_step, step % 4 == 0);
        ck_assert_int_eq(w.last_step, step % 4 == 3);
        ck_assert_ptr_eq(w.soft, l.soft);
        if (step % 4) { /* nobody has touched what the last pass left */
            ck_assert_mem_eq(w.soft, by_hand.soft, n * sizeof *w.soft);
            float sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += w.soft[i] * w.soft[i];
            ck_assert_float_gt(sum, 0);
        }
        /* the same pass by hand, once as it should be and once without that memory */
        float entropy[2][CANVAS];
        for (int blind = 0; blind < 2; blind++) {
            dg_work same = w;
            tiny_canvas c;
            tiny_canvas_init(&c, &t, CANVAS, 1);
            memcpy(c.soft, w.soft, n * sizeof *c.soft);
            ck_assert_int_eq(dg_kv_share(t.kv, &seq, &l.seq, l.seq.n_token, NULL), DGEMMA_OK);
            same.seq = &seq;
            same.soft = c.soft;
            same.first_step = blind || step % 4 == 0;
            same.entropy = entropy[blind];
            same.argmax = c.argmax;
            same.drawn = c.drawn;
            ck_assert_int_eq(
                dg_forward_run(t.forward, &(dg_pass){.work = &same, .n_work = 1}, NULL), DGEMMA_OK);
            if (!blind)
                memcpy(by_hand.soft, c.soft, n * sizeof *c.soft);
            tiny_canvas_clear(&c);
            dg_kv_seq_clear(t.kv, &seq);
        }
        ck_assert_int_eq(dg_forward_run(t.forward, &(dg_pass){.work = &w, .n_work = 1}, NULL),
                         DGEMMA_OK);
        ck_assert_mem_eq(l.canvas.entropy, entropy[0], sizeof entropy[0]);
        if (step % 4)
            ck_assert_mem_ne(l.canvas.entropy, entropy[1], sizeof entropy[1]);
        dg_block_loop_take(&l, NULL);
    }
    tiny_canvas_clear(&by_hand);
    dg_block_loop_clear(&l);
    tiny_close(&t);
}
END_TEST

/* ---- pictures ---- */

enum { N_TOKEN = 60, FIRST = 10, END = 50 };
typedef struct stream_after {
    int layer;
    float *x;
    size_t n;
} stream_after;

static void keep_stream(void *arg, int layer, const float *x, int n_row)
{
    stream_after *s = arg;
    (void)n_row;
    if (layer == s->layer)
        memcpy(s->x, x, s->n * sizeof *x);
}

/* How the last row of a picture comes out of the first layer, which slides. */
static void encode_picture(tiny_model *t, const float *features, dg_image_rule rule, float *last)
{
    int32_t token[N_TOKEN], feature[N_TOKEN];
    dg_span block[N_TOKEN];
    size_t n_embd = (size_t)t->cfg.n_embd;
    for (int i = 0; i < N_TOKEN; i++) {
        bool image = i >= FIRST && i < END;
        token[i] = 20 + i;
        feature[i] = image ? i - FIRST : -1;
        block[i] = image ? (dg_span){FIRST, END} : (dg_span){i, i + 1};
    }
    stream_after after = {.layer = 1, .n = N_TOKEN * n_embd};
    after.x = dg_calloc(after.n, sizeof *after.x);
    dg_kv_seq seq = {0};
    dg_work w = {.seq = &seq,
                 .token = token,
                 .n_token = N_TOKEN,
                 .block = block,
                 .feature = feature,
                 .features = features};
    dg_taps taps = {.hidden = keep_stream, .hidden_arg = &after};
    dgemma_error err = {0};
    ck_assert_msg(dg_forward_run(t->forward,
                                 &(dg_pass){.work = &w, .n_work = 1, .images = rule, .taps = &taps},
                                 &err) == DGEMMA_OK,
                  "%s", err.msg);
    memcpy(last, after.x + (END - 1) * n_embd, n_embd * sizeof *last);
    dg_free(after.x);
    dg_kv_seq_clear(t->kv, &seq);
}

/* A picture sees all of itself even where the window of a sliding layer is shorter, and only where
 * the rule says so. */
START_TEST(a_picture_sees_itself_beyond_the_window)
{
    tiny_model t;
    tiny_open(&t, &(tiny_options){.fixture = "vision_generate"});
    size_t n_embd = (size_t)t.cfg.n_embd, n = (END - FIRST) * n_embd;
    ck_assert_int_gt(END - FIRST, 2 * t.cfg.layer[0].window);
    ck_assert_int_gt(t.cfg.layer[0].window, 0);
    float *features = dg_calloc(n, sizeof *features), *before = dg_calloc(n_embd, sizeof *before),
          *later = dg_calloc(n_embd, sizeof *later);
    for (int rule = DG_IMAGES_WHOLE; rule <= DG_IMAGES_IN_WINDOW; rule++) {
        dg_rng_key key = {.seed = 3};
        for (size_t i = 0; i < n; i++)
            features[i] = (float)dg_rng_uniform(&key, (uint32_t)i) - 0.5f;
        encode_picture(&t, features, (dg_image_rule)rule, before);
        for (size_t i = 0; i < n_embd; i++) /* its first row */
            features[i] = 0.5f - features[i];
        encode_picture(&t, features, (dg_image_rule)rule, later);
        bool changed = memcmp(before, later, n_embd * sizeof *before) != 0;
        ck_assert_int_eq(changed, rule == DG_IMAGES_WHOLE);
    }
    dg_free(features);
    dg_free(before);
    dg_free(later);
    tiny_close(&t);
}
END_TEST

Suite *block_loop_suite(void)
{
    Suite *s = suite_create("block_loop");
    TCase *t = tcase_create("block_loop");
    tcase_add_test(t, a_block_of_padding_ends_the_answer);
    tcase_add_test(t, padding_may_be_named);
    tcase_add_test(t, anything_else_goes_on);
    tcase_add_test(t, no_thought_opens_after_the_last);
    tcase_add_test(t, a_cut_thought_is_closed_as_learnt);
    tcase_add_test(t, thoughts_leave_room_for_an_answer);
    tcase_add_test(t, thoughts_are_limited_by_the_room);
    tcase_add_test(t, the_end_of_a_turn_comes_before_the_limit);
    tcase_add_test(t, a_full_answer_ends_with_its_block);
    tcase_add_test(t, prompts_are_checked);
    tcase_add_test(t, a_settled_beginning_is_held_and_read);
    tcase_add_test(t, logprobs_come_when_asked_for);
    tcase_add_test(t, a_stop_at_the_end_of_the_context);
    tcase_add_test(t, a_prompt_goes_on_where_it_was_left);
    tcase_add_test(t, soft_embeddings_are_carried);
    tcase_add_test(t, a_picture_sees_itself_beyond_the_window);
    suite_add_tcase(s, t);
    return s;
}
