#include "bench/cached.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "thread/pool.h"

#include <stdatomic.h>
#include <string.h>

#define PROBE_EVERY  ((uint64_t)64 << 10) /* bytes of a slice for each page that is looked up */
#define COPY_BUDGET  1.0                  /* seconds of copies, after which no pass begins */
#define RAM_LEAST    ((uint64_t)64 << 20)
#define RAM_MOST     ((uint64_t)1 << 30)
#define RAM_REPS     7
#define RAM_SAMPLE_S 2e-3

struct cached {
    const struct bench_places *places;
    const struct bench_cached_spec *spec;
    const struct bench_stream *ram;
    struct pool *pool;
    uint64_t page, room; /* room: bytes of one destination */
    uint8_t *memory;
    size_t memory_bytes;
    int64_t n_experts;
    uint32_t *order; /* of the experts, in this pass */
    uint64_t rng;

    bool copy; /* from ram instead of the file */
    _Atomic int64_t next;
    atomic_flag failed;
    _Atomic bool stop;
    struct sl_err err; /* of the thread that set failed */
};

/* ---- Tasks ----------------------------------------------------------------------------------- */

static const struct bench_slice *expert_slices(const struct cached *c, int64_t e)
{
    return &c->places->slice[e * c->places->group];
}

/* Where piece j of an expert's bytes begins, its slices thought one behind the other: an equal
 * part, moved down to a page of the file. */
static uint64_t find_cut(const struct cached *c, const struct bench_slice *s, int j)
{
    uint64_t total = 0, begin = 0;
    for (int k = 0; k < c->places->group; k++)
        total += s[k].bytes;
    if (j == c->spec->split)
        return total;
    const uint64_t at = (uint64_t)((unsigned __int128)total * (unsigned)j /
                                   (unsigned)c->spec->split);
    while (at - begin >= s->bytes && at < total) {
        begin += s->bytes;
        s++;
    }
    const uint64_t over = (s->offset + at - begin) % c->page;
    return at - begin < over ? begin : at - over;
}

/* The bytes [from, to) of one slice into dst. */
static void move_bytes(struct cached *c, const struct bench_slice *s, uint64_t from, uint64_t to,
                       uint8_t *dst)
{
    const size_t n = (size_t)(to - from);
    struct sl_err err;
    if (c->copy) {
        const uint64_t span = size_down(c->ram->bytes - n, c->page);
        memcpy(dst, c->ram->p + (span ? (s->offset + from) % span : 0), n);
        return;
    }
    if (io_file_read(s->file, dst, s->offset + from, n, n, &err) == 0)
        return;
    if (!atomic_flag_test_and_set(&c->failed))
        c->err = err;
    c->stop = true;
}

/* Piece j of expert e. A place for an expert has its slices one behind the other, each as far into
 * a page as in the file; a thread's place is filled from its begin each time. */
static void do_task(struct cached *c, int64_t e, int j, int tid)
{
    const struct bench_slice *s = expert_slices(c, e);
    const uint64_t from = find_cut(c, s, j), to = find_cut(c, s, j + 1);
    uint8_t *dst = c->memory + c->room * (uint64_t)(c->spec->slots ? e : tid);
    uint64_t begin = 0, at = 0; /* of slice k: in the expert; in its place */
    for (int k = 0; k < c->places->group; k++) {
        const uint64_t end = begin + s[k].bytes;
        const uint64_t lo = from > begin ? from : begin, hi = to < end ? to : end;
        if (c->spec->slots || lo < hi) {
            const uint64_t first = c->spec->slots ? begin : lo;
            at = size_up(at, c->page) + (s[k].offset + first - begin) % c->page;
            if (lo < hi)
                move_bytes(c, &s[k], lo - begin, hi - begin, dst + at + (lo - first));
            at += c->spec->slots ? s[k].bytes : hi - lo;
        }
        begin = end;
    }
}

