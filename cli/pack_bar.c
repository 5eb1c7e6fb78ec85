/* pack_bar.c: how far packing is: a bar on a terminal, a line per layer elsewhere. */
#include "cli/pack.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB   1048576.0
#define WIDTH 24
#define PAUSE 0.2 /* seconds between two pictures of the bar */

void pack_bar_time(double seconds, char *buf, size_t size)
{
    unsigned long s = seconds < 0 ? 0 : seconds > 1e9 ? 1000000000 : (unsigned long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(buf, size, "%lu h %02lu min", s / 3600, s / 60 % 60);
    else if (s >= 60)
        snprintf(buf, size, "%lu min %02lu s", s / 60, s % 60);
    else
        snprintf(buf, size, "%lu s", s);
}

void pack_bar_start(struct pack_bar *b, const char *what, uint64_t total, int n_layers)
{
    *b = (struct pack_bar){.what = what,
                           .total = total,
                           .n_layers = n_layers,
                           .layer = 1,
                           .start = clock_now(),
                           .terminal = isatty(STDERR_FILENO) == 1};
}

static void show(struct pack_bar *b, const char *end)
{
    double now = clock_now(), spent = now - b->start;
    double part = b->total > 0 ? (double)b->done / (double)b->total : 1;
    char bar[WIDTH + 1], left[32] = "?";
    int full = (int)(part * WIDTH);
    memset(bar, ' ', WIDTH);
    memset(bar, '=', (size_t)(full < WIDTH ? full : WIDTH));
    bar[WIDTH] = '\0';
    if (b->done > 0)
        pack_bar_time(spent * (1 - part) / part, left, sizeof left);
    fprintf(stderr, "%s%s [%s] %3.0f%%  layer %d of %d  %.0f of %.0f MiB, %.1f MiB/s, %s left%s",
            b->terminal ? "\r" : "", b->what, bar, 100 * part, b->layer, b->n_layers,
            (double)b->done / MIB, (double)b->total / MIB,
            spent > 0 ? (double)b->done / MIB / spent : 0, left, end);
    b->shown = now;
}

void pack_bar_add(struct pack_bar *b, uint64_t bytes)
{
    b->done += bytes;
    if (b->terminal && clock_now() - b->shown >= PAUSE)
        show(b, "\033[K");
}

void pack_bar_layer(struct pack_bar *b)
{
    if (!b->terminal)
        show(b, "\n");
    if (b->layer < b->n_layers)
        b->layer++;
}

void pack_bar_end(struct pack_bar *b)
{
    if (b->terminal && b->shown > 0)
        fprintf(stderr, "\r\033[K");
}
