#include "stored_responses.h"
#include <string.h>
#include "base/alloc.h"
#include "call_body.h"
#include "json_body.h"
#include "json_fields.h"
#include "json_text.h"
#include "query.h"
#include "response_items.h"

enum { MAX_CHAIN = 1000 };

static bool no_memory(dg_http_error *e)
{
    return dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
}

/* ---- the conversation before ---- */

/* Texts of the conversation, each a list of items as JSON. They are found from the last to the
 * first, and joined once all are there. */
typedef struct chain {
    char *texts[2 * MAX_CHAIN];
    size_t n, bytes, max_bytes;
} chain;

static bool chain_add(chain *all, const char *list, dg_http_error *e)
{
    size_t n = strlen(list);
    if (n > all->max_bytes - all->bytes)
        return dg_refuse(e, 413, "body_too_large", "previous_response_id",
                         "previous_response_id: the conversation before has more than %zu bytes, "
                         "as much as a request may have",
                         all->max_bytes);
    if (n <= 2) /* [] */
        return true;
    if (!(all->texts[all->n] = dg_strdup(list)))
        return no_memory(e);
    all->n++;
    all->bytes += n;
    return true;
}

static void chain_free(chain *all)
{
    for (size_t i = 0; all && i < all->n; i++)
        dg_free(all->texts[i]);
    dg_free(all);
}

static bool refuse_unknown(dg_http_error *e, const char *id)
{
    return dg_refuse(e, 400, "previous_response_not_found", "previous_response_id",
                     "previous_response_id: there is no response \"%.64s\"", id);
}

/* One response of the chain; `id` becomes that of the one before it, or "". The lock is held. */
static bool take_link(dg_state *s, const char *owner, char id[DG_STATE_ID], chain *all,
                      dg_http_error *e)
{
    dgemma_error err = {0};
    dg_rows r = dg_rows_open(s->db, &err,
                             "SELECT input, output, previous FROM responses WHERE id=? AND owner=?"
                             " AND expires>?",
                             "ssi", id, owner, dg_state_now());
    bool found = dg_rows_next(&r, &err), fits = true;
    if (found) {
        fits = chain_add(all, dg_rows_text(&r, 1), e) && chain_add(all, dg_rows_text(&r, 0), e);
        const char *previous = dg_rows_text(&r, 2);
        id[0] = '\0';
        strncat(id, previous ? previous : "", DG_STATE_ID - 1);
    }
    if (dg_rows_close(&r))
        return dg_state_refuse(s, e, &err);
    return found ? fits : refuse_unknown(e, id);
}

/* Others have their turn between two links. */
static bool take_chain(dg_state *s, const char *owner, const char *from, chain *all,
                       dg_http_error *e)
{
    char id[DG_STATE_ID] = "";
    bool ok = true;
    strncat(id, from, sizeof id - 1);
    for (int n = 0; ok && id[0]; n++) {
        if (n == MAX_CHAIN)
            return dg_refuse(e, 400, "limit_exceeded", "previous_response_id",
                             "previous_response_id: a chain of more than %d responses", MAX_CHAIN);
        pthread_mutex_lock(&s->lock);
        ok = take_link(s, owner, id, all, e);
        pthread_mutex_unlock(&s->lock);
    }
    return ok;
}

/* {"input": [all of it]} */
static bool chain_join(const chain *all, dg_buf *text)
{
    bool ok = dg_buf_puts(text, "{\"input\":[");
    for (size_t i = all->n; ok && i-- > 0;)
        ok = dg_buf_append(text, all->texts[i] + 1, strlen(all->texts[i]) - 2) &&
             (!i || dg_buf_puts(text, ","));
    return ok && dg_buf_puts(text, "]}");
}

/* Read like a body, so that its limits hold for what many responses make together. NULL: *e. */
static json_t *items_before(dg_state *s, dg_call *c, const char *previous, dg_http_error *e)
{
    json_t *root = NULL;
    dg_buf text;
    chain *all = dg_calloc(1, sizeof *all);
    if (!all) {
        no_memory(e);
        return NULL;
    }
    all->max_bytes = c->server->opt.max_body_bytes;
    dg_buf_init(&text, all->max_bytes + 64);
    bool ok = take_chain(s, dg_state_owner(c), previous, all, e);
    c->n_fetched += all->bytes;
    if (dg_call_hold(c, all->bytes, e) && ok) {
        bool joined = chain_join(all, &text) || no_memory(e);
        root = joined ? dg_json_body(text.data, text.len, e) : NULL;
    }
    chain_free(all);
    dg_buf_clear(&text);
    json_t *items = json_incref(json_object_get(root, "input"));
    json_decref(root);
    return items;
}

