/* A cache that is filled before it is asked for anything. */
#include "cache/kit.h"
#include "cache/policy.h"

#include "io/fake.h"

static void open_kit(struct kit *k)
{
    kit_open(k,
             &(struct kit_shape){.n_layers = 4,
                                 .n_experts = 16,
                                 .top_k = 2,
                                 .n_parts = 3,
                                 .n_classes = 2,
                                 .dense_gaps = false,
                                 .bytes = 3000},
             11);
}

static bool is_hit(struct cache *c, const struct kit *k, int layer, int32_t id)
{
    uint64_t before = kit_stats(c).hits;
    kit_pass(c, k, layer, &id, NULL, 1, CACHE_AS_READY, NULL);
    return kit_stats(c).hits > before;
}

/* The first that fit, class by class; nonsense is passed over. */
static void test_what_fits_is_there(void **state)
{
    (void)state;
    for (int p = 0; cache_policies[p]; p++)
        for (int order = 0; order < 3; order++) {
            struct kit k;
            open_kit(&k);
            struct cache_config cfg = kit_config(&k);
            cfg.slots = 3;
            cfg.policy = cache_policies[p]->name;
            struct io_reader *r = kit_fake(order, 0, 2);
            struct cache *c = kit_cache(&cfg, r);
            struct cache_hint hint[] = {
                {0, 5, 0.9f},  {0, 5, 0.9f}, {-1, 3, 0.8f}, {99, 3, 0.8f}, {0, 16, 0.8f},
                {0, -1, 0.8f}, {2, 1, 0.7f}, {1, 7, 0.6f},  {0, 6, 0.5f},  {0, 7, 0.4f},
                {1, 8, 0.3f},  {3, 9, 0.2f}, {3, 10, 0.1f},
            };
            assert_int_equal(cache_preload(c, hint, sizeof hint / sizeof hint[0]), 6);
            assert_int_equal(kit_stats(c).misses, 0);
            assert_true(is_hit(c, &k, 0, 5));
            assert_true(is_hit(c, &k, 2, 1));
            assert_true(is_hit(c, &k, 0, 6));
            assert_true(is_hit(c, &k, 1, 7));
            assert_true(is_hit(c, &k, 1, 8));
            assert_true(is_hit(c, &k, 3, 9));
            assert_false(is_hit(c, &k, 3, 10));
            assert_int_equal(cache_get_uses(c, 3)[9], 1);
            assert_int_equal(cache_get_uses(c, 0)[5], 1);
            assert_int_equal(cache_get_uses(c, 0)[4], 0);
            cache_destroy(&c);
            io_reader_destroy(&r);
            kit_close(&k);
        }
}

/* Policies that listen give up what earlier runs used least. */
static void test_policies_listen(void **state)
{
    (void)state;
    for (int p = 0; cache_policies[p]; p++) {
        if (!cache_policies[p]->prime)
            continue;
        struct kit k;
        open_kit(&k);
        struct cache_config cfg = kit_config(&k);
        cfg.slots = 4;
        cfg.policy = cache_policies[p]->name;
        struct io_reader *r = kit_fake(0, 0, 2);
        struct cache *c = kit_cache(&cfg, r);
        struct cache_hint hint[] = {{0, 1, 0.9f}, {0, 2, 0.1f}, {2, 3, 0.8f}, {2, 4, 0.7f}};
        assert_int_equal(cache_preload(c, hint, 4), 4);
        for (int i = 0; i < 4; i++) /* newcomers, used again and again */
            is_hit(c, &k, 0, 9);
        assert_true(is_hit(c, &k, 0, 9));
        assert_true(is_hit(c, &k, 2, 3));
        assert_true(is_hit(c, &k, 0, 1));
        assert_false(is_hit(c, &k, 0, 2));
        cache_destroy(&c);
        io_reader_destroy(&r);
        kit_close(&k);
    }
}

/* A read that fails fills nothing; the pass that needs the expert says so. */
static void test_failing_reads(void **state)
{
    (void)state;
    struct kit k;
    open_kit(&k);
    struct cache_config cfg = kit_config(&k);
    cfg.slots = 4;
    struct io_fake_script s = {.fail_at = 4, .short_at = -1, .fail_errno = 5};
    struct io_reader *r;
    struct sl_err err;
    assert_int_equal(io_fake_create(&s, 2, &r, &err), 0);
    struct cache *c = kit_cache(&cfg, r);
    struct cache_hint hint[] = {{0, 1, 1}, {0, 2, 1}, {2, 3, 1}};
    assert_int_equal(cache_preload(c, hint, 3), 3);
    assert_true(is_hit(c, &k, 0, 1));
    assert_false(is_hit(c, &k, 0, 2));
    assert_true(is_hit(c, &k, 2, 3));
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

static void test_no_cache(void **state)
{
    (void)state;
    struct kit k;
    open_kit(&k);
    struct cache_config cfg = kit_config(&k);
    struct io_reader *r = kit_fake(0, 0, 2);
    struct cache *c = kit_cache(&cfg, r);
    struct cache_hint hint = {0, 1, 1};
    assert_int_equal(cache_preload(c, &hint, 1), 0);
    assert_false(is_hit(c, &k, 0, 1));
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_fits_is_there),
        cmocka_unit_test(test_policies_listen),
        cmocka_unit_test(test_failing_reads),
        cmocka_unit_test(test_no_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
