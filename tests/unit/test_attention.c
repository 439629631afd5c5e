/* Attention of large heads on the CPU, where products may be of bfloat16 numbers: how far it is
 * from the true one, and that a row's result is its own. Both with what the processor has and with
 * the tiles of AMX in plain C. */
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "cpu/cpu_internal.h"
#include "kernels/check.h"
#include "suites.h"

/* A prompt's rows and a canvas, both behind a prefix whose pages before the window are forgotten.
 * The long one is cut into parts for the canvas, of which the last is no whole run. */
enum {
    PREFIX = 395,
    TWO_RUNS =
        2 * ATTENTION_RUN - 7,   /* the prompt's rows see parts of the second one, the canvas all */
    IN_RUN = ATTENTION_RUN + 94, /* a window that begins in the first of two runs for all rows */
    WHOLE_PAGES = 427,           /* the canvas begins with a page, but with no run */
    STRADDLING = 1100, /* with a window of 599 some rows' begins in a run and others' before it */
    LONG = PARTED_KEYS + 77,
    N_ENCODE = 21,
    N_CANVAS = 70,
    N_ROW = N_ENCODE + N_CANVAS,
    MOST_PAGES = (LONG + N_ENCODE + DG_PAGE - 1) / DG_PAGE,
    N_HEAD = 4,
    N_KV_HEAD = 2,
    MOST_DIM = 512
};

typedef struct shape {
    int head_dim, window;
    bool tiles; /* in plain C */
    int prefix;
    dg_dtype type; /* of keys and values */
} shape;

typedef struct scene {
    dg_backend *be;
    dg_kv_store *kv;
    dg_kv_layer layer;
    dg_attention_weights w;
    dg_segment segment[2];
    dg_batch batch;
    int prefix, n_key, n_page; /* n_key: of the prefix and the prompt's rows */
    int32_t page[MOST_PAGES], position[N_ROW];
    dg_span block[N_ROW];
    float *q, *out;
} scene;

