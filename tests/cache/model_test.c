/* Random histories against a model of the cache that is a plain list per class. */
#include "cache/impl.h"
#include "cache/kit.h"

#include "base/mem.h"
#include "io/fake.h"

#include <string.h>

#define MAX_KEYS (KIT_MAX_LAYERS * KIT_MAX_EXPERTS)

/* What must be resident, oldest first, and the counters that follow from it. */
struct model {
    const struct kit *k;
    struct cache_geometry geo;
    int list[KIT_MAX_LAYERS][MAX_KEYS], n[KIT_MAX_LAYERS];
    uint32_t routed[MAX_KEYS];
    bool known[MAX_KEYS], in_prompt;
    uint64_t hits, misses, evictions, rereads, bytes, resident;
};

static int find(const struct model *m, int cls, int key)
{
    for (int i = 0; i < m->n[cls]; i++)
        if (m->list[cls][i] == key)
            return i;
    return -1;
}

static void take_out(struct model *m, int cls, int at)
{
    m->n[cls]--;
    memmove(&m->list[cls][at], &m->list[cls][at + 1],
            (size_t)(m->n[cls] - at) * sizeof m->list[cls][0]);
}

/* Room for a miss: true when one slot of the class is free or was made free. */
static bool make_room(struct model *m, int cls, int key, const bool *asked)
{
    if (m->n[cls] < (int)m->geo.cls[cls].n_slots)
        return true;
    int best = -1;
    for (int i = 0; i < m->n[cls]; i++) {
        int other = m->list[cls][i];
        if (asked[other] || (m->in_prompt && m->routed[other] >= m->routed[key]))
            continue;
        if (best < 0 || (m->in_prompt && m->routed[other] < m->routed[m->list[cls][best]]))
            best = i;
    }
    if (best < 0)
        return false;
    m->evictions++;
    take_out(m, cls, best);
    return true;
}

static void model_pass(struct model *m, int layer, const int32_t *ids, const int32_t *counts, int n,
                       size_t align)
{
    int cls = m->geo.layer_class[layer], base = layer * KIT_MAX_EXPERTS;
    bool asked[MAX_KEYS] = {false}, stays[MAX_KEYS] = {false}, done[MAX_KEYS] = {false};
    for (int i = 0; i < n; i++) {
        int key = base + ids[i];
        bool hit = find(m, cls, key) >= 0;
        asked[key] = true;
        stays[key] = done[key] = hit;
        m->hits += hit;
        m->misses += !hit;
        m->rereads += !hit && m->known[key];
        m->bytes += hit ? 0 : kit_read_bytes(m->k, layer, ids[i], align);
        if (m->in_prompt)
            m->routed[key] += (uint32_t)counts[i];
    }
    int taken = 0; /* slots promised to misses of this pass, not yet in the list */
    for (;;) {     /* the next miss: in a prompt the most routed, else the lowest id */
        int key = -1;
        for (int i = 0; i < n; i++)
            if (!done[base + ids[i]] &&
                (key < 0 || (m->in_prompt && m->routed[base + ids[i]] > m->routed[key])))
                key = base + ids[i];
        if (key < 0)
            break;
        done[key] = true;
        m->geo.cls[cls].n_slots -= (uint64_t)taken;
        stays[key] = make_room(m, cls, key, asked);
        m->geo.cls[cls].n_slots += (uint64_t)taken;
        taken += stays[key];
    }
    for (int i = 0; i < n; i++) {
        int key = base + ids[i], at = find(m, cls, key);
        if (at >= 0)
            take_out(m, cls, at);
        if (stays[key]) {
            m->list[cls][m->n[cls]++] = key;
            m->known[key] = true;
        }
    }
    m->resident = 0;
    for (int i = 0; i < m->geo.n_classes; i++)
        m->resident += (uint64_t)m->n[i] * m->geo.cls[i].slot_bytes;
}

static void compare(const struct model *m, const struct cache *c, bool ahead)
{
    struct cache_stats s = kit_stats(c);
    assert_int_equal(s.hits + s.misses, m->hits + m->misses);
    if (ahead) {
        assert_true(s.bytes_read >= s.spec_useful_bytes + s.spec_wasted_bytes);
        return; /* where reads ahead land depends on the drive */
    }
    assert_int_equal(s.hits, m->hits);
    assert_int_equal(s.evictions, m->evictions);
    assert_int_equal(s.rereads, m->rereads);
    assert_int_equal(s.bytes_read, m->bytes);
    assert_int_equal(s.resident_bytes, m->resident);
    assert_int_equal(s.spec_useful_bytes + s.spec_wasted_bytes, 0);
}

