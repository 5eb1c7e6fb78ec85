#include "cli/open.h"

#include "cli/env.h"
#include "cli/stop.h"

#include "base/err.h"

#include <stdio.h>
#include <unistd.h>

static void on_load(void *user, uint64_t done, uint64_t total)
{
    int *shown = user;
    int percent = total > 0 ? (int)(100 * ((double)done / (double)total)) : 100;
    if (percent == *shown)
        return;
    *shown = percent;
    fprintf(stderr, "\rloading %d%%%s", percent, percent >= 100 ? "\r\033[K" : "");
}

static void on_note(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "note: %s\n", line);
}

int open_engine(const struct run_args *a, struct sl_engine **out, struct sl_err *err)
{
    static char path[4096]; /* stop_on_bad_map keeps it */
    const char *model = a->model;
    *out = NULL;
    if (model == NULL)
        model = env_default_model(path, sizeof path);
    if (model == NULL)
        return err_set(err, SL_E_ARG, "--model",
                       "no model: give -m FILE, or set SLUICE_MODEL to one");
    struct sl_engine_options opt;
    int shown = -1;
    run_opts_engine(a, &opt);
    opt.user = &shown;
    opt.on_note = on_note;
    if (isatty(STDERR_FILENO))
        opt.on_load = on_load;
    stop_on_bad_map(model);
    int rc = sl_engine_open(model, &opt, out, err);
    if (opt.on_load != NULL && shown >= 0 && shown < 100)
        fprintf(stderr, "\r\033[K"); /* the error stands on a line of its own */
    return rc;
}