static float random_float(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

static dg_cpu_keys keys_of(const scene *s, int page, bool canvas)
{
    return dg_cpu_keys_at(dg_cpu_of(s->be), s->kv, 0, &s->segment[canvas], page, canvas);
}

/* Puts n keys of every head, or values, into a page. What else is there is no number. */
static void fill(const scene *s, const dg_cpu_keys *page, int n, bool value, float size,
                 uint64_t *state)
{
    const int dim = s->w.head_dim;
    memset(value ? page->value : page->key, 255, (size_t)s->w.n_kv_head * page->head_bytes);
    for (int h = 0; h < s->w.n_kv_head; h++)
        for (int slot = 0; slot < n; slot++) {
            float row[MOST_DIM];
            uint16_t spare[MOST_DIM];
            for (int i = 0; i < dim; i++)
                row[i] = size * random_float(state);
            const dg_cpu_slot at = {.page = *page, .head = h, .slot = slot, .value = value};
            dg_cpu_kv_put(dg_cpu_of(s->be), s->kv, &at, row, spare);
        }
}

static void fill_pages(scene *s, int n_key, bool canvas, uint64_t *state)
{
    for (int i = 0; i < n_key; i += DG_PAGE) {
        dg_cpu_keys k = keys_of(s, i / DG_PAGE, canvas);
        fill(s, &k, dg_min(DG_PAGE, n_key - i), false, 0.3f, state);
        fill(s, &k, dg_min(DG_PAGE, n_key - i), true, 1, state);
    }
}

static void place_rows(scene *s)
{
    for (int r = 0; r < N_ROW; r++) {
        s->position[r] = s->prefix + r;
        s->block[r] = (dg_span){s->prefix + r, s->prefix + r + 1};
    }
    for (int i = 0; i < s->n_page; i++)
        s->page[i] = (i + 3) % s->n_page;
    for (int i = 0; i < 2; i++)
        s->segment[i] = (dg_segment){.canvas = i,
                                     .first_row = i ? N_ENCODE : 0,
                                     .n_row = i ? N_CANVAS : N_ENCODE,
                                     .position = i ? s->n_key : s->prefix,
                                     .page = {s->page, s->page},
                                     .n_page = {s->n_page, s->n_page}};
    s->batch = (dg_batch){.n_row = N_ROW,
                          .n_encode = N_ENCODE,
                          .position = s->position,
                          .block = s->block,
                          .n_segment = 2,
                          .segment = s->segment,
                          .kv = s->kv};
}

/* The same numbers whoever computes. */
static void scene_open_heads(scene *s, const dg_cpu_options *opt, shape of, int n_kv_head)
{
    const int head_dim = of.head_dim, window = of.window;
    const dg_dtype type = of.type;
    *s = (scene){
        .layer = {DG_KV_SLIDING, n_kv_head, head_dim},
        .w = {.n_head = N_HEAD, .n_kv_head = n_kv_head, .head_dim = head_dim, .window = window},
        .prefix = of.prefix};
    s->n_key = s->prefix + N_ENCODE;
    s->n_page = dg_ceil_div(s->n_key, DG_PAGE);
    int n_page[DG_KV_GROUPS];
    ck_assert_int_eq(dg_cpu_open(&s->be, opt, NULL), DGEMMA_OK);
    if (of.tiles) {
        dg_cpu_of(s->be)->k.b = &check_plain_bfloat;
        dg_cpu_of(s->be)->bfloat = true;
    }
    ck_assert_int_eq(
        s->be->kv_open(s->be, &s->kv, &(dg_kv_config){type, 1, &s->layer}, 0, n_page, NULL),
        DGEMMA_OK);
    const dg_plan plan = {.n_row = N_ROW,
                          .n_embd = 32,
                          .n_ff = 32,
                          .n_vocab = 32,
                          .max_head_dim = head_dim,
                          .max_group = N_HEAD / n_kv_head,
                          .max_q_dim = N_HEAD * head_dim,
                          .max_kv_dim = n_kv_head * head_dim,
                          .n_segment = 2,
                          .kv_type = type,
                          .n_expert = 1,
                          .n_expert_used = 1,
                          .n_ff_expert = 32};
    ck_assert_int_eq(s->be->plan(s->be, &plan, NULL), DGEMMA_OK);
    place_rows(s);
    /* or it is none */
    ck_assert(!window || dg_encode_span(s->position[0], s->block[0], window, 0).first > 0);
    for (int i = 0; i < s->n_page; i++)
        ck_assert(s->be->kv_take(s->be, s->kv, DG_KV_SLIDING, i));
    s->be->begin(s->be, &s->batch);
    uint64_t state = 7;
    fill_pages(s, s->n_key, false, &state);
    fill_pages(s, N_CANVAS, true, &state);
    for (int i = 0; window && i < (s->prefix - window + 1) / DG_PAGE; i++)
        s->page[i] = DG_NO_PAGE;
    size_t n = (size_t)(N_ROW * N_HEAD * head_dim);
    s->q = dg_array(n, sizeof *s->q);
    s->out = dg_array(n, sizeof *s->out);
    for (size_t i = 0; i < n; i++)
        s->q[i] = random_float(&state);
}

static void scene_open(scene *s, const dg_cpu_options *opt, shape of)
{
    scene_open_heads(s, opt, of, N_KV_HEAD);
}

static void scene_close(scene *s)
{
    dg_free(s->q);
    dg_free(s->out);
    s->be->finish(s->be, NULL);
    s->be->kv_close(s->be, s->kv);
    s->be->close(s->be);
}

static void attend(scene *s, int first, int end)
{
    s->be->attention(s->be, &(dg_attention_args){s->out, s->q, &s->w, s->kv, 0, {first, end}});
}

/* ---- the true one, in double ---- */

typedef struct truth {
    double value[MOST_DIM], bound[MOST_DIM]; /* how far from it a result may be */
    double sum, reach; /* of the shares; the most that a score's terms come to */
} truth;

static void take_keys(truth *t, const scene *s, const float *q, int kv_head, dg_span span,
                      bool canvas)
{
    const int dim = s->w.head_dim;
    for (int p = span.first; p < span.end; p++) {
        dg_cpu_slot at = {keys_of(s, p / DG_PAGE, canvas), 0, kv_head, p % DG_PAGE, false};
        float key[MOST_DIM], values[MOST_DIM];
        dg_cpu_kv_get(s->kv, &at, key);
        at.value = true;
        dg_cpu_kv_get(s->kv, &at, values);
        double score = 0, reach = 0;
        for (int i = 0; i < dim; i++) {
            double term = (double)q[i] * (double)key[i];
            score += term;
            reach += fabs(term);
        }
        const double share = exp(score);
        t->sum += share;
        t->reach = fmax(t->reach, reach);
        for (int i = 0; i < dim; i++) {
            const double value = (double)values[i];
            t->value[i] += share * value;
            t->bound[i] += share * fabs(value);
        }
    }
}

/* Rounding queries to eight bits moves a score by at most 2^-9 of what its terms come to, and the
 * largest one's share as well; shares are rounded once more. Where keys and values are numbers
 * times a step, both are rounded too. */
static truth true_line(const scene *s, int row, int head)
{
    const int dim = s->w.head_dim, kv_head = head / (N_HEAD / s->w.n_kv_head);
    const float *q = s->q + (size_t)(row * N_HEAD + head) * (size_t)dim;
    const bool canvas = row >= N_ENCODE;
    truth t = {0};
    take_keys(&t, s, q, kv_head,
              canvas ? dg_canvas_span(s->n_key, s->w.window)
                     : dg_encode_span(s->position[row], s->block[row], s->w.window, 0),
              false);
    if (canvas)
        take_keys(&t, s, q, kv_head, (dg_span){0, N_CANVAS}, true);
    const double steps = s->kv->layout.type == DG_Q8_0 ? 0x1p-9 + 0x1p-18 : 0;
    double off = exp(2 * t.reach * (0x1p-9 + steps + dim * DG_BFLOAT_LOSS)) * (1 + DG_SHARE_LOSS) /
                     (1 - DG_SHARE_LOSS) * (1 + steps) -
                 1 + 2 * s->n_key * DG_BFLOAT_LOSS;
    for (int i = 0; i < dim; i++) {
        t.value[i] /= t.sum;
        t.bound[i] *= off / t.sum;
    }
    return t;
}

/* ---- the tests ---- */

static const shape shapes[] = {
    {256, 0, false, PREFIX, DG_BF16},       {256, 150, false, PREFIX, DG_BF16},
    {512, 0, false, PREFIX, DG_BF16},       {288, 333, false, PREFIX, DG_BF16},
    {272, 333, false, PREFIX, DG_BF16},     {256, 150, true, PREFIX, DG_BF16},
    {288, 333, true, PREFIX, DG_BF16},      {512, 0, true, PREFIX, DG_BF16},
    {256, 0, false, LONG, DG_BF16},         {256, 0, true, LONG, DG_BF16},
    {256, 0, false, TWO_RUNS, DG_BF16},     {256, 0, true, TWO_RUNS, DG_BF16},
    {256, IN_RUN, true, TWO_RUNS, DG_BF16}, {256, 599, true, STRADDLING, DG_BF16},
    {256, 1, false, WHOLE_PAGES, DG_BF16},  {256, 1, true, WHOLE_PAGES, DG_BF16},

    {256, 0, false, PREFIX, DG_Q8_0},       {256, 150, true, PREFIX, DG_Q8_0},
    {288, 333, false, PREFIX, DG_Q8_0},     {512, 0, true, PREFIX, DG_Q8_0},
    {272, 333, false, PREFIX, DG_Q8_0},     {34, 100, false, PREFIX, DG_Q8_0},
    {256, 0, false, PREFIX, DG_FP8},        {256, 150, true, PREFIX, DG_FP8},
    {288, 333, false, PREFIX, DG_FP8},      {512, 0, true, PREFIX, DG_FP8},
    {272, 333, false, PREFIX, DG_FP8},      {34, 100, false, PREFIX, DG_FP8},
};
static const shape long_shapes[] = {{256, 0, false, LONG, DG_BF16},
                                    {256, 0, true, LONG, DG_BF16},
                                    {256, 0, false, LONG, DG_Q8_0},
                                    {256, 0, true, LONG, DG_FP8}};

/* Behind a long prefix rows take their time: the last few will do. */
static int first_row(const scene *s)
{
    return s->prefix == LONG ? N_ROW - 11 : 0;
}

/* Every result within its bound; all together within a hundredth of their size. Rows from `first`
 * on, `step` apart. */
static void expect_truth(const scene *s, int first, int step)
{
    const int dim = s->w.head_dim;
    double off = 0, size = 0;
    for (int row = first; row < N_ROW; row += step)
        for (int head = 0; head < N_HEAD; head++) {
            truth t = true_line(s, row, head);
            const float *got = s->out + (size_t)(row * N_HEAD + head) * (size_t)dim;
            for (int i = 0; i < dim; i++) {
                double d = (double)got[i] - t.value[i];
                ck_assert_double_le(fabs(d), t.bound[i]);
                off += d * d;
                size += t.value[i] * t.value[i];
            }
        }
    ck_assert_double_le(sqrt(off / size), 0.01);
}

START_TEST(results_stay_within_their_bound)
{
    scene s;
    scene_open(&s, &(dg_cpu_options){.n_thread = 2, .flags = dg_cpu_flags()}, shapes[_i]);
    const int first = first_row(&s);
    attend(&s, first, N_ROW);
    expect_truth(&s, first, first ? 10 : 6);
    scene_close(&s);
}
END_TEST

START_TEST(rows_do_not_know_of_each_other)
{
    scene s, other;
    const int dim = shapes[_i].head_dim;
    scene_open(&s, &(dg_cpu_options){.n_thread = 1, .flags = dg_cpu_flags()}, shapes[_i]);
    scene_open(&other, &(dg_cpu_options){.n_thread = 3, .flags = dg_cpu_flags()}, shapes[_i]);
    const int first = first_row(&s);
    attend(&s, first, N_ROW);
    for (int row = first, some = 1; row < N_ROW; row += some, some = some % 5 + 1)
        attend(&other, row, dg_min(row + some, N_ROW));
    const size_t before = (size_t)(first * N_HEAD * dim), n = (size_t)(N_ROW * N_HEAD * dim);
    ck_assert_mem_eq(s.out + before, other.out + before, (n - before) * sizeof *s.out);
    scene_close(&s);
    scene_close(&other);
}
END_TEST

/* One key head for all query heads, and one thread, which has two tasks: the first one has all the
 * lines that there can be. */
START_TEST(a_task_may_have_as_many_lines_as_there_is_room_for)
{
    _Static_assert(N_CANVAS * N_HEAD > ATTENTION_LINES, "more than one task");
    const dg_cpu_options opt = {.n_thread = 1, .flags = dg_cpu_flags()};
    const shape of = {256, 0, _i, TWO_RUNS, DG_BF16};
    scene s, other;
    scene_open_heads(&s, &opt, of, 1);
    scene_open_heads(&other, &opt, of, 1);
    attend(&s, N_ENCODE, N_ROW);
    for (int row = N_ENCODE; row < N_ROW; row++)
        attend(&other, row, row + 1);
    const size_t at = (size_t)(N_ENCODE * N_HEAD * of.head_dim);
    ck_assert_mem_eq(s.out + at, other.out + at,
                     (size_t)(N_CANVAS * N_HEAD * of.head_dim) * sizeof *s.out);
    expect_truth(&s, N_ENCODE, 9);
    scene_close(&s);
    scene_close(&other);
}
END_TEST

/* A key far above all others before it for one row, and for its first head alone. */
static void put_far_key(scene *s, int row, int position)
{
    const int dim = s->w.head_dim;
    const float *q = s->q + (size_t)(row * N_HEAD) * (size_t)dim;
    float size = 0, key[MOST_DIM];
    uint16_t spare[MOST_DIM];
    for (int i = 0; i < dim; i++)
        size += q[i] * q[i];
    for (int i = 0; i < dim; i++)
        key[i] = q[i] * 110 / size;
    const dg_cpu_slot at = {.page = keys_of(s, position / DG_PAGE, false),
                            .slot = position % DG_PAGE};
    dg_cpu_kv_put(dg_cpu_of(s->be), s->kv, &at, key, spare);
}

START_TEST(scores_may_leap)
{
    enum { ROW = N_ROW - 5 };
    /* in either panel of two, its row in a tile that is full and in one that is not */
    const int at_key = ATTENTION_RUN + 37 + _i / 2 * DG_PANEL, first = ROW - 2 - _i / 2 * 4;
    scene s, other;
    const shape of = long_shapes[_i];
    scene_open(&s, &(dg_cpu_options){.n_thread = 1, .flags = dg_cpu_flags()}, of);
    scene_open(&other, &(dg_cpu_options){.n_thread = 1, .flags = dg_cpu_flags()}, of);
    put_far_key(&s, ROW, at_key);
    put_far_key(&other, ROW, at_key);
    attend(&s, first, N_ROW);
    for (int row = first; row < N_ROW; row++)
        attend(&other, row, row + 1);
    for (int row = first; row < N_ROW; row++) {
        const size_t at = (size_t)(row * N_HEAD) * (size_t)of.head_dim;
        ck_assert_mem_eq(s.out + at, other.out + at,
                         (size_t)(N_HEAD * of.head_dim) * sizeof *s.out);
        const truth t = true_line(&s, row, 0);
        for (int i = 0; i < of.head_dim; i++)
            ck_assert_double_le(fabs((double)s.out[at + (size_t)i] - t.value[i]), t.bound[i]);
    }
    scene_close(&s);
    scene_close(&other);
}
END_TEST

/* Puts a key of the first head whose first two numbers are these, and all others 0. */
static void put_key(scene *s, int position, float first, float second)
{
    const float key[MOST_DIM] = {first, second};
    uint16_t spare[MOST_DIM];
    const dg_cpu_slot at = {.page = keys_of(s, position / DG_PAGE, false),
                            .slot = position % DG_PAGE};
    dg_cpu_kv_put(dg_cpu_of(s->be), s->kv, &at, key, spare);
}

/* A score is 64 + 2^-18 above those of the first run, which is 64 as a float; and one of the next
 * row far more. So the first row's run is softened beside its product where it is alone, and after
 * it where both share a task. */
START_TEST(scores_may_be_at_the_edge_of_a_leap)
{
    enum { ROW = N_ENCODE + 3 };
    scene s, other;
    const shape of = {256, 0, _i, TWO_RUNS, DG_BF16};
    scene *const both[] = {&s, &other};
    for (int i = 0; i < 2; i++) {
        scene_open(both[i], &(dg_cpu_options){.n_thread = 1, .flags = dg_cpu_flags()}, of);
        for (int p = 0; p < both[i]->n_key; p++)
            put_key(both[i], p, -100, 0);
        put_key(both[i], ATTENTION_RUN + 37, -36, 0x1p-18f);
        for (int row = ROW; row < ROW + 2; row++) {
            float *q = both[i]->q + row * N_HEAD * of.head_dim;
            memset(q, 0, (size_t)(N_HEAD * of.head_dim) * sizeof *q);
            q[0] = row == ROW ? 1 : 3;
            q[1] = 1;
        }
    }
    attend(&s, ROW, ROW + 2);
    attend(&other, ROW, ROW + 1);
    const size_t at = (size_t)(ROW * N_HEAD * of.head_dim);
    ck_assert_mem_eq(s.out + at, other.out + at, (size_t)(N_HEAD * of.head_dim) * sizeof *s.out);
    scene_close(&s);
    scene_close(&other);
}
END_TEST

/* Two canvases behind the same long prefix, whose keys are both taken in parts: with the same
 * queries and keys they have the same results. */
START_TEST(long_canvases_do_not_know_of_each_other)
{
    enum { ROWS = N_ROW / 2 };
    scene s;
    const shape of = long_shapes[_i];
    scene_open(&s, &(dg_cpu_options){.n_thread = 2, .flags = dg_cpu_flags()}, of);
    const size_t n = (size_t)(ROWS * N_HEAD * of.head_dim);
    s.batch.n_row = 2 * ROWS;
    s.batch.n_encode = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t state = 5;
        s.segment[i] = s.segment[1];
        s.segment[i].first_row = i * ROWS;
        s.segment[i].n_row = ROWS;
        dg_cpu_keys k = dg_cpu_keys_at(dg_cpu_of(s.be), s.kv, 0, &s.segment[i], 0, true);
        fill(&s, &k, ROWS, false, 0.3f, &state);
        fill(&s, &k, ROWS, true, 1, &state);
    }
    memcpy(s.q + n, s.q, n * sizeof *s.q);
    memset(s.out, 255, 2 * n * sizeof *s.out);
    attend(&s, 0, 2 * ROWS);
    ck_assert_mem_eq(s.out, s.out + n, n * sizeof *s.out);
    for (size_t i = 0; i < n; i++)
        ck_assert(isfinite(s.out[i]));
    scene_close(&s);
}
END_TEST

