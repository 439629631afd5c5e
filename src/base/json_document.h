/* A JSON document as text. */
#ifndef DG_BASE_JSON_DOCUMENT_H
#define DG_BASE_JSON_DOCUMENT_H

#include <jansson.h>
#include "base/buf.h"
#include "base/error.h"

/* Takes `doc`; NULL is one that could not be made. Every number is read back as it was, and has no
 * more digits than the document needs: 15, or as many as its longest. DGEMMA_E_UNSUPPORTED: a text
 * is no UTF-8, or memory is out, which look the same. */
dgemma_status dg_json_document(dg_buf *out, json_t *doc, const char *name, dgemma_error *err);

#endif
