/* base: errors, memory, buffers, arenas, files. */
#include "suites.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/error.h"
#include "base/file.h"
#include "base/new_file.h"
#include "support/alloc_fail.h"
#include "support/temp_dir.h"

/* ---- error ---- */

START_TEST(fail_fills_and_returns)
{
    dgemma_error err = {0};
    ck_assert_int_eq(dg_fail(&err, DGEMMA_E_FORMAT, "%s: %d", "a.bin", 7), DGEMMA_E_FORMAT);
    ck_assert_int_eq(err.status, DGEMMA_E_FORMAT);
    ck_assert_str_eq(err.msg, "a.bin: 7");
    ck_assert_int_eq(dg_fail(NULL, DGEMMA_E_IO, "nobody listens"), DGEMMA_E_IO);
}
END_TEST

START_TEST(fail_cuts_long_text)
{
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    dgemma_error err;
    dg_fail(&err, DGEMMA_E_IO, "%s", text);
    ck_assert_uint_eq(strlen(err.msg), sizeof err.msg - 1);
    dg_fail_prefix(&err, DGEMMA_E_IO, text);
    ck_assert_uint_lt(strlen(err.msg), sizeof err.msg);
}
END_TEST

START_TEST(prefix_goes_in_front)
{
    dgemma_error err;
    dg_fail(&err, DGEMMA_E_IO, "not found");
    ck_assert_int_eq(dg_fail_prefix(&err, DGEMMA_E_IO, "model"), DGEMMA_E_IO);
    ck_assert_str_eq(err.msg, "model: not found");
    ck_assert_int_eq(dg_fail_prefix(NULL, DGEMMA_E_IO, "model"), DGEMMA_E_IO);
}
END_TEST

/* ---- alloc ---- */

START_TEST(sizes_are_checked)
{
    size_t n = 99;
    ck_assert(dg_size_mul(&n, 6, 7) && n == 42);
    ck_assert(dg_size_mul(&n, SIZE_MAX, 0) && n == 0);
    ck_assert(dg_size_mul(&n, SIZE_MAX, 1) && n == SIZE_MAX);
    ck_assert(dg_size_add(&n, SIZE_MAX - 1, 1) && n == SIZE_MAX);
    n = 99;
    ck_assert(!dg_size_mul(&n, SIZE_MAX / 2 + 1, 2) && n == 99);
    ck_assert(!dg_size_add(&n, SIZE_MAX, 1) && n == 99);

    ck_assert_ptr_null(dg_array(SIZE_MAX / 2, 4));
    ck_assert_ptr_null(dg_array_resize(NULL, SIZE_MAX / 2, 4));
    ck_assert_ptr_null(dg_malloc_aligned(SIZE_MAX - 10));
}
END_TEST

START_TEST(memory_is_usable)
{
    for (size_t n = 0; n < 300; n += 7) {
        unsigned char *p = dg_malloc_aligned(n);
        ck_assert_ptr_nonnull(p);
        ck_assert_uint_eq((uintptr_t)p % 64, 0);
        memset(p, 1, n);
        dg_free(p);
    }
    const size_t large = (size_t)40 << 20; /* much of it in huge pages, if there are any */
    unsigned char *p = dg_malloc_aligned(large + 5);
    ck_assert_ptr_nonnull(p);
    ck_assert_uint_eq((uintptr_t)p % DG_HUGE_PAGE, 0);
    for (size_t i = 0; i < large + 5; i += 4096 * 97)
        p[i] = 1;
    p[large + 4] = 1;
    dg_free(p);
    void *nothing = dg_array(0, 8);
    ck_assert_ptr_nonnull(nothing); /* not the same as "no memory" */
    dg_free(nothing);
    char *s = dg_strndup("canvas", 3);
    ck_assert_str_eq(s, "can");
    dg_free(s);
    s = dg_strdup("");
    ck_assert_str_eq(s, "");
    dg_free(s);
    dg_free(NULL);
}
END_TEST

/* ---- buf ---- */

START_TEST(buf_grows_to_its_ceiling)
{
    dg_buf b;
    dg_buf_init(&b, 1000);
    for (size_t i = 0; i < 1000; i++) {
        char c = (char)('a' + i % 26);
        ck_assert(dg_buf_append(&b, &c, 1));
        ck_assert_uint_eq(b.len, i + 1);
        ck_assert_int_eq(b.data[i + 1], '\0');
    }
    ck_assert_uint_le(b.cap, 2001);
    for (size_t i = 0; i < 1000; i++)
        ck_assert_int_eq(b.data[i], (char)('a' + i % 26));

    ck_assert(!dg_buf_append(&b, "x", 1));
    ck_assert(!dg_buf_append(&b, "x", SIZE_MAX));
    ck_assert(dg_buf_append(&b, NULL, 0));
    ck_assert_uint_eq(b.len, 1000);
    dg_buf_clear(&b);
    ck_assert_ptr_null(b.data);
    ck_assert(dg_buf_puts(&b, "again"));
    ck_assert_str_eq(b.data, "again");
    dg_buf_clear(&b);
}
END_TEST

