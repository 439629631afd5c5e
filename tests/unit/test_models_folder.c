/* Models that lie in a folder: which they are, what they are called, and what is left out. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/common.h"
#include "server/model_spec.h"
#include "suites.h"
#include "support/temp_dir.h"

/* What was left out, one behind the other. */
typedef struct left_out {
    int n;
    char last[256], why[256];
} left_out;

static void note(void *user, const char *name, const char *why)
{
    left_out *l = user;
    ck_assert_ptr_nonnull(why);
    l->n++;
    snprintf(l->last, sizeof l->last, "%s", name);
    snprintf(l->why, sizeof l->why, "%s", why);
}

static void touch(const char *name)
{
    ck_assert(dg_test_write_file(dg_test_root, name, "junk", 4));
}

static void folder_with(const char *name, const char *inside)
{
    char path[DG_TEST_PATH];
    ck_assert_int_eq(mkdir(dg_test_path(path, dg_test_root, name), 0700), 0);
    ck_assert(dg_test_write_file(path, inside, "{", 1));
}

static void link_model(const char *name)
{
    char here[DG_TEST_PATH], path[DG_TEST_PATH];
    ck_assert_ptr_nonnull(getcwd(here, sizeof here));
    ck_assert_int_eq(
        symlink(dg_test_path(path, here, "tests/fixtures/gguf/tiny.gguf"), dg_test_in_root(name)),
        0);
}

static const char *const files[] = {
    "b.gguf",
    "a.gguf",
    "mmproj-b.gguf",
    ".hidden.gguf",
    "notes.txt",
    ".gguf",
    "part-00001-of-00002.gguf",
    "part-00002-of-00002.gguf",
    "x.gguf",
    "gr\xC3\xBCn.gguf",
    "no\xFFtext.gguf",
    "two\nlines.gguf",
    "LOUD.GGUF",
    "claude-*.gguf",
    "late-00002-of-00002.GGUF",
};

START_TEST(models_are_found_by_their_names)
{
    static const char *const names[] = {"LOUD.GGUF",
                                        "a.gguf",
                                        "b.gguf",
                                        "cache",
                                        "claude-*.gguf",
                                        "f",
                                        "gr\xC3\xBCn.gguf",
                                        "part-00001-of-00002.gguf",
                                        "x",
                                        "x.gguf"};
    static const char *const aliases[] = {
        "LOUD", "a", "b", NULL, NULL, NULL, "gr\xC3\xBCn", "part-00001-of-00002", NULL, NULL};
    char path[DG_TEST_PATH];
    dg_model_specs s = {0};
    dgemma_error err = {0};
    const dg_model_base base = {.options = {.context_length = 777}, .idle_seconds = 300};
    for (size_t i = 0; i < DG_COUNT(files); i++)
        touch(files[i]);
    folder_with("f", "config.json");
    folder_with("x", "config.json");
    folder_with("cache", "snapshots");
    folder_with("other", "notes.txt");
    ck_assert_msg(!dg_models_folder_scan(&s, dg_test_root, &base, &err), "%s", err.msg);
    ck_assert_int_eq(dg_models_folder_shorten(&s, &err), DGEMMA_OK);
    ck_assert_uint_eq(s.n, DG_COUNT(names));
    for (size_t i = 0; i < s.n; i++) {
        const dg_model_spec *m = &s.list[i];
        ck_assert_str_eq(m->name, names[i]);
        ck_assert_str_eq(m->options.model_path, dg_test_path(path, dg_test_root, names[i]));
        ck_assert_int_eq(m->options.context_length, 777);
        ck_assert_int_eq(m->idle_seconds, 300);
        ck_assert_uint_eq(m->n_alias, aliases[i] != NULL);
        if (aliases[i])
            ck_assert_str_eq(m->aliases[0], aliases[i]);
    }
    dg_model_specs_clear(&s);
}
END_TEST

