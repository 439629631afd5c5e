/* checkpoint: the folders in which a model may lie, and what is said of those in which it does not.
 */
#include "suites.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/common.h"
#include "format/checkpoint.h"
#include "support/alloc_fail.h"
#include "support/temp_dir.h"
#include "support/write_safetensors.h"

static void make_dir(const char *name)
{
    ck_assert_int_eq(mkdir(dg_test_in_root(name), 0700), 0);
}

static void link_to(const char *target, const char *name)
{
    ck_assert_int_eq(symlink(target, dg_test_in_root(name)), 0);
}

static void write_text(const char *name, const char *text)
{
    ck_assert(dg_test_write_file(dg_test_root, name, text, strlen(text)));
}

/* A file with the tensors of a space-separated list, one byte each: the tensor's index in the list.
 */
static void write_weights(const char *name, const char *names)
{
    static const unsigned char byte[] = {0, 1, 2, 3};
    dg_tensor t[DG_COUNT(byte)];
    char list[256];
    ck_assert_uint_lt(strlen(names), sizeof list);
    strcpy(list, names);
    size_t n = 0;
    for (char *save, *s = strtok_r(list, " ", &save); s; s = strtok_r(NULL, " ", &save)) {
        ck_assert_uint_lt(n, DG_COUNT(byte));
        t[n] = (dg_tensor){.name = s, .type = DG_U8, .n_dim = 1, .shape = {1}, .data = &byte[n]};
        n++;
    }
    ck_assert(dg_test_write_safetensors(dg_test_in_root(name), t, n));
}

