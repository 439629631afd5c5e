#include "call_model.h"
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "call_body.h"
#include "json_fields.h"
#include "keep_alive.h"
#include "ollama_models.h"
#include "ollama_response.h"
#include "query.h"

/* ---- streams that wait ---- */

static bool is_ollamas(const dg_call *c)
{
    return c->route->dialect == &dg_ollama_chat || c->route->dialect == &dg_ollama_generate;
}

/* Ollama's answers are streams unless they are told not to be. */
static bool wants_stream(const dg_call *c)
{
    const json_t *stream = dg_field_get(c->root, "stream");
    return c->route->read && (stream ? json_is_true(stream) : is_ollamas(c));
}

/* What a dialect has to know to say that there is nothing to say yet, or never will be. */
static dg_generation nothing_yet(dg_call *c)
{
    return (dg_generation){
        .cfg = {.model = c->hold.model ? c->hold.model->name : "",
                .dialect = c->route->dialect,
                .to = &c->x,
                .keeping = c->keeping},
        .chat = {.stream = true},
        .created = (long long)time(NULL),
        .place = {.items = json_array()},
    };
}

/* A stream is opened and pinged, in the words of its dialect. Others have to wait in silence. */
static void say_nothing(dg_call *c)
{
    if (!c->awaits)
        return;
    dg_generation g = nothing_yet(c);
    dg_exchange_open(&c->x, c->route->dialect->content_type);
    c->route->dialect->ping(&g);
    json_decref(g.place.items);
}

void dg_call_refuse(dg_call *c, const dg_http_error *e)
{
    pthread_mutex_lock(&c->x.lock);
    bool open = c->x.streaming;
    pthread_mutex_unlock(&c->x.lock);
    if (!open) {
        dg_exchange_refuse(&c->x, e);
        return;
    }
    dg_generation g = nothing_yet(c);
    c->route->dialect->fail(&g, e);
    dg_exchange_close(&c->x);
    json_decref(g.place.items);
}

/* ---- turns ---- */

/* The model that the query names, however long: whether there is one is found out later. NULL: *e
 * says what is wrong; for dg_free. */
static char *queried_name(const dg_call *c, dg_http_error *e)
{
    const char *query = c->query ? c->query : "";
    const size_t size = strlen(query) + 1;
    char *name = dg_malloc(size);
    if (!name) {
        dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
    } else if (!dg_query_text(query, "model", name, size, e)) {
        dg_free(name);
        name = NULL;
    }
    return name;
}

/* Where the body names no model, the query may. An empty name is none. */
static bool take_queried(dg_call *c, dg_http_error *e)
{
    const json_t *model = dg_field_get(c->root, "model");
    const char *given = json_string_value(model);
    if (!c->query || (model && !(given && !*given)))
        return true;
    char *name = queried_name(c, e);
    if (!name)
        return false;
    bool ok = !*name || !json_object_set_new(c->root, "model", json_string(name));
    dg_free(name);
    return ok || dg_refuse(e, 400, "invalid_value", "model", "model: the query's is no UTF-8");
}

/* What the call says, and the model that it asks. NULL: *e says what is wrong. */
static dg_model *read_model(dg_call *c, dg_http_error *e)
{
    dg_models *ms = c->server->models;
    if (!ms->many)
        return ms->first;
    if (!c->root)
        c->root = dg_call_body(c, e);
    return c->root && take_queried(c, e) ? dg_models_choose(ms, c->root, e) : NULL;
}

/* Who waits counts among those that run or wait, and is refused where they are too many. What was
 * read is read again then: many who wait would need much memory for it. */
static dg_turn wait_for_model(dg_call *c, dg_http_error *e)
{
    dg_server *s = c->server;
    if (!dg_call_admit(c, 1, e)) {
        e->status = 503;
        e->retry_after = 5;
        return DG_TURN_NEVER;
    }
    pthread_mutex_lock(&s->lock);
    c->awaits = wants_stream(c);
    pthread_mutex_unlock(&s->lock);
    json_decref(c->root);
    c->root = NULL;
    return DG_TURN_LATER;
}

/* The call has its model, and may say how long that is to stay. */
static dg_turn go(dg_call *c, dg_http_error *e)
{
    dg_keep_alive keep = {0};
    if (!read_model(c, e) || (c->root && is_ollamas(c) && !dg_keep_alive_read(&keep, c->root, e)))
        return DG_TURN_NEVER;
    if (keep.given)
        dg_model_keep(c->hold.model, keep.seconds);
    return DG_TURN_NOW;
}

/* Whether nothing is asked, but that the model goes: it need not come for that. */
static bool is_farewell(const dg_call *c)
{
    dg_keep_alive keep;
    dg_http_error e;
    return c->root && is_ollamas(c) && dg_keep_alive_read(&keep, c->root, &e) &&
           dg_keep_alive_is_farewell(&keep, c->root);
}

static dg_turn begin(dg_call *c, dg_http_error *e)
{
    dg_model *m = read_model(c, e);
    if (!m)
        return DG_TURN_NEVER;
    if (is_farewell(c)) {
        dg_model_keep(m, 0);
        dg_ollama_unloaded(c, m);
        return DG_TURN_OVER;
    }
    return dg_hold_take(&c->hold, m, dg_call_ring, c) == DG_HOLD_HAS ? go(c, e)
                                                                     : wait_for_model(c, e);
}

static dg_turn turn(dg_call *c, dg_http_error *e)
{
    switch (dg_hold_look(&c->hold, e)) {
    case DG_HOLD_NONE:
        return begin(c, e);
    case DG_HOLD_WAITS:
        return DG_TURN_LATER;
    case DG_HOLD_FAILED:
        return DG_TURN_NEVER;
    default:
        return go(c, e);
    }
}

const dg_asking dg_asks_model = {turn, say_nothing, dg_call_refuse};

/* ---- without a body ---- */

dg_model *dg_call_queried(dg_call *c)
{
    dg_http_error e;
    dg_model *m = NULL;
    if (!c->server->models->many)
        return c->server->models->first; /* which goes by any name */
    char *name = queried_name(c, &e);
    if (name) {
        m = dg_models_find(c->server->models, name, NULL);
        if (!m)
            dg_models_unknown(c->server->models, name, &e);
    }
    dg_free(name);
    if (!m)
        dg_exchange_refuse(&c->x, &e);
    return m;
}
