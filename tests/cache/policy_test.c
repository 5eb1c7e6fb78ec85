/* Replacement policies alone. */
#include "cache/kit.h"
#include "cache/policy.h"

#include <math.h>
#include <string.h>

#define L       5 /* layers, in two pools */
#define E       12
#define N_KEYS  (L * E)
#define N_SLOTS 20
#define K       3

static const int pool_first[3] = {0, 12, N_SLOTS};

static struct cache_shape make_shape(struct cache_policy_layer layer[L])
{
    for (int l = 0; l < L; l++)
        layer[l] = (struct cache_policy_layer){
            .first_key = l * E, .n_experts = E, .top_k = K, .pool = l % 2};
    return (struct cache_shape){
        .n_layers = L, .n_keys = N_KEYS, .n_pools = 2, .layer = layer, .pool_first = pool_first};
}

static struct cache_policy *make_policy(const struct cache_policy_ops *ops)
{
    struct cache_policy_layer layer[L];
    struct cache_shape s = make_shape(layer);
    struct cache_policy *p = NULL;
    struct sl_err err;
    assert_int_equal(ops->create(&s, &p, &err), 0);
    return p;
}

static int draw(uint64_t *rng, int32_t ids[K])
{
    for (int i = 0; i < K;) {
        /* few are frequent */
        int32_t e = kit_below(rng, 2) ? kit_below(rng, E / 3) : kit_below(rng, E);
        bool again = false;
        for (int j = 0; j < i; j++)
            again |= ids[j] == e;
        if (!again)
            ids[i++] = e;
    }
    return K;
}

static uint32_t table_cost(const void *ctx, int slot)
{
    return ((const uint32_t *)ctx)[slot];
}

/* ---- LRU against a list kept in the plainest way ---- */

static void test_lru_is_exact(void **state)
{
    (void)state;
    uint64_t rng = 3;
    struct cache_policy *p = make_policy(&cache_policy_lru);
    int order[N_SLOTS], n = 0; /* oldest first, both pools */
    bool held[N_SLOTS] = {false};
    for (int t = 0; t < 20000; t++) {
        int s = kit_below(&rng, N_SLOTS), at = 0;
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
        uint32_t cost[N_SLOTS];
        int best = -1, pool = kit_below(&rng, 2);
        for (int i = 0; i < N_SLOTS; i++)
            cost[i] = kit_below(&rng, 3) ? (uint32_t)kit_below(&rng, 3) : CACHE_COST_NEVER;
        for (int i = 0; i < n; i++)
            if ((order[i] >= pool_first[1]) == pool &&
                cost[order[i]] < (best < 0 ? CACHE_COST_NEVER : cost[best]))
                best = order[i];
        struct cache_wish w = {.pool = pool, .may_decline = true, .cost = table_cost, .ctx = cost};
        assert_int_equal(p->ops->victim(p, &w), best);
    }
    p->ops->destroy(p);
}

/* ---- Histories for policies that look at the routing ---- */

struct sim {
    struct cache_policy *p;
    int slot_of[N_KEYS], key_of[N_SLOTS];
    bool leased[N_SLOTS];
    int n_free[2], free[2][N_SLOTS];
    int hits, declined;
};

static uint32_t lease_cost(const void *ctx, int slot)
{
    return ((const struct sim *)ctx)->leased[slot] ? CACHE_COST_NEVER : 0;
}

/* mirrored: slots are handed out in the other order. */
static void sim_init(struct sim *s, const struct cache_policy_ops *ops, bool mirrored)
{
    memset(s, 0, sizeof *s);
    s->p = make_policy(ops);
    for (int i = 0; i < N_KEYS; i++)
        s->slot_of[i] = -1;
    for (int i = 0; i < N_SLOTS; i++) {
        int at = mirrored ? i : N_SLOTS - 1 - i, pool = at >= pool_first[1];
        s->key_of[i] = -1;
        s->free[pool][s->n_free[pool]++] = at;
    }
}

/* The worst of all must be the worst of any two: the search for it leaves most of them out. */
static void check_pairs(struct sim *s, const struct cache_wish *w, int victim)
{
    bool leased[N_SLOTS];
    memcpy(leased, s->leased, sizeof leased);
    struct cache_wish any = *w;
    any.may_decline = false;
    for (int other = pool_first[w->pool]; other < pool_first[w->pool + 1]; other++) {
        if (leased[other] || s->key_of[other] < 0 || other == victim)
            continue;
        for (int i = 0; i < N_SLOTS; i++)
            s->leased[i] = i != other && i != victim;
        assert_int_equal(s->p->ops->victim(s->p, &any), victim);
    }
    memcpy(s->leased, leased, sizeof leased);
}

