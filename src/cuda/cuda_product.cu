/* Products of rows with dense weights: projections, the dense MLP, the LM head.
 *
 * A block makes a tile of y: weight rows are the M of the mma, rows of x its N. Packed weights and
 * x go through a ring of shared-memory stages of 64 values of k, filled by cp.async; each warp
 * multiplies fragments of two 16-row tiles of weights, dequantised in registers, with its share of
 * the tile's rows. A gated product takes the gate tile and the up tile of the same channels as a
 * warp's two.
 *
 * Every tile shape adds up an element in the same chain, 16 values of k at a time in ascending
 * order, so the choice of shape (choose_tile) never changes a bit. A form for sm_90a with wgmma has
 * its seam at multiply(): fragments from registers, x from the stage, the same chain. */
#include "cuda/cuda_math.h"
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_tiles.cuh"

/* ---- shapes ---- */

/* WM x WN warps, each with 2 tiles of 16 weight rows and NT tiles of 8 rows of x. */
template <int WM_, int WN_, int NT_, int STAGES_, int RESIDENT_> struct tile_shape {
    static constexpr int WM = WM_, WN = WN_, MT = 2, NT = NT_, STAGES = STAGES_,
                         RESIDENT = RESIDENT_;
    static constexpr int THREADS = WM * WN * 32, TILES = WM * MT, TOKENS = WN * NT * 8;
};
typedef tile_shape<4, 2, 8, 4, 1> shape_128x128;
typedef tile_shape<4, 1, 8, 4, 2> shape_128x64;
typedef tile_shape<2, 2, 6, 4, 2> shape_64x96;
typedef tile_shape<2, 1, 4, 6, 3> shape_64x32;

typedef struct part_job {
    const unsigned char *w;
    const float *scale;
    size_t unit_stride;               /* from a unit of k to the next: a group of tiles */
    int n_out, n_tile, tiles, n_unit; /* tiles: of a group */
    int first_block;                  /* of weight rows, counted over the parts */
    float *y;
    size_t ldy;
} part_job;

typedef struct product_job {
    int n_row, n_chunk, n_token_block, n_part;
    bool gated; /* parts 0 and 1 are gate and up */
    float alpha;
    const unsigned char *x;
    size_t x_bytes; /* of a row */
    part_job part[3];
    dg_cuda_rows h;
} product_job;

/* ---- shared memory: stages of weights and x, then heads of units ---- */

template <class F, class T> struct stage {
    static constexpr int W_BYTES = T::TILES * F::CHUNK, X_BYTES = T::TOKENS * 128,
                         BYTES = W_BYTES + X_BYTES;
    static constexpr int CHUNKS = F::UNIT / 64; /* of a unit */
    static constexpr int HEAD_BYTES = T::TILES * F::HEAD,
                         HEAD_SLOTS = F::HEAD ? T::STAGES / 4 + 1 : 0;
    static constexpr int SHARED = T::STAGES * BYTES + HEAD_SLOTS * HEAD_BYTES;
};

/* Rows of x in a stage: 8 rows x 16 bytes side by side, as ldmatrix reads them without conflicts;
 * next the other tiles of 8 rows, then the next 16 bytes of k. */
template <class T> static __device__ __forceinline__ int x_offset(int k16, int token)
{
    return (k16 * (T::TOKENS / 8) + token / 8) * 128 + token % 8 * 16;
}

/* ---- which tile is this ---- */

struct place {
    int part, first_tile; /* of weights: of the part, or of channels */
    int first_token;
};

template <class T> static __device__ __forceinline__ place place_of(const product_job &job)
{
    int block = (int)blockIdx.x / job.n_token_block;
    place at;
    at.first_token = (int)blockIdx.x % job.n_token_block * T::TOKENS;
    at.part = 0;
    if (job.gated) {
        at.first_tile = block * (T::TILES / 2);
        return at;
    }
    while (at.part + 1 < job.n_part && block >= job.part[at.part + 1].first_block)
        at.part++;
    at.first_tile = (block - job.part[at.part].first_block) * T::TILES;
    return at;
}

/* The tile of its part that is number i of the block's; even and odd are gate and up where gated.
 */
static __device__ __forceinline__ int tile_number(const product_job &job, const place &at, int i)
{
    return job.gated ? at.first_tile + i / 2 : at.first_tile + i;
}

