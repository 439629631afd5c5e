/* A request's canvas, held to a language. The model says what it thinks of each position; the guide
 * finds the most probable text that the language lets be, which takes the place of the arg-max.
 * Where the two agree nothing changes; where they do not, it says how sure one may be of the
 * position given that the text is in the language.
 *
 * It knows where in the language the answer stands, and carries that from block to block. Thoughts
 * run free in front of it. What it lets be can always be brought to an end within the tokens that
 * are left. One thread at a time. */
#ifndef DG_ENGINE_GUIDE_H
#define DG_ENGINE_GUIDE_H

#include "backend/backend.h"
#include "constraint/tokens.h"

typedef struct dg_guide dg_guide;

typedef struct dg_guide_options {
    const dg_syntax *syntax; /* borrowed, as all others, for as long as the guide lives */
    const dg_token_trie *trie;
    const dg_tokenizer *tokenizer;
    const int32_t *stop; /* tokens that end the turn */
    int n_stop;
    int32_t pad;
    int n_canvas; /* most positions of a canvas */
    int n_most;   /* tokens that the answer may have in all; what is further off is not looked at */

    /* As in dg_block_loop_config. */
    int think_open, think_close;
    const int32_t *think_head;
    int n_think_head;
    bool in_thought;
    bool thinks; /* a thought may say something; otherwise an empty one may stand in front */
} dg_guide_options;

/* *out belongs to the caller (dg_guide_free). DGEMMA_E_ARG: the language names a special token that
 * the vocabulary does not have. */
dgemma_status dg_guide_create(dg_guide **out, const dg_guide_options *options, dgemma_error *err);
void dg_guide_free(dg_guide *g); /* NULL is fine */

/* Tokens that suffice to bring the answer to its end, from where it stands. */
dgemma_status dg_guide_need(dg_guide *g, int *need, dgemma_error *err);

/* What the guide wants to know of the next step over a canvas of n positions, `uniform` being their
 * draws; `draw` as in dg_vocabulary_options. The guide's own, until the next call. */
const dg_asked *dg_guide_ask(dg_guide *g, const double *uniform, int n,
                             const dg_draw_options *draw);

/* A step whose answers have come. Positions before `first` are pinned. */
typedef struct dg_guide_step {
    int first, n;
    int64_t room;                /* tokens that the answer may have from the canvas's first on */
    const int32_t *canvas;       /* [n] what the model saw, */
    const uint8_t *accepted;     /* [n] and where the step before had put it there; NULL: nowhere */
    const double *uniform;       /* [n] as asked, */
    const dg_draw_options *draw; /* and this: at temperature 0 the most probable text is drawn */

    /* [n], from `first` on: the model's own, which stays where its arg-max is what the text holds.
     * Elsewhere the text's, one drawn from the language, and the entropy given the language. */
    int32_t *argmax, *drawn;
    float *entropy;
    float *logprob; /* of argmax in the model's own distribution; or NULL */

    /* [n] written: the model was overruled, and nothing else could be there, since the language
     * leaves no choice, the answer is over or the text keeps to what the model was told. */
    uint8_t *forced;
} dg_guide_step;

/* Takes in what was asked. DGEMMA_E_LIMIT: the language is too complex for the canvas. */
dgemma_status dg_guide_take(dg_guide *g, const dg_guide_step *step, dgemma_error *err);

/* The block ends behind n tokens of the last step's text. thought_closed: an end was put behind
 * them, and no thought may open any more. */
dgemma_status dg_guide_commit(dg_guide *g, int n, bool thought_closed, dgemma_error *err);

/* What was committed is a text of the language, whole. */
dgemma_status dg_guide_complete(dg_guide *g, bool *complete, dgemma_error *err);

/* The last step would have gone on with something more probable, had there been room. */
bool dg_guide_bounded(const dg_guide *g);

/* How much the model resisted in the last step: the negative logarithm of what it gave all texts
 * that could be, for each position; 0 where it thought of nothing else. */
float dg_guide_resistance(const dg_guide *g);

#endif
