#!/usr/bin/env python3
"""Speed of streamed decoding against its limit, over cache sizes, I/O engines and overlap.

  bench/stream_matrix.py --model MODEL.gguf --trace ROUTING.csv [--caches 0,1000,2000,4000] [--engines uring,threads]
      [--overlap on,off] [--variants 'plain=;lru=--cache-policy lru'] [--runs 3] [--tokens 48]
      [--wrap 'command that runs what follows, in a cgroup, say']

Rounds alternate: each round runs every cell once, the order reversed every second round, and the rates of memory,
kernels and drive are measured before and after each run (--rates-every), in processes of their own. A run records its reads
(--io-trace); from them and from the mean of the rates around it comes the layered limit (docs/telemetry.md). The table
has the median over rounds and the range. A run during which memory or drive changed by more than --steady (10 %) is
made again, at most twice, and counted."""
import argparse
import os
import shlex
import statistics
import sys
import tempfile

from programs import ROOT, drive_rate, execute, kernel_rates, layered_limit, summary

TYPES = ("Q4_K", "Q6_K")


def measure_rates(a):
    """GB/s: memory with all threads, the slower kernel of one thread from cache times threads, the drive."""
    begin, end, cache = kernel_rates(a.sluice, TYPES, a.threads)
    return {"ram": (begin + end) / 2, "kernel": statistics.mean(cache.values()),
            "drive": drive_rate(a.sluice, a.model, a.in_flight)}


def one_run(a, cell, limits, before, measure_after):
    cache, engine, overlap, (_, flags) = cell
    with tempfile.TemporaryDirectory() as d:
        csv, io = os.path.join(d, "run.csv"), os.path.join(d, "io.csv")
        command = shlex.split(a.wrap) + [
            a.sluice, "run", "-m", a.model, "--moe-stream", "--cache-mb", str(cache), "--io-engine", engine,
            "--overlap" if overlap == "on" else "--no-overlap", "-t", str(a.threads), "--io-threads",
            str(a.in_flight), "-n", str(a.tokens), "--ignore-eos", "--csv", csv, "--io-trace", io, "-c",
            str(a.ctx)] + (["--route-replay", a.trace] if a.trace else []) + shlex.split(flags)
        prompt = ["--token-ids", ",".join(str(1000 + 7 * i) for i in range(a.prompt_tokens))]
        execute(command + prompt)
        after = measure_rates(a) if measure_after else before
        mean = {k: (before[k] + after[k]) / 2 for k in before}
        out = summary(csv)
        out.update(limits(io, 1e9 * mean["ram"], 1e9 * mean["drive"], 1e9 * mean["kernel"], a.threads))
    moved = max(abs(after[k] - before[k]) / before[k] for k in ("ram", "drive"))
    if a.verbose:
        print(f"{cell}: {out['s_per_token']:.4f} s, limit {out['layered_limit_s']:.4f}, rates moved {moved:.2f}",
              file=sys.stderr)
    out.update(mean)
    return out, after, moved


def measure(a, cells, limits):
    results, repeated = {c: [] for c in cells}, 0
    rates, made = measure_rates(a), 0
    for i in range(a.runs):
        for cell in cells if i % 2 == 0 else cells[::-1]:
            for _ in range(3):
                made += 1
                out, rates, moved = one_run(a, cell, limits, rates, made % a.rates_every == 0)
                if moved <= a.steady:
                    break
                repeated += 1
            results[cell].append(out)
    return results, repeated


def print_table(results):
    print("| cache MiB | engine | overlap | variant | token/s | range | of the layered limit | range | "
          "of max(io, compute) | hit % | MiB/token | in vain | stall s | mgmt % | majflt | RssAnon MiB | RAM, drive GB/s |")
    print("|" + " --- |" * 17)
    for (cache, engine, overlap, (name, _)), runs in results.items():
        def med(key, runs=runs):
            return statistics.median(r[key] for r in runs)
        speed = sorted(1 / r["wall_s"] for r in runs)
        share = sorted(r["layered_limit_s"] / r["wall_s"] for r in runs)
        print(f"| {cache} | {engine} | {overlap} | {name} | {statistics.median(speed):.2f} | {speed[0]:.2f} to {speed[-1]:.2f} "
              f"| {statistics.median(share):.2f} | {share[0]:.2f} to {share[-1]:.2f} | "
              f"{statistics.median(r['whole_limit_s'] / r['wall_s'] for r in runs):.2f} | {med('hit_pct'):.1f} | "
              f"{med('mib_per_token'):.0f} | {statistics.median(r['guess_wasted_mib'] / r['tokens'] for r in runs):.0f} | "
              f"{med('stall_s'):.4f} | {100 * med('mgmt_s') / med('wall_s'):.2f} | "
              f"{med('majflt'):.0f} | {med('rss_peak_mib'):.0f} | {med('ram'):.1f}, {med('drive'):.2f} |")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--model", required=True)
    p.add_argument("--trace", help="recorded routing to follow; without it the model's own")
    p.add_argument("--sluice", default=os.path.join(ROOT, "build", "cli", "sluice"))
    p.add_argument("--caches", default="0,1000,2000,4000", help="MiB")
    p.add_argument("--engines", default="uring,threads")
    p.add_argument("--overlap", default="on,off")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--tokens", type=int, default=48)
    p.add_argument("--prompt-tokens", type=int, default=32)
    p.add_argument("--ctx", type=int, default=1024)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--in-flight", type=int, default=4)
    p.add_argument("--steady", type=float, default=0.10)
    p.add_argument("--wrap", default="", help="command that runs the rest of its line")
    p.add_argument("--variants", default="plain=", help="NAME=more flags of sluice run; NAME=flags; ...")
    p.add_argument("--rates-every", type=int, default=1, help="measure the rates after so many runs")
    p.add_argument("-v", "--verbose", action="store_true")
    a = p.parse_args()
    variants = [tuple(v.strip().split("=", 1)) for v in a.variants.split(";")]
    cells = [(int(c), e, o, v) for c in a.caches.split(",") for e in a.engines.split(",")
             for o in a.overlap.split(",") for v in variants]
    results, repeated = measure(a, cells, layered_limit().limits)
    print_table(results)
    print(f"\n{repeated} runs were made again because rates moved by more than {100 * a.steady:.0f} %.")


if __name__ == "__main__":
    main()
