/* Pinned tokens, canvases that start from a text, and gaps of unknown length: the rules on small
 * arrays, then requests on the pocket model and on one of random weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "base/rng.h"
#include "diffusion/canvas.h"
#include "diffusion/gap.h"
#include "engine/infill.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/cpu_engine.h"

static const dg_diffusion_options usual = {.max_steps = 8,
                                           .t_min = 0.4f,
                                           .t_max = 0.8f,
                                           .entropy_bound = 0.1f,
                                           .stability = 1,
                                           .confidence = 0.005f};

/* A model that says anything. */
static void invent(dg_canvas *c, uint32_t seed)
{
    dg_rng_key key = {.seed = seed, .step = (uint32_t)c->step};
    for (int i = 0; i < c->n; i++) {
        c->argmax[i] = (int32_t)dg_rng_below(&key, (uint32_t)i * 3, 50);
        c->drawn[i] = (int32_t)dg_rng_below(&key, (uint32_t)i * 3 + 1, 50);
        c->entropy[i] = (float)dg_rng_uniform(&key, (uint32_t)i * 3 + 2);
    }
}

/* Whatever the model says, and with whatever else is asked for. */
START_TEST(pinned_tokens_hold_through_every_step)
{
    enum { MOST = 24, N_CANVAS = 500 };
    dg_canvas c;
    ck_assert_int_eq(dg_canvas_init(&c, MOST, NULL), DGEMMA_OK);
    dg_draws draws = dg_draws_seeded(4, 50);
    for (uint32_t k = 0; k < N_CANVAS; k++) {
        dg_rng_key key = {.seed = k};
        int n = 1 + (int)dg_rng_below(&key, 0, MOST), n_pinned = 0;
        int32_t token[MOST];
        uint8_t pinned[MOST];
        for (int i = 0; i < n; i++) {
            token[i] = (int32_t)dg_rng_below(&key, 100 + (uint32_t)i, 50);
            pinned[i] = dg_rng_below(&key, 200 + (uint32_t)i, 2) == 1;
            n_pinned += pinned[i];
        }
        dg_diffusion_options opt = usual;
        opt.settled_steps = k % 3 == 0 ? 2 : 0;
        dg_canvas_begin(&c, &opt, &draws, (int)k, n);
        dg_canvas_start(&c, &draws,
                        &(dg_start){.token = token,
                                    .pinned = pinned,
                                    .n = n,
                                    .strength = (float)dg_rng_below(&key, 1, 5) / 4 + 0.01f});
        ck_assert_int_eq(c.pins.n, n_pinned);
        while (!c.finished) {
            for (int i = 0; i < n; i++)
                c.token[i] = k % 5 == 0 ? 7 : c.token[i]; /* a callback that meddles */
            dg_canvas_hold(&c);
            for (int i = 0; i < n; i++)
                ck_assert(!pinned[i] || c.token[i] == token[i]);
            invent(&c, k);
            int agree = 0;
            for (int i = 0; i < n; i++)
                agree += pinned[i] && c.argmax[i] == token[i];
            dg_canvas_advance(&c, &draws);
            ck_assert_int_eq(c.pins.n_agree, agree);
            double sum = 0;
            for (int i = 0; i < n; i++) {
                ck_assert(!pinned[i] || (c.token[i] == token[i] && c.argmax[i] == token[i] &&
                                         c.drawn[i] == token[i] && c.accepted[i]));
                sum += pinned[i] ? 0 : (double)c.entropy[i];
            }
            int n_free = n - n_pinned;
            ck_assert_float_eq_tol(c.mean_entropy, n_free ? (float)(sum / n_free) : 0, 1e-5f);
        }
        ck_assert(n_pinned < n || (c.converged && c.step == c.first_step + 1));
    }
    dg_canvas_clear(&c);
}
END_TEST

/* The bound is there for the others: as many of them are accepted as without the pins. */
START_TEST(pinned_tokens_cost_no_uncertainty)
{
    dg_canvas c;
    ck_assert_int_eq(dg_canvas_init(&c, 4, NULL), DGEMMA_OK);
    dg_draws draws = dg_draws_seeded(4, 50);
    dg_canvas_begin(&c, &usual, &draws, 0, 4);
    dg_canvas_start(&c, &draws,
                    &(dg_start){.token = (int32_t[]){1, -1, -1, 4},
                                .pinned = (uint8_t[]){1, 0, 0, 1},
                                .n = 4,
                                .n_padding = 1,
                                .strength = 1});
    ck_assert(c.token[0] == 1 && c.token[3] == 4); /* from the start, whatever the strength */
    for (int i = 0; i < 4; i++)
        c.argmax[i] = c.drawn[i] = 20 + i;
    memcpy(c.entropy, (float[]){3, 0.06f, 0.05f, 4}, 4 * sizeof(float));
    dg_canvas_advance(&c, &draws);
    ck_assert_float_eq(c.pins.doubt, 3); /* but for padding, what they would have cost */
    ck_assert_mem_eq(c.token, ((int32_t[]){1, 21, 22, 4}), 4 * sizeof(int32_t));
    ck_assert_int_eq(c.pins.n_agree, 0);
    dg_canvas_clear(&c);
}
END_TEST

