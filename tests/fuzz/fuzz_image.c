/* Any bytes as a picture: an error with a reason, or pixels within the limits, which can be
 * resized. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "image/image.h"
#include "image/preprocess.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Small: a large empty picture takes long and shows nothing more. */
    const dg_image_limits limits = {.max_bytes = 1 << 20, .max_pixels = 1 << 12, .max_side = 4096};
    const dg_patch_rule rule = {.patch = 4, .pool = 2, .max_soft = 16};
    dg_image img;
    dgemma_error err = {0};
    dgemma_status st = dg_image_decode(&img, data, size, &limits, &err);
    if (st) {
        check(err.status == st && err.msg[0] && !img.rgb);
        return 0;
    }
    check(img.width > 0 && img.height > 0 && img.width <= 4096 && img.height <= 4096);
    check((int64_t)img.width * img.height <= limits.max_pixels);

    dg_patches p;
    st = dg_image_prepare(&p, &img, &rule, &err);
    check(st == DGEMMA_OK && p.n_soft >= 1 && p.n_soft <= rule.max_soft);
    static float pixels[70 * 9 * 48];
    check(dg_patches_bytes(&p) <= sizeof pixels / sizeof *pixels);
    dg_patches_cut(&p, pixels);
    check(pixels[0] >= 0 && pixels[dg_patches_bytes(&p) - 1] <= 1);
    dg_patches_clear(&p);
    dg_image_clear(&img);
    return 0;
}
