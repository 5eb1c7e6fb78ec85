/* split_test.c: opening files and split sets by name; what is wrong with a file or a set is said
 * with the file, and with what to open instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "gguf/gguf.h"
#include "quant/quant.h"
#include "support/fixtures.h"
#include "support/ggufw.h"

static const uint64_t d64[] = {64};

/* A path in the test's own directory; eight live at a time. */
static const char *at(const char *name)
{
    static char ring[8][600];
    static int next;
    char *p = ring[next++ % 8];
    snprintf(p, sizeof ring[0], "%s/%s", fixture_temp_dir(), name);
    return p;
}

static const char *shard_name(const char *stem, int no, int count)
{
    char name[300];
    snprintf(name, sizeof name, "%s-%05d-of-%05d.gguf", stem, no, count);
    return at(name);
}

/* A shard: no counts from 0; -1 leaves a key out. */
static void begin_shard(struct ggufw *w, int no, int count, int n_tensors)
{
    ggufw_init(w);
    if (no >= 0)
        ggufw_u16(w, "split.no", (uint16_t)no);
    if (count >= 0)
        ggufw_u16(w, "split.count", (uint16_t)count);
    if (n_tensors >= 0)
        ggufw_i32(w, "split.tensors.count", n_tensors);
}

static void end_shard(struct ggufw *w, const char *tensor, const char *path)
{
    if (tensor)
        ggufw_tensor(w, tensor, QT_F32, 1, d64, NULL, 256);
    ggufw_save(w, path);
    ggufw_free(w);
}

/* STEM with 3 shards, a tensor "t.NO" in each; the first without when bare. */
static void write_set(const char *stem, bool bare)
{
    for (int no = 0; no < 3; no++) {
        char tensor[16];
        snprintf(tensor, sizeof tensor, "t.%d", no);
        struct ggufw w;
        begin_shard(&w, no, 3, bare ? 2 : 3);
        if (no == 0)
            ggufw_str(&w, "general.architecture", "test");
        end_shard(&w, bare && no == 0 ? NULL : tensor, shard_name(stem, no + 1, 3));
    }
}

static void refuse(const char *path, int code, const char *words)
{
    struct gguf *g = NULL;
    struct sl_err err = {0};
    uint64_t before = mem_now();
    int rc = gguf_open(path, &g, &err);
    if (rc != code || !strstr(err.msg, words))
        fail_msg("%s: wanted %d and \"%s\", got %d and \"%s\"", path, code, words, rc, err.msg);
    assert_null(g);
    assert_int_equal(mem_now(), before);
}

static struct gguf *open_ok(const char *path)
{
    struct gguf *g = NULL;
    struct sl_err err = {0};
    if (gguf_open(path, &g, &err) != 0)
        fail_msg("%s: %s", path, err.msg);
    return g;
}

static void test_files(void **state)
{
    (void)state;
    char words[700];
    const char *missing = at("missing.gguf"), *empty = at("empty.gguf"), *text = at("text.gguf");
    snprintf(words, sizeof words, "%s: ", missing);
    refuse(missing, SL_E_IO, words);
    refuse(fixture_temp_dir(), SL_E_IO, "directory");
    ggufw_save_bytes(empty, "", 0);
    snprintf(words, sizeof words, "%s: the file is empty", empty);
    refuse(empty, SL_E_FORMAT, words);
    ggufw_save_bytes(text, "Once upon a time\n", 17);
    snprintf(words, sizeof words, "%s: this is a text file, not a GGUF file", text);
    refuse(text, SL_E_FORMAT, words);
    refuse("/dev/null", SL_E_IO, "/dev/null: ");
}

/* The end of the message survives a path that is longer than the message. */
static void test_long_path(void **state)
{
    (void)state;
    char path[3000], *p = path;
    p += sprintf(p, "%s", fixture_temp_dir());
    while (p - path < 2000)
        p += sprintf(p, "/.");
    sprintf(p, "/long.gguf");
    ggufw_save_bytes(path, "GGUF\1\0\0\0", 8);
    refuse(path, SL_E_UNSUPPORTED, "/long.gguf: GGUF version 1 is too old");
}

