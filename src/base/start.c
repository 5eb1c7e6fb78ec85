#include "base/start.h"

#include <signal.h>

int start_thread(pthread_t *out, const char *name, void *(*f)(void *), void *arg)
{
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t blocked, old;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&blocked, own[i]);
    int errnum = pthread_sigmask(SIG_BLOCK, &blocked, &old);
    if (errnum)
        return errnum;
    errnum = pthread_create(out, NULL, f, arg);
    if (errnum == 0)
        pthread_setname_np(*out, name);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return errnum;
}
