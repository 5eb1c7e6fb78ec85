#!/usr/bin/env python3
"""From the start of the program to the first token, beside what the drive allows.

  bench/cold_start.py --model MODEL.gguf [--prompts 1,16,512] [--runs 3] [--flags '--cache-mb 2000']
      [--wrap 'command that runs what follows, in a cgroup, say'] [--between 'command before each run']
      [--sluice OTHER/sluice --sluice THIS/sluice]

Before each run a process touches --touch-mb MiB of memory, as much as the run takes, in huge pages as the run does, and
exits: a virtual machine gives free pages back to its host, and their first touch then costs up to 2 s per GB, which is no
part of what is measured (0 leaves that out). Allowed are --fixed seconds and --factor times what the drive needs for the dense
weights and the experts that the prompt read, at the mean of its rates before and after the run. Columns: seconds from the start of
the process until the engine is open (with --no-load-behind in --flags: until the weights are loaded) and until the prompt is
evaluated, from whose last position the first token is drawn at once. Exit status 1 when a median is above what is allowed."""
import argparse
import json
import mmap
import os
import shlex
import statistics
import subprocess
import sys
import time

from programs import ROOT, drive_rate

HUGE = 2 << 20


def touch(n_bytes):
    """In a process of its own, whose memory is free again when this returns."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            m = mmap.mmap(-1, n_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            m.madvise(mmap.MADV_HUGEPAGE)
            for at in range(0, n_bytes, HUGE):
                m[at] = 1
            status = 0
        finally: # never back into what the parent does
            os._exit(status)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(f"--touch-mb: {n_bytes >> 20} MiB are not to be had")


def start(a, sluice, n_prompt):
    """Seconds until the engine was open, until the prompt was evaluated; bytes of dense weights and of experts that it read."""
    ids = ",".join(str(1000 + 7 * i % 30000) for i in range(n_prompt))
    command = shlex.split(a.wrap) + [sluice, "run", "-m", a.model, "--token-ids", ids, "-n", "1", "--progress"]
    begin = time.monotonic()
    p = subprocess.Popen(command + shlex.split(a.flags), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    at, events = {}, {}
    for line in p.stderr:
        if line.startswith(b"{"):
            event = json.loads(line.decode("utf-8", "replace"))
            at[event["event"]] = time.monotonic() - begin
            events[event["event"]] = event
    if p.wait() != 0 or "prompt" not in at:
        sys.exit(f"{shlex.join(command[:6])} ... failed: {p.returncode}")
    read = events["summary"]["prompt_read_mib"] or 0
    return at["mode"], at["prompt"], events["mode"]["dense_bytes"] + read * 2**20


def measure(a, sluice, n_prompt):
    before = drive_rate(sluice, a.model, seconds=a.seconds)
    if a.touch_mb > 0:
        touch(a.touch_mb << 20)
    if a.between:
        subprocess.run(a.between, shell=True, check=True)
    opened, first, n_bytes = start(a, sluice, n_prompt)
    rate = (before + drive_rate(sluice, a.model, seconds=a.seconds)) / 2 * 1e9
    return {"opened": opened, "first": first, "allowed": a.fixed + a.factor * n_bytes / rate, "gb": n_bytes / 1e9,
            "rate": rate / 1e9}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--model", required=True)
    p.add_argument("--sluice", action="append", help="one or several, alternating")
    p.add_argument("--prompts", default="1,16,512", help="tokens")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--flags", default="--moe-stream --cache-mb 2000 -c 1024", help="more of sluice run")
    p.add_argument("--wrap", default="", help="command that runs the rest of its line")
    p.add_argument("--between", default="", help="shell command before each run")
    p.add_argument("--touch-mb", type=int, default=4096)
    p.add_argument("--seconds", type=float, default=0.7, help="for each measurement of the drive")
    p.add_argument("--fixed", type=float, default=1.0)
    p.add_argument("--factor", type=float, default=1.15)
    a = p.parse_args()
    a.sluice = a.sluice or [os.path.join(ROOT, "build", "cli", "sluice")]
    cells = [(int(n), s) for n in a.prompts.split(",") for s in a.sluice]
    rows = {c: [] for c in cells}
    for i in range(a.runs):
        for n, s in cells if i % 2 == 0 else reversed(cells):
            rows[n, s].append(measure(a, s, n))
    print("| program | prompt | read GB | drive GB/s | open s | first token s | allowed s | first / allowed |")
    print("|" + " --- |" * 8)
    good = True
    for (n, s), r in rows.items():
        def all_of(key, digits=2):
            return ", ".join(f"{x[key]:.{digits}f}" for x in r)
        ratio = statistics.median(x["first"] / x["allowed"] for x in r)
        good = good and statistics.median(x["first"] - x["allowed"] for x in r) <= 0
        print(f"| {os.path.relpath(s)} | {n} | {r[0]['gb']:.2f} | {all_of('rate')} | {all_of('opened')} | {all_of('first')} | "
              f"{all_of('allowed')} | {ratio:.2f} |")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
