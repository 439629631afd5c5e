/* PNG through libpng. The picture's own memory holds the rows as they are stored, never wider than
 * RGB, and is expanded in place at the end: interlaced pictures need no second copy. */
#include "image/codecs.h"
#include <png.h>
#include <setjmp.h>
#include <string.h>
#include "base/buf.h"
#include "base/common.h"
#include "image/orientation.h"

/* Text can be compressed, a thousand to one: so large, so many of them, and no more. */
enum { MAX_TEXT = 4 << 20, MAX_CHUNK = 32 };

typedef struct reader {
    const dg_image_source *src;
    size_t at, end; /* end: of the last chunk that is all there */
    png_structp png;
    png_infop info;
    dg_image *img;
    dgemma_status status; /* what failed, where it was not libpng */
    dgemma_error *err;
    char msg[128]; /* libpng's own words */
} reader;

static void on_error(png_structp png, png_const_charp msg)
{
    reader *r = png_get_error_ptr(png);
    strncpy(r->msg, msg, sizeof r->msg - 1);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp msg)
{
    (void)png;
    (void)msg;
}

/* libpng takes memory for a chunk by the length it claims, before there is data: it gets to see no
 * chunk that claims more than the file holds. */
static size_t find_end(const dg_image_source *src)
{
    size_t at = 8;
    while (src->size - at >= 12) {
        const uint8_t *p = src->data + at;
        const size_t length = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
        if (length > src->size - at - 12)
            break;
        at += length + 12;
    }
    return at;
}

static void read_bytes(png_structp png, png_bytep out, size_t n)
{
    reader *r = png_get_io_ptr(png);
    if (r->end - r->at < n)
        png_error(png, "the file ends early");
    memcpy(out, r->src->data + r->at, n);
    r->at += n;
}

static void set_limits(const reader *r)
{
    /* Sizes are held to our limits, in our words, before rows are read. */
    png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(r->png, MAX_TEXT);
    png_set_chunk_cache_max(r->png, MAX_CHUNK);
}