/* Two hundred certain tokens do not make an uncertain gap certain. */
START_TEST(a_gap_is_done_when_its_own_places_are_certain)
{
    enum { N = 256, GAP = 16 };
    dg_canvas c;
    ck_assert_int_eq(dg_canvas_init(&c, N, NULL), DGEMMA_OK);
    dg_draws draws = dg_draws_seeded(4, 50);
    int32_t token[N];
    uint8_t pinned[N];
    for (int i = 0; i < N; i++) {
        token[i] = i < GAP ? -1 : i % 50;
        pinned[i] = i >= GAP;
    }
    dg_canvas_begin(&c, &usual, &draws, 0, N);
    dg_canvas_start(&c, &draws,
                    &(dg_start){.token = token, .pinned = pinned, .n = N, .strength = 1});
    for (int step = 0; step < 6; step++) {
        ck_assert(!c.finished);
        for (int i = 0; i < N; i++) {
            c.argmax[i] = c.drawn[i] = 9;
            c.entropy[i] = i < GAP && step < 4 ? 0.006f : 0; /* 0.0004 in the mean over all */
        }
        dg_canvas_advance(&c, &draws);
        ck_assert_int_eq(c.finished, step >= 4);
        if (c.finished)
            break;
    }
    ck_assert(c.converged);
    dg_canvas_clear(&c);
}
END_TEST

START_TEST(strength_says_how_much_becomes_noise)
{
    enum { N = 2000, VOCABULARY = 1 << 18 };
    dg_canvas from_noise, c;
    ck_assert_int_eq(dg_canvas_init(&from_noise, N, NULL), DGEMMA_OK);
    ck_assert_int_eq(dg_canvas_init(&c, N, NULL), DGEMMA_OK);
    dg_draws draws = dg_draws_seeded(11, VOCABULARY);
    int32_t *token = malloc(N * sizeof *token);
    for (int i = 0; i < N; i++)
        token[i] = i;
    static const float strengths[] = {1, 0.75f, 0.5f, 0.25f, 0.01f, 0};
    static const int first[] = {0, 2, 4, 6, 7, 7};
    dg_canvas_begin(&from_noise, &usual, &draws, 3, N);
    int before = 0;
    for (size_t k = 0; k < DG_COUNT(strengths); k++) {
        dg_canvas_begin(&c, &usual, &draws, 3, N);
        dg_canvas_start(&c, &draws, &(dg_start){.token = token, .n = N, .strength = strengths[k]});
        int kept = 0;
        for (int i = 0; i < N; i++) {
            ck_assert(c.token[i] == token[i] || c.token[i] == from_noise.token[i]);
            kept += c.token[i] == token[i];
        }
        ck_assert_int_eq(c.step, first[k]);
        ck_assert_int_ge(kept, before); /* less noise, and of the same places */
        ck_assert_float_eq_tol((float)kept / N, 1 - strengths[k], 0.04f);
        ck_assert_int_eq(c.pins.n, strengths[k] == 0 ? N : 0);
        before = kept;
    }
    /* at 1 it is the canvas from noise, its draws and all */
    dg_canvas_begin(&c, &usual, &draws, 3, N);
    dg_canvas_start(&c, &draws, &(dg_start){.token = token, .n = N, .strength = 1});
    ck_assert_mem_eq(c.token, from_noise.token, N * sizeof *c.token);
    ck_assert_mem_eq(c.uniform, from_noise.uniform, N * sizeof *c.uniform);
    /* where something is not known, all steps are made */
    token[7] = -1;
    dg_canvas_begin(&c, &usual, &draws, 3, N);
    dg_canvas_start(&c, &draws, &(dg_start){.token = token, .n = N, .strength = 0.25f});
    ck_assert_int_eq(c.step, 0);
    ck_assert_int_eq(c.token[7], from_noise.token[7]);
    free(token);
    dg_canvas_clear(&c);
    dg_canvas_clear(&from_noise);
}
END_TEST

/* A gap of `length`: other lengths are wrong by some tokens. */
static int search(int length, int most, int *n_try)
{
    dg_gap g;
    dg_gap_begin(&g, most);
    for (*n_try = 0; !g.found; (*n_try)++) {
        ck_assert_int_lt(*n_try, most + 1);
        ck_assert(g.length >= 1 && g.length <= most && !g.tried[g.length]);
        int off = abs(g.length - length);
        dg_gap_push(&g, dg_min(off, 5) * 4, 0.1f * (float)off, 0);
    }
    return g.length;
}

