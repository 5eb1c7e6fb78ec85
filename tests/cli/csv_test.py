#!/usr/bin/env python3
"""--csv: its three parts, and that its numbers agree with each other and with the report."""
import csv
import json
import math
import os
import subprocess
import sys

from harness import check, run_tests

COLUMNS = """step token wall_s compute_s io_s mgmt_s stall_s other_s loop_s overhead_s read_bytes reads hits misses
hit_pct evictions rereads experts_routed experts_dropped majflt cpu_s rss_anon_mib rss_file_mib rss_shmem_mib
mem_available_mib dense_resident_pct cache_resident_mib cache_budget_mib budget_mib
turn""".split()
STREAMED_ONLY = """io_s mgmt_s stall_s read_bytes reads hits misses hit_pct evictions rereads cache_resident_mib
cache_budget_mib""".split()


def near(a, b, slack):
    return abs(a - b) <= slack * max(abs(a), abs(b)) + 1e-9


def run(command, *args):
    return subprocess.run(command + ["run", "-p", "Once upon a time", "--ignore-eos", *args],
                          capture_output=True, timeout=240, check=False, stdin=subprocess.DEVNULL)


def read(path):
    """preamble, rows, summary"""
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    check(lines[0] == "# sluice csv v1", f"first line {lines[0]!r}")
    head = next(i for i, s in enumerate(lines) if not s.startswith("#"))
    tail = lines.index("# summary")
    check(all(s.startswith("# ") for s in lines[tail:]), "rows behind the summary")
    check(not any(s.startswith("#") for s in lines[head:tail]), "comments among the rows")

    def pairs(part):
        return dict(s[2:].split("=", 1) for s in part)
    rows = list(csv.DictReader(lines[head:tail]))
    check(lines[head].split(",") == COLUMNS, f"header {lines[head]}")
    return pairs(lines[1:head]), rows, pairs(lines[tail + 1:])


def number(row, key):
    return float(row[key]) if row[key] else math.nan


def check_rows(rows, n, streamed):
    check([int(r["step"]) for r in rows] == list(range(n)), "steps")
    for r in rows:
        for key in STREAMED_ONLY:
            # A token that asked for nothing has no hit rate.
            check((r[key] != "") == streamed or key == "hit_pct", f"{key}: {r[key]!r}")
        parts = sum(number(r, k) for k in ("compute_s", "other_s"))
        parts += sum(number(r, k) for k in ("mgmt_s", "stall_s")) if streamed else 0
        check(near(parts, number(r, "wall_s"), 0.02), f"parts {parts} of {r['wall_s']}")
        check(near(number(r, "wall_s") + number(r, "overhead_s"), number(r, "loop_s"), 1e-5), "loop")
        check(number(r, "compute_s") > 0 and number(r, "wall_s") > 0, "no time")
        check(int(r["experts_routed"]) > 0, "experts")
        if streamed:
            check(int(r["hits"]) + int(r["misses"]) == int(r["experts_routed"]), "hits and misses")


def check_streamed(command):
    p = run(command, "--moe-stream", "--cache-mb", "2", "-n", "9", "--ram", "200M", "--csv", "s.csv")
    check(p.returncode == 0, f"streamed: {p.stderr!r}")
    pre, rows, end = read("s.csv")
    check(pre["plan.mode"] == '"streamed"' and float(pre["plan.cache_mib"]) <= 2, f"plan {pre}")
    check(pre["option.n-predict"] == '"9"' and pre["option.csv"] == '"s.csv"', "options")
    check(json.loads(pre["option.prompt"]) == "Once upon a time", "prompt")
    check_rows(rows, 9, True)
    check(float(rows[0]["budget_mib"]) == 200, "budget")
    check(int(end["tokens"]) == 9, f"summary {end}")
    total = sum(int(r["read_bytes"]) for r in rows) / 1048576
    check(near(total, float(end["read_mib"]), 1e-6), "bytes")
    wall = sum(number(r, "wall_s") for r in rows) / 9
    check(near(wall, float(end["wall_s"]), 1e-5), "wall")
    loops = sorted(number(r, "loop_s") for r in rows)
    check(near(loops[4], float(end["median_s"]), 1e-6) and near(loops[0], float(end["min_s"]), 1e-6)
          and near(loops[-1], float(end["max_s"]), 1e-6), "quantiles")
    said = p.stderr.decode().split("\nmoe-cache: ")[1].split("%")[0]
    check(abs(float(said) - float(end["hit_pct"])) <= 0.06, "hit rate of report and summary")


def check_guesses(command):
    p = run(command, "--moe-stream", "--cache-mb", "2", "-n", "20", "--prefetch", "2", "--csv", "g.csv")
    check(p.returncode == 0, f"guesses: {p.stderr!r}")
    end = read("g.csv")[2]
    said = p.stderr.decode().split("\nmoe-prefetch: ")[1].split("\n")[0].split()
    useful, wasted = (float(said[said.index(word) - 2]) for word in ("useful,", "wasted"))
    check(abs(useful - float(end["guess_useful_mib"])) <= 0.051 and useful > 0, "useful guesses")
    check(abs(wasted - float(end["guess_wasted_mib"])) <= 0.051, "wasted guesses")


def check_resident(command):
    p = run(command, "--no-moe-stream", "-n", "3", "--csv", "r.csv")
    check(p.returncode == 0 and b"\ndecode: " in p.stderr, f"resident: {p.stderr!r}")
    pre, rows, end = read("r.csv")
    check(pre["plan.mode"] == '"resident"', "mode")
    check_rows(rows, 3, False)
    check(end["hit_pct"] == "" and end["read_mib"] == "" and end["guess_wasted_mib"] == "",
          "what was not measured is not empty")


def check_none(command):
    p = run(command, "-n", "0", "--csv", "n.csv")
    check(p.returncode == 0, f"-n 0: {p.stderr!r}")
    _, rows, end = read("n.csv")
    check(rows == [] and end["tokens"] == "0" and end["median_s"] == "", "no tokens")


def check_left(_):
    left = sorted(os.listdir("."))
    check(left == ["g.csv", "n.csv", "r.csv", "s.csv"], f"left behind: {left}")


if __name__ == "__main__":
    sys.exit(run_tests((check_streamed, check_guesses, check_resident, check_none, check_left)))
