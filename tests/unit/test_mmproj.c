/* A vision tower written as an mmproj file: the same features, from a folder's tensors and from
 * another such file. */
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "convert/mmproj.h"
#include "cpu/cpu_backend.h"
#include "model/config_gguf.h"
#include "model/vision.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/temp_dir.h"
#include "support/write_tower.h"

enum { N_TEXT = 40, ROWS = 9, COLS = 15, SOFT = ROWS / 3 * COLS / 3 };

static dg_test_tower tower(int number)
{
    static const dg_dtype types[] = {DG_F32, DG_BF16, DG_F16};
    return (dg_test_tower){.n_text = N_TEXT,
                           .type = types[number % 3],
                           .cfg = {.present = true,
                                   .n_embd = 64,
                                   .n_ff = 96,
                                   .n_layer = 2,
                                   .n_head = 4,
                                   .head_dim = 16,
                                   .patch = 4,
                                   .pool = 3,
                                   .n_position = 300,
                                   .standardize = number < 4,
                                   .clipped = number % 2,
                                   .rms_eps = 1e-6f,
                                   .rope_theta = 100,
                                   .max_soft = 280}};
}

static void open_loaded(dg_loaded *l, const char *path, const dg_vision_config *cfg)
{
    dgemma_error err = {0};
    *l = (dg_loaded){.cfg = {.n_embd = N_TEXT, .vision = *cfg}};
    ck_assert_msg(dg_checkpoint_open(&l->checkpoint, path, &err) == DGEMMA_OK, "%s", err.msg);
    if (dg_checkpoint_gguf(l->checkpoint))
        ck_assert_msg(dg_config_from_mmproj(&l->cfg, l->checkpoint, &err) == DGEMMA_OK, "%s",
                      err.msg);
}

static void encode(float *out, const dg_loaded *l)
{
    static float pixels[ROWS * COLS * 48];
    dgemma_error err = {0};
    dg_backend *be;
    dg_vision *v;
    for (uint32_t i = 0; i < ROWS * COLS * 48; i++)
        pixels[i] = (float)dg_rng_uniform(&(dg_rng_key){.seed = 1}, i);
    ck_assert_int_eq(dg_cpu_open(&be, &(dg_cpu_options){2, 0, true}, &err), DGEMMA_OK);
    ck_assert_msg(dg_vision_load(&v, &l->cfg, l->checkpoint, be, &err) == DGEMMA_OK, "%s", err.msg);
    dgemma_status st = dg_vision_encode(v, &(dg_vision_input){ROWS, COLS, pixels}, 1, out, &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    dg_vision_free(v);
    be->close(be);
}

START_TEST(the_same_features)
{
    static float want[SOFT * N_TEXT], got[SOFT * N_TEXT];
    char path[3][DG_TEST_PATH];
    dgemma_error err = {0};
    dg_test_tower how = tower(_i);
    dg_loaded l;
    dg_test_write_tower(dg_test_path(path[0], dg_test_root, "model.safetensors"), &how);
    open_loaded(&l, path[0], &how.cfg);
    encode(want, &l);
    dg_loaded_clear(&l);
    for (int k = 0; k < 2; k++) {
        dg_test_path(path[k + 1], dg_test_root, k ? "mmproj-2.gguf" : "mmproj-1.gguf");
        open_loaded(&l, path[k], &how.cfg);
        ck_assert_msg(dg_mmproj_write(&l, path[k + 1], false, false, &err) == DGEMMA_OK, "%s",
                      err.msg);
        dg_loaded_clear(&l);
        open_loaded(&l, path[k + 1], &how.cfg);
        ck_assert_int_eq(l.cfg.vision.max_soft, how.cfg.max_soft);
        encode(got, &l);
        ck_assert_mem_eq(got, want, sizeof got);
        dg_loaded_clear(&l);
    }
}
END_TEST

START_TEST(refused)
{
    char path[DG_TEST_PATH], other[DG_TEST_PATH];
    dgemma_error err = {0};
    dg_test_tower how = tower(0);
    dg_loaded l;
    dg_test_write_tower(dg_test_path(path, dg_test_root, "model.safetensors"), &how);
    dg_test_path(other, dg_test_root, "mmproj.gguf");
    open_loaded(&l, path, &how.cfg);
    ck_assert_int_eq(dg_mmproj_write(&l, path, true, false, &err), DGEMMA_E_ARG);
    ck_assert_int_eq(dg_mmproj_write(&l, other, false, false, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_mmproj_write(&l, other, false, true, &err), DGEMMA_E_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "is there already"));
    l.cfg.vision.patch = 5;
    ck_assert_int_eq(dg_mmproj_write(&l, other, true, true, &err), DGEMMA_E_FORMAT);
    l.cfg.vision.rope_theta = 7;
    ck_assert_int_eq(dg_mmproj_write(&l, other, true, true, &err), DGEMMA_E_UNSUPPORTED);
    l.cfg.vision.present = false;
    ck_assert_int_eq(dg_mmproj_write(&l, other, true, true, &err), DGEMMA_E_UNSUPPORTED);
    dg_loaded_clear(&l);
}
END_TEST

START_TEST(survives_no_memory)
{
    char path[DG_TEST_PATH], other[DG_TEST_PATH];
    dg_test_tower how = tower(1);
    dg_loaded l;
    dg_test_write_tower(dg_test_path(path, dg_test_root, "model.safetensors"), &how);
    dg_test_path(other, dg_test_root, "mmproj.gguf");
    open_loaded(&l, path, &how.cfg);
    for (long n = 1;; n++) {
        dgemma_error err = {0};
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_mmproj_write(&l, other, true, false, &err);
        bool reached = dg_test_alloc_done();
        ck_assert(st == DGEMMA_OK || st == DGEMMA_E_NOMEM);
        if (!reached) {
            ck_assert_int_eq(st, DGEMMA_OK);
            break;
        }
    }
    dg_loaded_clear(&l);
}
END_TEST

Suite *mmproj_suite(void)
{
    Suite *s = suite_create("mmproj");
    TCase *c = tcase_create("towers");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_loop_test(c, the_same_features, 0, 6);
    tcase_add_test(c, refused);
    tcase_add_test(c, survives_no_memory);
    suite_add_tcase(s, c);
    return s;
}
