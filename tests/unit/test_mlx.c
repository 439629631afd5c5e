/* Folders as MLX writes them: the values that it gives back, a whole model, and what is refused. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "format/checkpoint.h"
#include "format/modules.h"
#include "format/safetensors.h"
#include "suites.h"
#include "support/parted_folder.h"
#include "support/temp_dir.h"

/* ---- what MLX made: see tools/make_mlx_vectors.py ---- */

static void check_form(const dg_safetensors *st, const dg_modules *m, const char *form, int bits)
{
    char name[128];
    const dg_tensor *t = NULL, *want;
    snprintf(name, sizeof name, "want.%s", form);
    want = dg_safetensors_find(st, name);
    ck_assert_msg(want && want->type == DG_F32, "%s", name);
    snprintf(name, sizeof name, "%s%s", form, want->n_dim == 3 ? "" : ".weight");
    for (size_t i = 0; i < m->n_tensor; i++)
        if (strcmp(m->tensor[i].name, name) == 0)
            t = &m->tensor[i];
    ck_assert_msg(t && t->n_dim == want->n_dim, "%s", name);
    ck_assert_int_eq(t->type, bits == 4 ? DG_AFFINE4 : DG_AFFINE8);
    ck_assert_mem_eq(t->shape, want->shape, (size_t)t->n_dim * sizeof *t->shape);
    float *got = pieces_values(t);
    for (size_t i = 0; i < dg_tensor_count(t); i++) {
        float v;
        memcpy(&v, (const char *)want->data + i * sizeof v, sizeof v);
        /* the ends of a range are some 0.1: what is rounded is of that size */
        ck_assert_msg(fabsf(got[i] - v) <= 0x1p-25f, "%s[%zu] is %.9g, not %.9g", name, i,
                      (double)got[i], (double)v);
    }
    dg_free(got);
}

START_TEST(values_are_those_of_mlx)
{
    static const char *const scales[] = {"float16", "bfloat16", "float32"};
    static const struct {
        int bits, group, scales;
    } forms[] = {{4, 32, 0}, {4, 64, 1}, {4, 128, 2}, {8, 32, 1}, {8, 64, 0}, {8, 128, 2}};
    dgemma_error err = {0};
    dg_file_map map;
    dg_safetensors st;
    ck_assert_int_eq(dg_file_map_open(&map, "tests/data/quantised/mlx.safetensors", &err), 0);
    ck_assert_int_eq(dg_safetensors_parse(&st, map.data, map.size, "mlx", &err), DGEMMA_OK);
    for (size_t f = 0; f < DG_COUNT(forms); f++) {
        dg_quantisation q = {
            .method = DG_QUANT_MLX, .n_width = 1, .width = {{forms[f].bits, forms[f].group}}};
        dg_tensor part[8];
        size_t n = 0;
        char stem[64];
        snprintf(stem, sizeof stem, "-%d-%d-%s.", forms[f].bits, forms[f].group,
                 scales[forms[f].scales]);
        for (size_t i = 0; i < st.n_tensor; i++)
            if (strstr(st.tensor[i].name, stem) && n < DG_COUNT(part))
                part[n++] = st.tensor[i];
        ck_assert_uint_eq(n, 6);
        dg_modules m;
        ck_assert_msg(dg_modules_join(&m, part, n, &q, "mlx", &err) == DGEMMA_OK, "%s", err.msg);
        stem[strlen(stem) - 1] = '\0';
        for (int experts = 0; experts < 2; experts++) {
            char form[96];
            snprintf(form, sizeof form, "%s%s", experts ? "experts" : "matrix", stem);
            check_form(&st, &m, form, forms[f].bits);
        }
        dg_modules_clear(&m);
    }
    dg_safetensors_clear(&st);
    dg_file_map_close(&map);
}
END_TEST

/* ---- a whole model ---- */

/* Steps are powers of two, so that nothing of a value is lost in whatever order it is put together.
 */
