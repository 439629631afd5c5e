/* The packed form of weights that were made E4M3 when they were loaded (tensor/narrowed.h), as
 * cuda_formats.cuh describes it: a byte a value, widened to halves, which is exact. The factor of a
 * matrix meets its results. */
#ifndef DG_CUDA_CUDA_FP8_CUH
#define DG_CUDA_CUDA_FP8_CUH

#include "cuda/cuda_fragments.cuh"

struct format_fp8 {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 64, HEAD = 0, CHUNK = 1024, BLOCK = 1, BLOCK_BYTES = 1;
    struct scales {
    };
    struct raw {
        uint4 bytes;
    };

    /* As Q8_0 has them: two values of the upper row, two of the lower one. */
    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        int half = i / 128, lane = i / 4 % 32, step = i % 4 / 2, upper_k = i % 2;
        uint32_t word = 0;
        for (int n = 0; n < 4; n++) {
            int reg = 2 * upper_k + n / 2, k = 32 * half + 16 * step + frag_k(lane, reg, n % 2);
            const unsigned char *b = block_at<1, 1>(s, frag_row(lane, reg), k);
            word |= (b ? *b : 0u) << 8 * n;
        }
        return word;
    }
    static __device__ __forceinline__ void begin(scales &, const unsigned char *, int)
    {
    }
    static __device__ __forceinline__ void load(raw &r, const unsigned char *chunk, int half,
                                                int lane)
    {
        r.bytes = *(const uint4 *)(chunk + half * 512 + lane * 16);
    }
    static __device__ __forceinline__ void convert(uint32_t a[2][4], const raw &r, const scales &,
                                                   int)
    {
        uint32_t word[4] = {r.bytes.x, r.bytes.y, r.bytes.z, r.bytes.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i / 2][i % 2 * 2] = dg_e4m3_pair(word[i]);
            a[i / 2][i % 2 * 2 + 1] = dg_e4m3_pair(word[i] >> 16);
        }
    }
};

#endif
