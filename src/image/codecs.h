/* What image.c asks of each format. A codec leaves its picture as it is stored; image.c turns it
 * upright. None of them prints, and none keeps state between calls. */
#ifndef DG_IMAGE_CODECS_H
#define DG_IMAGE_CODECS_H

#include "image/image.h"

typedef struct dg_image_source {
    const uint8_t *data;
    size_t size;
    const dg_image_limits *limits;
} dg_image_source;

/* *orientation: 1 to 8 by EXIF, from the file's metadata; 1 where it has none or it is broken. On
 * failure *out may hold a picture: the caller clears it. */
typedef dgemma_status dg_image_codec(dg_image *out, int *orientation, const dg_image_source *src,
                                     dgemma_error *err);

dg_image_codec dg_image_decode_png;
dg_image_codec dg_image_decode_jpeg;
dg_image_codec dg_image_decode_webp;
dg_image_codec dg_image_decode_gif;

/* Rows of one byte a pixel, in the first third of a picture's rows, become RGB in place. Colours
 * are 256 times three bytes; NULL: grey. */
void dg_image_expand(dg_image *img, const uint8_t *colours);

#endif
