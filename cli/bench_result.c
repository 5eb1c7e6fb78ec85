/* bench_result.c: what `sluice bench MODEL` prints, and what speaks against its numbers. */
#include "cli/bench.h"
#include "cli/json_text.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PROTOCOL   1    /* number of the protocol: prompt and defaults */
#define MANY       25.0 /* per cent of repeats above which an answer goes round in circles */
#define MIB        1048576.0
#define MAX_DOUBTS 4

struct doubts {
    char text[MAX_DOUBTS][320];
    int n;
};

#define DOUBT(d, ...) snprintf((d)->text[(d)->n++], sizeof(d)->text[0], __VA_ARGS__)

/* MAX_DOUBTS of them. */
static void list_doubts(const struct bench_outcome *o, struct doubts *d)
{
    const struct sl_engine_plan *p = &o->report->plan;
    d->n = 0;
    if (o->repeat_pct > MANY)
        DOUBT(
            d,
            "the generated ids repeat (%.0f %% of the runs of four): a loop needs the same experts "
            "again and again, so hits are too many; try --temp 2 or --route-replay",
            o->repeat_pct);
    if (o->n_tokens < (size_t)o->args->run.n_predict)
        DOUBT(d,
              "only %zu of %lld tokens were generated: the context is full or the run was stopped",
              o->n_tokens, (long long)o->args->run.n_predict);
    if (p->streamed && !p->direct)
        DOUBT(
            d,
            "reads were not direct%s%.160s: they may have come from the page cache, not the drive",
            p->direct_note[0] ? ", " : "", p->direct_note);
    if (p->marks[0])
        DOUBT(d, "not the model's own text: %.260s", p->marks);
}

static const char *dense_name(enum sl_dense_mode m)
{
    return m == SL_DENSE_MMAP ? "mmap" : m == SL_DENSE_WARM ? "warm" : "anon";
}

static double mib(uint64_t bytes)
{
    return (double)bytes / MIB;
}

bool bench_print_outcome(const struct bench_outcome *o)
{
    const struct sl_engine_plan *p = &o->report->plan;
    const struct sl_model_info *m = &o->report->info;
    const struct run_args *a = &o->args->run;
    struct report_summary s;
    struct doubts d;
    report_sum_up(o->report, &s);
    list_doubts(o, &d);
    printf("protocol    %d, %s prompt of %.0f tokens, %zu tokens generated%s%s\n", PROTOCOL,
           o->fixed_prompt ? "fixed" : "given", s.prompt_tokens, o->n_tokens,
           o->changed[0] ? "; changed: " : "", o->changed);
    printf("model       %s, %.0f MiB, experts %.0f MiB, %.1f MiB of them per token\n", m->arch,
           mib(m->file_bytes), mib(m->expert_bytes), mib(m->token_expert_bytes));
    printf("run         %s, %d threads%s (%s)", p->streamed ? "streamed" : "resident", p->threads,
           p->pinned ? ", pinned" : "", p->cpu_level);
    if (p->streamed)
        printf(", %s with %lld reads in flight, o_direct=%d, cache %.0f MiB", p->io_engine,
               (long long)a->io_threads, p->direct, mib(p->cache_bytes));
    printf(", dense %s, ubatch %d\n", dense_name(p->dense_mode), p->ubatch);
    printf("decode      %.3f tok/s (%.4f s/token, median %.4f, p5 %.4f, p95 %.4f)\n", s.tok_s,
           s.s_per_token, s.median_s, s.p5_s, s.p95_s);
    printf("prompt      %.1f tok/s, first token after %.3f s\n", s.prompt_tok_s, s.ttft_s);
    if (p->streamed)
        printf("experts     %.1f %% hit, %.1f MiB/token read, %.4f s/token waited for\n", s.hit_pct,
               s.mib_per_token, s.stall_s);
    printf("memory      %.0f MiB peak\n", s.rss_peak_mib);
    for (int i = 0; i < d.n; i++)
        printf("warning: %s\n", d.text[i]);
    return fflush(stdout) == 0 && !ferror(stdout);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static void add_number(void *user, const char *key, double value)
{
    json_object_set_new(user, key, number(value));
}

static json_t *json_model(const struct bench_outcome *o)
{
    const struct sl_model_info *m = &o->report->info;
    return json_pack("{s:o,s:o,s:o,s:i,s:i,s:i,s:I,s:I,s:I,s:I}", "path",
                     json_text_make(o->args->run.model), "arch", json_text_make(m->arch),
                     "model_name", json_text_make(m->name != NULL ? m->name : ""), "n_layer",
                     m->n_layer, "n_expert", m->n_expert, "n_expert_used", m->n_expert_run,
                     "file_bytes", (json_int_t)m->file_bytes, "dense_bytes",
                     (json_int_t)m->dense_bytes, "expert_bytes", (json_int_t)m->expert_bytes,
                     "token_expert_bytes", (json_int_t)m->token_expert_bytes);
}

static json_t *json_plan(const struct bench_outcome *o)
{
    const struct sl_engine_plan *p = &o->report->plan;
    const struct run_args *a = &o->args->run;
    return json_pack("{s:b,s:b,s:o,s:s,s:s,s:i,s:b,s:i,s:b,s:I,s:s,s:i,s:i,s:I,s:o}", "streamed",
                     p->streamed, "o_direct", p->direct, "o_direct_note",
                     json_text_make(p->direct_note), "io_engine", p->streamed ? p->io_engine : "",
                     "cpu_level", p->cpu_level, "threads", p->threads, "pinned", p->pinned,
                     "io_threads", (int)a->io_threads, "overlap", a->overlap != 0, "cache_bytes",
                     (json_int_t)p->cache_bytes, "dense_weights", dense_name(p->dense_mode),
                     "n_ctx", p->n_ctx, "ubatch", p->ubatch, "limit_bytes",
                     (json_int_t)p->limit_bytes, "marks", json_text_make(p->marks));
}

bool bench_print_outcome_json(const struct bench_outcome *o)
{
    struct report_summary s;
    struct doubts d;
    json_t *result = json_object(), *warnings = json_array();
    report_sum_up(o->report, &s);
    report_each_number(&s, add_number, result);
    list_doubts(o, &d);
    for (int i = 0; i < d.n; i++)
        json_array_append_new(warnings, json_text_make(d.text[i]));
    json_t *j = json_pack("{s:s,s:i,s:b,s:o,s:o,s:o,s:o,s:o,s:o}", "version", SL_VERSION,
                          "protocol", PROTOCOL, "fixed_prompt", o->fixed_prompt, "changed",
                          json_text_make(o->changed), "model", json_model(o), "plan", json_plan(o),
                          "result", result, "repeat_pct", number(o->repeat_pct), "warnings",
                          warnings);
    const bool ok = j != NULL && json_dumpf(j, stdout, JSON_INDENT(2)) == 0 &&
                    putchar('\n') != EOF && fflush(stdout) == 0;
    json_decref(j);
    return ok;
}
