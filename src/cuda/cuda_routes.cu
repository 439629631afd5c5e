/* Rows on their way to the experts and back: pairs of row and choice sorted by expert, and the sum
 * over a row's choices. */
#include "cuda/cuda_bytes.cuh"
#include "cuda/cuda_device.cuh"
#include "cuda/cuda_experts.cuh"
#include "cuda/cuda_rows.cuh"

enum { COMBINE_THREADS = 256, NARROW_THREADS = 256 };

/* ---- sorting ---- */

int dg_most_tiles(int n_pair, int n_expert)
{
    return n_pair / DG_EXPERT_TILE_ROWS + min(n_pair, n_expert);
}

int dg_most_pieces(int n_pair, int n_expert)
{
    return n_pair / DG_PIECE_ROWS + min(n_pair, n_expert);
}

static __device__ __forceinline__ int tiles_of(int n)
{
    return (n + DG_EXPERT_TILE_ROWS - 1) / DG_EXPERT_TILE_ROWS;
}

/* n rows are multiplied in eights, which the pieces share evenly. */
static __device__ __forceinline__ int eights_of(int n)
{
    return (n + 7) / 8;
}

static __device__ __forceinline__ int pieces_of(int n, int piece_rows)
{
    return (eights_of(n) + piece_rows / 8 - 1) / (piece_rows / 8);
}

/* Where an expert's pairs begin, and what lies before its tiles and pieces. */
struct expert_place {
    int first, tiles, pieces, all_pieces;
};

/* Expert `expert` has n pairs from `first` on, behind `before` tiles of lower experts. */
static __device__ __forceinline__ void list_tiles(const dg_sort_job &job, int expert, int first,
                                                  int n, int before)
{
    for (int i = (int)threadIdx.x; i < tiles_of(n); i += (int)blockDim.x)
        job.tile[before + i] =
            dg_expert_tile{expert, first + i * DG_EXPERT_TILE_ROWS, first + n, 0};
    if (expert == job.n_expert - 1)
        for (int i = before + tiles_of(n) + (int)threadIdx.x; i < job.n_tile; i += (int)blockDim.x)
            job.tile[i] = dg_expert_tile{0, 0, 0, 0};
}

/* Where the piece goes that would be number `piece` of all, if those of many rows came first: they
 * and those of few in turn. The one kind is bound by products and the other by the reading of
 * weights; blocks that work at the same time then share what there is of both. */
static __device__ __forceinline__ int turn_of(int piece, int all)
{
    int half = (all + 1) / 2;
    return piece < half ? 2 * piece : 2 * (piece - half) + 1;
}

/* The same for its pieces, behind those of busier experts. */
static __device__ __forceinline__ void list_pieces(const dg_sort_job &job, int expert, int n,
                                                   const expert_place &place)
{
    int eights = eights_of(n), pieces = pieces_of(n, job.piece_rows);
    for (int i = (int)threadIdx.x; i < pieces; i += (int)blockDim.x) {
        int from = eights * i / pieces * 8, end = min(eights * (i + 1) / pieces * 8, n);
        int number = place.pieces + i,
            at = job.in_turn ? turn_of(number, place.all_pieces) : number;
        job.piece[at] = dg_expert_piece{expert, place.first + from, end - from, 0};
        job.done[at] = 0;
    }
}

/* By every warp on its own. */
static __device__ inline expert_place find_place(const dg_sort_job &job, const int *count,
                                                 int expert)
{
    expert_place sum = {0, 0, 0, 0};
    int n = count[expert];
    for (int e = (int)threadIdx.x % 32; e < job.n_expert; e += 32) {
        int of_e = count[e], pieces = pieces_of(of_e, job.piece_rows);
        sum.first += e < expert ? of_e : 0;
        sum.tiles += e < expert ? tiles_of(of_e) : 0;
        sum.pieces += of_e > n || (of_e == n && e < expert) ? pieces : 0;
        sum.all_pieces += pieces;
    }
    sum.first = __reduce_add_sync(DG_ALL_LANES, sum.first);
    sum.tiles = __reduce_add_sync(DG_ALL_LANES, sum.tiles);
    sum.pieces = __reduce_add_sync(DG_ALL_LANES, sum.pieces);
    sum.all_pieces = __reduce_add_sync(DG_ALL_LANES, sum.all_pieces);
    return sum;
}

/* What a thread has of the pairs at a time: a byte's marks. */
enum { SORT_EACH = 8 };

/* The experts of SORT_EACH pairs from `first` on, all asked for at once; -1 beyond the last. */
struct some_pairs {
    int expert[SORT_EACH];
};

