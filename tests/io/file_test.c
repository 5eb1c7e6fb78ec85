/* file_test.c: io_file on real files of this machine, direct and buffered. */
#include "base/mem.h"
#include "base/size.h"
#include "io/file.h"
#include "io/temp_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SIZE ((uint64_t)(6 << 20) + 777) /* an unaligned end */

static char path[256];

static void test_open_refusals(void **state)
{
    (void)state;
    struct io_file *f = (struct io_file *)path;
    struct sl_err e;
    assert_int_equal(io_file_open("no/such/file", true, &f, &e), SL_E_IO);
    assert_null(f);
    assert_string_equal(e.where, "no/such/file");
    assert_non_null(strstr(e.msg, "No such file"));
    assert_int_equal(io_file_open(".", true, &f, &e), SL_E_IO);
    assert_non_null(strstr(e.msg, "directory"));
    assert_int_equal(io_file_open("/dev/null", true, &f, &e), SL_E_IO);
    assert_non_null(strstr(e.msg, "regular"));
    char fifo[300];
    snprintf(fifo, sizeof fifo, "%s.fifo", path);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(io_file_open(fifo, true, &f, &e), SL_E_IO); /* and does not wait */
    unlink(fifo);
    io_file_close(&f);
    io_file_close(NULL);
}

static void test_empty_file(void **state)
{
    (void)state;
    char empty[256];
    assert_int_equal(temp_create(".", 0, empty), 0);
    struct io_file *f;
    struct sl_err e;
    assert_int_equal(io_file_open(empty, true, &f, &e), 0);
    assert_int_equal(io_file_size(f), 0);
    assert_false(io_file_direct(f));
    const uint8_t *base;
    assert_int_equal(io_file_map(f, &base, &e), SL_E_IO);
    uint8_t b;
    assert_int_equal(io_file_read_any(f, &b, 0, 1, &e), SL_E_IO);
    assert_int_equal(io_file_read_any(f, &b, 0, 0, &e), 0);
    io_file_close(&f);
    unlink(empty);
}

static void check_window(struct io_file *f, uint8_t *buf, uint64_t from, size_t n)
{
    size_t a = io_file_align(f);
    uint64_t start = size_down(from, a);
    size_t skip = (size_t)(from - start), len = (size_t)size_up(skip + n, a);
    memset(buf, 0xcc, len);
    struct sl_err e = {0};
    if (io_file_read(f, buf, start, len, skip + n, &e) != 0)
        fail_msg("%s: %s", e.where, e.msg);
    assert_int_equal(temp_first_wrong(buf + skip, from, n), n);
}

static void random_reads(struct io_file *f, uint64_t *rng, int rounds)
{
    size_t room = 2 << 20;
    uint8_t *buf = mem_map(room + 2 * io_file_align(f), 0);
    assert_non_null(buf);
    for (int i = 0; i < rounds; i++) {
        size_t most = (size_t)1 << (temp_random(rng) % 21);
        size_t n = 1 + (size_t)(temp_random(rng) % most);
        uint64_t from = temp_random(rng) % (SIZE - n + 1);
        if (i % 16 == 0)
            from = SIZE - n; /* the end */
        check_window(f, buf, from, n);
        memset(buf, 0xcc, n);
        uint8_t *odd = buf + temp_random(rng) % 64;
        assert_int_equal(io_file_read_any(f, odd, from, n, NULL), 0);
        assert_int_equal(temp_first_wrong(odd, from, n), n);
    }
    mem_unmap(buf, room + 2 * io_file_align(f));
}

static void test_random_reads(void **state)
{
    (void)state;
    uint64_t rng = temp_seed();
    for (int direct = 0; direct < 2; direct++)
        for (int drop = 0; drop < 2; drop++) {
            struct io_file *f;
            assert_int_equal(io_file_open(path, direct, &f, NULL), 0);
            assert_string_equal(io_file_path(f), path);
            assert_int_equal(io_file_size(f), SIZE);
            io_file_drop_behind(f, drop);
            random_reads(f, &rng, 150);
            uint8_t *all = mem_alloc(SIZE);
            assert_int_equal(io_file_read_any(f, all, 0, SIZE, NULL), 0);
            assert_int_equal(temp_first_wrong(all, 0, SIZE), SIZE);
            mem_free(all);
            io_file_close(&f);
        }
}

/* Direct reads leave the page cache alone; that is what they are for. */
static void test_direct_stays_out_of_page_cache(void **state)
{
    (void)state;
    struct io_file *f;
    assert_int_equal(io_file_open(path, true, &f, NULL), 0);
    if (!io_file_direct(f)) {
        printf("no direct reads in the working directory (%s): nothing to check\n",
               io_file_note(f));
        io_file_close(&f);
        skip();
    }
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    double before = io_file_cached(f, 0, SIZE, 64);
    uint8_t *buf = mem_map((size_t)1 << 20, 0);
    for (uint64_t at = 0; at < SIZE; at += 1 << 20)
        assert_int_equal(io_file_read(f, buf, at, 1 << 20,
                                      SIZE - at < 1 << 20 ? (size_t)(SIZE - at) : 1 << 20, NULL),
                         0);
    mem_unmap(buf, (size_t)1 << 20);
    double after = io_file_cached(f, 0, SIZE, 64);
    printf("in the page cache: %.2f before, %.2f after direct reads\n", before, after);
    assert_true(before < 0.1 && after < 0.1);
    io_file_close(&f);
}

