/* dequant.h: one block to floats, for every quantised type (internal to src/quant).
 *
 * blk: one block, unaligned; y: the block's values. The order is (D*S)*v and (D*S)*v - (Dmin*M),
 * each product rounded (docs/arithmetic.md, quantised weights). */
#ifndef QUANT_DEQUANT_H
#define QUANT_DEQUANT_H

typedef void quant_block_fn(const void *blk, float *y);

/* dequant_small.c */
quant_block_fn quant_block_q4_0, quant_block_q4_1, quant_block_q5_0, quant_block_q5_1,
    quant_block_q8_0, quant_block_iq4_nl, quant_block_mxfp4, quant_block_nvfp4, quant_block_q1_0,
    quant_block_q2_0;
/* dequant_k.c */
quant_block_fn quant_block_q2_K, quant_block_q3_K, quant_block_q4_K, quant_block_q5_K,
    quant_block_q6_K, quant_block_q8_K, quant_block_tq1_0, quant_block_tq2_0;
/* dequant_iq.c */
quant_block_fn quant_block_iq1_s, quant_block_iq1_m, quant_block_iq2_xxs, quant_block_iq2_xs,
    quant_block_iq2_s, quant_block_iq3_xxs, quant_block_iq3_s, quant_block_iq4_xs;

#endif
