/* Products of rows with dense weights: projections, the dense MLP, the LM head.
 *
 * A block makes a tile of y: weight rows are the M of the mma, rows of x its N. Packed weights and
 * x go through a ring of shared-memory stages of 64 values of k, filled by cp.async; weights are
 * dequantised in registers. There are two kernels: in product_tile each warp multiplies fragments
 * of two 16-row tiles of weights with its share of the tile's rows by mma; in product_groups, for
 * sm_90a, four warps together multiply 64 rows of weights by wgmma. A gated product has gate and up
 * tiles of the same channels in one block.
 *
 * Every kernel and tile shape adds up an element in the same chain, 16 values of k at a time in
 * ascending order, so the choice of shape (choose_shape) never changes a bit. */
#include "cuda/cuda_product.cuh"
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_tiles.cuh"
#include "cuda/cuda_wgmma.cuh"

/* ---- shapes ---- */

/* WM x WN warps, each with 2 tiles of 16 weight rows and NT tiles of 8 rows of x. */
template <int WM_, int WN_, int NT_, int STAGES_, int RESIDENT_> struct tile_shape {
    static constexpr int WM = WM_, WN = WN_, MT = 2, NT = NT_, STAGES = STAGES_,
                         RESIDENT = RESIDENT_;
    static constexpr int THREADS = WM * WN * 32, TILES = WM * MT, TOKENS = WN * NT * 8;

    /* Where gated: a warp has a gate tile and the up tile of the same channels. */
    static __device__ __forceinline__ int gated_part(int tile)
    {
        return tile % 2;
    }
    static __device__ __forceinline__ int gated_tile(int tile)
    {
        return tile / 2;
    }
};
typedef tile_shape<4, 2, 8, 4, 1> tile_128x128;
typedef tile_shape<4, 1, 8, 4, 2> tile_128x64;
typedef tile_shape<2, 2, 6, 4, 2> tile_64x96;
typedef tile_shape<2, 1, 4, 6, 3> tile_64x32;

/* WM x WN warpgroups, each with 64 weight rows and N rows of x. */
template <int WM_, int WN_, int N_, int STAGES_> struct group_shape {
    static constexpr int WM = WM_, WN = WN_, N = N_, STAGES = STAGES_;
    static constexpr int THREADS = WM * WN * 128, TILES = WM * 4, TOKENS = WN * N;

    /* Where gated, with WM = 2: the first warpgroup has gate's tiles, the second up's. */
    static __device__ __forceinline__ int gated_part(int tile)
    {
        return tile / 4;
    }
    static __device__ __forceinline__ int gated_tile(int tile)
    {
        return tile % 4;
    }
};
typedef group_shape<2, 1, 128, 6> group_128x128;
typedef group_shape<2, 1, 64, 6> group_128x64;
typedef group_shape<1, 2, 48, 6> group_64x96;

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
    bool gated;   /* parts 0 and 1 are gate and up */
    bool to_rows; /* results go to h as they are */
    float alpha;
    const unsigned char *x;
    size_t x_bytes; /* of a row */
    part_job part[3];
    dg_cuda_rows h;
    const dg_expert_tile *tile; /* rows of experts, n_token_block of them; NULL: dense */
    const int32_t *row;         /* of x, for the rows of experts; NULL: the same */
    size_t mat_bytes;           /* from an expert's weights to the next one's */
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
    int first_row, end_row;
    int expert;
};

template <class T> static __device__ __forceinline__ place place_of(const product_job &job)
{
    int block = (int)blockIdx.x / job.n_token_block, rows = (int)blockIdx.x % job.n_token_block;
    place at = {0, block * (job.gated ? T::TILES / 2 : T::TILES), rows * T::TOKENS, job.n_row, 0};
    if (job.tile) {
        dg_expert_tile tile = job.tile[rows];
        at.expert = tile.expert;
        at.first_row = tile.first;
        at.end_row = tile.end;
    } else if (!job.gated) {
        while (at.part + 1 < job.n_part && block >= job.part[at.part + 1].first_block)
            at.part++;
        at.first_tile -= job.part[at.part].first_block * T::TILES;
    }
    return at;
}

/* Where the first unit of the block's tile number i is. Tiles behind the last are computed as the
 * last, and not stored. */
