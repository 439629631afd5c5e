/* Files of adapters: what is read of them, in both formats alike, and what is refused by name. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "format/gguf_write.h"
#include "model/adapters.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "support/write_adapter.h"
#include "support/write_gguf_model.h"
#include "support/write_safetensors.h"

#define Q    "base_model.model.model.layers.0.self_attn.q_proj"
#define LORA "\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4"

static const float numbers[4096] = {1, -1};

static dg_tensor tensor(const char *name, int64_t rows, int64_t cols)
{
    return (dg_tensor){
        .name = name, .type = DG_F32, .n_dim = 2, .shape = {rows, cols}, .data = numbers};
}

static const char *in(char out[DG_TEST_PATH], const char *name)
{
    return dg_test_path(out, dg_test_root, name);
}

/* A PEFT folder out of a config's members and some tensors. */
static const char *write_folder(const char *members, const dg_tensor *t, size_t n)
{
    static char dir[DG_TEST_PATH];
    char path[DG_TEST_PATH], config[2048];
    mkdir(in(dir, "peft"), 0700);
    snprintf(config, sizeof config, "{%s}", members);
    ck_assert(dg_test_write_file(dir, "adapter_config.json", config, strlen(config)));
    ck_assert(
        dg_test_write_safetensors(dg_test_path(path, dir, "adapter_model.safetensors"), t, n));
    return dir;
}

static void expect_refused(const char *path, dgemma_status want, const char *says)
{
    dg_adapter a;
    dgemma_error err = {0};
    dgemma_status st = dg_adapter_open(&a, path, &err);
    ck_assert_msg(st == want, "%s: status %d, not %d: %s", says, st, want, err.msg);
    ck_assert_msg(strstr(err.msg, says), "\"%s\" does not say \"%s\"", err.msg, says);
    ck_assert_uint_eq(a.n_part, 0);
}

/* ---- PEFT ---- */

START_TEST(reads_what_peft_writes)
{
    const dg_tensor t[] = {
        tensor(Q ".lora_A.weight", 2, 8),
        tensor(Q ".lora_B.weight", 16, 2),
        tensor("base_model.model.model.decoder.layers.3.mlp.up_proj.lora_A.weight", 4, 8),
        tensor("base_model.model.model.decoder.layers.3.mlp.up_proj.lora_B.weight", 16, 4),
        tensor("base_model.model.model.encoder.language_model.layers.1.experts.base_layer"
               ".lora_A.weight",
               6, 8),
        tensor("base_model.model.model.encoder.language_model.layers.1.experts.base_layer"
               ".lora_B.weight",
               16, 6),
    };
    dg_adapter a;
    dgemma_error err = {0};
    const char *dir = write_folder(
        LORA ", \"rank_pattern\": {\"mlp.up_proj\": 4}, \"alpha_pattern\": {\"up_proj\": "
             "16, \"p_proj\": 1}, \"use_rslora\": false, \"lora_dropout\": 0.1",
        t, DG_COUNT(t));
    ck_assert_msg(!dg_adapter_open(&a, dir, &err), "%s", err.msg);
    ck_assert_uint_eq(a.n_part, 3);
    for (size_t i = 0; i < a.n_part; i++) {
        const dg_adapter_part *p = &a.part[i];
        if (!strcmp(p->module, "layers.0.self_attn.q_proj")) {
            ck_assert(p->encode && p->canvas && p->form == DG_ADAPTER_PLAIN);
            ck_assert_int_eq(p->rank, 2);
            ck_assert_double_eq(p->alpha, 4);
        } else if (!strcmp(p->module, "layers.3.mlp.up_proj")) {
            ck_assert(!p->encode && p->canvas);
            ck_assert_int_eq(p->rank, 4);
            ck_assert_double_eq(p->alpha, 16);
        } else {
            ck_assert_str_eq(p->module, "layers.1.experts");
            ck_assert(p->encode && !p->canvas && p->form == DG_ADAPTER_WOVEN);
        }
    }
    dg_adapter_close(&a);
    char path[DG_TEST_PATH];
    ck_assert(!dg_adapter_open(&a, dg_test_path(path, dir, "adapter_config.json"), &err));
    dg_adapter_close(&a);
}
END_TEST

