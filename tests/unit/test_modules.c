/* modules: matrices that quantised folders keep in parts. What the formats' own tools made (see
 * tools/make_quantised_golden.py) has the values that they say, and what does not fit is refused by
 * name. */
#include "suites.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "format/checkpoint.h"
#include "format/modules.h"
#include "format/safetensors.h"
#include "support/alloc_fail.h"
#include "support/parted_folder.h"
#include "support/temp_dir.h"
#include "tensor/narrowed.h"

static const dg_tensor *find(const dg_tensor *t, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(t[i].name, name) == 0)
            return &t[i];
    return NULL;
}

/* ---- vectors ---- */

static const struct {
    const char *form;
    dg_dtype type;
    float off; /* where a factor is multiplied in another order */
} forms[] = {
    {"FP8", DG_E4M3, 0},
    {"FP8_DYNAMIC", DG_E4M3, 0},
    {"FP8_BLOCK", DG_E4M3, 0},
    {"NVFP4A16", DG_NVFP4, 0x1p-22f},
    {"MXFP4A16", DG_MXFP4, 0},
    {"modelopt-FP8", DG_E4M3, 0},
    {"modelopt-NVFP4", DG_NVFP4, 0x1p-22f},
    {"INT8", DG_BYTES, 0},
    {"W4A16:32:float16", DG_Q4_0, 0},
    {"W4A16:64:bfloat16", DG_AFFINE4, 0},
    {"W4A16_ASYM:64:float16", DG_AFFINE4, 0},
    {"autoround-gptq", DG_AFFINE4, 0},
    {"autoround-gptqmodel-sym", DG_Q4_0, 0},
    {"autoround-awq", DG_AFFINE4, 0},
};

