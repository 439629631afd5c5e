/* The CPU backend with weights as bytes, as it is with VNNI, AMX or BFMMLA, by the product in plain
 * C and by the processor's own: experts whose rows go through both products. */
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "cpu/cpu_internal.h"
#include "kernels/check.h"
#include "suites.h"

enum {
    N_ROW = 64, /* which threads share among them */
    FEW = 16,   /* rows that go through experts */
    N_EXPERT = 3,
    N_USED = 2,
    N_EMBD = 768,
    N_FF = 800, /* three slices and a block */
};

typedef struct scene {
    dg_backend *be;
    dg_batch batch;
    dg_expert_weights w;
    dg_mlp_weights dense;
    void *data[3];
    float norm[N_EMBD], x[N_ROW * N_EMBD], out[N_ROW * N_EMBD], weight[N_ROW * N_USED];
    int32_t expert[N_ROW * N_USED];
} scene;

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static float random_float(uint32_t *state)
{
    return (float)next(state) / (float)(1 << 23) - 1;
}

/* Blocks of anything; steps, the halves at `first` and `second` of each, are 2^-7 to 2^-6. */
static void set_weight(dg_weight *w, void **data, dg_dtype type, int n_out, int n_in, int first,
                       int second, uint32_t *state)
{
    const size_t block = dg_dtype_bytes(type, (size_t)dg_dtype_block(type)),
                 row = dg_dtype_bytes(type, (size_t)n_in), n = N_EXPERT * (size_t)n_out * row;
    uint8_t *p = dg_array(n, 1);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)next(state);
    for (size_t i = 0; i < n; i += block)
        for (int k = 0; k < 2; k++)
            p[i + (size_t)(k ? second : first) + 1] =
                0x20 | (p[i + (size_t)(k ? second : first) + 1] & 3);
    *data = p;
    *w = (dg_weight){.type = type,
                     .n_mat = N_EXPERT,
                     .n_out = n_out,
                     .n_in = n_in,
                     .row_bytes = row,
                     .mat_bytes = (size_t)n_out * row,
                     .data = p};
}

/* `own`: with the processor's product where it has one. */
static void scene_open_with(scene *s, bool exact, int threads, bool own)
{
    uint32_t state = 5;
    memset(s, 0, sizeof *s);
    ck_assert_int_eq(
        dg_cpu_open(&s->be,
                    &(dg_cpu_options){.n_thread = threads, .flags = dg_cpu_flags(), .exact = exact},
                    NULL),
        DGEMMA_OK);
    dg_cpu *cpu = dg_cpu_of(s->be);
    if (!own || !cpu->k.bytes)
        cpu->k.bytes = &dg_bytes_ref;
    cpu->integer = !exact;
    set_weight(&s->w.gate, &s->data[0], DG_Q4_K, N_FF, N_EMBD, 0, 2, &state);
    set_weight(&s->w.up, &s->data[1], DG_Q6_K, N_FF, N_EMBD, 208, 208, &state);
    set_weight(&s->w.down, &s->data[2], DG_Q5_0, N_EMBD, N_FF, 0, 0, &state);
    s->w.norm = s->w.post_norm = s->norm;
    s->dense = (dg_mlp_weights){s->norm, s->norm, s->w.gate, s->w.up, s->w.down};
    for (int i = 0; i < N_EMBD; i++)
        s->norm[i] = 1;
    for (int i = 0; i < N_ROW * N_EMBD; i++)
        s->x[i] = random_float(&state);
    for (int i = 0; i < N_ROW * N_USED; i++) {
        s->expert[i] =
            i % N_USED ? (s->expert[i - 1] + 1) % N_EXPERT : (int)(next(&state) % N_EXPERT);
        s->weight[i] = 0.5f;
    }
    const dg_plan plan = {.n_row = N_ROW,
                          .n_embd = N_EMBD,
                          .n_ff = N_FF,
                          .n_vocab = 32,
                          .max_head_dim = 32,
                          .max_group = 1,
                          .max_q_dim = 32,
                          .max_kv_dim = 32,
                          .n_segment = 1,
                          .kv_type = DG_BF16,
                          .n_expert = N_EXPERT,
                          .n_expert_used = N_USED,
                          .n_ff_expert = N_FF,
                          .rms_eps = 1e-6f};
    ck_assert_int_eq(s->be->plan(s->be, &plan, NULL), DGEMMA_OK);
    s->batch = (dg_batch){.n_row = N_ROW};
    s->be->begin(s->be, &s->batch);
}

