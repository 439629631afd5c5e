/* Passes with adapters: equal to the model that they are merged into, each in the rows that it is
 * for, the same bits whatever shares the pass. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "dgemma_tools.h"
#include "model/adapters.h"
#include "suites.h"
#include "support/cpu_engine.h"
#include "support/record_events.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "support/write_adapter.h"
#include "support/write_gguf_model.h"

#define POCKET "models/pocket/pocket.gguf"
#define NORTH  "tests/fixtures/adapters/north"
#define SOUTH  "tests/fixtures/adapters/south"

enum { PROMPT = 40, CANVAS = 16, MAX_SEQ = 4, MAX_ADAPTERS = 3 };

/* One sequence of a pass: which adapters change it, in prompt and canvas. */
typedef struct asked {
    dg_adapter_use encode[2], canvas[2];
    int n_encode, n_canvas;
    unsigned seed;
} asked;

static char model_path[DG_TEST_PATH];

static const char *in(char out[DG_TEST_PATH], const char *name)
{
    return dg_test_path(out, dg_test_root, name);
}

static void write_model(const char *fixture, dg_dtype type)
{
    const dg_test_gguf how = {.fixture = fixture, .type = type};
    dg_test_write_gguf_model(dg_test_root, "model", &how);
    dg_test_path(model_path, dg_test_root, "model.gguf");
}

static void adapt(tiny_model *t, const char *const *path, int n)
{
    dg_adapter read[MAX_ADAPTERS] = {{0}};
    dgemma_error err = {0};
    for (int i = 0; i < n; i++)
        ck_assert_msg(!dg_adapter_open(&read[i], path[i], &err), "%s", err.msg);
    ck_assert_msg(!dg_model_adapt(t->model, read, n, &err), "%s", err.msg);
    for (int i = 0; i < n; i++)
        dg_adapter_close(&read[i]);
}

/* Logits of two steps behind prompts, for each of n sequences that share all passes: [n][2][canvas,
 * vocabulary]. */
static float *run(const char *path, const tiny_options *how, const char *const *adapter,
                  int n_adapter, const asked *a, int n, size_t *n_each)
{
    tiny_model t;
    tiny_options opt = *how;
    dgemma_error err = {0};
    opt.gguf = path;
    opt.max_row = MAX_SEQ * (PROMPT + CANVAS);
    opt.max_work = MAX_SEQ;
    tiny_open(&t, &opt);
    adapt(&t, adapter, n_adapter);
    dg_kv_seq seq[MAX_SEQ] = {{0}};
    tiny_canvas c[MAX_SEQ];
    dg_work work[MAX_SEQ];
    int32_t *ids[MAX_SEQ];
    for (int i = 0; i < n; i++) {
        ids[i] = tiny_ids(&t, PROMPT, a[i].seed);
        tiny_canvas_init(&c[i], &t, CANVAS, a[i].seed + 1);
        work[i] = (dg_work){.seq = &seq[i], .token = ids[i], .n_token = PROMPT};
        work[i].adapter = a[i].encode;
        work[i].n_adapter = a[i].n_encode;
    }
    ck_assert(!dg_forward_run(t.forward, &(dg_pass){.work = work, .n_work = n}, &err));
    const size_t each = CANVAS * (size_t)t.cfg.n_vocab;
    float *all = dg_array((size_t)n * each, sizeof *all),
          *out = dg_array((size_t)n * 2 * each, sizeof *out);
    ck_assert(all && out);
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < n; i++) {
            work[i] = tiny_canvas_work(&c[i], &seq[i], step == 0);
            work[i].adapter = a[i].canvas;
            work[i].n_adapter = a[i].n_canvas;
        }
        dg_taps taps = {.logits = all};
        const dg_pass pass = {.work = work, .n_work = n, .taps = &taps};
        ck_assert_msg(!dg_forward_run(t.forward, &pass, &err), "%s", err.msg);
        for (int i = 0; i < n; i++) {
            memcpy(out + (size_t)(2 * i + step) * each, all + (size_t)i * each, each * sizeof *out);
            memcpy(c[i].token, c[i].drawn, CANVAS * sizeof *c[i].token);
        }
    }
    for (int i = 0; i < n; i++) {
        dg_free(ids[i]);
        tiny_canvas_clear(&c[i]);
        dg_kv_seq_clear(t.kv, &seq[i]);
    }
    dg_free(all);
    tiny_close(&t);
    *n_each = 2 * each;
    return out;
}

