/* Orientation: reading the tag from metadata that may be broken anywhere, and applying it. */
#include "image/orientation.h"
#include <stdbool.h>
#include <string.h>
#include "base/alloc.h"

/* ---- EXIF ---- */

enum { TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, TYPE_LONG = 4 };

typedef struct tiff {
    const uint8_t *p;
    size_t n;
    bool big; /* the first byte is the high one */
} tiff;

static bool get(const tiff *t, size_t at, size_t bytes, uint32_t *out)
{
    if (at > t->n || t->n - at < bytes)
        return false;
    uint32_t v = 0;
    for (size_t i = 0; i < bytes; i++)
        v = v << 8 | t->p[at + (t->big ? i : bytes - 1 - i)];
    *out = v;
    return true;
}

static void skip_prefix(tiff *t)
{
    /* Some writers put it there twice. */
    for (int i = 0; i < 2 && t->n >= 6 && memcmp(t->p, "Exif\0\0", 6) == 0; i++) {
        t->p += 6;
        t->n -= 6;
    }
}

/* The value of the entry at `at`: its first element, which lies in the entry itself or, where there
 * are too many, at an offset. 0: not a number. */
static uint32_t entry_value(const tiff *t, size_t at)
{
    uint32_t type, count, value = 0;
    if (!get(t, at + 2, 2, &type) || !get(t, at + 4, 4, &count) || count == 0)
        return 0;
    if (type != TYPE_SHORT && type != TYPE_LONG)
        return 0;
    size_t bytes = type == TYPE_SHORT ? 2 : 4, where = at + 8;
    if (count > 4 / bytes) {
        uint32_t offset;
        if (!get(t, where, 4, &offset) || offset > t->n || (t->n - offset) / bytes < count)
            return 0;
        where = offset;
    }
    return get(t, where, bytes, &value) ? value : 0;
}

/* 0: it says nothing. */
static uint32_t exif_orientation(const uint8_t *data, size_t n)
{
    tiff t = {.p = data, .n = n};
    skip_prefix(&t);
    if (t.n < 8 || (memcmp(t.p, "II", 2) != 0 && memcmp(t.p, "MM", 2) != 0))
        return 0;
    t.big = t.p[0] == 'M';
    if (t.p[2] + t.p[3] != 42)
        return 0;
    uint32_t directory = 0, n_entry = 0, tag;
    if (!get(&t, 4, 4, &directory) || !get(&t, directory, 2, &n_entry))
        return 0;
    for (uint32_t i = 0; i < n_entry; i++) {
        size_t at = (size_t)directory + 2 + 12 * (size_t)i;
        if (at > t.n || t.n - at < 12 || !get(&t, at, 2, &tag))
            return 0;
        if (tag == TAG_ORIENTATION) {
            uint32_t value = entry_value(&t, at);
            if (value)
                return value;
        }
    }
    return 0;
}

/* ---- XMP ---- */

/* tiff:Orientation="6" or <tiff:Orientation>6: the first that fits. */
static uint32_t xmp_orientation(const uint8_t *xmp, size_t n)
{
    static const char name[] = "tiff:Orientation";
    const uint8_t *end = xmp + n, *p = xmp;
    while ((p = memmem(p, (size_t)(end - p), name, sizeof name - 1)) != NULL) {
        p += sizeof name - 1;
        size_t left = (size_t)(end - p);
        size_t skip = left >= 2 && memcmp(p, "=\"", 2) == 0 ? 2 : left >= 1 && *p == '>' ? 1 : 0;
        if (skip && left > skip && p[skip] >= '0' && p[skip] <= '9')
            return (uint32_t)(p[skip] - '0');
    }
    return 0;
}

int dg_orientation_find(const dg_orientation_source *src)
{
    uint32_t v = src->exif ? exif_orientation(src->exif, src->n_exif) : 0;
    if (!v && src->xmp)
        v = xmp_orientation(src->xmp, src->n_xmp);
    return v >= 1 && v <= 8 ? (int)v : 1;
}

/* ---- turning ---- */

/* Where a picture's pixel comes from: index of the first, and what a step right and a step down in
 * the upright picture add to it. */
typedef struct walk {
    ptrdiff_t start, right, down;
} walk;

static walk walk_for(int orientation, ptrdiff_t w, ptrdiff_t h)
{
    const ptrdiff_t last_x = w - 1, last_row = w * (h - 1);
    switch (orientation) {
    case 2: /* mirrored left to right */
        return (walk){last_x, -1, w};
    case 3: /* turned half way round */
        return (walk){last_row + last_x, -1, -w};
    case 4: /* mirrored top to bottom */
        return (walk){last_row, 1, -w};
    case 5: /* mirrored about the falling diagonal */
        return (walk){0, w, 1};
    case 6: /* to be turned a quarter clockwise */
        return (walk){last_row, -w, 1};
    case 7: /* mirrored about the rising diagonal */
        return (walk){last_row + last_x, -w, -1};
    case 8: /* to be turned a quarter counter-clockwise */
        return (walk){last_x, w, -1};
    default:
        return (walk){0, 1, w};
    }
}

dgemma_status dg_orientation_apply(dg_image *img, int orientation, dgemma_error *err)
{
    if (orientation <= 1 || orientation > 8)
        return DGEMMA_OK;
    const int w = orientation >= 5 ? img->height : img->width;
    const int h = orientation >= 5 ? img->width : img->height;
    uint8_t *upright = dg_array((size_t)w * (size_t)h, 3);
    if (!upright)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a picture of %d x %d", w, h);

    const walk from = walk_for(orientation, img->width, img->height);
    uint8_t *out = upright;
    for (int y = 0; y < h; y++) {
        ptrdiff_t at = from.start + y * from.down;
        for (int x = 0; x < w; x++, at += from.right, out += 3)
            memcpy(out, img->rgb + 3 * at, 3);
    }
    dg_free(img->rgb);
    *img = (dg_image){.width = w, .height = h, .rgb = upright};
    return DGEMMA_OK;
}
