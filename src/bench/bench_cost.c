#include "bench/bench_cost.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "base/real.h"

static bool is_language(const dg_tensor *t)
{
    return strncmp(t->name, "model.decoder.", strlen("model.decoder.")) == 0;
}

double dg_cost_weights(const dg_checkpoint *ck)
{
    double bytes = 0;
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++)
        if (is_language(dg_checkpoint_at(ck, i)))
            bytes += (double)dg_checkpoint_at(ck, i)->bytes;
    return bytes;
}

/* Of the last layer an encoded row needs keys and values; the table's bytes are read by the head
 * alone: a prompt looks up a few rows of it. */
static bool is_for_prompts(const dg_config *cfg, const dg_tensor *t)
{
    char last[48];
    snprintf(last, sizeof last, "decoder.layers.%d.", cfg->n_layer - 1);
    if (strstr(t->name, last))
        return strstr(t->name, "k_proj") || strstr(t->name, "v_proj");
    return !strstr(t->name, "embed_tokens") && !strstr(t->name, "self_conditioning");
}

/* Dense weights of a layer that become E4M3 where experts are made narrower: those that are
 * multiplied with a norm or with what attention gives. */
static bool is_made_bytes(const dg_tensor *t)
{
    static const char *const name[] = {"q_proj", "k_proj",    "v_proj",
                                       "o_proj", "gate_proj", "up_proj"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (strstr(t->name, name[i]))
            return strstr(t->name, ".layers.");
    return false;
}

/* Bits of a value where it is multiplied, of weights that were made narrower; 0: as stored. */
static double narrow_bits(const dg_tensor *t, const char *weights)
{
    if (!weights)
        return 0;
    if (t->n_dim == 3)
        return strcmp(weights, "fp8") == 0 ? 8 : 4.25;
    return is_made_bytes(t) ? 8 : 0;
}

static double bytes_there(const dg_tensor *t, const char *weights)
{
    double bits = narrow_bits(t, weights);
    return bits > 0 ? (double)dg_tensor_count(t) * bits / 8 : (double)t->bytes;
}

static double weight_bytes(const dg_config *cfg, const dg_checkpoint *ck, const char *weights,
                           int rows, bool canvas)
{
    double left_out = dg_pow(1 - (double)cfg->n_expert_used / cfg->n_expert, rows), bytes = 0;
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++) {
        const dg_tensor *t = dg_checkpoint_at(ck, i);
        if (is_language(t) && (canvas || is_for_prompts(cfg, t)))
            bytes += bytes_there(t, weights) * (t->n_dim == 3 ? 1 - left_out : 1);
    }
    return bytes;
}

/* Weights that one row is multiplied with in the layers. */
static double row_weights(const dg_config *cfg, bool canvas)
{
    double sum = 0, n = cfg->n_embd;
    for (int i = 0; i < cfg->n_layer; i++) {
        const dg_layer_config *l = &cfg->layer[i];
        double q = (double)cfg->n_head * l->head_dim, kv = (double)l->n_kv_head * l->head_dim;
        if (!canvas && i == cfg->n_layer - 1)
            return sum + n * (l->v_from_k ? 1 : 2) * kv;
        sum += n * (2 * q + (l->v_from_k ? 1 : 2) * kv) + 3 * n * cfg->n_ff + n * cfg->n_expert +
               3 * n * cfg->n_expert_used * cfg->n_ff_expert;
    }
    return sum;
}

/* Keys that `rows` rows see together, before them up to the window and among themselves, times the
 * width of the queries, over all layers. */
static double attention_ops(const dg_config *cfg, int rows, int context, bool causal)
{
    double sum = 0;
    for (int i = 0; i < cfg->n_layer - causal; i++) {
        const dg_layer_config *l = &cfg->layer[i];
        double before = l->window ? dg_min(context, l->window - 1) : context;
        double among = causal ? (rows + 1) / 2.0 : rows;
        if (l->window && causal)
            among = fmin(among, l->window);
        sum += 4.0 * rows * (before + among) * cfg->n_head * l->head_dim;
    }
    return sum;
}

static double kv_bytes(const dg_config *cfg, int context, dg_dtype kv_type)
{
    double sum = 0;
    for (int i = 0; i < cfg->n_layer; i++) {
        const dg_layer_config *l = &cfg->layer[i];
        double before = l->window ? dg_min(context, l->window - 1) : context;
        sum += 2.0 * before * l->n_kv_head * (double)dg_kv_row_bytes(kv_type, l->head_dim);
    }
    return sum;
}

dg_cost dg_cost_step(const dg_config *cfg, const dg_checkpoint *ck, const char *weights,
                     int context, int batch, dg_dtype kv_type)
{
    int rows = batch * cfg->canvas_length;
    double n = cfg->n_embd, each = row_weights(cfg, true) + 3 * n * cfg->n_ff + n * cfg->n_vocab;
    return (dg_cost){
        .bytes =
            weight_bytes(cfg, ck, weights, rows, true) + batch * kv_bytes(cfg, context, kv_type),
        .ops = 2 * rows * each + batch * attention_ops(cfg, cfg->canvas_length, context, false),
    };
}

dg_cost dg_cost_prefill(const dg_config *cfg, const dg_checkpoint *ck, const char *weights, int n,
                        int chunk, dg_dtype kv_type)
{
    dg_cost sum = {0};
    for (int at = 0; at < n; at += chunk) {
        int rows = dg_min(chunk, n - at);
        sum.bytes += weight_bytes(cfg, ck, weights, rows, false) + kv_bytes(cfg, at, kv_type);
        sum.ops += 2 * rows * row_weights(cfg, false) + attention_ops(cfg, rows, at, true);
    }
    return sum;
}
