/* cuda_project.cu against the product and the heads by themselves, which have checks of their own:
 * the same bits in queries and in pages. */
#include <math.h>
#include <string.h>
#include "base/common.h"
#include "cuda/check_experts.h"

enum { HEAD = 256, PAGE = DG_CUDA_PAGE, MAX_ROW = 384 };
enum { SLAB_PAGES = 8, CANVAS_PAGES = 8 };

/* A canvas of n_canvas rows behind n_encode rows of a prompt from position 50 on. */
typedef struct scene {
    dg_dtype type;
    int n_head, n_kv_head, n_encode, n_canvas, n_in, n_pair;
    int n_sm; /* of the emulated device */
} scene;

typedef struct place {
    float *q;
    unsigned char *slab, *canvas;
    size_t slab_bytes, canvas_bytes;
} place;

static float *device_random(size_t n, double scale)
{
    return device_copy(random_floats(n, scale), n * sizeof(float));
}

/* Pages in disorder. */
static void lay_out(dg_cuda_heads_args *a, const scene *s)
{
    static const int32_t order[] = {5, 2, 7, 0, 3, 6, 1, 4};
    int32_t *of = host_bytes(MAX_ROW * sizeof *of);
    const int32_t *page = device_copy(order, sizeof order);
    dg_cuda_segment segment[2] = {
        {false, 0, s->n_encode, 50, page, 0},
        {true, s->n_encode, s->n_canvas, 50 + s->n_encode, page, 1},
    };
    for (int i = s->n_encode; i < a->n_row; i++)
        of[i] = 1;
    a->segment = device_copy(segment, sizeof segment);
    a->segment_of = device_copy(of, (size_t)a->n_row * sizeof *of);
}

static void make_heads(dg_cuda_heads_args *a, const scene *s)
{
    size_t angles = (size_t)(s->n_encode + s->n_canvas) * (size_t)s->n_pair;
    *a = (dg_cuda_heads_args){
        .q_norm = device_random(HEAD, 1),
        .k_norm = device_random(HEAD, 0.1),
        .cos = device_random(angles, 0.7),
        .sin = device_random(angles, 0.7),
        .n_row = s->n_encode + s->n_canvas,
        .n_pair = s->n_pair,
        .eps = 1e-6f,
        .kv = {.type = DG_BF16,
               .n_head = s->n_head,
               .n_kv_head = s->n_kv_head,
               .head_dim = HEAD,
               .offset = 256},
    };
    a->kv.page_bytes = 2 * (size_t)s->n_kv_head * HEAD * PAGE * 2 + 512;
    lay_out(a, s);
}

/* Results of their own. */
static place make_place(dg_cuda_heads_args *a)
{
    place p = {.slab_bytes = SLAB_PAGES * a->kv.page_bytes,
               .canvas_bytes = CANVAS_PAGES * a->kv.page_bytes};
    p.q = device_bytes((size_t)a->n_row * (size_t)a->kv.n_head * HEAD * sizeof *p.q);
    p.slab = device_bytes(p.slab_bytes);
    p.canvas = device_bytes(p.canvas_bytes);
    a->q = p.q;
    a->kv.slab = p.slab;
    a->kv.canvas_slab = p.canvas;
    return p;
}

/* Each head's values of 16 bits are in front of what were its floats. */
static void *read_queries(const scene *s, const place *p)
{
    size_t heads = (size_t)(s->n_encode + s->n_canvas) * (size_t)s->n_head;
    float *all = host_bytes(heads * HEAD * sizeof *all);
    unsigned char *out = host_bytes(heads * HEAD * 2);
    device_read(all, p->q, heads * HEAD * sizeof *all);
    for (size_t i = 0; i < heads; i++)
        memcpy(out + i * HEAD * 2, all + i * HEAD, (size_t)HEAD * 2);
    return out;
}

static void expect_places(const scene *s, const place *got, const place *want)
{
    unsigned char *pages[2] = {host_bytes(got->slab_bytes), host_bytes(got->slab_bytes)},
                  *canvas[2] = {host_bytes(got->canvas_bytes), host_bytes(got->canvas_bytes)};
    const place *both[2] = {got, want};
    for (int i = 0; i < 2; i++) {
        device_read(pages[i], both[i]->slab, both[i]->slab_bytes);
        device_read(canvas[i], both[i]->canvas, both[i]->canvas_bytes);
    }
    expect_same("queries", read_queries(s, got), read_queries(s, want),
                (size_t)(s->n_encode + s->n_canvas) * (size_t)s->n_head * HEAD * 2);
    expect_same("pages", pages[0], pages[1], got->slab_bytes);
    expect_same("the canvas's pages", canvas[0], canvas[1], got->canvas_bytes);
}

