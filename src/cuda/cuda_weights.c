/* Weights on their way to the device: sent as they are stored, piece by piece, and packed there.
 * Types without a packed form are widened to bfloat16 on the host first, and all to float where
 * exact results are wanted. Where the device multiplies out of shared memory, weights that all rows
 * are multiplied with become slabs of 16-bit values: 3.4 GB more than stored for the model in
 * Q4_K_M.
 *
 * Where the caller asks for narrower weights, those of experts are made so on the device: they are
 * nine tenths of the model, and reading them is what a step waits for. Dense products of a canvas
 * are bound by arithmetic: those of a layer whose rows of x can be E4M3, too (all but down of the
 * MLP, whose rows come from many blocks), are E4M3 where that is multiplied twice as fast. The
 * table stays as wide as it is for embeddings, and is there twice more as E4M3: for the head, and
 * turned for the soft embedding. */
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/pool.h"
#include "cuda/cuda_internal.h"

enum { PIECE_BYTES = 256 << 20 };

void dg_cuda_weights_free(dg_cuda *cu)
{
    for (dg_cuda_weight *w = cu->weights, *next; w; w = next) {
        next = w->next;
        cu->base.free(&cu->base, w->memory);
        cu->base.free(&cu->base, w->scale);
        dg_free(w);
    }
    dg_cuda_weights_done(&cu->base);
}

void dg_cuda_weights_done(dg_backend *be)
{
    dg_cuda *cu = dg_cuda_of(be);
    be->free(be, cu->stage);
    cu->stage = NULL;
    cu->stage_bytes = 0;
}

static dgemma_status no_room(dg_cuda *cu, const dg_tensor *t, size_t bytes, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_NOMEM,
                   "%s: %zu MiB do not fit on the device: %zu MiB of memory are left", t->name,
                   (bytes >> 20) + 1, cu->base.room(&cu->base) >> 20);
}

static dgemma_status stage_room(dg_cuda *cu, const dg_tensor *t, size_t bytes, dgemma_error *err)
{
    if (bytes <= cu->stage_bytes)
        return DGEMMA_OK;
    cu->base.free(&cu->base, cu->stage);
    cu->stage_bytes = 0;
    cu->stage = cu->base.alloc(&cu->base, bytes);
    if (!cu->stage)
        return no_room(cu, t, bytes, err);
    cu->stage_bytes = bytes;
    return DGEMMA_OK;
}

/* Rows of a tensor that become bfloat16 or float. */
typedef struct widen_job {
    const dg_tensor *t;
    unsigned char *out;
    float *line; /* a row for each worker */
    dg_dtype to;
    int n_row, n_all_row, first_row; /* of a matrix */
    size_t n, row;                   /* rows in all, and values of one */
} widen_job;

enum { WIDEN_ROWS = 64, WIDEN_ALONE = 1 << 20 };

static void widen_rows(void *arg, int task, int worker)
{
    const widen_job *job = arg;
    const dg_tensor *t = job->t;
    float *line = job->line + (size_t)worker * job->row;
    size_t stored = dg_dtype_bytes(t->type, job->row), i = (size_t)task * WIDEN_ROWS,
           end = i + WIDEN_ROWS < job->n ? i + WIDEN_ROWS : job->n, n_row = (size_t)job->n_row;
    for (; i < end; i++) {
        size_t mat = i / n_row,
               at = mat * (size_t)job->n_all_row + (size_t)job->first_row + i % n_row;
        float scale = t->scale ? t->scale[mat] : 1;
        dg_widen(line, (const unsigned char *)t->data + at * stored, t->type, job->row);
        for (size_t k = 0; k < job->row; k++) {
            float v = t->scale ? line[k] * scale : line[k];
            if (job->to == DG_F32)
                ((float *)(void *)job->out)[i * job->row + k] = v;
            else
                ((uint16_t *)(void *)job->out)[i * job->row + k] = dg_float_to_bf16(v);
        }
    }
}

/* The tensor's rows as bfloat16 or float, by all processors where they are many; the caller's to
 * free. */
