/* forecast.c: the arithmetic; see forecast.h. */
#include "bench/forecast.h"

#include "base/clock.h"
#include "base/mem.h"
#include "bench/parts.h"

#include <math.h>
#include <string.h>

static double all_bytes(const struct forecast_weights *w)
{
    double n = 0;
    for (int t = 0; t < QT_COUNT; t++)
        n += (double)w->bytes[t];
    return n;
}

/* ---- Decoding ---- */

/* What does not grow with the model: norms, routing and threads that meet, per block; drawing a
 * token, text, counters, per token. Measured on models of a few MiB; a hundredth of the time of one
 * that is worth planning for. */
#define BLOCK_S 8e-6
#define TOKEN_S 25e-6
/* Likewise in a prompt: norms, angles, packing and routing, per token and block; the first use of
 * code, stacks and tables, once. */
#define PROMPT_BLOCK_S 2e-6
#define FIRST_S        1.2e-3

/* Seconds for one token to pass through all of the weights. */
static double read_seconds(const struct forecast_weights *w, const struct forecast_rates *r)
{
    double s = 0;
    for (int t = 0; t < QT_COUNT; t++)
        if (w->bytes[t])
            s += (double)w->bytes[t] / (r->gemv[t] > 0 ? r->gemv[t] : r->ram);
    return s;
}

/* Models with fewer experts than those that were recorded choose more evenly: which part of the
 * distance from an even choice they go. */
static double how_uneven(int n_expert)
{
    return n_expert < 128 ? n_expert / 128.0 : 1;
}

/* Shares of the bank and hits, the mean of three recorded models, with 2, 6 and 6 of 128 experts
 * per token: how many of them a token uses hardly matters. Cold misses of the recordings (3 to 11 %
 * of their accesses) are taken out: they end as a text goes on. */
double forecast_hit(double share, int n_expert)
{
    static const double at[] = {0, 0.03, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 1};
    static const double hit[] = {0,     0.361, 0.479, 0.656, 0.760, 0.834,
                                 0.885, 0.924, 0.974, 0.994, 0.999, 1};
    enum { N = sizeof at / sizeof *at };
    if (!(share > 0) || n_expert <= 0)
        return 0;
    if (share >= 1)
        return 1;
    int i = 1;
    while (i < N - 1 && share > at[i])
        i++;
    const double usual = hit[i - 1] +
                         (hit[i] - hit[i - 1]) * (share - at[i - 1]) / (at[i] - at[i - 1]);
    return share + (usual - share) * how_uneven(n_expert);
}

/* Seconds until n experts of a layer have come: the drive was idle, so the first read takes as long
 * as one that is alone, and the others follow at the drive's rate, or in rounds where that is
 * slower. */
static double arrive_seconds(const struct forecast_rates *r, const struct forecast_run *run, int n,
                             double expert_bytes)
{
    if (!(r->drive > 0))
        return 0;
    const double reads = (double)n * (run->parts > 0 ? run->parts : 1),
                 each = n * expert_bytes / reads / r->drive;
    const double rounds = run->in_flight > 0 ? ceil(reads / run->in_flight) : 1;
    return fmax(fmax(r->latency, each) + (reads - 1) * each, rounds * r->latency);
}

/* The routed part of a layer: k experts, each of which takes `one` to multiply. */
static double layer_seconds(const struct forecast_rates *r, const struct forecast_run *run, int k,
                            double hit, double one, double expert_bytes, double *read_s)
{
    double s = 0;
    for (int n = 0; n <= k; n++) {
        const double ways = lgamma(k + 1.0) - lgamma(n + 1.0) - lgamma(k - n + 1.0);
        const double p = exp(ways) * pow(1 - hit, n) * pow(hit, k - n);
        const double read = n > 0 ? arrive_seconds(r, run, n, expert_bytes) : 0;
        s += p * (fmax(read, (k - n) * one) + (n > 0 ? one : 0));
        *read_s += p * read;
    }
    return s;
}

static void decode(const struct forecast_shape *s, const struct forecast_rates *r,
                   const struct forecast_run *run, struct forecast *out)
{
    const double used = s->n_expert ? (double)s->top_k / s->n_expert : 0;
    const double routed = all_bytes(&s->bank) * used, multiply = read_seconds(&s->bank, r) * used;
    const double kv = (double)run->kv_bytes * run->n_prompt / r->ram;
    out->token_s = read_seconds(&s->head, r) + read_seconds(&s->layers, r) + kv + TOKEN_S +
                   s->n_block * BLOCK_S;
    out->hit = 1;
    out->routed_bytes = routed;
    if (!run->streamed || s->n_layer == 0) {
        out->token_s += multiply;
        return;
    }
    out->hit = run->hit >= 0
                   ? run->hit
                   : forecast_hit((double)run->cache_bytes / all_bytes(&s->bank), s->n_expert);
    out->read_bytes = routed * (1 - out->hit);
    const double experts = (double)s->n_layer * s->top_k;
    double read = 0;
    out->token_s += s->n_layer * layer_seconds(r, run, s->top_k, out->hit, multiply / experts,
                                               routed / experts, &read);
    out->read_s = s->n_layer * read;
}

