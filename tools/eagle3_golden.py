#!/usr/bin/env python3
"""Makes golden outputs of the EAGLE-3 forward pass on tiny random heads, in tests/golden/eagle3.

<case>.json holds the head's config.json, the names and shapes of its tensors, the sizes of its target and the rows that
are run; <case>.safetensors what comes out: hidden [rows, H], which is fed back into the next step, and logits [rows, Vd].
The weights and taps are not stored: a value is a hash of the case's seed, the tensor's name and the element's index, made
here and in tests/golden/eagle3_case.h alike, exact in float32.

The pass is the published one, in float64. For row r with token t, position p and parent row q:
    g = fc(concat(taps of r)) in an extend, else the hidden of row q
    x = concat(RMS(embedding of t; input_layernorm), RMS(g; hidden_norm))
    h = g + o_proj(attention(q(x), k(x), v(x)))     over r and its ancestors, rotated by position, halves together
    h = h + mlp(RMS(h; post_attention_layernorm))
    logits = lm_head(RMS(h; norm)); hidden = h, or RMS(h; norm) with norm_output
fc_norm: an RMSNorm on each tap before fc. norm_before_fc: one over the three together, before that.
The first rows are an extend, each the parent of the next; then a chain of recurrent steps; then two levels of a tree.

Needs: torch.  --check writes nothing and compares what is there.
"""
import argparse
import json
import math
import struct
import sys
from pathlib import Path

try:
    import torch
except ImportError as error:
    sys.exit(f"error: {error}; install torch (pip install torch)")

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "tests" / "golden" / "eagle3"
EXTEND, CHAIN = 9, 4
# Parents of the tree's rows. Rows 0 to 8 are the extend, 9 to 12 the chain from row 8; 13 and 14 are brothers of row 9.
TREE = [8, 8, 9, 13, 13, 14]
TAP_SCALES = [1.0, 4.0, 16.0]  # the residual stream grows with depth


def cases():
    """Name -> what differs from the first one."""
    base = dict(hidden=64, target_hidden=64, ffn=96, heads=4, kv_heads=2, head_dim=16, vocab=160, draft_vocab=96,
                layers=12, layer="midlayer.", prefix="", position=0, config={}, extra={}, own_embedding=False,
                output=True, d2t=True)
    ids = "eagle_aux_hidden_state_layer_ids"
    changes = {
        "original": {},
        "layers_0": dict(hidden=96, target_hidden=96, heads=6, kv_heads=3, layer="layers.0.", prefix="model.",
                         config={ids: [2, 6, 9]}),
        "own_embedding": dict(target_hidden=96, heads=2, kv_heads=1, head_dim=48, own_embedding=True,
                              config={"target_hidden_size": 96}),
        "whole_vocab": dict(draft_vocab=160, output=False, d2t=False, config={"draft_vocab_size": None}),
        "fc_norm": dict(config={"fc_norm": True}),
        "eagle_3_1": dict(hidden=96, target_hidden=64, heads=3, kv_heads=3, head_dim=32, own_embedding=True, position=7,
                          config={"target_hidden_size": 64, "fc_norm": True, "norm_output": True}),
        "norm_output": dict(kv_heads=4, own_embedding=True,
                            config={"eagle_config": {ids: [1, 5, 8], "return_hidden_post_norm": True}}),
        "norm_before_fc": dict(config={"eagle_config": {ids: [2, 6, 12], "norm_before_fc": True, "norm_output": True}}),
        "biases_llama3": dict(hidden=128, target_hidden=96, heads=8, kv_heads=2, own_embedding=True, position=40,
                              extra={"fc.bias": ["hidden"], "q_proj.bias": ["q"], "k_proj.bias": ["kv"],
                                     "v_proj.bias": ["kv"]},
                              config={"target_hidden_size": 96, "rope_theta": 500.0,
                                      "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                                       "high_freq_factor": 4.0,
                                                       "original_max_position_embeddings": 64}}),
        "linear_rope": dict(kv_heads=1, position=3, config={"rope_scaling": {"type": "linear", "factor": 2.5}}),
    }
    return {name: {**base, **change, "name": name, "seed": i + 1} for i, (name, change) in enumerate(changes.items())}


def config_of(c):
    config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
              "hidden_size": c["hidden"], "intermediate_size": c["ffn"], "num_attention_heads": c["heads"],
              "num_key_value_heads": c["kv_heads"], "head_dim": c["head_dim"], "hidden_act": "silu", "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "rope_scaling": None, "vocab_size": c["vocab"],
              "draft_vocab_size": c["draft_vocab"], "max_position_embeddings": 2048, "tie_word_embeddings": False}
    config.update(c["config"])
    return config


def flag(config, name):
    return bool(config.get("eagle_config", {}).get(name, config.get(name, False)))


