/* The stages of backend_stages.h up to the last norm, put together from the arithmetic of
 * cuda_math.h and cuda_words.h; the vocabulary end is cuda_vocabulary.c. */
#include <assert.h>
#include <string.h>
#include "base/common.h"
#include "cuda/cuda_internal.h"

/* Scratch rows of n values as this weight wants them. */
static dg_cuda_rows rows_for(dg_cuda_rows scratch, const dg_weight *w)
{
    return dg_cuda_rows_for(dg_cuda_matrix_of(w), scratch.data);
}

/* ---- changes of x ----
 *
 * What a layer adds to the residual stream, and self-conditioning before the first, waits until a
 * stage wants a norm of the new x: both are then one launch. So a layer of a canvas is nine or ten
 * launches and those inside dg_cuda_experts(): the end of the layer before with the first norm; q,
 * k, v; heads, where q, k and v do not leave as such; attention; o; the sum with both norms of the
 * feed-forward; gate and up; down; the router's two. The router's (of many rows: its choice), and
 * the sorting of rows by expert, run beside the dense branch's gate, up and down, on a stream of
 * their own. */

/* Makes the change that waits, if there is one: with the norms `next` when it is of just these
 * rows. Returns whether the norms are made. */
static bool change(dg_cuda *cu, const float *x, int n_row, const dg_cuda_next next[2])
{
    dg_cuda_add_args add = cu->add;
    dg_cuda_join_args joined = cu->joined;
    dg_cuda_soft_join_args soft = cu->soft_joined;
    bool same =
        x && ((add.x == x && add.n_row == n_row) || (joined.x == x && joined.n_row == n_row) ||
              (soft.x == x && soft.n_row == n_row));
    cu->add.x = cu->joined.x = cu->soft_joined.x = NULL;
    for (int i = 0; same && i < 2; i++)
        add.next[i] = joined.next[i] = soft.next[i] = next[i];
    if (soft.x)
        dg_cuda_failed(cu, dg_cuda_soft_join(cu->stream, &soft), "self-conditioning");
    if (add.x)
        dg_cuda_failed(cu, dg_cuda_add_norm(cu->stream, &add), "a norm");
    if (joined.x)
        dg_cuda_failed(cu, dg_cuda_join(cu->stream, &joined), "the end of a layer");
    return same;
}

static void settle(dg_cuda *cu)
{
    change(cu, NULL, 0, NULL);
}

/* Up to two norms of x, behind the change that it waits for. */
static void norms(dg_cuda *cu, const float *x, int n_row, const dg_cuda_next next[2])
{
    if (change(cu, x, n_row, next))
        return;
    dg_cuda_failed(cu,
                   dg_cuda_norm2(cu->stream, next[0].out, next[0].w, next[1].out, next[1].w, x,
                                 n_row, cu->plan.n_embd, cu->plan.rms_eps),
                   "a norm");
}

static dg_cuda_rows normed(dg_cuda *cu, const dg_weight *for_weight, const float *x,
                           const float *norm, int n_row)
{
    dg_cuda_next next[2] = {{rows_for(cu->rows, for_weight), norm}};
    norms(cu, x, n_row, next);
    return next[0].out;
}

/* ---- products, with what adapters add to the rows that have them ---- */

static bool is_adapted(const dg_cuda *cu, const dg_weight *w)
{
    return cu->shape.adapted && w->adapter;
}

/* Rows of the batch from `first` on. */
static dg_cuda_adapted adapted_from(const dg_cuda *cu, int first)
{
    return (dg_cuda_adapted){cu->on_device.uses, cu->on_device.segment_of, first};
}

/* y += alpha times what adapters make of x, row `first` of the batch and those behind it. */
static void adapt(dg_cuda *cu, float *y, const dg_weight *w, dg_cuda_rows x, int first, int n_row,
                  float alpha)
{
    dg_cuda_adapt_args a = {.rows = adapted_from(cu, first),
                            .low = w->adapter,
                            .n_row = n_row,
                            .n_in = w->n_in,
                            .n_out = w->n_out,
                            .x = x,
                            .alpha = alpha,
                            .y = y,
                            .ldy = (size_t)w->n_out};
    if (is_adapted(cu, w))
        dg_cuda_failed(cu, dg_cuda_adapt(cu->stream, &a), "an adapter");
}