START_TEST(lengths_are_tried_until_one_agrees)
{
    int n_try;
    for (int length = 1; length <= 160; length++)
        ck_assert_int_eq(search(length, 160, &n_try), length);
    for (int most = 1; most < 40; most++)
        for (int length = 1; length <= most; length++)
            ck_assert_int_eq(search(length, most, &n_try), length);
    search(16, 160, &n_try);
    ck_assert_int_le(n_try, 15 + 6);
    search(1, 1, &n_try);
    ck_assert_int_eq(n_try, 0);
    search(2, 5, &n_try); /* that there is nothing shorter does not end the search */
    ck_assert_int_eq(n_try, 5);

    /* the ladder, of equal agreement the more certain, of equal ones the first */
    dg_gap g;
    dg_gap_begin(&g, 12);
    static const int order[] = {1, 2, 3, 4, 6, 8, 12, 7, 9, 10, 5, 11};
    for (size_t i = 0; i < DG_COUNT(order); i++) {
        ck_assert(!g.found);
        ck_assert_int_eq(g.length, order[i]);
        dg_gap_push(&g, 3, order[i] == 8 || order[i] == 9 ? 0.5f : 0.7f, 0);
    }
    ck_assert(g.found);
    ck_assert_int_eq(g.length, 8);
}
END_TEST

/* A length that the model itself points to is tried next, though no neighbour tells of it. */
START_TEST(lengths_that_were_seen_are_tried)
{
    dg_gap g;
    int n_try = 0;
    dg_gap_begin(&g, 40);
    for (; !g.found; n_try++)
        dg_gap_push(&g, g.length == 5 ? 0 : 4, 0, g.length == 8 ? 5 : 0);
    ck_assert_int_eq(g.length, 5);
    ck_assert_int_le(n_try, 15);

    /* of equal doubt the one that was seen, and the more often the better */
    dg_gap_begin(&g, 16);
    while (!g.found)
        dg_gap_push(&g, 1, 0.05f, g.length == 8 ? 5 : g.length > 8 ? 11 : 0);
    ck_assert_int_eq(g.length, 11);

    /* not every one, and none that there is no room for */
    dg_gap_begin(&g, 16);
    for (n_try = 0; !g.found; n_try++)
        dg_gap_push(&g, g.length, 0, 17);
    ck_assert_int_eq(g.length, 1);
    dg_gap_begin(&g, DG_GAP_MOST);
    for (n_try = 0; !g.found; n_try++) {
        ck_assert(!g.tried[g.length]);
        dg_gap_push(&g, g.length, 0, DG_GAP_MOST - 2 * n_try);
    }
    ck_assert_int_eq(g.length, 1);
    ck_assert_int_le(n_try, 18 + DG_GAP_SEEN);
}
END_TEST

START_TEST(what_follows_is_seen_in_a_gap)
{
    static const int32_t after[] = {5, 6, 7, 8};
    dg_infill f = {.after = after, .n_after = 4, .whole = true, .close = 9, .pad = 0};
    static const struct {
        int32_t text[10];
        int n_after, at;
    } cases[] = {
        {{1, 2, 5, 6, 7, 8, 9, 0, 0, 0}, 4, 2},
        {{1, 2, 3, 5, 6, 7, 9, 9, 0, 0}, 4, 3}, /* one that differs */
        {{1, 2, 3, 4, 6, 7, 8, 0, 0, 0}, 4, 3}, /* the first may be written otherwise */
        {{1, 5, 6, 1, 5, 6, 7, 1, 1, 1}, 4, 4}, /* the longest */
        {{1, 5, 6, 7, 1, 5, 6, 7, 1, 1}, 4, 1}, /* the first of equal ones */
        {{1, 2, 5, 6, 1, 1, 1, 1, 1, 1}, 4, 0}, /* too little */
        {{5, 6, 7, 8, 9, 0, 0, 0, 0, 0}, 4, 0}, /* there would be no gap */
        {{5, 6, 7, 8, 1, 5, 6, 7, 1, 1}, 4, 5},
        {{1, 5, 9, 0, 0, 0, 0, 0, 0, 0}, 1, 1}, /* all that there is */
        {{1, 5, 1, 1, 1, 1, 1, 1, 1, 9}, 1, 0},
        {{1, 1, 9, 1, 1, 9, 1, 1, 1, 1}, 0, 2}, /* the end alone */
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        f.n_after = cases[i].n_after;
        ck_assert_msg(dg_infill_seen(&f, cases[i].text, 10) == cases[i].at, "case %zu", i);
    }
    f.n_after = 4;
    ck_assert_int_eq(dg_infill_seen(&f, cases[0].text, 4), 0); /* behind the gap nothing is read */
    f.whole = false;
    ck_assert_int_eq(dg_infill_seen(&f, cases[1].text, 10), 3);
    f.n_after = 1; /* one word may stand anywhere */
    ck_assert_int_eq(dg_infill_seen(&f, cases[1].text, 10), 0);
    f.n_after = 0;
    ck_assert_int_eq(dg_infill_seen(&f, cases[1].text, 10), 0);
}
END_TEST

