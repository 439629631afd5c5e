/* dgemma: runs DiffusionGemma, a block-diffusion language model.
 *
 * Two handles carry everything: an engine is a loaded model, a request is one piece of work on it.
 * Functions that can fail return a dgemma_status and, when the caller passes a dgemma_error, say in
 * it what was wrong. The library never prints, never exits and reads no environment variable. */
#ifndef DGEMMA_H
#define DGEMMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DGEMMA_VERSION "0.1.0"

#if defined(DGEMMA_BUILD) && defined(__GNUC__)
#define DGEMMA_API __attribute__((visibility("default")))
#else
#define DGEMMA_API
#endif

/* ---- errors ---- */

typedef enum dgemma_status {
    DGEMMA_OK = 0,
    DGEMMA_E_ARG = -1,         /* the caller asked for something that makes no sense */
    DGEMMA_E_NOMEM = -2,       /* memory is out */
    DGEMMA_E_IO = -3,          /* a file is missing or cannot be read */
    DGEMMA_E_FORMAT = -4,      /* a file's content is broken or contradicts itself */
    DGEMMA_E_UNSUPPORTED = -5, /* well-formed, but not something this build can do */
    DGEMMA_E_LIMIT = -6,       /* a stated limit was exceeded */
    DGEMMA_E_CANCELLED = -7,   /* a callback asked to stop */
    DGEMMA_E_INTERNAL = -8     /* a bug or a broken device */
} dgemma_status;

typedef struct dgemma_error {
    dgemma_status status;
    char msg[512]; /* one line, UTF-8, no newline at its end */
} dgemma_error;

/* "0.1.0"; static. */
DGEMMA_API const char *dgemma_version(void);

#ifdef __cplusplus
}
#endif

#endif
