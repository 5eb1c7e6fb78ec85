/* watch.h: somebody who watches a session and notes what cannot be. */
#ifndef SUPPORT_WATCH_H
#define SUPPORT_WATCH_H

#include "sluice.h"

struct watcher {
    uint64_t ops, routes, blocks, reads; /* events */
    uint64_t hits, misses;               /* of experts, by block events */
    uint64_t bytes;                      /* of reads */
    int bad;                             /* events that cannot be */
    double end;                          /* of the last operation; 0: none */
    int pos;                             /* of its batch */
};

int watcher_start(struct watcher *w, struct sl_session *s, struct sl_err *err);
/* NULL, or what does not fit the session's counters. routed: layers with experts; k: experts per
 * token, where nothing drops any. */
const char *watcher_check(const struct watcher *w, const struct sl_stats *s, int routed, int k);

#endif
