/* mutants.c: the test of the checker: wrong versions of the arithmetic run through the same
 * comparisons as check.c, and each must be noticed. What is wrong in them is what implementations
 * get wrong most easily: the rounding of ties, a division in place of a product, an unfused
 * multiply-add, another summation order, a store beyond the last row. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_mat.h"
#include "kernels/mat.h"

/* ---- packing ---- */

enum rounding { TIES_AWAY, DIVIDE_BY_D };

static int8_t wrong_quant(float x, float a, enum rounding how)
{
    const float d = a / 127.0f, r = 127.0f / a;

    return (int8_t)(how == TIES_AWAY ? roundf(x * r) : nearbyintf(x / d));
}

/* Redo what the definition packed: q of every block. */
static void requantise(const float *x, int n, int8_t *q, float d, enum rounding how)
{
    float a = 0;

    for (int i = 0; i < n; i++)
        a = fabsf(x[i]) > a ? fabsf(x[i]) : a;
    for (int i = 0; i < n && d > 0; i++)
        q[i] = wrong_quant(x[i], a, how);
}

static struct kernels definition;

static bool pack_q256(const float *x, int n, void *dst, enum rounding how)
{
    struct act_q256 *y = dst;

    if (!definition.pack_q256(x, n, dst))
        return false;
    for (int b = 0; b < n / 256; b++)
        requantise(x + b * 256, 256, y[b].q, y[b].d, how);
    return true;
}

static bool pack_q32(const float *x, int n, void *dst, enum rounding how)
{
    struct act_q32 *y = dst;

    if (!definition.pack_q32(x, n, dst))
        return false;
    for (int b = 0; b < n / 32; b++)
        requantise(x + b * 32, 32, y[b].q, y[b].d, how);
    return true;
}

static bool pack_q256_ties_away(const float *x, int n, void *dst)
{
    return pack_q256(x, n, dst, TIES_AWAY);
}

static bool pack_q32_ties_away(const float *x, int n, void *dst)
{
    return pack_q32(x, n, dst, TIES_AWAY);
}

static bool pack_q256_divide(const float *x, int n, void *dst)
{
    return pack_q256(x, n, dst, DIVIDE_BY_D);
}

static bool pack_q32_divide(const float *x, int n, void *dst)
{
    return pack_q32(x, n, dst, DIVIDE_BY_D);
}

/* Lets infinities and NaN pass. */
static bool pack_f32_careless(const float *x, int n, void *dst)
{
    definition.pack_f32(x, n, dst);
    return true;
}

/* ---- products ---- */

static int isum_q8_0(const struct blk_q8_0 *w, const struct act_q32 *x)
{
    int s = 0;

    for (int i = 0; i < 32; i++)
        s += w->qs[i] * x->q[i];
    return s;
}

static float dot_q8_0_unfused(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_q8_0 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 32; b++) {
        const float product = quant_f16_to_f32(w[b].d) * x[b].d * (float)isum_q8_0(w + b, x + b);
        acc = acc + product;
    }
    return acc;
}

/* Two accumulators, for even and odd blocks. */
static float dot_q8_0_split(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_q8_0 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc[2] = {0, 0};

    for (int b = 0; b < n / 32; b++)
        acc[b % 2] = fmaf(quant_f16_to_f32(w[b].d) * x[b].d, (float)isum_q8_0(w + b, x + b),
                          acc[b % 2]);
    return acc[0] + acc[1];
}

static void load_pair(const uint8_t *w, const uint8_t *x, int i, float *a, float *b)
{
    memcpy(a, w + (size_t)i * 4, 4);
    memcpy(b, x + (size_t)i * 4, 4);
}

static float dot_f32_serial(const uint8_t *w, const uint8_t *x, int n)
{
    float acc = 0, a, b;

    for (int i = 0; i < n; i++) {
        load_pair(w, x, i, &a, &b);
        acc = fmaf(a, b, acc);
    }
    return acc;
}

