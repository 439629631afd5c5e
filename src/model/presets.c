#include "model/presets.h"
#include <stdlib.h>
#include <string.h>
#include "base/common.h"

static const dg_preset presets[] = {
    {"BF16", 32, DG_BF16, DG_BF16, DG_BF16, DG_BF16, DG_BF16, DG_BF16, DG_BF16, DG_BF16, DG_BF16,
     DG_BF16, DG_BF16, DG_WIDER_NONE},
    {"F16", 1, DG_F16, DG_F16, DG_F16, DG_F16, DG_F16, DG_F16, DG_F16, DG_F16, DG_F16, DG_F16,
     DG_F16, DG_WIDER_NONE},
    {"Q8_0", 7, DG_Q8_0, DG_Q8_0, DG_Q8_0, DG_Q8_0, DG_Q8_0, DG_Q8_0, DG_Q8_0, DG_Q8_0, DG_Q8_0,
     DG_Q8_0, DG_Q8_0, DG_WIDER_NONE},
    {"Q6_K", 18, DG_Q6_K, DG_Q6_K, DG_Q6_K, DG_Q6_K, DG_Q6_K, DG_Q6_K, DG_Q6_K, DG_Q6_K, DG_Q6_K,
     DG_Q6_K, DG_Q6_K, DG_WIDER_NONE},
    {"Q5_K_M", 17, DG_Q6_K, DG_Q5_K, DG_Q5_K, DG_Q5_K, DG_Q6_K, DG_Q5_K, DG_Q5_K, DG_Q5_K, DG_Q6_K,
     DG_Q5_K, DG_Q6_K, DG_WIDER_MORE_BITS},
    {"Q4_K_M", 15, DG_Q6_K, DG_Q4_K, DG_Q4_K, DG_Q4_K, DG_Q6_K, DG_Q4_K, DG_Q4_K, DG_Q4_K, DG_Q6_K,
     DG_Q4_K, DG_Q6_K, DG_WIDER_MORE_BITS},
    /* Ours. Where Q4_K_M wants a few bits more for down, rows of 704 and 2112 make Q8_0 of them;
     * here all layers have Q5_1, and what that saves goes to where it takes more off the error. */
    {"Q4_K_D", 15, DG_Q6_K, DG_Q4_K, DG_Q5_K, DG_Q5_K, DG_Q5_K, DG_Q4_K, DG_Q5_K, DG_Q5_K, DG_Q5_K,
     DG_Q5_K, DG_Q5_K, DG_WIDER_EDGES},
    {"Q4_0", 2, DG_Q6_K, DG_Q4_0, DG_Q4_0, DG_Q4_0, DG_Q4_0, DG_Q4_0, DG_Q4_0, DG_Q4_0, DG_Q4_0,
     DG_Q4_0, DG_Q4_0, DG_WIDER_NONE},
    {"Q4_1", 3, DG_Q6_K, DG_Q4_1, DG_Q4_1, DG_Q4_1, DG_Q4_1, DG_Q4_1, DG_Q4_1, DG_Q4_1, DG_Q4_1,
     DG_Q4_1, DG_Q4_1, DG_WIDER_NONE},
    {"IQ4_NL", 25, DG_Q6_K, DG_IQ4_NL, DG_IQ4_NL, DG_IQ4_NL, DG_IQ4_NL, DG_IQ4_NL, DG_IQ4_NL,
     DG_IQ4_NL, DG_Q5_K, DG_IQ4_NL, DG_Q5_K, DG_WIDER_FIRST},
    {"IQ4_XS", 30, DG_Q6_K, DG_IQ4_XS, DG_IQ4_XS, DG_IQ4_XS, DG_IQ4_XS, DG_IQ4_XS, DG_IQ4_XS,
     DG_IQ4_XS, DG_Q5_K, DG_IQ4_XS, DG_Q5_K, DG_WIDER_FIRST},
    {"MXFP4_MOE", 38, DG_Q8_0, DG_Q8_0, DG_Q8_0, DG_Q8_0, DG_Q8_0, DG_MXFP4, DG_MXFP4, DG_Q8_0,
     DG_Q8_0, DG_MXFP4, DG_MXFP4, DG_WIDER_NONE},
    {"Q2_K", 10, DG_Q6_K, DG_Q2_K, DG_Q3_K, DG_Q3_K, DG_Q3_K, DG_Q2_K, DG_Q2_K, DG_Q3_K, DG_Q3_K,
     DG_Q3_K, DG_Q3_K, DG_WIDER_NONE},
    {"IQ3_XXS", 23, DG_Q5_K, DG_IQ3_XXS, DG_IQ3_XXS, DG_IQ3_XXS, DG_IQ3_XXS, DG_IQ3_XXS, DG_IQ3_XXS,
     DG_IQ3_XXS, DG_Q3_K, DG_IQ3_XXS, DG_Q3_K, DG_WIDER_FIRST},
    {"IQ2_S", 28, DG_Q5_K, DG_IQ2_XS, DG_IQ3_S, DG_Q4_K, DG_Q4_K, DG_IQ2_XS, DG_IQ2_XS, DG_IQ2_XS,
     DG_IQ2_XS, DG_IQ2_XS, DG_IQ2_XS, DG_WIDER_NONE},
    {"IQ2_XXS", 19, DG_Q5_K, DG_IQ2_XXS, DG_IQ2_XXS, DG_Q4_K, DG_Q4_K, DG_IQ2_XXS, DG_IQ2_XXS,
     DG_IQ2_XXS, DG_Q2_K, DG_IQ2_XXS, DG_Q2_K, DG_WIDER_FIRST},
    {"IQ1_S", 24, DG_Q5_K, DG_IQ1_S, DG_IQ2_XXS, DG_Q4_K, DG_Q4_K, DG_IQ1_S, DG_IQ1_S, DG_IQ1_S,
     DG_Q2_K, DG_IQ1_S, DG_Q2_K, DG_WIDER_FIRST},
};

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* Names are taken in any case. */
bool dg_preset_same(const char *a, const char *b)
{
    while (*a && upper(*a) == upper(*b)) {
        a++;
        b++;
    }
    return upper(*a) == upper(*b);
}

