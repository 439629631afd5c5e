#include "pocket/people.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

enum { MAX_TYPED = 4096 };

/* Where the reader is. All strings are owned. */
typedef struct people {
    char *kind, *rule; /* of the heading; rule NULL: each line has its own */
    char *tool;        /* offered to the conversation that comes next, or goes on */
    char *typed;       /* of the conversation so far */
    int least;         /* of a hundred prompts of this kind, so many must be right */
    int n;             /* prompts of this kind */
    dg_buf *out;
} people;

static dgemma_status broken(const char *what, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_FORMAT, "%s", what);
}

static dgemma_status no_memory(dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for prompts");
}

static void set(char **field, char *value)
{
    dg_free(*field);
    *field = value;
}

/* The text in front of `mark`, which becomes what is behind it; NULL where there is no mark. */
static char *cut(char *line, const char *mark)
{
    char *at = strstr(line, mark);
    if (!at)
        return NULL;
    *at = '\0';
    return at + strlen(mark);
}

/* ---- tools: `name(parameter, parameter: type): what it does` ---- */

static bool add_parameter(json_t *properties, json_t *required, char *text)
{
    text += strspn(text, " ");
    const char *type = cut(text, ": ");
    return json_object_set_new(properties, text,
                               json_pack("{s:s}", "type", type ? type : "string")) == 0 &&
           json_array_append_new(required, json_string(text)) == 0;
}

static json_t *tool_of(char *text)
{
    char *parameters = cut(text, "("), *does = parameters ? cut(parameters, "): ") : NULL, *more;
    if (!does)
        return NULL;
    json_t *properties = json_object(), *required = json_array();
    bool ok = properties && required;
    for (char *p = parameters; ok && p; p = more) {
        more = cut(p, ",");
        ok = add_parameter(properties, required, p);
    }
    json_t *tool = json_pack("{s:s, s:{s:s, s:s, s:{s:s, s:o, s:o}}}", "type", "function",
                             "function", "name", text, "description", does, "parameters", "type",
                             "object", "properties", properties, "required", required);
    if (!ok) {
        json_decref(tool);
        return NULL;
    }
    return tool;
}

/* ---- checks ---- */

/* `call NAME {…}` */
static json_t *call_check(const char *rule)
{
    const char *space = strchr(rule, ' ');
    json_t *arguments = space ? json_loads(space, 0, NULL) : NULL;
    if (!arguments)
        return NULL;
    return json_pack("{s:s, s:[{s:s%, s:o}]}", "kind", "calls", "calls", "name", rule,
                     (size_t)(space - rule), "arguments", arguments);
}

static json_t *check_of(const char *rule, const char *typed)
{
    if (strncmp(rule, "json ", 5) == 0) {
        json_t *value = json_loads(rule + 5, JSON_DECODE_ANY, NULL);
        return value ? json_pack("{s:s, s:o}", "kind", "json", "value", value) : NULL;
    }
    if (strncmp(rule, "call ", 5) == 0)
        return call_check(rule + 5);
    return json_pack("{s:s, s:s, s:s}", "kind", "person", "rule", rule, "typed", typed);
}

/* ---- lines ---- */

static dgemma_status write_prompt(people *p, json_t *check, json_t *tool, const char *typed,
                                  bool goes_on, dgemma_error *err)
{
    json_t *line = json_pack("{s:s+, s:i, s:i, s:b, s:[{s:s, s:s}], s:o, s:o}", "family", "typed ",
                             p->kind, "id", p->n++, "least", p->least, "follows", goes_on,
                             "messages", "role", "user", "content", typed, "check", check, "tools",
                             tool ? json_pack("[o]", tool) : json_array());
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    bool ok = text && dg_buf_append(p->out, text, strlen(text)) && dg_buf_append(p->out, "\n", 1);
    free(text);
    json_decref(line);
    return ok ? DGEMMA_OK : no_memory(err);
}

static dgemma_status remember(people *p, const char *typed, bool goes_on, dgemma_error *err)
{
    dg_buf all;
    dg_buf_init(&all, MAX_TYPED);
    bool ok = (!goes_on || dg_buf_append(&all, p->typed, strlen(p->typed))) &&
              dg_buf_append(&all, "\n", 1) && dg_buf_append(&all, typed, strlen(typed) + 1);
    if (ok)
        set(&p->typed, dg_strdup(all.data));
    dg_buf_clear(&all);
    return ok && p->typed ? DGEMMA_OK : no_memory(err);
}

static dgemma_status read_typed(people *p, char *line, bool goes_on, dgemma_error *err)
{
    const char *rule = cut(line, " => ");
    rule = rule ? rule : p->rule;
    if (!p->kind || !rule)
        return broken(p->kind ? "no rule" : "no heading", err);
    if (goes_on && !p->typed)
        return broken("no conversation to go on with", err);
    dgemma_status st = remember(p, line, goes_on, err);
    if (st)
        return st;
    json_t *check = check_of(rule, p->typed), *tool = p->tool ? tool_of(p->tool) : NULL;
    if (!check || (p->tool && !tool)) {
        json_decref(check);
        json_decref(tool);
        return broken(check ? "a tool that cannot be read" : "a rule that cannot be read", err);
    }
    set(&p->tool, NULL);
    return write_prompt(p, check, tool, line, goes_on, err);
}

static dgemma_status read_heading(people *p, char *line, dgemma_error *err)
{
    const char *rule = cut(line, " => "), *kind = cut(line, " % ");
    if (!kind)
        return broken("a heading without its percentage", err);
    p->least = atoi(line);
    set(&p->kind, dg_strdup(kind));
    set(&p->rule, rule ? dg_strdup(rule) : NULL);
    p->n = 0;
    return p->kind && (!rule || p->rule) ? DGEMMA_OK : no_memory(err);
}

static dgemma_status read_line(people *p, char *line, dgemma_error *err)
{
    if (strncmp(line, "## ", 3) == 0)
        return read_heading(p, line + 3, err);
    if (!*line || *line == '#')
        return DGEMMA_OK;
    if (strncmp(line, "* ", 2) == 0) {
        set(&p->tool, dg_strdup(line + 2));
        return p->tool ? DGEMMA_OK : no_memory(err);
    }
    bool goes_on = strncmp(line, "+ ", 2) == 0;
    return read_typed(p, goes_on ? line + 2 : line, goes_on, err);
}

dgemma_status people_as_jsonl(dg_buf *out, const char *text, dgemma_error *err)
{
    people p = {.out = out};
    char *copy = dg_strdup(text), *next;
    dgemma_status st = copy ? DGEMMA_OK : no_memory(err);
    int number = 1;
    for (char *line = copy; !st && line; line = next, number++) {
        dgemma_error why = {0};
        next = cut(line, "\n");
        st = read_line(&p, line, &why);
        if (st)
            dg_fail(err, st, "line %d: %s", number, why.msg);
    }
    dg_free(copy);
    dg_free(p.kind);
    dg_free(p.rule);
    dg_free(p.tool);
    dg_free(p.typed);
    return st;
}