/* One pass, in decode; the keys that were evicted go to evicted. */
static int sim_pass(struct sim *s, int layer, const int32_t *ids, int n, int *evicted, bool pairs)
{
    int pool = layer % 2, n_evicted = 0;
    struct cache_routing r = {.layer = layer, .n_tokens = 1, .k = n, .ids = ids};
    bool hit[K];
    for (int i = 0; i < n; i++) {
        int slot = s->slot_of[layer * E + ids[i]];
        hit[i] = slot >= 0;
        s->hits += hit[i];
        if (slot >= 0)
            s->leased[slot] = true;
    }
    if (s->p->ops->observe)
        s->p->ops->observe(s->p, &r);
    for (int i = 0; i < n; i++) {
        int key = layer * E + ids[i], slot = -1;
        struct cache_wish w = {
            .pool = pool, .key = key, .may_decline = true, .cost = lease_cost, .ctx = s};
        if (hit[i]) {
            s->p->ops->touch(s->p, s->slot_of[key]);
            continue;
        }
        if (s->n_free[pool]) {
            slot = s->free[pool][--s->n_free[pool]];
        } else if ((slot = s->p->ops->victim(s->p, &w)) >= 0) {
            assert_true(slot >= pool_first[pool] && slot < pool_first[pool + 1]);
            assert_false(s->leased[slot]);
            if (pairs)
                check_pairs(s, &w, slot);
            evicted[n_evicted++] = s->key_of[slot];
            s->slot_of[s->key_of[slot]] = -1;
            s->p->ops->remove(s->p, slot);
        } else {
            s->declined++;
            continue;
        }
        s->key_of[slot] = key;
        s->slot_of[key] = slot;
        s->leased[slot] = true;
        s->p->ops->insert(s->p, slot, key);
    }
    memset(s->leased, 0, sizeof s->leased);
    return n_evicted;
}

/* The same history gives the same answers, wherever the experts lie; the quick search finds what a
 * full one would. */
static void test_answers_depend_on_history_alone(void **state)
{
    (void)state;
    for (int i = 0; cache_policies[i]; i++) {
        struct sim a, b;
        uint64_t rng = 17;
        sim_init(&a, cache_policies[i], false);
        sim_init(&b, cache_policies[i], true);
        for (int t = 0; t < 5000; t++) {
            int32_t ids[K];
            int ea[K], eb[K], n = draw(&rng, ids);
            int got = sim_pass(&a, t % L, ids, n, ea, t % 7 == 0);
            assert_int_equal(sim_pass(&b, t % L, ids, n, eb, false), got);
            assert_memory_equal(ea, eb, (size_t)got * sizeof ea[0]);
        }
        assert_true(a.hits > 0 && a.hits == b.hits);
        a.p->ops->destroy(a.p);
        b.p->ops->destroy(b.p);
    }
}

/* ---- LFU with decay against counts that really shrink ---- */

static void test_lfu_counts(void **state)
{
    (void)state;
    struct sim s;
    double count[N_KEYS] = {0};
    uint64_t rng = 23;
    sim_init(&s, &cache_policy_lfu, false);
    for (int t = 0; t < 60000; t++) {
        int32_t ids[K];
        int evicted[K], n = draw(&rng, ids), layer = t % L, before[N_SLOTS];
        memcpy(before, s.key_of, sizeof before);
        for (int i = 0; i < n; i++) {
            for (int k = 0; k < N_KEYS; k++)
                count[k] *= 0.9998;
            count[layer * E + ids[i]] += 1;
        }
        int m = sim_pass(&s, layer, ids, n, evicted, false);
        if (m != 1)
            continue; /* more than one: the second was chosen from another state */
        double got = 0, least = INFINITY;
        for (int i = pool_first[layer % 2]; i < pool_first[layer % 2 + 1]; i++) {
            int key = before[i], l = key / E, d = l > layer ? l - layer : l - layer + L;
            bool asked = false;
            if (key < 0) /* nothing is there */
                continue;
            for (int j = 0; j < n; j++)
                asked |= key == layer * E + ids[j];
            double worth = count[key] * (2 - (double)d / L);
            if (!asked && worth < least)
                least = worth;
            if (key == evicted[0])
                got = worth;
        }
        assert_true(got <= least * 1.001); /* floats against doubles */
    }
    s.p->ops->destroy(s.p);
}

/* A prompt's batch counts as one use of each of its experts. */
static void test_lfu_counts_a_prompt_once(void **state)
{
    (void)state;
    struct sim s;
    sim_init(&s, &cache_policy_lfu, false);
    int32_t rows[10] = {1, 1, 1, 1, 1, 1, 1, 1, 2, 2}, one[1] = {2};
    struct cache_routing r = {.layer = 0, .n_tokens = 10, .k = 1, .ids = rows, .prompt = true};
    s.p->ops->observe(s.p, &r);
    r = (struct cache_routing){.layer = 0, .n_tokens = 1, .k = 1, .ids = one};
    s.p->ops->observe(s.p, &r);
    s.p->ops->insert(s.p, 0, 1);
    s.p->ops->insert(s.p, 1, 2);
    struct cache_wish w = {.pool = 0, .key = 3, .cost = lease_cost, .ctx = &s};
    assert_int_equal(s.p->ops->victim(s.p, &w), 0); /* 1: chosen by eight tokens, but once */
    s.p->ops->destroy(s.p);
}

