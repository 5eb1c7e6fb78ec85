/* mat_scalar_iq.c: the definition of the products with IQ1, IQ2, IQ3 and IQ4_XS weights: blocks of
 * 256 values from codebooks (mat_scalar_ints.h has the sequence of operations). The codes of the
 * grids stand for integers; d is divided where these are multiples of what the format means. */
#include "kernels/mat_scalar_ints.h"
#include "quant/grids.h"

static inline uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* Run i of eight values. */
static inline void put_iq2(struct mat_ints *b, int i, unsigned entry, unsigned signs)
{
    for (int j = 0; j < 8; j++) {
        const int v = quant_iq2_value(entry >> 2 * j);
        b->v[i * 8 + j] = (int8_t)(signs >> j & 1 ? -v : v);
    }
}

/* An odd scale 2s + 1 of the groups from g on. */
static inline void put_scale(struct mat_ints *b, int g, int n, unsigned s)
{
    for (int i = 0; i < n; i++)
        b->scale[g + i] = (int8_t)(2 * s + 1);
}

static void ints_iq2_xxs(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_iq2_xxs *w = (const void *)blk;

    b->d = quant_f16_to_f32(w->d) * 0.125f;
    for (int g = 0; g < 8; g++) {
        const uint8_t *q = w->qs + 8 * g;
        const uint32_t u = load_u32(q + 4);
        put_scale(b, 2 * g, 2, u >> 28);
        for (int l = 0; l < 4; l++)
            put_iq2(b, 4 * g + l, quant_grid_iq2_xxs[q[l]], quant_signs8(u >> 7 * l));
    }
}

static void ints_iq2_xs(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_iq2_xs *w = (const void *)blk;

    b->d = quant_f16_to_f32(w->d) * 0.125f;
    for (int g = 0; g < 16; g++)
        put_scale(b, g, 1, w->scales[g / 2] >> g % 2 * 4 & 15);
    for (int i = 0; i < 32; i++)
        put_iq2(b, i, quant_grid_iq2_xs[w->qs[i] & 511], quant_signs8(w->qs[i] >> 9));
}

static void ints_iq2_s(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_iq2_s *w = (const void *)blk;

    b->d = quant_f16_to_f32(w->d) * 0.125f;
    for (int g = 0; g < 16; g++)
        put_scale(b, g, 1, w->scales[g / 2] >> g % 2 * 4 & 15);
    for (int i = 0; i < 32; i++) {
        const unsigned high = w->qh[i / 4] >> i % 4 * 2 & 3;
        put_iq2(b, i, quant_grid_iq2_s[w->qs[i] | high << 8], w->signs[i]);
    }
}

static void ints_iq3_xxs(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_iq3_xxs *w = (const void *)blk;

    b->d = quant_f16_to_f32(w->d) * 0.25f;
    for (int i = 0; i < 64; i++) { /* four values each */
        const uint32_t u = load_u32(w->sas + i / 8 * 4);
        const unsigned signs = quant_signs8(u >> i / 2 % 4 * 7) >> i % 2 * 4;
        const unsigned entry = quant_grid_iq3_xxs[w->qs[i]];
        put_scale(b, i / 4, 1, u >> 28);
        for (int j = 0; j < 4; j++) {
            const int v = quant_iq3_xxs_value(entry >> 3 * j);
            b->v[i * 4 + j] = (int8_t)(signs >> j & 1 ? -v : v);
        }
    }
}

static void ints_iq3_s(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_iq3_s *w = (const void *)blk;

    b->d = quant_f16_to_f32(w->d);
    for (int g = 0; g < 8; g++)
        put_scale(b, 2 * g, 2, w->scales[g / 2] >> g % 2 * 4 & 15);
    for (int i = 0; i < 64; i++) { /* four values each */
        const unsigned high = w->qh[i / 8] >> i % 8 & 1;
        const unsigned signs = w->signs[i / 2] >> i % 2 * 4;
        const unsigned entry = quant_grid_iq3_s[w->qs[i] | high << 8];
        for (int j = 0; j < 4; j++) {
            const int v = quant_iq3_s_value(entry >> 3 * j);
            b->v[i * 4 + j] = (int8_t)(signs >> j & 1 ? -v : v);
        }
    }
}

