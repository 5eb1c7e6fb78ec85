/* sluice.h: run Mixture-of-Experts language models that are larger than memory.
 *
 * The only public header. Three nouns:
 *   struct sl_engine    a model, opened: weights, expert cache, threads, vocabulary
 *   struct sl_session   one timeline of tokens over an engine: KV cache, logits, counters
 *   struct sl_sampler   how the next token is drawn from logits
 *
 * Conventions
 *   Errors      Functions that can fail return 0 (SL_OK) or a negative enum sl_code and fill *err
 *               when err is not NULL. Nothing is printed, nothing exits, errno is not used.
 *   Ownership   What a function hands out through a pointer-to-pointer belongs to the caller, who
 *               gives it back with the matching close/free; these take NULL, and a pointer to NULL.
 *   Threads     An engine may be shared by threads for the functions marked "any thread". All
 *               others, and everything on a session, want one caller at a time per engine.
 *   Units       Sizes are bytes unless the name says otherwise; times are seconds; positions
 *               count from 0.
 *   Arithmetic  Every public call computes with the default floating-point environment (round to
 *               nearest, subnormals kept) and restores the caller's before it returns.
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_VERSION "0.1.0"

/* ---- Errors --------------------------------------------------------------------------------- */

enum sl_code {
    SL_OK = 0,
    SL_E_ARG = -1,         /* an option or argument is impossible or contradictory */
    SL_E_MEM = -2,         /* the system gave no memory */
    SL_E_IO = -3,          /* a file or drive failed: missing, unreadable, short, changed */
    SL_E_FORMAT = -4,      /* a file's bytes are not what its format says */
    SL_E_UNSUPPORTED = -5, /* well-formed, but not something this version runs */
    SL_E_BUDGET = -6,      /* it does not fit into the memory that is allowed */
    SL_E_CONTEXT = -7,     /* more tokens than the context holds */
    SL_E_NUMERIC = -8,     /* a non-finite value turned up; names layer and operation */
    SL_E_CANCELLED = -9,   /* sl_session_cancel was called */
    SL_E_SYSTEM = -10,     /* another system call failed */
    SL_E_INTERNAL = -11    /* a bug in the library */
};

/* What went wrong. where: the file, option, tensor or layer; msg: one line without a newline that
 * says what, where and what to do. Both are always terminated. */
struct sl_err {
    int code;
    char where[128];
    char msg[640];
};

/* The enumerator's name, "SL_E_IO"; "?" for a code that does not exist. Any thread. */
const char *sl_code_name(int code);

/* ---- Engine --------------------------------------------------------------------------------- */

enum sl_dense_mode {
    SL_DENSE_ANON = 0, /* read by direct I/O into our own memory */
    SL_DENSE_MMAP = 1, /* mapped; the page cache decides */
    SL_DENSE_WARM = 2  /* mapped and read once at load */
};

/* How keys or values are kept; SL_KV_Q8_0 takes 8.5 bits per value and head sizes that are
 * multiples of 32. */
enum sl_kv_type { SL_KV_F32 = 0, SL_KV_F16 = 1, SL_KV_Q8_0 = 2 };

/* SL_IO_URING becomes SL_IO_THREADS where io_uring cannot be had; SL_IO_AUTO is the best of all. */
enum sl_io_engine { SL_IO_AUTO = 0, SL_IO_THREADS = 1, SL_IO_PLAIN = 2, SL_IO_URING = 3 };

/* Highest CPU level to use; a level that the CPU lacks falls to the best one below. */
enum sl_cpu_level {
    SL_CPU_AUTO = 0,
    SL_CPU_SCALAR,
    SL_CPU_AVX2,
    SL_CPU_AVXVNNI,
    SL_CPU_AVX512,
    SL_CPU_AVX512VNNI,
    SL_CPU_AMX,
    SL_CPU_NEON,
    SL_CPU_DOTPROD,
    SL_CPU_I8MM
};