static float dot_f32_lanes(const uint8_t *w, const uint8_t *x, int n, bool fused, bool neighbours)
{
    float l[16] = {0}, a, b;

    for (int i = 0; i < n; i++) {
        load_pair(w, x, i, &a, &b);
        l[i % 16] = fused ? fmaf(a, b, l[i % 16]) : l[i % 16] + a * b;
    }
    if (neighbours) /* the tree that horizontal adds make */
        for (int s = 1; s < 16; s *= 2)
            for (int i = 0; i < 16; i += 2 * s)
                l[i] = l[i] + l[i + s];
    else
        for (int s = 8; s > 0; s /= 2)
            for (int i = 0; i < s; i++)
                l[i] = l[i] + l[i + s];
    return l[0];
}

static float dot_f32_unfused(const uint8_t *w, const uint8_t *x, int n)
{
    return dot_f32_lanes(w, x, n, false, false);
}

static float dot_f32_tree(const uint8_t *w, const uint8_t *x, int n)
{
    return dot_f32_lanes(w, x, n, true, true);
}

/* The minimum taken off before the product is added. */
static float dot_q2k_minima_first(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_q2_K *w = (const void *)w8;
    const struct act_q256 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 256; b++, w++, x++) {
        int isum = 0, msum = 0;
        for (int i = 0; i < 256; i++) {
            const int v = w->qs[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
            isum += (w->scales[i / 16] & 15) * v * x->q[i];
            msum += (w->scales[i / 16] >> 4) * x->q[i];
        }
        acc = fmaf(-(quant_f16_to_f32(w->dmin) * x->d), (float)msum, acc);
        acc = fmaf(quant_f16_to_f32(w->d) * x->d, (float)isum, acc);
    }
    return acc;
}

/* Scales as in other E4M3 formats: 0x7f is the number that its bits say, or one fma per 32 values,
 * the scale of the second 16 brought to the first's. */
static float dot_nvfp4_wrong(const uint8_t *w8, const uint8_t *x8, int n, bool nan, bool joined)
{
    static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const struct blk_nvfp4 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0, first = 0;

    for (int g = 0; g < n / 16; g++) {
        const struct blk_nvfp4 *p = w + g / 4;
        const int8_t *q = x[g / 2].q + g % 2 * 16;
        const unsigned s = p->d[g % 4] & 0x7f;
        const float d = !nan && s == 0x7f ? 0 : quant_f16_to_f32((uint16_t)(s << 7)) * 128;
        int isum = 0;
        for (int i = 0; i < 8; i++) {
            const unsigned v = p->qs[g % 4 * 8 + i];
            isum += values[v & 15] * q[i] + values[v >> 4] * q[8 + i];
        }
        if (!joined)
            acc = fmaf(d * x[g / 2].d, (float)isum, acc);
        else if (g % 2 == 0)
            first = d * (float)isum;
        else
            acc = fmaf(x[g / 2].d, fmaf(d, (float)isum, first), acc);
    }
    return acc;
}

static float dot_nvfp4_nan(const uint8_t *w, const uint8_t *x, int n)
{
    return dot_nvfp4_wrong(w, x, n, true, false);
}

static float dot_nvfp4_joined(const uint8_t *w, const uint8_t *x, int n)
{
    return dot_nvfp4_wrong(w, x, n, false, true);
}

