#include "decide_questions.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

enum { FILE_MAX = 64 << 20 };

/* ---- making ---- */

void cli_questions_clear(cli_questions *q)
{
    for (size_t i = 0; i < q->n; i++) {
        dgemma_option *o = (dgemma_option *)q->list[i].options;
        for (size_t k = 0; o && k < q->list[i].n_options; k++) {
            dg_free((char *)o[k].name);
            dg_free((char *)o[k].description);
        }
        dg_free(o);
        dg_free((char *)q->list[i].text);
        dg_free(q->name[i]);
    }
    q->n = 0;
}

/* Room for one more with n options; NULL: there is none. */
static dgemma_option *begin(cli_questions *q, dgemma_question_kind kind, const char *name,
                            const char *text, size_t n)
{
    if (q->n == DGEMMA_MAX_QUESTIONS)
        return NULL;
    dgemma_option *o = dg_calloc(n + 1, sizeof *o);
    size_t i = q->n;
    q->list[i] = (dgemma_question){kind, dg_strdup(text), o, n};
    q->name[i] = name ? dg_strdup(name) : NULL;
    q->n++;
    return o && q->list[i].text && (!name || q->name[i]) ? o : NULL;
}

bool cli_questions_add(cli_questions *q, dgemma_question_kind kind, const char *text)
{
    const char *list = kind == DGEMMA_QUESTION_YES_NO ? NULL : strrchr(text, '=');
    size_t n = list ? 1 : 0;
    if (kind != DGEMMA_QUESTION_YES_NO && !list)
        return false;
    for (const char *c = list; c && *c; c++)
        n += *c == ',';
    char *question = dg_strndup(text, list ? (size_t)(list - text) : strlen(text));
    dgemma_option *o = question ? begin(q, kind, NULL, question, n) : NULL;
    dg_free(question);
    for (size_t i = 0; o && i < n; i++) {
        list++;
        size_t len = strcspn(list, ",");
        o[i].name = dg_strndup(list, len);
        if (!len || !o[i].name)
            return false;
        list += len;
    }
    return o != NULL;
}

static const char *name_of(const cli_questions *q, size_t i)
{
    return q->name[i] ? q->name[i] : q->list[i].text;
}

static bool is_text(const char *text)
{
    return dg_utf8_valid(text, strlen(text));
}

static dgemma_status check_options(const dgemma_question *q, const char *name, dgemma_error *err)
{
    for (size_t i = 0; q->kind != DGEMMA_QUESTION_YES_NO && i < q->n_options; i++) {
        const char *option = q->options[i].name;
        if (!is_text(option))
            return dg_fail(err, DGEMMA_E_ARG, "question \"%.64s\": option %zu is not UTF-8", name,
                           i + 1);
        for (size_t k = 0; k < i && q->kind == DGEMMA_QUESTION_CHOICE; k++)
            if (!strcmp(q->options[k].name, option))
                return dg_fail(err, DGEMMA_E_ARG, "question \"%.64s\" has option \"%.64s\" twice",
                               name, option);
    }
    return DGEMMA_OK;
}

dgemma_status cli_questions_check(const cli_questions *q, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    for (size_t i = 0; i < q->n && !st; i++) {
        if (!is_text(name_of(q, i)) || !is_text(q->list[i].text))
            return dg_fail(err, DGEMMA_E_ARG, "question %zu is not UTF-8", i + 1);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(name_of(q, k), name_of(q, i)))
                return dg_fail(err, DGEMMA_E_ARG, "question \"%.64s\" is asked twice",
                               name_of(q, i));
        st = check_options(&q->list[i], name_of(q, i), err);
    }
    return st;
}

/* ---- files ---- */

/* A string as it is, other values as JSON; NULL: there is none, or no memory. */
static char *text_of(const json_t *value)
{
    const char *text = json_string_value(value);
    if (text)
        return dg_strdup(text);
    char *dump = value && !json_is_null(value) ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    char *copy = dump ? dg_strdup(dump) : NULL;
    free(dump);
    return copy;
}

static dgemma_status read_question(cli_questions *q, const char *id, json_t *value,
                                   dgemma_error *err)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    json_t *criteria = json_object_get(value, "criteria"), *text;
    static const char *const types[] = {"noul", "choice", "score"};
    int kind = 0;
    while (kind < 3 && (!type || strcmp(type, types[kind]) != 0))
        kind++;
    if (kind == 3)
        return dg_fail(err, DGEMMA_E_ARG, "question \"%.64s\": its type is noul, choice or score",
                       id);
    if (kind == 1 ? !json_is_object(criteria) : kind == 2 && !json_is_array(criteria))
        return dg_fail(err, DGEMMA_E_ARG, "question \"%.64s\": its criteria are %s", id,
                       kind == 1 ? "an object of names and descriptions" : "a list of levels");
    size_t n = kind == 1   ? json_object_size(criteria)
               : kind == 2 ? json_array_size(criteria)
               : criteria  ? 2
                           : 0;
    char *asked = text_of(json_object_get(value, "instructions"));
    dgemma_option *o = begin(q, (dgemma_question_kind)kind, id, asked ? asked : id, n);
    dg_free(asked);
    bool ok = o != NULL;
    if (ok && kind == 0 && n) {
        o[0].description = text_of(json_object_get(criteria, "true"));
        o[1].description = text_of(json_object_get(criteria, "false"));
    }
    size_t i = 0, at;
    const char *name;
    if (ok && kind == 1)
        json_object_foreach(criteria, name, text)
        {
            o[i].name = dg_strdup(name);
            o[i].description = text_of(text);
            ok = ok && o[i++].name;
        }
    if (ok && kind == 2)
        json_array_foreach(criteria, at, text) ok = ok && (o[at].name = text_of(text)) != NULL;
    return ok ? DGEMMA_OK
              : dg_fail(err, DGEMMA_E_LIMIT, "question \"%.64s\": too many, or no memory", id);
}

