/* Broken models and broken luck: whatever a file says and whenever memory ends, there is one clear
 * line and nothing is lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/file.h"
#include "base/rng.h"
#include "dgemma.h"
#include "dgemma_tools.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/cpu_engine.h"
#include "support/temp_dir.h"

static const char good_model[] = "tests/fixtures/golden/generate_early/model";
static const char good_gguf[] = "tests/fixtures/gguf/tiny.gguf";

static void read_file(dg_buf *out, const char *dir, const char *name)
{
    char path[DG_TEST_PATH];
    dg_buf_init(out, 64 << 20);
    ck_assert_int_eq(dg_file_read(out, dg_test_path(path, dir, name), NULL), DGEMMA_OK);
}

/* A copy of the good model in a new folder. */
static void copy_model(char dir[DG_TEST_PATH])
{
    ck_assert(dg_test_temp_make(dir));
    const char *names[] = {"config.json", "generation_config.json", "model.safetensors"};
    for (size_t i = 0; i < 3; i++) {
        dg_buf file;
        read_file(&file, good_model, names[i]);
        ck_assert(dg_test_write_file(dir, names[i], file.data, file.len));
        dg_buf_clear(&file);
    }
}

/* Opens a model and, if that works, runs a short request: nothing may crash, and what fails says
 * why in one line. */
static dgemma_status try_model(const char *path, dgemma_error *err)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    static const int32_t prompt[] = {3, 4, 5};
    memset(err, 0, sizeof *err);
    opt.model_path = path;
    opt.n_threads = 1;
    dgemma_status st = dgemma_engine_open(&e, &opt, err);
    if (!st) {
        dgemma_request_options req = dgemma_request_defaults(e);
        req.tokens = prompt;
        req.n_tokens = 3;
        req.max_tokens = 4;
        req.max_denoise_steps = 2;
        st = dgemma_generate(e, &req, NULL, NULL, NULL, err);
        dgemma_engine_close(e);
    }
    if (st && (strlen(err->msg) < 8 || strchr(err->msg, '\n')))
        ck_abort_msg("status %d, message \"%s\"", (int)st, err->msg);
    return st;
}

