#include "systemone.h"
#include <stdio.h>
#include <string.h>
#include "json_fields.h"
#include "json_text.h"

/* ---- questions ---- */

typedef struct reader {
    dg_decide_body *b;
    size_t at;      /* which question */
    const char *id; /* its name */
    const json_t *question, *criteria;
    dg_http_error *e;
} reader;

static bool wrong(const reader *r, const char *field, const char *wanted)
{
    char path[200];
    snprintf(path, sizeof path, "questions/%.64s/%s", r->id, field);
    return wanted ? dg_decide_wrong(r->e, path, wanted) : dg_decide_missing(r->e, path);
}

/* Yes and no may be explained. */
static bool read_noul(reader *r)
{
    dg_decide_body *b = r->b;
    b->questions[r->at].kind = DGEMMA_QUESTION_YES_NO;
    if (!r->criteria)
        return true;
    if (!json_is_object(r->criteria))
        return wrong(r, "criteria", "an object");
    dgemma_option *o = dg_decide_options_of(b, r->at, 2, r->e);
    return o && dg_decide_text(b, json_object_get(r->criteria, "true"), &o[0].description, r->e) &&
           dg_decide_text(b, json_object_get(r->criteria, "false"), &o[1].description, r->e);
}

static bool read_choice(reader *r)
{
    dg_decide_body *b = r->b;
    const char *name;
    json_t *text;
    size_t i = 0, n = json_object_size(r->criteria);
    b->questions[r->at].kind = DGEMMA_QUESTION_CHOICE;
    if (!json_is_object(r->criteria))
        return wrong(r, "criteria", r->criteria ? "an object" : NULL);
    if (n < 1 || n > DGEMMA_MAX_OPTIONS)
        return dg_refuse(r->e, 400, "invalid_value", "questions",
                         "question \"%.64s\" has %zu choices: 1 to %d are possible", r->id, n,
                         DGEMMA_MAX_OPTIONS);
    dgemma_option *o = dg_decide_options_of(b, r->at, n, r->e);
    if (!o)
        return false;
    json_object_foreach((json_t *)r->criteria, name, text)
    {
        o[i].name = name;
        if (!dg_decide_text(b, text, &o[i++].description, r->e))
            return false;
    }
    return true;
}

static bool read_score(reader *r)
{
    dg_decide_body *b = r->b;
    size_t n = json_array_size(r->criteria);
    b->questions[r->at].kind = DGEMMA_QUESTION_SCORE;
    if (!json_is_array(r->criteria))
        return wrong(r, "criteria", r->criteria ? "a list" : NULL);
    if (n < 1 || n > DGEMMA_MAX_LEVELS)
        return dg_refuse(r->e, 400, "invalid_value", "questions",
                         "question \"%.64s\" has %zu levels: 1 to %d are possible", r->id, n,
                         DGEMMA_MAX_LEVELS);
    dgemma_option *o = dg_decide_options_of(b, r->at, n, r->e);
    for (size_t i = 0; o && i < n; i++) {
        const json_t *level = json_array_get(r->criteria, i);
        if (json_is_null(level))
            return wrong(r, "criteria", "texts");
        if (!dg_decide_text(b, level, &o[i].name, r->e))
            return false;
    }
    return o != NULL;
}

static bool read_question(reader *r)
{
    const char *type = json_string_value(json_object_get(r->question, "type"));
    if (!json_is_object(r->question))
        return wrong(r, "type", NULL);
    r->criteria = dg_field_get(r->question, "criteria");
    const char **text = &r->b->questions[r->at].text;
    if (!dg_decide_text(r->b, json_object_get(r->question, "instructions"), text, r->e))
        return false;
    *text = *text ? *text : r->id; /* a question may be its name alone */
    if (!type)
        return wrong(r, "type", NULL);
    if (!strcmp(type, "noul"))
        return read_noul(r);
    if (!strcmp(type, "choice"))
        return read_choice(r);
    if (!strcmp(type, "score"))
        return read_score(r);
    return wrong(r, "type", "'noul', 'choice' or 'score'");
}

/* "images": data URLs, in front of the state. */
static bool read_images(dg_decide_body *b, const char *state, dg_http_error *e)
{
    json_t *images;
    if (!dg_field_list(b->root, "images", &images, e))
        return false;
    size_t n = json_array_size(images);
    if (!n) {
        b->options.state = state;
        return true;
    }
    if (n > (size_t)b->max_images)
        return dg_refuse(e, 400, "too_many_images", "images", "at most %d pictures in a request",
                         b->max_images);
    json_t *parts = json_array(), *text = json_string(state);
    for (size_t i = 0; i < n; i++) {
        const json_t *url = json_array_get(images, i);
        if (!json_is_string(url)) {
            json_decref(parts);
            json_decref(text);
            return dg_refuse(e, 400, "invalid_type", "images", "images: wanted data URLs");
        }
        dg_json_add(&parts,
                    json_pack("{s:s,s:{s:O}}", "type", "image_url", "image_url", "url", url));
    }
    dg_json_add(&parts, json_pack("{s:s,s:o}", "type", "text", "text", text));
    json_t *messages = json_pack("[{s:s,s:o}]", "role", "user", "content", parts);
    bool ok = messages ? dg_decide_text(b, messages, &b->options.messages, e)
                       : dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
    json_decref(messages);
    return ok;
}

