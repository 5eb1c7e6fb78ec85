/* rss.h: the process's anonymous and shared memory, sampled ten times a second by a thread. */
#ifndef CLI_RSS_H
#define CLI_RSS_H

#include <stdbool.h>
#include <stdint.h>

struct rss_sampler;

/* NULL when the thread cannot be started; then the peak is not known. */
struct rss_sampler *rss_start(void);
/* One more sample now; the highest RssAnon + RssShmem so far, bytes. false: not measured. */
bool rss_peak(struct rss_sampler *r, uint64_t *bytes);
void rss_stop(struct rss_sampler **r);

#endif
