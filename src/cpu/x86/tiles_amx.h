/* The tile instructions that products need, on the eight tiles as they are used: 0 to 3 take sums,
 * 4 and 5 rows of the left side, 6 and 7 the right side. tests/ have the same in plain C
 * (kernels/tiles_plain.h).
 *
 * Few should be in use at a time. Where another program has the other half of the core, four
 * products take 64 ns with all eight in use and 119 with a load for each, 58 with four in use and
 * more loads, 29 with three and no loads, as on a core that is free: presumably instructions that
 * fill a tile wait for one besides those in use. A tile that is 0 is not in use. */
#ifndef DG_CPU_X86_TILES_AMX_H
#define DG_CPU_X86_TILES_AMX_H

#include <stddef.h>
#include <stdint.h>

/* The instructions are written out: a compiler's own functions do not say which memory they read,
 * so that what was stored there just before may never have been stored. Macros, since an
 * instruction names its tiles. */
#define TILE_READS(p) "m"(*(const char(*)[1 << 16])(p)) /* as much as may have been stored */
#define tile_zero(t)  __asm__ volatile("tilezero %%tmm" #t : :)
#define tile_load(t, p, stride)                                                                    \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t                                               \
                     :                                                                             \
                     : "r"(p), "r"((size_t)(stride)), TILE_READS(p))
/* The same of what the first-level cache need not keep. */
#define tile_load_once(t, p, stride)                                                               \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t                                             \
                     :                                                                             \
                     : "r"(p), "r"((size_t)(stride)), TILE_READS(p))
#define tile_store(t, p, stride)                                                                   \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"                                           \
                     :                                                                             \
                     : "r"(p), "r"((size_t)(stride))                                               \
                     : "memory")
#define TILE_DOT(name, to, a, b)    __asm__ volatile(name " %%tmm" #b ", %%tmm" #a ", %%tmm" #to : :)
#define tile_dot_unsigned(to, a, b) TILE_DOT("tdpbsud", to, a, b) /* of bytes, b's unsigned */
#define tile_dot_signed(to, a, b)   TILE_DOT("tdpbssd", to, a, b)
#define tile_dot_bfloat(to, a, b)   TILE_DOT("tdpbf16ps", to, a, b) /* to floats */

/* What the instruction reads: palette 1, then bytes of a row and rows of each tile. */
typedef struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* Left sides of n_row rows and n_byte bytes, from here to tiles_end. All tiles are 0 then. */
static inline void tiles_begin(int n_row, int n_byte)
{
    tile_shapes s = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        s.rows[i] = (uint8_t)(i > 5 ? n_byte / 4 : n_row);
        s.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? n_byte : 64);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(s));
}

static inline void tiles_end(void)
{
    __asm__ volatile("tilerelease" : :);
}

#endif
