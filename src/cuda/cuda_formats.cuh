/* The packed form of each weight type that the products multiply on tensor cores: where a bit of
 * the file lies in it, and how a lane turns what it loads into fragments.
 *
 * Rows come in tiles of 16, k in units of UNIT values (64, or 256 where the file's blocks are that
 * long). A tile's unit is HEAD bytes of scales, then a chunk of CHUNK bytes for each 64 values of
 * k. In a chunk the values lie in the order of PTX's A fragments of m16n8k16, so that a lane's
 * share is one aligned load.
 *
 * Every format F has
 *   F::packed_word     the 32-bit word `i` of a tile's unit, out of the stored rows (packing)
 *   F::scales, begin   what a lane keeps of a unit's head
 *   F::raw, load       what a lane loads for 32 values of k: half 0 or 1 of a chunk
 *   F::convert         the two fragments made of it; `block` counts the halves of a unit
 * All lanes of a warp call begin and convert together.
 *
 * Here are 16-bit values and blocks of 32; blocks of 256 are in cuda_formats_256.cuh, FP8 is in
 * cuda_fp8.cuh. */
#ifndef DG_CUDA_CUDA_FORMATS_CUH
#define DG_CUDA_CUDA_FORMATS_CUH

#include "cuda/cuda_formats_256.cuh"
#include "cuda/cuda_fp8.cuh"
#include "cuda/cuda_fragments.cuh"

/* ---- 16-bit values as they are ---- */

template <dg_cuda_form FORM_> struct plain16 {
    static constexpr dg_cuda_form FORM = FORM_;
    static constexpr int UNIT = 64, HEAD = 0, CHUNK = 2048, BLOCK = 1, BLOCK_BYTES = 2;
    struct scales {
    };
    struct raw {
        uint4 step[2];
    };

    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        int step = i / 128, lane = i / 4 % 32, reg = i % 4, row = frag_row(lane, reg);
        int k = 16 * step + frag_k(lane, reg, 0);
        return u16_at(block_at<1, 2>(s, row, k)) | u16_at(block_at<1, 2>(s, row, k + 1)) << 16;
    }
    static __device__ __forceinline__ void begin(scales &, const unsigned char *, int)
    {
    }
    static __device__ __forceinline__ void load(raw &r, const unsigned char *chunk, int half,
                                                int lane)
    {
        r.step[0] = *(const uint4 *)(chunk + half * 1024 + lane * 16);
        r.step[1] = *(const uint4 *)(chunk + half * 1024 + 512 + lane * 16);
    }
    static __device__ __forceinline__ void convert(uint32_t a[2][4], const raw &r, const scales &,
                                                   int)
    {
#pragma unroll
        for (int s = 0; s < 2; s++) {
            a[s][0] = r.step[s].x;
            a[s][1] = r.step[s].y;
            a[s][2] = r.step[s].z;
            a[s][3] = r.step[s].w;
        }
    }
};
typedef plain16<DG_CUDA_BF16> format_bf16;
typedef plain16<DG_CUDA_F16> format_f16;

/* ---- blocks of 32: the chunk ends with two scales for each row ---- */

struct format_q8_0 {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 64, HEAD = 0, CHUNK = 1088, BLOCK = 32, BLOCK_BYTES = 34;
    struct scales {
    };
    struct raw {
        uint4 bytes;
        uint32_t d;
    };

    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        if (i >= 256)
            return scale_word<34>(s, i - 256);
        int half = i / 128, lane = i / 4 % 32, step = i % 4 / 2, upper_k = i % 2;
        uint32_t word = 0;
        for (int n = 0; n < 4; n++) {
            int reg = 2 * upper_k + n / 2, k = 32 * half + 16 * step + frag_k(lane, reg, n % 2);
            const unsigned char *b = block_at<32, 34>(s, frag_row(lane, reg), k);
            word |= (b ? b[2 + k % 32] ^ 128u : 128u) << 8 * n;
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
        r.d = word_at(chunk + 1024 + half * 32 + lane / 4 * 4);
    }
    static __device__ __forceinline__ void convert(uint32_t a[2][4], const raw &r, const scales &,
                                                   int)
    {
        uint32_t upper = low_twice(r.d), lower = high_twice(r.d);
        scaled_bytes(a[0], r.bytes.x, upper, lower);
        scaled_bytes(a[0] + 2, r.bytes.y, upper, lower);
        scaled_bytes(a[1], r.bytes.z, upper, lower);
        scaled_bytes(a[1] + 2, r.bytes.w, upper, lower);
    }
};

