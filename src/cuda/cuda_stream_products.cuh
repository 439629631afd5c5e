/* What the warps that multiply do with a stage of streamed weights (cuda_stream.cuh): how rows of x
 * lie in it, products, and results on their way out. */
#ifndef DG_CUDA_CUDA_STREAM_PRODUCTS_CUH
#define DG_CUDA_CUDA_STREAM_PRODUCTS_CUH

#include "cuda/cuda_bytes.cuh"
#include "cuda/cuda_experts.cuh"
#include "cuda/cuda_formats.cuh"
#include "cuda/cuda_int4.cuh"
#include "cuda/cuda_tiles.cuh"

template <class F> struct stream_row {
    static constexpr bool IS_BYTES = false;
    static constexpr int UNIT_BYTES = F::UNIT * 2; /* of a row of x */
    static constexpr float STEP = 1;               /* what sums have to be multiplied with */
};

template <> struct stream_row<format_q4_k_bytes> {
    static constexpr bool IS_BYTES = true;
    static constexpr int UNIT_BYTES = BYTE_UNIT;
    static constexpr float STEP = 1;
};

template <> struct stream_row<format_q5_0_bytes> {
    static constexpr bool IS_BYTES = true;
    static constexpr int UNIT_BYTES = BLOCKS_UNIT;
    static constexpr float STEP = format_q5_0_bytes::STEP;
};

template <> struct stream_row<format_int4> {
    static constexpr bool IS_BYTES = true;
    static constexpr int UNIT_BYTES = BLOCKS_UNIT;
    static constexpr float STEP = 1;
};

/* n units of products of bytes, one after the other in a loop: what is left out of one line of
 * instructions need not be fetched (gate and up of four bits 71.7 us instead of 73.0, down of Q5_0
 * 56.9 instead of 59.4). `step`: from a unit of weights to the next. */
template <class F, int NT_MAX, int NT> struct byte_units {
    static __device__ __forceinline__ void multiply(float acc[2][NT][4],
                                                    const unsigned char *const first[2],
                                                    const unsigned char *x, int step, int n)
    {
#pragma unroll 1
        for (int u = 0; u < n; u++, x += BLOCKS_UNIT / 16 * NT_MAX * 128) {
            const unsigned char *unit[2] = {first[0] + u * step, first[1] + u * step};
            multiply_blocks<F, NT_MAX, NT>(acc, unit, x);
        }
    }
};

/* A stage has one. */
template <int NT_MAX, int NT> struct byte_units<format_q4_k_bytes, NT_MAX, NT> {
    static __device__ __forceinline__ void multiply(float acc[2][NT][4],
                                                    const unsigned char *const first[2],
                                                    const unsigned char *x, int, int)
    {
        multiply_bytes<NT_MAX, NT>(acc, first, x);
    }
};

template <int NT_MAX, int NT> struct byte_units<format_int4, NT_MAX, NT> {
    static __device__ __forceinline__ void multiply(float acc[2][NT][4],
                                                    const unsigned char *const first[2],
                                                    const unsigned char *x, int step, int n)
    {
        int4_places at = int4_begin<NT_MAX>(first, x);
#pragma unroll 1
        for (int u = 0; u < n; u++, int4_advance(at, step, BLOCKS_UNIT / 16 * NT_MAX * 128))
            multiply_int4<NT_MAX, NT>(acc, at);
    }
};

/* Something that needs sums of all rows and channels, and so all that was loaded for them. */
template <int NT> static __device__ __forceinline__ uint32_t bits_of(const float acc[2][NT][4])
{
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int m = 0; m < 2; m++)
            bits ^= __float_as_uint(acc[m][j][0]) ^ __float_as_uint(acc[m][j][3]);
    return bits;
}

/* Units of k in a stage: 128 values, or the 256 of a long block. With 64 Q8_0 took 28 % longer;
 * with 256 gate and up of four bits take 76 us instead of 91 and down 50 instead of 59, Q5_0's down
 * 57 instead of 66. */
template <class F> struct stream_stage {
    static constexpr bool LONG = F::UNIT == 64 && stream_row<F>::IS_BYTES;
    static constexpr int UNITS = LONG ? 4 : F::UNIT == 64 ? 2 : 1;
    static constexpr int K16 = UNITS * stream_row<F>::UNIT_BYTES / 16; /* pieces of a row of x */
};

/* Of Q5_0 a fifth stage then has room: 56 us instead of 58. */
template <> struct stream_stage<format_q5_0_bytes> {
    static constexpr int UNITS = 3, K16 = UNITS * BLOCKS_UNIT / 16;
};

/* Weights of a stage: of a side the units one after the other. */
template <class F>
static __host__ __device__ __forceinline__ int stage_weights(const dg_stream_job &job)
{
    return 2 * stream_stage<F>::UNITS * job.share * packed_unit<F>::BYTES;
}

