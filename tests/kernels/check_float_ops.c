#include <math.h>
#include <string.h>

#include "check_float.h"

/* Two equal copies of n floats between guard pages: one for the definition, one for the level. */
struct twin {
    struct check_guard ref, got;
    size_t n;
};

static void twin_new(struct check *c, struct twin *t, size_t n)
{
    const bool high = check_rand(c) & 1;

    t->n = n;
    check_guard_new(&t->ref, n * sizeof(float), 4, high);
    check_guard_new(&t->got, n * sizeof(float), 4, high);
}

static float *twin_ref(struct twin *t)
{
    return (float *)(void *)t->ref.p;
}

static float *twin_got(struct twin *t)
{
    return (float *)(void *)t->got.p;
}

/* Random floats of magnitude up to scale, some zero and some subnormal, the same in both copies. */
static void twin_fill(struct check *c, struct twin *t, float scale)
{
    for (size_t i = 0; i < t->n; i++) {
        const uint64_t r = check_rand(c) & 63;
        const float x = r == 0 ? 0.0f : check_float(c, r == 1 ? 0x1p-130f : scale);
        twin_ref(t)[i] = x;
    }
    memcpy(t->got.p, t->ref.p, t->n * sizeof(float));
}

static void twin_same(struct check *c, struct twin *t)
{
    check_same(c, t->got.p, t->ref.p, t->n * sizeof(float));
    check_true(c, check_guard_intact(&t->got) && check_guard_intact(&t->ref), "wrote outside");
}

static void twin_free(struct twin *t)
{
    check_guard_free(&t->ref);
    check_guard_free(&t->got);
}

static const char *const map_names[MF_COUNT] = {
    "exp", "exp2", "log", "log1p", "sigmoid", "silu", "gelu_tanh", "gelu_erf", "tanh", "softplus"};

/* The borders of every interval that a function is made of, and what lies beside them. */
static const float edges[] = {
    0,        -0.0f,    1,        -1,      87,      -87,       88,       -88,     89,
    -89,      100,      -100,     126,     -126,    127,       -127,     128,     -128,
    1e4f,     -1e4f,    0.625f,   -0.625f, 0.5f,    -0.5f,     16,       -16,     3e38f,
    -3e38f,   1e-38f,   -1e-38f,  1e-45f,  -1e-45f, 0x1p-24f,  1e-7f,    -1e-7f,  0.99999f,
    1.00001f, 1.41421f, 0.70710f, 9.01f,   87.001f, -87.0001f, 88.0001f, -86.999f};

static void check_maps(struct check *c)
{
    const size_t n_edges = sizeof edges / sizeof edges[0];

    for (int f = 0; f < MF_COUNT; f++)
        for (int round = 0; round < 12; round++) {
            const size_t n = (size_t)check_range(c, 1, round < 6 ? 40 : 700) + n_edges;
            const float scale = (const float[]){1, 10, 90, 1e4f}[round % 4];
            struct twin x, y;
            if (!check_begin(c, "%s n=%zu", map_names[f], n))
                continue;
            twin_new(c, &x, n);
            twin_new(c, &y, n);
            twin_fill(c, &x, scale);
            const size_t at = check_rand(c) % (n - n_edges + 1);
            memcpy(twin_ref(&x) + at, edges, sizeof edges);
            memcpy(twin_got(&x) + at, edges, sizeof edges);
            c->ref.map[f](twin_ref(&x), (int)n, twin_ref(&y));
            c->k.map[f](twin_got(&x), (int)n, twin_got(&y));
            twin_same(c, &y);
            c->ref.map[f](twin_ref(&x), (int)n, twin_ref(&x));
            c->k.map[f](twin_got(&x), (int)n, twin_got(&x));
            twin_same(c, &x);
            check_true(c, !memcmp(x.ref.p, y.ref.p, n * sizeof(float)), "in place differs");
            twin_free(&x);
            twin_free(&y);
        }
    if (check_begin(c, "exp1"))
        for (size_t i = 0; i < n_edges; i++) {
            const float want = c->ref.exp1(edges[i]), got = c->k.exp1(edges[i]);
            check_same(c, &got, &want, sizeof got);
        }
}

/* Operations on two vectors, written over neither, the first or the second of them. */
static void run_pairwise(const struct kernels *k, int op, float *x, float *y, float *z, int n)
{
    if (op == 0)
        k->add(x, y, n, z);
    else if (op == 1)
        k->swiglu(x, y, n, z);
    else if (op == 2)
        k->axpy(x[0], x, n, y);
    else
        k->rms_norm(x, n % 3 ? y : NULL, n, 1e-6f, z);
}

static void check_pairwise(struct check *c)
{
    static const char *const names[] = {"add", "swiglu", "axpy", "rms_norm"};

    for (int op = 0; op < 4; op++)
        for (int round = 0; round < 24; round++) {
            const int n = check_range(c, 1, round < 16 ? 50 : 3000);
            const int over = round % 3; /* z: its own, x, y */
            struct twin v[3];
            if (!check_begin(c, "%s n=%d over=%d", names[op], n, over))
                continue;
            for (int i = 0; i < 3; i++) {
                twin_new(c, &v[i], (size_t)n);
                twin_fill(c, &v[i], round % 5 ? 3.0f : 1e4f);
            }
            struct twin *z = over == 0 ? &v[2] : &v[over - 1];
            if (op == 3 && over == 2)
                z = &v[0];
            run_pairwise(&c->ref, op, twin_ref(&v[0]), twin_ref(&v[1]), twin_ref(z), n);
            run_pairwise(&c->k, op, twin_got(&v[0]), twin_got(&v[1]), twin_got(z), n);
            for (int i = 0; i < 3; i++) {
                twin_same(c, &v[i]);
                twin_free(&v[i]);
            }
        }
}

