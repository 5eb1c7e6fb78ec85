/* weights.c: random blocks of every type. The bits of a block are random; its floats are set, since
 * random bits would make some of them infinite, and subnormal ones slow some CPUs down. */
#include <string.h>

#include "bench/parts.h"
#include "quant/blocks.h"

/* Where a block has binary16 members: 1 + offset; 0: none. */
#define AT(type, member) offsetof(struct type, member) + 1
static const uint8_t f16_at[QT_COUNT][2] = {
    [QT_F16] = {1},
    [QT_Q4_0] = {AT(blk_q4_0, d)},
    [QT_Q4_1] = {AT(blk_q4_1, d), AT(blk_q4_1, m)},
    [QT_Q5_0] = {AT(blk_q5_0, d)},
    [QT_Q5_1] = {AT(blk_q5_1, d), AT(blk_q5_1, m)},
    [QT_Q8_0] = {AT(blk_q8_0, d)},
    [QT_IQ4_NL] = {AT(blk_iq4_nl, d)},
    [QT_Q1_0] = {AT(blk_q1_0, d)},
    [QT_Q2_0] = {AT(blk_q2_0, d)},
    [QT_Q2_K] = {AT(blk_q2_K, d), AT(blk_q2_K, dmin)},
    [QT_Q3_K] = {AT(blk_q3_K, d)},
    [QT_Q4_K] = {AT(blk_q4_K, d), AT(blk_q4_K, dmin)},
    [QT_Q5_K] = {AT(blk_q5_K, d), AT(blk_q5_K, dmin)},
    [QT_Q6_K] = {AT(blk_q6_K, d)},
    [QT_TQ1_0] = {AT(blk_tq1_0, d)},
    [QT_TQ2_0] = {AT(blk_tq2_0, d)},
    [QT_IQ1_S] = {AT(blk_iq1_s, d)},
    [QT_IQ2_XXS] = {AT(blk_iq2_xxs, d)},
    [QT_IQ2_XS] = {AT(blk_iq2_xs, d)},
    [QT_IQ2_S] = {AT(blk_iq2_s, d)},
    [QT_IQ3_XXS] = {AT(blk_iq3_xxs, d)},
    [QT_IQ3_S] = {AT(blk_iq3_s, d)},
    [QT_IQ4_XS] = {AT(blk_iq4_xs, d)},
};

/* Either sign, 2^-7 to 2^-4. */
static uint16_t rand_f16(uint64_t *rng)
{
    const uint64_t r = bench_rand(rng);
    return (uint16_t)((r & 0x83ff) | (8 + (r >> 32) % 4) << 10);
}

/* The upper half of a binary32; either sign, 2^-7 to 2^-4. */
static uint16_t rand_bf16(uint64_t *rng)
{
    const uint64_t r = bench_rand(rng);
    return (uint16_t)((r & 0x807f) | (120 + (r >> 32) % 4) << 7);
}

static void set_f16_iq1_m(uint8_t *block, uint16_t h)
{
    uint8_t *scales = block + offsetof(struct blk_iq1_m, scales);
    for (int i = 0; i < 4; i++)
        scales[2 * i + 1] = (uint8_t)((scales[2 * i + 1] & 15) | (h >> 4 * i & 15) << 4);
}

static void fill_block(enum quant_type type, uint8_t *p, size_t bytes, uint64_t *rng)
{
    uint16_t h;
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t r = bench_rand(rng);
        memcpy(p + i, &r, bytes - i < 8 ? bytes - i : 8);
    }
    switch (type) {
    case QT_F32:
    case QT_BF16:
        h = rand_bf16(rng);
        memcpy(p + (type == QT_F32 ? 2 : 0), &h, sizeof h);
        break;
    case QT_MXFP4: /* 2^(e - 128) */
        p[offsetof(struct blk_mxfp4, e)] = (uint8_t)(120 + bench_rand(rng) % 6);
        break;
    case QT_IQ1_M:
        set_f16_iq1_m(p, rand_f16(rng));
        break;
    default: /* NVFP4: any byte is a scale */
        for (int i = 0; i < 2; i++)
            if (f16_at[type][i] > 0) {
                h = rand_f16(rng);
                memcpy(p + f16_at[type][i] - 1, &h, sizeof h);
            }
        break;
    }
}

void bench_fill_weights(enum quant_type type, void *p, size_t bytes, uint64_t *rng)
{
    const size_t block = quant_type_info(type)->block_bytes;
    for (size_t i = 0; i < bytes; i += block)
        fill_block(type, (uint8_t *)p + i, block, rng);
}

void bench_fill_floats(float *x, size_t n, uint64_t *rng)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(int32_t)(bench_rand(rng) >> 32) * 0x1p-31f;
}