START_TEST(a_canvas_around_a_gap)
{
    int32_t after[] = {5, 6, 7}, known[] = {1, 2}, token[16];
    uint8_t pinned[16];
    dg_infill f = {.after = after, .n_after = 3, .whole = true, .close = 106, .pad = 0, .most = 9};
    ck_assert_int_eq(dg_infill_positions(&f, 2, 12), 12);
    dg_start s = dg_infill_start(&f, 2, 12, token, pinned);
    ck_assert_mem_eq(token, ((int32_t[]){-1, -1, 5, 6, 7, 106, 0, 0, 0, 0, 0, 0}),
                     12 * sizeof *token);
    ck_assert_mem_eq(pinned, ((uint8_t[]){0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), 12);
    ck_assert(s.n == 12 && s.n_padding == 6);
    dg_pins pins = {.n = 10, .n_agree = 9}; /* three tokens and the end count, padding does not */
    ck_assert_float_eq_tol(dg_infill_agreement(&f, &pins), 3.f / 4, 1e-6f);
    pins.n_agree = 2;
    ck_assert_float_eq(dg_infill_agreement(&f, &pins), 0);
    f.close = -1; /* no end is known: the text behind the gap is all that is pinned */
    ck_assert_int_eq(dg_infill_positions(&f, 2, 12), 5);
    f.close = 106;
    f.pad = -1;
    ck_assert_int_eq(dg_infill_positions(&f, 2, 12), 6);
    f.whole = false;
    ck_assert_int_eq(dg_infill_positions(&f, 2, 12), 5);
    ck_assert_int_eq(dg_infill_positions(&f, 2, 4), 4);
    f.known = known;
    f.strength = 0.5f;
    s = dg_infill_start(&f, 2, 5, token, pinned);
    ck_assert_mem_eq(token, ((int32_t[]){1, 2, 5, 6, 7}), 5 * sizeof *token);
    ck_assert(s.strength == 0.5f && !pinned[1] && pinned[2] && s.n_padding == 0);
    pins = (dg_pins){.n = 3, .n_agree = 2};
    ck_assert_float_eq_tol(dg_infill_agreement(&f, &pins), 2.f / 3, 1e-6f);
    f.n_after = 0;
    ck_assert_float_eq(dg_infill_agreement(&f, &(dg_pins){0}), 1);

    /* with the text before it: that is pinned too, what is known begins behind it */
    int32_t before[] = {3, 4, 8};
    f = (dg_infill){.before = before,
                    .n_before = 3,
                    .after = after,
                    .n_after = 2,
                    .whole = true,
                    .close = 106,
                    .pad = 0,
                    .known = known};
    ck_assert_int_eq(dg_infill_positions(&f, 2, 12), 12);
    s = dg_infill_start(&f, 2, 12, token, pinned);
    ck_assert_mem_eq(token, ((int32_t[]){3, 4, 8, 1, 2, 5, 6, 106, 0, 0, 0, 0}),
                     12 * sizeof *token);
    ck_assert_mem_eq(pinned, ((uint8_t[]){1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1}), 12);
    ck_assert_int_eq(s.n_padding, 4);
    pins = (dg_pins){.n = 10, .n_agree = 7}; /* six count */
    ck_assert_float_eq_tol(dg_infill_agreement(&f, &pins), 1.f / 2, 1e-6f);
    f.pad = -1;
    ck_assert_int_eq(dg_infill_positions(&f, 2, 12), 8);
}
END_TEST

/* ---- requests ---- */

static const char pocket[] = "models/pocket/pocket.gguf";
static const char random_model[] = "tests/fixtures/golden/sampler_finishes/model";

static dgemma_engine *open_engine(const char *path)
{
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = path;
    opt.n_threads = 1; /* several would wait for each other on a busy machine */
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    return e;
}

enum { MOST_IDS = 512 };

typedef struct said {
    char text[4096];
    size_t n;
    int32_t draft[MOST_IDS]; /* the last */
    size_t n_draft, n_steps;
    dgemma_stats stats;
    const dgemma_request_options *o; /* whose pins must hold in every draft */
} said;

static bool hear(void *user, const dgemma_event *e)
{
    said *s = user;
    if (e->kind == DGEMMA_EVENT_TEXT) {
        ck_assert_uint_lt(s->n + e->text_len, sizeof s->text);
        memcpy(s->text + s->n, e->text, e->text_len);
        s->n += e->text_len;
    }
    if (e->kind != DGEMMA_EVENT_DRAFT)
        return true;
    s->n_steps++;
    s->n_draft = e->n_tokens;
    memcpy(s->draft, e->tokens, e->n_tokens * sizeof *s->draft);
    for (size_t i = 0; s->o && s->o->pinned && i < s->o->n_canvas && i < e->n_tokens; i++) {
        ck_assert_int_eq(e->pinned[i], s->o->pinned[i]);
        ck_assert(!s->o->pinned[i] || e->tokens[i] == s->o->canvas[i]);
    }
    return true;
}

static void ask(dgemma_engine *e, const dgemma_request_options *o, said *s)
{
    dgemma_error err = {0};
    dgemma_request_options with_drafts = *o;
    with_drafts.drafts = true;
    *s = (said){.o = o};
    ck_assert_msg(!dgemma_generate(e, &with_drafts, hear, s, &s->stats, &err), "%s", err.msg);
    s->text[s->n] = 0;
}

enum { COUPLET = 1 };
static const char *const questions[] = {
    "What is the capital of France?",
    "Write a couplet about the sea.",
};

START_TEST(a_finished_canvas_stays_and_its_holes_are_filled)
{
    dgemma_engine *e = open_engine(pocket);
    dgemma_request_options o = dgemma_request_defaults(e);
    static said first, now;
    for (size_t k = 0; k < DG_COUNT(questions); k++) {
        o = dgemma_request_defaults(e);
        o.chat_prompt = questions[k];
        o.max_tokens = o.canvas_length;
        ask(e, &o, &first);
        int32_t canvas[MOST_IDS];
        uint8_t pinned[MOST_IDS];
        size_t n = first.n_draft;
        memcpy(canvas, first.draft, n * sizeof *canvas);
        o.canvas = canvas;
        o.n_canvas = n;
        o.strength = 0; /* nothing changes */
        ask(e, &o, &now);
        ck_assert_str_eq(now.text, first.text);
        ck_assert_uint_eq(now.n_steps, 1);
        o.strength = 0.5f;
        o.seed = 3;
        ask(e, &o, &now);
        if (k != COUPLET) /* which may have another animal in it, as from another seed */
            ck_assert_str_eq(now.text, first.text);
        ck_assert_uint_le(now.n_steps, (size_t)o.max_denoise_steps / 2);
        o.strength = 1; /* as from noise */
        o.pinned = NULL;
        ask(e, &o, &now);
        dgemma_request_options plain = o;
        plain.canvas = NULL;
        plain.n_canvas = 0;
        static said from_noise;
        ask(e, &plain, &from_noise);
        ck_assert_str_eq(now.text, from_noise.text);
        ck_assert_uint_eq(now.n_steps, from_noise.n_steps);
        for (size_t hole = 4; hole <= 8; hole += 4) {
            memset(pinned, 1, n);
            memcpy(canvas, first.draft, n * sizeof *canvas);
            for (size_t i = 2; i < 2 + hole; i++) {
                canvas[i] = -1;
                pinned[i] = 0;
            }
            o.pinned = pinned;
            ask(e, &o, &now);
            ck_assert_float_gt(now.stats.agreement, 0.9f);
            if (k != COUPLET)
                ck_assert_str_eq(now.text, first.text);
        }
    }
    dgemma_engine_close(e);
}
END_TEST

/* Random weights know nothing: pins hold all the same, over several blocks, alone and together. */
START_TEST(pins_hold_over_blocks_and_in_company)
{
    dgemma_engine *e = open_engine(random_model);
    dgemma_request_options o = dgemma_request_defaults(e);
    int32_t canvas[MOST_IDS];
    uint8_t pinned[MOST_IDS];
    size_t n = 3 * (size_t)o.canvas_length + 5;
    ck_assert_uint_le(n, MOST_IDS);
    for (size_t i = 0; i < n; i++) {
        pinned[i] = i % 3 != 1;
        canvas[i] = pinned[i] ? 300 + (int32_t)(i % 40) : -1;
    }
    o.chat_prompt = "Tell me.";
    o.max_tokens = (int)n + 10;
    o.max_denoise_steps = 3;
    o.canvas = canvas;
    o.pinned = pinned;
    o.n_canvas = n;
    int32_t alone[MOST_IDS];
    dgemma_request *r[3];
    dgemma_error err = {0};
    size_t n_alone = 0;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < (round ? 3 : 1); i++) {
            dgemma_request_options each = o;
            each.seed = (uint64_t)i;
            ck_assert_msg(!dgemma_request_submit(&r[i], e, &each, &err), "%s", err.msg);
        }
        for (int i = 0; i < (round ? 3 : 1); i++) {
            size_t at = 0;
            for (dgemma_event event; dgemma_request_wait(r[i], &event, -1);) {
                if (event.kind != DGEMMA_EVENT_BLOCK)
                    continue;
                for (size_t k = 0; k < event.n_tokens; k++, at++) {
                    ck_assert(at >= n || !pinned[at] || event.tokens[k] == canvas[at]);
                    if (!i && !round && at < MOST_IDS)
                        alone[n_alone++] = event.tokens[k];
                    else if (!i)
                        ck_assert_int_eq(alone[at], event.tokens[k]);
                }
            }
            ck_assert(i || at == n_alone);
            dgemma_request_free(r[i]);
        }
    }
    ck_assert_uint_gt(n_alone, 20);
    dgemma_engine_close(e);
}
END_TEST