static void scene_open(scene *s, bool exact, int threads)
{
    scene_open_with(s, exact, threads, false);
}

static void scene_close(scene *s)
{
    s->be->finish(s->be, NULL);
    s->be->close(s->be);
    for (int i = 0; i < 3; i++)
        dg_free(s->data[i]);
}

static void run(scene *s, int first, int end)
{
    s->be->experts(s->be, &(dg_experts_args){.out = s->out,
                                             .x = s->x,
                                             .expert = s->expert,
                                             .weight = s->weight,
                                             .n_used = N_USED,
                                             .w = &s->w,
                                             .rows = {first, end}});
}

static void run_dense(scene *s, int first, int end)
{
    s->be->dense(
        s->be,
        &(dg_dense_args){
            .out = s->out, .x = s->x, .w = &s->dense, .experts = &s->w, .rows = {first, end}});
}

/* Activations and weights of eight bits: results move by 1.7 % of their size. */
START_TEST(experts_as_bytes_are_near_those_in_floats)
{
    static scene s, exact;
    scene_open(&s, false, 1);
    scene_open(&exact, true, 1);
    ck_assert_int_eq(dg_cpu_way(dg_cpu_of(s.be), &s.w.down), DG_QWAY_BYTES);
    run(&s, 0, FEW);
    run(&exact, 0, FEW);
    double off = 0, size = 0;
    for (int i = 0; i < FEW * N_EMBD; i++) {
        off += pow((double)s.out[i] - (double)exact.out[i], 2);
        size += pow((double)exact.out[i], 2);
    }
    ck_assert_double_gt(off, 0);
    ck_assert_double_lt(sqrt(off / size), 0.021);
    scene_close(&s);
    scene_close(&exact);
}
END_TEST

START_TEST(a_row_does_not_know_of_others_or_of_threads)
{
    static scene all, alone;
    scene_open(&all, false, 3);
    scene_open(&alone, false, 1);
    run(&all, 0, FEW);
    for (int r = 0; r < FEW; r++)
        run(&alone, r, r + 1);
    ck_assert_mem_eq(all.out, alone.out, FEW * N_EMBD * sizeof *all.out);
    scene_close(&all);
    scene_close(&alone);
}
END_TEST

START_TEST(rows_that_threads_share_are_those_of_one)
{
    static scene all, alone;
    scene_open(&all, false, 8);
    scene_open(&alone, false, 1);
    run_dense(&all, 0, N_ROW);
    for (int r = 0; r < N_ROW; r++)
        run_dense(&alone, r, r + 1);
    ck_assert_mem_eq(all.out, alone.out, sizeof all.out);
    scene_close(&all);
    scene_close(&alone);
}
END_TEST

/* However its rows lie, and wherever an expert's begin. */
START_TEST(the_processor_gives_the_bits_of_plain_c)
{
    static scene own, plain;
    scene_open_with(&own, false, 3, true);
    scene_open(&plain, false, 1);
    run(&own, 0, N_ROW);
    run(&plain, 0, N_ROW);
    ck_assert_mem_eq(own.out, plain.out, sizeof own.out);
    run(&own, 3, 8);
    ck_assert_mem_eq(own.out, plain.out, sizeof own.out);
    run_dense(&own, 0, N_ROW);
    run_dense(&plain, 0, N_ROW);
    ck_assert_mem_eq(own.out, plain.out, sizeof own.out);
    scene_close(&own);
    scene_close(&plain);
}
END_TEST

