/* The router's products where rows are many. A block has MANY_ROWS rows, MANY_EXPERTS experts and
 * one part of k, all of which it copies into shared memory at once: 1,024 rows of 2,816 values over
 * 128 experts are 128 blocks, which read x once and each weight sixteen times. A warp has all four
 * shares of a tile, each with sums of its own, and adds them in their order: no warp waits for
 * another's. */
#include "cuda/cuda_router.cuh"

enum { MANY_ROWS = 64, MANY_EXPERTS = 128, TILE_EXPERTS = 32 };
enum { ROW_TILES = MANY_ROWS / ROUTE_ROWS, MANY_WARPS = ROW_TILES * MANY_EXPERTS / TILE_EXPERTS };
enum { MANY_THREADS = 32 * MANY_WARPS };

/* A turn is a chunk for each share. */
enum { MANY_CHUNKS = ROUTE_PART / ROUTE_CHUNK };
enum { MANY_TURNS = (MANY_CHUNKS + ROUTE_SHARES - 1) / ROUTE_SHARES };

/* Of a chunk lines lie side by side, and chunks are so far apart that neither copies of a line, nor
 * a warp's reading of a chunk, meet in a bank. */
enum { MANY_X_LINE = ROUTE_CHUNK * 4, MANY_X_CHUNK = (MANY_ROWS + 1) * MANY_X_LINE };
enum { MANY_W_LINE = ROUTE_CHUNK * 2, MANY_W_CHUNK = (MANY_EXPERTS + 1) * MANY_W_LINE };
enum { MANY_W = MANY_CHUNKS * MANY_X_CHUNK, MANY_SCALE = MANY_W + MANY_CHUNKS * MANY_W_CHUNK };
enum { MANY_BARRIER = MANY_SCALE + ROUTE_PART * 4, MANY_BYTES = MANY_BARRIER + MANY_TURNS * 8 };

static_assert(MANY_W_CHUNK % 16 == 0 && MANY_BARRIER % 8 == 0, "aligned");

/* What a block has. */
struct many_place {
    int first_row, first_expert, begin, n_chunk;
};

/* ---- copies: PIECES of 16 bytes a line and turn ---- */

/* Lines of values of SIZE bytes; behind the last one is the last one, behind n are zeros. */
template <int SIZE, int LINES>
static __device__ __forceinline__ void copy_lines(unsigned char *to, const void *from, int first,
                                                  int n_line, int n, int begin, int turn)
{
    constexpr int OF_CHUNK = ROUTE_CHUNK * SIZE / 16, PIECES = ROUTE_SHARES * OF_CHUNK;
    static_assert(LINES * PIECES % MANY_THREADS == 0, "copies of a thread");
#pragma unroll
    for (int i = 0; i < LINES * PIECES / MANY_THREADS; i++) {
        int number = (int)threadIdx.x + i * MANY_THREADS, line = number / PIECES,
            piece = number % PIECES, chunk = turn * ROUTE_SHARES + piece / OF_CHUNK,
            k = begin + turn * ROUTE_SHARES * ROUTE_CHUNK + piece * (16 / SIZE);
        const unsigned char *row =
            (const unsigned char *)from + (size_t)min(first + line, n_line - 1) * (size_t)n * SIZE;
        if (chunk < MANY_CHUNKS)
            dg_cp_async16_if(to + chunk * (LINES + 1) * ROUTE_CHUNK * SIZE +
                                 line * ROUTE_CHUNK * SIZE + piece % OF_CHUNK * 16,
                             row + (k < n ? (size_t)k * SIZE : 0), k < n);
    }
}

static __device__ __forceinline__ void copy_weights(unsigned char *shared,
                                                    const dg_cuda_route_args &a,
                                                    const many_place &at, int turn)
{
    copy_lines<2, MANY_EXPERTS>(shared + MANY_W, a.w, at.first_expert, a.n_expert, a.n, at.begin,
                                turn);
}

static __device__ __forceinline__ void copy_scale(unsigned char *shared,
                                                  const dg_cuda_route_args &a, int begin)
{
    int k = (int)threadIdx.x * 4;
    if (k < ROUTE_PART)
        dg_cp_async16_if(shared + MANY_SCALE + k * 4, a.scale + (begin + k < a.n ? begin + k : 0),
                         begin + k < a.n);
}

/* ---- products ---- */

/* A share's sums of a warp's tile, and of the squares of its rows. */
struct many_share {
    float acc[ROUTE_ROWS / 16][TILE_EXPERTS / 8][4], squares[ROUTE_ROWS / 8];
};

/* Where the lines of a lane begin, in a warp's tile. */
struct many_lines {
    const unsigned char *x, *w, *scale;
};

static __device__ __forceinline__ many_lines lines_of(const unsigned char *shared)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32,
        row = warp % ROW_TILES * ROUTE_ROWS + lane / 4,
        expert = warp / ROW_TILES * TILE_EXPERTS + lane / 4;
    return many_lines{shared + row * MANY_X_LINE + lane % 4 * 16,
                      shared + MANY_W + expert * MANY_W_LINE + lane % 4 * 8,
                      shared + MANY_SCALE + lane % 4 * 16};
}

