/* Finds a model's tensors by name, holds their shapes to the config and brings them into a
 * backend's memory. What is loaded is described by a function that walks over all of it. The walk
 * is made twice, first to check and to count what there is, then to load; a failure
 * sticks, so that the walk reads as a list of what the model is made of. */
#ifndef DG_MODEL_WEIGHTS_H
#define DG_MODEL_WEIGHTS_H

#include "backend/backend.h"
#include "format/checkpoint.h"

typedef struct dg_weights dg_weights;
typedef void dg_weights_walk_fn(dg_weights *w);

/* Values that were made of a tensor's pieces, where weights stay in that memory. */
typedef struct dg_made {
    struct dg_made *next;
    void *data;
} dg_made;
void dg_made_free(dg_made *made); /* all of them; NULL is fine */

struct dg_weights {
    void *owner; /* what the walk fills in */
    const dg_checkpoint *ck;
    dg_backend *be;
    bool load;      /* second walk */
    float *vectors; /* all vectors in one piece, the owner's to free */
    size_t n_float;
    dg_made *made;       /* the owner's to free, when nothing reads the weights any more */
    size_t matrix_bytes; /* as they are stored */
    dgemma_status st;
    dgemma_error *err;
};

/* The first walk alone: whether everything is there, in its shape. Needs no backend. */
dgemma_status dg_weights_check(dg_weights *w, dg_weights_walk_fn *walk);

/* Runs both walks. w->vectors and w->made are the owner's in any case; they may be NULL.
 * DGEMMA_E_NOMEM before anything is loaded: a device has less memory than is stored. */
dgemma_status dg_weights_run(dg_weights *w, dg_weights_walk_fn *walk);

/* What a matrix is for, and which of the tensor's rows it takes; n_row 0: all. */
typedef struct dg_weights_part {
    dg_weight_role role;
    int layer;
    int first_row, n_row;
} dg_weights_part;

/* Each names its tensor in two parts. */

/* Whether a tensor that files have under either name goes by the first. */
bool dg_weights_goes_by(const dg_weights *w, const char *prefix, const char *name,
                        const char *other);

void dg_weights_matrix(dg_weights *w, dg_weight *out, dg_weights_part part, int n_out, int n_in,
                       const char *prefix, const char *name);
void dg_weights_matrices(dg_weights *w, dg_weight *out, dg_weights_part part,
                         const int64_t shape[3], const char *prefix, const char *name);
void dg_weights_vector(dg_weights *w, float **out, int n, const char *prefix, const char *name);
void dg_weights_scalar(dg_weights *w, float *out, const char *prefix, const char *name);

/* Room for n more floats among the vectors; NULL in the first walk. */
float *dg_weights_place(dg_weights *w, size_t n);

#endif
