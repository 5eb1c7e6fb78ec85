/* base_test.c: errors, counted memory, clocks, the floating-point environment. */
#include "base/clock.h"
#include "base/err.h"
#include "base/fpenv.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/start.h"
#include "base/touch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fenv.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static void test_err_text(void **state)
{
    (void)state;
    struct sl_err e;
    assert_int_equal(err_set(&e, SL_E_ARG, "--x", "value %d", 7), SL_E_ARG);
    assert_int_equal(e.code, SL_E_ARG);
    assert_string_equal(e.where, "--x");
    assert_string_equal(e.msg, "value 7");
    assert_int_equal(err_sys(&e, SL_E_IO, NULL, ENOENT, "open"), SL_E_IO);
    assert_string_equal(e.where, "");
    assert_string_equal(e.msg, "open: No such file or directory");
    assert_int_equal(err_set(NULL, SL_E_MEM, "a", "b"), SL_E_MEM);
    assert_string_equal(sl_code_name(SL_OK), "SL_OK");
    assert_string_equal(sl_code_name(SL_E_INTERNAL), "SL_E_INTERNAL");
    assert_string_equal(sl_code_name(-12), "?");
    assert_string_equal(sl_code_name(1), "?");
}

static void test_err_cleans_and_cuts(void **state)
{
    (void)state;
    struct sl_err e;
    err_set(&e, SL_E_FORMAT, "a\x1b[2Jb", "x\ny\x7f \xc2\x9b \x9b \xff \xed\xa0\x80 \xc3\xa4 \xe2");
    assert_string_equal(e.where, "a?[2Jb");
    assert_string_equal(e.msg, "x?y? ?? ? ? ??? \xc3\xa4 ?");
    char path[400];
    memset(path, 'd', sizeof path);
    strcpy(path + sizeof path - 12, "/model.gguf");
    err_set(&e, SL_E_IO, path, "%s%s", path, path);
    assert_int_equal(strlen(e.where), sizeof e.where - 1);
    assert_string_equal(e.where + strlen(e.where) - 11, "/model.gguf");
    assert_memory_equal(e.where, "...d", 4);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    err_sys(&e, SL_E_IO, "f", EIO, "%s%s", path, path);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
}

static void test_err_wraps_itself(void **state)
{
    (void)state;
    struct sl_err e;
    err_set(&e, SL_E_IO, "file", "inner");
    err_set(&e, e.code, e.where, "outer: %s", e.msg);
    assert_string_equal(e.where, "file");
    assert_string_equal(e.msg, "outer: inner");
}

static void test_mem_counts(void **state)
{
    (void)state;
    static const size_t sizes[] = {
        0, 1, 63, 64, 65, 4096, MEM_MAP_MIN - 65, MEM_MAP_MIN - 64, MEM_MAP_MIN, 1 << 20};
    uint64_t before = mem_now();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *p = mem_calloc(1, sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % MEM_ALIGN, 0);
        assert_true(mem_now() >= before + sizes[i]);
        assert_true(mem_peak() >= mem_now());
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(p[j], 0);
        mem_free(p);
        assert_int_equal(mem_now(), before);
    }
    assert_null(mem_calloc(SIZE_MAX / 2, 3));
    assert_null(mem_alloc(SIZE_MAX));
    assert_null(mem_alloc(SIZE_MAX - 63));
    assert_null(mem_map(0, 0));
    assert_null(mem_map(SIZE_MAX, 0));
    assert_int_equal(mem_now(), before);
    mem_free(NULL);
    mem_unmap(NULL, 1);
}

