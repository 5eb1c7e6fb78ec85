/* How the cache's size follows what the system says. Sizes in units, no clock but the one given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/adapt.h"

static const struct adapt_size full = {.now = 1600, .least = 100, .most = 1600};

static uint64_t decide(struct adapt *a, struct adapt_sample s, struct adapt_size size,
                       enum adapt_why *why)
{
    enum adapt_why w;
    uint64_t n = adapt_decide(a, &s, &size, &w);
    assert_true((w == ADAPT_KEEP) == (n == size.now));
    assert_true(n <= size.most || n == size.now);
    *why = w;
    return n;
}

static void test_what_is_missing_goes(void **state)
{
    (void)state;
    struct adapt a = {0};
    enum adapt_why why;
    assert_int_equal(decide(&a, (struct adapt_sample){.now = 1, .spare = 7}, full, &why), 1600);
    assert_int_equal(decide(&a, (struct adapt_sample){.now = 2, .lack = 30}, full, &why), 1570);
    assert_int_equal(why, ADAPT_SHORT);
    assert_int_equal(decide(&a, (struct adapt_sample){.now = 3, .lack = 1550}, full, &why), 100);
    assert_int_equal(decide(&a, (struct adapt_sample){.now = 3, .lack = UINT64_MAX}, full, &why),
                     100);
    struct adapt_size least = {.now = 100, .least = 100, .most = 1600};
    assert_int_equal(decide(&a, (struct adapt_sample){.now = 4, .lack = 50}, least, &why), 100);
    struct adapt_size none = {.now = 0, .least = 100, .most = 0};
    assert_int_equal(decide(&a, (struct adapt_sample){.now = 5, .lack = 50}, none, &why), 0);
}

/* "Some" for more than a tenth of the time, in the group or on the machine; the counters' start
 * values and gaps between looks do not matter. */
static void test_pressure(void **state)
{
    (void)state;
    enum adapt_why why;
    for (int group = 0; group < 2; group++) {
        struct adapt a = {0};
        struct adapt_sample s = {.now = 10, .spare = 1000, .psi = true};
        uint64_t *us = group ? &s.group_us : &s.machine_us;
        *us = UINT64_C(987654321);
        assert_int_equal(decide(&a, s, full, &why), 1600);
        s.now += 0.5;
        *us += 49000;
        assert_int_equal(decide(&a, s, full, &why), 1600);
        s.now += 0.5;
        *us += 51000;
        assert_int_equal(decide(&a, s, full, &why), 1400);
        assert_int_equal(why, ADAPT_PRESSURE);
        s.now += 0.5;
        *us += 500000;
        s.lack = 300; /* more than an eighth */
        assert_int_equal(decide(&a, s, full, &why), 1300);
        assert_int_equal(why, ADAPT_SHORT);
        s.now += 0.5;
        *us = 0; /* another group, or a counter that began again */
        s.lack = 0;
        assert_int_equal(decide(&a, s, full, &why), 1600);
        s.now += 0.5;
        *us += 500000;
        s.psi = false;
        assert_int_equal(decide(&a, s, full, &why), 1600);
    }
}

/* Back in eighths, only after a calm while, and never so far that the shortage comes back. */
static void test_growth_waits(void **state)
{
    (void)state;
    struct adapt a = {0};
    enum adapt_why why;
    struct adapt_size size = full;
    size.now = decide(&a, (struct adapt_sample){.now = 100, .lack = 900}, size, &why);
    assert_int_equal(size.now, 700);
    struct adapt_sample s = {.spare = 5000};
    for (s.now = 100.5; s.now < 105; s.now += 0.5)
        assert_int_equal(decide(&a, s, size, &why), 700);
    s.now = 105.1;
    s.spare = 90; /* a sixteenth is 100 */
    assert_int_equal(decide(&a, s, size, &why), 700);
    s.spare = 150;
    assert_int_equal(decide(&a, s, size, &why), 750);
    assert_int_equal(why, ADAPT_OVER);
    s.spare = 5000;
    int steps = 0;
    while (size.now < size.most) {
        size.now = decide(&a, s, size, &why);
        s.now += 0.5;
        assert_true(++steps < 20);
    }
    assert_int_equal(steps, 5);
    s.spare = 0;
    s.lack = 1;
    size.now = decide(&a, s, size, &why);
    assert_int_equal(size.now, 1599);
    s.spare = 5000;
    s.lack = 0;
    s.now += 4;
    assert_int_equal(decide(&a, s, size, &why), 1599);
}

/* A system whose memory the cache itself takes away comes to rest. */
static void test_it_settles(void **state)
{
    (void)state;
    struct adapt a = {0};
    struct adapt_size size = full;
    int64_t room = 1234; /* for the cache above what is to be left free */
    int changes = 0;
    for (int i = 0; i < 400; i++) {
        int64_t rest = room - (int64_t)size.now;
        struct adapt_sample s = {.now = i * 0.25,
                                 .spare = rest > 0 ? (uint64_t)rest : 0,
                                 .lack = rest < 0 ? (uint64_t)-rest : 0};
        enum adapt_why why;
        size.now = decide(&a, s, size, &why);
        changes += why != ADAPT_KEEP;
        if (i == 200)
            changes = 0;
    }
    assert_int_equal(changes, 0);
    assert_true(size.now <= 1234 && size.now >= 1134);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_missing_goes),
        cmocka_unit_test(test_pressure),
        cmocka_unit_test(test_growth_waits),
        cmocka_unit_test(test_it_settles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
