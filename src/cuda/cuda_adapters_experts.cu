/* What adapters add to experts.
 *
 * Gate and up: the products that stream weights leave h and not what it is made of. So h of the
 * pairs that an adapter changes is made once more, from the same weights in plain tiles: 32 places
 * of an expert by 128 channels, gate x and up x side by side in shared memory, where the low ranks
 * are added before the gate. Other pairs keep what they have, to the bit. Down: into the sum over a
 * row's experts. */
#include "cuda/cuda_adapters.cuh"
#include "cuda/cuda_stream_products.cuh"

enum { PLACES = 32, CHANNELS = 128, RANKS = 32 };
enum { WARPS = CHANNELS / 16, THREADS = 32 * WARPS };

/* ---- gate and up ---- */

struct gates_job {
    dg_stream_job stream;
    dg_adapt_gates_args a;
};

struct gates_shared {
    union {
        __align__(128) unsigned char stage[PLACES * 512]; /* while products are made */
        float_shared floats;
        float product[2][PLACES][CHANNELS + 1]; /* gate x, up x */
    };
    float part[WARPS][LOW_SUMS];
    float low[PLACES][RANKS];
    dg_low_rank of[PLACES]; /* the adapter that is being added, its factor with the use's scale */
    int row[PLACES];        /* -1: none, or nothing changes it */
};

/* Which places of a tile are changed; whether any is. */
static __device__ __forceinline__ bool find_changed(gates_shared *s, const gates_job &job,
                                                    int first, int n)
{
    int t = (int)threadIdx.x;
    const dg_cuda_adapted_experts &of = job.a.adapted;
    __syncthreads();
    if (t < PLACES) {
        int row = t < n ? job.stream.row[first + t] : -1;
        if (row >= 0) {
            const dg_cuda_uses *uses = uses_of(of.rows, row);
            row = changes(of.gate, *uses) || changes(of.up, *uses) ? row : -1;
        }
        s->row[t] = row;
    }
    __syncthreads();
    bool any = false;
    for (int i = 0; i < PLACES; i++)
        any = any || s->row[i] >= 0;
    return any;
}

/* Adapter number i of each place's, at gate or up. Returns the largest rank; -1: no place has so
 * many adapters. */
static __device__ __forceinline__ int find_low(gates_shared *s, const gates_job &job,
                                               const dg_low_rank *table, int i)
{
    int t = (int)threadIdx.x, most = -1;
    __syncthreads();
    if (t < PLACES) {
        dg_low_rank low = {};
        low.rank = -1;
        const dg_cuda_uses *uses = s->row[t] >= 0 ? uses_of(job.a.adapted.rows, s->row[t]) : NULL;
        if (uses && i < uses->n) {
            low = low_of(table, *uses, i);
            low.factor *= uses->use[i].scale;
        }
        s->of[t] = low;
    }
    __syncthreads();
    for (int p = 0; p < PLACES; p++)
        most = max(most, s->of[p].rank);
    return most;
}

/* low = factor * A x of lines `first` ... of each place's adapter: LOW_ROWS places at a time, once
 * for each adapter among them. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ void lower_places(gates_shared *s, const gates_job &job,
                                                    int expert, int first)
{
    int row = (int)threadIdx.x / LOW_LINES, i = (int)threadIdx.x % LOW_LINES;
    for (int base = 0; base < PLACES; base += LOW_ROWS)
        for (int leader = 0; leader < LOW_ROWS; leader++) {
            const dg_low_rank of = s->of[base + leader];
            bool done = of.rank <= first;
            for (int before = 0; before < leader; before++)
                done = done || s->of[base + before].a == of.a;
            if (done)
                continue;
            adapt_row x[LOW_ROWS];
#pragma unroll
            for (int r = 0; r < LOW_ROWS; r++)
                x[r] = row_at<FORM>(job.a.x, s->row[base + (s->row[base + r] < 0 ? leader : r)]);
            const float *a = of.a + (size_t)expert * (size_t)of.rank * (size_t)job.a.n_in;
            for (int line = first; line < min(first + RANKS, of.rank); line += LOW_LINES) {
                float sum = lower<FORM, WARPS>(s->part, a, line, of.rank, job.a.n_in, x, NULL);
                if (row < LOW_ROWS && line + i < of.rank && s->of[base + row].a == of.a)
                    s->low[base + row][line - first + i] = sum * s->of[base + row].factor;
            }
        }
}

/* product += B low. */
static __device__ __forceinline__ void raise_places(gates_shared *s, const gates_job &job, int side,
                                                    int expert, int out0, int first)
{
    for (int i = (int)threadIdx.x; i < PLACES * CHANNELS; i += THREADS) {
        int place = i / CHANNELS, out = out0 + i % CHANNELS;
        const dg_low_rank &of = s->of[place];
        if (of.rank <= first || out >= job.a.n_out)
            continue;
        const float *b =
            of.b + ((size_t)expert * (size_t)job.a.n_out + (size_t)out) * (size_t)of.rank + first;
        float sum = 0;
        int n = min((int)RANKS, of.rank - first);
        if (of.rank % 4 == 0) {
#pragma unroll 4
            for (int k = 0; k < n; k += 4)
                sum = add_products<4>(sum, b + k, s->low[place] + k);
        } else {
#pragma unroll 4
            for (int k = 0; k < n; k++)
                sum = add_products<1>(sum, b + k, s->low[place] + k);
        }
        s->product[side][place][i % CHANNELS] += sum;
    }
}

