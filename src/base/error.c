#include "base/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/utf8.h"

/* Names from files go into messages: whatever they hold, the message is one line of whole
 * characters. */
static void make_one_line(char *msg)
{
    size_t n = strlen(msg);
    n -= dg_utf8_partial(msg, n);
    msg[n] = '\0';
    for (char *c = msg; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
}

dgemma_status dg_fail(dgemma_error *err, dgemma_status status, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        err->status = status;
        vsnprintf(err->msg, sizeof err->msg, fmt, args);
        va_end(args);
        make_one_line(err->msg);
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
