#include "base/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

dgemma_status dg_fail(dgemma_error *err, dgemma_status status, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        err->status = status;
        vsnprintf(err->msg, sizeof err->msg, fmt, args);
        va_end(args);
    }
    return status;
}

dgemma_status dg_fail_prefix(dgemma_error *err, dgemma_status status, const char *prefix)
{
    if (err) {
        char rest[sizeof err->msg];
        memcpy(rest, err->msg, sizeof rest);
        snprintf(err->msg, sizeof err->msg, "%.200s: %.300s", prefix, rest);
    }
    return status;
}
