#include "model/weights.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "tensor/matrix_pieces.h"

enum { NAME_MAX_BYTES = 192 };

static void join(char out[NAME_MAX_BYTES], const char *prefix, const char *name)
{
    snprintf(out, NAME_MAX_BYTES, "%s%s", prefix, name);
}

/* Files of some tools have the layers of the encoder alone, of which the decoder's are copies: all
 * but their scalars, which are each its own. */
static const dg_tensor *find_copy(const dg_weights *w, const char *name)
{
    static const char decoder[] = "model.decoder.";
    const char *end = strrchr(name, '.');
    if (strncmp(name, decoder, sizeof decoder - 1) != 0 || strcmp(end, ".layer_scalar") == 0)
        return NULL;
    char other[NAME_MAX_BYTES];
    join(other, "model.encoder.language_model.", name + sizeof decoder - 1);
    return dg_checkpoint_find(w->ck, other);
}

static const dg_tensor *find(dg_weights *w, const int64_t *shape, int n_dim, const char *prefix,
                             const char *name)
{
    char full[NAME_MAX_BYTES];
    join(full, prefix, name);
    if (w->st)
        return NULL;
    const dg_tensor *t = dg_checkpoint_find(w->ck, full);
    if (!t)
        t = find_copy(w, full);
    if (!t) {
        w->st = dg_fail(w->err, DGEMMA_E_FORMAT, "%s: tensor %s is missing",
                        dg_checkpoint_dir(w->ck), full);
        return NULL;
    }
    /* a scalar may be written without a dimension */
    bool one = n_dim == 1 && shape[0] == 1 && t->n_dim == 0;
    if (!one &&
        (t->n_dim != n_dim || memcmp(t->shape, shape, (size_t)n_dim * sizeof *shape) != 0)) {
        char got[DG_SHAPE_TEXT], want[DG_SHAPE_TEXT];
        w->st = dg_fail(w->err, DGEMMA_E_FORMAT, "%s: %s has shape %s, the config asks for %s",
                        dg_checkpoint_dir(w->ck), full, dg_shape_text(got, t->shape, t->n_dim),
                        dg_shape_text(want, shape, n_dim));
        return NULL;
    }
    if (t->type >= DG_DTYPE_COMPUTE) {
        w->st =
            dg_fail(w->err, DGEMMA_E_UNSUPPORTED, "%s: %s is of type %s, which weights cannot have",
                    dg_checkpoint_dir(w->ck), full, dg_dtype_name(t->type));
        return NULL;
    }
    return t;
}

bool dg_weights_goes_by(const dg_weights *w, const char *prefix, const char *name,
                        const char *other)
{
    char full[NAME_MAX_BYTES], instead[NAME_MAX_BYTES];
    join(full, prefix, name);
    join(instead, prefix, other);
    if (dg_checkpoint_find(w->ck, full))
        return true;
    return !dg_checkpoint_find(w->ck, instead) && find_copy(w, full);
}

void dg_made_free(dg_made *made)
{
    for (dg_made *next; made; made = next) {
        next = made->next;
        dg_free(made->data);
        dg_free(made);
    }
}

/* The rows that are asked for of a tensor in pieces become a tensor; they are kept where the
 * backend does not copy them. */
static void take_pieces(dg_weights *w, dg_weight *out, dg_weight_source from)
{
    dg_tensor t = *from.tensor;
    int64_t *n_row = &t.shape[t.n_dim - 2];
    t.bytes = t.bytes / (size_t)*n_row * (size_t)from.n_row;
    dg_made *made = dg_calloc(1, sizeof *made);
    void *data = dg_malloc_aligned(t.bytes);
    if (!made || !data)
        w->st = dg_fail(w->err, DGEMMA_E_NOMEM, "%s: no memory for %zu MiB", t.name,
                        (t.bytes >> 20) + 1);
    else if ((w->st = dg_pieces_make(data, &t, from.first_row, from.n_row, w->err)))
        dg_fail_prefix(w->err, w->st, dg_checkpoint_dir(w->ck));
    *n_row = from.n_row;
    t.data = data;
    t.pieces = NULL;
    from.tensor = &t;
    from.first_row = 0;
    if (!w->st)
        w->st = w->be->weight_init(w->be, out, &from, w->err);
    if (w->st || !w->be->borrows_weights) {
        dg_free(data);
        dg_free(made);
        return;
    }
    *made = (dg_made){w->made, data};
    w->made = made;
}