static void *widened(const dg_tensor *t, int n_mat, int n_all_row, int first_row, int n_row,
                     int n_in, dg_dtype to)
{
    size_t row = (size_t)n_in, n = (size_t)n_mat * (size_t)n_row;
    int n_thread = n * row < WIDEN_ALONE ? 1 : dg_min(dg_cpu_count(), 1024);
    dg_pool *pool = NULL;
    widen_job job = {.t = t,
                     .out = dg_array(n * row, dg_dtype_size(to)),
                     .line = dg_array((size_t)n_thread * row, sizeof(float)),
                     .to = to,
                     .n_row = n_row,
                     .n_all_row = n_all_row,
                     .first_row = first_row,
                     .n = n,
                     .row = row};
    bool ok = job.out && job.line && !dg_pool_create(&pool, n_thread, NULL);
    if (ok)
        dg_pool_run(pool, (int)((n + WIDEN_ROWS - 1) / WIDEN_ROWS), widen_rows, &job);
    dg_pool_free(pool);
    dg_free(job.line);
    if (!ok) {
        dg_free(job.out);
        return NULL;
    }
    return job.out;
}

static size_t packed_bytes(const dg_cuda_weight *w)
{
    const dg_cuda_matrix *m = &w->matrix;
    return m->slabs ? dg_cuda_slab_bytes(m->n_out, m->type == DG_FP8 ? (m->n_in + 1) / 2 : m->n_in)
           : w->gated ? dg_cuda_pack_gated_bytes(m->type, m->n_out, m->n_in)
                      : dg_cuda_pack_bytes(m->type, m->n_out, m->n_in);
}

/* Bytes of n matrices of the stage, up to where narrower ones are made of them. */
static size_t staged_bytes(size_t rows, int n)
{
    return ((size_t)n * rows + 255) / 256 * 256;
}

static size_t narrow_bytes(const dg_cuda_weight *w)
{
    const dg_cuda_matrix *m = &w->matrix;
    return w->staged == m->type ? 0 : dg_cuda_narrow_bytes(m->type, m->n_out, m->n_in);
}

/* Packs n matrices of the stage, `rows` bytes each, from number `first` on; `room` is behind them.
 */
static cudaError_t pack_piece(dg_cuda *cu, const dg_cuda_weight *w, size_t rows, int first, int n,
                              void *room)
{
    const dg_cuda_matrix *m = &w->matrix;
    unsigned char *to = (unsigned char *)(uintptr_t)m->data + (size_t)first * packed_bytes(w);
    size_t narrow = narrow_bytes(w);
    if (narrow) {
        dg_cuda_narrow_args a = {.out = room,
                                 .factor = w->scale ? (float *)w->scale + first : NULL,
                                 .stored = cu->stage,
                                 .mat_bytes = rows,
                                 .from = w->staged,
                                 .to = m->type,
                                 .n_mat = n,
                                 .n_out = m->n_out,
                                 .n_in = m->n_in};
        cudaError_t error = dg_cuda_narrow_weights(cu->stream, &a);
        if (error)
            return error;
    }
    if (m->slabs)
        return dg_cuda_pack_slabs(cu->stream, to, narrow ? room : cu->stage, m->type, m->n_out,
                                  narrow ? dg_cuda_ld(m->n_in) : m->n_in);
    return (w->gated  ? dg_cuda_pack_gated
            : w->down ? dg_cuda_pack_down
                      : dg_cuda_pack)(cu->stream, to, narrow ? room : cu->stage,
                                      narrow ? narrow : rows, m->type, n, m->n_out,
                                      narrow ? dg_cuda_ld(m->n_in) : m->n_in);
}

