"""Writes GGUF files: the pieces one by one, so that a test can also write them wrong. Standard library only.

The layout is that of the GGUF specification. For blocks of 32 quantisation follows ggml's reference formulas in single
precision, so that the same numbers give the same bytes; for superblocks it is a plain rounding, without ggml's search
for better scales.
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
    "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34),
    "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
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


def _high_bits(q):
    return struct.pack("<I", sum((v >> 4) << j for j, v in enumerate(q)))


def _low_nibbles(q):
    return _nibbles([v & 15 for v in q])


def _q5_0(x):
    peak = max(x, key=abs)
    d = f32(peak / -16)
    inverse = f32(1 / d) if d else 0.0
    q = [min(31, int(f32(f32(v * inverse) + 16.5))) for v in x]
    return struct.pack("<e", d) + _high_bits(q) + _low_nibbles(q)


def _q5_1(x):
    low, high = min(x), max(x)
    d = f32(f32(high - low) / 31)
    inverse = f32(1 / d) if d else 0.0
    q = [min(31, int(f32(f32(f32(v - low) * inverse) + 0.5))) for v in x]
    return struct.pack("<ee", d, low) + _high_bits(q) + _low_nibbles(q)


def _q8_0(x):
    d = f32(max(abs(v) for v in x) / 127)
    inverse = f32(1 / d) if d else 0.0

    def nearest(v):  # C's roundf: halves away from zero
        return int(v + 0.5) if v >= 0 else -int(-v + 0.5)

    return struct.pack("<e32b", d, *(nearest(f32(v * inverse)) for v in x))


def _f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def _nearest(x, low, high):
    return max(low, min(high, round(x)))


def _scaled_by(d, wanted, low, high):
    """Integers whose product with d comes near `wanted`."""
    return [_nearest(v / d, low, high) if d else 0 for v in wanted]


def _six_bits(scales, mins):
    """Eight scales and eight minima of 6 bits in 12 bytes: the upper two bits of the last four of each stand above the
    first four."""
    out = [scales[b] | scales[b + 4] >> 4 << 6 for b in range(4)]
    out += [mins[b] | mins[b + 4] >> 4 << 6 for b in range(4)]
    out += [(scales[b + 4] & 15) | (mins[b + 4] & 15) << 4 for b in range(4)]
    return bytes(out)


def _with_minima(x, most):
    """The head of a Q4_K or Q5_K superblock, and its eight blocks of integers up to `most`."""
    blocks = [x[i:i + 32] for i in range(0, 256, 32)]
    lows = [max(0.0, -min(b)) for b in blocks]
    steps = [(max(b) + low) / most if max(b) + low > 0 else 0.0 for b, low in zip(blocks, lows)]
    d, dmin = _f16(max(steps) / 63), _f16(max(lows) / 63)
    scales, mins = _scaled_by(d, steps, 0, 63), _scaled_by(dmin, lows, 0, 63)
    quants = []
    for block, scale, low in zip(blocks, scales, mins):
        step = d * scale
        quants.append([_nearest((v + dmin * low) / step, 0, most) if step else 0 for v in block])
    return struct.pack("<ee", d, dmin) + _six_bits(scales, mins), quants


def _paired_nibbles(quants):
    """Two blocks share 32 bytes: the first of them has the low nibbles."""
    return bytes((a & 15) | (b & 15) << 4 for i in range(0, 8, 2) for a, b in zip(quants[i], quants[i + 1]))


def _q4_k(x):
    head, quants = _with_minima(x, 15)
    return head + _paired_nibbles(quants)


def _q5_k(x):
    head, quants = _with_minima(x, 31)
    high = bytes(sum((quants[b][j] >> 4) << b for b in range(8)) for j in range(32))
    return head + high + _paired_nibbles(quants)


def _q6_k(x):
    parts = [x[i:i + 16] for i in range(0, 256, 16)]
    steps = [max(p, key=abs) / -32 for p in parts]
    d = _f16(max(steps, key=abs) / -128)
    scales = _scaled_by(d, steps, -128, 127)
    q = []
    for part, scale in zip(parts, scales):
        step = d * scale
        q += [_nearest(v / step, -32, 31) + 32 if step else 32 for v in part]
    low, high = b"", b""
    for half in (q[:128], q[128:]):
        a, b, c, e = (half[i:i + 32] for i in range(0, 128, 32))
        low += bytes((v & 15) | (u & 15) << 4 for v, u in zip(a, c)) + bytes((v & 15) | (u & 15) << 4 for v, u in zip(b, e))
        high += bytes(v[0] >> 4 | v[1] >> 4 << 2 | v[2] >> 4 << 4 | v[3] >> 4 << 6 for v in zip(a, b, c, e))
    return low + high + struct.pack("<16be", *scales, d)


_BLOCKS = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0, "Q4_K": _q4_k, "Q5_K": _q5_k,
           "Q6_K": _q6_k}


def encode(values, kind):
    """A row-major list of numbers as tensor bytes of type `kind`; rows must be multiples of the block."""
    values = [f32(v) for v in values]
    if kind == "F32":
        return struct.pack("<%df" % len(values), *values)
    if kind == "F16":
        return struct.pack("<%de" % len(values), *values)
    if kind == "BF16":
        return b"".join(bf16(v) for v in values)
    elems = TYPES[kind][1]
    if len(values) % elems:
        raise ValueError("%d elements are no multiple of %s's block of %d" % (len(values), kind, elems))
    return b"".join(_BLOCKS[kind](values[i:i + elems]) for i in range(0, len(values), elems))