static const dg_cuda_ahead nothing_ahead = {NULL, 0};

/* y[n_row, w->n_out] = alpha W x, without adapters. */
static void plain_product(dg_cuda *cu, float *y, const dg_weight *w, dg_cuda_rows x, int n_row,
                          float alpha, dg_cuda_ahead ahead)
{
    dg_cuda_product_args a = {.n_row = n_row, .x = x, .alpha = alpha, .n_part = 1, .ahead = ahead};
    a.part[0].w = dg_cuda_matrix_of(w);
    a.part[0].y = y;
    a.part[0].ldy = (size_t)w->n_out;
    if (n_row > 0)
        dg_cuda_failed(cu, dg_cuda_product(cu->stream, &a), "a product");
}

/* With them; the rows are the batch's from `first` on. */
static void product(dg_cuda *cu, float *y, const dg_weight *w, dg_cuda_rows x, int first, int n_row,
                    float alpha)
{
    plain_product(cu, y, w, x, n_row, alpha, nothing_ahead);
    adapt(cu, y, w, x, first, n_row, alpha);
}

/* The gated product leaves h and not what it is made of: gate x and up x are made once more, and h
 * of the rows that have adapters from them. As many rows at a time as there is room for. */
static void regate(dg_cuda *cu, const dg_mlp_weights *w, dg_cuda_rows x, dg_cuda_rows h, int first,
                   int n_row)
{
    const dg_weight *gate = &w->gate, *up = &w->up;
    size_t n = (size_t)gate->n_out, room = cu->parts_bytes / (2 * n * sizeof(float));
    int most = room < (size_t)n_row ? (int)room : n_row;
    for (int from = 0; from < n_row; from += most) {
        int some = dg_min(most, n_row - from);
        float *of_gate = cu->parts, *of_up = of_gate + (size_t)some * n;
        product(cu, of_gate, gate, dg_cuda_rows_from(x, from), first + from, some, 1);
        product(cu, of_up, up, dg_cuda_rows_from(x, from), first + from, some, 1);
        dg_cuda_regate_args a = {.rows = adapted_from(cu, first + from),
                                 .low = {gate->adapter, up->adapter},
                                 .n_row = some,
                                 .n = gate->n_out,
                                 .gate = of_gate,
                                 .up = of_up,
                                 .floats = dg_cuda_matrix_of(gate)->type == DG_F32,
                                 .h = dg_cuda_rows_from(h, from)};
        dg_cuda_failed(cu, dg_cuda_regate(cu->stream, &a), "an adapter");
    }
}

/* y = down( gelu(gate x) * (up x) ). ahead: asked for beside gate and up, and beside down. */
static void mlp(dg_cuda *cu, float *y, const dg_mlp_weights *w, dg_cuda_rows x, int first,
                int n_row, const dg_cuda_ahead ahead[2])
{
    dg_cuda_rows h = rows_for(cu->hidden, &w->down);
    dg_cuda_gated_args a = {.n_row = n_row,
                            .x = x,
                            .gate = dg_cuda_matrix_of(&w->gate),
                            .up = dg_cuda_matrix_of(&w->up),
                            .h = h,
                            .ahead = ahead[0]};
    float alpha = h.form == DG_CUDA_F16 ? DG_CUDA_GATED : 1;
    dg_cuda_failed(cu, dg_cuda_gated(cu->stream, &a), "a gated product");
    if (is_adapted(cu, &w->gate) || is_adapted(cu, &w->up))
        regate(cu, w, x, h, first, n_row);
    plain_product(cu, y, &w->down, h, n_row, alpha, ahead[1]);
    adapt(cu, y, &w->down, h, first, n_row, alpha);
}

/* ---- into the residual stream ---- */

/* Made by the launch that the embedding is. */
void dg_cuda_rope_stage(dg_backend *be, const dg_rope_table_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    if (dg_cuda_idle(cu))
        return;
    assert(cu->n_angles < DG_KV_GROUPS);
    cu->angles[cu->n_angles++] =
        (dg_cuda_angles){a->rope->cos, a->rope->sin, a->frequency, a->rope->n_pair};
}

