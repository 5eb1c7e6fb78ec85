/* Weights on their way into memory: whatever the drive does and in whatever order reads come back,
 * the bytes of the file or one clear error, and nothing left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "io/fake.h"
#include "model/spans.h"
#include "support/drives.h"
#include "support/fixtures.h"
#include "support/ggufsplit.h"
#include "support/ggufw.h"

#define BIG_ROWS   36001 /* of 64 floats: 9.2 MB, more than two pieces of a read */
#define BIG_BLOCKS 3
#define WIDTH      64

static struct fixture *set, *model;
static int n_set;
static char split[512]; /* first of three shards */
static char big[512];   /* a model with a matrix that is read in pieces */

static struct sl_engine_options options(bool streamed)
{
    struct sl_engine_options o;
    sl_engine_options_init(&o);
    o.threads = 2;
    o.n_ctx = 64;
    o.ubatch = 4;
    o.stream = streamed ? SL_STREAM_ON : SL_STREAM_OFF;
    o.cache_mb = streamed ? 0 : SL_CACHE_AUTO;
    o.cache_floor_mb = 0;
    o.io_threads = 3;
    return o;
}

/* Is a matrix what its file has there? Read with the C library, from what the directory says. */
static bool same_weight(const struct gguf *g, const struct weight *w)
{
    const struct gguf_tensor *t = w->tensor;
    if (!t)
        return true;
    FILE *f = fopen(gguf_shard_path(g, t->shard), "rb");
    uint8_t *want = malloc((size_t)t->bytes);
    bool same = f && want && fseek(f, (long)t->offset, SEEK_SET) == 0 &&
                fread(want, 1, (size_t)t->bytes, f) == t->bytes && w->data &&
                memcmp(want, w->data, (size_t)t->bytes) == 0;
    if (f)
        fclose(f);
    free(want);
    return same;
}

static void check_block(const struct model *m, int block)
{
    if (block == -1)
        assert_true(same_weight(m->gguf, &m->embd));
    if (block == m->cfg.n_layer)
        assert_true(same_weight(m->gguf, &m->head));
    if (block == -1 || block == m->cfg.n_layer)
        return;
    const struct layer *l = &m->layers[block];
    const struct weight *all[] = {&l->q,         &l->k,       &l->v,        &l->o,
                                  &l->gate,      &l->up,      &l->down,     &l->router,
                                  &l->gate_exps, &l->up_exps, &l->down_exps};
    for (int i = 0; i < (m->experts_resident ? 11 : 8); i++)
        assert_true(same_weight(m->gguf, all[i]));
}

static void check_weights(const struct model *m)
{
    for (int block = -1; block <= m->cfg.n_layer; block++)
        check_block(m, block);
}

static int make_fake(void *user, int in_flight, struct io_reader **out, struct sl_err *err)
{
    return io_fake_create(user, in_flight, out, err);
}

/* Progress never goes back, and ends at the whole. */
static struct progress {
    uint64_t done, total;
    int bad;
} progress;

static void on_load(void *user, uint64_t done, uint64_t total)
{
    struct progress *p = user;
    p->bad += done < p->done || done > total || (p->total != 0 && total != p->total);
    p->done = done;
    p->total = total;
}

static void load_whole(const char *path, const struct engine_reader *source, bool streamed)
{
    struct sl_engine *e;
    struct sl_err err;
    struct sl_engine_options o = options(streamed);
    uint64_t before = mem_now();
    memset(&progress, 0, sizeof progress);
    o.on_load = on_load;
    o.user = &progress;
    if (engine_open_with(path, &o, source, &e, &err) != 0)
        fail_msg("%s", err.msg);
    check_weights(e->model);
    assert_int_equal(progress.bad, 0);
    assert_true(progress.total > 0 && progress.done == progress.total);
    assert_true(mem_now() - before <= e->plan.total_bytes);
    assert_true((e->reader != NULL) == e->plan.streamed);
    sl_engine_close(&e);
    assert_int_equal(mem_now(), before);
}

static void test_any_order(void **state)
{
    (void)state;
    for (int order = 0; order < 3; order++) {
        struct io_fake_script script = {
            .delay_s = 20e-6, .order = order, .seed = 7, .fail_at = -1, .short_at = -1};
        const struct engine_reader source = {make_fake, &script};
        load_whole(model->path, &source, true);
        load_whole(model->path, &source, false);
        load_whole(big, &source, false);
        drives_pretend(2);
        load_whole(split, &source, false);
        drives_pretend(0);
    }
}

