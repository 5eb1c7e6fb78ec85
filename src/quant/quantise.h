/* quantise.h: one block of floats to bytes, and the searches for scales behind it (internal to
 * src/quant).
 *
 * Every search minimises the sum of squared errors, which a reader of the block would see. All
 * sums run in four lanes, so that the bytes are the same on every machine. */
#ifndef QUANT_QUANTISE_H
#define QUANT_QUANTISE_H

#include <stdbool.h>
#include <stdint.h>

/* x: the block's values, below 2^29. False: a scale is beyond binary16. */
typedef bool quant_pack_fn(const float *x, void *blk);
/* quantise.c */
quant_pack_fn quant_pack_q4_0, quant_pack_q8_0;
/* quantise_k.c */
quant_pack_fn quant_pack_q2_K, quant_pack_q3_K, quant_pack_q4_K, quant_pack_q5_K, quant_pack_q6_K;

/* ---- Groups of n values, n a multiple of 4 and at most QUANT_GROUP_MAX (quantise_fit.c) ---- */

#define QUANT_GROUP_MAX 32

/* The scale d, of either sign, for which d * q with integers lo <= q <= hi comes near x; 0: x is
 * (nearly) zero. lo < 0 < hi, -lo >= hi. */
float quant_fit_signed(const float *x, int n, int lo, int hi);
/* Scale s >= 0 and minimum m >= 0 for s * q - m, 0 <= q <= hi. */
void quant_fit_offset(const float *x, int n, int hi, float *s, float *m);

/* The nearest integers for a scale that is now fixed; the squared error. q: n of them. The sums
 * (may be NULL) of x * q, q * q and, for offsets, q. */
struct quant_sums {
    float xq, qq, q;
};
float quant_round_signed(const float *x, int n, float d, int lo, int hi, int8_t *q,
                         struct quant_sums *sums);
float quant_round_offset(const float *x, int n, float s, float m, int hi, int8_t *q,
                         struct quant_sums *sums);

/* Nearest integer, ties to even, clamped to [lo, hi]; not NaN. */
int quant_nearest(float x, int lo, int hi);

#endif
