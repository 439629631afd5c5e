/* Blocks of one to three bits a value, 256 values each: what blocks.c's table takes. */
#ifndef DG_TENSOR_BLOCKS_LOW_H
#define DG_TENSOR_BLOCKS_LOW_H

void dg_widen_iq1_s(float *out, const unsigned char *b);
void dg_widen_iq1_m(float *out, const unsigned char *b);
void dg_widen_iq2_xxs(float *out, const unsigned char *b);
void dg_widen_iq2_xs(float *out, const unsigned char *b);
void dg_widen_iq2_s(float *out, const unsigned char *b);
void dg_widen_iq3_xxs(float *out, const unsigned char *b);
void dg_widen_iq3_s(float *out, const unsigned char *b);
void dg_widen_tq1_0(float *out, const unsigned char *b);
void dg_widen_tq2_0(float *out, const unsigned char *b);

#endif
