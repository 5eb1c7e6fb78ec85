/* Opening and closing an engine. */
#include "engine/engine.h"

#include <string.h>

#include "base/err.h"
#include "base/fpenv.h"
#include "base/mem.h"
#include "base/sys.h"
#include "cache/policy.h"
#include "engine/options.h"
#include "engine/routing.h"
#include "io/drives.h"
#include "model/arch/arch.h"
#include "model/packed.h"

static enum kern_level level_of(enum sl_cpu_level level)
{
    switch (level) {
    case SL_CPU_SCALAR:
        return KL_SCALAR;
    case SL_CPU_AVX2:
        return KL_AVX2;
    case SL_CPU_AVXVNNI:
        return KL_AVXVNNI;
    case SL_CPU_AVX512:
        return KL_AVX512;
    case SL_CPU_AVX512VNNI:
        return KL_AVX512VNNI;
    case SL_CPU_AMX:
        return KL_AMX;
    case SL_CPU_NEON:
        return KL_NEON;
    case SL_CPU_DOTPROD:
        return KL_DOTPROD;
    case SL_CPU_I8MM:
        return KL_I8MM;
    case SL_CPU_AUTO:
        break;
    }
    return KL_COUNT;
}

/* tell: where it is not the one that was asked for. */
static int create_reader(struct sl_engine *e, bool tell, struct io_reader **out, struct sl_err *err)
{
    static const char *const names[] = {"auto", "threads", "plain", "uring"};
    const char *note = "";
    const struct engine_reader *s = e->source;
    int n = e->opt.io_threads;
    int rc = s ? s->create(s->user, n * e->n_drives, out, err)
               : io_reader_create(names[e->opt.io_engine], n, e->n_drives, out, &note, err);
    if (rc == 0 && *note && tell)
        engine_note(e, "%s", note);
    return rc;
}

/* The weights are needed before the cache: it waits for its turn. */
static void on_touched(void *user)
{
    struct sl_engine *e = user;
    if (e->cache)
        cache_touch(e->cache);
}

static int load(struct sl_engine *e, struct sl_err *err)
{
    struct load_options lo = {.mode = e->opt.dense_mode,
                              .experts = !e->plan.streamed,
                              .reader = e->reader,
                              .in_flight = e->opt.io_threads,
                              .on_load = e->opt.on_load,
                              .user = e->opt.user,
                              .on_touched = on_touched,
                              .touched_user = e};
    return model_load(e->model, &lo, err);
}

/* With a reader of its own, which ends with the last of the weights. The cache is touched from the
 * first evaluation on: the threads that touch memory hold up those that map some, as sessions do.
 */
static int load_behind(struct sl_engine *e, struct sl_err *err)
{
    struct load_options lo = {.mode = e->opt.dense_mode,
                              .experts = !e->plan.streamed,
                              .behind = true,
                              .in_flight = e->opt.io_threads,
                              .on_load = e->opt.on_load,
                              .user = e->opt.user};
    bool tell = !e->plan.streamed && e->opt.io_engine != SL_IO_AUTO;
    int rc = create_reader(e, tell, &lo.reader, err);
    if (rc == 0)
        rc = model_load(e->model, &lo, err);
    e->touch_cache = e->cache != NULL;
    return rc;
}

/* The pages of routed experts that are in the page cache already make direct reads the slower way.
 */
static void note_cached(const struct sl_engine *e)
{
    double sum = 0;
    int n = 0;
    for (int il = 0; il < e->model->cfg.n_layer; il++) {
        const struct cache_part *p = &e->cache_layers[il].part[0];
        if (e->cache_layers[il].n_parts == 0)
            continue;
        sum += io_file_cached(p->file, p->offset,
                              p->stride * (uint64_t)e->cache_layers[il].n_experts, 4);
        n++;
    }
    if (n && sum / n > 0.5 && e->plan.direct)
        engine_note(e,
                    "%.0f %% of the experts are in the page cache: buffered reads (--no-odirect) "
                    "may be faster",
                    100 * sum / n);
}