static void take_tasks(void *arg, int64_t begin, int64_t end, int tid)
{
    struct cached *c = arg;
    const int64_t n = c->n_experts * c->spec->split;
    (void)begin;
    (void)end;
    for (int64_t i; !c->stop && (i = atomic_fetch_add(&c->next, 1)) < n;)
        do_task(c, c->order[i / c->spec->split], (int)(i % c->spec->split), tid);
}

/* ---- Passes ---------------------------------------------------------------------------------- */

static void shuffle(struct cached *c)
{
    for (int64_t i = c->n_experts - 1; i > 0; i--) {
        const int64_t j = (int64_t)(bench_rand(&c->rng) % (uint64_t)(i + 1));
        const uint32_t e = c->order[i];
        c->order[i] = c->order[j];
        c->order[j] = e;
    }
}

/* Seconds of one pass. Each thread has one item of pool_for and takes tasks from the common
 * counter; so a thread that the system lets run late delays nobody, and the tasks end evenly. */
static double run_pass(struct cached *c)
{
    shuffle(c);
    c->next = 0;
    const double t0 = clock_now();
    pool_for(c->pool, c->spec->threads, 1, take_tasks, c);
    const double s = clock_now() - t0;
    return s > 1e-9 ? s : 1e-9; /* a clock that stood still */
}

static double find_cached(const struct cached *c)
{
    double in = 0, all = 0;
    for (int64_t i = 0; i < c->places->n; i++) {
        const struct bench_slice *s = &c->places->slice[i];
        const double probes = 1 + (double)(s->bytes / PROBE_EVERY);
        in += probes * io_file_cached(s->file, s->offset, s->bytes, (int)probes);
        all += probes;
    }
    return in / all;
}

/* The looks at the page cache leave the CPU's caches cold and threads asleep, which made the next
 * pass up to 5 % slower than passes that follow each other: so an untimed one comes first. Not
 * before the first pass of a measurement without warm-up, which may be meant to be cold. */
static void read_passes(struct cached *c, struct bench_cached_row *r)
{
    for (int i = 0; i < c->spec->warmup && !c->stop; i++)
        run_pass(c);
    double before = find_cached(c);
    r->cached = true;
    for (int i = 0; i < c->spec->passes && !c->stop; i++) {
        if (i > 0 || c->spec->warmup > 0)
            run_pass(c);
        const double s = run_pass(c), after = find_cached(c);
        r->pass_s[r->passes] = s;
        r->pass_cached[r->passes++] = before < after ? before : after;
        r->cached = r->cached && before == 1 && after == 1;
        r->seconds += s;
        r->best_s = i == 0 || s < r->best_s ? s : r->best_s;
        r->worst_s = s > r->worst_s ? s : r->worst_s;
        before = after;
    }
}

static void compare_memory(struct cached *c, struct bench_cached_row *r)
{
    const struct bench_effort effort = {RAM_REPS, RAM_SAMPLE_S};
    struct bench_stream s = *c->ram;
    struct bench_time t;
    double spent = 0;
    int n = 0;
    c->copy = true;
    run_pass(c);
    do
        spent += run_pass(c);
    while (++n < c->spec->passes && spent < COPY_BUDGET);
    r->copy_gb_s = (double)n * (double)r->bytes / spent * 1e-9;
    s.window = bench_window(s.bytes, c->spec->threads);
    const double bytes = bench_time_ram(c->pool, &s, kernels_cpu_level(), &effort, &t);
    r->read_gb_s = bytes / t.median * 1e-9;
}

/* ---- The measurement ------------------------------------------------------------------------- */

static void touch_memory(void *arg, int tid)
{
    const struct cached *c = arg;
    const uint64_t n = (uint64_t)(c->spec->slots ? c->n_experts : c->spec->threads);
    for (uint64_t i = (uint64_t)tid; i < n; i += (uint64_t)c->spec->threads)
        memset(c->memory + i * c->room, 1, c->room);
}