START_TEST(buf_refuses_what_cannot_fit)
{
    dg_buf b;
    dg_buf_init(&b, 0);
    ck_assert(dg_buf_puts(&b, ""));
    ck_assert_str_eq(b.data, "");
    ck_assert(!dg_buf_puts(&b, "x"));
    dg_buf_clear(&b);

    dg_buf_init(&b, 4);
    ck_assert(!dg_buf_puts(&b, "12345"));
    ck_assert_uint_eq(b.len, 0);
    ck_assert(dg_buf_puts(&b, "1234"));
    dg_buf_clear(&b);
}
END_TEST

START_TEST(buf_survives_every_failed_allocation)
{
    bool walked = false;
    for (long n = 1; !walked; n++) {
        ck_assert_int_lt(n, 100);
        dg_buf b;
        dg_buf_init(&b, 1 << 20);
        size_t lost = 0;
        dg_test_fail_alloc_at(n);
        for (size_t i = 0; i < 2000; i++)
            lost += !dg_buf_append(&b, "abc", 3);
        walked = !dg_test_alloc_done();
        ck_assert_uint_eq(lost, walked ? 0 : 1);
        ck_assert_uint_eq(b.len, 3 * (2000 - lost));
        for (size_t i = 0; i < b.len; i++)
            if (b.data[i] != "abc"[i % 3])
                ck_abort_msg("byte %zu changed", i);
        dg_buf_clear(&b);
    }
}
END_TEST

/* ---- arena ---- */

START_TEST(arena_hands_out_aligned_pieces)
{
    dg_arena a;
    ck_assert(dg_arena_init(&a, 1000));
    unsigned char *last = NULL;
    for (size_t n = 1; n < 6; n++) {
        unsigned char *p = dg_arena_take(&a, n, 10);
        ck_assert_ptr_nonnull(p);
        ck_assert_uint_eq((uintptr_t)p % 64, 0);
        ck_assert(!last || p == last + 64);
        memset(p, (int)n, n * 10);
        last = p;
    }
    dg_arena_clear(&a);
    dg_arena_clear(&a);
}
END_TEST

START_TEST(arena_ends_at_its_capacity)
{
    dg_arena a;
    ck_assert(dg_arena_init(&a, 100));
    ck_assert_ptr_null(dg_arena_take(&a, 101, 1));
    ck_assert_ptr_null(dg_arena_take(&a, SIZE_MAX / 2, 4));
    size_t mark = dg_arena_mark(&a);
    void *whole = dg_arena_take(&a, 100, 1);
    ck_assert_ptr_nonnull(whole);
    ck_assert_ptr_null(dg_arena_take(&a, 1, 1));
    dg_arena_rewind(&a, mark);
    ck_assert_ptr_eq(dg_arena_take(&a, 50, 1), whole);
    ck_assert_ptr_null(dg_arena_take(&a, 37, 1)); /* the first 50 took 64 */
    ck_assert_ptr_nonnull(dg_arena_take(&a, 36, 1));
    dg_arena_clear(&a);
}
END_TEST

START_TEST(arena_without_memory)
{
    dg_arena a;
    dg_test_fail_alloc_at(1);
    bool ok = dg_arena_init(&a, 100);
    ck_assert(dg_test_alloc_done());
    ck_assert(!ok);
    dg_arena_clear(&a);
    ck_assert(!dg_arena_init(&a, SIZE_MAX));
    dg_arena_clear(&a);
}
END_TEST

/* ---- file ---- */

static char folder[DG_TEST_PATH];

/* Whether byte i is i % 251: what make_file writes. Check's own assertions are slow in long loops.
 */
static bool counts_up(const void *data, size_t n)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < n; i++)
        if (byte[i] != i % 251)
            return false;
    return true;
}

static void make_folder(void)
{
    ck_assert(dg_test_temp_make(folder));
}

static void remove_folder(void)
{
    dg_test_temp_remove(folder);
}

/* A file of `n` bytes; the path is the caller's. */
static char *make_file(size_t n)
{
    char *path = dg_path_join(folder, "file");
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    for (size_t i = 0; i < n; i++)
        putc((int)(i % 251), f);
    ck_assert_int_eq(fclose(f), 0);
    return path;
}

