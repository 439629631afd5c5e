/* What a server remembers between requests, and over its own end: `dgemma serve --state DIR`. In
 * the folder are a database and a folder of files, which carry the names that the database gave
 * them and no other. A file is whole and on the disk before the database knows it, and the database
 * knows it before its client does: so what was acknowledged is there after any end. */
#ifndef DG_SERVER_STATE_H
#define DG_SERVER_STATE_H

#include <pthread.h>
#include "auth.h"
#include "calls.h"
#include "database.h"

enum { DG_STATE_ID = 40, DG_OWNER = 33 };

typedef struct dg_state_limits {
    uint64_t max_bytes; /* of all files and responses */
    int max_files;      /* of a key, as those that follow */
    int max_batches;
    int max_responses;
    int64_t keep_seconds; /* then it is forgotten */
} dg_state_limits;

struct dg_state {
    dg_state_limits limits;
    char *path;               /* of all of it */
    char *folder;             /* of the files */
    int folder_fd;            /* -1: not open */
    char (*owners)[DG_OWNER]; /* of each key */
    size_t n_owner;

    pthread_mutex_t lock; /* for what follows */
    dg_database *db;
    uint64_t bytes;            /* that are kept, or being written */
    uint64_t response_bytes;   /* of those, of responses */
    pthread_cond_t bell;       /* there is a batch to work at */
    char running[DG_STATE_ID]; /* the batch that is being worked at; "": none */
    atomic_bool cancels;       /* and is to be left */
};

/* Opens the folder, or makes it. */
dgemma_status dg_state_open(dg_state **out, const char *path, const dg_state_limits *limits,
                            dg_words keys, dgemma_error *err);
void dg_state_close(dg_state *s); /* NULL is fine */

/* An empty file, for who opens it next to find: in a folder that others may look into, they may not
 * look into this. */
dgemma_status dg_state_make_private(const char *path, dgemma_error *err);

/* To whom a call's things belong: a hash of its key, or "" where there are no keys. */
const char *dg_state_owner(const dg_call *c);

/* The state of a call's server; NULL: there is none, which the client was told. */
dg_state *dg_state_of(dg_call *c);

/* A new name: the prefix and 24 random hexadecimal digits. False: no random bytes are to be had. */
bool dg_state_name(char id[DG_STATE_ID], const char *prefix);

/* Room for so many bytes more. False: *e says that there is none. */
bool dg_state_reserve(dg_state *s, uint64_t bytes, dg_http_error *e);
void dg_state_release(dg_state *s, uint64_t bytes);

/* Something was counted with so many bytes, and has others; the lock is held. */
void dg_state_recount(dg_state *s, uint64_t counted, uint64_t bytes);

/* A response is gone; the lock is held. */
void dg_state_forget_response(dg_state *s, uint64_t bytes);

/* What the disk or the database said, as an answer: 507 where there is no room. Where the server
 * has its folder is taken out of the words. */
bool dg_state_refuse(const dg_state *s, dg_http_error *e, dgemma_error *err);

/* Several statements, all or none; the lock is held. end() undoes them when `st` is no success. */
dgemma_status dg_state_begin(dg_state *s, dgemma_error *err);
dgemma_status dg_state_end(dg_state *s, dgemma_status st, dgemma_error *err);

/* Whole seconds since 1970. */
int64_t dg_state_now(void);

/* A page of a list, as OpenAI has them: {object, data, first_id, last_id, has_more}. Takes the
 * data. */
json_t *dg_state_page(json_t *data, bool has_more);

/* The same of rows, each made an object of by the function, at most `limit`; one more was asked
 * for, to know whether there is. Closes them. NULL: *e says why. The lock is held. */
json_t *dg_state_list(dg_state *s, dg_rows *rows, json_t *(*object)(const dg_rows *r), int limit,
                      dgemma_error *err, dg_http_error *e);

#endif
