/* policy_echo.c: keeps what is most likely to be used soon, judged by what followed on similar
 * tokens.
 *
 *     worth = SCORE of the layer's last visit
 *             - GAP ln(1 + tokens since the expert was used)
 *             + OFTEN * share of the generated tokens that used it, fading by 1/100 per token
 *             + AFTER sqrt(share of the tokens that followed tokens like this one and used it)
 *           + HEAR * what the most similar tokens say of the layer's next visit
 *           - SOON ln(tokens until that visit + 0.3)
 *
 * A token's distance counts in layers. The sum is the logarithm of the odds that the expert is used
 * within five visits, up to a constant, by a regression on one recorded routing (the first four;
 * tools/fit_echo.py); the last term is the price of holding a slot until then. */
#include "cache/echo.h"
#include "cache/ranks.h"

#include "base/mem.h"
#include "kernels/math32.h"

#define GAP   0.28f
#define OFTEN 3.5f
#define AFTER 1.65f
#define HEAR  2.15f
#define SOON  0.5f

#define MAX_GAP  500 /* tokens; also where an expert was never used */
#define FADE     0.99f
#define FEW      8.0f /* generated tokens that count as not having used an expert, at the start */
#define TINY     1e-12f
#define SOON_MIN 0.3f

struct policy {
    struct cache_policy base;
    struct cache_ranks ranks; /* score: SCORE */
    struct cache_echo echo;
    uint16_t *gap;  /* per key */
    float *often;   /* per key: fading count over generated tokens */
    float *n_often; /* per layer: the same of the tokens */
    float *share;   /* scratch: experts of a layer */
    float *soon;    /* SOON ln(...) by distance in layers, 1..n_layers */
    float gap_cost[MAX_GAP + 1];
};

static size_t count_experts(const struct cache_shape *s)
{
    int most = 1;
    for (int l = 0; l < s->n_layers; l++)
        most = s->layer[l].n_experts > most ? s->layer[l].n_experts : most;
    return (size_t)most;
}

static uint64_t echo_policy_measure(const struct cache_shape *s)
{
    return sizeof(struct policy) + cache_ranks_measure(s) + cache_echo_measure(s) +
           (uint64_t)s->n_keys * (sizeof(uint16_t) + sizeof(float)) +
           (2 * (uint64_t)s->n_layers + 1 + count_experts(s)) * sizeof(float);
}

static void echo_policy_destroy(struct cache_policy *base)
{
    struct policy *p = (struct policy *)base;
    if (p) {
        cache_ranks_free(&p->ranks);
        cache_echo_free(&p->echo);
        mem_free(p->gap);
        mem_free(p->often);
        mem_free(p->n_often);
        mem_free(p->share);
        mem_free(p->soon);
        mem_free(p);
    }
}

static int make_tables(struct policy *p, const struct cache_shape *s, struct sl_err *err)
{
    int rc = cache_ranks_init(&p->ranks, s, err);
    if (rc == 0)
        rc = cache_echo_init(&p->echo, s, err);
    if (rc < 0)
        return rc;
    size_t n_keys = (size_t)s->n_keys, n_layers = (size_t)s->n_layers;
    p->gap = mem_calloc(n_keys, sizeof *p->gap);
    p->often = mem_calloc(n_keys, sizeof *p->often);
    p->n_often = mem_calloc(n_layers, sizeof *p->n_often);
    p->share = mem_calloc(count_experts(s), sizeof *p->share);
    p->soon = mem_calloc(n_layers + 1, sizeof *p->soon);
    if (!p->gap || !p->often || !p->n_often || !p->share || !p->soon)
        return err_set(err, SL_E_MEM, "cache", "no memory for the replacement policy");
    for (size_t i = 0; i < n_keys; i++)
        p->gap[i] = MAX_GAP;
    for (int i = 0; i <= MAX_GAP; i++)
        p->gap_cost[i] = GAP * math_log(1.0f + (float)i);
    for (size_t d = 1; d <= n_layers; d++)
        p->soon[d] = SOON * math_log((float)d / (float)n_layers + SOON_MIN);
    return 0;
}

static int echo_policy_create(const struct cache_shape *s, struct cache_policy **out,
                              struct sl_err *err)
{
    struct policy *p = mem_calloc(1, sizeof *p);
    if (!p)
        return err_set(err, SL_E_MEM, "cache", "no memory for the replacement policy");
    p->base.ops = &cache_policy_echo;
    int rc = make_tables(p, s, err);
    if (rc < 0)
        echo_policy_destroy(&p->base);
    else
        *out = &p->base;
    return rc;
}