/* Two words of four-bit numbers and the scales of a lane's rows. */
struct raw_nibbles {
    uint2 q;
    uint32_t d;
};

static __device__ __forceinline__ void load_nibbles(raw_nibbles &r, const unsigned char *chunk,
                                                    int half, int lane)
{
    r.q = *(const uint2 *)(chunk + half * 256 + lane * 8);
    r.d = word_at(chunk + 512 + half * 32 + lane / 4 * 4);
}

struct format_q4_0 {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 64, HEAD = 0, CHUNK = 576, BLOCK = 32, BLOCK_BYTES = 18;
    struct scales {
    };
    typedef raw_nibbles raw;

    static __device__ __forceinline__ uint32_t number(const unsigned char *b, int i)
    {
        return (uint32_t)(b[2 + i % 16] >> i / 16 * 4) & 15;
    }
    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        return i < 128 ? nibble_word<32, 18>(s, 0, i, number) : scale_word<18>(s, i - 128);
    }
    static __device__ __forceinline__ void begin(scales &, const unsigned char *, int)
    {
    }
    static __device__ __forceinline__ void load(raw &r, const unsigned char *chunk, int half,
                                                int lane)
    {
        load_nibbles(r, chunk, half, lane);
    }
    static __device__ __forceinline__ void convert(uint32_t a[2][4], const raw &r, const scales &,
                                                   int)
    {
        uint32_t upper = low_twice(r.d), lower = high_twice(r.d);
        nibbles<MINUS_1032, MINUS_72>(a[0], r.q.x);
        nibbles<MINUS_1032, MINUS_72>(a[1], r.q.y);
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                a[s][j] = dg_half2_mul(a[s][j], j & 1 ? lower : upper);
    }
};

/* Numbers are indices of sixteen levels, here plus 128. A word has its numbers in the order in
 * which the table look-up of four bytes at once gives them: registers, low before high. */
struct format_iq4_nl {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 64, HEAD = 0, CHUNK = 576, BLOCK = 32, BLOCK_BYTES = 18;
    struct scales {
    };
    typedef raw_nibbles raw;

    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        if (i >= 128)
            return scale_word<18>(s, i - 128);
        int half = i / 64, lane = i / 2 % 32, step = i % 2;
        uint32_t word = 0;
        for (int n = 0; n < 8; n++) {
            int k = 32 * half + 16 * step + frag_k(lane, n / 2, n % 2);
            const unsigned char *b = block_at<32, 18>(s, frag_row(lane, n / 2), k);
            word |= (b ? format_q4_0::number(b, k % 32) : 0) << 4 * n;
        }
        return word;
    }
    static __device__ __forceinline__ void begin(scales &, const unsigned char *, int)
    {
    }
    static __device__ __forceinline__ void load(raw &r, const unsigned char *chunk, int half,
                                                int lane)
    {
        load_nibbles(r, chunk, half, lane);
    }
    /* The levels of the four numbers in the low half of q: 1 24 45 63 79 93 106 118 129 141 153 166
     * 181 197 217 241. */
    static __device__ __forceinline__ uint32_t levels(uint32_t q)
    {
        uint32_t index = q & 0x7777u, upper_table = (q & 0x8888u) >> 1 | 0x3210u;
        return __byte_perm(__byte_perm(0x3F2D1801u, 0x766A5D4Fu, index),
                           __byte_perm(0xA6998D81u, 0xF1D9C5B5u, index), upper_table);
    }
    static __device__ __forceinline__ void convert(uint32_t a[2][4], const raw &r, const scales &,
                                                   int)
    {
        uint32_t upper = low_twice(r.d), lower = high_twice(r.d);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            uint32_t q = s ? r.q.y : r.q.x;
            scaled_bytes(a[s], levels(q), upper, lower);
            scaled_bytes(a[s] + 2, levels(q >> 16), upper, lower);
        }
    }
};