template <class F, class T>
static __device__ __forceinline__ const unsigned char *tile_data(const product_job &job,
                                                                 const place &at, int i)
{
    const part_job &part = job.part[job.gated ? T::gated_part(i) : at.part];
    int tile = min(at.first_tile + (job.gated ? T::gated_tile(i) : i), part.n_tile - 1),
        group = tile / part.tiles;
    return part.w + (size_t)at.expert * job.mat_bytes +
           (size_t)group * (size_t)part.n_unit * part.unit_stride +
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
        p.w[i] = tile_data<F, T>(job, at, tile) + F::HEAD + piece % (F::CHUNK / 16) * 16;
    }
    p.x_valid = 0;
#pragma unroll
    for (int i = 0; i < p.X; i++) {
        /* a warp copies 64 bytes of each of 8 rows */
        int warp = thread / 32 + i * (T::THREADS / 32), k16 = thread / 8 % 4 + warp % 2 * 4;
        int token = warp / 2 * 8 + thread % 8, row = min(at.first_row + token, at.end_row - 1);
        p.x_valid |= (unsigned)(at.first_row + token < at.end_row) << i;
        p.x[i] = job.x + (size_t)(job.row ? job.row[row] : row) * job.x_bytes + k16 * 16;
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
        const unsigned char *tile = tile_data<F, T>(job, at, piece / N);
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

/* ---- results: in a fragment value i is of weight row lane / 4 + 8 (i / 2) and x row 2 (lane % 4)
 * + i % 2 ---- */

static __device__ __forceinline__ float part_factor(const product_job &job, const place &at)
{
    return job.alpha * factor_of(job.part[at.part].scale, at.expert);
}

static __device__ __forceinline__ void store_fragment(const product_job &job, const place &at,
                                                      int tile, int row0, float factor,
                                                      const float v[4])
{
    const part_job &part = job.part[at.part];
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int out = tile * 16 + lane / 4 + i / 2 * 8, row = row0 + lane % 4 * 2 + i % 2;
        if (out < part.n_out && row < at.end_row)
            part.y[(size_t)row * part.ldy + (size_t)out] = v[i] * factor;
    }
}

/* Two channels at a time into rows of a form: token0 and token1 are of neighbouring rows, `half` is
 * the tile's. */
static __device__ __forceinline__ void store_channels(const product_job &job, const place &at,
                                                      int tile, int row0, int half, float token0,
                                                      float token1)
{
    int lane = (int)threadIdx.x % 32;
    channel_pair pair = pair_channels(token0, token1);
    int channel = tile * 16 + (lane / 4 & ~1) + half * 8, row = row0 + lane % 4 * 2 + lane / 4 % 2;
    if (channel < job.h.ld && row < at.end_row)
        store_pair(job.h.data, job.h.form, (size_t)row * (size_t)job.h.ld + (size_t)channel, pair);
}

struct gated_factors {
    float gate, up, out;
};

static __device__ __forceinline__ gated_factors factors_of(const product_job &job, const place &at)
{
    gated_factors f = {factor_of(job.part[0].scale, at.expert),
                       factor_of(job.part[1].scale, at.expert), gated_factor(job.h.form)};
    return f;
}

static __device__ __forceinline__ void store_gated_fragment(const product_job &job, const place &at,
                                                            int tile, int row0,
                                                            const gated_factors &f,
                                                            const float gate[4], const float up[4])
{
#pragma unroll
    for (int i = 0; i < 4; i += 2)
        store_channels(job, at, tile, row0, i / 2, gated(gate[i] * f.gate, up[i] * f.up) * f.out,
                       gated(gate[i + 1] * f.gate, up[i + 1] * f.up) * f.out);
}

/* ---- each warp for itself ---- */

template <class T>
static __device__ __forceinline__ void store_tile(const product_job &job, const place &at,
                                                  float acc[T::MT][T::NT][4])
{
    int warp = (int)threadIdx.x / 32, wm = warp % T::WM, wn = warp / T::WM;
    float factor = part_factor(job, at);
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int j = 0; j < T::NT; j++)
            store_fragment(job, at, at.first_tile + wm * T::MT + m,
                           at.first_row + (wn * T::NT + j) * 8, factor, acc[m][j]);
}

template <class T>
static __device__ __forceinline__ void store_gated_tile(const product_job &job, const place &at,
                                                        float acc[T::MT][T::NT][4])
{
    int warp = (int)threadIdx.x / 32, wm = warp % T::WM, wn = warp / T::WM;
    gated_factors factors = factors_of(job, at);
#pragma unroll
    for (int j = 0; j < T::NT; j++)
        store_gated_fragment(job, at, at.first_tile + wm, at.first_row + (wn * T::NT + j) * 8,
                             factors, acc[0][j], acc[1][j]);
}

