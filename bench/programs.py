"""What the measuring programs of this folder share: running others, and the rates of this machine."""
import importlib.util
import json
import os
import shlex
import subprocess
import sys


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def execute(command, given=None):
    """The finished process, `given` its standard input; ends this one with the message of a program that failed."""
    command = [str(c) for c in command]
    p = subprocess.run(command, input=given, capture_output=True, text=True, errors="replace", check=False)
    if p.returncode != 0:
        sys.exit(f"{shlex.join(command)}: {p.stderr.strip()}")
    return p


def execute_json(command):
    return json.loads(execute(command).stdout)


def drive_rate(sluice, model, in_flight=4, seconds=0.7):
    """GB/s of direct reads of the size of the model's experts, so many at a time. What speaks against the rate goes to
    standard error: it was read in another way than asked for, or faster than a drive can."""
    report = execute_json([sluice, "iobench", model, "--engines", "uring", "--in-flight", in_flight, "--no-buffered",
                           "--seconds", seconds, "--json"])
    row = report["rows"][0]
    for why in (None if row["direct"] else f"not of direct reads: {report['no_direct']}", row["doubt"], row["note"]):
        if why:
            print(f"{model}: the drive's rate, {row['gb_s']:.3f} GB/s: {why}", file=sys.stderr)
    return row["gb_s"]


def kernel_rates(sluice, types, threads, *more):
    """GB/s: memory with all threads before and after, each type's product from cache with one thread."""
    bench = execute_json([sluice, "bench", "--kernels", "--types", ",".join(types), "--no-attention", "--tokens", "none",
                          "-t", threads, "--reps", 5, *more, "--json"])
    ram = [r for r in bench["ram"] if r["threads"] == threads][0]
    cache = {r["type"]: r["gb_s"] for r in bench["results"]
             if r["kernel"] == "gemv" and r["from"] == "cache" and r["threads"] == 1}
    return ram["gb_s_before"], ram["gb_s_after"], cache


def layered_limit():
    """The module tools/layered_limit.py."""
    spec = importlib.util.spec_from_file_location("layered_limit", os.path.join(ROOT, "tools", "layered_limit.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def summary(path):
    """The summary of a run's --csv; what is not known is not a number."""
    end, out = False, {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            end = end or line.startswith("# summary")
            if end and "=" in line:
                key, value = line[2:].strip().split("=", 1)
                out[key] = float(value) if value not in ("", '""') else float("nan")
    return out
