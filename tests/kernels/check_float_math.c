/* check_float_math.c: how far the elementary functions are from the truth, and what they do at
 * their borders. The truth is the C library's long double; the bounds are those that
 * docs/arithmetic.md states. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fpenv.h"
#include "kernels/kernels.h"
#include "kernels/math32.h"
#include "kernels/math64.h"
#include "quant/quant.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

typedef long double real;
typedef real real_fn(real x);

static real real_sigmoid(real x)
{
    return 1 / (1 + expl(-x));
}

static real real_silu(real x)
{
    return x * real_sigmoid(x);
}

static real real_gelu_tanh(real x)
{
    return x * real_sigmoid(2 * sqrtl(2 / 3.14159265358979323846264338327950288L) *
                            (x + 0.044715L * x * x * x));
}

static real real_gelu_erf(real x)
{
    return x * 0.5L * erfcl(-x / sqrtl(2));
}

static real real_softplus(real x)
{
    return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x));
}

/* |got - want| in units of the last place of want as a float (of the smallest normal below it). */
static double error_ulp(float got, real want)
{
    int e;

    frexpl(want, &e);
    if (want == 0 || e < -125)
        e = -125;
    return (double)(fabsl((real)got - want) / ldexpl(1, e - 24));
}

struct range {
    enum math_fn f;
    const char *name;
    real_fn *real;
    float lo, hi;
    double bound; /* ulp */
};

static const struct range ranges[] = {
    {MF_EXP, "exp", expl, -87, 88, 1.1},
    {MF_EXP2, "exp2", exp2l, -126, 127, 0.8},
    {MF_LOG, "log", logl, 1e-45f, FLT_MAX, 0.8},
    {MF_LOG1P, "log1p", log1pl, -0.99999994f, FLT_MAX, 1.6},
    {MF_SIGMOID, "sigmoid", real_sigmoid, -88, FLT_MAX, 2.4},
    {MF_SILU, "silu", real_silu, -88, FLT_MAX, 2.8},
    {MF_GELU_TANH, "gelu_tanh", real_gelu_tanh, -1, 1e6f, 6},
    {MF_GELU_TANH, "gelu_tanh", real_gelu_tanh, -3, -1, 16},
    {MF_GELU_TANH, "gelu_tanh", real_gelu_tanh, -10, -3, 240},
    {MF_GELU_ERF, "gelu_erf", real_gelu_erf, -13, FLT_MAX, 8},
    {MF_TANH, "tanh", tanhl, -FLT_MAX, FLT_MAX, 1.5},
    {MF_SOFTPLUS, "softplus", real_softplus, -87, FLT_MAX, 2.2},
};

/* Bit patterns apart by this prime; SLUICE_ULP_STEP sets another for a finer measurement. */
static uint32_t step(void)
{
    const char *s = getenv("SLUICE_ULP_STEP");
    const long n = s ? strtol(s, NULL, 10) : 0;

    return n > 0 ? (uint32_t)n : 9973;
}

static void test_ulp(void **state)
{
    struct kernels k;
    float x[256], y[256];

    (void)state;
    kernels_init(&k, KL_COUNT);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const struct range *r = &ranges[i];
        double worst = 0;
        float at = 0;
        int n = 0;
        for (uint64_t u = 0; u <= 0xffffffff; u += step()) {
            x[n] = math_from_bits((uint32_t)u);
            n += x[n] >= r->lo && x[n] <= r->hi;
            if (n < 256 && u + step() <= 0xffffffff)
                continue;
            k.map[r->f](x, n, y);
            for (int j = 0; j < n; j++) {
                const double e = error_ulp(y[j], r->real((real)x[j]));
                if (!(e <= worst)) {
                    worst = e;
                    at = x[j];
                }
            }
            n = 0;
        }
        printf("%-10s [%g, %g]: %.3f ulp at %a\n", r->name, (double)r->lo, (double)r->hi, worst,
               (double)at);
        if (!(worst <= r->bound))
            fail_msg("%s: above %g ulp", r->name, r->bound);
    }
}

/* What the definition promises at and beyond the borders. */
static void test_borders(void **state)
{
    static const float xs[] = {87, 88, 89, 100, 1e4f, FLT_MAX};

    (void)state;
    assert_true(math_exp(-87.0f) > 0);
    assert_int_equal(math_bits(math_exp(nextafterf(-87, -100))), 0);
    assert_int_equal(math_bits(math_exp(-1e4f)), 0);
    assert_int_equal(math_bits(math_exp(-FLT_MAX)), 0);
    assert_true(math_exp(0) == 1 && math_exp2(0) == 1 && math_log(1) == 0 && math_tanh(0) == 0);
    assert_true(math_exp2(-126) == 0x1p-126f && math_exp2(127) == 0x1p127f &&
                math_exp2(1e4f) == 0x1p127f && math_exp2(-127) == 0);
    assert_true(math_log(0) == -INFINITY && isnan(math_log(-1)) && isnan(math_log1p(-2)));
    assert_true(math_log1p(-1) == -INFINITY && math_log(INFINITY) == INFINITY);
    for (size_t i = 0; i < sizeof xs / sizeof xs[0]; i++) {
        const float x = xs[i];
        assert_true(isfinite(math_exp(x)) && math_exp(x) <= math_exp(88));
        assert_true(x < 88 || math_exp(x) == math_exp(88));
        assert_true(math_sigmoid(x) == 1 && math_sigmoid(-x) >= 0 && math_sigmoid(-x) < 1e-37f);
        assert_true(math_silu(x) == x && fabsf(math_silu(-x)) <= fabsf(x) * 1e-37f);
        assert_true(math_gelu_tanh(x) == x && fabsf(math_gelu_tanh(-x)) <= fabsf(x) * 1e-37f);
        assert_true(math_gelu_erf(x) == x && math_gelu_erf(-x) == 0);
        assert_true(math_tanh(x) == 1 && math_tanh(-x) == -1);
        assert_true(math_softplus(x) == x && math_softplus(-x) <= 2e-38f);
    }
    for (int f = 0; f < MF_COUNT; f++) {
        struct kernels k;
        float x = NAN;
        kernels_init(&k, KL_COUNT);
        k.map[f](&x, 1, &x);
        assert_true(isnan(x));
    }
}