/* Of an answer that the model gives, a piece is cut out; its length is found, and the piece. */
START_TEST(a_gap_of_unknown_length)
{
    static const struct {
        const char *question, *before, *after, *gap;
    } cases[] = {
        {"What is the capital of France?", "The capital of", " Paris.", " France is"},
    };
    dgemma_engine *e = open_engine(pocket);
    for (size_t k = 0; k < DG_COUNT(cases); k++) {
        static said s;
        dgemma_request_options o = dgemma_request_defaults(e);
        o.chat_prompt = cases[k].question;
        o.answer_prefix = cases[k].before;
        o.suffix = cases[k].after;
        ask(e, &o, &s);
        ck_assert_str_eq(s.text, cases[k].gap);
        ck_assert_int_eq(s.stats.end, DGEMMA_END_STOP);
        ck_assert_int_gt(s.stats.n_tries, 4);
        int n_prompt = s.stats.n_prompt;
        ck_assert_float_gt(s.stats.agreement, 0.9f);
        int n_token = s.stats.n_output;
        o.answer_prefix = "The capital of "; /* a blank that belongs to the next word */
        ask(e, &o, &s);
        ck_assert_str_eq(s.text, cases[k].gap + 1);
        o.answer_prefix = cases[k].before;
        o.suffix = ""; /* where nothing stands behind it, the model says where it ends */
        ask(e, &o, &s);
        ck_assert_str_eq(s.text, " France is Paris.");
        ck_assert_int_eq(s.stats.n_tries, 0);
        ck_assert_int_eq(s.stats.end, DGEMMA_END_STOP);
        ck_assert_int_eq(s.stats.n_prompt, n_prompt);
        o.suffix = cases[k].after;
        o.answer_prefix = "The capital of ";
        o.max_tokens = 1;
        ask(e, &o, &s);
        ck_assert_int_eq(s.stats.n_output, 1);
        o.max_tokens = 20;
        o.passage = "France is";
        o.keep_length = true;
        for (int i = 0; i <= 4; i++) {
            o.strength = (float)i / 4;
            o.settled_steps = i == 4;
            ask(e, &o, &s);
            ck_assert_str_eq(s.text, "France is");
            ck_assert_int_eq(s.stats.n_tries, 0);
            ck_assert_int_eq(s.stats.n_output, n_token);
        }
    }
    dgemma_engine_close(e);
}
END_TEST