/* ---- What the default is for ---- */

/* A cycle over more experts than there are slots: LRU throws out each one right before it is asked
 * for. */
static void test_no_cliff(void **state)
{
    (void)state;
    for (int i = 0; cache_policies[i]; i++) {
        struct sim s;
        int evicted[K], late = 0;
        sim_init(&s, cache_policies[i], false);
        for (int t = 0; t < 100; t++)
            for (int l = 0; l < L; l++) {
                int32_t ids[K] = {(2 * t) % 8, (2 * t + 1) % 8, 8 + t % 3}; /* 12 of each layer */
                late = t == 50 && l == 0 ? -s.hits : late;
                sim_pass(&s, l, ids, K, evicted, false);
            }
        late += s.hits;
        if (cache_policies[i] == &cache_policy_lru)
            assert_int_equal(late, 0);
        else
            assert_in_range(late, 40, 750);
        s.p->ops->destroy(s.p);
    }
}

/* Two kinds of token take turns at random; all experts are used equally often and were used equally
 * recently, but the first layers say which kind it is. */
static void test_echo_knows_the_kind_of_token(void **state)
{
    (void)state;
    struct sim s;
    uint64_t rng = 5;
    int evicted[K];
    sim_init(&s, &cache_policy_echo, false);
    int32_t a[1] = {0}, b[1] = {1};
    for (int t = 0; t < 60; t++)
        for (int l = 0; l < L; l++)
            sim_pass(&s, l, t % 2 ? b : a, 1, evicted, false);
    int right = 0;
    for (int t = 0; t < 200; t++) {
        bool kind = kit_below(&rng, 2);
        for (int l = 0; l < L; l++) {
            struct cache_routing r = {.layer = l, .n_tokens = 1, .k = 1, .ids = kind ? b : a};
            s.p->ops->observe(s.p, &r);
            if (l != 1)
                continue;
            /* of layer 3, which has the pool of layer 1: the other kind's expert goes */
            for (int i = pool_first[1]; i < pool_first[2]; i++)
                s.leased[i] = s.key_of[i] != 3 * E && s.key_of[i] != 3 * E + 1;
            struct cache_wish w = {.pool = 1, .key = E + 5, .cost = lease_cost, .ctx = &s};
            int v = s.p->ops->victim(s.p, &w);
            assert_true(v >= 0);
            right += s.key_of[v] == 3 * E + !kind;
        }
    }
    assert_in_range(right, 190, 200);
    s.p->ops->destroy(s.p);
}

/* Batches longer than the memory of tokens, short last layers, cut off passes, no ids at all. */
static void test_odd_batches(void **state)
{
    (void)state;
    static int32_t rows[700 * K];
    for (int i = 0; cache_policies[i]; i++) {
        struct sim s;
        uint64_t rng = 31;
        int evicted[K];
        sim_init(&s, cache_policies[i], false);
        for (int t = 0; t < 300; t++) {
            int n = kit_below(&rng, 4) ? 1 + kit_below(&rng, 5) : 1 + kit_below(&rng, 700);
            for (int j = 0; j < n * K; j++) /* distinct in a row: a residue each; some missing */
                rows[j] = kit_below(&rng, 9) ? j % K + K * kit_below(&rng, E / K) : -1;
            for (int l = 0; l < 1 + kit_below(&rng, L); l++) {
                int m = kit_below(&rng, 4) ? n : 1 + kit_below(&rng, 2 * n);
                struct cache_routing r = {.layer = l,
                                          .n_tokens = m < 700 ? m : 700,
                                          .k = K,
                                          .ids = rows,
                                          .prompt = kit_below(&rng, 2)};
                if (s.p->ops->observe)
                    s.p->ops->observe(s.p, &r);
                int32_t ids[K];
                sim_pass(&s, l, ids, draw(&rng, ids), evicted, true);
            }
        }
        s.p->ops->destroy(s.p);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_ptr_equal(cache_find_policy("lru"), &cache_policy_lru);
    assert_ptr_equal(cache_find_policy("lfu-decay"), &cache_policy_lfu);
    assert_ptr_equal(cache_find_policy("echo"), &cache_policy_echo);
    assert_ptr_equal(cache_find_policy(NULL), &cache_policy_echo);
    assert_null(cache_find_policy("belady")); /* the engine has no future to look into */
    assert_null(cache_find_policy("clairvoyant"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lru_is_exact), cmocka_unit_test(test_answers_depend_on_history_alone),
        cmocka_unit_test(test_lfu_counts),   cmocka_unit_test(test_lfu_counts_a_prompt_once),
        cmocka_unit_test(test_no_cliff),     cmocka_unit_test(test_echo_knows_the_kind_of_token),
        cmocka_unit_test(test_odd_batches),  cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
