/* dgemma bench from inside: what passes cost, contexts that are filled, stages, and what is told.
 */
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/memory_use.h"
#include "bench/bench_cost.h"
#include "bench/bench_rates.h"
#include "bench/bench_run.h"
#include "bench/bench_session.h"
#include "cpu/cpu_peak.h"
#include "model/synthetic_router.h"
#include "suites.h"
#include "support/alloc_fail.h"

/* ---- numbers ---- */

START_TEST(median_and_quartiles)
{
    double odd[] = {5, 1, 4, 2, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
    dgemma_bench_result r = {0};
    dg_bench_spread(&r, odd, 5);
    ck_assert(r.n == 5 && r.least == 1 && r.lower == 2 && r.median == 3 && r.upper == 4 &&
              r.most == 5);
    dg_bench_spread(&r, even, 4);
    ck_assert(r.median == 2.5 && r.lower == 1.75 && r.upper == 3.25);
    dg_bench_spread(&r, one, 1);
    ck_assert(r.n == 1 && r.least == 7 && r.lower == 7 && r.median == 7 && r.most == 7);
}
END_TEST

/* By hand, for the published shape: 1.588 of products, 0.378 of the head, 0.134 and 0.054 of
 * attention; 16.76 GB of weights, and keys and values. */
START_TEST(what_a_step_costs)
{
    dg_synthetic *s;
    dgemma_error err = {0};
    dg_synthetic_options opt = {.type = "Q4_K_M", .listed = true};
    ck_assert_int_eq(dg_synthetic_open(&s, &opt, &err), DGEMMA_OK);
    const dg_config *cfg = dg_synthetic_config(s);
    const dg_checkpoint *ck = dg_synthetic_checkpoint(s);
    dg_cost one = dg_cost_step(cfg, ck, NULL, 1024, 1, DG_BF16),
            four = dg_cost_step(cfg, ck, NULL, 1024, 4, DG_BF16),
            far = dg_cost_step(cfg, ck, NULL, 32768, 1, DG_BF16);
    ck_assert_double_eq_tol(one.ops * 1e-12, 2.154, 0.005);
    ck_assert_double_eq_tol(four.ops / one.ops, 4, 1e-9);
    ck_assert_double_eq_tol((far.ops - one.ops) * 1e-12, 1.385 - 0.054, 0.005);
    ck_assert_double_eq_tol(one.bytes * 1e-9, 16.79 + 0.21 + 0.02, 0.05);
    ck_assert_double_eq_tol((far.bytes - one.bytes) * 1e-9, 31744 * 20480e-9, 1e-3);
    ck_assert_double_eq_tol(dg_cost_weights(ck) * 1e-9, 16.77, 0.02);

    /* of heads of 512 a byte a value, and 16 halves or one */
    static const struct {
        dg_dtype type;
        double bytes;
    } stored[] = {{DG_F32, 2048}, {DG_Q8_0, 544}, {DG_FP8, 514}};
    for (size_t i = 0; i < DG_COUNT(stored); i++) {
        dg_cost near = dg_cost_step(cfg, ck, NULL, 1024, 1, stored[i].type),
                there = dg_cost_step(cfg, ck, NULL, 32768, 1, stored[i].type);
        ck_assert_double_eq_tol((there.bytes - near.bytes) / (31744 * 20480.0),
                                stored[i].bytes / 1024, 1e-6);
    }

    /* a prompt has no head, and reads the weights once a piece */
    dg_cost whole = dg_cost_prefill(cfg, ck, NULL, 1024, 1024, DG_BF16),
            cut = dg_cost_prefill(cfg, ck, NULL, 1024, 256, DG_BF16);
    ck_assert_double_eq_tol(whole.ops * 1e-12, 6.62 * 29 / 30, 0.1);
    ck_assert_double_eq_tol(cut.bytes / whole.bytes, 4, 0.1);
    dg_synthetic_close(s);
}
END_TEST

/* 30 layers of 128 experts, 3 x 704 x 2816 values each: 22.8 billion that are 2 bytes, 1, or 4.25
 * bits. Dense weights but down are a byte with either, 1.47 billion: queries, keys, values and
 * attention's output (12,288 x 2816 in 25 layers, 17,408 x 2816 in 5), gate and up. */
START_TEST(what_narrower_weights_spare)
{
    dg_synthetic *s;
    dgemma_error err = {0};
    dg_synthetic_options opt = {.type = "BF16", .listed = true};
    ck_assert_int_eq(dg_synthetic_open(&s, &opt, &err), DGEMMA_OK);
    const dg_config *cfg = dg_synthetic_config(s);
    const dg_checkpoint *ck = dg_synthetic_checkpoint(s);
    dg_cost plain = dg_cost_step(cfg, ck, NULL, 1024, 1, DG_BF16),
            fp8 = dg_cost_step(cfg, ck, "fp8", 1024, 1, DG_BF16),
            int4 = dg_cost_step(cfg, ck, "int4", 1024, 1, DG_BF16);
    ck_assert_double_eq_tol((plain.bytes - fp8.bytes) * 1e-9, 22.84 + 1.467, 0.01);
    ck_assert_double_eq_tol((plain.bytes - int4.bytes) * 1e-9, 22.84 * (2 - 4.25 / 8) + 1.467,
                            0.02);
    ck_assert(plain.ops == int4.ops);
    dg_synthetic_close(s);
}
END_TEST

START_TEST(rates_of_this_machine)
{
    dg_cpu_peak peak[DG_CPU_MAX_PEAKS];
    size_t n = dg_cpu_peaks(peak);
    ck_assert_uint_le(n, DG_CPU_MAX_PEAKS);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(isfinite(peak[i].run()), "%s", peak[i].name);
    uint64_t data[16] = {0};
    for (uint64_t i = 0; i < 16; i++)
        data[i] = i;
    ck_assert_uint_eq(dg_cpu_read(data, sizeof data), 120);
}
END_TEST

START_TEST(memory_of_this_process)
{
    enum { N = 32 << 20 };
    dg_memory_use before = dg_memory_now();
    /* not from the heap, which may have as much left from before; and a page that nobody writes on
     * is nowhere */
    char *p = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    memset(p, 1, N);
    dg_memory_use with = dg_memory_now();
    munmap(p, N);
    if (!before.resident)
        return; /* no /proc */
    ck_assert_uint_ge(with.peak, with.resident);
    ck_assert_uint_ge(with.peak, before.resident + N / 2);
}
END_TEST

/* ---- a session ---- */

static void open_tiny(dg_bench_model *m, dg_bench_session *s)
{
    dgemma_error err = {0};
    dgemma_bench_options opt = dgemma_bench_defaults();
    opt.synthetic = "Q8_0";
    opt.shape = "tiny";
    opt.engine.device = "cpu";
    opt.engine.n_threads = 1;
    dgemma_status st = dg_bench_model_open(m, &opt, &err);
    st = st ? st : dg_bench_session_open(s, m, &opt.engine, &err);
    ck_assert_msg(st == DGEMMA_OK, "%s", err.msg);
    ck_assert(s->is_cpu && s->n_thread == 1);
}

/* Rows of a pass are shared: a sequence of many has no more room than one alone. */
START_TEST(room_of_many)
{
    enum { MANY = 64 };
    dg_bench_model m;
    dg_bench_session s;
    dgemma_error err = {0};
    open_tiny(&m, &s);
    ck_assert_msg(!dg_bench_place(&s, 1024, 1, 64, &err), "%s", err.msg);
    size_t one = s.kv_limit;
    ck_assert_msg(!dg_bench_place(&s, 1024, MANY, MANY * 64, &err), "%s", err.msg);
    ck_assert_uint_gt(s.kv_limit, one);
    ck_assert_uint_le(s.kv_limit, (MANY + 2) * one);
    dg_bench_session_close(&s);
    dg_bench_model_close(&m);
}
END_TEST

/* A filled context has as many tokens as it should, and its pages hold what encoded ones hold. */
START_TEST(contexts_are_filled)
{
    static const int contexts[] = {0, 1, 64, 1000, 2100, 100};
    dgemma_error err = {0};
    dg_bench_model m;
    dg_bench_session s;
    open_tiny(&m, &s);
    for (size_t i = 0; i < DG_COUNT(contexts); i++) {
        int batch = 1 + (int)i % 3;
        dgemma_status st = dg_bench_place(&s, contexts[i], batch, batch * 64, &err);
        st = st ? st : dg_bench_step(&s, &err);
        st = st ? st : dg_bench_commit(&s, &err);
        st = st ? st : dg_bench_step(&s, &err);
        ck_assert_msg(st == DGEMMA_OK, "%d: %s", contexts[i], err.msg);
        for (int k = 0; k < batch; k++)
            ck_assert_int_eq(s.seq[k].n_token, contexts[i] + s.cfg->canvas_length);
    }
    /* the last layer is global: its first page is a copy of what was encoded */
    int layer = s.cfg->n_layer - 1;
    size_t n = dg_kv_layer_values(&dg_kv_config_of(s.kv)->layer[layer]);
    float *page[2] = {dg_array(n, sizeof(float)), dg_array(n, sizeof(float))};
    const dg_kv_seq *from[2] = {&s.source, &s.seq[0]};
    for (int i = 0; i < 2; i++)
        s.be->kv_read(s.be, dg_kv_store_of(s.kv), layer, from[i]->table[DG_KV_GLOBAL].page[0], true,
                      page[i]);
    ck_assert_mem_eq(page[0], page[1], n * sizeof(float));
    ck_assert(page[0][0] != 0);
    dg_free(page[0]);
    dg_free(page[1]);
    dg_bench_session_close(&s);
    dg_bench_model_close(&m);
}
END_TEST

/* Looking at the clock changes nothing, and every stage of a step is seen. */
START_TEST(stages_are_timed)
{
    dgemma_error err = {0};
    dg_bench_model m;
    dg_bench_session s;
    float entropy[2] = {0};
    double seconds[DG_STAGES];
    open_tiny(&m, &s);
    for (int turn = 0; turn < 2; turn++) {
        ck_assert_int_eq(dg_bench_place(&s, 100, 1, 64, &err), DGEMMA_OK);
        if (turn)
            dg_timed_start(s.be);
        ck_assert_int_eq(dg_bench_step(&s, &err), DGEMMA_OK);
        entropy[turn] = s.entropy[3];
    }
    dg_timed_stop(s.be, seconds);
    ck_assert(entropy[0] == entropy[1]);
    for (int i = 0; i < DG_STAGES; i++)
        ck_assert_msg(seconds[i] > 0 && seconds[i] < 10, "%s", dg_bench_stage_name[i]);
    ck_assert_int_eq(dg_bench_step(&s, &err), DGEMMA_OK); /* no longer looked at */
    double after[DG_STAGES];
    dg_timed_stop(s.be, after);
    ck_assert_mem_eq(after, seconds, sizeof seconds);
    dg_bench_session_close(&s);
    dg_bench_model_close(&m);
}
END_TEST

/* What the backend says of itself, its timed face says too. */
START_TEST(faces_say_the_same)
{
    dg_bench_model m;
    dg_bench_session s;
    open_tiny(&m, &s);
    const dg_backend *face = s.be, *inner = s.device;
    ck_assert_ptr_ne(face, inner);
    ck_assert(inner->borrows_weights && face->borrows_weights);
    ck_assert_int_eq(face->answers, inner->answers);
    ck_assert_ptr_eq(face->name, inner->name);
    ck_assert_ptr_eq(face->profile, inner->profile);
    ck_assert_ptr_eq(face->block_profile, inner->block_profile);
    ck_assert_ptr_eq(face->byte_profile, inner->byte_profile);
    ck_assert_int_eq(face->byte_in, inner->byte_in);
    ck_assert_int_eq(face->canvas_rows, inner->canvas_rows);
    ck_assert_int_eq(face->prompt_rows, inner->prompt_rows);
    dg_bench_session_close(&s);
    dg_bench_model_close(&m);
}
END_TEST

/* An answer's canvases have the schedule's temperatures, and begin again when its steps are used.
 */
START_TEST(steps_of_an_answer)
{
    enum { STEPS = 3 };
    dgemma_error err = {0};
    dg_bench_model m;
    dg_bench_session s;
    open_tiny(&m, &s);
    s.answer_steps = STEPS;
    ck_assert_int_eq(dg_bench_place(&s, 64, 2, 128, &err), DGEMMA_OK);
    ck_assert_mem_ne(s.canvas[0].token, s.canvas[1].token, 32 * sizeof(int32_t));
    for (int i = 0; i < 2 * STEPS; i++) {
        ck_assert_int_eq(s.canvas[1].step, i % STEPS);
        ck_assert_int_eq(s.work[1].first_step, i % STEPS == 0);
        ck_assert_int_eq(s.work[1].last_step, i % STEPS == STEPS - 1);
        ck_assert_float_eq_tol(s.work[1].temperature,
                               0.4f + 0.4f * (float)(STEPS - i % STEPS) / STEPS, 1e-6f);
        ck_assert_int_eq(dg_bench_step(&s, &err), DGEMMA_OK);
    }
    ck_assert_int_eq(dg_bench_commit(&s, &err), DGEMMA_OK);
    ck_assert_int_eq(s.canvas[0].step, 1);
    ck_assert_int_eq(s.seq[0].n_token, 64 + s.cfg->canvas_length);
    dg_bench_session_close(&s);
    dg_bench_model_close(&m);
}
END_TEST

static void keep_first(void *arg, int layer, const float *x, int n_row)
{
    dg_bench_session *s = ((void **)arg)[0];
    if (layer == 0)
        memcpy(((void **)arg)[1], x, (size_t)n_row * (size_t)s->cfg->n_embd * sizeof *x);
}

/* Random words go to random experts in every step: what the step before thought changes what a
 * router sees a little, not all. */
START_TEST(routers_see_the_words)
{
    dgemma_error err = {0};
    dg_bench_model m;
    dg_bench_session s;
    open_tiny(&m, &s);
    ck_assert_int_eq(dg_bench_place(&s, 64, 1, 64, &err), DGEMMA_OK);
    int n_row = s.cfg->canvas_length, n = s.cfg->n_embd;
    float *x[2];
    for (int i = 0; i < 2; i++) {
        x[i] = dg_array((size_t)n_row * (size_t)n, sizeof **x);
        void *arg[2] = {&s, x[i]};
        dg_taps taps = {.hidden = keep_first, .hidden_arg = arg};
        s.work[0].first_step = i == 0;
        ck_assert(!dg_forward_run(s.forward, &(dg_pass){.work = s.work, .n_work = 1, .taps = &taps},
                                  &err));
    }
    double changed = 0, all = 0;
    for (int r = 0; r < n_row; r++)
        for (int i = 0; i < dg_synthetic_router_channels(n); i++) {
            double was = (double)x[0][r * n + i], is = (double)x[1][r * n + i];
            changed += (is - was) * (is - was);
            all += was * was;
        }
    ck_assert_double_gt(changed, 0);
    ck_assert_double_lt(sqrt(changed / all), 0.05);
    dg_free(x[0]);
    dg_free(x[1]);
    dg_bench_session_close(&s);
    dg_bench_model_close(&m);
}
END_TEST

/* ---- all of it ---- */

typedef struct told {
    int n[DGEMMA_BENCH_SKIPPED + 1];
    dgemma_bench_result step[16];
    int stop_after; /* results; 0: never */
    int n_watched;
    double stage_sum;
} told;

static bool on_result(void *user, const dgemma_bench_result *r)
{
    told *t = user;
    if (r->kind == DGEMMA_BENCH_STEP)
        t->step[t->n[r->kind]] = *r;
    if (r->kind == DGEMMA_BENCH_STAGE)
        t->stage_sum += r->median;
    if (r->kind != DGEMMA_BENCH_MACHINE && r->kind != DGEMMA_BENCH_SKIPPED)
        ck_assert(r->n >= 1 && r->median > 0 && r->lower <= r->median && r->median <= r->upper &&
                  r->least <= r->lower && r->upper <= r->most);
    t->n[r->kind]++;
    return !t->stop_after || --t->stop_after > 0;
}

static bool on_watch(void *user, const char *what)
{
    ck_assert_uint_gt(strlen(what), 0);
    ((told *)user)->n_watched++;
    return true;
}

static dgemma_bench_options tiny_bench(told *t)
{
    dgemma_bench_options opt = dgemma_bench_defaults();
    opt.synthetic = "Q4_K_M";
    opt.shape = "tiny";
    opt.n_layer = 3;
    opt.engine.device = "cpu";
    opt.n_steps = 2;
    opt.no_rates = true;
    opt.on_result = on_result;
    opt.on_watch = on_watch;
    opt.user = t;
    return opt;
}

START_TEST(lists_are_gone_through)
{
    told t = {0};
    dgemma_error err = {0};
    dgemma_bench_options opt = tiny_bench(&t);
    opt.threads = (dgemma_bench_list){{2, 1}, 2};
    opt.contexts = (dgemma_bench_list){{64, 200, 0}, 3};
    opt.batches = (dgemma_bench_list){{2, 1}, 2};
    opt.chunks = (dgemma_bench_list){{32, 100}, 2};
    opt.prompt = 150;
    opt.stages = true;
    ck_assert_msg(dgemma_bench(&opt, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(t.n[DGEMMA_BENCH_MACHINE], 2);
    ck_assert_int_eq(t.n[DGEMMA_BENCH_LOAD], 2);
    ck_assert_int_eq(t.n[DGEMMA_BENCH_PREFILL], 3); /* both pieces with the most threads only */
    ck_assert_int_eq(t.n[DGEMMA_BENCH_BLOCK], 2);
    ck_assert_int_eq(t.n[DGEMMA_BENCH_STAGE], 2 * DG_STAGES);
    ck_assert_int_eq(t.n[DGEMMA_BENCH_STEP], 5);
    static const int want[][3] = {{1, 64, 2}, {2, 64, 2}, {2, 200, 2}, {2, 0, 2}, {2, 64, 1}};
    for (int i = 0; i < 5; i++) {
        const dgemma_bench_result *s = &t.step[i];
        ck_assert_int_eq(s->n_threads, want[i][0]);
        ck_assert_int_eq(s->context, want[i][1]);
        ck_assert_int_eq(s->batch, want[i][2]);
        ck_assert_int_eq(s->n, 2);
        ck_assert(s->bytes > 1e5 && s->ops > 1e6);
    }
    ck_assert_int_gt(t.n_watched, 10);
    ck_assert(t.stage_sum > 0);
}
END_TEST

START_TEST(what_is_made_up_when_nothing_is_said)
{
    told t = {0};
    dgemma_error err = {0};
    dgemma_bench_options opt = tiny_bench(&t);
    opt.n_layer = 1;
    opt.engine.n_threads = 7; /* the list counts */
    ck_assert_msg(dgemma_bench(&opt, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_int_eq(t.n[DGEMMA_BENCH_STEP], 1);
    ck_assert_int_eq(t.step[0].context, 1024);
    ck_assert_int_eq(t.step[0].batch, 1);
    ck_assert_int_eq(t.n[DGEMMA_BENCH_PREFILL], 1);
}
END_TEST

START_TEST(given_up_anywhere)
{
    for (int i = 1; i < 8; i++) {
        told t = {.stop_after = i};
        dgemma_error err = {0};
        dgemma_bench_options opt = tiny_bench(&t);
        opt.n_layer = 1;
        opt.stages = true;
        opt.prompt = 64;
        ck_assert_int_eq(dgemma_bench(&opt, &err), DGEMMA_E_CANCELLED);
    }
}
END_TEST

static bool count_result(void *user, const dgemma_bench_result *r)
{
    ((told *)user)->n[r->kind]++;
    return true;
}

/* Memory that is too small for one place is told, and the next one is measured; too small for the
 * model it is a failure. Wherever it is out, in ever larger strides. */
START_TEST(too_little_memory)
{
    int n_skipped = 0, n_failed = 0;
    for (long n = 1;; n += 1 + n / 10) {
        told t = {0};
        dgemma_error err = {0};
        dgemma_bench_options opt = tiny_bench(&t);
        opt.n_layer = 1;
        opt.n_steps = 1;
        opt.prompt = -1;
        opt.on_result = count_result;
        opt.on_watch = NULL;
        opt.threads = (dgemma_bench_list){{1}, 1};
        opt.contexts = (dgemma_bench_list){{0, 64, 130}, 3};
        dg_test_fail_alloc_at(n);
        dgemma_status st = dgemma_bench(&opt, &err);
        bool reached = dg_test_alloc_done();
        n_skipped += t.n[DGEMMA_BENCH_SKIPPED];
        n_failed += st != DGEMMA_OK;
        /* jansson takes a text for broken when its memory is out */
        bool reading = !t.n[DGEMMA_BENCH_MACHINE];
        ck_assert_msg(st == DGEMMA_OK || st == DGEMMA_E_NOMEM || reading, "%ld: %s", n, err.msg);
        ck_assert_int_eq(t.n[DGEMMA_BENCH_PREFILL], 0);
        if (!st && t.n[DGEMMA_BENCH_BLOCK])
            ck_assert_int_eq(t.n[DGEMMA_BENCH_STEP] + t.n[DGEMMA_BENCH_SKIPPED], 3);
        if (!reached)
            break;
    }
    ck_assert_msg(n_skipped > 2 && n_failed > 5, "%d, %d", n_skipped, n_failed);
}
END_TEST

START_TEST(refused)
{
    static const struct {
        const char *say;
        dgemma_bench_list threads, contexts, batches, chunks;
        int prompt, n_steps;
        bool no_model, both;
    } bad[] = {
        {.say = "threads 0", .threads = {{0}, 1}},
        {.say = "threads 1025", .threads = {{1, 1025}, 2}},
        {.say = "context -1", .contexts = {{-1}, 1}},
        {.say = "context 3969: 0 to 3968", .contexts = {{3969}, 1}},
        {.say = "batch 0", .batches = {{0}, 1}},
        {.say = "batch 2147483647", .batches = {{INT32_MAX}, 1}},
        {.say = "chunk 0", .chunks = {{0}, 1}},
        {.say = "33 values", .threads = {.n = 33}},
        {.say = "-1 values", .batches = {.n = -1}},
        {.say = "prompt of 4097", .prompt = 4097},
        {.say = "prompt of -2", .prompt = -2},
        {.say = "10001 steps", .n_steps = 10001},
        {.say = "-1 steps", .n_steps = -1},
        {.say = "either", .no_model = true},
        {.say = "either", .both = true},
    };
    for (size_t i = 0; i < DG_COUNT(bad); i++) {
        told t = {0};
        dgemma_error err = {0};
        dgemma_bench_options opt = tiny_bench(&t);
        opt.threads = bad[i].threads;
        opt.contexts = bad[i].contexts;
        opt.batches = bad[i].batches;
        opt.chunks = bad[i].chunks;
        opt.prompt = bad[i].prompt;
        opt.n_steps = bad[i].n_steps;
        opt.synthetic = bad[i].no_model ? NULL : opt.synthetic;
        opt.engine.model_path = bad[i].both ? "model.gguf" : NULL;
        ck_assert_int_eq(dgemma_bench(&opt, &err), DGEMMA_E_ARG);
        ck_assert_msg(strstr(err.msg, bad[i].say) != NULL, "%s, wanted %s", err.msg, bad[i].say);
    }
    dgemma_bench_options opt = dgemma_bench_defaults();
    opt.synthetic = "Q4_K_M";
    ck_assert_int_eq(dgemma_bench(&opt, NULL), DGEMMA_E_ARG); /* nobody to tell */
    ck_assert_int_eq(dgemma_bench(NULL, NULL), DGEMMA_E_ARG);
}
END_TEST

Suite *bench_suite(void)
{
    Suite *s = suite_create("bench");
    TCase *c = tcase_create("numbers");
    tcase_add_test(c, median_and_quartiles);
    tcase_add_test(c, what_a_step_costs);
    tcase_add_test(c, what_narrower_weights_spare);
    tcase_add_test(c, rates_of_this_machine);
    tcase_add_test(c, memory_of_this_process);
    suite_add_tcase(s, c);
    c = tcase_create("session");
    tcase_add_test(c, room_of_many);
    tcase_add_test(c, contexts_are_filled);
    tcase_add_test(c, stages_are_timed);
    tcase_add_test(c, faces_say_the_same);
    tcase_add_test(c, steps_of_an_answer);
    tcase_add_test(c, routers_see_the_words);
    suite_add_tcase(s, c);
    c = tcase_create("run");
    tcase_add_test(c, lists_are_gone_through);
    tcase_add_test(c, what_is_made_up_when_nothing_is_said);
    tcase_add_test(c, given_up_anywhere);
    tcase_add_test(c, too_little_memory);
    tcase_add_test(c, refused);
    suite_add_tcase(s, c);
    return s;
}
