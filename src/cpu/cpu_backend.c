/* The CPU backend's life cycle, memory and plan. Weights stay where the file is mapped. */
#include "cpu/cpu_backend.h"
#include <assert.h>
#include <string.h>
#include "base/alloc.h"
#include "cpu/cpu_internal.h"

/* ---- memory ---- */

static void *cpu_alloc(dg_backend *be, size_t bytes)
{
    (void)be;
    return dg_malloc_aligned(bytes);
}

static void cpu_free(dg_backend *be, void *p)
{
    (void)be;
    dg_free(p);
}

static void cpu_copy(dg_backend *be, void *dst, const void *src, size_t bytes)
{
    (void)be;
    memcpy(dst, src, bytes);
}

static dgemma_status cpu_weight_init(dg_backend *be, dg_weight *w, const dg_weight_source *from,
                                     dgemma_error *err)
{
    (void)be;
    const dg_tensor *t = from->tensor;
    if (t->type >= DG_DTYPE_COMPUTE)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "%s: weights of type %s cannot be used", t->name,
                       dg_dtype_name(t->type));
    bool many = t->n_dim == 3;
    const int64_t *matrix = t->shape + many;
    if ((uint64_t)matrix[1] % dg_dtype_block(t->type))
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "%s: rows of %lld values do not fill blocks of %s", t->name,
                       (long long)matrix[1], dg_dtype_name(t->type));
    *w = (dg_weight){
        .type = t->type,
        .n_mat = many ? (int)t->shape[0] : 1,
        .n_out = from->n_row,
        .n_in = (int)matrix[1],
        .row_bytes = dg_dtype_bytes(t->type, (size_t)matrix[1]),
        .scale = t->scale,
    };
    w->mat_bytes = w->row_bytes * (size_t)matrix[0];
    w->data = (const unsigned char *)t->data + (size_t)from->first_row * w->row_bytes;
    return DGEMMA_OK;
}

/* ---- the plan ---- */

void *dg_cpu_take(dg_cpu_taker *t, size_t n, size_t size)
{
    t->need += (n * size + 63) / 64 * 64;
    return t->arena.base ? dg_arena_take(&t->arena, n, size) : NULL;
}

dg_cpu_worker *dg_cpu_take_workers(const dg_cpu *cpu, dg_cpu_taker *t, int max_head_dim,
                                   dg_dtype kv_type, size_t row)
{
    size_t dim = (size_t)max_head_dim, f = sizeof(float);
    size_t panel = (size_t)dg_max(dg_max(SLICE_K, max_head_dim), DG_PAGE) * DG_PANEL,
           page = DG_PAGE * dim * sizeof(uint16_t) / f, /* of a head's values */
        run = cpu->bfloat ? (size_t)cpu->k.b->keys : 0,
           lines = (size_t)dg_max(ATTENTION_ROWS, cpu->bfloat ? cpu->k.b->lines : 0),
           keys = DG_PAGE * f > run * sizeof(uint16_t) ? DG_PAGE * f : run * sizeof(uint16_t);
    int n_thread = dg_pool_threads(cpu->pool);
    dg_cpu_worker *all = dg_cpu_take(t, (size_t)n_thread, sizeof *all);
    for (int i = 0; i < n_thread; i++) {
        dg_cpu_worker w = {
            .panel = dg_cpu_take(t, cpu->bfloat && page > panel ? page : panel, f),
            .q = dg_cpu_take(t, lines * dim, f),
            .out = dg_cpu_take(t, lines * (dim + LINE_ROOM), f),
            .score = dg_cpu_take(t, lines * (run ? run + LINE_ROOM : DG_PAGE), f),
            .share = dg_cpu_take(t, lines * run, sizeof(uint16_t)),
            .keys = dg_cpu_take(t, dg_kv_in_bytes(kv_type) ? dim : 0, keys),
            .row = dg_cpu_take(t, row, f),
            .widened = dg_cpu_take(t, SLICE_K * TASK_COLS, f),
            .qpanel = dg_cpu_take(t, 1, sizeof(dg_qpanel)),
            .bpanel = dg_cpu_take(t, cpu->k.bytes ? DG_BYTE_PANELS : 0, sizeof(dg_byte_panel)),
            .sums = dg_cpu_take(t, cpu->integer || cpu->bfloat ? MATMUL_ROWS * TASK_COLS : 0, f),
            .made = dg_cpu_take(t, cpu->integer ? DG_QSLICE * DG_QBLOCKS : 0, sizeof(dg_qmade)),
            .kept = dg_cpu_take(t, VOCAB_TILE, sizeof(dg_likely)),
            .slot = dg_cpu_take(t, VOCAB_TILE, sizeof(uint16_t)),
            .words = dg_cpu_take(t, SOFT_WORDS * SOFT_COLS, f),
        };
        if (all)
            all[i] = w;
    }
    return all;
}

