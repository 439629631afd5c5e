/* What a quantised file says of itself, and tensors of the source that it has no place for. */
#include <string.h>
#include "base/common.h"
#include "convert/quantize_plan.h"
#include "dgemma_tools.h"
#include "engine/gguf_tokenizer.h"
#include "engine/gguf_vocabulary.h"
#include "format/gguf_model.h"
#include "suites.h"
#include "support/temp_dir.h"

static const char folder[] = "tests/fixtures/golden/sampler_finishes/model";

/* Quantised, and opened. */
static void make(dg_gguf_model *out, const char *from, const char *name, const char *type,
                 const char *importance)
{
    char path[DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_quantize_options opt = dgemma_quantize_defaults();
    opt.model_path = from;
    opt.path = dg_test_path(path, dg_test_root, name);
    opt.type = type;
    opt.importance_path = importance;
    opt.n_threads = 2;
    ck_assert_msg(dgemma_quantize(&opt, NULL, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_msg(dg_gguf_model_open(out, path, &err) == DGEMMA_OK, "%s", err.msg);
}

static const dg_gguf_value *value_of(const dg_gguf_model *m, const char *key)
{
    return dg_gguf_find(&m->file[0].content, key);
}

static int64_t int_of(const dg_gguf_model *m, const char *key)
{
    int64_t v = -1;
    dg_gguf_int(value_of(m, key), 0, &v);
    return v;
}

/* llama.cpp's numbers of mixtures; and names in any case. */
static const struct {
    const char *name;
    int file_type;
} types[] = {{"BF16", 32},   {"f16", 1},     {"Q8_0", 7},      {"q6_k", 18},
             {"Q5_K_M", 17}, {"q4_k_m", 15}, {"Q4_0", 2},      {"Q4_1", 3},
             {"iq4_nl", 25}, {"IQ4_XS", 30}, {"mxfp4_moe", 38}};

START_TEST(a_file_names_its_types)
{
    dg_gguf_model m;
    make(&m, folder, "m.gguf", types[_i].name, NULL);
    ck_assert_int_eq(int_of(&m, "general.file_type"), types[_i].file_type);
    ck_assert_int_eq(int_of(&m, "general.quantization_version"), 2);
    ck_assert_ptr_null(value_of(&m, "general.alignment"));
    ck_assert_ptr_null(value_of(&m, "quantize.imatrix.file"));
    dg_gguf_model_close(&m);
}
END_TEST

static void put_int(dg_buf *out, int32_t v)
{
    ck_assert(dg_buf_append(out, &v, sizeof v));
}

/* Of the importance file that it was made with, until it is made into another without one. */
START_TEST(a_file_names_its_weights)
{
    static const char name[] = "blk.0.attn_q.weight", text[] = "some/text.txt";
    static const char *const keys[] = {"quantize.imatrix.file", "quantize.imatrix.dataset",
                                       "quantize.imatrix.entries_count",
                                       "quantize.imatrix.chunks_count"};
    char path[DG_TEST_PATH];
    dg_buf dat;
    dg_gguf_model m;
    dg_buf_init(&dat, 1 << 20);
    put_int(&dat, 1);
    put_int(&dat, (int32_t)strlen(name));
    ck_assert(dg_buf_append(&dat, name, strlen(name)));
    put_int(&dat, 1);
    put_int(&dat, 96);
    for (int i = 0; i < 96; i++) {
        float v = i < 48 ? 1 : 4;
        ck_assert(dg_buf_append(&dat, &v, sizeof v));
    }
    put_int(&dat, 7);
    put_int(&dat, (int32_t)strlen(text));
    ck_assert(dg_buf_append(&dat, text, strlen(text)));
    ck_assert(dg_test_write_file(dg_test_root, "i.dat", dat.data, dat.len));
    dg_buf_clear(&dat);
    make(&m, folder, "m.gguf", "Q4_0", dg_test_path(path, dg_test_root, "i.dat"));
    ck_assert(dg_gguf_string_is(value_of(&m, keys[0]), "i.dat"));
    ck_assert(dg_gguf_string_is(value_of(&m, keys[1]), text));
    ck_assert_int_eq(int_of(&m, keys[2]), 1);
    ck_assert_int_eq(int_of(&m, keys[3]), 7);
    dg_gguf_model_close(&m);
    make(&m, dg_test_path(path, dg_test_root, "m.gguf"), "n.gguf", "Q8_0", NULL);
    for (size_t i = 0; i < DG_COUNT(keys); i++)
        ck_assert_ptr_null(value_of(&m, keys[i]));
    ck_assert_int_eq(int_of(&m, "general.file_type"), 7);
    dg_gguf_model_close(&m);
}
END_TEST

/* Every row of the embeddings has a piece, as llama.cpp wants it; those that only fill up are none
 * to us. */
START_TEST(a_piece_for_each_row)
{
    enum { ROWS = 390 };
    static const char *const keys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.scores",
                                       "tokenizer.ggml.token_type"};
    static const char said[] = "[PAD389]";
    char path[DG_TEST_PATH];
    dgemma_error err = {0};
    dg_loaded l;
    dg_gguf_writer w;
    dg_gguf_model file;
    dg_tokenizer *back;
    ck_assert_int_eq(dg_load(&l, folder, &err), DGEMMA_OK);
    dg_gguf_writer_init(&w, 0);
    ck_assert_int_eq(dg_gguf_vocabulary_put(&w, l.tokenizer, ROWS, NULL, &err), DGEMMA_OK);
    dg_gguf_writer_open(&w, dg_test_path(path, dg_test_root, "v.gguf"));
    ck_assert_int_eq(dg_gguf_writer_close(&w, &err), DGEMMA_OK);
    ck_assert_msg(dg_gguf_model_open(&file, path, &err) == DGEMMA_OK, "%s", err.msg);
    const dg_gguf *g = &file.file[0].content;
    for (size_t i = 0; i < DG_COUNT(keys); i++)
        ck_assert_uint_eq(dg_gguf_find(g, keys[i])->n, ROWS);
    int64_t type = 0;
    dg_gguf_text text, last = {0};
    dg_gguf_strings s = dg_gguf_strings_of(dg_gguf_find(g, keys[0]));
    while (dg_gguf_strings_next(&s, &text))
        last = text;
    ck_assert(last.len == strlen(said) && memcmp(last.text, said, last.len) == 0);
    ck_assert(dg_gguf_int(dg_gguf_find(g, keys[2]), ROWS - 1, &type) && type == 5);

    ck_assert_msg(dg_gguf_tokenizer(&back, g, path, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(dg_tokenizer_count(back), dg_tokenizer_count(l.tokenizer));
    dg_tokens ids;
    dg_tokens_init(&ids, 100);
    ck_assert_int_eq(dg_tokenizer_encode(back, said, strlen(said), DG_ENCODE_ADDED, &ids, &err),
                     DGEMMA_OK);
    for (size_t i = 0; i < ids.n; i++)
        ck_assert_int_lt(ids.ids[i], dg_tokenizer_count(back));
    dg_tokens_clear(&ids);
    dg_tokenizer_free(back);
    dg_gguf_model_close(&file);
    dg_loaded_clear(&l);
}
END_TEST

/* A head is the embedding table again, or refused by its name; a tower and what nobody knows are
 * left out, and told apart. */
START_TEST(tensors_without_a_place)
{
    static unsigned char values[2][2 * 32];
    static dg_loaded l = {.cfg.n_layer = 1};
    static const char *const names[] = {"model.decoder.embed_tokens.weight", "lm_head.weight",
                                        "model.encoder.vision_tower.x.weight",
                                        "model.decoder.other.weight"};
    dg_tensor t[4];
    dgemma_error err = {0};
    dg_quantize_plan plan;
    values[1][5] = 1;
    for (int i = 0; i < 4; i++)
        t[i] = (dg_tensor){.name = names[i],
                           .type = DG_BF16,
                           .n_dim = 2,
                           .shape = {1, 32},
                           .data = values[_i && i == 1],
                           .bytes = 64};
    ck_assert_int_eq(dg_checkpoint_of(&l.checkpoint, "made", t, 4, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_quantize_plan_make(&plan, &l, dg_preset_find("Q8_0"), NULL, &err),
                     _i ? DGEMMA_E_UNSUPPORTED : DGEMMA_OK);
    if (_i) {
        ck_assert_ptr_nonnull(strstr(err.msg, "lm_head.weight is not the embedding table"));
    } else {
        ck_assert_uint_eq(plan.n_left_out, 2);
        ck_assert_uint_eq(plan.n_unknown, 1);
    }
    dg_quantize_plan_clear(&plan);
    dg_checkpoint_close(l.checkpoint);
}
END_TEST

Suite *quantize_keys_suite(void)
{
    Suite *s = suite_create("quantize_keys");
    TCase *c = tcase_create("keys");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_loop_test(c, a_file_names_its_types, 0, (int)DG_COUNT(types));
    tcase_add_test(c, a_file_names_its_weights);
    tcase_add_test(c, a_piece_for_each_row);
    tcase_add_loop_test(c, tensors_without_a_place, 0, 2);
    suite_add_tcase(s, c);
    return s;
}
