/* Blocks of 256 values whose groups have whole numbers as scales: what blocks_narrow.c's table
 * takes. */
#ifndef DG_TENSOR_BLOCKS_NARROW_K_H
#define DG_TENSOR_BLOCKS_NARROW_K_H

void dg_narrow_q4_k(unsigned char *out, const float *x, const float *w);
void dg_narrow_q5_k(unsigned char *out, const float *x, const float *w);
void dg_narrow_q6_k(unsigned char *out, const float *x, const float *w);
void dg_narrow_iq4_xs(unsigned char *out, const float *x, const float *w);

#endif
