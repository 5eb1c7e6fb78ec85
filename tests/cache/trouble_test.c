/* Drives that fail, files that end early, memory that runs out. */
#include "cache/kit.h"

#include "base/mem.h"
#include "io/fake.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct kit_shape shape = {
    .n_layers = 3, .n_experts = 10, .top_k = 2, .n_parts = 3, .n_classes = 2, .bytes = 6000};

static struct io_reader *scripted(struct io_fake_script s)
{
    struct io_reader *r;
    struct sl_err err;
    assert_int_equal(io_fake_create(&s, 2, &r, &err), 0);
    return r;
}

/* Three passes of which one fails; what came before it was right, and what comes after works. */
static int run_until_failure(struct cache *c, const struct kit *k, enum cache_order order,
                             struct sl_err *err)
{
    int failed = 0;
    for (int l = 0; l < 3; l++) {
        int32_t ids[] = {1, 3, 4, 6, 8, 9};
        struct expert_view v;
        int index, rc;
        assert_int_equal(cache_pass_begin(c, l, ids, NULL, 6, order, err), 0);
        while ((rc = cache_pass_next(c, &index, &v, err)) == 1) {
            assert_true(kit_same(k, l, ids[index], &v));
            cache_pass_release(c, index);
        }
        if (rc < 0) {
            struct sl_err again;
            failed++;
            assert_int_equal(rc, err->code);
            assert_int_equal(cache_pass_next(c, &index, &v, &again), rc);
            char where[32];
            snprintf(where, sizeof where, "layer %d, expert ", l);
            assert_int_equal(strncmp(err->where, where, strlen(where)), 0);
            assert_non_null(strstr(err->msg, k->path));
        }
        cache_pass_end(c);
    }
    return failed;
}

static void check_recovery(struct cache *c, const struct kit *k, uint64_t budget)
{
    for (int round = 0; round < 2; round++)
        for (int l = 0; l < 3; l++) {
            int32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
            kit_pass(c, k, l, ids, NULL, 10, round ? CACHE_ASCENDING : CACHE_AS_READY, NULL);
        }
    assert_true(kit_stats(c).resident_bytes <= budget);
}

static void test_every_read_fails_once(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &shape, 9);
    for (int variant = 0; variant < 12; variant++) {
        bool is_short = variant & 1;
        enum cache_order order = variant & 2 ? CACHE_ASCENDING : CACHE_AS_READY;
        struct cache_config cfg = kit_config(&k);
        cfg.slots = (variant / 4) * 4; /* 0, 4, 8 */
        cfg.split = 1 + variant % 3;
        int failures = 0;
        for (int64_t at = 0;; at++) {
            struct io_reader *r = scripted((struct io_fake_script){.order = 2,
                                                                   .seed = (uint64_t)at,
                                                                   .fail_at = is_short ? -1 : at,
                                                                   .short_at = is_short ? at : -1});
            struct cache *c = kit_cache(&cfg, r);
            struct cache_sizes sizes;
            struct sl_err err = {0};
            assert_int_equal(cache_measure(&cfg, &sizes, &err), 0);
            int failed = run_until_failure(c, &k, order, &err);
            assert_true(failed <= 1);
            failures += failed;
            if (failed && !is_short)
                assert_non_null(strstr(err.msg, "error"));
            if (failed)
                check_recovery(c, &k, sizes.cache_bytes);
            cache_destroy(&c);
            io_reader_destroy(&r);
            if (!failed)
                break; /* past the last read */
        }
        assert_true(failures >= 3 * 3 * 6);
    }
    kit_close(&k);
}

/* A drive that fails most of the time never hangs and never shows a wrong byte. */
static void test_a_dying_drive(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &shape, 10);
    for (int every = 1; every <= 7; every++) {
        struct cache_config cfg = kit_config(&k);
        cfg.slots = 4;
        struct io_reader *r = scripted((struct io_fake_script){
            .order = 2, .seed = 1, .fail_at = -1, .short_at = -1, .fail_every = every});
        struct cache *c = kit_cache(&cfg, r);
        struct sl_err err = {0};
        int failed = 0;
        for (int i = 0; i < 40; i++) {
            int32_t counts[10] = {[1] = 2, [2] = 9, [8] = 1 + i % 5};
            if (i % 10 == 0)
                (i % 20 ? cache_prompt_begin : cache_prompt_end)(c);
            cache_read_ahead(c, i % 3, i % 20 < 10 ? NULL : counts);
            failed += run_until_failure(c, &k, i % 2 ? CACHE_ASCENDING : CACHE_AS_READY, &err);
        }
        assert_true(failed > 0);
        cache_destroy(&c);
        io_reader_destroy(&r);
    }
    kit_close(&k);
}