/* It serves the cache; before, where nothing is evaluated meanwhile, it loads the weights. */
static int open_reader(struct sl_engine *e, struct sl_err *err)
{
    bool tell = e->plan.streamed || e->opt.io_engine != SL_IO_AUTO;
    int rc = create_reader(e, tell, &e->reader, err);
    if (rc < 0)
        return rc;
    if (e->plan.streamed)
        e->plan.io_engine = e->reader->ops->name;
    return 0;
}

/* Before the weights are loaded: its memory is touched meanwhile. */
static int open_cache(struct sl_engine *e, struct sl_err *err)
{
    struct cache_config cfg;
    plan_cache_config(e, &cfg);
    cfg.touch_later = true;
    int rc = cache_create(&cfg, e->reader, &e->cache, err);
    if (rc < 0)
        return rc;
    e->cache_goal = e->plan.cache_bytes;
    note_cached(e);
    return 0;
}

/* Drives that hold routed experts, and all. */
static void count_drives(struct sl_engine *e)
{
    struct io_drives d = {0}, all = {0};
    for (int i = 0; i < e->model->n_files; i++)
        io_drives_find(&all, IO_DRIVES_MAX, e->model->files[i]);
    e->n_drives = all.n;
    for (int il = 0; il < e->model->cfg.n_layer; il++)
        for (int j = 0; j < e->cache_layers[il].n_parts; j++)
            io_drives_find(&d, IO_DRIVES_MAX, e->cache_layers[il].part[j].file);
    e->plan.n_drives = d.n > 1 ? d.n : 1;
}

/* Direct only where every shard is. */
static void find_direct(struct sl_engine *e)
{
    const struct model *m = e->model;
    e->plan.direct = e->opt.direct;
    e->plan.direct_note = e->opt.direct ? "" : "not asked for";
    for (int i = 0; i < m->n_files; i++) {
        if (io_file_direct(m->files[i]))
            continue;
        if (e->opt.direct && e->plan.direct)
            e->plan.direct_note = io_file_note(m->files[i]);
        e->plan.direct = false;
        io_file_drop_behind(m->files[i], e->opt.direct);
    }
    if (e->opt.direct && !e->plan.direct)
        engine_note(e, "reads are buffered: %s", e->plan.direct_note);
}

/* Where the output head is the same matrix it is needed whole. */
static void choose_rows(struct sl_engine *e)
{
    struct model *m = e->model;
    m->row_stream = e->opt.row_stream && m->head.tensor != m->embd.tensor;
    e->plan.row_stream = m->row_stream;
    if (e->opt.row_stream && !m->row_stream)
        engine_note(e, "the embeddings are the output head too, which every token needs whole: "
                       "--row-stream saves nothing");
}

/* A model that can draw tokens which have no text, or a text whose tokens it does not know. */
static int check_vocab(const struct sl_engine *e, const char *path, struct sl_err *err)
{
    int rows = e->model->cfg.n_vocab;
    if (!e->vocab || vocab_size(e->vocab) == rows)
        return 0;
    return err_file(err, SL_E_FORMAT, path, 0,
                    "the vocabulary has %d tokens, but token_embd.weight has %d rows",
                    vocab_size(e->vocab), rows);
}

/* The tree stands in the model's own directory where none is given. */
static int use_packed(struct sl_engine *e, const char *path, struct sl_err *err)
{
    enum sl_packed kind = e->opt.packed;
    if (kind == SL_PACKED_NONE)
        return 0;
    const char *slash = strrchr(path, '/'), *dir = e->opt.packed_dir;
    char *own = dir     ? NULL
                : slash ? mem_strndup(path, slash > path ? (size_t)(slash - path) : 1)
                        : mem_strdup(".");
    if (!dir && !own)
        return err_set(err, SL_E_MEM, "packed experts", "no memory");
    int rc = model_use_packed(e->model, dir ? dir : own, kind, e->opt.direct, err);
    mem_free(own);
    e->plan.packed = kind;
    if (kind != SL_PACKED_LOSSLESS)
        engine_mark(e, "lossy: experts requantised to %s", packed_kind_name(kind));
    return rc;
}

