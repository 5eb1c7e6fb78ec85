#include "check_mat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "quant/blocks.h"

/* ---- random activations ---- */

enum act_mode {
    ACT_PLAIN,
    ACT_FULL,
    ACT_POSITIVE,
    ACT_ZERO,
    ACT_TINY,
    ACT_SMALL,
    ACT_TIES,
    ACT_NEAR_TIES,
    ACT_MODES
};

static void fill_act_block(struct check *c, float *x, int n)
{
    const enum act_mode mode = c->bench ? ACT_PLAIN
                                        : (enum act_mode)check_range(c, 0, ACT_MODES - 1);
    const float scale = 1.0f + check_float(c, 0.5f);
    const int at = check_range(c, 0, n - 1); /* the block's maximum, where the mode sets it */

    for (int i = 0; i < n; i++) {
        const float f = check_float(c, 1.0f);
        switch (mode) {
        case ACT_FULL: /* q is +-127 everywhere */
            x[i] = f < 0 ? -scale : scale;
            break;
        case ACT_POSITIVE:
            x[i] = scale;
            break;
        case ACT_ZERO:
            x[i] = f < 0 ? -0.0f : 0.0f;
            break;
        case ACT_TINY: /* on both sides of the limit of a zero block */
            x[i] = f * scale * 0x1p-100f;
            break;
        case ACT_SMALL:
            x[i] = f * 0x1p-90f;
            break;
        case ACT_TIES: /* 127 / a = 1: every half is an exact tie */
            x[i] = (float)check_range(c, -126, 125) + 0.5f;
            break;
        case ACT_NEAR_TIES: /* the last bit of x * r decides; x / d would decide otherwise */
            x[i] = ((float)check_range(c, -126, 125) + 0.5f) * (scale / 127.0f);
            break;
        default:
            x[i] = f * scale * 8;
            break;
        }
    }
    if (mode == ACT_TIES)
        x[at] = check_rand(c) & 1 ? 127.0f : -127.0f;
    if (mode == ACT_NEAR_TIES)
        x[at] = scale;
    if (mode == ACT_TINY && check_rand(c) & 1)
        x[at] = 0x1p-100f; /* the smallest maximum that is no zero block */
}

void check_mat_activations(struct check *c, float *x, int n, int block)
{
    for (int i = 0; i < n; i += block)
        fill_act_block(c, x + i, n - i < block ? n - i : block);
}

/* ---- random weights ---- */

/* A finite F16: plain, subnormal, or any. (Timing has plain values only: subnormal numbers slow
 * some CPUs down.) */
static uint16_t rand_f16(struct check *c)
{
    const uint16_t bits = (uint16_t)check_rand(c);
    const uint16_t sign_frac = bits & 0x83ff;

    switch (c->bench ? 2 : check_range(c, 0, 5)) {
    case 0:
        return sign_frac; /* subnormal, or zero */
    case 1:
        return (uint16_t)(sign_frac | check_range(c, 0, 30) << 10);
    default:
        return (uint16_t)(sign_frac | check_range(c, 5, 16) << 10);
    }
}

/* The upper half of a float32 between 2^-36 and 2^4, or subnormal. */
static uint16_t rand_bf16(struct check *c)
{
    const uint16_t sign_frac = (uint16_t)check_rand(c) & 0x807f;
    const int exp = c->bench || check_range(c, 0, 9) ? check_range(c, 91, 130) : 0;

    return (uint16_t)(sign_frac | exp << 7);
}

static void fill_bits(struct check *c, uint8_t *p, size_t n)
{
    static const uint8_t patterns[] = {0xff, 0x00, 0x80, 0x7f};
    const int kind = check_range(c, 0, 9);

    if (kind < 4 && !c->bench)
        memset(p, patterns[kind], n); /* largest quants and scales of some type, or their minima */
    else
        check_fill(c, p, n);
}

static void set_f16(struct check *c, uint8_t *p, size_t at)
{
    const uint16_t h = rand_f16(c);

    memcpy(p + at, &h, sizeof h);
}

/* The top nibbles of four words. */
static void set_f16_iq1_m(struct check *c, uint8_t *p)
{
    const uint16_t h = rand_f16(c);
    uint8_t *scales = p + offsetof(struct blk_iq1_m, scales);

    for (int i = 0; i < 4; i++)
        scales[2 * i + 1] = (uint8_t)((scales[2 * i + 1] & 15) | (h >> 4 * i & 15) << 4);
}