/* ---- Prompt ---- */

/* Seconds of the products of n tokens with weights that each of them passes. */
static double multiply_seconds(const struct forecast_weights *w, const double gemm[QT_COUNT],
                               double n)
{
    double s = 0;
    const double bytes = all_bytes(w);
    for (int t = 0; t < QT_COUNT; t++)
        if (w->bytes[t] && gemm[t] > 0)
            s += n * w->macs * ((double)w->bytes[t] / bytes) / gemm[t];
    return s;
}

/* Tokens of one text choose alike: as if an expert's rate were drawn, once for the text, from a
 * gamma distribution of this shape (then the tokens that choose it are negative binomial). Three
 * recorded models with 2, 6 and 6 of 128 experts: 4 to 128 tokens reach 5 to 58 % of them, this
 * says so within 0.05. */
#define REACH_SHAPE 0.25

double forecast_reach(double n, double used, int n_expert)
{
    if (!(n >= 1) || !(used > 0) || n_expert <= 0)
        return 0;
    if (used >= 1)
        return 1;
    const double even = 1 - pow(1 - used, n);
    const double alike = 1 - (1 - used) * pow(1 + (n - 1) * used / REACH_SHAPE, -REACH_SHAPE);
    return even + (alike - even) * how_uneven(n_expert);
}

static void prompt(const struct forecast_shape *s, const struct forecast_rates *r,
                   const struct forecast_run *run, struct forecast *out)
{
    const double n = run->n_prompt, width = run->ubatch < n ? run->ubatch : n;
    const double chunks = ceil(n / width);
    const double used = s->n_expert ? (double)s->top_k / s->n_expert : 0;
    const double reached = run->reach > 0 ? run->reach : forecast_reach(width, used, s->n_expert);
    const double *gemm = r->gemm[width >= FORECAST_MANY / 2];
    double compute = multiply_seconds(&s->layers, gemm, n);
    if (s->n_expert) {
        const double meet = width * used / reached; /* tokens at an expert that is reached */
        compute += multiply_seconds(&s->bank, r->gemm[meet >= FORECAST_MANY / 2], n * used);
        /* Few tokens do not hide that weights come from memory. */
        const double from_ram = chunks * reached * read_seconds(&s->bank, r);
        compute = compute > from_ram ? compute : from_ram;
    }
    if (r->fma > 0)
        compute += s->attention_macs * n * n / 2 / r->fma;
    compute += read_seconds(&s->head, r) + chunks * (s->n_block * BLOCK_S + TOKEN_S) +
               n * s->n_block * PROMPT_BLOCK_S + FIRST_S;
    if (r->touch > 0) /* buffers, keys and values are used for the first time */
        compute += ((double)run->batch_bytes * width / run->ubatch + (double)run->kv_bytes * n) /
                   r->touch;
    double read_s = 0, first_read_s = 0;
    if (run->streamed && s->n_expert) {
        const double kept = (double)run->cache_bytes / all_bytes(&s->bank);
        const double again = kept > 1 ? 0 : reached * (1 - kept);
        const double latency = chunks * s->n_layer * r->latency;
        out->prompt_bytes = all_bytes(&s->bank) * (reached + (chunks - 1) * again);
        read_s = r->drive > 0 ? fmax(out->prompt_bytes / r->drive, latency) : 0;
        first_read_s = read_s / (chunks * s->n_layer);
    }
    out->load_s = r->load > 0 ? (double)run->load_bytes / r->load : 0;
    const double blocks = s->n_block > 0 ? s->n_block : 1;
    if (run->load_behind) {
        first_read_s += r->load > 0 ? (double)run->embd_bytes / r->load : 0;
        first_read_s += fmax(out->load_s - first_read_s, 0) / blocks;
        read_s += out->load_s;
    }
    /* The first block has nothing to compute while it is read, the last nothing to read. */
    out->prompt_s = fmax(compute + first_read_s, read_s > 0 ? read_s + compute / blocks : 0) +
                    (run->load_behind ? FORECAST_BEHIND_S : 0) +
                    (run->streamed ? FORECAST_STREAM_S : 0);
}

