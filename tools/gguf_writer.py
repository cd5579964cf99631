"""Writes GGUF files: the pieces one by one, so that a test can also write them wrong. Standard library only.

The layout is that of the GGUF specification; quantisation follows ggml's reference formulas in single precision, so
that the same numbers give the same bytes.
"""

import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}

# name: (id in the file, elements a block, bytes a block)
TYPES = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20),
    "Q8_0": (8, 32, 34),
    "BF16": (30, 1, 2),
}


def text(s):
    raw = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, x):
    """The bytes of a value without its type; an array is (element kind, list)."""
    if kind == STRING:
        return text(x)
    if kind == ARRAY:
        elem, items = x
        return struct.pack("<IQ", elem, len(items)) + b"".join(value(elem, item) for item in items)
    return struct.pack("<" + _FORMATS[kind], x)


def kv(key, kind, x):
    return text(key) + struct.pack("<I", kind) + value(kind, x)


def info(name, dims, type_id, offset):
    """A tensor's entry; dims innermost first, as the file has them."""
    return text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack(
        "<IQ", type_id, offset)


def assemble(kvs, infos, data=b"", version=3, alignment=32, num_tensors=None, num_kv=None, magic=b"GGUF"):
    """A file from its pieces; the counts may be given wrong on purpose."""
    head = magic + struct.pack("<IQQ", version, len(infos) if num_tensors is None else num_tensors,
                               len(kvs) if num_kv is None else num_kv)
    out = head + b"".join(kvs) + b"".join(infos)
    if data or infos:
        out += b"\0" * (-len(out) % alignment)
    return out + data


def write(kvs, tensors, alignment=32, version=3):
    """A valid file. tensors: list of (name, dims innermost first, type name, bytes)."""
    infos, data = [], b""
    for name, dims, kind, raw in tensors:
        data += b"\0" * (-len(data) % alignment)
        infos.append(info(name, dims, TYPES[kind][0], len(data)))
        data += raw
    return assemble(kvs, infos, data, version, alignment)


def split(kvs, tensors, parts, alignment=32):
    """The same model as `parts` files: keys and the first tensors in part 1, the rest dealt out in order."""
    out = []
    per_part = -(-len(tensors) // parts)
    for no in range(parts):
        keys = [kv("split.no", U16, no), kv("split.count", U16, parts),
                kv("split.tensors.count", I32, len(tensors))]
        own = tensors[no * per_part:(no + 1) * per_part]
        out.append(write((list(kvs) if no == 0 else []) + keys, own, alignment))
    return out


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16(x):
    bits, = struct.unpack("<I", struct.pack("<f", x))
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def _nibbles(q):
    return bytes(q[j] | q[j + 16] << 4 for j in range(16))


def _q4_0(x):
    peak = max(x, key=abs)  # with its sign; the first of equals, as in ggml
    d = f32(peak / -8)
    inverse = f32(1 / d) if d else 0.0
    q = [min(15, int(f32(f32(v * inverse) + 8.5))) for v in x]
    return struct.pack("<e", d) + _nibbles(q)


def _q4_1(x):
    low, high = min(x), max(x)
    d = f32(f32(high - low) / 15)
    inverse = f32(1 / d) if d else 0.0
    q = [min(15, int(f32(f32(f32(v - low) * inverse) + 0.5))) for v in x]
    return struct.pack("<ee", d, low) + _nibbles(q)


def _q8_0(x):
    d = f32(max(abs(v) for v in x) / 127)
    inverse = f32(1 / d) if d else 0.0

    def nearest(v):  # C's roundf: halves away from zero
        return int(v + 0.5) if v >= 0 else -int(-v + 0.5)

    return struct.pack("<e32b", d, *(nearest(f32(v * inverse)) for v in x))


_BLOCKS = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0}


def encode(values, kind):
    """A row-major list of numbers as tensor bytes of type `kind`; rows must be multiples of the block."""
    values = [f32(v) for v in values]
    if kind == "F32":
        return struct.pack("<%df" % len(values), *values)
    if kind == "F16":
        return struct.pack("<%de" % len(values), *values)
    if kind == "BF16":
        return b"".join(bf16(v) for v in values)
    if len(values) % 32:
        raise ValueError("%d elements are no multiple of %s's block of 32" % (len(values), kind))
    return b"".join(_BLOCKS[kind](values[i:i + 32]) for i in range(0, len(values), 32))
