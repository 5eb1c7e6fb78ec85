/* start.h: threads of our own. */
#ifndef BASE_START_H
#define BASE_START_H

#include <pthread.h>

/* Start f(arg) on a thread that the system shows under name (at most 15 characters). Signals from
 * outside go to the program's own threads, never to this one: their handlers may use what only
 * those may use. Those that the thread raises itself (a mapped page that cannot be read, a bad
 * address) still reach the program's handler: blocked, they would end the process without a word.
 * Returns 0 or an errno; the caller joins the thread. */
int start_thread(pthread_t *out, const char *name, void *(*f)(void *), void *arg);

#endif
