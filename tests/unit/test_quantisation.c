/* quantisation: what configs of quantised folders say. test_config has more that is refused. */
#include "suites.h"
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "format/quantisation.h"

static dgemma_status read_text(dg_quantisation *q, const char *text, dgemma_error *err)
{
    json_t *config = json_loads(text, 0, NULL);
    ck_assert_msg(config != NULL, "%s", text);
    dgemma_status st = dg_quantisation_read(q, config, "config.json", "q.", err);
    json_decref(config);
    return st;
}

#define GPTQ  "{\"quant_method\": \"gptq\", \"bits\": 4"
#define ROUND "{\"quant_method\": \"auto-round\", \"bits\": 4"
static const struct {
    const char *text;
    dg_quant_method method;
    bool symmetric;
    int zero_less;
} good[] = {
    {GPTQ "}", DG_QUANT_GPTQ, false, 1},
    {GPTQ ", \"sym\": true, \"checkpoint_format\": \"gptq\"}", DG_QUANT_GPTQ, true, 1},
    {GPTQ ", \"sym\": false, \"checkpoint_format\": \"gptq_v2\"}", DG_QUANT_GPTQ, false, 0},
    {"{\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemm\"}", DG_QUANT_AWQ, false, 0},
    {ROUND ", \"sym\": true}", DG_QUANT_AUTO_ROUND, true, 1},
    {ROUND ", \"packing_format\": null}", DG_QUANT_AUTO_ROUND, false, 1},
    {ROUND ", \"packing_format\": \"auto_round:auto_gptq\"}", DG_QUANT_GPTQ, false, 1},
    {ROUND ", \"packing_format\": \"auto_round:gptqmodel\"}", DG_QUANT_GPTQ, false, 0},
    {ROUND ", \"packing_format\": \"auto_round:auto_awq\"}", DG_QUANT_AWQ, false, 0},
    {ROUND ", \"packing_format\": \"auto_round\"}", DG_QUANT_AUTO_ROUND, false, 0},
    {ROUND ", \"packing_format\": \"auto_gptq\"}", DG_QUANT_GPTQ, false, 1},
    {ROUND ", \"packing_format\": \"auto_awq\"}", DG_QUANT_AWQ, false, 0},
    {"{\"quant_method\": \"fp8\"}", DG_QUANT_FP8, false, 0},
    {"{\"quant_method\": \"compressed-tensors\"}", DG_QUANT_COMPRESSED_TENSORS, false, 0},
    {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}", DG_QUANT_MODELOPT, false, 0},
};

START_TEST(reads)
{
    dg_quantisation q;
    dgemma_error err = {0};
    ck_assert_msg(read_text(&q, good[_i].text, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(q.method, good[_i].method);
    ck_assert_int_eq(q.symmetric, good[_i].symmetric);
    ck_assert_int_eq(q.zero_less, good[_i].zero_less);
}
END_TEST

START_TEST(reads_order)
{
    static const char *const text[] = {GPTQ "}", GPTQ ", \"desc_act\": false}",
                                       GPTQ ", \"desc_act\": true}"};
    for (size_t i = 0; i < DG_COUNT(text); i++) {
        dg_quantisation q;
        dgemma_error err = {0};
        ck_assert_msg(read_text(&q, text[i], &err) == DGEMMA_OK, "%s", err.msg);
        ck_assert(q.ordered == (i == 2));
    }
}
END_TEST

/* Seventeen sizes of blocks, one in each group. */
START_TEST(sizes_are_counted)
{
    for (int n = DG_QUANT_BLOCKS; n <= DG_QUANT_BLOCKS + 1; n++) {
        char text[4096] = "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {";
        for (int i = 0; i < n; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text),
                     "%s\"g%d\": {\"weights\": {\"block_structure\": [%d, 128]}}", i ? ", " : "", i,
                     i + 1);
        snprintf(text + strlen(text), sizeof text - strlen(text), "}}");
        dg_quantisation q;
        dgemma_error err = {0};
        dgemma_status st = read_text(&q, text, &err);
        ck_assert_int_eq(st, n > DG_QUANT_BLOCKS ? DGEMMA_E_UNSUPPORTED : DGEMMA_OK);
        ck_assert_msg(!st || strstr(err.msg, "at most sixteen sizes of blocks"), "%s", err.msg);
        ck_assert(st || (q.n_block == n && q.block[n - 1].rows == n));
    }
}
END_TEST

/* Seventeen sizes of groups, and many modules with the same ones. */
START_TEST(sizes_of_groups_are_counted)
{
    enum { LAYERS = 40 };
    for (int n = DG_QUANT_BLOCKS; n <= DG_QUANT_BLOCKS + 1; n++) {
        char text[4096] = "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", "
                          "\"quantized_layers\": {";
        for (int i = 0; i < LAYERS; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text),
                     "%s\"l%d\": {\"group_size\": %d}", i ? ", " : "", i, 16 * (i % n + 1));
        snprintf(text + strlen(text), sizeof text - strlen(text), "}}");
        dg_quantisation q;
        dgemma_error err = {0};
        dgemma_status st = read_text(&q, text, &err);
        ck_assert_int_eq(st, n > DG_QUANT_BLOCKS ? DGEMMA_E_UNSUPPORTED : DGEMMA_OK);
        ck_assert_msg(!st || strstr(err.msg, "at most sixteen sizes of groups"), "%s", err.msg);
        ck_assert(st || (q.n_group == n && q.group[n - 1] == 16 * n));
    }
}
END_TEST

