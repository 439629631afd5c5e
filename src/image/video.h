/* Frames of a video, as the Gemma 4 processor takes them: a fixed number, evenly spaced, each with
 * its time. Decoded with FFmpeg's libraries where the build found them. */
#ifndef DG_IMAGE_VIDEO_H
#define DG_IMAGE_VIDEO_H

#include "image/image.h"

enum { DG_VIDEO_FRAMES = 32 }; /* num_frames of the processor */

/* Takes one frame, which it borrows; a status other than DGEMMA_OK ends the decoding with it. */
typedef dgemma_status dg_video_fn(void *arg, const dg_image *frame, double seconds,
                                  dgemma_error *err);

typedef struct dg_video_limits {
    size_t max_bytes;   /* of the file */
    int64_t max_frames; /* of the clip: all up to the last one taken are decoded */
    int64_t max_pixels; /* of all frames together: the work of decoding them */
    dg_image_limits frame;
} dg_video_limits;

/* 1 GB, 36,000 frames (20 minutes at 30 a second), 4096 x 2304 pixels a frame, and 4 billion pixels
 * in all: 64 seconds of 1920 x 1080 at 30 a second, 14 of the largest frames. A few bytes make a
 * frame that is all of one colour, so that the size of the file bounds no work. */
dg_video_limits dg_video_limits_default(void);

/* Hands over frames floor(i * total / n_sample), i = 0 … n_sample - 1, in order and one at a time,
 * so that memory holds one; all of them where the clip has no more than that (the processor refuses
 * such a clip; dgemma shows what there is). A frame's time is its index over the frame rate, which
 * is 24 where the clip does not say. Phones' videos are turned upright. Borrows data; limits may be
 * NULL: the defaults. A clip that is damaged on the way gives fewer frames.
 *
 * The first call turns FFmpeg's own log off, unless the process has chosen a level for it.
 *
 * DGEMMA_E_FORMAT: no frame can be decoded; DGEMMA_E_UNSUPPORTED: FFmpeg was not there to build
 * with or is not there now, or a kind of file it does not know; DGEMMA_E_LIMIT; DGEMMA_E_NOMEM; or
 * what fn returned. */
dgemma_status dg_video_frames(const void *data, size_t size, int n_sample,
                              const dg_video_limits *limits, dg_video_fn *fn, void *arg,
                              dgemma_error *err);

/* "mm:ss", truncated; minutes take more digits when they need them. */
enum { DG_VIDEO_TIME = 24 };
char *dg_video_time(char out[DG_VIDEO_TIME], double seconds);

#endif
