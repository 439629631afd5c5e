/* The life of a decision. It is made of requests: for each prompt, where it is asked for, one that
 * thinks, then one for each canvas and sample, which reads. What they found is added up at the end
 * in an order of its own, not in the order in which they came. */
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/error.h"
#include "decide/decide_internal.h"

/* A sample that leaves more doubt than this, in nats, is followed by others. */
static const double doubt = 0.1;

dgemma_decide_options dgemma_decide_defaults(void)
{
    return (dgemma_decide_options){.samples = 1, .orders = 1, .steps = 1, .temperature = 1};
}

/* ---- what is asked ---- */

static dgemma_status copy_questions(dgemma_decision *d, dgemma_error *err)
{
    d->questions = dg_calloc(d->o.n_questions, sizeof *d->questions);
    bool ok = d->questions != NULL;
    while (ok && d->n_questions < d->o.n_questions) {
        size_t i = d->n_questions++;
        ok = decide_copy_question(&d->questions[i], &d->o.questions[i]);
    }
    return ok ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
}

/* ---- what needs a read ---- */

/* What one option leaves open needs no pass. */
static void answer_certain(decide_question *q)
{
    q->probability[0] = 1;
    q->answer = (dgemma_answer){
        .probability = q->probability, .n_options = 1, .confidence = 1, .label_mass = 1};
}

static dgemma_status prepare(dgemma_decision *d, dgemma_error *err)
{
    size_t list[DGEMMA_MAX_QUESTIONS], n = 0;
    bool turns = false;
    for (size_t i = 0; i < d->n_questions; i++)
        if (d->questions[i].n_options > 1)
            list[n++] = i;
        else
            answer_certain(&d->questions[i]);
    for (size_t i = 0; i < n; i++)
        turns |= d->questions[list[i]].kind == DGEMMA_QUESTION_CHOICE;
    if (!turns)
        d->o.orders = 1; /* there is nothing to turn */
    d->done = !n;
    size_t samples = d->o.samples ? (size_t)d->o.samples : 1 + DECIDE_MORE;
    size_t canvases = d->o.independent ? n : (n + DECIDE_LINES - 1) / DECIDE_LINES;
    size_t reads = canvases * (size_t)d->o.orders * samples;
    if (reads > DGEMMA_MAX_READS)
        return dg_fail(err, DGEMMA_E_LIMIT, "the decision takes %zu reads: at most %d are possible",
                       reads, DGEMMA_MAX_READS);
    dgemma_status st = n ? decide_layout_init(&d->layout, d->layout.engine, err) : DGEMMA_OK;
    if (!st && n)
        st = decide_label_all(&d->layout, d->questions, d->n_questions, err);
    return st || !n ? st : decide_make_groups(d, list, n, err);
}

/* ---- requests ---- */

static dgemma_status submit(dgemma_decision *d, decide_flight *f, const dgemma_request_options *r,
                            dgemma_error *err)
{
    dgemma_status st = dgemma_request_submit(&f->request, d->layout.engine, r, err);
    if (!st && d->notify)
        dgemma_request_notify(f->request, d->notify, d->notify_user);
    return st;
}

static dgemma_status begin_thought(dgemma_decision *d, decide_flight *f, dgemma_error *err)
{
    dgemma_request_options r = dgemma_request_defaults(d->layout.engine);
    r.prompt = f->group->prompt;
    r.adapters = d->adapters;
    r.n_adapters = d->o.n_adapters;
    r.seed = d->o.seed;
    r.thinking_budget = d->o.think;
    r.max_tokens = d->o.think + 2 * r.canvas_length; /* so that the budget is all there */
    f->group->thinking = true;
    f->group->tokens = dg_array((size_t)r.max_tokens + 2, sizeof *f->group->tokens);
    if (!f->group->tokens)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    return submit(d, f, &r, err);
}

static dgemma_status begin_read(dgemma_decision *d, decide_flight *f, dgemma_error *err)
{
    const decide_canvas *c = f->canvas;
    dgemma_request_options r = dgemma_request_defaults(d->layout.engine);
    dgemma_read read = {
        .tokens = c->token, .n_tokens = (size_t)c->width, .ids = c->ids, .n_ids = c->n_ids};
    r.prompt = f->group->prompt;
    r.adapters = d->adapters;
    r.n_adapters = d->o.n_adapters;
    r.read = &read;
    r.max_denoise_steps = d->o.steps;
    r.seed = d->o.seed + (uint64_t)f->sample;
    return submit(d, f, &r, err);
}

