/* Importance files in both forms, what is wrong with some, and what they do to a model. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "convert/importance.h"
#include "dgemma_tools.h"
#include "format/checkpoint.h"
#include "format/gguf_write.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/temp_dir.h"

/* ---- files ---- */

typedef struct line {
    const char *name;
    size_t n_mat, n_in;
    const float *sum, *count;
} line;

static const float sums[] = {1, 2, 3, 2, 0, 0, 0, 0}, counts[] = {4, 0}, one[] = {2};
static const line lines[] = {{"blk.0.ffn_down_exps.weight", 2, 4, sums, counts},
                             {"blk.0.attn_q.weight", 1, 4, sums, one}};

static void write_gguf(const char *path, const line *l, size_t n, const char *type)
{
    static const dg_gguf_text set = {"some text", 9};
    dgemma_error err = {0};
    dg_gguf_writer w;
    dg_gguf_writer_init(&w, 0);
    dg_gguf_put_string(&w, "general.type", type);
    dg_gguf_put_strings(&w, "imatrix.datasets", &set, 1);
    dg_gguf_put_int(&w, "imatrix.chunk_count", DG_GGUF_U32, 7);
    dg_gguf_put_int(&w, "imatrix.chunk_size", DG_GGUF_U32, 512);
    char name[2][96];
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < n; i++) {
            const int64_t n_mat = (int64_t)l[i].n_mat, n_in = (int64_t)l[i].n_in;
            snprintf(name[0], sizeof name[0], "%s.in_sum2", l[i].name);
            snprintf(name[1], sizeof name[1], "%s.counts", l[i].name);
            dg_tensor t[] = {{.name = name[0], .type = DG_F32, .n_dim = 2, .shape = {n_mat, n_in}},
                             {.name = name[1], .type = DG_F32, .n_dim = 2, .shape = {n_mat, 1}}};
            for (int k = 0; k < 2 && turn == 0; k++)
                dg_gguf_put_tensor(&w, &t[k]);
            if (turn == 0)
                continue;
            dg_gguf_write_data(&w, l[i].sum, l[i].n_mat * l[i].n_in * sizeof(float));
            dg_gguf_write_data(&w, l[i].count, l[i].n_mat * sizeof(float));
        }
        if (turn == 0)
            dg_gguf_writer_open(&w, path);
    }
    ck_assert_msg(dg_gguf_writer_close(&w, &err) == DGEMMA_OK, "%s", err.msg);
}

static size_t put_int(unsigned char *out, size_t at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        out[at + (size_t)i] = (unsigned char)(v >> 8 * i);
    return at + 4;
}

/* The older form: returns its size. */
static size_t make_old(unsigned char *out, const line *l, size_t n, bool tail)
{
    size_t at = put_int(out, 0, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        const size_t len = strlen(l[i].name), count = l[i].n_mat * l[i].n_in;
        at = put_int(out, at, (uint32_t)len);
        memcpy(out + at, l[i].name, len);
        at = put_int(out, at + len, 3);
        at = put_int(out, at, (uint32_t)count);
        memcpy(out + at, l[i].sum, count * sizeof(float));
        at += count * sizeof(float);
    }
    if (tail) {
        at = put_int(out, at, 7);
        at = put_int(out, at, 9);
        memcpy(out + at, "some text", 9);
        at += 9;
    }
    return at;
}

static void check_lines(const dg_importance *imp, bool by_expert)
{
    ck_assert_uint_eq(imp->n_entry, 2);
    ck_assert_int_eq(imp->n_chunk, 7);
    ck_assert_str_eq(imp->data_set, "some text");
    const dg_importance_entry *e = dg_importance_find(imp, "blk.0.attn_q.weight");
    ck_assert(e && e->n == 4 && e->n_mat == 1);
    for (int i = 0; i < 4; i++)
        ck_assert(e->weight[i] == sums[i] / 2); /* their mean is 1 */
    e = dg_importance_find(imp, "blk.0.ffn_down_exps.weight");
    ck_assert(e && e->n == 8);
    for (int i = 4; i < 8; i++) /* an expert that nobody asked */
        ck_assert(e->weight[i] == (by_expert ? 1 : 1e-3f));
    ck_assert(!dg_importance_find(imp, "blk.0.attn_q.weigh"));
    ck_assert(!dg_importance_find(imp, "blk.0.attn_q.weights"));
}

