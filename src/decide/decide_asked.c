/* What a decision is asked: checked, and copied. */
#include "base/alloc.h"
#include "base/error.h"
#include "decide/decide_internal.h"

static dgemma_status check_question(const dgemma_question *q, size_t i, dgemma_error *err)
{
    static const size_t most[] = {2, DGEMMA_MAX_OPTIONS, DGEMMA_MAX_LEVELS};
    static const char *const words[] = {"question of yes or no", "choice", "score"};
    if ((unsigned)q->kind > DGEMMA_QUESTION_SCORE)
        return dg_fail(err, DGEMMA_E_ARG, "question %zu: unknown kind %d", i + 1, (int)q->kind);
    bool yes_no = q->kind == DGEMMA_QUESTION_YES_NO;
    if (!q->text)
        return dg_fail(err, DGEMMA_E_ARG, "question %zu has no text", i + 1);
    if (yes_no ? q->n_options != 0 && q->n_options != 2
               : q->n_options < 1 || q->n_options > most[q->kind])
        return dg_fail(err, DGEMMA_E_ARG, "question %zu: a %s has %s%zu options, here are %zu",
                       i + 1, words[q->kind], yes_no ? "none or " : "1 to ", most[q->kind],
                       q->n_options);
    for (size_t k = 0; !yes_no && k < q->n_options; k++)
        if (!q->options[k].name)
            return dg_fail(err, DGEMMA_E_ARG, "question %zu: option %zu has no name", i + 1, k + 1);
    return DGEMMA_OK;
}

dgemma_status decide_check(const dgemma_decide_options *o, dgemma_error *err)
{
    static const int max_steps = 8, max_think = 4096;
    if (!o->state == !o->messages)
        return dg_fail(err, DGEMMA_E_ARG, "a decision is about a state, or about messages");
    if (o->n_questions < 1 || o->n_questions > DGEMMA_MAX_QUESTIONS)
        return dg_fail(err, DGEMMA_E_ARG, "%zu questions: 1 to %d are possible", o->n_questions,
                       DGEMMA_MAX_QUESTIONS);
    if (o->samples < 0 || o->samples > DGEMMA_MAX_SAMPLES)
        return dg_fail(err, DGEMMA_E_ARG, "samples is %d: 1 to %d are possible, or 0", o->samples,
                       DGEMMA_MAX_SAMPLES);
    if (o->orders < 1 || o->orders > DGEMMA_MAX_OPTIONS)
        return dg_fail(err, DGEMMA_E_ARG, "orders is %d: 1 to %d are possible", o->orders,
                       DGEMMA_MAX_OPTIONS);
    if (o->steps < 1 || o->steps > max_steps)
        return dg_fail(err, DGEMMA_E_ARG, "steps is %d: 1 to %d are possible", o->steps, max_steps);
    if (o->think < 0 || o->think > max_think)
        return dg_fail(err, DGEMMA_E_ARG, "think is %d: 0 to %d are possible", o->think, max_think);
    if (!(o->temperature >= 0.01 && o->temperature <= 100))
        return dg_fail(err, DGEMMA_E_ARG, "temperature is %g: 0.01 to 100 are possible",
                       o->temperature);
    if (o->n_adapters > DGEMMA_MAX_ADAPTER_USES)
        return dg_fail(err, DGEMMA_E_ARG, "%zu adapters for a decision: at most %d are possible",
                       o->n_adapters, DGEMMA_MAX_ADAPTER_USES);
    dgemma_status st = DGEMMA_OK;
    for (size_t i = 0; !st && i < o->n_questions; i++)
        st = check_question(&o->questions[i], i, err);
    return st;
}

bool decide_copy_question(decide_question *q, const dgemma_question *from)
{
    q->kind = from->kind;
    q->n_options = from->kind == DGEMMA_QUESTION_YES_NO ? 2 : from->n_options;
    q->text = dg_strdup(from->text);
    q->probability = dg_calloc(q->n_options, sizeof *q->probability);
    q->options = from->n_options ? dg_calloc(from->n_options, sizeof *q->options) : NULL;
    bool ok = q->text && q->probability && (q->options || !from->n_options);
    for (size_t i = 0; ok && i < from->n_options; i++) {
        const dgemma_option *o = &from->options[i];
        q->options[i].name = o->name ? dg_strdup(o->name) : NULL;
        q->options[i].description = o->description ? dg_strdup(o->description) : NULL;
        ok = !o->name == !q->options[i].name && !o->description == !q->options[i].description;
    }
    return ok;
}

void decide_clear_question(decide_question *q)
{
    for (size_t i = 0; q->options && i < q->n_options; i++) {
        dg_free((char *)q->options[i].name);
        dg_free((char *)q->options[i].description);
    }
    dg_free(q->options);
    dg_free(q->text);
    dg_free(q->labels);
    dg_free(q->probability);
}