/* What is true of every group is asked of every matrix. */
START_TEST(reads_groups)
{
    static const struct {
        const char *groups;
        bool asymmetric, wide;
    } of[] = {{"", false, false},
              {"\"a\": {\"weights\": {\"symmetric\": false}}", true, false},
              {"\"a\": {\"weights\": {\"symmetric\": true}}", false, false},
              {"\"a\": {\"weights\": {\"num_bits\": 8}}", false, true},
              {"\"a\": {\"weights\": {\"num_bits\": 4}}", false, false},
              {"\"a\": {\"weights\": {\"num_bits\": 8}}, \"b\": {\"weights\": {\"num_bits\": 4}}",
               false, false},
              {"\"a\": {\"weights\": {}}", false, false},
              {"\"a\": {\"weights\": {\"symmetric\": false}}, \"b\": {}", false, false}};
    for (size_t i = 0; i < DG_COUNT(of); i++) {
        char text[256];
        dg_quantisation q;
        dgemma_error err = {0};
        snprintf(text, sizeof text,
                 "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {%s}}",
                 of[i].groups);
        ck_assert_msg(read_text(&q, text, &err) == DGEMMA_OK, "%s", err.msg);
        ck_assert_msg(q.asymmetric == of[i].asymmetric && q.wide == of[i].wide, "%s", text);
    }
}
END_TEST

#define CT(groups)        "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {" groups "}}"
#define OF(name, weights) "\"" name "\": {\"weights\": {" weights "}}"
#define OPT(rest)         "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"" rest "}"

/* The sizes that groups of values may have, wherever a method writes them. */
START_TEST(reads_group_sizes)
{
    enum { ROW = 704 };
    static const struct {
        const char *text;
        int has, has_not; /* 0: it has all */
    } of[] = {
        {CT(""), 16, 0},
        {CT(OF("a", "\"num_bits\": 4, \"group_size\": 16")), 16, 32},
        {CT(OF("a", "\"num_bits\": 4, \"group_size\": null")), 16, 0},
        {CT(OF("a", "\"num_bits\": 4, \"group_size\": -1")), ROW, 16},
        {CT(OF("a", "\"group_size\": 16") ", " OF("b", "\"group_size\": -1")), ROW, 32},
        {CT(OF("a", "\"group_size\": 16") ", " OF("b", "\"group_size\": 32")), 32, 64},
        {CT(OF("a", "\"group_size\": 16") ", " OF("b", "\"num_bits\": 4")), 32, 0},
        {CT(OF("a", "\"num_bits\": 4") ", " OF("b", "\"group_size\": 16")), 32, 0},
        {CT(OF("a", "\"group_size\": 16") ", " OF("b", "\"num_bits\": 8")), 16, 32},
        {OPT(""), 16, 0},
        {OPT(", \"group_size\": 16"), 16, 32},
        {OPT(", \"config_groups\": {" OF("a", "\"group_size\": 16") "}"), 16, 32},
        {OPT(", \"quantized_layers\": {\"a\": {\"group_size\": 16}, \"b\": {}}"), 16, 32},
        {GPTQ ", \"group_size\": 64}", 64, 32},
        {GPTQ ", \"group_size\": -1}", ROW, 64},
        {GPTQ ", \"group_size\": 64, \"dynamic\": {\"a\": {}}}", 32, 0},
        {ROUND ", \"group_size\": 64, \"extra_config\": {}}", 64, 32},
        {ROUND ", \"group_size\": 64, \"extra_config\": {\"a\": {\"group_size\": 32}}}", 32, 0},
    };
    for (size_t i = 0; i < DG_COUNT(of); i++) {
        dg_quantisation q;
        dgemma_error err = {0};
        ck_assert_msg(read_text(&q, of[i].text, &err) == DGEMMA_OK, "%s", err.msg);
        ck_assert_msg(dg_quantisation_has_group(&q, of[i].has, ROW), "%s", of[i].text);
        ck_assert_msg(dg_quantisation_has_group(&q, of[i].has_not ? of[i].has_not : 7, ROW) ==
                          !of[i].has_not,
                      "%s", of[i].text);
    }
}
END_TEST

