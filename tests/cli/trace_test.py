#!/usr/bin/env python3
"""--route-trace, --io-trace, --compute-trace, --timing, --cache-telemetry: they agree with each other, with --csv,
--experts-out and the report, and with what other programs make of them."""
import array
import csv
import json
import os
import subprocess
import sys

from harness import check, check_no_temporaries, run_tests

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "storyteller.gguf")
N_TOKENS, N_LAYER, K = 10, 6, 2
RATES = ["--ram-gb-s", "30", "--kernel-gb-s", "12.5", "--drive-gb-s", "1.5"]


def near(a, b, slack):
    return abs(a - b) <= slack * max(abs(a), abs(b)) + 1e-12


def run(command, *args):
    p = subprocess.run(command + ["run", "-m", MODEL, "-p", "Once upon a time", "--ignore-eos", "-n", str(N_TOKENS),
                                  *args],
                       capture_output=True, timeout=240, check=False, stdin=subprocess.DEVNULL)
    check(p.returncode == 0, f"{args}: {p.returncode} {p.stderr[-300:]!r}")
    return p.stdout, p.stderr.decode()


def read(path, form):
    """rows, trailer"""
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    check(lines[0] == f"# {form} v1", f"{path}: {lines[0]}")
    rows = list(csv.DictReader(s for s in lines if not s.startswith("#")))
    pairs = dict(s[2:].split("=", 1) for s in lines[1:] if s.startswith("# ") and "=" in s)
    return rows, pairs


def check_route(command):
    """What the trace says was chosen is what --experts-out says; and the text is the same."""
    _, _ = run(command, "--moe-stream", "--cache-mb", "3", "--experts-out", "e", "--route-trace", "r.csv",
               "--ubatch", "3")
    rows, _ = read("r.csv", "route_trace")
    flat = array.array("i")
    with open("e", "rb") as f:
        flat.frombytes(f.read())
    want = {(flat[i], flat[i + 1]): list(flat[i + 2:i + 2 + K]) for i in range(0, len(flat), K + 2)}
    got, weights = {}, {}
    for r in rows:
        key = int(r["step"]), int(r["layer"])
        check(int(r["slot"]) == len(got.setdefault(key, [])), "slots do not rise")
        got[key].append(int(r["expert"]))
        weights.setdefault(key, []).append(float(r["weight"]))
        check(r["residency"] in "01" and (r["residency"] == "0" or r["expert_bytes"] == "0"), f"{r}")
    check({k: sorted(v) for k, v in got.items()} == want, "other experts than --experts-out")
    check(all(w == sorted(w, reverse=True) and near(sum(w), 1, 1e-6) for w in weights.values()), "weights")
    phases = [r["phase"] for r in rows]
    check(phases == sorted(phases) and phases.count("1") == N_TOKENS * N_LAYER * K, "phases")


def check_io(command):
    """Bytes and hits are those of --csv; reads lie in the file and in time; the limit is that of the script."""
    _, err = run(command, "--moe-stream", "--cache-mb", "3", "--csv", "s.csv", "--io-trace", "i.csv",
                 "--route-trace", "r2.csv", "--cache-telemetry", *RATES)
    check("; traced: route, io\n" in err, "the mode line does not say what is traced")
    rows, end = read("i.csv", "io_trace")
    route, _ = read("r2.csv", "route_trace")
    with open("s.csv", encoding="utf-8") as f:
        steps = list(csv.DictReader(s for s in f if not s.startswith("#")))
    size = os.path.getsize(MODEL)
    prompt = int(err.split("\nprefill: ")[1].split()[0])
    read_bytes, layers = {}, {}
    for r in rows:
        if r["kind"] == "read":
            token = int(r["token"])
            read_bytes[token] = read_bytes.get(token, 0) + int(r["bytes"])
            check(0 <= int(r["offset"]) and int(r["offset"]) + int(r["bytes"]) <= size and r["failed"] == "0", f"{r}")
            check(0 <= float(r["submit_s"]) <= float(r["done_s"]), f"times of {r}")
            check(r["demand"] == "1" or token == 0, f"speculation in decoding: {r}")
        else:
            layers.setdefault(int(r["token"]), []).append(r)
    for i, s in enumerate(steps):
        token = prompt + i
        check(read_bytes.get(token, 0) == int(s["read_bytes"]), f"token {token}: bytes read")
        blocks = layers[token]
        check([int(b["layer"]) for b in blocks] == list(range(N_LAYER + 1)), "layers and head")
        missed = sum(int(b["missed_bytes"]) // int(b["expert_bytes"]) for b in blocks[:-1])
        hit = sum(int(b["hit_bytes"]) // int(b["expert_bytes"]) for b in blocks[:-1])
        check((hit, missed) == (int(s["hits"]), int(s["misses"])), f"token {token}: hits and misses")
        asked = [r for r in route if int(r["step"]) == token]
        check(sum(r["residency"] == "1" for r in asked) == hit, f"token {token}: residency")
        check(sum(int(r["expert_bytes"]) for r in asked) == sum(int(b["missed_bytes"]) for b in blocks),
              f"token {token}: routed bytes")
    check_limit(err, end)
    check_reuse(err, steps, route)


def check_limit(err, end):
    out = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "layered_limit.py"), "i.csv", *RATES,
                          "--threads", end["threads"]], capture_output=True, text=True, check=True).stdout
    said = json.loads(out)
    check(said["tokens"] == N_TOKENS == int(end["tokens"]), f"limit of {said['tokens']} tokens")
    for key in ("layered_limit_s", "whole_limit_s"):
        check(near(said[key], float(end[key]), 1e-8), f"{key}: {said[key]} by the script, {end[key]} by the run")
    line = err.split("\nlayered-limit: ")[1].split("\n")[0]
    check(near(float(line.split()[0]), said["layered_limit_s"], 2e-3), f"report: {line}")
    efficiency = float(line.split("efficiency ")[1].split(";")[0])
    want = said["layered_limit_s"] / float(end["measured_s"])
    check(abs(efficiency - want) < 6e-4 + 1e-3 * want, line)  # three decimals


