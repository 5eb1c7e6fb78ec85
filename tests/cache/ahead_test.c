/* Speculative reads: found by the pass that wants them, in nobody's way otherwise. */
#include "cache/kit.h"

#define N 24

static const struct kit_shape shape = {
    .n_layers = 4, .n_experts = N, .top_k = 2, .n_parts = 2, .n_classes = 1, .bytes = 5000};

static int32_t all[N];

static struct cache_config open_kit(struct kit *k, int64_t slots)
{
    for (int i = 0; i < N; i++)
        all[i] = i;
    kit_open(k, &shape, 77);
    struct cache_config cfg = kit_config(k);
    cfg.slots = slots;
    return cfg;
}

/* Ask again until the drive has nothing to do. */
static void read_all_ahead(struct cache *c, struct io_reader *r, int layer, const int32_t *counts)
{
    do
        cache_read_ahead(c, layer, counts);
    while (r->open > 0);
}

static void test_a_pass_finds_what_was_read(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) { /* half: the pass begins while reads are open */
        struct kit k;
        struct cache_config cfg = open_kit(&k, 8);
        struct io_reader *r = kit_fake(2, 0, 2);
        struct cache *c = kit_cache(&cfg, r);
        if (half)
            cache_read_ahead(c, 1, NULL);
        else
            read_all_ahead(c, r, 1, NULL);
        uint64_t n = half ? 2 : 8 + 4; /* in_flight; cache slots and transit slots but one */
        uint64_t want = 0, rest = 0;
        for (int i = 0; i < N; i++)
            *((uint64_t)i < n ? &want : &rest) += kit_read_bytes(&k, 1, i, cfg.align);
        kit_pass(c, &k, 1, all, NULL, N, CACHE_ASCENDING, NULL);
        struct cache_stats s = kit_stats(c);
        assert_int_equal(s.misses, N);
        assert_int_equal(s.spec_useful_bytes, want);
        assert_int_equal(s.spec_wasted_bytes, 0);
        assert_int_equal(s.bytes_read, want + rest); /* nothing was read twice */
        assert_int_equal(s.evictions, 0);
        cache_destroy(&c);
        io_reader_destroy(&r);
        kit_close(&k);
    }
}