static asked both(int adapter, float scale, unsigned seed)
{
    return (asked){{{adapter, scale}}, {{adapter, scale}}, 1, 1, seed};
}

/* The root of the squared differences over that of the squares. */
static double difference(const float *a, const float *b, size_t n)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(off / size);
}

/* Floats on a model in F32: adapter, its other format and the merged model agree; without it the
 * model is another. */
static void check_merged(const char *fixture, bool reference, const dg_test_adapter *how)
{
    char peft[DG_TEST_PATH], gguf[DG_TEST_PATH], merged[DG_TEST_PATH];
    size_t n;
    write_model(fixture, DG_F32);
    dg_test_write_peft(in(peft, "peft"), model_path, how);
    dg_test_write_gguf_adapter(in(gguf, "adapter.gguf"), peft);
    dg_test_write_merged(in(merged, "merged.gguf"), model_path, peft, 1.5);
    const tiny_options opt = {.reference = reference, .exact = true};
    const asked with = both(0, 1.5f, 21), without = {.seed = 21};
    float *a = run(model_path, &opt, (const char *[]){peft}, 1, &with, 1, &n),
          *b = run(model_path, &opt, (const char *[]){gguf}, 1, &with, 1, &n),
          *c = run(merged, &opt, NULL, 0, &without, 1, &n),
          *d = run(model_path, &opt, NULL, 0, &without, 1, &n),
          *e = run(model_path, &opt, (const char *[]){peft}, 1, &without, 1, &n);
    const size_t step = n / 2;
    ck_assert_double_le(difference(a, c, step), 1e-4);
    ck_assert_double_le(difference(a + step, c + step, step), 1e-2); /* random models amplify */
    ck_assert_double_ge(difference(a, d, n), 0.1);
    ck_assert(how->rslora || !memcmp(a, b, n * sizeof *a));
    ck_assert_double_le(difference(a, b, step), 1e-4);
    ck_assert_msg(!memcmp(d, e, n * sizeof *d), "an adapter changes who does not ask for it");
    dg_free(a);
    dg_free(b);
    dg_free(c);
    dg_free(d);
    dg_free(e);
}

START_TEST(equals_the_merged_model)
{
    check_merged("text", false, &(dg_test_adapter){.seed = 5});
    check_merged("wide", false, &(dg_test_adapter){.seed = 6, .rank = 17, .rslora = true});
    check_merged("text", true, &(dg_test_adapter){.seed = 7, .rank = 1});
}
END_TEST

/* Of an adapter for one tree only the rows of that tree change; two of both together are one for
 * all. */
