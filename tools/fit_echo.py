#!/usr/bin/env python3
"""Fits the numbers of the cache policy `echo` (src/cache/policy_echo.c) to a recorded routing.

usage: fit_echo.py TRACE.csv        (needs numpy; half a minute or so)

A cache of several sizes is run over the trace with the policy as it is. At every eleventh pass
each resident expert, and what was asked for, becomes an example: was it used within the next five
visits of its layer? A logistic regression over the policy's features gives new numbers; then again,
twice, with these. How the features are made is told in src/cache/echo.h and policy_echo.c; here they
are computed by other means, in floating point.
"""
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("fit_echo.py: needs numpy")

PAST, VOICES, AFTER = 127, 16, 4
NEAR_FADE, NEAR_RATE, FAR_FADE, FAR_KEEP, FAR_RATE = 179 / 256, 2.0, 248 / 256, 205 / 256, 0.5
MAX_GAP, FADE, FEW, SOON, SOON_MIN = 500, 0.99, 8, 0.5, 0.3
WITHIN, EVERY, ROUNDS = 5, 11, 3
BUDGETS = (700, 1000, 1400, 2000, 2800, 4000)  # MiB
FEATURES = ("GAP", "OFTEN", "AFTER", "HEAR")


class Trace:
    def __init__(self, path):
        sizes, rows = {}, []
        with open(path, encoding="utf-8") as f:
            for line in f:
                if line.startswith("# layer="):
                    d = dict(x.split("=") for x in line[2:].split())
                    sizes[int(d["layer"])] = -(-int(d["expert_bytes"]) // 4096) * 4096
                elif line[0].isdigit():
                    rows.append([int(x) for x in line.split(",")[1:6]])
        rows = np.array(rows)
        self.sizes = np.array([sizes[l] for l in sorted(sizes)])
        self.n_layers, self.n_experts = len(sizes), int(rows[:, 4].max()) + 1
        self.n_tokens = int(rows[:, 1].max()) + 1
        self.n_prompt = int(rows[rows[:, 0] == 0, 1].max()) + 1
        self.used = np.zeros((self.n_tokens, self.n_layers, self.n_experts), bool)
        self.used[rows[:, 1], rows[:, 2], rows[:, 4]] = True


def likeness(t, tr, l):
    """Shared experts of token t with the PAST tokens before it in layer l, oldest first."""
    now = tr.used[t, l]
    return (tr.used[max(0, t - PAST):t, l] & now).sum(1) / max(1, now.sum())


def make_features(tr):
    """score[t, l]: GAP, OFTEN, AFTER after the visit; heard[t, l]: HEAR of all layers then."""
    T, P, L, E = tr.n_tokens, tr.n_prompt, tr.n_layers, tr.n_experts
    score = np.zeros((T, L, 3, E), np.float32)
    heard = np.zeros((T, L, L, E), np.float32)
    gap = np.full((L, E), MAX_GAP)
    often, n_often = np.zeros((L, E)), np.zeros(L)
    far = np.zeros(0)
    for t in range(T):
        n = min(t, PAST)
        near = np.zeros(n)
        far = np.concatenate([np.zeros(n - len(far)), far])[-n:] if n else np.zeros(0)
        far = far * FAR_KEEP if t >= P else far * 0
        for l in range(L):
            now = tr.used[t, l]
            if not now.any():
                continue
            gap[l] = np.minimum(gap[l] + 1, MAX_GAP)
            gap[l][now] = 0
            if t >= P:
                often[l] = often[l] * FADE + now
                n_often[l] = n_often[l] * FADE + 1
            if t < P - 1:
                continue
            like = likeness(t, tr, l)
            near, far = near * NEAR_FADE + like, far * FAR_FADE + like
            w = np.exp(FAR_RATE * (far - far.max()))
            w[w < 0.01] = 0
            follows = np.zeros(n + 1)  # weight of a token as a successor; the last is the current
            for i in range(1, AFTER + 1):
                follows[i:] += w[:n + 1 - i] if i > 1 else w
            share = follows @ tr.used[t - n:t + 1, l] / follows.sum()
            score[t, l] = -np.log1p(gap[l]), often[l] / (n_often[l] + FEW), np.sqrt(share)
            best = np.argsort(-near[::-1], kind="stable")[:VOICES]  # ages - 1
            w = np.exp(NEAR_RATE * (near[n - 1 - best] - near.max()))
            w[w < 0.005] = 0
            voice = t - 1 - best
            heard[t, l, l + 1:] = np.tensordot(w / w.sum(), tr.used[voice, l + 1:], 1)
            heard[t, l, :l + 1] = np.tensordot(w / w.sum(), tr.used[voice + 1, :l + 1], 1)
    return score, heard


def share_slots(tr, budget):
    sizes, layers = np.unique(tr.sizes, return_counts=True)
    slots = {b: budget * n // tr.n_layers // b for b, n in zip(sizes, layers)}
    left = budget - sum(b * n for b, n in slots.items())
    while any(b <= left for b in sizes):
        b = min((b for b, _ in zip(sizes, layers) if b <= left),
                key=lambda b: slots[b] * b / layers[list(sizes).index(b)])
        slots[b] += 1
        left -= b
    return slots


def warm(tr, slots, score):
    """What the prompt leaves behind: the most routed, then the best."""
    held = np.zeros((tr.n_layers, tr.n_experts), bool)
    count = tr.used[:tr.n_prompt].sum(0)
    for size, n in slots.items():
        keys = [(-count[l, e], -score[l, e], l, e) for l in np.flatnonzero(tr.sizes == size)
                for e in np.flatnonzero(count[l])]
        for _, _, l, e in sorted(keys)[:n]:
            held[l, e] = True
    return held


def run(tr, features, weights, budget):
    """One cache over the generated tokens: examples (features, tokens to the next use), hit rate."""
    score, heard = features
    L, E, T, P = tr.n_layers, tr.n_experts, tr.n_tokens, tr.n_prompt
    slots = share_slots(tr, budget)
    worth = np.tensordot(score[P - 1], weights[:3], ((1,), (0,)))
    held = warm(tr, slots, worth)
    never = np.full((L, E), 10**6)
    after = np.stack([never] * (T + 1))  # token of the next use, this one included
    for t in range(T - 1, -1, -1):
        after[t] = np.where(tr.used[t], t, after[t + 1])
    layers = np.arange(L)
    last = np.array([P - 1] * L)  # token of a layer's last visit
    hits = total = 0
    xs, ys = [], []
    for t in range(P, T):
        for l in range(L):
            asked = np.flatnonzero(tr.used[t, l])
            missing = asked[~held[l, asked]]
            hits, total = hits + len(asked) - len(missing), total + len(asked)
            worth[l] = weights[:3] @ score[t, l]
            last[l] = t
            pool = tr.sizes == tr.sizes[l]
            mine = held & pool[:, None]
            room = slots[tr.sizes[l]] - mine.sum()
            if len(missing) <= room:
                held[l, missing] = True
                continue
            distance = np.where(layers > l, layers - l, layers - l + L) / L
            value = worth + weights[3] * heard[t, l] - SOON * np.log(distance + SOON_MIN)[:, None]
            look = mine.copy()
            look[l, asked] = True
            if (t * L + l) % EVERY == 0 and t < T - 1:
                a, e = np.nonzero(look)
                xs.append(np.column_stack([score[last[a], a, :, e], heard[t, l, a, e]]))
                ys.append(after[np.where(a > l, t, t + 1), a, e] - np.where(a > l, t, t + 1))
            value[~mine] = np.inf
            mine_now = worth[l] + weights[3] * heard[t, l, l] - SOON * np.log(1 + SOON_MIN)
            value[l, asked] = np.inf
            for e in missing:
                if room > 0:
                    room -= 1
                else:
                    victim = np.unravel_index(value.argmin(), value.shape)
                    if value[victim] >= mine_now[e]:
                        continue
                    held[victim] = False
                    value[victim] = np.inf
                held[l, e] = True
    return np.concatenate(xs), np.concatenate(ys), hits / total


def regress(x, y, weight):
    """Logistic regression with a constant, by Newton's method."""
    z = np.column_stack([x, np.ones(len(x))])
    w = np.zeros(z.shape[1])
    for _ in range(15):
        p = 1 / (1 + np.exp(-z @ w))
        grad = z.T @ (weight * (y - p)) / len(y) - 1e-4 * w
        hess = (z * (weight * p * (1 - p))[:, None]).T @ z / len(y) + 1e-4 * np.eye(len(w))
        w += np.linalg.solve(hess, grad)
    return w[:-1]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip().split("\n\n")[1])
    tr = Trace(sys.argv[1])
    features = make_features(tr)
    weights = np.ones(4)
    for _ in range(ROUNDS):
        xs, ys, ws, hit = [], [], [], []
        for mib in BUDGETS:
            x, y, h = run(tr, features, weights, mib << 20)
            xs.append(x)
            ys.append(y < WITHIN)
            ws.append(np.full(len(y), 1 / len(y)))
            hit.append(h)
        print("hit:", "  ".join(f"{m} MiB {100 * h:.2f} %" for m, h in zip(BUDGETS, hit)))
        w = np.concatenate(ws)
        weights = regress(np.concatenate(xs), np.concatenate(ys), w / w.mean())
        print("  ".join(f"{n} {v:.3f}" for n, v in zip(FEATURES, weights)), flush=True)


if __name__ == "__main__":
    main()
