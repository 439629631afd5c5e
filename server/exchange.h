/* One HTTP request's answer on its way out: decided once, whole or as a stream, written by a worker
 * and sent by the HTTP thread. Knows no socket. */
#ifndef DG_SERVER_EXCHANGE_H
#define DG_SERVER_EXCHANGE_H

#include <jansson.h>
#include <pthread.h>
#include "base/buf.h"
#include "errors.h"

enum {
    DG_OUT_MAX = 256 << 20,   /* of one answer that was not sent yet */
    DG_OUT_CROWDED = 1 << 20, /* past this, drafts are left out: the client reads slowly */
    DG_ID_BYTES = 32
};

typedef struct dg_header {
    const char *name, *value;
} dg_header;

typedef struct dg_exchange {
    char id[DG_ID_BYTES]; /* hexadecimal, for the log and the client */
    pthread_mutex_t lock; /* for what follows */
    dg_buf out;           /* bytes from `sent` on wait to be sent */
    size_t sent;
    int file;         /* owned; -1: there is none. What follows `out`, and */
    size_t file_left; /* bytes of it that were not sent yet */
    int status;       /* 0: not decided yet */
    const char *content_type;
    bool streaming, closed;   /* closed: nothing more will be written */
    bool full;                /* something did not fit: the client cannot have the rest */
    const dg_header *headers; /* what this answer has of its own, up to a NULL; NULL: nothing */
    int retry_after;          /* of an error; -1: trying again will not help */
    double wrote;             /* when something was last written */
    json_t *(*error_form)(const dg_http_error *e); /* dg_error_object, or another dialect's */
    void (*wake)(void *user); /* called, with the lock held, when there is something to send; NULL:
                                 nobody waits for it */
    void *wake_user;
} dg_exchange;

bool dg_exchange_init(dg_exchange *x, void (*wake)(void *user), void *user);
void dg_exchange_clear(dg_exchange *x);

/* The whole answer; takes the body. NULL: out of memory, which the client is told. */
void dg_exchange_reply(dg_exchange *x, int status, json_t *body);
void dg_exchange_reply_text(dg_exchange *x, int status, const char *content_type, const char *text,
                            size_t len);

/* A file of this size, from where it stands; takes the descriptor. */
void dg_exchange_reply_file(dg_exchange *x, const char *content_type, int file, size_t size);
void dg_exchange_refuse(dg_exchange *x, const dg_http_error *e);

/* A stream: open, any number of writes, close. */
void dg_exchange_open(dg_exchange *x, const char *content_type);
void dg_exchange_write(dg_exchange *x, const char *data, size_t len);
void dg_exchange_close(dg_exchange *x);
bool dg_exchange_crowded(dg_exchange *x);

/* Server-sent events: "data: JSON\n\n", with "event: NAME\n" before it when there is one. Takes the
 * body; NULL is as for reply. */
void dg_exchange_event(dg_exchange *x, json_t *body);
void dg_exchange_named_event(dg_exchange *x, const char *name, json_t *body);

/* A line of JSON. */
void dg_exchange_line(dg_exchange *x, json_t *body);

/* For who sends: up to max bytes to `to`; 0: nothing is there now, -1: that was all, -2: the rest
 * is lost. The lock is held by the caller. */
long dg_exchange_take(dg_exchange *x, char *to, size_t max);

#endif
