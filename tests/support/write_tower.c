#include "support/write_tower.h"
#include <check.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/rng.h"
#include "format/gguf_names.h"
#include "format/gguf_write.h"
#include "support/write_safetensors.h"
#include "tensor/blocks.h"

enum { MAX_TENSOR = 512 };

typedef struct tower {
    const dg_test_tower *how;
    bool mmproj;
    dg_tensor tensor[MAX_TENSOR];
    size_t n;
} tower;

static unsigned seed_of(const char *name)
{
    unsigned seed = 0;
    for (const char *p = name; *p; p++)
        seed = seed * 31 + (unsigned char)*p;
    return seed;
}

/* Norms are near one; a tower of plain noise would saturate. */
static float *values_of(const char *ours, size_t n, bool near_one)
{
    dg_rng_key key = {.seed = seed_of(ours)};
    float *out = dg_array(n, sizeof *out);
    ck_assert_ptr_nonnull(out);
    for (size_t i = 0; i < n; i++) {
        float noise = (float)(dg_rng_uniform(&key, (uint32_t)i) - 0.5);
        /* through bfloat16, so that every type that is tested keeps the value */
        out[i] = dg_bf16_to_float(dg_float_to_bf16(near_one ? 1 + 0.5f * noise : 0.6f * noise));
    }
    return out;
}

static void *stored_as(float *values, dg_dtype type, bool widened, size_t n)
{
    if (type == DG_F32)
        return values;
    void *out = dg_malloc(dg_dtype_bytes(type, n));
    ck_assert_ptr_nonnull(out);
    if (type == DG_Q8_0)
        dg_blocks_narrow_q8_0(out, values, n);
    else
        dg_narrow(out, type, values, n);
    if (widened)
        dg_widen(values, out, type, n);
    dg_free(widened ? out : values);
    return widened ? (void *)values : out;
}

/* `name` is GGUF's. */
static void add(tower *t, const char *name, int n_dim, const int64_t *shape, dg_dtype type,
                float *values)
{
    char ours[DG_GGUF_NAME];
    const dg_test_tower *how = t->how;
    ck_assert(dg_gguf_rename(ours, name));
    dg_tensor *x = &t->tensor[t->n];
    *x = (dg_tensor){.type = how->widened ? DG_F32 : type, .n_dim = n_dim};
    memcpy(x->shape, shape, (size_t)n_dim * sizeof *shape);
    size_t n = dg_tensor_count(x);
    x->bytes = dg_dtype_bytes(x->type, n);
    x->data = stored_as(values, type, how->widened, n);
    if (how->omit && (strcmp(how->omit, ours) == 0 || strcmp(how->omit, name) == 0)) {
        dg_free((void *)x->data);
        return;
    }
    x->name = dg_strdup(t->mmproj ? name : ours);
    ck_assert_uint_lt(++t->n, MAX_TENSOR);
}

static void add_random(tower *t, const char *name, int n_dim, const int64_t *shape, dg_dtype type)
{
    char ours[DG_GGUF_NAME];
    size_t n = 1;
    ck_assert(dg_gguf_rename(ours, name));
    for (int i = 0; i < n_dim; i++)
        n *= (size_t)shape[i];
    add(t, name, n_dim, shape, type, values_of(ours, n, n_dim == 1));
}

static void add_matrix(tower *t, int layer, const char *stem, int n_out, int n_in)
{
    static const struct {
        const char *name;
        float value;
    } end[] = {{"input_min", -1.5f}, {"input_max", 1.25f}, {"output_min", -2}, {"output_max", 2}};
    char name[64];
    snprintf(name, sizeof name, "v.blk.%d.%s.weight", layer, stem);
    add_random(t, name, 2, (int64_t[]){n_out, n_in}, t->how->type);
    for (size_t i = 0; i < DG_COUNT(end) && t->how->cfg.clipped; i++) {
        float *one = dg_array(1, sizeof *one);
        ck_assert_ptr_nonnull(one);
        *one = end[i].value;
        snprintf(name, sizeof name, "v.blk.%d.%s.%s", layer, stem, end[i].name);
        add(t, name, 1, (int64_t[]){1}, DG_F32, one);
    }
}

static void add_vector(tower *t, int layer, const char *stem, int n)
{
    char name[64];
    snprintf(name, sizeof name, "v.blk.%d.%s.weight", layer, stem);
    add_random(t, name, 1, (int64_t[]){n}, DG_F32);
}

/* Rows of (row, column, channel), as the checkpoint has them, or channel first. */
static void add_patch(tower *t)
{
    static const char name[] = "v.patch_embd.weight";
    const dg_vision_config *c = &t->how->cfg;
    char ours[DG_GGUF_NAME];
    ck_assert(dg_gguf_rename(ours, name));
    size_t area = (size_t)(c->patch * c->patch), n = (size_t)c->n_embd * area * 3;
    float *values = values_of(ours, n, false), *turned = dg_array(n, sizeof *turned);
    ck_assert_ptr_nonnull(turned);
    for (size_t i = 0; i < n; i++)
        turned[i / (3 * area) * 3 * area + i % 3 * area + i / 3 % area] = values[i];
    if (t->mmproj && !t->how->flat_patch)
        add(t, name, 4, (int64_t[]){c->n_embd, 3, c->patch, c->patch}, DG_F32, turned);
    else
        add(t, name, 2, (int64_t[]){c->n_embd, (int64_t)(3 * area)}, DG_F32, values);
    dg_free(t->mmproj && !t->how->flat_patch ? values : turned);
}