void dg_cuda_embed_stage(dg_backend *be, const dg_embed_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    if (dg_cuda_idle(cu))
        return;
    dg_cuda_lookup_args args = {.x = a->x,
                                .table = dg_cuda_matrix_of(a->table),
                                .scale = a->scale,
                                .token = cu->on_device.token,
                                .feature = cu->batch->feature ? cu->on_device.feature : NULL,
                                .n_row = cu->batch->n_row,
                                .position = cu->on_device.position};
    memcpy(args.angles, cu->angles, sizeof args.angles);
    dg_cuda_failed(cu, dg_cuda_lookup(cu->stream, &args), "the embedding");
}

void dg_cuda_condition_stage(dg_backend *be, const dg_condition_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    int n = a->rows.end - a->rows.first, n_embd = cu->plan.n_embd;
    float *x = a->x + (size_t)a->rows.first * (size_t)n_embd;
    if (dg_cuda_idle(cu) || n < 1)
        return;
    dg_cuda_rows rows = rows_for(cu->rows, &a->w->gate);
    dg_cuda_failed(cu,
                   dg_cuda_soft_norm(cu->stream, (dg_cuda_next){rows, a->w->norm},
                                     cu->on_device.word, n, n_embd, cu->plan.rms_eps),
                   "self-conditioning");
    mlp(cu, cu->y, a->w, rows, a->rows.first, n, (dg_cuda_ahead[2]){nothing_ahead, nothing_ahead});
    cu->soft_joined = (dg_cuda_soft_join_args){
        .x = x, .y = cu->y, .n_row = n, .n = n_embd, .eps = cu->plan.rms_eps};
    if (cu->batch->watched)
        settle(cu);
}

/* ---- attention ---- */

static dg_cuda_kv layer_kv(const dg_cuda *cu, const dg_kv_store *kv, int layer,
                           const dg_attention_weights *w)
{
    return (dg_cuda_kv){.type = kv->layout.type,
                        .n_head = w->n_head,
                        .n_kv_head = w->n_kv_head,
                        .head_dim = w->head_dim,
                        .window = w->window,
                        .slab = kv->slab,
                        .page_bytes = DG_CUDA_PLACE,
                        .offset = kv->layout.offset[layer],
                        .canvas_slab = cu->canvas};
}

/* The projections of one form in one product. */
static void project(dg_cuda *cu, const dg_qkv_args *a, dg_cuda_form form)
{
    const dg_attention_weights *w = a->w;
    const dg_weight *weight[3] = {&w->k, &w->v, &w->q}, *made[3];
    float *y[3] = {cu->k, cu->v, a->q};
    int n_row = cu->batch->n_row, first = a->first_q_row;
    dg_cuda_product_args args = {.n_row = n_row, .alpha = 1};
    for (int i = 0; i < 3; i++) {
        bool is_q = i == 2;
        if ((i == 1 && w->v_from_k) || rows_for(cu->rows, weight[i]).form != form)
            continue;
        if (!args.x.data)
            args.x = normed(cu, weight[i], a->x, w->norm, n_row);
        if (is_q && first > 0) { /* not of all rows: a product of its own */
            product(cu, a->q + (size_t)first * (size_t)w->q.n_out, &w->q,
                    dg_cuda_rows_from(args.x, first), first, n_row - first, 1);
            continue;
        }
        made[args.n_part] = weight[i];
        args.part[args.n_part].w = dg_cuda_matrix_of(weight[i]);
        args.part[args.n_part].y = y[i];
        args.part[args.n_part++].ldy = (size_t)weight[i]->n_out;
    }
    if (args.n_part)
        dg_cuda_failed(cu, dg_cuda_product(cu->stream, &args), "a projection");
    for (int i = 0; i < args.n_part; i++)
        adapt(cu, args.part[i].y, made[i], args.x, 0, n_row, 1);
}

/* All of them with their heads in one launch, where that can be and no adapter changes what is in
 * between. */
