#include "format/gguf_model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "format/checkpoint_folder.h"
#include "format/gguf_names.h"

static dgemma_status no_memory(const char *path, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", path);
}

/* ---- files ---- */

static const char tail_form[] = "-00000-of-00000.gguf";
enum { TAIL = sizeof tail_form - 1, SHARD_MAX = 1024 };

bool dg_gguf_is_shard(const char *path, int *no, int *count)
{
    size_t n = strlen(path);
    if (n < TAIL)
        return false;
    const char *tail = path + n - TAIL;
    int number[2] = {0};
    for (int i = 0, k = -1; i < TAIL; i++) {
        if (tail_form[i] != '0') {
            if (tail[i] != tail_form[i])
                return false;
            continue;
        }
        k += tail_form[i - 1] == '-';
        if (tail[i] < '0' || tail[i] > '9')
            return false;
        number[k] = number[k] * 10 + (tail[i] - '0');
    }
    *no = number[0];
    *count = number[1];
    return true;
}

static dgemma_status open_file(dg_gguf_file *f, dgemma_error *err)
{
    static const char lfs[] = "version https://git-lfs";
    dgemma_status st = dg_file_map_open(&f->map, f->path, err);
    if (st)
        return st;
    if (f->map.size >= sizeof lfs - 1 && memcmp(f->map.data, lfs, sizeof lfs - 1) == 0)
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: a Git LFS pointer instead of the weights; fetch them with git lfs pull",
                       f->path);
    return dg_gguf_parse(&f->content, f->map.data, f->map.size, f->path, err);
}

/* A key of the split, at least 0; -1 when it is absent. */
static int64_t split_key(const dg_gguf *g, const char *key)
{
    const dg_gguf_value *v = dg_gguf_find(g, key);
    int64_t n = -1;
    return v && !v->is_array && dg_gguf_int(v, 0, &n) && n >= 0 ? n : -1;
}

/* The path of shard i (from 0) of n, beside the first; dg_free. */
static char *shard_path(const char *first, int i, int n)
{
    char *path = dg_strdup(first);
    if (path) {
        char tail[TAIL + 16];
        snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", i + 1, n);
        memcpy(path + strlen(path) - TAIL, tail, TAIL);
    }
    return path;
}

static dgemma_status check_shard(const dg_gguf_file *f, int64_t no, int64_t count,
                                 dgemma_error *err)
{
    int64_t got_no = split_key(&f->content, "split.no");
    int64_t got_count = split_key(&f->content, "split.count");
    if (got_no == no && got_count == count)
        return DGEMMA_OK;
    return dg_fail(err, DGEMMA_E_FORMAT,
                   "%s: split.no is %lld and split.count %lld, its name says %lld and %lld",
                   f->path, (long long)got_no, (long long)got_count, (long long)no,
                   (long long)count);
}

static dgemma_status open_others(dg_gguf_model *m, int count, dgemma_error *err)
{
    dg_gguf_file *all = dg_array_resize(m->file, (size_t)count, sizeof *all);
    if (!all)
        return no_memory(m->file[0].path, err);
    memset(all + 1, 0, (size_t)(count - 1) * sizeof *all);
    m->file = all;
    for (int i = 1; i < count; i++) {
        dg_gguf_file *f = &m->file[i];
        f->path = shard_path(m->file[0].path, i, count);
        if (!f->path)
            return no_memory(m->file[0].path, err);
        m->n_file++;
        if (!dg_file_exists(f->path))
            return dg_fail(err, DGEMMA_E_IO, "%s: missing; the model is split into %d files",
                           f->path, count);
        dgemma_status st = open_file(f, err);
        if (!st)
            st = check_shard(f, i, count, err);
        if (st)
            return st;
    }
    return DGEMMA_OK;
}

/* Whether all that the split announces is there. */
static dgemma_status check_total(const dg_gguf_model *m, dgemma_error *err)
{
    int64_t wanted = split_key(&m->file[0].content, "split.tensors.count");
    size_t total = 0;
    for (size_t i = 0; i < m->n_file; i++)
        total += m->file[i].content.n_tensor;
    if (wanted >= 0 && (uint64_t)wanted != total)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s: split.tensors.count is %lld, the files have %zu",
                       m->file[0].path, (long long)wanted, total);
    return DGEMMA_OK;
}

