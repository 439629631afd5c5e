#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/file.h"
#include "base/rng.h"
#include "engine/constraint_data.h"
#include "guide_step.h"

enum { MAX_WORDS = 1 << 18 };

static const int32_t stops[] = {EOS, TURN_END};

double step_random(uint64_t seed, uint32_t block, uint32_t i)
{
    dg_rng_key key = {.seed = seed, .block = block};
    return dg_rng_uniform(&key, i);
}

static void add_words(step *s, dg_place at, bool done, int i, word w)
{
    if (i == N) {
        ck_assert_uint_lt(s->n_word, MAX_WORDS);
        s->words[s->n_word++] = w;
        return;
    }
    if (done) {
        w.token[i] = PAD;
        w.p += s->p[i][PAD];
        add_words(s, at, true, i + 1, w);
        return;
    }
    dg_token_edges e = {0};
    dg_edges bytes;
    bool wide;
    dgemma_error err = {0};
    ck_assert(!dg_token_edges_find(s->trie, s->language, at, NULL, &e, &wide, &err) && !wide);
    for (size_t k = 0; k < e.n; k++) {
        s->has_class |= e.at[k].is_class;
        for (int32_t v = 0; v < s->n_vocab; v++)
            if (e.at[k].is_class ? dg_token_trie_classes(s->trie)[v] == e.at[k].token
                                 : v == e.at[k].token) {
                word next = w;
                next.token[i] = v;
                next.p += s->p[i][v];
                add_words(s, e.at[k].to, false, i + 1, next);
            }
    }
    dg_token_edges_clear(&e);
    ck_assert(!dg_language_edges(s->language, at, &bytes, &err));
    for (size_t k = 0; bytes.accepts && k < DG_COUNT(stops); k++) {
        word next = w;
        next.token[i] = stops[k];
        next.p += s->p[i][stops[k]];
        add_words(s, at, true, i + 1, next);
    }
}

static void open_step(step *s, const char *language, uint64_t seed, bool thinks)
{
    dg_buf text;
    dgemma_error err = {0};
    *s = (step){.draw = {1, 0, 1, 0}, .room = 1000};
    dg_buf_init(&text, 1 << 24);
    ck_assert(!dg_file_read(&text, "tests/fixtures/tiny_tokenizer.json", &err));
    ck_assert(!dg_tokenizer_from_json(&s->tokenizer, text.data, text.len, "tiny", &err));
    dg_buf_clear(&text);
    ck_assert(!dg_token_trie_create(&s->trie, s->tokenizer, 0, &err));
    s->n_vocab = (int)dg_token_trie_count(s->trie);
    ck_assert_int_le(s->n_vocab, MAX_VOCAB);
    dgemma_constraint_options opt = {.kind = language[0] == '{' ? DGEMMA_CONSTRAINT_JSON_SCHEMA
                                                                : DGEMMA_CONSTRAINT_REGEX,
                                     .text = language,
                                     .text_len = strlen(language)};
    ck_assert_msg(!dgemma_constraint_create(&s->constraint, &opt, &err), "%s", err.msg);
    ck_assert(!dg_language_create(&s->language, s->constraint->syntax, &err));
    dg_guide_options o = {.syntax = s->constraint->syntax,
                          .trie = s->trie,
                          .tokenizer = s->tokenizer,
                          .stop = stops,
                          .n_stop = DG_COUNT(stops),
                          .pad = PAD,
                          .n_canvas = N,
                          .n_most = 1000,
                          .think_open = thinks ? THINK_OPEN : -1,
                          .think_close = thinks ? THINK_CLOSE : -1,
                          .in_thought = thinks,
                          .thinks = thinks};
    ck_assert_msg(!dg_guide_create(&s->guide, &o, &err), "%s", err.msg);
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int v = 0; v < s->n_vocab; v++) {
            s->p[i][v] = 6 * step_random(seed, (uint32_t)i, (uint32_t)v);
            if (v == PAD || v == EOS || v == TURN_END)
                s->p[i][v] += 4;
            sum += exp(s->p[i][v]);
        }
        for (int v = 0; v < s->n_vocab; v++) /* as a backend gives them */
            s->p[i][v] = (double)(float)(s->p[i][v] - log(sum));
    }
    s->words = malloc(MAX_WORDS * sizeof *s->words);
    ck_assert_ptr_nonnull(s->words);
    step_find_sequences(s);
}

void step_find_sequences(step *s)
{
    s->n_word = 0;
    add_words(s, dg_language_start(s->language), false, 0, (word){.p = 0});
    ck_assert_uint_gt(s->n_word, 0);
}

