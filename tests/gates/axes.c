#include "gates/axes.h"

#include <stdio.h>
#include <string.h>

#include "base/cpus.h"
#include "io/reader.h"

enum { CACHE_HALF, CACHE_NONE, CACHE_K, CACHE_K1, CACHE_ALL, CACHE_RESIDENT, CACHE_ENTRIES };
enum { FILE_ONE, FILE_SPLIT, FILE_SPLIT_BARE, FILE_DRIVES };
enum { GUESS_NONE, GUESS_PREVIOUS, GUESS_ROUTER, GUESS_LOG };
enum { CALLS_ONE, CALLS_FIVE, CALLS_REWIND, CALLS_LAST };

static const int chunk_widths[] = {0, 1, 7, 64, 257};
static const enum sl_io_engine readers[] = {SL_IO_THREADS, SL_IO_PLAIN, SL_IO_URING};

static const struct {
    const char *name;
    bool streaming; /* only for models with experts */
    int n;
    const char *levels[AXIS_MAX_LEVELS];
} axes[AX_COUNT] = {
    [AX_CACHE] = {"cache", true, 7, {"half", "0", "k", "k+1", "all", "resident", "entries"}},
    [AX_THREADS] = {"threads", false, 3, {"1", "2", "3"}},
    [AX_READS] = {"reads", true, 2, {"4", "1"}},
    [AX_CHUNK] = {"chunk", false, 5, {"whole", "1", "7", "64", "257"}},
    [AX_FILE] = {"file", false, 4, {"one", "split", "split-bare", "split-drives"}},
    [AX_CPU] = {"cpu", false, 2, {"best", "scalar"}},
    [AX_DENSE] = {"dense", false, 3, {"anon", "mmap", "warm"}},
    [AX_READER] = {"reader", true, 3, {"threads", "plain", "uring"}},
    [AX_OVERLAP] = {"overlap", true, 2, {"on", "off"}},
    [AX_DIRECT] = {"direct", false, 2, {"on", "off"}},
    [AX_PARTS] = {"parts", true, 2, {"1", "3"}}, /* pieces that one expert's read is cut into */
    [AX_WAVES] = {"waves", true, 2, {"1", "2"}},
    [AX_CALLS] = {"calls", false, 4, {"one", "five", "rewind", "last-only"}},
    [AX_GUESS] = {"guess", true, 4, {"none", "previous", "router", "log"}},
    [AX_ROWS] = {"rows", false, 2, {"resident", "streamed"}}, /* of the embeddings */
    [AX_POLICY] = {"policy", true, 3, {"echo", "lfu-decay", "lru"}},
    [AX_RESIZE] = {"resize", true, 2, {"never", "always"}}, /* the cache, before every call */
    [AX_PACKED] = {"packed", true, 2, {"no", "yes"}},
    [AX_WATCH] = {"watch", false, 2, {"nobody", "all"}},
    [AX_PIN] = {"pin", false, 2, {"no", "yes"}},       /* where there are as many CPUs as threads */
    [AX_LOAD] = {"load", true, 2, {"routed", "all"}},  /* experts of a layer that are read */
    [AX_BEHIND] = {"behind", false, 2, {"no", "yes"}}, /* weights come during the evaluation */
};

const char *axis_name(enum axis a)
{
    return axes[a].name;
}

const char *axis_level_name(enum axis a, int level)
{
    return axes[a].levels[level];
}

int axis_levels(enum axis a)
{
    return axes[a].n;
}

/* Not in every build, and forbidden in many containers. */
static bool has_uring(void)
{
    struct io_reader *r;
    const char *note;
    bool has = io_reader_create("uring", 1, 1, &r, &note, NULL) == 0 && *note == '\0';
    io_reader_destroy(&r);
    return has;
}

bool axis_applies(const struct subject *s, enum axis a, int level)
{
    if (level == 0)
        return true;
    if (axes[a].streaming && s->k == 0)
        return false;
    if (a == AX_READER && readers[level] == SL_IO_URING)
        return has_uring();
    if (a == AX_CHUNK)
        return chunk_widths[level] < s->n_prompt;
    if (a == AX_PACKED)
        return s->packed[0] != '\0';
    if (a == AX_FILE)
        return (level == FILE_SPLIT_BARE ? s->split_bare : s->split)[0] != '\0';
    return true;
}