/* Sends rows [first, first + n) of each of the matrices that fit into a piece, and packs them. */
static dgemma_status send(dg_cuda *cu, const dg_cuda_weight *w, const dg_tensor *t,
                          const unsigned char *data, size_t mat_bytes, size_t first_bytes,
                          size_t row_bytes, dgemma_error *err)
{
    const dg_cuda_matrix *m = &w->matrix;
    size_t rows = (size_t)m->n_out * row_bytes;
    int most = (int)(PIECE_BYTES / rows), piece = dg_max(1, dg_min(most, m->n_mat));
    size_t room = staged_bytes(rows, piece);
    dgemma_status st = stage_room(cu, t, room + (size_t)piece * narrow_bytes(w), err);
    for (int i = 0; !st && i < m->n_mat; i += piece) {
        int n = dg_min(piece, m->n_mat - i);
        cudaError_t error =
            cudaMemcpy2DAsync(cu->stage, rows, data + (size_t)i * mat_bytes + first_bytes,
                              mat_bytes, rows, (size_t)n, cudaMemcpyHostToDevice, cu->stream);
        if (!error)
            error = pack_piece(cu, w, rows, i, n, (unsigned char *)cu->stage + room);
        if (!error)
            error = cudaStreamSynchronize(cu->stream);
        if (error)
            st = dg_fail(err, DGEMMA_E_INTERNAL, "%s: sending it to the device: %s", t->name,
                         cudaGetErrorString(error));
    }
    return st;
}

/* Room for a factor of each matrix; those of the file, if it has them. */
static dgemma_status send_scale(dg_cuda *cu, dg_cuda_weight *w, const dg_tensor *t,
                                dgemma_error *err)
{
    size_t bytes = (size_t)w->matrix.n_mat * sizeof(float);
    w->scale = cu->base.alloc(&cu->base, bytes);
    if (!w->scale)
        return no_room(cu, t, bytes, err);
    if (t->scale)
        cu->base.upload(&cu->base, w->scale, t->scale, bytes);
    w->matrix.scale = w->scale;
    return DGEMMA_OK;
}

static bool are_bf16(const float *v, size_t n)
{
    uint32_t left = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, v + i, sizeof bits);
        left |= bits << 16;
    }
    return !left;
}

/* The router multiplies in float. Weights that once were bfloat16, as all that are published, are
 * so again: what a float has behind that is nothing, and is left out. */
static dgemma_status send_router(dg_cuda *cu, dg_cuda_weight *w, const dg_tensor *t,
                                 const dg_weight_source *from, int n_all_row, dgemma_error *err)
{
    dg_cuda_matrix *m = &w->matrix;
    size_t n = (size_t)m->n_out * (size_t)m->n_in;
    void *host = widened(t, 1, n_all_row, from->first_row, m->n_out, m->n_in, DG_F32);
    m->type = host && are_bf16(host, n) ? DG_BF16 : DG_F32;
    if (m->type == DG_BF16) {
        dg_free(host);
        host = widened(t, 1, n_all_row, from->first_row, m->n_out, m->n_in, DG_BF16);
    }
    size_t bytes = n * dg_dtype_size(m->type);
    w->plain = w->memory = cu->base.alloc(&cu->base, bytes);
    dgemma_status st = !w->memory ? no_room(cu, t, bytes, err)
                       : !host    ? dg_fail(err, DGEMMA_E_NOMEM, "out of memory")
                                  : DGEMMA_OK;
    if (!st)
        cu->base.upload(&cu->base, w->memory, host, bytes);
    dg_free(host);
    return st;
}

/* The vision tower's position tables are looked up, never multiplied: rows as in files, 16-bit
 * values or floats. */
static dgemma_status send_table(dg_cuda *cu, dg_cuda_weight *w, const dg_tensor *t,
                                dgemma_error *err)
{
    dg_cuda_matrix *m = &w->matrix;
    bool plain = t->type == DG_F32 || t->type == DG_F16 || t->type == DG_BF16;
    m->type = cu->exact ? DG_F32 : plain ? t->type : DG_BF16;
    size_t bytes = (size_t)m->n_mat * (size_t)m->n_out * dg_dtype_bytes(m->type, (size_t)m->n_in);
    void *host =
        m->type == t->type ? NULL : widened(t, m->n_mat, m->n_out, 0, m->n_out, m->n_in, m->type);
    if (m->type != t->type && !host)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    m->data = w->memory = cu->base.alloc(&cu->base, bytes);
    dgemma_status st = w->memory ? DGEMMA_OK : no_room(cu, t, bytes, err);
    if (!st)
        cu->base.upload(&cu->base, w->memory, host ? host : t->data, bytes);
    dg_free(host);
    return st;
}

