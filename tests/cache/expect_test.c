/* Experts that are expected: read while the drive is idle, found by the pass that wants them, never
 * before what a pass has asked for and never at its cost. */
#include "cache/kit.h"

#include <stdio.h>
#include <unistd.h>

#include "cache/impl.h"
#include "io/fake.h"
#include "support/drives.h"

#define N     24
#define PARTS 2

static const struct kit_shape shape = {
    .n_layers = 4, .n_experts = N, .top_k = 3, .n_parts = PARTS, .n_classes = 1, .bytes = 5000};

struct bench {
    struct kit k;
    struct cache_config cfg;
    struct io_reader *r;
    struct cache *c;
};

static void begin(struct bench *b, int64_t slots, int guesses_open, double delay_s)
{
    kit_open(&b->k, &shape, 77);
    b->cfg = kit_config(&b->k);
    b->cfg.slots = slots;
    b->cfg.guesses_open = guesses_open;
    b->r = kit_fake(0, delay_s, 2);
    b->c = kit_cache(&b->cfg, b->r);
}

static void end(struct bench *b)
{
    cache_destroy(&b->c);
    io_reader_destroy(&b->r);
    kit_close(&b->k);
}

/* Ask again until the drive has nothing to do. */
static void expect_all(struct bench *b, int layer, const int32_t *ids, int n)
{
    do
        cache_expect(b->c, layer, ids, n, false);
    while (b->r->open > 0);
}

static uint64_t bytes_of(const struct bench *b, int layer, const int32_t *ids, int n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += kit_read_bytes(&b->k, layer, ids[i], b->cfg.align);
    return sum;
}

/* Found whether they have landed or not; nothing is read twice, what was named in vain is counted.
 */
static void test_a_pass_finds_them(void **state)
{
    (void)state;
    static const int32_t guess[] = {2, 5, 9}, asked[] = {2, 7, 9};
    for (int early = 0; early < 2; early++) {
        struct bench b;
        begin(&b, 8, 3, 0);
        if (early)
            expect_all(&b, 1, guess, 3);
        else
            cache_expect(b.c, 1, guess, 3, false);
        kit_pass(b.c, &b.k, 1, asked, NULL, 3, CACHE_AS_READY, NULL);
        kit_pass(b.c, &b.k, 1, asked, NULL, 3, CACHE_AS_READY, NULL);
        struct cache_stats s = kit_stats(b.c);
        assert_int_equal(s.expected_reads, 3);
        assert_int_equal(s.misses, 3);
        assert_int_equal(s.hits, 3);
        assert_int_equal(s.spec_useful_bytes, bytes_of(&b, 1, (int32_t[]){2, 9}, 2));
        assert_int_equal(s.spec_wasted_bytes, bytes_of(&b, 1, &guess[1], 1));
        assert_int_equal(s.bytes_read, bytes_of(&b, 1, (int32_t[]){2, 5, 7, 9}, 4));
        end(&b);
    }
}

/* Guesses wait until no demand is open, and then go out few at a time; what is sure goes out
 * behind the demand, all of it. */
static void test_demand_goes_first(void **state)
{
    (void)state;
    static const int32_t asked[] = {0, 1, 2}, guess[] = {3, 4, 5, 6};
    for (int sure = 0; sure < 2; sure++) {
        struct bench b;
        struct sl_err err = {0};
        struct expert_view v;
        int index;
        begin(&b, 16, 1, 0.002);
        assert_int_equal(cache_pass_begin(b.c, 0, asked, NULL, 3, CACHE_AS_READY, &err), 0);
        assert_int_equal(b.r->open, 3 * PARTS);
        cache_expect(b.c, 1, guess, 4, sure);
        assert_int_equal(b.r->open, (sure ? 7 : 3) * PARTS);
        while (cache_pass_next(b.c, &index, &v, &err) == 1)
            cache_pass_release(b.c, index);
        cache_pass_end(b.c);
        if (!sure)
            assert_int_equal(b.r->open, PARTS); /* one at a time */
        kit_pass(b.c, &b.k, 1, guess, NULL, 4, CACHE_AS_READY, NULL);
        assert_int_equal(kit_stats(b.c).spec_wasted_bytes, 0);
        assert_int_equal(kit_stats(b.c).expected_reads, sure ? 4 : 1);
        end(&b);
    }
}

