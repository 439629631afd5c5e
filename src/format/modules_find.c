/* Which matrices a folder's tensors are the parts of, and in which form: names, types and shapes
 * have to fit each other and the config. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "format/checkpoint_folder.h"
#include "format/expert_name.h"
#include "format/modules_internal.h"

enum { NAME_BYTES = 256 };

/* ---- names ---- */

static int by_name(const void *a, const void *b)
{
    const dg_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The tensor beside `t`, whose name ends in `from`, that ends in `to` instead; or NULL. */
static const dg_tensor *beside(const joining *j, const dg_tensor *t, const char *from,
                               const char *to)
{
    char name[NAME_BYTES];
    int stem = (int)(strlen(t->name) - strlen(from));
    if (snprintf(name, sizeof name, "%.*s%s", stem, t->name, to) >= NAME_BYTES)
        return NULL;
    dg_tensor key = {.name = name};
    return bsearch(&key, j->part, j->n, sizeof key, by_name);
}

/* Names the tensor that the matrix behind `t` belongs to. */
static void name_target(joining *j, found *f, const dg_tensor *t, const char *suffix)
{
    size_t stem = strlen(t->name) - strlen(suffix), before;
    const char *proj;
    char *to = j->name_end;
    if (dg_expert_name(t->name, stem, &before, &f->expert, &proj)) {
        memcpy(to, t->name, before);
        strcpy(to + before, proj);
    } else {
        f->expert = -1;
        memcpy(to, t->name, stem);
        strcpy(to + stem, ".weight");
    }
    f->target = to;
    j->name_end += strlen(to) + 1;
}

/* ---- what a matrix is ---- */

static dgemma_status misfit(const joining *j, const dg_tensor *t, const char *wanted)
{
    char shape[DG_SHAPE_TEXT];
    return dg_fail(j->err, DGEMMA_E_FORMAT, "%s: %.150s is %s of type %s, wanted %s", j->where,
                   t->name, dg_shape_text(shape, t->shape, t->n_dim), dg_dtype_name(t->type),
                   wanted);
}

static void use(const joining *j, const dg_tensor *t)
{
    j->m->used[t - j->part] = true;
}

/* The part beside `t`, or a refusal that names it. */
static dgemma_status need(const joining *j, const dg_tensor **out, const dg_tensor *t,
                          const char *from, const char *to)
{
    *out = beside(j, t, from, to);
    if (!*out)
        return dg_fail(j->err, DGEMMA_E_UNSUPPORTED,
                       "%s: %.150s is of type %s and has no \"%s\" beside it", j->where, t->name,
                       dg_dtype_name(t->type), to + 1);
    use(j, *out);
    return DGEMMA_OK;
}

static bool is_shape(const dg_tensor *t, int64_t rows, int64_t cols)
{
    return t->n_dim == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

/* Forms that need no blocks to say what they mean: what does not fill them is widened. */
static bool can_widen(dg_form form)
{
    return form == DG_FORM_E4M3 || form == DG_FORM_INT8 || form == DG_FORM_NVFP4;
}

/* n_out rows of n_in values, which fill blocks or are widened. */
static dgemma_status take_rows(const joining *j, found *f, const dg_tensor *t, int64_t n_out,
                               int64_t n_in)
{
    f->type = dg_form_type(f->form, &f->piece, t->type);
    if (n_out < 1 || n_in < 1)
        return misfit(j, t, "a matrix");
    f->n_out = n_out;
    f->n_in = n_in;
    if ((uint64_t)n_in % dg_dtype_block(f->type) == 0)
        return DGEMMA_OK;
    if (!can_widen(f->form))
        return dg_fail(j->err, DGEMMA_E_UNSUPPORTED,
                       "%s: %.150s has rows of %lld values, which do not fill blocks of %s",
                       j->where, t->name, (long long)n_in, dg_dtype_name(f->type));
    f->type = DG_F32;
    return DGEMMA_OK;
}

/* The same of a tensor that is one matrix. */
static dgemma_status take_shape(const joining *j, found *f, const dg_tensor *t, int64_t n_out,
                                int64_t n_in)
{
    return t->n_dim == 2 ? take_rows(j, f, t, n_out, n_in) : misfit(j, t, "a matrix");
}

/* One factor of a matrix, or what to divide by: a positive number, and so is the factor. */
static dgemma_status take_factor(const joining *j, float *out, const dg_tensor *t, bool divide)
{
    if (t->type != DG_F32 || dg_tensor_count(t) != 1)
        return misfit(j, t, "one value of F32");
    float v;
    dg_widen(&v, t->data, DG_F32, 1);
    if (v > 0 && isfinite(v)) {
        *out = divide ? 1 / v : v;
        if (isfinite(*out))
            return DGEMMA_OK;
    }
    return dg_fail(j->err, DGEMMA_E_FORMAT, "%s: %.150s is %g, wanted a positive number%s",
                   j->where, t->name, (double)v, divide ? " to divide by" : "");
}

static int64_t parts(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* Bytes with a scale for the matrix, for each row, or for blocks of a size that the config has. */
static dgemma_status find_bytes(joining *j, found *f, const dg_tensor *t)
{
    const char *inverse = ".weight_scale_inv"; /* what some call the same factor */
    const dg_tensor *scale = NULL;
    f->form = t->type == DG_I8 ? DG_FORM_INT8 : DG_FORM_E4M3;
    dgemma_status st = take_shape(j, f, t, t->shape[0], t->shape[1]);
    if (!st)
        st = need(j, &scale, t, ".weight",
                  beside(j, t, ".weight", inverse) ? inverse : ".weight_scale");
    if (!st && beside(j, t, ".weight", inverse) && beside(j, t, ".weight", ".weight_scale"))
        st = misfit(j, t, "weight_scale or weight_scale_inv beside it, not both");
    if (!st && beside(j, t, ".weight", ".weight_zero_point"))
        st = misfit(j, t, "no weight_zero_point beside it");
    if (!st && t->type == DG_I8 && j->q->asymmetric)
        st = misfit(j, t, "a config that does not say \"symmetric\": false");
    if (st)
        return st;
    dg_piece *p = &f->piece;
    *p = (dg_piece){.values = t->data,
                    .scale = scale->data,
                    .scale_type = scale->type,
                    .scale_rows = f->n_out,
                    .scale_cols = f->n_in,
                    .n_scale_col = 1};
    if (scale->type >= DG_DTYPE_FLOAT)
        return misfit(j, scale, "scales of F32, F16 or BF16");
    if (dg_tensor_count(scale) == 1)
        return DGEMMA_OK;
    p->scale_rows = 1;
    if (is_shape(scale, f->n_out, 1) || (scale->n_dim == 1 && scale->shape[0] == f->n_out))
        return DGEMMA_OK;
    for (int i = 0; i < j->q->n_block; i++) {
        p->scale_rows = j->q->block[i].rows;
        p->scale_cols = j->q->block[i].cols;
        p->n_scale_col = parts(f->n_in, p->scale_cols);
        if (is_shape(scale, parts(f->n_out, p->scale_rows), p->n_scale_col))
            return DGEMMA_OK;
    }
    return misfit(j, scale,
                  "a scale for the matrix, for each row or for blocks as the config says");
}

/* The config may say how many values share a scale: what it says is what there is. */
static dgemma_status check_group(const joining *j, const dg_tensor *scale, int64_t size,
                                 int64_t n_in)
{
    if (dg_quantisation_has_group(j->q, size, n_in))
        return DGEMMA_OK;
    const int64_t said = j->q->group[0] < 0 ? n_in : j->q->group[0];
    char wanted[128];
    snprintf(wanted, sizeof wanted, "one for %lld values%s, as the config's \"group_size\" says",
             (long long)said, j->q->n_group > 1 ? " or another of its sizes" : "");
    return misfit(j, scale, wanted);
}

/* Nibbles of E2M1. The factor is written as what to divide by, or as what to multiply with. */
static dgemma_status find_e2m1(joining *j, found *f, const dg_tensor *t, const char *suffix,
                               const char *factor, bool divide)
{
    const dg_tensor *scale = NULL, *global = NULL;
    dgemma_status st = need(j, &scale, t, suffix, ".weight_scale");
    if (!st && beside(j, t, suffix, ".weight_zero_point"))
        st = misfit(j, t, "no weight_zero_point beside it");
    if (st)
        return st;
    bool nv = scale->type == DG_F8_E4M3;
    int64_t group = nv ? 16 : 32;
    f->form = nv ? DG_FORM_NVFP4 : DG_FORM_MXFP4;
    st = take_shape(j, f, t, t->shape[0], 2 * t->shape[1]);
    if (st)
        return st;
    if ((!nv && scale->type != DG_U8 && scale->type != DG_F8_E8M0) || f->n_in % group ||
        !is_shape(scale, f->n_out, f->n_in / group))
        return misfit(j, scale, "a scale of F8_E4M3 for sixteen values, or of U8 for 32");
    f->piece = (dg_piece){.values = t->data,
                          .scale = scale->data,
                          .scale_type = scale->type,
                          .scale_rows = 1,
                          .scale_cols = group,
                          .n_scale_col = f->n_in / group};
    st = check_group(j, scale, group, f->n_in);
    if (st || !nv)
        return st;
    st = need(j, &global, t, suffix, factor);
    return st ? st : take_factor(j, &f->piece.factor, global, divide);
}

/* ---- four bits ---- */

/* Groups of a row's values have a scale each: at least 32, and whole blocks. */
static dgemma_status take_groups(const joining *j, found *f, const dg_tensor *scale,
                                 int64_t n_group, int64_t n_in)
{
    dg_piece *p = &f->piece;
    p->scale = scale->data;
    p->scale_type = scale->type;
    p->n_scale_col = n_group;
    p->scale_cols = n_group > 0 ? n_in / n_group : 0;
    if (scale->n_dim != 2 || scale->type >= DG_DTYPE_FLOAT || n_group < 1 || n_in % n_group ||
        p->scale_cols % 32)
        return misfit(j, scale, "a scale of F32, F16 or BF16 for each group of 32 or more values");
    return check_group(j, scale, p->scale_cols, n_in);
}

/* The group of each column, where there is such a list. */
static dgemma_status take_order(const joining *j, found *f, const dg_tensor *t, int64_t n_in)
{
    if (!t)
        return DGEMMA_OK;
    use(j, t);
    if (t->type != DG_I32 || t->n_dim != 1 || t->shape[0] != n_in)
        return misfit(j, t, "a number of I32 for each column");
    f->piece.group = t->data;
    return DGEMMA_OK;
}

/* compressed-tensors: rows of words, which say how long they are. */
static dgemma_status find_int4(joining *j, found *f, const dg_tensor *t)
{
    const char *suffix = ".weight_packed";
    const dg_tensor *scale, *size, *zero = beside(j, t, suffix, ".weight_zero_point");
    dgemma_status st = need(j, &size, t, suffix, ".weight_shape");
    if (!st)
        st = need(j, &scale, t, suffix, ".weight_scale");
    if (st)
        return st;
    int64_t want[2];
    if (size->type != DG_I64 || size->n_dim != 1 || size->shape[0] != 2 || t->n_dim != 2)
        return misfit(j, size, "rows and columns as I64");
    memcpy(want, size->data, sizeof want);
    if (want[0] != t->shape[0] || want[1] != 8 * t->shape[1])
        return misfit(j, t, "eight numbers of four bits in a word, as weight_shape says");
    f->form = DG_FORM_INT4;
    f->piece = (dg_piece){.values = t->data, .scale_rows = 1};
    st = take_groups(j, f, scale, scale->shape[1], want[1]);
    if (!st && scale->shape[0] != want[0])
        st = misfit(j, scale, "a row for each of the matrix");
    if (!st && zero) {
        use(j, zero);
        f->piece.zero = zero->data;
        if (zero->type != DG_I32 || !is_shape(zero, parts(want[0], 8), f->piece.n_scale_col))
            st = misfit(j, zero, "eight zeros of four bits in a word, along the columns");
    }
    if (!st && !zero && j->q->asymmetric)
        st = misfit(j, t,
                    "a weight_zero_point beside it, since the config says \"symmetric\": false");
    if (!st && j->q->wide)
        st = misfit(j, t, "a config that says \"num_bits\": 4");
    if (!st)
        st = take_order(j, f, beside(j, t, suffix, ".weight_g_idx"), want[1]);
    return st ? st : take_shape(j, f, t, want[0], want[1]);
}

/* GPTQ packs along the rows of the matrix, AWQ along its columns: the shape tells. */
static dgemma_status find_gptq(joining *j, found *f, const dg_tensor *t)
{
    const char *suffix = ".qweight";
    const dg_tensor *scale, *zero;
    dgemma_status st = need(j, &scale, t, suffix, ".scales");
    if (!st)
        st = need(j, &zero, t, suffix, ".qzeros");
    dg_quant_method method = j->q->method;
    if (!st && method != DG_QUANT_GPTQ && method != DG_QUANT_AWQ && method != DG_QUANT_AUTO_ROUND)
        st = misfit(j, t, "a quantization_config of GPTQ, AWQ or AutoRound beside it");
    if (st)
        return st;
    int64_t n_out = scale->n_dim == 2 ? scale->shape[1] : 0;
    bool awq = t->n_dim == 2 && t->shape[1] * 8 == n_out;
    if (t->type != DG_I32 || t->n_dim != 2 || n_out < 1 || (!awq && t->shape[1] != n_out))
        return misfit(j, t, "eight numbers of four bits in a word, as many columns as scales has");
    if (method == (awq ? DG_QUANT_GPTQ : DG_QUANT_AWQ))
        return misfit(j, t, "words packed as the quantization_config says");
    int64_t n_in = awq ? t->shape[0] : 8 * t->shape[0];
    f->form = awq ? DG_FORM_AWQ : DG_FORM_GPTQ;
    f->piece = (dg_piece){.values = t->data,
                          .scale_rows = 1,
                          .zero = zero->data,
                          .symmetric = j->q->symmetric,
                          .zero_less = awq ? 0 : j->q->zero_less};
    st = take_groups(j, f, scale, scale->shape[0], n_in);
    if (!st && (n_out % 8 || zero->type != DG_I32 || !is_shape(zero, scale->shape[0], n_out / 8)))
        st = misfit(j, zero, "eight zeros of four bits in a word, a row for each of scales");
    if (!st && j->q->ordered && !beside(j, t, suffix, ".g_idx"))
        st = misfit(j, t, "a g_idx beside it, since the config says \"desc_act\": true");
    if (!st)
        st = take_order(j, f, beside(j, t, suffix, ".g_idx"), n_in);
    return st ? st : take_shape(j, f, t, n_out, n_in);
}

bool dg_modules_is_stacked(const dg_tensor *t)
{
    return t->type == DG_U32 && t->n_dim == 3 && t->bytes > 0 && t->shape[0] <= DG_EXPERT_MAX;
}

/* MLX: words of a row, the first number lowest. The width follows from how many words there are for
 * a group, where the config leaves no choice. All experts may be in one tensor. */
static dgemma_status find_mlx(joining *j, found *f, const dg_tensor *t)
{
    const char *suffix = ".weight";
    const dg_tensor *scale, *bias;
    dgemma_status st = need(j, &scale, t, suffix, ".scales");
    if (!st)
        st = need(j, &bias, t, suffix, ".biases");
    if (st)
        return st;
    const int last = t->n_dim - 1;
    bool alike = (t->n_dim == 2 || dg_modules_is_stacked(t)) && scale->n_dim == t->n_dim &&
                 bias->n_dim == t->n_dim && scale->type < DG_DTYPE_FLOAT &&
                 bias->type == scale->type;
    for (int i = 0; i <= last && alike; i++)
        alike = bias->shape[i] == scale->shape[i] &&
                (i == last || scale->shape[i] == t->shape[i]) && t->shape[i] > 0;
    if (!alike || scale->shape[last] < 1 || scale->shape[last] > INT32_MAX)
        return misfit(j, scale, "scales and biases of F32, F16 or BF16 for the groups of each row");
    const int64_t n_group = scale->shape[last];
    int bits = 0, group = 0;
    for (int i = 0; i < j->q->n_width; i++)
        if (t->shape[last] * 32 == n_group * j->q->width[i].group * j->q->width[i].bits) {
            if (bits && bits != j->q->width[i].bits)
                return misfit(j, t, "numbers of one width: two that the config has would fit");
            bits = j->q->width[i].bits;
            group = j->q->width[i].group;
        }
    if (!bits)
        return misfit(j, t, "words for its groups, as the config's \"quantization\" has them");
    f->form = bits == 8 ? DG_FORM_MLX8 : DG_FORM_MLX4;
    f->piece = (dg_piece){.values = t->data,
                          .scale = scale->data,
                          .bias = bias->data,
                          .scale_type = scale->type,
                          .scale_rows = 1,
                          .scale_cols = group,
                          .n_scale_col = n_group};
    return take_rows(j, f, t, t->shape[last - 1], n_group * group);
}

/* A matrix of floats, which is only taken where it is one expert's. */
static dgemma_status find_plain(joining *j, found *f, const dg_tensor *t)
{
    f->form = DG_FORM_PLAIN;
    f->piece = (dg_piece){.values = t->data};
    return take_shape(j, f, t, t->shape[0], t->shape[1]);
}

/* Parts that change what a matrix means, and that nothing here understands. */
static dgemma_status check_unknown(const joining *j, const dg_tensor *t)
{
    static const char *const unknown[] = {".pre_quant_scale", ".quant_map", ".absmax", ".bitmask"};
    const dg_tensor *words =
        dg_has_suffix(t->name, ".scales") ? beside(j, t, ".scales", ".weight") : NULL;
    bool refused = dg_has_suffix(t->name, ".scales") && !beside(j, t, ".scales", ".qweight") &&
                   !(words && words->type == DG_U32);
    for (size_t i = 0; i < DG_COUNT(unknown); i++)
        refused = refused || dg_has_suffix(t->name, unknown[i]);
    if (refused)
        return dg_fail(j->err, DGEMMA_E_UNSUPPORTED,
                       "%s: %.150s belongs to a form of quantised weights that is not read",
                       j->where, t->name);
    return DGEMMA_OK;
}

/* One matrix, or those of all experts, which MLX has in one tensor: "….experts.down_proj.weight"
 * is called as in the plain checkpoint then. */
static void add_found(joining *j, const found *f, const dg_tensor *t)
{
    if (!dg_modules_is_stacked(t)) {
        j->found[j->n_found++] = *f;
        return;
    }
    const int64_t n = t->shape[0];
    const size_t values = t->bytes / (size_t)n, scales = (size_t)(f->n_out * f->piece.n_scale_col) *
                                                         dg_dtype_size(f->piece.scale_type);
    *strrchr(f->target, '.') = '\0';
    for (int64_t e = 0; e < n; e++) {
        found one = *f;
        one.expert = (int)e;
        one.piece.values = (const char *)f->piece.values + (size_t)e * values;
        one.piece.scale = (const char *)f->piece.scale + (size_t)e * scales;
        one.piece.bias = (const char *)f->piece.bias + (size_t)e * scales;
        j->found[j->n_found++] = one;
    }
}

dgemma_status dg_modules_find(joining *j, const dg_tensor *t)
{
    static const char *const suffixes[] = {".weight", ".weight_packed", ".qweight"};
    enum { WEIGHT, PACKED, QWEIGHT, NONE };
    found f = {.name = t->name};
    int kind = WEIGHT;
    while (kind < NONE && !dg_has_suffix(t->name, suffixes[kind]))
        kind++;
    if (kind == NONE)
        return check_unknown(j, t);
    for (int i = 0; i < t->n_dim; i++) /* with a zero beside it, any number is a size */
        if (t->shape[i] > INT64_MAX / 8)
            return misfit(j, t, "sizes that a matrix can have");
    if (strlen(t->name) >= NAME_BYTES / 2)
        return DGEMMA_OK;
    name_target(j, &f, t, suffixes[kind]);
    dgemma_status st = DGEMMA_OK;
    if (kind == QWEIGHT)
        st = find_gptq(j, &f, t);
    else if (kind == PACKED && t->type == DG_U8)
        st = find_e2m1(j, &f, t, suffixes[kind], ".weight_global_scale", true);
    else if (kind == PACKED && t->type == DG_I32)
        st = find_int4(j, &f, t);
    else if (kind == PACKED)
        st = misfit(j, t, "U8 or I32: other packed weights are not read");
    else if (t->type == DG_F8_E4M3 || t->type == DG_I8)
        st = find_bytes(j, &f, t);
    else if (t->type == DG_U8)
        st = find_e2m1(j, &f, t, suffixes[kind], ".weight_scale_2", false);
    else if (t->type == DG_U32)
        st = find_mlx(j, &f, t);
    else if (t->type < DG_DTYPE_FLOAT && f.expert >= 0)
        st = find_plain(j, &f, t);
    else
        return DGEMMA_OK;
    use(j, t);
    if (!st)
        add_found(j, &f, t);
    return st;
}
