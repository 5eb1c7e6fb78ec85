/* report.h: what a run prints about itself on standard error. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "sluice.h"

struct run_report {
    struct sl_model_info info;
    struct sl_engine_plan plan;
    struct sl_stats stats;
    size_t n_prompt;    /* tokens of the prompt; stats.prompt.tokens of them were computed */
    double prompt_s;    /* wall time of their evaluation */
    double first_s;     /* from the request to the first generated token; 0: there was none */
    size_t n_generated; /* tokens that went through the decode loop */
    double loop_s;      /* wall time of that loop: sampling, text and evaluation */
    double *step_s;     /* wall time of each turn, n_generated of them; gets sorted */
    uint64_t rss_peak;  /* highest sampled RssAnon + RssShmem, bytes */
    bool rss_known;
    struct sl_prediction *predictions; /* info.n_layer rows; NULL: not asked for */
};

/* What a run amounts to; NaN where there was nothing to measure. */
struct report_summary {
    double tokens, s_per_token, tok_s, median_s, p5_s, p95_s, min_s, max_s;
    double overhead_s; /* per token: the loop without evaluation */
    double prompt_tokens, prompt_s, prompt_tok_s, ttft_s;
    double load_wait_s;                  /* of prompt_s: for weights that were still being loaded */
    double occupancy_pct, cpu_s, majflt; /* the latter two per token */
    double wall_s, compute_s, mgmt_s, stall_s, other_s; /* of evaluation, per token */
    double read_mib, mib_per_token, read_mib_s, hit_pct;
    double token_route_mib, cache_resident_mib;
    double prompt_read_mib, prompt_read_mib_s;
    /* Of decoding: what was read before it was asked for, and used or not. */
    double guess_useful_mib, guess_wasted_mib;
    double mem_peak_mib, rss_peak_mib;
};
/* Sorts r->step_s. */
void report_sum_up(const struct run_report *r, struct report_summary *out);
/* Every number of it under its name, for programs. */
void report_each_number(const struct report_summary *s,
                        void (*fn)(void *user, const char *key, double value), void *user);
/* wall - compute - mgmt - stall; the clocks' rounding can make it slightly negative: 0 then. */
double report_other_s(const struct sl_phase_stats *p);

/* traced: "route, io"; "" when nothing is traced. One line before the run: how the engine will work
 * and where the memory goes. */
void report_mode(const struct sl_engine_plan *plan, const char *traced);
/* The lines after the run about options that guess or change the choice of experts. */
void report_print_routing(const struct run_report *r);
/* The lines after the run. Per-token figures are those of decoding alone. */
void report_print(struct run_report *r);

#endif