static dg_checkpoint *open_good(const char *name)
{
    dg_checkpoint *ck = NULL;
    dgemma_error err = {0};
    dgemma_status st = dg_checkpoint_open(&ck, dg_test_in_root(name), &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    return ck;
}

/* Opening fails with this status and these words in the message. */
static void expect(const char *name, dgemma_status status, const char *says)
{
    dg_checkpoint *ck = NULL;
    dgemma_error err = {0};
    dgemma_status st = dg_checkpoint_open(&ck, dg_test_in_root(name), &err);
    ck_assert_msg(st == status, "status %d: %s", st, err.msg);
    ck_assert_ptr_null(ck);
    ck_assert_msg(strstr(err.msg, says), "%s", err.msg);
}

static int byte_of(const dg_checkpoint *ck, const char *tensor)
{
    const dg_tensor *t = dg_checkpoint_find(ck, tensor);
    return t ? *(const unsigned char *)t->data : -1;
}

START_TEST(plain)
{
    write_weights("model.safetensors", "b a");
    write_text("config.json", "{}");
    static const char *const ways[] = {"", "/", "model.safetensors", "config.json"};
    for (size_t i = 0; i < DG_COUNT(ways); i++) {
        dg_checkpoint *ck = open_good(ways[i]);
        ck_assert_uint_eq(dg_checkpoint_count(ck), 2);
        ck_assert_str_eq(dg_checkpoint_at(ck, 0)->name, "a");
        ck_assert_str_eq(dg_checkpoint_at(ck, 1)->name, "b");
        ck_assert_int_eq(byte_of(ck, "a"), 1);
        ck_assert_int_eq(byte_of(ck, "b"), 0);
        ck_assert_ptr_null(dg_checkpoint_find(ck, "c"));
        ck_assert_int_eq(strncmp(dg_checkpoint_dir(ck), dg_test_root, strlen(dg_test_root)), 0);
        dg_checkpoint_close(ck);
    }
    dg_checkpoint_close(NULL);
}
END_TEST

START_TEST(in_the_working_folder)
{
    write_weights("model.safetensors", "a");
    char *before = getcwd(NULL, 0);
    ck_assert_ptr_nonnull(before);
    ck_assert_int_eq(chdir(dg_test_root), 0);
    dg_checkpoint *ck = NULL;
    ck_assert_int_eq(dg_checkpoint_open(&ck, "model.safetensors", NULL), DGEMMA_OK);
    ck_assert_int_eq(chdir(before), 0);
    free(before);
    ck_assert_str_eq(dg_checkpoint_dir(ck), ".");
    dg_checkpoint_close(ck);
}
END_TEST

START_TEST(documents)
{
    write_weights("model.safetensors", "a");
    write_text("config.json", "{\"x\":1}");
    dg_checkpoint *ck = open_good("");
    dgemma_error err = {0};
    dg_buf text;
    dg_buf_init(&text, 100);
    ck_assert(dg_checkpoint_has_document(ck, "config.json"));
    ck_assert_int_eq(dg_checkpoint_document(ck, "config.json", &text, &err), DGEMMA_OK);
    ck_assert_str_eq(text.data, "{\"x\":1}");
    dg_buf_clear(&text);

    ck_assert(!dg_checkpoint_has_document(ck, "generation_config.json"));
    ck_assert_int_eq(dg_checkpoint_document(ck, "generation_config.json", &text, &err),
                     DGEMMA_E_IO);
    ck_assert_msg(strstr(err.msg, "no generation_config.json"), "%s", err.msg);

    dg_buf_init(&text, 6);
    ck_assert_int_eq(dg_checkpoint_document(ck, "config.json", &text, &err), DGEMMA_E_LIMIT);
    dg_buf_clear(&text);
    dg_checkpoint_close(ck);
}
END_TEST

START_TEST(lone_file)
{
    write_weights("weights-v2.safetensors", "a");
    dg_checkpoint *ck = open_good("");
    ck_assert_int_eq(byte_of(ck, "a"), 0);
    dg_checkpoint_close(ck);
    write_weights("weights-v3.safetensors", "a");
    expect("", DGEMMA_E_IO, "2 safetensors files and no model.safetensors.index.json");
}
END_TEST

START_TEST(shards)
{
    write_weights("model-00001-of-00002.safetensors", "e c");
    write_weights("model-00002-of-00002.safetensors", "d b a");
    write_text("model.safetensors.index.json", "{\"metadata\":{\"total_size\":5},\"weight_map\":{"
                                               "\"a\":\"model-00002-of-00002.safetensors\","
                                               "\"c\":\"model-00001-of-00002.safetensors\","
                                               "\"b\":\"model-00002-of-00002.safetensors\","
                                               "\"d\":\"model-00002-of-00002.safetensors\","
                                               "\"e\":\"model-00001-of-00002.safetensors\"}}");
    dg_checkpoint *ck = open_good("model-00001-of-00002.safetensors");
    ck_assert_uint_eq(dg_checkpoint_count(ck), 5);
    static const int want[] = {2, 1, 1, 0, 0};
    for (size_t i = 0; i < DG_COUNT(want); i++) {
        char name[2] = {(char)('a' + i), 0};
        ck_assert_str_eq(dg_checkpoint_at(ck, i)->name, name);
        ck_assert_int_eq(byte_of(ck, name), want[i]);
    }
    dg_checkpoint_close(ck);
}
END_TEST

/* As the hub client lays a model out: files are links into blobs/. */
static void make_cache(void)
{
    make_dir("models--org--name");
    make_dir("models--org--name/blobs");
    make_dir("models--org--name/refs");
    make_dir("models--org--name/snapshots");
    make_dir("models--org--name/snapshots/abc");
    write_weights("models--org--name/blobs/0123", "a");
    write_text("models--org--name/blobs/4567", "{}");
    link_to("../../blobs/0123", "models--org--name/snapshots/abc/model.safetensors");
    link_to("../../blobs/4567", "models--org--name/snapshots/abc/config.json");
}

START_TEST(hub_cache)
{
    static const char cache[] = "models--org--name", ref[] = "models--org--name/refs/main";
    make_cache();
    /* with no reference, with one, with one to a revision that is not here: the only snapshot */
    static const char *const refs[] = {NULL, "abc", "abc\n", "def", "../../..", ""};
    for (size_t i = 0; i < DG_COUNT(refs); i++) {
        if (refs[i])
            write_text(ref, refs[i]);
        dg_checkpoint *ck = open_good(cache);
        ck_assert_ptr_nonnull(strstr(dg_checkpoint_dir(ck), "/snapshots/abc"));
        ck_assert_int_eq(byte_of(ck, "a"), 0);
        ck_assert(dg_checkpoint_has_document(ck, "config.json"));
        dg_checkpoint_close(ck);
    }
    dg_checkpoint_close(open_good("models--org--name/snapshots/abc/config.json"));

    make_dir("models--org--name/snapshots/def");
    write_text(ref, "abc");
    dg_checkpoint_close(open_good(cache));
    write_text(ref, "0000");
    expect(cache, DGEMMA_E_IO, "2 snapshots");
    write_text(ref, "def");
    expect(cache, DGEMMA_E_IO, "no weights and no config.json");
}
END_TEST

START_TEST(empty_hub_cache)
{
    make_dir("snapshots");
    expect("", DGEMMA_E_IO, "0 snapshots");
}
END_TEST

START_TEST(nothing_there)
{
    expect("missing", DGEMMA_E_IO, "No such file");
    expect("", DGEMMA_E_IO, "no weights and no config.json");
    write_text("config.json", "{}");
    expect("", DGEMMA_E_IO, "no weights here");
    write_text("notes.txt", "hello");
    expect("notes.txt", DGEMMA_E_ARG, "neither a GGUF file nor the folder");
    link_to("gone", "model.safetensors");
    expect("", DGEMMA_E_IO, "No such file");
}
END_TEST

START_TEST(other_formats)
{
    write_text("model.gguf", "GGUF....");
    write_text("renamed", "GGUF....");
    expect("model.gguf", DGEMMA_E_FORMAT, "model.gguf: the file ends inside the header");
    expect("renamed", DGEMMA_E_FORMAT, "renamed: the file ends inside the header");
    expect("", DGEMMA_E_FORMAT, "model.gguf: the file ends inside the header");
    make_dir("torch");
    write_text("torch/pytorch_model.bin", "PK");
    expect("torch", DGEMMA_E_UNSUPPORTED, "pytorch_model.bin");
    make_dir("lfs");
    write_text("lfs/model.safetensors", "version https://git-lfs.github.com/spec/v1\noid …\n");
    expect("lfs", DGEMMA_E_FORMAT, "Git LFS pointer");
}
END_TEST

START_TEST(broken_weights)
{
    write_text("model.safetensors", "");
    expect("", DGEMMA_E_FORMAT, "model.safetensors: 0 bytes");
    ck_assert(dg_test_write_safetensors_raw(
        dg_test_in_root("model.safetensors"),
        "{\"w\":{\"dtype\":\"F6_E3M2\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8));
    expect("", DGEMMA_E_UNSUPPORTED, "w has dtype F6_E3M2");
    ck_assert_int_eq(unlink(dg_test_in_root("model.safetensors")), 0);
    make_dir("model.safetensors");
    expect("", DGEMMA_E_IO, "not a regular file");
}
END_TEST

#define LONG "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
static const struct {
    const char *index;
    dgemma_status status;
    const char *says;
} broken_index[] = {
    {"", DGEMMA_E_FORMAT, "index.json: line 1"},
    {"\xEF\xBB\xBF{}", DGEMMA_E_FORMAT, "index.json: it begins with a byte order mark"},
    {"[1]", DGEMMA_E_FORMAT, "weight_map"},
    {"{}", DGEMMA_E_FORMAT, "weight_map"},
    {"{\"weight_map\":[]}", DGEMMA_E_FORMAT, "weight_map"},
    {"{\"weight_map\":{}}", DGEMMA_E_FORMAT, "weight_map"},
    {"{\"weight_map\":{\"a\":1}}", DGEMMA_E_FORMAT, "puts a in 1, not a file of this folder"},
    {"{\"weight_map\":{\"a\":\"\"}}", DGEMMA_E_FORMAT, "puts a in \"\", not a file"},
    {"{\"weight_map\":{\"a\":\"..\"}}", DGEMMA_E_FORMAT, "puts a in \"..\", not a file"},
    {"{\"weight_map\":{\"a\":\"../s1\"}}", DGEMMA_E_FORMAT, "../s1\", not a file"},
    {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", DGEMMA_E_FORMAT, "/etc/passwd\", not a file"},
    {"{\"weight_map\":{\"a\":\"x/s1\"}}", DGEMMA_E_FORMAT, "x/s1\", not a file"},
    {"{\"weight_map\":{\"a\":\"..\\\\s1\"}}", DGEMMA_E_FORMAT, "not a file"},
    {"{\"weight_map\":{\"a\":\"" LONG LONG LONG LONG "x\"}}", DGEMMA_E_FORMAT, "..., not a file"},
    {"{\"weight_map\":{\"a\":\"s1\",\"a\":\"s1\"}}", DGEMMA_E_FORMAT, "line 1"},
    {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s9\"}}", DGEMMA_E_IO, "s9: No such file"},
    {"{\"weight_map\":{\"a\":\"s1\",\"z\":\"s1\"}}", DGEMMA_E_FORMAT, "z should be in s1"},
    {"{\"weight_map\":{\"a\":\"s2\",\"b\":\"s1\"}}", DGEMMA_E_FORMAT, "a should be in s2"},
    {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s3\"}}", DGEMMA_E_FORMAT, "a is in both s1 and s3"},
};

START_TEST(refuses_index)
{
    write_weights("s1", "a");
    write_weights("s2", "b");
    write_weights("s3", "a b");
    write_text("model.safetensors.index.json", broken_index[_i].index);
    expect("", broken_index[_i].status, broken_index[_i].says);
}
END_TEST

#define QUANTISED(algo) "{\"quantization\": {\"quant_algo\": \"" algo "\"}}"
static const struct {
    const char *config, *beside;
    const char *says; /* NULL: it is opened */
} quantised[] = {
    {"{}", QUANTISED("FP8"), NULL},
    {"{}", QUANTISED("INT4_AWQ"), "hf_quant_config.json: quantization.quant_algo is \"INT4_AWQ\""},
    {"{}", "{\"quantization\": ", "hf_quant_config.json: line 1"},
    {"{}", "{\"quantization\": \"FP8\"}", "hf_quant_config.json: no object \"quantization\""},
    {"{}", "[]", "hf_quant_config.json: no object \"quantization\""},
    /* the config itself goes before it; where that is none, its reader says so */
    {"{\"quantization_config\": {\"quant_method\": \"fp8\"}}", "{", NULL},
    {"{\"text_config\": {\"quantization_config\": {\"quant_method\": \"hqq\"}}}", "{",
     "text_config.quantization_config.quant_method is \"hqq\""},
    {"{", QUANTISED("FP8"), NULL},
};

START_TEST(reads_how_it_is_quantised)
{
    write_weights("model.safetensors", "a");
    write_text("config.json", quantised[_i].config);
    write_text("hf_quant_config.json", quantised[_i].beside);
    if (quantised[_i].says) {
        dg_checkpoint *ck = NULL;
        dgemma_error err = {0};
        ck_assert_int_ne(dg_checkpoint_open(&ck, dg_test_in_root(""), &err), DGEMMA_OK);
        ck_assert_msg(strstr(err.msg, quantised[_i].says), "%s", err.msg);
    } else {
        dg_checkpoint_close(open_good(""));
    }
}
END_TEST

/* A document of many small values would be a tree of many times its size. */
START_TEST(counts_values)
{
    static const char *const names[] = {"config.json", "hf_quant_config.json",
                                        "model.safetensors.index.json"};
    enum { VALUES = 1100000 };
    char *text = malloc(3 * VALUES + 1);
    ck_assert_ptr_nonnull(text);
    for (int i = 0; i < VALUES; i++)
        memcpy(text + 3 * i, i ? ",{}" : "[{}", 4);
    memcpy(text + 3 * VALUES - 1, "]", 2);
    write_text(names[_i], text);
    free(text);
    if (_i < 2)
        write_weights("model.safetensors", "a");
    expect("", DGEMMA_E_LIMIT, "more than 1048576 JSON values");
}
END_TEST

START_TEST(survives_no_memory)
{
    make_cache();
    write_text("models--org--name/refs/main", "abc");
    ck_assert_int_eq(unlink(dg_test_in_root("models--org--name/snapshots/abc/model.safetensors")),
                     0);
    write_weights("models--org--name/snapshots/abc/s1", "a");
    write_weights("models--org--name/snapshots/abc/s2", "b");
    write_text("models--org--name/snapshots/abc/model.safetensors.index.json",
               "{\"weight_map\":{\"a\":\"s1\",\"b\":\"s2\"}}");
    for (long n = 1;; n++) {
        const char *path = dg_test_in_root("models--org--name");
        dg_checkpoint *ck = NULL;
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_checkpoint_open(&ck, path, NULL);
        bool reached = dg_test_alloc_done();
        ck_assert_int_eq(st == DGEMMA_OK, ck != NULL);
        dg_checkpoint_close(ck);
        if (!reached) {
            ck_assert_int_eq(st, DGEMMA_OK);
            break;
        }
    }
}
END_TEST

Suite *checkpoint_suite(void)
{
    Suite *s = suite_create("checkpoint");
    TCase *c = tcase_create("good");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, plain);
    tcase_add_test(c, in_the_working_folder);
    tcase_add_test(c, documents);
    tcase_add_test(c, lone_file);
    tcase_add_test(c, shards);
    tcase_add_test(c, hub_cache);
    suite_add_tcase(s, c);

    c = tcase_create("hostile");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, empty_hub_cache);
    tcase_add_test(c, nothing_there);
    tcase_add_test(c, other_formats);
    tcase_add_test(c, broken_weights);
    tcase_add_loop_test(c, refuses_index, 0, (int)DG_COUNT(broken_index));
    tcase_add_loop_test(c, reads_how_it_is_quantised, 0, (int)DG_COUNT(quantised));
    tcase_add_loop_test(c, counts_values, 0, 3);
    tcase_add_test(c, survives_no_memory);
    suite_add_tcase(s, c);
    return s;
}
