#include "cache/echo.h"

#include "base/mem.h"
#include "kernels/math32.h"

#include <string.h>

/* Likeness fades by 179/256 per layer for the near kind, by 248/256 for the far kind, which also
 * keeps 205/256 of what it was from one token to the next. A token that is x less alike than the
 * most alike one weighs exp(-2 x), exp(-x / 2); what falls below 1/200, 1/100 weighs nothing. */
#define ONE       256
#define NEAR_FADE 179
#define FAR_FADE  248
#define FAR_KEEP  205
#define NEAR_RATE (2.0f / ONE)
#define FAR_RATE  (0.5f / ONE)
#define N_NEAR    679  /* ln 200 / NEAR_RATE */
#define N_FAR     2358 /* ln 100 / FAR_RATE */

static int count_words(const struct cache_shape *s)
{
    int most = 1;
    for (int l = 0; l < s->n_layers; l++)
        if (s->layer[l].pool >= 0 && s->layer[l].n_experts > most)
            most = s->layer[l].n_experts;
    return (most + 63) / 64;
}

uint64_t cache_echo_measure(const struct cache_shape *s)
{
    return (uint64_t)ECHO_TOKENS * (uint64_t)s->n_layers * (uint64_t)count_words(s) *
               sizeof(uint64_t) +
           (N_NEAR + N_FAR) * sizeof(float);
}

int cache_echo_init(struct cache_echo *h, const struct cache_shape *s, struct sl_err *err)
{
    h->n_layers = s->n_layers;
    h->words = count_words(s);
    h->layer = -1;
    h->sets = mem_calloc((size_t)ECHO_TOKENS * (size_t)h->n_layers,
                         (size_t)h->words * sizeof *h->sets);
    h->near_weight = mem_calloc(N_NEAR, sizeof *h->near_weight);
    h->far_weight = mem_calloc(N_FAR, sizeof *h->far_weight);
    if (!h->sets || !h->near_weight || !h->far_weight)
        return err_set(err, SL_E_MEM, "cache", "no memory for the replacement policy");
    for (int i = 0; i < N_NEAR; i++)
        h->near_weight[i] = math_exp(-NEAR_RATE * (float)i);
    for (int i = 0; i < N_FAR; i++)
        h->far_weight[i] = math_exp(-FAR_RATE * (float)i);
    return 0;
}

void cache_echo_free(struct cache_echo *h)
{
    mem_free(h->sets);
    mem_free(h->near_weight);
    mem_free(h->far_weight);
    *h = (struct cache_echo){0};
}

/* The experts of the token `age` before the current one in a layer. */
static uint64_t *get_set(const struct cache_echo *h, int age, int layer)
{
    size_t at = (size_t)((h->head - age) & (ECHO_TOKENS - 1));
    return h->sets + ((size_t)layer * ECHO_TOKENS + at) * (size_t)h->words;
}