static __device__ __forceinline__ const part_job &tile_part(const product_job &job, const place &at,
                                                            int i)
{
    return job.part[job.gated ? i % 2 : at.part];
}

/* Where the tile's first unit is. Tiles behind the last are computed as the last and not stored. */
template <class F>
static __device__ __forceinline__ const unsigned char *tile_data(const product_job &job,
                                                                 const place &at, int i)
{
    const part_job &part = tile_part(job, at, i);
    int tile = min(tile_number(job, at, i), part.n_tile - 1), group = tile / part.tiles;
    return part.w + (size_t)group * (size_t)part.n_unit * part.unit_stride +
           (size_t)(tile % part.tiles) * packed_unit<F>::BYTES;
}

/* ---- copies into the ring ---- */

/* The 16-byte pieces of a chunk that a thread copies. */
template <class F, class T> struct pieces {
    static constexpr int N_W = T::TILES * F::CHUNK / 16, N_X = T::TOKENS * 8;
    static constexpr int W = (N_W + T::THREADS - 1) / T::THREADS, X = N_X / T::THREADS;
    static_assert(N_X % T::THREADS == 0, "x is shared out evenly");
    const unsigned char *w[W], *x[X];
    int x_at[X];
    unsigned x_valid;
};

template <class F, class T>
static __device__ __forceinline__ void pieces_init(pieces<F, T> &p, const product_job &job,
                                                   const place &at)
{
    int thread = (int)threadIdx.x;
#pragma unroll
    for (int i = 0; i < p.W; i++) {
        int piece = min(thread + i * T::THREADS, p.N_W - 1), tile = piece / (F::CHUNK / 16);
        p.w[i] = tile_data<F>(job, at, tile) + F::HEAD + piece % (F::CHUNK / 16) * 16;
    }
    p.x_valid = 0;
#pragma unroll
    for (int i = 0; i < p.X; i++) {
        /* a warp copies 64 bytes of each of 8 rows */
        int warp = thread / 32 + i * (T::THREADS / 32), k16 = thread / 8 % 4 + warp % 2 * 4;
        int token = warp / 2 * 8 + thread % 8, row = at.first_token + token;
        p.x_valid |= (unsigned)(row < job.n_row) << i;
        p.x[i] = job.x + (size_t)min(row, job.n_row - 1) * job.x_bytes + k16 * 16;
        p.x_at[i] = x_offset<T>(k16, token);
    }
}

template <class F, class T>
static __device__ __forceinline__ void copy_head(unsigned char *shared, const product_job &job,
                                                 const place &at, int unit)
{
    constexpr int N = F::HEAD / 16;
    unsigned char *slot = shared + T::STAGES * stage<F, T>::BYTES +
                          unit % stage<F, T>::HEAD_SLOTS * stage<F, T>::HEAD_BYTES;
    for (int piece = (int)threadIdx.x; piece < T::TILES * N; piece += T::THREADS) {
        const unsigned char *tile = tile_data<F>(job, at, piece / N);
        size_t offset = (size_t)unit * job.part[at.part].unit_stride + (size_t)(piece % N * 16);
        dg_cp_async16(slot + piece * 16, tile + offset);
    }
}

template <class F, class T>
static __device__ __forceinline__ void copy_chunk(unsigned char *shared, const pieces<F, T> &p,
                                                  const product_job &job, const place &at,
                                                  int chunk)
{
    constexpr int CHUNKS = stage<F, T>::CHUNKS;
    unsigned char *slot = shared + chunk % T::STAGES * stage<F, T>::BYTES;
    size_t offset = (size_t)(chunk / CHUNKS) * job.part[at.part].unit_stride +
                    (size_t)(chunk % CHUNKS * F::CHUNK);
#pragma unroll
    for (int i = 0; i < p.W; i++) {
        int piece = (int)threadIdx.x + i * T::THREADS;
        if (piece < p.N_W)
            dg_cp_async16(slot + piece * 16, p.w[i] + offset);
    }
#pragma unroll
    for (int i = 0; i < p.X; i++)
        dg_cp_async16_if(slot + stage<F, T>::W_BYTES + p.x_at[i], p.x[i] + (size_t)chunk * 128,
                         p.x_valid >> i & 1);
    if constexpr (F::HEAD != 0) {
        if (chunk % CHUNKS == 0)
            copy_head<F, T>(shared, job, at, chunk / CHUNKS);
    }
}

