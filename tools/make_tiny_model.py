#!/usr/bin/env python3
"""Writes a tiny, valid, seeded random model (llama, qwen2, qwen3) as GGUF, for tests. Standard library only; the same
arguments give the same bytes on every machine.

  tools/make_tiny_model.py tiny.gguf --heads 4 --kv-heads 2 --dtype Q4_1
  tools/make_tiny_model.py tiny.gguf --split 3        # tiny-00001-of-00003.gguf ...
  tools/make_tiny_model.py tiny.gguf --arch qwen3 --head-dim 32
  tools/make_tiny_model.py tiny.gguf --hidden 256 --ffn 512 --heads 8 --head-dim 32 --dtype Q4_K_M

From Python: build(Tiny(...)) returns (keys, tensors) for gguf_writer.write and gguf_writer.split.
"""

import argparse
import dataclasses
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_writer as w  # noqa: E402

CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Each merge builds on bytes or on earlier ones; the space is written as the byte-level alphabet's letter for it.
MERGES = [
    "\u0120 t", "h e", "\u0120 a", "i n", "\u0120t he", "r e", "o n", "e r", "\u0120 s", "a t", "n d", "o u",
    "\u0120a nd", "l l", "\u0120 w", "i s", "e n", "i t", "o r", "in g", "\u0120 c", "l o", "h i", "he ll", "hell o"
]
CHAT_TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
                 "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
                 "{% endif %}")


# Mixes as published files have them: (most tensors, those that decide most about the error). A row that holds no whole
# superblock takes the type behind it.
MIXES = {"Q4_K_M": ("Q4_K", "Q6_K"), "Q5_K_M": ("Q5_K", "Q6_K")}
FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


@dataclasses.dataclass
class Tiny:
    seed: int = 0
    layers: int = 2
    hidden: int = 64  # D
    ffn: int = 128  # F
    heads: int = 4  # H
    kv_heads: int = 2  # K
    head_dim: int = 16  # Dh
    vocab: int = 320  # V
    context: int = 256
    dtype: str = "F32"  # of the matrices, or a mix
    embd_dtype: str = ""  # of token_embd and output; empty: dtype
    tied: bool = True
    tokenizer: bool = True  # False: no vocabulary, only its size
    eps: float = 1e-5
    theta: float = 10000.0
    rope_freqs: bool = False  # Llama 3 frequency factors
    name: str = "tiny"
    arch: str = "llama"  # or qwen2 (biases on q, k, v), qwen3 (norms of heads)


