/* Products of bytes: weights multiplied as they are stored, with rows of x as bytes. Gate and up in
 * Q4_K, down in Q5_0.
 *
 * A value of Q4_K is d * scale * number - dmin * least, where number, scale and least are small
 * integers and d, dmin belong to 256 values. With x = s * byte for 256 values the sum over them is
 *
 *     s * ( d * sum over blocks of 32 of scale * (sum of number * byte)
 *           - dmin * sum over blocks of least * (sum of byte) ),
 *
 * and everything inside the brackets is an integer: exact, and the same in any order. What is lost
 * is lost in x: half a step of 1/127 of the largest of 256 values, about 0.8 % of a result's size.
 * A weight costs a third of what it takes to make it a half (three instructions for eight numbers,
 * and scales meet sums instead of weights), and an mma of bytes does twice as many products.
 *
 * Q5_0 has a factor for each 32 values, and so have the rows that meet it: what is lost of x is no
 * more than what Q8_0 loses of weights. The sum over 32 is an integer, exact; it meets
 * both factors as a float and is added in ascending k. */
#ifndef DG_CUDA_CUDA_BYTES_CUH
#define DG_CUDA_CUDA_BYTES_CUH

#include "cuda/cuda_experts.cuh"
#include "cuda/cuda_formats.cuh"

/* ---- rows of x: units of 256 values ---- */

/* By a warp. A unit with NaN or infinity in it has the factor NaN. */
static __device__ inline void narrow_unit(const dg_byte_rows &rows, int row, int unit)
{
    int lane = (int)threadIdx.x % 32;
    const uint16_t *x = rows.x + (size_t)row * (size_t)rows.ld + (size_t)(unit * 256 + lane * 8);
    unsigned char *out = rows.out + ((size_t)row * (size_t)rows.n_unit + (size_t)unit) * BYTE_UNIT;
    uint4 eight = *(const uint4 *)x;
    uint32_t pair[4] = {eight.x, eight.y, eight.z, eight.w}, word[2] = {0, 0};
    int most = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        most = max(most, max((int)(pair[i] & 0x7FFFu), (int)(pair[i] >> 16 & 0x7FFFu)));
    for (int with = 16; with > 0; with /= 2)
        most = max(most, __shfl_xor_sync(DG_ALL_LANES, most, with));
    float largest = dg_f16_at((uint16_t)most), per = most > 0 && most < 0x7C00 ? 127 / largest : 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int n = (int)rintf(dg_f16_at((uint16_t)(pair[i / 2] >> i % 2 * 16)) * per);
        sum += n;
        word[i / 4] |= (uint32_t)(n & 255) << i % 4 * 8;
    }
    sum += __shfl_xor_sync(DG_ALL_LANES, sum, 1);
    sum += __shfl_xor_sync(DG_ALL_LANES, sum, 2);
    *(uint2 *)(out + lane * 8) = make_uint2(word[0], word[1]);
    if (lane % 4 == 0) {
        uint32_t both = dg_pack_f16((float)(sum & ~63), (float)(sum & 63));
        *(uint16_t *)(out + BYTE_SUMS + lane / 4 * 2) = (uint16_t)(both & 0xFFFFu);
        *(uint16_t *)(out + BYTE_SUMS + 16 + lane / 4 * 2) = (uint16_t)(both >> 16);
    }
    if (lane < (BYTE_UNIT - BYTE_FACTOR) / 4)
        *(float *)(out + BYTE_FACTOR + lane * 4) = lane > 0        ? 0
                                                   : most < 0x7C00 ? largest / 127
                                                                   : __uint_as_float(0x7FC00000u);
}

/* ---- weights ---- */

/* The head: for each row eight scales, for each row eight leasts, for each row d and dmin. A chunk
 * has the four-bit numbers of 64 values in the order of PTX's A fragments of m16n8k32: of a word
 * the low halves of bytes are row g, the high ones row g + 8. */
struct format_q4_k_bytes {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 256, HEAD = 320, CHUNK = 512, BLOCK = 256, BLOCK_BYTES = 144;
    enum { LEASTS = 128, FACTORS = 256 };

