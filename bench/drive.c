#include "bench/drive.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "io/drives.h"
#include "io/queue.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SLICES_MAX  ((int64_t)1 << 24)
#define GROUPS_MOST 4096 /* in flight at once */
#define PROBES      2    /* pages of a slice that are looked up in the page cache */
#define REQUEST_MAX ((uint64_t)1 << 30)
#define SLOTS_MOST  4096 /* for the sake of small requests; unless more are open */

/* ---- Places ---------------------------------------------------------------------------------- */

static int nothing_to_read(struct sl_err *err, const char *what)
{
    return err_set(err, SL_E_UNSUPPORTED, "drive", "%s", what);
}

static int make_list(struct bench_places *p, int64_t n, int group, struct sl_err *err)
{
    *p = (struct bench_places){.group = group};
    if (n <= 0 || n > SLICES_MAX)
        return nothing_to_read(err, n <= 0 ? "there is nothing to read"
                                           : "too many places to read: take larger requests");
    p->slice = mem_alloc((size_t)n * sizeof *p->slice);
    if (!p->slice)
        return err_set(err, SL_E_MEM, "drive", "no memory for a list of %lld places", (long long)n);
    return 0;
}

static void add_slice(struct bench_places *p, struct io_file *f, uint64_t offset, uint64_t bytes)
{
    p->slice[p->n++] = (struct bench_slice){f, offset, bytes};
    p->bytes += bytes;
    p->bytes_mean = p->bytes / (uint64_t)p->n;
    if (bytes > p->bytes_most)
        p->bytes_most = bytes;
}

int bench_list_experts(const struct bench_bank *banks, int n_banks, struct bench_places *out,
                       struct sl_err *err)
{
    int group = 0;
    int64_t n = 0;
    for (int l = 0; l < n_banks; l++) {
        if (group == 0)
            group = banks[l].n_parts;
        if (banks[l].n_parts == group)
            n += (int64_t)banks[l].n_experts * group;
    }
    int rc = make_list(out, group ? n : 0, group, err);
    for (int l = 0; rc == 0 && l < n_banks; l++)
        for (int e = 0; banks[l].n_parts == group && e < banks[l].n_experts; e++)
            for (int j = 0; j < group; j++) {
                const struct bench_part *part = &banks[l].part[j];
                add_slice(out, part->file, part->offset + (uint64_t)e * part->stride, part->bytes);
            }
    return rc;
}

int bench_list_file(struct io_file *f, uint64_t request, struct bench_places *out,
                    struct sl_err *err)
{
    *out = (struct bench_places){0};
    if (request == 0 || request > REQUEST_MAX)
        return err_set(err, SL_E_ARG, "drive", "a request is 1 byte to 1 GiB long");
    int64_t n = (int64_t)(io_file_size(f) / request);
    int rc = make_list(out, n, 1, err);
    for (int64_t i = 0; rc == 0 && i < n; i++)
        add_slice(out, f, (uint64_t)i * request, request);
    return rc;
}

void bench_free_places(struct bench_places *p)
{
    mem_free(p->slice);
    *p = (struct bench_places){0};
}

/* ---- Reading --------------------------------------------------------------------------------- */

struct session {
    const struct bench_places *places;
    struct io_reader *reader;
    struct io_req *lane;
    struct io_queue idle; /* those that are not open: memory is used by turns */
    int n_lanes, most_open;
    uint8_t *memory;
    size_t room, memory_bytes, align;

    int64_t n_groups, step, at; /* the order: at + i * step modulo n_groups */
    int64_t taken;              /* groups of the order that are behind us */
    uint64_t skipped, probed, was_cached, bytes, reads;
    struct sl_err err;
};

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* splitmix64 */
static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A step that visits every group once and leaps far. */
static void choose_order(struct session *s, const struct bench_drive_spec *spec)
{
    int64_t n = s->n_groups;
    s->at = (int64_t)(mix(spec->seed) % (uint64_t)n);
    s->step = n > 2 ? (int64_t)(mix(spec->seed + 1) % (uint64_t)(n - 1)) + 1 : 1;
    while (gcd(s->step, n) != 1)
        s->step = s->step % n + 1;
    s->at = (int64_t)(((unsigned __int128)spec->skip * (uint64_t)s->step + (uint64_t)s->at) %
                      (uint64_t)n);
}

