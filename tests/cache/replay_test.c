/* Replays: traces whose best result can be found by trying everything, and the cache's own rules.
 */
#include "base/mem.h"
#include "cache/kit.h"
#include "telemetry/replay.h"

#include "cache/policy.h"

#include <stdio.h>
#include <string.h>

#define PAGE 4096

/* A trace made by hand: one expert size for all layers. */
struct maker {
    struct trace t;
    uint64_t bytes[8];
    struct trace_visit visit[512];
    int32_t expert[2048];
    float weight[2048];
};

static void start(struct maker *m, int n_layers, int n_experts, int top_k)
{
    memset(m, 0, sizeof *m);
    m->t.n_layers = n_layers;
    m->t.n_experts = n_experts;
    m->t.top_k = top_k;
    m->t.expert_bytes = m->bytes;
    m->t.visit = m->visit;
    m->t.expert = m->expert;
    m->t.weight = m->weight;
    for (int l = 0; l < n_layers; l++)
        m->bytes[l] = PAGE;
}

static void add(struct maker *m, enum trace_phase phase, int step, int layer, const int32_t *ids,
                int k)
{
    struct trace *t = &m->t;
    assert_true(t->n_visits < 512 && t->n_choices + k <= 2048);
    t->visit[t->n_visits++] = (struct trace_visit){.step = step,
                                                   .layer = layer,
                                                   .phase = (uint8_t)phase,
                                                   .k = (int16_t)k,
                                                   .first = t->n_choices};
    for (int i = 0; i < k; i++)
        t->expert[t->n_choices++] = ids[i];
}