enum sl_stream_mode {
    SL_STREAM_AUTO = 0, /* on when the model does not fit into the memory that is allowed */
    SL_STREAM_ON = 1,   /* routed experts stay on the drive, read into the cache when asked for */
    SL_STREAM_OFF = 2   /* everything is loaded as dense_mode says; refused if it does not fit */
};

/* Experts from a tree that `sluice pack` made instead of the model file's own. */
enum sl_packed {
    SL_PACKED_NONE = 0,
    SL_PACKED_LOSSLESS = 1, /* the model's bytes, laid out for one read per expert */
    SL_PACKED_4BIT = 2,     /* requantised, lossy: Q4_K */
    SL_PACKED_Q3 = 3,       /* Q3_K */
    SL_PACKED_2BIT = 4      /* Q2_K */
};

#define SL_CACHE_AUTO  (-1) /* cache_mb: as much as the machine can spare */
#define SL_CACHE_UNSET (-2) /* cache_slots: cache_mb decides */

/* The expert cache has got another size. */
enum sl_cache_why {
    SL_CACHE_ASKED = 0, /* sl_engine_set_cache_budget */
    SL_CACHE_SHORT,     /* less memory was available than is to be left free */
    SL_CACHE_PRESSURE,  /* tasks waited for memory (PSI) */
    SL_CACHE_OVER       /* and neither any more */
};
struct sl_cache_change {
    uint64_t from_bytes, to_bytes;
    uint64_t available_bytes; /* at that moment, on the machine or in the cgroup; 0 for ASKED */
    enum sl_cache_why why;
};

