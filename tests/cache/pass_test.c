/* Passes, one property at a time. */
#include "cache/kit.h"

#include "base/clock.h"

#include <string.h>

#define K 2 /* experts per token */

static const struct kit_shape shape = {
    .n_layers = 4, .n_experts = 16, .top_k = K, .n_parts = 3, .n_classes = 1, .bytes = 5000};

struct bench {
    struct kit k;
    struct cache_config cfg;
    struct io_reader *r;
    struct cache *c;
};

static void set_up(struct bench *b, int64_t slots, int order)
{
    kit_open(&b->k, &shape, 42);
    b->cfg = kit_config(&b->k);
    b->cfg.slots = slots;
    b->r = kit_fake(order, 0, 2);
    b->c = kit_cache(&b->cfg, b->r);
}

static void tear_down(struct bench *b)
{
    cache_destroy(&b->c);
    io_reader_destroy(&b->r);
    kit_close(&b->k);
}

static void ask(struct bench *b, int layer, int n, const int32_t *ids)
{
    kit_pass(b->c, &b->k, layer, ids, NULL, n, CACHE_AS_READY, NULL);
}
#define ASK(b, layer, ...)                                                                         \
    ask(b, layer, (int)(sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t)), (int32_t[]){__VA_ARGS__})

static bool is_hit(struct bench *b, int layer, int id)
{
    uint64_t before = kit_stats(b->c).hits;
    ASK(b, layer, id);
    return kit_stats(b->c).hits > before;
}

static void test_lru_order(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, 4, 2);
    ASK(&b, 0, 1, 2);
    ASK(&b, 1, 3, 4);
    ASK(&b, 0, 1); /* order now: 2, 3, 4, 1 */
    ASK(&b, 2, 5); /* evicts 2 of layer 0 */
    struct cache_stats s = kit_stats(b.c);
    assert_int_equal(s.hits, 1);
    assert_int_equal(s.misses, 5);
    assert_int_equal(s.evictions, 1);
    assert_int_equal(s.rereads, 0);
    assert_true(is_hit(&b, 1, 3));  /* order: 4, 1, 5, 3 */
    assert_false(is_hit(&b, 0, 2)); /* evicts 4 of layer 1 */
    assert_int_equal(kit_stats(b.c).rereads, 1);
    assert_true(is_hit(&b, 0, 1));
    assert_true(is_hit(&b, 2, 5));
    assert_true(is_hit(&b, 1, 3));
    assert_false(is_hit(&b, 1, 4));
    tear_down(&b);
}

/* The model goes round its layers: a global LRU that is one layer short of a token's experts hits
 * nothing. */
static void test_the_cliff(void **state)
{
    (void)state;
    for (int short_by = 0; short_by <= K; short_by += K) {
        struct bench b;
        set_up(&b, 4 * K - short_by, 2);
        for (int token = 0; token < 10; token++)
            for (int l = 0; l < 4; l++)
                ASK(&b, l, 3, 9);
        assert_int_equal(kit_stats(b.c).hits, short_by ? 0 : 9 * 4 * K);
        tear_down(&b);
    }
}

/* Misses never push out what the same pass uses, whatever room there is. */
static void test_hits_survive_their_pass(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, K, 2);
    ASK(&b, 0, 14, 15);
    int32_t ids[16], handed[16];
    for (int i = 0; i < 16; i++)
        ids[i] = i;
    kit_pass(b.c, &b.k, 0, ids, NULL, 16, CACHE_ASCENDING, handed);
    for (int i = 0; i < 16; i++)
        assert_int_equal(handed[i], i);
    struct cache_stats s = kit_stats(b.c);
    assert_int_equal(s.hits, 2);
    assert_int_equal(s.misses, 16);
    assert_int_equal(s.evictions, 0);
    assert_true(is_hit(&b, 0, 14) && is_hit(&b, 0, 15));
    tear_down(&b);
}

