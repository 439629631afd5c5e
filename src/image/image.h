/* Pictures from bytes: PNG, JPEG, WebP and GIF, told apart by content, as transformers' load_image
 * gives them to the model: PIL's pixels, upright by their EXIF or XMP orientation, as 8-bit RGB.
 * Alpha is dropped, not blended; of an animation the first frame is taken; 16-bit grey is clipped
 * at 255, as PIL's convert("RGB") clips it. Sizes are checked from the header, before decoding. */
#ifndef DG_IMAGE_IMAGE_H
#define DG_IMAGE_IMAGE_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct dg_image {
    int width, height;
    uint8_t *rgb; /* [height, width, 3], rows top down */
} dg_image;

typedef struct dg_image_limits {
    size_t max_bytes; /* of the file */
    int64_t max_pixels;
    int max_side;
} dg_image_limits;

/* 64 MB, 100 million pixels, 65,535 a side. */
dg_image_limits dg_image_limits_default(void);

/* Borrows data. limits may be NULL: the defaults. On failure *out is empty. Decoding takes up to 12
 * bytes a pixel beside the picture's own three.
 *
 * DGEMMA_E_FORMAT: broken or cut off; DGEMMA_E_UNSUPPORTED: no picture of a kind known here;
 * DGEMMA_E_LIMIT: larger than the limits; DGEMMA_E_NOMEM. */
dgemma_status dg_image_decode(dg_image *out, const void *data, size_t size,
                              const dg_image_limits *limits, dgemma_error *err);

/* A picture of this size with every byte 0, for those who fill it. The size is held to the limits.
 */
dgemma_status dg_image_init(dg_image *out, int64_t width, int64_t height,
                            const dg_image_limits *limits, dgemma_error *err);
void dg_image_clear(dg_image *img); /* twice is fine */

#endif