/* All but the weights: model bound, files open, memory planned. */
static int open_planned(struct sl_engine *e, const char *path, struct sl_err *err)
{
    int rc = gguf_open(path, &e->gguf, err);
    if (rc < 0 || (rc = model_bind(e->gguf, level_of(e->opt.cpu), &e->model, err)) < 0 ||
        (rc = kv_check(&e->model->cfg, options_kv_type(e->opt.k_type),
                       options_kv_type(e->opt.v_type), err)) < 0 ||
        (rc = vocab_open(e->gguf, &e->vocab, err)) < 0 || (rc = check_vocab(e, path, err)) < 0 ||
        (rc = model_open_files(e->model, e->opt.direct, err)) < 0)
        return rc;
    e->model_top_k = e->model->cfg.n_expert_used;
    if ((rc = use_packed(e, path, err)) < 0 || (rc = routing_open(e, err)) < 0)
        return rc;
    find_direct(e);
    choose_rows(e);
    e->plan.cpu_level = kernels_level_name(e->model->kernels.level);
    e->cache_layers = mem_calloc((size_t)e->model->cfg.n_layer, sizeof *e->cache_layers);
    if (!e->cache_layers)
        return err_set(err, SL_E_MEM, "engine", "no memory for the cache's layout");
    model_cache_layers(e->model, e->cache_layers);
    count_drives(e);
    if ((rc = plan_make(e, err)) < 0)
        return rc;
    return routing_check(e, err);
}

static int open_all(struct sl_engine *e, const char *path, struct sl_err *err)
{
    int rc = open_planned(e, path, err);
    if (rc < 0 || (rc = pool_create(e->plan.threads, &e->pool, err)) < 0 ||
        (rc = e->opt.pin ? pool_pin(e->pool, err) : 0) < 0)
        return rc;
    e->plan.load_all = e->opt.load_all && e->plan.streamed;
    bool behind = e->plan.load_behind;
    bool reads = e->plan.streamed || (e->plan.dense_mode == SL_DENSE_ANON && !behind);
    if (reads && (rc = open_reader(e, err)) < 0)
        return rc;
    if ((e->plan.streamed && (rc = open_cache(e, err)) < 0) ||
        (rc = behind ? load_behind(e, err) : load(e, err)) < 0)
        return rc;
    if (!e->plan.streamed)
        io_reader_destroy(&e->reader);
    return 0;
}

/* An engine with its options and nothing else. */
static int create(const struct sl_engine_options *opt, struct sl_engine **out, struct sl_err *err)
{
    int rc = sl_engine_options_check(opt, err);
    if (rc < 0)
        return rc;
    struct sl_engine *e = mem_calloc(1, sizeof *e);
    if (!e)
        return err_set(err, SL_E_MEM, "engine", "no memory for an engine");
    e->opt = *opt;
    e->opt.cache_policy = cache_find_policy(opt->cache_policy)->name;
    e->plan.io_engine = "none";
    e->plan.direct_note = "";
    int cpus = sys_usable_cpus(opt->sys_root ? opt->sys_root : "");
    e->plan.threads = opt->threads ? opt->threads : cpus < 8 ? cpus : 8;
    e->plan.pinned = opt->pin;
    *out = e;
    return 0;
}

int sl_plan(const char *path, const struct sl_engine_options *opt, struct sl_model_info *info,
            struct sl_engine_plan *plan, struct sl_err *err)
{
    struct sl_engine *e = NULL;
    int rc = create(opt, &e, err);
    if (rc < 0)
        return rc;
    uint64_t fp = fpenv_enter();
    rc = open_planned(e, path, err);
    if (rc == 0 || rc == SL_E_BUDGET) {
        sl_engine_info(e, info);
        sl_engine_get_plan(e, plan);
        info->name = NULL; /* these lived in what is closed now */
        plan->direct_note = "";
    }
    sl_engine_close(&e);
    fpenv_restore(fp);
    return rc;
}

