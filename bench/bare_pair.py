#!/usr/bin/env python3
"""Is cachebench as fast as a bare loop of pread? Alternating runs of both, on the same pages.

  bench/bare_pair.py FILE [--threads 1,2] [--split 1] [--experts 128] [--dest thread|slots] [--rounds 7] [--passes 10]
      [--pages keep|sequential|random] [--fio] [--build build]

FILE is a layer's file of a packed tree (or any file, whose equal parts are taken for experts). bare_read reads the same
ranges in the same shuffled orders to the same kind of memory by as many threads. Rounds alternate: A B, B A, ... A and B
read pages that entered the page cache once, before the first round: as they are (keep), by reading the file from begin to
end, or at random places. --fio adds fio's psync engine (its own random order, its own buffers) at the end of each round.
Nothing else should run. Prints a Markdown row for each thread count: medians, cachebench / bare by round and its range."""
import argparse
import os
import random
import statistics
import sys

from programs import ROOT, execute, execute_json


def bring_in(path, how, step):
    """The file's pages into the page cache, from nothing."""
    if how == "keep":
        return
    with open(path, "rb", buffering=0) as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        at = list(range(0, os.path.getsize(path), step))
        if how == "random":
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            random.Random(1).shuffle(at)
        for offset in at:
            os.pread(f.fileno(), step, offset)


def cachebench(a, threads):
    out = execute_json([os.path.join(a.build, "cli", "cachebench"), "--file", a.file, "--experts", a.experts, "--threads",
                        threads, "--split", a.split, "--dest", a.dest, "--warmup", 2, "--passes", a.passes, "--json"])
    if not out["cached"]:
        sys.exit("pages have left the page cache: nothing to compare")
    return out


def bare(a, threads, layout):
    return float(execute([os.path.join(a.build, "bench", "bare_read"), a.file, a.experts, layout["stride"], layout["bytes"],
                          threads, a.split, 2, a.passes, 1, a.dest]).stdout.split()[0])


def fio(a, threads, layout):
    """GB/s of random reads of whole experts: threads jobs, each as many as a thread has in all passes."""
    reads = -(-a.experts * a.passes // threads)
    out = execute_json(["fio", "--name=experts", "--filename=" + a.file, "--ioengine=psync", "--rw=randread",
                        f"--bs={layout['bytes']}", f"--blockalign={layout['stride']}", f"--numjobs={threads}", "--thread",
                        "--invalidate=0", "--norandommap=1", f"--io_size={reads * layout['bytes']}", "--group_reporting",
                        "--fadvise_hint=0", "--output-format=json"])
    return out["jobs"][0]["read"]["bw_bytes"] * 1e-9


def middle(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def compare(a, threads, layout):
    rates = {"cachebench": [], "bare": [], "fio": []}
    cachebench(a, threads)
    for i in range(a.rounds):
        for name in ("cachebench", "bare") if i % 2 == 0 else ("bare", "cachebench"):
            rates[name].append(cachebench(a, threads)["gb_s"] if name == "cachebench" else bare(a, threads, layout))
        if a.fio:
            rates["fio"].append(fio(a, threads, layout))
    ratios = [x / y for x, y in zip(rates["cachebench"], rates["bare"])]
    print(f"| {threads} | {a.split} | {a.dest} | {middle(rates['cachebench'])} | {middle(rates['bare'])} | "
          f"{middle(ratios)} | {middle(rates['fio']) if a.fio else '-'} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--split", type=int, default=1)
    p.add_argument("--experts", type=int, default=128)
    p.add_argument("--dest", choices=("thread", "slots"), default="thread")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--passes", type=int, default=10)
    p.add_argument("--pages", choices=("keep", "sequential", "random"), default="sequential")
    p.add_argument("--fio", action="store_true")
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    a = p.parse_args()
    if a.rounds < 1 or a.experts < 1 or a.split < 1:
        p.error("at least one round, expert and piece")
    size = cachebench(a, 1)["expert_bytes"]
    # In a packed tree experts stand whole pages apart; of any other file, as far as it has room for.
    layout = {"bytes": size, "stride": -(-size // 4096) * 4096}
    bring_in(a.file, a.pages, layout["stride"])
    print("| threads | split | destination | cachebench GB/s | bare GB/s | cachebench / bare | fio psync GB/s |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    for threads in a.threads.split(","):
        compare(a, int(threads), layout)


if __name__ == "__main__":
    main()
