/* Importance made from a text: the sums are those of the inputs, the file is the same however many
 * threads there are, both forms say the same, and what makes no sense is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "convert/importance.h"
#include "convert/importance_sums.h"
#include "cpu/cpu_backend.h"
#include "dgemma_tools.h"
#include "engine/probe.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/temp_dir.h"

static const char folder[] = "tests/fixtures/golden/sampler_finishes/model";

/* ---- sums ---- */

enum { PROMPT = 5, CANVAS = 16, ROWS = PROMPT + CANVAS, LAYER = 1, WIDE = 96 };

static void keep_hidden(void *arg, int layer, const float *x, int n_row)
{
    ck_assert_int_eq(n_row, ROWS);
    if (layer == LAYER)
        memcpy(arg, x, ROWS * WIDE * sizeof *x);
}

static const dg_importance_line *find(const dg_importance_sums *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->line[i].name, name) == 0)
            return &s->line[i];
    ck_abort_msg("%s is not there", name);
}

static int64_t counted(const dg_importance_sums *s, const char *name)
{
    const dg_importance_line *l = find(s, name);
    int64_t n = 0;
    for (int i = 0; i < l->w->n_mat; i++)
        n += l->count[i];
    return n;
}

static void run_pass(dg_probe *p, float *hidden)
{
    static const int32_t prompt[PROMPT] = {2, 9, 30, 41, 52};
    dgemma_error err = {0};
    int32_t canvas[CANVAS], ids[2 * CANVAS];
    float entropy[CANVAS], *soft = p->be->alloc(p->be, CANVAS * WIDE * sizeof *soft);
    double uniform[CANVAS] = {0};
    dg_kv_seq seq = {0};
    for (int i = 0; i < CANVAS; i++)
        canvas[i] = 60 + 7 * i;
    dg_work work = {.seq = &seq,
                    .token = prompt,
                    .n_token = PROMPT,
                    .canvas = canvas,
                    .n_canvas = CANVAS,
                    .soft = soft,
                    .first_step = true,
                    .temperature = 1,
                    .uniform = uniform,
                    .entropy = entropy,
                    .argmax = ids,
                    .drawn = ids + CANVAS};
    dg_taps taps = {.hidden = keep_hidden, .hidden_arg = hidden};
    dg_pass pass = {.work = &work, .n_work = 1, .taps = &taps};
    ck_assert_msg(dg_forward_run(p->forward, &pass, &err) == DGEMMA_OK, "%s", err.msg);
    dg_kv_seq_clear(p->kv, &seq);
    p->be->free(p->be, soft);
}