static void test_truncated_data(void **state)
{
    (void)state;
    struct ggufw w;
    const char *path = at("cut.gguf");
    ggufw_init(&w);
    ggufw_tensor(&w, "whole", QT_F32, 1, d64, NULL, 256);
    ggufw_tensor(&w, "cut", QT_F32, 1, d64, NULL, 255);
    ggufw_save(&w, path);
    ggufw_free(&w);
    refuse(path, SL_E_FORMAT, "the file is truncated: tensor 'cut' ends at byte");
}

/* A header larger than the first piece that is read; and tensor data that are not read at all. */
static void test_large_header(void **state)
{
    (void)state;
    struct ggufw w;
    enum { N = 150000 };
    const char *path = at("large.gguf");
    char(*text)[24] = malloc(N * sizeof *text);
    const char **s = malloc(N * sizeof *s);
    assert_true(text && s);
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "token%d", i);
        s[i] = text[i];
    }
    ggufw_init(&w);
    ggufw_arr_str(&w, "tokens", s, N);
    ggufw_u32(&w, "after", 5);
    static const uint64_t big[] = {(uint64_t)1 << 20, 1 << 12}; /* 16 GiB, a hole in the file */
    ggufw_tensor(&w, "big", QT_F32, 2, big, NULL, 0);
    ggufw_save(&w, path);
    ggufw_free(&w);
    refuse(path, SL_E_FORMAT, "tensor 'big' ends at byte");
    if (truncate(path, ((off_t)16 << 30) + (8 << 20)) == 0) {
        struct gguf *g = open_ok(path);
        uint64_t v, i = 0;
        struct gguf_str t;
        struct gguf_arr *a;
        assert_int_equal(gguf_get_u64(g, "after", &v, NULL), 1);
        assert_int_equal(gguf_arr_open(g, "tokens", &a, NULL), 1);
        for (; gguf_arr_next_str(a, &t); i++)
            assert_true(t.n == strlen(s[i]) && memcmp(t.p, s[i], t.n) == 0);
        assert_int_equal(i, N);
        gguf_arr_close(&a);
        assert_true(mem_now() < (8 << 20));
        gguf_close(&g);
    }
    free(text);
    free(s);
}

static void test_set(void **state)
{
    (void)state;
    for (int bare = 0; bare <= 1; bare++) {
        write_set(bare ? "bare" : "set", bare);
        const char *first = shard_name(bare ? "bare" : "set", 1, 3);
        struct gguf *g = open_ok(first);
        assert_int_equal(gguf_n_shards(g), 3);
        assert_int_equal(gguf_n_tensors(g), bare ? 2 : 3);
        uint64_t sum = 0;
        for (int i = 0; i < 3; i++) {
            struct stat st;
            assert_string_equal(gguf_shard_path(g, i), shard_name(bare ? "bare" : "set", i + 1, 3));
            assert_int_equal(stat(gguf_shard_path(g, i), &st), 0);
            assert_int_equal(gguf_shard_size(g, i), st.st_size);
            sum += (uint64_t)st.st_size;
        }
        assert_int_equal(gguf_file_bytes(g), sum);
        const struct gguf_tensor *t = gguf_find_tensor(g, "t.2");
        assert_non_null(t);
        assert_int_equal(t->shard, 2);
        assert_int_equal(t->offset + t->bytes, gguf_shard_size(g, 2));
        struct gguf_str arch;
        assert_int_equal(gguf_get_str(g, "general.architecture", &arch, NULL), 1);
        gguf_close(&g);
        assert_int_equal(mem_now(), 0);
    }
}

static void test_later_shard(void **state)
{
    (void)state;
    char words[700];
    write_set("later", false);
    snprintf(words, sizeof words, "this is shard 2 of 3; open the first one instead: %s",
             shard_name("later", 1, 3));
    refuse(shard_name("later", 2, 3), SL_E_ARG, words);
    const char *renamed = at("renamed.gguf");
    assert_int_equal(rename(shard_name("later", 3, 3), renamed), 0);
    refuse(renamed, SL_E_ARG, "this is shard 3 of 3; open the first one instead, whose name ends");
}

static void test_missing_shard(void **state)
{
    (void)state;
    char words[700];
    write_set("gone", true);
    assert_int_equal(unlink(shard_name("gone", 2, 3)), 0);
    snprintf(words, sizeof words, "%s: shard 2 of 3 is missing", shard_name("gone", 2, 3));
    refuse(shard_name("gone", 1, 3), SL_E_IO, words);
}

