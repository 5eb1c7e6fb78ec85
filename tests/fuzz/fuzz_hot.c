/* fuzz_hot.c: any bytes as a list of hot experts; what the parser accepts keeps its promises and is
 * written back the same; then the parse is repeated with failing allocations. */
#include "base/mem.h"
#include "engine/hot.h"
#include "fuzz/target.h"

#include <stdlib.h>
#include <string.h>

static const struct hot_shape shape = {"0123456789abcdef", 3, 4};

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void walk(struct hot_row *rows, size_t n)
{
    bool seen[12] = {false};
    check(n <= 12 && (n > 0) == (rows != NULL));
    for (size_t i = 0; i < n; i++) {
        check(rows[i].layer >= 0 && rows[i].layer < 3 && rows[i].expert >= 0 && rows[i].expert < 4);
        check(i == 0 || rows[i].uses <= rows[i - 1].uses);
        bool *s = &seen[rows[i].layer * 4 + rows[i].expert];
        check(!*s);
        *s = true;
    }
}

static void write_back(struct hot_row *rows, size_t n)
{
    char *text;
    size_t len, n2;
    struct hot_row *again;
    struct sl_err err;
    check(hot_format(&shape, rows, n, &text, &len, &err) == 0);
    check(hot_parse(text, len, "again", &shape, &again, &n2, &err) == 0 && n2 == n);
    check(n == 0 || memcmp(again, rows, n * sizeof *rows) == 0);
    mem_free(again);
    mem_free(text);
}

static int parse(const uint8_t *data, size_t size, bool more)
{
    struct hot_row *rows;
    size_t n;
    struct sl_err err = {0};
    int rc = hot_parse((const char *)data, size, "fuzz.csv", &shape, &rows, &n, &err);
    check(rc == 0 || (!rows && n == 0 && rc == err.code && err.msg[0]));
    walk(rows, n);
    if (rc == 0 && more)
        write_back(rows, n);
    mem_free(rows);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t before = mem_now();
    int rc = parse(data, size, true);
    mem_fail_after(size % 3);
    int failing = parse(data, size, false);
    mem_fail_after(-1);
    check(failing == rc || failing == SL_E_MEM);
    check(mem_now() == before);
    return 0;
}