START_TEST(refuses_by_name_what_is_not_lora)
{
    static const struct {
        const char *members, *says;
    } cases[] = {
        {"\"peft_type\": \"LOHA\", \"r\": 2", "peft_type"},
        {"\"r\": 2", "peft_type"},
        {LORA ", \"use_dora\": true", "use_dora is true: DoRA"},
        {LORA ", \"bias\": \"all\"", "bias"},
        {LORA ", \"lora_bias\": true", "lora_bias"},
        {LORA ", \"modules_to_save\": [\"lm_head\"]", "modules_to_save"},
        {LORA ", \"trainable_token_indices\": [1]", "trainable_token_indices"},
        {LORA ", \"fan_in_fan_out\": true", "fan_in_fan_out"},
        {LORA ", \"layer_replication\": [[0, 2]]", "layer_replication"},
        {LORA ", \"use_qalora\": true", "use_qalora"},
        {LORA ", \"alora_invocation_tokens\": [5]", "alora_invocation_tokens"},
        {LORA ", \"init_lora_weights\": \"pissa_niter_4\"", "init_lora_weights"},
        {LORA ", \"use_rslora\": 1", "use_rslora"},
        {"\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 4",
         "r is 0: wanted a whole number from 1 to 256"},
        {"\"peft_type\": \"LORA\", \"r\": 1048576, \"lora_alpha\": 4",
         "r is 1048576: wanted a whole number from 1 to 256"},
        {"\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": \"x\"", "lora_alpha"},
        {"\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 1e300", "lora_alpha is 1e300"},
        {"\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": -1000001", "to 1000000"},
        {LORA ", \"alpha_pattern\": {\"q_proj\": 1e39}", "alpha_pattern"},
        {LORA ", \"alpha_pattern\": {\"q.*\": 1}", "alpha_pattern"},
        {LORA ", \"rank_pattern\": {\"q_proj\": 0}", "a whole number from 1 to 256"},
        {LORA ", \"rank_pattern\": [1]", "rank_pattern"},
    };
    const dg_tensor t[] = {tensor(Q ".lora_A.weight", 2, 8), tensor(Q ".lora_B.weight", 16, 2)};
    for (size_t i = 0; i < DG_COUNT(cases); i++)
        expect_refused(write_folder(cases[i].members, t, 2), DGEMMA_E_UNSUPPORTED, cases[i].says);
    expect_refused(write_folder(LORA ", \"r\": 3", t, 2), DGEMMA_E_FORMAT, "adapter_config.json");
    expect_refused(write_folder("", t, 2), DGEMMA_E_UNSUPPORTED, "peft_type is missing");
    const char *dir = write_folder(LORA, t, 2), marked[] = "\xEF\xBB\xBF{" LORA "}";
    ck_assert(dg_test_write_file(dir, "adapter_config.json", marked, sizeof marked - 1));
    expect_refused(dir, DGEMMA_E_FORMAT, "adapter_config.json: it begins with a byte order mark");
}
END_TEST

START_TEST(refuses_tensors_that_it_cannot_apply)
{
    static const struct {
        const char *a, *b, *says;
        dgemma_status st;
    } cases[] = {
        {Q ".lora_B.weight", Q ".lora_C.weight", "neither half", DGEMMA_E_UNSUPPORTED},
        {Q ".lora_A.weight", Q "x.lora_B.weight", "is missing", DGEMMA_E_FORMAT},
        {Q ".lora_B.weight", Q "x.lora_B.weight", "do not go together", DGEMMA_E_FORMAT},
        {Q ".lora_B.weight", Q ".lora_magnitude_vector", "DoRA", DGEMMA_E_UNSUPPORTED},
        {"model.layers.0.q.lora_A.weight", Q ".lora_B.weight", "not a name of PEFT's",
         DGEMMA_E_FORMAT},
        {"base_model.model.lm_head.lora_A.weight", "base_model.model.lm_head.lora_B.weight",
         "lm_head: only matrices of layers", DGEMMA_E_UNSUPPORTED},
        {"base_model.model.model.decoder.embed_tokens.lora_A.weight",
         "base_model.model.model.decoder.embed_tokens.lora_B.weight", "embed_tokens",
         DGEMMA_E_UNSUPPORTED},
        {"base_model.model.model.encoder.vision_tower.x.lora_A.weight",
         "base_model.model.model.encoder.vision_tower.x.lora_B.weight", "vision_tower",
         DGEMMA_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        const dg_tensor t[] = {tensor(cases[i].a, 2, 8), tensor(cases[i].b, 16, 2)};
        expect_refused(write_folder(LORA, t, 2), cases[i].st, cases[i].says);
    }
    expect_refused(write_folder(LORA, NULL, 0), DGEMMA_E_FORMAT, "has no tensors");
}
END_TEST

START_TEST(says_what_is_not_there)
{
    char path[DG_TEST_PATH];
    expect_refused(dg_test_root, DGEMMA_E_IO, "adapter_config.json");
    ck_assert(dg_test_write_file(dg_test_root, "adapter_config.json", "{}", 2));
    expect_refused(dg_test_root, DGEMMA_E_IO, "adapter_model.safetensors");
    ck_assert(dg_test_write_file(dg_test_root, "notes.txt", "hello", 5));
    expect_refused(in(path, "notes.txt"), DGEMMA_E_FORMAT, "neither a GGUF file nor a folder");
    expect_refused(in(path, "nothing"), DGEMMA_E_IO, "nothing");
    expect_refused("models/pocket/pocket.gguf", DGEMMA_E_UNSUPPORTED, "general.type");
}
END_TEST

/* ---- GGUF ---- */

typedef struct gguf_how {
    const char *type, *kind, *architecture, *a, *b;
    float alpha;
    bool no_alpha, alora, empty;
} gguf_how;

static const char *write_gguf(gguf_how h)
{
    static char path[DG_TEST_PATH];
    dg_gguf_writer w;
    dgemma_error err = {0};
    dg_gguf_writer_init(&w, 0);
    dg_gguf_put_string(&w, "general.type", h.type ? h.type : "adapter");
    dg_gguf_put_string(&w, "adapter.type", h.kind ? h.kind : "lora");
    dg_gguf_put_string(&w, "general.architecture",
                       h.architecture ? h.architecture : "diffusion-gemma");
    if (!h.no_alpha)
        dg_gguf_put_float(&w, "adapter.lora.alpha", h.alpha != 0 ? h.alpha : 4);
    if (h.alora)
        dg_gguf_put_ints(&w, "adapter.alora.invocation_tokens", DG_GGUF_U32, (int64_t[]){1}, 1);
    const dg_tensor t[] = {tensor(h.a ? h.a : "blk.0.attn_q.weight.lora_a", 2, 8),
                           tensor(h.b ? h.b : "blk.0.attn_q.weight.lora_b", 16, 2)};
    const int n = h.empty ? 0 : 2;
    for (int i = 0; i < n; i++)
        dg_gguf_put_tensor(&w, &t[i]);
    remove(in(path, "adapter.gguf"));
    dg_gguf_writer_open(&w, path);
    for (int i = 0; i < n; i++)
        dg_gguf_write_data(&w, numbers, dg_tensor_count(&t[i]) * sizeof(float));
    ck_assert_msg(!dg_gguf_writer_close(&w, &err), "%s", err.msg);
    return path;
}

START_TEST(reads_what_llama_cpp_reads)
{
    dg_adapter a;
    dgemma_error err = {0};
    ck_assert_msg(!dg_adapter_open(&a, write_gguf((gguf_how){.alpha = 3}), &err), "%s", err.msg);
    ck_assert_uint_eq(a.n_part, 1);
    ck_assert_str_eq(a.part[0].module, "layers.0.self_attn.q_proj");
    ck_assert(a.part[0].encode && a.part[0].canvas);
    ck_assert_double_eq(a.part[0].alpha, 3);
    dg_adapter_close(&a);
    static const struct {
        gguf_how how;
        dgemma_status st;
        const char *says;
    } cases[] = {
        {{.type = "model"}, DGEMMA_E_UNSUPPORTED, "general.type"},
        {{.kind = "vector"}, DGEMMA_E_UNSUPPORTED, "adapter.type"},
        {{.architecture = "llama"}, DGEMMA_E_UNSUPPORTED, "general.architecture"},
        {{.no_alpha = true}, DGEMMA_E_FORMAT, "adapter.lora.alpha"},
        {{.alpha = NAN}, DGEMMA_E_FORMAT, "adapter.lora.alpha"},
        {{.alpha = INFINITY}, DGEMMA_E_FORMAT, "adapter.lora.alpha"},
        {{.alpha = -2e6f}, DGEMMA_E_FORMAT, "from -1000000 to 1000000"},
        {{.alora = true}, DGEMMA_E_UNSUPPORTED, "aLoRA"},
        {{.empty = true}, DGEMMA_E_FORMAT, "it has no tensors"},
        {{.b = "blk.0.attn_k.weight.lora_b"}, DGEMMA_E_FORMAT, "is missing"},
        {{.b = "blk.0.attn_q.weight"}, DGEMMA_E_UNSUPPORTED, "neither half"},
        {{.a = "output_norm.bias.lora_a"}, DGEMMA_E_UNSUPPORTED, "no matrix that can be adapted"},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++)
        expect_refused(write_gguf(cases[i].how), cases[i].st, cases[i].says);
}
END_TEST

/* Cut at any byte, a file is refused, never read beyond its end. */
START_TEST(survives_files_that_are_cut)
{
    dg_buf whole;
    dgemma_error err = {0};
    dg_buf_init(&whole, 1 << 20);
    ck_assert(!dg_file_read(&whole, write_gguf((gguf_how){0}), &err));
    for (size_t n = 0; n < whole.len; n += n < 512 ? 1 : 37) {
        dg_adapter a = {0};
        unsigned char *cut = dg_malloc(n ? n : 1); /* so that a sanitizer sees its end */
        memcpy(cut, whole.data, n);
        ck_assert(dg_adapter_parse_gguf(&a, cut, n, "cut", &err));
        dg_adapter_close(&a);
        dg_free(cut);
    }
    dg_buf_clear(&whole);
}
END_TEST

/* ---- against a model ---- */

/* The adapter's status for a tiny model, and what it says. */
static void expect_misfit(const char *path, dgemma_status want, const char *says)
{
    char model[DG_TEST_PATH];
    tiny_model t;
    dg_adapter a;
    dgemma_error err = {0};
    if (!dg_file_exists(in(model, "model.gguf")))
        dg_test_write_gguf_model(dg_test_root, "model", &(dg_test_gguf){.fixture = "text"});
    ck_assert_msg(!dg_adapter_open(&a, path, &err), "%s", err.msg);
    tiny_open(&t, &(tiny_options){.gguf = model});
    dgemma_status st = dg_model_adapt(t.model, &a, 1, &err);
    ck_assert_msg(st == want, "%s: status %d: %s", says, st, err.msg);
    ck_assert_msg(strstr(err.msg, says), "\"%s\" does not say \"%s\"", err.msg, says);
    ck_assert_ptr_null(t.model->layer[0].attention.q.adapter);
    dg_adapter_close(&a);
    tiny_close(&t);
}

START_TEST(holds_shapes_and_ranks_to_the_model)
{
    char model[DG_TEST_PATH], big[DG_TEST_PATH];
    dg_tensor t[] = {tensor(Q ".lora_A.weight", 2, 8), tensor(Q ".lora_B.weight", 16, 2)};
    expect_misfit(write_folder(LORA, t, 2), DGEMMA_E_FORMAT, "the model has 1 x [");
    t[0].name = "base_model.model.model.layers.999.self_attn.q_proj.lora_A.weight";
    t[1].name = "base_model.model.model.layers.999.self_attn.q_proj.lora_B.weight";
    expect_misfit(write_folder(LORA, t, 2), DGEMMA_E_UNSUPPORTED, "layers.999.self_attn.q_proj");
    t[0].name = "base_model.model.model.layers.0.self_attn.q_norm.lora_A.weight";
    t[1].name = "base_model.model.model.layers.0.self_attn.q_norm.lora_B.weight";
    expect_misfit(write_folder(LORA, t, 2), DGEMMA_E_UNSUPPORTED, "self_attn.q_norm");
    dg_test_write_peft(in(big, "big"), in(model, "model.gguf"),
                       &(dg_test_adapter){.rank = DG_MAX_RANK + 1});
    expect_misfit(big, DGEMMA_E_LIMIT, "at most 256");
    dg_test_write_peft(in(big, "other"), model, &(dg_test_adapter){.rank = 2});
    ck_assert(dg_test_write_file(big, "adapter_config.json",
                                 "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 1}", 46));
    expect_misfit(big, DGEMMA_E_FORMAT, "the config says 3");
}
END_TEST

/* Twice the same matrix, and numbers that are none. */
START_TEST(refuses_what_would_break_the_model)
{
    char model[DG_TEST_PATH];
    dg_test_write_gguf_model(dg_test_root, "model", &(dg_test_gguf){.fixture = "text"});
    tiny_model m;
    tiny_open(&m, &(tiny_options){.gguf = in(model, "model.gguf")});
    const dg_weight q = m.model->layer[0].attention.q;
    tiny_close(&m);
    dg_tensor t[] = {
        tensor(Q ".lora_A.weight", 2, q.n_in),
        tensor(Q ".lora_B.weight", q.n_out, 2),
        tensor("base_model.model.model.decoder.layers.0.self_attn.q_proj.lora_A.weight", 2, q.n_in),
        tensor("base_model.model.model.decoder.layers.0.self_attn.q_proj.lora_B.weight", q.n_out,
               2),
    };
    expect_misfit(write_folder(LORA, t, 4), DGEMMA_E_FORMAT, "changed twice");
    float *broken = dg_calloc((size_t)(2 * q.n_in), sizeof *broken);
    broken[7] = NAN;
    t[0].data = broken;
    expect_misfit(write_folder(LORA, t, 2), DGEMMA_E_FORMAT, "not a finite number");
    broken[7] = -INFINITY;
    expect_misfit(write_folder(LORA, t, 2), DGEMMA_E_FORMAT, "not a finite number");
    broken[7] = -2.6e5f; /* times 4 / 2, the rank of 2 and a largest value of 1 */
    expect_misfit(
        write_folder(LORA, t, 2), DGEMMA_E_FORMAT,
        "layers.0.self_attn.q_proj: its values, times a factor of 2, could change weights "
        "by 1.04e+06; up to 1e+06 is possible");
    dg_free(broken);
}
END_TEST

static dgemma_status adapt(dg_model *m, const char *path, dgemma_error *err)
{
    dg_adapter a;
    dgemma_status st = dg_adapter_open(&a, path, err);
    if (st)
        return st;
    st = dg_model_adapt(m, &a, 1, err);
    dg_adapter_close(&a);
    return st;
}

/* Wherever memory is out, the model is as it was, and nothing is left of the adapter. Inside a
 * document jansson may take it for a mistake in the text, or do without some bytes. */
static void walk_allocations(const char *model, const char *path)
{
    tiny_model t;
    dgemma_error err = {0};
    bool reached = true;
    tiny_open(&t, &(tiny_options){.gguf = model});
    for (long n = 1; reached; n++) {
        dg_test_fail_alloc_at(n);
        dgemma_status st = adapt(t.model, path, &err);
        reached = dg_test_alloc_done();
        ck_assert(!st == !!t.model->layer[0].attention.q.adapter);
        if (!st) {
            tiny_close(&t);
            tiny_open(&t, &(tiny_options){.gguf = model});
        }
    }
    tiny_close(&t);
}

START_TEST(survives_without_memory)
{
    char model[DG_TEST_PATH], peft[DG_TEST_PATH], gguf[DG_TEST_PATH];
    dg_test_write_gguf_model(dg_test_root, "model", &(dg_test_gguf){.fixture = "text"});
    dg_test_write_peft(in(peft, "peft"), in(model, "model.gguf"), &(dg_test_adapter){.rank = 1});
    dg_test_write_gguf_adapter(in(gguf, "adapter.gguf"), peft);
    walk_allocations(model, peft);
    walk_allocations(model, gguf);
}
END_TEST

Suite *adapters_suite(void)
{
    Suite *s = suite_create("adapters");
    TCase *c = tcase_create("adapters");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, reads_what_peft_writes);
    tcase_add_test(c, refuses_by_name_what_is_not_lora);
    tcase_add_test(c, refuses_tensors_that_it_cannot_apply);
    tcase_add_test(c, says_what_is_not_there);
    tcase_add_test(c, reads_what_llama_cpp_reads);
    tcase_add_test(c, survives_files_that_are_cut);
    tcase_add_test(c, holds_shapes_and_ranks_to_the_model);
    tcase_add_test(c, refuses_what_would_break_the_model);
    tcase_add_test(c, survives_without_memory);
    suite_add_tcase(s, c);
    return s;
}