/* Every architecture, with every engine, one drive and several. */
static void test_any_engine(void **state)
{
    (void)state;
    static const enum sl_io_engine engines[] = {SL_IO_URING, SL_IO_THREADS, SL_IO_PLAIN};
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
        for (int direct = 0; direct < 2; direct++) {
            struct sl_engine *e;
            struct sl_err err;
            struct sl_engine_options o = options(false);
            o.io_engine = engines[i];
            o.direct = direct == 1;
            for (int k = 0; k < n_set + 3; k++) {
                drives_pretend(k == n_set + 1 ? 3 : 0);
                const char *path = k < n_set ? set[k].path : k < n_set + 2 ? split : big;
                if (sl_engine_open(path, &o, &e, &err) != 0)
                    fail_msg("%s", err.msg);
                check_weights(e->model);
                sl_engine_close(&e);
            }
            drives_pretend(0);
        }
}

/* Every matrix is read once, those that are needed first before the others. */
static void test_spans(void **state)
{
    (void)state;
    int n_tied = 0;
    for (int k = 0; k < n_set; k++) {
        struct sl_engine *e;
        struct sl_err err;
        struct sl_engine_options o = options(false);
        struct span_list list;
        if (sl_engine_open(set[k].path, &o, &e, &err) != 0)
            fail_msg("%s", err.msg);
        n_tied += e->model->head.tensor == e->model->embd.tensor;
        assert_int_equal(spans_list(e->model, true, &list, &err), 0);
        for (int i = 0; i < list.n; i++) {
            const struct span *s = &list.span[i];
            assert_true(i == 0 || s[-1].block < s->block ||
                        (s[-1].block == s->block && s[-1].offset < s->offset));
            for (int j = 0; j < i; j++)
                assert_int_not_equal(list.span[j].offset, s->offset);
            assert_true(s->data != &e->model->head.data || s->block == e->model->cfg.n_layer);
        }
        mem_free(list.span);
        sl_engine_close(&e);
    }
    assert_true(n_tied > 0 && n_tied < n_set);
}

/* ---- Behind: a block is whole when it was waited for ---- */

struct loaded {
    struct gguf *g;
    struct model *m;
    struct io_reader *reader;
};

static void open_model(const char *path, const struct io_fake_script *script, struct loaded *l)
{
    struct sl_err err;
    *l = (struct loaded){0};
    if (gguf_open(path, &l->g, &err) != 0 || model_bind(l->g, KL_COUNT, &l->m, &err) != 0 ||
        model_open_files(l->m, true, &err) != 0 || io_fake_create(script, 3, &l->reader, &err) != 0)
        fail_msg("%s", err.msg);
}

static int load_behind(const char *path, const struct io_fake_script *script, bool experts,
                       struct loaded *l, struct sl_err *err)
{
    open_model(path, script, l);
    struct load_options lo = {.mode = SL_DENSE_ANON,
                              .experts = experts,
                              .behind = true,
                              .reader = l->reader,
                              .in_flight = 3};
    l->reader = NULL;
    return model_load(l->m, &lo, err);
}

static void close_loaded(struct loaded *l)
{
    if (l->m)
        model_end_loading(l->m);
    io_reader_destroy(&l->reader);
    model_free(&l->m);
    gguf_close(&l->g);
}

/* Far blocks come in small pieces, one at a time, until somebody comes near. */
static void test_block_by_block(void **state)
{
    (void)state;
    const char *const paths[] = {model->path, split, big};
    uint64_t before = mem_now();
    for (int i = 0; i < 3 * 3 * 2; i++) {
        struct io_fake_script script = {
            .order = i % 3, .seed = (uint64_t)i, .fail_at = -1, .short_at = -1};
        struct loaded l;
        struct sl_err err;
        drives_pretend(i % 2 ? 2 : 0);
        if (load_behind(paths[i / 6], &script, i % 2 == 0, &l, &err) != 0)
            fail_msg("%s", err.msg);
        for (int block = -1; block <= l.m->cfg.n_layer; block++) {
            assert_int_equal(model_wait_block(l.m, block, NULL, &err), 0);
            assert_true(model_has_block(l.m, block));
            check_block(l.m, block);
        }
        close_loaded(&l);
        drives_pretend(0);
        assert_int_equal(mem_now(), before);
    }
}

/* Of a thread that loads: it waits before its first read comes back. */
static struct hold {
    bool on;
    pthread_t others;
    int n_reaped;
    sem_t go;
} hold;

struct io_req *__wrap_io_reader_reap(struct io_reader *r, bool wait);
struct io_req *__real_io_reader_reap(struct io_reader *r, bool wait);

struct io_req *__wrap_io_reader_reap(struct io_reader *r, bool wait)
{
    bool held = hold.on && !pthread_equal(pthread_self(), hold.others);
    if (held && hold.n_reaped++ == 0)
        while (sem_wait(&hold.go) != 0)
            ;
    return __real_io_reader_reap(r, wait);
}

