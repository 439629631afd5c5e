/* Weights that were made four bits when they were loaded (tensor/narrowed.h), in groups of 64 that
 * share a step, as products of bytes (cuda_bytes.cuh): gate, up and down.
 *
 * Rows of x are bytes with a factor for the same 64 values, so that the sum over a group is an
 * integer, exact; it meets both factors as a float and is added in ascending k. What is lost of x
 * is half a step of 1/127 of the largest of 64 values, a tenth of what four bits lose of weights.
 */
#ifndef DG_CUDA_CUDA_INT4_CUH
#define DG_CUDA_CUDA_INT4_CUH

#include "cuda/cuda_bytes.cuh"
#include "tensor/narrowed.h"

/* The numbers in the order of PTX's A fragments of m16n8k32: of a word the low halves of bytes are
 * row g, the high ones row g + 8. As the upper halves of bytes they are 16 times too large, which
 * the steps behind them make up for: bfloat16, rows g and g + 8 in a word. */
struct format_int4 {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 64, HEAD = 0, CHUNK = 544, BLOCK = DG_INT4_VALUES,
                         BLOCK_BYTES = DG_INT4_BYTES;
    static constexpr int STEPS = 512;

    static __device__ __forceinline__ uint32_t step_bits(const unsigned char *block)
    {
        return block ? dg_narrowed_bits(dg_int4_step(block) * 0.0625f) >> 16 : 0;
    }
    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        if (i >= STEPS / 4) {
            int g = i - STEPS / 4;
            return row_pair(step_bits(block_at<BLOCK, BLOCK_BYTES>(s, g, 0)),
                            step_bits(block_at<BLOCK, BLOCK_BYTES>(s, g + 8, 0)));
        }
        uint32_t word = 0;
        for (int n = 0; n < 8; n++) {
            int lane = i / 4, reg = i % 2 * 2 + n % 2,
                k = byte_frag_k(lane, i % 4 / 2, reg) + n / 2;
            const unsigned char *b = block_at<BLOCK, BLOCK_BYTES>(s, frag_row(lane, reg), k);
            word |= (b ? (uint32_t)dg_int4_at(b, k) & 15u : 0u) << 4 * n;
        }
        return word;
    }
};

/* Where a lane finds its part of a unit, in both tiles of weights and in x as a stage has it: from
 * a unit to the next every place is as far, which costs fewer instructions than to find them anew.
 */
struct int4_places {
    const unsigned char *numbers[2], *steps[2], *x, *factors;
};

template <int NT_MAX>
static __device__ __forceinline__ int4_places int4_begin(const unsigned char *const unit[2],
                                                         const unsigned char *x)
{
    int lane = (int)threadIdx.x % 32;
    int4_places at;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        at.numbers[m] = unit[m] + lane * 16;
        at.steps[m] = unit[m] + format_int4::STEPS + lane / 4 * 4;
    }
    at.x = x + lane / 8 * NT_MAX * 128 + lane % 8 * 16;
    at.factors = x + BLOCKS_FACTORS / 16 * NT_MAX * 128 + lane % 4 * 32;
    return at;
}

static __device__ __forceinline__ void int4_advance(int4_places &at, int unit, int x)
{
#pragma unroll
    for (int m = 0; m < 2; m++) {
        at.numbers[m] += unit;
        at.steps[m] += unit;
    }
    at.x += x;
    at.factors += x;
}

/* Adds a unit to the sums of NT tiles of 8 rows, for two tiles of weights. Both factors of a unit
 * of x are alike. */
template <int NT_MAX, int NT>
static __device__ __forceinline__ void multiply_int4(float acc[2][NT][4], const int4_places &at)
{
    uint32_t a[2][2][4];
    float step[2][2], base[2][2]; /* base: what INTEGER_BITS add, exact as steps are bfloat16 */
#pragma unroll
    for (int m = 0; m < 2; m++) {
        uint4 q = *(const uint4 *)at.numbers[m];
        uint32_t word[4] = {q.x, q.y, q.z, q.w}, steps = word_at(at.steps[m]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[m][i / 2][i % 2 * 2] = word[i] << 4 & 0xF0F0F0F0u;
            a[m][i / 2][i % 2 * 2 + 1] = word[i] & 0xF0F0F0F0u;
        }
        step[m][0] = dg_bf16_low(steps);
        step[m][1] = dg_bf16_high(steps);
#pragma unroll
        for (int lower = 0; lower < 2; lower++)
            base[m][lower] = -12582912.0f * step[m][lower];
    }
#pragma unroll
    for (int j = 0; j < NT; j++) {
        uint32_t b[4];
        dg_ldmatrix_x4(b, at.x + j * 128);
        float of[2] = {*(const float *)(at.factors + j * 128),
                       *(const float *)(at.factors + j * 128 + 16)};
#pragma unroll
        for (int m = 0; m < 2; m++) {
            int sum[4] = {INTEGER_BITS, INTEGER_BITS, INTEGER_BITS, INTEGER_BITS};
            dg_mma_s8(sum, a[m][0], b);
            dg_mma_s8(sum, a[m][1], b + 2);
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[m][j][i] = fmaf(fmaf(__int_as_float(sum[i]), step[m][i / 2], base[m][i / 2]),
                                    of[i % 2], acc[m][j][i]);
        }
    }
}

#endif