/* Of sets whose instructions are in plain C: with AMX rows are one tile, two, three of which the
 * last two have a row in common, and four; with VNNI one row, eight and eight, nine and eight, and
 * twelve or fewer more often. */
START_TEST(rows_together_have_the_bits_of_plain_c)
{
    static const int rows[] = {1, 16, 17, 35, N_ROW};
    static const dg_byte_kernels *const sets[] = {&check_plain_bytes_amx, &check_plain_bytes_vnni};
    static scene set, plain;
    scene_open(&set, false, 1);
    scene_open(&plain, false, 1);
    dg_cpu_of(set.be)->k.bytes = sets[_i];
    run(&set, 0, FEW);
    run(&plain, 0, FEW);
    ck_assert_mem_eq(set.out, plain.out, (size_t)FEW * N_EMBD * sizeof *set.out);
    run_dense(&plain, 0, N_ROW);
    for (size_t i = 0; i < DG_COUNT(rows); i++) {
        const size_t n = (size_t)(rows[i] * N_EMBD);
        memset(set.out, 255, sizeof set.out);
        run_dense(&set, 0, rows[i]);
        ck_assert_mem_eq(set.out, plain.out, n * sizeof *plain.out);
    }
    scene_close(&set);
    scene_close(&plain);
}
END_TEST

/* Those behind the most that a product takes are what they are where they come first. */
START_TEST(rows_beyond_a_product)
{
    enum { MANY = DG_BYTE_ROWS + 5, N_COL = 40, APART = N_ROW - 1 };
    static scene s;
    static float y[MANY * N_COL];
    scene_open_with(&s, false, 1, true);
    const dg_cpu *cpu = dg_cpu_of(s.be);
    dg_qpair *rows = dg_array(dg_cpu_qrows_bytes(MANY, N_EMBD), 1);
    for (int r = 0; r < MANY; r++)
        dg_cpu_quantise_row(cpu, rows, r, s.x + r % APART * N_EMBD, &s.w.gate);
    const dg_cpu_matmul m = {.y = y, .ldy = N_COL, .n_row = MANY, .w = &s.w.gate, .q = rows};
    dg_cpu_matmul_cols(cpu, &m, 0, N_COL, 0);
    for (int r = DG_BYTE_ROWS; r < MANY; r++)
        ck_assert_mem_eq(y + r * N_COL, y + r % APART * N_COL, N_COL * sizeof *y);
    dg_free(rows);
    scene_close(&s);
}
END_TEST

/* Small models have the same bits everywhere. */
START_TEST(few_values_stay_as_they_are_stored)
{
    static scene s;
    scene_open(&s, false, 1);
    dg_weight w = s.w.gate;
    w.n_in = 512; /* the widest of the pocket model */
    ck_assert_int_eq(dg_cpu_way(dg_cpu_of(s.be), &w), DG_QWAY_SUPER);
    w.type = DG_Q8_0;
    ck_assert_int_eq(dg_cpu_way(dg_cpu_of(s.be), &w), DG_QWAY_BLOCKS);
    scene_close(&s);
}
END_TEST

Suite *byte_products_suite(void)
{
    Suite *s = suite_create("byte_products");
    TCase *t = tcase_create("experts");
    tcase_add_test(t, experts_as_bytes_are_near_those_in_floats);
    tcase_add_test(t, a_row_does_not_know_of_others_or_of_threads);
    tcase_add_test(t, rows_that_threads_share_are_those_of_one);
    tcase_add_test(t, the_processor_gives_the_bits_of_plain_c);
    tcase_add_loop_test(t, rows_together_have_the_bits_of_plain_c, 0, 2);
    tcase_add_test(t, rows_beyond_a_product);
    tcase_add_test(t, few_values_stay_as_they_are_stored);
    suite_add_tcase(s, t);
    return s;
}