template <class F, int NT_MAX>
static __host__ __device__ __forceinline__ int stage_bytes(const dg_stream_job &job)
{
    return stage_weights<F>(job) + stream_stage<F>::K16 * NT_MAX * 128;
}

/* What a block works at. */
struct stream_item {
    int expert, first, n;       /* its rows, as places; n = 0: nothing, and never again */
    int group[2], tile, n_tile; /* of w[0] and w[1], and the share of their tiles */
    int piece, unused[3];
    bool down;
};

/* Token tiles that are multiplied for n rows: in steps, so that there are four variants of the
 * loop. */
template <int NT_MAX> static __device__ __forceinline__ int token_tiles(int n)
{
    constexpr int STEP = NT_MAX / 4;
    return min((n + 8 * STEP - 1) / (8 * STEP) * STEP, NT_MAX);
}

/* ---- products ---- */

/* Adds up 32 values of k. Returns something that needs all that it loaded. */
template <class F, int NT_MAX, int NT>
static __device__ __forceinline__ uint32_t multiply_block(float acc[2][NT][4],
                                                          const unsigned char *const chunk[2],
                                                          const typename F::scales scales[2],
                                                          const unsigned char *x, int block)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t a[2][2][4], loaded = 0;
    typename F::raw raw[2];
#pragma unroll
    for (int m = 0; m < 2; m++)
        F::load(raw[m], chunk[m], block & 1, lane);
#pragma unroll
    for (int m = 0; m < 2; m++) {
        F::convert(a[m], raw[m], scales[m], block);
        loaded ^= a[m][0][0] ^ a[m][1][3];
    }
#pragma unroll
    for (int j = 0; j < NT; j++) {
        uint32_t b[4];
        dg_ldmatrix_x4(b, x + j * 128);
        loaded ^= b[3];
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int m = 0; m < 2; m++)
                mma_of<F::FORM>(acc[m][j], a[m][s], b + 2 * s);
    }
    return loaded;
}

/* A unit, for the warp's tile of each side. */
template <class F, int NT_MAX, int NT>
static __device__ __forceinline__ uint32_t multiply_unit(float acc[2][NT][4],
                                                         const unsigned char *const unit[2],
                                                         const unsigned char *x)
{
    int lane = (int)threadIdx.x % 32;
    typename F::scales scales[2];
    uint32_t loaded = 0;
    x += lane / 8 * NT_MAX * 128 + lane % 8 * 16;
#pragma unroll
    for (int m = 0; m < 2; m++)
        F::begin(scales[m], unit[m], lane);
#pragma unroll
    for (int block = 0; block < F::UNIT / 32; block++) {
        const unsigned char *chunk[2] = {unit[0] + F::HEAD + block / 2 * F::CHUNK,
                                         unit[1] + F::HEAD + block / 2 * F::CHUNK};
        loaded =
            multiply_block<F, NT_MAX, NT>(acc, chunk, scales, x + block * 4 * NT_MAX * 128, block);
    }
    return loaded;
}

/* Where a warp's tile of each side lies in a stage, and the next unit's behind it. */
struct tile_place {
    int side[2], step;
};

template <class F> static __device__ __forceinline__ tile_place tile_of(const dg_stream_job &job)
{
    constexpr int BYTES = packed_unit<F>::BYTES;
    int first = (int)threadIdx.x / 32 * BYTES;
    return tile_place{{first, first + stage_weights<F>(job) / 2}, job.share * BYTES};
}

/* Of others than products of bytes the loads of a unit can go before the products of the one
 * before. Returns something that needs all that was loaded. */
template <class F, int NT_MAX, int NT>
static __device__ __forceinline__ uint32_t multiply_stage(float acc[2][NT][4],
                                                          const unsigned char *stage,
                                                          const unsigned char *x,
                                                          const tile_place &tile, int n_unit)
{
    if constexpr (stream_row<F>::IS_BYTES) {
        const unsigned char *first[2] = {stage + tile.side[0], stage + tile.side[1]};
        byte_units<F, NT_MAX, NT>::multiply(acc, first, x, tile.step, n_unit);
        return bits_of<NT>(acc);
    } else {
        uint32_t loaded = 0;
#pragma unroll
        for (int u = 0; u < stream_stage<F>::UNITS; u++) {
            if (u >= n_unit)
                break;
            const unsigned char *unit[2] = {stage + tile.side[0] + u * tile.step,
                                            stage + tile.side[1] + u * tile.step};
            loaded ^= multiply_unit<F, NT_MAX, NT>(
                acc, unit, x + u * (stream_row<F>::UNIT_BYTES / 16 * NT_MAX * 128));
        }
        return loaded;
    }
}

/* A result, or h. */
template <bool DOWN, int NT>
static __device__ __forceinline__ float result_of(const float acc[2][NT][4], const float factor[2],
                                                  float all, int m, int j, int i)
{
    return all * (DOWN ? acc[m][j][i] * factor[m]
                       : gated(acc[0][j][i] * factor[0], acc[1][j][i] * factor[1]));
}

