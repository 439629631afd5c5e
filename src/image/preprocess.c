/* The size within the budget, and the cut into patches. */
#include "image/preprocess.h"
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "image/resize.h"

/* Far above any model: they keep products within 32 bits and pictures within memory. */
enum { MAX_PATCH = 64, MAX_POOL = 16, MAX_SOFT = 8192 };

static bool rule_makes_sense(const dg_patch_rule *r)
{
    return r->patch >= 1 && r->patch <= MAX_PATCH && r->pool >= 1 && r->pool <= MAX_POOL &&
           r->max_soft >= 1 && r->max_soft <= MAX_SOFT;
}

/* get_aspect_ratio_preserving_size of transformers, operation for operation. */
dgemma_status dg_image_target_size(int width, int height, const dg_patch_rule *rule, int *tw,
                                   int *th, dgemma_error *err)
{
    if (!rule_makes_sense(rule))
        return dg_fail(err, DGEMMA_E_ARG, "patches of %d, pooled by %d, at most %d soft tokens",
                       rule->patch, rule->pool, rule->max_soft);
    if (width < 1 || height < 1)
        return dg_fail(err, DGEMMA_E_ARG, "a picture of %d x %d pixels has none", width, height);

    const int unit = rule->patch * rule->pool;
    const double budget = (double)rule->max_soft * unit * unit;
    const double factor = sqrt(budget / ((double)width * height));
    /* In units. The long side of a thin picture may go past the budget here; it is cut below. */
    double h = floor(factor * height / unit), w = floor(factor * width / unit);
    if (h == 0 && w == 0)
        return dg_fail(err, DGEMMA_E_ARG, "a picture of %d x %d is less than a soft token", width,
                       height);
    if (h == 0) {
        h = 1;
        w = fmin(floor((double)width / height), rule->max_soft);
    } else if (w == 0) {
        w = 1;
        h = fmin(floor((double)height / width), rule->max_soft);
    }
    if (h * w > rule->max_soft)
        return dg_fail(err, DGEMMA_E_ARG, "a picture of %d x %d asks for %.0f soft tokens, not %d",
                       width, height, h * w, rule->max_soft);
    *th = (int)h * unit;
    *tw = (int)w * unit;
    return DGEMMA_OK;
}

size_t dg_patches_bytes(const dg_patches *p)
{
    return (size_t)p->rows * (size_t)p->cols * (size_t)(p->patch * p->patch) * 3;
}

/* Rows of pixels become rows of patches. */
void dg_patches_cut(const dg_patches *p, float *out)
{
    const float to_unit = (float)(1 / 255.0);
    const size_t run = (size_t)p->patch * 3, width = (size_t)p->cols * run;
    for (int y = 0; y < p->rows; y++)
        for (int x = 0; x < p->cols; x++) {
            const uint8_t *in = p->resized + (size_t)y * (size_t)p->patch * width + (size_t)x * run;
            for (int i = 0; i < p->patch; i++, in += width, out += run)
                for (size_t k = 0; k < run; k++)
                    out[k] = (float)in[k] * to_unit;
        }
}

dgemma_status dg_image_prepare(dg_patches *out, const dg_image *img, const dg_patch_rule *rule,
                               dgemma_error *err)
{
    *out = (dg_patches){0};
    int tw = 0, th = 0;
    dgemma_status st = dg_image_target_size(img->width, img->height, rule, &tw, &th, err);
    if (st)
        return st;

    const size_t n_byte = (size_t)tw * (size_t)th * 3;
    *out = (dg_patches){.rows = th / rule->patch,
                        .cols = tw / rule->patch,
                        .patch = rule->patch,
                        .pool = rule->pool,
                        .resized = dg_malloc(n_byte)};
    out->n_soft = out->rows / rule->pool * (out->cols / rule->pool);
    if (!out->resized)
        st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a picture of %d x %d", tw, th);
    else if (tw == img->width && th == img->height)
        memcpy(out->resized, img->rgb, n_byte);
    else
        st = dg_image_resize(out->resized, tw, th, img, err);
    if (st)
        dg_patches_clear(out);
    return st;
}

void dg_patches_clear(dg_patches *p)
{
    dg_free(p->resized);
    *p = (dg_patches){0};
}
