/* Two waves: experts are handed out by their first parts, and are whole once awaited. */
#include "cache/kit.h"

#include "io/fake.h"

#include <string.h>

#define N_EXPERTS 10

static const struct kit_shape shape = {
    .n_layers = 3, .n_experts = N_EXPERTS, .top_k = 2, .n_parts = 3, .n_classes = 2, .bytes = 6000};

static bool same_part(const struct kit *k, int layer, int expert, int part,
                      const struct expert_view *v)
{
    const struct cache_part *p = &k->layer[layer].part[part];
    return memcmp(v->part[part], k->bytes + p->offset + (uint64_t)expert * p->stride, p->bytes) ==
           0;
}

/* A pass over ids that holds up to `most` experts; *early counts those that were handed out before
 * their last part was there. 0, or the error of the pass, which must be over then. */
static int run_pass(struct cache *c, const struct kit *k, int layer, const int32_t *ids, int n,
                    enum cache_order order, int most, int *early, struct sl_err *err)
{
    struct expert_view v[N_EXPERTS];
    int index[N_EXPERTS], rc, done = 0;
    assert_int_equal(cache_pass_begin(c, layer, ids, NULL, n, order, err), 0);
    do {
        int held = 0;
        while ((rc = held ? cache_pass_try(c, n, &index[held], &v[held], err)
                          : cache_pass_next(c, &index[held], &v[held], err)) == 1) {
            int e = ids[index[held]];
            assert_true(same_part(k, layer, e, 0, &v[held]) && same_part(k, layer, e, 1, &v[held]));
            *early += !same_part(k, layer, e, 2, &v[held]);
            if (++held == most)
                break;
        }
        for (int i = 0; i < held; i++, done++) {
            int waited = rc < 0 ? rc : cache_pass_await(c, index[i], err);
            if (waited == 0)
                assert_true(kit_same(k, layer, ids[index[i]], &v[i]));
            rc = waited < 0 ? waited : rc;
            cache_pass_release(c, index[i]);
        }
    } while (rc > 0);
    cache_pass_end(c);
    if (rc == 0)
        assert_int_equal(done, n);
    return rc;
}

static int pick_ids(uint64_t *rng, int32_t *ids)
{
    int n = 0;
    for (int e = 0; e < N_EXPERTS; e++)
        if (kit_below(rng, 2))
            ids[n++] = e;
    return n;
}

static void test_handed_out_early(void **state)
{
    (void)state;
    struct kit k;
    struct sl_err err;
    kit_open(&k, &shape, 21);
    for (int variant = 0; variant < 2; variant++) {
        struct cache_config cfg = kit_config(&k);
        int32_t ids[] = {0, 2, 3, 7};
        int early = 0;
        cfg.slots = 6;
        cfg.two_wave = variant == 1;
        struct io_reader *r = kit_fake(0, 0, 2);
        struct cache *c = kit_cache(&cfg, r);
        assert_int_equal(run_pass(c, &k, 0, ids, 4, CACHE_AS_READY, 1, &early, &err), 0);
        assert_int_equal(early > 0, cfg.two_wave);
        cache_destroy(&c);
        io_reader_destroy(&r);
    }
    kit_close(&k);
}

static void test_any_order(void **state)
{
    (void)state;
    struct kit k;
    uint64_t rng = 4;
    struct sl_err err;
    kit_open(&k, &shape, 22);
    for (int variant = 0; variant < 48; variant++) {
        struct cache_config cfg = kit_config(&k);
        int early = 0;
        cfg.slots = (variant & 1) * 4;
        cfg.split = 1 + variant % 3;
        cfg.overlap = variant % 5 != 4;
        cfg.two_wave = true;
        struct io_reader *r = kit_fake(variant % 3, 0, 2);
        struct cache *c = kit_cache(&cfg, r);
        for (int round = 0; round < 30; round++) {
            int32_t ids[N_EXPERTS];
            int n = pick_ids(&rng, ids), most = 1 + kit_below(&rng, 4);
            enum cache_order order = kit_below(&rng, 2) ? CACHE_ASCENDING : CACHE_AS_READY;
            if (run_pass(c, &k, kit_below(&rng, 3), ids, n, order, most, &early, &err) != 0)
                fail_msg("variant %d: %s", variant, err.msg);
            cache_keep_reading(c);
        }
        cache_destroy(&c);
        io_reader_destroy(&r);
    }
    kit_close(&k);
}

/* Each read of a pass fails once: the pass says so, before the expert was handed out or when it is
 * awaited, and later passes are right. */
static void test_failures(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &shape, 23);
    for (int variant = 0; variant < 8; variant++) {
        struct cache_config cfg = kit_config(&k);
        int failures = 0, early = 0;
        cfg.slots = (variant & 1) * 6;
        cfg.two_wave = true;
        cfg.split = 1 + variant % 2;
        for (int64_t at = 0;; at++) {
            static const int32_t ids[] = {1, 3, 4, 6, 9};
            struct io_fake_script s = {
                .order = variant % 3, .seed = (uint64_t)at, .fail_at = at, .short_at = -1};
            struct io_reader *r;
            struct sl_err err = {0};
            assert_int_equal(io_fake_create(&s, 2, &r, &err), 0);
            struct cache *c = kit_cache(&cfg, r);
            enum cache_order order = variant & 4 ? CACHE_ASCENDING : CACHE_AS_READY;
            int rc = run_pass(c, &k, 1, ids, 5, order, 1 + variant % 4, &early, &err);
            assert_true(rc == 0 || rc == SL_E_IO);
            failures += rc != 0;
            if (rc)
                assert_int_equal(strncmp(err.where, "layer 1, expert ", 16), 0);
            for (int l = 0; rc && l < 3; l++)
                assert_int_equal(run_pass(c, &k, l, ids, 5, order, 2, &early, &err), 0);
            cache_destroy(&c);
            io_reader_destroy(&r);
            if (rc == 0)
                break; /* past the last read of the pass */
        }
        assert_true(failures >= 5 * 3);
    }
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handed_out_early),
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
