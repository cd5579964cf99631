#!/usr/bin/env python3
"""Writes the first layers of a GGUF model as a model of its own, a draft for `--draft-model` without training. It guesses
poorly (10 of SmolLM2-135M's 30 layers: a twentieth of the time), so it is for tests and for trying out, not for speed.
Tensors are copied as they are. Standard library only.

  tools/cut_model.py model.gguf draft.gguf                # the first third of the layers
  tools/cut_model.py model.gguf draft.gguf --layers 10
  tools/cut_model.py model.gguf other.gguf --alter-vocab  # some token texts change places: for another vocabulary
"""

import argparse
import os
import re
import struct
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_writer as w  # noqa: E402

BYTES = {w.U8: 1, w.I8: 1, w.U16: 2, w.I16: 2, w.U32: 4, w.I32: 4, w.F32: 4, w.BOOL: 1, w.U64: 8, w.I64: 8, w.F64: 8}
INTEGERS = {w.U8: "B", w.I8: "b", w.U16: "H", w.I16: "h", w.U32: "I", w.I32: "i", w.U64: "Q", w.I64: "q"}
LAYER = re.compile(rb"blk\.(\d+)\.")
ALTERED = 8  # pairs of tokens that change places
NORMAL = 1  # type of a token


class Fault(Exception):
    pass


class Reader:
    def __init__(self, path):
        self.path = path
        self.file = open(path, "rb")
        self.size = os.fstat(self.file.fileno()).st_size

    def take(self, length):
        at = self.file.tell()
        if length > self.size - at:
            raise Fault("%s: ends at byte %d, within what begins at %d" % (self.path, self.size, at))
        return self.file.read(length)

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def text(self):
        return self.take(self.number("Q"))

    def value(self, kind, key):
        """An array of texts as (kind, list), every other value as its bytes."""
        if kind == w.STRING:
            return self.text()
        if kind == w.ARRAY:
            elem, count = self.number("I"), self.number("Q")
            if elem == w.STRING:
                if count > self.size:
                    raise Fault("%s: key %s claims %d texts" % (self.path, key, count))
                return elem, [self.text() for _ in range(count)]
            if elem not in BYTES:
                raise Fault("%s: key %s is an array of type %d" % (self.path, key, elem))
            return elem, self.take(count * BYTES[elem])
        if kind not in BYTES:
            raise Fault("%s: key %s has type %d" % (self.path, key, kind))
        return self.take(BYTES[kind])


