/* What the packed forms of weights share (cuda_formats.cuh): places in a fragment, the stored rows
 * that a tile is made of, and a lane's ways from bits to halves. */
#ifndef DG_CUDA_CUDA_FRAGMENTS_CUH
#define DG_CUDA_CUDA_FRAGMENTS_CUH

#include "cuda/cuda_device.cuh"
#include "cuda/cuda_math.h"

/* ---- places in a fragment: lane, register 0 ... 3, low or high half ---- */

static __device__ __forceinline__ int frag_row(int lane, int reg)
{
    return lane / 4 + 8 * (reg & 1);
}

static __device__ __forceinline__ int frag_k(int lane, int reg, int high)
{
    return lane % 4 * 2 + high + 8 * (reg / 2);
}

/* ---- the stored rows that a tile's unit is made of ---- */

struct pack_source {
    const unsigned char *rows; /* the tile's first row, at the unit's first block */
    size_t row_bytes;
    int n_row, n_k; /* what there is of it: beyond are zeros */
};

/* The block of BLOCK values in BYTES bytes that holds value k of a row; NULL: there is none. */
template <int BLOCK, int BYTES>
static __device__ __forceinline__ const unsigned char *block_at(const pack_source &s, int row,
                                                                int k)
{
    if (row >= s.n_row || k >= s.n_k)
        return NULL;
    return s.rows + (size_t)row * s.row_bytes + (size_t)(k / BLOCK) * BYTES;
}

static __device__ __forceinline__ uint32_t u16_at(const unsigned char *p)
{
    return p ? (uint32_t)(p[0] | p[1] << 8) : 0;
}

/* Rows g and g + 8 of a lane in one word. */
static __device__ __forceinline__ uint32_t row_pair(uint32_t upper, uint32_t lower)
{
    return upper | lower << 16;
}

/* ---- loads of a lane ---- */

static __device__ __forceinline__ uint32_t word_at(const unsigned char *p)
{
    return *(const uint32_t *)p;
}

/* A half in both places of a pair. */
static __device__ __forceinline__ uint32_t low_twice(uint32_t pair)
{
    return __byte_perm(pair, 0, 0x1010);
}

static __device__ __forceinline__ uint32_t high_twice(uint32_t pair)
{
    return __byte_perm(pair, 0, 0x3232);
}

/* (v & mask) | bits */
static __device__ __forceinline__ uint32_t and_or(uint32_t v, uint32_t mask, uint32_t bits)
{
    return dg_lop3<0xEA>(v, mask, bits);
}

/* A half whose bits are 0x6400 + n is 1024 + n, for n below 1024. */
enum : uint32_t {
    MAGIC = 0x64006400u,
    MINUS_1024 = 0xE400E400u,
    MINUS_1032 = 0xE408E408u,
    MINUS_1040 = 0xE410E410u,
    MINUS_1056 = 0xE420E420u,
    MINUS_1152 = 0xE480E480u,
    MINUS_64 = 0xD400D400u,
    MINUS_72 = 0xD480D480u,
    SIXTEENTH = 0x2C002C00u
};

/* Four biased bytes: two values of the upper row, two of the lower one, each minus 128 times its
 * row's scale. */
static __device__ __forceinline__ void scaled_bytes(uint32_t a[2], uint32_t bytes, uint32_t upper,
                                                    uint32_t lower)
{
    a[0] = dg_half2_mul(dg_half2_add(__byte_perm(bytes, 0x64646464u, 0x4140), MINUS_1152), upper);
    a[1] = dg_half2_mul(dg_half2_add(__byte_perm(bytes, 0x64646464u, 0x4342), MINUS_1152), lower);
}

/* The four-bit numbers of a k step: register j's low one at bit 4 j, its high one at bit 16 + 4 j.
 */
static __device__ __forceinline__ uint32_t nibble_bit(int reg, int high)
{
    return (uint32_t)(4 * reg + 16 * high);
}

/* The same numbers as halves, less 0 or 8. */
template <uint32_t FROM_1024, uint32_t FROM_64>
static __device__ __forceinline__ void nibbles(uint32_t a[4], uint32_t q)
{
#pragma unroll
    for (int j = 0; j < 4; j += 2, q >>= 8) {
        a[j] = dg_half2_add(and_or(q, 0x000F000Fu, MAGIC), FROM_1024);
        a[j + 1] = dg_half2_fma(and_or(q, 0x00F000F0u, MAGIC), SIXTEENTH, FROM_64);
    }
}

/* 1024 + n for five-bit numbers n of register j of step s; `fifth` has bit 4 s + j for the low
 * value, and 16 above for the high one. */
static __device__ __forceinline__ uint32_t five_bits(uint32_t q, uint32_t fifth, int s, int j)
{
    int at = 4 * s + j;
    uint32_t bit = at <= 4 ? fifth << (4 - at) : fifth >> (at - 4);
    return and_or(q >> 4 * j, 0x000F000Fu, and_or(bit, 0x00100010u, MAGIC));
}

/* Word i of a chunk's 128 words of four-bit numbers; NUMBER(block bytes, k) is a stored one. */
template <int BLOCK, int BYTES, typename NUMBER>
static __device__ __forceinline__ uint32_t nibble_word(const pack_source &s, int chunk, int i,
                                                       NUMBER number)
{
    int half = i / 64, lane = i / 2 % 32, step = i % 2;
    uint32_t word = 0;
    for (int reg = 0; reg < 4; reg++)
        for (int high = 0; high < 2; high++) {
            int k = 64 * chunk + 32 * half + 16 * step + frag_k(lane, reg, high);
            const unsigned char *b = block_at<BLOCK, BYTES>(s, frag_row(lane, reg), k);
            word |= (b ? number(b, k % BLOCK) & 15u : 0u) << nibble_bit(reg, high);
        }
    return word;
}

/* Word i of a chunk's 32 words of fifth bits: 16 bits a lane and half. */
template <int BLOCK, int BYTES, typename NUMBER>
static __device__ __forceinline__ uint32_t fifth_word(const pack_source &s, int chunk, int i,
                                                      NUMBER number)
{
    int half = i / 16;
    uint32_t word = 0;
    for (int n = 0; n < 16; n++)
        for (int odd = 0; odd < 2; odd++) {
            int lane = i % 16 * 2 + odd, high = n / 8, step = n / 4 % 2, reg = n % 4;
            int k = 64 * chunk + 32 * half + 16 * step + frag_k(lane, reg, high);
            const unsigned char *b = block_at<BLOCK, BYTES>(s, frag_row(lane, reg), k);
            word |= (b ? number(b, k % BLOCK) >> 4 & 1u : 0u) << (16 * odd + n);
        }
    return word;
}

/* Word i of a chunk's 16 words of scales, halves at the begin of blocks of 32: rows g and g + 8 for
 * g = i % 8. */
template <int BYTES>
static __device__ __forceinline__ uint32_t scale_word(const pack_source &s, int i)
{
    int k = i / 8 * 32, g = i % 8;
    return row_pair(u16_at(block_at<32, BYTES>(s, g, k)), u16_at(block_at<32, BYTES>(s, g + 8, k)));
}

#endif
