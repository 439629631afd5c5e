/* Models in other types, as files: what is in them, what they compute, and what is refused. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "convert/quantize_plan.h"
#include "dgemma_tools.h"
#include "engine/loader.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "support/write_gguf_model.h"
#include "support/write_safetensors.h"

static const char folder[] = "tests/fixtures/golden/sampler_finishes/model";
static const char *const names[] = {"BF16",   "F16",  "Q8_0", "Q6_K",   "Q5_K_M",    "Q4_K_M",
                                    "Q4_K_D", "Q4_0", "Q4_1", "IQ4_NL", "MXFP4_MOE", "IQ4_XS"};

static dgemma_quantize_options options_for(const char *from, const char *path, const char *type)
{
    dgemma_quantize_options opt = dgemma_quantize_defaults();
    opt.model_path = from;
    opt.path = path;
    opt.type = type;
    opt.n_threads = 3;
    return opt;
}

static void quantize(const char *from, const char *path, const char *type,
                     dgemma_quantize_result *result)
{
    dgemma_error err = {0};
    dgemma_quantize_options opt = options_for(from, path, type);
    ck_assert_msg(dgemma_quantize(&opt, result, &err) == DGEMMA_OK, "%s", err.msg);
}

/* ---- what is written ---- */

/* Each preset of a folder is a model with its tokenizer and sizes, and loses what its types do. */
START_TEST(a_folder_becomes_a_file)
{
    static const double most[] = {1e-9, 1e-3, 0.006, 0.006, 0.03, 0.035,
                                  0.03, 0.07, 0.06,  0.065, 0.07, 0.065};
    char path[DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_quantize_result r;
    dg_loaded l, from;
    quantize(folder, dg_test_path(path, dg_test_root, "m.gguf"), names[_i], &r);
    ck_assert_msg(r.error <= most[_i], "%s: %g", names[_i], r.error);
    ck_assert_uint_gt(r.n_left_out, 0); /* the tower */
    ck_assert(!r.requantized);
    ck_assert_msg(dg_load(&l, path, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_msg(dg_loaded_check(&l, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(dg_load(&from, folder, &err), DGEMMA_OK);
    ck_assert_int_eq(l.cfg.n_layer, from.cfg.n_layer);
    ck_assert_int_eq(l.cfg.n_vocab, from.cfg.n_vocab);
    ck_assert_mem_eq(l.cfg.layer, from.cfg.layer, sizeof l.cfg.layer);
    ck_assert_mem_eq(&l.generation, &from.generation, sizeof l.generation);
    ck_assert_int_eq(dg_tokenizer_count(l.tokenizer), dg_tokenizer_count(from.tokenizer));
    const dg_gguf *g = dg_checkpoint_gguf(l.checkpoint);
    ck_assert_uint_eq(dg_gguf_find(g, "tokenizer.ggml.tokens")->n, (size_t)from.cfg.n_vocab);

    static const char said[] = "Hello there, <bos> and \xC3\xA9 100 times";
    dg_tokens a, b;
    dg_tokens_init(&a, 100);
    dg_tokens_init(&b, 100);
    dg_tokenizer_encode(l.tokenizer, said, strlen(said), DG_ENCODE_ADDED, &a, &err);
    dg_tokenizer_encode(from.tokenizer, said, strlen(said), DG_ENCODE_ADDED, &b, &err);
    ck_assert_uint_eq(a.n, b.n);
    ck_assert_mem_eq(a.ids, b.ids, a.n * sizeof *a.ids);
    dg_tokens_clear(&a);
    dg_tokens_clear(&b);
    dg_loaded_clear(&l);
    dg_loaded_clear(&from);
}
END_TEST

/* bfloat16 as bfloat16: the same logits. */
START_TEST(a_file_computes_the_same)
{
    char path[DG_TEST_PATH];
    size_t n, n_file;
    tiny_model t;
    quantize(folder, dg_test_path(path, dg_test_root, "m.gguf"), "BF16", NULL);
    tiny_options of_folder = {.folder = folder, .exact = true},
                 of_file = {.gguf = path, .exact = true};
    tiny_open(&t, &of_folder);
    of_file.embed_scale = t.cfg.embed_scale;
    tiny_close(&t);
    float *want = tiny_logits(&of_folder, &n), *got = tiny_logits(&of_file, &n_file);
    ck_assert_uint_eq(n, n_file);
    ck_assert_mem_eq(want, got, n * sizeof *want);
    dg_free(want);
    dg_free(got);
}
END_TEST

static void copy_document(const char *dir, const char *name)
{
    char path[DG_TEST_PATH];
    dgemma_error err = {0};
    dg_buf doc;
    dg_buf_init(&doc, 1 << 24);
    ck_assert_int_eq(dg_file_read(&doc, dg_test_path(path, folder, name), &err), DGEMMA_OK);
    ck_assert(dg_test_write_file(dir, name, doc.data, doc.len));
    dg_buf_clear(&doc);
}

static void read_whole(dg_buf *out, const char *path)
{
    dgemma_error err = {0};
    dg_buf_init(out, 1 << 26);
    ck_assert_msg(dg_file_read(out, path, &err) == DGEMMA_OK, "%s", err.msg);
}

/* Some tools write the encoder's layers in place of the decoder's, or beside them: it is the same
 * file. */
START_TEST(copies_of_layers)
{
    enum { TENSORS = 1024 };
    static const char decoder[] = "model.decoder.layers.", scalar[] = ".layer_scalar";
    static dg_tensor tensor[TENSORS];
    static char name[TENSORS][160];
    char path[2][DG_TEST_PATH], safetensors[DG_TEST_PATH];
    dgemma_error err = {0};
    dg_checkpoint *ck;
    size_t n = 0;
    ck_assert_int_eq(dg_checkpoint_open(&ck, folder, &err), DGEMMA_OK);
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++) {
        const dg_tensor *t = dg_checkpoint_at(ck, i);
        const bool layer = strncmp(t->name, decoder, sizeof decoder - 1) == 0 &&
                           strcmp(strrchr(t->name, '.'), scalar) != 0;
        ck_assert_uint_lt(n + 1, TENSORS);
        if (!layer || _i)
            tensor[n++] = *t;
        if (!layer)
            continue;
        snprintf(name[n], sizeof name[n], "model.encoder.language_model.layers.%s",
                 t->name + sizeof decoder - 1);
        tensor[n] = *t;
        tensor[n].name = name[n];
        n++;
    }
    ck_assert(dg_test_write_safetensors(
        dg_test_path(safetensors, dg_test_root, "model.safetensors"), tensor, n));
    dg_checkpoint_close(ck);
    copy_document(dg_test_root, "config.json");
    copy_document(dg_test_root, "generation_config.json");
    copy_document(dg_test_root, "tokenizer.json");
    dg_buf got[2];
    for (int i = 0; i < 2; i++) {
        dg_test_path(path[i], dg_test_root, i ? "a.gguf" : "b.gguf");
        quantize(i ? folder : dg_test_root, path[i], "Q8_0", NULL);
        read_whole(&got[i], path[i]);
    }
    ck_assert_uint_eq(got[0].len, got[1].len);
    ck_assert_mem_eq(got[0].data, got[1].data, got[0].len);
    dg_buf_clear(&got[0]);
    dg_buf_clear(&got[1]);
}
END_TEST

/* Threads, and whether a file is made anew, make no difference; nor does a second time in the same
 * types. */
START_TEST(a_file_is_always_the_same)
{
    char path[4][DG_TEST_PATH];
    static const char *const file[] = {"a", "b", "c", "d"};
    dg_buf got[4];
    for (int i = 0; i < 4; i++) {
        dgemma_error err = {0};
        dgemma_quantize_options opt = options_for(
            i == 3 ? path[0] : folder, dg_test_path(path[i], dg_test_root, file[i]), "Q4_K_M");
        opt.n_threads = i == 1 ? 1 : 7;
        ck_assert_msg(dgemma_quantize(&opt, NULL, &err) == DGEMMA_OK, "%s", err.msg);
        read_whole(&got[i], path[i]);
        ck_assert_uint_eq(got[i].len, got[0].len);
    }
    for (int i = 0; i < 3; i++)
        ck_assert_mem_eq(got[i].data, got[0].data, got[0].len);
    dgemma_error err = {0};
    dg_checkpoint *a, *b;
    ck_assert_int_eq(dg_checkpoint_open(&a, path[0], &err), DGEMMA_OK);
    ck_assert_int_eq(dg_checkpoint_open(&b, path[3], &err), DGEMMA_OK);
    for (size_t i = 0; i < dg_checkpoint_count(a); i++) {
        const dg_tensor *x = dg_checkpoint_at(a, i), *y = dg_checkpoint_at(b, i);
        ck_assert_str_eq(x->name, y->name);
        ck_assert(x->type == y->type && x->bytes == y->bytes);
        ck_assert_mem_eq(x->data, y->data, x->bytes);
    }
    dg_checkpoint_close(a);
    dg_checkpoint_close(b);
    for (int i = 0; i < 4; i++)
        dg_buf_clear(&got[i]);
}
END_TEST

static float *wide(const dg_tensor *t)
{
    float *out = dg_array(dg_tensor_count(t), sizeof *out);
    dg_tensor_widen(out, t, dg_tensor_count(t));
    return out;
}

/* Values are as near as halves can be. */
static void check_values(const char *name, const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(fabsf(x[i] - y[i]) <= 5e-4f * fabsf(x[i]) + 3e-8f, "%s[%zu]: %g became %g",
                      name, i, (double)x[i], (double)y[i]);
}

static void check_close(const dg_tensor *x, const dg_tensor *y)
{
    ck_assert_msg(x && x->n_dim == y->n_dim, "%s", y->name);
    ck_assert_mem_eq(x->shape, y->shape, (size_t)x->n_dim * sizeof *x->shape);
    float *a = wide(x), *b = wide(y);
    check_values(y->name, a, b, dg_tensor_count(x));
    dg_free(a);
    dg_free(b);
}

/* Of each expert gate's rows, then up's. */
static void check_joined(const dg_checkpoint *from, const dg_tensor *y)
{
    char name[2][256];
    float *part[2], *all = wide(y);
    const int stem = (int)(strlen(y->name) - strlen("gate_up_proj"));
    for (int i = 0; i < 2; i++) {
        snprintf(name[i], sizeof name[i], "%.*s%s", stem, y->name, i ? "up_proj" : "gate_proj");
        const dg_tensor *x = dg_checkpoint_find(from, name[i]);
        ck_assert_msg(x && 2 * dg_tensor_count(x) == dg_tensor_count(y), "%s", name[i]);
        part[i] = wide(x);
    }
    const size_t each = (size_t)(y->shape[1] * y->shape[2]) / 2;
    for (size_t i = 0; i < 2 * (size_t)y->shape[0]; i++)
        check_values(name[i % 2], part[i % 2] + i / 2 * each, all + i * each, each);
    dg_free(part[0]);
    dg_free(part[1]);
    dg_free(all);
}

/* GGUF files in the ways that they differ: experts apart, factors beside them, splits. */
START_TEST(a_file_becomes_a_file)
{
    static const struct {
        dg_test_gguf how;
        const char *name;
    } forms[] = {
        {{.type = DG_BF16, .separate = true}, "m.gguf"},
        {{.type = DG_Q8_0, .separate = true, .scaled = true}, "m.gguf"},
        {{.type = DG_BF16, .n_file = 3}, "m-00001-of-00003.gguf"},
        {{.type = DG_BF16, .no_encoder_scalar = true, .head = true}, "m.gguf"},
        {{.type = DG_BF16, .scalar_keys = true}, "m.gguf"},
        {{.type = DG_BF16, .alignment = 64}, "m.gguf"},
    };
    char from[DG_TEST_PATH], path[DG_TEST_PATH];
    dgemma_quantize_result r;
    dg_test_gguf how = forms[_i].how;
    how.fixture = "text";
    dg_test_write_gguf_model(dg_test_root, "m", &how);
    quantize(dg_test_path(from, dg_test_root, forms[_i].name),
             dg_test_path(path, dg_test_root, "out.gguf"), "F16", &r);
    ck_assert_msg(r.error < 1e-3, "%g", r.error);
    dgemma_error err = {0};
    dg_checkpoint *a, *b;
    ck_assert_int_eq(dg_checkpoint_open(&a, from, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_checkpoint_open(&b, path, &err), DGEMMA_OK);
    for (size_t i = 0; i < dg_checkpoint_count(b); i++) {
        const dg_tensor *y = dg_checkpoint_at(b, i), *x = dg_checkpoint_find(a, y->name);
        if (strstr(y->name, ".experts.gate_up_proj") && !x)
            check_joined(a, y);
        else
            check_close(x, y);
    }
    dg_checkpoint_close(a);
    dg_checkpoint_close(b);
    size_t n;
    dg_free(tiny_logits(&(tiny_options){.gguf = path}, &n));
}
END_TEST

/* A type that only is read stays where all sources of a tensor have it, without factors. */
START_TEST(a_type_that_only_is_read)
{
    static const float scale[2] = {1, 2};
    static dg_loaded l = {.cfg.n_layer = 1};
    const dg_preset *preset = dg_preset_find("IQ3_XXS");
    dg_tensor t[2];
    for (int i = 0; i < 2; i++)
        t[i] = (dg_tensor){.name = i ? "model.decoder.layers.0.experts.up_proj"
                                     : "model.decoder.layers.0.experts.gate_proj",
                           .type = DG_IQ3_XXS,
                           .n_dim = 3,
                           .shape = {2, 1, 256},
                           .bytes = dg_dtype_bytes(DG_IQ3_XXS, 512)};
    if (_i == 1 || _i == 2)
        t[_i - 1].type = DG_BF16;
    if (_i == 3 || _i == 4)
        t[_i - 3].scale = scale;
    dgemma_error err = {0};
    dg_quantize_plan plan;
    ck_assert_int_eq(dg_checkpoint_of(&l.checkpoint, "made", t, 2, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_quantize_plan_make(&plan, &l, preset, NULL, &err),
                     _i ? DGEMMA_E_UNSUPPORTED : DGEMMA_OK);
    dg_quantize_plan_clear(&plan);
    dg_checkpoint_close(l.checkpoint);
}
END_TEST

/* ---- the report ---- */

typedef struct seen {
    size_t n, bytes, n_quantised;
    double error;
    dgemma_quantized last;
} seen;

static void see(void *user, const dgemma_quantized *t)
{
    seen *s = user;
    s->n++;
    s->bytes += t->bytes;
    s->n_quantised += t->error > 0;
    s->error = fmax(s->error, t->error);
    s->last = *t;
}

START_TEST(a_report_of_each_tensor)
{
    char path[DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_quantize_result dry, wet;
    seen of_dry = {0}, of_wet = {0};
    dgemma_quantize_options opt =
        options_for(folder, dg_test_path(path, dg_test_root, "m.gguf"), "Q4_0");
    opt.on_tensor = see;
    opt.user = &of_dry;
    opt.dry_run = true;
    ck_assert_msg(dgemma_quantize(&opt, &dry, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert(!dg_file_exists(path));
    opt.path = NULL; /* a dry run needs none */
    ck_assert_int_eq(dgemma_quantize(&opt, &dry, &err), DGEMMA_OK);
    opt.path = path;
    opt.dry_run = false;
    opt.user = &of_wet;
    ck_assert_msg(dgemma_quantize(&opt, &wet, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_uint_eq(2 * of_wet.n, of_dry.n);
    ck_assert_uint_eq(of_wet.n, wet.n_tensors);
    ck_assert_uint_eq(of_wet.bytes, wet.tensor_bytes);
    ck_assert_uint_eq(dry.bytes, wet.bytes);
    ck_assert_uint_eq(of_dry.n_quantised, 0);
    ck_assert_uint_gt(of_wet.n_quantised, 30);
    ck_assert(of_wet.error > wet.error && wet.error > 0.01);
    dg_buf got;
    read_whole(&got, path);
    ck_assert_uint_eq(got.len, wet.bytes);
    dg_buf_clear(&got);
}
END_TEST

/* ---- failures ---- */

static bool stop_late(void *user, double fraction)
{
    *(double *)user = fraction;
    return fraction < 0.5;
}

START_TEST(nothing_is_left_of_a_failure)
{
    char path[DG_TEST_PATH], partial[DG_TEST_PATH], other[DG_TEST_PATH];
    dgemma_error err = {0};
    double fraction = 0;
    dg_test_path(partial, dg_test_root, "m.gguf.partial");
    dgemma_quantize_options opt =
        options_for(folder, dg_test_path(path, dg_test_root, "m.gguf"), "Q4_0");
    opt.on_progress = stop_late;
    opt.user = &fraction;
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_CANCELLED);
    ck_assert(fraction >= 0.5 && fraction < 1);
    ck_assert(!dg_file_exists(path) && !dg_file_exists(partial));
    opt.on_progress = NULL;

    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_OK);
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_ARG); /* it is there */
    opt.replace = true;
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_OK);
    opt.model_path = path; /* onto itself, also by another name */
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "is what is read"));
    ck_assert_int_eq(link(path, dg_test_path(other, dg_test_root, "other")), 0);
    opt.path = other;
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_ARG);
    opt.model_path = folder;
    opt.path = dg_test_root;
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_ARG);
    opt.path = "/dev/null";
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_ARG);
    opt.path = dg_test_path(other, dg_test_root, "no/such/folder");
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_IO);
    opt.path = path;
    opt.type = "Q9";
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_ARG);
    opt.type = "IQ1_S";
    opt.model_path = "models/pocket/pocket.gguf";
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_UNSUPPORTED);
    opt.type = "Q4_0";
    opt.model_path = folder;
    opt.n_threads = -1;
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_ARG);
    opt.n_threads = 1;
    opt.model_path = "tests/fixtures/golden/text/model"; /* no tokenizer */
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "tokenizer.json"));
}
END_TEST

