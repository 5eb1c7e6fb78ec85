#include "io/reader.h"

#include <string.h>

/* Best first: "auto" takes the first that can be created. */
static const struct io_reader_ops *const engines[] = {&io_threads_ops, &io_plain_ops};
#define N_ENGINES (sizeof engines / sizeof *engines)

#define IN_FLIGHT_MAX 1024

int io_reader_create(const char *name, int in_flight, struct io_reader **out, const char **note,
                     struct sl_err *err)
{
    *out = NULL;
    if (note)
        *note = "";
    if (in_flight < 1 || in_flight > IN_FLIGHT_MAX)
        return err_set(err, SL_E_ARG, "reads in flight", "must be between 1 and %d, not %d",
                       IN_FLIGHT_MAX, in_flight);
    bool any = strcmp(name, "auto") == 0;
    for (size_t i = 0; i < N_ENGINES; i++) {
        if (!any && strcmp(name, engines[i]->name) != 0)
            continue;
        int rc = engines[i]->create(in_flight, out, err);
        if (rc == 0 || !any || i + 1 == N_ENGINES)
            return rc;
        if (note)
            *note = "the best I/O engine could not be started; using a slower one";
    }
    return err_set(err, SL_E_ARG, "I/O engine", "'%s' is not one of auto, threads, plain", name);
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
