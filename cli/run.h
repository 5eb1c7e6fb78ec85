/* run.h: what the files of `sluice run` share. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "cli/opts.h"
#include "sluice.h"

/* The command line, as the option table fills it (cli/opts.h gives the types). */
struct run_args {
    /* model and text */
    const char *model, *prompt, *file, *route_replay, *token_ids, *logits_out, *experts_out,
        *ids_out;
    int64_t n_predict, n_ctx, threads, pin, ubatch, cpu, k_type, v_type, chatml, ignore_eos;
    /* sampling */
    double temp, top_p, min_p, repeat_penalty;
    int64_t top_k, seed;
    /* streaming */
    const char *hot_experts;
    int64_t stream, ram, cache_mb, cache_entries, cache_slots, cache_floor_mb, cache_ceil_mb;
    int64_t io_threads, io_engine, io_split, odirect, overlap, dense, cache_policy, cache_adapt;
    int64_t row_stream, two_wave, load_all, load_behind;
    /* the choice of experts */
    int64_t prefetch, predict_prefetch, predict_spec_max, predict_log;
    /* packed experts */
    const char *packed;
    int64_t q4, q3, q2;
    int64_t n_expert_used, drop_no_renorm, drop_in_prefill, route_ahead;
    double drop_cold, substitute;
    /* telemetry */
    const char *csv, *route_trace, *io_trace, *compute_trace;
    int64_t timing, cache_telemetry, progress, session;
    double ram_rate, kernel_rate, drive_rate;
};

/* ---- run_names.c: the names under which run has other defaults ---- */

/* The command as it is called: run itself, or with the defaults of the name in argv0. */
const struct opt_cmd *run_names_command(const char *argv0, const struct opt_cmd *run);
/* Name i and its defaults as they would be typed; NULL: there are no more. */
const char *run_names_at(int i, char *defaults, size_t size);
/* What infer reads where nothing is named: the model of its default directory, and the packed tree
 * beside the model. */
int run_names_finish(const char *argv0, struct run_args *a, struct sl_err *err);

/* Parse and validate. OPTS_GO, or the exit status when the command ends here (help, error). */
int run_opts_parse(int argc, char **argv, struct run_args *a);
/* The rows that say which model runs and how (no prompt, sampling or files), for other commands
 * whose values begin with a struct run_args; at most max. The number of them. */
size_t run_opts_model_rows(struct opt_row *rows, size_t max);
/* Those with one of these names, likewise. */
size_t run_opts_named_rows(const char *const *names, size_t n_names, struct opt_row *rows,
                           size_t max);
/* The name of a --cache-policy by its place in the table. */
const char *run_opts_policy(int64_t place);
/* The rules between options, of any command with such rows (run_check.c, likewise the next two). */
int run_opts_check(const struct opt_cmd *cmd, const struct opt_seen *seen, const struct run_args *a,
                   struct sl_err *err);
/* The library's options for these arguments. */
void run_opts_engine(const struct run_args *a, struct sl_engine_options *opt);
void run_opts_sampling(const struct run_args *a, struct sl_sampling *s);

/* Every option with its value, see opts_each_value. */
void run_opts_each(const struct run_args *a,
                   void (*fn)(void *user, const char *name, const char *value), void *user);

/* What is left of a run at its end, while its engine is open. */
struct run_report;
struct run_end {
    const int32_t *ids; /* prompt, then answer */
    size_t n_prompt, n_ids;
    struct run_report *report;
};
typedef int run_end_fn(void *user, const struct run_end *end, struct sl_err *err);
/* Do what the arguments say, once per process; the exit status. on_end, where given, gets what a
 * single answer came to, after the report; the text is not shown then. */
int run_execute(const struct run_args *a, run_end_fn *on_end, void *user);

/* What the user gave as prompt: text or ids, one of the two; freed by prompt_free. */
struct prompt {
    char *text;
    size_t n_bytes;
    int32_t *ids;
    size_t n_ids;
};
/* Read the prompt's text, file, ids or standard input, before the model is loaded. */
int prompt_read(const struct run_args *a, struct prompt *p, struct sl_err *err);
/* Make ids of the text and check ids against the vocabulary. */
int prompt_encode(struct prompt *p, const struct sl_engine *e, int n_ctx, bool chatml,
                  struct sl_err *err);
void prompt_free(struct prompt *p);

/* The files that a run writes beside the text; see cli/run_out.c for their formats. */
struct run_out;
/* Open what the arguments name (temporary files until run_out_commit). */
int run_out_open(const struct run_args *a, struct run_out **out, struct sl_err *err);
/* Watch the session as far as the files need it. */
void run_out_observe(struct run_out *o, struct sl_session *s, const struct sl_model_info *info);
/* After each eval: write what it produced; reports what failed while it ran. */
int run_out_step(struct run_out *o, struct sl_err *err);
/* All ids of the run; then every file gets its name. */
int run_out_commit(struct run_out *o, const int32_t *ids, size_t n, struct sl_err *err);
/* Removes what was not committed. */
void run_out_close(struct run_out **o);

#endif
