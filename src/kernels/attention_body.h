/* attention_body.h: attention over tiles of keys, compiled once per CPU level.
 *
 * Included by the files that provide a level. A level gives two functions, the products of a chunk
 * with the keys and with the values; the softmax between them and the merging of chunks are here.
 *
 * The definition (docs/arithmetic.md, attention). Keys are taken in chunks of 256 at absolute
 * positions. Per query head and chunk, over the visible keys t, rising:
 *
 *   s_t = +0; s_t = fma(q_j, k_tj, s_t), j rising; s_t = s_t * scale; s_t = cap * tanh(s_t / cap)
 *   m = max s_t; p_t = exp(s_t - m); l = sum of p_t in sixteen lanes by position % 16, tree
 *   o_j = +0; o_j = fma(p_t, v_tj, o_j), t rising
 *   first chunk: M, L, O = m, l, o
 *   others: n = max(m, M); a = exp(M - n); b = exp(m - n); L = fma(L, a, l * b);
 *           O_j = fma(O_j, a, o_j * b); M = n
 *
 * at the end with a sink z: n = max(z, M); a = exp(M - n); L = fma(L, a, exp(z - n));
 * O_j = O_j * a; and the result is O_j / L. A score that is NaN or +inf gives a NaN result. */
#ifndef KERNELS_ATTENTION_BODY_H
#define KERNELS_ATTENTION_BODY_H

#include "kernels/attention.h"
#include "kernels/float_body.h"

/* Scores of tiles [tile0, tile0 + n_tiles), all inside one chunk, for all heads: the plain products
 * of all sixteen positions, visible or not, at s[head * ATTN_CHUNK + 16 * (tile - tile0)]. */
typedef void attn_scores_fn(const struct attn_args *a, int tile0, int n_tiles, float *s);
/* o[head * o_stride + j] = sum over positions [lo, hi] of p[head * ATTN_CHUNK + t - lo] * v_tj. */
typedef void attn_values_fn(const struct attn_args *a, const float *p, int lo, int hi, float *o,
                            int o_stride);

/* s[0 .. 16 n_tiles) of one head, of which [first, last] are visible, to p. Returns m, sets *l. */
static float attn_softmax(const struct attn_args *a, float *s, int n_tiles, int first, int last,
                          float *l)
{
    const float scale = a->scale, cap = a->softcap;
    float max[16], lanes[16] = {0};

    for (int j = 0; j < 16; j++)
        max[j] = -INFINITY;
    for (int i = 0; i < n_tiles * 16; i += 16) {
        float x[16];
        memcpy(x, s + i, sizeof x);
        for (int j = 0; j < 16; j++)
            x[j] = x[j] * scale;
        if (cap != 0)
            for (int j = 0; j < 16; j++)
                x[j] = cap * math_tanh(x[j] / cap);
        if (i < first || i + 15 > last)
            for (int j = 0; j < 16; j++)
                x[j] = i + j >= first && i + j <= last ? x[j] : -INFINITY;
        for (int j = 0; j < 16; j++)
            max[j] = x[j] > max[j] ? x[j] : max[j];
        memcpy(s + i, x, sizeof x);
    }
    for (int h = 8; h; h >>= 1)
        for (int j = 0; j < h; j++)
            max[j] = max[j + h] > max[j] ? max[j + h] : max[j];
    /* Hidden keys are -inf by now: exp makes them +0, which changes no lane. */
    for (int i = 0; i < n_tiles * 16; i += 16) {
        float x[16];
        memcpy(x, s + i, sizeof x);
        for (int j = 0; j < 16; j++)
            x[j] = math_exp(x[j] - max[0]);
        for (int j = 0; j < 16; j++)
            lanes[j] = lanes[j] + x[j];
        memcpy(s + i, x, sizeof x);
    }
    *l = lanes_reduce(lanes);
    return max[0];
}

/* Merge a chunk's (m, l, o) into the head's (*M, *L, O). */
static void attn_merge(float m, float l, const float *o, float *M, float *L, float *O, int dim)
{
    const float n = m > *M ? m : *M;
    const float a = math_exp(*M - n), b = math_exp(m - n);

    *L = fmaf(*L, a, l * b);
    *M = n;
    int i = 0;
    for (; i <= dim - 16; i += 16) {
        float x[16];
        for (int j = 0; j < 16; j++)
            x[j] = fmaf(O[i + j], a, o[i + j] * b);
        for (int j = 0; j < 16; j++)
            O[i + j] = x[j];
    }
    for (; i < dim; i++)
        O[i] = fmaf(O[i], a, o[i] * b);
}

static void attn_finish(const float *sink, float M, float L, float *O, int dim)
{
    if (sink) {
        const float z = *sink;
        const float n = z > M ? z : M;
        const float a = math_exp(M - n);
        L = fmaf(L, a, math_exp(z - n));
        lanes_run(scale_lanes, O, O, a, dim, O);
    }
    lanes_run(divide_lanes, O, O, L, dim, O);
}

/* The whole operation; O lives in a->out. Scratch: scores of all heads, a chunk's o, then M and L
 * of all chunks so far and m and l of this one. */
static void attn_run(const struct attn_args *a, attn_scores_fn *scores, attn_values_fn *values)
{
    const int o_stride = (a->dim_v + 15) / 16 * 16, n_q = a->n_q;
    const int first_chunk = a->first / ATTN_CHUNK;
    float *s = a->scratch;
    float *o = s + (size_t)n_q * ATTN_CHUNK;
    float *M = o + (size_t)n_q * (size_t)o_stride, *L = M + n_q, *m = L + n_q, *l = m + n_q;

    for (int chunk = first_chunk; chunk <= a->pos / ATTN_CHUNK; chunk++) {
        const int begin = chunk * ATTN_CHUNK;
        const int lo = a->first > begin ? a->first : begin;
        const int hi = a->pos - begin < ATTN_CHUNK ? a->pos : begin + ATTN_CHUNK - 1;
        const int tile0 = lo / 16, n_tiles = hi / 16 - tile0 + 1, skip = lo - tile0 * 16;

        scores(a, tile0, n_tiles, s);
        for (int h = 0; h < n_q; h++)
            m[h] = attn_softmax(a, s + (size_t)h * ATTN_CHUNK, n_tiles, skip, skip + hi - lo,
                                l + h);
        values(a, s + skip, lo, hi, o, o_stride);
        for (int h = 0; h < n_q; h++) {
            float *out = a->out + (size_t)h * a->out_stride;
            const float *oh = o + (size_t)h * (size_t)o_stride;

            if (chunk > first_chunk) {
                attn_merge(m[h], l[h], oh, M + h, L + h, out, a->dim_v);
                continue;
            }
            M[h] = m[h];
            L[h] = l[h];
            memcpy(out, oh, (size_t)a->dim_v * sizeof *out);
        }
    }
    for (int h = 0; h < n_q; h++)
        attn_finish(a->sinks ? a->sinks + h : NULL, M[h], L[h], a->out + (size_t)h * a->out_stride,
                    a->dim_v);
}

#endif
