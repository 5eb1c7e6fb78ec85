/* sys.c: /proc of this process, and the machine's CPUs. The cgroup part is in cgroup.c. */
#include "base/sys.h"

#include "base/cgroup.h"
#include "base/cpus.h"
#include "base/mem.h"
#include "base/text_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* "Key:   1234 kB" on a line of its own -> bytes; 0 when there is no such line. */
static uint64_t kib_field(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (strncmp(p, key, n) == 0 && p[n] == ':') {
            uint64_t kib = strtoull(p + n + 1, NULL, 10);
            return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
        }
    }
    return 0;
}

void sys_memory(const char *root, struct sys_memory *out)
{
    *out = (struct sys_memory){.cgroup_limit = UINT64_MAX, .cgroup_available = UINT64_MAX};
    char *text = text_file_read(root, "/proc/meminfo");
    if (text) {
        out->total = kib_field(text, "MemTotal");
        out->available = kib_field(text, "MemAvailable");
        if (!out->available) /* kernels before 3.14 */
            out->available = kib_field(text, "MemFree") + kib_field(text, "Cached");
        mem_free(text);
    }
    struct sysinfo si; /* where /proc is not mounted; free memory alone, which is less */
    if (!out->total && !*root && sysinfo(&si) == 0) {
        out->total = (uint64_t)si.totalram * si.mem_unit;
        out->available = ((uint64_t)si.freeram + si.bufferram) * si.mem_unit;
    }
    cgroup_memory(root, &out->cgroup_limit, &out->cgroup_available);
}

uint64_t sys_mem_available(const char *root)
{
    char *text = text_file_read(root, "/proc/meminfo");
    uint64_t n = text ? kib_field(text, "MemAvailable") : 0;
    mem_free(text);
    return n;
}

bool sys_pressure(const char *root, struct sys_pressure *out)
{
    *out = (struct sys_pressure){0};
    char *text = text_file_read(root, "/proc/pressure/memory");
    bool machine = text && text_file_pressure(text, &out->machine_us);
    mem_free(text);
    return cgroup_pressure(root, &out->group_us) || machine;
}

int sys_usable_cpus(const char *root)
{
    struct cpus_mask allowed;
    int n = cpus_allowed(root, &allowed);
    if (n == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        n = online > 0 ? (int)online : 1;
    }
    double quota = cgroup_cpus(root);
    if (quota < n)
        n = (int)quota;
    return n < 1 ? 1 : n;
}

void sys_rss(const char *root, struct sys_rss *out)
{
    *out = (struct sys_rss){0};
    char *text = text_file_read(root, "/proc/self/status");
    if (!text)
        return;
    out->anon = kib_field(text, "RssAnon");
    out->file = kib_field(text, "RssFile");
    out->shmem = kib_field(text, "RssShmem");
    mem_free(text);
}

uint64_t sys_majflt(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_majflt : 0;
}
