/* Token ids of published tokenizers, recorded with the library that defines them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "text/vocab.h"

static struct vocab *vocab;

static const char *find_file(char *buf, size_t size)
{
    if (strcmp(GOLDEN_NAME, "qwen3") == 0) {
        snprintf(buf, size, "%s", QWEN3_GGUF);
        return access(buf, R_OK) == 0 ? buf : NULL;
    }
    const char *dir = getenv("SLUICE_TEST_MODELS");
    if (dir) {
        snprintf(buf, size, "%s/%s.gguf", dir, GOLDEN_NAME);
        return access(buf, R_OK) == 0 ? buf : NULL;
    }
    const char *dirs[] = {SL_BINARY_DIR "/test-models", SL_SOURCE_DIR "/build/test-models"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(buf, size, "%s/%s.gguf", dirs[i], GOLDEN_NAME);
        if (access(buf, R_OK) == 0)
            return buf;
    }
    return NULL;
}

/* 1: the line's ids agree. */
static int check_line(const char *line, int number)
{
    json_t *obj = json_loads(line, JSON_ALLOW_NUL, NULL);
    assert_non_null(obj);
    json_t *text = json_object_get(obj, "text"), *want = json_object_get(obj, "ids");
    int32_t *ids;
    size_t n;
    struct sl_err err;
    int rc = vocab_encode(vocab, json_string_value(text), json_string_length(text),
                          SL_TOK_PARSE_CONTROL, &ids, &n, &err);
    if (rc)
        fail_msg("line %d: %s", number, err.msg);
    int same = n == json_array_size(want);
    for (size_t i = 0; same && i < n; i++)
        same = ids[i] == json_integer_value(json_array_get(want, i));
    if (!same)
        print_error("line %d differs: %s\n", number, line);
    mem_free(ids);
    json_decref(obj);
    return same;
}

static void test_ids_equal_the_recorded_ones(void **state)
{
    (void)state;
    FILE *f = fopen(SL_SOURCE_DIR "/tests/data/tokenizers/" GOLDEN_NAME ".jsonl", "rb");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0;
    int lines = 0, same = 0;
    while (getline(&line, &cap, f) > 0)
        same += check_line(line, ++lines);
    free(line);
    fclose(f);
    assert_int_equal(lines, 200);
    assert_int_equal(same, lines);
}

int main(void)
{
    char path[1024];
    if (!find_file(path, sizeof path)) {
        printf("skipped: no " GOLDEN_NAME ".gguf (tests/data/tokenizers/README.md says where it "
               "comes from)\n");
        return 77;
    }
    struct gguf *g = NULL;
    struct sl_err err;
    if (gguf_open(path, &g, &err) != 0 || vocab_open(g, &vocab, &err) != 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    gguf_close(&g);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ids_equal_the_recorded_ones)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    vocab_close(&vocab);
    return rc || mem_now() != 0;
}
