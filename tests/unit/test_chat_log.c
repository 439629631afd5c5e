/* The conversation of `dgemma chat`: cli/chat_log.c. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "cli/chat_log.h"
#include "suites.h"
#include "support/temp_dir.h"

static void check_text(const cli_chat_log *log, const char *want)
{
    char *text = cli_log_text(log);
    ck_assert_str_eq(text, want);
    free(text);
}

static void add_answer(cli_chat_log *log, const char *answer, const char *thought)
{
    dg_buf text, thinking;
    dg_buf_init(&text, 1000);
    dg_buf_init(&thinking, 1000);
    ck_assert(dg_buf_puts(&text, answer) && dg_buf_puts(&thinking, thought));
    ck_assert_int_eq(cli_log_add_assistant(log, &text, &thinking, NULL), DGEMMA_OK);
    dg_buf_clear(&text);
    dg_buf_clear(&thinking);
}

START_TEST(messages)
{
    cli_chat_log log;
    dgemma_error err;
    ck_assert(cli_log_init(&log));
    ck_assert(!cli_log_back_to_user(&log) && !cli_log_system(&log));
    cli_log_drop_last(&log, true);
    ck_assert_int_eq(cli_log_add_user(&log, "Hi \"you\"", 8, &err), DGEMMA_OK);
    add_answer(&log, "Hello.", "A greeting.");
    ck_assert_int_eq(cli_log_set_system(&log, "Be brief.", &err), DGEMMA_OK);
    check_text(&log, "[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                     "{\"role\":\"user\",\"content\":\"Hi \\\"you\\\"\"},"
                     "{\"role\":\"assistant\",\"content\":\"Hello.\","
                     "\"reasoning_content\":\"A greeting.\"}]");
    ck_assert(cli_log_back_to_user(&log));
    ck_assert_uint_eq(cli_log_count(&log), 2);
    ck_assert_int_eq(cli_log_set_system(&log, "Be kind.", &err), DGEMMA_OK);
    ck_assert_str_eq(cli_log_system(&log), "Be kind.");
    ck_assert_int_eq(cli_log_forget(&log, &err), DGEMMA_OK);
    check_text(&log, "[{\"role\":\"system\",\"content\":\"Be kind.\"}]");
    ck_assert_int_eq(cli_log_set_system(&log, "", &err), DGEMMA_OK);
    check_text(&log, "[]");
    ck_assert_int_eq(cli_log_add_user(&log, "\xFF", 1, &err), DGEMMA_E_ARG);
    ck_assert_int_eq(cli_log_add_user(&log, "a\0b", 3, &err), DGEMMA_E_ARG);
    ck_assert_int_eq(cli_log_set_system(&log, "\xFF", &err), DGEMMA_E_ARG);
    ck_assert_uint_eq(cli_log_count(&log), 0);
    cli_log_clear(&log);
}
END_TEST

START_TEST(pictures_wait)
{
    cli_chat_log log;
    dgemma_error err;
    ck_assert(cli_log_init(&log));
    const char *picture = "tests/fixtures/golden/vision/image.png";
    ck_assert_int_eq(cli_log_add_picture(&log, picture, &err), DGEMMA_OK);
    ck_assert_int_eq(cli_log_add_picture(&log, "README.md", &err), DGEMMA_E_FORMAT);
    ck_assert_int_eq(cli_log_add_picture(&log, "tests", &err), DGEMMA_E_IO);
    ck_assert_uint_eq(cli_log_pictures(&log), 1);
    ck_assert_int_eq(cli_log_add_user(&log, "What is it?", 11, &err), DGEMMA_OK);
    ck_assert_uint_eq(cli_log_pictures(&log), 0);
    char *text = cli_log_text(&log);
    ck_assert(strstr(
        text, "[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,iVBOR"));
    ck_assert(strstr(text, "{\"type\":\"text\",\"text\":\"What is it?\"}]"));
    free(text);
    cli_log_drop_last(&log, true); /* the message is taken back, not the picture */
    ck_assert_uint_eq(cli_log_pictures(&log), 1);
    ck_assert_uint_eq(cli_log_count(&log), 0);
    ck_assert_int_eq(cli_log_add_user(&log, "And now?", 8, &err), DGEMMA_OK);
    cli_log_drop_last(&log, false);
    ck_assert_uint_eq(cli_log_pictures(&log) + cli_log_count(&log), 0);
    cli_log_clear(&log);
}
END_TEST

START_TEST(save_and_load)
{
    char dir[DG_TEST_PATH], path[DG_TEST_PATH];
    ck_assert(dg_test_temp_make(dir));
    dg_test_path(path, dir, "chat.json");
    cli_chat_log log, other;
    dgemma_error err;
    ck_assert(cli_log_init(&log) && cli_log_init(&other));
    ck_assert_int_eq(cli_log_add_user(&log, "\u05E9\u05DC\u05D5\u05DD\n\x01", 10, &err), DGEMMA_OK);
    add_answer(&log, "Yes.", "");
    ck_assert_int_eq(cli_log_save(&log, path, &err), DGEMMA_OK);
    ck_assert_int_eq(cli_log_save(&log, path, &err), DGEMMA_OK); /* over the old one */
    ck_assert_int_eq(cli_log_load(&other, path, &err), DGEMMA_OK);
    char *want = cli_log_text(&log);
    check_text(&other, want);
    free(want);
    ck_assert_int_eq(cli_log_save(&log, dir, &err), DGEMMA_E_IO);
    ck_assert_int_eq(cli_log_save(&log, "/nowhere/chat.json", &err), DGEMMA_E_IO);
    cli_log_clear(&log);
    cli_log_clear(&other);
    dg_test_temp_remove(dir);
}
END_TEST