def tensors_of(c, config):
    """[name, shape] of the head's float tensors, in the order of the file."""
    h, ht, f = c["hidden"], c["target_hidden"], c["ffn"]
    q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    sizes = {"hidden": h, "q": q, "kv": kv}
    top, layer = c["prefix"], c["prefix"] + c["layer"]
    names = [(top + "fc.weight", [h, 3 * ht]), (layer + "input_layernorm.weight", [h]), (layer + "hidden_norm.weight", [h]),
             (layer + "self_attn.q_proj.weight", [q, 2 * h]), (layer + "self_attn.k_proj.weight", [kv, 2 * h]),
             (layer + "self_attn.v_proj.weight", [kv, 2 * h]), (layer + "self_attn.o_proj.weight", [h, q]),
             (layer + "post_attention_layernorm.weight", [h]), (layer + "mlp.gate_proj.weight", [f, h]),
             (layer + "mlp.up_proj.weight", [f, h]), (layer + "mlp.down_proj.weight", [h, f]), (top + "norm.weight", [h])]
    for name, shape in c["extra"].items():
        names.append((top + name if name.startswith("fc") else layer + "self_attn." + name, [sizes[s] for s in shape]))
    if flag(config, "fc_norm"):
        names += [(f"{top}fc_norm.{i}.weight", [ht]) for i in range(3)]
    if flag(config, "norm_before_fc"):
        names.append((top + "input_norm.weight", [3 * ht]))
    if c["own_embedding"]:
        names.append((top + "embed_tokens.weight", [c["vocab"], h]))
    if c["output"]:
        names.append(("lm_head.weight", [c["draft_vocab"], h]))
    return names


