#include "convert/adapter_merge.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "format/checkpoint_folder.h"
#include "tensor/blocks_narrow.h"

/* ---- which part changes which tensor ---- */

/* "model.decoder.layers.3.mlp.up_proj.weight" to "layers.3.mlp.up_proj"; false: of no such tree. */
static bool module_of(char out[DG_GGUF_NAME], const char *name)
{
    static const char *const trees[] = {"model.decoder.", "model.encoder.language_model."};
    for (size_t i = 0; i < DG_COUNT(trees); i++) {
        size_t n = strlen(trees[i]);
        if (strncmp(name, trees[i], n) != 0)
            continue;
        snprintf(out, DG_GGUF_NAME, "%s", name + n);
        if (dg_has_suffix(out, ".weight"))
            out[strlen(out) - strlen(".weight")] = '\0';
        return true;
    }
    return false;
}

static bool is_in(const char *module, const char *part, const char *tail)
{
    size_t n = strlen(part);
    return !strncmp(module, part, n) && !strcmp(module + n, tail);
}

/* Where a part's rows begin in a tensor's matrices. A part may be of gate and up together, and the
 * tensor of one of them, or the other way round. */
typedef struct place {
    int n_mat, n_out, n_in; /* of the part */
    int at;                 /* row of the tensor that the part's first is for; may be below 0 */
} place;

static bool find_place(place *p, const dg_adapter_part *part, const dg_tensor *t)
{
    char module[DG_GGUF_NAME];
    if (t->n_dim < 2 || !module_of(module, t->name))
        return false;
    const bool many = t->n_dim == 3;
    const int rows = (int)t->shape[many], half = rows / 2;
    *p = (place){many ? (int)t->shape[0] : 1, rows, (int)t->shape[1 + many], 0};
    const char *dot = strrchr(part->module, '.');
    char experts[DG_GGUF_NAME];
    snprintf(experts, sizeof experts, "%.*s", (int)(dot ? dot - part->module : 0), part->module);
    if (!strcmp(module, part->module))
        return true;
    if (part->form == DG_ADAPTER_WOVEN) { /* names none: its shapes do */
        const bool gate = is_in(module, part->module, ".gate_proj"),
                   up = is_in(module, part->module, ".up_proj");
        p->n_out *= gate || up ? 2 : 1;
        p->at = up ? -rows : 0;
        return (gate || up || is_in(module, part->module, ".gate_up_proj") ||
                is_in(module, part->module, ".down_proj")) &&
               dg_adapter_fits(part, p->n_mat, p->n_out, p->n_in);
    }
    if (dg_has_suffix(part->module, ".experts.gate_up_proj")) {
        p->n_out *= 2;
        p->at = is_in(module, experts, ".up_proj") ? -rows : 0;
        return is_in(module, experts, ".gate_proj") || is_in(module, experts, ".up_proj");
    }
    const bool up = dg_has_suffix(part->module, ".experts.up_proj");
    p->n_out = half;
    p->at = up ? half : 0;
    return (up || dg_has_suffix(part->module, ".experts.gate_proj")) &&
           is_in(module, experts, ".gate_up_proj");
}

/* A tensor of the plan that the part changes; NULL: there is none. */
static const dg_planned *find_planned(const dg_adapter_part *part, const dg_quantize_plan *plan)
{
    place p;
    for (size_t i = 0; i < plan->n; i++)
        for (int k = 0; k < 2 && plan->tensor[i].from[k]; k++)
            if (!plan->tensor[i].verbatim && find_place(&p, part, plan->tensor[i].from[k]))
                return &plan->tensor[i];
    return NULL;
}

static bool is_of_layers(const dg_adapter_part *part)
{
    return !strncmp(part->module, "layers.", 7) || !strncmp(part->module, "self_conditioning.", 18);
}

