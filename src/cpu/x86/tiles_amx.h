/* The tile instructions that products need, on the eight tiles as they are used: 0 to 3 take sums,
 * 4 and 5 rows of the left side, 6 and 7 the right side. tests/ have the same in plain C
 * (kernels/tiles_plain.h). */
#ifndef DG_CPU_X86_TILES_AMX_H
#define DG_CPU_X86_TILES_AMX_H

#include <immintrin.h>
#include <stdint.h>

/* What the instruction reads: palette 1, then bytes of a row and rows of each tile. */
typedef struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* Left sides of n_byte bytes, from here to tiles_end: `rows` rows in tile 4, sums in 0 and 1, and
 * `others` in tile 5, sums in 2 and 3. */
static inline void tiles_begin_two(int rows, int others, int n_byte)
{
    tile_shapes s = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        s.rows[i] = (uint8_t)(i > 5 ? n_byte / 4 : i < 2 || i == 4 ? rows : others);
        s.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? n_byte : 64);
    }
    _tile_loadconfig(&s);
}

/* All of n_row rows. */
static inline void tiles_begin(int n_row, int n_byte)
{
    tiles_begin_two(n_row, n_row, n_byte);
}

static inline void tiles_end(void)
{
    _tile_release();
}

/* Macros, since an instruction names its tiles. */
#define tile_zero(t)                _tile_zero(t)
#define tile_load(t, p, stride)     _tile_loadd(t, p, stride)
#define tile_store(t, p, stride)    _tile_stored(t, p, stride)
#define tile_dot_unsigned(to, a, b) _tile_dpbsud(to, a, b)   /* products of bytes, b's unsigned */
#define tile_dot_signed(to, a, b)   _tile_dpbssd(to, a, b)   /* b's signed */
#define tile_dot_bfloat(to, a, b)   _tile_dpbf16ps(to, a, b) /* of bfloat16 numbers, to floats */

#endif
