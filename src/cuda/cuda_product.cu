/* Products of rows with dense weights: projections, the dense MLP, the LM head.
 *
 * Weights in slabs are multiplied by cuda_product_slabs.cu; those in fragments here, by warps on
 * their own, each with two 16-row tiles of weights and its share of the tile's rows; float weights
 * in float.
 *
 * Every tile shape adds up an element in the same chain, 16 values of k at a time in ascending
 * order, so the choice of shape (choose_shape) never changes a bit. */
#include "cuda/cuda_product_tiles.cuh"

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
    if constexpr (DG_WITHOUT_GROUPS)
        multiply_tile<F, T>(job);
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

extern "C" bool dg_cuda_has_groups(void)
{
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9;
}

extern "C" bool dg_cuda_has_code(void)
{
    struct cudaFuncAttributes found;
    bool has = !cudaFuncGetAttributes(&found, (const void *)product_floats);
    cudaGetLastError(); /* the answer is no failure of what comes next */
    return has;
}

enum { TILE_128X128, TILE_128X64, TILE_64X96, TILE_64X32, N_SHAPE };

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
    static const struct {
        int tiles, tokens;
        float speed;
    } shape[N_SHAPE] = {{8, 128, 0.6f}, {8, 64, 0.55f}, {4, 96, 0.55f}, {4, 32, 0.3f}};
    int device = 0, n_sm = 1, most = 0, best = N_SHAPE;
    float least = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    for (int i = 0; i < N_SHAPE; i++) {
        if (shared_bytes[i] > most)
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

template <class F, class T> static cudaError_t launch_tile(cudaStream_t stream, product_job job)
{
    unsigned blocks = place_parts<T>(&job);
    return DG_LAUNCH((product_tile<F, T>), dim3(blocks), T::THREADS, (size_t)stage<F, T>::SHARED,
                     stream, job);
}

template <class F> static cudaError_t launch_format(cudaStream_t stream, product_job job)
{
    for (int p = 0; p < job.n_part; p++)
        job.part[p].unit_stride = (size_t)job.part[p].tiles * packed_unit<F>::BYTES;
    static const int shared_bytes[N_SHAPE] = {
        stage<F, tile_128x128>::SHARED, stage<F, tile_128x64>::SHARED, stage<F, tile_64x96>::SHARED,
        stage<F, tile_64x32>::SHARED};
    switch (choose_shape(job, shared_bytes)) {
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
    if (dg_cuda_has_groups())
        return cudaErrorInvalidValue; /* dense weights are slabs there */
    DG_FOR_FORMAT(type, return launch_format<F>(stream, job), break)
    return cudaErrorInvalidValue;
}

/* ---- the contract ---- */

/* Parts of one type go into one launch. */
extern "C" cudaError_t dg_cuda_product(cudaStream_t stream, const dg_cuda_product_args *a)
{
    bool done[3] = {};
    cudaError_t error = cudaSuccess;
    if (a->n_row == 0)
        return error;
    if (a->part[0].w->slabs)
        return dg_cuda_product_slabs(stream, a, DG_SLAB_BEST);
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
    if (a->gate->slabs ? !a->up->slabs : a->gate->type != a->up->type)
        return cudaErrorInvalidValue;
    if (a->n_row == 0)
        return cudaSuccess;
    if (a->gate->slabs)
        return dg_cuda_gated_slabs(stream, a, DG_SLAB_BEST);
    product_job job = job_over(a->x, a->n_row, 1);
    job.gated = true;
    job.h = a->h;
    add_part(&job, a->gate, NULL, 0);
    add_part(&job, a->up, NULL, 0);
    return launch(stream, job, a->gate->type, a->gate->n_in);
}