START_TEST(values_are_those_of_the_tools)
{
    static const char path[] = "tests/data/quantised/vectors.safetensors";
    dg_file_map map;
    dg_safetensors st;
    dg_modules m;
    dgemma_error err = {0};
    ck_assert_msg(dg_file_map_open(&map, path, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(dg_safetensors_parse(&st, map.data, map.size, path, &err), DGEMMA_OK);
    for (size_t f = 0; f < DG_COUNT(forms); f++) {
        /* what only the config says */
        dg_quantisation q = {.method = DG_QUANT_AUTO_ROUND,
                             .n_block = 1,
                             .block = {{2, 64}},
                             .symmetric = strstr(forms[f].form, "-sym") != NULL,
                             .zero_less = strcmp(forms[f].form, "autoround-gptq") == 0};
        ck_assert_msg(dg_modules_join(&m, st.tensor, st.n_tensor, &q, path, &err) == DGEMMA_OK,
                      "%s", err.msg);
        ck_assert_uint_eq(m.n_tensor, DG_COUNT(forms));
        char name[64];
        snprintf(name, sizeof name, "%s.weight", forms[f].form);
        const dg_tensor *t = find(m.tensor, m.n_tensor, name);
        ck_assert_msg(t && t->type == forms[f].type && t->n_dim == 2, "%s", name);
        snprintf(name, sizeof name, "want.%s", forms[f].form);
        const dg_tensor *want = dg_safetensors_find(&st, name);
        ck_assert(want && want->type == DG_F32 && want->shape[0] == t->shape[0] &&
                  want->shape[1] == t->shape[1]);
        float *got = pieces_values(t);
        for (size_t i = 0; i < dg_tensor_count(t); i++) {
            float v;
            memcpy(&v, (const char *)want->data + i * sizeof v, sizeof v);
            ck_assert_msg(fabsf(got[i] - v) <= forms[f].off * fabsf(v), "%s[%zu] is %.9g, not %.9g",
                          name, i, (double)got[i], (double)v);
        }
        dg_free(got);
        dg_modules_clear(&m);
    }
    dg_safetensors_clear(&st);
    dg_file_map_close(&map);
}
END_TEST

/* ---- what is refused ---- */

static const unsigned char some[64 * 64];

/* A tensor in a few letters: its type, then its shape. */
typedef struct part {
    const char *name;
    dg_dtype type;
    int n_dim;
    int64_t rows, cols;
} part;

static dgemma_status join(dg_modules *m, const part *p, dg_quant_method method, dgemma_error *err)
{
    dg_tensor t[8];
    size_t n = 0;
    for (; n < DG_COUNT(t) && p[n].name; n++)
        t[n] = (dg_tensor){.name = p[n].name,
                           .type = p[n].type,
                           .n_dim = p[n].n_dim,
                           .shape = {p[n].rows, p[n].cols},
                           .data = some};
    dg_quantisation q = {.method = method, .n_block = 1, .block = {{2, 64}}};
    return dg_modules_join(m, t, n, &q, "DIR", err);
}

#define EXPERT(e, proj, ...)                                                                       \
    {                                                                                              \
        "x.experts." #e "." proj "_proj.weight", __VA_ARGS__                                       \
    }

static const struct {
    part part[6]; /* sorted by name */
    dgemma_status status;
    const char *says;
} bad[] = {
    {{{"a.weight", DG_F8_E4M3, 2, 4, 64}},
     DGEMMA_E_UNSUPPORTED,
     "a.weight is of type F8_E4M3 and has no \"weight_scale\" beside it"},
    {{{"a.weight_packed", DG_U8, 2, 4, 24}, {"a.weight_scale", DG_U8, 2, 4, 1}},
     DGEMMA_E_UNSUPPORTED,
     "a.weight_packed has rows of 48 values, which do not fill blocks of MXFP4"},
    {{{"a.weight_packed", DG_U8, 2, 4, 12}, {"a.weight_scale", DG_F8_E4M3, 2, 4, 1}},
     DGEMMA_E_FORMAT,
     "a.weight_scale is [4, 1] of type F8_E4M3, wanted a scale of F8_E4M3 for sixteen values"},
    {{{"a.weight", DG_F8_E4M3, 1, 64, 0}},
     DGEMMA_E_FORMAT,
     "a.weight is [64] of type F8_E4M3, wanted a"},
    {{{"a.weight", DG_F8_E4M3, 2, 4, 64}, {"a.weight_scale", DG_F32, 2, 5, 1}},
     DGEMMA_E_FORMAT,
     "a.weight_scale is [5, 1] of type F32, wanted a scale for the matrix"},
    {{{"a.weight", DG_F8_E4M3, 2, 4, 128}, {"a.weight_scale", DG_F32, 2, 2, 3}},
     DGEMMA_E_FORMAT,
     "a.weight_scale is [2, 3]"},
    {{{"a.weight", DG_F8_E4M3, 2, 4, 64}, {"a.weight_scale", DG_I32, 2, 4, 1}},
     DGEMMA_E_FORMAT,
     "wanted scales of F32, F16 or BF16"},
    {{{"a.weight_packed", DG_U8, 2, 4, 32}, {"a.weight_scale", DG_F8_E4M3, 2, 4, 4}},
     DGEMMA_E_UNSUPPORTED,
     "has no \"weight_global_scale\" beside it"},
    {{{"a.weight_global_scale", DG_F32, 1, 1, 0},
      {"a.weight_packed", DG_U8, 2, 4, 32},
      {"a.weight_scale", DG_F8_E4M3, 2, 4, 4}},
     DGEMMA_E_FORMAT,
     "a.weight_global_scale is 0, wanted a positive number"},
    {{{"a.weight_global_scale", DG_F32, 1, 2, 0},
      {"a.weight_packed", DG_U8, 2, 4, 32},
      {"a.weight_scale", DG_F8_E4M3, 2, 4, 4}},
     DGEMMA_E_FORMAT,
     "a.weight_global_scale is [2] of type F32, wanted one value of F32"},
    {{{"a.weight_packed", DG_U8, 2, 4, 32}, {"a.weight_scale", DG_F8_E4M3, 2, 4, 3}},
     DGEMMA_E_FORMAT,
     "a.weight_scale is [4, 3]"},
    {{{"a.weight_packed", DG_U8, 2, 4, 32}, {"a.weight_scale", DG_F32, 2, 4, 2}},
     DGEMMA_E_FORMAT,
     "a.weight_scale is [4, 2] of type F32"},
    {{{"a.weight", DG_I8, 2, 4, 64},
      {"a.weight_scale", DG_F32, 2, 4, 1},
      {"a.weight_zero_point", DG_I8, 2, 4, 1}},
     DGEMMA_E_FORMAT,
     "a.weight is [4, 64] of type I8, wanted no weight_zero_point beside it"},
    {{{"a.weight_packed", DG_U8, 2, 4, 32},
      {"a.weight_scale", DG_U8, 2, 4, 2},
      {"a.weight_zero_point", DG_I8, 2, 4, 2}},
     DGEMMA_E_FORMAT,
     "a.weight_packed is [4, 32] of type U8, wanted no weight_zero_point beside it"},
    {{{"a.weight_packed", DG_I32, 2, 4, 8}}, DGEMMA_E_UNSUPPORTED, "has no \"weight_shape\""},
    {{{"a.weight_packed", DG_I32, 2, 4, 8},
      {"a.weight_scale", DG_F16, 2, 4, 2},
      {"a.weight_shape", DG_I64, 1, 2, 0}},
     DGEMMA_E_FORMAT,
     "a.weight_packed is [4, 8] of type I32, wanted eight numbers of four bits in a word, as "
     "weight"},
    {{{"a.weight_packed", DG_I32, 2, 4, 8},
      {"a.weight_scale", DG_F16, 2, 4, 2},
      {"a.weight_shape", DG_I64, 1, 3, 0}},
     DGEMMA_E_FORMAT,
     "a.weight_shape is [3] of type I64, wanted rows and columns as I64"},
    {{{"a.weight_packed", DG_I16, 2, 4, 8}}, DGEMMA_E_FORMAT, "wanted U8 or I32"},
    {{{"a.qweight", DG_I32, 2, 8, 8}, {"a.scales", DG_F16, 2, 2, 8}},
     DGEMMA_E_UNSUPPORTED,
     "has no \"qzeros\""},
    {{{"a.qweight", DG_I32, 2, 8, 7}, {"a.qzeros", DG_I32, 2, 2, 1}, {"a.scales", DG_F16, 2, 2, 8}},
     DGEMMA_E_FORMAT,
     "a.qweight is [8, 7] of type I32, wanted eight numbers of four bits in a word, as many"},
    {{{"a.qweight", DG_I32, 2, 8, 8}, {"a.qzeros", DG_I32, 2, 2, 2}, {"a.scales", DG_F16, 2, 2, 8}},
     DGEMMA_E_FORMAT,
     "a.qzeros is [2, 2] of type I32, wanted eight zeros"},
    {{{"a.qweight", DG_I32, 2, 8, 8}, {"a.qzeros", DG_I32, 2, 4, 1}, {"a.scales", DG_F16, 2, 4, 8}},
     DGEMMA_E_FORMAT,
     "a.scales is [4, 8] of type F16, wanted a scale of F32, F16 or BF16 for each group of 32"},
    {{{"a.g_idx", DG_I32, 1, 63, 0},
      {"a.qweight", DG_I32, 2, 8, 8},
      {"a.qzeros", DG_I32, 2, 2, 1},
      {"a.scales", DG_F16, 2, 2, 8}},
     DGEMMA_E_FORMAT,
     "a.g_idx is [63] of type I32, wanted a number of I32 for each column"},
    {{{"a.qweight", DG_I32, 2, INT64_MAX / 2, 0},
      {"a.qzeros", DG_I32, 2, 2, 1},
      {"a.scales", DG_F16, 2, 2, 0}},
     DGEMMA_E_FORMAT,
     "of type I32, wanted sizes that a matrix can have"},
    {{{"a.weight", DG_U8, 2, 0, INT64_MAX}, {"a.weight_scale", DG_U8, 2, 0, 4}},
     DGEMMA_E_FORMAT,
     "a.weight is [0, 9223372036854775807] of type U8, wanted sizes that a matrix can have"},
    {{{"a.weight_packed", DG_I32, 2, 0, INT64_MAX / 8 + 1},
      {"a.weight_scale", DG_F16, 2, 0, 4},
      {"a.weight_shape", DG_I64, 1, 2, 0}},
     DGEMMA_E_FORMAT,
     "of type I32, wanted sizes that a matrix can have"},
    {{{"a.scales", DG_F16, 2, 2, 8}, {"a.weight", DG_I64, 2, 2, 8}},
     DGEMMA_E_UNSUPPORTED,
     "a.scales belongs to a form of quantised weights that is not read"},
    {{{"a.scales", DG_F16, 2, 2, 8}, {"a.weight", DG_U32, 2, 2, 8}},
     DGEMMA_E_UNSUPPORTED,
     "a.weight is of type U32 and has no \"biases\" beside it"},
    {{{"a.biases", DG_F32, 2, 2, 1}, {"a.scales", DG_F16, 2, 2, 1}, {"a.weight", DG_U32, 2, 2, 8}},
     DGEMMA_E_FORMAT,
     "a.scales is [2, 1] of type F16, wanted scales and biases of F32, F16 or BF16"},
    {{{"a.biases", DG_F16, 2, 2, 8}, {"a.scales", DG_F16, 2, 2, 7}, {"a.weight", DG_U32, 2, 2, 8}},
     DGEMMA_E_FORMAT,
     "a.scales is [2, 7] of type F16, wanted scales and biases of F32, F16 or BF16"},
    {{{"a.biases", DG_F16, 2, 2, 1}, {"a.scales", DG_F16, 2, 2, 1}, {"a.weight", DG_U32, 2, 2, 8}},
     DGEMMA_E_FORMAT,
     "a.weight is [2, 8] of type U32, wanted words for its groups"},
    {{{"a.pre_quant_scale", DG_F32, 1, 64, 0}},
     DGEMMA_E_UNSUPPORTED,
     "a.pre_quant_scale belongs to"},
    {{{"a.weight", DG_F8_E4M3, 2, 4, 64},
      {"a.weight_scale", DG_F32, 1, 4, 0},
      {"a.weight_scale_inv", DG_F32, 1, 4, 0}},
     DGEMMA_E_FORMAT,
     "wanted weight_scale or weight_scale_inv beside it, not both"},
    {{{"a.weight.quant_map", DG_F32, 1, 64, 0}}, DGEMMA_E_UNSUPPORTED, "quant_map belongs to"},
    {{{"a.weight.absmax", DG_F32, 1, 64, 0}}, DGEMMA_E_UNSUPPORTED, "absmax belongs to"},
    {{{"a.weight.bitmask", DG_U8, 1, 64, 0}}, DGEMMA_E_UNSUPPORTED, "bitmask belongs to"},
    {{{"a.qweight", DG_I32, 2, 8, 8}, {"a.qzeros", DG_I32, 2, 2, 1}, {"a.scales", DG_I16, 2, 2, 8}},
     DGEMMA_E_FORMAT,
     "a.scales is [2, 8] of type I16, wanted a scale of F32, F16 or BF16"},
    {{{"a.g_idx", DG_I64, 1, 64, 0},
      {"a.qweight", DG_I32, 2, 8, 8},
      {"a.qzeros", DG_I32, 2, 2, 1},
      {"a.scales", DG_F16, 2, 2, 8}},
     DGEMMA_E_FORMAT,
     "a.g_idx is [64] of type I64, wanted a number of I32 for each column"},
    {{{"a.qweight", DG_I32, 2, 8, 8},
      {"a.qzeros", DG_I32, 2, 2, 1},
      {"a.scales", DG_F16, 2, 2, 8},
      {"a.weight", DG_F8_E4M3, 2, 8, 64},
      {"a.weight_scale", DG_F32, 2, 8, 1}},
     DGEMMA_E_FORMAT,
     "are the same weight"},
    {{{"a.weight", DG_U8, 2, 4, 32},
      {"a.weight_scale", DG_F8_E4M3, 2, 4, 4},
      {"a.weight_scale_2", DG_F32, 1, 1, 0}},
     DGEMMA_E_FORMAT,
     "a.weight_scale_2 is 0, wanted a positive number"},
    {{EXPERT(0, "up", DG_BF16, 2, 2, 4), EXPERT(2, "up", DG_BF16, 2, 2, 4)},
     DGEMMA_E_FORMAT,
     "x.experts.up_proj: expert 1 is missing"},
    {{EXPERT(0, "up", DG_BF16, 2, 2, 4), EXPERT(1, "up", DG_BF16, 2, 2, 8)},
     DGEMMA_E_UNSUPPORTED,
     "all experts of a layer are read in one form"},
    {{EXPERT(0, "up", DG_BF16, 2, 2, 4), EXPERT(1, "up", DG_F16, 2, 2, 4)},
     DGEMMA_E_UNSUPPORTED,
     "x.experts.0.up_proj.weight is [2, 4] of BF16 and x.experts.1.up_proj.weight [2, 4] of F16"},
};

START_TEST(refuses)
{
    dg_modules m;
    dgemma_error err = {0};
    dgemma_status st = join(&m, bad[_i].part, DG_QUANT_GPTQ, &err);
    ck_assert_msg(st == bad[_i].status, "status %d: %s", st, err.msg);
    ck_assert_msg(strstr(err.msg, bad[_i].says), "%s", err.msg);
    ck_assert_ptr_null(m.tensor);
}
END_TEST

/* Four bits of compressed-tensors: what lies beside the words has the shape that they say. */
START_TEST(shapes_of_four_bits_fit)
{
    static const struct {
        int64_t said[2], scale_rows, zero_rows; /* of a matrix of 12 rows */
        const char *says;
    } of[] = {{{12, 64}, 12, 2, NULL},
              {{11, 64}, 12, 2, "a.weight_packed is [12, 8]"},
              {{12, 56}, 12, 2, "a.weight_packed is [12, 8]"},
              {{12, 64}, 11, 2, "a.weight_scale is [11, 2] of type F16, wanted a row for each"},
              {{12, 64}, 12, 1, "a.weight_zero_point is [1, 2] of type I32, wanted eight zeros"}};
    for (size_t i = 0; i < DG_COUNT(of); i++) {
        dg_tensor t[] = {shaped(DG_I32, 12, 8), shaped(DG_F16, of[i].scale_rows, 2),
                         shaped(DG_I64, 2, 0), shaped(DG_I32, of[i].zero_rows, 2)};
        static const char *const name[] = {"a.weight_packed", "a.weight_scale", "a.weight_shape",
                                           "a.weight_zero_point"};
        for (size_t k = 0; k < DG_COUNT(t); k++) {
            t[k].name = name[k];
            t[k].data = some;
        }
        t[2].n_dim = 1;
        t[2].data = of[i].said;
        dg_quantisation q = {.method = DG_QUANT_COMPRESSED_TENSORS};
        dgemma_error err = {0};
        dg_modules m;
        dgemma_status st = dg_modules_join(&m, t, DG_COUNT(t), &q, "DIR", &err);
        ck_assert_msg(st == (of[i].says ? DGEMMA_E_FORMAT : DGEMMA_OK), "%zu: %s", i, err.msg);
        ck_assert_msg(!of[i].says || strstr(err.msg, of[i].says), "%s", err.msg);
        dg_modules_clear(&m);
        if (of[i].says)
            continue;
        q.asymmetric = true; /* zeros are there, or it is no such matrix */
        ck_assert_int_eq(dg_modules_join(&m, t, DG_COUNT(t), &q, "DIR", &err), DGEMMA_OK);
        dg_modules_clear(&m);
        ck_assert_int_eq(dg_modules_join(&m, t, 3, &q, "DIR", &err), DGEMMA_E_FORMAT);
        ck_assert_msg(strstr(err.msg, "wanted a weight_zero_point beside it"), "%s", err.msg);
        q.asymmetric = false;
        ck_assert_int_eq(dg_modules_join(&m, t, 3, &q, "DIR", &err), DGEMMA_OK);
        dg_modules_clear(&m);
        q.wide = true;
        ck_assert_int_eq(dg_modules_join(&m, t, 3, &q, "DIR", &err), DGEMMA_E_FORMAT);
        ck_assert_msg(strstr(err.msg, "wanted a config that says \"num_bits\": 4"), "%s", err.msg);
    }
}
END_TEST

/* Groups have the size that the config says, where it says one. */
START_TEST(sizes_of_groups_fit)
{
    static const struct {
        dg_dtype scale; /* of sixteen values, of 32, or of 64 in words */
        int n_group, group[2];
        bool any;
        const char *says;
    } of[] = {
        {DG_F8_E4M3, 1, {16}, false, NULL},
        {DG_F8_E4M3, 1, {32}, false, "a.weight_scale is [8, 4] of type F8_E4M3, wanted one for 32"},
        {DG_F8_E4M3, 1, {32}, true, NULL},
        {DG_F8_E4M3, 2, {32, 16}, false, NULL},
        {DG_F8_E4M3, 2, {32, 64}, false, "values or another of its sizes, as the config's \"group"},
        {DG_F8_E4M3, 1, {-1}, false, "a.weight_scale is [8, 4] of type F8_E4M3, wanted one for 64"},
        {DG_U8, 1, {32}, false, NULL},
        {DG_U8,
         1,
         {16},
         false,
         "a.weight_scale is [8, 2] of type U8, wanted one for 16 values, as"},
        {DG_F16, 1, {64}, false, NULL},
        {DG_F16, 1, {-1}, false, NULL}, /* all of the row */
        {DG_F16, 1, {32}, false, "a.scales is [1, 8] of type F16, wanted one for 32 values, as"},
    };
    static const float one = 1;
    for (size_t i = 0; i < DG_COUNT(of); i++) {
        const bool words = of[i].scale == DG_F16;
        dg_tensor t[] = {shaped(DG_F32, 1, 1), shaped(DG_U8, 8, 32),
                         shaped(of[i].scale, 8, of[i].scale == DG_U8 ? 2 : 4)},
                  w[] = {shaped(DG_I32, 8, 8), shaped(DG_I32, 1, 1), shaped(DG_F16, 1, 8)};
        static const char *const name[] = {"a.weight_global_scale", "a.weight_packed",
                                           "a.weight_scale"},
                                 *const word_name[] = {"a.qweight", "a.qzeros", "a.scales"};
        for (size_t k = 0; k < DG_COUNT(t); k++) {
            t[k].name = name[k];
            w[k].name = word_name[k];
            t[k].data = w[k].data = some;
        }
        t[0].data = &one;
        dg_quantisation q = {.method = words ? DG_QUANT_GPTQ : DG_QUANT_COMPRESSED_TENSORS,
                             .n_group = of[i].n_group,
                             .any_group = of[i].any};
        memcpy(q.group, of[i].group, sizeof of[i].group);
        dgemma_error err = {0};
        dg_modules m;
        dgemma_status st = dg_modules_join(&m, words ? w : t, DG_COUNT(t), &q, "DIR", &err);
        ck_assert_msg(st == (of[i].says ? DGEMMA_E_FORMAT : DGEMMA_OK), "%zu: %s", i, err.msg);
        ck_assert_msg(!of[i].says || strstr(err.msg, of[i].says), "%s", err.msg);
        dg_modules_clear(&m);
    }
}
END_TEST

/* A scale for the matrix, however many dimensions it has; its other name; the second of two sizes
 * of blocks. */
START_TEST(scales_are_found)
{
    static const struct {
        part scale;
        int64_t rows, cols; /* that share one */
    } of[] = {{{"a.weight_scale", DG_F32, 0, 0, 0}, 4, 256},
              {{"a.weight_scale", DG_F32, 2, 1, 1}, 4, 256},
              {{"a.weight_scale", DG_BF16, 1, 4, 0}, 1, 256},
              {{"a.weight_scale_inv", DG_F32, 2, 4, 1}, 1, 256},
              {{"a.weight_scale_inv", DG_F32, 2, 2, 4}, 2, 64},
              {{"a.weight_scale_inv", DG_F32, 2, 2, 2}, 3, 192}};
    for (size_t i = 0; i < DG_COUNT(of); i++) {
        dg_tensor t[] = {shaped(DG_F8_E4M3, 4, 256), shaped(of[i].scale.type, 0, 0)};
        t[0].name = "a.weight";
        t[1].name = of[i].scale.name;
        t[0].data = t[1].data = some;
        t[1].n_dim = of[i].scale.n_dim;
        t[1].shape[0] = of[i].scale.rows;
        t[1].shape[1] = of[i].scale.cols;
        dg_quantisation q = {.method = DG_QUANT_FP8, .n_block = 2, .block = {{2, 64}, {3, 192}}};
        dgemma_error err = {0};
        dg_modules m;
        ck_assert_msg(dg_modules_join(&m, t, DG_COUNT(t), &q, "DIR", &err) == DGEMMA_OK, "%zu: %s",
                      i, err.msg);
        ck_assert_int_eq(m.piece[0].scale_rows, of[i].rows);
        ck_assert_int_eq(m.piece[0].scale_cols, of[i].cols);
        dg_modules_clear(&m);
    }
}
END_TEST

/* Every expert has its own factor. */
START_TEST(experts_have_factors)
{
    static const float factor[] = {0.5f, 3};
    dg_tensor t[6];
    char name[6][64];
    static const char *const suffix[] = {".weight", ".weight_scale", ".weight_scale_2"};
    for (int i = 0; i < 6; i++) {
        t[i] = i % 3 == 0   ? shaped(DG_U8, 4, 32)
               : i % 3 == 1 ? shaped(DG_F8_E4M3, 4, 4)
                            : shaped(DG_F32, 1, 1);
        snprintf(name[i], sizeof name[i], "x.experts.%d.up_proj%s", i / 3, suffix[i % 3]);
        t[i].name = name[i];
        t[i].data = i % 3 == 2 ? (const void *)&factor[i / 3] : some;
    }
    dg_quantisation q = {.method = DG_QUANT_MODELOPT};
    dgemma_error err = {0};
    dg_modules m;
    ck_assert_msg(dg_modules_join(&m, t, DG_COUNT(t), &q, "DIR", &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_uint_eq(m.n_tensor, 1);
    ck_assert_float_eq(m.tensor->scale[0], factor[0]);
    ck_assert_float_eq(m.tensor->scale[1], factor[1]);
    dg_modules_clear(&m);
}
END_TEST

/* Words are read as the config's method packs them, and only where it is one that does. */
START_TEST(methods_fit)
{
    static const part gptq[] = {{"a.qweight", DG_I32, 2, 8, 8},
                                {"a.qzeros", DG_I32, 2, 2, 1},
                                {"a.scales", DG_F16, 2, 2, 8},
                                {NULL, 0, 0, 0, 0}},
                      awq[] = {{"a.qweight", DG_I32, 2, 64, 1},
                               {"a.qzeros", DG_I32, 2, 2, 1},
                               {"a.scales", DG_F16, 2, 2, 8},
                               {NULL, 0, 0, 0, 0}};
    for (dg_quant_method k = DG_QUANT_NONE; k <= DG_QUANT_AUTO_ROUND; k++)
        for (int i = 0; i < 2; i++) {
            dg_modules m;
            dgemma_error err = {0};
            dgemma_status st = join(&m, i ? awq : gptq, k, &err);
            bool fits = k == DG_QUANT_AUTO_ROUND || k == (i ? DG_QUANT_AWQ : DG_QUANT_GPTQ);
            ck_assert_msg((st == DGEMMA_OK) == fits, "method %d, %d: %s", k, i, err.msg);
            if (!fits)
                ck_assert_msg(strstr(err.msg, k < DG_QUANT_GPTQ
                                                  ? "wanted a quantization_config of GPTQ, AWQ"
                                                  : "wanted words packed as the quantization"),
                              "%s", err.msg);
            dg_modules_clear(&m);
        }

    /* AWQ stores zeros as they are, whatever is true of GPTQ in such a config */
    dg_tensor t[] = {shaped(DG_I32, 64, 1), shaped(DG_I32, 2, 1), shaped(DG_F16, 2, 8)};
    for (size_t i = 0; i < DG_COUNT(t); i++) {
        t[i].name = awq[i].name;
        t[i].data = some;
    }
    dg_modules m;
    dgemma_error err = {0};
    dg_quantisation q = {.method = DG_QUANT_AUTO_ROUND, .zero_less = 1};
    ck_assert_int_eq(dg_modules_join(&m, t, DG_COUNT(t), &q, "DIR", &err), DGEMMA_OK);
    ck_assert_int_eq(m.piece[0].zero_less, 0);
    dg_modules_clear(&m);
    q.ordered = true;
    ck_assert_int_eq(dg_modules_join(&m, t, DG_COUNT(t), &q, "DIR", &err), DGEMMA_E_FORMAT);
    ck_assert_msg(strstr(err.msg, "wanted a g_idx beside it"), "%s", err.msg);
}
END_TEST

/* Experts one by one become a tensor, in the order of their numbers; what looks like one but is not
 * stays. */
START_TEST(experts_are_put_together)
{
    static const part parts[] = {EXPERT(0, "down", DG_BF16, 2, 2, 4),
                                 EXPERT(01, "down", DG_BF16, 2, 2, 4),
                                 EXPERT(1, "down", DG_BF16, 2, 2, 4),
                                 {"x.experts.1.norm.weight", DG_BF16, 2, 2, 4},
                                 EXPERT(65536, "up", DG_BF16, 2, 2, 4),
                                 {"y.weight", DG_BF16, 2, 2, 4},
                                 {NULL, 0, 0, 0, 0}};
    dg_modules m;
    dgemma_error err = {0};
    ck_assert_msg(join(&m, parts, DG_QUANT_NONE, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_uint_eq(m.n_tensor, 1);
    const dg_tensor *t = m.tensor;
    ck_assert_str_eq(t->name, "x.experts.down_proj");
    ck_assert(t->n_dim == 3 && t->shape[0] == 2 && t->shape[1] == 2 && t->shape[2] == 4);
    ck_assert_uint_eq(t->bytes, 32);
    ck_assert(m.used[0] && !m.used[1] && m.used[2] && !m.used[3] && !m.used[4] && !m.used[5]);
    dg_modules_clear(&m);
}
END_TEST

/* Rows that do not fill blocks become floats: those that the same numbers have in longer rows. */
START_TEST(odd_rows_are_widened)
{
    enum { ROWS = 3, LONG = 128, ODD = 96 };
    static const struct {
        dg_dtype stored, scale_type, type;
        int per_byte, group; /* values */
    } of[] = {{DG_F8_E4M3, DG_F32, DG_E4M3, 1, 64},
              {DG_I8, DG_F32, DG_BYTES, 1, 64},
              {DG_U8, DG_F8_E4M3, DG_NVFP4, 2, 16}};
    static const float factor = 0.75f;
    for (size_t f = 0; f < DG_COUNT(of); f++) {
        unsigned char value[2][ROWS * LONG], scale[2][ROWS * LONG];
        float *got[2];
        dg_modules m[2];
        for (int k = 0; k < 2; k++) {
            const int n = k ? ODD : LONG, n_byte = n / of[f].per_byte,
                      n_group = (n + of[f].group - 1) / of[f].group,
                      scale_bytes = n_group * (int)dg_dtype_size(of[f].scale_type);
            for (int i = 0; i < ROWS * n_byte; i++)
                value[k][i] = (unsigned char)(i / n_byte * 31 + i % n_byte * 5) & 0x7E;
            for (int row = 0; row < ROWS; row++)
                for (int g = 0; g < n_group; g++) {
                    const float d = 0.01f * (float)(1 + g + 7 * row);
                    if (of[f].scale_type == DG_F32)
                        memcpy(&scale[k][row * scale_bytes + 4 * g], &d, sizeof d);
                    else
                        scale[k][row * scale_bytes + g] = (unsigned char)(40 + g + 9 * row);
                }
            dg_tensor t[] = {shaped(of[f].stored, ROWS, n_byte),
                             shaped(of[f].scale_type, ROWS, n_group), shaped(DG_F32, 1, 1)};
            static const char *const name[] = {"a.weight", "a.weight_scale", "a.weight_scale_2"};
            const void *const data[] = {value[k], scale[k], &factor};
            for (size_t i = 0; i < DG_COUNT(t); i++) {
                t[i].name = name[i];
                t[i].data = data[i];
            }
            dg_quantisation q = {
                .method = DG_QUANT_MODELOPT, .n_block = 1, .block = {{1, of[f].group}}};
            dgemma_error err = {0};
            dgemma_status st =
                dg_modules_join(&m[k], t, of[f].per_byte == 2 ? 3 : 2, &q, "DIR", &err);
            ck_assert_msg(st == DGEMMA_OK, "%zu: %s", f, err.msg);
            ck_assert_int_eq(m[k].tensor->type, k ? DG_F32 : of[f].type);
            ck_assert(!k || !m[k].tensor->scale);
            got[k] = pieces_values(m[k].tensor);
        }
        for (int i = 0; i < ROWS * ODD; i++)
            ck_assert_float_eq(got[1][i], got[0][i / ODD * LONG + i % ODD]);
        for (int k = 0; k < 2; k++) {
            dg_free(got[k]);
            dg_modules_clear(&m[k]);
        }
    }
}
END_TEST

/* A scale or value that is not a number is found when rows are made. */
START_TEST(numbers_are_checked)
{
    unsigned char value[128] = {0}, made[136];
    uint16_t scale[2] = {0, 0};
    dg_piece piece = {.values = value,
                      .scale = scale,
                      .scale_type = DG_BF16,
                      .scale_rows = 1,
                      .scale_cols = 64,
                      .n_scale_col = 1};
    dg_pieces pieces = {DG_FORM_E4M3, &piece};
    dg_tensor t = {.name = "t", .type = DG_E4M3, .n_dim = 2, .shape = {2, 64}, .pieces = &pieces};
    dgemma_error err = {0};
    ck_assert_int_eq(dg_pieces_make(made, &t, 0, 2, &err), DGEMMA_OK);
    value[70] = 0xFF;
    ck_assert_int_eq(dg_pieces_make(made, &t, 0, 1, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_pieces_make(made, &t, 1, 1, &err), DGEMMA_E_FORMAT);
    ck_assert_msg(strstr(err.msg, "t: row 1 of matrix 0 has"), "%s", err.msg);
    value[70] = 0;
    scale[1] = 0x7F80;
    ck_assert_int_eq(dg_pieces_make(made, &t, 0, 2, &err), DGEMMA_E_FORMAT);
}
END_TEST

/* The same of scales that are bytes, and of four bits. */
START_TEST(scales_are_checked)
{
    enum { BF16_MAX = 0x7F7F, BF16_INF = 0x7F80, BF16_NAN = 0x7FC0 };
    static const struct {
        dg_form form;
        dg_dtype type, scale_type;
        int scale_cols;
        unsigned scale;
        dgemma_status status;
    } of[] = {
        {DG_FORM_NVFP4, DG_NVFP4, DG_F8_E4M3, 16, 0x7E, DGEMMA_OK},
        {DG_FORM_NVFP4, DG_NVFP4, DG_F8_E4M3, 16, 0x7F, DGEMMA_E_FORMAT},
        {DG_FORM_NVFP4, DG_NVFP4, DG_F8_E4M3, 16, 0x81, DGEMMA_E_FORMAT},
        {DG_FORM_MXFP4, DG_MXFP4, DG_U8, 32, 0xFE, DGEMMA_OK},
        {DG_FORM_MXFP4, DG_MXFP4, DG_U8, 32, 0xFF, DGEMMA_E_FORMAT},
        {DG_FORM_INT4, DG_AFFINE4, DG_BF16, 32, 0x3F80, DGEMMA_OK},
        {DG_FORM_INT4, DG_AFFINE4, DG_BF16, 32, BF16_MAX, DGEMMA_E_FORMAT}, /* times eight */
        {DG_FORM_INT4, DG_AFFINE4, DG_BF16, 32, BF16_INF, DGEMMA_E_FORMAT},
        {DG_FORM_INT4, DG_AFFINE4, DG_BF16, 32, BF16_NAN, DGEMMA_E_FORMAT},
        {DG_FORM_INT4, DG_Q4_0, DG_F16, 32, 0x7C00, DGEMMA_E_FORMAT},
    };
    for (size_t i = 0; i < DG_COUNT(of); i++) {
        unsigned char value[32] = {0}, scale[8] = {0}, made[64];
        const size_t size = dg_dtype_size(of[i].scale_type),
                     last = (size_t)(64 / of[i].scale_cols) - 1;
        for (size_t k = 0; k < size; k++)
            scale[last * size + k] = (unsigned char)(of[i].scale >> 8 * k);
        dg_piece piece = {.values = value,
                          .scale = scale,
                          .scale_type = of[i].scale_type,
                          .scale_rows = 1,
                          .scale_cols = of[i].scale_cols,
                          .n_scale_col = 64 / of[i].scale_cols};
        dg_pieces pieces = {of[i].form, &piece};
        dg_tensor t = {
            .name = "t", .type = of[i].type, .n_dim = 2, .shape = {1, 64}, .pieces = &pieces};
        dgemma_error err = {0};
        dgemma_status st = dg_pieces_make(made, &t, 0, 1, &err);
        ck_assert_msg(st == of[i].status, "%zu: status %d: %s", i, st, err.msg);
    }
}
END_TEST

/* Columns in an order of their own, and zeros that are not what the config says. */
START_TEST(orders_and_zeros_are_checked)
{
    uint32_t value[8 * 8] = {0}, zero[2];
    uint16_t scale[2 * 8] = {0};
    int32_t group[64];
    unsigned char made[8 * 36];
    dg_piece piece = {.values = value,
                      .scale = scale,
                      .scale_type = DG_F16,
                      .scale_rows = 1,
                      .scale_cols = 32,
                      .n_scale_col = 2,
                      .zero = zero,
                      .symmetric = true,
                      .group = group};
    dg_pieces pieces = {DG_FORM_GPTQ, &piece};
    dg_tensor t = {.name = "t", .type = DG_Q4_0, .n_dim = 2, .shape = {8, 64}, .pieces = &pieces};
    dgemma_error err = {0};
    zero[0] = 0x77777777;
    zero[1] = 0x88888888;
    for (int i = 0; i < 64; i++)
        group[i] = i / 32;
    ck_assert_int_eq(dg_pieces_make(made, &t, 0, 8, &err), DGEMMA_OK);
    zero[1] = 0x88988888;
    ck_assert_int_eq(dg_pieces_make(made, &t, 0, 5, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_pieces_make(made, &t, 0, 8, &err), DGEMMA_E_FORMAT);
    ck_assert_msg(strstr(err.msg, "row 5 of matrix 0 has a scale, a zero"), "%s", err.msg);
    group[3] = 1;
    ck_assert_int_eq(dg_pieces_make(made, &t, 0, 5, &err), DGEMMA_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.msg, "groups of another order (g_idx)"), "%s", err.msg);

    /* what was never set is the usual order; and the second matrix is looked at, too */
    int32_t unset[64];
    memset(unset, 0xFF, sizeof unset);
    dg_piece both[2] = {piece, piece};
    unsigned char twice[2 * sizeof made];
    both[0].group = unset;
    zero[1] = 0x88888888;
    t = (dg_tensor){.name = "t", .type = DG_Q4_0, .n_dim = 3, .shape = {2, 8, 64}};
    t.pieces = &(dg_pieces){DG_FORM_GPTQ, both};
    ck_assert_int_eq(dg_pieces_make(twice, &t, 0, 8, &err), DGEMMA_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.msg, "matrix 1 has its columns"), "%s", err.msg);
    both[1].group = unset;
    ck_assert_int_eq(dg_pieces_make(twice, &t, 0, 8, &err), DGEMMA_OK);
}
END_TEST

/* Zeros are stored less by one as whole words: a zero of 0 borrows from its neighbour. */
START_TEST(zeros_borrow)
{
    static const uint32_t zeros = 0xF0080105, value[4 * 8];
    uint32_t zero = zeros - 0x11111111;
    uint16_t scale[8];
    for (int i = 0; i < 8; i++)
        scale[i] = dg_float_to_bf16(1);
    dg_piece piece = {.values = value,
                      .scale = scale,
                      .scale_type = DG_BF16,
                      .scale_rows = 1,
                      .scale_cols = 32,
                      .n_scale_col = 1,
                      .zero = &zero,
                      .zero_less = 1};
    dg_pieces pieces = {DG_FORM_GPTQ, &piece};
    dg_tensor t = {.name = "t", .type = DG_AFFINE4, .n_dim = 2, .shape = {8, 32}};
    t.pieces = &pieces;
    t.bytes = dg_dtype_bytes(t.type, dg_tensor_count(&t));
    float *got = pieces_values(&t);
    for (int i = 0; i < 8 * 32; i++)
        ck_assert_float_eq(got[i], -(float)(zeros >> i / 32 * 4 & 15));
    dg_free(got);
}
END_TEST

/* What is divided by must leave a factor. */
START_TEST(factors_are_checked)
{
    static const struct {
        float by;
        dgemma_status status;
    } of[] = {{0x1p-120f, DGEMMA_OK},
              {0x1p-140f, DGEMMA_E_FORMAT},
              {-1, DGEMMA_E_FORMAT},
              {INFINITY, DGEMMA_E_FORMAT},
              {NAN, DGEMMA_E_FORMAT}};
    dgemma_error err = {0};
    dg_modules m;
    for (size_t i = 0; i < DG_COUNT(of); i++) {
        dg_tensor t[3] = {shaped(DG_F32, 1, 1), shaped(DG_U8, 4, 32), shaped(DG_F8_E4M3, 4, 4)};
        t[0].name = "a.weight_global_scale";
        t[0].data = &of[i].by;
        t[1].name = "a.weight_packed";
        t[2].name = "a.weight_scale";
        t[1].data = t[2].data = some;
        dg_quantisation q = {.method = DG_QUANT_COMPRESSED_TENSORS};
        ck_assert_int_eq(dg_modules_join(&m, t, DG_COUNT(t), &q, "DIR", &err), of[i].status);
        if (of[i].status)
            ck_assert_msg(strstr(err.msg, "wanted a positive number to divide by"), "%s", err.msg);
        dg_modules_clear(&m);
    }
}
END_TEST

START_TEST(survives_no_memory)
{
    static const part parts[] = {{"a.weight", DG_F8_E4M3, 2, 4, 64},
                                 {"a.weight_scale", DG_F32, 2, 4, 1},
                                 {NULL, 0, 0, 0, 0}};
    for (long n = 1;; n++) {
        dg_modules m;
        dg_test_fail_alloc_at(n);
        dgemma_status st = join(&m, parts, DG_QUANT_NONE, NULL);
        bool reached = dg_test_alloc_done();
        ck_assert_int_eq(st == DGEMMA_OK, m.tensor != NULL);
        dg_modules_clear(&m);
        if (!reached) {
            ck_assert_int_eq(st, DGEMMA_OK);
            break;
        }
        ck_assert_int_eq(st, DGEMMA_E_NOMEM);
    }
}
END_TEST

Suite *modules_suite(void)
{
    Suite *s = suite_create("modules");
    TCase *c = tcase_create("values");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, values_are_those_of_the_tools);
    tcase_add_test(c, experts_are_put_together);
    tcase_add_test(c, experts_have_factors);
    tcase_add_test(c, scales_are_found);
    tcase_add_test(c, odd_rows_are_widened);
    tcase_add_test(c, zeros_borrow);
    suite_add_tcase(s, c);

    c = tcase_create("hostile");
    tcase_add_loop_test(c, refuses, 0, DG_COUNT(bad));
    tcase_add_test(c, shapes_of_four_bits_fit);
    tcase_add_test(c, sizes_of_groups_fit);
    tcase_add_test(c, numbers_are_checked);
    tcase_add_test(c, scales_are_checked);
    tcase_add_test(c, orders_and_zeros_are_checked);
    tcase_add_test(c, factors_are_checked);
    tcase_add_test(c, methods_fit);
    tcase_add_test(c, survives_no_memory);
    suite_add_tcase(s, c);
    return s;
}
