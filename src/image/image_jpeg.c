/* JPEG through libjpeg(-turbo). What the library only warns of, a corrupt code somewhere, leaves a
 * picture with a flaw, as in PIL; a file that ends early is an error. */
#include "image/codecs.h"
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "image/orientation.h"
#include <jpeglib.h>
#include <jerror.h>

/* A progressive picture is gone through once for each scan, and a few bytes can hold a scan.
 * Encoders write about ten. */
enum { MAX_SCAN = 100 };

typedef struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf away;
    const dg_image_source *src;
    dg_image *img;
    dg_buf exif;
    dgemma_status status; /* what failed, where it was not libjpeg */
    dgemma_error *err;
    char msg[JMSG_LENGTH_MAX];
} reader;

static void on_error(j_common_ptr jpeg)
{
    reader *r = jpeg->client_data;
    jpeg->err->format_message(jpeg, r->msg);
    if (jpeg->err->msg_code == JERR_OUT_OF_MEMORY)
        r->status = dg_fail(r->err, DGEMMA_E_NOMEM, "out of memory in the JPEG decoder");
    longjmp(r->away, 1);
}

static void on_message(j_common_ptr jpeg, int level)
{
    if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF)
        on_error(jpeg);
}

static void on_output(j_common_ptr jpeg)
{
    (void)jpeg;
}

static void on_progress(j_common_ptr jpeg)
{
    reader *r = jpeg->client_data;
    if (r->jpeg.input_scan_number <= MAX_SCAN)
        return;
    r->status = dg_fail(r->err, DGEMMA_E_LIMIT, "a JPEG of more than %d scans", MAX_SCAN);
    longjmp(r->away, 1);
}

/* ---- colours ---- */

/* a * b / 255, rounded as PIL does it. */
static unsigned mul_255(unsigned a, unsigned b)
{
    unsigned t = a * b + 128;
    return ((t >> 8) + t) >> 8;
}

/* Inks are stored as what is left of the light, Adobe's way, which PIL takes for granted. */
static void rgb_from_cmyk(uint8_t *rgb, const uint8_t *cmyk, int n)
{
    for (int i = 0; i < n; i++, rgb += 3, cmyk += 4)
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)(cmyk[3] - mul_255(255u - cmyk[c], cmyk[3]));
}

static bool choose_colours(reader *r)
{
    switch (r->jpeg.num_components) {
    case 1:
        r->jpeg.out_color_space = JCS_GRAYSCALE;
        return true;
    case 3:
        r->jpeg.out_color_space = JCS_RGB;
        return true;
    case 4:
        r->jpeg.out_color_space = JCS_CMYK;
        return true;
    default:
        r->status =
            dg_fail(r->err, DGEMMA_E_UNSUPPORTED, "a JPEG of %d components; 1, 3 and 4 are known",
                    r->jpeg.num_components);
        return false;
    }
}

/* ---- reading ---- */

static void read_rows(reader *r)
{
    const size_t stride = (size_t)r->img->width * 3;
    JSAMPARRAY inks = NULL;
    if (r->jpeg.num_components == 4)
        inks = r->jpeg.mem->alloc_sarray((j_common_ptr)&r->jpeg, JPOOL_IMAGE,
                                         r->jpeg.output_width * 4, 1);
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        JSAMPROW row = r->img->rgb + (size_t)r->jpeg.output_scanline * stride;
        jpeg_read_scanlines(&r->jpeg, inks ? inks : &row, 1);
        if (inks)
            rgb_from_cmyk(row, inks[0], r->img->width);
    }
}

static bool read_picture(reader *r)
{
    if (setjmp(r->away))
        return false;
    jpeg_create_decompress(&r->jpeg);
    jpeg_mem_src(&r->jpeg, r->src->data, (unsigned long)r->src->size);
    jpeg_save_markers(&r->jpeg, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&r->jpeg, TRUE);
    if (!choose_colours(r))
        return false;
    r->status =
        dg_image_init(r->img, r->jpeg.image_width, r->jpeg.image_height, r->src->limits, r->err);
    if (r->status)
        return false;
    r->jpeg.progress = &r->progress;
    jpeg_start_decompress(&r->jpeg);
    read_rows(r);
    if (r->jpeg.num_components == 1)
        dg_image_expand(r->img, NULL);
    return true;
}

static bool starts_with(jpeg_saved_marker_ptr m, const char *prefix, size_t n)
{
    return m->data_length >= n && memcmp(m->data, prefix, n) == 0;
}

/* EXIF may be cut into several segments; of XMP the last counts. */
static bool find_orientation(reader *r, int *orientation)
{
    static const char exif[] = "Exif\0", xmp[] = "http://ns.adobe.com/xap/1.0/";
    dg_orientation_source from = {0};
    for (jpeg_saved_marker_ptr m = r->jpeg.marker_list; m; m = m->next) {
        if (starts_with(m, exif, sizeof exif)) {
            if (!dg_buf_append(&r->exif, m->data + sizeof exif, m->data_length - sizeof exif))
                return false;
        } else if (starts_with(m, xmp, sizeof xmp)) {
            from.xmp = m->data + sizeof xmp;
            from.n_xmp = m->data_length - sizeof xmp;
        }
    }
    from.exif = (const uint8_t *)r->exif.data;
    from.n_exif = r->exif.len;
    *orientation = dg_orientation_find(&from);
    return true;
}

dgemma_status dg_image_decode_jpeg(dg_image *out, int *orientation, const dg_image_source *src,
                                   dgemma_error *err)
{
    reader *r = dg_calloc(1, sizeof *r);
    if (!r)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a JPEG decoder");
    r->src = src;
    r->img = out;
    r->err = err;
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->errors.output_message = on_output;
    r->progress.progress_monitor = on_progress;
    dg_buf_init(&r->exif, src->size);

    if (read_picture(r)) {
        if (!find_orientation(r, orientation))
            r->status = dg_fail(err, DGEMMA_E_NOMEM, "out of memory for a JPEG's EXIF data");
    } else if (!r->status) {
        r->status = dg_fail(err, DGEMMA_E_FORMAT, "broken JPEG: %s", r->msg);
    }
    dgemma_status st = r->status;
    jpeg_destroy_decompress(&r->jpeg);
    dg_buf_clear(&r->exif);
    dg_free(r);
    return st;
}