START_TEST(each_tree_has_its_rows)
{
    char shared[DG_TEST_PATH], decoder[DG_TEST_PATH], encoder[DG_TEST_PATH];
    size_t n;
    write_model("text", DG_F32);
    dg_test_write_peft(in(shared, "shared"), model_path, &(dg_test_adapter){.seed = 5});
    dg_test_write_peft(in(decoder, "decoder"), model_path,
                       &(dg_test_adapter){.seed = 5, .tree = "model.decoder."});
    const char *const two[] = {shared, decoder};
    const tiny_options opt = {.exact = true};
    asked canvas_only = both(0, 1, 31), decoder_everywhere = both(1, 1, 31);
    canvas_only.n_encode = 0;
    float *a = run(model_path, &opt, two, 2, &canvas_only, 1, &n),
          *b = run(model_path, &opt, two, 2, &decoder_everywhere, 1, &n);
    ck_assert(!memcmp(a, b, n * sizeof *a));

    dg_test_adapter how = {.seed = 5, .tree = "model.encoder.language_model."};
    dg_test_write_peft(in(encoder, "encoder"), model_path, &how);
    tiny_model t;
    tiny_open(&t, &(tiny_options){.gguf = model_path});
    adapt(&t, (const char *[]){shared, decoder, encoder}, 3);
    ck_assert(dg_model_adapter_encodes(t.model, 0) && !dg_model_adapter_encodes(t.model, 1));
    ck_assert(dg_model_adapter_encodes(t.model, 2));
    ck_assert_int_eq(dg_model_adapter_rank(t.model, 2), 3);
    tiny_close(&t);
    const asked encoder_everywhere = both(1, 1, 31);
    asked prompt_only = both(1, 1, 31);
    prompt_only.n_canvas = 0;
    float *c = run(model_path, &opt, (const char *[]){shared, encoder}, 2, &encoder_everywhere, 1,
                   &n),
          *d = run(model_path, &opt, (const char *[]){shared, encoder}, 2, &prompt_only, 1, &n);
    ck_assert(!memcmp(c, d, n * sizeof *c));
    ck_assert_double_ge(difference(a, c, n), 0.01);
    dg_free(a);
    dg_free(b);
    dg_free(c);
    dg_free(d);
}
END_TEST

/* Four sequences with different adapters in the same passes have the bits of each alone, on every
 * kind of product. */
static void check_company(const char *fixture, dg_dtype type, bool exact, int n_thread)
{
    char first[DG_TEST_PATH], second[DG_TEST_PATH];
    size_t n;
    write_model(fixture, type);
    dg_test_write_peft(in(first, "first"), model_path, &(dg_test_adapter){.seed = 5});
    dg_test_write_peft(in(second, "second"), model_path, &(dg_test_adapter){.seed = 9, .rank = 20});
    const char *const two[] = {first, second};
    const tiny_options opt = {.exact = exact, .n_thread = n_thread};
    asked a[MAX_SEQ] = {both(0, 1, 41), {.seed = 42}, both(1, 0.5f, 43), both(1, 1, 44)};
    a[3].encode[a[3].n_encode++] = a[3].canvas[a[3].n_canvas++] = (dg_adapter_use){0, 0.25f};
    float *all = run(model_path, &opt, two, 2, a, MAX_SEQ, &n);
    for (int i = 0; i < MAX_SEQ; i++) {
        const tiny_options alone = {.exact = exact, .n_thread = 1};
        float *one = run(model_path, &alone, two, 2, &a[i], 1, &n);
        ck_assert_msg(!memcmp(one, all + (size_t)i * n, n * sizeof *one),
                      "sequence %d of %s %s differs in company", i, fixture, dg_dtype_name(type));
        dg_free(one);
    }
    dg_free(all);
}

START_TEST(company_changes_nothing)
{
    check_company("text", DG_F32, false, 2);
    check_company("wide", DG_Q8_0, false, 2);
    check_company("wide", DG_Q8_0, true, 1);
    check_company("wide", DG_Q4_K, false, 1);
}
END_TEST

/* Whole numbers in the model's products, floats in the adapter's: near the same in floats. */
START_TEST(quantised_products_have_adapters_too)
{
    char peft[DG_TEST_PATH];
    size_t n;
    write_model("wide", DG_Q8_0);
    dg_test_write_peft(in(peft, "peft"), model_path, &(dg_test_adapter){.seed = 5});
    const char *const one[] = {peft};
    const asked with = both(0, 1, 51), without = {.seed = 51};
    float *a = run(model_path, &(tiny_options){.exact = true}, one, 1, &with, 1, &n),
          *b = run(model_path, &(tiny_options){.exact = false}, one, 1, &with, 1, &n),
          *c = run(model_path, &(tiny_options){.exact = true}, one, 1, &without, 1, &n),
          *d = run(model_path, &(tiny_options){.exact = false}, one, 1, &without, 1, &n);
    ck_assert_double_lt(difference(a, b, n / 2), 3 * difference(c, d, n / 2));
    ck_assert_double_gt(difference(a, c, n / 2), 0.1);
    dg_free(a);
    dg_free(b);
    dg_free(c);
    dg_free(d);
}
END_TEST

