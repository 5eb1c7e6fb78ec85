/* sys.h: what the machine and the process have: CPUs, memory, cgroup limits. Files are read under a
 * root
 * ("" for the real one) so that tests can replay recorded trees. */
#ifndef BASE_SYS_H
#define BASE_SYS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct sys_memory {
    uint64_t total;        /* MemTotal */
    uint64_t available;    /* MemAvailable, bytes */
    uint64_t cgroup_limit; /* tightest limit over this cgroup and its parents; UINT64_MAX: none */
    uint64_t cgroup_available; /* min over the levels of limit - (usage - reclaimable file pages);
                                  UINT64_MAX: none */
};
/* cgroup v1 and v2, nested. Missing files mean no limit. */
void sys_memory(const char *root, struct sys_memory *out);

/* MemAvailable alone, bytes: cheap enough for every token. 0: not known. */
uint64_t sys_mem_available(const char *root);

/* Microseconds in which some task waited for memory (PSI), on the machine and in this cgroup and
 * its parents; false: this kernel does not say. */
struct sys_pressure {
    uint64_t machine_us, group_us;
};
bool sys_pressure(const char *root, struct sys_pressure *out);

/* CPUs this process may use: affinity and cgroup CPU quota (v1 and v2, floored, at least 1). */
int sys_usable_cpus(const char *root);

struct sys_rss {
    uint64_t anon, file, shmem; /* bytes, of /proc/self/status */
};
/* All 0 where the system does not say. */
void sys_rss(const char *root, struct sys_rss *out);
uint64_t sys_majflt(void); /* major page faults of this process so far */

#endif
