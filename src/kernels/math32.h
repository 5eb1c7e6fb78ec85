/* math32.h: elementary functions in binary32, as exact sequences of + - * / fma and selects.
 *
 * Each function is the definition and the fast version at once: it has no branches and no calls
 * (fmaf is an instruction, or an exact library function at the x86 baseline), so that a loop over
 * sixteen lanes becomes vector code, and every compiler, level and machine gives the same bytes.
 * Errors, measured over all or a dense set of inputs, stand in docs/arithmetic.md and are held by
 * tests/kernels/check_float_math.c.
 *
 * Coefficients come from Remez exchanges on the relative error, rounded to binary32. NaN gives NaN;
 * infinities are not promised anything, but no finite input gives a NaN inside a function's domain.
 */
#ifndef KERNELS_MATH32_H
#define KERNELS_MATH32_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t math_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float math_from_bits(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float math_abs(float x)
{
    return math_from_bits(math_bits(x) & 0x7fffffff);
}

/* True for NaN and infinities. */
static inline bool math_not_finite(float x)
{
    return (math_bits(x) & 0x7f800000) == 0x7f800000;
}

/* IEEE binary16 to binary32, exact, the values of quant_f16_to_f32; inline, so that loops become
 * vector code. The exponent is moved by a product: 2^112 is the difference of the two biases. */
static inline float math_from_f16(uint16_t h)
{
    const uint32_t body = (uint32_t)(h & 0x7fff) << 13;
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t finite = math_bits(math_from_bits(body) * 0x1p112f);
    const uint32_t u = (h & 0x7c00) == 0x7c00 ? body | 0x7f800000 : finite;

    return math_from_bits(u | sign);
}

/* Adding 1.5 * 2^23 rounds |x| < 2^22 to the nearest integer, ties to even; the integer stands in
 * the low bits of the sum. */
#define MATH_ROUND 0x1.8p23f

/* The float 2^n from t = MATH_ROUND + n, -126 <= n <= 127: the low bits of t are n, those of
 * MATH_ROUND are 0. */
static inline float math_pow2_of_round(float t)
{
    return math_from_bits((math_bits(t) << 23) + 0x3f800000);
}

/* e^x; +0 below -87, exp(88) above 88.
 * n = nearest(x / ln 2), r = x - n ln 2 (ln 2 in two parts, the first with 9 bits, so that its
 * product with n is exact), e^r = 1 + (r + r^2 p(r)), times 2^n: exact, since the result is
 * normal. */
static inline float math_exp(float x)
{
    const float c = x > 88.0f ? 88.0f : x;
    const float t = fmaf(c, 0x1.715476p+0f, MATH_ROUND);
    const float n = t - MATH_ROUND;
    float r = fmaf(n, -0x1.63p-1f, c);

    r = fmaf(n, 0x1.bd0106p-13f, r);
    float p = fmaf(0x1.9f0714p-13f, r, 0x1.6d8eecp-10f);
    p = fmaf(p, r, 0x1.111274p-7f);
    p = fmaf(p, r, 0x1.55548cp-5f);
    p = fmaf(p, r, 0x1.555554p-3f);
    p = fmaf(p, r, 0x1p-1f);
    p = fmaf(p * r, r, r) + 1.0f;
    p = p * math_pow2_of_round(t);
    return x < -87.0f ? 0.0f : p;
}

/* 2^x; +0 below -126, 2^127 above 127. 2^r = 1 + r p(r), |r| <= 1/2. */
static inline float math_exp2(float x)
{
    const float c = x > 127.0f ? 127.0f : x;
    const float t = c + MATH_ROUND;
    const float r = c - (t - MATH_ROUND);

    float p = fmaf(0x1.e61714p-17f, r, 0x1.437008p-13f);
    p = fmaf(p, r, 0x1.5d935ap-10f);
    p = fmaf(p, r, 0x1.3b2ad0p-7f);
    p = fmaf(p, r, 0x1.c6b08ap-5f);
    p = fmaf(p, r, 0x1.ebfbe0p-3f);
    p = fmaf(p, r, 0x1.62e430p-1f);
    p = fmaf(p, r, 1.0f);
    p = p * math_pow2_of_round(t);
    return x < -126.0f ? 0.0f : p;
}

/* ln x; -inf at 0, NaN below.
 * x = 2^e m with sqrt(1/2) <= m < sqrt 2 (subnormals are scaled by 2^23 first), f = m - 1 exactly,
 * ln x = e ln 2 + f - f^2/2 + f^3 p(f), small terms first. */
