/* sys_test.c: memory limits and CPUs from recorded trees of /proc and /sys, and on this machine. */
#include "base/cpus.h"
#include "base/mem.h"
#include "base/sys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define NONE   UINT64_MAX
#define MIB(n) ((uint64_t)(n) << 20)

struct expected {
    const char *tree;
    uint64_t limit, available;
    int cpus;
};

static const struct expected trees[] = {
    {"v2_nested", MIB(6144), MIB(2048), 3}, /* the middle level has the least left; 3.5 CPUs */
    {"v2_unlimited", NONE, NONE, 8},
    {"v2_high", MIB(3072), 0, 1},              /* memory.high below memory.max; half a CPU */
    {"v2_container", MIB(2048), MIB(1536), 2}, /* own group is the root of the mount */
    {"v1_nested", MIB(5120), MIB(2048), 2},    /* the parent is tighter; 2.5 CPUs */
    {"v1_unlimited", NONE, NONE, 2},
    {"v1_container", MIB(3072), MIB(2560), 4}, /* the parent is seen in memory.stat alone */
    {"hybrid", MIB(1024), 0, 6},               /* memory in v1, CPUs in v2; use above the limit */
};

static void test_recorded_trees(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        const struct expected *e = &trees[i];
        char root[512];
        snprintf(root, sizeof root, "%s/tests/base/trees/%s", SL_SOURCE_DIR, e->tree);
        struct sys_memory m;
        sys_memory(root, &m);
        int cpus = sys_usable_cpus(root);
        if (m.cgroup_limit != e->limit || m.cgroup_available != e->available || cpus != e->cpus)
            fail_msg("%s: limit %llu, available %llu, %d CPUs", e->tree,
                     (unsigned long long)m.cgroup_limit, (unsigned long long)m.cgroup_available,
                     cpus);
        assert_int_equal(m.total, UINT64_C(16316416) * 1024);
        assert_int_equal(m.available, MIB(12288));
    }
}

