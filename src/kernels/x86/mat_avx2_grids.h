/* mat_avx2_grids.h: the codebooks of the IQ types, a byte per value, so that a lookup is one load.
 * Together 33 KiB; each type touches one of them. */
#ifndef KERNELS_X86_MAT_AVX2_GRIDS_H
#define KERNELS_X86_MAT_AVX2_GRIDS_H

#include <stdint.h>

struct mat_grids {
    uint64_t iq1[2048]; /* 8 * (value + 1): 0, 8 or 16 */
    uint64_t iq2_s[1024], iq2_xs[512], iq2_xxs[256];
    uint32_t iq3_s[512], iq3_xxs[256];
};
/* Read-only once kernels_fill_grids has returned. */
extern struct mat_grids kernels_grids;

/* Derives the tables from those of quant/grids.h at its first call; any thread. */
void kernels_fill_grids(void);

#endif