static struct replay_result replay(const struct maker *m, const char *policy, int slots)
{
    struct replay_result r;
    struct sl_err err = {0};
    uint64_t before = mem_now();
    int rc = replay_run(&m->t, policy, (uint64_t)slots * PAGE, &r, &err);
    if (rc)
        print_message("%s\n", err.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(mem_now(), before);
    return r;
}

/* a b c d e f g in turn, with room for three: LRU never hits; the best keeps two and lets the
 * others pass. */
static void test_a_cycle(void **state)
{
    (void)state;
    struct maker m;
    start(&m, 1, 7, 1);
    for (int t = 0; t < 70; t++)
        add(&m, TRACE_DECODE, t, 0, &(int32_t){t % 7}, 1);
    struct replay_result r = replay(&m, "lru", 3);
    assert_int_equal(r.hits, 0);
    assert_int_equal(r.misses, 70);
    assert_int_equal(r.tokens, 70);
    assert_int_equal(r.bytes_read, 70 * PAGE);
    r = replay(&m, REPLAY_OPTIMUM, 3);
    assert_int_equal(r.hits, 9 * 3);
    assert_int_equal(r.bytes_read, (70 - 27) * PAGE);
}

/* The most hits from visit v on with `held` resident, by trying every choice: after a pass there
 * may be any `slots` of what was there and what was asked for, but what was asked for while there
 * stays. */
static int most_hits(const struct maker *m, size_t v, unsigned held, int slots, int8_t memo[][256])
{
    if (v == m->t.n_visits)
        return 0;
    if (memo[v][held] >= 0)
        return memo[v][held];
    unsigned asked = 0;
    for (int i = 0; i < m->t.visit[v].k; i++)
        asked |= 1u << m->expert[m->t.visit[v].first + i];
    unsigned all = held | asked, leased = held & asked;
    int best = 0;
    for (unsigned next = 0; next < 256; next++) {
        if ((next & ~all) || (leased & ~next) || __builtin_popcount(next) > slots)
            continue;
        int n = most_hits(m, v + 1, next, slots, memo);
        best = n > best ? n : best;
    }
    best += __builtin_popcount(leased);
    return memo[v][held] = (int8_t)best;
}

/* Where a pass asks for several experts, those that it found keep their slots until it ends, which
 * the farthest-next-use rule does not foresee: rarely, with hardly any slots, it has a hit less. */
static void test_the_optimum_is_one(void **state)
{
    (void)state;
    static int8_t memo[32][256];
    uint64_t rng = 77;
    int short_by = 0, hits = 0;
    for (int round = 0; round < 300; round++) {
        struct maker m;
        int k = 1 + kit_below(&rng, 2), slots = k + kit_below(&rng, 3);
        start(&m, 1, 8, k);
        for (int t = 0; t < 30; t++) {
            int32_t a = kit_below(&rng, kit_below(&rng, 2) ? 4 : 8),
                    b = (a + 1 + kit_below(&rng, 7)) % 8;
            add(&m, TRACE_DECODE, t, 0, (int32_t[]){a, b}, k);
        }
        memset(memo, -1, sizeof memo);
        int best = most_hits(&m, 0, 0, slots, memo);
        int got = (int)replay(&m, REPLAY_OPTIMUM, slots).hits;
        assert_in_range(got, best - (k == 1 ? 0 : 2), best);
        short_by += best - got;
        hits += best;
        for (int i = 0; cache_policies[i]; i++)
            assert_true((int)replay(&m, cache_policies[i]->name, slots).hits <= best);
    }
    assert_true(short_by * 100 < hits);
}

/* Only generated tokens count; the prompt's experts are there when they begin, most routed first.
 */
static void test_the_prompt_warms_the_cache(void **state)
{
    (void)state;
    struct maker m;
    start(&m, 2, 8, 1);
    static const int32_t prompt[] = {5, 5, 5, 4, 4, 3, 2, 2, 2, 2};
    for (int l = 0; l < 2; l++)
        for (int t = 0; t < 10; t++)
            add(&m, TRACE_PROMPT, t, l, &prompt[t], 1);
    for (int l = 0; l < 2; l++)
        for (int e = 2; e <= 5; e++)
            add(&m, TRACE_DECODE, 10 + e, l, &(int32_t){e}, 1);
    struct replay_result r = replay(&m, "lru", 4); /* 2 and 5 of both layers */
    assert_int_equal(r.hits + r.misses, 8);
    r = replay(&m, REPLAY_OPTIMUM, 8); /* all four of both */
    assert_int_equal(r.hits, 8);
    assert_int_equal(r.bytes_read, 0);
    start(&m, 1, 8, 1); /* one resident is asked for first, so that nothing else decides */
    for (int t = 0; t < 10; t++)
        add(&m, TRACE_PROMPT, t, 0, &prompt[t], 1);
    add(&m, TRACE_DECODE, 10, 0, &(int32_t){2}, 1);
    add(&m, TRACE_DECODE, 11, 0, &(int32_t){5}, 1);
    add(&m, TRACE_DECODE, 12, 0, &(int32_t){4}, 1);
    add(&m, TRACE_DECODE, 13, 0, &(int32_t){3}, 1);
    for (int i = 0; cache_policies[i]; i++) {
        r = replay(&m, cache_policies[i]->name, 2); /* 2 and 5 were routed most */
        assert_int_equal(r.hits, 2);
        assert_int_equal(r.misses, 2);
        assert_int_equal(r.tokens, 4);
    }
}

/* Classes of slots by size: what one class has too few of, the other can't give. */
static void test_sizes_have_their_own_slots(void **state)
{
    (void)state;
    struct maker m;
    start(&m, 2, 4, 1);
    m.bytes[1] = 3 * PAGE - 5;
    for (int t = 0; t < 40; t++)
        for (int l = 0; l < 2; l++)
            add(&m, TRACE_DECODE, t, l, &(int32_t){t % 2}, 1);
    struct replay_result r = replay(&m, "lru", 8); /* 4 slots of one page, 1 of three */
    assert_int_equal(r.hits, 38);
    r = replay(&m, "lru", 12); /* 6 and 2 */
    assert_int_equal(r.hits, 76);
    assert_int_equal(r.bytes_read, 2 * PAGE + 2 * 3 * PAGE);
}

static void test_refusals(void **state)
{
    (void)state;
    struct maker m;
    struct replay_result r;
    struct sl_err err = {0};
    start(&m, 1, 4, 2);
    add(&m, TRACE_DECODE, 0, 0, (int32_t[]){1, 2}, 2);
    assert_int_equal(replay_run(&m.t, NULL, PAGE, &r, &err), SL_E_BUDGET);
    assert_non_null(strstr(err.msg, "the smallest is 1 MiB (8192 bytes"));
    assert_int_equal(replay_run(&m.t, "none", 4 * PAGE, &r, &err), SL_E_ARG);
    uint64_t before = mem_now();
    static const char *const policy[] = {NULL, REPLAY_OPTIMUM};
    for (int i = 0; i < 2; i++) { /* each allocation fails once, with each policy */
        int rc, n = 0;
        do {
            mem_fail_after(n++);
            rc = replay_run(&m.t, policy[i], 4 * PAGE, &r, &err);
            mem_fail_after(-1);
            assert_true(rc == 0 || rc == SL_E_MEM);
            assert_int_equal(mem_now(), before);
        } while (rc || n < 40);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cycle),
        cmocka_unit_test(test_the_optimum_is_one),
        cmocka_unit_test(test_the_prompt_warms_the_cache),
        cmocka_unit_test(test_sizes_have_their_own_slots),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
