/* Reuse distances against lists searched one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "telemetry/reuse.h"

enum { LAYERS = 3, EXPERTS = 7, KEYS = LAYERS * EXPERTS };

/* Most recently used first. */
struct list {
    int key[KEYS], n;
};

/* Position of key from 1, 0 when it was never used; then it moves to the front. */
static uint32_t touch(struct list *l, int key)
{
    int at = 0;
    while (at < l->n && l->key[at] != key)
        at++;
    uint32_t distance = at < l->n ? (uint32_t)at + 1 : 0;
    if (at == l->n)
        l->n++;
    memmove(l->key + 1, l->key, (size_t)at * sizeof *l->key);
    l->key[0] = key;
    return distance;
}

/* Far more uses than the tree has times: it is renumbered again and again. */
static void test_against_list(void **state)
{
    (void)state;
    struct reuse r;
    struct list l = {.n = 0};
    uint64_t bucket[REUSE_BUCKETS] = {0}, cold = 0, evicted = 0, hits = 0, uses = 0;
    unsigned seed = 7;
    print_message("seed %u\n", seed);
    srand(seed);
    assert_int_equal(reuse_open(&r, LAYERS, EXPERTS, NULL), 0);
    for (int i = 0; i < 20000; i++) {
        int key = rand() % (rand() % 3 ? KEYS : 4);
        bool hit = rand() % 2, counted = i % 5 != 0;
        uint32_t want = touch(&l, key);
        hit = hit && want;
        assert_int_equal(reuse_add(&r, key / EXPERTS, key % EXPERTS, hit, counted), want);
        if (!counted)
            continue;
        uses++;
        hits += hit;
        cold += !hit && !want;
        evicted += !hit && want;
        int b = 0;
        while ((UINT32_C(1) << b) < want)
            b++;
        bucket[b] += want > 0;
    }
    assert_true(r.uses == uses && r.hits == hits && r.cold == cold && r.evicted == evicted);
    assert_memory_equal(r.bucket, bucket, sizeof bucket);
    assert_true(r.uses == r.hits + r.cold + r.evicted);
    reuse_close(&r);
    assert_int_equal(mem_now(), 0);
}

static void test_outside(void **state)
{
    (void)state;
    struct reuse r;
    assert_int_equal(reuse_open(&r, 2, 2, NULL), 0);
    assert_int_equal(reuse_add(&r, 2, 0, false, true), 0);
    assert_int_equal(reuse_add(&r, 0, -1, false, true), 0);
    assert_int_equal(r.uses, 0);
    reuse_close(&r);
    struct sl_err err;
    mem_fail_after(0);
    assert_int_equal(reuse_open(&r, 2, 2, &err), SL_E_MEM);
    mem_fail_after(1);
    assert_int_equal(reuse_open(&r, 2, 2, &err), SL_E_MEM);
    mem_fail_after(-1);
    assert_int_equal(mem_now(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_list),
        cmocka_unit_test(test_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