static void describe_window(const struct session *s, const struct bench_slice *p, struct io_req *r)
{
    r->file = p->file;
    r->offset = size_down(p->offset, s->align);
    r->need = (size_t)(p->offset - r->offset + p->bytes);
    r->len = (size_t)size_up(r->need, s->align);
}

/* Pages of the slice leave the page cache; false: they won't, and a buffered read would be none of
 * the drive's. Direct reads go past the page cache. */
static bool evict(struct session *s, const struct bench_slice *p)
{
    if (io_file_direct(p->file))
        return true;
    double before = io_file_cached(p->file, p->offset, p->bytes, PROBES);
    s->probed++;
    s->was_cached += before > 0;
    io_file_drop(p->file, p->offset, p->bytes); /* also those between the probes */
    return before == 0 || io_file_cached(p->file, p->offset, p->bytes, PROBES) == 0;
}

/* Submit the next group that can be read; false: no group is left to try. */
static bool submit_group(struct session *s)
{
    int g = s->places->group;
    for (int64_t tried = 0; tried < s->n_groups; tried++) {
        const struct bench_slice *p = &s->places->slice[s->at * g];
        s->at = (s->at + s->step) % s->n_groups;
        s->taken++;
        bool cold = true;
        for (int j = 0; cold && j < g; j++)
            cold = evict(s, &p[j]);
        if (!cold) {
            s->skipped++;
            continue;
        }
        struct io_queue list = {0};
        for (int j = 0; j < g; j++) {
            struct io_req *req = io_queue_take(&s->idle);
            describe_window(s, &p[j], req);
            io_queue_put(&list, req);
        }
        io_reader_submit(s->reader, list.head, g);
        return true;
    }
    return false;
}

static void reap(struct session *s)
{
    struct io_req *req = io_reader_reap(s->reader, true);
    while (req) {
        struct io_req *next = req->next;
        if (req->err.code && !s->err.code)
            s->err = req->err;
        io_queue_put(&s->idle, req);
        req = next;
    }
}

static int count_drives(const struct bench_places *p)
{
    struct io_drives d = {0};
    for (int64_t i = 0; i < p->n; i++)
        io_drives_find(&d, IO_DRIVES_MAX, p->slice[i].file);
    return d.n > 1 ? d.n : 1;
}

/* So many as the memory has room for, no fewer than may be open; a run needs no more memory than
 * there is to read. */
static int count_lanes(const struct session *s, uint64_t memory)
{
    uint64_t all = s->places->bytes, n = (memory < all ? memory : all) / s->room;
    n = n < SLOTS_MOST ? n : SLOTS_MOST;
    return n > (uint64_t)s->most_open ? (int)n : s->most_open;
}

/* Twice as many requests as may be in flight are kept with the reader, so that it never waits for
 * us. */
static int open_session(struct session *s, const struct bench_places *p,
                        const struct bench_drive_spec *spec, struct bench_drive_row *row,
                        struct sl_err *err)
{
    const char *note = "";
    const int n_drives = count_drives(p);
    *s = (struct session){.places = p, .n_groups = p->n / p->group, .align = mem_page_size()};
    int rc = io_reader_create(spec->engine, spec->in_flight, n_drives, &s->reader, &note, err);
    if (rc < 0)
        return rc;
    snprintf(row->engine, sizeof row->engine, "%s", s->reader->ops->name);
    snprintf(row->note, sizeof row->note, "%.*s", (int)sizeof row->note - 1, note);
    for (int64_t i = 0; i < p->n; i++)
        if (io_file_align(p->slice[i].file) > s->align)
            s->align = io_file_align(p->slice[i].file);
    int groups = (2 * spec->in_flight * n_drives + p->group - 1) / p->group;
    s->most_open = (groups < GROUPS_MOST ? groups : GROUPS_MOST) * p->group;
    s->room = (size_t)size_up(p->bytes_most, s->align) + s->align;
    s->n_lanes = count_lanes(s, spec->memory ? spec->memory : BENCH_DRIVE_MEMORY);
    s->memory_bytes = (size_t)s->n_lanes * s->room + s->align;
    s->lane = mem_calloc((size_t)s->n_lanes, sizeof *s->lane);
    s->memory = mem_map(s->memory_bytes, MEM_HUGE);
    if (!s->lane || !s->memory)
        return err_set(err, SL_E_MEM, "drive", "no memory for %d read buffers of %zu bytes",
                       s->n_lanes, s->room);
    memset(s->memory, 0, s->memory_bytes);
    uint8_t *first = s->memory + (size_up((uintptr_t)s->memory, s->align) - (uintptr_t)s->memory);
    for (int i = 0; i < s->n_lanes; i++) {
        s->lane[i].buf = first + (size_t)i * s->room;
        io_queue_put(&s->idle, &s->lane[i]);
    }
    choose_order(s, spec);
    return 0;
}

