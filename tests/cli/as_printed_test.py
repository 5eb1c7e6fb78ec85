#!/usr/bin/env python3
"""Command lines of the documents that the program answers, run as they are printed there, each under its own name:
cachebench, infer, bmoe-cli and the measuring scripts. Only ellipses are filled in. What a line prints is checked for
form and for agreeing with itself, not for speed. The lines with --no-think and ctest are not here: no template has an
analysis channel to leave out yet, and the tests that ctest would run are this test's neighbours."""
import csv
import os
import re
import struct
import subprocess
import sys

from harness import check, run_tests

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools"))
import gguf_file  # noqa: E402  pylint: disable=wrong-import-position

EXPERTS, LAYERS = 128, 2

CACHEBENCH = {
    # what the first line of the output begins with, by the line
    "./cachebench --model MODELDIR --layer 0 --experts 128 --threads 8 --split 4 --warmup 2 --passes 5":
        "MODELDIR/packed_experts/layer_00.bin: layer 0, Q4_K",
    "./cachebench --model MODELDIR --q3-experts --layer 0 --experts 128 --threads 8 --split 4 --warmup 2 --passes 5":
        "MODELDIR/packed_experts_Q3/layer_00.bin: layer 0, Q3_K",
    "./cachebench --model MODELDIR --2bit --layer 0 --experts 128 --threads 8 --split 4 --warmup 2 --passes 5":
        "MODELDIR/packed_experts_2bit/layer_00.bin: layer 0, Q2_K",
    "./cachebench --file MODELDIR/packed_experts_Q3/layer_00.bin --threads 8 --split 4 --experts 128":
        "MODELDIR/packed_experts_Q3/layer_00.bin: layer 0, Q3_K",
}
DEFAULT_DIRECTORY = \
    "./cachebench --q3-experts --layer 0 --experts 128 --threads 8 --split 4 --warmup 2 --passes 5"
INFER_Q3 = './infer --model MODELDIR --q3-experts --cache-io-split 4 --prompt "What is Apple Neural Engine?" ' \
           '--tokens 200 --timing'
INFER = './infer --model MODELDIR --prompt "Once upon a time" --tokens 200 --timing --cache-telemetry'
BMOE = 'bmoe-cli -m MODEL.gguf --moe-stream --cache-mb auto --io-threads 4 -t 4 -n 256 --overlap ' \
       '--dense-weights anon --csv run.csv -p "Once upon a time"'
REPORT = "scripts/bench-report.sh MODEL.gguf"
RUN = "scripts/bench-run.sh 256 MODEL.gguf out.csv out.metrics --moe-stream --cache-mb 4000 --io-threads 4"
KNOBS = ["--cache-mb 100", "--cache-mb auto --cache-floor-mb 1536 --cache-ceil-mb 3000", "--cache-mb 0",
         "--io-threads 4", "-t 4", "--overlap", "--dense-weights mmap", "--dense-weights anon", "--dense-weights warm",
         "--ubatch 0", "--ubatch 512", "--n-expert-used 1", "--drop-cold-experts 1", "--io-two-wave", "--overlap --prefetch 1"]


def widen_model(source, path):
    """The first layers of a model, with each expert and its router's row several times."""
    kv, tensors = gguf_file.read(source)
    arch = next(raw[8:].decode() for key, _, raw in kv if key == "general.architecture")
    counts = {arch + ".expert_count": EXPERTS, arch + ".block_count": LAYERS}
    had = {key: struct.unpack("<I", raw)[0] for key, _, raw in kv if key in counts}
    times = EXPERTS // had[arch + ".expert_count"]
    kv = [(key, kind, struct.pack("<I", counts[key]) if key in counts else raw) for key, kind, raw in kv]
    out = []
    for name, dims, kind, data in tensors:
        layer = re.match(r"blk\.(\d+)\.", name)
        if layer and int(layer.group(1)) >= LAYERS:
            continue
        if re.search(r"\.ffn_(\w+_exps|gate_inp)\.", name):
            dims, data = dims[:-1] + [EXPERTS], bytes(data) * times
        out.append((name, dims, kind, data))
    gguf_file.write(path, kv, out)


