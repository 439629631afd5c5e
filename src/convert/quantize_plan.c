#include "convert/quantize_plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "model/config_gguf_put.h"
#include "tensor/blocks_narrow.h"

static const char decoder[] = "model.decoder.", encoder[] = "model.encoder.language_model.";

typedef struct planning {
    dg_quantize_plan *plan;
    const dg_loaded *l;
    const dg_preset *preset;
    const dg_importance *imp;
    dgemma_error *err;
} planning;

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static bool ends(const char *name, const char *in)
{
    size_t n = strlen(name), k = strlen(in);
    return n >= k && strcmp(name + n - k, in) == 0;
}

/* `name` with its end replaced. */
static void with_end(char out[DG_GGUF_NAME], const char *name, const char *end, const char *other)
{
    snprintf(out, DG_GGUF_NAME, "%.*s%s", (int)(strlen(name) - strlen(end)), name, other);
}

static bool is_there(const planning *p, const char *name)
{
    return dg_checkpoint_find(p->l->checkpoint, name) != NULL;
}

/* The name that the model has for a tensor. Some files have the encoder's layers in place of the
 * decoder's, or both, which are the same; their scalars are each its own. */
static const char *name_in_model(char out[DG_GGUF_NAME], const char *name)
{
    if (!begins(name, encoder) || ends(name, ".layer_scalar"))
        return name;
    snprintf(out, DG_GGUF_NAME, "%s%s", decoder, name + sizeof encoder - 1);
    return out;
}

/* Where a layer takes its values from the keys, a matrix for them would say that it does not. */
static bool is_unused_value(const planning *p, const char *name)
{
    static const char layers[] = "model.decoder.layers.";
    int layer = begins(name, layers) ? atoi(name + sizeof layers - 1) : -1;
    return ends(name, ".self_attn.v_proj.weight") && layer >= 0 && layer < p->l->cfg.n_layer &&
           p->l->cfg.layer[layer].v_from_k;
}

static int64_t row_of(const dg_tensor *t)
{
    return t->n_dim ? t->shape[t->n_dim - 1] : 1;
}

static dgemma_status check_type(const planning *p, const dg_planned *to)
{
    const dg_dtype type = to->tensor.type;
    bool same = true; /* rows are copied */
    for (int k = 0; k < 2 && to->from[k]; k++) {
        const dg_tensor *from = to->from[k];
        if (from->type >= DG_DTYPE_COMPUTE)
            return dg_fail(p->err, DGEMMA_E_UNSUPPORTED,
                           "%s is of type %s, which weights cannot have", from->name,
                           dg_dtype_name(from->type));
        same = same && from->type == type && !from->scale;
    }
    if (dg_tensor_count(&to->tensor) == 0)
        return dg_fail(p->err, DGEMMA_E_FORMAT, "%s is empty", to->from[0]->name);
    if (type < DG_DTYPE_FLOAT || dg_blocks_can_narrow(type) || same)
        return DGEMMA_OK;
    return dg_fail(p->err, DGEMMA_E_UNSUPPORTED,
                   "%s would be %s with the type %s, and nothing is turned into that here yet",
                   to->name, dg_dtype_name(type), p->preset->name);
}

static dg_planned *add(planning *p, const dg_tensor *t)
{
    dg_planned *to = &p->plan->tensor[p->plan->n++];
    *to = (dg_planned){.tensor = *t, .from = {t}};
    dg_tensor *as = &to->tensor;
    as->data = NULL;
    as->scale = NULL;
    as->pieces = NULL;
    if (as->n_dim == 0) {
        as->n_dim = 1;
        as->shape[0] = 1;
    }
    return to;
}

static void set_type(dg_planned *to, dg_dtype type)
{
    to->tensor.type = type;
    to->tensor.bytes = dg_dtype_bytes(type, dg_tensor_count(&to->tensor));
}

/* Gate and up of the experts, which files may have apart, as one. */
static dgemma_status join_experts(planning *p, dg_planned *to, const char *name)
{
    char other[DG_GGUF_NAME];
    with_end(other, to->from[0]->name, ".gate_proj", ".up_proj");
    const dg_tensor *up = dg_checkpoint_find(p->l->checkpoint, other), *gate = to->from[0];
    if (!up || up->n_dim != 3 || gate->n_dim != 3 ||
        memcmp(up->shape, gate->shape, 3 * sizeof *up->shape) != 0)
        return dg_fail(p->err, DGEMMA_E_FORMAT, "%s has no up_proj of its shape beside it", name);
    to->from[1] = up;
    to->tensor.shape[1] *= 2;
    return DGEMMA_OK;
}

/* What the importance file has for a matrix: weights for all its experts, or each expert's own. */
static dgemma_status weigh(planning *p, dg_planned *to)
{
    static const char both[] = "ffn_gate_up_exps.weight";
    const dg_tensor *t = &to->tensor;
    const dg_importance_entry *e = p->imp ? dg_importance_find(p->imp, to->name) : NULL;
    if (p->imp && !e && ends(to->name, both)) { /* made where gate and up are apart: same inputs */
        char gate[DG_GGUF_NAME];
        with_end(gate, to->name, both, "ffn_gate_exps.weight");
        e = dg_importance_find(p->imp, gate);
    }
    if (!e || t->n_dim < 2 || t->type < DG_DTYPE_FLOAT)
        return DGEMMA_OK;
    const size_t n_in = (size_t)row_of(t), n_mat = t->n_dim == 3 ? (size_t)t->shape[0] : 1;
    if (e->n != n_in && (e->n / n_in != n_mat || e->n % n_in))
        return dg_fail(p->err, DGEMMA_E_FORMAT,
                       "%s has %zu weights in the importance file, wanted %zu for each of %zu",
                       to->name, e->n, n_in, n_mat);
    to->importance = e->weight;
    to->importance_step = e->n == n_in ? 0 : n_in;
    p->plan->n_weighted++;
    return DGEMMA_OK;
}