/* Beside an evaluation that reads experts, what is far leaves the drive to them: until somebody
 * asks for it, even if he goes away again. */
static void test_far_blocks(void **state)
{
    (void)state;
    int n_reads[2];
    for (int asked = 0; asked < 2; asked++) {
        struct io_fake_script script = {.fail_at = -1, .short_at = -1};
        struct loaded l;
        struct sl_err err;
        const _Atomic int cancel = 1;
        hold = (struct hold){.on = true, .others = pthread_self()};
        sem_init(&hold.go, 0, 0);
        assert_int_equal(load_behind(big, &script, false, &l, &err), 0);
        int head = l.m->cfg.n_layer;
        if (asked)
            assert_int_equal(model_wait_block(l.m, head, &cancel, &err), SL_E_CANCELLED);
        sem_post(&hold.go);
        while (!model_has_block(l.m, head))
            clock_sleep(0.001);
        close_loaded(&l);
        sem_destroy(&hold.go);
        n_reads[asked] = hold.n_reaped;
        hold.on = false;
    }
    assert_int_equal(n_reads[1], 2 * 3 + BIG_BLOCKS * 7); /* big ones in three */
    assert_int_equal(n_reads[0], n_reads[1] - 3 + 9);     /* the head in nine */
}

/* Of several reads that fail the first is told, to all who ask. */
static void test_first_failure(void **state)
{
    (void)state;
    struct io_fake_script script = {.fail_at = -1, .short_at = -1};
    struct sl_err err[2], again;
    struct loaded l;
    assert_int_equal(load_behind(model->path, &script, false, &l, err), 0);
    script.first = l.m->n_vectors + 4; /* vectors are read before */
    close_loaded(&l);
    for (int i = 0; i < 2; i++) {
        script.fail_at = i == 0 ? 0 : -1;
        script.fail_every = i;
        assert_int_equal(load_behind(model->path, &script, false, &l, &err[i]), 0);
        assert_int_equal(model_wait_block(l.m, l.m->cfg.n_layer, NULL, &err[i]), SL_E_IO);
        assert_int_equal(model_wait_block(l.m, l.m->cfg.n_layer, NULL, &again), SL_E_IO);
        assert_string_equal(again.msg, err[i].msg);
        close_loaded(&l);
    }
    assert_string_equal(err[1].msg, err[0].msg);
}

/* A load that failed has no reads under way: they would go on into memory that is given back. */
static void test_nothing_stays_open(void **state)
{
    (void)state;
    for (int at = 0, rc = -1; rc != 0; at++) {
        struct io_fake_script script = {.fail_at = at, .short_at = -1};
        struct loaded l;
        struct sl_err err;
        open_model(model->path, &script, &l);
        struct load_options lo = {.mode = SL_DENSE_ANON, .reader = l.reader, .in_flight = 3};
        rc = model_load(l.m, &lo, &err);
        assert_int_equal(l.reader->open, 0);
        close_loaded(&l);
        assert_true(at < 10000);
    }
}

/* The n-th read fails or stops short, on one drive and on two. Returns the reads of a load. */
static int64_t break_each(const char *path, bool streamed, bool is_short)
{
    struct sl_engine *e = NULL;
    struct sl_err err;
    struct sl_engine_options o = options(streamed);
    o.direct = false; /* so many reads, of a drive that others may use */
    uint64_t before = mem_now();
    int64_t at = 0;
    for (int rc = -1; rc != 0; at++) {
        struct io_fake_script script = {.order = 2,
                                        .seed = (uint64_t)at,
                                        .fail_at = is_short ? -1 : at,
                                        .short_at = is_short ? at : -1};
        const struct engine_reader source = {make_fake, &script};
        rc = engine_open_with(path, &o, &source, &e, &err);
        assert_true(rc == 0 || rc == SL_E_IO);
        if (rc != 0) {
            assert_null(e);
            assert_int_equal(err.code, rc);
            assert_non_null(strstr(err.msg, "bytes at offset "));
            assert_non_null(strstr(err.msg, ".gguf"));
            assert_non_null(strstr(err.msg, is_short ? "the file ends after" : "Input/output"));
        }
        sl_engine_close(&e);
        assert_int_equal(mem_now(), before);
        assert_true(at < 10000);
    }
    return at - 1;
}

static void test_reads_fail(void **state)
{
    (void)state;
    for (int is_short = 0; is_short < 2; is_short++) {
        int64_t dense = break_each(model->path, true, is_short);
        int64_t all = break_each(model->path, false, is_short);
        assert_true(dense > 10 && all > dense);
        if (is_short)
            assert_true(break_each(big, false, true) > 3 * 7 + 2 * 2); /* big ones in three */
        drives_pretend(2);
        assert_int_equal(break_each(split, false, is_short), all);
        drives_pretend(0);
    }
}

