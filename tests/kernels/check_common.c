#include "check_common.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define GUARD_PATTERN 0xa5
#define EXIT_SKIP     77

static char what_buf[160];

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t check_rand(struct check *c)
{
    uint64_t z = c->rng += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

int check_range(struct check *c, int lo, int hi)
{
    return lo + (int)(check_rand(c) % (uint64_t)(hi - lo + 1));
}

float check_float(struct check *c, float scale)
{
    const uint64_t r = check_rand(c);
    const float f = (float)(r >> 40) * 0x1p-24f;

    return (r & 1 ? -f : f) * scale;
}

void check_fill(struct check *c, void *p, size_t n)
{
    uint8_t *b = p;

    for (size_t i = 0; i < n; i += 8) {
        const uint64_t r = check_rand(c);
        memcpy(b + i, &r, n - i < 8 ? n - i : 8);
    }
}

void check_guard_new(struct check_guard *g, size_t n, size_t align, bool high)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t body = (n + page - 1) / page * page;

    g->n = n;
    g->map_bytes = body + 2 * page;
    g->map = mmap(NULL, g->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->map == MAP_FAILED || (body && mprotect(g->map + page, body, PROT_READ | PROT_WRITE))) {
        fprintf(stderr, "check: no memory for %zu guarded bytes\n", n);
        exit(EXIT_FAILURE);
    }
    memset(g->map + page, GUARD_PATTERN, body);
    g->p = g->map + page + (high ? (body - n) / align * align : 0);
}

bool check_guard_intact(const struct check_guard *g)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (const uint8_t *p = g->map + page; p < g->map + g->map_bytes - page; p++)
        if ((p < g->p || p >= g->p + g->n) && *p != GUARD_PATTERN)
            return false;
    return true;
}

void check_guard_free(struct check_guard *g)
{
    munmap(g->map, g->map_bytes);
    g->map = g->p = NULL;
}

bool check_begin(struct check *c, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what_buf, sizeof what_buf, fmt, ap);
    va_end(ap);
    c->what = what_buf;
    return !c->filter || strstr(what_buf, c->filter);
}

static void count(struct check *c, bool ok)
{
    c->n_compared++;
    c->n_failed += !ok;
}

bool check_same(struct check *c, const void *got, const void *want, size_t n)
{
    const uint8_t *g = got, *w = want;
    const bool ok = memcmp(g, w, n) == 0;

    for (size_t i = 0; i < n; i++)
        c->digest = (c->digest ^ w[i]) * 0x100000001b3; /* FNV-1a */
    count(c, ok);
    if (!ok && !c->quiet) {
        size_t at = 0;
        while (g[at] == w[at])
            at++;
        fprintf(stderr, "DIFFERENT %s %s: byte %zu of %zu, %02x instead of %02x (--seed %llu)\n",
                kernels_level_name(c->k.level), c->what, at, n, g[at], w[at],
                (unsigned long long)c->seed);
    }
    return ok;
}

bool check_true(struct check *c, bool ok, const char *message)
{
    count(c, ok);
    if (!ok && !c->quiet)
        fprintf(stderr, "FAILED %s %s: %s (--seed %llu)\n", kernels_level_name(c->k.level), c->what,
                message, (unsigned long long)c->seed);
    return ok;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void check_bench(struct check *c, void (*fn)(void *arg), void *arg, double bytes, double ops)
{
    double best = 1e30;

    for (int i = 0; i < 10; i++) {
        const double start = seconds();
        double now;
        int n = 0;
        do {
            fn(arg);
            n++;
            now = seconds();
        } while (now < start + 0.02);
        if ((now - start) / n < best)
            best = (now - start) / n;
    }
    printf("%-10s %-40s %10.2f us %8.2f GB/s %9.2f Gop/s\n", kernels_level_name(c->k.level),
           c->what, best * 1e6, bytes / best * 1e-9, ops / best * 1e-9);
}

bool check_init(struct check *c, enum kern_level level, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    kernels_init(&c->ref, KL_SCALAR);
    kernels_init(&c->k, level);
    c->rng = c->seed = seed;
    c->digest = 0xcbf29ce484222325;
    c->what = "";
    return c->k.level == level;
}

struct options {
    uint64_t seed, digest;
    bool bench, has_digest;
    const char *level, *filter;
};

static bool parse_number(const char *s, int base, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(s, &end, base);
    return *s && !*end && !errno;
}

static bool parse_options(int argc, char **argv, struct options *o)
{
    const char *env = getenv("SLUICE_SEED");
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    o->seed = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    if (env && !parse_number(env, 0, &o->seed))
        return false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--bench")) {
            o->bench = true;
            continue;
        }
        if (!strcmp(argv[i], "--level"))
            o->level = value;
        else if (!strcmp(argv[i], "--kernel"))
            o->filter = value;
        else if (!strcmp(argv[i], "--digest"))
            o->has_digest = parse_number(value, 16, &o->digest);
        else if (strcmp(argv[i], "--seed") || !parse_number(value, 0, &o->seed))
            return false;
        i++;
    }
    return true;
}

/* 0, 1 or 77. */
static int run_level(enum kern_level level, const struct options *o, check_fn *fn)
{
    struct check c;

    if (!check_init(&c, level, o->seed)) {
        printf("%s: not available on this CPU, skipped\n", kernels_level_name(level));
        return EXIT_SKIP;
    }
    c.bench = o->bench;
    c.filter = o->filter;
    fn(&c);
    if (c.bench)
        return 0;
    printf("%s: seed %llu, %u comparisons, %u failed, digest %016llx\n", kernels_level_name(level),
           (unsigned long long)c.seed, c.n_compared, c.n_failed, (unsigned long long)c.digest);
    if (o->has_digest && c.digest != o->digest) {
        fprintf(stderr, "FAILED %s: the definition gives other bytes than recorded (%016llx)\n",
                kernels_level_name(level), (unsigned long long)o->digest);
        return 1;
    }
    return c.n_failed || !c.n_compared;
}

int check_main(int argc, char **argv, check_fn *fn)
{
    struct options o = {0};
    int worst = 0;
    bool known = false;

    if (!parse_options(argc, argv, &o)) {
        fprintf(stderr,
                "usage: %s [--level NAME] [--seed N] [--kernel TEXT] [--bench] [--digest HEX]\n",
                argv[0]);
        return 2;
    }
    for (int l = 0; l < KL_COUNT; l++) {
        const bool named = o.level && !strcmp(o.level, kernels_level_name((enum kern_level)l));
        struct kernels probe;
        kernels_init(&probe, (enum kern_level)l);
        if (!named && (o.level || probe.level != (enum kern_level)l))
            continue;
        known = true;
        const int rc = run_level((enum kern_level)l, &o, fn);
        worst = rc > worst ? rc : worst;
    }
    if (!known) {
        fprintf(stderr, "%s: unknown level %s\n", argv[0], o.level);
        return 2;
    }
    return worst;
}
