/* FFmpeg's functions, found when the first video comes. Linked as usual they would bring some 130
 * libraries into every start of the program, a third of the time to its first answer. */
#ifndef DG_IMAGE_FFMPEG_H
#define DG_IMAGE_FFMPEG_H

#ifdef HAVE_FFMPEG

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libswscale/swscale.h>
#include "base/error.h"

/* Where the side data of a stream is. */
#if LIBAVFORMAT_VERSION_MAJOR >= 61
#define DG_FFMPEG_SIDE_DATA(X) X(avcodec, av_packet_side_data_get)
#else
#define DG_FFMPEG_SIDE_DATA(X) X(avformat, av_stream_get_side_data)
#endif

#define DG_FFMPEG_FUNCTIONS(X)                                                                     \
    DG_FFMPEG_SIDE_DATA(X)                                                                         \
    X(avformat, avformat_alloc_context)                                                            \
    X(avformat, avformat_close_input)                                                              \
    X(avformat, avformat_find_stream_info)                                                         \
    X(avformat, avformat_open_input)                                                               \
    X(avformat, avio_alloc_context)                                                                \
    X(avformat, avio_context_free)                                                                 \
    X(avformat, av_find_best_stream)                                                               \
    X(avformat, av_read_frame)                                                                     \
    X(avcodec, av_packet_alloc)                                                                    \
    X(avcodec, av_packet_free)                                                                     \
    X(avcodec, av_packet_unref)                                                                    \
    X(avcodec, avcodec_alloc_context3)                                                             \
    X(avcodec, avcodec_find_decoder)                                                               \
    X(avcodec, avcodec_free_context)                                                               \
    X(avcodec, avcodec_get_name)                                                                   \
    X(avcodec, avcodec_open2)                                                                      \
    X(avcodec, avcodec_parameters_to_context)                                                      \
    X(avcodec, avcodec_receive_frame)                                                              \
    X(avcodec, avcodec_send_packet)                                                                \
    X(avutil, av_dict_free)                                                                        \
    X(avutil, av_dict_set)                                                                         \
    X(avutil, av_display_rotation_get)                                                             \
    X(avutil, av_frame_alloc)                                                                      \
    X(avutil, av_frame_free)                                                                       \
    X(avutil, av_frame_unref)                                                                      \
    X(avutil, av_free)                                                                             \
    X(avutil, av_freep)                                                                            \
    X(avutil, av_log_get_level)                                                                    \
    X(avutil, av_log_set_level)                                                                    \
    X(avutil, av_malloc)                                                                           \
    X(swscale, sws_freeContext)                                                                    \
    X(swscale, sws_getCachedContext)                                                               \
    X(swscale, sws_scale)

#define DG_FFMPEG_MEMBER(library, name) __typeof__(&(name)) name;
typedef struct dg_ffmpeg {
    DG_FFMPEG_FUNCTIONS(DG_FFMPEG_MEMBER)
} dg_ffmpeg;
#undef DG_FFMPEG_MEMBER

/* DGEMMA_E_UNSUPPORTED: the libraries that this build knows are not on the machine. */
dgemma_status dg_ffmpeg_open(dg_ffmpeg *ff, dgemma_error *err);

#endif

#endif