START_TEST(both_forms)
{
    dgemma_error err = {0};
    dg_importance imp;
    unsigned char old[512];
    write_gguf(dg_test_in_root("i.gguf"), lines, 2, "imatrix");
    ck_assert_msg(dg_importance_open(&imp, dg_test_in_root("i.gguf"), &err) == DGEMMA_OK, "%s",
                  err.msg);
    check_lines(&imp, true);
    dg_importance_clear(&imp);
    size_t n = make_old(old, lines, 2, true);
    ck_assert(dg_test_write_file(dg_test_root, "i.dat", old, n));
    ck_assert_msg(dg_importance_open(&imp, dg_test_in_root("i.dat"), &err) == DGEMMA_OK, "%s",
                  err.msg);
    check_lines(&imp, false);
    dg_importance_clear(&imp);
    ck_assert_int_eq(dg_importance_open(&imp, dg_test_in_root("none"), &err), DGEMMA_E_IO);
}
END_TEST

/* Cut short anywhere, but for the end without a name, it is refused. */
START_TEST(cut_short)
{
    unsigned char old[512];
    const size_t whole = make_old(old, lines, 2, true), plain = make_old(old, lines, 2, false);
    make_old(old, lines, 2, true);
    for (size_t n = 0; n < whole; n++) {
        dgemma_error err = {0};
        dg_importance imp;
        unsigned char *copy = dg_malloc(n + 1); /* so that reading beyond it is noticed */
        memcpy(copy, old, n);
        dgemma_status st = dg_importance_parse(&imp, copy, n, "x", &err);
        ck_assert_msg(st == (n == plain ? DGEMMA_OK : DGEMMA_E_FORMAT), "%zu: %s", n, err.msg);
        dg_importance_clear(&imp);
        dg_free(copy);
    }
}
END_TEST

START_TEST(refused)
{
    static const float nan_in[] = {1, NAN, 3, 2}, below[] = {1, -1, 3, 2}, wrong[] = {-1};
    static const struct {
        line line[2];
        size_t n;
        const char *type, *says;
    } bad[] = {
        {{{"a", 1, 4, nan_in, one}}, 1, "imatrix", "negative or not finite"},
        {{{"a", 1, 4, below, one}}, 1, "imatrix", "negative or not finite"},
        {{{"a", 1, 4, sums, wrong}}, 1, "imatrix", "negative or not finite"},
        {{{"a", 1, 4, sums, one}}, 1, "model", "no importance file"},
        {{{"a", 1, 4, sums, one}}, 0, "imatrix", "no weights in it"},
    };
    dgemma_error err = {0};
    dg_importance imp;
    for (size_t i = 0; i < DG_COUNT(bad); i++) {
        write_gguf(dg_test_in_root("i.gguf"), bad[i].line, bad[i].n, bad[i].type);
        ck_assert_int_eq(dg_importance_open(&imp, dg_test_in_root("i.gguf"), &err),
                         DGEMMA_E_FORMAT);
        ck_assert_msg(strstr(err.msg, bad[i].says) != NULL, "%s", err.msg);
    }
    unsigned char old[512];
    line twice[] = {lines[1], lines[1]};
    size_t n = make_old(old, twice, 2, false);
    ck_assert_int_eq(dg_importance_parse(&imp, old, n, "x", &err), DGEMMA_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "is in it twice"));
    put_int(old, 0, UINT32_MAX);
    ck_assert_int_eq(dg_importance_parse(&imp, old, n, "x", &err), DGEMMA_E_FORMAT);
}
END_TEST

START_TEST(survives_no_memory)
{
    write_gguf(dg_test_in_root("i.gguf"), lines, 2, "imatrix");
    char path[DG_TEST_PATH];
    dg_test_path(path, dg_test_root, "i.gguf");
    for (long n = 1;; n++) {
        dgemma_error err = {0};
        dg_importance imp;
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_importance_open(&imp, path, &err);
        bool reached = dg_test_alloc_done();
        dg_importance_clear(&imp);
        ck_assert_int_eq(st, reached ? DGEMMA_E_NOMEM : DGEMMA_OK);
        if (!reached)
            break;
    }
}
END_TEST

/* ---- a model ---- */

enum { WIDE = 256, EXPERTS = 8 };