/* Where the processor has the instructions, and only there and for large heads, they are used. */
START_TEST(small_heads_and_the_float_profile_keep_to_floats)
{
    static const int dims[] = {128, BFLOAT_HEAD};
    static const dg_dtype types[] = {DG_BF16, DG_Q8_0, DG_FP8};
    scene s, exact;
    const int dim = dims[_i % 2], n = N_ROW * N_HEAD * dim;
    const bool tiles = _i / 2 % 2;
    const dg_dtype type = types[_i / 4];
    scene_open(&s, &(dg_cpu_options){.n_thread = 1, .flags = dg_cpu_flags()},
               (shape){dim, 0, tiles, PREFIX, type});
    scene_open(&exact, &(dg_cpu_options){.n_thread = 1, .flags = dg_cpu_flags(), .exact = true},
               (shape){dim, 0, false, PREFIX, type});
    attend(&s, 0, N_ROW);
    attend(&exact, 0, N_ROW);
    bool same = memcmp(s.out, exact.out, (size_t)n * sizeof *s.out) == 0;
    ck_assert_int_eq(same, dim < BFLOAT_HEAD || !(tiles || dg_cpu_flags() & DG_CPU_BF16));
    scene_close(&s);
    scene_close(&exact);
}
END_TEST

/* What is never kept is held as bfloat16, whatever becomes of the others. */
START_TEST(a_canvas_has_its_own_keys_in_bfloat16)
{
    static const int dims[] = {128, BFLOAT_HEAD};
    const dg_cpu_options opt = {.n_thread = 1, .flags = dg_cpu_flags()};
    const int dim = dims[_i % 2];
    scene wide, s;
    scene_open(&wide, &opt, (shape){dim, 0, false, PREFIX, DG_BF16});
    scene_open(&s, &opt, (shape){dim, 0, false, PREFIX, _i / 2 ? DG_FP8 : DG_Q8_0});
    for (int i = 0; i < 2 * N_CANVAS * N_KV_HEAD; i++) {
        const int slot = i / 2 % N_CANVAS, head = i / 2 / N_CANVAS;
        float want[MOST_DIM], got[MOST_DIM];
        dg_cpu_slot at = {keys_of(&wide, slot / DG_PAGE, true), 0, head, slot % DG_PAGE, i % 2};
        dg_cpu_kv_get(wide.kv, &at, want);
        at.page = keys_of(&s, slot / DG_PAGE, true);
        dg_cpu_kv_get(s.kv, &at, got);
        ck_assert_mem_eq(got, want, (size_t)dim * sizeof *got);
    }
    scene_close(&wide);
    scene_close(&s);
}
END_TEST