/* The pass's owner stops in the middle: nothing leaks, nothing stays leased. */
static void test_a_pass_is_abandoned(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &shape, 11);
    struct io_reader *r = kit_fake(2, 0, 2);
    for (int slots = 0; slots <= 8; slots += 4) {
        struct cache_config cfg = kit_config(&k);
        cfg.slots = slots;
        struct cache *c = kit_cache(&cfg, r);
        for (int stop = 0; stop < 6; stop++) {
            int32_t ids[] = {0, 2, 4, 5, 7, 9};
            struct expert_view v;
            struct sl_err err = {0};
            int index;
            assert_int_equal(cache_pass_begin(c, stop % 3, ids, NULL, 6, CACHE_AS_READY, &err), 0);
            for (int i = 0; i < stop; i++) {
                assert_int_equal(cache_pass_next(c, &index, &v, &err), 1);
                if (i != 1)
                    cache_pass_release(c, index);
            }
            cache_pass_end(c);
            assert_int_equal(r->open, 0);
        }
        struct cache_sizes sizes;
        struct sl_err err;
        assert_int_equal(cache_measure(&cfg, &sizes, &err), 0);
        check_recovery(c, &k, sizes.cache_bytes);
        cache_destroy(&c);
    }
    io_reader_destroy(&r);
    kit_close(&k);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &shape, 12);
    struct io_reader *r = kit_fake(0, 0, 2);
    struct cache_config cfg = kit_config(&k);
    cfg.slots = 4;
    uint64_t before = mem_now();
    int n = 0, rc;
    do {
        struct cache *c;
        struct sl_err err = {0};
        mem_fail_after(n++);
        rc = cache_create(&cfg, r, &c, &err);
        mem_fail_after(-1);
        if (rc) {
            assert_int_equal(rc, SL_E_MEM);
            assert_null(c);
        }
        cache_destroy(&c);
        assert_int_equal(mem_now(), before);
    } while (rc);
    assert_true(n > 10);
    io_reader_destroy(&r);
    kit_close(&k);
}

static void test_bad_files_are_refused(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &shape, 13);
    struct io_reader *r = kit_fake(0, 0, 2);
    struct cache_config cfg = kit_config(&k);
    struct cache *c;
    struct sl_err err = {0};
    k.layer[2].part[2].offset += 1; /* the last slice would end behind the file */
    assert_int_equal(cache_create(&cfg, r, &c, &err), SL_E_FORMAT);
    assert_string_equal(err.where, k.path);
    k.layer[2].part[2].offset -= 1;
    cfg.policy = "none";
    assert_int_equal(cache_create(&cfg, r, &c, &err), SL_E_ARG);
    cfg.policy = NULL;
    k.layer[0].part[0].file = NULL;
    assert_int_equal(cache_create(&cfg, r, &c, &err), SL_E_INTERNAL);
    io_reader_destroy(&r);
    kit_close(&k);
}

/* The real reader on a file that was cut after it had been opened. */
static void test_the_file_shrinks(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &shape, 14);
    struct cache_config cfg = kit_config(&k);
    cfg.slots = 4;
    struct io_reader *r;
    struct sl_err err = {0};
    assert_int_equal(io_reader_create("threads", 2, 1, &r, NULL, &err), 0);
    struct cache *c = kit_cache(&cfg, r);
    assert_int_equal(truncate(k.path, (off_t)(k.layer[2].part[0].offset + 10)), 0);
    assert_int_equal(run_until_failure(c, &k, CACHE_ASCENDING, &err), 1);
    assert_int_equal(err.code, SL_E_IO);
    int32_t ids[] = {0, 5};
    kit_pass(c, &k, 0, ids, NULL, 2, CACHE_AS_READY, NULL);
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_read_fails_once), cmocka_unit_test(test_a_dying_drive),
        cmocka_unit_test(test_a_pass_is_abandoned),   cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_bad_files_are_refused), cmocka_unit_test(test_the_file_shrinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