/* The file loses its end when it has been opened and before it is loaded: by a real reader. */
static char shrinking[512];
static off_t shrunk; /* to so many bytes */

static int shrink(void *user, int in_flight, struct io_reader **out, struct sl_err *err)
{
    if (truncate(shrinking, shrunk) != 0)
        return SL_E_SYSTEM;
    return io_reader_create(user, in_flight, 1, out, NULL, err);
}

static void test_a_shrinking_file(void **state)
{
    (void)state;
    static const char *const engines[] = {"uring", "threads", "plain"};
    size_t n;
    void *bytes = fixture_read_file(model->path, &n);
    assert_non_null(bytes);
    assert_true(n > 40000);
    snprintf(shrinking, sizeof shrinking, "%s/shrinking.gguf", fixture_temp_dir());
    for (int i = 0; i < 12; i++) {
        struct sl_engine *e = NULL;
        struct sl_session *s = NULL;
        struct sl_err err;
        struct sl_engine_options o = options(i % 6 < 3);
        const struct engine_reader source = {shrink, (char *)engines[i % 3]};
        uint64_t before = mem_now();
        o.load_behind = i >= 6;
        shrunk = o.load_behind ? (off_t)n - 100 : 20000;
        ggufw_save_bytes(shrinking, bytes, n);
        int rc = engine_open_with(shrinking, &o, &source, &e, &err);
        assert_int_equal(rc, o.load_behind ? 0 : SL_E_IO);
        if (rc == 0) {
            assert_int_equal(sl_session_open(e, &s, &err), 0);
            for (int k = 0; k < 2; k++) {
                rc = sl_session_eval(s, model->tokens, 3, SL_PROMPT, &err);
                assert_int_equal(rc, SL_E_IO);
                assert_null(sl_session_logits(s));
            }
        }
        assert_non_null(strstr(err.msg, "shrinking.gguf"));
        sl_session_close(&s);
        sl_engine_close(&e);
        assert_int_equal(mem_now(), before);
    }
    free(bytes);
}

static void add_matrix(struct ggufw *w, const char *name, int rows)
{
    const uint64_t dims[] = {WIDTH, (uint64_t)rows};
    size_t n = WIDTH * (size_t)rows;
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++)
        v[i] = (float)i; /* no two places alike */
    ggufw_tensor(w, name, QT_F32, rows > 1 ? 2 : 1, dims, v, n * sizeof *v);
    free(v);
}

/* Blocks without experts, and many rows of embeddings and of the output head, which is far. */
static void write_big(void)
{
    static const char *const keys[] = {"block_count", "context_length", "embedding_length",
                                       "feed_forward_length", "attention.head_count"};
    static const uint32_t values[] = {BIG_BLOCKS, 64, WIDTH, WIDTH, 1};
    static const char *const squares[] = {"attn_q", "attn_k",   "attn_v",  "attn_output",
                                          "ffn_up", "ffn_gate", "ffn_down"};
    struct ggufw w;
    char name[64];
    ggufw_init(&w);
    ggufw_str(&w, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(name, sizeof name, "llama.%s", keys[i]);
        ggufw_u32(&w, name, values[i]);
    }
    ggufw_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    add_matrix(&w, "output_norm.weight", 1);
    add_matrix(&w, "token_embd.weight", BIG_ROWS);
    add_matrix(&w, "output.weight", BIG_ROWS);
    for (int il = 0; il < BIG_BLOCKS; il++) {
        snprintf(name, sizeof name, "blk.%d.attn_norm.weight", il);
        add_matrix(&w, name, 1);
        snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", il);
        add_matrix(&w, name, 1);
        for (size_t i = 0; i < sizeof squares / sizeof *squares; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", il, squares[i]);
            add_matrix(&w, name, WIDTH);
        }
    }
    snprintf(big, sizeof big, "%s/big.gguf", fixture_temp_dir());
    ggufw_save(&w, big);
    ggufw_free(&w);
}

static int set_up(void **state)
{
    (void)state;
    char prefix[256];
    set = fixture_load_set("arch", &n_set);
    for (int i = 0; set && i < n_set; i++)
        if (strcmp(set[i].name, "arch/qwen3moe") == 0)
            model = &set[i];
    if (!model)
        return -1;
    write_big();
    snprintf(prefix, sizeof prefix, "%s/load", fixture_temp_dir());
    return ggufsplit_write(model->path, prefix, 3, false, split, sizeof split) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_free_set(set, n_set);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_any_engine),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_block_by_block),
        cmocka_unit_test(test_far_blocks),
        cmocka_unit_test(test_first_failure),
        cmocka_unit_test(test_nothing_stays_open),
        cmocka_unit_test(test_reads_fail),
        cmocka_unit_test(test_a_shrinking_file),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
