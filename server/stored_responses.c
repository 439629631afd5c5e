#include "stored_responses.h"
#include <string.h>
#include "base/alloc.h"
#include "json_body.h"
#include "json_fields.h"
#include "json_text.h"
#include "query.h"

enum { MAX_CHAIN = 1000 };

static bool no_memory(dg_http_error *e)
{
    return dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
}

/* ---- input, as it is kept ---- */

/* Text as the list of parts that it is short for. */
static json_t *parts_of(const json_t *message)
{
    json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    bool said = role && !strcmp(role, "assistant");
    return json_is_string(content) ? json_pack("[{s:s,s:O}]", "type",
                                               said ? "output_text" : "input_text", "text", content)
                                   : json_incref(content);
}

static const char *prefix_of(const char *type)
{
    return !strcmp(type, "message")                ? "msg"
           : !strcmp(type, "function_call")        ? "fc"
           : !strcmp(type, "function_call_output") ? "fco"
                                                   : "rs";
}

/* An item with its type and an id, so that it can be asked for; NULL: out of memory. */
static json_t *kept_item(const dg_call *c, const json_t *item, size_t i)
{
    json_t *kept = json_deep_copy(item);
    const char *type = json_string_value(json_object_get(kept, "type"));
    if (!json_is_object(kept))
        return kept; /* which the reader of the request will refuse */
    type = type ? type : "message";
    if (!strcmp(type, "message")) {
        dg_json_put(&kept, "type", json_string("message"));
        dg_json_put(&kept, "content", parts_of(kept));
    }
    if (!json_is_string(json_object_get(kept, "id")))
        dg_json_put(&kept, "id", json_sprintf("%s_%s_in%zu", prefix_of(type), c->x.id, i));
    return kept;
}

/* The request's own input as a list; NULL: out of memory. */
static json_t *own_items(const dg_call *c, const json_t *input)
{
    json_t *items = json_array(), *item;
    size_t i;
    if (json_is_string(input)) {
        json_t *message = json_pack("{s:s,s:O}", "role", "user", "content", input);
        dg_json_add(&items, message ? kept_item(c, message, 0) : NULL);
        json_decref(message);
    }
    json_array_foreach(input, i, item) dg_json_add(&items, kept_item(c, item, i));
    return items;
}

/* ---- the conversation before ---- */

/* Puts the members of a list, which is JSON text, in front of what is there. */
static bool put_before(dg_buf *all, const char *list)
{
    dg_buf joined;
    size_t n = strlen(list);
    if (n <= 2) /* [] */
        return true;
    dg_buf_init(&joined, all->max);
    bool ok =
        dg_buf_append(&joined, list + 1, n - 2) &&
        (!all->len || (dg_buf_puts(&joined, ",") && dg_buf_append(&joined, all->data, all->len)));
    dg_buf_clear(all);
    *all = joined;
    return ok;
}

static bool refuse_unknown(dg_http_error *e, const char *id)
{
    return dg_refuse(e, 400, "previous_response_not_found", "previous_response_id",
                     "previous_response_id: there is no response \"%.64s\"", id);
}

/* One response of the chain; `id` becomes that of the one before it, or "". The lock is held. */
static bool take_link(dg_state *s, const char *owner, char id[DG_STATE_ID], dg_buf *all,
                      dg_http_error *e)
{
    dgemma_error err = {0};
    dg_rows r = dg_rows_open(s->db, &err,
                             "SELECT input, output, previous FROM responses WHERE id=? AND owner=?"
                             " AND expires>?",
                             "ssi", id, owner, dg_state_now());
    bool found = dg_rows_next(&r, &err), fits = true;
    if (found) {
        fits = put_before(all, dg_rows_text(&r, 1)) && put_before(all, dg_rows_text(&r, 0));
        const char *previous = dg_rows_text(&r, 2);
        id[0] = '\0';
        strncat(id, previous ? previous : "", DG_STATE_ID - 1);
    }
    if (dg_rows_close(&r))
        return dg_state_refuse(e, &err);
    if (!found)
        return refuse_unknown(e, id);
    return fits || dg_refuse(e, 413, "body_too_large", "previous_response_id",
                             "previous_response_id: the conversation before has more than %zu "
                             "bytes, as much as a request may have",
                             all->max);
}

