#include "engine/read.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/real.h"

static dgemma_status check(const dgemma_read *r, const dg_config *model, dgemma_error *err)
{
    if (!r->tokens || r->n_tokens < 1 || r->n_tokens > (size_t)model->canvas_length)
        return dg_fail(err, DGEMMA_E_ARG, "a read of %zu positions: 1 to %d are possible",
                       r->tokens ? r->n_tokens : 0, model->canvas_length);
    if (r->n_ids > DGEMMA_MAX_READ_IDS)
        return dg_fail(err, DGEMMA_E_LIMIT, "a read asks for %zu tokens: at most %d are possible",
                       r->n_ids, DGEMMA_MAX_READ_IDS);
    if (r->among && !r->n_ids)
        return dg_fail(err, DGEMMA_E_ARG, "a read among some tokens: none is given");
    for (size_t i = 0; i < r->n_tokens; i++)
        if (r->tokens[i] < -1 || r->tokens[i] >= model->n_vocab)
            return dg_fail(err, DGEMMA_E_ARG,
                           "a read begins with token %d, which is not in the vocabulary of %d",
                           (int)r->tokens[i], model->n_vocab);
    for (size_t i = 0; i < r->n_ids; i++)
        if (r->ids[i] < 0 || r->ids[i] >= model->n_vocab)
            return dg_fail(err, DGEMMA_E_ARG,
                           "a read asks for token %d, which is not in the vocabulary of %d",
                           (int)r->ids[i], model->n_vocab);
    return DGEMMA_OK;
}

static int by_id(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* What the vocabulary end is asked: it wants ids in order, each once. */
static void sort_ids(dg_read *r)
{
    int32_t *sorted = r->sorted;
    memcpy(sorted, r->id, (size_t)r->n_id * sizeof *sorted);
    qsort(sorted, (size_t)r->n_id, sizeof *sorted, by_id);
    int n = 0;
    for (int i = 0; i < r->n_id; i++)
        if (!n || sorted[n - 1] != sorted[i])
            sorted[n++] = sorted[i];
    r->asked.n_id = n;
    for (int i = 0; i < r->n_id; i++) {
        const int32_t *at = bsearch(&r->id[i], sorted, (size_t)n, sizeof *sorted, by_id);
        r->slot[i] = (int32_t)(at - sorted);
    }
}

static bool allocate(dg_read *r)
{
    size_t n = (size_t)r->n, n_id = (size_t)r->n_id;
    dg_asked *a = &r->asked;
    r->sorted = dg_array(n_id + 1, sizeof *r->sorted);
    r->token = dg_array(n, sizeof *r->token);
    r->pinned = dg_calloc(n, sizeof *r->pinned);
    r->id = dg_array(n * n_id + 1, sizeof *r->id);
    r->logprob = dg_array(n * n_id + 1, sizeof *r->logprob);
    r->slot = dg_array(n_id + 1, sizeof *r->slot);
    *a = (dg_asked){
        .id = r->sorted,
        .logprob = dg_array(n * n_id + 1, sizeof *a->logprob),
        .found = dg_calloc(n * DG_ASKED_CLASSES, sizeof *a->found),
        .top_id = dg_array(n * DG_ASKED_TOP, sizeof *a->top_id),
        .top_logprob = dg_array(n * DG_ASKED_TOP, sizeof *a->top_logprob),
    };
    return r->sorted && r->token && r->pinned && r->id && r->logprob && r->slot && a->logprob &&
           a->found && a->top_id && a->top_logprob;
}

dgemma_status dg_read_create(dg_read **out, const dgemma_read *from, const dg_config *model,
                             dgemma_error *err)
{
    dgemma_status st = check(from, model, err);
    if (st)
        return st;
    dg_read *r = dg_calloc(1, sizeof *r);
    if (r) {
        r->n = (int)from->n_tokens;
        r->n_id = (int)from->n_ids;
        r->among = from->among;
    }
    if (!r || !allocate(r)) {
        dg_read_free(r);
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for a read");
    }
    memcpy(r->token, from->tokens, from->n_tokens * sizeof *r->token);
    for (int i = 0; i < r->n; i++) {
        r->pinned[i] = r->token[i] >= 0 && (!from->pinned || from->pinned[i]);
        if (r->n_id)
            memcpy(r->id + (size_t)i * from->n_ids, from->ids, from->n_ids * sizeof *r->id);
    }
    sort_ids(r);
    *out = r;
    return DGEMMA_OK;
}

void dg_read_free(dg_read *r)
{
    if (!r)
        return;
    dg_free(r->token);
    dg_free(r->pinned);
    dg_free(r->id);
    dg_free(r->logprob);
    dg_free(r->slot);
    dg_free(r->sorted);
    dg_free(r->asked.logprob);
    dg_free(r->asked.found);
    dg_free(r->asked.top_id);
    dg_free(r->asked.top_logprob);
    dg_free(r);
}

void dg_read_begin(const dg_read *r, int32_t *canvas)
{
    for (int i = 0; i < r->n; i++)
        if (r->token[i] >= 0)
            canvas[i] = r->token[i];
}

void dg_read_hold(const dg_read *r, int32_t *canvas)
{
    for (int i = 0; i < r->n; i++)
        if (r->pinned[i])
            canvas[i] = r->token[i];
}

/* Log-probabilities of one position become those among themselves. The greatest of them. */
static int normalise(float *logprob, int n)
{
    int best = 0;
    double sum = 0;
    for (int i = 1; i < n; i++)
        best = logprob[i] > logprob[best] ? i : best;
    double most = (double)logprob[best];
    for (int i = 0; i < n; i++)
        sum += dg_exp((double)logprob[i] - most);
    for (int i = 0; i < n; i++)
        logprob[i] = (float)((double)logprob[i] - most - dg_log(sum));
    return best;
}

void dg_read_narrow(dg_read *r, const dg_read_step *s)
{
    int n = r->asked.n_id;
    for (int i = 0; r->among && i < r->n; i++) {
        float *logprob = r->asked.logprob + (size_t)i * (size_t)n;
        if (isnan(s->entropy[i])) /* so are the others */
            continue;
        int best = normalise(logprob, n), drawn = -1;
        double entropy = 0, sum = 0;
        for (int k = 0; k < n; k++) {
            double p = dg_exp((double)logprob[k]);
            entropy -= p > 0 ? p * (double)logprob[k] : 0;
            sum += p;
            drawn = drawn < 0 && sum > s->uniform[i] ? k : drawn;
        }
        s->entropy[i] = (float)entropy;
        s->argmax[i] = r->sorted[best];
        drawn = drawn < 0 || s->cold ? best : drawn; /* the sum may have stayed below 1 */
        s->drawn[i] = r->sorted[drawn];
        if (s->logprob)
            s->logprob[i] = logprob[best];
    }
}

void dg_read_take(dg_read *r)
{
    const dg_asked *a = &r->asked;
    for (int i = 0; i < r->n; i++)
        for (int k = 0; k < r->n_id; k++)
            r->logprob[(size_t)i * (size_t)r->n_id + (size_t)k] =
                a->logprob[(size_t)i * (size_t)a->n_id + (size_t)r->slot[k]];
}
