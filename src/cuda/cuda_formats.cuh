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
 * All lanes of a warp call begin and convert together. */
#ifndef DG_CUDA_CUDA_FORMATS_CUH
#define DG_CUDA_CUDA_FORMATS_CUH

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

/* ---- blocks of 256 ---- */

/* What a lane keeps of a head: for each of its two rows a pair of halves for blocks 2 t and 2 t + 1
 * of 32 values, where t is its number among the four lanes of the row. */
struct quad_scales {
    uint32_t row[2][2];
};

/* The pair of `block` for the upper or the lower row, from the lane that keeps it. */
static __device__ __forceinline__ uint32_t quad_pair(const quad_scales &s, int lower, int block)
{
    uint32_t mine = block & 1 ? s.row[lower][1] : s.row[lower][0];
    return __shfl_sync(DG_ALL_LANES, mine, block / 2, 4);
}

/* The head of Q4_K and Q5_K: for each row d, dmin, and eight times six bits of scale, six of
 * minimum. */
template <int BYTES>
static __device__ __forceinline__ uint32_t group_head_word(const pack_source &s, int i)
{
    const unsigned char *b = block_at<256, BYTES>(s, i / 4, 0);
    if (!b)
        return 0;
    if (i % 4 == 0)
        return row_pair(u16_at(b), u16_at(b + 2));
    uint32_t word = 0;
    for (int bit = 0; bit < 32; bit++) {
        int at = i % 4 * 32 - 32 + bit, g = at / 12, within = at % 12;
        const unsigned char *q = b + 4;
        int scale = g < 4 ? q[g] & 63 : (q[g + 4] & 15) | (q[g - 4] >> 6) << 4;
        int min = g < 4 ? q[g + 4] & 63 : q[g + 4] >> 4 | (q[g] >> 6) << 4;
        word |= (uint32_t)((scale | min << 6) >> within & 1) << bit;
    }
    return word;
}

/* Pairs of step and minus least: a value is number * step - least. */
static __device__ __forceinline__ void begin_groups(quad_scales &s, const unsigned char *head,
                                                    int lane)
{
    int t = lane % 4;
#pragma unroll
    for (int lower = 0; lower < 2; lower++) {
        uint4 h = *(const uint4 *)(head + (lane / 4 + 8 * lower) * 16);
        /* 24 bits from bit 24 t of 96 on */
        uint32_t bits = t == 0   ? h.y
                        : t == 1 ? h.y >> 24 | h.z << 8
                        : t == 2 ? h.z >> 16 | h.w << 16
                                 : h.w >> 8;
#pragma unroll
        for (int i = 0; i < 2; i++, bits >>= 12) {
            uint32_t pair = (bits & 63) | (bits & 0xFC0u) << 10;
            s.row[lower][i] =
                dg_half2_mul(dg_half2_add(pair | MAGIC, MINUS_1024), h.x ^ 0x80000000u);
        }
    }
}

struct format_q4_k {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 256, HEAD = 256, CHUNK = 512, BLOCK = 256, BLOCK_BYTES = 144;
    typedef quad_scales scales;
    struct raw {
        uint2 q;
    };

    static __device__ __forceinline__ uint32_t number(const unsigned char *b, int i)
    {
        return (uint32_t)(b[16 + i / 64 * 32 + i % 32] >> i / 32 % 2 * 4) & 15;
    }
    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        if (i < 64)
            return group_head_word<144>(s, i);
        return nibble_word<256, 144>(s, (i - 64) / 128, (i - 64) % 128, number);
    }
    static __device__ __forceinline__ void begin(scales &s, const unsigned char *head, int lane)
    {
        begin_groups(s, head, lane);
    }
    static __device__ __forceinline__ void load(raw &r, const unsigned char *chunk, int half,
                                                int lane)
    {
        r.q = *(const uint2 *)(chunk + half * 256 + lane * 8);
    }
    static __device__ __forceinline__ void convert(uint32_t a[2][4], const raw &r, const scales &sc,
                                                   int block)
    {
        uint32_t upper = quad_pair(sc, 0, block), lower = quad_pair(sc, 1, block);
        uint32_t step[2] = {low_twice(upper), low_twice(lower)},
                 least[2] = {high_twice(upper), high_twice(lower)};
        nibbles<MINUS_1024, MINUS_64>(a[0], r.q.x);
        nibbles<MINUS_1024, MINUS_64>(a[1], r.q.y);
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                a[s][j] = dg_half2_fma(a[s][j], step[j & 1], least[j & 1]);
    }
};

struct format_q5_k {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 256, HEAD = 256, CHUNK = 640, BLOCK = 256, BLOCK_BYTES = 176;
    typedef quad_scales scales;
    struct raw {
        uint2 q;
        uint32_t fifth;
    };