/* Run i of eight values: eightfold, so that the shift by an eighth is +1 or, down, -1. */
static inline void put_iq1(struct mat_ints *b, int i, unsigned index, bool down)
{
    const unsigned entry = quant_grid_iq1_s[index];

    for (int j = 0; j < 8; j++)
        b->v[i * 8 + j] = (int8_t)(8 * quant_iq1_value(entry >> 2 * j) + (down ? -1 : 1));
}

static void ints_iq1_s(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_iq1_s *w = (const void *)blk;

    b->d = quant_f16_to_f32(w->d) * 0.125f;
    for (int g = 0; g < 8; g++)
        put_scale(b, 2 * g, 2, w->qh[g] >> 12 & 7);
    for (int i = 0; i < 32; i++) {
        const unsigned h = w->qh[i / 4];
        put_iq1(b, i, w->qs[i] | (h >> i % 4 * 3 & 7) << 8, h >> 15);
    }
}

static void ints_iq1_m(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_iq1_m *w = (const void *)blk;
    uint16_t sc[4];

    memcpy(sc, w->scales, sizeof sc);
    b->d = quant_f16_to_f32(mat_d_iq1_m(blk)) * 0.125f;
    for (int g = 0; g < 16; g++)
        put_scale(b, g, 1, sc[g / 4] >> g % 4 * 3 & 7);
    for (int i = 0; i < 32; i++) {
        const unsigned h = w->qh[i / 2] >> i % 2 * 4 & 15;
        put_iq1(b, i, w->qs[i] | (h & 7) << 8, h >> 3);
    }
}

/* Groups of 32: scales of 4 and 2 bits - 32; nibbles as in IQ4_NL. */
static void ints_iq4_xs(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_iq4_xs *w = (const void *)blk;

    b->d = quant_f16_to_f32(w->d);
    for (int g = 0; g < 8; g++) {
        const int low = w->scales_l[g / 2] >> g % 2 * 4 & 15, high = w->scales_h >> 2 * g & 3;
        const uint8_t *q = w->qs + g * 16;
        b->scale[2 * g] = b->scale[2 * g + 1] = (int8_t)((low | high << 4) - 32);
        for (int j = 0; j < 16; j++) {
            b->v[g * 32 + j] = quant_iq4_values[q[j] & 15];
            b->v[g * 32 + 16 + j] = quant_iq4_values[q[j] >> 4];
        }
    }
}

MAT_OF_INTS(iq2_xxs, blk_iq2_xxs, false)
MAT_OF_INTS(iq2_xs, blk_iq2_xs, false)
MAT_OF_INTS(iq2_s, blk_iq2_s, false)
MAT_OF_INTS(iq3_xxs, blk_iq3_xxs, false)
MAT_OF_INTS(iq3_s, blk_iq3_s, false)
MAT_OF_INTS(iq1_s, blk_iq1_s, false)
MAT_OF_INTS(iq1_m, blk_iq1_m, false)
MAT_OF_INTS(iq4_xs, blk_iq4_xs, false)

void kernels_mat_scalar_iq(struct kernels *k)
{
    k->mat[QT_IQ2_XXS] = (struct mat_kernel){ACT_Q256, mat_iq2_xxs, mat_iq2_xxs};
    k->mat[QT_IQ2_XS] = (struct mat_kernel){ACT_Q256, mat_iq2_xs, mat_iq2_xs};
    k->mat[QT_IQ2_S] = (struct mat_kernel){ACT_Q256, mat_iq2_s, mat_iq2_s};
    k->mat[QT_IQ3_XXS] = (struct mat_kernel){ACT_Q256, mat_iq3_xxs, mat_iq3_xxs};
    k->mat[QT_IQ3_S] = (struct mat_kernel){ACT_Q256, mat_iq3_s, mat_iq3_s};
    k->mat[QT_IQ1_S] = (struct mat_kernel){ACT_Q256, mat_iq1_s, mat_iq1_s};
    k->mat[QT_IQ1_M] = (struct mat_kernel){ACT_Q256, mat_iq1_m, mat_iq1_m};
    k->mat[QT_IQ4_XS] = (struct mat_kernel){ACT_Q256, mat_iq4_xs, mat_iq4_xs};
}
