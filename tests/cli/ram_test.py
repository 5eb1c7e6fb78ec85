#!/usr/bin/env python3
"""--ram is a promise: at every size from 1 MiB up a run is refused with the numbers of its plan, or
what the process holds stays within it, sampled from outside from the first moment to the last, and
so does the program's own count. The text is the same at every size."""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests", "data")
MIB = 1 << 20
REFUSED = re.compile(r"^sluice: does not fit: needs (\d+) MiB \((program [\d.]+, dense weights [\d.]+, KV "
                     r"cache of \d+ tokens [\d.]+, compute buffers [\d.]+.*)\), --ram allows (\d+) MiB; ")
MEMORY = re.compile(r"^memory: high-water mark ([\d.]+) MiB, RssAnon\+RssShmem peak ([\d.]+) MiB .*"
                    r"limit ([\d.]+) MiB$", re.M)
failures = []


def held(pid, mapped):
    """RssAnon + RssShmem of a process, and the file pages where the run maps its weights; bytes."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            fields = dict(line.split(":", 1) for line in f)
    except OSError:
        return 0
    keys = ["RssAnon", "RssShmem"] + (["RssFile"] if mapped else [])
    return sum(int(fields[k].split()[0]) for k in keys if k in fields) * 1024


def run(command, folder, mapped):
    """(status, standard output, standard error, most bytes held)"""
    out, err = (open(os.path.join(folder, name), "w+b") for name in ("out", "err"))
    with out, err, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err) as p:
        peak = 0
        while p.poll() is None:
            peak = max(peak, held(p.pid, mapped))
            time.sleep(0.001)
        out.seek(0)
        err.seek(0)
        return p.returncode, out.read(), err.read().decode("utf-8", "replace"), peak


def check(command, folder, size, mapped, what):
    """The text, or None when the run was refused; the most bytes that were held."""
    code, out, err, peak = run(command, folder, mapped)
    if peak > size * MIB:
        failures.append(f"{what}: held {peak / MIB:.1f} MiB\n{err}")
    refused = REFUSED.match(err.splitlines()[-1]) if err else None
    if code == 1 and refused:
        parts = sum(float(part.split()[-1]) for part in refused[2].split(", "))
        if int(refused[3]) != size or int(refused[1]) <= size or not -0.4 < int(refused[1]) - parts < 1.4:
            failures.append(f"{what}: {err}")
        return None, peak
    report = MEMORY.search(err)
    if code != 0 or not report:
        failures.append(f"{what}: status {code}: {err}")
    elif max(float(report[1]), float(report[2])) > size:
        failures.append(f"{what}: {report[0]}")
    return out, peak


def walk(command, model, args, mapped, sizes, folder):
    texts, ran, most_held = set(), [], 0
    for size in sizes:
        shown = " ".join(a if len(a) < 40 else "..." for a in args)
        what = f"{os.path.basename(os.path.dirname(model))}: {shown} --ram {size}M"
        text, peak = check(command + ["run", "-m", model, *args, "--ram", f"{size}M"], folder, size,
                           mapped, what)
        most_held = max(most_held, peak)
        if text is not None:
            texts.add(text)
            ran.append(size)
        elif ran:
            failures.append(f"{what}: refused, but {ran[-1]} MiB were enough")
    if most_held < MIB:
        failures.append(f"{model}: {shown}: nothing was measured")
    if not ran or len(ran) == len(sizes):
        failures.append(f"{model}: {shown}: sizes that ran: {ran}; the walk wants both kinds")
    if len(texts) > 1:
        failures.append(f"{model}: {shown}: the text depends on the limit")


def check_long_text(command, model, folder):
    """A text far longer than any context is refused before its tokens take memory."""
    path = os.path.join(folder, "text")
    with open(path, "w", encoding="ascii") as f:
        f.writelines(f"{i * 2654435761 % 4294967296:x} is a number. " for i in range(1200000))
    size = 40 + os.path.getsize(path) // MIB * 2  # its own bytes may be held, in a growing buffer
    code, _, err, peak = run(command + ["run", "-m", model, "-f", path, "--ram", f"{size}M", "-c",
                                        "1000"], folder, False)
    if code != 1 or "the prompt's" not in err or peak > size * MIB:
        failures.append(f"long text: status {code}, held {peak / MIB:.1f} of {size} MiB: {err}")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--program", required=True)
    a.add_argument("--all", action="store_true", help="every MiB up to 72")
    a = a.parse_args()
    command = [os.path.abspath(a.program)]
    embedded = os.path.join(ROOT, "models", "storyteller.gguf")
    long_run = ["--token-ids", ",".join(str(37 * i % 4000) for i in range(900)), "-n", "20",
                "-c", "1000", "--ignore-eos", "--temp", "1"]
    sizes = range(1, 73) if a.all else [1, 8, 24, *range(26, 46, 1), 56, 72]
    few = range(20, 60, 2) if a.all else [20, 25, 26, 28, 34, 60]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "ids"), "wb") as f:
            f.write(b"".join((37 * i % 256).to_bytes(4, "little") for i in range(200)))
        walk(command, embedded, long_run, False, sizes, folder)
        walk(command, embedded, [*long_run, "-t", "8", "--io-threads", "16"], False,
             [20, 40, 64, 80], folder)
        walk(command, embedded, [*long_run, "--no-moe-stream"], False, [30, 48, 56, 72], folder)
        for mode in ("mmap", "warm"):
            walk(command, embedded, [*long_run, "--dense-weights", mode], True, [20, 40, 60, 72],
                 folder)
        for kind in ("Q4_K_M", "Q8_0"):
            walk(command, os.path.join(DATA, "qmodels", kind, "model.gguf"),
                 ["--token-ids", "@" + os.path.join(folder, "ids"), "-n", "8", "--ignore-eos"],
                 False, few, folder)
        check_long_text(command, embedded, folder)
    for f in failures:
        print(f)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
