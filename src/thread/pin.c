#include "thread/pin.h"

#include "base/mem.h"

int pin_choose(struct pin *p, int n, struct sl_err *err)
{
    int *cpus = mem_calloc((size_t)n, sizeof *cpus);
    if (!cpus)
        return err_set(err, SL_E_MEM, "--pin", "no memory to bind %d threads", n);
    int have = cpus_order("", cpus, n), rc = 0;
    if (have == 0)
        rc = err_set(err, SL_E_SYSTEM, "--pin",
                     "--pin: the system does not say which CPUs may be used");
    else if (have < n)
        rc = err_set(err, SL_E_ARG, "--pin",
                     "--pin: %d threads, but only %d CPU%s may be used; give fewer threads (-t)", n,
                     have, have == 1 ? "" : "s");
    if (rc < 0)
        mem_free(cpus);
    else
        p->cpus = cpus;
    return rc;
}

int pin_bind(const struct pin *p, pthread_t thread, int tid, struct sl_err *err)
{
    int errnum = cpus_bind(thread, p->cpus[tid]);
    return errnum ? err_sys(err, SL_E_SYSTEM, "--pin", errnum,
                            "--pin: cannot bind compute thread %d to CPU %d", tid + 1, p->cpus[tid])
                  : 0;
}

int pin_enter(struct pin *p, struct sl_err *err)
{
    if (!p->cpus)
        return 0;
    int errnum = cpus_save(&p->caller);
    if (errnum)
        return err_sys(err, SL_E_SYSTEM, "--pin", errnum,
                       "--pin: cannot read which CPUs the calling thread may use");
    return pin_bind(p, pthread_self(), 0, err);
}

void pin_leave(const struct pin *p)
{
    if (p->cpus)
        cpus_restore(&p->caller);
}

void pin_free(struct pin *p)
{
    mem_free(p->cpus);
    p->cpus = NULL;
}