/* What a layer's queries are made of is the norm of its residual stream. */
START_TEST(sums_are_those_of_inputs)
{
    static float hidden[ROWS * WIDE];
    dgemma_error err = {0};
    dg_probe p;
    dg_importance_sums s;
    ck_assert_int_eq(dg_probe_load(&p, folder, 0, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_cpu_open(&p.be, &(dg_cpu_options){2, 0, true}, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_probe_start(&p, DG_F32, ROWS, &err), DGEMMA_OK);
    ck_assert_int_eq(p.loaded.cfg.n_embd, WIDE);
    ck_assert_int_eq(dg_importance_sums_init(&s, p.model, &err), DGEMMA_OK);
    dg_cpu_observe(p.be, dg_importance_sums_add, &s);
    run_pass(&p, hidden);

    const dg_importance_line *q = find(&s, "blk.1.attn_q.weight");
    const float *norm = p.model->layer[LAYER].attention.norm;
    for (int i = 0; i < WIDE; i++) {
        double want = 0;
        for (int r = 0; r < ROWS; r++) {
            double mean = 0, x = hidden[r * WIDE + i];
            for (int k = 0; k < WIDE; k++)
                mean += (double)hidden[r * WIDE + k] * (double)hidden[r * WIDE + k] / WIDE;
            x *= (double)norm[i] / sqrt(mean + (double)p.loaded.cfg.rms_eps);
            want += x * x;
        }
        ck_assert_double_eq_tol(q->sum[i], want, 1e-5 * want);
    }

    const int n_used = p.loaded.cfg.n_expert_used;
    ck_assert_int_eq(counted(&s, "blk.1.attn_q.weight"), ROWS);
    ck_assert_int_eq(counted(&s, "blk.1.attn_output.weight"), ROWS);
    ck_assert_int_eq(counted(&s, "blk.1.ffn_gate_up_exps.weight"), ROWS * n_used);
    ck_assert_int_eq(counted(&s, "blk.1.ffn_down_exps.weight"), ROWS * n_used);
    ck_assert_int_eq(counted(&s, "self_cond_down.weight"), CANVAS); /* prompts do without */
    dg_importance_sums_clear(&s);
    dg_probe_clear(&p);
}
END_TEST

/* ---- files ---- */

static bool give_up(void *user, double fraction)
{
    (void)user;
    return fraction < 0.5;
}

static dgemma_imatrix_options options_for(const char *text, const char *path)
{
    return (dgemma_imatrix_options){
        .model_path = folder, .text_path = text, .path = path, .n_threads = 1};
}

static const char *make_text(char path[DG_TEST_PATH], int n)
{
    char text[4096] = "";
    for (int i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "line %d of a text, ", i * i);
    ck_assert(dg_test_write_file(dg_test_root, "text", text, strlen(text)));
    return dg_test_path(path, dg_test_root, "text");
}

static void read_whole(dg_buf *out, const char *path)
{
    dgemma_error err = {0};
    dg_buf_init(out, 1 << 26);
    ck_assert_msg(dg_file_read(out, path, &err) == DGEMMA_OK, "%s", err.msg);
}

START_TEST(files_say_the_same)
{
    char text[DG_TEST_PATH], one[DG_TEST_PATH], three[DG_TEST_PATH], old[DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_imatrix_result r;
    dgemma_imatrix_options opt =
        options_for(make_text(text, 60), dg_test_path(one, dg_test_root, "1.gguf"));
    opt.n_chunks = 6;
    ck_assert_msg(dgemma_imatrix(&opt, &r, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(r.n_chunks, 6);
    ck_assert_int_eq(r.chunk_tokens, CANVAS);
    opt.n_threads = 3;
    opt.path = dg_test_path(three, dg_test_root, "3.gguf");
    ck_assert_int_eq(dgemma_imatrix(&opt, &r, &err), DGEMMA_OK);
    opt.path = dg_test_path(old, dg_test_root, "old.dat");
    ck_assert_int_eq(dgemma_imatrix(&opt, NULL, &err), DGEMMA_OK);
    dg_buf a, b;
    read_whole(&a, one);
    read_whole(&b, three);
    ck_assert_uint_eq(a.len, b.len);
    ck_assert_mem_eq(a.data, b.data, a.len);
    dg_buf_clear(&a);
    dg_buf_clear(&b);

    dg_importance gguf, dat;
    ck_assert_msg(dg_importance_open(&gguf, one, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_msg(dg_importance_open(&dat, old, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_uint_eq(gguf.n_entry, r.n_matrices);
    ck_assert_uint_eq(dat.n_entry, r.n_matrices);
    ck_assert_str_eq(gguf.data_set, "text");
    ck_assert_str_eq(dat.data_set, "text");
    ck_assert(gguf.n_chunk == 6 && dat.n_chunk == 6);
    for (size_t i = 0; i < gguf.n_entry; i++) {
        const dg_importance_entry *x = &gguf.entry[i], *y = &dat.entry[i];
        ck_assert_uint_eq(x->n, y->n);
        ck_assert(x->name_len == y->name_len && memcmp(x->name, y->name, x->name_len) == 0);
        for (size_t k = 0; k < x->n && x->n_mat == 1; k++)
            ck_assert_float_eq_tol(x->weight[k], y->weight[k], 1e-5f * x->weight[k]);
    }
    dg_importance_clear(&gguf);
    dg_importance_clear(&dat);

    dgemma_quantize_result q;
    dgemma_quantize_options quantize = dgemma_quantize_defaults();
    quantize.model_path = folder;
    quantize.importance_path = one;
    quantize.type = "Q4_0";
    quantize.path = dg_test_in_root("m.gguf");
    ck_assert_msg(dgemma_quantize(&quantize, &q, &err) == DGEMMA_OK, "%s", err.msg);
    /* rows of 48 values do not fill a block: experts' down projections become F16 */
    ck_assert_uint_eq(q.n_weighted, r.n_matrices - 6);
}
END_TEST

START_TEST(refused)
{
    char text[DG_TEST_PATH], out[DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_imatrix_options opt =
        options_for(make_text(text, 1), dg_test_path(out, dg_test_root, "i.gguf"));
    ck_assert_int_eq(dgemma_imatrix(&opt, NULL, &err), DGEMMA_E_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "more text is needed"));
    make_text(text, 30);
    opt.on_progress = give_up;
    ck_assert_int_eq(dgemma_imatrix(&opt, NULL, &err), DGEMMA_E_CANCELLED);
    ck_assert(!dg_file_exists(out));
    opt.on_progress = NULL;
    opt.n_chunks = 1;
    ck_assert_msg(dgemma_imatrix(&opt, NULL, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(dgemma_imatrix(&opt, NULL, &err), DGEMMA_E_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "is there already"));
    opt.path = text;
    opt.replace = true;
    ck_assert_int_eq(dgemma_imatrix(&opt, NULL, &err), DGEMMA_E_ARG);
    ck_assert_ptr_nonnull(strstr(err.msg, "is what is read"));
    opt.path = NULL;
    ck_assert_int_eq(dgemma_imatrix(&opt, NULL, &err), DGEMMA_E_ARG);
    opt.path = out;
    opt.text_path = dg_test_in_root("none");
    ck_assert_int_eq(dgemma_imatrix(&opt, NULL, &err), DGEMMA_E_IO);
}
END_TEST

START_TEST(survives_no_memory)
{
    char text[DG_TEST_PATH], out[DG_TEST_PATH];
    int n_failed = 0;
    dgemma_imatrix_options opt =
        options_for(make_text(text, 30), dg_test_path(out, dg_test_root, "i.gguf"));
    opt.n_chunks = 1;
    for (long n = 1;; n += 1 + n / 16) {
        dgemma_error err = {0};
        dg_test_fail_alloc_at(n);
        dgemma_status st = dgemma_imatrix(&opt, NULL, &err);
        bool reached = dg_test_alloc_done();
        ck_assert(dg_file_exists(out) == (st == DGEMMA_OK));
        n_failed += st != DGEMMA_OK;
        opt.replace = true;
        if (st == DGEMMA_OK)
            ck_assert_int_eq(unlink(out), 0);
        if (!reached)
            break;
    }
    ck_assert_int_gt(n_failed, 20);
}
END_TEST

Suite *imatrix_suite(void)
{
    Suite *s = suite_create("imatrix");
    TCase *c = tcase_create("text");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, sums_are_those_of_inputs);
    tcase_add_test(c, files_say_the_same);
    tcase_add_test(c, refused);
    tcase_add_test(c, survives_no_memory);
    suite_add_tcase(s, c);
    return s;
}