/* Adapters, the gate, and h of the places that are changed. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ void finish_tile(gates_shared *s, const gates_job &job,
                                                   int expert, int out0, int first)
{
    const dg_cuda_rows &h = job.stream.out;
    for (int side = 0; side < 2; side++) {
        const dg_low_rank *table = side ? job.a.adapted.up : job.a.adapted.gate;
        for (int i = 0, most; (most = find_low(s, job, table, i)) >= 0; i++)
            for (int line = 0; line < most; line += RANKS) {
                lower_places<FORM>(s, job, expert, line);
                __syncthreads();
                raise_places(s, job, side, expert, out0, line);
                __syncthreads();
            }
    }
    for (int i = (int)threadIdx.x; i < PLACES * CHANNELS; i += THREADS) {
        int place = i / CHANNELS, channel = i % CHANNELS, out = out0 + channel;
        float gate = s->product[0][place][channel], up = s->product[1][place][channel];
        if (s->row[place] >= 0 && out < job.a.n_out)
            store_one(h.data, h.form, (size_t)(first + place) * (size_t)h.ld + (size_t)out,
                      job.stream.factor *
                          (FORM == DG_CUDA_F32 ? gated_float(gate, up) : gated(gate, up)));
    }
}

/* ---- products of a tile: places that are not changed count as rows of zeros ---- */

template <class F> struct plain_stage {
    static constexpr int PIECES = stream_row<F>::UNIT_BYTES / 16, BYTES = PIECES * PLACES * 16;
    static_assert(stream_row<F>::STEP == 1, "sums are what they are");
    static_assert(BYTES <= (int)sizeof(((gates_shared *)0)->stage), "a unit has room");
};

/* A unit of the rows of x, as products read a stage. */
template <class F>
static __device__ __forceinline__ void copy_unit(gates_shared *s, const dg_stream_job &job,
                                                 int unit)
{
    for (int i = (int)threadIdx.x; i < plain_stage<F>::PIECES * PLACES; i += THREADS) {
        int place = i % PLACES, piece = i / PLACES;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (s->row[place] >= 0)
            value = *(const uint4 *)(job.x + (size_t)s->row[place] * job.x_bytes +
                                     (size_t)unit * stream_row<F>::UNIT_BYTES + piece * 16);
        *(uint4 *)(s->stage + i * 16) = value;
    }
}

