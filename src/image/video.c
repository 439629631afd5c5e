/* Frames of a video through libavformat, libavcodec and libswscale.
 *
 * The file is read twice: once to count its frames, for what a header says may be missing or wrong,
 * and once to decode it up to the last frame that is wanted. Both readings are from memory, and no
 * demuxer may open anything else: a playlist inside a hostile file leads nowhere. */
#include "image/video.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "image/ffmpeg.h"
#include "image/orientation.h"

dg_video_limits dg_video_limits_default(void)
{
    return (dg_video_limits){
        .max_bytes = 1000000000,
        .max_frames = 36000,
        .max_pixels = 4000000000,
        .frame = {.max_bytes = 0, .max_pixels = 4096 * 2304, .max_side = 16384},
    };
}

char *dg_video_time(char out[DG_VIDEO_TIME], double seconds)
{
    const double t = seconds > 0 && seconds < 1e9 ? floor(seconds) : 0;
    snprintf(out, DG_VIDEO_TIME, "%02d:%02d", (int)(t / 60), (int)fmod(t, 60));
    return out;
}

typedef struct source {
    const uint8_t *data;
    size_t size;
    const dg_video_limits *limits;
    dgemma_error *err;
} source;

typedef struct sampling {
    int n_sample;
    dg_video_fn *fn;
    void *arg;
    int64_t n_total; /* frames of the clip */
    double fps;
    int64_t index, n_taken; /* of the frame that comes out of the decoder next; so far */
    /* Pixels that went into the decoder and came out. Not all frames that go in come out. */
    int64_t n_sent, n_received;
} sampling;

#ifdef HAVE_FFMPEG

typedef struct clip {
    dg_ffmpeg ff;
    const source *src;
    size_t at;
    const dg_video_limits *limits;
    dgemma_error *err;
    AVIOContext *io;
    AVFormatContext *format;
    AVCodecContext *codec;
    struct SwsContext *scale;
    AVPacket *packet;
    AVFrame *frame;
    int stream;
} clip;

/* ---- reading from memory ---- */

static int read_bytes(void *opaque, uint8_t *out, int n)
{
    clip *c = opaque;
    size_t left = c->src->size - c->at, take = n > 0 && (size_t)n < left ? (size_t)n : left;
    if (take == 0)
        return AVERROR_EOF;
    memcpy(out, c->src->data + c->at, take);
    c->at += take;
    return (int)take;
}

static int64_t seek_bytes(void *opaque, int64_t offset, int whence)
{
    clip *c = opaque;
    if (whence == AVSEEK_SIZE)
        return (int64_t)c->src->size;
    const int64_t base = whence == SEEK_CUR   ? (int64_t)c->at
                         : whence == SEEK_END ? (int64_t)c->src->size
                                              : 0;
    if (offset < -base || offset > (int64_t)c->src->size - base)
        return AVERROR(EINVAL);
    c->at = (size_t)(base + offset);
    return base + offset;
}

static int refuse_open(AVFormatContext *s, AVIOContext **pb, const char *url, int flags,
                       AVDictionary **options)
{
    (void)s, (void)pb, (void)url, (void)flags, (void)options;
    return AVERROR(EPERM);
}

static void clip_close(clip *c)
{
    c->ff.av_frame_free(&c->frame);
    c->ff.av_packet_free(&c->packet);
    c->ff.sws_freeContext(c->scale);
    c->ff.avcodec_free_context(&c->codec);
    c->ff.avformat_close_input(&c->format);
    if (c->io)
        c->ff.av_freep(&c->io->buffer);
    c->ff.avio_context_free(&c->io);
}

static dgemma_status out_of_memory(const clip *c)
{
    return dg_fail(c->err, DGEMMA_E_NOMEM, "out of memory for a video");
}