static void test_first_renamed(void **state)
{
    (void)state;
    write_set("moved", false);
    const char *plain = at("plain.gguf");
    assert_int_equal(rename(shard_name("moved", 1, 3), plain), 0);
    refuse(plain, SL_E_FORMAT, "its name does not end in -00001-of-00003.gguf");
    write_set("moved", false);
    const char *five = shard_name("moved", 1, 5);
    assert_int_equal(rename(shard_name("moved", 1, 3), five), 0);
    refuse(five, SL_E_FORMAT, "the name says shard 1 of 5, the metadata");
}

/* One shard of a set of 3 replaced by something else; the first shard is what is opened. */
static void bad_second(int no, int count, int n_tensors, const char *tensor, int code,
                       const char *words)
{
    struct ggufw w;
    char both[900];
    write_set("mix", false);
    begin_shard(&w, no, count, n_tensors);
    end_shard(&w, tensor, shard_name("mix", 2, 3));
    snprintf(both, sizeof both, "%s: %s", shard_name("mix", 2, 3), words);
    refuse(shard_name("mix", 1, 3), code, both);
}

static void test_mixed_sets(void **state)
{
    (void)state;
    bad_second(2, 3, 3, "t.1", SL_E_FORMAT,
               "expected shard 2 of 3, but its metadata (split.no, split.count) says 3 of 3");
    bad_second(1, 4, 3, "t.1", SL_E_FORMAT, "expected shard 2 of 3");
    bad_second(-1, -1, -1, "t.1", SL_E_FORMAT, "expected shard 2 of 3");
    bad_second(1, 3, 9, "t.1", SL_E_FORMAT, "split.tensors.count differs");
    bad_second(1, 3, 3, "t.0", SL_E_FORMAT, "tensor name 't.0' occurs twice");
    ggufw_save_bytes(shard_name("mix", 2, 3), "GGUF\3\0\0\0", 8);
    refuse(shard_name("mix", 1, 3), SL_E_FORMAT, "-00002-of-00003.gguf: the file is truncated");
    struct ggufw w;
    write_set("mix", false);
    begin_shard(&w, 1, 3, 3);
    end_shard(&w, NULL, shard_name("mix", 2, 3));
    refuse(shard_name("mix", 1, 3), SL_E_FORMAT,
           "split.tensors.count is 3, but the shards hold 2 tensors");
}

static void test_split_keys(void **state)
{
    (void)state;
    struct ggufw w;
    begin_shard(&w, 0, 1000, 1);
    end_shard(&w, "t", at("k-00001-of-01000.gguf"));
    refuse(at("k-00001-of-01000.gguf"), SL_E_UNSUPPORTED, "at most 999 shards");
    begin_shard(&w, 3, 3, 1);
    end_shard(&w, "t", at("k-00001-of-00003.gguf"));
    refuse(at("k-00001-of-00003.gguf"), SL_E_FORMAT, "split.no is 3 but split.count is 3");
    begin_shard(&w, -1, 3, 1);
    end_shard(&w, "t", at("k-00001-of-00003.gguf"));
    refuse(at("k-00001-of-00003.gguf"), SL_E_FORMAT, "split.no is missing");
    begin_shard(&w, 0, -1, 1);
    ggufw_str(&w, "split.count", "3");
    end_shard(&w, "t", at("k-00001-of-00003.gguf"));
    refuse(at("k-00001-of-00003.gguf"), SL_E_FORMAT, "'split.count' is of type string");
}

/* What makes a shard are the keys: these are single files. */
static void test_lookalikes(void **state)
{
    (void)state;
    struct ggufw w;
    static const char *const names[] = {"look-00001-of-00003.gguf", "look-00002-of-00003.gguf",
                                        "look-00001-of-00001.gguf", "look-00000-of-00000.gguf"};
    for (size_t i = 0; i < 4; i++) {
        begin_shard(&w, -1, -1, -1);
        end_shard(&w, "t", at(names[i]));
        struct gguf *g = open_ok(at(names[i]));
        assert_int_equal(gguf_n_shards(g), 1);
        gguf_close(&g);
    }
    begin_shard(&w, 0, 1, 1);
    end_shard(&w, "t", at("one.gguf"));
    struct gguf *g = open_ok(at("one.gguf"));
    assert_int_equal(gguf_n_shards(g), 1);
    gguf_close(&g);
}

