/* float_body.h: the float operations of the kernel table, compiled once per CPU level.
 *
 * Included by exactly the files that provide a level (float_scalar.c is the definition). Everything
 * is written over sixteen lanes with a fixed trip count, which the compiler turns into the widest
 * vectors of its level; it cannot change a bit, because no operation may be contracted or
 * reordered. Values go through local arrays of sixteen, so that outputs may be inputs and nothing
 * outside the n values is touched. */
#ifndef KERNELS_FLOAT_BODY_H
#define KERNELS_FLOAT_BODY_H

#include "kernels/kernels.h"
#include "kernels/math32.h"

/* The next m = min(16, n - i) values, +0 behind them. Returns m. */
static inline int lanes_load(float a[16], const float *x, int i, int n)
{
    const int m = n - i < 16 ? n - i : 16;

    if (m == 16) {
        memcpy(a, x + i, 16 * sizeof *a);
        return m;
    }
    memset(a, 0, 16 * sizeof *a);
    memcpy(a, x + i, (size_t)m * sizeof *a);
    return m;
}

static inline void lanes_store(float *y, int i, const float a[16], int m)
{
    if (m == 16)
        memcpy(y + i, a, 16 * sizeof *a);
    else
        memcpy(y + i, a, (size_t)m * sizeof *a);
}

/* l[i] + l[i + 8], then 4, 2, 1. */
static inline float lanes_reduce(float l[16])
{
    for (int s = 8; s; s >>= 1)
        for (int i = 0; i < s; i++)
            l[i] = l[i] + l[i + s];
    return l[0];
}

/* l[i % 16] = fma(a_i, b_i, l[i % 16]) from +0, i rising, inputs extended by +0 to a multiple of
 * sixteen; then the tree. */
static float float_dot(const float *a, const float *b, int n)
{
    float l[16] = {0};
    float x[16], y[16];

    for (int i = 0; i < n; i += 16) {
        lanes_load(x, a, i, n);
        lanes_load(y, b, i, n);
        for (int j = 0; j < 16; j++)
            l[j] = fmaf(x[j], y[j], l[j]);
    }
    return lanes_reduce(l);
}

/* l[i % 16] = l[i % 16] + a_i, as above. */
static float float_sum(const float *a, int n)
{
    float l[16] = {0};
    float x[16];

    for (int i = 0; i < n; i += 16) {
        lanes_load(x, a, i, n);
        for (int j = 0; j < 16; j++)
            l[j] = l[j] + x[j];
    }
    return lanes_reduce(l);
}

/* r = 1 / sqrt(dot(x, x) / n + eps); y_i = (x_i * r) * w_i. */
static void float_rms_norm(const float *x, const float *w, int n, float eps, float *y)
{
    const float r = 1.0f / sqrtf(float_dot(x, x, n) / (float)n + eps);
    float a[16], b[16];

    for (int i = 0; i < n; i += 16) {
        const int m = lanes_load(a, x, i, n);
        for (int j = 0; j < 16; j++)
            a[j] = a[j] * r;
        if (w) {
            lanes_load(b, w, i, n);
            for (int j = 0; j < 16; j++)
                a[j] = a[j] * b[j];
        }
        lanes_store(y, i, a, m);
    }
}

static void float_add(const float *x, const float *y, int n, float *z)
{
    float a[16], b[16];

    for (int i = 0; i < n; i += 16) {
        const int m = lanes_load(a, x, i, n);
        lanes_load(b, y, i, n);
        for (int j = 0; j < 16; j++)
            a[j] = a[j] + b[j];
        lanes_store(z, i, a, m);
    }
}

static void float_axpy(float s, const float *x, int n, float *y)
{
    float a[16], b[16];

    for (int i = 0; i < n; i += 16) {
        const int m = lanes_load(a, x, i, n);
        lanes_load(b, y, i, n);
        for (int j = 0; j < 16; j++)
            b[j] = fmaf(s, a[j], b[j]);
        lanes_store(y, i, b, m);
    }
}

static void float_swiglu(const float *g, const float *u, int n, float *y)
{
    float a[16], b[16];

    for (int i = 0; i < n; i += 16) {
        const int m = lanes_load(a, g, i, n);
        lanes_load(b, u, i, n);
        for (int j = 0; j < 16; j++)
            a[j] = math_silu(a[j]) * b[j];
        lanes_store(y, i, a, m);
    }
}