static bool write_another(void *user, double fraction)
{
    return fraction < 0.5 || dg_test_write_file(dg_test_root, user, "mine", 4);
}

/* A file that comes while another is made is kept, unless it may be replaced. */
START_TEST(what_comes_meanwhile)
{
    char path[DG_TEST_PATH], partial[DG_TEST_PATH];
    dgemma_error err = {0};
    dg_test_path(partial, dg_test_root, "m.gguf.partial");
    dgemma_quantize_options opt =
        options_for(folder, dg_test_path(path, dg_test_root, "m.gguf"), "Q4_0");
    opt.on_progress = write_another;
    opt.user = "m.gguf";
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_IO);
    dg_buf got;
    read_whole(&got, path);
    ck_assert(got.len == 4 && !dg_file_exists(partial));
    dg_buf_clear(&got);
    opt.replace = true;
    ck_assert_msg(dgemma_quantize(&opt, NULL, &err) == DGEMMA_OK, "%s", err.msg);
    read_whole(&got, path);
    ck_assert_uint_gt(got.len, 4);
    dg_buf_clear(&got);
}
END_TEST

/* Of two that write the same file, the second is told. */
START_TEST(one_writer_at_a_time)
{
    char path[DG_TEST_PATH], partial[DG_TEST_PATH];
    dgemma_error err = {0};
    dg_test_path(partial, dg_test_root, "m.gguf.partial");
    dgemma_quantize_options opt =
        options_for(folder, dg_test_path(path, dg_test_root, "m.gguf"), "Q4_0");
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(partial, O_WRONLY | O_CREAT, 0666);
    ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &all), 0);
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "somebody else is writing it"));
    ck_assert(dg_file_exists(partial) && !dg_file_exists(path));
    close(fd); /* whoever was killed holds it no more */
    ck_assert_msg(dgemma_quantize(&opt, NULL, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert(dg_file_exists(path) && !dg_file_exists(partial));
}
END_TEST

/* What has the name of the unfinished file is not written to unless it is one. */
START_TEST(what_is_there_as_partial)
{
    enum { IS_SOURCE, LINK, HARD_LINK, PIPE, FOLDER };
    char path[DG_TEST_PATH], partial[DG_TEST_PATH], other[DG_TEST_PATH];
    dgemma_error err = {0};
    dg_buf before, after;
    dg_test_path(partial, dg_test_root, "m.gguf.partial");
    dg_test_path(other, dg_test_root, "other");
    quantize(folder, other, "Q8_0", NULL);
    read_whole(&before, other);
    int made = _i == IS_SOURCE ? rename(other, partial)
               : _i == LINK    ? symlink("other", partial)
               : _i == PIPE    ? mkfifo(partial, 0600)
               : _i == FOLDER  ? mkdir(partial, 0700)
                               : link(other, partial);
    ck_assert_int_eq(made, 0);
    dgemma_quantize_options opt = options_for(_i == IS_SOURCE ? partial : folder,
                                              dg_test_path(path, dg_test_root, "m.gguf"), "Q4_0");
    ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), _i == FOLDER ? DGEMMA_E_IO : DGEMMA_E_ARG);
    const char *why = _i == IS_SOURCE ? "is what is read"
                      : _i == FOLDER  ? "m.gguf"
                                      : "is not a plain file";
    ck_assert_msg(strstr(err.msg, why) != NULL, "%s", err.msg);
    if (_i == LINK || _i == HARD_LINK) {
        opt.model_path = other;
        ck_assert_int_eq(dgemma_quantize(&opt, NULL, &err), DGEMMA_E_ARG);
        ck_assert_ptr_nonnull(strstr(err.msg, "is what is read"));
    }
    read_whole(&after, _i == IS_SOURCE ? partial : other);
    ck_assert_uint_eq(before.len, after.len);
    ck_assert_mem_eq(before.data, after.data, after.len);
    ck_assert(!dg_file_exists(path));
    struct stat info;
    ck_assert_int_eq(lstat(partial, &info), 0);
    dg_buf_clear(&before);
    dg_buf_clear(&after);
}
END_TEST

