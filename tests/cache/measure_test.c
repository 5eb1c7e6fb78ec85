/* Sizes, classes and the division of a budget. */
#include "cache/kit.h"
#include "cache/policy.h"
#include "cache/slots.h"

#include "base/mem.h"

#include <string.h>

#define A 4096

/* Layers on paper: nothing here opens a file. */
static struct cache_config paper(const struct cache_layer *layers, int n)
{
    return (struct cache_config){.layers = layers,
                                 .n_layers = n,
                                 .align = A,
                                 .slots = -1,
                                 .in_flight = 4,
                                 .threads = 2,
                                 .split = 1,
                                 .overlap = true};
}

static struct cache_layer layer(uint64_t offset, uint64_t bytes, int n_experts, int top_k)
{
    struct cache_layer l = {.n_parts = 1, .n_experts = n_experts, .top_k = top_k};
    l.part[0] = (struct cache_part){.offset = offset, .stride = bytes, .bytes = bytes};
    return l;
}

static void test_aligned_slices_waste_nothing(void **state)
{
    (void)state;
    struct cache_layer l[2] = {layer(A, 2 * A, 8, 2), layer(100 * A, 2 * A, 8, 2)};
    struct cache_config cfg = paper(l, 2);
    struct cache_sizes s;
    struct sl_err err;
    cfg.budget = INT64_MAX;
    assert_int_equal(cache_measure(&cfg, &s, &err), 0);
    assert_int_equal(s.n_classes, 1);
    assert_int_equal(s.slot_bytes_max, 2 * A);
    assert_int_equal(s.transit_bytes, 10 * 2 * A);
    assert_int_equal(s.min_bytes, 2 * 2 * A);
    assert_int_equal(s.bank_bytes, 16 * 2 * A);
    assert_int_equal(s.cache_bytes, s.bank_bytes);
    assert_int_equal(s.waste_bytes, 0);
    assert_int_equal(s.token_bytes, 2 * 2 * 2 * A);
}

/* The room of a part is exact: one page less than its worst expert needs would not do. */
static void test_room_is_the_worst_expert(void **state)
{
    (void)state;
    uint64_t rng = 11;
    for (int t = 0; t < 300; t++) {
        uint64_t bytes = 1 + kit_random(&rng) % 20000;
        struct cache_layer l = layer(kit_random(&rng) % 100000, bytes, 1 + kit_below(&rng, 40), 1);
        l.part[0].stride = bytes + kit_random(&rng) % 5000;
        struct cache_config cfg = paper(&l, 1);
        struct cache_sizes s;
        struct sl_err err;
        assert_int_equal(cache_measure(&cfg, &s, &err), 0);
        uint64_t longest = 0;
        for (int e = 0; e < l.n_experts; e++) {
            uint64_t at = l.part[0].offset + (uint64_t)e * l.part[0].stride;
            uint64_t len = (at + bytes + A - 1) / A * A - at / A * A;
            longest = len > longest ? len : longest;
        }
        assert_int_equal(s.slot_bytes_max, longest);
    }
}

static void test_too_small_names_the_smallest(void **state)
{
    (void)state;
    struct cache_layer l[2] = {layer(0, 2 * A, 8, 2), layer(100 * A, 4 * A, 8, 3)};
    struct cache_config cfg = paper(l, 2);
    struct cache_sizes s;
    struct sl_err err;
    int64_t least = 2 * 2 * A + 3 * 4 * A;
    cfg.budget = least - 1;
    assert_int_equal(cache_measure(&cfg, &s, &err), SL_E_BUDGET);
    assert_int_equal(s.min_bytes, least);
    assert_non_null(strstr(err.msg, "65536"));
    assert_non_null(strstr(err.msg, "1 MiB"));
    cfg.budget = least;
    assert_int_equal(cache_measure(&cfg, &s, &err), 0);
    assert_int_equal(s.cache_bytes, least);
    cfg.budget = 0;
    assert_int_equal(cache_measure(&cfg, &s, &err), 0);
    assert_int_equal(s.cache_bytes, 0);
    cfg.slots = 2;
    assert_int_equal(cache_measure(&cfg, &s, &err), SL_E_BUDGET);
    assert_non_null(strstr(err.msg, "at least 3"));
    cfg.slots = 3;
    assert_int_equal(cache_measure(&cfg, &s, &err), 0);
    assert_int_equal(s.cache_bytes, 3 * 6 * A);
    cfg.slots = 1000;
    assert_int_equal(cache_measure(&cfg, &s, &err), 0);
    assert_int_equal(s.cache_bytes, s.bank_bytes);
    cfg.slots = 0;
    assert_int_equal(cache_measure(&cfg, &s, &err), 0);
    assert_int_equal(s.cache_bytes, 0);
}

