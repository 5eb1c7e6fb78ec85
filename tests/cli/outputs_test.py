#!/usr/bin/env python3
"""The files of --ids-out, --logits-out and --experts-out: sizes, order, and that they agree."""
import array
import os
import stat
import subprocess
import sys

from harness import check, run_tests

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "tests", "data", "arch", "qwen3moe", "model.gguf")
N_VOCAB = 256


def read(path, kind):
    a = array.array(kind)
    with open(path, "rb") as f:
        a.frombytes(f.read())
    return a.tolist()


def run(command, *args):
    return subprocess.run(command + ["run", "-m", MODEL, "--ignore-eos", *args],
                          capture_output=True, timeout=240, check=False,
                          stdin=subprocess.DEVNULL)


def check_formats(command):
    prompt, n = [84, 104, 101, 32, 102], 4
    p = run(command, "--token-ids", ",".join(map(str, prompt)), "-n", str(n), "--ids-out", "i",
            "--logits-out", "l", "--experts-out", "e", "--ubatch", "3")
    check(p.returncode == 0, f"run failed: {p.stderr!r}")
    total = len(prompt) + n
    ids = read("i", "i")
    check(ids[:len(prompt)] == prompt and len(ids) == total, f"ids {ids}")
    logits = read("l", "f")
    check(len(logits) == total * N_VOCAB, f"{len(logits)} logits")
    for i in range(len(prompt) - 1, total - 1):  # greedy: the next id is the best of row i
        row = logits[i * N_VOCAB:(i + 1) * N_VOCAB]
        check(row.index(max(row)) == ids[i + 1], f"row {i} does not explain id {ids[i + 1]}")
    check_experts(read("e", "i"), total)


def check_experts(flat, total):
    blocks = None
    # The row length is not in the file: it is what makes positions and blocks come out right.
    for k in range(1, 17):
        if len(flat) % (k + 2):
            continue
        rows = [flat[i:i + k + 2] for i in range(0, len(flat), k + 2)]
        names = sorted({r[1] for r in rows})
        if [r[:2] for r in rows] == [[p, b] for p in range(total) for b in names]:
            blocks = names
            check(all(r[2:] == sorted(set(r[2:])) and min(r[2:]) >= 0 for r in rows),
                  f"expert ids not ascending: {rows[:3]}")
            break
    check(blocks, "expert rows are not sorted by position, then block")


def check_prompt_alone(command):
    with open("ids.bin", "wb") as f:
        array.array("i", [1, 2, 3]).tofile(f)
    p = run(command, "--token-ids", "@ids.bin", "-n", "0", "--ids-out", "i0", "--logits-out", "l0",
            "--experts-out", "e0")
    check(p.returncode == 0 and p.stdout == b"", f"-n 0: {p.returncode} {p.stdout!r}")
    check(read("i0", "i") == [1, 2, 3], "-n 0: ids")
    check(len(read("l0", "f")) == 3 * N_VOCAB, "-n 0: logits")
    p = run(command, "--token-ids", "1,2,3", "-n", "0", "--logits-out", "l1")
    with open("l0", "rb") as a, open("l1", "rb") as b:
        check(a.read() == b.read(), "a list and a file of ids differ")


def check_places(command):
    """Old files are replaced, links followed, devices left alone, nothing else appears."""
    os.mkdir("d")
    with open("d/real", "w", encoding="utf-8") as f:
        f.write("old")
    os.symlink("d/real", "link")
    p = run(command, "--token-ids", "5", "-n", "1", "--ids-out", "link", "--logits-out",
            "/dev/null")
    check(p.returncode == 0, f"places: {p.stderr!r}")
    check(os.path.islink("link") and len(read("d/real", "i")) == 2, "the link was not followed")
    check(stat.S_ISCHR(os.stat("/dev/null").st_mode), "/dev/null was replaced")
    check(sorted(os.listdir("d")) == ["real"], f"left behind: {os.listdir('d')}")
    check(not [n for n in os.listdir(".") if ".tmp." in n], f"left behind: {os.listdir('.')}")


if __name__ == "__main__":
    sys.exit(run_tests((check_formats, check_prompt_alone, check_places)))