static dgemma_status check(const dg_adapter *a, const dg_quantize_plan *plan, dgemma_error *err)
{
    for (size_t i = 0; i < a->n_part; i++) {
        const dg_adapter_part *part = &a->part[i];
        const bool decoder_only = !strncmp(part->module, "self_conditioning.", 18);
        if (!part->canvas || (!part->encode && !decoder_only))
            return dg_fail(
                err, DGEMMA_E_UNSUPPORTED,
                "%s: %.80s is changed for %s alone: a file has one set of weights, so it "
                "cannot be merged",
                a->path, part->module, part->canvas ? "canvases" : "prompts");
        const dg_planned *to = is_of_layers(part) ? find_planned(part, plan) : NULL;
        if (to && to->tensor.type >= DG_DTYPE_FLOAT && !dg_blocks_can_narrow(to->tensor.type))
            return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                           "%s: %.80s is %s, which is only copied here: nothing can be merged into "
                           "it",
                           a->path, part->module, dg_dtype_name(to->tensor.type));
        if (!to)
            return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                           "%s: %.80s is no matrix of this model that can be adapted", a->path,
                           part->module);
    }
    return DGEMMA_OK;
}

dgemma_status dg_merge_open(dg_merging *m, const dgemma_adapter *adapter, size_t n,
                            const dg_quantize_plan *plan, dgemma_error *err)
{
    *m = (dg_merging){0};
    if (!n)
        return DGEMMA_OK;
    if (n > DGEMMA_MAX_ADAPTERS)
        return dg_fail(err, DGEMMA_E_ARG, "%zu adapters: at most %d can be merged", n,
                       DGEMMA_MAX_ADAPTERS);
    for (size_t i = 0; i < n; i++)
        if (!adapter[i].path || !*adapter[i].path)
            return dg_fail(err, DGEMMA_E_ARG, "adapter %zu has no path", i);
    m->list = dg_calloc(n, sizeof *m->list);
    if (!m->list)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = DGEMMA_OK;
    for (size_t i = 0; !st && i < n; i++) {
        m->list[i].scale = adapter[i].scale;
        if (!(fabsf(adapter[i].scale) <= DG_ADAPTER_SCALE))
            return dg_fail(err, DGEMMA_E_ARG,
                           "the scale of %.200s is %g: -1000 to 1000 are possible", adapter[i].path,
                           (double)adapter[i].scale);
        st = dg_adapter_open(&m->list[i].adapter, adapter[i].path, err);
        m->n += !st;
        if (!st)
            st = check(&m->list[i].adapter, plan, err);
    }
    return st;
}

void dg_merge_close(dg_merging *m)
{
    for (size_t i = 0; i < m->n; i++)
        dg_adapter_close(&m->list[i].adapter);
    dg_free(m->list);
    *m = (dg_merging){0};
}

bool dg_merge_reads(const dg_merging *m, const char *path)
{
    bool is = false;
    for (size_t i = 0; !is && i < m->n; i++)
        is = dg_adapter_reads(&m->list[i].adapter, path);
    return is;
}

/* ---- a tensor's changes ---- */

static dgemma_status add(dg_planned *to, int source, const dg_merge_adapter *a,
                         const dg_adapter_part *part, const place *p, dgemma_error *err)
{
    dg_delta *d = dg_calloc(1, sizeof *d);
    if (!d)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st =
        dg_adapter_read(&d->values, part, p->n_mat, p->n_out, p->n_in, a->adapter.path, err);
    d->at = p->at;
    d->factor = d->values.factor * a->scale;
    d->next = to->delta[source];
    to->delta[source] = d;
    return st;
}

dgemma_status dg_merge_begin(const dg_merging *m, dg_planned *to, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    place p;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].adapter.n_part; k++)
            for (int s = 0; !st && s < 2 && to->from[s] && !to->verbatim; s++)
                if (find_place(&p, &m->list[i].adapter.part[k], to->from[s]))
                    st = add(to, s, &m->list[i], &m->list[i].adapter.part[k], &p, err);
    return st;
}

void dg_merge_end(dg_planned *to)
{
    for (int s = 0; s < 2; s++) {
        for (dg_delta *d = to->delta[s], *next; d; d = next) {
            next = d->next;
            dg_adapter_values_clear(&d->values);
            dg_free(d);
        }
        to->delta[s] = NULL;
    }
}