/* ---- a warp's registers ---- */

/* What a warp multiplies next: 32 values of k. */
template <class F, class T> struct operands {
    typename F::raw w[T::MT];
    uint32_t x[T::NT][4];
};

template <class F, class T>
static __device__ __forceinline__ void load_operands(operands<F, T> &o, const unsigned char *slot,
                                                     int half)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, wm = warp % T::WM,
        wn = warp / T::WM;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
        F::load(o.w[m], slot + (wm * T::MT + m) * F::CHUNK, half, lane);
    const unsigned char *x =
        slot + stage<F, T>::W_BYTES + x_offset<T>(4 * half + lane / 8, wn * T::NT * 8 + lane % 8);
#pragma unroll
    for (int j = 0; j < T::NT; j++)
        dg_ldmatrix_x4(o.x[j], x + j * 128);
}

template <class F, class T>
static __device__ __forceinline__ void multiply(float acc[T::MT][T::NT][4], const operands<F, T> &o,
                                                const typename F::scales scales[T::MT], int block)
{
    uint32_t a[T::MT][2][4];
#pragma unroll
    for (int m = 0; m < T::MT; m++)
        F::convert(a[m], o.w[m], scales[m], block);
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int j = 0; j < T::NT; j++)
#pragma unroll
            for (int m = 0; m < T::MT; m++)
                mma_of<F::FORM>(acc[m][j], a[m][s], o.x[j] + 2 * s);
}

/* ---- results: in a fragment value i is of row lane / 4 + 8 (i / 2) and token 2 (lane % 4) + i % 2
 * ---- */

template <class T>
static __device__ __forceinline__ void store_tile(const product_job &job, const place &at,
                                                  float acc[T::MT][T::NT][4])
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, wm = warp % T::WM,
        wn = warp / T::WM;
    const part_job &part = job.part[at.part];
    float factor = job.alpha * factor_of(part.scale, 0);
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int j = 0; j < T::NT; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int out = (at.first_tile + wm * T::MT + m) * 16 + lane / 4 + i / 2 * 8;
                int row = at.first_token + (wn * T::NT + j) * 8 + lane % 4 * 2 + i % 2;
                if (out < part.n_out && row < job.n_row)
                    part.y[(size_t)row * part.ldy + (size_t)out] = acc[m][j][i] * factor;
            }
}

template <class T>
static __device__ __forceinline__ void store_gated_tile(const product_job &job, const place &at,
                                                        float acc[T::MT][T::NT][4])
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, wm = warp % T::WM,
        wn = warp / T::WM;
    float gate = factor_of(job.part[0].scale, 0), up = factor_of(job.part[1].scale, 0);
    float out = gated_factor(job.h.form);
#pragma unroll
    for (int j = 0; j < T::NT; j++)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            float h0 = gated(acc[0][j][i] * gate, acc[1][j][i] * up) * out;
            float h1 = gated(acc[0][j][i + 1] * gate, acc[1][j][i + 1] * up) * out;
            channel_pair pair = pair_channels(h0, h1);
            int channel = (at.first_tile + wm) * 16 + (lane / 4 & ~1) + i / 2 * 8;
            int row = at.first_token + (wn * T::NT + j) * 8 + lane % 4 * 2 + lane / 4 % 2;
            if (channel < job.h.ld && row < job.n_row)
                store_pair(job.h.data, job.h.form, (size_t)row * (size_t)job.h.ld + (size_t)channel,
                           pair);
        }
}

/* ---- the kernel ---- */