START_TEST(file_map_shows_the_bytes)
{
    char *path = make_file(10000);
    dg_file_map map;
    dgemma_error err;
    ck_assert_int_eq(dg_file_map_open(&map, path, &err), DGEMMA_OK);
    ck_assert_uint_eq(map.size, 10000);
    ck_assert(counts_up(map.data, map.size));
    dg_file_map_close(&map);
    dg_file_map_close(&map);
    dg_free(path);

    path = make_file(0);
    ck_assert_int_eq(dg_file_map_open(&map, path, &err), DGEMMA_OK);
    ck_assert_ptr_null(map.data);
    ck_assert_uint_eq(map.size, 0);
    dg_file_map_close(&map);
    dg_free(path);
}
END_TEST

START_TEST(file_map_names_what_it_cannot_open)
{
    dg_file_map map;
    dgemma_error err;
    ck_assert_int_eq(dg_file_map_open(&map, "/nowhere/at/all", &err), DGEMMA_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "/nowhere/at/all: "));
    ck_assert_int_eq(dg_file_map_open(&map, folder, &err), DGEMMA_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, folder));
    ck_assert_ptr_null(map.data);
    ck_assert_int_eq(dg_file_map_open(&map, "/dev/null", NULL), DGEMMA_E_IO);
    dg_file_map_close(&map);
}
END_TEST

/* Cut short under its map: told by its size, and zeros in the place of what is gone. */
START_TEST(file_map_outlives_its_file)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 4 * page + 100;
    char *path = make_file(size);
    dg_file_map map;
    dgemma_error err;
    ck_assert_int_eq(dg_file_map_open(&map, path, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_file_map_check(&map, path, &err), DGEMMA_OK);
    ck_assert_int_eq(truncate(path, (off_t)(size - 1)), 0); /* nothing would signal that */
    ck_assert_int_eq(dg_file_map_check(&map, path, &err), DGEMMA_E_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, path));
    ck_assert_int_eq(truncate(path, (off_t)(2 * page)), 0);
    ck_assert_int_eq(dg_file_map_check(&map, path, &err), DGEMMA_E_IO);

    ck_assert(!dg_file_map_patch(&map, map.data + size));
    ck_assert(!dg_file_map_patch(&map, map.data - 1));
    ck_assert(!dg_file_map_patch(&(dg_file_map){0}, NULL));
    ck_assert(dg_file_map_patch(&map, map.data + 2 * page + 17));
    ck_assert(counts_up(map.data, 2 * page));
    for (size_t i = 2 * page; i < size; i++)
        ck_assert_uint_eq(map.data[i], 0);
    ck_assert_int_eq(truncate(path, (off_t)size), 0); /* too late */
    ck_assert_int_eq(dg_file_map_check(&map, path, &err), DGEMMA_E_IO);
    dg_file_map_close(&map);

    /* a file that takes the name of the mapped one does it no harm */
    ck_assert_int_eq(dg_file_map_open(&map, path, &err), DGEMMA_OK);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(dg_file_map_check(&map, path, &err), DGEMMA_OK);
    dg_free(path);
    path = make_file(10);
    ck_assert_int_eq(dg_file_map_check(&map, path, &err), DGEMMA_OK);
    dg_file_map_close(&map);
    dg_free(path);
}
END_TEST

START_TEST(file_read_appends_up_to_the_ceiling)
{
    char *path = make_file(50000);
    dgemma_error err;
    dg_buf b;
    dg_buf_init(&b, 50001);
    ck_assert(dg_buf_puts(&b, "!"));
    ck_assert_int_eq(dg_file_read(&b, path, &err), DGEMMA_OK);
    ck_assert_uint_eq(b.len, 50001);
    ck_assert(counts_up(b.data + 1, b.len - 1));
    dg_buf_clear(&b);

    dg_buf_init(&b, 49999);
    ck_assert_int_eq(dg_file_read(&b, path, &err), DGEMMA_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, path));
    ck_assert_uint_le(b.len, 49999);
    dg_buf_clear(&b);

    /* endless, and stopped all the same */
    dg_buf_init(&b, 100000);
    ck_assert_int_eq(dg_file_read(&b, "/dev/zero", &err), DGEMMA_E_LIMIT);
    ck_assert_int_eq(dg_file_read(&b, "/nowhere/at/all", &err), DGEMMA_E_IO);
    ck_assert_int_eq(dg_file_read(&b, folder, &err), DGEMMA_E_IO);
    dg_buf_clear(&b);
    dg_free(path);
}
END_TEST

