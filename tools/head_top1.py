#!/usr/bin/env python3
"""Compares a head's likeliest tokens in Lockstep with those of the published forward pass in PyTorch, on the same taps.

    build/head_acceptance -m MODEL --texts TEXTS --draft-quantization none --dump dump.bin
    tools/head_top1.py --head drafts/smollm2-135m-eagle3 --model MODEL dump.bin

The dump is described in bench/head_acceptance.cc. float32 all the way; the head's tensors as in its folder, the embedding
the model's. Prints the share of places with the same token. Needs: torch, safetensors, numpy.
"""
import argparse
import json
import sys
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file

from eagle3_gguf import Gguf


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, positions, theta):
    half = x.shape[-1] // 2
    angle = positions[:, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angle.cos().float()[:, None], angle.sin().float()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def forward(t, config, embedding, tokens, taps):
    """Logits [n, Vd] of pairs of tokens and taps, each seeing those before it."""
    eps, heads, kv = config["rms_norm_eps"], config["num_attention_heads"], config["num_key_value_heads"]
    dh, n = config["head_dim"], len(tokens)
    g = taps @ t["fc.weight"].T
    x = torch.cat((rms(embedding[tokens], t["midlayer.input_layernorm.weight"], eps),
                   rms(g, t["midlayer.hidden_norm.weight"], eps)), -1)
    attention = "midlayer.self_attn."
    positions = torch.arange(n, dtype=torch.float64)
    q = rotate((x @ t[attention + "q_proj.weight"].T).view(n, heads, dh), positions, config["rope_theta"])
    k = rotate((x @ t[attention + "k_proj.weight"].T).view(n, kv, dh), positions, config["rope_theta"])
    v = (x @ t[attention + "v_proj.weight"].T).view(n, kv, dh)
    k, v = (y.repeat_interleave(heads // kv, 1) for y in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q, k) / dh ** 0.5
    scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
    h = g + torch.einsum("hij,jhd->ihd", scores, v).reshape(n, heads * dh) @ t[attention + "o_proj.weight"].T
    y = rms(h, t["midlayer.post_attention_layernorm.weight"], eps)
    gated = torch.nn.functional.silu(y @ t["midlayer.mlp.gate_proj.weight"].T) * (y @ t["midlayer.mlp.up_proj.weight"].T)
    h = h + gated @ t["midlayer.mlp.down_proj.weight"].T
    return rms(h, t["norm.weight"], eps) @ t["lm_head.weight"].T


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--head", required=True, type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("dump", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(2)
    config = json.loads((args.head / "config.json").read_text())
    tensors = {}
    for shard in sorted(args.head.glob("*.safetensors")):
        tensors.update(load_file(shard))
    d2t = tensors.pop("d2t")
    tensors = {name: x.float() for name, x in tensors.items() if x.is_floating_point()}
    target_of = torch.arange(len(d2t)) + d2t
    embedding = Gguf(args.model).tensor("token_embd.weight")
    data = args.dump.read_bytes()
    width = 3 * config["hidden_size"]
    at = same = places = texts = 0
    with torch.no_grad():
        while at < len(data):
            n = int(numpy.frombuffer(data, numpy.int32, 1, at)[0])
            tokens = numpy.frombuffer(data, numpy.int32, n, at + 4)
            taps = numpy.frombuffer(data, numpy.float32, n * width, at + 4 + 4 * n).reshape(n, width)
            theirs = numpy.frombuffer(data, numpy.int32, n, at + 4 + 4 * n * (1 + width))
            at += 4 + 4 * n * (2 + width)
            logits = forward(tensors, config, embedding, torch.from_numpy(tokens.astype(numpy.int64)), torch.tensor(taps))
            same += int((target_of[logits.argmax(-1)].numpy() == theirs).sum())
            places += n
            texts += 1
    print(f"{texts} texts, {places} places, {same} with the same likeliest token: {same / places:.4%}")
    return 0 if same >= 0.999 * places else 7


if __name__ == "__main__":
    sys.exit(main())
