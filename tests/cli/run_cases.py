#!/usr/bin/env python3
"""Runs the command-line cases of one file.

A case is a block of lines KEY: VALUE; blocks are separated by empty lines, # starts a comment.
  name:    what the case shows
  setup:   shell command run first in the case's own empty folder (may repeat)
  run:     shell command; `sluice` is the program, as are its other names (NAMES); $MODEL is the
           embedded model, $DATA tests/data, $HERE this folder
  exit:    expected status (default 0)
  stdout:  expected line, * ? [ as in the shell (repeat for more lines; none: no output at all)
  stderr:  likewise; "..." alone stands for any number of lines, also in stdout
  left:    files that may be in the folder afterwards beside what setup made (default none)
  skip-unless: shell command; the case is skipped when it fails
"""
import argparse
import fnmatch
import os
import re
import stat
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NAMES = ("sluice", "cachebench", "infer", "bmoe-cli")


def read_cases(path):
    cases, case = [], {}
    with open(path, encoding="utf-8") as f:
        for n, line in enumerate(list(f) + ["\n"], 1):
            line = line.rstrip("\n")
            if line.startswith("#"):
                continue
            if not line.strip():
                if case:
                    cases.append(case)
                case = {}
                continue
            key, colon, value = line.partition(":")
            if not colon or key not in ("name", "setup", "run", "exit", "stdout", "stderr", "left",
                                        "skip-unless"):
                sys.exit(f"{path}:{n}: not a KEY: VALUE line: {line}")
            case.setdefault("line", n)
            case.setdefault(key, []).append(value[1:] if value.startswith(" ") else value)
    return cases


def glob(pattern):
    """fnmatch, but [ is itself: command output is full of brackets."""
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))


def matches(want, lines):
    if not want:
        return not lines
    if want[0] == "...":
        return any(matches(want[1:], lines[i:]) for i in range(len(lines) + 1))
    return bool(lines) and bool(glob(want[0]).match(lines[0])) and matches(want[1:], lines[1:])


def lines_of(data):
    text = data.decode("utf-8", "replace")
    return text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else []


def make_programs(folder, program, emulator):
    """Scripts of the program's names, so that cases run the same natively and emulated."""
    for name in NAMES:
        path = os.path.join(folder, name)
        target = os.path.join(os.path.dirname(program), name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\nexec {emulator} "{target}" "$@"\n')
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


def shell(command, folder, env):
    return subprocess.run(["sh", "-c", command], cwd=folder, env=env, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=240, check=False)


def run_case(case, env):
    """None, "skip", or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        for command in case.get("skip-unless", []):
            if shell(command, folder, env).returncode != 0:
                return "skip"
        for command in case.get("setup", []):
            p = shell(command, folder, env)
            if p.returncode != 0:
                return "setup failed: " + p.stderr.decode("utf-8", "replace")
        before = set(os.listdir(folder))
        p = shell(case["run"][0], folder, env)
        after = set(os.listdir(folder)) - before - set(" ".join(case.get("left", [])).split())
        wrong = []
        if p.returncode != int(case.get("exit", ["0"])[0]):
            wrong.append(f"exit status {p.returncode}")
        for name, data in (("stdout", p.stdout), ("stderr", p.stderr)):
            if not matches(case.get(name, []), lines_of(data)):
                wrong.append(f"{name} is:\n" + "\n".join("    " + x for x in lines_of(data)[:40]))
        if after:
            wrong.append("left behind: " + " ".join(sorted(after)))
        return "\n".join(wrong) or None


def main():
    a = argparse.ArgumentParser()
    a.add_argument("file")
    a.add_argument("--program", required=True)
    a.add_argument("--emulator", default="")
    a = a.parse_args()
    failed = skipped = 0
    cases = read_cases(a.file)
    with tempfile.TemporaryDirectory() as bin_folder:
        make_programs(bin_folder, os.path.abspath(a.program), a.emulator)
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        env.update(PATH=bin_folder + os.pathsep + env.get("PATH", ""), HERE=HERE, LC_ALL="C",
                   MODEL=os.path.join(ROOT, "models", "storyteller.gguf"),
                   DATA=os.path.join(ROOT, "tests", "data"), ROOT=ROOT)
        for case in cases:
            result = run_case(case, env)
            where = f"{a.file}:{case['line']}: {case.get('name', ['?'])[0]}"
            if result == "skip":
                skipped += 1
                print(f"{where}: skipped")
            elif result is not None:
                failed += 1
                print(f"{where}\n  {case['run'][0]}\n  {result}")
    print(f"{len(cases)} cases, {failed} failed, {skipped} skipped")
    return 1 if failed else 77 if skipped == len(cases) else 0


if __name__ == "__main__":
    sys.exit(main())