    static __device__ __forceinline__ uint32_t number(const unsigned char *b, int i)
    {
        uint32_t low = (uint32_t)(b[48 + i / 64 * 32 + i % 32] >> i / 32 % 2 * 4) & 15;
        return low | ((uint32_t)(b[16 + i % 32] >> i / 32) & 1) << 4;
    }
    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        if (i < 64)
            return group_head_word<176>(s, i);
        int chunk = (i - 64) / 160, within = (i - 64) % 160;
        return within < 128 ? nibble_word<256, 176>(s, chunk, within, number)
                            : fifth_word<256, 176>(s, chunk, within - 128, number);
    }
    static __device__ __forceinline__ void begin(scales &s, const unsigned char *head, int lane)
    {
        begin_groups(s, head, lane);
    }
    static __device__ __forceinline__ void load(raw &r, const unsigned char *chunk, int half,
                                                int lane)
    {
        r.q = *(const uint2 *)(chunk + half * 256 + lane * 8);
        r.fifth = *(const uint16_t *)(chunk + 512 + half * 64 + lane * 2);
    }
    static __device__ __forceinline__ void convert(uint32_t a[2][4], const raw &r, const scales &sc,
                                                   int block)
    {
        uint32_t upper = quad_pair(sc, 0, block), lower = quad_pair(sc, 1, block);
        uint32_t step[2] = {low_twice(upper), low_twice(lower)},
                 least[2] = {high_twice(upper), high_twice(lower)};
        uint32_t fifth = __byte_perm(r.fifth, 0, 0x4140);
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t n = dg_half2_add(five_bits(s ? r.q.y : r.q.x, fifth, s, j), MINUS_1024);
                a[s][j] = dg_half2_fma(n, step[j & 1], least[j & 1]);
            }
    }
};

/* The head: 16 biased scales for each row, one for 16 values of k, then d of rows g and g + 8. A
 * chunk's four-bit numbers are followed by two more bits for each: those of register j of step s at
 * bit 8 s + 2 j, 16 above for the high value. */
struct format_q6_k {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 256, HEAD = 288, CHUNK = 768, BLOCK = 256, BLOCK_BYTES = 210;
    typedef quad_scales scales;
    struct raw {
        uint2 q;
        uint32_t high;
    };

    static __device__ __forceinline__ uint32_t number(const unsigned char *b, int i)
    {
        int half = i / 128, quarter = i / 32 % 4, l = i % 32;
        uint32_t low = (uint32_t)(b[64 * half + 32 * (quarter % 2) + l] >> quarter / 2 * 4) & 15;
        return low | ((uint32_t)(b[128 + 32 * half + l] >> 2 * quarter) & 3) << 4;
    }
    static __device__ uint32_t high_word(const pack_source &s, int chunk, int i)
    {
        int half = i / 32, lane = i % 32;
        uint32_t word = 0;
        for (int n = 0; n < 16; n++) {
            int above = n / 8, step = n / 4 % 2, reg = n % 4;
            int k = 64 * chunk + 32 * half + 16 * step + frag_k(lane, reg, above);
            const unsigned char *b = block_at<256, 210>(s, frag_row(lane, reg), k);
            word |= (b ? number(b, k) >> 4 : 0u) << 2 * n;
        }
        return word;
    }
    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        if (i < 64) {
            const unsigned char *b = block_at<256, 210>(s, i / 4, 0);
            uint32_t word = 0;
            for (int n = 0; n < 4; n++)
                word |= (b ? b[192 + i % 4 * 4 + n] ^ 128u : 128u) << 8 * n;
            return word;
        }
        if (i < 72) {
            const unsigned char *upper = block_at<256, 210>(s, i - 64, 0),
                                *lower = block_at<256, 210>(s, i - 56, 0);
            return row_pair(upper ? u16_at(upper + 208) : 0, lower ? u16_at(lower + 208) : 0);
        }
        int chunk = (i - 72) / 192, within = (i - 72) % 192;
        return within < 128 ? nibble_word<256, 210>(s, chunk, within, number)
                            : high_word(s, chunk, within - 128);
    }
    /* Pairs of steps: of the block's first 16 values and of its last. */
    static __device__ __forceinline__ void begin(scales &s, const unsigned char *head, int lane)
    {
        uint32_t d = word_at(head + 256 + lane / 4 * 4);
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            uint32_t four = word_at(head + (lane / 4 + 8 * lower) * 16 + lane % 4 * 4);
            uint32_t twice = lower ? high_twice(d) : low_twice(d);
            scaled_bytes(s.row[lower], four, twice, twice);
        }
    }
    static __device__ __forceinline__ void load(raw &r, const unsigned char *chunk, int half,
                                                int lane)
    {
        r.q = *(const uint2 *)(chunk + half * 256 + lane * 8);
        r.high = word_at(chunk + 512 + half * 128 + lane * 4);
    }
    static __device__ __forceinline__ void convert(uint32_t a[2][4], const raw &r, const scales &sc,
                                                   int block)
    {
        uint32_t upper = quad_pair(sc, 0, block), lower = quad_pair(sc, 1, block);
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int at = 8 * s + 2 * j;
                uint32_t bits = at <= 4 ? r.high << (4 - at) : r.high >> (at - 4);
                uint32_t n = and_or((s ? r.q.y : r.q.x) >> 4 * j, 0x000F000Fu,
                                    and_or(bits, 0x00300030u, MAGIC));
                uint32_t pair = j & 1 ? lower : upper,
                         step = s ? high_twice(pair) : low_twice(pair);
                a[s][j] = dg_half2_mul(dg_half2_add(n, MINUS_1056), step);
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
