/* ram.c: the rate at which threads read memory that no cache holds.
 *
 * Every byte is loaded into a register, by the widest loads that all CPUs of the level have, in one
 * run of addresses or in two at once: which is faster depends on the prefetchers, so the faster of
 * both is taken. */
#include "base/mem.h"
#include "base/size.h"
#include "bench/parts.h"

#include <string.h>

#define UNROLL 8             /* loads that do not wait for one another */
#define UNIT   ((size_t)512) /* bytes that pieces are multiples of: two runs of a round each */

typedef uint64_t vec128 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t vec256 __attribute__((vector_size(32), aligned(1), may_alias));

/* Load the n bytes at p, n a multiple of UNIT; two: as two runs, the halves. */
typedef uint64_t read_fn(const uint8_t *p, size_t n, bool two);

#define READ_BODY(vec)                                                                             \
    const size_t half = UNROLL / 2 * sizeof(vec);                                                  \
    const size_t gap = two ? n / 2 : half, step = two ? half : 2 * half;                           \
    vec sum[UNROLL];                                                                               \
    memset(sum, 0, sizeof sum);                                                                    \
    for (size_t rounds = n / (2 * half); rounds > 0; rounds--, p += step)                          \
        for (size_t j = 0; j < UNROLL / 2; j++) {                                                  \
            sum[2 * j] ^= *(const vec *)(p + j * sizeof(vec));                                     \
            sum[2 * j + 1] ^= *(const vec *)(p + gap + j * sizeof(vec));                           \
        }                                                                                          \
    for (int j = 1; j < UNROLL; j++)                                                               \
        sum[0] ^= sum[j];                                                                          \
    return sum[0][0]

static uint64_t read_plain(const uint8_t *p, size_t n, bool two)
{
    READ_BODY(vec128);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t read_avx2(const uint8_t *p, size_t n, bool two)
{
    READ_BODY(vec256);
}
#endif

static read_fn *reader_of(enum kern_level level)
{
#if defined(__x86_64__)
    if (level >= KL_AVX2 && level <= KL_AMX)
        return read_avx2;
#endif
    (void)level;
    return read_plain;
}

struct reader {
    struct pool *pool;
    const struct bench_stream *s;
    uint64_t at, piece; /* where the next window begins; bytes per thread */
    read_fn *read;
    bool two;
    _Atomic uint64_t sink; /* so that the loads are needed */
};

static void read_piece(void *arg, int tid)
{
    struct reader *r = arg;
    r->sink += r->read(r->s->p + r->at + r->piece * (uint64_t)tid, r->piece, r->two);
}

static void read_windows(void *arg, int64_t calls)
{
    struct reader *r = arg;
    const uint64_t window = r->piece * (uint64_t)pool_threads(r->pool);
    for (int64_t i = 0; i < calls; i++) {
        if (r->at + window > r->s->bytes)
            r->at = 0;
        pool_run(r->pool, read_piece, r);
        r->at += window;
    }
}

double bench_time_ram(struct pool *pool, const struct bench_stream *s, enum kern_level level,
                      const struct bench_effort *effort, struct bench_time *out)
{
    struct reader r = {.pool = pool, .s = s, .read = reader_of(level)};
    struct bench_time two;
    r.piece = size_down(s->window / (uint64_t)pool_threads(pool), UNIT);
    bench_time_work(effort, read_windows, &r, out);
    r.two = true;
    bench_time_work(effort, read_windows, &r, &two);
    if (two.median < out->median)
        *out = two;
    return (double)(r.piece * (uint64_t)pool_threads(pool));
}

uint64_t bench_window(uint64_t ram_bytes, int n_threads)
{
    const uint64_t want = (uint64_t)n_threads << 24, least = UINT64_C(64) << 20;
    const uint64_t window = want > least ? want : least;
    return window < ram_bytes / 8 ? window : ram_bytes / 8;
}

bool bench_open_stream(struct bench_stream *s, uint64_t bytes)
{
    *s = (struct bench_stream){.p = mem_map(bytes, MEM_HUGE), .bytes = bytes};
    if (!s->p)
        return false;
    mem_populate(s->p, bytes);
    memset(s->p, 1, bytes);
    return true;
}

void bench_close_stream(struct bench_stream *s)
{
    mem_unmap(s->p, s->bytes);
    *s = (struct bench_stream){0};
}
