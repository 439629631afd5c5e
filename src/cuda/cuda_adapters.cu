/* What adapters add to dense products: behind each product of a matrix that some adapter changes,
 * one launch adds factor * B (A x) to the rows of segments that have it. A pass without adapters
 * has none of these launches. */
#include "cuda/cuda_adapters.cuh"
#include "cuda/cuda_tiles.cuh"

enum { ADAPT_WARPS = 8, ADAPT_THREADS = 32 * ADAPT_WARPS };

/* ---- y += factor * B (A x) ---- */

struct adapt_shared {
    float part[ADAPT_WARPS][LOW_SUMS];
    __align__(16) float low[LOW_ROWS][DG_MAX_RANK];
};

/* A x of n rows from `first` on, times factor. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ void lower_rows(adapt_shared *s, const dg_cuda_adapt_args &a,
                                                  const dg_low_rank &of, float factor, int first,
                                                  int n)
{
    int row = (int)threadIdx.x / LOW_LINES, i = (int)threadIdx.x % LOW_LINES;
    adapt_row x[LOW_ROWS];
#pragma unroll
    for (int r = 0; r < LOW_ROWS; r++)
        x[r] = row_at<FORM>(a.x, first + min(r, n - 1));
    for (int line = 0; line < of.rank; line += LOW_LINES) {
        float sum = lower<FORM, ADAPT_WARPS>(s->part, of.a, line, of.rank, a.n_in, x, a.x_scale);
        if (row < LOW_ROWS && line + i < of.rank)
            s->low[row][line + i] = sum * factor;
    }
}

/* y += B low, in ascending k, of outputs first_out ... end. V: values of B that are read at a
 * time. */
template <int V>
static __device__ __forceinline__ void raise_rows(const adapt_shared *s,
                                                  const dg_cuda_adapt_args &a,
                                                  const dg_low_rank &of, int first, int n,
                                                  int first_out, int end)
{
    for (int out = first_out + (int)threadIdx.x; out < end; out += ADAPT_THREADS) {
        const float *b = of.b + (size_t)out * (size_t)of.rank;
        float *y = a.y + (size_t)first * a.ldy + (size_t)out, old[LOW_ROWS], sum[LOW_ROWS] = {};
#pragma unroll
        for (int r = 0; r < LOW_ROWS; r++)
            old[r] = y[(size_t)min(r, n - 1) * a.ldy];
#pragma unroll 4
        for (int k = 0; k < of.rank; k += V)
#pragma unroll
            for (int r = 0; r < LOW_ROWS; r++)
                sum[r] = add_products<V>(sum[r], b + k, s->low[r] + k);
#pragma unroll
        for (int r = 0; r < LOW_ROWS; r++)
            if (r < n)
                y[(size_t)r * a.ldy] = old[r] + sum[r];
    }
}

/* Block (x: LOW_ROWS rows, of one segment or of some one after the other; y: a share of the
 * outputs). */
template <dg_cuda_form FORM>
static __global__ void __launch_bounds__(ADAPT_THREADS) adapt_rows(dg_cuda_adapt_args a)
{
    __shared__ adapt_shared s;
    dg_grid_wait();
    dg_grid_launch_next();
    int begin = (int)blockIdx.x * LOW_ROWS, end = min(begin + LOW_ROWS, a.n_row),
        share = (a.n_out + (int)gridDim.y - 1) / (int)gridDim.y, out = (int)blockIdx.y * share,
        end_out = min(out + share, a.n_out);
    for (int first = begin, next; first < end; first = next) {
        const dg_cuda_uses *uses = uses_of(a.rows, first);
        for (next = first + 1; next < end && uses_of(a.rows, next) == uses;)
            next++;
        for (int i = 0; i < uses->n; i++) {
            dg_low_rank of = low_of(a.low, *uses, i);
            if (!of.rank)
                continue;
            __syncthreads(); /* the last one's has been read */
            lower_rows<FORM>(&s, a, of, of.factor * uses->use[i].scale * a.alpha, first,
                             next - first);
            __syncthreads();
            if (of.rank % 4 == 0)
                raise_rows<4>(&s, a, of, first, next - first, out, end_out);
            else
                raise_rows<1>(&s, a, of, first, next - first, out, end_out);
        }
    }
}

/* With few rows their outputs are shared out, so that there is a block for most multiprocessors of
 * a large card: each makes A x for itself, which costs less than to hand it on. */
extern "C" cudaError_t dg_cuda_adapt(cudaStream_t stream, const dg_cuda_adapt_args *a)
{
    const int wanted = 132;
    int tiles = (a->n_row + LOW_ROWS - 1) / LOW_ROWS,
        most = (a->n_out + ADAPT_THREADS - 1) / ADAPT_THREADS;
    if (a->n_row < 1)
        return cudaSuccess;
    int shares = wanted / tiles < 1 ? 1 : wanted / tiles < most ? wanted / tiles : most;
    dim3 grid((unsigned)tiles, (unsigned)shares);
    DG_FOR_FORM(a->x.form, return DG_LAUNCH(adapt_rows<FORM>, grid, ADAPT_THREADS, 0, stream, *a))
}

/* ---- gate and up ---- */

/* A block a row. What lies behind h's n values has been written by the product before. */
static __global__ void __launch_bounds__(ADAPT_THREADS) regate_rows(dg_cuda_regate_args a)
{
    dg_grid_wait();
    dg_grid_launch_next();
    int row = (int)blockIdx.x;
    const dg_cuda_uses *uses = uses_of(a.rows, row);
    if (!changes(a.low[0], *uses) && !changes(a.low[1], *uses))
        return;
    size_t from = (size_t)row * (size_t)a.n, to = (size_t)row * (size_t)a.h.ld;
    for (int i = (int)threadIdx.x; i < a.n; i += ADAPT_THREADS) {
        float gate = a.gate[from + (size_t)i], up = a.up[from + (size_t)i];
        float value = a.floats ? gated_float(gate, up) : gated(gate, up);
        store_one(a.h.data, a.h.form, to + (size_t)i, value * gated_factor(a.h.form));
    }
}

extern "C" cudaError_t dg_cuda_regate(cudaStream_t stream, const dg_cuda_regate_args *a)
{
    if (a->n_row < 1)
        return cudaSuccess;
    return DG_LAUNCH(regate_rows, a->n_row, ADAPT_THREADS, 0, stream, *a);
}