void step_open(step *s, const char *language, uint64_t seed)
{
    open_step(s, language, seed, false);
}

void step_open_in_thought(step *s, const char *regex, uint64_t seed)
{
    open_step(s, regex, seed, true);
}

void step_close(step *s)
{
    free(s->words);
    dg_guide_free(s->guide);
    dg_language_free(s->language);
    dgemma_constraint_free(s->constraint);
    dg_token_trie_free(s->trie);
    dg_tokenizer_free(s->tokenizer);
}

void step_find_words(step *s)
{
    const uint8_t *class_of = dg_token_trie_classes(s->trie);
    for (int i = 0; i < N; i++) {
        bool used[MAX_VOCAB] = {false};
        for (int k = 0; k < DG_ASKED_TOP; k++) {
            int best = -1;
            for (int v = 0; v < s->n_vocab; v++)
                if (!used[v] && (best < 0 || s->p[i][v] > s->p[i][best]))
                    best = v;
            used[best] = true;
            s->top[i][k] = best;
        }
        for (int c = 0; c < DG_ASKED_CLASSES; c++)
            s->found[i][c] = (dg_class_finding){.best = -INFINITY, .id = -1, .drawn = -1};
        for (int v = 0; v < s->n_vocab; v++) {
            dg_class_finding *f = &s->found[i][class_of[v]];
            double power = s->draw.temperature > 0 ? 1 / (double)s->draw.temperature : 1;
            s->warm[i][v] = exp(s->p[i][v] * power);
            if (s->p[i][v] > f->best)
                f->id = v;
            f->best = fmax(f->best, s->p[i][v]);
            f->mass += exp(s->p[i][v]);
            f->warm += s->warm[i][v];
            f->inner += exp(s->p[i][v]) * s->p[i][v];
        }
    }
}

static dg_class_finding find_class(const step *s, const dg_asked *a, int i, int c, double uniform)
{
    dg_class_finding f = s->found[i][c];
    double sum = 0;
    for (int v = 0; v < s->n_vocab && sum <= uniform * f.warm; v++)
        if (a->class_of[v] == c) {
            sum += s->warm[i][v];
            f.drawn = v;
        }
    f.mass = log(f.mass);
    f.warm = log(f.warm);
    return f;
}

void step_insist(step *s, int i, int32_t token)
{
    for (int v = 0; v < s->n_vocab; v++)
        s->p[i][v] -= 9;
    s->p[i][token] = -0.05;
}

/* Bytes come first in the vocabulary, letters later. */
int32_t step_token(const step *s, char letter)
{
    size_t len;
    int32_t found = -1;
    for (int32_t v = 0; v < s->n_vocab; v++) {
        const char *text = dg_token_trie_text(s->trie, v, &len);
        if (text && len == 1 && *text == letter)
            found = v;
    }
    ck_assert_int_ge(found, 0);
    return found;
}
void step_tell(step *s, int i, int32_t token)
{
    s->canvas[i] = token;
    s->accepted[i] = 1;
}

void step_take(step *s)
{
    dgemma_error err = {0};
    const dg_asked *a = dg_guide_ask(s->guide, s->uniform, N, &s->draw);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < a->n_id; k++)
            a->logprob[i * a->n_id + k] = (float)s->p[i][a->id[k]];
        for (int c = 0; c < DG_ASKED_CLASSES; c++) {
            dg_class_finding *f = &a->found[i * DG_ASKED_CLASSES + c];
            if (a->classes >> c & 1)
                *f = find_class(s, a, i, c, f->uniform);
        }
        for (int k = 0; k < DG_ASKED_TOP; k++) {
            a->top_id[i * DG_ASKED_TOP + k] = s->top[i][k];
            a->top_logprob[i * DG_ASKED_TOP + k] = (float)s->p[i][s->top[i][k]];
        }
    }
    dg_guide_step g = {.first = s->first,
                       .n = N,
                       .room = s->room,
                       .canvas = s->canvas,
                       .accepted = s->accepted,
                       .uniform = s->uniform,
                       .draw = &s->draw,
                       .argmax = s->argmax,
                       .drawn = s->drawn,
                       .entropy = s->entropy,
                       .forced = s->forced};
    ck_assert_msg(!dg_guide_take(s->guide, &g, &err), "%s", err.msg);
}

void step_take_overruled(step *s)
{
    for (int i = 0; i < N; i++)
        s->argmax[i] = -1;
    step_take(s);
}

void step_take_likeliest(step *s)
{
    step_find_words(s);
    for (int i = 0; i < N; i++)
        s->argmax[i] = s->top[i][0];
    step_take(s);
}