static bool is_routed(dg_weight_role role)
{
    return role == DG_ROLE_EXPERT_GATE || role == DG_ROLE_EXPERT_UP || role == DG_ROLE_EXPERT_DOWN;
}

/* Dense weights of a layer that are multiplied with a row's norm, or with what attention gives. */
static bool meets_bytes(const dg_weight_source *from)
{
    switch (from->role) {
    case DG_ROLE_QUERY:
    case DG_ROLE_KEY:
    case DG_ROLE_VALUE:
    case DG_ROLE_ATTENTION_OUT:
    case DG_ROLE_GATE:
    case DG_ROLE_UP:
        return from->layer >= 0;
    default:
        return false;
    }
}

/* What a weight is multiplied as. Of a type without a packed form: bfloat16. */
static dg_dtype type_for(const dg_cuda *cu, const dg_weight_source *from)
{
    dg_dtype stored = from->tensor->type;
    if (cu->exact)
        return DG_F32;
    if (cu->narrow && is_routed(from->role))
        return cu->narrow;
    if (cu->narrow && meets_bytes(from) && dg_cuda_has_groups())
        return DG_FP8;
    return dg_cuda_pack_bytes(stored, from->n_row, 256) ? stored : DG_BF16;
}

static dgemma_status check_type(const dg_weight_source *from, int n_in, dgemma_error *err)
{
    const dg_tensor *t = from->tensor;
    if (t->type >= DG_DTYPE_COMPUTE || (uint64_t)n_in % dg_dtype_block(t->type))
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "%s: rows of %d values of type %s cannot be used",
                       t->name, n_in, dg_dtype_name(t->type));
    return DGEMMA_OK;
}

/* The table once more for the head, a byte a value, where its rows of x can be E4M3, too. */
static dgemma_status send_head(dg_cuda *cu, dg_cuda_weight *table, const dg_tensor *t,
                               dgemma_error *err)
{
    dg_cuda_weight *head = dg_calloc(1, sizeof *head);
    if (!head)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    head->next = cu->weights;
    cu->weights = head;
    head->matrix = table->matrix;
    head->matrix.type = DG_FP8;
    head->staged = t->type;
    size_t packed = packed_bytes(head),
           row_bytes = dg_dtype_bytes(t->type, (size_t)head->matrix.n_in);
    head->matrix.data = head->memory = cu->base.alloc(&cu->base, packed);
    dgemma_status st = head->memory ? send_scale(cu, head, t, err) : no_room(cu, t, packed, err);
    if (!st)
        st = send(cu, head, t, t->data, row_bytes * (size_t)head->matrix.n_out, 0, row_bytes, err);
    table->head = head;
    return st;
}

/* And once more for the soft embedding, turned. */
static dgemma_status turn_head(dg_cuda *cu, dg_cuda_weight *table, const dg_tensor *t,
                               dgemma_error *err)
{
    dg_cuda_weight *soft = dg_calloc(1, sizeof *soft);
    if (!soft)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    soft->next = cu->weights;
    cu->weights = soft;
    soft->matrix = table->head->matrix;
    const dg_cuda_matrix *m = &soft->matrix;
    size_t bytes = dg_cuda_turned_bytes(m->n_out, m->n_in);
    soft->memory = cu->base.alloc(&cu->base, bytes);
    if (!soft->memory)
        return no_room(cu, t, bytes, err);
    dg_cuda_failed(cu, dg_cuda_turn_slabs(cu->stream, soft->memory, m->data, m->n_out, m->n_in),
                   "weights");
    soft->matrix.data = soft->memory;
    table->soft = soft;
    return DGEMMA_OK;
}

/* Blocks that are to be made narrower: they are not made from block to block. */
static bool is_made_anew(const dg_cuda *cu, const dg_weight_source *from)
{
    return cu->narrow && dg_dtype_is_block(from->tensor->type) &&
           (is_routed(from->role) || from->role == DG_ROLE_EMBED ||
            (meets_bytes(from) && dg_cuda_has_groups()));
}

