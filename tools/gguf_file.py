"""Reading and writing GGUF files (version 3) for the scripts of this folder. Standard library only.

A file is `kv`, a list of (key, type, raw value bytes), and `tensors`, a list of
(name, dims, type, data) with dims[0] the row length. Metadata is kept as raw bytes, so that what a
script does not touch comes out as it went in; value() makes new ones."""
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: 'B', I8: 'b', U16: 'H', I16: 'h', U32: 'I', I32: 'i', F32: 'f', BOOL: '?',
           U64: 'Q', I64: 'q', F64: 'd'}
# tensor type: values and bytes of a block
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 12: (256, 144),
          13: (256, 176), 14: (256, 210), 30: (1, 2)}
ALIGNMENT = 32


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, code):
        value, = struct.unpack_from('<' + code, self.data, self.at)
        self.at += struct.calcsize('<' + code)
        return value

    def string(self):
        n = self.take('Q')
        if n > len(self.data) - self.at:
            raise ValueError('a string reaches past the end of the file')
        self.at += n
        return bytes(self.data[self.at - n:self.at])

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            element, n = self.take('I'), self.take('Q')
            if element in FORMATS:
                self.at += n * struct.calcsize('<' + FORMATS[element])
            else:
                for _ in range(n):
                    self.skip(element)
        else:
            self.take(FORMATS[kind])


def tensor_bytes(dims, kind):
    values = 1
    for d in dims:
        values *= d
    per_block, size = BLOCKS[kind]
    return values // per_block * size


def read(path):
    with open(path, 'rb') as f:
        data = memoryview(f.read())
    if data[:4] != b'GGUF':
        raise ValueError('%s is not a GGUF file' % path)
    c = Cursor(data)
    c.at = 8
    n_tensors, n_kv = c.take('Q'), c.take('Q')
    kv, infos = [], []
    for _ in range(n_kv):
        key, kind = c.string().decode(), c.take('I')
        start = c.at
        c.skip(kind)
        kv.append((key, kind, bytes(data[start:c.at])))
    for _ in range(n_tensors):
        name = c.string().decode()
        dims = [c.take('Q') for _ in range(c.take('I'))]
        infos.append((name, dims, c.take('I'), c.take('Q')))
    alignment = ALIGNMENT
    for key, _, raw in kv:
        if key == 'general.alignment':
            alignment = struct.unpack('<I', raw)[0]
    base = -(-c.at // alignment) * alignment
    tensors = []
    for name, dims, kind, offset in infos:
        n = tensor_bytes(dims, kind)
        if base + offset + n > len(data):
            raise ValueError('%s: tensor %s reaches past the end of the file' % (path, name))
        tensors.append((name, dims, kind, data[base + offset:base + offset + n]))
    return kv, tensors


def string(text):
    raw = text if isinstance(text, bytes) else text.encode('utf-8')
    return struct.pack('<Q', len(raw)) + raw


def value(x):
    """(type, raw bytes) of a Python value: bool, int (u32), float (f32), str, or a list of one of
    them (integers as i32)."""
    if isinstance(x, bool):
        return BOOL, struct.pack('<?', x)
    if isinstance(x, int):
        return U32, struct.pack('<I', x)
    if isinstance(x, float):
        return F32, struct.pack('<f', x)
    if isinstance(x, str):
        return STRING, string(x)
    if isinstance(x, list):
        if all(isinstance(e, str) for e in x):
            kind, raw = STRING, b''.join(map(string, x))
        elif all(isinstance(e, bool) for e in x):
            kind, raw = BOOL, struct.pack('<%d?' % len(x), *x)
        elif all(isinstance(e, int) for e in x):
            kind, raw = I32, struct.pack('<%di' % len(x), *x)
        else:
            kind, raw = F32, struct.pack('<%df' % len(x), *x)
        return ARRAY, struct.pack('<IQ', kind, len(x)) + raw
    raise TypeError('no GGUF type for %r' % type(x))


def write(path, kv, tensors):
    parts = [b'GGUF', struct.pack('<IQQ', 3, len(tensors), len(kv))]
    for key, kind, raw in kv:
        parts += [string(key), struct.pack('<I', kind), raw]
    offset = 0
    for name, dims, kind, data in tensors:
        parts += [string(name), struct.pack('<I', len(dims)),
                  struct.pack('<%dQ' % len(dims), *dims), struct.pack('<IQ', kind, offset)]
        offset += -(-len(data) // ALIGNMENT) * ALIGNMENT
    head = b''.join(parts)
    with open(path, 'wb') as f:
        f.write(head + bytes(-len(head) % ALIGNMENT))
        for *_, data in tensors:
            f.write(data)
            f.write(bytes(-len(data) % ALIGNMENT))
