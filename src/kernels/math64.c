/* math64.c: log, exp, pow, sin and cos in binary64.
 *
 * Where a plain result would lose bits (the logarithm inside pow, angles of thousands of turns) a
 * number is a pair hi + lo with |lo| <= ulp(hi) / 2. Series are Taylor's: on these intervals their
 * first dropped term is below 2^-57 of the result, and their coefficients need no table. */
#include "kernels/math64.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

struct pair {
    double hi, lo;
};

/* Adding 1.5 * 2^52 rounds |x| < 2^51 to the nearest integer, ties to even. */
#define ROUND64 0x1.8p52

/* ln 2: 33 bits, so that its product with an exponent is exact, and the rest. */
#define LN2_HI 0x1.62e42feep-1
#define LN2_LO 0x1.a39ef35793c76p-33

static uint64_t bits_of(double x)
{
    uint64_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

static double from_bits(uint64_t u)
{
    double x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* a + b exactly, |a| >= |b| or a == 0. */
static struct pair fast_two_sum(double a, double b)
{
    struct pair r;

    r.hi = a + b;
    r.lo = b - (r.hi - a);
    return r;
}

/* ln x to about 2^-59 of itself; x positive, normal or subnormal, finite.
 * x = 2^e m, sqrt(1/2) <= m < sqrt 2; with s = (m - 1) / (m + 1) as a pair,
 * ln m = 2s + s^3 (2/3 + 2/5 s^2 + ...). */
static struct pair log_pair(double x)
{
    double e = 0;

    if (x < 0x1p-1022) {
        x = x * 0x1p54;
        e = -54;
    }
    const uint64_t u = bits_of(x);
    const int64_t k = (int64_t)(u - 0x3fe6a09e667f3bcdULL) >> 52; /* bits of sqrt(1/2) */
    const double m = from_bits(u - ((uint64_t)k << 52));
    const double f = m - 1.0;                                                 /* exact */
    const struct pair g = fast_two_sum(m > 1.0 ? m : 1.0, m > 1.0 ? 1.0 : m); /* m + 1 */
    const double s = f / g.hi;
    const double s_lo = (fma(-s, g.hi, f) - s * g.lo) / g.hi;
    const double z = s * s;
    double p = 2.0 / 23.0;

    e = e + (double)k;
    for (int i = 21; i >= 3; i -= 2)
        p = fma(p, z, 2.0 / i);
    /* e LN2_HI is exact: 11 + 33 bits. It is 0 or larger than 2s. */
    struct pair r = fast_two_sum(e * LN2_HI, s + s);
    if (e == 0)
        r = (struct pair){s + s, 0};
    const double rest = fma(e, LN2_LO, r.lo) + (s_lo + s_lo) + p * z * s;
    return fast_two_sum(r.hi, rest);
}

/* e^(hi + lo). n = nearest(hi / ln 2), r = hi + lo - n ln 2, |r| < 0.347. */
static double exp_pair(double hi, double lo)
{
    if (hi != hi)
        return hi;
    if (hi > 709.79)
        return INFINITY;
    if (hi < -745.2)
        return 0;
    const double n = fma(hi, 0x1.71547652b82fep+0, ROUND64) - ROUND64;
    const double a = fma(n, -LN2_HI, hi); /* exact */
    const double b = fma(n, -LN2_LO, lo);
    const double r = a + b;
    const double r_lo = b - (r - a);
    double p = 1.0 / 6227020800.0; /* 1 / 13! */
    double fact = 479001600.0;     /* 12! */

    for (int i = 12; i >= 2; i--) {
        p = fma(p, r, 1.0 / fact);
        fact = fact / i;
    }
    /* 1 + (r + (r_lo + r^2 p)); the change of e^r by r_lo is r_lo (1 + r) up to r_lo r^2. */
    const double small = fma(r * r, p, fma(r_lo, r, r_lo));
    const struct pair t = fast_two_sum(1.0, r);
    const double y = t.hi + (t.lo + small);
    const int k = (int)n; /* -1076 .. 1024 */
    const int k1 = k / 2;
    return y * from_bits((uint64_t)(k1 + 1023) << 52) * from_bits((uint64_t)(k - k1 + 1023) << 52);
}

double math64_log(double x)
{
    if (x == 0)
        return -INFINITY;
    if (!(x > 0 && x < INFINITY))
        return NAN;
    const struct pair r = log_pair(x);
    return r.hi;
}

double math64_exp(double x)
{
    return exp_pair(x, 0);
}

/* y ln x as a pair, its relative error below 2^-58: |y ln x| < 746, so e^ of it is good to 2^-48
 * at the ends of the range and to 0.6 ulp where |y ln x| < 20. */
double math64_pow(double x, double y)
{
    if (!(x > 0 && x < INFINITY && y > -INFINITY && y < INFINITY))
        return NAN;
    const struct pair l = log_pair(x);
    const double hi = y * l.hi;
    if (hi > 800)
        return INFINITY;
    if (hi < -800)
        return 0;
    const double lo = fma(y, l.hi, -hi) + y * l.lo;
    return exp_pair(hi, lo);
}

/* sin and cos of r.hi + r.lo, |r.hi| <= pi/4. */
static double sin_small(struct pair r)
{
    const double z = r.hi * r.hi;
    double p = 1.0 / 355687428096000.0; /* 1 / 17! */

    p = fma(-p, z, 1.0 / 1307674368000.0);
    p = fma(-p, z, 1.0 / 6227020800.0);
    p = fma(-p, z, 1.0 / 39916800.0);
    p = fma(-p, z, 1.0 / 362880.0);
    p = fma(-p, z, 1.0 / 5040.0);
    p = fma(-p, z, 1.0 / 120.0);
    p = fma(-p, z, 1.0 / 6.0);
    const double change = r.lo * fma(z, -0.5, 1.0); /* r.lo cos(r.hi) */
    return r.hi + fma(-p * z, r.hi, change);
}

static double cos_small(struct pair r)
{
    const double z = r.hi * r.hi;
    const double half = 0.5 * z;
    const double w = 1.0 - half;
    const double rest = fma(0.5 * r.hi, r.hi, -half); /* what rounding took from half */
    double p = 1.0 / 6402373705728000.0;              /* 1 / 18! */

    p = fma(-p, z, 1.0 / 20922789888000.0);
    p = fma(-p, z, 1.0 / 87178291200.0);
    p = fma(-p, z, 1.0 / 479001600.0);
    p = fma(-p, z, 1.0 / 3628800.0);
    p = fma(-p, z, 1.0 / 40320.0);
    p = fma(-p, z, 1.0 / 720.0);
    p = fma(-p, z, 1.0 / 24.0);
    const double small = fma(p * z, z, ((1.0 - w) - half) - rest);
    return w + fma(-r.lo, r.hi, small);
}

/* r = x - n pi/2 with |r| <= pi/4, n modulo 4. pi/2 is the sum of two doubles to 2^-107; n < 2^32,
 * so the reduced angle is good to about 2^-73. */
static struct pair reduce(double x, unsigned *quadrant)
{
    const double half_pi = 0x1.921fb54442d18p+0, half_pi_lo = 0x1.1a62633145c07p-54;
    const double t = fma(x, 0x1.45f306dc9c883p-1, ROUND64);
    const double n = t - ROUND64;
    const double w = n * half_pi;
    const double w_lo = fma(n, half_pi, -w);
    const double a = x - w; /* exact: x and w are neighbours, or n is 0 */
    const double b = fma(n, half_pi_lo, w_lo);
    struct pair r;

    r.hi = a - b;
    const double back = r.hi - a; /* two-sum of a and -b, either may be larger */
    r.lo = (a - (r.hi - back)) + (-b - back);
    *quadrant = (unsigned)bits_of(t) & 3;
    return r;
}

static double sin_quadrant(double x, unsigned add)
{
    unsigned q;

    if (!(x >= -0x1p32 && x <= 0x1p32))
        return NAN;
    const struct pair r = reduce(x, &q);
    const double y = (q + add) & 1 ? cos_small(r) : sin_small(r);
    return (q + add) & 2 ? -y : y;
}

double math64_sin(double x)
{
    return sin_quadrant(x, 0);
}

double math64_cos(double x)
{
    return sin_quadrant(x, 1);
}
