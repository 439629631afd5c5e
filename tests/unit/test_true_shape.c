/* Two layers of the real model's shape in a sparse file: tensors past 2 GB, offsets past 4 GB,
 * 262,144 words, expert 127. Almost every weight is zero, so that what comes out can be worked out
 * by hand. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "dgemma.h"
#include "format/safetensors.h"
#include "model/forward.h"
#include "suites.h"
#include "support/cpu_engine.h"
#include "support/temp_dir.h"
#include "support/write_safetensors.h"

enum { N_EMBD = 2816, N_FF = 2112, N_EXPERT = 128, N_FF_EXPERT = 704, N_VOCAB = 262144 };

/* One word is a unit vector along the last column, another along column 5; expert 127 turns the
 * first into the second. */
enum { WORD_IN = 262143, WORD_OUT = 200000, COL_IN = 2815, COL_OUT = 5, UNIT = 703 };

static const char config[] =
    "{\"model_type\": \"diffusion_gemma\", \"canvas_length\": 256, \"dtype\": \"bfloat16\", "
    "\"text_config\": {"
    "\"vocab_size\": 262144, \"hidden_size\": 2816, \"intermediate_size\": 2112, "
    "\"num_hidden_layers\": %d,"
    "\"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"num_global_key_value_heads\": 2, "
    "\"head_dim\": 256,"
    "\"global_head_dim\": 512, \"hidden_activation\": \"gelu_pytorch_tanh\", "
    "\"max_position_embeddings\": 262144,"
    "\"rms_norm_eps\": 1e-6, \"sliding_window\": 1024, %s \"final_logit_softcapping\": 30.0,"
    "\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": "
    "10000},"
    "\"full_attention\": {\"rope_type\": \"proportional\", \"rope_theta\": 1000000, "
    "\"partial_rotary_factor\": 0.25}},"
    "\"num_experts\": 128, \"top_k_experts\": 8, \"moe_intermediate_size\": 704, \"pad_token_id\": "
    "0,"
    "\"bos_token_id\": 2, \"eos_token_id\": 1}}";

/* ---- the file ---- */

enum { MAX_TENSOR = 64, NAME_BYTES = 96 };
typedef struct plan_of_file {
    dg_tensor tensor[MAX_TENSOR];
    char name[MAX_TENSOR][NAME_BYTES];
    size_t n;
} plan_of_file;

static void add(plan_of_file *p, int n_dim, const int64_t *shape, const char *prefix,
                const char *name)
{
    snprintf(p->name[p->n], NAME_BYTES, "%s%s", prefix, name);
    dg_tensor *t = &p->tensor[p->n];
    *t = (dg_tensor){.name = p->name[p->n], .type = DG_F32, .n_dim = n_dim};
    memcpy(t->shape, shape, (size_t)n_dim * sizeof *shape);
    p->n++;
}

#define ADD(p, prefix, name, ...)                                                                  \
    add(p, (int)DG_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__},        \
        prefix, name)

static void add_layer(plan_of_file *p, int index, bool sliding)
{
    char d[48], e[64];
    snprintf(d, sizeof d, "model.decoder.layers.%d.", index);
    snprintf(e, sizeof e, "model.encoder.language_model.layers.%d.", index);
    int dim = sliding ? 256 : 512, kv = sliding ? 8 : 2;
    ADD(p, d, "experts.gate_up_proj", N_EXPERT, 2 * N_FF_EXPERT, N_EMBD);
    ADD(p, d, "experts.down_proj", N_EXPERT, N_EMBD, N_FF_EXPERT);
    static const char *const norms[] = {"input_layernorm.weight",
                                        "post_attention_layernorm.weight",
                                        "pre_feedforward_layernorm.weight",
                                        "pre_feedforward_layernorm_2.weight",
                                        "post_feedforward_layernorm.weight",
                                        "post_feedforward_layernorm_1.weight",
                                        "post_feedforward_layernorm_2.weight",
                                        "router.scale"};
    for (size_t i = 0; i < DG_COUNT(norms); i++)
        ADD(p, d, norms[i], N_EMBD);
    ADD(p, d, "self_attn.q_proj.weight", 16 * dim, N_EMBD);
    ADD(p, d, "self_attn.k_proj.weight", kv * dim, N_EMBD);
    if (sliding)
        ADD(p, d, "self_attn.v_proj.weight", kv * dim, N_EMBD);
    ADD(p, d, "self_attn.o_proj.weight", N_EMBD, 16 * dim);
    ADD(p, d, "self_attn.q_norm.weight", dim);
    ADD(p, d, "self_attn.k_norm.weight", dim);
    ADD(p, d, "mlp.gate_proj.weight", N_FF, N_EMBD);
    ADD(p, d, "mlp.up_proj.weight", N_FF, N_EMBD);
    ADD(p, d, "mlp.down_proj.weight", N_EMBD, N_FF);
    ADD(p, d, "router.proj.weight", N_EXPERT, N_EMBD);
    ADD(p, d, "router.per_expert_scale", N_EXPERT);
    ADD(p, d, "layer_scalar", 1);
    ADD(p, e, "layer_scalar", 1);
}

