/* check_float_mutants.c: the test of the test. Each definition that is slightly wrong, in the way
 * in which fast code is usually wrong, must be noticed by check_float. */
#include <stdio.h>
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
    static float q[16 * 1024];
    struct kernels k;
    struct attn_args b = *a;

    kernels_init(&k, KL_SCALAR);
    for (int h = 0; h < a->n_q; h++)
        for (int j = 0; j < a->dim_k; j++)
            q[h * 1024 + j] = a->q[(size_t)h * a->q_stride + (size_t)j] * a->scale;
    b.q = q;
    b.q_stride = 1024;
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
    for (int j = 0; j < dim; j++)
        if (type == KV_F32)
            ((float *)base)[pos * dim + j] = v[j];
        else
            ((uint16_t *)base)[pos * dim + j] = truncated_f16(v[j]);
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