static void test_pressure(void **state)
{
    (void)state;
    static const struct {
        const char *tree;
        bool known;
        uint64_t machine, group;
    } cases[] = {
        {"v2_nested", true, 184467440, 7654321}, /* the middle level waited most */
        {"v1_nested", true, 42, 0},              /* v1 has no such file in its groups */
        {"v2_high", false, 0, 0},                /* a kernel without it */
        {"damaged", false, 0, 0},                /* no total of "some" */
        {"nonexistent", false, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char root[512];
        snprintf(root, sizeof root, "%s/tests/base/trees/%s", SL_SOURCE_DIR, cases[i].tree);
        struct sys_pressure p;
        assert_int_equal(sys_pressure(root, &p), cases[i].known);
        assert_int_equal(p.machine_us, cases[i].machine);
        assert_int_equal(p.group_us, cases[i].group);
    }
}

static void test_damaged_tree(void **state)
{
    (void)state;
    static const char *const roots[] = {SL_SOURCE_DIR "/tests/base/trees/damaged", "/nonexistent"};
    for (int i = 0; i < 2; i++) {
        struct sys_memory m;
        sys_memory(roots[i], &m);
        assert_int_equal(m.total, 0);
        assert_true(m.cgroup_limit == NONE && m.cgroup_available == NONE);
        assert_true(sys_usable_cpus(roots[i]) >= 1);
    }
}

/* Every allocation refused in turn: no crash, no leak, and never a limit that is not there. */
static void test_without_memory(void **state)
{
    (void)state;
    uint64_t before = mem_now();
    for (int n = 0; n < 40; n++) {
        struct sys_memory m;
        mem_fail_after(n);
        sys_memory(SL_SOURCE_DIR "/tests/base/trees/v1_nested", &m);
        int cpus = sys_usable_cpus(SL_SOURCE_DIR "/tests/base/trees/v1_nested");
        mem_fail_after(-1);
        assert_true(cpus >= 1);
        assert_true(m.cgroup_limit >= MIB(5120));
        assert_int_equal(mem_now(), before);
    }
}

static void test_this_machine(void **state)
{
    (void)state;
    struct sys_memory m;
    sys_memory("", &m);
    assert_true(m.total > 0 && m.available > 0 && m.available <= m.total);
    assert_true(m.cgroup_available <= m.cgroup_limit);
    assert_true(sys_usable_cpus("") >= 1);
    printf("total %llu, available %llu, cgroup limit %llu, cgroup available %llu, %d CPUs\n",
           (unsigned long long)m.total, (unsigned long long)m.available,
           (unsigned long long)m.cgroup_limit, (unsigned long long)m.cgroup_available,
           sys_usable_cpus(""));
}

static void test_rss_follows_allocations(void **state)
{
    (void)state;
    struct sys_rss before, after;
    sys_rss("", &before);
    size_t n = (size_t)64 << 20;
    char *p = mem_map(n, 0);
    assert_non_null(p);
    memset(p, 1, n);
    sys_rss("", &after);
    mem_unmap(p, n);
    assert_true(before.anon > 0);
    assert_true(after.anon >= before.anon + n - MIB(1));
    (void)sys_majflt();
}

static void test_recorded_status(void **state)
{
    (void)state;
    struct sys_rss rss;
    sys_rss(SL_SOURCE_DIR "/tests/base/trees/v2_high", &rss); /* a kernel that tells VmRSS alone */
    assert_true(rss.anon == 0 && rss.file == 0 && rss.shmem == 0);
    sys_rss(SL_SOURCE_DIR "/tests/base/trees/v1_nested", &rss);
    assert_true(rss.anon == MIB(3) && rss.file == MIB(2) && rss.shmem == MIB(1));
    assert_true(sys_mem_available(SL_SOURCE_DIR "/tests/base/trees/v1_nested") > 0);
    assert_true(sys_mem_available(SL_SOURCE_DIR "/tests/base/trees/nothere") == 0);
}

static void test_order_of_cpus(void **state)
{
    (void)state;
    static const struct {
        const char *tree;
        int n, order[8];
    } cases[] = {
        /* 0 and 1, 2 and 3 are fast cores, 0 is not allowed; the rest are slow ones */
        {"cpus_hybrid", 7, {1, 2, 4, 5, 6, 7, 3}},
        {"cpus_smt", 8, {0, 1, 2, 3, 4, 5, 6, 7}}, /* 0 and 4 are a core, 1 and 5 and so on */
        {"v2_high", 3, {0, 2, 3}},                 /* without sysfs: by number */
        {"damaged", 0, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char root[512];
        int cpus[8] = {0};
        snprintf(root, sizeof root, "%s/tests/base/trees/%s", SL_SOURCE_DIR, cases[i].tree);
        assert_int_equal(cpus_order(root, cpus, 8), cases[i].n);
        for (int k = 0; k < cases[i].n; k++)
            assert_int_equal(cpus[k], cases[i].order[k]);
        int two[3] = {-1, -1, -1};
        assert_int_equal(cpus_order(root, two, 2), cases[i].n);
        assert_int_equal(two[2], -1);
    }
}

static void test_lists_of_cpus(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int n;
    } cases[] = {
        {"0", 1},       {"0-3,8,10-11\n", 7},
        {"5,5,4-6", 3}, {"16383", 1},
        {"16384", 0},   {"", 0},
        {"0-", 0},      {"3-2", 0},
        {"-1", 0},      {"0,", 0},
        {"x", 0},       {"0-99999999999999999999", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cpus_mask m;
        assert_int_equal(cpus_parse(cases[i].text, &m), cases[i].n);
    }
    struct cpus_mask m;
    cpus_parse("1,64-65", &m);
    assert_true(m.bits[0] == 2 && m.bits[1] == 3 && m.bits[2] == 0);
}

static void test_resident_pages(void **state)
{
    (void)state;
    size_t page = mem_page_size();
    char *p = mem_map(8 * page, 0);
    assert_non_null(p);
    assert_int_equal(mem_count_resident(p, 8 * page, 8), 0);
    memset(p, 1, 2 * page);
    assert_int_equal(mem_count_resident(p, 8 * page, 8), 2);
    assert_int_equal(mem_count_resident(p, 8 * page, 4), 1);   /* pages 1, 3, 5, 7 */
    assert_int_equal(mem_count_resident(p + 5, page, 64), 64); /* two pages, often */
    assert_int_equal(mem_count_resident(p, 0, 4), 0);
    mem_unmap(p, 8 * page);
    assert_int_equal(mem_count_resident(NULL, page, 1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_trees),  cmocka_unit_test(test_pressure),
        cmocka_unit_test(test_damaged_tree),    cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_this_machine),    cmocka_unit_test(test_rss_follows_allocations),
        cmocka_unit_test(test_recorded_status), cmocka_unit_test(test_resident_pages),
        cmocka_unit_test(test_order_of_cpus),   cmocka_unit_test(test_lists_of_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
