/* Synthetic models: the types that published files have, and weights that a model can run on. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "bench/synth_vocabulary.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "dgemma_tools.h"
#include "engine/loader.h"
#include "format/gguf_names.h"
#include "model/forward.h"
#include "model/synthetic.h"
#include "model/synthetic_types.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/temp_dir.h"
#include "text/chat_template.h"
#include "text/merges.h"

static const char *const names[] = {"BF16",   "F16",     "Q8_0",  "Q6_K",    "Q5_K_M", "Q4_K_M",
                                    "Q4_K_D", "Q4_0",    "Q4_1",  "IQ4_NL",  "IQ4_XS", "MXFP4_MOE",
                                    "Q2_K",   "IQ3_XXS", "IQ2_S", "IQ2_XXS", "IQ1_S"};

static void open_or_fail(dg_synthetic **s, const char *shape, const char *type, int n_layer)
{
    dgemma_error err = {0};
    dg_synthetic_options opt = {.shape = shape, .type = type, .n_layer = n_layer, .listed = true};
    ck_assert_msg(dg_synthetic_open(s, &opt, &err) == DGEMMA_OK, "%s", err.msg);
}

static int count_type(const dg_synthetic *s, dg_dtype type)
{
    const dg_checkpoint *ck = dg_synthetic_checkpoint(s);
    int n = 0;
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++)
        n += dg_checkpoint_at(ck, i)->type == type;
    return n;
}

/* What a log of the published file counts. */
START_TEST(types_of_the_published_q4_k_m)
{
    dg_synthetic *s;
    open_or_fail(&s, "26b-a4b", "Q4_K_M", 0);
    ck_assert_int_eq(count_type(s, DG_Q4_K), 194);
    ck_assert_int_eq(count_type(s, DG_Q5_0), 33);
    ck_assert_int_eq(count_type(s, DG_Q8_0), 28);
    ck_assert_int_eq(count_type(s, DG_Q6_K), 14);
    dg_synthetic_close(s);
}
END_TEST

/* MiB of weights of published files, from their headers; Q4_K_D is our own. */
START_TEST(sizes_of_published_files)
{
    static const struct {
        const char *type;
        int mib;
    } known[] = {{"BF16", 48184},    {"Q8_0", 25619},   {"Q6_K", 21590},   {"Q5_K_M", 18244},
                 {"Q4_K_M", 16013},  {"Q4_K_D", 15640}, {"Q4_0", 13765},   {"Q4_1", 15225},
                 {"IQ4_NL", 13904},  {"IQ4_XS", 13406}, {"Q2_K", 10084},   {"MXFP4_MOE", 14048},
                 {"IQ3_XXS", 10793}, {"IQ2_S", 9407},   {"IQ2_XXS", 8860}, {"IQ1_S", 7897}};
    for (size_t i = 0; i < DG_COUNT(known); i++) {
        dg_synthetic *s;
        open_or_fail(&s, NULL, known[i].type, 0);
        double mib = (double)dg_synthetic_bytes(s) / (1 << 20);
        ck_assert_msg(fabs(mib - known[i].mib) < 25, "%s: %.0f MiB, published %d", known[i].type,
                      mib, known[i].mib);
        dg_synthetic_close(s);
    }
}
END_TEST

START_TEST(random_weights_spread_around_zero)
{
    enum { N = 1 << 16 };
    float *value = dg_array(N, sizeof *value);
    unsigned char *data = dg_malloc(N * 4), *again = dg_malloc(N * 4);
    for (dg_dtype type = DG_F32; type < DG_DTYPE_COMPUTE; type++) {
        double sum = 0, square = 0, most = 0;
        size_t bytes = dg_dtype_bytes(type, N);
        if (type == DG_NVFP4)
            continue; /* in no preset: its factors are tensors of their own */
        dg_random_weights(data, type, bytes, 7);
        dg_random_weights(again, type, bytes, 7);
        ck_assert_mem_eq(data, again, bytes);
        dg_random_weights(again, type, bytes, 8);
        ck_assert_mem_ne(data, again, bytes);
        dg_widen(value, data, type, N);
        for (int i = 0; i < N; i++) {
            sum += (double)value[i] / N;
            square += (double)value[i] * (double)value[i] / N;
            most = fmax(most, fabs((double)value[i]));
        }
        ck_assert_msg(fabs(sum) < 3e-3 && sqrt(square) > 0.015 && sqrt(square) < 0.035 && most < 1,
                      "%s: mean %g, spread %g, most %g", dg_dtype_name(type), sum, sqrt(square),
                      most);
    }
    dg_free(value);
    dg_free(data);
    dg_free(again);
}
END_TEST

