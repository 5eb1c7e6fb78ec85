/* cgroup.h: the limits of the control groups that this process lives in, v1 and v2. Paths are taken
 * under root, as in sys.h. */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* Minimum over all levels of the limit and of limit - (usage - reclaimable); UINT64_MAX: none. */
void cgroup_memory(const char *root, uint64_t *limit, uint64_t *available);

/* Microseconds in which some task of this group waited for memory, since the group exists: the
 * largest over the levels, from memory.pressure (v2). False: none has such a file. */
bool cgroup_pressure(const char *root, uint64_t *us);

/* CPUs of quota, minimum over all levels; infinity: none. */
double cgroup_cpus(const char *root);

#endif
