#include "io/reader.h"

#include "io/drives.h"

#include <stdio.h>
#include <string.h>

/* Best first. A build without liburing knows the name all the same. */
static const struct engine {
    const char *name;
    const struct io_reader_ops *ops;
    bool falls; /* a caller that asked for it may get one of the next */
} engines[] = {
#ifdef SLUICE_URING
    {"uring", &io_uring_ops, true},
#else
    {"uring", NULL, true},
#endif
    {"threads", &io_threads_ops, false},
    {"plain", &io_plain_ops, false},
};
#define N_ENGINES (sizeof engines / sizeof *engines)

#define IN_FLIGHT_MAX 1024 /* of all drives */

static int create_engine(const struct engine *e, int in_flight, int n_drives,
                         struct io_reader **out, struct sl_err *err)
{
    if (e->ops)
        return e->ops->create(in_flight, n_drives, out, err);
    return err_set(err, SL_E_UNSUPPORTED, "I/O engine", "this build has no io_uring");
}

int io_reader_create(const char *name, int in_flight, int n_drives, struct io_reader **out,
                     const char **note, struct sl_err *err)
{
    *out = NULL;
    if (note)
        *note = "";
    if (n_drives < 1 || n_drives > IO_DRIVES_MAX)
        return err_set(err, SL_E_ARG, "drives", "must be between 1 and %d, not %d", IO_DRIVES_MAX,
                       n_drives);
    if (in_flight < 1 || in_flight > IN_FLIGHT_MAX / n_drives)
        return err_set(err, SL_E_ARG, "reads in flight", "must be between 1 and %d, not %d",
                       IN_FLIGHT_MAX / n_drives, in_flight);
    size_t first = 0;
    for (bool any = strcmp(name, "auto") == 0; !any && first < N_ENGINES; first++)
        if (strcmp(name, engines[first].name) == 0)
            break;
    if (first == N_ENGINES)
        return err_set(err, SL_E_ARG, "I/O engine",
                       "'%s' is not one of auto, uring, threads, plain", name);
    struct sl_err why = {0};
    bool falls = engines[first].falls; /* auto begins with one that does */
    for (size_t i = first; i < N_ENGINES; i++) {
        int rc = create_engine(&engines[i], in_flight, n_drives, out, &why);
        if (rc == 0)
            break;
        if (i + 1 == N_ENGINES || rc == SL_E_MEM || !falls) {
            if (err)
                *err = why;
            return rc;
        }
    }
    struct io_reader *r = *out;
    if (why.code)
        snprintf(r->note, sizeof r->note, "I/O engine %s instead of %s: %.120s", r->ops->name,
                 engines[first].name, why.msg);
    if (note)
        *note = r->note;
    return 0;
}

void io_reader_destroy(struct io_reader **r)
{
    if (!r || !*r)
        return;
    (*r)->ops->destroy(*r);
    *r = NULL;
}

void io_reader_submit(struct io_reader *r, struct io_req *list, int n)
{
    if (n > 0)
        r->ops->submit(r, list, n);
}

struct io_req *io_reader_reap(struct io_reader *r, bool wait)
{
    return r->open > 0 ? r->ops->reap(r, wait) : NULL;
}

double io_reader_busy(const struct io_reader *r)
{
    return r->ops->busy ? r->ops->busy(r) : r->busy_s;
}