static void test_cached_and_dropped(void **state)
{
    (void)state;
    struct statfs fs;
    assert_int_equal(statfs(".", &fs), 0);
    if (fs.f_type == TMPFS_MAGIC) {
        printf("the working directory is a tmpfs: its pages cannot be dropped\n");
        skip();
    }
    struct io_file *f;
    assert_int_equal(io_file_open(path, false, &f, NULL), 0);
    uint8_t *all = mem_alloc(SIZE);
    assert_int_equal(io_file_read_any(f, all, 0, SIZE, NULL), 0);
    double kept = io_file_cached(f, 0, SIZE, 64);
    io_file_drop_behind(f, true);
    assert_int_equal(io_file_read_any(f, all, 0, SIZE, NULL), 0);
    double dropped = io_file_cached(f, 0, SIZE, 64);
    printf("in the page cache: %.2f after buffered reads, %.2f with drop-behind\n", kept, dropped);
    assert_true(kept > 0.9);
    assert_true(dropped < 0.1);
    mem_free(all);
    io_file_close(&f);
}

static void test_tmpfs_is_not_direct(void **state)
{
    (void)state;
    struct statfs fs;
    char shm[256];
    if (statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC ||
        temp_create("/dev/shm", SIZE, shm) != 0) {
        printf("no writable tmpfs at /dev/shm\n");
        skip();
    }
    struct io_file *f;
    assert_int_equal(io_file_open(shm, true, &f, NULL), 0);
    assert_false(io_file_direct(f));
    assert_non_null(strstr(io_file_note(f), "tmpfs"));
    uint64_t rng = 5;
    random_reads(f, &rng, 20);
    io_file_close(&f);
    unlink(shm);
}

static void test_map(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct io_file *f;
        const uint8_t *base, *again;
        assert_int_equal(io_file_open(path, direct, &f, NULL), 0);
        assert_int_equal(io_file_map(f, &base, NULL), 0);
        assert_int_equal(io_file_map(f, &again, NULL), 0);
        assert_ptr_equal(base, again);
        assert_int_equal(temp_first_wrong(base, 0, SIZE), SIZE);
        io_file_close(&f);
    }
}

static void test_truncated_meanwhile(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        char victim[256];
        assert_int_equal(temp_create(".", 1 << 20, victim), 0);
        struct io_file *f;
        struct sl_err e = {0};
        assert_int_equal(io_file_open(victim, direct, &f, NULL), 0);
        assert_int_equal(truncate(victim, 1 << 19), 0);
        uint8_t *buf = mem_map((size_t)1 << 20, 0);
        assert_int_equal(io_file_read(f, buf, 0, 1 << 20, 1 << 20, &e), SL_E_IO);
        assert_non_null(strstr(e.msg, "ends after 524288"));
        assert_int_equal(io_file_read(f, buf, 0, 1 << 20, 1 << 19, &e), 0);
        mem_unmap(buf, (size_t)1 << 20);
        io_file_close(&f);
        unlink(victim);
    }
}

/* The file was moved away before its unaligned end is needed. */
static void test_renamed_meanwhile(void **state)
{
    (void)state;
    char victim[256], moved[300];
    assert_int_equal(temp_create(".", 10000, victim), 0);
    struct io_file *f;
    const uint8_t *base;
    assert_int_equal(io_file_open(victim, true, &f, NULL), 0);
    snprintf(moved, sizeof moved, "%s.moved", victim);
    assert_int_equal(rename(victim, moved), 0);
    struct sl_err e = {0};
    if (io_file_map(f, &base, &e) != 0)
        fail_msg("%s", e.msg);
    assert_int_equal(temp_first_wrong(base, 0, 10000), 10000);
    io_file_close(&f);
    unlink(moved);
}

static void test_descriptor_limit_is_raised(void **state)
{
    (void)state;
    struct rlimit lim;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0); /* files were opened before */
    assert_true(lim.rlim_cur == lim.rlim_max);
}

static int set_up(void **state)
{
    (void)state;
    if (temp_create(".", SIZE, path) != 0) {
        printf("cannot write to the working directory: %s\n", strerror(errno));
        return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_refusals),
        cmocka_unit_test(test_empty_file),
        cmocka_unit_test(test_random_reads),
        cmocka_unit_test(test_direct_stays_out_of_page_cache),
        cmocka_unit_test(test_cached_and_dropped),
        cmocka_unit_test(test_tmpfs_is_not_direct),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_truncated_meanwhile),
        cmocka_unit_test(test_renamed_meanwhile),
        cmocka_unit_test(test_descriptor_limit_is_raised),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
