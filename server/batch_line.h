/* Lines of a batch in OpenAI's form: what one asks for, and what is written of it. Pure functions.
 */
#ifndef DG_SERVER_BATCH_LINE_H
#define DG_SERVER_BATCH_LINE_H

#include "routes.h"

enum { DG_CUSTOM_ID_BYTES = 256, DG_BATCH_MARK = 24 /* hexadecimal digits */ };

/* {"custom_id", "method": "POST", "url", "body"} */
typedef struct dg_batch_line {
    json_t *root;          /* owned */
    const char *custom_id; /* in the root; NULL: it has none */
    json_t *body;          /* in the root */
    const dg_route *route;
    char mark[DG_BATCH_MARK + 1]; /* the same for the same custom_id, url and body, however they are
                                     written down */
    uint64_t seed;                /* for a body without one: 32 bits, FNV-1a of the custom_id */
} dg_batch_line;

/* False: *e says what is wrong; of *out the custom_id may be there all the same. Clear it in any
 * case. */
bool dg_batch_line_read(dg_batch_line *out, const char *text, size_t len, dg_http_error *e);
void dg_batch_line_clear(dg_batch_line *l);

/* Appends {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null} and
 * a line's end; `body` is JSON. False: no room. */
bool dg_batch_answer_print(dg_buf *out, const char *custom_id, const char *mark, int status,
                           const char *body, size_t len);

/* The same for a line that was never asked: custom_id may be NULL, there is no response, and
 * "error" has code, message and the line's number. */
bool dg_batch_error_print(dg_buf *out, const char *custom_id, const char *mark, uint64_t number,
                          const dg_http_error *e);

/* Looks at a line of answers, without its end, for whose answer it is. The id has room for
 * DG_CUSTOM_ID_BYTES + 1. False: it is no whole line of that kind. */
bool dg_batch_answer_read(const char *text, size_t len, char *custom_id, char *mark);

/* Whether it could be the beginning of one that was cut short. */
bool dg_batch_answer_begins(const char *text, size_t len);

#endif
