/* From a picture to what the vision tower takes: resized within a budget of soft tokens, in
 * patches. Equal to transformers' Gemma4ImageProcessor. */
#ifndef DG_IMAGE_PREPROCESS_H
#define DG_IMAGE_PREPROCESS_H

#include "image/image.h"

/* How the tower cuts a picture: patches of `patch` pixels a side, `pool` by `pool` of which become
 * one soft token; at most max_soft of these (70, 140, 280, 560 or 1120 in training). */
typedef struct dg_patch_rule {
    int patch, pool, max_soft;
} dg_patch_rule;

typedef struct dg_patches {
    int rows, cols; /* patches; the one at (x, y) has index y * cols + x */
    int n_soft;     /* rows / pool * (cols / pool) */
    int patch, pool;
    uint8_t *resized; /* [rows * patch, cols * patch, 3]: row, column, channel */
} dg_patches;

/* The size a picture gets: a multiple of patch * pool each way, its shape kept up to that, small
 * ones enlarged. DGEMMA_E_ARG: the rule makes no sense, or no such size is within the budget. */
dgemma_status dg_image_target_size(int width, int height, const dg_patch_rule *rule, int *tw,
                                   int *th, dgemma_error *err);

/* Borrows img; *out is the caller's, dg_patches_clear frees it. On failure it is empty. */
dgemma_status dg_image_prepare(dg_patches *out, const dg_image *img, const dg_patch_rule *rule,
                               dgemma_error *err);
void dg_patches_clear(dg_patches *p); /* twice is fine */

size_t dg_patches_bytes(const dg_patches *p); /* of `resized` */

/* As the tower takes it: out [rows * cols, patch, patch, 3] in [0, 1]. Four times as large, so only
 * for as long as the tower needs it. */
void dg_patches_cut(const dg_patches *p, float *out);

#endif