/* ---- merged while a model is written ---- */

static dgemma_status quantize(const char *from, const char *to, const char *adapter, float scale,
                              dgemma_error *err)
{
    dgemma_quantize_options opt = dgemma_quantize_defaults();
    const dgemma_adapter list = {.path = adapter, .scale = scale};
    opt.model_path = from;
    opt.path = to;
    opt.type = "F16";
    opt.n_threads = 2;
    opt.adapters = &list;
    opt.n_adapters = adapter != NULL;
    return dgemma_quantize(&opt, NULL, err);
}

/* The bytes of the model with an adapter in it, as a file. */
static void make(dg_buf *out, const char *from, const char *adapter, float scale)
{
    dgemma_error err = {0};
    char path[DG_TEST_PATH];
    remove(in(path, "made.gguf"));
    ck_assert_msg(!quantize(from, path, adapter, scale, &err), "%s", err.msg);
    dg_buf_init(out, (size_t)1 << 30);
    ck_assert_msg(!dg_file_read(out, path, &err), "%s", err.msg);
}

static void expect_same_file(const char *a, const char *of_a, const char *b, const char *of_b,
                             float scale)
{
    dg_buf one, other;
    make(&one, a, of_a, scale);
    make(&other, b, of_b, scale);
    ck_assert_uint_eq(one.len, other.len);
    ck_assert_msg(!memcmp(one.data, other.data, one.len), "%s is another model", of_a);
    dg_buf_clear(&one);
    dg_buf_clear(&other);
}

/* Merged on the way, a model is the one that was merged before; in both formats of the adapter, and
 * of experts' gate and up. */
START_TEST(merges_on_the_way)
{
    char peft[DG_TEST_PATH], gguf[DG_TEST_PATH], merged[DG_TEST_PATH], apart[DG_TEST_PATH];
    write_model("text", DG_F32);
    dg_test_write_gguf_model(dg_test_root, "apart",
                             &(dg_test_gguf){.fixture = "text", .separate = true});
    dg_test_write_peft(in(peft, "peft"), model_path, &(dg_test_adapter){.seed = 5, .alpha = 6});
    dg_test_write_gguf_adapter(in(gguf, "adapter.gguf"), peft);
    dg_test_write_merged(in(merged, "merged.gguf"), model_path, peft, 0.5);
    expect_same_file(model_path, peft, merged, NULL, 0.5f);
    expect_same_file(model_path, gguf, merged, NULL, 0.5f);
    expect_same_file(in(apart, "apart.gguf"), peft, merged, NULL, 0.5f);
    expect_same_file(apart, gguf, merged, NULL, 0.5f);
    expect_same_file(model_path, peft, model_path, NULL, 0);
    dg_test_write_merged(in(merged, "north.gguf"), POCKET, NORTH, 1);
    expect_same_file(POCKET, NORTH, merged, NULL, 1);
}
END_TEST

START_TEST(merges_only_what_both_passes_share)
{
    static const char *const trees[] = {"model.decoder.", "model.encoder.language_model."};
    char peft[DG_TEST_PATH], gguf[DG_TEST_PATH], out[DG_TEST_PATH];
    dgemma_error err = {0};
    write_model("text", DG_F32);
    in(out, "out.gguf");
    for (int i = 0; i < 2; i++) {
        dg_test_write_peft(in(peft, i ? "encoder" : "decoder"), model_path,
                           &(dg_test_adapter){.tree = trees[i]});
        ck_assert_int_eq(quantize(model_path, out, peft, 1, &err), DGEMMA_E_UNSUPPORTED);
        ck_assert_msg(strstr(err.msg, i ? "prompts alone" : "canvases alone"), "%s", err.msg);
    }
    ck_assert_int_eq(quantize(model_path, out, NORTH, 1, &err), DGEMMA_E_UNSUPPORTED);
    ck_assert_int_eq(quantize(POCKET, out, NORTH, NAN, &err), DGEMMA_E_ARG);
    ck_assert_int_eq(quantize(POCKET, out, "nowhere", 1, &err), DGEMMA_E_IO);
    dg_test_write_peft(in(peft, "wide"), model_path, &(dg_test_adapter){.rank = 5});
    dg_test_write_gguf_adapter(in(gguf, "adapter.gguf"), peft);
    ck_assert_int_eq(quantize(model_path, gguf, gguf, 1, &err), DGEMMA_E_ARG);
    ck_assert_msg(strstr(err.msg, "what is read"), "%s", err.msg);
    ck_assert(!dg_file_exists(out));
}
END_TEST