/* Of two drives the one that no demand reads from serves guesses. */
static void test_drives(void **state)
{
    (void)state;
    static const int32_t asked[] = {0, 1, 2}, guess[] = {3};
    struct bench b;
    struct sl_err err = {0};
    struct expert_view v;
    struct io_file *other;
    char copy[80];
    int index;
    drives_pretend(2);
    kit_open(&b.k, &shape, 77);
    snprintf(copy, sizeof copy, "%s-2", b.k.path);
    FILE *f = fopen(copy, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b.k.bytes, 1, b.k.size, f), b.k.size);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(io_file_open(copy, false, &other, &err), 0);
    for (int j = 0; j < PARTS; j++)
        b.k.layer[2].part[j].file = other;
    b.cfg = kit_config(&b.k);
    b.cfg.slots = 16;
    b.cfg.guesses_open = 3;
    b.r = kit_fake(0, 0.002, 2);
    b.c = kit_cache(&b.cfg, b.r);
    assert_int_equal(cache_pass_begin(b.c, 0, asked, NULL, 3, CACHE_AS_READY, &err), 0);
    cache_expect(b.c, 1, guess, 1, false);
    assert_int_equal(b.r->open, 3 * PARTS); /* the same drive */
    cache_forget_expected(b.c, -1);
    cache_expect(b.c, 2, guess, 1, false);
    assert_int_equal(b.r->open, 4 * PARTS);
    while (cache_pass_next(b.c, &index, &v, &err) == 1)
        cache_pass_release(b.c, index);
    cache_pass_end(b.c);
    kit_pass(b.c, &b.k, 2, guess, NULL, 1, CACHE_AS_READY, NULL);
    assert_int_equal(kit_stats(b.c).expected_reads, 1);
    assert_int_equal(kit_stats(b.c).spec_wasted_bytes, 0);
    end(&b);
    io_file_close(&other);
    unlink(copy);
    drives_pretend(0);
}

/* What is not yet begun when the layer's pass opens is forgotten. */
static void test_overtaken(void **state)
{
    (void)state;
    static const int32_t guess[] = {3, 4, 5, 6}, asked[] = {10};
    struct bench b;
    begin(&b, 8, 1, 0.002);
    cache_expect(b.c, 1, guess, 4, false);
    kit_pass(b.c, &b.k, 1, asked, NULL, 1, CACHE_AS_READY, NULL);
    kit_pass(b.c, &b.k, 2, asked, NULL, 1, CACHE_AS_READY, NULL);
    struct cache_stats s = kit_stats(b.c);
    assert_int_equal(s.expected_reads, 1);
    assert_int_equal(s.spec_wasted_bytes, bytes_of(&b, 1, guess, 1));
    /* A second word about a layer takes the place of the first. */
    cache_expect(b.c, 3, guess, 4, false);
    cache_expect(b.c, 3, asked, 1, false);
    while (b.r->open > 0)
        cache_expect(b.c, 3, asked, 1, false);
    kit_pass(b.c, &b.k, 3, asked, NULL, 1, CACHE_AS_READY, NULL);
    assert_int_equal(kit_stats(b.c).expected_reads, 3);
    end(&b);
}

/* With a cache as small as allowed: what the open pass holds stays, a pass gets on although all
 * other slots were taken on a guess. */