    static __device__ __forceinline__ uint32_t group(const unsigned char *q, int g, bool least)
    {
        if (least)
            return (uint32_t)(g < 4 ? q[g + 4] & 63 : q[g + 4] >> 4 | (q[g] >> 6) << 4);
        return (uint32_t)(g < 4 ? q[g] & 63 : (q[g + 4] & 15) | (q[g - 4] >> 6) << 4);
    }
    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        uint32_t word = 0;
        if (i < 64) {
            const unsigned char *b = block_at<256, 144>(s, i % 32 / 2, 0);
            for (int n = 0; b && n < 4; n++)
                word |= group(b + 4, i % 2 * 4 + n, i >= 32) << 8 * n;
            return word;
        }
        if (i < 80) {
            const unsigned char *b = block_at<256, 144>(s, i - 64, 0);
            return b ? row_pair(u16_at(b), u16_at(b + 2)) : 0;
        }
        int chunk = (i - 80) / 128, lane = (i - 80) % 128 / 4, part = i % 4;
        for (int n = 0; n < 8; n++) {
            int k = 64 * chunk + 16 * part + 4 * (lane % 4) + n / 2;
            const unsigned char *b = block_at<256, 144>(s, lane / 4 + n % 2 * 8, k);
            word |= (b ? format_q4_k::number(b, k) : 0) << 4 * n;
        }
        return word;
    }
};

/* What a lane keeps of a unit's head, for rows g and g + 8. Numbers of rows g + 8 are multiplied
 * where they lie, in the high halves of bytes and so 16 times too large: d makes up for it, and
 * every result has the bits it would have. (The largest sum, 8 * 63 * 32 * 240 * 127, is an int.)
 */
struct byte_scales {
    uint2 scale[2];
    uint32_t least[2]; /* of blocks 2 t and 2 t + 1 as halves */
    float d[2], minus_dmin[2];
};

static __device__ __forceinline__ byte_scales begin_bytes(const unsigned char *head, int lane)
{
    typedef format_q4_k_bytes F;
    byte_scales s;
#pragma unroll
    for (int lower = 0; lower < 2; lower++) {
        int row = lane / 4 + 8 * lower;
        uint32_t least = *(const uint16_t *)(head + F::LEASTS + row * 8 + lane % 4 * 2);
        uint32_t factors = word_at(head + F::FACTORS + row * 4);
        s.scale[lower] = *(const uint2 *)(head + row * 8);
        s.least[lower] = dg_half2_add(__byte_perm(least, 0x64646464u, 0x4140), MINUS_1024);
        s.d[lower] = dg_f16_at((uint16_t)(factors & 0xFFFFu)) * (lower ? 0.0625f : 1.0f);
        s.minus_dmin[lower] = -dg_f16_at((uint16_t)(factors >> 16));
    }
    return s;
}

/* Adds a unit to the sums of NT tiles of 8 rows, for two tiles of weights. x: as a stage has it, 16
 * bytes of k after the other, NT_MAX tiles in each, from the lane's own row and matrix on. */
template <int NT_MAX, int NT>
static __device__ __forceinline__ void multiply_bytes(float acc[2][NT][4],
                                                      const unsigned char *const unit[2],
                                                      const unsigned char *x)
{
    typedef format_q4_k_bytes F;
    int lane = (int)threadIdx.x % 32;
    byte_scales s[2] = {begin_bytes(unit[0], lane), begin_bytes(unit[1], lane)};
    int sum[2][NT][4] = {};
    const unsigned char *own = x + lane / 8 * NT_MAX * 128 + lane % 8 * 16;
#pragma unroll
    for (int chunk = 0; chunk < 4; chunk++) {
        uint32_t a[2][2][4];
        int scale[2][2][2];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            uint4 q = *(const uint4 *)(unit[m] + F::HEAD + chunk * F::CHUNK + lane * 16);
            uint32_t word[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                a[m][i / 2][i % 2 * 2] = word[i] & 0x0F0F0F0Fu;
                a[m][i / 2][i % 2 * 2 + 1] = word[i] & 0xF0F0F0F0u;
            }
#pragma unroll
            for (int block = 0; block < 2; block++)
#pragma unroll
                for (int lower = 0; lower < 2; lower++) {
                    uint32_t four = chunk < 2 ? s[m].scale[lower].x : s[m].scale[lower].y;
                    scale[m][block][lower] =
                        (int)__byte_perm(four, 0, 0x4440 + (unsigned)(chunk % 2 * 2 + block));
                }
        }
#pragma unroll
        for (int j = 0; j < NT; j++) {
            uint32_t b[4];
            dg_ldmatrix_x4(b, own + (chunk * 4 * NT_MAX + j) * 128);
#pragma unroll
            for (int block = 0; block < 2; block++)
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    int part[4] = {0, 0, 0, 0};
                    dg_mma_u8s8(part, a[m][block], b + 2 * block);
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        sum[m][j][i] += part[i] * scale[m][block][i / 2];
                }
        }
    }