static void test_most_shards(void **state)
{
    (void)state;
    enum { N = GGUF_MAX_SHARDS };
    struct ggufw w;
    char tensor[16];
    for (int no = 0; no < N; no++) {
        begin_shard(&w, no, N, -1);
        snprintf(tensor, sizeof tensor, "t.%d", no);
        end_shard(&w, tensor, shard_name("most", no + 1, N));
    }
    struct gguf *g = open_ok(shard_name("most", 1, N));
    assert_int_equal(gguf_n_shards(g), N);
    assert_int_equal(gguf_n_tensors(g), N);
    assert_int_equal(gguf_find_tensor(g, "t.998")->shard, 998);
    gguf_close(&g);
}

static void same_data(const struct gguf *a, const struct gguf *b)
{
    assert_int_equal(gguf_n_tensors(a), gguf_n_tensors(b));
    for (size_t i = 0; i < gguf_n_tensors(a); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(a, i), *u = gguf_find_tensor(b, t->name);
        assert_non_null(u);
        assert_true(t->type == u->type && t->bytes == u->bytes && t->n_dims == u->n_dims);
        uint8_t *p = malloc(t->bytes), *q = malloc(t->bytes);
        FILE *f = fopen(gguf_shard_path(a, t->shard), "rb");
        FILE *h = fopen(gguf_shard_path(b, u->shard), "rb");
        assert_true(p && q && f && h);
        assert_true(fseeko(f, (off_t)t->offset, SEEK_SET) == 0);
        assert_true(fseeko(h, (off_t)u->offset, SEEK_SET) == 0);
        assert_int_equal(fread(p, 1, t->bytes, f), t->bytes);
        assert_int_equal(fread(q, 1, u->bytes, h), u->bytes);
        assert_memory_equal(p, q, t->bytes);
        fclose(f);
        fclose(h);
        free(p);
        free(q);
    }
}

/* Sets made by tools/gguf_split.py hold what the whole file holds. */
static void test_split_tool(void **state)
{
    (void)state;
    static const char model[] = SL_SOURCE_DIR "/tests/data/arch/qwen3moe/model.gguf";
    if (system("python3 -c pass >/dev/null 2>&1") != 0) {
        print_message("skipped: no python3\n");
        skip();
    }
    struct gguf *whole = open_ok(model);
    for (int bare = 0; bare <= 1; bare++) {
        char command[2000];
        snprintf(command, sizeof command,
                 "python3 %s/tools/gguf_split.py %s -n 4 -o %s %s >/dev/null", SL_SOURCE_DIR, model,
                 at(bare ? "tool-bare" : "tool"), bare ? "--bare" : "");
        assert_int_equal(system(command), 0);
        struct gguf *g = open_ok(shard_name(bare ? "tool-bare" : "tool", 1, 4));
        assert_int_equal(gguf_n_shards(g), 4);
        assert_int_equal(gguf_n_kv(g), gguf_n_kv(whole) + 3);
        assert_int_equal(gguf_tensor_at(g, 0)->shard, bare);
        same_data(whole, g);
        gguf_close(&g);
    }
    gguf_close(&whole);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    write_set("mem", false);
    const char *first = shard_name("mem", 1, 3);
    int rc = SL_E_MEM, tries = 0;
    for (; rc == SL_E_MEM && tries < 500; tries++) {
        struct gguf *g = NULL;
        struct sl_err err = {0};
        mem_fail_after(tries);
        rc = gguf_open(first, &g, &err);
        mem_fail_after(-1);
        gguf_close(&g);
        assert_int_equal(mem_now(), 0);
    }
    assert_int_equal(rc, 0);
    assert_true(tries > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_long_path),
        cmocka_unit_test(test_truncated_data),
        cmocka_unit_test(test_large_header),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_later_shard),
        cmocka_unit_test(test_missing_shard),
        cmocka_unit_test(test_first_renamed),
        cmocka_unit_test(test_mixed_sets),
        cmocka_unit_test(test_split_keys),
        cmocka_unit_test(test_lookalikes),
        cmocka_unit_test(test_most_shards),
        cmocka_unit_test(test_split_tool),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