static void lay_out(dg_cpu *cpu, const dg_plan *p, dg_cpu_taker *t)
{
    size_t rows = (size_t)p->n_row, pairs = rows * (size_t)p->n_expert_used, f = sizeof(float);
    size_t n_tile = (size_t)dg_ceil_div(p->n_vocab, VOCAB_TILE);
    size_t row = (size_t)dg_max(dg_max(VOCAB_TILE, p->n_embd), p->n_expert);

    cpu->plan_worker = dg_cpu_take_workers(cpu, t, p->max_head_dim, p->kv_type, row);
    cpu->normed = dg_cpu_take(t, rows * (size_t)p->n_embd, f);
    cpu->k_row = dg_cpu_take(t, rows * (size_t)p->max_kv_dim, f);
    cpu->v_row = dg_cpu_take(t, rows * (size_t)p->max_kv_dim, f);
    size_t canvas_pages = rows / DG_PAGE + 1 + (size_t)p->n_segment;
    cpu->canvas = dg_cpu_take(t, canvas_pages * DG_PAGE * 2 * (size_t)p->max_kv_dim,
                              dg_dtype_size(dg_kv_canvas_type(p->kv_type)));
    size_t lines = rows * (size_t)p->max_q_dim / BFLOAT_HEAD;
    cpu->part = dg_cpu_take(t, cpu->bfloat ? ATTENTION_PARTS * lines : 0, sizeof *cpu->part);
    cpu->wide = dg_cpu_take(t, rows * 2 * (size_t)p->n_ff, f);
    cpu->router = dg_cpu_take(t, rows * (size_t)p->n_expert, f);
    cpu->pair_of = dg_cpu_take(t, 2 * pairs, sizeof *cpu->pair_of);
    cpu->expert_start = dg_cpu_take(t, (size_t)p->n_expert + 1, sizeof *cpu->expert_start);
    cpu->active = dg_cpu_take(t, (size_t)p->n_expert, sizeof *cpu->active);
    /* attention's parts, the ranks of words and their second tile use what the experts have left:
     * attention, experts and vocabulary are never at work together */
    size_t n_bin = rows * DRAW_BINS, gathered = pairs * (size_t)p->n_embd * f,
           ranks = n_bin * (sizeof *cpu->bin_mass + sizeof *cpu->bin_count),
           parts = cpu->bfloat ? (ATTENTION_PARTS - 1) * rows * (size_t)p->max_q_dim * f : 0;
    gathered = gathered > parts ? gathered : parts;
    cpu->expert_x = dg_cpu_take(t, gathered > ranks ? gathered : ranks, 1);
    cpu->part_sums = cpu->expert_x;
    cpu->bin_mass = (double *)cpu->expert_x;
    cpu->bin_count = cpu->bin_mass ? (uint32_t *)(cpu->bin_mass + n_bin) : NULL;
    size_t words = rows * VOCAB_TILE, hidden = pairs * 2 * (size_t)p->n_ff_expert;
    cpu->expert_h = dg_cpu_take(t, hidden > words ? hidden : words, f);
    cpu->tile[1] = cpu->expert_h;
    if (cpu->integer) {
        int widest = dg_max(dg_max(p->n_embd, p->n_ff), p->max_q_dim);
        size_t expert_rows = pairs + 2 * (size_t)p->n_expert;
        int expert_in = dg_max(p->n_embd, p->n_ff_expert);
        size_t all = dg_cpu_qrows_bytes(rows, widest),
               experts = dg_cpu_qrows_bytes(expert_rows, expert_in);
        cpu->q_rows = dg_cpu_take(t, all, 1);
        cpu->q_expert = dg_cpu_take(t, experts > all ? experts : all, 1);
        cpu->q_soft = dg_cpu_take(t, dg_cpu_qrows_bytes(rows, VOCAB_TILE), 1);
    }

    cpu->tile[0] = dg_cpu_take(t, words, f);
    for (int i = 0; i < 2; i++)
        cpu->soft_row[i] = dg_cpu_take(t, rows, dg_cpu_soft_row_bytes());
    cpu->draw_mass =
        dg_cpu_take(t, rows * (size_t)dg_ceil_div(p->n_vocab, DRAW_TILE), sizeof *cpu->draw_mass);
    cpu->draw_shift = dg_cpu_take(t, rows * n_tile, sizeof *cpu->draw_shift);
    cpu->vocab = dg_cpu_take(t, rows, dg_cpu_vocab_row_bytes());
    cpu->soft = dg_cpu_take(t, rows, sizeof *cpu->soft);
    cpu->filtered = dg_cpu_take(t, rows, sizeof *cpu->filtered);
}

static size_t cpu_plan_bytes(dg_backend *be, const dg_plan *plan)
{
    dg_cpu probe = {.pool = dg_cpu_of(be)->pool,
                    .k = dg_cpu_of(be)->k,
                    .integer = dg_cpu_of(be)->integer,
                    .bfloat = dg_cpu_of(be)->bfloat};
    dg_cpu_taker t = {0};
    lay_out(&probe, plan, &t);
    return t.need;
}