struct sl_engine_options {
    int threads;           /* compute threads; 0: usable CPUs, at most 8 */
    bool pin;              /* bind each to a CPU of its own; the caller's is bound in evaluations */
    enum sl_cpu_level cpu; /* upper bound of the kernels' level */
    enum sl_stream_mode stream;
    enum sl_dense_mode dense_mode;
    uint64_t ram;            /* bound on the whole process, bytes; 0: none */
    int64_t cache_mb;        /* MiB of expert cache, 0: none, SL_CACHE_AUTO */
    int64_t cache_entries;   /* experts of mean size instead of cache_mb; 0: cache_mb decides */
    int64_t cache_slots;     /* slots per class instead of cache_mb (tests); SL_CACHE_UNSET */
    uint64_t cache_floor_mb; /* auto leaves this much of the machine's memory free, MiB; of a
                                cgroup's a sixteenth, at most this */
    uint64_t cache_ceil_mb;  /* auto takes at most this, MiB; 0: no bound */
    enum sl_io_engine io_engine;
    int io_threads; /* reads in flight on each drive, 1..64 */
    int io_split;   /* page-aligned chunks per expert read, 1..64 */
    bool direct;    /* try O_DIRECT */
    bool overlap;   /* compute hits while misses are read */
    bool load_all;  /* read every expert of every layer, whatever is routed (a baseline) */
    bool two_wave;  /* read gate and up of a layer's experts before down (experimental) */
    int n_ctx;      /* tokens of context; 0: min(model's, 4096, what fits) */
    int ubatch;     /* tokens per prompt chunk; 0: the widest that is cheap */
    enum sl_kv_type k_type, v_type;
    /* Return from sl_engine_open before the weights are in memory, and load them while the first
     * tokens are evaluated, which wait for each block when they come to it (dense_mode
     * SL_DENSE_ANON). What goes wrong in reading is then told by every evaluation that needs what
     * did not come. */
    bool load_behind;
    /* Called with progress while weights load (done of total bytes), by the thread that opens, or
     * with load_behind by the one that evaluates; may be NULL. */
    void (*on_load)(void *user, uint64_t done, uint64_t total);
    /* Called with one line about a fallback (buffered reads, another engine); may be NULL. */
    void (*on_note)(void *user, const char *line);
    void *user;
    /* Follow the expert choices of a recorded routing ("route_trace v1") instead of the router's:
     * prompt tokens by position, decoded ones in order and then from the start again. Experts per
     * token are the recording's; weights are the model's own softmax at these ids, renormalised.
     * For measurements: the text means nothing. NULL: none. */
    const char *route_replay;
    /* Which expert gives up its slot: "echo", "lfu-decay", "lru" (docs/cache-policy.md); NULL: the
     * first. */
    const char *cache_policy;
    /* Between tokens, give cache memory back while the system runs short of it (available memory
     * below cache_floor_mb, or PSI), and take it again afterwards. */
    bool cache_adapt;
    /* Called between tokens when the cache's size has changed; may be NULL. */
    void (*on_cache_change)(void *user, const struct sl_cache_change *change);
    /* Where /proc and cgroup files are looked for, in front of their paths; NULL: the real ones.
     * The string must outlive the engine. For tests. */
    const char *sys_root;
    /* Lossy: they change the text, and plan.marks says so. The first and the last give the same
     * text every time; what drops or substitutes depends on what the cache holds. */
    int n_expert_used; /* experts per token, of at most 128; 0: the model's */
    /* Leave out experts that are not in the cache and whose renormalised weight is below this / k,
     * never a token's highest; the others are renormalised. 0 (off) to 1; in decode only. */
    double drop_cold;
    bool drop_no_renorm;  /* the others' weights stay as they were */
    bool drop_in_prefill; /* in prompts too */
    /* In decode, experts in the cache are chosen as if their scores were higher by this times the
     * token's score range, and weighted by what the router said; 0 (off) to 1. */
    double substitute;
    /* Decoding one token, route a layer by its norm and router on the residual that enters the FFN
     * this many layers before, so that its reads start as early; 0: off. */
    int route_ahead;
    /* Reads on a guess, in decode, while the drive has nothing else to do; the bytes stay the same.
     * They want a cache, overlap and a reader that works beside computing. */
    int prefetch;           /* what the previous token used, this many layers ahead; 0: off */
    bool predict_prefetch;  /* what the next layer's router says of this layer's input */
    int predict_spec_max;   /* of that, at most this many experts of a layer; 0: as a token uses */
    bool predict_log;       /* score guesses of the routing: sl_session_predictions */
    enum sl_packed packed;  /* all but SL_PACKED_LOSSLESS are lossy, and plan.marks says so */
    const char *packed_dir; /* of the manifest; NULL: the directory of the model file */
    /* Read embedding rows when a token wants them instead of holding the table (dense_mode
     * SL_DENSE_ANON); the bytes stay the same. */
    bool row_stream;
};

/* Fill with the defaults of `sluice run`, but for load_behind: false. Any thread. */
void sl_engine_options_init(struct sl_engine_options *opt);
/* SL_E_ARG when an option is out of range or contradicts another; what sl_engine_open checks first.
 * Any thread. */
int sl_engine_options_check(const struct sl_engine_options *opt, struct sl_err *err);

/* What a model file holds. Strings live as long as the engine. */
struct sl_model_info {
    const char *arch, *name;
    int n_layer, n_embd, n_head, n_head_kv, n_vocab, n_ctx_train;
    int n_expert, n_expert_used; /* 0 for dense models */
    int n_expert_run;            /* experts per token in this engine: options may change it */
    int n_layer_routed;          /* layers with routed experts */
    uint64_t file_bytes, dense_bytes, expert_bytes;
    uint64_t token_expert_bytes; /* bytes of the experts that one token routes to, all layers */
    bool has_vocab;
    size_t token_text_bytes; /* the most bytes of text that one token can stand for; 0: no
                                vocabulary */
};

