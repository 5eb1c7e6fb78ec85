/* check_float_mutants.c: the test of the test. Each definition that is slightly wrong, in the way
 * in which fast code is usually wrong, must be noticed by check_float. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_float.h"
#include "kernels/math32.h"

static float dot_one_lane(const float *a, const float *b, int n)
{
    float s = 0;

    for (int i = 0; i < n; i++)
        s = fmaf(a[i], b[i], s);
    return s;
}

static float dot_without_fma(const float *a, const float *b, int n)
{
    float l[16] = {0};

    for (int i = 0; i < n; i++)
        l[i % 16] = l[i % 16] + a[i] * b[i];
    for (int s = 8; s; s >>= 1)
        for (int i = 0; i < s; i++)
            l[i] = l[i] + l[i + s];
    return l[0];
}

static float sum_neighbours(const float *a, int n)
{
    float l[16] = {0};

    for (int i = 0; i < n; i++)
        l[i % 16] = l[i % 16] + a[i];
    for (int s = 1; s < 16; s <<= 1)
        for (int i = 0; i < 16; i += 2 * s)
            l[i] = l[i] + l[i + s];
    return l[0];
}

static void axpy_without_fma(float a, const float *x, int n, float *y)
{
    for (int i = 0; i < n; i++)
        y[i] = y[i] + a * x[i];
}

static void rope_other_product(float *x, int n_rot, const float *c, const float *s, bool half)
{
    const int n = n_rot / 2, step = half ? 1 : 2, other = half ? n : 1;

    for (int i = 0; i < n; i++) {
        float *p = x + i * step;
        const float x0 = p[0], x1 = p[other];
        p[0] = fmaf(-x1, s[i], x0 * c[i]);
        p[other] = fmaf(x0, s[i], x1 * c[i]);
    }
}

static bool softmax_reciprocal(float *x, int n)
{
    float max = x[0], l[16] = {0};

    for (int i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < n; i++) {
        x[i] = math_exp(x[i] - max);
        l[i % 16] = l[i % 16] + x[i];
    }
    for (int s = 8; s; s >>= 1)
        for (int i = 0; i < s; i++)
            l[i] = l[i] + l[i + s];
    for (int i = 0; i < n; i++)
        x[i] = x[i] * (1.0f / l[0]);
    return !math_not_finite(max) && !math_not_finite(l[0]);
}

static void rms_norm_one_product(const float *x, const float *w, int n, float eps, float *y)
{
    struct kernels k;

    kernels_init(&k, KL_SCALAR);
    const float r = 1.0f / sqrtf(k.dot(x, x, n) / (float)n + eps);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * (r * (w ? w[i] : 1.0f));
}

static void exp_of_libm(const float *x, int n, float *y)
{
    for (int i = 0; i < n; i++)
        y[i] = expf(x[i] > 88 ? 88 : x[i]);
}

/* The scale goes into the query. */
static void attention_scaled_query(const struct attn_args *a)
{
    static float q[64 * 1024];
    struct kernels k;
    struct attn_args b = *a;
    const int n_tok = a->n_tok ? a->n_tok : 1;

    kernels_init(&k, KL_SCALAR);
    for (int i = 0; i < n_tok * a->n_q; i++) {
        const float *from = a->q + (size_t)(i / a->n_q) * a->q_tok +
                            (size_t)(i % a->n_q) * a->q_stride;
        for (int j = 0; j < a->dim_k; j++)
            q[i * 1024 + j] = from[j] * a->scale;
    }
    b.q = q;
    b.q_stride = 1024;
    b.q_tok = (size_t)a->n_q * 1024;
    b.scale = 1;
    k.attention(&b);
}

static uint16_t truncated_f16(float x)
{
    const uint32_t u = math_bits(x);

    return math_abs(x) < 0x1p-14f || math_abs(x) > 65504
               ? 0
               : (uint16_t)((u >> 16 & 0x8000) | ((u & 0x7fffffff) - (112u << 23)) >> 13);
}

static void store_truncated(const float *v, int dim, void *base, int pos, enum kv_type type)
{
    struct kernels k;
    uint16_t *row = (uint16_t *)base + (size_t)pos * (size_t)dim;

    kernels_init(&k, KL_SCALAR);
    k.store_v(v, dim, base, pos, type);
    for (int j = 0; j < dim && type == KV_F16; j++)
        row[j] = truncated_f16(v[j]);
}