/* ---- a pass ---- */

typedef struct tiny {
    dg_synthetic *s;
    dg_backend *be;
    dg_model *m;
    dg_kv_cache *kv;
    dg_forward *f;
} tiny;

static void tiny_open(tiny *t, const char *type)
{
    dgemma_error err = {0};
    dg_synthetic_options opt = {.shape = "tiny", .type = type};
    dg_cpu_options cpu = {1, dg_cpu_flags(), false};
    dgemma_status st = dg_synthetic_open(&t->s, &opt, &err);
    st = st ? st : dg_cpu_open(&t->be, &cpu, &err);
    const dg_config *cfg = st ? NULL : dg_synthetic_config(t->s);
    st = st ? st : dg_model_load(&t->m, cfg, dg_synthetic_checkpoint(t->s), t->be, &err);
    st = st ? st : dg_kv_cache_create(&t->kv, cfg, t->be, DG_BF16, 0, &err);
    st = st ? st : dg_forward_create(&t->f, t->m, t->kv, cfg->canvas_length + 8, 1, &err);
    ck_assert_msg(st == DGEMMA_OK, "%s: %s", type, err.msg);
}

static void tiny_close(tiny *t)
{
    dg_forward_free(t->f);
    dg_kv_cache_free(t->kv);
    dg_model_free(t->m);
    t->be->close(t->be);
    dg_synthetic_close(t->s);
}

START_TEST(every_preset_runs)
{
    tiny t = {0};
    tiny_open(&t, names[_i]);
    enum { N = 32 };
    const dg_config *cfg = dg_synthetic_config(t.s);
    ck_assert_int_eq(cfg->canvas_length, N);
    int32_t token[8 + N], argmax[N], drawn[N];
    double uniform[N];
    float entropy[N];
    for (int i = 0; i < 8 + N; i++)
        token[i] = i * 37 % cfg->n_vocab;
    for (int i = 0; i < N; i++)
        uniform[i] = (i + 0.5) / N;
    dg_kv_seq seq = {0};
    dg_work w = {.seq = &seq,
                 .token = token,
                 .n_token = 8,
                 .canvas = token + 8,
                 .n_canvas = N,
                 .soft = dg_array(N * (size_t)cfg->n_embd, sizeof(float)),
                 .first_step = true,
                 .temperature = 0.6f,
                 .uniform = uniform,
                 .entropy = entropy,
                 .argmax = argmax,
                 .drawn = drawn};
    dgemma_error err = {0};
    for (int step = 0; step < 3; step++) {
        dgemma_status st = dg_forward_run(t.f, &(dg_pass){.work = &w, .n_work = 1}, &err);
        ck_assert_msg(st == DGEMMA_OK, "%s: %s", names[_i], err.msg);
        for (int i = 0; i < N; i++)
            ck_assert_msg(isfinite(entropy[i]), "%s: entropy %g", names[_i], (double)entropy[i]);
        w.n_token = 0;
        w.first_step = false;
    }
    dg_free(w.soft);
    dg_kv_seq_clear(t.kv, &seq);
    tiny_close(&t);
}
END_TEST

/* ---- names in files ---- */

START_TEST(every_tensor_has_a_name_in_gguf)
{
    dg_synthetic *s;
    open_or_fail(&s, "tiny", "BF16", 0);
    const dg_checkpoint *ck = dg_synthetic_checkpoint(s);
    for (size_t i = 0; i < dg_checkpoint_count(ck); i++) {
        char gguf[DG_GGUF_NAME], back[DG_GGUF_NAME];
        const char *name = dg_checkpoint_at(ck, i)->name;
        ck_assert_msg(dg_gguf_name_of(gguf, name), "%s", name);
        ck_assert(dg_gguf_rename(back, gguf));
        ck_assert_str_eq(back, name);
    }
    char out[DG_GGUF_NAME];
    ck_assert(!dg_gguf_name_of(out, "model.decoder.layers.0.bias"));
    ck_assert(!dg_gguf_name_of(out, "model.decoder.other"));
    ck_assert(!dg_gguf_name_of(out, "lm_head.weight"));
    dg_synthetic_close(s);
}
END_TEST

/* ---- files ---- */

static dgemma_synth_options tiny_file(const char *path)
{
    dgemma_synth_options opt = dgemma_synth_defaults();
    opt.shape = "tiny";
    opt.path = path;
    return opt;
}

