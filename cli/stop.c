#include "cli/stop.h"

#include "cli/outfile.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_int asked;
static atomic_int current = STOP_QUIT;
static _Atomic(struct sl_session *) session;

static void on_signal(int sig)
{
    int before = atomic_exchange(&asked, sig);
    int phase = atomic_load(&current);
    if (before != 0 || phase == STOP_QUIT) {
        outfile_remove_all();
        _exit(128 + sig);
    }
    struct sl_session *s = atomic_load(&session);
    if (phase == STOP_CANCEL && s != NULL)
        sl_session_cancel(s);
}

void stop_install(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
    struct sigaction ign = {.sa_handler = SIG_IGN};
    sigemptyset(&ign.sa_mask);
    sigaction(SIGPIPE, &ign, NULL);
}

void stop_set_phase(enum stop_phase phase, struct sl_session *s)
{
    atomic_store(&session, s);
    atomic_store(&current, (int)phase);
}

int stop_signal(void)
{
    return atomic_load(&asked);
}
