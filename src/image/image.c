/* Which format it is, how large it may be, and which way up. */
#include "image/image.h"
#include <inttypes.h>
#include <string.h>
#include "base/alloc.h"
#include "image/codecs.h"
#include "image/orientation.h"

dg_image_limits dg_image_limits_default(void)
{
    return (dg_image_limits){
        .max_bytes = 64 * (size_t)1000000, .max_pixels = 100000000, .max_side = 65535};
}

dgemma_status dg_image_init(dg_image *out, int64_t width, int64_t height,
                            const dg_image_limits *limits, dgemma_error *err)
{
    *out = (dg_image){0};
    if (width < 1 || height < 1)
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "a picture of %" PRId64 " x %" PRId64 " pixels has none", width, height);
    if (width > limits->max_side || height > limits->max_side)
        return dg_fail(err, DGEMMA_E_LIMIT,
                       "a picture of %" PRId64 " x %" PRId64 " pixels, at most %d a side", width,
                       height, limits->max_side);
    if (width * height > limits->max_pixels)
        return dg_fail(err, DGEMMA_E_LIMIT,
                       "a picture of %" PRId64 " x %" PRId64 " pixels, at most %" PRId64 " in all",
                       width, height, limits->max_pixels);
    uint8_t *rgb = dg_calloc((size_t)(width * height), 3);
    if (!rgb)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a picture of %" PRId64 " x %" PRId64,
                       width, height);
    *out = (dg_image){.width = (int)width, .height = (int)height, .rgb = rgb};
    return DGEMMA_OK;
}

void dg_image_clear(dg_image *img)
{
    dg_free(img->rgb);
    *img = (dg_image){0};
}

void dg_image_expand(dg_image *img, const uint8_t *colours)
{
    const size_t w = (size_t)img->width;
    for (int y = 0; y < img->height; y++) {
        uint8_t *row = img->rgb + (size_t)y * w * 3;
        for (size_t x = w; x-- > 0;) { /* from the right: what is not read yet is not overwritten */
            const uint8_t v = row[x];
            if (colours)
                memcpy(row + 3 * x, colours + 3 * v, 3);
            else
                memset(row + 3 * x, v, 3);
        }
    }
}

static dg_image_codec *find_codec(const uint8_t *p, size_t n)
{
    if (n >= 8 && memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0)
        return dg_image_decode_png;
    if (n >= 3 && memcmp(p, "\xff\xd8\xff", 3) == 0)
        return dg_image_decode_jpeg;
    if (n >= 12 && memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBP", 4) == 0)
        return dg_image_decode_webp;
    if (n >= 6 && (memcmp(p, "GIF87a", 6) == 0 || memcmp(p, "GIF89a", 6) == 0))
        return dg_image_decode_gif;
    return NULL;
}

dgemma_status dg_image_decode(dg_image *out, const void *data, size_t size,
                              const dg_image_limits *limits, dgemma_error *err)
{
    *out = (dg_image){0};
    const dg_image_limits standard = dg_image_limits_default();
    if (!limits)
        limits = &standard;
    if (size == 0)
        return dg_fail(err, DGEMMA_E_FORMAT, "a picture of 0 bytes");
    if (size > limits->max_bytes)
        return dg_fail(err, DGEMMA_E_LIMIT, "a picture of %zu bytes, at most %zu", size,
                       limits->max_bytes);
    dg_image_codec *decode = find_codec(data, size);
    if (!decode)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "neither PNG, JPEG, WebP nor GIF");

    int orientation = 1;
    const dg_image_source src = {.data = data, .size = size, .limits = limits};
    dgemma_status st = decode(out, &orientation, &src, err);
    if (!st)
        st = dg_orientation_apply(out, orientation, err);
    if (st)
        dg_image_clear(out);
    return st;
}