/* All of it as JSON text, without the brackets around it. */
static bool take_chain(dg_state *s, const char *owner, const char *from, dg_buf *all,
                       dg_http_error *e)
{
    char id[DG_STATE_ID] = "";
    bool ok = true;
    strncat(id, from, sizeof id - 1);
    pthread_mutex_lock(&s->lock);
    for (int n = 0; ok && id[0]; n++)
        ok = n < MAX_CHAIN
                 ? take_link(s, owner, id, all, e)
                 : dg_refuse(e, 400, "limit_exceeded", "previous_response_id",
                             "previous_response_id: a chain of more than %d responses", MAX_CHAIN);
    pthread_mutex_unlock(&s->lock);
    return ok;
}

/* Read like a body, so that its limits hold for what many responses make together. NULL: *e. */
static json_t *items_before(dg_state *s, const dg_call *c, const char *previous, dg_http_error *e)
{
    dg_buf all, text;
    json_t *items = NULL;
    size_t max = c->server->opt.max_body_bytes;
    dg_buf_init(&all, max);
    dg_buf_init(&text, max + 64);
    if (take_chain(s, dg_state_owner(c), previous, &all, e)) {
        bool ok = dg_buf_puts(&text, "{\"input\":[") &&
                  (!all.len || dg_buf_append(&text, all.data, all.len)) && dg_buf_puts(&text, "]}");
        json_t *root = ok ? dg_json_body(text.data, text.len, e) : NULL;
        if (!ok)
            no_memory(e);
        items = json_incref(json_object_get(root, "input"));
        json_decref(root);
    }
    dg_buf_clear(&all);
    dg_buf_clear(&text);
    return items;
}

/* ---- keeping ---- */

/* The oldest of this owner's makes room; false: there is none. The lock is held. */
static bool forget_oldest(dg_state *s, const char *owner)
{
    int64_t seq = 0, bytes = 0;
    dg_rows r = dg_rows_open(s->db, NULL,
                             "SELECT seq, bytes FROM responses WHERE owner=? ORDER BY seq LIMIT 1",
                             "s", owner);
    bool found = dg_rows_next(&r, NULL);
    if (found) {
        seq = dg_rows_int(&r, 0);
        bytes = dg_rows_int(&r, 1);
    }
    if (dg_rows_close(&r) || !found ||
        dg_database_do(s->db, NULL, "DELETE FROM responses WHERE seq=?", "i", seq))
        return false;
    dg_state_forget_response(s, (uint64_t)bytes);
    return true;
}

static int64_t count_of(dg_state *s, const char *owner)
{
    int64_t n = 0;
    dg_rows r =
        dg_rows_open(s->db, NULL, "SELECT COUNT(*) FROM responses WHERE owner=?", "s", owner);
    if (dg_rows_next(&r, NULL))
        n = dg_rows_int(&r, 0);
    dg_rows_close(&r);
    return n;
}

/* Responses take at most half of all room, and a key's older ones make room for its newer ones. The
 * lock is held. */
static bool make_room(dg_state *s, const char *owner, uint64_t bytes, dg_http_error *e)
{
    dg_database_do(s->db, NULL, "DELETE FROM responses WHERE expires<=?", "i", dg_state_now());
    if (dg_database_changes(s->db) > 0)
        dg_stored_mend(s, NULL);
    uint64_t half = s->limits.max_bytes / 2;
    for (int64_t n = count_of(s, owner);
         n >= s->limits.max_responses || s->response_bytes + bytes > half ||
         s->bytes + bytes > s->limits.max_bytes;
         n--)
        if (!forget_oldest(s, owner))
            return dg_refuse(e, 507, "insufficient_storage", "store",
                             "store: there is no room for the response");
    return true;
}