/* The head is the embedding table; a folder that has it twice must have the same twice. */
static dgemma_status check_head(const planning *p, const dg_tensor *head)
{
    const dg_tensor *table =
        dg_checkpoint_find(p->l->checkpoint, "model.decoder.embed_tokens.weight");
    if (!table)
        table = dg_checkpoint_find(p->l->checkpoint,
                                   "model.encoder.language_model.embed_tokens.weight");
    if (table && table->type == head->type && table->bytes == head->bytes && table->data &&
        head->data && memcmp(table->data, head->data, head->bytes) == 0)
        return DGEMMA_OK;
    return dg_fail(p->err, DGEMMA_E_UNSUPPORTED,
                   "%s is not the embedding table; DiffusionGemma ties them", head->name);
}

static dgemma_status plan_one(planning *p, const dg_tensor *t)
{
    char room[DG_GGUF_NAME], fused[DG_GGUF_NAME], gguf[DG_GGUF_NAME];
    const char *name = name_in_model(room, t->name);
    if (strcmp(name, "lm_head.weight") == 0)
        return check_head(p, t);
    if (name != t->name && is_there(p, name))
        return DGEMMA_OK; /* a copy */
    bool gate = ends(name, ".experts.gate_proj"), up = ends(name, ".experts.up_proj");
    if (gate || up) {
        with_end(fused, name, gate ? ".gate_proj" : ".up_proj", ".gate_up_proj");
        if (up || is_there(p, fused))
            return DGEMMA_OK; /* its gate brings it along */
        name = fused;
    }
    if (!dg_gguf_name_of(gguf, name) || is_unused_value(p, name)) {
        bool unknown = dg_checkpoint_gguf(p->l->checkpoint) && !begins(name, "model.");
        if (!unknown) {
            p->plan->n_left_out++;
            p->plan->n_unknown += !strstr(name, "vision");
            return DGEMMA_OK;
        }
        dg_planned *same = add(p, t);
        same->verbatim = true;
        snprintf(same->name, sizeof same->name, "%s", t->name);
        return DGEMMA_OK;
    }
    dg_planned *to = add(p, t);
    snprintf(to->name, sizeof to->name, "%s", gguf);
    dgemma_status st = gate ? join_experts(p, to, t->name) : DGEMMA_OK;
    if (st)
        return st;
    set_type(to, dg_preset_type(p->preset, &p->l->cfg, name, row_of(&to->tensor)));
    st = check_type(p, to);
    return st ? st : weigh(p, to);
}

/* What is in no layer first, then layer by layer. */
static int by_place(const void *a, const void *b)
{
    const dg_planned *x = a, *y = b;
    int in_x = begins(x->name, "blk.") ? atoi(x->name + 4) : -1,
        in_y = begins(y->name, "blk.") ? atoi(y->name + 4) : -1;
    return in_x != in_y ? (in_x > in_y) - (in_x < in_y) : strcmp(x->name, y->name);
}

dgemma_status dg_quantize_plan_make(dg_quantize_plan *plan, const dg_loaded *l, const dg_preset *p,
                                    const dg_importance *imp, dgemma_error *err)
{
    planning all = {.plan = plan, .l = l, .preset = p, .imp = imp, .err = err};
    const size_t n = dg_checkpoint_count(l->checkpoint);
    *plan = (dg_quantize_plan){0};
    plan->tensor = dg_array(n + 1, sizeof *plan->tensor);
    plan->rope =
        dg_array((size_t)l->cfg.layer[l->cfg.n_layer - 1].head_dim / 2 + 1, sizeof *plan->rope);
    if (!plan->tensor || !plan->rope)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = DGEMMA_OK;
    for (size_t i = 0; !st && i < n; i++)
        st = plan_one(&all, dg_checkpoint_at(l->checkpoint, i));
    if (!st && !dg_checkpoint_gguf(l->checkpoint)) {
        plan->rope_tensor = dg_config_rope_freqs(plan->rope, &l->cfg);
        dg_planned *rope = add(&all, &plan->rope_tensor);
        snprintf(rope->name, sizeof rope->name, "%s", plan->rope_tensor.name);
    }
    if (!st && imp && !plan->n_weighted)
        st = dg_fail(err, DGEMMA_E_FORMAT,
                     "the importance file has nothing for any matrix that is quantised");
    qsort(plan->tensor, plan->n, sizeof *plan->tensor, by_place);
    for (size_t i = 0; i < plan->n; i++)
        plan->tensor[i].tensor.name = plan->tensor[i].name;
    return st;
}

void dg_quantize_plan_clear(dg_quantize_plan *plan)
{
    dg_free(plan->tensor);
    dg_free(plan->rope);
    *plan = (dg_quantize_plan){0};
}