/* Nothing stands behind the gap, and the rest of the canvas is too short for what there is to say.
 */
START_TEST(a_story_is_longer_than_its_canvas)
{
    static said s;
    dgemma_engine *e = open_engine(pocket);
    dgemma_request_options o = dgemma_request_defaults(e);
    o.chat_prompt = "Tell me a story about a fox.";
    o.answer_prefix = "This is a story about a fox. ";
    o.suffix = "";
    ask(e, &o, &s);
    ck_assert_int_gt(s.stats.n_output, 32);
    ck_assert_int_eq(s.stats.end, DGEMMA_END_LENGTH);
    dgemma_engine_close(e);
}
END_TEST

/* What a step's canvas must begin with. */
typedef struct {
    const int32_t *token;
    int n, n_step;
    bool whole; /* so far */
} beginning;

static bool begins_so(void *user, const dgemma_step *step)
{
    beginning *b = user;
    b->n_step++;
    b->whole = b->whole && step->n > b->n &&
               !memcmp(step->canvas, b->token, (size_t)b->n * sizeof *b->token) &&
               !memcmp(step->argmax, b->token, (size_t)b->n * sizeof *b->token);
    return true;
}

/* What stands before a gap is in its canvas, as far as there is room, and no part of the answer. */
START_TEST(what_stands_before_a_gap_is_pinned)
{
    dgemma_engine *e = open_engine(random_model);
    static const char *const prefixes[] = {"one two three",
                                           "one two three one two three one two "
                                           "three one two three one two three one two three"};
    for (size_t k = 0; k < DG_COUNT(prefixes); k++) {
        static said s;
        dgemma_request_options o = dgemma_request_defaults(e);
        int32_t ids[256];
        size_t n;
        ck_assert(!dgemma_tokenize(e, prefixes[k], strlen(prefixes[k]), false, ids, DG_COUNT(ids),
                                   &n, NULL));
        int room = o.canvas_length - 4 - 1 - 1; /* a gap of four, a token behind it, the end */
        beginning b = {.n = dg_min((int)n, room), .whole = true};
        b.token = ids + (int)n - b.n;
        o.chat_prompt = "hi";
        o.answer_prefix = prefixes[k];
        o.suffix = ".";
        o.max_tokens = 4;
        o.max_denoise_steps = 3;
        o.on_step = begins_so;
        o.step_user = &b;
        ask(e, &o, &s);
        ck_assert(b.whole && b.n_step > 4);
        ck_assert_int_le(s.stats.n_output, 4);
        ck_assert(!strstr(s.text, "one two"));
    }
    dgemma_engine_close(e);
}
END_TEST