/* ---- counting ---- */

dgemma_status dg_stored_mend(dg_state *s, dgemma_error *err)
{
    dgemma_status st =
        dg_database_do(s->db, err, "DELETE FROM responses WHERE expires<=?", "i", dg_state_now());
    if (st)
        return st;
    uint64_t before = s->response_bytes;
    dg_rows r = dg_rows_open(s->db, err, "SELECT COALESCE(SUM(bytes), 0) FROM responses", "");
    if (dg_rows_next(&r, err))
        s->response_bytes = (uint64_t)dg_rows_int(&r, 0);
    s->bytes = s->bytes - before + s->response_bytes;
    return dg_rows_close(&r);
}

/* Those whose time is up; the lock is held. */
static dgemma_status forget_old(dg_state *s, dgemma_error *err)
{
    dg_rows r = dg_rows_open(s->db, err, "SELECT 1 FROM responses WHERE expires<=? LIMIT 1", "i",
                             dg_state_now());
    bool some = dg_rows_next(&r, err);
    dgemma_status st = dg_rows_close(&r);
    return st || !some ? st : dg_stored_mend(s, err);
}

/* ---- keeping ---- */

static dgemma_status count_of(dg_state *s, const char *owner, int64_t *n, dgemma_error *err)
{
    dg_rows r =
        dg_rows_open(s->db, err, "SELECT COUNT(*) FROM responses WHERE owner=?", "s", owner);
    if (dg_rows_next(&r, err))
        *n = dg_rows_int(&r, 0);
    return dg_rows_close(&r);
}

/* Responses take at most half of all room, and a key's older ones make room for its newer ones.
 * What has to go: this owner's up to `last`, with so many bytes; *fits is false where all that it
 * has would not do. The lock is held. */
static dgemma_status find_room(dg_state *s, const char *owner, uint64_t bytes, int64_t *last,
                               uint64_t *freed, bool *fits, dgemma_error *err)
{
    int64_t n = 0;
    dgemma_status st = count_of(s, owner, &n, err);
    if (st)
        return st;
    dg_rows r = dg_rows_open(
        s->db, err, "SELECT seq, bytes FROM responses WHERE owner=? ORDER BY seq", "s", owner);
    for (*last = 0, *freed = 0;; n--) {
        *fits = n < s->limits.max_responses &&
                s->response_bytes - *freed + bytes <= s->limits.max_bytes / 2 &&
                s->bytes - *freed + bytes <= s->limits.max_bytes;
        if (*fits || !dg_rows_next(&r, err))
            return dg_rows_close(&r);
        *last = dg_rows_int(&r, 0);
        *freed += (uint64_t)dg_rows_int(&r, 1);
    }
}

/* The older ones go when the newer one is there: both or nothing. */
static bool insert(dg_state *s, const dg_call *c, const char *id, const char *texts[3],
                   int64_t bytes, dg_http_error *e)
{
    dgemma_error err = {0};
    int64_t now = dg_state_now(), last = 0;
    uint64_t freed = 0;
    bool fits = false;
    const char *owner = dg_state_owner(c);
    dgemma_status st = forget_old(s, &err);
    if (!st)
        st = find_room(s, owner, (uint64_t)bytes, &last, &freed, &fits, &err);
    if (!st && !fits)
        return dg_refuse(e, 507, "insufficient_storage", "store",
                         "store: there is no room for the response");
    if (!st)
        st = dg_state_begin(s, &err);
    if (st)
        return dg_state_refuse(s, e, &err);
    st = dg_database_do(s->db, &err, "DELETE FROM responses WHERE owner=? AND seq<=?", "si", owner,
                        last);
    if (!st)
        st = dg_database_do(s->db, &err,
                            "INSERT INTO responses(id, owner, previous, body, input, output, bytes,"
                            " created, expires) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
                            "ssssssiii", id, owner, c->keeping.previous, texts[0], texts[1],
                            texts[2], bytes, now, now + s->limits.keep_seconds);
    if (dg_state_end(s, st, &err))
        return dg_state_refuse(s, e, &err);
    dg_state_forget_response(s, freed);
    s->bytes += (uint64_t)bytes;
    s->response_bytes += (uint64_t)bytes;
    return true;
}

