/* q, k and v of heads of 256 with what is done to them behind the product, in one launch on sm_90a:
 * norm, rotation, and into their places.
 *
 * A tile is a head of some rows, out of slabs (cuda_slabs.cuh). Its sums leave through shared
 * memory as those of cuda_product_slabs.cu do, where the short loop makes a whole row's head of
 * them, a warp a row: what dg_cuda_product() and dg_cuda_heads() would make, to the bit, without
 * floats that are written and read in between. */
#include "cuda/cuda_heads.cuh"
#include "cuda/cuda_slab_exit.cuh"

enum { HEAD = 256 };

struct project_job {
    int n_row, n_chunk, n_tile, n_token_block, n_early;
    const float *scale[3]; /* of q, k and v */
    dg_cuda_rows x;
    dg_cuda_heads_args heads;
};

struct project_maps {
    dg_tensor_map x, w[3];
};

/* ---- which tile: those of one head side by side, so that its weights are read once ---- */

struct head_tile {
    int unit, part, first_out, first_row; /* unit: as find_unit() counts heads */
};

template <class T>
static __device__ __forceinline__ head_tile head_tile_of(const project_job &job, int tile)
{
    int unit = tile / job.n_token_block, n_q = job.heads.kv.n_head, n_kv = job.heads.kv.n_kv_head,
        part = unit < n_q          ? 0
               : unit < n_q + n_kv ? 1
                                   : 2,
        head = unit - (part > 0 ? n_q : 0) - (part > 1 ? n_kv : 0);
    return head_tile{unit, part, head * HEAD, (tile - unit * job.n_token_block) * T::TOKENS};
}

/* ---- copies, by one thread ---- */

/* Weights do not depend on the kernel before: those of the first stages are on their way before it
 * has ended. */
template <class T>
static __device__ __forceinline__ void copy_early(const slab_ring<T> &ring, const project_job &job,
                                                  const project_maps &maps)
{
    head_tile at = head_tile_of<T>(job, (int)blockIdx.x);
    dg_tensor_prefetch(maps.w[at.part]);
    dg_tensor_prefetch(maps.x);
    slab_ring_make(ring);
    uint64_t policy = dg_cache_policy(job.n_tile <= (int)gridDim.x);
    for (int c = 0; c < job.n_early; c++) {
        dg_mbar_expect(ring.full(c), T::STAGE_BYTES);
        slab_copy_weights(ring, maps.w[at.part], at.first_out, c, c, policy);
    }
}

template <class T>
static __device__ __forceinline__ void copy_tiles(const slab_ring<T> &ring, const project_job &job,
                                                  const project_maps &maps)
{
    int ahead = job.n_early;
    uint64_t policy = dg_cache_policy(job.n_tile <= (int)gridDim.x);
    slab_turn turn = {0, 0};
    for (int tile = (int)blockIdx.x; tile < job.n_tile; tile += (int)gridDim.x) {
        head_tile at = head_tile_of<T>(job, tile);
        for (int c = 0; c < job.n_chunk; c++, slab_next<T>(turn)) {
            if (ahead > 0) {
                ahead--;
            } else {
                slab_fill(ring, turn);
                slab_copy_weights(ring, maps.w[at.part], at.first_out, turn.stage, c, policy);
            }
            slab_copy_rows(ring, maps.x, at.first_row, turn.stage, c);
        }
    }
}

/* ---- heads ---- */

/* Where a lane's row of its warp's 16 goes, and what its sums are multiplied with. */
struct row_place {
    uint64_t to;
    int slot;
    float factor;
};

template <dg_cuda_form FORM>
static __device__ __forceinline__ row_place place_row(const project_job &job, const head_tile &at,
                                                      int row)
{
    row_place place = {0, 0, factor_of(job.scale[at.part], 0)};
    if (row >= job.n_row)
        return place;
    head_unit u = find_unit(job.heads, row, at.unit);
    place.to = (uint64_t)(uintptr_t)u.to;
    place.slot = u.slot;
    place.factor *= factor_of_row<FORM>(job.x, job.n_row, row);
    return place;
}

/* Rows that a warp has under way at once, and their angles. */
enum { AT_ONCE = 4 };

struct some_angles {
    float4 c[AT_ONCE], s[AT_ONCE];
};

/* Those of the rows from `row` on. */
static __device__ __forceinline__ some_angles angles_of(const project_job &job, const head_tile &at,
                                                        int row)
{
    some_angles some;
    head_turn turn;
#pragma unroll
    for (int n = 0; n < AT_ONCE; n++) {
        load_head_angles(turn, job.heads, at.part < 2, min(row + n, job.n_row - 1),
                         4 * (int)lane_of());
        some.c[n] = turn.c;
        some.s[n] = turn.s;
    }
    return some;
}