static dgemma_status open_files(dg_gguf_model *m, const char *path, dgemma_error *err)
{
    m->file = dg_calloc(1, sizeof *m->file);
    if (!m->file)
        return no_memory(path, err);
    m->n_file = 1;
    m->file[0].path = dg_strdup(path);
    if (!m->file[0].path)
        return no_memory(path, err);
    dgemma_status st = open_file(&m->file[0], err);
    if (st || split_key(&m->file[0].content, "split.count") <= 1)
        return st;

    int no, count;
    if (!dg_gguf_is_shard(path, &no, &count) || count < 1)
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: one of %lld files of a split; wanted its name to end in "
                       "-00001-of-0000N.gguf",
                       path, (long long)split_key(&m->file[0].content, "split.count"));
    st = check_shard(&m->file[0], no - 1, count, err);
    if (!st && count > SHARD_MAX)
        st = dg_fail(err, DGEMMA_E_LIMIT, "%s: %d files, at most %d are opened", path, count,
                     SHARD_MAX);
    if (!st && no != 1)
        st = dg_fail(err, DGEMMA_E_ARG, "%s: file %d of %d; give the first, -00001-of-%05d.gguf",
                     path, no, count, count);
    if (!st)
        st = open_others(m, count, err);
    return st ? st : check_total(m, err);
}

/* ---- names ---- */

static const dg_tensor *find(const dg_gguf_model *m, const char *name)
{
    const dg_tensor *t = NULL;
    for (size_t i = 0; i < m->n_file && !t; i++)
        t = dg_gguf_tensor(&m->file[i].content, name);
    return t;
}

/* Where names and scales go while they are made: measured on a first walk, filled on a second. */
typedef struct naming {
    dg_gguf_model *m;
    const char *where;
    dgemma_error *err;
    bool fill;
    size_t n_tensor, name_bytes, n_scale, n_patch;
} naming;

static void add(naming *n, const dg_tensor *t, const char *name, const float *scale)
{
    size_t len = strlen(name) + 1;
    if (n->fill) {
        dg_tensor *to = &n->m->tensor[n->n_tensor];
        *to = *t;
        to->name = memcpy(n->m->names + n->name_bytes, name, len);
        to->scale = scale;
    }
    n->n_tensor++;
    n->name_bytes += len;
}

/* The factors beside a matrix (NVFP4 has them: one, or one for each expert), expanded to one for
 * each matrix. */
static dgemma_status take_scale(naming *n, const dg_tensor *t, const float **out)
{
    char name[DG_GGUF_NAME];
    *out = NULL;
    const dg_tensor *s = dg_gguf_scale_name(name, t->name) ? find(n->m, name) : NULL;
    if (!s)
        return DGEMMA_OK;
    size_t n_mat = t->n_dim == 3 ? (size_t)t->shape[0] : 1, n_scale = dg_tensor_count(s);
    if (!dg_dtype_is_block(t->type) || s->type != DG_F32 || (n_scale != 1 && n_scale != n_mat))
        return dg_fail(n->err, DGEMMA_E_UNSUPPORTED,
                       "%s: %s has %zu factors of type %s for %zu matrices of type %s, wanted one "
                       "for each, F32, beside a block type",
                       n->where, name, n_scale, dg_dtype_name(s->type), n_mat,
                       dg_dtype_name(t->type));
    if (n->fill) {
        float *at = n->m->scales + n->n_scale;
        dg_widen(at, s->data, DG_F32, n_scale);
        for (size_t i = n_scale; i < n_mat; i++)
            at[i] = at[0];
        *out = at;
    }
    n->n_scale += n_mat;
    return DGEMMA_OK;
}

/* The factors of take_scale are part of their matrix; those for activations are for engines that
 * quantise them. */
static bool is_part_of_another(const naming *n, const char *name)
{
    char weight[DG_GGUF_NAME], scale[DG_GGUF_NAME];
    if (dg_has_suffix(name, ".input_scale"))
        return true;
    if (!dg_has_suffix(name, ".scale"))
        return false;
    int stem = (int)(strlen(name) - strlen("scale"));
    snprintf(weight, sizeof weight, "%.*sweight", stem, name);
    return dg_gguf_scale_name(scale, weight) && find(n->m, weight);
}

/* The head is the embedding table; a file that says so twice must say the same. */
static dgemma_status check_head(const naming *n, const dg_tensor *head)
{
    const dg_tensor *table = find(n->m, "token_embd.weight");
    if (table && table->type == head->type && table->bytes == head->bytes &&
        memcmp(table->data, head->data, head->bytes) == 0)
        return DGEMMA_OK;
    return dg_fail(n->err, DGEMMA_E_UNSUPPORTED,
                   "%s: output.weight differs from token_embd.weight; DiffusionGemma ties them",
                   n->where);
}

/* A convolution over patches, [n_out, channel, row, column], as the matrix that the checkpoint has,
 * [n_out, row, column, channel]: the one tensor of a file that is copied. */
