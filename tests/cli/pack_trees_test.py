#!/usr/bin/env python3
"""Packed trees: the same text from a lossless one, marks on the others, interruption, damage."""
import argparse
import fcntl
import filecmp
import json
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "storyteller.gguf")
OTHER = os.path.join(ROOT, "tests", "data", "arch", "qwen3moe-f32", "model.gguf")
failures = []


def check(ok, what):
    if not ok:
        failures.append(what)


class Sluice:
    def __init__(self, command, folder):
        self.command, self.folder = command, folder

    def __call__(self, *args):
        return subprocess.run(self.command + list(args), cwd=self.folder, capture_output=True,
                              timeout=240, check=False, stdin=subprocess.DEVNULL)

    def good(self, *args):
        p = self(*args)
        check(p.returncode == 0, f"{args}: {p.stderr.decode()}")
        return p

    def refused(self, want, *args):
        p = self(*args)
        said = p.stderr.decode().splitlines()[-1:]
        check(p.returncode == 1 and said and want in said[0], f"{args}: wanted '{want}': {said}")


def run_args(*more):
    return ["run", "-m", MODEL, "-p", "Once upon a time", "-n", "12", "--ignore-eos", *more]


def check_lossless(sluice):
    sluice.good("pack", MODEL, "-o", "a")
    plain = sluice.good(*run_args("--moe-stream"))
    for more in (["--moe-stream"], ["--no-moe-stream"], ["--moe-stream", "--cache-mb", "0"],
                 ["--no-moe-stream", "--dense-weights", "mmap"]):
        p = sluice.good(*run_args("--packed", "a", *more))
        check(p.stdout == plain.stdout, f"{more}: another text from packed experts")
        check(b", packed experts, " in p.stderr and b"lossy" not in p.stderr, f"{more}: mode line")
    link = os.path.join(sluice.folder, "a", "model.gguf")
    check(os.path.islink(link) and os.path.samefile(link, MODEL), "no link to the model")
    check(sluice.good("pack", MODEL, "-o", "a", "--verify").stdout.endswith(
        b"lossless: as packed from this model\n"), "verify said something else")
    check(b"packed already" in sluice.good("pack", MODEL, "-o", "a").stderr, "packed again")


def check_lossy(sluice):
    """Beside the model: no --packed needed. The mark is in every output."""
    os.mkdir(os.path.join(sluice.folder, "own"))
    model = os.path.join(sluice.folder, "own", "model.gguf")
    os.link(MODEL, model) if os.stat(MODEL).st_dev == os.stat(sluice.folder).st_dev else \
        subprocess.run(["cp", MODEL, model], check=True)
    plain = json.loads(sluice.good("ppl", "-m", model, "--token-ids", "1,2,3,4", "--json").stdout)
    for flag, run_flag, name in (("--q3", "--q3-experts", "Q3_K"), ("--2bit", "--2bit", "Q2_K"),
                                 ("--4bit", "--4bit", "Q4_K")):
        sluice.good("pack", model, "-o", "own", flag)
        sluice.good("pack", model, "-o", "own", flag, "--verify")
        p = sluice.good("run", "-m", "own/model.gguf", run_flag, "-p", "A", "-n", "2")
        check(b"lossy: experts requantised to " + name.encode() in p.stderr, f"{flag}: no mark")
        p = sluice.good("ppl", "-m", model, run_flag, "--token-ids", "1,2,3,4", "--json")
        got = json.loads(p.stdout)
        check(name in got["marks"] and got["nll"] != plain["nll"], f"{flag}: {got}")
    sluice.refused("say --4bit", *run_args("--packed", "own"))
    sluice.refused("already holds Q4_K experts", "pack", model, "-o", "own")
    sluice.refused("there is no packed_experts_Q3 tree", *run_args("--packed", "a", "--q3-experts"))
    sluice.refused("not Q4_K ones", *run_args("--packed", "a", "--4bit"))


