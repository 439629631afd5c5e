#include "convert/mmproj.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "convert/quantize_rows.h"
#include "format/gguf_write.h"
#include "model/config_gguf_put.h"
#include "model/vision.h"
#include "tensor/dtype.h"

/* Values that are made at a time, where a row is not longer. */
enum { SOME_VALUES = 1 << 16 };

typedef struct writing {
    const dg_checkpoint *ck;
    const dg_config *cfg;
    dg_planned *tensor; /* as they are made, */
    dg_tensor *shown;   /* and as the file shows them: the patches' matrix is a convolution there */
    size_t n, longest;
    dg_gguf_writer w;
    dg_rows_scratch scratch;
    unsigned char *out;
    float *turned; /* a row of the patches' matrix */
} writing;

static bool is_patch(const dg_planned *t)
{
    return strcmp(t->name, DG_GGUF_PATCH) == 0;
}

static dg_dtype type_of(const dg_tensor *from, const char *name)
{
    const bool table = strcmp(name, DG_GGUF_POSITIONS) == 0;
    if (from->n_dim < 2 || table)
        return DG_F32;
    return dg_gguf_type_of(from->type) >= 0 && !from->scale && !from->pieces ? from->type : DG_BF16;
}

static dgemma_status plan_one(writing *w, const dg_tensor *from, dgemma_error *err)
{
    dg_planned *to = &w->tensor[w->n];
    dg_tensor *shown = &w->shown[w->n];
    *to = (dg_planned){.tensor = *from, .from = {from}};
    if (!dg_gguf_vision_name_of(to->name, from->name))
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "%s has no name in an mmproj file", from->name);
    dg_tensor *t = &to->tensor;
    t->name = to->name;
    t->data = NULL;
    t->scale = NULL;
    t->pieces = NULL;
    t->type = type_of(from, to->name);
    if (t->n_dim == 0) {
        t->n_dim = 1;
        t->shape[0] = 1;
    }
    *shown = *t;
    if (is_patch(to)) {
        const int64_t side = w->cfg->vision.patch;
        if (t->n_dim != 2 || t->shape[1] != 3 * side * side)
            return dg_fail(err, DGEMMA_E_FORMAT, "%s does not have rows of %lld values", from->name,
                           (long long)(3 * side * side));
        shown->n_dim = 4;
        shown->shape[1] = 3;
        shown->shape[2] = shown->shape[3] = side;
        t->type = DG_F32; /* on the way */
    }
    t->bytes = dg_dtype_bytes(t->type, dg_tensor_count(t));
    const size_t length = dg_rows_length(to);
    w->longest = length > w->longest ? length : w->longest;
    w->n++;
    return DGEMMA_OK;
}

static dgemma_status plan(writing *w, dgemma_error *err)
{
    const size_t n = dg_checkpoint_count(w->ck);
    w->tensor = dg_array(n + 1, sizeof *w->tensor);
    w->shown = dg_array(n + 1, sizeof *w->shown);
    dgemma_status st =
        w->tensor && w->shown ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    w->longest = SOME_VALUES;
    for (size_t i = 0; !st && i < n; i++) {
        const dg_tensor *t = dg_checkpoint_at(w->ck, i);
        if (dg_vision_owns(t->name) && (t->type >= DG_DTYPE_COMPUTE || !dg_tensor_count(t)))
            st = dg_fail(err, DGEMMA_E_UNSUPPORTED,
                         "%s is empty, or of type %s, which weights cannot have", t->name,
                         dg_dtype_name(t->type));
        else if (dg_vision_owns(t->name))
            st = plan_one(w, t, err);
    }
    for (size_t i = 0; !st && i < w->n; i++)
        dg_gguf_put_tensor(&w->w, &w->shown[i]);
    if (st)
        return st;
    w->out = dg_malloc_aligned(w->longest * sizeof(float));
    w->turned = dg_array(w->longest, sizeof(float));
    if (!w->out || !w->turned || !dg_rows_scratch_init(&w->scratch, w->longest))
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for rows of %zu values", w->longest);
    return DGEMMA_OK;
}

/* Rows of [row, column, channel] as [channel, row, column]: the way back of what the reader does.
 */
static void turn_patches(writing *w, dg_dtype type, const float *from, size_t n)
{
    const size_t area = n / 3;
    for (size_t pixel = 0; pixel < area; pixel++)
        for (size_t channel = 0; channel < 3; channel++)
            w->turned[channel * area + pixel] = from[pixel * 3 + channel];
    unsigned char *out = (unsigned char *)w->scratch.back;
    dg_narrow(out, type, w->turned, n);
    dg_gguf_write_part(&w->w, out, dg_dtype_bytes(type, n));
}

static dgemma_status write_one(writing *w, size_t index, dgemma_error *err)
{
    const dg_planned *to = &w->tensor[index];
    const size_t length = dg_rows_length(to), bytes = dg_dtype_bytes(to->tensor.type, length);
    const int64_t n_row = (int64_t)(dg_tensor_count(&to->tensor) / length),
                  some = is_patch(to) ? 1 : (int64_t)(w->longest / length);
    dgemma_status st = DGEMMA_OK;
    for (int64_t at = 0; !st && at < n_row; at += some) {
        const int64_t n = n_row - at < some ? n_row - at : some;
        dg_rows_error ignored = {0};
        st = dg_rows_make(w->out, to, at, n, &w->scratch, &ignored, err);
        if (!st && is_patch(to))
            turn_patches(w, w->shown[index].type, (const float *)w->out, length);
        else if (!st)
            dg_gguf_write_part(&w->w, w->out, (size_t)n * bytes);
    }
    return st;
}

static dgemma_status write_all(writing *w, const char *path, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    dg_gguf_writer_open(&w->w, path);
    for (size_t i = 0; !st && i < w->n && !w->w.error.status; i++)
        st = write_one(w, i, err);
    st = st ? st : dg_checkpoint_check(w->ck, err);
    if (st)
        dg_gguf_writer_give_up(&w->w);
    dgemma_error why = {0};
    dgemma_status closed = dg_gguf_writer_close(&w->w, &why);
    return st || !closed ? st : dg_fail(err, closed, "%s", why.msg);
}

dgemma_status dg_mmproj_write(const dg_loaded *l, const char *path, bool replace, bool dry,
                              dgemma_error *err)
{
    writing w = {.ck = l->mmproj ? l->mmproj : l->checkpoint, .cfg = &l->cfg};
    if (!l->cfg.vision.present)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "%s",
                       l->tower_ignored ? l->tower_ignored : "the model has no vision tower");
    if (l->cfg.vision.rope_theta != DG_TOWER_ROPE_THETA)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "the tower's rope_theta is %g, and mmproj files have no key for it",
                       (double)l->cfg.vision.rope_theta);
    if (dg_checkpoint_reads(w.ck, path))
        return dg_fail(err, DGEMMA_E_ARG, "%s is what is read", path);
    dg_gguf_writer_init(&w.w, 0);
    dg_config_put_tower(&w.w, &l->cfg);
    dgemma_status st = plan(&w, err);
    st = st ? st : dg_gguf_writer_check(&w.w, path, replace, err);
    if (!st && !dry)
        st = write_all(&w, path, err);
    dg_gguf_writer_close(&w.w, NULL);
    dg_rows_scratch_clear(&w.scratch);
    dg_free(w.tensor);
    dg_free(w.shown);
    dg_free(w.out);
    dg_free(w.turned);
    return st;
}
