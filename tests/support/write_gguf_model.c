#include "support/write_gguf_model.h"
#include <check.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/rng.h"
#include "format/checkpoint.h"
#include "format/gguf_names.h"
#include "format/gguf_write.h"
#include "model/config.h"
#include "support/temp_dir.h"
#include "tensor/blocks.h"

static const char *const top[] = {"token_embd.weight",         "output_norm.weight",
                                  "self_cond_pre_norm.weight", "self_cond_gate.weight",
                                  "self_cond_up.weight",       "self_cond_down.weight"};
static const char *const layer[] = {"attn_norm.weight",
                                    "attn_q.weight",
                                    "attn_k.weight",
                                    "attn_v.weight",
                                    "attn_output.weight",
                                    "attn_q_norm.weight",
                                    "attn_k_norm.weight",
                                    "post_attention_norm.weight",
                                    "ffn_norm.weight",
                                    "ffn_gate.weight",
                                    "ffn_up.weight",
                                    "ffn_down.weight",
                                    "post_ffw_norm_1.weight",
                                    "pre_ffw_norm_2.weight",
                                    "post_ffw_norm_2.weight",
                                    "post_ffw_norm.weight",
                                    "ffn_gate_inp.weight",
                                    "ffn_gate_inp.scale",
                                    "ffn_down_exps.scale",
                                    "ffn_gate_up_exps.weight",
                                    "ffn_down_exps.weight",
                                    "layer_output_scale.weight",
                                    "enc_layer_output_scale.weight"};

enum { MAX_TENSOR = 512 };

/* What goes into the file: tensors with data and names of their own. */
typedef struct model {
    const dg_test_gguf *how;
    dg_config cfg;
    dg_checkpoint *ck;
    dg_tensor tensor[MAX_TENSOR];
    size_t n;
} model;

static void *copy(const void *data, size_t bytes)
{
    void *out = dg_malloc(bytes);
    ck_assert_ptr_nonnull(out);
    return memcpy(out, data, bytes);
}

/* Takes `data`. */
static void add(model *m, const char *name, const dg_tensor *like, dg_dtype type, void *data)
{
    ck_assert_uint_lt(m->n, MAX_TENSOR);
    dg_tensor *t = &m->tensor[m->n++];
    *t = *like;
    t->name = dg_strdup(name);
    t->type = type;
    t->data = data;
    t->bytes = dg_dtype_bytes(type, dg_tensor_count(t));
}

/* Where the scales of a block stand, so that random ones become small: halves, or bytes. */
static void tame(unsigned char *b, dg_dtype type)
{
    static const struct {
        dg_dtype type;
        int at[2], n;
    } half[] = {
        {DG_Q4_0, {0, 0}, 1},    {DG_Q4_1, {0, 2}, 2},   {DG_Q5_0, {0, 0}, 1},
        {DG_Q5_1, {0, 2}, 2},    {DG_Q2_K, {80, 82}, 2}, {DG_Q3_K, {108, 0}, 1},
        {DG_Q4_K, {0, 2}, 2},    {DG_Q5_K, {0, 2}, 2},   {DG_Q6_K, {208, 0}, 1},
        {DG_IQ4_NL, {0, 0}, 1},  {DG_IQ4_XS, {0, 0}, 1}, {DG_IQ1_S, {0, 0}, 1},
        {DG_IQ2_XXS, {0, 0}, 1}, {DG_IQ2_XS, {0, 0}, 1}, {DG_IQ2_S, {0, 0}, 1},
        {DG_IQ3_XXS, {0, 0}, 1}, {DG_IQ3_S, {0, 0}, 1},  {DG_TQ1_0, {52, 0}, 1},
        {DG_TQ2_0, {64, 0}, 1},
    };
    for (size_t i = 0; i < DG_COUNT(half); i++)
        for (int k = 0; k < half[i].n && half[i].type == type; k++) {
            /* an exponent of at most 3: below 2^-11 */
            b[half[i].at[k] + 1] = (unsigned char)(b[half[i].at[k] + 1] & 0x8F);
        }
    if (type == DG_IQ1_M) /* the top of the half is the top of the last word */
        b[55] = (unsigned char)(b[55] & 0x8F);
    if (type == DG_MXFP4)
        b[0] = (unsigned char)(118 + b[0] % 6);
    for (int i = 0; i < 4 && type == DG_NVFP4; i++)
        b[i] = (unsigned char)(b[i] % 32);
}

