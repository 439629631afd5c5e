/* What a Hugging Face folder has beside its weights, made of what a GGUF file says. */
#ifndef DG_CONVERT_FOLDER_DOCUMENTS_H
#define DG_CONVERT_FOLDER_DOCUMENTS_H

#include "base/buf.h"
#include "engine/loader.h"

enum { DG_FOLDER_DOCUMENTS = 5 };
enum { DG_FOLDER_DOCUMENT_MAX = 1 << 27 }; /* bytes, of copied ones too */

typedef struct dg_folder_document {
    const char *name; /* static; config.json is the first */
    dg_buf text;
} dg_folder_document;

typedef struct dg_folder_documents {
    dg_folder_document at[DG_FOLDER_DOCUMENTS];
    int n;
} dg_folder_documents;

/* DGEMMA_E_UNSUPPORTED: the model has no tokenizer, or something that config.json has no word for.
 * Clear *d also after a failure; a {0} is fine. */
dgemma_status dg_folder_documents_make(dg_folder_documents *d, const dg_loaded *l,
                                       dgemma_error *err);
void dg_folder_documents_clear(dg_folder_documents *d);

#endif
