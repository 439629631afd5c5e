/* modules_model: a model whose matrices are kept in parts gives the logits of the same values in
 * floats; folders whose config contradicts their parts. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "format/checkpoint.h"
#include "suites.h"
#include "support/parted_folder.h"
#include "support/temp_dir.h"
#include "tensor/narrowed.h"

/* A matrix as E4M3 with a scale for each row, and what its values are then. */
static void add_e4m3(folder *parts, folder *plain, const char *name, const float *w, int64_t rows,
                     int64_t cols)
{
    size_t n = (size_t)(rows * cols);
    unsigned char *q = dg_malloc(n);
    uint16_t *scale = dg_array((size_t)rows, sizeof *scale);
    float *value = dg_array(n, sizeof *value);
    for (size_t i = 0; i < n; i++) {
        size_t row = i / (size_t)cols;
        if (i % (size_t)cols == 0) {
            float most = 0;
            for (int64_t k = 0; k < cols; k++)
                most = fmaxf(most, fabsf(w[i + (size_t)k]));
            scale[row] = dg_float_to_bf16(most / 448);
        }
        float s = dg_bf16_to_float(scale[row]);
        q[i] = dg_float_to_e4m3(w[i] / s);
        value[i] = dg_e4m3_to_float(q[i]) * s;
    }
    folder_add(parts, name, ".weight", shaped(DG_F8_E4M3, rows, cols), q);
    folder_add(parts, name, ".weight_scale", shaped(DG_BF16, rows, 1), scale);
    folder_add(plain, name, ".weight", shaped(DG_F32, rows, cols), value);
}

/* The same as NVFP4; the global scale, a power of two, is what to divide by. */
static void add_nvfp4(folder *parts, folder *plain, const char *name, const float *w, int64_t rows,
                      int64_t cols)
{
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    size_t n = (size_t)(rows * cols);
    unsigned char *q = dg_calloc(n / 2, 1), *scale = dg_malloc(n / 16);
    float *value = dg_array(n, sizeof *value), *global = dg_malloc(sizeof *global);
    *global = 64;
    for (size_t i = 0; i < n; i++) {
        if (i % 16 == 0) {
            float most = 0;
            for (size_t k = 0; k < 16; k++)
                most = fmaxf(most, fabsf(w[i + k]));
            scale[i / 16] = dg_float_to_e4m3(most / 6 * *global);
        }
        float s = dg_e4m3_to_float(scale[i / 16]) / *global;
        int best = 0;
        for (int k = 1; k < 8; k++)
            if (fabsf(e2m1[k] * s - fabsf(w[i])) < fabsf(e2m1[best] * s - fabsf(w[i])))
                best = k;
        int nibble = best | (w[i] < 0 ? 8 : 0);
        q[i / 2] = (unsigned char)(q[i / 2] | nibble << 4 * (i % 2));
        value[i] = (w[i] < 0 ? -e2m1[best] : e2m1[best]) * s;
    }
    dg_tensor one = {.type = DG_F32, .n_dim = 1, .shape = {1}};
    folder_add(parts, name, ".weight_packed", shaped(DG_U8, rows, cols / 2), q);
    folder_add(parts, name, ".weight_scale", shaped(DG_F8_E4M3, rows, cols / 16), scale);
    folder_add(parts, name, ".weight_global_scale", one, global);
    folder_add(plain, name, ".weight", shaped(DG_F32, rows, cols), value);
}

/* A matrix of the source: attention as E4M3, experts and MLP as asked, gate and up of an expert by
 * themselves. */
static void add_matrix(folder *parts, folder *plain, const char *name, const dg_tensor *t,
                       size_t first, int64_t rows, bool nvfp4)
{
    int64_t cols = t->shape[t->n_dim - 1];
    size_t n = (size_t)(rows * cols);
    float *w = dg_array(n, sizeof *w);
    dg_widen(w, (const char *)t->data + first * dg_dtype_size(t->type), t->type, n);
    if (nvfp4 && !strstr(name, "self_attn"))
        add_nvfp4(parts, plain, name, w, rows, cols);
    else
        add_e4m3(parts, plain, name, w, rows, cols);
    dg_free(w);
}