def hashed(seed, name, count):
    """Uniform in [-1, 1), multiples of 2^-23: the high bits of a mixed counter."""
    start = 0x811C9DC5 ^ seed
    for byte in name.encode():
        start = (start ^ byte) * 0x01000193 & 0xFFFFFFFF
    x = (torch.arange(count, dtype=torch.int64) * 0x9E3779B1 + start) & 0xFFFFFFFF
    x = ((x ^ x >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ x >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
    x = x ^ x >> 16
    return ((x >> 8).to(torch.float32) - 2**23) / 2**23


def values_of(seed, name, shape):
    """A norm is about 1; the scale of a matrix is a power of two near the one that keeps the size of its input, more for
    those whose outputs are multiplied: an attention that mixes evenly, and a gate that is half open, would hide faults."""
    x = hashed(seed, name, math.prod(shape)).reshape(shape)
    if len(shape) == 1:
        return x * 0.25 + 1 if "norm" in name else x * 0.5
    if "embed" in name or "embd" in name:
        return x
    more = 2 if "self_attn" in name and "o_proj" not in name else 1 if "mlp" in name else 0
    return x * 2.0 ** (more - shape[1].bit_length() // 2)


def rms(x, weight, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def frequencies(config, dim):
    base = config["rope_theta"]
    freqs = base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    scaling = config["rope_scaling"]
    if scaling is None:
        return freqs
    if scaling.get("type") == "linear":
        return freqs / scaling["factor"]
    # Llama 3: the original length over the wave says how often a wave fits; few times: divided, many times: kept.
    turns = scaling["original_max_position_embeddings"] * freqs / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = (turns - low) / (high - low)
    blended = (1 - smooth) * freqs / scaling["factor"] + smooth * freqs
    return torch.where(turns < low, freqs / scaling["factor"], torch.where(turns > high, freqs, blended))


def rotate(x, angle):
    """x [heads, D]: the halves are the two coordinates."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


class Head:
    def __init__(self, c, config, target):
        self.c, self.config = c, config
        self.w = {}
        for name, shape in tensors_of(c, config):
            short = name.removeprefix("model.").removeprefix("midlayer.").removeprefix("layers.0.")
            self.w[short] = values_of(c["seed"], name, shape).double()
        self.embedding = self.w.get("embed_tokens.weight", target["token_embd.weight"])
        self.output = self.w.get("lm_head.weight", target["output.weight"])
        self.freqs = frequencies(config, c["head_dim"])

    def linear(self, name, x):
        y = self.w[name + ".weight"] @ x
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def fuse(self, taps):
        eps = self.config["rms_norm_eps"]
        x = taps.double().reshape(-1)
        if flag(self.config, "norm_before_fc"):
            x = rms(x, self.w["input_norm.weight"], eps)
        if flag(self.config, "fc_norm"):
            x = torch.cat([rms(part, self.w[f"fc_norm.{i}.weight"], eps) for i, part in enumerate(x.chunk(3))])
        return self.linear("fc", x)

    def forward(self, g, token, position, seen):
        """One row. `seen` are keys and values of its ancestors; returns hidden, logits and its own (key, value)."""
        c, eps = self.c, self.config["rms_norm_eps"]
        norm = lambda name, x: rms(x, self.w[name + ".weight"], eps)  # noqa: E731
        x = torch.cat([norm("input_layernorm", self.embedding[token]), norm("hidden_norm", g)])
        angle = position * self.freqs
        q = rotate(self.linear("self_attn.q_proj", x).reshape(c["heads"], -1), angle)
        k = rotate(self.linear("self_attn.k_proj", x).reshape(c["kv_heads"], -1), angle)
        v = self.linear("self_attn.v_proj", x).reshape(c["kv_heads"], -1)
        repeat = c["heads"] // c["kv_heads"]
        keys = torch.stack([s[0] for s in seen] + [k]).repeat_interleave(repeat, 1)  # [positions, heads, D]
        values = torch.stack([s[1] for s in seen] + [v]).repeat_interleave(repeat, 1)
        scores = torch.einsum("hd,phd->hp", q, keys) / math.sqrt(c["head_dim"])
        mixed = torch.einsum("hp,phd->hd", scores.softmax(-1), values).reshape(-1)
        h = g + self.linear("self_attn.o_proj", mixed)
        m = norm("post_attention_layernorm", h)
        h = h + self.linear("mlp.down_proj",
                            torch.nn.functional.silu(self.linear("mlp.gate_proj", m)) * self.linear("mlp.up_proj", m))
        normed = norm("norm", h)
        post = flag(self.config, "norm_output") or flag(self.config, "return_hidden_post_norm")
        return (normed if post else h), self.output @ normed, (k, v)


def run(c):
    """{file name: bytes} of one case."""
    config, seed = config_of(c), c["seed"]
    ht, vocab = c["target_hidden"], c["vocab"]
    target = {name: values_of(seed, "target." + name, [vocab, ht]).double()
              for name in ("token_embd.weight", "output.weight")}
    head = Head(c, config, target)
    taps = hashed(seed, "taps", EXTEND * 3 * ht).reshape(EXTEND, 3, ht) * torch.tensor(TAP_SCALES).reshape(1, 3, 1)
    parents = [r - 1 for r in range(EXTEND + CHAIN)] + TREE
    tokens = ((hashed(seed, "tokens", len(parents)) + 1) * (vocab // 2)).long().tolist()
    positions, hidden, logits, kv = [], [], [], []
    for row, parent in enumerate(parents):
        positions.append(c["position"] if parent < 0 else positions[parent] + 1)
        ancestors, at = [], parent
        while at >= 0:
            ancestors.insert(0, at)
            at = parents[at]
        g = head.fuse(taps[row]) if row < EXTEND else hidden[parent]
        out = head.forward(g, tokens[row], positions[row], [kv[a] for a in ancestors])
        hidden.append(out[0])
        logits.append(out[1])
        kv.append(out[2])
    hidden, logits = torch.stack(hidden), torch.stack(logits)
    # One draft token in no particular order: target ids 1, 8, 15, ... modulo the vocabulary.
    d2t = [(7 * i + 1) % vocab - i for i in range(c["draft_vocab"])] if c["d2t"] else []
    spec = {"name": c["name"], "seed": seed,
            "target": {"num_layers": c["layers"], "hidden": ht, "vocab": vocab},
            "config": config, "tensors": [{"name": n, "shape": s} for n, s in tensors_of(c, config)], "d2t": d2t,
            "num_extend": EXTEND, "num_chain": CHAIN, "tap_scales": TAP_SCALES, "tokens": tokens, "positions": positions,
            "parents": parents}
    print(f"{c['name']}: hidden up to {hidden.abs().max():.1f}, logits {logits.min():.1f} to {logits.max():.1f}")
    text = json.dumps(spec, indent=1)
    return {c["name"] + ".json": (text + "\n").encode(),
            c["name"] + ".safetensors": safetensors({"hidden": hidden, "logits": logits})}


def safetensors(tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        raw = t.float().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":"))
    text += " " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text.encode() + data


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    files = {}
    for c in cases().values():
        files.update(run(c))
    if args.check:
        def same(name, raw):  # float64 sums may differ in their last bits between machines
            stored = (OUT / name).read_bytes()
            if name.endswith(".json"):
                return stored == raw
            start = 8 + struct.unpack("<Q", raw[:8])[0]
            a, b = (torch.frombuffer(bytearray(x[start:]), dtype=torch.float32) for x in (stored, raw))
            return stored[:start] == raw[:start] and torch.allclose(a, b, rtol=1e-5, atol=1e-5)
        different = [name for name, raw in files.items() if not same(name, raw)]
        sys.exit(f"error: different: {', '.join(different)}" if different else 0)
    OUT.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (OUT / name).write_bytes(raw)
    print(f"{len(files)} files, {sum(map(len, files.values()))} bytes")


if __name__ == "__main__":
    main()