static bool read(dg_decide_body *b, dg_http_error *e)
{
    const json_t *state = json_object_get(b->root, "state"),
                 *questions = json_object_get(b->root, "questions");
    const char *text = NULL;
    if (!state)
        return dg_decide_missing(e, "state");
    if (!json_is_string(state) && !json_is_object(state) && !json_is_array(state))
        return dg_decide_wrong(e, "state", "a text, an object or a list");
    if (!questions)
        return dg_decide_missing(e, "questions");
    if (!json_is_object(questions) || !json_object_size(questions))
        return dg_decide_wrong(e, "questions", "an object with questions");
    if (json_object_get(b->root, "assets"))
        return dg_refuse(e, 400, "unsupported", "assets",
                         "assets are not read; \"images\" takes data URLs");
    if (!dg_decide_text(b, state, &text, e) || !read_images(b, text, e) ||
        !dg_decide_begin(b, json_object_size(questions), e) || !dg_decide_extensions(b, e))
        return false;
    reader r = {.b = b, .e = e};
    json_t *question;
    json_object_foreach((json_t *)questions, r.id, question)
    {
        r.question = question;
        if (!read_question(&r))
            return false;
        r.at++;
    }
    return true;
}

/* ---- answers ---- */

static json_t *answer_of(const dgemma_question *q, const json_t *criteria, const dgemma_answer *a)
{
    if (q->kind == DGEMMA_QUESTION_YES_NO)
        return json_pack("{s:s,s:f}", "type", "noul", "noul", a->probability[0]);
    json_t *p = json_object(), *legend = json_object();
    for (size_t i = 0; i < a->n_options; i++) {
        char number[24];
        bool score = q->kind == DGEMMA_QUESTION_SCORE;
        snprintf(number, sizeof number, "%zu", i);
        dg_json_put(&p, score ? number : q->options[i].name, json_real(a->probability[i]));
        if (score)
            dg_json_put(&legend, number, json_incref(json_array_get(criteria, i)));
    }
    if (q->kind == DGEMMA_QUESTION_SCORE)
        return json_pack("{s:s,s:f,s:o,s:o,s:f}", "type", "score", "score", a->score, "legend",
                         legend, "probabilities", p, "confidence", a->confidence);
    json_decref(legend);
    return json_pack("{s:s,s:s,s:o,s:f}", "type", "choice", "choice", q->options[a->best].name,
                     "probabilities", p, "confidence", a->confidence);
}

static json_t *write(const dg_decide_body *b, const dgemma_decision *d, const char *model)
{
    json_t *questions = json_object_get(b->root, "questions"), *question, *answers = json_object();
    const char *id;
    size_t i = 0;
    dgemma_stats stats;
    json_object_foreach(questions, id, question)
    {
        const dgemma_answer *a = dgemma_decision_answer(d, i);
        json_t *one = answer_of(&b->questions[i], json_object_get(question, "criteria"), a);
        dg_decide_diagnose(b, a, &one);
        dg_json_put(&answers, id, one);
        i++;
    }
    dgemma_decision_stats(d, &stats);
    json_t *out = json_pack("{s:s,s:o,s:{s:i,s:i}}", "model", model, "answers", answers, "usage",
                            "input_tokens", stats.n_prompt, "output_tokens", stats.n_output);
    if (b->diagnostics) {
        const char *thought = dgemma_decision_thought(d);
        dg_json_put(&out, "thought", dg_json_text(thought, strlen(thought)));
    }
    return out;
}

const dg_decide_wire dg_systemone = {read, write};

/* ---- errors ---- */

/* ["body", …] of "state" or of "questions/NAME/type"; a name may have slashes of its own. */
static json_t *place(const char *path)
{
    const char *first = strchr(path, '/'), *last = strrchr(path, '/');
    if (first == last)
        return json_pack("[s,o]", "body", dg_json_text(path, strlen(path)));
    return json_pack("[s,o,o,o]", "body", dg_json_text(path, (size_t)(first - path)),
                     dg_json_text(first + 1, (size_t)(last - first - 1)),
                     dg_json_text(last + 1, strlen(last + 1)));
}

json_t *dg_systemone_error(const dg_http_error *e)
{
    json_t *message = dg_json_text(e->message, strlen(e->message));
    if (e->status == 422)
        return json_pack("{s:[{s:s,s:o,s:o}]}", "detail", "type", e->code ? e->code : "value_error",
                         "loc", place(e->param), "msg", message);
    if (e->status == 400)
        return json_pack("{s:o}", "detail", message);
    return json_pack("{s:{s:s,s:o}}", "detail", "error_type", e->code ? e->code : "error",
                     "message", message);
}