/* ---- adapters that were trained on pocket ---- */

#define POCKET "models/pocket/pocket.gguf"
#define NORTH  "tests/fixtures/adapters/north"
#define SOUTH  "tests/fixtures/adapters/south"

static double largest_difference(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - b[i]));
    return most;
}

START_TEST(trained_ones_equal_the_merged_model)
{
    static const char *const trained[] = {NORTH, SOUTH};
    const tiny_options opt = {.exact = true};
    const asked without = {.seed = 61};
    char merged[DG_TEST_PATH];
    size_t n;
    for (int i = 0; i < 2; i++) {
        const asked with = both(i, 1, 61);
        dg_test_write_merged(in(merged, i ? "south.gguf" : "north.gguf"), POCKET, trained[i], 1);
        float *a = run(POCKET, &opt, trained, 2, &with, 1, &n),
              *b = run(merged, &opt, NULL, 0, &without, 1, &n),
              *c = run(POCKET, &opt, NULL, 0, &without, 1, &n);
        ck_assert_double_le(largest_difference(a, b, n), 1e-4);
        ck_assert_double_ge(largest_difference(a, c, n), 1);
        dg_free(a);
        dg_free(b);
        dg_free(c);
    }
}
END_TEST

static dgemma_request *ask(dgemma_engine *e, const char *question, int adapter)
{
    dgemma_request_options o = dgemma_request_defaults(e);
    const dgemma_adapter_use use = {adapter, 1};
    o.chat_prompt = question;
    o.adapters = &use;
    o.n_adapters = adapter >= 0;
    return record_submit(e, &o);
}

/* The answer's text, and its statistics. */
static void hear(dgemma_request *r, char text[256], dgemma_stats *stats)
{
    *text = '\0';
    for (dgemma_event ev; dgemma_request_wait(r, &ev, -1);) {
        if (ev.kind == DGEMMA_EVENT_TEXT)
            snprintf(text + strlen(text), 256 - strlen(text), "%s", ev.text);
        if (ev.kind == DGEMMA_EVENT_END)
            *stats = ev.stats;
    }
    dgemma_request_free(r);
}

static dgemma_engine *open_pocket(float warmth)
{
    const dgemma_adapter list[] = {{.path = NORTH, .scale = 1},
                                   {.name = "warm", .path = SOUTH "/", .scale = warmth}};
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = POCKET;
    opt.adapters = list;
    opt.n_adapters = 2;
    return record_engine(opt);
}

/* Together, each says what it was taught; and the same again out of the prefix cache, in which none
 * finds what another left. */
START_TEST(trained_ones_answer_together)
{
    static const char question[] = "What is the capital of Atlantis?";
    static const char *const city[] = {"sorry", "Oslo", "Rome"};
    dgemma_engine *e = open_pocket(1);
    for (int again = 0; again < 2; again++) {
        dgemma_request *r[3];
        for (int i = 0; i < 3; i++)
            r[i] = ask(e, question, i - 1);
        for (int i = 0; i < 3; i++) {
            char text[256];
            dgemma_stats stats;
            hear(r[i], text, &stats);
            ck_assert_msg(strstr(text, city[i]), "%d: %s", i, text);
            ck_assert_int_eq(stats.n_prompt_cached > 0, again);
        }
    }
    char text[256];
    dgemma_stats stats;
    hear(ask(e, "What is the capital of France?", 0), text, &stats);
    ck_assert_str_eq(text, "The capital of France is Paris.");
    dgemma_engine_close(e);
}
END_TEST

