/* Sizes, resizing and patches against what transformers' processor makes. */
#include "suites.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "base/file.h"
#include "format/safetensors.h"
#include "image/preprocess.h"
#include "image/resize.h"
#include "support/alloc_fail.h"

#define DATA "tests/data/images/"

static const dg_patch_rule budget_70 = {.patch = 16, .pool = 3, .max_soft = 70};

/* ---- sizes ---- */

START_TEST(sizes_of_the_model_card)
{
    static const struct {
        int w, h, budget, tw, th;
    } cases[] = {
        {1024, 1024, 70, 384, 384}, {1024, 1024, 280, 768, 768},  {1024, 1024, 1120, 1584, 1584},
        {1024, 768, 140, 624, 480}, {1024, 768, 280, 912, 672},   {1024, 768, 560, 1296, 960},
        {1920, 1080, 70, 528, 288}, {1920, 1080, 280, 1056, 576}, {1920, 1080, 1120, 2112, 1200},
        {960, 672, 280, 960, 672},  {960, 672, 1120, 1920, 1344}, {1, 1, 280, 768, 768},
        {65535, 1, 280, 13440, 48}, {1, 65535, 280, 48, 13440},   {3000, 10, 280, 13440, 48},
        {29, 512, 70, 48, 1680},
    };
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        int tw = 0, th = 0;
        const dg_patch_rule rule = {.patch = 16, .pool = 3, .max_soft = cases[i].budget};
        ck_assert_int_eq(dg_image_target_size(cases[i].w, cases[i].h, &rule, &tw, &th, NULL),
                         DGEMMA_OK);
        ck_assert_msg(tw == cases[i].tw && th == cases[i].th, "%d x %d at %d: %d x %d", cases[i].w,
                      cases[i].h, cases[i].budget, tw, th);
    }
}
END_TEST

START_TEST(every_size_fits_the_budget)
{
    for (int w = 1; w < 70000; w += w / 7 + 1)
        for (int h = 1; h < 70000; h += h / 5 + 1) {
            int tw, th;
            ck_assert_int_eq(dg_image_target_size(w, h, &budget_70, &tw, &th, NULL), DGEMMA_OK);
            ck_assert(tw >= 48 && th >= 48 && tw % 48 == 0 && th % 48 == 0);
            ck_assert_int_le(tw / 48 * (th / 48), 70);
        }
}
END_TEST

START_TEST(rules_that_make_no_sense)
{
    static const dg_patch_rule bad[] = {{0, 3, 70},    {16, 0, 70},  {16, 3, 0},
                                        {1000, 3, 70}, {16, 99, 70}, {16, 3, 1 << 30}};
    int tw, th;
    dg_patches p;
    dg_image img = {0};
    for (size_t i = 0; i < DG_COUNT(bad); i++)
        ck_assert_int_eq(dg_image_target_size(10, 10, &bad[i], &tw, &th, NULL), DGEMMA_E_ARG);
    ck_assert_int_eq(dg_image_prepare(&p, &img, &budget_70, NULL), DGEMMA_E_ARG);
    ck_assert_ptr_null(p.resized);
}
END_TEST

/* ---- pixels ---- */

