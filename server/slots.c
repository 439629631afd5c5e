#include "slots.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "call_body.h"
#include "call_model.h"
#include "json_fields.h"
#include "json_text.h"
#include "query.h"

/* As many as run together. Which request sits where is nobody's business. */
void dg_slots_list(dg_call *c)
{
    dg_hold h;
    dg_model_view v;
    dgemma_engine_counters n = {0};
    dg_model *m = dg_call_queried(c);
    if (!m)
        return;
    if (dg_hold_try(&h, m)) {
        dgemma_engine_count(m->engine, &n);
        dg_hold_drop(&h);
    }
    dg_model_look(m, &v);
    int n_slot = m->spec ? m->spec->options.max_running : c->server->opt.max_running;
    json_t *list = json_array();
    for (int i = 0; i < n_slot; i++)
        dg_json_add(&list, json_pack("{s:i,s:i,s:b,s:b}", "id", i, "n_ctx", v.info.context_length,
                                     "speculative", 0, "is_processing", i < n.n_running));
    dg_exchange_reply(&c->x, 200, list);
}

/* ---- conversations in files ---- */

enum { NAME_MAX_BYTES = 200, SLOT_MAX = 1023 };

static bool slot_number(const char *path, int *slot, dg_http_error *e)
{
    const char *at = path + strlen("/slots/");
    int n = 0, used = 0;
    if (sscanf(at, "%4d%n", &n, &used) != 1 || at[used] || *at < '0' || *at > '9' || n > SLOT_MAX)
        return dg_refuse(e, 404, "not_found", NULL, "there is no %s: slots have numbers up to %d",
                         path, SLOT_MAX);
    *slot = n;
    return true;
}

/* A plain name, which leads nowhere else. */
static bool is_plain(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    static const char taken[] = ".partial"; /* what is not whole is called so */
    const size_t n = strlen(name);
    return n && n <= NAME_MAX_BYTES && name[0] != '.' && strspn(name, letters) == n &&
           !(n >= sizeof taken - 1 && !strcmp(name + n - (sizeof taken - 1), taken));
}

enum { OWNER_BYTES = 32 };

/* Keys have files of their own, unless they share the cache: what stands in front of the name that
 * a client gives. */
static void put_owner(char to[OWNER_BYTES], const dg_call *c)
{
    *to = '\0';
    if (c->key > 0 && c->cache_salt[0])
        snprintf(to, OWNER_BYTES, "key%d-", c->key);
}

/* NULL: *e says why. */
static char *file_of(const dg_call *c, const char *name, dg_http_error *e)
{
    char owner[OWNER_BYTES], own[NAME_MAX_BYTES + OWNER_BYTES];
    if (!is_plain(name)) {
        dg_refuse(e, 400, "invalid_value", "filename",
                  "filename: letters, digits, '.', '-' and '_' make a name, no dot in front and no "
                  ".partial behind, at most %d of them",
                  NAME_MAX_BYTES);
        return NULL;
    }
    put_owner(owner, c);
    snprintf(own, sizeof own, "%s%s", owner, name);
    char *path = dg_path_join(c->server->opt.slot_path, own);
    if (!path)
        dg_refuse(e, 500, "out_of_memory", NULL, "out of memory");
    return path;
}

static json_t *told(int slot, const char *name, bool saves, const dgemma_saved_prefix *p,
                    double seconds)
{
    return json_pack("{s:i,s:s,s:i,s:I,s:{s:f}}", "id_slot", slot, "filename", name,
                     saves ? "n_saved" : "n_restored", p->n_tokens, saves ? "n_written" : "n_read",
                     (json_int_t)p->bytes, "timings", saves ? "save_ms" : "restore_ms",
                     1e3 * seconds);
}

/* What is said of a file begins with its path: a client knows the end of that. */
static bool refuse(const dg_call *c, dgemma_error *err, dg_http_error *e)
{
    const bool ours = err->status == DGEMMA_E_IO || err->status == DGEMMA_E_INTERNAL;
    char owner[OWNER_BYTES];
    put_owner(owner, c);
    dg_hide_folder(err->msg, c->server->opt.slot_path);
    const size_t n = strlen(owner), from = strncmp(err->msg, owner, n) ? 0 : n;
    if (err->status == DGEMMA_E_NOMEM)
        return dg_refuse_status(e, err, NULL);
    return dg_refuse(e, ours ? 500 : 400, "slot_refused", "filename", "%s", err->msg + from);
}

static bool act(dg_call *c, const json_t *root, dg_http_error *e)
{
    char action[16];
    const char *name = NULL;
    int slot = 0;
    dgemma_saved_prefix done;
    dgemma_error err = {0};
    if (!c->server->opt.slot_path)
        return dg_refuse(e, 501, "no_slot_path", NULL,
                         "this server saves no slots; it was started without --slot-save-path DIR");
    if (!slot_number(c->path, &slot, e) ||
        !dg_query_text(c->query, "action", action, sizeof action, e) ||
        !dg_field_string(root, "filename", &name, e))
        return false;
    const bool saves = strcmp(action, "save") == 0;
    if (!saves && strcmp(action, "restore") != 0)
        return dg_refuse(e, 400, "invalid_value", "action",
                         "action: save and restore are known, as in /slots/0?action=save");
    if (!name)
        return dg_refuse(e, 400, "missing_field", "filename", "filename: which file it is");
    char *path = file_of(c, name, e);
    if (!path)
        return false;
    if (atomic_exchange(&c->server->slot_busy, true)) { /* others need workers, too */
        dg_free(path);
        dg_refuse(e, 429, "slot_busy", NULL, "another slot is being saved or restored");
        e->retry_after = 1;
        return false;
    }
    const double start = dg_clock_now();
    dgemma_engine *engine = c->hold.model->engine;
    dgemma_status st = saves ? dgemma_prefix_save(engine, path, slot, c->cache_salt, &done, &err)
                             : dgemma_prefix_restore(engine, path, c->cache_salt, &done, &err);
    atomic_store(&c->server->slot_busy, false);
    const bool gone = st == DGEMMA_E_IO && !saves && !dg_file_exists(path);
    dg_free(path);
    if (gone)
        return dg_refuse(e, 404, "not_found", "filename", "filename: there is no %s", name);
    if (st)
        return refuse(c, &err, e);
    dg_exchange_reply(&c->x, 200, told(slot, name, saves, &done, dg_clock_now() - start));
    return true;
}

void dg_slots_act(dg_call *c)
{
    dg_http_error e;
    json_t *root = dg_call_body(c, &e);
    if (!root || !act(c, root, &e))
        dg_exchange_refuse(&c->x, &e);
    json_decref(root);
}
