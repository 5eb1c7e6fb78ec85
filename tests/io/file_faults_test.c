/* file_faults_test.c: io_file on a file system that fails in every way we know of. */
#include "base/mem.h"
#include "io/file.h"
#include "io/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>

#define SIZE ((size_t)3 * 65536 * 4 + 1234) /* an unaligned end */

static uint8_t *data; /* SIZE bytes */
static uint8_t *buf;  /* 1 MiB, aligned to 64 KiB */
static size_t page;

static struct io_file *open_sim(bool direct)
{
    struct io_file *f = NULL;
    struct sl_err e = {0};
    assert_int_equal(io_file_open("sim.gguf", direct, &f, &e), 0);
    assert_non_null(f);
    return f;
}

static void close_sim(struct io_file *f)
{
    io_file_close(&f);
    assert_null(f);
    assert_int_equal(sim.open_fds, 0);
}

/* Windows over the whole file, its end included, must arrive right. */
static void check_reads(struct io_file *f)
{
    size_t a = io_file_align(f);
    for (uint64_t at = 0; at < SIZE; at += 5 * a) {
        size_t len = 7 * a;
        size_t need = SIZE - at < len ? SIZE - at : len - 3;
        memset(buf, 0xcc, len);
        struct sl_err e = {0};
        if (io_file_read(f, buf, at, len, need, &e) != 0)
            fail_msg("%s: %s", e.where, e.msg);
        assert_memory_equal(buf, data + at, need);
    }
}

static void check_read_any(struct io_file *f)
{
    static const size_t at[] = {0, 1, 511, 4095, 4096, 70001, SIZE - 1, SIZE - 5000, SIZE - 200000};
    static const size_t lens[] = {0, 1, 2, 512, 4096, 4097, 65536, 199999};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        for (size_t j = 0; j < sizeof lens / sizeof *lens; j++) {
            if (at[i] + lens[j] > SIZE)
                continue;
            memset(buf, 0xcc, lens[j] + 1);
            assert_int_equal(io_file_read_any(f, buf + 1, at[i], lens[j], NULL), 0);
            assert_memory_equal(buf + 1, data + at[i], lens[j]);
            assert_int_equal(buf[0], 0xcc);
        }
}

static void test_all_well(void **state)
{
    (void)state;
    sim_reset(data, SIZE);
    struct io_file *f = open_sim(true);
    assert_true(io_file_direct(f));
    assert_string_equal(io_file_note(f), "");
    assert_int_equal(io_file_align(f), page);
    assert_int_equal(io_file_size(f), SIZE);
    assert_int_equal(sim.open_fds, 1); /* the buffered descriptor is closed after the probe */
    int buffered = sim.reads_buffered;
    check_reads(f);
    check_read_any(f);
    assert_int_equal(sim.reads_buffered, buffered);
    assert_int_equal(sim.misaligned, 0);
    close_sim(f);

    sim_reset(data, SIZE);
    f = open_sim(false);
    assert_false(io_file_direct(f));
    assert_string_equal(io_file_note(f), "");
    assert_int_equal(sim.opens_direct, 0);
    check_reads(f);
    check_read_any(f);
    close_sim(f);
}

struct refusal {
    const char *name, *in_note;
    void (*set)(void);
};

static void set_einval_open(void)
{
    sim.direct_open_errno = EINVAL;
}
static void set_einval_read(void)
{
    sim.direct_read_errno = EINVAL;
}
static void set_eio_read(void)
{
    sim.direct_read_errno = EIO;
}
static void set_lies(void)
{
    sim.direct_lies = true;
}
static void set_nothing(void)
{
    sim.direct_nothing = true;
}
static void set_cache(void)
{
    sim.through_cache = true;
}
static void set_short(void)
{
    sim.direct_most = 512;
}
static void set_tmpfs(void)
{
    sim.dio.fs_magic = TMPFS_MAGIC;
}
static void set_ramfs(void)
{
    sim.dio.fs_magic = RAMFS_MAGIC;
}
static void set_btrfs(void)
{
    sim.dio.fs_magic = BTRFS_SUPER_MAGIC;
    sim.dio.compressed = true;
}
static void set_f2fs(void)
{
    sim.dio.compressed = true;
}
static void set_zfs(void)
{
    sim.dio.fs_magic = 0x2fc12fc1;
    sim.dio.known = false;
}
static void set_no_dio(void)
{
    sim.dio.mem = sim.dio.offset = 0;
}
static void set_no_dio_unknown(void)
{
    set_no_dio();
    sim.cached_unknown = true;
}
static void set_no_dio_cache(void)
{
    set_no_dio();
    sim.through_cache = true;
}
static void set_odd(void)
{
    sim.dio.mem = 768;
}
static void set_huge(void)
{
    sim.dio.offset = 1u << 21;
}
static void set_replaced(void)
{
    sim.replaced = true;
}

