/* Q4_K, Q5_K and Q6_K, whose blocks have 256 values, in the packed form that cuda_formats.cuh
 * describes: the blocks' scales are a unit's head. */
#ifndef DG_CUDA_CUDA_FORMATS_256_CUH
#define DG_CUDA_CUDA_FORMATS_256_CUH

#include "cuda/cuda_fragments.cuh"

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

#endif