/* /proc is a file system without any room. */
START_TEST(sizes_that_do_not_fit_are_told)
{
    static const struct {
        uint64_t bytes;
        const char *told;
    } cases[] = {
        {40000, "takes 0.04 MB, and 0 MB are free"},
        {51234567, "takes 51.2 MB, and 0 MB"},
        {99999999, "takes 100 MB"},
        {100000000, "takes 0.1 GB, and 0 MB"},
        {50600000000, "takes 50.6 GB"},
    };
    dgemma_error err;
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        ck_assert_int_eq(dg_new_file_check("/proc/new.gguf", cases[i].bytes, false, &err),
                         DGEMMA_E_IO);
        ck_assert_msg(strstr(err.msg, cases[i].told), "%s", err.msg);
    }
}
END_TEST

START_TEST(file_read_takes_standard_input)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(write(ends[1], "from a pipe", 11), 11);
    close(ends[1]);
    ck_assert_int_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    dg_buf b;
    dg_buf_init(&b, 100);
    ck_assert_int_eq(dg_file_read(&b, "-", NULL), DGEMMA_OK);
    ck_assert_str_eq(b.data, "from a pipe");
    dg_buf_clear(&b);
}
END_TEST

START_TEST(file_read_without_memory_fails)
{
    char *path = make_file(50000);
    bool walked = false;
    for (long n = 1; !walked; n++) {
        ck_assert_int_lt(n, 100);
        dg_buf b;
        dg_buf_init(&b, 1 << 20);
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_file_read(&b, path, NULL);
        walked = !dg_test_alloc_done();
        ck_assert(walked ? st == DGEMMA_OK : st != DGEMMA_OK);
        dg_buf_clear(&b);
    }
    dg_free(path);
}
END_TEST

START_TEST(paths)
{
    static const struct {
        const char *dir, *name, *want;
    } cases[] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"},    {"a///", "b", "a/b"},
        {"/", "b", "//b"}, {".", "b/c", "./b/c"}, {"", "b", "/b"},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        char *path = dg_path_join(cases[i].dir, cases[i].name);
        ck_assert_str_eq(path, cases[i].want);
        dg_free(path);
    }
    dg_test_fail_alloc_at(1);
    char *path = dg_path_join("a", "b");
    ck_assert(dg_test_alloc_done());
    ck_assert_ptr_null(path);

    ck_assert(dg_file_is_dir(folder) && dg_file_exists(folder));
    path = make_file(1);
    ck_assert(!dg_file_is_dir(path) && dg_file_exists(path));
    ck_assert(!dg_file_is_dir("/nowhere/at/all") && !dg_file_exists("/nowhere/at/all"));
    dg_free(path);
}
END_TEST

/* ---- small things ---- */

START_TEST(clock_goes_forward)
{
    double last = dg_clock_now();
    for (int i = 0; i < 1000; i++) {
        double now = dg_clock_now();
        ck_assert_double_ge(now, last);
        last = now;
    }
}
END_TEST

START_TEST(integer_helpers)
{
    ck_assert_int_eq(dg_min(-3, 2), -3);
    ck_assert_int_eq(dg_max(-3, 2), 2);
    ck_assert_int_eq(dg_ceil_div(0, 16), 0);
    ck_assert_int_eq(dg_ceil_div(16, 16), 1);
    ck_assert_int_eq(dg_ceil_div(17, 16), 2);
}
END_TEST

Suite *base_suite(void)
{
    Suite *s = suite_create("base");
    TCase *c = tcase_create("error");
    tcase_add_test(c, fail_fills_and_returns);
    tcase_add_test(c, fail_cuts_long_text);
    tcase_add_test(c, prefix_goes_in_front);
    suite_add_tcase(s, c);

    c = tcase_create("memory");
    tcase_add_test(c, sizes_are_checked);
    tcase_add_test(c, memory_is_usable);
    tcase_add_test(c, buf_grows_to_its_ceiling);
    tcase_add_test(c, buf_refuses_what_cannot_fit);
    tcase_add_test(c, buf_survives_every_failed_allocation);
    tcase_add_test(c, arena_hands_out_aligned_pieces);
    tcase_add_test(c, arena_ends_at_its_capacity);
    tcase_add_test(c, arena_without_memory);
    suite_add_tcase(s, c);

    c = tcase_create("file");
    tcase_add_unchecked_fixture(c, make_folder, remove_folder);
    tcase_add_test(c, file_map_shows_the_bytes);
    tcase_add_test(c, file_map_outlives_its_file);
    tcase_add_test(c, file_map_names_what_it_cannot_open);
    tcase_add_test(c, file_read_appends_up_to_the_ceiling);
    tcase_add_test(c, sizes_that_do_not_fit_are_told);
    tcase_add_test(c, file_read_takes_standard_input);
    tcase_add_test(c, file_read_without_memory_fails);
    tcase_add_test(c, paths);
    suite_add_tcase(s, c);

    c = tcase_create("small");
    tcase_add_test(c, clock_goes_forward);
    tcase_add_test(c, integer_helpers);
    suite_add_tcase(s, c);
    return s;
}
