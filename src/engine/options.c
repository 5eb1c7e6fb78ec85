/* Defaults and validation of the engine's options. */
#include "engine/options.h"

#include <string.h>

#include "base/err.h"
#include "cache/policy.h"
#include "model/config.h"

void sl_engine_options_init(struct sl_engine_options *o)
{
    memset(o, 0, sizeof *o);
    o->cache_mb = SL_CACHE_AUTO;
    o->cache_slots = SL_CACHE_UNSET;
    o->cache_floor_mb = 1536;
    o->io_threads = 4;
    o->io_split = 1;
    o->direct = true;
    o->overlap = true;
    o->k_type = o->v_type = SL_KV_F16;
}

enum kv_type options_kv_type(enum sl_kv_type t)
{
    return t == SL_KV_F32 ? KV_F32 : t == SL_KV_F16 ? KV_F16 : KV_Q8_0;
}

static int range(const char *name, int64_t v, int64_t low, int64_t high, struct sl_err *err)
{
    if (v >= low && v <= high)
        return 0;
    return err_set(err, SL_E_ARG, name, "%s is %lld, expected %lld to %lld", name, (long long)v,
                   (long long)low, (long long)high);
}

/* A number from 0 to 1; NaN is none. */
static int fraction(const char *name, double v, struct sl_err *err)
{
    return v >= 0 && v <= 1 ? 0
                            : err_set(err, SL_E_ARG, name, "%s is %g, expected 0 to 1", name, v);
}

static int clash(const char *a, const char *b, struct sl_err *err)
{
    return err_set(err, SL_E_ARG, a, "%s and %s exclude each other", a, b);
}

/* What decides by the content of the cache needs one. Automatic sizes are judged when they are
 * known. */
static int wants_cache(const struct sl_engine_options *o, const char *name, struct sl_err *err)
{
    if (o->stream == SL_STREAM_OFF)
        return err_set(err, SL_E_ARG, name,
                       "%s needs streamed experts, and streaming is switched off", name);
    if (o->cache_slots == 0 ||
        (o->cache_slots == SL_CACHE_UNSET && o->cache_mb == 0 && o->cache_entries == 0))
        return err_set(err, SL_E_ARG, name, "%s needs an expert cache, and there is none", name);
    return 0;
}

static int check_routing(const struct sl_engine_options *o, struct sl_err *err)
{
    int rc;
    if ((rc = range("--n-expert-used", o->n_expert_used, 0, MODEL_MAX_TOPK, err)) < 0 ||
        (rc = range("--route-ahead", o->route_ahead, 0, MODEL_MAX_LAYERS - 1, err)) < 0 ||
        (rc = fraction("--drop-cold-experts", o->drop_cold, err)) < 0 ||
        (rc = fraction("--expert-substitute", o->substitute, err)) < 0)
        return rc;
    if (o->route_replay && o->n_expert_used)
        return clash("--route-replay", "--n-expert-used", err);
    if (o->route_replay && o->substitute > 0)
        return clash("--route-replay", "--expert-substitute", err);
    if (o->route_replay && o->route_ahead)
        return clash("--route-replay", "--route-ahead", err);
    if (o->route_ahead && o->substitute > 0)
        return clash("--route-ahead", "--expert-substitute", err);
    if (o->drop_no_renorm && o->drop_cold == 0)
        return err_set(err, SL_E_ARG, "--drop-no-renorm",
                       "--drop-no-renorm means nothing without --drop-cold-experts");
    if (o->drop_in_prefill && o->drop_cold == 0)
        return err_set(err, SL_E_ARG, "--drop-in-prefill",
                       "--drop-in-prefill means nothing without --drop-cold-experts");
    if (o->drop_cold > 0 && (rc = wants_cache(o, "--drop-cold-experts", err)) < 0)
        return rc;
    return o->substitute > 0 ? wants_cache(o, "--expert-substitute", err) : 0;
}

