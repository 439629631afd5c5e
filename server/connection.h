/* One client's connection, from accept to close: requests in, answers out, one after the other.
 * Nothing here waits: advance() does what can be done now and says what it then needs the socket
 * for. One thread, wake() apart. */
#ifndef DG_SERVER_CONNECTION_H
#define DG_SERVER_CONNECTION_H

#include "chunks.h"
#include "client_address.h"
#include "exchange.h"
#include "head.h"
#include "tls.h"

/* What is done with requests. All of it is called on the connections' thread, which must not
 * wait. */
typedef struct dg_http_handler {
    void *user;

    /* A head has come from this address. BAD ones come too, to be refused. It stays where it is
     * until end(). The answer may be decided here already; what comes of a body then is not kept.
     * NULL: there is no memory, and the connection is closed. */
    dg_exchange *(*begin)(void *user, const dg_head *head, dg_address peer);

    /* A piece of the body; it may be refused. */
    void (*body)(dg_exchange *x, const char *data, size_t n);

    /* The whole of it was there. From here on, the answer may be decided at any time, anywhere. */
    void (*complete)(dg_exchange *x);

    /* Adds what the head of the answer says beside length and end: "Name: value\r\n". False: there
     * is no memory, and the connection is closed. */
    bool (*headers)(dg_exchange *x, dg_buf *out);

    /* The client will say no more; perhaps it is gone. */
    void (*hang_up)(dg_exchange *x);

    /* The answer was sent, or cannot be. The exchange is not used any more. */
    void (*end)(dg_exchange *x);
} dg_http_handler;

/* What connections share. */
typedef struct dg_connection_shared {
    const dg_http_handler *handler;
    dg_tls *tls;                    /* NULL: in the open */
    double idle_seconds;            /* of silence */
    double receive_seconds;         /* for a request to arrive in */
    uint64_t max_unread_bytes;      /* of a body that is not wanted, before its client is told */
    char *scratch;                  /* DG_SCRATCH_BYTES for what is received */
    void (*wake)(void *connection); /* any thread, an exchange's lock held: advance() it soon */
    void *loop;                     /* wake's own */
} dg_connection_shared;

enum { DG_SCRATCH_BYTES = 64 << 10 };

typedef enum dg_connection_state {
    DG_CONNECTION_HANDSHAKE,
    DG_CONNECTION_HEAD,
    DG_CONNECTION_BODY,
    DG_CONNECTION_WAIT,   /* for the answer to be decided */
    DG_CONNECTION_ANSWER, /* it is sent */
    DG_CONNECTION_LINGER, /* it was, and ours is closed: what still comes is thrown away */
    DG_CONNECTION_OVER
} dg_connection_state;

typedef struct dg_connection {
    const dg_connection_shared *shared;
    int fd;
    dg_address peer;
    dg_connection_state state;
    dg_tls_session *tls;
    dg_tls_progress handshake;
    double since;  /* of the request's first byte, or when the wait for it began */
    double active; /* when a byte went either way */

    dg_buf rest; /* bytes that came behind the request */
    dg_head head;
    dg_chunks chunks;
    uint64_t left;     /* bytes of the body that are still to come, unless it is chunked */
    uint64_t n_unread; /* bytes of it that were thrown away */
    dg_exchange *x;    /* NULL: no request is under way */
    bool hung_up;      /* its handler was told */

    dg_buf out; /* from `sent` on, bytes to send */
    size_t sent;
    bool is_framed, is_last; /* the answer goes in chunks; all of it is in `out` */
    bool closes;             /* after this answer */

    /* the loop's own */
    struct dg_connection *prev, *next, *next_woken;
    bool woken;
    unsigned interest;
} dg_connection;

/* Takes the socket, which does not block, in any case. NULL: out of memory. */
dg_connection *dg_connection_create(const dg_connection_shared *shared, int fd);

/* Ends the request under way, if there is one, and makes the state OVER. */
void dg_connection_end(dg_connection *c);

/* Closes the socket. After the end. */
void dg_connection_free(dg_connection *c);

/* Goes on until it would have to wait, or is OVER. `events`: poll's, what the socket is ready for.
 */
void dg_connection_advance(dg_connection *c, unsigned events);

/* What to wake it for: poll's events. */
unsigned dg_connection_interest(const dg_connection *c);

/* Whether its time is up. */
bool dg_connection_is_late(const dg_connection *c, double now);

/* Answers a request of which a part has come, and lets no more of it in. `why`: a constant. False:
 * there is none, or the client does not take the answer now; it can only be ended. */
bool dg_connection_refuse(dg_connection *c, int status, const char *code, const char *why);

/* How readily it is given up for another: 0: not at all, 1: a request is coming, 2: nothing is. */
int dg_connection_idleness(const dg_connection *c);

#endif
