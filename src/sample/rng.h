/* rng.h: the generator of sampling: xoshiro256** 1.0 (Blackman and Vigna, 2018; public domain),
 * its state filled from a 64-bit seed by splitmix64. Integers only: the same everywhere. */
#ifndef SAMPLE_RNG_H
#define SAMPLE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t s[4];
};

void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
/* The upper 53 bits of the next number as a fraction: [0, 1), a multiple of 2^-53. */
double rng_uniform(struct rng *r);

#endif