/* Where the memory goes and how the engine runs; bytes. */
struct sl_engine_plan {
    bool streamed;
    bool direct;           /* expert reads really are direct */
    const char *io_engine; /* "uring", "threads", "plain" */
    const char *cpu_level; /* "avx2" */
    int n_drives;          /* that routed experts lie on, at least 1 */
    int threads, n_ctx, ubatch;
    bool pinned;      /* each thread to a CPU of its own */
    bool load_behind; /* weights come while the first tokens are evaluated */
    enum sl_dense_mode dense_mode;
    uint64_t dense_bytes, kv_bytes, compute_bytes, cache_bytes, transit_bytes, base_bytes;
    uint64_t total_bytes, limit_bytes; /* limit 0: none was given */
    uint64_t cache_min_bytes;          /* smallest legal cache; 0 where nothing is streamed */
    uint64_t cache_max_bytes;          /* a cache that holds every expert; likewise */
    bool cache_auto;
    const char *direct_note;      /* why not direct; "" when direct */
    bool load_all;                /* every expert of a layer is read */
    bool row_stream;              /* the embedding table is not in memory */
    bool replay;                  /* a recorded routing is followed */
    double drop_cold, substitute; /* lossy options as they were given */
    bool drop_in_prefill;
    int route_ahead;
    bool guesses; /* experts are read on a guess: prefetch, predict_prefetch */
    bool predict_log;
    enum sl_packed packed;
    char marks[384]; /* what makes this run another than the model's own, to be printed with
                        every result; "": nothing */
};

struct sl_engine;
struct sl_session;

/* Open a GGUF file (or the first shard of a split set), plan the memory and load the dense weights.
 * What does not fit is refused before loading, with the numbers (SL_E_BUDGET).
 * path: UTF-8, as open(2) takes it. opt: copied. On failure *out is NULL. */
int sl_engine_open(const char *path, const struct sl_engine_options *opt, struct sl_engine **out,
                   struct sl_err *err);

/* Close and free; every session must have been closed. Sets *e to NULL. */
void sl_engine_close(struct sl_engine **e);

/* What sl_engine_open would do, without loading anything: the model's facts and the memory plan.
 * *plan is filled as far as it was made also when this returns SL_E_BUDGET; whether reads will be
 * direct is known, which engine makes them is not ("none"). info->name is NULL and
 * plan->direct_note is empty: they would need the engine. */
int sl_plan(const char *path, const struct sl_engine_options *opt, struct sl_model_info *info,
            struct sl_engine_plan *plan, struct sl_err *err);

void sl_engine_info(const struct sl_engine *e, struct sl_model_info *out);      /* any thread */
void sl_engine_get_plan(const struct sl_engine *e, struct sl_engine_plan *out); /* any thread */

/* Give the expert cache another size, rounded down to whole experts and cut to cache_max_bytes; 0:
 * nothing stays. Between evaluations. What goes is what is least worth keeping, and its memory goes
 * back to the system; results stay the same to the byte. The plan then says what the cache has.
 * SL_E_BUDGET where it does not fit or is below cache_min_bytes: then nothing has changed. SL_E_ARG
 * where experts are not streamed. */
int sl_engine_set_cache_budget(struct sl_engine *e, uint64_t bytes, struct sl_err *err);

/* Fill the expert cache, before the first evaluation, with the experts that earlier runs of this
 * model used most: text is what sl_engine_get_hot_experts gave (n 0: nothing), name is for
 * messages. As many as fit are read, and the cache's policy starts from what the list says.
 * *n_read: experts that were read. SL_E_FORMAT when the text is damaged or another model's. Without
 * a cache nothing happens. */
int sl_engine_set_hot_experts(struct sl_engine *e, const char *text, size_t n, const char *name,
                              int *n_read, struct sl_err *err);
/* Which experts were used how often since the engine was opened, and in the runs before, whose
 * counts are halved: *text is n bytes, free with sl_free; NULL without a cache. */
int sl_engine_get_hot_experts(const struct sl_engine *e, char **text, size_t *n,
                              struct sl_err *err);

/* The part of the dense weights that is in memory now, 0 to 1, probed at some hundred pages; NaN
 * where the system does not say. */
double sl_engine_dense_resident(const struct sl_engine *e);

