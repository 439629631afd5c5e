/* GIF through giflib: the first frame. As in PIL, a screen smaller than the frame grows to hold it;
 * what the frame leaves free has the transparent colour, or the first where none is. */
#include "image/codecs.h"
#include <gif_lib.h>
#include <stdbool.h>
#include <string.h>
#include "base/common.h"

typedef struct reader {
    const dg_image_source *src;
    size_t at;
    GifFileType *gif;
    int transparent; /* -1: none */
} reader;

static int read_bytes(GifFileType *gif, GifByteType *out, int n)
{
    reader *r = gif->UserData;
    size_t left = r->src->size - r->at, want = n > 0 ? (size_t)n : 0;
    size_t take = want < left ? want : left;
    memcpy(out, r->src->data + r->at, take);
    r->at += take;
    return (int)take;
}

static bool read_extension(reader *r)
{
    enum { TRANSPARENT = 1 };
    int code = 0;
    GifByteType *block = NULL; /* its length, then as many bytes */
    bool ok = DGifGetExtension(r->gif, &code, &block) == GIF_OK;
    if (ok && block && code == GRAPHICS_EXT_FUNC_CODE && block[0] >= 4 && block[1] & TRANSPARENT)
        r->transparent = block[4];
    while (ok && block)
        ok = DGifGetExtensionNext(r->gif, &block) == GIF_OK;
    return ok;
}

/* Up to the first frame's pixels. */
static bool find_frame(reader *r)
{
    for (;;) {
        GifRecordType type;
        if (DGifGetRecordType(r->gif, &type) != GIF_OK)
            return false;
        if (type == IMAGE_DESC_RECORD_TYPE)
            return DGifGetImageDesc(r->gif) == GIF_OK;
        if (type != EXTENSION_RECORD_TYPE || !read_extension(r))
            return false;
    }
}

/* Indices into the rows' first thirds. */
static bool read_rows(const reader *r, const dg_image *img)
{
    static const struct {
        int start, step;
    } plain[] = {{0, 1}}, interlaced[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
    const GifImageDesc *frame = &r->gif->Image;
    const size_t n_pass = frame->Interlace ? DG_COUNT(interlaced) : DG_COUNT(plain);
    for (size_t pass = 0; pass < n_pass; pass++) {
        const int start = frame->Interlace ? interlaced[pass].start : 0;
        const int step = frame->Interlace ? interlaced[pass].step : 1;
        for (int y = start; y < frame->Height; y += step) {
            size_t row = (size_t)(frame->Top + y) * (size_t)img->width * 3;
            if (DGifGetLine(r->gif, img->rgb + row + frame->Left, frame->Width) != GIF_OK)
                return false;
        }
    }
    return true;
}

static void fill(dg_image *img, int index)
{
    const size_t w = (size_t)img->width;
    for (int y = 0; y < img->height; y++)
        memset(img->rgb + (size_t)y * w * 3, index, w);
}

/* Indices past the end are black. No palette, or one whose every colour is the grey of its own
 * index: then all indices are greys. */
static bool find_colours(const reader *r, uint8_t colours[256 * 3])
{
    const ColorMapObject *map = r->gif->Image.ColorMap ? r->gif->Image.ColorMap : r->gif->SColorMap;
    bool grey = true;
    memset(colours, 0, 256 * 3);
    for (int i = 0; map && i < dg_min(map->ColorCount, 256); i++) {
        const GifColorType c = map->Colors[i];
        colours[3 * i] = c.Red;
        colours[3 * i + 1] = c.Green;
        colours[3 * i + 2] = c.Blue;
        grey = grey && c.Red == i && c.Green == i && c.Blue == i;
    }
    return !grey;
}

static dgemma_status broken(const reader *r, dgemma_error *err)
{
    const char *why = GifErrorString(r->gif->Error);
    return dg_fail(err, DGEMMA_E_FORMAT, "broken GIF: %s", why ? why : "no picture in it");
}

static dgemma_status read_picture(reader *r, dg_image *out, dgemma_error *err)
{
    if (!find_frame(r))
        return broken(r, err);
    const GifImageDesc *frame = &r->gif->Image;
    if (frame->Width < 1 || frame->Height < 1)
        return dg_fail(err, DGEMMA_E_FORMAT, "broken GIF: its first frame is %d x %d", frame->Width,
                       frame->Height);
    dgemma_status st =
        dg_image_init(out, dg_max(r->gif->SWidth, frame->Left + frame->Width),
                      dg_max(r->gif->SHeight, frame->Top + frame->Height), r->src->limits, err);
    if (st)
        return st;
    fill(out, dg_max(r->transparent, 0));
    if (!read_rows(r, out))
        return broken(r, err);
    uint8_t colours[256 * 3];
    dg_image_expand(out, find_colours(r, colours) ? colours : NULL);
    return DGEMMA_OK;
}

dgemma_status dg_image_decode_gif(dg_image *out, int *orientation, const dg_image_source *src,
                                  dgemma_error *err)
{
    reader r = {.src = src, .transparent = -1};
    int why = 0;
    *orientation = 1;
    r.gif = DGifOpen(&r, read_bytes, &why);
    if (!r.gif) {
        const char *text = GifErrorString(why);
        return dg_fail(err, DGEMMA_E_FORMAT, "broken GIF: %s", text ? text : "its header");
    }
    dgemma_status st = read_picture(&r, out, err);
    DGifCloseFile(r.gif, &why);
    return st;
}