/* Where a block has F16 members: 1 + offset; 0: none. */
#define AT(type, member) offsetof(struct type, member) + 1
static const size_t f16_at[QT_COUNT][2] = {
    [QT_F16] = {1},
    [QT_Q4_0] = {AT(blk_q4_0, d)},
    [QT_Q4_1] = {AT(blk_q4_1, d), AT(blk_q4_1, m)},
    [QT_Q5_0] = {AT(blk_q5_0, d)},
    [QT_Q5_1] = {AT(blk_q5_1, d), AT(blk_q5_1, m)},
    [QT_Q8_0] = {AT(blk_q8_0, d)},
    [QT_IQ4_NL] = {AT(blk_iq4_nl, d)},
    [QT_Q1_0] = {AT(blk_q1_0, d)},
    [QT_Q2_0] = {AT(blk_q2_0, d)},
    [QT_Q2_K] = {AT(blk_q2_K, d), AT(blk_q2_K, dmin)},
    [QT_Q3_K] = {AT(blk_q3_K, d)},
    [QT_Q4_K] = {AT(blk_q4_K, d), AT(blk_q4_K, dmin)},
    [QT_Q5_K] = {AT(blk_q5_K, d), AT(blk_q5_K, dmin)},
    [QT_Q6_K] = {AT(blk_q6_K, d)},
    [QT_TQ1_0] = {AT(blk_tq1_0, d)},
    [QT_TQ2_0] = {AT(blk_tq2_0, d)},
    [QT_IQ1_S] = {AT(blk_iq1_s, d)},
    [QT_IQ2_XXS] = {AT(blk_iq2_xxs, d)},
    [QT_IQ2_XS] = {AT(blk_iq2_xs, d)},
    [QT_IQ2_S] = {AT(blk_iq2_s, d)},
    [QT_IQ3_XXS] = {AT(blk_iq3_xxs, d)},
    [QT_IQ3_S] = {AT(blk_iq3_s, d)},
    [QT_IQ4_XS] = {AT(blk_iq4_xs, d)},
};

static void fill_weight_block(struct check *c, enum quant_type type, uint8_t *p)
{
    const uint16_t upper = rand_bf16(c);

    fill_bits(c, p, quant_type_info(type)->block_bytes);
    switch (type) {
    case QT_F32:
        memcpy(p + 2, &upper, 2);
        break;
    case QT_BF16:
        memcpy(p, &upper, 2);
        break;
    case QT_MXFP4: /* 2^(e - 128): 0 and 1 are subnormal */
        p[0] = (uint8_t)(c->bench || check_range(c, 0, 3) ? check_range(c, 100, 140)
                                                          : check_range(c, 0, 3));
        break;
    case QT_NVFP4: /* any byte is a scale */
        break;
    case QT_IQ1_M:
        set_f16_iq1_m(c, p);
        break;
    default:
        for (int i = 0; i < 2; i++)
            if (f16_at[type][i] > 0)
                set_f16(c, p, f16_at[type][i] - 1);
        break;
    }
}

static void fill_weights(struct check *c, enum quant_type type, uint8_t *p, size_t bytes)
{
    const size_t block = quant_type_info(type)->block_bytes;

    for (size_t i = 0; i < bytes; i += block)
        fill_weight_block(c, type, p + i);
}

/* ---- one product ---- */

struct problem {
    struct mat_args a;
    enum act_kind act;
    struct check_guard w, x, y[3]; /* y: definition, gemm, gemv */
    float *floats;
};

/* What is multiplied next may be prefetched, never loaded: pages that cannot be read. */
#define NEXT_BYTES ((size_t)1 << 20)

