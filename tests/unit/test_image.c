/* Pictures: the pixels of PIL for every kind of file, and hostile ones. */
#include "suites.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "base/file.h"
#include "format/safetensors.h"
#include "image/image.h"
#include "support/alloc_fail.h"

#define DATA "tests/data/images/"

/* ---- the pictures of tests/data/images ---- */

static dg_file_map file;
static dg_safetensors pictures;

static void open_pictures(void)
{
    dgemma_error err;
    ck_assert_msg(dg_file_map_open(&file, DATA "decode.safetensors", &err) == DGEMMA_OK, "%s",
                  err.msg);
    ck_assert_int_eq(dg_safetensors_parse(&pictures, file.data, file.size, "decode", &err),
                     DGEMMA_OK);
}

static void close_pictures(void)
{
    dg_safetensors_clear(&pictures);
    dg_file_map_close(&file);
}

static const dg_tensor *picture(const char *name, const char *part)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, part);
    const dg_tensor *t = dg_safetensors_find(&pictures, full);
    ck_assert_msg(t != NULL, "%s", full);
    return t;
}

/* A copy of a picture's file, exactly as long, so that a sanitizer sees a read past the end. */
static uint8_t *copy_file(const char *name, size_t *size)
{
    const dg_tensor *t = picture(name, "file");
    uint8_t *p = malloc(t->bytes);
    ck_assert_ptr_nonnull(p);
    memcpy(p, t->data, t->bytes);
    *size = t->bytes;
    return p;
}

static void check_decodes(const char *name)
{
    const dg_tensor *want = picture(name, "rgb");
    size_t size;
    uint8_t *data = copy_file(name, &size);
    dg_image img;
    dgemma_error err = {0};
    ck_assert_msg(dg_image_decode(&img, data, size, NULL, &err) == DGEMMA_OK, "%s: %s", name,
                  err.msg);
    ck_assert_msg(img.height == want->shape[0] && img.width == want->shape[1],
                  "%s is %d x %d, PIL has %d x %d", name, img.width, img.height,
                  (int)want->shape[1], (int)want->shape[0]);
    const uint8_t *p = want->data;
    for (size_t i = 0; i < want->bytes; i++)
        ck_assert_msg(img.rgb[i] == p[i], "%s: byte %zu is %d, PIL has %d", name, i, img.rgb[i],
                      p[i]);
    dg_image_clear(&img);
    dg_image_clear(&img); /* twice is fine */
    free(data);
}

START_TEST(pixels_are_those_of_pil)
{
    int n = 0;
    for (size_t i = 0; i < pictures.n_tensor; i++) {
        char name[64];
        size_t len = strlen(pictures.tensor[i].name);
        if (len < 5 || strcmp(pictures.tensor[i].name + len - 4, ".rgb") != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)len - 4, pictures.tensor[i].name);
        check_decodes(name);
        n++;
    }
    ck_assert_int_ge(n, 70);
}
END_TEST

/* ---- hostile files ---- */

static dgemma_status decode(const void *data, size_t size, dgemma_error *err)
{
    dg_image img = {.width = 1};
    dgemma_status st = dg_image_decode(&img, data, size, NULL, err);
    if (st) {
        ck_assert_int_eq(err->status, st);
        ck_assert_ptr_null(img.rgb);
        ck_assert_int_eq(img.width, 0);
    }
    dg_image_clear(&img);
    return st;
}

static void check_fails(const void *data, size_t size, dgemma_status want, const char *saying)
{
    dgemma_error err = {0};
    ck_assert_int_eq(decode(data, size, &err), want);
    ck_assert_msg(strstr(err.msg, saying) != NULL, "%s", err.msg);
}

static const char *const one_of_each[] = {
    "png_2_8",    "png_0_16_interlaced", "jpeg_420",    "jpeg_progressive",
    "webp_lossy", "webp_animated",       "gif_animated"};

START_TEST(a_file_cut_anywhere)
{
    for (size_t k = 0; k < DG_COUNT(one_of_each); k++) {
        const dg_tensor *t = picture(one_of_each[k], "file");
        int n_good = 0;
        for (size_t n = 0; n < t->bytes; n++) {
            uint8_t *cut = malloc(n + 1);
            memcpy(cut, t->data, n);
            dgemma_error err = {0};
            n_good += decode(cut, n, &err) == DGEMMA_OK;
            free(cut);
        }
        /* What lies behind the first frame's pixels may be missing. */
        ck_assert_msg(n_good < (int)t->bytes / 2 + 400, "%s", one_of_each[k]);
    }
}
END_TEST

START_TEST(a_byte_changed_anywhere)
{
    for (size_t k = 0; k < DG_COUNT(one_of_each); k++) {
        size_t size;
        uint8_t *data = copy_file(one_of_each[k], &size);
        for (size_t i = 0; i < size; i++) {
            dgemma_error err = {0};
            data[i] ^= 0xff;
            decode(data, size, &err);
            data[i] ^= 0xff;
        }
        free(data);
    }
}
END_TEST