static __device__ __forceinline__ void multiply_chunk(many_share &to, const many_lines &from,
                                                      int chunk)
{
    const unsigned char *rows = from.x + chunk * MANY_X_CHUNK,
                        *weights = from.w + chunk * MANY_W_CHUNK;
    float4 x[ROUTE_ROWS / 8];
    uint2 w[TILE_EXPERTS / 8];
#pragma unroll
    for (int i = 0; i < ROUTE_ROWS / 8; i++)
        x[i] = *(const float4 *)(rows + 8 * i * MANY_X_LINE);
#pragma unroll
    for (int i = 0; i < TILE_EXPERTS / 8; i++)
        w[i] = *(const uint2 *)(weights + 8 * i * MANY_W_LINE);
    scale_rows(x, to.squares, *(const float4 *)(from.scale + chunk * ROUTE_CHUNK * 4));
#pragma unroll
    for (int half = 0; half < 2; half++) {
        route_rows high, low;
        split_rows(high, low, x, half);
#pragma unroll
        for (int n = 0; n < TILE_EXPERTS / 8; n += 2)
            multiply_two(to.acc, n, high, low, w + n, half);
    }
}

/* ---- sums ---- */

static __device__ __forceinline__ void store_sums(const dg_cuda_route_args &a, const many_place &at,
                                                  const many_share share[ROUTE_SHARES])
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32,
        first_row = at.first_row + warp % ROW_TILES * ROUTE_ROWS + lane / 4,
        first_expert = at.first_expert + warp / ROW_TILES * TILE_EXPERTS + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < ROUTE_ROWS / 16; m++)
#pragma unroll
        for (int n = 0; n < TILE_EXPERTS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                float2 sum = make_float2(0, 0);
#pragma unroll
                for (int s = 0; s < ROUTE_SHARES; s++) {
                    sum.x += share[s].acc[m][n][i];
                    sum.y += share[s].acc[m][n][i + 1];
                }
                store_two(a, first_row + 16 * m + 4 * i, first_expert + 8 * n, (int)blockIdx.z,
                          sum);
            }
}

static __device__ __forceinline__ void store_squares(const dg_cuda_route_args &a, int first_row,
                                                     many_share share[ROUTE_SHARES])
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < ROUTE_ROWS / 8; i++) {
        int row = first_row + warp * ROUTE_ROWS + 8 * i + lane / 4;
        float sum = 0;
#pragma unroll
        for (int s = 0; s < ROUTE_SHARES; s++)
            sum += lane_squares(share[s].squares[i]);
        if (lane % 4 == 0 && row < a.n_row)
            route_line(a, row, (int)blockIdx.z)[a.n_expert] = sum;
    }
}

/* ---- the kernel ---- */

/* Weights of the first turns are on their way before there are rows. */
enum { MANY_EARLY = 2 };

static __global__ void __launch_bounds__(MANY_THREADS, 1) route_many(dg_cuda_route_args a)
{
    DG_SHARED(shared);
    uint64_t *there = (uint64_t *)(shared + MANY_BARRIER);
    many_place at = {(int)blockIdx.x * MANY_ROWS, (int)blockIdx.y * MANY_EXPERTS,
                     (int)blockIdx.z * ROUTE_PART, 0};
    at.n_chunk = (min(a.n - at.begin, (int)ROUTE_PART) + ROUTE_CHUNK - 1) / ROUTE_CHUNK;
    int n_turn = (at.n_chunk + ROUTE_SHARES - 1) / ROUTE_SHARES;
    many_share share[ROUTE_SHARES] = {};
    if (threadIdx.x == 0) {
        for (int i = 0; i < MANY_TURNS; i++)
            dg_mbar_init(there + i, MANY_THREADS);
        dg_mbar_init_fence();
    }
    copy_scale(shared, a, at.begin);
    for (int turn = 0; turn < min(n_turn, (int)MANY_EARLY); turn++)
        copy_weights(shared, a, at, turn);
    __syncthreads();
    dg_grid_wait();
    dg_grid_launch_next();
#pragma unroll 1
    for (int turn = 0; turn < n_turn; turn++) {
        if (turn >= MANY_EARLY)
            copy_weights(shared, a, at, turn);
        copy_lines<4, MANY_ROWS>(shared, a.x, at.first_row, a.n_row, a.n, at.begin, turn);
        dg_cp_async_mbar_arrive(there + turn);
    }
    many_lines lines = lines_of(shared);
#pragma unroll 1
    for (int turn = 0; turn < n_turn; turn++) {
        dg_mbar_wait(there + turn, 0);
#pragma unroll
        for (int s = 0; s < ROUTE_SHARES; s++)
            if (turn * ROUTE_SHARES + s < at.n_chunk)
                multiply_chunk(share[s], lines, turn * ROUTE_SHARES + s);
    }
    if (blockIdx.y == 0 && threadIdx.x < 32 * ROW_TILES)
        store_squares(a, at.first_row, share);
    store_sums(a, at, share);
}

cudaError_t dg_route_many(cudaStream_t stream, const dg_cuda_route_args *a, bool early)
{
    dim3 grid((unsigned)(a->n_row + MANY_ROWS - 1) / MANY_ROWS,
              (unsigned)(a->n_expert + MANY_EXPERTS - 1) / MANY_EXPERTS,
              (unsigned)route_parts(a->n));
    return DG_LAUNCH_IF(early, route_many, grid, MANY_THREADS, (size_t)MANY_BYTES, stream, *a);
}
