/* quantise_k.c: super-blocks of 256 values: groups are fitted alone, their scales are rounded to
 * integers times the block's, and then both are improved in turns: each group tries the integers
 * around its own, the block's scales follow by least squares. */
#include "quant/quantise.h"

#include "quant/blocks.h"
#include "quant/quant.h"

#include <string.h>

#define ROUNDS     2 /* of improving groups and block in turns */
#define MAX_GROUPS 16

static bool finite_f16(uint16_t h)
{
    return (h & 0x7c00) != 0x7c00;
}

/* ---- Groups of 16 with a signed scale: Q3_K, Q6_K ---- */

struct signed_block {
    int lo, hi;   /* of values */
    int scale_lo; /* scales are scale_lo to -scale_lo - 1 */
    float d;      /* a binary16 number */
    int scale[MAX_GROUPS];
    int8_t q[256];
};

/* The integer scale of one group for a given d; the least error wins, near ones are tried. */
static float settle_signed(struct signed_block *b, const float *x, int g, int first, int reach,
                           struct quant_sums *sums)
{
    float best = 0;
    int at = first, low = b->scale_lo, high = -b->scale_lo - 1;
    for (int s = first - reach; s <= first + reach; s++) {
        if (s < low || s > high)
            continue;
        float e = quant_round_signed(x, 16, b->d * (float)s, b->lo, b->hi, NULL, NULL);
        if (s == first - reach || s == low || e < best) {
            best = e;
            at = s;
        }
    }
    b->scale[g] = at;
    return quant_round_signed(x, 16, b->d * (float)at, b->lo, b->hi, b->q + 16 * g, sums);
}

/* All groups settled for b->d; the error, and the least-squares d of the integers chosen. */
static float settle_all_signed(struct signed_block *b, const float *x, const float *want, float *d)
{
    float err = 0, num = 0, den = 0;
    for (int g = 0; g < 16; g++) {
        struct quant_sums s;
        float w = b->d != 0 ? want[g] / b->d : 0;
        int first = quant_nearest(w, b->scale_lo, -b->scale_lo - 1);
        err += settle_signed(b, x + 16 * g, g, first, 1, &s);
        num += (float)b->scale[g] * s.xq;
        den += (float)(b->scale[g] * b->scale[g]) * s.qq;
    }
    *d = den > 0 ? num / den : 0;
    return err;
}

static bool fit_signed_block(struct signed_block *b, const float *x)
{
    float want[16], top = 0;
    for (int g = 0; g < 16; g++) {
        want[g] = quant_fit_signed(x + 16 * g, 16, b->lo, b->hi);
        if ((want[g] < 0 ? -want[g] : want[g]) > (top < 0 ? -top : top))
            top = want[g];
    }
    struct signed_block now = *b;
    float d = top / (float)b->scale_lo, best = 0; /* the largest scale at the far end */
    for (int i = 0; i <= ROUNDS; i++) {
        uint16_t h = quant_f32_to_f16(d);
        if (!finite_f16(h))
            return i > 0;
        now.d = quant_f16_to_f32(h);
        float err = settle_all_signed(&now, x, want, &d);
        if (i > 0 && err >= best)
            break;
        best = err;
        *b = now;
    }
    return true;
}

/* Sixteen 6-bit scales, see dequant_k.c. */
static void put_q3_scales(const int *scale, uint8_t *s)
{
    memset(s, 0, 12);
    for (int g = 0; g < 16; g++) {
        int v = scale[g] + 32;
        s[g % 8] |= (uint8_t)((v & 15) << (4 * (g / 8)));
        s[8 + g % 4] |= (uint8_t)(v >> 4 << (2 * (g / 4)));
    }
}