/* Four-bit floats and a power of two for 32 of them. */
struct format_mxfp4 {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 64, HEAD = 0, CHUNK = 544, BLOCK = 32, BLOCK_BYTES = 17;
    struct scales {
    };
    struct raw {
        uint2 q;
        uint32_t exponent; /* of the upper row, of the lower one above it */
    };

    static __device__ __forceinline__ uint32_t number(const unsigned char *b, int i)
    {
        return (uint32_t)(b[1 + i % 16] >> i / 16 * 4) & 15;
    }
    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        if (i < 128)
            return nibble_word<32, 17>(s, 0, i, number);
        uint32_t word = 0;
        for (int n = 0; n < 4; n++) {
            int half = (i - 128) / 4, g = i % 4 * 2 + n / 2;
            const unsigned char *b = block_at<32, 17>(s, g + n % 2 * 8, 32 * half);
            word |= (b ? b[0] : 0u) << 8 * n;
        }
        return word;
    }
    static __device__ __forceinline__ void begin(scales &, const unsigned char *, int)
    {
    }
    static __device__ __forceinline__ void load(raw &r, const unsigned char *chunk, int half,
                                                int lane)
    {
        r.q = *(const uint2 *)(chunk + half * 256 + lane * 8);
        r.exponent = *(const uint16_t *)(chunk + 512 + half * 16 + lane / 4 * 2);
    }
    /* 2^(e - 127) as a half, twice: zero below its subnormals, at most 2^13, so that six times it
     * is finite. */
    static __device__ __forceinline__ uint32_t power(uint32_t e)
    {
        uint32_t bits = e > 140   ? 28u << 10
                        : e > 112 ? (e - 112) << 10
                        : e > 102 ? 1024u >> (113 - e)
                                  : 0;
        return bits * 0x10001u;
    }
    static __device__ __forceinline__ void convert(uint32_t a[2][4], const raw &r, const scales &,
                                                   int)
    {
        uint32_t upper = power(r.exponent & 255), lower = power(r.exponent >> 8);
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t q = (s ? r.q.y : r.q.x) >> 4 * j;
                /* the number's bits moved into a half are 2^-14 of its value */
                uint32_t small = and_or(q << 12, 0x80008000u, q << 9 & 0x0E000E00u);
                a[s][j] = dg_half2_mul(dg_half2_mul(small, 0x74007400u), j & 1 ? lower : upper);
            }
    }
};

struct format_q5_0 {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 64, HEAD = 0, CHUNK = 704, BLOCK = 32, BLOCK_BYTES = 22;
    struct scales {
    };
    struct raw {
        uint2 q;
        uint32_t fifth, d;
    };