template <class F, class T>
static __global__ void __launch_bounds__(T::THREADS, T::RESIDENT) product_tile(product_job job)
{
    typedef stage<F, T> S;
    DG_SHARED(shared);
    int lane = (int)threadIdx.x % 32, wm = (int)threadIdx.x / 32 % T::WM;
    place at = place_of<T>(job);
    pieces<F, T> mine;
    operands<F, T> first, second;
    typename F::scales scales[T::MT];
    float acc[T::MT][T::NT][4] = {};
    pieces_init(mine, job, at);
    dg_grid_wait();

    for (int c = 0; c < T::STAGES; c++) {
        if (c < job.n_chunk)
            copy_chunk(shared, mine, job, at, c);
        dg_cp_async_commit();
    }
    dg_cp_async_wait<T::STAGES - 1>();
    __syncthreads();
    load_operands(first, shared, 0);
    for (int c = 0; c < job.n_chunk; c++) {
        if constexpr (F::HEAD != 0) {
            if (c % S::CHUNKS == 0) {
                const unsigned char *head =
                    shared + T::STAGES * S::BYTES + c / S::CHUNKS % S::HEAD_SLOTS * S::HEAD_BYTES;
                for (int m = 0; m < T::MT; m++)
                    F::begin(scales[m], head + (wm * T::MT + m) * F::HEAD, lane);
            }
        }
        load_operands(second, shared + c % T::STAGES * S::BYTES, 1);
        multiply<F, T>(acc, first, scales, c % S::CHUNKS * 2);
        /* the stage has been read, and the next one is there */
        dg_cp_async_wait<T::STAGES - 2>();
        __syncthreads();
        if (c + T::STAGES < job.n_chunk)
            copy_chunk(shared, mine, job, at, c + T::STAGES);
        dg_cp_async_commit();
        if (c + 1 < job.n_chunk)
            load_operands(first, shared + (c + 1) % T::STAGES * S::BYTES, 0);
        multiply<F, T>(acc, second, scales, c % S::CHUNKS * 2 + 1);
    }
    dg_grid_launch_next();
    if (job.gated)
        store_gated_tile<T>(job, at, acc);
    else
        store_tile<T>(job, at, acc);
}

/* ---- float weights ---- */

/* Block (x: 64 outputs, y: 32 rows). */
static __global__ void __launch_bounds__(FLOAT_THREADS)
    product_floats(product_job job, int part_index, int ld)
{
    __shared__ float_shared s;
    const part_job &part = job.part[part_index];
    int row0 = (int)blockIdx.y * FLOAT_ROWS, out0 = (int)blockIdx.x * FLOAT_OUTS,
        t = (int)threadIdx.x;
    dg_grid_wait();
    if (t < FLOAT_ROWS)
        s.row[t] =
            row0 + t < job.n_row ? (const float *)(job.x + (size_t)(row0 + t) * job.x_bytes) : NULL;
    float sum[2][4], up[2][4];
    float_sums(sum, &s, (const float *)part.w + (size_t)out0 * (size_t)ld, ld);
    if (job.gated)
        float_sums(up, &s, (const float *)job.part[1].w + (size_t)out0 * (size_t)ld, ld);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) {
            int row = row0 + float_row(i), out = out0 + float_out(j);
            if (row >= job.n_row)
                continue;
            if (job.gated && out < job.h.ld)
                store_one(job.h.data, job.h.form, (size_t)row * (size_t)job.h.ld + (size_t)out,
                          gated_float(sum[i][j], up[i][j]) * gated_factor(job.h.form));
            if (!job.gated && out < part.n_out)
                part.y[(size_t)row * part.ldy + (size_t)out] = sum[i][j] * job.alpha;
        }
}

static cudaError_t launch_floats(cudaStream_t stream, const product_job &job, int ld)
{
    cudaError_t error = cudaSuccess;
    for (int p = 0; p < (job.gated ? 1 : job.n_part) && !error; p++) {
        dim3 grid((unsigned)((job.part[p].n_out + FLOAT_OUTS - 1) / FLOAT_OUTS),
                  (unsigned)((job.n_row + FLOAT_ROWS - 1) / FLOAT_ROWS));
        error = DG_LAUNCH(product_floats, grid, FLOAT_THREADS, 0, stream, job, p, ld);
    }
    return error;
}

/* ---- which shape ---- */

static int block_count(const product_job &job, int tiles, int tokens)
{
    int blocks = 0;
    for (int p = 0; p < (job.gated ? 1 : job.n_part); p++) {
        int wide = job.gated ? tiles / 2 : tiles;
        blocks += (job.part[p].n_tile + wide - 1) / wide;
    }
    return blocks * ((job.n_row + tokens - 1) / tokens);
}

/* The shape whose fullest multiprocessor has the least to do, in units of its area at its speed:
 * smaller tiles read more of shared memory for a product (three quarters to one half of the
 * largest's rate, by counting). */
