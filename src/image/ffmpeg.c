#include "image/ffmpeg.h"

#ifdef HAVE_FFMPEG

#include <dlfcn.h>

/* Those whose headers this was compiled with: structures differ from one major version to the next.
 */
#define SONAME(name, major) "lib" name ".so." AV_STRINGIFY(major)

dgemma_status dg_ffmpeg_open(dg_ffmpeg *ff, dgemma_error *err)
{
    enum { avutil, avcodec, swscale, avformat, N_LIBRARY };
    static const char *const soname[N_LIBRARY] = {
        [avutil] = SONAME("avutil", LIBAVUTIL_VERSION_MAJOR),
        [avcodec] = SONAME("avcodec", LIBAVCODEC_VERSION_MAJOR),
        [swscale] = SONAME("swscale", LIBSWSCALE_VERSION_MAJOR),
        [avformat] = SONAME("avformat", LIBAVFORMAT_VERSION_MAJOR),
    };
    /* Never closed: what FFmpeg brings with it starts threads and leaves handlers for the exit. */
    void *library[N_LIBRARY];
    for (int i = 0; i < N_LIBRARY; i++)
        if (!(library[i] = dlopen(soname[i], RTLD_LAZY | RTLD_LOCAL)))
            return dg_fail(
                err, DGEMMA_E_UNSUPPORTED,
                "no video without FFmpeg: %s cannot be loaded; Debian's package ffmpeg brings it",
                soname[i]);
#define FIND(from, name)                                                                           \
    if (!(ff->name = (__typeof__(ff->name))dlsym(library[from], #name)))                           \
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "%s lacks %s", soname[from], #name);
    DG_FFMPEG_FUNCTIONS(FIND)
#undef FIND
    return DGEMMA_OK;
}

#endif
