/* The prompts recorded with real models give the recorded ids: Storyteller's always, SmolLM2's
 * where tools/fetch_smollm2.py has put it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/fixtures.h"
#include "text/vocab.h"

static void open_model(const char *path, struct gguf **g, struct vocab **v)
{
    struct sl_err err;
    if (gguf_open(path, g, &err) != 0 || vocab_open(*g, v, &err) != 0)
        fail_msg("%s", err.msg);
}

static void check_prompts(const char *path, const char *name)
{
    struct gguf *g;
    struct vocab *v;
    open_model(path, &g, &v);
    int n;
    struct real_case *cases = fixture_load_cases(name, vocab_size(v), &n);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        int32_t *ids;
        size_t n_ids;
        struct sl_err err;
        assert_int_equal(vocab_encode(v, cases[i].prompt, strlen(cases[i].prompt),
                                      SL_TOK_PARSE_CONTROL, &ids, &n_ids, &err),
                         0);
        assert_int_equal(n_ids, cases[i].n_prompt);
        assert_memory_equal(ids, cases[i].ids, n_ids * sizeof *ids);
        mem_free(ids);
    }
    fixture_free_cases(cases, n);
    vocab_close(&v);
    gguf_close(&g);
}

#define STORYTELLER SL_SOURCE_DIR "/models/storyteller.gguf"

static void test_storyteller(void **state)
{
    (void)state;
    check_prompts(STORYTELLER, "storyteller");
}

static void test_smollm2(void **state)
{
    (void)state;
    char path[1024];
    const char *dir = getenv("SLUICE_TEST_MODELS");
    snprintf(path, sizeof path, "%s/smollm2.gguf", dir ? dir : SL_SOURCE_DIR "/build/test-models");
    if (access(path, R_OK) != 0)
        skip();
    check_prompts(path, "smollm2");
}

/* A turn is what the rendered template gives. */
static void test_turn_equals_the_recorded_prompt(void **state)
{
    (void)state;
    static const char before[] = "<|im_start|>user\n",
                      after[] = "<|im_end|>\n<|im_start|>assistant\n";
    struct gguf *g;
    struct vocab *v;
    open_model(STORYTELLER, &g, &v);
    int n, turns = 0;
    struct real_case *cases = fixture_load_cases("storyteller", vocab_size(v), &n);
    for (int i = 0; i < n; i++) {
        size_t len = strlen(cases[i].prompt), frame = sizeof before + sizeof after - 2;
        if (strncmp(cases[i].prompt, before, sizeof before - 1) != 0)
            continue;
        int32_t *ids;
        size_t n_ids;
        struct sl_err err;
        assert_int_equal(chat_encode_user(v, g, cases[i].prompt + sizeof before - 1, len - frame,
                                          &ids, &n_ids, &err),
                         0);
        assert_int_equal(n_ids, cases[i].n_prompt);
        assert_memory_equal(ids, cases[i].ids, n_ids * sizeof *ids);
        mem_free(ids);
        turns++;
    }
    assert_true(turns > 0);
    fixture_free_cases(cases, n);
    vocab_close(&v);
    gguf_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storyteller),
        cmocka_unit_test(test_smollm2),
        cmocka_unit_test(test_turn_equals_the_recorded_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