#pragma unroll
    for (int j = 0; j < NT; j++) {
        uint32_t b[2];
        const unsigned char *factor = x + (BYTE_FACTOR / 16 * NT_MAX + j) * 128 + lane % 4 * 32;
        float of[2] = {*(const float *)factor, *(const float *)(factor + 16)};
        dg_ldmatrix_x2(b, x + ((BYTE_SUMS / 16 + lane / 8 % 2) * NT_MAX + j) * 128 + lane % 8 * 16);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            float least[4] = {0, 0, 0, 0};
            uint32_t a[4] = {s[m].least[0], s[m].least[1], s[m].least[0], s[m].least[1]};
            dg_mma_f16(least, a, b);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float inside =
                    fmaf(s[m].minus_dmin[i / 2], least[i], s[m].d[i / 2] * (float)sum[m][j][i]);
                acc[m][j][i] = fmaf(of[i % 2], inside, acc[m][j][i]);
            }
        }
    }
}

/* ---- blocks of 32 ---- */

/* h at places into units of 64 values (dg_byte_blocks): a lane has eight values, four lanes share a
 * factor, or eight. A block with NaN or infinity in it has the factor NaN. */
static __device__ inline void narrow_blocks(const dg_byte_blocks &rows, size_t eight)
{
    size_t row = eight / (size_t)(rows.ld / 8);
    int at = (int)(eight % (size_t)(rows.ld / 8)), lane = (int)threadIdx.x % 32;
    bool there = row < (size_t)rows.n_row;
    uint4 values = {};
    if (there)
        values = *(const uint4 *)(rows.h + row * (size_t)rows.ld + (size_t)(at * 8));
    uint32_t pair[4] = {values.x, values.y, values.z, values.w}, word[2] = {0, 0};
    int most = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        most = max(most, max((int)(pair[i] & 0x7FFFu), (int)(pair[i] >> 16 & 0x7FFFu)));
    for (int with = 1; with < (rows.groups ? 8 : 4); with *= 2)
        most = max(most, __shfl_xor_sync(DG_ALL_LANES, most, with));
    float largest = dg_f16_at((uint16_t)most), per = most > 0 && most < 0x7C00 ? 127 / largest : 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int n = (int)rintf(dg_f16_at((uint16_t)(pair[i / 2] >> i % 2 * 16)) * per);
        word[i / 4] |= (uint32_t)(n & 255) << i % 4 * 8;
    }
    if (!there)
        return;
    unsigned char *out = rows.out + (row * (size_t)(rows.ld / 64) + (size_t)(at / 8)) * BLOCKS_UNIT;
    *(uint2 *)(out + at % 8 * 8) = make_uint2(word[0], word[1]);
    if (lane % 4 == 0)
        *(float *)(out + BLOCKS_FACTORS + at % 8) =
            most < 0x7C00 ? largest / 127 : __uint_as_float(0x7FC00000u);
}

/* The first k of four in register `reg` of A fragments of m16n8k32. */
static __device__ __forceinline__ int byte_frag_k(int lane, int half, int reg)
{
    return 32 * half + 16 * (reg / 2) + 4 * (lane % 4);
}

/* The numbers of 64 values in the order of PTX's A fragments of m16n8k32, then the scales as
 * halves, rows g and g + 8 in a word. numbers() gives signed bytes, 1 / STEP times too large: a
 * number less 16 is five bits in two's complement; eight times it is a byte, whose upper five bits
 * they are. A lane's eight registers lie in five words: the bytes of register i < 5 in the upper
 * bits of word i's bytes, those of the other three in the lower bits, 3, 2 or 1 at a time. */
struct format_q5_0_bytes {
    static constexpr dg_cuda_form FORM = DG_CUDA_F16;
    static constexpr int UNIT = 64, HEAD = 0, CHUNK = 704, BLOCK = 32, BLOCK_BYTES = 22;
    static constexpr int FIFTH = 512, SCALES = 640;
    static constexpr float STEP = 0.125f;

