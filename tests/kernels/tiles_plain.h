/* What cpu/x86/tiles_amx.h offers, in plain C; after lanes_plain.h. */
#ifndef DG_TESTS_KERNELS_TILES_PLAIN_H
#define DG_TESTS_KERNELS_TILES_PLAIN_H

#include <stdint.h>
#include <string.h>

typedef struct plain_tile {
    int rows, bytes;
    int8_t at[16][64];
} plain_tile;

static _Thread_local plain_tile tiles[8]; /* a thread has its own */

INLINE void tiles_begin(int n_row, int n_byte)
{
    for (int i = 0; i < 8; i++)
        tiles[i] = (plain_tile){.rows = i > 5 ? n_byte / 4 : n_row,
                                .bytes = i == 4 || i == 5 ? n_byte : 64};
}

/* Without shapes, tiles give and take nothing. */
INLINE void tiles_end(void)
{
    memset(tiles, 0, sizeof tiles);
}

INLINE void tile_zero(int t)
{
    memset(tiles[t].at, 0, sizeof tiles[t].at);
}

INLINE void tile_load(int t, const void *p, size_t stride)
{
    tile_zero(t);
    for (int r = 0; r < tiles[t].rows; r++)
        memcpy(tiles[t].at[r], (const int8_t *)p + (size_t)r * stride, (size_t)tiles[t].bytes);
}

INLINE void tile_load_once(int t, const void *p, size_t stride)
{
    tile_load(t, p, stride);
}

INLINE void tile_store(int t, void *p, size_t stride)
{
    for (int r = 0; r < tiles[t].rows; r++)
        memcpy((int8_t *)p + (size_t)r * stride, tiles[t].at[r], (size_t)tiles[t].bytes);
}

INLINE void tile_dot_unsigned(int to, int a, int b)
{
    for (int r = 0; r < tiles[to].rows; r++) {
        int32_t sum[16];
        memcpy(sum, tiles[to].at[r], sizeof sum);
        for (int k = 0; k < tiles[a].bytes; k++)
            for (int c = 0; c < 16; c++)
                sum[c] += tiles[a].at[r][k] * (uint8_t)tiles[b].at[k / 4][4 * c + k % 4];
        memcpy(tiles[to].at[r], sum, sizeof sum);
    }
}

INLINE void tile_dot_signed(int to, int a, int b)
{
    for (int r = 0; r < tiles[to].rows; r++) {
        int32_t sum[16];
        memcpy(sum, tiles[to].at[r], sizeof sum);
        for (int k = 0; k < tiles[a].bytes; k++)
            for (int c = 0; c < 16; c++)
                sum[c] += tiles[a].at[r][k] * tiles[b].at[k / 4][4 * c + k % 4];
        memcpy(tiles[to].at[r], sum, sizeof sum);
    }
}

/* The 32 numbers of a tile's row as floats. */
INLINE void bfloat_row(float to[32], const plain_tile *tile, int row)
{
    uint16_t from[32];
    uint32_t wide[32];
    memcpy(from, tile->at[row], sizeof from);
    for (int i = 0; i < 32; i++)
        wide[i] = (uint32_t)from[i] << 16;
    memcpy(to, wide, sizeof wide);
}

/* b's rows have two numbers of each column; widened once, as tests take most of their time here. */
INLINE void tile_dot_bfloat(int to, int a, int b)
{
    float pairs[16][32], left[32], sum[16];
    for (int k = 0; k < tiles[a].bytes / 4; k++)
        bfloat_row(pairs[k], &tiles[b], k);
    for (int r = 0; r < tiles[to].rows; r++) {
        bfloat_row(left, &tiles[a], r);
        memcpy(sum, tiles[to].at[r], sizeof sum);
        for (int k = 0; k < tiles[a].bytes / 4; k++)
            for (int i = 0; i < 2; i++)
                for (int c = 0; c < 16; c++)
                    sum[c] += left[2 * k + i] * pairs[k][2 * c + i];
        memcpy(tiles[to].at[r], sum, sizeof sum);
    }
}

#endif