/* ---- Reads ahead ---- */

static int draw_ids(const struct kit *k, uint64_t *rng, int n, int32_t *ids, int32_t *counts)
{
    int left = n, m = 0;
    for (int e = 0; e < k->n_experts && left; e++)
        if (kit_below(rng, k->n_experts - e) < left) {
            ids[m] = e;
            counts[m++] = 1 + kit_below(rng, 9);
            left--;
        }
    return m;
}

static void note_held(const struct cache *c, const struct kit *k, bool *held)
{
    for (int l = 0; l < k->n_layers; l++)
        for (int e = 0; e < k->n_experts && k->layer[l].n_parts > 0; e++)
            held[l * KIT_MAX_EXPERTS + e] = cache_has_expert(c, l, e);
}

/* Counted reads of a layer. What gives way to them in a prompt was routed less often than some
 * expert that is counted would be by then, and is not counted itself. */
static void count_ahead(const struct model *m, struct cache *c, int layer, uint64_t *rng)
{
    const struct kit *k = m->k;
    bool before[MAX_KEYS] = {false}, after[MAX_KEYS] = {false};
    int32_t ids[KIT_MAX_EXPERTS], tokens[KIT_MAX_EXPERTS], counts[KIT_MAX_EXPERTS] = {0};
    uint32_t most = 0;
    if (c->ahead.layer == layer) /* else it goes on with what it was told before */
        cache_drop_ahead(c, layer);
    int n = draw_ids(k, rng, kit_below(rng, k->n_experts + 1), ids, tokens);
    for (int i = 0; i < n; i++) {
        uint32_t then = m->routed[layer * KIT_MAX_EXPERTS + ids[i]] + (uint32_t)tokens[i];
        counts[ids[i]] = tokens[i];
        most = then > most ? then : most;
    }
    note_held(c, k, before);
    cache_read_ahead(c, layer, counts);
    note_held(c, k, after);
    for (int key = 0; m->in_prompt && key < MAX_KEYS; key++)
        if (before[key] && !after[key]) {
            assert_true(m->routed[key] < most);
            assert_false(key / KIT_MAX_EXPERTS == layer && counts[key % KIT_MAX_EXPERTS] > 0);
        }
}

/* Of the layer that comes or of another. */
static void look_ahead(const struct model *m, struct cache *c, int layer, uint64_t *rng)
{
    const struct kit *k = m->k;
    int32_t guess[KIT_MAX_EXPERTS], unused[KIT_MAX_EXPERTS];
    const int to = kit_below(rng, 3) ? layer : kit_below(rng, k->n_layers);
    switch (kit_below(rng, 4)) {
    case 0:
        cache_read_ahead(c, to, NULL);
        break;
    case 1:
    case 2:
        if (k->layer[to].n_parts > 0 && !(c->pass.open && c->pass.layer == to))
            count_ahead(m, c, to, rng);
    }
    if (kit_below(rng, 2)) {
        int n = draw_ids(k, rng, kit_below(rng, k->n_experts), guess, unused);
        cache_expect(c, kit_below(rng, k->n_layers), guess, n, kit_below(rng, 2));
    }
}

/* ---- Passes ---- */

struct held {
    int index;
    struct expert_view view;
};

/* A pass whose caller holds up to `most` views and gives them back in any order, and while it is
 * open looks ahead if there is a model to compare that with. */
