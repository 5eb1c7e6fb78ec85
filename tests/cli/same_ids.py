#!/usr/bin/env python3
"""same_ids.py OUT WANT: compare the "ids" of two files of JSON lines, line by line."""
import json
import sys


def main():
    out, want = ([json.loads(line)["ids"] for line in open(p, encoding="utf-8")] for p in sys.argv[1:])
    differ = abs(len(out) - len(want)) + sum(a != b for a, b in zip(out, want))
    print(f"{len(want)} lines, {differ} differ")
    return differ != 0


if __name__ == "__main__":
    sys.exit(main())
