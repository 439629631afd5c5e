/* The experts of a layer: rows sorted by expert, gate and up with the gated product, down, and the
 * sum over a row's experts. Weights are streamed (cuda_stream.cuh); experts with many rows go to
 * the dense products' tiles, which give the same bits. */
#include "cuda/cuda_stream.cuh"
#include "cuda/cuda_stream_lean.cuh"

/* ---- float weights ---- */

/* Block (x: 64 outputs, y: expert). */
static __global__ void __launch_bounds__(FLOAT_THREADS)
    float_experts(dg_stream_job job, const int32_t *start, int ld)
{
    __shared__ float_shared s;
    int expert = (int)blockIdx.y, out0 = (int)blockIdx.x * FLOAT_OUTS, t = (int)threadIdx.x;
    dg_grid_wait();
    int first = start[expert], end = start[expert + 1];
    size_t at = (size_t)expert * job.mat_bytes + (size_t)out0 * (size_t)ld * sizeof(float);
    for (int base = first; base < end; base += FLOAT_ROWS) {
        float sum[2][4], up[2][4];
        __syncthreads();
        if (t < FLOAT_ROWS) {
            int place = min(base + t, end - 1), row = job.row ? job.row[place] : place;
            s.row[t] = base + t < end ? (const float *)(job.x + (size_t)row * job.x_bytes) : NULL;
        }
        float_sums(sum, &s, (const float *)(job.w[0] + at), ld);
        if (!job.down)
            float_sums(up, &s, (const float *)(job.w[1] + at), ld);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++) {
                int place = base + float_row(i), out = out0 + float_out(j);
                float v = job.factor * (job.down ? sum[i][j] : gated_float(sum[i][j], up[i][j]));
                if (place < end && out < job.out.ld)
                    store_one(job.out.data, job.out.form,
                              (size_t)place * (size_t)job.out.ld + (size_t)out, v);
            }
    }
}

/* ---- launches ---- */

/* Gate and up are products of bytes. */
static bool of_bytes(const dg_cuda_matrix *gate)
{
    return gate->type == DG_Q4_K;
}

static bool down_of_bytes(const dg_cuda_matrix *down)
{
    return down->type == DG_Q5_0 || down->type == DG_INT4;
}

/* 32 rows a piece leave room for stages, and products of bytes room in registers; with many rows an
 * expert 64 let its weights be read and made ready half as often. */
static bool in_long_pieces(int n_pair, const dg_cuda_matrix *gate)
{
    return n_pair > 24 * gate->n_mat && !of_bytes(gate);
}

/* What is multiplied as bytes has no kernel besides. */
template <class F, bool DOWN> constexpr bool has_kernel = true;
template <> constexpr bool has_kernel<format_q4_k, false> = false;
template <> constexpr bool has_kernel<format_q5_0, true> = false;

/* Where one warp that copies and gathers is better (cuda_stream_lean.cuh). Down of four bits takes
 * 42 us with the other form and 49 with this one. */
template <class F, bool DOWN> constexpr bool is_lean = stream_row<F>::IS_BYTES;
template <> constexpr bool is_lean<format_int4, true> = false;

template <class F, bool DOWN>
static cudaError_t launch_format(cudaStream_t stream, dg_stream_job job, int n_in)
{
    cudaError_t error = cudaErrorInvalidValue;
    (void)stream, (void)job, (void)n_in;
    if constexpr (has_kernel<F, DOWN>) {
        job.n_unit = (n_in + F::UNIT - 1) / F::UNIT;
        bool more = job.piece_rows > DG_PIECE_ROWS;
        if constexpr (!is_lean<F, DOWN>)
            error =
                more ? launch_half<F, DOWN, 8>(stream, job) : launch_half<F, DOWN, 4>(stream, job);
        else if constexpr (F::UNIT == 64)
            error = more ? lean::launch_stream<F, DOWN, 8>(stream, job)
                         : lean::launch_stream<F, DOWN, 4>(stream, job);
        else
            error = lean::launch_stream<F, DOWN, 4>(stream, job);
    }
    return error;
}

