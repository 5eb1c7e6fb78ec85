/* machine.c: what a measurement has to tell about the machine it was made on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sys.h"
#include "base/text_file.h"
#include "bench/bench.h"

#define CPU0 "/sys/devices/system/cpu/cpu0"

/* The first line of a file, without its end; false when there is none. */
static bool read_line(const char *root, const char *path, char *out, size_t size)
{
    char *text = text_file_read(root, path);
    if (!text)
        return false;
    text[strcspn(text, "\n")] = '\0';
    snprintf(out, size, "%s", text);
    mem_free(text);
    return out[0] != '\0';
}

/* The value of the first line "key : value" of /proc/cpuinfo. */
static bool find_key(const char *text, const char *key, char *out, size_t size)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const size_t n = strlen(key);
        if (strncmp(line, key, n) != 0 || (line[n] != ' ' && line[n] != '\t' && line[n] != ':'))
            continue;
        const char *value = line + n + strspn(line + n, " \t:");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        return true;
    }
    return false;
}

/* x86 has a model name. Arm has numbers of implementer and part (the names are the manufacturer's,
 * and a device tree knows only the board). */
static void read_cpu(const char *root, char *out, size_t size)
{
    char implementer[24], part[24];
    char *text = text_file_read(root, "/proc/cpuinfo");
    out[0] = '\0';
    if (!text)
        return;
    if (!find_key(text, "model name", out, size) &&
        find_key(text, "CPU implementer", implementer, sizeof implementer) &&
        find_key(text, "CPU part", part, sizeof part))
        snprintf(out, size, "implementer %s part %s", implementer, part);
    mem_free(text);
}

/* "1024K" as the system writes sizes of caches; 0: not so. */
static uint64_t parse_size(const char *s)
{
    char *end;
    const unsigned long long n = strtoull(s, &end, 10);
    const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    return end == s || n > (1u << 30) ? 0 : (uint64_t)n << shift;
}

static void read_caches(const char *root, struct bench_machine *m)
{
    long best = 0;
    m->l2 = m->llc = 0;
    for (int i = 0; i < 8; i++) {
        char path[96], line[32], type[32];
        snprintf(path, sizeof path, CPU0 "/cache/index%d/type", i);
        if (!read_line(root, path, type, sizeof type) || strcmp(type, "Instruction") == 0)
            continue;
        snprintf(path, sizeof path, CPU0 "/cache/index%d/level", i);
        const long level = read_line(root, path, line, sizeof line) ? strtol(line, NULL, 10) : 0;
        snprintf(path, sizeof path, CPU0 "/cache/index%d/size", i);
        const uint64_t size = read_line(root, path, line, sizeof line) ? parse_size(line) : 0;
        if (level == 2)
            m->l2 = size;
        if (level > best && size > 0) {
            best = level;
            m->llc = size;
        }
    }
}

void bench_read_load(const char *root, double load[3])
{
    char line[96];
    char *at = line;
    const bool there = read_line(root, "/proc/loadavg", line, sizeof line);
    for (int i = 0; i < 3; i++) {
        char *end = at;
        load[i] = there ? strtod(at, &end) : -1;
        if (there && end == at)
            load[i] = -1;
        at = end;
    }
}

void bench_read_ticks(const char *root, struct bench_ticks *out)
{
    char line[256];
    const double hz = (double)sysconf(_SC_CLK_TCK);
    double t[8]; /* user, nice, system, idle, iowait, irq, softirq, steal */
    *out = (struct bench_ticks){-1, -1};
    if (!read_line(root, "/proc/stat", line, sizeof line) || strncmp(line, "cpu ", 4) != 0)
        return;
    char *at = line + 4;
    for (int i = 0; i < 8; i++) {
        char *end;
        t[i] = strtod(at, &end);
        if (end == at)
            return;
        at = end;
    }
    out->busy = (t[0] + t[1] + t[2] + t[5] + t[6]) / hz;
    out->steal = t[7] / hz;
}

void bench_read_machine(const char *root, struct bench_machine *out)
{
    char line[64];
    struct utsname u;
    struct sys_memory mem;
    memset(out, 0, sizeof *out);
    read_cpu(root, out->cpu, sizeof out->cpu);
    if (uname(&u) == 0)
        snprintf(out->os, sizeof out->os, "%.30s %.60s", u.sysname, u.release);
    if (!read_line(root, CPU0 "/cpufreq/scaling_governor", out->governor, sizeof out->governor))
        out->governor[0] = '\0';
    if (read_line(root, CPU0 "/cpufreq/cpuinfo_max_freq", line, sizeof line))
        out->mhz_max = strtod(line, NULL) / 1000; /* the file has kHz */
    out->usable_cpus = sys_usable_cpus(root);
    out->online_cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    read_caches(root, out);
    sys_memory(root, &mem);
    out->memory = mem.total;
    out->avail = mem.available < mem.cgroup_available ? mem.available : mem.cgroup_available;
    bench_read_load(root, out->load);
}