static size_t read_file(const char *name, dg_buf *out)
{
    dgemma_error err = {0};
    dg_buf_init(out, 1 << 26);
    ck_assert_msg(dg_file_read(out, dg_test_in_root(name), &err) == DGEMMA_OK, "%s", err.msg);
    return out->len;
}

START_TEST(a_seed_gives_one_file)
{
    static const char *const file[] = {"a", "b", "c"};
    dg_buf got[3];
    char path[DG_TEST_PATH];
    for (int i = 0; i < 3; i++) {
        dgemma_error err = {0};
        uint64_t bytes = 0;
        dgemma_synth_options opt = tiny_file(dg_test_path(path, dg_test_root, file[i]));
        opt.seed = i == 2;
        ck_assert_msg(dgemma_synth(&opt, &bytes, &err) == DGEMMA_OK, "%s", err.msg);
        ck_assert_uint_eq(read_file(file[i], &got[i]), bytes);
    }
    ck_assert_uint_eq(got[0].len, got[2].len);
    ck_assert_mem_eq(got[0].data, got[1].data, got[0].len);
    ck_assert_mem_ne(got[0].data, got[2].data, got[0].len);
    for (int i = 0; i < 3; i++)
        dg_buf_clear(&got[i]);
}
END_TEST

/* All presets, as files: the engine takes them, and their vocabulary says back what was said. */
START_TEST(a_file_is_a_model)
{
    dgemma_error err = {0};
    char path[DG_TEST_PATH];
    dgemma_synth_options opt = tiny_file(dg_test_path(path, dg_test_root, "m.gguf"));
    opt.type = names[_i];
    opt.n_layer = 1 + _i % 12;
    ck_assert_msg(dgemma_synth(&opt, NULL, &err) == DGEMMA_OK, "%s", err.msg);
    dg_loaded l;
    ck_assert_msg(dg_load(&l, path, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_msg(dg_loaded_check(&l, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(l.cfg.n_layer, 1 + _i % 12);
    ck_assert_int_eq(l.cfg.canvas_length, 32);
    ck_assert_int_eq(dg_tokenizer_count(l.tokenizer), l.cfg.n_vocab);
    ck_assert_int_eq(dg_chat_revision_of(l.chat_template), DG_CHAT_REVISION_A);
    ck_assert(dg_chat_supported(l.tokenizer));

    static const char said[] = "Bamo ti, kelupo!\n\xC3\xA9";
    dg_tokens ids;
    dg_buf text;
    dg_tokens_init(&ids, 100);
    dg_buf_init(&text, 100);
    ck_assert_int_eq(dg_tokenizer_encode(l.tokenizer, said, strlen(said), 0, &ids, &err), 0);
    ck_assert_uint_lt(ids.n, strlen(said));
    ck_assert_int_eq(dg_tokenizer_decode(l.tokenizer, ids.ids, ids.n, false, &text, &err), 0);
    ck_assert_str_eq(text.data, said);
    dg_tokens_clear(&ids);
    dg_buf_clear(&text);
    dg_loaded_clear(&l);
}
END_TEST

/* The true vocabulary's size: ids of markers as published, and about as many merges. */
START_TEST(a_large_vocabulary)
{
    dgemma_error err = {0};
    dg_synth_vocabulary v;
    ck_assert_int_eq(dg_synth_vocabulary_make(&v, 262144, &err), DGEMMA_OK);
    ck_assert_str_eq(v.piece[2].text, "<bos>");
    ck_assert_str_eq(v.piece[106].text, "<turn|>");
    ck_assert_str_eq(v.piece[238].text, "<0x00>");
    ck_assert_str_eq(v.piece[493].text, "<0xFF>");
    ck_assert_str_eq(v.piece[258884].text, "<|video|>");
    dg_vocabulary from = {.where = "it", .pieces = v.piece, .n_piece = v.n};
    dg_pieces p = {0};
    dg_merges m = {0};
    dgemma_status st = dg_pieces_init(&p, &from, &err); /* also holds them to be unique */
    st = st ? st : dg_merges_derive(&m, &p, "it", &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    ck_assert_msg(m.n > 450000 && m.n < 600000, "%zu merges", m.n);
    dg_merges_clear(&m);
    dg_pieces_clear(&p);
    dg_synth_vocabulary_clear(&v);
}
END_TEST

static bool stop_at_once(void *user, double fraction)
{
    *(double *)user = fraction;
    return false;
}

START_TEST(nothing_is_left_of_a_failure)
{
    char path[DG_TEST_PATH], other[DG_TEST_PATH];
    dgemma_error err = {0};
    double fraction = 0;
    dgemma_synth_options opt = tiny_file(dg_test_path(path, dg_test_root, "m.gguf"));
    opt.on_progress = stop_at_once;
    opt.progress_user = &fraction;
    ck_assert_int_eq(dgemma_synth(&opt, NULL, &err), DGEMMA_E_CANCELLED);
    ck_assert(fraction > 0 && fraction < 1);
    ck_assert(!dg_file_exists(path) && !dg_file_exists(dg_test_in_root("m.gguf.partial")));

    opt = tiny_file(path);
    ck_assert_int_eq(dgemma_synth(&opt, NULL, &err), DGEMMA_OK);
    ck_assert_int_eq(dgemma_synth(&opt, NULL, &err), DGEMMA_E_ARG); /* it is there */
    opt.replace = true;
    ck_assert_int_eq(dgemma_synth(&opt, NULL, &err), DGEMMA_OK);
    opt.path = dg_test_root;
    ck_assert_int_eq(dgemma_synth(&opt, NULL, &err), DGEMMA_E_ARG);
    opt.path = dg_test_path(other, dg_test_root, "no/such/folder");
    ck_assert_int_eq(dgemma_synth(&opt, NULL, &err), DGEMMA_E_IO);
    opt.path = "";
    ck_assert_int_eq(dgemma_synth(&opt, NULL, &err), DGEMMA_E_ARG);
}
END_TEST

/* Wherever memory is out, nothing is left either. */
START_TEST(too_little_memory)
{
    char path[DG_TEST_PATH], partial[DG_TEST_PATH];
    dg_test_path(path, dg_test_root, "m.gguf");
    dg_test_path(partial, dg_test_root, "m.gguf.partial");
    for (long n = 1;; n++) {
        dgemma_error err = {0};
        dgemma_synth_options opt = tiny_file(path);
        opt.n_layer = 1;
        dg_test_fail_alloc_at(n);
        dgemma_status st = dgemma_synth(&opt, NULL, &err);
        bool reached = dg_test_alloc_done();
        ck_assert_msg(!dg_file_exists(partial), "%ld", n);
        ck_assert_msg(dg_file_exists(path) == !st, "%ld: %s", n, err.msg);
        if (!reached) {
            ck_assert_msg(!st, "%s", err.msg);
            break;
        }
        remove(path); /* a failure that nobody had to notice */
    }
}
END_TEST

START_TEST(space_of_a_disk)
{
    ck_assert_uint_gt(dg_file_space(dg_test_in_root("any")), 0);
    ck_assert_uint_eq(dg_file_space("any"), dg_file_space("./any"));
    ck_assert(dg_file_space("/") != UINT64_MAX);
    ck_assert(dg_file_space(dg_test_in_root("no/such")) == UINT64_MAX);
}
END_TEST

START_TEST(refused)
{
    static const struct {
        dg_synthetic_options opt;
        const char *say;
    } bad[] = {{{.type = "Q9"}, "is not known: BF16"},
               {{.type = "BF16", .shape = "huge"}, "26b-a4b and tiny are"},
               {{.type = "BF16", .n_layer = 31}, "has 1 to 30"},
               {{.type = "BF16", .n_layer = -1}, "has 1 to 30"}};
    for (size_t i = 0; i < DG_COUNT(bad); i++) {
        dgemma_error err = {0};
        dg_synthetic *s;
        ck_assert_int_eq(dg_synthetic_open(&s, &bad[i].opt, &err), DGEMMA_E_ARG);
        ck_assert_msg(strstr(err.msg, bad[i].say) != NULL, "%s", err.msg);
    }
}
END_TEST

Suite *synthetic_suite(void)
{
    Suite *s = suite_create("synthetic");
    TCase *c = tcase_create("list");
    tcase_add_test(c, types_of_the_published_q4_k_m);
    tcase_add_test(c, sizes_of_published_files);
    tcase_add_test(c, random_weights_spread_around_zero);
    tcase_add_test(c, refused);
    suite_add_tcase(s, c);
    c = tcase_create("pass");
    tcase_add_loop_test(c, every_preset_runs, 0, (int)DG_COUNT(names));
    suite_add_tcase(s, c);
    c = tcase_create("file");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, every_tensor_has_a_name_in_gguf);
    tcase_add_test(c, a_seed_gives_one_file);
    tcase_add_loop_test(c, a_file_is_a_model, 0, (int)DG_COUNT(names));
    tcase_add_test(c, a_large_vocabulary);
    tcase_add_test(c, nothing_is_left_of_a_failure);
    tcase_add_test(c, too_little_memory);
    tcase_add_test(c, space_of_a_disk);
    suite_add_tcase(s, c);
    return s;
}
