/* bench_plan.c: what `sluice bench --kernels` is asked to measure. */
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- Lists ---- */

static enum quant_type find_type(const char *name)
{
    for (int t = 0; t < QT_COUNT; t++) {
        const struct quant_info *q = quant_type_info((uint32_t)t);
        if (q && strcasecmp(q->name, name) == 0 && bench_has_product((enum quant_type)t))
            return (enum quant_type)t;
    }
    return QT_COUNT;
}

static int unknown_type(const char *word, struct sl_err *err)
{
    const char *names[QT_COUNT];
    size_t n = 0;
    for (int t = 0; t < QT_COUNT; t++)
        if (bench_has_product((enum quant_type)t))
            names[n++] = quant_type_info((uint32_t)t)->name;
    const char *near = opts_nearest(word, names, n);
    return err_set(err, SL_E_ARG, "--types", "--types: no product has weights of type '%s'%s%s%s",
                   word, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int parse_types(const char *list, struct bench_plan *p, struct sl_err *err)
{
    char word[32];
    const bool all = strcmp(list, "all") == 0;
    for (int t = 0; t < QT_COUNT; t++)
        p->types[t] = all && bench_has_product((enum quant_type)t) &&
                      p->cols % (int)quant_type_info((uint32_t)t)->block_values == 0;
    if (all || strcmp(list, "none") == 0)
        return 0;
    while (opts_next_word(&list, word, sizeof word)) {
        const enum quant_type type = find_type(word);
        if (type == QT_COUNT)
            return unknown_type(word, err);
        if (p->cols % (int)quant_type_info(type)->block_values)
            return err_set(err, SL_E_ARG, "--shape",
                           "--shape: %d columns are no multiple of the %u values of a block of %s",
                           p->cols, quant_type_info(type)->block_values, word);
        p->types[type] = true;
    }
    return 0;
}

static int parse_levels(const char *list, struct bench_plan *p, struct sl_err *err)
{
    bool have[KL_COUNT];
    char word[32];
    bench_find_levels(have);
    if (strcmp(list, "all") == 0)
        memcpy(p->levels, have, sizeof have);
    if (strcmp(list, "best") == 0)
        p->levels[kernels_cpu_level()] = true;
    if (strcmp(list, "all") == 0 || strcmp(list, "best") == 0)
        return 0;
    while (opts_next_word(&list, word, sizeof word)) {
        int l = 0;
        while (l < KL_COUNT && strcmp(word, kernels_level_name((enum kern_level)l)) != 0)
            l++;
        if (l == KL_COUNT)
            return err_set(err, SL_E_ARG, "--levels", "--levels: there is no level '%s'", word);
        if (!have[l])
            return err_set(err, SL_E_ARG, "--levels",
                           "--levels: this CPU or build has no %s; its best is %s", word,
                           kernels_level_name(kernels_cpu_level()));
        p->levels[l] = true;
    }
    return 0;
}

#define MAX_SIDE   (1 << 20) /* rows or columns */
#define MAX_TOKENS 65536

static int parse_tokens(const char *list, struct bench_plan *p, struct sl_err *err)
{
    char word[32];
    if (strcmp(list, "none") == 0)
        return 0;
    while (opts_next_word(&list, word, sizeof word)) {
        int64_t n;
        if (!opts_parse_int(word, &n) || n < 1 || n > MAX_TOKENS)
            return err_set(err, SL_E_ARG, "--tokens",
                           "--tokens: '%s' is not a number of tokens from 1 to %d", word,
                           MAX_TOKENS);
        if (p->n_tokens == BENCH_MAX_COUNTS)
            return err_set(err, SL_E_ARG, "--tokens", "--tokens: at most %d numbers",
                           BENCH_MAX_COUNTS);
        p->tokens[p->n_tokens++] = (int)n;
    }
    return 0;
}

static int parse_shape(const char *s, struct bench_plan *p, struct sl_err *err)
{
    char rows[24];
    const char *x = strchr(s, 'x');
    int64_t r = 0, c = 0;
    if (x && (size_t)(x - s) < sizeof rows) {
        snprintf(rows, sizeof rows, "%.*s", (int)(x - s), s);
        if (!opts_parse_int(rows, &r) || !opts_parse_int(x + 1, &c))
            r = c = 0;
    }
    if (r < 1 || r > MAX_SIDE || c < 1 || c > MAX_SIDE)
        return err_set(err, SL_E_ARG, "--shape",
                       "--shape: '%s' is not ROWSxCOLUMNS, each from 1 to %d", s, MAX_SIDE);
    p->rows = (int)r;
    p->cols = (int)c;
    return 0;
}

/* ---- The plan ---- */

int bench_make_plan(const struct bench_args *a, struct bench_plan *p, struct sl_err *err)
{
    struct bench_machine m;
    memset(p, 0, sizeof *p);
    int rc = parse_shape(a->shape, p, err);
    if (rc == 0)
        rc = parse_types(a->types, p, err);
    if (rc == 0)
        rc = parse_levels(a->levels, p, err);
    if (rc == 0)
        rc = parse_tokens(a->tokens, p, err);
    if (rc != 0)
        return rc;
    bench_read_machine("", &m);
    const int threads = a->run.threads > 0 ? (int)a->run.threads : m.usable_cpus;
    p->n_threads = bench_thread_counts(threads, p->threads);
    p->pin = a->run.pin != 0;
    p->attention = a->attention != 0;
    p->keys = (int)a->keys;
    p->heads = (int)a->heads;
    p->head_dim = (int)a->head_dim;
    p->ram_bytes = a->buffer > 0 ? (uint64_t)a->buffer : bench_ram_bytes(&m, threads);
    p->effort = (struct bench_effort){(int)a->reps, 1e-3 * a->sample_ms};
    p->seed = (uint64_t)a->run.seed;
    return 0;
}
