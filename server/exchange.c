#include "exchange.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "json_text.h"
#include <sys/random.h>
#include <unistd.h>

bool dg_exchange_init(dg_exchange *x, void (*wake)(void *user), void *user)
{
    unsigned char bytes[12];
    *x = (dg_exchange){.file = -1,
                       .wake = wake,
                       .wake_user = user,
                       .content_type = "application/json",
                       .error_form = dg_error_object};
    dg_buf_init(&x->out, DG_OUT_MAX);
    pthread_mutex_init(&x->lock, NULL);
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(x->id + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

void dg_exchange_clear(dg_exchange *x)
{
    dg_buf_clear(&x->out);
    if (x->file >= 0)
        close(x->file);
    pthread_mutex_destroy(&x->lock);
}

/* ---- writing ---- */

static void wake(dg_exchange *x)
{
    x->wrote = dg_clock_now();
    if (x->wake)
        x->wake(x->wake_user);
}

static void append(dg_exchange *x, const char *data, size_t len)
{
    x->full = x->full || !dg_buf_append(&x->out, data, len);
    wake(x);
}

static const char no_memory[] =
    "{\"error\":{\"message\":\"out of memory\",\"type\":\"unavailable_error\","
    "\"param\":null,\"code\":\"out_of_memory\"}}";

static void decide(dg_exchange *x, int status, const char *content_type, const char *text,
                   size_t len)
{
    if (x->status)
        return;
    if (!dg_buf_append(&x->out, text, len)) {
        status = 503;
        content_type = "application/json";
        dg_buf_append(&x->out, no_memory,
                      sizeof no_memory - 1); /* or nothing: the status says it */
    }
    x->status = status;
    x->content_type = content_type;
    x->closed = true;
    wake(x);
}

void dg_exchange_reply_text(dg_exchange *x, int status, const char *content_type, const char *text,
                            size_t len)
{
    pthread_mutex_lock(&x->lock);
    decide(x, status, content_type, text, len);
    pthread_mutex_unlock(&x->lock);
}

void dg_exchange_reply(dg_exchange *x, int status, json_t *body)
{
    size_t len = 0;
    char *text = dg_json_dump(body, &len);
    json_decref(body);
    if (text)
        dg_exchange_reply_text(x, status, "application/json", text, len);
    else
        dg_exchange_reply_text(x, 503, "application/json", no_memory, sizeof no_memory - 1);
    dg_free(text);
}

void dg_exchange_reply_file(dg_exchange *x, const char *content_type, int file, size_t size)
{
    pthread_mutex_lock(&x->lock);
    x->file = file;
    x->file_left = size;
    decide(x, 200, content_type, "", 0);
    pthread_mutex_unlock(&x->lock);
}

void dg_exchange_refuse(dg_exchange *x, const dg_http_error *e)
{
    pthread_mutex_lock(&x->lock);
    if (!x->status)
        x->retry_after = e->retry_after ? e->retry_after : -1;
    pthread_mutex_unlock(&x->lock);
    dg_exchange_reply(x, e->status, x->error_form(e));
}

void dg_exchange_open(dg_exchange *x, const char *content_type)
{
    pthread_mutex_lock(&x->lock);
    if (!x->status) {
        x->status = 200;
        x->content_type = content_type;
        x->streaming = true;
        wake(x);
    }
    pthread_mutex_unlock(&x->lock);
}

void dg_exchange_write(dg_exchange *x, const char *data, size_t len)
{
    pthread_mutex_lock(&x->lock);
    if (x->streaming && !x->closed)
        append(x, data, len);
    pthread_mutex_unlock(&x->lock);
}

/* The body between two pieces of text, all at once. */
static void write_body(dg_exchange *x, const char *before, json_t *body, const char *after)
{
    size_t len = 0;
    char *text = dg_json_dump(body, &len);
    json_decref(body);
    pthread_mutex_lock(&x->lock);
    x->full = x->full || !text;
    if (text && x->streaming && !x->closed) {
        append(x, before, strlen(before));
        append(x, text, len);
        append(x, after, strlen(after));
    }
    pthread_mutex_unlock(&x->lock);
    dg_free(text);
}

void dg_exchange_event(dg_exchange *x, json_t *body)
{
    write_body(x, "data: ", body, "\n\n");
}

void dg_exchange_named_event(dg_exchange *x, const char *name, json_t *body)
{
    char before[96];
    snprintf(before, sizeof before, "event: %s\ndata: ", name);
    write_body(x, before, body, "\n\n");
}

void dg_exchange_line(dg_exchange *x, json_t *body)
{
    write_body(x, "", body, "\n");
}

void dg_exchange_close(dg_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->closed = true;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

bool dg_exchange_crowded(dg_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool crowded = x->out.len - x->sent > DG_OUT_CROWDED;
    pthread_mutex_unlock(&x->lock);
    return crowded;
}

/* ---- sending ---- */

/* From the file, which a disk may have lost since. */
static long take_from_file(dg_exchange *x, char *to, size_t max)
{
    ssize_t n = read(x->file, to, x->file_left < max ? x->file_left : max);
    if (n <= 0) {
        x->full = true;
        return -2;
    }
    x->file_left -= (size_t)n;
    return (long)n;
}

long dg_exchange_take(dg_exchange *x, char *to, size_t max)
{
    size_t left = x->out.len - x->sent;
    if (!left && x->file_left && !x->full)
        return take_from_file(x, to, max);
    if (!left)
        return x->full ? -2 : x->closed ? -1 : 0;
    size_t n = left < max ? left : max;
    memcpy(to, x->out.data + x->sent, n);
    x->sent += n;
    if (x->streaming && x->sent >= x->out.len - x->sent) { /* the room is used again */
        x->out.len -= x->sent;
        memmove(x->out.data, x->out.data + x->sent, x->out.len);
        x->sent = 0;
    }
    return (long)n;
}