/* Pages of a MiB, which lie in huge pages of the system where there are any: each is usable to its
 * last byte, and gone when it was given back, while its neighbours stay. */
START_TEST(large_pages_come_and_go)
{
    enum { BYTES = 1 << 20, PAGES = 5 };
    const dg_kv_layer layer = {DG_KV_SLIDING, 8, 512};
    dg_backend *be;
    dg_kv_store *kv;
    int n_page[DG_KV_GROUPS];
    ck_assert_int_eq(dg_cpu_open(&be, &(dg_cpu_options){.n_thread = 1}, NULL), DGEMMA_OK);
    ck_assert_int_eq(be->kv_open(be, &kv, &(dg_kv_config){DG_BF16, 1, &layer},
                                 PAGES * BYTES + BYTES / 2, n_page, NULL),
                     DGEMMA_OK);
    ck_assert_int_eq(n_page[DG_KV_SLIDING], PAGES);
    unsigned char *slab = kv->slab[DG_KV_SLIDING].base;
    for (int i = PAGES - 1; i >= 0; i--) {
        ck_assert(be->kv_take(be, kv, DG_KV_SLIDING, i));
        memset(slab + i * BYTES, i + 1, BYTES);
    }
    be->kv_give(be, kv, DG_KV_SLIDING, 2);
    ck_assert(be->kv_take(be, kv, DG_KV_SLIDING, 2));
    for (int i = 0; i < PAGES; i++)
        for (int k = 0; k < BYTES; k += 509)
            ck_assert_int_eq(slab[i * BYTES + k], i == 2 ? 0 : i + 1);
    be->kv_close(be, kv);
    be->close(be);
}
END_TEST

Suite *attention_suite(void)
{
    Suite *s = suite_create("attention");
    TCase *t = tcase_create("attention");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, results_stay_within_their_bound, 0, (int)DG_COUNT(shapes));
    tcase_add_loop_test(t, rows_do_not_know_of_each_other, 0, (int)DG_COUNT(shapes));
    tcase_add_loop_test(t, a_task_may_have_as_many_lines_as_there_is_room_for, 0, 2);
    tcase_add_loop_test(t, scores_may_leap, 0, (int)DG_COUNT(long_shapes));
    tcase_add_loop_test(t, scores_may_be_at_the_edge_of_a_leap, 0, 2);
    tcase_add_loop_test(t, long_canvases_do_not_know_of_each_other, 0, (int)DG_COUNT(long_shapes));
    tcase_add_loop_test(t, a_canvas_has_its_own_keys_in_bfloat16, 0, 4);
    tcase_add_test(t, large_pages_come_and_go);
    tcase_add_loop_test(t, small_heads_and_the_float_profile_keep_to_floats, 0, 12);
    suite_add_tcase(s, t);
    return s;
}