/* Floats: two channels of a place at a time. Every lane takes part in every exchange: only stores
 * depend on what there is. */
template <bool DOWN, int NT>
static __device__ __forceinline__ void store_floats(const dg_stream_job &job,
                                                    const stream_item &item, float all,
                                                    const float factor[2],
                                                    const float acc[2][NT][4], int m, int channel)
{
    int lane = (int)threadIdx.x % 32, place = lane % 4 * 2 + lane / 4 % 2;
    channel += lane / 4 & ~1;
    size_t at = (size_t)(item.first + place) * (size_t)job.out.ld + (size_t)channel;
#pragma unroll
    for (int j = 0; j < NT; j++, at += 8 * (size_t)job.out.ld)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            channel_pair pair = pair_channels(result_of<DOWN, NT>(acc, factor, all, m, j, i),
                                              result_of<DOWN, NT>(acc, factor, all, m, j, i + 1));
            if (j * 8 + place < item.n && channel + i * 4 < job.out.ld)
                store_pair(job.out.data, DG_CUDA_F32, at + (size_t)(i * 4), pair);
        }
}

/* A word with one channel of two places, channels lane / 4: two channels of one place, of 2 (lane %
 * 4) + lane / 4 % 2. */
static __device__ __forceinline__ uint32_t pair_words(uint32_t word)
{
    uint32_t other = __shfl_xor_sync(DG_ALL_LANES, word, 4);
    return __byte_perm(word, other, threadIdx.x & 4 ? 0x3276 : 0x5410);
}

/* Of four words that four lanes have each, 8 apart, a lane gets the one of its number from all. */
static __device__ __forceinline__ void exchange_words(uint32_t v[4])
{
#pragma unroll
    for (int by = 1; by < 4; by *= 2) {
        bool upper = (int)threadIdx.x / 8 & by;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & by)
                continue;
            uint32_t other = __shfl_xor_sync(DG_ALL_LANES, upper ? v[i] : v[i + by], 8 * by);
            if (upper)
                v[i] = other;
            else
                v[i + by] = other;
        }
    }
}

/* 16-bit values: 8 channels of a place at a time, so that every store fills sectors of memory. */
template <bool DOWN, dg_cuda_form FORM, int NT>
static __device__ __forceinline__ void store_eights(const dg_stream_job &job,
                                                    const stream_item &item, float all,
                                                    const float factor[2],
                                                    const float acc[2][NT][4], int m, int channel)
{
    int lane = (int)threadIdx.x % 32, part = lane / 8,
        place = part / 2 * 8 + lane % 4 * 2 + lane / 4 % 2;
    channel += part % 2 * 8;
    uint16_t *to = (uint16_t *)job.out.data + (size_t)(item.first + place) * (size_t)job.out.ld +
                   (size_t)channel;
#pragma unroll
    for (int j = 0; j < NT; j += 2, to += 16 * (size_t)job.out.ld) {
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (j + i / 2 >= NT) {
                v[i] = 0;
                continue;
            }
            float low = result_of<DOWN, NT>(acc, factor, all, m, j + i / 2, i % 2 * 2),
                  high = result_of<DOWN, NT>(acc, factor, all, m, j + i / 2, i % 2 * 2 + 1);
            v[i] = pair_words(FORM == DG_CUDA_BF16 ? dg_pack_bf16(low, high)
                                                   : dg_store_f16(low, high));
        }
        exchange_words(v);
        if (j * 8 + place < item.n && channel < job.out.ld)
            *(uint4 *)to = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

/* Times `all`. Rows are multiples of 8 long. */
template <bool DOWN, dg_cuda_form FORM, int NT>
static __device__ __forceinline__ void store_results_as(const dg_stream_job &job,
                                                        const stream_item &item, float all,
                                                        const float factor[2],
                                                        const float acc[2][NT][4])
{
    int warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int m = 0; m < (DOWN ? 2 : 1); m++) {
        int channel = (item.group[m] * job.tiles + item.tile + warp) * 16;
        if (m && item.group[1] == item.group[0])
            return;
        if constexpr (FORM == DG_CUDA_F32)
            store_floats<DOWN, NT>(job, item, all, factor, acc, m, channel);
        else
            store_eights<DOWN, FORM, NT>(job, item, all, factor, acc, m, channel);
    }
}

/* Down's results are bfloat16. */
template <bool DOWN, int NT>
static __device__ __forceinline__ void store_results(const dg_stream_job &job,
                                                     const stream_item &item, float all,
                                                     const float factor[2],
                                                     const float acc[2][NT][4])
{
    if (DOWN || job.out.form == DG_CUDA_BF16)
        store_results_as<DOWN, DG_CUDA_BF16, NT>(job, item, all, factor, acc);
    else if (job.out.form == DG_CUDA_F16)
        store_results_as<DOWN, DG_CUDA_F16, NT>(job, item, all, factor, acc);
    else
        store_results_as<DOWN, DG_CUDA_F32, NT>(job, item, all, factor, acc);
}

#endif