static void test_what_nobody_asks_for_is_wasted(void **state)
{
    (void)state;
    struct kit k;
    struct cache_config cfg = open_kit(&k, 4);
    struct io_reader *r = kit_fake(2, 0, 2);
    struct cache *c = kit_cache(&cfg, r);
    read_all_ahead(c, r, 1, NULL); /* experts 0..7 */
    int32_t ids[] = {1, 3, 20};
    kit_pass(c, &k, 1, ids, NULL, 3, CACHE_AS_READY, NULL);
    uint64_t useful = kit_read_bytes(&k, 1, 1, cfg.align) + kit_read_bytes(&k, 1, 3, cfg.align);
    uint64_t wasted = 0;
    for (int i = 0; i < 8; i++)
        wasted += i != 1 && i != 3 ? kit_read_bytes(&k, 1, i, cfg.align) : 0;
    struct cache_stats s = kit_stats(c);
    assert_int_equal(s.spec_useful_bytes, useful);
    assert_int_equal(s.spec_wasted_bytes, wasted);
    assert_int_equal(s.evictions, 0); /* what was wasted gave way */
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

/* Residents stay, whatever is read ahead; another layer's pass takes its slots from what was read
 * ahead, not from residents. */
static void test_residents_stay(void **state)
{
    (void)state;
    struct kit k;
    struct cache_config cfg = open_kit(&k, 4);
    struct io_reader *r = kit_fake(2, 0, 2);
    struct cache *c = kit_cache(&cfg, r);
    int32_t a[] = {1, 2}, b[] = {5, 6}, d[] = {7, 8};
    kit_pass(c, &k, 0, a, NULL, 2, CACHE_AS_READY, NULL);
    read_all_ahead(c, r, 1, NULL);
    kit_pass(c, &k, 2, b, NULL, 2, CACHE_AS_READY, NULL);
    assert_int_equal(kit_stats(c).evictions, 0);
    kit_pass(c, &k, 0, a, NULL, 2, CACHE_AS_READY, NULL);
    assert_int_equal(kit_stats(c).hits, 2);
    read_all_ahead(c, r, 3, NULL);
    kit_pass(c, &k, 0, a, NULL, 2, CACHE_AS_READY, NULL);
    kit_pass(c, &k, 2, b, NULL, 2, CACHE_AS_READY, NULL);
    assert_int_equal(kit_stats(c).hits, 6);
    kit_pass(c, &k, 2, d, NULL, 2, CACHE_AS_READY, NULL);
    assert_int_equal(kit_stats(c).evictions, 2);
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

/* Transit slots full of later experts must not stop the earlier ones that were evicted since, not
 * even when the caller holds all views that it may. */
static void test_later_experts_make_room(void **state)
{
    (void)state;
    for (int hold = 1; hold <= 4; hold++) {
        struct kit k;
        struct cache_config cfg = open_kit(&k, 2);
        struct io_reader *r = kit_fake(0, 0, 2);
        struct cache *c = kit_cache(&cfg, r);
        int32_t a[] = {0, 1}, b[] = {0, 1};
        kit_pass(c, &k, 1, a, NULL, 2, CACHE_AS_READY, NULL);
        read_all_ahead(c, r, 1, NULL); /* 0 and 1 are resident: 2..5 go into transit */
        kit_pass(c, &k, 0, b, NULL, 2, CACHE_AS_READY, NULL); /* evicts them */
        cache_prompt_begin(c); /* 0 and 1 are routed once, as often as what is resident */
        kit_pass(c, &k, 0, b, NULL, 2, CACHE_ASCENDING, NULL);
        struct expert_view v[N];
        struct sl_err err = {0};
        int index, rc, n = 0;
        assert_int_equal(cache_pass_begin(c, 1, all, NULL, N, CACHE_ASCENDING, &err), 0);
        while ((rc = cache_pass_next(c, &index, &v[n], &err)) == 1) {
            assert_int_equal(index, n);
            n++;
            for (int i = n - 1; i >= 0 && i > n - hold; i--)
                assert_true(kit_same(&k, 1, i, &v[i]));
            if (n >= hold)
                cache_pass_release(c, n - hold);
        }
        assert_int_equal(rc, 0);
        assert_int_equal(n, N);
        cache_pass_end(c);
        cache_prompt_end(c);
        cache_destroy(&c);
        io_reader_destroy(&r);
        kit_close(&k);
    }
}

/* Demand goes first: nothing speculative while a miss of the pass waits for a slot, and never more
 * than in_flight experts at a time. */
static void test_demand_goes_first(void **state)
{
    (void)state;
    struct kit k;
    struct cache_config cfg = open_kit(&k, 0);
    struct io_reader *r = kit_fake(0, 0, 2);
    struct cache *c = kit_cache(&cfg, r);
    struct expert_view v;
    struct sl_err err = {0};
    int index, n = 0;
    assert_int_equal(cache_pass_begin(c, 0, all, NULL, 12, CACHE_ASCENDING, &err), 0);
    cache_read_ahead(c, 1, NULL);
    while (cache_pass_next(c, &index, &v, &err) == 1) {
        n++;
        cache_pass_release(c, index);
        int demand = 12 - n < 5 ? 12 - n : 5;
        if (n < 7) /* five transit slots: the twelfth is submitted at the seventh release */
            assert_true(r->open <= 2 * demand);
        assert_true(r->open <= 2 * (demand + 2));
    }
    assert_int_equal(n, 12);
    assert_true(r->open > 0);
    cache_pass_end(c);
    kit_pass(c, &k, 1, all, NULL, N, CACHE_ASCENDING, NULL);
    assert_true(kit_stats(c).spec_useful_bytes > 0);
    assert_int_equal(kit_stats(c).spec_wasted_bytes, 0);
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

/* Nor while the pass has slots for misses that it has not yet submitted. */
static void test_the_window_is_for_demand(void **state)
{
    (void)state;
    struct kit k;
    struct cache_config cfg = open_kit(&k, 3 * N);
    struct io_reader *r = kit_fake(0, 0.005, 2);
    struct cache *c = kit_cache(&cfg, r);
    struct sl_err err = {0};
    assert_int_equal(cache_pass_begin(c, 0, all, NULL, N, CACHE_ASCENDING, &err), 0);
    assert_int_equal(r->open, 2 * 5); /* parts x transit slots */
    cache_read_ahead(c, 1, NULL);
    assert_int_equal(r->open, 2 * 5);
    cache_pass_end(c);
    assert_int_equal(r->open, 2 * 2); /* now it goes on: parts x in_flight */
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

/* What is counted is read, and nothing else. */
static void test_counted(void **state)
{
    (void)state;
    struct kit k;
    struct cache_config cfg = open_kit(&k, 8);
    struct io_reader *r = kit_fake(2, 0, 2);
    struct cache *c = kit_cache(&cfg, r);
    int32_t counts[N] = {[3] = 1, [9] = 40, [N - 1] = 2}, ids[] = {3, 9, N - 1};
    uint64_t bytes = 0;
    for (int i = 0; i < 3; i++)
        bytes += kit_read_bytes(&k, 1, ids[i], cfg.align);
    read_all_ahead(c, r, 1, counts);
    assert_int_equal(kit_stats(c).bytes_read, bytes);
    kit_pass(c, &k, 1, ids, NULL, 3, CACHE_AS_READY, NULL);
    assert_int_equal(kit_stats(c).bytes_read, bytes);
    assert_int_equal(kit_stats(c).spec_useful_bytes, bytes);
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

/* In a prompt what is counted takes the place of what was routed less often, except that of an
 * expert which is counted itself; the rest goes into transit. */
static void test_counted_in_a_prompt(void **state)
{
    (void)state;
    for (int prompt = 0; prompt < 2; prompt++) {
        struct kit k;
        struct cache_config cfg = open_kit(&k, 4);
        struct io_reader *r = kit_fake(2, 0, 2);
        struct cache *c = kit_cache(&cfg, r);
        int32_t here[] = {1, 2}, next[] = {4, 5}, often[] = {5, 1}, seldom[] = {1, 1};
        if (prompt)
            cache_prompt_begin(c);
        kit_pass(c, &k, 0, here, often, 2, CACHE_AS_READY, NULL);
        kit_pass(c, &k, 1, next, seldom, 2, CACHE_AS_READY, NULL);
        int32_t counts[N] = {[4] = 3, [6] = 3, [7] = 9};
        read_all_ahead(c, r, 1, counts);
        struct cache_stats s = kit_stats(c);
        assert_int_equal(s.evictions, prompt ? 2 : 0); /* expert 2 of layer 0 and 5 of layer 1 */
        assert_int_equal(cache_holds_expert(c, 0, 1), 1);
        assert_int_equal(cache_holds_expert(c, 0, 2), !prompt);
        assert_int_equal(cache_holds_expert(c, 1, 4), 1);
        assert_int_equal(cache_holds_expert(c, 1, 5), !prompt);
        int32_t all_next[] = {4, 6, 7};
        kit_pass(c, &k, 1, all_next, (int32_t[]){3, 3, 9}, 3, CACHE_AS_READY, NULL);
        s = kit_stats(c);
        assert_int_equal(s.spec_wasted_bytes, 0);
        assert_int_equal(s.spec_useful_bytes,
                         kit_read_bytes(&k, 1, 6, cfg.align) + kit_read_bytes(&k, 1, 7, cfg.align));
        if (prompt) { /* they stay */
            assert_true(cache_has_expert(c, 1, 6));
            assert_true(cache_has_expert(c, 1, 7));
            cache_prompt_end(c);
        }
        cache_destroy(&c);
        io_reader_destroy(&r);
        kit_close(&k);
    }
}

/* However often a prompt routed an expert, one that it routed as often does not give way. */
static void test_counts_saturate(void **state)
{
    (void)state;
    for (int32_t more = 2; more < 4; more++) {
        struct kit k;
        struct cache_config cfg = open_kit(&k, 2);
        struct io_reader *r = kit_fake(2, 0, 2);
        struct cache *c = kit_cache(&cfg, r);
        int32_t here[] = {1, 2}, next[] = {3}, most[] = {INT32_MAX, INT32_MAX};
        cache_prompt_begin(c);
        for (int i = 0; i < 2; i++) { /* twice is nearly 2^32 */
            kit_pass(c, &k, 0, here, most, 2, CACHE_AS_READY, NULL);
            kit_pass(c, &k, 1, next, most, 1, CACHE_AS_READY, NULL);
        }
        int32_t counts[N] = {[3] = more};
        read_all_ahead(c, r, 1, counts);
        assert_true(cache_has_expert(c, 0, 1) && cache_has_expert(c, 0, 2));
        assert_true(cache_holds_expert(c, 1, 3)); /* in transit */
        cache_prompt_end(c);
        cache_destroy(&c);
        io_reader_destroy(&r);
        kit_close(&k);
    }
}

/* A reader that reads when it is waited for has nothing to do ahead. */
static void test_plain_reader(void **state)
{
    (void)state;
    struct kit k;
    struct cache_config cfg = open_kit(&k, 8);
    struct io_reader *r;
    struct sl_err err;
    assert_int_equal(io_reader_create("plain", 2, 1, &r, NULL, &err), 0);
    struct cache *c = kit_cache(&cfg, r);
    cache_read_ahead(c, 1, NULL);
    assert_int_equal(r->open, 0);
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

/* While reads wait for transit slots, what came through one is handed out before all else, however
 * much is ready: a caller that holds few at a time never keeps the drive waiting. */
static void test_transit_is_handed_out_first(void **state)
{
    (void)state;
    struct kit k;
    struct cache_config cfg = open_kit(&k, 12);
    struct io_reader *r = kit_fake(0, 0, 2);
    struct cache *c = kit_cache(&cfg, r);
    assert_int_equal(cache_hold_most(c), 2);                 /* of five transit slots */
    kit_pass(c, &k, 0, all, NULL, 12, CACHE_AS_READY, NULL); /* resident */
    struct expert_view v;
    struct sl_err err = {0};
    int index, n = 0;
    cache_prompt_begin(c);
    kit_pass(c, &k, 0, all, NULL, 12, CACHE_AS_READY, NULL); /* and not to be evicted */
    assert_int_equal(cache_pass_begin(c, 0, all, NULL, N, CACHE_AS_READY, &err), 0);
    while (r->open > 0) /* all five land */
        cache_keep_reading(c);
    while (cache_pass_next(c, &index, &v, &err) == 1) {
        assert_true(kit_same(&k, 0, all[index], &v));
        if (n < 8) /* the seventh release gives the last miss its slot: no hurry from then on */
            assert_true((index >= 12) == (n < 7));
        cache_pass_release(c, index);
        while (r->open > 0)
            cache_keep_reading(c);
        n++;
    }
    assert_int_equal(n, N);
    cache_pass_end(c);
    cache_prompt_end(c);
    cache_destroy(&c);
    io_reader_destroy(&r);
    kit_close(&k);
}

/* Destroying a cache waits for reads that nobody waits for. */
static void test_destroy_waits(void **state)
{
    (void)state;
    struct kit k;
    struct cache_config cfg = open_kit(&k, 4);
    struct sl_err err;
    struct io_reader *r;
    assert_int_equal(io_reader_create("threads", 2, 1, &r, NULL, &err), 0);
    struct cache *c = kit_cache(&cfg, r);
    cache_read_ahead(c, 1, NULL);
    cache_destroy(&c);
    assert_int_equal(r->open, 0);
    io_reader_destroy(&r);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pass_finds_what_was_read),
        cmocka_unit_test(test_what_nobody_asks_for_is_wasted),
        cmocka_unit_test(test_residents_stay),
        cmocka_unit_test(test_later_experts_make_room),
        cmocka_unit_test(test_demand_goes_first),
        cmocka_unit_test(test_the_window_is_for_demand),
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_counted_in_a_prompt),
        cmocka_unit_test(test_counts_saturate),
        cmocka_unit_test(test_plain_reader),
        cmocka_unit_test(test_transit_is_handed_out_first),
        cmocka_unit_test(test_destroy_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