    /* The bytes of register i of a lane. */
    static __device__ uint32_t less_16(const pack_source &s, int lane, int i)
    {
        uint32_t word = 0;
        for (int n = 0; n < 4; n++) {
            int k = byte_frag_k(lane, i / 4, i % 4) + n;
            const unsigned char *b = block_at<32, 22>(s, frag_row(lane, i), k);
            word |= (b ? format_q5_0::number(b, k % 32) ^ 16u : 0u) << (8 * n + 3);
        }
        return word;
    }
    static __device__ uint32_t packed_word(const pack_source &s, int i)
    {
        if (i >= SCALES / 4)
            return scale_word<22>(s, i - SCALES / 4);
        int lane = i < FIFTH / 4 ? i / 4 : i - FIFTH / 4, word = i < FIFTH / 4 ? i % 4 : 4;
        uint32_t a5 = less_16(s, lane, 5), a6 = less_16(s, lane, 6), a7 = less_16(s, lane, 7);
        uint32_t lower = word == 0   ? a5 >> 5 & 0x07070707u
                         : word == 1 ? (a5 >> 3 & 0x03030303u) | (a7 >> 2 & 0x04040404u)
                         : word == 2 ? a6 >> 5 & 0x07070707u
                         : word == 3 ? (a6 >> 3 & 0x03030303u) | (a7 >> 1 & 0x04040404u)
                                     : a7 >> 5 & 0x07070707u;
        return less_16(s, lane, word) | lower;
    }
    static __device__ __forceinline__ void numbers(uint32_t a[2][4], const unsigned char *unit,
                                                   int lane)
    {
        uint4 q = *(const uint4 *)(unit + lane * 16);
        uint32_t word[5] = {q.x, q.y, q.z, q.w, word_at(unit + FIFTH + lane * 4)};
#pragma unroll
        for (int i = 0; i < 5; i++)
            a[i / 4][i % 4] = word[i] & 0xF8F8F8F8u;
        a[1][1] = and_or(word[0] << 5, 0xE0E0E0E0u, word[1] << 3 & 0x18181818u);
        a[1][2] = and_or(word[2] << 5, 0xE0E0E0E0u, word[3] << 3 & 0x18181818u);
        a[1][3] = and_or(word[4] << 5, 0xE0E0E0E0u,
                         and_or(word[1] << 2, 0x10101010u, word[3] << 1 & 0x08080808u));
    }
};

/* 3 * 2^22: the bits of it plus an integer below 2^22 are the float that is it plus the integer. */
enum : int { INTEGER_BITS = 0x4B400000 };

/* Adds a unit of 64 to the sums of NT tiles of 8 rows, for two tiles of weights: 1 / STEP times
 * what they are. x: as a stage has it. */
template <class F, int NT_MAX, int NT>
static __device__ __forceinline__ void multiply_blocks(float acc[2][NT][4],
                                                       const unsigned char *const unit[2],
                                                       const unsigned char *x)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t a[2][2][4];
    float step[2][2][2], base[2][2][2]; /* base: what INTEGER_BITS add, exact as steps are halves */
#pragma unroll
    for (int m = 0; m < 2; m++) {
        F::numbers(a[m], unit[m], lane);
#pragma unroll
        for (int block = 0; block < 2; block++) {
            uint32_t d = word_at(unit[m] + F::SCALES + block * 32 + lane / 4 * 4);
            step[m][block][0] = dg_f16_at((uint16_t)(d & 0xFFFFu));
            step[m][block][1] = dg_f16_at((uint16_t)(d >> 16));
#pragma unroll
            for (int lower = 0; lower < 2; lower++)
                base[m][block][lower] = -12582912.0f * step[m][block][lower];
        }
    }
#pragma unroll
    for (int j = 0; j < NT; j++) {
        uint32_t b[4];
        dg_ldmatrix_x4(b, x + (lane / 8 * NT_MAX + j) * 128 + lane % 8 * 16);
        const unsigned char *factor = x + (BLOCKS_FACTORS / 16 * NT_MAX + j) * 128 + lane % 4 * 32;
        float2 left = *(const float2 *)factor, right = *(const float2 *)(factor + 16);
        float of[2][2] = {{left.x, right.x}, {left.y, right.y}};
#pragma unroll
        for (int block = 0; block < 2; block++)
#pragma unroll
            for (int m = 0; m < 2; m++) {
                int sum[4] = {INTEGER_BITS, INTEGER_BITS, INTEGER_BITS, INTEGER_BITS};
                dg_mma_s8(sum, a[m][block], b + 2 * block);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    acc[m][j][i] = fmaf(
                        fmaf(__int_as_float(sum[i]), step[m][block][i / 2], base[m][block][i / 2]),
                        of[block][i % 2], acc[m][j][i]);
            }
    }
}

#endif