/* Rows become indices, grey or RGB, of 8 bits; of 16 where all is grey. */
static void set_transforms(png_structp png, int depth, int colour)
{
    if (colour == PNG_COLOR_TYPE_PALETTE)
        png_set_packing(png);
    else if (depth < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    if (depth == 16 && colour != PNG_COLOR_TYPE_GRAY)
        png_set_strip_16(png);
    if (colour & PNG_COLOR_MASK_ALPHA)
        png_set_strip_alpha(png);
}

/* PIL converts 16-bit grey by clipping, so nearly all of it is white. */
static void clip_16(dg_image *img)
{
    const size_t w = (size_t)img->width;
    for (int y = 0; y < img->height; y++) {
        uint8_t *row = img->rgb + (size_t)y * w * 3;
        for (size_t x = 0; x < w; x++)
            row[x] = row[2 * x] ? 255 : row[2 * x + 1];
    }
}

/* Indices past the end of the palette are black. */
static void expand_palette(const reader *r)
{
    uint8_t colours[256 * 3] = {0};
    png_colorp palette = NULL;
    int n = 0;
    png_get_PLTE(r->png, r->info, &palette, &n);
    for (int i = 0; i < dg_min(n, 256); i++) {
        colours[3 * i] = palette[i].red;
        colours[3 * i + 1] = palette[i].green;
        colours[3 * i + 2] = palette[i].blue;
    }
    dg_image_expand(r->img, colours);
}

static bool read_picture(reader *r)
{
    if (setjmp(png_jmpbuf(r->png)))
        return false;
    set_limits(r);
    png_read_info(r->png, r->info);
    const int depth = png_get_bit_depth(r->png, r->info);
    const int colour = png_get_color_type(r->png, r->info);
    r->status = dg_image_init(r->img, png_get_image_width(r->png, r->info),
                              png_get_image_height(r->png, r->info), r->src->limits, r->err);
    if (r->status)
        return false;

    set_transforms(r->png, depth, colour);
    const int n_pass = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    const size_t stride = (size_t)r->img->width * 3;
    if (png_get_rowbytes(r->png, r->info) > stride)
        png_error(r->png, "rows are wider than RGB");
    for (int pass = 0; pass < n_pass; pass++)
        for (int y = 0; y < r->img->height; y++)
            png_read_row(r->png, r->img->rgb + (size_t)y * stride, NULL);

    if (colour == PNG_COLOR_TYPE_GRAY && depth == 16)
        clip_16(r->img);
    if (colour == PNG_COLOR_TYPE_PALETTE)
        expand_palette(r);
    else if (!(colour & PNG_COLOR_MASK_COLOR))
        dg_image_expand(r->img, NULL);
    return true;
}

/* Metadata may follow the pixels; they are good whatever is wrong behind them. */
static void read_rest(reader *r)
{
    if (setjmp(png_jmpbuf(r->png)))
        return;
    png_read_end(r->png, r->info);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* ImageMagick's way to keep EXIF in text: an empty line, "exif", the length, then lines of hex.
 * Appends the bytes; false: out of memory. */
static bool append_raw_profile(dg_buf *out, const char *text, size_t n)
{
    const char *end = text + n;
    for (int line = 0; line < 3; line++) {
        text = memchr(text, '\n', (size_t)(end - text));
        if (!text)
            return true;
        text++;
    }
    for (int high = -1; text < end; text++) {
        int digit = hex_digit(*text);
        if (digit < 0)
            continue;
        uint8_t byte = (uint8_t)((high & 15) << 4 | digit);
        if (high >= 0 && !dg_buf_append(out, &byte, 1))
            return false;
        high = high < 0 ? digit : -1;
    }
    return true;
}

static size_t text_length(const png_text *t)
{
    return t->compression >= PNG_ITXT_COMPRESSION_NONE ? t->itxt_length : t->text_length;
}

static dgemma_status find_orientation(const reader *r, int *orientation)
{
    dg_orientation_source from = {0};
    png_bytep exif = NULL;
    png_uint_32 n_exif = 0;
    png_textp text = NULL;
    int n_text = 0;
    dg_buf raw;
    dg_buf_init(&raw, MAX_TEXT);
    png_get_text(r->png, r->info, &text, &n_text);
    for (int i = 0; i < n_text; i++) {
        if (strcmp(text[i].key, "XML:com.adobe.xmp") == 0) {
            from.xmp = (const uint8_t *)text[i].text;
            from.n_xmp = text_length(&text[i]);
        } else if (!raw.len && strcmp(text[i].key, "Raw profile type exif") == 0) {
            if (!append_raw_profile(&raw, text[i].text, text_length(&text[i]))) {
                dg_buf_clear(&raw);
                return dg_fail(r->err, DGEMMA_E_NOMEM, "out of memory for a PNG's EXIF data");
            }
        }
    }
    from.exif = (const uint8_t *)raw.data;
    from.n_exif = raw.len;
    if (png_get_eXIf_1(r->png, r->info, &n_exif, &exif)) {
        from.exif = exif;
        from.n_exif = n_exif;
    }
    *orientation = dg_orientation_find(&from);
    dg_buf_clear(&raw);
    return DGEMMA_OK;
}

dgemma_status dg_image_decode_png(dg_image *out, int *orientation, const dg_image_source *src,
                                  dgemma_error *err)
{
    reader r = {.src = src, .end = find_end(src), .img = out, .err = err};
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    if (!r.info) {
        png_destroy_read_struct(&r.png, NULL, NULL);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a PNG decoder");
    }
    png_set_read_fn(r.png, &r, read_bytes);
    if (read_picture(&r)) {
        read_rest(&r);
        r.status = find_orientation(&r, orientation);
    } else if (!r.status) {
        r.status = dg_fail(err, DGEMMA_E_FORMAT, "broken PNG: %s", r.msg);
    }
    png_destroy_read_struct(&r.png, &r.info, NULL);
    return r.status;
}
