#!/usr/bin/env python3
"""Time per token of a resident model against what its weights allow.

  bench/decode_bound.py --model MODEL.gguf [--threads 2] [--tokens 48] [--runs 5] [--steady 0.1] [--sluice build/cli/sluice]

The bound is the sum, over the matrices that one token is multiplied with, of bytes / min(rate at which the threads read
memory, rate of the type's product from cache on one thread times threads). Of the routed experts a token's share
counts, of the embeddings one row, which is nothing. Rates are measured before and after each run, in processes of their
own, and averaged. A run during which memory changed by more than --steady is made again, at most three times, and counted;
the last one is kept and marked. The model is mapped (--dense-weights warm)."""
import argparse
import os
import re
import statistics

from programs import ROOT, execute, execute_json, kernel_rates

TRIES = 4


def token_bytes(info):
    """Bytes per weight type that the products of one token read."""
    share = info["experts_used"] / info["experts"] if info["experts"] else 1
    tied = not any(t["name"] == "output.weight" for t in info["tensors"])
    out = {}
    for t in info["tensors"]:
        if len([n for n in t["shape"] if n > 1]) < 2 or (t["name"] == "token_embd.weight" and not tied):
            continue
        out[t["type"]] = out.get(t["type"], 0) + t["bytes"] * (share if t["expert"] else 1)
    return out


def measure_rates(a, types):
    """GB/s of memory with all threads, and of each type's product from cache with one thread."""
    begin, end, cache = kernel_rates(a.sluice, types, a.threads, "--buffer", "256M")
    return {"begin": begin, "end": end, "cache": cache}


def decode(a):
    p = execute([a.sluice, "run", "-m", a.model, "--no-moe-stream", "--dense-weights", "warm", "-t", a.threads,
                 "--ignore-eos", "-n", a.tokens, "-p", "The quick brown fox"])
    return float(re.search(r"^generation:.* median ([0-9.]+)", p.stderr, re.M).group(1))


def one_run(a, sizes):
    for i in range(TRIES):
        before = measure_rates(a, sizes)
        seconds = decode(a)
        after = measure_rates(a, sizes)
        at, then = before["end"], after["begin"]
        steady = abs(then - at) <= a.steady * min(at, then)
        if steady:
            break
    ram = (at + then) / 2
    bound = sum(n / min(ram, a.threads * (before["cache"][t] + after["cache"][t]) / 2) for t, n in sizes.items()) / 1e9
    return {"seconds": seconds, "bound": bound, "ram": (at, then), "repeated": i, "steady": steady}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--tokens", type=int, default=48)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--steady", type=float, default=0.1)
    p.add_argument("--sluice", default=os.path.join(ROOT, "build", "cli", "sluice"))
    a = p.parse_args()
    sizes = token_bytes(execute_json([a.sluice, "info", a.model, "--json", "--tensors"]))
    print("bytes of a token:", ", ".join(f"{t} {n / 1e6:.0f} MB" for t, n in sizes.items()))
    ratios = []
    for _ in range(a.runs):
        r = one_run(a, sizes)
        if r["steady"]:
            ratios.append(r["seconds"] / r["bound"])
        print(f"{r['seconds'] * 1e3:.1f} ms a token, bound {r['bound'] * 1e3:.1f} ms, "
              f"ratio {r['seconds'] / r['bound']:.3f}, memory {r['ram'][0]:.1f} and {r['ram'][1]:.1f} GB/s, repeated {r['repeated']}"
              + ("" if r["steady"] else ", memory never steady: not counted"), flush=True)
    if ratios:
        print(f"ratio: median of {len(ratios)} {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
