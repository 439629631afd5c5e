/* Questions over HTTP, as far as both wires share them: what is asked, in the library's form, and
 * the extensions. Pure functions of JSON. */
#ifndef DG_SERVER_DECIDE_BODY_H
#define DG_SERVER_DECIDE_BODY_H

#include <jansson.h>
#include "dgemma.h"
#include "errors.h"

typedef struct dg_decide_body {
    json_t *root; /* owned: strings below are borrowed from it */
    dgemma_decide_options options;
    dgemma_question *questions; /* owned, with their options */
    char **texts;               /* owned: JSON values that became text */
    size_t n_text, cap_text;
    bool diagnostics;
    int max_images;
} dg_decide_body;

/* A wire: how questions come in and answers go out. `read` finds the root in the body; its strings
 * are checked, and `param` of an error is a path with slashes. */
typedef struct dg_decide_wire {
    bool (*read)(dg_decide_body *b, dg_http_error *e);
    json_t *(*write)(const dg_decide_body *b, const dgemma_decision *d, const char *model);
} dg_decide_wire;

void dg_decide_body_clear(dg_decide_body *b);

/* Room for n questions, each with its options made by dg_decide_options_of. */
bool dg_decide_begin(dg_decide_body *b, size_t n, dg_http_error *e);
dgemma_option *dg_decide_options_of(dg_decide_body *b, size_t question, size_t n, dg_http_error *e);

/* A string as it is, null as NULL, everything else as JSON. *out lives as long as the body. */
bool dg_decide_text(dg_decide_body *b, const json_t *value, const char **out, dg_http_error *e);

/* seed, samples, steps, think, mode, permute, diagnostics, temperature. */
bool dg_decide_extensions(dg_decide_body *b, dg_http_error *e);

/* With "diagnostics": what is told beyond an answer, into it. */
void dg_decide_diagnose(const dg_decide_body *b, const dgemma_answer *a, json_t **answer);

/* One name that is missing, or of the wrong type: 422 with its path. */
bool dg_decide_missing(dg_http_error *e, const char *path);
bool dg_decide_wrong(dg_http_error *e, const char *path, const char *wanted);

#endif