template <class F, class T>
static __device__ __forceinline__ void multiply_tile(const product_job &job)
{
    typedef stage<F, T> S;
    DG_SHARED(shared);
    int lane = (int)threadIdx.x % 32, wm = (int)threadIdx.x / 32 % T::WM;
    dg_grid_wait();
    place at = place_of<T>(job);
    pieces<F, T> mine;
    operands<F, T> first, second;
    typename F::scales scales[T::MT];
    float acc[T::MT][T::NT][4] = {};
    pieces_init(mine, job, at);

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

template <class F, class T>
static __global__ void __launch_bounds__(T::THREADS, T::RESIDENT) product_tile(product_job job)
{
    if constexpr (DG_WITHOUT_GROUPS || T::TOKENS == tile_64x32::TOKENS)
        multiply_tile<F, T>(job);
}

/* ---- four warps together ---- */

/* A warp's fragments of 64 values of k, for its 16 of the warpgroup's 64 weight rows. */
struct fragments {
    uint32_t a[4][4];
};

template <class F, class T>
static __device__ __forceinline__ void load_fragments(fragments &f, typename F::scales &scales,
                                                      const unsigned char *shared, int chunk)
{
    typedef stage<F, T> S;
    int lane = (int)threadIdx.x % 32, tile = (int)threadIdx.x / 32 % T::TILES;
    const unsigned char *w = shared + chunk % T::STAGES * S::BYTES + tile * F::CHUNK;
    typename F::raw raw[2];
#pragma unroll
    for (int half = 0; half < 2; half++)
        F::load(raw[half], w, half, lane);
    if constexpr (F::HEAD != 0) {
        if (chunk % S::CHUNKS == 0)
            F::begin(scales,
                     shared + T::STAGES * S::BYTES +
                         chunk / S::CHUNKS % S::HEAD_SLOTS * S::HEAD_BYTES + tile * F::HEAD,
                     lane);
    }
#pragma unroll
    for (int half = 0; half < 2; half++)
        F::convert(f.a + 2 * half, raw[half], scales, chunk % S::CHUNKS * 2 + half);
#pragma unroll
    for (int i = 0; i < 16; i++)
        warpgroup_settle(f.a[i / 4][i % 4]);
}

/* Chunk c: `now` are its fragments, `next` will be those of the one behind it. The products of the
 * chunk before may still run when those of this one are begun; the one before that has been read by
 * all. */
template <class F, class T>
static __device__ __forceinline__ void group_turn(float acc[T::N / 8][4], const fragments &now,
                                                  fragments &next, typename F::scales &scales,
                                                  unsigned char *shared, const pieces<F, T> &mine,
                                                  const product_job &job, const place &at, int c)
{
    typedef stage<F, T> S;
    int wn = (int)threadIdx.x / 128 / T::WM;
    const unsigned char *x = shared + c % T::STAGES * S::BYTES + S::W_BYTES + wn * T::N / 8 * 128;
    dg_cp_async_wait<T::STAGES - 4>();
    warpgroup_publish();
    __syncthreads();
    if (c + T::STAGES - 2 < job.n_chunk)
        copy_chunk(shared, mine, job, at, c + T::STAGES - 2);
    dg_cp_async_commit();
    warpgroup_begin();
#pragma unroll
    for (int s = 0; s < 4; s++)
        warpgroup_mma<F::FORM, T::N>(acc, now.a[s], x + 2 * s * T::TOKENS * 16, T::TOKENS * 16);
    warpgroup_commit();
    warpgroup_wait<1>();
    if (c + 1 < job.n_chunk)
        load_fragments<F, T>(next, scales, shared, c + 1);
}

/* Gate is in one warpgroup, up in the other: each gives the other one half of its rows of x. */
template <class T>
static __device__ __forceinline__ void store_gated_groups(const product_job &job, const place &at,
                                                          unsigned char *shared,
                                                          float acc[T::N / 8][4])
{
    constexpr int HALF = T::N / 16;
    int group = (int)threadIdx.x / 128, thread = (int)threadIdx.x % 128;
    float4(*given)[HALF][128] = (float4(*)[HALF][128])shared;
    gated_factors factors = factors_of(job, at);
#pragma unroll
    for (int j = 0; j < HALF; j++)
        given[group][j][thread] =
            make_float4(group ? acc[j][0] : acc[HALF + j][0], group ? acc[j][1] : acc[HALF + j][1],
                        group ? acc[j][2] : acc[HALF + j][2], group ? acc[j][3] : acc[HALF + j][3]);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < HALF; j++) {
        float4 v = given[1 - group][j][thread];
        float other[4] = {v.x, v.y, v.z, v.w}, gate[4], up[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            gate[i] = group ? other[i] : acc[j][i];
            up[i] = group ? acc[HALF + j][i] : other[i];
        }
        store_gated_fragment(job, at, at.first_tile + thread / 32,
                             at.first_row + (group * HALF + j) * 8, factors, gate, up);
    }
}

