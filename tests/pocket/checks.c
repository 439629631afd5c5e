#include "pocket/checks.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "base/error.h"
#include "pocket/grammar.h"
#include "pocket/person.h"
#include "pocket/words.h"

typedef struct judging {
    const json_t *check;
    const pocket_answer *answer;
    const char *grammars;
    pocket_verdict *verdict;
} judging;

DG_PRINTF(2, 3) static dgemma_status wrong(judging *j, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(j->verdict->why, sizeof j->verdict->why, fmt, args);
    va_end(args);
    return DGEMMA_OK;
}

static dgemma_status right(judging *j)
{
    j->verdict->right = true;
    return DGEMMA_OK;
}

static dgemma_status lacks(const char *kind, const char *what, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_FORMAT, "a check of kind \"%s\" lacks %s", kind, what);
}

/* Equal but for space at both ends. */
static bool same_text(const char *a, const char *b)
{
    while (isspace((unsigned char)*a))
        a++;
    while (isspace((unsigned char)*b))
        b++;
    size_t n = strlen(a), m = strlen(b);
    while (n && isspace((unsigned char)a[n - 1]))
        n--;
    while (m && isspace((unsigned char)b[m - 1]))
        m--;
    return n == m && memcmp(a, b, n) == 0;
}

/* json_equal, but 3 and 3.0 are the same number. The parser bounds the depth of both. */
static bool same_json(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_is_integer(a) && json_is_integer(b)
                   ? json_integer_value(a) == json_integer_value(b)
                   : json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        size_t n = json_array_size(a);
        for (size_t i = 0; i < n && n == json_array_size(b); i++)
            if (!same_json(json_array_get(a, i), json_array_get(b, i)))
                return false;
        return n == json_array_size(b);
    }
    if (!json_is_object(a))
        return json_equal(a, b);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value)
    {
        const json_t *other = json_object_get(b, key);
        if (!other || !same_json(value, other))
            return false;
    }
    return json_object_size(a) == json_object_size(b);
}

/* ---- a checker for each kind ---- */

static dgemma_status check_exact(judging *j, dgemma_error *err)
{
    const char *text = json_string_value(json_object_get(j->check, "text"));
    if (!text)
        return lacks("exact", "its text", err);
    return same_text(j->answer->text, text) ? right(j) : wrong(j, "wanted: %.200s", text);
}

/* What the answer says behind the first of these lines that begins it; NULL: none does. */
static const char *behind_one(const char *answer, const json_t *lines)
{
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const char *line = json_string_value(json_array_get(lines, i));
        size_t n = line ? strlen(line) : 0;
        if (n && strncmp(answer, line, n) == 0 && answer[n] == '\n')
            return answer + n + 1;
    }
    return NULL;
}

static dgemma_status check_any(judging *j, dgemma_error *err)
{
    const json_t *texts = json_object_get(j->check, "texts"),
                 *lines = json_object_get(j->check, "behind");
    const char *answer = lines ? behind_one(j->answer->text, lines) : j->answer->text;
    if (!json_array_size(texts))
        return lacks("any", "texts", err);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const char *text = json_string_value(json_array_get(texts, i));
        if (!text)
            return lacks("any", "a text that is one", err);
        if (answer && same_text(answer, text))
            return right(j);
    }
    return wrong(j, "none of the %zu texts", json_array_size(texts));
}

/* Right unless a phrase of the list is not there. */
static dgemma_status all_stand_there(judging *j, const char *list, dgemma_error *err)
{
    const json_t *phrases = json_object_get(j->check, list);
    if (!json_array_size(phrases))
        return lacks("contains or story", list, err);
    for (size_t i = 0; i < json_array_size(phrases); i++) {
        const char *phrase = json_string_value(json_array_get(phrases, i));
        if (!phrase)
            return lacks("contains or story", "a phrase that is text", err);
        if (!words_contain(j->answer->text, phrase))
            return wrong(j, "\"%.200s\" is missing", phrase);
    }
    return right(j);
}

static dgemma_status check_contains(judging *j, dgemma_error *err)
{
    return all_stand_there(j, "all", err);
}

static dgemma_status check_json(judging *j, dgemma_error *err)
{
    const json_t *value = json_object_get(j->check, "value");
    if (!value)
        return lacks("json", "its value", err);
    json_error_t where;
    json_t *said = json_loads(j->answer->text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &where);
    if (!said)
        return wrong(j, "not JSON: %s", where.text);
    j->verdict->parsed = true;
    bool same = same_json(said, value);
    json_decref(said);
    return same ? right(j) : wrong(j, "JSON, but another value");
}

static bool same_call(const json_t *a, const json_t *b)
{
    const json_t *x = json_object_get(a, "arguments"), *y = json_object_get(b, "arguments");
    return json_equal(json_object_get(a, "name"), json_object_get(b, "name")) && x && y &&
           same_json(x, y);
}

