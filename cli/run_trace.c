#include "cli/run_trace.h"

#include "cli/outfile.h"

#include "base/clock.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The line to the file. */
static void flush(struct trace_out *t)
{
    if (t->code == SL_OK && t->line.failed)
        t->code = err_set(&t->err, SL_E_MEM, NULL, "no memory for a line of a trace");
    if (t->code == SL_OK && t->line.n > 0)
        t->code = outfile_write(t->file, t->line.text, t->line.n, &t->err);
    emit_clear(&t->line);
}

/* ",v" */
static void cell(struct emit *e, int64_t v)
{
    emit_add_text(e, ",");
    emit_add_int(e, v);
}

static void ucell(struct emit *e, uint64_t v)
{
    emit_add_text(e, ",");
    emit_add_uint(e, v);
}

static void pair(struct emit *e, const char *key, uint64_t v)
{
    emit_add_text(e, key);
    emit_add_uint(e, v);
}

/* A name as one word of a preamble line. */
static void word(struct emit *e, const char *s)
{
    for (; *s != '\0'; s++)
        emit_add_bytes(e, isgraph((unsigned char)*s) ? s : "_", 1);
}

/* The lines that all three files begin with. */
static void preamble(struct trace_out *t, const char *form, const struct sl_engine *engine)
{
    struct sl_model_info m;
    struct emit *e = &t->line;
    sl_engine_info(engine, &m);
    emit_add_text(e, "# ");
    emit_add_text(e, form);
    emit_add_text(e, " v1\n# model=");
    word(e, m.name != NULL && m.name[0] != '\0' ? m.name : "unnamed");
    emit_add_text(e, " arch=");
    word(e, m.arch);
    pair(e, " n_layer=", (uint64_t)m.n_layer);
    pair(e, " n_expert=", (uint64_t)m.n_expert);
    pair(e, " n_expert_used=", (uint64_t)m.n_expert_run);
    emit_add_text(e, "\n");
    for (int i = 0; i < m.n_layer; i++) {
        uint64_t dense, expert;
        sl_block_bytes(engine, i, &dense, &expert);
        pair(e, "# layer=", (uint64_t)i);
        pair(e, " expert_bytes=", expert);
        pair(e, " dense_bytes=", dense);
        emit_add_text(e, "\n");
    }
}

/* ---- Routing: the form that `sluice replay` reads ------------------------------------------- */

void trace_begin_route(struct route_trace *t, const struct sl_engine *e)
{
    preamble(&t->out, "route_trace", e);
    emit_add_text(&t->out.line,
                  "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n");
    flush(&t->out);
    t->block = -1;
}

/* expert_bytes is what this choice adds to the reads: 0 where the expert is there, or where an
 * earlier token of the same batch has it read already. */
void trace_add_route(struct route_trace *t, const struct sl_route_event *r)
{
    struct emit *e = &t->out.line;
    if (r->batch.pos != t->pos || r->block != t->block)
        memset(t->asked, 0, (size_t)t->n_expert * sizeof *t->asked);
    t->pos = r->batch.pos;
    t->block = r->block;
    for (int i = 0; i < r->k; i++) {
        int id = r->ids[i];
        bool read = !r->resident[i] && !t->asked[id];
        t->asked[id] = true;
        emit_add_int(e, t->turn);
        cell(e, r->batch.prompt ? 0 : 1);
        cell(e, r->pos);
        cell(e, r->block);
        cell(e, i);
        cell(e, id);
        emit_add_text(e, ",");
        emit_add_number(e, (double)r->weights[i]);
        cell(e, r->resident[i]);
        ucell(e, read ? r->expert_bytes : 0);
        emit_add_text(e, "\n");
    }
    flush(&t->out);
}

/* ---- Reads, and the weights that every block went through ----------------------------------- */

void trace_begin_io(struct io_trace *t, const struct sl_engine *e)
{
    preamble(&t->out, "io_trace", e);
    emit_add_text(&t->out.line,
                  "kind,token,tokens,phase,layer,expert,file,offset,bytes,submit_s,done_s,demand,"
                  "failed,dense_bytes,hit_bytes,missed_bytes,expert_bytes\n");
    flush(&t->out);
    t->start_s = clock_now();
}