static void test_the_pass_keeps_its_slots(void **state)
{
    (void)state;
    static const int32_t asked[] = {0, 1, 2}, guess[] = {3, 4, 5, 6, 7, 8, 9, 10};
    struct bench b;
    struct sl_err err = {0};
    struct expert_view v[3];
    int index, n = 0;
    begin(&b, 3, 8, 0);
    kit_pass(b.c, &b.k, 0, asked, NULL, 3, CACHE_AS_READY, NULL);
    assert_int_equal(cache_pass_begin(b.c, 0, asked, NULL, 3, CACHE_AS_READY, &err), 0);
    while (cache_pass_next(b.c, &index, &v[n], &err) == 1)
        n++;
    assert_int_equal(n, 3);
    for (int i = 0; i < 20; i++)
        cache_expect(b.c, 1, guess, 8, i % 2);
    for (int i = 0; i < 3; i++)
        assert_true(kit_same(&b.k, 0, asked[i], &v[i]));
    assert_int_equal(kit_stats(b.c).evictions, 0);
    cache_pass_end(b.c);
    for (int i = 0; i < 20; i++)
        cache_expect(b.c, 1, guess, 8, i % 2);
    kit_pass(b.c, &b.k, 2, asked, NULL, 3, CACHE_AS_READY, NULL);
    kit_pass(b.c, &b.k, 2, guess, NULL, 8, CACHE_AS_READY, NULL);
    kit_pass(b.c, &b.k, 1, guess, NULL, 8, CACHE_AS_READY, NULL);
    end(&b);
}

/* Nothing happens where reads can't go on beside computing, in prompts, without slots, and for
 * what is no expert. */
static void test_where_it_means_nothing(void **state)
{
    (void)state;
    static const int32_t guess[] = {3, 4}, bad[] = {-1, N, 1 << 30};
    struct bench b;
    begin(&b, 8, 1, 0);
    cache_expect(b.c, 1, bad, 3, true);
    cache_expect(b.c, -1, guess, 2, true);
    cache_expect(b.c, 4, guess, 2, true);
    cache_prompt_begin(b.c);
    cache_expect(b.c, 1, guess, 2, true);
    cache_prompt_end(b.c);
    assert_int_equal(b.r->open, 0);
    end(&b);
    for (int i = 0; i < 3; i++) {
        begin(&b, i == 2 ? 0 : 8, 1, 0);
        if (i == 0) {
            struct sl_err err;
            io_reader_destroy(&b.r);
            cache_destroy(&b.c);
            assert_int_equal(io_reader_create("plain", 2, 1, &b.r, NULL, &err), 0);
            b.c = kit_cache(&b.cfg, b.r);
        } else if (i == 1) {
            cache_destroy(&b.c);
            b.cfg.overlap = false;
            b.c = kit_cache(&b.cfg, b.r);
        }
        cache_expect(b.c, 1, guess, 2, true);
        assert_int_equal(b.r->open, 0);
        kit_pass(b.c, &b.k, 1, guess, NULL, 2, CACHE_AS_READY, NULL);
        assert_int_equal(kit_stats(b.c).expected_reads, 0);
        end(&b);
    }
}

/* A read on a guess that fails is nobody's trouble until the expert is asked for. */
static void test_failures(void **state)
{
    (void)state;
    static const int32_t guess[] = {3, 4}, asked[] = {3};
    struct io_fake_script s = {.fail_at = 0, .short_at = -1};
    struct sl_err err = {0};
    struct bench b;
    begin(&b, 8, 2, 0);
    io_reader_destroy(&b.r);
    cache_destroy(&b.c);
    assert_int_equal(io_fake_create(&s, 2, &b.r, &err), 0);
    b.c = kit_cache(&b.cfg, b.r);
    expect_all(&b, 1, guess, 2);
    assert_int_equal(kit_stats(b.c).resident_bytes > 0, 1); /* the other one */
    kit_pass(b.c, &b.k, 1, asked, NULL, 1, CACHE_AS_READY, NULL);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pass_finds_them),
        cmocka_unit_test(test_demand_goes_first),
        cmocka_unit_test(test_drives),
        cmocka_unit_test(test_overtaken),
        cmocka_unit_test(test_the_pass_keeps_its_slots),
        cmocka_unit_test(test_where_it_means_nothing),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