static void add_matrix(folder *parts, folder *plain, const dg_tensor *t, int bits, int group)
{
    const size_t n = dg_tensor_count(t), n_group = n / (size_t)group;
    const int top = (1 << bits) - 1, middle = 1 << (bits - 1);
    uint32_t *words = dg_calloc(n * (size_t)bits / 32, sizeof *words);
    uint16_t *scale = dg_array(n_group, sizeof *scale), *bias = dg_array(n_group, sizeof *bias);
    float *value = dg_array(n, sizeof *value), *w = dg_array(n, sizeof *w);
    dg_widen(w, t->data, t->type, n);
    for (size_t i = 0; i < n; i++) {
        size_t g = i / (size_t)group;
        if (i % (size_t)group == 0) {
            int exponent;
            float most = 0;
            for (size_t k = i; k < i + (size_t)group; k++)
                most = fmaxf(most, fabsf(w[k]));
            frexpf(most, &exponent);
            scale[g] = dg_float_to_bf16(ldexpf(g % 2 ? -1 : 1, exponent + 1 - bits));
            bias[g] = dg_float_to_bf16(dg_bf16_to_float(scale[g]) * (float)-middle);
        }
        float s = dg_bf16_to_float(scale[g]), b = dg_bf16_to_float(bias[g]);
        int q = (int)fminf(fmaxf(rintf((w[i] - b) / s), 0), (float)top);
        words[i * (size_t)bits / 32] |= (uint32_t)q << i * (size_t)bits % 32;
        value[i] = (float)q * s + b;
    }
    dg_free(w);
    char module[FOLDER_NAME];
    size_t len = strlen(t->name), end = t->n_dim == 3 ? len : len - strlen(".weight");
    snprintf(module, sizeof module, "%.*s", (int)end, t->name);
    dg_tensor packed = {.type = DG_U32, .n_dim = t->n_dim}, beside = {.type = DG_BF16};
    beside.n_dim = t->n_dim;
    memcpy(packed.shape, t->shape, sizeof t->shape);
    memcpy(beside.shape, t->shape, sizeof t->shape);
    packed.shape[t->n_dim - 1] = t->shape[t->n_dim - 1] * bits / 32;
    beside.shape[t->n_dim - 1] = t->shape[t->n_dim - 1] / group;
    folder_add(parts, module, ".weight", packed, words);
    folder_add(parts, module, ".scales", beside, scale);
    folder_add(parts, module, ".biases", beside, bias);
    dg_tensor wide = *t;
    wide.type = DG_F32;
    folder_add(plain, t->name, "", wide, value);
}

/* As mlx-vlm mixes widths: eight bits for embedding, attention, router and MLP, four for the rest.
 */
static int bits_of(const dg_tensor *t)
{
    if (strncmp(t->name, "model.decoder.", 14) != 0 || t->n_dim < 2)
        return 0;
    return t->n_dim == 3 || strstr(t->name, "self_conditioning") ? 4 : 8;
}

/* Whether the page of an address counts as memory of this program; -1: nobody tells. */
static int is_resident(const void *at)
{
    const uintptr_t page = (uintptr_t)at / (uintptr_t)sysconf(_SC_PAGESIZE);
    uint64_t entry = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY);
    bool told = fd >= 0 && pread(fd, &entry, sizeof entry, (off_t)(page * sizeof entry)) == 8;
    if (fd >= 0)
        close(fd);
    return told ? (int)(entry >> 63) : -1;
}

/* A tensor in pieces is let go like others. */
static void check_forgotten(const char *dir)
{
    dgemma_error err = {0};
    dg_checkpoint *ck;
    ck_assert_int_eq(dg_checkpoint_open(&ck, dir, &err), DGEMMA_OK);
    const dg_tensor *t = dg_checkpoint_find(ck, "model.decoder.layers.0.experts.down_proj");
    ck_assert(t && t->pieces);
    const void *values = t->pieces->piece[t->shape[0] - 1].values;
    dg_free(pieces_values(t));
    if (is_resident(values) == 1) {
        dg_checkpoint_forget(ck, t);
        ck_assert_int_eq(is_resident(values), 0);
    }
    dg_free(pieces_values(t)); /* and read again */
    dg_checkpoint_close(ck);
}