static const uint8_t *unreadable_next(void)
{
    static void *pages;

    if (!pages)
        pages = mmap(NULL, NEXT_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        exit(EXIT_FAILURE);
    return pages;
}

/* x_gap: bytes between the activations of tokens, a multiple of 64. */
static void problem_new(struct check *c, struct problem *p, enum quant_type type, int n_rows,
                        int n_cols, int n_tok, size_t x_gap)
{
    const size_t row = quant_row_bytes(type, (uint64_t)n_cols), w_bytes = row * (size_t)n_rows;
    /* Weights end at a guard page, begin at one, or lie at an odd address. */
    const int place = check_range(c, 0, 2);
    const size_t shift = place == 2 ? (size_t)check_range(c, 1, 63) : 0;
    const size_t x_bytes = act_bytes(c->ref.mat[type].act, n_cols);
    const size_t y_stride = (size_t)n_rows + (size_t)check_range(c, 0, 3);
    const size_t y_bytes = ((size_t)(n_tok - 1) * y_stride + (size_t)n_rows) * sizeof(float);
    const bool y_high = check_range(c, 0, 1);

    p->act = c->ref.mat[type].act;
    check_guard_new(&p->w, w_bytes + shift, 1, place == 0);
    check_guard_new(&p->x, (x_bytes + x_gap) * (size_t)(n_tok - 1) + x_bytes, 64, true);
    for (int i = 0; i < 3; i++)
        check_guard_new(&p->y[i], y_bytes, sizeof(float), y_high);
    p->floats = malloc((size_t)n_cols * sizeof(float));
    if (!p->floats)
        exit(EXIT_FAILURE);
    p->a = (struct mat_args){.w = p->w.p + shift,
                             .row_bytes = row,
                             .n_rows = n_rows,
                             .n_cols = n_cols,
                             .x = p->x.p,
                             .x_stride = x_bytes + x_gap,
                             .n_tok = n_tok,
                             .y = (float *)(void *)p->y[0].p,
                             .y_stride = y_stride};
    if (!c->bench) {
        p->a.next = unreadable_next();
        p->a.next_bytes = NEXT_BYTES;
    }
    fill_weights(c, type, p->w.p + shift, w_bytes);
    for (int t = 0; t < n_tok; t++) {
        check_mat_activations(c, p->floats, n_cols, p->act == ACT_Q256 ? 256 : 32);
        if (!act_pack(&c->k, p->act, p->floats, n_cols, p->x.p + (size_t)t * p->a.x_stride))
            check_true(c, false, "finite activations refused");
    }
}

static void problem_free(struct problem *p)
{
    check_guard_free(&p->w);
    check_guard_free(&p->x);
    for (int i = 0; i < 3; i++)
        check_guard_free(&p->y[i]);
    free(p->floats);
}

static void run_gemv(const struct mat_args *all, mat_fn *gemv)
{
    struct mat_args a = *all;

    for (a.n_tok = 1; a.y < all->y + (size_t)all->n_tok * all->y_stride; a.y += all->y_stride) {
        gemv(&a);
        a.x += all->x_stride;
    }
}

/* The level's GEMM, and its GEMV token by token, against the definition's GEMM. */
static void check_product(struct check *c, enum quant_type type, int n_rows, int n_cols, int n_tok,
                          size_t x_gap)
{
    struct problem p;

    if (!check_begin(c, "mat %s %dx%d, %d tokens", quant_type_info(type)->name, n_rows, n_cols,
                     n_tok))
        return;
    problem_new(c, &p, type, n_rows, n_cols, n_tok, x_gap);
    c->ref.mat[type].gemm(&p.a);
    p.a.y = (float *)(void *)p.y[1].p;
    c->k.mat[type].gemm(&p.a);
    check_same(c, p.y[1].p, p.y[0].p, p.y[0].n);
    p.a.y = (float *)(void *)p.y[2].p;
    run_gemv(&p.a, c->k.mat[type].gemv);
    check_same(c, p.y[2].p, p.y[0].p, p.y[0].n);
    for (int i = 0; i < 3; i++)
        check_true(c, check_guard_intact(&p.y[i]), "wrote outside the result");
    check_true(c, check_guard_intact(&p.w) && check_guard_intact(&p.x), "wrote near its input");
    problem_free(&p);
}

/* ---- timing ---- */

struct timed {
    mat_fn *fn;
    struct mat_args a;
};

static void call_timed(void *arg)
{
    const struct timed *t = arg;

    t->fn(&t->a);
}

/* One expert matrix of usual size, from cache. */
static void bench_product(struct check *c, enum quant_type type)
{
    static const int widths[] = {1, 2, 3, 4, 5, 6, 8, 32, 128};
    const int n_rows = 768, n_cols = 2048;

    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct problem p;
        if (!check_begin(c, "mat %s %dx%d, %d tokens", quant_type_info(type)->name, n_rows, n_cols,
                         widths[i]))
            continue;
        problem_new(c, &p, type, n_rows, n_cols, widths[i], 0);
        struct timed t = {widths[i] == 1 ? c->k.mat[type].gemv : c->k.mat[type].gemm, p.a};
        check_bench(c, call_timed, &t, (double)p.a.row_bytes * n_rows,
                    2.0 * n_rows * n_cols * widths[i]);
        problem_free(&p);
    }
}