/* Words of our own for the prompt; random weights fill any gap with something. */
START_TEST(a_gap_without_a_prompt)
{
    dgemma_engine *e = open_engine(random_model);
    static said s, again;
    dgemma_request_options o = dgemma_request_defaults(e);
    static const char *const suffixes[] = {"", " and so on", "é — ¾ <|turn> x"};
    for (size_t k = 0; k < DG_COUNT(suffixes); k++) {
        o.answer_prefix = k ? "It was  " : NULL;
        o.suffix = suffixes[k];
        o.passage = k == 2 ? "a day" : NULL;
        o.instruction = k == 2 ? "Shorter." : NULL;
        o.max_tokens = 5;
        o.max_denoise_steps = 3;
        ask(e, &o, &s);
        ck_assert_int_le(s.stats.n_output, 5);
        ck_assert(k ? s.stats.n_tries >= 1 : !s.stats.n_tries);
        ask(e, &o, &again);
        ck_assert_str_eq(s.text, again.text);
    }
    dgemma_engine_close(e);
}
END_TEST

static void refuse(dgemma_engine *e, const dgemma_request_options *o, dgemma_status want,
                   const char *says)
{
    dgemma_request *r = NULL;
    dgemma_error err = {0};
    dgemma_status st = dgemma_request_submit(&r, e, o, &err);
    dgemma_request_free(r);
    ck_assert_int_eq(st, want);
    ck_assert_msg(strstr(err.msg, says) != NULL, "\"%s\" is not in \"%s\"", says, err.msg);
}

/* Options that were fine until one of them changed. */
#define REFUSED(was, change, want, says)                                                           \
    do {                                                                                           \
        dgemma_request_options o = (was);                                                          \
        change;                                                                                    \
        refuse(e, &o, want, says);                                                                 \
    } while (0)

