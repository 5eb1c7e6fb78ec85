#include "cli/open.h"

#include "cli/env.h"
#include "cli/model_path.h"
#include "cli/run_events.h"
#include "cli/stop.h"

#include "base/err.h"

#include <stdio.h>
#include <unistd.h>

struct progress {
    struct events *events; /* NULL: none are wanted */
    bool bar;              /* standard error is a terminal */
    int shown;             /* percent; -1: nothing yet */
};

static void on_load(void *user, uint64_t done, uint64_t total)
{
    struct progress *p = user;
    int percent = total > 0 ? (int)(100 * ((double)done / (double)total)) : 100;
    if (percent == p->shown)
        return;
    p->shown = percent;
    if (p->bar)
        fprintf(stderr, "\rloading %d%%%s", percent, percent >= 100 ? "\r\033[K" : "");
    if (p->events != NULL)
        events_tell_load(p->events, done, total);
}

static struct progress progress; /* the engine keeps it */

/* What is printed next stands on a line of its own. */
static void clear_bar(struct progress *p)
{
    if (p->bar && p->shown >= 0 && p->shown < 100)
        fprintf(stderr, "\r\033[K");
}

void open_end_bar(void)
{
    clear_bar(&progress);
    progress.bar = false;
}

static void on_note(void *user, const char *line)
{
    struct progress *p = user;
    clear_bar(p);
    fprintf(stderr, "note: %s\n", line);
    if (p->events != NULL)
        events_tell_note(p->events, line);
}

static void on_cache_change(void *user, const struct sl_cache_change *c)
{
    static const char *const why[] = {[SL_CACHE_ASKED] = "asked for",
                                      [SL_CACHE_SHORT] = "memory is short",
                                      [SL_CACHE_PRESSURE] = "tasks wait for memory",
                                      [SL_CACHE_OVER] = "there is memory again"};
    struct progress *p = user;
    const double mib = 1048576.0;
    if (c->why != SL_CACHE_ASKED) {
        clear_bar(p);
        fprintf(stderr, "note: expert cache %.0f -> %.0f MiB: %s (%.0f MiB are available)\n",
                (double)c->from_bytes / mib, (double)c->to_bytes / mib, why[c->why],
                (double)c->available_bytes / mib);
    }
    if (p->events != NULL)
        events_tell_cache(p->events, c, why[c->why]);
}

int open_engine(const struct run_args *a, struct events *v, struct sl_engine **out,
                struct sl_err *err)
{
    const char *model;
    *out = NULL;
    int found = open_find_path(a->model, &model, err);
    if (found < 0)
        return found;
    struct sl_engine_options opt;
    progress = (struct progress){.events = v, .bar = isatty(STDERR_FILENO), .shown = -1};
    run_opts_engine(a, &opt);
    opt.user = &progress;
    opt.on_note = on_note;
    opt.on_cache_change = on_cache_change;
    if (progress.bar || v != NULL)
        opt.on_load = on_load;
    stop_on_bad_map(model);
    int rc = sl_engine_open(model, &opt, out, err);
    if (rc < 0)
        open_end_bar();
    return rc;
}

int open_find_path(const char *named, const char **out, struct sl_err *err)
{
    static char path[4096], found[4096];
    *out = named != NULL ? named : env_default_model(path, sizeof path);
    if (*out == NULL)
        return err_set(err, SL_E_ARG, "--model",
                       "no model: give -m FILE, or set SLUICE_MODEL to one");
    if (!model_path_is_dir(*out))
        return SL_OK;
    int rc = model_path_find(*out, found, sizeof found, err);
    *out = found;
    return rc;
}

int open_find_model(const struct opt_seen *seen, const char *given, const char **out,
                    struct sl_err *err)
{
    if (seen->n_operands > 0 && given != NULL)
        return err_set(err, SL_E_ARG, "--model", "--model and the operand both name a model");
    return open_find_path(seen->n_operands > 0 ? seen->operands[0] : given, out, err);
}