/* What a job is told of its packed matrices. */
static void set_matrices(dg_stream_job *job, const dg_cuda_matrix *w)
{
    bool gated = !job->down && w->type == DG_Q4_K;
    job->n_expert = w->n_mat;
    job->mat_bytes = gated ? dg_cuda_pack_gated_bytes(w->type, w->n_out, w->n_in)
                           : dg_cuda_pack_bytes(w->type, w->n_out, w->n_in);
    job->tiles = group_tiles(w->n_out);
    job->n_group = group_count(w->n_out);
}

static cudaError_t launch(cudaStream_t stream, dg_stream_job job, const dg_cuda_matrix *w,
                          const int32_t *start)
{
    if (job.piece_rows == DG_GROUP_ROWS) {
        job.n_unit = dg_cuda_ld(w->n_in) / 64;
        return dg_expert_groups(stream, &job, w->type);
    }
    if (w->type == DG_F32) {
        dim3 grid((unsigned)((w->n_out + FLOAT_OUTS - 1) / FLOAT_OUTS), (unsigned)w->n_mat);
        return DG_LAUNCH_IF(!job.follows_stream, float_experts, grid, FLOAT_THREADS, 0, stream, job,
                            start, dg_cuda_ld(w->n_in));
    }
    if (w->type == DG_Q4_K && !job.down)
        return launch_format<format_q4_k_bytes, false>(stream, job, w->n_in);
    if (w->type == DG_Q5_0 && job.down)
        return launch_format<format_q5_0_bytes, true>(stream, job, w->n_in);
    if (w->type == DG_INT4)
        return job.down ? launch_format<format_int4, true>(stream, job, w->n_in)
                        : launch_format<format_int4, false>(stream, job, w->n_in);
    if (job.down) {
        DG_FOR_EXPERT_FORMAT(w->type, return (launch_format<F, true>(stream, job, w->n_in)), break)
    } else {
        DG_FOR_EXPERT_FORMAT(w->type, return (launch_format<F, false>(stream, job, w->n_in)), break)
    }
    return cudaErrorInvalidValue;
}

template <class G, class D>
static cudaError_t launch_pair(cudaStream_t stream, stream_launch all, int n_embd, int n_ff)
{
    all.job[0].n_unit = (n_embd + G::UNIT - 1) / G::UNIT;
    all.job[1].n_unit = (n_ff + D::UNIT - 1) / D::UNIT;
    return launch_stream<G, D, 4>(stream, all);
}

/* Types of gate and up and of down that have one launch for both. */
static bool have_one_launch(dg_dtype gate, dg_dtype down)
{
    switch (gate) {
    case DG_BF16:
    case DG_Q8_0:
    case DG_FP8:
        return down == gate;
    default:
        return false;
    }
}

static cudaError_t launch_both(cudaStream_t stream, const stream_launch &all, dg_dtype type,
                               int n_embd, int n_ff)
{
    return type == DG_BF16  ? launch_pair<format_bf16, format_bf16>(stream, all, n_embd, n_ff)
           : type == DG_FP8 ? launch_pair<format_fp8, format_fp8>(stream, all, n_embd, n_ff)
                            : launch_pair<format_q8_0, format_q8_0>(stream, all, n_embd, n_ff);
}

/* ---- the contract ---- */

/* What the scratch memory holds. */
typedef struct experts_scratch {
    int32_t *start, *row, *place, *counter; /* counter: and the number of pieces behind them */
    dg_expert_piece *piece;
    uint32_t *done; /* of a piece */
    dg_expert_tile *tile;
    void *h, *result;       /* h: halves, and then the same as bytes */
    unsigned char *x_bytes; /* rows of x as bytes, behind results of 16 bits */
    size_t bytes;
} experts_scratch;

