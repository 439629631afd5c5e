/* The router's products where rows are many. A block has MANY_ROWS rows, MANY_EXPERTS experts and
 * one part of k, all of which it copies into shared memory at once: 1,024 rows of 2,816 values over
 * 128 experts are 128 blocks, which read x once and each weight sixteen times. Its warps have four
 * tiles in four shares of k, which are added in their order there. */
#include "cuda/cuda_router.cuh"

enum { MANY_ROWS = 2 * ROUTE_ROWS, MANY_EXPERTS = 2 * ROUTE_EXPERTS, MANY_TILES = 4 };
enum { MANY_THREADS = 32 * MANY_TILES * ROUTE_SHARES };

/* A turn is a chunk for each share. */
enum { MANY_CHUNKS = ROUTE_PART / ROUTE_CHUNK };
enum { MANY_TURNS = (MANY_CHUNKS + ROUTE_SHARES - 1) / ROUTE_SHARES };

/* Of a chunk lines lie side by side, and chunks are so far apart that neither copies of a line, nor
 * a warp's reading of a chunk, meet in a bank. */
enum { MANY_X_LINE = ROUTE_CHUNK * 4, MANY_X_CHUNK = (MANY_ROWS + 1) * MANY_X_LINE };
enum { MANY_W_LINE = ROUTE_CHUNK * 2, MANY_W_CHUNK = (MANY_EXPERTS + 1) * MANY_W_LINE };
enum { MANY_W = MANY_CHUNKS * MANY_X_CHUNK, MANY_SCALE = MANY_W + MANY_CHUNKS * MANY_W_CHUNK };
enum { MANY_BARRIER = MANY_SCALE + ROUTE_PART * 4, MANY_BYTES = MANY_BARRIER + MANY_TURNS * 8 };

/* Sums meet where copies were, in fours of a lane; squares lie behind them. */
enum { MANY_FOURS = ROUTE_ROWS / 16 * (ROUTE_EXPERTS / 8) };
enum { MANY_SQUARES = ROUTE_SHARES * MANY_TILES * MANY_FOURS * 32 * 16 };
static_assert(MANY_SQUARES + ROUTE_SHARES * MANY_ROWS * 4 <= MANY_BYTES, "room for sums");
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

/* A lane's part of chunk `chunk`: of the rows and of the weights of its warp's tile. */
static __device__ __forceinline__ void multiply_chunk(route_sums acc, float squares[ROUTE_ROWS / 8],
                                                      const unsigned char *shared, int tile,
                                                      int chunk)
{
    int lane = (int)threadIdx.x % 32, line = lane / 4;
    const unsigned char *rows = shared + chunk * MANY_X_CHUNK +
                                (tile % 2 * ROUTE_ROWS + line) * MANY_X_LINE + lane % 4 * 16,
                        *weights = shared + MANY_W + chunk * MANY_W_CHUNK +
                                   (tile / 2 * ROUTE_EXPERTS + line) * MANY_W_LINE + lane % 4 * 8;
    float4 x[ROUTE_ROWS / 8];
    route_rows high[2], low[2];
#pragma unroll
    for (int i = 0; i < ROUTE_ROWS / 8; i++)
        x[i] = *(const float4 *)(rows + 8 * i * MANY_X_LINE);
    scale_rows(x, squares,
               *(const float4 *)(shared + MANY_SCALE + chunk * ROUTE_CHUNK * 4 + lane % 4 * 16));
#pragma unroll
    for (int half = 0; half < 2; half++)
        split_rows(high[half], low[half], x, half);
#pragma unroll
    for (int n = 0; n < ROUTE_EXPERTS / 8; n += 2) {
        uint2 w[2] = {*(const uint2 *)(weights + 8 * n * MANY_W_LINE),
                      *(const uint2 *)(weights + 8 * (n + 1) * MANY_W_LINE)};
#pragma unroll
        for (int half = 0; half < 2; half++)
            multiply_two(acc, n, high[half], low[half], w, half);
    }
}

/* ---- sums ---- */

