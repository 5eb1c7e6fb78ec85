#!/usr/bin/env python3
"""Checks of the source tree. One rule per call; prints FILE:LINE: what, exits 1 when it found any.

Rules are functions rule_NAME(tree) that yield (path, line, message). Known exceptions stand in
exceptions.txt, each with its reason."""
import argparse
import os
import re
import subprocess
import sys

# A file may include only from its own part or from parts to the left.
PARTS = "base thread io gguf quant kernels cache model text sample telemetry engine".split()
# The program uses the public header and base; these files look into more.
CLI_EXTRA = {
    "info": {"gguf", "quant"},
    "tokenize": {"gguf", "text"},
    "pack": {"gguf", "io", "model", "quant", "thread"},
    "bench": {"bench"},
    "iobench": {"bench", "cache", "gguf", "model"},
    "cachebench": {"bench", "model", "quant"},
    "plan": {"bench", "gguf", "io", "quant", "telemetry"},
    "replay": {"cache", "telemetry"},
    "run": {"model", "telemetry"},
    "open": {"telemetry"},
}
# text knows files with vocabularies, not models.
TEXT_MAY = {"base", "gguf", "text"}
# What measures kernels and drives knows what they are made of, but no models.
BENCH_MAY = {"base", "thread", "io", "quant", "kernels"}
MAX_FILE, MAX_FUNCTION, MAX_KERNEL = 800, 60, 110
TEXT_FILES = (".c", ".h", ".py", ".sh", ".md", ".txt", ".cmake", ".json", ".case", ".1", "run")


class Tree:
    def __init__(self, root, archive=None, nm="nm", cc="cc", cpu=""):
        self.root, self.archive, self.nm, self.cc, self.cpu = root, archive, nm, cc, cpu
        self.exceptions = read_exceptions(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                       "exceptions.txt"))

    def files(self, folders, ends):
        for folder in folders:
            for where, dirs, names in os.walk(os.path.join(self.root, folder)):
                dirs[:] = sorted(d for d in dirs
                                 if d not in ("build", ".git", "__pycache__", "local"))
                for name in sorted(names):
                    if name.endswith(ends):
                        yield os.path.relpath(os.path.join(where, name), self.root)

    def sources(self, *folders):
        return self.files(folders or ("include", "src", "cli", "server", "bench"), (".c", ".h"))

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as f:
            return f.read()

    def excepted(self, rule, *key):
        return (rule,) + key in self.exceptions


def read_exceptions(path):
    """Lines RULE KEY... # reason."""
    out = set()
    with open(path, encoding="utf-8") as f:
        for n, line in enumerate(f, 1):
            body, _, reason = line.partition("#")
            if body.strip():
                if not reason.strip():
                    sys.exit(f"{path}:{n}: an exception needs its reason after a #")
                out.add(tuple(body.split()))
    return out


def strip(text, keep_strings=False):
    """C source with comments (and strings' contents) blanked, line numbers kept."""
    def blank(m):
        s = m.group(0)
        if s.startswith("/"):
            return re.sub(r"[^\n]", " ", s)
        return s if keep_strings else s[0] + " " * (len(s) - 2) + s[-1]
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", blank, text,
                  flags=re.S)


def part_of(path):
    pieces = path.split("/")
    return pieces[1] if pieces[0] == "src" and len(pieces) > 2 else pieces[0]


def may_include(path, part, target):
    if part == target:
        return True
    if part == "cli":
        stem = re.split(r"[_.]", os.path.basename(path))[0]
        return target == "base" or target in CLI_EXTRA.get(stem, set())
    if part == "text":
        return target in TEXT_MAY
    if part in PARTS and target in PARTS:
        return PARTS.index(target) < PARTS.index(part)
    if part == "bench":
        return target in BENCH_MAY
    return part == "server" and target == "base"


