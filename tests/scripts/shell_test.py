#!/usr/bin/env python3
"""The measuring scripts: what they record and print, with recorded sensors, and what they refuse. Nothing about how
fast anything is. One test per call: sensors, bench_run, ab, report, split_study,
bare_pair, reads_alone, plan_check, cold_start, matrix."""
import argparse
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SCRIPTS = os.path.join(ROOT, "scripts")
TREES = os.path.join(HERE, "trees")
MODEL = os.path.join(ROOT, "models", "storyteller.gguf")
METRICS = "seconds,rss_mib,mem_available_mib,temp_c,max_khz,psi_some_avg10"
# Shells that a script may meet; busybox is what embedded systems have, mksh what Android has.
SHELLS = [s for s in (["dash"], ["busybox", "sh"], ["mksh"], ["bash", "--posix"]) if shutil.which(s[0])] or [["sh"]]
failures = []


def check(ok, what):
    if not ok:
        failures.append(what)


def environment(program, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE", "BENCH_"))}
    env.update(SLUICE=program, LC_ALL="C", BENCH_INTERVAL="0.05", **more)
    return env


def script(shell, name, *args, env, cwd=None):
    return subprocess.run([*shell, os.path.join(SCRIPTS, name), *args], capture_output=True, text=True, env=env,
                          timeout=240, check=False, stdin=subprocess.DEVNULL, cwd=cwd)


def read_csv(path):
    with open(path, encoding="utf-8") as f:
        return list(csv.DictReader(f))


# ---- Sensors ----

# temp_dc, max_khz, available_kib, psi by hand from the files of each tree
SENSORS = {
    "phone": "521,2841600,4215808,0.27",
    "laptop": "630,4100000,9120312,0.00",
    "desktop": "553,,29000704,",
    "bare": ",,1536000,",
    "damaged": ",,,",
    "missing": ",,,",
}


def test_sensors(_):
    say = 'set -eu; . "$1/bench-sensors.sh"; sensors_find "$2"; sensors_read; ' \
          'echo "$temp_dc,$max_khz,$available_kib,$psi"'
    for shell in SHELLS:
        for tree, want in SENSORS.items():
            p = subprocess.run([*shell, "-c", say, "sh", SCRIPTS, os.path.join(TREES, tree)], capture_output=True,
                               text=True, timeout=60, check=False)
            check(p.returncode == 0 and p.stdout == want + "\n" and not p.stderr,
                  f"{shell} {tree}: {p.stdout!r} {p.stderr!r}, want {want!r}")
        p = subprocess.run([*shell, "-c", 'set -eu; . "$1/bench-sensors.sh"; sensors_clock; a=$clock_cs; sleep 0.1; '
                            'sensors_clock; [ $((clock_cs - a)) -ge 5 ]; sensors_find ""; sensors_rss $$; '
                            '[ "$rss_kib" -gt 0 ]; for t in 0 5 123 ""; do sensors_tenths "$t"; echo "<$tenths>"; done',
                            "sh", SCRIPTS], capture_output=True, text=True, timeout=60, check=False)
        check(p.returncode == 0 and p.stdout.split() == ["<0.0>", "<0.5>", "<12.3>", "<>"], f"{shell}: {p}")


# ---- bench-run.sh ----

def run_once(shell, program, tree, d, tokens=12):
    out, metrics = os.path.join(d, "run 1.csv"), os.path.join(d, "run 1.metrics")
    env = environment(program, **({"BENCH_ROOT": os.path.join(TREES, tree)} if tree else {}))
    p = script(shell, "bench-run.sh", str(tokens), MODEL, out, metrics, "--cache-mb", "4", env=env)
    check(p.returncode == 0 and f"{tokens} tokens generated" in p.stdout, f"{shell} {tree}: {p}")
    with open(metrics, encoding="utf-8") as f:
        check(f.readline() == METRICS + "\n", "header of the metrics")
    with open(out, encoding="utf-8") as f:
        text = f.read()
    check(len(re.findall(r"^\d+,", text, re.M)) == tokens and '# option.cache-mb="4"' in text, "rows and options")
    return p.stdout.splitlines()[-1], read_csv(metrics)


def test_bench_run(program):
    with tempfile.TemporaryDirectory() as d:
        for shell in SHELLS:
            line, rows = run_once(shell, program, "phone", d)
            check(line == "bench-run: peak RSS not known, least MemAvailable 4117 MiB, hottest 52.1 C, "
                  "lowest clock limit 2841600 kHz", f"{shell}: {line}")
            check(bool(rows) and all((r["mem_available_mib"], r["temp_c"], r["max_khz"], r["psi_some_avg10"],
                                      r["rss_mib"]) == ("4117", "52.1", "2841600", "0.27", "") for r in rows),
                  f"{shell}: rows {rows}")
        line, rows = run_once(SHELLS[0], program, "damaged", d)
        check(line.count("not known") == 4 and all(set(list(r.values())[1:]) == {""} for r in rows), f"none: {rows}")
        line, rows = run_once(SHELLS[0], program, "", d, 800)
        seconds = [float(r["seconds"]) for r in rows]
        check(seconds == sorted(seconds) and all(r["rss_mib"] for r in rows[:-1]) and "RSS not known" not in line,
              f"{line} {rows}")
        env = environment(program)
        files = [os.path.join(d, "a.csv"), os.path.join(d, "a.metrics")]
        p = script(SHELLS[0], "bench-run.sh", "4", "no.gguf", *files, env=env)
        check(p.returncode == 1 and "no.gguf" in p.stderr and not os.path.exists(files[0]), f"no model: {p}")
        for args in (["4", MODEL, files[0]], ["x", MODEL, *files], ["", MODEL, *files]):
            p = script(SHELLS[0], "bench-run.sh", *args, env=env)
            check(p.returncode == 2, f"{args}: {p}")
        p = script(SHELLS[0], "bench-run.sh", "6", MODEL, *files, "--moe-stream", "--cache-mb", "4000", "--io-threads",
                   "4", env=env)
        check(p.returncode == 0 and "cache 12 MiB" in p.stdout, f"options: {p}")
        check_stopped(env, files)


def check_stopped(env, files):
    """Asked to stop, the run ends after its token with a report, and the script with its status."""
    with subprocess.Popen(["sh", os.path.join(SCRIPTS, "bench-run.sh"), "900", MODEL, *files, "--cache-mb", "0",
                           "--io-engine", "plain"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=env) as p:
        line = p.stderr.readline()
        while line and not line.startswith("mode:"):
            line = p.stderr.readline()
        time.sleep(0.1)
        p.send_signal(signal.SIGTERM)
        out, _ = p.communicate(timeout=120)
        check(p.returncode in (143, 0) and "bench-run:" in out, f"stopped: {p.returncode} {out}")


# ---- ab.sh ----

def test_ab(program):
    env = environment(program)
    with tempfile.TemporaryDirectory() as d:
        for shell in SHELLS:
            p = script(shell, "ab.sh", "-n", "10", "-w", "2", "-r", "2", "-o", "r.csv", "-A", "--cache-mb 4", "-B",
                       "--cache-mb '0'", MODEL, "--no-overlap", env=env, cwd=d)
            check(p.returncode == 0 and "tokens: the same in A and B" in p.stdout, f"{shell}: {p}")
            order = re.findall(r"^round (\d), (\w):", p.stderr, re.M)
            check(order == [("1", "A"), ("1", "B"), ("2", "B"), ("2", "A")], f"order {order}")
            cells = [r.split("|")[1:-1] for r in p.stdout.splitlines() if re.match(r"\| [AB] \|", r)]
            check(len(cells) == 2 and all(len(c) == 10 for c in cells), f"table {p.stdout}")
            check("in 0 of 2" in p.stdout or "in 1 of 2" in p.stdout or "in 2 of 2" in p.stdout, p.stdout)
            check_ab_numbers(read_csv(os.path.join(d, "r.csv")), cells)
        p = script(SHELLS[0], "ab.sh", "-n", "8", "-w", "0", "-r", "1", "-A", "--seed 1", "-B", "--seed 2", "-a",
                   f"'{program}' run", "--", "-m", MODEL, "-p", "Once upon", "--temp", "1", "--ignore-eos", env=env,
                   cwd=d)
        check(p.returncode == 0 and "tokens: DIFFERENT" in p.stdout, f"other program: {p}")
        check_ab_loop(program, env, d)
        p = script(SHELLS[0], "ab.sh", "-r", "1", "-B", "--cache-mb few", MODEL, env=env, cwd=d)
        check(p.returncode == 1 and "--cache-mb" in p.stderr, f"a run that fails: {p}")
        for args in ([], [MODEL], ["-r", "0", "-A", "x"], ["-n", "x", "-A", "x"], ["-z"]):
            p = script(SHELLS[0], "ab.sh", *args, env=env, cwd=d)
            check(p.returncode == 2 and not p.stdout, f"{args}: {p}")
        check(sorted(os.listdir(d)) == ["r.csv"], f"left {os.listdir(d)}")


def check_ab_loop(program, env, d):
    """A greedy answer behind ids that repeat goes on repeating them; one at a high temperature does not."""
    for more, want in ((["--temp", "0"], True), (["--temp", "4", "--seed", "1"], False)):
        p = script(SHELLS[0], "ab.sh", "-n", "600", "-w", "0", "-r", "1", "-A", "--cache-io-split 1", "-B",
                   "--cache-io-split 4", "-a", f"'{program}' run", "--", "-m", MODEL, "-p", "aaaa", "--ignore-eos", *more,
                   env=env, cwd=d)
        check(p.returncode == 0 and ("warning: the generated ids repeat" in p.stdout) == want, f"loop, {more}: {p}")


def check_ab_numbers(rows, cells):
    """The table's means and medians are those of the runs, to its digits."""
    for name, cell in zip("AB", cells):
        mine = sorted(float(r["tok_s"]) for r in rows if r["variant"] == name)
        mean, median = float(cell[1]), float(cell[2])
        check(len(mine) == 2 and abs(mean - sum(mine) / 2) < 0.001 and abs(median - mean) < 0.001, f"{mine} {cell}")
        check(cell[3].strip() == f"{mine[0]:.3f} to {mine[1]:.3f}", f"{mine} {cell}")
        check(float(cell[8]) == 0.0 or name == "A", f"hits without a cache: {cell}")


# ---- bench-report.sh ----

def tables(text):
    """Lists of rows, each a list of cells."""
    out, inside = [], False
    for line in text.splitlines():
        if line.startswith("|"):
            if not inside:
                out.append([])
            out[-1].append([c.strip() for c in line.strip("|").split("|")])
        inside = line.startswith("|")
    return out


def test_report(program):
    with tempfile.TemporaryDirectory() as d:
        env = environment(program, BENCH_ROOT=os.path.join(TREES, "laptop"))
        for shell in SHELLS:
            keep = os.path.join(d, "of " + shell[0])
            p = script(shell, "bench-report.sh", "-o", keep, "-r", "2", "-n", "24", "-s", "0.02", MODEL, "--cache-mb",
                       "4", "--temp", "2", env=env)
            check(p.returncode == 0, f"{shell}: {p}")
            t = tables(p.stdout)
            check(len(t) == 2 and all(len(r) == 2 for table in t for r in table), f"two tables: {p.stdout}")
            for key, value in {r[0]: r[1] for table in t for r in table[2:]}.items():
                check(bool(value), f"{key} is empty")
            both = {r[0]: r[1] for table in t for r in table}
            check(both["memory"] == "15.5 GiB" and both["changed options"].startswith("--cache-mb=4 --temp=2"),
                  f"{both}")
            check(re.match(r"[\d.]+ GB/s \((direct|buffered), \w+, \d in flight\)", both["drive, measured"]) and
                  both["drive, measured"].endswith("reads of 0.037 MiB"), both["drive, measured"])
            check(t[1][0][0] == "protocol 1, 2 runs of 24 tokens", f"{t[1][0]}")
            check_report_numbers(keep, both)
            p = script(shell, "bench-report.sh", "-m", "0", "-n", "2", "-s", "0.02", MODEL, env=env)
            check(p.returncode == 0 and tables(p.stdout)[1][0][0] == "protocol 1, 1 runs of 2 tokens" and
                  "Warning: 1 of 3 runs: another one" in p.stdout, f"{shell}, no time: {p}")
        p = script(SHELLS[0], "bench-report.sh", "-s", "0.02", "no.gguf", env=env, cwd=d)
        check(p.returncode == 1 and not p.stdout and "no.gguf" in p.stderr, f"no model: {p}")
        for args in ([], ["-r", "0", MODEL], ["-m", "soon", MODEL], ["-z", MODEL]):
            check(script(SHELLS[0], "bench-report.sh", *args, env=env).returncode == 2, f"{args}")


def check_report_numbers(keep, both):
    speeds = []
    for k in (1, 2):
        with open(os.path.join(keep, f"result-{k}.json"), encoding="utf-8") as f:
            speeds.append(json.load(f)["result"]["tok_s"])
        rows = read_csv(os.path.join(keep, f"run-{k}.metrics"))
        check(bool(rows) and rows[0]["temp_c"] == "63.0", f"metrics {rows}")
    low, high = sorted(speeds)
    want = f"{(low + high) / 2:.2f} ({low:.2f} to {high:.2f})"
    check(both["decode tok/s"] == want or f"{low:.2f}" == f"{high:.2f}", f"{both['decode tok/s']}, want {want}")
    with open(os.path.join(keep, "iobench.json"), encoding="utf-8") as f:
        direct = [r["gb_s"] for r in json.load(f)["rows"] if r["direct"]]
    if direct:
        check(both["drive, measured"].startswith(f"{max(direct):.3f} GB/s (direct"), both["drive, measured"])


# ---- bench/split_study.sh ----

def test_split_study(program):
    study = os.path.join("..", "bench", "split_study.sh")
    with tempfile.TemporaryDirectory() as d:
        env = environment(program)
        for shell in SHELLS:
            p = script(shell, study, "-d", d, "-n", "20", "-w", "2", "-r", "2", "-t", "plain q3", "-s", "1 3", MODEL, "--temp",
                       "2", "--seed", "1", env=env)
            check(p.returncode == 0, f"{shell}: {p}")
            t = tables(p.stdout)
            check(len(t) == 2 and [r[:2] for r in t[0][2:]] == [["plain", "1"], ["plain", "3"], ["q3", "1"], ["q3", "3"]],
                  f"{shell}: medians: {p.stdout}")
            order = [["1", "1"], ["1", "3"], ["2", "3"], ["2", "1"]]
            check([r[:3] for r in t[1][2:]] == [[tree, *o] for tree in ("plain", "q3") for o in order], f"runs: {p.stdout}")
            for row in t[0][2:]:
                rates = [float(r[3]) for r in t[1][2:] if [r[0], r[2]] == row[:2]]
                check(abs(float(row[2]) - sum(rates) / 2) < 0.02, f"{shell}: median of {rates}: {row}")
            check("warning" not in p.stdout and os.listdir(d) == [], f"{shell}: {p.stdout} {os.listdir(d)}")
        p = script(SHELLS[0], study, "-d", d, "-n", "4", "-w", "0", "-r", "1", "-t", "2bit", "no.gguf", env=env)
        check(p.returncode == 1 and "no.gguf" in p.stderr and not p.stdout and os.listdir(d) == [], f"no model: {p}")
        for args in ([], ["-t", "5bit", MODEL], ["-s", "one", MODEL], ["-z", MODEL]):
            check(script(SHELLS[0], study, *args, env=env).returncode == 2, f"{args}")


# ---- bench/bare_pair.py ----

def test_bare_pair(program):
    build = os.path.dirname(os.path.dirname(program))
    if not os.path.exists(os.path.join(build, "bench", "bare_read")):
        print("bare_read is not built")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "layer")
        with open(path, "wb") as f:
            f.write(bytes(8 * 12288))
        for dest in ("thread", "slots"):
            p = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "bare_pair.py"), path, "--threads", "1,3",
                                "--split", "2", "--experts", "8", "--rounds", "2", "--passes", "2", "--dest", dest, "--build",
                                build], capture_output=True, text=True, timeout=120, check=False)
            t = tables(p.stdout)
            check(p.returncode == 0 and len(t) == 1 and [r[:3] for r in t[0][2:]] == [["1", "2", dest], ["3", "2", dest]],
                  f"{dest}: {p}")
            check(all(float(c.split()[0]) > 0 for r in t[0][2:] for c in r[3:6]), f"{dest}: {p.stdout}")
        for args in (["few"], [path, "8", "12288", "12289", "1", "1", "0", "1", "1", "thread"],
                     [path, "9", "12288", "12288", "1", "1", "0", "1", "1", "slots"]):
            p = subprocess.run([os.path.join(build, "bench", "bare_read"), *args], capture_output=True, text=True, timeout=60,
                               check=False)
            check(p.returncode != 0 and p.stderr and not p.stdout, f"{args}: {p}")


