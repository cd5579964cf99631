#!/usr/bin/env python3
"""Writes a random llama model of middle size as GGUF in F16, with the first part of a real file's vocabulary, so that
both this engine and others load it and tokenize. For speed, not for sense: its widths are multiples of 256, as K-quants
want them, which SmolLM2's are not. Standard library only; the same arguments give the same bytes.

  tools/make_mid_model.py models/mid.gguf --tokenizer models/SmolLM2-135M-Instruct.Q4_1.gguf
"""
import argparse
import os
import random
import statistics
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_writer as w  # noqa: E402

FORMATS = {w.U8: "B", w.I8: "b", w.U16: "H", w.I16: "h", w.U32: "I", w.I32: "i", w.F32: "f", w.BOOL: "?", w.U64: "Q",
           w.I64: "q", w.F64: "d"}


class Reader:
    """The keys of a GGUF file, in order; no tensor is read."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.file, self.keys = f, {}
            try:
                self.read_keys(path)
            except struct.error as error:
                raise ValueError("%s: ends within its keys" % path) from error

    def read_keys(self, path):
        if self.file.read(4) != b"GGUF" or self.one(w.U32) not in (2, 3):
            raise ValueError("%s: no GGUF file of version 2 or 3" % path)
        self.one(w.U64)  # number of tensors
        for _ in range(self.one(w.U64)):
            name = self.one(w.STRING).decode()
            kind = self.one(w.U32)
            self.keys[name] = (kind, self.one(kind))

    def one(self, kind):
        if kind == w.STRING:
            return self.file.read(self.one(w.U64))
        if kind == w.ARRAY:
            inner, count = self.one(w.U32), self.one(w.U64)
            return inner, [self.one(inner) for _ in range(count)]
        form = "<" + FORMATS[kind]
        return struct.unpack(form, self.file.read(struct.calcsize(form)))[0]


def cut_tokenizer(keys, vocab):
    """The tokenizer's keys with the first `vocab` tokens and the merges that need no other."""
    if "tokenizer.ggml.tokens" not in keys:
        raise ValueError("the file has no tokenizer.ggml.tokens")
    tokens = keys["tokenizer.ggml.tokens"][1][1][:vocab]
    if len(tokens) < vocab:
        raise ValueError("the tokenizer has %d tokens, %d wanted" % (len(tokens), vocab))
    known = set(tokens)
    out = []
    for name, (kind, value) in keys.items():
        if not name.startswith("tokenizer."):
            continue
        if name == "tokenizer.ggml.merges":
            value = (value[0], [m for m in value[1] if set(m.split(b" ")) <= known and m.replace(b" ", b"") in known])
        elif kind == w.ARRAY and len(value[1]) >= vocab:
            value = (value[0], value[1][:vocab])
        elif name.endswith("_token_id") and value >= vocab:
            continue
        out.append(w.kv(name, kind, value))
    return out


def f16_noise(rng, count, scale):
    """`count` values near a normal distribution, as F16. The high byte (sign, exponent, two bits of mantissa) is
    looked up by a random byte, so that the 256 quantiles come equally often; the low byte, the rest of the mantissa, is
    random."""
    normal = statistics.NormalDist(0, scale)
    high = bytes(struct.pack("<e", normal.inv_cdf((i + 0.5) / 256))[1] for i in range(256))
    raw = bytearray(2 * count)
    raw[0::2] = rng.randbytes(count)
    raw[1::2] = rng.randbytes(count).translate(high)
    return raw


def tensors_of(args):
    """(name, dims innermost first, type, number of elements, scale or None for a norm's ones)."""
    d, f, q, kv = args.hidden, args.ffn, args.heads * args.head_dim, args.kv_heads * args.head_dim
    def matrix(name, rows, cols, scale=None):
        return name, [cols, rows], "F16", rows * cols, scale or cols**-0.5
    yield matrix("token_embd.weight", args.vocab, d, 0.05)
    for i in range(args.layers):
        blk = "blk.%d." % i
        yield blk + "attn_norm.weight", [d], "F32", d, None
        yield matrix(blk + "attn_q.weight", q, d)
        yield matrix(blk + "attn_k.weight", kv, d)
        yield matrix(blk + "attn_v.weight", kv, d)
        yield matrix(blk + "attn_output.weight", d, q)
        yield blk + "ffn_norm.weight", [d], "F32", d, None
        yield matrix(blk + "ffn_gate.weight", f, d)
        yield matrix(blk + "ffn_up.weight", f, d)
        yield matrix(blk + "ffn_down.weight", d, f)
    yield "output_norm.weight", [d], "F32", d, None


def write(args):
    keys = [
        w.kv("general.architecture", w.STRING, "llama"),
        w.kv("general.name", w.STRING, "generated"),
        w.kv("llama.block_count", w.U32, args.layers),
        w.kv("llama.context_length", w.U32, args.context),
        w.kv("llama.embedding_length", w.U32, args.hidden),
        w.kv("llama.feed_forward_length", w.U32, args.ffn),
        w.kv("llama.attention.head_count", w.U32, args.heads),
        w.kv("llama.attention.head_count_kv", w.U32, args.kv_heads),
        w.kv("llama.attention.layer_norm_rms_epsilon", w.F32, 1e-5),
        w.kv("llama.rope.freq_base", w.F32, 10000.0),
        w.kv("llama.rope.dimension_count", w.U32, args.head_dim),
        w.kv("llama.vocab_size", w.U32, args.vocab),
    ]
    if args.heads * args.head_dim != args.hidden:
        keys += [w.kv("llama.attention.key_length", w.U32, args.head_dim),
                 w.kv("llama.attention.value_length", w.U32, args.head_dim)]
    keys += cut_tokenizer(Reader(args.tokenizer).keys, args.vocab)
    infos, offset, tensors = [], 0, list(tensors_of(args))
    for name, dims, kind, count, _ in tensors:
        infos.append(w.info(name, dims, w.TYPES[kind][0], offset))
        offset += count * w.TYPES[kind][2]
        offset += -offset % 32
    rng = random.Random(args.seed)
    part = args.out + ".part"
    with open(part, "wb") as f:  # tensor by tensor: the whole need not fit into memory twice
        f.write(w.assemble(keys, infos))
        for _, _, _, count, scale in tensors:
            f.write(struct.pack("<%df" % count, *[1.0] * count) if scale is None else f16_noise(rng, count, scale))
            f.write(b"\0" * (-f.tell() % 32))
    os.replace(part, args.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--tokenizer", required=True, metavar="GGUF", help="file whose vocabulary is taken")
    for name, default in (("vocab", 8192), ("layers", 12), ("hidden", 1024), ("ffn", 3072), ("heads", 16),
                          ("kv-heads", 4), ("head-dim", 64), ("context", 4096), ("seed", 0)):
        parser.add_argument("--" + name, type=int, default=default)
    args = parser.parse_args()
    try:
        write(args)
    except (OSError, ValueError, KeyError, struct.error) as error:
        sys.exit("make_mid_model: %s" % error)


if __name__ == "__main__":
    main()