static inline float math_log(float x)
{
    const float big = x * 0x1p23f;
    const uint32_t u = math_bits(x < 0x1p-126f ? big : x);
    const float shift = x < 0x1p-126f ? -23.0f : 0.0f;
    const int32_t k = (int32_t)(u - 0x3f3504f3) >> 23; /* bits of sqrt(1/2) */
    const float f = math_from_bits(u - ((uint32_t)k << 23)) - 1.0f;
    const float e = (float)k + shift;
    const float ff = f * f;

    float p = fmaf(0x1.145736p-4f, f, -0x1.de3bb0p-4f);
    p = fmaf(p, f, 0x1.e6f066p-4f);
    p = fmaf(p, f, -0x1.fc2218p-4f);
    p = fmaf(p, f, 0x1.23376ap-3f);
    p = fmaf(p, f, -0x1.555c4cp-3f);
    p = fmaf(p, f, 0x1.99a4b6p-3f);
    p = fmaf(p, f, -0x1.000006p-2f);
    p = fmaf(p, f, 0x1.555548p-2f);
    p = p * f * ff;
    p = fmaf(e, -0x1.bd0106p-13f, p);
    p = fmaf(-0.5f, ff, p);
    p = f + p;
    p = fmaf(e, 0x1.63p-1f, p);
    p = x < INFINITY ? p : x;
    return x > 0 ? p : x == 0 ? -INFINITY : NAN;
}

/* ln(1 + x), x > -1: with u = 1 + x rounded and d the exact rest (two-sum), ln u + d / u. */
static inline float math_log1p(float x)
{
    const float u = 1.0f + x;
    const float b = u - 1.0f;
    const float d = (1.0f - (u - b)) + (x - b);
    const float y = math_log(u);

    return u > 0 && x < INFINITY ? y + d / u : y;
}

static inline float math_sigmoid(float x)
{
    return 1.0f / (1.0f + math_exp(-x));
}

static inline float math_silu(float x)
{
    return x * math_sigmoid(x);
}

/* x + x^3 p(x^2) below 0.625; above, 1 - 2 / (e^(2|x|) + 1) with the sign of x. */
static inline float math_tanh(float x)
{
    const float a = math_abs(x);
    const float z = x * x;

    float p = fmaf(0x1.18db2ap-9f, z, -0x1.0bf338p-7f);
    p = fmaf(p, z, 0x1.638b00p-6f);
    p = fmaf(p, z, -0x1.b9ee88p-5f);
    p = fmaf(p, z, 0x1.111066p-3f);
    p = fmaf(p, z, -0x1.555554p-2f);
    const float small = fmaf(x * z, p, x);
    const float big = 1.0f - 2.0f / (math_exp(a + a) + 1.0f);
    const float big_signed = math_from_bits(math_bits(big) | (math_bits(x) & 0x80000000));
    return a < 0.625f ? small : big_signed;
}

/* GELU's tanh form, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written as
 * x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)): the same function without the cancellation. */
static inline float math_gelu_tanh(float x)
{
    const float v = x * fmaf(0x1.2444f2p-4f, x * x, 0x1.988454p+0f);

    return x * math_sigmoid(v);
}

/* GELU's erf form, x Phi(x). With a = min(|x|, 16) and t = 1 / (1 + 19/64 a):
 * Phi(-a) = t p(t) e^(-a^2/2); the rounding error of a^2 is put back into the exponential. */
static inline float math_gelu_erf(float x)
{
    const float b = math_abs(x);
    const float a = b > 16.0f ? 16.0f : b;
    const float t = 1.0f / fmaf(0x1.3p-2f, a, 1.0f);
    const float h = a * a;
    const float rest = fmaf(a, a, -h);
    float e = math_exp(-0.5f * h);

    e = fmaf(e, -0.5f * rest, e);
    float p = fmaf(-0x1.50f902p-6f, t, 0x1.d8ee5cp-4f);
    p = fmaf(p, t, -0x1.f37bd6p-3f);
    p = fmaf(p, t, 0x1.c1bc9ep-3f);
    p = fmaf(p, t, -0x1.973cb0p-4f);
    p = fmaf(p, t, 0x1.b77a50p-4f);
    p = fmaf(p, t, 0x1.32b76ep-4f);
    p = fmaf(p, t, 0x1.c250bap-4f);
    p = fmaf(p, t, 0x1.e46418p-4f);
    p = fmaf(p, t, 0x1.e52474p-4f);
    const float q = t * p * e;
    return x * (x < 0 ? q : 1.0f - q);
}

/* ln(1 + e^x) = max(x, 0) + log1p(e^-|x|). */
static inline float math_softplus(float x)
{
    const float y = math_log1p(math_exp(-math_abs(x)));

    return (x > 0 ? x : 0.0f) + y;
}

#endif
