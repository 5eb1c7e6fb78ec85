/* golden_dots.c: products with recorded blocks (tests/data/quants), at every level of this CPU.
 *
 * Quantised rows with a recorded vector, against float64 dot products of the dequantised values.
 * Float weights differ by rounding alone. With quantised activations each value is off by at most
 * d_x / 2, uniformly: the sum's standard deviation is sqrt(sum (w_i d_x)^2 / 12), and six of them
 * are allowed.
 *
 * Blocks of random bytes with activations that are zero but for one, against the recorded value:
 * exact but for rounding, so that every field of every format counts. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"

#define DATA SL_SOURCE_DIR "/tests/data/quants/"
#define ROW  1024 /* values; rows 0 to 3 have a recorded dot product */
#define ROWS 4

static void read_file(const char *name, const char *suffix, void *dst, size_t n)
{
    char path[512];

    snprintf(path, sizeof path, DATA "%s%s", name, suffix);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is missing", path);
    assert_int_equal(fread(dst, 1, n, f), n);
    fclose(f);
}

/* d_x of value i. */
static float act_step(enum act_kind kind, const uint8_t *x, int i)
{
    if (kind == ACT_Q256)
        return ((const struct act_q256 *)(const void *)x)[i / 256].d;
    if (kind == ACT_Q32)
        return ((const struct act_q32 *)(const void *)x)[i / 32].d;
    return 0;
}

static double tolerance(enum act_kind kind, const float *w, const float *x, const uint8_t *packed)
{
    double variance = 0, magnitude = 0;

    for (int i = 0; i < ROW; i++) {
        const double step = (double)w[i] * (double)act_step(kind, packed, i);
        variance += step * step / 12;
        magnitude += fabs((double)w[i] * (double)x[i]);
    }
    return 6 * sqrt(variance) + magnitude * 1e-6;
}

static void check_type(const struct kernels *k, const char *name, uint32_t type, const json_t *dots)
{
    const struct mat_kernel *mat = &k->mat[type];
    const size_t row_bytes = (size_t)quant_row_bytes(type, ROW);
    static _Alignas(64) uint8_t packed[ROW * sizeof(float)];
    static float x[ROW], w[ROWS * ROW];
    uint8_t *rows = malloc(row_bytes * ROWS);
    float y[ROWS];

    assert_non_null(rows);
    read_file("x", ".f32", x, sizeof x);
    read_file(name, ".real.bin", rows, row_bytes * ROWS);
    read_file(name, ".real.f32", w, sizeof w);
    assert_true(act_bytes(mat->act, ROW) <= sizeof packed);
    assert_true(act_pack(k, mat->act, x, ROW, packed));
    const struct mat_args a = {.w = rows,
                               .row_bytes = row_bytes,
                               .n_rows = ROWS,
                               .n_cols = ROW,
                               .x = packed,
                               .x_stride = act_bytes(mat->act, ROW),
                               .n_tok = 1,
                               .y = y,
                               .y_stride = ROWS};
    mat->gemv(&a);
    for (int r = 0; r < ROWS; r++) {
        const double want = json_number_value(json_array_get(dots, (size_t)r));
        const double allowed = tolerance(mat->act, w + r * ROW, x, packed);
        if (!(fabs((double)y[r] - want) <= allowed))
            fail_msg("%s %s row %d: %.9g instead of %.9g, allowed %.3g",
                     kernels_level_name(k->level), name, r, (double)y[r], want, allowed);
    }
    free(rows);
}

#define RAND_VALUES (64 * 256) /* at most, recorded per type */

/* Value i of all blocks at once (as rows of one block) from an activation of 127, whose d_x is 1.
 * Off by at most: one rounding of D * d_x (none here), of the integer sum (none: it is small), of
 * each fma; what is recorded has as many. With a minimum the two terms cancel: what counts is their
 * magnitude, at most 127 * (|w| + 2 * largest |w| of the block's group), bounded by the block's. */
