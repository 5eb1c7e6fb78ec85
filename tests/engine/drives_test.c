/* drives_test.c: a split model whose shards lie on different drives: what is planned for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "sluice.h"
#include "support/drives.h"
#include "support/fixtures.h"
#include "support/ggufsplit.h"

static struct fixture *set;
static int n_set;

static struct sl_engine_plan plan(const char *path, int drives, int io_threads)
{
    struct sl_engine_options o;
    struct sl_model_info info;
    struct sl_engine_plan p;
    struct sl_err err;
    sl_engine_options_init(&o);
    o.threads = 2;
    o.n_ctx = 64;
    o.stream = SL_STREAM_ON;
    o.cache_mb = 0;
    o.cache_floor_mb = 0;
    o.io_threads = io_threads;
    drives_pretend(drives);
    int rc = sl_plan(path, &o, &info, &p, &err);
    drives_pretend(0);
    if (rc != 0)
        fail_msg("%s", err.msg);
    return p;
}

/* Room for the reads of all drives. */
static void test_plan(void **state)
{
    (void)state;
    int n_routed = 0;
    for (int i = 0; i < n_set; i++) {
        if (set[i].topk == 0)
            continue;
        char prefix[256], first[512];
        snprintf(prefix, sizeof prefix, "%s/drives-%d", fixture_temp_dir(), i);
        assert_true(ggufsplit_write(set[i].path, prefix, 3, false, first, sizeof first));
        const struct sl_engine_plan one = plan(first, 0, 3), wide = plan(first, 0, 6);
        const struct sl_engine_plan two = plan(first, 2, 3), file = plan(set[i].path, 2, 3);
        assert_int_equal(one.n_drives, 1);
        assert_int_equal(wide.n_drives, 1);
        assert_int_equal(two.n_drives, 2);
        assert_int_equal(file.n_drives, 1);
        assert_true(two.transit_bytes == wide.transit_bytes);
        assert_true(two.transit_bytes > one.transit_bytes);
        assert_true(file.transit_bytes == one.transit_bytes);
        n_routed++;
    }
    assert_true(n_routed > 0);
}

static int set_up(void **state)
{
    (void)state;
    set = fixture_load_set("arch", &n_set);
    return set ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_free_set(set, n_set);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
