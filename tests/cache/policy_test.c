/* Replacement policies alone: LRU against a list kept in the plainest way. */
#include "cache/kit.h"
#include "cache/policy.h"

#define N 16

static uint32_t table_cost(const void *ctx, int slot)
{
    return ((const uint32_t *)ctx)[slot];
}

static void test_lru_is_exact(void **state)
{
    (void)state;
    uint64_t rng = 3;
    struct cache_policy *p;
    struct sl_err err;
    assert_int_equal(cache_policy_lru.create(N, 100, &p, &err), 0);
    int order[N], n = 0; /* oldest first */
    bool held[N] = {false};
    for (int t = 0; t < 20000; t++) {
        int s = kit_below(&rng, N), at = 0;
        while (at < n && order[at] != s)
            at++;
        int what = kit_below(&rng, 3);
        if (what < 2 && held[s])
            p->ops->touch(p, s);
        else if (what < 2)
            p->ops->insert(p, s, s);
        else if (held[s])
            p->ops->remove(p, s);
        else
            continue;
        if (at < n) {
            for (n--; at < n; at++)
                order[at] = order[at + 1];
        }
        held[s] = what < 2;
        if (held[s])
            order[n++] = s;
        uint32_t cost[N];
        int best = -1;
        for (int i = 0; i < N; i++)
            cost[i] = kit_below(&rng, 3) ? (uint32_t)kit_below(&rng, 3) : CACHE_COST_NEVER;
        for (int i = 0; i < n; i++)
            if (cost[order[i]] < (best < 0 ? CACHE_COST_NEVER : cost[best]))
                best = order[i];
        assert_int_equal(p->ops->victim(p, table_cost, cost), best);
    }
    p->ops->destroy(p);
}

static void test_names(void **state)
{
    (void)state;
    assert_ptr_equal(cache_find_policy("lru"), &cache_policy_lru);
    assert_non_null(cache_find_policy(NULL));
    assert_null(cache_find_policy("clairvoyant"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lru_is_exact),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