/* ---- Text ----------------------------------------------------------------------------------- */

enum sl_tok_flags {
    SL_TOK_ADD_SPECIAL = 1,  /* BOS/EOS as the vocabulary says */
    SL_TOK_PARSE_CONTROL = 2 /* control tokens in the text become their ids: trusted text only */
};

/* Text to ids. text: n_bytes of UTF-8 (invalid bytes are kept as bytes). *ids: allocated, *n_ids
 * long; free with sl_free. SL_E_UNSUPPORTED when the model has no vocabulary. Any thread. */
int sl_tokenize(const struct sl_engine *e, const char *text, size_t n_bytes, unsigned flags,
                int32_t **ids, size_t *n_ids, struct sl_err *err);

/* Streaming ids to text: bytes that end inside a UTF-8 character are held back until it is whole.
 */
struct sl_detok;
int sl_detok_open(const struct sl_engine *e, struct sl_detok **out, struct sl_err *err);
/* Feed one id; *text points at *n bytes that stay valid until the next call. */
int sl_detok_feed(struct sl_detok *d, int32_t id, const char **text, size_t *n, struct sl_err *err);
/* What is still held back (an incomplete character), as it is. */
void sl_detok_flush(struct sl_detok *d, const char **text, size_t *n);
void sl_detok_close(struct sl_detok **d);

/* One user turn in the model's own chat form, ready for the answer to follow; *text is n bytes,
 * free with sl_free; tokenise it with sl_chat_tokenize's ids instead where possible. Only ChatML
 * templates are known; others give SL_E_UNSUPPORTED. *ids: the turn's ids, the user's text never
 * becoming a control token. */
int sl_chat_tokenize(const struct sl_engine *e, const char *user, size_t n_bytes, int32_t **ids,
                     size_t *n_ids, struct sl_err *err);

/* True for ids that end a generation (EOS, end of turn). Any thread. */
bool sl_is_eog(const struct sl_engine *e, int32_t id);

void sl_free(void *p);

/* ---- Sampling ------------------------------------------------------------------------------- */

struct sl_sampling {
    float temp;           /* 0: greedy */
    int top_k;            /* 0: all */
    float top_p;          /* 1: all */
    float min_p;          /* 0: all */
    float repeat_penalty; /* 1: none; over the last 64 tokens */
    uint64_t seed;
};
void sl_sampling_init(struct sl_sampling *s); /* greedy */

struct sl_sampler;
int sl_sampler_open(const struct sl_engine *e, const struct sl_sampling *s, struct sl_sampler **out,
                    struct sl_err *err);
/* Tell the sampler about a token that is now part of the text (prompt or drawn). */
void sl_sampler_accept(struct sl_sampler *s, int32_t id);
/* Draw from n_vocab logits, which are not changed. SL_E_NUMERIC when one is not finite. */
int sl_sampler_draw(struct sl_sampler *s, const float *logits, int32_t *id, struct sl_err *err);
void sl_sampler_close(struct sl_sampler **s);

/* ---- Scoring a given text ------------------------------------------------------------------- */

struct sl_scores {
    uint64_t tokens; /* scored */
    uint64_t hits;   /* of them the model's first choice (equal logits: the lowest id) */
    double nll;      /* mean of -log p of the tokens, nats; 0 when none was scored */
    double ppl;      /* perplexity: exp(nll) */
};

struct sl_scorer;
int sl_scorer_open(const struct sl_engine *e, struct sl_scorer **out, struct sl_err *err);
/* The text goes on with id after these n_vocab logits. SL_E_NUMERIC when one is not finite. */
int sl_scorer_add(struct sl_scorer *s, const float *logits, int32_t id, struct sl_err *err);
void sl_scorer_get(const struct sl_scorer *s, struct sl_scores *out);
void sl_scorer_close(struct sl_scorer **s);

/* ---- Session -------------------------------------------------------------------------------- */