static int count_bits(uint64_t x)
{
    x = x - ((x >> 1) & UINT64_C(0x5555555555555555));
    x = (x & UINT64_C(0x3333333333333333)) + ((x >> 2) & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (int)((x * UINT64_C(0x0101010101010101)) >> 56);
}

/* n new tokens begin their way through the layers. What the far likeness knew of the token before
 * is of use only to its direct successor. */
static void start_tokens(struct cache_echo *h, int n)
{
    int known = h->layer < 0 ? 0 : h->n_past + 1;
    int fresh = n < ECHO_TOKENS ? n : ECHO_TOKENS;
    h->head = (h->head + n) & (ECHO_TOKENS - 1);
    h->n_past = known + fresh - 1 < ECHO_TOKENS ? known + fresh - 1 : ECHO_TOKENS - 1;
    h->group = n;
    for (int l = 0; l < h->n_layers; l++)
        for (int age = 0; age < fresh; age++)
            memset(get_set(h, age, l), 0, (size_t)h->words * sizeof *h->sets);
    for (int age = 0; age < ECHO_TOKENS; age++) {
        h->near[age] = 0;
        h->far[age] = n == 1 && known ? h->far[age] * FAR_KEEP / ONE : 0;
    }
}

/* The last tokens' rows into the ring; a layer that took fewer tokens than the first took the
 * group's last. */
static void fill_sets(struct cache_echo *h, const struct cache_routing *r)
{
    int most = h->group < ECHO_TOKENS ? h->group : ECHO_TOKENS;
    int n = r->n_tokens < most ? r->n_tokens : most;
    for (int age = n - 1; age >= 0; age--) {
        const int32_t *ids = r->ids + (size_t)(r->n_tokens - 1 - age) * (size_t)r->k;
        uint64_t *set = get_set(h, age, r->layer);
        for (int i = 0; i < r->k; i++)
            if (ids[i] >= 0)
                set[ids[i] >> 6] |= UINT64_C(1) << (ids[i] & 63);
    }
}

static void compare_past(struct cache_echo *h)
{
    const uint64_t *now = get_set(h, 0, h->layer);
    int k = 0;
    for (int w = 0; w < h->words; w++)
        k += count_bits(now[w]);
    int each = k ? ONE * ONE / k : 0; /* one common expert, 16 fraction bits */
    for (int age = 1; age <= h->n_past; age++) {
        const uint64_t *then = get_set(h, age, h->layer);
        int common = 0;
        for (int w = 0; w < h->words; w++)
            common += count_bits(now[w] & then[w]);
        int like = (common * each) >> 8;
        h->near[age] = h->near[age] * NEAR_FADE / ONE + like;
        h->far[age] = h->far[age] * FAR_FADE / ONE + like;
    }
}

static int32_t find_most(const int32_t *like, int n_past)
{
    int32_t most = 0;
    for (int age = 1; age <= n_past; age++)
        most = like[age] > most ? like[age] : most;
    return most;
}

/* The ECHO_VOICES most alike, the younger of equals; most alike first. */
static void choose_voices(struct cache_echo *h)
{
    int32_t most = find_most(h->near, h->n_past);
    int n = 0;
    for (int age = 1; age <= h->n_past; age++) {
        int32_t like = h->near[age];
        if (most - like >= N_NEAR ||
            (n == ECHO_VOICES && like <= h->near[h->voice[ECHO_VOICES - 1].age]))
            continue;
        int at = n < ECHO_VOICES ? n++ : ECHO_VOICES - 1;
        for (; at > 0 && h->near[h->voice[at - 1].age] < like; at--)
            h->voice[at] = h->voice[at - 1];
        h->voice[at] = (struct cache_echo_voice){age, h->near_weight[most - like]};
    }
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum = sum + h->voice[i].weight;
    for (int i = 0; i < n; i++)
        h->voice[i].weight = h->voice[i].weight / sum;
    h->n_voices = n;
}

void cache_echo_add(struct cache_echo *h, const struct cache_routing *r)
{
    if (h->layer < 0 || r->layer <= h->layer)
        start_tokens(h, r->n_tokens > 0 ? r->n_tokens : 1);
    h->layer = r->layer;
    fill_sets(h, r);
    compare_past(h);
    choose_voices(h);
}

/* In layers before the current token the voice itself speaks, in those behind it its successor. */
float cache_echo_hear(const struct cache_echo *h, int layer, int e)
{
    int later = layer > h->layer ? 0 : 1;
    float sum = 0;
    for (int i = 0; i < h->n_voices; i++) {
        const uint64_t *set = get_set(h, h->voice[i].age - later, layer);
        if (set[e >> 6] >> (e & 63) & 1)
            sum = sum + h->voice[i].weight;
    }
    return sum;
}

void cache_echo_survey(const struct cache_echo *h, int n_experts, float *share)
{
    float weight[ECHO_TOKENS] = {0}, sum = 0; /* of a token as a successor, by age */
    int32_t most = find_most(h->far, h->n_past);
    for (int age = 1; age <= h->n_past; age++) {
        if (most - h->far[age] >= N_FAR)
            continue;
        float x = h->far_weight[most - h->far[age]];
        for (int i = 1; i <= ECHO_AFTER && age - i >= 0; i++) {
            weight[age - i] = weight[age - i] + x;
            sum = sum + x;
        }
    }
    memset(share, 0, (size_t)n_experts * sizeof *share);
    for (int age = h->n_past; age >= 0; age--) {
        const uint64_t *set = get_set(h, age, h->layer);
        float x = weight[age];
        for (int w = 0; x > 0 && w < h->words; w++)
            for (uint64_t left = set[w]; left; left &= left - 1) {
                int e = w * 64 + __builtin_ctzll(left);
                share[e] = share[e] + x;
            }
    }
    float scale = sum > 0 ? 1 / sum : 0;
    for (int e = 0; e < n_experts; e++)
        share[e] = share[e] * scale;
}