static void *to_type(const float *in, dg_dtype type, size_t n, unsigned seed)
{
    unsigned char *out = dg_malloc(dg_dtype_bytes(type, n));
    ck_assert_ptr_nonnull(out);
    if (!dg_dtype_is_block(type))
        dg_narrow(out, type, in, n);
    else if (type == DG_Q8_0)
        dg_blocks_narrow_q8_0(out, in, n);
    else {
        dg_rng_key key = {.seed = seed};
        size_t bytes = dg_dtype_bytes(type, n), block = dg_dtype_bytes(type, dg_dtype_block(type));
        for (size_t i = 0; i < bytes; i++)
            out[i] = (unsigned char)dg_rng_below(&key, (uint32_t)i, 256);
        for (size_t i = 0; i < bytes; i += block)
            tame(out + i, type);
    }
    return out;
}

/* One matrix (or all experts' of one) in the wanted type, and its factors. */
static void add_matrix(model *m, const char *name, const dg_tensor *t, const float *values)
{
    const dg_test_gguf *how = m->how;
    size_t n = dg_tensor_count(t), n_mat = t->n_dim == 3 ? (size_t)t->shape[0] : 1;
    char scale_name[DG_GGUF_NAME];
    bool scaled = how->scaled && dg_gguf_scale_name(scale_name, name);
    float *scale = dg_array(n_mat, sizeof *scale);
    for (size_t i = 0; i < n_mat; i++)
        scale[i] = scaled ? 0.5f + 0.25f * (float)i : 1;
    unsigned seed =
        0; /* of the name, so that a matrix is the same in every way to write the model */
    for (const char *p = name; *p; p++)
        seed = seed * 31 + (unsigned char)*p;
    void *stored = to_type(values, how->type, n, seed);
    if (how->widened) {
        float *wide = dg_array(n, sizeof *wide);
        dg_widen(wide, stored, how->type, n);
        for (size_t i = 0; i < n; i++)
            wide[i] *= scale[i / (n / n_mat)];
        dg_free(stored);
        add(m, name, t, DG_F32, wide);
    } else {
        add(m, name, t, how->type, stored);
        if (scaled) {
            dg_tensor like = {.n_dim = 1, .shape = {(int64_t)n_mat}};
            add(m, scale_name, &like, DG_F32, copy(scale, n_mat * sizeof *scale));
        }
    }
    dg_free(scale);
}

/* Rows [first, first + n_row) of each expert, as a tensor of their own. */
static void add_part(model *m, const char *name, const dg_tensor *t, const float *values,
                     int64_t first)
{
    dg_tensor part = *t;
    part.shape[1] /= 2;
    size_t rows = (size_t)part.shape[1], cols = (size_t)part.shape[2];
    float *out = dg_array(dg_tensor_count(&part), sizeof *out);
    for (size_t e = 0; e < (size_t)t->shape[0]; e++)
        memcpy(out + e * rows * cols, values + (e * 2 * rows + (size_t)first) * cols,
               rows * cols * sizeof *out);
    add_matrix(m, name, &part, out);
    dg_free(out);
}