/* A dg_keep_fn. The output has a place of its own, where the next response finds it. */
static bool keep(void *call, const json_t *response, dg_http_error *e)
{
    const dg_call *c = call;
    dg_state *s = c->server->state;
    json_t *body = json_copy((json_t *)response);
    char *texts[2] = {NULL, dg_json_dump(json_object_get(response, "output"), NULL)};
    if (body && !json_object_del(body, "output"))
        texts[0] = dg_json_dump(body, NULL);
    bool ok = texts[0] && texts[1];
    if (ok) {
        size_t bytes = strlen(texts[0]) + strlen(c->own_input) + strlen(texts[1]);
        pthread_mutex_lock(&s->lock);
        ok = insert(s, c, json_string_value(json_object_get(response, "id")),
                    (const char *[3]){texts[0], c->own_input, texts[1]}, (int64_t)bytes, e);
        pthread_mutex_unlock(&s->lock);
    } else {
        no_memory(e);
    }
    for (int i = 0; i < 2; i++)
        dg_free(texts[i]);
    json_decref(body);
    return ok;
}

/* ---- before a request is read ---- */

/* The items are taken: the request's own, behind those before. */
static bool go_on_from(dg_call *c, json_t *root, const char *previous, json_t *own,
                       dg_http_error *e)
{
    json_t *before = items_before(c->server->state, c, previous, e);
    if (!before) {
        json_decref(own);
        return false;
    }
    strncat(c->previous, previous, sizeof c->previous - 1);
    c->keeping.previous = c->previous;
    json_object_del(root, "previous_response_id");
    bool ok = !json_array_extend(before, own) && !json_object_set(root, "input", before);
    json_decref(own);
    json_decref(before);
    return ok || no_memory(e);
}

/* As text, which takes no more room than it had in the body, and before pictures are put in place
 * of links in it. */
static bool remember_input(dg_call *c, const json_t *own, dg_http_error *e)
{
    size_t n = 0;
    c->own_input = dg_json_dump(own, &n);
    if (!c->own_input)
        return no_memory(e);
    c->n_own_input = n;
    return dg_call_hold(c, n, e);
}

bool dg_stored_prepare(dg_call *c, json_t *root, dg_http_error *e)
{
    const char *previous;
    const json_t *store = dg_field_get(root, "store");
    if (!c->server->state)
        return true;
    if (store && !json_is_boolean(store))
        return dg_refuse(e, 400, "invalid_type", "store", "store: wanted true or false");
    if (!dg_field_string(root, "previous_response_id", &previous, e))
        return false;
    if (previous && (!*previous || strlen(previous) >= sizeof c->previous))
        return refuse_unknown(e, previous);
    const json_t *input = dg_field_get(root, "input");
    if (!json_is_string(input) && !json_array_size(input))
        return dg_refuse(e, 400, "invalid_type", "input", "input: wanted text or a list of items");
    bool keeps = !json_is_false(store);
    if (!keeps && !previous)
        return true;
    json_t *own = dg_response_items(input, c->x.id);
    if (!own)
        return no_memory(e);
    if (keeps) {
        c->keeping.keep = keep;
        c->keeping.user = c;
        c->keeping.insists = json_is_true(store);
    }
    if (keeps && !remember_input(c, own, e)) {
        json_decref(own);
        return false;
    }
    if (previous)
        return go_on_from(c, root, previous, own, e);
    json_decref(own);
    return true;
}

/* ---- routes ---- */

static void answer(dg_call *c, json_t *body, const dg_http_error *e)
{
    if (body)
        dg_exchange_reply(&c->x, 200, body);
    else
        dg_exchange_refuse(&c->x, e);
}