const dg_preset *dg_preset_find(const char *name)
{
    for (size_t i = 0; i < DG_COUNT(presets); i++)
        if (dg_preset_same(presets[i].name, name))
            return &presets[i];
    return NULL;
}

#define MADE "BF16, F16, Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_K_D, Q4_0, Q4_1, IQ4_NL, IQ4_XS, MXFP4_MOE"

const char *dg_preset_names(void)
{
    return MADE ", Q2_K, IQ3_XXS, IQ2_S, IQ2_XXS, IQ1_S";
}

const char *dg_preset_made_names(void)
{
    return MADE;
}

/* Whether number `index` of `n` tensors of a kind gets the wider type. */
static bool is_wider(const dg_preset *p, int index, int n)
{
    const int eighth = n / 8;
    const bool first = index < eighth, last = index >= 7 * n / 8;
    switch (p->rule) {
    case DG_WIDER_FIRST:
        return first;
    case DG_WIDER_EDGES:
        return first || last;
    case DG_WIDER_MORE_BITS:
        return first || last || (index - eighth) % 3 == 2;
    default:
        return false;
    }
}

/* Values are counted by themselves: global layers have none. */
static bool value_is_wider(const dg_preset *p, const dg_config *cfg, int layer)
{
    int n = 0, place = 0;
    for (int i = 0; i < cfg->n_layer; i++)
        if (!cfg->layer[i].v_from_k) {
            place += i < layer;
            n++;
        }
    return is_wider(p, place, n);
}

/* What takes the place of a type whose blocks are longer than rows; as in llama.cpp. Blocks of 32
 * fill rows of 704 and 2112 values, blocks of 256 do not. */
static dg_dtype fitting(dg_dtype type, int64_t n_in)
{
    if (n_in % (int64_t)dg_dtype_block(type) == 0)
        return type;
    if (n_in % 32)
        return DG_F16;
    switch (type) {
    case DG_Q2_K:
    case DG_Q3_K:
    case DG_TQ1_0:
    case DG_TQ2_0:
        return DG_Q4_0;
    case DG_Q4_K:
        return DG_Q5_0;
    case DG_Q5_K:
        return DG_Q5_1;
    case DG_Q6_K:
        return DG_Q8_0;
    default:
        return DG_IQ4_NL;
    }
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

dg_dtype dg_preset_type(const dg_preset *p, const dg_config *cfg, const char *name, int64_t n_in)
{
    static const char *const wide[] = {".self_attn.q_proj.weight", ".self_attn.k_proj.weight",
                                       ".gate_proj.weight", ".up_proj.weight"};
    static const char *const expert[] = {".experts.gate_up_proj", ".experts.gate_proj",
                                         ".experts.up_proj"};
    const char *in_layer = strstr(name, ".layers.");
    const int layer = in_layer ? atoi(in_layer + strlen(".layers.")) : 0;
    const bool wider = in_layer && is_wider(p, layer, cfg->n_layer);
    if (ends_in(name, ".embed_tokens.weight"))
        return fitting(p->table, n_in);
    if (ends_in(name, ".self_attn.v_proj.weight"))
        return fitting(value_is_wider(p, cfg, layer) ? p->value_wider : p->value, n_in);
    if (ends_in(name, ".self_attn.o_proj.weight"))
        return fitting(p->out, n_in);
    if (ends_in(name, ".down_proj.weight"))
        return fitting(wider ? p->down_wider : p->down, n_in);
    if (ends_in(name, ".experts.down_proj"))
        return fitting(wider ? p->expert_down_wider : p->expert_down, n_in);
    for (size_t i = 0; i < DG_COUNT(wide); i++)
        if (ends_in(name, wide[i]))
            return fitting(p->wide, n_in);
    for (size_t i = 0; i < DG_COUNT(expert); i++)
        if (ends_in(name, expert[i]))
            return fitting(wider ? p->expert_wider : p->expert, n_in);
    return DG_F32;
}