static void run_pass(struct cache *c, const struct kit *k, int layer, const int32_t *ids,
                     const int32_t *counts, int n, enum cache_order order, int most,
                     const struct model *ahead, uint64_t *rng)
{
    struct held held[64];
    bool seen[KIT_MAX_EXPERTS] = {false};
    struct sl_err err = {0};
    int n_held = 0, got = 0, last = -1, rc;
    assert_int_equal(cache_pass_begin(c, layer, ids, counts, n, order, &err), 0);
    if (ahead)
        look_ahead(ahead, c, (layer + 1) % k->n_layers, rng);
    for (;;) {
        if (kit_below(rng, 4) == 0)
            cache_keep_reading(c);
        if (n_held == most || (n_held && kit_below(rng, 2))) {
            int i = kit_below(rng, n_held);
            assert_true(kit_same(k, layer, ids[held[i].index], &held[i].view));
            cache_pass_release(c, held[i].index);
            held[i] = held[--n_held];
            continue;
        }
        struct held *h = &held[n_held];
        rc = kit_below(rng, 3)
                 ? cache_pass_next(c, &h->index, &h->view, &err)
                 : cache_pass_try(c, 1 + kit_below(rng, 9), &h->index, &h->view, &err);
        if (rc == CACHE_NOT_READY)
            continue;
        if (rc != 1)
            break;
        assert_false(seen[h->index]);
        seen[h->index] = true;
        assert_true(order != CACHE_ASCENDING || h->index > last);
        last = h->index;
        assert_true(kit_same(k, layer, ids[h->index], &h->view));
        n_held++;
        got++;
    }
    if (rc)
        print_message("%s: %s\n", err.where, err.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(got, n);
    while (n_held && kit_below(rng, 4)) {
        n_held--;
        assert_true(kit_same(k, layer, ids[held[n_held].index], &held[n_held].view));
        cache_pass_release(c, held[n_held].index);
    }
    cache_pass_end(c);
}

static struct cache_config draw_config(const struct kit *k, uint64_t *rng)
{
    struct cache_config cfg = kit_config(k);
    struct cache_sizes s;
    struct sl_err err;
    cfg.in_flight = 1 + kit_below(rng, 4);
    cfg.threads = 1 + kit_below(rng, 3);
    cfg.split = 1 + kit_below(rng, 5);
    cfg.overlap = kit_below(rng, 4) != 0;
    assert_int_equal(cache_measure(&cfg, &s, &err), 0);
    switch (kit_below(rng, 6)) {
    case 0:
        break;
    case 1:
        cfg.slots = k->top_k;
        break;
    case 2:
        cfg.slots = k->top_k + 1;
        break;
    case 3:
        cfg.budget = (int64_t)(s.bank_bytes / 2 > s.min_bytes ? s.bank_bytes / 2 : s.min_bytes);
        break;
    case 4:
        cfg.budget = (int64_t)s.bank_bytes;
        break;
    default:
        cfg.budget = (int64_t)(s.min_bytes + kit_random(rng) % (s.bank_bytes - s.min_bytes + 1));
    }
    return cfg;
}

static struct io_reader *draw_reader(uint64_t *rng, int in_flight)
{
    struct io_reader *r;
    struct sl_err err;
    int kind = kit_below(rng, 6);
    if (kind >= 3)
        return kit_fake(kind - 3, kit_below(rng, 4) ? 0 : 1e-5, in_flight);
    assert_int_equal(io_reader_create(kind ? "threads" : "plain", in_flight, 1, &r, NULL, &err), 0);
    return r;
}

/* A new size: the oldest go. */
static void resize(struct model *m, struct cache *c, struct cache_config *cfg, uint64_t *rng)
{
    struct cache_sizes s;
    struct sl_err err;
    uint64_t now;
    assert_int_equal(cache_measure(cfg, &s, &err), 0);
    uint64_t bytes = s.min_bytes + kit_random(rng) % (s.bank_bytes - s.min_bytes + 1);
    if (kit_below(rng, 4) == 0)
        bytes = kit_below(rng, 2) ? 0 : s.bank_bytes + 1;
    assert_int_equal(cache_set_budget(c, s.min_bytes - 1, &now, &err), SL_E_BUDGET);
    uint64_t before = mem_now();
    assert_int_equal(cache_set_budget(c, bytes, &now, &err), 0);
    int64_t grown = (int64_t)mem_now() - (int64_t)before;
    cfg->slots = -1;
    cfg->budget = (int64_t)bytes;
    assert_int_equal(cache_divide_budget(cfg, &m->geo, &err), 0);
    uint64_t want = 0;
    m->resident = 0;
    for (int i = 0; i < m->geo.n_classes; i++) {
        want += m->geo.cls[i].n_slots * m->geo.cls[i].slot_bytes;
        while (m->n[i] > (int)m->geo.cls[i].n_slots) {
            take_out(m, i, 0);
            m->evictions++;
        }
        m->resident += (uint64_t)m->n[i] * m->geo.cls[i].slot_bytes;
    }
    assert_int_equal(now, want);
    assert_int_equal(grown, (int64_t)now - (int64_t)s.cache_bytes);
}

static void run_history(uint64_t seed, bool ahead, bool resizes)
{
    static struct model m; /* large */
    uint64_t rng = seed;
    struct kit k;
    struct kit_shape shape = {.n_layers = 2 + kit_below(&rng, 5),
                              .n_experts = 4 + kit_below(&rng, 28),
                              .n_parts = 1 + kit_below(&rng, 3),
                              .n_classes = 1 + kit_below(&rng, 2),
                              .aligned = kit_below(&rng, 4) == 0,
                              .direct = kit_below(&rng, 4) == 0,
                              .dense_gaps = kit_below(&rng, 4) == 0,
                              .bytes = (uint64_t[]){40, 3000, 4096, 9000}[kit_below(&rng, 4)]};
    shape.top_k = 1 + kit_below(&rng, 4);
    kit_open(&k, &shape, kit_random(&rng));
    struct cache_config cfg = draw_config(&k, &rng);
    struct io_reader *r = draw_reader(&rng, cfg.in_flight);
    cfg.most = resizes ? INT64_MAX : 0;
    struct cache *c = kit_cache(&cfg, r);
    struct cache_sizes sizes;
    struct sl_err err;
    assert_int_equal(cache_measure(&cfg, &sizes, &err), 0);
    memset(&m, 0, sizeof m);
    m.k = &k;
    assert_int_equal(cache_plan_geometry(&cfg, &m.geo, &err), 0);
    assert_int_equal(cache_divide_budget(&cfg, &m.geo, &err), 0);
    for (int t = 0; t < 60; t++) {
        int layer = t % k.n_layers;
        if (k.layer[layer].n_parts == 0)
            continue;
        if (resizes && kit_below(&rng, 8) == 0) {
            resize(&m, c, &cfg, &rng);
            assert_int_equal(cache_measure(&cfg, &sizes, &err), 0);
        }
        if (kit_below(&rng, 10) == 0) {
            m.in_prompt = !m.in_prompt;
            if (m.in_prompt)
                memset(m.routed, 0, sizeof m.routed);
            (m.in_prompt ? cache_prompt_begin : cache_prompt_end)(c);
        }
        int32_t ids[KIT_MAX_EXPERTS], counts[KIT_MAX_EXPERTS];
        int want = m.in_prompt || kit_below(&rng, 3) == 0 ? 1 + kit_below(&rng, k.n_experts)
                                                          : shape.top_k;
        int n = draw_ids(&k, &rng, want, ids, counts);
        int most = kit_below(&rng, 2) ? 1 : 2 * cfg.in_flight + cfg.threads - 1;
        if (ahead)
            look_ahead(&m, c, layer, &rng);
        model_pass(&m, layer, ids, counts, n, cfg.align);
        run_pass(c, &k, layer, ids, counts, n, (enum cache_order)kit_below(&rng, 2), most,
                 ahead ? &m : NULL, &rng);
        compare(&m, c, ahead);
        assert_true(kit_stats(c).resident_bytes <= sizes.cache_bytes);
    }
    cache_destroy(&c);
    assert_int_equal(r->open, 0);
    io_reader_destroy(&r);
    cache_free_geometry(&m.geo);
    kit_close(&k);
}

#define N_HISTORIES 80

static void run_histories(uint64_t first, bool ahead, bool resizes)
{
    print_message("seeds %llu to %llu\n", (unsigned long long)first,
                  (unsigned long long)(first + N_HISTORIES - 1));
    static uint64_t seed; /* where a debugger finds it */
    for (seed = first; seed < first + N_HISTORIES; seed++)
        run_history(seed, ahead, resizes);
}

static void test_histories(void **state)
{
    (void)state;
    run_histories(1000, false, false);
}

static void test_histories_with_reads_ahead(void **state)
{
    (void)state;
    run_histories(2000, true, false);
}

static void test_histories_with_changing_sizes(void **state)
{
    (void)state;
    run_histories(3000, false, true);
    run_histories(4000, true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
        cmocka_unit_test(test_histories_with_reads_ahead),
        cmocka_unit_test(test_histories_with_changing_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