static void check_value(const struct kernels *k, const char *name, uint32_t type,
                        const uint8_t *blocks, const float *w, int n_blocks, int i)
{
    const struct quant_info *info = quant_type_info(type);
    const int n = (int)info->block_values;
    static _Alignas(64) uint8_t packed[256 * sizeof(float)];
    float x[256] = {0}, y[RAND_VALUES / 32];

    x[i] = 127;
    assert_true(act_pack(k, k->mat[type].act, x, n, packed));
    const struct mat_args a = {.w = blocks,
                               .row_bytes = info->block_bytes,
                               .n_rows = n_blocks,
                               .n_cols = n,
                               .x = packed,
                               .x_stride = act_bytes(k->mat[type].act, n),
                               .n_tok = 1,
                               .y = y,
                               .y_stride = (size_t)n_blocks};
    k->mat[type].gemv(&a);
    for (int b = 0; b < n_blocks; b++) {
        const float *block = w + (size_t)b * (size_t)n;
        double largest = 0;
        for (int j = 0; j < n; j++)
            largest = fmax(largest, fabs((double)block[j]));
        if (!(fabs((double)y[b] - (double)block[i] * 127) <= largest * 127 * 0x1p-22))
            fail_msg("%s %s block %d value %d: %.9g instead of %.9g", kernels_level_name(k->level),
                     name, b, i, (double)y[b] / 127, (double)block[i]);
    }
}

static void check_values(const struct kernels *k, const char *name, uint32_t type, int n_blocks)
{
    const struct quant_info *info = quant_type_info(type);
    const size_t n_values = (size_t)n_blocks * info->block_values;
    static float w[RAND_VALUES];
    static uint8_t blocks[RAND_VALUES * 2];

    assert_true(n_values <= RAND_VALUES && n_blocks <= RAND_VALUES / 32);
    read_file(name, ".rand.bin", blocks, (size_t)n_blocks * info->block_bytes);
    read_file(name, ".rand.f32", w, n_values * sizeof *w);
    for (int i = 0; i < (int)info->block_values; i++)
        check_value(k, name, type, blocks, w, n_blocks, i);
}

typedef void type_fn(const struct kernels *k, const char *name, uint32_t type, const json_t *entry);

/* All recorded types that have a product, at all levels. */
static void for_all(type_fn *fn)
{
    json_error_t err;
    json_t *manifest = json_load_file(DATA "manifest.json", 0, &err), *entry;
    size_t i;

    if (!manifest)
        fail_msg("%s: %s", DATA "manifest.json", err.text);
    for (int level = 0; level < KL_COUNT; level++) {
        struct kernels k;
        int n = 0;
        kernels_init(&k, (enum kern_level)level);
        if (k.level != (enum kern_level)level)
            continue;
        json_array_foreach(json_object_get(manifest, "types"), i, entry)
        {
            const char *name = json_string_value(json_object_get(entry, "name"));
            const json_int_t type = json_integer_value(json_object_get(entry, "ggml_type"));
            assert_in_range(type, 0, QT_COUNT - 1);
            if (k.mat[type].act == ACT_NONE)
                continue;
            fn(&k, name, (uint32_t)type, entry);
            n++;
        }
        assert_true(n >= 27); /* all types that have a product, F32 apart */
    }
    json_decref(manifest);
}

static void dots_of_type(const struct kernels *k, const char *name, uint32_t type,
                         const json_t *entry)
{
    check_type(k, name, type, json_object_get(entry, "dot"));
}

static void values_of_type(const struct kernels *k, const char *name, uint32_t type,
                           const json_t *entry)
{
    if (quant_type_info(type)->block_values > 1)
        check_values(k, name, type, (int)json_integer_value(json_object_get(entry, "rand_blocks")));
}

static void test_dots(void **state)
{
    (void)state;
    for_all(dots_of_type);
}

static void test_values(void **state)
{
    (void)state;
    for_all(values_of_type);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dots), cmocka_unit_test(test_values)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
