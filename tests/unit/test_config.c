/* config: the published model's documents, their other spellings, and each thing that is refused.
 */
#include "suites.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "model/config.h"
#include "support/alloc_fail.h"

/* google/diffusiongemma-26B-A4B-it: 30 layers, every sixth global. layer_types is added by real().
 */
static const char published[] =
    "{\"architectures\": [\"DiffusionGemmaForBlockDiffusion\"], \"model_type\": "
    "\"diffusion_gemma\","
    " \"canvas_length\": 256, \"dtype\": \"bfloat16\", \"tie_word_embeddings\": true,"
    " \"boi_token_id\": 255999, \"eoi_token_id\": 258882, \"image_token_id\": 258880,"
    " \"eos_token_id\": [1, 106], \"vision_soft_tokens_per_image\": 280,"
    " \"initializer_range\": 0.02, \"transformers_version\": \"5.8.0.dev0\","
    " \"text_config\": {\"model_type\": \"diffusion_gemma_text\","
    "  \"vocab_size\": 262144, \"hidden_size\": 2816, \"intermediate_size\": 2112,"
    "  \"num_hidden_layers\": 30, \"num_attention_heads\": 16, \"num_key_value_heads\": 8,"
    "  \"num_global_key_value_heads\": 2, \"head_dim\": 256, \"global_head_dim\": 512,"
    "  \"hidden_activation\": \"gelu_pytorch_tanh\", \"max_position_embeddings\": 262144,"
    "  \"rms_norm_eps\": 1e-06, \"sliding_window\": 1024, \"final_logit_softcapping\": 30.0,"
    "  \"rope_parameters\": {"
    "   \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0},"
    "   \"full_attention\": {\"rope_type\": \"proportional\", \"rope_theta\": 1000000.0,"
    "    \"partial_rotary_factor\": 0.25}},"
    "  \"attention_bias\": false, \"attention_dropout\": 0.0, \"num_experts\": 128,"
    "  \"top_k_experts\": 8, \"moe_intermediate_size\": 704,"
    "  \"use_bidirectional_attention\": \"vision\", \"tie_word_embeddings\": true,"
    "  \"pad_token_id\": 0, \"bos_token_id\": 2, \"eos_token_id\": 1, \"dtype\": \"bfloat16\"},"
    " \"vision_config\": {\"model_type\": \"gemma4_vision\", \"hidden_size\": 1152,"
    "  \"intermediate_size\": 4304, \"num_hidden_layers\": 27, \"num_attention_heads\": 16,"
    "  \"num_key_value_heads\": 16, \"head_dim\": 72, \"global_head_dim\": 72,"
    "  \"hidden_activation\": \"gelu_pytorch_tanh\", \"rms_norm_eps\": 1e-06, \"patch_size\": 16,"
    "  \"pooling_kernel_size\": 3, \"position_embedding_size\": 10240,"
    "  \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 100.0},"
    "  \"standardize\": true, \"use_clipped_linears\": false, \"default_output_length\": 280,"
    "  \"attention_bias\": false, \"max_position_embeddings\": 131072}}";

static const char generation[] =
    "{\"max_new_tokens\": 256, \"max_denoising_steps\": 48, \"t_min\": 0.4, \"t_max\": 0.8,"
    " \"sampler_config\": {\"_cls_name\": \"EntropyBoundSamplerConfig\", \"entropy_bound\": 0.1},"
    " \"stability_threshold\": 1, \"confidence_threshold\": 0.005,"
    " \"eos_token_id\": [1, 106, 50], \"pad_token_id\": 0}";

static json_t *document(const char *text)
{
    json_error_t at;
    json_t *root = json_loads(text, 0, &at);
    ck_assert_msg(root != NULL, "%s", at.text);
    return root;
}

static json_t *real(void)
{
    json_t *root = document(published), *types = json_array();
    for (int i = 0; i < 30; i++)
        json_array_append_new(types,
                              json_string(i % 6 == 5 ? "full_attention" : "sliding_attention"));
    json_object_set_new(json_object_get(root, "text_config"), "layer_types", types);
    return root;
}

/* Sets the key at a path like "text_config.head_dim" to a JSON value; NULL takes the key out. */
static void edit(json_t *root, const char *path, const char *text)
{
    json_t *obj = root;
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        if (!json_object_get(obj, key))
            json_object_set_new(obj, key, json_object());
        obj = json_object_get(obj, key);
    }
    if (!text) {
        ck_assert_int_eq(json_object_del(obj, path), 0);
        return;
    }
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    ck_assert_msg(v != NULL, "%s", text);
    json_object_set_new(obj, path, v);
}

/* Reads the document and lets go of it. */
static dgemma_status parse(dg_config *c, json_t *root, dgemma_error *err)
{
    char *text = json_dumps(root, 0);
    dgemma_status st = dg_config_parse(c, text, strlen(text), "config.json", err);
    free(text);
    json_decref(root);
    return st;
}

