/* plan_print.c: a plan as text and as JSON. */
#include "cli/json_text.h"
#include "cli/plan.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB 1048576.0

static double mib(uint64_t bytes)
{
    return (double)bytes / MIB;
}

/* ---- Flags ---- */

static const char *dense_name(enum sl_dense_mode m)
{
    return m == SL_DENSE_MMAP ? "mmap" : m == SL_DENSE_WARM ? "warm" : "anon";
}

/* The command line that pins what the plan chose. */
static void make_flags(const struct plan *p, char *out, size_t size)
{
    const struct sl_engine_plan *e = &p->plan;
    char cache[48] = "";
    if (e->streamed)
        snprintf(cache, sizeof cache, " --cache-mb %.0f%s", floor(mib(e->cache_bytes)),
                 p->opt.direct ? "" : " --no-odirect");
    snprintf(out, size, "%s%s%s-t %d%s -c %d --ubatch %d --dense-weights %s",
             e->streamed            ? "--moe-stream"
             : p->info.n_expert > 0 ? "--no-moe-stream"
                                    : "",
             cache, e->streamed || p->info.n_expert > 0 ? " " : "", e->threads,
             e->pinned ? " --pin" : "", e->n_ctx, e->ubatch, dense_name(e->dense_mode));
}

/* ---- Text ---- */

static void print_memory(const struct plan *p)
{
    const struct sl_engine_plan *e = &p->plan;
    printf("memory, MiB\n");
    printf("  %-34s%10.1f\n", "program and reserve", mib(e->base_bytes));
    printf("  %-34s%10.1f\n",
           e->streamed || p->info.n_expert == 0 ? "weights that every token needs"
                                                : "weights, experts too",
           mib(e->dense_bytes));
    char kv[48];
    snprintf(kv, sizeof kv, "keys and values of %d tokens", e->n_ctx);
    printf("  %-34s%10.1f\n", kv, mib(e->kv_bytes));
    snprintf(kv, sizeof kv, "buffers of %d tokens at once", e->ubatch);
    printf("  %-34s%10.1f\n", kv, mib(e->compute_bytes));
    if (e->streamed) {
        printf("  %-34s%10.1f\n", "experts on their way", mib(e->transit_bytes));
        printf("  %-34s%10.1f   %.1f %% of the experts; the smallest is %.0f\n", "expert cache",
               mib(e->cache_bytes), 100 * (double)e->cache_bytes / (double)p->info.expert_bytes,
               mib(e->cache_min_bytes));
    }
    printf("  %-34s%10.1f", "total", mib(e->total_bytes));
    if (e->limit_bytes > 0)
        printf("   of %.0f allowed", mib(e->limit_bytes));
    printf("\n\n");
}

static void print_rates(const struct plan *p)
{
    char drive[48] = "not measured";
    if (p->rates.drive > 0)
        snprintf(drive, sizeof drive, "%.2f GB/s%s", p->rates.drive / 1e9,
                 p->args->drive > 0 ? " (given)" : "");
    printf("machine\n  drive %s, memory %.1f GB/s with %d threads%s\n\n", drive, p->rates.ram / 1e9,
           p->plan.threads, p->args->ram > 0 ? " (given)" : "");
}

static void print_speed(const struct plan *p)
{
    const struct forecast *f = &p->forecast;
    if (isfinite(f->token_s))
        printf("  %.1f token/s, first token of a prompt of %" PRId64 " tokens after %.1f s (%.0f "
               "token/s)",
               1 / f->token_s, p->args->n_prompt, f->prompt_s,
               (double)p->args->n_prompt / f->prompt_s);
    else
        printf("  no speed");
    if (isfinite(f->load_s))
        printf(", loading %.1f s%s\n", f->load_s, p->plan.load_behind ? " of it" : "");
    else
        printf("; the file is small or in memory, and the drive's rate not known: --drive-gb-s "
               "gives one\n");
}

static void print_estimate(const struct plan *p)
{
    const struct forecast *f = &p->forecast;
    printf("estimate\n");
    if (p->plan.streamed)
        printf("  hit rate %.0f %% (%s): %.0f of %.0f MiB read per token\n", 100 * f->hit,
               p->trace ? "this recording" : "usual for such a share of the experts",
               f->read_bytes / MIB, f->routed_bytes / MIB);
    print_speed(p);
    const int n_sizes = isfinite(f->token_s) ? p->n_sizes : 0;
    if (n_sizes > 0)
        printf("\n  cache MiB   hit %%  MiB/token  token/s\n");
    for (int i = 0; i < n_sizes; i++)
        printf("%s %10.0f %7.0f %10.0f %8.1f\n", p->sizes[i] == p->plan.cache_bytes ? " >" : "  ",
               mib(p->sizes[i]), 100 * p->by_size[i].hit, p->by_size[i].read_bytes / MIB,
               1 / p->by_size[i].token_s);
    printf("\n");
}

static void print_reasons(const struct plan *p)
{
    const struct sl_engine_plan *e = &p->plan;
    char flags[256];
    make_flags(p, flags, sizeof flags);
    printf("flags\n  %s\n", flags);
    if (p->info.n_expert > 0 && p->opt.stream == SL_STREAM_AUTO)
        printf("  %s\n", e->streamed
                             ? "streamed: with its experts the model does not fit into memory"
                             : "resident: everything fits into memory");
    if (e->streamed && e->cache_auto)
        printf("  the cache takes what is left of %s\n",
               e->limit_bytes ? "--ram" : "the memory that the machine can spare");
    if (e->streamed && e->cache_bytes > 0 && e->cache_bytes < p->info.token_expert_bytes)
        printf("  the cache is smaller than what one token routes (%.0f MiB): most experts are "
               "read for every token\n",
               mib(p->info.token_expert_bytes));
    if (p->opt.n_ctx == 0)
        printf("  context: the model's %d, at most 4096, and what fits\n", p->info.n_ctx_train);
    if (p->opt.ubatch == 0)
        printf("  prompt chunks of %d tokens: the widest whose buffers stay small%s\n", e->ubatch,
               e->streamed ? "; each chunk reads the experts again" : "");
    if (e->streamed && p->opt.direct && !e->direct)
        printf("  reads are buffered: this file system has no direct ones\n");
    for (int i = 0; i < p->n_notes; i++)
        printf("  note: %s\n", p->notes[i]);
}