static dgemma_status read_questions(cli_questions *q, json_t *object, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    const char *id;
    json_t *value;
    if (!json_is_object(object) || !json_object_size(object))
        return dg_fail(err, DGEMMA_E_ARG, "questions are an object: {\"id\": {\"type\": …}, …}");
    json_object_foreach(object, id, value)
    {
        st = read_question(q, id, value, err);
        if (st)
            break;
    }
    return st;
}

static json_t *parse(const char *text, size_t len, dgemma_error *err)
{
    json_error_t e;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
    if (!root)
        dg_fail(err, DGEMMA_E_FORMAT, "JSON: %.200s at line %d", e.text, e.line);
    return root;
}

dgemma_status cli_questions_read(cli_questions *q, const char *path, dgemma_error *err)
{
    dg_buf text;
    dg_buf_init(&text, FILE_MAX);
    dgemma_status st = dg_file_read(&text, path, err);
    json_t *root = st ? NULL : parse(text.data ? text.data : "", text.len, err);
    if (!st && !root)
        st = DGEMMA_E_FORMAT;
    json_t *inside = json_object_get(root, "questions");
    if (!st)
        st = read_questions(q, inside ? inside : root, err);
    json_decref(root);
    dg_buf_clear(&text);
    return st;
}

/* Which option the value means. */
static bool find_answer(const dgemma_question *q, const json_t *value, size_t *answer)
{
    *answer = 0;
    if (q->kind == DGEMMA_QUESTION_YES_NO) {
        *answer = json_is_false(value);
        return json_is_boolean(value);
    }
    if (q->kind == DGEMMA_QUESTION_SCORE && json_is_integer(value)) {
        *answer = (size_t)json_integer_value(value);
        return json_integer_value(value) >= 0 && *answer < q->n_options;
    }
    const char *name = json_string_value(value);
    while (name && *answer < q->n_options && strcmp(q->options[*answer].name, name) != 0)
        (*answer)++;
    return name && *answer < q->n_options;
}

dgemma_status cli_case_read(cli_questions *q, char **state, size_t *answer, const char *line,
                            size_t len, dgemma_error *err)
{
    json_t *root = parse(line, len, err);
    if (!root)
        return DGEMMA_E_FORMAT;
    dgemma_status st = read_questions(q, json_object_get(root, "questions"), err);
    const json_t *answers = json_object_get(root, "answers");
    *state = text_of(json_object_get(root, "state"));
    if (!st && !*state)
        st = dg_fail(err, DGEMMA_E_ARG, "there is no state");
    for (size_t i = 0; !st && i < q->n; i++)
        if (!find_answer(&q->list[i], json_object_get(answers, q->name[i]), &answer[i]))
            st = dg_fail(err, DGEMMA_E_ARG, "\"%.64s\" has no answer that fits the question",
                         q->name[i]);
    json_decref(root);
    return st;
}

/* ---- answers ---- */

static const char *option_name(const dgemma_question *q, size_t i)
{
    return q->kind == DGEMMA_QUESTION_YES_NO ? (i ? "no" : "yes") : q->options[i].name;
}

void cli_answer_print(FILE *out, const cli_questions *q, size_t i, const dgemma_answer *a)
{
    const dgemma_question *asked = &q->list[i];
    fprintf(out, "%s: %s %.4f", name_of(q, i), option_name(asked, a->best),
            a->probability[a->best]);
    if (asked->kind == DGEMMA_QUESTION_SCORE)
        fprintf(out, ", score %.3f", a->score);
    fputs(" (", out);
    for (size_t k = 0; k < a->n_options; k++)
        fprintf(out, "%s%s %.4f", k ? ", " : "", option_name(asked, k), a->probability[k]);
    fprintf(out, "; label mass %.3g)\n", a->label_mass);
}

static json_t *json_answer(const dgemma_question *q, const dgemma_answer *a)
{
    json_t *p = json_object(), *out = json_object();
    for (size_t i = 0; i < a->n_options; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        json_object_set_new(p, q->kind == DGEMMA_QUESTION_SCORE ? number : option_name(q, i),
                            json_real(a->probability[i]));
    }
    if (q->kind == DGEMMA_QUESTION_YES_NO)
        json_object_set_new(out, "noul", json_real(a->probability[0]));
    if (q->kind == DGEMMA_QUESTION_CHOICE)
        json_object_set_new(out, "choice", json_string(option_name(q, a->best)));
    if (q->kind == DGEMMA_QUESTION_SCORE)
        json_object_set_new(out, "score", json_real(a->score));
    json_object_set_new(out, "probabilities", p);
    json_object_set_new(out, "confidence", json_real(a->confidence));
    json_object_set_new(out, "label_mass", json_real(a->label_mass));
    json_object_set_new(out, "entropy", json_real(a->entropy));
    json_object_set_new(out, "standard_error", json_real(a->standard_error));
    return out;
}

bool cli_answers_print_json(FILE *out, const cli_questions *q, const dgemma_decision *d)
{
    json_t *all = json_object();
    for (size_t i = 0; i < q->n; i++)
        json_object_set_new(all, name_of(q, i),
                            json_answer(&q->list[i], dgemma_decision_answer(d, i)));
    char *text = json_dumps(all, JSON_REAL_PRECISION(17));
    if (text)
        fprintf(out, "%s\n", text);
    free(text);
    json_decref(all);
    return text != NULL;
}
