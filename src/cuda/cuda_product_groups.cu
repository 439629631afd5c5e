/* Products of experts with many rows on sm_90a: four warps together multiply 64 rows of weights by
 * wgmma, out of fragments. An element is added up in the same chain as by single warps. */
#include "cuda/cuda_product_tiles.cuh"

/* ---- shapes ---- */

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
typedef group_shape<2, 1, 64, 6> group_128x64;

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

/* ---- launches ---- */

static_assert(DG_EXPERT_TILE_ROWS == group_128x64::TOKENS,
              "tiles of experts are those of the shape");

template <class F>
static cudaError_t launch_experts(cudaStream_t stream, product_job job, int n_tile)
{
    typedef group_128x64 T;
    for (int p = 0; p < job.n_part; p++)
        job.part[p].unit_stride = (size_t)job.part[p].tiles * packed_unit<F>::BYTES;
    unsigned blocks = place_parts<T>(&job); /* it sets n_token_block */
    blocks = blocks / (unsigned)job.n_token_block * (unsigned)n_tile;
    job.n_token_block = n_tile;
    return DG_LAUNCH((product_groups<F, T>), dim3(blocks), T::THREADS, (size_t)stage<F, T>::SHARED,
                     stream, job);
}

extern "C" cudaError_t dg_cuda_product_experts(cudaStream_t stream, const dg_expert_product *a)
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
    DG_FOR_EXPERT_FORMAT(w->type, return launch_experts<F>(stream, job, a->n_tile), break)
    return cudaErrorInvalidValue;
}