static dgemma_status cpu_plan(dg_backend *be, const dg_plan *plan, dgemma_error *err)
{
    dg_cpu *cpu = dg_cpu_of(be);
    if (plan->max_group > ATTENTION_ROWS)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "%d query heads share a key head: at most %d may",
                       plan->max_group, ATTENTION_ROWS);
    dg_cpu_taker t = {0};
    size_t bytes = cpu_plan_bytes(be, plan);
    dg_free(cpu->scratch);
    cpu->scratch = NULL;
    if (!dg_arena_init(&t.arena, bytes))
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for %zu MiB of scratch", bytes >> 20);
    cpu->scratch = t.arena.base;
    cpu->plan = *plan;
    lay_out(cpu, plan, &t);
    return DGEMMA_OK;
}

/* ---- life cycle ---- */

static void cpu_begin(dg_backend *be, const dg_batch *batch)
{
    dg_cpu *cpu = dg_cpu_of(be);
    cpu->batch = batch;
    cpu->worker = cpu->plan_worker;
    cpu->adapted = false;
    for (int s = 0; s < batch->n_segment; s++)
        cpu->adapted = cpu->adapted || batch->segment[s].n_adapter > 0;
}

static dgemma_status cpu_finish(dg_backend *be, dgemma_error *err)
{
    (void)err; /* no stage can fail here */
    dg_cpu_of(be)->batch = NULL;
    return DGEMMA_OK;
}

static void cpu_close(dg_backend *be)
{
    if (!be)
        return;
    dg_cpu *cpu = dg_cpu_of(be);
    dg_pool_free(cpu->pool);
    dg_free(cpu->scratch);
    dg_free(cpu->vision.scratch);
    dg_free(cpu);
}

dgemma_status dg_cpu_open(dg_backend **out, const dg_cpu_options *opt, dgemma_error *err)
{
    dg_cpu *cpu = dg_calloc(1, sizeof *cpu);
    if (!cpu)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_status st = dg_pool_create(&cpu->pool, opt->n_thread, err);
    if (st) {
        dg_free(cpu);
        return st;
    }
    dg_kernels_init(&cpu->k, opt->flags);
    cpu->integer = cpu->k.q && !opt->exact;
    cpu->bfloat = cpu->k.b && !opt->exact;
    cpu->base = (dg_backend){
        .name = dg_cpu_flags_name(opt->flags),
        .answers = true,
        .borrows_weights = true,
        .profile = dg_cpu_profile(opt->flags, false),
        .block_profile = dg_cpu_profile(opt->flags, cpu->integer),
        .bfloat_profile = cpu->bfloat ? cpu->k.b->profile : NULL,
        .bfloat_block_profile = cpu->bfloat ? cpu->k.b->block_profile : NULL,
        .bfloat_head = BFLOAT_HEAD,
        .byte_profile = cpu->integer && cpu->k.bytes ? cpu->k.bytes->profile : NULL,
        .byte_in = BYTES_IN,
        .canvas_rows = DG_CPU_CANVAS_ROWS,
        .prompt_rows = DG_CPU_PROMPT_ROWS,
        .picture_patches = DG_CPU_PICTURE_PATCHES,
        .close = cpu_close,
        .alloc = cpu_alloc,
        .free = cpu_free,
        .upload = cpu_copy,
        .download = cpu_copy,
        .copy = cpu_copy,
        .weight_init = cpu_weight_init,
        .kv_open = dg_cpu_kv_open,
        .kv_close = dg_cpu_kv_close,
        .kv_take = dg_cpu_kv_take,
        .kv_give = dg_cpu_kv_give,
        .kv_copy = dg_cpu_kv_copy,
        .kv_read = dg_cpu_kv_read,
        .kv_save = dg_cpu_kv_save,
        .kv_load = dg_cpu_kv_load,
        .plan_bytes = cpu_plan_bytes,
        .plan = cpu_plan,
        .begin = cpu_begin,
        .finish = cpu_finish,
        .embed = dg_cpu_embed,
        .condition = dg_cpu_condition,
        .rope_table = dg_cpu_rope_table,
        .qkv = dg_cpu_qkv,
        .attention = dg_cpu_attention,
        .attention_out = dg_cpu_attention_out,
        .dense = dg_cpu_dense,
        .route = dg_cpu_route,
        .experts = dg_cpu_experts,
        .join = dg_cpu_join,
        .norm = dg_cpu_norm,
        .vocabulary = dg_cpu_vocabulary,
        .vision_plan_bytes = dg_cpu_vision_plan_bytes,
        .vision_plan = dg_cpu_vision_plan,
        .vision_begin = dg_cpu_vision_begin,
        .vision_embed = dg_cpu_vision_embed,
        .vision_attention = dg_cpu_vision_attention,
        .vision_mlp = dg_cpu_vision_mlp,
        .vision_project = dg_cpu_vision_project,
    };
    *out = &cpu->base;
    return DGEMMA_OK;
}

void dg_cpu_observe(dg_backend *be, dg_cpu_observe_fn *fn, void *arg)
{
    dg_cpu *cpu = dg_cpu_of(be);
    assert(!cpu->integer);
    cpu->observe = fn;
    cpu->observe_arg = arg;
}
