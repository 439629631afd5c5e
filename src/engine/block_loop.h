/* One request on its way: encode the prompt, denoise a block, commit it, denoise the next. A state
 * machine that somebody advances pass by pass, not a function that loops, so that many can share a
 * pass.
 *
 *     dg_block_loop_want     says what it wants from the next pass; grants.h says what it gets
 *     dg_block_loop_plan     makes its part of the pass out of that
 *     dg_forward_run         runs it, perhaps together with other requests' parts
 *     dg_block_loop_take     takes the outcome in */
#ifndef DG_ENGINE_BLOCK_LOOP_H
#define DG_ENGINE_BLOCK_LOOP_H

#include "diffusion/canvas.h"
#include "engine/grants.h"
#include "engine/guide.h"
#include "engine/infill.h"
#include "engine/logprobs.h"
#include "engine/read.h"
#include "model/forward.h"

typedef struct dg_block_loop_config {
    const int32_t *prompt; /* copied; at least one token */
    int n_prompt;
    const dg_adapter_use *adapter; /* [n_adapter] borrowed */
    int n_adapter;
    dg_diffusion_options diffusion;
    int canvas_length; /* at most the model's */
    int max_tokens;    /* of the answer; at least 1 */
    int n_context;     /* prompt and answer together */
    dg_draws draws;
    bool no_self_conditioning; /* for measurement: each step forgets what the one before believed */
    dg_vocabulary_options vocabulary; /* bias and draw; what it points to is borrowed */
    bool logprobs;                    /* report log-probabilities with each block, */
    int n_top;                        /* and that many most likely tokens at each position */

    /* Pictures: for each token of the prompt the block and the row of features it stands for
     * (dg_work); NULL: none. Borrowed until the prompt is encoded. */
    const dg_span *block;
    const int32_t *feature;
    const float *features; /* backend memory */

    /* Thinking: the markers that open and close a thought (-1: the model has none), the words
     * between the first and the thought itself, which no budget counts, and the line's end that
     * stands before the second (-1: none); whether the prompt has opened a thought already, with
     * those words; and how many tokens thoughts may have together (-1: as many as leave room for an
     * answer). */
    int think_open, think_close, think_newline;
    const int32_t *think_head; /* [n_think_head] borrowed */
    int n_think_head;
    bool in_thought;
    int think_budget;

    int32_t stop_token[DGEMMA_MAX_STOP_TOKENS]; /* that end the answer beside the model's own */
    int n_stop_token;

    dg_guide
        *guide; /* holds the answer to a language, of which n_least tokens are a text; or NULL */
    int n_least;
    dg_read *read; /* one canvas is read behind the prompt, and nothing is said; or NULL */

    /* What the canvases start with, token by token of the answer; start.n 0: noise. Or the gap that
     * the answer fills, which ends it; NULL: there is none. Borrowed, and not with a guide. */
    dg_start start;
    const dg_infill *infill;
} dg_block_loop_config;

typedef enum dg_block_loop_end {
    DG_END_NONE,   /* still running */
    DG_END_STOP,   /* the model ended its turn, or left a whole block empty; or all was read */
    DG_END_LENGTH, /* max_tokens are there, or a gap without a text behind it filled its canvas */
    DG_END_CONTEXT /* the context is full */
} dg_block_loop_end;

typedef struct dg_block_loop {
    const dg_model *model;
    dg_kv_cache *kv;
    dg_block_loop_config cfg;

    dg_kv_seq seq;
    int32_t
        *pending; /* tokens to encode before the next step: the prompt, then each finished block */
    int n_pending, n_encoded;

    dg_canvas canvas;
    float *soft; /* [canvas_length, n_embd] backend memory */
    int block;
    int n_placed; /* positions of the canvases before this one */
    dg_gap gap;   /* of cfg.infill */
    bool trying;  /* the last step was to see whether the gap has that length */
    int n_try;
    int n_given;          /* tokens of the canvas that stand before a gap: no text of the answer */
    int32_t *start_token; /* [canvas_length] what a canvas around a gap starts with */
    uint8_t *start_pinned;
    bool canvas_open;    /* the block was begun and is not finished */
    bool canvas_in_pass; /* what dg_block_loop_plan put into the pass */
    int n_token_in_pass;

    /* tokens of the open block that are final: [0 … n_read) from n_given on is new text already. 0
     * unless settled_steps is set. */
    int n_read;
    dg_logprobs logprobs;

    /* the block that the last pass finished: tokens up to the stop token or the limit */
    bool block_done;
    int n_block_token;
    bool thought_closed; /* the budget ran out there: the thought's end was put behind those tokens
                          */

    bool in_thought;
    int n_thought, think_limit;
    int n_head, n_head_left; /* words before a thought: in each, and of this one's */
    int32_t banned[1];       /* once the budget is gone no new thought may open */
    dg_vocabulary_options options;

    dg_block_loop_end end;
    int32_t stop_token; /* the one that ended it, when end is DG_END_STOP; perhaps padding */
    bool stop_named;    /* it stands in the canvas behind the block's tokens, and is one of
                           cfg.stop_token */

    /* what happened so far */
    int n_output; /* tokens of the answer, without the stop token */
    int n_block, n_converged, n_step;
    double resistance; /* of the guide's steps, added up */
} dg_block_loop;

/* A prompt that leaves no room in the context, in the words that clients of such servers look for.
 * counted: it has so many tokens; otherwise at least as many, nobody counted on. */
dgemma_status dg_fail_context(dgemma_error *err, size_t n_context, size_t n_prompt, bool counted);

/* What is wrong with a configuration for this model: an empty prompt, one that leaves no room, an
 * id outside the vocabulary. */
dgemma_status dg_block_loop_check(const dg_block_loop_config *cfg, const dg_config *model,
                                  dgemma_error *err);

/* Tokens of the longest picture; a pass must have as many rows. */
int dg_block_loop_longest_picture(const dg_block_loop_config *cfg);

/* Nothing is computed yet. DGEMMA_E_CONTEXT when the prompt leaves no room in the context. */
dgemma_status dg_block_loop_init(dg_block_loop *l, const dg_model *model, dg_kv_cache *kv,
                                 const dg_block_loop_config *cfg, dgemma_error *err);
void dg_block_loop_clear(dg_block_loop *l);

/* What it wants of the next pass. */
void dg_block_loop_want(const dg_block_loop *l, dg_want *w);

/* Fills *w with what it was granted of that. */
void dg_block_loop_plan(dg_block_loop *l, dg_work *w, dg_grant grant);

/* What the outcome can be prepared for, while a device computes the pass. */
void dg_block_loop_prepare(dg_block_loop *l);

/* Takes in the outcome of the pass that dg_block_loop_plan asked for. Afterwards: canvas holds the
 * step just made, if canvas_in_pass; block_done says that canvas.argmax[n_given …] has
 * n_block_token of new text; end that it was the last. It fails only where a guide does. */
dgemma_status dg_block_loop_take(dg_block_loop *l, dgemma_error *err);

/* Bytes a request needs beside the cache's pages. */
size_t dg_block_loop_bytes(const dg_config *cfg, int canvas_length);

#endif
