/* quantise_fit.c: scales of one group, by trying scales around the obvious one, each followed by
 * the least-squares scale of the integers that it gave. */
#include "quant/quantise.h"

#include <string.h>

/* Four lanes wherever there are vectors; the same sums elsewhere. */
typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

#define ROUND_MAGIC 12582912.0f /* 1.5 * 2^23: adding it leaves whole numbers, nearest even */
#define NOTHING     1e-15f      /* groups below are zero: no binary16 scale could hold them */
#define POLISH      4           /* rounds of integers, scale, integers at most */

static inline v4f load(const float *p)
{
    v4f v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline v4f spread(float x)
{
    return (v4f){x, x, x, x};
}

static inline float lanes(v4f v)
{
    return (v[0] + v[2]) + (v[1] + v[3]);
}

static inline v4f choose(v4i c, v4f a, v4f b)
{
    return (v4f)((c & (v4i)a) | (~c & (v4i)b));
}

/* lo and hi are whole and small, so clamping first gives what clamping last would. */
static inline v4f round_clamped(v4f x, v4f lo, v4f hi)
{
    x = choose(x > lo, x, lo);
    x = choose(x < hi, x, hi);
    return (x + ROUND_MAGIC) - ROUND_MAGIC;
}

int quant_nearest(float x, int lo, int hi)
{
    v4f r = round_clamped(spread(x), spread((float)lo), spread((float)hi));
    return (int)r[0];
}

/* ---- d * q ---- */

static void sums_signed(const float *x, int n, float inv, v4f lo, v4f hi, float *xq, float *qq)
{
    v4f a = {0}, b = {0}, f = spread(inv);
    for (int i = 0; i < n; i += 4) {
        v4f v = load(x + i), q = round_clamped(v * f, lo, hi);
        a += v * q;
        b += q * q;
    }
    *xq = lanes(a);
    *qq = lanes(b);
}

/* The value of largest magnitude. */
static float extreme(const float *x, int n)
{
    float most = 0, at = 0;
    for (int i = 0; i < n; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];
        if (a > most) {
            most = a;
            at = x[i];
        }
    }
    return most < NOTHING ? 0 : at;
}

/* The error of the least-squares scale xq / qq is sum x^2 - xq^2 / qq. */
float quant_fit_signed(const float *x, int n, int lo, int hi)
{
    float top = extreme(x, n), best = 0, d = 0;
    v4f l = spread((float)lo), h = spread((float)hi);
    if (top == 0)
        return 0;
    for (int i = -9; i <= 9; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            float xq, qq, inv = (float)sign * ((float)-lo + 0.1f * (float)i) / top;
            sums_signed(x, n, inv, l, h, &xq, &qq);
            if (qq > 0 && xq * xq > best * qq) {
                best = xq * xq / qq;
                d = xq / qq;
            }
        }
    for (int i = 0; i < POLISH && d != 0; i++) {
        float xq, qq;
        sums_signed(x, n, 1 / d, l, h, &xq, &qq);
        if (!(qq > 0 && xq * xq > best * qq))
            break;
        best = xq * xq / qq;
        d = xq / qq;
    }
    return d;
}

float quant_round_signed(const float *x, int n, float d, int lo, int hi, int8_t *q,
                         struct quant_sums *sums)
{
    v4f err = {0}, xq = {0}, qq = {0}, l = spread((float)lo), h = spread((float)hi);
    v4f scale = spread(d), inv = spread(d != 0 ? 1 / d : 0);
    for (int i = 0; i < n; i += 4) {
        v4f v = load(x + i), r = round_clamped(v * inv, l, h), e = v - scale * r;
        err += e * e;
        xq += v * r;
        qq += r * r;
        for (int j = 0; q && j < 4; j++)
            q[i + j] = (int8_t)r[j];
    }
    if (sums)
        *sums = (struct quant_sums){.xq = lanes(xq), .qq = lanes(qq)};
    return lanes(err);
}

/* ---- s * q - m ---- */

struct range {
    float min, max;
};

static struct range find_range(const float *x, int n)
{
    struct range r = {0, 0};
    for (int i = 0; i < n; i++) {
        r.min = x[i] < r.min ? x[i] : r.min;
        r.max = x[i] > r.max ? x[i] : r.max;
    }
    return r;
}

/* Least squares of x = s * q - m over the integers that (x - min) * inv rounds to; m >= 0. */
static float fit_integers(const float *x, int n, float min, float inv, v4f hi, float *s, float *m)
{
    v4f sx = {0}, sq = {0}, sxq = {0}, sqq = {0}, sxx = {0}, zero = {0};
    v4f base = spread(min), f = spread(inv);
    for (int i = 0; i < n; i += 4) {
        v4f v = load(x + i), q = round_clamped((v - base) * f, zero, hi);
        sx += v;
        sq += q;
        sxq += v * q;
        sqq += q * q;
        sxx += v * v;
    }
    float x1 = lanes(sx), q1 = lanes(sq), xq = lanes(sxq), qq = lanes(sqq), xx = lanes(sxx);
    float det = (float)n * qq - q1 * q1, a = 0, b = 0;
    if (det > 0) {
        a = ((float)n * xq - x1 * q1) / det;
        b = (qq * x1 - q1 * xq) / det;
    } else if (qq == 0) { /* one level for all: the minimum */
        b = x1 / (float)n;
    }
    if (b > 0 || (det <= 0 && qq > 0)) { /* minima may only lower: the best without one */
        b = 0;
        a = qq > 0 ? xq / qq : 0;
    }
    a = a > 0 ? a : 0;
    *s = a;
    *m = -b;
    return xx - 2 * a * xq - 2 * b * x1 + a * a * qq + 2 * a * b * q1 + (float)n * b * b;
}

void quant_fit_offset(const float *x, int n, int hi, float *s, float *m)
{
    struct range r = find_range(x, n);
    v4f h = spread((float)hi);
    float best = 0;
    *s = *m = 0;
    if (r.max - r.min < NOTHING)
        return;
    bool found = false;
    for (int i = 0; i <= 20; i++) {
        float a, b, inv = ((float)hi - 1 + 0.1f * (float)i) / (r.max - r.min);
        float e = fit_integers(x, n, r.min, inv, h, &a, &b);
        for (int k = 0; k <= POLISH; k++) {
            bool better = !found || e < best;
            if (better) {
                best = e;
                *s = a;
                *m = b;
                found = true;
            }
            if (a == 0 || (k > 0 && !better))
                break;
            e = fit_integers(x, n, -b, 1 / a, h, &a, &b);
        }
    }
}

float quant_round_offset(const float *x, int n, float s, float m, int hi, int8_t *q,
                         struct quant_sums *sums)
{
    v4f err = {0}, xq = {0}, qq = {0}, q1 = {0}, zero = {0}, h = spread((float)hi);
    v4f scale = spread(s), inv = spread(s != 0 ? 1 / s : 0), min = spread(m);
    for (int i = 0; i < n; i += 4) {
        v4f v = load(x + i), r = round_clamped((v + min) * inv, zero, h);
        v4f e = v - (scale * r - min);
        err += e * e;
        xq += v * r;
        qq += r * r;
        q1 += r;
        for (int j = 0; q && j < 4; j++)
            q[i + j] = (int8_t)r[j];
    }
    if (sums)
        *sums = (struct quant_sums){.xq = lanes(xq), .qq = lanes(qq), .q = lanes(q1)};
    return lanes(err);
}
