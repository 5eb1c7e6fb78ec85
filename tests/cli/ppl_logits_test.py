#!/usr/bin/env python3
"""sluice ppl against the same numbers computed here from the logits that sluice run writes."""
import argparse
import json
import math
import os
import shlex
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "storyteller.gguf")
WINDOW, IDS = 13, [37 * i % 4000 for i in range(30)]  # windows of 13, 13 and 4 tokens


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--program", required=True)
    a.add_argument("--emulator", default="")
    a = a.parse_args()
    command = shlex.split(a.emulator) + [os.path.abspath(a.program)]

    def sluice(*args):
        return subprocess.run(command + list(args), capture_output=True, check=True,
                              timeout=240).stdout

    def listed(ids):
        return ",".join(str(i) for i in ids)

    nll, hits, n = 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "logits")
        for at in range(0, len(IDS), WINDOW):
            ids = IDS[at:at + WINDOW]
            sluice("run", "-m", MODEL, "--token-ids", listed(ids), "-n", "0", "--logits-out", path)
            with open(path, "rb") as f:
                data = f.read()
            width = len(data) // 4 // len(ids)
            for i, target in enumerate(ids[1:]):
                row = struct.unpack_from(f"<{width}f", data, 4 * width * i)
                top = max(row)
                nll += top + math.log(math.fsum(math.exp(x - top) for x in row)) - row[target]
                hits += row.index(top) == target
                n += 1
    want = {"tokens": n, "nll": nll / n, "ppl": math.exp(nll / n), "hit": hits / n, "windows": 3,
            "ctx": WINDOW, "step": False}
    got = json.loads(sluice("ppl", "-m", MODEL, "-c", str(WINDOW), "--token-ids", listed(IDS),
                            "--json"))
    bad = [k for k in want if not math.isclose(got[k], want[k], rel_tol=1e-6)]
    if bad or list(got) != list(want):
        print(f"{bad}: got {got}, want {want}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
