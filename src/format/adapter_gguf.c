/* An adapter as llama.cpp has it: NAME.lora_a and NAME.lora_b of the model's tensors. One set of
 * weights serves prompt and canvas there, so what it changes is changed in both. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "format/adapter.h"
#include "format/checkpoint_folder.h"
#include "format/gguf_names.h"

static dgemma_status check_keys(const dg_gguf *g, double *alpha, const char *where,
                                dgemma_error *err)
{
    static const struct {
        const char *key, *wanted;
    } same[] = {{"general.type", "adapter"},
                {"adapter.type", "lora"},
                {"general.architecture", "diffusion-gemma"}};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (!dg_gguf_string_is(dg_gguf_find(g, same[i].key), same[i].wanted))
            return dg_fail(err, DGEMMA_E_UNSUPPORTED, "%s: %s is not \"%s\"", where, same[i].key,
                           same[i].wanted);
    if (dg_gguf_find(g, "adapter.alora.invocation_tokens"))
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "%s: an adapter that waits for its invocation (aLoRA) cannot be used",
                       where);
    if (!dg_gguf_float(dg_gguf_find(g, "adapter.lora.alpha"), 0, alpha) ||
        !(fabs(*alpha) <= DG_ADAPTER_ALPHA))
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: adapter.lora.alpha is not a number from -1000000 to 1000000", where);
    return DGEMMA_OK;
}

/* "blk.3.attn_q.weight" to "layers.3.self_attn.q_proj"; false: the language model has none such. */
static bool module_of(char out[DG_GGUF_NAME], const char *name)
{
    static const char decoder[] = "model.decoder.", weight[] = ".weight";
    char ours[DG_GGUF_NAME];
    if (strlen(name) >= DG_GGUF_NAME || !dg_gguf_rename(ours, name) ||
        strncmp(ours, decoder, sizeof decoder - 1) != 0)
        return false;
    if (dg_has_suffix(ours, weight))
        ours[strlen(ours) - (sizeof weight - 1)] = '\0';
    snprintf(out, DG_GGUF_NAME, "%s", ours + sizeof decoder - 1);
    return true;
}

static dgemma_status add(dg_adapter *out, const dg_tensor *a, double alpha, const char *where,
                         dgemma_error *err)
{
    char name[DG_GGUF_NAME], other[DG_GGUF_NAME], module[DG_GGUF_NAME];
    snprintf(name, sizeof name, "%.*s", (int)(strlen(a->name) - strlen(".lora_a")), a->name);
    snprintf(other, sizeof other, "%.240s.lora_b", name);
    if (!module_of(module, name))
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "%s: %.200s is no matrix that can be adapted",
                       where, name);
    dg_adapter_part *part = dg_adapter_add(out, where, err);
    if (!part)
        return err ? err->status : DGEMMA_E_LIMIT;
    *part = (dg_adapter_part){
        .module = dg_strdup(module),
        .encode = strncmp(module, "self_conditioning.", 18) != 0,
        .canvas = true,
        .form = a->n_dim == 3 ? DG_ADAPTER_STACKED : DG_ADAPTER_PLAIN,
        .a = a,
        .b = dg_gguf_tensor(&out->gguf, other),
        .alpha = alpha,
    };
    if (!part->module)
        return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", where);
    if (!part->b)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: %.200s is missing", where, other);
    return DGEMMA_OK;
}

dgemma_status dg_adapter_parse_gguf(dg_adapter *out, const void *data, size_t size,
                                    const char *where, dgemma_error *err)
{
    double alpha = 0;
    size_t n_b = 0;
    dgemma_status st = dg_gguf_parse(&out->gguf, data, size, where, err);
    if (!st)
        st = check_keys(&out->gguf, &alpha, where, err);
    for (size_t i = 0; !st && i < out->gguf.n_tensor; i++) {
        const dg_tensor *t = &out->gguf.tensor[i];
        if (dg_has_suffix(t->name, ".lora_a") && strlen(t->name) < DG_GGUF_NAME)
            st = add(out, t, alpha, where, err);
        else if (dg_has_suffix(t->name, ".lora_b"))
            n_b++;
        else
            st = dg_fail(err, DGEMMA_E_UNSUPPORTED,
                         "%s: %.200s is neither half of a change of low rank", where, t->name);
    }
    if (!st && !out->gguf.n_tensor)
        st = dg_fail(err, DGEMMA_E_FORMAT, "%s: it has no tensors: it would change nothing", where);
    if (!st && (n_b != out->n_part || !n_b))
        st = dg_fail(err, DGEMMA_E_FORMAT,
                     "%s: %zu tensors lora_a and %zu lora_b do not go together", where, out->n_part,
                     n_b);
    return st;
}