/* ---- A visit ---- */

static void count_gaps(uint16_t *gap, int n_experts, const struct cache_routing *r)
{
    int n = r->n_tokens < MAX_GAP ? r->n_tokens : MAX_GAP;
    for (int e = 0; e < n_experts; e++)
        gap[e] = gap[e] + n < MAX_GAP ? (uint16_t)(gap[e] + n) : MAX_GAP;
    for (int t = r->n_tokens - n; t < r->n_tokens; t++)
        for (int i = 0; i < r->k; i++) {
            int32_t e = r->ids[(size_t)t * (size_t)r->k + (size_t)i];
            if (e >= 0)
                gap[e] = (uint16_t)(r->n_tokens - 1 - t);
        }
}

static void count_uses(float *often, float *n_often, int n_experts, const struct cache_routing *r)
{
    for (int t = 0; t < r->n_tokens; t++) {
        for (int e = 0; e < n_experts; e++) /* no subnormals: they are slow */
            often[e] = often[e] < TINY ? 0 : often[e] * FADE;
        for (int i = 0; i < r->k; i++) {
            int32_t e = r->ids[(size_t)t * (size_t)r->k + (size_t)i];
            if (e >= 0)
                often[e] = often[e] + 1;
        }
        *n_often = *n_often * FADE + 1;
    }
}

static void echo_policy_observe(struct cache_policy *base, const struct cache_routing *r)
{
    struct policy *p = (struct policy *)base;
    const struct cache_policy_layer *ly = &p->ranks.layer[r->layer];
    int n = ly->n_experts;
    uint16_t *gap = p->gap + ly->first_key;
    float *often = p->often + ly->first_key, *score = p->ranks.score + ly->first_key;
    count_gaps(gap, n, r);
    if (!r->prompt)
        count_uses(often, &p->n_often[r->layer], n, r);
    cache_echo_add(&p->echo, r);
    cache_echo_survey(&p->echo, n, p->share);
    float scale = OFTEN / (p->n_often[r->layer] + FEW);
    for (int e = 0; e < n; e++)
        score[e] = AFTER * sqrtf(p->share[e]) + often[e] * scale - p->gap_cost[gap[e]];
    cache_ranks_sort(&p->ranks, r->layer);
}

static void echo_policy_prime(struct cache_policy *base, int32_t key, float share)
{
    struct policy *p = (struct policy *)base;
    p->often[key] = share * CACHE_PRIME_TOKENS;
    p->n_often[p->ranks.layer_of[key]] = CACHE_PRIME_TOKENS;
    p->ranks.score[key] = p->often[key] * (OFTEN / (CACHE_PRIME_TOKENS + FEW)) -
                          p->gap_cost[MAX_GAP];
}

static void echo_policy_insert(struct cache_policy *base, int slot, int32_t key)
{
    cache_ranks_insert(&((struct policy *)base)->ranks, slot, key);
}

static void echo_policy_touch(struct cache_policy *base, int slot)
{
    (void)base;
    (void)slot;
}

static void echo_policy_remove(struct cache_policy *base, int slot)
{
    cache_ranks_remove(&((struct policy *)base)->ranks, slot);
}

/* ---- A victim ---- */

static float low(const void *ctx, int layer, float score)
{
    const struct policy *p = ctx;
    int d = layer - p->echo.layer;
    return score - p->soon[d > 0 ? d : d + p->ranks.n_layers];
}

static float worth(const void *ctx, int layer, int32_t key)
{
    const struct policy *p = ctx;
    return low(p, layer, p->ranks.score[key]) +
           HEAR * cache_echo_hear(&p->echo, layer, key - p->ranks.layer[layer].first_key);
}

static int echo_policy_victim(const struct cache_policy *base, const struct cache_wish *w)
{
    const struct policy *p = (const struct policy *)base;
    struct cache_valuer v = {.low = low, .worth = worth, .ctx = p};
    float least;
    int slot = cache_ranks_worst(&p->ranks, w, &v, &least);
    if (slot >= 0 && w->may_decline && least >= worth(p, p->ranks.layer_of[w->key], w->key))
        return -1;
    return slot;
}

const struct cache_policy_ops cache_policy_echo = {
    .name = "echo",
    .create = echo_policy_create,
    .destroy = echo_policy_destroy,
    .measure = echo_policy_measure,
    .observe = echo_policy_observe,
    .prime = echo_policy_prime,
    .insert = echo_policy_insert,
    .touch = echo_policy_touch,
    .remove = echo_policy_remove,
    .victim = echo_policy_victim,
};