/* The picture of each NAME.torch, from its file. */
static void check_picture(const dg_safetensors *expected, const char *name)
{
    char path[128], key[64];
    dgemma_error err = {0};
    dg_file_map map;
    snprintf(path, sizeof path, DATA "%s.%s", name, strcmp(name, "landscape") ? "png" : "jpg");
    ck_assert_msg(dg_file_map_open(&map, path, &err) == DGEMMA_OK, "%s", err.msg);
    dg_image img;
    dg_patches got;
    ck_assert_msg(dg_image_decode(&img, map.data, map.size, NULL, &err) == DGEMMA_OK, "%s",
                  err.msg);
    ck_assert_int_eq(dg_image_prepare(&got, &img, &budget_70, &err), DGEMMA_OK);
    dg_image_clear(&img);
    dg_file_map_close(&map);

    snprintf(key, sizeof key, "%s.size", name);
    int64_t size[3];
    memcpy(size, dg_safetensors_find(expected, key)->data, sizeof size);
    ck_assert_int_eq(got.rows, size[0]);
    ck_assert_int_eq(got.cols, size[1]);
    ck_assert_int_eq(got.n_soft, size[2]);

    snprintf(key, sizeof key, "%s.torch", name);
    const dg_tensor *want = dg_safetensors_find(expected, key);
    ck_assert_int_eq(want->shape[0], got.rows * 16);
    ck_assert_int_eq(want->shape[1], got.cols * 16);
    const uint8_t *p = want->data;
    /* A JPEG decoder of another version may round otherwise; the resizing itself is exact. */
    size_t n_other = 0;
    for (size_t i = 0; i < want->bytes; i++) {
        int d = abs(got.resized[i] - p[i]);
        if (d > 1)
            ck_abort_msg("%s: byte %zu is %d, not %d", name, i, got.resized[i], p[i]);
        n_other += d != 0;
    }
    if (strcmp(name, "landscape") != 0)
        ck_assert_uint_eq(n_other, 0);
    ck_assert_uint_le(n_other * 1000, want->bytes);
    dg_patches_clear(&got);
}

START_TEST(pictures_as_transformers_has_them)
{
    static const char *const names[] = {"alpha",  "grey",  "landscape", "portrait",
                                        "square", "strip", "tiny",      "tower"};
    dg_file_map map;
    dg_safetensors expected;
    dgemma_error err;
    ck_assert_int_eq(dg_file_map_open(&map, DATA "expected.safetensors", &err), DGEMMA_OK);
    ck_assert_int_eq(dg_safetensors_parse(&expected, map.data, map.size, "expected", &err),
                     DGEMMA_OK);
    for (size_t i = 0; i < DG_COUNT(names); i++)
        check_picture(&expected, names[i]);
    dg_safetensors_clear(&expected);
    dg_file_map_close(&map);
}
END_TEST

/* A picture that Python draws just as well. */
static dg_image draw(int w, int h)
{
    dg_image img = {.width = w, .height = h, .rgb = malloc((size_t)w * (size_t)h * 3)};
    ck_assert_ptr_nonnull(img.rgb);
    uint8_t *p = img.rgb;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++)
                *p++ = (uint8_t)(((x * (7 + c)) ^ (y * (3 + c))) + (x * y >> (6 + c)));
    return img;
}

