/* The head of an HTTP/1.1 request: its line and its fields, read byte by byte and judged without
 * mercy. Where two readers of one head could see the request's end in two places, a request can be
 * smuggled past the first; so whatever is not plain is refused here, also what the standard would
 * let pass. Pure: no I/O. */
#ifndef DG_SERVER_HEAD_H
#define DG_SERVER_HEAD_H

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"

enum { DG_HEAD_BYTES = 64 << 10, DG_HEAD_FIELDS = 128 };

typedef enum dg_head_state { DG_HEAD_MORE, DG_HEAD_DONE, DG_HEAD_BAD } dg_head_state;

typedef struct dg_head {
    dg_head_state state;
    int status;             /* BAD: of the answer */
    const char *code, *why; /* BAD: in a word, and in words */

    /* DONE; of a BAD one what had been read, or "" */
    const char *method, *path; /* path: of the target, without its query and its escapes */
    const char *query;         /* as it came, without its question mark */
    bool is_old;               /* HTTP/1.0 */
    bool is_chunked, keep_alive, asks_first; /* asks_first: waits for "100 Continue" */
    uint64_t length;                         /* of the body, unless it is chunked */

    /* its own business */
    dg_buf text;        /* lines, with NULs where their parts end */
    size_t line;        /* where the one being read begins */
    bool cr, was_blank; /* the last byte was a CR; an empty line came before the first */
    size_t n_method;    /* bytes; 0: not read yet */
    size_t path_at, query_at, host; /* in the text; host 0: the target names none */
    int n_field;
    struct {
        size_t name, value;
    } fields[DG_HEAD_FIELDS];
} dg_head;

void dg_head_init(dg_head *h);
void dg_head_clear(dg_head *h); /* frees; init() begins the next one */

/* Takes what belongs to the head and returns how many bytes that was; `state` says what became of
 * it. After BAD, nothing that comes on the connection means anything. */
size_t dg_head_read(dg_head *h, const char *data, size_t n);

/* No more of it is waited for: it is BAD. The texts are kept as they are. */
void dg_head_give_up(dg_head *h, int status, const char *code, const char *why);

/* Whether a byte of it has come. */
bool dg_head_begun(const dg_head *h);

/* A field's value, NULL: it is not there. Of one that is there twice, the first. */
const char *dg_head_get(const dg_head *h, const char *name);

/* The same, of one that may be there several times: in order, from 0. */
const char *dg_head_nth(const dg_head *h, const char *name, int n);

/* Whom the request is for: what an absolute target says, otherwise the field Host. */
const char *dg_head_host(const dg_head *h);

/* What names of fields, methods and the like are made of. */
bool dg_head_is_token(const char *text, size_t n);

/* -1: it is none. */
int dg_hex_digit(char c);

#endif
