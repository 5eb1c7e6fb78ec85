/* A cache that changes its size. */
#include "cache/impl.h"
#include "cache/kit.h"

#include "base/mem.h"
#include "base/sys.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)

static void open_kit(struct kit *k, uint64_t bytes)
{
    kit_open(k,
             &(struct kit_shape){.n_layers = 2,
                                 .n_experts = 32,
                                 .top_k = 2,
                                 .n_parts = 1,
                                 .n_classes = 1,
                                 .aligned = true,
                                 .bytes = bytes},
             9);
}

static bool is_hit(struct cache *c, const struct kit *k, int layer, int32_t id)
{
    uint64_t before = kit_stats(c).hits;
    kit_pass(c, k, layer, &id, NULL, 1, CACHE_AS_READY, NULL);
    return kit_stats(c).hits > before;
}

/* The system gets the memory back, and gives it again. 64 experts of 1 MiB. */
static void test_memory_goes_back(void **state)
{
    (void)state;
    struct kit k;
    open_kit(&k, MIB);
    struct cache_config cfg = kit_config(&k);
    struct cache_sizes s;
    struct sys_rss full, small, again;
    struct sl_err err;
    uint64_t now;
    cfg.budget = (int64_t)(64 * MIB);
    cfg.most = cfg.budget;
    assert_int_equal(cache_measure(&cfg, &s, &err), 0);
    struct io_reader *r = kit_fake(0, 0, 2);
    struct cache *c = kit_cache(&cfg, r);
    for (int e = 0; e < 32; e++)
        for (int l = 0; l < 2; l++)
            is_hit(c, &k, l, e);
    assert_int_equal(kit_stats(c).resident_bytes, 64 * MIB);
    sys_rss("", &full);
    assert_int_equal(cache_set_budget(c, 16 * MIB, &now, &err), 0);
    sys_rss("", &small);
    assert_int_equal(now, 16 * MIB);
    assert_int_equal(kit_stats(c).resident_bytes, 16 * MIB);
    if (full.anon == 0) { /* this system does not say what it gave */
        print_message("no RssAnon: only the allocator's count is checked\n");
    } else {
        assert_true(small.anon + 42 * MIB <= full.anon); /* transit slots may come in between */
        assert_int_equal(cache_set_budget(c, 64 * MIB, &now, &err), 0);
        for (int e = 0; e < 32; e++)
            for (int l = 0; l < 2; l++)
                is_hit(c, &k, l, e);
        sys_rss("", &again);
        assert_true(again.anon >= small.anon + 42 * MIB);
    }
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

/* What is used most stays, whatever the policy. */
static void test_the_coldest_go_first(void **state)
{
    (void)state;
    for (int p = 0; cache_policies[p]; p++) {
        struct kit k;
        open_kit(&k, 4096);
        struct cache_config cfg = kit_config(&k);
        struct sl_err err;
        cfg.budget = cfg.most = INT64_MAX;
        cfg.policy = cache_policies[p]->name;
        struct io_reader *r = kit_fake(0, 0, 2);
        struct cache *c = kit_cache(&cfg, r);
        for (int e = 0; e < 32; e++)
            for (int l = 0; l < 2; l++) {
                is_hit(c, &k, l, e);
                is_hit(c, &k, l, 5);
                is_hit(c, &k, l, 6);
            }
        assert_int_equal(cache_set_budget(c, 4 * 4096, NULL, &err), 0);
        assert_int_equal(kit_stats(c).evictions, 60);
        assert_true(is_hit(c, &k, 1, 5));
        assert_true(is_hit(c, &k, 1, 6));
        assert_false(is_hit(c, &k, 1, 9));
        cache_destroy(&c);
        io_reader_destroy(&r);
        kit_close(&k);
    }
}

/* From nothing to something and back. */
static void test_from_nothing(void **state)
{
    (void)state;
    struct kit k;
    open_kit(&k, 4096);
    struct cache_config cfg = kit_config(&k);
    struct sl_err err;
    uint64_t now;
    cfg.most = INT64_MAX;
    struct io_reader *r = kit_fake(1, 0, 2);
    struct cache *c = kit_cache(&cfg, r);
    is_hit(c, &k, 0, 3);
    assert_false(is_hit(c, &k, 0, 3));
    assert_int_equal(cache_set_budget(c, UINT64_MAX, &now, &err), 0);
    assert_int_equal(now, 64 * 4096);
    is_hit(c, &k, 0, 3);
    assert_true(is_hit(c, &k, 0, 3));
    assert_int_equal(cache_set_budget(c, 0, &now, &err), 0);
    assert_int_equal(now, 0);
    assert_int_equal(kit_stats(c).resident_bytes, 0);
    assert_false(is_hit(c, &k, 0, 3));
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

/* A refusal changes nothing; the system's refusal leaves the cache as large as it could be. */
static void test_refusals(void **state)
{
    (void)state;
    struct kit k;
    open_kit(&k, 4096);
    struct cache_config cfg = kit_config(&k);
    struct sl_err err;
    uint64_t now = 7;
    cfg.budget = 8 * 4096;
    cfg.most = INT64_MAX;
    struct io_reader *r = kit_fake(0, 0, 2);
    struct cache *c = kit_cache(&cfg, r);
    is_hit(c, &k, 0, 3);
    assert_int_equal(cache_set_budget(c, 4096, &now, &err), SL_E_BUDGET);
    assert_non_null(strstr(err.msg, "smallest"));
    assert_int_equal(now, 7);
    int32_t id = 3;
    struct expert_view v;
    int index;
    assert_int_equal(cache_pass_begin(c, 0, &id, NULL, 1, CACHE_AS_READY, &err), 0);
    assert_int_equal(cache_set_budget(c, 8 * 4096, &now, &err), SL_E_INTERNAL);
    assert_int_equal(cache_pass_next(c, &index, &v, &err), 1);
    cache_pass_release(c, index);
    cache_pass_end(c);
    mem_fail_after(5);
    int rc = cache_set_budget(c, 32 * 4096, &now, &err);
    mem_fail_after(-1);
    assert_int_equal(rc, 0);
    assert_true(now >= 8 * 4096 && now < 32 * 4096);
    assert_true(is_hit(c, &k, 0, 3));
    assert_int_equal(cache_set_budget(c, 32 * 4096, &now, &err), 0);
    assert_int_equal(now, 32 * 4096);
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

/* Memory is left alone until it is asked for; passes work before and after. */
static void test_touched_later(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        struct kit k;
        open_kit(&k, 4096);
        struct cache_config cfg = kit_config(&k);
        cfg.slots = 16;
        cfg.touch_later = true;
        struct io_reader *r = kit_fake(0, 0, 2);
        struct cache *c = kit_cache(&cfg, r);
        assert_null(c->arena.piece);
        assert_true(mem_count_resident(c->arena.base, c->arena.bytes, 16) <= 0); /* -1: not known */
        if (asked) {
            cache_touch(c);
            assert_non_null(c->arena.piece);
        }
        for (int32_t e = 0; e < 32; e++)
            is_hit(c, &k, 0, e);
        cache_destroy(&c);
        io_reader_destroy(&r);
        kit_close(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_goes_back), cmocka_unit_test(test_the_coldest_go_first),
        cmocka_unit_test(test_touched_later),    cmocka_unit_test(test_from_nothing),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
