/* Shared by the files of the guide: guide_steps.c is its life and its steps, guide_graph.c what may
 * follow what, guide_weights.c what the model thinks of it. */
#ifndef DG_ENGINE_GUIDE_INTERNAL_H
#define DG_ENGINE_GUIDE_INTERNAL_H

#include "constraint/token_groups.h"
#include "constraint/word.h"
#include "engine/guide.h"

/* States of the graph over tokens: some of its own, then the places of the language. */
enum {
    STATE_DONE,    /* the turn has ended */
    STATE_START,   /* at the beginning: a thought may open */
    STATE_THOUGHT, /* in it */
    STATE_HEAD,    /* behind what opens it, and behind each of the words that follow */
    MAX_HEAD = 12,
    FIRST_PLACE = STATE_HEAD + MAX_HEAD + 1
};

/* Labels of edges: classes of tokens, whatever ends the turn, groups of tokens, single ones. */
enum { LABEL_END = DG_ASKED_CLASSES, FIRST_GROUP, FIRST_TOKEN = FIRST_GROUP + DG_TOKEN_MAX_GROUPS };

/* In the place of a number: further than an answer may be; not found, the language is too complex.
 */
enum { NEED_FAR = 1 << 30, NEED_LOST };

/* What is known of a place. */
typedef struct known_place {
    uint32_t need;  /* tokens of a way to the end, + 1; 0: not looked for yet; NEED_… */
    int32_t token;  /* the first of that way, */
    dg_place to;    /* and where it leads */
    uint32_t seen;  /* the step that last looked at it */
    uint32_t asked; /* the question that had its tokens */
    uint32_t first_edge,
        n_edge; /* in `kept`, but for what a position adds; 0: not looked for yet */
    bool wide, free_text;
    int8_t listed; /* the way's first token is among its edges; -1: not looked for yet */
} known_place;

/* A group in the light of what is asked. */
typedef struct known_group {
    uint32_t version;  /* of the question */
    uint32_t first, n; /* of its tokens in `member`, which are asked for */
    bool whole;        /* all of them are */
} known_group;

struct dg_guide {
    dg_guide_options o;
    dg_language *language;
    dg_token_groups *groups;
    dg_word *word;
    int32_t *symbol; /* ids of the syntax's symbols */
    bool may_think;
    uint32_t n_most; /* tokens of a way that is looked for */

    /* places */
    known_place *place;
    size_t cap_place;
    dg_place *touched; /* places of the last step, in the order of their positions */
    size_t n_touched, cap_touched;
    dg_place *way; /* scratch: places on a way to the end, and its bytes */
    size_t cap_way;
    dg_buf ending;
    size_t *symbol_at; /* [n_symbol_at] where in `ending` symbols stand, and which */
    uint32_t *symbol_id;
    size_t n_symbol_at, cap_symbol_at, cap_symbol_id;

    /* the question and its answers */
    dg_asked asked;
    int32_t *id;       /* [DG_ASKED_MAX] */
    uint16_t *slot_of; /* [n_vocab] which of the asked ones it is, + 1 */
    uint32_t version;

    /* weights */
    known_group *group;
    uint16_t *member;
    size_t cap_group, n_member, cap_member;

    /* the step */
    dg_word_edge *kept; /* edges of places */
    size_t n_kept, cap_kept;
    dg_word_edge *edge; /* scratch */
    size_t n_edge, cap_edge;
    dg_word_edge *drawn;  /* [n_canvas] */
    uint32_t *path;       /* [n_canvas + 1] the state at each position */
    dg_word_edge *known;  /* [n_canvas] the edges of that path */
    bool knows_path;      /* the next step of the block has them too */
    double *most;         /* [n_canvas] log-probability of the likeliest token */
    dg_draw_options draw; /* of the step */
    bool warms;           /* draws are not from the model's own probabilities */
    float *least;         /* [n_canvas] log-probability of tokens that filters let be */
    uint32_t step;        /* counts up */
    int first;            /* position of the canvas that the word begins at */
    int n_held;           /* so many edges of `known` from there on are all that may be */
    int64_t room;         /* from there on */
    bool bounded;
    float resistance;
    bool no_memory; /* a weight could not be made: the step fails */
    bool unfit;     /* how far a place is from the end was not found out */
};

dgemma_status dg_guide_grow(void **array, size_t *cap, size_t n, size_t size, dgemma_error *err);
#define GUIDE_GROW(g, name, n, err)                                                                \
    ((n) <= (g)->cap_##name                                                                        \
         ? DGEMMA_OK                                                                               \
         : dg_guide_grow((void **)&(g)->name, &(g)->cap_##name, n, sizeof *(g)->name, err))

/* ---- guide_graph.c ---- */

dgemma_status dg_guide_edges(void *user, uint32_t state, size_t position,
                             const dg_word_edge **edges, size_t *n, dgemma_error *err);

/* The state has this edge only because the token is among the likeliest of a position. */
bool dg_guide_is_passing(const dg_guide *g, uint32_t state, uint32_t label);

/* Tokens from a state to the end of the answer. */
dgemma_status dg_guide_need_of(dg_guide *g, uint32_t state, uint32_t *need, dgemma_error *err);

/* All that is known of places is void. */
void dg_guide_forget_places(dg_guide *g);

/* Places that can be reached soonest, in `touched`. */
dgemma_status dg_guide_explore(dg_guide *g, dgemma_error *err);

/* ---- guide_weights.c ---- */

dg_word_weight dg_guide_weigh(void *user, size_t position, uint32_t label);

/* The logarithm of what the draw thinks of it: to the power of 1 / temperature, and where filters
 * leave tokens out these are next to impossible. */
double dg_guide_warm(void *user, size_t position, uint32_t label);

/* Which log-probability filters ask for at each of n rows from `first` on. */
void dg_guide_filter(dg_guide *g, int first, int n);

/* Asks for the tokens of the places that were touched. */
dgemma_status dg_guide_question(dg_guide *g, dgemma_error *err);

/* The token that a label stands for at a position of the canvas: the likeliest, or one drawn. */
int32_t dg_guide_best_token(dg_guide *g, int row, uint32_t label);
int32_t dg_guide_drawn_token(dg_guide *g, int row, uint32_t label, double uniform);

/* The label stands for this token, perhaps among others. */
bool dg_guide_has_token(const dg_guide *g, uint32_t label, int32_t token);

/* What the model thinks of a token. */
double dg_guide_logprob(const dg_guide *g, int row, int32_t token);

/* The place a state stands for; DG_PLACE_DEAD: none. */
static inline dg_place dg_guide_place(const dg_guide *g, uint32_t state)
{
    if (state == STATE_START)
        return dg_language_start(g->language);
    return state >= FIRST_PLACE ? state - FIRST_PLACE : DG_PLACE_DEAD;
}

#endif