void way_describe(const struct way *w, char *text, size_t n)
{
    size_t at = 0;
    snprintf(text, n, "base");
    for (int a = 0; a < AX_COUNT && at < n; a++)
        if (w->level[a] != 0)
            at += (size_t)snprintf(text + at, n - at, "%s%s=%s", at ? " " : "", axes[a].name,
                                   axes[a].levels[w->level[a]]);
}

static void set_cache(const struct subject *s, int level, struct sl_engine_options *o)
{
    int half = s->n_bank / 2 > s->k ? s->n_bank / 2 : s->k;
    o->stream = SL_STREAM_ON;
    switch (level) {
    case CACHE_NONE:
        o->cache_mb = 0;
        break;
    case CACHE_K:
        o->cache_slots = s->k;
        break;
    case CACHE_K1:
        o->cache_slots = s->k + 1;
        break;
    case CACHE_ALL:
        o->cache_slots = s->n_bank;
        break;
    case CACHE_RESIDENT:
        o->stream = SL_STREAM_OFF;
        break;
    case CACHE_ENTRIES:
        o->cache_entries = s->n_bank * 3 / 4; /* k of each class at least */
        break;
    default:
        o->cache_slots = half;
    }
}

/* Reads on a guess want a cache, overlap and a reader that works beside computing: other ways to
 * run go without. */
static void set_guess(const int *l, struct sl_engine_options *o)
{
    bool can = o->stream == SL_STREAM_ON && o->cache_slots > 0 && o->overlap &&
               o->io_engine != SL_IO_PLAIN;
    o->prefetch = can && l[AX_GUESS] == GUESS_PREVIOUS ? 1 : 0;
    o->predict_prefetch = can && l[AX_GUESS] == GUESS_ROUTER;
    o->predict_log = l[AX_GUESS] == GUESS_LOG;
}

static bool wants_pin(const struct way *w)
{
    struct cpus_mask allowed;
    return w->level[AX_PIN] == 1 && w->level[AX_THREADS] < cpus_allowed("", &allowed);
}

void way_spec(const struct subject *s, const struct way *w, enum sl_kv_type kv,
              struct run_spec *spec)
{
    const int *l = w->level;
    struct sl_engine_options *o = &spec->opt;
    memset(spec, 0, sizeof *spec);
    sl_engine_options_init(o);
    spec->path = l[AX_FILE] == FILE_ONE          ? s->path
                 : l[AX_FILE] == FILE_SPLIT_BARE ? s->split_bare
                                                 : s->split;
    spec->drives = l[AX_FILE] == FILE_DRIVES ? 2 : 0; /* of three shards, so one has two */
    spec->ids = s->ids;
    spec->n_prompt = s->n_prompt;
    spec->n_step = s->n_step;
    spec->piece = l[AX_CALLS] == CALLS_FIVE ? 5 : 0;
    spec->rewind = l[AX_CALLS] == CALLS_REWIND;
    spec->watch = l[AX_WATCH] == 1;
    spec->last_only = l[AX_CALLS] == CALLS_LAST;
    o->n_ctx = s->n_ctx;
    o->k_type = o->v_type = kv;
    o->threads = l[AX_THREADS] + 1;
    o->pin = wants_pin(w);
    o->ubatch = chunk_widths[l[AX_CHUNK]] ? chunk_widths[l[AX_CHUNK]] : s->n_ctx;
    o->cpu = l[AX_CPU] == 1 ? SL_CPU_SCALAR : SL_CPU_AUTO;
    o->dense_mode = (enum sl_dense_mode)l[AX_DENSE];
    o->direct = l[AX_DIRECT] == 0;
    o->load_behind = l[AX_BEHIND] == 1;
    o->row_stream = l[AX_ROWS] == 1 && o->dense_mode == SL_DENSE_ANON;
    if (s->k > 0) {
        set_cache(s, l[AX_CACHE], o);
        if (l[AX_PACKED] && l[AX_FILE] == FILE_ONE) { /* a split set is a model of its own */
            o->packed = SL_PACKED_LOSSLESS;
            o->packed_dir = s->packed;
        }
        o->io_threads = l[AX_READS] == 0 ? 4 : 1;
        o->io_engine = readers[l[AX_READER]];
        o->overlap = l[AX_OVERLAP] == 0;
        o->io_split = l[AX_PARTS] == 0 ? 1 : 3;
        o->two_wave = l[AX_WAVES] == 1;
        spec->resize = l[AX_RESIZE] == 1 && l[AX_CACHE] != CACHE_RESIDENT;
        set_guess(l, o);
        o->load_all = l[AX_LOAD] == 1 && l[AX_CACHE] != CACHE_RESIDENT && l[AX_GUESS] == 0;
        o->cache_policy = axes[AX_POLICY].levels[l[AX_POLICY]];
    }
}