    static __device__ __forceinline__ uint32_t number(const unsigned char *b, int i)
    {
        return ((uint32_t)(b[6 + i % 16] >> i / 16 * 4) & 15) |
               ((uint32_t)(b[2 + i / 8] >> i % 8) & 1) << 4;
    }
    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        if (i < 128)
            return nibble_word<32, 22>(s, 0, i, number);
        return i < 160 ? fifth_word<32, 22>(s, 0, i - 128, number) : scale_word<22>(s, i - 160);
    }
    static __device__ __forceinline__ void begin(scales &, const unsigned char *, int)
    {
    }
    static __device__ __forceinline__ void load(raw &r, const unsigned char *chunk, int half,
                                                int lane)
    {
        r.q = *(const uint2 *)(chunk + half * 256 + lane * 8);
        r.fifth = *(const uint16_t *)(chunk + 512 + half * 64 + lane * 2);
        r.d = word_at(chunk + 640 + half * 32 + lane / 4 * 4);
    }
    static __device__ __forceinline__ void convert(uint32_t a[2][4], const raw &r, const scales &,
                                                   int)
    {
        uint32_t upper = low_twice(r.d), lower = high_twice(r.d),
                 fifth = __byte_perm(r.fifth, 0, 0x4140);
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t n = five_bits(s ? r.q.y : r.q.x, fifth, s, j);
                a[s][j] = dg_half2_mul(dg_half2_add(n, MINUS_1040), j & 1 ? lower : upper);
            }
    }
};

/* ---- the packed matrices ---- */

template <class F> struct packed_unit {
    static constexpr int BYTES = F::HEAD + F::UNIT / 64 * F::CHUNK;
};

/* Tiles that lie side by side, unit after unit: 11 for the model's 704, 2112 and 2816 rows, so that
 * an expert's share of a block is one piece; tiles are padded to whole groups. Rows are then a
 * multiple of 64. */
static __host__ __device__ __forceinline__ int group_tiles(int n_out)
{
    return (n_out + 15) / 16 % 44 == 0 ? 11 : 8;
}

static __host__ __device__ __forceinline__ int group_count(int n_out)
{
    int tiles = group_tiles(n_out);
    return ((n_out + 15) / 16 + tiles - 1) / tiles;
}

/* Does `call`, a statement that uses format F, for a type; `otherwise` for a type without a packed
 * form of fragments. */
#define DG_FOR_FORMAT(type, call, otherwise)                                                       \
    switch (type) {                                                                                \
    case DG_BF16: {                                                                                \
        typedef format_bf16 F;                                                                     \
        call;                                                                                      \
    } break;                                                                                       \
    case DG_F16: {                                                                                 \
        typedef format_f16 F;                                                                      \
        call;                                                                                      \
    } break;                                                                                       \
    case DG_Q8_0: {                                                                                \
        typedef format_q8_0 F;                                                                     \
        call;                                                                                      \
    } break;                                                                                       \
    case DG_Q4_0: {                                                                                \
        typedef format_q4_0 F;                                                                     \
        call;                                                                                      \
    } break;                                                                                       \
    case DG_Q5_0: {                                                                                \
        typedef format_q5_0 F;                                                                     \
        call;                                                                                      \
    } break;                                                                                       \
    case DG_Q4_K: {                                                                                \
        typedef format_q4_k F;                                                                     \
        call;                                                                                      \
    } break;                                                                                       \
    case DG_Q5_K: {                                                                                \
        typedef format_q5_k F;                                                                     \
        call;                                                                                      \
    } break;                                                                                       \
    case DG_Q6_K: {                                                                                \
        typedef format_q6_k F;                                                                     \
        call;                                                                                      \
    } break;                                                                                       \
    case DG_IQ4_NL: {                                                                              \
        typedef format_iq4_nl F;                                                                   \
        call;                                                                                      \
    } break;                                                                                       \
    case DG_MXFP4: {                                                                               \
        typedef format_mxfp4 F;                                                                    \
        call;                                                                                      \
    } break;                                                                                       \
    default:                                                                                       \
        otherwise;                                                                                 \
    }

/* The same for experts, whose weights may have been made narrower. */
#define DG_FOR_EXPERT_FORMAT(type, call, otherwise)                                                \
    if ((type) == DG_FP8) {                                                                        \
        typedef format_fp8 F;                                                                      \
        call;                                                                                      \
    } else                                                                                         \
        DG_FOR_FORMAT(type, call, otherwise)

#endif