/* What cannot be read direct is read buffered, right, and the note says why. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        {"EINVAL at open", "Invalid argument", set_einval_open},
        {"EINVAL at read", "Invalid argument", set_einval_read},
        {"EIO at read", "Input/output", set_eio_read},
        {"wrong bytes", "other bytes", set_lies},
        {"no bytes", "other bytes", set_nothing},
        {"page cache", "page cache", set_cache},
        {"less than a block", "short", set_short},
        {"tmpfs", "tmpfs", set_tmpfs},
        {"ramfs", "ramfs", set_ramfs},
        {"btrfs", "btrfs", set_btrfs},
        {"f2fs", "compressed", set_f2fs},
        {"zfs", "ZFS", set_zfs},
        {"denied, no proof", "no direct reads", set_no_dio_unknown},
        {"denied, rightly", "page cache", set_no_dio_cache},
        {"odd alignment", "alignment", set_odd},
        {"huge alignment", "alignment", set_huge},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim_reset(data, SIZE);
        cases[i].set();
        struct io_file *f = open_sim(true);
        if (io_file_direct(f) || !strstr(io_file_note(f), cases[i].in_note))
            fail_msg("%s: direct %d, note '%s'", cases[i].name, io_file_direct(f), io_file_note(f));
        assert_int_equal(sim.open_fds, 1);
        check_reads(f);
        check_read_any(f);
        close_sim(f);
    }
}

static void test_alignments(void **state)
{
    (void)state;
    static const uint32_t aligns[] = {1, 512, 4096, 8192, 65536};
    for (size_t i = 0; i < sizeof aligns / sizeof *aligns; i++) {
        sim_reset(data, SIZE);
        sim.dio.mem = sim.dio.offset = aligns[i];
        struct io_file *f = open_sim(true);
        assert_true(io_file_direct(f));
        assert_int_equal(io_file_align(f), aligns[i] > page ? aligns[i] : page);
        check_reads(f);
        check_read_any(f);
        assert_int_equal(sim.misaligned, 0);
        close_sim(f);
    }
    sim_reset(data, SIZE); /* denied, but it works: an emulator that doesn't know the fields */
    set_no_dio();
    memset(sim.cached, 1, sizeof sim.cached);
    struct io_file *g = open_sim(true);
    assert_true(io_file_direct(g));
    check_reads(g);
    close_sim(g);
    sim_reset(data, SIZE); /* nothing reported: page size, by trial */
    sim.dio = (struct io_dio_info){.fs_magic = BTRFS_SUPER_MAGIC};
    struct io_file *f = open_sim(true);
    assert_true(io_file_direct(f));
    check_reads(f);
    close_sim(f);
}

/* After a short direct read, reading goes on from an aligned position. */
static void test_short_reads(void **state)
{
    (void)state;
    static const size_t most[] = {513, 4096, 5000, 10007};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        sim_reset(data, SIZE);
        struct io_file *f = open_sim(true);
        sim.direct_most = sim.buffered_most = most[i];
        int direct_before = sim.reads_direct;
        check_reads(f);
        check_read_any(f);
        assert_int_equal(sim.misaligned, 0);
        assert_true(sim.reads_direct > direct_before);
        assert_true(io_file_direct(f));
        close_sim(f);
    }
}

static void test_unaligned_end(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        sim_reset(data, SIZE);
        sim.tail_refused = kind & 1;
        sim.tail_cut = !(kind & 1);
        struct io_file *f = open_sim(true);
        sim.no_proc = kind >= 2;
        int before = sim.reads_buffered;
        check_reads(f);
        check_read_any(f);
        assert_true(io_file_direct(f)); /* only the end needed help */
        assert_true(sim.reads_buffered > before);
        assert_int_equal(sim.open_fds, 2);
        assert_int_equal(sim.misaligned, 0);
        close_sim(f);
    }
}

