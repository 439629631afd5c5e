/* Antialiased bicubic resizing of bytes, in integers: the result of PyTorch on a CPU (interpolate
 * of uint8, antialias), which is what transformers' processor feeds to the model. */
#ifndef DG_IMAGE_RESIZE_H
#define DG_IMAGE_RESIZE_H

#include "image/image.h"

/* out: [height, width, 3], the caller's. Takes memory for a few rows of the result and the weights,
 * never for a second picture. Sizes of at least 1. */
dgemma_status dg_image_resize(uint8_t *out, int width, int height, const dg_image *img,
                              dgemma_error *err);

#endif