static size_t take(size_t *bytes, size_t wanted)
{
    size_t at = *bytes;
    *bytes += (wanted + 255) / 256 * 256;
    return at;
}

static experts_scratch lay_out(void *memory, size_t n_pair, int n_expert, int n_embd, int n_ff)
{
    unsigned char *base = (unsigned char *)memory;
    experts_scratch s = {};
    s.start = (int32_t *)(base + take(&s.bytes, ((size_t)n_expert + 1) * sizeof(int32_t)));
    s.counter =
        (int32_t *)(base + take(&s.bytes, ((size_t)DG_PIECE_COUNTERS + 1) * sizeof(int32_t)));
    s.row = (int32_t *)(base + take(&s.bytes, n_pair * sizeof(int32_t)));
    s.place = (int32_t *)(base + take(&s.bytes, n_pair * sizeof(int32_t)));
    s.piece =
        (dg_expert_piece *)(base + take(&s.bytes, (n_pair / DG_PIECE_ROWS + (size_t)n_expert) *
                                                      sizeof(dg_expert_piece)));
    s.done = (uint32_t *)(base + take(&s.bytes, (n_pair / DG_PIECE_ROWS + (size_t)n_expert) *
                                                    sizeof(uint32_t)));
    s.tile =
        (dg_expert_tile *)(base + take(&s.bytes, (n_pair / DG_EXPERT_TILE_ROWS + (size_t)n_expert) *
                                                     sizeof(dg_expert_tile)));
    s.h = base + take(&s.bytes, n_pair * (size_t)dg_cuda_ld(n_ff) * sizeof(float));
    s.result = base + take(&s.bytes, n_pair * (size_t)dg_cuda_ld(n_embd) * sizeof(float));
    s.x_bytes = (unsigned char *)s.result + n_pair * (size_t)dg_cuda_ld(n_embd) * sizeof(uint16_t);
    return s;
}

extern "C" size_t dg_cuda_experts_bytes(int max_row, int n_used, int n_expert, int n_embd,
                                        int n_ff_expert)
{
    return lay_out(NULL, (size_t)max_row * (size_t)n_used, n_expert, n_embd, n_ff_expert).bytes;
}

static size_t row_bytes(const dg_cuda_rows &rows)
{
    return (size_t)rows.ld * (rows.form == DG_CUDA_F32 ? 4 : 2);
}

/* From so many rows an expert on warpgroups are faster: of 16 bits 376 us against 388 with 32, as
 * pieces of 64 would have the weights of some experts copied twice. Bytes have to be widened, which
 * takes as long for few rows as for many: with 32 rows 12 layers of `fp8` would take 7.4 ms instead
 * of 6.9, with 64 they take 10.8 instead of 12.0. */
static bool in_groups(const dg_cuda_experts_args *a)
{
    int few = a->gate->type == DG_BF16 || a->gate->type == DG_F16 ? 28 : 48;
    return a->n_row * a->n_used >= few * a->gate->n_mat && dg_has_expert_groups(a->gate->type) &&
           dg_has_expert_groups(a->down->type);
}

static int piece_rows(const dg_cuda_experts_args *a)
{
    if (in_groups(a))
        return DG_GROUP_ROWS;
    return in_long_pieces(a->n_row * a->n_used, a->gate) ? 2 * DG_PIECE_ROWS : DG_PIECE_ROWS;
}

/* Rows of x as bytes for weights of four bits. */
static dg_byte_blocks x_groups(const dg_cuda_experts_args *a, const experts_scratch &s)
{
    dg_byte_blocks rows = {};
    rows.h = (const uint16_t *)a->x.data;
    rows.n_row = a->n_row;
    rows.ld = a->x.ld;
    rows.groups = true;
    rows.out = s.x_bytes;
    return rows;
}

/* A block that has no more of gate and up begins with down: then it does not matter that blocks
 * come to the end of gate and up at different times. */
