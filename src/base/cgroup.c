/* cgroup.c: /proc/self/cgroup says in which group this process is, per hierarchy; mountinfo says
 * where that hierarchy is mounted and which of its groups is the root of the mount (a container may
 * see only its own subtree). From the process's directory we walk up to the mount point and take
 * the tightest level. Formats: cgroups(7), proc_pid_mountinfo(5), the kernel's cgroup-v2.rst. */
#include "base/cgroup.h"

#include "base/mem.h"
#include "base/text_file.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* v1 says "none" as the largest multiple of the page size below 2^63. */
#define LIMIT_NONE (UINT64_C(1) << 60)

/* Called with the directory of one level, leaf first. v2: which files to expect. */
typedef void level_fn(const char *root, const char *dir, bool v2, void *out);

/* Is word an element of the comma-separated list [s, end)? */
static bool list_has(const char *s, const char *end, const char *word)
{
    size_t n = strlen(word);
    while (s < end) {
        const char *comma = memchr(s, ',', (size_t)(end - s));
        const char *stop = comma ? comma : end;
        if ((size_t)(stop - s) == n && memcmp(s, word, n) == 0)
            return true;
        s = stop + 1;
    }
    return false;
}

/* The group of this process: the line "N:list:path" whose list has the controller, or for v2 the
 * line "0::path". out: PATH_MAX bytes. */
static bool own_group(const char *cgroups, const char *controller, bool v2, char *out)
{
    for (const char *p = cgroups; *p;) {
        const char *end = strchr(p, '\n');
        if (!end)
            end = p + strlen(p);
        const char *list = memchr(p, ':', (size_t)(end - p));
        const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        if (path && (v2 ? path == list + 1 : list_has(list + 1, path, controller))) {
            size_t n = (size_t)(end - path - 1);
            if (n >= PATH_MAX)
                return false;
            memcpy(out, path + 1, n);
            out[n] = 0;
            return true;
        }
        p = *end ? end + 1 : end;
    }
    return false;
}

/* Copies a mountinfo field up to the blank, with \ooo decoded; false when it does not fit. */
static bool copy_field(const char *s, const char *end, char *out)
{
    size_t n = 0;
    while (s < end) {
        if (n + 1 >= PATH_MAX)
            return false;
        if (*s == '\\' && end - s >= 4 && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' &&
            s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
            out[n++] = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 4;
        } else {
            out[n++] = *s++;
        }
    }
    out[n] = 0;
    return true;
}

struct mount {
    char root[PATH_MAX], point[PATH_MAX];
    bool v2;
};

/* One line: id parent major:minor root point options [tags...] - type source super-options. False
 * when it is no cgroup mount that has the controller. */
static bool parse_mount(const char *line, const char *end, const char *controller, struct mount *m)
{
    const char *field[5], *stop[5];
    const char *p = line;
    for (int i = 0; i < 5; i++) {
        field[i] = p;
        stop[i] = memchr(p, ' ', (size_t)(end - p));
        if (!stop[i])
            return false;
        p = stop[i] + 1;
    }
    const char *dash = memmem(p - 1, (size_t)(end - p + 1), " - ", 3);
    if (!dash)
        return false;
    const char *type = dash + 3;
    const char *type_end = memchr(type, ' ', (size_t)(end - type));
    if (!type_end)
        return false;
    size_t n = (size_t)(type_end - type);
    m->v2 = n == 7 && memcmp(type, "cgroup2", 7) == 0;
    if (!m->v2) {
        const char *source_end = memchr(type_end + 1, ' ', (size_t)(end - type_end - 1));
        if (n != 6 || memcmp(type, "cgroup", 6) != 0 || !source_end ||
            !list_has(source_end + 1, end, controller))
            return false;
    }
    return copy_field(field[3], stop[3], m->root) && copy_field(field[4], stop[4], m->point);
}

/* The group's path below the mount's root; "" when it lies elsewhere (another namespace): then the
 * mount point itself is the best that can be seen. */
static const char *below_root(const char *group, const char *mount_root)
{
    size_t n = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    if (strncmp(group, mount_root, n) != 0 || (group[n] && group[n] != '/'))
        return "";
    if (strstr(group, "/..") || strcmp(group + n, "/") == 0)
        return "";
    return group + n;
}

static void walk_levels(const char *root, const struct mount *m, const char *rel, level_fn *fn,
                        void *out)
{
    char dir[PATH_MAX];
    size_t base = strlen(m->point);
    int len = snprintf(dir, sizeof dir, "%s%s", m->point, rel);
    if (len < 0 || len >= (int)sizeof dir)
        return;
    for (;;) {
        fn(root, dir, m->v2, out);
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= base || !slash || (size_t)(slash - dir) < base)
            return;
        *slash = 0;
    }
}