class Model:
    def __init__(self, path):
        self.path = path
        r = self.reader = Reader(path)
        if r.size < 24 or r.take(4) != b"GGUF":
            raise Fault("%s: is no GGUF file" % path)
        self.version = r.number("I")
        if self.version not in (2, 3):
            raise Fault("%s: GGUF version %d; 2 and 3 are known" % (path, self.version))
        num_tensors, num_keys = r.number("Q"), r.number("Q")
        self.keys = []  # (key, type, value)
        for _ in range(num_keys):
            key, kind = r.text().decode(errors="replace"), r.number("I")
            self.keys.append((key, kind, r.value(kind, key)))
        if self.integer("split.count", 1) > 1:
            raise Fault("%s: is one part of a split model; join the parts first" % path)
        self.tensors = []  # (name, dims, type, offset)
        for _ in range(num_tensors):
            name, rank = r.text(), r.number("I")
            dims = [r.number("Q") for _ in range(min(rank, 5))]
            if rank > 4:
                raise Fault("%s: tensor %s has %d dimensions" % (path, name.decode(errors="replace"), rank))
            self.tensors.append((name, dims, r.number("I"), r.number("Q")))
        self.alignment = self.integer("general.alignment", 32)
        if self.alignment < 1:
            raise Fault("%s: general.alignment is %d" % (path, self.alignment))
        self.data = -(-r.file.tell() // self.alignment) * self.alignment

    def find(self, key):
        return next(((kind, value) for k, kind, value in self.keys if k == key), (None, None))

    def integer(self, key, otherwise=None):
        kind, value = self.find(key)
        if kind in INTEGERS:
            return struct.unpack("<" + INTEGERS[kind], value)[0]
        if kind is None and otherwise is not None:
            return otherwise
        raise Fault("%s: key %s is %s" % (self.path, key, "missing" if kind is None else "no integer"))

    def num_bytes(self, name, dims, kind):
        for type_id, elems, size in w.TYPES.values():
            if type_id == kind:
                count = 1
                for d in dims:
                    count *= d
                return count // elems * size
        raise Fault("%s: tensor %s has type %d, whose size is not known" % (self.path, name.decode(errors="replace"), kind))


def alter(texts, types, path):
    """Swaps neighbouring ordinary tokens here and there: the same texts under other ids, so every merge still has its
    tokens."""
    usable = [i for i in range(0, len(texts) - 1, 2)
              if types is None or types[i] == types[i + 1] == NORMAL]
    if len(usable) < ALTERED:
        raise Fault("%s: --alter-vocab: too few ordinary tokens" % path)
    texts = list(texts)
    for n in range(ALTERED):
        i = usable[(2 * n + 1) * len(usable) // (2 * ALTERED)]
        texts[i], texts[i + 1] = texts[i + 1], texts[i]
    return texts


def encoded(key, kind, value):
    if kind == w.STRING:
        value = w.text(value)
    elif kind == w.ARRAY:
        elem, items = value
        count = len(items) if elem == w.STRING else len(items) // BYTES[elem]
        value = struct.pack("<IQ", elem, count) + (b"".join(map(w.text, items)) if elem == w.STRING else items)
    return w.text(key) + struct.pack("<I", kind) + value


def keys_of(model, layers, alter_vocab):
    kind, arch = model.find("general.architecture")
    if kind != w.STRING:
        raise Fault("%s: key general.architecture is missing" % model.path)
    count_key = arch.decode(errors="replace") + ".block_count"
    total = model.integer(count_key)
    if layers is None:
        layers = -(-total // 3)
    if not 1 <= layers <= total:
        raise Fault("--layers %d: %s has %d" % (layers, model.path, total))
    types = None
    kind, value = model.find("tokenizer.ggml.token_type")
    if kind == w.ARRAY and value[0] == w.I32:
        types = struct.unpack("<%di" % (len(value[1]) // 4), value[1])
    altered = False
    out = []
    for key, kind, value in model.keys:
        if key == count_key:
            value = struct.pack("<" + INTEGERS[kind], layers)
        elif kind == w.ARRAY and alter_vocab and key == "tokenizer.ggml.tokens" and value[0] == w.STRING:
            if types is not None and len(types) != len(value[1]):
                raise Fault("%s: %d tokens but %d token types" % (model.path, len(value[1]), len(types)))
            value = (w.STRING, alter(value[1], types, model.path))
            altered = True
        elif kind == w.ARRAY and value[0] != w.STRING and len(value[1]) == total * BYTES[value[0]] and \
                key.startswith(arch.decode(errors="replace") + "."):
            value = (value[0], value[1][:layers * BYTES[value[0]]])  # one value a layer
        out.append(encoded(key, kind, value))
    if alter_vocab and not altered:
        raise Fault("%s: --alter-vocab: has no tokenizer.ggml.tokens" % model.path)
    return out, layers


def cut(model, out_path, layers, alter_vocab):
    keys, layers = keys_of(model, layers, alter_vocab)
    kept, infos, end = [], [], 0
    for name, dims, kind, offset in model.tensors:
        layer = LAYER.match(name)
        if layer and int(layer.group(1)) >= layers:
            continue
        size = model.num_bytes(name, dims, kind)
        if model.data + offset + size > model.reader.size:
            raise Fault("%s: tensor %s leaves the file" % (model.path, name.decode(errors="replace")))
        at = -(-end // model.alignment) * model.alignment
        infos.append(w.info(name, dims, kind, at))
        kept.append((offset, size, at - end))
        end = at + size
    if os.path.exists(out_path) and os.path.samefile(model.path, out_path):
        raise Fault("%s: would be written over itself" % out_path)
    partial = out_path + ".partial"
    try:
        with open(partial, "wb") as out:
            head = w.assemble(keys, infos, version=model.version, alignment=model.alignment)
            out.write(head)
            for offset, size, gap in kept:
                out.write(b"\0" * gap)
                model.reader.file.seek(model.data + offset)
                while size:
                    piece = model.reader.take(min(size, 1 << 20))
                    out.write(piece)
                    size -= len(piece)
        os.replace(partial, out_path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)
    return layers, len(head) + end


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, metavar="N", help="how many to keep (default: a third)")
    parser.add_argument("--alter-vocab", action="store_true", help="swap some token texts")
    args = parser.parse_args()
    try:
        layers, size = cut(Model(args.model), args.out, args.layers, args.alter_vocab)
    except (Fault, OSError) as error:
        sys.exit("error: %s" % error)
    print("%s: %d layers, %.1f MB" % (args.out, layers, size / 1e6))


if __name__ == "__main__":
    main()
