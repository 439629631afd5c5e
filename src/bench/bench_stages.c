#include "bench/bench_stages.h"
#include "base/alloc.h"
#include "base/clock.h"

const char *const dg_bench_stage_name[DG_STAGES] = {
    "embedding",
    "self-conditioning",
    "angles",
    "query, key, value",
    "sliding attention",
    "global attention",
    "attention output",
    "dense MLP",
    "router",
    "experts",
    "join",
    "last norm",
    "vocabulary",
};

typedef struct timed {
    dg_backend face;
    dg_backend *inner;
    bool on;
    double seconds[DG_STAGES];
    dg_batch batch; /* the caller's, said to be watched */
    void *probe;    /* a little of the backend's memory, to wait for it */
} timed;

static timed *of(dg_backend *be)
{
    return (timed *)be;
}

/* ---- stages ---- */

static double begin_stage(const timed *t)
{
    return t->on ? dg_clock_now() : 0;
}

static void end_stage(timed *t, dg_bench_stage stage, double from)
{
    float seen;
    if (!t->on)
        return;
    t->inner->download(t->inner, &seen, t->probe, sizeof seen);
    t->seconds[stage] += dg_clock_now() - from;
}

#define STAGE(name, args, number)                                                                  \
    static void timed_##name(dg_backend *be, const args *a)                                        \
    {                                                                                              \
        timed *t = of(be);                                                                         \
        double from = begin_stage(t);                                                              \
        t->inner->name(t->inner, a);                                                               \
        end_stage(t, number, from);                                                                \
    }
STAGE(embed, dg_embed_args, DG_STAGE_EMBED)
STAGE(condition, dg_condition_args, DG_STAGE_CONDITION)
STAGE(rope_table, dg_rope_table_args, DG_STAGE_ROPE_TABLE)
STAGE(qkv, dg_qkv_args, DG_STAGE_QKV)
STAGE(attention, dg_attention_args,
      a->w->window ? DG_STAGE_ATTENTION_SLIDING : DG_STAGE_ATTENTION_GLOBAL)
STAGE(attention_out, dg_attention_out_args, DG_STAGE_ATTENTION_OUT)
STAGE(dense, dg_dense_args, DG_STAGE_DENSE)
STAGE(route, dg_route_args, DG_STAGE_ROUTE)
STAGE(experts, dg_experts_args, DG_STAGE_EXPERTS)
STAGE(join, dg_join_args, DG_STAGE_JOIN)
STAGE(norm, dg_norm_args, DG_STAGE_NORM)
STAGE(vocabulary, dg_vocabulary_args, DG_STAGE_VOCABULARY)
#undef STAGE

/* A watched pass is no graph, so that it can be waited for in between. */
static void timed_begin(dg_backend *be, const dg_batch *batch)
{
    timed *t = of(be);
    t->batch = *batch;
    t->batch.watched |= t->on;
    t->inner->begin(t->inner, &t->batch);
}

static dgemma_status timed_finish(dg_backend *be, dgemma_error *err)
{
    return of(be)->inner->finish(of(be)->inner, err);
}

/* ---- all the rest goes through ---- */

static dgemma_status timed_check(const dg_backend *be, dgemma_error *err)
{
    const dg_backend *inner = ((const timed *)be)->inner;
    return inner->check(inner, err);
}

static double timed_device_seconds(dg_backend *be)
{
    return of(be)->inner->device_seconds(of(be)->inner);
}

static int timed_gathered(dg_backend *be)
{
    return of(be)->inner->gathered(of(be)->inner);
}

static void *timed_alloc(dg_backend *be, size_t bytes)
{
    return of(be)->inner->alloc(of(be)->inner, bytes);
}

static size_t timed_room(dg_backend *be)
{
    return of(be)->inner->room(of(be)->inner);
}

static void timed_free(dg_backend *be, void *p)
{
    of(be)->inner->free(of(be)->inner, p);
}

static void timed_upload(dg_backend *be, void *dst, const void *src, size_t bytes)
{
    of(be)->inner->upload(of(be)->inner, dst, src, bytes);
}

static void timed_download(dg_backend *be, void *dst, const void *src, size_t bytes)
{
    of(be)->inner->download(of(be)->inner, dst, src, bytes);
}

static void timed_copy(dg_backend *be, void *dst, const void *src, size_t bytes)
{
    of(be)->inner->copy(of(be)->inner, dst, src, bytes);
}

static dgemma_status timed_weight_init(dg_backend *be, dg_weight *w, const dg_weight_source *from,
                                       dgemma_error *err)
{
    return of(be)->inner->weight_init(of(be)->inner, w, from, err);
}

static void timed_weights_done(dg_backend *be)
{
    of(be)->inner->weights_done(of(be)->inner);
}

static dgemma_status timed_kv_open(dg_backend *be, dg_kv_store **out, const dg_kv_config *cfg,
                                   size_t max_bytes, int n_page[DG_KV_GROUPS], dgemma_error *err)
{
    return of(be)->inner->kv_open(of(be)->inner, out, cfg, max_bytes, n_page, err);
}