def check_foreign(sluice):
    sluice.refused("packed from another model", "run", "-m", OTHER, "--packed", "a", "-p", "a")
    sluice.refused("trees of another model", "pack", OTHER, "-o", "a")
    path = os.path.join(sluice.folder, "a", "manifest.json")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for old, new in (('"page": 4096', '"page": 8192'), ('"block": 5', '"block": 7'),
                     ('"experts": 16', '"experts": 15'), ('"at": 0', '"at": 1')):
        check(old in text, f"the manifest has no {old}")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(old, new, 1))
        sluice.refused("does not fit its model", *run_args("--packed", "a"))
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def check_damage(sluice):
    layer = os.path.join(sluice.folder, "a", "packed_experts", "layer_02.bin")
    with open(layer, "r+b") as f:
        f.seek(100000)
        byte = f.read(1)
        f.seek(100000)
        f.write(bytes([byte[0] ^ 1]))
    sluice.refused("differs from the model at byte 100000 (expert 0): remove it and pack again", "pack", MODEL, "-o",
                   "a", "--verify")
    os.remove(layer)
    sluice.good("pack", MODEL, "-o", "a")
    sluice.good("pack", MODEL, "-o", "a", "--verify")
    os.truncate(layer, os.path.getsize(layer) - 4096)
    sluice.refused("pack again", *run_args("--packed", "a"))
    sluice.refused("is missing or not whole", "pack", MODEL, "-o", "a", "--verify")
    p = sluice.good("pack", MODEL, "-o", "a")
    check(b"5 of 6 layers are packed already" in p.stderr, f"not mended: {p.stderr}")
    sluice.good("pack", MODEL, "-o", "a", "--verify")
    manifest = os.path.join(sluice.folder, "a", "manifest.json")
    with open(manifest, encoding="utf-8") as f:
        m = json.load(f)
    digest = m["trees"][0]["layers"][3]["sha256"]
    path = os.path.join(sluice.folder, "a", "packed_experts", "layer_03.bin")
    said = subprocess.run(["sha256sum", path], capture_output=True, check=True).stdout.decode()
    check(said.startswith(digest), "another checksum than sha256sum's")
    with open(manifest, "r+", encoding="utf-8") as f:
        text = f.read().replace(digest, digest[::-1])
        f.seek(0)
        f.write(text)
    sluice.refused("another checksum", "pack", MODEL, "-o", "a", "--verify")


def check_interrupted(sluice):
    """Ended when its first layer is there: nothing looks whole, and the next call goes on."""
    sluice.good("pack", MODEL, "-o", "whole", "--2bit")
    folder = os.path.join(sluice.folder, "cut", "packed_experts_2bit")
    done = os.path.join(folder, "layer_00.bin")
    p = subprocess.Popen(sluice.command + ["pack", MODEL, "-o", "cut", "--2bit", "-t", "1"],
                         cwd=sluice.folder, stderr=subprocess.PIPE)
    limit = time.monotonic() + 120
    while not os.path.exists(done) and p.poll() is None and time.monotonic() < limit:
        time.sleep(0.002)
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=60)
    if p.returncode != 0:  # it may have been too quick
        check(p.returncode == 128 + signal.SIGTERM, f"ended with {p.returncode}")
        check(not os.path.exists(os.path.join(sluice.folder, "cut", "manifest.json")), "a manifest")
        left = set(os.listdir(folder))
        check(not any(".tmp." in n for n in left), f"left behind: {left}")
        sluice.refused("manifest.json", "run", "-m", MODEL, "--packed", "cut", "--2bit", "-p", "a")
        said = sluice.good("pack", MODEL, "-o", "cut", "--2bit").stderr
        check(b" of 6 layers are packed already" in said or
              not os.path.exists(os.path.join(folder, "unfinished.json")), f"from anew: {said}")
    names = sorted(os.listdir(folder))
    check(names == [f"layer_{i:02d}.bin" for i in range(6)], f"files: {names}")
    same, _, _ = filecmp.cmpfiles(folder, os.path.join(sluice.folder, "whole",
                                                       "packed_experts_2bit"), names, False)
    check(same == names, "an interrupted pack gives other files")


def check_killed(sluice):
    """What calls left half written that could clean up nothing: the next one does, and touches nothing else."""
    sluice.good("pack", MODEL, "-o", "killed", "--2bit")
    folder = os.path.join(sluice.folder, "killed", "packed_experts_2bit")
    before = sorted(os.listdir(folder)), sorted(os.listdir(os.path.dirname(folder)))
    os.remove(os.path.join(folder, "layer_03.bin"))
    junk = [os.path.join(folder, n) for n in ("layer_03.bin.tmp.7", "layer_99.bin.tmp.8-12", "unfinished.json.tmp.1")]
    junk.append(os.path.join(os.path.dirname(folder), "manifest.json.tmp.77"))
    kept = [os.path.join(folder, n) for n in ("notes.tmp.1", "layer_03.bin.tmp.", "layer_03.bin.tmp.7a")]
    for path in junk + kept:
        with open(path, "wb") as f:
            f.write(b"x")
    sluice.good("pack", MODEL, "-o", "killed", "--2bit")
    sluice.good("pack", MODEL, "-o", "killed", "--2bit", "--verify")
    check(not [n for n in junk if os.path.exists(n)], "what killed calls left is still there")
    for path in kept:
        check(os.path.exists(path), f"{path} is gone")
        os.remove(path)
    check((sorted(os.listdir(folder)), sorted(os.listdir(os.path.dirname(folder)))) == before, "other files")