static void test_mem_realloc(void **state)
{
    (void)state;
    uint64_t before = mem_now();
    uint32_t *p = NULL;
    size_t n = 0;
    for (size_t want = 16; want <= (size_t)4 << 20; want = want * 3 / 2) {
        p = mem_realloc(p, want * sizeof *p);
        assert_non_null(p);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], i * 2654435761u & UINT32_MAX);
        for (; n < want; n++)
            p[n] = (uint32_t)(n * 2654435761u);
    }
    uint64_t large = mem_now();
    assert_null(mem_realloc(p, SIZE_MAX)); /* the old block stays */
    for (size_t want = n; want > 8; want /= 3) {
        p = mem_realloc(p, want * sizeof *p);
        assert_non_null(p);
        for (size_t i = 0; i < want; i++)
            assert_int_equal(p[i], i * 2654435761u & UINT32_MAX);
    }
    assert_true(mem_now() < large);
    mem_fail_after(0);
    assert_null(mem_realloc(p, 1 << 20));
    mem_fail_after(-1);
    assert_int_equal(p[1], 2654435761u);
    mem_free(p);
    assert_int_equal(mem_now(), before);
}

static void test_mem_strings_and_failing(void **state)
{
    (void)state;
    char *s = mem_strdup("expert");
    assert_string_equal(s, "expert");
    mem_free(s);
    s = mem_strndup("expert", 3);
    assert_string_equal(s, "exp");
    mem_free(s);
    s = mem_strndup("ex", SIZE_MAX); /* ends at the terminator */
    assert_string_equal(s, "ex");
    mem_free(s);
    mem_fail_after(1);
    s = mem_strdup("a");
    assert_non_null(s);
    assert_null(mem_strdup("b"));
    assert_null(mem_map(1, 0));
    mem_fail_after(-1);
    mem_free(s);
}

static void test_mem_map(void **state)
{
    (void)state;
    uint64_t before = mem_now();
    size_t page = mem_page_size();
    uint8_t *p = mem_map(((size_t)3 << 20) + 1, MEM_HUGE | MEM_DONTFORK);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % ((size_t)2 << 20), 0);
    assert_int_equal(mem_now() - before, size_up(((size_t)3 << 20) + 1, page));
    p[0] = p[(size_t)3 << 20] = 7;
    mem_populate(p + 100, (size_t)3 << 20); /* unaligned; contents stay */
    assert_int_equal(p[0], 7);
    assert_int_equal(p[5000], 0);
    mem_unmap(p, ((size_t)3 << 20) + 1);
    assert_int_equal(mem_now(), before);
}

static void count_done(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

/* Kernels before 5.14 refuse to populate memory; emulators say that they did and did not. */
static bool can_populate(void)
{
#ifdef MADV_POPULATE_WRITE
    size_t page = mem_page_size();
    uint8_t *p = mem_map(page, 0);
    assert_non_null(p);
    bool can = madvise(p, page, MADV_POPULATE_WRITE) == 0 && mem_count_resident(p, page, 1) == 1;
    mem_unmap(p, page);
    return can;
#else
    return false;
#endif
}

/* Pieces are touched in their order, each once whole; whoever ends it learns how far it came; and
 * it is told once that it is over, whichever way. */
static void test_touch(void **state)
{
    (void)state;
    size_t bytes = (size_t)24 << 20, cut = ((size_t)5 << 20) + 4096;
    for (int wait = 0; wait < 2; wait++) {
        uint8_t *p = mem_map(bytes, 0);
        assert_non_null(p);
        p[cut] = 9;
        struct touch_piece piece[] = {
            {p + cut, bytes - cut}, {p, 0}, {p, cut}, {p, 4096} /* again does no harm */};
        atomic_int done;
        atomic_init(&done, 0);
        struct touch t;
        touch_begin(&t, piece, 4, count_done, &done);
        while (wait && !atomic_load(&done))
            clock_sleep(0.001);
        int n = touch_end(&t);
        assert_true(wait ? n == 4 : n >= 0 && n <= 4);
        assert_int_equal(atomic_load(&done), 1);
        if (n > 0 && can_populate())
            assert_int_equal(mem_count_resident(piece[0].at, piece[0].bytes, 64), 64);
        assert_int_equal(p[cut], 9); /* contents stay */
        mem_unmap(p, bytes);
    }
    struct touch none;
    atomic_int done;
    atomic_init(&done, 0);
    touch_begin(&none, NULL, 0, count_done, &done);
    assert_int_equal(touch_end(&none), 0);
    assert_int_equal(atomic_load(&done), 1);
}

static void test_sizes(void **state)
{
    (void)state;
    uint64_t v;
    assert_true(size_add(1, 2, &v) && v == 3);
    assert_false(size_add(UINT64_MAX, 1, &v));
    assert_false(size_mul(UINT64_C(1) << 33, UINT64_C(1) << 31, &v));
    assert_int_equal(size_up(4097, 4096), 8192);
    assert_int_equal(size_up(0, 4096), 0);
    assert_int_equal(size_down(8191, 4096), 4096);
}

static void test_clock(void **state)
{
    (void)state;
    double t = clock_now();
    clock_sleep(0.01);
    assert_true(clock_now() - t >= 0.01);
    t = clock_now();
    clock_sleep(-1);
    clock_sleep(0);
    clock_sleep(0.0 / (t - t)); /* NaN */
    assert_true(clock_now() - t < 10);
    assert_true(clock_cpu() > 0);
}

/* The smallest subnormal survives a product only when neither FTZ nor DAZ is set. */
static bool subnormals_kept(void)
{
    volatile float tiny = 1e-45f, one = 1.0f;
    volatile float r = tiny * one;
    return r != 0;
}

static void set_flush_to_zero(bool on)
{
#if defined(__x86_64__)
    _mm_setcsr(on ? _mm_getcsr() | 0x8040u : _mm_getcsr() & ~0x8040u);
#elif defined(__aarch64__)
    uint64_t v;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(v));
    v = on ? v | (1u << 24) : v & ~(UINT64_C(1) << 24);
    __asm__ __volatile__("msr fpcr, %0" : : "r"(v));
#endif
}