START_TEST(logits_are_those_of_the_values)
{
    static const char *const config_of[] = {
        "\"quantization\": {\"group_size\": 32, \"bits\": 4, \"x\": {\"group_size\": 32, \"bits\": "
        "8}, \"y\": false},",
        "\"quantization_config\": {\"group_size\": 32, \"bits\": 4, \"mode\": \"affine\", \"x\": "
        "{\"group_size\": 32, \"bits\": 8}},"};
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
        if (bits_of(t)) {
            add_matrix(&parts, &plain, t, bits_of(t), 32);
        } else {
            folder_add(&parts, t->name, "", *t, NULL);
            folder_add(&plain, t->name, "", *t, NULL);
        }
    }
    char dir[2][DG_TEST_PATH];
    folder_write(&parts, dg_test_path(dir[0], dg_test_root, "parts"), &config, config_of[_i]);
    folder_write(&plain, dg_test_path(dir[1], dg_test_root, "plain"), &config, "");
    dg_checkpoint_close(ck);
    dg_buf_clear(&config);
    folder_check_logits(dir[0], dir[1], false);
    check_forgotten(dir[0]);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    const char *config, *says;
} bad[] = {
    {"{\"bits\": 3, \"group_size\": 64}", "quantization.bits is 3, wanted 4 or 8"},
    {"{\"bits\": 4, \"group_size\": 16}", "quantization.group_size is 16, wanted a multiple of 32"},
    {"{\"bits\": 4, \"group_size\": 64, \"mode\": \"mxfp4\"}",
     "quantization.mode is \"mxfp4\", wanted \"affine\""},
    {"{\"bits\": 4, \"group_size\": 64, \"a.b\": {\"bits\": 6, \"group_size\": 64}}",
     "quantization.a.b.bits is 6, wanted 4 or 8"},
    {"{\"bits\": 4}", "quantization.quant_method is missing"},
};

START_TEST(configs_are_refused)
{
    dgemma_error err = {0};
    dg_quantisation q;
    json_t *config = json_loads(bad[_i].config, 0, NULL);
    ck_assert_int_eq(dg_quantisation_read(&q, config, "config.json", "quantization.", &err),
                     DGEMMA_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.msg, bad[_i].says) != NULL, "%s", err.msg);
    json_decref(config);
}
END_TEST

/* Two widths that fit the same words are not guessed at; a scale that is none is found. */
START_TEST(parts_are_refused)
{
    static uint32_t words[2 * 16];
    static uint16_t scale[2 * 2];
    dgemma_error err = {0};
    dg_modules m;
    dg_tensor part[] = {
        {.name = "a.biases", .type = DG_F16, .n_dim = 2, .shape = {2, 2}, .data = scale},
        {.name = "a.scales", .type = DG_F16, .n_dim = 2, .shape = {2, 2}, .data = scale},
        {.name = "a.weight", .type = DG_U32, .n_dim = 2, .shape = {2, 16}, .data = words}};
    dg_quantisation q = {.method = DG_QUANT_MLX, .n_width = 2, .width = {{4, 64}, {8, 32}}};
    ck_assert_int_eq(dg_modules_join(&m, part, 3, &q, "DIR", &err), DGEMMA_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "two that the config has would fit"));
    q.n_width = 1;
    ck_assert_int_eq(dg_modules_join(&m, part, 3, &q, "DIR", &err), DGEMMA_OK);
    unsigned char out[512];
    ck_assert_int_eq(dg_pieces_make(out, &m.tensor[0], 0, 2, &err), DGEMMA_OK);
    scale[3] = 0x7C00;
    ck_assert_int_eq(dg_pieces_make(out, &m.tensor[0], 0, 2, &err), DGEMMA_E_FORMAT);
    ck_assert_int_eq(dg_pieces_make(out, &m.tensor[0], 0, 1, &err), DGEMMA_OK);
    scale[3] = 0;
    dg_modules_clear(&m);
    part[2].shape[1] = 17;
    ck_assert_int_eq(dg_modules_join(&m, part, 3, &q, "DIR", &err), DGEMMA_E_FORMAT);
}
END_TEST

Suite *mlx_suite(void)
{
    Suite *s = suite_create("mlx");
    TCase *c = tcase_create("folders");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, values_are_those_of_mlx);
    tcase_add_loop_test(c, logits_are_those_of_the_values, 0, 2);
    tcase_add_loop_test(c, configs_are_refused, 0, (int)DG_COUNT(bad));
    tcase_add_test(c, parts_are_refused);
    suite_add_tcase(s, c);
    return s;
}