/* Optional observers; called on the caller's thread, in rising position. */
struct sl_observer {
    /* Logits after a position: n_vocab floats, valid during the call. NULL: only the last
     * position's logits are computed. */
    void (*on_logits)(void *user, int pos, const float *logits);
    /* Experts used in a block for a position: k ids, ascending; fewer than the model's where some
     * were dropped. Blocks rise within one batch, so
     * calls are not sorted by position when a batch is wider than one. */
    void (*on_experts)(void *user, int pos, int block, const int32_t *ids, int k);
    void *user;
};

int sl_session_open(struct sl_engine *e, struct sl_session **out, struct sl_err *err);
void sl_session_close(struct sl_session **s);
void sl_session_observe(struct sl_session *s, const struct sl_observer *obs); /* NULL: none */

/* ---- Watching: what happens inside an evaluation, for traces and timings ---- */

/* Parts of a block, in the order in which a token meets them. */
enum sl_op {
    SL_OP_EMBED,     /* embedding rows, RoPE tables; block -1 */
    SL_OP_ATTN_NORM, /* norm before attention */
    SL_OP_QKV,       /* query, key, value projections */
    SL_OP_ROPE,      /* norms of heads, rotation */
    SL_OP_ATTENTION, /* keys and values stored, attention */
    SL_OP_ATTN_OUT,  /* output projection, residual */
    SL_OP_FFN_NORM,  /* norm before experts or dense FFN */
    SL_OP_FFN,       /* dense FFN */
    SL_OP_ROUTER,    /* scores, choice, sorting by expert */
    SL_OP_CACHE,     /* calls into the expert cache, without waiting */
    SL_OP_STALL,     /* waiting for reads */
    SL_OP_EXPERTS,   /* products of routed experts */
    SL_OP_COMBINE,   /* weighted sum, residual */
    SL_OP_HEAD,      /* last norm, output head; block n_layer */
    SL_OP_COUNT
};
const char *sl_op_name(enum sl_op op); /* "attn_norm"; any thread */

/* The tokens of one chunk of a prompt, or the one that is decoded. */
struct sl_batch {
    int pos, n_tok; /* position of the first; how many */
    bool prompt;
};
/* A stretch of time in one part; a batch's stretches follow each other without gaps. An operation
 * that is left and entered again (experts between waits) gives several. */
struct sl_op_event {
    struct sl_batch batch;
    int block;
    enum sl_op op;
    double start_s, wall_s; /* start on the system's monotonic clock */
};
/* What the router chose for one token. */
struct sl_route_event {
    struct sl_batch batch;
    int pos, block, k;
    const int32_t *ids;    /* k of them, the first choice first */
    const float *weights;  /* likewise, as they multiply the experts */
    const bool *resident;  /* in the cache (or in memory) when the router was done */
    uint64_t expert_bytes; /* of one expert of this block */
};
/* The weights that a block's batch went through. Block n_layer is the output head. */
struct sl_block_event {
    struct sl_batch batch;
    int block, n;         /* n distinct experts; 0 in blocks without */
    const int32_t *ids;   /* ascending */
    const bool *resident; /* likewise, when the batch came to the block */
    uint64_t dense_bytes, expert_bytes, hit_bytes, missed_bytes; /* expert_bytes: of one expert */
};
/* A read of expert weights that has ended. */
struct sl_read_event {
    int pos, block, expert; /* pos: of the batch during which it was submitted, its first */
    const char *file;
    uint64_t offset, bytes;
    double submit_s, done_s; /* monotonic clock; done: when the reader knew */
    bool speculative;        /* submitted before anybody asked for the expert */
    bool failed;
};

/* Called on the caller's thread during an eval; what pointers point at is valid during the call.
 * Any may be NULL. */
