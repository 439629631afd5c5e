#include "decisions.h"
#include <stdio.h>
#include <string.h>
#include "json_fields.h"
#include "json_text.h"
#include "translate.h"

/* ---- the input ---- */

static bool refuse_at(dg_http_error *e, size_t message, const char *what)
{
    char where[64];
    snprintf(where, sizeof where, "input[%zu]", message);
    return dg_refuse(e, 400, "invalid_value", where, "%s: %s", where, what);
}

/* A part of a message in the form that the engine reads; NULL: it is none, or memory is out. */
static json_t *part_of(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text"), *url = json_object_get(part, "image_url"),
                 *data = json_object_get(part, "data");
    if (type && !strcmp(type, "input_text") && json_is_string(text))
        return json_pack("{s:s,s:O}", "type", "text", "text", text);
    if (type && !strcmp(type, "input_image") && json_is_string(url))
        return json_pack("{s:s,s:{s:O}}", "type", "image_url", "image_url", "url", url);
    if (type && !strcmp(type, "input_json") && data) {
        size_t len;
        char *dump = dg_json_dump(data, &len);
        json_t *out =
            dump ? json_pack("{s:s,s:o}", "type", "text", "text", dg_json_text(dump, len)) : NULL;
        dgemma_free(dump);
        return out;
    }
    return NULL;
}

static bool read_message(dg_decide_body *b, size_t i, const json_t *message, json_t **messages,
                         int *n_image, dg_http_error *e)
{
    const json_t *content = json_object_get(message, "content");
    if (!dg_json_says(json_object_get(message, "role"), "user"))
        return refuse_at(e, i, "messages of users are read, and no others");
    if (!json_is_string(content) && !json_is_array(content))
        return refuse_at(e, i, "content: wanted text or a list of parts");
    json_t *parts = json_is_string(content) ? NULL : json_array();
    for (size_t k = 0; k < json_array_size(content); k++) {
        const json_t *part = json_array_get(content, k);
        json_t *read = part_of(part);
        if (!read) {
            json_decref(parts);
            return refuse_at(e, i,
                             "a part is input_text, input_image with a data URL, or input_json");
        }
        *n_image += dg_json_says(json_object_get(part, "type"), "input_image");
        dg_json_add(&parts, read);
    }
    dg_json_add(messages, parts ? json_pack("{s:s,s:o}", "role", "user", "content", parts)
                                : json_pack("{s:s,s:O}", "role", "user", "content", content));
    return *n_image <= b->max_images ||
           dg_refuse(e, 400, "too_many_images", "input", "at most %d pictures in a request",
                     b->max_images);
}

static bool read_input(dg_decide_body *b, dg_http_error *e)
{
    const json_t *input = dg_field_get(b->root, "input");
    if (dg_field_get(b->root, "images"))
        return dg_refuse(e, 400, "unsupported", "images",
                         "images: pictures are input_image parts of input");
    b->options.state = json_string_value(input);
    if (b->options.state)
        return true;
    if (!json_is_array(input) || !json_array_size(input))
        return dg_refuse(e, 400, input ? "invalid_type" : "missing_required_parameter", "input",
                         "input: wanted text or a list of messages");
    int n_image = 0;
    json_t *messages = json_array();
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(input); i++)
        ok = read_message(b, i, json_array_get(input, i), &messages, &n_image, e);
    if (ok)
        ok = messages ? dg_decide_text(b, messages, &b->options.messages, e)
                      : dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
    json_decref(messages);
    return ok;
}

/* ---- questions ---- */

static bool wrong(dg_http_error *e, size_t i, const char *field, const char *wanted)
{
    char where[64];
    snprintf(where, sizeof where, "questions[%zu].%s", i, field);
    return dg_refuse(e, 400, "invalid_value", where, "%s: wanted %s", where, wanted);
}

/* Options of question i: a list of objects that have `name`. */
static bool read_list(dg_decide_body *b, size_t i, const json_t *list, const char *field,
                      const char *name, size_t most, dg_http_error *e)
{
    size_t n = json_array_size(list);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "a list of 1 to %zu", most);
    if (n < 1 || n > most)
        return wrong(e, i, field, wanted);
    dgemma_option *o = dg_decide_options_of(b, i, n, e);
    for (size_t k = 0; o && k < n; k++) {
        const json_t *one = json_array_get(list, k), *value = json_object_get(one, name),
                     *about = dg_field_get(one, "description");
        bool choice = !strcmp(name, "value");
        if (!json_is_string(value) && !(choice && json_is_boolean(value)))
            return wrong(e, i, field, choice ? "values that are texts or booleans" : "labels");
        for (size_t other = 0; choice && other < k; other++)
            if (json_equal(value, json_object_get(json_array_get(list, other), name)))
                return wrong(e, i, field, "values that differ");
        if (about && !json_is_string(about))
            return wrong(e, i, field, "descriptions that are texts");
        o[k].name = json_is_string(value) ? json_string_value(value)
                    : json_is_true(value) ? "true"
                                          : "false";
        o[k].description = json_string_value(about);
    }
    return o != NULL;
}

