#!/usr/bin/env python3
"""A forward pass (llama, qwen2, qwen3) in numpy float64, straight from a GGUF file: the accuracy oracle.

It shares no code and no order of addition with Lockstep, and none with transformers: weights are
dequantised by the `gguf` package, activations are never quantised, and rope turns the pairs that GGUF files of
the architecture store: adjacent ones for llama, halves for the others. So it tells what the *weights in the file* mean; what an
engine adds to that (int8 activations, an fp16 kv cache, fp32 sums) is the engine's own error.

Input: a list of token ids, as JSON: [1, 2, 3] or {"ids": [...]} or {"tokens": [...]}.
Output: --json FILE   {"ids", "logprob", "argmax"}: entry i of the last two is about ids[i + 1], given
                      ids[0..i]; so they are one shorter than ids (tools/perplexity_compare.py reads it)
        --logits FILE raw little-endian float32, [tokens][vocabulary]

--kv f16 and --int8-activations add one such error each, to see how much of a difference it explains.

Needs: numpy, gguf.  Example:
  tools/reference_forward_numpy.py -m model.gguf --ids ids.json --json reference.json
"""
import argparse
import json
import math
import sys
from pathlib import Path

try:
    import gguf
    import numpy as np
except ImportError as error:
    sys.exit(f"error: {error}; install numpy and gguf (pip install numpy gguf)")


class ModelError(Exception):
    """The file is not something this oracle can run; the message says why."""


