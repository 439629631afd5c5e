/* Models as folders: what was written is what is read, the tower and all that is not quantised are
 * as they were, and what cannot be made is refused. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "convert/folder_rows.h"
#include "convert/quantize_rows.h"
#include "dgemma_tools.h"
#include "engine/loader.h"
#include "model/vision.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/parted_folder.h"
#include "support/temp_dir.h"
#include "support/write_tower.h"

static const char wide[] = "tests/fixtures/golden/wide/model";
static const char *const types[] = {"BF16", "fp8", "NVFP4"};
enum { BF16, FP8, NVFP4 };

static dgemma_status quantize(const char *from, const char *path, const char *type,
                              dgemma_quantize_result *r, dgemma_error *err)
{
    dgemma_quantize_options opt = dgemma_quantize_defaults();
    opt.model_path = from;
    opt.path = path;
    opt.type = type;
    opt.n_threads = 3;
    return dgemma_quantize(&opt, r, err);
}

/* All values of a tensor. */
static float *values_of(const dg_loaded *l, const char *name, size_t *n)
{
    const dg_tensor *t = dg_checkpoint_find(l->checkpoint, name);
    dgemma_error err = {0};
    dg_rows_scratch scratch;
    dg_rows_error ignored = {0};
    ck_assert_msg(t != NULL, "%s", name);
    dg_planned to = {.tensor = *t, .from = {t}};
    to.tensor.type = DG_F32;
    *n = dg_tensor_count(t);
    float *out = dg_array(*n, sizeof *out);
    ck_assert(out && dg_rows_scratch_init(&scratch, *n));
    dgemma_status st = dg_rows_make((unsigned char *)out, &to, 0,
                                    (int64_t)(*n / dg_rows_length(&to)), &scratch, &ignored, &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    dg_rows_scratch_clear(&scratch);
    return out;
}

/* Values of matrices of n values, as they should be read back. */
static void expect(float *x, int form, size_t n_mat, size_t n, size_t n_in)
{
    uint8_t *numbers = dg_malloc(n), *scales = dg_malloc(n);
    float *back = dg_array(n, sizeof *back), scale;
    for (size_t m = 0; m < n_mat; m++, x += n) {
        float most = 0;
        for (size_t i = 0; i < n; i++)
            most = fmaxf(most, fabsf(x[i]));
        for (size_t r = 0; r < n; r += n_in) {
            if (form == FP8)
                dg_fp8_row(numbers, &scale, back + r, x + r, n_in);
            else
                dg_nvfp4_row(numbers, scales, back + r, x + r, n_in, dg_nvfp4_divisor(most));
        }
        memcpy(x, back, n * sizeof *x);
    }
    dg_free(numbers);
    dg_free(scales);
    dg_free(back);
}

static void check_matrix(const dg_loaded *a, const dg_loaded *b, const char *name, const char *in_b,
                         int form)
{
    size_t n, n_read;
    const dg_tensor *t = dg_checkpoint_find(a->checkpoint, name);
    float *want = values_of(a, name, &n), *got = values_of(b, in_b, &n_read);
    const size_t n_mat = t->n_dim == 3 ? (size_t)t->shape[0] : 1;
    if (form)
        expect(want, form, n_mat, n / n_mat, (size_t)t->shape[t->n_dim - 1]);
    ck_assert_uint_eq(n, n_read);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(fabsf(got[i] - want[i]) <= 1e-6f * fabsf(want[i]), "%s[%zu]: %g, wanted %g",
                      name, i, (double)got[i], (double)want[i]);
    dg_free(want);
    dg_free(got);
}

START_TEST(what_is_written_is_read)
{
    static const char *const names[] = {"BF16", "FP8", "NVFP4"};
    static const double most[] = {0.01, 0.03, 0.1};
    char path[DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_quantize_result r;
    dg_loaded a, b;
    dgemma_status st = quantize(wide, dg_test_path(path, dg_test_root, "out"), types[_i], &r, &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    ck_assert_str_eq(r.type, names[_i]);
    ck_assert(_i != BF16 || r.tensor_bytes == 2 * r.n_weights); /* the tower is in both */
    ck_assert_msg(r.error <= most[_i] && (_i == BF16 || r.error > most[_i] / 4), "%g", r.error);
    ck_assert_int_eq(dg_load(&a, wide, &err), DGEMMA_OK);
    ck_assert_msg(dg_load(&b, path, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_msg(dg_loaded_check(&b, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_mem_eq(&a.cfg.layer, &b.cfg.layer, sizeof a.cfg.layer);
    ck_assert_mem_eq(&a.generation, &b.generation, sizeof a.generation);
    const char *q = "model.decoder.layers.1.self_attn.q_proj.weight",
               *up = "model.decoder.layers.2.mlp.up_proj.weight",
               *down = "model.decoder.layers.0.experts.down_proj";
    check_matrix(&a, &b, q, q, _i == FP8 ? FP8 : BF16);
    check_matrix(&a, &b, up, up, _i);
    check_matrix(&a, &b, down, down, _i);
    size_t n_tower = 0;
    for (size_t i = 0; i < dg_checkpoint_count(a.checkpoint); i++) {
        const char *name = dg_checkpoint_at(a.checkpoint, i)->name;
        if (!dg_vision_owns(name))
            continue;
        check_matrix(&a, &b, name, name, BF16);
        n_tower++;
    }
    ck_assert_uint_gt(n_tower, 50);
    dg_loaded_clear(&a);
    dg_loaded_clear(&b);
}
END_TEST

/* Pocket's experts have rows of 96 values, which fill no blocks of 64. */
START_TEST(odd_rows_are_read)
{
    static const char pocket[] = "models/pocket/pocket.gguf",
                      down[] = "model.decoder.layers.3.experts.down_proj",
                      up[] = "model.decoder.layers.3.mlp.up_proj.weight";
    char path[2][DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_quantize_result r;
    dg_loaded a, b, c;
    dg_test_path(path[0], dg_test_root, "out");
    dg_test_path(path[1], dg_test_root, "bf16");
    ck_assert_msg(!quantize(pocket, path[0], types[_i], &r, &err), "%s", err.msg);
    ck_assert_msg(!quantize(path[0], path[1], "BF16", &r, &err), "%s", err.msg);
    ck_assert_int_eq(dg_load(&a, pocket, &err), DGEMMA_OK);
    ck_assert_msg(!dg_load(&b, path[0], &err), "%s", err.msg);
    ck_assert_msg(!dg_load(&c, path[1], &err), "%s", err.msg);
    ck_assert_msg(!dg_loaded_check(&b, &err), "%s", err.msg);
    check_matrix(&a, &b, down, down, _i);
    check_matrix(&a, &b, up, up, _i);
    ck_assert_int_eq(dg_checkpoint_find(b.checkpoint, down)->type, DG_F32);
    ck_assert_int_eq(dg_checkpoint_find(c.checkpoint, down)->type, DG_BF16);
    dg_loaded_clear(&a);
    dg_loaded_clear(&b);
    dg_loaded_clear(&c);
}
END_TEST

/* From a quantised folder to plain values: config.json no longer says that it is one. */
START_TEST(and_back)
{
    char path[2][DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_quantize_result r;
    dg_loaded a, b;
    dg_test_path(path[0], dg_test_root, "fp8");
    dg_test_path(path[1], dg_test_root, "bf16/");
    ck_assert_int_eq(quantize(wide, path[0], "FP8", &r, &err), DGEMMA_OK);
    ck_assert_msg(quantize(path[0], path[1], "BF16", &r, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(dg_load(&a, wide, &err), DGEMMA_OK);
    ck_assert_msg(dg_load(&b, path[1], &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(
        dg_checkpoint_find(b.checkpoint, "model.decoder.layers.0.experts.gate_up_proj")->type,
        DG_BF16);
    const char *name = "model.decoder.layers.0.experts.gate_up_proj";
    size_t n, m;
    float *x = values_of(&a, name, &n), *y = values_of(&b, name, &m);
    double off = 0, size = 0;
    ck_assert_uint_eq(n, m);
    for (size_t i = 0; i < n; i++) {
        off += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)x[i] * (double)x[i];
    }
    ck_assert(sqrt(off / size) < 0.03);
    dg_free(x);
    dg_free(y);
    dg_loaded_clear(&a);
    dg_loaded_clear(&b);
}
END_TEST

/* A GGUF file opened to a folder: what is read of both is the same, but that values are BF16. */
START_TEST(opens_a_file)
{
    static const char pocket[] = "models/pocket/pocket.gguf", text[] = "Hi  there\n<turn|>\xF0";
    char path[DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_quantize_result r;
    dg_loaded a, b;
    dg_tokens x, y;
    dg_test_path(path, dg_test_root, "out");
    ck_assert_msg(!quantize(pocket, path, "BF16", &r, &err), "%s", err.msg);
    ck_assert_msg(!dg_load(&a, pocket, &err) && !dg_load_tower(&a, NULL, &err), "%s", err.msg);
    ck_assert_msg(!dg_load(&b, path, &err), "%s", err.msg);
    ck_assert_msg(!dg_loaded_check(&b, &err), "%s", err.msg);
    ck_assert_mem_eq(&a.cfg.vision, &b.cfg.vision, sizeof a.cfg.vision);
    ck_assert_mem_eq(a.cfg.layer, b.cfg.layer, sizeof a.cfg.layer);
    ck_assert_mem_eq(a.cfg.stop_token, b.cfg.stop_token, sizeof a.cfg.stop_token);
    ck_assert_mem_eq(&a.generation, &b.generation, sizeof a.generation);
    ck_assert(a.cfg.n_vocab == b.cfg.n_vocab && a.cfg.n_context == b.cfg.n_context &&
              a.cfg.canvas_length == b.cfg.canvas_length && a.cfg.n_expert == b.cfg.n_expert &&
              a.cfg.n_expert_used == b.cfg.n_expert_used && a.cfg.n_ff == b.cfg.n_ff &&
              a.cfg.n_ff_expert == b.cfg.n_ff_expert && a.cfg.n_head == b.cfg.n_head);
    ck_assert(a.cfg.rms_eps == b.cfg.rms_eps && a.cfg.logit_softcap == b.cfg.logit_softcap &&
              a.cfg.embed_scale == b.cfg.embed_scale && a.cfg.image_token == b.cfg.image_token &&
              a.cfg.bidirectional_images == b.cfg.bidirectional_images);
    dg_tokens_init(&x, 64);
    dg_tokens_init(&y, 64);
    ck_assert(!dg_tokenizer_encode(a.tokenizer, text, sizeof text - 1, DG_ENCODE_ADDED, &x, &err));
    ck_assert(!dg_tokenizer_encode(b.tokenizer, text, sizeof text - 1, DG_ENCODE_ADDED, &y, &err));
    ck_assert_uint_eq(x.n, y.n);
    ck_assert_mem_eq(x.ids, y.ids, x.n * sizeof *x.ids);
    ck_assert_int_eq(dg_tokenizer_count(a.tokenizer), dg_tokenizer_count(b.tokenizer));
    for (int32_t i = 0; i < dg_tokenizer_count(a.tokenizer); i++)
        ck_assert_int_eq(dg_tokenizer_is_special(a.tokenizer, i),
                         dg_tokenizer_is_special(b.tokenizer, i));
    dg_tokens_clear(&x);
    dg_tokens_clear(&y);
    dg_loaded_clear(&a);
    dg_loaded_clear(&b);
}
END_TEST

/* A tower that is beside the file and is none for it is told of, not left out. */
START_TEST(refuses_a_damaged_tower)
{
    static const char pocket[] = "models/pocket/pocket.gguf", damaged[] = "GGUF is not all";
    char file[DG_TEST_PATH], path[DG_TEST_PATH], tower[DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_quantize_result r;
    dg_loaded a;
    dg_test_path(file, dg_test_root, "m.gguf");
    dg_test_path(path, dg_test_root, "out");
    dg_test_path(tower, dg_test_root, "mmproj-m.gguf");
    ck_assert_msg(!quantize(pocket, file, "Q8_0", &r, &err), "%s", err.msg);
    ck_assert(dg_test_write_file(dg_test_root, "mmproj-m.gguf", damaged, sizeof damaged));
    ck_assert_int_eq(quantize(file, path, "BF16", &r, &err), DGEMMA_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "mmproj-m.gguf"));
    ck_assert_msg(!dg_load(&a, pocket, &err) && !dg_load_tower(&a, NULL, &err), "%s", err.msg);
    dg_test_tower how = {.cfg = a.cfg.vision, .n_text = a.cfg.n_embd, .type = DG_BF16};
    how.omit = "v.blk.1.attn_q.weight";
    dg_test_write_mmproj(tower, &how);
    ck_assert_int_eq(quantize(file, path, "BF16", &r, &err), DGEMMA_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "q_proj"));
    ck_assert(!dg_file_is_dir(path));
    how.omit = NULL;
    dg_test_write_mmproj(tower, &how);
    ck_assert_msg(!quantize(file, path, "BF16", &r, &err), "%s", err.msg);
    dg_loaded_clear(&a);
}
END_TEST

/* The wide model with a tokenizer, which its fixture has none of, as a folder, and as a file with
 * the tower beside it. */
static void make_wide(char dir[DG_TEST_PATH], char file[DG_TEST_PATH])
{
    static const char *const names[] = {"config.json", "generation_config.json",
                                        "model.safetensors", "tokenizer.json"};
    char path[DG_TEST_PATH], tower[DG_TEST_PATH];
    dgemma_error err = {0};
    dg_test_path(dir, dg_test_root, "wide");
    ck_assert_int_eq(mkdir(dir, 0777), 0);
    for (size_t i = 0; i < DG_COUNT(names); i++) {
        dg_buf text;
        const bool own = dg_file_exists(dg_test_path(path, wide, names[i]));
        dg_buf_init(&text, 64 << 20);
        ck_assert(!dg_file_read(&text, own ? path : "tests/fixtures/tiny_tokenizer.json", &err));
        ck_assert(dg_test_write_file(dir, names[i], text.data, text.len));
        dg_buf_clear(&text);
    }
    dgemma_quantize_options opt = dgemma_quantize_defaults();
    opt.model_path = dir;
    opt.path = dg_test_path(file, dg_test_root, "wide.gguf");
    opt.mmproj_path = dg_test_path(tower, dg_test_root, "mmproj-wide.gguf");
    opt.type = "BF16";
    ck_assert_msg(!dgemma_quantize(&opt, NULL, &err), "%s", err.msg);
}

/* By way of a file or of a folder in BF16, quantised values are the same; what a file has in F32
 * is as it was at first. */
START_TEST(a_file_is_quantised_as_a_folder)
{
    char dir[DG_TEST_PATH], file[DG_TEST_PATH], plain[DG_TEST_PATH], path[2][DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_quantize_result r;
    dg_loaded source, by_folder, by_file;
    size_t n_quantised = 0, n_kept = 0;
    make_wide(dir, file);
    dg_test_path(plain, dg_test_root, "plain");
    dg_test_path(path[0], dg_test_root, "by_folder");
    dg_test_path(path[1], dg_test_root, "by_file");
    ck_assert_msg(!quantize(dir, plain, "BF16", &r, &err), "%s", err.msg);
    ck_assert_msg(!quantize(plain, path[0], types[_i], &r, &err), "%s", err.msg);
    ck_assert_msg(!quantize(file, path[1], types[_i], &r, &err), "%s", err.msg);
    ck_assert_msg(!dg_load(&source, dir, &err), "%s", err.msg);
    ck_assert_msg(!dg_load(&by_folder, path[0], &err), "%s", err.msg);
    ck_assert_msg(!dg_load(&by_file, path[1], &err), "%s", err.msg);
    ck_assert_msg(!dg_loaded_check(&by_file, &err), "%s", err.msg);
    ck_assert_uint_eq(dg_checkpoint_count(by_file.checkpoint),
                      dg_checkpoint_count(by_folder.checkpoint));
    for (size_t i = 0; i < dg_checkpoint_count(by_file.checkpoint); i++) {
        const dg_tensor *t = dg_checkpoint_at(by_file.checkpoint, i);
        check_matrix(t->type == DG_F32 ? &source : &by_folder, &by_file, t->name, t->name, BF16);
        n_kept += t->type == DG_F32;
        n_quantised += t->type >= DG_DTYPE_FLOAT;
    }
    ck_assert_uint_gt(n_quantised, 10);
    ck_assert_uint_gt(n_kept, 10);
    dg_loaded_clear(&source);
    dg_loaded_clear(&by_folder);
    dg_loaded_clear(&by_file);
}
END_TEST

/* Groups of sixteen have to be whole: experts of a model are cut to rows of 40. */
START_TEST(refuses_half_groups)
{
    enum { ROW = 40 };
    static const char source[] = "tests/fixtures/golden/text/model";
    static folder cut;
    char path[DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_quantize_result r;
    dg_loaded a;
    dg_buf config;
    dg_buf_init(&config, 1 << 20);
    ck_assert_int_eq(dg_load(&a, source, &err), DGEMMA_OK);
    ck_assert(!dg_file_read(&config, dg_test_path(path, source, "config.json"), &err));
    char *size = strstr(config.data, "\"moe_intermediate_size\": 48");
    ck_assert(size != NULL);
    memcpy(strstr(size, "48"), "40", 2);
    for (size_t i = 0; i < dg_checkpoint_count(a.checkpoint); i++) {
        dg_tensor t = *dg_checkpoint_at(a.checkpoint, i);
        if (strstr(t.name, ".experts.gate_up_proj"))
            t.shape[1] = 2 * ROW;
        else if (strstr(t.name, ".experts.down_proj"))
            t.shape[2] = ROW;
        t.bytes = dg_dtype_bytes(t.type, dg_tensor_count(&t));
        folder_add(&cut, t.name, "", t, NULL);
    }
    folder_write(&cut, dg_test_path(path, dg_test_root, "cut"), &config, "");
    ck_assert_int_eq(quantize(path, dg_test_in_root("out"), "NVFP4", &r, &err),
                     DGEMMA_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.msg, "rows of 40 values, and NVFP4 has a scale for each 16"), "%s",
                  err.msg);
    ck_assert_msg(!quantize(path, dg_test_in_root("out"), "FP8", &r, &err), "%s", err.msg);
    dg_buf_clear(&config);
    dg_loaded_clear(&a);
}
END_TEST

static bool give_up(void *user, double fraction)
{
    (void)user;
    return fraction < 0.3;
}

START_TEST(refused)
{
    char path[DG_TEST_PATH], partial[DG_TEST_PATH], file[DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_quantize_result r;
    dg_test_path(path, dg_test_root, "out");
    dg_test_path(partial, dg_test_root, "out.partial");
    ck_assert_int_eq(quantize(wide, dg_test_in_root("x.gguf"), "NVFP4", &r, &err),
                     DGEMMA_E_UNSUPPORTED);
    dgemma_quantize_options opt = dgemma_quantize_defaults();
    opt.model_path = wide;
    opt.path = path;
    opt.type = "FP8";
    opt.on_progress = give_up;
    ck_assert_int_eq(dgemma_quantize(&opt, &r, &err), DGEMMA_E_CANCELLED);
    ck_assert(!dg_file_exists(path) && !dg_file_is_dir(partial));
    opt.on_progress = NULL;
    ck_assert_int_eq(mkdir(partial, 0777), 0); /* of one that was killed */
    ck_assert(dg_test_write_file(partial, "config.json", "{", 1));
    ck_assert(dg_test_write_file(partial, "model.safetensors.partial", "x", 1));
    dg_test_path(file, partial, "model.safetensors.partial");
    int fd = open(file, O_WRONLY);
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &all), 0); /* no, it is at work */
    ck_assert_int_eq(dgemma_quantize(&opt, &r, &err), DGEMMA_E_ARG);
    ck_assert(dg_file_exists(file) && !dg_file_exists(path));
    close(fd);
    ck_assert(dg_test_write_file(partial, "model.safetensors", "x", 1)); /* or somebody's model */
    ck_assert_int_eq(dgemma_quantize(&opt, &r, &err), DGEMMA_E_ARG);
    ck_assert(dg_file_exists(file) && !dg_file_exists(path));
    remove(dg_test_path(file, partial, "model.safetensors"));
    ck_assert_msg(dgemma_quantize(&opt, &r, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert(!dg_file_is_dir(partial));
    opt.replace = true;
    ck_assert_int_eq(dgemma_quantize(&opt, &r, &err), DGEMMA_E_ARG);
    opt.importance_path = "tests/fuzz/corpus/importance/short.dat";
    ck_assert_int_eq(dgemma_quantize(&opt, &r, &err), DGEMMA_E_ARG);
}
END_TEST

/* Wherever memory is out there is no folder under the name, and nothing of it beside; from a folder
 * and from a file. */
START_TEST(survives_no_memory)
{
    static const char *const names[] = {"config.json", "generation_config.json", "tokenizer.json",
                                        "tokenizer_config.json", "model.safetensors"};
    char dir[DG_TEST_PATH], source[DG_TEST_PATH];
    char path[DG_TEST_PATH], partial[DG_TEST_PATH], file[DG_TEST_PATH];
    int n_failed = 0;
    make_wide(dir, source);
    dg_test_path(path, dg_test_root, "out");
    dg_test_path(partial, dg_test_root, "out.partial");
    for (long n = 1;; n += 1 + n / 16) {
        dgemma_error err = {0};
        dgemma_quantize_result r;
        dg_test_fail_alloc_at(n);
        dgemma_status st = quantize(_i ? source : wide, path, "NVFP4", &r, &err);
        bool reached = dg_test_alloc_done();
        ck_assert(!dg_file_is_dir(partial));
        ck_assert(dg_file_is_dir(path) == (st == DGEMMA_OK));
        n_failed += st != DGEMMA_OK;
        for (size_t i = 0; st == DGEMMA_OK && i < DG_COUNT(names); i++)
            unlink(dg_test_path(file, path, names[i]));
        if (st == DGEMMA_OK)
            ck_assert_int_eq(rmdir(path), 0);
        if (!reached) {
            ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
            break;
        }
    }
    ck_assert_int_gt(n_failed, 20);
}
END_TEST

Suite *quantize_folder_suite(void)
{
    Suite *s = suite_create("quantize_folder");
    TCase *c = tcase_create("folders");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_loop_test(c, what_is_written_is_read, 0, 3);
    tcase_add_loop_test(c, odd_rows_are_read, FP8, NVFP4 + 1);
    tcase_add_test(c, and_back);
    tcase_add_loop_test(c, survives_no_memory, 0, 2);
    tcase_add_test(c, opens_a_file);
    tcase_add_loop_test(c, a_file_is_quantised_as_a_folder, FP8, NVFP4 + 1);
    tcase_add_test(c, refuses_a_damaged_tower);
    tcase_add_test(c, refuses_half_groups);
    tcase_add_test(c, refused);
    suite_add_tcase(s, c);
    return s;
}