static void plan_file(plan_of_file *p)
{
    const char *d = "model.decoder.";
    p->n = 0;
    add_layer(p, 0, true);
    add_layer(p, 1, false);
    ADD(p, d, "norm.weight", N_EMBD);
    ADD(p, d, "self_conditioning.pre_norm.weight", N_EMBD);
    ADD(p, d, "self_conditioning.gate_proj.weight", N_FF, N_EMBD);
    ADD(p, d, "self_conditioning.up_proj.weight", N_FF, N_EMBD);
    ADD(p, d, "self_conditioning.down_proj.weight", N_EMBD, N_FF);
    ADD(p, d, "embed_tokens.weight", N_VOCAB, N_EMBD);
}

/* Sets values of a tensor in the file: element `at`, or all of them (-1). */
static void set(int fd, const dg_file_map *map, const dg_safetensors *st, const char *name,
                int64_t at)
{
    const float one = 1;
    const dg_tensor *t = dg_safetensors_find(st, name);
    ck_assert_msg(t != NULL, "%s", name);
    off_t start = (off_t)((const unsigned char *)t->data - map->data);
    int64_t first = at < 0 ? 0 : at, end = at < 0 ? (int64_t)dg_tensor_count(t) : at + 1;
    for (int64_t i = first; i < end; i++)
        ck_assert_int_eq(pwrite(fd, &one, sizeof one, start + i * (off_t)sizeof one), sizeof one);
}