static dgemma_status check_calls(judging *j, dgemma_error *err)
{
    enum { MAX_CALLS = 64 };
    const json_t *wanted = json_object_get(j->check, "calls");
    const json_t *text = json_object_get(j->check, "text");
    size_t n = json_array_size(wanted);
    bool taken[MAX_CALLS] = {0};
    if (!n || n > MAX_CALLS)
        return lacks("calls", "a fair number of calls", err);
    if (text && !json_is_null(text) && !json_is_string(text))
        return lacks("calls", "a text that is one", err);
    if (json_array_size(j->answer->calls) != n)
        return wrong(j, "%zu calls, wanted %zu", json_array_size(j->answer->calls), n);
    for (size_t i = 0; i < n; i++) {
        const json_t *call = json_array_get(wanted, i);
        size_t k = 0;
        if (!json_is_string(json_object_get(call, "name")) ||
            !json_is_object(json_object_get(call, "arguments")))
            return lacks("calls", "a call's name or arguments", err);
        while (k < n && (taken[k] || !same_call(call, json_array_get(j->answer->calls, k))))
            k++;
        if (k == n)
            return wrong(j, "call %zu (%s) was not made, or not with these arguments", i,
                         json_string_value(json_object_get(call, "name")));
        taken[k] = true;
    }
    if (text && !same_text(j->answer->text, json_is_null(text) ? "" : json_string_value(text)))
        return wrong(j, "the calls are right, what is said beside them is not");
    return right(j);
}

/* The name of a grammar becomes the name of a file: letters and underscores only. */
static dgemma_status check_written(judging *j, dgemma_error *err)
{
    const char *name = json_string_value(json_object_get(j->check, "grammar"));
    if (!name || !*name || name[strspn(name, "abcdefghijklmnopqrstuvwxyz_")])
        return lacks("story", "the name of its grammar", err);
    dgemma_status st = all_stand_there(j, "elements", err);
    if (st || !j->verdict->right)
        return st;
    char path[1024];
    grammar *g = NULL;
    dgemma_error why;
    j->verdict->right = false;
    snprintf(path, sizeof path, "%s/%s.txt", j->grammars, name);
    st = grammar_read(&g, path, err);
    if (st)
        return st;
    st = grammar_match(g, j->answer->text, &why);
    grammar_free(g);
    if (st == DGEMMA_E_NOMEM)
        return dg_fail(err, st, "%s", why.msg);
    return st ? wrong(j, "%s", why.msg) : right(j);
}

static dgemma_status check_person(judging *j, dgemma_error *err)
{
    person_check c = {.rule = json_string_value(json_object_get(j->check, "rule")),
                      .typed = json_string_value(json_object_get(j->check, "typed")),
                      .folder = j->grammars};
    if (!c.rule || !c.typed)
        return lacks("person", "its rule, or what was typed", err);
    return person_accepts(&j->verdict->right, j->verdict->why, sizeof j->verdict->why, &c,
                          j->answer->text, err);
}

static const struct {
    const char *kind;
    dgemma_status (*check)(judging *j, dgemma_error *err);
} kinds[] = {
    {"exact", check_exact},       {"picture", check_exact},   {"any", check_any},
    {"contains", check_contains}, {"json", check_json},       {"calls", check_calls},
    {"story", check_written},     {"couplet", check_written}, {"person", check_person},
};

/* ---- what holds for every answer ---- */

static bool is_empty(const char *s)
{
    return same_text(s, "");
}

/* False, with the reason, where an answer did not come to its end as it should. */
static bool ends_well(judging *j)
{
    const pocket_answer *a = j->answer;
    size_t n_call = json_array_size(a->calls);
    dgemma_end end = n_call ? DGEMMA_END_TOOL_CALLS : DGEMMA_END_STOP;
    if (a->end != end)
        wrong(j, "ended for reason %d, not %d", (int)a->end, (int)end);
    else if (is_empty(a->text) && !n_call)
        wrong(j, "nothing was said");
    else if (a->thought_due && is_empty(a->thought))
        wrong(j, "no thought");
    else if (!a->thinking && !is_empty(a->thought))
        wrong(j, "a thought that nobody asked for");
    else
        return true;
    return false;
}

dgemma_status pocket_check(pocket_verdict *v, const json_t *check, const pocket_answer *a,
                           const char *grammars, dgemma_error *err)
{
    const char *kind = json_string_value(json_object_get(check, "kind"));
    judging j = {check, a, grammars, v};
    for (size_t i = 0; kind && i < DG_COUNT(kinds); i++) {
        if (strcmp(kinds[i].kind, kind) != 0)
            continue;
        *v = (pocket_verdict){0};
        dgemma_status st = kinds[i].check(&j, err);
        if (!st && v->right)
            v->right = ends_well(&j);
        return st;
    }
    return dg_fail(err, DGEMMA_E_FORMAT, "a check of kind \"%s\" is not known", kind ? kind : "");
}
