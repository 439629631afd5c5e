#include "format/gguf_names.h"
#include <stdio.h>
#include <string.h>
#include "base/common.h"

typedef struct pair {
    const char *gguf, *ours;
} pair;

static const pair top[] = {
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight"},
    {"self_cond_pre_norm.weight", "self_conditioning.pre_norm.weight"},
    {"self_cond_gate.weight", "self_conditioning.gate_proj.weight"},
    {"self_cond_up.weight", "self_conditioning.up_proj.weight"},
    {"self_cond_down.weight", "self_conditioning.down_proj.weight"},
};

/* Inside "blk.N." and "model.decoder.layers.N.". */
static const pair layer[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"},
    {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"},
    {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    {"ffn_gate_inp.weight", "router.proj.weight"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
    {"ffn_gate_exps.weight", "experts.gate_proj"}, /* in place of the fused one */
    {"ffn_up_exps.weight", "experts.up_proj"},
    {"ffn_down_exps.weight", "experts.down_proj"},
    {"layer_output_scale.weight", "layer_scalar"},
};

/* Of an mmproj file, outside and inside "v.blk.N.". */
#define TOWER "model.encoder.vision_tower."
static const pair vision[] = {
    {DG_GGUF_PATCH, TOWER "patch_embedder.input_proj.weight"},
    {DG_GGUF_POSITIONS, TOWER "patch_embedder.position_embedding_table"},
    {"v.std_bias", TOWER "std_bias"},
    {"v.std_scale", TOWER "std_scale"},
    {"mm.input_projection.weight", "model.encoder.embed_vision.embedding_projection.weight"},
};

static const pair vision_layer[] = {
    {"ln1.weight", "input_layernorm.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_post_norm.weight", "post_attention_layernorm.weight"},
    {"ln2.weight", "pre_feedforward_layernorm.weight"},
    {"ffn_post_norm.weight", "post_feedforward_layernorm.weight"},
};

/* What stands before ".weight" or, where inputs and outputs are held in ranges, before their ends.
 */
static const pair vision_matrix[] = {
    {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"}, {"attn_out", "self_attn.o_proj"},
    {"ffn_gate", "mlp.gate_proj"},  {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
static const pair vision_part[] = {
    {"weight", "linear.weight"},  {"input_min", "input_min"},   {"input_max", "input_max"},
    {"output_min", "output_min"}, {"output_max", "output_max"},
};

static const char canvas_scalar[] = "layer_output_scale.weight";
static const char prompt_scalar[] = "enc_layer_output_scale.weight";

/* What follows PREFIX and "N." in a name, and the length of N; NULL when the name does not begin
 * so.
 */
static const char *in_layer_of(const char *prefix, const char *name, int *n_digit)
{
    size_t n_prefix = strlen(prefix);
    if (strncmp(name, prefix, n_prefix) != 0)
        return NULL;
    const char *number = name + n_prefix;
    size_t n = strspn(number, "0123456789");
    if (n == 0 || n > 9 || number[n] != '.' || (n > 1 && number[0] == '0'))
        return NULL;
    *n_digit = (int)n;
    return number + n + 1;
}

static const char *in_layer(const char *name, int *n_digit)
{
    return in_layer_of("blk.", name, n_digit);
}

static const char *look_up(const pair *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].gguf, name) == 0)
            return list[i].ours;
    return NULL;
}

/* A name of an mmproj file. */
static bool rename_vision(char out[DG_GGUF_NAME], const char *name)
{
    int n_digit;
    const char *ours = look_up(vision, DG_COUNT(vision), name);
    const char *rest = in_layer_of("v.blk.", name, &n_digit);
    if (ours)
        snprintf(out, DG_GGUF_NAME, "%s", ours);
    if (!rest)
        return ours != NULL;

    const char *number = rest - n_digit - 1, *dot = strchr(rest, '.'), *part = NULL;
    char stem[16] = "";
    ours = look_up(vision_layer, DG_COUNT(vision_layer), rest);
    if (!ours && dot && (size_t)(dot - rest) < sizeof stem) {
        snprintf(stem, sizeof stem, "%.*s", (int)(dot - rest), rest);
        ours = look_up(vision_matrix, DG_COUNT(vision_matrix), stem);
        part = look_up(vision_part, DG_COUNT(vision_part), dot + 1);
        if (!ours || !part)
            return false;
    }
    if (ours)
        snprintf(out, DG_GGUF_NAME, TOWER "encoder.layers.%.*s.%s%s%s", n_digit, number, ours,
                 part ? "." : "", part ? part : "");
    return ours != NULL;
}

bool dg_gguf_rename(char out[DG_GGUF_NAME], const char *name)
{
    int n_digit;
    if (rename_vision(out, name))
        return true;
    const char *rest = in_layer(name, &n_digit);
    const char *ours =
        rest ? look_up(layer, DG_COUNT(layer), rest) : look_up(top, DG_COUNT(top), name);
    if (rest && strcmp(rest, prompt_scalar) == 0)
        snprintf(out, DG_GGUF_NAME, "model.encoder.language_model.layers.%.*s.layer_scalar",
                 n_digit, name + 4);
    else if (rest && ours)
        snprintf(out, DG_GGUF_NAME, "model.decoder.layers.%.*s.%s", n_digit, name + 4, ours);
    else if (ours)
        snprintf(out, DG_GGUF_NAME, "model.decoder.%s", ours);
    else {
        snprintf(out, DG_GGUF_NAME, "%s", name);
        return false;
    }
    return true;
}

/* What GGUF calls `name`, which lacks its prefix. */
static const char *look_back(const pair *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].ours, name) == 0)
            return list[i].gguf;
    return NULL;
}