static bool read_question(dg_decide_body *b, size_t i, const json_t *q, dg_http_error *e)
{
    const json_t *text = json_object_get(q, "instructions"), *type = json_object_get(q, "type");
    const json_t *name = dg_field_get(q, "name");
    if (json_is_array(text)) { /* parts, of which texts are read */
        json_t *joined = dg_translate_text(text, "text", "\n");
        bool ok = joined && json_object_set_new((json_t *)q, "instructions", joined) == 0;
        if (!ok)
            return dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
        text = json_object_get(q, "instructions");
    }
    if (!json_is_string(text))
        return wrong(e, i, "instructions", "text");
    if (name && !json_is_string(name))
        return wrong(e, i, "name", "text");
    b->questions[i].text = json_string_value(text);
    if (dg_json_says(type, "predicate")) {
        b->questions[i].kind = DGEMMA_QUESTION_YES_NO;
        return true;
    }
    if (dg_json_says(type, "choice")) {
        b->questions[i].kind = DGEMMA_QUESTION_CHOICE;
        return read_list(b, i, json_object_get(q, "choices"), "choices", "value",
                         DGEMMA_MAX_OPTIONS, e);
    }
    if (dg_json_says(type, "score")) {
        b->questions[i].kind = DGEMMA_QUESTION_SCORE;
        return read_list(b, i, json_object_get(q, "levels"), "levels", "label", DGEMMA_MAX_LEVELS,
                         e);
    }
    return wrong(e, i, "type", "predicate, choice or score");
}

static bool read(dg_decide_body *b, dg_http_error *e)
{
    json_t *questions;
    if (!read_input(b, e) || !dg_field_list(b->root, "questions", &questions, e))
        return false;
    if (!questions)
        return dg_refuse(e, 400, "missing_required_parameter", "questions",
                         "questions: wanted a list");
    bool ok = dg_decide_begin(b, json_array_size(questions), e) && dg_decide_extensions(b, e);
    for (size_t i = 0; ok && i < b->options.n_questions; i++)
        ok = read_question(b, i, json_array_get(questions, i), e);
    return ok;
}

/* ---- answers ---- */

static json_t *answer_of(const json_t *q, const dgemma_question *asked, const dgemma_answer *a)
{
    json_t *name = dg_field_get(q, "name"), *p = json_array();
    name = name ? json_incref(name) : json_null();
    bool score = asked->kind == DGEMMA_QUESTION_SCORE;
    if (asked->kind == DGEMMA_QUESTION_YES_NO) {
        json_decref(p);
        return json_pack("{s:s,s:o,s:f}", "type", "predicate", "name", name, "probability",
                         a->probability[0]);
    }
    const json_t *choices = json_object_get(q, "choices");
    for (size_t i = 0; i < a->n_options; i++)
        dg_json_add(&p, score ? json_pack("{s:i,s:s,s:f}", "value", (int)i, "label",
                                          asked->options[i].name, "probability", a->probability[i])
                              : json_pack("{s:O,s:f}", "value",
                                          json_object_get(json_array_get(choices, i), "value"),
                                          "probability", a->probability[i]));
    if (score)
        return json_pack("{s:s,s:o,s:f,s:f,s:o}", "type", "score", "name", name, "score", a->score,
                         "confidence", a->confidence, "probabilities", p);
    return json_pack("{s:s,s:o,s:O,s:f,s:o}", "type", "choice", "name", name, "choice",
                     json_object_get(json_array_get(choices, a->best), "value"), "confidence",
                     a->confidence, "probabilities", p);
}

static json_t *write(const dg_decide_body *b, const dgemma_decision *d, const char *model)
{
    const json_t *questions = json_object_get(b->root, "questions");
    json_t *answers = json_array();
    dgemma_stats s;
    for (size_t i = 0; i < b->options.n_questions; i++) {
        const dgemma_answer *a = dgemma_decision_answer(d, i);
        json_t *one = answer_of(json_array_get(questions, i), &b->questions[i], a);
        dg_decide_diagnose(b, a, &one);
        dg_json_add(&answers, one);
    }
    dgemma_decision_stats(d, &s);
    json_t *out =
        json_pack("{s:s,s:o,s:{s:i,s:{s:i,s:i},s:i,s:{s:i},s:i}}", "model", model, "answers",
                  answers, "usage", "input_tokens", s.n_prompt, "input_tokens_details",
                  "cached_tokens", s.n_prompt_cached, "cache_write_tokens", 0, "output_tokens",
                  s.n_output, "output_tokens_details", "reasoning_tokens", s.n_thinking,
                  "total_tokens", s.n_prompt + s.n_output);
    if (b->diagnostics) {
        const char *thought = dgemma_decision_thought(d);
        dg_json_put(&out, "thought", dg_json_text(thought, strlen(thought)));
    }
    return out;
}

const dg_decide_wire dg_decisions = {read, write};
