/* run_names.c: the names of other programs under which `sluice run` answers, with their defaults:
 * infer reads experts through the page cache and keeps none itself; bmoe-cli does not overlap. Both
 * load before they evaluate, since what they print is compared with what the others print. */
#include "cli/env.h"
#include "cli/model_path.h"
#include "cli/run.h"

#include "model/packed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct run_name {
    const char *program, *summary;
    struct {
        const char *option, *def;
    } defaults[8]; /* ends with a NULL option */
} NAMES[] = {
    {"infer",
     "one prompt, one answer; experts from packed trees through the page cache",
     {{"--moe-stream", "on"},
      {"--odirect", "off"},
      {"--cache-mb", "0"},
      {"--io-engine", "threads"},
      {"--io-threads", "8"},
      {"--load-behind", "off"}}},
    {"bmoe-cli",
     "one prompt, one answer",
     {{"--threads", "4"}, {"--overlap", "off"}, {"--ubatch", "0"}, {"--load-behind", "off"}}},
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool has_name(const struct opt_row *row, const char *name)
{
    const char *at = strstr(row->names, name);
    const char end = at ? at[strlen(name)] : 'x';
    return end == ' ' || end == '\0';
}

const struct opt_cmd *run_names_command(const char *argv0, const struct opt_cmd *run)
{
    static struct opt_row rows[OPTS_MAX_ROWS];
    static struct opt_cmd cmd;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const struct run_name *n = &NAMES[i];
        if (strcmp(base_name(argv0), n->program) != 0 || run->n_rows > OPTS_MAX_ROWS)
            continue;
        memcpy(rows, run->rows, run->n_rows * sizeof *rows);
        cmd = *run;
        cmd.name = n->program;
        cmd.summary = n->summary;
        cmd.program = true;
        cmd.examples = NULL;
        cmd.rows = rows;
        for (int d = 0; n->defaults[d].option; d++)
            for (size_t r = 0; r < run->n_rows; r++)
                if (has_name(&rows[r], n->defaults[d].option)) {
                    rows[r].def = n->defaults[d].def;
                    rows[r].def_say = NULL;
                }
        return &cmd;
    }
    return run;
}

const char *run_names_at(int i, char *defaults, size_t size)
{
    if (i < 0 || i >= (int)(sizeof NAMES / sizeof *NAMES))
        return NULL;
    size_t n = 0;
    defaults[0] = '\0';
    for (int d = 0; NAMES[i].defaults[d].option && n < size; d++) {
        const char *option = NAMES[i].defaults[d].option, *def = NAMES[i].defaults[d].def;
        const bool on = strcmp(def, "on") == 0, off = strcmp(def, "off") == 0;
        n += (size_t)snprintf(defaults + n, size - n, "%s--%s%s%s%s", d ? " " : "",
                              off ? "no-" : "", option + 2, on || off ? "" : " ",
                              on || off ? "" : def);
    }
    return NAMES[i].program;
}

/* A tree of any kind in packed_experts/ beside the model is what infer reads. */
static int find_tree(struct run_args *a, struct sl_err *err)
{
    static char dir[4096];
    char path[4096 + 64];
    struct packed_manifest *m;
    if (!model_path_dir(a->model, dir, sizeof dir))
        return err_set(err, SL_E_ARG, "--model", "the path of the model is too long");
    snprintf(path, sizeof path, "%s/%s", dir, packed_folder(SL_PACKED_LOSSLESS));
    if (!model_path_is_dir(path))
        return 0;
    snprintf(path, sizeof path, "%s/" PACKED_MANIFEST, dir);
    int rc = packed_read(path, &m, err);
    if (rc < 0)
        return rc;
    const struct packed_tree *t = m->tree[packed_folder_index(SL_PACKED_LOSSLESS)];
    if (t) {
        a->packed = dir;
        a->q4 = t->kind == SL_PACKED_4BIT;
    }
    packed_close(&m);
    return 0;
}

int run_names_finish(const char *argv0, struct run_args *a, struct sl_err *err)
{
    if (strcmp(base_name(argv0), "infer") != 0)
        return 0;
    if (!a->model)
        a->model = env_model_dir();
    return a->packed || a->q4 || a->q3 || a->q2 ? 0 : find_tree(a, err);
}