static void test_fpenv(void **state)
{
    (void)state;
    fesetround(FE_UPWARD);
    set_flush_to_zero(true);
    bool flushed = !subnormals_kept();
    uint64_t old = fpenv_enter();
    bool kept = subnormals_kept();
    volatile float third = 1.0f, three = 3.0f;
    third = third / three;
    int inside = fegetround();
    fpenv_restore(old);
    bool flushed_again = !subnormals_kept();
    int outside = fegetround();
    set_flush_to_zero(false);
    fesetround(FE_TONEAREST);
    assert_int_equal(inside, FE_TONEAREST);
    assert_int_equal(outside, FE_UPWARD);
    assert_true(kept);
    assert_true(third == 0x1.555556p-2f);
    assert_int_equal(flushed, flushed_again);
#if defined(__x86_64__) || defined(__aarch64__)
    assert_true(flushed); /* else this test shows nothing */
#endif
}

static void *own_mask(void *out)
{
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, out), 0);
    return NULL;
}

/* What comes from outside goes to the program's threads; what a thread does to itself stays with
 * it. */
static void test_signals_of_a_thread(void **state)
{
    (void)state;
    sigset_t mask, before, after;
    pthread_t t;
    own_mask(&before);
    assert_int_equal(start_thread(&t, "a name", own_mask, &mask), 0);
    pthread_join(t, NULL);
    own_mask(&after);
    for (int sig = 1; sig <= 31; sig++)
        assert_int_equal(sigismember(&before, sig), sigismember(&after, sig));
    assert_true(sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM));
    assert_true(sigismember(&mask, SIGHUP) && sigismember(&mask, SIGALRM));
    assert_false(sigismember(&mask, SIGBUS) || sigismember(&mask, SIGSEGV));
    assert_false(sigismember(&mask, SIGFPE) || sigismember(&mask, SIGILL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err_text),
        cmocka_unit_test(test_err_cleans_and_cuts),
        cmocka_unit_test(test_err_wraps_itself),
        cmocka_unit_test(test_mem_counts),
        cmocka_unit_test(test_mem_realloc),
        cmocka_unit_test(test_mem_strings_and_failing),
        cmocka_unit_test(test_mem_map),
        cmocka_unit_test(test_touch),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_fpenv),
        cmocka_unit_test(test_signals_of_a_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
