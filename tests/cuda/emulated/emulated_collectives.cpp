/* What the collectives of a warp compute: the fragments as PTX lays them out. */
#include "emulated_fibers.h"

float emu_half_to_float(uint16_t h)
{
    uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    float size = exponent == 31  ? __uint_as_float(0x7F800000u | fraction << 13)
                 : exponent == 0 ? (float)fraction * 0x1p-24f
                                 : __uint_as_float((exponent + 112) << 23 | fraction << 13);
    return h & 0x8000 ? -size : size;
}

template <bool HALF> static inline float from_bits(uint32_t pair, int high)
{
    uint16_t bits = (uint16_t)(high ? pair >> 16 : pair);
    return HALF ? emu_half_to_float(bits) : __uint_as_float((uint32_t)bits << 16);
}

/* Register i of a lane holds of A (16 x 16) the row lane / 4 (+ 8 for odd i) and the columns
 * 2 (lane % 4) (+ 8 for i > 1) and the next; of B (16 x 8) the column lane / 4 and the same rows as
 * A's columns. The result: rows as A's, columns 2 (lane % 4) and the next. */
template <bool HALF> static void mma(fiber *lane)
{
    float a[16][16], b[16][8];
    for (int l = 0; l < 32; l++) {
        int row = l / 4, pair = 2 * (l % 4);
        for (int i = 0; i < 4; i++)
            for (int h = 0; h < 2; h++)
                a[row + 8 * (i % 2)][pair + 8 * (i / 2) + h] = from_bits<HALF>(lane[l].in[i], h);
        for (int i = 0; i < 2; i++)
            for (int h = 0; h < 2; h++)
                b[pair + 8 * i + h][row] = from_bits<HALF>(lane[l].in[4 + i], h);
    }
    double sum[16][8];
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++)
            sum[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2] = __uint_as_float(lane[l].in[6 + i]);
    for (int k = 0; k < 16; k++)
        for (int row = 0; row < 16; row++)
            for (int column = 0; column < 8; column++)
                sum[row][column] += (double)a[row][k] * b[k][column];
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++)
            lane[l].out[i] = __float_as_uint((float)sum[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2]);
}

/* Register i of a lane holds of A (16 x 8) the row lane / 4 (+ 8 for odd i) and the column lane % 4
 * (+ 4 for i > 1); of B (8 x 8) the column lane / 4 and the same rows as A's columns. */
static void mma_tf32(fiber *lane)
{
    double a[16][8], b[8][8];
    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < 4; i++)
            a[l / 4 + 8 * (i % 2)][l % 4 + 4 * (i / 2)] =
                __uint_as_float(lane[l].in[i] & 0xFFFFE000u);
        for (int i = 0; i < 2; i++)
            b[l % 4 + 4 * i][l / 4] = __uint_as_float(lane[l].in[4 + i] & 0xFFFFE000u);
    }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) {
            int row = l / 4 + 8 * (i / 2), column = 2 * (l % 4) + i % 2;
            double sum = __uint_as_float(lane[l].in[6 + i]);
            for (int k = 0; k < 8; k++)
                sum += a[row][k] * b[k][column];
            lane[l].out[i] = __float_as_uint((float)sum);
        }
}

static void mma_s8(fiber *lane, int a_unsigned)
{
    int a[16][32], b[32][8];
    for (int l = 0; l < 32; l++) {
        int row = l / 4, four = 4 * (l % 4);
        for (int i = 0; i < 4; i++)
            for (int h = 0; h < 4; h++) {
                uint8_t byte = (uint8_t)(lane[l].in[i] >> 8 * h);
                a[row + 8 * (i % 2)][four + 16 * (i / 2) + h] = a_unsigned ? byte : (int8_t)byte;
            }
        for (int i = 0; i < 2; i++)
            for (int h = 0; h < 4; h++)
                b[four + 16 * i + h][row] = (int8_t)(uint8_t)(lane[l].in[4 + i] >> 8 * h);
    }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) {
            int row = l / 4 + 8 * (i / 2), column = 2 * (l % 4) + i % 2;
            uint32_t sum = lane[l].in[6 + i];
            for (int k = 0; k < 32; k++)
                sum += (uint32_t)(a[row][k] * b[k][column]);
            lane[l].out[i] = sum;
        }
}

/* Matrix m has its rows where lanes 8 m ... 8 m + 7 point to; lane l receives the values 2 (l % 4)
 * and the next of row l / 4, or, transposed, of column l / 4. */
static void ldmatrix(fiber *lane, int n, bool trans)
{
    for (int m = 0; m < n; m++) {
        uint16_t v[8][8];
        for (int r = 0; r < 8; r++)
            memcpy(v[r], lane[8 * m + r].row, 16);
        for (int l = 0; l < 32; l++) {
            int r = l / 4, c = 2 * (l % 4);
            uint16_t low = trans ? v[c][r] : v[r][c], high = trans ? v[c + 1][r] : v[r][c + 1];
            lane[l].out[m] = (uint32_t)high << 16 | low;
        }
    }
}

void emu_compute(const warp *w, fiber *lane)
{
    uint32_t ballot = 0;
    switch (w->kind) {
    case C_SHUFFLE:
        for (int i = 0; i < 32; i++) {
            if (!(w->mask >> i & 1))
                continue;
            uint32_t from = lane[i].in[1];
            if (!(w->mask >> from & 1))
                emu_fail(w->where, "a shuffle from a lane outside of the mask");
            lane[i].out[0] = lane[from].in[0];
        }
        break;
    case C_BALLOT:
        for (int i = 0; i < 32; i++)
            if (w->mask >> i & 1)
                ballot |= lane[i].in[0] << i;
        for (int i = 0; i < 32; i++)
            lane[i].out[0] = w->mask >> i & 1 ? ballot : lane[i].out[0];
        break;
    case C_MMA:
        if (w->variant)
            mma<true>(lane);
        else
            mma<false>(lane);
        break;
    case C_MMA_TF32:
        mma_tf32(lane);
        break;
    case C_MMA_S8:
        mma_s8(lane, w->variant);
        break;
    case C_LDMATRIX:
        ldmatrix(lane, w->variant >> 1, w->variant & 1);
        break;
    case C_SYNC:
        break;
    }
}