int engine_open_with(const char *path, const struct sl_engine_options *opt,
                     const struct engine_reader *source, struct sl_engine **out, struct sl_err *err)
{
    *out = NULL;
    struct sl_engine *e = NULL;
    int rc = create(opt, &e, err);
    if (rc < 0)
        return rc;
    uint64_t fp = fpenv_enter();
    e->source = source;
    rc = open_all(e, path, err);
    e->source = NULL;
    if (rc < 0)
        sl_engine_close(&e);
    *out = e;
    fpenv_restore(fp);
    return rc;
}

int sl_engine_open(const char *path, const struct sl_engine_options *opt, struct sl_engine **out,
                   struct sl_err *err)
{
    return engine_open_with(path, opt, NULL, out, err);
}

void sl_engine_close(struct sl_engine **pe)
{
    struct sl_engine *e = pe ? *pe : NULL;
    if (!e)
        return;
    if (e->model)
        model_end_loading(e->model);
    cache_destroy(&e->cache);
    io_reader_destroy(&e->reader);
    pool_destroy(&e->pool);
    model_free(&e->model);
    vocab_close(&e->vocab);
    routing_close(e);
    mem_free(e->cache_layers);
    mem_free(e->hot);
    gguf_close(&e->gguf);
    mem_free(e);
    *pe = NULL;
}

void sl_engine_info(const struct sl_engine *e, struct sl_model_info *out)
{
    const struct model_config *c = &e->model->cfg;
    *out = (struct sl_model_info){.arch = c->arch->name,
                                  .name = c->name,
                                  .n_layer = c->n_layer,
                                  .n_embd = c->n_embd,
                                  .n_head = c->n_head,
                                  .n_head_kv = c->n_head_kv,
                                  .n_vocab = c->n_vocab,
                                  .n_ctx_train = c->n_ctx_train,
                                  .n_expert = c->n_expert,
                                  .n_expert_used = e->model_top_k,
                                  .n_expert_run = c->n_expert_used,
                                  .n_layer_routed = model_routed_layers(e->model),
                                  .file_bytes = gguf_file_bytes(e->gguf),
                                  .dense_bytes = model_dense_bytes(e->model),
                                  .expert_bytes = model_expert_bytes(e->model),
                                  .token_expert_bytes = model_token_expert_bytes(e->model),
                                  .has_vocab = e->vocab != NULL,
                                  .token_text_bytes = e->vocab ? vocab_bytes_most(e->vocab) : 0};
}

void sl_engine_get_plan(const struct sl_engine *e, struct sl_engine_plan *out)
{
    *out = e->plan;
}

double sl_engine_dense_resident(const struct sl_engine *e)
{
    return model_find_resident(e->model, 256);
}

void sl_block_bytes(const struct sl_engine *e, int block, uint64_t *dense, uint64_t *expert)
{
    bool known = block >= 0 && block <= e->model->cfg.n_layer;
    *dense = known ? model_block_bytes(e->model, block) : 0;
    *expert = known ? model_block_expert_bytes(e->model, block) : 0;
}

const char *sl_op_name(enum sl_op op)
{
    static const char *const names[SL_OP_COUNT] = {
        [SL_OP_EMBED] = "embed",
        [SL_OP_ATTN_NORM] = "attn_norm",
        [SL_OP_QKV] = "qkv",
        [SL_OP_ROPE] = "rope",
        [SL_OP_ATTENTION] = "attention",
        [SL_OP_ATTN_OUT] = "attn_out",
        [SL_OP_FFN_NORM] = "ffn_norm",
        [SL_OP_FFN] = "ffn",
        [SL_OP_ROUTER] = "router",
        [SL_OP_CACHE] = "cache",
        [SL_OP_STALL] = "stall",
        [SL_OP_EXPERTS] = "experts",
        [SL_OP_COMBINE] = "combine",
        [SL_OP_HEAD] = "head",
    };
    return op >= 0 && op < SL_OP_COUNT ? names[op] : "?";
}
