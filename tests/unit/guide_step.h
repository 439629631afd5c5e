/* One step of a canvas that is held to a language: the numbers of a model, what a backend would
 * answer to the guide's questions, and what the guide makes of that. Shared by the tests of the
 * guide. */
#ifndef DG_TESTS_GUIDE_STEP_H
#define DG_TESTS_GUIDE_STEP_H

#include "base/common.h"
#include "dgemma.h"
#include "engine/guide.h"
#include "suites.h"

enum { N = 3, MAX_VOCAB = 512, EOS = 1, TURN_END = 7, PAD = 0, THINK_OPEN = 8, THINK_CLOSE = 9 };

typedef struct word {
    int32_t token[N];
    double p; /* logarithm */
} word;

/* A step's numbers, all sequences that the language has, and the outcome. */
typedef struct step {
    dg_tokenizer *tokenizer;
    dg_token_trie *trie;
    dgemma_constraint *constraint;
    dg_language *language;
    dg_guide *guide;
    int n_vocab;
    double p[N][MAX_VOCAB], uniform[N]; /* p: logarithms */
    int32_t top[N][DG_ASKED_TOP];
    dg_class_finding found[N][DG_ASKED_CLASSES]; /* but for the draw */
    double warm[N][MAX_VOCAB];
    word *words;
    size_t n_word;
    bool has_class;
    dg_draw_options draw;
    int first;           /* positions before it are pinned */
    int64_t room;        /* tokens that the answer may have */
    int32_t canvas[N];   /* what the model saw, */
    uint8_t accepted[N]; /* and where it was put there */

    /* the model's own before the guide takes them, then the text's */
    int32_t argmax[N], drawn[N];
    float entropy[N];
    uint8_t forced[N];
} step;

double step_random(uint64_t seed, uint32_t block, uint32_t i);

/* A step with random numbers, in a language that is a regular expression, or a JSON Schema, which
 * begins with a brace; there is room enough. */
void step_open(step *s, const char *language, uint64_t seed);
void step_close(step *s);

/* The same in the middle of a thought, which the sequences do not know of. */
void step_open_in_thought(step *s, const char *regex, uint64_t seed);

/* The sequences with the probabilities as they are. */
void step_find_sequences(step *s);

/* Makes a token the likeliest of its position, by far. */
void step_insist(step *s, int i, int32_t token);

/* The token of a letter. */
int32_t step_token(const step *s, char letter);

/* A step before has put this token there. */
void step_tell(step *s, int i, int32_t token);

/* What a backend would find of words and classes, the draws aside, from the probabilities. */
void step_find_words(step *s);

/* Answers what the guide asks, and has it take that in with the model's own outcome in the arrays.
 */
void step_take(step *s);

/* Likewise where the model wants something else at every position. */
void step_take_overruled(step *s);

/* Both, with the model's likeliest tokens as its outcome. */
void step_take_likeliest(step *s);

#endif