/* Wherever memory is out, nothing is left. */
START_TEST(too_little_memory)
{
    char path[DG_TEST_PATH], partial[DG_TEST_PATH];
    dg_test_path(path, dg_test_root, "m.gguf");
    dg_test_path(partial, dg_test_root, "m.gguf.partial");
    for (long n = 1;; n += n < 200 ? 1 : 7) {
        dgemma_error err = {0};
        dgemma_quantize_options opt = options_for(folder, path, "Q8_0");
        opt.n_threads = 1;
        dg_test_fail_alloc_at(n);
        dgemma_status st = dgemma_quantize(&opt, NULL, &err);
        bool reached = dg_test_alloc_done();
        ck_assert_msg(!dg_file_exists(partial), "%ld", n);
        ck_assert_msg(dg_file_exists(path) == !st, "%ld: %s", n, err.msg);
        if (!reached) {
            ck_assert_msg(!st, "%s", err.msg);
            break;
        }
        remove(path); /* a failure that nobody had to notice */
    }
}
END_TEST

Suite *quantize_suite(void)
{
    Suite *s = suite_create("quantize");
    TCase *c = tcase_create("files");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_loop_test(c, a_folder_becomes_a_file, 0, (int)DG_COUNT(names));
    tcase_add_test(c, a_file_computes_the_same);
    tcase_add_loop_test(c, copies_of_layers, 0, 2);
    tcase_add_test(c, a_file_is_always_the_same);
    tcase_add_loop_test(c, a_file_becomes_a_file, 0, 6);
    tcase_add_loop_test(c, a_type_that_only_is_read, 0, 5);
    tcase_add_test(c, a_report_of_each_tensor);
    tcase_add_test(c, nothing_is_left_of_a_failure);
    tcase_add_test(c, what_comes_meanwhile);
    tcase_add_test(c, one_writer_at_a_time);
    tcase_add_loop_test(c, what_is_there_as_partial, 0, 5);
    tcase_add_test(c, too_little_memory);
    suite_add_tcase(s, c);
    return s;
}