static void test_hits_come_first(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, 8, 1);
    ASK(&b, 1, 5, 11);
    int32_t ids[] = {2, 5, 9, 11}, handed[4];
    kit_pass(b.c, &b.k, 1, ids, NULL, 4, CACHE_AS_READY, handed);
    assert_int_equal(handed[0], 5);
    assert_int_equal(handed[1], 11);
    assert_int_equal(handed[2], 9); /* the reader finishes the last first */
    assert_int_equal(handed[3], 2);
    tear_down(&b);
}

static void test_no_cache_keeps_nothing(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, 0, 2);
    for (int i = 0; i < 3; i++)
        ASK(&b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    struct cache_stats s = kit_stats(b.c);
    assert_int_equal(s.hits, 0);
    assert_int_equal(s.misses, 36);
    assert_int_equal(s.resident_bytes + s.evictions + s.rereads, 0);
    tear_down(&b);
}

/* One slot fewer held than there are transit slots always gets on; all of them held is refused, not
 * a hang, and the cache goes on. */
static void test_how_many_may_be_held(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        struct bench b;
        set_up(&b, 0, 2);
        int n_transit = 2 * b.cfg.in_flight + b.cfg.threads, index[16], n = 0, rc;
        struct expert_view v[16];
        struct sl_err err = {0};
        int32_t ids[16];
        for (int i = 0; i < 16; i++)
            ids[i] = i;
        assert_int_equal(cache_pass_begin(b.c, 0, ids, NULL, 16, (enum cache_order)order, &err), 0);
        while (n < n_transit && (rc = cache_pass_next(b.c, &index[n], &v[n], &err)) == 1)
            n++;
        assert_int_equal(n, n_transit);
        for (int i = 0; i < n; i++)
            assert_true(kit_same(&b.k, 0, ids[index[i]], &v[i]));
        int more;
        assert_int_equal(cache_pass_next(b.c, &more, &v[15], &err), SL_E_INTERNAL);
        assert_non_null(strstr(err.msg, "5 experts are held"));
        cache_pass_end(b.c);
        ASK(&b, 0, 1, 2, 3);
        tear_down(&b);
    }
}

static void test_a_view_stays_while_others_come_and_go(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, K, 2);
    struct expert_view first, v;
    struct sl_err err = {0};
    int32_t ids[16];
    int held, index, n = 0;
    for (int i = 0; i < 16; i++)
        ids[i] = i;
    assert_int_equal(cache_pass_begin(b.c, 3, ids, NULL, 16, CACHE_AS_READY, &err), 0);
    assert_int_equal(cache_pass_next(b.c, &held, &first, &err), 1);
    for (; cache_pass_next(b.c, &index, &v, &err) == 1; n++)
        cache_pass_release(b.c, index);
    assert_int_equal(n, 15);
    assert_true(kit_same(&b.k, 3, ids[held], &first));
    cache_pass_end(b.c); /* releases what is held */
    tear_down(&b);
}

static void test_try_does_not_wait(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, 8, 0);
    io_reader_destroy(&b.r);
    cache_destroy(&b.c);
    b.r = kit_fake(0, 0.02, 1);
    b.c = kit_cache(&b.cfg, b.r);
    ASK(&b, 0, 4);
    struct expert_view v;
    struct sl_err err = {0};
    int index;
    int32_t ids[] = {3, 4}, counts[] = {1, 9};
    assert_int_equal(cache_pass_begin(b.c, 0, ids, counts, 2, CACHE_AS_READY, &err), 0);
    assert_int_equal(cache_pass_try(b.c, 8, &index, &v, &err), CACHE_NOT_READY); /* too many */
    assert_int_equal(cache_pass_try(b.c, 9, &index, &v, &err), 1);
    assert_int_equal(index, 1);
    assert_int_equal(cache_pass_try(b.c, 9, &index, &v, &err), CACHE_NOT_READY); /* being read */
    assert_int_equal(cache_pass_next(b.c, &index, &v, &err), 1);
    assert_int_equal(index, 0);
    assert_int_equal(cache_pass_try(b.c, 9, &index, &v, &err), 0);
    cache_pass_end(b.c);
    tear_down(&b);
}