def rule_includes(tree):
    for path in tree.sources():
        part = part_of(path)
        for n, line in enumerate(strip(tree.read(path), True).splitlines(), 1):
            m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not m or m.group(1) == "sluice.h":
                continue
            name = m.group(1)
            first = name.split("/")[0] if "/" in name else part
            if first not in PARTS and first not in ("cli", "bench"):
                first = part  # a folder inside the part, such as kernels' x86
            if tree.excepted("include", path, name):
                continue
            if part == "include" or not may_include(path, part, first):
                yield path, n, f"{part} may not include {name}"


def functions(text):
    """(name, first line, lines) of each function; the body's braces stand alone in column 0."""
    lines = strip(text).splitlines()
    start = None
    for i, line in enumerate(lines):
        if line.rstrip() == "{":
            start = i
        elif line.rstrip() == "}" and start is not None:
            head = start - 1
            while head > 0 and not re.match(r"\S", lines[head]):
                head -= 1
            m = re.search(r"(\w+)\s*\(", lines[head])
            yield (m.group(1) if m else "?"), head + 1, i - start + 1
            start = None


def rule_lengths(tree):
    for path in tree.sources("include", "src", "cli", "server", "bench", "tests"):
        text = tree.read(path)
        n = text.count("\n")
        if n > MAX_FILE and not tree.excepted("file-length", path):
            yield path, n, f"{n} lines; at most {MAX_FILE}"
        limit = MAX_KERNEL if path.startswith(("src/kernels/", "src/quant/")) else MAX_FUNCTION
        for name, line, count in functions(text):
            if count > limit and not tree.excepted("function-length", path, name):
                yield path, line, f"{name} has {count} lines; at most {limit}"


BANNED = ("malloc calloc realloc free strdup strndup strcpy strcat sprintf vsprintf gets atoi atol "
          "atof strtok exit _exit abort printf vprintf fprintf vfprintf puts putchar perror system "
          "popen rand srand random setlocale pthread_create").split()


def calls(text, names):
    """(line, name) of each call of one of names that is no member and no declaration of our own."""
    pattern = re.compile(r"(?<![\w.>])(" + "|".join(names) + r")\s*\(")
    for n, line in enumerate(strip(text).splitlines(), 1):
        for m in pattern.finditer(line):
            yield n, m.group(1)


def rule_calls(tree):
    for path in tree.sources("include", "src"):
        for n, name in calls(tree.read(path), BANNED):
            if not tree.excepted("call", path, name):
                yield path, n, f"{name}() is not for the library (CONTRIBUTING.md)"
    for path in tree.sources("cli", "server", "bench"):
        for n, name in calls(tree.read(path), ["strcpy", "strcat", "sprintf", "vsprintf", "gets",
                                               "atoi", "atol", "atof", "strtok", "system",
                                               "setlocale", "pthread_create"]):
            if not tree.excepted("call", path, name):
                yield path, n, f"{name}() is not used here (CONTRIBUTING.md)"


def rule_environment(tree):
    for path in tree.sources():
        if path != "cli/env.c":
            for n, name in calls(tree.read(path), ["getenv", "secure_getenv"]):
                yield path, n, f"{name}() belongs into cli/env.c"


LIBM = [f + t for f in "exp exp2 expm1 pow log log2 log10 log1p sin cos tan tanh sinh cosh erf"
        .split() for t in ("", "f")]


def rule_arithmetic(tree):
    """Results must not depend on the system's libm: our own functions are used instead."""
    for path in tree.sources("src"):
        for n, name in calls(tree.read(path), LIBM):
            if not tree.excepted("call", path, name):
                yield path, n, f"{name}() of the C library has no defined bytes; use our own"


# Written in pieces, so that this file passes its own rule.
WORDS = ["helper" + " session", "issue" + " #", "/" + "work" + "/", "TO" + "DO", "FIX" + "ME",
         "X" + "XX"]


def rule_words(tree):
    pattern = re.compile("|".join(re.escape(w) for w in WORDS), re.I)
    strict = re.compile(r"\b(" + "|".join(WORDS[3:]) + r")\b")
    for path in tree.files(["."], TEXT_FILES):
        if path.startswith("tests/data/"):
            continue
        for n, line in enumerate(tree.read(path).splitlines(), 1):
            m = pattern.search(line)
            if m and (m.group(0).lower() in [w.lower() for w in WORDS[:3]] or strict.search(line)):
                yield path, n, f"'{m.group(0)}' does not belong into the repository"