def check_two(sluice):
    """Of two calls for one directory the second is refused; what the first one wrote is seen by the next."""
    sluice.good("pack", MODEL, "-o", "two", "--2bit")
    lock = os.open(os.path.join(sluice.folder, "two"), os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    sluice.refused("two: another sluice pack is writing there", "pack", MODEL, "-o", "two", "--q3")
    check(b"packed already" in sluice.good("pack", MODEL, "-o", "two", "--2bit").stderr, "a finished tree waits")
    os.close(lock)
    calls = [subprocess.Popen(sluice.command + ["pack", MODEL, "-o", "both", kind], cwd=sluice.folder,
                              stderr=subprocess.PIPE) for kind in ("--q3", "--2bit")]
    for p, kind in zip(calls, ("--q3", "--2bit")):
        _, said = p.communicate(timeout=240)
        if p.returncode == 0:
            sluice.good("pack", MODEL, "-o", "both", kind, "--verify")
        else:
            check(b"is writing there" in said, f"{kind}: {said}")
    check(0 in [p.returncode for p in calls], "neither was packed")


def check_no_file(sluice):
    """A pipe where a layer belongs: refused, not waited for."""
    folder = os.path.join(sluice.folder, "pipe", "packed_experts_2bit")
    os.makedirs(folder)
    os.mkfifo(os.path.join(folder, "layer_00.bin"))
    sluice.refused("is not a regular file", "pack", MODEL, "-o", "pipe", "--2bit")


def check_threads(sluice):
    sluice.good("pack", MODEL, "-o", "three", "--2bit", "-t", "3")
    names = [f"layer_{i:02d}.bin" for i in range(6)]
    folders = [os.path.join(sluice.folder, d, "packed_experts_2bit") for d in ("whole", "three")]
    check(filecmp.cmpfiles(*folders, names, False)[0] == names, "threads change the bytes")


def check_room(sluice):
    """A model of terabytes, which its file system need not hold: refused before anything."""
    name, dims = "huge.gguf", (4096, 1024, 65536)
    size = 4 * dims[0] * dims[1] * dims[2]
    head = struct.pack("<4sIQQ", b"GGUF", 3, 3, 0)
    for i, kind in enumerate(("gate", "up", "down")):
        tensor = f"blk.0.ffn_{kind}_exps.weight".encode()
        head += struct.pack("<Q", len(tensor)) + tensor
        head += struct.pack("<IQQQIQ", 3, *dims, 0, i * size)
    head += bytes(-len(head) % 32)
    path = os.path.join(sluice.folder, name)
    try:
        with open(path, "wb") as f:
            f.write(head)
            f.truncate(len(head) + 3 * size)
    except OSError:
        return
    sluice.refused("not enough room: ", "pack", name, "-o", "big")
    sluice.refused("not enough room: ", "pack", name, "-o", "big", "--dry-run")
    check(not os.path.exists(os.path.join(sluice.folder, "big")), "something was made")


def check_bar(sluice):
    ours, theirs = pty.openpty()
    p = subprocess.Popen(sluice.command + ["pack", MODEL, "-o", "bar", "--q3", "-t", "1"],
                         cwd=sluice.folder, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while True:
            said += os.read(ours, 65536)
    except OSError:
        pass
    check(p.wait(timeout=60) == 0, "pack failed on a terminal")
    check(b"MiB/s, " in said and b" left" in said and b"\rpacking [" in said, f"no bar: {said!r}")
    check(said.endswith(b"\r\n") and b"\r\x1b[Kpacked 6 layers" in said, f"the end: {said!r}")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--program", required=True)
    a.add_argument("--emulator", default="")
    a = a.parse_args()
    command = shlex.split(a.emulator) + [os.path.abspath(a.program)]
    with tempfile.TemporaryDirectory(dir=".") as folder:
        sluice = Sluice(command, os.path.abspath(folder))
        for part in (check_lossless, check_lossy, check_foreign, check_damage, check_interrupted,
                     check_killed, check_two, check_no_file, check_threads, check_room, check_bar):
            part(sluice)
    for f in failures:
        print(f)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
