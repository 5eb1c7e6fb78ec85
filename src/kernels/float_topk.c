/* float_topk.c: choosing the k highest scores; comparisons only, so one version serves all levels.
 *
 * A heap of the k best seen so far has the worst of them at its root: n comparisons with the root,
 * and log k steps for each newcomer. Taking the heap apart sorts it. */
#include "kernels/kernels.h"

/* Does a rank behind b: lower score, or the same score and a higher index. */
static bool ranks_behind(const float *scores, int32_t a, int32_t b)
{
    return scores[a] < scores[b] || (scores[a] == scores[b] && a > b);
}

/* Put id into the place at, whose children are heaps, in a heap of n. */
static void sift_down(const float *scores, int32_t *heap, int n, int at, int32_t id)
{
    for (;;) {
        int child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && ranks_behind(scores, heap[child + 1], heap[child]))
            child++;
        if (!ranks_behind(scores, heap[child], id))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = id;
}

void kern_topk(const float *scores, int n, int k, int32_t *ids)
{
    if (k <= 0)
        return;
    for (int i = 0; i < k; i++)
        ids[i] = i;
    for (int i = k / 2 - 1; i >= 0; i--)
        sift_down(scores, ids, k, i, ids[i]);
    /* Indices rise, so a newcomer of equal score ranks behind the root. */
    for (int i = k; i < n; i++)
        if (scores[i] > scores[ids[0]])
            sift_down(scores, ids, k, 0, i);
    for (int m = k - 1; m > 0; m--) {
        const int32_t last = ids[m];
        ids[m] = ids[0];
        sift_down(scores, ids, m, 0, last);
    }
}