def byte_alphabet():
    """The 256 letters of byte-level BPE: printable bytes stand for themselves, the others for U+0100 upward."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, extra = [], 0
    for b in range(256):
        if b in plain:
            letters.append(chr(b))
        else:
            letters.append(chr(0x100 + extra))
            extra += 1
    return letters


def tokenizer_keys(vocab):
    tokens = CONTROL_TOKENS + byte_alphabet() + [m.replace(" ", "") for m in MERGES]
    kinds = [3] * len(CONTROL_TOKENS) + [1] * (len(tokens) - len(CONTROL_TOKENS))
    if vocab < len(tokens):
        raise ValueError("vocab %d is below the %d tokens that a vocabulary needs" % (vocab, len(tokens)))
    while len(tokens) < vocab:
        tokens.append("[UNUSED_%d]" % len(tokens))
        kinds.append(5)
    return [
        w.kv("tokenizer.ggml.model", w.STRING, "gpt2"),
        w.kv("tokenizer.ggml.pre", w.STRING, "smollm"),
        w.kv("tokenizer.ggml.tokens", w.ARRAY, (w.STRING, tokens)),
        w.kv("tokenizer.ggml.token_type", w.ARRAY, (w.I32, kinds)),
        w.kv("tokenizer.ggml.merges", w.ARRAY, (w.STRING, MERGES)),
        w.kv("tokenizer.ggml.bos_token_id", w.U32, 1),
        w.kv("tokenizer.ggml.eos_token_id", w.U32, 2),
        w.kv("tokenizer.ggml.unknown_token_id", w.U32, 0),
        w.kv("tokenizer.ggml.add_bos_token", w.BOOL, 0),
        w.kv("tokenizer.chat_template", w.STRING, CHAT_TEMPLATE),
    ]


def build(t):
    """(keys, tensors) of the model `t`."""
    if t.arch not in ("llama", "qwen2", "qwen3"):
        raise ValueError("arch %s is not llama, qwen2 or qwen3" % t.arch)
    rng = random.Random(t.seed)

    def normal(scale, mean=0.0):
        # Sum of four uniforms: near enough to normal, and free of libm, whose last bits differ between machines.
        return mean + scale * 1.7320508075688772 * (rng.random() + rng.random() + rng.random() + rng.random() - 2)

    q, kv_width = t.heads * t.head_dim, t.kv_heads * t.head_dim
    kind_of_most, kind_of_some = MIXES.get(t.dtype, (t.dtype, t.dtype))
    head_kind = t.embd_dtype or kind_of_some
    tensors = []

    def matrix(name, rows, cols, kind=None, scale=None):
        kind = kind or kind_of_most
        if t.dtype in MIXES and cols % 256:
            kind = FALLBACK.get(kind, kind)
        if cols % w.TYPES[kind][1]:
            raise ValueError("%s: row of %d is no multiple of %s's block" % (name, cols, kind))
        values = [normal(scale or cols**-0.5) for _ in range(rows * cols)]
        tensors.append((name, [cols, rows], kind, w.encode(values, kind)))

    def vector(name, count, scale, mean):
        tensors.append((name, [count], "F32", w.encode([normal(scale, mean) for _ in range(count)], "F32")))

    def norm(name, count=t.hidden):
        vector(name, count, 0.1, 1.0)

    matrix("token_embd.weight", t.vocab, t.hidden, head_kind, 1.0)
    if t.rope_freqs:
        factors = [1.0 if i < t.head_dim // 4 else 8.0 for i in range(t.head_dim // 2)]
        tensors.append(("rope_freqs.weight", [t.head_dim // 2], "F32", w.encode(factors, "F32")))
    for i in range(t.layers):
        blk = "blk.%d." % i
        norm(blk + "attn_norm.weight")
        matrix(blk + "attn_q.weight", q, t.hidden)
        matrix(blk + "attn_k.weight", kv_width, t.hidden)
        matrix(blk + "attn_v.weight", kv_width, t.hidden, kind_of_some)
        if t.arch == "qwen2":
            for part, count in (("q", q), ("k", kv_width), ("v", kv_width)):
                vector(blk + "attn_%s.bias" % part, count, 0.5, 0.0)
        if t.arch == "qwen3":
            norm(blk + "attn_q_norm.weight", t.head_dim)
            norm(blk + "attn_k_norm.weight", t.head_dim)
        matrix(blk + "attn_output.weight", t.hidden, q)
        norm(blk + "ffn_norm.weight")
        matrix(blk + "ffn_gate.weight", t.ffn, t.hidden)
        matrix(blk + "ffn_up.weight", t.ffn, t.hidden)
        matrix(blk + "ffn_down.weight", t.hidden, t.ffn, kind_of_some)
    norm("output_norm.weight")
    if not t.tied:
        matrix("output.weight", t.vocab, t.hidden, head_kind, 1.0)

    keys = [
        w.kv("general.architecture", w.STRING, t.arch),
        w.kv("general.name", w.STRING, t.name),
        w.kv(t.arch + ".block_count", w.U32, t.layers),
        w.kv(t.arch + ".context_length", w.U32, t.context),
        w.kv(t.arch + ".embedding_length", w.U32, t.hidden),
        w.kv(t.arch + ".feed_forward_length", w.U32, t.ffn),
        w.kv(t.arch + ".attention.head_count", w.U32, t.heads),
        w.kv(t.arch + ".attention.head_count_kv", w.U32, t.kv_heads),
        w.kv(t.arch + ".attention.layer_norm_rms_epsilon", w.F32, t.eps),
        w.kv(t.arch + ".rope.freq_base", w.F32, t.theta),
        w.kv(t.arch + ".rope.dimension_count", w.U32, t.head_dim),
        w.kv(t.arch + ".vocab_size", w.U32, t.vocab),
    ]
    if t.heads * t.head_dim != t.hidden:
        keys.append(w.kv(t.arch + ".attention.key_length", w.U32, t.head_dim))
        keys.append(w.kv(t.arch + ".attention.value_length", w.U32, t.head_dim))
    if t.tokenizer:
        keys += tokenizer_keys(t.vocab)
    return keys, tensors


def main():
    parser = argparse.ArgumentParser(description="Write a tiny random model as GGUF.")
    parser.add_argument("out", help="the file; with --split its name without the part numbers")
    for field in dataclasses.fields(Tiny):
        flag = "--" + field.name.replace("_", "-")
        if field.type in (bool, "bool"):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=field.default)
        elif "dtype" in field.name:
            more = sorted(MIXES) if field.name == "dtype" else [""]
            parser.add_argument(flag, choices=sorted(w.TYPES) + more, default=field.default)
        else:
            parser.add_argument(flag, type=type(field.default), default=field.default)
    parser.add_argument("--split", type=int, default=1, help="write this many parts")
    args = vars(parser.parse_args())
    out, parts = args.pop("out"), args.pop("split")
    try:
        keys, tensors = build(Tiny(**args))
    except ValueError as error:
        sys.exit("make_tiny_model: %s" % error)
    if parts <= 1:
        files = {out: w.write(keys, tensors)}
    else:
        stem = out[:-5] if out.endswith(".gguf") else out
        files = {"%s-%05d-of-%05d.gguf" % (stem, i + 1, parts): raw
                 for i, raw in enumerate(w.split(keys, tensors, parts))}
    for path, raw in files.items():
        with open(path, "wb") as f:
            f.write(raw)


if __name__ == "__main__":
    main()
