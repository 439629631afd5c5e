/* WebP through libwebp and libwebpdemux: the first frame, on a black canvas where it is smaller. */
#include "image/codecs.h"
#include <webp/decode.h>
#include <webp/demux.h>
#include "image/orientation.h"

static dgemma_status decode_frame(dg_image *img, const WebPIterator *frame, dgemma_error *err)
{
    if (frame->x_offset < 0 || frame->y_offset < 0 || frame->width > img->width - frame->x_offset ||
        frame->height > img->height - frame->y_offset)
        return dg_fail(err, DGEMMA_E_FORMAT, "broken WebP: a frame lies outside its canvas");
    const size_t stride = (size_t)img->width * 3;
    const size_t start = (size_t)frame->y_offset * stride + (size_t)frame->x_offset * 3;
    const size_t room = stride * (size_t)img->height - start;
    if (!WebPDecodeRGBInto(frame->fragment.bytes, frame->fragment.size, img->rgb + start, room,
                           (int)stride))
        return dg_fail(err, DGEMMA_E_FORMAT, "broken WebP: the frame's data");
    return DGEMMA_OK;
}

static int find_orientation(WebPDemuxer *demux)
{
    dg_orientation_source from = {0};
    WebPChunkIterator exif, xmp;
    if (WebPDemuxGetChunk(demux, "EXIF", 1, &exif)) {
        from.exif = exif.chunk.bytes;
        from.n_exif = exif.chunk.size;
    }
    if (WebPDemuxGetChunk(demux, "XMP ", 1, &xmp)) {
        from.xmp = xmp.chunk.bytes;
        from.n_xmp = xmp.chunk.size;
    }
    int orientation = dg_orientation_find(&from);
    WebPDemuxReleaseChunkIterator(&exif);
    WebPDemuxReleaseChunkIterator(&xmp);
    return orientation;
}

dgemma_status dg_image_decode_webp(dg_image *out, int *orientation, const dg_image_source *src,
                                   dgemma_error *err)
{
    const WebPData data = {.bytes = src->data, .size = src->size};
    WebPDemuxer *demux = WebPDemux(&data);
    if (!demux)
        return dg_fail(err, DGEMMA_E_FORMAT, "broken WebP: cut off, or not a container of frames");

    WebPIterator frame;
    dgemma_status st;
    if (!WebPDemuxGetFrame(demux, 1, &frame)) {
        st = dg_fail(err, DGEMMA_E_FORMAT, "broken WebP: no frame");
    } else {
        st = dg_image_init(out, WebPDemuxGetI(demux, WEBP_FF_CANVAS_WIDTH),
                           WebPDemuxGetI(demux, WEBP_FF_CANVAS_HEIGHT), src->limits, err);
        if (!st)
            st = decode_frame(out, &frame, err);
        if (!st)
            *orientation = find_orientation(demux);
        WebPDemuxReleaseIterator(&frame);
    }
    WebPDemuxDelete(demux);
    return st;
}