static dg_cuda_form form_of(dg_dtype type)
{
    return type == DG_FP8 ? DG_CUDA_E4M3 : dg_cuda_form_of(type);
}

static void check_scene(const scene *s)
{
    int n_row = s->n_encode + s->n_canvas;
    if (!case_begin("project: %s, %d + %d rows of %d, %d heads over %d, %d pairs, %d blocks",
                    dg_dtype_name(s->type), s->n_encode, s->n_canvas, s->n_in, s->n_head,
                    s->n_kv_head, s->n_pair, s->n_sm))
        return;
    if (!dg_cuda_has_groups()) {
        case_skip("the device has no products of warpgroups");
        return;
    }
#ifdef EMULATED
    emu_set_device(9, 0, s->n_sm);
#endif
    stored w[3];
    dg_cuda_project_args at_once = {.x = make_inputs(form_of(s->type), n_row, s->n_in).rows};
    dg_cuda_product_args product = {.n_row = n_row, .x = at_once.x, .alpha = 1, .n_part = 3};
    dg_cuda_heads_args heads;
    make_heads(&heads, s);
    place want = make_place(&heads), got;
    for (int p = 0; p < 3; p++) {
        int n = HEAD * (p ? s->n_kv_head : s->n_head);
        w[p] = make_dense_weights(s->type, n, s->n_in);
        at_once.w[p] = product.part[p].w = &w[p].matrix;
        product.part[p].ldy = (size_t)n;
        product.part[p].y = p ? device_bytes((size_t)n_row * (size_t)n * sizeof(float)) : want.q;
    }
    heads.k = product.part[1].y;
    heads.v = product.part[2].y;
    launched(dg_cuda_product(NULL, &product));
    launched(dg_cuda_heads(NULL, &heads));
    at_once.heads = heads;
    at_once.heads.k = at_once.heads.v = NULL;
    got = make_place(&at_once.heads);
    if (!dg_cuda_can_project(&at_once))
        case_fail("it cannot");
    launched(dg_cuda_project(NULL, &at_once));
    expect_places(s, &got, &want);
#ifdef EMULATED
    emu_set_device(9, 0, 132);
#endif
    case_end();
}

/* Only where all is as it has to be. */
static void check_refusals(void)
{
    if (!case_begin("project: what it refuses"))
        return;
    if (!dg_cuda_has_groups()) {
        case_skip("the device has no products of warpgroups");
        return;
    }
    const scene s = {DG_BF16, 2, 1, 0, 3, 64, 128, 132};
    stored q = make_dense_weights(DG_BF16, 2 * HEAD, 64), k = make_dense_weights(DG_BF16, HEAD, 64);
    dg_cuda_project_args usual = {.x = device_rows(DG_CUDA_BF16, 3, 64),
                                  .w = {&q.matrix, &k.matrix, &k.matrix}};
    make_heads(&usual.heads, &s);
    make_place(&usual.heads);
    launched(dg_cuda_project(NULL, &usual));
    for (int i = 0; i < 6; i++) {
        dg_cuda_project_args a = usual;
        switch (i) {
        case 0:
            a.w[2] = NULL;
            break;
        case 1:
            a.w[1] = &q.matrix;
            break;
        case 2:
            a.heads.kv.type = DG_Q8_0;
            break;
        case 3:
            a.heads.kv.head_dim = 512;
            break;
        case 4:
            a.heads.first_q_row = 1;
            break;
        case 5:
            a.heads.n_pair = 126;
            break;
        }
        if (dg_cuda_can_project(&a) || dg_cuda_project(NULL, &a) != cudaErrorInvalidValue)
            case_fail("number %d", i);
    }
    case_end();
}

void check_cuda_project(void)
{
    static const scene scenes[] = {
        {DG_BF16, 2, 1, 0, 1, 64, 128, 132},   /* one chunk of k, one row */
        {DG_BF16, 4, 2, 0, 64, 190, 128, 132}, /* a tile, three chunks */
        {DG_BF16, 2, 1, 30, 71, 330, 64, 132}, /* a prompt, too; pairs that are not turned */
        {DG_BF16, 2, 1, 0, 130, 330, 128, 4},  /* of 128 rows, one of which is nearly empty */
        {DG_BF16, 2, 1, 5, 250, 200, 128, 2},  /* several tiles a block */
        {DG_BF16, 2, 1, 0, 150, 390, 128, 3},  {DG_Q8_0, 2, 1, 7, 66, 320, 128, 132}, /* halves */
        {DG_FP8, 2, 1, 0, 70, 200, 128, 132}, /* rows with factors */
        {DG_FP8, 2, 1, 9, 200, 650, 128, 2},
    };
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        check_scene(&scenes[i]);
    check_refusals();
}
