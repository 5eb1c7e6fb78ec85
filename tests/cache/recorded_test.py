#!/usr/bin/env python3
"""sluice replay on the recorded routing of three models.

usage: recorded_test.py --program SLUICE --data tests/data/traces [--emulator CMD]

- LRU's hits equal those of a simulator that shares nothing with the engine.
- No policy beats the optimum; the default one keeps what docs/cache-policy.md says of it.
"""
import argparse
import collections
import json
import lzma
import os
import shlex
import subprocess
import sys
import tempfile

NAMES = ("qwen", "gemma", "gptoss")
BUDGETS = (500, 1000, 2000, 4000)
FLOOR = {"echo": 33.0}  # percent of the distance from LRU to the optimum, mean
CELLS = (1000, 2000, 4000)
PAGE = 4096


def load(path):
    sizes, prompt, decode = {}, {}, []
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.startswith("# layer="):
                d = dict(x.split("=") for x in line[2:].split())
                sizes[int(d["layer"])] = -(-int(d["expert_bytes"]) // PAGE) * PAGE
            elif line[0].isdigit():
                _, phase, step, layer, _, expert = map(int, line.split(",")[:6])
                if phase == 0:
                    prompt.setdefault(layer, []).append(expert)
                elif decode and decode[-1][:2] == (step, layer):
                    decode[-1][2].append(expert)
                else:
                    decode.append((step, layer, [expert]))
    return sizes, prompt, decode


def share(sizes, budget):
    """Slots per size: in proportion to the layers, the rest to whichever has least of its share."""
    layers = collections.Counter(sizes.values())
    slots = {b: budget * n // len(sizes) // b for b, n in layers.items()}
    left = budget - sum(b * n for b, n in slots.items())
    while any(b <= left for b in slots):
        b = min((b for b in slots if b <= left), key=lambda b: slots[b] * b / layers[b])
        slots[b] += 1
        left -= b
    return slots


def lru(sizes, prompt, decode, budget):
    """Hits and accesses of decode. Per size an ordered dict, oldest first."""
    slots = share(sizes, budget)
    held = {b: collections.OrderedDict() for b in slots}
    count = collections.Counter((l, e) for l, es in prompt.items() for e in es)
    for l in sorted(prompt):
        cache = held[sizes[l]]
        asked, new = sorted(set(prompt[l])), []
        for e in sorted(asked, key=lambda e: (-count[l, e], e)):
            if len(cache) + len(new) == slots[sizes[l]]:
                low = min(cache, key=lambda k: count[k], default=None)  # the oldest of equals
                if low is None or count[low] >= count[l, e]:
                    continue
                del cache[low]
            new.append(e)
        for e in sorted(new):
            cache[l, e] = True
    hits = total = 0
    for _, l, es in decode:
        cache = held[sizes[l]]
        room = slots[sizes[l]]
        missing = [e for e in sorted(es) if (l, e) not in cache]
        total += len(es)
        hits += len(es) - len(missing)
        free = room - len(cache)
        for _ in missing[max(free, 0):]:
            del cache[next(k for k in cache if k[0] != l or k[1] not in es)]
        for e in sorted(es):
            cache[l, e] = True
            cache.move_to_end((l, e))
    return hits, total


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--program", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--emulator", default="")
    a = p.parse_args()
    bad, closed = [], collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as tmp:
        for name in NAMES:
            path = os.path.join(tmp, name + ".csv")
            with lzma.open(os.path.join(a.data, name + ".route.csv.xz")) as f, open(path, "wb") as g:
                g.write(f.read())
            out = subprocess.run(
                shlex.split(a.emulator.replace(";", " ")) +
                [a.program, "replay", path, "--policy", "all", "--json", "--budget-mb",
                 ",".join(map(str, BUDGETS))], check=True, capture_output=True, text=True).stdout
            rows = [json.loads(line) for line in out.splitlines()]
            trace = load(path)
            for r in rows:
                where = f"{name} {r['budget_mib']} MiB {r['policy']}"
                if r["hit"] > r["belady_hit"]:
                    bad.append(f"{where}: beats the optimum")
                if r["budget_mib"] in CELLS and r["belady_hit"] - r["lru_hit"] >= 0.05:
                    closed[r["policy"]].append(
                        100 * (r["hit"] - r["lru_hit"]) / (r["belady_hit"] - r["lru_hit"]))
                if r["policy"] == "lru":
                    hits, total = lru(*trace, r["budget_mib"] << 20)
                    if abs(hits / total - r["hit"]) > 1e-6:
                        bad.append(f"{where}: {r['hit']:.6f}, expected {hits / total:.6f}")
    for policy, floor in FLOOR.items():
        mean = sum(closed[policy]) / len(closed[policy])
        print(f"{policy}: {mean:.1f} % of the distance, {len(closed[policy])} cells")
        if mean < floor or len(closed[policy]) != 9:
            bad.append(f"{policy}: closes {mean:.1f} % of the distance, expected {floor}")
    print("\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
