/* What differs from pass to pass: rows of many sequences, what each of them wants of the vocabulary
 * end, and what is found out. */
#ifndef DG_BACKEND_BACKEND_BATCH_H
#define DG_BACKEND_BACKEND_BATCH_H

#include <stdbool.h>
#include <stdint.h>
#include "backend/backend_memory.h"

/* ---- wishes for the vocabulary end ---- */

typedef struct dg_logit_bias {
    int32_t id;
    float bias;
} dg_logit_bias;

/* How a word is drawn where it is not simply from p: from softmax(z / temperature), of which the
 * filters leave the most likely words. In this order, each looking at what the last one left:
 *
 *     top_k   that many words
 *     top_p   as few as have top_p of the mass together; the word that reaches it is in
 *     min_p   those at least min_p times as likely as the most likely one
 *
 * The arg-max always stays and comes first. Behind it words are ranked by z / temperature in steps
 * of 1 / DG_DRAW_RANKS nats, and words of one step by id: so many words stay as should, but of two
 * whose probabilities differ by less than 0.8 % the one with the lower id may be taken for the
 * likelier. top_p counts with the mean of a step's words. With a filter, words further than
 * DG_DRAW_NATS below the arg-max never come up: together they have less than n_vocab * e^-32 of its
 * probability, 3.4e-9 at 262,144 words. */
enum { DG_DRAW_RANKS = 128, DG_DRAW_NATS = 32 };
typedef struct dg_draw_options {
    float temperature; /* on top of the step's own; 0: the arg-max is the draw */
    int top_k;         /* 0: off */
    float top_p;       /* 1: off; above 0 */
    float min_p;       /* 0: off */
} dg_draw_options;

/* One request's wishes for the vocabulary end. Bias and bans act on the logits before the
 * temperature, so the entropy, the draw and the soft embedding all see them; `draw` changes the
 * draw alone. */
enum { DG_MAX_TOP = 20 };

/* What is found out about the words of a class at a row. */
typedef struct dg_class_finding {
    double best;       /* log-probability of the likeliest; -infinity: it has no words */
    double mass;       /* log of the probability of all together */
    double inner;      /* sum of p ln p */
    double warm;       /* log of the sum of p^power; with power 1 that is mass */
    double uniform;    /* in: in [0, 1), for the draw; used up */
    int32_t id, drawn; /* the likeliest, the lowest id on ties; one drawn by p^power */
} dg_class_finding;

/* What a request wants to know of p at each row of its canvas, beside what everybody gets: exact
 * log-probabilities of certain words, sums over classes that every word is in one of, and the
 * likeliest words, likeliest first, equal ones by id (-1: there are no more). Host memory, n rows
 * of each, filled when finish() returns; bias and bans are in p, the draw's options are not. */
enum { DG_ASKED_MAX = 2048, DG_ASKED_CLASSES = 8, DG_ASKED_TOP = 64 };
typedef struct dg_asked {
    const int32_t *id; /* [n_id] ascending */
    int n_id;
    const uint8_t
        *class_of;    /* [n_vocab], each below DG_ASKED_CLASSES; NULL where no class is reported */
    unsigned classes; /* a mask: those that are reported */
    float power;      /* where there are classes, above 0: 1 / temperature of draws inside them */

    float *logprob;          /* [n, n_id] */
    dg_class_finding *found; /* [n, DG_ASKED_CLASSES] */
    int32_t *top_id;         /* [n, DG_ASKED_TOP] */
    float *top_logprob;
} dg_asked;

typedef struct dg_vocabulary_options {
    const dg_logit_bias *bias; /* ascending ids */
    int n_bias;
    const int32_t *banned; /* ascending ids; not all of them */
    int n_banned;
    const dg_draw_options *draw; /* NULL: from p */
    int n_top;                   /* most likely words to report, up to DG_MAX_TOP */
    const dg_asked *asked;       /* or NULL */
} dg_vocabulary_options;

/* ---- the batch ---- */

/* Positions [first, end). */
typedef struct dg_span {
    int first, end;
} dg_span;

/* A run of rows of one sequence, at consecutive positions. Encoded rows (prompt, commit) attend
 * causally and write their keys into the sequence's pages. Canvas rows attend both ways, over the
 * pages and over each other; their keys die with the pass. */