static void gather(tower *t)
{
    const dg_vision_config *c = &t->how->cfg;
    int heads = c->n_head * c->head_dim;
    add_patch(t);
    add_random(t, "v.position_embd.weight", 3, (int64_t[]){2, c->n_position, c->n_embd}, DG_F32);
    if (c->standardize) {
        add_random(t, "v.std_bias", 1, (int64_t[]){c->n_embd}, DG_F32);
        add_random(t, "v.std_scale", 1, (int64_t[]){c->n_embd}, DG_F32);
    }
    add_random(t, "mm.input_projection.weight", 2, (int64_t[]){t->how->n_text, c->n_embd},
               t->how->type);
    for (int i = 0; i < c->n_layer; i++) {
        add_vector(t, i, "ln1", c->n_embd);
        add_matrix(t, i, "attn_q", heads, c->n_embd);
        add_matrix(t, i, "attn_k", heads, c->n_embd);
        add_matrix(t, i, "attn_v", heads, c->n_embd);
        add_matrix(t, i, "attn_out", c->n_embd, heads);
        add_vector(t, i, "attn_q_norm", c->head_dim);
        add_vector(t, i, "attn_k_norm", c->head_dim);
        add_vector(t, i, "attn_post_norm", c->n_embd);
        add_vector(t, i, "ln2", c->n_embd);
        add_matrix(t, i, "ffn_gate", c->n_ff, c->n_embd);
        add_matrix(t, i, "ffn_up", c->n_ff, c->n_embd);
        add_matrix(t, i, "ffn_down", c->n_embd, c->n_ff);
        add_vector(t, i, "ffn_post_norm", c->n_embd);
    }
}

static void release(tower *t)
{
    for (size_t i = 0; i < t->n; i++) {
        dg_free((void *)t->tensor[i].name);
        dg_free((void *)t->tensor[i].data);
    }
    dg_free(t);
}

static tower *make(const dg_test_tower *how, bool mmproj)
{
    tower *t = dg_calloc(1, sizeof *t);
    ck_assert_ptr_nonnull(t);
    t->how = how;
    t->mmproj = mmproj;
    gather(t);
    return t;
}

void dg_test_write_tower(const char *path, const dg_test_tower *how)
{
    tower *t = make(how, false);
    ck_assert(dg_test_write_safetensors(path, t->tensor, t->n));
    release(t);
}

static void put_int(dg_gguf_writer *w, const dg_test_tower *how, const char *key, int value)
{
    char full[96];
    snprintf(full, sizeof full, "clip.vision.%s", key);
    if (!how->omit || strcmp(how->omit, key) != 0)
        dg_gguf_put_int(w, full, DG_GGUF_U32, value);
}

void dg_test_write_mmproj(const char *path, const dg_test_tower *how)
{
    tower *t = make(how, true);
    const dg_vision_config *c = &how->cfg;
    dgemma_error err = {0};
    dg_gguf_writer w;
    dg_gguf_writer_init(&w, 0);
    dg_gguf_put_string(&w, "general.architecture", "clip");
    dg_gguf_put_string(&w, "clip.vision.projector_type",
                       how->projector ? how->projector : "gemma4v");
    put_int(&w, how, "embedding_length", c->n_embd);
    put_int(&w, how, "feed_forward_length", c->n_ff);
    put_int(&w, how, "block_count", c->n_layer);
    put_int(&w, how, "attention.head_count", c->n_head);
    put_int(&w, how, "patch_size", c->patch);
    put_int(&w, how, "image_size", 224);
    put_int(&w, how, "projection_dim", how->n_text);
    put_int(&w, how, "projector.scale_factor", c->pool);
    if (c->max_soft != 280) /* other writers do not know the key */
        put_int(&w, how, "max_soft_tokens", c->max_soft);
    dg_gguf_put_float(&w, "clip.vision.attention.layer_norm_epsilon", c->rms_eps);
    dg_gguf_put_floats(&w, "clip.vision.image_mean", (float[]){0, 0, 0}, 3);
    dg_gguf_put_floats(&w, "clip.vision.image_std", (float[]){1, 1, 1}, 3);
    for (size_t i = 0; i < t->n; i++)
        dg_gguf_put_tensor(&w, &t->tensor[i]);
    dg_gguf_writer_open(&w, path);
    for (size_t i = 0; i < t->n; i++)
        dg_gguf_write_data(&w, t->tensor[i].data, t->tensor[i].bytes);
    ck_assert_msg(dg_gguf_writer_close(&w, &err) == DGEMMA_OK, "%s", err.msg);
    release(t);
}
