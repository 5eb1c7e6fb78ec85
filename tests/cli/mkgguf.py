#!/usr/bin/env python3
"""Small GGUF files for the command-line tests.
  mkgguf.py arch NAME OUT      a file of an architecture that does not exist, with one tensor
  mkgguf.py strip IN OUT       a copy without the tokenizer's metadata
"""
import struct
import sys

SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def string(s):
    return struct.pack("<Q", len(s)) + s


def value_end(data, pos, kind):
    """Where a metadata value that starts at pos ends."""
    if kind in SCALARS:
        return pos + SCALARS[kind]
    if kind == 8:
        return pos + 8 + struct.unpack_from("<Q", data, pos)[0]
    elem, n = struct.unpack_from("<IQ", data, pos)
    pos += 12
    if elem in SCALARS:
        return pos + n * SCALARS[elem]
    for _ in range(n):
        pos = value_end(data, pos, elem)
    return pos


def make_arch(name, path):
    kv = string(b"general.architecture") + struct.pack("<I", 8) + string(name.encode())
    tensor = string(b"token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 4, 0, 0)
    head = struct.pack("<4sIQQ", b"GGUF", 3, 1, 1) + kv + tensor
    head += b"\0" * (-len(head) % 32)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (32 * 4 * 4))


def strip(source, path):
    with open(source, "rb") as f:
        data = f.read()
    magic, version, n_tensors, n_kv = struct.unpack_from("<4sIQQ", data)
    pos, kept = 24, []
    for _ in range(n_kv):
        start = pos
        n, = struct.unpack_from("<Q", data, pos)
        key = data[pos + 8:pos + 8 + n]
        kind, = struct.unpack_from("<I", data, pos + 8 + n)
        pos = value_end(data, pos + 12 + n, kind)
        if not key.startswith(b"tokenizer."):
            kept.append(data[start:pos])
    begin = pos
    for _ in range(n_tensors):
        n, = struct.unpack_from("<Q", data, pos)
        dims, = struct.unpack_from("<I", data, pos + 8 + n)
        pos += 8 + n + 4 + 8 * dims + 12
    head = struct.pack("<4sIQQ", magic, version, n_tensors, len(kept)) + b"".join(kept)
    head += data[begin:pos]
    head += b"\0" * (-len(head) % 32)
    with open(path, "wb") as f:
        f.write(head + data[pos + (-pos % 32):])


if __name__ == "__main__":
    if sys.argv[1] == "arch":
        make_arch(sys.argv[2], sys.argv[3])
    else:
        strip(sys.argv[2], sys.argv[3])
