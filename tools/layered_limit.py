#!/usr/bin/env python3
"""The layered limit of a run, from the rows of its --io-trace (docs/telemetry.md).

  layered_limit.py TRACE --ram-gb-s GBPS --drive-gb-s GBPS [--kernel-gb-s GBPS --threads N]

Per decoded token: head / R + sum over layers of [dense / R + max(missed / drive, hit / R) + one expert / R where
anything was missed], R being the smaller of the memory's rate and the kernels' rate times threads. Prints JSON: tokens,
layered_limit_s and whole_limit_s (max of reading and arithmetic, token by token), both per token."""
import argparse
import csv
import json
import sys


def rows(path):
    with open(path, encoding="utf-8", newline="") as f:
        yield from csv.DictReader(line for line in f if not line.startswith("#"))


def limits(path, ram, drive, kernel=0.0, threads=1):
    rate = min(ram, kernel * threads) if kernel > 0 else ram
    tokens = {}
    for row in rows(path):
        if row["kind"] != "block" or row["phase"] != "1" or row["tokens"] != "1":
            continue
        dense, hit, missed, expert = (int(row[k]) for k in
                                      ("dense_bytes", "hit_bytes", "missed_bytes", "expert_bytes"))
        t = tokens.setdefault(int(row["token"]), [0.0, 0, 0])
        t[0] += dense / rate + max(missed / drive, hit / rate) + (expert / rate if missed else 0)
        t[1] += missed
        t[2] += dense + hit + missed
    n = len(tokens)
    if n == 0:
        return {"tokens": 0, "layered_limit_s": None, "whole_limit_s": None}
    return {"tokens": n,
            "layered_limit_s": sum(t[0] for t in tokens.values()) / n,
            "whole_limit_s": sum(max(t[1] / drive, t[2] / rate) for t in tokens.values()) / n}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    a.add_argument("trace")
    a.add_argument("--ram-gb-s", type=float, required=True, help="GB/s, all threads")
    a.add_argument("--drive-gb-s", type=float, required=True, help="GB/s")
    a.add_argument("--kernel-gb-s", type=float, default=0, help="GB/s of one thread; 0: no limit")
    a.add_argument("--threads", type=int, default=1)
    a = a.parse_args()
    if a.ram_gb_s <= 0 or a.drive_gb_s <= 0:
        sys.exit("rates are above 0")
    print(json.dumps(limits(a.trace, 1e9 * a.ram_gb_s, 1e9 * a.drive_gb_s, 1e9 * a.kernel_gb_s,
                            a.threads)))


if __name__ == "__main__":
    main()
