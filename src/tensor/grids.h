/* The grids of GGUF's types of one, two and three bits: a place in a grid stands for eight values
 * (four, of three bits), which were chosen because models' weights are often near them.
 *
 * An entry holds the values' numbers, the first one lowest: two bits each, or of IQ3 four. */
#ifndef DG_TENSOR_GRIDS_H
#define DG_TENSOR_GRIDS_H

#include <stdint.h>

extern const uint16_t dg_grid_iq1[2048];    /* 0, 1, 2 for -1, 0, 1; also IQ1_M's */
extern const uint16_t dg_grid_iq2_xxs[256]; /* 0, 1, 2 for 8, 25, 43 */
extern const uint16_t dg_grid_iq2_xs[512];
extern const uint16_t dg_grid_iq2_s[1024];
extern const uint16_t dg_grid_iq3_xxs[256]; /* 0 to 7 for 4, 12, 20, 28, 36, 44, 52, 62 */
extern const uint16_t dg_grid_iq3_s[512];   /* 0 to 7 for 1, 3, 5, 7, 9, 11, 13, 15 */

#endif