static void add_tensor(model *m, const char *name)
{
    char ours[DG_GGUF_NAME], part[DG_GGUF_NAME];
    ck_assert(dg_gguf_rename(ours, name));
    const dg_tensor *t = dg_checkpoint_find(m->ck, ours);
    if (!t) {
        ck_assert_ptr_nonnull(strstr(name, "attn_v")); /* the only one that may be absent */
        return;
    }
    size_t n = dg_tensor_count(t);
    float *values = dg_array(n, sizeof *values);
    dg_widen(values, t->data, t->type, n);
    char *fused = strstr(name, "ffn_gate_up_exps");
    bool fits = t->n_dim >= 2 && (size_t)t->shape[t->n_dim - 1] % dg_dtype_block(m->how->type) == 0;
    if (!fits || strstr(name, "ffn_gate_inp"))
        add(m, name, t, DG_F32, copy(values, n * sizeof *values));
    else if (fused && m->how->separate) {
        int n_prefix = (int)(fused - name);
        snprintf(part, sizeof part, "%.*sffn_gate_exps.weight", n_prefix, name);
        add_part(m, part, t, values, 0);
        snprintf(part, sizeof part, "%.*sffn_up_exps.weight", n_prefix, name);
        add_part(m, part, t, values, t->shape[1] / 2);
    } else
        add_matrix(m, name, t, values);
    dg_free(values);
}

static void gather(model *m)
{
    for (size_t i = 0; i < DG_COUNT(top); i++)
        add_tensor(m, top[i]);
    for (int l = 0; l < m->cfg.n_layer; l++)
        for (size_t i = 0; i < DG_COUNT(layer); i++) {
            char name[64];
            if (m->how->no_encoder_scalar && strncmp(layer[i], "enc_", 4) == 0)
                continue;
            snprintf(name, sizeof name, "blk.%d.%s", l, layer[i]);
            add_tensor(m, name);
        }
    if (m->how->head) {
        const dg_tensor *t = &m->tensor[0];
        add(m, "output.weight", t, t->type, copy(t->data, t->bytes));
    }
}

/* ---- keys ---- */

typedef struct keys {
    dg_gguf_writer *w;
    const model *m;
} keys;

static const char *key_name(const keys *k, char out[96], const char *key, bool prefixed)
{
    snprintf(out, 96, "%s%s", prefixed ? "diffusion-gemma." : "", key);
    return k->m->how->omit && strcmp(k->m->how->omit, key) == 0 ? NULL : out;
}

static void put_int(const keys *k, const char *key, dg_gguf_type type, int64_t value, bool prefixed)
{
    char name[96];
    if (key_name(k, name, key, prefixed))
        dg_gguf_put_int(k->w, name, type, value);
}

static void put_float(const keys *k, const char *key, float value, bool prefixed)
{
    char name[96];
    if (key_name(k, name, key, prefixed))
        dg_gguf_put_float(k->w, name, value);
}

static void put_layers(const keys *k, const char *key, dg_gguf_type type, const int64_t *value)
{
    char name[96];
    if (key_name(k, name, key, true))
        dg_gguf_put_ints(k->w, name, type, value, (size_t)k->m->cfg.n_layer);
}

static void put_keys(const keys *k)
{
    const dg_config *c = &k->m->cfg;
    const dg_layer_config *global = &c->layer[c->n_layer - 1], *local = &c->layer[0];
    bool plain = k->m->how->scalar_keys;
    int64_t kv[DG_MAX_LAYER], sliding[DG_MAX_LAYER], ff[DG_MAX_LAYER], period = 1;
    for (int i = 0; i < c->n_layer; i++) {
        kv[i] = c->layer[i].n_kv_head;
        sliding[i] = c->layer[i].sliding;
        ff[i] = c->n_ff;
    }
    while (sliding[period - 1])
        period++;
    dg_gguf_put_string(k->w, "general.architecture",
                       k->m->how->architecture ? k->m->how->architecture : "diffusion-gemma");
    put_int(k, "block_count", DG_GGUF_U32, c->n_layer, true);
    put_int(k, "context_length", DG_GGUF_U64, c->n_context, true);
    put_int(k, "embedding_length", DG_GGUF_U16, c->n_embd, true);
    put_int(k, "attention.head_count", DG_GGUF_U32, c->n_head, true);
    put_int(k, "expert_count", DG_GGUF_U8, c->n_expert, true);
    put_int(k, "expert_used_count", DG_GGUF_I64, c->n_expert_used, true);
    put_int(k, "expert_feed_forward_length", DG_GGUF_I32, c->n_ff_expert, true);
    put_int(k, "attention.key_length", DG_GGUF_U32, global->head_dim, true);
    put_int(k, "attention.key_length_swa", DG_GGUF_U32, local->head_dim, true);
    put_int(k, "attention.sliding_window", DG_GGUF_U32, local->window, true);
    put_layers(k, "attention.head_count_kv", DG_GGUF_I32, kv);
    if (plain) {
        put_int(k, "feed_forward_length", DG_GGUF_U32, c->n_ff, true);
        put_int(k, "attention.sliding_window_pattern", DG_GGUF_U32, period, true);
    } else {
        put_layers(k, "feed_forward_length", DG_GGUF_U32, ff);
        put_layers(k, "attention.sliding_window_pattern", DG_GGUF_BOOL, sliding);
    }
    put_float(k, "rope.freq_base", global->rope_theta, true);
    put_float(k, "rope.freq_base_swa", local->rope_theta, true);
    put_float(k, "attention.layer_norm_rms_epsilon", c->rms_eps, true);
    put_float(k, "final_logit_softcapping", c->logit_softcap, true);
    put_int(k, "diffusion.canvas_length", DG_GGUF_U32, c->canvas_length, plain);
    put_int(k, "diffusion.eb_max_steps", DG_GGUF_U32, 12, plain);
    put_float(k, "diffusion.eb_entropy_bound", 0.25f, plain);
}

