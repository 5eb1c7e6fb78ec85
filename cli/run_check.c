/* run_check.c: which options of `sluice run` exclude each other, and what they are to the library.
 */
#include "cli/run.h"

#include "base/err.h"

#include <stdio.h>
#include <string.h>

static bool same_file_name(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0 && strncmp(a, "/dev/", 5) != 0;
}

/* Files that are written appear under their names at the end: the last one would win. */
static int check_files(const struct run_args *a, struct sl_err *err)
{
    const struct {
        const char *option, *file;
    } out[] = {{"--logits-out", a->logits_out},
               {"--experts-out", a->experts_out},
               {"--ids-out", a->ids_out},
               {"--csv", a->csv},
               {"--route-trace", a->route_trace},
               {"--io-trace", a->io_trace},
               {"--compute-trace", a->compute_trace}};
    size_t n = sizeof out / sizeof *out;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            if (same_file_name(out[i].file, out[j].file))
                return err_set(err, SL_E_ARG, out[j].option, "%s and %s want different files",
                               out[i].option, out[j].option);
        }
    }
    return SL_OK;
}

/* Every rule has a case in tests/cli/cases. */
int run_opts_check(const struct opt_cmd *cmd, const struct opt_seen *seen, const struct run_args *a,
                   struct sl_err *err)
{
    static const char *const prompts[] = {"--prompt", "--file", "--token-ids"};
    for (int i = 0; i < 3; i++) {
        for (int j = i + 1; j < 3; j++) {
            if (opts_given(cmd, seen, prompts[i]) && opts_given(cmd, seen, prompts[j]))
                return err_set(err, SL_E_ARG, prompts[j], "%s and %s exclude each other",
                               prompts[i], prompts[j]);
        }
    }
    if (a->chatml && a->token_ids != NULL)
        return err_set(err, SL_E_ARG, "--chatml",
                       "--chatml wraps text; it cannot be used with --token-ids");
    if (opts_given(cmd, seen, "--cache-mb") && opts_given(cmd, seen, "--cache-slots"))
        return err_set(err, SL_E_ARG, "--cache-slots",
                       "--cache-mb and --cache-slots exclude each other");
    if (a->cache_entries > 0 &&
        (opts_given(cmd, seen, "--cache-mb") || opts_given(cmd, seen, "--cache-slots")))
        return err_set(err, SL_E_ARG, "--cache-entries",
                       "--cache-entries excludes --cache-mb and --cache-slots");
    if (a->stream == 0 && opts_given(cmd, seen, "--cache-slots"))
        return err_set(err, SL_E_ARG, "--cache-slots",
                       "--no-moe-stream has no expert cache; --cache-slots means nothing there");
    if (a->stream == 0 && opts_given(cmd, seen, "--cache-mb") && a->cache_mb > 0)
        return err_set(err, SL_E_ARG, "--cache-mb",
                       "--no-moe-stream has no expert cache; --cache-mb means nothing there");
    bool none = a->stream == 0 || (opts_given(cmd, seen, "--cache-mb") && a->cache_mb == 0) ||
                (opts_given(cmd, seen, "--cache-slots") && a->cache_slots == 0);
    if (none && a->hot_experts != NULL)
        return err_set(err, SL_E_ARG, "--hot-experts",
                       "there is no expert cache; --hot-experts means nothing");
    if (none && a->cache_adapt)
        return err_set(err, SL_E_ARG, "--cache-adapt",
                       "there is no expert cache; --cache-adapt means nothing");
    if (none && opts_given(cmd, seen, "--cache-policy"))
        return err_set(err, SL_E_ARG, "--cache-policy",
                       "there is no expert cache; --cache-policy means nothing");
    if (a->cache_mb == 0 && a->cache_entries == 0 && opts_given(cmd, seen, "--cache-ceil-mb"))
        return err_set(err, SL_E_ARG, "--cache-ceil-mb",
                       "--cache-mb 0 means no cache; --cache-ceil-mb cannot bound it");
    if (a->q4 + a->q3 + a->q2 > 1)
        return err_set(err, SL_E_ARG, "--4bit",
                       "--4bit, --q3-experts and --2bit exclude each other");
    struct sl_engine_options opt;
    run_opts_engine(a, &opt);
    int rc = sl_engine_options_check(&opt, err);
    return rc < 0 ? rc : check_files(a, err);
}

void run_opts_engine(const struct run_args *a, struct sl_engine_options *opt)
{
    sl_engine_options_init(opt);
    opt->threads = (int)a->threads;
    opt->pin = a->pin != 0;
    opt->cpu = (enum sl_cpu_level)a->cpu;
    opt->stream = a->stream < 0 ? SL_STREAM_AUTO : a->stream ? SL_STREAM_ON : SL_STREAM_OFF;
    opt->dense_mode = (enum sl_dense_mode)a->dense;
    opt->ram = (uint64_t)a->ram;
    opt->cache_mb = a->cache_mb;
    opt->cache_entries = a->cache_entries;
    opt->cache_slots = a->cache_slots;
    opt->cache_floor_mb = (uint64_t)a->cache_floor_mb;
    opt->cache_ceil_mb = (uint64_t)a->cache_ceil_mb;
    opt->cache_adapt = a->cache_adapt != 0;
    opt->cache_policy = run_opts_policy(a->cache_policy);
    opt->io_engine = (enum sl_io_engine)a->io_engine;
    opt->io_threads = (int)a->io_threads;
    opt->io_split = (int)a->io_split;
    opt->direct = a->odirect != 0;
    opt->overlap = a->overlap != 0;
    opt->row_stream = a->row_stream != 0;
    opt->load_behind = a->load_behind != 0 && a->session == 0;
    opt->two_wave = a->two_wave != 0;
    opt->load_all = a->load_all != 0;
    opt->prefetch = (int)a->prefetch;
    opt->predict_prefetch = a->predict_prefetch != 0;
    opt->predict_spec_max = (int)a->predict_spec_max;
    opt->predict_log = a->predict_log != 0;
    opt->n_expert_used = (int)a->n_expert_used;
    opt->drop_cold = a->drop_cold;
    opt->drop_no_renorm = a->drop_no_renorm != 0;
    opt->drop_in_prefill = a->drop_in_prefill != 0;
    opt->substitute = a->substitute;
    opt->route_ahead = (int)a->route_ahead;
    opt->route_replay = a->route_replay;
    opt->n_ctx = (int)a->n_ctx;
    opt->ubatch = (int)a->ubatch;
    opt->packed = a->q4       ? SL_PACKED_4BIT
                  : a->q3     ? SL_PACKED_Q3
                  : a->q2     ? SL_PACKED_2BIT
                  : a->packed ? SL_PACKED_LOSSLESS
                              : SL_PACKED_NONE;
    opt->packed_dir = a->packed;
    opt->k_type = (enum sl_kv_type)a->k_type;
    opt->v_type = (enum sl_kv_type)a->v_type;
}

void run_opts_sampling(const struct run_args *a, struct sl_sampling *s)
{
    sl_sampling_init(s);
    s->temp = (float)a->temp;
    s->top_k = (int)a->top_k;
    s->top_p = (float)a->top_p;
    s->min_p = (float)a->min_p;
    s->repeat_penalty = (float)a->repeat_penalty;
    s->seed = (uint64_t)a->seed;
}
