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
};

/* One line before the run: how the engine will work and where the memory goes. */
void report_mode(const struct sl_engine_plan *plan);
/* The lines after the run. Per-token figures are those of decoding alone. */
void report_print(struct run_report *r);

#endif
