/* What gate and up leave for a down that takes bytes: h in units of 64 values (dg_byte_blocks),
 * made where its sums are, so that no launch stands between gate and up and down. A unit is a group
 * of four tiles, a warp's each; the largest values of a row meet in shared memory. The bits are
 * those of narrow_blocks() on h as halves. */
#ifndef DG_CUDA_CUDA_GATED_BYTES_CUH
#define DG_CUDA_CUDA_GATED_BYTES_CUH

#include "cuda/cuda_experts.cuh"
#include "cuda/cuda_tiles.cuh"

/* Largest values of four tiles, of pairs of up to 64 rows; for each of three groups, by turns two
 * of them: who still reads one is not overtaken by more than one item. */
enum {
    GATED_PAIRS = 32,
    GATED_GROUP = 4 * GATED_PAIRS,
    GATED_GROUPS = 3,
    GATED_MOST_BYTES = 2 * GATED_GROUPS * GATED_GROUP * 4
};

/* Rows of an item, as places, and the unit of h among n_unit. */
struct gated_place {
    int first, n, unit, n_unit;
};

/* The larger ones of two pairs of 16 bits. */
static __device__ __forceinline__ uint32_t larger_of_pairs(uint32_t a, uint32_t b)
{
#ifdef __CUDACC__
    return __vmaxu2(a, b);
#else
    return max(a & 0xFFFFu, b & 0xFFFFu) | max(a >> 16, b >> 16) << 16;
#endif
}

/* Bytes of four rows of a lane's channel become those of one row's four channels: row lane / 4 % 4
 * of the four, channels lane / 16 * 4 on. */
static __device__ __forceinline__ uint32_t four_channels(uint32_t rows)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t other = __shfl_xor_sync(DG_ALL_LANES, rows, 4);
    rows = __byte_perm(rows, other, lane & 4 ? 0x3715 : 0x6240);
    other = __shfl_xor_sync(DG_ALL_LANES, rows, 8);
    return __byte_perm(rows, other, lane & 8 ? 0x3276 : 0x5410);
}

/* The group's four warps wait for each other; numbers of barriers are best constants. */
static __device__ __forceinline__ void quad_sync(int group)
{
    if (group == 0)
        dg_bar_sync(1, 128);
    else if (group == 1)
        dg_bar_sync(2, 128);
    else
        dg_bar_sync(3, 128);
}

/* The largest of each row's unit, or of its half that this warp has a part of, as halves without
 * sign: of two rows of a tile of 8. */
template <int NT>
static __device__ __forceinline__ void largest_of_unit(uint32_t most[NT],
                                                       const uint32_t value[NT][2], bool groups,
                                                       uint32_t *shared)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, tile = warp % 4;
#pragma unroll
    for (int j = 0; j < NT; j++) {
        most[j] = larger_of_pairs(value[j][0] & 0x7FFF7FFFu, value[j][1] & 0x7FFF7FFFu);
        for (int with = 4; with < 32; with *= 2)
            most[j] = larger_of_pairs(most[j], __shfl_xor_sync(DG_ALL_LANES, most[j], with));
        if (lane < 4)
            shared[tile * GATED_PAIRS + j * 4 + lane] = most[j];
    }
    quad_sync(warp / 4);
#pragma unroll
    for (int j = 0; j < NT; j++) {
        const uint32_t *at = shared + j * 4 + lane % 4;
        most[j] = larger_of_pairs(most[j], at[(tile ^ 1) * GATED_PAIRS]);
        if (groups)
            most[j] = larger_of_pairs(most[j], larger_of_pairs(at[(tile ^ 2) * GATED_PAIRS],
                                                               at[(tile ^ 3) * GATED_PAIRS]));
    }
}

/* By the four warps of a group, whose sums of gate and up are in acc. */
template <int NT>
static __device__ __forceinline__ void store_gated_bytes(const dg_gated_bytes &to,
                                                         const gated_place &place, float all,
                                                         const float factor[2],
                                                         const float acc[2][NT][4],
                                                         uint32_t *shared, int turn)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, tile = warp % 4;
    size_t row_bytes = (size_t)place.n_unit * BLOCKS_UNIT;
    unsigned char *unit =
        to.out + (size_t)place.first * row_bytes + (size_t)place.unit * BLOCKS_UNIT;
    uint32_t value[NT][2], most[NT], bytes[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            value[j][i / 2] = dg_store_f16(
                all * gated(acc[0][j][i] * factor[0], acc[1][j][i] * factor[1]),
                all * gated(acc[0][j][i + 1] * factor[0], acc[1][j][i + 1] * factor[1]));
    largest_of_unit<NT>(most, value, to.groups,
                        shared + (turn * GATED_GROUPS + warp / 4) * GATED_GROUP);
#pragma unroll
    for (int j = 0; j < NT; j++) {
#pragma unroll
        for (int t = 0; t < 2; t++) {
            int bits = (int)(most[j] >> 16 * t & 0xFFFFu), row = j * 8 + lane % 4 * 2 + t;
            float largest = dg_f16_at((uint16_t)bits),
                  per = bits > 0 && bits < 0x7C00 ? 127 / largest : 0;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int n = (int)rintf(dg_f16_at((uint16_t)(value[j][half] >> 16 * t)) * per);
                bytes[half] |= (uint32_t)(n & 255) << (j % 2 * 16 + t * 8);
            }
            if (lane < 4 && row < place.n && tile % 2 == 0 && !(to.groups && tile)) {
                float step = bits < 0x7C00 ? largest / 127 : __uint_as_float(0x7FC00000u);
                float *at = (float *)(unit + (size_t)row * row_bytes + BLOCKS_FACTORS) + tile / 2;
                *at = step;
                if (to.groups)
                    at[1] = step;
            }
        }
        if (j % 2 == 0 && j + 1 < NT)
            continue;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t four = four_channels(bytes[half]);
            int r = lane / 4 % 4, row = (j / 2 * 2 + r / 2) * 8 + lane % 4 * 2 + r % 2;
            if (row < place.n)
                *(uint32_t *)(unit + (size_t)row * row_bytes + tile * 16 + half * 8 +
                              lane / 16 * 4) = four;
            bytes[half] = 0;
        }
    }
}

#endif