static int open_memory(struct cached *c, struct sl_err *err)
{
    const struct bench_places *p = c->places;
    uint64_t bytes, most = 0;
    for (int64_t e = 0; e < c->n_experts; e++) {
        uint64_t n = 0;
        for (int k = 0; k < p->group; k++)
            n += size_up(expert_slices(c, e)[k].bytes, c->page) + c->page;
        most = n > most ? n : most;
    }
    c->room = most;
    const uint64_t n = (uint64_t)(c->spec->slots ? c->n_experts : c->spec->threads);
    if (!size_mul(c->room, n, &bytes) || bytes > SIZE_MAX / 2)
        return err_set(err, SL_E_ARG, "cachebench", "the experts are too large");
    c->memory_bytes = (size_t)bytes;
    c->order = mem_calloc((size_t)c->n_experts, sizeof *c->order);
    c->memory = mem_map(c->memory_bytes, c->spec->huge ? MEM_HUGE : 0);
    if (!c->order || !c->memory)
        return err_set(err, SL_E_MEM, "cachebench",
                       "no memory for %llu destinations of %llu bytes; fewer --experts or "
                       "--threads need less",
                       (unsigned long long)n, (unsigned long long)c->room);
    for (int64_t e = 0; e < c->n_experts; e++)
        c->order[e] = (uint32_t)e;
    pool_run(c->pool, touch_memory, c);
    return 0;
}

static int check_spec(const struct bench_places *p, const struct bench_cached_spec *s,
                      const struct bench_stream *ram, struct sl_err *err)
{
    if (p->n <= 0 || p->group <= 0 || p->n % p->group || s->split < 1 ||
        s->split > BENCH_MAX_SPLIT || s->passes < 1 || s->passes > BENCH_MAX_PASSES ||
        s->warmup < 0 || ram->bytes < p->bytes_most)
        return err_set(err, SL_E_ARG, "cachebench", "nothing to read, or an impossible plan");
    for (int64_t i = 0; i < p->n; i++)
        if (io_file_direct(p->slice[i].file))
            return err_set(err, SL_E_ARG, "cachebench",
                           "direct reads go past the page cache: open the file without them");
    return 0;
}

int bench_measure_cached(const struct bench_places *places, const struct bench_cached_spec *spec,
                         const struct bench_stream *ram, struct bench_cached_row *out,
                         struct sl_err *err)
{
    struct cached c = {.places = places,
                       .spec = spec,
                       .ram = ram,
                       .page = mem_page_size(),
                       .failed = ATOMIC_FLAG_INIT,
                       .rng = spec->seed};
    *out = (struct bench_cached_row){
        .threads = spec->threads, .split = spec->split, .bytes = places->bytes};
    int rc = check_spec(places, spec, ram, err);
    if (rc == 0) {
        c.n_experts = places->n / places->group;
        out->experts = c.n_experts;
        out->tasks = c.n_experts * spec->split;
        rc = pool_create(spec->threads, &c.pool, err);
    }
    if (rc == 0)
        rc = open_memory(&c, err);
    if (rc == 0) {
        read_passes(&c, out);
        if (c.stop) {
            rc = c.err.code;
            if (err)
                *err = c.err;
        } else {
            compare_memory(&c, out);
        }
    }
    pool_destroy(&c.pool);
    mem_unmap(c.memory, c.memory_bytes);
    mem_free(c.order);
    return rc;
}

uint64_t bench_cached_ram(const struct bench_places *places, int threads, uint64_t most)
{
    const uint64_t least = RAM_LEAST + ((uint64_t)threads << 20);
    uint64_t want = places->bytes < RAM_MOST ? places->bytes : RAM_MOST;
    want = want < most ? want : most;
    want = want > least ? want : least;
    return want > places->bytes_most ? want : places->bytes_most;
}

double bench_cached_rate(const struct bench_cached_row *r)
{
    return (double)r->passes * (double)r->bytes / r->seconds * 1e-9;
}