static mode_t mode_of(const char *path)
{
    struct stat info;
    ck_assert_int_eq(lstat(path, &info), 0);
    return info.st_mode;
}

/* What a name stands for stays what it is: a link a link, a pipe a pipe, and a file's mode. */
START_TEST(saving_over_what_is_there)
{
    char dir[DG_TEST_PATH], file[DG_TEST_PATH], link[DG_TEST_PATH], other[DG_TEST_PATH];
    ck_assert(dg_test_temp_make(dir));
    dg_test_path(file, dir, "chat.json");
    dg_test_path(link, dir, "link.json");
    dg_test_path(other, dir, "other");
    cli_chat_log log;
    dgemma_error err;
    ck_assert(cli_log_init(&log));
    ck_assert_int_eq(cli_log_save(&log, file, &err), DGEMMA_OK);
    ck_assert_uint_eq(mode_of(file) & 0777, 0600); /* a new one: nobody else reads it */

    ck_assert_int_eq(chmod(file, 0640), 0);
    ck_assert_int_eq(symlink("chat.json", link), 0);
    ck_assert_int_eq(cli_log_add_user(&log, "Hi", 2, &err), DGEMMA_OK);
    ck_assert_int_eq(cli_log_save(&log, link, &err), DGEMMA_OK);
    ck_assert(S_ISLNK(mode_of(link)) && S_ISREG(mode_of(file)));
    ck_assert_uint_eq(mode_of(file) & 0777, 0640);
    cli_chat_log read;
    ck_assert(cli_log_init(&read));
    ck_assert_int_eq(cli_log_load(&read, file, &err), DGEMMA_OK);
    ck_assert_uint_eq(cli_log_count(&read), 1);
    cli_log_clear(&read);

    ck_assert_int_eq(unlink(file), 0); /* a link to nothing */
    ck_assert_int_eq(cli_log_save(&log, link, &err), DGEMMA_E_IO);
    ck_assert(S_ISLNK(mode_of(link)));
    ck_assert_int_eq(mkfifo(other, 0600), 0);
    ck_assert_int_eq(cli_log_save(&log, other, &err), DGEMMA_E_IO);
    ck_assert_msg(strstr(err.msg, "not a regular file") != NULL, "%s", err.msg);
    ck_assert(S_ISFIFO(mode_of(other)));
    cli_log_clear(&log);
    dg_test_temp_remove(dir);
}
END_TEST

START_TEST(files_that_are_none)
{
    static const char *const wrong[] = {
        "",
        "{}",
        "5",
        "\"text\"",
        "[",
        "[1]",
        "[{}]",
        "[{\"role\": 5}]",
        "[{\"role\": \"narrator\", \"content\": \"x\"}]",
        "[{\"role\": \"user\", \"content\": 5}]",
        "[{\"role\": \"user\", \"role\": \"user\"}]",
        "{\"messages\": {\"role\": \"user\"}}",
        "[{\"role\": \"user\", \"content\": \"\xFF\"}]",
    };
    char dir[DG_TEST_PATH], path[DG_TEST_PATH];
    ck_assert(dg_test_temp_make(dir));
    dg_test_path(path, dir, "chat.json");
    cli_chat_log log;
    dgemma_error err;
    ck_assert(cli_log_init(&log));
    ck_assert_int_eq(cli_log_add_user(&log, "kept", 4, &err), DGEMMA_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert(dg_test_write_file(dir, "chat.json", wrong[i], strlen(wrong[i])));
        ck_assert_msg(cli_log_load(&log, path, &err) == DGEMMA_E_FORMAT, "%s", wrong[i]);
        check_text(&log, "[{\"role\":\"user\",\"content\":\"kept\"}]");
    }
    ck_assert_int_eq(cli_log_load(&log, "/dev/zero", &err), DGEMMA_E_IO);
    const char *right =
        "{\"model\": \"x\", \"messages\": [{\"role\": \"tool\", \"content\": null}]}";
    ck_assert(dg_test_write_file(dir, "chat.json", right, strlen(right)));
    ck_assert_int_eq(cli_log_load(&log, path, &err), DGEMMA_OK);
    check_text(&log, "[{\"role\":\"tool\",\"content\":null}]");
    cli_log_clear(&log);
    dg_test_temp_remove(dir);
}
END_TEST

Suite *chat_log_suite(void)
{
    Suite *s = suite_create("chat_log");
    TCase *c = tcase_create("conversation");
    tcase_add_test(c, messages);
    tcase_add_test(c, pictures_wait);
    tcase_add_test(c, save_and_load);
    tcase_add_test(c, saving_over_what_is_there);
    tcase_add_test(c, files_that_are_none);
    suite_add_tcase(s, c);
    return s;
}