START_TEST(what_makes_no_sense_is_refused)
{
    dgemma_engine *e = open_engine(random_model);
    dgemma_request_options plain = dgemma_request_defaults(e);
    plain.chat_prompt = "hi";
    int32_t ids[] = {1, 2, -1};
    uint8_t pinned[] = {1, 0, 0}, unknown[] = {1, 0, 1};
    dgemma_constraint *c = NULL;
    dgemma_constraint_options digits = {DGEMMA_CONSTRAINT_REGEX, .text = "[0-9]", .text_len = 5};
    ck_assert_int_eq(dgemma_constraint_create(&c, &digits, NULL), DGEMMA_OK);
    REFUSED(plain, o.pinned = pinned, DGEMMA_E_ARG, "empty");
    REFUSED(plain, o.passage = "x", DGEMMA_E_ARG, "go with a suffix");

    dgemma_request_options canvas = plain;
    canvas.canvas = ids;
    canvas.n_canvas = 3;
    canvas.pinned = pinned;
    static const float wrong[] = {-0.1f, 1.1f, NAN};
    for (size_t i = 0; i < DG_COUNT(wrong); i++)
        REFUSED(canvas, o.strength = wrong[i], DGEMMA_E_ARG, "strength");
    REFUSED(canvas, o.n_canvas = 0, DGEMMA_E_ARG, "empty");
    REFUSED(canvas, o.pinned = unknown, DGEMMA_E_ARG, "2, which is pinned");
    REFUSED(canvas, ids[1] = 1 << 30, DGEMMA_E_ARG, "vocabulary");
    REFUSED(canvas, ids[1] = -2, DGEMMA_E_ARG, "vocabulary");
    ids[1] = 2;
    REFUSED(canvas, o.n_canvas = (size_t)1 << 40, DGEMMA_E_LIMIT, "context");
    REFUSED(canvas, o.n_logprobs = 0, DGEMMA_E_ARG, "n_logprobs");
    REFUSED(canvas, o.constraint = c, DGEMMA_E_ARG, "constraint goes with no canvas");
    REFUSED(canvas, o.suffix = "x", DGEMMA_E_ARG, "no canvas");

    dgemma_request_options gap = plain, anew;
    gap.suffix = " end";
    REFUSED(gap, o.constraint = c, DGEMMA_E_ARG, "constraint goes with no suffix");
    REFUSED(gap, o.thinking = true, DGEMMA_E_ARG, "thinking");
    REFUSED(gap, o.strength = 0.5f, DGEMMA_E_ARG, "to be found");
    REFUSED(gap, o.instruction = "Shorter.", DGEMMA_E_ARG, "instruction");
    REFUSED(gap, (o.chat_prompt = NULL, o.raw_prompt = "hi"), DGEMMA_E_ARG, "suffix");
    anew = gap;
    anew.keep_length = true;
    REFUSED(anew, o.passage = NULL, DGEMMA_E_ARG, "needs a passage");
    REFUSED(anew, o.passage = "", DGEMMA_E_ARG, "needs a passage");
    char *long_text = malloc(4001);
    for (int i = 0; i < 4000; i++)
        long_text[i] = (char)(i % 2 ? ' ' : 'a' + i / 2 % 26);
    long_text[4000] = 0;
    REFUSED(anew, o.passage = long_text, DGEMMA_E_LIMIT, "written anew at a time");
    free(long_text);
    dgemma_constraint_free(c);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(out_of_memory)
{
    dgemma_engine *e = open_engine(random_model);
    int32_t ids[] = {300, 301, -1};
    uint8_t pinned[] = {1, 0, 0};
    for (int gap = 0; gap < 2; gap++) {
        dgemma_request_options o = dgemma_request_defaults(e);
        dgemma_error err = {0};
        dgemma_stats stats;
        o.max_tokens = 3;
        o.max_denoise_steps = 2;
        o.drafts = true;
        if (gap) {
            o.answer_prefix = "It was ";
            o.suffix = " and so on";
            o.passage = "a day";
            o.instruction = "Shorter.";
        } else {
            o.chat_prompt = "hi";
            o.canvas = ids;
            o.pinned = pinned;
            o.n_canvas = 3;
        }
        ck_assert_msg(!dgemma_generate(e, &o, NULL, NULL, &stats, &err), "%s", err.msg);
        for (long n = 1;; n++) {
            dg_test_fail_alloc_at(n);
            dgemma_status st = dgemma_generate(e, &o, NULL, NULL, &stats, &err);
            bool reached = dg_test_alloc_done();
            if (st && st != DGEMMA_E_NOMEM)
                ck_abort_msg("allocation %ld: status %d, \"%s\"", n, (int)st, err.msg);
            if (!reached)
                break;
        }
        ck_assert_msg(!dgemma_generate(e, &o, NULL, NULL, &stats, &err), "%s", err.msg);
    }
    dgemma_engine_close(e);
}
END_TEST

Suite *pins_suite(void)
{
    Suite *s = suite_create("pins");
    TCase *t = tcase_create("pins");
    tcase_add_test(t, pinned_tokens_hold_through_every_step);
    tcase_add_test(t, pinned_tokens_cost_no_uncertainty);
    tcase_add_test(t, a_gap_is_done_when_its_own_places_are_certain);
    tcase_add_test(t, strength_says_how_much_becomes_noise);
    tcase_add_test(t, lengths_are_tried_until_one_agrees);
    tcase_add_test(t, lengths_that_were_seen_are_tried);
    tcase_add_test(t, what_follows_is_seen_in_a_gap);
    tcase_add_test(t, a_canvas_around_a_gap);
    suite_add_tcase(s, t);
    TCase *r = tcase_create("requests");
    tcase_add_test(r, a_finished_canvas_stays_and_its_holes_are_filled);
    tcase_add_test(r, pins_hold_over_blocks_and_in_company);
    tcase_add_test(r, a_gap_of_unknown_length);
    tcase_add_test(r, a_story_is_longer_than_its_canvas);
    tcase_add_test(r, what_stands_before_a_gap_is_pinned);
    tcase_add_test(r, a_gap_without_a_prompt);
    tcase_add_test(r, what_makes_no_sense_is_refused);
    tcase_add_test(r, out_of_memory);
    suite_add_tcase(s, r);
    return s;
}
