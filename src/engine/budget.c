#include "engine/budget.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fpenv.h"
#include "base/sys.h"
#include "engine/adapt.h"

#define MIB         ((uint64_t)1 << 20)
#define LOOK_S      0.25 /* a look at the system costs some tenths of a millisecond */
#define GROUP_SHARE 16

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static const char *root_of(const struct sl_engine_options *o)
{
    return o->sys_root ? o->sys_root : "";
}

static void take_room(uint64_t available, uint64_t held, uint64_t floor, struct budget_room *out)
{
    uint64_t have = available > UINT64_MAX - held ? UINT64_MAX : available + held;
    out->available = smaller(out->available, available);
    if (have < floor && floor - have > out->lack)
        out->lack = floor - have;
    out->spare = smaller(out->spare, have > floor ? have - floor : 0);
}

void budget_find_room(const struct sl_engine_options *o, uint64_t held, struct budget_room *out)
{
    struct sys_memory m;
    uint64_t floor = o->cache_floor_mb * MIB;
    sys_memory(root_of(o), &m);
    *out = (struct budget_room){.spare = UINT64_MAX, .available = UINT64_MAX};
    take_room(m.available, held, floor, out);
    if (m.cgroup_limit != UINT64_MAX)
        take_room(m.cgroup_available, held, smaller(floor, m.cgroup_limit / GROUP_SHARE), out);
}

/* The cache has got a new size. */
static void record(struct sl_engine *e, uint64_t bytes, enum sl_cache_why why, uint64_t available)
{
    struct sl_engine_plan *p = &e->plan;
    struct sl_cache_change ch = {
        .from_bytes = p->cache_bytes, .to_bytes = bytes, .available_bytes = available, .why = why};
    p->total_bytes += bytes - p->cache_bytes;
    p->cache_bytes = bytes;
    if (e->cache_changes++ == 0 || bytes < e->cache_least)
        e->cache_least = smaller(bytes, ch.from_bytes);
    if (e->opt.on_cache_change)
        e->opt.on_cache_change(e->opt.user, &ch);
}

/* May the cache grow to so many bytes? */
static int check_growth(const struct sl_engine *e, uint64_t bytes, struct sl_err *err)
{
    const struct sl_engine_plan *p = &e->plan;
    uint64_t most = smaller(bytes, p->cache_max_bytes), room;
    if (most <= p->cache_bytes)
        return 0;
    if (p->limit_bytes) {
        uint64_t rest = p->total_bytes - p->cache_bytes;
        room = p->limit_bytes > rest ? p->limit_bytes - rest : 0;
    } else {
        struct budget_room r;
        budget_find_room(&e->opt, 0, &r);
        room = p->cache_bytes + r.spare;
    }
    if (most <= room)
        return 0;
    return err_set(err, SL_E_BUDGET, "cache size",
                   "an expert cache of %llu MiB does not fit: %s %llu MiB for it",
                   (unsigned long long)(most / MIB),
                   p->limit_bytes ? "--ram leaves" : "the machine can spare",
                   (unsigned long long)(room / MIB));
}

int sl_engine_set_cache_budget(struct sl_engine *e, uint64_t bytes, struct sl_err *err)
{
    if (!e->cache)
        return err_set(err, SL_E_ARG, "cache size",
                       "experts are not streamed: there is no expert cache to change");
    uint64_t fp = fpenv_enter(), now;
    int rc = check_growth(e, bytes, err);
    if (rc == 0)
        rc = cache_set_budget(e->cache, bytes, &now, err);
    if (rc == 0) {
        e->cache_goal = now;
        e->plan.cache_auto = false;
        if (now != e->plan.cache_bytes)
            record(e, now, SL_CACHE_ASKED, 0);
    }
    fpenv_restore(fp);
    return rc;
}

void budget_adapt(struct sl_engine *e)
{
    static const enum sl_cache_why reasons[] = {[ADAPT_SHORT] = SL_CACHE_SHORT,
                                                [ADAPT_PRESSURE] = SL_CACHE_PRESSURE,
                                                [ADAPT_OVER] = SL_CACHE_OVER};
    double t = e->cache && e->opt.cache_adapt ? clock_now() : 0;
    if (t < e->adapt_at || t == 0)
        return;
    e->adapt_at = t + LOOK_S;
    struct budget_room room;
    struct sys_pressure psi;
    budget_find_room(&e->opt, 0, &room);
    struct adapt_sample s = {.now = t, .spare = room.spare, .lack = room.lack};
    s.psi = sys_pressure(root_of(&e->opt), &psi);
    s.machine_us = psi.machine_us;
    s.group_us = psi.group_us;
    struct adapt_size size = {
        .now = e->plan.cache_bytes, .least = e->plan.cache_min_bytes, .most = e->cache_goal};
    enum adapt_why why;
    uint64_t want = adapt_decide(&e->adapt, &s, &size, &why), now;
    if (why == ADAPT_KEEP || cache_set_budget(e->cache, want, &now, NULL) < 0)
        return;
    if (now != e->plan.cache_bytes)
        record(e, now, reasons[why], room.available);
}