static void divide(struct cache_config *cfg, int64_t budget, struct cache_geometry *g)
{
    struct sl_err err;
    cfg->budget = budget;
    assert_int_equal(cache_plan_geometry(cfg, g, &err), 0);
    assert_int_equal(cache_divide_budget(cfg, g, &err), 0);
}

static void test_shares_follow_layers(void **state)
{
    (void)state;
    struct cache_layer l[4];
    for (int i = 0; i < 4; i++) /* three layers of one-page experts, one of two pages */
        l[i] = layer((uint64_t)i * 1000 * A, i == 3 ? 2 * A : A, 64, 4);
    struct cache_config cfg = paper(l, 4);
    struct cache_geometry g;
    divide(&cfg, 80 * A, &g);
    assert_int_equal(g.n_classes, 2);
    assert_int_equal(g.cls[0].n_slots, 60);
    assert_int_equal(g.cls[1].n_slots, 10);
    cache_free_geometry(&g);
    divide(&cfg, 12 * A, &g); /* the smallest: 4 slots each */
    assert_int_equal(g.cls[0].n_slots, 4);
    assert_int_equal(g.cls[1].n_slots, 4);
    cache_free_geometry(&g);
    divide(&cfg, 256 * A, &g); /* the first class is full at 192, the rest goes to the other */
    assert_int_equal(g.cls[0].n_slots, 192);
    assert_int_equal(g.cls[1].n_slots, 32);
    cache_free_geometry(&g);
    divide(&cfg, 300 * A, &g);
    assert_int_equal(g.cls[0].n_slots, 192);
    assert_int_equal(g.cls[1].n_slots, 54);
    cache_free_geometry(&g);
}

static void test_any_budget_is_used_and_kept(void **state)
{
    (void)state;
    uint64_t rng = 23;
    for (int t = 0; t < 200; t++) {
        struct cache_layer l[6];
        for (int i = 0; i < 6; i++)
            l[i] = layer(kit_random(&rng) % 9999, 1 + (uint64_t)kit_below(&rng, 3) * 7777,
                         8 + kit_below(&rng, 8), 1 + kit_below(&rng, 8));
        struct cache_config cfg = paper(l, 6);
        struct cache_sizes s;
        struct cache_geometry g;
        struct sl_err err;
        assert_int_equal(cache_measure(&cfg, &s, &err), 0);
        int64_t budget = (int64_t)(s.min_bytes +
                                   kit_random(&rng) % (s.bank_bytes - s.min_bytes + 2 * A));
        divide(&cfg, budget, &g);
        cache_sum_sizes(&cfg, &g, &s);
        assert_true(s.cache_bytes <= (uint64_t)budget && s.cache_bytes <= s.bank_bytes);
        for (int i = 0; i < g.n_classes; i++) {
            struct cache_class *k = &g.cls[i];
            assert_true(k->n_slots >= (uint64_t)k->top_k && k->n_slots <= k->bank);
            if (k->n_slots < k->bank) /* no slot more would have fitted */
                assert_true(k->slot_bytes > (uint64_t)budget - s.cache_bytes);
        }
        cache_free_geometry(&g);
    }
}

static void expect(struct cache_config *cfg, int code)
{
    struct cache_sizes s;
    struct sl_err err = {0};
    assert_int_equal(cache_measure(cfg, &s, &err), code);
    assert_int_equal(err.code, code);
    assert_true(err.msg[0] != 0);
}