static void check_reductions(struct check *c)
{
    for (int round = 0; round < 60; round++) {
        const int n = check_range(c, round ? 1 : 0, round < 40 ? 70 : 5000);
        struct twin a, b;
        if (!check_begin(c, "dot, sum, softmax n=%d", n))
            continue;
        twin_new(c, &a, (size_t)n);
        twin_new(c, &b, (size_t)n);
        twin_fill(c, &a, round % 2 ? 30.0f : 0.1f);
        twin_fill(c, &b, 2.0f);
        float want = c->ref.dot(twin_ref(&a), twin_ref(&b), n);
        float got = c->k.dot(twin_got(&a), twin_got(&b), n);
        check_same(c, &got, &want, sizeof got);
        want = c->ref.sum(twin_ref(&a), n);
        got = c->k.sum(twin_got(&a), n);
        check_same(c, &got, &want, sizeof got);
        if (n) {
            check_true(c, c->ref.softmax(twin_ref(&a), n) && c->k.softmax(twin_got(&a), n),
                       "softmax refused finite values");
            twin_same(c, &a);
            twin_got(&b)[n / 2] = (const float[]){INFINITY, NAN, -NAN}[round % 3];
            check_true(c, !c->k.softmax(twin_got(&b), n), "softmax took a non-finite value");
        }
        twin_free(&a);
        twin_free(&b);
    }
}

static void check_rope(struct check *c)
{
    for (int round = 0; round < 40; round++) {
        const int half = round < 8 ? (const int[]){32, 64, 1, 16, 24, 40, 48, 128}[round]
                                   : check_range(c, 1, 140);
        const bool split = round & 1;
        struct twin x, cs;
        if (!check_begin(c, "rope n_rot=%d half=%d", 2 * half, split))
            continue;
        twin_new(c, &x, 2 * (size_t)half);
        twin_new(c, &cs, 2 * (size_t)half);
        twin_fill(c, &x, 8.0f);
        twin_fill(c, &cs, 1.0f);
        c->ref.rope(twin_ref(&x), 2 * half, twin_ref(&cs), twin_ref(&cs) + half, split);
        c->k.rope(twin_got(&x), 2 * half, twin_got(&cs), twin_got(&cs) + half, split);
        twin_same(c, &x);
        twin_free(&x);
        twin_free(&cs);
    }
}

/* Tables are not a level's business; they join the digest, which compares architectures. */
static void check_tables(struct check *c)
{
    static const double bases[] = {1e4, 5e5, 1e6, 1e7};
    static const int64_t positions[] = {0, 1, 2, 255, 4097, 131071, 1 << 20, INT32_MAX};
    double freqs[64];
    float cs[128];

    if (!check_begin(c, "rope tables"))
        return;
    for (size_t b = 0; b < 4; b++) {
        kern_rope_freqs(bases[b], 128, freqs);
        check_same(c, freqs, freqs, sizeof freqs);
        for (size_t p = 0; p < 8; p++) {
            kern_rope_table(positions[p], freqs, 64, 1.0 + 0.1 * (double)b, cs, cs + 64);
            check_same(c, cs, cs, sizeof cs);
        }
    }
}

struct bench_vectors {
    const struct kernels *k;
    int op, n;
    float *x, *y, *z;
};

static void bench_run(void *arg)
{
    const struct bench_vectors *b = arg;

    if (b->op < 4)
        run_pairwise(b->k, b->op, b->x, b->y, b->z, b->n);
    else if (b->op == 4)
        b->z[0] = b->k->dot(b->x, b->y, b->n);
    else
        b->k->map[b->op - 5](b->x, b->n, b->z);
}

static void bench_ops(struct check *c)
{
    static const char *const names[] = {"add", "swiglu", "axpy", "rms_norm", "dot"};
    struct twin x, y;
    struct bench_vectors b = {&c->k, 0, 4096, NULL, NULL, NULL};

    twin_new(c, &x, 4096);
    twin_new(c, &y, 4096);
    twin_fill(c, &x, 5.0f);
    twin_fill(c, &y, 5.0f);
    b.x = twin_ref(&x);
    b.y = twin_ref(&y);
    b.z = twin_got(&x);
    for (b.op = 0; b.op < 5 + MF_COUNT; b.op++)
        if (check_begin(c, "%s n=4096", b.op < 5 ? names[b.op] : map_names[b.op - 5]))
            check_bench(c, bench_run, &b, 4096 * 4 * 2, 4096);
    twin_free(&x);
    twin_free(&y);
}

void check_float_ops(struct check *c)
{
    if (c->bench) {
        bench_ops(c);
        return;
    }
    check_maps(c);
    check_pairwise(c);
    check_reductions(c);
    check_rope(c);
    check_tables(c);
}