/* The squared error of a matrix, weighted: of experts with weights for each. */
static double error_of(const char *path, const char *name, const float *weight)
{
    dgemma_error err = {0};
    dg_checkpoint *a, *b;
    ck_assert_int_eq(dg_checkpoint_open(&a, "models/pocket/pocket.gguf", &err), DGEMMA_OK);
    ck_assert_int_eq(dg_checkpoint_open(&b, path, &err), DGEMMA_OK);
    const dg_tensor *x = dg_checkpoint_find(a, name), *y = dg_checkpoint_find(b, name);
    const size_t n = dg_tensor_count(x), in = (size_t)x->shape[x->n_dim - 1];
    float *v = dg_array(n, sizeof *v), *u = dg_array(n, sizeof *u);
    double sum = 0;
    const size_t each = x->n_dim == 3 ? n / (size_t)x->shape[0] : n;
    dg_tensor_widen(v, x, n);
    dg_tensor_widen(u, y, n);
    for (size_t i = 0; i < n; i++)
        sum += (double)weight[i / each * in + i % in] * pow((double)v[i] - (double)u[i], 2);
    dg_free(v);
    dg_free(u);
    dg_checkpoint_close(a);
    dg_checkpoint_close(b);
    return sum;
}

START_TEST(what_matters_is_kept)
{
    static float sum[EXPERTS * WIDE], count[EXPERTS];
    char plain[DG_TEST_PATH], weighted[DG_TEST_PATH], file[DG_TEST_PATH];
    for (size_t i = 0; i < EXPERTS * WIDE; i++)
        sum[i] = (float)(1 + i * 37 % 97);
    for (int i = 0; i < EXPERTS; i++)
        count[i] = 3;
    const line of_model[] = {{"blk.1.attn_q.weight", 1, WIDE, sum, count},
                             {"blk.1.ffn_gate_exps.weight", EXPERTS, WIDE, sum, count},
                             {"blk.1.ffn_up_exps.weight", EXPERTS, WIDE, sum, count}};
    write_gguf(dg_test_path(file, dg_test_root, "i.gguf"), of_model, 3, "imatrix");
    dgemma_error err = {0};
    dgemma_quantize_result r;
    dgemma_quantize_options opt = dgemma_quantize_defaults();
    opt.model_path = "models/pocket/pocket.gguf";
    opt.type = "Q4_0";
    opt.path = dg_test_path(plain, dg_test_root, "plain.gguf");
    ck_assert_msg(dgemma_quantize(&opt, &r, &err) == DGEMMA_OK, "%s", err.msg);
    opt.importance_path = file;
    opt.path = dg_test_path(weighted, dg_test_root, "weighted.gguf");
    ck_assert_msg(dgemma_quantize(&opt, &r, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_uint_eq(r.n_weighted, 2); /* gate's weights are those of gate and up together */
    static const char *const names[] = {"model.decoder.layers.1.self_attn.q_proj.weight",
                                        "model.decoder.layers.1.experts.gate_up_proj",
                                        "model.decoder.layers.2.self_attn.q_proj.weight"};
    for (int i = 0; i < 3; i++) {
        double with = error_of(weighted, names[i], sum), without = error_of(plain, names[i], sum);
        if (i < 2)
            ck_assert_msg(with < 0.96 * without, "%s: %g, without %g", names[i], with, without);
        else
            ck_assert(with == without);
    }

    const line other[] = {{"blk.1.attn_q.weight", 1, WIDE / 2, sum, count}};
    write_gguf(file, other, 1, "imatrix");
    opt.replace = true;
    ck_assert_int_eq(dgemma_quantize(&opt, &r, &err), DGEMMA_E_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "has 128 weights in the importance file"));
    const line none[] = {{"blk.99.attn_q.weight", 1, WIDE, sum, count}};
    write_gguf(file, none, 1, "imatrix");
    ck_assert_int_eq(dgemma_quantize(&opt, &r, &err), DGEMMA_E_FORMAT);
}
END_TEST

Suite *importance_suite(void)
{
    Suite *s = suite_create("importance");
    TCase *c = tcase_create("files");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, both_forms);
    tcase_add_test(c, cut_short);
    tcase_add_test(c, refused);
    tcase_add_test(c, survives_no_memory);
    tcase_add_test(c, what_matters_is_kept);
    suite_add_tcase(s, c);
    return s;
}
