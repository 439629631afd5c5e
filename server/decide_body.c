#include "decide_body.h"
#include <string.h>
#include "base/alloc.h"
#include "json_fields.h"
#include "json_text.h"

void dg_decide_body_clear(dg_decide_body *b)
{
    for (size_t i = 0; b->questions && i < b->options.n_questions; i++)
        dg_free((dgemma_option *)b->questions[i].options);
    for (size_t i = 0; i < b->n_text; i++)
        dg_free(b->texts[i]);
    dg_free(b->questions);
    dg_free(b->texts);
    json_decref(b->root);
    *b = (dg_decide_body){0};
}

static bool no_memory(dg_http_error *e)
{
    return dg_refuse(e, 503, "out_of_memory", NULL, "out of memory for the questions");
}

bool dg_decide_missing(dg_http_error *e, const char *path)
{
    return dg_refuse(e, 422, "missing", path, "Field required");
}

bool dg_decide_wrong(dg_http_error *e, const char *path, const char *wanted)
{
    return dg_refuse(e, 422, "invalid_type", path, "Input should be %s", wanted);
}

bool dg_decide_begin(dg_decide_body *b, size_t n, dg_http_error *e)
{
    if (n < 1 || n > DGEMMA_MAX_QUESTIONS)
        return dg_refuse(e, 400, "invalid_value", "questions",
                         "%zu questions: 1 to %d are possible", n, DGEMMA_MAX_QUESTIONS);
    b->questions = dg_calloc(n, sizeof *b->questions);
    b->options.questions = b->questions;
    b->options.n_questions = b->questions ? n : 0;
    return b->questions || no_memory(e);
}

dgemma_option *dg_decide_options_of(dg_decide_body *b, size_t question, size_t n, dg_http_error *e)
{
    dgemma_option *o = dg_calloc(n, sizeof *o);
    b->questions[question].options = o;
    b->questions[question].n_options = o ? n : 0;
    if (!o)
        no_memory(e);
    return o;
}

bool dg_decide_text(dg_decide_body *b, const json_t *value, const char **out, dg_http_error *e)
{
    *out = json_string_value(value);
    if (*out || !value || json_is_null(value))
        return true;
    if (b->n_text == b->cap_text) {
        size_t cap = b->cap_text ? 2 * b->cap_text : 8;
        char **more = dg_array_resize(b->texts, cap, sizeof *more);
        if (!more)
            return no_memory(e);
        b->texts = more;
        b->cap_text = cap;
    }
    char *text = dg_json_dump(value, NULL);
    if (!text)
        return no_memory(e);
    *out = b->texts[b->n_text++] = text;
    return true;
}

static bool read_samples(dg_decide_body *b, dg_http_error *e)
{
    const json_t *samples = dg_field_get(b->root, "samples");
    const char *word = json_string_value(samples);
    if (word && !strcmp(word, "auto"))
        b->options.samples = 0;
    else if (samples && (!json_is_integer(samples) || json_integer_value(samples) < 1 ||
                         json_integer_value(samples) > DGEMMA_MAX_SAMPLES))
        return dg_refuse(e, 400, "invalid_value", "samples", "samples: 1 to %d, or \"auto\"",
                         DGEMMA_MAX_SAMPLES);
    else if (samples)
        b->options.samples = (int)json_integer_value(samples);
    return true;
}

static bool read_mode(dg_decide_body *b, dg_http_error *e)
{
    const char *mode = NULL;
    if (!dg_field_string(b->root, "mode", &mode, e))
        return false;
    if (mode && strcmp(mode, "packed") != 0 && strcmp(mode, "independent") != 0)
        return dg_refuse(e, 400, "invalid_value", "mode",
                         "mode: \"packed\" and \"independent\" are known");
    b->options.independent = mode && mode[0] == 'i';
    return true;
}

bool dg_decide_extensions(dg_decide_body *b, dg_http_error *e)
{
    static const dg_field fields[] = {
        {"steps", DG_FIELD_INT, offsetof(dgemma_decide_options, steps), 1, 8},
        {"think", DG_FIELD_INT, offsetof(dgemma_decide_options, think), 0, 4096},
        {"permute", DG_FIELD_INT, offsetof(dgemma_decide_options, orders), 1, DGEMMA_MAX_OPTIONS},
    };
    const json_t *seed = dg_field_get(b->root, "seed"),
                 *temperature = dg_field_get(b->root, "temperature"),
                 *diagnostics = dg_field_get(b->root, "diagnostics");
    if (!dg_fields_read(&b->options, b->root, "", fields, sizeof fields / sizeof *fields, e))
        return false;
    if (seed && !json_is_integer(seed))
        return dg_refuse(e, 400, "invalid_type", "seed", "seed: wanted a whole number");
    if (temperature && !json_is_number(temperature))
        return dg_refuse(e, 400, "invalid_type", "temperature", "temperature: wanted a number");
    b->options.seed = seed ? (uint64_t)json_integer_value(seed) : 0;
    if (temperature)
        b->options.temperature = json_number_value(temperature);
    if (diagnostics && !json_is_boolean(diagnostics))
        return dg_refuse(e, 400, "invalid_type", "diagnostics",
                         "diagnostics: wanted true or false");
    b->diagnostics = json_is_true(diagnostics);
    return read_samples(b, e) && read_mode(b, e);
}

void dg_decide_diagnose(const dg_decide_body *b, const dgemma_answer *a, json_t **answer)
{
    if (b->diagnostics)
        dg_json_put(answer, "diagnostics",
                    json_pack("{s:f,s:f,s:f,s:i}", "label_mass", a->label_mass, "entropy",
                              a->entropy, "standard_error", a->standard_error, "reads",
                              a->n_reads));
}