# ---- bench/reads_alone.py ----

TRACE = """kind,token,tokens,phase,layer,expert,file,offset,bytes,submit_s,done_s,demand,failed,dense_bytes,hit_bytes,\
missed_bytes,expert_bytes
read,2,,,0,5,0,0,4096,0,0,1,0,,,,
block,2,3,0,0,,,,,,,,,9,0,9,9
read,3,,,0,1,0,4096,4096,0,0,1,0,,,,
read,3,,,0,2,1,8192,512,0,0,1,0,,,,
read,3,,,0,3,1,8192,512,0,0,1,1,,,,
block,3,1,1,0,,,,,,,,,9,0,9,9
read,3,,,1,7,0,20480,8192,0,0,0,0,,,,
block,3,1,1,1,,,,,,,,,9,0,9,9
read,4,,,1,7,0,4096,4096,0,0,1,0,,,,
block,4,1,1,1,,,,,,,,,9,0,9,9
# summary
# file=0 path="a \\"b\\".gguf"
# file=1 path="c"
"""


def check_drive_rate():
    """A rate that is none of direct reads, or no drive's, is not taken in silence."""
    code = "import sys, programs; print(programs.drive_rate(sys.argv[1], 'm'))"
    with tempfile.TemporaryDirectory() as d:
        fake = os.path.join(d, "fake")
        for direct, no_direct, doubt, note, said in ((True, "", None, "", 0), (False, "memory", None, "", 1),
                                                     (True, "", "too fast", "", 1), (True, "", None, "other engine", 1),
                                                     (False, "memory", "too fast", "other engine", 3)):
            report = {"no_direct": no_direct, "rows": [{"gb_s": 1.5, "direct": direct, "doubt": doubt, "note": note}]}
            with open(fake, "w", encoding="utf-8") as f:
                f.write(f"#!/bin/sh\necho '{json.dumps(report)}'\n")
            os.chmod(fake, 0o755)
            p = subprocess.run([sys.executable, "-B", "-c", code, fake], capture_output=True, text=True, check=False, timeout=60,
                               env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "bench")))
            check(p.returncode == 0 and p.stdout == "1.5\n" and len(p.stderr.splitlines()) == said and
                  all(w in p.stderr for w in (no_direct, doubt or "", note)), f"drive_rate: {report}: {p}")


