/* `dgemma serve`: an engine behind HTTP, in the forms that OpenAI's, Anthropic's and
 * Ollama's clients speak.
 *
 * One thread moves bytes, a few workers read requests and write answers, one watches the clock, one
 * writes the log. None of them waits for a client, and the engine waits for none of them. */
#ifndef DG_SERVER_SERVER_H
#define DG_SERVER_SERVER_H

#include "dgemma.h"
#include "log.h"

typedef struct dg_server dg_server;

/* Nothing here is kept by reference but the engine and the log. */
typedef struct dg_server_options {
    const char *host; /* an address or a name of this machine */
    int port;         /* 0: any that is free */
    const char *model_name;
    const char *const *keys; /* one of them must be sent; none: everybody may ask */
    size_t n_key;
    bool share_cache; /* whatever the key, what another's request left in the caches is used */
    const char *const *origins; /* sites whose pages may use the server; "*": all */
    size_t n_origin;
    const char *tls_certificate, *tls_key; /* PEM text, or both NULL */
    const char *const *image_hosts; /* that pictures are fetched from; "*": all that are public */
    size_t n_image_host;

    /* limits */
    int max_connections;
    int max_active;              /* answers that run or wait; more are refused */
    int max_running;             /* of those, what the engine runs together: for /slots */
    size_t max_body_bytes;       /* of one request */
    size_t max_all_body_bytes;   /* of all that are being read or answered */
    int max_choices, max_images; /* of one request */
    int idle_seconds;            /* a silent connection is closed */
    double receive_seconds;      /* for a request to arrive in */
    double answer_seconds;       /* for an answer, waiting included */
    double fetch_seconds;        /* for the pictures of a request that have to be fetched */
    double ping_seconds;         /* a stream is never silent for longer */
    int n_worker;

    bool log_prompts;     /* bodies of requests into the log */
    dg_log_write_fn *log; /* NULL: nothing is logged */
    void *log_user;
} dg_server_options;

dg_server_options dg_server_defaults(void);

/* Listens and answers from here on. The engine is borrowed until dg_server_free. */
dgemma_status dg_server_start(dg_server **out, dgemma_engine *engine, const dg_server_options *opt,
                              dgemma_error *err);
int dg_server_port(const dg_server *s);

/* New requests are refused with 503 from now on; those that were accepted go on. */
void dg_server_drain(dg_server *s);

/* Waits until nothing that was accepted is under way; false: something is, after this time. */
bool dg_server_wait_idle(dg_server *s, double seconds);

/* Ends what is under way, tells the clients, and stops listening. */
void dg_server_stop(dg_server *s);

/* After dg_server_stop. NULL is fine. */
void dg_server_free(dg_server *s);

#endif
