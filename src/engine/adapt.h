/* adapt.h: how large an expert cache should be while the system runs short of memory and after it.
 * Pure decisions; budget.c looks at the system and carries them out. */
#ifndef ENGINE_ADAPT_H
#define ENGINE_ADAPT_H

#include <stdbool.h>
#include <stdint.h>

/* What the system says at one moment. */
struct adapt_sample {
    double now;     /* monotonic seconds */
    uint64_t spare; /* bytes above what is to be left free; 0 when short */
    uint64_t lack;  /* bytes missing from it; 0 unless short */
    bool psi;       /* this system tells how long tasks waited for memory: */
    uint64_t machine_us, group_us;
};

struct adapt_size {
    uint64_t now, least, most; /* bytes of the cache: as it is, smallest legal, planned */
};

struct adapt {
    bool primed; /* there was a sample */
    double last, calm_since;
    uint64_t machine_us, group_us;
};

enum adapt_why { ADAPT_KEEP = 0, ADAPT_SHORT, ADAPT_PRESSURE, ADAPT_OVER };

/* The size to have from now on; *why is ADAPT_KEEP when that is size->now. */
uint64_t adapt_decide(struct adapt *a, const struct adapt_sample *s, const struct adapt_size *size,
                      enum adapt_why *why);

#endif
