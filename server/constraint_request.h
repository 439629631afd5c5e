/* What an answer has to look like: the fields in which clients of several servers ask for it, read
 * into one constraint. */
#ifndef DG_SERVER_CONSTRAINT_REQUEST_H
#define DG_SERVER_CONSTRAINT_REQUEST_H

#include "chat_request.h"

/* Reads them from the body of a chat or a completion, and compiles what they say, or finds it in
 * the cache. Behind the tools. Codes of refusals: unsupported_schema, schema_too_complex; `param`
 * is the JSON pointer of what is wrong. */
bool dg_constraint_read(dg_chat *out, const dg_chat_limits *limits, dg_http_error *e);

/* Refuses a body that asks for such a form where there can be none: around a gap. */
bool dg_constraint_absent(const json_t *root, dg_http_error *e);

/* What the model is to be told of it, in memory that the caller frees; NULL, with *ok true:
 * nothing. *ok false: memory is out. */
char *dg_constraint_wish(const dg_chat *chat, bool *ok);

#endif
