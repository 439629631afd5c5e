/* TLS over sockets that do not block: GnuTLS' room. */
#ifndef DG_SERVER_TLS_H
#define DG_SERVER_TLS_H

#include <sys/types.h>
#include "base/error.h"

typedef struct dg_tls dg_tls;                 /* a certificate and its key */
typedef struct dg_tls_session dg_tls_session; /* one connection's */

/* Both are PEM text. */
dgemma_status dg_tls_open(dg_tls **out, const char *certificate, const char *key,
                          dgemma_error *err);
void dg_tls_close(dg_tls *t); /* after the last session; NULL is fine */

/* A session over a socket, which it borrows; NULL: out of memory. */
dg_tls_session *dg_tls_session_create(dg_tls *t, int fd);
void dg_tls_session_free(dg_tls_session *s); /* NULL is fine */

typedef enum dg_tls_progress {
    DG_TLS_DONE,
    DG_TLS_READS,
    DG_TLS_WRITES,
    DG_TLS_FAILED
} dg_tls_progress;

/* Goes as far as it can; READS and WRITES: until the socket lets it do that. */
dg_tls_progress dg_tls_handshake(dg_tls_session *s);

/* Like recv and send: -1 with EAGAIN in errno when the socket is not ready. A send that was not
 * ready is repeated with the same bytes. */
ssize_t dg_tls_recv(dg_tls_session *s, void *to, size_t max);
ssize_t dg_tls_send(dg_tls_session *s, const void *data, size_t n);

void dg_tls_say_goodbye(dg_tls_session *s);

#endif