/* Files and folders that would be models but for their names, or could not even be looked into. */
START_TEST(what_cannot_be_asked_for_is_told)
{
    char name[DG_MODEL_NAME_MAX + 8], path[DG_TEST_PATH];
    dg_model_specs s;
    left_out out = {0};
    dgemma_error err = {0};
    const dg_model_base base = {.options = {.max_running = 1}, .skipped = note, .user = &out};
    link_model("x.GGUF");
    memset(name, 'n', sizeof name);
    memcpy(name + DG_MODEL_NAME_MAX - 4, ".gguf", 6); /* one byte too many */
    touch(name);
    touch("notes.txt");
    ck_assert_msg(!dg_model_specs_read(&s, dg_test_root, &base, &err), "%s", err.msg);
    ck_assert_int_eq(out.n, 1);
    ck_assert_ptr_nonnull(strstr(out.why, "more than 200 bytes"));
    dg_model_specs_clear(&s);
    memcpy(name + DG_MODEL_NAME_MAX - 5, ".gguf", 6); /* which then is junk, as any other */
    touch(name);
    ck_assert_msg(!dg_model_specs_read(&s, dg_test_root, &base, &err), "%s", err.msg);
    ck_assert_int_eq(out.n, 3);
    ck_assert_str_eq(out.last, name);
    ck_assert_ptr_null(strstr(out.why, "200 bytes"));
    dg_model_specs_clear(&s);
    ck_assert_int_eq(unlink(dg_test_in_root(name)), 0);
    touch("no\xFFtext.gguf");
    ck_assert_msg(!dg_model_specs_read(&s, dg_test_root, &base, &err), "%s", err.msg);
    ck_assert_int_eq(out.n, 5);
    dg_model_specs_clear(&s);
    ck_assert_int_eq(mkdir(dg_test_path(path, dg_test_root, "round"), 0700), 0);
    ck_assert_int_eq(symlink("config.json", dg_test_in_root("round/config.json")), 0);
    ck_assert_msg(!dg_model_specs_read(&s, dg_test_root, &base, &err), "%s", err.msg);
    ck_assert_int_eq(out.n, 8);
    ck_assert_str_eq(out.last, "round");
    ck_assert_uint_eq(s.n, 1);
    ck_assert_str_eq(s.list[0].aliases[0], "x");
    dg_model_specs_clear(&s);
}
END_TEST

/* What is left out takes nobody's name, and does not count. */
START_TEST(what_is_no_model_is_left_out)
{
    dg_model_specs s;
    left_out out = {0};
    dgemma_error err = {0};
    const dg_model_base base = {.options = {.max_running = 1}, .skipped = note, .user = &out};
    link_model("x.gguf");
    folder_with("x", "config.json");
    for (int i = 0; i < DG_MODELS_MAX; i++) {
        char name[32];
        snprintf(name, sizeof name, "junk%d.gguf", i);
        touch(name);
    }
    ck_assert_msg(!dg_model_specs_read(&s, dg_test_root, &base, &err), "%s", err.msg);
    ck_assert_int_eq(out.n, DG_MODELS_MAX + 1);
    ck_assert_str_eq(out.last, "x"); /* in the order of their names */
    ck_assert_uint_eq(s.n, 1);
    ck_assert_str_eq(s.list[0].name, "x.gguf");
    ck_assert_uint_eq(s.list[0].n_alias, 1);
    ck_assert_str_eq(s.list[0].aliases[0], "x");
    ck_assert_int_gt(s.list[0].info.n_layer, 0);
    dg_model_specs_clear(&s);
    unlink(dg_test_in_root("x.gguf"));
    ck_assert_int_eq(dg_model_specs_read(&s, dg_test_root, &base, &err), DGEMMA_E_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "can be served"));
}
END_TEST

START_TEST(more_than_are_served_are_refused)
{
    dg_model_specs s;
    dgemma_error err = {0};
    left_out out = {0};
    const dg_model_base base = {.options = {.max_running = 1}, .skipped = note, .user = &out};
    for (int i = 0; i <= DG_MODELS_MAX; i++) {
        char name[32];
        snprintf(name, sizeof name, "m%d.gguf", i);
        link_model(name);
    }
    touch("n.gguf");
    ck_assert_int_eq(dg_model_specs_read(&s, dg_test_root, &base, &err), DGEMMA_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, "more than 256 models"));
    ck_assert_int_eq(out.n, 0); /* it was looked at no more than 257 */
    unlink(dg_test_in_root("m7.gguf"));
    ck_assert_msg(!dg_model_specs_read(&s, dg_test_root, &base, &err), "%s", err.msg);
    ck_assert_uint_eq(s.n, DG_MODELS_MAX);
    dg_model_specs_clear(&s);
}
END_TEST