/* What is next of a group: false, nothing now. */
static bool next_of(decide_group *g, decide_flight *f)
{
    *f = (decide_flight){.group = g};
    if (g->thinks)
        return !g->thinking;
    for (size_t i = 0; i < g->n_canvas; i++)
        if (g->canvases[i].n_begun < g->canvases[i].n_wanted) {
            f->canvas = &g->canvases[i];
            f->sample = g->canvases[i].n_begun++;
            return true;
        }
    return false;
}

/* It was not sent off after all. */
static void take_back(decide_flight *f)
{
    if (f->canvas)
        f->canvas->n_begun--;
    else {
        f->group->thinking = false;
        dg_free(f->group->tokens);
        f->group->tokens = NULL;
    }
    *f = (decide_flight){0};
}

static decide_flight *any_flight(dgemma_decision *d)
{
    for (size_t i = 0; i < DECIDE_FLIGHT; i++)
        if (d->flights[i].request)
            return &d->flights[i];
    return NULL;
}

/* Sends off what can be. */
static void begin_all(dgemma_decision *d)
{
    size_t at = 0;
    for (size_t i = 0; !d->status && i < DECIDE_FLIGHT; i++) {
        decide_flight *f = &d->flights[i];
        if (f->request)
            continue;
        while (at < d->n_groups && !next_of(&d->groups[at], f))
            at++;
        if (at == d->n_groups) {
            *f = (decide_flight){0};
            return;
        }
        d->status = f->canvas ? begin_read(d, f, &d->err) : begin_thought(d, f, &d->err);
        if (d->status == DGEMMA_E_BUSY && any_flight(d)) {
            take_back(f); /* when one of ours ends there is room */
            d->status = DGEMMA_OK;
            return;
        }
    }
}

/* ---- what comes back ---- */

/* Keeps the tokens of a thought up to what closes it; true: it is over. */
static bool keep_thought(const dgemma_decision *d, decide_group *g, const dgemma_event *e)
{
    size_t most = (size_t)(d->o.think + 2 * d->layout.canvas_length);
    for (size_t i = 0; i < e->n_tokens; i++) {
        if (e->tokens[i] == d->layout.think_close || g->n_tokens == most)
            return true;
        g->tokens[g->n_tokens++] = e->tokens[i];
        if (g->tokens[0] != d->layout.think_open)
            return true;
    }
    return g->n_tokens >= (size_t)d->o.think;
}

/* The prompt goes on with the thought, closed as the model closes them; a model that thought
 * nothing is read behind an empty one. */
static dgemma_status end_thought(dgemma_decision *d, decide_group *g, dgemma_error *err)
{
    g->thinks = false;
    g->thought = g->n_tokens && g->tokens[0] == d->layout.think_open;
    dgemma_status st = DGEMMA_OK;
    if (g->thought) {
        dgemma_prompt *longer;
        d->stats.n_output += (int)g->n_tokens;
        d->stats.n_thinking += (int)g->n_tokens;
        if (d->layout.newline >= 0 && g->tokens[g->n_tokens - 1] != d->layout.newline)
            g->tokens[g->n_tokens++] = d->layout.newline;
        g->tokens[g->n_tokens++] = d->layout.think_close;
        st =
            dgemma_prompt_extend(&longer, d->layout.engine, g->prompt, g->tokens, g->n_tokens, err);
        if (!st) {
            dgemma_prompt_free(g->prompt);
            g->prompt = longer;
        }
    }
    return st ? st : decide_make_canvases(d, g, err);
}

static double logprob_of(const decide_canvas *c, const dgemma_event *e, int row, int32_t id)
{
    size_t at = 0;
    while (at < c->n_ids && c->ids[at] != id)
        at++;
    return (double)e->top_logprobs[(size_t)row * c->n_ids + at];
}

