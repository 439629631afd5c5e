#include "deciding.h"
#include <stdio.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "adapter_request.h"

struct dg_deciding {
    dg_deciding_setup cfg;
    dg_decide_body body;
    dg_adapter_choice adapters;
    dgemma_decision *decision;
    double started;
    dgemma_status status;
    dgemma_error err;
};

static bool start(dg_deciding *g, dg_http_error *e)
{
    dgemma_error err = {0};
    dgemma_decide_options *o = &g->body.options;
    *o = dgemma_decide_defaults();
    o->temperature = g->cfg.temperature;
    o->cache_salt = g->cfg.cache_salt;
    g->body.max_images = g->cfg.max_images;
    if (!g->cfg.wire->read(&g->body, e) ||
        !dg_adapters_choose(&g->adapters, g->body.root, g->cfg.engine, g->cfg.model, e))
        return false;
    g->cfg.model = g->adapters.model;
    o->adapters = g->adapters.use;
    o->n_adapters = g->adapters.n;
    if (dgemma_decision_start(&g->decision, g->cfg.engine, o, &err))
        return dg_refuse_status(e, &err, "questions");
    dgemma_decision_notify(g->decision, g->cfg.notify, g->cfg.notify_user);
    return true;
}

bool dg_deciding_start(dg_deciding **out, const dg_deciding_setup *cfg, json_t *root,
                       dg_http_error *e)
{
    dg_deciding *g = dg_calloc(1, sizeof *g);
    if (!g) {
        json_decref(root);
        return dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
    }
    g->cfg = *cfg;
    g->body.root = root;
    g->started = dg_clock_now();
    if (!start(g, e)) {
        dg_deciding_free(g);
        return false;
    }
    *out = g;
    return true;
}

static void answer(dg_deciding *g)
{
    dgemma_stats s;
    dgemma_decision_stats(g->decision, &s);
    snprintf(g->cfg.timing, 80, "model;dur=%.2f, total;dur=%.2f",
             1e3 * (s.prompt_seconds + s.denoise_seconds), 1e3 * (dg_clock_now() - g->started));
    g->cfg.headers[0] = (dg_header){"Server-Timing", g->cfg.timing};
    g->cfg.to->headers = g->cfg.headers;
    dg_exchange_reply(g->cfg.to, 200, g->cfg.wire->write(&g->body, g->decision, g->cfg.model));
}

bool dg_deciding_done(dg_deciding *g)
{
    return dgemma_decision_advance(g->decision, &g->status, &g->err);
}

void dg_deciding_answer(dg_deciding *g)
{
    dg_http_error e;
    if (g->status && !dg_refuse_status(&e, &g->err, "questions"))
        dg_exchange_refuse(g->cfg.to, &e);
    else
        answer(g);
}

void dg_deciding_cancel(dg_deciding *g, const dg_http_error *why)
{
    dg_exchange_refuse(g->cfg.to, why);
}

void dg_deciding_stats(const dg_deciding *g, dgemma_stats *stats)
{
    dgemma_decision_stats(g->decision, stats);
}

void dg_deciding_free(dg_deciding *g)
{
    if (!g)
        return;
    dgemma_decision_free(g->decision);
    dg_decide_body_clear(&g->body);
    dg_free(g);
}
