/* What answers of the evaluation can be held to, to see what that costs them. */
#ifndef DG_TESTS_HELD_H
#define DG_TESTS_HELD_H

#include "pocket/prompts.h"

typedef enum held_to {
    HELD_TO_NOTHING,
    HELD_TO_OWN, /* JSON to objects of the keys and types that are wanted, calls to the tools that
                    are shown */
    HELD_TO_RENAMED /* JSON to the same with keys that the model has never written, and nothing else
                     */
} held_to;

/* *out is NULL where there is nothing to hold this prompt's answer to; otherwise the caller's. */
dgemma_status held_constraint(dgemma_constraint **out, held_to to, const pocket_prompt *p,
                              dgemma_error *err);

#endif
