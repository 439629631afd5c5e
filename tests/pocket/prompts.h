/* The prompts of the evaluation: JSONL, a line
 *
 *   {"family": F, "id": I, "messages": […], "tools": […], "thinking": bool, "thought": bool,
 *    "n_prompt": N, "follows": bool, "least": N, "check": {…}}
 *
 * The id is a number or a text, unique in its family; messages and tools are in OpenAI's form,
 * pictures data: URLs. What may be left out: tools; thinking, for off; thought, whether the answer
 * must begin with one, for as thinking says; n_prompt, how many tokens the prompt must come to;
 * follows, whether the messages go on with the conversation of the line before, behind its answer;
 * least, of a hundred prompts of the family so many must be right.
 * A file whose name ends with .txt has the form of people.h. */
#ifndef DG_TESTS_PROMPTS_H
#define DG_TESTS_PROMPTS_H

#include <jansson.h>
#include <stdint.h>
#include "base/error.h"

typedef struct pocket_prompt {
    json_t *line; /* owned; the rest points into it */
    const char *family;
    char *id;                               /* "FAMILY/ID", owned */
    const json_t *messages, *tools, *check; /* tools: NULL for none */
    bool thinking, thought_due;
    bool follows;  /* goes on behind the answer to the prompt before it */
    int n_prompt;  /* 0: not known */
    int least;     /* 0: what holds for every family */
    uint64_t seed; /* of the id: the same answer in every run, whatever else is asked */
} pocket_prompt;

typedef struct pocket_prompts {
    pocket_prompt *at;
    size_t n;
} pocket_prompts;

/* Adds a file's prompts. DGEMMA_E_FORMAT: a line is not one; the message names it. */
dgemma_status pocket_prompts_read(pocket_prompts *p, const char *path, dgemma_error *err);
dgemma_status pocket_prompts_parse(pocket_prompts *p, const char *text, const char *name,
                                   dgemma_error *err);
void pocket_prompts_clear(pocket_prompts *p);

/* Keeps the prompts of one family (NULL: of all), and of each at most `limit` (0: all), evenly
 * spread over it; conversations stay whole. */
void pocket_prompts_select(pocket_prompts *p, const char *family, size_t limit);

/* FNV-1a, 64 bits. */
uint64_t pocket_seed(const char *id);

#endif