#define MAT(name)                                                                                  \
    static void mat_##name(const struct mat_args *a)                                               \
    {                                                                                              \
        kernels_run_dot(a, dot_##name);                                                            \
    }
MAT(q8_0_unfused)
MAT(q8_0_split)
MAT(q2k_minima_first)
MAT(nvfp4_nan)
MAT(nvfp4_joined)
MAT(f32_serial)
MAT(f32_unfused)
MAT(f32_tree)

/* Right results, and one float too many where there is room for it behind the rows. */
static void mat_f32_too_far(const struct mat_args *a)
{
    definition.mat[QT_F32].gemm(a);
    if (a->y_stride > (size_t)a->n_rows && a->n_tok > 1)
        a->y[a->n_rows] = 0;
}

/* ---- the trial ---- */

struct mutant {
    const char *name;
    const char *kernel; /* filter of the checker */
    check_fn *check;
    enum quant_type type; /* of mat; QT_COUNT: none */
    mat_fn *mat;
    bool (*f32)(const float *x, int n, void *dst);
    bool (*q256)(const float *x, int n, void *dst);
    bool (*q32)(const float *x, int n, void *dst);
};

static const struct mutant mutants[] = {
    {"q256: ties away from zero", "pack_q256", check_pack, QT_COUNT, NULL, NULL,
     pack_q256_ties_away, NULL},
    {"q32: ties away from zero", "pack_q32", check_pack, QT_COUNT, NULL, NULL, NULL,
     pack_q32_ties_away},
    {"q256: x / d", "pack_q256", check_pack, QT_COUNT, NULL, NULL, pack_q256_divide, NULL},
    {"q32: x / d", "pack_q32", check_pack, QT_COUNT, NULL, NULL, NULL, pack_q32_divide},
    {"f32: not finite passes", "pack_f32", check_pack, QT_COUNT, NULL, pack_f32_careless, NULL,
     NULL},
    {"Q8_0: multiply and add", "mat Q8_0", check_mat, QT_Q8_0, mat_q8_0_unfused, NULL, NULL, NULL},
    {"Q8_0: two accumulators", "mat Q8_0", check_mat, QT_Q8_0, mat_q8_0_split, NULL, NULL, NULL},
    {"Q2_K: minima first", "mat Q2_K", check_mat, QT_Q2_K, mat_q2k_minima_first, NULL, NULL, NULL},
    {"NVFP4: NaN is a number", "mat NVFP4", check_mat, QT_NVFP4, mat_nvfp4_nan, NULL, NULL, NULL},
    {"NVFP4: a step of 32", "mat NVFP4", check_mat, QT_NVFP4, mat_nvfp4_joined, NULL, NULL, NULL},
    {"F32: one lane", "mat F32", check_mat, QT_F32, mat_f32_serial, NULL, NULL, NULL},
    {"F32: multiply and add", "mat F32", check_mat, QT_F32, mat_f32_unfused, NULL, NULL, NULL},
    {"F32: neighbours added first", "mat F32", check_mat, QT_F32, mat_f32_tree, NULL, NULL, NULL},
    {"F32: a store too far", "mat F32", check_mat, QT_F32, mat_f32_too_far, NULL, NULL, NULL},
};

static void mutate(struct kernels *k, const struct mutant *m)
{
    if (m->mat)
        k->mat[m->type].gemv = k->mat[m->type].gemm = m->mat;
    if (m->f32)
        k->pack_f32 = m->f32;
    if (m->q256)
        k->pack_q256 = m->q256;
    if (m->q32)
        k->pack_q32 = m->q32;
}

/* False: the checker missed it, or complains without it. */
static bool try_mutant(const struct mutant *m, uint64_t seed)
{
    struct check sound, c;

    check_init(&sound, KL_SCALAR, seed);
    sound.filter = m->kernel;
    m->check(&sound);
    check_init(&c, KL_SCALAR, seed);
    c.filter = m->kernel;
    c.quiet = true;
    mutate(&c.k, m);
    m->check(&c);
    printf("%-30s %u of %u comparisons differ\n", m->name, c.n_failed, c.n_compared);
    return c.n_failed > 0 && c.n_compared > 0 && sound.n_failed == 0;
}

static int failed;

static void try_all(struct check *c)
{
    kernels_init(&definition, KL_SCALAR);
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++)
        if (!check_true(c, try_mutant(&mutants[i], c->seed + i), mutants[i].name))
            failed++;
}

int main(int argc, char **argv)
{
    char scalar[] = "scalar", level[] = "--level";
    char **args = calloc((size_t)argc + 3, sizeof *args);

    if (!args)
        return EXIT_FAILURE;
    memcpy(args, argv, (size_t)argc * sizeof *args);
    args[argc] = level;
    args[argc + 1] = scalar;
    const int rc = check_main(argc + 2, args, try_all);
    free(args);
    return rc || failed;
}