bool dg_gguf_name_of(char out[DG_GGUF_NAME], const char *name)
{
    static const char decoder[] = "model.decoder.";
    int n_digit;
    const char *gguf, *rest = in_layer_of("model.encoder.language_model.layers.", name, &n_digit);
    if (rest && strcmp(rest, "layer_scalar") == 0) {
        snprintf(out, DG_GGUF_NAME, "blk.%.*s.%s", n_digit, rest - n_digit - 1, prompt_scalar);
        return true;
    }
    rest = in_layer_of("model.decoder.layers.", name, &n_digit);
    if (rest) {
        gguf = look_back(layer, DG_COUNT(layer), rest);
        if (gguf)
            snprintf(out, DG_GGUF_NAME, "blk.%.*s.%s", n_digit, rest - n_digit - 1, gguf);
        return gguf != NULL;
    }
    if (strncmp(name, decoder, sizeof decoder - 1) != 0)
        return false;
    gguf = look_back(top, DG_COUNT(top), name + sizeof decoder - 1);
    if (gguf)
        snprintf(out, DG_GGUF_NAME, "%s", gguf);
    return gguf != NULL;
}

bool dg_gguf_vision_name_of(char out[DG_GGUF_NAME], const char *name)
{
    int n_digit;
    const char *gguf = look_back(vision, DG_COUNT(vision), name),
               *rest = in_layer_of(TOWER "encoder.layers.", name, &n_digit);
    if (gguf)
        snprintf(out, DG_GGUF_NAME, "%s", gguf);
    if (!rest)
        return gguf != NULL;
    const char *number = rest - n_digit - 1;
    gguf = look_back(vision_layer, DG_COUNT(vision_layer), rest);
    if (gguf)
        snprintf(out, DG_GGUF_NAME, "v.blk.%.*s.%s", n_digit, number, gguf);
    for (size_t i = 0; i < DG_COUNT(vision_matrix) && !gguf; i++) {
        const size_t n = strlen(vision_matrix[i].ours);
        if (strncmp(rest, vision_matrix[i].ours, n) != 0 || rest[n] != '.')
            continue;
        gguf = look_back(vision_part, DG_COUNT(vision_part), rest + n + 1);
        if (gguf)
            snprintf(out, DG_GGUF_NAME, "v.blk.%.*s.%s.%s", n_digit, number, vision_matrix[i].gguf,
                     gguf);
    }
    return gguf != NULL;
}

bool dg_gguf_encoder_scalar(char out[DG_GGUF_NAME], const char *name)
{
    int n_digit;
    const char *rest = in_layer(name, &n_digit);
    if (!rest || strcmp(rest, canvas_scalar) != 0)
        return false;
    snprintf(out, DG_GGUF_NAME, "blk.%.*s.%s", n_digit, name + 4, prompt_scalar);
    return true;
}

bool dg_gguf_scale_name(char out[DG_GGUF_NAME], const char *name)
{
    static const char weight[] = "weight";
    int n_digit;
    size_t n = strlen(name), n_tail = sizeof weight - 1;
    if (n < n_tail + 1 || strcmp(name + n - n_tail, weight) != 0 || name[n - n_tail - 1] != '.')
        return false;
    snprintf(out, DG_GGUF_NAME, "%.*sscale", (int)(n - n_tail), name);
    const char *rest = in_layer(out, &n_digit);
    return !rest || !look_up(layer, DG_COUNT(layer), rest);
}