def line(text, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE", "BENCH_"))}
    env.update(LC_ALL="C", PATH=os.getcwd() + os.pathsep + env["PATH"], **more)
    p = subprocess.run(["sh", "-c", text], capture_output=True, text=True, env=env, timeout=500, check=False,
                       stdin=subprocess.DEVNULL)
    check(p.returncode == 0, f"{text}: exit {p.returncode}: {p.stderr[-600:]}")
    return p.stdout, p.stderr


def make_models(command):
    folder = os.path.dirname(command[0])
    for name in ("cachebench", "infer", "bmoe-cli"):
        os.symlink(os.path.join(folder, name), name)
    os.symlink(os.path.join(ROOT, "scripts"), "scripts")
    widen_model(os.path.join(ROOT, "models", "storyteller.gguf"), "MODEL.gguf")
    for kind in ("--4bit", "--q3", "--2bit"):
        p = subprocess.run(command + ["pack", "MODEL.gguf", "-o", "MODELDIR", kind], capture_output=True, timeout=500,
                           check=False)
        check(p.returncode == 0, f"pack {kind}: {p.stderr!r}")


# ---- cachebench ----

def near(a, b, digits):
    """Two printed numbers, of which the second has so many digits behind its point."""
    return abs(a - b) <= 0.002 * abs(b) + 0.6 * 10**-digits


def check_rates(text, what, row, size):
    """ms, GB/s, GiB/s and us/expert of one line are the same time."""
    ms, gb, gib, us = row
    check(near(size / ms * 1e-6, gb, 3), f"{text}: {what}: {size} bytes in {ms} ms are not {gb} GB/s")
    check(near(gb * 1e9 / 2**30, gib, 3), f"{text}: {what}: {gb} GB/s are not {gib} GiB/s")
    check(near(ms * 1e3 / EXPERTS, us, 2), f"{text}: {what}: {ms} ms are not {us} us for each expert")


def check_cachebench(text, head, out, split=4, passes=5):
    lines = out.splitlines()
    check(lines[0].startswith(head), f"{text}: reads {lines[0]}")
    said = re.match(r"(\d+) experts of (\d+) bytes", lines[1])
    if not said or int(said.group(1)) != EXPERTS:
        check(False, f"{text}: {lines[1]}")
        return
    size = EXPERTS * int(said.group(2))
    check(f"8 threads, split {split}: {EXPERTS * split} tasks" in lines, f"{text}: tasks: {out}")
    check([w for s in lines if s.startswith("pass ") for w in s.split()] == ["pass", "ms", "GB/s", "GiB/s", "us/expert"],
          f"{text}: columns: {out}")
    rows = {m.group(1): [float(x) for x in m.group(2).split()]
            for m in re.finditer(r"^(\d+|average|best|worst) +((?:[\d.]+ *){4})$", out, re.M)}
    want = [str(i + 1) for i in range(passes)] + ["average", "best", "worst"]
    if list(rows) != want:
        check(False, f"{text}: rows {list(rows)}, want {want}: {out}")
        return
    for what, row in rows.items():
        check_rates(text, what, row, size)
    times = [rows[str(i + 1)][0] for i in range(passes)]
    check(rows["best"][0] == min(times) and rows["worst"][0] == max(times), f"{text}: best and worst of {times}")
    check(near(sum(times) / passes, rows["average"][0], 3), f"{text}: average of {times}: {rows['average']}")
    check(f"tasks {EXPERTS * split}, bytes {size} a pass, {size * passes} in all timed passes" in lines,
          f"{text}: bytes: {out}")
    for name in ("memcpy", "RAM read"):
        check(bool(re.search(rf"^{name} +[\d.]+ GB/s +[\d.]+ GiB/s ", out, re.M)), f"{text}: no {name}: {out}")
    check("\ncached: yes" in out, f"{text}: not cached: {out}")


def test_cachebench(_):
    for text, head in CACHEBENCH.items():
        check_cachebench(text, head, line(text)[0])
    # Without --split, one task is one expert, of the same bytes; without a tree, the 4-bit one.
    text = next(iter(CACHEBENCH)).replace(" --split 4", "")
    check_cachebench(text, CACHEBENCH[text.replace("--warmup", "--split 4 --warmup")], line(text)[0], 1)
    text = "./cachebench --model MODELDIR"
    check_cachebench(text, "MODELDIR/packed_experts/layer_00.bin: layer 0, Q4_K", line(text)[0], 1)


def test_default_directory(_):
    check_cachebench("$SLUICE_MODEL_DIR", "MODELDIR/packed_experts_Q3/layer_00.bin",
                     line(DEFAULT_DIRECTORY, SLUICE_MODEL_DIR="MODELDIR")[0])
    os.symlink("MODELDIR", "model")
    check_cachebench("./model", "./model/packed_experts_Q3/layer_00.bin", line(DEFAULT_DIRECTORY)[0])
    os.remove("model")
    p = subprocess.run(["sh", "-c", DEFAULT_DIRECTORY], capture_output=True, text=True, timeout=100, check=False)
    check(p.returncode == 1 and not p.stdout and "is not there" in p.stderr, f"no model at all: {p}")


def test_too_few(_):
    for text in ("./cachebench --model MODELDIR --experts 200", "./cachebench --model MODEL.gguf --experts 200"):
        p = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=100, check=False)
        check(p.returncode == 1 and not p.stdout and re.search(r"\b128 experts.*\b200\b", p.stderr), f"{text}: {p}")


# ---- infer ----

