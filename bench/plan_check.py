#!/usr/bin/env python3
"""What `sluice plan` says beside what then happens.

  bench/plan_check.py --model MODEL.gguf [--model ...] [--budgets 'auto;--cache-mb 1000;--cache-mb 2000']
      [--prompts 16,512] [--tokens 96] [--runs 3] [--flags '--temp 2'] [--trace ROUTING.csv]
      [--wrap 'command that runs what follows, in a cgroup, say'] [--between 'command before each run']

For each model, budget and prompt: `plan --json`, then `run` with the flags that it chose, both under --wrap, alternating
over the rounds. The table has the medians of what was said and of what was measured, and how far the first is off
(positive: it promised more speed, or a shorter wait, than came). The run's first --skip tokens, which find a cache that
knows only the prompt, are left out of its speed: the plan speaks of a text that goes on. That takes --csv, whose counters
cost a tenth of a millisecond per token: --skip 0 does without, for models whose tokens take no longer. Exit status 1 when
an estimate is off by more than --within."""
import argparse
import csv
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

from programs import ROOT, execute, execute_json



def plan(a, model, budget, prompt):
    command = shlex.split(a.wrap) + [a.sluice, "plan", model, "--json", "--prompt-tokens", str(prompt)] + budget
    if a.trace:
        command += ["--trace", a.trace]
    said = execute_json(command)
    if said["tok_s"] is None:
        sys.exit(f"{shlex.join(command)}: says no speed: the rate of the file's drive is not known")
    return said


def token_times(path, skip):
    with open(path, encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
    times = [float(r["loop_s"]) for r in rows]
    hits = [float(r["hit_pct"]) for r in rows if r["hit_pct"]]
    return times[skip:], hits[skip:]


def number(text, pattern):
    found = re.search(pattern, text)
    return float(found.group(1)) if found else float("nan")


def measure(a, model, flags, prompt):
    """Seconds to the first token, tokens per second, hit rate."""
    ids = ",".join(str(300 + (7 * i) % 4000) for i in range(prompt))
    command = shlex.split(a.wrap) + [a.sluice, "run", "-m", model, "--token-ids", ids, "-n", str(a.tokens), "--ignore-eos"]
    command += shlex.split(flags) + shlex.split(a.flags) + (["--route-replay", a.trace] if a.trace else [])
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "run.csv")
        report = execute(command + (["--csv", path] if a.skip else [])).stderr
        if a.skip:
            times, hits = token_times(path, a.skip)
    out = {"ttft_s": number(report, r"TTFT ([0-9.e-]+) s"), "tok_s": number(report, r"\(([0-9.e+-]+) tok/s\)"),
           "hit": number(report, r"moe-cache: ([0-9.]+)% hit") / 100}
    if a.skip:
        out["tok_s"] = len(times) / sum(times)
        out["hit"] = statistics.mean(hits) / 100 if hits else 1.0
    return out


def off(said, came):
    return said / came - 1 if came > 0 else float("nan")


def check(a, model, budget, prompt):
    said, came = [], []
    for _ in range(a.runs):
        said.append(plan(a, model, budget, prompt))
        if a.between:
            subprocess.run(a.between, shell=True, check=True)
        came.append(measure(a, model, said[-1]["flags"], prompt))

    def med(rows, key):
        return statistics.median(r[key] for r in rows)
    speed = off(med(said, "tok_s"), med(came, "tok_s"))
    wait = off(med(came, "ttft_s"), med(said, "ttft_s"))
    print(f"| {os.path.basename(model)} | {shlex.join(budget) or 'none'} | {prompt} | {med(said, 'tok_s'):.4g} | "
          f"{med(came, 'tok_s'):.4g} | {100 * speed:+.0f} % | {med(said, 'ttft_s'):.4g} | {med(came, 'ttft_s'):.4g} | "
          f"{100 * wait:+.0f} % | {100 * med(said, 'hit'):.0f} | {100 * med(came, 'hit'):.0f} | "
          f"{med(said, 'drive_gb_s'):.2f} | {med(said, 'ram_gb_s'):.1f} |", flush=True)
    return abs(speed) <= a.within and abs(wait) <= a.within


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--model", action="append", required=True)
    p.add_argument("--sluice", default=os.path.join(ROOT, "build", "cli", "sluice"))
    p.add_argument("--budgets", default="", help="options of memory, one set after the other, separated by ;")
    p.add_argument("--prompts", default="16,512", help="tokens")
    p.add_argument("--tokens", type=int, default=96)
    p.add_argument("--skip", type=int, default=32)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--flags", default="", help="more of sluice run")
    p.add_argument("--trace", help="recorded routing: the plan reads it, the run follows it")
    p.add_argument("--wrap", default="", help="command that runs the rest of its line")
    p.add_argument("--between", default="", help="shell command before each run")
    p.add_argument("--within", type=float, default=0.3)
    a = p.parse_args()
    if a.skip >= a.tokens:
        p.error("--skip leaves no token of --tokens")
    print("| model | budget | prompt | token/s said | measured | off | first token s said | measured | off | hit % said | "
          "measured | drive GB/s | RAM GB/s |")
    print("|" + " --- |" * 13)
    good = [check(a, m, shlex.split(b), int(n)) for m in a.model for b in a.budgets.split(";")
            for n in a.prompts.split(",")]
    print(f"\n{sum(good)} of {len(good)} within {100 * a.within:.0f} %.")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