def test_reads_alone(program):
    check_drive_rate()
    build = os.path.dirname(os.path.dirname(program))
    bare = os.path.join(build, "bench", "bare_reads")
    if not os.path.exists(bare):
        print("bare_reads is not built: no liburing")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "io.csv")
        with open(path, "w", encoding="utf-8") as f:
            f.write(TRACE)
        code = "import json, sys, reads_alone as r; print(json.dumps([r.places(list(r.layered_limit().rows(sys.argv[1]))), " \
               "r.paths(sys.argv[1])]))"
        p = subprocess.run([sys.executable, "-B", "-c", code, path], capture_output=True, text=True, check=False, timeout=60,
                           env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "bench")))
        check(p.returncode == 0 and json.loads(p.stdout) == [
            ["0 4096 4096\n1 8192 512\n\n0 20480 8192\n\n0 4096 4096\n", 2], ['a "b".gguf', "c"]], f"places: {p}")
        model = os.path.join(d, "m.gguf")
        shutil.copy(MODEL, model)
        subprocess.run(["sync", model], check=True)
        p = subprocess.run([bare, "1", "1", model], input="0 0 4096\n", capture_output=True, text=True, timeout=60, check=False)
        if "io_uring" in p.stderr: # a system without it
            print(p.stderr)
            sys.exit(77)
        check_bare_reads(bare, model)
        p = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "bench", "reads_alone.py"), "--model", model, "--build",
                            build, "--caches", "2", "--runs", "2", "--tokens", "5",
                            "--rates=--sample-ms 1 --buffer 32M"], capture_output=True, text=True,
                           timeout=240, check=False)
        if "page cache" in p.stderr: # a drive that cannot be measured
            print(p.stderr)
            sys.exit(77)
        t = tables(p.stdout)
        check(p.returncode == 0 and len(t) == 1 and [r[:2] for r in t[0][2:]] == [["2", r] for r in ("1", "2", "median")],
              f"reads_alone: {p}")
        check(all(float(x) > 0 for r in t[0][2:] for x in r[6:8]), f"reads_alone: {p.stdout}")