static void test_replaced_file(void **state)
{
    (void)state;
    sim_reset(data, SIZE);
    sim.tail_cut = true;
    struct io_file *f = open_sim(true);
    set_replaced();
    check_reads(f); /* through /proc: still the file that was opened */
    close_sim(f);

    sim_reset(data, SIZE);
    sim.tail_cut = sim.no_proc = true;
    f = open_sim(true);
    set_replaced();
    struct sl_err e = {0};
    assert_int_equal(io_file_read_any(f, buf, SIZE - 10, 10, &e), SL_E_IO);
    assert_non_null(strstr(e.msg, "replaced"));
    assert_int_equal(io_file_read_any(f, buf, 10, 10, &e), 0);
    close_sim(f);
}

static void test_late_einval(void **state)
{
    (void)state;
    sim_reset(data, SIZE);
    struct io_file *f = open_sim(true);
    sim.direct_fail_after = sim.reads_direct + 3;
    check_reads(f);
    assert_false(io_file_direct(f));
    assert_non_null(strstr(io_file_note(f), "EINVAL"));
    int direct = sim.reads_direct;
    check_reads(f);
    check_read_any(f);
    assert_int_equal(sim.reads_direct, direct);
    close_sim(f);
}

static void test_interruptions(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        sim_reset(data, SIZE);
        sim.eintr_every = 2;
        struct io_file *f = open_sim(direct);
        assert_int_equal(io_file_direct(f), direct);
        sim.direct_most = sim.buffered_most = 20000;
        sim.eagain = 5;
        check_reads(f);
        assert_int_equal(sim.eagain, 0);
        close_sim(f);
    }
}

static void test_drive_error(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        sim_reset(data, SIZE);
        struct io_file *f = open_sim(direct);
        sim.bad_from = 300000;
        sim.bad_to = 300001;
        struct sl_err e = {0};
        assert_int_equal(io_file_read(f, buf, 262144, 65536, 65536, &e), SL_E_IO);
        assert_int_equal(e.code, SL_E_IO);
        assert_string_equal(e.where, "sim.gguf");
        assert_non_null(strstr(e.msg, "65536 bytes at offset 262144"));
        assert_non_null(strstr(e.msg, "Input/output error"));
        assert_int_equal(io_file_read_any(f, buf, 299990, 100, &e), SL_E_IO);
        assert_int_equal(io_file_read(f, buf, 0, 65536, 65536, &e), 0);
        close_sim(f);
    }
}

static void test_shrinking_file(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        sim_reset(data, SIZE);
        struct io_file *f = open_sim(direct);
        sim.size = 262144 + 1000;
        struct sl_err e = {0};
        assert_int_equal(io_file_read(f, buf, 262144, 65536, 1000, &e), 0);
        assert_memory_equal(buf, data + 262144, 1000);
        assert_int_equal(io_file_read(f, buf, 262144, 65536, 1001, &e), SL_E_IO);
        assert_non_null(strstr(e.msg, "1001 bytes at offset 262144"));
        assert_non_null(strstr(e.msg, "ends after 1000"));
        assert_int_equal(io_file_read_any(f, buf, 400000, 10, &e), SL_E_IO);
        assert_non_null(strstr(e.msg, "ends after 0"));
        close_sim(f);
    }
}

/* Beyond 2 GiB one call does not suffice. */
static void test_pieces(void **state)
{
    (void)state;
    size_t len = ((size_t)5 << 29) + 65536; /* 2.5 GiB and a bit; its pages are never touched */
    uint8_t *huge = mem_map(len, 0);
    assert_non_null(huge);
    for (int direct = 0; direct < 2; direct++) {
        sim_reset(data, SIZE);
        struct io_file *f = open_sim(direct);
        assert_int_equal(io_file_direct(f), direct);
        sim.data = NULL;
        sim.size = UINT64_C(9) << 30;
        sim.reads = 0;
        sim.largest = 0;
        assert_int_equal(io_file_read(f, huge, UINT64_C(5) << 30, len, len, NULL), 0);
        assert_int_equal(sim.largest, (size_t)1 << 30);
        assert_int_equal(sim.reads, 3);
        close_sim(f);
    }
    mem_unmap(huge, len);
}