static void close_session(struct session *s)
{
    io_reader_destroy(&s->reader);
    mem_free(s->lane);
    mem_unmap(s->memory, s->memory_bytes);
}

static bool all_direct(const struct bench_places *p)
{
    bool all = true;
    for (int64_t i = 0; all && i < p->n; i++)
        all = io_file_direct(p->slice[i].file);
    return all;
}

static void fill_row(const struct session *s, double wall, double cpu, struct bench_drive_row *out)
{
    out->seconds = wall;
    out->cpu_s = cpu;
    out->reads = s->reader->n_reads;
    out->bytes = s->reader->bytes;
    out->gb_s = wall > 0 ? (double)out->bytes / wall * 1e-9 : 0;
    out->groups = (uint64_t)s->taken - s->skipped;
    out->skipped = s->skipped;
    out->cached = s->probed ? (double)s->was_cached / (double)s->probed : 0;
    out->again = s->taken > s->n_groups;
    out->direct = all_direct(s->places);
}

int bench_measure_drive(const struct bench_places *p, const struct bench_drive_spec *spec,
                        struct bench_drive_row *out, struct sl_err *err)
{
    struct session s;
    *out = (struct bench_drive_row){.in_flight = spec->in_flight};
    int rc = open_session(&s, p, spec, out, err);
    if (rc == 0) {
        double t0 = clock_now(), cpu0 = clock_cpu();
        bool left = true;
        do {
            while (left && s.reader->open + p->group <= s.most_open)
                left = submit_group(&s);
            reap(&s);
        } while (left && !s.err.code && clock_now() - t0 < spec->seconds);
        while (s.reader->open > 0) /* what is open counts, with the time that it takes */
            reap(&s);
        fill_row(&s, clock_now() - t0, clock_cpu() - cpu0, out);
        if (s.err.code) {
            rc = s.err.code;
            if (err)
                *err = s.err;
        } else if (out->reads == 0) {
            rc = nothing_to_read(err, "every place is in the page cache and stays there (a file "
                                      "just written leaves it after `sync`); nothing of the drive "
                                      "can be measured by buffered reads");
        }
    }
    close_session(&s);
    return rc;
}

int bench_probe_drive(struct io_file *f, uint64_t request, int in_flight, double seconds,
                      double *gb_s, struct sl_err *err)
{
    struct bench_places places;
    struct bench_drive_row row = {0};
    struct bench_drive_spec spec = {.engine = "auto",
                                    .in_flight = in_flight,
                                    .seconds = seconds,
                                    .seed = (uint64_t)(clock_now() * 1e9)};
    *gb_s = 0;
    int rc = bench_list_file(f, request, &places, err);
    if (rc == 0)
        rc = bench_measure_drive(&places, &spec, &row, err);
    bench_free_places(&places);
    *gb_s = row.gb_s;
    return rc;
}

double bench_copy_rate(void)
{
    const size_t n = (size_t)64 << 20;
    uint8_t *a = mem_map(2 * n, 0);
    double best = 0;
    if (!a)
        return 0;
    memset(a, 1, 2 * n);
    for (int i = 0; i < 3; i++) {
        double t0 = clock_now();
        memcpy(a + (size_t)(i % 2) * n, a + (size_t)((i + 1) % 2) * n, n);
        double rate = (double)n / (clock_now() - t0) * 1e-9;
        best = rate > best ? rate : best;
    }
    mem_unmap(a, 2 * n);
    return best;
}