/* As if the file had them in bfloat16. */
static dgemma_status init_anew(dg_backend *be, dg_weight *w, const dg_weight_source *from,
                               dgemma_error *err)
{
    const dg_tensor *t = from->tensor;
    bool many = t->n_dim == 3;
    dg_tensor plain = *t;
    dg_weight_source of = {&plain, from->role, from->layer, 0, from->n_row};
    plain.type = DG_BF16;
    plain.shape[many] = from->n_row;
    plain.scale = NULL;
    plain.bytes = dg_tensor_count(&plain) * sizeof(uint16_t);
    void *host = widened(t, many ? (int)t->shape[0] : 1, (int)t->shape[many], from->first_row,
                         from->n_row, (int)t->shape[many + 1], DG_BF16);
    plain.data = host;
    dgemma_status st =
        host ? dg_cuda_weight_init(be, w, &of, err) : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_free(host);
    return st;
}

dgemma_status dg_cuda_weight_init(dg_backend *be, dg_weight *w, const dg_weight_source *from,
                                  dgemma_error *err)
{
    dg_cuda *cu = dg_cuda_of(be);
    const dg_tensor *t = from->tensor;
    bool many = t->n_dim == 3;
    const int64_t *shape = t->shape + many;
    int n_mat = many ? (int)t->shape[0] : 1, n_in = (int)shape[1], n_all_row = (int)shape[0];
    dgemma_status usable = check_type(from, n_in, err);
    if (usable)
        return usable;
    if (is_made_anew(cu, from))
        return init_anew(be, w, from, err);
    dg_cuda_weight *d = dg_calloc(1, sizeof *d);
    if (!d)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    d->next = cu->weights;
    cu->weights = d;
    *w =
        (dg_weight){.type = t->type, .n_mat = n_mat, .n_out = from->n_row, .n_in = n_in, .data = d};
    dg_dtype type = type_for(cu, from);
    if (from->role == DG_ROLE_EMBED)
        cu->table = d;
    d->gated = from->role == DG_ROLE_EXPERT_GATE || from->role == DG_ROLE_EXPERT_UP;
    d->down = from->role == DG_ROLE_EXPERT_DOWN;
    bool slabs = !is_routed(from->role) && !many && type != DG_F32 && dg_cuda_has_groups();
    bool narrow = type >= DG_DTYPE_FILE;
    d->staged = narrow ? t->type : type;
    d->matrix = (dg_cuda_matrix){type, n_mat, from->n_row, n_in, NULL, NULL, slabs};
    if (from->role == DG_ROLE_ROUTER)
        return send_router(cu, d, t, from, n_all_row, err);
    if (from->role == DG_ROLE_VISION && many)
        return send_table(cu, d, t, err);
    cu->tower.floats |= from->role == DG_ROLE_VISION && type == DG_F32;

    size_t packed = packed_bytes(d) * (size_t)n_mat;
    d->matrix.data = d->memory = cu->base.alloc(&cu->base, packed);
    if (!d->memory)
        return no_room(cu, t, packed, err);
    size_t row_bytes = dg_dtype_bytes(d->staged, (size_t)n_in);
    if (d->staged == t->type) {
        dgemma_status st = t->scale || type == DG_FP8 ? send_scale(cu, d, t, err) : DGEMMA_OK;
        if (!st)
            st = send(cu, d, t, t->data, row_bytes * (size_t)n_all_row,
                      row_bytes * (size_t)from->first_row, row_bytes, err);
        bool again = from->role == DG_ROLE_EMBED && cu->narrow && slabs && !dg_dtype_is_block(type);
        if (!st && again)
            st = send_head(cu, d, t, err);
        return st || !again ? st : turn_head(cu, d, t, err);
    }
    void *host = widened(t, n_mat, n_all_row, from->first_row, from->n_row, n_in, type);
    dgemma_status st =
        host ? send(cu, d, t, host, row_bytes * (size_t)from->n_row, 0, row_bytes, err)
             : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dg_free(host);
    return st;
}
