/* Who gets which rows of a pass: a pure function from what each wants to what each is granted.
 *
 * Those with canvases come with everything they want, as long as there are rows. Prompts have a
 * room of their own, so that somebody with a book does not make everybody's steps long, and share
 * it evenly. A picture sees itself both ways and is never cut: when it comes next it is granted
 * whole, beyond a share and beyond that room, but never beyond the pass. Whoever gets nothing is
 * the first in the next pass; so everyone comes to its turn. */
#ifndef DG_ENGINE_GRANTS_H
#define DG_ENGINE_GRANTS_H

#include "backend/backend.h"

/* What one wants of a pass. All zero: nothing. */
typedef struct dg_want {
    int n_token;  /* to encode */
    int n_canvas; /* behind the last of them */
    bool prompt;  /* the tokens are a prompt's: they come out of the prompts' room */

    /* [n_token] the picture each token belongs to, in positions of which the first token has
     * `first`; NULL: there are none. Tokens may be cut in front of and behind a picture. */
    const dg_span *picture;
    int first;
} dg_want;

/* How much of it comes into the pass: n_token of its tokens; n_canvas is all of its canvas or 0. */
typedef struct dg_grant {
    int n_token, n_canvas;
} dg_grant;

typedef struct dg_grant_rule {
    int max_row;         /* of the pass */
    int max_prompt;      /* of one prompt */
    int min_prompt_room; /* of all prompts while canvases run, at least; else as many as canvases */
    int min_prompt_share; /* of one prompt, while there are rows */
} dg_grant_rule;

/* Fills grant[n] for want[n], beginning with want[turn]. Returns the turn of the next pass: the
 * first that wants something and got nothing, the same turn when there is none. */
int dg_grants(dg_grant *grant, const dg_want *want, int n, int turn, const dg_grant_rule *rule);

/* What one alone is granted of so many rows. */
dg_grant dg_grant_alone(const dg_want *want, int max_row);

#endif
