/* adapt.c: give at once, take back slowly.
 *
 * Short is: less memory is available than is to be left free, or tasks waited for memory (PSI
 * "some") for more than a tenth of the time since the last look. Then what is missing goes, and
 * under pressure at least an eighth of the cache. Growth waits until there was no shortage for
 * CALM_S, and then takes an eighth of the planned size at a time, as long as a sixteenth of it
 * stays beside what is to be left free: what is taken does not by itself bring the shortage back.
 */
#include "engine/adapt.h"

#define PRESSED 0.10
#define CALM_S  5.0
#define PIECE   8
#define MARGIN  16

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Share of the time since the last look. */
static double waited(const struct adapt *a, const struct adapt_sample *s)
{
    double dt = s->now - a->last;
    if (!a->primed || !s->psi || dt <= 0)
        return 0;
    uint64_t machine = s->machine_us > a->machine_us ? s->machine_us - a->machine_us : 0;
    uint64_t group = s->group_us > a->group_us ? s->group_us - a->group_us : 0;
    return (double)(machine > group ? machine : group) / 1e6 / dt;
}

uint64_t adapt_decide(struct adapt *a, const struct adapt_sample *s, const struct adapt_size *size,
                      enum adapt_why *why)
{
    bool pressed = waited(a, s) > PRESSED;
    uint64_t give = s->lack, target = size->now;
    if (!a->primed)
        a->calm_since = s->now - CALM_S;
    a->primed = true;
    a->last = s->now;
    a->machine_us = s->machine_us;
    a->group_us = s->group_us;
    *why = ADAPT_KEEP;
    if (give || pressed) {
        a->calm_since = s->now;
        if (pressed && give < size->now / PIECE)
            give = size->now / PIECE;
        target = size->now - smaller(give, size->now);
        target = target > size->least ? target : smaller(size->least, size->now);
        if (target < size->now)
            *why = s->lack ? ADAPT_SHORT : ADAPT_PRESSURE;
        return target;
    }
    uint64_t margin = size->most / MARGIN;
    if (size->now >= size->most || s->now - a->calm_since < CALM_S || s->spare <= margin)
        return size->now;
    target = size->now +
             smaller(smaller(s->spare - margin, size->most / PIECE + 1), size->most - size->now);
    if (target > size->now)
        *why = ADAPT_OVER;
    return target;
}
