#!/usr/bin/env python3
"""--cache-mb auto inside a memory cgroup (v1 or v2): at every limit a run is refused with its numbers
or lives, holding less than the limit, and the text is the same. Needs the right to make a group."""
import argparse
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "storyteller.gguf")
MIB = 1 << 20
V1 = "/sys/fs/cgroup/memory"
V2 = "/sys/fs/cgroup"


def write(path, value):
    with open(path, "w", encoding="ascii") as f:
        f.write(value)


def make_group(limit):
    """The folder of a new group, or None."""
    v1 = os.path.isdir(V1)
    group = os.path.join(V1 if v1 else V2, f"sluice-test.{os.getpid()}")
    try:
        os.mkdir(group)
        write(os.path.join(group, "memory.limit_in_bytes" if v1 else "memory.max"),
              str(limit * MIB))
    except OSError:
        if os.path.isdir(group):
            os.rmdir(group)
        return None
    try:  # swapping would hide what is too much
        write(os.path.join(group, "memory.swappiness" if v1 else "memory.swap.max"), "0")
    except OSError:
        pass
    return group


def end_group(group):
    for _ in range(50):  # the kernel may still be clearing up
        try:
            os.rmdir(group)
            return
        except OSError:
            time.sleep(0.02)


def held(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            fields = dict(line.split(":", 1) for line in f)
    except OSError:
        return 0
    return sum(int(fields[k].split()[0]) for k in ("RssAnon", "RssShmem") if k in fields) * 1024


def run(command, group, folder):
    """(status, text, report, most bytes held)"""
    def enter():
        write(os.path.join(group, "cgroup.procs"), str(os.getpid()))
    out, err = (open(os.path.join(folder, name), "w+b") for name in ("out", "err"))
    with out, err, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                    preexec_fn=enter) as p:
        peak = 0
        while p.poll() is None:
            peak = max(peak, held(p.pid))
            time.sleep(0.001)
        out.seek(0)
        err.seek(0)
        return p.returncode, out.read(), err.read().decode("utf-8", "replace"), peak


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--program", required=True)
    a = a.parse_args()
    ids = ",".join(str(37 * i % 4000) for i in range(900))
    command = [os.path.abspath(a.program), "run", "-m", MODEL, "--token-ids", ids, "-n", "20", "-c",
               "1000", "--ignore-eos", "--cache-mb", "auto", "-t", "2"]
    failures, texts, refused, lived = [], set(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for limit in (24, 32, 40, 44, 48, 56, 80, 160):
            group = make_group(limit)
            if group is None:
                print("no right to make a memory cgroup here")
                return 77
            try:
                code, text, report, peak = run(command, group, folder)
            finally:
                end_group(group)
            if peak > limit * MIB:
                failures.append(f"{limit} MiB: held {peak / MIB:.1f}")
            if code == 0:
                lived += 1
                texts.add(text)
            elif code == 1 and "does not fit: needs " in report and lived == 0:
                refused += 1
            else:
                failures.append(f"{limit} MiB: status {code}: {report}")
    if not refused or not lived:
        failures.append(f"{refused} sizes were refused, {lived} ran; both are wanted")
    if len(texts) > 1:
        failures.append("the text depends on the limit")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
