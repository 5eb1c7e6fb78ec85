/* cache.h: routed experts in bounded memory, read from the drive when asked for.
 *
 * Memory is cut into slots; a slot holds one expert, each of its parts (gate, up, down slices)
 * starting on the alignment. Slot classes are the distinct tuples of slice lengths. Beside each
 * class's cache slots there are transit slots, shared by all classes, for experts that don't stay.
 *
 * Contract of leases: an expert handed out by cache_pass_next stays where it is until
 * cache_pass_release; an expert is published whole or not at all; a failed read frees its slot and
 * fails that pass only; cache_destroy asserts that no lease is out. One thread drives a cache. */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include "io/reader.h"

#define CACHE_MAX_PARTS 3

/* Expert e's slice of a part: bytes [offset + e * stride, + bytes) of file. */
struct cache_part {
    struct io_file *file;
    uint64_t offset, stride, bytes;
};
struct cache_layer {
    int n_parts; /* 0: a layer without routed experts */
    int n_experts;
    int top_k;
    struct cache_part part[CACHE_MAX_PARTS];
    /* Not 0: the only part holds so many matrices, which begin at view_at; a view names these. */
    int n_views;
    uint64_t view_at[CACHE_MAX_PARTS];
};

struct cache_future;
struct cache_config {
    const struct cache_layer *layers; /* copied */
    int n_layers;
    size_t align;       /* the largest of page size and the files' alignments */
    int64_t budget;     /* bytes of cache slots; 0: transit slots only */
    int64_t most;       /* bytes that cache_set_budget may grow to; 0: budget's */
    int64_t slots;      /* cache slots per class instead of budget; -1: budget decides */
    int in_flight;      /* reads in flight, on all drives together */
    int threads;        /* compute threads */
    int split;          /* page-aligned chunks per expert, >= 1 */
    bool touch_later;   /* memory is touched from cache_touch on, not from creation */
    bool overlap;       /* false: a pass waits for its reads before it hands anything out */
    bool two_wave;      /* last parts are read behind all others, and an expert is handed out when
                           only its last part is missing: see cache_pass_await */
    int guesses_open;   /* experts that are read on a guess at once; 0: one */
    const char *policy; /* a name of cache/policy.h; NULL: the default */
    /* Decide everything, read and hold nothing: for replays. There is no reader, parts need no
     * file, views are empty. */
    bool dry;
    const struct cache_future *future; /* not NULL: Belady's optimum instead of policy */
};

struct cache_sizes {
    int n_classes;
    uint64_t slot_bytes_max; /* largest class */
    uint64_t transit_bytes;  /* all transit slots: 2 x in_flight + threads of slot_bytes_max */
    uint64_t min_bytes;      /* smallest legal cache above 0: top_k slots of each class */
    uint64_t bank_bytes;     /* a cache that holds every expert, in slots */
    uint64_t cache_bytes;    /* what this config gives, rounded to slots; at most bank_bytes */
    uint64_t waste_bytes;    /* of cache_bytes, lost to alignment */
    uint64_t token_bytes;    /* slices that one token routes to, all layers (no rounding) */
    uint64_t table_bytes;    /* bookkeeping beside the slots, about */
};
/* SL_E_BUDGET with the smallest legal size when 0 < budget < min_bytes (or slots < top_k, slots !=
 * 0). */
int cache_measure(const struct cache_config *cfg, struct cache_sizes *out, struct sl_err *err);

struct cache;
int cache_create(const struct cache_config *cfg, struct io_reader *reader, struct cache **out,
                 struct sl_err *err); /* reader: borrowed; NULL for a dry one */
void cache_destroy(struct cache **c);
/* With touch_later: begin to touch the slots' memory in the background. Once, before the first
 * pass; any thread, while no other calls. */
void cache_touch(struct cache *c);

/* A prompt begins or ends: counts of this prompt's routing are reset, and decide what stays (a
 * prefill never evicts an expert that this prompt routed more often). */
void cache_prompt_begin(struct cache *c);
void cache_prompt_end(struct cache *c);

/* One layer's pass over the experts that a batch routes to. */
enum cache_order {
    CACHE_AS_READY, /* hits first, misses as they land */
    CACHE_ASCENDING /* strictly rising id */
};
struct expert_view {
    const uint8_t *part[CACHE_MAX_PARTS]; /* unaligned; exactly the slice's bytes may be read */
};
/* Before cache_pass_begin, optional: what the layer's router chose for each token, n_tokens rows of
 * k distinct ids in any order (-1 fills up short rows), valid until cache_pass_begin returns. The
 * policy learns more from it than from the pass's own list, which is taken for one token's when
 * this is not called. */
void cache_note_routing(struct cache *c, int layer, const int32_t *ids, int n_tokens, int k);
/* ids: n distinct experts, ascending. counts: tokens that chose each. Submits the first reads and
 * returns. One pass at a time. */
int cache_pass_begin(struct cache *c, int layer, const int32_t *ids, const int32_t *counts, int n,
                     enum cache_order order, struct sl_err *err);
/* The next expert: *index into ids and its view; waits when nothing is ready. 1: got one, 0: all
 * were handed out, negative: a read failed (the pass is over; end it; err->where names layer and
 * expert). Several may be held at once, but the transit slots bound how many: a caller that holds
 * fewer than 2 x in_flight + threads when it asks always gets on; with more it may get
 * SL_E_INTERNAL. Release before asking when one is enough. */
