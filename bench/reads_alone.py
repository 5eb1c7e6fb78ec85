#!/usr/bin/env python3
"""Is the drive slow, or the engine? Runs, alternating with their reads alone.

  bench/reads_alone.py --model MODEL.gguf [--caches 0] [--runs 5] [--tokens 32] [--flags 'more of sluice run']
      [--wrap 'command that runs what follows, in a cgroup, say']

A run decodes with a seed of its own and records its reads (--io-trace). bare_reads makes those of its decoded tokens
again, of the same places in the same order, a layer's together and the next layer's after them, into as much memory as
the run's, and computes nothing. Beside that stands the layered limit (docs/telemetry.md) with a drive that takes no time.
Without a cache no run can be faster than the sum of both; with one it can, where it multiplies what is there meanwhile.
Which of both comes first changes from round to round; the rates of memory, kernels and drive are measured around them, so
that the layered limit by the drive's own rate is there too. bare_reads needs liburing."""
import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile

from programs import ROOT, drive_rate, execute, kernel_rates, layered_limit, summary

TYPES = ("Q4_K", "Q6_K")


def places(rows):
    """Lines for bare_reads: the reads of the tokens that were decoded, an empty one after each layer's."""
    decoded = {r["token"] for r in rows if r["kind"] == "block" and r["phase"] == "1" and r["tokens"] == "1"}
    lines, last = [], None
    for r in rows:
        if r["kind"] == "read" and r["token"] in decoded and r["failed"] == "0":
            if last not in (None, (r["token"], r["layer"])):
                lines.append("")
            last = (r["token"], r["layer"])
            lines.append(f"{r['file']} {r['offset']} {r['bytes']}")
    return "".join(line + "\n" for line in lines), len(decoded)


def paths(trace):
    with open(trace, encoding="utf-8") as f:
        return [json.loads(line.split(" path=", 1)[1]) for line in f if line.startswith("# file=")]


def run(a, cache, seed, trace, csv):
    """Seconds a token."""
    if a.between:
        execute(["sh", "-c", a.between])
    execute(shlex.split(a.wrap) + [
        a.sluice, "run", "-m", a.model, "--moe-stream", "--cache-mb", cache, "-t", a.threads, "--io-threads", a.in_flight,
        "-n", a.tokens, "--ignore-eos", "--temp", 2, "--seed", seed, "--token-ids", ",".join(str(1000 + 7 * i) for i in
                                                                                          range(a.prompt_tokens)),
        "-c", a.ctx, "--csv", csv, "--io-trace", trace] + shlex.split(a.flags))
    return summary(csv)["s_per_token"]


def alone(a, cache, trace):
    """Seconds a token, and how the file was read; into as much memory as a run's cache and its buffers of reads have."""
    lines, tokens = places(list(layered_limit().rows(trace)))
    if not lines:
        return 0.0, "direct"
    seconds, _, how = execute([os.path.join(a.build, "bench", "bare_reads"), a.in_flight, cache + 32, *paths(trace)],
                              given=lines).stdout.split()
    return float(seconds) / tokens, how


def one_round(a, cache, i):
    with tempfile.TemporaryDirectory() as d:
        trace, csv = os.path.join(d, "io.csv"), os.path.join(d, "run.csv")
        ram, _, cache_rate = kernel_rates(a.sluice, TYPES, a.threads, *shlex.split(a.rates))
        alone_first = i % 2 == 1
        if alone_first: # the same seed makes the same reads
            run(a, cache, i + 1, trace, csv)
        drive = drive_rate(a.sluice, a.model, a.in_flight)
        if alone_first:
            reads, how = alone(a, cache, trace)
        wall = run(a, cache, i + 1, trace, csv)
        if not alone_first:
            reads, how = alone(a, cache, trace)
        after = drive_rate(a.sluice, a.model, a.in_flight)
        rates = (1e9 * ram, 1e9 * (drive + after) / 2, 1e9 * statistics.mean(cache_rate.values()), a.threads)
        limits = layered_limit().limits
        limit = limits(trace, *rates)["layered_limit_s"]
        beside = limits(trace, rates[0], float("inf"), *rates[2:])["layered_limit_s"]
    print(f"| {cache} | {i + 1} | {how} | {wall:.3f} | {reads:.3f} | {beside:.3f} | {(reads + beside) / wall:.2f} | "
          f"{limit / wall:.2f} | {ram:.1f} | {drive:.2f}, {after:.2f} |", flush=True)
    return (reads + beside) / wall, limit / wall


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--sluice", help="default: the build's")
    p.add_argument("--caches", default="0", help="MiB")
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--prompt-tokens", type=int, default=8)
    p.add_argument("--ctx", type=int, default=1024)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--in-flight", type=int, default=4)
    p.add_argument("--flags", default="", help="more of sluice run")
    p.add_argument("--rates", default="", help="more of sluice bench --kernels, which measures memory and kernels")
    p.add_argument("--wrap", default="", help="command that runs the rest of its line")
    p.add_argument("--between", default="", help="shell command before each run")
    a = p.parse_args()
    a.sluice = a.sluice or os.path.join(a.build, "cli", "sluice")
    if not os.path.exists(os.path.join(a.build, "bench", "bare_reads")):
        sys.exit("bare_reads is not built: it needs liburing")
    print("| cache MiB | round | reads | s per token | reads alone | arithmetic beside them | their sum / run | "
          "layered limit / run | RAM GB/s | drive GB/s |")
    print("|" + " --- |" * 10)
    for cache in a.caches.split(","):
        shares = [one_round(a, int(cache), i) for i in range(a.runs)]
        print(f"| {cache} | median | | | | | {statistics.median(s[0] for s in shares):.2f} | "
              f"{statistics.median(s[1] for s in shares):.2f} | | |", flush=True)


if __name__ == "__main__":
    main()