static bool insert(dg_state *s, const dg_call *c, const char *id, const char *texts[3],
                   int64_t bytes, dg_http_error *e)
{
    dgemma_error err = {0};
    int64_t now = dg_state_now();
    const char *owner = dg_state_owner(c);
    if (!make_room(s, owner, (uint64_t)bytes, e))
        return false;
    if (dg_database_do(s->db, &err,
                       "INSERT INTO responses(id, owner, previous, body, input, output, bytes,"
                       " created, expires) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
                       "ssssssiii", id, owner, c->keeping.previous, texts[0], texts[1], texts[2],
                       bytes, now, now + s->limits.keep_seconds))
        return dg_state_refuse(e, &err);
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
    char *texts[3] = {NULL, dg_json_dump(c->own_input, NULL),
                      dg_json_dump(json_object_get(response, "output"), NULL)};
    if (body && !json_object_del(body, "output"))
        texts[0] = dg_json_dump(body, NULL);
    bool ok = texts[0] && texts[1] && texts[2];
    if (ok) {
        size_t bytes = strlen(texts[0]) + strlen(texts[1]) + strlen(texts[2]);
        pthread_mutex_lock(&s->lock);
        ok = insert(s, c, json_string_value(json_object_get(response, "id")),
                    (const char *[3]){texts[0], texts[1], texts[2]}, (int64_t)bytes, e);
        pthread_mutex_unlock(&s->lock);
    } else {
        no_memory(e);
    }
    for (int i = 0; i < 3; i++)
        dg_free(texts[i]);
    json_decref(body);
    return ok;
}

/* ---- before a request is read ---- */

static bool go_on_from(dg_call *c, json_t *root, const char *previous, dg_http_error *e)
{
    json_t *before = items_before(c->server->state, c, previous, e);
    if (!before)
        return false;
    strncat(c->previous, previous, sizeof c->previous - 1);
    c->keeping.previous = c->previous;
    json_object_del(root, "previous_response_id");
    json_t *own = json_deep_copy(c->own_input); /* pictures will be put in place of links in it */
    bool ok = own && !json_array_extend(before, own) && !json_object_set(root, "input", before);
    json_decref(own);
    json_decref(before);
    return ok || no_memory(e);
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
    if (previous && strlen(previous) >= sizeof c->previous)
        return refuse_unknown(e, previous);
    const json_t *input = dg_field_get(root, "input");
    if (!json_is_string(input) && !json_array_size(input))
        return dg_refuse(e, 400, "invalid_type", "input", "input: wanted text or a list of items");
    c->own_input = own_items(c, input);
    if (!c->own_input)
        return no_memory(e);
    if (previous && !go_on_from(c, root, previous, e))
        return false;
    if (!json_is_false(store)) {
        c->keeping.keep = keep;
        c->keeping.user = c;
        c->keeping.insists = json_is_true(store);
    }
    return true;
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
        dg_state_refuse(e, &err);
    else if (is_there)
        no_memory(e);
    else
        dg_refuse(e, 404, "not_found", "response_id", "there is no response \"%.64s\"", id);
    return found;
}

/* A page of the items: the last one first unless asked otherwise. */
static json_t *page_of(const json_t *items, const char *query, dg_http_error *e)
{
    char after[128], order[8];
    int limit = 20;
    if (!dg_query_text(query, "after", after, sizeof after, e) ||
        !dg_query_text(query, "order", order, sizeof order, e) ||
        !dg_query_int(query, "limit", 1, 100, &limit, e))
        return NULL;
    if (*order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0) {
        dg_refuse(e, 400, "invalid_value", "order", "order: asc and desc are known");
        return NULL;
    }
    bool more = false, begun = !*after;
    json_t *list = json_array();
    size_t n = json_array_size(items);
    for (size_t i = 0; i < n && !more; i++) {
        json_t *item = json_array_get(items, !strcmp(order, "asc") ? i : n - 1 - i);
        more = begun && json_array_size(list) == (size_t)limit;
        if (begun && !more)
            dg_json_add(&list, json_incref(item));
        const char *id = json_string_value(json_object_get(item, "id"));
        begun = begun || (id && !strcmp(id, after));
    }
    return dg_state_page(list, more);
}

void dg_stored_get(dg_call *c)
{
    dg_http_error e = {0};
    char id[sizeof c->path];
    dg_state *s = dg_state_of(c);
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
    dg_state *s = dg_state_of(c);
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
        dg_state_refuse(&e, &err);
    else if (!gone)
        dg_refuse(&e, 404, "not_found", "response_id", "there is no response \"%.64s\"", id);
    answer(c,
           !st && gone ? json_pack("{s:s,s:s,s:b}", "id", id, "object", "response", "deleted", 1)
                       : NULL,
           &e);
}
