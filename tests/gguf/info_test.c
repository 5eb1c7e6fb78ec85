/* info_test.c: `sluice info` on the shipped model, whose numbers are known, and on what is no
 * model. The command is called in this process, so that the test also runs under an emulator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "support/fixtures.h"
#include "support/ggufw.h"

#define MODEL SL_SOURCE_DIR "/models/storyteller.gguf"

struct output {
    int status;
    char *out, *err;
};

/* Point a stream's descriptor at a file; returns a copy of the old one. */
static int redirect(FILE *stream, int to)
{
    fflush(stream);
    int old = dup(fileno(stream));
    assert_true(old >= 0 && dup2(to, fileno(stream)) >= 0);
    return old;
}

static void restore(FILE *stream, int old)
{
    fflush(stream);
    assert_true(dup2(old, fileno(stream)) >= 0);
    close(old);
}

static char *slurp(FILE *f)
{
    long n = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    assert_true(n >= 0);
    rewind(f);
    char *p = calloc(1, (size_t)n + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, (size_t)n, f), n);
    fclose(f);
    return p;
}

static struct output info(const char *a, const char *b, const char *c)
{
    char *argv[] = {strdup("info"), strdup(a), strdup(b), strdup(c), NULL}, *all[4];
    memcpy(all, argv, sizeof all); /* the parser reorders argv */
    int argc = c[0] ? 4 : b[0] ? 3 : a[0] ? 2 : 1;
    argv[argc] = NULL;
    FILE *out = tmpfile(), *err = tmpfile();
    assert_true(out && err);
    int old_out = redirect(stdout, fileno(out)), old_err = redirect(stderr, fileno(err));
    struct output o = {.status = cmd_info(argc, argv)};
    restore(stdout, old_out);
    restore(stderr, old_err);
    o.out = slurp(out);
    o.err = slurp(err);
    for (int i = 0; i < 4; i++)
        free(all[i]);
    return o;
}

static void free_output(struct output *o)
{
    free(o->out);
    free(o->err);
}

static void has(const char *text, const char *line)
{
    if (!strstr(text, line))
        fail_msg("no \"%s\" in:\n%s", line, text);
}

static void test_text(void **state)
{
    (void)state;
    struct output o = info(MODEL, "", "");
    assert_int_equal(o.status, 0);
    assert_string_equal(o.err, "");
    has(o.out, "storyteller.gguf, 13175616 bytes (12.57 MiB)\n");
    has(o.out, "GGUF version 3, 32 metadata keys, 74 tensors, 1 shard\n");
    has(o.out, "architecture   qwen3moe\n");
    has(o.out, "parameters     21131264 (4.94 bits each)\n");
    has(o.out, "layers         6, embedding 256, feed-forward 256\n");
    has(o.out, "attention      4 heads, 2 key/value heads, head size 64\n");
    has(o.out, "experts        16 in each of 6 layers, 2 used, width 256\n");
    has(o.out, "context        1024 tokens\n");
    has(o.out, "tokenizer      gpt2, pre-tokenizer qwen2, 4096 tokens, 3837 merges\n");
    has(o.out, "chat template  ChatML, 196 bytes\n");
    has(o.out, "dense weights  1884160 bytes");
    has(o.out, "expert weights 11157504 bytes");
    has(o.out, "a token routes 1394688 bytes"); /* 2 of 16 */
    has(o.out, "Q4_K         22 tensors  9658368 bytes");
    assert_null(strstr(o.out, "blk.0"));
    free_output(&o);
}

static void test_tensors(void **state)
{
    (void)state;
    struct output o = info("--tensors", MODEL, "");
    assert_int_equal(o.status, 0);
    has(o.out, "blk.5.ffn_down_exps.weight");
    has(o.out, "256 x 256 x 16");
    free_output(&o);
}

static json_int_t number(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_integer(v))
        fail_msg("%s is no integer", key);
    return json_integer_value(v);
}

