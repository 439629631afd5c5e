/* vision: the tower from both kinds of file, in every weight type; pictures do not know of each
 * other; what does not fit is refused by name. The values themselves are held to the reference's by
 * the golden fixtures `vision` and `vision_generate`. */
#include "suites.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/rng.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "engine/picture_features.h"
#include "model/config_gguf.h"
#include "model/vision.h"
#include "support/alloc_fail.h"
#include "support/temp_dir.h"
#include "support/write_gguf_model.h"
#include "support/write_safetensors.h"
#include "support/write_tower.h"

enum { N_TEXT = 40 };

/* Heads that are no multiple of a panel, as in the published tower; rows that fill blocks of 32. */
static dg_test_tower small_tower(void)
{
    return (dg_test_tower){
        .n_text = N_TEXT,
        .cfg = {.present = true,
                .n_embd = 64,
                .n_ff = 96,
                .n_layer = 2,
                .n_head = 4,
                .head_dim = 16,
                .patch = 4,
                .pool = 3,
                .n_position = 300,
                .standardize = true,
                .rms_eps = 1e-6f,
                .rope_theta = 100,
                .max_soft = 280},
    };
}

typedef struct loaded {
    dg_checkpoint *ck;
    dg_backend *be;
    dg_config cfg;
    dg_vision *v;
} loaded;

static dgemma_status try_open(loaded *l, const char *path, const dg_test_tower *how, int n_thread,
                              dgemma_error *err)
{
    *l = (loaded){.cfg = {.n_embd = N_TEXT, .vision = how->cfg}};
    dgemma_status st = dg_checkpoint_open(&l->ck, path, err);
    if (!st && dg_checkpoint_gguf(l->ck))
        st = dg_config_from_mmproj(&l->cfg, l->ck, err);
    if (!st)
        st = dg_cpu_open(&l->be, &(dg_cpu_options){n_thread, dg_cpu_flags(), how->exact}, err);
    return st ? st : dg_vision_load(&l->v, &l->cfg, l->ck, l->be, err);
}

static void close_tower(loaded *l)
{
    dg_vision_free(l->v);
    if (l->be)
        l->be->close(l->be);
    dg_checkpoint_close(l->ck);
}

static void open_tower(loaded *l, const char *path, const dg_test_tower *how, int n_thread)
{
    dgemma_error err = {0};
    dgemma_status st = try_open(l, path, how, n_thread, &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    ck_assert_ptr_nonnull(l->v);
}

static float *pixels_of(int n_patch, unsigned seed)
{
    size_t n = (size_t)n_patch * 48;
    float *out = dg_array(n, sizeof *out);
    dg_rng_key key = {.seed = seed};
    ck_assert_ptr_nonnull(out);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)dg_rng_uniform(&key, (uint32_t)i);
    return out;
}