def check_timing(text, err):
    for name in (r"^timing: +layer +attention +routing +expert I/O .* experts +combine .* total$",
                 r"^timing: +0( +[\d.]+){8}$", r"^timing: +all( +[\d.]+){8}$",
                 r"^timing: expert I/O [\d.]+ ms/token, total [\d.]+ ms/token, TTFT [\d.]+ ms$"):
        check(bool(re.search(name, err, re.M)), f"{text}: no {name}: {err}")
    mode = next((s for s in err.splitlines() if s.startswith("mode: ")), "")
    check("streamed" in mode and "o_direct=0" in mode and "cache 0 MiB" in mode, f"{text}: {mode}")


def reads_of(path):
    with open(path, encoding="utf-8") as f:
        return [int(r["reads"]) for r in csv.DictReader(s for s in f if not s.startswith("#"))]


def test_infer(_):
    told, err = line(INFER_Q3)
    check_timing(INFER_Q3, err)
    check("Q3_K" in err and told, f"{INFER_Q3}: {told!r} {err}")
    check(line(INFER_Q3.replace(" --cache-io-split 4", ""))[0] == told, "split reads change the text")
    told, err = line(INFER)
    check_timing(INFER, err)
    check(bool(told) and "lossy: experts requantised to Q4_K" in err, f"{INFER}: {told!r} {err}")
    check(bool(re.search(r"^cache-telemetry: \d+ experts asked for, ", err, re.M)), f"{INFER}: nothing of the cache: {err}")
    # Without --cache-io-split an expert is read in one piece, as with split 1.
    for name, more in (("none", ""), ("one", " --cache-io-split 1"), ("four", " --cache-io-split 4")):
        check(line(f"{INFER} --csv {name}.csv{more}")[0] == told, f"split {name}: another text")
    one, four = reads_of("one.csv"), reads_of("four.csv")
    check(reads_of("none.csv") == one, "no split is not split 1")
    check([4 * n for n in one] == four and sum(one) > 0, f"split 4: {four[:4]} reads, split 1: {one[:4]}")


# ---- bmoe-cli and the scripts ----

def rows_of(path):
    with open(path, encoding="utf-8") as f:
        return list(csv.DictReader(s for s in f if not s.startswith("#")))


def test_bmoe_cli(_):
    told, err = line(BMOE)
    check(bool(told), "no text")
    for name in (r"^mode: streamed, .*\(auto\)", r"^moe-stream: .* flash I/O .* s/token.*stall ", r"^moe-cache: [\d.]+% hit",
                 r"^compute: .*majflt/tok", r"o_direct=[01]", r" s/token ", r"MiB/token"):
        check(bool(re.search(name, err, re.M)), f"{BMOE}: no {name}: {err}")
    said = re.search(r"^generation: (\d+) tokens", err, re.M)
    check(said and len(rows_of("run.csv")) == int(said.group(1)), f"rows of run.csv: {err}")
    for knob in KNOBS:
        line(f"bmoe-cli -m MODEL.gguf --moe-stream -n 2 -p Once {knob}")


def tables(text):
    """Lists of rows, each a list of cells."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.M)
    return [[[c.strip() for c in row.strip("|").split("|")] for row in b.splitlines()] for b in blocks]


def test_scripts(command):
    told, _ = line(RUN, SLUICE=command[0])
    check("256 tokens generated" in told and told.splitlines()[-1].startswith("bench-run: peak RSS"), f"{RUN}: {told}")
    check(len(rows_of("out.csv")) == 256, "rows of out.csv")
    check({"rss_mib", "mem_available_mib", "temp_c", "max_khz", "psi_some_avg10"} <= set(rows_of("out.metrics")[0]),
          "columns of out.metrics")
    told, _ = line(REPORT, SLUICE=command[0])
    found = tables(told)
    check(len(found) == 2 and all(len(row) == 2 for t in found for row in t), f"{REPORT}: two tables: {told}")
    cells = {row[0]: row[1] for t in found for row in t}
    check("protocol 1, 3 runs of 256 tokens" in cells and cells.get("changed options") == "none", f"{REPORT}: {told}")
    check(float(cells["decode tok/s"].split()[0]) > 0 and "GB/s" in cells["drive, measured"], f"{REPORT}: {told}")


def test_targets(command):
    """Each name is a target of the build, which knows how to make it (nothing is made here)."""
    build = os.path.dirname(os.path.dirname(command[0]))
    if not os.path.exists(os.path.join(build, "CMakeCache.txt")):
        print(f"{build} is no build folder: targets are not looked at")
        return
    for name, known in (("cachebench", True), ("infer", True), ("bmoe-cli", True), ("no-such-target", False)):
        p = subprocess.run(["cmake", "--build", build, "--target", name, "--", "-n"], capture_output=True, text=True,
                           timeout=100, check=False)
        if "Re-running CMake" in p.stdout:
            print("the build folder is older than its CMakeLists.txt: targets are not looked at")
            return
        check((p.returncode == 0) == known, f"target {name}: {p}")


if __name__ == "__main__":
    sys.exit(run_tests((make_models, test_cachebench, test_default_directory, test_too_few, test_infer, test_bmoe_cli,
                        test_scripts, test_targets)))