static void timed_kv_close(dg_backend *be, dg_kv_store *kv)
{
    of(be)->inner->kv_close(of(be)->inner, kv);
}

static bool timed_kv_take(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    return of(be)->inner->kv_take(of(be)->inner, kv, g, page);
}

static void timed_kv_give(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page)
{
    of(be)->inner->kv_give(of(be)->inner, kv, g, page);
}

static void timed_kv_copy(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t to, int32_t from)
{
    of(be)->inner->kv_copy(of(be)->inner, kv, g, to, from);
}

static void timed_kv_read(dg_backend *be, const dg_kv_store *kv, int layer, int32_t page,
                          bool value, float *out)
{
    of(be)->inner->kv_read(of(be)->inner, kv, layer, page, value, out);
}

static void timed_kv_save(dg_backend *be, const dg_kv_store *kv, dg_kv_group g, int32_t page,
                          void *out)
{
    of(be)->inner->kv_save(of(be)->inner, kv, g, page, out);
}

static void timed_kv_load(dg_backend *be, dg_kv_store *kv, dg_kv_group g, int32_t page,
                          const void *from)
{
    of(be)->inner->kv_load(of(be)->inner, kv, g, page, from);
}

static size_t timed_plan_bytes(dg_backend *be, const dg_plan *plan)
{
    return of(be)->inner->plan_bytes(of(be)->inner, plan);
}

static dgemma_status timed_plan(dg_backend *be, const dg_plan *plan, dgemma_error *err)
{
    return of(be)->inner->plan(of(be)->inner, plan, err);
}

static void timed_close(dg_backend *be)
{
    if (!be)
        return;
    timed *t = of(be);
    t->inner->free(t->inner, t->probe);
    t->inner->close(t->inner);
    dg_free(t);
}

/* The face below has to have every function of a backend that the model calls, and every field that
 * says what it does: whoever adds one adds it there too, and its size here. */
_Static_assert(sizeof(dg_backend) == 54 * sizeof(void *), "a backend's function is not passed on");

dgemma_status dg_timed_open(dg_backend **out, dg_backend *inner, dgemma_error *err)
{
    enum { PROBE_BYTES = 64 };
    timed *t = dg_calloc(1, sizeof *t);
    void *probe = inner->alloc(inner, PROBE_BYTES);
    if (!t || !probe) {
        dg_free(t);
        inner->free(inner, probe);
        inner->close(inner);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    static const float zero[PROBE_BYTES / sizeof(float)];
    inner->upload(inner, probe, zero, sizeof zero);
    t->inner = inner;
    t->probe = probe;
    t->face = (dg_backend){
        .name = inner->name,
        .address = inner->address,
        .profile = inner->profile,
        .block_profile = inner->block_profile,
        .bfloat_profile = inner->bfloat_profile,
        .bfloat_block_profile = inner->bfloat_block_profile,
        .bfloat_head = inner->bfloat_head,
        .byte_profile = inner->byte_profile,
        .byte_in = inner->byte_in,
        .borrows_weights = inner->borrows_weights,
        .answers = inner->answers,
        .canvas_rows = inner->canvas_rows,
        .prompt_rows = inner->prompt_rows,
        .picture_patches = inner->picture_patches,
        .close = timed_close,
        .alloc = timed_alloc,
        .room = inner->room ? timed_room : NULL,
        .free = timed_free,
        .upload = timed_upload,
        .download = timed_download,
        .copy = timed_copy,
        .weight_init = timed_weight_init,
        .weights_done = inner->weights_done ? timed_weights_done : NULL,
        .kv_open = timed_kv_open,
        .kv_close = timed_kv_close,
        .kv_take = timed_kv_take,
        .kv_give = timed_kv_give,
        .kv_copy = timed_kv_copy,
        .kv_read = timed_kv_read,
        .kv_save = timed_kv_save,
        .kv_load = timed_kv_load,
        .plan_bytes = timed_plan_bytes,
        .plan = timed_plan,
        .begin = timed_begin,
        .finish = timed_finish,
        .check = inner->check ? timed_check : NULL,
        .device_seconds = inner->device_seconds ? timed_device_seconds : NULL,
        .gathered = inner->gathered ? timed_gathered : NULL,
        .embed = timed_embed,
        .condition = timed_condition,
        .rope_table = timed_rope_table,
        .qkv = timed_qkv,
        .attention = timed_attention,
        .attention_out = timed_attention_out,
        .dense = timed_dense,
        .route = timed_route,
        .experts = timed_experts,
        .join = timed_join,
        .norm = timed_norm,
        .vocabulary = timed_vocabulary,
    };
    *out = &t->face;
    return DGEMMA_OK;
}

void dg_timed_start(dg_backend *be)
{
    timed *t = of(be);
    t->on = true;
    for (int i = 0; i < DG_STAGES; i++)
        t->seconds[i] = 0;
}

void dg_timed_stop(dg_backend *be, double seconds[DG_STAGES])
{
    timed *t = of(be);
    t->on = false;
    for (int i = 0; i < DG_STAGES; i++)
        seconds[i] = t->seconds[i];
}
