#include "cli/stop.h"

#include "cli/opts.h"
#include "cli/outfile.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static atomic_int asked;
static atomic_int current = STOP_QUIT;
static _Atomic(struct sl_session *) session;
static const char *mapped; /* path of the model, for a signal handler */

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

static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

/* Every thread that reads the mapping comes here, and several do at once: the first one speaks, the
 * others wait for its _exit. */
static void on_bad_map(int sig)
{
    static atomic_flag taken = ATOMIC_FLAG_INIT;
    (void)sig;
    while (atomic_flag_test_and_set(&taken))
        pause();
    say("sluice: ");
    say(mapped);
    say(": a mapped part cannot be read: the file became shorter, or its drive failed; "
        "--dense-weights anon tells where\n");
    outfile_remove_all();
    _exit(EXIT_FAILED);
}

void stop_on_bad_map(const char *path)
{
    struct sigaction sa = {.sa_handler = on_bad_map};
    sigemptyset(&sa.sa_mask);
    mapped = path;
    sigaction(SIGBUS, &sa, NULL);
}

void stop_install(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction old;
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(signals[i], &sa, NULL);
    }
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