/* Each row's sum over all lanes, as dg_warp_sum() adds it up; of row n in lanes 8 n ... 8 n + 7. */
static __device__ __forceinline__ float sum_of_each(const float sum[AT_ONCE])
{
    bool high = lane_of() & 16, odd = lane_of() & 8;
    float first = high ? sum[2] : sum[0], second = high ? sum[3] : sum[1];
    first += __shfl_xor_sync(DG_ALL_LANES, high ? sum[0] : sum[2], 16);
    second += __shfl_xor_sync(DG_ALL_LANES, high ? sum[1] : sum[3], 16);
    float own = odd ? second : first;
    own += __shfl_xor_sync(DG_ALL_LANES, odd ? first : second, 8);
    for (int with = 4; with > 0; with /= 2)
        own += __shfl_xor_sync(DG_ALL_LANES, own, with);
    static_assert(AT_ONCE == 4, "rows of a warp");
    return own;
}

/* By a warp: its 16 rows, from first_row on, as they were left. `now`: the first rows' angles; the
 * next ones' are asked for meanwhile. */
template <class T>
static __device__ __forceinline__ void finish_rows(const project_job &job, const head_tile &at,
                                                   const unsigned char *left, int first_row,
                                                   const row_place &place, some_angles now)
{
    const dg_cuda_heads_args &a = job.heads;
    bool is_q = at.part == 0;
    int i = 4 * (int)lane_of();
    size_t half = is_q ? (size_t)HEAD : dg_cuda_slot_at(DG_BF16, HEAD, 0, HEAD / 2);
    head_turn turn;
    load_head_weights(turn, is_q ? a.q_norm : a.k_norm, at.part < 2, i, HEAD / 2);
#pragma unroll 1
    for (int first = 0; first < slab_exit<T>::ROWS && first_row + first < job.n_row;
         first += AT_ONCE) {
        some_angles next = angles_of(job, at, first_row + first + AT_ONCE);
        head_four v[AT_ONCE];
        float sum[AT_ONCE];
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++) {
            float factor = __shfl_sync(DG_ALL_LANES, place.factor, first + n);
            v[n] = head_four{times(left_four<T>(left, first + n, i), factor),
                             times(left_four<T>(left, first + n, HEAD / 2 + i), factor)};
            sum[n] = squares(v[n]);
        }
        float factors = head_factor(sum_of_each(sum), HEAD, a.eps);
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++) {
            float factor = __shfl_sync(DG_ALL_LANES, factors, 8 * n);
            int slot = __shfl_sync(DG_ALL_LANES, place.slot, first + n);
            unsigned char *to =
                (unsigned char *)(uintptr_t)__shfl_sync(DG_ALL_LANES, place.to, first + n);
            to += is_q ? (size_t)i * 2 : dg_cuda_slot_at(DG_BF16, HEAD, slot, i);
            turn.c = now.c[n];
            turn.s = now.s[n];
            v[n] = turned_four(v[n], turn);
            if (first_row + first + n >= job.n_row)
                continue;
            store_four(to, v[n].low, factor);
            store_four(to + half, v[n].high, factor);
        }
        now = next;
    }
}

/* ---- the kernel ---- */

template <dg_cuda_form FORM, class T>
static __device__ __forceinline__ void project_tiles(const project_job &job,
                                                     const project_maps &maps)
{
    typedef slab_exit<T> out;
    DG_SHARED(shared);
    slab_ring<T> ring = {shared};
    if (threadIdx.x == T::CONSUMERS)
        copy_early(ring, job, maps);
    __syncthreads();
    if (threadIdx.x >= T::CONSUMERS) {
        dg_grid_wait();
        if (threadIdx.x == T::CONSUMERS)
            copy_tiles(ring, job, maps);
        return;
    }
    slab_turn turn = {0, 0};
    dg_grid_wait();
    for (int tile = (int)blockIdx.x; tile < job.n_tile; tile += (int)gridDim.x) {
        head_tile at = head_tile_of<T>(job, tile);
        int first_row = warp_row<T>(at.first_row, 0);
        bool last = tile + (int)gridDim.x >= job.n_tile;
        float acc[1][T::N / 8][4] = {};
        row_place place =
            place_row<FORM>(job, at, first_row + (int)(lane_of() % (unsigned)out::ROWS));
        slab_multiply<FORM, SLAB_K_ALONG>(acc, ring, turn, job.n_chunk, out::HELD);
        unsigned char *left = exit_of_warp(ring, turn);
        dg_bar_sync(1, T::CONSUMERS); /* nobody reads these stages any more */
#pragma unroll
        for (int j = 0; j < T::N / 8; j++)
            slab_leave(left, out::PITCH, out::APART, j, acc[0][j]);
        some_angles angles = angles_of(job, at, first_row);
        __syncwarp();
        if (last) /* its blocks find no room beside this one */
            dg_grid_launch_next();
        finish_rows<T>(job, at, left, first_row, place, angles);
        __syncwarp();
        if (!last)
            give_exit_back(ring, turn);
    }
}