/* The three texts of one, as JSON: the whole response, or its input. NULL: *e says why. */
static json_t *find(dg_state *s, const char *owner, const char *id, bool input, dg_http_error *e)
{
    dgemma_error err = {0};
    json_t *found = NULL;
    pthread_mutex_lock(&s->lock);
    dg_rows r = dg_rows_open(s->db, &err,
                             "SELECT body, input, output FROM responses WHERE id=? AND owner=? AND"
                             " expires>?",
                             "ssi", id, owner, dg_state_now());
    bool is_there = dg_rows_next(&r, &err);
    if (is_there)
        found = json_loads(dg_rows_text(&r, input ? 1 : 0), 0, NULL);
    if (is_there && !input)
        dg_json_put(&found, "output", json_loads(dg_rows_text(&r, 2), 0, NULL));
    dgemma_status st = dg_rows_close(&r);
    pthread_mutex_unlock(&s->lock);
    if (st)
        dg_state_refuse(s, e, &err);
    else if (is_there)
        no_memory(e);
    else
        dg_refuse(e, 404, "not_found", "response_id", "there is no response \"%.64s\"", id);
    return found;
}

/* A page of the items: the last one first unless asked otherwise. */
static json_t *page_of(const json_t *items, const char *query, dg_http_error *e)
{
    dg_page p;
    if (!dg_page_read(&p, query, sizeof p.after, 20, 100, e))
        return NULL;
    bool more = false, begun = !*p.after;
    json_t *list = json_array();
    size_t n = json_array_size(items);
    for (size_t i = 0; i < n && !more; i++) {
        json_t *item = json_array_get(items, p.ascending ? i : n - 1 - i);
        more = begun && json_array_size(list) == (size_t)p.limit;
        if (begun && !more)
            dg_json_add(&list, json_incref(item));
        const char *id = json_string_value(json_object_get(item, "id"));
        begun = begun || (id && !strcmp(id, p.after));
    }
    return dg_state_page(list, more);
}

/* Responses are made where none is kept, too: there is no such one then, as after its time. */
static dg_state *state_of(dg_call *c)
{
    dg_http_error e;
    if (c->server->state)
        return c->server->state;
    dg_refuse(&e, 404, "not_found", NULL,
              "%s: this server keeps no responses; it was started without --state DIR", c->path);
    dg_exchange_refuse(&c->x, &e);
    return NULL;
}

void dg_stored_get(dg_call *c)
{
    dg_http_error e = {0};
    char id[sizeof c->path];
    dg_state *s = state_of(c);
    if (!s)
        return;
    strcpy(id, c->path + strlen(c->route->path));
    char *rest = strchr(id, '/');
    if (rest && strcmp(rest, "/input_items") != 0) {
        dg_refuse(&e, 404, "not_found", NULL, "there is no %s", c->path);
        dg_exchange_refuse(&c->x, &e);
        return;
    }
    if (rest)
        *rest = '\0';
    json_t *found = find(s, dg_state_owner(c), id, rest != NULL, &e);
    if (!found || !rest) {
        answer(c, found, &e);
        return;
    }
    answer(c, page_of(found, c->query, &e), &e);
    json_decref(found);
}

void dg_stored_delete(dg_call *c)
{
    dg_http_error e = {0};
    dgemma_error err = {0};
    int64_t bytes = 0;
    const char *id = c->path + strlen(c->route->path);
    dg_state *s = state_of(c);
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    dg_rows r = dg_rows_open(s->db, &err, "SELECT bytes FROM responses WHERE id=? AND owner=?",
                             "ss", id, dg_state_owner(c));
    bool gone = dg_rows_next(&r, &err);
    if (gone)
        bytes = dg_rows_int(&r, 0);
    dgemma_status st = dg_rows_close(&r);
    if (!st && gone)
        st = dg_database_do(s->db, &err, "DELETE FROM responses WHERE id=?", "s", id);
    if (!st && gone)
        dg_state_forget_response(s, (uint64_t)bytes);
    pthread_mutex_unlock(&s->lock);
    if (st)
        dg_state_refuse(s, &e, &err);
    else if (!gone)
        dg_refuse(&e, 404, "not_found", "response_id", "there is no response \"%.64s\"", id);
    answer(c,
           !st && gone ? json_pack("{s:s,s:s,s:b}", "id", id, "object", "response", "deleted", 1)
                       : NULL,
           &e);
}