static void print_refusal(const struct plan *p)
{
    printf("%s\n", p->refused.msg);
    if (p->n_ways == 0) {
        printf("\nNo change of context, cache or streaming makes it fit: it takes more memory.\n");
        return;
    }
    printf("\nIt would fit with one of\n");
    for (int i = 0; i < p->n_ways; i++) {
        const struct sl_engine_plan *e = &p->ways[i].plan;
        printf("  %-52s %.0f MiB", p->ways[i].flags, mib(e->total_bytes));
        if (e->streamed)
            printf(", cache %.0f", mib(e->cache_bytes));
        printf(", context %d\n", e->n_ctx);
    }
}

void plan_print(const struct plan *p)
{
    const struct sl_model_info *m = &p->info;
    printf("%s: %s, %.0f MiB, %d layers", p->path, m->arch, mib(m->file_bytes), m->n_layer);
    if (m->n_expert > 0)
        printf(", %d experts, %d per token (%.0f MiB of %.0f)", m->n_expert, m->n_expert_run,
               mib(m->token_expert_bytes), mib(m->expert_bytes));
    printf("\n\n");
    if (!p->fits) {
        print_refusal(p);
        return;
    }
    print_memory(p);
    print_rates(p);
    print_estimate(p);
    print_reasons(p);
}

/* ---- JSON ---- */

/* Null where there is no number. */
static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *bytes(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static void set_estimate(json_t *j, const struct forecast *f)
{
    json_object_set_new(j, "hit", real(f->hit));
    json_object_set_new(j, "bytes_per_token", real(f->read_bytes));
    json_object_set_new(j, "tok_s", real(1 / f->token_s));
}

static void set_speed(json_t *j, const struct plan *p)
{
    char flags[256];
    make_flags(p, flags, sizeof flags);
    set_estimate(j, &p->forecast);
    json_object_set_new(j, "ttft_s", real(p->forecast.prompt_s));
    json_object_set_new(j, "load_s", real(p->forecast.load_s));
    json_object_set_new(j, "prompt_tokens", json_integer(p->args->n_prompt));
    json_object_set_new(j, "prompt_bytes", real(p->forecast.prompt_bytes));
    json_object_set_new(j, "drive_gb_s",
                        p->rates.drive > 0 ? real(p->rates.drive / 1e9) : json_null());
    json_object_set_new(j, "ram_gb_s", real(p->rates.ram / 1e9));
    json_object_set_new(j, "flags", json_string(flags));
    json_t *sizes = json_array();
    for (int i = 0; i < p->n_sizes; i++) {
        json_t *row = json_pack("{s:o}", "cache_bytes", bytes(p->sizes[i]));
        set_estimate(row, &p->by_size[i]);
        json_array_append_new(sizes, row);
    }
    json_object_set_new(j, "caches", sizes);
}

static void set_refusal(json_t *j, const struct plan *p)
{
    static const char *const none[] = {"hit",        "bytes_per_token", "tok_s", "ttft_s",
                                       "drive_gb_s", "ram_gb_s",        "flags"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        json_object_set_new(j, none[i], json_null());
    json_object_set_new(j, "why", json_text_make(p->refused.msg));
    json_t *ways = json_array();
    for (int i = 0; i < p->n_ways; i++)
        json_array_append_new(ways, json_string(p->ways[i].flags));
    json_object_set_new(j, "would_fit", ways);
}

void plan_print_json(const struct plan *p)
{
    const struct sl_engine_plan *e = &p->plan;
    json_t *j = json_pack("{s:b,s:b}", "fits", p->fits, "streamed", e->streamed);
    json_object_set_new(j, "arch", json_text_make(p->info.arch));
    json_object_set_new(j, "base_bytes", bytes(e->base_bytes));
    json_object_set_new(j, "dense_bytes", bytes(e->dense_bytes));
    json_object_set_new(j, "kv_bytes", bytes(e->kv_bytes));
    json_object_set_new(j, "compute_bytes", bytes(e->compute_bytes));
    json_object_set_new(j, "transit_bytes", bytes(e->transit_bytes));
    json_object_set_new(j, "cache_bytes", bytes(e->cache_bytes));
    json_object_set_new(j, "cache_min_bytes", bytes(e->cache_min_bytes));
    json_object_set_new(j, "total_bytes", bytes(e->total_bytes));
    json_object_set_new(j, "limit_bytes", e->limit_bytes ? bytes(e->limit_bytes) : json_null());
    json_object_set_new(j, "token_expert_bytes", bytes(p->info.token_expert_bytes));
    json_object_set_new(j, "threads", json_integer(e->threads));
    json_object_set_new(j, "pinned", json_boolean(e->pinned));
    json_object_set_new(j, "ctx", json_integer(e->n_ctx));
    json_object_set_new(j, "ubatch", json_integer(e->ubatch));
    if (p->fits)
        set_speed(j, p);
    else
        set_refusal(j, p);
    char *text = json_dumps(j, JSON_COMPACT);
    puts(text ? text : "{}");
    free(text);
    json_decref(j);
}
