/* mat_avx2_grids.c: codebooks a byte per value. */
#include "kernels/x86/mat_avx2_grids.h"

#include <pthread.h>

#include "quant/grids.h"

_Alignas(64) struct mat_grids kernels_grids;

/* Eight values from 2-bit codes. */
static void widen2(const uint16_t *codes, int n, int (*value)(unsigned), uint64_t *out)
{
    for (int i = 0; i < n; i++) {
        out[i] = 0;
        for (int j = 0; j < 8; j++)
            out[i] |= (uint64_t)value(codes[i] >> 2 * j) << 8 * j;
    }
}

/* Four values from 3-bit codes. */
static void widen3(const uint16_t *codes, int n, int (*value)(unsigned), uint32_t *out)
{
    for (int i = 0; i < n; i++) {
        out[i] = 0;
        for (int j = 0; j < 4; j++)
            out[i] |= (uint32_t)value(codes[i] >> 3 * j) << 8 * j;
    }
}

static int iq1_biased(unsigned code)
{
    return 8 * (quant_iq1_value(code) + 1);
}

static void fill(void)
{
    struct mat_grids *g = &kernels_grids;

    widen2(quant_grid_iq1_s, 2048, iq1_biased, g->iq1);
    widen2(quant_grid_iq2_s, 1024, quant_iq2_value, g->iq2_s);
    widen2(quant_grid_iq2_xs, 512, quant_iq2_value, g->iq2_xs);
    widen2(quant_grid_iq2_xxs, 256, quant_iq2_value, g->iq2_xxs);
    widen3(quant_grid_iq3_s, 512, quant_iq3_s_value, g->iq3_s);
    widen3(quant_grid_iq3_xxs, 256, quant_iq3_xxs_value, g->iq3_xxs);
}

void kernels_fill_grids(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, fill);
}