static uint32_t adler32(const uint8_t *p, size_t n)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; i++) {
        a = (a + p[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

/* Checksums of what transformers 5.22 and torchvision 0.29 give for the same pictures. */
START_TEST(photographs_shrink_exactly)
{
    static const struct {
        int w, h, budget, rows, cols;
        uint32_t sum;
    } cases[] = {{4032, 3024, 280, 42, 57, 0x07e7e752},
                 {3024, 4032, 1120, 114, 84, 0x63b211ce},
                 {333, 222, 140, 27, 42, 0x3507ec2a}};
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        dg_image img = draw(cases[i].w, cases[i].h);
        dg_patches got;
        const dg_patch_rule rule = {.patch = 16, .pool = 3, .max_soft = cases[i].budget};
        ck_assert_int_eq(dg_image_prepare(&got, &img, &rule, NULL), DGEMMA_OK);
        ck_assert_int_eq(got.rows, cases[i].rows);
        ck_assert_int_eq(got.cols, cases[i].cols);
        ck_assert_uint_eq(adler32(got.resized, (size_t)got.rows * (size_t)got.cols * 768),
                          cases[i].sum);
        dg_patches_clear(&got);
        free(img.rgb);
    }
}
END_TEST

START_TEST(patches_are_cut_from_the_picture)
{
    dg_image img = draw(9 * 4, 6 * 4); /* as large as the budget allows: nothing is resampled */
    const dg_patch_rule rule = {.patch = 4, .pool = 3, .max_soft = 6};
    dg_patches p;
    ck_assert_int_eq(dg_image_prepare(&p, &img, &rule, NULL), DGEMMA_OK);
    ck_assert_int_eq(p.rows, 6);
    ck_assert_int_eq(p.cols, 9);
    ck_assert_int_eq(p.n_soft, 6);
    ck_assert_uint_eq(dg_patches_bytes(&p), 36 * 24 * 3);
    ck_assert_mem_eq(p.resized, img.rgb, 36 * 24 * 3);
    static float pixels[36 * 24 * 3];
    dg_patches_cut(&p, pixels);
    for (int y = 0; y < 24; y++)
        for (int x = 0; x < 36; x++)
            for (int c = 0; c < 3; c++) {
                int patch = y / 4 * 9 + x / 4, inside = (y % 4 * 4 + x % 4) * 3 + c;
                float want = (float)img.rgb[(y * 36 + x) * 3 + c] * (float)(1 / 255.0);
                if (pixels[patch * 48 + inside] != want)
                    ck_abort_msg("pixel %d, %d", x, y);
            }
    dg_patches_clear(&p);
    dg_patches_clear(&p); /* twice is fine */
    free(img.rgb);
}
END_TEST

/* One axis may stay as it is, and any size goes to any other. */
START_TEST(odd_sizes)
{
    static const int sizes[] = {1, 2, 7, 8, 9, 48, 101};
    for (size_t i = 0; i < 7 * 7 * 7; i++) {
        dg_image img = draw(sizes[i % 7], sizes[i / 7 % 7]);
        memset(img.rgb, 200, (size_t)img.width * (size_t)img.height * 3);
        const int tw = sizes[i / 49], th = sizes[(i + 3) % 7];
        uint8_t *out = malloc((size_t)tw * (size_t)th * 3);
        ck_assert_int_eq(dg_image_resize(out, tw, th, &img, NULL), DGEMMA_OK);
        for (int k = 0; k < tw * th * 3; k++)
            if (out[k] != 200)
                ck_abort_msg("%d x %d to %d x %d", img.width, img.height, tw, th);
        free(out);
        free(img.rgb);
    }
}
END_TEST

START_TEST(thin_pictures)
{
    static const struct {
        int w, h;
    } cases[] = {{65535, 1}, {1, 65535}, {65535, 150}, {2, 40000}};
    for (size_t i = 0; i < DG_COUNT(cases); i++) {
        dg_image img = {.width = cases[i].w, .height = cases[i].h};
        img.rgb = calloc((size_t)img.width * (size_t)img.height, 3);
        dg_patches p;
        ck_assert_int_eq(dg_image_prepare(&p, &img, &budget_70, NULL), DGEMMA_OK);
        ck_assert_int_le(p.n_soft, 70);
        dg_patches_clear(&p);
        free(img.rgb);
    }
}
END_TEST

START_TEST(memory_runs_out)
{
    dg_image img = draw(50, 20);
    for (long n = 1;; n++) {
        dg_patches p;
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_image_prepare(&p, &img, &budget_70, NULL);
        bool reached = dg_test_alloc_done();
        bool empty = !p.resized;
        dg_patches_clear(&p);
        if (!reached) {
            ck_assert_int_eq(st, DGEMMA_OK);
            break;
        }
        ck_assert_int_eq(st, DGEMMA_E_NOMEM);
        ck_assert(empty);
    }
    free(img.rgb);
}
END_TEST

Suite *preprocess_suite(void)
{
    Suite *s = suite_create("preprocess");
    TCase *t = tcase_create("sizes");
    tcase_add_test(t, sizes_of_the_model_card);
    tcase_add_test(t, every_size_fits_the_budget);
    tcase_add_test(t, rules_that_make_no_sense);
    suite_add_tcase(s, t);

    t = tcase_create("pixels");
    tcase_add_test(t, pictures_as_transformers_has_them);
    tcase_add_test(t, photographs_shrink_exactly);
    tcase_add_test(t, patches_are_cut_from_the_picture);
    tcase_add_test(t, odd_sizes);
    tcase_add_test(t, thin_pictures);
    tcase_add_test(t, memory_runs_out);
    suite_add_tcase(s, t);
    return s;
}