static bool project_at_once(dg_cuda *cu, const dg_qkv_args *a, const dg_cuda_heads_args *heads)
{
    const dg_attention_weights *w = a->w;
    const dg_weight *weight[3] = {&w->q, &w->k, &w->v};
    dg_cuda_project_args args = {.heads = *heads};
    for (int i = 0; i < 3; i++) {
        if ((i == 2 && w->v_from_k) || is_adapted(cu, weight[i]) ||
            rows_for(cu->rows, weight[i]).form != rows_for(cu->rows, &w->q).form)
            return false;
        args.w[i] = dg_cuda_matrix_of(weight[i]);
    }
    if (!dg_cuda_can_project(&args))
        return false;
    args.x = normed(cu, &w->q, a->x, w->norm, heads->n_row);
    dg_cuda_failed(cu, dg_cuda_project(cu->stream, &args), "a projection");
    return true;
}

void dg_cuda_qkv_stage(dg_backend *be, const dg_qkv_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    const dg_attention_weights *w = a->w;
    dg_kv_group g = a->kv->layout.layer[a->layer].group;
    if (dg_cuda_idle(cu))
        return;
    dg_cuda_heads_args args = {.q = a->q,
                               .k = cu->k,
                               .v = w->v_from_k ? NULL : cu->v,
                               .q_norm = w->q_norm,
                               .k_norm = w->k_norm,
                               .cos = a->rope->cos,
                               .sin = a->rope->sin,
                               .n_row = cu->batch->n_row,
                               .first_q_row = a->first_q_row,
                               .n_pair = a->rope->n_pair,
                               .eps = cu->plan.rms_eps,
                               .segment = cu->on_device.segment[g],
                               .segment_of = cu->on_device.segment_of,
                               .kv = layer_kv(cu, a->kv, a->layer, w)};
    if (project_at_once(cu, a, &args))
        return;
    for (int form = DG_CUDA_F32; form <= DG_CUDA_E4M3; form++)
        project(cu, a, (dg_cuda_form)form);
    dg_cuda_failed(cu, dg_cuda_heads(cu->stream, &args), "keys and values");
}

void dg_cuda_attention_stage(dg_backend *be, const dg_attention_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    dg_kv_group g = a->kv->layout.layer[a->layer].group;
    if (dg_cuda_idle(cu))
        return;
    dg_cuda_rows out = dg_cuda_rows_for(dg_cuda_matrix_of(&a->w->o), a->out);
    dg_cuda_attention_args args = {.out = out,
                                   .q = a->q,
                                   .first_row = a->rows.first,
                                   .end_row = a->rows.end,
                                   .segment = cu->on_device.segment[g],
                                   .n_segment = cu->batch->n_segment,
                                   .segment_of = cu->on_device.segment_of,
                                   .seen = cu->on_device.seen[g],
                                   .kv = layer_kv(cu, a->kv, a->layer, a->w),
                                   .scratch = cu->parts,
                                   .counter = cu->part_counter};
    dg_cuda_failed(cu, dg_cuda_attention(cu->stream, &args), "attention");
}

void dg_cuda_attention_out_stage(dg_backend *be, const dg_attention_out_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    const dg_weight *w = &a->w->o;
    int first = a->rows.first, n = a->rows.end - first;
    float *x = a->x + (size_t)first * (size_t)w->n_out;
    dg_cuda_rows o = dg_cuda_rows_for(dg_cuda_matrix_of(w), (void *)(uintptr_t)a->o);
    if (dg_cuda_idle(cu))
        return;
    settle(cu);
    product(cu, cu->y, w, dg_cuda_rows_from(o, first), first, n, 1);
    cu->add = (dg_cuda_add_args){.x = x,
                                 .y = cu->y,
                                 .w = a->w->post_norm,
                                 .n_row = n,
                                 .n = w->n_out,
                                 .eps = cu->plan.rms_eps};
    if (cu->batch->watched)
        settle(cu);
}

/* ---- feed-forward: the branches' last norms are join's ---- */