/* By each warp, for 16 channels. */
template <class F>
static __device__ __forceinline__ void multiply_tile(gates_shared *s, const dg_stream_job &job,
                                                     int expert, int out0)
{
    constexpr size_t BYTES = packed_unit<F>::BYTES;
    constexpr int NT = PLACES / 8;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32,
        tile = min(out0 / 16 + warp, job.n_group * job.tiles - 1);
    size_t step = (size_t)job.tiles * BYTES,
           at = (size_t)expert * job.mat_bytes +
                (size_t)(tile / job.tiles) * (size_t)job.n_unit * step +
                (size_t)(tile % job.tiles) * BYTES;
    float acc[2][NT][4] = {};
    for (int unit = 0; unit < job.n_unit; unit++, at += step) {
        const unsigned char *w[2] = {job.w[0] + at, job.w[1] + at};
        __syncthreads();
        copy_unit<F>(s, job, unit);
        __syncthreads();
        if constexpr (stream_row<F>::IS_BYTES)
            byte_units<F, NT, NT>::multiply(acc, w, s->stage, 0, 1);
        else
            multiply_unit<F, NT, NT>(acc, w, s->stage);
    }
    __syncthreads(); /* products lie where the stage was */
    for (int m = 0; m < 2; m++)
        for (int j = 0; j < NT; j++)
            for (int i = 0; i < 4; i++)
                s->product[m][j * 8 + lane % 4 * 2 + i % 2][warp * 16 + lane / 4 + i / 2 * 8] =
                    acc[m][j][i] * factor_of(job.scale[m], expert);
}

/* Block (x: 128 channels, y: a tile of places). */
template <class F> static __global__ void __launch_bounds__(THREADS) adapt_gates(gates_job job)
{
    __shared__ gates_shared s;
    dg_grid_wait();
    dg_grid_launch_next();
    dg_expert_tile tile = job.a.tile[blockIdx.y];
    int out0 = (int)blockIdx.x * CHANNELS, end = min(tile.first + DG_EXPERT_TILE_ROWS, tile.end);
    for (int first = tile.first; first < end; first += PLACES) {
        if (!find_changed(&s, job, first, end - first))
            continue;
        multiply_tile<F>(&s, job.stream, tile.expert, out0);
        finish_tile<F::FORM>(&s, job, tile.expert, out0, first);
    }
}

/* Float weights lie padded to 64 outputs: two tiles of them. */
static __global__ void __launch_bounds__(THREADS) adapt_float_gates(gates_job job)
{
    __shared__ gates_shared s;
    dg_grid_wait();
    dg_grid_launch_next();
    enum { PARTS = CHANNELS / FLOAT_OUTS };
    dg_expert_tile tile = job.a.tile[blockIdx.y];
    int out0 = (int)blockIdx.x * CHANNELS, end = min(tile.first + DG_EXPERT_TILE_ROWS, tile.end),
        t = (int)threadIdx.x, ld = job.a.x.ld;
    for (int first = tile.first; first < end; first += PLACES) {
        if (!find_changed(&s, job, first, end - first))
            continue;
        if (t < PLACES)
            s.floats.row[t] =
                s.row[t] < 0
                    ? NULL
                    : (const float *)(job.stream.x + (size_t)s.row[t] * job.stream.x_bytes);
        float sum[PARTS][2][2][4] = {}; /* of gate and up */
        for (int i = 0; i < 2 * PARTS; i++) {
            int out = out0 + i / 2 * FLOAT_OUTS;
            size_t at = (size_t)tile.expert * job.stream.mat_bytes +
                        (size_t)out * (size_t)ld * sizeof(float);
            if (out < job.a.n_out)
                float_sums(sum[i / 2][i % 2], &s.floats, (const float *)(job.stream.w[i % 2] + at),
                           ld);
        }
        __syncthreads(); /* products lie where the rows were */
        for (int i = 0; i < PARTS * 16; i++)
            s.product[i / 8 % 2][float_row(i / 4 % 2)][i / 16 * FLOAT_OUTS + float_out(i % 4)] =
                sum[i / 16][i / 8 % 2][i / 4 % 2][i % 4];
        finish_tile<DG_CUDA_F32>(&s, job, tile.expert, out0, first);
    }
}
static_assert((int)PLACES == (int)FLOAT_ROWS && (int)THREADS == (int)FLOAT_THREADS, "one tile");

template <class F> static cudaError_t launch_format(cudaStream_t stream, gates_job job, dim3 grid)
{
    job.stream.n_unit = (job.a.n_in + F::UNIT - 1) / F::UNIT;
    return DG_LAUNCH(adapt_gates<F>, grid, THREADS, 0, stream, job);
}

