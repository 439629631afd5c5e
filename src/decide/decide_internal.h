/* Shared by the files of decisions: decide.c is their life, decide_asked.c what they are asked,
 * decide_groups.c which questions go together, decide_layout.c what the model is shown,
 * decide_answers.c what its numbers mean. */
#ifndef DG_DECIDE_INTERNAL_H
#define DG_DECIDE_INTERNAL_H

#include "base/buf.h"
#include "dgemma.h"

enum {
    DECIDE_WIDTH = 64,  /* positions of a canvas, as far as its questions allow */
    DECIDE_ROUND = 16,  /* of which it has a multiple */
    DECIDE_LINES = 8,   /* lines that it has room for, at least */
    DECIDE_LINE = 16,   /* tokens of a line: "q256: label", and the line's end */
    DECIDE_HEAD = 16,   /* of an empty thought */
    DECIDE_LABEL = 4,   /* bytes of a label, with its NUL */
    DECIDE_FLIGHT = 64, /* requests of one decision that wait or run at a time */
    DECIDE_MORE = 3     /* further samples where one leaves doubt */
};

typedef struct decide_label {
    char text[DECIDE_LABEL];
    int32_t id; /* the token it is in its question's line */
} decide_label;

/* A question with its labels. */
typedef struct decide_question {
    dgemma_question_kind kind;
    char *text;
    dgemma_option *options; /* owned, with their strings */
    size_t n_options;
    decide_label *labels; /* [n_options]; NULL: one option needs none */
    int32_t line[DECIDE_LINE];
    int n_line, slot; /* its tokens, and which of them is the label */
    double *probability;
    dgemma_answer answer;
} decide_question;

/* What all prompts and canvases are made with. */
typedef struct decide_layout {
    dgemma_engine *engine;
    int canvas_length;
    int32_t head[DECIDE_HEAD]; /* an empty thought, where the template leaves that to the model */
    int n_head;
    int32_t newline, close, pad, think_open, think_close;
} decide_layout;

/* A canvas of a prompt, and what its samples found. */
typedef struct decide_canvas {
    size_t first, n; /* of the prompt's questions */
    int32_t token[DECIDE_WIDTH];
    int slot[DECIDE_WIDTH];
    int width;
    int32_t *ids; /* labels of all its questions, each once */
    size_t n_ids;
    int n_wanted, n_begun;
    size_t n_label;  /* of all its questions */
    double *logprob; /* [DGEMMA_MAX_SAMPLES or fewer, n_label] */
} decide_canvas;

/* Questions that the model is told of together. */
typedef struct decide_group {
    size_t *list; /* [n] which questions */
    size_t n, order;
    dgemma_prompt *prompt;
    decide_canvas *canvases;
    size_t n_canvas;
    bool thinks; /* the thought is not there yet */
    bool thinking;
    bool thought;    /* the prompt ends behind one */
    int32_t *tokens; /* of the thought */
    size_t n_tokens;
} decide_group;

/* A request on its way. */
typedef struct decide_flight {
    dgemma_request *request; /* NULL: free */
    decide_group *group;
    decide_canvas *canvas; /* NULL: it thinks */
    int sample;
} decide_flight;

struct dgemma_decision {
    decide_layout layout;
    dgemma_decide_options o; /* what it points to is not ours, and not looked at any more */
    decide_question *questions;
    size_t n_questions;
    decide_group *groups;
    size_t n_groups;
    decide_flight flights[DECIDE_FLIGHT];
    dgemma_notify_fn *notify;
    void *notify_user;
    dgemma_adapter_use adapters[DGEMMA_MAX_ADAPTER_USES];
    dg_buf thought;
    dgemma_stats stats;
    dgemma_status status;
    dgemma_error err;
    bool done;
};

/* ---- decide_asked.c ---- */

dgemma_status decide_check(const dgemma_decide_options *o, dgemma_error *err);

/* A copy of its own, to be cleared even when memory did not suffice. */
bool decide_copy_question(decide_question *q, const dgemma_question *from);
void decide_clear_question(decide_question *q);

/* ---- decide_groups.c ---- */

/* A group for each order of the options, of all questions list[0 … n) that need a read, or of each.
 * What does not think has its canvases then. */
dgemma_status decide_make_groups(dgemma_decision *d, const size_t *list, size_t n,
                                 dgemma_error *err);

/* Cuts the group's questions into canvases; behind a thought none of them begins with an empty one.
 */
dgemma_status decide_make_canvases(dgemma_decision *d, decide_group *g, dgemma_error *err);

void decide_clear_group(decide_group *g);

/* ---- decide_layout.c ---- */

dgemma_status decide_layout_init(decide_layout *l, dgemma_engine *e, dgemma_error *err);

/* Gives each question its labels and its line; those with one option need none. */
dgemma_status decide_label_all(const decide_layout *l, decide_question *q, size_t n,
                               dgemma_error *err);

/* What the model is told: the questions list[0 … n) with their options, which `order` turns on. */
bool decide_instructions(dg_buf *out, const decide_question *q, const size_t *list, size_t n,
                         size_t order);

/* A user's message of a text behind n pictures, as JSON. */
bool decide_message(dg_buf *out, const char *text, size_t n_media);

/* How many of the questions list[0 … n) one canvas takes, 0: not even the first. */
size_t decide_fit(const decide_layout *l, const decide_question *q, const size_t *list, size_t n,
                  bool thought);

/* Fills the canvas of those n: tokens[DECIDE_WIDTH or canvas_length], -1 where the label of list[i]
 * stands, which is slots[i]. Returns its width. */
int decide_fill(const decide_layout *l, const decide_question *q, const size_t *list, size_t n,
                bool thought, int32_t *tokens, int *slots);

/* ---- decide_answers.c: pure ---- */

/* p = softmax(logprob / temperature), and in *mass the sum of exp(logprob). */
void decide_softmax(double *p, double *mass, const double *logprob, size_t n, double temperature);

/* Which option the label i stands for, with the options of a choice turned on by `order`; yes, no
 * and levels are always what they are called. */
size_t decide_turned(const decide_question *q, size_t i, size_t order);

double decide_entropy(const double *p, size_t n);

/* Of reads[n_reads][n] distributions the mean, and all that is told of it. */
void decide_average(dgemma_answer *a, double *mean, const double *const *reads, const double *mass,
                    size_t n_reads, size_t n);

#endif