static float *encode(loaded *l, const dg_vision_input *in, int n)
{
    dgemma_error err = {0};
    size_t n_soft = 0;
    for (int i = 0; i < n; i++)
        n_soft += (size_t)dg_vision_n_soft(dg_vision_config_of(l->v), in[i].rows, in[i].cols);
    float *out = dg_calloc(n_soft * N_TEXT, sizeof *out);
    dgemma_status st = dg_vision_encode(l->v, in, n, out, &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    for (size_t i = 0; i < n_soft * N_TEXT; i++)
        ck_assert(isfinite(out[i]));
    return out;
}

/* One picture of 9 x 15 patches, three pages of keys. */
static float *features_of(const char *path, const dg_test_tower *how)
{
    loaded l;
    open_tower(&l, path, how, 2);
    float *pixels = pixels_of(9 * 15, 1);
    float *out = encode(&l, &(dg_vision_input){9, 15, pixels}, 1);
    dg_free(pixels);
    close_tower(&l);
    return out;
}

static void assert_same(float *got, float *want)
{
    ck_assert_mem_eq(got, want, 15 * N_TEXT * sizeof *got);
    dg_free(got);
    dg_free(want);
}

/* ---- files ---- */

/* Safetensors, and mmproj files in several types, with and without clipping. */
START_TEST(both_files_give_the_same_bits)
{
    static const dg_dtype types[] = {DG_F32, DG_BF16, DG_F16};
    char st[DG_TEST_PATH], mm[DG_TEST_PATH];
    dg_test_path(st, dg_test_root, "model.safetensors");
    dg_test_path(mm, dg_test_root, "mmproj-a.gguf");
    dg_test_tower how = small_tower();
    how.cfg.clipped = _i % 2;
    how.cfg.standardize = _i < 4;
    how.type = types[_i % 3];
    dg_test_write_tower(st, &how);
    dg_test_write_mmproj(mm, &how);
    assert_same(features_of(mm, &how), features_of(st, &how));
    how.exact = true;
    dg_test_tower plain = how; /* the values are of bfloat16: of a half, those it can hold */
    plain.widened = true;
    dg_test_write_tower(st, &plain);
    assert_same(features_of(mm, &how), features_of(st, &plain));
}
END_TEST

/* Rows rounded to eight bits, over two small layers: an error of two percent of the features where
 * the processor has products of bfloat16 numbers, none elsewhere. */
START_TEST(bfloat_products_stay_close)
{
    enum { N = 15 * N_TEXT };
    dg_test_tower how = small_tower();
    how.type = DG_BF16;
    how.cfg.clipped = _i;
    dg_test_write_tower(dg_test_in_root("model.safetensors"), &how);
    float *got = features_of(dg_test_in_root("model.safetensors"), &how);
    how.exact = true;
    float *want = features_of(dg_test_in_root("model.safetensors"), &how);
    double off = 0, size = 0;
    for (int i = 0; i < N; i++) {
        off += pow((double)got[i] - (double)want[i], 2);
        size += pow((double)want[i], 2);
    }
    ck_assert_double_le(sqrt(off / size), 0.02);
    if (dg_cpu_flags() & DG_CPU_BF16)
        ck_assert(memcmp(got, want, N * sizeof *got) != 0);
    dg_free(got);
    dg_free(want);
}
END_TEST

START_TEST(clipping_and_standardising_matter)
{
    dg_test_tower how = small_tower(), other = how;
    (_i ? &other.cfg.clipped : &how.cfg.clipped)[0] = true;
    if (_i == 2)
        other.cfg.clipped = false, how.cfg.clipped = false, other.cfg.standardize = false;
    dg_test_write_tower(dg_test_in_root("model.safetensors"), &how);
    float *a = features_of(dg_test_in_root("model.safetensors"), &how);
    dg_test_write_tower(dg_test_in_root("model.safetensors"), &other);
    float *b = features_of(dg_test_in_root("model.safetensors"), &other);
    ck_assert(memcmp(a, b, 15 * N_TEXT * sizeof *a) != 0);
    dg_free(a);
    dg_free(b);
}
END_TEST

START_TEST(block_types)
{
    dg_test_tower how = small_tower();
    how.type = DG_Q8_0;
    dg_test_write_mmproj(dg_test_in_root("mmproj.gguf"), &how);
    float *got = features_of(dg_test_in_root("mmproj.gguf"), &how);
    how.widened = true;
    dg_test_write_mmproj(dg_test_in_root("mmproj.gguf"), &how);
    assert_same(got, features_of(dg_test_in_root("mmproj.gguf"), &how));
}
END_TEST

/* The file beside a GGUF model, the first by name. */
START_TEST(mmproj_is_found)
{
    dgemma_error err = {0};
    dg_checkpoint *model, *mm;
    dg_test_tower how = small_tower();
    dg_test_write_gguf_model(dg_test_root, "text", &(dg_test_gguf){.fixture = "vision"});
    ck_assert_int_eq(dg_checkpoint_open(&model, dg_test_in_root("text.gguf"), &err), DGEMMA_OK);
    ck_assert_int_eq(dg_checkpoint_open_mmproj(&mm, model, &err), DGEMMA_OK);
    ck_assert_ptr_null(mm);

    dg_test_write_mmproj(dg_test_in_root("mmproj-F16.gguf"), &how);
    how.cfg.n_layer = 1;
    dg_test_write_mmproj(dg_test_in_root("mmproj-BF16.gguf"), &how);
    ck_assert_int_eq(dg_checkpoint_open_mmproj(&mm, model, &err), DGEMMA_OK);
    ck_assert_ptr_nonnull(mm);
    dg_config cfg = {.n_embd = N_TEXT};
    ck_assert_msg(dg_config_from_mmproj(&cfg, mm, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert(cfg.vision.present);
    ck_assert_int_eq(cfg.vision.n_layer, 1);
    ck_assert_int_eq(cfg.vision.head_dim, how.cfg.head_dim);
    ck_assert_int_eq(cfg.vision.n_position, how.cfg.n_position);
    ck_assert_int_eq(cfg.vision.max_soft, 280);
    ck_assert(cfg.vision.standardize && !cfg.vision.clipped);
    ck_assert_float_eq(cfg.vision.rope_theta, 100);
    dg_checkpoint_close(mm);
    how.cfg.max_soft = 70;
    dg_test_write_mmproj(dg_test_in_root("mmproj-BF16.gguf"), &how);
    ck_assert_int_eq(dg_checkpoint_open_mmproj(&mm, model, &err), DGEMMA_OK);
    ck_assert_msg(dg_config_from_mmproj(&cfg, mm, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(cfg.vision.max_soft, 70);
    dg_checkpoint_close(mm);
    dg_checkpoint_close(model);

    /* still the one model of its folder; a folder of safetensors has no use for the file */
    ck_assert_msg(dg_checkpoint_open(&model, dg_test_root, &err) == DGEMMA_OK, "%s", err.msg);
    dg_checkpoint_close(model);
    ck_assert_int_eq(dg_checkpoint_open(&model, "tests/fixtures/golden/vision/model", &err), 0);
    ck_assert_int_eq(dg_checkpoint_open_mmproj(&mm, model, &err), DGEMMA_OK);
    ck_assert_ptr_null(mm);
    dg_checkpoint_close(model);
}
END_TEST

static void expect_refused(const char *path, const dg_test_tower *how, const char *text)
{
    loaded l;
    dgemma_error err = {0};
    dgemma_status st = try_open(&l, path, how, 1, &err);
    ck_assert_msg(st == DGEMMA_E_FORMAT || st == DGEMMA_E_UNSUPPORTED, "%s: accepted", text);
    ck_assert_msg(strstr(err.msg, text) != NULL, "\"%s\" does not say \"%s\"", err.msg, text);
    ck_assert_ptr_null(l.v);
    close_tower(&l);
}

START_TEST(keys_and_tensors_are_named)
{
    static const char *const missing[] = {"embedding_length", "feed_forward_length",
                                          "block_count",      "attention.head_count",
                                          "patch_size",       "v.position_embd.weight"};
    const char *mm = dg_test_in_root("mmproj.gguf");
    for (size_t i = 0; i < DG_COUNT(missing); i++) {
        dg_test_tower how = small_tower();
        how.omit = missing[i];
        dg_test_write_mmproj(mm, &how);
        expect_refused(mm, &how, missing[i]);
    }
    dg_test_tower how = small_tower();
    how.projector = "gemma3";
    dg_test_write_mmproj(mm, &how);
    expect_refused(mm, &how, "projector_type");
    how = small_tower();
    how.flat_patch = true;
    dg_test_write_mmproj(mm, &how);
    expect_refused(mm, &how, "v.patch_embd.weight is [64, 48] of type F32");
    how = small_tower();
    how.n_text = N_TEXT + 1;
    dg_test_write_mmproj(mm, &how);
    expect_refused(mm, &how, "projection_dim");
    how = small_tower();
    how.cfg.n_head = 5;
    dg_test_write_mmproj(mm, &how);
    expect_refused(mm, &how, "attention.head_count");
}
END_TEST

START_TEST(shapes_are_checked)
{
    static const char p[] = "model.encoder.vision_tower.";
    const char *st = dg_test_in_root("model.safetensors");
    char name[128];
    dg_test_tower how = small_tower(), other;
    snprintf(name, sizeof name, "%sencoder.layers.1.mlp.up_proj.linear.weight", p);
    how.omit = name;
    dg_test_write_tower(st, &how);
    expect_refused(st, &how, "mlp.up_proj.linear.weight is missing");
    how.omit = NULL;
    dg_test_write_tower(st, &how);
    other = how;
    other.cfg.n_ff = 97;
    expect_refused(st, &other, "mlp.gate_proj.linear.weight has shape [96, 64]");
    other = how;
    other.cfg.n_position++;
    expect_refused(st, &other, "position_embedding_table has shape [2, 300, 64]");
    other = how;
    other.cfg.patch = 5;
    expect_refused(st, &other, "input_proj.weight has shape [64, 48]");
    other = how;
    other.cfg.clipped = true;
    expect_refused(st, &other, "self_attn.q_proj.input_min is missing");
}
END_TEST

START_TEST(no_tower)
{
    dgemma_error err = {0};
    loaded l;
    dg_test_tower how = small_tower();
    dg_test_write_tower(dg_test_in_root("model.safetensors"), &how);
    how.cfg.present = false; /* the config has none */
    ck_assert_int_eq(try_open(&l, dg_test_root, &how, 1, &err), DGEMMA_OK);
    ck_assert_ptr_null(l.v);
    close_tower(&l);
    how.cfg.present = true; /* the checkpoint has none */
    float one = 1;
    dg_tensor text = {.name = "model.decoder.norm.weight", .n_dim = 1, .shape = {1}, .data = &one};
    ck_assert(dg_test_write_safetensors(dg_test_in_root("model.safetensors"), &text, 1));
    ck_assert_int_eq(try_open(&l, dg_test_root, &how, 1, &err), DGEMMA_OK);
    ck_assert_ptr_null(l.v);
    close_tower(&l);
}
END_TEST

/* ---- pictures ---- */

START_TEST(pictures_do_not_know_of_each_other)
{
    /* together; with one thread, two and four; and one picture that has a pass of its own */
    static const int size[][2] = {{3, 3}, {9, 15}, {48, 54}, {3, 60}, {12, 12}};
    enum { N = DG_COUNT(size) };
    dg_test_tower how = small_tower();
    how.type = _i ? DG_BF16 : DG_F32;
    dg_test_write_tower(dg_test_in_root("model.safetensors"), &how);
    dg_vision_input in[N];
    float *want[N];
    loaded l;
    open_tower(&l, dg_test_root, &how, 1);
    for (int i = 0; i < N; i++) {
        in[i] = (dg_vision_input){size[i][0], size[i][1],
                                  pixels_of(size[i][0] * size[i][1], (unsigned)i)};
        want[i] = encode(&l, &in[i], 1);
    }
    close_tower(&l);
    for (int n_thread = 1; n_thread <= 4; n_thread *= 2) {
        open_tower(&l, dg_test_root, &how, n_thread);
        float *all = encode(&l, in, N), *at = all;
        for (int i = 0; i < N; i++) {
            size_t n = (size_t)dg_vision_n_soft(&how.cfg, in[i].rows, in[i].cols) * N_TEXT;
            ck_assert_mem_eq(at, want[i], n * sizeof *at);
            at += n;
        }
        dg_free(all);
        close_tower(&l);
    }
    for (int i = 0; i < N; i++) {
        dg_free(want[i]);
        dg_free((float *)in[i].pixels);
    }
}
END_TEST

/* ---- a request's pictures ---- */

enum { N_ALBUM = 7 };

/* What a request shows: small pictures that share a pass, a large one, and two of them again. */
typedef struct album {
    dg_picture list[N_ALBUM];
    int32_t feature[1024];
    dg_pictures pictures;
} album;

static void album_init(album *a, unsigned seed)
{
    static const int shown[N_ALBUM][3] = {{3, 3, 0},  {9, 15, 1}, {3, 3, 0},  {48, 54, 2},
                                          {3, 60, 3}, {9, 15, 1}, {12, 12, 4}};
    *a = (album){.pictures = {.list = a->list, .n = N_ALBUM, .feature = a->feature}};
    for (int i = 0; i < N_ALBUM; i++) {
        int rows = shown[i][0], cols = shown[i][1];
        unsigned which = seed + (unsigned)shown[i][2];
        dg_patches p = {
            .rows = rows, .cols = cols, .n_soft = rows * cols / 9, .patch = 4, .pool = 3};
        dg_rng_key key = {.seed = which};
        p.resized = dg_calloc((size_t)(rows * cols), 48);
        for (size_t k = 0; k < dg_patches_bytes(&p); k++)
            p.resized[k] = (uint8_t)dg_rng_below(&key, (uint32_t)k, 256);
        a->list[i] = (dg_picture){p, which, a->pictures.n_soft};
        for (int k = 0; k < p.n_soft; k++)
            a->feature[a->pictures.n_soft + k] = a->pictures.n_soft + k;
        a->pictures.n_soft += p.n_soft;
    }
}

static void album_clear(album *a)
{
    for (int i = 0; i < N_ALBUM; i++)
        dg_patches_clear(&a->list[i].patches);
}

/* The same pictures, each by itself. */
static void assert_features(loaded *l, const album *a, const float *features)
{
    for (int i = 0; i < N_ALBUM; i++) {
        const dg_patches *p = &a->list[i].patches;
        float *pixels = dg_array(dg_patches_bytes(p), sizeof *pixels);
        dg_patches_cut(p, pixels);
        float *want = encode(l, &(dg_vision_input){p->rows, p->cols, pixels}, 1);
        dg_free(pixels);
        ck_assert_mem_eq(features, want, (size_t)p->n_soft * N_TEXT * sizeof *want);
        features += (size_t)p->n_soft * N_TEXT;
        dg_free(want);
    }
}

static dg_picture_cache *open_cache(loaded *l, size_t max_bytes)
{
    dg_picture_cache *c;
    ck_assert_int_eq(dg_picture_cache_create(&c, l->v, l->be, N_TEXT, max_bytes, NULL), DGEMMA_OK);
    return c;
}

/* Two requests take turns at the tower: with the same pictures, with others, and with a cache that
 * has room for all, for one, for none. */
START_TEST(features_are_made_in_turns)
{
    static const size_t room[] = {8 << 20, 8 << 10, 0};
    static album a, b;
    dg_test_tower how = small_tower();
    dg_test_write_tower(dg_test_in_root("model.safetensors"), &how);
    loaded l;
    open_tower(&l, dg_test_root, &how, 2);
    for (int k = 0; k < 6; k++) {
        bool same = k % 2;
        album_init(&a, 1);
        album_init(&b, same ? 1 : 100);
        dg_picture_cache *c = open_cache(&l, room[k / 2]);
        dg_picture_encoding x, y;
        ck_assert_int_eq(dg_picture_encoding_begin(&x, c, &a.pictures, 0, NULL), DGEMMA_OK);
        ck_assert_int_eq(dg_picture_encoding_begin(&y, c, &b.pictures, 0, NULL), DGEMMA_OK);
        int n_turn = 0;
        for (; x.n_missing || y.n_missing; n_turn++) {
            ck_assert_int_eq(dg_picture_encoding_run(&x, NULL), DGEMMA_OK);
            ck_assert_int_eq(dg_picture_encoding_run(&y, NULL), DGEMMA_OK);
        }
        ck_assert_int_ge(n_turn, same && k < 2 ? 2 : 4);
        assert_features(&l, &a, x.features);
        assert_features(&l, &b, y.features);
        if (room[k / 2] == 8 << 20) /* each picture once */
            ck_assert_int_eq(x.n_encoded + y.n_encoded, same ? 5 : 10);
        dg_picture_encoding_clear(&x);
        dg_picture_encoding_clear(&y);
        dg_picture_cache_free(c);
        album_clear(&a);
        album_clear(&b);
    }
    close_tower(&l);
}
END_TEST

/* Pictures whose keys and values are there are not looked at, those that are known neither. */
START_TEST(nothing_is_encoded_in_vain)
{
    static album a;
    dg_test_tower how = small_tower();
    dg_test_write_tower(dg_test_in_root("model.safetensors"), &how);
    loaded l;
    open_tower(&l, dg_test_root, &how, 1);
    album_init(&a, 1);
    dg_picture_cache *c = open_cache(&l, 8 << 20);
    dg_picture_encoding encoding;
    ck_assert_int_eq(dg_picture_encoding_begin(&encoding, c, &a.pictures, a.list[4].token, NULL),
                     DGEMMA_OK);
    ck_assert_int_eq(encoding.n_missing, 3);
    while (encoding.n_missing)
        ck_assert_int_eq(dg_picture_encoding_run(&encoding, NULL), DGEMMA_OK);
    ck_assert_int_eq(encoding.n_encoded, 3);
    dg_picture_encoding_clear(&encoding);
    ck_assert_int_eq(dg_picture_encoding_begin(&encoding, c, &a.pictures, 0, NULL), DGEMMA_OK);
    ck_assert_int_eq(encoding.n_missing, 3); /* two small ones and the large one */
    dg_picture_encoding_clear(&encoding);
    dg_picture_encoding_clear(&encoding); /* twice is fine */
    dg_picture_cache_free(c);
    album_clear(&a);
    close_tower(&l);
}
END_TEST

START_TEST(encoding_without_memory)
{
    static album a;
    dg_test_tower how = small_tower();
    how.cfg.n_layer = 1; /* every layer takes the same memory */
    dg_test_write_tower(dg_test_in_root("model.safetensors"), &how);
    album_init(&a, 1);
    bool walked = false;
    for (long n = 1; !walked; n++) {
        loaded l;
        open_tower(&l, dg_test_root, &how, 1);
        dg_picture_cache *c = open_cache(&l, 8 << 20);
        dg_picture_encoding encoding;
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_picture_encoding_begin(&encoding, c, &a.pictures, 0, NULL);
        while (!st && encoding.n_missing)
            st = dg_picture_encoding_run(&encoding, NULL);
        walked = !dg_test_alloc_done();
        if (!st) /* a cache without memory just does not keep */
            assert_features(&l, &a, encoding.features);
        else
            ck_assert_int_eq(st, DGEMMA_E_NOMEM);
        ck_assert(!walked || !st);
        dg_picture_encoding_clear(&encoding);
        dg_picture_cache_free(c);
        close_tower(&l);
    }
    album_clear(&a);
}
END_TEST

START_TEST(rows_and_columns_differ)
{
    dg_test_tower how = small_tower();
    dg_test_write_tower(dg_test_in_root("model.safetensors"), &how);
    loaded l;
    open_tower(&l, dg_test_root, &how, 1);
    float *pixels = pixels_of(3 * 6, 1);
    for (int i = 0; i < 3 * 6 * 48; i++)
        pixels[i] = 0.5f; /* only the positions tell the patches apart */
    float *wide = encode(&l, &(dg_vision_input){3, 6, pixels}, 1);
    float *tall = encode(&l, &(dg_vision_input){6, 3, pixels}, 1);
    ck_assert(memcmp(wide, tall, 2 * N_TEXT * sizeof *wide) != 0);
    ck_assert(memcmp(wide, wide + N_TEXT, N_TEXT * sizeof *wide) != 0);
    dg_free(wide);
    dg_free(tall);
    dg_free(pixels);
    close_tower(&l);
}
END_TEST

START_TEST(largest_picture)
{
    dg_test_tower how = small_tower();
    how.cfg.n_layer = 1;
    dg_test_write_tower(dg_test_in_root("model.safetensors"), &how);
    loaded l;
    open_tower(&l, dg_test_root, &how, 2);
    float *pixels = pixels_of(DG_VISION_MAX_PATCH, 1);
    dg_free(encode(&l, &(dg_vision_input){84, 120, pixels}, 1));
    ck_assert_uint_lt(dg_vision_bytes(l.v, DG_VISION_MAX_PATCH), 40u << 20); /* no n x n buffer */
    dg_free(pixels);
    close_tower(&l);
}
END_TEST

START_TEST(odd_pictures_are_refused)
{
    static const int bad[][2] = {{0, 3}, {3, 0}, {-3, 3}, {3, 4}, {4, 3}, {303, 3}, {102, 102}};
    dg_test_tower how = small_tower();
    dg_test_write_tower(dg_test_in_root("model.safetensors"), &how);
    loaded l;
    open_tower(&l, dg_test_root, &how, 1);
    float pixel = 0;
    for (size_t i = 0; i < DG_COUNT(bad); i++) {
        dgemma_error err = {0};
        dg_vision_input in = {bad[i][0], bad[i][1], &pixel};
        ck_assert_int_eq(dg_vision_encode(l.v, &in, 1, NULL, &err), DGEMMA_E_ARG);
        ck_assert_ptr_nonnull(strstr(err.msg, "picture 0"));
    }
    ck_assert_int_eq(dg_vision_encode(l.v, &(dg_vision_input){3, 3, NULL}, 1, NULL, NULL),
                     DGEMMA_E_ARG);
    ck_assert_int_eq(dg_vision_encode(l.v, NULL, 0, NULL, NULL), DGEMMA_OK);
    close_tower(&l);
}
END_TEST

START_TEST(memory_runs_out)
{
    dg_test_tower how = small_tower();
    how.cfg.clipped = true;
    dg_test_write_mmproj(dg_test_in_root("mmproj.gguf"), &how);
    float *pixels = pixels_of(9, 1), out[N_TEXT];
    bool walked = false;
    for (long n = 1; !walked; n++) {
        loaded l;
        dg_test_fail_alloc_at(n);
        dgemma_status st = try_open(&l, dg_test_in_root("mmproj.gguf"), &how, 1, NULL);
        if (!st)
            st = dg_vision_encode(l.v, &(dg_vision_input){3, 3, pixels}, 1, out, NULL);
        walked = !dg_test_alloc_done();
        close_tower(&l);
        ck_assert_int_eq(st, walked ? DGEMMA_OK : DGEMMA_E_NOMEM);
    }
    dg_free(pixels);
}
END_TEST

Suite *vision_suite(void)
{
    Suite *s = suite_create("vision");
    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, dg_test_root_make, dg_test_root_remove);
    tcase_add_loop_test(files, both_files_give_the_same_bits, 0, 6);
    tcase_add_loop_test(files, clipping_and_standardising_matter, 0, 3);
    tcase_add_loop_test(files, bfloat_products_stay_close, 0, 2);
    tcase_add_test(files, block_types);
    tcase_add_test(files, mmproj_is_found);
    tcase_add_test(files, keys_and_tensors_are_named);
    tcase_add_test(files, shapes_are_checked);
    tcase_add_test(files, no_tower);
    suite_add_tcase(s, files);

    TCase *pictures = tcase_create("pictures");
    tcase_set_timeout(pictures, 180);
    tcase_add_checked_fixture(pictures, dg_test_root_make, dg_test_root_remove);
    tcase_add_loop_test(pictures, pictures_do_not_know_of_each_other, 0, 2);
    tcase_add_test(pictures, features_are_made_in_turns);
    tcase_add_test(pictures, nothing_is_encoded_in_vain);
    tcase_add_test(pictures, encoding_without_memory);
    tcase_add_test(pictures, rows_and_columns_differ);
    tcase_add_test(pictures, largest_picture);
    tcase_add_test(pictures, odd_pictures_are_refused);
    tcase_add_test(pictures, memory_runs_out);
    suite_add_tcase(s, pictures);
    return s;
}