/* The experts' rows lie behind the dense branch's. */
static dg_cuda_rows experts_rows(const dg_cuda *cu, const dg_weight *gate)
{
    dg_cuda_rows rows = rows_for(cu->rows, gate);
    size_t before = (size_t)cu->plan.n_row * (size_t)rows.ld * sizeof(float);
    rows.data = (unsigned char *)rows.data + before;
    return rows;
}

/* The dense branch leaves memory idle that the experts wait for next: what it asks for of gate and
 * up stays in the second-level cache, which has 50 MB, until then. More of it gains nothing; with
 * few rows not all experts are read. */
enum { AHEAD_BYTES = 14 << 20, AHEAD_ROWS = 64 };

static dg_cuda_ahead ahead_of(const dg_weight *w, int n_row)
{
    const dg_cuda_matrix *m = dg_cuda_matrix_of(w);
    size_t all = (size_t)m->n_mat * dg_cuda_pack_gated_bytes(m->type, m->n_out, m->n_in) / 16 * 16;
    if (n_row < AHEAD_ROWS)
        return nothing_ahead;
    return (dg_cuda_ahead){m->data, all < AHEAD_BYTES ? all : AHEAD_BYTES};
}

static dg_cuda_route_args route_args(const dg_cuda *cu, const dg_router_weights *w, const float *x,
                                     dg_rows rows)
{
    const dg_cuda_weight *proj = w->proj.data;
    return (dg_cuda_route_args){.x = x,
                                .scale = w->scale,
                                .w = proj->plain,
                                .w_type = proj->matrix.type,
                                .expert_scale = w->expert_scale,
                                .n_row = rows.end - rows.first,
                                .n = cu->plan.n_embd,
                                .n_expert = w->proj.n_out,
                                .n_used = w->n_used,
                                .eps = cu->plan.rms_eps,
                                .scratch = cu->router,
                                .adapted = adapted_from(cu, rows.first),
                                .low = is_adapted(cu, &w->proj) ? w->proj.adapter : NULL};
}

/* With many rows the router's products find no room beside gate and up, and would hold up what
 * follows those: they come first. */
void dg_cuda_dense_stage(dg_backend *be, const dg_dense_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    int n = a->rows.end - a->rows.first;
    size_t first = (size_t)a->rows.first * (size_t)cu->plan.n_embd;
    if (dg_cuda_idle(cu))
        return;
    dg_cuda_next next[2] = {{rows_for(cu->rows, &a->w->gate), a->w->norm},
                            {experts_rows(cu, &a->experts->gate), a->experts->norm}};
    cu->dense_norm = a->w->post_norm;
    norms(cu, a->x + first, n, next);
    cu->experts_x = a->x + first;
    if (!cu->batch->watched) {
        dg_cuda_route_args route = route_args(cu, a->router, a->x + first, a->rows);
        cu->route_begun = dg_cuda_route_many(&route);
        if (cu->route_begun)
            dg_cuda_failed(cu, dg_cuda_route_multiply(cu->stream, &route), "the router");
        dg_cuda_failed(cu, cudaEventRecord(cu->parted, cu->stream), "the dense branch");
    }
    mlp(cu, a->out + first, a->w, next[0].out, a->rows.first, n,
        (dg_cuda_ahead[2]){ahead_of(&a->experts->gate, n), ahead_of(&a->experts->up, n)});
}

/* Beside the dense branch where that has made these rows' norms, so that x is what it will be. */
void dg_cuda_route_stage(dg_backend *be, const dg_route_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    size_t first = (size_t)a->rows.first, used = first * (size_t)a->w->n_used;
    const float *x = a->x + first * (size_t)cu->plan.n_embd;
    if (dg_cuda_idle(cu))
        return;
    cu->routed_aside = !cu->batch->watched && cu->experts_x == x;
    if (cu->routed_aside)
        dg_cuda_failed(cu, cudaStreamWaitEvent(cu->side, cu->parted, 0), "the router");
    else
        settle(cu);
    dg_cuda_route_args args = route_args(cu, a->w, x, a->rows);
    args.expert = a->expert + used;
    args.weight = a->weight + used;
    args.follows_stream = cu->routed_aside;
    dg_cuda_failed(cu,
                   (cu->routed_aside && cu->route_begun ? dg_cuda_route_pick : dg_cuda_route)(
                       cu->routed_aside ? cu->side : cu->stream, &args),
                   "the router");
    cu->route_begun = false;
}

