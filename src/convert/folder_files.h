/* The folder that a model is written into: it is called OUT.partial until all of it is there. */
#ifndef DG_CONVERT_FOLDER_FILES_H
#define DG_CONVERT_FOLDER_FILES_H

#include <stdint.h>
#include "base/error.h"
#include "convert/folder_documents.h"
#include "format/quantisation_put.h"

typedef struct dg_folder_files {
    const char *from; /* what is read: the folder whose other files are copied, or a file */
    const dg_folder_documents *documents; /* in place of copies; NULL: none */
    const char *to;                       /* its name at the end */
    dg_folder_form form;
    char *partial, *weights; /* its name until then, and the file for the weights */
    bool made;               /* it is ours to remove */
} dg_folder_files;

/* Makes the folder with all but its weights, which take so many bytes. DGEMMA_E_ARG: something has
 * the name already, or the one until then, unless that is what a run left that was killed. */
dgemma_status dg_folder_files_begin(dg_folder_files *f, uint64_t bytes, dgemma_error *err);

/* Gives the folder its name or, when `st` is a failure, removes what was written. Returns st, or
 * what went wrong here. Frees. */
dgemma_status dg_folder_files_end(dg_folder_files *f, dgemma_status st, dgemma_error *err);

#endif