struct sl_watch {
    void (*on_op)(void *user, const struct sl_op_event *e);
    void (*on_route)(void *user, const struct sl_route_event *e);
    void (*on_block)(void *user, const struct sl_block_event *e);
    void (*on_read)(void *user, const struct sl_read_event *e);
    void *user;
};
/* NULL: no longer. Reads that are on their way when a watch begins are not told. */
int sl_session_watch(struct sl_session *s, const struct sl_watch *w, struct sl_err *err);
/* Weights that every token goes through in a block (n_layer: the head), and those of one of its
 * experts. Any thread. */
void sl_block_bytes(const struct sl_engine *e, int block, uint64_t *dense, uint64_t *expert);

/* Append n tokens and compute them, in chunks of the engine's ubatch when n > 1. SL_E_CONTEXT when
 * they don't fit (nothing is computed then). After a failure the session holds the tokens of the
 * chunks that were finished. phase tells the counters what this is. With options.pin the calling
 * thread is bound to one CPU meanwhile, callbacks included, and afterwards may use again what it
 * might before. */
enum sl_phase { SL_PROMPT = 0, SL_DECODE = 1 };
int sl_session_eval(struct sl_session *s, const int32_t *ids, size_t n, enum sl_phase phase,
                    struct sl_err *err);

/* Logits after the last token: n_vocab floats, valid until the next eval; NULL before the first. */
const float *sl_session_logits(const struct sl_session *s);
int sl_session_length(const struct sl_session *s);
/* Forget the tokens from position n_keep on. */
void sl_session_truncate(struct sl_session *s, int n_keep);
/* Ask the running eval to stop at the next layer; async-signal-safe, any thread. The flag is
 * cleared when an eval returns SL_E_CANCELLED. */
void sl_session_cancel(struct sl_session *s);
/* Forget a cancellation that came too late for the eval that it was meant for. */
void sl_session_forget_cancel(struct sl_session *s);

/* Counters of one phase since the session was opened. Times are wall seconds of the calling thread.
 */
struct sl_phase_stats {
    uint64_t tokens;
    double wall_s, compute_s, mgmt_s, stall_s; /* other = wall - compute - mgmt - stall */
    double read_busy_s;                        /* at least one read open */
    double cpu_s;                              /* CPU time of the process's threads */
    uint64_t majflt;
    uint64_t bytes_read, reads;
    uint64_t hits, misses, evictions, rereads;
    uint64_t spec_useful_bytes, spec_wasted_bytes;
    double load_wait_s;            /* of stall_s: for weights that were still being loaded */
    uint64_t rows_read, row_bytes; /* embedding rows, with row_stream; their time is in stall_s */
    uint64_t expected_reads; /* experts read before they were asked for: by a guess, or surely */
    /* Choices of an expert for a token in a layer; of these: taken from the recorded routing, left
     * out (drop_cold), owed to the cache (substitute), made layers early (route_ahead). */
    uint64_t experts_routed, experts_replayed, experts_dropped, experts_substituted, experts_ahead;
};
struct sl_stats {
    struct sl_phase_stats prompt, decode;
    uint64_t cache_resident_bytes;
    int cache_changes;          /* of its size since the engine was opened */
    uint64_t cache_least_bytes; /* its smallest size in that time; 0: it did not change */
    uint64_t mem_now, mem_peak; /* bytes that went through the engine's allocator */
    uint64_t replay_rounds;     /* how often the recorded routing's decoded tokens were used up */
};
void sl_session_stats(const struct sl_session *s, struct sl_stats *out);

/* With predict_log: of the experts that a block used in decode (asked), how many each guess had
 * named (hit): the block's own norm and router on the residual that enters the FFN of the block
 * before; what the previous token used; and, as a control that finds everything where experts are
 * chosen by plain ranking, the first without its staleness. asked is 0 where there was no guess. */
struct sl_prediction {
    uint64_t router_asked, router_hit;
    uint64_t previous_asked, previous_hit;
    uint64_t control_asked, control_hit;
};
/* rows: n_layer of them. False: predict_log is off. */
bool sl_session_predictions(const struct sl_session *s, struct sl_prediction *rows);

#ifdef __cplusplus
}
#endif
#endif
