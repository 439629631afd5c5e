/* weights: which tensors serve as a model's when a folder has a part of them under other names. */
#include "suites.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/common.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "support/write_safetensors.h"

#define FIXTURE "tests/fixtures/golden/text/model"
#define DECODER "model.decoder.layers."
#define ENCODER "model.encoder.language_model.layers."

enum { TENSORS = 512, NAME = 128 };

typedef struct folder {
    dg_checkpoint *ck;
    dg_tensor tensor[TENSORS];
    char name[TENSORS][NAME];
    size_t n;
} folder;

static bool is_scalar(const char *name)
{
    return strcmp(strrchr(name, '.'), ".layer_scalar") == 0;
}

/* The tensors of the fixture, their layers as the encoder's where that is asked for. */
static void begin(folder *f, bool encoder)
{
    dgemma_error err = {0};
    f->n = 0;
    ck_assert_msg(dg_checkpoint_open(&f->ck, FIXTURE, &err) == DGEMMA_OK, "%s", err.msg);
    for (size_t i = 0; i < dg_checkpoint_count(f->ck); i++) {
        const dg_tensor *t = dg_checkpoint_at(f->ck, i);
        bool moved = encoder && strncmp(t->name, DECODER, strlen(DECODER)) == 0;
        ck_assert_uint_lt(f->n, TENSORS);
        f->tensor[f->n] = *t;
        if (moved && !is_scalar(t->name)) {
            snprintf(f->name[f->n], NAME, ENCODER "%s", t->name + strlen(DECODER));
            f->tensor[f->n].name = f->name[f->n];
        }
        f->n++;
    }
}

/* Writes the folder; the tensor `without` stays away. */
static void end(folder *f, char dir[DG_TEST_PATH], const char *without)
{
    dgemma_error err = {0};
    char path[DG_TEST_PATH];
    dg_buf config;
    dg_buf_init(&config, 1 << 20);
    ck_assert_int_eq(dg_checkpoint_document(f->ck, "config.json", &config, &err), DGEMMA_OK);
    for (size_t i = 0; without && i < f->n; i++)
        if (strcmp(f->tensor[i].name, without) == 0)
            f->tensor[i--] = f->tensor[--f->n];
    dg_test_path(dir, dg_test_root, "model");
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    ck_assert(dg_test_write_file(dir, "config.json", config.data, config.len));
    ck_assert(
        dg_test_write_safetensors(dg_test_path(path, dir, "model.safetensors"), f->tensor, f->n));
    dg_buf_clear(&config);
    dg_checkpoint_close(f->ck);
}

static void check_same(const char *dir)
{
    size_t n, m;
    float *got = tiny_logits(&(tiny_options){.folder = dir}, &n),
          *want = tiny_logits(&(tiny_options){.folder = FIXTURE}, &m);
    ck_assert_uint_eq(n, m);
    ck_assert_mem_eq(got, want, n * sizeof *got);
    dg_free(got);
    dg_free(want);
}

START_TEST(layers_of_the_encoder_serve)
{
    static folder f;
    char dir[DG_TEST_PATH];
    begin(&f, true);
    end(&f, dir, NULL);
    check_same(dir);
}
END_TEST

/* A layer's two scalars are different numbers: neither is the other. */
START_TEST(scalars_do_not)
{
    static folder f;
    static const char *const scalar[] = {DECODER "0.layer_scalar", ENCODER "0.layer_scalar"};
    char dir[DG_TEST_PATH], says[NAME];
    dgemma_error err = {0};
    tiny_model t;
    begin(&f, true);
    end(&f, dir, scalar[_i]);
    dg_checkpoint *ck;
    ck_assert_msg(dg_checkpoint_open(&ck, dir, &err) == DGEMMA_OK, "%s", err.msg);
    tiny_open(&t, &(tiny_options){0}); /* for its config */
    ck_assert_int_eq(dg_model_check(&t.cfg, ck, &err), DGEMMA_E_FORMAT);
    snprintf(says, sizeof says, "tensor %s is missing", scalar[_i]);
    ck_assert_msg(strstr(err.msg, says), "%s", err.msg);
    tiny_close(&t);
    dg_checkpoint_close(ck);
}
END_TEST

/* What the decoder has under one name is not looked for under the other in the encoder. */
START_TEST(the_decoders_own_go_before)
{
    static folder f;
    static const float some[2];
    char dir[DG_TEST_PATH];
    begin(&f, false);
    f.tensor[f.n++] = (dg_tensor){.name = ENCODER "0.experts.gate_proj",
                                  .type = DG_F32,
                                  .n_dim = 3,
                                  .shape = {1, 1, 2},
                                  .data = some,
                                  .bytes = sizeof some};
    end(&f, dir, NULL);
    check_same(dir);
}
END_TEST

Suite *weights_suite(void)
{
    Suite *s = suite_create("weights");
    TCase *c = tcase_create("copies");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, layers_of_the_encoder_serve);
    tcase_add_loop_test(c, scalars_do_not, 0, 2);
    tcase_add_test(c, the_decoders_own_go_before);
    suite_add_tcase(s, c);
    return s;
}