class GgufModel:
    """Reads keys and tensors of a GGUF. Tensors are dequantised when asked for, not before."""

    def __init__(self, path, kv_dtype=np.float64, int8_activations=False):
        self.path = str(path)
        self.kv_dtype = kv_dtype
        self.activation = int8_blocks if int8_activations else (lambda x: x)
        try:
            self.reader = gguf.GGUFReader(self.path)
        except (OSError, ValueError, IndexError) as error:
            raise ModelError(f"{path}: not readable as GGUF: {error}") from error
        self.tensors = {t.name: t for t in self.reader.tensors}
        arch = self.arch = self.key("general.architecture")
        if arch not in ("llama", "qwen2", "qwen3"):
            raise ModelError(f"{path}: architecture is {arch!r}, this oracle knows llama, qwen2 and qwen3")
        self.layers = self.key(f"{arch}.block_count")
        self.dim = self.key(f"{arch}.embedding_length")
        self.heads = self.key(f"{arch}.attention.head_count")
        self.kv_heads = self.key(f"{arch}.attention.head_count_kv", self.heads)
        self.head_dim = self.key(f"{arch}.attention.key_length", self.dim // self.heads)
        self.rope_dim = self.key(f"{arch}.rope.dimension_count", self.head_dim)
        self.theta = self.key(f"{arch}.rope.freq_base", 10000.0)
        self.eps = self.key(f"{arch}.attention.layer_norm_rms_epsilon")
        self.vocab = int(self.tensors["token_embd.weight"].shape[1])
        scaling = self.key(f"{arch}.rope.scaling.type", "none")
        if scaling not in ("none", ""):
            raise ModelError(f"{path}: rope scaling {scaling!r} is not supported (rope_freqs.weight is)")

    def key(self, name, default=None):
        field = self.reader.get_field(name)
        if field is None:
            if default is None:
                raise ModelError(f"{self.path}: key {name} is missing")
            return default
        return field.contents()

    def has(self, name):
        return name in self.tensors

    def weight(self, name):
        """The tensor as float64, [outputs][inputs]."""
        if name not in self.tensors:
            raise ModelError(f"{self.path}: tensor {name} is missing")
        tensor = self.tensors[name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return np.asarray(values, dtype=np.float64).reshape([int(d) for d in reversed(tensor.shape)])


def int8_blocks(x):
    """x as an engine with int8 activations sees it: blocks of 32 with a scale each, nearest even."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / 127.0
    scale[scale == 0] = 1.0
    return (np.rint(blocks / scale) * scale).reshape(x.shape)


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rope_tables(model, tokens):
    """cos and sin of each position and pair: [tokens][rope_dim / 2]."""
    pair = np.arange(model.rope_dim // 2, dtype=np.float64)
    freq = float(model.theta) ** (-2.0 * pair / model.rope_dim)
    if model.has("rope_freqs.weight"):
        freq = freq / model.weight("rope_freqs.weight")
    angle = np.arange(tokens, dtype=np.float64)[:, None] * freq[None, :]
    return np.cos(angle), np.sin(angle)


def rope(model, x, cos, sin):
    """x is [tokens][heads][head_dim]; turns pairs of the first rope_dim values: (0, 1), (2, 3), ... of llama, else
    (0, half), (1, half + 1), ..."""
    half = cos.shape[1]
    first, second = slice(0, half), slice(half, 2 * half)
    if model.arch == "llama":
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    a, b = x[..., first], x[..., second]
    c, s = cos[:, None, :], sin[:, None, :]
    out = x.copy()
    out[..., first] = a * c - b * s
    out[..., second] = a * s + b * c
    return out


def attention(model, q, k, v):
    """Causal attention of all tokens, head by head (so memory stays at tokens x tokens)."""
    tokens = q.shape[0]
    group = model.heads // model.kv_heads
    hidden = np.triu(np.ones((tokens, tokens), dtype=bool), 1)
    out = np.empty_like(q)
    for head in range(model.heads):
        score = q[:, head] @ k[:, head // group].T / math.sqrt(model.head_dim)
        score[hidden] = -np.inf
        score -= score.max(axis=1, keepdims=True)
        np.exp(score, out=score)
        score /= score.sum(axis=1, keepdims=True)
        out[:, head] = score @ v[:, head // group]
    return out.reshape(tokens, model.heads * model.head_dim)


def hidden_states(model, ids, progress=lambda done, total: None):
    """Final normed hidden state of every token: [tokens][dim], float64."""
    ids = np.asarray(ids, dtype=np.int64)
    if ids.size == 0 or ids.min() < 0 or ids.max() >= model.vocab:
        raise ModelError(f"token ids must be in 0..{model.vocab - 1} and at least one")
    x = model.weight("token_embd.weight")[ids]
    cos, sin = rope_tables(model, len(ids))
    for layer in range(model.layers):
        def w(name):
            return model.weight(f"blk.{layer}.{name}.weight")
        n = model.activation(rms_norm(x, w("attn_norm"), model.eps))

        def project(part, heads):
            y = n @ w(part).T
            if model.arch == "qwen2":
                y = y + model.weight(f"blk.{layer}.{part}.bias")
            y = y.reshape(len(ids), heads, model.head_dim)
            if model.arch == "qwen3" and part != "attn_v":
                y = rms_norm(y, w(part + "_norm"), model.eps)
            return y
        q = rope(model, project("attn_q", model.heads), cos, sin)
        k = rope(model, project("attn_k", model.kv_heads), cos, sin)
        v = project("attn_v", model.kv_heads)
        k, v = (t.astype(model.kv_dtype).astype(np.float64) for t in (k, v))
        x = x + model.activation(attention(model, q, k, v)) @ w("attn_output").T
        n = model.activation(rms_norm(x, w("ffn_norm"), model.eps))
        gate = n @ w("ffn_gate").T
        x = x + model.activation(gate / (1.0 + np.exp(-gate)) * (n @ w("ffn_up").T)) @ w("ffn_down").T
        progress(layer + 1, model.layers)
    return rms_norm(x, model.weight("output_norm.weight"), model.eps)


def logits_in_blocks(model, ids, rows=128, progress=lambda done, total: None):
    """Yields (first row, logits [rows][vocabulary] float64): all logits of a long text do not fit in memory."""
    hidden = model.activation(hidden_states(model, ids, progress))
    head = model.weight("output.weight" if model.has("output.weight") else "token_embd.weight")
    for first in range(0, len(ids), rows):
        yield first, hidden[first:first + rows] @ head.T


def forward(model, ids):
    """All logits, [tokens][vocabulary], float64."""
    return np.concatenate([block for _, block in logits_in_blocks(model, ids)])


def read_ids(path):
    try:
        data = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not a JSON list of ids: {error}") from error
    if isinstance(data, dict):
        data = data.get("ids", data.get("tokens"))
    if not isinstance(data, list) or not all(isinstance(i, int) for i in data):
        raise ModelError(f'{path}: want [1, 2, ...], or an object with such a list under "ids" or "tokens"')
    return data


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, metavar="GGUF")
    parser.add_argument("--ids", required=True, metavar="JSON", help="token ids")
    parser.add_argument("-n", "--tokens", type=int, metavar="N", help="use only the first N ids")
    parser.add_argument("--json", metavar="FILE", help="write ids, logprob, argmax here")
    parser.add_argument("--logits", metavar="FILE", help="write all logits here as raw float32")
    parser.add_argument("--kv", choices=["f64", "f16"], default="f64", help="round the kv cache to this type")
    parser.add_argument("--int8-activations", action="store_true",
                        help="quantise the input of every matmul to int8 in blocks of 32")
    args = parser.parse_args()
    show = sys.stderr.isatty()
    try:
        model = GgufModel(args.model, np.float16 if args.kv == "f16" else np.float64, args.int8_activations)
        ids = read_ids(args.ids)[:args.tokens]
        logprob, argmax = [], []
        raw = open(args.logits, "wb") if args.logits else None
        for first, block in logits_in_blocks(
                model, ids, progress=lambda d, t: show and print(f"\rlayer {d}/{t}", end="", file=sys.stderr)):
            if raw:
                raw.write(block.astype("<f4").tobytes())
            peak = block.max(axis=1)
            log_sum = peak + np.log(np.exp(block - peak[:, None]).sum(axis=1))
            for row in range(len(block)):
                if first + row + 1 < len(ids):
                    logprob.append(float(block[row, ids[first + row + 1]] - log_sum[row]))
                    argmax.append(int(block[row].argmax()))
        if raw:
            raw.close()
        if show:
            print(file=sys.stderr)
    except (ModelError, OSError) as error:
        sys.exit(f"error: {error}")
    if args.json:
        Path(args.json).write_text(json.dumps({"ids": ids, "logprob": logprob, "argmax": argmax}) + "\n")
    if logprob:
        hits = sum(a == b for a, b in zip(argmax, ids[1:]))
        print(f"tokens {len(ids)}  perplexity {math.exp(-sum(logprob) / len(logprob)):.4f}  "
              f"next token is the argmax: {hits}/{len(logprob)}")


if __name__ == "__main__":
    main()