def check_bare_reads(bare, model):
    def go(lines, *args):
        return subprocess.run([bare, *args], input=lines, capture_output=True, text=True, timeout=60, check=False)
    many = "".join(f"{i % 2} {4096 * i} {4096 * (1 + i % 3)}\n" + "\n" * (i % 5) for i in range(300))
    for flight, mib in (("1", "0"), ("3", "0"), ("3", "2"), ("256", "0"), ("256", "40")):
        p = go(many, flight, mib, model, model)
        check(p.returncode == 0 and p.stdout.split()[1] == str(300 * 2 * 4096), f"bare_reads {flight} {mib}: {p}")
    check(float(go(many, "1", "0", model, model).stdout.split()[0]) > 1e-4, "300 reads, one after the other, take their time")
    small = model + ".small" # which file is which
    with open(small, "wb") as f:
        f.write(bytes(8192))
    for lines, good in (("1 409600 4096\n", True), ("0 409600 4096\n", False), ("0 4096 4096\n1 409600 4096\n", True)):
        p = go(lines, "2", "0", small, model)
        check((p.returncode == 0) == good, f"bare_reads of two files: {lines!r}: {p}")
    end = os.path.getsize(model) // 4096 * 4096
    check(go(f"0 {end} 7\n", "2", "0", model).stdout.split()[1:2] == ["7"], "the end of a file")
    check(os.path.getsize(model) % 4096 < 4000, "the model ends early in a page")
    for lines in (f"0 {end} 4000\n", f"0 {end} 8192\n", f"0 {end - 4096} 8192\n"): # bytes that don't come don't count
        p = go("0 0 4096\n" + lines, "2", "0", model)
        check(p.returncode == 1 and "short" in p.stderr and not p.stdout, f"past the end: {lines!r}: {p}")
    for lines, args in (("", ["4", "1", model]), ("\n", ["4", "1", model]), ("0 0 0\n", ["4", "1", model]), ("1 0 4096\n", ["4", "1", model]),
                        ("0 0\n", ["4", "1", model]), ("0 0 4096 9\n", ["4", "1", model]), ("0 -4096 4096\n", ["4", "1", model]),
                        ("0 1099511627776 4096\n", ["4", "1", model]), ("0 0 4096\n", ["0", "1", model]), ("0 0 4096\n", ["257", "1", model]),
                        ("0 0 4096\n", ["4", "1"]), ("0 0 4096\n", ["4", "1", model + "x"])):
        p = go(lines, *args)
        check(p.returncode != 0 and p.stderr and not p.stdout, f"bare_reads {args} {lines!r}: {p}")


