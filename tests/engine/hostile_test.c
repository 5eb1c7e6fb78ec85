/* Well-formed files whose numbers are extreme or do not fit each other: each runs, or is refused
 * with one line; sanitizers watch for overflow and stray reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"
#include "sluice.h"
#include "support/fixtures.h"
#include "support/ggufw.h"

#define N_IDS 5

/* A one-layer qwen3moe model; the metadata says what the tensors have, unless a case overrides it.
 */
struct shape {
    uint32_t n_embd, n_head, n_head_kv, dim_k, dim_v, n_expert, n_used, n_ff, n_vocab, n_ctx;
    enum quant_type type;
};

struct hostile {
    const char *name;
    struct shape s;
    /* One metadata key instead of or beside the shape's: an integer, or a float where is_float. */
    const char *key;
    bool is_float;
    double value;
    const char *nan_in; /* a value of this tensor is NaN */
    float rope_freqs;   /* not 0: a tensor rope_freqs.weight of this value */
    int n_tokens;       /* not 0: a vocabulary of so many tokens */
    const char *words;  /* of the message; NULL: it runs */
};

static const struct shape plain = {.n_embd = 32,
                                   .n_head = 2,
                                   .n_head_kv = 1,
                                   .dim_k = 16,
                                   .dim_v = 16,
                                   .n_expert = 4,
                                   .n_used = 2,
                                   .n_ff = 32,
                                   .n_vocab = 64,
                                   .n_ctx = 128};

