/* cpus.h: which CPUs a thread may run on, threads bound to one of them, and leave to use tiles. */
#ifndef BASE_CPUS_H
#define BASE_CPUS_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define CPUS_MOST 16384 /* twice what Linux can be built for */

/* A set of CPUs, in the layout of the kernel. */
struct cpus_mask {
    uint64_t bits[CPUS_MOST / 64];
};

/* Into a set, a list such as "0-3,8,10-11"; returns how many CPUs are in it, 0: it is none. */
int cpus_parse(const char *list, struct cpus_mask *out);

/* Those that the calling thread may use, or of a recorded tree the process (see sys.h about root).
 * Returns how many, 0: the system does not say. */
int cpus_allowed(const char *root, struct cpus_mask *out);

/* The same in the order in which compute threads should take them: one hardware thread of each core
 * before second ones, fast cores before slow ones, then by number. At most max of them go into
 * cpus; returns how many there are. */
int cpus_order(const char *root, int *cpus, int max);

/* Bind a thread to one CPU. 0 or an errno. */
int cpus_bind(pthread_t thread, int cpu);
/* What the calling thread may use, to be given back later. 0 or an errno. */
int cpus_save(struct cpus_mask *out);
int cpus_restore(const struct cpus_mask *saved);

/* Ask for leave to use the matrix tiles of x86 (AMX), whose state Linux saves only for processes
 * that did; it holds for all threads. False: this system does not give it. */
bool cpus_allow_tiles(void);

#endif