def rule_links(tree):
    """Relative links of the documents, and the paths that the tour names, exist."""
    for path in tree.files(["."], (".md",)):
        for n, line in enumerate(tree.read(path).splitlines(), 1):
            names = [(os.path.dirname(path), m) for m in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", line)]
            if path.endswith("docs/tour.md"):
                names += [("", m) for m in re.findall(r"`((?:src|cli|include|tests)/[^`]*)`", line)]
            for folder, name in names:
                if not os.path.exists(os.path.join(tree.root, folder, name)):
                    yield path, n, f"{name} does not exist"


def stems(tree):
    out = {"sl", "sluice"} | set(PARTS)
    for path in tree.sources("src"):
        out.add(os.path.splitext(os.path.basename(path))[0])
    return out


def rule_symbols(tree):
    if not os.path.exists(tree.archive or ""):
        yield str(tree.archive), 0, "no such archive"
        return
    text = subprocess.run([tree.nm, "-g", "--defined-only", tree.archive], capture_output=True,
                          text=True, check=True).stdout
    known = stems(tree)
    seen = 0
    for line in text.splitlines():
        m = re.match(r"[0-9a-f]+ \w (\w[\w.]*)$", line)
        if not m or m.group(1).startswith("__"):
            continue
        seen += 1
        name = m.group(1)
        ok = any(name.startswith(s + "_") for s in known)
        if not ok and not tree.excepted("symbol-prefix", name.split("_")[0]):
            yield "libsluice.a", 0, f"{name}: external names begin with sl_ or their module's name"
    if seen == 0:
        yield "libsluice.a", 0, "no symbols found"


# What the build compiles a kernel's file with, by the level in its name.
LEVEL_FLAGS = {
    "avx2": "-mavx2 -mfma -mf16c",
    "avxvnni": "-mavx2 -mfma -mf16c -mavxvnni",
    "wide": "-mavx2 -mfma -mf16c -mavxvnni -DMAT_LANES=8 -DMAT_VNNI=1",  # a template's parameters
    "avx512": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c",
    "avx512vnni": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c",
    "tiles": "-mamx-tile -mamx-int8",
}


def level_flags(path):
    for level in sorted(LEVEL_FLAGS, key=len, reverse=True):
        if "/x86/" in path and level in os.path.basename(path):
            return LEVEL_FLAGS[level].split()
    return []


def rule_headers(tree):
    arm = tree.cpu in ("aarch64", "arm64")
    for path in tree.files(["include", "src", "cli"], (".h",)):
        if ("/x86/" in path and arm) or ("/arm/" in path and not arm):
            continue
        if tree.excepted("header", path):
            continue
        p = subprocess.run([tree.cc, "-std=c11", "-D_GNU_SOURCE", "-fsyntax-only", "-Wall",
                            "-Wextra", "-Werror", "-Wno-unused-function", "-I.", "-Iinclude",
                            "-Isrc", *level_flags(path), "-x", "c", "-"], cwd=tree.root, capture_output=True,
                           text=True, input=f'#include "{path}"\n')
        if p.returncode != 0:
            yield path, 1, "does not compile alone: " + (p.stderr.splitlines() or ["?"])[0]


def main():
    rules = {k[5:]: v for k, v in globals().items() if k.startswith("rule_")}
    a = argparse.ArgumentParser()
    a.add_argument("rule", choices=sorted(rules))
    a.add_argument("--root", default=".")
    a.add_argument("--archive")
    a.add_argument("--nm", default="nm")
    a.add_argument("--cc", default="cc")
    a.add_argument("--cpu", default="")
    a = a.parse_args()
    tree = Tree(a.root, a.archive, a.nm, a.cc, a.cpu)
    found = list(rules[a.rule](tree))
    for path, line, message in found:
        print(f"{path}:{line}: {message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