cudaError_t dg_adapt_gates(cudaStream_t stream, const dg_stream_job *gates, dg_dtype type,
                           const dg_adapt_gates_args *a)
{
    gates_job job = {*gates, *a};
    dim3 grid((unsigned)(a->n_out + CHANNELS - 1) / CHANNELS, (unsigned)a->n_tile);
    switch (type) {
    case DG_F32:
        return DG_LAUNCH(adapt_float_gates, grid, THREADS, 0, stream, job);
    case DG_Q4_K:
        return launch_format<format_q4_k_bytes>(stream, job, grid);
    case DG_INT4:
        return launch_format<format_int4>(stream, job, grid);
    default:
        DG_FOR_EXPERT_FORMAT(type, return launch_format<F>(stream, job, grid), break)
    }
    return cudaErrorInvalidValue;
}

/* ---- down: y[r] += sum over j of weight[r][j] * factor * B_e (A_e h), a block a row ---- */

/* By a warp: low = weight * factor * A_e h of one choice. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ void lower_choice(float low[DG_MAX_RANK],
                                                    const dg_adapt_choices_args &a,
                                                    const dg_low_rank &of, size_t pair,
                                                    float factor)
{
    int lane = (int)threadIdx.x % 32;
    size_t n_in = (size_t)a.n_in;
    const float *lines = of.a + (size_t)a.expert[pair] * (size_t)of.rank * n_in;
    adapt_row x = row_at<FORM>(a.h, a.place[pair]);
    for (int line = 0; line < of.rank; line += LOW_LINES) {
        float sum[LOW_LINES] = {};
#pragma unroll 2
        for (int k = lane; k < a.n_in; k += 32) {
            float value = value_of<FORM>(x, k);
#pragma unroll
            for (int i = 0; i < LOW_LINES; i++)
                sum[i] = fmaf(lines[(size_t)min(line + i, of.rank - 1) * n_in + (size_t)k], value,
                              sum[i]);
        }
#pragma unroll
        for (int i = 0; i < LOW_LINES; i++) {
            float all = dg_warp_sum(sum[i]);
            if (lane == 0 && line + i < of.rank)
                low[line + i] = all * factor * a.weight[pair];
        }
    }
}

/* y += B_e low of n choices, in their order. */
template <int V>
static __device__ __forceinline__ void raise_choices(const float low[WARPS][DG_MAX_RANK],
                                                     const dg_adapt_choices_args &a,
                                                     const dg_low_rank &of, size_t pair, int n)
{
    float *y = a.y + (size_t)blockIdx.x * a.ldy;
    for (int out = (int)threadIdx.x; out < a.n_out; out += THREADS) {
        float sum = 0;
        for (int j = 0; j < n; j++) {
            size_t line = (size_t)a.expert[pair + (size_t)j] * (size_t)a.n_out + (size_t)out;
            const float *b = of.b + line * (size_t)of.rank;
#pragma unroll 4
            for (int k = 0; k < of.rank; k += V)
                sum = add_products<V>(sum, b + k, low[j] + k);
        }
        y[out] += sum;
    }
}

/* A warp a choice, WARPS of them at a time. */
template <dg_cuda_form FORM>
static __global__ void __launch_bounds__(THREADS) adapt_choices(dg_adapt_choices_args a)
{
    __shared__ __align__(16) float low[WARPS][DG_MAX_RANK];
    dg_grid_wait();
    dg_grid_launch_next();
    int warp = (int)threadIdx.x / 32;
    const dg_cuda_uses *uses = uses_of(a.rows, (int)blockIdx.x);
    for (int i = 0; i < uses->n; i++) {
        dg_low_rank of = low_of(a.low, *uses, i);
        for (int first = 0; of.rank && first < a.n_used; first += WARPS) {
            size_t pair = (size_t)blockIdx.x * (size_t)a.n_used + (size_t)first;
            int n = min((int)WARPS, a.n_used - first);
            __syncthreads(); /* the last ones have been read */
            if (warp < n)
                lower_choice<FORM>(low[warp], a, of, pair + (size_t)warp,
                                   of.factor * uses->use[i].scale * a.alpha);
            __syncthreads();
            if (of.rank % 4 == 0)
                raise_choices<4>(low, a, of, pair, n);
            else
                raise_choices<1>(low, a, of, pair, n);
        }
    }
}

cudaError_t dg_adapt_choices(cudaStream_t stream, const dg_adapt_choices_args *a)
{
    DG_FOR_FORM(a->h.form, return DG_LAUNCH(adapt_choices<FORM>, a->n_row, THREADS, 0, stream, *a))
}