static void test_json(void **state)
{
    (void)state;
    struct output o = info(MODEL, "--json", "--tensors");
    assert_int_equal(o.status, 0);
    json_t *j = json_loads(o.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    assert_string_equal(json_string_value(json_object_get(j, "architecture")), "qwen3moe");
    assert_int_equal(number(j, "layers"), 6);
    assert_int_equal(number(j, "experts"), 16);
    assert_int_equal(number(j, "experts_used"), 2);
    assert_int_equal(number(j, "context"), 1024);
    assert_int_equal(number(j, "file_bytes"), 13175616);
    assert_int_equal(number(j, "token_expert_bytes"), 1394688);
    assert_int_equal(number(json_object_get(j, "tokenizer"), "tokens"), 4096);
    assert_true(json_is_true(json_object_get(json_object_get(j, "chat_template"), "chatml")));
    assert_int_equal(json_array_size(json_object_get(j, "shards")), 1);
    json_int_t dense = 0, experts = 0, types = 0;
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(j, "tensors"), i, t)
    {
        if (json_is_true(json_object_get(t, "expert")))
            experts += number(t, "bytes");
        else
            dense += number(t, "bytes");
        assert_int_equal(json_array_size(json_object_get(t, "shape")) >= 1, 1);
    }
    assert_int_equal(i, 74);
    json_array_foreach(json_object_get(j, "types"), i, t) types += number(t, "bytes");
    assert_int_equal(dense, number(j, "dense_bytes"));
    assert_int_equal(experts, number(j, "expert_bytes"));
    assert_int_equal(types, dense + experts);
    json_decref(j);
    free_output(&o);
}

/* A file that says nothing about itself, in bytes that are no UTF-8. */
static void test_unknown(void **state)
{
    (void)state;
    char path[600];
    struct ggufw w;
    snprintf(path, sizeof path, "%s/odd.gguf", fixture_temp_dir());
    ggufw_init(&w);
    ggufw_str(&w, "general.name", "\xff\x1b[31m");
    ggufw_arr(&w, "tokenizer.ggml.tokens", 0, 2, "ab", 2);
    ggufw_save(&w, path);
    ggufw_free(&w);
    struct output o = info(path, "--json", "");
    assert_int_equal(o.status, 0);
    json_t *j = json_loads(o.out, 0, NULL);
    assert_non_null(j);
    assert_true(json_is_null(json_object_get(j, "architecture")));
    assert_true(json_is_null(json_object_get(j, "layers")));
    assert_true(json_is_null(json_object_get(j, "chat_template")));
    assert_string_equal(json_string_value(json_object_get(j, "name")), "?\x1b[31m");
    json_decref(j);
    free_output(&o);
    o = info(path, "", "");
    assert_int_equal(o.status, 0);
    assert_null(strchr(o.out, '\x1b'));
    has(o.out, "architecture   not given\n");
    has(o.out, "experts        none\n");
    free_output(&o);
}

static void test_split(void **state)
{
    (void)state;
    static const uint64_t dims[] = {32, 2, 4};
    char path[2][600];
    for (uint16_t no = 0; no < 2; no++) {
        struct ggufw w;
        ggufw_init(&w);
        ggufw_u16(&w, "split.no", no);
        ggufw_u16(&w, "split.count", 2);
        if (no == 0) {
            ggufw_str(&w, "general.architecture", "test");
            ggufw_arr(&w, "test.attention.head_count", 4, 2, (uint32_t[]){8, 4}, 8);
            ggufw_u32(&w, "test.expert_used_count", 3);
        } else {
            ggufw_tensor(&w, "blk.0.ffn_down_exps.weight", 0, 3, dims, NULL, 1024);
        }
        snprintf(path[no], sizeof path[no], "%s/s-%05d-of-00002.gguf", fixture_temp_dir(), no + 1);
        ggufw_save(&w, path[no]);
        ggufw_free(&w);
    }
    struct output o = info(path[0], "", "");
    assert_int_equal(o.status, 0);
    has(o.out, "1 tensors, 2 shards\n");
    has(o.out, "4 to 8 heads");
    has(o.out, "expert weights 1024 bytes");
    has(o.out, "a token routes 768 bytes");
    free_output(&o);
    o = info(path[1], "", "");
    assert_int_equal(o.status, 1);
    has(o.err, "this is shard 2 of 2; open the first one instead");
    free_output(&o);
}

/* One line on standard error, nothing on standard output. */
static void refused(const char *a, const char *b, int status, const char *words)
{
    struct output o = info(a, b, "");
    assert_int_equal(o.status, status);
    assert_string_equal(o.out, "");
    assert_memory_equal(o.err, "sluice: ", 8);
    has(o.err, words);
    assert_ptr_equal(strchr(o.err, '\n'), o.err + strlen(o.err) - 1);
    free_output(&o);
}

static void test_refused(void **state)
{
    (void)state;
    refused("/nonexistent/model.gguf", "", 1, "/nonexistent/model.gguf: ");
    refused(fixture_temp_dir(), "", 1, "directory");
    refused(SL_SOURCE_DIR "/CMakeLists.txt", "", 1, "CMakeLists.txt: this is a text file");
    refused("", "", 2, "");
    refused("--no-such-option", MODEL, 2, "--no-such-option");
    refused(MODEL, MODEL, 2, "");
}

int main(void)
{
    struct stat st;
    if (stat(MODEL, &st) != 0) {
        printf("skipped: %s is missing\n", MODEL);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),  cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_json),  cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_split), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
