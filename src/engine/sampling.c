#include "engine/sampling.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"

/* Far beyond what anybody means; at a colder draw the logits' own rounding would decide. */
static const float coldest = 1e-6f, hottest = 100, strongest_bias = 1000;

static dgemma_status check_bias(const dgemma_request_options *o, int n_vocab, dgemma_error *err)
{
    if (o->n_logit_bias > DG_MAX_LOGIT_BIAS)
        return dg_fail(err, DGEMMA_E_ARG, "%zu logit biases: at most %d are possible",
                       o->n_logit_bias, DG_MAX_LOGIT_BIAS);
    for (size_t i = 0; i < o->n_logit_bias; i++) {
        const dgemma_logit_bias *b = &o->logit_bias[i];
        if (b->token < 0 || b->token >= n_vocab)
            return dg_fail(err, DGEMMA_E_ARG,
                           "logit_bias for token %d, which is not in the vocabulary of %d",
                           (int)b->token, n_vocab);
        if (!(fabsf(b->bias) <= strongest_bias))
            return dg_fail(err, DGEMMA_E_ARG,
                           "logit_bias of %g for token %d: -%g to %g are possible", (double)b->bias,
                           (int)b->token, (double)strongest_bias, (double)strongest_bias);
    }
    return DGEMMA_OK;
}

dgemma_status dg_sampling_check(const dgemma_request_options *o, int n_vocab, dgemma_error *err)
{
    if (o->temperature != 0 && !(o->temperature >= coldest && o->temperature <= hottest))
        return dg_fail(err, DGEMMA_E_ARG, "temperature is %g: 0, or %g to %g are possible",
                       (double)o->temperature, (double)coldest, (double)hottest);
    if (o->top_k < 0)
        return dg_fail(err, DGEMMA_E_ARG, "top_k is %d: at least 1, or 0 for all", o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return dg_fail(err, DGEMMA_E_ARG, "top_p is %g: more than 0 and at most 1 is needed",
                       (double)o->top_p);
    if (!(o->min_p >= 0 && o->min_p <= 1))
        return dg_fail(err, DGEMMA_E_ARG, "min_p is %g: 0 to 1 are possible", (double)o->min_p);
    if (o->n_logprobs < -1 || o->n_logprobs > DG_MAX_TOP)
        return dg_fail(err, DGEMMA_E_ARG, "n_logprobs is %d: 0 to %d, or -1 for none",
                       o->n_logprobs, DG_MAX_TOP);
    return check_bias(o, n_vocab, err);
}

static int by_id(const void *a, const void *b)
{
    const dg_logit_bias *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

dgemma_status dg_sampling_init(dg_sampling *s, const dgemma_request_options *o, dgemma_error *err)
{
    *s = (dg_sampling){.draw = {o->temperature, o->top_k, o->top_p, o->min_p}};
    if (!o->n_logit_bias)
        return DGEMMA_OK;
    s->bias = dg_array(o->n_logit_bias, sizeof *s->bias);
    if (!s->bias)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (size_t i = 0; i < o->n_logit_bias; i++)
        s->bias[s->n_bias++] = (dg_logit_bias){o->logit_bias[i].token, o->logit_bias[i].bias};
    qsort(s->bias, o->n_logit_bias, sizeof *s->bias, by_id);
    for (int i = 1; i < s->n_bias; i++)
        if (s->bias[i].id == s->bias[i - 1].id)
            return dg_fail(err, DGEMMA_E_ARG, "token %d has two logit biases", (int)s->bias[i].id);
    return DGEMMA_OK;
}

void dg_sampling_clear(dg_sampling *s)
{
    dg_free(s->bias);
    *s = (dg_sampling){0};
}

dg_vocabulary_options dg_sampling_options(const dg_sampling *s)
{
    return (dg_vocabulary_options){.bias = s->bias, .n_bias = s->n_bias, .draw = &s->draw};
}