/* ---- files ---- */

static void write_file(const model *m, const char *path, int no, int n_file)
{
    dgemma_error err = {0};
    dg_gguf_writer w;
    dg_gguf_writer_init(&w, m->how->alignment);
    if (no == 0)
        put_keys(&(keys){&w, m});
    if (n_file > 1) {
        dg_gguf_put_int(&w, "split.no", DG_GGUF_U16, no);
        dg_gguf_put_int(&w, "split.count", DG_GGUF_U16, n_file);
        dg_gguf_put_int(&w, "split.tensors.count", DG_GGUF_I32, (int64_t)m->n);
    }
    size_t first = m->n * (size_t)no / (size_t)n_file;
    size_t end = m->n * (size_t)(no + 1) / (size_t)n_file;
    for (size_t i = first; i < end; i++)
        dg_gguf_put_tensor(&w, &m->tensor[i]);
    dg_gguf_writer_open(&w, path);
    for (size_t i = first; i < end; i++)
        dg_gguf_write_data(&w, m->tensor[i].data, m->tensor[i].bytes);
    ck_assert_msg(dg_gguf_writer_close(&w, &err) == DGEMMA_OK, "%s", err.msg);
}

static void open_fixture(model *m)
{
    dgemma_error err = {0};
    char path[256];
    dg_buf doc;
    dg_buf_init(&doc, 1 << 20);
    snprintf(path, sizeof path, "tests/fixtures/golden/%s/model", m->how->fixture);
    dgemma_status st = dg_checkpoint_open(&m->ck, path, &err);
    st = st ? st : dg_checkpoint_document(m->ck, "config.json", &doc, &err);
    st = st ? st : dg_config_parse(&m->cfg, doc.data, doc.len, "config.json", &err);
    dg_buf_clear(&doc);
    ck_assert_msg(st == DGEMMA_OK, "%s: %s", path, err.msg);
}

void dg_test_write_gguf_model(const char *dir, const char *name, const dg_test_gguf *how)
{
    model *m = dg_calloc(1, sizeof *m);
    ck_assert_ptr_nonnull(m);
    m->how = how;
    open_fixture(m);
    gather(m);
    int n_file = dg_max(1, how->n_file);
    for (int i = 0; i < n_file; i++) {
        char file[128], path[DG_TEST_PATH];
        if (n_file > 1)
            snprintf(file, sizeof file, "%.80s-%05d-of-%05d.gguf", name, i + 1, n_file);
        else
            snprintf(file, sizeof file, "%.80s.gguf", name);
        write_file(m, dg_test_path(path, dir, file), i, n_file);
    }
    for (size_t i = 0; i < m->n; i++) {
        dg_free((void *)m->tensor[i].name);
        dg_free((void *)m->tensor[i].data);
    }
    dg_checkpoint_close(m->ck);
    dg_free(m);
}