/* Q8_0 with the scale before its rounding to F16, and ties away from zero. */
static void store_q8(const float *v, int dim, void *base, int pos, enum kv_type type, bool exact_d)
{
    struct kernels k;
    uint8_t *row = (uint8_t *)base + (size_t)pos * kern_kv_row_bytes(type, dim);

    kernels_init(&k, KL_SCALAR);
    k.store_v(v, dim, base, pos, type);
    for (int j = 0; j < dim && type == KV_Q8_0; j++) {
        float max = 0, d;
        uint16_t h;
        for (int i = j / 32 * 32; i < j / 32 * 32 + 32; i++)
            max = math_abs(v[i]) > max ? math_abs(v[i]) : max;
        memcpy(&h, row + j / 32 * 2, sizeof h);
        d = exact_d ? max / 127 : math_from_f16(h);
        if (h == 0 || h >= 0x7c00)
            continue;
        const float y = exact_d ? rintf(v[j] / d) : roundf(v[j] / d);
        row[dim / 32 * 2 + j] = (uint8_t)(int8_t)(y > 127 ? 127 : y < -127 ? -127 : y);
    }
}

static void store_q8_exact_scale(const float *v, int dim, void *base, int pos, enum kv_type type)
{
    store_q8(v, dim, base, pos, type, true);
}

static void store_q8_ties_away(const float *v, int dim, void *base, int pos, enum kv_type type)
{
    store_q8(v, dim, base, pos, type, false);
}

/* Pieces merged from the last to the first. */
static void merge_backwards(const struct attn_args *a, int h0, int h1)
{
    struct kernels k;
    struct attn_args b = *a;
    const size_t part = kern_attn_part(a->dim_v), n_q = (size_t)a->n_q;
    const size_t row = n_q * part;
    int first = a->first;

    kernels_init(&k, KL_SCALAR);
    if (a->window && a->pos - a->window + 1 > first)
        first = a->pos - a->window + 1;
    const size_t n = (size_t)(a->pos / ATTN_CHUNK - first / ATTN_CHUNK + 1);
    float *copy = malloc(n * row * sizeof *copy);
    for (size_t i = 0; i < n; i++)
        memcpy(copy + i * row, a->parts + (n - 1 - i) * row, row * sizeof *copy);
    b.parts = copy;
    k.attention_merge(&b, h0, h1);
    free(copy);
}

/* Replace one function of the level under test. */
static const char *mutate(struct kernels *k, int i)
{
    switch (i) {
    case 0:
        k->dot = dot_one_lane;
        return "dot in one lane";
    case 1:
        k->dot = dot_without_fma;
        return "dot without fma";
    case 2:
        k->sum = sum_neighbours;
        return "sum of neighbours";
    case 3:
        k->axpy = axpy_without_fma;
        return "axpy without fma";
    case 4:
        k->rope = rope_other_product;
        return "rope with the other product rounded";
    case 5:
        k->softmax = softmax_reciprocal;
        return "softmax by the reciprocal";
    case 6:
        k->rms_norm = rms_norm_one_product;
        return "rms_norm x * (r * w)";
    case 7:
        k->map[MF_EXP] = exp_of_libm;
        return "the library's exp";
    case 8:
        k->attention = attention_scaled_query;
        return "scale in the query";
    case 9:
        k->store_v = store_truncated;
        return "F16 by truncation";
    case 10:
        k->store_v = store_q8_exact_scale;
        return "Q8_0 with the scale not rounded";
    case 11:
        k->store_v = store_q8_ties_away;
        return "Q8_0 with ties away from zero";
    case 12:
        k->attention_merge = merge_backwards;
        return "chunks merged backwards";
    default:
        return NULL;
    }
}

int main(void)
{
    int missed = 0;

    for (int i = -1;; i++) {
        struct check c;
        const char *name = "the definition itself";

        check_init(&c, KL_SCALAR, 1);
        c.quiet = i >= 0;
        if (i >= 0)
            name = mutate(&c.k, i);
        if (!name)
            return missed != 0;
        check_float_ops(&c);
        check_float_attention(&c);
        const bool right = i < 0 ? c.n_failed == 0 : c.n_failed > 0;
        printf("%s: %u of %u comparisons differ%s\n", name, c.n_failed, c.n_compared,
               right ? "" : ": WRONG");
        missed += !right;
    }
}