static void each_level(const char *root, const char *controller, level_fn *fn, void *out)
{
    char *cgroups = text_file_read(root, "/proc/self/cgroup");
    char *mounts = text_file_read(root, "/proc/self/mountinfo");
    struct mount *m = mem_alloc(sizeof *m);
    char *group = mem_alloc(PATH_MAX);
    for (const char *p = mounts; cgroups && m && group && p && *p;) {
        const char *end = strchr(p, '\n');
        if (!end)
            end = p + strlen(p);
        if (parse_mount(p, end, controller, m) && own_group(cgroups, controller, m->v2, group))
            walk_levels(root, m, below_root(group, m->root), fn, out);
        p = *end ? end + 1 : end;
    }
    mem_free(group);
    mem_free(m);
    mem_free(mounts);
    mem_free(cgroups);
}

static char *read_in(const char *root, const char *dir, const char *name)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/%s", dir, name);
    return len < 0 || len >= (int)sizeof path ? NULL : text_file_read(root, path);
}

/* A file of one number; false when it is missing, "max", or the v1 way to say none. */
static bool read_limit(const char *root, const char *dir, const char *name, uint64_t *out)
{
    char *text = read_in(root, dir, name);
    char *end = text;
    uint64_t v = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    bool ok = end != text && v < LIMIT_NONE;
    mem_free(text);
    if (ok)
        *out = v;
    return ok;
}

/* "key number" on a line of its own. */
static bool stat_value(const char *text, const char *key, uint64_t *out)
{
    size_t n = strlen(key);
    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (strncmp(p, key, n) == 0 && p[n] == ' ') {
            *out = strtoull(p + n + 1, NULL, 10);
            return true;
        }
    }
    return false;
}

struct memory_result {
    uint64_t limit, available;
};

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void memory_level(const char *root, const char *dir, bool v2, void *out)
{
    struct memory_result *r = out;
    uint64_t limit = UINT64_MAX, v, usage = 0, reclaimable = 0;
    if (read_limit(root, dir, v2 ? "memory.max" : "memory.limit_in_bytes", &v))
        limit = v;
    /* Above memory.high nobody is killed, but everybody is made to wait: a limit to us. */
    if (v2 && read_limit(root, dir, "memory.high", &v))
        limit = min_u64(limit, v);
    char *stat = read_in(root, dir, "memory.stat");
    /* Covers v1 parents that a container does not see. */
    if (!v2 && stat && stat_value(stat, "hierarchical_memory_limit", &v) && v < LIMIT_NONE)
        limit = min_u64(limit, v);
    if (stat && !(!v2 && stat_value(stat, "total_inactive_file", &reclaimable)))
        stat_value(stat, "inactive_file", &reclaimable);
    mem_free(stat);
    if (limit == UINT64_MAX)
        return;
    read_limit(root, dir, v2 ? "memory.current" : "memory.usage_in_bytes", &usage);
    usage -= min_u64(usage, reclaimable);
    r->limit = min_u64(r->limit, limit);
    r->available = min_u64(r->available, limit - min_u64(limit, usage));
}

void cgroup_memory(const char *root, uint64_t *limit, uint64_t *available)
{
    struct memory_result r = {.limit = UINT64_MAX, .available = UINT64_MAX};
    each_level(root, "memory", memory_level, &r);
    *limit = r.limit;
    *available = r.available;
}

struct pressure_result {
    uint64_t us;
    bool known;
};

static void pressure_level(const char *root, const char *dir, bool v2, void *out)
{
    struct pressure_result *r = out;
    uint64_t us;
    char *text = v2 ? read_in(root, dir, "memory.pressure") : NULL;
    if (text && text_file_pressure(text, &us)) {
        r->us = us > r->us ? us : r->us;
        r->known = true;
    }
    mem_free(text);
}

bool cgroup_pressure(const char *root, uint64_t *us)
{
    struct pressure_result r = {0};
    each_level(root, "memory", pressure_level, &r);
    *us = r.us;
    return r.known;
}

static void cpu_level(const char *root, const char *dir, bool v2, void *out)
{
    double *cpus = out;
    uint64_t quota = 0, period = 0;
    bool ok;
    if (v2) { /* "max 100000" or "150000 100000" */
        char *text = read_in(root, dir, "cpu.max");
        char *end = NULL;
        ok = text && *text >= '0' && *text <= '9';
        if (ok) {
            quota = strtoull(text, &end, 10);
            period = strtoull(end, NULL, 10);
        }
        mem_free(text);
    } else { /* quota -1: none */
        ok = read_limit(root, dir, "cpu.cfs_quota_us", &quota) &&
             read_limit(root, dir, "cpu.cfs_period_us", &period);
    }
    if (ok && period > 0 && (double)quota / (double)period < *cpus)
        *cpus = (double)quota / (double)period;
}

double cgroup_cpus(const char *root)
{
    double cpus = INFINITY;
    each_level(root, "cpu", cpu_level, &cpus);
    return cpus;
}
