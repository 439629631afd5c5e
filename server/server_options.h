/* What a server is told when it starts: who may come in, limits, the log. */
#ifndef DG_SERVER_SERVER_OPTIONS_H
#define DG_SERVER_SERVER_OPTIONS_H

#include "dgemma.h"
#include "log.h"
#include "models.h"

/* Nothing here is kept by reference but the engine and the log. */
typedef struct dg_server_options {
    const char *host;            /* an address or a name of this machine */
    int port;                    /* 0: any that is free */
    int listen_fd;               /* a socket that listens already, in place of both; 0: none */
    const char *trusted_proxies; /* networks with commas between them; NULL: nobody says who asks */
    const char *model_name;      /* of the engine's model */
    const dg_model_specs *models; /* several in its place, borrowed; NULL: there is an engine */
    dg_models_options loading;    /* of those */
    const char *const *keys;      /* one of them must be sent; none: everybody may ask */
    size_t n_key;
    bool share_cache; /* whatever the key, what another's request left in the caches is used */
    const char *const *origins; /* sites whose pages may use the server; "*": all */
    size_t n_origin;
    const char *tls_certificate, *tls_key; /* PEM text, or both NULL */
    const char *slot_path;          /* a folder for conversations that are saved; NULL: none are */
    const char *const *image_hosts; /* that pictures are fetched from; "*": all that are public */
    size_t n_image_host;
    const char *state;    /* folder for files, batches and responses; NULL: nothing is kept */
    uint64_t state_bytes; /* of all that is kept */
    int state_days;       /* for how long */

    /* limits */
    int max_connections;
    int max_active;              /* answers that run or wait; more are refused */
    int max_running;             /* of those, what the engine runs together: for /slots */
    double decision_temperature; /* of decisions that name none */
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

#endif