/* Experts (of a block) that the run asked for. */
static uint64_t distinct_experts(const struct subject *s, const struct run_result *r)
{
    uint64_t n = 0;
    for (int block = 0; block < r->n_layer; block++)
        for (int id = 0; id < s->n_expert; id++) {
            bool found = false;
            for (int pos = 0; pos < r->n_pos && !found; pos++)
                for (int i = 0; i < r->k && !found; i++)
                    found = r->experts[(pos * r->n_layer + block) * r->k + i] == id;
            n += found;
        }
    return n;
}

static const char *check_cache(const struct subject *s, const struct way *w,
                               const struct run_result *r)
{
    int level = w->level[AX_CACHE];
    const struct sl_phase_stats *p = &r->stats.prompt, *d = &r->stats.decode;
    if (r->plan.streamed != (level != CACHE_RESIDENT))
        return "streaming is not as asked";
    if (level == CACHE_RESIDENT)
        return NULL;
    if (strcmp(r->io_engine, axes[AX_READER].levels[w->level[AX_READER]]) != 0)
        return "another reader";
    if (r->plan.load_all != (w->level[AX_LOAD] == 1 && w->level[AX_GUESS] == 0))
        return "another choice of what is read";
    if ((r->plan.n_drives == 2) != (w->level[AX_FILE] == FILE_DRIVES))
        return "another number of drives";
    if (p->misses == 0 || p->bytes_read == 0)
        return "nothing was read";
    if (w->level[AX_RESIZE])
        return NULL;
    if (level == CACHE_NONE && p->hits + d->hits != 0 && w->level[AX_CHUNK] == 1)
        return "hits without a cache";
    if (level != CACHE_ALL)
        return NULL;
    if (p->evictions + d->evictions + p->rereads + d->rereads != 0)
        return "evictions or second reads although every expert has a slot";
    if (p->misses + d->misses != (r->plan.load_all ? (uint64_t)s->n_bank : distinct_experts(s, r)))
        return "not one miss for each expert that was asked for";
    return NULL;
}

const char *way_check(const struct subject *s, const struct way *w, const struct run_result *r)
{
    const int *l = w->level;
    if (r->bad_calls != 0)
        return "the observer was called with impossible arguments, or missed the last logits";
    if (r->plan.threads != l[AX_THREADS] + 1)
        return "another number of threads";
    if (r->plan.pinned != wants_pin(w))
        return "threads are not bound as asked";
    if (l[AX_CHUNK] != 0 && r->plan.ubatch != chunk_widths[l[AX_CHUNK]])
        return "another chunk width";
    if ((int)r->plan.dense_mode != l[AX_DENSE])
        return "another form of dense weights";
    if ((r->plan.packed != 0) != (l[AX_PACKED] && l[AX_FILE] == FILE_ONE))
        return "packed experts are not as asked";
    if (l[AX_DIRECT] == 1 && r->plan.direct)
        return "direct reads although switched off";
    if (l[AX_CPU] == 1 && strcmp(r->cpu_level, "scalar") != 0)
        return "not the scalar level";
#if defined(__x86_64__)
    if (l[AX_CPU] == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        strcmp(r->cpu_level, "scalar") == 0)
        return "the scalar level although the CPU has vectors";
#endif
    const char *wrong = NULL;
    if (l[AX_WATCH] == 1)
        wrong = watcher_check(&r->watcher, &r->stats, r->info.n_layer_routed, s->k);
    return wrong == NULL && s->k > 0 ? check_cache(s, w, r) : wrong;
}