/* Reads on a guess: into the cache, while something else is going on. */
static int check_prefetch(const struct sl_engine_options *o, struct sl_err *err)
{
    const char *name = o->prefetch           ? "--prefetch"
                       : o->predict_prefetch ? "--predict-prefetch"
                                             : NULL;
    int rc;
    if ((rc = range("--prefetch", o->prefetch, 0, MODEL_MAX_LAYERS - 1, err)) < 0 ||
        (rc = range("--predict-spec-max", o->predict_spec_max, 0, MODEL_MAX_TOPK, err)) < 0)
        return rc;
    if (o->predict_spec_max && !o->predict_prefetch)
        return err_set(err, SL_E_ARG, "--predict-spec-max",
                       "--predict-spec-max means nothing without --predict-prefetch");
    if (!name)
        return 0;
    if (o->route_ahead)
        return clash("--route-ahead", name, err);
    if ((rc = wants_cache(o, name, err)) < 0)
        return rc;
    if (!o->overlap)
        return err_set(err, SL_E_ARG, name, "%s reads beside computing; it needs --overlap", name);
    if (o->io_engine == SL_IO_PLAIN)
        return err_set(err, SL_E_ARG, name,
                       "%s reads beside computing; the plain I/O engine cannot", name);
    return 0;
}

int sl_engine_options_check(const struct sl_engine_options *o, struct sl_err *err)
{
    const int64_t most_mb = (int64_t)1 << 40; /* MiB; an exabyte, far below overflow in bytes */
    int rc;
    if ((rc = range("threads", o->threads, 0, 1024, err)) < 0 ||
        (rc = range("cpu level", o->cpu, SL_CPU_AUTO, SL_CPU_I8MM, err)) < 0 ||
        (rc = range("stream mode", o->stream, SL_STREAM_AUTO, SL_STREAM_OFF, err)) < 0 ||
        (rc = range("dense weights", o->dense_mode, SL_DENSE_ANON, SL_DENSE_WARM, err)) < 0 ||
        (rc = range("io engine", o->io_engine, SL_IO_AUTO, SL_IO_URING, err)) < 0 ||
        (rc = range("packed experts", o->packed, SL_PACKED_NONE, SL_PACKED_2BIT, err)) < 0 ||
        (rc = range("K cache type", o->k_type, SL_KV_F32, SL_KV_Q8_0, err)) < 0 ||
        (rc = range("V cache type", o->v_type, SL_KV_F32, SL_KV_Q8_0, err)) < 0 ||
        (rc = range("cache size in MiB", o->cache_mb, SL_CACHE_AUTO, most_mb, err)) < 0 ||
        (rc = range("cache entries", o->cache_entries, 0, 1 << 24, err)) < 0 ||
        (rc = range("cache slots", o->cache_slots, SL_CACHE_UNSET, 1 << 24, err)) < 0 ||
        (rc = range("reads in flight", o->io_threads, 1, 64, err)) < 0 ||
        (rc = range("chunks per expert", o->io_split, 1, 64, err)) < 0 ||
        (rc = range("context size", o->n_ctx, 0, 1 << 28, err)) < 0 ||
        (rc = range("ubatch", o->ubatch, 0, 1 << 20, err)) < 0)
        return rc;
    if (o->cache_slots == SL_CACHE_AUTO)
        return err_set(err, SL_E_ARG, "cache slots", "cache slots is -1, expected 0 or more");
    if (o->packed_dir && o->packed == SL_PACKED_NONE)
        return err_set(err, SL_E_ARG, "packed experts",
                       "a directory of packed experts is given, but no kind of them");
    if (!cache_find_policy(o->cache_policy))
        return err_set(err, SL_E_ARG, "cache policy", "there is no cache policy '%s'",
                       o->cache_policy);
    if (o->cache_floor_mb > (uint64_t)most_mb || o->cache_ceil_mb > (uint64_t)most_mb)
        return err_set(err, SL_E_ARG, "cache size",
                       "the cache's floor or ceiling is beyond any memory");
    if (o->stream == SL_STREAM_OFF &&
        (o->cache_slots >= 0 || o->cache_mb > 0 || o->cache_entries > 0))
        return err_set(
            err, SL_E_ARG, "cache size",
            "a cache size was given, but experts are not streamed; leave one of the two out");
    if (o->load_all && o->stream == SL_STREAM_OFF)
        return err_set(err, SL_E_ARG, "--load-all",
                       "--load-all needs streamed experts, and streaming is switched off");
    if (o->load_all && (o->prefetch > 0 || o->predict_prefetch))
        return err_set(err, SL_E_ARG, "--load-all",
                       "--load-all reads every expert: --prefetch and --predict-prefetch have "
                       "nothing to guess");
    if (o->row_stream && o->dense_mode != SL_DENSE_ANON)
        return err_set(err, SL_E_ARG, "--row-stream",
                       "--row-stream is for --dense-weights anon: mapped rows are not held anyway");
    rc = check_routing(o, err);
    return rc < 0 ? rc : check_prefetch(o, err);
}
