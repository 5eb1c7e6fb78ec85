#include "telemetry/limit.h"

#include <math.h>

void limit_open(struct limit *l, const struct limit_rates *rates, int n_layer)
{
    *l = (struct limit){.rates = *rates, .n_layer = n_layer, .last_pos = -1};
}

static double work_rate(const struct limit_rates *r)
{
    double kernels = r->kernel * r->threads;
    return kernels > 0 && kernels < r->ram ? kernels : r->ram;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void end_token(struct limit *l)
{
    l->whole_s += larger(l->token_io_s, l->token_work_s);
    l->token_io_s = l->token_work_s = 0;
}

void limit_add_block(struct limit *l, const struct sl_block_event *e)
{
    double rate = work_rate(&l->rates);
    if (e->batch.prompt || e->batch.n_tok != 1 || !(rate > 0))
        return;
    if (e->batch.pos != l->last_pos) {
        end_token(l);
        l->last_pos = e->batch.pos;
        l->tokens++;
    }
    double dense = (double)e->dense_bytes / rate, hit = (double)e->hit_bytes / rate;
    double io = e->missed_bytes > 0 ? (double)e->missed_bytes / l->rates.drive : 0;
    l->layered_s += dense + larger(io, hit);
    if (e->missed_bytes > 0)
        l->layered_s += (double)e->expert_bytes / rate;
    l->token_io_s += io;
    l->token_work_s += dense + hit + (double)e->missed_bytes / rate;
}

double limit_layered(const struct limit *l)
{
    double s = l->tokens > 0 ? l->layered_s / (double)l->tokens : (double)NAN;
    return isfinite(s) ? s : (double)NAN;
}

double limit_whole(const struct limit *l)
{
    double s = l->tokens > 0
                   ? (l->whole_s + larger(l->token_io_s, l->token_work_s)) / (double)l->tokens
                   : (double)NAN;
    return isfinite(s) ? s : (double)NAN;
}
