/* The picture in a trace's prompt: its recorded patches through our tower. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "image/preprocess.h"
#include "fixture.h"

/* One of the two coordinates of a patch. */
static int64_t coordinate(const dg_tensor *t, size_t patch, size_t which)
{
    int64_t v;
    memcpy(&v, (const unsigned char *)t->data + (2 * patch + which) * sizeof v, sizeof v);
    return v;
}

/* The grid that the recorded positions make: row by row, then padding at (-1, -1). */
static dgemma_status read_grid(fixture *fx, const dg_tensor *t, dg_vision_input *in,
                               dgemma_error *err)
{
    size_t n = t->n_dim == 3 && t->shape[0] == 1 && t->shape[2] == 2 ? (size_t)t->shape[1] : 0;
    int64_t cols = 0, rows = 0;
    for (size_t i = 0; i < n; i++) {
        cols = coordinate(t, i, 0) >= cols ? coordinate(t, i, 0) + 1 : cols;
        rows = coordinate(t, i, 1) >= rows ? coordinate(t, i, 1) + 1 : rows;
    }
    if (cols < 1 || cols > 4096 || rows < 1 || rows > 4096 || (size_t)(rows * cols) > n)
        return dg_fail(err, DGEMMA_E_FORMAT, "image_position_ids are no grid");
    for (size_t i = 0; i < n; i++) {
        bool padding = i >= (size_t)(rows * cols);
        int64_t x = padding ? -1 : (int64_t)i % cols, y = padding ? -1 : (int64_t)i / cols;
        if (coordinate(t, i, 0) != x || coordinate(t, i, 1) != y)
            return dg_fail(err, DGEMMA_E_INTERNAL, "patch %zu is at (%lld, %lld), ours at (%d, %d)",
                           i, (long long)coordinate(t, i, 0), (long long)coordinate(t, i, 1),
                           (int)x, (int)y);
    }
    in->cols = (int)cols;
    in->rows = (int)rows;
    fx->n_compared++;
    return DGEMMA_OK;
}

/* Our own pixels of the fixture's picture against the recorded ones, which another resampler made:
 * each within 2 / 255, on the same grid. */
static dgemma_status compare_pixels(fixture *fx, const dg_vision_input *in, const dg_tensor *pixels,
                                    dgemma_error *err)
{
    char path[2048];
    snprintf(path, sizeof path, "%s/image.png", fx->dir);
    if (!dg_file_exists(path))
        return DGEMMA_OK;
    const dg_vision_config *cfg = dg_vision_config_of(fx->vision);
    int budget =
        (int)pixels->shape[1] / (cfg->pool * cfg->pool); /* the recorded patches are padded to it */
    dg_buf file;
    dg_image image = {0};
    dg_patches ours = {0};
    dg_buf_init(&file, 64 << 20);
    dgemma_status st = dg_file_read(&file, path, err);
    if (!st)
        st = dg_image_decode(&image, file.data, file.len, NULL, err);
    if (!st)
        st = dg_image_prepare(&ours, &image, &(dg_patch_rule){cfg->patch, cfg->pool, budget}, err);
    if (!st && (ours.rows != in->rows || ours.cols != in->cols))
        st = dg_fail(err, DGEMMA_E_INTERNAL, "our grid is %d x %d, recorded is %d x %d", ours.rows,
                     ours.cols, in->rows, in->cols);
    size_t n = (size_t)in->rows * (size_t)in->cols * (size_t)(cfg->patch * cfg->patch * 3);
    float *mine = st ? NULL : dg_array(n, sizeof *mine);
    if (!st && !mine)
        st = dg_fail(err, DGEMMA_E_NOMEM, "no memory for the pixels");
    if (mine)
        dg_patches_cut(&ours, mine);
    for (size_t i = 0; !st && i < n; i++)
        if (!(fabsf(mine[i] - in->pixels[i]) <= 2.0f / 255 + 1e-6f))
            st = dg_fail(err, DGEMMA_E_INTERNAL, "pixel value %zu is %g, recorded is %g", i,
                         (double)mine[i], (double)in->pixels[i]);
    dg_free(mine);
    fx->n_compared++;
    dg_patches_clear(&ours);
    dg_image_clear(&image);
    dg_buf_clear(&file);
    return st;
}

static dgemma_status encode(fixture *fx, fixture_picture *p, dgemma_error *err)
{
    const dg_tensor *at = fixture_tensor(fx, "image_position_ids", DG_I64, err);
    const dg_tensor *pixels = at ? fixture_tensor(fx, "pixel_values", DG_F32, err) : NULL;
    dg_vision_input in;
    if (!pixels)
        return DGEMMA_E_FORMAT;
    if (!fx->vision)
        return dg_fail(err, DGEMMA_E_FORMAT, "the model has no vision tower");
    dgemma_status st = read_grid(fx, at, &in, err);
    if (st)
        return st;
    const dg_vision_config *cfg = dg_vision_config_of(fx->vision);
    size_t n = (size_t)in.rows * (size_t)in.cols * (size_t)(cfg->patch * cfg->patch * 3);
    if (dg_tensor_count(pixels) < n)
        return dg_fail(err, DGEMMA_E_FORMAT, "pixel_values has %zu values, not %zu",
                       dg_tensor_count(pixels), n);
    p->n_soft = dg_vision_n_soft(cfg, in.rows, in.cols);
    p->be = fx->be;
    p->features =
        fx->be->alloc(fx->be, (size_t)p->n_soft * (size_t)fx->cfg.n_embd * sizeof *p->features);
    float *copy = dg_array(n, sizeof *copy);
    if (copy && p->features) {
        memcpy(copy, pixels->data, n * sizeof *copy);
        in.pixels = copy;
        st = compare_pixels(fx, &in, pixels, err);
        if (!st)
            st = dg_vision_encode(fx->vision, &in, 1, p->features, err);
    } else
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_free(copy);
    return st;
}

/* Image tokens take the features in order; those next to each other are a block. */
static dgemma_status place(fixture *fx, fixture_picture *p, const int32_t *prompt, int n,
                           dgemma_error *err)
{
    int taken = 0, image = fx->cfg.image_token;
    p->feature = dg_calloc((size_t)n, sizeof *p->feature);
    p->block = fx->cfg.bidirectional_images ? dg_calloc((size_t)n, sizeof *p->block) : NULL;
    if (!p->feature || (fx->cfg.bidirectional_images && !p->block))
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; prompt[i] == image && end < n && prompt[end] == image;)
            end++;
        for (int k = i; k < end; k++) {
            p->feature[k] = prompt[k] == image ? taken++ : -1;
            if (p->block)
                p->block[k] = (dg_span){i, end};
        }
    }
    if (taken != p->n_soft)
        return dg_fail(err, DGEMMA_E_FORMAT, "%d image tokens, %d features", taken, p->n_soft);
    return DGEMMA_OK;
}

dgemma_status fixture_picture_read(fixture *fx, fixture_picture *p, const int32_t *prompt,
                                   int n_prompt, dgemma_error *err)
{
    dgemma_status st = encode(fx, p, err);
    return st ? st : place(fx, p, prompt, n_prompt, err);
}

void fixture_picture_clear(fixture_picture *p)
{
    if (p->be)
        p->be->free(p->be, p->features);
    dg_free(p->feature);
    dg_free(p->block);
    *p = (fixture_picture){0};
}
