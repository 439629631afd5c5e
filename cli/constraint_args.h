/* The options that name a constraint, for every command that takes one. */
#ifndef DG_CLI_CONSTRAINT_ARGS_H
#define DG_CLI_CONSTRAINT_ARGS_H

#include "request_args.h"

enum { CLI_MAX_CHOICES = 1024 };

typedef struct cli_constraint_args {
    const char *schema, *regex, *grammar, *tools, *tool_choice;
    const char *choices[CLI_MAX_CHOICES], *allowed[CLI_MAX_CHOICES];
    size_t n_choice, n_allowed;
    bool json_object, compact, lenient, one_call;
} cli_constraint_args;

/* With the heading given. */
void cli_options_add_constraint(cli_options *o, cli_constraint_args *a, const char *heading);

/* Those of turns with calls of tools. */
void cli_options_add_tools(cli_options *o, cli_constraint_args *a);

/* How many were named. */
int cli_constraint_count(const cli_constraint_args *a);

/* What is said of a constraint that is not there; NULL: nothing. */
const char *cli_constraint_mistake(const cli_constraint_args *a);

/* Compiles the one that was named; what of a lenient schema is left out is said on standard error.
 * *out belongs to the caller. */
dgemma_status cli_constraint_make(dgemma_constraint **out, const char *command,
                                  const cli_constraint_args *a, dgemma_error *err);

#endif
