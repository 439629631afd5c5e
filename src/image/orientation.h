/* Which way up a picture is: the Orientation tag of EXIF, else that of XMP, by the rules of PIL. */
#ifndef DG_IMAGE_ORIENTATION_H
#define DG_IMAGE_ORIENTATION_H

#include "image/image.h"

typedef struct dg_orientation_source {
    const uint8_t *exif; /* a TIFF structure, with or without "Exif\0\0" in front; NULL: none */
    size_t n_exif;
    const uint8_t *xmp; /* NULL: none */
    size_t n_xmp;
} dg_orientation_source;

/* 1 to 8; 1 where neither says anything that makes sense. */
int dg_orientation_find(const dg_orientation_source *src);

/* Turns the picture upright. */
dgemma_status dg_orientation_apply(dg_image *img, int orientation, dgemma_error *err);

#endif
