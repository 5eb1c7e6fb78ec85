/* quantise_test.c: how near the quantisers come, that they give the same bytes everywhere, and what
 * they do with values at the edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"

#define ROW  1024
#define ROWS 64
#define N    (ROW * ROWS)

/* error: relative RMSE of the formats' reference quantisers on rows of ROW normals, odd rows with
 * standard deviation 0.05, all values equally important; digest: of our own bytes for values() */
static const struct {
    uint32_t type;
    double error;
    uint64_t digest;
} TYPES[] = {
    {QT_Q4_0, 0.080114, 0x45f6075f5ecdfc20}, {QT_Q8_0, 0.0052545, 0x9cea1feb7f22f3e3},
    {QT_Q2_K, 0.26716, 0x02dd831bcf4d86b9},  {QT_Q3_K, 0.14377, 0x85369c0081843f05},
    {QT_Q4_K, 0.07025, 0x9eb5bee06139ce73},  {QT_Q5_K, 0.03535, 0x34e4c9bce6672572},
    {QT_Q6_K, 0.017284, 0xdb4fe168ba31039b},
};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES };

static uint64_t rng;

static uint32_t draw(void)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33); /* 31 bits */
}

static double normal(void)
{
    double u = (draw() + 1.0) / 2147483649.0, v = draw() / 2147483648.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static size_t bytes_of(uint32_t type, size_t n)
{
    return (size_t)quant_row_bytes(type, n);
}

static void test_error(void **state)
{
    (void)state;
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    uint8_t *b = malloc(N * sizeof *x);
    assert_true(x && y && b);
    rng = 7;
    for (int i = 0; i < N; i++)
        x[i] = (float)(normal() * (i / ROW % 2 ? 0.05 : 1));
    for (int t = 0; t < N_TYPES; t++) {
        assert_true(quant_quantise(TYPES[t].type, x, b, N));
        assert_true(quant_dequant(TYPES[t].type, b, y, N));
        double err = 0, sum = 0;
        for (int i = 0; i < N; i++) {
            err += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
            sum += (double)x[i] * x[i];
        }
        double ratio = sqrt(err / sum) / TYPES[t].error;
        print_message("%s: %.3f of the reference's error\n", quant_type_info(TYPES[t].type)->name,
                      ratio);
        assert_true(ratio < 1.02);
        assert_true(ratio > 0.9); /* else the measure itself is wrong */
    }
    free(x);
    free(y);
    free(b);
}

/* Exact binary32 numbers on every machine: a lumpy distribution of many magnitudes. */
static void values(float *x, int n, uint64_t seed)
{
    rng = seed;
    for (int i = 0; i < n; i++) {
        int32_t v = (int32_t)(draw() >> 15) - 32768;
        x[i] = (float)v / (float)(1 << (draw() % 24)) / (float)(1 << (i / 256 % 8));
    }
}

static uint64_t digest(const uint8_t *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static void test_same_bytes(void **state)
{
    (void)state;
    enum { LEN = 256 * 40 };
    static float x[LEN];
    static uint8_t b[LEN * 2];
    int bad = 0;
    values(x, LEN, 99);
    for (int t = 0; t < N_TYPES; t++) {
        assert_true(quant_quantise(TYPES[t].type, x, b, LEN));
        uint64_t got = digest(b, bytes_of(TYPES[t].type, LEN));
        if (got != TYPES[t].digest) {
            print_error("%s: digest 0x%016llx\n", quant_type_info(TYPES[t].type)->name,
                        (unsigned long long)got);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

/* Nothing is written outside the blocks, and no reading or writing wants an alignment. */
static void check_at(uint32_t type, const float *x, int n, size_t shift)
{
    size_t len = bytes_of(type, (uint64_t)n);
    uint8_t *plain = malloc(len), *odd = malloc(len + 32);
    assert_true(plain && odd);
    memset(odd, 0xa5, len + 32);
    assert_true(quant_quantise(type, x, plain, (size_t)n));
    assert_true(quant_quantise(type, x, odd + shift, (size_t)n));
    assert_memory_equal(plain, odd + shift, len);
    for (size_t i = 0; i < len + 32; i++)
        if (i < shift || i >= shift + len)
            assert_int_equal(odd[i], 0xa5);
    free(plain);
    free(odd);
}

static double error_of(uint32_t type, const float *x, int n, double *sum)
{
    static uint8_t b[4096];
    static float y[1024];
    assert_true(quant_quantise(type, x, b, (size_t)n));
    assert_true(quant_dequant(type, b, y, (size_t)n));
    double err = 0;
    *sum = 0;
    for (int i = 0; i < n; i++) {
        assert_true(isfinite(y[i]));
        err += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        *sum += (double)x[i] * x[i];
    }
    return err;
}

static void test_edges(void **state)
{
    (void)state;
    static float x[256];
    for (int t = 0; t < N_TYPES; t++) {
        uint32_t type = TYPES[t].type;
        double sum, err;
        for (int kind = 0; kind < 10; kind++) {
            for (int i = 0; i < 256; i++)
                x[i] = kind == 0   ? 0.0f
                       : kind == 1 ? -0.0f
                       : kind == 2 ? (i == 77 ? 3.0f : 0.0f)
                       : kind == 3 ? -1.5f
                       : kind == 4 ? 2.5f
                       : kind == 5 ? 1e-38f * (float)(i - 128)
                       : kind == 6 ? 1e-7f * (float)(i % 17)
                       : kind == 7 ? (float)(i - 128)
                       : kind == 8 ? (i % 2 ? 1000.0f : -1000.0f)
                                   : (i < 32 ? 60000.0f : 0.001f) * (float)(i % 5 - 2);
            err = error_of(type, x, 256, &sum);
            assert_true(err <= sum); /* never worse than all zeros */
            if (kind < 3)
                assert_true(err <= sum * 1e-3);
            if (kind == 3 || kind == 4)
                assert_true(err <= sum * 2e-3);
            check_at(type, x, 256, (size_t)kind % 5);
        }
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, 1e30f, -3e38f, 6e8f};
    static float x[256];
    static uint8_t b[1024];
    for (int t = 0; t < N_TYPES; t++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            memset(x, 0, sizeof x);
            x[i * 31] = bad[i];
            assert_false(quant_quantise(TYPES[t].type, x, b, 256));
        }
    memset(x, 0, sizeof x);
    x[0] = 1e6f; /* a scale of 125000 */
    assert_false(quant_quantise(QT_Q4_0, x, b, 256));
    assert_false(quant_quantise(QT_Q4_K, x, b, 255));
    assert_false(quant_quantise(QT_Q4_0, x, b, 16));
    x[0] = 1;
    for (uint32_t type = 0; type < QT_COUNT + 3; type++) {
        bool known = false;
        for (int t = 0; t < N_TYPES; t++)
            known |= TYPES[t].type == type;
        assert_int_equal(quant_has_quantiser(type), known);
        if (!known)
            assert_false(quant_quantise(type, x, b, 256));
    }
}

/* Values that a block of the type holds exactly stay: eight-bit ones, whose scale is plain. */
static void test_exact(void **state)
{
    (void)state;
    static float x[256], y[256];
    static uint8_t b[1024];
    for (int i = 0; i < 256; i++)
        x[i] = (float)(i % 32 == 5 ? 127 : i % 97 - 48) / 64;
    assert_true(quant_quantise(QT_Q8_0, x, b, 256));
    assert_true(quant_dequant(QT_Q8_0, b, y, 256));
    for (int i = 0; i < 256; i++)
        assert_true(x[i] == y[i]);
    for (int i = 0; i < 256; i++)
        x[i] = (float)(i % 16 - 8) / 4;
    assert_true(quant_quantise(QT_Q4_0, x, b, 256));
    assert_true(quant_dequant(QT_Q4_0, b, y, 256));
    for (int i = 0; i < 256; i++)
        assert_true(x[i] == y[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error), cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_edges), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_exact),
    };
    return cmocka_run_group_tests_name("quantise", tests, NULL, NULL);
}