/* Before any is looked at: that takes milliseconds for each. */
START_TEST(too_many_to_look_at_are_refused)
{
    enum { MOST = 1024 };
    dg_model_specs s;
    dgemma_error err = {0};
    left_out out = {0};
    const dg_model_base base = {.options = {.max_running = 1}, .skipped = note, .user = &out};
    for (int i = 0; i <= MOST; i++) {
        char name[32];
        snprintf(name, sizeof name, "j%d.gguf", i);
        touch(name);
    }
    ck_assert_int_eq(dg_model_specs_read(&s, dg_test_root, &base, &err), DGEMMA_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, "more than 1024 files and folders"));
    ck_assert_int_eq(out.n, 0);
    unlink(dg_test_in_root("j7.gguf"));
    ck_assert_int_eq(dg_model_specs_read(&s, dg_test_root, &base, &err), DGEMMA_E_ARG);
    ck_assert_int_eq(out.n, MOST);
}
END_TEST

static size_t bytes_with(size_t kv_bytes, int n_running)
{
    dg_model_specs s;
    dgemma_error err = {0};
    const dg_model_base base = {.options = {.max_running = n_running, .kv_bytes = kv_bytes}};
    ck_assert_msg(!dg_model_specs_read(&s, dg_test_root, &base, &err), "%s", err.msg);
    const size_t bytes = dg_model_spec_bytes(&s.list[0]);
    ck_assert_uint_gt(bytes, s.list[0].info.weight_bytes + kv_bytes);
    dg_model_specs_clear(&s);
    return bytes;
}

START_TEST(what_a_model_takes)
{
    link_model("x.gguf");
    const size_t bytes = bytes_with(1 << 20, 1);
    ck_assert_uint_eq(bytes_with(3 << 20, 1), bytes + (2 << 20));
    ck_assert_uint_gt(bytes_with(1 << 20, 5), bytes);
}
END_TEST

/* A file lists what must be there; and nobody waits for a pipe. */
START_TEST(a_file_leaves_nothing_out)
{
    static const char text[] = "{\"models\": [{\"name\": \"x.gguf\", \"path\": \"x.gguf\"}, "
                               "{\"name\": \"y\", \"path\": \"y.gguf\"}]}";
    char path[DG_TEST_PATH];
    dg_model_specs s;
    left_out out = {0};
    dgemma_error err = {0};
    const dg_model_base base = {.options = {.max_running = 1}, .skipped = note, .user = &out};
    dg_test_path(path, dg_test_root, "models.json");
    ck_assert(dg_test_write_file(dg_test_root, "models.json", text, sizeof text - 1));
    link_model("x.gguf");
    touch("y.gguf");
    ck_assert_int_ne(dg_model_specs_read(&s, path, &base, &err), DGEMMA_OK);
    ck_assert_ptr_nonnull(strstr(err.msg, "models[1]"));
    ck_assert_int_eq(out.n, 0);
    unlink(dg_test_in_root("y.gguf"));
    link_model("y.gguf");
    ck_assert_msg(!dg_model_specs_read(&s, path, &base, &err), "%s", err.msg);
    ck_assert_uint_eq(s.n, 2);
    ck_assert_uint_eq(s.list[0].n_alias, 0);
    dg_model_specs_clear(&s);
    unlink(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(dg_model_specs_read(&s, path, &base, &err), DGEMMA_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "not a regular file"));
}
END_TEST

START_TEST(a_folder_without_models)
{
    dg_model_specs s;
    dgemma_error err = {0};
    const dg_model_base base = {.options = {.max_running = 1}};
    touch("notes.txt");
    ck_assert_int_eq(dg_model_specs_read(&s, dg_test_root, &base, &err), DGEMMA_E_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "there is no model in it"));
    ck_assert_int_eq(dg_model_specs_read(&s, "/nowhere/at/all", &base, &err), DGEMMA_E_IO);
}
END_TEST

Suite *models_folder_suite(void)
{
    Suite *s = suite_create("models_folder");
    TCase *t = tcase_create("models_folder");
    tcase_add_checked_fixture(t, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(t, models_are_found_by_their_names);
    tcase_add_test(t, what_is_no_model_is_left_out);
    tcase_add_test(t, what_cannot_be_asked_for_is_told);
    tcase_add_test(t, more_than_are_served_are_refused);
    tcase_add_test(t, too_many_to_look_at_are_refused);
    tcase_add_test(t, what_a_model_takes);
    tcase_add_test(t, a_file_leaves_nothing_out);
    tcase_add_test(t, a_folder_without_models);
    suite_add_tcase(s, t);
    return s;
}
