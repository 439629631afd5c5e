/* What adapters add to dense products: behind each product of a matrix that some adapter changes,
 * one launch adds factor * B (A x) to the rows of segments that have it. A pass without adapters
 * has none of these launches. */
#include "cuda/cuda_adapters.cuh"
#include "cuda/cuda_tiles.cuh"

enum { ADAPT_ROWS = 8, ADAPT_THREADS = 256, ADAPT_LINES = 4 };

/* ---- y += factor * B (A x) ---- */

/* A x of n rows from `first` on, times factor: a warp has ADAPT_LINES of A at a time. */
template <dg_cuda_form FORM>
static __device__ __forceinline__ void lower_rows(float low[ADAPT_ROWS][DG_MAX_RANK],
                                                  const dg_cuda_adapt_args &a,
                                                  const dg_low_rank &of, float factor, int first,
                                                  int n)
{
    adapt_row x[ADAPT_ROWS];
    for (int r = 0; r < ADAPT_ROWS; r++)
        x[r] = row_at<FORM>(a.x, first + min(r, n - 1));
    for (int line = (int)threadIdx.x / 32 * ADAPT_LINES; line < of.rank;
         line += ADAPT_THREADS / 32 * ADAPT_LINES) {
        float sum[ADAPT_ROWS][ADAPT_LINES];
        lower<FORM, ADAPT_ROWS, ADAPT_LINES>(sum, of.a, line, of.rank, a.n_in, x, n, a.x_scale);
#pragma unroll
        for (int r = 0; r < ADAPT_ROWS; r++)
#pragma unroll
            for (int i = 0; i < ADAPT_LINES; i++)
                if (threadIdx.x % 32 == 0 && line + i < of.rank)
                    low[r][line + i] = sum[r][i] * factor;
    }
}

/* y += B low, in ascending k. V: values of B that are read at a time. */
template <int V>
static __device__ __forceinline__ void raise_rows(const float low[ADAPT_ROWS][DG_MAX_RANK],
                                                  const dg_cuda_adapt_args &a,
                                                  const dg_low_rank &of, int first, int n)
{
    for (int out = (int)threadIdx.x; out < a.n_out; out += ADAPT_THREADS) {
        const float *b = of.b + (size_t)out * (size_t)of.rank;
        float sum[ADAPT_ROWS] = {};
        for (int k = 0; k < of.rank; k += V) {
            float value[V];
            if constexpr (V == 4) {
                float4 four = *(const float4 *)(b + k);
                value[0] = four.x, value[1] = four.y, value[2] = four.z, value[3] = four.w;
            } else
                value[0] = b[k];
#pragma unroll
            for (int r = 0; r < ADAPT_ROWS; r++)
#pragma unroll
                for (int i = 0; i < V; i++)
                    sum[r] = fmaf(value[i], low[r][k + i], sum[r]);
        }
        float *y = a.y + (size_t)first * a.ldy + (size_t)out;
#pragma unroll
        for (int r = 0; r < ADAPT_ROWS; r++)
            if (r < n)
                y[(size_t)r * a.ldy] += sum[r];
    }
}

/* A block has ADAPT_ROWS rows: of one segment, or of some one after the other. */
template <dg_cuda_form FORM>
static __global__ void __launch_bounds__(ADAPT_THREADS) adapt_rows(dg_cuda_adapt_args a)
{
    __shared__ __align__(16) float low[ADAPT_ROWS][DG_MAX_RANK];
    dg_grid_wait();
    int begin = (int)blockIdx.x * ADAPT_ROWS, end = min(begin + ADAPT_ROWS, a.n_row);
    for (int first = begin, next; first < end; first = next) {
        const dg_cuda_uses *uses = uses_of(a.rows, first);
        for (next = first + 1; next < end && uses_of(a.rows, next) == uses;)
            next++;
        for (int i = 0; i < uses->n; i++) {
            dg_low_rank of = low_of(a.low, *uses, i);
            if (!of.rank)
                continue;
            __syncthreads(); /* the last one's has been read */
            lower_rows<FORM>(low, a, of, of.factor * uses->use[i].scale * a.alpha, first,
                             next - first);
            __syncthreads();
            if (of.rank % 4 == 0)
                raise_rows<4>(low, a, of, first, next - first);
            else
                raise_rows<1>(low, a, of, first, next - first);
        }
    }
}

extern "C" cudaError_t dg_cuda_adapt(cudaStream_t stream, const dg_cuda_adapt_args *a)
{
    if (a->n_row < 1)
        return cudaSuccess;
    dim3 grid((unsigned)(a->n_row + ADAPT_ROWS - 1) / ADAPT_ROWS);
    DG_FOR_FORM(a->x.form, return DG_LAUNCH(adapt_rows<FORM>, grid, ADAPT_THREADS, 0, stream, *a))
}

/* ---- gate and up ---- */

/* A block a row. What lies behind h's n values has been written by the product before. */
static __global__ void __launch_bounds__(ADAPT_THREADS) regate_rows(dg_cuda_regate_args a)
{
    dg_grid_wait();
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
