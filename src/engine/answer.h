/* From passes to events: what a request has to say after each pass, in the order its reader sees
 * it. Text goes through the output parser and the stop strings on its way. */
#ifndef DG_ENGINE_ANSWER_H
#define DG_ENGINE_ANSWER_H

#include "engine/block_loop.h"
#include "engine/stream.h"
#include "text/output_parser.h"
#include "text/stop_strings.h"

/* What the request asked for, beside the model's work. */
typedef struct dg_answer_config {
    const dg_tokenizer *tokenizer; /* NULL: tokens only */
    bool drafts;
    bool in_thought;        /* the prompt has opened a thought */
    bool in_text;           /* the prompt holds the beginning of the answer */
    int n_blank;            /* so many blanks at the beginning of the text are the prompt's */
    bool single_call;       /* end after the first call */
    const int32_t *opening; /* [n_opening] borrowed: tokens at the prompt's end that are the
                         answer's structure, which the parser must see; or NULL */
    size_t n_opening;
    dgemma_step_fn *on_step;
    void *step_user;
    char **stop; /* [n_stop] borrowed */
    size_t n_stop;
} dg_answer_config;

typedef struct dg_answer {
    dg_answer_config cfg;
    dg_stream *stream;
    const dg_block_loop *loop;
    dg_output_parser *parser;
    dg_stop_strings *stop;
    double start;
    double block_seconds; /* of denoise_seconds, the open block's */
    int n_blank;          /* to be left out of the text that comes next */
    int n_told;           /* tokens of the block that went to the parser */
    int n_behind; /* tokens of the last block behind the place where the answer ended: not said */
    dg_buf run;   /* text to be sent, of one kind */
    dg_output_kind run_kind;
    bool waits_for_tools; /* the model ended with calls */
    bool stop_found, no_memory;
    dgemma_stats stats;
} dg_answer;

/* Everything is borrowed. */
dgemma_status dg_answer_init(dg_answer *a, const dg_answer_config *cfg, const dg_block_loop *loop,
                             dg_stream *stream, dgemma_error *err);
void dg_answer_clear(dg_answer *a);

/* Tells of the pass that the request has just taken in, which lasted `seconds`. *go_on: nothing
 * asks to end the request; a step callback may have changed the canvas. */
dgemma_status dg_answer_pass(dg_answer *a, dg_block_loop *loop, double seconds, bool *go_on,
                             dgemma_error *err);

/* Why the request ends, as the END event will say. */
dgemma_end dg_answer_reason(const dg_answer *a, dgemma_status st, bool cancelled);

/* The END event. `st` is how the work ended; cancelled: somebody asked for it. */
void dg_answer_end(dg_answer *a, dgemma_status st, const dgemma_error *err, bool cancelled);

#endif
