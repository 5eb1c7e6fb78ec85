#!/usr/bin/env python3
"""Write a GGUF file that holds a vocabulary alone.

usage: mkvocab.py IN.vocab.json.gz OUT.gguf

The input is gzipped JSON {"n_tokens": N, "kv": {KEY: VALUE}} with the metadata of a tokenizer, as in
tests/data/tokenizers. The output has this metadata, an architecture and no tensors. Python's standard
library is enough. The output appears whole or not at all.
"""
import gzip
import json
import os
import struct
import sys

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # GGUF value types


def string(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def scalar_type(v):
    if isinstance(v, bool):
        return BOOL
    if isinstance(v, int):
        return I32 if v < 0 else U32
    if isinstance(v, float):
        return F32
    if isinstance(v, str):
        return STRING
    raise TypeError("no GGUF type for %r" % (v,))


def payload(t, v):
    if t == STRING:
        return string(v)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[t], v)


def value(v):
    """Type and bytes; arrays of integers are written as INT32, as converters do for token types."""
    if not isinstance(v, list):
        t = scalar_type(v)
        return struct.pack("<I", t) + payload(t, v)
    t = scalar_type(v[0]) if v else STRING
    t = I32 if t == U32 else t
    return struct.pack("<IIQ", ARRAY, t, len(v)) + b"".join(payload(t, x) for x in v)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    src, dst = sys.argv[1:]
    with gzip.open(src) as f:
        kv = json.load(f)["kv"]
    kv = {"general.architecture": "qwen3", "general.name": os.path.basename(src).split(".")[0] + " vocabulary", **kv}
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(kv))
    head += b"".join(string(k) + value(v) for k, v in kv.items())
    with open(dst + ".part", "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
    os.replace(dst + ".part", dst)


if __name__ == "__main__":
    main()