# ---- bench/plan_check.py ----

def test_plan_check(program):
    """The rate that was measured is the program's own, of the tokens that are not skipped."""
    check_program = os.path.join(ROOT, "bench", "plan_check.py")
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "run.csv")
        subprocess.run([program, "run", "-m", MODEL, "-p", "Once", "-n", "9", "--ignore-eos", "--csv", path], check=True,
                       capture_output=True, timeout=120)
        with open(path, encoding="utf-8") as f:
            mean = [float(line.split("=")[1]) for line in f if line.startswith("# s_per_token=")][0]
        code = "import sys, plan_check; print(*(plan_check.token_times(sys.argv[1], int(n))[0] for n in sys.argv[2:]))"
        p = subprocess.run([sys.executable, "-B", "-c", code, path, "0", "7"], capture_output=True, text=True, check=False,
                           env=dict(os.environ, PYTHONPATH=os.path.dirname(check_program)), timeout=60)
        check(p.returncode == 0, f"token_times: {p.stderr}")
        times, late = (json.loads(t + "]") for t in p.stdout.strip().rstrip("]").split("] "))
        check(len(times) == 9 and abs(sum(times) / 9 - mean) <= 1e-5 * mean + 1e-9, f"{times} are not {mean} s each")
        check(late == times[7:], f"{late} of {times}")
    p = subprocess.run([sys.executable, "-B", check_program, "--model", MODEL, "--sluice", program, "--prompts", "4", "--runs",
                        "1", "--tokens", "6", "--skip", "2", "--within", "1e9"], capture_output=True, text=True, timeout=240,
                       check=False)
    t = tables(p.stdout)
    check(p.returncode == 0 and len(t) == 1 and len(t[0]) == 3 and "1 of 1 within" in p.stdout, f"plan_check: {p}")
    p = subprocess.run([sys.executable, "-B", check_program, "--model", MODEL, "--tokens", "6", "--skip", "6"],
                       capture_output=True, text=True, timeout=60, check=False)
    check(p.returncode == 2 and "--skip leaves no token" in p.stderr and not p.stdout, f"nothing to measure: {p}")


