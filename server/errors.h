/* What is answered when a request cannot be: a status, and the object OpenAI's clients read. */
#ifndef DG_SERVER_ERRORS_H
#define DG_SERVER_ERRORS_H

#include <jansson.h>
#include "base/error.h"

typedef struct dg_http_error {
    int status;       /* of HTTP; 0: nothing is wrong */
    const char *code; /* a word for programs; static, or NULL */
    char param[256];  /* the field that is wrong, or its JSON pointer, or "" */
    char message[512];
    int retry_after; /* seconds; 0: trying again will not help, and clients are told so */
    size_t n_context, n_prompt; /* of context_length_exceeded: tokens */
} dg_http_error;

/* Fills *e and returns false, so that a reader can end with `return dg_refuse(…)`. `param` may be
 * NULL. */
bool dg_refuse(dg_http_error *e, int status, const char *code, const char *param, const char *fmt,
               ...) DG_PRINTF(5, 6);

/* Names that a message tells, as many as it has room for; all zeros: none. */
typedef struct dg_name_list {
    char text[320];
    bool full;
} dg_name_list;

void dg_name_list_add(dg_name_list *l, const char *name);

/* A model that is asked for and is none: the same in every route, in the words of Ollama. */
bool dg_refuse_model(dg_http_error *e, const char *name, const dg_name_list *there);

/* The same for what the library said; `param` is where the prompt was, if it was about that. */
bool dg_refuse_status(dg_http_error *e, const dgemma_error *err, const char *param);

/* Takes a folder's name out of words for a client: where it is, is nobody's business. */
void dg_hide_folder(char *words, const char *folder);

/* Whether the prompt does not fit: dialects have words of their own for that. */
bool dg_error_is_context(const dg_http_error *e);

/* {"error": {message, type, param, code}}; NULL: out of memory. */
json_t *dg_error_object(const dg_http_error *e);

#endif
