#include "model/adapters.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

/* A piece of memory that goes with the adapters. */
typedef struct piece {
    struct piece *next;
    void *data;
    bool host;
} piece;

typedef struct told {
    bool encodes;
    size_t bytes;
    int rank;
} told;

struct dg_model_adapters {
    int n;
    piece *pieces;
    told told[DG_MAX_ADAPTER];
};

/* The matrices that one part changes: rows of B, weight by weight. */
typedef struct target {
    dg_weight *w[2];
    int n_mat, n_out, n_in;
} target;

typedef struct adapting {
    dg_model *m;
    struct dg_model_adapters *all;
    const char *where;
    int index; /* of the adapter */
    dgemma_error *err;
} adapting;

/* ---- names ---- */

static target one(dg_weight *w)
{
    return (target){{w, NULL}, w->n_mat, w->n_out, w->n_in};
}

static target both(dg_weight *first, dg_weight *second)
{
    return (target){{first, second}, first->n_mat, first->n_out + second->n_out, first->n_in};
}

static target in_mlp(dg_mlp_weights *w, const char *name)
{
    dg_weight *const list[] = {&w->gate, &w->up, &w->down};
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i]))
            return one(list[i]);
    return (target){0};
}

/* Which of the experts' matrices a part means that names none. */
static target in_experts(dg_expert_weights *w, const char *name, const dg_adapter_part *p)
{
    const target gate_up = both(&w->gate, &w->up), down = one(&w->down);
    if (!*name)
        return dg_adapter_fits(p, down.n_mat, down.n_out, down.n_in) ? down : gate_up;
    if (!strcmp(name, ".gate_up_proj"))
        return gate_up;
    return !strcmp(name, ".gate_proj")   ? one(&w->gate)
           : !strcmp(name, ".up_proj")   ? one(&w->up)
           : !strcmp(name, ".down_proj") ? down
                                         : (target){0};
}

static target in_layer(dg_layer *y, const char *name, const dg_adapter_part *p)
{
    dg_attention_weights *at = &y->attention;
    dg_weight *const list[] = {&at->q, &at->k, &at->v, &at->o, &y->router.proj};
    static const char *const names[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                        "self_attn.o_proj", "router.proj"};
    for (int i = 0; i < 5; i++)
        if (!strcmp(name, names[i]))
            return i == 2 && at->v_from_k ? (target){0} : one(list[i]);
    if (!strncmp(name, "mlp.", 4))
        return in_mlp(&y->dense, name + 4);
    return !strncmp(name, "experts", 7) ? in_experts(&y->experts, name + 7, p) : (target){0};
}

static target find(dg_model *m, const dg_adapter_part *p)
{
    static const char layers[] = "layers.", condition[] = "self_conditioning.";
    const char *name = p->module;
    if (!strncmp(name, condition, sizeof condition - 1))
        return in_mlp(&m->condition, name + sizeof condition - 1);
    if (strncmp(name, layers, sizeof layers - 1) != 0)
        return (target){0};
    name += sizeof layers - 1;
    size_t n = strspn(name, "0123456789");
    long index = n && n < 6 ? strtol(name, NULL, 10) : -1;
    if (index < 0 || index >= m->cfg.n_layer || name[n] != '.')
        return (target){0};
    return in_layer(&m->layer[index], name + n + 1, p);
}

/* ---- memory ---- */

static bool keep(struct dg_model_adapters *all, dg_backend *be, void *data, bool host)
{
    piece *p = data ? dg_malloc(sizeof *p) : NULL;
    if (!p) {
        if (host)
            dg_free(data);
        else
            be->free(be, data);
        return false;
    }
    *p = (piece){all->pieces, data, host};
    all->pieces = p;
    return true;
}

/* A copy in the backend's memory; NULL: there is no room. */
static void *place(struct dg_model_adapters *all, dg_backend *be, const void *from, size_t bytes)
{
    void *to = be->alloc(be, bytes);
    if (!keep(all, be, to, false))
        return NULL;
    be->upload(be, to, from, bytes);
    return to;
}

/* n floats of this adapter. */
static float *put(adapting *a, const float *from, size_t n)
{
    a->all->told[a->index].bytes += n * sizeof *from;
    return place(a->all, a->m->be, from, n * sizeof *from);
}

/* The table of what adapters do to a weight, made for the first that does; here until all are
 * read. */
static dg_low_rank *table_of(adapting *a, dg_weight *w)
{
    if (!w->adapter) {
        dg_low_rank *table = dg_calloc(2 * (size_t)a->all->n, sizeof *table);
        if (keep(a->all, a->m->be, table, true))
            w->adapter = table;
    }
    return (dg_low_rank *)w->adapter;
}

/* Rows [first, first + n_out) of each matrix of B. */
static float *put_rows(adapting *a, const dg_adapter_values *v, int first, int n_out)
{
    const size_t rank = (size_t)v->rank, all = (size_t)v->n_out * rank, some = (size_t)n_out * rank,
                 n = (size_t)v->n_mat;
    if (n_out == v->n_out)
        return put(a, v->b, n * all);
    float *rows = dg_array(n, some * sizeof *rows);
    for (size_t e = 0; rows && e < n; e++)
        memcpy(rows + e * some, v->b + e * all + (size_t)first * rank, some * sizeof *rows);
    float *to = rows ? put(a, rows, n * some) : NULL;
    dg_free(rows);
    return to;
}