static dgemma_status open_format(clip *c)
{
    /* Files that hold their own video. FFmpeg also knows lists of other files. */
    static const char containers[] = "mov,matroska,avi,mpegts,mpeg,mpegvideo,ogg,flv,asf,gif,apng,"
                                     "ivf,h264,hevc,m4v,obu,mjpeg,nut,wtv,rm";
    enum { IO_BUFFER = 65536 };
    uint8_t *buffer = c->ff.av_malloc(IO_BUFFER);
    c->io = buffer ? c->ff.avio_alloc_context(buffer, IO_BUFFER, 0, c, read_bytes, NULL, seek_bytes)
                   : NULL;
    if (!c->io)
        c->ff.av_free(buffer);
    c->format = c->ff.avformat_alloc_context();
    c->packet = c->ff.av_packet_alloc();
    c->frame = c->ff.av_frame_alloc();
    if (!c->io || !c->format || !c->packet || !c->frame)
        return out_of_memory(c);
    c->format->pb = c->io;
    c->format->io_open = refuse_open;
    c->format->max_streams = 64;
    AVDictionary *options = NULL;
    c->ff.av_dict_set(&options, "format_whitelist", containers, 0);
    const int opened = c->ff.avformat_open_input(&c->format, NULL, NULL, &options);
    c->ff.av_dict_free(&options);
    if (opened < 0) /* the context is gone */
        return dg_fail(c->err, DGEMMA_E_UNSUPPORTED, "not a video of a kind that FFmpeg knows");
    if (c->ff.avformat_find_stream_info(c->format, NULL) < 0)
        return dg_fail(c->err, DGEMMA_E_FORMAT, "broken video: its streams cannot be read");
    c->stream = c->ff.av_find_best_stream(c->format, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
    if (c->stream < 0)
        return dg_fail(c->err, DGEMMA_E_FORMAT, "no video stream in this file");
    return DGEMMA_OK;
}

static dgemma_status open_codec(clip *c)
{
    const AVCodecParameters *par = c->format->streams[c->stream]->codecpar;
    const AVCodec *decoder = c->ff.avcodec_find_decoder(par->codec_id);
    if (!decoder)
        return dg_fail(c->err, DGEMMA_E_UNSUPPORTED, "no decoder for video in %s",
                       c->ff.avcodec_get_name(par->codec_id));
    c->codec = c->ff.avcodec_alloc_context3(decoder);
    if (!c->codec || c->ff.avcodec_parameters_to_context(c->codec, par) < 0)
        return out_of_memory(c);
    c->codec->max_pixels = c->limits->frame.max_pixels;
    if (c->ff.avcodec_open2(c->codec, decoder, NULL) < 0)
        return dg_fail(c->err, DGEMMA_E_FORMAT, "broken video: its %s stream cannot be opened",
                       decoder->name);
    return DGEMMA_OK;
}

/* The next packet of the stream; false at the end. */
static bool next_packet(clip *c)
{
    c->ff.av_packet_unref(c->packet);
    while (c->ff.av_read_frame(c->format, c->packet) >= 0) {
        if (c->packet->stream_index == c->stream)
            return true;
        c->ff.av_packet_unref(c->packet);
    }
    return false;
}

/* ---- pictures ---- */

/* The display matrix in quarter turns, as an EXIF orientation. Files say it in their stream; a
 * slanted or mirrored one is left alone. */
#if LIBAVFORMAT_VERSION_MAJOR >= 61
static const uint8_t *display_matrix(const clip *c, const AVStream *s)
{
    const AVPacketSideData *d = c->ff.av_packet_side_data_get(
        s->codecpar->coded_side_data, s->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    return d && d->size >= 9 * sizeof(int32_t) ? d->data : NULL;
}
#else
static const uint8_t *display_matrix(const clip *c, const AVStream *s)
{
    size_t n = 0;
    const uint8_t *d = c->ff.av_stream_get_side_data(s, AV_PKT_DATA_DISPLAYMATRIX, &n);
    return d && n >= 9 * sizeof(int32_t) ? d : NULL;
}
#endif

static int find_orientation(const clip *c)
{
    static const int turned[4] = {1, 8, 3, 6}; /* counter-clockwise by 0, 90, 180, 270 degrees */
    const uint8_t *data = display_matrix(c, c->format->streams[c->stream]);
    if (!data)
        return 1;
    int32_t matrix[9];
    memcpy(matrix, data, sizeof matrix);
    const double angle = c->ff.av_display_rotation_get(matrix);
    if (isnan(angle))
        return 1;
    return turned[(int)lround(angle / 90 + 4) & 3];
}

static dgemma_status to_image(clip *c, dg_image *out)
{
    const AVFrame *f = c->frame;
    dgemma_status st = dg_image_init(out, f->width, f->height, &c->limits->frame, c->err);
    if (st)
        return st;
    c->scale =
        c->ff.sws_getCachedContext(c->scale, f->width, f->height, f->format, f->width, f->height,
                                   AV_PIX_FMT_RGB24, SWS_BICUBIC, NULL, NULL, NULL);
    uint8_t *plane[4] = {out->rgb};
    const int stride[4] = {out->width * 3};
    if (!c->scale || c->ff.sws_scale(c->scale, (const uint8_t *const *)f->data, f->linesize, 0,
                                     f->height, plane, stride) != f->height)
        return dg_fail(c->err, DGEMMA_E_FORMAT, "a frame of the video cannot be made RGB");
    return dg_orientation_apply(out, find_orientation(c), c->err);
}

/* ---- the two readings ---- */

static int64_t frame_area(int width, int height)
{
    return width > 0 && height > 0 ? (int64_t)width * height : 1;
}

/* The work that is done, for what a file says of itself may be less. */
static dgemma_status spend(const clip *c, int64_t *spent, int width, int height)
{
    *spent += frame_area(width, height);
    return *spent <= c->limits->max_pixels
               ? DGEMMA_OK
               : dg_fail(c->err, DGEMMA_E_LIMIT,
                         "a video of larger frames, or more, than it says: at most %lld pixels in "
                         "all",
                         (long long)c->limits->max_pixels);
}

static dgemma_status count_frames(clip *c, sampling *s)
{
    dgemma_status st = open_format(c);
    if (st)
        return st;
    while (next_packet(c))
        if (!(c->packet->flags & AV_PKT_FLAG_DISCARD) && ++s->n_total > c->limits->max_frames)
            return dg_fail(c->err, DGEMMA_E_LIMIT, "a video of more than %lld frames",
                           (long long)c->limits->max_frames);
    if (s->n_total == 0)
        return dg_fail(c->err, DGEMMA_E_FORMAT, "a video without frames");
    const AVCodecParameters *par = c->format->streams[c->stream]->codecpar;
    const int64_t area = frame_area(par->width, par->height);
    if (s->n_total > c->limits->max_pixels / area)
        return dg_fail(
            c->err, DGEMMA_E_LIMIT, "a video of %lld frames of %d x %d, at most %lld pixels in all",
            (long long)s->n_total, par->width, par->height, (long long)c->limits->max_pixels);
    const double fps = av_q2d(c->format->streams[c->stream]->avg_frame_rate);
    s->fps = isfinite(fps) && fps > 0 ? fps : 24;
    if (s->n_sample > s->n_total)
        s->n_sample = (int)s->n_total;
    return DGEMMA_OK;
}

static dgemma_status hand_over(clip *c, const sampling *s)
{
    dg_image img;
    dgemma_status st = to_image(c, &img);
    if (!st)
        st = s->fn(s->arg, &img, (double)s->index / s->fps, c->err);
    dg_image_clear(&img);
    return st;
}

/* Goes through what the decoder has ready. */
static dgemma_status take_frames(clip *c, sampling *s)
{
    dgemma_status st = DGEMMA_OK;
    while (!st && s->n_taken < s->n_sample &&
           c->ff.avcodec_receive_frame(c->codec, c->frame) >= 0) {
        st = spend(c, &s->n_received, c->frame->width, c->frame->height);
        if (!st && s->index == s->n_taken * s->n_total / s->n_sample) {
            st = hand_over(c, s);
            s->n_taken++;
        }
        s->index++;
        c->ff.av_frame_unref(c->frame);
    }
    return st;
}

static dgemma_status sample_frames(clip *c, sampling *s)
{
    dgemma_status st = open_format(c);
    if (!st)
        st = open_codec(c);
    /* A packet that cannot be decoded costs its own frames; the others still come. */
    while (!st && s->n_taken < s->n_sample && next_packet(c)) {
        c->ff.avcodec_send_packet(c->codec, c->packet);
        st = spend(c, &s->n_sent, c->codec->width, c->codec->height);
        if (!st)
            st = take_frames(c, s);
    }
    if (!st && s->n_taken < s->n_sample) {
        c->ff.avcodec_send_packet(c->codec, NULL);
        st = take_frames(c, s);
    }
    if (!st && s->n_taken == 0)
        return dg_fail(c->err, DGEMMA_E_FORMAT, "no frame of the video can be decoded");
    return st;
}

static dgemma_status read_video(const source *src, sampling *s)
{
    dg_ffmpeg ff;
    dgemma_status st = dg_ffmpeg_open(&ff, src->err);
    if (st)
        return st;
    if (ff.av_log_get_level() == AV_LOG_INFO) /* nobody has set it */
        ff.av_log_set_level(AV_LOG_QUIET);
    clip c = {.ff = ff, .src = src, .limits = src->limits, .err = src->err};
    st = count_frames(&c, s);
    clip_close(&c);
    if (st)
        return st;
    c = (clip){.ff = ff, .src = src, .limits = src->limits, .err = src->err};
    st = sample_frames(&c, s);
    clip_close(&c);
    return st;
}

#else

static dgemma_status read_video(const source *src, sampling *s)
{
    (void)s;
    return dg_fail(
        src->err, DGEMMA_E_UNSUPPORTED,
        "this build reads no video: install libavformat-dev, libavcodec-dev, libswscale-dev "
        "and libavutil-dev, then make it again");
}

#endif

dgemma_status dg_video_frames(const void *data, size_t size, int n_sample,
                              const dg_video_limits *limits, dg_video_fn *fn, void *arg,
                              dgemma_error *err)
{
    enum { MAX_SAMPLE = 4096 };
    const dg_video_limits standard = dg_video_limits_default();
    if (!limits)
        limits = &standard;
    if (n_sample < 1 || n_sample > MAX_SAMPLE)
        return dg_fail(err, DGEMMA_E_ARG, "%d frames of a video, 1 to %d can be had", n_sample,
                       MAX_SAMPLE);
    if (size == 0)
        return dg_fail(err, DGEMMA_E_FORMAT, "a video of 0 bytes");
    if (size > limits->max_bytes)
        return dg_fail(err, DGEMMA_E_LIMIT, "a video of %zu bytes, at most %zu", size,
                       limits->max_bytes);
    const source src = {.data = data, .size = size, .limits = limits, .err = err};
    sampling s = {.n_sample = n_sample, .fn = fn, .arg = arg};
    return read_video(&src, &s);
}