static void test_impossible_requests(void **state)
{
    (void)state;
    sim_reset(data, SIZE);
    struct io_file *f = open_sim(true);
    struct sl_err e = {0};
    assert_int_equal(io_file_read(f, buf, 0, 4096, 4097, &e), SL_E_INTERNAL);
    assert_int_equal(io_file_read(f, buf, UINT64_MAX - 4095, 4096, 4096, &e), SL_E_INTERNAL);
    assert_int_equal(io_file_read(f, buf, 0, SIZE_MAX - 65535, 1, &e), SL_E_INTERNAL);
    assert_int_equal(io_file_read(f, buf, 1, page, page, &e), SL_E_INTERNAL);
    assert_int_equal(io_file_read(f, buf + 1, 0, page, page, &e), SL_E_INTERNAL);
    assert_int_equal(io_file_read(f, buf, 0, page + 1, page, &e), SL_E_INTERNAL);
    assert_int_equal(io_file_read_any(f, buf, UINT64_MAX, 4096, &e), SL_E_INTERNAL);
    assert_int_equal(io_file_read(f, buf, 0, 0, 0, &e), 0);
    mem_fail_after(0);
    assert_int_equal(io_file_read_any(f, buf, 1, 10, &e), SL_E_MEM);
    mem_fail_after(-1);
    close_sim(f);
    for (int n = 0; n < 3; n++) { /* no memory for the file, its name, the probe */
        mem_fail_after(n);
        int rc = io_file_open("sim.gguf", true, &f, &e);
        mem_fail_after(-1);
        assert_int_equal(rc, n < 2 ? SL_E_MEM : 0);
        if (rc == 0)
            assert_false(io_file_direct(f));
        io_file_close(&f);
        assert_int_equal(sim.open_fds, 0);
    }
}

static void test_drop_behind(void **state)
{
    (void)state;
    sim_reset(data, SIZE);
    struct io_file *f = open_sim(false);
    assert_int_equal(io_file_read_any(f, buf, 5000, 10000, NULL), 0);
    assert_int_equal(sim.n_advised, 0);
    io_file_drop_behind(f, true);
    assert_int_equal(sim.advised[0].advice, POSIX_FADV_RANDOM);
    sim.n_advised = 0;
    assert_int_equal(io_file_read_any(f, buf, 3 * page + 5, 4 * page, NULL), 0);
    assert_int_equal(sim.n_advised, 1);
    assert_int_equal(sim.advised[0].advice, POSIX_FADV_DONTNEED);
    assert_int_equal(sim.advised[0].offset, 3 * page);
    assert_int_equal(sim.advised[0].len, 5 * page);
    io_file_drop_behind(f, false);
    assert_int_equal(sim.advised[1].advice, POSIX_FADV_NORMAL);
    close_sim(f);

    sim_reset(data, SIZE); /* the buffered end of a direct file */
    sim.tail_cut = true;
    f = open_sim(true);
    io_file_drop_behind(f, true);
    sim.n_advised = 0;
    assert_int_equal(io_file_read_any(f, buf, SIZE - 10, 10, NULL), 0);
    assert_int_equal(sim.n_advised, 2);
    assert_int_equal(sim.advised[0].advice, POSIX_FADV_RANDOM);
    assert_int_equal(sim.advised[1].advice, POSIX_FADV_DONTNEED);
    close_sim(f);
}

static void test_cached_fraction(void **state)
{
    (void)state;
    sim_reset(data, SIZE);
    struct io_file *f = open_sim(true);
    assert_true(io_file_cached(f, 0, SIZE, 16) == 0);
    memset(sim.cached, 1, SIZE / 2 / page);
    double c = io_file_cached(f, 0, SIZE, 64);
    assert_true(c > 0.45 && c < 0.55);
    assert_true(io_file_cached(f, 0, SIZE / 4, 8) == 1);
    assert_true(io_file_cached(f, SIZE, 100, 8) == 0);
    assert_true(io_file_cached(f, 0, 0, 8) == 0);
    assert_true(io_file_cached(f, 0, 100, 0) == 0);
    assert_true(io_file_cached(f, 0, UINT64_MAX, 64) == c);
    close_sim(f);
}

static int set_up(void **state)
{
    (void)state;
    page = mem_page_size();
    data = malloc(SIZE);
    buf = aligned_alloc(1 << 16, 1 << 20);
    if (!data || !buf)
        return -1;
    uint32_t x = 1;
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
    io_syscalls_replace(&sim_syscalls);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    io_syscalls_replace(NULL);
    free(data);
    free(buf);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_well),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_alignments),    cmocka_unit_test(test_short_reads),
        cmocka_unit_test(test_unaligned_end), cmocka_unit_test(test_replaced_file),
        cmocka_unit_test(test_late_einval),   cmocka_unit_test(test_interruptions),
        cmocka_unit_test(test_drive_error),   cmocka_unit_test(test_shrinking_file),
        cmocka_unit_test(test_pieces),        cmocka_unit_test(test_impossible_requests),
        cmocka_unit_test(test_drop_behind),   cmocka_unit_test(test_cached_fraction),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