/* Without overlap nothing is handed out while a read is open. */
static void test_without_overlap(void **state)
{
    (void)state;
    for (int slots = 0; slots <= 8; slots += 4)
        for (int order = 0; order < 2; order++) {
            struct bench b;
            set_up(&b, slots, 2);
            cache_destroy(&b.c);
            b.cfg.overlap = false;
            b.c = kit_cache(&b.cfg, b.r);
            ASK(&b, 2, 6, 7);
            cache_read_ahead(b.c, 2, NULL);
            assert_int_equal(b.r->open, 0);
            struct expert_view v;
            struct sl_err err = {0};
            int32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
            int index, n = 0;
            assert_int_equal(cache_pass_begin(b.c, 2, ids, NULL, 10, (enum cache_order)order, &err),
                             0);
            for (; cache_pass_next(b.c, &index, &v, &err) == 1; n++) {
                assert_int_equal(b.r->open, 0);
                assert_true(kit_same(&b.k, 2, ids[index], &v));
                cache_pass_release(b.c, index);
                assert_int_equal(b.r->open, 0);
            }
            assert_int_equal(n, 10);
            cache_pass_end(b.c);
            tear_down(&b);
        }
}

/* Time spent waiting is stall, the rest is management; neither counts the caller's own time. */
/* Stall and management together are the time inside the calls, no more: what the caller does in
 * between is not theirs. Holds at any speed of the machine. */
static void test_stall_is_waiting(void **state)
{
    (void)state;
    const double slack = 1e-3; /* of the clock's own reading */
    struct bench b;
    set_up(&b, 8, 0);
    io_reader_destroy(&b.r);
    cache_destroy(&b.c);
    b.r = kit_fake(0, 0.1, 1);
    b.c = kit_cache(&b.cfg, b.r);
    double t0 = clock_now();
    ASK(&b, 0, 1); /* three parts, one after the other */
    double inside = clock_now() - t0;
    struct cache_stats s = kit_stats(b.c);
    assert_true(s.stall_s > 0);
    assert_true(s.stall_s + s.mgmt_s <= inside + slack);
    struct expert_view v;
    struct sl_err err = {0};
    int index;
    int32_t id = 1;
    t0 = clock_now();
    assert_int_equal(cache_pass_begin(b.c, 0, &id, NULL, 1, CACHE_AS_READY, &err), 0);
    inside += clock_now() - t0;
    clock_sleep(0.05);
    t0 = clock_now();
    assert_int_equal(cache_pass_next(b.c, &index, &v, &err), 1);
    inside += clock_now() - t0;
    clock_sleep(0.05);
    t0 = clock_now();
    cache_pass_end(b.c);
    inside += clock_now() - t0;
    s = kit_stats(b.c);
    assert_true(s.stall_s + s.mgmt_s <= inside + slack);
    tear_down(&b);
}

/* ---- Prompts ----------------------------------------------------------------------------------
 */

static void prompt_pass(struct bench *b, int layer, int n, const int32_t *ids,
                        const int32_t *counts)
{
    kit_pass(b->c, &b->k, layer, ids, counts, n, CACHE_ASCENDING, NULL);
}

/* Of one batch the most routed stay. */
static void test_prompt_keeps_the_most_routed(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, 3, 2);
    int32_t ids[] = {0, 1, 2, 3, 4, 5, 6}, counts[] = {5, 1, 9, 5, 2, 7, 5};
    cache_prompt_begin(b.c);
    prompt_pass(&b, 0, 7, ids, counts);
    cache_prompt_end(b.c);
    assert_int_equal(kit_stats(b.c).evictions, 0);
    int32_t kept[] = {0, 2, 5}; /* 9, 7, and the first of those with 5 */
    uint64_t hits = kit_stats(b.c).hits;
    kit_pass(b.c, &b.k, 0, kept, NULL, 3, CACHE_AS_READY, NULL);
    assert_int_equal(kit_stats(b.c).hits, hits + 3);
    tear_down(&b);
}

/* What this prompt routed at least as often stays; what it did not route goes, oldest first; counts
 * add up over batches and start again with the next prompt. */