static void add_experts(folder *parts, folder *plain, const dg_tensor *t, bool nvfp4)
{
    const char *end = strrchr(t->name, '.') + 1;
    bool both = strcmp(end, "gate_up_proj") == 0;
    int64_t rows = both ? t->shape[1] / 2 : t->shape[1];
    for (int64_t e = 0; e < t->shape[0]; e++)
        for (int half = 0; half <= both; half++) {
            char name[FOLDER_NAME];
            size_t first = (size_t)((e * t->shape[1] + half * rows) * t->shape[2]);
            snprintf(name, sizeof name, "%.*s%d.%s", (int)(end - t->name), t->name, (int)e,
                     !both  ? "down_proj"
                     : half ? "up_proj"
                            : "gate_proj");
            add_matrix(parts, plain, name, t, first, rows, nvfp4);
        }
}

START_TEST(logits_are_those_of_the_values)
{
    static folder parts, plain;
    dg_checkpoint *ck;
    dgemma_error err = {0};
    dg_buf config;
    dg_buf_init(&config, 1 << 20);
    parts.n = plain.n = 0;
    ck_assert_int_eq(dg_checkpoint_open(&ck, "tests/fixtures/golden/wide/model", &err), DGEMMA_OK);
    ck_assert_int_eq(dg_checkpoint_document(ck, "config.json", &config, &err), DGEMMA_OK);
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++) {
        const dg_tensor *t = dg_checkpoint_at(ck, i);
        bool decoder = strncmp(t->name, "model.decoder.layers.", 21) == 0;
        if (decoder && t->n_dim == 3)
            add_experts(&parts, &plain, t, _i);
        else if (decoder && (strstr(t->name, "_proj.weight") || strstr(t->name, ".mlp."))) {
            char name[FOLDER_NAME];
            snprintf(name, sizeof name, "%.*s", (int)(strlen(t->name) - 7), t->name);
            add_matrix(&parts, &plain, name, t, 0, t->shape[0], _i);
        } else {
            folder_add(&parts, t->name, "", *t, NULL);
            folder_add(&plain, t->name, "", *t, NULL);
        }
    }
    char dir[2][DG_TEST_PATH];
    folder_write(&parts, dg_test_path(dir[0], dg_test_root, "parts"), &config, "");
    folder_write(&plain, dg_test_path(dir[1], dg_test_root, "plain"), &config, "");
    dg_checkpoint_close(ck);
    dg_buf_clear(&config);
    folder_check_logits(dir[0], dir[1], true);
}
END_TEST

/* Bytes are steps from zero: a config that says otherwise is of weights that this would misread.
 * Of FP8 there is nothing to misread. */
START_TEST(bytes_have_no_other_zero)
{
    static const struct {
        dg_dtype type;
        const char *symmetric;
        dgemma_status status;
    } of[] = {{DG_I8, "true", DGEMMA_OK},
              {DG_I8, "false", DGEMMA_E_FORMAT},
              {DG_F8_E4M3, "false", DGEMMA_OK}};
    static folder parts;
    dg_buf config;
    dg_buf_init(&config, 64);
    dg_buf_puts(&config, "{\"dtype\": \"bfloat16\"}");
    for (size_t i = 0; i < DG_COUNT(of); i++) {
        char dir[DG_TEST_PATH], name[16], quantisation[192];
        dg_checkpoint *ck = NULL;
        dgemma_error err = {0};
        parts.n = 0;
        folder_add(&parts, "a", ".weight", shaped(of[i].type, 4, 64), dg_calloc(4, 64));
        folder_add(&parts, "a", ".weight_scale", shaped(DG_F32, 4, 1), dg_calloc(4, 4));
        snprintf(name, sizeof name, "bytes%zu", i);
        snprintf(quantisation, sizeof quantisation,
                 "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
                 "\"config_groups\": {\"x\": {\"weights\": {\"symmetric\": %s}}}},",
                 of[i].symmetric);
        folder_write(&parts, dg_test_path(dir, dg_test_root, name), &config, quantisation);
        dgemma_status st = dg_checkpoint_open(&ck, dir, &err);
        ck_assert_msg(st == of[i].status, "%zu: status %d: %s", i, st, err.msg);
        ck_assert_msg(!st || strstr(err.msg, "a.weight is [4, 64] of type I8, wanted a config that "
                                             "does not say \"symmetric\": false"),
                      "%s", err.msg);
        dg_checkpoint_close(ck);
    }
    dg_buf_clear(&config);
}
END_TEST

Suite *modules_model_suite(void)
{
    Suite *s = suite_create("modules_model");
    TCase *c = tcase_create("logits");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_loop_test(c, logits_are_those_of_the_values, 0, 2);
    tcase_add_test(c, bytes_have_no_other_zero);
    suite_add_tcase(s, c);
    return s;
}
