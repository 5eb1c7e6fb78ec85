/* dequant_iq.c: types whose values come from codebooks (grids.h), and IQ4_XS. */
#include "quant/blocks.h"
#include "quant/dequant.h"
#include "quant/grids.h"
#include "quant/quant.h"

#include <string.h>

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Eight values of an IQ2 grid entry with their signs. */
static void put_iq2(uint16_t entry, unsigned signs, float ds, float *y)
{
    for (int j = 0; j < 8; j++) {
        int v = quant_iq2_value(entry >> (2 * j));
        y[j] = ds * (float)(signs >> j & 1 ? -v : v);
    }
}

void quant_block_iq2_xxs(const void *blk, float *y)
{
    const struct blk_iq2_xxs *b = blk;
    float d = quant_f16_to_f32(b->d) * 0.125f;
    for (int g = 0; g < 8; g++) {
        const uint8_t *q = b->qs + 8 * g;
        uint32_t u = load_u32(q + 4);
        float ds = d * (float)(2 * (u >> 28) + 1);
        for (int l = 0; l < 4; l++)
            put_iq2(quant_grid_iq2_xxs[q[l]], quant_signs8(u >> (7 * l)), ds, y + 32 * g + 8 * l);
    }
}

void quant_block_iq2_xs(const void *blk, float *y)
{
    const struct blk_iq2_xs *b = blk;
    float d = quant_f16_to_f32(b->d) * 0.125f;
    for (int i = 0; i < 32; i++) {
        int s = b->scales[i / 4] >> (4 * (i / 2 % 2)) & 15;
        unsigned q = b->qs[i];
        put_iq2(quant_grid_iq2_xs[q & 511], quant_signs8(q >> 9), d * (float)(2 * s + 1),
                y + 8 * i);
    }
}

void quant_block_iq2_s(const void *blk, float *y)
{
    const struct blk_iq2_s *b = blk;
    float d = quant_f16_to_f32(b->d) * 0.125f;
    for (int i = 0; i < 32; i++) {
        int s = b->scales[i / 4] >> (4 * (i / 2 % 2)) & 15;
        unsigned high = b->qh[i / 4] >> (2 * (i % 4)) & 3;
        put_iq2(quant_grid_iq2_s[b->qs[i] | high << 8], b->signs[i], d * (float)(2 * s + 1),
                y + 8 * i);
    }
}

void quant_block_iq3_xxs(const void *blk, float *y)
{
    const struct blk_iq3_xxs *b = blk;
    float d = quant_f16_to_f32(b->d) * 0.25f;
    for (int i = 0; i < 64; i++) { /* four values each */
        uint32_t u = load_u32(b->sas + 4 * (i / 8));
        unsigned signs = quant_signs8(u >> (7 * (i / 2 % 4))) >> (4 * (i % 2));
        float ds = d * (float)(2 * (u >> 28) + 1);
        for (int j = 0; j < 4; j++) {
            int v = quant_iq3_xxs_value(quant_grid_iq3_xxs[b->qs[i]] >> (3 * j));
            y[4 * i + j] = ds * (float)(signs >> j & 1 ? -v : v);
        }
    }
}

void quant_block_iq3_s(const void *blk, float *y)
{
    const struct blk_iq3_s *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int i = 0; i < 64; i++) { /* four values each */
        int s = b->scales[i / 16] >> (4 * (i / 8 % 2)) & 15;
        unsigned index = b->qs[i] | (unsigned)(b->qh[i / 8] >> (i % 8) & 1) << 8;
        unsigned signs = b->signs[i / 2] >> (4 * (i % 2));
        float ds = d * (float)(2 * s + 1);
        for (int j = 0; j < 4; j++) {
            int v = quant_iq3_s_value(quant_grid_iq3_s[index] >> (3 * j));
            y[4 * i + j] = ds * (float)(signs >> j & 1 ? -v : v);
        }
    }
}

/* Eight values of an IQ1 grid entry, each shifted by an eighth: eightfold values, ds an eighth. */
static void put_iq1(unsigned index, bool down, float ds, float *y)
{
    uint16_t entry = quant_grid_iq1_s[index];
    for (int j = 0; j < 8; j++)
        y[j] = ds * (float)(8 * quant_iq1_value(entry >> (2 * j)) + (down ? -1 : 1));
}

void quant_block_iq1_s(const void *blk, float *y)
{
    const struct blk_iq1_s *b = blk;
    float d = quant_f16_to_f32(b->d) * 0.125f;
    for (int i = 0; i < 32; i++) {
        unsigned h = b->qh[i / 4];
        unsigned index = b->qs[i] | (h >> (3 * (i % 4)) & 7) << 8;
        put_iq1(index, h >> 15 & 1, d * (float)(2 * (h >> 12 & 7) + 1), y + 8 * i);
    }
}

void quant_block_iq1_m(const void *blk, float *y)
{
    const struct blk_iq1_m *b = blk;
    uint16_t sc[4];
    memcpy(sc, b->scales, sizeof sc);
    unsigned d_bits = sc[0] >> 12 | (sc[1] >> 8 & 0xf0) | (sc[2] >> 4 & 0xf00) | (sc[3] & 0xf000);
    float d = quant_f16_to_f32((uint16_t)d_bits) * 0.125f;
    for (int i = 0; i < 32; i++) {
        unsigned h = b->qh[i / 2] >> (4 * (i % 2)) & 15;
        unsigned s = sc[i / 8] >> (3 * (i / 2 % 4)) & 7;
        put_iq1(b->qs[i] | (h & 7) << 8, h >> 3, d * (float)(2 * s + 1), y + 8 * i);
    }
}

void quant_block_iq4_xs(const void *blk, float *y)
{
    const struct blk_iq4_xs *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int g = 0; g < 8; g++) {
        int low = b->scales_l[g / 2] >> (4 * (g % 2)) & 15;
        int high = b->scales_h >> (2 * g) & 3;
        float ds = d * (float)((low | high << 4) - 32);
        for (int j = 0; j < 16; j++) {
            y[32 * g + j] = ds * (float)quant_iq4_values[b->qs[16 * g + j] & 15];
            y[32 * g + 16 + j] = ds * (float)quant_iq4_values[b->qs[16 * g + j] >> 4];
        }
    }
}