template <class F, class T>
static __device__ __forceinline__ void multiply_groups(const product_job &job)
{
    DG_SHARED(shared);
    int warp = (int)threadIdx.x / 32, wn = warp / 4 / T::WM;
    dg_grid_wait();
    place at = place_of<T>(job);
    pieces<F, T> mine;
    fragments even, odd;
    typename F::scales scales;
    float acc[T::N / 8][4] = {};
    if (at.first_row >= at.end_row)
        return; /* fewer tiles of experts than there may be */
    pieces_init(mine, job, at);

    for (int c = 0; c < T::STAGES - 2; c++) {
        if (c < job.n_chunk)
            copy_chunk(shared, mine, job, at, c);
        dg_cp_async_commit();
    }
    dg_cp_async_wait<T::STAGES - 3>();
    __syncthreads();
    load_fragments<F, T>(even, scales, shared, 0);
    for (int c = 0; c < job.n_chunk; c += 2) {
        group_turn<F, T>(acc, even, odd, scales, shared, mine, job, at, c);
        if (c + 1 < job.n_chunk)
            group_turn<F, T>(acc, odd, even, scales, shared, mine, job, at, c + 1);
    }
    warpgroup_wait<0>();
    dg_grid_launch_next();
    if (job.gated) {
        __syncthreads();
        store_gated_groups<T>(job, at, shared, acc);
        return;
    }
    float factor = part_factor(job, at);
    int tile = at.first_tile + warp % T::TILES, row0 = at.first_row + wn * T::N;
#pragma unroll
    for (int j = 0; j < T::N / 8; j++)
        if (job.to_rows) {
            store_channels(job, at, tile, row0 + j * 8, 0, acc[j][0] * factor, acc[j][1] * factor);
            store_channels(job, at, tile, row0 + j * 8, 1, acc[j][2] * factor, acc[j][3] * factor);
        } else {
            store_fragment(job, at, tile, row0 + j * 8, factor, acc[j]);
        }
}