int cache_pass_next(struct cache *c, int *index, struct expert_view *view, struct sl_err *err);
/* Like cache_pass_next, but CACHE_NOT_READY instead of waiting, and also when the next one was
 * chosen by more than max_count tokens (counts as given to cache_pass_begin): lets a caller compute
 * several experts together. */
#define CACHE_NOT_READY 2
int cache_pass_try(struct cache *c, int max_count, int *index, struct expert_view *view,
                   struct sl_err *err);
/* With two_wave: wait until the last part of a held expert is there (its place is in the view
 * already); without, it always is. 0, or negative as cache_pass_next. */
int cache_pass_await(struct cache *c, int index, struct sl_err *err);
void cache_pass_release(struct cache *c, int index);
/* How many experts a caller may hold while it computes for reads to go on beside that: half of
 * those that have no place in the cache. */
int cache_hold_most(const struct cache *c);
/* Take what has landed and let the drive go on with what is queued, in the middle of a computation
 * that may take longer than the reads in flight. By the thread that drives the cache; cheap when
 * nothing has landed. Its time is the caller's: it is not counted as the cache's. */
void cache_keep_reading(struct cache *c);
/* Waits for the pass's open reads, releases what is still held. */
void cache_pass_end(struct cache *c);

/* Is the expert in memory or on its way there, read ahead or not? */
bool cache_holds_expert(const struct cache *c, int layer, int expert);

/* Start reading layer's experts in rising id, speculatively and never before what a pass waits for;
 * a later pass finds them (they count as its misses). counts: how many tokens of a prompt's batch
 * will choose each expert, about; those with 0 are left out, and in a prompt the others may take
 * slots of experts that it routed less often, as they would in their pass, but not of one that is
 * counted itself. NULL: all experts, into what is free. Asking again for the same layer goes on
 * where it was. One layer at a time; the end of a prompt stops it. Counted as speculative. Does
 * nothing where reads can't go on beside computing (no overlap, plain reader). */
void cache_read_ahead(struct cache *c, int layer, const int32_t *counts);

/* Experts that the layer's next pass is expected to ask for, n of them, likeliest first; replaces
 * what an earlier call said of this layer as far as no read was begun. sure: it will ask for them;
 * their reads go out behind those of the open pass. Otherwise they are guesses: read while no
 * demand is open, few at a time (guesses_open of the configuration), into slots whose experts the
 * policy values less; never one that the open pass needs. What is not yet begun when the layer's
 * pass opens is forgotten, what turns out useless is freed, at once or when it lands. Counted as
 * speculative. Does nothing where reads can't go on beside computing (no overlap, plain reader). */
void cache_expect(struct cache *c, int layer, const int32_t *ids, int n, bool sure);

/* Is the expert in the cache, or asked for and on its way? What was only read ahead is not. */
bool cache_has_expert(const struct cache *c, int layer, int expert);

/* A read that has ended. */
struct cache_read {
    int layer, expert, tag; /* tag: as set when it was submitted */
    const struct io_file *file;
    uint64_t offset, bytes;
    double submit_s, done_s; /* monotonic clock; done: when the reader knew */
    bool spec;               /* submitted before a pass asked for it */
    bool failed;
};
/* Tell fn about every read from now on; NULL: nobody. Reads that are open now are left out. */
typedef void cache_read_fn(void *user, const struct cache_read *r);
void cache_watch_reads(struct cache *c, cache_read_fn *fn, void *user);
void cache_set_tag(struct cache *c, int tag);

/* Between passes: from now on the cache has this many bytes, rounded down to slots and cut to what
 * it was made for (cfg.most). What goes is what the policy values least, and its memory is given
 * back at once; what comes is touched in the background. Where the system gives no more memory the
 * cache stays smaller: *now (may be NULL) is what it has. 0: no slots but transit. SL_E_BUDGET
 * below the smallest legal size, and nothing has changed then. */
int cache_set_budget(struct cache *c, uint64_t bytes, uint64_t *now, struct sl_err *err);

/* Tokens that used each expert of a layer, since the cache was made; saturating. NULL for layers
 * without routed experts. */
const uint32_t *cache_get_uses(const struct cache *c, int layer);
/* Experts that are likely to be used, by falling share of tokens, before the first pass: as many as
 * fit are read; the policy hears of all. Names that are no expert's are passed over. What cannot be
 * read stays away: whoever needs it will hear of it. The number read. */
struct cache_hint {
    int32_t layer, expert;
    float share;
};
int cache_preload(struct cache *c, const struct cache_hint *hint, size_t n);

struct cache_stats {
    uint64_t hits, misses, evictions,
        rereads; /* per expert asked for; reread: a miss on what was once resident */
    uint64_t bytes_read, reads;
    uint64_t spec_useful_bytes, spec_wasted_bytes;
    uint64_t expected_reads; /* experts whose reads cache_expect began */
    double stall_s;          /* nothing was ready: waiting for reads, and handing them over */
    double mgmt_s;           /* time inside the cache's calls, without the stall */
    uint64_t resident_bytes; /* slots that hold an expert */
};
void cache_get_stats(const struct cache *c, struct cache_stats *out);

#endif
