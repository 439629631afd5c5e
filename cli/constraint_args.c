#include "constraint_args.h"
#include <string.h>
#include "base/buf.h"
#include "base/file.h"
#include "cells.h"

enum { CONSTRAINT_MAX = 4 << 20 };

static bool add_choice(void *target, const char *text)
{
    cli_constraint_args *a = target;
    if (a->n_choice == CLI_MAX_CHOICES)
        return false;
    a->choices[a->n_choice++] = text;
    return true;
}

static bool allow_tool(void *target, const char *text)
{
    cli_constraint_args *a = target;
    if (a->n_allowed == CLI_MAX_CHOICES)
        return false;
    a->allowed[a->n_allowed++] = text;
    return true;
}

void cli_options_add_constraint(cli_options *o, cli_constraint_args *a, const char *heading)
{
    const cli_option rows[] = {
        {0, heading, NULL, NULL, NULL, NULL},
        {0, "json-schema", "SCHEMA",
         "instances of a JSON Schema: a file (- is standard input), or the schema itself",
         cli_set_string, &a->schema},
        {0, "json-object", NULL, "any JSON object", cli_set_switch, &a->json_object},
        {0, "regex", "RE", "what a regular expression matches as a whole", cli_set_string,
         &a->regex},
        {0, "choice", "TEXT", "this text, or that of another --choice", add_choice, a},
        {0, "grammar", "FILE", "texts of a GBNF grammar", cli_set_string, &a->grammar},
        {0, "compact", NULL, "JSON without white space", cli_set_switch, &a->compact},
        {0, "lenient", NULL, "leave out what of a schema is not supported", cli_set_switch,
         &a->lenient},
    };
    cli_options_add(o, rows, sizeof rows / sizeof rows[0]);
}

void cli_options_add_tools(cli_options *o, cli_constraint_args *a)
{
    const cli_option rows[] = {
        {0, "tools", "FILE", "turns with calls of these tools, in the model's own syntax",
         cli_set_string, &a->tools},
        {0, "tool-choice", "WORD", "auto, none, required, or the name of a tool (auto)",
         cli_set_string, &a->tool_choice},
        {0, "allow-tool", "NAME", "of the tools, this one, or that of another --allow-tool",
         allow_tool, a},
        {0, "one-call", NULL, "at most one call", cli_set_switch, &a->one_call},
    };
    cli_options_add(o, rows, sizeof rows / sizeof rows[0]);
}

int cli_constraint_count(const cli_constraint_args *a)
{
    return (a->schema != NULL) + (a->regex != NULL) + (a->grammar != NULL) + (a->n_choice != 0) +
           (a->tools != NULL) + a->json_object;
}

const char *cli_constraint_mistake(const cli_constraint_args *a)
{
    if (a->compact && !a->schema && !a->json_object)
        return "--compact goes with --json-schema or --json-object";
    if (a->lenient && !a->schema)
        return "--lenient goes with --json-schema";
    return NULL;
}

/* A word that is none of the others names a tool. */
static void set_tools(dgemma_constraint_options *opt, const cli_constraint_args *a)
{
    static const char *const words[] = {"auto", "none", "required"};
    const char *choice = a->tool_choice ? a->tool_choice : words[0];
    size_t i = 0;
    while (i < 3 && strcmp(choice, words[i]) != 0)
        i++;
    opt->tool_choice = (dgemma_tool_choice)i;
    opt->single_tool_call = a->one_call;
    opt->choices = i == DGEMMA_TOOLS_NAMED ? &a->tool_choice : a->allowed;
    opt->n_choices = i == DGEMMA_TOOLS_NAMED ? 1 : a->n_allowed;
}

static dgemma_constraint_kind kind_of(const cli_constraint_args *a)
{
    return a->schema        ? DGEMMA_CONSTRAINT_JSON_SCHEMA
           : a->tools       ? DGEMMA_CONSTRAINT_TOOLS
           : a->json_object ? DGEMMA_CONSTRAINT_JSON_OBJECT
           : a->regex       ? DGEMMA_CONSTRAINT_REGEX
           : a->grammar     ? DGEMMA_CONSTRAINT_GRAMMAR
                            : DGEMMA_CONSTRAINT_CHOICE;
}

/* An object, or one of the two words that are schemas; no file is called like that. */
static bool is_schema(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '{' || !strcmp(text, "true") || !strcmp(text, "false");
}

static void tell_ignored(const char *command, const char *list)
{
    if (!list[0])
        return;
    fprintf(stderr, "dgemma %s: not held to:\n", command);
    cli_safe_write(stderr, list, strlen(list));
}

dgemma_status cli_constraint_make(dgemma_constraint **out, const char *command,
                                  const cli_constraint_args *a, dgemma_error *err)
{
    const char *path = a->schema && !is_schema(a->schema) ? a->schema
                       : a->tools                         ? a->tools
                                                          : a->grammar;
    dgemma_constraint_options opt = {.kind = kind_of(a),
                                     .text = a->schema ? a->schema : a->regex,
                                     .choices = a->choices,
                                     .n_choices = a->n_choice,
                                     .compact = a->compact,
                                     .lenient = a->lenient};
    if (a->tools)
        set_tools(&opt, a);
    dg_buf text;
    dg_buf_init(&text, CONSTRAINT_MAX);
    dgemma_status st = path ? dg_file_read(&text, path, err) : DGEMMA_OK;
    if (path)
        opt.text = text.data ? text.data : "";
    opt.text_len = path ? text.len : opt.text ? strlen(opt.text) : 0;
    if (!st) {
        st = dgemma_constraint_create(out, &opt, err);
        if (st && path)
            cli_name_file(err, path);
    }
    if (!st)
        tell_ignored(command, dgemma_constraint_ignored(*out));
    dg_buf_clear(&text);
    return st;
}
