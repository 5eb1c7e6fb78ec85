#!/usr/bin/env python3
"""Split a GGUF file into a set of shards, NAME-00001-of-0000N.gguf and so on.

    tools/gguf_split.py MODEL.gguf -n 3 -o NAME          three shards
    tools/gguf_split.py MODEL.gguf -n 3 -o NAME --bare   the first holds metadata alone

Every shard is a GGUF file with the keys split.no (from 0, uint16), split.count (uint16) and
split.tensors.count (int32, of the whole set); the first one also has the model's metadata. Tensors
keep their order and are dealt out so that the shards are about equally large. Needs nothing but
Python's standard library; data are copied in pieces, so that any size of file will do.
"""
import argparse
import os
import struct
import sys

SCALAR = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U16, U32, I32, STRING, ARRAY = 2, 4, 5, 8, 9
MAX_SHARDS = 999
PIECE = 8 << 20


class Reader:
    """The header's bytes as they are read; `take` keeps them for copying."""

    def __init__(self, f):
        self.f = f

    def take(self, n):
        b = self.f.read(n)
        if len(b) != n:
            sys.exit('the file ends inside its header')
        return b

    def num(self, fmt):
        b = self.take(struct.calcsize(fmt))
        return struct.unpack(fmt, b)[0], b

    def string(self):
        n, b = self.num('<Q')
        s = self.take(n)
        return s, b + s

    def value(self, kind):
        """The bytes of a value of this type."""
        if kind == STRING:
            return self.string()[1]
        if kind != ARRAY:
            if kind not in SCALAR:
                sys.exit('unknown metadata type %d' % kind)
            return self.take(SCALAR[kind])
        elem, b1 = self.num('<I')
        n, b2 = self.num('<Q')
        if elem in SCALAR:
            return b1 + b2 + self.take(n * SCALAR[elem])
        return b1 + b2 + b''.join(self.value(elem) for _ in range(n))


def read_header(f, size):
    """(version, alignment, [key-value bytes], [(record without offset, offset, bytes)])"""
    r = Reader(f)
    if r.take(4) != b'GGUF':
        sys.exit('not a GGUF file')
    version = r.num('<I')[0]
    if version not in (2, 3):
        sys.exit('GGUF version %d is not known' % version)
    n_tensors, n_kv = r.num('<Q')[0], r.num('<Q')[0]
    align, kv = 32, []
    for _ in range(n_kv):
        key, b = r.string()
        kind, bk = r.num('<I')
        v = r.value(kind)
        if key == b'general.alignment':
            if kind != U32:
                sys.exit('general.alignment is no uint32')
            align = struct.unpack('<I', v)[0]
            if align == 0 or align & (align - 1):
                sys.exit('general.alignment is %d' % align)
        if key.startswith(b'split.'):
            if key == b'split.count' and int.from_bytes(v, 'little') > 1:
                sys.exit('the file is a shard of a split set already')
            continue
        kv.append(b + bk + v)
    tensors = []
    for _ in range(n_tensors):
        rec = r.string()[1]
        n_dims, b = r.num('<I')
        rec += b + r.take(8 * n_dims + 4)  # dimensions and type
        tensors.append([rec, r.num('<Q')[0]])
    data = -(-f.tell() // align) * align
    # A tensor's bytes reach to the next one's start; padding is copied along and does no harm.
    starts = sorted({t[1] for t in tensors}) + [size - data]
    end = dict(zip(starts, starts[1:]))
    tensors = [(rec, data + off, end[off] - off) for rec, off in tensors]
    if any(n <= 0 for _, _, n in tensors):
        sys.exit('the file is truncated')
    return version, align, kv, tensors


def deal(tensors, n):
    """n lists of tensors in order, none empty, of about equal bytes."""
    total, out, done = sum(t[2] for t in tensors), [[] for _ in range(n)], 0
    for i, t in enumerate(tensors):
        left = len(tensors) - i
        at = next((k for k in range(n) if not out[k]), n) - 1 if i else 0
        empty = n - 1 - at
        if i and (left <= empty or done * n >= total * (at + 1)) and empty:
            at += 1
        out[at].append(t)
        done += t[2]
    return out


def key_value(key, kind, fmt, v):
    return struct.pack('<Q', len(key)) + key + struct.pack('<I', kind) + struct.pack(fmt, v)


def write_shard(src, path, version, align, kv, tensors):
    head = b'GGUF' + struct.pack('<IQQ', version, len(tensors), len(kv)) + b''.join(kv)
    off = 0
    for rec, _, n in tensors:
        head += rec + struct.pack('<Q', off)
        off += -(-n // align) * align
    head += b'\0' * (-len(head) % align)
    temp = path + '.tmp'
    with open(temp, 'wb') as f:
        f.write(head)
        for i, (_, start, n) in enumerate(tensors):
            src.seek(start)
            left = n
            while left:
                b = src.read(min(left, PIECE))
                if not b:
                    sys.exit('the source became shorter')
                f.write(b)
                left -= len(b)
            if i + 1 < len(tensors):
                f.write(b'\0' * (-n % align))
    os.rename(temp, path)


def main():
    p = argparse.ArgumentParser(description='Split a GGUF file into a set of shards.')
    p.add_argument('model')
    p.add_argument('-n', '--shards', type=int, required=True, help='number of shards, 2 to 999')
    p.add_argument('-o', '--out', required=True, help='prefix of the shards\' names')
    p.add_argument('--bare', action='store_true', help='the first shard holds metadata alone')
    a = p.parse_args()
    if not 2 <= a.shards <= MAX_SHARDS:
        p.error('--shards must be from 2 to %d' % MAX_SHARDS)
    with open(a.model, 'rb') as src:
        version, align, kv, tensors = read_header(src, os.path.getsize(a.model))
        n = a.shards - a.bare
        if len(tensors) < n:
            sys.exit('the model has %d tensors, too few for %d shards' % (len(tensors), n))
        sets = ([[]] if a.bare else []) + deal(tensors, n)
        for no, part in enumerate(sets):
            keys = list(kv) if no == 0 else []
            if no and align != 32:
                keys.append(key_value(b'general.alignment', U32, '<I', align))
            keys += [key_value(b'split.no', U16, '<H', no),
                     key_value(b'split.count', U16, '<H', a.shards),
                     key_value(b'split.tensors.count', I32, '<i', len(tensors))]
            path = '%s-%05d-of-%05d.gguf' % (a.out, no + 1, a.shards)
            write_shard(src, path, version, align, keys, part)
            print(path)


if __name__ == '__main__':
    main()
