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

/* x[i .. n), fewer than sixteen values, +0 behind them. */
static inline void lanes_load_rest(float a[16], const float *x, int i, int n)
{
    memset(a, 0, 16 * sizeof *a);
    memcpy(a, x + i, (size_t)(n - i) * sizeof *a);
}

/* One block of an elementwise operation: y_j from a_j, b_j and s, j < 16. y may be a or b: a block
 * is read before it is written. */
typedef void lanes_fn(const float *a, const float *b, float s, float *y);

/* y_i = f(a_i, b_i, s), i < n. Always inlined, so that f is too. */
static inline __attribute__((always_inline)) void
lanes_run(lanes_fn *f, const float *a, const float *b, float s, int n, float *y)
{
    int i = 0;

    for (; i <= n - 16; i += 16)
        f(a + i, b + i, s, y + i);
    if (i < n) {
        float x[16], z[16];
        lanes_load_rest(x, a, i, n);
        lanes_load_rest(z, b, i, n);
        f(x, z, s, x);
        memcpy(y + i, x, (size_t)(n - i) * sizeof *y);
    }
}

/* The block NAME_lanes: y_j = EXPR of x = a_j, z = b_j and s. */
#define LANES(name, expr)                                                                          \
    static inline __attribute__((always_inline)) void name##_lanes(const float *a, const float *b, \
                                                                   float s, float *y)              \
    {                                                                                              \
        float t[16];                                                                               \
                                                                                                   \
        (void)b, (void)s;                                                                          \
        for (int j = 0; j < 16; j++) {                                                             \
            const float x = a[j], z = b[j];                                                        \
            (void)z;                                                                               \
            t[j] = (expr);                                                                         \
        }                                                                                          \
        for (int j = 0; j < 16; j++)                                                               \
            y[j] = t[j];                                                                           \
    }
LANES(scale_weigh, (x * s) * z)
LANES(scale, x *s)
LANES(divide, x / s)
LANES(add, x + z)
LANES(axpy, fmaf(s, x, z))
LANES(swiglu, math_silu(x) * z)
LANES(exp_minus, math_exp(x - s))

/* l[i] + l[i + 8], then 4, 2, 1. */
static inline float lanes_reduce(float l[16])
{
    for (int s = 8; s; s >>= 1)
        for (int i = 0; i < s; i++)
            l[i] = l[i] + l[i + s];
    return l[0];
}

/* l[i % 16] = fma(a_i, b_i, l[i % 16]) from +0, i rising, inputs extended by +0 to a multiple of
 * sixteen; then the tree. Whole blocks and the rest are apart here and below: it keeps the
 * accumulators in registers. */
static float float_dot(const float *a, const float *b, int n)
{
    float l[16] = {0};
    int i = 0;

    for (; i <= n - 16; i += 16)
        for (int j = 0; j < 16; j++)
            l[j] = fmaf(a[i + j], b[i + j], l[j]);
    if (i < n) {
        float x[16], y[16];
        lanes_load_rest(x, a, i, n);
        lanes_load_rest(y, b, i, n);
        for (int j = 0; j < 16; j++)
            l[j] = fmaf(x[j], y[j], l[j]);
    }
    return lanes_reduce(l);
}

/* l[i % 16] = l[i % 16] + a_i, as above. */
static float float_sum(const float *a, int n)
{
    float l[16] = {0};
    int i = 0;

    for (; i <= n - 16; i += 16)
        for (int j = 0; j < 16; j++)
            l[j] = l[j] + a[i + j];
    if (i < n) {
        float x[16];
        lanes_load_rest(x, a, i, n);
        for (int j = 0; j < 16; j++)
            l[j] = l[j] + x[j];
    }
    return lanes_reduce(l);
}

/* r = 1 / sqrt(dot(x, x) / n + eps); y_i = (x_i * r) * w_i. */
static void float_rms_norm(const float *x, const float *w, int n, float eps, float *y)
{
    const float r = 1.0f / sqrtf(float_dot(x, x, n) / (float)n + eps);

    if (w)
        lanes_run(scale_weigh_lanes, x, w, r, n, y);
    else
        lanes_run(scale_lanes, x, x, r, n, y);
}

static void float_add(const float *x, const float *y, int n, float *z)
{
    lanes_run(add_lanes, x, y, 0, n, z);
}

static void float_axpy(float s, const float *x, int n, float *y)
{
    lanes_run(axpy_lanes, x, y, s, n, y);
}

static void float_swiglu(const float *g, const float *u, int n, float *y)
{
    lanes_run(swiglu_lanes, g, u, 0, n, y);
}

/* y0 = fma(x0, c, -(x1 * s)); y1 = fma(x0, s, x1 * c). */
static inline void rope_pair(float *x0, float *x1, float c, float s)
{
    const float y0 = fmaf(*x0, c, -(*x1 * s));

    *x1 = fmaf(*x0, s, *x1 * c);
    *x0 = y0;
}

static void float_rope(float *x, int n_rot, const float *cosines, const float *sines, bool half)
{
    const int n = n_rot / 2;
    int i = 0;

    if (!half) {
        for (; i < n; i++)
            rope_pair(x + 2 * i, x + 2 * i + 1, cosines[i], sines[i]);
        return;
    }
    for (; i <= n - 16; i += 16) {
        float a[16], b[16];
        for (int j = 0; j < 16; j++) {
            a[j] = x[i + j];
            b[j] = x[n + i + j];
            rope_pair(a + j, b + j, cosines[i + j], sines[i + j]);
        }
        for (int j = 0; j < 16; j++)
            x[i + j] = a[j];
        for (int j = 0; j < 16; j++)
            x[n + i + j] = b[j];
    }
    for (; i < n; i++)
        rope_pair(x + i, x + n + i, cosines[i], sines[i]);
}

/* max(a, b) is a > b ? a : b. Maxima are exact in any order but for the sign of a zero, which
 * x - max and exp of it do not show. NaN is skipped here and found in the sum. */
static float float_max(const float *x, int n)
{
    float l[16];
    int i = 0;

    for (int j = 0; j < 16; j++)
        l[j] = -INFINITY;
    for (; i <= n - 16; i += 16)
        for (int j = 0; j < 16; j++)
            l[j] = x[i + j] > l[j] ? x[i + j] : l[j];
    for (; i < n; i++)
        l[0] = x[i] > l[0] ? x[i] : l[0];
    for (int s = 8; s; s >>= 1)
        for (int j = 0; j < s; j++)
            l[j] = l[j + s] > l[j] ? l[j + s] : l[j];
    return l[0];
}

/* e_i = exp(x_i - max), then e_i / sum(e). */
static bool float_softmax(float *x, int n)
{
    const float max = float_max(x, n);

    if (math_not_finite(max))
        return false;
    lanes_run(exp_minus_lanes, x, x, max, n, x);
    const float sum = float_sum(x, n);
    if (math_not_finite(sum))
        return false;
    lanes_run(divide_lanes, x, x, sum, n, x);
    return true;
}

static float float_exp1(float x)
{
    return math_exp(x);
}

/* float_map_NAME: y_i = math_NAME(x_i). */
#define FLOAT_MAP(name)                                                                            \
    LANES(name, math_##name(x))                                                                    \
    static void float_map_##name(const float *x, int n, float *y)                                  \
    {                                                                                              \
        lanes_run(name##_lanes, x, x, 0, n, y);                                                    \
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
#undef LANES

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