/* ---- a part ---- */

static dgemma_status set(adapting *a, const dg_adapter_part *p, const target *t,
                         const dg_adapter_values *v)
{
    float *shared = put(a, v->a, (size_t)v->n_mat * (size_t)v->rank * (size_t)v->n_in);
    for (int i = 0, first = 0; i < 2 && t->w[i]; first += t->w[i]->n_out, i++) {
        dg_low_rank *table = table_of(a, t->w[i]);
        float *b = shared && table ? put_rows(a, v, first, t->w[i]->n_out) : NULL;
        if (!b)
            return dg_fail(a->err, DGEMMA_E_NOMEM, "%s: no memory for %.80s", a->where, p->module);
        for (int canvas = 0; canvas < 2; canvas++) {
            dg_low_rank *low = &table[2 * a->index + canvas];
            if (!(canvas ? p->canvas : p->encode))
                continue;
            if (low->rank)
                return dg_fail(a->err, DGEMMA_E_FORMAT, "%s: %.80s is changed twice", a->where,
                               p->module);
            *low = (dg_low_rank){v->rank, shared, b, v->factor};
        }
    }
    told *about = &a->all->told[a->index];
    about->encodes = about->encodes || p->encode;
    about->rank = dg_max(about->rank, v->rank);
    return DGEMMA_OK;
}

static dgemma_status adapt(adapting *a, const dg_adapter *from)
{
    for (size_t i = 0; i < from->n_part; i++) {
        const dg_adapter_part *p = &from->part[i];
        const target t = find(a->m, p);
        dg_adapter_values v;
        if (!t.w[0])
            return dg_fail(a->err, DGEMMA_E_UNSUPPORTED,
                           "%s: %.80s is no matrix of this model that can be adapted", a->where,
                           p->module);
        dgemma_status st = dg_adapter_read(&v, p, t.n_mat, t.n_out, t.n_in, a->where, a->err);
        if (!st)
            st = set(a, p, &t, &v);
        dg_adapter_values_clear(&v);
        if (st)
            return st;
    }
    return DGEMMA_OK;
}

/* ---- all of them ---- */

/* A weight's table goes to the backend's memory; or is forgotten. */
static bool settle(dg_model *m, struct dg_model_adapters *all, dg_weight *w, bool wanted)
{
    const size_t bytes = 2 * (size_t)all->n * sizeof *w->adapter;
    bool had = w->adapter != NULL;
    if (had)
        w->adapter = wanted ? place(all, m->be, w->adapter, bytes) : NULL;
    return !had || w->adapter;
}

static bool settle_all(dg_model *m, struct dg_model_adapters *all, bool wanted)
{
    dg_mlp_weights *c = &m->condition;
    dg_weight *const condition[] = {&c->gate, &c->up, &c->down};
    bool fine = true;
    for (size_t k = 0; k < DG_COUNT(condition); k++)
        fine &= settle(m, all, condition[k], wanted);
    for (int i = 0; i < m->cfg.n_layer; i++) {
        dg_layer *y = &m->layer[i];
        dg_attention_weights *at = &y->attention;
        dg_weight *const list[] = {&at->q,         &at->k,          &at->v,
                                   &at->o,         &y->dense.gate,  &y->dense.up,
                                   &y->dense.down, &y->router.proj, &y->experts.gate,
                                   &y->experts.up, &y->experts.down};
        for (size_t k = 0; k < DG_COUNT(list); k++)
            fine &= settle(m, all, list[k], wanted);
    }
    return fine;
}

dgemma_status dg_model_adapt(dg_model *m, const dg_adapter *adapter, int n, dgemma_error *err)
{
    if (!n)
        return DGEMMA_OK;
    if (n > DG_MAX_ADAPTER)
        return dg_fail(err, DGEMMA_E_LIMIT, "%d adapters: at most %d can be loaded", n,
                       DG_MAX_ADAPTER);
    struct dg_model_adapters *all = dg_calloc(1, sizeof *all);
    if (!all)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    all->n = n;
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; !st && i < n; i++)
        st = adapt(&(adapting){m, all, adapter[i].path, i, err}, &adapter[i]);
    if (!st && !settle_all(m, all, true))
        st = dg_fail(err, DGEMMA_E_NOMEM, "no memory for adapters");
    if (st) {
        settle_all(m, all, false);
        dg_model_adapters_free(all, m->be);
    } else {
        m->adapters = all;
    }
    return st;
}

bool dg_model_adapter_encodes(const dg_model *m, int adapter)
{
    return m->adapters->told[adapter].encodes;
}

size_t dg_model_adapter_bytes(const dg_model *m, int adapter)
{
    return m->adapters->told[adapter].bytes;
}

int dg_model_adapter_rank(const dg_model *m, int adapter)
{
    return m->adapters->told[adapter].rank;
}

void dg_model_adapters_free(struct dg_model_adapters *a, dg_backend *be)
{
    for (piece *p = a ? a->pieces : NULL, *next; p; p = next) {
        next = p->next;
        if (p->host)
            dg_free(p->data);
        else
            be->free(be, p->data);
        dg_free(p);
    }
    dg_free(a);
}