static const struct hostile cases[] = {
    {.name = "plain"},
    {.name = "65536 heads", .s = {.n_head = 65536, .n_head_kv = 65536, .dim_k = 2, .dim_v = 2}},
    {.name = "a head of 65536 values",
     .s = {.n_head = 1, .dim_k = 65536, .dim_v = 65536, .type = QT_F16}},
    {.name = "heads no multiple", .s = {.n_head = 3, .n_head_kv = 2}, .words = "no multiple"},
    {.name = "odd widths", .s = {.n_embd = 33, .n_head = 3, .dim_k = 6, .dim_v = 5, .n_ff = 7}},
    {.name = "one of all",
     .s = {.n_embd = 1,
           .n_head = 1,
           .n_head_kv = 1,
           .dim_k = 2,
           .dim_v = 1,
           .n_expert = 1,
           .n_used = 1,
           .n_ff = 1,
           .n_vocab = 64,
           .n_ctx = 8}},
    {.name = "65536 experts", .s = {.n_embd = 2, .n_expert = 65536, .n_used = 128, .n_ff = 1}},
    {.name = "65537 experts",
     .s = {.n_embd = 2, .n_expert = 65537, .n_used = 1, .n_ff = 1},
     .words = "expert_count is 65537"},
    {.name = "more used than there are", .s = {.n_used = 5}, .words = "expert_used_count is 5"},
    {.name = "none used",
     .key = "expert_used_count",
     .value = 0,
     .words = "expert_used_count is 0"},
    {.name = "too many used",
     .s = {.n_embd = 2, .n_expert = 256, .n_used = 129, .n_ff = 1},
     .words = "expert_used_count is 129"},
    {.name = "context of one", .s = {.n_ctx = 1}, .words = "do not fit into the context of 1"},
    {.name = "largest context", .s = {.n_ctx = INT32_MAX / 2}},
    {.name = "too large a context", .s = {.n_ctx = UINT32_MAX}, .words = "context_length"},
    {.name = "quantised", .s = {.type = QT_Q8_0}},
    {.name = "odd rotation", .key = "rope.dimension_count", .value = 15, .words = "is odd"},
    {.name = "more rotated than a head has",
     .key = "rope.dimension_count",
     .value = 18,
     .words = "rope.dimension_count is 18"},
    {.name = "negative heads", .key = "attention.head_count", .value = -1, .words = "is -1"},
    {.name = "heads beyond 64 bits of product",
     .key = "attention.key_length",
     .value = 4294967295.0,
     .words = "key_length is 4294967295"},
    {.name = "expert count without tensors",
     .key = "expert_count",
     .value = 65536,
     .words = "the metadata says 32 x 65536"},
    {.name = "layers without tensors", .key = "block_count", .value = 1024, .words = "blk.1."},
    {.name = "NaN for epsilon",
     .key = "attention.layer_norm_rms_epsilon",
     .is_float = true,
     .value = NAN,
     .words = "finite"},
    {.name = "no epsilon", .key = "attention.layer_norm_rms_epsilon", .is_float = true, .value = 0},
    {.name = "NaN for the scale",
     .key = "expert_weights_scale",
     .is_float = true,
     .value = NAN,
     .words = "finite"},
    {.name = "infinite base",
     .key = "rope.freq_base",
     .is_float = true,
     .value = INFINITY,
     .words = "finite"},
    {.name = "base below 1",
     .key = "rope.freq_base",
     .is_float = true,
     .value = 0.5,
     .words = "below 1"},
    {.name = "no frequency factor", .rope_freqs = 1e-30f, .words = "RoPE frequency 0"},
    {.name = "NaN for a factor", .rope_freqs = NAN, .words = "RoPE frequency 0"},
    {.name = "infinite factor", .rope_freqs = INFINITY},
    {.name = "negative factor", .rope_freqs = -1},
    {.name = "fewer tokens than rows", .n_tokens = 60, .words = "60 tokens"},
    {.name = "more tokens than rows", .n_tokens = 65, .words = "65 tokens"},
    {.name = "NaN in a norm", .nan_in = "blk.0.attn_norm", .words = "block 0: a value of the "},
    {.name = "NaN in q", .nan_in = "blk.0.attn_q.", .words = "block 0: a value of the attention "},
    {.name = "NaN in k", .nan_in = "blk.0.attn_k.", .words = "block 0: a value of the attention "},
    {.name = "NaN in v", .nan_in = "blk.0.attn_v", .words = "block 0: a value of the attention "},
    {.name = "NaN in the output",
     .nan_in = "attn_output",
     .words = "block 0: a value of the router"},
    {.name = "NaN in the router",
     .nan_in = "ffn_gate_inp",
     .words = "block 0: a value of the router"},
    {.name = "NaN in gates",
     .s = {.n_used = 4},
     .nan_in = "ffn_gate_exps",
     .words = "block 0: a value of the expert's activation"},
    {.name = "NaN in ups",
     .s = {.n_used = 4},
     .nan_in = "ffn_up_exps",
     .words = "block 0: a value of the expert's activation"},
    {.name = "NaN in downs",
     .s = {.n_used = 4},
     .nan_in = "ffn_down_exps",
     .words = "a value of the "},
    {.name = "NaN in the last norm",
     .nan_in = "output_norm",
     .words = "a value of the output head"},
    {.name = "NaN in the head", .nan_in = "token_embd", .words = "a value of the "},
};

static uint32_t or_plain(uint32_t v, uint32_t of_plain)
{
    return v ? v : of_plain;
}

static struct shape shape_of(const struct hostile *h)
{
    const struct shape *s = &h->s, *p = &plain;
    return (struct shape){.n_embd = or_plain(s->n_embd, p->n_embd),
                          .n_head = or_plain(s->n_head, p->n_head),
                          .n_head_kv = or_plain(s->n_head_kv, p->n_head_kv),
                          .dim_k = or_plain(s->dim_k, p->dim_k),
                          .dim_v = or_plain(s->dim_v, p->dim_v),
                          .n_expert = or_plain(s->n_expert, p->n_expert),
                          .n_used = or_plain(s->n_used, p->n_used),
                          .n_ff = or_plain(s->n_ff, p->n_ff),
                          .n_vocab = or_plain(s->n_vocab, p->n_vocab),
                          .n_ctx = or_plain(s->n_ctx, p->n_ctx),
                          .type = s->type};
}