/* Of one sample the labels' log-probabilities, by options. */
static void keep_read(dgemma_decision *d, const decide_flight *f, const dgemma_event *e)
{
    decide_canvas *c = f->canvas;
    double *to = c->logprob + (size_t)f->sample * c->n_label, most = 0;
    for (size_t i = 0; i < c->n; i++) {
        const decide_question *q = &d->questions[f->group->list[c->first + i]];
        double p[DGEMMA_MAX_OPTIONS], mass;
        for (size_t k = 0; k < q->n_options; k++)
            to[decide_turned(q, k, f->group->order)] =
                logprob_of(c, e, c->slot[i], q->labels[k].id);
        decide_softmax(p, &mass, to, q->n_options, d->o.temperature);
        most = fmax(most, decide_entropy(p, q->n_options));
        to += q->n_options;
    }
    if (!d->o.samples && f->sample == 0 && most > doubt)
        c->n_wanted = 1 + DECIDE_MORE;
}

static void add_stats(dgemma_stats *sum, const dgemma_stats *s)
{
    sum->n_prompt_cached += s->n_prompt_cached;
    sum->n_steps += s->n_steps;
    sum->n_positions += s->n_positions;
    sum->n_pictures = dg_max(sum->n_pictures, s->n_pictures);
    sum->n_pictures_encoded += s->n_pictures_encoded;
    sum->queue_seconds += s->queue_seconds;
    sum->prompt_seconds += s->prompt_seconds;
    sum->denoise_seconds += s->denoise_seconds;
    sum->kv_bytes += s->kv_bytes;
}

/* The request is through: what ended it before its time, other than we did, is an error. */
static void end_flight(dgemma_decision *d, decide_flight *f, const dgemma_event *e, bool wanted)
{
    if (e->status)
        d->status = dg_fail(&d->err, e->status, "%s", e->text);
    else if (!wanted)
        d->status = dg_fail(&d->err, DGEMMA_E_CANCELLED, "the decision was cancelled");
    bool first = !f->canvas || (f->sample == 0 && f->canvas == f->group->canvases);
    dgemma_stats s = e->stats;
    s.n_prompt_cached = first ? dg_min(s.n_prompt_cached, d->stats.n_prompt) : 0;
    add_stats(&d->stats, &s);
    if (!f->canvas && !d->status)
        d->status = end_thought(d, f->group, &d->err);
    dgemma_request_free(f->request);
    *f = (decide_flight){0};
}

static void take(dgemma_decision *d, decide_flight *f, const dgemma_event *e)
{
    if (e->kind == DGEMMA_EVENT_READ)
        keep_read(d, f, e);
    else if (e->kind == DGEMMA_EVENT_THINKING && f->group == d->groups &&
             !dg_buf_append(&d->thought, e->text, e->text_len))
        d->status = dg_fail(&d->err, DGEMMA_E_NOMEM, "no memory for the thought");
    else if (e->kind == DGEMMA_EVENT_BLOCK && !f->canvas && keep_thought(d, f->group, e))
        dgemma_request_cancel(f->request); /* what it would say behind the thought is not wanted */
    else if (e->kind == DGEMMA_EVENT_END)
        end_flight(d, f, e, !f->canvas || e->stats.end != DGEMMA_END_CANCELLED);
}

/* ---- answers ---- */

/* All reads of a question, in the order of groups and samples. */
static void answer_question(dgemma_decision *d, size_t question, double *scratch, double *mass,
                            const double **reads)
{
    decide_question *q = &d->questions[question];
    size_t n_reads = 0;
    for (size_t g = 0; g < d->n_groups; g++)
        for (size_t i = 0; i < d->groups[g].n_canvas; i++) {
            const decide_canvas *c = &d->groups[g].canvases[i];
            size_t at = 0, k = 0;
            while (k < c->n && d->groups[g].list[c->first + k] != question)
                at += d->questions[d->groups[g].list[c->first + k++]].n_options;
            for (int s = 0; k < c->n && s < c->n_wanted; s++) {
                double *p = scratch + n_reads * q->n_options;
                decide_softmax(p, &mass[n_reads], c->logprob + (size_t)s * c->n_label + at,
                               q->n_options, d->o.temperature);
                reads[n_reads++] = p;
            }
        }
    decide_average(&q->answer, q->probability, reads, mass, n_reads, q->n_options);
}

