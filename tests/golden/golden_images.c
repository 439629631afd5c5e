/* Folders of pictures with the bytes that transformers' processor makes of them:
 * expected.safetensors holds NAME.torch, the resized picture [height, width, 3], and NAME.size,
 * patch rows and columns and soft tokens, at a budget of 70. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "fixture.h"
#include "image/preprocess.h"

static const dg_patch_rule rule = {.patch = 16, .pool = 3, .max_soft = 70};

enum { NAME_BYTES = 128, PICTURE_MAX = 64 << 20 };

/* The picture of this name, whatever its kind. */
static dgemma_status open_picture(dg_image *out, const char *dir, const char *name,
                                  dgemma_error *err)
{
    static const char *const kinds[] = {"png", "jpg", "jpeg", "webp", "gif"};
    char path[2048];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(path, sizeof path, "%s/%s.%s", dir, name, kinds[i]);
        if (!dg_file_exists(path))
            continue;
        dg_buf file;
        dg_buf_init(&file, PICTURE_MAX);
        dgemma_status st = dg_file_read(&file, path, err);
        if (!st)
            st = dg_image_decode(out, file.data, file.len, NULL, err);
        dg_buf_clear(&file);
        return st;
    }
    return dg_fail(err, DGEMMA_E_IO, "there is no picture %s", name);
}

static dgemma_status compare_size(const dg_safetensors *st, const char *name, const dg_patches *p,
                                  dgemma_error *err)
{
    char key[NAME_BYTES + 8];
    int64_t want[3];
    snprintf(key, sizeof key, "%s.size", name);
    const dg_tensor *t = dg_safetensors_find(st, key);
    if (!t || t->type != DG_I64 || dg_tensor_count(t) != 3)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s is missing or not three numbers", key);
    memcpy(want, t->data, sizeof want);
    if (want[0] != p->rows || want[1] != p->cols || want[2] != p->n_soft)
        return dg_fail(err, DGEMMA_E_INTERNAL,
                       "%s: %d x %d patches, %d tokens; expected %lld x %lld, %lld", name, p->rows,
                       p->cols, p->n_soft, (long long)want[0], (long long)want[1],
                       (long long)want[2]);
    return DGEMMA_OK;
}

/* Every byte within one, and at most one in a thousand not equal. */
static dgemma_status compare_bytes(const dg_tensor *t, const char *name, const dg_patches *p,
                                   golden_images *found, dgemma_error *err)
{
    size_t n = (size_t)p->rows * (size_t)p->cols * (size_t)(p->patch * p->patch) * 3, n_off = 0;
    const unsigned char *want = t->data;
    if (t->type != DG_U8 || dg_tensor_count(t) != n)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s.torch has %zu bytes, ours has %zu", name,
                       dg_tensor_count(t), n);
    for (size_t i = 0; i < n; i++) {
        int off = abs((int)p->resized[i] - (int)want[i]);
        n_off += off != 0;
        if (off > 1)
            return dg_fail(err, DGEMMA_E_INTERNAL, "%s: byte %zu is %d, expected %d", name, i,
                           p->resized[i], want[i]);
    }
    double share = (double)n_off / (double)n;
    if (share > found->worst_share)
        found->worst_share = share;
    found->n_picture++;
    if (share > 1e-3)
        return dg_fail(err, DGEMMA_E_INTERNAL, "%s: %.3g of the bytes differ, allowed is 1e-3",
                       name, share);
    return DGEMMA_OK;
}

static dgemma_status compare_picture(const char *dir, const dg_safetensors *st, const dg_tensor *t,
                                     const char *name, golden_images *found, dgemma_error *err)
{
    dg_image image = {0};
    dg_patches p = {0};
    dgemma_status status = open_picture(&image, dir, name, err);
    if (!status)
        status = dg_image_prepare(&p, &image, &rule, err);
    if (!status)
        status = compare_size(st, name, &p, err);
    if (!status)
        status = compare_bytes(t, name, &p, found, err);
    dg_image_clear(&image);
    dg_patches_clear(&p);
    return status;
}

dgemma_status golden_images_run(const char *dir, golden_images *found, dgemma_error *err)
{
    char path[2048];
    dg_file_map map;
    dg_safetensors st = {0};
    *found = (golden_images){0};
    snprintf(path, sizeof path, "%s/expected.safetensors", dir);
    dgemma_status status = dg_file_map_open(&map, path, err);
    if (!status)
        status = dg_safetensors_parse(&st, map.data, map.size, path, err);
    for (size_t i = 0; !status && i < st.n_tensor; i++) {
        const char *full = st.tensor[i].name, *dot = strrchr(full, '.');
        char name[NAME_BYTES];
        if (!dot || strcmp(dot, ".torch") != 0 || (size_t)(dot - full) >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(dot - full), full);
        status = compare_picture(dir, &st, &st.tensor[i], name, found, err);
    }
    if (!status && !found->n_picture)
        status = dg_fail(err, DGEMMA_E_FORMAT, "expected.safetensors has no NAME.torch");
    dg_safetensors_clear(&st);
    dg_file_map_close(&map);
    return status;
}
