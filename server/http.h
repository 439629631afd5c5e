/* HTTP/1.1 to many clients over one thread, which waits for all of them and for none: sockets, who
 * is next, whose time is up. What a request means is the handler's business. */
#ifndef DG_SERVER_HTTP_H
#define DG_SERVER_HTTP_H

#include "connection.h"

typedef struct dg_http dg_http;

typedef struct dg_http_options {
    const char *host; /* an address or a name of this machine */
    int port;         /* 0: any that is free */
    int listen_fd;    /* a socket that listens already, in place of both; 0: none. It is taken */
    const char *tls_certificate, *tls_key; /* PEM text, or both NULL */
    int max_connections;
    double idle_seconds;       /* a silent connection is closed */
    double receive_seconds;    /* for a request to arrive in */
    uint64_t max_unread_bytes; /* read of a body that is not wanted, before its client is told */
} dg_http_options;

/* Binds the address, or takes the socket that is given, in any case. The handler is borrowed. */
dgemma_status dg_http_open(dg_http **out, const dg_http_options *opt,
                           const dg_http_handler *handler, dgemma_error *err);

/* Whether nobody but programs of this machine can reach it. */
bool dg_http_is_local(const dg_http *h);
int dg_http_port(const dg_http *h);
int dg_http_n_connection(dg_http *h); /* any thread */

/* Answers from here on. */
dgemma_status dg_http_start(dg_http *h, dgemma_error *err);

/* Closes every connection; each exchange has come to its end() when it returns. */
void dg_http_stop(dg_http *h);

/* After stop(). NULL is fine. */
void dg_http_free(dg_http *h);

#endif