/* y0 = fma(x0, c, -(x1 * s)); y1 = fma(x0, s, x1 * c). */
static void float_rope(float *x, int n_rot, const float *cosines, const float *sines, bool half)
{
    const int n = n_rot / 2;

    if (!half) {
        for (int i = 0; i < n; i++) {
            const float x0 = x[2 * i], x1 = x[2 * i + 1], c = cosines[i], s = sines[i];
            x[2 * i] = fmaf(x0, c, -(x1 * s));
            x[2 * i + 1] = fmaf(x0, s, x1 * c);
        }
        return;
    }
    float x0[16], x1[16], c[16], s[16], y[16];
    for (int i = 0; i < n; i += 16) {
        const int m = lanes_load(x0, x, i, n);
        lanes_load(x1, x + n, i, n);
        lanes_load(c, cosines, i, n);
        lanes_load(s, sines, i, n);
        for (int j = 0; j < 16; j++)
            y[j] = fmaf(x0[j], c[j], -(x1[j] * s[j]));
        for (int j = 0; j < 16; j++)
            x1[j] = fmaf(x0[j], s[j], x1[j] * c[j]);
        lanes_store(x, i, y, m);
        lanes_store(x + n, i, x1, m);
    }
}

/* max(a, b) is a > b ? a : b. Maxima are exact in any order but for the sign of a zero, which
 * x - max and exp of it do not show. NaN is skipped here and found in the sum. */
static float float_max(const float *x, int n)
{
    float l[16], a[16];

    for (int j = 0; j < 16; j++)
        l[j] = -INFINITY;
    for (int i = 0; i < n; i += 16) {
        const int m = lanes_load(a, x, i, n);
        if (m < 16)
            for (int j = m; j < 16; j++)
                a[j] = -INFINITY;
        for (int j = 0; j < 16; j++)
            l[j] = a[j] > l[j] ? a[j] : l[j];
    }
    for (int s = 8; s; s >>= 1)
        for (int j = 0; j < s; j++)
            l[j] = l[j + s] > l[j] ? l[j + s] : l[j];
    return l[0];
}

/* e_i = exp(x_i - max), then e_i / sum(e). */
static bool float_softmax(float *x, int n)
{
    const float max = float_max(x, n);
    float a[16];

    if (math_not_finite(max))
        return false;
    for (int i = 0; i < n; i += 16) {
        const int m = lanes_load(a, x, i, n);
        for (int j = 0; j < 16; j++)
            a[j] = math_exp(a[j] - max);
        lanes_store(x, i, a, m);
    }
    const float sum = float_sum(x, n);
    if (math_not_finite(sum))
        return false;
    for (int i = 0; i < n; i += 16) {
        const int m = lanes_load(a, x, i, n);
        for (int j = 0; j < 16; j++)
            a[j] = a[j] / sum;
        lanes_store(x, i, a, m);
    }
    return true;
}

static float float_exp1(float x)
{
    return math_exp(x);
}

/* float_map_NAME: y_i = math_NAME(x_i). */
#define FLOAT_MAP(name)                                                                            \
    static void float_map_##name(const float *x, int n, float *y)                                  \
    {                                                                                              \
        float a[16];                                                                               \
                                                                                                   \
        for (int i = 0; i < n; i += 16) {                                                          \
            const int m = lanes_load(a, x, i, n);                                                  \
            for (int j = 0; j < 16; j++)                                                           \
                a[j] = math_##name(a[j]);                                                          \
            lanes_store(y, i, a, m);                                                               \
        }                                                                                          \
    }
FLOAT_MAP(exp)
FLOAT_MAP(exp2)
FLOAT_MAP(log)
FLOAT_MAP(log1p)
FLOAT_MAP(sigmoid)
FLOAT_MAP(silu)
FLOAT_MAP(gelu_tanh)
FLOAT_MAP(gelu_erf)
FLOAT_MAP(tanh)
FLOAT_MAP(softplus)
#undef FLOAT_MAP

/* Enter everything above into the table. */
static void float_fill(struct kernels *k)
{
    k->rms_norm = float_rms_norm;
    k->add = float_add;
    k->axpy = float_axpy;
    k->swiglu = float_swiglu;
    k->rope = float_rope;
    k->softmax = float_softmax;
    k->dot = float_dot;
    k->sum = float_sum;
    k->exp1 = float_exp1;
    k->map[MF_EXP] = float_map_exp;
    k->map[MF_EXP2] = float_map_exp2;
    k->map[MF_LOG] = float_map_log;
    k->map[MF_LOG1P] = float_map_log1p;
    k->map[MF_SIGMOID] = float_map_sigmoid;
    k->map[MF_SILU] = float_map_silu;
    k->map[MF_GELU_TANH] = float_map_gelu_tanh;
    k->map[MF_GELU_ERF] = float_map_gelu_erf;
    k->map[MF_TANH] = float_map_tanh;
    k->map[MF_SOFTPLUS] = float_map_softplus;
}

#endif