static dgemma_status answer_all(dgemma_decision *d, dgemma_error *err)
{
    size_t most = 0, n = (size_t)d->o.orders * DGEMMA_MAX_SAMPLES;
    for (size_t i = 0; i < d->n_questions; i++)
        most = d->questions[i].n_options > most ? d->questions[i].n_options : most;
    double *scratch = dg_array(n * most, sizeof *scratch), *mass = dg_array(n, sizeof *mass);
    const double **reads = dg_array(n, sizeof *reads);
    dgemma_status st =
        scratch && mass && reads ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (size_t i = 0; !st && i < d->n_questions; i++)
        if (d->questions[i].n_options > 1)
            answer_question(d, i, scratch, mass, reads);
    dg_free(scratch);
    dg_free(mass);
    dg_free(reads);
    return st;
}

/* ---- life cycle ---- */

static void end_all(dgemma_decision *d)
{
    for (size_t i = 0; i < DECIDE_FLIGHT; i++)
        dgemma_request_free(d->flights[i].request);
    memset(d->flights, 0, sizeof d->flights);
}

/* Takes what came, waiting for one event if need be. */
static void advance(dgemma_decision *d, bool wait)
{
    dgemma_event e;
    decide_flight *first = wait ? any_flight(d) : NULL;
    if (first && dgemma_request_wait(first->request, &e, -1))
        take(d, first, &e);
    for (size_t i = 0; !d->status && i < DECIDE_FLIGHT; i++)
        while (!d->status && d->flights[i].request &&
               dgemma_request_wait(d->flights[i].request, &e, 0))
            take(d, &d->flights[i], &e);
    begin_all(d);
    if (!d->status && any_flight(d))
        return;
    if (!d->status && d->n_groups)
        d->status = answer_all(d, &d->err);
    end_all(d);
    d->done = true;
}

dgemma_status dgemma_decision_start(dgemma_decision **out, dgemma_engine *e,
                                    const dgemma_decide_options *o, dgemma_error *err)
{
    dgemma_status st = decide_check(o, err);
    if (st)
        return st;
    dgemma_decision *d = dg_calloc(1, sizeof *d);
    if (!d)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    d->o = *o;
    for (size_t i = 0; i < o->n_adapters; i++)
        d->adapters[i] = o->adapters[i];
    d->layout.engine = e;
    dg_buf_init(&d->thought, (size_t)64 << 20);
    st = copy_questions(d, err);
    if (!st)
        st = prepare(d, err);
    if (!st && !d->done) {
        begin_all(d);
        st = d->status;
        if (st && err)
            *err = d->err;
    }
    if (st) {
        dgemma_decision_free(d);
        return st;
    }
    *out = d;
    return DGEMMA_OK;
}

void dgemma_decision_notify(dgemma_decision *d, dgemma_notify_fn *fn, void *user)
{
    d->notify = fn;
    d->notify_user = user;
    for (size_t i = 0; i < DECIDE_FLIGHT; i++)
        if (d->flights[i].request)
            dgemma_request_notify(d->flights[i].request, fn, user);
}

bool dgemma_decision_advance(dgemma_decision *d, dgemma_status *st, dgemma_error *err)
{
    if (!d->done)
        advance(d, false);
    if (st)
        *st = d->status;
    if (err && d->status)
        *err = d->err;
    return d->done;
}

void dgemma_decision_free(dgemma_decision *d)
{
    if (!d)
        return;
    end_all(d);
    for (size_t i = 0; i < d->n_groups; i++)
        decide_clear_group(&d->groups[i]);
    for (size_t i = 0; i < d->n_questions; i++)
        decide_clear_question(&d->questions[i]);
    dg_free(d->groups);
    dg_free(d->questions);
    dg_buf_clear(&d->thought);
    dg_free(d);
}

dgemma_status dgemma_decide(dgemma_decision **out, dgemma_engine *e, const dgemma_decide_options *o,
                            dgemma_error *err)
{
    dgemma_decision *d;
    dgemma_status st = dgemma_decision_start(&d, e, o, err);
    if (st)
        return st;
    while (!d->done)
        advance(d, true);
    st = d->status;
    if (st && err)
        *err = d->err;
    if (st)
        dgemma_decision_free(d);
    else
        *out = d;
    return st;
}

const dgemma_answer *dgemma_decision_answer(const dgemma_decision *d, size_t question)
{
    return &d->questions[question].answer;
}

const char *dgemma_decision_thought(const dgemma_decision *d)
{
    return d->thought.data ? d->thought.data : "";
}

void dgemma_decision_stats(const dgemma_decision *d, dgemma_stats *stats)
{
    *stats = d->stats;
}