# ---- bench/cold_start.py ----

def test_cold_start(program):
    """The bytes are those of the model, what is allowed follows from them, and the exit status from that."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "m.gguf")
        shutil.copy(MODEL, path)
        subprocess.run(["sync", path], check=True)
        command = [sys.executable, "-B", os.path.join(ROOT, "bench", "cold_start.py"), "--model", path, "--sluice", program,
                   "--prompts", "1,9", "--runs", "2", "--seconds", "0.02", "--touch-mb", "8", "--flags=--moe-stream --cache-mb 2"]
        p = subprocess.run(command + ["--fixed", "1000"], capture_output=True, text=True, timeout=240, check=False)
        if "page cache" in p.stderr: # a drive that cannot be measured
            print(p.stderr)
            sys.exit(77)
        t = tables(p.stdout)
        check(p.returncode == 0 and len(t) == 1 and [r[1] for r in t[0][2:]] == ["1", "9"], f"cold_start: {p}")
        for row in t[0][2:]:
            rate, opened, first, allowed = ([float(x) for x in row[i].split(", ")] for i in (3, 4, 5, 6))
            check(len(rate) == 2 and all(0 < x <= y for x, y in zip(opened, first)), f"cold_start: {row}")
            check(all(1000 <= x < 1000 + 1.15 * (float(row[2]) + 0.005) / (r - 0.005) + 0.005 for x, r in zip(allowed, rate)),
                  f"cold_start: {row}")
        p = subprocess.run(command + ["--fixed=-1000"], capture_output=True, text=True, timeout=240, check=False)
        check(p.returncode == 1 and len(tables(p.stdout)) == 1, f"nothing is allowed: {p}")
        p = subprocess.run(command + ["--touch-mb", str(1 << 40)], capture_output=True, text=True, timeout=240, check=False)
        check(p.returncode == 1 and p.stderr.splitlines()[-1].startswith("--touch-mb: ") and not p.stdout, f"no such memory: {p}")


# ---- bench-matrix.sh ----

INDEX = """cell pass model config options waited_s gave_up temp_before_c mem_available_before_mib exit tok_s csv
metrics""".split()


def test_matrix(program):
    with tempfile.TemporaryDirectory() as d:
        tree = os.path.join(d, "tree")
        shutil.copytree(os.path.join(TREES, "phone"), tree)
        env = environment(program, BENCH_ROOT=tree)
        for n, shell in enumerate(SHELLS):
            check_two_cells(shell, env, os.path.join(d, f"two {n}"))
        check_eight(env, os.path.join(d, "eight"))
        check_gates(env, d, tree)
        for args in ([], [MODEL], ["-o", os.path.join(d, "x")], ["-o", "y", "-T", "hot", MODEL],
                     ["-o", os.path.join(d, "eight"), MODEL], ["-o", "z", "-c", "no.conf", MODEL]):
            p = script(SHELLS[0], "bench-matrix.sh", *args, env=env, cwd=d)
            check(p.returncode == 2 and not p.stdout, f"{args}: {p}")


def check_two_cells(shell, env, out):
    conf = out + ".conf"
    with open(conf, "w", encoding="utf-8") as f:
        f.write("# two\nplain\n\nsmall --cache-mb 2 --no-overlap\n")
    p = script(shell, "bench-matrix.sh", "-o", out, "-n", "4", "-c", conf, MODEL, env=env)
    check(p.returncode == 0, f"{shell}: {p}")
    rows = read_csv(os.path.join(out, "index.csv"))
    check(list(rows[0]) == INDEX, f"columns {list(rows[0])}")
    check([(r["pass"], r["config"]) for r in rows] == [("1", "plain"), ("1", "small"), ("2", "small"), ("2", "plain")],
          f"{shell}: order {rows}")
    for r in rows:
        check((r["exit"], r["gave_up"], r["waited_s"], r["temp_before_c"], r["mem_available_before_mib"], r["model"]) ==
              ("0", "", "0", "52.1", "4117", MODEL) and float(r["tok_s"]) > 0, f"{shell}: {r}")
        for key in ("csv", "metrics"):
            check(os.path.exists(os.path.join(out, r[key])), f"{r[key]} is missing")
    table = tables(p.stdout)[0][2:]
    check([r[1] for r in table] == ["plain", "small"] and table[1][2] == "`--cache-mb 2 --no-overlap`", f"{table}")
    check(table[0][3] == f"{float(rows[0]['tok_s']):.3f}" and table[0][4] == f"{float(rows[3]['tok_s']):.3f}",
          f"{shell}: {table} {rows}")


def check_eight(env, out):
    p = script(SHELLS[0], "bench-matrix.sh", "-o", out, "-n", "3", "-1", MODEL, env=env)
    rows = read_csv(os.path.join(out, "index.csv"))
    check(p.returncode == 0 and len({r["config"] for r in rows}) == len(rows) == 8, f"eight: {p}")
    check(rows[0]["options"] == "" and rows[-1]["options"] == "--n-expert-used 1", f"eight: {rows}")
    # The analysis finds the cells by the index.
    p = subprocess.run([sys.executable, os.path.join(SCRIPTS, "bench-analyze.py"), out, "--skip", "0", "--out",
                        os.path.join(out, "analysis")], capture_output=True, text=True, timeout=120, check=False)
    check(p.returncode == 0 and "cells: 8;" in p.stdout, f"analysis: {p}")


def check_gates(env, d, tree):
    """A hot machine is waited for, not for ever, and a failing cell ends neither the others nor in a zero status."""
    conf = os.path.join(d, "gate.conf")
    with open(conf, "w", encoding="utf-8") as f:
        f.write("a\nbroken --cache-mb 1 --cache-slots 1\nb\n")
    out = os.path.join(d, "gate")
    p = script(SHELLS[0], "bench-matrix.sh", "-1", "-o", out, "-n", "3", "-c", conf, "-T", "40", "-F", "8000", "-W",
               "1", MODEL, env=env)
    rows = read_csv(os.path.join(out, "index.csv"))
    check(p.returncode == 1 and [r["exit"] for r in rows] == ["0", "2", "0"], f"gate: {p} {rows}")
    check(all((r["gave_up"], r["waited_s"]) == ("temperature+memory", "1") for r in rows), f"gate: {rows}")
    check(tables(p.stdout)[0][3][3] == "failed" and tables(p.stdout)[0][2][6] == "temperature+memory", p.stdout)
    # It cools down while it is waited for.
    zone = os.path.join(tree, "sys/class/thermal/thermal_zone")
    with open(conf, "w", encoding="utf-8") as f:
        f.write("a\n")
    sleep = os.path.join(d, "sleep")
    with open(sleep, "w", encoding="utf-8") as f:
        f.write(f'#!/bin/sh\n[ "$1" != 1 ] || echo 49900 >{zone}1/temp\nexec {shutil.which("sleep")} "$@"\n')
    os.chmod(sleep, 0o755)
    p = script(["sh"], "bench-matrix.sh", "-1", "-o", out + "2", "-n", "3", "-c", conf, "-T", "50", "-W", "60", MODEL,
               env=dict(env, PATH=d + ":" + env["PATH"]))
    rows = read_csv(out + "2/index.csv")
    check(p.returncode == 0 and rows[0]["gave_up"] == "" and rows[0]["temp_before_c"] == "49.9" and
          int(rows[0]["waited_s"]) == 1, f"cooling: {p} {rows}")


def main():
    tests = {k[5:]: v for k, v in globals().items() if k.startswith("test_")}
    a = argparse.ArgumentParser()
    a.add_argument("test", choices=sorted(tests))
    a.add_argument("--program", required=True)
    a = a.parse_args()
    tests[a.test](os.path.abspath(a.program))
    for f in failures:
        print(f)
    print(f"{a.test}, shells {', '.join(s[0] for s in SHELLS)}: {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