static int choose_tile(const product_job &job)
{
    static const struct {
        int tiles, tokens;
        float speed;
    } shape[] = {{8, 128, 1.0f}, {8, 64, 0.95f}, {4, 96, 0.9f}, {4, 32, 0.5f}};
    int device = 0, n_sm = 1, best = 0;
    float least = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    for (int i = 0; i < 4; i++) {
        int rounds = (block_count(job, shape[i].tiles, shape[i].tokens) + n_sm - 1) / n_sm;
        float cost = (float)rounds * (float)(shape[i].tiles * shape[i].tokens) / shape[i].speed;
        if (i == 0 || cost < least) {
            least = cost;
            best = i;
        }
    }
    return best;
}

template <class F, class T> static cudaError_t launch_shape(cudaStream_t stream, product_job job)
{
    int blocks = 0;
    job.n_token_block = (job.n_row + T::TOKENS - 1) / T::TOKENS;
    for (int p = 0; p < job.n_part; p++) {
        int wide = job.gated ? T::TILES / 2 : T::TILES;
        job.part[p].first_block = blocks;
        if (p == 0 || !job.gated)
            blocks += (job.part[p].n_tile + wide - 1) / wide;
    }
    return DG_LAUNCH((product_tile<F, T>), dim3((unsigned)(blocks * job.n_token_block)), T::THREADS,
                     (stage<F, T>::SHARED), stream, job);
}

template <class F> static cudaError_t launch_format(cudaStream_t stream, product_job job)
{
    for (int p = 0; p < job.n_part; p++)
        job.part[p].unit_stride = (size_t)job.part[p].tiles * packed_unit<F>::BYTES;
    switch (choose_tile(job)) {
    case 0:
        return launch_shape<F, shape_128x128>(stream, job);
    case 1:
        return launch_shape<F, shape_128x64>(stream, job);
    case 2:
        return launch_shape<F, shape_64x96>(stream, job);
    default:
        return launch_shape<F, shape_64x32>(stream, job);
    }
}

static cudaError_t launch(cudaStream_t stream, const product_job &job, dg_dtype type, int n_in)
{
    if (type == DG_F32)
        return launch_floats(stream, job, dg_cuda_ld(n_in));
    DG_FOR_FORMAT(type, return launch_format<F>(stream, job), break)
    return cudaErrorInvalidValue;
}

/* ---- the contract ---- */

static void add_part(product_job *job, const dg_cuda_matrix *w, float *y, size_t ldy)
{
    part_job *part = &job->part[job->n_part++];
    part->w = (const unsigned char *)w->data;
    part->scale = w->scale;
    part->n_out = w->n_out;
    part->tiles = group_tiles(w->n_out);
    part->n_tile = group_count(w->n_out) * part->tiles;
    part->n_unit = (w->n_in + 63) / 64 * 64 / (int)(dg_dtype_block(w->type) == 256 ? 256 : 64);
    part->y = y;
    part->ldy = ldy;
}

static product_job job_over(const dg_cuda_rows &x, int n_row, float alpha)
{
    product_job job = {};
    job.n_row = n_row;
    job.n_chunk = x.ld / 64;
    job.alpha = alpha;
    job.x = (const unsigned char *)x.data;
    job.x_bytes = (size_t)x.ld * (x.form == DG_CUDA_F32 ? 4 : 2);
    return job;
}

/* Parts of one type go into one launch. */
extern "C" cudaError_t dg_cuda_product(cudaStream_t stream, const dg_cuda_product_args *a)
{
    bool done[3] = {};
    cudaError_t error = cudaSuccess;
    if (a->n_row == 0)
        return error;
    for (int p = 0; p < a->n_part && !error; p++) {
        if (done[p])
            continue;
        const dg_cuda_matrix *w = a->part[p].w;
        product_job job = job_over(a->x, a->n_row, a->alpha);
        for (int q = p; q < a->n_part; q++)
            if (!done[q] && a->part[q].w->type == w->type) {
                add_part(&job, a->part[q].w, a->part[q].y, a->part[q].ldy);
                done[q] = true;
            }
        error = launch(stream, job, w->type, w->n_in);
    }
    return error;
}

extern "C" cudaError_t dg_cuda_gated(cudaStream_t stream, const dg_cuda_gated_args *a)
{
    if (a->gate->type != a->up->type)
        return cudaErrorInvalidValue;
    if (a->n_row == 0)
        return cudaSuccess;
    product_job job = job_over(a->x, a->n_row, 1);
    job.gated = true;
    job.h = a->h;
    add_part(&job, a->gate, NULL, 0);
    add_part(&job, a->up, NULL, 0);
    return launch(stream, job, a->gate->type, a->gate->n_in);
}