static dgemma_status add_patch(naming *n, const dg_tensor *t)
{
    char name[DG_GGUF_NAME], shape[DG_SHAPE_TEXT];
    size_t count = dg_tensor_count(t), side = (size_t)t->shape[3], area = side * side;
    if (t->n_dim != 4 || t->shape[1] != 3 || t->shape[2] != t->shape[3] || count == 0 ||
        t->type >= DG_DTYPE_FLOAT)
        return dg_fail(n->err, DGEMMA_E_FORMAT,
                       "%s: %s is %s of type %s, wanted [n, 3, side, side] of F32, F16 or BF16",
                       n->where, t->name, dg_shape_text(shape, t->shape, t->n_dim),
                       dg_dtype_name(t->type));
    dg_gguf_rename(name, t->name);
    dg_tensor matrix = {.type = DG_F32,
                        .n_dim = 2,
                        .shape = {t->shape[0], (int64_t)(3 * area)},
                        .bytes = count * sizeof(float)};
    if (n->fill) {
        float *to = n->m->patch + n->n_patch;
        const unsigned char *from = t->data;
        size_t size = dg_dtype_size(t->type);
        for (size_t i = 0; i < count; i++) {
            size_t out = i / (3 * area), channel = i / area % 3, pixel = i % area;
            dg_widen(&to[(out * area + pixel) * 3 + channel], from + i * size, t->type, 1);
        }
        matrix.data = to;
    }
    n->n_patch += count;
    add(n, &matrix, name, NULL);
    return DGEMMA_OK;
}

static dgemma_status name_one(naming *n, const dg_tensor *t)
{
    char name[DG_GGUF_NAME], encoder[DG_GGUF_NAME];
    const float *scale;
    if (strcmp(t->name, "output.weight") == 0)
        return n->fill ? DGEMMA_OK : check_head(n, t);
    if (strcmp(t->name, DG_GGUF_PATCH) == 0)
        return add_patch(n, t);
    if (is_part_of_another(n, t->name))
        return DGEMMA_OK;
    dgemma_status st = take_scale(n, t, &scale);
    if (st)
        return st;
    dg_gguf_rename(name, t->name);
    add(n, t, name, scale);
    /* Some conversions leave the prompt's layer scalars out: in the released model they equal the
     * canvas's. */
    if (dg_gguf_encoder_scalar(encoder, t->name) && !find(n->m, encoder)) {
        dg_gguf_rename(name, encoder);
        add(n, t, name, NULL);
    }
    return DGEMMA_OK;
}

static dgemma_status walk(naming *n)
{
    n->n_tensor = n->name_bytes = n->n_scale = n->n_patch = 0;
    for (size_t i = 0; i < n->m->n_file; i++) {
        const dg_gguf *g = &n->m->file[i].content;
        for (size_t k = 0; k < g->n_tensor; k++) {
            dgemma_status st = name_one(n, &g->tensor[k]);
            if (st)
                return st;
        }
    }
    return DGEMMA_OK;
}

dgemma_status dg_gguf_model_name(dg_gguf_model *m, dgemma_error *err)
{
    naming n = {.m = m, .where = m->file[0].path, .err = err};
    dgemma_status st = walk(&n);
    if (st)
        return st;
    m->tensor = dg_array(n.n_tensor, sizeof *m->tensor);
    m->names = dg_malloc(n.name_bytes);
    m->scales = dg_array(n.n_scale, sizeof *m->scales);
    m->patch = dg_array(n.n_patch, sizeof *m->patch);
    if (!m->tensor || !m->names || !m->scales || !m->patch)
        return no_memory(n.where, err);
    n.fill = true;
    st = walk(&n);
    m->n_tensor = n.n_tensor;
    return st;
}

dgemma_status dg_gguf_model_open(dg_gguf_model *out, const char *path, dgemma_error *err)
{
    *out = (dg_gguf_model){0};
    dgemma_status st = open_files(out, path, err);
    if (!st)
        st = dg_gguf_model_name(out, err);
    if (st)
        dg_gguf_model_close(out);
    return st;
}

void dg_gguf_model_close(dg_gguf_model *m)
{
    for (size_t i = 0; i < m->n_file; i++) {
        dg_gguf_clear(&m->file[i].content);
        dg_file_map_close(&m->file[i].map);
        dg_free(m->file[i].path);
    }
    dg_free(m->file);
    dg_free(m->tensor);
    dg_free(m->names);
    dg_free(m->scales);
    dg_free(m->patch);
    *m = (dg_gguf_model){0};
}