/* Small values of either sign, the same in every run. */
static float next_value(uint32_t *s)
{
    *s = *s * 1664525 + 1013904223;
    return ((float)(*s >> 8) / 16777216.0f - 0.5f) * 0.25f;
}

static void add_tensor(struct ggufw *w, const struct hostile *h, const char *name,
                       enum quant_type type, uint64_t d0, uint64_t d1, uint64_t d2)
{
    const uint64_t dims[] = {d0, d1, d2};
    size_t n = (size_t)(d0 * d1 * d2), bytes = (size_t)(d1 * d2) * quant_row_bytes(type, d0);
    bool bad = h->nan_in && strstr(name, h->nan_in), norm = strstr(name, "norm") != NULL;
    uint8_t *p = calloc(1, bytes);
    assert_non_null(p);
    uint32_t seed = 1;
    for (size_t i = 0; type == QT_F32 && i < n; i++) {
        float v = bad && i == n / 2 ? NAN : norm ? 1.0f : next_value(&seed);
        memcpy(p + 4 * i, &v, sizeof v);
    }
    static const uint8_t scale[] = {0x00, 0x10}; /* 2^-11 as binary16; other types stay 0 */
    for (size_t i = 0; type == QT_Q8_0 && i < bytes; i++)
        p[i] = i % 34 < 2 ? scale[i % 34] : (uint8_t)(i * 37);
    ggufw_tensor(w, name, (uint32_t)type, d2 > 1 ? 3 : d1 > 1 ? 2 : 1, dims, p, bytes);
    free(p);
}

static void add_tensors(struct ggufw *w, const struct hostile *h, const struct shape *s)
{
    enum quant_type t = s->type;
    add_tensor(w, h, "token_embd.weight", t, s->n_embd, s->n_vocab, 1);
    add_tensor(w, h, "output_norm.weight", QT_F32, s->n_embd, 1, 1);
    add_tensor(w, h, "blk.0.attn_norm.weight", QT_F32, s->n_embd, 1, 1);
    add_tensor(w, h, "blk.0.ffn_norm.weight", QT_F32, s->n_embd, 1, 1);
    add_tensor(w, h, "blk.0.attn_q_norm.weight", QT_F32, s->dim_k, 1, 1);
    add_tensor(w, h, "blk.0.attn_k_norm.weight", QT_F32, s->dim_k, 1, 1);
    add_tensor(w, h, "blk.0.attn_q.weight", t, s->n_embd, (uint64_t)s->n_head * s->dim_k, 1);
    add_tensor(w, h, "blk.0.attn_k.weight", t, s->n_embd, (uint64_t)s->n_head_kv * s->dim_k, 1);
    add_tensor(w, h, "blk.0.attn_v.weight", t, s->n_embd, (uint64_t)s->n_head_kv * s->dim_v, 1);
    add_tensor(w, h, "blk.0.attn_output.weight", t, (uint64_t)s->n_head * s->dim_v, s->n_embd, 1);
    add_tensor(w, h, "blk.0.ffn_gate_inp.weight", QT_F32, s->n_embd, s->n_expert, 1);
    add_tensor(w, h, "blk.0.ffn_gate_exps.weight", t, s->n_embd, s->n_ff, s->n_expert);
    add_tensor(w, h, "blk.0.ffn_up_exps.weight", t, s->n_embd, s->n_ff, s->n_expert);
    add_tensor(w, h, "blk.0.ffn_down_exps.weight", t, s->n_ff, s->n_embd, s->n_expert);
    if (h->rope_freqs == 0)
        return;
    float freqs[8];
    const uint64_t dims[] = {8};
    for (int i = 0; i < 8; i++)
        freqs[i] = h->rope_freqs;
    ggufw_tensor(w, "rope_freqs.weight", QT_F32, 1, dims, freqs, sizeof freqs);
}