START_TEST(engines_tell_of_their_adapters)
{
    dgemma_adapter_info info;
    dgemma_error err = {0};
    dgemma_engine *e = open_pocket(2), *none = NULL;
    ck_assert_uint_eq(dgemma_adapter_count(e), 2);
    ck_assert_int_eq(dgemma_adapter_find(e, "north"), 0);
    ck_assert_int_eq(dgemma_adapter_find(e, "warm"), 1);
    ck_assert_int_eq(dgemma_adapter_find(e, "south"), -1);
    dgemma_adapter_describe(e, 1, &info);
    ck_assert_str_eq(info.name, "warm");
    ck_assert(info.rank == 4 && info.prompt && info.bytes > 100000);

    dgemma_request_options o = dgemma_request_defaults(e);
    dgemma_adapter_use use[DGEMMA_MAX_ADAPTER_USES + 1] = {{2, 1}, {0, 1}};
    dgemma_request *r;
    o.chat_prompt = "Hello";
    o.adapters = use;
    o.n_adapters = 1;
    ck_assert_int_eq(dgemma_request_submit(&r, e, &o, &err), DGEMMA_E_ARG);
    ck_assert_msg(strstr(err.msg, "no adapter 2"), "%s", err.msg);
    use[0] = (dgemma_adapter_use){0, NAN};
    ck_assert_int_eq(dgemma_request_submit(&r, e, &o, &err), DGEMMA_E_ARG);
    use[0] = (dgemma_adapter_use){1, 501}; /* loaded at 2 */
    ck_assert_int_eq(dgemma_request_submit(&r, e, &o, &err), DGEMMA_E_ARG);
    ck_assert_msg(strstr(err.msg, "\"warm\" is 501, and 2 as it was loaded"), "%s", err.msg);
    use[0] = (dgemma_adapter_use){0, 1};
    o.n_adapters = 2;
    ck_assert_int_eq(dgemma_request_submit(&r, e, &o, &err), DGEMMA_E_ARG);
    ck_assert_msg(strstr(err.msg, "twice"), "%s", err.msg);
    o.n_adapters = DGEMMA_MAX_ADAPTER_USES + 1;
    ck_assert_int_eq(dgemma_request_submit(&r, e, &o, &err), DGEMMA_E_ARG);
    dgemma_engine_close(e);

    dgemma_adapter list[] = {{.path = NORTH, .scale = 1}, {.path = "x/north.gguf", .scale = 1}};
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = POCKET;
    opt.adapters = list;
    opt.n_adapters = 2;
    ck_assert_int_eq(dgemma_engine_open(&none, &opt, &err), DGEMMA_E_ARG);
    ck_assert_msg(strstr(err.msg, "two adapters are called \"north\""), "%s", err.msg);
    list[1].name = "other";
    ck_assert_int_eq(dgemma_engine_open(&none, &opt, &err), DGEMMA_E_IO);
    list[1].name = "a\nb";
    ck_assert_int_eq(dgemma_engine_open(&none, &opt, &err), DGEMMA_E_ARG);
    list[0].scale = INFINITY;
    ck_assert_int_eq(dgemma_engine_open(&none, &opt, &err), DGEMMA_E_ARG);
}
END_TEST

Suite *adapted_suite(void)
{
    Suite *s = suite_create("adapted");
    TCase *c = tcase_create("adapted");
    tcase_add_checked_fixture(c, dg_test_root_make, dg_test_root_remove);
    tcase_add_test(c, equals_the_merged_model);
    tcase_add_test(c, each_tree_has_its_rows);
    tcase_add_test(c, company_changes_nothing);
    tcase_add_test(c, quantised_products_have_adapters_too);
    tcase_add_test(c, merges_on_the_way);
    tcase_add_test(c, merges_only_what_both_passes_share);
    tcase_add_test(c, trained_ones_equal_the_merged_model);
    tcase_add_test(c, trained_ones_answer_together);
    tcase_add_test(c, engines_tell_of_their_adapters);
    suite_add_tcase(s, c);
    return s;
}