static double error_ulp64(double got, real want)
{
    int e;

    frexpl(want, &e);
    return (double)(fabsl((real)got - want) / ldexpl(1, e - 53));
}

static double larger(double a, double b)
{
    return b <= a ? a : b;
}

static void test_binary64(void **state)
{
    double log_err = 0, pow_err = 0, sin_err = 0, cos_err = 0, exp_err = 0;

    (void)state;
    srand48(5);
    for (int i = 0; i < 60000; i++) {
        const double x = exp((drand48() - 0.5) * (i & 1 ? 1400 : 2));
        const double base = exp(drand48() * 20), y = -drand48();
        const double angle = (drand48() - 0.2) * (i % 3 ? i % 3 == 1 ? 1e6 : 4e9 : 10);
        const double z = (drand48() - 0.5) * 1400;
        log_err = larger(log_err, error_ulp64(math64_log(x), logl(x)));
        pow_err = larger(pow_err, error_ulp64(math64_pow(base, y), powl(base, y)));
        sin_err = larger(sin_err, error_ulp64(math64_sin(angle), sinl(angle)));
        cos_err = larger(cos_err, error_ulp64(math64_cos(angle), cosl(angle)));
        exp_err = larger(exp_err, error_ulp64(math64_exp(z), expl(z)));
    }
    printf("binary64: log %.3f, pow %.3f, sin %.3f, cos %.3f, exp %.3f ulp\n", log_err, pow_err,
           sin_err, cos_err, exp_err);
    assert_true(log_err < 0.6 && pow_err < 0.8 && sin_err < 0.8 && cos_err < 0.8 && exp_err < 0.8);
    assert_true(math64_pow(1e6, 0) == 1 && math64_sin(0) == 0 && math64_cos(0) == 1);
    assert_true(isnan(math64_pow(-1, 2)) && isnan(math64_sin(1e10)) && isnan(math64_log(-1)));
    assert_true(math64_exp(-800) == 0 && math64_exp(800) == INFINITY && math64_exp(-744) > 0);
    assert_true(math64_pow(1e300, 2) == INFINITY && math64_pow(1e300, -2) == 0);
}

/* Tables equal the rounded truth of the binary64 angle. */
static void test_rope_tables(void **state)
{
    double freqs[64];
    float cosines[64], sines[64];
    int off = 0;

    (void)state;
    kern_rope_freqs(1e6, 128, freqs);
    assert_true(freqs[0] == 1.0);
    for (int64_t pos = 0; pos < 300000; pos += 1 + pos / 7) {
        kern_rope_table(pos, freqs, 64, 1.0, cosines, sines);
        for (int i = 0; i < 64; i++) {
            const real angle = (real)((double)pos * freqs[i]);
            off += cosines[i] != (float)(double)cosl(angle);
            off += sines[i] != (float)(double)sinl(angle);
        }
    }
    assert_int_equal(off, 0);
}

static void test_f16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float a = math_from_f16((uint16_t)h), b = quant_f16_to_f32((uint16_t)h);
        assert_true(math_bits(a) == math_bits(b) || (isnan(a) && isnan(b)));
    }
}

static const float *sort_scores;

static int by_rank(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    if (sort_scores[x] != sort_scores[y])
        return sort_scores[x] > sort_scores[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

static void test_topk(void **state)
{
    float scores[300];
    int32_t all[300], ids[300];

    (void)state;
    srand48(7);
    for (int round = 0; round < 300; round++) {
        const int n = 1 + (int)(drand48() * 299), k = 1 + (int)(drand48() * n);
        for (int i = 0; i < n; i++) {
            scores[i] = (float)((int)(drand48() * (round % 3 ? 20 : 1e6)) - 5);
            all[i] = i;
        }
        sort_scores = scores;
        qsort(all, (size_t)n, sizeof *all, by_rank);
        kern_topk(scores, n, k > n ? n : k, ids);
        assert_memory_equal(ids, all, (size_t)(k > n ? n : k) * sizeof *ids);
    }
}

/* fpenv_enter makes the bytes independent of what the caller has set. */
static void test_caller_environment(void **state)
{
    (void)state;
#if defined(__x86_64__)
    struct kernels k;
    float x[64], want[MF_COUNT][64], got[64];

    kernels_init(&k, KL_COUNT);
    for (int i = 0; i < 64; i++)
        x[i] = math_from_bits(0x00400000u + (uint32_t)i * 0x011fffffu);
    for (int f = 0; f < MF_COUNT; f++)
        k.map[f](x, 64, want[f]);
    const unsigned old = _mm_getcsr();
    for (int f = 0; f < MF_COUNT; f++) {
        _mm_setcsr(old | 0x8040 | 0x4000); /* FTZ, DAZ, round up */
        const uint64_t env = fpenv_enter();
        k.map[f](x, 64, got);
        fpenv_restore(env);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(old);
        assert_memory_equal(got, want[f], sizeof got);
        assert_int_equal(after & 0xe040, 0xc040);
    }
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ulp),
        cmocka_unit_test(test_borders),
        cmocka_unit_test(test_binary64),
        cmocka_unit_test(test_rope_tables),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_topk),
        cmocka_unit_test(test_caller_environment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