static bool goes_on_with_down(const dg_cuda_experts_args *a)
{
    return !down_of_bytes(a->down);
}

static cudaError_t sort(cudaStream_t stream, const dg_cuda_experts_args *a,
                        const experts_scratch &s, bool older_rows)
{
    dg_sort_job job = {};
    job.older_rows = older_rows;
    job.expert = a->expert;
    job.n_pair = a->n_row * a->n_used;
    job.n_used = a->n_used;
    job.n_expert = a->gate->n_mat;
    job.piece_rows = piece_rows(a);
    job.in_turn = goes_on_with_down(a) && !in_groups(a);
    job.start = s.start;
    job.row = s.row;
    job.place = s.place;
    job.piece = s.piece;
    job.done = s.done;
    job.counter = s.counter;
    job.n_piece = s.counter + DG_PIECE_COUNTERS;
    job.tile = s.tile;
    job.n_tile = dg_most_tiles(job.n_pair, job.n_expert);
    dg_byte_rows rows = {};
    if (of_bytes(a->gate)) {
        rows.x = (const uint16_t *)a->x.data;
        rows.n_row = a->n_row;
        rows.ld = a->x.ld;
        rows.n_unit = a->gate->n_in / 256;
        rows.out = s.x_bytes;
    }
    if (a->gate->type == DG_INT4)
        job.groups = x_groups(a, s);
    return dg_sort_pairs(stream, &job, &rows);
}

/* From so many rows an expert on, products are the limit and not the reading of weights: the dense
 * kernel's tiles then are better than streaming. */
static bool in_tiles(const dg_cuda_experts_args *a, const dg_cuda_matrix *w)
{
    return w->type != DG_F32 && w->type != DG_INT4 && a->n_row * a->n_used >= 96 * w->n_mat &&
           dg_cuda_has_groups() && !in_groups(a);
}

/* Stands between another stream's work and a launch that begins early. */
static __global__ void meet_streams(void)
{
    dg_grid_wait();
    dg_grid_launch_next();
}

static cudaError_t tiles_product(cudaStream_t stream, const dg_cuda_experts_args *a,
                                 const experts_scratch &s, const dg_stream_job &job,
                                 const dg_cuda_rows &x, const dg_cuda_matrix *w,
                                 const dg_cuda_matrix *up)
{
    dg_expert_product product = {};
    cudaError_t error = job.follows_stream
                            ? DG_LAUNCH_IF(false, meet_streams, dim3(1), 32, 0, stream)
                            : cudaSuccess;
    if (error)
        return error;
    product.tile = s.tile;
    product.n_tile = dg_most_tiles(a->n_row * a->n_used, w->n_mat);
    product.row = job.row;
    product.x = x;
    product.w[0] = w;
    product.w[1] = up;
    product.factor = job.factor;
    product.out = job.out;
    return dg_cuda_product_experts(stream, &product);
}

static dg_stream_job stream_job(const dg_cuda_experts_args *a, const experts_scratch &s, int step)
{
    dg_stream_job job = {};
    job.n_pair = a->n_row * a->n_used;
    job.piece_rows = piece_rows(a);
    job.piece = s.piece;
    job.n_piece = s.counter + DG_PIECE_COUNTERS;
    job.next = s.counter + step;
    return job;
}

/* Bytes of h, behind its halves. */
static dg_byte_blocks byte_blocks(const dg_cuda_experts_args *a, const dg_cuda_rows &h)
{
    dg_byte_blocks rows = {};
    rows.groups = a->down->type == DG_INT4;
    rows.h = (const uint16_t *)h.data;
    rows.n_row = a->n_row * a->n_used;
    rows.ld = h.ld;
    rows.out = (unsigned char *)h.data + (size_t)rows.n_row * row_bytes(h);
    return rows;
}