START_TEST(nothing_and_nonsense)
{
    check_fails(NULL, 0, DGEMMA_E_FORMAT, "0 bytes");
    check_fails("G", 1, DGEMMA_E_UNSUPPORTED, "neither PNG");
    check_fails("%PDF-1.7 not a picture", 22, DGEMMA_E_UNSUPPORTED, "neither PNG");
    check_fails("\x89PNG\r\n\x1a\n", 8, DGEMMA_E_FORMAT, "PNG");
    check_fails("\xff\xd8\xff", 3, DGEMMA_E_FORMAT, "JPEG");
    check_fails("RIFF\4\0\0\0WEBP", 12, DGEMMA_E_FORMAT, "WebP");
    check_fails("GIF89a", 6, DGEMMA_E_FORMAT, "GIF");
    check_fails("GIF89a\5\0\5\0\0\0\0;", 14, DGEMMA_E_FORMAT, "no picture in it");
}
END_TEST

/* PNG's header of a given size over another's data; its checksum, too. */
static uint8_t *png_of_size(uint32_t width, uint32_t height, size_t *size)
{
    uint8_t *p = copy_file("png_2_8", size);
    for (int i = 0; i < 4; i++) {
        p[16 + i] = (uint8_t)(width >> (24 - 8 * i));
        p[20 + i] = (uint8_t)(height >> (24 - 8 * i));
    }
    uint32_t crc = 0xffffffff;
    for (int i = 12; i < 29; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    for (int i = 0; i < 4; i++)
        p[29 + i] = (uint8_t)(~crc >> (24 - 8 * i));
    return p;
}

static void check_png_size(uint32_t width, uint32_t height, dgemma_status want, const char *saying)
{
    size_t size;
    uint8_t *p = png_of_size(width, height, &size);
    check_fails(p, size, want, saying);
    free(p);
}

START_TEST(a_png_says_it_is_huge)
{
    check_png_size(60000, 60000, DGEMMA_E_LIMIT, "60000 x 60000");
    check_png_size(10001, 10000, DGEMMA_E_LIMIT, "at most 100000000");
    check_png_size(100000, 1, DGEMMA_E_LIMIT, "100000 x 1 pixels, at most 65535 a side");
    check_png_size(0x7fffffff, 0x7fffffff, DGEMMA_E_LIMIT, "2147483647");
    check_png_size(0, 5, DGEMMA_E_FORMAT, "PNG");
    /* Within the limits, but there is no more than a small picture's data. */
    check_png_size(9000, 11000, DGEMMA_E_FORMAT, "PNG");
}
END_TEST

/* A chunk may claim any length; no memory is taken for what is not there. */
START_TEST(a_png_chunk_says_it_is_huge)
{
    size_t size;
    uint8_t *p = copy_file("png_exif", &size);
    ck_assert_mem_eq(p + 37, "eXIf", 4);
    memcpy(p + 33, "\x7f\xff\xff\xff", 4);
    check_fails(p, size, DGEMMA_E_FORMAT, "ends early");
    free(p);
}
END_TEST

/* A JPEG's frame header holds height and width, big end first. */
static void set_jpeg_size(uint8_t *p, size_t size, int width, int height)
{
    for (size_t i = 0; i + 9 < size; i++)
        if (p[i] == 0xff && (p[i + 1] == 0xc0 || p[i + 1] == 0xc2)) {
            p[i + 5] = (uint8_t)(height >> 8);
            p[i + 6] = (uint8_t)height;
            p[i + 7] = (uint8_t)(width >> 8);
            p[i + 8] = (uint8_t)width;
            return;
        }
    ck_abort_msg("no frame header");
}

START_TEST(others_say_they_are_huge)
{
    static const char *const jpegs[] = {"jpeg_420", "jpeg_progressive"};
    size_t size;
    for (size_t i = 0; i < DG_COUNT(jpegs); i++) {
        uint8_t *p = copy_file(jpegs[i], &size);
        set_jpeg_size(p, size, 60000, 60000);
        check_fails(p, size, DGEMMA_E_LIMIT, "60000 x 60000");
        set_jpeg_size(p, size, 13, 0);
        check_fails(p, size, DGEMMA_E_FORMAT, "JPEG");
        free(p);
    }
    uint8_t *gif = copy_file("gif_offset", &size);
    memset(gif + 6, 0xff, 4);
    check_fails(gif, size, DGEMMA_E_LIMIT, "65535 x 65535");
    free(gif);

    uint8_t *webp = copy_file("webp_animated", &size);
    ck_assert_mem_eq(webp + 12, "VP8X", 4);
    for (int i = 24; i < 30; i += 3) { /* 16,384 each way */
        webp[i] = 0xff;
        webp[i + 1] = 0x3f;
        webp[i + 2] = 0;
    }
    check_fails(webp, size, DGEMMA_E_LIMIT, "16384 x 16384");
    free(webp);
}
END_TEST

START_TEST(limits_are_the_callers)
{
    size_t size;
    uint8_t *p = copy_file("png_2_8", &size);
    const dg_image_limits limits[] = {{.max_bytes = size - 1, .max_pixels = 1000, .max_side = 99},
                                      {.max_bytes = size, .max_pixels = 13 * 9 - 1, .max_side = 99},
                                      {.max_bytes = size, .max_pixels = 13 * 9, .max_side = 13}};
    dg_image img;
    ck_assert_int_eq(dg_image_decode(&img, p, size, &limits[0], NULL), DGEMMA_E_LIMIT);
    ck_assert_int_eq(dg_image_decode(&img, p, size, &limits[1], NULL), DGEMMA_E_LIMIT);
    ck_assert_int_eq(dg_image_decode(&img, p, size, &limits[2], NULL), DGEMMA_OK);
    dg_image_clear(&img);
    free(p);
}
END_TEST

/* Broken EXIF data leaves the picture as it is: every byte of it is spoilt in turn. */
START_TEST(broken_exif_is_ignored)
{
    size_t size;
    uint8_t *p = copy_file("jpeg_exif_6", &size);
    uint8_t *exif = memmem(p, size, "Exif", 4);
    ck_assert_ptr_nonnull(exif);
    for (int i = 0; i < 40; i++)
        for (int v = 0; v < 256; v += 15) {
            dgemma_error err = {0};
            uint8_t old = exif[i];
            exif[i] = (uint8_t)v;
            ck_assert_msg(decode(p, size, &err) == DGEMMA_OK, "byte %d: %s", i, err.msg);
            exif[i] = old;
        }
    free(p);
}
END_TEST

/* A scan costs a pass over the whole picture, however short it is. */
START_TEST(a_jpeg_of_very_many_scans)
{
    size_t size;
    uint8_t *p = copy_file("jpeg_progressive", &size);
    uint8_t *last = NULL;
    for (size_t i = 0; i + 1 < size; i++)
        if (p[i] == 0xff && p[i + 1] == 0xda)
            last = p + i;
    ck_assert_ptr_nonnull(last);
    size_t n_head = (size_t)(last - p), n_scan = size - 2 - n_head, n_copy = 300;
    uint8_t *many = malloc(n_head + n_copy * n_scan + 2);
    memcpy(many, p, n_head);
    for (size_t i = 0; i < n_copy; i++)
        memcpy(many + n_head + i * n_scan, last, n_scan);
    memcpy(many + n_head + n_copy * n_scan, "\xff\xd9", 2);
    check_fails(many, n_head + n_copy * n_scan + 2, DGEMMA_E_LIMIT, "more than 100 scans");
    free(many);
    free(p);
}
END_TEST

START_TEST(memory_runs_out)
{
    static const char *const names[] = {"png_3_8",   "png_raw_profile", "jpeg_exif_6",
                                        "jpeg_cmyk", "webp_xmp",        "gif_offset"};
    for (size_t k = 0; k < DG_COUNT(names); k++) {
        const dg_tensor *t = picture(names[k], "file");
        for (long n = 1;; n++) {
            dg_image img;
            dg_test_fail_alloc_at(n);
            dgemma_status st = dg_image_decode(&img, t->data, t->bytes, NULL, NULL);
            bool reached = dg_test_alloc_done();
            bool empty = !img.rgb;
            dg_image_clear(&img);
            if (!reached) {
                ck_assert_int_eq(st, DGEMMA_OK);
                ck_assert_int_gt((int)n, 1);
                break;
            }
            ck_assert_msg(st == DGEMMA_E_NOMEM && empty, "%s, allocation %ld: %d", names[k], n, st);
        }
    }
}
END_TEST

Suite *image_suite(void)
{
    Suite *s = suite_create("image");
    TCase *t = tcase_create("decode");
    tcase_add_checked_fixture(t, open_pictures, close_pictures);
    tcase_add_test(t, pixels_are_those_of_pil);
    tcase_add_test(t, memory_runs_out);
    suite_add_tcase(s, t);

    t = tcase_create("hostile");
    tcase_add_checked_fixture(t, open_pictures, close_pictures);
    tcase_add_test(t, a_file_cut_anywhere);
    tcase_add_test(t, a_byte_changed_anywhere);
    tcase_add_test(t, nothing_and_nonsense);
    tcase_add_test(t, a_png_says_it_is_huge);
    tcase_add_test(t, a_png_chunk_says_it_is_huge);
    tcase_add_test(t, others_say_they_are_huge);
    tcase_add_test(t, limits_are_the_callers);
    tcase_add_test(t, broken_exif_is_ignored);
    tcase_add_test(t, a_jpeg_of_very_many_scans);
    suite_add_tcase(s, t);
    return s;
}