static void parse_good(dg_config *c, json_t *root)
{
    dgemma_error err = {0};
    dgemma_status st = parse(c, root, &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
}

START_TEST(published_model)
{
    dg_config c;
    parse_good(&c, real());
    ck_assert_int_eq(c.n_vocab, 262144);
    ck_assert_int_eq(c.n_embd, 2816);
    ck_assert_int_eq(c.n_ff, 2112);
    ck_assert_int_eq(c.n_layer, 30);
    ck_assert_int_eq(c.n_head, 16);
    ck_assert_int_eq(c.n_expert, 128);
    ck_assert_int_eq(c.n_expert_used, 8);
    ck_assert_int_eq(c.n_ff_expert, 704);
    ck_assert_int_eq(c.n_context, 262144);
    ck_assert_int_eq(c.canvas_length, 256);
    ck_assert_float_eq(c.rms_eps, 1e-6f);
    ck_assert_float_eq(c.logit_softcap, 30.0f);
    ck_assert_float_eq(c.embed_scale, 53.0f);
    ck_assert(c.bidirectional_images);
    ck_assert_int_eq(c.pad_token, 0);
    ck_assert_int_eq(c.bos_token, 2);
    ck_assert_int_eq(c.n_stop, 2);
    ck_assert_int_eq(c.stop_token[0], 1);
    ck_assert_int_eq(c.stop_token[1], 106);
    ck_assert_int_eq(c.image_token, 258880);
    ck_assert_int_eq(c.boi_token, 255999);
    ck_assert_int_eq(c.eoi_token, 258882);
    for (int i = 0; i < 30; i++) {
        const dg_layer_config *l = &c.layer[i];
        bool full = i == 5 || i == 11 || i == 17 || i == 23 || i == 29;
        ck_assert_int_eq(l->sliding, !full);
        ck_assert_int_eq(l->v_from_k, full);
        ck_assert_int_eq(l->window, full ? 0 : 1024);
        ck_assert_int_eq(l->n_kv_head, full ? 2 : 8);
        ck_assert_int_eq(l->head_dim, full ? 512 : 256);
        ck_assert_float_eq(l->rope_theta, full ? 1e6f : 1e4f);
        ck_assert_int_eq(l->n_rope_pair, full ? 64 : 128);
    }
}
END_TEST

START_TEST(published_tower)
{
    dg_config c;
    parse_good(&c, real());
    const dg_vision_config *v = &c.vision;
    ck_assert(v->present);
    ck_assert_int_eq(v->n_embd, 1152);
    ck_assert_int_eq(v->n_ff, 4304);
    ck_assert_int_eq(v->n_layer, 27);
    ck_assert_int_eq(v->n_head, 16);
    ck_assert_int_eq(v->head_dim, 72);
    ck_assert_int_eq(v->patch, 16);
    ck_assert_int_eq(v->pool, 3);
    ck_assert_int_eq(v->n_position, 10240);
    ck_assert_int_eq(v->max_soft, 280);
    ck_assert(v->standardize);
    ck_assert(!v->clipped);
    ck_assert_float_eq(v->rms_eps, 1e-6f);
    ck_assert_float_eq(v->rope_theta, 100.0f);

    json_t *root = real(); /* a checkpoint for text alone */
    edit(root, "vision_config", NULL);
    parse_good(&c, root);
    ck_assert(!c.vision.present);
    root = real();
    edit(root, "vision_config", "null");
    parse_good(&c, root);
    ck_assert(!c.vision.present);
}
END_TEST

/* Edits after which the published document means the same. */
static const char *const same[][2] = {
    {"text_config.layer_types", NULL},
    {"text_config.layer_types", "null"},
    {"text_config.final_logit_softcapping", NULL},
    {"text_config.rms_norm_eps", NULL},
    {"text_config.hidden_activation", NULL},
    {"text_config.rope_parameters", NULL},
    {"text_config.hidden_size", "2816.0"},
    {"text_config.vocab_size", "2.62144e5"},
    {"text_config.rope_parameters.sliding_attention.rope_type", NULL},
    {"text_config.rope_parameters.sliding_attention.rope_theta", "10000"},
    {"text_config.attention_k_eq_v", "true"},
    {"text_config.enable_moe_block", "true"},
    {"text_config.num_kv_shared_layers", "0"},
    {"text_config.quantization_config", "null"},
    {"canvas_length", NULL},
    {"dtype", NULL},
    {"dtype", "null"},
    {"torch_dtype", "\"bfloat16\""},
    {"text_config.model_type", NULL},
    {"vision_config.patch_size", NULL},
    {"vision_config.pooling_kernel_size", NULL},
    {"vision_config.position_embedding_size", NULL},
    {"vision_config.num_key_value_heads", NULL},
    {"vision_config.global_head_dim", NULL},
    {"vision_config.rope_parameters", NULL},
    {"vision_config.rope_parameters.rope_type", "\"axial\""},
    {"vision_config.default_output_length", NULL},
    {"vision_config.use_clipped_linears", NULL},
    {"something_new", "{\"a\": [1, 2]}"},
    {"text_config.per_layer_config", "{}"},
    {"text_config.per_layer_config", "null"},
    {"text_config.per_layer_config", "{\"5\": {\"head_dim\": 512, \"num_key_value_heads\": 2}}"},
};

START_TEST(other_spellings)
{
    dg_config want, got;
    parse_good(&want, real());
    json_t *root = real();
    edit(root, same[_i][0], same[_i][1]);
    parse_good(&got, root);
    ck_assert_mem_eq(&got, &want, sizeof got);
}
END_TEST

START_TEST(per_layer_spelling)
{
    dg_config want, got;
    parse_good(&want, real());
    json_t *root = real();
    edit(root, "text_config.global_head_dim", NULL);
    edit(root, "text_config.num_global_key_value_heads", NULL);
    for (int i = 5; i < 30; i += 6) {
        char path[64];
        snprintf(path, sizeof path, "text_config.per_layer_config.%d", i);
        edit(root, path, "{\"head_dim\": 512, \"num_key_value_heads\": 2}");
    }
    parse_good(&got, root);
    ck_assert_mem_eq(&got, &want, sizeof got);
}
END_TEST

START_TEST(flat_document)
{
    /* text_config's keys at the top: its eos and model_type give way to those already there */
    dg_config want, got;
    parse_good(&want, real());
    json_t *root = real();
    json_t *text = json_incref(json_object_get(root, "text_config"));
    edit(root, "text_config", NULL);
    json_object_update_missing(root, text);
    json_decref(text);
    parse_good(&got, root);
    ck_assert_mem_eq(&got, &want, sizeof got);
}
END_TEST

START_TEST(what_differs)
{
    dg_config c;
    json_t *root = real();
    edit(root, "eos_token_id", NULL);
    edit(root, "image_token_id", "null");
    edit(root, "text_config.pad_token_id", NULL);
    edit(root, "text_config.use_bidirectional_attention", "null");
    edit(root, "text_config.final_logit_softcapping", "null");
    edit(root, "text_config.attention_k_eq_v", "false");
    edit(root, "text_config.global_head_dim", NULL);
    edit(root, "text_config.num_global_key_value_heads", NULL);
    edit(root, "text_config.per_layer_config.7.num_key_value_heads", "4");
    parse_good(&c, root);
    ck_assert_int_eq(c.n_stop, 1);
    ck_assert_int_eq(c.stop_token[0], 1);
    ck_assert_int_eq(c.image_token, -1);
    ck_assert_int_eq(c.pad_token, -1);
    ck_assert(!c.bidirectional_images);
    ck_assert_float_eq(c.logit_softcap, 0);
    ck_assert(!c.layer[5].v_from_k);
    ck_assert_int_eq(c.layer[5].head_dim, 256);
    ck_assert_int_eq(c.layer[5].n_kv_head, 8);
    ck_assert_int_eq(c.layer[5].n_rope_pair, 32);
    ck_assert_int_eq(c.layer[7].n_kv_head, 4);
    ck_assert_int_eq(c.layer[8].n_kv_head, 8);
}
END_TEST

START_TEST(few_layers)
{
    /* the default pattern ends on a global layer whatever the count */
    static const struct {
        int n;
        const char *pattern;
    } want[] = {{1, "f"}, {2, "sf"}, {6, "sssssf"}, {7, "sssssff"}, {8, "sssssfsf"}};
    for (size_t k = 0; k < DG_COUNT(want); k++) {
        dg_config c;
        char n[8];
        snprintf(n, sizeof n, "%d", want[k].n);
        json_t *root = document(published);
        edit(root, "text_config.num_hidden_layers", n);
        parse_good(&c, root);
        for (int i = 0; i < want[k].n; i++)
            ck_assert_int_eq(c.layer[i].sliding, want[k].pattern[i] == 's');
    }
}
END_TEST

START_TEST(embedding_scales)
{
    static const struct {
        const char *dtype;
        float scale;
    } want[] = {{"\"bfloat16\"", 53.0f}, {"\"float16\"", 53.0625f}, {"\"float32\"", 53.0659981f}};
    for (size_t i = 0; i < DG_COUNT(want); i++) {
        dg_config c;
        json_t *root = real();
        edit(root, "dtype", want[i].dtype);
        parse_good(&c, root);
        ck_assert_float_eq(c.embed_scale, want[i].scale);

        root = real(); /* the text's own counts where the top says nothing */
        edit(root, "dtype", NULL);
        edit(root, "text_config.dtype", NULL);
        edit(root, "text_config.torch_dtype", want[i].dtype);
        parse_good(&c, root);
        ck_assert_float_eq(c.embed_scale, want[i].scale);
    }
}
END_TEST

#define T "text_config."
static const struct {
    const char *path, *value; /* the edit that spoils the published document */
    dgemma_status status;
    const char *says;
} bad[] = {
    {"model_type", "\"gemma4\"", DGEMMA_E_UNSUPPORTED,
     "config.json: model_type is \"gemma4\", wanted \"diffusion_gemma\""},
    {"model_type", NULL, DGEMMA_E_FORMAT, "model_type is missing"},
    {"model_type", "3", DGEMMA_E_UNSUPPORTED, "model_type is 3"},
    {T "model_type", "\"gemma4_text\"", DGEMMA_E_UNSUPPORTED, "text_config.model_type is \"gemma4"},
    {"text_config", "[]", DGEMMA_E_FORMAT, "text_config is [], wanted an object"},
    {"text_config", NULL, DGEMMA_E_FORMAT, "vocab_size is missing"},
    {"quantization_config", "{\"quant_method\": \"bitsandbytes\"}", DGEMMA_E_UNSUPPORTED,
     "quantization_config.quant_method is \"bitsandbytes\", wanted \"compressed-tensors\""},
    {"quantization_config", "{\"quant_method\": \"compressed-tensors\", \"format\": \"marlin-24\"}",
     DGEMMA_E_UNSUPPORTED, "quantization_config.format is \"marlin-24\", wanted one of: float-q"},
    {"quantization_config",
     "{\"quant_method\": \"compressed-tensors\", \"config_groups\": "
     "{\"g\": {\"format\": \"mxfp6-pack-quantized\"}}}",
     DGEMMA_E_UNSUPPORTED,
     "quantization_config.config_groups.g.format is \"mxfp6-pack-quantized\""},
    {"quantization_config",
     "{\"quant_method\": \"compressed-tensors\", \"config_groups\": "
     "{\"g\": {\"weights\": {\"block_structure\": [128, 100]}}}}",
     DGEMMA_E_UNSUPPORTED, "config_groups.g.weights.block_structure is [128,100], wanted two"},
    {"quantization_config",
     "{\"quant_method\": \"compressed-tensors\", \"transform_config\": {\"a\": 1}}",
     DGEMMA_E_UNSUPPORTED, "quantization_config.transform_config is {\"a\":1}, wanted none"},
    {"quantization_config",
     "{\"quant_method\": \"compressed-tensors\", \"sparsity_config\": "
     "{\"format\": \"sparse-bitmask\"}}",
     DGEMMA_E_UNSUPPORTED, "quantization_config.sparsity_config is {"},
    {"quantization_config", "{\"quant_method\": \"modelopt\", \"quant_algo\": \"W4A8_AWQ\"}",
     DGEMMA_E_UNSUPPORTED, "quantization_config.quant_algo is \"W4A8_AWQ\", wanted one of: FP8 "},
    {"quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 3}", DGEMMA_E_UNSUPPORTED,
     "quantization_config.bits is 3, wanted 4"},
    {"quantization_config",
     "{\"quant_method\": \"gptq\", \"bits\": 4, \"checkpoint_format\": \"marlin\"}",
     DGEMMA_E_UNSUPPORTED, "quantization_config.checkpoint_format is \"marlin\""},
    {"quantization_config", "{\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemv\"}",
     DGEMMA_E_UNSUPPORTED, "quantization_config.version is \"gemv\", wanted \"gemm\""},
    {"quantization_config",
     "{\"quant_method\": \"auto-round\", \"bits\": 4, \"packing_format\": \"auto_round:fp8\"}",
     DGEMMA_E_UNSUPPORTED, "quantization_config.packing_format is \"auto_round:fp8\""},
    {"quantization_config", "{\"quant_method\": \"fp8\", \"weight_block_size\": 7}",
     DGEMMA_E_UNSUPPORTED, "quantization_config.weight_block_size is 7"},
    {T "quantization_config", "{}", DGEMMA_E_UNSUPPORTED,
     "text_config.quantization_config.quant_method is missing"},
    {T "hidden_activation", "\"silu\"", DGEMMA_E_UNSUPPORTED,
     "hidden_activation is \"silu\", wanted \"gelu_pytorch_tanh\""},
    {T "attention_bias", "true", DGEMMA_E_UNSUPPORTED, "attention_bias is true"},
    {T "attn_logit_softcapping", "50.0", DGEMMA_E_UNSUPPORTED, "attn_logit_softcapping is 50.0"},
    {T "hidden_size_per_layer_input", "256", DGEMMA_E_UNSUPPORTED, "per_layer_input is 256"},
    {T "num_kv_shared_layers", "20", DGEMMA_E_UNSUPPORTED, "num_kv_shared_layers is 20"},
    {T "use_double_wide_mlp", "true", DGEMMA_E_UNSUPPORTED, "use_double_wide_mlp is true"},
    {"tie_word_embeddings", "false", DGEMMA_E_UNSUPPORTED, "tie_word_embeddings is false"},
    {T "tie_word_embeddings", "false", DGEMMA_E_UNSUPPORTED, "text_config.tie_word_embeddings is"},
    {T "tie_word_embeddings", "1", DGEMMA_E_FORMAT, "wanted true or false"},
    {T "enable_moe_block", "false", DGEMMA_E_UNSUPPORTED, "enable_moe_block is false"},
    {T "num_experts", NULL, DGEMMA_E_FORMAT, "text_config.num_experts is missing"},
    {T "num_experts", "null", DGEMMA_E_FORMAT, "text_config.num_experts is missing"},
    {T "num_experts", "0", DGEMMA_E_FORMAT, "num_experts is 0, wanted a whole number from 1"},
    {T "top_k_experts", "129", DGEMMA_E_FORMAT,
     "top_k_experts is 129, wanted a whole number from 1 to 128"},
    {T "moe_intermediate_size", NULL, DGEMMA_E_FORMAT, "moe_intermediate_size is missing"},
    {T "vocab_size", "true", DGEMMA_E_FORMAT, "vocab_size is true"},
    {T "vocab_size", "\"262144\"", DGEMMA_E_FORMAT, "vocab_size is \"262144\""},
    {T "vocab_size", "258880", DGEMMA_E_FORMAT, "image_token_id is 258880, wanted"},
    {T "hidden_size", "-1", DGEMMA_E_FORMAT, "hidden_size is -1"},
    {T "hidden_size", "2816.5", DGEMMA_E_FORMAT, "hidden_size is 2816.5"},
    {T "hidden_size", "9223372036854775807", DGEMMA_E_FORMAT, "hidden_size is 9223372036854775807"},
    {T "hidden_size", "1e300", DGEMMA_E_FORMAT, "hidden_size is 1"},
    {T "intermediate_size", "16777217", DGEMMA_E_FORMAT, "intermediate_size is 16777217"},
    {T "num_hidden_layers", "513", DGEMMA_E_FORMAT, "num_hidden_layers is 513"},
    {T "num_hidden_layers", "29", DGEMMA_E_FORMAT, "layer_types is"},
    {T "num_attention_heads", "15", DGEMMA_E_FORMAT,
     "heads of layer 0 is 8, wanted a divisor of the 15"},
    {T "num_key_value_heads", "3", DGEMMA_E_FORMAT, "heads of layer 0 is 3"},
    {T "num_global_key_value_heads", "5", DGEMMA_E_FORMAT, "heads of layer 5 is 5"},
    {T "head_dim", "255", DGEMMA_E_FORMAT, "head_dim of layer 0 is 255, wanted even"},
    {T "head_dim", NULL, DGEMMA_E_FORMAT, "head_dim is missing"},
    {T "global_head_dim", "511", DGEMMA_E_FORMAT, "head_dim of layer 5 is 511"},
    {T "max_position_embeddings", "134217729", DGEMMA_E_FORMAT, "max_position_embeddings is"},
    {T "rms_norm_eps", "0", DGEMMA_E_FORMAT, "rms_norm_eps is 0"},
    {T "rms_norm_eps", "-1e-6", DGEMMA_E_FORMAT, "rms_norm_eps is -"},
    {T "rms_norm_eps", "1e-300", DGEMMA_E_FORMAT, "rms_norm_eps is 1"},
    {T "sliding_window", "0", DGEMMA_E_FORMAT, "sliding_window is 0"},
    {T "sliding_window", NULL, DGEMMA_E_FORMAT, "sliding_window is missing"},
    {T "final_logit_softcapping", "-30", DGEMMA_E_FORMAT, "final_logit_softcapping is -30"},
    {T "layer_types", "\"full_attention\"", DGEMMA_E_FORMAT, "layer_types is \"full"},
    {T "layer_types", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26]",
     DGEMMA_E_FORMAT, "..., wanted a list of 30"},
    {T "per_layer_config", "[]", DGEMMA_E_FORMAT, "per_layer_config is []"},
    {T "per_layer_config", "{\"30\": {}}", DGEMMA_E_FORMAT, "per_layer_config.30 is {}"},
    {T "per_layer_config", "{\"99999999999999999999\": {}}", DGEMMA_E_FORMAT,
     "layers from 0 to 29"},
    {T "per_layer_config", "{\"-1\": {}}", DGEMMA_E_FORMAT, "per_layer_config.-1 is {}"},
    {T "per_layer_config", "{\"1x\": {}}", DGEMMA_E_FORMAT, "per_layer_config.1x is {}"},
    {T "per_layer_config", "{\"\": {}}", DGEMMA_E_FORMAT, "layers from 0 to 29"},
    {T "per_layer_config", "{\"1\": 2}", DGEMMA_E_FORMAT,
     "per_layer_config.1 is 2, wanted an object"},
    {T "per_layer_config", "{\"1\": {\"head_dim\": 0}}", DGEMMA_E_FORMAT,
     "per_layer_config.1.head_dim is 0"},
    {T "per_layer_config", "{\"1\": {\"head_dim\": 7}}", DGEMMA_E_FORMAT,
     "layer 1 is 7, wanted even"},
    {T "per_layer_config", "{\"5\": {\"head_dim\": 128}}", DGEMMA_E_FORMAT,
     "per_layer_config.5.head_dim is 128, wanted 512 as in global_head_dim"},
    {T "per_layer_config", "{\"1\": {\"rank\": 4}}", DGEMMA_E_UNSUPPORTED, "config.1.rank is 4"},
    {T "rope_parameters", "{\"rope_theta\": 1e4}", DGEMMA_E_FORMAT,
     "rope_parameters.sliding_attention is missing"},
    {T "rope_parameters.full_attention", NULL, DGEMMA_E_FORMAT, "full_attention is missing"},
    {T "rope_parameters.full_attention", "7", DGEMMA_E_FORMAT, "full_attention is 7"},
    {T "rope_parameters.full_attention.rope_theta", NULL, DGEMMA_E_FORMAT, "rope_theta is missing"},
    {T "rope_parameters.full_attention.rope_theta", "0", DGEMMA_E_FORMAT, "rope_theta is 0"},
    {T "rope_parameters.full_attention.rope_type", "\"yarn\"", DGEMMA_E_UNSUPPORTED,
     "text_config.rope_parameters.full_attention.rope_type is \"yarn\""},
    {T "rope_parameters.full_attention.partial_rotary_factor", "1.5", DGEMMA_E_FORMAT,
     "partial_rotary_factor is 1.5"},
    {T "rope_parameters.full_attention.factor", "8", DGEMMA_E_UNSUPPORTED, "factor is 8"},
    {T "rope_parameters.sliding_attention.partial_rotary_factor", "0.5", DGEMMA_E_UNSUPPORTED,
     "partial_rotary_factor is 0.5"},
    {T "use_bidirectional_attention", "\"all\"", DGEMMA_E_UNSUPPORTED,
     "use_bidirectional_attention is \"all\""},
    {T "attention_k_eq_v", "1", DGEMMA_E_FORMAT, "attention_k_eq_v is 1"},
    {"canvas_length", "0", DGEMMA_E_FORMAT, "canvas_length is 0"},
    {"canvas_length", "65537", DGEMMA_E_FORMAT, "canvas_length is 65537"},
    {"dtype", "\"float8_e4m3fn\"", DGEMMA_E_UNSUPPORTED, "dtype is \"float8_e4m3fn\""},
    {"eos_token_id", "262144", DGEMMA_E_FORMAT, "eos_token_id is 262144, wanted ids from 0"},
    {"eos_token_id", "[1, true]", DGEMMA_E_FORMAT, "eos_token_id is true"},
    {"eos_token_id", "[1, -1]", DGEMMA_E_FORMAT, "eos_token_id is -1"},
    {"eos_token_id", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", DGEMMA_E_LIMIT, "at most 16"},
    {"boi_token_id", "300000", DGEMMA_E_FORMAT, "boi_token_id is 300000"},
    {T "pad_token_id", "-1", DGEMMA_E_FORMAT, "pad_token_id is -1"},
    {"vision_config", "7", DGEMMA_E_FORMAT, "vision_config is 7, wanted an object"},
    {"vision_config.model_type", "\"siglip\"", DGEMMA_E_UNSUPPORTED,
     "vision_config.model_type is \"siglip\""},
    {"vision_config.hidden_size", NULL, DGEMMA_E_FORMAT, "vision_config.hidden_size is missing"},
    {"vision_config.intermediate_size", "0", DGEMMA_E_FORMAT, "vision_config.intermediate_size"},
    {"vision_config.num_hidden_layers", "513", DGEMMA_E_FORMAT, "vision_config.num_hidden_layers"},
    {"vision_config.num_attention_heads", "\"16\"", DGEMMA_E_FORMAT, "num_attention_heads is"},
    {"vision_config.num_key_value_heads", "8", DGEMMA_E_UNSUPPORTED,
     "vision_config.num_key_value_heads is 8, wanted 16"},
    {"vision_config.head_dim", "70", DGEMMA_E_UNSUPPORTED, "global_head_dim is 72, wanted 70"},
    {"vision_config.global_head_dim", "64", DGEMMA_E_UNSUPPORTED, "vision_config.global_head_dim"},
    {"vision_config.patch_size", "1000", DGEMMA_E_FORMAT, "vision_config.patch_size is 1000"},
    {"vision_config.pooling_kernel_size", "0", DGEMMA_E_FORMAT, "pooling_kernel_size is 0"},
    {"vision_config.position_embedding_size", "-1", DGEMMA_E_FORMAT, "position_embedding_size"},
    {"vision_config.default_output_length", "1121", DGEMMA_E_FORMAT, "default_output_length"},
    {"vision_config.standardize", "1", DGEMMA_E_FORMAT, "vision_config.standardize is 1"},
    {"vision_config.use_clipped_linears", "\"no\"", DGEMMA_E_FORMAT, "use_clipped_linears"},
    {"vision_config.rms_norm_eps", "0", DGEMMA_E_FORMAT, "vision_config.rms_norm_eps is 0"},
    {"vision_config.rope_parameters.rope_type", "\"yarn\"", DGEMMA_E_UNSUPPORTED,
     "vision_config.rope_parameters.rope_type is \"yarn\""},
    {"vision_config.rope_parameters.rope_theta", "0", DGEMMA_E_FORMAT, "rope_theta is 0"},
    {"vision_config.hidden_activation", "\"gelu\"", DGEMMA_E_UNSUPPORTED, "hidden_activation"},
    {"vision_config.attention_bias", "true", DGEMMA_E_UNSUPPORTED, "attention_bias is true"},
};

START_TEST(refuses)
{
    dg_config c;
    dgemma_error err = {0};
    json_t *root = real();
    edit(root, bad[_i].path, bad[_i].value);
    dgemma_status st = parse(&c, root, &err);
    ck_assert_msg(st == bad[_i].status, "status %d: %s", st, err.msg);
    ck_assert_int_eq(err.status, st);
    ck_assert_msg(strncmp(err.msg, "config.json: ", 13) == 0, "%s", err.msg);
    ck_assert_msg(strstr(err.msg, bad[_i].says), "%s", err.msg);
}
END_TEST

START_TEST(refuses_layer_types)
{
    static const char *const bad_type[] = {"sliding_attention", "linear_attention"};
    static const int at[] = {29, 3};
    static const char *const says[] = {"layer_types[29] is \"sliding_attention\", wanted full",
                                       "layer_types[3] is \"linear_attention\""};
    for (size_t i = 0; i < DG_COUNT(bad_type); i++) {
        dg_config c;
        dgemma_error err = {0};
        json_t *root = real();
        json_t *types = json_object_get(json_object_get(root, "text_config"), "layer_types");
        json_array_set_new(types, (size_t)at[i], json_string(bad_type[i]));
        ck_assert_int_eq(parse(&c, root, &err), DGEMMA_E_UNSUPPORTED);
        ck_assert_msg(strstr(err.msg, says[i]), "%s", err.msg);
    }
}
END_TEST

START_TEST(refuses_old_rope)
{
    static const char *const key[] = {"rope_theta", "rope_local_base_freq", "rope_scaling"};
    for (size_t i = 0; i < DG_COUNT(key); i++) {
        dg_config c;
        dgemma_error err = {0};
        char path[64];
        snprintf(path, sizeof path, "text_config.%s", key[i]);
        json_t *root = real();
        edit(root, "text_config.rope_parameters", NULL);
        edit(root, path, "10000");
        ck_assert_int_eq(parse(&c, root, &err), DGEMMA_E_UNSUPPORTED);
        ck_assert_msg(strstr(err.msg, key[i]), "%s", err.msg);
    }
}
END_TEST

START_TEST(refuses_what_is_no_document)
{
    static const char *const text[] = {"",  "[]",          "nul",        "{\"a\":1,\"a\":1}",
                                       "{", "{\"a\":NaN}", "{} trailing"};
    for (size_t i = 0; i < DG_COUNT(text); i++) {
        dg_config c;
        dgemma_error err = {0};
        ck_assert_int_eq(dg_config_parse(&c, text[i], strlen(text[i]), "f", &err), DGEMMA_E_FORMAT);
        ck_assert_msg(strncmp(err.msg, "f: ", 3) == 0, "%s", err.msg);
    }
    dg_config c;
    ck_assert_int_eq(dg_config_parse(&c, NULL, 0, "f", NULL), DGEMMA_E_FORMAT);
    dgemma_error err = {0};
    ck_assert_int_eq(dg_config_parse(&c, "\xEF\xBB\xBF{}", 5, "f", &err), DGEMMA_E_FORMAT);
    ck_assert_msg(strstr(err.msg, "f: it begins with a byte order mark"), "%s", err.msg);

    enum { DEEP = 100000 };
    char *deep = malloc(DEEP);
    ck_assert_ptr_nonnull(deep);
    memset(deep, '[', DEEP);
    ck_assert_int_eq(dg_config_parse(&c, deep, DEEP, "f", NULL), DGEMMA_E_FORMAT);
    free(deep);

    enum { LONG = (1 << 20) + 1 };
    char *blank = malloc(LONG);
    ck_assert_ptr_nonnull(blank);
    memset(blank, ' ', LONG);
    ck_assert_int_eq(dg_config_parse(&c, blank, LONG, "f", NULL), DGEMMA_E_LIMIT);
    free(blank);
}
END_TEST

static void parse_generation(dg_generation_config *g, dg_config *c, const char *text)
{
    dgemma_error err = {0};
    dgemma_status st =
        dg_generation_config_parse(g, c, text, strlen(text), "generation_config.json", &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
}

static void check_generation(const dg_generation_config *g)
{
    ck_assert_int_eq(g->max_steps, 48);
    ck_assert_float_eq(g->t_min, 0.4f);
    ck_assert_float_eq(g->t_max, 0.8f);
    ck_assert_float_eq(g->entropy_bound, 0.1f);
    ck_assert_int_eq(g->stability, 1);
    ck_assert_float_eq(g->confidence, 0.005f);
}

START_TEST(generation_documents)
{
    dg_config c;
    parse_good(&c, real());
    dg_generation_config g = dg_generation_defaults();
    check_generation(&g);

    g = (dg_generation_config){0};
    parse_generation(&g, &c, "{\"t_min\": null, \"eos_token_id\": null, \"sampler_config\": null}");
    check_generation(&g);
    ck_assert_int_eq(c.n_stop, 2);
    ck_assert_int_eq(c.pad_token, 0);

    g = (dg_generation_config){0};
    parse_generation(&g, &c, generation);
    check_generation(&g);
    ck_assert_int_eq(c.n_stop, 3);
    ck_assert_int_eq(c.stop_token[2], 50);

    parse_generation(&g, &c,
                     "{\"max_denoising_steps\": 7.0, \"t_min\": 1, \"t_max\": 2,"
                     "\"stability_threshold\": 0, \"confidence_threshold\": 2,"
                     "\"sampler_config\": {\"entropy_bound\": 4},"
                     "\"eos_token_id\": 9, \"pad_token_id\": 3}");
    ck_assert_int_eq(g.max_steps, 7);
    ck_assert_float_eq(g.t_min, 1);
    ck_assert_float_eq(g.t_max, 2);
    ck_assert_float_eq(g.entropy_bound, 4);
    ck_assert_int_eq(g.stability, 0);
    ck_assert_float_eq(g.confidence, 2);
    ck_assert_int_eq(c.n_stop, 1);
    ck_assert_int_eq(c.stop_token[0], 9);
    ck_assert_int_eq(c.pad_token, 3);
}
END_TEST

static const struct {
    const char *text;
    dgemma_status status;
    const char *says;
} bad_generation[] = {
    {"", DGEMMA_E_FORMAT, "line 1"},
    {"[]", DGEMMA_E_FORMAT, "not a JSON object"},
    {"{\"max_denoising_steps\": 0}", DGEMMA_E_FORMAT, "max_denoising_steps is 0"},
    {"{\"t_min\": 0}", DGEMMA_E_FORMAT, "t_min is 0"},
    {"{\"t_max\": \"hot\"}", DGEMMA_E_FORMAT, "t_max is \"hot\""},
    {"{\"stability_threshold\": -1}", DGEMMA_E_FORMAT, "stability_threshold is -1"},
    {"{\"confidence_threshold\": -0.5}", DGEMMA_E_FORMAT, "confidence_threshold is -0.5"},
    {"{\"sampler_config\": 3}", DGEMMA_E_FORMAT, "sampler_config is 3"},
    {"{\"sampler_config\": {\"_cls_name\": \"MaskedSamplerConfig\"}}", DGEMMA_E_UNSUPPORTED,
     "sampler_config._cls_name is \"MaskedSamplerConfig\""},
    {"{\"sampler_config\": {\"entropy_bound\": -1}}", DGEMMA_E_FORMAT, "entropy_bound is -1"},
    {"{\"eos_token_id\": [262144]}", DGEMMA_E_FORMAT, "eos_token_id is 262144"},
    {"{\"eos_token_id\": [9], \"pad_token_id\": 262144}", DGEMMA_E_FORMAT, "pad_token_id is"},
};

START_TEST(refuses_generation)
{
    dg_config c, before;
    parse_good(&c, real());
    before = c;
    dg_generation_config g;
    dgemma_error err = {0};
    const char *text = bad_generation[_i].text;
    dgemma_status st = dg_generation_config_parse(&g, &c, text, strlen(text), "g.json", &err);
    ck_assert_msg(st == bad_generation[_i].status, "status %d: %s", st, err.msg);
    ck_assert_msg(strstr(err.msg, bad_generation[_i].says), "%s", err.msg);
    ck_assert_mem_eq(&c, &before, sizeof c); /* a refused document changes nothing */
}
END_TEST

START_TEST(survives_no_memory)
{
    dg_config c;
    for (long n = 1;; n++) {
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_config_parse(&c, published, strlen(published), "f", NULL);
        if (!dg_test_alloc_done()) {
            ck_assert_int_eq(st, DGEMMA_OK);
            break;
        }
    }
}
END_TEST

Suite *config_suite(void)
{
    Suite *s = suite_create("config");
    TCase *c = tcase_create("good");
    tcase_add_test(c, published_model);
    tcase_add_test(c, published_tower);
    tcase_add_loop_test(c, other_spellings, 0, (int)DG_COUNT(same));
    tcase_add_test(c, per_layer_spelling);
    tcase_add_test(c, flat_document);
    tcase_add_test(c, what_differs);
    tcase_add_test(c, few_layers);
    tcase_add_test(c, embedding_scales);
    tcase_add_test(c, generation_documents);
    suite_add_tcase(s, c);

    c = tcase_create("hostile");
    tcase_add_loop_test(c, refuses, 0, (int)DG_COUNT(bad));
    tcase_add_test(c, refuses_layer_types);
    tcase_add_test(c, refuses_old_rope);
    tcase_add_test(c, refuses_what_is_no_document);
    tcase_add_loop_test(c, refuses_generation, 0, (int)DG_COUNT(bad_generation));
    tcase_add_test(c, survives_no_memory);
    suite_add_tcase(s, c);
    return s;
}