template <dg_cuda_form FORM, class T>
static __global__ void __launch_bounds__(T::THREADS, 1)
    project_heads(project_job job, const __grid_constant__ project_maps maps)
{
    if constexpr (DG_WITH_GROUPS)
        project_tiles<FORM, T>(job, maps);
}

/* ---- launches ---- */

typedef slab_shape<1, 1, HEAD> project_64;
typedef slab_shape<2, 1, HEAD> project_128;

template <dg_cuda_form FORM, class T>
static cudaError_t launch_project(cudaStream_t stream, project_job job,
                                  const dg_cuda_matrix *const w[3], int n_sm)
{
    project_maps maps = {};
    cudaError_t error =
        slab_map_rows<T>(&maps.x, job.x.data, job.n_row, job.n_chunk, dg_cuda_row_bytes(job.x));
    for (int p = 0; p < 3 && !error; p++)
        error = slab_map_weights<T>(&maps.w[p], w[p]->data, w[p]->n_out, job.n_chunk, 0);
    if (error)
        return error;
    job.n_token_block = (job.n_row + T::TOKENS - 1) / T::TOKENS;
    job.n_tile = (job.heads.kv.n_head + 2 * job.heads.kv.n_kv_head) * job.n_token_block;
    /* stages behind the last value of k have zeros */
    job.n_chunk = job.n_chunk < slab_exit<T>::HELD ? (int)slab_exit<T>::HELD : job.n_chunk;
    /* rows would only queue behind weights of later stages */
    job.n_early = job.n_chunk < 2 ? job.n_chunk : 2;
    return DG_LAUNCH((project_heads<FORM, T>), dim3((unsigned)min(job.n_tile, n_sm)), T::THREADS,
                     (size_t)T::SHARED, stream, job, maps);
}

/* Tiles of 128 rows where the fullest multiprocessor has less to do with them. */
template <dg_cuda_form FORM>
static cudaError_t launch_form(cudaStream_t stream, const project_job &job,
                               const dg_cuda_matrix *const w[3])
{
    int device = 0, n_sm = 1, heads = job.heads.kv.n_head + 2 * job.heads.kv.n_kv_head;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device);
    int rounds_64 = (heads * ((job.n_row + 63) / 64) + n_sm - 1) / n_sm,
        rounds_128 = (heads * ((job.n_row + 127) / 128) + n_sm - 1) / n_sm;
    return 2 * rounds_128 <= rounds_64 ? launch_project<FORM, project_128>(stream, job, w, n_sm)
                                       : launch_project<FORM, project_64>(stream, job, w, n_sm);
}

extern "C" bool dg_cuda_can_project(const dg_cuda_project_args *a)
{
    const dg_cuda_heads_args *h = &a->heads;
    bool can = h->kv.type == DG_BF16 && h->kv.head_dim == HEAD && h->first_q_row == 0 &&
               h->n_pair % 4 == 0 && h->n_pair <= HEAD / 2 && dg_cuda_has_groups();
    for (int p = 0; p < 3; p++)
        can = can && a->w[p] && a->w[p]->slabs &&
              a->w[p]->n_out == HEAD * (p ? h->kv.n_kv_head : h->kv.n_head);
    return can;
}

extern "C" cudaError_t dg_cuda_project(cudaStream_t stream, const dg_cuda_project_args *a)
{
    if (!dg_cuda_can_project(a) || a->x.form == DG_CUDA_F32)
        return cudaErrorInvalidValue;
    if (a->heads.n_row == 0)
        return cudaSuccess;
    project_job job = {};
    job.n_row = a->heads.n_row;
    job.n_chunk = a->x.ld / (a->x.form == DG_CUDA_E4M3 ? 2 * SLAB_VALUES : SLAB_VALUES);
    job.x = a->x;
    job.heads = a->heads;
    for (int p = 0; p < 3; p++)
        job.scale[p] = a->w[p]->scale;
    return a->x.form == DG_CUDA_BF16  ? launch_form<DG_CUDA_BF16>(stream, job, a->w)
           : a->x.form == DG_CUDA_F16 ? launch_form<DG_CUDA_F16>(stream, job, a->w)
                                      : launch_form<DG_CUDA_E4M3>(stream, job, a->w);
}
