#include "base/cpus.h"

#include "base/mem.h"
#include "base/text_file.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool has(const struct cpus_mask *m, int cpu)
{
    return m->bits[cpu / 64] >> cpu % 64 & 1;
}

static void add(struct cpus_mask *m, int cpu)
{
    m->bits[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

static int count(const struct cpus_mask *m)
{
    int n = 0;
    for (int i = 0; i < CPUS_MOST / 64; i++)
        n += __builtin_popcountll(m->bits[i]);
    return n;
}

int cpus_parse(const char *s, struct cpus_mask *out)
{
    memset(out, 0, sizeof *out);
    for (;;) {
        char *end;
        long first = strtol(s, &end, 10), last = first;
        if (end == s || first < 0)
            return 0;
        if (*end == '-') {
            s = end + 1;
            last = strtol(s, &end, 10);
            if (end == s || last < first)
                return 0;
        }
        if (last >= CPUS_MOST)
            return 0;
        for (long i = first; i <= last; i++)
            add(out, (int)i);
        if (*end != ',')
            return count(out);
        s = end + 1;
    }
}

int cpus_allowed(const char *root, struct cpus_mask *out)
{
    static const char key[] = "Cpus_allowed_list:";
    if (!*root)
        return cpus_save(out) == 0 ? count(out) : 0;
    char *text = text_file_read(root, "/proc/self/status");
    const char *line = text ? strstr(text, key) : NULL;
    int n = line ? cpus_parse(line + sizeof key - 1, out) : 0;
    mem_free(text);
    return n;
}

/* ---- Order ---- */

struct candidate {
    int cpu;
    int sibling;   /* allowed CPUs of the same core with smaller numbers */
    long capacity; /* the kernel's measure of a core's speed; 0: not told, all cores are alike */
};

static char *read_of_cpu(const char *root, int cpu, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, name);
    return text_file_read(root, path);
}

static void look_at(const char *root, const struct cpus_mask *allowed, struct candidate *c)
{
    struct cpus_mask core;
    char *text = read_of_cpu(root, c->cpu, "topology/thread_siblings_list");
    c->sibling = 0;
    if (text && cpus_parse(text, &core) > 0)
        for (int i = 0; i < c->cpu; i++)
            c->sibling += has(&core, i) && has(allowed, i);
    mem_free(text);
    text = read_of_cpu(root, c->cpu, "cpu_capacity");
    c->capacity = text ? strtol(text, NULL, 10) : 0;
    mem_free(text);
}

static int compare(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;
    if (a->sibling != b->sibling)
        return a->sibling < b->sibling ? -1 : 1;
    if (a->capacity != b->capacity)
        return a->capacity > b->capacity ? -1 : 1;
    return a->cpu < b->cpu ? -1 : 1;
}

int cpus_order(const char *root, int *cpus, int max)
{
    struct cpus_mask allowed;
    int n = cpus_allowed(root, &allowed), k = 0;
    struct candidate *c = n > 0 ? mem_calloc((size_t)n, sizeof *c) : NULL;
    if (!c)
        return 0;
    for (int i = 0; i < CPUS_MOST && k < n; i++)
        if (has(&allowed, i)) {
            c[k].cpu = i;
            look_at(root, &allowed, &c[k++]);
        }
    qsort(c, (size_t)n, sizeof *c, compare);
    for (int i = 0; i < n && i < max; i++)
        cpus[i] = c[i].cpu;
    mem_free(c);
    return n;
}

/* ---- Binding ---- */

int cpus_bind(pthread_t thread, int cpu)
{
    struct cpus_mask one = {{0}};
    if (cpu < 0 || cpu >= CPUS_MOST)
        return EINVAL;
    add(&one, cpu);
    return pthread_setaffinity_np(thread, sizeof one, (const cpu_set_t *)&one);
}

int cpus_save(struct cpus_mask *out)
{
    memset(out, 0, sizeof *out);
    return pthread_getaffinity_np(pthread_self(), sizeof *out, (cpu_set_t *)out);
}

int cpus_restore(const struct cpus_mask *saved)
{
    return pthread_setaffinity_np(pthread_self(), sizeof *saved, (const cpu_set_t *)saved);
}

/* ---- Tiles ---- */

bool cpus_allow_tiles(void)
{
#if defined(__x86_64__) && defined(SYS_arch_prctl)
    const long request = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, since Linux 5.16 */
    return syscall(SYS_arch_prctl, request, tile_data) == 0;
#else
    return false;
#endif
}