bool quant_pack_q3_K(const float *x, void *blk)
{
    struct blk_q3_K *b = blk;
    struct signed_block s = {.lo = -4, .hi = 3, .scale_lo = -32};
    if (!fit_signed_block(&s, x))
        return false;
    memset(b, 0, sizeof *b);
    b->d = quant_f32_to_f16(s.d);
    put_q3_scales(s.scale, b->scales);
    for (int i = 0; i < 256; i++) {
        int q = s.q[i] + 4;
        b->qs[i / 128 * 32 + i % 32] |= (uint8_t)((q & 3) << (2 * (i / 32 % 4)));
        b->hmask[i % 32] |= (uint8_t)(q >> 2 << (i / 32));
    }
    return true;
}

bool quant_pack_q6_K(const float *x, void *blk)
{
    struct blk_q6_K *b = blk;
    struct signed_block s = {.lo = -32, .hi = 31, .scale_lo = -128};
    if (!fit_signed_block(&s, x))
        return false;
    memset(b, 0, sizeof *b);
    b->d = quant_f32_to_f16(s.d);
    for (int g = 0; g < 16; g++)
        b->scales[g] = (int8_t)s.scale[g];
    for (int i = 0; i < 256; i++) {
        int q = s.q[i] + 32, half = i / 128, part = i / 32 % 4;
        b->ql[64 * half + i % 64] |= (uint8_t)((q & 15) << (4 * (part / 2)));
        b->qh[32 * half + i % 32] |= (uint8_t)(q >> 4 << (2 * part));
    }
    return true;
}

/* ---- Groups with a scale and a minimum: Q2_K, Q4_K, Q5_K ---- */

struct offset_block {
    int n;         /* values of a group */
    int hi;        /* of values */
    int scale_hi;  /* of scales and minima */
    float d, dmin; /* binary16 numbers */
    int scale[MAX_GROUPS], min[MAX_GROUPS];
    int8_t q[256];
};

/* What a block's two scales are solved from: x = d * S * q - dmin * M in least squares. */
struct normal {
    float aa, ab, bb, ax, bx; /* a = S * q, b = -M */
};

static float settle_offset(struct offset_block *b, const float *x, int g, int s0, int m0,
                           struct normal *eq)
{
    float best = 0;
    bool found = false;
    int s_at = s0, m_at = m0;
    for (int s = s0 - 1; s <= s0 + 1; s++)
        for (int m = m0 - 1; m <= m0 + 1; m++) {
            if (s < 0 || s > b->scale_hi || m < 0 || m > b->scale_hi)
                continue;
            float e = quant_round_offset(x, b->n, b->d * (float)s, b->dmin * (float)m, b->hi, NULL,
                                         NULL);
            if (!found || e < best) {
                best = e;
                s_at = s;
                m_at = m;
                found = true;
            }
        }
    b->scale[g] = s_at;
    b->min[g] = m_at;
    struct quant_sums t;
    float sum = 0, sc = (float)s_at, mn = (float)m_at;
    best = quant_round_offset(x, b->n, b->d * sc, b->dmin * mn, b->hi, b->q + b->n * g, &t);
    for (int i = 0; i < b->n; i++)
        sum += x[i];
    eq->aa += sc * sc * t.qq;
    eq->ab -= sc * mn * t.q;
    eq->bb += mn * mn * (float)b->n;
    eq->ax += sc * t.xq;
    eq->bx -= mn * sum;
    return best;
}

/* New scales of the block; they stay as they are where the system says nothing. */
static void solve(const struct normal *e, float *d, float *dmin)
{
    float det = e->aa * e->bb - e->ab * e->ab;
    if (det > 1e-6f * e->aa * e->bb) {
        *d = (e->ax * e->bb - e->bx * e->ab) / det;
        *dmin = (e->aa * e->bx - e->ab * e->ax) / det;
    } else if (e->aa > 0) {
        *d = (e->ax - e->ab * *dmin) / e->aa;
    }
}