def check_reuse(err, steps, route):
    line = err.split("\ncache-telemetry: ")[1].split("\n")[0]
    uses = int(line.split()[0])
    check(uses == N_TOKENS * N_LAYER * K, line)
    share = [float(s.split("%")[0]) for s in line.split(", ")[1:4]]
    check(abs(sum(share) - 100) < 0.2, f"hits, cold and eviction misses are not all: {line}")
    hit = 100 * sum(int(s["hits"]) for s in steps) / uses
    check(abs(share[0] - hit) < 0.06, f"hit rate {hit}: {line}")
    # The cold misses by the routing.
    seen, cold = set(), 0
    for r in route:
        key = r["layer"], r["expert"]
        cold += r["phase"] == "1" and key not in seen
        seen.add(key)
    check(abs(share[1] - 100 * cold / uses) < 0.06, f"{cold} cold misses: {line}")


def check_compute(command):
    """Operations fill the evaluation; the table is made of them."""
    _, err = run(command, "--moe-stream", "--cache-mb", "3", "--csv", "s2.csv", "--compute-trace", "c.csv", "--timing")
    rows, _ = read("c.csv", "compute_trace")
    with open("s2.csv", encoding="utf-8") as f:
        steps = list(csv.DictReader(s for s in f if not s.startswith("#")))
    prompt = int(err.split("\nprefill: ")[1].split()[0])
    stall = 0
    for i, s in enumerate(steps):
        mine = [r for r in rows if int(r["token"]) == prompt + i]
        total = sum(float(r["wall_s"]) for r in mine)
        # The rest: what an evaluation does before and after its batch.
        check(0 < total <= 1.0001 * float(s["wall_s"]), f"token {i}: {total} of {s['wall_s']}")
        waited = sum(float(r["wall_s"]) for r in mine if r["op"] == "stall")
        check(near(waited, float(s["stall_s"]), 1e-3) or waited < 1e-6, f"token {i}: stall {waited} {s['stall_s']}")
        stall += waited
        layers = {int(r["layer"]) for r in mine if r["op"] == "experts"}
        check(layers == set(range(N_LAYER)), f"token {i}: experts of layers {layers}")
        check({r["op"] for r in mine if int(r["layer"]) == N_LAYER} == {"head"}, "head")
    line = err.split("\ntiming: expert I/O ")[1]
    check(abs(float(line.split()[0]) - 1e3 * stall / N_TOKENS) < 2e-3, f"expert I/O {line[:40]}")
    check(err.count("\ntiming: ") == 2 * (2 + N_LAYER + 2 + 1) + 1, "rows of the table")


def check_same_text(command):
    """Watching changes nothing, streamed or resident."""
    plain, _ = run(command, "--moe-stream", "--cache-mb", "3")
    for mode in (["--moe-stream", "--cache-mb", "3"], ["--no-moe-stream"]):
        out, err = run(command, *mode, "--timing", "--cache-telemetry", "--route-trace", "x1", "--io-trace", "x2",
                       "--compute-trace", "x3", "--csv", "x4")
        check(out == plain and plain, f"{mode}: another text")
        check("\nlayered-limit: not computed" in err, "a limit without rates")


def check_replay(command):
    p = subprocess.run(command + ["replay", "r.csv", "--budget-mb", "4", "--json"], capture_output=True, timeout=240,
                       check=False)
    check(p.returncode == 0 and b'"policy"' in p.stdout, f"replay: {p.returncode} {p.stderr!r}")
    out, err = run(command, "--route-replay", "r.csv", "--route-trace", "again.csv")
    check("; traced: route" in err and out, "a run that follows its own recording")
    rows, _ = read("r.csv", "route_trace")
    again, _ = read("again.csv", "route_trace")
    # The text's first token comes after the same prompt; all choices are the recording's.
    key = ("phase", "step", "layer", "slot", "expert")
    check([[r[k] for k in key] for r in sorted(rows, key=lambda r: (int(r["step"]), int(r["layer"])))] ==
          [[r[k] for k in key] for r in sorted(again, key=lambda r: (int(r["step"]), int(r["layer"])))],
          "the recording was not followed")


if __name__ == "__main__":
    sys.exit(run_tests((check_route, check_io, check_compute, check_same_text, check_replay, check_no_temporaries)))
