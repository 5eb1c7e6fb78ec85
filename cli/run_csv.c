#include "cli/run_csv.h"

#include "cli/outfile.h"

#include "base/mem.h"
#include "base/sys.h"
#include "telemetry/emit.h"

#include <math.h>
#include <string.h>

#define MIB 1048576.0

struct run_csv {
    struct outfile *file;
    struct emit line;
    struct sl_engine_plan plan;
    int turn;
};

int run_csv_open(const struct run_args *a, struct run_csv **out, struct sl_err *err)
{
    *out = NULL;
    if (a->csv == NULL)
        return SL_OK;
    struct run_csv *c = mem_calloc(1, sizeof *c);
    if (c == NULL)
        return err_set(err, SL_E_MEM, NULL, "no memory for --csv");
    int rc = outfile_open(a->csv, "--csv", &c->file, err);
    if (rc < 0) {
        mem_free(c);
        return rc;
    }
    *out = c;
    return SL_OK;
}

static int put_line(struct run_csv *c, struct sl_err *err)
{
    int rc = c->line.failed ? err_set(err, SL_E_MEM, "--csv", "no memory for a row of --csv")
                            : outfile_write(c->file, c->line.text, c->line.n, err);
    emit_clear(&c->line);
    return rc;
}

/* ---- Preamble: lines "# key=value", text values as JSON strings ----------------------------- */

static void say_text(struct emit *e, const char *key, const char *value)
{
    emit_add_text(e, "# ");
    emit_add_text(e, key);
    emit_add_text(e, "=");
    emit_add_string(e, value, strlen(value));
    emit_add_text(e, "\n");
}

static void say_number(struct emit *e, const char *key, double value)
{
    emit_add_text(e, "# ");
    emit_add_text(e, key);
    emit_add_text(e, "=");
    emit_add_number(e, value);
    emit_add_text(e, "\n");
}

static void say_mib(struct emit *e, const char *key, uint64_t bytes)
{
    say_number(e, key, (double)bytes / MIB);
}

static void say_option(void *user, const char *name, const char *value)
{
    struct emit *e = user;
    emit_add_text(e, "# option.");
    emit_add_text(e, name);
    emit_add_text(e, "=");
    emit_add_string(e, value, strlen(value));
    emit_add_text(e, "\n");
}

static void say_model(struct emit *e, const struct sl_model_info *m)
{
    say_text(e, "model.arch", m->arch);
    say_text(e, "model.name", m->name != NULL ? m->name : "");
    say_number(e, "model.n_layer", m->n_layer);
    say_number(e, "model.n_expert", m->n_expert);
    say_number(e, "model.n_expert_used", m->n_expert_used);
    say_mib(e, "model.file_mib", m->file_bytes);
    say_mib(e, "model.dense_mib", m->dense_bytes);
    say_mib(e, "model.expert_mib", m->expert_bytes);
    say_mib(e, "model.token_expert_mib", m->token_expert_bytes);
}

static void say_plan(struct emit *e, const struct sl_engine_plan *p)
{
    static const char *const dense[] = {"anon", "mmap", "warm"};
    say_text(e, "plan.marks", p->marks);
    say_text(e, "plan.mode", p->streamed ? "streamed" : "resident");
    say_number(e, "plan.o_direct", p->direct);
    say_text(e, "plan.o_direct_note", p->direct_note);
    say_text(e, "plan.io_engine", p->io_engine);
    say_number(e, "plan.n_drives", p->n_drives);
    say_text(e, "plan.cpu", p->cpu_level);
    say_text(e, "plan.dense_weights", dense[p->dense_mode]);
    say_number(e, "plan.threads", p->threads);
    say_number(e, "plan.pinned", p->pinned);
    say_number(e, "plan.n_ctx", p->n_ctx);
    say_number(e, "plan.ubatch", p->ubatch);
    say_mib(e, "plan.dense_mib", p->dense_bytes);
    say_mib(e, "plan.kv_mib", p->kv_bytes);
    say_mib(e, "plan.compute_mib", p->compute_bytes);
    say_mib(e, "plan.transit_mib", p->transit_bytes);
    say_mib(e, "plan.cache_mib", p->cache_bytes);
    say_mib(e, "plan.total_mib", p->total_bytes);
    say_mib(e, "plan.limit_mib", p->limit_bytes);
}

static const char HEADER[] =
    "step,token,wall_s,compute_s,io_s,mgmt_s,stall_s,other_s,loop_s,overhead_s,read_bytes,reads,"
    "hits,misses,hit_pct,evictions,rereads,experts_routed,experts_dropped,majflt,cpu_s,"
    "rss_anon_mib,rss_file_mib,rss_shmem_mib,mem_available_mib,dense_resident_pct,"
    "cache_resident_mib,cache_budget_mib,budget_mib,turn\n";