#define FP8 "{\"quant_method\": \"fp8\", \"weight_block_size\": "
#define TEN "abcdefghij"
static const struct {
    const char *text, *says;
} bad[] = {
    /* a long value is cut where the line is full */
    {"{\"quant_method\": \"" TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN "\"}",
     "q.quant_method is \"" TEN TEN TEN TEN TEN "abcdefghi..., wanted \"compressed-tensors\""},
    /* two words that stand side by side in a list are none of it */
    {GPTQ ", \"checkpoint_format\": \"gptq gptq_v2\"}",
     "q.checkpoint_format is \"gptq gptq_v2\", wanted"},
    {GPTQ ", \"checkpoint_format\": \"\"}", "q.checkpoint_format is \"\", wanted"},
    {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": [1]}",
     "q.config_groups is [1], wanted an object"},
    {"{\"quant_method\": \"modelopt\"}", "q.quant_algo is missing, wanted"},
    {"{\"quant_method\": \"awq\", \"bits\": 8}", "q.bits is 8, wanted 4"},
    {FP8 "[0, 128]}", "q.weight_block_size is [0,128], wanted two whole numbers"},
    {FP8 "[128, 32]}", "q.weight_block_size is [128,32], wanted two whole numbers"},
    {FP8 "[128, 96]}", "q.weight_block_size is [128,96], wanted two whole numbers"},
    {FP8 "[128, 2097152]}", "wanted two whole numbers"},
    {FP8 "[128]}", "wanted two whole numbers"},
    {CT(OF("a", "\"group_size\": 0")),
     "q.config_groups.a.weights.group_size is 0, wanted the number of values that share a scale"},
    {CT(OF("a", "\"group_size\": -2")), "a.weights.group_size is -2, wanted"},
    {CT(OF("a", "\"group_size\": \"16\"")), "a.weights.group_size is \"16\", wanted"},
    {CT(OF("a", "\"group_size\": 16.0")), "a.weights.group_size is 16.0, wanted"},
    {OPT(", \"group_size\": 0"), "q.group_size is 0, wanted the number of values"},
    {OPT(", \"config_groups\": {" OF("a", "\"group_size\": 0") "}"),
     "q.config_groups.a.weights.group_size is 0, wanted"},
    {OPT(", \"quantized_layers\": {\"a\": {\"group_size\": 1e9}}"),
     "q.quantized_layers.a.group_size is 1e9, wanted"},
    {OPT(", \"group_size\": 1048577"), "q.group_size is 1048577, wanted"},
    {OPT(", \"group_size\": 4294967312"), "q.group_size is 4294967312, wanted"},
    {GPTQ ", \"group_size\": 0}", "q.group_size is 0, wanted the number of values"},
};

START_TEST(refuses)
{
    dg_quantisation q;
    dgemma_error err = {0};
    ck_assert_int_eq(read_text(&q, bad[_i].text, &err), DGEMMA_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.msg, bad[_i].says), "%s", err.msg);
}
END_TEST

static const struct {
    const char *text;
    dgemma_status status;
} modelopt[] = {
    {"{\"quant_algo\": \"FP8\"}", DGEMMA_OK},
    {"{\"quant_algo\": null, \"kv_cache_quant_algo\": \"FP8\"}", DGEMMA_OK},
    {"{\"quant_algo\": \"W4A8_AWQ\"}", DGEMMA_E_UNSUPPORTED},
    {"{}", DGEMMA_E_UNSUPPORTED},
};

/* A file beside the config, which may be about the cache alone. */
START_TEST(reads_modelopt)
{
    dg_quantisation q;
    dgemma_error err = {0};
    json_t *config = json_loads(modelopt[_i].text, 0, NULL);
    dgemma_status st = dg_quantisation_read_modelopt(&q, config, "hf.json", "quantization.", &err);
    ck_assert_msg(st == modelopt[_i].status, "status %d: %s", st, err.msg);
    ck_assert_int_eq(q.method, DG_QUANT_MODELOPT);
    json_decref(config);
}
END_TEST

Suite *quantisation_suite(void)
{
    Suite *s = suite_create("quantisation");
    TCase *c = tcase_create("configs");
    tcase_add_loop_test(c, reads, 0, DG_COUNT(good));
    tcase_add_loop_test(c, refuses, 0, DG_COUNT(bad));
    tcase_add_test(c, reads_order);
    tcase_add_test(c, sizes_are_counted);
    tcase_add_test(c, sizes_of_groups_are_counted);
    tcase_add_test(c, reads_groups);
    tcase_add_test(c, reads_group_sizes);
    tcase_add_loop_test(c, reads_modelopt, 0, DG_COUNT(modelopt));
    suite_add_tcase(s, c);
    return s;
}