void forecast_make(const struct forecast_shape *s, const struct forecast_rates *r,
                   const struct forecast_run *run, struct forecast *out)
{
    memset(out, 0, sizeof *out);
    decode(s, r, run, out);
    prompt(s, r, run, out);
}

/* ---- The machine ---- */

/* Shape of the matrices that are measured: columns that every block divides, more rows than any
 * kernel takes at once. */
#define PROBE_ROWS 768
#define PROBE_COLS 2048
/* Where memory is not to be measured: a buffer that is quickly filled. */
#define UNUSED_BYTES ((uint64_t)32 << 20)
#define TOUCH_BYTES  ((size_t)32 << 20)

static void take(const struct bench_result *b, struct forecast_rates *out, enum quant_type type)
{
    if (strcmp(b->type, quant_type_info(type)->name) != 0)
        return;
    if (b->kernel == BENCH_GEMV && b->source == BENCH_RAM)
        out->gemv[type] = b->bytes / b->time.median;
    else if (b->kernel == BENCH_GEMM && b->tokens == FORECAST_FEW)
        out->gemm[0][type] = b->ops / b->time.median;
    else if (b->kernel == BENCH_GEMM && b->tokens == FORECAST_MANY)
        out->gemm[1][type] = b->ops / b->time.median;
}

static void take_all(const struct bench_report *r, const struct bench_plan *p,
                     struct forecast_rates *out)
{
    for (int i = 0; i < r->n_results; i++)
        for (int t = 0; t < QT_COUNT; t++)
            if (p->types[t])
                take(&r->results[i], out, (enum quant_type)t);
    const struct bench_ram *ram = &r->ram[0];
    out->ram = ram->bytes / 2 * (1 / ram->before.median + 1 / ram->after.median);
    out->fma = bench_find_peak(r, BENCH_FMA, r->level, p->threads[0]);
}

/* Pages are given, zeroed, one by one. 0: there is no memory. */
static double measure_touch(void)
{
    volatile uint8_t *p = mem_map(TOUCH_BYTES, 0);
    if (!p)
        return 0;
    const double begin = clock_now();
    for (size_t i = 0; i < TOUCH_BYTES; i += mem_page_size())
        p[i] = 1;
    const double s = clock_now() - begin;
    mem_unmap((void *)p, TOUCH_BYTES);
    return s > 0 ? (double)TOUCH_BYTES / s : 0;
}

/* The buffer that products from memory walk through: they shall not find more of it in the CPU's
 * caches than of the model's weights, which share them with keys, values and buffers. */
static uint64_t buffer_bytes(const struct bench_machine *m, int threads, uint64_t in_memory)
{
    const uint64_t least = (uint64_t)threads * PROBE_ROWS * PROBE_COLS * sizeof(float);
    const uint64_t most = bench_ram_bytes(m, threads);
    const uint64_t want = in_memory < most / 2 ? 2 * in_memory : most;
    return want > least ? want : least;
}

int forecast_measure(const struct forecast_shape *s, int threads, uint64_t in_memory, double ram,
                     struct forecast_rates *out, struct sl_err *err)
{
    struct bench_machine machine;
    bench_read_machine("", &machine);
    struct bench_plan p = {.n_threads = 1,
                           .threads = {threads},
                           .n_tokens = 2,
                           .tokens = {FORECAST_FEW, FORECAST_MANY},
                           .rows = PROBE_ROWS,
                           .cols = PROBE_COLS,
                           .ram_bytes = ram > 0 ? UNUSED_BYTES
                                                : buffer_bytes(&machine, threads, in_memory),
                           .effort = {.reps = 7, .sample_s = 2e-3},
                           .seed = 1};
    struct kernels best;
    kernels_init(&best, KL_COUNT);
    p.levels[best.level] = true;
    for (int t = 0; t < QT_COUNT; t++)
        p.types[t] = (s->layers.bytes[t] || s->head.bytes[t] || s->bank.bytes[t]) &&
                     bench_has_product((enum quant_type)t);
    struct bench_report r = {0};
    int rc = bench_run(&p, NULL, NULL, &r, err);
    if (rc == 0) {
        *out = (struct forecast_rates){.drive = out->drive,
                                       .load = out->load,
                                       .latency = out->latency,
                                       .touch = measure_touch()};
        take_all(&r, &p, out);
    }
    if (rc == 0 && ram > 0) {
        out->ram = ram;
        memset(out->gemv, 0, sizeof out->gemv);
    }
    bench_free_report(&r);
    return rc;
}