static void test_nonsense_is_refused(void **state)
{
    (void)state;
    struct cache_layer l = layer(0, A, 8, 2);
    const struct cache_config good = paper(&l, 1);
    struct cache_config cfg;
#define TRY(code, change)                                                                          \
    do {                                                                                           \
        cfg = good;                                                                                \
        l = layer(0, A, 8, 2);                                                                     \
        change;                                                                                    \
        expect(&cfg, code);                                                                        \
    } while (0)
    TRY(SL_E_ARG, cfg.align = 0);
    TRY(SL_E_ARG, cfg.align = 4095);
    TRY(SL_E_ARG, cfg.align = (size_t)1 << 40);
    TRY(SL_E_ARG, cfg.budget = -1);
    TRY(SL_E_ARG, cfg.slots = -2);
    TRY(SL_E_ARG, cfg.in_flight = 0);
    TRY(SL_E_ARG, cfg.threads = 0);
    TRY(SL_E_ARG, cfg.split = 0);
    TRY(SL_E_ARG, cfg.split = 1000);
    TRY(SL_E_ARG, l.n_parts = 4);
    TRY(SL_E_ARG, l.top_k = 9);
    TRY(SL_E_ARG, l.top_k = 0);
    TRY(SL_E_UNSUPPORTED, l.n_experts = 1 << 20);
    TRY(SL_E_UNSUPPORTED, l.n_experts = -1);
    TRY(SL_E_FORMAT, l.part[0].bytes = 0);
    TRY(SL_E_FORMAT, l.part[0].offset = UINT64_MAX - 5);
    TRY(SL_E_FORMAT, l.part[0].stride = UINT64_MAX / 4);
    TRY(SL_E_FORMAT, l.part[0].bytes = (uint64_t)INT64_MAX - A);
#undef TRY
}

static void test_no_experts_at_all(void **state)
{
    (void)state;
    struct cache_layer l = {0};
    struct cache_config cfg = paper(&l, 1);
    struct cache_sizes s;
    struct cache *c;
    struct sl_err err;
    cfg.budget = 1 << 20;
    assert_int_equal(cache_measure(&cfg, &s, &err), 0);
    assert_int_equal(s.n_classes, 0);
    assert_int_equal(s.cache_bytes + s.transit_bytes + s.bank_bytes, 0);
    assert_int_equal(cache_create(&cfg, NULL, &c, &err), SL_E_ARG);
    assert_null(c);
}

static void check_memory(const struct cache_config *cfg)
{
    struct cache_sizes s;
    struct sl_err err;
    assert_int_equal(cache_measure(cfg, &s, &err), 0);
    struct io_reader *r = kit_fake(0, 0, 2);
    uint64_t before = mem_now();
    struct cache *c = kit_cache(cfg, r);
    uint64_t took = mem_now() - before, told = s.cache_bytes + s.transit_bytes + s.table_bytes;
    assert_true(took >= s.cache_bytes + s.transit_bytes);
    assert_true(took <= told + 16 * 1024); /* headers and rounding of some dozen blocks */
    cache_destroy(&c);
    assert_int_equal(mem_now(), before);
    io_reader_destroy(&r);
}

/* What the cache takes is what was measured before, whatever the policy. */
static void test_memory_is_as_measured(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k,
             &(struct kit_shape){.n_layers = 4,
                                 .n_experts = 16,
                                 .top_k = 2,
                                 .n_parts = 3,
                                 .n_classes = 2,
                                 .bytes = 9000},
             5);
    struct cache_config cfg = kit_config(&k);
    cfg.budget = 1 << 20;
    for (int i = 0; cache_policies[i]; i++) {
        cfg.policy = cache_policies[i]->name;
        check_memory(&cfg);
    }
    /* So many slots that every byte of one shows. */
    struct cache_layer many = k.layer[0];
    many.n_experts = 4096;
    many.n_parts = 1;
    many.part[0].stride = 0;
    many.part[0].bytes = 40;
    cfg.layers = &many;
    cfg.n_layers = 1;
    cfg.slots = many.n_experts;
    check_memory(&cfg);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_aligned_slices_waste_nothing),
        cmocka_unit_test(test_room_is_the_worst_expert),
        cmocka_unit_test(test_too_small_names_the_smallest),
        cmocka_unit_test(test_shares_follow_layers),
        cmocka_unit_test(test_any_budget_is_used_and_kept),
        cmocka_unit_test(test_nonsense_is_refused),
        cmocka_unit_test(test_no_experts_at_all),
        cmocka_unit_test(test_memory_is_as_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