template <class F, class T>
static __global__ void __launch_bounds__(T::THREADS, 1) product_groups(product_job job)
{
    if constexpr (DG_WITH_GROUPS)
        multiply_groups<F, T>(job);
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

bool dg_cuda_has_groups(void)
{
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9;
}

enum {
    GROUP_128X128,
    GROUP_128X64,
    GROUP_64X96,
    TILE_128X128,
    TILE_128X64,
    TILE_64X96,
    TILE_64X32,
    N_SHAPE
};

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
 * smaller tiles read more of shared memory for a product. Speeds are by counting what each reads,
 * not yet measured. */
static int choose_shape(const product_job &job, const int shared_bytes[N_SHAPE])
{
    static const struct shape_row {
        int tiles, tokens;
        float speed;
        enum { ANYWHERE, WITH_GROUPS, WITHOUT } where;
        bool ungated; /* not for gate and up */
    } shape[N_SHAPE] = {
        /* in the order of their names above */
        {8, 128, 1.0f, shape_row::WITH_GROUPS, false}, {8, 64, 0.9f, shape_row::WITH_GROUPS, false},
        {4, 96, 0.85f, shape_row::WITH_GROUPS, true},  {8, 128, 0.6f, shape_row::WITHOUT, false},
        {8, 64, 0.55f, shape_row::WITHOUT, false},     {4, 96, 0.55f, shape_row::WITHOUT, false},
        {4, 32, 0.3f, shape_row::ANYWHERE, false},
    };
    int device = 0, n_sm = 1, most = 0, best = N_SHAPE;
    bool groups = dg_cuda_has_groups();
    float least = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    for (int i = 0; i < N_SHAPE; i++) {
        bool here = shape[i].where == shape_row::ANYWHERE ||
                    (shape[i].where == shape_row::WITH_GROUPS) == groups;
        if (!here || (shape[i].ungated && job.gated) || shared_bytes[i] > most)
            continue;
        int rounds = (block_count(job, shape[i].tiles, shape[i].tokens) + n_sm - 1) / n_sm;
        float cost = (float)rounds * (float)(shape[i].tiles * shape[i].tokens) / shape[i].speed;
        if (best == N_SHAPE || cost < least) {
            least = cost;
            best = i;
        }
    }
    return best;
}

template <class T> static unsigned place_parts(product_job *job)
{
    int blocks = 0, wide = job->gated ? T::TILES / 2 : T::TILES;
    job->n_token_block = (job->n_row + T::TOKENS - 1) / T::TOKENS;
    for (int p = 0; p < job->n_part; p++) {
        job->part[p].first_block = blocks;
        if (p == 0 || !job->gated)
            blocks += (job->part[p].n_tile + wide - 1) / wide;
    }
    return (unsigned)(blocks * job->n_token_block);
}

template <class F, class T> static cudaError_t launch_tile(cudaStream_t stream, product_job job)
{
    unsigned blocks = place_parts<T>(&job);
    return DG_LAUNCH((product_tile<F, T>), dim3(blocks), T::THREADS, (size_t)stage<F, T>::SHARED,
                     stream, job);
}

template <class F, class T> static cudaError_t launch_groups(cudaStream_t stream, product_job job)
{
    unsigned blocks = place_parts<T>(&job);
    return DG_LAUNCH((product_groups<F, T>), dim3(blocks), T::THREADS, (size_t)stage<F, T>::SHARED,
                     stream, job);
}

template <class F> static cudaError_t launch_format(cudaStream_t stream, product_job job)
{
    for (int p = 0; p < job.n_part; p++)
        job.part[p].unit_stride = (size_t)job.part[p].tiles * packed_unit<F>::BYTES;
    static const int shared_bytes[N_SHAPE] = {
        stage<F, group_128x128>::SHARED, stage<F, group_128x64>::SHARED,
        stage<F, group_64x96>::SHARED,   stage<F, tile_128x128>::SHARED,
        stage<F, tile_128x64>::SHARED,   stage<F, tile_64x96>::SHARED,
        stage<F, tile_64x32>::SHARED};
    switch (choose_shape(job, shared_bytes)) {
    case GROUP_128X128:
        return launch_groups<F, group_128x128>(stream, job);
    case GROUP_128X64:
        return launch_groups<F, group_128x64>(stream, job);
    case GROUP_64X96:
        return launch_groups<F, group_64x96>(stream, job);
    case TILE_128X128:
        return launch_tile<F, tile_128x128>(stream, job);
    case TILE_128X64:
        return launch_tile<F, tile_128x64>(stream, job);
    case TILE_64X96:
        return launch_tile<F, tile_64x96>(stream, job);
    default:
        return launch_tile<F, tile_64x32>(stream, job);
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

/* ---- experts with many rows ---- */

static_assert(DG_EXPERT_TILE_ROWS == group_128x64::TOKENS,
              "tiles of experts are those of the shape");

template <class F>
static cudaError_t launch_experts(cudaStream_t stream, product_job job, int n_tile)
{
    typedef group_128x64 T;
    for (int p = 0; p < job.n_part; p++)
        job.part[p].unit_stride = (size_t)job.part[p].tiles * packed_unit<F>::BYTES;
    unsigned blocks = place_parts<T>(&job) / (unsigned)job.n_token_block * (unsigned)n_tile;
    job.n_token_block = n_tile;
    return DG_LAUNCH((product_groups<F, T>), dim3(blocks), T::THREADS, (size_t)stage<F, T>::SHARED,
                     stream, job);
}

cudaError_t dg_cuda_product_experts(cudaStream_t stream, const dg_expert_product *a)
{
    const dg_cuda_matrix *w = a->w[0];
    product_job job = job_over(a->x, 1, a->factor);
    job.gated = a->w[1] != NULL;
    job.to_rows = !job.gated;
    job.h = a->out;
    job.tile = a->tile;
    job.row = a->row;
    job.mat_bytes = dg_cuda_pack_bytes(w->type, w->n_out, w->n_in);
    for (int p = 0; p < 2 && a->w[p]; p++)
        add_part(&job, a->w[p], NULL, 0);
    DG_FOR_FORMAT(w->type, return launch_experts<F>(stream, job, a->n_tile), break)
    return cudaErrorInvalidValue;
}