static void write_model(const char *dir)
{
    static plan_of_file p;
    char path[DG_TEST_PATH], doc[2048];
    plan_file(&p);
    dg_test_path(path, dir, "model.safetensors");
    ck_assert(dg_test_write_safetensors(path, p.tensor, p.n));
    snprintf(doc, sizeof doc, config, 2,
             "\"layer_types\": [\"sliding_attention\", \"full_attention\"],");
    ck_assert(dg_test_write_file(dir, "config.json", doc, strlen(doc)));

    dg_file_map map;
    dg_safetensors st;
    dgemma_error err = {0};
    ck_assert_int_eq(dg_file_map_open(&map, path, &err), DGEMMA_OK);
    ck_assert_msg(dg_safetensors_parse(&st, map.data, map.size, path, &err) == DGEMMA_OK, "%s",
                  err.msg);
    int fd = open(path, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    for (int i = 0; i < 2; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.decoder.layers.%d.layer_scalar", i);
        set(fd, &map, &st, name, 0);
        snprintf(name, sizeof name, "model.encoder.language_model.layers.%d.layer_scalar", i);
        set(fd, &map, &st, name, 0);
    }
    set(fd, &map, &st, "model.decoder.norm.weight", -1);
    set(fd, &map, &st, "model.decoder.embed_tokens.weight", (int64_t)WORD_IN * N_EMBD + COL_IN);
    set(fd, &map, &st, "model.decoder.embed_tokens.weight", (int64_t)WORD_OUT * N_EMBD + COL_OUT);
    const char *l = "model.decoder.layers.1.";
    char name[96];
#define SET(suffix, at)                                                                            \
    (snprintf(name, sizeof name, "%s%s", l, suffix), set(fd, &map, &st, name, at))
    SET("router.scale", COL_IN);
    SET("router.proj.weight", (int64_t)127 * N_EMBD + COL_IN);
    SET("router.per_expert_scale", 127);
    SET("pre_feedforward_layernorm_2.weight", COL_IN);
    SET("experts.gate_up_proj", ((int64_t)127 * 2 * N_FF_EXPERT + UNIT) * N_EMBD + COL_IN);
    SET("experts.gate_up_proj",
        ((int64_t)127 * 2 * N_FF_EXPERT + N_FF_EXPERT + UNIT) * N_EMBD + COL_IN);
    SET("experts.down_proj", ((int64_t)127 * N_EMBD + COL_OUT) * N_FF_EXPERT + UNIT);
    SET("post_feedforward_layernorm_2.weight", COL_OUT);
    SET("post_feedforward_layernorm.weight", COL_OUT);
    ck_assert_uint_gt(map.size, (size_t)8 << 30);
    ck_assert_uint_gt(dg_safetensors_find(&st, "model.decoder.embed_tokens.weight")->bytes,
                      (size_t)2 << 30);
    close(fd);
    dg_safetensors_clear(&st);
    dg_file_map_close(&map);
}

/* ---- the tests ---- */

static void check_logits(const char *dir)
{
    dgemma_error err = {0};
    dg_checkpoint *ck;
    dg_backend *be;
    dg_model *model;
    dg_kv_cache *kv;
    dg_forward *forward;
    static dg_config cfg;
    dg_buf doc;
    dg_buf_init(&doc, 1 << 16);
    ck_assert_int_eq(dg_checkpoint_open(&ck, dir, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_checkpoint_document(ck, "config.json", &doc, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_config_parse(&cfg, doc.data, doc.len, "config.json", &err), DGEMMA_OK);
    dg_buf_clear(&doc);
    ck_assert_int_eq(dg_cpu_open(&be, &(dg_cpu_options){2, dg_cpu_flags(), false}, &err),
                     DGEMMA_OK);
    ck_assert_msg(dg_model_load(&model, &cfg, ck, be, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(dg_kv_cache_create(&kv, &cfg, be, DG_BF16, 0, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_forward_create(&forward, model, kv, 8, 1, &err), DGEMMA_OK);

    enum { N = 2 };
    int32_t prompt[3] = {2, WORD_IN, 4}, canvas[N] = {WORD_IN, 0}, argmax[N], drawn[N];
    double uniform[N] = {0.1, 0.5};
    float entropy[N], *soft = be->alloc(be, N * N_EMBD * sizeof *soft);
    float *logits = dg_calloc((size_t)N * N_VOCAB, sizeof *logits);
    dg_kv_seq seq = {0};
    dg_work work = {.seq = &seq,
                    .token = prompt,
                    .n_token = 3,
                    .canvas = canvas,
                    .n_canvas = N,
                    .soft = soft,
                    .first_step = true,
                    .temperature = 0.5f,
                    .uniform = uniform,
                    .entropy = entropy,
                    .argmax = argmax,
                    .drawn = drawn};
    dg_taps taps = {.logits = logits};
    dg_pass pass = {.work = &work, .n_work = 1, .taps = &taps};
    ck_assert_msg(dg_forward_run(forward, &pass, &err) == DGEMMA_OK, "%s", err.msg);

    /* two equal entries of the final norm: sqrt(2816 / 2) each */
    float want = 30 * tanhf(sqrtf(N_EMBD / 2.0f) / 30);
    ck_assert_float_eq_tol(logits[WORD_IN], want, 1e-3f);
    ck_assert_float_eq_tol(logits[WORD_OUT], want, 1e-3f);
    ck_assert_float_eq(logits[1234], 0);
    ck_assert_float_lt(entropy[0], 0.7f);
    ck_assert(drawn[0] == WORD_OUT || drawn[0] == WORD_IN);
    /* the other row knows nothing: uniform over the vocabulary, drawn in its middle */
    ck_assert_float_eq_tol(entropy[1], logf(N_VOCAB), 1e-4f);
    ck_assert_int_eq(argmax[1], 0);
    ck_assert_int_eq(drawn[1], N_VOCAB / 2);

    dg_kv_seq_clear(kv, &seq);
    be->free(be, soft);
    dg_free(logits);
    dg_forward_free(forward);
    dg_kv_cache_free(kv);
    dg_model_free(model);
    be->close(be);
    dg_checkpoint_close(ck);
}

static void check_engine(const char *dir)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    dgemma_model_info info;
    opt.model_path = dir;
    ck_assert_int_eq(dgemma_model_estimate(&info, &opt, &err), DGEMMA_OK);
    ck_assert_uint_lt(info.work_bytes, (size_t)700 << 20); /* 1,536 rows, 16 requests, 64 reads */
    opt.max_running = 1;
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    dgemma_engine_info(e, &info);
    ck_assert_uint_gt(info.weight_bytes, (size_t)8 << 30);
    ck_assert_uint_lt(info.work_bytes,
                      (size_t)400 << 20); /* 768 rows: far less than 512 x 262,144 floats */
    ck_assert_uint_eq(info.request_bytes, (size_t)256 * N_EMBD * 4);
    dgemma_engine_close(e);
}

START_TEST(two_layers_of_the_real_shape)
{
    char dir[DG_TEST_PATH];
    ck_assert(dg_test_temp_make(dir));
    write_model(dir);
    check_logits(dir);
    check_engine(dir);
    dg_test_temp_remove(dir);
}
END_TEST

/* Keys and values of the whole model at its longest: 5.4 GB in the global layers, 210 MB and a pass
 * in the others. */
START_TEST(cache_of_the_real_model)
{
    static dg_config cfg;
    char doc[2048];
    dgemma_error err = {0};
    snprintf(doc, sizeof doc, config, 30, "");
    ck_assert_msg(dg_config_parse(&cfg, doc, strlen(doc), "config.json", &err) == DGEMMA_OK, "%s",
                  err.msg);
    dg_backend *be;
    dg_kv_cache *kv;
    ck_assert_int_eq(dg_cpu_open(&be, &(dg_cpu_options){1, 0, false}, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_kv_cache_create(&kv, &cfg, be, DG_BF16, 0, &err), DGEMMA_OK);
    size_t global = (size_t)5 * 4096 * 262144, token = (size_t)25 * 8192;
    size_t bytes = dg_kv_bytes_for(kv, 262144, 512);
    ck_assert_uint_ge(bytes, global + 1023 * token);
    ck_assert_uint_le(bytes, global + (1024 + 512 + 2 * DG_PAGE) * token);
    dg_kv_cache_free(kv);
    be->close(be);
}
END_TEST

Suite *true_shape_suite(void)
{
    Suite *s = suite_create("true_shape");
    TCase *t = tcase_create("true_shape");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, two_layers_of_the_real_shape);
    tcase_add_test(t, cache_of_the_real_model);
    suite_add_tcase(s, t);
    return s;
}