static __device__ __forceinline__ float4 plus(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* Shares are added up in their order: of each tile's fours a warp has a quarter. */
static __device__ __forceinline__ void store_sums(unsigned char *shared,
                                                  const dg_cuda_route_args &a, const many_place &at,
                                                  route_sums acc)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, tile = warp % MANY_TILES,
        share = warp / MANY_TILES;
    constexpr int TILE = MANY_FOURS * 32, SHARE = MANY_TILES * TILE, EACH = MANY_FOURS / 4;
    static_assert(ROUTE_SHARES == 4, "a quarter for each share's warp");
    float4 *met = (float4 *)shared + tile * TILE + lane;
#pragma unroll
    for (int i = 0; i < MANY_FOURS; i++) {
        const float *four = acc[i / (ROUTE_EXPERTS / 8)][i % (ROUTE_EXPERTS / 8)];
        met[share * SHARE + i * 32] = make_float4(four[0], four[1], four[2], four[3]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int four = share * EACH + i;
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int s = 0; s < ROUTE_SHARES; s++)
            sum = plus(sum, met[s * SHARE + four * 32]);
        int row = at.first_row + tile % 2 * ROUTE_ROWS + four / (ROUTE_EXPERTS / 8) * 16 + lane / 4,
            expert = at.first_expert + tile / 2 * ROUTE_EXPERTS + four % (ROUTE_EXPERTS / 8) * 8 +
                     lane % 4 * 2;
        store_two(a, row, expert, (int)blockIdx.z, make_float2(sum.x, sum.y));
        store_two(a, row + 8, expert, (int)blockIdx.z, make_float2(sum.z, sum.w));
    }
}

/* Behind store_sums(), in which all have met. */
static __device__ __forceinline__ void store_squares(const float *met, const dg_cuda_route_args &a,
                                                     int first_row)
{
    int t = (int)threadIdx.x, row = first_row + t;
    if (t >= MANY_ROWS || row >= a.n_row)
        return;
    float sum = met[t];
    for (int s = 1; s < ROUTE_SHARES; s++)
        sum += met[s * MANY_ROWS + t];
    route_line(a, row, (int)blockIdx.z)[a.n_expert] = sum;
}

/* ---- the kernel ---- */

/* Weights of the first turns are on their way before there are rows. */
enum { MANY_EARLY = 2 };

static __global__ void __launch_bounds__(MANY_THREADS, 1) route_many(dg_cuda_route_args a)
{
    DG_SHARED(shared);
    uint64_t *there = (uint64_t *)(shared + MANY_BARRIER);
    int warp = (int)threadIdx.x / 32, tile = warp % MANY_TILES, share = warp / MANY_TILES;
    many_place at = {(int)blockIdx.x * MANY_ROWS, (int)blockIdx.y * MANY_EXPERTS,
                     (int)blockIdx.z * ROUTE_PART, 0};
    at.n_chunk = (min(a.n - at.begin, (int)ROUTE_PART) + ROUTE_CHUNK - 1) / ROUTE_CHUNK;
    int n_turn = (at.n_chunk + ROUTE_SHARES - 1) / ROUTE_SHARES;
    float acc[ROUTE_ROWS / 16][ROUTE_EXPERTS / 8][4] = {}, squares[ROUTE_ROWS / 8] = {};
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
#pragma unroll 1
    for (int turn = 0; turn * ROUTE_SHARES + share < at.n_chunk; turn++) {
        dg_mbar_wait(there + turn, 0);
        multiply_chunk(acc, squares, shared, tile, turn * ROUTE_SHARES + share);
    }
    __syncthreads(); /* the first share has waited for every turn: nothing is on its way */
    float *met = (float *)(shared + MANY_SQUARES);
    if (tile < 2 && blockIdx.y == 0)
        meet_squares(met + share * MANY_ROWS + tile * ROUTE_ROWS, squares);
    store_sums(shared, a, at, acc);
    if (blockIdx.y == 0)
        store_squares(met, a, at.first_row);
}

cudaError_t dg_route_many(cudaStream_t stream, const dg_cuda_route_args *a, bool early)
{
    dim3 grid((unsigned)(a->n_row + MANY_ROWS - 1) / MANY_ROWS,
              (unsigned)(a->n_expert + MANY_EXPERTS - 1) / MANY_EXPERTS,
              (unsigned)route_parts(a->n));
    return DG_LAUNCH_IF(early, route_many, grid, MANY_THREADS, (size_t)MANY_BYTES, stream, *a);
}