START_TEST(good_models_are_good)
{
    dgemma_error err;
    ck_assert_msg(try_model(good_model, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_msg(try_model(good_gguf, &err) == DGEMMA_OK, "%s", err.msg);
}
END_TEST

/* ---- files that end too early, or have a bit wrong ---- */

static void try_truncated(const char *dir, const char *name, const char *path)
{
    dgemma_error err;
    dg_buf file;
    read_file(&file, dir, name);
    for (size_t i = 0; i < 60; i++) {
        size_t n = i < 20 ? i : (file.len - 64) * (i - 20) / 39;
        ck_assert(dg_test_write_file(dir, name, file.data, n));
        if (try_model(path, &err) == DGEMMA_OK)
            ck_abort_msg("%s cut to %zu of %zu bytes is taken", name, n, file.len);
    }
    ck_assert(dg_test_write_file(dir, name, file.data, file.len));
    dg_buf_clear(&file);
}

START_TEST(truncated_files_are_refused)
{
    char dir[DG_TEST_PATH], path[DG_TEST_PATH];
    copy_model(dir);
    try_truncated(dir, "model.safetensors", dir);
    try_truncated(dir, "config.json", dir);
    dg_test_temp_remove(dir);

    ck_assert(dg_test_temp_make(dir));
    dg_buf file;
    dg_buf_init(&file, 64 << 20);
    ck_assert_int_eq(dg_file_read(&file, good_gguf, NULL), DGEMMA_OK);
    ck_assert(dg_test_write_file(dir, "m.gguf", file.data, file.len));
    dg_buf_clear(&file);
    try_truncated(dir, "m.gguf", dg_test_path(path, dir, "m.gguf"));
    dg_test_temp_remove(dir);
}
END_TEST

/* A file that is cut while the model runs from it: what it would compute from then on is wrong, and
 * whoever runs is told so. A byte is enough, and nothing signals that. */
START_TEST(weights_that_are_lost_are_noticed)
{
    char dir[DG_TEST_PATH], path[DG_TEST_PATH];
    dgemma_engine *e = NULL;
    dgemma_engine_options eo = dg_test_engine_defaults();
    dgemma_error err = {0};
    copy_model(dir);
    eo.model_path = dir;
    ck_assert_msg(dgemma_engine_open(&e, &eo, &err) == DGEMMA_OK, "%s", err.msg);
    static const int32_t prompt[] = {2, 3};
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.tokens = prompt;
    opt.n_tokens = 2;
    opt.max_tokens = 4;
    ck_assert_int_eq(dgemma_generate(e, &opt, NULL, NULL, NULL, &err), DGEMMA_OK);
    struct stat info;
    dg_test_path(path, dir, "model.safetensors");
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(truncate(path, info.st_size - 1), 0);
    ck_assert_int_eq(dgemma_generate(e, &opt, NULL, NULL, NULL, &err), DGEMMA_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "model.safetensors was cut short"));
    dgemma_engine_close(e);
    dg_test_temp_remove(dir);
}
END_TEST

/* Flips bits in the first `range` bytes, where the structure is, and some anywhere. */
static void try_flipped(const char *dir, const char *name, const char *path, size_t range,
                        int rounds)
{
    dgemma_error err;
    dg_buf file;
    dg_rng_key key = {.seed = 17};
    read_file(&file, dir, name);
    for (int i = 0; i < rounds; i++) {
        size_t among = i % 4 ? range : file.len;
        size_t at =
            dg_rng_below(&key, (uint32_t)(2 * i), (uint32_t)(among < file.len ? among : file.len));
        char bit = (char)(1u << (dg_rng_bits(&key, (uint32_t)(2 * i + 1)) % 8)),
             old = file.data[at];
        file.data[at] = (char)(old ^ bit);
        ck_assert(dg_test_write_file(dir, name, file.data, file.len));
        try_model(path, &err); /* taken or refused: but no crash, no hang, one line */
        file.data[at] = old;
    }
    dg_buf_clear(&file);
}

START_TEST(flipped_bits_do_no_harm)
{
    char dir[DG_TEST_PATH], path[DG_TEST_PATH];
    copy_model(dir);
    try_flipped(dir, "config.json", dir, 1 << 20, 150);
    dg_test_temp_remove(dir);
    copy_model(dir);
    try_flipped(dir, "model.safetensors", dir, 30000, 150);
    dg_test_temp_remove(dir);

    ck_assert(dg_test_temp_make(dir));
    dg_buf file;
    dg_buf_init(&file, 64 << 20);
    ck_assert_int_eq(dg_file_read(&file, good_gguf, NULL), DGEMMA_OK);
    ck_assert(dg_test_write_file(dir, "m.gguf", file.data, file.len));
    dg_buf_clear(&file);
    try_flipped(dir, "m.gguf", dg_test_path(path, dir, "m.gguf"), 30000, 200);
    dg_test_temp_remove(dir);
}
END_TEST

/* ---- a config that tells another story than the tensors ---- */

/* Replaces the first `from` in config.json by `to`. */
static void edit_config(const char *dir, const char *from, const char *to)
{
    dg_buf doc, edited;
    read_file(&doc, good_model, "config.json");
    char *at = strstr(doc.data, from);
    ck_assert_msg(at != NULL, "%s", from);
    dg_buf_init(&edited, 1 << 20);
    ck_assert(dg_buf_append(&edited, doc.data, (size_t)(at - doc.data)) &&
              dg_buf_puts(&edited, to) && dg_buf_puts(&edited, at + strlen(from)));
    ck_assert(dg_test_write_file(dir, "config.json", edited.data, edited.len));
    dg_buf_clear(&doc);
    dg_buf_clear(&edited);
}

START_TEST(config_and_tensors_must_agree)
{
    static const struct {
        const char *from, *to, *said;
    } cases[] = {
        {"\"hidden_size\": 96", "\"hidden_size\": 104", "has shape"},
        {"\"vocab_size\": 384", "\"vocab_size\": 390", "embed_tokens"},
        {"\"num_experts\": 8", "\"num_experts\": 9", "has shape"},
        {"\"moe_intermediate_size\": 48", "\"moe_intermediate_size\": 50", "experts"},
        {"\"intermediate_size\": 160", "\"intermediate_size\": 128", "has shape"},
        {"\"head_dim\": 16", "\"head_dim\": 32", "self_attn"},
        {"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4", "self_attn"},
        {"\"model_type\": \"diffusion_gemma\"", "\"model_type\": \"llama\"", "model_type"},
        {"\"canvas_length\": 16", "\"canvas_length\": 99999999", "canvas_length"},
        {"\"num_attention_heads\": 4", "\"num_attention_heads\": 3", "attention heads"},
    };
    char dir[DG_TEST_PATH];
    copy_model(dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dgemma_error err;
        edit_config(dir, cases[i].from, cases[i].to);
        dgemma_status st = try_model(dir, &err);
        if (!st || !strstr(err.msg, cases[i].said))
            ck_abort_msg("%s: status %d, \"%s\"", cases[i].to, (int)st, err.msg);
    }
    dg_test_temp_remove(dir);
}
END_TEST

/* ---- folders that lead nowhere ---- */

static void write_text(const char *dir, const char *name, const char *text)
{
    ck_assert(dg_test_write_file(dir, name, text, strlen(text)));
}

START_TEST(shards_that_lead_nowhere)
{
    char dir[DG_TEST_PATH], path[DG_TEST_PATH];
    dgemma_error err;
    copy_model(dir);
    unlink(dg_test_path(path, dir, "model.safetensors"));
    ck_assert_int_ne(try_model(dir, &err), DGEMMA_OK);
    write_text(dir, "model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}");
    ck_assert_int_ne(try_model(dir, &err), DGEMMA_OK);
    ck_assert_ptr_nonnull(strstr(err.msg, "model-00001-of-00002"));
    /* an index that names itself, one outside the folder, a link that leads to itself */
    write_text(dir, "model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"model.safetensors.index.json\"}}");
    ck_assert_int_ne(try_model(dir, &err), DGEMMA_OK);
    write_text(dir, "model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"../../etc/passwd\"}}");
    ck_assert_int_ne(try_model(dir, &err), DGEMMA_OK);
    unlink(dg_test_path(path, dir, "model.safetensors.index.json"));
    ck_assert_int_eq(symlink("model.safetensors", dg_test_path(path, dir, "model.safetensors")), 0);
    ck_assert_int_ne(try_model(dir, &err), DGEMMA_OK);
    unlink(path);
    /* a folder, and a pipe nobody writes to, in place of the file */
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_ne(try_model(dir, &err), DGEMMA_OK);
    rmdir(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_ne(try_model(dir, &err), DGEMMA_OK);
    dg_test_temp_remove(dir);
}
END_TEST

START_TEST(a_pipe_in_place_of_a_document)
{
    static const char *const names[] = {"config.json", "tokenizer.json", "generation_config.json"};
    char dir[DG_TEST_PATH], path[DG_TEST_PATH];
    dgemma_error err;
    copy_model(dir);
    dg_test_path(path, dir, names[_i]);
    unlink(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(try_model(dir, &err), DGEMMA_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, names[_i]));
    ck_assert_ptr_nonnull(strstr(err.msg, "not a regular file"));
    dg_test_temp_remove(dir);
}
END_TEST

START_TEST(unreadable_paths)
{
    dgemma_error err;
    static const char *const paths[] = {
        "", "/", "/dev/null", "/proc/self/mem", "tests/fixtures", "no/such/place", "Makefile"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (try_model(paths[i], &err) == DGEMMA_OK)
            ck_abort_msg("\"%s\" is taken for a model", paths[i]);
    dgemma_file *f = NULL;
    ck_assert_int_ne(dgemma_file_open(&f, "no/such/place", &err), DGEMMA_OK);
    ck_assert_ptr_null(f);
    dgemma_file_close(NULL);
}
END_TEST

/* ---- numbers that are none ---- */

START_TEST(non_finite_logits_end_the_request)
{
    char dir[DG_TEST_PATH];
    dg_buf file;
    copy_model(dir);
    read_file(&file, dir, "model.safetensors");
    /* the weights lie behind the header; the decoder's first; some of it becomes NaN */
    uint64_t header;
    memcpy(&header, file.data, 8);
    for (size_t i = 8 + header + 100000; i < 8 + header + 200000; i += 2)
        memcpy(file.data + i, "\xC0\x7F", 2);
    ck_assert(dg_test_write_file(dir, "model.safetensors", file.data, file.len));
    dg_buf_clear(&file);

    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    opt.model_path = dir;
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    dgemma_request_options req = dgemma_request_defaults(e);
    static const int32_t prompt[] = {3, 4, 5};
    req.tokens = prompt;
    req.n_tokens = 3;
    for (int i = 0; i < 2; i++) { /* the engine goes on serving */
        dgemma_stats stats;
        ck_assert_int_eq(dgemma_generate(e, &req, NULL, NULL, &stats, &err), DGEMMA_E_INTERNAL);
        ck_assert_int_eq(stats.end, DGEMMA_END_FAILED);
        ck_assert_ptr_nonnull(strstr(err.msg, "block 0, step 0"));
    }
    dgemma_engine_close(e);
    dg_test_temp_remove(dir);
}
END_TEST

/* ---- memory that ends ---- */

/* Everything from opening to closing, with the n-th allocation failing. True: that allocation was
 * reached. */
static bool run_out_at(long n, dgemma_status *st, dgemma_error *err)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_stats stats = {0};
    const char *stop[] = {"zzz"};
    opt.model_path = good_gguf;
    opt.n_threads = 2;
    dg_test_fail_alloc_at(n);
    *st = dgemma_engine_open(&e, &opt, err);
    if (!*st) {
        dgemma_request_options req = dgemma_request_defaults(e);
        req.chat_prompt = "hi";
        req.system = "s";
        req.max_tokens = 20;
        req.max_denoise_steps = 2;
        req.drafts = true;
        req.stop = stop;
        req.n_stop = 1;
        *st = dgemma_generate(e, &req, NULL, NULL, &stats, err);
        dgemma_engine_close(e);
    }
    return dg_test_alloc_done();
}

START_TEST(every_allocation_may_fail)
{
    for (long n = 1;; n++) {
        dgemma_status st;
        dgemma_error err = {0};
        bool reached = run_out_at(n, &st, &err);
        if (!reached) {
            ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
            ck_assert_int_gt(n, 50);
            return;
        }
        if (st != DGEMMA_E_NOMEM && st != DGEMMA_OK) /* a library's cache or a log may do without */
            ck_abort_msg("allocation %ld: status %d, \"%s\"", n, (int)st, err.msg);
    }
}
END_TEST

Suite *hostile_suite(void)
{
    Suite *s = suite_create("hostile");
    TCase *t = tcase_create("hostile");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, good_models_are_good);
    tcase_add_test(t, truncated_files_are_refused);
    TCase *lost = tcase_create("lost");
    tcase_add_test(lost, weights_that_are_lost_are_noticed);
    suite_add_tcase(s, lost);
    tcase_add_test(t, flipped_bits_do_no_harm);
    tcase_add_test(t, config_and_tensors_must_agree);
    tcase_add_test(t, shards_that_lead_nowhere);
    tcase_add_loop_test(t, a_pipe_in_place_of_a_document, 0, 3);
    tcase_add_test(t, unreadable_paths);
    tcase_add_test(t, non_finite_logits_end_the_request);
    tcase_add_test(t, every_allocation_may_fail);
    suite_add_tcase(s, t);
    return s;
}