int run_csv_begin(struct run_csv *c, const struct run_args *a, const struct sl_model_info *info,
                  const struct sl_engine_plan *plan, struct sl_err *err)
{
    struct emit *e = &c->line;
    c->plan = *plan;
    emit_add_text(e, "# sluice csv v1\n");
    say_text(e, "version", SL_VERSION);
    run_opts_each(a, say_option, e);
    say_model(e, info);
    say_plan(e, plan);
    emit_add_text(e, HEADER);
    return put_line(c, err);
}

/* ---- Rows ----------------------------------------------------------------------------------- */

static void cell(struct emit *e, double v)
{
    emit_add_text(e, ",");
    emit_add_number(e, v);
}

static void count(struct emit *e, bool known, uint64_t v)
{
    emit_add_text(e, ",");
    if (known)
        emit_add_uint(e, v);
}

static void add_times(struct emit *e, const struct gen_step *s, bool streamed)
{
    const struct sl_phase_stats *d = &s->d;
    const double none = (double)NAN;
    cell(e, d->wall_s);
    cell(e, d->compute_s);
    cell(e, streamed ? d->read_busy_s : none);
    cell(e, streamed ? d->mgmt_s : none);
    cell(e, streamed ? d->stall_s : none);
    cell(e, report_other_s(d));
    cell(e, s->loop_s);
    cell(e, s->loop_s - d->wall_s);
}

static void add_experts(struct emit *e, const struct run_csv *c, const struct sl_phase_stats *d)
{
    bool streamed = c->plan.streamed;
    double asked = (double)d->hits + (double)d->misses;
    count(e, streamed, d->bytes_read);
    count(e, streamed, d->reads);
    count(e, streamed, d->hits);
    count(e, streamed, d->misses);
    cell(e, streamed && asked > 0 ? 100 * (double)d->hits / asked : (double)NAN);
    count(e, streamed, d->evictions);
    count(e, streamed, d->rereads);
    count(e, true, d->experts_routed);
    count(e, true, d->experts_dropped);
}

static void add_memory(struct emit *e, const struct run_csv *c, const struct sl_engine *engine,
                       const struct sl_session *session)
{
    const double none = (double)NAN;
    struct sys_rss rss;
    struct sl_stats stats;
    struct sl_engine_plan plan; /* the cache's budget may change */
    sl_engine_get_plan(engine, &plan);
    sys_rss("", &rss);
    sl_session_stats(session, &stats);
    bool known = rss.anon > 0;
    uint64_t available = sys_mem_available("");
    cell(e, known ? (double)rss.anon / MIB : none);
    cell(e, known ? (double)rss.file / MIB : none);
    cell(e, known ? (double)rss.shmem / MIB : none);
    cell(e, available > 0 ? (double)available / MIB : none);
    cell(e, 100 * sl_engine_dense_resident(engine));
    cell(e, c->plan.streamed ? (double)stats.cache_resident_bytes / MIB : none);
    cell(e, c->plan.streamed ? (double)plan.cache_bytes / MIB : none);
    cell(e, c->plan.limit_bytes > 0 ? (double)c->plan.limit_bytes / MIB : none);
}

void run_csv_turn(struct run_csv *c, int turn)
{
    if (c != NULL)
        c->turn = turn;
}

int run_csv_step(struct run_csv *c, const struct sl_engine *engine,
                 const struct sl_session *session, const struct gen_step *s, struct sl_err *err)
{
    if (c == NULL)
        return SL_OK;
    struct emit *e = &c->line;
    emit_add_uint(e, s->step);
    emit_add_text(e, ",");
    emit_add_int(e, s->id);
    add_times(e, s, c->plan.streamed);
    add_experts(e, c, &s->d);
    count(e, true, s->d.majflt);
    cell(e, s->d.cpu_s);
    add_memory(e, c, engine, session);
    emit_add_text(e, ",");
    emit_add_int(e, c->turn);
    emit_add_text(e, "\n");
    return put_line(c, err);
}

static void say_result(void *user, const char *key, double value)
{
    say_number(user, key, value);
}

/* ---- Summary -------------------------------------------------------------------------------- */

int run_csv_commit(struct run_csv **cp, const struct run_report *r, struct sl_err *err)
{
    struct run_csv *c = *cp;
    if (c == NULL)
        return SL_OK;
    struct emit *e = &c->line;
    struct report_summary s;
    report_sum_up(r, &s);
    emit_add_text(e, "# summary\n");
    report_each_number(&s, say_result, e);
    int rc = put_line(c, err);
    if (rc == SL_OK)
        rc = outfile_commit(&c->file, err);
    run_csv_close(cp);
    return rc;
}

void run_csv_close(struct run_csv **cp)
{
    struct run_csv *c = *cp;
    *cp = NULL;
    if (c == NULL)
        return;
    outfile_discard(&c->file);
    emit_free(&c->line);
    mem_free(c);
}