static void add_key(struct ggufw *w, const struct hostile *h, const char *key, uint32_t value)
{
    char full[64];
    snprintf(full, sizeof full, "qwen3moe.%s", key);
    if (!h->key || strcmp(h->key, key) != 0)
        ggufw_u32(w, full, value);
}

static void add_vocabulary(struct ggufw *w, int n)
{
    char text[256][16];
    const char *token[256];
    static const char *const merge[] = {"t 1"};
    for (int i = 0; i < n; i++) {
        snprintf(text[i], sizeof text[i], "t%d", i);
        token[i] = text[i];
    }
    ggufw_str(w, "tokenizer.ggml.model", "gpt2");
    ggufw_str(w, "tokenizer.ggml.pre", "qwen2");
    ggufw_arr_str(w, "tokenizer.ggml.tokens", token, (size_t)n);
    ggufw_arr_str(w, "tokenizer.ggml.merges", merge, 1);
}

static void write_model(const struct hostile *h, const char *path)
{
    const struct shape shape = shape_of(h), *s = &shape;
    struct ggufw w;
    char full[64];
    ggufw_init(&w);
    ggufw_str(&w, "general.architecture", "qwen3moe");
    add_key(&w, h, "block_count", 1);
    add_key(&w, h, "embedding_length", s->n_embd);
    add_key(&w, h, "context_length", s->n_ctx);
    add_key(&w, h, "attention.head_count", s->n_head);
    add_key(&w, h, "attention.head_count_kv", s->n_head_kv);
    add_key(&w, h, "attention.key_length", s->dim_k);
    add_key(&w, h, "attention.value_length", s->dim_v);
    add_key(&w, h, "expert_count", s->n_expert);
    add_key(&w, h, "expert_used_count", s->n_used);
    add_key(&w, h, "expert_feed_forward_length", s->n_ff);
    if (h->key) {
        snprintf(full, sizeof full, "qwen3moe.%s", h->key);
        if (h->is_float)
            ggufw_f32(&w, full, (float)h->value);
        else
            ggufw_i64(&w, full, (int64_t)h->value);
    }
    if (h->n_tokens)
        add_vocabulary(&w, h->n_tokens);
    add_tensors(&w, h, s);
    ggufw_save(&w, path);
    ggufw_free(&w);
}

static int run(const char *path, int way, struct sl_err *err)
{
    static const int32_t ids[N_IDS] = {1, 2, 32, 0, 63};
    struct sl_engine *e = NULL;
    struct sl_session *s = NULL;
    struct sl_engine_options o;
    sl_engine_options_init(&o);
    o.threads = 2;
    o.cache_floor_mb = 0;
    o.stream = way == 1 ? SL_STREAM_ON : SL_STREAM_OFF;
    o.dense_mode = way == 2 ? SL_DENSE_MMAP : SL_DENSE_ANON;
    if (way == 2)
        o.cpu = SL_CPU_SCALAR;
    if (way == 1)
        o.cache_mb = 0;
    int rc = sl_engine_open(path, &o, &e, err);
    if (rc == 0)
        rc = sl_session_open(e, &s, err);
    if (rc == 0)
        rc = sl_session_eval(s, ids, N_IDS, SL_PROMPT, err);
    if (rc == 0)
        rc = sl_session_eval(s, ids, 1, SL_DECODE, err);
    sl_session_close(&s);
    sl_engine_close(&e);
    return rc;
}

static void test_hostile_models(void **state)
{
    (void)state;
    char path[512];
    int bad = 0;
    snprintf(path, sizeof path, "%s/m.gguf", fixture_temp_dir());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_model(&cases[i], path);
        for (int way = 0; way < 3; way++) {
            struct sl_err err = {0};
            int rc = run(path, way, &err);
            const char *want = cases[i].words;
            if (want ? rc != 0 && strstr(err.msg, want) != NULL : rc == 0)
                continue;
            print_error("%s, way %d: %s: %s\n", cases[i].name, way, sl_code_name(rc), err.msg);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hostile_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