static dg_stream_job gate_job(const dg_cuda_experts_args *a, const experts_scratch &s,
                              const dg_cuda_rows &h)
{
    dg_stream_job job = stream_job(a, s, 0);
    job.read_once = 2 * job.n_pair <= job.piece_rows * a->gate->n_mat;
    job.row = s.row;
    job.x = (const unsigned char *)a->x.data;
    job.x_bytes = row_bytes(a->x);
    job.w[0] = (const unsigned char *)a->gate->data;
    job.w[1] = (const unsigned char *)a->up->data;
    job.scale[0] = a->gate->scale;
    job.scale[1] = a->up->scale;
    job.factor = h.form == DG_CUDA_F16 ? 1 / DG_CUDA_GATED : 1;
    job.follows_stream = a->sorted;
    job.before_down = goes_on_with_down(a);
    job.out = h;
    if (of_bytes(a->gate)) {
        job.x = s.x_bytes;
        job.x_bytes = (size_t)(a->gate->n_in / 256) * BYTE_UNIT;
    } else if (a->gate->type == DG_INT4) {
        job.x = s.x_bytes;
        job.x_bytes = (size_t)(a->x.ld / 64) * BLOCKS_UNIT;
    }
    set_matrices(&job, a->gate);
    return job;
}

static dg_stream_job down_job(const dg_cuda_experts_args *a, const experts_scratch &s,
                              const dg_cuda_rows &h, const dg_cuda_rows &result)
{
    dg_stream_job job = stream_job(a, s, 1);
    job.x = (const unsigned char *)h.data;
    job.x_bytes = row_bytes(h);
    job.w[0] = job.w[1] = (const unsigned char *)a->down->data;
    job.scale[0] = job.scale[1] = a->down->scale;
    job.factor = h.form == DG_CUDA_F16 ? DG_CUDA_GATED : 1;
    job.down = true;
    job.out = result;
    if (down_of_bytes(a->down)) {
        job.x = byte_blocks(a, h).out;
        job.x_bytes = (size_t)(h.ld / 64) * BLOCKS_UNIT;
    }
    set_matrices(&job, a->down);
    return job;
}

static cudaError_t gate_and_up(cudaStream_t stream, const dg_cuda_experts_args *a,
                               const experts_scratch &s, const dg_cuda_rows &h)
{
    dg_stream_job job = gate_job(a, s, h);
    if (!of_bytes(a->gate) && in_tiles(a, a->gate))
        return tiles_product(stream, a, s, job, a->x, a->gate, a->up);
    return launch(stream, job, a->gate, s.start);
}

static cudaError_t down(cudaStream_t stream, const dg_cuda_experts_args *a,
                        const experts_scratch &s, const dg_cuda_rows &h, const dg_cuda_rows &result)
{
    dg_stream_job job = down_job(a, s, h, result);
    if (down_of_bytes(a->down)) {
        dg_byte_blocks rows = byte_blocks(a, h);
        cudaError_t error = dg_narrow_blocks(stream, &rows);
        if (error)
            return error;
    } else if (in_tiles(a, a->down)) {
        return tiles_product(stream, a, s, job, h, a->down, NULL);
    }
    return launch(stream, job, a->down, s.start);
}

/* Gate and up and down in one launch, where rows are few and there is one for their types. */
static bool in_one_launch(const dg_cuda_experts_args *a)
{
    return piece_rows(a) == DG_PIECE_ROWS && !in_tiles(a, a->gate) && !in_tiles(a, a->down) &&
           have_one_launch(a->gate->type, a->down->type);
}

static cudaError_t adapt_gates(cudaStream_t stream, const dg_cuda_experts_args *a,
                               const experts_scratch &s, const dg_cuda_rows &h)
{
    dg_stream_job job = gate_job(a, s, h);
    dg_adapt_gates_args args = {};
    args.adapted = *a->adapted;
    args.x = a->x;
    args.n_out = a->gate->n_out;
    args.n_in = a->gate->n_in;
    args.tile = s.tile;
    args.n_tile = dg_most_tiles(job.n_pair, job.n_expert);
    return dg_adapt_gates(stream, &job, a->gate->type, &args);
}