static int file_index(struct io_trace *t, const char *path)
{
    for (int i = 0; i < t->n_files; i++) {
        if (t->files[i] == path || strcmp(t->files[i], path) == 0)
            return i;
    }
    if (t->n_files == TRACE_MAX_FILES)
        return -1;
    t->files[t->n_files] = path;
    return t->n_files++;
}

void trace_add_read(struct io_trace *t, const struct sl_read_event *r)
{
    struct emit *e = &t->out.line;
    emit_add_text(e, "read");
    cell(e, r->pos);
    emit_add_text(e, ",,");
    cell(e, r->block);
    cell(e, r->expert);
    cell(e, file_index(t, r->file));
    ucell(e, r->offset);
    ucell(e, r->bytes);
    emit_add_text(e, ",");
    emit_add_time(e, r->submit_s - t->start_s);
    emit_add_text(e, ",");
    emit_add_time(e, r->done_s - t->start_s);
    cell(e, !r->speculative);
    cell(e, r->failed);
    emit_add_text(e, ",,,,\n");
    flush(&t->out);
}

void trace_add_block(struct io_trace *t, const struct sl_block_event *b)
{
    struct emit *e = &t->out.line;
    emit_add_text(e, "block");
    cell(e, b->batch.pos);
    cell(e, b->batch.n_tok);
    cell(e, b->batch.prompt ? 0 : 1);
    cell(e, b->block);
    emit_add_text(e, ",,,,,,,,");
    ucell(e, b->dense_bytes);
    ucell(e, b->hit_bytes);
    ucell(e, b->missed_bytes);
    ucell(e, b->expert_bytes);
    emit_add_text(e, "\n");
    flush(&t->out);
    limit_add_block(&t->limit, b);
}

static void say(struct emit *e, const char *key, double v)
{
    emit_add_text(e, "# ");
    emit_add_text(e, key);
    emit_add_text(e, "=");
    emit_add_number(e, v);
    emit_add_text(e, "\n");
}

void trace_end_io(struct io_trace *t, double measured_s)
{
    struct emit *e = &t->out.line;
    const struct limit_rates *r = &t->limit.rates;
    emit_add_text(e, "# summary\n");
    for (int i = 0; i < t->n_files; i++) {
        pair(e, "# file=", (uint64_t)i);
        emit_add_text(e, " path=");
        emit_add_string(e, t->files[i], strlen(t->files[i]));
        emit_add_text(e, "\n");
    }
    say(e, "threads", r->threads);
    say(e, "ram_rate", r->ram);
    say(e, "kernel_rate", r->kernel);
    say(e, "drive_rate", r->drive);
    say(e, "tokens", (double)t->limit.tokens);
    say(e, "layered_limit_s", limit_layered(&t->limit));
    say(e, "whole_limit_s", limit_whole(&t->limit));
    say(e, "measured_s", measured_s);
    flush(&t->out);
}

/* ---- Times by operation --------------------------------------------------------------------- */

void trace_begin_compute(struct compute_trace *t, const struct sl_engine *e)
{
    preamble(&t->out, "compute_trace", e);
    emit_add_text(&t->out.line, "token,tokens,phase,layer,op,wall_s,calls\n");
    flush(&t->out);
    t->batch.pos = -1;
}

void trace_end_batch(struct compute_trace *t)
{
    struct emit *e = &t->out.line;
    for (int block = -1; t->batch.pos >= 0 && block <= t->times.n_layer; block++) {
        for (int op = 0; op < SL_OP_COUNT; op++) {
            uint32_t calls = t->times.calls[block + 1][op];
            if (calls == 0)
                continue;
            emit_add_int(e, t->batch.pos);
            cell(e, t->batch.n_tok);
            cell(e, t->batch.prompt ? 0 : 1);
            cell(e, block);
            emit_add_text(e, ",");
            emit_add_text(e, sl_op_name((enum sl_op)op));
            emit_add_text(e, ",");
            emit_add_number(e, t->times.s[block + 1][op]);
            cell(e, calls);
            emit_add_text(e, "\n");
        }
    }
    flush(&t->out);
    times_clear(&t->times);
    t->batch.pos = -1;
}

void trace_add_op(struct compute_trace *t, const struct sl_op_event *e)
{
    if (t->batch.pos >= 0 && t->batch.pos != e->batch.pos)
        trace_end_batch(t);
    t->batch = e->batch;
    times_add(&t->times, e);
}