static void take(dg_weights *w, dg_weight *out, dg_weights_part part, const int64_t *shape,
                 int n_dim, const char *prefix, const char *name)
{
    const dg_tensor *t = find(w, shape, n_dim, prefix, name);
    int n_all = (int)shape[n_dim - 2], n_row = part.n_row ? part.n_row : n_all;
    if (t)
        w->matrix_bytes += t->bytes / (size_t)n_all * (size_t)n_row;
    if (!t || !w->load)
        return;
    dg_weight_source from = {t, part.role, part.layer, part.first_row, n_row};
    if (t->pieces)
        take_pieces(w, out, from);
    else
        w->st = w->be->weight_init(w->be, out, &from, w->err);
}

void dg_weights_matrix(dg_weights *w, dg_weight *out, dg_weights_part part, int n_out, int n_in,
                       const char *prefix, const char *name)
{
    take(w, out, part, (int64_t[]){n_out, n_in}, 2, prefix, name);
}

void dg_weights_matrices(dg_weights *w, dg_weight *out, dg_weights_part part,
                         const int64_t shape[3], const char *prefix, const char *name)
{
    take(w, out, part, shape, 3, prefix, name);
}

float *dg_weights_place(dg_weights *w, size_t n)
{
    float *at = w->load ? w->vectors + w->n_float : NULL;
    w->n_float += (n + 15) / 16 * 16;
    return at;
}

static void put(dg_weights *w, float *at, const dg_tensor *t, int n)
{
    float *host = dg_array((size_t)n, sizeof *host);
    if (!host) {
        w->st = dg_fail(w->err, DGEMMA_E_NOMEM, "out of memory");
        return;
    }
    dg_tensor_widen(host, t, (size_t)n);
    w->be->upload(w->be, at, host, (size_t)n * sizeof *host);
    dg_free(host);
}

void dg_weights_vector(dg_weights *w, float **out, int n, const char *prefix, const char *name)
{
    *out = dg_weights_place(w, (size_t)n);
    const dg_tensor *t = find(w, (int64_t[]){n}, 1, prefix, name);
    if (t && w->load)
        put(w, *out, t, n);
}

void dg_weights_scalar(dg_weights *w, float *out, const char *prefix, const char *name)
{
    const dg_tensor *t = find(w, (int64_t[]){1}, 1, prefix, name);
    if (t)
        dg_tensor_widen(out, t, 1);
}

dgemma_status dg_weights_check(dg_weights *w, dg_weights_walk_fn *walk)
{
    w->load = false;
    w->n_float = w->matrix_bytes = 0;
    walk(w);
    return w->st;
}

/* What is stored is the least that it can take there. */
static dgemma_status check_room(dg_weights *w)
{
    size_t need = w->matrix_bytes + w->n_float * sizeof *w->vectors,
           room = w->be->room ? w->be->room(w->be) : need;
    if (need > room)
        w->st =
            dg_fail(w->err, DGEMMA_E_NOMEM,
                    "%s: weights of %zu MiB do not fit on the device: %zu MiB of memory are left",
                    dg_checkpoint_dir(w->ck), (need >> 20) + 1, room >> 20);
    return w->st;
}

dgemma_status dg_weights_run(dg_weights *w, dg_weights_walk_fn *walk)
{
    if (dg_weights_check(w, walk) || check_room(w))
        return w->st;
    w->vectors = w->be->alloc(w->be, w->n_float * sizeof *w->vectors);
    if (!w->vectors)
        return w->st = dg_fail(w->err, DGEMMA_E_NOMEM, "no memory for the norms");
    w->load = true;
    w->n_float = 0;
    walk(w);
    if (w->be->weights_done)
        w->be->weights_done(w->be);
    return w->st;
}