static __device__ __forceinline__ some_pairs pairs_from(const dg_sort_job &job, int first)
{
    some_pairs some;
    if (first + SORT_EACH <= job.n_pair && (uintptr_t)job.expert % 16 == 0) {
#pragma unroll
        for (int i = 0; i < SORT_EACH; i += 4) {
            int4 four = *(const int4 *)(job.expert + first + i);
            some.expert[i] = four.x;
            some.expert[i + 1] = four.y;
            some.expert[i + 2] = four.z;
            some.expert[i + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < SORT_EACH; i++)
            some.expert[i] = first + i < job.n_pair ? job.expert[first + i] : -1;
    }
    return some;
}

/* Every pair counts for its expert; a thread marks those of the block's own. */
template <int THREADS>
static __device__ __forceinline__ void count_pairs(const dg_sort_job &job, int *count,
                                                   uint8_t *mark, int own)
{
#pragma unroll 1
    for (int eight = (int)threadIdx.x; eight * SORT_EACH < job.n_pair; eight += THREADS) {
        some_pairs some = pairs_from(job, eight * SORT_EACH);
        uint32_t marks = 0;
#pragma unroll
        for (int i = 0; i < SORT_EACH; i++) {
            if (some.expert[i] >= 0)
                atomicAdd(&count[some.expert[i]], 1);
            marks |= (uint32_t)(some.expert[i] == own) << i;
        }
        mark[eight] = (uint8_t)marks;
    }
}

/* The marked pairs get places from `placed` on, in the order of their numbers. A thread has the
 * marks that it made. */
template <int THREADS>
static __device__ __forceinline__ void place_pairs(const dg_sort_job &job, const uint8_t *mark,
                                                   int placed)
{
    __shared__ int sums[THREADS / 32];
#pragma unroll 1
    for (int base = 0; base * SORT_EACH < job.n_pair; base += THREADS) {
        int eight = base + (int)threadIdx.x, total;
        uint32_t marks = eight * SORT_EACH < job.n_pair ? mark[eight] : 0;
        int at = placed + sum_before<THREADS / 32>(__popc(marks), &total, sums);
        for (; marks; marks &= marks - 1) {
            int pair = eight * SORT_EACH + __ffs((int)marks) - 1;
            job.row[at] = pair / job.n_used;
            job.place[pair] = at++;
        }
        placed += total;
    }
}

/* Block `block` of those that make bytes of rows: a unit a warp, or eight values a thread. */
template <int THREADS>
static __device__ __forceinline__ void narrow_some(const dg_sort_job &job, const dg_byte_rows &rows,
                                                   int block)
{
    int unit = block * (THREADS / 32) + (int)threadIdx.x / 32;
    if (job.groups.out)
        narrow_blocks(job.groups, (size_t)block * THREADS + threadIdx.x);
    else if (unit < rows.n_row * rows.n_unit)
        narrow_unit(rows, unit / rows.n_unit, unit % rows.n_unit);
}

/* A block for each expert: counts the pairs of all, finds where its own begin, and places them.
 * Further blocks, if any, make bytes of rows, which do not wait for the routes where the rows are
 * older than those. */
template <int THREADS>
static __global__ void __launch_bounds__(THREADS) sort_pairs(dg_sort_job job, dg_byte_rows rows)
{
    DG_SHARED(shared);
    int *count = (int *)shared, expert = (int)blockIdx.x, t = (int)threadIdx.x;
    uint8_t *mark = (uint8_t *)(count + job.n_expert);
    if (expert >= job.n_expert) {
        if (job.older_rows)
            narrow_some<THREADS>(job, rows, expert - job.n_expert);
        dg_grid_wait();
        dg_grid_launch_next();
        if (!job.older_rows)
            narrow_some<THREADS>(job, rows, expert - job.n_expert);
        return;
    }
    for (int e = t; e < job.n_expert; e += THREADS)
        count[e] = 0;
    __syncthreads();
    dg_grid_wait();
    dg_grid_launch_next();
    count_pairs<THREADS>(job, count, mark, expert);
    __syncthreads();
    int n = count[expert];
    expert_place place = find_place(job, count, expert);
    place_pairs<THREADS>(job, mark, place.first);
    list_tiles(job, expert, place.first, n, place.tiles);
    list_pieces(job, expert, n, place);
    if (t == 0) {
        job.start[expert] = place.first;
        if (expert == job.n_expert - 1)
            job.start[job.n_expert] = place.first + n;
    }
    for (int i = t; expert == 0 && i < DG_PIECE_COUNTERS; i += THREADS)
        job.counter[i] = 0;
    if (expert == 0 && t == 0)
        *job.n_piece = place.all_pieces;
}

template <int THREADS>
static cudaError_t launch_sort(cudaStream_t stream, const dg_sort_job &job,
                               const dg_byte_rows &rows)
{
    const dg_byte_blocks *groups = &job.groups;
    int each = groups->out ? THREADS : THREADS / 32, units = groups->out
                                                                 ? groups->n_row * (groups->ld / 8)
                                                             : rows.out ? rows.n_row * rows.n_unit
                                                                        : 0;
    size_t shared =
        (size_t)job.n_expert * sizeof(int) + (size_t)(job.n_pair + SORT_EACH - 1) / SORT_EACH;
    return DG_LAUNCH(sort_pairs<THREADS>,
                     dim3((unsigned)(job.n_expert + (units + each - 1) / each)), THREADS, shared,
                     stream, job, rows);
}

/* With few pairs nothing hides the sorting, and many threads are quickest. With many it is beside
 * the dense branch, whose blocks leave a quarter of each multiprocessor no more than one warp of 32
 * registers: a block of four such warps finds room. */
enum { SORT_FEW = 2048 };

cudaError_t dg_sort_pairs(cudaStream_t stream, const dg_sort_job *job, const dg_byte_rows *rows)
{
    return job->n_pair <= SORT_FEW ? launch_sort<256>(stream, *job, *rows)
                                   : launch_sort<128>(stream, *job, *rows);
}

/* ---- h as bytes ---- */

/* Who lets the next kernel begin has not waited yet. That is safe here: the blocks of the kernel
 * before, gate and up or what adapters add to them, have waited before they let this one begin, so
 * that what down reads early, pieces and weights, is there. */
static __global__ void __launch_bounds__(NARROW_THREADS) narrow_gated(dg_byte_blocks rows)
{
    dg_grid_launch_next();
    dg_grid_wait();
    narrow_blocks(rows, blockIdx.x * (size_t)NARROW_THREADS + threadIdx.x);
}

cudaError_t dg_narrow_blocks(cudaStream_t stream, const dg_byte_blocks *rows)
{
    size_t eights = (size_t)rows->n_row * (size_t)(rows->ld / 8);
    return DG_LAUNCH(narrow_gated, dim3((unsigned)((eights + NARROW_THREADS - 1) / NARROW_THREADS)),
                     NARROW_THREADS, 0, stream, *rows);
}

/* ---- a row's experts, in the order of its choices ---- */

static __device__ __forceinline__ float4 four_at(const dg_cuda_rows &in, size_t at)
{
    if (in.form == DG_CUDA_F32)
        return *(const float4 *)((const float *)in.data + at);
    uint2 v = *(const uint2 *)((const uint16_t *)in.data + at);
    return make_float4(dg_bf16_low(v.x), dg_bf16_high(v.x), dg_bf16_low(v.y), dg_bf16_high(v.y));
}

/* Block (x: row, y: 1024 values). Eight choices are on their way at once. aligned: rows of y to 16
 * bytes, and whole. */
static __global__ void __launch_bounds__(COMBINE_THREADS) combine(dg_combine_job job, bool aligned)
{
    size_t row = blockIdx.x, pair = row * (size_t)job.n_used;
    int c = ((int)blockIdx.y * COMBINE_THREADS + (int)threadIdx.x) * 4;
    float4 sum = {};
    dg_grid_wait();
    dg_grid_launch_next();
    if (c >= job.in.ld)
        return;
    for (int first = 0; first < job.n_used; first += 8) {
        float4 v[8];
        float w[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            size_t at = pair + (size_t)min(first + j, job.n_used - 1);
            w[j] = job.weight[at];
            v[j] = four_at(job.in, (size_t)job.place[at] * (size_t)job.in.ld + (size_t)c);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (first + j >= job.n_used)
                break;
            sum.x = fmaf(w[j], v[j].x, sum.x);
            sum.y = fmaf(w[j], v[j].y, sum.y);
            sum.z = fmaf(w[j], v[j].z, sum.z);
            sum.w = fmaf(w[j], v[j].w, sum.w);
        }
    }
    float *y = job.y + row * job.ldy + (size_t)c;
    if (aligned) {
        *(float4 *)y = sum;
        return;
    }
    float value[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (c + i < job.n_embd)
            y[i] = value[i];
}

cudaError_t dg_combine(cudaStream_t stream, const dg_combine_job *job)
{
    int wide = COMBINE_THREADS * 4;
    bool aligned = job->n_embd % 8 == 0 && job->ldy % 4 == 0 && (uintptr_t)job->y % 16 == 0;
    return DG_LAUNCH(combine,
                     dim3((unsigned)job->n_row, (unsigned)((job->in.ld + wide - 1) / wide)),
                     COMBINE_THREADS, 0, stream, *job, aligned);
}
