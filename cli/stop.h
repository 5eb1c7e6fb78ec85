/* stop.h: Ctrl-C and SIGTERM. The first one asks the run to end in good order, the second ends it
 * at once; in both cases no temporary file stays behind. */
#ifndef CLI_STOP_H
#define CLI_STOP_H

#include "sluice.h"

enum stop_phase {
    STOP_QUIT,   /* loading: nothing to report yet, the first signal ends the program */
    STOP_CANCEL, /* prompt: the first signal cancels the session's eval */
    STOP_FINISH, /* decoding: the current token is finished */
};

/* Take over SIGINT, SIGTERM and SIGHUP, except those that whoever started us ignores (nohup, jobs
 * in the background of a script); ignore SIGPIPE, so that a closed pipe is a write error. */
void stop_install(void);
/* From now on a failing read of a mapped file (SIGBUS: it became shorter, or its drive failed) ends
 * the program with a line that names path. path must stay. */
void stop_on_bad_map(const char *path);
/* s: the session to cancel; it must outlive the phase. NULL for STOP_QUIT. */
void stop_set_phase(enum stop_phase phase, struct sl_session *s);
/* The signal that asked to stop; 0: none. */
int stop_signal(void);

#endif
