/* bench_json.c: `sluice bench --json`: everything that was measured, in seconds of one call, with
 * the bytes and multiply-adds of that call, and the usual rates. */
#include "cli/bench.h"

#include <jansson.h>
#include <stdio.h>

#include "sluice.h"

static json_t *json_known(double v, bool known)
{
    return known ? json_real(v) : json_null();
}

static json_t *json_bytes(uint64_t n)
{
    return n > 0 ? json_integer((json_int_t)n) : json_null();
}

static json_t *json_text(const char *s)
{
    return s && s[0] ? json_string(s) : json_null();
}

static json_t *json_load(const double load[3])
{
    return load[0] < 0 ? json_null() : json_pack("[f,f,f]", load[0], load[1], load[2]);
}

static json_t *json_ints(const int *v, int n)
{
    json_t *all = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(all, json_integer(v[i]));
    return all;
}

static json_t *json_time(const struct bench_time *t)
{
    return json_pack("{s:f,s:f,s:f,s:i,s:f}", "median_s", t->median, "best_s", t->best, "worst_s",
                     t->worst, "reps", t->reps, "spread", (t->worst - t->best) / t->median);
}

static json_t *json_machine(const struct bench_report *r)
{
    const struct bench_machine *m = &r->machine;
    return json_pack(
        "{s:o,s:o,s:s,s:i,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "cpu", json_text(m->cpu),
        "system", json_text(m->os), "level", kernels_level_name(r->level), "usable_cpus",
        m->usable_cpus, "online_cpus", m->online_cpus, "l2_bytes", json_bytes(m->l2),
        "last_level_bytes", json_bytes(m->llc), "memory_bytes", json_bytes(m->memory),
        "available_bytes", json_bytes(m->avail), "governor", json_text(m->governor), "mhz_max",
        json_known(m->mhz_max, m->mhz_max > 0), "load_start", json_load(m->load), "load_end",
        json_load(r->load_end), "other_cpus", json_known(r->other_cpus, r->other_cpus >= 0),
        "steal_cpus", json_known(r->steal_cpus, r->steal_cpus >= 0));
}

static json_t *json_plan(const struct bench_plan *p)
{
    return json_pack("{s:i,s:f,s:I,s:[i,i],s:o,s:b,s:o,s:b,s:i,s:i,s:i,s:I}", "reps",
                     p->effort.reps, "sample_s", p->effort.sample_s, "buffer_bytes",
                     (json_int_t)p->ram_bytes, "shape", p->rows, p->cols, "threads",
                     json_ints(p->threads, p->n_threads), "pinned", p->pin, "tokens",
                     json_ints(p->tokens, p->n_tokens), "attention", p->attention, "keys", p->keys,
                     "heads", p->heads, "head_dim", p->head_dim, "seed", (json_int_t)p->seed);
}

static json_t *json_ram(const struct bench_report *r)
{
    json_t *all = json_array();
    for (int i = 0; i < r->n_ram; i++) {
        const struct bench_ram *m = &r->ram[i];
        json_array_append_new(all,
                              json_pack("{s:i,s:f,s:f,s:f,s:o,s:o}", "threads", m->threads, "bytes",
                                        m->bytes, "gb_s_before", m->bytes / m->before.median * 1e-9,
                                        "gb_s_after", m->bytes / m->after.median * 1e-9, "before",
                                        json_time(&m->before), "after", json_time(&m->after)));
    }
    return all;
}

static json_t *json_peaks(const struct bench_report *r)
{
    json_t *all = json_array();
    for (int i = 0; i < r->n_peaks; i++) {
        const struct bench_peak *k = &r->peaks[i];
        json_array_append_new(
            all,
            json_pack("{s:s,s:s,s:s,s:i,s:f,s:f,s:o}", "instruction", k->instruction, "unit",
                      k->unit == BENCH_FMA ? "fma" : "int8", "level", kernels_level_name(k->level),
                      "threads", k->threads, "macs_per_s", k->ops / k->time.median,
                      "best_macs_per_s", k->ops / k->time.best, "time", json_time(&k->time)));
    }
    return all;
}

static json_t *json_limit(const struct bench_result *r)
{
    if (r->limit == BENCH_NO_LIMIT)
        return json_null();
    return json_pack("{s:s,s:f,s:f,s:f}", "by", bench_limit_name(r->limit), "seconds", r->limit_s,
                     "share", r->limit_s / r->time.median, "best_share", r->limit_s / r->time.best);
}

static json_t *json_result(const struct bench_result *r)
{
    const double rate = 1e-9 / r->time.median, best = 1e-9 / r->time.best;
    json_t *j = json_pack(
        "{s:s,s:s,s:s,s:b,s:i,s:i,s:s,s:[i,i],s:f,s:f,s:o}", "kernel", bench_kernel_name(r->kernel),
        "type", r->type, "level", kernels_level_name(r->level), "own", r->own, "threads",
        r->threads, "tokens", r->tokens, "from", r->source == BENCH_RAM ? "ram" : "cache", "shape",
        r->rows, r->cols, "bytes", r->bytes, "macs", r->ops, "time", json_time(&r->time));
    json_t *rates = json_pack(
        "{s:f,s:f,s:f,s:f,s:o,s:o,s:o}", "gb_s", r->bytes * rate, "best_gb_s", r->bytes * best,
        "top_s", r->ops * BENCH_OPS_PER_MAC * rate * 1e-3, "best_top_s",
        r->ops * BENCH_OPS_PER_MAC * best * 1e-3, "ram_before_gb_s",
        json_known(r->ram_before * 1e-9, r->ram_before > 0), "ram_after_gb_s",
        json_known(r->ram_after * 1e-9, r->ram_after > 0), "limit", json_limit(r));
    if (!j || !rates || json_object_update(j, rates) != 0) {
        json_decref(j);
        j = NULL;
    }
    json_decref(rates);
    return j;
}

static json_t *json_results(const struct bench_report *r)
{
    json_t *all = json_array();
    for (int i = 0; i < r->n_results; i++)
        json_array_append_new(all, json_result(&r->results[i]));
    return all;
}

static json_t *json_warnings(const struct bench_plan *p, const struct bench_report *r)
{
    struct bench_warning w[BENCH_MAX_WARNINGS];
    json_t *all = json_array();
    const int n = bench_list_warnings(p, r, true, w);
    for (int i = 0; i < n; i++)
        json_array_append_new(all, json_string(w[i].text));
    return all;
}

bool bench_print_json(const struct bench_plan *p, const struct bench_report *r)
{
    json_t *j = json_pack("{s:s,s:o,s:o,s:f,s:o,s:o,s:o,s:o}", "version", SL_VERSION, "machine",
                          json_machine(r), "plan", json_plan(p), "wall_s", r->wall_s, "ram",
                          json_ram(r), "peaks", json_peaks(r), "results", json_results(r),
                          "warnings", json_warnings(p, r));
    const bool ok = j && json_dumpf(j, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
    json_decref(j);
    return ok;
}
