/* Questions and answers of decisions in files, for the command line. */
#ifndef DG_CLI_DECIDE_QUESTIONS_H
#define DG_CLI_DECIDE_QUESTIONS_H

#include <stdio.h>
#include "cli.h"

/* A list of questions with their names; strings are owned. */
typedef struct cli_questions {
    dgemma_question list[DGEMMA_MAX_QUESTIONS];
    char *name[DGEMMA_MAX_QUESTIONS]; /* NULL: its text is all there is */
    size_t n;
} cli_questions;

void cli_questions_clear(cli_questions *q);

/* One more: text alone, or "text=a,b,c" with its options. */
bool cli_questions_add(cli_questions *q, dgemma_question_kind kind, const char *text);

/* Those of a file: {"id": {"type": "noul" | "choice" | "score", "instructions", "criteria"}}, or an
 * object that has them as "questions"; "-" is standard input. */
dgemma_status cli_questions_read(cli_questions *q, const char *path, dgemma_error *err);

/* Names that are not UTF-8, or that two questions or two options share, are refused: answers go by
 * their names. */
dgemma_status cli_questions_check(const cli_questions *q, dgemma_error *err);

/* A line of a file of cases: {"state", "questions", "answers": {"id": true | "name" | level}}.
 * *state is the caller's (dg_free); answer[i] the option that is right. */
dgemma_status cli_case_read(cli_questions *q, char **state, size_t *answer, const char *line,
                            size_t len, dgemma_error *err);

/* An answer as a line for people, or all of them as JSON in the form of System One. */
void cli_answer_print(FILE *out, const cli_questions *q, size_t i, const dgemma_answer *a);
bool cli_answers_print_json(FILE *out, const cli_questions *q, const dgemma_decision *d);

#endif