static cudaError_t gate_up_and_down(cudaStream_t stream, const dg_cuda_experts_args *a,
                                    const experts_scratch &s, const dg_cuda_rows &h,
                                    const dg_cuda_rows &result)
{
    bool adapted = a->adapted && (a->adapted->gate || a->adapted->up);
    if (in_one_launch(a) && !adapted) {
        stream_launch all = {};
        all.job[0] = gate_job(a, s, h);
        all.job[0].done = s.done;
        all.job[1] = down_job(a, s, h, result);
        return launch_both(stream, all, a->gate->type, a->gate->n_in, a->down->n_in);
    }
    cudaError_t error = gate_and_up(stream, a, s, h);
    if (!error && adapted)
        error = adapt_gates(stream, a, s, h);
    return error ? error : down(stream, a, s, h, result);
}

static cudaError_t sum_choices(cudaStream_t stream, const dg_cuda_experts_args *a,
                               const experts_scratch &s, const dg_cuda_rows &result)
{
    dg_combine_job job = {};
    job.in = result;
    job.place = s.place;
    job.weight = a->weight;
    job.y = a->y;
    job.ldy = a->ldy;
    job.n_row = a->n_row;
    job.n_used = a->n_used;
    job.n_embd = a->down->n_out;
    return dg_combine(stream, &job);
}

static cudaError_t adapt_choices(cudaStream_t stream, const dg_cuda_experts_args *a,
                                 const experts_scratch &s, const dg_cuda_rows &h)
{
    dg_adapt_choices_args args = {};
    args.rows = a->adapted->rows;
    args.low = a->adapted->down;
    args.n_row = a->n_row;
    args.n_used = a->n_used;
    args.n_out = a->down->n_out;
    args.n_in = a->down->n_in;
    args.expert = a->expert;
    args.place = s.place;
    args.weight = a->weight;
    args.h = h;
    args.alpha = h.form == DG_CUDA_F16 ? DG_CUDA_GATED : 1;
    args.y = a->y;
    args.ldy = a->ldy;
    return dg_adapt_choices(stream, &args);
}

static experts_scratch scratch_of(const dg_cuda_experts_args *a)
{
    return lay_out(a->scratch, (size_t)a->n_row * (size_t)a->n_used, a->gate->n_mat, a->down->n_out,
                   a->gate->n_out);
}

extern "C" cudaError_t dg_cuda_experts_sort(cudaStream_t stream, const dg_cuda_experts_args *a)
{
    return a->n_row ? sort(stream, a, scratch_of(a), true) : cudaSuccess;
}

/* Results of down wait for their sum as bfloat16; as floats where weights are. */
extern "C" cudaError_t dg_cuda_experts(cudaStream_t stream, const dg_cuda_experts_args *a)
{
    if (a->gate->type != a->up->type)
        return cudaErrorInvalidValue;
    if (a->n_row == 0)
        return cudaSuccess;
    int n_embd = a->down->n_out;
    experts_scratch s = scratch_of(a);
    dg_cuda_form form = dg_cuda_form_of(a->down->type);
    dg_cuda_rows h = {form, s.h, dg_cuda_ld(a->gate->n_out)};
    dg_cuda_rows result = {form == DG_CUDA_F32 ? DG_CUDA_F32 : DG_CUDA_BF16, s.result,
                           (n_embd + 7) / 8 * 8};
    cudaError_t error = a->sorted ? cudaSuccess : sort(stream, a, s, false);
    if (!error)
        error = gate_up_and_down(stream, a, s, h, result);
    if (!error && !a->choices)
        error = sum_choices(stream, a, s, result);
    if (!error && a->adapted && a->adapted->down)
        error = adapt_choices(stream, a, s, h);
    if (error || !a->choices)
        return error;
    *a->choices = dg_cuda_choices{result, s.place, a->weight, a->n_used};
    return cudaSuccess;
}