static bool fit_offset_block(struct offset_block *b, const float *x)
{
    float s[MAX_GROUPS], m[MAX_GROUPS], s_top = 0, m_top = 0, best = 0;
    int groups = 256 / b->n;
    for (int g = 0; g < groups; g++) {
        quant_fit_offset(x + b->n * g, b->n, b->hi, &s[g], &m[g]);
        s_top = s[g] > s_top ? s[g] : s_top;
        m_top = m[g] > m_top ? m[g] : m_top;
    }
    struct offset_block now = *b;
    float d = s_top / (float)b->scale_hi, dmin = m_top / (float)b->scale_hi;
    for (int i = 0; i <= ROUNDS; i++) {
        uint16_t h = quant_f32_to_f16(d), hmin = quant_f32_to_f16(dmin);
        if (!finite_f16(h) || !finite_f16(hmin) || d < 0 || dmin < 0)
            return i > 0;
        now.d = quant_f16_to_f32(h);
        now.dmin = quant_f16_to_f32(hmin);
        struct normal eq = {0};
        float err = 0;
        for (int g = 0; g < groups; g++) {
            int s0 = quant_nearest(now.d != 0 ? s[g] / now.d : 0, 0, b->scale_hi);
            int m0 = quant_nearest(now.dmin != 0 ? m[g] / now.dmin : 0, 0, b->scale_hi);
            err += settle_offset(&now, x + b->n * g, g, s0, m0, &eq);
        }
        if (i > 0 && err >= best)
            break;
        best = err;
        *b = now;
        solve(&eq, &d, &dmin);
    }
    return true;
}

bool quant_pack_q2_K(const float *x, void *blk)
{
    struct blk_q2_K *b = blk;
    struct offset_block s = {.n = 16, .hi = 3, .scale_hi = 15};
    if (!fit_offset_block(&s, x))
        return false;
    memset(b, 0, sizeof *b);
    b->d = quant_f32_to_f16(s.d);
    b->dmin = quant_f32_to_f16(s.dmin);
    for (int g = 0; g < 16; g++)
        b->scales[g] = (uint8_t)(s.scale[g] | s.min[g] << 4);
    for (int i = 0; i < 256; i++)
        b->qs[i / 128 * 32 + i % 32] |= (uint8_t)(s.q[i] << (2 * (i / 32 % 4)));
    return true;
}

/* Eight 6-bit scales and minima, see dequant_k.c. */
static void put_q4_scales(const int *scale, const int *min, uint8_t *s)
{
    memset(s, 0, 12);
    for (int g = 0; g < 4; g++) {
        s[g] = (uint8_t)(scale[g] | scale[g + 4] >> 4 << 6);
        s[g + 4] = (uint8_t)(min[g] | min[g + 4] >> 4 << 6);
        s[g + 8] = (uint8_t)((scale[g + 4] & 15) | (min[g + 4] & 15) << 4);
    }
}

bool quant_pack_q4_K(const float *x, void *blk)
{
    struct blk_q4_K *b = blk;
    struct offset_block s = {.n = 32, .hi = 15, .scale_hi = 63};
    if (!fit_offset_block(&s, x))
        return false;
    memset(b, 0, sizeof *b);
    b->d = quant_f32_to_f16(s.d);
    b->dmin = quant_f32_to_f16(s.dmin);
    put_q4_scales(s.scale, s.min, b->scales);
    for (int i = 0; i < 256; i++)
        b->qs[i / 64 * 32 + i % 32] |= (uint8_t)(s.q[i] << (4 * (i / 32 % 2)));
    return true;
}

bool quant_pack_q5_K(const float *x, void *blk)
{
    struct blk_q5_K *b = blk;
    struct offset_block s = {.n = 32, .hi = 31, .scale_hi = 63};
    if (!fit_offset_block(&s, x))
        return false;
    memset(b, 0, sizeof *b);
    b->d = quant_f32_to_f16(s.d);
    b->dmin = quant_f32_to_f16(s.dmin);
    put_q4_scales(s.scale, s.min, b->scales);
    for (int i = 0; i < 256; i++) {
        b->qs[i / 64 * 32 + i % 32] |= (uint8_t)((s.q[i] & 15) << (4 * (i / 32 % 2)));
        b->qh[i % 32] |= (uint8_t)(s.q[i] >> 4 << (i / 32));
    }
    return true;
}