static void test_prompt_evicts_only_the_less_routed(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, 4, 2);
    ASK(&b, 3, 8, 9);
    ASK(&b, 3, 10, 11);
    cache_prompt_begin(b.c);
    int32_t a[] = {1, 2}, na[] = {2, 3};
    prompt_pass(&b, 0, 2, a, na); /* evicts 8, 9 of layer 3, which this prompt has not routed */
    assert_int_equal(kit_stats(b.c).evictions, 2);
    int32_t c[] = {5, 6, 7}, nc[] = {2, 2, 1};
    prompt_pass(&b, 1, 3, c, nc); /* 5 and 6 evict 10, 11; 7 finds only 2, 3, 2, 2 */
    assert_int_equal(kit_stats(b.c).evictions, 4);
    int32_t d[] = {3}, nd[] = {2};
    prompt_pass(&b, 2, 1, d, nd); /* as often as the least: passes through */
    assert_int_equal(kit_stats(b.c).evictions, 4);
    nd[0] = 1;
    prompt_pass(&b, 2, 1, d, nd); /* the second batch makes it three: evicts the oldest two */
    assert_int_equal(kit_stats(b.c).evictions, 5);
    uint64_t hits = kit_stats(b.c).hits;
    prompt_pass(&b, 0, 1, &a[1], na);
    prompt_pass(&b, 1, 2, c, nc);
    prompt_pass(&b, 2, 1, d, nd);
    assert_int_equal(kit_stats(b.c).hits, hits + 4);
    cache_prompt_end(b.c);
    cache_prompt_begin(b.c);
    prompt_pass(&b, 0, 1, a, nd); /* once in a new prompt beats what it never routed */
    assert_int_equal(kit_stats(b.c).evictions, 6);
    cache_prompt_end(b.c);
    tear_down(&b);
}

/* ---- Misuse -----------------------------------------------------------------------------------
 */

static void test_bad_ids_are_refused(void **state)
{
    (void)state;
    struct bench b;
    set_up(&b, 4, 0);
    struct sl_err err;
    const int32_t bad[][2] = {{3, 3}, {4, 3}, {-1, 2}, {3, 16}};
    for (int i = 0; i < 4; i++)
        assert_int_equal(cache_pass_begin(b.c, 0, bad[i], NULL, 2, CACHE_AS_READY, &err),
                         SL_E_INTERNAL);
    int32_t good[] = {1, 2};
    assert_int_equal(cache_pass_begin(b.c, 4, good, NULL, 2, CACHE_AS_READY, &err), SL_E_INTERNAL);
    assert_int_equal(cache_pass_begin(b.c, -1, good, NULL, 2, CACHE_AS_READY, &err), SL_E_INTERNAL);
    struct expert_view v;
    int index;
    assert_int_equal(cache_pass_next(b.c, &index, &v, &err), SL_E_INTERNAL);
    assert_int_equal(cache_pass_begin(b.c, 0, good, NULL, 0, CACHE_AS_READY, &err), 0);
    assert_int_equal(cache_pass_begin(b.c, 0, good, NULL, 2, CACHE_AS_READY, &err), SL_E_INTERNAL);
    assert_int_equal(cache_pass_next(b.c, &index, &v, &err), 0);
    cache_pass_end(b.c);
    cache_pass_end(b.c); /* nothing is open: nothing happens */
    cache_read_ahead(b.c, 99, NULL);
    ASK(&b, 0, 1, 2);
    tear_down(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lru_order),
        cmocka_unit_test(test_the_cliff),
        cmocka_unit_test(test_hits_survive_their_pass),
        cmocka_unit_test(test_hits_come_first),
        cmocka_unit_test(test_no_cache_keeps_nothing),
        cmocka_unit_test(test_how_many_may_be_held),
        cmocka_unit_test(test_a_view_stays_while_others_come_and_go),
        cmocka_unit_test(test_try_does_not_wait),
        cmocka_unit_test(test_without_overlap),
        cmocka_unit_test(test_stall_is_waiting),
        cmocka_unit_test(test_prompt_keeps_the_most_routed),
        cmocka_unit_test(test_prompt_evicts_only_the_less_routed),
        cmocka_unit_test(test_bad_ids_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