typedef struct dg_segment {
    bool canvas;
    int first_row, n_row;
    int position;                      /* of the first row */
    const int32_t *page[DG_KV_GROUPS]; /* page[g][i] holds positions i * DG_PAGE … */
    int n_page[DG_KV_GROUPS];
    const float *features; /* encoded: rows of picture features, in the backend's memory; or NULL */
    const dg_adapter_use *adapter; /* [n_adapter] */
    int n_adapter;

    /* canvas: */
    float *soft; /* [n_row, n_embd] the backend's memory. In: the last step's soft embedding. Out:
                    this step's. NULL: there is none */
    bool first_step; /* soft does not hold anything yet */
    bool last_step;  /* nobody needs this step's soft embedding: it may be made or not */
    float temperature;
    const dg_vocabulary_options *options; /* or NULL */
} dg_segment;

/* How the tokens of a picture see each other. WHOLE: their block whole, in every layer and even
 * beyond the window, as the reference's generate() does. IN_WINDOW: in sliding layers only and
 * inside the window, as Gemma 4 does. */
typedef enum dg_image_rule { DG_IMAGES_WHOLE, DG_IMAGES_IN_WINDOW } dg_image_rule;

/* What the vocabulary end finds out about each canvas row: host memory, filled when finish()
 * returns. */
typedef struct dg_findings {
    float *entropy; /* [n] nats; NaN: the row's p is not a number, its other results mean nothing */
    int32_t *argmax; /* [n] lowest id on ties */
    int32_t *drawn;  /* [n] the first id whose cumulative p, in vocabulary order, exceeds uniform */
    float *logits;   /* [n, n_vocab] after softcap and bias, before the temperature; or NULL */

    /* Log-probabilities in p, or NULL. Of the arg-max [n]; of the most likely words [n,
     * DG_MAX_TOP], likeliest first, equal ones by id: as many as the row's options say. Id -1:
     * there are no more words. */
    float *logprob;
    int32_t *top_id;
    float *top_logprob;
} dg_findings;

typedef struct dg_batch {
    int n_row;
    int n_encode;            /* rows [0, n_encode) are encoded, the rest are canvas */
    const int32_t *token;    /* [n_row] */
    const int32_t *position; /* [n_row] */
    const dg_span *block;   /* [n_row] image block an encoded row belongs to; {p, p + 1} for text */
    const int32_t *feature; /* [n_row] row of its segment's features that replaces the embedding, or
                               -1; NULL: no row has one */
    dg_image_rule images;
    int n_segment;
    const dg_segment *segment; /* in the order of their rows */
    const dg_kv_store *kv;     /* has the segments' pages; NULL where no stage asks for them */

    /* for the vocabulary end; n_row - n_encode of each */
    const double *uniform; /* in [0, 1) */
    const float *given; /* [n, n_vocab]: take these as z instead of computing it (teacher forcing);
                           host memory, or NULL */
    dg_findings out;

    bool watched; /* the caller downloads between stages */

    /* Work for the host while a device computes: by finish(), once, or not at all. NULL: none. */
    void (*meanwhile)(void *arg);
    void *meanwhile_arg;
} dg_batch;

/* The segment that a row is in. */
static inline const dg_segment *dg_batch_segment(const dg_batch *b, int row)
{
    int lo = 0, hi = b->n_segment - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (b->segment[mid].first_row <= row)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &b->segment[lo];
}

/* The keys an encoded row at position p sees. window 0: no limit. */
static inline dg_span dg_encode_span(int p, dg_span block, int window, dg_image_rule images)
{
    int first = window && p >= window ? p - window + 1 : 0;
    dg_span seen = {first, p + 1};
    if (images == DG_IMAGES_IN_WINDOW && !window)
        return seen;
    seen.end = block.end > seen.end ? block.end : seen.end;
    if (images == DG_IMAGES_WHOLE && block.first < first)
        seen.first = block.first;
    return seen;
}

/* The prefix keys that a canvas starting at position p sees, the same for each of its rows: the
 * last window - 1. */
static inline dg_span dg_canvas_span(int p, int window)
{
    return (dg_span){window && p >= window ? p - window + 1 : 0, p};
}

#endif