/* Sorts where the router ran, and lets the stream wait for it. */
static void sort_aside(dg_cuda *cu, dg_cuda_experts_args *args)
{
    cudaError_t error = dg_cuda_experts_sort(cu->side, args);
    if (!error)
        error = cudaEventRecord(cu->sorted, cu->side);
    if (!error)
        error = cudaStreamWaitEvent(cu->stream, cu->sorted, 0);
    dg_cuda_failed(cu, error, "sorting rows");
    args->sorted = true;
}

void dg_cuda_experts_stage(dg_backend *be, const dg_experts_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    size_t first = (size_t)a->rows.first, used = first * (size_t)a->n_used,
           at = first * (size_t)cu->plan.n_embd;
    int n = a->rows.end - a->rows.first;
    if (dg_cuda_idle(cu))
        return;
    cu->experts_norm = a->w->post_norm;
    dg_cuda_next next[2] = {{experts_rows(cu, &a->w->gate), a->w->norm}};
    if (cu->experts_x != a->x + at)
        norms(cu, a->x + at, n, next);
    cu->experts_x = NULL;
    dg_cuda_experts_args args = {.n_row = n,
                                 .n_used = a->n_used,
                                 .x = next[0].out,
                                 .expert = a->expert + used,
                                 .weight = a->weight + used,
                                 .gate = dg_cuda_matrix_of(&a->w->gate),
                                 .up = dg_cuda_matrix_of(&a->w->up),
                                 .down = dg_cuda_matrix_of(&a->w->down),
                                 .y = a->out + at,
                                 .ldy = (size_t)cu->plan.n_embd,
                                 .scratch = cu->experts};
    const dg_cuda_adapted_experts adapted = {adapted_from(cu, a->rows.first), a->w->gate.adapter,
                                             a->w->up.adapter, a->w->down.adapter};
    if (is_adapted(cu, &a->w->gate) || is_adapted(cu, &a->w->up) || is_adapted(cu, &a->w->down))
        args.adapted = &adapted;
    cu->choices = (dg_cuda_choices){.place = NULL};
    if (!cu->batch->watched && !args.adapted && dg_cuda_join_sums(cu->plan.n_embd))
        args.choices = &cu->choices;
    if (cu->routed_aside)
        sort_aside(cu, &args);
    cu->routed_aside = false;
    dg_cuda_failed(cu, dg_cuda_experts(cu->stream, &args), "the experts");
}

void dg_cuda_join_stage(dg_backend *be, const dg_join_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    size_t at = (size_t)a->rows.first * (size_t)cu->plan.n_embd;
    if (dg_cuda_idle(cu))
        return;
    settle(cu);
    cu->joined = (dg_cuda_join_args){.x = a->x + at,
                                     .dense = a->dense + at,
                                     .experts = a->experts + at,
                                     .w_dense = cu->dense_norm,
                                     .w_experts = cu->experts_norm,
                                     .w = a->norm,
                                     .n_row = a->rows.end - a->rows.first,
                                     .n = cu->plan.n_embd,
                                     .n_encode = dg_max(0, cu->batch->n_encode - a->rows.first),
                                     .eps = cu->plan.rms_eps,
                                     .scalar_encode = a->scalar_encode,
                                     .scalar_canvas = a->scalar_canvas,
                                     .choices = cu->choices};
    if (cu->batch->watched)
        settle(cu);
}

void dg_cuda_norm_stage(dg_backend *be, const dg_norm_args *a)
{
    dg_cuda *cu = dg_cuda_of(be);
    int n = cu->plan.n_embd;
    size_t at = (size_t)a->rows.first * (size_t)n;
    if (dg_cuda_idle(cu))
        return;
    dg_cuda_next next[2] = {{{DG_CUDA_F32, a->y + at, n}, a->w},
                            {dg_cuda_rows_for(dg_cuda_head_of(cu->table), cu->rows.data), a->w}};
    norms(cu, a->x + at, a->rows.end - a->rows.first, next);
    cu->headed = a->y + at;
}