/* ---- all products ---- */

static void check_type(struct check *c, enum quant_type type)
{
    const int block = (int)quant_type_info(type)->block_values;
    const int unit = block == 1 ? 1 : block, max_units = block == 1    ? 700
                                                         : block < 256 ? 736 / block
                                                                       : 4;

    /* One random number per statement: the order in which arguments are evaluated is the
     * compiler's, and a seed has to mean the same data everywhere. */
    for (int n_tok = 1; n_tok <= 40; n_tok++) {
        const int n_rows = check_range(c, 1, 26), n_cols = unit * check_range(c, 1, max_units);
        const int gap = 64 * check_range(c, 0, 1);
        check_product(c, type, n_rows, n_cols, n_tok, (size_t)gap);
    }
    check_product(c, type, check_range(c, 1, 7), 256, 128, 0);
    check_product(c, type, check_range(c, 8, 12), 512, 128, 0);
    /* Tokens far apart, as in long rows: kernels that fit a run of tokens into a cache take more
     * than one run. Then many rows, so that prefetching happens. */
    check_product(c, type, 9, 512, 75, 12 << 10);
    check_product(c, type, check_range(c, 90, 100), 1024, 1, 0);
}

void check_mat(struct check *c)
{
    for (int type = 0; type < QT_COUNT; type++) {
        if (c->ref.mat[type].act == ACT_NONE)
            continue;
        if (c->bench)
            bench_product(c, (enum quant_type)type);
        else
            check_type(c, (enum quant_type)type);
    }
}

/* ---- pack functions ---- */

struct timed_pack {
    const struct kernels *k;
    enum act_kind kind;
    const float *x;
    int n;
    void *dst;
};

static void call_pack(void *arg)
{
    const struct timed_pack *t = arg;

    act_pack(t->k, t->kind, t->x, t->n, t->dst);
}

/* Bytes that a pack function defines: for 32-value blocks the last 64 may not be full. */
static size_t packed_bytes(enum act_kind kind, int n)
{
    return kind == ACT_Q32 ? (size_t)n / 32 * sizeof(struct act_q32) : act_bytes(kind, n);
}

static void check_pack_one(struct check *c, enum act_kind kind, int n, bool finite)
{
    static const float bad[] = {1.0f / 0.0f, -1.0f / 0.0f, 0.0f / 0.0f};
    const bool high = check_range(c, 0, 1);
    struct check_guard x, y[2];

    check_guard_new(&x, (size_t)n * sizeof(float), sizeof(float), high);
    for (int i = 0; i < 2; i++)
        check_guard_new(&y[i], act_bytes(kind, n), 64, true);
    float *f = (float *)(void *)x.p;
    check_mat_activations(c, f, n, kind == ACT_Q256 ? 256 : 32);
    const int bad_at = check_range(c, 0, n - 1), bad_kind = check_range(c, 0, 2);
    if (!finite)
        f[bad_at] = bad[bad_kind];
    if (c->bench) {
        struct timed_pack t = {&c->k, kind, f, n, y[0].p};
        check_bench(c, call_pack, &t, (double)x.n, n);
    } else {
        const bool want = act_pack(&c->ref, kind, f, n, y[0].p);
        const bool got = act_pack(&c->k, kind, f, n, y[1].p);
        check_true(c, want == finite && got == finite, "wrong answer about finite values");
        if (finite)
            check_same(c, y[1].p, y[0].p, packed_bytes(kind, n));
        check_true(c, check_guard_intact(&y[0]) && check_guard_intact(&y[1]), "wrote outside");
    }
    check_guard_free(&x);
    for (int i = 0; i < 2; i++)
        check_guard_free(&y[i]);
}

void check_pack(struct check *c)
{
    static const struct {
        enum act_kind kind;
        const char *name;
        int unit, max_units;
    } packs[] = {{ACT_F32, "f32", 1, 70}, {ACT_Q256, "q256", 256, 5}, {ACT_Q32, "q32", 32, 9}};

    for (size_t i = 0; i < sizeof packs / sizeof *packs; i++) {
        for (int round = 0; round < (c->bench ? 1 : 100); round++) {
            const bool finite = c->bench || check_range(c, 0, 9) > 0;
            const int units = check_range(c, 1, packs[i].max_units);
            const int n = c->bench ? 2048 : packs[i].unit * units;
            if (check_begin(c, "pack_%s %d", packs[i].name, n))
                check_pack_one(c, packs[i].kind, n, finite);
        }
    }
}
