/* pairs.c: greedy covering: each new way starts from a pair that no way has yet and takes, axis by
 * axis, the level that adds most new pairs. */
#include "gates/pairs.h"

#include <string.h>

struct cover {
    /* [a][i][b][j] with a < b: the pair occurs already */
    bool done[AX_COUNT][AXIS_MAX_LEVELS][AX_COUNT][AXIS_MAX_LEVELS];
};

static bool *pair_at(struct cover *c, int a, int i, int b, int j)
{
    return a < b ? &c->done[a][i][b][j] : &c->done[b][j][a][i];
}

static bool first_open(struct cover *c, const int *n, int *a, int *i, int *b, int *j)
{
    for (*a = 0; *a < AX_COUNT; (*a)++)
        for (*b = *a + 1; *b < AX_COUNT; (*b)++)
            for (*i = 0; *i < n[*a]; (*i)++)
                for (*j = 0; *j < n[*b]; (*j)++)
                    if (!*pair_at(c, *a, *i, *b, *j))
                        return true;
    return false;
}

/* New pairs that level i of axis a makes with the axes chosen so far. */
static int gain(struct cover *c, const struct way *w, const bool *chosen, int a, int i)
{
    int n = 0;
    for (int b = 0; b < AX_COUNT; b++)
        n += chosen[b] && b != a && !*pair_at(c, a, i, b, w->level[b]);
    return n;
}

int pairs_cover(const int n_levels[AX_COUNT], struct way *out, int max)
{
    struct cover c;
    int count = 0, a, i, b, j;
    memset(&c, 0, sizeof c);
    while (first_open(&c, n_levels, &a, &i, &b, &j)) {
        if (count == max)
            return -1;
        struct way *w = out + count++;
        bool chosen[AX_COUNT] = {false};
        memset(w, 0, sizeof *w);
        w->level[a] = i;
        w->level[b] = j;
        chosen[a] = chosen[b] = true;
        for (int x = 0; x < AX_COUNT; x++) {
            if (chosen[x])
                continue;
            int best = 0, best_gain = -1;
            for (int step = 0; step < n_levels[x]; step++) {
                int level = (step + count) % n_levels[x]; /* equal gains: take turns */
                int g = gain(&c, w, chosen, x, level);
                if (g > best_gain) {
                    best = level;
                    best_gain = g;
                }
            }
            w->level[x] = best;
            chosen[x] = true;
        }
        for (a = 0; a < AX_COUNT; a++)
            for (b = a + 1; b < AX_COUNT; b++)
                *pair_at(&c, a, w->level[a], b, w->level[b]) = true;
    }
    return count;
}
